--- PerReplica and Mirrored: one handle for what every replica holds.
---
--- What only this side knows of a handle (components that are no handles, a
--- variable's copies and strategy) is attached to it and goes with it.
local errors = require "tfdist.base.errors"
local gradient_tape = require "tfdist.core.gradient_tape"
local index = require "tfdist.core.index"
local lists = require "tfdist.base.lists"
local nest = require "tfdist.base.nest"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local rawequal, type = rawequal, type
local is_nested = nest.is_nested

-- handle -> a table of its own. Weak tables of LuaJIT keep what leads back to
-- its key for ever, and let the rest go late; its userdata can carry a table.
local attach, attached

local setfenv, getfenv = rawget(debug, "setfenv"), rawget(debug, "getfenv")

if setfenv ~= nil then
  local MARK = {}
  attach = function(handle, t)
    t[MARK] = true
    setfenv(handle, t)
  end
  attached = function(handle)
    local t = getfenv(handle)
    return rawget(t, MARK) and t or nil
  end
else
  local tables = setmetatable({}, { __mode = "k" })
  attach = function(handle, t)
    tables[handle] = t
  end
  attached = function(handle)
    return tables[handle]
  end
end

-- copy of a distributed variable -> the variable; both stay alive with it
local containers = setmetatable({}, { __mode = "kv" })

--- True for PerReplica and Mirrored values (not for variables).
local function is_value(x)
  return type(x) == "userdata" and raw.kind(x) == "value"
end

local function is_mirrored(x)
  return type(x) == "userdata" and raw.kind(x) == "mirrored"
end

M.is_value, M.is_mirrored = is_value, is_mirrored

--- True for PerReplica values.
function M.is_per_replica(x)
  return is_value(x) and raw.value_kind_of(x) == "per_replica"
end

--- on_copies(), put in once: called when a variable with several copies is
--- made.
M.hooks = {}

--- Remember the copies of a distributed variable, copy 0 first.
function M.register_variable(variable, components, strategy)
  if #components > 1 then
    M.hooks.on_copies()
  end
  components.strategy = strategy
  attach(variable, components)
  for i = 1, #components do
    containers[components[i]] = variable
  end
end

--- The distributed variable that a copy belongs to, or x itself.
function M.container(x)
  if type(x) ~= "userdata" then
    return x
  end
  return containers[x] or x
end

gradient_tape.hooks.container = M.container

--- The copies of a distributed variable, copy 0 first.
function M.copies(variable)
  return attached(variable)
end

--- The strategy of a distributed variable or of a copy of one, or nil.
function M.strategy_of(x)
  x = M.container(x)
  if not is_mirrored(x) then
    return M.plain_strategy(x)
  end
  local own = attached(x)
  return own and own.strategy
end

--- Note the strategy of a variable without copies; plain_strategy gives it.
function M.note_strategy(variable, strategy)
  attach(variable, { strategy = strategy })
end

function M.plain_strategy(variable)
  local own = type(variable) == "userdata" and attached(variable)
  return own and own.strategy or nil
end

-- Components -----------------------------------------------------------------

local function is_handle(x)
  return type(x) == "userdata" and raw.kind(x) ~= nil
end

--- A PerReplica or Mirrored value of components[1..n], replica 0 first.
---@param strategy table
---@param kind "per_replica"|"mirrored"
---@param components any[]
---@param n integer
function M.new(strategy, kind, components, n)
  local handles, host = { n = n }, nil
  for i = 1, n do
    local x = components[i]
    if is_handle(x) then
      handles[i] = x
    elseif x ~= nil then
      host = host or { strategy = strategy }
      host[i] = x
    end
  end
  local value = raw.value_new(strategy.handle, kind, handles)
  if host ~= nil then
    attach(value, host)
  end
  return value
end

local function component(value, i)
  local host = attached(value)
  if host ~= nil and host[i + 1] ~= nil then
    return host[i + 1]
  end
  return raw.value_component(value, i)
end

--- Component `i` (from 0) of a distributed value or variable.
function M.component(x, i)
  if is_mirrored(x) then
    local list = attached(x)
    return list[i + 1] or list[1]
  end
  return component(x, i)
end

--- Copy `i` (from 0) of a distributed variable, anything else as it is.
function M.component_of(x, i)
  if is_mirrored(x) then
    return M.component(x, i)
  end
  return x
end

--- All components as a list with n; nil survives.
function M.components(x)
  local list = {}
  if is_mirrored(x) then
    local own = attached(x)
    list = lists.copy(own)
    list.n = #own
    return list
  end
  list.n = raw.value_count(x)
  for i = 1, list.n do
    list[i] = component(x, i - 1)
  end
  return list
end

--- The value with fn(component) in place of components that are no handles.
function M.with_operands(value, fn)
  local host = attached(value)
  local n = host and raw.value_count(value) or 0
  local list
  for i = 1, n do
    if host[i] ~= nil then
      list = list or M.components(value)
      list[i] = fn(host[i])
    end
  end
  return list and M.new(host.strategy, raw.value_kind_of(value), list, n)
    or value
end

--- The strategy of a value, of one without components of Lua its handle alone.
function M.owner(value)
  local host = attached(value)
  return host and host.strategy or { handle = raw.value_strategy(value) }
end

--- The value with fn(component) in place of each component.
function M.map(value, fn)
  local list = M.components(value)
  for i = 1, list.n do
    if list[i] ~= nil then
      list[i] = fn(list[i])
    end
  end
  return M.new(M.owner(value), raw.value_kind_of(value), list, list.n)
end

-- The components as users see them: the same objects each time, so that they
-- can be compared, unless somebody released one.
local function lasting_components(value)
  local own = attached(value)
  if own == nil then
    own = {}
    attach(value, own)
  end
  local seen, list = own.seen or {}, { n = raw.value_count(value) }
  own.seen = seen
  for i = 1, list.n do
    local x = seen[i]
    if x == nil or (is_handle(x) and raw.is_released(x)) then
      x = component(value, i - 1)
      seen[i] = x
    end
    list[i] = x
  end
  return list
end

-- A value of another strategy would lose components.
local function wrong_count(x, count)
  errors.raise("ValueError", ("strategy:run: a value of %d replicas cannot be "
    .. "an argument on %d"):format(raw.value_count(x), count),
    "distribute the data with the strategy that runs the step")
end

-- What replica i gets for a leaf: components of values; variables stay.
local function own_leaf(x, i, count)
  if is_value(x) then
    if count ~= nil and i == 0 and raw.value_count(x) ~= count then
      wrong_count(x, count)
    end
    return component(x, i)
  end
  return x
end

local MAX_DEPTH = nest.MAX_DEPTH

local function select_at(structure, i, depth, what, count)
  if not is_nested(structure) then
    return own_leaf(structure, i, count)
  elseif depth > MAX_DEPTH then
    nest.too_deep(what)
  end
  local out = {}
  local n, keys = nest.layout(structure)
  for k = 1, n do
    out[k] = select_at(structure[k], i, depth + 1, what, count)
  end
  if n > 0 or keys == nil then
    out.n = structure.n and n or nil
  end
  for k = 1, keys and #keys or 0 do
    out[keys[k]] = select_at(structure[keys[k]], i, depth + 1, what, count)
  end
  return out
end

--- A structure as replica i sees it; errors begin with `what`.
--- Errors: ValueError for one that contains itself, and with `count` for a
---   value that has not that many components.
function M.select_replica(structure, i, what, count)
  return select_at(structure, i, 0, what, count)
end

--- The same for a list of n elements, none of them a structure.
function M.select_flat(list, n, i, count)
  local out = {}
  for k = 1, n do
    local x = list[k]
    if type(x) == "userdata" then
      x = own_leaf(x, i, count)
    end
    out[k] = x
  end
  return out
end

-- The same with variables replaced by their copies: for updates.
function M.select_copy(structure, i, what)
  return nest.map(what, function(x)
    if is_value(x) then
      return component(x, i)
    end
    return x
  end, structure)
end

-- Regrouping -----------------------------------------------------------------

--- Are list[1..n] one and the same value?
function M.all_same(list, n)
  local first = list[1]
  for i = 2, n do
    local x = list[i]
    if not rawequal(x, first) and not (type(x) == "number" and x == first) then
      return false
    end
  end
  return true
end

-- The variable whose copy i the i-th element is, or nil.
local function common_container(list, n)
  local owner = type(list[1]) == "userdata" and containers[list[1]] or nil
  if owner == nil then
    return nil
  end
  local own = attached(owner)
  if #own < n then
    return nil
  end
  for i = 1, n do
    if not rawequal(own[i], list[i]) then
      return nil
    end
  end
  return owner
end

local function regroup_leaf(strategy, list, n, kind)
  if kind == "wrapped" then
    return M.new(strategy, "per_replica", list, n)
  end
  local owner = common_container(list, n)
  if owner ~= nil then
    return owner
  elseif M.all_same(list, n) then
    return M.container(list[1])
  end
  return M.new(strategy, kind, list, n)
end

--- Number among all in sync of the i-th replica here: what messages name it by.
function M.replica_of(strategy, i)
  return raw.strategy_first_replica(strategy.handle) + i - 1
end

local function keys_differ(strategy, i, what)
  errors.raise("AssertionError", ("%s: replica %d gives a table with other "
    .. "keys than replica %d; structures must match"):format(what,
    M.replica_of(strategy, i), M.replica_of(strategy, 1)))
end

local regroup

local function regroup_tables(strategy, list, n, kind, what, depth)
  if depth == MAX_DEPTH then
    nest.too_deep(what)
  end
  local size, keys = nest.layout(list[1])
  for i = 2, n do
    if not is_nested(list[i]) then
      keys_differ(strategy, i, what)
    end
    local m, other = nest.layout(list[i])
    if m ~= size or (keys and #keys or 0) ~= (other and #other or 0) then
      keys_differ(strategy, i, what)
    end
    for k = 1, keys and #keys or 0 do
      if keys[k] ~= other[k] then
        keys_differ(strategy, i, what)
      end
    end
  end
  local out = {}
  local function field(key)
    local parts = {}
    for i = 1, n do
      parts[i] = list[i][key]
    end
    out[key] = regroup(strategy, parts, n, kind, what, depth + 1)
  end
  for k = 1, size do
    field(k)
  end
  out.n = list[1].n and size or nil
  for k = 1, keys and #keys or 0 do
    field(keys[k])
  end
  return out
end

--- One value for list[1..n], what replica 0..n-1 gave: tables leaf by leaf, a
--- value that is the same on all replicas as it is, copies of one variable as
--- that variable, everything else as PerReplica (or Mirrored). Kind "wrapped"
--- makes a PerReplica of every leaf. Errors begin with `what`.
--- Errors: AssertionError when structures differ.
regroup = function(strategy, list, n, kind, what, depth)
  for i = 1, n do
    local x = list[i]
    if type(x) == "table" and is_nested(x) then
      if not is_nested(list[1]) then
        keys_differ(strategy, i, what)
      end
      return regroup_tables(strategy, list, n, kind, what, depth or 0)
    end
  end
  return regroup_leaf(strategy, list, n, kind)
end

M.regroup = regroup

--- Results of all replicas, position by position: `packs` are lists with n.
--- Returns one list with n.
function M.regroup_results(strategy, packs, n, kind, what)
  local width = 0
  for i = 1, n do
    local own = packs[i].n
    width = own > width and own or width
  end
  local out = { n = width }
  for k = 1, width do
    local list = {}
    for i = 1, n do
      list[i] = packs[i][k]
    end
    out[k] = regroup(strategy, list, n, kind, what)
  end
  return out
end

--- Per-replica locals of x: components of a value or variable; for a structure
--- one structure per replica; anything else alone.
function M.local_results(x, n, what)
  if is_value(x) or is_mirrored(x) then
    local list = is_value(x) and lasting_components(x) or M.components(x)
    if is_mirrored(x) and #list < n then
      for i = 2, n do
        list[i] = list[1]
      end
      list.n = n
    end
    return list
  elseif not is_nested(x) then
    return { x, n = 1 }
  end
  local list = { n = n }
  for i = 1, n do
    list[i] = nest.map(what, function(leaf)
      if is_value(leaf) or is_mirrored(leaf) then
        return M.component(leaf, i - 1)
      end
      return leaf
    end, x)
  end
  return list
end

-- What users see -------------------------------------------------------------

local function class_of(x)
  return raw.value_kind_of(x) == "mirrored" and "Mirrored" or "PerReplica"
end

local function to_text(x)
  if raw.is_released(x) then
    return "distributed value (released)"
  end
  local lines = { class_of(x) .. "{" }
  for i = 0, raw.value_count(x) - 1 do
    local c = component(x, i)
    local place
    if is_handle(c) and not is_value(c) and not is_mirrored(c)
      and raw.is_operand(c) then
      place = raw.tensor_device(raw.operand_tensor(c))
    elseif attached(x) ~= nil then
      place = attached(x).strategy.replica_devices[i + 1]
    end
    place = place and raw.device_short_name(place) .. "  " or ""
    local shown = tostring(c)
    lines[#lines + 1] = ("  %d  %s%s"):format(i, place,
      (shown:gsub("\n", "\n     ")))
  end
  lines[#lines + 1] = "}"
  return table.concat(lines, "\n")
end

-- The component that this code means, nil when there is no such one.
local function meant(x)
  local i = raw.value_index(x)
  if i < 0 and raw.value_kind_of(x) == "mirrored" then
    i = 0
  end
  return i >= 0 and component(x, i) or nil
end

local function not_one(x, key)
  errors.raise("ValueError", ("attempt to use a PerReplica value (%d replicas) "
    .. "as one tensor%s; you look like you are outside of a replica context")
    :format(raw.value_count(x), key and " (field " .. tostring(key) .. ")"
    or ""),
    "strategy:reduce(\"sum\", x), strategy:gather(x, 0) or "
    .. "strategy:experimental_local_results(x)")
end

local own_methods = {}

function own_methods.release(self)
  return raw.release(self)
end

-- Put the metatable of distributed values in place.
local meta = raw.metatable "value"
tensor.set_operators(meta, tf)
meta.__tostring = to_text
meta.__index = function(x, key)
  if key == "values" then
    return lasting_components(x)
  elseif own_methods[key] ~= nil then
    return own_methods[key]
  end
  local c = meant(x)
  if c == nil then
    not_one(x, key)
  elseif is_handle(c) and raw.kind(c) == "tensor" and type(key) ~= "string"
  then
    return index.get(tf, c, key)
  end
  local found = c[key]
  -- A method is called with the value as self: bind it to the component.
  if type(found) == "function" and tensor.methods[key] == found then
    return function(self, ...)
      return found(rawequal(self, x) and c or self, ...)
    end
  end
  return found
end
meta.__newindex = function()
  errors.raise("TypeError", "a distributed value cannot be changed")
end
meta.__len = function(x)
  local c = meant(x)
  if c == nil then
    not_one(x)
  end
  return #c
end

text.add_describer(function(x)
  if type(x) ~= "userdata" or raw.is_released(x) then
    return nil
  end
  local kind = raw.kind(x)
  if kind == "value" then
    return "a " .. class_of(x) .. " value"
  elseif kind == "mirrored" then
    return "the distributed variable "
      .. text.quote(raw.variable_name(raw.mirrored_component(x, 0)))
  elseif kind == "strategy" then
    return "a strategy"
  end
  return nil
end)

--- Raise unless x can be read as one tensor here.
M.not_one = not_one

return M
