--- tf.config: devices, threads, memory.
---
--- Physical device CPU:0 is this machine's processor; it can be split into
--- logical devices, which is what everything else calls a device. The
--- configuration is fixed once the first device was used.
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"

local M = { experimental = {}, threading = {} }

local wrap = options.wrap

-- What was configured, for the getters.
local configured = { devices = {}, threads = 0, queue_mode = "auto" }

local Device = { __name = "device" }

function Device.__tostring(device)
  return ("%s %s"):format(device.device_type, device.name)
end

local function describe_device(name, kind)
  return setmetatable({ name = name, device_type = kind }, Device)
end

local function type_name(what, kind)
  if kind == nil then
    return nil
  elseif type(kind) ~= "string" then
    errors.raise("TypeError", ("config.%s: device_type must be a string, got "
      .. "%s"):format(what, text.describe(kind)))
  end
  return kind:upper()
end

--- The hardware that the runtime can use.
--- Source: tf.config.list_physical_devices
---@param device_type? string  "CPU", "GPU"; nil = all
---@return table[]  { name, device_type }
M.list_physical_devices = wrap("config.list_physical_devices",
  "device_type=nil", function(kind)
    kind = type_name("list_physical_devices", kind)
    local list = {}
    for i = 0, raw.backend_count() - 1 do
      local _, found, n = raw.backend_at(i)
      for k = 0, (kind == nil or kind == found) and n - 1 or -1 do
        list[#list + 1] = describe_device(
          ("/physical_device:%s:%d"):format(found, k), found)
      end
    end
    return list
  end)

