--- tf.keras.mixed_precision: dtype policies, and loss scaling, so that gradients
--- of half types do not vanish.
local apply = require "tfdist.keras.apply"
local contexts = require "tfdist.distribute.contexts"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local object_graph = require "tfdist.train.object_graph"
local options = require "tfdist.base.options"
local policies = require "tfdist.keras.policies"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"

local M = {
  Policy = policies.Policy, DTypePolicy = policies.Policy,
  global_policy = policies.global_policy, dtype_policy = policies.global_policy,
  set_global_policy = policies.set_global_policy,
  set_dtype_policy = policies.set_global_policy,
}

local WHAT = "LossScaleOptimizer"
-- Scales are float32 and no denormal of it.
local MIN_SCALE, MAX_SCALE = 2 ^ -126, 3.4e38

local Scaler = { __name = WHAT, is_tf_optimizer = true }
local methods, getters = {}, {}

local function own_of(self)
  return rawget(self, "own")
end

local function method(name, signature, fn)
  methods[name] = options.method(WHAT .. ":" .. name, signature, fn,
    function(x) return getmetatable(x) == Scaler end, "optimizer")
end

-- The scale as `x` needs it.
local function scale_for(self, x)
  local scale = own_of(self).scale
  if x.dtype ~= "float32" then
    return tf.cast(scale, x.dtype)
  end
  return scale
end

--- The loss times the scale (for a function, a function that gives that): what
--- the tape differentiates.
--- Source: tf.keras.mixed_precision.LossScaleOptimizer.get_scaled_loss
method("get_scaled_loss", "loss", function(self, loss)
  local function scaled(x)
    if type(x) ~= "userdata" then
      x = convert.tensor(x, nil, "optimizer:get_scaled_loss", "loss")
    end
    return x * scale_for(self, x)
  end
  if text.is_callable(loss) then
    return function()
      return scaled(loss())
    end
  end
  return scaled(loss)
end)

-- grads[k] as the runtime takes it, nil for nil.
local function gradient(what, grads, k)
  return grads[k] ~= nil and apply.gradient(what, grads[k], "variable " .. k)
    or nil
end

local function unscaled(self, grad)
  if raw.kind(grad) == "slices" then
    return tf.IndexedSlices(unscaled(self, grad.values), grad.indices,
      grad.dense_shape)
  end
  return grad / scale_for(self, grad)
end

--- The gradients of a scaled loss divided by the scale; nil stays nil.
--- Source: tf.keras.mixed_precision.LossScaleOptimizer.get_unscaled_gradients
method("get_unscaled_gradients", "grads:list", function(self, grads)
  local what = "optimizer:get_unscaled_gradients"
  local list = { n = options.length(what, "grads", grads) }
  for k = 1, list.n do
    local own = gradient(what, grads, k)
    list[k] = own and unscaled(self, own)
  end
  return list
end)

-- 0 when every element is finite, else NaN: anything else times 0 is NaN.
local function trouble(grads, n)
  local total = tf.constant(0.0)
  for k = 1, n do
    local x = grads[k]
    if x ~= nil then
      x = raw.kind(x) == "slices" and x.values or x
      total = total + tf.cast(tf.reduce_sum(x * 0), "float32")
    end
  end
  return total
end

-- The scale after a step, once for all replicas.
local function adapt(own, finite)
  if not own.dynamic then
    return
  end
  local scale = own.scale:read_value():item()
  local good = finite and own.counter:read_value():item() + 1 or 0
  if not finite then
    own.scale:assign(math.max(scale / 2, 1))
  elseif good >= own.growth then
    good = 0
    if scale * 2 < MAX_SCALE then
      own.scale:assign(scale * 2)
    end
  end
  own.counter:assign(good)
end

-- The same by values that only a call knows.
local function adapt_traced(own, finite)
  if not own.dynamic then
    return
  end
  local scale, count = own.scale:read_value(), own.counter:read_value()
  local good = tf.where(finite, count + 1, tf.zeros_like(count))
  local grows = tf.greater_equal(good, own.growth)
  local more = tf.where(tf.less(scale * 2, MAX_SCALE), scale * 2, scale)
  own.scale:assign(tf.where(finite, tf.where(grows, more, scale),
    tf.maximum(scale / 2, 1)))
  own.counter:assign(tf.where(grows, tf.zeros_like(good), good))
