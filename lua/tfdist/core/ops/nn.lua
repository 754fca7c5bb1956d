--- Names of products, convolution, pooling, normalisation and recurrence, and
--- the functions that are made of them.
---
--- The ops keep padding as a name plus a list of numbers; the functions here
--- take TensorFlow's forms: "VALID", "SAME", or a pair for each axis.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

M.functions = {
  matmul = "matmul linalg.matmul",
  bias_add = "nn.bias_add",
}

M.methods = {
  matmul = "matmul",
}

local LAST = { [3] = "NWC", [4] = "NHWC", [5] = "NDHWC" }

local function fail(kind, message, ...)
  errors.raise(kind, text.format(message, ...))
end

--- Arguments ------------------------------------------------------------------

-- The tensor an argument means, for its rank and sizes.
local function tensor_of(what, name, x)
  return raw.is_operand(x) and x or convert.tensor(x, nil, what, name)
end

local function default_format(what, name, x)
  local format = LAST[#x.shape]
  if format == nil then
    fail("InvalidArgument", "%s: %s has shape %s; expected batch, channels and "
      .. "1 to 3 spatial axes", what, name, text.shape(x.shape))
  end
  return format
end

local function channels_first(what, format)
  if type(format) ~= "string" then
    fail("TypeError", "%s: data_format must be a string, got %s", what,
      text.describe(format))
  end
  return format:upper():sub(2, 2) == "C"
end

-- padding = { {0,0}, {1,1}, {2,2}, {0,0} } in the order of data_format's axes
-- becomes "EXPLICIT" and { 1, 1, 2, 2 }.
local function split_padding(what, padding, format)
  if type(padding) ~= "table" then
    return padding, nil
  end
  local first = channels_first(what, format) and 3 or 2
  local rank = #format
  if #padding ~= rank then
    fail("ValueError", "%s: padding lists %d pairs; expected %d, one for each "
      .. "axis", what, #padding, rank)
  end
  local list = {}
  for i = 1, rank do
    local pair = convert.integers(padding[i], what, "padding")
    if #pair ~= 2 then
      fail("ValueError", "%s: padding of axis %d has %d numbers; expected a "
        .. "pair", what, i - 1, #pair)
    end
    if i >= first and i < first + rank - 2 then
      list[#list + 1] = pair[1]
      list[#list + 1] = pair[2]
    elseif pair[1] ~= 0 or pair[2] ~= 0 then
      fail("ValueError", "%s: padding of axis %d is %d and %d; batch and "
        .. "channels cannot be padded", what, i - 1, pair[1], pair[2])
    end
  end
  return "EXPLICIT", list
end

--- Convolution ----------------------------------------------------------------

local function define_convolution(def, ops)
  local function convolve(what, op, input, filters, strides, padding, format,
      dilations)
    local explicit
    padding, explicit = split_padding(what, padding, format)
    return op(input, filters, strides, padding, format, dilations, explicit)
  end

  --- Convolution over one axis.
  --- Shapes: input {n, width, in}, filters {width, in, out}.
  --- Errors: InvalidArgument, ValueError. Source: tf.nn.conv1d
  def("nn.conv1d", "input filters stride padding data_format='NWC' "
    .. "dilations=nil name=nil", function(...)
    return convolve("conv1d", ops.conv1d, ...)
  end)

  --- Convolution over height and width; filters of fewer input channels than
  --- the input make groups.
  --- Shapes: input {n, height, width, in}, filters {height, width, in, out}.
  --- Source: tf.nn.conv2d
  def("nn.conv2d", "input filters strides padding data_format='NHWC' "
    .. "dilations=nil name=nil", function(...)
    return convolve("conv2d", ops.conv2d, ...)
  end)

  --- Convolution over depth, height and width.
  --- Shapes: input {n, d, h, w, in}, filters {d, h, w, in, out}.
  --- Source: tf.nn.conv3d
  def("nn.conv3d", "input filters strides padding data_format='NDHWC' "
    .. "dilations=nil name=nil", function(...)
    return convolve("conv3d", ops.conv3d, ...)
  end)

  --- Convolution over as many axes as the input has.
  --- Source: tf.nn.convolution
  def("nn.convolution", "input filters strides=nil padding='VALID' "
    .. "data_format=nil dilations=nil name=nil",
    function(input, filters, strides, padding, format, dilations)
      input = tensor_of("convolution", "input", input)
      format = format or default_format("convolution", "input", input)
      return convolve("convolution", ops.convolution, input, filters,
        strides or 1, padding, format, dilations)
    end)

  --- Convolution with holes of rate - 1 in the filter.
  --- Source: tf.nn.atrous_conv2d
  def("nn.atrous_conv2d", "value filters rate padding name=nil",
    function(value, filters, rate, padding)
      return convolve("atrous_conv2d", ops.conv2d, value, filters, 1, padding,
        "NHWC", rate)
    end)
end

local function define_transposed(def, ops)
  local function transpose(what, input, filters, output_shape, strides,
      padding, format, dilations)
    local explicit
    input = tensor_of(what, "input", input)
    format = format or default_format(what, "input", input)
    padding, explicit = split_padding(what, padding, format)
    return ops.conv_backprop_input(filters, input, strides, padding, format,
      dilations, explicit, convert.integers(output_shape, what,
        "output_shape"))
  end

  --- Transposed convolution, the gradient of conv2d for its input.
  --- Shapes: input {n, height, width, in}, filters {height, width, out, in};
  ---   output_shape {n, height, width, out}.
  --- Source: tf.nn.conv2d_transpose
  def("nn.conv2d_transpose", "input filters output_shape strides "
    .. "padding='SAME' data_format='NHWC' dilations=nil name=nil",
    function(...)
      return transpose("conv2d_transpose", ...)
    end)

  --- Transposed convolution over one axis. Source: tf.nn.conv1d_transpose
  def("nn.conv1d_transpose", "input filters output_shape strides "
    .. "padding='SAME' data_format='NWC' dilations=nil name=nil",
    function(...)
      return transpose("conv1d_transpose", ...)
    end)

  --- Transposed convolution over three axes. Source: tf.nn.conv3d_transpose
  def("nn.conv3d_transpose", "input filters output_shape strides "
    .. "padding='SAME' data_format='NDHWC' dilations=nil name=nil",
    function(...)
      return transpose("conv3d_transpose", ...)
    end)

  --- Transposed convolution over as many axes as the input has.
  --- Source: tf.nn.conv_transpose
  def("nn.conv_transpose", "input filters output_shape strides "
    .. "padding='SAME' data_format=nil dilations=nil name=nil",
    function(...)
      return transpose("conv_transpose", ...)
    end)
end

-- Depthwise filters {h, w, c, m} lie in memory like {h, w, 1, c * m}, the
-- filters of a convolution in c groups.
local function grouped(tf, what, filter)
  filter = tensor_of(what, "filter", filter)
  local d = filter.shape
  if #d ~= 4 then
    fail("InvalidArgument", "%s: filter has rank %d %s; expected 4 (height, "
      .. "width, channels, multiplier)", what, #d, text.shape(d))
  end
  return tf.reshape(filter, { d[1], d[2], 1, d[3] * d[4] }), d[3]
end

local function check_channels(what, input, channels, format)
  local d = input.shape
  local have = d[channels_first(what, format) and 2 or #d]
  if #d ~= 4 or have ~= channels then
    fail("InvalidArgument", "%s: input is %s and filter has %d channels; "
      .. "expected rank 4 and equal channels", what, text.shape(d), channels)
  end
end

local function define_depthwise(tf, def)
  local ops = tf.raw_ops

  local function depthwise(what, input, filter, strides, padding, format,
      dilations)
    local flat, channels = grouped(tf, what, filter)
    local explicit
    format = format or "NHWC"
    input = tensor_of(what, "input", input)
    check_channels(what, input, channels, format)
    padding, explicit = split_padding(what, padding, format)
    return ops.conv2d(input, flat, strides, padding, format, dilations,
      explicit)
  end

  --- One or more filters for each channel on its own.
  --- Shapes: input {n, h, w, c}, filter {h, w, c, m}; result {n, h, w, c * m}.
  --- Source: tf.nn.depthwise_conv2d
  def("nn.depthwise_conv2d", "input filter strides padding data_format=nil "
    .. "dilations=nil name=nil", function(...)
    return depthwise("depthwise_conv2d", ...)
  end)

  --- Depthwise convolution, then a 1x1 convolution across channels.
  --- Source: tf.nn.separable_conv2d
  def("nn.separable_conv2d", "input depthwise_filter pointwise_filter "
    .. "strides padding data_format=nil dilations=nil name=nil",
    function(input, depth, point, strides, padding, format, dilations)
      local mixed = depthwise("separable_conv2d", input, depth, strides,
        padding, format, dilations)
      return ops.conv2d(mixed, point, 1, "VALID", format or "NHWC")
    end)

  --- Gradient of depthwise_conv2d for its input.
  --- Source: tf.nn.depthwise_conv2d_backprop_input
  def("nn.depthwise_conv2d_backprop_input", "input_sizes filter out_backprop "
    .. "strides padding data_format='NHWC' dilations=nil name=nil",
    function(sizes, filter, dy, strides, padding, format, dilations)
      local what = "depthwise_conv2d_backprop_input"
      local kind, explicit = split_padding(what, padding, format)
      return ops.conv_backprop_input(grouped(tf, what, filter), dy, strides,
        kind, format, dilations, explicit, convert.integers(sizes, what,
          "input_sizes"))
    end)

  --- Gradient of depthwise_conv2d for its filter.
  --- Source: tf.nn.depthwise_conv2d_backprop_filter
  def("nn.depthwise_conv2d_backprop_filter", "input filter_sizes out_backprop "
    .. "strides padding data_format='NHWC' dilations=nil name=nil",
    function(input, sizes, dy, strides, padding, format, dilations)
      local what = "depthwise_conv2d_backprop_filter"
      local kind, explicit = split_padding(what, padding, format)
      local d = convert.integers(sizes, what, "filter_sizes")
      if #d ~= 4 then
        fail("ValueError", "%s: filter_sizes has %d numbers; expected 4", what,
          #d)
      end
      local flat = ops.conv_backprop_filter(input, dy, strides, kind, format,
        dilations, explicit, { d[1], d[2], 1, d[3] * d[4] })
      return tf.reshape(flat, d)
    end)
end

--- Pooling --------------------------------------------------------------------

local function define_pooling(def, ops)
  local function pool(what, op, input, ksize, strides, padding, format)
    local explicit
    input = tensor_of(what, "input", input)
    format = format or default_format(what, "input", input)
    padding, explicit = split_padding(what, padding, format)
    return op(input, ksize, strides, padding, format, explicit)
  end

  -- Source: tf.nn.max_pool, max_pool1d, …, avg_pool3d
  for _, kind in ipairs { "max_pool", "avg_pool" } do
    for _, axes in ipairs { "", "1d", "2d", "3d" } do
      local name = kind .. axes
      def("nn." .. name, "input ksize strides padding data_format=nil name=nil",
        function(...)
          return pool(name, ops[name], ...)
        end)
    end
  end

  --- Maxima and where they lie: row-major positions in the image, or in the
  --- batch with include_batch_in_index.
  --- Source: tf.nn.max_pool_with_argmax
  def("nn.max_pool_with_argmax", "input ksize strides padding "
    .. "data_format='NHWC' output_dtype='int64' include_batch_in_index=false "
    .. "name=nil", function(input, ksize, strides, padding, format, dtype,
      batch)
    return ops.max_pool_with_argmax(input, ksize, strides, padding, format,
      nil, dtype, batch)
  end)

  --- Pooling by name, "AVG" or "MAX". Errors: NotImplementedError for
  --- dilations. Source: tf.nn.pool
  def("nn.pool", "input window_shape pooling_type strides=nil "
    .. "padding='VALID' data_format=nil dilations=nil name=nil",
    function(input, window, kind, strides, padding, format, dilations)
      kind = options.choice("pool", "pooling_type", kind, { "AVG", "MAX" })
      for _, d in ipairs(convert.integers(dilations or {}, "pool",
        "dilations")) do
        if d ~= 1 then
          fail("NotImplementedError", "pool: dilations other than 1 are not "
            .. "implemented")
        end
      end
      local op = kind == "AVG" and ops.avg_pool or ops.max_pool
      return pool("pool", op, input, window, strides or 1, padding, format)
    end)
end

--- Normalisation --------------------------------------------------------------

local function define_moments(tf, def)
  local HALF = { float16 = true, bfloat16 = true }

  --- Mean and variance over axes; half types are averaged in float32.
  --- Source: tf.nn.moments
  def("nn.moments", "x axes shift=nil keepdims=false name=nil",
    function(x, axes, _, keepdims)
      x = tensor_of("moments", "x", x)
      local dtype = x.dtype
      local y = HALF[dtype] and tf.cast(x, "float32") or x
      local mean = tf.reduce_mean(y, axes, true)
      local variance = tf.reduce_mean(tf.math.squared_difference(y,
        tf.stop_gradient(mean)), axes, keepdims)
      if not keepdims then
        mean = tf.reduce_mean(y, axes, false)
      end
      if HALF[dtype] then
        return tf.cast(mean, dtype), tf.cast(variance, dtype)
      end
      return mean, variance
    end)

  --- Mean and variance over axes with a weight for each element.
  --- Source: tf.nn.weighted_moments
  def("nn.weighted_moments", "x axes frequency_weights keepdims=false name=nil",
    function(x, axes, weights, keepdims)
      x = tensor_of("weighted_moments", "x", x)
      weights = tf.broadcast_to(tf.cast(weights, x.dtype), x.shape)
      local total = tf.reduce_sum(weights, axes, true)
      local mean = tf.reduce_sum(weights * x, axes, true) / total
      local variance = tf.reduce_sum(weights
        * tf.math.squared_difference(x, mean), axes, keepdims)
      if keepdims then
        return mean, variance / total
      end
      total = tf.reshape(total, variance.shape)
      return tf.reshape(mean, variance.shape), variance / total
    end)
end

local function define_statistics(tf, def)
  --- Count, sum and sum of squares over axes, to combine moments of parts.
  --- Source: tf.nn.sufficient_statistics
  def("nn.sufficient_statistics", "x axes shift=nil keepdims=false name=nil",
    function(x, axes, shift, keepdims)
      x = tensor_of("sufficient_statistics", "x", x)
      local list = convert.integers(axes, "sufficient_statistics", "axes")
      local count = 1
      for _, axis in ipairs(list) do
        local size = x.shape[axis < 0 and axis + #x.shape + 1 or axis + 1]
        if size == nil then
          fail("ValueError", "sufficient_statistics: axis %d is outside a "
            .. "tensor of rank %d %s; axes count from 0, -1 is the last", axis,
            #x.shape, text.shape(x.shape))
        end
        count = count * size
      end
      local moved = shift == nil and x or tf.subtract(x, shift)
      return tf.constant(count, x.dtype),
        tf.reduce_sum(moved, list, keepdims),
        tf.reduce_sum(tf.square(moved), list, keepdims), shift
    end)

  --- Mean and variance from sufficient statistics.
  --- Source: tf.nn.normalize_moments
  def("nn.normalize_moments", "counts mean_ss variance_ss shift=nil name=nil",
    function(counts, mean_ss, variance_ss, shift)
      local mean = tf.divide(mean_ss, counts)
      local variance = tf.divide(variance_ss, counts) - tf.square(mean)
      if shift ~= nil then
        mean = tf.add(mean, shift)
      end
      return mean, variance
    end)
end

local function define_normalisation(tf, def)
  local ops = tf.raw_ops

  --- (x - mean) / sqrt(variance + epsilon) * scale + offset with given moments.
  --- Shapes: all broadcast against x; scale and offset may be nil.
  --- Source: tf.nn.batch_normalization
  def("nn.batch_normalization", "x mean variance offset=nil scale=nil "
    .. "variance_epsilon=0.001 name=nil",
    function(x, mean, variance, offset, scale, epsilon)
      local inverse = tf.math.rsqrt(tf.add(variance, epsilon))
      if scale ~= nil then
        inverse = tf.multiply(inverse, scale)
      end
      local shift = tf.multiply(tf.negative(mean), inverse)
      if offset ~= nil then
        shift = tf.add(offset, shift)
      end
      return tf.multiply(x, inverse) + shift
    end)

  --- Batch normalisation with the batch's own moments (is_training) or given
  --- ones. Returns y, mean and the unbiased variance, blended with the given
  --- ones by exponential_avg_factor.
  --- Source: tf.compat.v1.nn.fused_batch_norm
  def("nn.fused_batch_norm compat.v1.nn.fused_batch_norm",
    "x scale offset mean=nil variance=nil epsilon=0.001 data_format='NHWC' "
    .. "is_training=true name=nil exponential_avg_factor=1",
    function(x, scale, offset, mean, variance, epsilon, format, training, _,
        factor)
      local y, batch_mean, batch_variance = ops.fused_batch_norm(x, scale,
        offset, mean, variance, epsilon, format, training, factor)
      return y, batch_mean, batch_variance
    end)
end

local function define_row_normalisation(tf, def)
  local ops = tf.raw_ops

  --- Divide by (bias + alpha * sum of squares)^beta over 2 * depth_radius + 1
  --- neighbouring channels. Shapes: input {n, h, w, c}.
  --- Source: tf.nn.local_response_normalization
  def("nn.local_response_normalization nn.lrn", "input depth_radius=5 bias=1 "
    .. "alpha=1 beta=0.5 name=nil",
    function(input, radius, bias, alpha, beta)
      input = tensor_of("local_response_normalization", "input", input)
      local d = input.shape
      if #d ~= 4 then
        fail("InvalidArgument", "local_response_normalization: input has rank "
          .. "%d %s; expected 4", #d, text.shape(d))
      end
      options.integer("local_response_normalization", "depth_radius", radius,
        0, 2 ^ 30)
      local rows = tf.reshape(tf.square(input), { -1, d[4], 1 })
      local window = tf.ones({ 2 * radius + 1, 1, 1 }, input.dtype)
      local sums = tf.reshape(ops.conv1d(rows, window, 1, "SAME"), d)
      return input / tf.pow(sums * alpha + bias, beta)
    end)

  --- Normalise over the axes from `axis` to the last, for each position
  --- before them. Shapes: scale and offset have the sizes of those axes.
  --- Source: the op of tf.keras.layers.LayerNormalization
  def("nn.layer_normalization", "x scale=nil offset=nil axis=-1 "
    .. "epsilon=0.001 name=nil", function(...)
    return (ops.layer_normalization(...))
  end)

  --- Normalise over space and the channels of each of `groups` groups.
  --- Shapes: scale and offset {channels}; axis is the channel axis, 1 or -1.
  --- Source: the op of tf.keras.layers.GroupNormalization
  def("nn.group_normalization", "x scale=nil offset=nil groups=32 axis=-1 "
    .. "epsilon=0.001 name=nil", function(...)
    return (ops.group_normalization(...))
  end)
end

--- Recurrence -----------------------------------------------------------------

local function define_recurrence(def, ops)
  -- The workspace is for gradients only; without a tape it is not made.
  local function training(x)
    if x == nil then
      -- A tape may watch the calls of a traced function.
      return raw.tape_active() > 0 or raw.graph_recording() ~= nil
    end
    return x
  end

  --- LSTM over all steps. Gates lie in the order i, f, c, o.
  --- Shapes: inputs {steps, n, in}, kernel {in, 4 * units}, recurrent_kernel
  ---   {units, 4 * units}, bias {4 * units}, states {n, units}. Returns the
  ---   states h of all steps {steps, n, units}, the last h and the last c.
  --- Errors: InvalidArgument; FailedPrecondition for gradients of a pass with
  ---   training = false. training = nil: true when a tape records.
  --- Source: the layer tf.keras.layers.LSTM with time_major inputs
  def("nn.lstm", "inputs kernel recurrent_kernel bias=nil initial_h=nil "
    .. "initial_c=nil training=nil name=nil",
    function(inputs, kernel, recurrent, bias, h0, c0, train)
      local sequence, h, c = ops.lstm(inputs, kernel, recurrent, bias, h0, c0,
        training(train))
      return sequence, h, c
    end)

  --- GRU with the reset gate after the product, gates in the order z, r, h.
  --- Shapes: as nn.lstm with 3 gates; bias {2, 3 * units}: inputs', then the
  ---   recurrent one. Returns all h and the last h.
  --- Source: the layer tf.keras.layers.GRU, reset_after = true
  def("nn.gru", "inputs kernel recurrent_kernel bias=nil initial_h=nil "
    .. "training=nil name=nil",
    function(inputs, kernel, recurrent, bias, h0, train)
      local sequence, h = ops.gru(inputs, kernel, recurrent, bias, h0,
        training(train))
      return sequence, h
    end)
end

function M.define(tf, def)
  local ops = tf.raw_ops
  define_convolution(def, ops)
  define_transposed(def, ops)
  define_depthwise(tf, def)
  define_pooling(def, ops)
  define_moments(tf, def)
  define_statistics(tf, def)
  define_normalisation(tf, def)
  define_row_normalisation(tf, def)
  define_recurrence(def, ops)

  --- x * weights + biases. Source: tf.compat.v1.nn.xw_plus_b
  def("compat.v1.nn.xw_plus_b", "x weights biases name=nil",
    function(x, weights, biases)
      return ops.bias_add(tf.matmul(x, weights), biases)
    end)
end

return M
