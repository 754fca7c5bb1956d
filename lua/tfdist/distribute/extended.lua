--- strategy.extended: reductions to chosen places, updates of variables.
local communication = require "tfdist.distribute.communication"
local contexts = require "tfdist.distribute.contexts"
local counted = require "tfdist.core.counted"
local cross_device = require "tfdist.distribute.cross_device_ops"
local errors = require "tfdist.base.errors"
local input = require "tfdist.distribute.input"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local replica = require "tfdist.distribute.replica"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local values = require "tfdist.distribute.values"

local M = {}

local setmetatable = setmetatable
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local Extended = { __name = "StrategyExtended" }
local methods, getters = {}, {}

local function is_extended(x)
  return getmetatable(x) == Extended
end

local function method(name, signature, fn)
  methods[name] = options.method("StrategyExtended." .. name, signature,
    function(self, ...)
      return fn(self.strategy, ...)
    end, is_extended, "strategy.extended")
end

local function pack(...)
  return { n = select("#", ...), ... }
end

--- Call fn(...) with new tensors on a device (nil = no rule).
function M.on_device(device, fn, ...)
  if device == nil then
    return fn(...)
  end
  local depth = raw.device_depth()
  raw.device_push(device)
  return state.protect(function()
    while raw.device_depth() > depth do
      raw.device_pop()
    end
  end, fn, ...)
end

--- The same as strategy:run, which calls this in TensorFlow.
method("call_for_each_replica", "fn args:table=nil kwargs:table=nil",
  function(strategy, fn, args, kwargs)
    return strategy:run(fn, args, kwargs)
  end)

-- Reductions -----------------------------------------------------------------

local function reduce_to(strategy, op, value, destinations, what, more)
  if strategy.one_copy then
    return nest.map(what, function(x)
      return values.is_value(x) and values.component(x, 0) or x
    end, value)
  end
  local devices = reduce.destinations(what, destinations)
  return nest.map(what, function(x)
    local result = reduce.leaf(strategy, op, x, devices, what, more)
    if values.is_value(result) and #devices == 1 then
      return values.component(result, 0)
    end
    return result
  end, value)
end

--- Sum or mean across replicas on the destinations: a device name, a tensor, a
--- variable or a distributed value (all its devices). Several devices give a
--- Mirrored value, one gives a tensor.
--- Errors: RuntimeError inside a replica function; AssertionError for a list.
--- Source: tf.distribute.StrategyExtended.reduce_to
method("reduce_to", "reduce_op value:table destinations:table "
  .. "options:table=nil",
  counted.method("reduce_to", function(strategy, op, value, destinations, more)
    contexts.require_cross_replica(strategy, "reduce_to")
    return reduce_to(strategy, reduce.op("reduce_to", op), value, destinations,
      "reduce_to", communication.read("reduce_to", more))
  end))

--- reduce_to for a list of { value, destinations }; a list of results.
--- Source: tf.distribute.StrategyExtended.batch_reduce_to
method("batch_reduce_to", "reduce_op value_destination_pairs:table "
  .. "options:table=nil", counted.method("batch_reduce_to",
  function(strategy, op, pairs_list, more)
    contexts.require_cross_replica(strategy, "batch_reduce_to")
    op = reduce.op("batch_reduce_to", op)
    more = communication.read("batch_reduce_to", more)
    local _, n = options.list("batch_reduce_to", "value_destination_pairs",
      pairs_list, "pairs")
    local out = { n = n }
    for i = 1, n do
      local pair = pairs_list[i]
      if not text.is_plain(pair) then
        errors.raise("ValueError", "batch_reduce_to: every entry must be a "
          .. "list { value, destinations }, got " .. text.describe(pair))
      end
      out[i] = reduce_to(strategy, op, pair[1], pair[2], "batch_reduce_to",
        more)
    end
    return out
  end))

--- Copies of a tensor on all destinations; Lua numbers stay as they are.
--- Errors: AssertionError for nil and lists.
--- Source: tf.distribute.StrategyExtended.broadcast_to
method("broadcast_to", "tensor destinations:table=nil options:table=nil",
  function(strategy, x, destinations)
    contexts.require_cross_replica(strategy, "broadcast_to")
    if strategy == contexts.default_strategy and destinations ~= nil then
      errors.raise("NotImplementedError", "broadcast_to: the default strategy "
        .. "has no destinations")
    end
    local devices = reduce.destinations("broadcast_to", destinations)
    return strategy.one_copy and x or reduce.broadcast(strategy, x, devices)
  end)

--- The value of a variable, combined over replicas.
method("read_var", "v", function(_, v)
  if type(v) ~= "userdata" or not raw.is_operand(v) then
    errors.raise("TypeError", "read_var: v must be a variable, got "
      .. text.describe(v))
  elseif raw.kind(v) == "tensor" then
    return v
  end
  return v:read_value()
end)

--- The cross-device ops that combine this value; nil for strategies with one
--- copy.
method("_get_cross_device_ops", "value:table=nil", function(strategy, value)
  local ops = strategy.cross_device_ops
  return ops and cross_device.for_value(ops, value)
end)

