--- Positions and slices inside tensors: t[0], t[{ {1, 3}, {}, -1 }].
---
--- An entry of the list is a position (dropped axis; -1 is the last), a range
--- { begin, end, step } half-open as in Python with any part nil or left out,
--- {} or nil for the whole axis, tf.newaxis for a new axis of size 1, or "..."
--- for as many whole axes as are left. t[tensor] takes rows by an integer
--- tensor (tf.gather) or by a boolean one (tf.boolean_mask).
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

local type = type

--- Marks a new axis in a list of slices.
M.newaxis = setmetatable({}, {
  __tostring = function() return "tf.newaxis" end,
})

local op = raw.op_find

local dims_of = raw.tensor_dims

local function not_whole(x)
  errors.raise("TypeError", "index: a position must be a whole number, got "
    .. (type(x) == "number" and text.number(x) or text.describe(x)))
end

-- The position as counted from 0.
local function position(x, axis, dims)
  if not text.is_whole(x) then
    not_whole(x)
  end
  local size = dims[axis]
  if x < -size or x >= size then
    errors.raise("IndexError", ("index: %s is outside axis %d of size %s of "
      .. "a tensor of shape %s; positions count from 0, -1 is the last")
      :format(text.number(x), axis - 1, text.number(size), text.shape(dims)),
      -- where ipairs ends, which starts from 1
      x == size and "for i, row in t:iter() do goes through the rows" or nil)
  end
  return x < 0 and x + size or x
end

local function bound(x, size, low, high)
  if not text.is_whole(x) then
    not_whole(x)
  end
  if x < 0 then
    x = x + size
  end
  return x < low and low or x > high and high or x
end

-- begin, end, step of a range, clamped as Python does.
local function range(entry, axis, dims)
  local size = dims[axis]
  local step = entry[3] == nil and 1 or entry[3]
  for key in pairs(entry) do
    if key ~= 1 and key ~= 2 and key ~= 3 then
      errors.raise("ValueError", ("index: the range for axis %d must be "
        .. "{ begin, end, step }, got an entry %s"):format(axis - 1,
        tostring(key)))
    end
  end
  if not text.is_whole(step) then
    not_whole(step)
  elseif step == 0 then
    errors.raise("ValueError", ("index: the step of the range for axis %d "
      .. "is 0"):format(axis - 1))
  elseif step > 0 then
    return entry[1] == nil and 0 or bound(entry[1], size, 0, size),
      entry[2] == nil and size or bound(entry[2], size, 0, size), step
  end
  return entry[1] == nil and size - 1 or bound(entry[1], size, -1, size - 1),
    entry[2] == nil and -1 or bound(entry[2], size, -1, size - 1), step
end

local function length(list)
  local n = 0
  for key in pairs(list) do
    if not text.is_whole(key) or key < 1 then
      if key ~= "n" then
        errors.raise("TypeError", "index: a list of positions and ranges has "
          .. "no entry " .. text.describe(key))
      end
    elseif key > n then
      n = key
    end
  end
  return math.max(n, type(list.n) == "number" and list.n or 0)
end

-- Scalar integer tensors count as numbers.
local function plain(entry)
  if type(entry) == "userdata" and raw.is_operand(entry) then
    local t = raw.operand_tensor(entry)
    if raw.tensor_rank(t) ~= 0 then
      errors.raise("TypeError", "index: a tensor inside a list of positions "
        .. "must be a scalar, got shape " .. text.shape(dims_of(t)),
        "tf.gather takes rows by a tensor of positions")
    end
    return raw.item(t)
  end
  return entry
end

