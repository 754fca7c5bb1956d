--- Conv1D, Conv2D, Conv3D, their transposes, DepthwiseConv2D, SeparableConv2D.
--- Source: tf.keras.layers, convolutional layers
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local add, axes, copy, size = support.add, support.axes, lists.copy,
  support.size

-- Channels of an input shape; they must be known.
local function channels_of(self, shape)
  local _, at = axes(self._own.format, self._own.spatial)
  local n = shape[at]
  if n == nil or n < 0 then
    errors.raise("ValueError", ("%s: the channels of the input %s are not "
      .. "known"):format(self.name, text.shape(shape)))
  end
  return n, at
end

local function largest(list)
  local most = list[1]
  for i = 2, #list do
    most = math.max(most, list[i])
  end
  return most
end

local function common_setup(self, config, spatial)
  local own = self._own
  own.spatial = spatial
  own.kernel_size = support.tuple(self, "kernel_size", config.kernel_size,
    spatial)
  own.strides = support.tuple(self, "strides", config.strides, spatial)
  own.dilations = support.tuple(self, "dilation_rate", config.dilation_rate,
    spatial)
  own.format, own.op_format = support.format(self, config.data_format, spatial)
  own.padding = support.padding(self, config.padding, spatial == 1)
  own.activation = support.activation(config.activation)
  if largest(own.strides) > 1 and largest(own.dilations) > 1 then
    errors.raise("ValueError", ("%s: strides %s and dilation_rate %s cannot "
      .. "both be larger than 1"):format(getmetatable(self).__name,
      text.shape(own.strides), text.shape(own.dilations)))
  end
  self.input_spec = { ndim = spatial + 2 }
end

local function finish(self, y)
  local own = self._own
  return support.finish(y, own.config.use_bias and self.bias or nil,
    own.activation, own.format == "channels_first" and "NCHW" or nil)
end

-- Zeros before the first step, as many as a causal filter reaches back.
local function pad_causal(self, x)
  local own = self._own
  local left = own.dilations[1] * (own.kernel_size[1] - 1)
  if own.format == "channels_first" then
    return tf.pad(x, { { 0, 0 }, { 0, 0 }, { left, 0 } })
  end
  return tf.pad(x, { { 0, 0 }, { left, 0 }, { 0, 0 } })
end

local function output_shape(self, shape, filters)
  local own = self._own
  local first, at = axes(own.format, own.spatial)
  local out = copy(shape)
  for i = 1, own.spatial do
    out[first + i - 1] = support.output_length(shape[first + i - 1],
      own.kernel_size[i], own.strides[i], own.padding, own.dilations[i])
  end
  out[at] = filters
  return out
end

-- Kernel and bias, and inputs of so many channels from now on.
local function add_weights(self, dims, channels, at)
  local own = self._own
  add(self, "kernel", dims)
  if own.config.use_bias then
    add(self, "bias", { own.config.filters })
  end
  self.input_spec = { ndim = own.spatial + 2, axes = { [at - 1] = channels } }
end

-- Convolution ----------------------------------------------------------------

local Conv = {}

function Conv.build(self, shape)
  local own, config = self._own, self._own.config
  local channels, at = channels_of(self, shape)
  if channels % config.groups ~= 0 then
    errors.raise("ValueError", ("%s: %d input channels cannot be shared out to "
      .. "%d groups"):format(self.name, channels, config.groups))
  end
  local dims = copy(own.kernel_size)
  dims[own.spatial + 1] = channels / config.groups
  dims[own.spatial + 2] = config.filters
  add_weights(self, dims, channels, at)
end

function Conv.call(self, x)
  local own = self._own
  local padding = own.padding
  if padding == "causal" then
    x, padding = pad_causal(self, x), "valid"
  end
  return finish(self, tf.nn.convolution(x, self.kernel, own.strides,
    padding:upper(), own.op_format, own.dilations))
end

function Conv.compute_output_shape(self, shape)
  return output_shape(self, shape, self._own.config.filters)
end

local CONV = "filters:i kernel_size:l strides=1 padding='valid' "
  .. "data_format=nil dilation_rate=1 groups=1 activation=nil use_bias=true "
  .. support.WEIGHTS

for spatial = 1, 3 do
  local name = ("Conv%dD"):format(spatial)
  --- Shapes: {batch, spatial..., channels} to {batch, spatial..., filters};
  ---   kernel {kernel_size..., channels / groups, filters}.
  M[name] = define.layer(name, CONV, {
    build = Conv.build, call = Conv.call,
    compute_output_shape = Conv.compute_output_shape,
    setup = function(self, config)
      common_setup(self, config, spatial)
      size(self, "filters", config.filters)
      size(self, "groups", config.groups)
      if config.filters % config.groups ~= 0 then
        errors.raise("ValueError", ("%s: %d filters cannot be shared out to %d "
          .. "groups"):format(name, config.filters, config.groups))
      end
    end,
  })
  M[("Convolution%dD"):format(spatial)] = M[name]