--- The devices that tensors and ops can be on. Starts the runtime: the
--- configuration is fixed from then on.
--- Source: tf.config.list_logical_devices
---@param device_type? string
---@return table[]  { name = "/device:CPU:0", device_type = "CPU" }
M.list_logical_devices = wrap("config.list_logical_devices", "device_type=nil",
  function(kind)
    kind = type_name("list_logical_devices", kind)
    local list = {}
    for i = 0, raw.device_count(kind or "") - 1 do
      local name = raw.device_name(raw.device_at(kind or "", i))
      local short = name:match("/device:.*$")
      list[#list + 1] = describe_device(short, short:match(":(%a+):"))
    end
    return list
  end)

-- Type and number of a physical device: "CPU", 0. The name may begin as those
-- of logical devices do.
local function physical(what, device)
  local name = type(device) == "table" and device.name or device
  if type(name) ~= "string" then
    errors.raise("TypeError", ("%s: device must be one of "
      .. "tf.config.list_physical_devices(), got %s"):format(what,
      text.describe(device)))
  end
  local upper = name:upper() == "CPU" and "CPU:0" or name:upper()
  upper = upper:gsub("^/PHYSICAL_DEVICE:", ""):gsub("^/DEVICE:", "")
    :gsub("^/", "")
  local names = {}
  for _, d in ipairs(M.list_physical_devices()) do
    local kind, number = d.name:match ":(%a+):(%d+)$"
    if upper == ("%s:%s"):format(kind, number) then
      return kind, tonumber(number)
    end
    names[#names + 1] = d.name
  end
  errors.raise("ValueError", ("%s: no physical device %s; there is %s")
    :format(what, text.quote(name), table.concat(names, ", ")))
end

local Logical = { __name = "LogicalDeviceConfiguration" }

-- MiB whose bytes fit 63 bits.
local MOST_MEMORY = 8796093022207

--- Settings of one logical device. memory_limit: MiB that it takes at most, of
--- GPUs only.
--- Errors: ValueError for a limit below 1.
--- Source: tf.config.LogicalDeviceConfiguration
M.LogicalDeviceConfiguration = wrap("config.LogicalDeviceConfiguration",
  "memory_limit=nil experimental_priority=nil", function(memory_limit)
    if memory_limit ~= nil then
      options.integer("config.LogicalDeviceConfiguration", "memory_limit",
        memory_limit, 1, MOST_MEMORY)
    end
    return setmetatable({ memory_limit = memory_limit }, Logical)
  end)

local SET = "config.set_logical_device_configuration"

-- A list of settings, whose tables may be plain; of a number, as many without
-- any.
local function settings(x)
  local n, list = x, {}
  if type(x) == "table" then
    n = x.n or #x
  end
  options.integer(SET, "the number of logical devices", n, 1, 64)
  for i = 1, n do
    local one = type(x) == "table" and x[i] or {}
    if text.is_plain(one) then
      one = M.LogicalDeviceConfiguration(one)
    elseif getmetatable(one) ~= Logical then
      errors.raise("TypeError", ("%s: logical_devices[%d] must be a "
        .. "tf.config.LogicalDeviceConfiguration, got %s"):format(SET, i,
        text.describe(one)))
    end
    list[i] = one
  end
  return list
end

local function set_gpu(number, list)
  local limits = {}
  for i, one in ipairs(list) do
    limits[i] = (one.memory_limit or 0) * 1024 * 1024
  end
  errors.said_by(SET, raw.config_set_gpu_devices, number, limits)
end

local function set_cpu(list)
  for _, one in ipairs(list) do
    if one.memory_limit ~= nil then
      errors.raise("ValueError", SET .. ": CPU devices have no memory_limit")
    end
  end
  errors.said_by(SET, raw.config_set_cpu_devices, #list)
end

--- Split a processor or a GPU into logical devices: a list with one
--- LogicalDeviceConfiguration each, or just their number.
--- Errors: ValueError unless there are 1..64, and for memory limits of the CPU;
---   RuntimeError once a device was used.
--- Source: tf.config.set_logical_device_configuration
M.set_logical_device_configuration = wrap(SET, "device logical_devices",
  function(device, logical_devices)
    local kind, number = physical(SET, device)
    local list = settings(logical_devices)
    if kind == "CPU" then
      set_cpu(list)
    else
      set_gpu(number, list)
    end
    configured.devices[kind .. number] = list
  end)

--- The list that was set, nil when the device was not split.
--- Source: tf.config.get_logical_device_configuration
M.get_logical_device_configuration = wrap(
  "config.get_logical_device_configuration", "device", function(device)
    local kind, number = physical("config.get_logical_device_configuration",
      device)
    return configured.devices[kind .. number]
  end)

--- How devices run their work: "auto" (queued when there are several),
--- "inline" (at the call) or "queued".
--- Errors: RuntimeError once a device was used.
M.set_queue_mode = wrap("config.set_queue_mode", "mode", function(mode)
  mode = options.choice("config.set_queue_mode", "mode", mode,
    { "auto", "inline", "queued" })
  errors.said_by("config.set_queue_mode", raw.config_set_queue_mode, mode)
  configured.queue_mode = mode
end)

function M.get_queue_mode()
  return configured.queue_mode
end

--- Cores that each CPU device may use; 0 = the process's cores shared equally.
--- Errors: ValueError for a negative number; RuntimeError once a device was
---   used.
--- Source: tf.config.threading.set_intra_op_parallelism_threads
M.threading.set_intra_op_parallelism_threads = wrap(
  "config.threading.set_intra_op_parallelism_threads", "num_threads",
  function(n)
    options.integer("config.threading.set_intra_op_parallelism_threads",
      "num_threads", n)
    errors.said_by("config.threading.set_intra_op_parallelism_threads",
      raw.config_set_device_threads, n)
    configured.threads = n
  end)

function M.threading.get_intra_op_parallelism_threads()
  return configured.threads
end

--- What happens to an op that a device has no kernel for: it runs on CPU:0,
--- with copies there and back and one notice for each op (true, the default), or
--- fails with NotImplemented.
--- Source: tf.config.set_soft_device_placement
M.set_soft_device_placement = wrap("config.set_soft_device_placement",
  "enabled", function(enabled)
    if type(enabled) ~= "boolean" then
      errors.raise("TypeError", "config.set_soft_device_placement: enabled must "
        .. "be a boolean, got " .. text.describe(enabled))
    end
    raw.config_set_soft_placement(enabled)
    state.note_setting("soft_placement", enabled == false and "off" or nil)
  end)

--- Source: tf.config.get_soft_device_placement
function M.get_soft_device_placement()
  return raw.config_soft_placement()
end

--- Bytes on a device: `current` live, `peak` most ever, `reserved` also counts
--- what is kept for re-use.
--- Source: tf.config.experimental.get_memory_info
M.experimental.get_memory_info = wrap("config.experimental.get_memory_info",
  "device:string", function(name)
    local current, peak, reserved = raw.device_memory(raw.device_find(name))
    return { current = current, peak = peak, reserved = reserved }
  end)

--- Start the peak count again at the current level.
--- Source: tf.config.experimental.reset_memory_stats
M.experimental.reset_memory_stats = wrap(
  "config.experimental.reset_memory_stats", "device:string", function(name)
    raw.device_reset_peak(raw.device_find(name))
  end)

--- Memory of a device grows as it is needed; that cannot be switched off.
--- Errors: NotImplementedError for false.
--- Source: tf.config.experimental.set_memory_growth
M.experimental.set_memory_growth = wrap("config.experimental.set_memory_growth",
  "device enable", function(device, enable)
    physical("config.experimental.set_memory_growth", device)
    if enable ~= true then
      errors.raise("NotImplementedError", "config.experimental."
        .. "set_memory_growth: memory always grows as needed, got enable = "
        .. text.describe(enable), "TFDIST_MEMORY_LIMIT bounds it")
    end
  end)

--- Always true.
--- Source: tf.config.experimental.get_memory_growth
M.experimental.get_memory_growth = wrap("config.experimental.get_memory_growth",
  "device", function(device)
    physical("config.experimental.get_memory_growth", device)
    return true
  end)

--- Nothing to switch on: with the same devices and seeds, every run gives the
--- same bits.
--- Source: tf.config.experimental.enable_op_determinism
M.experimental.enable_op_determinism = wrap(
  "config.experimental.enable_op_determinism", "", function() end)

--- Whether GPUs may round the inputs of float32 products and convolutions to
--- TF32, for ops that begin from now on. At first they may, unless
--- TFDIST_STRICT_FP32 is 1. CPUs never do.
--- Source: tf.config.experimental.enable_tensor_float_32_execution
M.experimental.enable_tensor_float_32_execution = wrap(
  "config.experimental.enable_tensor_float_32_execution", "enabled:boolean",
  function(enabled)
    raw.tensor_float_32_enable(enabled)
    state.note_setting("tensor_float_32", enabled)
  end)

--- Source: tf.config.experimental.tensor_float_32_execution_enabled
M.experimental.tensor_float_32_execution_enabled = wrap(
  "config.experimental.tensor_float_32_execution_enabled", "", function()
    return raw.tensor_float_32_is_enabled()
  end)

--- Call what tf.function_ made as plain functions (true) or trace it (false,
--- the default).
--- Source: tf.config.run_functions_eagerly
M.run_functions_eagerly = wrap("config.run_functions_eagerly",
  "run_eagerly:boolean", function(on)
    state.call_eagerly(on)
  end)

--- Source: tf.config.functions_run_eagerly
function M.functions_run_eagerly()
  return state.eagerly
end

options.functions(M, "config.", {
  functions_run_eagerly = "", get_queue_mode = "", get_soft_device_placement = "" })
options.functions(M.threading, "config.threading.",
  { get_intra_op_parallelism_threads = "" })

M.experimental.list_physical_devices = M.list_physical_devices
M.experimental.list_logical_devices = M.list_logical_devices

for _, name in ipairs { "experimental", "threading" } do
  text.watch("tf.config." .. name, M[name])
end

return M
