--- What several layer classes need: sizes for each axis, output lengths,
--- weights by their configuration.
local activations = require "tfdist.keras.activations"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local keras_tensor = require "tfdist.keras.layers.keras_tensor"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

--- x, which a function of the user's returned and must be a tensor.
--- Errors: TypeError.
---@param what string  "an activation function"
---@param x any
function M.returned(what, x)
  if type(x) == "userdata" and raw.is_operand(x) then
    return x
  end
  errors.raise("TypeError", ("%s must return a tensor, got %s"):format(what,
    x == nil and "nothing" or text.describe(x)))
end

--- A layer's list of inputs, which must all be tensors or KerasTensors: once
--- shapes stand for them, others have none or those of what is in them.
--- Errors: TypeError.
function M.check_tensors(self, inputs)
  for i = 1, #inputs do
    local x = inputs[i]
    local good = keras_tensor.is_symbolic(x)
    if type(x) == "userdata" then
      good = raw.is_operand(x) or raw.kind(x) == "slices"
    end
    if not good then
      errors.raise("TypeError", ("%s: input %d must be a tensor, got %s")
        :format(self.name, i, text.describe(x)))
    end
  end
  return inputs
end

--- Raise a ValueError about a size that has to be known and is not: who can wait
--- for it looks at `asks_for_size`.
---@param message string
---@param hint? string
function M.ask_for_size(message, hint)
  local e = errors.new("ValueError", message, hint)
  e.asks_for_size = true
  error(e, 0)
end

local ceil, floor = math.ceil, math.floor

--- The arguments of a kernel and a bias, in Keras' order.
M.WEIGHTS = "kernel_initializer='glorot_uniform' bias_initializer='zeros' "
  .. "kernel_regularizer=nil bias_regularizer=nil activity_regularizer=nil "
  .. "kernel_constraint=nil bias_constraint=nil"

--- n whole numbers from a number or a list of n.
--- Errors: ValueError, TypeError.
---@param self table    layer
---@param name string   argument
---@param x any
---@param n integer
---@param lowest? integer
function M.tuple(self, name, x, n, lowest)
  local what = getmetatable(self).__name
  local list = convert.integers(x, what, name)
  if type(x) == "number" then
    for i = 2, n do
      list[i] = x
    end
  end
  if #list ~= n then
    errors.raise("ValueError", ("%s: %s must be a number or a list of %d, got "
      .. "%s"):format(what, name, n, text.shape(list)))
  end
  for i = 1, n do
    if list[i] < (lowest or 1) then
      errors.raise("ValueError", ("%s: %s must be at least %d, got %s"):format(
        what, name, lowest or 1, text.shape(list)))
    end
  end
  return list
end

--- A size such as units or filters. Errors: TypeError, ValueError.
function M.size(self, name, x)
  return options.integer(getmetatable(self).__name, name, x, 1)
end

--- A rate in 0 .. 1, 1 excluded.
function M.rate(self, name, x)
  local what = getmetatable(self).__name
  if type(x) ~= "number" then
    errors.raise("TypeError", ("%s: %s must be a number, got %s"):format(what,
      name, text.describe(x)))
  elseif not (x >= 0 and x < 1) then
    errors.raise("ValueError", ("%s: %s must be in [0, 1), got %s"):format(what,
      name, text.number(x)))
  end
  return x
end

local FORMATS = { "channels_last", "channels_first" }
local LETTERS = { "W", "HW", "DHW" }

--- "channels_last" or "channels_first", and the op's name for n axes ("NHWC").
function M.format(self, x, n)
  local format = options.choice(getmetatable(self).__name, "data_format",
    x or "channels_last", FORMATS)
  if format == "channels_first" then
    return format, "NC" .. LETTERS[n]
  end
  return format, "N" .. LETTERS[n] .. "C"
end

--- Padding as listed, in lower case.
function M.padding(self, x, causal)
  local choices = { "valid", "same" }
  if causal then
    choices[3] = "causal"
  end
  return options.choice(getmetatable(self).__name, "padding", x, choices)
end

--- The activation function, nil for linear. Results of users' functions are
--- checked: one without return would be no activation at all.
function M.activation(x)
  local f = activations.get(x)
  if f == activations.linear then
    return nil
  elseif f == tf.nn.relu then
    return activations.relu
  elseif type(f) ~= "function" or activations.serialize(f) ~= f then
    return f
  end
  return function(y)
    return M.returned("an activation function", f(y))
  end
end

--- The same for gates inside a layer, whose results no loss meets.
function M.gate(x)
  local f = M.activation(x)
  return f == activations.sigmoid and tf.sigmoid or f
end

--- The end of many layers: activation(y + bias).
---@param y tensor
---@param bias? tensor  one for each channel
---@param activation? function  what M.activation returned
---@param data_format? "NCHW"  channels are axis 1, not the last one
function M.finish(y, bias, activation, data_format)
  if bias == nil then
    return activation and activation(y) or y
  elseif activation == activations.relu then
    return tf.raw_ops.bias_add_relu(y, bias, data_format)
  end
  y = tf.nn.bias_add(y, bias, data_format)
  return activation and activation(y) or y
end

--- Steps that a window makes; -1 stays open.
---@param n integer
---@param k integer  window
---@param s integer  stride
---@param padding string
---@param d? integer  dilation
function M.output_length(n, k, s, padding, d)
  if n < 0 then
    return -1
  elseif padding ~= "valid" then
    return ceil(n / s)
  end
  local reach = (k - 1) * (d or 1) + 1
  return math.max(0, floor((n - reach) / s) + 1)
end

--- The same for transposed convolution.
function M.transposed_length(n, k, s, padding, extra, d)
  if n < 0 then
    return -1
  end
  local reach = (k - 1) * (d or 1) + 1
  if extra == nil then
    return padding == "same" and n * s or n * s + math.max(reach - s, 0)
  end
  local cut = padding == "same" and floor(reach / 2) or 0
  return (n - 1) * s + reach - 2 * cut + extra
end

--- Make the weight `name` with its initializer, regularizer and constraint of
--- the configuration, and keep it in the field of that name.
---@param self table
---@param name string
---@param shape integer[]
---@param kind? string       the configuration's name of it
---@param autocast? boolean  false: the call takes it as it is
function M.add(self, name, shape, kind, autocast)
  local own = rawget(self, "_own")
  local config = own.config
  if not convert.FLOATING[own.dtype] then
    errors.raise("TypeError", ("%s: dtype is %s; weights need a "
      .. "floating-point dtype"):format(self.name, own.dtype))
  end
  kind = kind or name
  self[name] = self:add_weight {
    name = name, shape = shape, initializer = config[kind .. "_initializer"],
    regularizer = config[kind .. "_regularizer"],
    constraint = config[kind .. "_constraint"], autocast = autocast,
  }
  return self[name]
end

--- A list without the batch, spatial sizes only: positions of the first of n
--- spatial axes and of the channels in a shape (from 1).
function M.axes(format, n)
  if format == "channels_first" then
    return 3, 2
  end
  return 2, n + 2
end

--- compute_output_shape of layers that keep the shape, or a structure of them.
function M.same_shape(self, shape)
  local out = lists.copy(shape)
  for key, value in pairs(shape) do
    out[key] = type(value) == "table" and M.same_shape(self, value) or value
  end
  return out
end

--- Product of known sizes from `first` to `last`; -1 when one is open.
function M.product(dims, first, last)
  local n = 1
  for i = first, last do
    if dims[i] < 0 then
      return -1
    end
    n = n * dims[i]
  end
  return n
end

return M
