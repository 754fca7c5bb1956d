--- tf.distribute: strategies, contexts, distributed values.
local cluster = require "tfdist.distribute.cluster"
require "tfdist.distribute.collectives"
local communication = require "tfdist.distribute.communication"
local contexts = require "tfdist.distribute.contexts"
local cross_device_ops = require "tfdist.distribute.cross_device_ops"
local errors = require "tfdist.base.errors"
local input = require "tfdist.distribute.input"
local multi_worker = require "tfdist.distribute.multi_worker"
local options = require "tfdist.base.options"
local strategy = require "tfdist.distribute.strategy"
local text = require "tfdist.base.text"
require "tfdist.distribute.gradients"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"
require "tfdist.distribute.variables"

-- Results are tensors: they need their methods before any op has a name.
assert(tf.constant)


-- Where a program got nil for the replica context last.
local nil_at

local function get_replica_context()
  local context = contexts.get_replica_context()
  if context == nil then
    nil_at = errors.position()
  end
  return context
end

-- True for a place in the lines that follow another one.
local function is_behind(where, at)
  local file, line = at:match("^(.*):(%d+)$")
  local own_file, own_line = where:match("^(.*):(%d+)$")
  local lines = tonumber(own_line) - tonumber(line)
  return file == own_file and lines >= 0 and lines <= 10
end

errors.add_explanation(function(message, where)
  if nil_at ~= nil and where ~= nil and is_behind(where, nil_at)
    and message:find("attempt to index .*nil value") then
    return "RuntimeError", "tf.distribute.get_replica_context() at " .. nil_at
      .. " is nil in cross-replica context, as in strategy:scope"
  end
end)

local RunOptions = { __name = "RunOptions" }

-- Options of strategy:run for compiled steps, which say nothing to these.
-- Source: tf.distribute.RunOptions
local function run_options(dynamic, bucketizing, xla)
  return setmetatable({ experimental_enable_dynamic_batch_size = dynamic,
    experimental_bucketizing_dynamic_shape = bucketizing,
    experimental_xla_options = xla }, RunOptions)
end

local M = {
  MirroredStrategy = strategy.MirroredStrategy,
  MultiWorkerMirroredStrategy = multi_worker.MultiWorkerMirroredStrategy,
  OneDeviceStrategy = strategy.OneDeviceStrategy,
  get_strategy = contexts.get_strategy,
  has_strategy = contexts.has_strategy,
  get_replica_context = get_replica_context,
  in_cross_replica_context = contexts.in_cross_replica_context,
  experimental_set_strategy = contexts.experimental_set_strategy,
  is_strategy = strategy.is_strategy,
  is_distributed_value = values.is_value,
  cluster_resolver = cluster.names,
  InputContext = input.InputContext,
  InputOptions = input.InputOptions,
  InputReplicationMode = input.InputReplicationMode,
  ReduceOp = { SUM = "SUM", MEAN = "MEAN", MIN = "MIN", MAX = "MAX",
    PROD = "PROD" },
  CrossDeviceOps = cross_device_ops.CrossDeviceOps,
  ReductionToOneDevice = cross_device_ops.ReductionToOneDevice,
  NcclAllReduce = cross_device_ops.NcclAllReduce,
  HierarchicalCopyAllReduce = cross_device_ops.HierarchicalCopyAllReduce,
  RunOptions = options.wrap("RunOptions",
    "experimental_enable_dynamic_batch_size=true "
    .. "experimental_bucketizing_dynamic_shape=false "
    .. "experimental_xla_options=nil", run_options),
  experimental = {
    CommunicationOptions = communication.CommunicationOptions,
    CommunicationImplementation = communication.CommunicationImplementation,
    CollectiveCommunication = communication.CommunicationImplementation,
    CollectiveHints = communication.CollectiveHints,
    CentralStorageStrategy = strategy.CentralStorageStrategy,
    MultiWorkerMirroredStrategy = multi_worker.experimental,
    ValueContext = options.wrap("ValueContext",
      "replica_id_in_sync_group=0 num_replicas_in_sync=1",
      strategy.value_context),
  },
}

options.functions(M, "", {
  get_strategy = "", has_strategy = "", get_replica_context = "",
  in_cross_replica_context = "", is_strategy = "x:table=nil",
  is_distributed_value = "x:table=nil",
})

text.watch("tf.distribute", M)
text.watch("tf.distribute.cluster_resolver", M.cluster_resolver)
text.watch("tf.distribute.experimental", M.experimental)

return M
