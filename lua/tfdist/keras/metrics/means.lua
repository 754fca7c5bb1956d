--- Metrics that are a sum or a quotient of two sums.
local base = require "tfdist.keras.metrics.base"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local functions = require "tfdist.keras.losses.functions"
local masks = require "tfdist.keras.masks"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local loss_weights = require "tfdist.keras.losses.weights"

local M = { functions = {} }

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local define, add, cast = base.define, base.add, base.cast

local VALUES = "values:table sample_weight:table=nil"
local PAIR = "y_true:table y_pred:table sample_weight:table=nil"

-- Predictions in the metric's dtype, as Keras has them; whole numbers stay.
local function converted(self, y_pred)
  if type(y_pred) == "userdata" and raw.is_operand(y_pred) then
    local dtype = raw.tensor_dtype(raw.operand_tensor(y_pred))
    if convert.FLOATING[dtype] and dtype ~= rawget(self, "dtype") then
      return masks.keep(y_pred, tf.cast(y_pred, rawget(self, "dtype")))
    end
  end
  return y_pred
end

local function updater(class, signature, fn)
  local body = signature ~= PAIR and fn or function(self, y_true, y_pred, ...)
    return fn(self, y_true, converted(self, y_pred), ...)
  end
  class.update_state = options.method("metric:update_state", signature, body,
    base.is_metric, "metric")
end

M.updater, M.PAIR = updater, PAIR

--- total / count; 0 while nothing was counted.
function M.quotient(total, count)
  return tf.math.divide_no_nan(total:read_value(), count:read_value())
end

-- Mean, Sum ------------------------------------------------------------------

local function make_mean(self)
  self.total = self:add_weight { name = "total" }
  self.count = self:add_weight { name = "count" }
end

-- A replica's share of a last batch may have no examples.
local function is_empty(x)
  return type(x) == "userdata" and raw.is_operand(x)
    and raw.tensor_size(raw.operand_tensor(x)) == 0
end

-- The mean of nothing is no number. Additions may be sync points, which replicas
-- reach with or without examples.
local function add_nothing(self)
  add(self.total, 0)
  add(self.count, 0)
end

--- Add values to a mean's sums, sample by sample; sample_weight broadcasts to
--- them.
function M.add_mean(self, x, sample_weight)
  if is_empty(x) then
    return add_nothing(self)
  end
  local sums, weights = base.samplewise(self, x, sample_weight, "reduce_mean")
  add(self.total, tf.reduce_sum(sums))
  add(self.count, weights and tf.reduce_sum(weights)
    or raw.tensor_rank(sums) > 0 and raw.tensor_dim(sums, 0) or 1)
end

--- The same for values computed from predictions, whose mask says what counts.
function M.add_masked(self, x, sample_weight, y_pred)
  M.add_mean(self, x, loss_weights.weight_of(sample_weight, masks.of(y_pred),
    rawget(self, "dtype"), self.name))
end

--- Weighted mean over the samples seen, each the mean of its values; 0 when
--- there were none.
--- Source: tf.keras.metrics.Mean
M.Mean = define("Mean", "", make_mean, "mean")
updater(M.Mean, VALUES, function(self, x, sample_weight)
  M.add_mean(self, type(x) == "userdata" and x or cast(self, x), sample_weight)
end)

function M.Mean:result()
  return M.quotient(self.total, self.count)
end

--- Weighted sum of all values seen.
--- Source: tf.keras.metrics.Sum
M.Sum = define("Sum", "", function(self)
  self.total = self:add_weight { name = "total" }
end, "sum")
updater(M.Sum, VALUES, function(self, x, sample_weight)
  add(self.total, tf.reduce_sum((base.samplewise(self, x, sample_weight,
    "reduce_sum"))))
end)

function M.Sum:result()
  return self.total:read_value()
end

--- Elementwise mean of tensors of one shape, taken from the first update or
--- from `shape`.
--- Errors: ValueError on another shape later.
--- Source: tf.keras.metrics.MeanTensor
M.MeanTensor = define("MeanTensor", "shape=nil", function(self, shape)
  if shape ~= nil then
    rawset(self, "shape", shape)
    self.total = self:add_weight { name = "total", shape = shape }
    self.count = self:add_weight { name = "count", shape = shape }
  end
end, "mean_tensor")

