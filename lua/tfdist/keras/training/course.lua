--- How training goes on several workers, which must be alike on all of them.
---
--- They meet where fit begins, before each epoch, where the epochs are over and
--- where fit ends: one small collective each, in which every worker says what it
--- is about to do. Who stops, fails or begins another fit says so there, and the
--- others hear it instead of waiting for it.
local errors = require "tfdist.base.errors"
local failures = require "tfdist.keras.training.failures"
local rates = require "tfdist.keras.callbacks.rates"
local reduce = require "tfdist.distribute.reduce"
local text = require "tfdist.base.text"
local weights = require "tfdist.keras.training.same_weights"

local M = {}

-- One name for all meetings: calls of several names do not meet.
local NAME = "fit"
local FAILED = "failed"
local HINT = "a callback that stops training, raises or calls fit must do so on "
  .. "all workers, by values that all have: the logs that fit gives it are "
  .. "those of all workers"

-- Two machines may round what a schedule computes apart.
local ROUNDED = 1e-6

-- A message: the place, of which all must be at the same, what this worker does
-- there in words, and what is compared.
local function pack(place, words, data)
  return ("%s\n%s\n%s"):format(place, (words:gsub("\n", " ")), data)
end

local function unpack_all(list)
  local all = {}
  for i, each in ipairs(list) do
    local place, words, data = each:match "^(.-)\n(.-)\n(.*)$"
    all[i] = { place = place, words = words, data = data }
  end
  return all
end

local function name_of(i)
  return i == 1 and "the chief" or "worker " .. i - 1
end

--- Raise a ValueError that all workers raise, none of which need be told.
function M.refuse(message, hint)
  local e = errors.new("ValueError", message, hint)
  e.is_all_workers = true
  error(e, 0)
end

-- Another one has failed: as when it had ended by that.
local function raise_failed(what, i, said)
  local e = errors.new("Aborted", ("%s: %s %s"):format(what, name_of(i),
    said.words))
  e.exit_code = errors.EXIT_PEER_FAILED
  error(e, 0)
end

local function check_places(what, all, own)
  for i, said in ipairs(all) do
    if said.place == FAILED and own ~= FAILED then
      raise_failed(what, i, said)
    end
  end
  for i, said in ipairs(all) do
    if said.place ~= all[1].place and own ~= FAILED then
      M.refuse(("%s: the workers run apart: worker %d %s; the "
        .. "chief %s"):format(what, i - 1, said.words, all[1].words), HINT)
    end
  end
end

--- Say what this worker does, hear what the others do; all must be at the same
--- place. Returns what each has given as data, the chief's first. Every worker
--- calls it.
--- Errors: ValueError where they are not; Aborted where another has failed.
---@param strategy table
---@param place string   a name
---@param words string   what this worker does there, behind "worker 1 "
---@param data? string
---@param what? string   whose call it is, "fit" if nil
---@return string[]
function M.meet(strategy, place, words, data, what)
  what = what or "fit"
  local all = unpack_all(errors.said_by(what, reduce.each_text, strategy, NAME,
    pack(place, words, data or "")))
  check_places(what, all, place)
  local list = {}
  for i, said in ipairs(all) do
    list[i] = said.data
  end
  return list
end

--- meet, where it is also settled at which batches logs are made, which takes
--- all workers: at those of which some worker's callbacks want them.
---@param list table  this worker's callbacks
function M.agree(strategy, place, words, list, data, what)
  local all = M.meet(strategy, place, words, ("%s\n%s"):format(table.concat(
    list:modes_with_logs(), " "), data), what)
  local agreed = {}
  for i, each in ipairs(all) do
    local modes, rest = each:match "^(.-)\n(.*)$"
    for mode in modes:gmatch "%S+" do
      agreed[mode] = true
    end
    all[i] = rest
  end
  list.agreed = agreed
  return all
end

-- What a worker fails of, unless all do, it is by another one's failure, or
-- somebody has interrupted it.
local function own_words(e)
  if errors.kind(e) == "Cancelled" or errors.is_error(e) and (e.exit_code
    or e.is_all_workers) then
    return nil
  end
  return errors.is_error(e) and ("%s: %s"):format(e.kind, e.message)
    or errors.text_of(e)
end

--- fn(...) between two meetings: where it fails, the others are told at the next
--- one. `is_last() == false` afterwards: others may do more together before.
---@param run table
---@param where string  "in on_epoch_end of epoch 2"
function M.between(run, where, is_last, fn, ...)
  local strategy = run.own.strategy
  if not strategy.over_workers then
    return fn(...)
  end
  local ok, e = pcall(fn, ...)
  if ok then
    return
  end
  local words = own_words(e)
  if words ~= nil and is_last() then
    pcall(M.meet, strategy, FAILED, ("failed %s: %s"):format(where, words))
  end
  error(e, 0)
