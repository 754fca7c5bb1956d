--- What the case table cannot say of elementwise ops and reductions: errors,
--- numbers in place of tensors, ties, gradients of gradients, slices.
local tf = require "tfdist"

local function caught(kind, pattern, fn)
  local ok, e = pcall(fn)
  assert.is_false(ok)
  assert.equal(kind, e.kind)
  assert.truthy(e.message:find(pattern), e.message)
end

local unpack = table.unpack or unpack -- luacheck: ignore 143 113
local TANH = (math.exp(1) - 1) / (math.exp(1) + 1) -- of 0.5

local function ints(values)
  return tf.constant(values, { dtype = "int32" })
end

local function gradient(fn, ...)
  local sources = { ... }
  local tape, y = tf.GradientTape(function(t)
    for _, s in ipairs(sources) do t:watch(s) end
    return fn(unpack(sources))
  end)
  local grads = tape:gradient(y, sources)
  local out = {}
  for i = 1, #sources do out[i] = grads[i] and grads[i]:totable() end
  return out
end

describe("elementwise ops", function()
  it("refuse integer division by zero", function()
    for _, name in ipairs { "floordiv", "floormod", "truncatediv",
      "truncatemod" } do
      caught("InvalidArgument", name .. ": integer division by zero",
        function() return tf.raw_ops[name](ints { 1, 2 }, ints { 1, 0 }):item(0)
        end)
    end
    caught("InvalidArgument", "pow: integers to negative", function()
      return tf.pow(ints { 2 }, ints { -1 }):item()
    end)
  end)

  it("name both dtypes and both shapes when they do not fit", function()
    caught("InvalidArgument", "add: x is int32 and y is float32", function()
      return tf.add(ints { 1 }, tf.constant { 1 })
    end)
    caught("InvalidArgument", "multiply: .*{2}.*{3}", function()
      return tf.multiply(tf.constant { 1, 2 }, tf.constant { 1, 2, 3 })
    end)
    caught("InvalidArgument", "exp: x has dtype int32", function()
      return tf.exp(ints { 1 })
    end)
    caught("InvalidArgument", "bool", function()
      return tf.add(tf.constant { true }, tf.constant { true })
    end)
    caught("InvalidArgument", "logical_and: x has dtype", function()
      return tf.logical_and(ints { 1 }, tf.constant { true })
    end)
    caught("InvalidArgument", "add_n: 0 inputs given", function()
      return tf.add_n {}
    end)
    caught("InvalidArgument", "add_n: inputs%[1%] is {3}", function()
      return tf.add_n { tf.zeros { 2 }, tf.zeros { 3 } }
    end)
  end)

  it("give the dtypes of TensorFlow's true division", function()
    local function quotient(dtype)
      local x = tf.constant({ 7 }, { dtype = dtype })
      return tf.divide(x, x).dtype
    end
    assert.equal("float64", quotient "int32")
    assert.equal("float64", quotient "int64")
    assert.equal("float32", quotient "int8")
    assert.equal("float32", quotient "uint8")
    assert.equal("bfloat16", quotient "bfloat16")
  end)

  it("negate and divide the smallest integer without a trap", function()
    local low = tf.cast(tf.constant(-9.3e18, { dtype = "float64" }), "int64")
    assert.equal(low:item(), tf.negative(low):item())
    assert.equal(low:item(), tf.raw_ops.floordiv(low,
      tf.constant(-1, { dtype = "int64" })):item())
    assert.equal(0, tf.raw_ops.floormod(low, tf.constant(-1,
      { dtype = "int64" })):item())
  end)

  -- F.10 of the C standard; the last ones are x times a positive number there.
  it("keep the sign of a zero", function()
    local zeros = {}
    for i = 1, 37 do zeros[i] = i % 2 == 0 and -0.0 or 0 end
    for _, fn in ipairs { "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh",
      "atanh", "expm1", "log1p", "erf", "sqrt", "ceil", "floor", "rint", "elu",
      "selu", "gelu", "softsign", "swish" } do
      for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
        local x = tf.constant(zeros, { dtype = dtype })
        local again = tf.function_(function(t)
          return tf.raw_ops[fn](t) * tf.ones_like(t)
        end)
        local got = { tf.raw_ops[fn](x):totable(), again(x):totable() }
        for i = 1, 37 do
          local sign = i % 2 == 0 and -1 or 1
          assert.equal(sign / 0, 1 / got[1][i], fn .. " of " .. dtype)
          assert.equal(sign / 0, 1 / got[2][i], fn .. " of " .. dtype)
        end
      end
    end
  end)

  it("send the gradient of a tie to the first of maximum and minimum",
    function()
      local x, y = tf.constant { 1, 2, 3 }, tf.constant { 1, 3, 2 }
      assert.same({ { 1, 0, 1 }, { 0, 1, 0 } }, gradient(tf.maximum, x, y))
      assert.same({ { 1, 1, 0 }, { 0, 0, 1 } }, gradient(tf.minimum, x, y))
    end)

  it("give powers finite gradients at base 0", function()
    local x, y = tf.constant { 0, 2, 0 }, tf.constant { 2, 3, 0 }
    local g = gradient(tf.pow, x, y)
    assert.same({ 0, 12, 0 }, g[1])
    assert.equal(0, g[2][1])
    assert.is_true(math.abs(g[2][2] - 8 * math.log(2)) < 1e-5)
    assert.equal(0, g[2][3])
  end)

  it("have second derivatives", function()
    local second = {
      exp = math.exp(0.5), sin = -math.sin(0.5), log = -4, square = 2,
      tanh = -2 * TANH * (1 - TANH ^ 2),
      sqrt = -0.25 * 0.5 ^ -1.5, reciprocal = 2 / 0.125,
    }
    for name, want in pairs(second) do
      local x = tf.constant(0.5, { dtype = "float64" })
      local outer, slope = tf.GradientTape(function(t)
        t:watch(x)
        local inner, y = tf.GradientTape(function(u)
          u:watch(x)
          return tf.math[name](x)
        end)
        return inner:gradient(y, x)
      end)
      local got = outer:gradient(slope, x):item()
      assert.is_true(math.abs(got - want) < 1e-9, name .. ": " .. got)
    end
  end)

  it("has a second derivative of 0 where a product is of one factor",
    function()
      for _, case in ipairs { { 3 }, { { 3 } }, { { 3, 4 }, { axis = {} } } } do
        local x = tf.constant(case[1])
        local outer, slope = tf.GradientTape(function(t)
          t:watch(x)
          local inner, y = tf.GradientTape(function(u)
            u:watch(x)
            return tf.reduce_sum(tf.reduce_prod(x, case[2] or {}))
          end)
          return inner:gradient(y, x)
        end)
        assert.equal(slope:size(), tf.reduce_sum(slope):item())
        assert.same(tf.zeros(x.shape):totable(),
          outer:gradient(slope, x):totable())
      end
    end)

  it("let no gradient through integers", function()
    local x = tf.constant { 1.5, 2.5 }
    assert.is_nil(gradient(function(v)
      return tf.cast(tf.cast(v, "int32"), "float32")
    end, x)[1])
  end)
end)

