--- Losses as functions: one value per example, from labels and predictions.
---
--- Shapes: y_true and y_pred are [n, ..., d] (sparse labels [n, ...]); results
--- are [n, ...], the mean over the last axis where there is one. Predictions
--- keep their floating-point dtype; labels are cast to it.
local backend = require "tfdist.keras.backend"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local logits = require "tfdist.keras.logits"
local masks = require "tfdist.keras.masks"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

-- The operators of tensors come with the first function of tf.
assert(tf.identity)

local M = {}

local type = type
local epsilon = backend.epsilon

-- name -> function; every spelling
M.functions = {}
-- name -> its signature without y_true and y_pred
M.signatures = {}
-- function -> the first of its names
M.names = {}

-- Operands -------------------------------------------------------------------

--- Predictions as a floating-point tensor.
function M.prediction(what, y_pred)
  local t = convert.tensor(y_pred, nil, what, "y_pred")
  if not convert.FLOATING[raw.tensor_dtype(t)] then
    t = tf.cast(t, "float32")
  end
  return t
end

--- Labels in the dtype of the predictions.
function M.label(what, y_true, y_pred)
  local dtype = raw.tensor_dtype(y_pred)
  local t = convert.tensor(y_true, type(y_true) ~= "userdata" and dtype or nil,
    what, "y_true")
  if raw.tensor_dtype(t) ~= dtype then
    t = tf.cast(t, dtype)
  end
  return t
end

local function is_longer(a, b)
  local rank = raw.tensor_rank(a)
  return rank == raw.tensor_rank(b) + 1 and raw.tensor_dim(a, rank - 1) == 1
end

-- The two in one rank: a list of n becomes [n, 1], so that each of its
-- elements stays an example; of others the longer one loses its last axis.
local function bridge(long, short)
  if raw.tensor_rank(short) == 1 then
    return long, tf.expand_dims(short, -1)
  end
  return tf.squeeze(long, { axis = -1 }), short
end

--- [n, ..., 1] against [n, ...] in one rank: they would broadcast to [n, n].
function M.same_rank(y_true, y_pred)
  if is_longer(y_true, y_pred) then
    return bridge(y_true, y_pred)
  elseif is_longer(y_pred, y_true) then
    y_pred, y_true = bridge(y_pred, y_true)
  end
  return y_true, y_pred
end

local function is_tensor(x)
  return type(x) == "userdata" and raw.kind(x) == "tensor"
end

--- Labels and predictions as functions of users get them.
function M.bridged(y_true, y_pred)
  if is_tensor(y_true) and is_tensor(y_pred) then
    return M.same_rank(y_true, y_pred)
  end
  return y_true, y_pred
end

--- Refuse labels and predictions that do not broadcast.
--- Errors: InvalidArgument naming both shapes.
function M.check_shapes(what, t, p)
  local a, b = raw.tensor_rank(t), raw.tensor_rank(p)
  for axis = 1, a < b and a or b do
    local m, n = raw.open_dim(t, a - axis), raw.open_dim(p, b - axis)
    if m ~= n and m ~= 1 and n ~= 1 and m >= 0 and n >= 0 then
      errors.raise("InvalidArgument", ("%s: y_true has shape %s, y_pred %s; "
        .. "they do not broadcast"):format(what, tostring(t.shape),
        tostring(p.shape)))
    end
  end
end

local function pair(what, y_true, y_pred)
  y_pred = M.prediction(what, y_pred)
  y_true, y_pred = M.same_rank(M.label(what, y_true, y_pred), y_pred)
  M.check_shapes(what, y_true, y_pred)
  return y_true, y_pred
end

M.pair = pair

local function last_mean(t)
  return raw.tensor_rank(t) == 0 and t or tf.reduce_mean(t, { axis = -1 })
end

local function check_number(what, name, x, lo, hi)
  if type(x) ~= "number" then
    errors.raise("TypeError", ("%s: %s must be a number, got %s"):format(what,
      name, text.describe(x)))
  elseif x ~= x or x < lo or x > hi then
    errors.raise("ValueError", ("%s: %s must be %s, got %s"):format(what, name,
      hi == math.huge and "at least " .. text.number(lo)
      or ("in %s..%s"):format(text.number(lo), text.number(hi)),
      text.number(x)))
  end
end

local function define(names, signature, fn)
  local what = names:match("^%S+")
  local wrapped = options.wrap("losses." .. what,
    "y_true:table y_pred:table " .. signature, fn)
  M.names[wrapped] = what
  for name in names:gmatch("%S+") do
    M.functions[name] = wrapped
    M.signatures[name] = signature
  end
