--- What layers know of themselves: their metrics, and the KerasTensors that go
--- in and come out of their calls. Adds to the class Layer.
local base = require "tfdist.keras.layers.base"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"

local methods, getters = {}, {}
local getmetatable, ipairs, rawget, type =
  getmetatable, ipairs, rawget, type

-- Metrics --------------------------------------------------------------------

--- Record a value under a name as the mean over all calls since the last
--- reset. Source: tf.keras.layers.Layer.add_metric
methods.add_metric = options.method("add_metric", "value name=nil "
  .. "aggregation='mean'", function(self, value, name, aggregation)
    if aggregation ~= "mean" then
      errors.raise("ValueError", 'add_metric: aggregation must be "mean", got '
        .. text.describe(aggregation), "a metric of another kind goes into a "
        .. "field of the layer: self.total = tf.keras.metrics.Sum()")
    end
    local own = rawget(self, "_own")
    own.metrics = own.metrics or {}
    name = name or self.name .. "_metric"
    for _, metric in ipairs(own.metrics) do
      if metric.name == name then
        metric:update_state(value)
        return
      end
    end
    local metric = require "tfdist.keras.metrics".Mean { name = name }
    own.metrics[#own.metrics + 1] = metric
    metric:update_state(value)
  end, base.is_layer, "layer")

-- Call visit(metric) for those in x, a field's value: one, or tables of them.
local function each_metric(x, visit, seen)
  if type(x) ~= "table" or seen[x] then
    return
  end
  seen[x] = true
  local meta = getmetatable(x)
  if meta == nil then
    local n, keys = nest.layout(x)
    for i = 1, n do
      each_metric(x[i], visit, seen)
    end
    for i = 1, keys and #keys or 0 do
      each_metric(x[keys[i]], visit, seen)
    end
  elseif type(meta) == "table" and meta.is_tf_module
    and x.is_tf_metric == true then
    visit(x)
  end
end

--- Metrics in fields, or in tables there, and those of add_metric; those of
--- inner layers too.
--- Source: tf.keras.layers.Layer.metrics
function getters.metrics(self)
  local list, seen = {}, {}
  local function visit(metric)
    list[#list + 1] = metric
  end
  base.each_layer(self, function(layer)
    local own = rawget(layer, "_own")
    for _, key in ipairs(own.order) do
      each_metric(rawget(layer, key), visit, seen)
    end
    each_metric(own.metrics, visit, seen)
  end)
  return list
end

-- Inputs and outputs ---------------------------------------------------------

-- What went into a call and came out of it, in its structure.
local function given(node)
  return node.layer._own.output or node.inputs
end

local function got(node)
  local list = node.results
  if list.n == 1 then
    return list[1]
  end
  local out = {}
  for i = 1, list.n do
    out[i] = list[i]
  end
  return out
end

-- The layer's one call with KerasTensors.
local function only_node(self, what)
  local nodes = rawget(self, "_own").nodes or {}
  if #nodes == 1 then
    return nodes[1]
  elseif #nodes == 0 then
    errors.raise("ValueError", ("layer %s was not called with a KerasTensor "
      .. "yet; it has no %s"):format(text.quote(self.name), what),
      "tf.keras.Input begins a model; a Sequential whose first layer has an "
      .. "input_shape calls its layers")
  end
  errors.raise("ValueError", ("layer %s has multiple inbound nodes: it was "
    .. "called %d times, so that its %s is not one"):format(
    text.quote(self.name), #nodes, what),
    ("layer:get_%s_at(0) is that of the first call"):format(what))
end

--- The KerasTensor (or structure of some) that the layer was called with.
--- Errors: ValueError before its first call, and after several.
--- Source: tf.keras.layers.Layer.input
function getters.input(self)
  return given(only_node(self, "input"))
end

--- The KerasTensor (or structure of some) that the layer's call gave.
--- Errors: ValueError before its first call, and after several.
--- Source: tf.keras.layers.Layer.output
function getters.output(self)
  return got(only_node(self, "output"))
end

local function node_at(self, what, index)
  local nodes = rawget(self, "_own").nodes or {}
  options.integer(what, "node_index", index, 0)
  if nodes[index + 1] == nil then
    errors.raise("ValueError", ("%s: call %d of layer %s; it was called %d "
      .. "times with KerasTensors, counted from 0"):format(what, index,
      text.quote(self.name), #nodes))
  end
  return nodes[index + 1]
end

--- `input` of call number node_index, from 0.
--- Source: tf.keras.layers.Layer.get_input_at
methods.get_input_at = options.method("get_input_at", "node_index",
  function(self, index)
    return given(node_at(self, "get_input_at", index))
  end, base.is_layer, "layer")

--- `output` of call number node_index, from 0.
--- Source: tf.keras.layers.Layer.get_output_at
methods.get_output_at = options.method("get_output_at", "node_index",
  function(self, index)
    return got(node_at(self, "get_output_at", index))
  end, base.is_layer, "layer")

base.extend(methods, getters)
