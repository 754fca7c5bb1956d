--- The tasks that `tfdist run` starts: jobs, addresses, environments.
local errors = require "tfdist.base.errors"
local launch = require "tfdist.host".launch
local raw = require "tfdist.core.raw"

local M = {}

local DEFAULT_PORT = 2222
local MOST_PORT = 65535
-- What tasks have from the launcher alone.
local OWN = {}
for _, name in ipairs { "TF_CONFIG", "TFDIST_SECRET", "TFDIST_SECRET_FILE",
  "TFDIST_ERROR_FILE", "TFDIST_FLIGHT", "TFDIST_RESTART", "TFDIST_TASK",
  "TFDIST_RETURN_AFTER", "TFDIST_CORES" } do
  OWN[name] = true
end

local function fail(problem, hint)
  errors.raise_usage("ValueError", problem, hint)
end

--- How many GPUs the driver has.
local function gpu_count()
  local done, list = pcall(raw.folder_list, "/proc/driver/nvidia/gpus")
  return done and select(2, list:gsub("%z", "")) or 0
end

-- Which tasks -----------------------------------------------------------------

local function make(job, index, host, port)
  local alone = job == "chief" or job == "evaluator"
  return { job = job, index = index, host = host, port = port,
    name = alone and job or job .. " " .. index,
    file = alone and job or job .. "-" .. index }
end

local function add(tasks, job, index, host)
  tasks[#tasks + 1] = make(job, index, host)
end

--- The same tasks, to be started again, without the absent ones (position in
--- `tasks` -> true), whose numbers those behind them have then. `origin` is
--- whom of `tasks` one stands for.
function M.again(tasks, absent)
  local list, counts = {}, {}
  for i, task in ipairs(tasks) do
    if not absent[i] then
      local index = counts[task.job] or 0
      counts[task.job] = index + 1
      local made = make(task.job, index, task.host, task.port)
      made.origin = i
      list[#list + 1] = made
    end
  end
  return list
end

--- The tasks of these options, in the order of their jobs and indices.
---@return table  list of { job, index, host, name, file }
function M.list(o)
  local tasks = {}
  local n = o.n == "auto" and math.max(1, gpu_count() > 0 and gpu_count()
    or launch.cores()) or o.n
  if o.hosts then
    for _, host in ipairs(o.hosts) do
      for _ = 1, n or 1 do
        add(tasks, "worker", #tasks, host)
      end
    end
    return tasks
  end
  for _, job in ipairs { { "chief", o.chief and 1 },
    { "worker", n or o.workers }, { "ps", o.ps },
    { "evaluator", o.evaluator and 1 } } do
    for index = 0, (job[2] or 0) - 1 do
      add(tasks, job[1], index, "127.0.0.1")
    end
  end
  return tasks
end

--- The task that saves and reports: the chief, without one worker 0.
function M.is_chief(task, tasks)
  return task == tasks[1] and (task.job == "chief" or task.job == "worker")
end

-- Addresses -------------------------------------------------------------------

local function reserve(port)
  local _, got = launch.reserve(port or 0)
  if type(got) == "string" then
    fail("--port: " .. got,
      port and "`ss -ltnp` names who has it; without --port free ones are taken"
        or nil)
  end
  return got
end

--- Give every task a port: on this machine reserved as long as this process
--- is there, on others from --port on. A dry run takes those of --port as given.
function M.assign_ports(tasks, o)
  local on_host = {}
  for i, task in ipairs(tasks) do
    if o.hosts then
      local k = on_host[task.host] or 0
      on_host[task.host] = k + 1
      task.port = (o.port or DEFAULT_PORT) + k
    else
      task.port = o.port and o.port + i - 1
    end
    if (task.port or 0) > MOST_PORT then
      fail(("--port: %s would have port %d; the last one is %d"):format(
        task.name, task.port, MOST_PORT))
    elseif not o.hosts and not (o.dry_run and task.port) then
      task.port = reserve(task.port)
    end
  end
end

--- The text of TF_CONFIG for one of the tasks.
function M.config(task, tasks)
  local jobs, by_job = {}, {}
  for _, t in ipairs(tasks) do
    if by_job[t.job] == nil then
      by_job[t.job] = {}
      jobs[#jobs + 1] = t.job
    end
    table.insert(by_job[t.job], ('"%s:%d"'):format(t.host, t.port))
  end
  for i, job in ipairs(jobs) do
    jobs[i] = ('"%s":[%s]'):format(job, table.concat(by_job[job], ","))
  end
  return ('{"cluster":{%s},"task":{"type":"%s","index":%d}}'):format(
    table.concat(jobs, ","), task.job, task.index)
end

-- Environment -----------------------------------------------------------------

-- Cores of task i of n that share the machine.
local function share(i, n)
  local cores = launch.cores()
  return math.max(1, math.floor(cores / n) + (i <= cores % n and 1 or 0))
end

-- GPUs of task i of n, as CUDA_VISIBLE_DEVICES; nil when they are not enough
-- for all, or none.
local function gpus(i, n)
  local list = {}
  local visible = os.getenv "CUDA_VISIBLE_DEVICES"
  for gpu in (visible or ""):gmatch "[^,]+" do
    list[#list + 1] = gpu
  end
  for gpu = 0, visible and -1 or gpu_count() - 1 do
    list[#list + 1] = tostring(gpu)
  end
  if n < 2 or #list < n then
    return nil
  end
  local each, more = math.floor(#list / n), #list % n
  local first = (i - 1) * each + math.min(i - 1, more) + 1
  return table.concat(list, ",", first, first + each - 1
    + (i <= more and 1 or 0))
end

--- What is set for a task on this machine beside what this process has: pairs
--- of name and value.
function M.settings(task, tasks)
  local at, n = 0, #tasks
  for i, t in ipairs(tasks) do
    at = t == task and i or at
  end
  local list = { { "TF_CONFIG", M.config(task, tasks) },
    { "TFDIST_CORES", tostring(share(at, n)) } }
  local own = gpus(at, n)
  if own ~= nil then
    list[#list + 1] = { "CUDA_VISIBLE_DEVICES", own }
  end
  return list
end

--- Is it a variable that tasks have from the launcher alone?
function M.is_own(name)
  return OWN[name] == true
end

--- This process's environment with the settings, as start takes it.
function M.environment(settings)
  local replaced, list = {}, {}
  for _, pair in ipairs(settings) do
    replaced[pair[1]] = true
    list[#list + 1] = pair[1] .. "=" .. pair[2]
  end
  for _, entry in ipairs(launch.environment()) do
    local name = entry:match "^[^=]*"
    if not replaced[name] and not OWN[name] then
      list[#list + 1] = entry
    end
  end
  return list
end

--- What files of its `restart`-th restart are called like.
function M.file(task, restart)
  return task.file .. (restart > 0 and ".restart-" .. restart or "")
end

--- Options of the host that stand before `run`, which are the tasks' too.
function M.host_options()
  local list, i = {}, -1
  local arguments = rawget(_G, "arg")
  while arguments[i - 1] ~= nil do
    table.insert(list, 1, arguments[i])
    i = i - 1
  end
  return list
end

--- The words that start a task: `program`, options, script and arguments.
function M.words(program, o, more)
  local words = { program }
  for _, list in ipairs { M.host_options(), more or {},
    o.script:find "[./]" and {} or { "--" }, { o.script }, o.arguments } do
    for _, word in ipairs(list) do
      words[#words + 1] = word
    end
  end
  return words
end

return M
