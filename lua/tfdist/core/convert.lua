--- From what users write to operands: numbers, booleans, nested tables and
--- objects that stand for a tensor.
---
--- An object of another module becomes usable wherever a tensor is expected by
--- a metatable field `__tensor(x, dtype, what, argument)` that returns an
--- operand or raises.
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local getmetatable, next, type = getmetatable, next, type
local is_operand = raw.is_operand
local is_plain, is_plain_meta = text.is_plain, text.is_plain_meta
local MAX_RANK = 8

local KINDS = {
  tensor = "a Tensor", slices = "IndexedSlices", tape = "a GradientTape",
  device = "a device", context = "a context", walk = "a gradient walk",
}

text.set_released(function(x)
  return type(x) == "userdata" and raw.is_released(x)
end)

text.add_describer(function(x)
  if type(x) == "userdata" then
    local kind = raw.kind(x)
    if kind == nil then
      return nil
    elseif raw.is_released(x) then
      return kind == "slices" and "released IndexedSlices"
        or "a released " .. kind
    elseif kind == "variable" then
      return "the Variable " .. text.quote(raw.variable_name(x))
    end
    return KINDS[kind] or "a " .. kind
  elseif type(x) == "table" then
    local meta = getmetatable(x)
    if type(meta) == "table" and type(meta.__name) == "string" then
      return "a " .. meta.__name
    end
  end
  return nil
end)

local INTEGER = {
  int8 = true, int16 = true, int32 = true, int64 = true, uint8 = true,
}
local FLOATING = {
  float16 = true, bfloat16 = true, float32 = true, float64 = true,
}

M.INTEGER = INTEGER
M.FLOATING = FLOATING

--- The dtype as listed ("float32") from a name in any case, nil for nil.
--- Errors: TypeError naming the dtypes there are; NotImplementedError for
---   "string", which only elements of datasets have.
---@param dtype string|nil
---@param what string
---@return string|nil
function M.dtype(dtype, what)
  if dtype == nil or raw.enums.dtype[dtype] ~= nil then
    return dtype
  end
  local name = type(dtype) == "string" and dtype:lower() or nil
  if name ~= nil and raw.enums.dtype[name] ~= nil then
    return name
  elseif name == "string" then
    errors.raise("NotImplementedError", what .. ": there are no tensors of "
      .. "strings", "strings are Lua strings; elements of datasets can be "
      .. "tf.string")
  end
  errors.raise("TypeError", ("%s: %s is no dtype"):format(what,
    type(dtype) == "string" and text.quote(dtype) or text.describe(dtype)),
    type(dtype) == "number" and (what == "zeros" or what == "ones")
    and "several sizes go in as one table: { 2, 3 }"
    or "dtypes are " .. table.concat(text.names(raw.enums.dtype), ", "))
end

-- A copy of a list of whole numbers and nothing else; nil for anything else.
local function plain_integers(x)
  if type(x) ~= "table" or getmetatable(x) ~= nil then
    return nil
  end
  local n = #x
  if next(x, n > 0 and n or nil) ~= nil then
    return nil
  end
  local list = {}
  for i = 1, n do
    local value = x[i]
    if type(value) ~= "number" or value % 1 ~= 0 or value > 2 ^ 53
      or value < -2 ^ 53 then
      return nil
    end
    list[i] = value
  end
  return list
end

--- The whole number, from `least` to `most`, that x is or that a scalar tensor
--- holds; nil stays nil.
--- Errors: NotImplementedError where only a call knows it.
function M.integer(x, what, name, least, most)
  if type(x) == "userdata" and is_operand(x) then
    tracing.need_counts(what, name, x)
    local t = raw.operand_tensor(x)
    if raw.tensor_size(t) ~= 1 then
      errors.raise("TypeError", ("%s: %s must be a whole number, got a tensor of "
        .. "shape %s"):format(what, name, text.shape(raw.tensor_dims(t))))
    end
    x = raw.item(t)
  end
  return x ~= nil and options.integer(what, name, x, least, most) or nil
end

