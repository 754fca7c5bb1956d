--- Positions that only a call of a traced function knows: of x[{ i, {} }], of
--- the begins of tf.slice and tf.strided_slice.
---
--- The sizes are known, so the graph is one for all positions: it gathers along
--- each axis that has such a position.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local type = type

local WHOLE = {
  int8 = true, uint8 = true, int16 = true, uint16 = true, int32 = true,
  uint32 = true, int64 = true,
}

--- The tensor of an operand whose values only a call knows, else nil.
---@param x any
---@return tfdist.Tensor?
local function unknown(x)
  if type(x) ~= "userdata" or not raw.is_operand(x) then
    return nil
  end
  local t = raw.operand_tensor(x)
  return tracing.is_symbolic(t) and t or nil
end

M.unknown = unknown

-- A scalar as a position that gather takes.
local function position(tf, what, at)
  local dtype = raw.tensor_dtype(at)
  if not WHOLE[dtype] then
    errors.raise("TypeError", ("%s: a position must be a whole number, got a "
      .. "scalar (%s) that only a call of the traced function knows"):format(
      what, dtype), "tf.cast(i, \"int32\") cuts it to a whole one")
  elseif dtype ~= "int32" and dtype ~= "int64" then
    at = tf.cast(at, "int64")
  end
  return at
end

--- The same counted from the end where it is negative. One outside of the n
--- positions stays as it is, for the error that a call then raises to show it.
---@param tf table
---@param what string
---@param at tfdist.Tensor  scalar
---@param n integer  -1 = only a call knows: nothing counts from the end
---@return tfdist.Tensor
function M.from_begin(tf, what, at, n)
  at = position(tf, what, at)
  if n < 0 then
    return at
  end
  return tf.where(tf.logical_and(tf.less(at, 0),
    tf.greater_equal(at, -n)), at + n, at)
end

--- y at positions of some of its axes, which go.
---@param tf table
---@param what string
---@param y tfdist.Tensor
---@param axes table[]  { axis, scalar }, by rising axis
---@return tfdist.Tensor
function M.gather(tf, what, y, axes)
  for i = #axes, 1, -1 do
    local axis, at = axes[i][1], axes[i][2]
    y = tf.gather(y, M.from_begin(tf, what, at, raw.tensor_dims(y)[axis + 1]),
      { axis = axis })
  end
  return y
end

local function length(key)
  local n = 0
  for k in pairs(key) do
    if type(k) == "number" and k > n then
      n = k
    end
  end
  return type(key.n) == "number" and key.n > n and key.n or n
end

--- x[key] for a list with such scalars among its positions.
---@param tf table
---@param index fun(x, key):tfdist.Tensor  for a list without them
---@param x tfdist.Tensor|tfdist.Variable
---@param key table
---@param newaxis table
---@return tfdist.Tensor
function M.index(tf, index, x, key, newaxis)
  local n, named, out = length(key), 0, 0
  for i = 1, n do
    if key[i] ~= newaxis and key[i] ~= "..." then
      named = named + 1
    end
  end
  local rank = raw.tensor_rank(raw.operand_tensor(x))
  local rest, axes = { n = n }, {}
  for i = 1, n do
    local entry = key[i]
    local at = unknown(entry)
    rest[i] = entry
    if at ~= nil then
      rest[i] = {}
      axes[#axes + 1] = { out, at }
    end
    if entry == "..." then
      out = out + rank - named
    elseif entry == nil or entry == newaxis or at ~= nil
      or text.is_plain(entry) then
      out = out + 1
    end
  end
  return M.gather(tf, "index", index(x, rest), axes)
end

--- The entries of an argument that is a list of whole numbers, scalars that only
--- a call knows among them; nil where there are none of these.
--- Errors: NotImplementedError for a vector whose size only a call knows.
---@param tf table
---@param what string
---@param name string
---@param x any
---@return table?
function M.entries(tf, what, name, x)
  local t = unknown(x)
  if t ~= nil then
    local dims = raw.tensor_dims(t)
    if #dims ~= 1 or not WHOLE[raw.tensor_dtype(t)] then
      errors.raise("TypeError", ("%s: %s must be a list of whole numbers, got a "
        .. "%s tensor of rank %d"):format(what, name, raw.tensor_dtype(t),
        #dims))
    elseif dims[1] < 0 then
      errors.raise("NotImplementedError", ("%s: %s is a list whose length only "
        .. "a call of the traced function knows"):format(what, name))
    end
    return tf.unstack(t)
  elseif not text.is_plain(x) then
    return nil
  end
  local list, found = {}, false
  for i = 1, #x do
    list[i] = unknown(x[i])
    found = found or list[i] ~= nil
  end
  for i = 1, found and #x or 0 do
    list[i] = list[i] or convert.integers({ x[i] }, what, name)[1]
  end
  return found and list or nil
end

--- Refuse an argument that says a size and that only a call knows.
--- Errors: NotImplementedError.
---@param what string
---@param name string
---@param instead string
function M.refuse(what, name, instead)
  errors.raise("NotImplementedError", ("%s: %s is known to a call of the traced "
    .. "function only, and the size of the result would depend on it"):format(
    what, name), instead)
end

local ROWS = "n rows from i on are tf.gather(x, i + tf.range(n)); tf.where with "
  .. "a mask of positions keeps the size; or slice outside of the function"

M.ROWS = ROWS

--- tf.slice(x, begin, size), with begin as M.entries gives it.
---@param tf table
---@param x tfdist.Tensor
---@param begin table
---@param size integer[]
---@return tfdist.Tensor
function M.slice(tf, x, begin, size)
  local dims = raw.tensor_dims(raw.operand_tensor(x))
  if #begin ~= #dims or #size ~= #dims then
    errors.raise("InvalidArgument", ("slice: begin has %d entries and size %d "
      .. "for a tensor of shape %s"):format(#begin, #size, text.shape(dims)))
  end
  local first, part = {}, {}
  for axis = 1, #dims do
    local moves = unknown(begin[axis]) ~= nil
    if moves and size[axis] < 0 then
      M.refuse("slice", "begin of axis " .. (axis - 1) .. ", where size is -1,",
        ROWS)
    elseif moves and dims[axis] >= 0 and size[axis] > dims[axis] then
      errors.raise("InvalidArgument", ("slice: axis %d: size %s does not fit a "
        .. "tensor of shape %s"):format(axis - 1, text.number(size[axis]),
        text.shape(dims)))
    end
    first[axis] = moves and 0 or begin[axis]
    part[axis] = moves and -1 or size[axis]
  end
  local y = tf.raw_ops.slice(x, first, part)
  for axis = 1, #dims do
    local at = unknown(begin[axis])
    if at ~= nil then
      at = position(tf, "slice", at)
      y = tf.gather(y, at + tf.range(size[axis],
        { dtype = raw.tensor_dtype(at) }), { axis = axis - 1 })
    end
  end
  return y
end

return M