end

-- The inner optimizer's step where `finite`, a symbolic boolean, holds.
local function apply_where(inner, finite, ...)
  local own = rawget(inner, "own")
  own.guard = finite
  return state.protect(function()
    own.guard = nil
  end, inner.apply_gradients, inner, ...)
end

--- As the inner optimizer's, unless some gradient on some replica is not finite:
--- then no replica updates anything, and the scale is halved. After
--- dynamic_growth_steps updates in a row it is doubled. Gradients are those of
--- get_unscaled_gradients. Returns the inner optimizer's step count.
--- Blocks: until the gradients are there.
--- Source: tf.keras.mixed_precision.LossScaleOptimizer.apply_gradients
method("apply_gradients", "grads vars:table=nil name=nil "
  .. "experimental_aggregate_gradients=true skip_gradients_aggregation=false",
  function(self, grads, vars, name, aggregated, skipped)
    local own, context = own_of(self), contexts.get_replica_context()
    local named = vars == nil
      and apply.named(grads, name, aggregated, skipped)
    if named then
      return self:apply_gradients(named)
    elseif context == nil then
      errors.raise("RuntimeError", "`apply_gradients() cannot be called in "
        .. "cross-replica context", "call it in the function given to "
        .. "strategy:run")
    end
    local given, _, n = apply.split_pairs(grads, vars)
    local list = {}
    for k = 1, n do
      list[k] = gradient("optimizer:apply_gradients", given, k)
    end
    local total = context:all_reduce("SUM", trouble(list, n))
    if tracing.is_symbolic(total) then
      local finite = tf.equal(total, 0)
      apply_where(own.inner, finite, grads, vars, name, aggregated, skipped)
      context:merge_call(function()
        adapt_traced(own, finite)
      end)
      return own.inner.iterations
    end
    local finite = total:item() == 0
    if finite then
      own.inner:apply_gradients(grads, vars, name, aggregated, skipped)
    end
    context:merge_call(function()
      adapt(own, finite)
    end)
    return own.inner.iterations
  end)

--- Not there: Keras 3's unscales the gradients itself, apply_gradients here takes
--- them unscaled, and neither can be told from the other.
method("apply", "grads:table trainable_variables:table", function()
  errors.raise("NotImplementedError", WHAT .. ":apply is not implemented: it "
    .. "would take gradients of the scaled loss", "opt:apply_gradients("
    .. "opt:get_unscaled_gradients(grads), vars)")
end)

--- Scale the loss (a function), differentiate, unscale and apply.
--- Source: tf.keras.optimizers.Optimizer.minimize
method("minimize", "loss var_list:table", function(self, loss, vars)
  text.check_callable(WHAT .. ":minimize", "loss", loss)
  options.list(WHAT .. ":minimize", "var_list", vars)
  local tape, scaled = tf.GradientTape(self:get_scaled_loss(loss))
  return self:apply_gradients(
    self:get_unscaled_gradients(tape:gradient(scaled, vars)), vars)
end)

--- What it was made with, the inner optimizer's under `inner_optimizer`.
method("get_config", "", function(self)
  local own = own_of(self)
  return {
    inner_optimizer = own.inner:get_config(), dynamic = own.dynamic,
    initial_scale = own.initial, dynamic_growth_steps = own.growth,
  }
end)

function getters.inner_optimizer(self) return own_of(self).inner end
function getters.dynamic(self) return own_of(self).dynamic end
function getters.initial_scale(self) return own_of(self).initial end
function getters.dynamic_growth_steps(self) return own_of(self).growth end

--- Updates since the scale was changed last, a variable.
function getters.dynamic_counter(self) return own_of(self).counter end

--- The scale, a float32 tensor.
function getters.loss_scale(self)
  return own_of(self).scale:read_value()