end

-- Transposed convolution -----------------------------------------------------

local Transpose = {}

function Transpose.build(self, shape)
  local own, config = self._own, self._own.config
  local channels, at = channels_of(self, shape)
  local dims = copy(own.kernel_size)
  dims[own.spatial + 1] = config.filters
  dims[own.spatial + 2] = channels
  add_weights(self, dims, channels, at)
end

function Transpose.compute_output_shape(self, shape)
  local own = self._own
  local first, at = axes(own.format, own.spatial)
  local out = copy(shape)
  for i = 1, own.spatial do
    out[first + i - 1] = support.transposed_length(shape[first + i - 1],
      own.kernel_size[i], own.strides[i], own.padding,
      own.output_padding and own.output_padding[i], own.dilations[i])
  end
  out[at] = own.config.filters
  return out
end

-- The op's "SAME" and "VALID" know lengths that a convolution of these strides
-- shrinks back to the input's; others are padded explicitly, as "SAME" pads the
-- convolution from the output to the input: the odd one goes behind.
local function transpose_padding(own)
  if own.output_padding == nil or own.padding == "valid" then
    return own.padding:upper()
  end
  local pairs_list = { { 0, 0 } }
  for i = 1, own.spatial do
    local reach = (own.kernel_size[i] - 1) * own.dilations[i] + 1
    local cut = math.max(2 * math.floor(reach / 2) - own.output_padding[i], 0)
    local before = math.floor(cut / 2)
    pairs_list[i + 1] = { before, cut - before }
  end
  if own.format == "channels_first" then
    table.insert(pairs_list, 2, { 0, 0 })
  else
    pairs_list[own.spatial + 2] = { 0, 0 }
  end
  return pairs_list
end

function Transpose.call(self, x)
  local own = self._own
  return finish(self, tf.nn.conv_transpose(x, self.kernel,
    Transpose.compute_output_shape(self, x.shape), own.strides,
    transpose_padding(own), own.op_format, own.dilations))
end

local TRANSPOSE = "filters:i kernel_size:l strides=1 padding='valid' "
  .. "output_padding=nil data_format=nil dilation_rate=1 activation=nil "
  .. "use_bias=true " .. support.WEIGHTS

for spatial = 1, 3 do
  local name = ("Conv%dDTranspose"):format(spatial)
  --- Shapes: kernel {kernel_size..., filters, channels}.
  M[name] = define.layer(name, TRANSPOSE, {
    build = Transpose.build, call = Transpose.call,
    compute_output_shape = Transpose.compute_output_shape,
    setup = function(self, config)
      common_setup(self, config, spatial)
      size(self, "filters", config.filters)
      local own = self._own
      if own.padding == "causal" then
        errors.raise("ValueError", name .. ": padding must be valid or same")
      elseif config.output_padding ~= nil then
        own.output_padding = support.tuple(self, "output_padding",
          config.output_padding, spatial, 0)
        for i = 1, spatial do
          if own.output_padding[i] >= own.strides[i] then
            errors.raise("ValueError", ("%s: output_padding %s must be smaller "
              .. "than strides %s"):format(name, text.shape(own.output_padding),
              text.shape(own.strides)))
          end
        end
      end
    end,
  })
  M[("Convolution%dDTranspose"):format(spatial)] = M[name]
end

-- Depthwise ------------------------------------------------------------------

local function depthwise_setup(self, config)
  common_setup(self, config, 2)
  size(self, "depth_multiplier", config.depth_multiplier)
end

local function depthwise(self, x)
  local own = self._own
  return tf.nn.depthwise_conv2d(x, self.depthwise_kernel, own.strides,
    own.padding:upper(), own.op_format, own.dilations)
end

local function add_depthwise(self, shape)
  local own = self._own
  local channels, at = channels_of(self, shape)
  add(self, "depthwise_kernel", { own.kernel_size[1], own.kernel_size[2],
    channels, own.config.depth_multiplier }, "depthwise")
  self.input_spec = { ndim = 4, axes = { [at - 1] = channels } }
  return channels * own.config.depth_multiplier
end

