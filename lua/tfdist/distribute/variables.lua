--- MirroredVariable, SyncOnReadVariable, AggregatingVariable: making them and
--- the rules of writing and reading them.
local contexts = require "tfdist.distribute.contexts"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local names = require "tfdist.base.names"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local printer = require "tfdist.core.printer"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local replica = require "tfdist.distribute.replica"
local state = require "tfdist.core.state"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"

local M = {}

local setmetatable, type = setmetatable, type

M.methods, M.getters = {}, {}
local methods, getters = M.methods, M.getters

local CLASSES = {
  mirrored = "MirroredVariable", sync_on_read = "SyncOnReadVariable",
  aggregating = "AggregatingVariable",
}

local function class_of(v)
  return CLASSES[raw.mirrored_kind_of(v)]
end

-- Creation -------------------------------------------------------------------

local SYNCHRONIZATION = { AUTO = 1, NONE = 1, ON_WRITE = 1, ON_READ = 1 }
local AGGREGATION = { NONE = 1, SUM = 1, MEAN = 1, ONLY_FIRST_REPLICA = 1 }

local function check_mode(what, x, choices, name)
  local upper = type(x) == "string" and x:upper() or nil
  if upper == nil or choices[upper] == nil then
    errors.raise("ValueError", ("Invalid variable %s mode: %s for variable: %s")
      :format(what, tostring(x), name))
  end
  return upper
end

-- Call fn with new tensors on a device and no recording.
local function on_device(device, fn, ...)
  raw.device_push(device)
  raw.tape_pause_all(true)
  return state.protect(function()
    raw.tape_pause_all(false)
    raw.device_pop()
  end, fn, ...)
end

local function with_changes(kwargs, changes)
  local out = {}
  for key, value in pairs(kwargs) do
    out[key] = value
  end
  for key, value in pairs(changes) do
    out[key] = value
  end
  return out
end

local function check_component(v)
  if type(v) ~= "userdata" or raw.kind(v) ~= "variable" then
    errors.raise("TypeError", "variable creator: expected a variable for each "
      .. "device, got " .. text.describe(v))
  end
  return v
end

-- Copies 0..n-1; the initial value is computed once and copied.
local function make_copies(strategy, next_creator, kwargs, spec, n)
  local list = {}
  for i = 1, n do
    local device = raw.strategy_parameter_device(strategy.handle, i - 1)
    local own = with_changes(kwargs, {
      synchronization = "AUTO", aggregation = spec.aggregation,
      trainable = spec.trainable, name = spec.name,
    })
    if i > 1 then
      own.initial_value = list[1]
      own.name = raw.copy_name(spec.name, i - 1)
    end
    list[i] = check_component(on_device(device, next_creator, own))
  end
  return list
end

-- By strategy: names of its variables, whose order all workers share.
local seen_names = setmetatable({}, { __mode = "k" })

local function make(strategy, next_creator, kwargs)
  local name = type(kwargs.name) == "string" and kwargs.name or "Variable"
  local synchronization = check_mode("synchronization",
    kwargs.synchronization or "AUTO", SYNCHRONIZATION, name)
  local aggregation = check_mode("aggregation", kwargs.aggregation or "NONE",
    AGGREGATION, name)
  local kind, copies = raw.strategy_place(strategy.handle,
    synchronization:lower(), name)
  if kind == "plain" then
    local device = raw.strategy_parameter_device(strategy.handle, 0)
    local v = on_device(device, next_creator, kwargs)
    values.note_strategy(v, strategy)
    return v
  end
  local trainable = kwargs.trainable
  if trainable == nil then
    trainable = synchronization ~= "ON_READ"
  end
  local list = make_copies(strategy, next_creator, kwargs,
    { aggregation = aggregation, trainable = trainable, name = name }, copies)
  seen_names[strategy] = seen_names[strategy] or {}
  local v = raw.strategy_create(strategy.handle, list,
    names.known_as(list[1].name, seen_names[strategy]), synchronization:lower(),
    aggregation:lower())
  values.register_variable(v, list, strategy)
  return v
end

-- Names of one variable on several replicas may differ in trailing numbers.
local function canonical(name)
  if type(name) ~= "string" then
    return "Variable"
  end
  return ((name .. "/"):gsub("_%d+/", "/"))
end