end

function getters.variables(self)
  local list = { own_of(self).scale, own_of(self).counter }
  for _, v in ipairs(own_of(self).inner.variables) do
    list[#list + 1] = v
  end
  return list
end

function Scaler.__checkpoint_children(self)
  local own = own_of(self)
  return { { "inner_optimizer", own.inner }, { "loss_scale", own.scale },
    { "good_steps", own.counter } }
end

function Scaler.__names()
  return text.names(methods, getters)
end

function Scaler.__index(self, key)
  if methods[key] ~= nil then
    return methods[key]
  elseif getters[key] ~= nil then
    return getters[key](self)
  end
  local inner = own_of(self).inner
  local found = inner[key]
  if type(found) == "function" then
    return function(_, ...)
      return found(inner, ...)
    end
  end
  return found
end

function Scaler.__newindex(self, key, value)
  if getters[key] ~= nil then
    errors.raise("TypeError", ("%s: %s cannot be set"):format(WHAT, key),
      WHAT .. "(inner_optimizer, ...) makes another one")
  end
  own_of(self).inner[key] = value
end

function Scaler.__tostring(self)
  if tracing.current() ~= nil then -- no numbers yet
    return ("%s of %s"):format(WHAT, tostring(own_of(self).inner))
  end
  return ("%s (scale %s) of %s"):format(WHAT,
    text.number(own_of(self).scale:read_value():item()),
    tostring(own_of(self).inner))
end

local function check(inner, dynamic, initial, growth)
  if getmetatable(inner) == Scaler or not object_graph.is_optimizer(inner) then
    errors.raise("TypeError", ("%s: inner_optimizer must be an optimizer, got "
      .. "%s"):format(WHAT, text.describe(inner)))
  elseif type(dynamic) ~= "boolean" then
    errors.raise("TypeError", ("%s: dynamic must be true or false, got %s")
      :format(WHAT, text.describe(dynamic)))
  elseif not dynamic and initial == nil then
    errors.raise("ValueError", WHAT .. ": initial_scale must be given when "
      .. "dynamic is false")
  elseif not dynamic and growth ~= nil then
    errors.raise("ValueError", WHAT .. ": dynamic_growth_steps makes no sense "
      .. "when dynamic is false")
  elseif initial ~= nil and not (type(initial) == "number"
    and initial >= MIN_SCALE and initial < MAX_SCALE) then
    errors.raise("ValueError", ("%s: initial_scale must be a positive number "
      .. "that float32 holds, got %s"):format(WHAT, text.describe(initial)))
  elseif growth ~= nil and not (text.is_whole(growth) and growth >= 1
    and growth <= 2 ^ 53) then
    errors.raise("ValueError", ("%s: dynamic_growth_steps must be a whole "
      .. "number from 1 to 2^53, got %s"):format(WHAT, text.describe(growth)))
  end
end

--- An optimizer around `inner_optimizer` with a scale for the loss: 2^15 at
--- first, halved whenever a gradient is not finite, doubled after
--- dynamic_growth_steps (2000) updates in a row; with dynamic = false it stays
--- initial_scale.
--- Errors: TypeError, ValueError for options that do not go together.
--- Source: tf.keras.mixed_precision.LossScaleOptimizer
M.LossScaleOptimizer = options.wrap(WHAT, "inner_optimizer:table dynamic=true "
  .. "initial_scale=nil dynamic_growth_steps=nil",
  function(inner, dynamic, initial, growth)
    check(inner, dynamic, initial, growth)
    local function made(value, dtype, name)
      return tf.Variable(value, { dtype = dtype, trainable = false,
        aggregation = "ONLY_FIRST_REPLICA", name = name })
    end
    initial = initial or 2 ^ 15
    return setmetatable({ own = {
      inner = inner, dynamic = dynamic, initial = initial,
      growth = dynamic and (growth or 2000) or nil,
      scale = made(initial, "float32", "current_loss_scale"),
      counter = made(0, "int64", "good_steps"),
    } }, Scaler)
  end)

return M
