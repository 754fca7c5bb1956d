--- Steps of training, evaluation and prediction as graphs.
---
--- The first step with a signature (sizes and dtypes of a batch, examples of the
--- global one) runs eagerly: layers, slots and metrics are made there, and their
--- numbers drawn in the usual order; a last smaller batch is no reason to trace.
--- The second one is traced, and those after it run as a graph, until a field
--- that it was made with changes (fields.lua): then all begins again. A step
--- that cannot be traced goes on eagerly, with one notice that says why.
local concrete = require "tfdist.traced.concrete"
local config = require "tfdist.core.config"
local errors = require "tfdist.base.errors"
local fields = require "tfdist.keras.training.fields"
local notice = require "tfdist.base.notice"
local raw = require "tfdist.core.raw"
local signature = require "tfdist.traced.signature"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local pcall, rawequal, select = pcall, rawequal, select
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local MOST = 32 -- graphs of one step; the first makes room for others
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

-- Are graphs made by `kept` still those of the model? What a trace decides must
-- be as it was then.
local function is_current(kept, own, method, variables)
  return kept.method == method and kept.optimizer == own.optimizer
    and same_list(kept.class_weight, own.class_weight)
    and same_list(kept.variables, variables)
    and (kept.fields == nil or fields.same(kept.fields))
end

-- The graphs of a mode's step, by signature. The first step makes the variables.
local function graphs_of(model, own, mode)
  own.graphs = own.graphs or {}
  local kept, method = own.graphs[mode], model[mode .. "_step"]
  local variables
  if mode == "train" and kept ~= nil then
    variables = own.variables or model.trainable_variables
    own.variables = variables
    kept.variables = kept.variables or variables
  end
  if kept == nil or not is_current(kept, own, method, variables) then
    kept = {
      entries = {}, count = 0, method = method, variables = variables,
      class_weight = own.class_weight, optimizer = own.optimizer,
      eager = kept ~= nil and kept.eager and kept.method == method,
    }
    own.graphs[mode] = kept
  else
    kept.variables = variables
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

local function fall_back(model, kept, mode, e)
  kept.eager = true
  notice.warn(("model %s: %s_step runs eagerly, for it cannot be traced: %s")
    :format(text.quote(model.name), mode,
    (tostring(errors.wrap(e)):match "^[^\n]*")))
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
    key, tensors = signature.of(own.step_examples, unpack(pack, 1, pack.n))
  end
  entry = kept.entries[key]
  if entry == nil then
    if kept.count == MOST then
      kept.entries, kept.count = {}, 0
    end
    kept.entries[key], kept.count = MET, kept.count + 1
    return nil
  elseif tensors == nil and (entry == MET or not entry.plain) then
    tensors = select(2, signature.of(unpack(pack, 1, pack.n)))
  end
  if entry == MET then
    local ok
    ok, entry = traced(model, own, mode, body, pack, tensors)
    if not ok and errors.kind(entry) == "Cancelled" then
      error(entry, 0)
    elseif not ok then
      fall_back(model, kept, mode, entry)
      return nil
    end
    kept.entries[key] = entry
    -- Now: what the trace itself wrote is no change.
    kept.fields = fields.of(model, own, mode)
  end
  return entry, tensors
end

--- The function that runs a batch as a graph, or nil.
function M.runner(model, own, mode, body, pack)
  if not traces(own) then
    return nil
  end
  local entry, tensors = entry_of(model, own, mode, body, pack)
  if entry == nil then
    return nil
  elseif tensors == nil then
    return function()
      return concrete.run_plain(entry, unpack(pack, 1, pack.n))
    end
  end
  return function()
    return concrete.run(entry, tensors)
  end
end

return M
