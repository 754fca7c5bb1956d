--- Slots of which each replica keeps a part: what ShardedOptimizer makes.
---
--- Replica i has the slots of part i of every variable (raw.strategy_part), a
--- flat variable on its device, and updates that part; raw.strategy_update_parts
--- brings the parts to all copies. A slot here stands for all parts: it reads as
--- one tensor of the variable's shape, which every worker has to ask for.
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"
local values = require "tfdist.distribute.values"

local M = {}

-- Call fn with new tensors on a device and no recording.
local function on_device(device, fn, ...)
  raw.device_push(device)
  local depth = raw.device_depth() - 1
  raw.tape_pause_all(true)
  return state.protect(function()
    raw.tape_pause_all(false)
    while raw.device_depth() > depth do
      raw.device_pop()
    end
  end, fn, ...)
end

--- Are there several copies of a variable, one for each replica? Then an update
--- of each can be shared out.
function M.can(v)
  if not values.is_mirrored(v) or raw.mirrored_kind_of(v) ~= "mirrored" then
    return false
  end
  local strategy = values.strategy_of(v)
  return strategy.num_replicas_in_sync > 1
    and raw.mirrored_count(v) == strategy.local_count
end

-- First element and count of the part of local replica i (from 0), and whether
-- it is rows.
local function part_of(strategy, dims, i)
  return raw.strategy_part(strategy.handle, dims, strategy.first_replica + i)
end

-- Elements first .. first + count - 1 of x as a flat tensor.
local function cut(x, first, count)
  return tf.slice(tf.reshape(x, { -1 }), { first }, { count })
end

-- Slots ----------------------------------------------------------------------

local Slot = { __name = "SharedSlot", __variable = true }
local methods, getters = {}, {}

local function is_slot(x)
  return type(x) == "table" and getmetatable(x) == Slot
end

M.is_slot = is_slot

local function own_of(slot)
  return rawget(slot, "own")
end

local function method(name, signature, fn)
  methods[name] = options.method("SharedSlot." .. name, signature, fn, is_slot,
    "slot")
end

