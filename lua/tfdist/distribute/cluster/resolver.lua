--- tf.distribute.cluster_resolver: who is in the cluster, and which task this
--- process is. Resolvers have the fields task_type, task_id and rpc_layer,
--- which programs may set: what is set wins over what the resolver found.
local classes = require "tfdist.base.classes"
local config = require "tfdist.core.config"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local specs = require "tfdist.distribute.cluster.spec"
local text = require "tfdist.base.text"

local M = {}

--- The class that resolvers inherit from. Theirs must give cluster_spec and
--- master.
--- Source: tf.distribute.cluster_resolver.ClusterResolver
local Base, is_resolver = classes.root("ClusterResolver",
  "tf.distribute.cluster_resolver.ClusterResolver")

M.ClusterResolver = Base

--- True for resolvers of any class.
M.is_resolver = is_resolver

local function missing(name)
  Base[name] = function(self)
    errors.raise("NotImplementedError", ("%s:%s must be given by the class")
      :format(self:describe(), name))
  end
end

missing "cluster_spec"
missing "master"

--- Where the program runs: "" for one's own machines, "google" for Google's.
Base.environment = ""

--- An address with what speaks there: "grpc://host:2222".
function M.with_layer(address, rpc_layer)
  if rpc_layer == nil or rpc_layer == "" or address == "" then
    return address
  end
  return rpc_layer .. "://" .. address
end

--- How many devices other than processors there are of each type, of one task
--- where type and id are given. Devices without a job in their names are those
--- of this process, the task own_type, own_id.
---@param devices table[]  { name, device_type }
function M.count_accelerators(devices, task_type, task_id, own_type, own_id)
  local counts = {}
  for _, device in ipairs(devices) do
    local job = device.name:match("/job:([^/]+)") or own_type
    local task = tonumber(device.name:match("/task:(%d+)")) or own_id
    if device.device_type ~= "CPU" and (task_type == nil or task_id == nil
      or (job == task_type and task == task_id)) then
      counts[device.device_type] = (counts[device.device_type] or 0) + 1
    end
  end
  return counts
end

--- Type of device -> how many this process, or the named task, has.
--- Processors do not count.
function Base:num_accelerators(task_type, task_id)
  if task_type == nil then
    task_type = self.task_type
  end
  if task_id == nil then
    task_id = self.task_id
  end
  return M.count_accelerators(config.list_logical_devices(), task_type,
    task_id, self.task_type, self.task_id)
end

-- Arguments --------------------------------------------------------------------

--- A string, or nil.
function M.check_text(what, name, x)
  if x ~= nil and type(x) ~= "string" then
    errors.raise("TypeError", ("%s: %s must be a string, got %s"):format(what,
      name, text.describe(x)))
  end
  return x
end

--- Check what every resolver takes, and keep it in `self`.
function M.set_task(what, self, task_type, task_id, rpc_layer)
  self.task_type = M.check_text(what, "task_type", task_type)
  self.task_id = task_id ~= nil and options.integer(what, "task_id", task_id, 0)
    or nil
  self.rpc_layer = M.check_text(what, "rpc_layer", rpc_layer)
end

--- The methods of a class by the calling rule.
function M.bind(class, name)
  for method, signature in pairs {
    cluster_spec = "", master = "task_type=nil task_id=nil rpc_layer=nil",
    num_accelerators = "task_type=nil task_id=nil config_proto:table=nil",
  } do
    local fn = rawget(class, method)
    if fn ~= nil then
      class[method] = options.method(name .. "." .. method, signature, fn,
        is_resolver, "resolver")
    end
  end
  return class
end

M.bind(Base, "ClusterResolver")

--- A class of ours with a constructor by the calling rule.
---@param name string
---@param signature string
---@param init function  init(self, values...)
---@return table
function M.class(name, signature, init)
  local class = Base:subclass(name)
  class.init = options.method(name, signature, init, is_resolver, "resolver")
  return class
end

--- The address of a task in a resolver's cluster, "" when type or id is open.
function M.address_of(self, task_type, task_id, rpc_layer)
  if task_type == nil then
    task_type = self.task_type
  end
  if task_id == nil then
    task_id = self.task_id
  end
  if task_type == nil or task_id == nil then
    return ""
  end
  return M.with_layer(self:cluster_spec():task_address(task_type, task_id),
    rpc_layer or self.rpc_layer)
end

-- Simple -------------------------------------------------------------------------

