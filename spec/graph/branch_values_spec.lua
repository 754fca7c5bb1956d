--- Values of constants that functions of the library look at themselves, in
--- branches and loops that may never run.
local tf = require "tfdist"
local expect = require "spec.support.expect"

local function i32(list) return tf.constant(list, { dtype = "int32" }) end

local function array(n, options)
  options = options or {}
  options.size = n
  return tf.TensorArray("float32", options)
end

-- What is said, and fn(x) of x = {{1, 2}, {3, 4}}.
local cases = {
  { "reverse_sequence: seq_lengths[1] = 9 is outside 0..2", function(x)
    return tf.reverse_sequence(x, i32 { 1, 9 }, 1) end },
  { "reverse_sequence: seq_lengths[0] = -1 is outside 0..2", function(x)
    return tf.reverse_sequence(x, { -1, 9 }, 1) end },
  { "repeat_: repeats[0] = -1; expected 0 or more", function(x)
    return tf.repeat_(x, i32 { -1, 1 }, 0) end, "ValueError" },
  { "repeat_: repeats[0] = -2; expected 0 or more", function(x)
    return tf.repeat_(x, -2, 0) end },
  { "slice: axis 1: begin 1 and size 2 do not fit", function(x)
    return tf.slice(x, { 0, 1 }, { 1, 2 }) end },
  { "slice: axis 0: begin -1 and size 1 do not fit", function(x)
    return tf.slice(x, i32 { -1, 0 }, i32 { 1, 2 }) end },
  { "mode REFLECT mirrors at most 1 of 2 elements", function(x)
    return tf.pad(x, { { 2, 0 }, { 0, 0 } }, "REFLECT") end },
  { "mode SYMMETRIC mirrors at most 2 of 2 elements", function(x)
    return tf.pad(x, i32 { { 0, 3 }, { 0, 0 } }, "SYMMETRIC") end },
  { "random_crop: a window of {3, 1} does not fit into {2, 2}", function(x)
    return tf.image.random_crop(x, { 3, 1 }) end },
  { "dynamic_partition: partitions[1] = 5 is outside [0, 2)", function(x)
    return tf.dynamic_partition(x, i32 { 0, 5 }, 2)[1] end },
  { "unravel_index: indices[1] = 9 is outside a tensor of shape {2, 2}",
    function(x)
      return x + tf.cast(tf.unravel_index({ 0, 9 }, { 2, 2 }), "float32") end },
  { "unravel_index: indices[0] = 0 is outside a tensor of shape {0, 2}",
    function(x)
      return x + tf.cast(tf.unravel_index({ 0, 0 }, { 0, 2 }), "float32") end },
  { "minval is 5 and maxval is 5", function(x)
    return x * tf.cast(tf.random.uniform({ 2, 2 }, 5, 5, "int32"), "float32")
  end },
  { "minval is 2 and maxval is 1", function(x)
    return x * tf.random.uniform({ 2, 2 }, 2, 1) end },
  { "confusion_matrix: found class 5; expected 0 to 1", function(x)
    return x * tf.math.confusion_matrix({ 5 }, { 1 }, 2, nil, "float32") end },
  { "confusion_matrix: labels hold a negative class", function(x)
    return x + tf.reduce_sum(tf.math.confusion_matrix({ -1 }, { 1 }, nil, nil,
      "float32")) end },
  { "case: no condition holds", function(x)
    return tf.case { { tf.constant(false), function() return x end } } end },
  { "case: more than one condition holds", function(x)
    return tf.case({ { true, function() return x end },
      { true, function() return x end } }, { exclusive = true }) end },
  { "TensorArray.read: Tried to read from index 3 but array size is: 3",
    function(x) return array(3):write(0, x):read(3) end, "OutOfRange" },
  { "TensorArray.read: Reading from negative indices (index -1)",
    function(x) return array(3):write(0, x):read(-1) end, "OutOfRange" },
  { "TensorArray.gather: Tried to read from index 7", function(x)
    return array(3):write(0, x):gather { 0, 7 } end, "OutOfRange" },
  { "TensorArray.gather: Reading from negative indices (index -2)",
    function(x) return array(3):write(0, x):gather(i32 { 0, -2 }) end,
    "OutOfRange" },
  { "TensorArray.write: Tried to write to index 5", function(x)
    return array(3):write(5, x):stack() end, "OutOfRange" },
  { "TensorArray.write: Writing to negative indices (index -1)", function(x)
    return array(0, { dynamic_size = true }):write(-1, x):write(0, x):stack()
  end, "OutOfRange" },
  { "TensorArray.scatter: Tried to write to index 5", function(x)
    return array(3):scatter({ 0, 5 }, x):stack() end, "OutOfRange" },
  { "TensorArray.unstack: Cannot unstack 2 tensors", function(x)
    return array(1):unstack(x):stack() end, "ValueError" },
  { "TensorArray.split: Expected sum of lengths", function(x)
    return array(2, { infer_shape = false }):split(x, { 1, 9 }):concat() end },
  { "TensorArray.split: lengths[0] = -1; expected 0 or more", function(x)
    return array(2, { infer_shape = false }):split(x, { -1, 3 }):concat() end },
  { "TensorArray.split: TensorArray's size is not equal", function(x)
    return array(3, { infer_shape = false }):split(x, { 1, 1 }):concat() end },
}