updater(M.MeanTensor, VALUES, function(self, x, sample_weight)
  x = cast(self, x)
  local shape = rawget(self, "shape")
  if shape == nil then
    shape = x.shape
    rawset(self, "shape", shape)
    self.total = self:add_weight { name = "total", shape = shape }
    self.count = self:add_weight { name = "count", shape = shape }
  elseif text.shape(shape) ~= text.shape(x.shape) then
    errors.raise("ValueError", ("MeanTensor: values have shape %s, the metric "
      .. "has shape %s"):format(text.shape(x.shape), text.shape(shape)))
  end
  local weight = tf.ones_like(x)
  if sample_weight ~= nil then
    weight = base.weight_like(self, weight, sample_weight)
    x = x * weight
  end
  add(self.total, x)
  add(self.count, weight)
end)

function M.MeanTensor:result()
  if rawget(self, "shape") == nil then
    errors.raise("ValueError", "MeanTensor does not have any value yet: "
      .. "result() needs an update_state() first, or shape at creation")
  end
  return M.quotient(self.total, self.count)
end

-- Means of functions of labels and predictions -------------------------------

--- Mean of fn(y_true, y_pred, options...) over examples.
--- Source: tf.keras.metrics.MeanMetricWrapper
M.MeanMetricWrapper = define("MeanMetricWrapper", "fn:table", function(self, fn)
  text.check_callable("MeanMetricWrapper", "fn", fn)
  rawset(self, "fn", fn)
  make_mean(self)
end, "mean_metric_wrapper", M.Mean)
updater(M.MeanMetricWrapper, PAIR, function(self, y_true, y_pred, weight)
  local t, p = functions.bridged(y_true, y_pred)
  local x = self.fn(t, p)
  if is_empty(y_pred) then
    return add_nothing(self)
  end
  M.add_masked(self, type(x) == "userdata" and x or cast(self, x), weight,
    y_pred)
end)

local pair_of = functions.pair

M.pair_of = pair_of

-- class -> loss function, name of objects
local WRAPPED = {
  MeanSquaredError = { "mean_squared_error" },
  MeanAbsoluteError = { "mean_absolute_error" },
  MeanAbsolutePercentageError = { "mean_absolute_percentage_error" },
  MeanSquaredLogarithmicError = { "mean_squared_logarithmic_error" },
  LogCoshError = { "log_cosh", "logcosh" },
  Hinge = { "hinge" }, SquaredHinge = { "squared_hinge" },
  CategoricalHinge = { "categorical_hinge" }, Poisson = { "poisson" },
  KLDivergence = { "kl_divergence" },
  BinaryCrossentropy = { "binary_crossentropy" },
  CategoricalCrossentropy = { "categorical_crossentropy" },
  SparseCategoricalCrossentropy = { "sparse_categorical_crossentropy" },
}

for class_name, entry in pairs(WRAPPED) do
  local fn = functions.functions[entry[1]]
  local sig = options.signature(class_name, functions.signatures[entry[1]])
  local sparse = class_name == "SparseCategoricalCrossentropy"
  local class = define(class_name, functions.signatures[entry[1]],
    function(self, ...)
      rawset(self, "given", { ... })
      make_mean(self)
    end, entry[2] or entry[1], M.Mean)
  updater(class, PAIR, function(self, y_true, y_pred, weight)
    local t, p = y_true, y_pred
    if not sparse then
      t, p = pair_of(self.name, y_true, y_pred)
    end
    M.add_masked(self, fn(t, p, unpack(self.given, 1, sig.n)), weight, y_pred)
  end)
  M[class_name] = class
end

--- Mean cosine of the angle between labels and predictions (1 = the same
--- direction; the loss of this name has the opposite sign).
--- Source: tf.keras.metrics.CosineSimilarity
M.CosineSimilarity = define("CosineSimilarity", "axis=-1", function(self)
  make_mean(self)
end, "cosine_similarity", M.Mean)
updater(M.CosineSimilarity, PAIR, function(self, y_true, y_pred, weight)
  local t, p = pair_of(self.name, y_true, y_pred)
  M.add_masked(self, -functions.functions.cosine_similarity(t, p,
    self.config.axis), weight, y_pred)
end)

--- Mean of |y_true - y_pred| / normalizer, 0 where the normalizer is 0.
--- Source: tf.keras.metrics.MeanRelativeError
M.MeanRelativeError = define("MeanRelativeError", "normalizer:table",
  function(self, normalizer)
    rawset(self, "normalizer", cast(self, normalizer, "normalizer"))
    make_mean(self)
  end, "mean_relative_error", M.Mean)
updater(M.MeanRelativeError, PAIR, function(self, y_true, y_pred, weight)
  y_true, y_pred = pair_of(self.name, y_true, y_pred)
  M.add_mean(self, tf.math.divide_no_nan(tf.abs(y_true - y_pred),
    self.normalizer), weight)
end)

