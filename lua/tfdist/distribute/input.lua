--- Distributed input: data sets whose batches are shared among replicas.
---
--- Every iteration step gives each replica of this worker one element. Where it
--- comes from (module input_shares has the arithmetic):
---   one replica in sync   the data set as it is
---   DATA     each batch of the pipeline is split among all replicas; workers
---            run the same pipeline and take their replicas' pieces
---   FILE, OFF, HINT    the worker's own stream is cut into pieces, across
---            batches; with an unknown batch size batch by batch
---   from a function    the next elements, one for each replica
--- Replicas without data get an empty share (leading dimension 0).
local contexts = require "tfdist.distribute.contexts"
local data = require "tfdist.data"
local dataset = require "tfdist.data.dataset"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local iterators = require "tfdist.distribute.input_iterator"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local shares = require "tfdist.distribute.input_shares"
local sharding = require "tfdist.distribute.input_sharding"
local spec = require "tfdist.data.spec"
local steps = require "tfdist.distribute.input_steps"
local text = require "tfdist.base.text"

local M = {}

local getmetatable, setmetatable = getmetatable, setmetatable
local DISTRIBUTE = "experimental_distribute_dataset"

-- Where this process stands --------------------------------------------------

--- Workers W, this worker w, replicas of this worker R. A strategy of several
--- workers has a method input_agree(strategy, flag, rows) -> true when the flag
--- is true on any of them, and the rows of all.
function M.topology(strategy)
  local R = strategy.local_count
  return math.floor(strategy.num_replicas_in_sync / R),
    math.floor(strategy.first_replica / R), R
end

-- InputOptions, InputContext -------------------------------------------------

local MODES = { "PER_WORKER", "PER_REPLICA" }

--- Source: tf.distribute.InputReplicationMode
M.InputReplicationMode = {
  PER_WORKER = "PER_WORKER", PER_REPLICA = "PER_REPLICA",
}

local InputOptions = { __name = "InputOptions" }

function InputOptions:__tostring()
  return ("InputOptions (fetch to device %s, %s, place dataset on device %s, "
    .. "buffer of %d per replica)"):format(
    tostring(self.experimental_fetch_to_device ~= false),
    self.experimental_replication_mode,
    tostring(self.experimental_place_dataset_on_device),
    self.experimental_per_replica_buffer_size)
end

--- How distributed iterators hand out elements.
---   experimental_fetch_to_device          copy shares to the replicas' devices
---     ahead of their use (default true); false leaves them on the host
---   experimental_replication_mode         PER_WORKER, or PER_REPLICA for
---     distribute_datasets_from_function of a MirroredStrategy
---   experimental_place_dataset_on_device  only with PER_REPLICA
---   experimental_per_replica_buffer_size  steps prepared ahead (default 1)
--- Source: tf.distribute.InputOptions
M.InputOptions = options.wrap("InputOptions",
  "experimental_fetch_to_device=nil experimental_replication_mode=PER_WORKER "
  .. "experimental_place_dataset_on_device=false "
  .. "experimental_per_replica_buffer_size=1",
  function(fetch, mode, place, buffer)
    local what = "InputOptions"
    mode = options.choice(what, "experimental_replication_mode", mode, MODES)
    if place and mode ~= "PER_REPLICA" then
      errors.raise("ValueError", "InputOptions: "
        .. "experimental_place_dataset_on_device needs "
        .. "experimental_replication_mode PER_REPLICA")
    end
    return setmetatable({
      experimental_fetch_to_device = fetch,
      experimental_replication_mode = mode,
      experimental_place_dataset_on_device = place,
      experimental_per_replica_buffer_size = options.integer(what,
        "experimental_per_replica_buffer_size", buffer, 0),
    }, InputOptions)
  end)

local function input_options(what, given)
  if given == nil then
    return M.InputOptions()
  elseif getmetatable(given) == InputOptions then
    return given
  elseif text.is_plain(given) then
    return M.InputOptions(given)
  end
  errors.raise("TypeError", ("%s: options must be tf.distribute.InputOptions, "
    .. "got %s"):format(what, text.describe(given)))
end

local InputContext = { __name = "InputContext" }
local context_methods = {}
InputContext.__index = text.watch_methods("InputContext", context_methods)

function InputContext:__tostring()
  return ("tf.distribute.InputContext(input pipeline id %d, total: %d)")
    :format(self.input_pipeline_id, self.num_input_pipelines)
end

