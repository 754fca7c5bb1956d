--- Names of reductions and running sums, and functions made of them.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

M.functions = {
  argmax = "argmax math.argmax", argmin = "argmin math.argmin",
  cumsum = "cumsum math.cumsum", cumprod = "math.cumprod",
  cumulative_logsumexp = "math.cumulative_logsumexp",
  count_nonzero = "math.count_nonzero",
  reduce_variance = "math.reduce_variance", reduce_std = "math.reduce_std",
  reduce_euclidean_norm = "math.reduce_euclidean_norm",
}

for name in ("sum mean prod max min any all logsumexp"):gmatch "%S+" do
  M.functions["reduce_" .. name] = ("reduce_%s math.reduce_%s"):format(name,
    name)
end

M.methods = {
  reduce_sum = "sum reduce_sum", reduce_mean = "mean reduce_mean",
  reduce_prod = "prod reduce_prod", reduce_max = "max reduce_max",
  reduce_min = "min reduce_min", reduce_any = "any reduce_any",
  reduce_all = "all reduce_all", reduce_std = "std",
  reduce_variance = "var variance", reduce_logsumexp = "logsumexp",
  argmax = "argmax", argmin = "argmin", cumsum = "cumsum",
  cumprod = "cumprod", count_nonzero = "count_nonzero",
}

local function fail(kind, message, ...)
  errors.raise(kind, text.format(message, ...))
end

local whole = convert.whole_operand

local function size_of(t)
  return raw.tensor_size(raw.operand_tensor(t))
end

-- What tells the number of bins instead of the values.
local INSTEAD = { bincount = "give minlength and maxlength alike",
  confusion_matrix = "give num_classes" }

-- Bins for the numbers in t. Blocks: until t is computed.
local function bins_for(ops, what, name, t, minlength, maxlength)
  local size = 0
  if maxlength and minlength and maxlength <= minlength then
    return maxlength
  elseif size_of(t) > 0 then
    tracing.need_values(what, name, raw.operand_tensor(t), INSTEAD[what])
    size = ops.reduce_max(t):item() + 1
  end
  size = math.max(size, minlength or 0)
  return maxlength and math.min(size, maxlength) or size
end

-- The number of classes, which are looked at: at each call where only that
-- knows them. Blocks: until both are computed.
local function classes_of(tf, labels, predictions, n)
  local ops, what, found = tf.raw_ops, "confusion_matrix", 0
  n = convert.integer(n, what, "num_classes", 0, 2 ^ 26)
  for i, t in ipairs { labels, predictions } do
    local name = i == 1 and "labels" or "predictions"
    if n and tracing.is_symbolic(t) then
      local hold = what .. ": " .. name .. " hold a"
      tf.debugging.assert_non_negative(t, hold .. " negative class")
      tf.debugging.assert_less(t, n, hold .. " class that num_classes lacks")
    else
      found = math.max(found, bins_for(ops, what, name, t))
      if size_of(t) > 0 and ops.reduce_min(t):item() < 0 then
        tracing.refuse_values("InvalidArgument",
          ("%s: %s hold a negative class"):format(what, name))
      end
    end
  end
  if n and found > n then
    tracing.refuse_values("InvalidArgument", ("confusion_matrix: found class "
      .. "%s; expected 0 to %d (num_classes is %d)"):format(
      text.number(found - 1), n - 1, n))
  end
  return n or found
end

local function define_bincount(tf, def)
  local ops = tf.raw_ops

  --- How often each number occurs, or the sum of its weights: a tensor of as
  --- many bins as the largest number asks for, at least minlength and at most
  --- maxlength. axis = -1 counts each row of a matrix by itself.
  --- Errors: InvalidArgument for negative numbers. Blocks: until arr is
  --- computed. Source: tf.math.bincount
  def("math.bincount", "arr weights=nil minlength=nil maxlength=nil "
    .. "dtype='int32' name=nil axis=nil binary_output=false",
    function(arr, weights, minlength, maxlength, dtype, _, axis, binary)
      local t, from = whole(arr, "bincount", "arr")
      if axis ~= nil and axis ~= 0 and axis ~= -1 then
        fail("ValueError", "bincount: axis is %s; expected 0, -1 or nil",
          text.describe(axis))
      elseif weights ~= nil and binary then
        fail("InvalidArgument",
          "bincount: binary_output and weights exclude each other")
      end
      minlength = convert.integer(minlength, "bincount", "minlength", 0)
      maxlength = convert.integer(maxlength, "bincount", "maxlength", 0)
      if from ~= "int32" and from ~= "int64" then
        t = ops.cast(t, "int32")
      end
      local size = bins_for(ops, "bincount", "arr", t, minlength,
        maxlength)
      local by_row = axis == -1 and raw.tensor_rank(raw.operand_tensor(t)) > 1
      return ops.bincount(t, weights, size, dtype, binary, by_row)
    end)

  --- Counts {classes, classes}: row = label, column = prediction.
  --- Errors: InvalidArgument for values outside 0 .. num_classes-1.
  --- Blocks: until both are computed. Source: tf.math.confusion_matrix
  def("math.confusion_matrix", "labels predictions num_classes=nil "
    .. "weights=nil dtype='int32' name=nil",
    function(labels, predictions, num_classes, weights, dtype)
      local a = ops.cast(whole(labels, "confusion_matrix", "labels"), "int64")
      local b = ops.cast(whole(predictions, "confusion_matrix",
        "predictions"), "int64")
      local n = classes_of(tf, a, b, num_classes)
      local counts = ops.bincount(a * n + b, weights, n * n, dtype)
      return tf.reshape(ops.cast(counts, dtype), { n, n })
    end)
end

--- Define the composites.
function M.define(tf, def)
  define_bincount(tf, def)
end

return M
