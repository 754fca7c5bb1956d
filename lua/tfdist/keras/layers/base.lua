--- Layer: weights, building on the first call, losses, masks, names.
---
---   local Scale = tf.keras.layers.Layer:extend "Scale"
---   function Scale:build(input_shape)
---     self.factor = self:add_weight { name = "factor",
---       shape = { input_shape[#input_shape] }, initializer = "ones" }
---   end
---   function Scale:call(x, training)    -- or (x, options)
---     return x * self.factor
---   end
---   local y = Scale()(x)
---
--- call gets its parameters named training and mask as values; any other one
--- behind x is the table of what the call gave, options.training, options.mask.
--- More tensors by position, layer(x, y), are found in options under the names
--- that the class lists, Scale.call_arguments = { "y" }, or are values where the
--- parameters have these names.
--- init(self, ...) gets the constructor's arguments; Layer.init(self, { name =
--- ..., dtype = ..., trainable = ... }) may be called in it. A layer is a
--- tf.Module. Its private state hangs in the field _own; weights and layers are
--- tracked in all other fields, in the order in which they were first assigned.
local backend = require "tfdist.keras.backend"
local constraints = require "tfdist.keras.constraints"
local contexts = require "tfdist.distribute.contexts"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local fields = require "tfdist.base.fields"
local initializers = require "tfdist.keras.initializers"
local kinds = require "tfdist.base.kinds"
local module = require "tfdist.core.module"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local policies = require "tfdist.keras.policies"
local raw = require "tfdist.core.raw"
local regularizers = require "tfdist.keras.regularizers"
local state = require "tfdist.core.state"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local variable = require "tfdist.core.variable"

require "tfdist.distribute" -- puts the default context in place

local M = {}

local getmetatable, rawget, rawset, setmetatable, type =
  getmetatable, rawget, rawset, setmetatable, type

-- False until the first layer has something to add to a loss: the steps of
-- models without do not look through their layers.
local penalties_used = false

-- A metatable makes the state a leaf to whoever walks the fields.
local Own = { __name = "layer state" }

local Layer = module.Module:subclass "Layer"
M.Layer = Layer

--- True for objects of Layer and its descendants.
local function is_layer(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  return type(meta) == "table" and meta.is_keras_layer == true
end

M.is_layer = is_layer
kinds.add("layer", "a layer", is_layer)

--- name -> function(self), looked up after methods. A subclass that defines
--- more gives its table this one as __index.
Layer.getters = {}
--- name -> function(self, value)
Layer.setters = {}
Layer.supports_masking = false
--- False for layers that take their inputs as they are.
Layer.autocast = true

local getters, setters = Layer.getters, Layer.setters

--- Add methods and getters to the class: those that have a file of their own.
function M.extend(methods, more)
  for name, fn in pairs(methods) do
    Layer[name] = fn
  end
  for name, fn in pairs(more or {}) do
    getters[name] = fn
  end
end

-- Builds that do all that a call would do, as those of models.
M.whole_builds = {}

--- What calling a layer is, put in once: call(layer, inputs, given, ...) and
--- build(layer, shapes).
local hooks = {}
M.hooks = hooks

-- Objects --------------------------------------------------------------------

--- A new field. Keeps the order of first assignment; it is that of weights.
function M.put(self, key, value)
  local order = rawget(self, "_own").order
  order[#order + 1] = key
  rawset(self, key, value)
end

local function assign(self, key, value)
  local set = getmetatable(self).class.setters[key]
  if set ~= nil then
    return set(self, value)
  end
  local config = rawget(self, "_own").config
  if config[key] ~= nil and type(value) ~= "table" then
    config[key] = value -- an argument of the constructor
    return
  end
  M.put(self, key, value)
end

function Layer._make_metatable(class)
  local meta = {
    __name = class.__name, is_tf_module = true, is_keras_layer = true,
    class = class, __newindex = assign,
  }
  local note_absent = text.absent_fields(function()
    return text.inherited_names(class, class.getters)
  end)
  function meta.__index(self, key)
    local value = class[key]
    if value ~= nil then
      -- Building is once, whoever asks for it.
      return key == "build" and hooks.build or value
    end
    local get = class.getters[key]
    if get ~= nil then
      return get(self)
    end
    value = rawget(self, "_own").config[key]
    return value == nil and note_absent(key) or value
  end
  function meta.__call(self, ...)
    return hooks.call(self, ...)
  end
  function meta.__tostring(self)
    return class.to_text(self)
  end
  function meta.__names()
    local found = {}
    fields.add(found, class)
    return text.names(found, class.getters)
  end
  return meta
end

--- Where an error came from, as errors say it.
function M.place_of(layer)
  return ("in layer %s (%s)"):format(text.quote(layer.name), layer:describe())
end

--- Compute and keep variables as `policy` says (see policies.lua): own.dtype is
--- what the layer computes in, and own.autocast that where variables have
--- another dtype.
function M.set_policy(self, policy)
  local own = rawget(self, "_own")
  policy = policies.get(policy, getmetatable(self).__name)
  own.policy = policy
  own.dtype, own.variable_dtype = policy.compute_dtype, policy.variable_dtype
  own.autocast = own.dtype ~= own.variable_dtype and own.dtype or nil
end

function Layer._construct(class, meta, ...)
  local own = setmetatable({
    trainable = true, built = false, weights = {}, flags = {}, order = {},
    config = {},
    strategy = contexts.get_strategy(),
  }, Own)
  local self = setmetatable({ _own = own }, meta)
  function own.handler(e)
    if type(e) == "string" then
      e = errors.wrap(e)
    end
    if errors.is_error(e) and not e.deferred then
      e.layer = e.layer or self.name
    end
    return errors.note_running(e, M.place_of(self))
  end
  M.set_policy(self, nil)
  class.init(self, ...)
  -- Names count in the order of construction.
  getters.name(self)
  return self
end

local function set_common(self, name, trainable, dtype, shape)
  local own = rawget(self, "_own")
  if name ~= nil then
    if type(name) ~= "string" or name == "" or name:find "[%c]" then
      errors.raise("TypeError", ("%s: name must be a word, got %s"):format(
        getmetatable(self).__name, text.describe(name)))
    end
    own.name = name
  end
  if dtype ~= nil then
    M.set_policy(self, dtype)
  end
  if trainable ~= nil then
    own.trainable = trainable
  end
  own.batch_input_shape = shape
end

-- batch_input_shape from what the user gives, nil when there is nothing.
local function first_shape(what, given)
  local shape = given.batch_input_shape
  if shape ~= nil then
    return convert.integers(shape, what, "batch_input_shape")
  elseif given.input_shape ~= nil then
    shape = convert.integers(given.input_shape, what, "input_shape")
    table.insert(shape, 1, given.batch_size or -1)
    return shape
  elseif given.input_dim ~= nil then
    return { given.batch_size or -1, given.input_dim }
  end
  return nil
end

M.first_shape = first_shape

--- The arguments that every layer takes.
M.COMMON = "name=nil trainable=true dtype=nil input_shape=nil "
  .. "batch_input_shape=nil batch_size=nil input_dim=nil "
  .. "activity_regularizer=nil dynamic=nil"

-- Values of the common arguments, by name.
function M.apply_common(self, given)
  local what = getmetatable(self).__name
  set_common(self, given.name, given.trainable, given.dtype,
    first_shape(what, given))
  rawget(self, "_own").activity_regularizer =
    regularizers.get(given.activity_regularizer)
end

--- What subclasses without an init of their own do.
Layer.init = options.method("Layer", M.COMMON,
  function(self, name, trainable, dtype, input_shape, batch_input_shape,
      batch_size, input_dim, activity_regularizer)
    M.apply_common(self, {
      name = name, trainable = trainable, dtype = dtype,
      input_shape = input_shape, batch_input_shape = batch_input_shape,
      batch_size = batch_size, input_dim = input_dim,
      activity_regularizer = activity_regularizer,
    })
  end, is_layer, "layer")

--- "Dense, units = 10": the class and the arguments it cannot do without.
function Layer:describe()
  local class = getmetatable(self).class
  local sig = class.signature
  local parts = { class.__name }
  for i = 1, sig and sig.n or 0 do
    local value = sig.required[i] and self._own.config[sig.names[i]]
    if type(value) == "number" then
      value = text.number(value)
    elseif type(value) == "table" and getmetatable(value) == nil then
      value = text.shape(value)
    end
    if type(value) == "string" then
      parts[#parts + 1] = sig.names[i] .. " = " .. value
    end
  end
  return table.concat(parts, ", ")
end

function Layer.to_text(self)
  local n = self:count_params(true)
  return ("%s %s (%s)"):format(getmetatable(self).__name,
    text.quote(self.name), n == nil and "not built"
    or text.number(n) .. " parameters")
end

-- Properties -----------------------------------------------------------------

function getters.name(self)
  local own = rawget(self, "_own")
  if own.name == nil then
    local class = getmetatable(self).class
    own.name = backend.unique_name(class.base_name
      or backend.snake_case(class.__name))
  end
  return own.name
end

function setters.name(self, value)
  set_common(self, value)
end

--- That of the variables; what the layer computes in is compute_dtype.
function getters.dtype(self)
  return rawget(self, "_own").variable_dtype
end

getters.variable_dtype = getters.dtype

function getters.compute_dtype(self)
  return rawget(self, "_own").dtype
end

function getters.dtype_policy(self)
  return rawget(self, "_own").policy
end

--- For calls from now on; variables that there are keep their dtype.
function setters.dtype_policy(self, policy)
  M.set_policy(self, policy)
end

function getters.built(self)
  return rawget(self, "_own").built
end

function setters.built(self, value)
  rawget(self, "_own").built = value
end

function getters.trainable(self)
  return rawget(self, "_own").trainable
end

--- The strategy that was current when the layer was made.
function getters.distribute_strategy(self)
  return rawget(self, "_own").strategy
end

--- Another function for a layer that takes one, by name or as such.
function setters.activation(self, value)
  local sig = getmetatable(self).class.signature
  local own = rawget(self, "_own")
  for i = 1, sig ~= nil and sig.n or 0 do
    if sig.names[i] == "activation" then
      own.activation = support.activation(value)
      own.config.activation = value
      return
    end
  end
  M.put(self, "activation", value)
end

function getters.input_spec(self)
  return rawget(self, "_own").input_spec
end

--- What inputs must look like: { ndim = , min_ndim = , max_ndim = , axes = {
--- [axis] = size }, dtype = }. Source: tf.keras.layers.InputSpec
function setters.input_spec(self, spec)
  local own = rawget(self, "_own")
  own.input_spec, own.checks = spec, nil
end

-- Walks ----------------------------------------------------------------------

local is_variable, is_module = module.is_variable, module.is_module

-- Metrics are not part of a model's weights.
local function is_metric(x)
  return x.is_tf_metric == true
end

-- Call visit(x) for each variable and each module among the layer's own weights
-- and fields, once each, in order.
local function each_child(self, visit)
  local own = rawget(self, "_own")
  local seen = { [self] = true }
  local function leaf(x)
    if type(x) == "userdata" then
      if not seen[x] and is_variable(x) then
        seen[x] = true
        visit(x)
      end
    elseif type(x) ~= "table" or seen[x] then
      return
    elseif getmetatable(x) ~= nil then
      seen[x] = true
      if (is_module(x) and not is_metric(x)) or is_variable(x) then
        visit(x)
      end
    else
      seen[x] = true
      local n, keys = nest.layout(x)
      for i = 1, n do
        leaf(x[i])
      end
      for i = 1, keys and #keys or 0 do
        leaf(x[keys[i]])
      end
    end
  end
  for _, v in ipairs(own.weights) do
    leaf(v)
  end
  for _, key in ipairs(own.order) do
    leaf(rawget(self, key))
  end
end

M.each_child = each_child

-- Call visit(variable, trainable) for the variables of the layer and of what
-- is inside it, trainable ones of a layer before its others.
local function each_variable(self, trainable, seen, visit)
  if seen[self] then
    return
  end
  seen[self] = true
  if not is_layer(self) then
    for _, v in ipairs(self.variables) do
      visit(v, v.trainable and trainable)
    end
    return
  end
  local own = rawget(self, "_own")
  trainable = trainable and own.trainable
  local weights = own.weights
  -- A leaf's only fields are its weights; classes derived from it may have more.
  if rawget(getmetatable(self).class, "is_leaf") and #own.order == #weights then
    -- Nothing but its weights, each in a field.
    for i = 1, #weights do
      visit(weights[i], trainable and own.flags[i])
    end
    return
  end
  each_child(self, function(x)
    if is_variable(x) then
      visit(x, x.trainable and trainable)
    else
      each_variable(x, trainable, seen, visit)
    end
  end)
end

local function collect(self, want)
  local list, seen = {}, {}
  each_variable(self, true, {}, function(v, trainable)
    if not seen[v] and (want == nil or want == trainable) then
      seen[v] = true
      list[#list + 1] = v
    end
  end)
  return list
end

function getters.trainable_variables(self)
  return collect(self, true)
end

function getters.non_trainable_variables(self)
  return collect(self, false)
end

--- Trainable ones first.
function getters.variables(self)
  local list = collect(self, true)
  for _, v in ipairs(collect(self, false)) do
    list[#list + 1] = v
  end
  return list
end

getters.trainable_weights = getters.trainable_variables
getters.non_trainable_weights = getters.non_trainable_variables
getters.weights = getters.variables

--- A setter for what is made from other fields and cannot be assigned.
---@param name string
---@param hint string
function M.no_setter(name, hint)
  return function(self)
    errors.raise("ValueError", ("%s of %s cannot be assigned"):format(name,
      text.quote(self.name)), hint)
  end
end

for _, name in ipairs { "variables", "weights", "trainable_variables",
  "trainable_weights", "non_trainable_variables", "non_trainable_weights" } do
  setters[name] = M.no_setter(name, "set_weights(values) gives weights values; "
    .. "a list of one's own needs another name")
end

--- Modules directly inside, in the order of assignment.
local function sublayers(self)
  local list = {}
  each_child(self, function(x)
    if is_layer(x) then
      list[#list + 1] = x
    end
  end)
  return list
end

M.sublayers = sublayers

--- Call fn(layer) for this layer and all inside it, each once.
local function each_layer(self, fn, seen)
  seen = seen or {}
  if seen[self] then
    return
  end
  seen[self] = true
  fn(self)
  for _, layer in ipairs(sublayers(self)) do
    each_layer(layer, fn, seen)
  end
end

M.each_layer = each_layer

function getters.submodules(self)
  local list, seen = {}, { [self] = true }
  local function walk(x)
    each_child(x, function(child)
      if is_module(child) and not seen[child] then
        seen[child] = true
        list[#list + 1] = child
        if is_layer(child) then
          walk(child)
        end
      end
    end)
  end
  walk(self)
  return list
end

--- Counts for the layers inside, too.
function setters.trainable(self, value)
  if type(value) ~= "boolean" then
    errors.raise("TypeError", ("layer %s: trainable must be true or false, got "
      .. "%s"):format(text.quote(self.name), text.describe(value)))
  end
  each_layer(self, function(layer)
    rawget(layer, "_own").trainable = value
  end)
end

-- Weights --------------------------------------------------------------------

local function weight_shape(self, name, shape)
  local dims = convert.integers(shape, "add_weight", "shape")
  for i = 1, #dims do
    if dims[i] < 0 then
      support.ask_for_size(("weight %s of layer %s: axis %d of its shape "
        .. "%s is not known"):format(text.quote(name), text.quote(self.name),
        i - 1, text.shape(dims)), "give the size in input_shape or tf.keras."
        .. "Input; only the batch and steps may be open")
    end
  end
  return dims
end

-- What an initializer made, a tensor or numbers: anything else but `dims` would
-- be another layer.
local function initial_of(self, name, dims, dtype, x)
  if type(x) == "number" or text.is_plain(x) and next(x) ~= nil then
    x = convert.tensor(x, dtype, self.name, "the initializer of " .. name)
  end
  local shape = text.shape(support.returned("an initializer", x).shape)
  if shape ~= text.shape(dims) then
    errors.raise("ValueError", ("%s: the initializer of %s returned shape %s, "
      .. "asked for was %s"):format(self.name, name, shape, text.shape(dims)))
  end
  return x
end

-- Each copy of a layer's variable is read in the dtype that the layer computes
-- in.
local function follow_policy(v)
  if raw.kind(v) == "variable" then
    return raw.variable_set_autocast(v, true)
  end
  for i = 0, raw.mirrored_count(v) - 1 do
    raw.variable_set_autocast(raw.mirrored_component(v, i), true)
  end
end

--- Make a variable of the layer. Numbers that are no floats start as zeros,
--- others by Glorot's uniform rule. Ops in the layer's call take it in the
--- layer's compute_dtype unless autocast is false.
--- Errors: ValueError, TypeError.
--- Source: tf.keras.layers.Layer.add_weight
Layer.add_weight = options.method("add_weight", "name=nil shape=nil dtype=nil "
  .. "initializer=nil regularizer=nil trainable=nil constraint=nil "
  .. "use_resource=nil synchronization='AUTO' aggregation='NONE' "
  .. "partitioner=nil autocast=true",
  function(self, name, shape, dtype, initializer, regularizer, trainable,
      constraint, _, synchronization, aggregation, _, autocast)
    local own = rawget(self, "_own")
    name = name or "weight"
    dtype = convert.dtype(dtype or own.variable_dtype, "add_weight")
    local dims = weight_shape(self, name, shape or {})
    if initializer == nil then
      initializer = convert.FLOATING[dtype] and "glorot_uniform" or "zeros"
    end
    initializer = initializers.get(initializer)
    local v = variable.create {
      initial_value = function()
        return initial_of(self, name, dims, dtype, initializer(dims, dtype))
      end,
      name = self.name .. "/" .. name, dtype = dtype, trainable = trainable,
      constraint = constraints.get(constraint),
      synchronization = synchronization, aggregation = aggregation,
    }
    for _, other in ipairs(own.weights) do
      if other == v then
        return v
      end
    end
    if autocast and convert.FLOATING[dtype] then
      follow_policy(v)
    end
    own.weights[#own.weights + 1] = v
    own.flags[#own.weights] = v.trainable
    regularizer = regularizers.get(regularizer)
    if regularizer ~= nil then
      own.regularized = own.regularized or {}
      penalties_used = true
      table.insert(own.regularized, { v, regularizer })
    end
    return v
  end, is_layer, "layer")

--- Number of weights' elements; nil when `quiet` and not built.
--- Errors: ValueError before the layer is built.
--- Source: tf.keras.layers.Layer.count_params
function Layer:count_params(quiet)
  if not self.built then
    if quiet then
      return nil
    end
    errors.raise("ValueError", ("layer %s is not built, so its weights are not "
      .. "known"):format(text.quote(self.name)), "call it with data, or give "
      .. "input_shape")
  end
  return M.count(self.variables)
end

--- Elements of variables in all.
function M.count(variables)
  local n = 0
  for i, v in ipairs(variables) do
    if not is_variable(v) then
      errors.raise("TypeError", ("count_params: weights[%d] must be a "
        .. "variable, got %s"):format(i, text.describe(v)))
    end
    local size = 1
    for _, d in ipairs(v.shape) do
      size = size * d
    end
    n = n + size
  end
  return n
end

--- Values of the weights as a list of tensors.
--- Source: tf.keras.layers.Layer.get_weights
function Layer:get_weights()
  local list = {}
  for i, v in ipairs(self.variables) do
    list[i] = v:read_value()
  end
  return list
end

--- Set all weights, in the order of `weights`.
--- Errors: ValueError when number or shapes differ.
--- Source: tf.keras.layers.Layer.set_weights
---@param weights any[]  tensors or nested lists
function Layer:set_weights(weights)
  local list, n = options.list("set_weights", "weights", weights, "tensors")
  local own = self.variables
  if #own ~= n then
    errors.raise("ValueError", ("set_weights: layer %s has %d weights, got %d")
      :format(text.quote(self.name), #own, n))
  end
  local new_values = {}
  for i = 1, n do
    local t = convert.tensor(list[i], own[i].dtype, "set_weights",
      "weights[" .. i .. "]")
    if text.shape(t.shape) ~= text.shape(own[i].shape) then
      errors.raise("ValueError", ("set_weights: weight %s has shape %s, got %s")
        :format(text.quote(own[i].name), text.shape(own[i].shape),
        text.shape(t.shape)))
    end
    new_values[i] = t
  end
  for i = 1, n do
    own[i]:assign(new_values[i])
  end
end

-- Losses ---------------------------------------------------------------------

-- Replicas add their own losses; -1 outside of them.
local function replica_key()
  local context = contexts.get_replica_context()
  return context and context.replica_id_in_sync_group or -1
end

M.replica_key = replica_key

local function scalar(loss)
  if #loss.shape > 0 then
    return tf.reduce_mean(loss)
  end
  return loss
end

--- Add to the loss of the running call a scalar, a list of them, or a function
--- without arguments that is called when the losses are asked for.
--- Source: tf.keras.layers.Layer.add_loss
---@param losses any
function Layer:add_loss(losses)
  local own = rawget(self, "_own")
  penalties_used = true
  if not text.is_plain(losses) then
    losses = { losses }
  end
  for _, loss in ipairs(losses) do
    if text.is_callable(loss) then
      own.loss_functions = own.loss_functions or {}
      table.insert(own.loss_functions, loss)
    else
      loss = convert.tensor(loss, own.dtype, "add_loss", "losses")
      local frame = state.current.layer_call
      local key = replica_key()
      own.added = own.added or {}
      local list = own.added[key]
      if list == nil or list.token ~= (frame and frame.token) then
        list = { token = frame and frame.token }
        own.added[key] = list
      end
      list[#list + 1] = loss
    end
  end
end

--- Let go of what add_loss gave in calls that were traced: it has no values.
function Layer:forget_losses()
  each_layer(self, function(layer)
    rawget(layer, "_own").added = nil
  end)
end

--- Scalars: what the last call's add_loss gave, then regularization.
function getters.losses(self)
  local list = {}
  if not penalties_used then
    return list
  end
  local key = replica_key()
  local own = rawget(self, "_own")
  local token = own.token and own.token[key]
  each_layer(self, function(layer)
    local its = rawget(layer, "_own")
    local added = its.added and its.added[key]
    if added ~= nil and (token == nil or layer == self
      or added.token == token) then
      for i = 1, #added do
        list[#list + 1] = scalar(added[i])
      end
    end
  end)
  each_layer(self, function(layer)
    local its = rawget(layer, "_own")
    for _, entry in ipairs(its.regularized or {}) do
      list[#list + 1] = scalar(support.returned("a regularizer",
        entry[2](entry[1])))
    end
    for _, fn in ipairs(its.loss_functions or {}) do
      list[#list + 1] = scalar(convert.tensor(fn(), its.dtype, "add_loss",
        "losses"))
    end
  end)
  return list
end

--- What calling does; a subclass defines its own.
function Layer.call(_, inputs)
  return inputs
end

--- Make the weights; called before the first call with the shape of the inputs
--- (-1 for sizes that are not known).
function Layer.build()
end

options.methods(Layer, "Layer.", {
  count_params = "quiet=false", get_weights = "", set_weights = "weights",
  add_loss = "losses",
}, is_layer, "layer")

return M
