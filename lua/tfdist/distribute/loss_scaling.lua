--- tf.nn.compute_average_loss and tf.nn.scale_regularization_loss: losses that
--- add up to the global mean when they are summed over replicas.
local contexts = require "tfdist.distribute.contexts"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local function replicas()
  local mode = contexts.mode()
  return mode and mode.strategy.num_replicas_in_sync or 1
end

local function not_cross_replica(what, hint)
  if contexts.in_cross_replica_context() then
    errors.raise("RuntimeError", what .. ": You are calling it in cross "
      .. "replica context, while it was expected to be called in replica "
      .. "context", hint)
  end
end

local WHAT = "compute_average_loss"

local POSITIVE = WHAT .. ": global_batch_size must be positive"

-- The global batch size as a positive whole number; as the tensor that it is
-- where only a call of the traced function knows it, which then checks it.
local function batch_size(tf, x)
  if type(x) == "userdata" and raw.is_operand(x) then
    local t = raw.operand_tensor(x)
    if raw.tensor_rank(t) ~= 0 then
      errors.raise("ValueError", WHAT .. ": global_batch_size must be scalar")
    elseif not convert.INTEGER[raw.tensor_dtype(t)] then
      errors.raise("TypeError", WHAT .. ": global_batch_size must be a whole "
        .. "number, got a " .. raw.tensor_dtype(t) .. " tensor")
    elseif tracing.is_symbolic(t) then
      tf.debugging.assert_positive(t, POSITIVE)
      return t
    end
    x = raw.item(t)
  elseif type(x) == "table" then
    errors.raise("ValueError", WHAT .. ": global_batch_size must be scalar, "
      .. "got " .. text.describe(x))
  elseif type(x) ~= "number" or not text.is_whole(x) then
    errors.raise("TypeError", WHAT .. ": global_batch_size must be a whole "
      .. "number, got " .. (type(x) == "number" and text.number(x)
      or text.describe(x)))
  end
  if x <= 0 then
    errors.raise("InvalidArgument", POSITIVE .. ", got " .. text.number(x))
  end
  return x
end

local function weighted(tf, losses, weight)
  if weight == nil then
    return losses
  end
  local dtype = raw.tensor_dtype(losses)
  return losses * tf.cast(convert.tensor(weight, dtype, WHAT, "sample_weight"),
    dtype)
end

--- Put the functions into tf.nn.
function M.install(tf, def)
  --- Sum of the (weighted) losses by example divided by the global batch size,
  --- by default axis 0's size times the number of replicas; 0 where that is 0.
  --- Shapes: per_example_loss [n, ...], sample_weight broadcast to it; scalar.
  --- Errors: RuntimeError in cross-replica context without a size; ValueError,
  ---   TypeError, InvalidArgument for a bad size; ValueError for a scalar loss.
  --- Source: tf.nn.compute_average_loss
  def("nn.compute_average_loss", "per_example_loss sample_weight=nil "
    .. "global_batch_size=nil", function(loss, weight, size)
      local t = convert.tensor(loss, nil, WHAT, "per_example_loss")
      if raw.tensor_rank(t) == 0 then
        errors.raise("ValueError", WHAT .. ": per_example_loss must be at "
          .. "least rank 1, got a scalar", "losses need reduction = \"none\"")
      end
      if size == nil then
        not_cross_replica(WHAT, "pass global_batch_size")
        size = raw.tensor_dim(t, 0) * replicas()
      else
        size = batch_size(tf, size)
      end
      local sum = tf.reduce_sum(weighted(tf, t, weight))
      if type(size) == "userdata" then
        return sum / tf.cast(size, raw.tensor_dtype(sum))
      end
      -- A replica without data has the loss 0.
      return size > 0 and sum / size or sum
    end)

  --- Sum of a regularization loss divided by the number of replicas.
  --- Errors: RuntimeError in cross-replica context.
  --- Source: tf.nn.scale_regularization_loss
  def("nn.scale_regularization_loss", "regularization_loss", function(loss)
    not_cross_replica("scale_regularization_loss",
      "call it in the replica function")
    return tf.reduce_sum(convert.tensor(loss, nil, "scale_regularization_loss",
      "regularization_loss")) / replicas()
  end)
end

return M