local X = { { 1, 2 }, { 3, 4 } }

local function sum_of(case, x)
  local y = tf.reduce_sum(case[2](x))
  return y
end

local function is_in(line, fn)
  local info = debug.getinfo(fn, "S")
  return line >= info.linedefined and line <= info.lastlinedefined
end

-- fn() raises what the case says, at its line; a tail call leaves its caller's.
local function raised(case, fn)
  local e = expect.failure(fn)
  assert.are.equal(case[3] or "InvalidArgument", e.kind)
  assert.is_not_nil(e.message:find(case[1], 1, true), e.message)
  local line = tonumber(e.where:match "branch_values_spec.lua:(%d+)$")
  assert.is_true(is_in(line, case[2]) or is_in(line, sum_of), e.where)
end

describe("values that a function of the library refuses", function()
  it("are refused at once outside of branches", function()
    for _, case in ipairs(cases) do
      raised(case, function() return sum_of(case, tf.constant(X)) end)
      local f = tf.function_(function() return sum_of(case, tf.constant(X)) end)
      raised(case, f)
    end
  end)

  it("are for the calls that take the branch to raise", function()
    for _, case in ipairs(cases) do
      local f = tf.function_(function(p, x)
        return tf.cond(p, function() return sum_of(case, x) end,
          function() return tf.reduce_sum(x) end)
      end)
      for _ = 1, 2 do
        assert.are.equal(10, f(tf.constant(false), tf.constant(X)):item())
        raised(case, function()
          return f(tf.constant(true), tf.constant(X)):item()
        end)
      end
    end
  end)

  it("leave the other branch its gradient, on tapes inside and outside",
    function()
      for _, case in ipairs(cases) do
        local v = tf.Variable(X)
        local function loss(p)
          return tf.cond(p, function() return sum_of(case, v * 1) end,
            function() return tf.reduce_sum(v * v) end)
        end
        local inside = tf.function_(function(p)
          local tape = tf.GradientTape()
          local y = loss(p)
          tape:close()
          return tape:gradient(y, v)
        end)
        local f = tf.function_(loss)
        local function outside(p)
          local tape = tf.GradientTape()
          local y = f(p)
          tape:close()
          return tape:gradient(y, v)
        end
        for _, gradient in ipairs { inside, outside } do
          assert.are.same({ { 2, 4 }, { 6, 8 } },
            gradient(tf.constant(false)):totable())
          raised(case, function()
            return gradient(tf.constant(true)):totable()
          end)
        end
      end
    end)

  it("are no matter for a loop that does not turn", function()
    for _, case in ipairs(cases) do
      local f = tf.function_(function(n, x)
        local _, y = tf.while_loop(function(i) return i:less(n) end,
          function(i, y) return i + 1, y + sum_of(case, x) end,
          { tf.constant(0, "int32"), tf.constant(7) })
        return y
      end)
      local x = tf.constant(X)
      assert.are.equal(7, f(tf.constant(0, "int32"), x):item())
      raised(case, function() return f(tf.constant(1, "int32"), x):item() end)
    end
  end)

  it("are said once, however many there are", function()
    local bad = {}
    for i = 1, 20000 do
      bad[i] = -i
    end
    local f = tf.function_(function(p)
      return tf.cond(p, function()
        return tf.reduce_sum(tf.unravel_index(i32(bad), { 2, 2 }))
      end, function() return i32(0) end)
    end)
    assert.are.equal(0, f(tf.constant(false)):item())
    expect.raises("InvalidArgument", "indices[0] = -1 is outside", function()
      return f(tf.constant(true)):item()
    end)
    assert.is_true(#f:get_concrete_function(tf.constant(false)):graph() < 5000)
  end)

  it("are those of a case whose last condition is known", function()
    local f = tf.function_(function(p)
      return tf.case { { p, function() return tf.constant(1) end },
        { false, function() return tf.constant(2) end } }
    end)
    assert.are.equal(1, f(tf.constant(true)):item())
    expect.raises("InvalidArgument", "case: no condition holds", function()
      return f(tf.constant(false)):item()
    end)
  end)
end)
