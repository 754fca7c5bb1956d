--- MultiWorkerMirroredStrategy: replicas on the devices of several processes.
---
--- Each process runs the same program. Who they are a cluster resolver says;
--- what they do together, the C side's group over all of them.
local cluster = require "tfdist.distribute.cluster"
local communication = require "tfdist.distribute.communication"
local contexts = require "tfdist.distribute.contexts"
local counted = require "tfdist.core.counted"
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local notice = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local roles = require "tfdist.distribute.cluster.roles"
local strategies = require "tfdist.distribute.strategy"
local text = require "tfdist.base.text"

local M = {}

local getmetatable = getmetatable
local NAME = "MultiWorkerMirroredStrategy"
local MOST_SCRIPT = 2 ^ 20 -- bytes of it that are compared
local Class = strategies.class(NAME)

-- What the environment says ----------------------------------------------------

local function variable(name)
  local value = os.getenv(name)
  return value ~= "" and value or nil
end

local function is_insecure()
  return (variable "TFDIST_INSECURE" or ""):match "^%s*1%s*$" ~= nil
end

-- Seconds of a variable, `usual` or 0 when it is not set.
local function seconds(name, usual)
  local value = variable(name)
  local x = tonumber(value)
  if value ~= nil and not (x and x > 0 and x < math.huge) then
    errors.raise_usage("ValueError", ("%s: expected a number of seconds above "
      .. "0, got %s"):format(name, text.quote(value)))
  end
  return x or usual or 0
end

-- In which the others come, and say their first words.
local function start_seconds()
  return seconds("TFDIST_RENDEZVOUS_TIMEOUT", 300)
end

-- How the process was started is wrong, or its peers': nothing can follow. What
-- the runtime has an end of its own for, such as a peer that is gone, is none.
local function as_usage(ok, ...)
  if ok then
    return ...
  end
  local e = ...
  if errors.is_error(e) and e.exit_code == nil and e.kind ~= "Cancelled"
    and e.kind ~= "ResourceExhausted" then
    e.exit_code = errors.EXIT_USAGE
  end
  error(e, 0)
end

local function secret()
  local path = variable "TFDIST_SECRET_FILE"
  if path ~= nil then
    local ok, found = pcall(raw.secret_read, path)
    if not ok and errors.is_error(found) then
      found.hint = found.hint or "TFDIST_SECRET_FILE names a file with the "
        .. "secret, up to 4096 bytes, of mode 0600"
    end
    return as_usage(ok, found)
  end
  return variable "TFDIST_SECRET" or ""
end

-- Who is in the cluster --------------------------------------------------------

-- The tasks that work together with this one, in order: the chief, workers.
local function members(spec, task_type)
  local list = {}
  for _, job in ipairs(task_type == "evaluator" and { "evaluator" }
    or { "chief", "worker" }) do
    for _, name in ipairs(spec:jobs()) do
      for _, index in ipairs(name == job and spec:task_indices(job) or {}) do
        list[#list + 1] = { type = job, index = index,
          address = spec:task_address(job, index) }
      end
    end
  end
  return list
end

local function has_job(spec, job)
  for _, name in ipairs(spec:jobs()) do
    if name == job then
      return true
    end
  end
  return false
end

local ROLES = { chief = true, worker = true, evaluator = true }

-- Those who work together, this one's place among them (from 0), and whether
-- it is the chief.
local function place(spec, task_type, task_id)
  if #spec:jobs() == 0
    or task_type == "evaluator" and not has_job(spec, task_type) then
    return {}, 0, true -- alone; an evaluator need not be in the others' list
  elseif task_type == nil or task_id == nil then
    errors.raise_usage("ValueError", NAME .. ": the cluster has tasks, but the "
      .. "resolver does not say which of them this process is: task_type and "
      .. "task_id are needed", 'TF_CONFIG: "task": {"type": "worker", '
      .. '"index": 0}')
  elseif not ROLES[task_type] then
    errors.raise_usage("ValueError", ("%s: this process is %s %d of its "
      .. "cluster; chief, workers and evaluator make this strategy"):format(
      NAME, task_type, task_id))
  end
  local chief = roles.is_chief(spec, task_type, task_id)
  if roles.worker_count(spec, task_type) == 1 then
    return {}, 0, chief
  end
  local list = members(spec, task_type)
  for i, task in ipairs(list) do
    if task.type == task_type and task.index == task_id then
      return list, i - 1, chief
    end
  end
  errors.raise("ValueError", ("%s: there is no task %s %d in the cluster")
    :format(NAME, task_type, task_id))
