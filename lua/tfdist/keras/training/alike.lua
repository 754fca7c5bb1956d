--- What fit is called with on several workers, which must be alike on all of
--- them: before the first step each holds its own against the chief's.
---
--- Other epochs or batches would end in collectives that do not meet, other
--- optimizers and callbacks in weights that differ and nobody tells.
local course = require "tfdist.keras.training.course"
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
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

-- A line for each thing, "epochs: 3".
local function describe(run, batch_size)
  local own, validation = run.own, run.validation
  local loss, lines = own.spec.loss, {}
  local function add(name, value)
    lines[#lines + 1] = (name .. ": " .. plain(value)):gsub("\n", " ")
  end
  add("epochs", run.epochs)
  add("initial_epoch", run.initial_epoch)
  add("steps_per_epoch", run.limit)
  add("batch_size", run.source.rows and (batch_size or 32))
  add("examples", run.source.rows)
  add("validation", validation ~= nil)
  add("loss", type(loss) == "table" and loss.__name or loss)
  add("optimizer", numbers_of(own.optimizer))
  add("variables", #run.model.trainable_variables)
  add("callbacks that all workers need", shared_callbacks(run.callbacks.list))
  return lines
end

-- Lines of a text, by number.
local function lines_of(whole)
  local list = {}
  for line in whole:gmatch "[^\n]+" do
    list[#list + 1] = line
  end
  return list
end

-- What each worker was called with, the chief's first.
local function compare(all)
  local chiefs = lines_of(all[1])
  for i = 2, #all do
    for k, line in ipairs(lines_of(all[i])) do
      if line ~= chiefs[k] then
        errors.raise("ValueError", ("fit: worker %d has %s; the chief has %s")
          :format(i - 1, line, tostring(chiefs[k])),
          "all workers have to call fit in the same way, on models that were "
          .. "compiled in the same way")
      end
    end
  end
end

--- Hold what fit was called with against the chief's, and settle how many steps
--- an epoch has: on workers whose data have several lengths as many as the
--- longest. Every worker calls it.
--- Errors: ValueError on those that differ.
---@param run table        what the loop of fit is given
---@param batch_size any   as given
function M.settle(run, batch_size)
  local strategy = run.own.strategy
  if not strategy.over_workers then
    return
  end
  compare(course.meet(strategy, "call", "begins a fit",
    table.concat(describe(run, batch_size), "\n")))
  local steps = run.source.steps
  local found = reduce.over_hosts(strategy, "max", "fit",
    { steps or -1, steps and 0 or 1 })
  run.source.steps = found[2] == 0 and found[1] or nil
end

return M
