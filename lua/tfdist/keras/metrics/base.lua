--- The base of metrics: sums kept in variables that each replica adds to.
---
--- State is synchronized on read with aggregation SUM: update_state in a
--- replica function adds to the replica's own copy; result() adds the copies
--- up, so that it does not depend on the number of replicas. In a replica
--- function result() is a sync point.
local backend = require "tfdist.keras.backend"
local classes = require "tfdist.base.classes"
local checkpoints = require "tfdist.train.checkpoint"
local contexts = require "tfdist.distribute.contexts"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local functions = require "tfdist.keras.losses.functions"
local masks = require "tfdist.keras.masks"
local module = require "tfdist.core.module"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"
local values = require "tfdist.distribute.values"
local loss_weights = require "tfdist.keras.losses.weights"

local M = {}

local type, rawget, rawset = type, rawget, rawset

--- Base class. A metric of one's own defines init, update_state and result:
---   local Peak = tf.keras.metrics.Metric:subclass "Peak"
---   function Peak:init(options)
---     tf.keras.metrics.Metric.init(self, options)
---     self.total = self:add_weight { name = "total" }
---   end
---   function Peak:update_state(y_true, y_pred) self.total:assign_add(...) end
---   function Peak:result() return self.total:read_value() end
--- Source: tf.keras.metrics.Metric
local Metric = module.Module:subclass "Metric"

M.Metric = Metric
Metric.is_tf_metric = true

