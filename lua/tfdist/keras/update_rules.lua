--- What each optimizer does to one variable, as the runtime's update ops.
---
--- A rule has a signature (its hyperparameters), slots(hyper) -> list of
--- { name, initial value } in the op's order, op(hyper) -> the op's name, and
--- reals(h, a), which writes the op's attributes a[2], a[3] ... for a step;
--- a[1], the weight decay, is the same for all. hyper holds plain numbers;
--- h.step counts the steps before this one.
local errors = require "tfdist.base.errors"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = { rules = {} }

local rules = M.rules

--- Hyperparameters that every optimizer has.
M.COMMON = {
  learning_rate = true, clipnorm = true, clipvalue = true,
  global_clipnorm = true, weight_decay = true, use_ema = true,
  ema_momentum = true, ema_overwrite_frequency = true,
}

local UNIT = { "momentum", "beta_1", "beta_2", "rho", "ema_momentum" }
local NOT_NEGATIVE = {
  "weight_decay", "epsilon", "clipnorm", "clipvalue",
  "global_clipnorm", "initial_accumulator_value", "l1_regularization_strength",
  "l2_regularization_strength", "l2_shrinkage_regularization_strength", "beta",
}

local function out_of_range(what, name, expected, x)
  errors.raise("ValueError", ("%s: %s must be %s, got %s"):format(what, name,
    expected, text.number(x)))
end

-- NaN is outside of everything.
local function outside(x, least, most)
  return x < least or x > most or x ~= x
end

local function check_type(what, name, x)
  local kind = type(x)
  if kind == "string" or kind == "boolean" then
    errors.raise("TypeError", ("%s: %s must be a number, got %s"):format(what,
      name, text.describe(x)))
  end
  return kind == "number"
end

--- Check one hyperparameter. Errors: ValueError, TypeError.
function M.check_one(what, name, x)
  if name == "learning_rate" then
    if type(x) ~= "number" and type(x) ~= "userdata"
      and not text.is_callable(x) or text.class_name(x) ~= nil then
      errors.raise("TypeError", ("%s: learning_rate must be a number or a "
        .. "schedule, got %s"):format(what, text.describe(x)))
    elseif type(x) == "number" and outside(x, 0, math.huge) then
      out_of_range(what, name, "at least 0", x)
    end
  elseif name == "learning_rate_power" and check_type(what, name, x)
    and outside(x, -math.huge, 0) then
    out_of_range(what, name, "0 or less", x)
  elseif name == "ema_overwrite_frequency" and x ~= nil
    and not (text.is_whole(x) and x >= 1) then
    errors.raise("ValueError", ("%s: ema_overwrite_frequency must be a whole "
      .. "number of steps, got %s"):format(what, text.describe(x)))
  end
  for i = 1, #UNIT do
    if name == UNIT[i] and check_type(what, name, x)
      and outside(x, 0, 1) then
      out_of_range(what, name, "between 0 and 1", x)
    end
  end
  for i = 1, #NOT_NEGATIVE do
    if name == NOT_NEGATIVE[i] and check_type(what, name, x)
      and outside(x, 0, math.huge) then
      out_of_range(what, name, "at least 0", x)
    end
  end
end

