--- tf.debugging: checks that raise when values are not as promised.
---
--- Value checks wait for the elements and raise InvalidArgument that names the
--- first element that breaks the rule; shape checks do not look at elements.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local function lead(message, what)
  if message == nil then
    return what
  end
  return (type(message) == "string" and message or text.describe(message))
    .. ": " .. what
end

-- "[1, 2]" of flat position i in a tensor of this shape.
local function position_text(i, dims)
  local at = {}
  for axis = #dims, 1, -1 do
    at[axis] = i % dims[axis]
    i = (i - at[axis]) / dims[axis]
  end
  for axis = 1, #dims do
    at[axis] = text.number(at[axis])
  end
  return #dims == 0 and "the scalar" or "[" .. table.concat(at, ", ") .. "]"
end

local function all_true(tf, condition)
  return tf.reduce_all(condition):item()
end

-- Is it for the calls to raise that the condition does not hold? Where only they
-- know it, and in a branch, which may never run.
local function is_for_calls(tf, condition)
  return tracing.is_symbolic(condition)
    or tracing.is_part() and not all_true(tf, condition)
end

-- First false element of condition and their count.
local function failures(condition)
  local flat = raw.tensor_to_flat(condition)
  local first, count = nil, 0
  for i = 1, #flat do
    if not flat[i] then
      first = first or i - 1
      count = count + 1
    end
  end
  return first, count, #flat
end

local function show(x)
  return type(x) == "number" and ("%.9g"):format(x) or tostring(x)
end

-- compare(name, x, y, condition tensor): raises unless all hold. where: the
-- position in the script, if the check was recorded there.
local require_all
function require_all(tf, what, message, x, y, condition, rule, where)
  if is_for_calls(tf, condition) then
    local values = { condition, x, y, n = y == nil and 2 or 3 }
    where = errors.position()
    return tracing.host(values, function(holds, of_x, of_y)
      return require_all(tf, what, message, of_x, of_y, holds, rule, where)
    end)
  elseif all_true(tf, condition) then
    return
  end
  local first, count, total = failures(condition)
  local dims = tensor.shape_of(condition)
  local at = position_text(first, dims)
  local x_value = raw.item(raw.operand_tensor(tf.broadcast_to(x, dims)), first)
  local values
  if y ~= nil then
    local y_value = raw.item(raw.operand_tensor(tf.broadcast_to(y, dims)),
      first)
    values = ("%s and %s"):format(show(x_value), show(y_value))
  else
    values = show(x_value)
  end
  errors.raise("InvalidArgument", lead(message, ("%s: at %s: %s, expected %s; "
    .. "%d of %d elements fail"):format(what, at, values, rule, count, total)),
    nil, where)
end

-- A plain number from a number, a scalar or nothing.
local function number_or(x, default, name)
  if x == nil or type(x) == "number" then
    return x or default
  end
  local t = raw.operand_tensor(convert.operand(x, nil, "assert_near", name))
  if raw.tensor_size(t) ~= 1 or raw.tensor_dtype(t) == "bool" then
    errors.raise("TypeError", ("assert_near: %s must be a number, got %s")
      :format(name, text.describe(x)))
  end
  return raw.item(t)
end

local COMPARISONS = {
  assert_equal = { "equal", "x = y" },
  assert_none_equal = { "not_equal", "x ~= y" },
  assert_less = { "less", "x < y" },
  assert_less_equal = { "less_equal", "x <= y" },
  assert_greater = { "greater", "x > y" },
  assert_greater_equal = { "greater_equal", "x >= y" },
}

local SIGNS = {
  assert_positive = { "greater", "x > 0" },
  assert_negative = { "less", "x < 0" },
  assert_non_negative = { "greater_equal", "x >= 0" },
  assert_non_positive = { "less_equal", "x <= 0" },
}

local function operands(x, y, what)
  local dtype = convert.common_dtype({ x, y }, 2)
  return convert.operand(x, dtype, what, "x"),
    convert.operand(y, dtype, what, "y")
end

local function comparisons(tf, def)
  for name, entry in pairs(COMPARISONS) do
    local op, rule = entry[1], entry[2]
    local paths = "debugging." .. name
    if name ~= "assert_none_equal" then
      paths = paths .. " " .. name
    end
    def(paths, "x y message=nil summarize=nil name=nil",
      function(x, y, message)
        x, y = operands(x, y, name)
        require_all(tf, name, message, x, y, tf[op](x, y), rule)
      end)
  end
  for name, entry in pairs(SIGNS) do
    local op, rule = entry[1], entry[2]
    def("debugging." .. name, "x message=nil summarize=nil name=nil",
      function(x, message)
        x = convert.operand(x, nil, name, "x")
        require_all(tf, name, message, x, nil, tf[op](x, 0), rule)
      end)
  end
end

local function check_assert(condition, flat, where)
  if not condition then
    local parts = {}
    for i = 1, flat.n do
      parts[i] = tostring(flat[i])
    end
    errors.raise("InvalidArgument", "Assert: the condition is false: "
      .. table.concat(parts, " "), nil, where)
  end
