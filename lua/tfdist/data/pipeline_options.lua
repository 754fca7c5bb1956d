--- tf.data.Options and what hangs on it.
---
--- auto_shard_policy decides how workers share a data set. The rest is accepted
--- for programs that set it: there are no threads and no rewriting to steer,
--- and order is always deterministic.
local dataset = require "tfdist.data.dataset"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

--- How a distributed data set is divided among workers.
--- Source: tf.data.experimental.AutoShardPolicy
M.AutoShardPolicy = {
  OFF = "OFF", AUTO = "AUTO", FILE = "FILE", DATA = "DATA", HINT = "HINT",
}
local POLICIES = { "OFF", "AUTO", "FILE", "DATA", "HINT" }
local BY_NUMBER = {
  [-1] = "OFF", [0] = "AUTO", [1] = "FILE", [2] = "DATA", [3] = "HINT",
}

local function policy(what, name, x)
  if BY_NUMBER[x] ~= nil then
    return BY_NUMBER[x]
  end
  return (options.choice(what, name, x, POLICIES))
end

local function boolean(what, name, x)
  if type(x) ~= "boolean" then
    errors.raise("TypeError", ("%s: %s must be true or false, got %s"):format(
      what, name, text.describe(x)))
  end
  return x
end

local function count(what, name, x)
  return options.integer(what, name, x, 0)
end

local function any(_, _, x)
  return x
end

-- class name -> field -> check
local FIELDS = {
  DistributeOptions = { auto_shard_policy = policy, num_devices = count },
  ThreadingOptions = {
    max_intra_op_parallelism = count, private_threadpool_size = count,
  },
  AutotuneOptions = {
    enabled = boolean, cpu_budget = count, ram_budget = count,
    autotune_algorithm = any, initial_parallelism = count,
  },
  OptimizationOptions = {
    apply_default_optimizations = boolean, filter_fusion = boolean,
    filter_parallelization = boolean, inject_prefetch = boolean,
    map_and_batch_fusion = boolean, map_and_filter_fusion = boolean,
    map_fusion = boolean, map_parallelization = boolean,
    noop_elimination = boolean, parallel_batch = boolean,
    shuffle_and_repeat_fusion = boolean, seq_interleave_prefetch = boolean,
    warm_start = boolean,
  },
  Options = {
    deterministic = boolean, experimental_deterministic = boolean,
    experimental_slack = boolean, experimental_symbolic_checkpoint = boolean,
    experimental_external_state_policy = any, dataset_name = any,
    framework_type = any, experimental_warm_start = boolean,
  },
}

-- field of Options -> class of what it holds
local PARTS = {
  experimental_distribute = "DistributeOptions",
  threading = "ThreadingOptions", experimental_threading = "ThreadingOptions",
  autotune = "AutotuneOptions", experimental_optimization =
    "OptimizationOptions",
}

local function names_of(class)
  return text.names(FIELDS[class], class == "Options" and PARTS or {})
end

local metas = {}

local function unknown(class, name)
  errors.raise("ValueError", ("%s: unknown option %s"):format(class,
    text.describe(name)), type(name) == "string"
    and text.suggestion(name, names_of(class), "option") or nil)
end

local function set(self, name, x)
  local class = getmetatable(self).__name
  local store = rawget(self, "values")
  local part = class == "Options" and PARTS[name]
  if part then
    local into = self[name]
    if getmetatable(x) == metas[part] then
      x = rawget(x, "values")
    elseif not text.is_plain(x) then
      errors.raise("TypeError", ("%s: %s must be %s, got %s"):format(class,
        name, part, text.describe(x)))
    end
    for key, value in pairs(x) do
      into[key] = value
    end
    return
  end
  local check = FIELDS[class][name]
  if check == nil then
    unknown(class, name)
  end
  store[name] = x ~= nil and check(class, name, x) or nil
  if x == false then
    store[name] = false
  end
end

local function get(self, name)
  local class = getmetatable(self).__name
  local store = rawget(self, "values")
  local part = class == "Options" and PARTS[name]
  if part and store[part] == nil then
    store[part] = setmetatable({ values = {} }, metas[part])
  end
  if part then
    return store[part]
  elseif FIELDS[class][name] == nil then
    unknown(class, name)
  elseif store[name] == nil and name == "auto_shard_policy" then
    return "AUTO"
  end
  return store[name]
end

local function show(self)
  local parts = {}
  for _, name in ipairs(names_of(getmetatable(self).__name)) do
    local value = rawget(self, "values")[PARTS[name] or name]
    if value ~= nil and not (name:find "^experimental_threading") then
      parts[#parts + 1] = name .. " = " .. tostring(value)
    end
  end
  return getmetatable(self).__name .. " { " .. table.concat(parts, ", ")
    .. " }"
end

local function constructor(class)
  return function(given)
    local made = setmetatable({ values = {} }, metas[class])
    if given ~= nil and not text.is_plain(given) then
      errors.raise("TypeError", ("%s: options must be a table, got %s"):format(
        class, text.describe(given)))
    end
    for name, value in pairs(given or {}) do
      made[name] = value
    end
    return made
  end
end

for class in pairs(FIELDS) do
  metas[class] = {
    __name = class, __index = get, __newindex = set, __tostring = show,
  }
  --- Constructors: Options { experimental_distribute = { ... } }.
  --- Source: tf.data.Options and tf.data.experimental.DistributeOptions etc.
  M[class] = constructor(class)
end

-- with_options ---------------------------------------------------------------

local Stage = dataset.stage {}

function Stage.rows(node)
  return dataset.rows_of(node.inputs[1])
end

function Stage.items(node, run)
  return dataset.items(node.inputs[1], run)
end

function Stage.describe(node)
  return tostring(node.options):gsub("^Options { ", ""):gsub(" }$", "")
end

local function merge(into, from)
  for name, value in pairs(rawget(from, "values")) do
    if type(value) == "table" then
      local store = rawget(into, "values")
      store[name] = store[name] or setmetatable({ values = {} },
        getmetatable(value))
      merge(store[name], value)
    else
      rawget(into, "values")[name] = value
    end
  end
end

--- The options of a pipeline: those set last win, field by field.
function M.of(node)
  local all = M.Options()
  dataset.walk(node, function(each)
    if each.options ~= nil then
      merge(all, each.options)
    end
  end)
  return all
end

--- The same elements with options; they add to those set before.
--- Errors: TypeError for what is no tf.data.Options.
--- Source: tf.data.Dataset.with_options
dataset.method("with_options", "options name=nil", function(self, given)
  if getmetatable(given) ~= metas.Options then
    if not text.is_plain(given) then
      errors.raise("TypeError", "Dataset.with_options: options must be "
        .. "tf.data.Options, got " .. text.describe(given))
    end
    given = M.Options(given)
  end
  local own = M.Options()
  merge(own, given)
  return dataset.new(Stage, "with_options", { self.node }, { options = own })
end)

--- All options that hold for the data set. Source: tf.data.Dataset.options
dataset.method("options", "", function(self)
  return M.of(self.node)
end)

return M
