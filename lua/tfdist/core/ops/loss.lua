--- Names of softmax, cross-entropies, activations and dropout.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

M.functions = {
  relu = "nn.relu",
  relu6 = "nn.relu6",
  leaky_relu = "nn.leaky_relu",
  selu = "nn.selu",
  softsign = "nn.softsign math.softsign",
}

M.methods = {
  relu = "relu",
}

--- Axes -------------------------------------------------------------------------

--- Order of axes that exchanges `axis` and the last one; nil if it is the last.
local function swap(what, x, axis)
  local rank = raw.tensor_rank(raw.operand_tensor(x))
  local at = options.integer(what, "axis", axis)
  if at < 0 then
    at = at + rank
  end
  if at < 0 or at >= rank then
    errors.raise("ValueError", text.format("%s: axis %d is outside a tensor of "
      .. "rank %d %s; axes count from 0, -1 is the last", what, axis, rank,
      text.shape(x.shape)))
  end
  if at == rank - 1 then
    return nil
  end
  local perm = {}
  for i = 1, rank do
    perm[i] = i - 1
  end
  perm[at + 1], perm[rank] = rank - 1, at
  return perm
end

--- fn over the last axis, applied over `axis`.
local function over_axis(tf, what, fn, x, axis)
  if raw.kind(x) ~= "tensor" then
    x = tf.convert_to_tensor(x)
  end
  local perm = swap(what, x, axis)
  if perm == nil then
    return fn(x)
  end
  return tf.transpose(fn(tf.transpose(x, perm)), perm)
end

local function define_softmax(tf, def)
  def("nn.softmax math.softmax", "logits axis=-1 name=nil",
    function(logits, axis)
      return over_axis(tf, "softmax", tf.raw_ops.softmax, logits, axis)
    end, "softmax")
  def("nn.log_softmax math.log_softmax", "logits axis=-1 name=nil",
    function(logits, axis)
      return over_axis(tf, "log_softmax", tf.raw_ops.log_softmax, logits, axis)
    end, "log_softmax")
end

--- Cross-entropies --------------------------------------------------------------

local INDEX = { int32 = true, int64 = true }

--- Labels as the op takes them; other whole-number dtypes are widened.
local function label_tensor(tf, labels, what)
  local t = convert.index_operand(labels, what, "labels")
  local dtype = raw.tensor_dtype(raw.operand_tensor(t))
  if convert.INTEGER[dtype] and not INDEX[dtype] then
    return tf.cast(t, "int32")
  end
  return t
end

local function define_cross_entropies(tf, def)
  def("nn.sparse_softmax_cross_entropy_with_logits",
    "labels logits name=nil", function(labels, logits)
      return tf.raw_ops.sparse_softmax_cross_entropy(
        label_tensor(tf, labels, "sparse_softmax_cross_entropy_with_logits"),
        logits)
    end)
  def("nn.softmax_cross_entropy_with_logits",
    "labels logits axis=-1 name=nil", function(labels, logits, axis)
      logits = tf.convert_to_tensor(logits)
      labels = tf.convert_to_tensor(labels, logits.dtype)
      local perm = swap("softmax_cross_entropy_with_logits", logits, axis)
      if perm ~= nil then
        labels, logits = tf.transpose(labels, perm), tf.transpose(logits, perm)
      end
      return tf.raw_ops.softmax_cross_entropy(labels, logits)
    end)
  -- z log(1/p) + (1 - z) log(1/(1-p)) without cancellation on either side.
  local function weighted(labels, logits, weight)
    logits = tf.convert_to_tensor(logits)
    labels = tf.convert_to_tensor(labels, logits.dtype)
    local positive = labels * tf.math.softplus(-logits)
    if weight ~= nil then
      positive = positive * weight
    end
    return positive + (1 - labels) * tf.math.softplus(logits)
  end
  def("nn.sigmoid_cross_entropy_with_logits", "labels logits name=nil",
    function(labels, logits)
      return weighted(labels, logits)
    end)
  def("nn.weighted_cross_entropy_with_logits",
    "labels logits pos_weight name=nil", weighted)
end

--- Activations ------------------------------------------------------------------

local function define_activations(tf, def)
  def("nn.elu", "features name=nil", function(features)
    return tf.raw_ops.elu(features)
  end)
  def("nn.gelu", "features approximate=false name=nil",
    function(features, approximate)
      if approximate then
        return tf.raw_ops.gelu_tanh(features)
      end
      return tf.raw_ops.gelu(features)
    end)
  def("nn.silu nn.swish", "features beta=1 name=nil", function(features, beta)
    if beta == 1 then
      return tf.raw_ops.swish(features)
    end
    features = tf.convert_to_tensor(features)
    return features * tf.sigmoid(features * beta)
  end)
  def("nn.crelu", "features axis=-1 name=nil", function(features, axis)
    features = tf.convert_to_tensor(features)
    return tf.nn.relu(tf.concat({ features, -features }, axis))
  end)
end

--- Dropout and small helpers ------------------------------------------------------

local function drop(x, rate, seed)
  local a, b, c, d = random_seed.next("nn.dropout", seed)
  return (raw.op_run(raw.op_find "dropout", { x }, { a, b, c, d }, { rate }))
end

local function define_dropout(tf, def)
  def("nn.dropout", "x rate noise_shape=nil seed=nil name=nil",
    function(x, rate, noise_shape, seed)
      x = tf.convert_to_tensor(x)
      rate = convert.number(rate, "dropout", "rate")
      if rate == 0 then
        return x
      elseif noise_shape == nil then
        return drop(x, rate, seed)
      end
      -- Axes of size 1 in noise_shape are kept or dropped as one.
      local dims = convert.integers(noise_shape, "dropout", "noise_shape")
      for i = 1, #dims do
        if dims[i] == -1 then
          dims[i] = x.shape[i]
        end
      end
      return x * drop(tf.ones(dims, x.dtype), rate, seed)
    end)
  def("nn.l2_loss", "t name=nil", function(t)
    return tf.reduce_sum(tf.square(t)) / 2
  end)
  def("nn.embedding_lookup", "params ids max_norm=nil name=nil",
    function(params, ids, max_norm)
      local rows = tf.gather(params, ids)
      if max_norm == nil then
        return rows
      end
      local axes = {}
      local first = #rows.shape - #tf.convert_to_tensor(params).shape + 1
      for axis = first, #rows.shape - 1 do
        axes[#axes + 1] = axis
      end
      return tf.clip_by_norm(rows, max_norm, axes)
    end)
end

--- Called by the op loader.
---@param tf table
---@param def fun(paths:string, signature:string, fn:function, methods?:string)
function M.define(tf, def)
  define_softmax(tf, def)
  define_cross_entropies(tf, def)
  define_activations(tf, def)
  define_dropout(tf, def)
end

return M
