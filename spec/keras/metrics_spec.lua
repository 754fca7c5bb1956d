-- Metrics: values worked out by hand, state over batches and replicas.
local R = require "spec.support.replicas"
local tf = require "tfdist"
local expect = require "spec.support.expect"

local K = tf.keras.metrics
local fails = R.fails

local function value(x)
  return type(x) == "userdata" and x:totable() or x
end

local near = expect.near

-- name, options, y_true, y_pred, result
local LABELS, SCORES = { 0, 0, 1, 1 }, { 0, 0.5, 0.3, 0.9 }
local ONE_HOT = { { 0, 0, 1 }, { 0, 1, 0 }, { 1, 0, 0 } }
local GUESSES = { { 0.1, 0.9, 0.8 }, { 0.05, 0.95, 0 }, { 0.5, 0.1, 0.4 } }
local CASES = {
  { "Accuracy", {}, { 1, 2, 3, 4 }, { 0, 2, 3, 4 }, 3 / 4 },
  { "BinaryAccuracy", {}, { { 1 }, { 1 }, { 0 }, { 0 } },
    { { 0.98 }, { 1 }, { 0 }, { 0.6 } }, 3 / 4 },
  { "BinaryAccuracy", { threshold = 0.7 }, { { 1 }, { 1 }, { 0 }, { 0 } },
    { { 0.98 }, { 0.5 }, { 0 }, { 0.6 } }, 3 / 4 },
  { "CategoricalAccuracy", {}, ONE_HOT, GUESSES, 2 / 3 },
  { "SparseCategoricalAccuracy", {}, { 2, 1, 0 }, GUESSES, 2 / 3 },
  { "SparseCategoricalAccuracy", {}, { { 2 }, { 1 }, { 0 } }, GUESSES, 2 / 3 },
  { "TopKCategoricalAccuracy", { k = 1 }, ONE_HOT, GUESSES, 2 / 3 },
  { "TopKCategoricalAccuracy", { k = 2 }, ONE_HOT, GUESSES, 1 },
  { "SparseTopKCategoricalAccuracy", { k = 1 }, { 2, 1, 0 }, GUESSES, 2 / 3 },
  { "MeanSquaredError", {}, { 1, 2 }, { 3, 5 }, (4 + 9) / 2 },
  { "RootMeanSquaredError", {}, { 1, 2 }, { 3, 5 }, (13 / 2) ^ 0.5 },
  { "MeanAbsoluteError", {}, { 1, 2 }, { 3, 5 }, 5 / 2 },
  { "MeanAbsolutePercentageError", {}, { 1, 2 }, { 3, 5 }, 175 },
  { "CosineSimilarity", {}, { { 3, 4 } }, { { 1, 1 } }, 7 / 50 ^ 0.5 },
  { "MeanRelativeError", { normalizer = { 1, 3, 2, 3 } }, { 1, 3, 2, 3 },
    { 2, 4, 6, 8 }, 5 / 4 },
  { "KLDivergence", {}, { { 0.2, 0.8 } }, { { 0.5, 0.5 } },
    0.2 * math.log(0.4) + 0.8 * math.log(1.6) },
  { "Poisson", {}, { { 1, 0 } }, { { 2, 3 } }, (2 - math.log(2) + 3) / 2 },
  { "Hinge", {}, { { 1, -1 } }, { { 0.5, 0.5 } }, (0.5 + 1.5) / 2 },
  { "BinaryCrossentropy", {}, { { 1, 0 } }, { { 0.8, 0.4 } },
    (-math.log(0.8) - math.log(0.6)) / 2 },
  { "SparseCategoricalCrossentropy", {}, { 1, 0 },
    { { 0.25, 0.75 }, { 0.4, 0.6 } },
    (-math.log(0.75) - math.log(0.4)) / 2 },
  { "CategoricalCrossentropy", { from_logits = true }, { { 0, 1 } },
    { { 0, 0 } }, math.log(2) },
  { "R2Score", {}, { { 1 }, { 2 }, { 3 } }, { { 1 }, { 2 }, { 4 } },
    1 - 1 / 2 },
  { "TruePositives", {}, { 0, 1, 1, 1 }, { 1, 0, 1, 1 }, 2 },
  { "FalsePositives", {}, { 0, 1, 0, 0 }, { 0, 0, 1, 1 }, 2 },
  { "TrueNegatives", {}, { 0, 1, 0, 0 }, { 1, 1, 0, 0 }, 2 },
  { "FalseNegatives", {}, { 0, 1, 1, 1 }, { 0, 1, 0, 0 }, 2 },
  { "FalsePositives", { thresholds = { 0.2, 0.6 } }, { 0, 0, 1 },
    { 0.3, 0.7, 0.9 }, { 2, 1 } },
  { "Precision", {}, { 0, 1, 1, 1 }, { 1, 0, 1, 1 }, 2 / 3 },
  { "Precision", { top_k = 2 }, { { 0, 0, 1, 1 } }, { { 1, 1, 1, 1 } }, 0 },
  { "Precision", { class_id = 1 }, { { 0, 1 }, { 1, 1 } },
    { { 0.9, 0.9 }, { 0.9, 0.2 } }, 1 },
  { "Recall", {}, { 0, 1, 1, 1 }, { 1, 0, 1, 1 }, 2 / 3 },
  -- thresholds -1e-7, 0.5, 1 + 1e-7: tp 2 1 0, fp 2 0 0
  { "AUC", { num_thresholds = 3 }, LABELS, SCORES, 0.75 },
  { "AUC", { num_thresholds = 3, summation_method = "minoring" }, LABELS,
    SCORES, 0.5 },
  { "AUC", { num_thresholds = 3, summation_method = "majoring" }, LABELS,
    SCORES, 1 },
  { "AUC", { thresholds = { 0.5 } }, LABELS, SCORES, 0.75 },
  -- precision 0.5, 1, 0 at recall 1, 0.5, 0
  { "AUC", { num_thresholds = 3, curve = "pr", summation_method = "minoring" },
    LABELS, SCORES, 0.5 * 0.5 + 0.5 * 0 },
  -- slopes 1/3 (from 1 hit of 1 to 2 of 4) and 1: 0.5 (1 + 2/3 log 4) / 3 ...
  { "AUC", { num_thresholds = 3, curve = "PR" }, LABELS, SCORES,
    (1 / 3 * (1 + 2 / 3 * math.log(4))) / 2 + 1 / 2 },
  { "SensitivityAtSpecificity", { specificity = 0.5 }, { 0, 0, 0, 1, 1 },
    { 0, 0.3, 0.8, 0.3, 0.8 }, 0.5 },
  { "SpecificityAtSensitivity", { sensitivity = 0.5 }, { 0, 0, 0, 1, 1 },
    { 0, 0.3, 0.8, 0.3, 0.8 }, 2 / 3 },
  { "PrecisionAtRecall", { recall = 0.5 }, { 0, 0, 0, 1, 1 },
    { 0, 0.3, 0.8, 0.3, 0.8 }, 0.5 },
  -- no threshold is below 0: a prediction of 0 is never a hit
  { "PrecisionAtRecall", { recall = 0.6 }, { 1, 1, 0 }, { 0, 0.5, 0.7 }, 0 },
  { "RecallAtPrecision", { precision = 0.8 }, LABELS, SCORES, 0.5 },
  { "F1Score", { threshold = 0.5 }, { { 1, 1, 1 }, { 1, 0, 0 }, { 1, 1, 0 } },
    { { 0.2, 0.6, 0.7 }, { 0.2, 0.6, 0.6 }, { 0.6, 0.8, 0 } },
    { 0.5, 0.8, 2 / 3 } },
  { "FBetaScore", { beta = 2, threshold = 0.5, average = "micro" },
    { { 1, 0 }, { 1, 1 } }, { { 1, 1 }, { 0, 1 } }, 2 / 3 },
  { "MeanIoU", { num_classes = 2 }, { 0, 0, 1, 1 }, { 0, 1, 0, 1 }, 1 / 3 },
  { "IoU", { num_classes = 2, target_class_ids = { 0 } }, { 0, 0, 1, 1 },
    { 0, 1, 0, 1 }, 1 / 3 },
  { "BinaryIoU", { threshold = 0.3, target_class_ids = { 0, 1 } },
    { 0, 1, 0, 1 }, { 0.1, 0.2, 0.4, 0.7 }, 1 / 3 },
  { "OneHotMeanIoU", { num_classes = 3 }, ONE_HOT, GUESSES,
    (1 + 1 / 2 + 0) / 3 },
}

