--- MPIClusterResolver: the processes that mpirun, or srun --mpi=pmix, started.
---
--- MPI itself says who they are: ranks are workers in their order, and the hosts
--- are exchanged. Whoever asks starts MPI in its process.
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local resolvers = require "tfdist.distribute.cluster.resolver"
local specs = require "tfdist.distribute.cluster.spec"

local M = {}

local NAME = "MPIClusterResolver"

-- How many processes the starter says there are, 0 when it is none that we
-- know; nothing is opened for it.
local function size_of(...)
  for _, name in ipairs { ... } do
    local n = tonumber(os.getenv(name))
    if n ~= nil then
      return n
    end
  end
  return 0
end

--- Did mpirun start this process together with others? Its word comes before
--- Slurm's: inside of an allocation it has Slurm start its daemons, whose
--- variables the processes inherit. PMI_SIZE alone may be srun's own word;
--- MPICH's mpirun says with it how many processes are on this machine.
function M.is_mpirun()
  return size_of "OMPI_COMM_WORLD_SIZE" > 1
    or size_of "PMI_SIZE" > 1 and size_of "MPI_LOCALNRANKS" > 0
end

--- Did a starter of any kind that MPI knows?
function M.is_started()
  return size_of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE") > 1
end

local MPI = resolvers.class(NAME, "port_base=8888 rpc_layer='grpc'",
  function(self, port_base, rpc_layer)
    self._port = options.integer(NAME, "port_base", port_base, 1, 65535)
    local rank, size = raw.world("mpi", 0)
    self._hosts = {}
    for i = 0, size - 1 do
      self._hosts[i + 1] = raw.world_host("mpi", i)
    end
    resolvers.set_task(NAME, self, "worker", rank, rpc_layer)
  end)

--- The cluster of an MPI job: each rank is a worker, and the task k of a host
--- has the port port_base + k. Collectives go over MPI unless something else is
--- asked for.
--- Errors: Unavailable when no MPI started the process; NotFound without the
---   plug-in for the MPI that did.
M.MPIClusterResolver = MPI

--- Who moves bytes where nothing else is said.
MPI.provider = "mpi"

function MPI:cluster_spec()
  local tasks, seen = {}, {}
  for i, host in ipairs(self._hosts) do
    local k = seen[host] or 0
    seen[host] = k + 1
    tasks[i - 1] = ("%s:%d"):format(host, self._port + k)
  end
  return specs.of_tasks { worker = tasks }
end

function MPI:master(task_type, task_id, rpc_layer)
  return resolvers.address_of(self, task_type, task_id, rpc_layer)
end

resolvers.bind(MPI, NAME)

return M