end

-- At each call of the function that is being traced.
local function assert_later(tf, condition, data)
  local flat = nest.flatten(data)
  local values = { condition, n = 1 }
  for i = 1, flat.n do
    if raw.is_operand(flat[i]) then
      values.n = values.n + 1
      values[values.n] = flat[i]
    end
  end
  local where = errors.position()
  tracing.host(values, function(holds, ...)
    local given, at = { ... }, 0
    local shown = { n = flat.n }
    for i = 1, flat.n do
      shown[i] = flat[i]
      if raw.is_operand(flat[i]) then
        at = at + 1
        shown[i] = given[at]
      end
    end
    check_assert(all_true(tf, holds), shown, where)
  end)
end

local function value_checks(tf, def)
  local function finite(what, name, x, message)
    x = convert.operand(x, nil, what, name)
    require_all(tf, what, message, x, nil, tf.math.is_finite(x),
      "finite values")
    return x
  end

  --- |x - y| <= atol + rtol * |y| everywhere; the tolerances default to ten
  --- times the dtype's epsilon. Source: tf.debugging.assert_near
  def("debugging.assert_near",
    "x y rtol=nil atol=nil message=nil summarize=nil name=nil",
    function(x, y, rtol, atol, message)
      x, y = operands(x, y, "assert_near")
      local epsilon = ({ float64 = 2 ^ -52, float32 = 2 ^ -23,
        float16 = 2 ^ -10, bfloat16 = 2 ^ -7 })[raw.tensor_dtype(
        raw.operand_tensor(x))] or 0
      rtol = number_or(rtol, 10 * epsilon, "rtol")
      atol = number_or(atol, 10 * epsilon, "atol")
      local bound = tf.abs(y) * rtol + atol
      require_all(tf, "assert_near", message, x, y,
        tf.less_equal(tf.abs(x - y), bound),
        ("|x - y| <= %.3g + %.3g * |y|"):format(atol, rtol))
    end)

  --- x, unless it contains infinities or NaN.
  --- Errors: InvalidArgument that starts with the message.
  --- Source: tf.debugging.check_numerics
  def("debugging.check_numerics", "tensor message name=nil",
    function(x, message)
      return finite("check_numerics", "tensor", x, message)
    end)

  --- The same with the message optional.
  --- Source: tf.debugging.assert_all_finite
  def("debugging.assert_all_finite", "x message=nil name=nil",
    function(x, message)
      return finite("assert_all_finite", "x", x, message)
    end)

  --- Raise InvalidArgument showing `data` unless condition is true.
  --- Source: tf.debugging.Assert
  def("debugging.Assert Assert", "condition data=nil summarize=nil name=nil",
    function(condition, data)
      if condition == true then
        return
      end
      condition = convert.operand(condition, nil, "Assert", "condition")
      if is_for_calls(tf, condition) then
        return assert_later(tf, condition, data)
      end
      check_assert(all_true(tf, condition), nest.flatten(data))
    end)
end