local Simple = M.class("SimpleClusterResolver", "cluster_spec:nest master='' "
  .. "task_type=nil task_id=nil environment='' num_accelerators:table=nil "
  .. "rpc_layer=nil", function(self, cluster, master, task_type, task_id,
    environment, accelerators, rpc_layer)
  local what = "SimpleClusterResolver"
  if not specs.is_spec(cluster) then
    errors.raise("TypeError", what .. ": cluster_spec must be a "
      .. "tf.train.ClusterSpec, got " .. text.describe(cluster),
      text.is_plain(cluster) and "tf.train.ClusterSpec(" .. "{ worker = "
        .. "{ \"host:2222\" } })" or nil)
  end
  M.set_task(what, self, task_type, task_id, rpc_layer)
  self._cluster = cluster
  self._master = M.check_text(what, "master", master)
  self.environment = M.check_text(what, "environment", environment)
  self._accelerators = accelerators
end)

--- A resolver of what is given.
--- Errors: TypeError when cluster_spec is no ClusterSpec or master no string.
--- Source: tf.distribute.cluster_resolver.SimpleClusterResolver
M.SimpleClusterResolver = Simple

function Simple:cluster_spec()
  return self._cluster
end

function Simple:master(task_type, task_id, rpc_layer)
  if task_type ~= nil and task_id ~= nil then
    return M.with_layer(self._cluster:task_address(task_type, task_id),
      rpc_layer or self.rpc_layer)
  end
  return M.with_layer(self._master, rpc_layer or self.rpc_layer)
end

function Simple:num_accelerators()
  return self._accelerators or {}
end

M.bind(Simple, "SimpleClusterResolver")

-- Union --------------------------------------------------------------------------

local function is_dense(spec, job)
  return spec:num_tasks(job) == spec:job_tasks(job).n
end

-- The tasks of a job in several clusters as one: lists go one behind the other,
-- but when one has gaps all keep their indices.
local function join(what, job, clusters)
  local tasks, count, dense = {}, 0, true
  for _, spec in ipairs(clusters) do
    dense = dense and is_dense(spec, job)
  end
  for _, spec in ipairs(clusters) do
    for _, index in ipairs(spec:task_indices(job)) do
      local at = dense and count or index
      if tasks[at] ~= nil then
        errors.raise("KeyError", ("%s: two resolvers have task %d of job %s: "
          .. "%s and %s"):format(what, at, text.quote(job), tasks[at],
          spec:task_address(job, index)))
      end
      tasks[at] = spec:task_address(job, index)
      count = count + 1
    end
  end
  return tasks
end

local Union = Base:subclass "UnionResolver"

--- The clusters of several resolvers as one; the rest comes from the first.
--- Errors: ValueError without resolvers; TypeError for what is none; KeyError
---   for an index that two have.
--- Source: tf.distribute.cluster_resolver.UnionResolver
M.UnionResolver = Union

function Union:init(...)
  local what = "UnionResolver"
  local given, n = { ... }, select("#", ...)
  local named = n > 0 and text.is_plain(given[n]) and given[n] or {}
  if n > 0 and named == given[n] then
    n = n - 1
  end
  options.check_keys(what, named, { "rpc_layer", "task_type", "task_id" })
  if n == 0 then
    errors.raise("ValueError", what .. ": needs at least one resolver")
  end
  for i = 1, n do
    if not is_resolver(given[i]) then
      errors.raise("TypeError", ("%s: argument %d must be a cluster resolver, "
        .. "got %s"):format(what, i, text.describe(given[i])))
    end
  end
  self._resolvers = { n = n }
  for i = 1, n do
    self._resolvers[i] = given[i]
  end
  local first = given[1]
  M.set_task(what, self, named.task_type or first.task_type,
    named.task_id or first.task_id, named.rpc_layer or first.rpc_layer)
  self.environment = first.environment
end

function Union:cluster_spec()
  local clusters, jobs = {}, {}
  for i = 1, self._resolvers.n do
    local spec = self._resolvers[i]:cluster_spec()
    for _, job in ipairs(spec:jobs()) do
      clusters[job] = clusters[job] or {}
      table.insert(clusters[job], spec)
    end
  end
  for job, list in pairs(clusters) do
    jobs[job] = join("UnionResolver.cluster_spec", job, list)
  end
  return specs.of_tasks(jobs)
end

function Union:master(task_type, task_id, rpc_layer)
  if task_type ~= nil and task_id ~= nil then
    return M.address_of(self, task_type, task_id, rpc_layer)
  end
  return self._resolvers[1]:master(nil, nil, rpc_layer)
end

function Union:num_accelerators(task_type, task_id)
  return self._resolvers[1]:num_accelerators(task_type, task_id)
end

M.bind(Union, "UnionResolver")

return M