end

local function find_cluster(given)
  if given == nil then
    return cluster.find()
  elseif not cluster.is_resolver(given) then
    errors.raise("ValueError", ("%s: cluster_resolver must be a cluster "
      .. "resolver, got %s"):format(NAME, text.describe(given)))
  end
  return given, given:describe()
end

-- Transport --------------------------------------------------------------------

-- "" is the best that can.
local PROVIDERS = { AUTO = "", RING = "ring", NCCL = "", MPI = "mpi" }
local SHOWN = { tcp = "TCP", ring = "TCP, in a ring",
  halving = "TCP, by halves", doubling = "TCP, doubling", mpi = "MPI", shm = "shared memory",
  nccl = "NCCL", staged = "through memory of the hosts",
  hierarchical = "shared memory inside hosts, TCP between them" }

local function read_options(given)
  local ok, found = pcall(communication.read, NAME, given)
  if not ok then
    found.kind = "ValueError"
    error(found, 0)
  end
  return found or communication.CommunicationOptions()
end

local function addresses(list)
  local names = {}
  for i, task in ipairs(list) do
    names[i] = task.address
  end
  return table.concat(names, ",")
end

-- By name; "" = the best that can.
local function provider_of(resolver, how)
  local name = PROVIDERS[how.implementation]
  if how.implementation == "AUTO" and not variable "TFDIST_TRANSPORT" then
    name = resolver.provider or name
  end
  return name
end

local function join(resolver, devices, list, index, how)
  local handle = as_usage(pcall(raw.strategy_join, "multi_worker", devices,
    addresses(list), index, secret(), is_insecure(),
    provider_of(resolver, how), start_seconds(),
    seconds "TFDIST_HEARTBEAT_TIMEOUT",
    how.timeout_seconds or seconds "TFDIST_OP_TIMEOUT",
    seconds "TFDIST_STALL_WARN", how.bytes_per_pack))
  if how.implementation == "NCCL"
    and raw.strategy_provider(handle) ~= "nccl" then
    notice.warn(NAME .. ": implementation NCCL is asked for, but "
      .. (raw.device_count "GPU" == 0 and "there is no GPU"
        or "it does not connect these GPUs (TFDIST_LOG=info says why)")
      .. "; sums go over the network")
  end
  return handle
end

local function announce(self, source, list)
  if #list == 0 then
    notice.say(source and ("cluster from %s: one worker"):format(source)
      or "no cluster: one worker")
    return
  end
  local provider = raw.strategy_provider(self.handle)
  notice.say(("cluster from %s: %d workers, chief is %s %d; collectives: %s")
    :format(source, #list, list[1].type, list[1].index,
    SHOWN[provider] or provider))
end

-- What all run -----------------------------------------------------------------

-- A number of the script's text; "" where there is none to read. A pipe that
-- the script came through has no more of it, and no end.
local function script_hash()
  local is_read, bytes = false, ""
  if rawget(_G, "arg") and type(arg[0]) == "string" then
    is_read, bytes = pcall(files.read_plain, arg[0], MOST_SCRIPT)
  end
  local hash = 7
  for i = 1, is_read and #bytes or 0 do
    hash = (hash * 31 + bytes:byte(i)) % 2147483647
  end
  return is_read and ("%d"):format(hash) or ""
end

local LUA_PART = ", Lua part "

-- "0.1.0, build 1f40c2a97b3e, Lua part 77d0e1b6f2a5"; the last is known of
-- hosts alone, which carry that part with them.
local function build()
  local is_known, id = pcall(require, "tfdist.lua_id")
  return ("%s, build %s%s"):format(raw.version(), raw.build_id(),
    is_known and LUA_PART .. id or "")
end

-- Is it the same as far as both know?
local function is_same_build(a, b)
  local core_a, lua_a = (a .. LUA_PART):match("^(.-)" .. LUA_PART .. "(%x*)")
  local core_b, lua_b = (b .. LUA_PART):match("^(.-)" .. LUA_PART .. "(%x*)")
  return core_a == core_b and (lua_a == "" or lua_b == "" or lua_a == lua_b)
end

