--- What each optimizer does to one variable.
---
--- A rule has a signature (its hyperparameters), slots(hyper) -> list of
--- { name, initial value }, dense(tf, v, g, slots, h), optionally sparse for
--- IndexedSlices (without it they become dense). h holds plain numbers and is
--- made anew for each step; h.step counts the steps before this one.
local errors = require "tfdist.errors"
local text = require "tfdist.text"

local M = { rules = {} }

local rules = M.rules

--- Hyperparameters that every optimizer has.
M.COMMON = { learning_rate = true, decay = true, clipnorm = true,
  clipvalue = true, global_clipnorm = true }

local UNIT = { "momentum", "beta_1", "beta_2", "rho" }

--- Check what a user gave. Errors: ValueError, TypeError.
function M.check(what, hyper)
  local lr = hyper.learning_rate
  if type(lr) == "number" and lr < 0 then
    errors.raise("ValueError", ("%s: learning_rate must be at least 0, got %s")
      :format(what, text.number(lr)))
  elseif type(lr) == "string" or type(lr) == "boolean" or lr == nil then
    errors.raise("TypeError", ("%s: learning_rate must be a number or a "
      .. "schedule, got %s"):format(what, text.describe(lr)))
  end
  for i = 1, #UNIT do
    local x = hyper[UNIT[i]]
    if type(x) == "number" and (x < 0 or x > 1) then
      errors.raise("ValueError", ("%s: %s must be between 0 and 1, got %s")
        :format(what, UNIT[i], text.number(x)))
    end
  end
end

local function no_slots()
  return {}
end

local function rule(name, signature, slots, dense, sparse)
  rules[name] = {
    signature = signature, slots = slots or no_slots, dense = dense,
    sparse = sparse,
  }
end

-- slot := a * slot + b * x; returns its value.
local function blend(slot, a, b, x)
  local value = slot * a + x * b
  slot:assign(value)
  return value
end

