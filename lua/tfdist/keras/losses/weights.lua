--- Weights and masks of losses and metrics.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local functions = require "tfdist.keras.losses.functions"
local masks = require "tfdist.keras.masks"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local type = type

local function misfit(what, values, w, other)
  errors.raise("InvalidArgument", ("%s: sample_weight has shape %s, the "
    .. "%s shape %s"):format(what, text.shape(w.shape), other or "losses have",
    text.shape(values.shape)))
end

-- t with axes of size 1 behind, up to a rank.
local function with_axes(t, rank)
  for _ = raw.tensor_rank(t) + 1, rank do
    t = tf.expand_dims(t, -1)
  end
  return t
end

-- Do tensors of one rank go together? Of weights only theirs may broadcast.
local function fit(values, w, both_ways)
  for axis = 0, raw.tensor_rank(values) - 1 do
    local n, m = raw.open_dim(w, axis), raw.open_dim(values, axis)
    if n ~= m and n ~= 1 and n >= 0 and m >= 0 and not (both_ways and m == 1)
    then
      return false
    end
  end
  return true
end

-- Values and weights in one rank. A last axis of size 1 too many is bridged;
-- fewer weights are those of whole examples or steps.
local function fitted(values, w, what)
  local rank = raw.tensor_rank(w)
  if rank == 0 or raw.tensor_rank(values) == 0 then
    return values, w
  end
  local v, weights = functions.same_rank(values, w)
  if raw.tensor_rank(weights) > raw.tensor_rank(v) then
    misfit(what, values, w)
  end
  weights = with_axes(weights, raw.tensor_rank(v))
  if not fit(v, weights) then
    misfit(what, values, w)
  end
  return v, weights
end

local function in_dtype(x, dtype, what)
  local w = convert.tensor(x, type(x) ~= "userdata" and dtype or nil, what,
    "sample_weight")
  return raw.tensor_dtype(w) == dtype and w or tf.cast(w, dtype)
end

--- The product of sample_weight and of other weights of the same examples: a
--- last axis of size 1 too many is bridged, fewer axes are those of whole examples
--- or steps.
--- Errors: InvalidArgument, which calls the other ones `other`.
---@param w tfdist.Tensor
---@param more tfdist.Tensor
---@param what string
---@param other string  "mask has"
function M.joined(w, more, what, other)
  if raw.tensor_rank(w) == 0 then
    return w * more
  end
  local a, b = functions.same_rank(w, more)
  local rank = math.max(raw.tensor_rank(a), raw.tensor_rank(b))
  a, b = with_axes(a, rank), with_axes(b, rank)
  if not fit(b, a, true) then
    misfit(what, more, w, other)
  end
  return a * b
end

--- sample_weight (or nil) where the mask (or nil) counts, 0 elsewhere.
function M.weight_of(sample_weight, mask, dtype, what)
  if mask == nil then
    return sample_weight
  end
  mask = tf.cast(mask, dtype)
  if sample_weight == nil then
    return mask
  end
  return M.joined(in_dtype(sample_weight, dtype, what), mask, what,
    "mask has")
end

--- Losses times weights: a number, one weight per example, or any shape that
--- broadcasts; a last axis of size 1 too many or missing is bridged. As second
--- value the weights as they were multiplied.
--- Errors: InvalidArgument when the shapes do not go together.
function M.weighted(values, sample_weight, what)
  if sample_weight == nil then
    return values, nil
  end
  local w = in_dtype(sample_weight, raw.tensor_dtype(values), what)
  values, w = fitted(values, w, what)
  return values * w, w
end

--- What a mean over values divides by: nil for their number.
local function divisor(reduction, values, mask, weight)
  if reduction == "mean_with_sample_weight" then
    return weight ~= nil and tf.reduce_sum(weight) or nil
  elseif mask == nil or reduction == "sum" or reduction == "none" then
    return nil
  end
  local valid = tf.reduce_sum(tf.cast(mask, raw.tensor_dtype(values)))
  -- An entry of the mask may stand for several values, or several for one.
  local each = raw.tensor_size(values) / math.max(1, raw.tensor_size(mask))
  return each == 1 and valid or valid * each
end

local function both(a, b)
  if a ~= nil and b ~= nil then
    return tf.logical_and(tf.cast(a, "bool"), tf.cast(b, "bool"))
  end
  return a or b
end

--- The losses of a call, weighed by sample_weight and by the masks of the
--- predictions and of the losses themselves; and what their mean divides by,
--- nil for their number.
---@param loss table
---@param values tfdist.Tensor  what loss:call gave
---@param y_pred any
---@param sample_weight any
function M.weigh(loss, values, y_pred, sample_weight)
  local mask = both(masks.of(y_pred), masks.of(values))
  local w
  values, w = M.weighted(values, M.weight_of(sample_weight, mask,
    raw.tensor_dtype(values), loss.name), loss.name)
  return values, divisor(loss.reduction, values, mask, w)
end

return M