local function wrong_rank(what, message, dims, expected)
  errors.raise("ValueError", lead(message, ("%s: x has rank %d %s; expected %s")
    :format(what, #dims, text.shape(dims), expected)))
end

-- A size in a shape specification: a number, nil or -1 for any, or a name that
-- stands for the same size everywhere.
local function check_size(symbols, want, size, describe)
  if want == nil or want == -1 or want == "." then
    return
  elseif type(want) == "string" then
    local known = symbols[want]
    if known == nil then
      symbols[want] = size
      return
    elseif known == size then
      return
    end
    errors.raise("ValueError", ("%s has size %d, but %s is %d before")
      :format(describe, size, text.quote(want), known))
  elseif want ~= size then
    errors.raise("ValueError", ("%s has size %d, expected %s"):format(describe,
      size, tostring(want)))
  end
end

local function check_shape(symbols, x, spec, position, message)
  local dims = tensor.known_shape_of(convert.operand(x, nil, "assert_shapes",
    "x"), "assert_shapes")
  local sizes = {}
  if type(spec) == "string" then
    -- "NHWC": one letter each, as in TensorFlow.
    for letter in spec:gmatch(".") do
      sizes[#sizes + 1] = tonumber(letter) or letter
    end
    sizes.n = #sizes
  else
    sizes = type(spec) == "table" and spec or { spec }
  end
  local _, n = options.list("assert_shapes", "sizes", sizes)
  local what = lead(message, ("assert_shapes: tensor %d %s"):format(position,
    text.shape(dims)))
  if n ~= #dims then
    errors.raise("ValueError", ("%s has rank %d, expected %d"):format(what,
      #dims, n))
  end
  for axis = 1, n do
    check_size(symbols, sizes[axis], dims[axis],
      ("%s: axis %d"):format(what, axis - 1))
  end
end

local COMMON = " message=nil name=nil"

local function rank_checks(def)
  def("debugging.assert_rank assert_rank", "x rank" .. COMMON,
    function(x, rank, message)
      local dims = tensor.shape_of(convert.operand(x, nil, "assert_rank", "x"))
      options.integer("assert_rank", "rank", rank)
      if #dims ~= rank then
        wrong_rank("assert_rank", message, dims, "rank " .. text.number(rank))
      end
    end)
  def("debugging.assert_rank_at_least", "x rank" .. COMMON,
    function(x, rank, message)
      local dims = tensor.shape_of(convert.operand(x, nil,
        "assert_rank_at_least", "x"))
      options.integer("assert_rank_at_least", "rank", rank)
      if #dims < rank then
        wrong_rank("assert_rank_at_least", message, dims,
          text.format("rank %d or more", rank))
      end
    end)
  def("debugging.assert_rank_in", "x ranks" .. COMMON,
    function(x, ranks, message)
      local dims = tensor.shape_of(convert.operand(x, nil, "assert_rank_in",
        "x"))
      ranks = convert.integers(ranks, "assert_rank_in", "ranks")
      for i = 1, #ranks do
        if ranks[i] == #dims then
          return
        end
      end
      wrong_rank("assert_rank_in", message, dims, "one of "
        .. text.shape(ranks))
    end)
  def("debugging.assert_scalar", "tensor" .. COMMON, function(x, message)
    local dims = tensor.shape_of(convert.operand(x, nil, "assert_scalar", "x"))
    if #dims ~= 0 then
      wrong_rank("assert_scalar", message, dims, "a scalar")
    end
  end)
end

local function shape_checks(def)
  --- Shapes of several tensors at once: a list of pairs { tensor, sizes }. A
  --- size is a number, -1 for any, or a name that must be the same size
  --- wherever it stands; sizes may be one string, "NHWC".
  --- Source: tf.debugging.assert_shapes
  def("debugging.assert_shapes",
    "shapes data=nil summarize=nil message=nil name=nil",
    function(shapes, _, _, message)
      local symbols = {}
      local _, n = options.list("assert_shapes", "shapes", shapes, "pairs")
      for i = 1, n do
        local pair = options.list("assert_shapes", ("shapes[%d]"):format(i),
          shapes[i], "a tensor and its sizes")
        check_shape(symbols, pair[1], pair[2], i, message)
      end
    end)
end

local function dtype_checks(def)
  def("debugging.assert_type", "tensor tf_type" .. COMMON,
    function(x, dtype, message)
      local got = raw.tensor_dtype(raw.operand_tensor(
        convert.operand(x, nil, "assert_type", "tensor")))
      dtype = convert.dtype(dtype, "assert_type")
      if got ~= dtype then
        errors.raise("TypeError", lead(message, ("assert_type: the tensor is "
          .. "%s, expected %s"):format(got, dtype)))
      end
    end)
  def("debugging.assert_integer", "x" .. COMMON,
    function(x, message)
      local got = raw.tensor_dtype(raw.operand_tensor(
        convert.operand(x, nil, "assert_integer", "x")))
      if not convert.INTEGER[got] then
        errors.raise("TypeError", lead(message, ("assert_integer: the tensor "
          .. "is %s, expected an integer dtype"):format(got)))
      end
    end)

  --- The one floating-point dtype of all tensors, float32 for none.
  --- Source: tf.debugging.assert_same_float_dtype
  def("debugging.assert_same_float_dtype", "tensors=nil dtype=nil",
    function(tensors, dtype)
      dtype = convert.dtype(dtype, "assert_same_float_dtype")
      if tensors ~= nil and not nest.is_nested(tensors) then
        errors.raise("TypeError", "assert_same_float_dtype: tensors must be a "
          .. "list of tensors, got " .. text.describe(tensors))
      end
      for i = 1, tensors and #tensors or 0 do
        local got = raw.tensor_dtype(raw.operand_tensor(convert.operand(
          tensors[i], nil, "assert_same_float_dtype", "tensors")))
        dtype = dtype or got
        if got ~= dtype then
          errors.raise("ValueError", ("assert_same_float_dtype: tensor %d is "
            .. "%s, expected %s"):format(i, got, dtype))
        end
      end
      dtype = dtype or "float32"
      if not convert.FLOATING[dtype] then
        errors.raise("ValueError", "assert_same_float_dtype: " .. dtype
          .. " is no floating-point dtype")
      end
      return dtype
    end)

  def("debugging.is_numeric_tensor", "tensor:table=nil", function(x)
    return tensor.is_self(x)
      and raw.tensor_dtype(tensor.value_of(x)) ~= "bool"
  end)
end

--- Put tf.debugging into tf.
function M.install(tf, def)
  comparisons(tf, def)
  value_checks(tf, def)
  rank_checks(def)
  shape_checks(def)
  dtype_checks(def)
  local function missing(name)
    def("debugging." .. name, "stack_height_limit=nil path_length_limit=nil",
      function()
        errors.raise("NotImplementedError", "tf.debugging." .. name
          .. " is not there", "tf.debugging.check_numerics(x, message) checks "
          .. "one tensor")
      end)
  end
  missing("enable_check_numerics")
  missing("disable_check_numerics")
end

return M
