--- tf.keras.optimizers.schedules: learning rates as functions of the step.
---
--- A schedule is an object; schedule(step) gives a number for a step from 0.
local classes = require "tfdist.base.classes"
local errors = require "tfdist.base.errors"
local objects = require "tfdist.keras.objects"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

local Schedule = { __name = "LearningRateSchedule" }
local methods = {}

--- The arguments it was made with.
--- Source: tf.keras.optimizers.schedules.ExponentialDecay.get_config
function methods.get_config(self)
  if getmetatable(self) ~= Schedule then
    options.wrong_self("LearningRateSchedule.get_config", "schedule", self)
  end
  local config = {}
  for name, value in pairs(self.config) do
    config[name] = value
  end
  return config
end

function Schedule.__names()
  return text.names(methods)
end

local note_absent = text.absent_fields(Schedule.__names)

function Schedule.__index(_, key)
  local value = methods[key]
  return value == nil and note_absent(key) or value
end

--- Base class: `local Mine = LearningRateSchedule:extend "Mine"`, then
--- Mine:init(...) and Mine:call(step), which returns the learning rate.
--- Source: tf.keras.optimizers.schedules.LearningRateSchedule
M.LearningRateSchedule = objects.class("LearningRateSchedule", "schedule",
  "tf.keras.optimizers.schedules.LearningRateSchedule", function(lr)
    return type(lr) == "userdata" and raw.is_operand(lr)
      and raw.item(raw.operand_tensor(lr)) or lr
  end)

--- True for schedules.
function M.is_schedule(x)
  return type(x) == "table" and (getmetatable(x) == Schedule
    or objects.is_own(x, "schedule") and not classes.is_class(x))
end

function Schedule:__call(step)
  if type(step) == "userdata" and raw.is_operand(step) then
    step = raw.item(raw.operand_tensor(step))
  end
  return self._value(step)
end

function Schedule:__tostring()
  return "schedule " .. self.name
end

local function check(what, name, x, positive)
  if type(x) ~= "number" then
    errors.raise("TypeError", ("%s: %s must be a number, got %s"):format(what,
      name, text.describe(x)))
  elseif positive and x <= 0 then
    errors.raise("ValueError", ("%s: %s must be positive, got %s"):format(what,
      name, text.number(x)))
  end
  return x
end

local function check_all(what, names, ...)
  local given = { ... }
  for i = 1, #names do
    check(what, names[i], given[i])
  end
end

local function check_list(what, name, list)
  if not text.is_plain(list) then
    errors.raise("TypeError", ("%s: %s must be a list of numbers, got %s")
      :format(what, name, text.describe(list)))
  end
  for i = 1, #list do
    check(what, ("%s[%d]"):format(name, i), list[i])
  end
end

local function define(name, signature, make)
  objects.not_a_class(name, "tf.keras.optimizers.schedules."
    .. "LearningRateSchedule:extend \"Mine\" is a class")
  local sig = options.signature(name, signature)
  M[name] = options.wrap_signature(sig, function(...)
    local config = { name = name }
    for i = 1, sig.n do
      local value = select(i, ...)
      if value ~= nil then
        config[sig.names[i]] = value
      end
    end
    return setmetatable({ name = name, _value = make(...), config = config },
      Schedule)
  end)
end

--- initial * rate ^ (step / decay_steps); whole powers with staircase.
--- Source: tf.keras.optimizers.schedules.ExponentialDecay
define("ExponentialDecay", "initial_learning_rate decay_steps decay_rate "
  .. "staircase=false name=nil", function(initial, steps, rate, staircase)
    check("ExponentialDecay", "initial_learning_rate", initial)
    check("ExponentialDecay", "decay_steps", steps, true)
    check("ExponentialDecay", "decay_rate", rate)
    return function(step)
      local p = step / steps
      return initial * rate ^ (staircase and math.floor(p) or p)
    end
  end)

