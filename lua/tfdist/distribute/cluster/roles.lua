--- What the tasks of a cluster are for: who is chief, how many work, and where
--- one stands among them.
---
--- Jobs: chief (one, optional), worker, ps, evaluator (one, apart).
--- Source: tensorflow.python.distribute.multi_worker_util
local errors = require "tfdist.base.errors"
local text = require "tfdist.base.text"

local M = {}

local TYPES = { chief = true, worker = true, evaluator = true, ps = true }

local function count(spec, job)
  for _, name in ipairs(spec:jobs()) do
    if name == job then
      return spec:num_tasks(job)
    end
  end
  return 0
end

--- Errors: ValueError for what is missing, for unknown types, for two chiefs
---   or evaluators, and for a task that the cluster does not have.
function M.validate(spec, task_type, task_id)
  if spec == nil or task_type == nil or task_id == nil then
    errors.raise("ValueError", ("none of cluster, task type and task id may be "
      .. "nil; got %s, %s, %s"):format(text.describe(spec),
      text.describe(task_type), text.describe(task_id)))
  elseif not TYPES[task_type] then
    errors.raise("ValueError", ("a task is of type chief, worker, ps or "
      .. "evaluator, got %s"):format(text.describe(task_type)))
  end
  for _, job in ipairs { "chief", "evaluator" } do
    if count(spec, job) > 1 then
      errors.raise("ValueError", ("a cluster has one %s at most, got %d")
        :format(job, count(spec, job)))
    end
  end
  local there = count(spec, task_type)
  if there == 0 then
    errors.raise("ValueError", ("there is no job %s in the cluster; jobs: %s")
      :format(text.quote(task_type), table.concat(spec:jobs(), ", ")))
  elseif task_id >= there then
    errors.raise("ValueError", ("task id %d is out of range, job '%s' has %d "
      .. "task%s"):format(task_id, task_type, there, there == 1 and "" or "s"))
  end
end

--- Is it the task that saves and reports? The chief, without one worker 0; the
--- evaluator for itself.
function M.is_chief(spec, task_type, task_id)
  M.validate(spec, task_type, task_id)
  return task_type == "chief" or task_type == "evaluator"
    or (task_type == "worker" and task_id == 0 and count(spec, "chief") == 0)
end

local function refuse_ps(task_type, what)
  if task_type == "ps" then
    errors.raise("ValueError", "a parameter server has no " .. what)
  end
end

--- How many work together with this task: chief and workers, or evaluators.
function M.worker_count(spec, task_type)
  refuse_ps(task_type, "workers beside it")
  if not TYPES[task_type] then
    errors.raise("ValueError", "a task is of type chief, worker or evaluator, "
      .. "got " .. text.describe(task_type))
  elseif task_type == "evaluator" then
    return count(spec, "evaluator")
  end
  return count(spec, "chief") + count(spec, "worker")
end

--- The task's number among those that work together: the chief 0, workers
--- after it.
function M.id_in_cluster(spec, task_type, task_id)
  refuse_ps(task_type, "id among the workers")
  M.validate(spec, task_type, task_id)
  if task_type == "worker" then
    return task_id + count(spec, "chief")
  end
  return task_type == "chief" and 0 or task_id
end

return M