end

-- Distances ------------------------------------------------------------------

--- Mean of (t - p)^2 over the last axis.
define("mean_squared_error mse MSE", "", function(y_true, y_pred)
  local t, p = pair("mean_squared_error", y_true, y_pred)
  return last_mean(tf.math.squared_difference(p, t))
end)

--- Mean of |t - p|.
define("mean_absolute_error mae MAE", "", function(y_true, y_pred)
  local t, p = pair("mean_absolute_error", y_true, y_pred)
  return last_mean(tf.abs(p - t))
end)

--- 100 times the mean of |t - p| / max(|t|, epsilon).
define("mean_absolute_percentage_error mape MAPE", "",
  function(y_true, y_pred)
    local t, p = pair("mean_absolute_percentage_error", y_true, y_pred)
    return last_mean(tf.abs((t - p) / tf.maximum(tf.abs(t), epsilon()))) * 100
  end)

--- Mean of (log(1 + t) - log(1 + p))^2, arguments at least epsilon.
define("mean_squared_logarithmic_error msle MSLE", "",
  function(y_true, y_pred)
    local t, p = pair("mean_squared_logarithmic_error", y_true, y_pred)
    return last_mean(tf.math.squared_difference(
      tf.math.log1p(tf.maximum(p, epsilon())),
      tf.math.log1p(tf.maximum(t, epsilon()))))
  end)

--- Half the square up to delta, linear beyond.
define("huber huber_loss", "delta=1", function(y_true, y_pred, delta)
  check_number("huber", "delta", delta, 0, math.huge)
  local t, p = pair("huber", y_true, y_pred)
  local e = p - t
  -- s * (e - s / 2) is both branches at once, where s is e within delta.
  local small = tf.clip_by_value(e, -delta, delta)
  return last_mean(small * (e - small * 0.5))
end)

--- Mean of log(cosh(p - t)), safe for large differences.
define("log_cosh logcosh", "", function(y_true, y_pred)
  local t, p = pair("log_cosh", y_true, y_pred)
  local d = p - t
  return last_mean(d + tf.math.softplus(d * -2) - math.log(2))
end)

--- Minus the cosine of the angle between t and p: -1 for the same direction.
define("cosine_similarity", "axis=-1", function(y_true, y_pred, axis)
  local t, p = pair("cosine_similarity", y_true, y_pred)
  return -tf.reduce_sum(tf.math.l2_normalize(t, axis)
    * tf.math.l2_normalize(p, axis), { axis = axis })
end)

-- Margins --------------------------------------------------------------------

-- Labels 0 and 1 as -1 and 1; labels that are no such pair stay.
local function signed(t)
  if raw.tensor_size(t) == 0 then
    return t
  end
  local binary = tf.reduce_all(tf.logical_or(tf.equal(t, 0), tf.equal(t, 1)))
  return tf.where(binary, t * 2 - 1, t)
end

--- Mean of max(0, 1 - t p), labels -1 and 1 (0 and 1 are converted).
define("hinge", "", function(y_true, y_pred)
  local t, p = pair("hinge", y_true, y_pred)
  return last_mean(tf.maximum(1 - signed(t) * p, 0))
end)

define("squared_hinge", "", function(y_true, y_pred)
  local t, p = pair("squared_hinge", y_true, y_pred)
  return last_mean(tf.square(tf.maximum(1 - signed(t) * p, 0)))
end)

--- max(0, 1 + largest wrong prediction - right prediction), t one-hot.
define("categorical_hinge", "", function(y_true, y_pred)
  local t, p = pair("categorical_hinge", y_true, y_pred)
  local right = tf.reduce_sum(t * p, { axis = -1 })
  local wrong = tf.reduce_max((1 - t) * p, { axis = -1 })
  return tf.maximum(wrong - right + 1, 0)
end)

-- Distributions --------------------------------------------------------------

--- Sum of t log(t / p) over the last axis, both clipped to epsilon..1.
define("kl_divergence kullback_leibler_divergence kld KLD", "",
  function(y_true, y_pred)
    local t, p = pair("kl_divergence", y_true, y_pred)
    t = tf.clip_by_value(t, epsilon(), 1)
    p = tf.clip_by_value(p, epsilon(), 1)
    return tf.reduce_sum(t * tf.math.log(t / p), { axis = -1 })
  end)

