--- What fails in a step of fit, evaluate or predict says in which; a queue may
--- say so steps later.
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local execution = require "tfdist.keras.training.execution"
local functions = require "tfdist.keras.losses.functions"
local layers = require "tfdist.keras.layers.base"
local nest = require "tfdist.base.nest"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local values = require "tfdist.distribute.values"

local M = {}

local type = type

local function wait_for(x)
  if values.is_value(x) then
    for i = 0, raw.value_count(x) - 1 do
      wait_for(values.component(x, i))
    end
  elseif type(x) == "userdata" and raw.is_operand(x) then
    raw.tensor_wait(raw.operand_tensor(x))
  elseif nest.is_nested(x) then
    for _, each in pairs(x) do
      wait_for(each)
    end
  end
end

-- Who asked for a row that is not there: the op that finds out, when its queue
-- gets there, knows numbers only. Nothing where there are several.
local function note_reader(own, model, e)
  local size = e.bound
  if e.op ~= "gather" or size == nil or e.layer then
    return
  end
  local found = {}
  local weights = own.class_weight
  if weights ~= nil and #weights == size then
    found[1] = ("a label of none of the classes 0 to %d, which class_weight "
      .. "has weights for"):format(size - 1)
  end
  layers.each_layer(model, function(layer)
    if getmetatable(layer).__name == "Embedding"
      and layer.input_dim == size then
      found[#found + 1] = ("in layer %s (%s)"):format(text.quote(layer.name),
        layer:describe())
    end
  end)
  if #found == 1 then
    errors.note(e, found[1])
  end
end

--- e, what one batch of the model met, with who asked for what is not there.
function M.told(own, model, e)
  e = functions.rename(errors.wrap(e))
  if errors.is_error(e) then
    e.where = e.where or contexts.where()
    note_reader(own, model, e)
  end
  return e
end

local function place(pass, step)
  return ("step %d%s"):format(step, pass.epoch and (" of epoch %d"):format(
    pass.epoch + 1) or pass.validates and " of the validation" or "")
end

local function described(pass, e, step)
  return errors.note(M.told(pass.own, pass.model, e), place(pass, step))
end

--- Raise what failed in step `step`, from 1.
function M.raise(pass, e, step)
  error(described(pass, e, step), 0)
end

--- Wait for what the pass ran last, of which step `step`, from 1, was the last.
function M.settle(pass, step)
  local calls, failed, why = pass.calls
  pass.calls = nil
  if calls ~= nil then
    failed, why = execution.wait(calls)
    step = failed and calls.first + failed
  else
    local ok, e = pcall(wait_for, pass.ticket)
    failed, why = not ok, e
  end
  if failed then
    M.raise(pass, why, step)
  end
end

--- Raise what step `step` met, from 1, unless one up to `last`, the last that was
--- run, has failed: then that is why.
function M.raise_first(pass, e, step, last)
  M.settle(pass, last)
  M.raise(pass, e, step)
end

-- Does an error say already in which step, or at least epoch, it came?
local function is_placed(e)
  for _, note in ipairs(e.notes or {}) do
    if note:find "^step %d+ of epoch" or note:find "^epoch %d" then
      return true
    end
  end
  return false
end

--- fn(...), which runs the steps of a pass, of which pass.at is the one at
--- hand. That another worker is gone may be heard of anywhere in one: in a
--- callback, or where results are read.
function M.placed(pass, fn, ...)
  local ok, a, b = pcall(fn, ...)
  if ok then
    return a, b
  end
  if errors.is_of_peer(a) and not is_placed(a) then
    errors.note(a, place(pass, pass.at))
  end
  error(a, 0)
end

--- The same for an epoch, counted from 0, outside of its steps.
function M.place_in_epoch(e, epoch)
  if errors.is_of_peer(e) and not is_placed(e) then
    errors.note(e, ("epoch %d"):format(epoch + 1))
  end
end

--- fn(...), which reads what steps up to `step`, from 1, have left: where a queue
--- failed in one, the error says in which.
function M.reading(pass, step, fn, ...)
  local ok, result = pcall(fn, ...)
  if ok then
    return result
  elseif errors.is_error(result) and result.deferred then
    M.raise_first(pass, result, step, step)
  end
  error(result, 0)
end

return M
