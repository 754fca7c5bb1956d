-- Initializers, regularizers, constraints, activations, utils.
local leaks = require "spec.support.leaks"
local R = require "spec.support.replicas"
local tf = require "tfdist"

local K = tf.keras
local I = K.initializers
local fails = R.fails

local function moments(t)
  local flat = t:toflat()
  local mean, square, low, high = 0, 0, math.huge, -math.huge
  for _, x in ipairs(flat) do
    mean = mean + x / #flat
    low, high = math.min(low, x), math.max(high, x)
  end
  for _, x in ipairs(flat) do
    square = square + (x - mean) ^ 2 / #flat
  end
  return mean, math.sqrt(square), low, high
end

local function same(a, b, tolerance)
  if type(a) ~= "table" then a = { a } end
  if type(b) ~= "table" then b = { b } end
  assert.equal(#a, #b)
  for i = 1, #a do
    if type(a[i]) == "table" then
      same(a[i], b[i], tolerance)
    else
      assert.near(a[i], b[i], tolerance or 1e-6)
    end
  end
end

describe("an initializer", function()
  leaks(before_each, after_each)

  it("gives constants of the shape and dtype", function()
    same({ { 0, 0 } }, I.zeros()({ 1, 2 }):totable())
    same({ 1, 1, 1 }, I.Ones()({ 3 }, "float64"):totable())
    assert.equal("float64", I.Ones()({ 3 }, { dtype = "float64" }).dtype)
    same({ 7, 7 }, I.Constant(7)({ 2 }):totable())
    same({ { 1, 2 }, { 3, 4 } }, I.Constant { 1, 2, 3, 4 }({ 2, 2 }):totable())
    same({ { 2, 0, 0 }, { 0, 2, 0 } }, I.Identity(2)({ 2, 3 }):totable())
    assert.equal("int32", I.zeros()({ 2 }, "int32").dtype)
  end)

  it("counts inputs and outputs by Keras' rule", function()
    same({ 1, 1 }, { I.compute_fans {} })
    same({ 7, 7 }, { I.compute_fans { 7 } })
    same({ 3, 5 }, { I.compute_fans { 3, 5 } })
    same({ 3 * 3 * 4, 3 * 3 * 8 }, { I.compute_fans { 3, 3, 4, 8 } })
  end)

  -- Bounds of the uniform kinds are exact; the standard deviation of 20000
  -- numbers is within 3 % at 6 standard errors.
  it("scales by the fans", function()
    local shape = { 10, 10, 10, 20 }
    local fan_in, fan_out = 1000, 2000
    local limits = {
      glorot_uniform = math.sqrt(6 / (fan_in + fan_out)),
      he_uniform = math.sqrt(6 / fan_in),
      lecun_uniform = math.sqrt(3 / fan_in),
    }
    for name, limit in pairs(limits) do
      local _, deviation, low, high = moments(I[name](3)(shape))
      assert.near(limit / math.sqrt(3), deviation, 0.03 * limit)
      assert.is_true(low >= -limit and high <= limit)
      assert.is_true(high > 0.99 * limit)
    end
    local deviations = {
      glorot_normal = math.sqrt(2 / (fan_in + fan_out)),
      he_normal = math.sqrt(2 / fan_in),
      lecun_normal = math.sqrt(1 / fan_in),
    }
    for name, wanted in pairs(deviations) do
      local _, deviation, low, high = moments(I[name](3)(shape))
      assert.near(wanted, deviation, 0.03 * wanted)
      local cut = 2 * wanted / 0.87962566103423978
      assert.is_true(low >= -cut * 1.0001 and high <= cut * 1.0001)
    end
  end)

  it("takes mode and distribution of VarianceScaling", function()
    local shape = { 100, 200 }
    local _, deviation = moments(I.VarianceScaling { scale = 3,
      mode = "fan_out", distribution = "untruncated_normal", seed = 1 }(shape))
    assert.near(math.sqrt(3 / 200), deviation, 0.004)
    fails("ValueError", "scale", I.VarianceScaling, { scale = 0 })
    fails("ValueError", "mode", I.VarianceScaling, { mode = "fan" })
  end)

  it("draws plain normal and uniform numbers", function()
    local mean, deviation = moments(I.RandomNormal { mean = 1, stddev = 0.5,
      seed = 2 }({ 10000 }))
    assert.near(1, mean, 0.03)
    assert.near(0.5, deviation, 0.02)
    local _, _, low, high = moments(I.TruncatedNormal { seed = 2 }({ 10000 }))
    assert.is_true(low >= -0.1001 and high <= 0.1001)
    _, _, low, high = moments(I.RandomUniform { seed = 2 }({ 10000 }))
    assert.is_true(low >= -0.05 and high <= 0.05)
    assert.is_true(low < -0.049 and high > 0.049)
  end)

  it("repeats with a seed and follows the global one without", function()
    local seeded = I.GlorotUniform(5)
    same(seeded({ 4 }):totable(), seeded({ 4 }):totable(), 0)
    tf.random.set_seed(3)
    local a, b = I.HeNormal()({ 4 }):totable(), I.HeNormal()({ 4 }):totable()
    tf.random.set_seed(3)
    same(a, I.HeNormal()({ 4 }):totable(), 0)
    assert.not_same(a, b)
  end)

  it("makes orthogonal rows or columns", function()
    for _, shape in ipairs { { 5, 3 }, { 3, 5 }, { 2, 2, 3 } } do
      local q = tf.reshape(I.Orthogonal { gain = 2, seed = 1 }(shape),
        { -1, shape[#shape] })
      local tall = q.shape[1] >= q.shape[2]
      local product = tall and tf.matmul(q, q, { transpose_a = true })
        or tf.matmul(q, q, { transpose_b = true })
      same((tf.eye(product.shape[1]) * 4):totable(), product:totable(), 1e-5)
    end
    fails("ValueError", "rank 1", I.Orthogonal(), { 3 })
  end)

  it("is found by name and by configuration", function()
    same({ 1 }, I.get("ones")({ 1 }):totable())
    same({ 1 }, I.get("Ones")({ 1 }):totable())
    same({ 3 }, I.get { class_name = "Constant", config = { value = 3 } }({ 1 })
      :totable())
    assert.is_nil(I.get(nil))
    local fn = function() return nil end
    assert.equal(fn, I.get(fn))
    local again = I.get(I.serialize(I.HeNormal(4)))
    same(I.HeNormal(4)({ 3 }):totable(), again({ 3 }):totable(), 0)
    local e = fails("ValueError", "unknown initializer", I.get,
      "glorot_unifrm")
    assert.equal("did you mean glorot_uniform?", e.hint)
    fails("TypeError", "expected a name", I.get, 5)
    fails("ValueError", "unknown option", I.HeNormal, { sed = 1 })
  end)
end)

describe("a regularizer", function()
  leaks(before_each, after_each)
  local r = K.regularizers

  it("weighs sums of values and squares", function()
    local x = tf.constant { 1, -2, 3 }
    assert.near(0.06, r.L1()(x):item(), 1e-6)
    assert.near(1.4, r.L2(0.1)(x):item(), 1e-6)
    assert.near(0.6 + 14 * 0.2, r.L1L2 { l1 = 0.1, l2 = 0.2 }(x):item(), 1e-5)
    assert.near(0.2, r.get("l1_l2")(x):item(), 1e-6)
    assert.equal(0, r.L1L2()(x):item())
    fails("ValueError", "from 0", r.L2, -1)
    fails("TypeError", "must be a number", r.L2, "x")
  end)

  it("measures angles between rows", function()
    -- Rows at 60 degrees: cosine 1/2, once each way, halved, one pair.
    local x = tf.constant { { 2, 0 }, { 1, math.sqrt(3) } }
    assert.near(0.01 * 0.5 * 1, r.OrthogonalRegularizer()(x):item(), 1e-6)
    local columns = r.OrthogonalRegularizer { factor = 1, mode = "columns" }
    -- Columns (2, 1) and (0, sqrt 3).
    assert.near(1 / math.sqrt(5), columns(x):item(), 1e-6)
    fails("ValueError", "matrix", columns, tf.ones { 2 })
  end)
end)

describe("a constraint", function()
  leaks(before_each, after_each)
  local c = K.constraints
  local w = tf.constant { { 3, -0.3 }, { 4, 0.4 } }

  it("bounds norms along an axis", function()
    same({ { 1.2, -0.3 }, { 1.6, 0.4 } }, c.MaxNorm(2)(w):totable(), 1e-5)
    same({ { 0.6, -0.6 }, { 0.8, 0.8 } }, c.UnitNorm()(w):totable(), 1e-5)
    local a, b = math.sqrt(9.09), math.sqrt(16.16)
    same({ { 3 / a, -0.3 / a }, { 4 / b, 0.4 / b } },
      c.UnitNorm { axis = 1 }(w):totable(), 1e-5)
    same({ { 0.6, -0.6 }, { 0.8, 0.8 } }, c.MinMaxNorm { min_value = 1 }(w)
      :totable(), 1e-5)
    -- rate 1/2: half way from 5 to 1.
    same({ { 1.8, -0.45 }, { 2.4, 0.6 } }, c.MinMaxNorm { min_value = 1,
      rate = 0.5 }(w):totable(), 1e-5)
  end)

  it("takes negative numbers away", function()
    same({ { 3, 0 }, { 4, 0.4 } }, c.get("non_neg")(w):totable())
  end)

  it("holds after every update", function()
    local layer = K.layers.Dense(1, { kernel_constraint = "non_neg",
      kernel_initializer = "ones", use_bias = false })
    local optimizer = K.optimizers.SGD { learning_rate = 5 }
    local tape, loss = tf.GradientTape(function()
      return tf.reduce_sum(layer(tf.ones { 2, 3 }))
    end)
    local vars = layer.trainable_variables
    optimizer:apply_gradients(tape:gradient(loss, vars), vars)
    same({ { 0 }, { 0 }, { 0 } }, layer.kernel:totable())
  end)
end)

describe("an activation", function()
  local a = K.activations
  local x = tf.constant { { -2, -0.5, 0, 1, 8 } }
  local function each(f)
    local row = {}
    for i, v in ipairs { -2, -0.5, 0, 1, 8 } do row[i] = f(v) end
    return { row }
  end
  local exp, max, min, log = math.exp, math.max, math.min, math.log
  local function sigmoid(v) return 1 / (1 + exp(-v)) end
  local function tanh(v) return 1 - 2 / (exp(2 * v) + 1) end

  it("computes its formula", function()
    local formulas = {
      linear = function(v) return v end,
      relu = function(v) return max(v, 0) end,
      relu6 = function(v) return min(max(v, 0), 6) end,
      elu = function(v) return v > 0 and v or exp(v) - 1 end,
      selu = function(v)
        return 1.0507009873554805 * (v > 0 and v
          or 1.6732632423543772 * (exp(v) - 1))
      end,
      sigmoid = sigmoid, tanh = tanh, exponential = exp,
      hard_sigmoid = function(v) return max(0, min(1, v / 6 + 0.5)) end,
      softplus = function(v) return log(1 + exp(v)) end,
      softsign = function(v) return v / (1 + math.abs(v)) end,
      swish = function(v) return v * sigmoid(v) end,
      mish = function(v) return v * tanh(log(1 + exp(v))) end,
      leaky_relu = function(v) return v > 0 and v or 0.2 * v end,
    }
    for name, f in pairs(formulas) do
      local t = a.get(name)(x)
      local want, got = each(f), t:totable()
      for i = 1, 5 do
        assert.near(want[1][i], got[1][i], 1e-5 * max(1, math.abs(want[1][i])))
      end
    end
    assert.near(1, tf.reduce_sum(a.softmax(x)):item(), 1e-6)
    same(each(function(v) return v > 1 and min(v, 3) or 0.1 * (v - 1) end),
      a.relu(x, { negative_slope = 0.1, max_value = 3, threshold = 1 })
        :totable())
  end)

  it("refuses what is no activation", function()
    local e = fails("ValueError", "unknown activation", a.get, "rellu")
    assert.equal("did you mean relu?", e.hint)
    fails("TypeError", "expected a name", a.get, 3)
    fails("ValueError", "rank 1", a.softmax, tf.ones { 3 })
    assert.equal("tanh", a.serialize(a.tanh))
  end)
end)

describe("utils", function()
  leaks(before_each, after_each)

  it("to_categorical makes rows of classes", function()
    same({ { 1, 0, 0 }, { 0, 0, 1 } }, K.utils.to_categorical({ 0, 2 })
      :totable())
    local t = K.utils.to_categorical(tf.constant({ { 1 }, { 0 } }, "int32"), 4,
      { dtype = "float64" })
    assert.same({ 2, 4 }, t.shape)
    assert.equal("float64", t.dtype)
    fails("InvalidArgument", "class 3", K.utils.to_categorical, { 0, 3 }, 3)
    fails("InvalidArgument", "class -1", K.utils.to_categorical, { 0, -1 })
  end)

  it("set_random_seed repeats everything", function()
    K.utils.set_random_seed(7)
    local a, b = tf.random.normal({ 3 }):totable(), math.random()
    K.utils.set_random_seed(7)
    assert.same(a, tf.random.normal({ 3 }):totable())
    assert.equal(b, math.random())
  end)

  it("a Sequence is read batch by batch", function()
    local Rows = K.utils.Sequence:extend "Rows"
    function Rows:length() return 3 end
    function Rows:get(i) return i, i * i end
    local got = {}
    for a, b in Rows():iter() do got[#got + 1] = { a, b } end
    assert.same({ { 0, 0 }, { 1, 1 }, { 2, 4 } }, got)
    fails("NotImplementedError", "length", function()
      K.utils.Sequence:extend "Empty"():iter()
    end)
  end)
end)