--- The number that x is or that a scalar tensor holds.
--- Errors: TypeError; NotImplementedError where only a call knows it.
function M.number(x, what, name)
  if type(x) == "userdata" and is_operand(x) then
    tracing.need_counts(what, name, x)
    local t = raw.operand_tensor(x)
    if raw.tensor_rank(t) == 0 and raw.tensor_dtype(t) ~= "bool" then
      return raw.item(t)
    end
  elseif type(x) == "number" then
    return x
  end
  errors.raise("TypeError", ("%s: %s must be a number, got %s"):format(what, name,
    text.describe(x)))
end

--- A sequence of sizes as a plain list: from a list, a number or an integer
--- tensor. Entries are whole numbers.
---@param x any
---@param what string
---@param name string  the argument
---@return integer[]
function M.integers(x, what, name)
  local plain = plain_integers(x)
  if plain ~= nil then
    return plain
  elseif type(x) == "number" then
    x = { x }
  end
  tracing.need_counts(what, name, x)
  if type(x) == "userdata" and is_operand(x) then
    local t = raw.operand_tensor(x)
    if not INTEGER[raw.tensor_dtype(t)] or raw.tensor_rank(t) > 1 then
      errors.raise("TypeError", ("%s: %s must be a list of whole numbers, "
        .. "got a %s tensor of rank %d"):format(what, name,
        raw.tensor_dtype(t), raw.tensor_rank(t)))
    end
    return raw.tensor_to_flat(t)
  elseif not is_plain(x) then
    text.check_open(x, what, name)
    errors.raise("TypeError", ("%s: %s must be a list of whole numbers, got %s")
      :format(what, name, text.describe(x)))
  end
  local list = {}
  local _, n = options.list(what, name, x, "whole numbers")
  for i = 1, n do
    local value = x[i]
    if type(value) == "userdata" and is_operand(value) then
      value = raw.item(raw.operand_tensor(value))
    end
    if type(value) ~= "number" then
      errors.raise("TypeError", ("%s: %s must be a list of whole numbers, got "
        .. "%s in it"):format(what, name, text.describe(value)),
        value == nil and name:find "shape"
        and "an unknown size is written -1" or nil)
    elseif not text.is_int64(value) then
      errors.raise("ValueError", ("%s: %s must be whole numbers%s, got %s")
        :format(what, name, text.is_whole(value) and " of 64 bits" or "",
        text.number(value)))
    end
    list[i] = value
  end
  for key in pairs(x) do
    if type(key) == "string" and key ~= "n" then
      errors.raise("TypeError", ("%s: %s must be a list of whole numbers, got "
        .. "a table with key %s"):format(what, name, text.quote(key)))
    end
  end
  return list
end

local function first_leaf(x)
  local depth = 0
  while is_plain(x) and depth < 9 do
    x, depth = x[1], depth + 1
  end
  return x
end

local function bad(x, what, name)
  text.check_open(x, what, name)
  errors.raise("TypeError", ("%s: %s must be a tensor, got %s"):format(
    what, name, text.describe(x)))
end

local convert

-- A list with tensors among its leaves: packed along a new axis 0.
local function pack(list, dtype, what, name, depth)
  if depth == MAX_RANK then
    errors.raise("ValueError", ("%s: %s is nested deeper than %d levels or "
      .. "contains itself"):format(what, name, MAX_RANK))
  end
  local parts = {}
  local _
  _, parts.n = options.list(what, name, list, "tensors")
  if dtype == nil then
    for i = 1, parts.n do
      local x = first_leaf(list[i])
      if type(x) == "userdata" and is_operand(x) then
        dtype = raw.tensor_dtype(raw.operand_tensor(x))
        break
      end
    end
  end
  for i = 1, parts.n do
    parts[i] = convert(list[i], dtype, what, name, depth + 1)
  end
  return raw.op_run(raw.op_find "stack", parts, { 0 })
end