--- values[i] up to and with boundaries[i], then the last.
--- Source: tf.keras.optimizers.schedules.PiecewiseConstantDecay
define("PiecewiseConstantDecay", "boundaries values name=nil",
  function(boundaries, list)
    check_list("PiecewiseConstantDecay", "boundaries", boundaries)
    check_list("PiecewiseConstantDecay", "values", list)
    if #boundaries + 1 ~= #list then
      errors.raise("ValueError", ("PiecewiseConstantDecay: %d boundaries need "
        .. "%d values, got %d"):format(#boundaries, #boundaries + 1, #list))
    end
    return function(step)
      for i = 1, #boundaries do
        if step <= boundaries[i] then
          return list[i]
        end
      end
      return list[#list]
    end
  end)

--- From initial to end over decay_steps as (1 - step / decay_steps) ^ power;
--- with cycle it starts again with more steps.
--- Source: tf.keras.optimizers.schedules.PolynomialDecay
define("PolynomialDecay", "initial_learning_rate decay_steps "
  .. "end_learning_rate=0.0001 power=1 cycle=false name=nil",
  function(initial, steps, last, power, cycle)
    check("PolynomialDecay", "decay_steps", steps, true)
    check_all("PolynomialDecay", { "initial_learning_rate",
      "end_learning_rate", "power" }, initial, last, power)
    return function(step)
      local all = steps
      if cycle then
        all = steps * math.max(1, math.ceil(step / steps))
      else
        step = math.min(step, steps)
      end
      return (initial - last) * (1 - step / all) ^ power + last
    end
  end)

--- initial / (1 + rate * step / decay_steps); whole quotients with staircase.
--- Source: tf.keras.optimizers.schedules.InverseTimeDecay
define("InverseTimeDecay", "initial_learning_rate decay_steps decay_rate "
  .. "staircase=false name=nil", function(initial, steps, rate, staircase)
    check("InverseTimeDecay", "decay_steps", steps, true)
    check_all("InverseTimeDecay", { "initial_learning_rate", "decay_rate" },
      initial, rate)
    return function(step)
      local p = step / steps
      return initial / (1 + rate * (staircase and math.floor(p) or p))
    end
  end)

local function cosine(fraction)
  return 0.5 * (1 + math.cos(math.pi * fraction))
end

--- From initial to alpha * initial along half a cosine. With warmup_target a
--- straight line goes there from initial in warmup_steps, and the cosine starts
--- from the target after it.
--- Source: tf.keras.optimizers.schedules.CosineDecay
define("CosineDecay", "initial_learning_rate decay_steps alpha=0 name=nil "
  .. "warmup_target=nil warmup_steps=0",
  function(initial, steps, alpha, _, target, warmup)
    check("CosineDecay", "decay_steps", steps, true)
    if target == nil then
      target, warmup = initial, 0
    end
    check_all("CosineDecay", { "initial_learning_rate", "alpha",
      "warmup_target", "warmup_steps" }, initial, alpha, target, warmup)
    return function(step)
      if step < warmup then
        return initial + (target - initial) * step / warmup
      end
      local c = cosine(math.min(step - warmup, steps) / steps)
      return target * ((1 - alpha) * c + alpha)
    end
  end)

--- CosineDecay that begins again: periods grow by t_mul, heights by m_mul.
--- Source: tf.keras.optimizers.schedules.CosineDecayRestarts
define("CosineDecayRestarts", "initial_learning_rate first_decay_steps "
  .. "t_mul=2 m_mul=1 alpha=0 name=nil",
  function(initial, first, t_mul, m_mul, alpha)
    check("CosineDecayRestarts", "first_decay_steps", first, true)
    check_all("CosineDecayRestarts", { "initial_learning_rate", "t_mul",
      "m_mul", "alpha" }, initial, t_mul, m_mul, alpha)
    return function(step)
      local fraction = step / first
      local i
      if t_mul == 1 then
        i = math.floor(fraction)
        fraction = fraction - i
      else
        i = math.floor(math.log(1 - fraction * (1 - t_mul)) / math.log(t_mul))
        fraction = (fraction - (1 - t_mul ^ i) / (1 - t_mul)) / t_mul ^ i
      end
      return initial * ((1 - alpha) * m_mul ^ i * cosine(fraction) + alpha)
    end
  end)

return M
