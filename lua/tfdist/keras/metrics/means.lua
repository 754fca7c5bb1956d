--- Metrics that are a sum or a quotient of two sums.
local base = require "tfdist.keras.metrics.base"
local convert = require "tfdist.convert"
local errors = require "tfdist.errors"
local functions = require "tfdist.keras.losses.functions"
local options = require "tfdist.options"
local raw = require "tfdist.raw"
local text = require "tfdist.text"
local tf = require "tfdist"

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
      return tf.cast(y_pred, rawget(self, "dtype"))
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

--- Add values to a mean's sums; sample_weight broadcasts to them.
function M.add_mean(self, x, sample_weight)
  local weighted, count = base.weigh(self, cast(self, x), sample_weight)
  add(self.total, tf.reduce_sum(weighted))
  add(self.count, count)
end

--- Weighted mean of all values seen; 0 when there were none.
--- Source: tf.keras.metrics.Mean
M.Mean = define("Mean", "", make_mean, "mean")
updater(M.Mean, VALUES, M.add_mean)

function M.Mean:result()
  return M.quotient(self.total, self.count)
end

--- Weighted sum of all values seen.
--- Source: tf.keras.metrics.Sum
M.Sum = define("Sum", "", function(self)
  self.total = self:add_weight { name = "total" }
end, "sum")
updater(M.Sum, VALUES, function(self, x, sample_weight)
  add(self.total, tf.reduce_sum((base.weigh(self, cast(self, x),
    sample_weight))))
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

-- A replica's share of a last batch may have no examples.
local function is_empty(x)
  return type(x) == "userdata" and raw.is_operand(x)
    and raw.tensor_size(x) == 0
end

--- Mean of fn(y_true, y_pred, options...) over examples.
--- Source: tf.keras.metrics.MeanMetricWrapper
M.MeanMetricWrapper = define("MeanMetricWrapper", "fn:table", function(self, fn)
  text.check_callable("MeanMetricWrapper", "fn", fn)
  rawset(self, "fn", fn)
  make_mean(self)
end, "mean_metric_wrapper", M.Mean)
updater(M.MeanMetricWrapper, PAIR, function(self, y_true, y_pred, weight)
  y_true, y_pred = functions.bridged(y_true, y_pred)
  local x = cast(self, self.fn(y_true, y_pred))
  if raw.tensor_rank(x) == 0 and is_empty(y_pred) then
    return -- the mean of no examples is no number
  end
  M.add_mean(self, x, weight)
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
    if not sparse then
      y_true, y_pred = pair_of(self.name, y_true, y_pred)
    end
    M.add_mean(self, fn(y_true, y_pred, unpack(self.given, 1, sig.n)), weight)
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
  y_true, y_pred = pair_of(self.name, y_true, y_pred)
  M.add_mean(self, -functions.functions.cosine_similarity(y_true, y_pred,
    self.config.axis), weight)
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

--- 1 - (sum of squared errors) / (sum of squared deviations from the mean).
--- Source: tf.keras.metrics.R2Score
M.R2Score = define("R2Score", "", function(self)
  for _, name in ipairs { "squared_sum", "sum", "residual", "count" } do
    self[name] = self:add_weight { name = name }
  end
end, "r2_score")
updater(M.R2Score, PAIR, function(self, y_true, y_pred, weight)
  y_true, y_pred = pair_of(self.name, y_true, y_pred)
  y_true, y_pred = cast(self, y_true), cast(self, y_pred)
  local sum, count = base.weigh(self, y_true, weight)
  add(self.sum, tf.reduce_sum(sum))
  add(self.squared_sum, tf.reduce_sum((base.weigh(self, tf.square(y_true),
    weight))))
  add(self.residual, tf.reduce_sum((base.weigh(self,
    tf.math.squared_difference(y_pred, y_true), weight))))
  add(self.count, count)
end)

function M.R2Score:result()
  local sum = self.sum:read_value()
  local mean = tf.math.divide_no_nan(sum, self.count:read_value())
  local total = self.squared_sum:read_value() - sum * mean
  return 1 - tf.math.divide_no_nan(self.residual:read_value(), total)
end

-- Accuracies -----------------------------------------------------------------

-- class -> { name, options, matches(options, y_true, y_pred) }: what counts.
local function accuracy(class_name, name, signature, matches)
  local class = define(class_name, signature, make_mean, name, M.Mean)
  updater(class, PAIR, function(self, y_true, y_pred, weight)
    M.add_mean(self, matches(self.config, y_true, y_pred), weight)
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