describe("metrics", function()
  R.leaks(before_each, after_each)

  for i, case in ipairs(CASES) do
    it(("gives the %s worked out by hand (case %d)"):format(case[1], i),
      function()
        local metric = K[case[1]](case[2])
        metric:update_state(case[3], case[4])
        near(case[5], metric:result(), 2e-6)
        metric:reset_state()
        metric:update_state(case[3], case[4])
        near(case[5], metric:result(), 2e-6)
      end)
  end

  it("leaves ties among the k largest to the order of classes", function()
    near(0.5, K.Precision { top_k = 2 }({ { 1, 0, 1, 1 } }, { { 1, 1, 1, 1 } }))
  end)

  it("gives the same for one batch and for many", function()
    for _, name in ipairs { "AUC", "Precision", "MeanIoU", "R2Score",
      "MeanSquaredError", "BinaryAccuracy" } do
      local options = name == "MeanIoU" and { num_classes = 2 } or {}
      local p = name == "MeanIoU" and { 0, 1, 1, 1 } or SCORES
      local one, many = K[name](options), K[name](options)
      one:update_state(LABELS, p)
      for i = 1, 4 do
        many:update_state({ LABELS[i] }, { p[i] })
      end
      near(value(one:result()), many:result())
    end
  end)

  it("weighs examples", function()
    near((1 * 3 + 2 * 1) / 4, K.Mean()({ 1, 2 }, { 3, 1 }))
    near(3 + 4, K.Sum()({ 1, 2 }, { 3, 2 }))
    near(0.5 / 0.7, K.Accuracy()({ 1, 2 }, { 1, 3 }, { 0.5, 0.2 }))
    near((4 * 1 + 9 * 3) / 4, K.MeanSquaredError()({ { 1 }, { 2 } },
      { { 3 }, { 5 } }, { 1, 3 }))
    near(1, K.TruePositives()({ 1, 1, 0 }, { 1, 0, 1 }, { 1, 2, 4 }))
    near(4, K.FalsePositives()({ 1, 1, 0 }, { 1, 0, 1 }, { 1, 2, 4 }))
    near(0, K.Mean()({ 1, 2 }, { 0, 0 }))
  end)

  it("weighs samples of several values", function()
    local x = { { 1, 2 }, { 3, 4 } }
    near(3 * 1 + 7 * 10, K.Sum()(x, { 1, 10 }))
    near(3 * 1 + 7 * 10, K.Sum()(x, { { 1 }, { 10 } }))
    near(1 + 4 + 9 + 16, K.Sum()(x, x))
    near((1.5 * 1 + 3.5 * 10) / 11, K.Mean()(x, { 1, 10 }))
    near(30 / 10, K.Mean()(x, x))
  end)

  it("weighs one class by a weight for each example", function()
    for _, weights in ipairs { { 1, 3 }, { { 1 }, { 3 } } } do
      near(3 / 4, K.Precision { class_id = 1 }({ { 0, 0 }, { 1, 1 } },
        { { 0.9, 0.9 }, { 0.1, 0.9 } }, weights))
      near(1 / 4, K.Recall { class_id = 0 }({ { 1, 0 }, { 1, 1 } },
        { { 0.9, 0.9 }, { 0.1, 0.9 } }, weights))
      near({ 1.5, 1.5 }, K.MeanTensor()({ 1.5, 1.5 }, weights))
    end
  end)

  it("counts samples, whatever their shape", function()
    -- Means of rows 1.5 and 3.5, of a scalar 7, of a list 1 and 2.
    local m = K.Mean()
    m:update_state { { 1, 2 }, { 3, 4 } }
    m:update_state(7)
    m:update_state { 1, 2 }
    near((1.5 + 3.5 + 7 + 1 + 2) / 5, m:result())
    local accuracy = K.BinaryAccuracy()
    accuracy:update_state({ { 1, 1, 1, 0 } }, { { 1, 1, 1, 1 } })
    accuracy:update_state({ { 1 }, { 1 } }, { { 0 }, { 1 } })
    near((0.75 + 0 + 1) / 3, accuracy:result())
  end)

  it("scores each output of R2Score on its own", function()
    -- Scores 1/2 and 0.93, of variances 2 and 200.
    local t = { { 1, 10 }, { 2, 30 }, { 3, 20 } }
    local p = { { 1, 12 }, { 2, 27 }, { 2, 21 } }
    near(0.715, K.R2Score()(t, p))
    near({ 0.5, 0.93 }, K.R2Score { class_aggregation = "none" }(t, p))
    near((2 * 0.5 + 200 * 0.93) / 202, K.R2Score {
      class_aggregation = "variance_weighted_average" }(t, p))
    -- Six values: adjusted while there are fewer than five regressors.
    near(1 - 0.285 * 5 / 4, K.R2Score { num_regressors = 1 }(t, p))
    near(1 - 0.285 * 5, K.R2Score { num_regressors = 4 }(t, p), 1e-5)
    near(0.715, K.R2Score { num_regressors = 5 }(t, p))
    local weighted = K.R2Score { class_aggregation = "none" }
    weighted:update_state({ { 1, 10 }, { 2, 30 } }, { { 1, 12 }, { 2, 27 } },
      { 1, 0 })
    weighted:update_state({ { 3, 20 } }, { { 2, 21 } }, { { 2, 2 } })
    -- Weighted means 7/3 and 50/3.
    near({ 1 - 2 / (16 / 9 + 8 / 9), 1 - 6 / (400 / 9 + 200 / 9) },
      weighted:result(), 1e-5)
    fails("ValueError", "class_aggregation", K.R2Score,
      { class_aggregation = "sum" })
    fails("ValueError", "num_regressors", K.R2Score, { num_regressors = -1 })
    fails("ValueError", "expected {n, outputs}", K.R2Score(),
      tf.ones { 2, 2, 2 }, tf.ones { 2, 2, 2 })
  end)

  it("gives 0 before anything was counted", function()
    for _, name in ipairs { "Mean", "Sum", "Precision", "Recall", "AUC",
      "CategoricalAccuracy" } do
      near(0, K[name]():result())
    end
    fails("ValueError", "does not have any value yet", function()
      K.MeanTensor():result()
    end)
  end)

  it("averages tensors element by element", function()
    local metric = K.MeanTensor()
    metric:update_state { 0, 1, 2, 3 }
    metric:update_state { 4, 5, 6, 7 }
    near({ 2, 3, 4, 5 }, metric:result())
    metric:reset_state()
    metric:update_state({ 0, 1, 2, 3 }, { 1, 0.2, 0.5, 1 })
    near({ 0, 1, 2, 3 }, metric:result())
    fails("ValueError", "shape", metric.update_state, metric, { 1, 2 })
  end)

  it("merges the state of other metrics", function()
    local a, b = K.Mean(), K.Mean()
    a:update_state { 1, 2 }
    b:update_state { 6 }
    a:merge_state { b }
    near(3, a:result())
    fails("ValueError", "not compatible", a.merge_state, a, { K.AUC() })
  end)

  it("are made again from their configurations, all of them", function()
    local needs = { PrecisionAtRecall = { 0.5 }, RecallAtPrecision = { 0.5 },
      SensitivityAtSpecificity = { 0.5 }, SpecificityAtSensitivity = { 0.5 },
      MeanIoU = { 3 }, OneHotMeanIoU = { 3 }, IoU = { 3, { 0 } },
      OneHotIoU = { 3, { 0 } }, MeanRelativeError = { { 1, 2 } },
      MeanMetricWrapper = { tf.keras.losses.mean_squared_error } }
    local n = 0
    for name, class in pairs(K) do
      local args = needs[name] or {}
      if type(class) == "table" and name ~= "Metric" then
        local metric = class(args[1], args[2])
        assert.same(metric:get_config(), K.deserialize(K.serialize(metric))
          :get_config(), name)
        n = n + 1
      end
    end
    assert.is_true(n > 40)
    -- and count alike
    local t = tf.constant { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } }
    local p = tf.constant { { 0.9, 0, 0.1 }, { 0.8, 0.1, 0.1 }, { 0, 0, 1 } }
    for metric, want in pairs { [K.F1Score { average = "macro" }] =
      (2 / 3 + 0 + 1) / 3, [K.OneHotMeanIoU { num_classes = 3 }] =
      (1 / 2 + 0 + 1) / 3 } do
      near(want, metric(t, p):item(), 1e-6)
      near(want, K.deserialize(K.serialize(metric))(t, p):item(), 1e-6)
    end
  end)

  it("names itself as Keras does and rebuilds from its configuration",
    function()
      assert.equal("sparse_categorical_accuracy",
        K.SparseCategoricalAccuracy().name)
      assert.equal("mean", K.Mean().name)
      assert.equal("accuracy", K.SparseCategoricalAccuracy { name = "accuracy" }
        .name)
      local auc = K.AUC { num_thresholds = 7, curve = "PR" }
      local copy = K.deserialize(K.serialize(auc))
      assert.same(auc:get_config(), copy:get_config())
    end)

  it("finds metrics by name and names the nearest one", function()
    assert.equal("AUC", K.get "AUC".__name)
    assert.equal(K.mean_squared_error, K.get "mse")
    local e = fails("ValueError", "unknown metric", K.get,
      "SparseCategoricalAccurcy")
    assert.matches("SparseCategoricalAccuracy", e.hint)
    local e2 = fails("ValueError", "unknown option", K.AUC,
      { num_treshold = 3 })
    assert.matches("num_thresholds", e2.hint)
    fails("ValueError", "thresholds must be numbers in 0..1", K.Precision,
      { thresholds = 2 })
    fails("ValueError", "must be in 0..1", K.RecallAtPrecision, 3)
    fails("NotImplementedError", "multi_label", K.AUC, { multi_label = true })
    fails("TypeError", "must be the metric itself", K.Mean().update_state,
      { 1 })
  end)

  it("lets users write metrics", function()
    local Peak = K.Metric:subclass "Peak"
    function Peak:init(options)
      K.Metric.init(self, options or {})
      self.peak = self:add_weight { name = "peak", shape = { 2 } }
    end
    function Peak:update_state(x)
      self.peak:assign_add(x)
    end
    function Peak:result()
      return tf.reduce_max(self.peak:read_value())
    end
    local peak = Peak { name = "top" }
    assert.equal("top", peak.name)
    near(4, peak { 1, 4 })
    assert.equal("top/peak", peak.variables[1].name)
    fails("NotImplementedError", "update_state", K.Metric().update_state,
      K.Metric())
  end)

  R.each(it, pending, "adds up what replicas count", function(strategy, n)
    local mean, auc, sum = strategy:scope(function()
      return K.Mean(), K.AUC { num_thresholds = 3 }, K.Sum()
    end)
    local inside = strategy:run(function()
      local id = R.id()
      mean:update_state { id, id + 1 }
      sum:update_state(id)
      auc:update_state({ id % 2, 1 }, { 0.7, 0.2 })
      return mean:result()
    end)
    local total, single = 0, K.AUC { num_thresholds = 3 }
    for id = 0, n - 1 do
      total = total + 2 * id + 1
      single:update_state({ id % 2, 1 }, { 0.7, 0.2 })
    end
    near(total / (2 * n), mean:result())
    for _, x in ipairs(R.locals(strategy, inside)) do
      near(total / (2 * n), x)
    end
    near(n * (n - 1) / 2, sum:result())
    near(value(single:result()), auc:result())
    mean:reset_state()
    near(0, mean:result())
  end)

  R.pair(it, pending, "counts outside of replica functions too", function(s)
    local mean = s:scope(function()
      return K.Mean()
    end)
    mean:update_state { 1, 2, 3 }
    s:run(function()
      mean:update_state { 6 }
    end)
    near((6 + 12) / 5, mean:result())
    s:scope(function()
      mean:update_state { 3 }
      near(21 / 6, mean:result())
    end)
  end)

  R.pair(it, pending, "makes its state inside a replica function", function(s)
    local metric = s:scope(function()
      return K.MeanTensor()
    end)
    s:run(function()
      metric:update_state { R.id(), 1 }
    end)
    near({ 0.5, 1 }, metric:result())
  end)
