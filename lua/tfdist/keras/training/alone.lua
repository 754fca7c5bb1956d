--- Models that workers train outside of their strategy: each has one of its own
--- then, which nothing else tells.
local cluster = require "tfdist.distribute.cluster"
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local notice = require "tfdist.base.notice"
local roles = require "tfdist.distribute.cluster.roles"
local text = require "tfdist.base.text"

local M = {}

-- This process's number among those of TF_CONFIG that work together, and how
-- many they are; an evaluator is one. With parameter servers workers need no
-- strategy of their own.
local function place_in_config()
  local resolver = cluster.names.TFConfigClusterResolver()
  local spec, kind = resolver:cluster_spec(), resolver.task_type
  for _, job in ipairs(spec:jobs()) do
    if job == "ps" then
      return nil
    end
  end
  return { worker_index = roles.id_in_cluster(spec, kind, resolver.task_id),
    num_workers = roles.worker_count(spec, kind) }
end

local in_config -- false = nowhere
local told = false

local function place()
  local role = contexts.joined()
  if role == nil and in_config == nil then
    local ok, found = errors.attempt(place_in_config)
    in_config = ok and found or false
  end
  return role or in_config or nil
end

--- Said once: the model belongs to no strategy, and this process is one of
--- several workers.
---@param model table
---@param own table    its training state
---@param what string  "fit"
function M.note(model, own, what)
  if told or own.strategy ~= contexts.default_strategy then
    return
  end
  local role = place()
  if role ~= nil and role.num_workers > 1 then
    told = true
    notice.warn(("%s: this process is worker %d of %d, but model %s was made "
      .. "outside of a strategy's scope: each worker trains one of its own; "
      .. "make and compile it in strategy:scope(function() ... end) of a "
      .. "MultiWorkerMirroredStrategy"):format(what, role.worker_index,
      role.num_workers, text.quote(model.name)))
  end
end

return M