--- Mean of p - t log(p + epsilon).
define("poisson", "", function(y_true, y_pred)
  local t, p = pair("poisson", y_true, y_pred)
  return last_mean(p - t * tf.math.log(p + epsilon()))
end)

local function clip(p)
  return tf.clip_by_value(p, epsilon(), 1 - epsilon())
end

-- Axis `axis` last; the cross-entropies work on the last one.
local function axis_last(what, t, axis)
  local rank = raw.tensor_rank(t)
  options.integer(what, "axis", axis)
  if axis < -rank or axis >= rank then
    errors.raise("ValueError", text.format("%s: axis %d is outside a tensor of "
      .. "rank %d; axes count from 0, -1 is the last", what, axis, rank))
  end
  axis = axis < 0 and axis + rank or axis
  if axis == rank - 1 then
    return t
  end
  local perm = {}
  for i = 0, rank - 1 do
    if i ~= axis then
      perm[#perm + 1] = i
    end
  end
  perm[#perm + 1] = axis
  return tf.transpose(t, perm)
end

local function smooth(t, label_smoothing, classes)
  if label_smoothing == 0 then
    return t
  end
  return t * (1 - label_smoothing) + label_smoothing / classes
end

local HALF = { float16 = true, bfloat16 = true }

-- Per element: -t log p - (1 - t) log(1 - p).
local function binary_elements(t, p, from_logits)
  if from_logits then
    return tf.nn.sigmoid_cross_entropy_with_logits(t, p)
  end
  local dtype = raw.tensor_dtype(p)
  if HALF[dtype] then
    -- There 1 - epsilon is 1, whose logarithm of the rest is infinite.
    t, p = tf.cast(t, "float32"), tf.cast(p, "float32")
  end
  p = clip(p)
  local each = -(t * tf.math.log(p) + (1 - t) * tf.math.log(1 - p))
  return HALF[dtype] and tf.cast(each, dtype) or each
end

--- Mean of the cross-entropy of each label 0 or 1 (or in between) and its
--- probability, or logit with from_logits.
define("binary_crossentropy bce BCE",
  "from_logits=false label_smoothing=0 axis=-1",
  function(y_true, y_pred, from_logits, label_smoothing, axis)
    local what = "binary_crossentropy"
    check_number(what, "label_smoothing", label_smoothing, 0, 1)
    y_pred, from_logits = logits.of(y_pred, from_logits)
    local t, p = pair(what, y_true, y_pred)
    t = smooth(t, label_smoothing, 2)
    local each = binary_elements(t, p, from_logits)
    return raw.tensor_rank(each) == 0 and each
      or tf.reduce_mean(each, { axis = axis })
  end)

--- binary_crossentropy times (1 - p_t)^gamma: easy examples count less;
--- apply_class_balancing also weighs class 1 by alpha, class 0 by 1 - alpha.
define("binary_focal_crossentropy", "apply_class_balancing=false alpha=0.25 "
  .. "gamma=2 from_logits=false label_smoothing=0 axis=-1",
  function(y_true, y_pred, balanced, alpha, gamma, from_logits,
      label_smoothing, axis)
    local what = "binary_focal_crossentropy"
    check_number(what, "label_smoothing", label_smoothing, 0, 1)
    check_number(what, "alpha", alpha, 0, 1)
    check_number(what, "gamma", gamma, 0, math.huge)
    y_pred, from_logits = logits.of(y_pred, from_logits)
    local t, p = pair(what, y_true, y_pred)
    t = smooth(t, label_smoothing, 2)
    local each = binary_elements(t, p, from_logits)
    local probability = from_logits and tf.sigmoid(p) or p
    local of_truth = t * probability + (1 - t) * (1 - probability)
    each = each * tf.pow(1 - of_truth, gamma)
    if balanced then
      each = each * (t * alpha + (1 - t) * (1 - alpha))
    end
    return tf.reduce_mean(each, { axis = axis })
  end)

-- Truth and prediction with a number for each class along the last axis.
local function class_pair(what, y_true, y_pred, axis)
  local p = M.prediction(what, y_pred)
  local t = M.label(what, y_true, p)
  if t.shape ~= p.shape then
    errors.raise("InvalidArgument", ("%s: y_true has shape %s, y_pred %s; "
      .. "both must have a number for each class"):format(what,
      tostring(t.shape), tostring(p.shape)), "labels that are class numbers are for sparse_"
      .. "categorical_crossentropy, tf.one_hot(labels, depth) makes them rows")
  end
  return axis_last(what, t, axis), axis_last(what, p, axis)
end

--- -sum(t log p) over the classes, p scaled to sum 1; p are logits with
--- from_logits.
define("categorical_crossentropy",
  "from_logits=false label_smoothing=0 axis=-1",
  function(y_true, y_pred, from_logits, label_smoothing, axis)
    local what = "categorical_crossentropy"
    check_number(what, "label_smoothing", label_smoothing, 0, 1)
    y_pred, from_logits = logits.of(y_pred, from_logits)
    local t, p = class_pair(what, y_true, y_pred, axis)
    t = smooth(t, label_smoothing,
      raw.tensor_dim(p, raw.tensor_rank(p) - 1))
    if from_logits then
      return tf.nn.softmax_cross_entropy_with_logits(t, p)
    end
    p = clip(p / tf.reduce_sum(p, { axis = -1, keepdims = true }))
    return -tf.reduce_sum(t * tf.math.log(p), { axis = -1 })
  end)

--- categorical_crossentropy with each class weighed by alpha (1 - p)^gamma.
define("categorical_focal_crossentropy", "alpha=0.25 gamma=2 "
  .. "from_logits=false label_smoothing=0 axis=-1",
  function(y_true, y_pred, alpha, gamma, from_logits, label_smoothing, axis)
    local what = "categorical_focal_crossentropy"
    check_number(what, "label_smoothing", label_smoothing, 0, 1)
    local t, p = class_pair(what, y_true, y_pred, axis)
    t = smooth(t, label_smoothing,
      raw.tensor_dim(p, raw.tensor_rank(p) - 1))
    if from_logits then
      p = tf.nn.softmax(p)
    end
    p = clip(p / tf.reduce_sum(p, { axis = -1, keepdims = true }))
    return tf.reduce_sum(tf.pow(1 - p, gamma) * alpha * t
      * -tf.math.log(p), { axis = -1 })
  end)

local SPARSE = "sparse_categorical_crossentropy"

local OP = "sparse_softmax_cross_entropy"

--- A failure of the op below in the words of the loss; others pass through.
function M.rename(e)
  if errors.is_error(e) and e.op == OP then
    -- Messages begin with the op.
    e.op, e.message = SPARSE, SPARSE .. e.message:sub(#OP + 1)
  end
  return e
end

local function cross_entropy(labels, scores)
  local ok, x = pcall(tf.nn.sparse_softmax_cross_entropy_with_logits, labels,
    scores)
  if not ok then
    x = M.rename(x)
    -- The shapes do not fit: no bound that a label did not keep.
    if errors.is_error(x) and x.argument == "labels" and x.bound == nil then
      x.hint = x.hint or "rows with a number for each class are for "
        .. "categorical_crossentropy"
    end
    error(x, 0)
  end
  return x
end

-- Whole-number labels without a last axis of size 1.
local function sparse_labels(y_true, y_pred)
  local t = type(y_true) == "userdata" and convert.tensor(y_true, nil, SPARSE,
    "y_true") or convert.tensor(convert.index_operand(y_true, SPARSE,
    "y_true"), nil, SPARSE, "y_true")
  local rank = raw.tensor_rank(t)
  if rank == raw.tensor_rank(y_pred) and raw.tensor_dim(t, rank - 1) == 1 then
    t = tf.squeeze(t, { axis = -1 })
  end
  if not convert.INTEGER[raw.tensor_dtype(t)] then
    t = tf.cast(t, "int64")
  end
  return t
end

--- -log of the probability of class y_true[i], a whole number from 0; y_pred
--- are logits with from_logits. Examples of ignore_class give 0 and do not
--- count in a mean.
--- Shapes: y_true [n, ...] or [n, ..., 1], y_pred [n, ..., classes].
--- Errors: InvalidArgument for a label outside of 0..classes-1.
define(SPARSE, "from_logits=false ignore_class=nil axis=-1",
  function(y_true, y_pred, from_logits, ignore_class, axis)
    y_pred, from_logits = logits.of(y_pred, from_logits)
    local p = axis_last(SPARSE, M.prediction(SPARSE, y_pred), axis)
    local t = sparse_labels(y_true, p)
    if not from_logits then
      p = tf.math.log(clip(p))
    end
    if ignore_class == nil then
      return cross_entropy(t, p)
    end
    options.integer(SPARSE, "ignore_class", ignore_class)
    local valid = tf.not_equal(t, ignore_class)
    local each = cross_entropy(tf.where(valid, t, tf.zeros_like(t)), p)
    each = tf.where(valid, each, tf.zeros_like(each))
    masks.set(each, valid)
    return each
  end)

return M