--- Square root of the mean of (y_true - y_pred)^2.
--- Source: tf.keras.metrics.RootMeanSquaredError
M.RootMeanSquaredError = define("RootMeanSquaredError", "", make_mean,
  "root_mean_squared_error", M.Mean)
updater(M.RootMeanSquaredError, PAIR, function(self, y_true, y_pred, weight)
  y_true, y_pred = pair_of(self.name, y_true, y_pred)
  M.add_mean(self, tf.math.squared_difference(y_pred, y_true), weight)
end)

function M.RootMeanSquaredError:result()
  return tf.sqrt(M.quotient(self.total, self.count))
end

local AGGREGATIONS = { "uniform_average", "variance_weighted_average", "none" }

--- 1 - (sum of squared errors) / (sum of squared deviations from the mean), of
--- each output on its own; class_aggregation is how the outputs' scores become
--- one ("none": they do not). With num_regressors p the score of n values is
--- adjusted to 1 - (1 - score) (n - 1) / (n - p - 1) where n > p + 1.
--- Shapes: labels and predictions {n, outputs}.
--- Errors: ValueError for other shapes.
--- Source: tf.keras.metrics.R2Score
M.R2Score = define("R2Score", "class_aggregation='uniform_average' "
  .. "num_regressors=0", function(self, aggregation, regressors)
    self.config.class_aggregation = options.choice("R2Score",
      "class_aggregation", aggregation, AGGREGATIONS)
    options.integer("R2Score", "num_regressors", regressors, 0)
    self.num_samples = self:add_weight { name = "num_samples" }
  end, "r2_score")

local R2_SUMS = { "squared_sum", "sum", "residual", "count" }

-- Labels and predictions of one output may lack its axis.
local function columns(self, x)
  x = cast(self, x)
  return raw.tensor_rank(x) == 1 and tf.expand_dims(x, -1) or x
end

local function check_r2(self, t, p)
  local outputs = rawget(self, "outputs")
  if #p.shape ~= 2 or text.shape(t.shape) ~= text.shape(p.shape)
    or outputs ~= nil and outputs ~= p.shape[2] then
    errors.raise("ValueError", ("R2Score: y_true has shape %s, y_pred %s; "
      .. "expected {n, %s} for both"):format(text.shape(t.shape),
      text.shape(p.shape), outputs or "outputs"))
  elseif outputs == nil then
    rawset(self, "outputs", p.shape[2])
    for _, name in ipairs(R2_SUMS) do
      self[name] = self:add_weight { name = name, shape = { p.shape[2] } }
    end
  end
end

updater(M.R2Score, PAIR, function(self, y_true, y_pred, weight)
  local t, p = pair_of(self.name, y_true, y_pred)
  t, p = columns(self, t), columns(self, p)
  check_r2(self, t, p)
  local w = tf.ones_like(t)
  if weight ~= nil then
    w = base.weight_like(self, w, weight)
  end
  local weighted = t * w
  add(self.sum, tf.reduce_sum(weighted, 0))
  add(self.squared_sum, tf.reduce_sum(t * weighted, 0))
  add(self.residual, tf.reduce_sum(tf.math.squared_difference(t, p) * w, 0))
  add(self.count, tf.reduce_sum(w, 0))
  add(self.num_samples, raw.tensor_size(t))
end)

local AGGREGATE = {
  uniform_average = function(scores)
    return tf.reduce_mean(scores)
  end,
  variance_weighted_average = function(scores, total)
    return tf.reduce_sum(total * scores) / tf.reduce_sum(total)
  end,
  none = function(scores)
    return scores
  end,
}

function M.R2Score:result()
  if rawget(self, "outputs") == nil then
    return tf.constant(0, rawget(self, "dtype"))
  end
  local sum = self.sum:read_value()
  local total = self.squared_sum:read_value()
    - sum * (sum / self.count:read_value())
  local scores = 1 - self.residual:read_value() / total
  scores = tf.where(tf.math.is_inf(scores), tf.zeros_like(scores), scores)
  local score = AGGREGATE[self.config.class_aggregation](scores, total)
  local p = self.config.num_regressors
  if p == 0 then
    return score
  end
  local n = self.num_samples:read_value()
  return tf.where(tf.greater(n, p + 1),
    1 - (1 - score) * (n - 1) / (n - p - 1), score)
end

-- Accuracies -----------------------------------------------------------------

