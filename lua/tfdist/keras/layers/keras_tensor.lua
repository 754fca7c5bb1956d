--- KerasTensor: a tensor that is not there yet. tf.keras.Input makes one, a
--- layer called with some gives some; each remembers the call it came from.
---
--- `shape` is a Lua list with -1 for a size that is not known yet (the batch).
local errors = require "tfdist.base.errors"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

local getmetatable, type = getmetatable, type
local MAX_DEPTH = 200

local KerasTensor = { __name = "KerasTensor" }
M.metatable = KerasTensor

--- What layers answer, put in once: op(name, ...) makes a layer of a tensor
--- method and calls it; is_method(name) knows them; slice(x, key) makes one of
--- x[key].
local hooks = {}
M.hooks = hooks

-- Methods that ask a tensor for its values.
local ASKING = {
  bytes = true, data = true, item = true, iter = true, numel = true,
  release = true, size = true, toflat = true, totable = true, wait = true,
}

--- True for KerasTensors.
local function is_symbolic(x)
  return type(x) == "table" and getmetatable(x) == KerasTensor
end

M.is_symbolic = is_symbolic

--- True when a structure holds a KerasTensor.
local function has_symbolic(x, depth)
  if type(x) ~= "table" then
    return false
  end
  local meta = getmetatable(x)
  if meta ~= nil then
    return meta == KerasTensor
  end
  depth = depth or MAX_DEPTH
  if depth == 0 then
    return false
  end
  for _, value in pairs(x) do
    if has_symbolic(value, depth - 1) then
      return true
    end
  end
  return false
end

M.has_symbolic = has_symbolic

--- A KerasTensor that comes out of `node` as result number `index`.
---@param shape integer[]
---@param dtype string
---@param name string
---@param node table|nil
---@param index integer
function M.new(shape, dtype, name, node, index)
  return setmetatable({
    shape = shape, dtype = dtype, name = name, node = node, index = index,
  }, KerasTensor)
end

--- "(B, 26, ?)": the first axis is the batch.
---@param shape integer[]
---@return string
function M.shape_text(shape)
  local parts = {}
  for i = 1, #shape do
    parts[i] = shape[i] >= 0 and text.number(shape[i])
      or (i == 1 and "B" or "?")
  end
  return "(" .. table.concat(parts, ", ") .. ")"
end

local function no_values(x, what, name)
  errors.raise("TypeError", ("%s: %s is a KerasTensor %s, which has no values "
    .. "yet"):format(what, name, M.shape_text(x.shape)),
    "put the function into a layer: tf.keras.layers.Lambda(function(x) ... "
    .. "end)(x)")
end

function KerasTensor:__index(key)
  if key == "rank" or key == "ndim" then
    return #self.shape
  elseif type(key) ~= "string" then
    if has_symbolic(key) then
      no_values(key, "x[i]", "i")
    end
    return hooks.slice(self, key)
  elseif ASKING[key] then
    return function(x)
      no_values(x, key, "x")
    end
  elseif hooks.is_method ~= nil and hooks.is_method(key) then
    return function(...)
      return hooks.op(key, ...)
    end
  end
  return nil
end

function KerasTensor:__tostring()
  return ("KerasTensor %s %s %s"):format(self.dtype,
    M.shape_text(self.shape), text.quote(self.name))
end

-- Where an op wants numbers.
function KerasTensor:__tensor(_, what, name)
  no_values(self, what, name)
end

function KerasTensor:__len()
  errors.raise("TypeError", "a KerasTensor has no length; x.shape is a list")
end

local OPERATORS = {
  __add = "add", __sub = "subtract", __mul = "multiply", __div = "divide",
  __pow = "pow", __mod = "floormod", __unm = "negative",
}

for event, name in pairs(OPERATORS) do
  KerasTensor[event] = function(a, b)
    if event == "__unm" then
      return hooks.op(name, a)
    end
    return hooks.op(name, a, b)
  end
end

return M
