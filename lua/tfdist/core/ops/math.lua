--- Names of the elementwise ops, and TensorFlow's functions made of them.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local options = require "tfdist.base.options"
local slices = require "tfdist.core.slices"
local text = require "tfdist.base.text"

local M = {}

-- op -> its public names, for names that do not follow `both` or `inner`.
M.functions = {
  negative = "negative math.negative",
  multiply_no_nan = "math.multiply_no_nan",
  divide = "divide math.divide truediv math.truediv",
  divide_no_nan = "math.divide_no_nan",
  floordiv = "math.floordiv floor_div",
  floormod = "math.floormod floormod math.mod mod",
  truncatediv = "truncatediv math.truncatediv",
  truncatemod = "truncatemod math.truncatemod",
  cast = "cast dtypes.cast",
  clip_by_value = "clip_by_value",
  sigmoid = "sigmoid math.sigmoid nn.sigmoid",
  tanh = "tanh math.tanh nn.tanh",
  softplus = "math.softplus nn.softplus",
  log_sigmoid = "math.log_sigmoid nn.log_sigmoid",
  add_n = "add_n math.add_n",
  invert = "bitwise.invert",
}

local function publish(prefixes, names)
  for name in names:gmatch "%S+" do
    local paths = {}
    for prefix in prefixes:gmatch "%S+" do
      paths[#paths + 1] = (prefix == "tf" and "" or prefix .. ".") .. name
    end
    M.functions[name] = table.concat(paths, " ")
  end
end

publish("tf math", [[
  abs acos acosh add asin asinh atan atan2 atanh cos cosh equal exp floor
  greater greater_equal less less_equal logical_and logical_not logical_or
  maximum minimum multiply not_equal pow round sign sin sinh sqrt square
  subtract tan]])
publish("math", [[
  ceil digamma erf erfc erfinv expm1 igamma igammac is_finite is_inf is_nan
  lgamma log log1p logical_xor ndtri nextafter polygamma reciprocal rint rsqrt
  squared_difference xdivy xlog1py xlogy zeta]])
publish("bitwise", [[
  bitwise_and bitwise_or bitwise_xor left_shift right_shift]])

M.methods = { clip_by_value = "clip_by_value clip" }

for name in ([[
  abs add cast ceil cos divide equal exp floor floordiv floormod greater
  greater_equal less less_equal log logical_and logical_not logical_or
  logical_xor maximum minimum multiply negative not_equal pow reciprocal round
  rsqrt sigmoid sign sin sqrt square subtract tanh is_nan is_inf is_finite
  ]]):gmatch "%S+" do
  M.methods[name] = name
end

-- Largest and smallest finite values; those of integers are exact.
local RANGE = {
  int8 = { -128, 127 }, int16 = { -32768, 32767 }, uint8 = { 0, 255 },
  int32 = { -2147483648, 2147483647 }, float16 = { -65504, 65504 },
  bfloat16 = { -3.3895313892515355e38, 3.3895313892515355e38 },
  float32 = { -3.4028234663852886e38, 3.4028234663852886e38 },
}
local FLOATING = convert.FLOATING

local is_slices = slices.is_slices

-- What counts of a gradient: the rows of slices, else the tensor.
local function values_of(x)
  return is_slices(x) and x.values or x
end

-- x with its values replaced.
local function with_values(tf, x, values)
  if is_slices(x) then
    return tf.IndexedSlices(values, x.indices, x.dense_shape)
  end
  return values
end

local function define_clipping(tf, def)
  local ops = tf.raw_ops

  --- t, scaled down where its Euclidean norm (over `axes`, nil = all) exceeds
  --- clip_norm. One pass over t behind the norm's, and what is not scaled keeps
  --- its bits. Half types are scaled in float32. Slices give slices.
  --- Errors: InvalidArgument for whole numbers. Source: tf.clip_by_norm
  def("clip_by_norm", "t clip_norm axes=nil name=nil",
    function(t, clip_norm, axes)
      local values = convert.operand(values_of(t), nil, "clip_by_norm", "t")
      local dtype = raw.operand_dtype(values)
      if not convert.FLOATING[dtype] then
        errors.raise("InvalidArgument", ("clip_by_norm: t is %s; expected a "
          .. "floating-point dtype"):format(dtype))
      end
      local is_half = dtype == "float16" or dtype == "bfloat16"
      if is_half then
        values = tf.cast(values, "float32")
        clip_norm = tf.cast(clip_norm, "float32")
      end
      local norm = ops.reduce_euclidean_norm(values, axes, true)
      local clipped = values * (clip_norm / ops.maximum(norm, clip_norm))
      return with_values(tf, t, is_half and tf.cast(clipped, dtype) or clipped)
    end)

  --- t, scaled down where its norm divided by its size exceeds clip_norm.
  --- Source: tf.compat.v1.clip_by_average_norm
  def("clip_by_average_norm compat.v1.clip_by_average_norm",
    "t clip_norm name=nil", function(t, clip_norm)
      t = convert.operand(t, nil, "clip_by_average_norm", "t")
      local norm = ops.reduce_euclidean_norm(t)
      local average = norm / raw.tensor_size(raw.operand_tensor(t))
      return t * clip_norm / ops.maximum(average, clip_norm)
    end)
end

local function define_global_norm(tf, def)
  local ops = tf.raw_ops

  local function global_norm(t_list, n, what)
    local squares = {}
    for i = 1, n do
      local x = t_list[i]
      if x ~= nil then
        local norm = ops.reduce_euclidean_norm(values_of(x))
        squares[#squares + 1] = ops.square(norm)
      end
    end
    if #squares == 0 then
      errors.raise("ValueError", what .. ": t_list has no tensor; expected "
        .. "one or more")
    end
    return ops.sqrt(ops.add_n(squares))
  end

  --- The norm of all tensors together; nil entries (with `n`) are left out,
  --- slices count by their rows. Source: tf.linalg.global_norm
  def("linalg.global_norm global_norm", "t_list name=nil", function(t_list)
    local _, n = options.list("global_norm", "t_list", t_list, "tensors")
    return global_norm(t_list, n, "global_norm")
  end)

  --- The list with all tensors scaled so that their global norm is at most
  --- clip_norm, and the norm before. nil entries stay nil, slices slices. A
  --- norm that is not finite makes everything NaN. Source: as TensorFlow
  def("clip_by_global_norm", "t_list clip_norm use_norm=nil name=nil",
    function(t_list, clip_norm, use_norm)
      local _, n = options.list("clip_by_global_norm", "t_list", t_list,
        "tensors")
      local out = { n = n }
      local norm = use_norm
        or global_norm(t_list, n, "clip_by_global_norm")
      norm = convert.operand(norm, nil, "clip_by_global_norm", "use_norm")
      local scale = clip_norm / ops.maximum(norm, clip_norm)
      scale = ops.select(ops.is_finite(norm), scale, 0 / 0)
      for i = 1, n do
        local x = t_list[i]
        if x ~= nil then
          out[i] = with_values(tf, x, values_of(x) * scale)
        end
      end
      return out, norm
    end)
end

local function define_arithmetic(tf, def)
  local ops = tf.raw_ops

  --- coeffs[1] x^(n-1) + ... + coeffs[n], by Horner's rule; 0 for an empty
  --- list. Source: tf.math.polyval
  def("math.polyval", "coeffs x name=nil", function(coeffs, x)
    if not text.is_plain(coeffs) then
      errors.raise("ValueError", "polyval: coeffs must be a list, got "
        .. text.describe(coeffs))
    end
    x = convert.operand(x, nil, "polyval", "x")
    local p
    for i = 1, #coeffs do
      p = p == nil and coeffs[i] or ops.add(coeffs[i], ops.multiply(p, x))
    end
    p = convert.operand(p or 0, raw.operand_dtype(x),
      "polyval", "coeffs")
    return p
  end)

  --- scalar * x; slices stay slices. Source: tf.math.scalar_mul
  def("math.scalar_mul scalar_mul", "scalar x name=nil", function(scalar, x)
    return with_values(tf, x, ops.multiply(scalar, values_of(x)))
  end)

  --- 1 / x, 0 where x is 0. Source: tf.math.reciprocal_no_nan
  def("math.reciprocal_no_nan", "x name=nil", function(x)
    x = convert.operand(x, nil, "reciprocal_no_nan", "x")
    return ops.divide_no_nan(1, x)
  end)

  --- The sum of a list of equal shapes. Source: tf.math.accumulate_n
  def("math.accumulate_n", "inputs shape=nil tensor_dtype=nil name=nil",
    function(inputs)
      return ops.add_n(inputs)
    end)

  --- log |Beta(x)| over the last axis. Source: tf.math.lbeta
  def("math.lbeta", "x name=nil", function(x)
    x = convert.operand(x, nil, "lbeta", "x")
    return ops.reduce_sum(ops.lgamma(x), -1)
      - ops.lgamma(ops.reduce_sum(x, -1))
  end)

  --- The standard normal distribution function. Source: tf.math.ndtr
  def("math.ndtr", "x name=nil", function(x)
    x = convert.operand(x, nil, "ndtr", "x")
    return ops.erfc(x * -0.70710678118654752440) * 0.5
  end)

  --- The inverse of erfc, for 0 < x < 2. Source: tf.math.erfcinv
  def("math.erfcinv", "x name=nil", function(x)
    x = convert.operand(x, nil, "erfcinv", "x")
    return ops.ndtri(x * 0.5) * -0.70710678118654752440
  end)
end

local function define_conversion(tf, def)
  local ops = tf.raw_ops

  --- Cast that gives the nearest value of `dtype` where x does not fit.
  --- Source: tf.saturate_cast
  def("saturate_cast dtypes.saturate_cast", "value dtype name=nil",
    function(value, dtype)
      local x = convert.operand(value, nil, "saturate_cast", "value")
      local from = raw.tensor_dtype(raw.operand_tensor(x))
      dtype = convert.dtype(dtype, "saturate_cast")
      local range, own = RANGE[dtype], RANGE[from]
      local narrows = range ~= nil and from ~= "bool"
        and (own == nil or own[1] < range[1] or own[2] > range[2])
      -- Casts from floating point to integers saturate by themselves.
      if narrows and (not FLOATING[from] or FLOATING[dtype]) then
        local low, high = range[1], range[2]
        if own ~= nil then
          low, high = math.max(low, own[1]), math.min(high, own[2])
        end
        x = ops.clip_by_value(x, low, high)
      end
      return ops.cast(x, dtype)
    end)

  for _, dtype in ipairs { "float32", "float64", "int32", "int64",
    "bfloat16" } do
    local short = dtype:gsub("float32", "float"):gsub("float64", "double")
    --- Cast under its old name. Source: tf.compat.v1.to_float and others
    def("compat.v1.to_" .. short, "x name=nil", function(x)
      return ops.cast(convert.operand(x, nil, "cast", "x"), dtype)
    end)
  end

  --- The share of elements that are 0, float32. Source: tf.nn.zero_fraction
  def("math.zero_fraction nn.zero_fraction", "value name=nil", function(value)
    value = convert.operand(value, nil, "zero_fraction", "value")
    local size = raw.tensor_size(raw.operand_tensor(value))
    local count = ops.cast(ops.count_nonzero(value), "float32")
    return 1 - count / size
  end)
end

--- Define the composites.
function M.define(tf, def)
  define_clipping(tf, def)
  define_global_norm(tf, def)
  define_arithmetic(tf, def)
  define_conversion(tf, def)
end

return M
