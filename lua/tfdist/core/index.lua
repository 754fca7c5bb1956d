--- Positions and slices inside tensors: t[0], t[{ {1, 3}, {}, -1 }].
---
--- An entry of the list is a position (dropped axis; -1 is the last), a range
--- { begin, end, step } half-open as in Python with any part nil or left out,
--- numbers or scalars (known ones: a traced function takes others as positions
--- only),
--- {} or nil for the whole axis, tf.newaxis for a new axis of size 1, or "..."
--- for as many whole axes as are left. t[tensor] takes the position of a scalar,
--- rows by a tensor of integers (tf.gather) or by a boolean one
--- (tf.boolean_mask).
local errors = require "tfdist.base.errors"
local moving = require "tfdist.core.moving"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

local type = type
local index = raw.index

--- Marks a new axis in a list of slices.
M.newaxis = setmetatable({}, {
  __tostring = function() return "tf.newaxis" end,
})

local function shape_of(x)
  return raw.tensor_dims(raw.operand_tensor(x))
end

-- What C finds wrong with a key, by the name that it has there.
local problems = {}

function problems.whole(x)
  errors.raise("TypeError", "index: a position must be a whole number, got "
    .. (type(x) == "number" and text.number(x) or text.describe(x)))
end

function problems.outside(at, axis, x)
  local dims = shape_of(x)
  local size = dims[axis + 1]
  errors.raise("IndexError", ("index: %s is outside axis %d of size %s of a "
    .. "tensor of shape %s; positions count from 0, -1 is the last"):format(
    text.number(at), axis, text.number(size), text.shape(dims)),
    -- where ipairs ends, which starts from 1
    at == size and "for i, row in t:iter() do goes through the rows" or nil)
end

function problems.open(axis, x)
  errors.raise("NotImplementedError", ("index: axis %d of a tensor of shape %s "
    .. "has a size that only a call knows; in a graph for all sizes positions "
    .. "count from its begin, and ranges go on to its end"):format(axis,
    text.shape(shape_of(x))))
end

function problems.entry(axis, key)
  errors.raise("ValueError", ("index: the range for axis %d must be { begin, "
    .. "end, step }, got an entry %s"):format(axis, tostring(key)))
end

function problems.step(axis)
  errors.raise("ValueError", ("index: the step of the range for axis %d is 0")
    :format(axis))
end

function problems.key(key)
  errors.raise("TypeError", "index: a list of positions and ranges has no "
    .. "entry " .. text.describe(key))
end

function problems.scalar(t)
  errors.raise("TypeError", "index: a tensor inside a list of positions must "
    .. "be a scalar, got shape " .. text.shape(shape_of(t)),
    "tf.gather takes rows by a tensor of positions")
end

function problems.unknown(axis, x, t)
  errors.raise("NotImplementedError", ("index: a part of the range for axis %d "
    .. "of a tensor of shape %s is a scalar (%s) that only a call of the traced "
    .. "function knows; the size of the result would depend on it"):format(axis,
    text.shape(shape_of(x)), raw.tensor_dtype(raw.operand_tensor(t))),
    "n rows from i on are tf.gather(x, i + tf.range(n)); tf.where with a mask of "
    .. "positions keeps the size; or slice outside of the function")
end

function problems.dots()
  errors.raise("ValueError", 'index: only one "..." is possible')
end

function problems.rank(used, x)
  local dims = shape_of(x)
  errors.raise("IndexError", ("index: %d positions for a tensor of rank %d %s")
    :format(used, #dims, text.shape(dims)))
end

function problems.none()
  errors.raise("IndexError", "index: a scalar has no positions",
    "t:item() is its value")
end

raw.set_hook("index", function(problem, ...)
  return problems[problem](...)
end)

local WHOLE = { {} }

local function plain_get(x, key)
  return index(x, key, M.newaxis)
end

-- x at a scalar position, which counts from the end where it is negative. It is a
-- slice: its gradient is dense, unlike that of the rows that tf.gather takes. One
-- outside is gathered, for the error that this raises.
local function by_scalar(tf, x, key, t)
  local n = shape_of(x)[1]
  if n == nil then
    problems.none()
  elseif moving.unknown(t) ~= nil then
    return moving.index(tf, plain_get, x, { t }, M.newaxis)
  end
  local at = raw.item(t)
  if at >= -n and at < n then
    return plain_get(x, at)
  end
  return tf.gather(plain_get(x, WHOLE), key)
end

local function by_tensor(tf, x, key)
  local dtype = raw.tensor_dtype(raw.operand_tensor(key))
  if dtype == "bool" then
    return tf.boolean_mask(x, key)
  elseif dtype == "int32" or dtype == "int64" then
    local t = raw.operand_tensor(key)
    if raw.tensor_rank(t) == 0 then
      return by_scalar(tf, x, key, t)
    end
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
  local result = index(x, key, M.newaxis)
  if result ~= nil then
    return result
  end
  text.check_open(x, "index")
  if text.is_plain(key) and raw.is_operand(x) then
    return moving.index(tf, plain_get, x, key, M.newaxis)
  end
  if type(key) == "userdata" and raw.is_operand(key) then
    return by_tensor(tf, x, key)
  end
  text.check_open(key, "index", "the tensor of positions")
  errors.raise("TypeError", "index: a position, a list of slices or a tensor "
    .. "expected, got " .. text.describe(key))
end

return M