-- Inside a replica function: replica 0 makes the k-th variable of a name, the
-- others get it.
local function shared_variable(context, strategy, next_creator, kwargs)
  local name = canonical(kwargs.name)
  local own = context.replica
  local all = own.crew.variables or {}
  own.crew.variables = all
  local made = all[name]
  local id = own.id
  local counts = own.counts or {}
  own.counts = counts
  local k = (counts[name] or 0) + 1
  counts[name] = k
  if id == 0 then
    made = made or {}
    all[name] = made
    made[k] = make(strategy, next_creator, kwargs)
    return made[k]
  elseif made == nil or made[k] == nil then
    errors.raise("RuntimeError", ("Tried to create variable %s on replica %d, "
      .. "but replica 0 made no such variable before"):format(
      text.quote(kwargs.name or "Variable"), id),
      "every replica must create the same variables in the same order")
  end
  return made[k]
end

--- The creator that a strategy's scope puts in place.
function M.creator(strategy)
  return function(next_creator, kwargs)
    local mode = contexts.mode()
    if mode == nil or mode.strategy ~= strategy then
      contexts.mixing(strategy,
        mode or { strategy = contexts.default_strategy },
        "creating a variable")
    elseif mode.replica ~= nil and mode.replica.thread ~= nil then
      return shared_variable(mode.replica, strategy, next_creator, kwargs)
    end
    return make(strategy, next_creator, kwargs)
  end
end

-- Writing --------------------------------------------------------------------

local function dtype_of(v)
  return tensor.dtype_of(values.component(v, 0))
end

local function operand_for(v, what, x)
  return convert.operand(x, dtype_of(v), what, "value")
end

-- x as the runtime takes it: distributed values whole, with operands for what
-- only this side knows.
local function whole(v, what, x)
  if type(x) == "userdata" and raw.kind(x) == "slices" then
    return x
  elseif values.is_value(x) then
    return values.with_operands(x, function(part)
      return operand_for(v, what, part)
    end)
  end
  return operand_for(v, what, x)
end

-- Apply fn(copy, value for it) to every copy. A Mirrored value gives each its
-- component.
local function each_copy(v, x, fn)
  local list = values.copies(v)
  local many = values.is_value(x)
    or (values.is_mirrored(x) and raw.mirrored_kind_of(x) == "mirrored")
  for i = 1, #list do
    fn(list[i], many and values.component(x, i - 1) or x)
  end
end

local function devices_of(v)
  local devices = {}
  for i, copy in ipairs(values.copies(v)) do
    devices[i] = raw.tensor_device(raw.operand_tensor(copy))
  end
  return devices
end

-- One value for all copies from the replicas' values, by the aggregation. Of
-- one and the same value of Lua's there may be no sum.
local function combine(strategy, v, op, list)
  local aggregation = raw.mirrored_aggregation_of(v):upper()
  local first_only = aggregation == "ONLY_FIRST_REPLICA"
  local count = list.n
  if not first_only and values.all_same(list, list.n) then
    local x = list[1]
    local known = values.is_mirrored(x) or values.is_value(x)
    if values.is_mirrored(x) and aggregation == "MEAN" then
      return x
    elseif known or not strategy.over_workers then
      return reduce.leaf(strategy, aggregation, x, devices_of(v), op)
    end
    count = 1 -- of each worker; others have to name the same variable
  end
  local parts = { n = count }
  for i = 1, first_only and 1 or count do
    parts[i] = whole(v, op, list[i])
  end
  return raw.mirrored_combine(v, op, parts)
end

-- Write together with all other replicas; apply(what they give together).
local function write_merged(context, v, op, x, apply)
  if values.is_mirrored(x) and raw.mirrored_kind_of(x) == "sync_on_read" then
    x = raw.mirrored_read(x)
  end
  local point = ("%s of variable %s"):format(op, text.quote(v.name))
  replica.sync(context, point, { x = x }, function(strategy, payloads)
    local list = { n = payloads.n }
    for i = 1, payloads.n do
      list[i] = payloads[i].x
    end
    apply(combine(strategy, v, op, list))
  end)
end

