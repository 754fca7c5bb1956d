--- Parts of tensors by their begins: tf.slice, tf.strided_slice.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local moving = require "tfdist.core.moving"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local AXIS_END = 2 ^ 53 -- TFD_AXIS_END

local function fail(kind, message, ...)
  errors.raise(kind, text.format(message, ...))
end

local shape_of, dims_text = tensor.shape_of, text.shape

-- A plain number from a number or a scalar tensor.
local function number(name, x)
  if type(x) == "number" then
    return x
  end
  local t = convert.tensor(x, nil, "strided_slice", name)
  if raw.tensor_size(t) ~= 1 then
    fail("InvalidArgument", "strided_slice: %s must be one number, got a tensor "
      .. "of shape %s", name, dims_text(shape_of(t)))
  end
  return raw.item(t)
end

local function mask_of(name, mask)
  mask = number(name, mask)
  options.integer("strided_slice", name, mask)
  if mask < 0 then
    fail("ValueError", "strided_slice: %s is %s; bits are those of a whole "
      .. "number from 0 on", name, mask)
  end
  return mask
end

local function bit(mask, i)
  return math.floor(mask / 2 ^ i) % 2 == 1
end

-- Begin, end and stride of one axis as positions. `open` says which ends the
-- masks leave open.
local function resolve(n, begin, stop, step, open_begin, open_end)
  if n < 0 then
    begin = open_begin and 0 or begin
    if step < 0 or begin < 0 or not open_end then
      fail("NotImplementedError", "strided_slice: an axis whose size only a "
        .. "call knows: from a position on, forwards, is what can be taken")
    end
    return begin, AXIS_END
  end
  local low, high = 0, n
  if step < 0 then
    low, high = -1, n - 1
  end
  local function clamp(x)
    x = x < 0 and x + n or x
    return math.max(low, math.min(high, x))
  end
  begin = open_begin and (step > 0 and 0 or n - 1) or clamp(begin)
  stop = open_end and (step > 0 and n or -1) or clamp(stop)
  if (stop - begin) * step <= 0 then
    begin, stop = 0, 0 -- nothing: any empty range does
  end
  return begin, stop
end

-- How many of the tensor's axes the entries of a strided_slice name.
local function count_axes(n, ellipsis, new_axis)
  local used, dots = 0, nil
  for i = 0, n - 1 do
    if bit(ellipsis, i) then
      if dots ~= nil then
        fail("ValueError", "strided_slice: more than one ellipsis")
      end
      dots = i
    elseif not bit(new_axis, i) then
      used = used + 1
    end
  end
  return used, dots
end

-- A scalar that only a call knows can be a position, or where a mask says that it
-- does not count.
local function check_known(name, x, counts)
  if counts and moving.unknown(x) ~= nil then
    moving.refuse("strided_slice", name, moving.ROWS)
  end
end

