--- TFConfigClusterResolver: the cluster that TF_CONFIG describes.
local resolvers = require "tfdist.distribute.cluster.resolver"
local tf_config = require "tfdist.distribute.cluster.tf_config"

local M = {}

local Resolver = resolvers.class("TFConfigClusterResolver", "task_type=nil "
  .. "task_id=nil rpc_layer=nil environment=nil", function(self, task_type,
    task_id, rpc_layer, environment)
  local found = tf_config.of_environment()
  if task_type == nil then
    task_type = found.task_type
  end
  if task_id == nil then
    task_id = found.task_id
  end
  resolvers.set_task("TFConfigClusterResolver", self, task_type, task_id,
    rpc_layer or found.rpc_layer)
  self.environment = environment or found.environment
  self._cluster = found.cluster
  self._session_master = found.session_master
end)

--- The cluster of TF_CONFIG, read when the resolver is made; arguments win over
--- what it says.
--- Errors: ValueError naming the place of a mistake, with exit code 2.
--- Source: tf.distribute.cluster_resolver.TFConfigClusterResolver
M.TFConfigClusterResolver = Resolver

function Resolver:cluster_spec()
  return self._cluster
end

-- Alone there is nobody to talk to.
local function is_alone(cluster)
  local jobs = cluster:jobs()
  return #jobs == 0 or (#jobs == 1 and cluster:num_tasks(jobs[1]) == 1)
end

--- Where the master is: session_master if TF_CONFIG has one, "" for a process
--- alone, else the address of a task.
function Resolver:master(task_type, task_id, rpc_layer)
  if task_type == nil and task_id == nil then
    if self._session_master ~= nil then
      return self._session_master
    elseif is_alone(self._cluster) then
      return ""
    end
  end
  return resolvers.address_of(self, task_type, task_id, rpc_layer)
end

resolvers.bind(Resolver, "TFConfigClusterResolver")

return M
