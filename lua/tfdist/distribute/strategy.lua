--- Strategies as users see them: Default, OneDevice, Mirrored.
---
--- A class is a name, a kind of the C side, whose table says what its variables,
--- sums and shares of a batch are, and the methods below; what differs here
--- follows from two facts: `one_copy` strategies have one replica and nothing
--- distributed; the default strategy is in force where no other is.
local contexts = require "tfdist.distribute.contexts"
local cross_device = require "tfdist.distribute.cross_device_ops"
local errors = require "tfdist.base.errors"
local loading = require "tfdist.base.loading"
local extended = require "tfdist.distribute.extended"
local guard = require "tfdist.base.guard"
local input = require "tfdist.distribute.input"
local nest = require "tfdist.base.nest"
local notice = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local replica = require "tfdist.distribute.replica"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"
local variables = require "tfdist.distribute.variables"

local M = {}

local setmetatable, type = setmetatable, type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local is_strategy = contexts.is_strategy
M.is_strategy = is_strategy

-- Methods, put into every class ----------------------------------------------

local list = {}

local function method(name, signature, fn)
  list[#list + 1] = { name = name, signature = signature, fn = fn }
end

--- Call fn inside the strategy's scope and return what it returns: variables
--- made there belong to the strategy. Without fn: a scope object, entered, with
--- close() and a reentrant enter().
--- Errors: RuntimeError inside another strategy's scope or a replica function.
--- Source: tf.distribute.Strategy.scope
method("scope", "fn:body=nil", function(self, fn)
  local scope = self:new_scope()
  if fn == nil then
    scope:enter()
    return scope
  end
  text.check_callable("strategy:scope", "fn", fn)
  return scope:call(fn)
end)

local NOTHING = {}

local function check_arguments(what, fn, args, kwargs)
  if type(fn) ~= "function" then
    text.check_callable(what, "fn", fn)
  end
  if args ~= nil or kwargs ~= nil then
    replica.check_arguments(what, args, kwargs, "strategy:run(step, { images })")
    for key in pairs(args or NOTHING) do
      if type(key) ~= "number" and key ~= "n" then
        errors.raise("ValueError", ("%s: args must be a list of arguments, got "
          .. "the key %s"):format(what, text.quote(tostring(key))), "named "
          .. "arguments go last: strategy:run(step, { images }, { rate = 1 })")
      end
    end
  end
  if type(fn) ~= "function" then
    local object = fn
    fn = function(...)
      return object(...)
    end
  end
  return fn
end

local function leave_run(own, mode, creators, run, depth, worker, ok, ...)
  own.mode, own.creators = mode, creators
  if worker ~= nil then
    random_seed.draw_for(worker)
  end
  if not ok and not raw.is_released(run) then
    raw.release(run) -- enters the context it began in
  end
  while raw.device_depth() > depth do
    raw.device_pop()
  end
  if not ok then
    errors.raise_again((...))
  end
  local results = ...
  return unpack(results, 1, results.n)
end

-- In the strategy's scope, which need not be looked for by position.
local function run_replicas(self, fn, args, kwargs)
  local own = state.current
  local mode, creators = own.mode, own.creators
  local run, depth = raw.run_begin(self.handle), raw.device_depth()
  if mode == nil then
    local creator = self.creator
    if creator == nil then
      creator = variables.creator(self)
      self.creator = creator
    end
    own.mode = { strategy = self }
    own.creators = { fn = creator, next = creators }
  end
  local worker
  if self.over_workers then
    worker = random_seed.draw_for(self.role.worker_index)
  end
  return leave_run(own, mode, creators, run, depth, worker, guard.pcall(
    own.thread, "strategy:run", replica.run, self, run, fn, args, kwargs))
end

-- What a traced function does instead: it takes the whole run.
local function run_over_of(object)
  local meta = getmetatable(object)
  return type(meta) == "table" and meta.run_over or nil
end

--- Call fn once on each replica with its components of args (and kwargs as a
--- last table); returns its results, regrouped.
--- Errors: those of fn, with the replica they come from; RuntimeError inside a
---   replica function or another strategy's scope; ValueError for args that is
---   no table.
--- Source: tf.distribute.Strategy.run
local function run(self, fn, args, kwargs)
  local object = fn
  local lifts = type(fn) == "table" and run_over_of(fn)
  fn = check_arguments("strategy:run", fn, args, kwargs)
  contexts.require_cross_replica(self, "strategy:run",
    "a replica function cannot start another run")
  if not self.one_copy then
    if lifts then
      return lifts(object, self, args, kwargs)
    end
    return run_replicas(self, fn, args, kwargs)
  end
  args = args or {}
  if self == contexts.default_strategy then
    return replica.run_inline(self, fn, args, kwargs)
  end
  return self:new_scope():call(extended.on_device, self.replica_devices[1],
    replica.run_inline, self, fn, args, kwargs)
end

method("run", "fn args:table=nil kwargs:table=nil options:table=nil", run)
method("experimental_run_v2", "fn args:table=nil kwargs:table=nil", run)

local INSIDE = "inside the step use "
  .. "tf.distribute.get_replica_context():all_reduce(\"sum\", x)"

--- Sum or mean across replicas, with axis also along it; one plain tensor on
--- the current device. Structures are reduced leaf by leaf.
--- Shapes: components [d0..dk] of equal shape give [d0..dk]; with axis the
---   sizes along it may differ and weigh.
--- Errors: RuntimeError inside a replica function; ValueError for a plain value
---   that has no sum; InvalidArgument for shapes that differ.
--- Source: tf.distribute.Strategy.reduce
options.hint_missing("reduce", "value", function(given, n)
  for i = 1, n do
    if type(given[i]) == "userdata" then
      return "the operation comes first: reduce(reduce_op, value, axis)"
    end
  end
  return "a value that strategy:run returns is nil when the function it runs "
    .. "returns nothing"
end)
method("reduce", "reduce_op value:table axis=nil", function(self, op, value,
    axis)
  contexts.require_cross_replica(self, "strategy:reduce", INSIDE)
  if type(op) == "userdata" then
    errors.raise("TypeError", "strategy:reduce: the operation comes first: "
      .. "reduce(reduce_op, value, axis)", ("strategy:reduce(%s, value)")
      :format(text.quote(type(value) == "string" and value or "sum")))
  end
  op = reduce.op("strategy:reduce", op)
  if axis ~= nil and op ~= "SUM" and op ~= "MEAN" then
    errors.raise("TypeError", ("strategy:reduce: along an axis there are SUM "
      .. "and MEAN, got %s"):format(op))
  end
  return nest.map("strategy:reduce", function(x)
    if axis ~= nil then
      return reduce.along(tf, self, op, x, axis, "strategy:reduce")
    end
    return reduce.across(self, op, x, "strategy:reduce")
  end, value)
end)

--- The components joined along an axis, on the current device.
--- Shapes: [..., n_i, ...] give [..., sum n_i, ...].
--- Errors: RuntimeError inside a replica function; InvalidArgument when other
---   sizes or ranks differ; NotImplementedError for IndexedSlices.
--- Source: tf.distribute.Strategy.gather
method("gather", "value:table axis", function(self, value, axis)
  contexts.require_cross_replica(self, "strategy:gather", "inside the step "
    .. "use tf.distribute.get_replica_context():all_gather(x, axis)")
  options.integer("strategy:gather", "axis", axis)
  return nest.map("strategy:gather", function(x)
    return reduce.gather(self, x, axis)
  end, value)
end)

--- What each replica of this process holds, replica 0 first.
--- Source: tf.distribute.Strategy.experimental_local_results
method("experimental_local_results", "value:nest=nil", function(self, value)
  return values.local_results(value, self.local_count,
    "strategy:experimental_local_results")
end)

--- The older name of experimental_local_results.
method("unwrap", "value:nest=nil", function(self, value)
  return values.local_results(value, self.local_count, "strategy:unwrap")
end)

--- Nothing is left to do for the results of an update: they are made when this
--- is called. Source: tf.distribute.Strategy.group
method("group", "value:table=nil name=nil", function() end)

--- A PerReplica value of value_fn(context) for each replica (of each leaf, if
--- it gives tables), where context has
--- replica_id_in_sync_group and num_replicas_in_sync; the bare value for
--- strategies with one copy. Tensors that value_fn makes lie on the replica's
--- device.
--- Source: tf.distribute.Strategy.experimental_distribute_values_from_function
method("experimental_distribute_values_from_function", "value_fn",
  function(self, value_fn)
    local what = "strategy:experimental_distribute_values_from_function"
    contexts.require_cross_replica(self, what)
    text.check_callable(what, "value_fn", value_fn)
    local parts, n = {}, self.local_count
    for i = 1, n do
      parts[i] = extended.on_device(self.replica_devices[i], value_fn,
        M.value_context(self.first_replica + i - 1, self.num_replicas_in_sync))
    end
    return self.one_copy and parts[1]
      or values.regroup(self, parts, n, "wrapped", what)
  end)

input.methods(method)

--- A new scope object of the strategy, not entered.
method("new_scope", "", function(self)
  local creator = self == contexts.default_strategy and M.default_creator
    or variables.creator(self)
  return contexts.new_scope(self, creator)
end)

--- Canonical name of a replica's device; nil for the default strategy.
method("replica_device", "id", function(self, id)
  local device = self.replica_devices[id - self.first_replica + 1]
  return device and raw.device_name(device)
end)

-- Inside default.scope(), where another strategy's scope was opened.
function M.default_creator(next_creator, kwargs)
  local mode = contexts.mode()
  if mode ~= nil and mode.strategy ~= contexts.default_strategy then
    contexts.mixing(contexts.default_strategy, mode, "creating a variable "
      .. "inside the scope")
  end
  return next_creator(kwargs)
end

-- ValueContext ---------------------------------------------------------------

local ValueContext = { __name = "ValueContext" }
ValueContext.__index = ValueContext

function ValueContext:__tostring()
  return ("ValueContext (replica %d of %d)"):format(
    self.replica_id_in_sync_group, self.num_replicas_in_sync)
end

--- Source: tf.distribute.experimental.ValueContext
function M.value_context(id, n)
  return setmetatable({
    replica_id_in_sync_group = id or 0, num_replicas_in_sync = n or 1,
  }, ValueContext)
end

-- Classes --------------------------------------------------------------------

local function to_text(self)
  local places, shared = {}, true
  for i, device in ipairs(self.replica_devices) do
    places[i] = raw.device_short_name(device)
    shared = shared and places[i]:find "^/cpu:" ~= nil
  end
  local n = self.num_replicas_in_sync
  local shown = ("%s{ %s }  %d replica%s in sync"):format(self.name,
    table.concat(places, ", "), n, n == 1 and "" or "s")
  if n == 1 then
    return shown
  elseif self.over_workers then
    local role = self.role
    return ("%s, worker %d of %d"):format(shown, role.worker_index,
      role.num_workers)
  elseif raw.strategy_parameter_count(self.handle) == 1 then
    return shown .. ", variables on " .. raw.device_short_name(
      raw.strategy_parameter_device(self.handle, 0))
  end
  local ops = self.cross_device_ops
  if ops ~= nil and ops ~= cross_device.choose(self.handle) then
    return shown .. ", reduction: " .. tostring(ops)
  end
  return shown .. ", reduction: " .. (shared and "all devices share memory"
    or raw.strategy_provider(self.handle) == "nccl" and "NCCL"
    or "copies through the host")
end

-- Fields that users read, by the names of those that hold them.
local FIELDS = { num_replicas_in_sync = "replica_count",
  extended = "own_extended" }
-- cluster_resolver is TensorFlow's None: there is no cluster.
local UNSET = { crew = true, creator = true, cross_device_ops = true,
  cluster_resolver = true, communication_options = true, role = true }

--- A class of strategies. one_copy: one replica, nothing distributed.
---@param name string
---@param one_copy? boolean
function M.class(name, one_copy)
  local meta = { __name = name, is_tf_strategy = true, methods = {},
    one_copy = one_copy or false }
  for _, entry in ipairs(list) do
    local bound = options.method(name .. "." .. entry.name,
      entry.signature, entry.fn, is_strategy, "strategy")
    options.signature_of(bound).called = "strategy:" .. entry.name
    meta.methods[entry.name] = bound
  end
  local methods = meta.methods
  function meta.__names()
    return text.names(methods, FIELDS)
  end
  local unknown = text.unknown_fields(name, UNSET, meta.__names)
  function meta.__index(self, key)
    local found = methods[key]
    if found ~= nil then
      return found
    elseif FIELDS[key] ~= nil then
      return rawget(self, FIELDS[key])
    elseif type(key) == "string" and not UNSET[key] then
      loading.load("tfdist.base.missing").check_strategy(key)
    end
    return unknown(key)
  end
  function meta.__newindex(self, key, value)
    if FIELDS[key] ~= nil or methods[key] ~= nil then
      errors.raise("TypeError", ("%s: %s cannot be set"):format(name, key))
    end
    rawset(self, key, value)
  end
  meta.__tostring = to_text
  return meta
end

--- A strategy object of a class, of a kind that the C side has.
---@param meta table        from M.class
---@param kind string       name of the C table
---@param devices table[]   from M.devices
---@param parameter_device? userdata
function M.new(meta, kind, devices, parameter_device)
  return M.of_handle(meta, raw.strategy_new(kind, devices, parameter_device),
    devices)
end

--- The same of a handle that is there.
---@param meta table        from M.class
---@param handle userdata
---@param devices table[]   of the replicas here
function M.of_handle(meta, handle, devices)
  local self = setmetatable({
    handle = handle, name = meta.__name, replica_devices = devices,
    replica_count = raw.strategy_replica_count(handle),
    local_count = raw.strategy_local_count(handle),
    first_replica = raw.strategy_first_replica(handle),
    over_workers = raw.strategy_local_count(handle)
      < raw.strategy_replica_count(handle),
    one_copy = meta.one_copy,
  }, meta)
  self.own_extended = extended.new(self)
  return self
end

-- Names of devices here and of other jobs' cannot be mixed; those of one other
-- job name the task, those of several do not make one strategy.
local function check_jobs(what, names)
  local here, tasks, n, whole = 0, {}, 0, true
  for i = 1, #names do
    local name = type(names[i]) == "string" and names[i]:lower() or ""
    local job, task = name:match "job:([^/]+)", name:match "task:(%d+)"
    if job == nil or job == "localhost" then
      here = here + 1
    else
      local key = job .. "/" .. (name:match "replica:(%d+)" or "") .. "/"
        .. (task or "")
      n, tasks[key] = n + (tasks[key] and 0 or 1), true
      whole = whole and task ~= nil
    end
  end
  if n == 0 then
    return
  elseif here > 0 then
    errors.raise("ValueError", what .. ": devices of this process and of "
      .. "another job cannot be mixed", "names without a job, or of "
      .. "/job:localhost, are those of this process")
  elseif n > 1 then
    errors.raise("RuntimeError", what .. ": the devices belong to several "
      .. "workers; those of one process are expected")
  elseif not whole then
    errors.raise("ValueError", what .. ": devices of another job need a task, "
      .. "as /job:worker/task:0/device:CPU:0")
  end
end

--- Devices by their names, or of the one that is named.
--- Errors: TypeError; ValueError, RuntimeError for other jobs' devices;
---   InvalidArgument for one that is not there.
function M.devices(what, names)
  if type(names) == "string" then
    names = { names }
  elseif not text.is_plain(names) then
    errors.raise("TypeError", ("%s: devices must be a list of names, got %s")
      :format(what, text.describe(names)))
  end
  check_jobs(what, names)
  local devices = {}
  for i = 1, #names do
    local given = names[i]
    if type(given) == "userdata" and raw.kind(given) == "device" then
      devices[i] = given
    elseif type(given) == "string" then
      devices[i] = raw.device_find(given)
    else
      errors.raise("TypeError", ("%s: devices[%d] must be a device's name, got "
        .. "%s"):format(what, i, text.describe(given)))
    end
  end
  return devices
end

local warned = false

-- GPUs that were seen, and that nobody can use.
local function warn_of_gpus()
  for i = 0, warned and -1 or raw.backend_count() - 1 do
    local _, kind, _, _, reason = raw.backend_at(i)
    if kind == "GPU" and reason ~= "" then
      warned = true
      notice.warn("replicas are on the CPU, for no GPU can be used: " .. reason)
    end
  end
end

--- All GPUs, else all logical CPU devices.
function M.all_devices()
  local kind = raw.device_count "GPU" > 0 and "GPU" or "CPU"
  if kind == "CPU" then
    warn_of_gpus()
  end
  local devices = {}
  for i = 1, raw.device_count(kind) do
    devices[i] = raw.device_at(kind, i - 1)
  end
  return devices
end

local Mirrored = M.class "MirroredStrategy"
local OneDevice = M.class("OneDeviceStrategy", true)
local Central = M.class "CentralStorageStrategy"

--- One replica on each device, with copies of the variables kept equal.
--- devices: names; by default all GPUs, else all logical CPU devices.
--- cross_device_ops: how values are combined; by default all devices that share
--- memory add up together, and GPUs by NCCL.
--- Errors: AssertionError for no devices or one twice; ValueError for devices of
---   this process and of others; InvalidArgument for one that is not there.
--- Source: tf.distribute.MirroredStrategy
M.MirroredStrategy = options.wrap("MirroredStrategy",
  "devices=nil cross_device_ops:table=nil", function(names, ops)
    cross_device.check("MirroredStrategy", ops)
    local devices = names ~= nil and M.devices("MirroredStrategy", names)
      or M.all_devices()
    local self = M.new(Mirrored, "mirrored", devices)
    self.cross_device_ops = ops or cross_device.choose(self.handle)
    return self
  end)

--- Everything on one device.
--- Source: tf.distribute.OneDeviceStrategy
M.OneDeviceStrategy = options.wrap("OneDeviceStrategy", "device",
  function(device)
    return M.new(OneDevice, "one_device",
      M.devices("OneDeviceStrategy", device))
  end)

--- Replicas on compute_devices, each variable once, on parameter_device.
--- Source: tf.distribute.experimental.CentralStorageStrategy
M.CentralStorageStrategy = options.wrap("CentralStorageStrategy",
  "compute_devices=nil parameter_device=nil",
  function(compute_devices, parameter_device)
    local devices = compute_devices ~= nil
      and M.devices("CentralStorageStrategy", compute_devices)
      or M.all_devices()
    local self = M.new(Central, "central_storage", devices,
      parameter_device ~= nil and M.devices("CentralStorageStrategy",
        { parameter_device })[1] or nil)
    self.cross_device_ops = cross_device.ReductionToOneDevice()
    return self
  end)

-- Make the default strategy and what hangs on it.
local default = M.new(M.class("DefaultStrategy", true), "default", {})
contexts.set_default(default, replica.default_context(default))

return M
