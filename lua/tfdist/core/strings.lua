--- Tensors of strings: they live on the host, as lists of Lua strings.
---
--- A scalar is a plain Lua string. With one or more axes it is an object with
--- `shape`, `dtype` ("string"), `t[i]` (row i, from 0), `t:item(i)`,
--- `t:totable()`, `t:toflat()`, `t:numel()`, and a text.
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"

local M = {}

local copy, product = lists.copy, lists.product

local type = type

local Strings = { __name = "Tensor of strings" }
local methods = {}

--- True for tensors of strings with at least one axis.
function M.is(x)
  return type(x) == "table" and getmetatable(x) == Strings
end

--- A tensor of strings. The list is kept, not copied.
---@param list string[]      row-major
---@param dims integer[]     at least one axis; by default {#list}
function M.new(list, dims)
  dims = dims or { #list }
  if product(dims) ~= #list then
    errors.raise("InvalidArgument", ("strings: %d strings do not fill shape %s")
      :format(#list, text.shape(dims)))
  end
  return setmetatable({ list = list, dims = dims }, Strings)
end

--- Its sizes.
function M.dims(x)
  return copy(x.dims)
end

local function sub(x, first, count, dims)
  local out = {}
  for i = 1, count do
    out[i] = x.list[first + i]
  end
  return M.new(out, dims)
end

--- Rows first .. first + count - 1 along axis 0.
function M.rows(x, first, count)
  local inner = product(x.dims, 2)
  local dims = copy(x.dims)
  dims[1] = count
  return sub(x, first * inner, count * inner, dims)
end

--- Row i: a string, or strings with one axis less.
function M.row(x, i)
  if #x.dims == 1 then
    return x.list[i + 1]
  end
  local inner = product(x.dims, 2)
  return sub(x, i * inner, inner, copy(x.dims, 2))
end

--- Rows at the positions indices[1..n], counted from 0.
function M.gather(x, indices, n)
  local inner, out = product(x.dims, 2), {}
  for i = 1, n do
    local from = indices[i] * inner
    for k = 1, inner do
      out[#out + 1] = x.list[from + k]
    end
  end
  local dims = copy(x.dims)
  dims[1] = n
  return M.new(out, dims)
end

local function dims_of(x)
  return type(x) == "string" and {} or x.dims
end

--- Components parts[1..n] of equal shape along a new axis 0.
--- Errors: InvalidArgument.
function M.stack(parts, n, what)
  local inner, out = dims_of(parts[1]), {}
  for i = 1, n do
    local x = parts[i]
    local own = dims_of(x)
    if text.shape(own) ~= text.shape(inner) then
      errors.raise("InvalidArgument", ("%s: strings of shapes %s and %s cannot "
        .. "be stacked"):format(what, text.shape(inner), text.shape(own)))
    elseif type(x) == "string" then
      out[#out + 1] = x
    else
      lists.append(out, x.list)
    end
  end
  return M.new(out, lists.append({ n }, inner))
end

--- Joined along axis 0.
function M.concat(parts, n)
  local out, dims = {}, copy(parts[1].dims)
  dims[1] = 0
  for i = 1, n do
    dims[1] = dims[1] + parts[i].dims[1]
    for k = 1, #parts[i].list do
      out[#out + 1] = parts[i].list[k]
    end
  end
  return M.new(out, dims)
end

local function nested(x, axis, from)
  local out, size = {}, x.dims[axis]
  local inner = product(x.dims, axis + 1)
  for i = 1, size do
    out[i] = axis == #x.dims and x.list[from + i]
      or nested(x, axis + 1, from + (i - 1) * inner)
  end
  return out
end

--- A tensor of strings from nested lists of strings.
--- Errors: ValueError when they are ragged, TypeError for other leaves.
function M.from_table(list, what)
  local dims, x = {}, list
  while type(x) == "table" do
    dims[#dims + 1] = x.n or #x
    x = x[1]
  end
  local out = {}
  local function fill(part, axis)
    if axis > #dims then
      if type(part) ~= "string" then
        errors.raise("TypeError", ("%s: a list of strings has %s in it")
          :format(what, text.describe(part)))
      end
      out[#out + 1] = part
      return
    elseif type(part) ~= "table" or (part.n or #part) ~= dims[axis] then
      errors.raise("ValueError", what .. ": nested lists of strings must be "
        .. "rectangular")
    end
    for i = 1, dims[axis] do
      fill(part[i], axis + 1)
    end
  end
  fill(list, 1)
  return M.new(out, dims)
end

-- What users see -------------------------------------------------------------

local function check(self, name)
  if not M.is(self) then
    options.wrong_self("Tensor." .. name, "tensor", self)
  end
end

--- The only string, or the i-th (row-major, from 0).
--- Errors: ValueError, IndexError.
function methods.item(self, i)
  check(self, "item")
  if i == nil and #self.list ~= 1 then
    errors.raise("ValueError", ("item: the tensor has shape %s; only a tensor "
      .. "with one element has one value"):format(text.shape(self.dims)))
  end
  local found = self.list[(i or 0) + 1]
  if found == nil then
    errors.raise("IndexError", ("item: %s is outside a tensor of %d strings")
      :format(text.describe(i), #self.list))
  end
  return found
end

--- Nested Lua lists of the strings.
function methods.totable(self)
  check(self, "totable")
  return nested(self, 1, 0)
end

--- All strings as one list, row-major.
function methods.toflat(self)
  check(self, "toflat")
  return copy(self.list)
end

--- Number of strings.
function methods.numel(self)
  check(self, "numel")
  return #self.list
end

methods.size = methods.numel

function Strings.__index(self, key)
  if key == "shape" then
    return M.dims(self)
  elseif key == "dtype" then
    return "string"
  elseif key == "rank" or key == "ndim" then
    return #rawget(self, "dims")
  elseif methods[key] ~= nil then
    return methods[key]
  elseif text.is_whole(key) then
    local n = rawget(self, "dims")[1]
    local i = key < 0 and key + n or key
    if i < 0 or i >= n then
      errors.raise("IndexError", ("index: %s is outside axis 0 of size %d of a "
        .. "tensor of strings"):format(text.number(key), n))
    end
    return M.row(self, i)
  end
  return nil
end

-- LuaJIT knows no length of tables but their own: shape[1] works everywhere.
function Strings.__len(self)
  return self.dims[1]
end

function Strings.__tostring(self)
  local parts = {}
  for i = 1, math.min(#self.list, 10) do
    parts[i] = text.quote(self.list[i])
  end
  if #self.list > 10 then
    parts[11] = "... " .. #self.list - 10 .. " more"
  end
  return ("Tensor string %s: %s"):format(text.shape(self.dims),
    table.concat(parts, " "))
end

return M