-- Rows of slices with repeated rows added up: values, indices.
local function unique_rows(tf, slices)
  local rows, at = tf.unique(slices.indices)
  return tf.math.unsorted_segment_sum(slices.values, at, #rows), rows
end

-- SGD ------------------------------------------------------------------------

local function momentum_slots(hyper)
  return (hyper.momentum or 0) ~= 0 and { { "momentum", 0 } } or {}
end

rule("SGD", "learning_rate=0.01 momentum=0 nesterov=false", momentum_slots,
  function(_, v, g, slots, h)
    local lr = h.learning_rate
    if slots.momentum == nil then
      v:assign_sub(g * lr)
      return
    end
    local m = blend(slots.momentum, h.momentum, -lr, g)
    if h.nesterov then
      m = m * h.momentum - g * lr
    end
    v:assign_add(m)
  end,
  function(tf, v, slices, slots, h)
    local lr = h.learning_rate
    if slots.momentum == nil then
      v:scatter_sub(tf.IndexedSlices(slices.values * lr, slices.indices,
        slices.dense_shape))
      return
    end
    -- Rows without a gradient keep their momentum.
    local g, rows = unique_rows(tf, slices)
    local dims = slices.dense_shape
    local m = tf.gather(slots.momentum, rows) * h.momentum - g * lr
    slots.momentum:scatter_update(tf.IndexedSlices(m, rows, dims))
    if h.nesterov then
      m = m * h.momentum - g * lr
    end
    v:scatter_add(tf.IndexedSlices(m, rows, dims))
  end)

-- Adam and its relatives -----------------------------------------------------

local function adam_slots(hyper)
  local list = { { "m", 0 }, { "v", 0 } }
  if hyper.amsgrad then
    list[3] = { "vhat", 0 }
  end
  return list
end

rule("Adam", "learning_rate=0.001 beta_1=0.9 beta_2=0.999 epsilon=1e-7 "
  .. "amsgrad=false", adam_slots, function(tf, v, g, slots, h)
    local t = h.step + 1
    local lr = h.learning_rate * math.sqrt(1 - h.beta_2 ^ t)
      / (1 - h.beta_1 ^ t)
    local m = blend(slots.m, h.beta_1, 1 - h.beta_1, g)
    local s = blend(slots.v, h.beta_2, 1 - h.beta_2, g * g)
    if slots.vhat ~= nil then
      s = tf.maximum(slots.vhat, s)
      slots.vhat:assign(s)
    end
    v:assign_sub(m * lr / (tf.sqrt(s) + h.epsilon))
  end)

rule("Adamax", "learning_rate=0.001 beta_1=0.9 beta_2=0.999 epsilon=1e-7",
  adam_slots, function(tf, v, g, slots, h)
    local m = blend(slots.m, h.beta_1, 1 - h.beta_1, g)
    local u = tf.maximum(slots.v * h.beta_2, tf.abs(g))
    slots.v:assign(u)
    v:assign_sub(m * (h.learning_rate / (1 - h.beta_1 ^ (h.step + 1)))
      / (u + h.epsilon))
  end)

-- The momentum schedule of step t (from 1).
local function nadam_momentum(h, t)
  return h.beta_1 * (1 - 0.5 * 0.96 ^ (0.004 * t))
end

-- Product of the schedule over steps 1..t: a function of t alone, so that a
-- restored step count suffices.
local function nadam_product(h, t)
  local product = 1
  for i = 1, t do
    product = product * nadam_momentum(h, i)
  end
  return product
end

rule("Nadam", "learning_rate=0.001 beta_1=0.9 beta_2=0.999 epsilon=1e-7",
  adam_slots, function(tf, v, g, slots, h)
    local t = h.step + 1
    if h.product == nil then
      -- Below this the product is 0 in double precision anyway.
      h.product = t > 4000 and 0 or nadam_product(h, t)
    end
    local now, next_one = nadam_momentum(h, t), nadam_momentum(h, t + 1)
    local m = blend(slots.m, h.beta_1, 1 - h.beta_1, g)
    local s = blend(slots.v, h.beta_2, 1 - h.beta_2, g * g)
    local mean = g * ((1 - now) / (1 - h.product))
      + m * (next_one / (1 - h.product * next_one))
    v:assign_sub(mean * h.learning_rate
      / (tf.sqrt(s / (1 - h.beta_2 ^ t)) + h.epsilon))
  end)

-- Squares --------------------------------------------------------------------

rule("RMSprop", "learning_rate=0.001 rho=0.9 momentum=0 epsilon=1e-7 "
  .. "centered=false", function(hyper)
    local list = { { "rms", 0 } }
    if (hyper.momentum or 0) ~= 0 then
      list[#list + 1] = { "momentum", 0 }
    end
    if hyper.centered then
      list[#list + 1] = { "mg", 0 }
    end
    return list
  end, function(tf, v, g, slots, h)
    local s = blend(slots.rms, h.rho, 1 - h.rho, g * g)
    if slots.mg ~= nil then
      local mean = blend(slots.mg, h.rho, 1 - h.rho, g)
      s = s - mean * mean
    end
    if slots.momentum == nil then
      v:assign_sub(g * h.learning_rate / (tf.sqrt(s) + h.epsilon))
      return
    end
    v:assign_sub(blend(slots.momentum, h.momentum, h.learning_rate,
      g / tf.sqrt(s + h.epsilon)))
  end)

rule("Adagrad", "learning_rate=0.001 initial_accumulator_value=0.1 "
  .. "epsilon=1e-7", function(hyper)
    return { { "accumulator", hyper.initial_accumulator_value } }
  end, function(tf, v, g, slots, h)
    local s = blend(slots.accumulator, 1, 1, g * g)
    v:assign_sub(g * h.learning_rate / (tf.sqrt(s) + h.epsilon))
  end)

rule("Adadelta", "learning_rate=0.001 rho=0.95 epsilon=1e-7", function()
    return { { "accum_grad", 0 }, { "accum_var", 0 } }
  end, function(tf, v, g, slots, h)
    local s = blend(slots.accum_grad, h.rho, 1 - h.rho, g * g)
    local update = g * tf.sqrt(slots.accum_var + h.epsilon)
      / tf.sqrt(s + h.epsilon)
    blend(slots.accum_var, h.rho, 1 - h.rho, update * update)
    v:assign_sub(update * h.learning_rate)
  end)

-- Ftrl -----------------------------------------------------------------------

rule("Ftrl", "learning_rate=0.001 learning_rate_power=-0.5 "
  .. "initial_accumulator_value=0.1 l1_regularization_strength=0 "
  .. "l2_regularization_strength=0 l2_shrinkage_regularization_strength=0",
  function(hyper)
    return { { "accumulator", hyper.initial_accumulator_value },
      { "linear", 0 } }
  end, function(tf, v, g, slots, h)
    local power, lr = -h.learning_rate_power, h.learning_rate
    local l1, l2 = h.l1_regularization_strength, h.l2_regularization_strength
    local shrunk = g + v * (2 * h.l2_shrinkage_regularization_strength)
    local before = slots.accumulator:read_value()
    local after = before + g * g
    local rooted = after ^ power
    local linear = slots.linear + shrunk - (rooted - before ^ power) / lr * v
    slots.accumulator:assign(after)
    slots.linear:assign(linear)
    local quadratic = rooted / lr + 2 * l2
    local clipped = tf.clip_by_value(linear, -l1, l1) - linear
    v:assign(clipped / quadratic)
  end)

return M