-- Where does a write go? "copy" (this replica's or the one being updated),
-- "merge" (with all replicas, second result: this one's context) or "all".
local function route(v, op)
  local mode = contexts.mode()
  if mode ~= nil then
    local strategy = values.strategy_of(v)
    if mode.strategy ~= strategy
      and mode.strategy ~= contexts.default_strategy then
      contexts.mixing(strategy, mode, op .. " of variable "
        .. text.quote(v.name))
    end
  end
  return raw.mirrored_route(v, op), mode and mode.replica
end

local function write(v, op, x)
  local way, context = route(v, op)
  if way == "merge" then
    write_merged(context, v, op, x, function(combined)
      raw.mirrored_write_all(v, op, whole(v, op, combined))
    end)
  else
    raw.mirrored_write(v, op, whole(v, op, x))
  end
end

--- Give all copies one value, wherever this is called: what was saved is the
--- value of the variable, not that of the replica that comes by first.
--- `copies`: what each copy of a variable that M.parts has takes instead.
function M.restore(v, x, copies)
  if not values.is_mirrored(v) then
    v:assign(x)
  elseif copies ~= nil then
    for i, copy in ipairs(values.copies(v)) do
      raw.variable_assign(copy, copies[i])
    end
  else
    raw.mirrored_write_all(v, "assign", whole(v, "assign", x))
  end
end

local function method(name, signature, fn)
  methods[name] = options.method("Variable." .. name, signature, fn,
    values.is_mirrored, "variable")
end

local ASSIGN = " use_locking=false name=nil read_value=true"

for _, op in ipairs { "assign", "assign_add", "assign_sub" } do
  --- Change the value by the rules of synchronization and aggregation; returns
  --- the variable, nil with read_value = false.
  --- Errors: ValueError where the value cannot be aggregated.
  method(op, (op == "assign" and "value" or "delta") .. ASSIGN,
    function(self, x, _, _, read_value)
      write(self, op, x)
      return read_value and self or nil
    end)
end

local SCATTER = {
  scatter_add = true, scatter_sub = true, scatter_mul = true,
  scatter_div = true, scatter_min = false, scatter_max = false,
  scatter_update = false,
}

local function scatter(v, op, delta)
  local kind = raw.mirrored_kind_of(v)
  local aggregation = raw.mirrored_aggregation_of(v)
  if kind == "sync_on_read" then
    errors.raise("NotImplementedError", op .. ": not supported for a variable "
      .. "that is synchronized on read (" .. text.quote(v.name) .. ")")
  end
  local function apply(copy, x)
    copy[op](copy, x)
  end
  local way, context = route(v, op)
  if way == "merge" and not SCATTER[op]
    and aggregation ~= "only_first_replica" then
    errors.raise("NotImplementedError", ("%s: aggregation %s is not supported; "
      .. "only NONE and ONLY_FIRST_REPLICA are"):format(op,
      aggregation:upper()))
  elseif way == "copy" then
    apply(values.component(v, raw.mirrored_index(v)), delta)
  elseif way == "merge" then
    write_merged(context, v, op, delta, function(combined)
      each_copy(v, combined, apply)
    end)
  else
    each_copy(v, delta, apply)
  end
  return v
end

for op in pairs(SCATTER) do
  method(op, "sparse_delta use_locking=false name=nil", function(self, delta)
    return scatter(self, op, delta)
  end)
end

--- The copies of a variable that replicas keep apart until it is read (batch
--- statistics, sums of metrics); nil for others.
function M.parts(v)
  if values.is_mirrored(v) and raw.mirrored_kind_of(v) == "sync_on_read" then
    return values.copies(v)
  end
  return nil
end

-- Reading --------------------------------------------------------------------

--- The value here: this replica's copy, or in cross-replica context the closest
--- one; a variable synchronized on read is combined.
--- Errors: ValueError when it has no aggregation and is read together.
method("read_value", "", function(self)
  return raw.mirrored_read(self)
end)

method("value", "", function(self)
  return raw.mirrored_read(self)
end)

method("is_initialized", "", function()
  return true
end)

function methods.release(self)
  return raw.release(self)
end

local function from_first(name)
  getters[name] = function(v)
    return values.component(v, 0)[name]
  end
end

for _, name in ipairs { "name", "trainable", "dtype", "shape", "rank", "ndim",
  "constraint" } do
  from_first(name)
end

function getters.synchronization(v)
  return raw.mirrored_synchronization_of(v):upper()
end

function getters.aggregation(v)
  return raw.mirrored_aggregation_of(v):upper()
end

function getters.values(v)
  return values.components(v)
end

function getters.distribute_strategy(v)
  return values.strategy_of(v)
end

function getters.device(v)
  local i = raw.mirrored_index(v)
  if i >= 0 or raw.mirrored_kind_of(v) == "sync_on_read" then
    return values.component(v, i >= 0 and i or 0).device
  end
  return raw.device_name(raw.tensor_device(raw.operand_tensor(v)))
end

--- Count of writes so far.
function getters.version(v)
  return values.component(v, 0).version
end

-- Printing -------------------------------------------------------------------

local function place_of(copy)
  return raw.device_short_name(raw.tensor_device(raw.operand_tensor(copy)))
end

local function places_of(list)
  local places = {}
  for i = 1, #list do
    places[i] = place_of(list[i])
  end
  return table.concat(places, " ")
end

-- One value: a line, or the body of more elements.
local function one_text(t, header, place)
  if raw.tensor_rank(t) == 0 then
    return ("%s = %s   %s"):format(header, printer.value(t), place)
  end
  return printer.body(t, header, " " .. place)
end

-- Copies that differ: numbers in the line, more elements below it.
local function copies_text(list, header)
  local parts = {}
  local place = ("on %s (copies differ)"):format(places_of(list))
  local scalar = raw.tensor_rank(raw.operand_tensor(list[1])) == 0
  for i = 1, #list do
    local t = raw.operand_tensor(list[i])
    parts[i] = scalar and printer.value(t)
      or printer.body(t, ("copy %d %s"):format(i - 1, place_of(list[i])), "")
  end
  if scalar then
    return ("%s = %s   %s"):format(header, table.concat(parts, " | "), place)
  end
  return header .. " " .. place .. "\n" .. table.concat(parts, "\n")
end

-- All copies; of those that differ a replica sees its own one, as when it
-- reads the variable.
local function to_text(v)
  if raw.is_released(v) then
    return "distributed variable (released)"
  end
  local list = values.copies(v)
  local first = raw.operand_tensor(list[1])
  local header = ("%s %s %s %s"):format(class_of(v), text.quote(v.name),
    raw.tensor_dtype(first), text.shape(tensor.shape_of(first)))
  local equal, own = raw.mirrored_agree(v), raw.mirrored_index(v)
  if not equal and own >= 0 then
    return one_text(raw.operand_tensor(list[own + 1]), header,
      ("on %s (this replica's copy)"):format(place_of(list[own + 1])))
  end
  if not equal then
    return copies_text(list, header)
  end
  return one_text(first, header, ("on %s%s"):format(places_of(list),
    #list > 1 and " (equal)" or ""))
end

-- Checks ---------------------------------------------------------------------

-- Updates keep the copies of these equal. What is neither trained nor
-- aggregated may be a replica's own affair.
local function is_shared(v)
  return values.is_mirrored(v) and raw.mirrored_kind_of(v) == "mirrored"
    and (values.component(v, 0).trainable
    or raw.mirrored_aggregation_of(v) ~= "none")
end

--- Is v the same wherever a copy of it is? All that is trained is.
---@return boolean
function M.is_equal_everywhere(v)
  if values.is_mirrored(v) then
    return is_shared(v)
  end
  return v.trainable == true
end

--- Raise where copies that must be equal are not: replicas would train apart.
--- Cost: the bytes of all copies are read once. Blocks: until they are there.
--- Errors: FailedPrecondition naming the variable.
---@param what string     for messages
---@param list table[]    variables
---@param all? boolean    those too that may be a replica's own affair
function M.check_copies(what, list, all)
  for i = 1, list.n or #list do
    local v = list[i]
    local must = is_shared(v) or all and values.is_mirrored(v)
      and raw.mirrored_kind_of(v) == "mirrored"
    if must and not raw.mirrored_agree(v) then
      errors.raise("FailedPrecondition", ("%s: the copies of variable %s on %s "
        .. "differ; replicas would train apart"):format(what,
        text.quote(v.name), places_of(values.copies(v))), "assign it outside "
        .. "of strategy:run, or make it with an aggregation")
    end
  end
end

-- Put the metatable of distributed variables in place.
local meta = raw.metatable "mirrored"
setmetatable(methods, { __index = tensor.methods })
setmetatable(getters, { __index = tensor.getters })
tensor.fill_metatable(meta, tf, methods, getters, "distributed variable")
meta.__tostring = to_text
meta.__variable = true

M.class_of = class_of

return M
