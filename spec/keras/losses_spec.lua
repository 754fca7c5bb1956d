-- Losses: against sums written out in Lua, reductions, weights, errors.
local R = require "spec.support.replicas"
local tf = require "tfdist"
local expect = require "spec.support.expect"

local L = tf.keras.losses
local fails = R.fails
local log, exp, abs, max = math.log, math.exp, math.abs, math.max
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function near(expected, got, tolerance)
  expect.near(expected, got, tolerance or 2e-6)
end

local T = { { 0, 1, 0.5 }, { 1, 0, 2 } }
local P = { { 0.2, 0.7, 0.1 }, { 0.6, 0.3, 0.4 } }

-- Mean over a row of f(t, p).
local function rows(f, t, p)
  local out = {}
  for i = 1, #t do
    local sum = 0
    for j = 1, #t[i] do
      sum = sum + f(t[i][j], p[i][j])
    end
    out[i] = sum / #t[i]
  end
  return out
end

local BIN = { { 1, 0, 1 }, { 0, 0, 1 } }

local elementwise = {
  mean_squared_error = function(t, p) return (t - p) ^ 2 end,
  mean_absolute_error = function(t, p) return abs(t - p) end,
  mean_absolute_percentage_error = function(t, p)
    return 100 * abs(t - p) / max(abs(t), 1e-7)
  end,
  mean_squared_logarithmic_error = function(t, p)
    return (log(1 + max(p, 1e-7)) - log(1 + max(t, 1e-7))) ^ 2
  end,
  log_cosh = function(t, p)
    return log((exp(p - t) + exp(t - p)) / 2)
  end,
  huber = function(t, p)
    local e = abs(t - p)
    return e <= 1 and e * e / 2 or e - 0.5
  end,
  poisson = function(t, p) return p - t * log(p + 1e-7) end,
}

local margins = {
  hinge = function(t, p) return max(0, 1 - (2 * t - 1) * p) end,
  squared_hinge = function(t, p) return max(0, 1 - (2 * t - 1) * p) ^ 2 end,
  binary_crossentropy = function(t, p)
    return -t * log(p) - (1 - t) * log(1 - p)
  end,
  binary_focal_crossentropy = function(t, p)
    local q = t == 1 and p or 1 - p
    return -(1 - q) ^ 2 * log(q)
  end,
}

local function softmax(row)
  local sum, out = 0, {}
  for i = 1, #row do sum = sum + exp(row[i]) end
  for i = 1, #row do out[i] = exp(row[i]) / sum end
  return out
end

