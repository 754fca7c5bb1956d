--- SlurmClusterResolver: the tasks of a Slurm step (srun).
---
--- Ranks fill the nodes in Slurm's own order, as many on each as the step put
--- there, and the jobs in the order of their names. Every rank makes the same
--- cluster from the step's variables; nobody is asked.
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local resolvers = require "tfdist.distribute.cluster.resolver"
local specs = require "tfdist.distribute.cluster.spec"
local text = require "tfdist.base.text"

local M = {}

local MOST_HOSTS = 65536

local function malformed(what, whole, problem)
  errors.raise_usage("ValueError", ("%s: %s in %s"):format(what, problem,
    text.quote(whole)))
end

local function too_many(what, whole)
  malformed(what, whole, ("more than %d hosts"):format(MOST_HOSTS))
end

-- A short text may stand for more than there is memory for.
local function check_most(what, whole, list)
  if #list > MOST_HOSTS then
    too_many(what, whole)
  end
end

-- "01-03" as { "01", "02", "03" }, zeros kept.
local function expand_range(what, whole, range, out)
  local low, high = range:match("^(%d+)%-(%d+)$")
  if low == nil then
    low, high = range:match("^(%d+)$"), range:match("^(%d+)$")
  end
  if low == nil or #high > 9 or tonumber(high) < tonumber(low) then
    malformed(what, whole, ("%s is no range such as 1-3"):format(
      text.quote(range)))
  elseif tonumber(high) - tonumber(low) >= MOST_HOSTS then
    too_many(what, whole)
  end
  for i = tonumber(low), tonumber(high) do
    out[#out + 1] = ("%0" .. #low .. "d"):format(i)
  end
end

-- One item without commas outside of brackets: "rack[1-2]n[1,3]".
local function expand_item(what, whole, item)
  local out, at = { "" }, 1
  while at <= #item do
    local plain = item:match("^[^%[%]]+", at)
    local parts = { plain }
    if plain == nil then
      local inside = item:match("^%[([%d,-]+)%]", at)
      if inside == nil then
        malformed(what, whole, ("brackets that hold no ranges, %s"):format(
          text.quote(item:sub(at))))
      end
      for range in (inside .. ","):gmatch "([^,]*)," do
        expand_range(what, whole, range, parts)
        check_most(what, whole, parts)
      end
      plain = "[" .. inside .. "]"
    end
    at = at + #plain
    if #out * #parts > MOST_HOSTS then
      too_many(what, whole)
    end
    local longer = {}
    for _, head in ipairs(out) do
      for _, part in ipairs(parts) do
        longer[#longer + 1] = head .. part
      end
    end
    out = longer
  end
  return out
end

--- The hosts of Slurm's short form, "n[1-2],m5,o[3-4,6,7-9]".
---@param whole string
---@param what? string  for messages
---@return string[]
function M.expand_hosts(whole, what)
  what = what or "expand_hosts"
  local hosts, depth, start = {}, 0, 1
  for at = 1, #whole + 1 do
    local c = at > #whole and "," or whole:sub(at, at)
    if c == "[" then
      depth = depth + 1
    elseif c == "]" then
      depth = depth - 1
    elseif c == "," and (depth == 0 or at > #whole) then
      if at == start then
        malformed(what, whole, "an empty name")
      end
      lists.append(hosts, expand_item(what, whole, whole:sub(start, at - 1)))
      check_most(what, whole, hosts)
      start = at + 1
    end
  end
  return hosts
end

--- How many tasks each node has, from Slurm's short form "3(x2),2,1".
---@param whole string
---@param what? string  for messages
---@return integer[]
function M.expand_counts(whole, what)
  what = what or "expand_counts"
  local counts = {}
  for item in (whole .. ","):gmatch "([^,]*)," do
    local n, times = item:match("^(%d+)%(x(%d+)%)$")
    n = n or item:match("^%d+$")
    times = tonumber(times or 1)
    if n == nil or #n > 9 or times < 1 or times > MOST_HOSTS then
      malformed(what, whole, ("%s is no count such as 2 or 2(x3)"):format(
        text.quote(item)))
    end
    for _ = 1, times do
      counts[#counts + 1] = tonumber(n)
    end
    check_most(what, whole, counts)
  end
  return counts
end

-- The step's variables ---------------------------------------------------------

local NAME = "SlurmClusterResolver"

local function environment(name)
  local value = os.getenv(name)
  if value == nil or value == "" then
    errors.raise("RuntimeError", ("%s: %s is not set; expected a process that "
      .. "srun started"):format(NAME, name), "srun -N 2 -n 2 tfdist script.lua")
  end
  return value
end

local function whole_number(name)
  local value = environment(name)
  if not value:find("^%d+$") or #value > 9 then
    errors.raise("ValueError", ("%s: %s is %s; expected a whole number")
      :format(NAME, name, text.quote(value)))
  end
  return tonumber(value)
end

-- Tasks of each node: one number for all, a list, or what the step says.
local function tasks_of_nodes(given, hosts)
  if type(given) == "number" then
    options.integer(NAME, "tasks_per_node", given, 1)
    local counts = {}
    for i = 1, #hosts do
      counts[i] = given
    end
    return counts
  elseif given ~= nil then
    for i = 1, select(2, options.list(NAME, "tasks_per_node", given)) do
      options.integer(NAME, "tasks_per_node", given[i], 0)
    end
    return given
  end
  return M.expand_counts(environment "SLURM_STEP_TASKS_PER_NODE",
    NAME .. ": SLURM_STEP_TASKS_PER_NODE")
end

local function read_jobs(jobs, tasks)
  if jobs == nil then
    return { worker = tasks }
  elseif not text.is_plain(jobs) then
    errors.raise("TypeError", ("%s: jobs must be a table of counts by job, got "
      .. "%s"):format(NAME, text.describe(jobs)))
  end
  for job, n in pairs(jobs) do
    if type(job) ~= "string" then
      errors.raise("TypeError", ("%s: the name of a job must be a string, got "
        .. "%s"):format(NAME, text.describe(job)))
    end
    options.integer(NAME, "jobs." .. job, n, 1)
  end
  return jobs
end

local function sum_of(t)
  local sum = 0
  for _, n in pairs(t) do
    sum = sum + n
  end
  return sum
end

local function most(counts)
  local n = 0
  for i = 1, #counts do
    n = math.max(n, counts[i])
  end
  return n
end

-- GPUs of each task, by default an equal share of the node's.
local function gpu_share(per_node, per_task, counts)
  local tasks = most(counts)
  if per_task == nil then
    per_task = tasks == 0 and 0 or math.floor(per_node / tasks)
  end
  if per_task * tasks > per_node then
    errors.raise("RuntimeError", ("%s: %d tasks with %d GPUs each do not fit "
      .. "on a node with %d"):format(NAME, tasks, per_task, per_node))
  end
  return per_task
end

local function gpus_of(position, per_task)
  local list = {}
  for i = 1, per_task do
    list[i] = position * per_task + i - 1
  end
  return table.concat(list, ",")
end

-- The resolver -------------------------------------------------------------------

local Slurm = resolvers.class(NAME, "jobs:table=nil port_base=8888 "
  .. "gpus_per_node=nil gpus_per_task=nil tasks_per_node=nil "
  .. "auto_set_gpu=true rpc_layer='grpc'", function(self, jobs, port_base,
    gpus_per_node, gpus_per_task, tasks_per_node, auto_set_gpu, rpc_layer)
  self._rank = whole_number "SLURM_PROCID"
  local total = whole_number "SLURM_STEP_NUM_TASKS"
  self._hosts = M.expand_hosts(environment "SLURM_STEP_NODELIST",
    NAME .. ": SLURM_STEP_NODELIST")
  self._counts = tasks_of_nodes(tasks_per_node, self._hosts)
  self._jobs = read_jobs(jobs, total)
  if #self._counts ~= #self._hosts or sum_of(self._counts) ~= total then
    errors.raise("RuntimeError", ("%s: %d tasks per node on %d nodes do not "
      .. "make the step's %d tasks"):format(NAME, sum_of(self._counts),
      #self._hosts, total))
  elseif sum_of(self._jobs) ~= total then
    errors.raise("RuntimeError", ("%s: jobs have %d tasks, the step %d")
      :format(NAME, sum_of(self._jobs), total))
  elseif self._rank >= total then
    errors.raise("RuntimeError", ("%s: SLURM_PROCID is %d; the step has %d tasks, "
      .. "counted from 0"):format(NAME, self._rank, total))
  end
  self._port = options.integer(NAME, "port_base", port_base, 1, 65535)
  self._gpus = gpu_share(options.integer(NAME, "gpus_per_node", gpus_per_node
    or tonumber(os.getenv("SLURM_GPUS_ON_NODE") or 0) or 0, 0),
    gpus_per_task ~= nil and options.integer(NAME, "gpus_per_task",
      gpus_per_task, 0) or nil, self._counts)
  self._set_gpu = auto_set_gpu
  resolvers.set_task(NAME, self, nil, nil, rpc_layer)
end)

--- The cluster of a Slurm step: `jobs` says how many tasks each job has (all
--- are workers without it); the task k of a node listens on port_base + k.
--- task_type and task_id are known once cluster_spec() was called. With GPUs
--- and auto_set_gpu, CUDA_VISIBLE_DEVICES becomes this task's share then.
--- Errors: RuntimeError outside of a step, for counts that do not match and for
---   too many GPUs; ValueError for what Slurm's variables should not say.
--- Source: tf.distribute.cluster_resolver.SlurmClusterResolver
M.SlurmClusterResolver = Slurm

-- Addresses by rank, and the GPUs of this one.
local function place(self)
  local addresses, gpus = {}, ""
  for i, host in ipairs(self._hosts) do
    for k = 0, self._counts[i] - 1 do
      if #addresses == self._rank then
        gpus = gpus_of(k, self._gpus)
      end
      addresses[#addresses + 1] = ("%s:%d"):format(host, self._port + k)
    end
  end
  return addresses, gpus
end

function Slurm:cluster_spec()
  local addresses, gpus = place(self)
  local names, jobs, rank = {}, {}, 0
  for job in pairs(self._jobs) do
    names[#names + 1] = job
  end
  table.sort(names)
  for _, job in ipairs(names) do
    jobs[job] = {}
    for task = 0, self._jobs[job] - 1 do
      if rank == self._rank then
        self.task_type, self.task_id = job, task
      end
      rank = rank + 1
      jobs[job][task] = addresses[rank]
    end
  end
  if self._set_gpu and self._gpus > 0 then
    raw.set_environment("CUDA_VISIBLE_DEVICES", gpus)
  end
  return specs.of_tasks(jobs)
end

function Slurm:master(task_type, task_id, rpc_layer)
  if self.task_type == nil then
    self:cluster_spec()
  end
  return resolvers.address_of(self, task_type, task_id, rpc_layer)
end

resolvers.bind(Slurm, NAME)

return M
