--- Steps of training, evaluation and prediction as graphs.
---
--- The first step with a signature (sizes and dtypes of a batch, examples of the
--- global one) runs eagerly: layers, slots and metrics are made there, and their
--- numbers drawn in the usual order; a last smaller batch is no reason to trace.
--- The second one is traced, and those after it run as a graph, until a field
--- that it was made with changes (fields.lua): then all begins again. A step
--- that cannot be traced goes on eagerly, with one notice that says why, until
--- such a field changes.
local concrete = require "tfdist.traced.concrete"
local config = require "tfdist.core.config"
local errors = require "tfdist.base.errors"
local fields = require "tfdist.keras.training.fields"
local notice = require "tfdist.base.notice"
local raw = require "tfdist.core.raw"
local signature = require "tfdist.traced.signature"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local pcall, rawequal, select = pcall, rawequal, select
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local MOST = 32 -- graphs of one step; the first makes room for others
local TRIES = 8 -- traces that may fail for one reason

-- Kinds that say what was at the time, nothing about the step.
local PASSING = { ResourceExhausted = true, Unavailable = true, Aborted = true,
  DeadlineExceeded = true }
local STEP = { name = "a step of the model", hidden = 1 } -- the examples
local MET = {} -- in a graph's place: the signature was met once

-- May steps of the model be graphs here?
local function traces(own)
  return not own.run_eagerly and not config.functions_run_eagerly()
    and tracing.current() == nil
end

local function same_list(a, b)
  if rawequal(a, b) then
    return true
  elseif a == nil or b == nil or #a ~= #b then
    return false
  end
  for i = 1, #a do
    if not rawequal(a[i], b[i]) then
      return false
    end
  end
  return true
end

-- The variables to train. Where all fields are what they were (`unchanged`), so
-- are these.
local function variables_of(model, own, kept, unchanged)
  local variables = own.variables or unchanged and kept.fields ~= nil
    and not kept.eager and kept.variables or model.trainable_variables
  own.variables = variables
  kept.variables = kept.variables or variables
  return variables
end

local STEPS = { train = "train_step", test = "test_step",
  predict = "predict_step" }

-- The graphs of a mode's step that there are, and whether what a trace decides
-- is as it was then.
local function unchanged_graphs(model, own, mode)
  local kept, known = own.graphs and own.graphs[mode], own.variables
  if kept == nil then
    return nil, false
  end
  local unchanged = kept.method == model[STEPS[mode]]
    and kept.optimizer == own.optimizer and kept.settings == state.settings
    and same_list(kept.class_weight, own.class_weight)
    and (kept.fields == nil or fields.same(kept.fields))
  local variables = nil
  if mode == "train" then
    variables = variables_of(model, own, kept, unchanged)
    unchanged = unchanged and same_list(kept.variables, variables)
  end
  if unchanged then
    kept.variables = variables -- a list that is new compares fastest with itself
  else
    own.variables = known -- else the eager step finds those that it makes
  end
  return kept, unchanged
end

-- The graphs of a mode's step, by signature. The first step makes the variables.
local function graphs_of(model, own, mode)
  local kept, unchanged = unchanged_graphs(model, own, mode)
  if not unchanged then
    local method = model[STEPS[mode]]
    local before = kept ~= nil and kept.method == method and kept or {}
    own.graphs = own.graphs or {}
    kept = {
      entries = {}, count = 0, method = method, variables = own.variables,
      class_weight = own.class_weight, optimizer = own.optimizer,
      settings = state.settings,
      falls = before.falls or 0, said = before.said,
      eager = before.falls == TRIES,
    }
    own.graphs[mode] = kept
  end
  return kept
end

local function trace(own, mode, body, pack, tensors)
  local strategy = own.strategy
  return concrete.trace(mode .. "_step", function(examples, ...)
    own.step_examples = examples
    return strategy:run(body, { n = select("#", ...), ... })
  end, { n = pack.n + 1, own.step_examples, unpack(pack, 1, pack.n) }, tensors,
    nil, false)
end

-- Nothing of a trace may stay in layers: losses added in it have no values.
local function traced(model, own, mode, body, pack, tensors)
  local ok, entry = pcall(trace, own, mode, body, pack, tensors)
  model:forget_losses()
  return ok, entry
