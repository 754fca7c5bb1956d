--- Resolvers of other schedulers: Kubernetes, Google Compute Engine, SageMaker.
---
--- None of them asks a service: a file, or a function of the caller's, holds
--- what the scheduler's own tool prints as JSON.
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local json = require "tfdist.core.json"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local resolvers = require "tfdist.distribute.cluster.resolver"
local specs = require "tfdist.distribute.cluster.spec"
local text = require "tfdist.base.text"

local M = {}

local function read_file(what, path)
  local source, why, missing = files.read(path)
  if missing then
    errors.raise("NotFound", ("%s: %s"):format(what, why))
  elseif source == nil then
    errors.raise("ValueError", ("%s: %s: %s"):format(what, path, why))
  end
  return source
end

-- What a file or a function(...) gives, decoded.
local function answer(what, file, fn, tool, ...)
  local source
  if fn ~= nil then
    source = fn(...)
  elseif file ~= nil then
    source = read_file(what, file)
  else
    errors.raise("ValueError", what .. ": needs the file with what " .. tool
      .. " prints, or a function that returns it", tool .. " > list.json")
  end
  if type(source) == "string" then
    source = json.decode(source, what .. (file and ": " .. file or ""))
  end
  if type(source) ~= "table" then
    errors.raise("TypeError", ("%s: expected JSON text, got %s"):format(what,
      text.describe(source)))
  end
  return source
end

-- A field below a table, by path; what is no object on the way has none.
local function field(x, ...)
  for _, key in ipairs { ... } do
    x = type(x) == "table" and x ~= json.null and x[key] or nil
  end
  return x
end

-- What stands where a list of `of` is expected.
local function list_of(what, of, x)
  if type(x) ~= "table" or x == json.null
    or x.n == nil and #x == 0 and next(x) ~= nil then
    errors.raise("ValueError", ("%s: expected a list of %s, got %s"):format(what,
      of, x == json.null and "null" or text.describe(x)))
  end
  return x
end

local function addresses(what, list, port)
  local tasks = {}
  for i, host in ipairs(list) do
    if type(host) ~= "string" or host == "" then
      errors.raise("ValueError", ("%s: %s has no address"):format(what,
        list.names and list.names[i] or "entry " .. i))
    end
    tasks[i - 1] = ("%s:%d"):format(host, port)
  end
  return tasks
end

-- Kubernetes -------------------------------------------------------------------

local KUBERNETES = "KubernetesClusterResolver"

local Kubernetes = resolvers.class(KUBERNETES, "job_to_label_mapping:table=nil "
  .. "tf_server_port=8470 rpc_layer='grpc' override_client=nil pods_file=nil",
  function(self, labels, port, rpc_layer, client, pods_file)
    labels = labels or { worker = { "job-name=tensorflow" } }
    if not text.is_plain(labels) then
      errors.raise("TypeError", KUBERNETES .. ": job_to_label_mapping must be "
        .. "a table of label selectors by job, got " .. text.describe(labels))
    end
    self._labels = labels
    self._port = options.integer(KUBERNETES, "tf_server_port", port, 1, 65535)
    if client ~= nil then
      text.check_callable(KUBERNETES, "override_client", client)
    end
    self._client = client
    self._file = resolvers.check_text(KUBERNETES, "pods_file", pods_file)
    resolvers.set_task(KUBERNETES, self, nil, nil, rpc_layer)
  end)

--- The pods that carry a job's labels, sorted by name, each at host_ip:port.
--- pods_file: what `kubectl get pods -o json` printed. override_client:
--- function(selector) that returns the same for the pods of one selector.
--- task_type and task_id are the program's to set.
--- Errors: RuntimeError for a pod that does not run; NotFound, ValueError for
---   the file.
--- Source: tf.distribute.cluster_resolver.KubernetesClusterResolver
M.KubernetesClusterResolver = Kubernetes

-- Selectors are "key=value", several with commas.
local function matches(pod, selector)
  local labels = field(pod, "metadata", "labels") or {}
  for term in (selector .. ","):gmatch "([^,]*)," do
    local key, value = term:match("^%s*([^=%s]+)%s*==?%s*([^=%s]*)%s*$")
    if key == nil then
      errors.raise("ValueError", ("%s: %s is no label selector; expected "
        .. "key=value"):format(KUBERNETES, text.quote(selector)))
    elseif labels[key] ~= value then
      return false
    end
  end
  return true
end

