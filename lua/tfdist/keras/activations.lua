--- tf.keras.activations: elementwise functions (and softmax) by name.
--- Source: tf.keras.activations
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local logits = require "tfdist.keras.logits"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local names = {}   -- function -> name
local by_name = {} -- name -> function
local known = {}

local function define(name, signature, fn)
  local what = "activations." .. name:match("%S+")
  local f = options.wrap(what, signature, function(x, ...)
    if type(x) ~= "userdata" then
      x = convert.operand(x, nil, what, "x")
    end
    return fn(x, ...)
  end)
  names[f] = name:match("%S+")
  for alias in name:gmatch("%S+") do
    M[alias], by_name[alias] = f, f
    known[#known + 1] = alias
  end
end

define("linear", "x", function(x)
  return x
end)

--- max(x, 0), with a slope below threshold and a largest value.
define("relu", "x negative_slope=0 max_value=nil threshold=0",
  function(x, slope, max_value, threshold)
    if slope ~= 0 and max_value == nil and threshold == 0 then
      return tf.nn.leaky_relu(x, slope)
    end
    local y
    if threshold ~= 0 then
      y = tf.where(tf.greater(x, threshold), x, 0)
    elseif max_value == 6 then
      y = tf.nn.relu6(x)
    else
      y = tf.nn.relu(x)
    end
    if max_value ~= nil and (max_value ~= 6 or threshold ~= 0) then
      y = tf.clip_by_value(y, 0, max_value)
    end
    if slope ~= 0 then
      y = y - tf.nn.relu(threshold - x) * slope
    end
    return y
  end)

define("relu6", "x", function(x)
  return tf.nn.relu6(x)
end)

define("leaky_relu", "x negative_slope=0.2", function(x, slope)
  return tf.nn.leaky_relu(x, slope)
end)

define("elu", "x alpha=1", function(x, alpha)
  local y = tf.nn.elu(x)
  if alpha == 1 then
    return y
  end
  return tf.where(tf.greater(x, 0), y, y * alpha)
end)

define("selu", "x", function(x)
  return tf.nn.selu(x)
end)

define("gelu", "x approximate=false", function(x, approximate)
  return tf.nn.gelu(x, approximate)
end)

define("sigmoid", "x", function(x)
  return logits.keep(tf.sigmoid(x), x)
end)

--- x / 6 + 0.5 between 0 and 1
define("hard_sigmoid", "x", function(x)
  return tf.nn.relu6(x + 3) / 6
end)

define("tanh", "x", function(x)
  return tf.tanh(x)
end)

local function needs_axis(what, x)
  if #x.shape < 2 then
    errors.raise("ValueError", ("%s: cannot be applied to a tensor of rank %d "
      .. "%s; a batch axis is expected"):format(what, #x.shape,
      text.shape(x.shape)))
  end
end

define("softmax", "x axis=-1", function(x, axis)
  needs_axis("softmax", x)
  return logits.keep(tf.nn.softmax(x, axis), x)
end)

define("log_softmax", "x axis=-1", function(x, axis)
  needs_axis("log_softmax", x)
  return tf.nn.log_softmax(x, axis)
end)

define("softplus", "x", function(x)
  return tf.math.softplus(x)
end)

define("softsign", "x", function(x)
  return tf.nn.softsign(x)
end)

define("swish silu", "x", function(x)
  return tf.nn.silu(x)
end)

define("mish", "x", function(x)
  return x * tf.tanh(tf.math.softplus(x))
end)

define("exponential", "x", function(x)
  return tf.exp(x)
end)

--- The function a name means; nil is linear, functions and layers are returned
--- as they are.
--- Errors: ValueError for an unknown name, TypeError.
--- Source: tf.keras.activations.get
function M.get(identifier)
  if identifier == nil then
    return M.linear
  elseif text.is_callable(identifier) then
    return identifier
  elseif type(identifier) == "string" then
    local f = by_name[identifier] or by_name[identifier:lower()]
    if f == nil then
      errors.raise("ValueError", "unknown activation "
        .. text.quote(identifier), text.suggestion(identifier, known, "activation"))
    end
    return f
  end
  errors.raise("TypeError", "activations.get: expected a name or a function, "
    .. "got " .. text.describe(identifier))
end

M.deserialize = M.get

--- The name of a function of this module; other functions as they are.
--- Source: tf.keras.activations.serialize
function M.serialize(activation)
  return names[activation] or activation
end

options.functions(M, "activations.", {
  get = "identifier:nest=nil", deserialize = "identifier:nest=nil",
  serialize = "activation",
})

return M