describe("clipping", function()
  it("keeps nil entries and slices of a gradient list", function()
    local slices = tf.IndexedSlices(tf.constant { { 3, 0 } }, ints { 1 },
      { 4, 2 })
    local list, norm = tf.clip_by_global_norm({ slices, nil,
      tf.constant { 4 }, n = 3 }, 2.5)
    assert.equal(5, norm:item())
    assert.equal(3, list.n)
    assert.is_nil(list[2])
    assert.same({ { 1.5, 0 } }, list[1].values:totable())
    assert.same({ 2 }, list[3]:totable())
    assert.same({ 1 }, list[1].indices:totable())
  end)

  it("leaves alone what is short enough", function()
    local list = tf.clip_by_global_norm({ tf.constant { 3, 4 } }, 10)
    assert.same({ 3, 4 }, list[1]:totable())
    assert.same({ 3, 4 }, tf.clip_by_norm(tf.constant { 3, 4 }, 5):totable())
    assert.same({ 0, 0 }, tf.clip_by_norm(tf.zeros { 2 }, 5):totable())
  end)

  it("of half types by their norm is computed in float32", function()
    local t = tf.cast(tf.fill({ 1000 }, 100.0), "float16")
    local tape, clipped = tf.GradientTape(function(tape)
      tape:watch(t)
      return tf.clip_by_norm(t, 1)
    end)
    assert.equal("float16", clipped.dtype)
    assert.near(1000 ^ -0.5, clipped:totable()[1], 2e-5)
    -- The norm's direction has no part in it: s (1 - t sum(t) / norm^2) = 0.
    for _, g in ipairs(tape:gradient(clipped, t):totable()) do
      assert.near(0, g, 1e-6)
    end
    local small = tf.clip_by_norm(tf.cast(tf.constant { 3000, 4000 },
      "float16"), 1e-4):totable()
    assert.near(6e-5, small[1], 6e-8)
    assert.near(8e-5, small[2], 6e-8)
  end)

  it("by norm has no meaning for whole numbers", function()
    caught("InvalidArgument", "clip_by_norm: t is int32; expected a float",
      function()
        return tf.clip_by_norm(tf.constant({ 3, 4 }, "int32"), 2)
      end)
  end)

  it("makes everything NaN when the norm is infinite", function()
    local list = tf.clip_by_global_norm({ tf.constant { math.huge, 1 } }, 1)
    for _, v in ipairs(list[1]:totable()) do assert.is_true(v ~= v) end
  end)

  it("refuses a list without tensors", function()
    caught("ValueError", "no tensor", function()
      return tf.clip_by_global_norm({ n = 2 }, 1)
    end)
  end)
end)

