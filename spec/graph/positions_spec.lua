-- Positions that only a call of a traced function knows.
local leaks = require "spec.support.leaks"
local R = require "spec.support.replicas"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local fails = R.fails
local unpack = table.unpack or unpack -- luacheck: ignore 143 113

-- 0 .. 23 in {2, 3, 4}.
local function numbers()
  return tf.reshape(tf.range(24, { dtype = "float32" }), { 2, 3, 4 })
end

-- f as it is and traced gives `expected` at i.
local function gives(expected, f, i)
  local traced = tf.function_(f)
  for _, call in ipairs { f, traced, traced } do
    local y = call(tf.constant(i, "int32"))
    assert.same(expected, y:totable())
  end
end

describe("a position that is an argument of a traced function", function()
  leaks(before_each, after_each)

  it("picks along its axis, from the end where it is negative", function()
    local x = numbers()
    local rows = { [0] = { 4, 5, 6, 7 }, { 16, 17, 18, 19 } }
    for at = -2, 1 do
      gives(rows[at % 2], function(i) return x[{ i, 1 }] end, at)
      gives({ rows[at % 2] }, function(i)
        return x[{ tf.newaxis, i, -2, {} }] end, at)
    end
    gives({ 12, 16, 20 }, function(i) return x[{ i, {}, 0 }] end, 1)
    gives({ { 1, 5, 9 }, { 13, 17, 21 } }, function(i)
      return x[{ "...", i }] end, 1)
    gives({ { 8, 9, 10, 11 }, { 20, 21, 22, 23 } }, function(i)
      return x[{ n = 3, nil, i }] end, -1)
    gives({ 16, 18 }, function(i) return x[{ i, i, { 0, nil, 2 } }] end, 1)
    gives(12, function(i) return x[i][0][0] end, -1)
    gives(22, function(i) return x[{ tf.cast(i, "int8"), -1, 2 }] end, 1)
    local v = tf.Variable(x)
    gives({ 0, 1, 2, 3 }, function(i) return v[{ i, 0 }] end, 0)
  end)

  it("gives the begins of slices whose sizes are known", function()
    local x = numbers()
    gives({ { { 5, 6 } }, { { 17, 18 } } }, function(i)
      return tf.slice(x, { 0, i, i }, { -1, 1, 2 }) end, 1)
    gives({ { { 17, 18 } } }, function(i)
      return x:slice(tf.stack { i, i, i }, { 1, 1, 2 }) end, 1)
    gives({ { 4, 6 } }, function(i)
      return tf.strided_slice(x, { 0, i, 0 }, { 1, i + 1, 4 }, { 1, 1, 2 },
        { shrink_axis_mask = 2 }) end, 1)
    gives({ { 16, 17, 18, 19 } }, function(i)
      return tf.strided_slice(x, { 0, i, i }, { 0, i, i }, nil,
        { new_axis_mask = 1, shrink_axis_mask = 6 }) end, 1)
    gives({ 13, 17, 21 }, function(i)
      return tf.strided_slice(x, { i, 0, i }, { i, 0, i }, nil,
        { ellipsis_mask = 2, shrink_axis_mask = 5 }) end, 1)
    gives({ { { 0, 1 } }, { { 12, 13 } } }, function(i)
      return tf.strided_slice(x, { i, 0, tf.constant(0, "int32") },
        { i, 1, 2 }, nil, { begin_mask = 1, end_mask = 1 }) end, 1)
  end)

  -- The gradient of x^2 is 2 x at the numbers that f takes, 0 elsewhere.
  it("has gradients", function()
    local v = tf.Variable(numbers())
    for _, case in ipairs {
      { -1, { 11, 23 }, function(i) return v[{ {}, i, -1 }] end },
      { 1, { 13, 14, 17, 18, 21, 22 }, function(i)
        return tf.slice(v, { i, 0, i }, { 1, -1, 2 }) end },
      { 1, { 4, 6 }, function(i)
        return tf.strided_slice(v, { 0, i, 0 }, { 1, i, 4 }, { 1, 1, 2 },
          { shrink_axis_mask = 2 }) end },
    } do
      local at, taken, f = case[1], case[2], case[3]
      local want = {}
      for k = 1, 24 do want[k] = 0 end
      for _, k in ipairs(taken) do want[k + 1] = 2 * k end
      gives(want, function(i)
        local tape, y = tf.GradientTape(function()
          return tf.reduce_sum(f(i) ^ 2)
        end)
        return tf.reshape(tape:gradient(y, v), { 24 })
      end, at)
    end
  end)

  it("is checked by the call", function()
    local x = numbers()
    local pick = tf.function_(function(i) return x[{ {}, i }] end)
    local part = tf.function_(function(i)
      return tf.slice(x, { 0, i, 0 }, { 1, 2, 1 }) end)
    for _, at in ipairs { 3, -4 } do
      fails("InvalidArgument", ("%d is outside [0, 3)"):format(at), function()
        return pick(tf.constant(at, "int32")):totable()
      end)
    end
    fails("InvalidArgument", "3 is outside [0, 3)", function()
      return part(tf.constant(2, "int32")):totable()
    end)
    for _, f in ipairs { function(i) return x[{ tf.cast(i, "float32") }] end,
      function(i) return x[{ i:equal(0) }] end } do
      fails("TypeError", "index: a position must be a whole number",
        tf.function_(f), tf.constant(0, "int32"))
    end
  end)

  it("is refused by name where the size would depend on it", function()
    local x, at = numbers(), tf.constant(1, "int32")
    for message, f in pairs {
      ["slice: begin of axis 1, where size is -1"] = function(i)
        return tf.slice(x, { 0, i, 0 }, { 1, -1, 1 }) end,
      ["slice: size is known to a call"] = function(i)
        return tf.slice(x, { 0, 0, 0 }, { 1, i, 1 }) end,
      ["strided_slice: begin is known to a call"] = function(i)
        return tf.strided_slice(x, { i }, { 2 }) end,
      ["strided_slice: end_ is known to a call"] = function(i)
        return tf.strided_slice(x, { 0 }, { i }) end,
      ["strided_slice: strides is known to a call"] = function(i)
        return tf.strided_slice(x, { 0 }, { 2 }, { i }) end,
    } do
      local e = fails("NotImplementedError", message, tf.function_(f), at)
      assert.matches("tf.gather(x, i + tf.range(n))", e.hint, 1, true)
    end
  end)
end)

