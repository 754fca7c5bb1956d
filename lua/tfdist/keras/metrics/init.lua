--- tf.keras.metrics: sums over batches and replicas.
---
---   local accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
---   accuracy:update_state(labels, logits)      -- in or outside strategy:run
---   print(accuracy:result():item())
---   accuracy:reset_state()
---
--- Make metrics in strategy:scope() so that every replica has its own sums.
local backend = require "tfdist.keras.backend"
local base = require "tfdist.keras.metrics.base"
local confusion = require "tfdist.keras.metrics.confusion"
local functions = require "tfdist.keras.losses.functions"
local iou = require "tfdist.keras.metrics.iou"
local means = require "tfdist.keras.metrics.means"
local objects = require "tfdist.keras.objects"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

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

-- Classes are known by their names in small letters, too; as in Keras they come
-- before functions of the same name: the metric cosine_similarity is 1 for one
-- direction, the loss -1.
local known = {}
for name, class in pairs(classes) do
  known[name], known[backend.snake_case(name)] = class, class
end

objects.publish(M, {
  noun = "metric", plural = "metrics", classes = known, functions = named,
  is_object = base.is_metric,
  names = function()
    return text.names(classes, named, { accuracy = true })
  end,
})

return M
