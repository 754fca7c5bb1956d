-- Training and evaluation of models that compute in other dtypes than float32.
local R = require "spec.support.replicas"
local tf = require "tfdist"

local L, K = tf.keras.layers, tf.keras
local DTYPES = { "float64", "float16", "bfloat16" }

-- y = 1 x0 + 1 x1 at first; a step of SGD on x = (1, 1), y = 0 takes 1 / 2 off
-- the two weights and the bias, exactly in every dtype.
local function model(dtype)
  local m = K.Sequential { L.Dense(1, { dtype = dtype, input_shape = { 2 },
    kernel_initializer = "ones" }) }
  m:compile { optimizer = K.optimizers.SGD(0.125), loss = "mse",
    metrics = { "mae", "accuracy" }, weighted_metrics = { "mse" } }
  return m
end

describe("a model of another dtype", function()
  R.leaks(before_each, after_each)

  local function each(fn)
    for _, dtype in ipairs(DTYPES) do
      for n = 1, math.min(R.available, 2) do
        local strategy = R.mirrored(n)
        fn(dtype, strategy:scope(function()
          return model(dtype)
        end))
      end
    end
  end

  it("is trained", function()
    each(function(dtype, m)
      local h = m:fit(tf.ones { 4, 2 }, tf.zeros { 4, 1 }, { epochs = 2,
        verbose = 0 }).history
      assert.same({ 4, 0.25 }, h.loss)
      assert.same({ 2, 0.5 }, h.mae or h.mean_absolute_error)
      assert.equal(dtype, m:predict(tf.ones { 1, 2 }, { verbose = 0 }).dtype)
    end)
  end)

  it("is evaluated, with weights of examples too", function()
    each(function(dtype, m)
      local y = tf.zeros({ 4, 1 }, dtype)
      assert.same({ 4, 2, 0, 4 }, { m:evaluate(tf.ones({ 4, 2 }, dtype), y,
        { verbose = 0 }) })
      assert.same({ 10, 2, 0, 4 }, { m:evaluate(tf.ones { 4, 2 }, y,
        { verbose = 0, sample_weight = tf.constant { 1, 2, 3, 4 } }) })
    end)
  end)

  it("is trained on single batches", function()
    each(function(dtype, m)
      assert.same({ 4, 2, 0, 4 }, { m:train_on_batch(tf.ones({ 4, 2 }, dtype),
        tf.zeros { 4, 1 }) })
      assert.same({ 0.25, 0.5, 1, 0.25 }, { m:test_on_batch(tf.ones { 4, 2 },
        tf.zeros { 4, 1 }) })
    end)
  end)

  it("counts losses whose sum is no float16", function()
    local m = model "float16"
    m.layers[1]:set_weights { { { 5 }, { 5 } }, { 0 } }
    local found = { m:evaluate(tf.ones { 1024, 2 }, tf.zeros { 1024, 1 },
      { verbose = 0, batch_size = 1024 }) }
    assert.same({ 100, 10, 0, 100 }, found)
  end)

  it("may have outputs and penalties of several", function()
    local x = K.Input { 2 }
    local function head(dtype)
      return L.Dense(1, { name = dtype, dtype = dtype,
        kernel_initializer = "ones", kernel_regularizer = K.regularizers.L1(1)
      })(x)
    end
    local m = K.Model(x, { head "float16", head "float32", head "float64" })
    m:compile { optimizer = K.optimizers.SGD(0), loss = "mse" }
    local y = tf.zeros { 4, 1 }
    local h = m:fit(tf.ones { 4, 2 }, { y, y, y }, { verbose = 0 }).history
    assert.same({ 3 * 4 + 3 * 2 }, h.loss)
    assert.same({ 4 }, h.float16_loss)
    assert.same({ 4 }, h.float64_loss)
  end)
end)

describe("floatx", function()
  R.leaks(before_each, after_each)
  before_each(function()
    K.backend.set_floatx "float64"
  end)
  after_each(function()
    K.backend.set_floatx "float32"
  end)

  it("is the dtype of layers, losses and metrics", function()
    local m = model(nil)
    assert.equal("float64", m.layers[1].kernel.dtype)
    assert.equal("float64", K.metrics.Mean().dtype)
    assert.equal("float32", K.metrics.Mean({ dtype = "float32" }).dtype)
    m.layers[1]:set_weights { { { 0.1 }, { 0 } }, { 0 } }
    local found = { m:evaluate(tf.ones({ 3, 2 }, "float64"), tf.zeros({ 3, 1 },
      "float64"), { verbose = 0 }) }
    assert.is_true(math.abs(found[1] - 0.01) < 1e-15)
    assert.is_true(math.abs(found[2] - 0.1) < 1e-15)
  end)
end)

describe("metrics of predictions of another dtype", function()
  R.leaks(before_each, after_each)

  it("compute in their own", function()
    local y_true = tf.constant { { 1 }, { 3 } }
    for _, dtype in ipairs(DTYPES) do
      local y_pred = tf.constant({ { 3 }, { 5 } }, dtype)
      local relative = K.metrics.MeanRelativeError { normalizer = { { 1 },
        { 2 } } }
      relative:update_state(y_true, y_pred)
      assert.equal(1.5, relative:result():item())
      local root = K.metrics.RootMeanSquaredError()
      root:update_state(y_true, y_pred)
      assert.equal(2, root:result():item())
      assert.equal("float32", root:result().dtype)
    end
    -- 300 * 300 is no float16.
    local mse = K.metrics.MeanSquaredError()
    mse:update_state(tf.zeros { 1, 1 }, tf.constant({ { 300 } }, "float16"))
    assert.equal(90000, mse:result():item())
  end)
end)

describe("a layer that gives numbers of bins", function()
  it("gives int32, called and in a model's shape alike", function()
    local bins = L.Discretization { 0, 1 }
    assert.equal("int32", bins(tf.constant { -1, 0.5, 2 }).dtype)
    assert.equal("int32", bins(K.Input { 3 }).dtype)
  end)
end)