--- Check what a user gave. Errors: ValueError, TypeError.
function M.check(what, hyper)
  M.check_one(what, "learning_rate", hyper.learning_rate)
  for name, x in pairs(hyper) do
    M.check_one(what, name, x)
  end
  local given = {}
  for _, name in ipairs { "clipnorm", "clipvalue", "global_clipnorm" } do
    given[#given + 1] = hyper[name] and name or nil
  end
  if #given > 1 then
    errors.raise("ValueError", ("%s: only one of clipnorm, clipvalue and "
      .. "global_clipnorm can be set, got %s"):format(what,
      table.concat(given, " and ")))
  end
end

local function rule(name, signature, slots, op, reals)
  rules[name] = { signature = signature, slots = slots, op = op, reals = reals }
end

local function has_momentum(hyper)
  return (hyper.momentum or 0) ~= 0
end

local function always(value)
  return function()
    return value
  end
end

-- SGD ------------------------------------------------------------------------

rule("SGD", "learning_rate=0.01 momentum=0 nesterov=false", function(hyper)
    return has_momentum(hyper) and { { "momentum", 0 } } or {}
  end, function(hyper)
    if not has_momentum(hyper) then
      return "update_sgd"
    end
    return hyper.nesterov and "update_nesterov" or "update_momentum"
  end, function(h, a)
    a[2] = h.learning_rate
    a[3] = has_momentum(h) and h.momentum or nil
  end)

-- Adam and its relatives -----------------------------------------------------

local function adam_slots(hyper)
  local list = { { "m", 0 }, { "v", 0 } }
  if hyper.amsgrad then
    list[3] = { "vhat", 0 }
  end
  return list
end

local function adam_op(hyper)
  return hyper.amsgrad and "update_amsgrad" or "update_adam"
end

local function adam_reals(h, a)
  local t = h.step + 1
  a[2] = h.learning_rate * math.sqrt(1 - h.beta_2 ^ t) / (1 - h.beta_1 ^ t)
  a[3], a[4], a[5] = h.beta_1, h.beta_2, h.epsilon
end

rule("Adam", "learning_rate=0.001 beta_1=0.9 beta_2=0.999 epsilon=1e-7 "
  .. "amsgrad=false", adam_slots, adam_op, adam_reals)

rule("AdamW", "learning_rate=0.001 weight_decay=0.004 beta_1=0.9 beta_2=0.999 "
  .. "epsilon=1e-7 amsgrad=false", adam_slots, adam_op, adam_reals)

rule("Adamax", "learning_rate=0.001 beta_1=0.9 beta_2=0.999 epsilon=1e-7",
  adam_slots, always "update_adamax", function(h, a)
    a[2] = h.learning_rate / (1 - h.beta_1 ^ (h.step + 1))
    a[3], a[4], a[5] = h.beta_1, h.beta_2, h.epsilon
  end)

-- The momentum schedule of step t (from 1).
local function nadam_momentum(h, t)
  return h.beta_1 * (1 - 0.5 * 0.96 ^ t)
end

-- Products of the schedule over steps 1..t by beta_1: a function of t alone,
-- so that a restored step count suffices; the last one is kept.
local products = {}

local function nadam_product(h, t)
  local known = products[h.beta_1]
  if known == nil or known.t > t then
    known = { t = 0, product = 1 }
    products[h.beta_1] = known
  end
  -- It reaches 0 long before the step count gets large.
  while known.t < t and known.product > 0 do
    known.t = known.t + 1
    known.product = known.product * nadam_momentum(h, known.t)
  end
  return known.product
end

rule("Nadam", "learning_rate=0.001 beta_1=0.9 beta_2=0.999 epsilon=1e-7",
  adam_slots, always "update_nadam", function(h, a)
    local t = h.step + 1
    local product = nadam_product(h, t)
    local now, next_one = nadam_momentum(h, t), nadam_momentum(h, t + 1)
    a[2], a[3], a[4], a[5] = h.learning_rate, h.beta_1, h.beta_2, h.epsilon
    a[6] = (1 - now) / (1 - product)
    a[7] = next_one / (1 - product * next_one)
    a[8] = 1 / (1 - h.beta_2 ^ t)
  end)

-- Squares --------------------------------------------------------------------

rule("RMSprop", "learning_rate=0.001 rho=0.9 momentum=0 epsilon=1e-7 "
  .. "centered=false", function(hyper)
    local list = { { "rms", 0 } }
    if has_momentum(hyper) then
      list[#list + 1] = { "momentum", 0 }
    end
    if hyper.centered then
      list[#list + 1] = { "mg", 0 }
    end
    return list
  end, function(hyper)
    if has_momentum(hyper) then
      return hyper.centered and "update_rmsprop_both"
        or "update_rmsprop_momentum"
    end
    return hyper.centered and "update_rmsprop_centered" or "update_rmsprop"
  end, function(h, a)
    a[2], a[3], a[4] = h.learning_rate, h.rho, h.epsilon
    a[5] = has_momentum(h) and h.momentum or nil
  end)

rule("Adagrad", "learning_rate=0.001 initial_accumulator_value=0.1 "
  .. "epsilon=1e-7", function(hyper)
    return { { "accumulator", hyper.initial_accumulator_value } }
  end, always "update_adagrad", function(h, a)
    a[2], a[3] = h.learning_rate, h.epsilon
  end)

rule("Adadelta", "learning_rate=0.001 rho=0.95 epsilon=1e-7", function()
    return { { "accum_grad", 0 }, { "accum_var", 0 } }
  end, always "update_adadelta", function(h, a)
    a[2], a[3], a[4] = h.learning_rate, h.rho, h.epsilon
  end)

-- Ftrl -----------------------------------------------------------------------

rule("Ftrl", "learning_rate=0.001 learning_rate_power=-0.5 "
  .. "initial_accumulator_value=0.1 l1_regularization_strength=0 "
  .. "l2_regularization_strength=0 l2_shrinkage_regularization_strength=0 "
  .. "beta=0", function(hyper)
    return { { "accumulator", hyper.initial_accumulator_value },
      { "linear", 0 } }
  end, always "update_ftrl", function(h, a)
    local lr = h.learning_rate
    a[2], a[3], a[4] = lr, -h.learning_rate_power, h.l1_regularization_strength
    a[5] = h.l2_regularization_strength
    if h.beta ~= 0 then
      a[5] = a[5] + h.beta / (2 * lr)
    end
    a[6] = h.l2_shrinkage_regularization_strength
  end)

return M
