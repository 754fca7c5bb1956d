--- What values of constants are no good for, in branches and loops of traced
--- functions that may never run.
local tf = require "tfdist"
local expect = require "spec.support.expect"

local d = tf.debugging
local raises = expect.raises

describe("what is refused of constants in a branch", function()
  local ones = { { 1.0, 1.0 }, { 1.0, 1.0 } } -- singular
  local cases = {
    { "not invertible", function(c) return (tf.linalg.inv(c)) end },
    { "not positive definite", function(c)
      return (tf.linalg.cholesky(-c)) end },
    { "5 is outside", function(c) return (tf.gather(c, { 0, 5 })) end },
    { "division by zero", function(c)
      return tf.cast(tf.cast(c, "int32"):floordiv(0), "float32") end },
    { "expected x > 0", function(c) d.assert_positive(-c) return c end },
    { "expected x = y", function(c) d.assert_equal(c, 2) return c end },
    { "expected finite", function(c)
      return (d.check_numerics(c / 0, "c")) end },
    { "condition is false: no", function(c) d.Assert(false, { "no" }) return c
    end },
  }

  local function raised(f, case, p)
    local e = expect.failure(function() return f(p):totable() end)
    assert.are.equal("InvalidArgument", e.kind)
    assert.is_not_nil(e.message:find(case[1], 1, true), e.message)
    local line = debug.getinfo(case[2], "S").linedefined
    local where = tonumber(e.where:match "branch_errors_spec.lua:(%d+)$")
    assert.is_true(where == line or where == line + 1, e.where)
  end

  it("is for the calls that take it to raise", function()
    for _, case in ipairs(cases) do
      local c = tf.constant(ones)
      local f = tf.function_(function(p)
        return tf.cond(p, function() return case[2](c) + 1 end,
          function() return c end)
      end)
      for _ = 1, 2 do
        assert.are.same(ones, f(tf.constant(false)):totable())
        raised(f, case, tf.constant(true))
      end
    end
  end)

  it("is so in loops, whose body may never run, and for gradients", function()
    local c = tf.constant(ones)
    for _, case in ipairs(cases) do
      local v = tf.Variable(ones)
      local f = tf.function_(function(n)
        local tape = tf.GradientTape()
        local _, y = tf.while_loop(function(i) return i:less(n) end,
          function(i, y) return i + 1, y * (case[2](c) + 0) end,
          { tf.constant(0, "int32"), v * 3 })
        tape:close()
        return tape:gradient(y, v)
      end)
      assert.are.same({ { 3, 3 }, { 3, 3 } },
        f(tf.constant(0, "int32")):totable())
      raised(f, case, tf.constant(1, "int32"))
    end
  end)

  it("raises at the trace outside of branches, as shapes do in them", function()
    local f = tf.function_(function()
      return tf.linalg.inv(tf.constant(ones))
    end)
    raises("InvalidArgument", "not invertible", function()
      return f():totable()
    end)
    raises("InvalidArgument", "reshape", tf.function_(function(p)
      return tf.cond(p, function() return tf.reshape(ones, { 3 }) end,
        function() return tf.constant(ones) end)
    end), tf.constant(false))
  end)
end)

describe("who wants a value of what was refused in a branch", function()
  local c = tf.constant { 1, 2, 3 }
  local whole = tf.constant({ 1, 2 }, { dtype = "int32" })

  -- fn() in a branch that is not taken raises this, at the line of fn.
  local function told(kind, message, fn)
    local f = tf.function_(function(p)
      return tf.cond(p, function() return (fn()) end, function() return c end)
    end)
    local e = expect.failure(f, tf.constant(false))
    assert.are.equal(kind, e.kind)
    assert.is_not_nil(e.message:find(message, 1, true), e.message)
    assert.is_nil(e.message:find("only a call", 1, true), e.message)
    assert.matches("may never run", e.hint, 1, true)
  end

  it("is told what, whatever was made of it", function()
    local item = "has none: gather: indices[0] = 5 is outside [0, 3)"
    told("TypeError", item, function()
      return c * tf.gather(c, { 5 })[0]:item()
    end)
    told("TypeError", item, function()
      local t = tf.reduce_sum(tf.gather(c, { 5 }) * 2 + 1)
      return c * (t + c[0]):item()
    end)
    told("TypeError", "has none: matrix_inverse: the matrix is not invertible",
      function() return c * tf.linalg.inv(tf.zeros { 2, 2 })[0][0]:item() end)
  end)

  it("is told so in branches of that branch, and in loops", function()
    told("TypeError", "has none: gather: indices[0] = 5 is outside [0, 3)",
      function()
        local t = tf.gather(c, { 5 })
        return tf.cond(tf.greater(t[0], 1), function()
          return c * t:item()
        end, function() return c end)
      end)
    local f = tf.function_(function(x)
      return tf.map_fn(function(row)
        return row * tf.gather(c, { 7 }):item()
      end, x)
    end)
    expect.raises("TypeError", "has none: gather: indices[0] = 7", f, c)
  end)

  it("is told what where sizes and counts are wanted", function()
    told("NotImplementedError", "zeros: shape (int32 {1}) has no values: "
      .. "gather: indices[0] = 5 is outside [0, 2)",
      function() return tf.zeros(tf.gather(whole, { 5 })) end)
    told("NotImplementedError", "boolean_mask: mask (bool {3}) has no values: "
      .. "gather: indices[1] = 5 is outside [0, 3)", function()
        return tf.boolean_mask(c, tf.greater(tf.gather(c, { 1, 5, 0 }), 1))
      end)
  end)

  it("is told that only a call knows it, where nothing was refused", function()
    local f = tf.function_(function(x)
      return tf.cond(tf.greater(x[0], 1), function()
        local _ = tf.gather(c, { 5 })
        return c * x:item()
      end, function() return c end)
    end)
    expect.raises("TypeError", "has one only when the traced function runs", f,
      tf.constant { 1 })
  end)
end)

describe("slices that become dense", function()
  it("fail at the line that needs them so", function()
    local line
    local f = tf.function_(function(x, at)
      x = x * 2
      local s = tf.IndexedSlices(x, at, { 3 })
      line = debug.getinfo(1, "l").currentline + 1
      x = x + s
      return x
    end)
    local at = tf.constant({ 0, 9, 1 }, { dtype = "int32" })
    local e = expect.failure(function()
      return f(tf.constant { 1, 2, 3 }, at):totable()
    end)
    assert.are.equal(line, tonumber(e.where:match ":(%d+)$"))
  end)
end)

describe("an error while a function is traced", function()
  local function other() return tf.constant(1, { dtype = "int32" }) end

  it("names the function where a tail call has left no frame of it", function()
    local line = debug.getinfo(1, "l").currentline + 1
    local f = tf.function_(function(x)
      return tf.cond(x:greater(0), function() return x end, other)
    end)
    local e = expect.failure(function() return (f(tf.constant(1.0))) end)
    assert.are.equal("TypeError", e.kind)
    assert.are.equal(1, #e.notes)
    assert.matches("^in the traced function .*branch_errors_spec%.lua:" .. line
      .. "$", e.notes[1])
    assert.matches("\n  " .. e.notes[1], tostring(e), 1, true)
  end)

  it("has the position alone where the frame is there", function()
    local f = tf.function_(function(x)
      local y = tf.cond(x:greater(0), function() return x end, other)
      return y
    end)
    local e = expect.failure(function() return (f(tf.constant(1.0))) end)
    assert.is_nil(e.notes)
    e = expect.failure(function() return tf.cond(true) end) -- no trace
    assert.is_nil(e.notes)
  end)
end)
