--- What fit, evaluate and predict are called with on several workers, which must
--- be alike on all of them: before the first step each holds its own against the
--- chief's.
---
--- Other epochs, batches or metrics would end in collectives that do not meet,
--- other optimizers and callbacks in weights that differ and nobody tells.
local base = require "tfdist.keras.metrics.base"
local course = require "tfdist.keras.training.course"
local dataset = require "tfdist.data.dataset"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local spec = require "tfdist.data.spec"
local steps = require "tfdist.keras.training.steps"
local text = require "tfdist.base.text"

local M = {}

-- Callbacks of this library that work together with other workers, or change
-- how training goes on.
local SHARED = {
  BackupAndRestore = true, EarlyStopping = true, LearningRateScheduler = true,
  ModelCheckpoint = true, ReduceLROnPlateau = true, TerminateOnNaN = true,
}

local function plain(x)
  if type(x) == "number" then
    return ("%.17g"):format(x)
  elseif type(x) == "userdata" and raw.is_operand(x) then
    return "a tensor"
  elseif type(x) == "table" or type(x) == "function" then
    return text.class_name(x) or type(x)
  end
  return tostring(x)
end

local function numbers_of(optimizer)
  local ok, config = errors.attempt(optimizer.get_config, optimizer)
  local list = {}
  for _, name in ipairs(ok and text.names(config) or {}) do
    list[#list + 1] = name .. " " .. plain(config[name])
  end
  return table.concat(list, ", ")
end

local function shared_callbacks(list)
  local names = {}
  for _, each in ipairs(list) do
    local name = each.__name
    if type(name) == "string" and SHARED[name] then
      names[#names + 1] = name
    end
  end
  return #names > 0 and table.concat(names, ", ") or "none"
end

-- "1, 2.5" for a list of numbers, too.
local function numbers(x)
  if type(x) ~= "table" then
    return plain(x)
  end
  local list = {}
  for i = 1, #x do
    list[i] = plain(x[i])
  end
  return table.concat(list, ", ")
end

-- Data ------------------------------------------------------------------------

-- "{., {a .}}": what structures have but their leaves.
local function skeleton(x)
  if not nest.is_nested(x) then
    return "."
  end
  local n, keys = nest.layout(x)
  local parts = {}
  for i = 1, n do
    parts[i] = skeleton(x[i])
  end
  for _, key in ipairs(keys or {}) do
    parts[#parts + 1] = tostring(key) .. " " .. skeleton(x[key])
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- The rows of a batch are counted elsewhere.
local function leaf_text(x)
  if not spec.is_spec(x) or x.shape == nil or x.shape[1] == nil then
    return spec.short(x)
  end
  local dims = { -1 }
  for i = 2, #x.shape do
    dims[i] = x.shape[i]
  end
  return spec.short(spec.new(dims, x.dtype))
end

-- What is known of the elements without reading any.
local function add_elements(add, prefix, node)
  local ok, known = errors.attempt(dataset.known_spec, node)
  if not ok or known == nil then
    return
  end
  add(prefix .. "elements like", skeleton(known))
  local leaves = nest.flatten(known)
  for i = 1, leaves.n do
    add(("%selement %d"):format(prefix, i), leaf_text(leaves[i]))
  end
end

-- Of a feed. What all workers read is the same for all, known or not; streams of
-- their own may be longer than others.
local function add_data(add, prefix, source)
  local plan = source.plan
  add(prefix .. "examples", source.rows)
  if plan == nil then
    return
  end
  local same = plan.kind == "global"
  add(prefix .. "auto_shard_policy", plan.policy)
  if same or plan.kind == "cut" and plan.G ~= nil then
    add(prefix .. "elements of a batch", plan.G or "not known")
  end
  if same then
    add(prefix .. "batches", source.steps or "not known")
  end
  add_elements(add, prefix, plan.node)
end

-- Model -----------------------------------------------------------------------

local function metric_text(x)
  if base.is_metric(x) then
    return ("%s %s"):format(x.__name, x.name)
  elseif not text.is_plain(x) then
    return plain(x)
  end
  local n, keys = nest.layout(x)
  local parts = {}
  for i = 1, n do
    parts[i] = metric_text(x[i])
  end
  for _, key in ipairs(keys or {}) do
    parts[#parts + 1] = ("%s = %s"):format(tostring(key), metric_text(x[key]))
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- As compile was given them: "mae, mse".
local function metrics_text(x)
  if x == nil then
    return "none"
  end
  return (metric_text(x):gsub("^{(.*)}$", "%1"))
end

-- Of what compile has set up, and of what the model has by itself.
local function add_model(add, model, own)
  local loss = own.spec.loss
  add("loss", type(loss) == "table" and loss.__name or loss)
  add("metrics", metrics_text(own.spec.metrics))
  add("weighted_metrics", metrics_text(own.spec.weighted))
  local known, list = errors.attempt(steps.metrics_of, model)
  if known then
    add("metrics of the model", metrics_text(list))
  end
  add("steps_per_execution", own.steps_per_execution)
end

local function add_trained(add, model)
  local list = model.trainable_variables
  add("trainable variables", #list)
  for i, v in ipairs(list) do
    add("trainable variable " .. i, ("%s {%s}"):format(v.dtype,
      numbers(v.shape)))
  end
end

-- Lines ------------------------------------------------------------------------

-- A list of lines, "epochs: 3", and what adds one for a thing.
local function new_lines()
  local lines = {}
  return lines, function(name, value)
    lines[#lines + 1] = (name .. ": " .. plain(value)):gsub("\n", " ")
  end
end

-- Of the arguments that come with arrays, which have a number of rows.
local function add_arrays(add, given, rows)
  add("batch_size", rows and (given.batch_size or 32))
  add("y", rows and given.y ~= nil)
  add("sample_weight", rows and given.sample_weight ~= nil)
end

-- What fit has; no line for what is not known.
local function describe(run, given)
  local own, validation, rows = run.own, run.validation, run.source.rows
  local lines, add = new_lines()
  add("epochs", run.epochs)
  add("initial_epoch", run.initial_epoch)
  add("steps_per_epoch", run.limit)
  add_arrays(add, given, rows)
  add("shuffle", rows and (given.shuffle and true or false))
  add("class_weight", numbers(own.class_weight))
  add_data(add, "", run.source)
  add("validation", validation ~= nil)
  if validation ~= nil then
    add("validation_freq", numbers(validation.freq))
    add("validation_steps", validation.steps)
    add_data(add, "validation ", validation.source)
  end
  add_model(add, run.model, own)
  add("optimizer", numbers_of(own.optimizer))
  add_trained(add, run.model)
  add("callbacks that all workers need", shared_callbacks(run.callbacks.list))
  return lines
end

-- Comparison ------------------------------------------------------------------

-- Name and value of each line, in order.
local function facts_of(whole)
  local list = {}
  for name, value in whole:gmatch "([^\n]-): ([^\n]*)" do
    list[#list + 1] = { name = name, value = value }
    list[name] = value
  end
  return list
end

-- "float32 {?, 3}" and "float32 {?, ?}"; what is no spec fits itself.
local function fits(a, b)
  local dims, others = a:match "^%S+ {(.*)}$", b:match "^%S+ {(.*)}$"
  if a:match "^%S+" ~= b:match "^%S+" then
    return false
  elseif dims == nil or others == nil then
    return a == b or (a .. b):find("of any shape", 1, true) ~= nil
  end
  local next_dim = others:gmatch "[^, ]+"
  for dim in dims:gmatch "[^, ]+" do
    local other = next_dim()
    if other ~= dim and dim ~= "?" and other ~= "?" or other == nil then
      return false
    end
  end
  return next_dim() == nil
end

local function differ(name, a, b)
  return b ~= nil and a ~= b
    and not (name:find "element %d+$" and fits(a, b))
end

-- What each worker was called with, the chief's first.
local function compare(what, all)
  local chiefs = facts_of(all[1])
  for i = 2, #all do
    for _, fact in ipairs(facts_of(all[i])) do
      local name, value = fact.name, fact.value
      if differ(name, value, chiefs[name]) then
        course.refuse(("%s: worker %d has %s: %s; the chief has "
          .. "%s: %s"):format(what, i - 1, name, value, name, chiefs[name]),
          ("all workers have to call %s in the same way, on models that were "
          .. "compiled in the same way"):format(what))
      end
    end
  end
end

--- Hold what fit was called with against the chief's, and settle how many steps
--- an epoch has: on workers whose data have several lengths as many as the
--- longest. Every worker calls it.
--- Errors: ValueError on those that differ.
---@param run table        what the loop of fit is given
---@param given table      fit's arguments by name
function M.settle(run, given)
  local strategy = run.own.strategy
  if not strategy.over_workers then
    return
  end
  compare("fit", course.meet(strategy, "call", "begins a fit",
    table.concat(describe(run, given), "\n")))
  local length = run.source.steps
  local found = reduce.over_hosts(strategy, "max", "fit",
    { length or -1, length and 0 or 1 })
  run.source.steps = found[2] == 0 and found[1] or nil
end

local WORDS = { evaluate = "begins an evaluation",
  predict = "begins a prediction" }

--- The same for evaluate and predict; whether some worker's callbacks want the
--- logs of batches is settled, too. Every worker calls it.
--- Errors: ValueError on those that differ.
---@param what "evaluate"|"predict"
---@param own table        the model's training state
---@param source table     feed
---@param list table       callbacks
---@param given table      the arguments by name
function M.check(what, model, own, source, list, given)
  local strategy = own.strategy
  if not strategy.over_workers then
    return
  end
  local lines, add = new_lines()
  add("steps", given.steps)
  add_arrays(add, given, source.rows)
  add_data(add, "", source)
  if what == "evaluate" then
    add_model(add, model, own)
  end
  compare(what, course.agree(strategy, what, WORDS[what], list,
    table.concat(lines, "\n"), what))
end

return M
