--- Metrics on counts of true and false positives and negatives.
local base = require "tfdist.keras.metrics.base"
local errors = require "tfdist.base.errors"
local means = require "tfdist.keras.metrics.means"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local MOST_THRESHOLDS = 2 ^ 20 -- each has counts of its own

local type = type
local define, add, cast = base.define, base.add, base.cast
local updater, PAIR, pair_of = means.updater, means.PAIR, means.pair_of
local EPSILON = 1e-7
local COUNTS = {
  "true_positives", "false_positives", "true_negatives", "false_negatives",
}

-- Counting -------------------------------------------------------------------

-- Options that all these metrics know: one threshold or a list, in 0..1.
local function read_thresholds(self, thresholds, default)
  if thresholds == nil then
    thresholds = default
  end
  local list = type(thresholds) == "table" and thresholds or { thresholds }
  if #list == 0 then
    errors.raise("ValueError", self.name .. ": thresholds must be a number or "
      .. "a list of numbers, got an empty list")
  end
  for _, x in ipairs(list) do
    if type(x) ~= "number" or ((x < 0 or x > 1) and x ~= -math.huge) then
      errors.raise("ValueError", ("%s: thresholds must be numbers in 0..1, got "
        .. "%s"):format(self.name, text.describe(x)))
    end
  end
  rawset(self, "thresholds_used", list)
  rawset(self, "many", type(thresholds) == "table")
end

local function make_counts(self, names)
  local n = #self.thresholds_used
  for _, name in ipairs(names) do
    self[name] = self:add_weight { name = name, shape = { n } }
  end
end