local function pods_of(self, selector)
  local all = answer(KUBERNETES, self._file, self._client,
    "kubectl get pods -o json", selector)
  local pods = {}
  for _, pod in ipairs(list_of(KUBERNETES, "pods in items", all.items)) do
    if self._client ~= nil or matches(pod, selector) then
      pods[#pods + 1] = pod
    end
  end
  table.sort(pods, function(a, b)
    return tostring(field(a, "metadata", "name"))
      < tostring(field(b, "metadata", "name"))
  end)
  return pods
end

function Kubernetes:cluster_spec()
  local jobs = {}
  for job, selectors in pairs(self._labels) do
    local hosts = { names = {} }
    if type(selectors) == "string" then
      selectors = { selectors }
    end
    for _, selector in ipairs(list_of(KUBERNETES, "label selectors of job "
      .. text.quote(job), selectors)) do
      for _, pod in ipairs(pods_of(self, selector)) do
        local name = tostring(field(pod, "metadata", "name"))
        local phase = field(pod, "status", "phase")
        if phase ~= "Running" then
          errors.raise("RuntimeError", ("%s: pod %s is %s; expected Running")
            :format(KUBERNETES, text.quote(name), tostring(phase)))
        end
        hosts[#hosts + 1] = field(pod, "status", "hostIP")
          or field(pod, "status", "host_ip") or ""
        hosts.names[#hosts] = "pod " .. text.quote(name)
      end
    end
    jobs[job] = addresses(KUBERNETES, hosts, self._port)
  end
  return specs.of_tasks(jobs)
end

Kubernetes.master = resolvers.address_of
resolvers.bind(Kubernetes, KUBERNETES)

-- Google Compute Engine ----------------------------------------------------------

local GCE = "GCEClusterResolver"

local Gce = resolvers.class(GCE, "project=nil zone=nil instance_group=nil "
  .. "port=8470 task_type='worker' task_id=0 rpc_layer='grpc' "
  .. "instances_file=nil override_client=nil",
  function(self, project, zone, group, port, task_type, task_id, rpc_layer,
    file, client)
    self._project, self._zone, self._group = project, zone, group
    self._port = options.integer(GCE, "port", port, 1, 65535)
    if client ~= nil then
      text.check_callable(GCE, "override_client", client)
    end
    self._file = resolvers.check_text(GCE, "instances_file", file)
    self._client = client
    self.environment = "google"
    resolvers.set_task(GCE, self, task_type, task_id, rpc_layer)
  end)

--- The running instances of a group, sorted by name, as job task_type.
--- instances_file: what `gcloud compute instances list --format=json` printed;
--- override_client: function(project, zone, instance_group) that returns it.
--- Errors: NotFound, ValueError for the file.
--- Source: tf.distribute.cluster_resolver.GCEClusterResolver
M.GCEClusterResolver = Gce

-- The instance group that made an instance says so in its metadata.
local function group_of(instance)
  for _, item in ipairs(field(instance, "metadata", "items") or {}) do
    if field(item, "key") == "created-by" then
      return tostring(field(item, "value")):match("[^/]*$")
    end
  end
  return nil
end

-- A function of the caller's has chosen already.
local function is_member(self, instance)
  local zone = field(instance, "zone")
  return field(instance, "status") == "RUNNING" and (self._client ~= nil or (
    (self._zone == nil or tostring(zone):match("[^/]*$") == self._zone)
    and (self._group == nil or group_of(instance) == self._group)))
end

function Gce:cluster_spec()
  local all = answer(GCE, self._file, self._client,
    "gcloud compute instances list --format=json", self._project, self._zone,
    self._group)
  local found, hosts = {}, { names = {} }
  for _, instance in ipairs(list_of(GCE, "instances", all.items or all)) do
    if is_member(self, instance) then
      found[#found + 1] = instance
    end
  end
  table.sort(found, function(a, b)
    return tostring(a.name) < tostring(b.name)
  end)
  for i, instance in ipairs(found) do
    hosts[i] = field(instance, "networkInterfaces", 1, "networkIP") or ""
    hosts.names[i] = "instance " .. text.quote(tostring(instance.name))
  end
  return specs.of_tasks({ [self.task_type] = addresses(GCE, hosts,
    self._port) })
end

Gce.master = resolvers.address_of
resolvers.bind(Gce, GCE)

-- SageMaker ----------------------------------------------------------------------

local SAGEMAKER = "SageMakerClusterResolver"

local SageMaker = resolvers.class(SAGEMAKER, "port=2223 task_type=nil "
  .. "task_id=nil rpc_layer='grpc' environment=nil",
  function(self, port, task_type, task_id, rpc_layer, environment)
    self._port = options.integer(SAGEMAKER, "port", port, 1, 65535)
    local source = os.getenv "SM_HOSTS"
    local hosts = source and json.decode(source, SAGEMAKER .. ": SM_HOSTS") or {}
    if type(hosts) ~= "table" or (source and hosts.n == nil) then
      errors.raise("ValueError", SAGEMAKER .. ": SM_HOSTS must be a list of "
        .. "hosts, got " .. text.quote(source))
    end
    for i = 1, #hosts do
      if type(hosts[i]) ~= "string" then
        errors.raise("ValueError", ("%s: SM_HOSTS[%d] is no string"):format(
          SAGEMAKER, i - 1))
      end
    end
    table.sort(hosts)
    self._hosts = hosts
    local current = task_id == nil and os.getenv "SM_CURRENT_HOST"
    for i = 1, current and #hosts or 0 do
      if hosts[i] == current then
        task_id = i - 1
      end
    end
    if current and #hosts > 0 and task_id == nil then
      errors.raise("ValueError", ("%s: SM_CURRENT_HOST is %s; expected one of "
        .. "SM_HOSTS: %s"):format(SAGEMAKER, text.quote(current), source))
    end
    resolvers.set_task(SAGEMAKER, self, task_type or (#hosts > 0 and "worker")
      or nil, task_id, rpc_layer)
    self.environment = environment
  end)

--- The hosts of SM_HOSTS, sorted, all workers; this one is SM_CURRENT_HOST.
--- Errors: ValueError for what SM_HOSTS should not say.
--- Source: tensorflow.python.distribute.cluster_resolver.SageMakerClusterResolver
M.SageMakerClusterResolver = SageMaker

function SageMaker:cluster_spec()
  if #self._hosts == 0 then
    return specs.of_tasks({})
  end
  return specs.of_tasks({ worker = addresses(SAGEMAKER, self._hosts,
    self._port) })
end

function SageMaker:master(task_type, task_id, rpc_layer)
  if task_type == nil and task_id == nil and #self._hosts <= 1 then
    return ""
  end
  return resolvers.address_of(self, task_type, task_id, rpc_layer)
end

resolvers.bind(SageMaker, SAGEMAKER)

return M