local function strided_slice(tf, x, begin, stop, strides, masks)
  local ops, moves = tf.raw_ops, {}
  local dims = shape_of(x)
  local from, to, step, shrink, fresh = {}, {}, {}, 0, {}
  for i = 1, #dims do
    from[i], to[i], step[i] = 0, dims[i] < 0 and AXIS_END or dims[i], 1
  end
  local used, dots = count_axes(#begin, masks.ellipsis, masks.new_axis)
  if used > #dims then
    fail("InvalidArgument", "strided_slice: %d slices for a tensor of shape %s",
      used, dims_text(dims))
  end
  local axis, out = 1, 0
  for i = 0, #begin - 1 do
    local k, s = i + 1, strides[i + 1] or 1
    if i == dots then
      axis, out = axis + #dims - used, out + #dims - used
    elseif bit(masks.new_axis, i) then
      fresh[#fresh + 1] = out
      out = out + 1
    elseif bit(masks.shrink, i) and moving.unknown(begin[k]) ~= nil then
      moves[#moves + 1] = { out, moving.unknown(begin[k]) }
      axis, out = axis + 1, out + 1
    elseif bit(masks.shrink, i) then
      local at = begin[k]
      if at < 0 and dims[axis] < 0 then
        fail("NotImplementedError", "strided_slice: position %d of an axis "
          .. "whose size only a call knows", at)
      end
      at = at < 0 and at + dims[axis] or at
      from[axis], to[axis], shrink = at, at + 1, shrink + 2 ^ (axis - 1)
      axis = axis + 1
    else
      step[axis] = s
      check_known("begin", begin[k], not bit(masks.begin, i))
      check_known("end_", stop[k], not bit(masks.stop, i))
      from[axis], to[axis] = resolve(dims[axis], begin[k], stop[k], s,
        bit(masks.begin, i), bit(masks.stop, i))
      axis, out = axis + 1, out + 1
    end
  end
  local result = ops.strided_slice(x, from, to, step, shrink)
  for i = 1, #fresh do
    result = ops.expand_dims(result, fresh[i])
  end
  return moving.gather(tf, "strided_slice", result, moves)
end

-- A list of whole numbers; scalars that only a call knows may be in it.
local function parts(tf, name, x)
  return moving.entries(tf, "strided_slice", name, x)
    or convert.integers(x, "strided_slice", name)
end

-- The sizes of a slice where they do not depend on its begin; else nil.
local function sliced(x, size)
  if not tracing.is_part() or not raw.is_operand(x) then
    return nil
  end
  size = convert.integers(size, "slice", "size")
  local dims, out = shape_of(x), {}
  for axis = 1, #size do
    if #size ~= #dims or size[axis] < 0 or dims[axis] < 0 then
      return nil
    end
    out[axis] = size[axis]
  end
  return out
end

--- Put the functions into tf.
---@param tf table
---@param def function
function M.define(tf, def)
  local ops = tf.raw_ops

  --- A view of size elements from begin on; a size of -1 goes to the end.
  --- Where only a call of a traced function knows begins, it is a copy.
  --- Source: tf.slice
  def("slice", "input_ begin size name=nil", function(x, begin, size)
    local first = moving.entries(tf, "slice", "begin", begin)
    if moving.entries(tf, "slice", "size", size) ~= nil then
      moving.refuse("slice", "size", moving.ROWS)
    elseif first == nil then
      return tracing.refusing_values(tf, sliced(x, size), ops.slice, x, begin,
        size)
    end
    return moving.slice(tf, convert.operand(x, nil, "slice", "input_"), first,
      convert.integers(size, "slice", "size"))
  end, "slice")

  --- A view of every stride-th element from begin to end_, with TensorFlow's
  --- masks (bit i speaks of entry i). Source: tf.strided_slice
  def("strided_slice", "input_ begin end_ strides=nil begin_mask=0 end_mask=0 "
    .. "ellipsis_mask=0 new_axis_mask=0 shrink_axis_mask=0 name=nil",
    function(x, begin, stop, strides, begin_mask, end_mask, ellipsis, new_axis,
      shrink)
      local what = "strided_slice"
      begin = parts(tf, "begin", begin)
      stop = parts(tf, "end_", stop)
      if strides ~= nil and moving.entries(tf, what, "strides", strides) then
        moving.refuse(what, "strides", moving.ROWS)
      end
      strides = strides and convert.integers(strides, what, "strides") or {}
      local masks = {
        begin = mask_of("begin_mask", begin_mask),
        stop = mask_of("end_mask", end_mask),
        ellipsis = mask_of("ellipsis_mask", ellipsis),
        new_axis = mask_of("new_axis_mask", new_axis),
        shrink = mask_of("shrink_axis_mask", shrink),
      }
      if #begin ~= #stop then
        fail("InvalidArgument", "strided_slice: begin has %d entries, end_ %d",
          #begin, #stop)
      end
      return strided_slice(tf, convert.operand(x, nil, what, "input_"),
        begin, stop, strides, masks)
    end)
end

return M