-- Every worker runs what the chief runs: another build is refused, another
-- script may be meant.
local function compare_with_chief(index, theirs, hash, script)
  local mine = build()
  if not is_same_build(mine, theirs) then
    errors.raise_usage("FailedPrecondition", ("%s: worker 0 runs tfdist %s; "
      .. "worker %d runs tfdist %s; all must run the same build"):format(NAME,
      theirs, index, mine))
  end
  local own = script_hash()
  if hash ~= "" and own ~= "" and hash ~= own then
    notice.warn(("worker %d runs another script than worker 0: %s, %s")
      :format(index, text.quote(arg[0]), text.quote(script)))
  end
end

-- The strategy -----------------------------------------------------------------

-- For module input: is the flag true on any worker, and the rows of all. Every
-- worker calls it.
Class.methods.input_agree = function(self, flag, rows)
  local sums = reduce.over_hosts(self, "sum", "distributed input",
    { flag and 1 or 0, rows })
  return sums[1] > 0, sums[2]
end

for _, name in ipairs { "run", "experimental_run_v2", "reduce", "gather" } do
  local method = Class.methods[name]
  local counts = counted.method("strategy:" .. name, method)
  Class.methods[name] = function(self, ...)
    -- What is no such strategy, the method itself refuses.
    return (getmetatable(self) == Class and counts or method)(self, ...)
  end
end

local function new(resolver, how)
  how = read_options(how)
  local found, source = find_cluster(resolver)
  found = found or cluster.names.TFConfigClusterResolver { task_type = "worker",
    task_id = 0 }
  local list, index, chief = place(found:cluster_spec(), found.task_type,
    found.task_id)
  local devices = strategies.all_devices()
  local handle = #list > 1 and join(found, devices, list, index, how)
    or raw.strategy_new("multi_worker", devices)
  local self = strategies.of_handle(Class, handle, devices)
  self.cluster_resolver, self.communication_options = found, how
  self.role = {
    num_workers = math.max(#list, 1), worker_index = index, is_chief = chief,
    should_checkpoint = chief, should_save_summary = chief,
    experimental_should_init = true, experimental_between_graph = true,
  }
  if self.over_workers then
    contexts.join(self.role)
    -- Numbers that nobody can foresee are the same for all: workers shuffle and
    -- augment the same data alike.
    local seed, theirs, hash, script = reduce.chiefs_text(self, NAME,
      ("%.0f\n%s\n%s\n%s"):format(random_seed.fresh(), build(),
      script_hash(), rawget(_G, "arg") and tostring(arg[0]) or ""),
      start_seconds()):match "^(.-)\n(.-)\n(.-)\n(.*)$"
    random_seed.fresh(tonumber(seed))
    compare_with_chief(index, theirs, hash, script)
  end
  if chief then
    announce(self, source, list)
  end
  return self
end

--- A replica on each device of each worker of a cluster, with copies of the
--- variables kept equal; sums are over all of them.
--- cluster_resolver: who the workers are; by default TF_CONFIG, else mpirun or
--- a Slurm step, else this process alone.
--- communication_options: tf.distribute.experimental.CommunicationOptions; its
--- implementation AUTO takes the fastest way that there is between the workers,
--- and NCCL where every replica has a GPU of its own, as NCCL does; RING a ring
--- of workers over TCP, whose sums are added in another order, MPI the plug-in
--- of that name.
--- Blocks: until all workers are there.
--- Errors: ValueError for what is no resolver or no options, and a cluster
---   without this process; with exit code 2: DeadlineExceeded when workers do
---   not come, FailedPrecondition when they are of another cluster or lack the
---   secret, Unavailable when this worker's port cannot be had.
--- Source: tf.distribute.MultiWorkerMirroredStrategy
M.MultiWorkerMirroredStrategy = options.wrap(NAME,
  "cluster_resolver=nil communication_options:table=nil", new)

--- The same, whose first argument is an implementation of collectives.
--- Source: tf.distribute.experimental.MultiWorkerMirroredStrategy
M.experimental = options.wrap("experimental." .. NAME,
  "communication=nil cluster_resolver=nil "
  .. "communication_options:table=nil", function(implementation, resolver, how)
    if implementation ~= nil then
      how = read_options(how):merge(read_options {
        implementation = implementation })
    end
    return new(resolver, how)
  end)

return M