describe("reductions", function()
  it("refuse axes outside the tensor or listed twice", function()
    caught("ValueError", "reduce_sum: axis 2 is outside", function()
      return tf.reduce_sum(tf.zeros { 2, 3 }, 2)
    end)
    caught("ValueError", "reduce_max: axis 1 is listed twice", function()
      return tf.reduce_max(tf.zeros { 2, 3 }, { 1, -1 })
    end)
    caught("InvalidArgument", "reduce_sum: input_tensor has dtype bool",
      function() return tf.reduce_sum(tf.constant { true }) end)
    caught("InvalidArgument", "reduce_any: input_tensor has dtype float32",
      function() return tf.reduce_any(tf.constant { 1 }) end)
  end)

  it("refuse the position of an extreme among nothing", function()
    caught("InvalidArgument", "argmax: axis 1 of input {2, 0} is empty",
      function() return tf.argmax(tf.zeros { 2, 0 }, 1) end)
    assert.same({ 0 }, tf.argmax(tf.zeros { 0, 2 }, 1).shape)
  end)

  it("find positions among NaN, infinities and large integers", function()
    local nan, inf = 0 / 0, math.huge
    local function at(values) return tf.argmax(tf.constant(values)):item() end
    assert.equal(2, at { nan, 1, 2 })
    assert.equal(1, at { nan, -inf, nan })
    assert.equal(0, at { nan, nan })
    assert.equal(1, at { 1, inf, inf })
    assert.equal(-inf, tf.reduce_max(tf.constant { -inf, -inf }):item())
    assert.equal(inf, tf.reduce_min(tf.constant { inf, inf }):item())
    assert.equal(-inf, tf.reduce_logsumexp(tf.constant { -inf, -inf }):item())
    local big = tf.constant({ 2 ^ 53 - 1, 2 ^ 53 }, { dtype = "int64" })
    assert.equal(1, tf.argmax(big):item())
    assert.equal(0, tf.argmin(big):item())
  end)

  it("share the gradient of an extreme among ties", function()
    local x = tf.constant { { 1, 2, 2 }, { 0, 0, 0 } }
    local g = gradient(function(v) return tf.reduce_max(v, 1) end, x)[1]
    for i, row in ipairs { { 0, 0.5, 0.5 }, { 1 / 3, 1 / 3, 1 / 3 } } do
      for j, want in ipairs(row) do
        assert.is_true(math.abs(g[i][j] - want) < 1e-6)
      end
    end
  end)

  it("give products gradients where factors are 0", function()
    assert.same({ { 6, 0, 0 } }, gradient(tf.reduce_prod,
      tf.constant { 0, 2, 3 }))
    assert.same({ { 0, 0, 0 } }, gradient(tf.reduce_prod,
      tf.constant { 0, 0, 3 }))
  end)

  it("give deviations and norms of equal numbers the gradient 0", function()
    assert.same({ { 0, 0 } }, gradient(tf.math.reduce_std,
      tf.constant { 2, 2 }))
    assert.same({ { 0, 0 } }, gradient(tf.math.reduce_euclidean_norm,
      tf.constant { 0, 0 }))
  end)

  it("do not overflow on the way", function()
    local x = tf.constant { 3e30, 4e30 }
    assert.is_true(math.abs(tf.math.reduce_euclidean_norm(x):item() / 5e30 - 1)
      < 1e-6)
    assert.equal(1, tf.reduce_prod(tf.constant { 1e30, 1e30, 1e-30, 1e-30 })
      :item())
    assert.equal(1000, tf.reduce_logsumexp(tf.constant { 1000, 0 }):item())
  end)
end)

describe("counting", function()
  it("refuses negative numbers and classes outside", function()
    caught("InvalidArgument", "bincount: arr holds %-1 at position 1",
      function() return tf.math.bincount(ints { 1, -1 }):item(0) end)
    caught("InvalidArgument", "confusion_matrix: found class 3", function()
      return tf.math.confusion_matrix({ 3 }, { 0 }, { num_classes = 3 })
    end)
    caught("InvalidArgument", "predictions hold a negative", function()
      return tf.math.confusion_matrix({ 1 }, { -1 })
    end)
  end)

  it("counts nothing", function()
    assert.same({ 0 }, tf.math.bincount(tf.zeros({ 0 },
      { dtype = "int32" })).shape)
    assert.same({ 0, 0 }, tf.math.bincount(tf.zeros({ 0 },
      { dtype = "int32" }), { minlength = 2 }):totable())
  end)
end)