--- The share of one replica of a global batch.
--- Errors: ValueError unless it divides evenly.
--- Source: tf.distribute.InputContext.get_per_replica_batch_size
context_methods.get_per_replica_batch_size = options.method(
  "InputContext.get_per_replica_batch_size", "global_batch_size",
  function(self, G)
    local n = self.num_replicas_in_sync
    options.integer("get_per_replica_batch_size", "global_batch_size", G, 0)
    if G % n ~= 0 then
      errors.raise("ValueError", ("get_per_replica_batch_size: the "
        .. "global_batch_size %s is not divisible by num_replicas_in_sync %d")
        :format(text.number(G), n))
    end
    return math.floor(G / n)
  end, function(x)
    return getmetatable(x) == InputContext
  end, "input context")

--- What a dataset function is told: which pipeline it makes, of how many.
--- Source: tf.distribute.InputContext
M.InputContext = options.wrap("InputContext", "num_input_pipelines=1 "
  .. "input_pipeline_id=0 num_replicas_in_sync=1",
  function(pipelines, id, replicas)
    return setmetatable({
      num_input_pipelines = pipelines, input_pipeline_id = id,
      num_replicas_in_sync = replicas,
    }, InputContext)
  end)

M.rows_of = iterators.rows_of

-- Data sets ------------------------------------------------------------------

local Distributed = { __name = "DistributedDataset" }
local methods = {}

local function is_distributed(x)
  return getmetatable(x) == Distributed
end

--- True for distributed data sets.
M.is_distributed = is_distributed

local function method(name, signature, fn)
  methods[name] = options.method("DistributedDataset." .. name, signature, fn,
    is_distributed, "dataset")
end

--- Steps for a loop: `for x, y in dist_dataset:iter() do`, from the beginning.
--- Errors: RuntimeError inside a replica function.
method("iter", "", function(self)
  contexts.require_cross_replica(self.plan.strategy, "DistributedDataset:iter")
  return iterators.iterate(self.plan)
end)

--- Number of steps, or one of tf.data's constants where it is not known.
method("cardinality", "", function(self)
  return iterators.cardinality(self.plan)
end)