-- How many axes the entries use, and where "..." is.
local function survey(list, n, dims)
  local used, dots = 0, nil
  for i = 1, n do
    local entry = list[i]
    if entry == "..." then
      if dots ~= nil then
        errors.raise("ValueError", 'index: only one "..." is possible')
      end
      dots = i
    elseif entry ~= M.newaxis then
      used = used + 1
    end
  end
  if used > #dims then
    errors.raise("IndexError", ("index: %d positions for a tensor of rank %d "
      .. "%s"):format(used, #dims, text.shape(dims)))
  end
  return #dims - used, dots
end

-- Lists of the whole of each axis, one set for each rank: filled anew at every
-- use, never given out.
local sets = {}

local function whole(dims)
  local rank = #dims
  local lists = sets[rank]
  if lists == nil then
    lists = { begins = {}, ends = {}, steps = {} }
    sets[rank] = lists
  end
  local begins, ends, steps = lists.begins, lists.ends, lists.steps
  for axis = 1, rank do
    begins[axis], ends[axis], steps[axis] = 0, dims[axis], 1
  end
  return begins, ends, steps
end

local function tensor_behind(x)
  if raw.kind(x) ~= "tensor" then
    return raw.operand_tensor(x)
  end
  return x
end

local function slice(tf, x, list)
  local dims = dims_of(tensor_behind(x))
  local n = length(list)
  local left, dots = survey(list, n, dims)
  local begins, ends, steps = whole(dims)
  local new_axes = {}
  local axis, out, shrink = 1, 0, 0
  for i = 1, n do
    local entry = plain(list[i])
    if i == dots then
      axis, out = axis + left, out + left
    elseif entry == M.newaxis then
      new_axes[#new_axes + 1] = out
      out = out + 1
    elseif entry == nil then
      axis, out = axis + 1, out + 1
    elseif text.is_plain(entry) then
      begins[axis], ends[axis], steps[axis] = range(entry, axis, dims)
      axis, out = axis + 1, out + 1
    else
      local at = position(entry, axis, dims)
      begins[axis], ends[axis] = at, at + 1
      shrink = shrink + 2 ^ (axis - 1)
      axis = axis + 1
    end
  end
  local result = #dims == 0 and raw.op_run(op "identity", { x, n = 1 })
    or tf.raw_ops.strided_slice(x, begins, ends, steps, shrink)
  for i = 1, #new_axes do
    result = raw.op_run(op "expand_dims", { result, n = 1 }, { new_axes[i] })
  end
  return result
end

-- Row i of axis 0; the usual case, so without the general machinery.
local function row(tf, x, i)
  local t = tensor_behind(x)
  local dims = dims_of(t)
  if #dims == 0 then
    errors.raise("IndexError", "index: a scalar has no positions",
      "t:item() is its value")
  end
  local at = position(i, 1, dims)
  local begins, ends, steps = whole(dims)
  begins[1], ends[1] = at, at + 1
  return tf.raw_ops.strided_slice(x, begins, ends, steps, 1)
end

local function by_tensor(tf, x, key)
  local dtype = raw.tensor_dtype(raw.operand_tensor(key))
  if dtype == "bool" then
    return tf.boolean_mask(x, key)
  elseif dtype == "int32" or dtype == "int64" then
    return tf.gather(x, key)
  end
  errors.raise("TypeError", "index: a tensor of positions must be int32, "
    .. "int64 or bool, got " .. dtype)
end

--- x[key] for everything but names; see the head of this file.
--- Errors: IndexError outside the tensor, TypeError, ValueError.
---@param tf table  for the ops
---@param x tfdist.Tensor|tfdist.Variable
---@param key any
---@return tfdist.Tensor
function M.get(tf, x, key)
  local kind = type(key)
  text.check_open(x, "index")
  if kind == "number" then
    return row(tf, x, key)
  elseif kind == "table" and (text.is_plain(key) or key == M.newaxis) then
    return slice(tf, x, key == M.newaxis and { key } or key)
  elseif kind == "userdata" and raw.is_operand(key) then
    return by_tensor(tf, x, key)
  elseif key == "..." then
    return slice(tf, x, { key })
  end
  text.check_open(key, "index", "the tensor of positions")
  errors.raise("TypeError", "index: a position, a list of slices or a tensor "
    .. "expected, got " .. text.describe(key))
end

return M