describe("what says sizes, axes or counts", function()
  leaks(before_each, after_each)

  it("is refused by name where only a call knows it", function()
    local x, kept = tf.ones { 6 }, tf.Variable(3, { dtype = "int32" })
    for message, f in pairs {
      ["zeros: shape"] = function(n) return tf.zeros { n, 2 } end,
      ["ones: shape"] = function() return tf.ones { kept } end,
      ["fill: dims"] = function(n) return tf.fill({ n }, 2.5) end,
      ["random.normal: shape"] = function(n) return tf.random.normal { n } end,
      ["reshape: shape"] = function(n) return x:reshape { n, -1 } end,
      ["broadcast_to: shape"] = function(n) return tf.broadcast_to(x, { n, 6 })
      end,
      ["tile: multiples"] = function(n) return tf.tile(x, { n }) end,
      ["pad: paddings"] = function(n) return tf.pad(x, { { 0, n } }) end,
      ["range: limit"] = function(n) return tf.range(n) end,
      ["linspace: num"] = function(n) return tf.linspace(0, 1, n) end,
      ["one_hot: depth"] = function(n) return tf.one_hot({ 0, 1 }, n) end,
      ["top_k: k"] = function(n) return (tf.math.top_k(x, n)) end,
      ["reduce_sum: axis"] = function(n) return tf.reduce_sum(x, n) end,
      ["concat: axis"] = function(n) return tf.concat({ x, x }, n) end,
      ["TensorArray: size"] = function(n)
        return tf.TensorArray("float32", n):size() end,
    } do
      local e = fails("NotImplementedError", message .. " has values (int32 {",
        tf.function_(f), tf.constant(3, "int32"))
      assert.matches("positions_spec.lua", tostring(e), 1, true)
      assert.matches("a Lua number", e.hint, 1, true)
    end
  end)

  it("may be Lua numbers and the sizes of a tensor", function()
    local f = tf.function_(function(x, n)
      return tf.zeros { n, tf.shape(x)[0] }
    end)
    local x = tf.ones { 4 }
    assert.same({ 2, 4 }, { unpack(f(x, 2).shape) })
    assert.same({ 3, 4 }, { unpack(f(x, 3).shape) })
  end)
end)

