--- tf.keras.metrics: sums over batches and replicas.
---
---   local accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
---   accuracy:update_state(labels, logits)      -- in or outside strategy:run
---   print(accuracy:result():item())
---   accuracy:reset_state()
---
--- Make metrics in strategy:scope() so that every replica has its own sums.
local base = require "tfdist.keras.metrics.base"
local confusion = require "tfdist.keras.metrics.confusion"
local errors = require "tfdist.errors"
local functions = require "tfdist.keras.losses.functions"
local iou = require "tfdist.keras.metrics.iou"
local means = require "tfdist.keras.metrics.means"
local text = require "tfdist.text"

local M = { Metric = base.Metric, is_metric = base.is_metric }

local type = type

-- Classes by name; the function forms are those of the losses and accuracies.
local classes = { Metric = nil }
for _, family in ipairs { means, confusion, iou } do
  for name, value in pairs(family) do
    if name:find("^%u") and type(value) == "table" and value.is_tf_metric then
      classes[name] = value
      M[name] = value
    end
  end
end

local named = {}
for name, fn in pairs(functions.functions) do
  named[name] = fn
  M[name] = fn
end
for name, fn in pairs(means.functions) do
  named[name] = fn
  M[name] = fn
end
named.accuracy = nil

--- Names that get knows, sorted.
function M.names()
  local list = {}
  for name in pairs(classes) do
    list[#list + 1] = name
  end
  for name in pairs(named) do
    list[#list + 1] = name
  end
  table.sort(list)
  return list
end

--- A metric object of a class name, the function of a function name, or the
--- metric or function itself.
--- Errors: ValueError naming the nearest metric.
--- Source: tf.keras.metrics.get
function M.get(identifier)
  if identifier == nil or type(identifier) == "function"
    or base.is_metric(identifier) then
    return identifier
  elseif type(identifier) == "string" then
    if classes[identifier] ~= nil then
      return classes[identifier]()
    elseif named[identifier] ~= nil then
      return named[identifier]
    end
    local names = M.names()
    names[#names + 1] = "accuracy"
    errors.raise("ValueError", "metrics.get: unknown metric "
      .. text.quote(identifier), text.suggestion(identifier, names, "metric"))
  elseif type(identifier) == "table" then
    local meta = getmetatable(identifier)
    if type(meta) == "table" and meta.__call then
      return identifier
    elseif identifier.class_name ~= nil then
      return M.deserialize(identifier)
    end
  end
  errors.raise("TypeError", "metrics.get: a metric is a name, a function or "
    .. "an object of tf.keras.metrics, got " .. text.describe(identifier))
end

--- { class_name = ..., config = ... } of a metric.
function M.serialize(metric)
  if not base.is_metric(metric) then
    errors.raise("TypeError", "metrics.serialize: a metric expected, got "
      .. text.describe(metric))
  end
  return { class_name = metric.__name, config = metric:get_config() }
end

--- A metric from what serialize gives, with fresh state.
--- Errors: ValueError for an unknown class.
function M.deserialize(config)
  local class = classes[config.class_name]
  if class == nil then
    errors.raise("ValueError", "metrics.deserialize: unknown class "
      .. text.quote(tostring(config.class_name)))
  end
  return class(config.config or {})
end

return M