local function from_number(x, dtype, what, name)
  if INTEGER[dtype] and x ~= math.floor(x) then
    errors.raise("TypeError", ("%s: %s is %s, which is no %s"):format(what,
      name, text.number(x), dtype), "tf.cast changes a tensor's dtype")
  elseif dtype == "bool" then
    dtype = nil
  end
  return (raw.tensor_from_table(x, dtype, what, name))
end

--- An operand for x; IndexedSlices become dense. Numbers and tables get
--- `dtype`, or float32 (booleans are always bool); operands are returned as
--- they are.
--- Errors: TypeError naming the argument and what was given.
---@param x any
---@param dtype string|nil
---@param what string  operation, for messages
---@param name string  argument, for messages
---@param depth? integer  lists around x
---@return userdata
function convert(x, dtype, what, name, depth)
  local kind = type(x)
  if kind == "userdata" and is_operand(x) then
    return x
  elseif kind == "number" then
    return from_number(x, dtype, what, name)
  elseif kind == "boolean" then
    return (raw.tensor_from_table(x, nil, what, name))
  elseif kind == "userdata" and raw.kind(x) == "slices"
    and not raw.is_released(x) then
    return raw.slices_to_dense(x)
  end
  local meta = getmetatable(x)
  if kind == "table" and is_plain_meta(meta) then
    if type(first_leaf(x)) == "boolean" then
      dtype = nil
    elseif dtype == "bool" then
      dtype = nil
    end
    local t, why = raw.tensor_from_table(x, dtype, what, name)
    if t == nil and why == "handle" then
      return pack(x, dtype, what, name, depth or 0)
    end
    return t
  elseif type(meta) == "table" and meta.__tensor ~= nil then
    return meta.__tensor(x, dtype, what, name)
  end
  return bad(x, what, name)
end

M.operand = convert

--- Like operand, for positions, labels and the like: numbers become int32.
function M.index_operand(x, what, name)
  if type(x) == "userdata" and is_operand(x) then
    return x
  end
  return convert(x, "int32", what, name)
end

--- The same for what must be whole numbers; its dtype as second value.
--- Errors: InvalidArgument for another dtype.
function M.whole_operand(x, what, name)
  local t = M.index_operand(x, what, name)
  local dtype = raw.tensor_dtype(raw.operand_tensor(t))
  if not INTEGER[dtype] then
    errors.raise("InvalidArgument", ("%s: %s has dtype %s; expected an integer "
      .. "dtype"):format(what, name, dtype))
  end
  return t, dtype
end

--- The dtype that Lua numbers among the operands take: that of the first
--- operand that is not bool, nil when there is none. Positions and labels,
--- marked "n" or "n?", say nothing about it.
---@param values any[]
---@param n integer
---@param marks? string[]
---@return string|nil
function M.common_dtype(values, n, marks)
  for i = 1, n do
    local x = values[i]
    if marks ~= nil and marks[i]:sub(1, 1) == "n" then
      x = nil
    end
    if type(x) == "userdata" and is_operand(x) then
      local dtype = raw.operand_dtype(x)
      if dtype ~= "bool" then
        return dtype
      end
    elseif type(x) == "table" then
      local meta = getmetatable(x)
      if is_plain_meta(meta) then
        x = first_leaf(x)
        if type(x) == "userdata" and is_operand(x) then
          return raw.operand_dtype(x)
        end
      elseif type(meta) == "table" and meta.__tensor ~= nil then
        local dtype = x.dtype
        if dtype ~= nil and dtype ~= "bool" then
          return dtype
        end
      end
    end
  end
  return nil
end

--- A tensor (not a variable) for x: variables are read, slices made dense.
---@param x any
---@param dtype string|nil
---@param what string
---@param name string
---@return tfdist.Tensor
function M.tensor(x, dtype, what, name)
  local operand = convert(x, dtype, what, name)
  local kind = raw.kind(operand)
  if kind == "variable" then
    return raw.variable_read(operand)
  elseif kind == "mirrored" then
    return raw.mirrored_read(operand)
  elseif kind ~= "tensor" then
    return raw.operand_tensor(operand)
  end
  return operand
end

return M
