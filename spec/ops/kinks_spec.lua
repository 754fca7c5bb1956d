-- Gradients where functions are not smooth, and gradients of gradients: as
-- TensorFlow 2.21 and Keras 3.15 have them.
local tf = require "tfdist"

local A = tf.keras.activations

-- The gradient of fn's sum at `points`, and that of the gradient's sum.
local function derivatives(fn, points)
  local x = tf.constant(points, "float64")
  local first
  local outer = tf.GradientTape(function(outer)
    outer:watch(x)
    local inner, y = tf.GradientTape(function(inner)
      inner:watch(x)
      return fn(x)
    end)
    first = inner:gradient(y, x)
  end)
  local second = outer:gradient(first, x)
  return tf.convert_to_tensor(first):totable(), second and second:totable()
end

local function check(fn, points, first, second)
  local g, h = derivatives(fn, points)
  local function near(want, got)
    assert.equal(#want, #got)
    for i, x in ipairs(want) do
      if type(x) == "table" then
        near(x, got[i])
      else
        assert.near(x, got[i], 1e-6 * (1 + math.abs(x)))
      end
    end
  end
  near(first, g)
  if second ~= nil then
    assert.not_nil(h)
    near(second, h)
  end
end

describe("activations at their kinks", function()
  local POINTS = { -1, 0, 1, 3, 6, 7 }
  local NONE = { 0, 0, 0, 0, 0, 0 }
  local e = math.exp(-1)
  local scale, alpha = 1.0507009873554804934, 1.6732632423543772848

  local CASES = {
    relu = { tf.nn.relu, { 0, 0, 1, 1, 1, 1 }, NONE },
    relu6 = { tf.nn.relu6, { 0, 0, 1, 1, 0, 0 }, NONE },
    leaky_relu = { function(x) return tf.nn.leaky_relu(x, 0.25) end,
      { 0.25, 0.25, 1, 1, 1, 1 }, NONE },
    elu = { tf.nn.elu, { e, 1, 1, 1, 1, 1 }, { e, 0, 0, 0, 0, 0 } },
    ["elu alpha 2"] = { function(x) return A.elu(x, 2) end,
      { 2 * e, 2, 1, 1, 1, 1 }, { 2 * e, 0, 0, 0, 0, 0 } },
    selu = { tf.nn.selu,
      { scale * alpha * e, scale, scale, scale, scale, scale },
      { scale * alpha * e, 0, 0, 0, 0, 0 } },
    ["a bias and relu"] = { function(x)
      return tf.raw_ops.bias_add_relu(tf.reshape(x, { 3, 2 }),
        tf.constant({ 0, 0 }, "float64"), "NHWC")
    end, { 0, 0, 1, 1, 1, 1 }, NONE },
    hard_sigmoid = { A.hard_sigmoid, { 1 / 6, 1 / 6, 1 / 6, 0, 0, 0 }, NONE },
    ["relu with a largest value"] = { function(x)
      return A.relu(x, { max_value = 3 })
    end, { 0, 0, 1, 1, 0, 0 }, NONE },
    ["relu with a threshold"] = { function(x)
      return A.relu(x, { threshold = 1 })
    end, { 0, 0, 0, 1, 1, 1 } },
    ["relu with a slope"] = { function(x) return A.relu(x, 0.25) end,
      { 0.25, 0.25, 1, 1, 1, 1 }, NONE },
    ["relu with all of them"] = { function(x) return A.relu(x, 0.25, 3, 1) end,
      { 0.25, 0.25, 0, 1, 0, 0 }, NONE },
  }
  for name, case in pairs(CASES) do
    it("are one-sided as in TensorFlow: " .. name, function()
      check(case[1], POINTS, case[2], case[3])
    end)
  end

  it("gives 0 at the threshold itself", function()
    assert.same({ -0.25, 0, 2 }, A.relu(tf.constant { 0, 1, 2 }, 0.25, nil, 1)
      :totable())
    assert.same({ 0, 0, 2 }, A.relu(tf.constant { 0, 1, 2 }, { threshold = 1 })
      :totable())
  end)
end)

describe("products of zeros", function()
  local Z = { { 2, 0, 3, 4 }, { 0, 0, 3, 4 }, { 1, 2, 3, 4 } }

  it("have finite gradients: running products", function()
    check(function(x) return tf.math.cumprod(x) end, { 2, 0, 3 }, { 1, 0, 0 })
    local function along(exclusive, reverse)
      return function(x) return tf.math.cumprod(x, 1, exclusive, reverse) end
    end
    check(along(false, false), Z, { { 1, 0, 0, 0 }, { 0, 0, 0, 0 },
      { 33, 16, 10, 6 } }, { { 0, 0, 0, 0 }, { 0, 0, 0, 0 },
      { 32, 24, 17, 11 } })
    check(along(false, true), Z, { { 0, 0, 4, 4 }, { 0, 0, 4, 4 },
      { 24, 24, 20, 16 } }, { { 0, 0, 1, 1 }, { 0, 0, 1, 1 },
      { 26, 26, 21, 17 } })
    check(along(true, false), Z, { { 1, 0, 0, 0 }, { 0, 0, 0, 0 },
      { 9, 4, 2, 0 } }, { { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 6, 5, 3, 0 } })
    check(along(true, true), Z, { { 0, 0, 4, 4 }, { 0, 0, 4, 4 },
      { 0, 12, 12, 10 } }, { { 0, 0, 1, 1 }, { 0, 0, 1, 1 },
      { 0, 7, 7, 6 } })
  end)

  it("have finite second derivatives: products", function()
    check(function(x) return tf.reduce_prod(x) end, { 0, 2, 3 }, { 6, 0, 0 },
      { 0, 3, 2 })
    check(function(x) return tf.reduce_prod(x, 1) end, Z,
      { { 0, 24, 0, 0 }, { 0, 0, 0, 0 }, { 24, 12, 8, 6 } },
      { { 12, 0, 8, 6 }, { 0, 0, 0, 0 }, { 26, 19, 14, 11 } })
    check(tf.reduce_prod, { { 2, 0 }, { 3, 4 } }, { { 0, 24 }, { 0, 0 } },
      { { 12, 0 }, { 8, 6 } })
  end)

  -- The reduced axes lie apart, first, last; all of them, none.
  it("are right along any axes", function()
    local x = tf.reshape(tf.range(1, 25, { dtype = "float64" }), { 2, 3, 4 })
    for _, axes in ipairs { { 0, 2 }, { 0 }, { 2 }, { 1, 2 }, { 0, 1, 2 },
      {} } do
      local tape, y = tf.GradientTape(function(t)
        t:watch(x)
        return tf.math.log(tf.reduce_prod(x, { axis = axes }))
      end)
      for i, g in ipairs(tape:gradient(y, x):toflat()) do
        assert.near(1 / i, g, 1e-5)
      end
    end
  end)
end)

describe("functions that are flat where they choose", function()
  it("have second derivatives of zeros: max_pool", function()
    check(function(x)
      return tf.nn.max_pool1d(tf.reshape(x, { 1, 4, 1 }), 2, 2, "VALID")
    end, { 2, 5, 5, 4 }, { 0, 1, 1, 0 }, { 0, 0, 0, 0 })
  end)

  it("curve within delta: huber", function()
    check(function(x)
      return tf.keras.losses.huber(tf.constant({ { 1, 2, 3, 4 } }, "float64"),
        x)
    end, { { 1, 2.5, 5, 0 } }, { { 0, 0.125, 0.25, -0.25 } },
      { { 0.25, 0.25, 0, 0 } })
  end)

  it("are not numbers at poles that change sign: polygamma", function()
    local y = tf.math.polygamma(tf.constant { 1, 2, 2 },
      tf.constant { -1, -1, 0 }):totable()
    assert.equal(math.huge, y[1])
    assert.is_true(y[2] ~= y[2] and y[3] ~= y[3])
  end)
end)

describe("matrices of a diagonal", function()
  it("are square unless sizes are given", function()
    assert.same({ { 0, 1, 0 }, { 0, 0, 2 }, { 0, 0, 0 } },
      tf.linalg.diag({ 1, 2 }, { k = 1 }):totable())
    assert.same({ { 0, 0, 0 }, { 1, 0, 0 }, { 0, 2, 0 } },
      tf.linalg.diag({ 1, 2 }, { k = -1 }):totable())
    local SIZES = { -- k, num_rows, num_cols, rows, columns
      { 0, 3, -1, 3, 2 }, { 0, -1, 3, 2, 3 }, { 1, 3, -1, 3, 3 },
      { 1, -1, 4, 2, 4 }, { -1, 4, -1, 4, 2 }, { -2, -1, 5, 4, 5 },
      { 2, -1, -1, 4, 4 }, { 1, 3, 3, 3, 3 },
    }
    for _, s in ipairs(SIZES) do
      assert.same({ s[4], s[5] }, tf.linalg.diag({ 1, 2 }, { k = s[1],
        num_rows = s[2], num_cols = s[3] }).shape)
    end
  end)
end)

describe("images that are resized and padded", function()
  local function padded(h, w, height, width)
    return tf.reshape(tf.image.resize_with_pad(tf.ones { h, w, 1 }, height,
      width), { height, width }):totable()
  end

  -- What is padded on each side comes from the size before it is rounded:
  -- 4 of 6 rows from 4.8.
  it("lie as in TensorFlow", function()
    local R, Z = { 1, 1, 1, 1, 1, 1 }, { 0, 0, 0, 0, 0, 0 }
    assert.same({ R, R, R, R, Z, Z }, padded(4, 5, 6, 6))
    local C = { 1, 1, 1, 1, 0, 0 }
    assert.same({ C, C, C, C, C, C }, padded(5, 4, 6, 6))
    local S, N = { 1, 1, 1, 1, 1, 1 }, { 0, 0, 0, 0, 0, 0 }
    assert.same({ N, S, S, N, N }, padded(3, 7, 5, 6))
  end)
end)