--- depth_multiplier filters for each channel on its own.
--- Source: tf.keras.layers.DepthwiseConv2D
M.DepthwiseConv2D = define.layer("DepthwiseConv2D", "kernel_size:l strides=1 "
  .. "padding='valid' depth_multiplier=1 data_format=nil dilation_rate=1 "
  .. "activation=nil use_bias=true depthwise_initializer='glorot_uniform' "
  .. "bias_initializer='zeros' depthwise_regularizer=nil "
  .. "bias_regularizer=nil activity_regularizer=nil "
  .. "depthwise_constraint=nil bias_constraint=nil", {
  setup = depthwise_setup,
  build = function(self, shape)
    local n = add_depthwise(self, shape)
    if self.use_bias then
      add(self, "bias", { n })
    end
  end,
  call = function(self, x)
    return finish(self, depthwise(self, x))
  end,
  compute_output_shape = function(self, shape)
    return output_shape(self, shape, channels_of(self, shape)
      * self.depth_multiplier)
  end,
})

--- A depthwise convolution, then one of 1x1 across channels.
--- Source: tf.keras.layers.SeparableConv2D
M.SeparableConv2D = define.layer("SeparableConv2D", "filters:i kernel_size:l "
  .. "strides=1 padding='valid' data_format=nil dilation_rate=1 "
  .. "depth_multiplier=1 activation=nil use_bias=true "
  .. "depthwise_initializer='glorot_uniform' "
  .. "pointwise_initializer='glorot_uniform' bias_initializer='zeros' "
  .. "depthwise_regularizer=nil pointwise_regularizer=nil "
  .. "bias_regularizer=nil activity_regularizer=nil "
  .. "depthwise_constraint=nil pointwise_constraint=nil bias_constraint=nil", {
  setup = function(self, config)
    depthwise_setup(self, config)
    size(self, "filters", config.filters)
  end,
  build = function(self, shape)
    local n = add_depthwise(self, shape)
    add(self, "pointwise_kernel", { 1, 1, n, self.filters }, "pointwise")
    if self.use_bias then
      add(self, "bias", { self.filters })
    end
  end,
  call = function(self, x)
    return finish(self, tf.nn.conv2d(depthwise(self, x), self.pointwise_kernel,
      1, "VALID", self._own.op_format))
  end,
  compute_output_shape = function(self, shape)
    return output_shape(self, shape, self.filters)
  end,
})
M.SeparableConvolution2D = M.SeparableConv2D

-- One axis is an image of height 1.
local function separable_1d(self, x)
  local own = self._own
  local first = own.format == "channels_first"
  local at = first and 2 or 1
  if own.padding == "causal" then
    x = pad_causal(self, x)
  end
  local y = tf.nn.separable_conv2d(tf.expand_dims(x, at),
    tf.expand_dims(self.depthwise_kernel, 0),
    tf.expand_dims(self.pointwise_kernel, 0),
    { own.strides[1], own.strides[1] },
    own.padding == "causal" and "VALID" or own.padding:upper(),
    first and "NCHW" or "NHWC", { 1, own.dilations[1] })
  return finish(self, tf.squeeze(y, { at }))
end

--- SeparableConv2D over one axis. Source: tf.keras.layers.SeparableConv1D
M.SeparableConv1D = define.layer("SeparableConv1D", "filters:i kernel_size:l "
  .. "strides=1 padding='valid' data_format=nil dilation_rate=1 "
  .. "depth_multiplier=1 activation=nil use_bias=true "
  .. "depthwise_initializer='glorot_uniform' "
  .. "pointwise_initializer='glorot_uniform' bias_initializer='zeros' "
  .. "depthwise_regularizer=nil pointwise_regularizer=nil "
  .. "bias_regularizer=nil activity_regularizer=nil "
  .. "depthwise_constraint=nil pointwise_constraint=nil bias_constraint=nil", {
  setup = function(self, config)
    common_setup(self, config, 1)
    size(self, "filters", config.filters)
    size(self, "depth_multiplier", config.depth_multiplier)
  end,
  build = function(self, shape)
    local channels, at = channels_of(self, shape)
    add(self, "depthwise_kernel", { self._own.kernel_size[1], channels,
      self.depth_multiplier }, "depthwise")
    add(self, "pointwise_kernel", { 1, channels * self.depth_multiplier,
      self.filters }, "pointwise")
    if self.use_bias then
      add(self, "bias", { self.filters })
    end
    self.input_spec = { ndim = 3, axes = { [at - 1] = channels } }
  end,
  call = separable_1d,
  compute_output_shape = function(self, shape)
    return output_shape(self, shape, self.filters)
  end,
})
M.SeparableConvolution1D = M.SeparableConv1D

return M