end)

describe("metrics and losses", function()
  it("refuse what cannot be", function()
    fails("ValueError", "num_thresholds must be in 2..1048576", K.AUC, 1e300)
    local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
    m:compile { loss = "mse" }
    local x = tf.ones { 1, 1 }
    fails("TypeError", "y_true must be a tensor, got a function",
      m.compute_loss, m, x, print, x)
    for text, wrong in pairs { ["a function"] = print, ["a Dataset"] =
      tf.data.Dataset.range(1), ["the string \"x\""] = "x" } do
      local e = fails("TypeError", "y_pred must be a tensor, got " .. text,
        m.compute_loss, m, x, x, { wrong })
      assert.same({ 'in loss "mse", labels {1, 1}, predictions ' .. text },
        e.notes)
    end
    m:compile { loss = "mse", metrics = { "accuracy" } }
    fails("TypeError", "accuracy: y_pred must be a tensor, got a function",
      m.compute_metrics, m, x, x, { print })
  end)

  it("are computed from values by position and by name", function()
    local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
    m:compile { loss = "mse", weighted_metrics = { "mae" } }
    local x, y, weight = tf.zeros { 2, 1 }, tf.constant { { 1 }, { 3 } },
      tf.constant { 1, 3 }
    assert.equal(5, m:compute_loss { y = y, y_pred = x }:item())
    assert.equal(14, m:compute_loss { x = x, y = y, y_pred = x,
      sample_weight = weight, training = true }:item())
    assert.equal(14, m:compute_loss(x, y, x, weight):item())
    assert.equal(14, m:compute_loss({ y = y, y_pred = x }, nil, nil, weight)
      :item())
    assert.equal(2.5, m:compute_metrics { x = x, y = y, y_pred = x,
      sample_weight = weight }.mae:item())
    fails("ValueError", "model:compute_loss: unknown option \"y_prd\"",
      m.compute_loss, m, { y_prd = x, y_pred = x, y = y })
  end)

  it("ask for the predictions by their name", function()
    local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
    m:compile { loss = "mse", metrics = { "mae" } }
    local x = tf.ones { 1, 1 }
    for name, method in pairs { compute_loss = m.compute_loss,
      compute_metrics = m.compute_metrics } do
      local missing = "model:" .. name .. ": missing argument y_pred"
      fails("TypeError", missing, method, m, x, x)
      fails("TypeError", missing, method, m, { y = x })
      fails("TypeError", missing, method, m)
      fails("TypeError", "model:" .. name .. ": y_pred must be tensors, got "
        .. "the string \"x\"", method, m, x, x, "x")
    end
  end)

  it("need no predictions where layers add all losses", function()
    local Adds = tf.keras.Model:extend "Adds"
    function Adds:call(x)
      self:add_loss(tf.reduce_sum(x))
      self:add_loss(2)
      return x
    end
    local m = Adds()
    m:compile { optimizer = "sgd" }
    local x = tf.ones { 2, 3 }
    fails("ValueError", "no loss to compute", m.compute_loss, m, x)
    m(x)
    for _, loss in ipairs { (m:compute_loss(x)), (m:compute_loss()),
      (m:compute_loss { x = x }), (m:compute_loss(x, x, x)) } do
      assert.equal(8, loss:item())
    end
    m:compile { optimizer = "sgd", loss = "mse" }
    fails("TypeError", "missing argument y_pred", m.compute_loss, m, x)
  end)

  it("take variables as they take tensors", function()
    local v = tf.Variable { { 1 }, { 3 } }
    assert.equal(2, K.Mean()(v):item())
    assert.equal(4, K.Sum()(v):item())
    local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
    m:compile { loss = "mse", metrics = { "mae", "accuracy" } }
    assert.equal(2, m:compute_metrics(v, tf.zeros { 2, 1 }, v).mae:item())
  end)
end)