end

--- Call a hook of all callbacks, between two meetings.
function M.call(run, name, ...)
  local list, epoch = run.callbacks, nil
  if name:find("epoch", 1, true) then
    epoch = (...)
  end
  M.between(run, epoch and ("in %s of epoch %d"):format(name, epoch + 1)
    or "in " .. name, function()
      return list:called_last(name)
    end, list.call, list, name, ...)
end

-- Learning rate ----------------------------------------------------------------

-- As words; "" where the step decides.
local function rate_of(optimizer)
  local known, rate = errors.attempt(rates.settable, optimizer)
  return known and rate and ("%.17g"):format(rate) or ""
end

local function check_rates(where, list)
  local chiefs = tonumber(list[1])
  for i = 2, #list do
    local rate = tonumber(list[i])
    if rate ~= nil and chiefs ~= nil
      and math.abs(rate - chiefs) > ROUNDED * math.abs(chiefs) then
      M.refuse(("fit: %s worker %d has the learning rate %s; "
        .. "the chief has %s"):format(where, i - 1, text.number(rate),
        text.number(chiefs)), "callbacks have to set the same on all workers, "
        .. "of values that all have")
    end
  end
end

-- What is trained -------------------------------------------------------------

-- "2 variables of 12 values".
local function trained(model)
  local list, size = model.trainable_variables, 0
  for _, v in ipairs(list) do
    local count = 1
    for i = 1, #v.shape do
      count = count * v.shape[i]
    end
    size = size + count
  end
  return ("%d variables of %.0f values"):format(#list, size)
end

local function check_trained(where, list)
  for i = 2, #list do
    if list[i] ~= list[1] then
      M.refuse(("fit: %s worker %d trains %s; the chief trains "
        .. "%s"):format(where, i - 1, list[i], list[1]), "callbacks have to set "
        .. "`trainable` to the same on all workers")
    end
  end
end

-- Meetings ---------------------------------------------------------------------

--- Before the first epoch: all begin with the same weights.
function M.begin(run)
  local strategy = run.own.strategy
  if strategy.over_workers then
    run.callbacks:watch(run.model)
    weights.check(run, "fit: at its start", M.meet(strategy, "start",
      "begins its first epoch", weights.digest(run.model)))
  end
end

--- Before an epoch, after what callbacks have set for it.
function M.before_epoch(run, epoch)
  local strategy = run.own.strategy
  if not strategy.over_workers then
    return
  end
  local all = M.agree(strategy, "epoch " .. epoch, ("begins epoch %d"):format(
    epoch + 1), run.callbacks, ("%s\n%s"):format(rate_of(run.own.optimizer),
    trained(run.model)))
  local rates_, trains = {}, {}
  for i, each in ipairs(all) do
    rates_[i], trains[i] = each:match "^(.-)\n(.*)$"
  end
  local where = ("before epoch %d"):format(epoch + 1)
  check_rates(where, rates_)
  check_trained(where, trains)
end

-- What this worker has done with the epochs.
local function ending(run, epochs)
  local by = run.callbacks.stopper
  if run.model.stop_training then
    return ("stops training %s (stop_training is true%s)"):format(
      epochs, by and ", set in " .. by or "")
  elseif run.ran_out then
    return ("stops training %s, for its data ran out"):format(epochs)
  end
  return "has ended its training " .. epochs
end

--- After the last epoch, number `done` of all.
function M.leave(run, done)
  local strategy = run.own.strategy
  if strategy.over_workers then
    check_rates("at its end", M.meet(strategy, "left",
      ending(run, ("after epoch %d"):format(done)),
      rate_of(run.own.optimizer)))
  end
end

--- When callbacks have done their last: all have the same weights.
function M.finish(run)
  local strategy = run.own.strategy
  if strategy.over_workers then
    weights.check(run, "fit: at its end", M.meet(strategy, "end",
      "has ended its fit", weights.digest(run.model)))
  end
end

--- fn(run, epoch), the epoch counted from 0: where workers run apart in it, the
--- error says what may be behind that.
function M.explained(run, epoch, fn)
  if not run.own.strategy.over_workers then
    return fn(run, epoch)
  end
  local ok, result = pcall(fn, run, epoch)
  if ok then
    return result
  elseif errors.is_error(result) and result.exit_code ~= nil then
    failures.place_in_epoch(result, epoch)
    if run.model.stop_training then
      errors.note(result, "this worker " .. ending(run, ("in epoch %d"):format(
        epoch + 1)))
    end
    -- Not where one has died.
    if result.exit_code == errors.EXIT_DESYNC and run.callbacks.given > 0
      and result.message:find("run apart", 1, true) then
      result.hint = result.hint or HINT
    end
  end
  error(result, 0)
end

return M
