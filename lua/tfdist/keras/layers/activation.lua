--- Activations that are layers: ReLU, LeakyReLU, PReLU, ELU, ThresholdedReLU,
--- Softmax.
local activations = require "tfdist.keras.activations"
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local logits = require "tfdist.keras.logits"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

-- Numbers that must not be negative (or nil).
local function not_negative(...)
  local names = { ... }
  return function(self, config)
    for _, name in ipairs(names) do
      local x = config[name]
      if x ~= nil and (type(x) ~= "number" or x < 0) then
        errors.raise("ValueError", ("%s: %s must be a number from 0, got %s")
          :format(getmetatable(self).__name, name, text.describe(x)))
      end
    end
  end
end

local function elementwise(name, signature, fields)
  M[name] = define.elementwise(name, signature, fields)
end

--- Source: tf.keras.layers.ReLU
elementwise("ReLU", "max_value=nil negative_slope=0 threshold=0", {
  setup = not_negative("max_value", "negative_slope", "threshold"),
  call = function(self, x)
    return activations.relu(x, self.negative_slope, self.max_value,
      self.threshold)
  end,
})

--- Source: tf.keras.layers.LeakyReLU
elementwise("LeakyReLU", "negative_slope=0.3", {
  setup = not_negative("negative_slope"),
  call = function(self, x)
    return tf.nn.leaky_relu(x, self.negative_slope)
  end,
})

--- A slope below 0 for each position, learned; shared along shared_axes.
--- Source: tf.keras.layers.PReLU
elementwise("PReLU", "alpha_initializer='zeros' alpha_regularizer=nil "
  .. "alpha_constraint=nil shared_axes=nil", {
  build = function(self, shape)
    local dims = lists.copy(shape, 2)
    if self.shared_axes ~= nil then
      for _, axis in ipairs(convert.integers(self.shared_axes, "PReLU",
        "shared_axes")) do
        dims[axis] = 1
      end
    end
    support.add(self, "alpha", dims)
  end,
  call = function(self, x)
    return tf.nn.relu(x) - self.alpha * tf.nn.relu(-x)
  end,
})

--- Source: tf.keras.layers.ELU
elementwise("ELU", "alpha=1", {
  setup = not_negative("alpha"),
  call = function(self, x)
    return activations.elu(x, self.alpha)
  end,
})

--- x where it is larger than theta, else 0.
--- Source: tf.keras.layers.ThresholdedReLU
elementwise("ThresholdedReLU", "theta=1", {
  setup = not_negative("theta"),
  call = function(self, x)
    return x * tf.cast(tf.greater(x, self.theta), x.dtype)
  end,
})

local function softmax(x, axis)
  if type(axis) ~= "table" then
    return logits.keep(tf.nn.softmax(x, axis), x)
  elseif #axis == 1 then
    return logits.keep(tf.nn.softmax(x, axis[1]), x)
  end
  return tf.exp(x - tf.reduce_logsumexp(x, { axis = axis, keepdims = true }))
end

--- Softmax over an axis or several; positions whose mask is false get 0.
--- Source: tf.keras.layers.Softmax
elementwise("Softmax", "axis=-1", {
  call = function(self, x, options)
    local mask = options.mask
    if mask == nil then
      return softmax(x, self.axis)
    end
    mask = mask.dtype == "bool" and mask or tf.greater(mask, 0.5)
    local y = softmax(tf.where(mask, x, tf.constant(
      x.dtype == "float16" and -65504 or -1e9, x.dtype)), self.axis)
    return tf.where(mask, y, tf.zeros_like(y))
  end,
})

return M