end

local function fall_back(model, own, kept, mode, e)
  local said = ("model %s: %s_step runs eagerly, for it cannot be traced: %s")
    :format(text.quote(model.name), mode,
    (tostring(errors.wrap(e)):match "^[^\n]*"))
  kept.eager, kept.falls = true, kept.falls + 1
  kept.fields = fields.of(model, own, mode)
  if said ~= kept.said then
    kept.said = said
    notice.warn(said)
  end
end

-- Is it that the steps so far have not made all variables, as one that a loss
-- scale's optimizer left out, or what may be over soon? Then a later step is
-- traced.
local function may_pass(kept, e)
  if not (errors.is_error(e) and (e.late_variable or PASSING[e.kind])) then
    return false
  end
  kept.tries = (kept.tries or 0) + 1
  return kept.tries < TRIES
end

--- The graph for a batch, and its tensors; nil when it is to run eagerly.
--- Errors: Cancelled when the user interrupts a trace.
local function entry_of(model, own, mode, body, pack)
  local kept = graphs_of(model, own, mode)
  if kept.eager then
    return nil
  end
  local key, tensors, entry
  key = raw.graph_key(own.step_examples, unpack(pack, 1, pack.n))
  if key == nil then
    key, tensors = signature.of(STEP, own.step_examples, unpack(pack, 1, pack.n))
  end
  entry = kept.entries[key]
  if entry == nil then
    if kept.count == MOST then
      kept.entries, kept.count = {}, 0
    end
    kept.entries[key], kept.count = MET, kept.count + 1
    return nil
  elseif tensors == nil and (entry == MET or not entry.plain) then
    tensors = select(2, signature.of(STEP, 0, unpack(pack, 1, pack.n)))
  end
  if entry == MET then
    local ok
    ok, entry = traced(model, own, mode, body, pack, tensors)
    if not ok and errors.kind(entry) == "Cancelled" then
      error(entry, 0)
    elseif not ok and may_pass(kept, entry) then
      return nil
    elseif not ok then
      fall_back(model, own, kept, mode, entry)
      return nil
    end
    -- Now: what the trace itself wrote is no change.
    local watch = fields.of(model, own, mode)
    if watch == nil then
      fall_back(model, own, kept, mode, fields.too_many())
      return nil
    end
    kept.entries[key], kept.fields = entry, watch
  end
  return entry, tensors
end

--- The graphs of a mode's step, for M.known; nil where there are none that a step
--- now would run.
function M.graphs(model, own, mode)
  local kept = own.graphs and own.graphs[mode]
  if kept == nil or kept.fields == nil or kept.eager or not traces(own) then
    return nil
  end
  local _, unchanged = unchanged_graphs(model, own, mode)
  return unchanged and kept or nil
end

--- The graph that there already is for a batch of so many examples, and its
--- tensors; nil where there is none.
function M.known(kept, examples, pack)
  local key, tensors = raw.graph_key(examples, unpack(pack, 1, pack.n)), nil
  if key == nil then
    key, tensors = signature.of(STEP, examples, unpack(pack, 1, pack.n))
  end
  local entry = kept.entries[key]
  if entry == nil or entry == MET then
    return nil
  end
  return entry, tensors or concrete.tensors_of(unpack(pack, 1, pack.n))
end

--- What holds as long as the graphs do, where nothing of a script's runs in this
--- one.
function M.holds(kept, entry)
  return entry.plain and kept or nil
end

--- The function that runs a batch as a graph, or nil. own.ran is then what holds
--- as long as the graphs do, where nothing of a script's runs in them.
function M.runner(model, own, mode, body, pack)
  own.ran = nil
  if not traces(own) then
    return nil
  end
  local entry, tensors = entry_of(model, own, mode, body, pack)
  if entry == nil then
    return nil
  end
  local kept = own.graphs[mode]
  own.ran = M.holds(kept, entry)
  if tensors == nil then
    return function()
      return concrete.run_plain(entry, unpack(pack, 1, pack.n))
    end
  end
  return function()
    return concrete.run(entry, tensors)
  end
end

return M