describe("losses", function()
  R.leaks(before_each, after_each)

  for name, f in pairs(elementwise) do
    it("computes " .. name .. " by its formula, a mean for each row", function()
      -- 100 / 1e-7 for labels of 0 leaves float32 seven digits only
      local scale = name:find "percentage" and 1e2 or 2e-6
      local t = name:find "percentage" and { { 3, 1, 0.5 }, { 1, 4, 2 } } or T
      near(rows(f, t, P), L[name](t, P), scale == 1e2 and 1e-4 or scale)
    end)
  end

  for name, f in pairs(margins) do
    it("computes " .. name .. " by its formula", function()
      near(rows(f, BIN, P), L[name](BIN, P), 5e-6)
    end)
  end

  it("counts differences beyond delta linearly in huber", function()
    near({ 0.5 * (3 - 0.25) }, L.huber({ { 3 } }, { { 0 } }, 0.5))
    near({ 0.5 * (3 - 0.25) }, L.huber({ { 3 } }, { { 0 } }, { delta = 0.5 }))
    near({ 2 * 3 - 2 }, L.Huber { delta = 2, reduction = "none" }({ { 3 } },
      { { 0 } }))
  end)

  it("gives cross-entropies of probabilities and of logits alike", function()
    local logits = { { 0.3, -1.2, 2 }, { 1, 0, -0.5 } }
    local p = { softmax(logits[1]), softmax(logits[2]) }
    local expected = { -log(p[1][3]), -log(p[2][1]) }
    near(expected, L.sparse_categorical_crossentropy({ 2, 0 }, p), 5e-6)
    near(expected, L.sparse_categorical_crossentropy({ 2, 0 }, logits,
      { from_logits = true }), 5e-6)
    near(expected, L.categorical_crossentropy({ { 0, 0, 1 }, { 1, 0, 0 } }, p),
      5e-6)
    near(expected, L.categorical_crossentropy({ { 0, 0, 1 }, { 1, 0, 0 } },
      logits, true), 5e-6)
    -- Labels in a column, and as floating-point numbers from a table.
    near(expected, L.sparse_categorical_crossentropy(tf.constant { { 2 },
      { 0 } }, logits, true), 5e-6)
  end)

  it("smooths labels towards equal shares", function()
    local logits = { { 0.3, -1.2, 2 } }
    local p = softmax(logits[1])
    local s = 0.3
    local expected = 0
    for i, t in ipairs { 0, 0, 1 } do
      expected = expected - (t * (1 - s) + s / 3) * log(p[i])
    end
    near({ expected }, L.categorical_crossentropy({ { 0, 0, 1 } }, logits,
      { from_logits = true, label_smoothing = s }), 5e-6)
    near({ -0.85 * log(0.8) - 0.15 * log(0.2) }, L.binary_crossentropy(
      { { 1 } }, { { 0.8 } }, { label_smoothing = s }), 5e-6)
    fails("ValueError", "label_smoothing must be in 0..1", L.BinaryCrossentropy
      { label_smoothing = 2 }, { { 1 } }, { { 0.5 } })
  end)

  it("takes the classes from any axis", function()
    local logits = tf.constant { { { 0.3, 1 }, { -1.2, 0 }, { 2, -0.5 } } }
    near({ { -log(softmax { 0.3, -1.2, 2 }[3]),
      -log(softmax { 1, 0, -0.5 }[1]) } },
      L.sparse_categorical_crossentropy({ { 2, 0 } }, logits,
      { from_logits = true, axis = 1 }), 5e-6)
  end)

  it("ignores examples of ignore_class", function()
    local logits = { { 1, 2 }, { 0, 3 }, { 4, 1 } }
    local expected = { -log(softmax(logits[1])[2]), 0,
      -log(softmax(logits[3])[1]) }
    near(expected, L.sparse_categorical_crossentropy({ 1, -1, 0 }, logits,
      { from_logits = true, ignore_class = -1 }), 5e-6)
  end)

  it("computes the divergence, the angle and the categorical margin", function()
    local t, p = { { 0.2, 0.8 } }, { { 0.5, 0.5 } }
    near({ 0.2 * log(0.2 / 0.5) + 0.8 * log(0.8 / 0.5) },
      L.kl_divergence(t, p))
    near({ -(3 * 1 + 4 * 1) / (5 * 2 ^ 0.5) }, L.cosine_similarity(
      { { 3, 4 } }, { { 1, 1 } }))
    near({ max(0, 0.6 - 0.3 + 1), max(0, 0.1 - 0.9 + 1) }, L.categorical_hinge(
      { { 0, 1 }, { 1, 0 } }, { { 0.6, 0.3 }, { 0.9, 0.1 } }))
  end)

  it("reduces as asked: none, sum, mean over all elements", function()
    local each = rows(elementwise.mean_squared_error, T, P)
    near(each, L.MeanSquaredError { reduction = "none" }(T, P))
    near(each[1] + each[2], L.MeanSquaredError { reduction = "SUM" }(T, P))
    near((each[1] + each[2]) / 2, L.MeanSquaredError()(T, P))
    near((each[1] + each[2]) / 2, L.MeanSquaredError {
      reduction = tf.keras.losses.Reduction.SUM_OVER_BATCH_SIZE }(T, P))
    near((each[1] + each[2]) / 2, L.MeanSquaredError { reduction = "mean" }(T,
      P))
  end)

  it("of probabilities 0 and 1 are Keras 3's", function()
    -- Predictions become 1e-7 and the float32 next to 1 - 1e-7.
    local low, high = 16.118095, 15.942385
    local BCE = L.binary_crossentropy
    near({ (low + high) / 2 }, BCE({ { 0, 1 } }, { { 1, 0 } }), 1e-5)
    near(8.0151196, L.BinaryCrossentropy()({ { 0, 1 }, { 1, 0 } },
      { { 1, 0 }, { 1, 0 } }), 1e-5)
    near({ 1.1920929e-7 }, BCE({ { 1, 0 } }, { { 1, 0 } }), 1e-12)
    near({ 15.228727 }, BCE({ { 0, 1 } }, { { 1, 0 } },
      { label_smoothing = 0.1 }), 1e-5)
    near({ 16.03024 }, L.binary_focal_crossentropy({ { 0, 1 } }, { { 1, 0 } }),
      1e-5)
    near({ low }, BCE(tf.constant { { 0, 1 } }, tf.constant({ { 1, 0 } },
      "float64")), 1e-6)
    for _, dtype in ipairs { "float16", "bfloat16" } do
      near({ 16 }, tf.cast(BCE({ { 0, 1 } }, tf.constant({ { 1, 0 } }, dtype)),
        "float32"), 0.2)
    end
    local v = tf.Variable { { 1, 0, 0.5 } }
    local tape, y = tf.GradientTape(function()
      return BCE({ { 0, 1, 1 } }, v)
    end)
    near({ { 0, 0, -2 / 3 } }, tape:gradient(y, v))
  end)

  it("looks through sigmoid and softmax, as Keras", function()
    local A = tf.keras.activations
    local x = tf.Variable { { 50, -50 } }
    for _, case in ipairs {
      { A.sigmoid, L.BinaryCrossentropy(), { { 0, 1 } }, 50, { 0.5, -0.5 } },
      { A.softmax, L.CategoricalCrossentropy(), { { 0, 1 } }, 100, { 1, -1 } },
      { A.softmax, L.SparseCategoricalCrossentropy(), { 1 }, 100, { 1, -1 } },
      { A.sigmoid, L.BinaryFocalCrossentropy(), { { 0, 1 } }, 50,
        { 0.5, -0.5 } },
    } do
      local tape, y = tf.GradientTape(function()
        return case[2](case[3], case[1](x))
      end)
      near(case[4], y, 1e-4)
      near({ case[5] }, tape:gradient(y, x), 1e-4)
      -- Other probabilities are what they are.
      near(case[4] == 50 and (16.118095 + 15.942385) / 2 or 16.118095,
        case[2](case[3], tf.identity(case[1](x))), 1e-4)
    end
    local m = tf.keras.Sequential { tf.keras.layers.Dense(1,
      { activation = "sigmoid", kernel_initializer = function(shape)
        return tf.fill(shape, 50.0)
      end }) }
    m:compile { loss = "binary_crossentropy", optimizer = "sgd",
      metrics = { "binary_crossentropy" } }
    local history = m:fit(tf.ones { 2, 1 }, tf.zeros { 2, 1 },
      { verbose = 0 }).history
    near({ 50 }, history.loss)
    near({ 50 }, history.binary_crossentropy)
    near({ { 49.99 } }, m.weights[1], 1e-4)
  end)

  it("has no number for no examples, as Keras", function()
    for _, name in ipairs { "MeanSquaredError", "MeanAbsoluteError", "Huber",
      "BinaryCrossentropy", "CosineSimilarity", "Hinge", "LogCosh", "Poisson",
      "CategoricalCrossentropy", "KLDivergence" } do
      for _, reduction in ipairs { "none", "sum", "sum_over_batch_size" } do
        assert.same({ 0 }, L[name] { reduction = reduction }(tf.zeros { 0, 2 },
          tf.zeros { 0, 2 }).shape)
      end
    end
    near(0, L.MeanSquaredError()(tf.zeros { 0, 2, 2 }, tf.zeros { 0, 2, 2 }))
  end)

  it("has the shape of weights {n, 1} where nothing is reduced", function()
    local t, p = { { 0, 0 }, { 0, 0 } }, { { 1, 1 }, { 2, 2 } }
    for name, values in pairs { MeanSquaredError = { 1, 12 },
      MeanAbsoluteError = { 1, 6 }, Huber = { 0.5, 4.5 }, Poisson = { 1, 6 } } do
      near({ { values[1] }, { values[2] } }, L[name] { reduction = "none" }(t,
        p, { { 1 }, { 3 } }))
    end
    -- losses' shape, weights' shape, shape of the result
    for _, case in ipairs {
      { { 2, 3 }, { 2, 3, 1 }, { 2, 3 } }, { { 2, 3 }, { 2, 1 }, { 2, 3 } },
      { { 2, 1 }, { 2 }, { 2, 1 } }, { { 2, 3, 1 }, { 2, 3 }, { 2, 3 } },
      { { 2 }, { 1 }, { 2 } }, { { 2 }, { 2, 1 }, { 2, 1 } } } do
      local dims = { unpack(case[1]) }
      dims[#dims + 1] = 2
      assert.same(case[3], L.MeanSquaredError { reduction = "none" }(
        tf.zeros(dims), tf.ones(dims), tf.ones(case[2])).shape)
    end
  end)

  it("weighs examples, then reduces and divides by their number", function()
    local each = rows(elementwise.mean_squared_error, T, P)
    near((2 * each[1] + 0.5 * each[2]) / 2, L.MeanSquaredError()(T, P,
      { 2, 0.5 }))
    near((2 * each[1] + 0.5 * each[2]) / 2, L.MeanSquaredError()(T, P,
      { { 2 }, { 0.5 } }))
    near((each[1] + each[2]) * 3 / 2, L.MeanSquaredError()(T, P, 3))
    near((2 * each[1] + 0.5 * each[2]) / 2.5, L.MeanSquaredError {
      reduction = "mean_with_sample_weight" }(T, P, { 2, 0.5 }))
    fails("InvalidArgument", "sample_weight", L.MeanSquaredError(), T, P,
      { 1, 2, 3 })
  end)

  it("bridges a column and a list", function()
    near(((1 - 3) ^ 2 + (2 - 5) ^ 2) / 2, L.MeanSquaredError()({ 1, 2 },
      { { 3 }, { 5 } }))
  end)

  it("keeps the dtype of the predictions", function()
    local p = tf.constant({ { 0.5 } }, "float64")
    assert.equal("float64", L.mean_squared_error({ { 1 } }, p).dtype)
    assert.equal("float32", L.mean_squared_error({ { 1 } },
      tf.constant({ { 2 } }, "int32")).dtype)
  end)

  it("has gradients that finite differences confirm", function()
    for _, case in ipairs { { "huber", T }, { "log_cosh", T },
      { "binary_crossentropy", BIN }, { "poisson", T },
      { "binary_focal_crossentropy", BIN }, { "cosine_similarity", T },
      { "kl_divergence", P }, { "categorical_crossentropy", BIN } } do
      local name, t = case[1], tf.constant(case[2], "float64")
      local v = tf.Variable(tf.constant(P, "float64"))
      local tape, y = tf.GradientTape(function()
        return tf.reduce_sum(L[name](t, v))
      end)
      local got = tape:gradient(y, v):totable()
      for i = 1, 2 do
        for j = 1, 3 do
          local function at(delta)
            local x = { { unpack(P[1]) }, { unpack(P[2]) } }
            x[i][j] = x[i][j] + delta
            return tf.reduce_sum(L[name](t, tf.constant(x, "float64"))):item()
          end
          assert.near((at(1e-5) - at(-1e-5)) / 2e-5, got[i][j], 1e-6)
        end
      end
    end
  end)

  it("names a label out of range, its place and the classes (E18)", function()
    -- A queued device tells later, in the words of the op.
    fails("InvalidArgument", "label 10 at position 1 is outside 0..9 (logits "
      .. "have 10 classes; labels count from 0)", function()
        L.sparse_categorical_crossentropy({ 1, 10 }, tf.ones { 2, 10 })
          :totable()
      end)
  end)

  it("finds losses by name and names the nearest one", function()
    assert.equal(L.mean_squared_error, L.get "mse")
    assert.equal("MeanSquaredError", L.get "MeanSquaredError".__name)
    assert.is_nil(L.get(nil))
    local own = function() end
    assert.equal(own, L.get(own))
    local e = fails("ValueError", "unknown loss", L.get, "mean_squard_error")
    assert.matches("mean_squared_error", e.hint)
    fails("TypeError", "a loss is", L.get, 3)
    local e2 = fails("ValueError", "unknown option",
      L.SparseCategoricalCrossentropy, { from_logit = true })
    assert.matches("from_logits", e2.hint)
    fails("ValueError", "reduction must be one of", L.Huber,
      { reduction = "average" })
  end)

  it("rebuilds a loss from its configuration", function()
    local loss = L.Huber { delta = 2, reduction = "sum", name = "h" }
    local copy = L.deserialize(L.serialize(loss))
    assert.same(loss:get_config(), copy:get_config())
    near(2 * 3 - 2, copy({ { 3 } }, { { 0 } }))
    assert.same({ delta = 2, reduction = "sum", name = "h" },
      copy:get_config())
    fails("TypeError", "losses.deserialize", L.deserialize)
    fails("TypeError", "losses.deserialize", L.deserialize, { delta = 2 })
    fails("ValueError", "unknown class", L.deserialize, { class_name = "Hubr" })
  end)

  it("lets users write loss classes", function()
    local Quartic = L.Loss:subclass "Quartic"
    function Quartic.call(_, y_true, y_pred)
      return (tf.convert_to_tensor(y_true) - y_pred) ^ 4
    end
    near((1 + 16) / 2, Quartic()({ 1, 2 }, tf.zeros { 2 }))
    assert.equal("quartic", Quartic().name)
    fails("NotImplementedError", "defines call", L.Loss(), { 1 }, { 1 })
  end)

  R.pair(it, pending, "refuses a mean of its own inside a strategy, as "
    .. "TensorFlow does", function(strategy)
      local function auto()
        return L.MeanSquaredError()({ { 1 } }, { { 2 } })
      end
      local function summed()
        return L.MeanSquaredError { reduction = "sum" }({ { 1 } }, { { 2 } })
      end
      for _, reduction in ipairs { "auto", "sum_over_batch_size" } do
        fails("ValueError", "Please use reduction SUM or NONE", strategy.run,
          strategy, function()
            return L.MeanSquaredError { reduction = reduction }({ { 1 } },
              { { 2 } })
          end)
      end
      fails("ValueError", "Please use reduction", strategy.scope, strategy,
        auto)
      local sum = strategy:reduce("sum", strategy:run(summed))
      near(2, sum)
      near(1, auto())
    end)
end)

describe("the fuzz factor of losses", function()
  local backend, losses = tf.keras.backend, tf.keras.losses
  after_each(function() backend.set_epsilon(1e-7) end)

  it("is backend.epsilon, in traced functions too", function()
    local one, zero = tf.constant {{ 1.0 }}, tf.constant {{ 0.0 }}
    local traced = tf.function_(function(t, p)
      return losses.binary_crossentropy(t, p)
    end)
    for _, e in ipairs { 1e-7, 0.25, 0.125 } do
      backend.set_epsilon(e)
      local expected = -math.log(e)
      assert.near(expected, losses.binary_crossentropy(one, zero):item(0), 1e-5)
      assert.near(expected, traced(one, zero):item(0), 1e-5)
      assert.near(expected, losses.kl_divergence(one, zero):item(0), 1e-5)
      assert.near(-math.log(e), losses.poisson(one, zero):item(0), 1e-5)
      assert.near(1 / e * 100, losses.mean_absolute_percentage_error(zero, one)
        :item(0), 1e-5 / e * 100)
      assert.near(math.log((1 + 1) / (1 + e)) ^ 2,
        losses.mean_squared_logarithmic_error(one, zero):item(0), 1e-5)
    end
  end)
end)
