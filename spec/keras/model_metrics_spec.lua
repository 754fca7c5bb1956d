-- Metrics that a model holds in its fields.
local R = require "spec.support.replicas"
local tf = require "tfdist"

local K, L = tf.keras, tf.keras.layers
local fails = R.fails

-- Counts its steps on each replica.
local Counting = K.Model:extend "Counting"

function Counting:init()
  self.dense = L.Dense(1)
  self.steps = K.metrics.Sum { name = "steps" }
end

function Counting:call(x)
  return self.dense(x)
end

function Counting:train_step()
  self.steps:update_state(1)
  return { steps = self.steps:result() }
end

Counting.test_step = Counting.train_step

local function fitted(m)
  m:compile { optimizer = "sgd" }
  return m:fit(tf.ones { 8, 2 }, { batch_size = 4, epochs = 3, verbose = 0 })
    .history.steps
end

describe("metrics in fields of a model", function()
  R.leaks(before_each, after_each)

  it("begin anew with each epoch and evaluation", function()
    local n = math.min(R.available, 2)
    local m = R.mirrored(n):scope(function()
      return Counting()
    end)
    assert.same({ 2 * n, 2 * n, 2 * n }, fitted(m))
    for _ = 1, 2 do
      assert.equal(2 * n, m:evaluate(tf.ones { 8, 2 }, { batch_size = 4,
        verbose = 0, return_dict = true }).steps)
    end
  end)

  it("are listed, in tables and in layers too, each once", function()
    local Holder = L.Layer:extend "Holder"
    function Holder:init()
      self.seen = K.metrics.Mean { name = "seen" }
    end
    local Many = K.Model:extend "Many"
    function Many:init()
      self.parts = { K.metrics.Sum { name = "a" },
        { b = K.metrics.Sum { name = "b" } } }
      self.again = self.parts[1]
      self.inner = Holder()
    end
    local m = Many()
    m:compile { optimizer = "sgd", loss = "mse", metrics = { m.again } }
    assert.same({ "loss", "a", "b", "seen" }, m.metrics_names)
    m.parts[1]:update_state(3)
    m.inner.seen:update_state(5)
    m:reset_metrics()
    assert.equal(0, m.parts[1]:result():item())
    assert.equal(0, m.inner.seen:result():item())
  end)

  it("are shown beside the loss by the usual step", function()
    local Shown = K.Model:extend "Shown"
    function Shown:init()
      self.dense = L.Dense(1, { kernel_initializer = "ones" })
      self.size = K.metrics.Mean { name = "size" }
    end
    function Shown:call(x)
      self.size:update_state(x)
      return self.dense(x)
    end
    local m = Shown()
    m:compile { optimizer = K.optimizers.SGD(0), loss = "mse" }
    local h = m:fit(tf.ones { 4, 2 } * 3, tf.zeros { 4, 1 }, { epochs = 2,
      verbose = 0 }).history
    assert.same({ 36, 36 }, h.loss)
    assert.same({ 3, 3 }, h.size)
  end)
end)

describe("compiled metrics", function()
  R.leaks(before_each, after_each)

  it("have the names they are given by, as in Keras 3", function()
    local m = K.Sequential { K.layers.Dense(1, { activation = "sigmoid" }) }
    local given = { "AUC", "mse", "MeanSquaredError", "acc", "BinaryAccuracy",
      "MSE", "auc" }
    m:compile { loss = "mse", metrics = given }
    local history = m:fit(tf.ones { 4, 2 }, { { 0 }, { 1 }, { 0 }, { 1 } },
      { verbose = 0 }).history
    for _, name in ipairs(given) do
      assert.equal(1, #history[name])
    end
    m:compile { loss = "mse", metrics = { K.metrics.AUC { name = "q" },
      K.metrics.AUC(), K.losses.mean_squared_error } }
    history = m:fit(tf.ones { 4, 2 }, { { 0 }, { 1 }, { 0 }, { 1 } },
      { verbose = 0 }).history
    for _, name in ipairs { "q", "auc", "mean_squared_error" } do
      assert.equal(1, #history[name])
    end
  end)

  it("are the classes of their names", function()
    local m = K.Sequential { K.layers.Lambda(function(x) return x * 2 end) }
    m:compile { loss = "mse", metrics = { "cosine_similarity", "recall" } }
    local logs = m:evaluate(tf.ones { 4, 2 }, tf.ones { 4, 2 }, { verbose = 0,
      return_dict = true })
    assert.near(1, logs.cosine_similarity, 1e-6)
    assert.near(1, logs.recall, 1e-6)
    assert.equal("Precision", K.metrics.get "precision".__name)
    assert.equal(K.metrics.mean_squared_error, K.metrics.get "mse")
  end)
end)

describe("a class that defines its metrics", function()
  R.leaks(before_each, after_each)

  it("gives them by a method, or as a list in a field", function()
    local Method = Counting:extend "Method"
    function Method:metrics()
      return { self.steps }
    end
    assert.same({ 2, 2, 2 }, fitted(Method()))
    assert.same({ "steps" }, Method().metrics_names)
    local m = Counting()
    m.metrics = { m.steps }
    assert.same({ 2, 2, 2 }, fitted(m))
    m.metrics = {}
    assert.same({ 4, 6, 8 }, fitted(m))
  end)

  it("is told when they are none", function()
    local Wrong = Counting:extend "Wrong"
    function Wrong:metrics()
      return { self.dense }
    end
    fails("TypeError", "metrics must be a list of metrics, got ", fitted,
      Wrong())
    local Nothing = Counting:extend "Nothing"
    function Nothing.metrics() end
    fails("TypeError", "metrics must be a list of metrics, got nothing",
      fitted, Nothing())
  end)
end)

describe("add_metric", function()
  it("counts means, of whole calls, over batches", function()
    local Seen = L.Layer:extend "Seen"
    function Seen:call(x)
      self:add_metric(tf.reduce_max(x), { name = "most" })
      return x
    end
    local m = K.Sequential { Seen(), L.Dense(1) }
    m:compile("sgd", "mse")
    for _ = 1, 3 do -- op by op, then traced
      local found = m:evaluate(tf.constant { { 1 }, { 2 }, { 3 }, { 7 } },
        tf.zeros { 4, 1 }, { batch_size = 2, verbose = 0, return_dict = true })
      assert.near((2 + 7) / 2, found.most, 1e-6)
    end
  end)

  it("refuses other aggregations", function()
    local layer = L.Layer()
    for got, value in pairs { ['the string "sum"'] = "sum",
      ["the number 3"] = 3 } do
      fails("ValueError", 'add_metric: aggregation must be "mean", got ' .. got,
        layer.add_metric, layer, 1, { name = "n", aggregation = value })
    end
    layer:add_metric(1, { name = "n", aggregation = "mean" })
    assert.equal(1, #layer.metrics)
  end)
end)
