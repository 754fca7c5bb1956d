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
local pairs = require "tfdist.base.pairs"
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
  autograph = "tfdist.traced.autograph", config = "tfdist.core.config",
  nest = "tfdist.core.nest",
  keras = "tfdist.keras", data = "tfdist.data",
  distribute = "tfdist.distribute", train = "tfdist.train",
  profiler = "tfdist.train.profiler", summary = "tfdist.train.summary", io = "tfdist.io",
}

-- Names of TensorFlow's for what lies in tf.keras.
local ALIASES = {
  initializers = true, losses = true, metrics = true, optimizers = true,
}

-- name = { module, field of it }
local FIELDS = {
  flags = { "tfdist.base.flags", "parse" },
  TensorSpec = { "tfdist.data.spec", "TensorSpec" },
  function_ = { "tfdist.traced", "function_" },
}
for name, class in pairs {
  zeros = "Zeros", ones = "Ones", constant = "Constant",
  random_normal = "RandomNormal", random_uniform = "RandomUniform",
} do
  FIELDS[name .. "_initializer"] = { "tfdist.keras.initializers", class }
end

local core_whole = false

-- What a higher floor adds to the core's functions comes with the first one.
local function core()
  local functions = loading.load "tfdist.core.functions"
  if not core_whole then
    assert(functions.constant)
    loading.load "tfdist.distribute.loss_scaling".install(functions,
      loading.load "tfdist.core.ops".def)
    core_whole = true
  end
  return functions
end

-- With what a higher floor adds to it.
local function distribute()
  local found = loading.load(MODULES.distribute)
  local preemption = loading.load "tfdist.train.preemption"
  for _, class in ipairs { "PreemptionCheckpointHandler",
    "TerminationConfig" } do
    found.experimental[class] = preemption[class]
  end
  -- Keras is loaded for it when it is asked for.
  found.experimental.ShardedOptimizer = loading.load "tfdist.base.options".wrap(
    "ShardedOptimizer", "optimizer:table", function(optimizer)
      return loading.load "tfdist.keras.optimizers".sharded(optimizer)
    end)
  return loading.load "tfdist.base.text".watch("tf.distribute", found)
end

local function load_name(name)
  if name == "distribute" then
    return distribute()
  elseif MODULES[name] ~= nil then
    return loading.load "tfdist.base.text".watch("tf." .. name,
      loading.load(MODULES[name]))
  elseif FIELDS[name] ~= nil then
    return loading.load(FIELDS[name][1])[FIELDS[name][2]]
  elseif ALIASES[name] then
    return loading.load "tfdist.keras"[name]
  end
  return core()[name]
end

local function all_names()
  local text = require "tfdist.base.text"
  local found = {}
  for _, name in ipairs(getmetatable(core()).__names()) do
    found[name] = true
  end
  for _, name in ipairs(text.names(tf, MODULES, FIELDS, ALIASES)) do
    found[name] = true
  end
  return text.names(found)
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
      require "tfdist.core.ops".check_name("", name, all_names, function()
        return require "tfdist.base.places".of(tf, name)
      end)
    end
    return value
  end,
  -- All names, for completion.
  __names = all_names,
  __tostring = function()
    return "tfdist " .. raw.version()
  end,
})

-- exit() tears libraries down that the devices' threads still run, and says
-- nothing to other workers.
local exit = os.exit

-- What the system will show of it.
local function status_of(code)
  if code == false then return 1 end
  if type(code) ~= "number" or code ~= code then return 0 end
  if math.abs(code) >= 2 ^ 31 then return 0 end
  return math.floor(code) % 256
end

rawset(os, "exit", function(code, ...)
  raw.stop_devices()
  raw.workers_leave(status_of(code))
  return exit(code, ...)
end)

tf.__version__ = raw.version()
tf.version = { VERSION = tf.__version__ }

--- Kinds of errors as strings, for `e.kind == tf.errors.OutOfRange`; also under
--- TensorFlow's class names (OutOfRangeError; UnimplementedError is
--- NotImplementedError). `tf.errors.is_error(e)`,
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
tf.errors.UnimplementedError = "NotImplementedError"
tf.errors.OperatorNotAllowedInGraphError = "TypeError"
require "tfdist.base.text".watch("tf.errors", tf.errors)

--- True: ops run at the call. False while tf.function_ traces.
function tf.executing_eagerly()
  return raw.graph_recording() == nil
end

--- True while tf.function_ traces. Source: tf.inside_function
function tf.inside_function()
  return raw.graph_recording() ~= nil
end

--- True for a tensor of a function that is being traced.
--- Source: tf.is_symbolic_tensor
tf.is_symbolic_tensor = require "tfdist.base.options".wrap("is_symbolic_tensor",
  "tensor:table=nil", function(x)
    return require "tfdist.core.tracing".is_symbolic(x)
  end)

return tf
