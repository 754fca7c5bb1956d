--- tf.train.ClusterSpec: the jobs of a cluster and where their tasks are.
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

local ClusterSpec = { __name = "ClusterSpec" }
local methods = {}

local function is_spec(x)
  return type(x) == "table" and getmetatable(x) == ClusterSpec
end

--- True for a ClusterSpec.
M.is_spec = is_spec

local function check_address(job, index, address)
  if type(address) ~= "string" then
    errors.raise("TypeError", ("ClusterSpec: task %d of job %s must be an "
      .. "address such as \"host:2222\", got %s"):format(index,
      text.quote(job), text.describe(address)))
  elseif address == "" then
    errors.raise("ValueError", ("ClusterSpec: task %d of job %s has an empty "
      .. "address"):format(index, text.quote(job)))
  end
end

-- True when the keys of a table are 1..n.
local function is_list(t)
  local count, highest = 0, 0
  for key in pairs(t) do
    if key ~= "n" then
      if not text.is_whole(key) or key < 1 then
        return false
      end
      count, highest = count + 1, math.max(highest, key)
    end
  end
  return count == highest and count == (t.n or count)
end

-- { [index from 0] = address } of what a job was given as.
local function read_tasks(job, given)
  if not text.is_plain(given) then
    errors.raise("TypeError", ("ClusterSpec: job %s must be a list of "
      .. "addresses or a table of addresses by task index, got %s"):format(
      text.quote(job), text.describe(given)))
  end
  local tasks, first = {}, is_list(given) and 1 or 0
  for index, address in pairs(given) do
    if index ~= "n" then
      if not text.is_whole(index) or index < first then
        errors.raise("TypeError", ("ClusterSpec: job %s has a task index that "
          .. "is no whole number from 0: %s"):format(text.quote(job),
          text.describe(index)))
      end
      check_address(job, index - first, address)
      tasks[index - first] = address
    end
  end
  return tasks
end

--- A cluster of { job = { [task from 0] = address } }, which is kept.
---@param jobs table
---@return table ClusterSpec
function M.of_tasks(jobs)
  return setmetatable({ _jobs = jobs }, ClusterSpec)
end

--- The jobs of a cluster: name -> list of addresses, or -> table of addresses
--- by task index, counted from 0 (`{ [0] = "a:1", [2] = "c:3" }`), or another
--- ClusterSpec.
--- Errors: TypeError for anything else; ValueError for an empty address.
--- Source: tf.train.ClusterSpec
M.ClusterSpec = options.wrap("ClusterSpec", "cluster:nest", function(cluster)
  if is_spec(cluster) then
    cluster = cluster:as_dict()
  elseif not text.is_plain(cluster) then
    errors.raise("TypeError", "ClusterSpec: cluster must be a table of jobs, "
      .. "got " .. text.describe(cluster))
  end
  local jobs = {}
  for job, given in pairs(cluster) do
    if type(job) ~= "string" then
      errors.raise("TypeError", "ClusterSpec: the name of a job must be a "
        .. "string, got " .. text.describe(job))
    end
    jobs[job] = read_tasks(job, given)
  end
  return M.of_tasks(jobs)
end)

local function tasks_of(self, what, job)
  local tasks = self._jobs[job]
  if tasks == nil then
    local names = lists.sorted_keys(self._jobs)
    errors.raise("ValueError", ("ClusterSpec.%s: there is no job %s; jobs: %s")
      :format(what, text.name(job), #names == 0 and "none"
        or table.concat(names, ", ")), type(job) == "string"
      and #names > 0 and text.suggestion(job, names, "job") or nil)
  end
  return tasks
end

--- Names of the jobs, sorted.
function methods:jobs()
  return lists.sorted_keys(self._jobs)
end

--- How many tasks a job has.
function methods:num_tasks(job_name)
  return #lists.sorted_keys(tasks_of(self, "num_tasks", job_name))
end

--- The task indices of a job, from 0, sorted.
function methods:task_indices(job_name)
  return lists.sorted_keys(tasks_of(self, "task_indices", job_name))
end

--- Where a task is.
--- Errors: ValueError when there is no such job or task.
function methods:task_address(job_name, task_index)
  local tasks = tasks_of(self, "task_address", job_name)
  local address = tasks[options.integer("ClusterSpec.task_address",
    "task_index", task_index, 0)]
  if address == nil then
    errors.raise("ValueError", ("ClusterSpec.task_address: job %s has no task "
      .. "%d; tasks: %s"):format(text.quote(job_name), task_index,
      table.concat(lists.sorted_keys(tasks), ", ")))
  end
  return address
end

--- The addresses of a job as a list in the order of the tasks; indices that are
--- not there are nil, `n` is the highest index + 1.
function methods:job_tasks(job_name)
  local tasks = tasks_of(self, "job_tasks", job_name)
  local list = { n = 0 }
  for index, address in pairs(tasks) do
    list[index + 1] = address
    list.n = math.max(list.n, index + 1)
  end
  return list
end

--- The jobs as a table: lists, or addresses by index from 0 where indices are
--- left out.
function methods:as_dict()
  local out = {}
  for job, tasks in pairs(self._jobs) do
    local list, count = self:job_tasks(job), #lists.sorted_keys(tasks)
    local dense = count == list.n
    out[job] = {}
    for index, address in pairs(tasks) do
      out[job][dense and index + 1 or index] = address
    end
  end
  return out
end

options.methods(methods, "ClusterSpec.", {
  jobs = "", num_tasks = "job_name", task_indices = "job_name",
  task_address = "job_name task_index", job_tasks = "job_name", as_dict = "",
}, is_spec, "cluster")

ClusterSpec.__index = methods

local function same_tasks(a, b)
  for index, address in pairs(a) do
    if b[index] ~= address then
      return false
    end
  end
  return true
end

function ClusterSpec.__eq(a, b)
  if not is_spec(a) or not is_spec(b) then
    return false
  end
  for _, pair in ipairs { { a._jobs, b._jobs }, { b._jobs, a._jobs } } do
    for job, tasks in pairs(pair[1]) do
      if pair[2][job] == nil or not same_tasks(tasks, pair[2][job]) then
        return false
      end
    end
  end
  return true
end

function ClusterSpec:__tostring()
  local jobs = {}
  for _, job in ipairs(self:jobs()) do
    local tasks = {}
    for _, index in ipairs(self:task_indices(job)) do
      tasks[#tasks + 1] = ("%d: %s"):format(index, self._jobs[job][index])
    end
    jobs[#jobs + 1] = ("%s { %s }"):format(job, table.concat(tasks, ", "))
  end
  return #jobs == 0 and "ClusterSpec (no jobs)"
    or "ClusterSpec " .. table.concat(jobs, " ")
end

text.watch_methods("ClusterSpec", methods)

return M
