--- tf.distribute.cluster_resolver: the classes, and the cluster of a process
--- that was not told which to use.
local from_tf_config = require "tfdist.distribute.cluster.from_tf_config"
local mpi = require "tfdist.distribute.cluster.mpi"
local resolvers = require "tfdist.distribute.cluster.resolver"
local schedulers = require "tfdist.distribute.cluster.schedulers"
local slurm = require "tfdist.distribute.cluster.slurm"
local specs = require "tfdist.distribute.cluster.spec"

local M = {}

M.ClusterSpec = specs.ClusterSpec

M.is_resolver = resolvers.is_resolver

M.names = {
  ClusterResolver = resolvers.ClusterResolver,
  SimpleClusterResolver = resolvers.SimpleClusterResolver,
  UnionResolver = resolvers.UnionResolver,
  TFConfigClusterResolver = from_tf_config.TFConfigClusterResolver,
  SlurmClusterResolver = slurm.SlurmClusterResolver,
  MPIClusterResolver = mpi.MPIClusterResolver,
  KubernetesClusterResolver = schedulers.KubernetesClusterResolver,
  GCEClusterResolver = schedulers.GCEClusterResolver,
  SageMakerClusterResolver = schedulers.SageMakerClusterResolver,
}

local function is_set(name)
  local value = os.getenv(name)
  return value ~= nil and value ~= ""
end

--- The cluster that this process was started in, and who says so: TF_CONFIG,
--- else Open MPI's mpirun, else a Slurm step of more than one task, else another
--- MPI; nil when it is alone.
--- TFDIST_AUTO_CLUSTER=0: TF_CONFIG alone is looked at, as TensorFlow does.
--- Errors: ValueError naming the place of a mistake, with exit code 2.
---@return table|nil resolver, string|nil source
function M.find()
  if is_set "TF_CONFIG" then
    return from_tf_config.TFConfigClusterResolver(), "TF_CONFIG"
      .. (is_set "TFDIST_RESTART" and " (tfdist run)" or "")
  elseif (os.getenv "TFDIST_AUTO_CLUSTER" or ""):match "^%s*0%s*$" then
    return nil
  elseif mpi.is_mpirun() then
    return mpi.MPIClusterResolver(), "MPI"
  elseif is_set "SLURM_PROCID"
    and (tonumber(os.getenv "SLURM_STEP_NUM_TASKS") or 1) > 1 then
    local resolver = slurm.SlurmClusterResolver()
    resolver:cluster_spec() -- says which task this is
    return resolver, "Slurm"
  elseif mpi.is_started() then
    return mpi.MPIClusterResolver(), "MPI"
  end
  return nil
end

return M
