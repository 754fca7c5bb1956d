--- The learning rate of an optimizer as callbacks read and set it, whatever it
--- was made with: a number, a variable, a tensor, a schedule or a function.
local errors = require "tfdist.base.errors"
local hypers = require "tfdist.keras.hypers"
local module = require "tfdist.core.module"

local M = {}

local follows_steps, number_of = hypers.follows_steps, hypers.number_of

--- The rate of the step that comes next, as a number.
function M.get(optimizer)
  return number_of(optimizer.learning_rate)
end

--- The rate as a number where `set` may change it; nil where it follows from
--- the step.
function M.settable(optimizer)
  local lr = hypers.given_rate(optimizer)
  return not follows_steps(lr) and number_of(lr) or nil
end

--- Make it the number lr; a variable stays the variable.
--- Errors: TypeError when it follows from the step; `who` says who sets.
function M.set(optimizer, lr, who)
  local now = hypers.given_rate(optimizer)
  if follows_steps(now) then
    errors.raise("TypeError", ("%s: the optimizer's learning rate is a %s; "
      .. "only a number or a variable can be set"):format(who,
      type(now) == "function" and "function" or "schedule"))
  elseif module.is_variable(now) then
    now:assign(lr)
  else
    optimizer.learning_rate = lr
  end
end

return M
