--- What a call of a traced function is told by: the key of its cache.
---
--- Tensors count by dtype, shape and device; numbers, strings and booleans by
--- value; tables, distributed values and IndexedSlices by structure; everything
--- else by identity. Around the call: strategy, replica, device scope, training
--- phase, name scope, and settings as tf.keras.backend.set_floatx.
--- Two keys are equal exactly when the calls may share a graph.
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local values = require "tfdist.distribute.values"

local M = {}

local concat, select, type = table.concat, select, type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local kind_of, dtype_of, rank_of, dim_of = raw.kind, raw.tensor_dtype,
  raw.tensor_rank, raw.tensor_dim
local is_released = raw.is_released
local number_type = rawget(math, "type") or function()
  return "number"
end

-- Numbers of objects. They are never given twice, so that what is made where
-- another object was is another.
local numbers, last_number = setmetatable({}, { __mode = "k" }), 0

local function identity(x)
  local n = numbers[x]
  if n == nil then
    last_number = last_number + 1
    n, numbers[x] = last_number, last_number
  end
  return n
end

local function tensor_text(t)
  local parts = { "T", dtype_of(t) }
  for axis = 0, rank_of(t) - 1 do
    parts[axis + 3] = dim_of(t, axis)
  end
  parts[#parts + 1] = raw.device_short_name(raw.tensor_device(t))
  return concat(parts, " ")
end

local function slices_dims(x)
  local dims = {}
  for axis = 1, raw.slices_rank(x) do
    dims[axis] = raw.slices_dim(x, axis - 1)
  end
  return dims
end

local WITH_TENSORS = { tensor = true, value = true, slices = true }

-- A handle of what has tensors, which somebody released.
local function is_closed(x)
  return is_released(x) and WITH_TENSORS[kind_of(x)] == true
end

-- The handle of x that was released, x or one inside a value or IndexedSlices.
local function closed_in(x)
  if type(x) ~= "userdata" then
    return nil
  elseif is_closed(x) then
    return x
  end
  local kind = kind_of(x)
  if kind == "tensor" then
    return nil
  elseif kind == "slices" then
    return closed_in(raw.slices_values(x)) or closed_in(raw.slices_indices(x))
  end
  local list = values.is_value(x) and values.components(x) or { n = 0 }
  for i = 1, list.n do
    local found = closed_in(list[i])
    if found ~= nil then
      return found
    end
  end
  return nil
end

-- One walk over the arguments: parts of the key, tensors on the way.
-- tensors.closed: was one released?
local function walk(x, parts, tensors, depth)
  local n = #parts + 1
  local kind = type(x)
  if kind == "userdata" then
    if is_closed(x) then
      tensors.closed, parts[n] = true, "released"
    elseif kind_of(x) == "tensor" then
      tensors.n = tensors.n + 1
      tensors[tensors.n] = x
      parts[n] = tensor_text(x)
    elseif values.is_value(x) then
      local list = values.components(x)
      parts[n] = ("V %s %d"):format(raw.value_kind_of(x), list.n)
      for i = 1, list.n do
        walk(list[i], parts, tensors, depth + 1)
      end
    elseif kind_of(x) == "slices" then
      parts[n] = "I " .. concat(slices_dims(x), " ")
      walk(raw.slices_values(x), parts, tensors, depth + 1)
      walk(raw.slices_indices(x), parts, tensors, depth + 1)
    else
      parts[n] = "O" .. identity(x)
    end
  elseif kind == "number" then
    local of = number_type(x)
    parts[n] = (of == "integer" and "%s %d" or "%s %.17g"):format(of, x)
  elseif kind == "string" then
    parts[n] = ("S%d:%s"):format(#x, x)
  elseif kind == "boolean" or kind == "nil" then
    parts[n] = tostring(x)
  elseif nest.is_nested(x) and depth < nest.MAX_DEPTH then
    local length, keys = nest.layout(x)
    parts[n] = "{" .. length
    for i = 1, length do
      walk(x[i], parts, tensors, depth + 1)
    end
    for i = 1, keys and #keys or 0 do
      local before = tensors.n
      walk(keys[i], parts, tensors, depth + 1)
      -- The trace has symbols in the places of tensors; keys stay what they are.
      if tensors.n ~= before or closed_in(keys[i]) ~= nil then
        errors.raise("TypeError", "function_: a table of the arguments has a "
          .. "tensor as a key: " .. tostring(keys[i]), "keys are strings or "
          .. "numbers, as t:item()")
      end
      walk(x[keys[i]], parts, tensors, depth + 1)
    end
    parts[#parts + 1] = "}"
  elseif nest.is_nested(x) then
    nest.too_deep "function_"
  else
    parts[n] = "O" .. identity(x)
  end
end

-- What is not an argument.
local function surroundings()
  local own = state.current
  local mode = own.mode
  local call = own.layer_call
  local scope, settings = own.name_scope, state.settings
  if mode == nil and call == nil and raw.device_depth() == 0 and scope == ""
    and settings == "" then
    return ""
  end
  local parts = {}
  if mode ~= nil then
    local replica = mode.replica
    parts[1] = "M" .. identity(contexts.get_strategy())
    parts[2] = replica ~= nil and "R" .. tostring(
      replica.replica_id_in_sync_group) or "X"
  end
  parts[#parts + 1] = "D" .. (raw.device_depth() > 0
    and raw.device_short_name(raw.device_current()) or "")
  parts[#parts + 1] = "L" .. tostring(call and call.training)
  parts[#parts + 1] = ("N%d:%s"):format(#scope, scope)
  parts[#parts + 1] = settings
  return concat(parts, " ")
end

-- The handle in a structure that was released; path: the keys on the way there.
local function find_closed(x, path)
  if not nest.is_nested(x) then
    return closed_in(x)
  end
  local n, keys = nest.layout(x)
  local depth = #path + 1
  for i = 1, depth <= nest.MAX_DEPTH and n + (keys and #keys or 0) or 0 do
    path[depth] = i <= n and i or keys[i - n]
    local found = find_closed(x[path[depth]], path)
    if found ~= nil then
      return found
    end
  end
  path[depth] = nil
  return nil
end

--- Refuse tensors among these arguments, a list with n, that were released.
--- Errors: FailedPrecondition.
---@param whose table  a function: `name`, and `hidden` = how many arguments come
---  before those that the script gives, kwargs, nil = none
function M.check_open(whose, arguments)
  local hidden, path = whose.hidden or 0, {}
  for i = 1, arguments.n do
    local x = arguments[i]
    local found
    if type(x) == "userdata" then
      found = closed_in(x)
    elseif nest.is_nested(x) then
      found = find_closed(x, path)
    end
    if found ~= nil then
      errors.raise("FailedPrecondition", ("%s: %s%s is %s"):format(whose.name,
        #path > 0 and nest.path_text(path) .. " of " or "",
        i > hidden and "argument " .. i - hidden or "kwargs",
        text.describe(found)))
    end
  end
end

--- The key of a call: text, its tensors (a list with n), and its parts. `whose`
--- as in M.check_open.
--- Errors: FailedPrecondition for a tensor that was released.
---@return string key, table tensors, string[] parts
function M.of(whose, ...)
  local parts, tensors = { surroundings() }, { n = 0 }
  local list = { ... } -- select(i, ...) takes as long as there are arguments
  local n = select("#", ...)
  for i = 1, n do
    walk(list[i], parts, tensors, 0)
  end
  if tensors.closed then
    list.n = n
    M.check_open(whose, list)
  end
  return concat(parts, "\0"), tensors, parts
end

--- What the key has for a value that is no table: equal for what may share a
--- graph. Holds nothing.
---@return string
function M.part(x)
  local parts = {}
  walk(x, parts, { n = 0 }, 0)
  return parts[1]
end

--- x with fn(tensor) in the place of a tensor, or of each that a distributed
--- value or IndexedSlices have; anything else as it is.
function M.map_tensors(fn, x)
  if type(x) ~= "userdata" then
    return x
  elseif values.is_value(x) then
    return values.map(x, function(component)
      return M.map_tensors(fn, component)
    end)
  elseif kind_of(x) == "slices" then
    local rows = fn(raw.slices_values(x))
    return raw.slices_new(rows, fn(raw.slices_indices(x)), slices_dims(x))
  end
  return kind_of(x) == "tensor" and fn(x) or x
end

local TABLE = { ["{"] = "a table", ["}"] = "the end of a table" }

-- Words for one part of a key; `exact`: with what is rarely of interest.
local function describe(part, exact)
  if part == nil then
    return "nothing"
  elseif part:find "^T " then
    local words = {}
    for word in part:sub(3):gmatch "%S+" do
      words[#words + 1] = word
    end
    return ("a %s tensor of shape %s%s"):format(words[1], text.shape {
      unpack(words, 2, #words - 1) }, exact and " on " .. words[#words] or "")
  elseif part:find "^I " then
    return "IndexedSlices"
  elseif part:find "^O" then
    return "an object"
  elseif part:find "^S%d+:" then
    return text.quote(part:match "^S%d+:(.*)$")
  elseif TABLE[part:sub(1, 1)] then
    return TABLE[part:sub(1, 1)] .. (part:find "%d" and " with a list of "
      .. part:sub(2) or "")
  end
  return exact and "the " .. part or (part:gsub("^%a+ ", ""))
end

--- What differs between the parts of two keys, in words.
---@return string
function M.difference(old, new)
  for i = 2, math.max(#old, #new) do
    if old[i] ~= new[i] then
      local was, is = describe(old[i]), describe(new[i])
      if was == is then
        was, is = describe(old[i], true), describe(new[i], true)
      end
      return ("argument part %d was %s and is %s"):format(i - 1, was,
        was == is and "another one" or is)
    end
  end
  if old[1] ~= new[1] then
    return "strategy, replica, device, training phase, name scope or a setting"
  end
  return "nothing"
end

return M
