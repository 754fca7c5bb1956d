--- Running means of an optimizer's variables (use_ema), one for each copy.
local guarded = require "tfdist.keras.guarded"
local raw = require "tfdist.core.raw"
local shared_slots = require "tfdist.keras.shared_slots"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"
local values = require "tfdist.distribute.values"

local M = {}

-- Call fn(copy, mean) for those that lie with the copies, parts(slot, variable)
-- for those in parts.
local function each(own, vars, fn, parts)
  for k = 1, vars.n or #vars do
    local v = vars[k]
    local slots = own.slots[v]
    if slots ~= nil and shared_slots.is_slot(slots.average) then
      parts(slots.average, v)
    elseif slots ~= nil and slots.average ~= nil then
      for i, copy in ipairs(values.is_mirrored(v) and values.copies(v) or { v })
      do
        fn(copy, values.component_of(slots.average, i - 1))
      end
    end
  end
end

--- Put the running means in place of the variables.
function M.overwrite(own, vars)
  each(own, vars, function(copy, average)
    raw.variable_assign(copy, average)
  end, shared_slots.overwrite)
end

-- The op's numbers in a step (from 0): the first average is what that step
-- gives.
local function numbers(step, momentum)
  return { 0, step == 0 and 0 or momentum }
end

--- Let the variables join their means, after a step that began with the
--- hyperparameters h.
function M.update(own, vars, h)
  local op = raw.op_find "update_average"
  local reals, first = numbers(h.step, h.ema_momentum), nil
  if tracing.current() ~= nil then
    -- The update's own numbers, asked for before, have counted the step.
    first = tracing.numbers(#reals, function()
      return numbers(own.call_step, h.ema_momentum)
    end)
  end
  each(own, vars, function(copy, mean)
    raw.variables_update({ mean }, op, { copy, n = 2 }, nil, reals)
    if first ~= nil then
      tracing.takes_numbers(first)
    end
  end, function(slot, v)
    shared_slots.average(slot, v, op, reals, first)
  end)
  local every = h.ema_overwrite_frequency
  if every and tracing.current() ~= nil then
    local count = own.iterations
    count = raw.variable_read(values.is_mirrored(count)
      and values.copies(count)[1] or count)
    guarded.when(tf.equal(tf.math.floormod(count + 1, every), 0), function()
      M.overwrite(own, vars)
    end)
  elseif every and (h.step + 1) % every == 0 then
    M.overwrite(own, vars)
  end
end

return M