-- class -> { name, options, matches(options, y_true, y_pred) }: what counts.
local function accuracy(class_name, name, signature, matches)
  local class = define(class_name, signature, make_mean, name, M.Mean)
  updater(class, PAIR, function(self, y_true, y_pred, weight)
    M.add_masked(self, matches(self.config, y_true, y_pred), weight, y_pred)
  end)
  M[class_name] = class
  -- The function form of the name.
  M.functions[name] = options.wrap("metrics." .. name,
    "y_true:table y_pred:table " .. signature,
    function(y_true, y_pred, ...)
      local sig = options.signature(name, signature)
      local config, given = {}, { ... }
      for i = 1, sig.n do
        config[sig.names[i]] = given[i]
      end
      return matches(config, y_true, y_pred)
    end)
end

local function same(a, b, dtype)
  return tf.cast(tf.equal(a, b), dtype)
end

--- How often predictions equal labels.
--- Source: tf.keras.metrics.Accuracy
accuracy("Accuracy", "accuracy", "", function(_, y_true, y_pred)
  local t, p = pair_of("accuracy", y_true, y_pred)
  return same(t, p, p.dtype)
end)

--- How often predictions are on the label's side of the threshold, element by
--- element.
--- Source: tf.keras.metrics.BinaryAccuracy
accuracy("BinaryAccuracy", "binary_accuracy", "threshold=0.5",
  function(config, y_true, y_pred)
    local t, p = pair_of("binary_accuracy", y_true, y_pred)
    return same(t, tf.cast(tf.greater(p, config.threshold), p.dtype), p.dtype)
  end)

--- How often the largest prediction is the largest label (one-hot).
--- Source: tf.keras.metrics.CategoricalAccuracy
accuracy("CategoricalAccuracy", "categorical_accuracy", "",
  function(_, y_true, y_pred)
    local t, p = pair_of("categorical_accuracy", y_true, y_pred)
    return same(tf.argmax(t, { axis = -1, output_type = "int32" }),
      tf.argmax(p, { axis = -1, output_type = "int32" }), "float32")
  end)

--- Labels as int32 without a last axis of size 1.
local function class_ids(what, y_true, p)
  local t = base.cast({ dtype = "int32", name = what }, y_true, "y_true")
  local rank = raw.tensor_rank(t)
  if rank == raw.tensor_rank(p) and raw.tensor_dim(t, rank - 1) == 1 then
    t = tf.squeeze(t, { axis = -1 })
  elseif rank > 0 and rank == raw.tensor_rank(p) then
    errors.raise("InvalidArgument", ("%s: y_true has shape %s, y_pred %s; "
      .. "expected one class number for each row of y_pred"):format(what,
      tostring(t.shape), tostring(p.shape)), "rows with a number for each "
      .. "class are for the metric without \"sparse\" in its name")
  end
  return t
end

M.class_ids = class_ids

--- How often the largest prediction is that of the class given as a number.
--- Source: tf.keras.metrics.SparseCategoricalAccuracy
accuracy("SparseCategoricalAccuracy", "sparse_categorical_accuracy", "",
  function(_, y_true, y_pred)
    local p = functions.prediction("sparse_categorical_accuracy", y_pred)
    local t = class_ids("sparse_categorical_accuracy", y_true, p)
    return same(t, tf.argmax(p, { axis = -1, output_type = "int32" }),
      "float32")
  end)

-- Rows of predictions and classes for in_top_k, and the shape they had.
local function top_k(ids, p, k)
  options.integer("top_k accuracy", "k", k, 1)
  local shape = ids.shape
  if #shape ~= 1 then
    ids = tf.reshape(ids, { -1 })
    p = tf.reshape(p, { -1, p.shape[#p.shape] })
  end
  local hits = tf.cast(tf.math.in_top_k(ids, p, k), "float32")
  return #shape ~= 1 and tf.reshape(hits, shape) or hits
end

--- How often the label is among the k largest predictions (one-hot labels).
--- Source: tf.keras.metrics.TopKCategoricalAccuracy
accuracy("TopKCategoricalAccuracy", "top_k_categorical_accuracy", "k=5",
  function(config, y_true, y_pred)
    local t, p = pair_of("top_k_categorical_accuracy", y_true, y_pred)
    return top_k(tf.argmax(t, { axis = -1, output_type = "int32" }), p,
      config.k)
  end)

--- The same for labels that are class numbers.
--- Source: tf.keras.metrics.SparseTopKCategoricalAccuracy
accuracy("SparseTopKCategoricalAccuracy", "sparse_top_k_categorical_accuracy",
  "k=5", function(config, y_true, y_pred)
    local what = "sparse_top_k_categorical_accuracy"
    local p = functions.prediction(what, y_pred)
    return top_k(class_ids(what, y_true, p), p, config.k)
  end)

return M