local function explain_global(plan, out)
  local n = plan.W * plan.R
  if plan.G ~= nil then
    out[#out + 1] = ("Each batch of %d elements is shared among %d replicas: "
      .. "%s elements, in order."):format(plan.G, n,
      shares.list_text(shares.shares(plan.G, n)))
    out[#out + 1] = "A shorter batch fills replica 0 first, then replica 1 and "
      .. "so on; replicas left without data get an empty share."
  else
    out[#out + 1] = ("The batch size is not known beforehand: each batch of B "
      .. "elements is split into pieces of ceil(B / %d), the last ones shorter "
      .. "or empty."):format(n)
  end
  if plan.W > 1 then
    out[#out + 1] = ("All %d workers run the whole pipeline and see the same "
      .. "batches; this one, worker %d, has replicas %d to %d."):format(plan.W,
      plan.w, plan.w * plan.R, plan.w * plan.R + plan.R - 1)
  end
end

local function explain_cut(plan, out)
  if plan.W > 1 then
    out[#out + 1] = ("Worker %d of %d reads %s."):format(plan.w, plan.W,
      plan.policy == "OFF" and "the whole data set, as all others do"
      or plan.policy == "FILE" and "its own files"
      or "what shard(SHARD_HINT, SHARD_HINT) leaves it")
  end
  if plan.G == nil then
    out[#out + 1] = ("The batch size is not known beforehand: its batches are "
      .. "split into %d even pieces, which its replicas take in turn.")
      :format(plan.W * plan.R)
    return
  end
  out[#out + 1] = ("Its stream is cut into pieces of %s elements in turn, "
    .. "across batches, one for each of its %d replica%s in every step; a step "
    .. "of all workers has %d elements."):format(shares.list_text(
    shares.sizes_for_worker(plan.G, plan.W, plan.R, plan.w)), plan.R,
    plan.R == 1 and "" or "s", plan.G)
end

--- In words: which replica gets which part of the data, and why.
---@return string
method("explain", "", function(self)
  local plan = self.plan
  local out = {}
  if plan.W * plan.R == 1 then
    out[1] = "One replica: every element goes to it as it is."
  elseif plan.kind == "dealt" then
    out[1] = plan.per_replica and "Each replica reads a data set of its own."
      or ("Each step takes the next %d element%s of the data set, one for each "
      .. "replica of this worker; nothing is split or sharded."):format(plan.R,
      plan.R == 1 and "" or "s")
  else
    out[1] = ("Auto-shard policy: %s (%s)."):format(plan.policy, plan.reason)
    if plan.kind == "cut" then
      explain_cut(plan, out)
    else
      explain_global(plan, out)
    end
  end
  out[#out + 1] = plan.fetch and plan.strategy.replica_devices[1] ~= nil
    and ("Shares are copied to the replicas' devices %d step%s ahead.")
    :format(plan.buffer, plan.buffer == 1 and "" or "s")
    or "Elements stay on the host."
  return table.concat(out, "\n")
end)

-- For the prompt.
function Distributed.__names()
  return text.names(methods, { element_spec = true })
end

function Distributed:__index(key)
  if methods[key] ~= nil then
    return methods[key]
  elseif key == "element_spec" then
    return iterators.element_spec(rawget(self, "plan"))
  end
  local names = Distributed.__names()
  errors.raise("KeyError", "a DistributedDataset has no field or method "
    .. text.name(key), type(key) == "string" and (text.nearest(key, names)
    and "did you mean " .. text.nearest(key, names) .. "?"
    or "transform the data set before it is distributed") or nil)
end

-- `for x in dist_dataset do` calls what it finds.
function Distributed:__call()
  errors.raise("TypeError", text.describe(self) .. " cannot be called",
    "for x in dist_dataset:iter() do")
end

function Distributed:__tostring()
  local plan = self.plan
  return ("DistributedDataset for %s, %d replica%s%s\n%s"):format(
    plan.strategy.name, plan.W * plan.R, plan.W * plan.R == 1 and "" or "s",
    plan.W > 1 and (" (worker %d of %d)"):format(plan.w, plan.W) or "",
    dataset.pipeline_text(plan.node))
end

local function new_plan(strategy, kind, given)
  local W, w, R = M.topology(strategy)
  return {
    strategy = strategy, kind = kind, W = W, w = w, R = R,
    wrapped = W * R > 1, buffer = given.experimental_per_replica_buffer_size,
    fetch = given.experimental_fetch_to_device ~= false,
    agree = W > 1 and function(flag, rows)
      return strategy:input_agree(flag, rows)
    end or nil,
    piece = function(rows, G, replica)
      return raw.strategy_input_share(strategy.handle, rows, G or -1, replica)
    end,
  }
end

--- A distributed data set for worker w of W with R replicas, without a strategy
--- of several workers: for tests of the arithmetic. `step` tables are plain.
function M.plan_for(strategy, node, W, w, R)
  local plan = new_plan(strategy, "global", M.InputOptions())
  plan.W, plan.w, plan.R = W, w, R
  plan.piece = function(rows, G, replica)
    return shares.piece(rows, G, W * R, replica)
  end
  plan.wrapped, plan.fetch, plan.buffer = false, false, 0
  return M.complete(plan, node)
end

--- Steps of such a plan: lists of R packs.
function M.plain_steps(plan)
  local sources = {}
  for i = 1, #plan.nodes do
    sources[i] = dataset.iterate(plan.nodes[i])
    sources[i].run.watch_sizes = plan.kind == "global"
  end
  local maker = steps.make(plan, sources)
  return function()
    return maker:next()
  end
end

--- Decide how a node's elements are divided.
function M.complete(plan, node)
  local n = plan.W * plan.R
  if n == 1 then
    plan.kind, plan.policy, plan.reason = "dealt", "OFF", "one replica"
  else
    node, plan.policy, plan.reason = sharding.resolve(node, plan.W, plan.w,
      plan.R)
    plan.kind = plan.policy == "DATA" and "global" or "cut"
    plan.pieces = plan.kind == "cut"
    plan.G = dataset.batch_size_of(node)
  end
  plan.node, plan.nodes = node, { node }
  return plan
end

-- E10 as early as it can be told without reading.
local function check_batched(plan)
  local known = dataset.known_spec(plan.node)
  local leaves = known and nest.flatten(known) or { n = 0 }
  for i = 1, leaves.n do
    local x = leaves[i]
    if spec.is_spec(x) and x.shape ~= nil and #x.shape == 0 then
      local pack = element.map(element.zeros, known)
      steps.need_batched(plan.node, pack, plan.W * plan.R)
    end
  end
end

local function distribute(strategy, given, input)
  contexts.require_cross_replica(strategy, DISTRIBUTE)
  if is_distributed(given) then
    errors.raise("TypeError", DISTRIBUTE .. ": the dataset is distributed "
      .. "already")
  end
  local node = dataset.node_of(DISTRIBUTE, "dataset", given)
  local how = input_options(DISTRIBUTE, input)
  if how.experimental_replication_mode == "PER_REPLICA" then
    errors.raise("NotImplementedError", DISTRIBUTE .. ": "
      .. "experimental_replication_mode PER_REPLICA only works with "
      .. "distribute_datasets_from_function")
  elseif strategy == contexts.default_strategy then
    return given
  end
  local plan = M.complete(new_plan(strategy, "global", how), node)
  if plan.kind ~= "dealt" then
    check_batched(plan)
  end
  return setmetatable({ plan = plan }, Distributed)
end

-- dataset_fn of a context, as a node.
local function call_dataset_fn(what, fn, context)
  local made = fn(context)
  if not dataset.is_dataset(made) then
    errors.raise("TypeError", ("%s: dataset_fn must return a dataset, got %s")
      :format(what, text.describe(made)))
  end
  return made.node
end

local FROM_FUNCTION = "distribute_datasets_from_function"

local function per_replica_nodes(strategy, fn)
  local W, w, R = M.topology(strategy)
  local nodes = {}
  for r = 1, R do
    nodes[r] = call_dataset_fn(FROM_FUNCTION, fn, M.InputContext {
      num_input_pipelines = W * R, input_pipeline_id = w * R + r - 1,
      num_replicas_in_sync = W * R,
    })
  end
  return nodes
end

local function from_function(strategy, fn, input)
  contexts.require_cross_replica(strategy, FROM_FUNCTION)
  dataset.check_function(FROM_FUNCTION, "dataset_fn", fn)
  local how = input_options(FROM_FUNCTION, input)
  local plan = new_plan(strategy, "dealt", how)
  if how.experimental_replication_mode == "PER_REPLICA" then
    if strategy.name ~= "MirroredStrategy" then
      errors.raise("NotImplementedError", ("%s: experimental_replication_mode "
        .. "PER_REPLICA only works with MirroredStrategy, not %s"):format(
        FROM_FUNCTION, strategy.name))
    end
    plan.nodes, plan.per_replica = per_replica_nodes(strategy, fn), true
  else
    plan.nodes = { call_dataset_fn(FROM_FUNCTION, fn, M.InputContext {
      num_input_pipelines = plan.W, input_pipeline_id = plan.w,
      num_replicas_in_sync = plan.W * plan.R,
    }) }
  end
  plan.node = plan.nodes[1]
  if strategy == contexts.default_strategy then
    return dataset.wrap(plan.node)
  end
  return setmetatable({ plan = plan }, Distributed)
end

-- Iterators of TensorFlow 1 ---------------------------------------------------

-- A function that gives elements stands for a data set of them.
local function as_dataset(made)
  if type(made) ~= "function" then
    return made
  end
  return data.Dataset.from_generator(function()
    return made
  end)
end

local function make_input_fn_iterator(strategy, fn, mode)
  dataset.check_function("make_input_fn_iterator", "input_fn", fn)
  return from_function(strategy, function(context)
    return as_dataset(fn(context))
  end, M.InputOptions { experimental_replication_mode = mode }):iter()
end

-- NumPy-like data ------------------------------------------------------------

-- Lists of tensors are stacked; everything else must be a tensor's worth.
local function host_arrays(what, x)
  if text.is_plain(x) and element.literal_kind(x, 0) == "structure" then
    local n, keys = nest.layout(x)
    local out = { n = keys == nil and n or nil }
    for i = 1, n do
      out[i] = element.component(x[i], what)
    end
    for i = 1, keys and #keys or 0 do
      out[keys[i]] = element.component(x[keys[i]], what)
    end
    return out
  end
  return element.component(x, what)
end

local function numpy_dataset(strategy, x)
  local what = "experimental_make_numpy_dataset"
  contexts.require_cross_replica(strategy, what)
  return data.Dataset.from_tensor_slices(host_arrays(what, x))
end

-- run_steps_on_iterator ------------------------------------------------------

local StepContext = { __name = "MultiStepContext" }
local step_methods = {}

function StepContext:__index(key)
  return step_methods[key]
end

local function in_replica()
  local replica = contexts.get_replica_context()
  return replica ~= nil and replica ~= contexts.default_context
end

-- Call fn(output): in replicas once for what all of them give.
local function together(output, fn)
  if not in_replica() then
    return fn(output)
  end
  contexts.get_replica_context():merge_call(function(_, merged)
    fn(merged)
  end, { output, n = 1 })
end

--- Keep an output of the last step, reduced over replicas when reduce_op is
--- given, as it must be in a replica; found in last_step_outputs afterwards.
--- Errors: AssertionError in a replica without reduce_op.
step_methods.set_last_step_output = options.method(
  "MultiStepContext.set_last_step_output", "name output:table reduce_op=nil",
  function(self, name, output, op)
    if op == nil and in_replica() then
      errors.raise("AssertionError", "set_last_step_output: in a replica it "
        .. "needs reduce_op", "context:set_last_step_output(name, x, \"MEAN\")")
    end
    together(output, function(whole)
      self.last_step_outputs[name] = op and self.strategy:reduce(op, whole)
        or whole
    end)
  end)

--- Keep something that is no tensor; found in non_tensor_outputs. In a replica:
--- the list of what all of them gave.
step_methods.set_non_tensor_output = options.method(
  "MultiStepContext.set_non_tensor_output", "name output:table",
  function(self, name, output)
    local listed = in_replica()
    together(output, function(whole)
      self.non_tensor_outputs[name] = listed
        and self.strategy:experimental_local_results(whole) or whole
    end)
  end)

local function run_steps(strategy, fn, iterator, iterations, initial)
  local what = "experimental_run_steps_on_iterator"
  contexts.require_cross_replica(strategy, what)
  dataset.check_function(what, "fn", fn)
  if not iterators.is_iterator(iterator)
    and not dataset.is_iterator(iterator) then
    errors.raise("TypeError", ("%s: iterator must come from dataset:iter(), "
      .. "got %s"):format(what, text.describe(iterator)))
  end
  options.integer(what, "iterations", iterations, 0)
  local context = setmetatable({
    strategy = strategy, last_step_outputs = {}, non_tensor_outputs = {},
  }, StepContext)
  for name, value in pairs(initial or {}) do
    context.last_step_outputs[name] = value
  end
  for _ = 1, iterations do
    fn(context, iterator:get_next())
  end
  return context
end

-- Methods of strategies ------------------------------------------------------

--- Call method(name, signature, fn) for what every strategy gets.
function M.methods(define)
  --- A data set whose batches are shared among the replicas, see explain().
  --- options: tf.distribute.InputOptions.
  --- Errors: ValueError for a data set that is not batched (several replicas);
  ---   NotFound, InvalidArgument from sharding by FILE; NotImplementedError for
  ---   PER_REPLICA. Source: tf.distribute.Strategy
  define("experimental_distribute_dataset", "dataset:table options:table=nil",
    distribute)
  --- A data set of dataset_fn(InputContext), called once for each input
  --- pipeline; each step takes one element for each replica, unchanged.
  --- Source: tf.distribute.Strategy.distribute_datasets_from_function
  define("distribute_datasets_from_function", "dataset_fn options:table=nil",
    from_function)
  define("experimental_distribute_datasets_from_function",
    "dataset_fn options:table=nil", from_function)
  --- An iterator over experimental_distribute_dataset(dataset).
  --- Source: tf.compat.v1.distribute.Strategy.make_dataset_iterator
  define("make_dataset_iterator", "dataset:table", function(strategy, given)
    return distribute(strategy, given):iter()
  end)
  --- An iterator over distribute_datasets_from_function(input_fn), where
  --- input_fn may also return a function that gives the next element.
  --- Source: tf.compat.v1.distribute.Strategy.make_input_fn_iterator
  define("make_input_fn_iterator", "input_fn replication_mode=PER_WORKER",
    make_input_fn_iterator)
  --- Slices along axis 0 of arrays (nested lists or tensors), held on the host;
  --- batch and distribute it yourself.
  --- Source: tf.distribute.Strategy.experimental_make_numpy_dataset
  define("experimental_make_numpy_dataset", "numpy_input:nest session=nil",
    numpy_dataset)
end

--- Call method(name, signature, fn) for what strategy.extended gets; fn's first
--- argument is the strategy.
function M.extended_methods(define)
  --- Call fn(context, element...) for each of the next `iterations` elements;
  --- returns the context, which collects outputs.
  --- Source: StrategyExtended.experimental_run_steps_on_iterator
  define("experimental_run_steps_on_iterator", "fn iterator iterations=1 "
    .. "initial_loop_values:table=nil", run_steps)
  define("experimental_make_numpy_dataset", "numpy_input:nest session=nil",
    numpy_dataset)
  define("make_experimental_numpy_dataset", "numpy_input:nest session=nil",
    numpy_dataset)
end

return M