-- Updates --------------------------------------------------------------------

local function no_per_replica(args, what)
  local flat = nest.leaves(what, args or {})
  for i = 1, flat.n do
    if values.is_per_replica(flat[i]) then
      errors.raise("TypeError", what .. ": an argument is a PerReplica value; "
        .. "expected one that is the same for all copies",
        "reduce it first: strategy.extended:reduce_to(op, x, variable)")
    end
  end
end

-- fn(copy, args...) for copy i, on its device.
local function update_copy(strategy, i, copy, fn, args, kwargs)
  local own = values.select_copy(args or {}, i, "update")
  own.n = args and (args.n or #args) or 0
  if kwargs ~= nil then
    own.n = own.n + 1
    own[own.n] = values.select_copy(kwargs, i, "update")
  end
  local before = raw.context_set_update(i)
  local device = raw.tensor_device(raw.operand_tensor(copy))
  return state.protect(function()
    raw.context_set_update(before)
  end, M.on_device, device, contexts.with_mode, { strategy = strategy }, fn,
    copy, unpack(own, 1, own.n))
end

-- Arguments and, if there are any, keywords as a last table.
local function pack_arguments(args, kwargs)
  local list = { n = args and (args.n or #args) or 0 }
  for i = 1, list.n do
    list[i] = args[i]
  end
  if kwargs ~= nil then
    list.n = list.n + 1
    list[list.n] = kwargs
  end
  return list
end

local function first_components(args)
  return nest.map("update", function(x)
    if values.is_value(x) then
      return values.component(x, 0)
    end
    return x
  end, args or {})
end

local function update_all(strategy, var, fn, args, kwargs, group)
  local what = "update"
  text.check_callable(what, "fn", fn)
  replica.check_arguments(what, args, kwargs)
  if not values.is_mirrored(var) then
    if strategy.one_copy then
      local list = pack_arguments(first_components(args),
        kwargs and first_components(kwargs))
      return M.on_device(strategy.replica_devices[1], fn, var,
        unpack(list, 1, list.n))
    end
    errors.raise("ValueError", ("update: var must be a variable made in this "
      .. "strategy's scope, got %s"):format(text.describe(var)))
  elseif values.strategy_of(var) ~= strategy then
    contexts.mixing(strategy, { strategy = values.strategy_of(var) }, what)
  end
  local copies = values.components(var)
  if raw.mirrored_kind_of(var) == "aggregating" then
    args = first_components(args)
  else
    no_per_replica(args, what)
    no_per_replica(kwargs, what)
  end
  local packs = {}
  for i = 1, copies.n do
    packs[i] = pack(update_copy(strategy, i - 1, copies[i], fn, args, kwargs))
  end
  if not group then
    local list = { n = copies.n }
    for i = 1, copies.n do
      list[i] = packs[i][1]
    end
    return list
  end
  local results = values.regroup_results(strategy, packs, copies.n, "mirrored",
    what)
  return unpack(results, 1, results.n)
end

--- Call fn(copy, ...) for each copy of a variable on its device; Mirrored
--- arguments give each copy its own component. Returns the regrouped results,
--- a list with one per copy when group is false. In a replica function the
--- replicas' arguments are regrouped first.
--- Errors: TypeError for PerReplica arguments; ValueError for a variable of no
---   strategy; RuntimeError for one of another strategy.
--- Source: tf.distribute.StrategyExtended.update
method("update", "var fn args:table=nil kwargs:table=nil group=true",
  function(strategy, var, fn, args, kwargs, group)
    local mode = contexts.mode()
    if mode ~= nil and mode.strategy ~= strategy
      and mode.strategy ~= contexts.default_strategy then
      contexts.mixing(strategy, mode, "update")
    elseif mode ~= nil and mode.replica ~= nil then
      return replica.merge_call(mode.replica, function(_, merged, more)
        return update_all(strategy, var, fn, merged, more, group)
      end, { args or {}, kwargs, n = 2 }, nil, "update")
    end
    return update_all(strategy, var, fn, args, kwargs, group)
  end)

-- This replica's part of an update that nobody aggregates.
replica.define("_update", "var fn args:table=nil kwargs:table=nil group=true",
  function(context, var, fn, args, kwargs)
    local strategy, list = context.strategy, pack_arguments(args, kwargs)
    if values.is_mirrored(var)
      and raw.mirrored_kind_of(var) == "aggregating" then
      return strategy.extended:update(var, fn, args, kwargs)
    elseif values.is_mirrored(var) then
      if values.strategy_of(var) ~= strategy then
        contexts.mixing(values.strategy_of(var), { strategy = strategy },
          "_update")
      end
      var = values.component(var, raw.mirrored_index(var))
    elseif type(var) ~= "userdata" or raw.kind(var) ~= "variable" then
      errors.raise("ValueError", "_update: var must be a variable, got "
        .. text.describe(var))
    end
    return M.on_device(raw.tensor_device(raw.operand_tensor(var)), fn, var,
      unpack(list, 1, list.n))
  end)

--- Call fn once for each device.
--- Source: tf.distribute.StrategyExtended.update_non_slot
method("update_non_slot", "colocate_with:table fn args:table=nil "
  .. "kwargs:table=nil group=true", function(strategy, places, fn, args,
    kwargs, group)
    contexts.require_cross_replica(strategy, "update_non_slot")
    text.check_callable("update_non_slot", "fn", fn)
    replica.check_arguments("update_non_slot", args, kwargs)
    local devices = { false }
    if not strategy.one_copy and places ~= nil and not text.is_plain(places)
    then
      devices = reduce.destinations("update_non_slot", places)
    elseif text.is_plain(places) and not strategy.one_copy then
      devices = {}
      for i = 1, #places do
        devices[i] = raw.device_find(places[i])
      end
    end
    local packs = {}
    for i = 1, #devices do
      local own = pack_arguments(args, kwargs)
      for k = 1, own.n do
        own[k] = values.select_copy(own[k], i - 1, "update_non_slot")
      end
      packs[i] = pack(M.on_device(devices[i] or nil, fn, unpack(own, 1, own.n)))
    end
    if not group then
      local list = { n = #devices }
      for i = 1, #devices do
        list[i] = packs[i][1]
      end
      return list
    end
    local results = values.regroup_results(strategy, packs, #packs, "mirrored",
      "update_non_slot")
    return unpack(results, 1, results.n)
  end)

--- Devices that hold variables.
method("non_slot_devices", "var_list:table=nil", function(strategy)
  return strategy.extended.parameter_devices
end)

-- Variables ------------------------------------------------------------------

--- True for a variable made in this strategy's scope.
--- Source: tf.distribute.StrategyExtended.variable_created_in_scope
method("variable_created_in_scope", "v", function(strategy, v)
  local owner = values.strategy_of(v)
  return (owner or contexts.default_strategy) == strategy
end)

--- The distributed variable that a copy belongs to, else the argument.
method("value_container", "value", function(_, value)
  return values.container(value)
end)

--- Call fn; variables made inside go where `colocate_with` lives: on the
--- strategy's devices.
--- Errors: ValueError for a variable of no or another strategy; RuntimeError
---   outside the scope.
--- Source: tf.distribute.StrategyExtended.colocate_vars_with
method("colocate_vars_with", "colocate_with_variable fn:body=nil",
  function(strategy, v, fn)
    if contexts.get_strategy() ~= strategy then
      errors.raise("RuntimeError", "colocate_vars_with: Need to be inside the "
        .. "strategy's scope")
    elseif values.strategy_of(v) ~= strategy then
      errors.raise("ValueError", "colocate_vars_with: the variable must be one "
        .. "of this strategy, got " .. text.describe(v),
        values.strategy_of(v) and "it was made in a different scope" or nil)
    end
    if fn == nil then
      return state.closer("colocate_vars_with", function() end)
    end
    text.check_callable("StrategyExtended.colocate_vars_with", "fn", fn)
    return fn()
  end)

input.extended_methods(method)

-- Properties -----------------------------------------------------------------

local function device_names(strategy, count, at, what)
  if strategy == contexts.default_strategy then
    errors.raise("RuntimeError", what .. ": the default strategy has none")
  end
  local names = {}
  for i = 1, count(strategy.handle) do
    names[i] = raw.device_name(at(strategy.handle, i - 1))
  end
  return names
end

--- Canonical names of the replicas' devices.
function getters.worker_devices(strategy)
  return device_names(strategy, raw.strategy_local_count,
    raw.strategy_device, "worker_devices")
end

--- Canonical names of the devices that hold variables.
function getters.parameter_devices(strategy)
  return device_names(strategy, raw.strategy_parameter_count,
    raw.strategy_parameter_device, "parameter_devices")
end

-- What a strategy's `role` does not say otherwise.
local FACTS = {
  experimental_between_graph = false, experimental_should_init = true,
  should_checkpoint = true, should_save_summary = true, is_chief = true,
  experimental_require_static_shapes = false, num_workers = 1, worker_index = 0,
}

function Extended.__names()
  return text.names(methods, getters, FACTS)
end

local unknown_field = text.unknown_fields("StrategyExtended", {},
  Extended.__names)

function Extended.__index(self, key)
  local strategy = rawget(self, "strategy")
  if getters[key] ~= nil then
    return getters[key](strategy)
  elseif FACTS[key] ~= nil then
    local role = strategy.role
    if role ~= nil and role[key] ~= nil then
      return role[key]
    end
    return FACTS[key]
  end
  local found = methods[key]
  if found == nil then
    return unknown_field(key)
  end
  return found
end

function Extended.__tostring(self)
  return "extended of " .. tostring(self.strategy)
end

--- The extended object of a strategy.
function M.new(strategy)
  return setmetatable({ strategy = strategy }, Extended)
end

return M