describe("a scalar position", function()
  it("counts from the end where it is negative", function()
    local x = numbers()
    assert.equal(12, x[tf.constant(-2, "int32") + 1][0][0]:item())
    assert.equal(0, x[tf.constant(-2, "int64")][0][0]:item())
    fails("InvalidArgument", "-3 is outside [0, 2)", function()
      return x[tf.constant(-3, "int32")]:totable()
    end)
  end)

  -- As the strided_slice that it is in TensorFlow.
  it("has a dense gradient, where ops run and in a graph", function()
    local function same(f) return f end
    local function squares(a)
      local array = tf.TensorArray("float32", 3)
      local _, filled = tf.while_loop(function(i) return tf.less(i, 3) end,
        function(i, to) return i + 1, to:write(i, a[i] * a[i]) end,
        { tf.constant(0, "int32"), array })
      return filled:stack()
    end
    local at = tf.constant(-2, "int32")
    local spec = { input_signature = { tf.TensorSpec({ -1 }, "float32"),
      tf.TensorSpec({}, "int32") } }
    for _, wrap in ipairs { same, tf.function_, tf.function_(spec) } do
      for _, x in ipairs { tf.constant { 1, 2, 3 }, tf.Variable { 1, 2, 3 } } do
        for want, fn in pairs { [{ 2, 4, 6 }] = squares,
          [{ 0, 12, 0 }] = function(a, i) return a[i] * a[i] * a[i] end,
          [{ 0, 1, 0 }] = function(a) return a[tf.constant(1, "int64")] end } do
          local open = wrap ~= same and wrap ~= tf.function_
          local i = open and tf.constant(1, "int32") or at
          local tape, y = tf.GradientTape(function(tape)
            tape:watch(x)
            return wrap(fn)(x, i)
          end)
          local grad = tape:gradient(y, x)
          assert.equal("tensor", raw.kind(grad))
          assert.same(want, grad:totable())
        end
      end
    end
  end)

  it("leaves rows that are gathered the gradient of rows", function()
    local x = tf.ones { 3, 2 }
    for _, rows in ipairs { tf.constant({ 0, 2 }, "int32"),
      tf.constant({ 1 }, "int64") } do
      local tape, y = tf.GradientTape(function(tape)
        tape:watch(x)
        return x[rows]
      end)
      assert.equal("slices", raw.kind(tape:gradient(y, x)))
    end
  end)
end)

describe("tf.image.random_crop in a traced function", function()
  it("draws another place at each call, each as likely", function()
    local f = tf.function_(function(x)
      return tf.image.random_crop(x, { 2, 3, 1 }, { seed = 7 })
    end)
    local x = tf.reshape(tf.range(4 * 5), { 4, 5, 1 }) -- 3 * 3 places
    local seen, n = {}, 900
    for _ = 1, n do
      local at = f(x):toflat()
      for i = 1, 6 do
        assert.equal(at[1] + (i - 1) % 3 + (i > 3 and 5 or 0), at[i])
      end
      seen[at[1]] = (seen[at[1]] or 0) + 1
    end
    for row = 0, 2 do
      for column = 0, 2 do
        -- 100 of 900, whose deviation is 9.4: within five of those.
        assert.near(n / 9, seen[5 * row + column], 5 * 9.5)
      end
    end
  end)
end)

describe("positions that only a call knows", function()
  it("are unravelled along each axis, and looked at", function()
    for _, dtype in ipairs { "int32", "int64", "uint8" } do
      local f = tf.function_(function(x)
        return tf.unravel_index(x, { 20, 3, 5 })
      end)
      local at = { 0, 14, 15, 254 }
      local got = f(tf.constant(at, { dtype = dtype }))
      assert.equal(dtype, got.dtype)
      for i, n in ipairs(at) do
        assert.equal(math.floor(n / 15), got[0]:item(i - 1))
        assert.equal(math.floor(n / 5) % 3, got[1]:item(i - 1))
        assert.equal(n % 5, got[2]:item(i - 1))
      end
    end
    local f = tf.function_(function(x) return tf.unravel_index(x, { 2, 3 }) end)
    fails("InvalidArgument", "unravel_index: indices of {2, 3}: assert_less: at "
      .. "[1]: 6 and 6", f, tf.constant({ 5, 6 }, { dtype = "int32" }))
    fails("InvalidArgument", "assert_non_negative: at the scalar: -1", f,
      tf.constant(-1, "int32"))
  end)

  it("are no bytes that a graph could read", function()
    fails("NotImplementedError", "bitcast: input has values (float32 {2})",
      tf.function_(function(x)
        local y = tf.bitcast(x, "int32")
        return y
      end), tf.ones { 2 })
  end)
end)
