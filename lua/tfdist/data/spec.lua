--- tf.TensorSpec and structures of them: what the elements of a data set are.
---
--- An unknown size is -1 in `shape` ("?" in print); an unknown rank is a nil
--- shape. The structure of an element mirrors the element: one spec for one
--- component, a list of specs for several (a tuple), a table for keys.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local strings = require "tfdist.core.strings"
local text = require "tfdist.base.text"

local M = {}

local type = type

local TensorSpec = { __name = "TensorSpec" }
TensorSpec.__index = TensorSpec

--- True for tensor specs.
function M.is_spec(x)
  return getmetatable(x) == TensorSpec
end

local function dims_text(dims)
  if dims == nil then
    return "of any shape"
  end
  local parts = {}
  for i = 1, #dims do
    parts[i] = dims[i] < 0 and "?" or dims[i]
  end
  return text.shape(parts)
end

--- "{?, 28, 28}".
M.dims_text = dims_text

function TensorSpec:__tostring()
  return ("TensorSpec(%s %s%s)"):format(self.dtype, dims_text(self.shape),
    self.name and ", " .. text.quote(self.name) or "")
end

function TensorSpec.__eq(a, b)
  return M.is_spec(a) and M.is_spec(b) and a.dtype == b.dtype
    and dims_text(a.shape) == dims_text(b.shape)
end

--- A spec without checks: dims as a list with -1 for unknown, or nil.
---@param dims integer[]|nil
---@param dtype string
---@param name? string
function M.new(dims, dtype, name)
  return setmetatable({ shape = dims, dtype = dtype, name = name }, TensorSpec)
end

--- The dtype as listed; "string" is one here.
--- Errors: TypeError.
function M.dtype(dtype, what)
  if type(dtype) == "string" and dtype:lower() == "string" then
    return "string"
  end
  return convert.dtype(dtype, what)
end

--- A shape as people write it: sizes, with -1 or nil (and `n`) for unknown.
--- Errors: TypeError, ValueError.
---@return integer[]|nil
function M.dims(what, shape)
  if shape == nil then
    return nil
  end
  local list, n = options.list(what, "shape", shape, "sizes")
  for key in pairs(list) do
    if text.is_whole(key) and key > n then
      n = key
    end
  end
  local dims = {}
  for i = 1, n do
    local size = list[i]
    dims[i] = size == nil and -1 or options.integer(what, "shape", size, -1)
  end
  return dims
end

--- What a component looks like: tf.TensorSpec(shape, dtype="float32", name).
--- shape: sizes, -1 where any size goes; nil when any rank goes.
--- Source: tf.TensorSpec
M.TensorSpec = options.wrap("TensorSpec",
  "shape:table=nil dtype='float32' name=nil", function(shape, dtype, name)
    return M.new(M.dims("TensorSpec", shape), M.dtype(dtype, "TensorSpec"),
      name)
  end)

--- The spec of one component as it is: a tensor, a string, a tensor of
--- strings, a data set (which is its own spec's structure).
function M.of(x)
  if type(x) == "string" then
    return M.new({}, "string")
  elseif strings.is(x) then
    return M.new(strings.dims(x), "string")
  elseif type(x) == "userdata" then
    return M.new(raw.tensor_dims(x), raw.tensor_dtype(x))
  end
  return x
end

--- True when every size of every component is known.
function M.is_static(structure)
  local flat = nest.flatten(structure)
  for i = 1, flat.n do
    local spec = flat[i]
    if not M.is_spec(spec) or spec.shape == nil then
      return false
    end
    for k = 1, #spec.shape do
      if spec.shape[k] < 0 then
        return false
      end
    end
  end
  return true
end

--- A spec that both fit: sizes that differ become unknown. Datatypes that
--- differ are an error of `what`.
function M.widen(a, b, what)
  if not (M.is_spec(a) and M.is_spec(b)) then
    return a
  elseif a.dtype ~= b.dtype then
    errors.raise("TypeError", ("%s: a component is %s in one and %s in "
      .. "another"):format(what, a.dtype, b.dtype))
  elseif a.shape == nil or b.shape == nil or #a.shape ~= #b.shape then
    return M.new(nil, a.dtype)
  end
  local dims = {}
  for i = 1, #a.shape do
    dims[i] = a.shape[i] == b.shape[i] and a.shape[i] or -1
  end
  return M.new(dims, a.dtype)
end

--- A spec with another axis in front.
function M.batched(x, size)
  if not M.is_spec(x) then
    return x
  elseif x.shape == nil then
    return M.new(nil, x.dtype)
  end
  return M.new(lists.append({ size }, x.shape), x.dtype)
end

--- A spec without its first axis.
function M.row(x)
  if not M.is_spec(x) or x.shape == nil then
    return x
  end
  return M.new(lists.copy(x.shape, 2), x.dtype)
end

--- True when a component of spec `got` may stand where `spec` is asked for.
function M.fits(spec, got)
  if spec.dtype ~= got.dtype then
    return false
  elseif spec.shape == nil or got.shape == nil then
    return true
  elseif #spec.shape ~= #got.shape then
    return false
  end
  for i = 1, #spec.shape do
    if spec.shape[i] >= 0 and got.shape[i] >= 0
      and spec.shape[i] ~= got.shape[i] then
      return false
    end
  end
  return true
end

--- "float32 {?, 28}" of a spec, for tables and messages.
function M.short(x)
  if M.is_spec(x) then
    return x.dtype .. " " .. dims_text(x.shape)
  end
  return text.describe(x)
end

--- The same for a structure: "uint8 {28, 28}, uint8 {}".
function M.structure_text(structure)
  if not nest.is_nested(structure) then
    return M.short(structure)
  end
  local n, keys = nest.layout(structure)
  local parts = {}
  for i = 1, n do
    parts[i] = M.structure_text(structure[i])
  end
  for i = 1, keys and #keys or 0 do
    parts[#parts + 1] = tostring(keys[i]) .. " = "
      .. M.structure_text(structure[keys[i]])
  end
  return "(" .. table.concat(parts, ", ") .. ")"
end

return M