local function whole(own)
  local strategy = own.strategy
  local list = { n = #own.parts }
  for i = 1, list.n do
    list[i] = raw.variable_read(own.parts[i])
  end
  return on_device(strategy.replica_devices[1], function()
    local joined = raw.value_component(raw.strategy_gather(strategy.handle, 0,
      "slot " .. own.name, list, { strategy.replica_devices[1] }, 0), 0)
    return tf.reshape(joined, own.dims)
  end)
end

--- All parts as one tensor of the variable's shape. Under strategies over
--- several workers all of them have to call it.
method("read_value", "", function(self)
  return whole(own_of(self))
end)

method("value", "", function(self)
  return whole(own_of(self))
end)

--- The same as nested lists.
method("totable", "", function(self)
  return whole(own_of(self)):totable()
end)

--- Replace the value: each replica takes its part of it.
--- Errors: ValueError for another shape or dtype.
method("assign", "value", function(self, x)
  local own = own_of(self)
  if type(x) ~= "userdata" or not raw.is_operand(x) then
    x = tf.constant(x, own.dtype)
  end
  if text.shape(x.shape) ~= text.shape(own.dims) or x.dtype ~= own.dtype then
    errors.raise("ValueError", ("assign: slot %s is %s %s, the value is %s %s")
      :format(text.quote(own.name), own.dtype, text.shape(own.dims), x.dtype,
      text.shape(x.shape)))
  end
  for i, v in ipairs(own.parts) do
    local first, count = part_of(own.strategy, own.dims, i - 1)
    on_device(own.strategy.replica_devices[i], function()
      raw.variable_assign(v, cut(x, first, count))
    end)
  end
  return self
end)

function getters.name(own) return own.name end
function getters.dtype(own) return own.dtype end
function getters.shape(own) return own.shape end
function getters.rank(own) return #own.dims end
function getters.trainable() return false end
function getters.distribute_strategy(own) return own.strategy end

--- The parts of the replicas here: flat variables.
function getters.parts(own)
  local list = { n = #own.parts }
  for i = 1, list.n do
    list[i] = own.parts[i]
  end
  return list
end

function Slot.__names()
  return text.names(methods, getters)
end

local slips = text.field_slips("SharedSlot", Slot.__names)

function Slot.__index(self, key)
  if methods[key] ~= nil then
    return methods[key]
  elseif getters[key] ~= nil then
    return getters[key](own_of(self))
  end
  return slips(key)
end

function Slot.__newindex(_, key)
  errors.raise("KeyError", ("a slot has no field %s to set"):format(
    text.name(key)), "slot:assign(value) gives it another value")
end

function Slot.__tostring(self)
  local own = own_of(self)
  return ("SharedSlot %s %s %s, in %d parts"):format(text.quote(own.name),
    own.dtype, text.shape(own.dims), own.strategy.num_replicas_in_sync)
end

-- A slot is one value, whatever it is made of.
function Slot.__checkpoint_children()
  return {}
end

-- What the part begins with: a number everywhere, or its part of a value.
local function initial_part(v, initial, i, first, count)
  local dtype = v.dtype
  if type(initial) == "number" then
    return tf.fill({ count }, tf.constant(initial, dtype))
  elseif type(initial) == "function" then
    initial = initial(v.shape, dtype)
  end
  return cut(values.component_of(initial, i), first, count)
end

--- A slot of a variable that M.can.
---@param initial number|function|tfdist.Tensor  value, or maker of shape, dtype
function M.new(v, name, initial)
  local strategy, copies = values.strategy_of(v), values.copies(v)
  local own = {
    name = v.name .. "/" .. name, strategy = strategy, dtype = v.dtype,
    shape = v.shape, dims = raw.tensor_dims(raw.operand_tensor(copies[1])),
    parts = {},
  }
  for i = 1, #copies do
    local first, count = part_of(strategy, own.dims, i - 1)
    local device = strategy.replica_devices[i]
    own.parts[i] = on_device(device, function()
      return raw.variable_new(initial_part(v, initial, i - 1, first, count),
        raw.copy_name(own.name, i - 1), false, device)
    end)
  end
  return setmetatable({ own = own }, Slot)
end

--- Part i (from 0) of a slot, anything else as it is.
function M.part(x, i)
  return is_slot(x) and own_of(x).parts[i + 1] or x
end

-- Updates --------------------------------------------------------------------

-- The rows of slices that are in [first, first + rows), counted from there.
-- Blocks: until the indices are there.
local function own_rows(grad, first, rows)
  local indices = raw.tensor_to_flat(raw.slices_indices(grad))
  local at, named = {}, {}
  for j = 1, #indices do
    local row = indices[j] - first
    if row >= 0 and row < rows then
      at[#at + 1], named[#named + 1] = j - 1, row
    end
  end
  local function numbers(list)
    return raw.tensor_from_values(list, "int64", { #list })
  end
  return tf.IndexedSlices(tf.gather(raw.slices_values(grad), numbers(at)),
    numbers(named))
end

-- A complete sparse gradient for local replica i (from 0).
local function sparse_part(v, grad, i)
  if tracing.current() ~= nil then
    errors.raise("NotImplementedError", ("apply_gradients: ShardedOptimizer "
      .. "of several replicas cannot be traced with the sparse gradient of "
      .. "variable %s"):format(text.quote(v.name)),
      "make it dense: tf.convert_to_tensor(gradient)")
  end
  local strategy = values.strategy_of(v)
  local dims = raw.tensor_dims(raw.operand_tensor(values.copies(v)[1]))
  local first, count, by_rows = part_of(strategy, dims, i)
  if not by_rows then
    errors.raise("NotImplementedError", ("apply_gradients: ShardedOptimizer "
      .. "shares out variable %s %s by elements, for it has few rows; its "
      .. "gradient is IndexedSlices, which name rows"):format(
      text.quote(v.name), text.shape(dims)),
      "make it dense: tf.convert_to_tensor(gradient)")
  end
  local row = 1
  for axis = 2, #dims do
    row = row * dims[axis]
  end
  return on_device(strategy.replica_devices[i + 1], own_rows, grad,
    row == 0 and 0 or math.floor(first / row),
    row == 0 and 0 or math.floor(count / row))
end

local function is_slices(x)
  return raw.kind(x) == "slices"
end

local function all_slices(list, n)
  for i = 1, n do
    if not is_slices(list[i]) then
      return false
    end
  end
  return true
end

-- grads[i]: gradients of the replicas here, of which some are dense.
local function all_dense(list, n)
  local out = {}
  for i = 1, n do
    out[i] = is_slices(list[i]) and raw.slices_to_dense(list[i]) or list[i]
  end
  return out
end

-- The sum over all replicas, for each here.
local function joined(strategy, list, n)
  local given = { n = n }
  for i = 1, n do
    given[i] = list[i]
  end
  return values.components(raw.strategy_reduce(strategy.handle, "sum",
    "apply_gradients", given, strategy.replica_devices, 0))
end

-- One call of the runtime: its targets and gradients.
local function call(calls, summed, n)
  local key = summed and 2 or 1
  calls[key] = calls[key] or { targets = {}, grads = { n = 0 }, n = n,
    summed = summed }
  return calls[key]
end

local function add(entry, targets, grads)
  for i = 1, entry.n do
    for s = 1, #targets[i] do
      entry.targets[#entry.targets + 1] = targets[i][s]
    end
    entry.grads.n = entry.grads.n + 1
    entry.grads[entry.grads.n] = grads[i]
  end
end

--- Update variables: for each k of `members` variable plan[k], by the op
--- plan.op, whose targets plan.targets[k][i] are copy i and the parts of its
--- slots, from the gradients grads[k][i].
---@param summed boolean   gradients are complete
---@param at? integer      where a traced function's calls have the numbers
function M.update(strategy, plan, members, grads, summed, reals, at)
  local n, calls, targets = strategy.local_count, {}, plan.targets
  for _, k in ipairs(members) do
    local own = grads[k]
    if not all_slices(own, n) then
      add(call(calls, summed, n), targets[k], all_dense(own, n))
    else
      own = summed and own or reduce.about(strategy, { targets[k][1][1] },
        joined, strategy, own, n)
      local parts = {}
      for i = 1, n do
        parts[i] = sparse_part(plan[k], own[i], i - 1)
      end
      add(call(calls, true, n), targets[k], parts)
    end
  end
  for key = 1, 2 do
    local entry = calls[key]
    if entry ~= nil then
      raw.strategy_update_parts(strategy.handle, plan.op, entry.targets,
        entry.grads, entry.summed, reals)
      if at ~= nil then
        tracing.takes_numbers(at)
      end
    end
  end
end

-- Averages -------------------------------------------------------------------

--- Update the running mean of a variable, part by part; `at` as in M.update.
function M.average(slot, v, op, reals, at)
  local own = own_of(slot)
  for i, copy in ipairs(values.copies(v)) do
    local first, count = part_of(own.strategy, own.dims, i - 1)
    on_device(own.strategy.replica_devices[i], function()
      raw.variables_update({ own.parts[i] }, op, { cut(copy, first, count),
        n = 2 }, nil, reals)
      if at ~= nil then
        tracing.takes_numbers(at)
      end
    end)
  end
end

--- Put the running mean in place of the variable. Every worker calls it.
function M.overwrite(slot, v)
  local mean = whole(own_of(slot))
  for i, copy in ipairs(values.copies(v)) do
    on_device(own_of(slot).strategy.replica_devices[i], raw.variable_assign,
      copy, mean)
  end
end

return M
