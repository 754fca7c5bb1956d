--- tf.keras.Model and Sequential.
---
---   local m = tf.keras.Sequential { layers.Dense(8, { input_shape = { 4 } }) }
---   local x = tf.keras.Input { 4 }
---   local m = tf.keras.Model(x, layers.Dense(8)(x))
---   local My = tf.keras.Model:extend "My"
---   function My:init(units, options)            -- My(8, { name = "mine" })
---     tf.keras.Model.init(self, options)
---     self.dense = layers.Dense(units)
---   end
---   function My:call(x) return self.dense(x) end
---
--- Training (compile, fit, evaluate, predict, ...) is installed by module
--- keras.training.
--- Source: tf.keras.Model, tf.keras.Sequential
local base = require "tfdist.keras.layers.base"
local call = require "tfdist.keras.layers.call"
local classes = require "tfdist.base.classes"
local configuration = require "tfdist.keras.layers.configuration"
local convert = require "tfdist.core.convert"
local core = require "tfdist.keras.layers.core"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local keras_tensor = require "tfdist.keras.layers.keras_tensor"
local kinds = require "tfdist.base.kinds"
local layers = require "tfdist.keras.layers"
local loading = require "tfdist.base.loading"
local module = require "tfdist.core.module"
local network = require "tfdist.keras.models.network"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local summary = require "tfdist.keras.models.summary"
local symbolic = require "tfdist.keras.layers.symbolic"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local getmetatable, rawget = getmetatable, rawget

local Model = base.Layer:extend "Model"
classes.guard(Model, base.is_layer, "model")
Model.getters = setmetatable({}, { __index = base.Layer.getters })
Model.is_keras_model = true
Model.autocast = "lists"
Model.stop_training = false
Model.setters = setmetatable({}, { __index = base.Layer.setters })
local getters, setters = Model.getters, Model.setters

local function is_model(x)
  return base.is_layer(x) and x.is_keras_model == true
end

M.is_model = is_model

-- Functional -----------------------------------------------------------------

local function set_network(self, inputs, outputs)
  local own = rawget(self, "_own")
  own.network = network.new(inputs, outputs)
  own.built = true
  self._layers = own.network.layers
  own.output_shape = call.shape_of(own.network.outputs)
end

--- Model(inputs, outputs) is the graph between KerasTensors; subclasses may
--- call Model.init(self, { name = ... }).
Model.init = options.method("Model", "inputs:table=nil outputs:table=nil "
  .. "name=nil trainable=true dtype=nil dynamic=nil",
  function(self, inputs, outputs, name, trainable, dtype)
    base.apply_common(self, { name = name, trainable = trainable,
      dtype = dtype })
    if (inputs == nil) ~= (outputs == nil) then
      errors.raise("ValueError", "Model: inputs and outputs belong together; "
        .. (inputs == nil and "inputs" or "outputs") .. " is missing")
    elseif inputs ~= nil then
      set_network(self, inputs, outputs)
    end
  end, base.is_layer, "model")

--- A model of a graph runs it; other classes define their own call(self, x,
--- training, mask), with as many of these parameters as it needs. A parameter
--- behind x of another name, as in call(self, x, options), is the table of what
--- the call gave: options.training, options.mask.
function Model.call(self, inputs, opts)
  local own = rawget(self, "_own")
  if own.network == nil then
    errors.raise("NotImplementedError", ("%s: the class defines no call")
      :format(getmetatable(self).__name),
      "function MyModel:call(x, training) ... end")
  end
  return network.run(own.network, inputs, self.name, opts.mask)
end

function Model.build_in_call(self, shapes)
  local build = getmetatable(self).class.build
  if build ~= Model.build then
    build(self, shapes)
  end
end

--- Make the weights for inputs of this shape (-1 for the batch) by calling the
--- model with zeros. Source: tf.keras.Model.build
function Model.build(self, input_shape)
  local own = rawget(self, "_own")
  if own.network ~= nil then
    return
  end
  -- A subclass's build that ends here is not asked again by the call.
  own.built = own.built or own.building ~= nil
  local function zeros(shape)
    local dims = {}
    if not symbolic.is_shape(shape) then
      for key, value in pairs(shape) do
        dims[key] = zeros(value)
      end
      return dims
    end
    for i = 1, #shape do
      dims[i] = math.max(shape[i], 1)
    end
    return tf.zeros(dims, own.dtype)
  end
  call.probe(false, function()
    self(zeros(input_shape))
  end)
  own.build_shape = input_shape
end

base.whole_builds[Model.build] = true