-- Predictions outside of the k largest of their row count as -inf.
local function only_top_k(p, k)
  local depth = p.shape[#p.shape]
  local _, ids = tf.math.top_k(p, k)
  local chosen = tf.reduce_sum(tf.one_hot(ids, depth), { axis = -2 })
  return tf.where(tf.greater(chosen, 0), p, -math.huge)
end

local function of_class(t, id)
  local rank = raw.tensor_rank(t)
  local classes = raw.tensor_dim(t, rank - 1)
  if rank == 0 or id >= classes then
    errors.raise("ValueError", text.format("class_id %d is outside of the %d "
      .. "classes of shape %s", id, classes, text.shape(t.shape)))
  end
  return tf.gather(t, id, { axis = rank - 1 })
end

-- Thresholds as a column; made anew at each use, since replicas on other
-- devices use it too.
local function column(self, dtype)
  local list = self.thresholds_used
  local rows = {}
  for i = 1, #list do
    rows[i] = { list[i] }
  end
  return tf.constant(rows, dtype)
end

-- Positives and negatives at each threshold: vectors tp, fp, and the numbers of
-- positive and negative labels.
local function count(self, y_true, y_pred, sample_weight)
  local config = self.config
  local t, p = pair_of(self.name, y_true, y_pred)
  t, p = cast(self, t), cast(self, p)
  if config.from_logits then
    p = tf.sigmoid(p)
  end
  if config.top_k ~= nil then
    p = only_top_k(p, config.top_k)
  end
  if config.class_id ~= nil then
    t, p = of_class(t, config.class_id), of_class(p, config.class_id)
  end
  if text.shape(t.shape) ~= text.shape(p.shape) then
    errors.raise("InvalidArgument", ("%s: labels have shape %s, predictions "
      .. "have shape %s"):format(self.name, text.shape(t.shape),
      text.shape(p.shape)))
  end
  local positive = tf.cast(tf.not_equal(t, 0), p.dtype)
  local weight = tf.ones_like(p)
  if sample_weight ~= nil then
    weight = base.weight_like(self, weight, sample_weight)
  end
  local sides = tf.stack({ tf.reshape(positive * weight, { -1 }),
    tf.reshape((1 - positive) * weight, { -1 }) }, { axis = 1 })
  local over = tf.cast(tf.greater(tf.reshape(p, { 1, -1 }),
    column(self, p.dtype)), p.dtype)
  return tf.matmul(over, sides), tf.reduce_sum(sides, { axis = 0 })
end

-- Add to those counts that the metric keeps.
local function update_counts(self, y_true, y_pred, sample_weight)
  local hits, all = count(self, y_true, y_pred, sample_weight)
  local tp, fp = tf.gather(hits, 0, { axis = 1 }), tf.gather(hits, 1,
    { axis = 1 })
  local function keep(name, delta)
    local v = rawget(self, name)
    if v ~= nil then
      add(v, delta())
    end
  end
  keep("true_positives", function() return tp end)
  keep("false_positives", function() return fp end)
  keep("false_negatives", function() return all[0] - tp end)
  keep("true_negatives", function() return all[1] - fp end)
end

-- A scalar when there is one threshold given as a number.
local function shaped(self, x)
  return self.many and x or x[0]
end

local function check_choice_options(self, top_k, class_id)
  if top_k ~= nil then
    options.integer(self.name, "top_k", top_k, 1)
  end
  if class_id ~= nil then
    options.integer(self.name, "class_id", class_id, 0)
  end
end

-- Counts themselves ----------------------------------------------------------

for i, class_name in ipairs { "TruePositives", "FalsePositives",
  "TrueNegatives", "FalseNegatives" } do
  --- How many there are, weighted; a vector when thresholds is a list.
  local class = define(class_name, "thresholds=nil", function(self, thresholds)
    read_thresholds(self, thresholds, 0.5)
    make_counts(self, { COUNTS[i] })
  end, COUNTS[i])
  updater(class, PAIR, update_counts)
  function class.result(self)
    return shaped(self, self[COUNTS[i]]:read_value())
  end
  M[class_name] = class
end

-- tp / (tp + other) of the metric's counts.
local function ratio(self, other)
  local tp = self.true_positives:read_value()
  return tf.math.divide_no_nan(tp, tp + self[other]:read_value())
end

for class_name, other in pairs { Precision = "false_positives",
  Recall = "false_negatives" } do
  --- Precision: true positives among predicted ones; Recall: among actual
  --- ones. top_k counts the k largest predictions as positive; class_id looks
  --- at one class only.
  local class = define(class_name, "thresholds=nil top_k=nil class_id=nil",
    function(self, thresholds, top_k, class_id)
      check_choice_options(self, top_k, class_id)
      read_thresholds(self, thresholds, top_k and -math.huge or 0.5)
      make_counts(self, { "true_positives", other })
    end, class_name:lower())
  updater(class, PAIR, update_counts)
  function class.result(self)
    return shaped(self, ratio(self, other))
  end
  M[class_name] = class
end

-- Curves ---------------------------------------------------------------------

-- n thresholds from 0 to 1, the ends `beyond` outside: a prediction of 0 is
-- above the first one only then.
local function even_thresholds(self, n, beyond)
  options.integer(self.name, "num_thresholds", n, 1, MOST_THRESHOLDS)
  if n == 1 then
    return { 0.5 }
  end
  local list = { -beyond }
  for i = 1, n - 2 do
    list[i + 1] = i / (n - 1)
  end
  list[n] = 1 + beyond
  return list
end

local function tails(x)
  local n = raw.tensor_dim(x, 0)
  return tf.slice(x, { 0 }, { n - 1 }), tf.slice(x, { 1 }, { n - 1 })
end

local SUMMATIONS = { "interpolation", "minoring", "majoring" }

-- Area below a precision-recall curve by the interpolation of Davis and
-- Goadrich (2006): precision is no straight line between two points.
local function pr_area(tp, fp, fn)
  local tp0, tp1 = tails(tp)
  local p0, p1 = tails(tp + fp)
  local _, fn1 = tails(fn)
  local div = tf.math.divide_no_nan
  local dtp = tp0 - tp1
  local slope = div(dtp, tf.maximum(p0 - p1, 0))
  local intercept = tp1 - slope * p1
  local both = tf.logical_and(tf.greater(p0, 0), tf.greater(p1, 0))
  local safe = tf.where(both, div(p0, tf.maximum(p1, 0)), tf.ones_like(p1))
  return tf.reduce_sum(div(slope * (dtp + intercept * tf.math.log(safe)),
    tf.maximum(tp1 + fn1, 0)))
end

--- Area under the ROC or PR curve, from counts at num_thresholds thresholds
--- (or at those of a list, in 0..1).
--- Errors: NotImplementedError for multi_label and label_weights.
--- Source: tf.keras.metrics.AUC
M.AUC = define("AUC", "num_thresholds=200 curve='ROC' "
  .. "summation_method='interpolation' thresholds=nil multi_label=false "
  .. "num_labels=nil label_weights=nil from_logits=false",
  function(self, n, curve, summation, thresholds, multi_label, num_labels,
      label_weights)
    if multi_label or num_labels ~= nil or label_weights ~= nil then
      errors.raise("NotImplementedError", "AUC: multi_label, num_labels and "
        .. "label_weights are not implemented", "use one AUC for each label")
    end
    self.config.curve = options.choice("AUC", "curve", curve, { "ROC", "PR" })
    self.config.summation_method = options.choice("AUC", "summation_method",
      summation, SUMMATIONS)
    if thresholds ~= nil then
      read_thresholds(self, thresholds)
      local list = { -EPSILON }
      for _, x in ipairs(self.thresholds_used) do
        list[#list + 1] = x
      end
      table.sort(list)
      list[#list + 1] = 1 + EPSILON
      rawset(self, "thresholds_used", list)
    else
      options.integer("AUC", "num_thresholds", n, 2, MOST_THRESHOLDS)
      rawset(self, "thresholds_used", even_thresholds(self, n, EPSILON))
    end
    make_counts(self, COUNTS)
  end, "auc")
updater(M.AUC, PAIR, update_counts)

function M.AUC:result()
  local tp, fp = self.true_positives:read_value(),
    self.false_positives:read_value()
  local tn, fn = self.true_negatives:read_value(),
    self.false_negatives:read_value()
  local div, config = tf.math.divide_no_nan, self.config
  if config.curve == "PR" and config.summation_method == "interpolation" then
    return pr_area(tp, fp, fn)
  end
  local recall = div(tp, tp + fn)
  local x, y = div(fp, fp + tn), recall
  if config.curve == "PR" then
    x, y = recall, div(tp, tp + fp)
  end
  local x0, x1 = tails(x)
  local y0, y1 = tails(y)
  local height
  if config.summation_method == "interpolation" then
    height = (y0 + y1) / 2
  elseif config.summation_method == "minoring" then
    height = tf.minimum(y0, y1)
  else
    height = tf.maximum(y0, y1)
  end
  return tf.reduce_sum((x0 - x1) * height)
end

-- The best `wanted` where `bound` is at least the value; 0 if nowhere.
local function best(self, bound, wanted)
  local fits = tf.greater_equal(bound, self.value)
  return tf.reduce_max(tf.where(fits, wanted, tf.zeros_like(wanted)))
end

local RATES = {
  sensitivity = { "true_positives", "false_negatives" },
  recall = { "true_positives", "false_negatives" },
  specificity = { "true_negatives", "false_positives" },
  precision = { "true_positives", "false_positives" },
}

local function rate(self, name)
  local top = self[RATES[name][1]]:read_value()
  return tf.math.divide_no_nan(top, top + self[RATES[name][2]]:read_value())
end

-- "SensitivityAtSpecificity": the best sensitivity whose specificity is at
-- least the given one.
local function define_at(class_name, wanted, bound)
  local class = define(class_name, bound .. ":f"
    .. " num_thresholds=200 class_id=nil", function(self, value, n, class_id)
      check_choice_options(self, nil, class_id)
      if type(value) ~= "number" or value < 0 or value > 1 then
        errors.raise("ValueError", ("%s: %s must be in 0..1, got %s"):format(
          class_name, bound, text.describe(value)))
      end
      rawset(self, "value", value)
      rawset(self, "thresholds_used", even_thresholds(self, n, 0))
      make_counts(self, COUNTS)
    end, wanted .. "_at_" .. bound)
  updater(class, PAIR, update_counts)
  function class.result(self)
    return best(self, rate(self, bound), rate(self, wanted))
  end
  M[class_name] = class
end

define_at("SensitivityAtSpecificity", "sensitivity", "specificity")
define_at("SpecificityAtSensitivity", "specificity", "sensitivity")
define_at("PrecisionAtRecall", "precision", "recall")
define_at("RecallAtPrecision", "recall", "precision")

-- F --------------------------------------------------------------------------

local AVERAGES = { "micro", "macro", "weighted" }

local function init_f(self, average, beta, threshold)
  if average ~= nil then
    average = options.choice(self.name, "average", average, AVERAGES)
  end
  if type(beta) ~= "number" or beta <= 0 then
    errors.raise("ValueError", ("%s: beta must be a positive number, got %s")
      :format(self.name, text.describe(beta)))
  elseif threshold ~= nil and (type(threshold) ~= "number" or threshold <= 0
    or threshold > 1) then
    errors.raise("ValueError", ("%s: threshold must be in 0..1, got %s"):format(
      self.name, text.describe(threshold)))
  end
  self.config.average, self.config.beta = average, beta
  self.config.threshold = threshold
end

--- Weighted harmonic mean of precision and recall for each class; predictions
--- are positive above threshold, without one where they are largest.
--- Shapes: y_true, y_pred [n, classes]; result [classes], or a scalar with
---   average = "micro", "macro" or "weighted".
--- Source: tf.keras.metrics.FBetaScore
M.FBetaScore = define("FBetaScore", "average=nil beta=1 threshold=nil", init_f,
  "fbeta_score")

--- FBetaScore with beta = 1.
M.F1Score = define("F1Score", "average=nil threshold=nil",
  function(self, average, threshold)
    init_f(self, average, 1, threshold)
    self.config.beta = nil -- no argument of this class
  end, "f1_score", M.FBetaScore)

local function update_f(self, y_true, y_pred, sample_weight)
  local t, p = pair_of(self.name, y_true, y_pred)
  t, p = cast(self, t), cast(self, p)
  if raw.tensor_rank(p) ~= 2 or text.shape(t.shape) ~= text.shape(p.shape) then
    errors.raise("InvalidArgument", ("%s: labels and predictions must be "
      .. "[n, classes], got %s and %s"):format(self.name, text.shape(t.shape),
      text.shape(p.shape)))
  end
  local classes = raw.tensor_dim(p, 1)
  if rawget(self, "true_positives") == nil then
    for _, name in ipairs { "true_positives", "false_positives",
      "false_negatives", "intermediate" } do
      self[name] = self:add_weight { name = name, shape = { classes } }
    end
  end
  local limit = self.config.threshold
    or tf.reduce_max(p, { axis = -1, keepdims = true })
  local hit = self.config.threshold and tf.greater(p, limit)
    or tf.logical_and(tf.greater_equal(p, limit),
      tf.greater(tf.abs(p), 1e-12))
  hit = tf.cast(hit, p.dtype)
  local weight = tf.ones_like(p)
  if sample_weight ~= nil then
    weight = base.weight_like(self, weight, sample_weight)
  end
  local function sum(x)
    return tf.reduce_sum(x * weight, { axis = 0 })
  end
  add(self.true_positives, sum(hit * t))
  add(self.false_positives, sum(hit * (1 - t)))
  add(self.false_negatives, sum((1 - hit) * t))
  add(self.intermediate, sum(t))
end

updater(M.FBetaScore, PAIR, update_f)
M.F1Score.update_state = M.FBetaScore.update_state

function M.FBetaScore:result()
  local config = self.config
  if rawget(self, "true_positives") == nil then
    return tf.constant(0, self.dtype)
  end
  local tp, fp, fn = self.true_positives:read_value(),
    self.false_positives:read_value(), self.false_negatives:read_value()
  if config.average == "micro" then
    tp, fp, fn = tf.reduce_sum(tp), tf.reduce_sum(fp), tf.reduce_sum(fn)
  end
  local div, square = tf.math.divide_no_nan, (config.beta or 1) ^ 2
  local precision, recall = div(tp, tp + fp), div(tp, tp + fn)
  local f = div(precision * recall * (1 + square),
    precision * square + recall)
  if config.average == "weighted" then
    local share = self.intermediate:read_value()
    return tf.reduce_sum(f * div(share, tf.reduce_sum(share)))
  elseif config.average == "macro" then
    return tf.reduce_mean(f)
  end
  return f
end

return M
