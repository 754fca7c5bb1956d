--- An optimizer's step count and its hyperparameters, as the numbers of a step.
--- `own` is its private table (apply.lua): hyper, iterations, and what is kept
--- here: step, step_version, prepared, counted, counter, constants.
local errors = require "tfdist.base.errors"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local schedules = require "tfdist.keras.schedules"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"
local values = require "tfdist.distribute.values"

local M = {}

local type = type

--- The number that a hyperparameter stands for, where it is a tensor or a
--- variable; else itself.
function M.number_of(x)
  if type(x) == "userdata" and raw.is_operand(x) then
    return raw.item(raw.operand_tensor(x))
  end
  return x
end

--- A variable on each device that has one: its copies, or itself.
function M.copies_of(v)
  return values.is_mirrored(v) and values.copies(v) or { v }
end

-- The first copy of the step count.
local function counter_of(own)
  local v = own.iterations
  if own.counted ~= v then
    own.counted, own.counter = v, M.copies_of(v)[1]
  end
  return own.counter
end

--- Steps taken; read from the variable only when somebody else wrote it.
function M.steps(own)
  local v = own.iterations
  if v == nil then
    return 0
  end
  local preparation = tracing.preparation
  if preparation ~= nil and own.prepared == preparation then
    return own.step -- calls that count have not run yet
  end
  local version = raw.variable_version(counter_of(own))
  if own.step_version ~= version then
    own.step, own.step_version = v:read_value():item(), version
  end
  return own.step
end

--- Does a learning rate follow from the step?
function M.follows_steps(lr)
  return schedules.is_schedule(lr) or type(lr) == "function"
end

--- The learning rate of an optimizer as it was given or set.
function M.given_rate(optimizer)
  local own = rawget(optimizer, "own")
  if own.inner ~= nil then -- it scales the loss for another one
    return M.given_rate(own.inner)
  end
  return own.hyper.learning_rate
end

--- The learning rate of a step (from 0) as a plain number.
function M.learning_rate(own, step)
  local lr = own.hyper.learning_rate
  if M.follows_steps(lr) then
    lr = M.number_of(lr(step))
  end
  lr = M.number_of(lr)
  if type(lr) ~= "number" then
    errors.raise("TypeError", "learning_rate: a schedule must return a number, "
      .. "got " .. (lr == nil and "nothing" or text.describe(lr)))
  end
  return lr
end

local function hyper_of(own)
  local step = M.steps(own)
  local h = { step = step }
  for name, value in pairs(own.hyper) do
    h[name] = type(value) == "userdata" and M.number_of(value) or value
  end
  h.learning_rate = M.learning_rate(own, step)
  return h
end

--- The hyperparameters of this step, plain; while a function is traced, those of
--- the step that would come next.
function M.of(own)
  return tracing.lifted(hyper_of, own)
end

-- Types of values that are what they are at each step.
local CONSTANT = { number = true, boolean = true, string = true }

--- Are all what they are at each step, until one is set?
function M.are_constant(own)
  local constant = true
  for _, value in pairs(own.hyper) do
    constant = constant and CONSTANT[type(value)] == true
  end
  return constant
end

--- Those of a call of a traced function. The same table again where all are
--- constants: a call of a small one is a few microseconds.
function M.of_call(own)
  local h = own.constants
  if h == nil then
    h = hyper_of(own)
    own.constants = M.are_constant(own) and h or false
    return h
  elseif not h then
    return hyper_of(own)
  end
  h.step = M.steps(own)
  return h
end

--- One is another now.
function M.set(own, name, value)
  own.hyper[name], own.constants = value, nil
end

return M