--- True for metric objects.
function M.is_metric(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  return type(meta) == "table" and meta.is_tf_module == true
    and x.is_tf_metric == true
end

-- result in a replica function: once, in cross-replica context.
local function together(fn)
  return function(self, ...)
    local mode = contexts.mode()
    local context = mode and mode.replica
    if context == nil or context.thread == nil then
      return fn(self, ...)
    end
    local args = { n = select("#", ...), ... }
    return context:merge_call(function(_, ...)
      return fn(self, ...)
    end, args)
  end
end

local function guard_class(class)
  local meta = getmetatable(class)
  meta.__newindex = function(t, key, value)
    if key == "result" and type(value) == "function" then
      value = together(value)
    end
    rawset(t, key, value)
  end
  return class
end

local base_subclass = Metric.subclass

--- A class that inherits from this one. Its `result` may be called in replica
--- functions: it then runs once for all of them.
function Metric:subclass(name)
  return guard_class(base_subclass(self, name))
end

guard_class(Metric)

--- Called by subclasses. dtype is tf.keras.backend.floatx() unless given.
Metric.init = options.method("Metric.init", "name=nil dtype=nil",
  function(self, name, dtype)
    if name ~= nil and type(name) ~= "string" then
      errors.raise("TypeError", ("%s: name must be a string, got %s"):format(
        self.__name, text.describe(name)))
    end
    rawset(self, "_name", name or backend.snake_case(self.__name))
    rawset(self, "dtype", convert.dtype(dtype or backend.floatx(),
      self.__name))
    if not convert.FLOATING[self.dtype] then
      errors.raise("ValueError", ("%s: dtype must be a floating-point one, got "
        .. "%s"):format(self.__name, self.dtype))
    end
  end)

local function check_metric(self, what)
  if not M.is_metric(self) then
    options.wrong_self("Metric." .. what, "metric", self)
  end
end

--- The strategy whose scope this metric's variables belong to.
function M.strategy_of(self)
  local weights = rawget(self, "weights_made")
  local first = weights and weights[1]
  return first and values.strategy_of(first) or nil
end

local INITIAL = { zeros = 0, ones = 1 }

--- A variable of state, 0 unless initializer says otherwise ("zeros", "ones",
--- a number or a function of the shape). Also add_variable.
---@return tfdist.Variable
Metric.add_weight = options.method("Metric.add_weight", "name=nil shape=nil "
  .. "initializer='zeros' dtype=nil aggregation='SUM'",
  function(self, name, shape, initializer, dtype, aggregation)
    check_metric(self, "add_weight")
    local initial = INITIAL[initializer] or initializer
    dtype = dtype or rawget(self, "dtype") or backend.floatx()
    shape = shape or {}
    local function make()
      if type(initial) == "number" then
        return tf.fill(shape, tf.constant(initial, dtype))
      end
      return initial(shape, dtype)
    end
    if type(initial) ~= "number" and type(initial) ~= "function" then
      errors.raise("TypeError", ("%s:add_weight: initializer must be "
        .. "\"zeros\", \"ones\", a number or a function, got %s"):format(self.name,
        text.describe(initializer)))
    end
    local own = state.current
    local before = own.name_scope
    own.name_scope = ""
    local v = state.protect(function()
      own.name_scope = before
    end, tf.Variable, make, {
      name = self.name .. "/" .. (name or "weight"), trainable = false,
      synchronization = "ON_READ", aggregation = aggregation,
    })
    local weights = rawget(self, "weights_made")
    if weights == nil then
      weights = {}
      rawset(self, "weights_made", weights)
    end
    weights[#weights + 1] = v
    return v
  end)

Metric.add_variable = Metric.add_weight

function Metric:update_state()
  errors.raise("NotImplementedError", ("%s: a metric class defines "
    .. "update_state(self, ...)"):format(self.__name))
end

rawset(Metric, "result", function(self)
  errors.raise("NotImplementedError", ("%s: a metric class defines "
    .. "result(self)"):format(self.__name))
end)

-- variable -> its zeros, where they are few: a reset comes with each batch that is
-- trained by itself.
local zeros, FEW = setmetatable({}, { __mode = "k" }), 64

local function zeros_of(v)
  local known = zeros[v]
  if known ~= nil then
    return known
  end
  local made = tf.zeros(v.shape, v.dtype)
  if tracing.current() == nil and raw.tensor_size(made) <= FEW then
    zeros[v] = made
  end
  return made
end

--- Back to zero: outside of replica functions every copy, inside this one.
function Metric:reset_state()
  check_metric(self, "reset_state")
  checkpoints.forget(self) -- variables that are made later begin at zero, too
  for _, v in ipairs(rawget(self, "weights_made") or {}) do
    v:assign(zeros_of(v))
  end
end

--- The older name of reset_state.
function Metric:reset_states()
  return self:reset_state()
end

--- Add the state of other metrics of the same class to this one.
--- Errors: ValueError when a metric has another number of variables.
function Metric:merge_state(metrics)
  check_metric(self, "merge_state")
  local _, n = options.list("Metric:merge_state", "metrics", metrics,
    "metrics")
  local own = rawget(self, "weights_made") or {}
  for i = 1, n do
    local other = M.is_metric(metrics[i])
      and (rawget(metrics[i], "weights_made") or {})
    if not other or #other ~= #own then
      errors.raise("ValueError", ("Metric %s is not compatible with %s")
        :format(M.is_metric(metrics[i]) and metrics[i].name
        or text.describe(metrics[i]), self.name))
    end
    for k = 1, #own do
      M.add(own[k], other[k]:read_value())
    end
  end
end

function Metric:get_config()
  local config = { name = self.name, dtype = rawget(self, "dtype") }
  for key, value in pairs(rawget(self, "config") or {}) do
    config[key] = value
  end
  return config
end

--- update_state, then result.
function Metric:__call(...)
  self:update_state(...)
  return self:result()
end

function Metric:__tostring()
  if rawget(self, "weights_made") == nil then
    return ("%s \"%s\" (no state yet)"):format(self.__name, self.name)
  end
  return ("%s \"%s\""):format(self.__name, self.name)
end

-- For the classes of this library --------------------------------------------

-- The copy that an update here writes to: in a replica function and in an
-- update the variable finds it itself; elsewhere copy 0 stands for the sum.
local function writable(v)
  if not values.is_mirrored(v) or raw.mirrored_index(v) >= 0 then
    return v
  end
  local mode = contexts.mode()
  if mode ~= nil and mode.replica ~= nil
    and mode.strategy == values.strategy_of(v) then
    return v
  end
  return values.component(v, 0)
end

--- v += delta where this code runs.
function M.add(v, delta)
  local own = writable(v)
  if type(delta) == "number" and own == v and values.is_mirrored(v)
    and raw.mirrored_kind_of(v) == "aggregating" then
    -- A number that all replicas give would count as one value.
    delta = tf.constant(delta, v.dtype)
  elseif own ~= v and type(delta) == "userdata" then
    delta = raw.tensor_to_device(raw.operand_tensor(delta),
      raw.tensor_device(raw.operand_tensor(own)))
  end
  own:assign_add(delta)
end

--- A tensor in the metric's dtype.
function M.cast(self, x, what)
  local dtype = rawget(self, "dtype")
  local t = convert.tensor(x, type(x) ~= "userdata" and dtype or nil,
    self.name, what or "values")
  return raw.tensor_dtype(t) == dtype and t or tf.cast(t, dtype)
end

-- Axes from `first` to the last one, counted from 0, made one number by `op`
-- ("reduce_mean", "reduce_sum").
local function reduce_from(x, first, op)
  local rank, axes = raw.tensor_rank(x), {}
  for axis = first, rank - 1 do
    axes[#axes + 1] = axis
  end
  return #axes > 0 and tf[op](x, { axis = axes }) or x
end

--- One value per sample, weighted, and the weight of each (nil without
--- weights). Axes that the weights lack are reduced first.
---@param op "reduce_mean"|"reduce_sum"
function M.samplewise(self, x, sample_weight, op)
  local w
  if sample_weight ~= nil then
    w = loss_weights.weight_of(M.cast(self, sample_weight, "sample_weight"),
      masks.of(x), rawget(self, "dtype"), self.name)
  end
  x = M.cast(self, x)
  if w ~= nil then
    if raw.tensor_rank(w) > 0 then
      x, w = functions.same_rank(x, w)
    end
    x = reduce_from(x, raw.tensor_rank(w), op)
    local rank = raw.tensor_rank(w)
    w = loss_weights.weighted(tf.ones_like(x), w, self.name)
    x = x * w
    w = rank > 1 and reduce_from(w, 1, op) or w
  end
  return reduce_from(x, 1, op), w
end

--- Weights spread over values like `ones`, in their shape.
function M.weight_like(self, ones, sample_weight)
  local w = loss_weights.weighted(ones, M.cast(self, sample_weight, "sample_weight"),
    self.name)
  return raw.tensor_rank(w) == raw.tensor_rank(ones) and w
    or tf.reshape(w, ones.shape)
end

--- A class of this library: `init` gets the options of the signature after
--- name and dtype are taken care of.
---@param name string
---@param signature string  options; `name` and `dtype` come last
---@param init? fun(self, ...)
---@param default? string   name of objects
---@param parent? table     default Metric
function M.define(name, signature, init, default, parent)
  local class = (parent or Metric):subclass(name)
  classes.guard(class, M.is_metric, "metric")
  local sig = options.signature(name, signature)
  class.init = options.method(name, signature .. " name=nil dtype=nil",
    function(self, ...)
      local given, config = { ... }, {}
      for i = 1, sig.n do
        config[sig.names[i]] = given[i]
      end
      Metric.init(self, given[sig.n + 1] or default, given[sig.n + 2])
      rawset(self, "config", config)
      if init ~= nil then
        init(self, ...)
      end
    end)
  return class
end

options.methods(Metric, "Metric.", {
  reset_state = "", reset_states = "", merge_state = "metrics",
  get_config = "",
}, M.is_metric, "metric")
classes.guard(Metric, M.is_metric, "metric")

return M