function Model.compute_output_shape(self, input_shape)
  local own = rawget(self, "_own")
  if own.network == nil then
    return base.Layer.compute_output_shape(self, input_shape)
  end
  return call.shape_of(network.output_shapes(own.network, input_shape,
    self.name))
end

--- Zeros as the states of all stateful layers.
--- Source: tf.keras.Model.reset_states
function Model:reset_states()
  base.each_layer(self, function(layer)
    if not layer.is_keras_model and layer.reset_states ~= nil
      and rawget(layer, "_own").config.stateful then
      layer:reset_states()
    end
  end)
end

-- Properties -----------------------------------------------------------------

--- The model's own variables, then those of one layer after the other: a
--- BatchNormalization's statistics come before the next layer's weights.
--- Source: tf.keras.Model.weights
function getters.variables(self)
  local list, seen = {}, {}
  local function add(v)
    if not seen[v] then
      seen[v] = true
      list[#list + 1] = v
    end
  end
  local inner = {}
  base.each_child(self, function(x)
    if module.is_variable(x) then
      add(x)
    else
      inner[#inner + 1] = x
    end
  end)
  for _, x in ipairs(inner) do
    for _, v in ipairs(x.variables) do
      add(v)
    end
  end
  return list
end

getters.weights = getters.variables

--- The layers: of a graph those farthest from the outputs first, of other
--- models in the order of assignment.
function getters.layers(self)
  local own = rawget(self, "_own")
  if own.network == nil then
    return base.sublayers(self)
  end
  local list = {}
  for i, layer in ipairs(own.network.layers) do
    list[i] = layer
  end
  return list
end

local fixed_layers = base.no_setter("layers", "model:add and model:pop change "
  .. "a Sequential model; others are made anew")

--- Models that hold their layers in fields may call one of these so.
function setters.layers(self, value)
  if rawget(self, "_layers") ~= nil then
    fixed_layers(self)
  end
  base.put(self, "layers", value)
end

for _, name in ipairs { "inputs", "outputs", "input_names", "output_names" } do
  getters[name] = function(self)
    local its = self._own.network
    return its and its[name]
  end
end

-- Those of a model that is no graph are those of its call, nil before that.
for _, name in ipairs { "input", "output" } do
  getters[name] = function(self)
    local its = self[name .. "s"]
    if its == nil and rawget(self, "_own").nodes ~= nil then
      return base.Layer.getters[name](self)
    end
    return its
  end
end

function getters.output_shape(self)
  return self._own.output_shape or nil
end

function getters.input_shape(self)
  local its = self._own.network
  return its and call.shape_of(its.inputs) or self._own.build_shape
end

--- A layer by its name or its position, from 0.
--- Errors: ValueError when there is none.
--- Source: tf.keras.Model.get_layer
Model.get_layer = options.method("model:get_layer", "name=nil index=nil",
  function(self, name, index)
    local list = self.layers
    if type(name) == "number" then
      name, index = nil, name
    end
    if index ~= nil then
      options.integer("get_layer", "index", index)
      local layer = list[index < 0 and #list + 1 + index or index + 1]
      if layer == nil then
        errors.raise("ValueError", ("get_layer: index %d; the model has %d "
          .. "layers, counted from 0"):format(index, #list))
      end
      return layer
    end
    local names = {}
    for i, layer in ipairs(list) do
      if layer.name == name then
        return layer
      end
      names[i] = layer.name
    end
    errors.raise("ValueError", "get_layer: the model has no layer "
      .. text.name(name), type(name) == "string"
      and text.suggestion(name, names, "layer") or nil)
  end, is_model, "model")

--- Print the layers, the shapes of their outputs and their parameters, line by
--- line through print_fn. Of what is not built yet there is no more to show.
--- Source: tf.keras.Model.summary
Model.summary = options.method("model:summary", "line_length=nil "
  .. "positions=nil print_fn:callable=nil expand_nested=false show_trainable=false",
  function(self, _, _, print_fn, expand_nested, show_trainable)
    for _, line in ipairs(summary.lines(self, {
      expand_nested = expand_nested, show_trainable = show_trainable,
    })) do
      (print_fn or print)(line)
    end
  end, is_model, "model")

-- Configuration --------------------------------------------------------------

--- Source: tf.keras.Model.get_config
--- Errors: NotImplementedError for a subclass that defines none.
function Model:get_config()
  local own = rawget(self, "_own")
  if own.network == nil then
    errors.raise("NotImplementedError", ("%s defines no get_config"):format(
      getmetatable(self).__name), "layers made by code have no configuration; "
      .. "save the weights instead")
  end
  local config = network.config(own.network)
  config.name, config.trainable = self.name, own.trainable
  return config
end

--- A model from get_config's table, with new weights.
--- Source: tf.keras.Model.from_config
---@param config table
---@param custom_objects? table  name -> class
function Model:from_config(config, custom_objects)
  local class = configuration.class_of(self, "Model", config)
  if config.nodes == nil then
    return class(config)
  end
  local inputs, outputs = network.from_config(config, function(entry)
    return layers.deserialize(entry, custom_objects)
  end)
  return class(inputs, outputs, { name = config.name,
    trainable = config.trainable })
end

-- Sequential -----------------------------------------------------------------

local Sequential = Model:extend "Sequential"
classes.guard(Sequential, base.is_layer, "model")
Sequential.getters = setmetatable({}, { __index = Model.getters })
Sequential.base_name = "model"

local SEQUENTIAL = "layers=nil name=nil trainable=true dtype=nil"

--- Layers one after the other. With the shape of the input known (input_shape
--- of the first layer, a tf.keras.Input, build) the weights are made at once.
Sequential.init = options.method("Sequential", SEQUENTIAL,
  function(self, list, name, trainable, dtype)
    base.apply_common(self, { name = name, trainable = trainable,
      dtype = dtype })
    local own = rawget(self, "_own")
    self._layers = {}
    own.steps = {}
    if list ~= nil then
      if base.is_layer(list) or keras_tensor.is_symbolic(list) then
        list = { list }
      end
      local _, n = options.list("Sequential", "layers", list, "layers")
      for i = 1, n do
        self:add(list[i])
      end
    end
  end, base.is_layer, "model")

-- The output so far, as a KerasTensor; nil while the input is not known.
local function top(own, n)
  return own.steps[n] or (n == 0 and own.input or nil)
end

local function set_input(self, x)
  local own = rawget(self, "_own")
  own.input = x
  own.build_shape = call.shape_of(x)
end

local function single(layer, ...)
  local x = ...
  if select("#", ...) ~= 1 or not keras_tensor.is_symbolic(x) then
    errors.raise("ValueError", ("Sequential: layer %s has several outputs; "
      .. "a Sequential model passes on one"):format(text.quote(layer.name)),
      "use tf.keras.Model(inputs, outputs)")
  end
  return x
end

-- Call the layers that have not been called with KerasTensors yet.
local function advance(self)
  local own = rawget(self, "_own")
  local list = rawget(self, "_layers")
  if own.input == nil then
    return
  end
  for i = #own.steps + 1, #list do
    own.steps[i] = single(list[i], list[i](top(own, i - 1)))
  end
  own.built = #list > 0
  own.output_shape = call.shape_of(top(own, #list))
  own.network = nil
end

-- Forget the call of layer number i.
local function disconnect(self, layer, i)
  local x = rawget(self, "_own").steps[i]
  local nodes = x ~= nil and rawget(layer, "_own").nodes or {}
  for k = #nodes, 1, -1 do
    if nodes[k] == x.node then
      table.remove(nodes, k)
    end
  end
  rawget(self, "_own").steps[i] = nil
end

-- Forget an input whose open axis the layers cannot do without: they are built
-- by the first call, from the shapes of its data.
local function defer(self)
  local own = rawget(self, "_own")
  own.input = nil
  own.build_shape, own.output_shape, own.network = nil, nil, nil
  for i, layer in ipairs(rawget(self, "_layers")) do
    disconnect(self, layer, i)
    local its = rawget(layer, "_own")
    its.output_shape = nil
    if #its.weights == 0 then
      its.built = false
    end
  end
end

-- Is a layer somewhere in another one?
local function holds(layer, wanted)
  for _, inner in ipairs(layer.submodules) do
    if inner == wanted then
      return true
    end
  end
  return false
end

--- Put a layer on top.
--- Errors: TypeError, ValueError.
--- Source: tf.keras.Sequential.add
---@param layer table
function Sequential:add(layer)
  local own = rawget(self, "_own")
  local list = rawget(self, "_layers")
  if keras_tensor.is_symbolic(layer) then
    layer = layer.node.layer
  end
  text.refuse_class("Sequential", ("entry %d"):format(#list + 1), layer)
  if not base.is_layer(layer) then
    errors.raise("TypeError", ("Sequential: entry %d must be a layer, got %s")
      :format(#list + 1, text.describe(layer)),
      "layers.Lambda(function(x) ... end) makes a layer of a function")
  end
  local its = rawget(layer, "_own")
  if its.output ~= nil then
    if #list > 0 or own.input ~= nil then
      errors.raise("ValueError", "Sequential: an Input comes first")
    end
    return set_input(self, its.output)
  end
  if layer == self or holds(layer, self) then
    errors.raise("ValueError", ("Sequential: %s cannot be in itself"):format(
      text.quote(self.name)))
  end
  local checked = { layer }
  for i, other in ipairs(list) do
    checked[i + 1] = other
    if other == layer then
      errors.raise("ValueError", ("Sequential: layer %s is in it already")
        :format(text.quote(layer.name)), "make another layer, or use "
        .. "tf.keras.Model for layers that are used twice")
    end
  end
  network.check_names(checked, "Sequential")
  if #list == 0 and own.input == nil then
    local shape = its.batch_input_shape or (its.network ~= nil
      and its.network.flat_in.n == 1 and its.network.flat_in[1].shape)
      or (layer.is_keras_model and its.input and its.input.shape)
    if shape then
      own.open_length = its.open_length
      set_input(self, core.InputLayer {
        batch_input_shape = shape, name = layer.name .. "_input",
        dtype = layer.input_dtype or its.dtype,
      }._own.output)
    end
  end
  list[#list + 1] = layer
  own.built = false
  local ok, e = pcall(advance, self)
  if not ok and own.open_length and errors.is_error(e)
    and e.asks_for_size then
    defer(self)
  elseif not ok then
    list[#list] = nil
    error(e, 0)
  end
end

--- Take the last layer off.
--- Errors: TypeError when there is none.
--- Source: tf.keras.Sequential.pop
function Sequential:pop()
  local own = rawget(self, "_own")
  local list = rawget(self, "_layers")
  if #list == 0 then
    errors.raise("TypeError", "Sequential: there are no layers to take off")
  end
  local layer = table.remove(list)
  disconnect(self, layer, #list + 1)
  own.network, own.output_shape = nil, nil
  advance(self)
  return layer
end

function Sequential:call(x, opts)
  local list = rawget(self, "_layers")
  local mask, input = opts.mask, rawget(self, "_own").input
  if input ~= nil and type(x) == "userdata" then
    x = network.in_rank(x, input.shape)
  end
  for i = 1, #list do
    if i == 1 and mask ~= nil then
      x = list[i](x, { mask = mask })
    else
      x = list[i](x)
    end
  end
  return x
end

function Sequential.build_in_call()
end

-- Make the weights for a KerasTensor, as far as its shape allows.
function Sequential:build_for(x)
  local own = rawget(self, "_own")
  if own.input == nil and keras_tensor.is_symbolic(x)
    and #rawget(self, "_layers") > 0 then
    set_input(self, core.InputLayer {
      batch_input_shape = call.shape_of(x), dtype = x.dtype,
    }._own.output)
    local ok = errors.attempt(advance, self)
    if not ok then
      defer(self) -- what the call says of it stands
    end
  end
end

--- Make the weights for inputs of this shape, batch first.
--- Source: tf.keras.Sequential.build
function Sequential:build(input_shape)
  local own = rawget(self, "_own")
  if own.input ~= nil then
    return
  end
  local first = rawget(self, "_layers")[1]
  set_input(self, core.InputLayer {
    batch_input_shape = convert.integers(input_shape, "Sequential.build",
      "input_shape"), dtype = first and first.input_dtype or own.dtype,
  }._own.output)
  advance(self)
end

base.whole_builds[Sequential.build] = true

function Sequential:compute_output_shape(shape)
  for _, layer in ipairs(rawget(self, "_layers")) do
    shape = layer:compute_output_shape(shape)
  end
  return shape
end

function Sequential.getters.layers(self)
  local list = {}
  for i, layer in ipairs(rawget(self, "_layers")) do
    list[i] = layer
  end
  return list
end

function Sequential.getters.built(self)
  local own = rawget(self, "_own")
  local list = rawget(self, "_layers") or {}
  for _, layer in ipairs(list) do
    if not layer.built then
      return false
    end
  end
  return own.built or #list > 0
end

local function graph(self)
  local own = rawget(self, "_own")
  local n = #rawget(self, "_layers")
  if own.network == nil and own.input ~= nil and n > 0 then
    own.network = network.new(own.input, top(own, n))
  end
  return own.network
end

for _, name in ipairs { "inputs", "outputs", "input_names", "output_names" } do
  Sequential.getters[name] = function(self)
    local its = graph(self)
    return its and its[name]
  end
end

--- Layers as { class_name, config }, and the input's shape if it is known.
function Sequential:get_config()
  local own = rawget(self, "_own")
  local list = {}
  for i, layer in ipairs(rawget(self, "_layers")) do
    list[i] = layers.serialize(layer)
  end
  return {
    name = self.name, trainable = own.trainable, layers = list,
    batch_input_shape = own.input and call.shape_of(own.input) or nil,
    input_dtype = own.input and own.input.dtype or nil,
  }
end

function Sequential:from_config(config, custom_objects)
  local class = configuration.class_of(self, "Sequential", config)
  local list = {}
  if config.batch_input_shape ~= nil then
    list[1] = core.InputLayer {
      batch_input_shape = config.batch_input_shape, dtype = config.input_dtype,
    }
  end
  kinds.check("Sequential.from_config", "layers", "list", config.layers)
  for _, entry in ipairs(config.layers) do
    list[#list + 1] = layers.deserialize(entry, custom_objects)
  end
  return class(list, { name = config.name, trainable = config.trainable })
end

-- Names ----------------------------------------------------------------------

define.classes.Model = Model
define.classes.Functional = Model
define.classes.Sequential = Sequential

M.Model = Model
M.Sequential = Sequential
M.Input = layers.Input

-- name -> class of the layers in a model whose classes are the user's.
local function own_classes(model)
  local found = {}
  for _, layer in ipairs(model.submodules) do
    local class = base.is_layer(layer) and getmetatable(layer).class
    if class and define.classes[class.__name] ~= class then
      found[class.__name] = class
    end
  end
  return found
end

--- A model with the same layers and new weights.
--- Source: tf.keras.models.clone_model
function M.clone_model(model)
  if not is_model(model) then
    errors.raise("TypeError", "clone_model: expected a model, got "
      .. text.describe(model))
  end
  local class, own = getmetatable(model).class, own_classes(model)
  return define.with_custom(own, class.from_config, class, model:get_config(),
    own)
end

M.clone_model = options.wrap("clone_model", "model", M.clone_model)
options.methods(Model, "model:", { reset_states = "", get_config = "" },
  is_model, "model")
options.methods(Sequential, "model:", {
  add = "layer", pop = "", get_config = "",
}, is_model, "model")
for _, class in ipairs { Model, Sequential } do
  options.methods(class, class.__name .. ".", {
    from_config = "config:nest=nil custom_objects:table=nil",
  })
end

loading.load "tfdist.keras.training".install(Model)

local checkpoint = loading.load "tfdist.train.checkpoint"
options.hint_missing("model:load_weights", "filepath", "tf.train."
  .. "latest_checkpoint(folder) is nil when the folder's file `checkpoint` "
  .. "names none")

-- tf.train.latest_checkpoint finds it, but for names of Keras's HDF5 files.
local function note_latest(path)
  if not path:find "%.h5$" and not path:find "%.keras$" then
    local folder, name = path:match "^(.*)/([^/]*)$"
    loading.load("tfdist.train").update_checkpoint_state(folder or ".",
      name or path)
  end
end

--- Write all variables to the file filepath.safetensors; returns the path.
--- Every worker calls it; the chief's file is kept. The folder's file
--- `checkpoint` names it for tf.train.latest_checkpoint, unless filepath ends
--- in .h5 or .keras.
--- Source: tf.keras.Model.save_weights
Model.save_weights = options.method("model:save_weights", "filepath "
  .. "overwrite=true save_format=nil options:table=nil",
  function(self, filepath)
    local path = checkpoint.save_weights(self, filepath)
    note_latest(filepath)
    return path
  end, is_model, "model")

--- Read what save_weights wrote: layers with weights match in their order.
--- Layers that are not built yet get their values when they are; variables
--- without a value in the file are told in a warning.
--- Errors: NotFound without a file, DataLoss, InvalidArgument when shapes
---   differ, NotImplementedError for by_name.
--- Source: tf.keras.Model.load_weights
Model.load_weights = options.method("model:load_weights", "filepath "
  .. "skip_mismatch=false by_name=false options:table=nil",
  function(self, filepath, skip_mismatch, by_name)
    if by_name or skip_mismatch then
      errors.raise("NotImplementedError", "load_weights: by_name and "
        .. "skip_mismatch are not implemented")
    end
    return checkpoint.load_weights(self, filepath)
  end, is_model, "model")

-- Methods of Keras that are not there.
for name, hint in pairs {
  save = "model:save_weights(path) keeps the weights",
  to_json = "model:get_config() tells what the model is",
  export = "model:save_weights(path) keeps the weights",
} do
  Model[name] = function()
    errors.raise("NotImplementedError", ("model:%s is not implemented"):format(
      name), hint)
  end
end

return M
