--- Losses and metrics of compile, put to the model's outputs.
---
--- compile takes one loss for all outputs, a list in the order of outputs or a
--- table by output names; metrics likewise, each a name, a function, an object
--- or a list of them. What an output is shows only when the model is called,
--- so names are resolved at the first step.
local base = require "tfdist.keras.metrics.base"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local functions = require "tfdist.keras.losses.functions"
local losses = require "tfdist.keras.losses"
local metrics = require "tfdist.keras.metrics"
local nest = require "tfdist.base.nest"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local wrapped = require "tfdist.keras.losses.wrapped"

local M = {}

local type = type

local function is_plain(x)
  return type(x) == "table" and getmetatable(x) == nil
end

local function is_serialized(x)
  return is_plain(x) and type(x.class_name) == "string"
end

-- Keys -----------------------------------------------------------------------

--- Can x be what a model gives? A tensor or a table of some.
function M.are_outputs(x)
  return type(x) == "userdata" or is_plain(x)
end

--- The outputs of a call as a list, and their names.
--- Errors: TypeError for what is no tensor, as of a call without return.
---@return any[] list, string[] names
function M.flatten(model, y_pred)
  if not M.are_outputs(y_pred) then
    errors.raise("TypeError", ("%s: call must return tensors, got %s"):format(
      model.name, y_pred == nil and "nothing" or text.describe(y_pred)))
  elseif not is_plain(y_pred) then
    local known = model.output_names
    return { y_pred }, { known and known[1] or "output_1" }
  end
  local n, keys = nest.layout(y_pred)
  local list, names = {}, {}
  local known = model.output_names
  for i = 1, n do
    list[i] = y_pred[i]
    names[i] = known and known[i] or "output_" .. i
  end
  for _, key in ipairs(keys or {}) do
    list[#list + 1] = y_pred[key]
    names[#list] = tostring(key)
  end
  return list, names
end

local function unknown_output(what, key, names)
  errors.raise("ValueError", ("%s: the model has no output %s"):format(what,
    text.quote(tostring(key))), text.suggestion(tostring(key), names,
    "output"))
end

-- spec's entry for each output: by name, by position, or the same for all.
-- `entry(x)` tells whether a list is itself one output's entry.
local function spread(what, spec, names, entry)
  local out = {}
  if spec == nil then
    return out
  elseif not is_plain(spec) or is_serialized(spec) then
    for i = 1, #names do
      out[i] = spec
    end
    return out
  end
  local n, keys = nest.layout(spec)
  if keys ~= nil then
    local index = {}
    for i, name in ipairs(names) do
      index[name] = i
    end
    for _, key in ipairs(keys) do
      if index[key] == nil then
        unknown_output(what, key, names)
      end
      out[index[key]] = spec[key]
    end
    return out
  elseif entry(spec, n) then
    for i = 1, #names do
      out[i] = spec
    end
    return out
  elseif n ~= #names then
    errors.raise("ValueError", ("%s: a list of %d for %d output%s (%s)"):format(
      what, n, #names, #names == 1 and "" or "s", table.concat(names, ", ")))
  end
  for i = 1, n do
    out[i] = spec[i]
  end
  return out
end

local function never()
  return false
end

--- The values for each output in data given by name, position or alone.
function M.match(what, data, names)
  if data == nil then
    return {}
  elseif not is_plain(data) then
    return { data }
  end
  return spread(what, data, names, never)
end

-- Losses ---------------------------------------------------------------------

local function check_each(x, check)
  if is_plain(x) and not is_serialized(x) then
    for _, each in pairs(x) do
      check_each(each, check)
    end
  else
    check(x)
  end
end

--- Raise for losses and metrics that there are not, at once in compile.
function M.check(spec)
  check_each(spec.loss, function(x)
    losses.get(x)
  end)
  for _, list in pairs { spec.metrics or false, spec.weighted or false } do
    check_each(list or nil, function(x)
      if type(x) ~= "string" or not M.BY_SHAPE[x:lower()] then
        metrics.get(x)
      end
    end)
  end
  check_each(spec.loss_weights, function(x)
    if x ~= nil and type(x) ~= "number" then
      errors.raise("TypeError", "compile: loss_weights must be numbers, got "
        .. text.describe(x))
    end
  end)
end

--- Loss objects (or nil) and weights for each output.
function M.losses(spec, names)
  local list = spread("compile: loss", spec.loss, names, never)
  local weights = spread("compile: loss_weights", spec.loss_weights, names,
    never)
  local out = {}
  for i = 1, #names do
    out[i] = wrapped.object(list[i])
  end
  return out, weights
end

-- Metrics --------------------------------------------------------------------

--- Names that stand for one of three classes, by the shapes of labels and
--- predictions.
M.BY_SHAPE = {
  accuracy = { "BinaryAccuracy", "CategoricalAccuracy",
    "SparseCategoricalAccuracy" },
  crossentropy = { "BinaryCrossentropy", "CategoricalCrossentropy",
    "SparseCategoricalCrossentropy" },
}
M.BY_SHAPE.acc = M.BY_SHAPE.accuracy
M.BY_SHAPE.ce = M.BY_SHAPE.crossentropy

local function last_dim(t)
  local rank = raw.tensor_rank(t)
  return rank > 0 and raw.tensor_dim(t, rank - 1) or 1
end

local function by_shape(what, kinds, y_true, y_pred)
  y_true = convert.tensor(y_true, nil, what, "y_true")
  y_pred = convert.tensor(y_pred, nil, what, "y_pred")
  local p = last_dim(y_pred)
  if p == 1 then
    return kinds[1]
  end
  local rank_t, rank_p = raw.tensor_rank(y_true), raw.tensor_rank(y_pred)
  if rank_t < rank_p or last_dim(y_true) == 1 then
    return kinds[3]
  end
  return kinds[2]
end

local function function_name(fn)
  if functions.names[fn] ~= nil then
    return functions.names[fn]
  end
  for name, known in pairs(metrics) do
    if known == fn and type(name) == "string" then
      return name
    end
  end
  return "metric"
end

-- A metric object for an entry of compile's list.
local function object(entry, y_true, y_pred, loss)
  if base.is_metric(entry) then
    return entry
  end
  local name = type(entry) == "string" and entry or nil
  local kinds = name and M.BY_SHAPE[name:lower()]
  if kinds ~= nil then
    local class = by_shape(name, kinds, y_true, y_pred)
    local config = loss and rawget(loss, "config") or {}
    local options = { name = name }
    -- Cross-entropies see the logits that the loss sees.
    if class:find "Crossentropy$" and config.from_logits ~= nil then
      options.from_logits = config.from_logits
    end
    return metrics[class](options)
  end
  local found = metrics.get(entry)
  if base.is_metric(found) then
    if name ~= nil then
      rawset(found, "_name", name) -- results have the name that was given
    end
    return found
  end
  return metrics.MeanMetricWrapper { fn = found,
    name = name or function_name(found) }
end

-- A list in metrics is one output's: no entry of it is a list or nil.
local function flat_list(list, n)
  for i = 1, n do
    if list[i] == nil or is_plain(list[i]) and not is_serialized(list[i]) then
      return false
    end
  end
  return true
end

--- Metric objects for each output: out[i] is a list.
function M.metrics(what, spec, names, y_true, y_pred, loss_objects)
  local list = spread(what, spec, names, flat_list)
  local out = {}
  for i = 1, #names do
    local entries = list[i]
    if entries == nil then
      entries = {}
    elseif not is_plain(entries) or is_serialized(entries) then
      entries = { entries }
    end
    out[i] = {}
    for k = 1, #entries do
      if y_true[i] ~= nil then
        out[i][#out[i] + 1] = object(entries[k], y_true[i], y_pred[i],
          loss_objects[i])
      end
    end
  end
  return out
end

--- Metrics that are objects already, wherever they are in the spec.
function M.given(spec, out)
  check_each(spec, function(x)
    if base.is_metric(x) then
      out[#out + 1] = x
    end
  end)
end

return M
