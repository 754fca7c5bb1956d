--- tfdist: tf.distribute for Lua.
---
--- `local tf = require "tfdist"`. The table fills itself: op families and
--- classes are loaded when one of their names is first used.
---
--- The calling rule: functions take TensorFlow's parameters in its order; a
--- trailing table gives any of them by name. Axes, positions, labels and
--- devices count from 0, Lua lists from 1.

local errors = require "tfdist.base.errors"
local loading = require "tfdist.base.loading"
local raw = require "tfdist.core.raw"

-- Lua finds such a script before the library; when it did not this time, it
-- will from another folder, and end in a C stack overflow.
local script = (rawget(_G, "arg") or {})[0]
if type(script) == "string" and ("/" .. script):find("/tfdist%.lua$") then
  errors.raise("RuntimeError", "your script tfdist.lua hides the module of the "
    .. "same name; rename it")
end

local tf = {}

-- name = module that is the value
local MODULES = {
  config = "tfdist.core.config", nest = "tfdist.base.nest",
  keras = "tfdist.keras", data = "tfdist.data", distribute = "tfdist.distribute",
  train = "tfdist.train", summary = "tfdist.train.summary", io = "tfdist.io",
}

-- Names of TensorFlow's for what lies in tf.keras.
local ALIASES = {
  initializers = true, losses = true, metrics = true, optimizers = true,
}

-- name = { module, field of it }
local FIELDS = {
  flags = { "tfdist.host.flags", "parse" },
  Module = { "tfdist.core.module", "Module" },
  device = { "tfdist.core.device", "device" },
  tidy = { "tfdist.core.device", "tidy" },
  keep = { "tfdist.core.device", "keep" },
  print = { "tfdist.core.device", "print" },
  group = { "tfdist.core.device", "group" },
  no_op = { "tfdist.core.device", "no_op" },
  sync_devices = { "tfdist.core.device", "sync_devices" },
  TensorSpec = { "tfdist.data.spec", "TensorSpec" },
}
for name, class in pairs {
  zeros = "Zeros", ones = "Ones", constant = "Constant",
  random_normal = "RandomNormal", random_uniform = "RandomUniform",
} do
  FIELDS[name .. "_initializer"] = { "tfdist.keras.initializers", class }
end

-- Modules with an install(tf, def), loaded with the first op.
local CORE = {
  "core.variable", "core.slices", "core.debugging", "core.control",
  "core.tape", "distribute.loss_scaling",
}

-- True also while they register their names.
local core_loaded = false

local function install_core()
  local ops = loading.load "tfdist.core.ops"
  ops.install(tf)
  for _, name in ipairs(CORE) do
    loading.load("tfdist." .. name).install(tf, ops.def)
  end
end

local function load_core()
  core_loaded = true
  local ok, e = pcall(install_core)
  if not ok then
    core_loaded = false
    error(e, 0)
  end
end

local function load_name(name)
  if MODULES[name] ~= nil then
    return loading.load "tfdist.base.text".watch("tf." .. name,
      loading.load(MODULES[name]))
  elseif FIELDS[name] ~= nil then
    return loading.load(FIELDS[name][1])[FIELDS[name][2]]
  elseif ALIASES[name] then
    return loading.load "tfdist.keras"[name]
  end
  loading.load "tfdist.base.missing".check("", name)
  if not core_loaded then
    load_core()
    -- Loading may have set the name itself (constants).
    local value = rawget(tf, name)
    if value ~= nil then
      return value
    end
  end
  return require "tfdist.core.ops".find("", name)
end

setmetatable(tf, {
  __name = "tfdist",
  __index = function(_, name)
    if type(name) ~= "string" then
      return nil
    end
    local value = load_name(name)
    if value ~= nil then
      rawset(tf, name, value)
    else
      require "tfdist.core.ops".check_name("", name, getmetatable(tf).__names)
    end
    return value
  end,
  -- All names, for completion.
  __names = function()
    if not core_loaded then
      load_core()
    end
    local names = require "tfdist.core.ops".names("")
    require "tfdist.base.lists".append(names,
      require "tfdist.base.text".names(MODULES, FIELDS, ALIASES))
    table.sort(names)
    return names
  end,
  __tostring = function()
    return "tfdist " .. raw.version()
  end,
})

-- exit() tears libraries down that the devices' threads still run.
local exit = os.exit
rawset(os, "exit", function(...)
  raw.stop_devices()
  return exit(...)
end)

tf.__version__ = raw.version()
tf.version = { VERSION = tf.__version__ }

--- Kinds of errors as strings, for `e.kind == tf.errors.OutOfRange`; also under
--- TensorFlow's class names (OutOfRangeError). `tf.errors.is_error(e)`,
--- `tf.errors.kind(e)` and `tf.errors.raise(kind, message, hint)` work on what
--- pcall returns.
tf.errors = {
  is_error = errors.is_error, kind = errors.kind, raise = errors.raise,
}
for _, kind in ipairs {
  "ValueError", "TypeError", "RuntimeError", "NotImplementedError",
  "AssertionError", "KeyError", "IndexError", "InvalidArgument", "OutOfRange",
  "NotFound", "AlreadyExists", "FailedPrecondition", "Unavailable",
  "DeadlineExceeded", "Aborted", "Cancelled", "ResourceExhausted", "DataLoss",
  "Internal",
} do
  tf.errors[kind] = kind
  if not kind:find("Error$") then
    tf.errors[kind .. "Error"] = kind
  end
end
tf.errors.CancelledError = "Cancelled"
require "tfdist.base.text".watch("tf.errors", tf.errors)

--- True: ops run at the call. (False while tf.function_ traces.)
function tf.executing_eagerly()
  return raw.tracing == nil or not raw.tracing()
end

return tf
