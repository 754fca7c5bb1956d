--- Callbacks that steer training: stopping, learning rates, records.
local base = require "tfdist.keras.callbacks.base"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local rates = require "tfdist.keras.callbacks.rates"
local text = require "tfdist.base.text"

local M = {}

local type = type

-- History --------------------------------------------------------------------

--- What fit returns: `history` (name -> list of values, one for each epoch),
--- `epoch` (list of epoch numbers, from 0), `params`, `model`.
--- Source: tf.keras.callbacks.History
M.History = base.define("History", "", function(self)
  self.history, self.epoch = {}, {}
end)

function M.History:on_train_begin()
  self.history, self.epoch = {}, {}
end

function M.History:on_epoch_end(epoch, logs)
  self.epoch[#self.epoch + 1] = epoch
  for name, value in pairs(logs) do
    local list = self.history[name] or {}
    list[#list + 1] = value
    self.history[name] = list
  end
end

function M.History:__tostring()
  return ("History of %d epoch%s (%s)"):format(#self.epoch,
    #self.epoch == 1 and "" or "s",
    table.concat(text.names(self.history), ", "))
end

--- Shows the progress, also when fit is called with verbose = 0.
--- Source: tf.keras.callbacks.ProgbarLogger
M.ProgbarLogger = base.define("ProgbarLogger", "count_mode='steps' "
  .. "stateful_metrics:table=nil", function(self, count_mode)
    options.choice("ProgbarLogger", "count_mode", count_mode,
      { "steps", "samples" })
    self.shows_progress = true
  end)

--- Averages of metrics over an epoch: metrics are averages already.
--- Source: tf.keras.callbacks.BaseLogger
M.BaseLogger = base.define("BaseLogger", "stateful_metrics:table=nil",
  function() end)

--- A callback from functions: on_train_begin(logs), on_epoch_end(epoch, logs),
--- ... without self.
--- Source: tf.keras.callbacks.LambdaCallback
M.LambdaCallback = base.define("LambdaCallback", "on_epoch_begin=nil "
  .. "on_epoch_end=nil on_train_begin=nil on_train_end=nil "
  .. "on_train_batch_begin=nil on_train_batch_end=nil on_batch_begin=nil "
  .. "on_batch_end=nil on_test_begin=nil on_test_end=nil "
  .. "on_test_batch_begin=nil on_test_batch_end=nil on_predict_begin=nil "
  .. "on_predict_end=nil on_predict_batch_begin=nil on_predict_batch_end=nil",
  function(self, ...)
    local names = {
      "on_epoch_begin", "on_epoch_end", "on_train_begin", "on_train_end",
      "on_train_batch_begin", "on_train_batch_end", "on_batch_begin",
      "on_batch_end", "on_test_begin", "on_test_end", "on_test_batch_begin",
      "on_test_batch_end", "on_predict_begin", "on_predict_end",
      "on_predict_batch_begin", "on_predict_batch_end",
    }
    local given = { ... }
    for i, name in ipairs(names) do
      local fn = given[i]
      if fn ~= nil then
        text.check_callable("LambdaCallback", name, fn)
        self[name] = function(_, ...)
          return fn(...)
        end
      end
    end
  end)

-- Stopping -------------------------------------------------------------------

--- Stops training when a batch's loss is no finite number.
--- Source: tf.keras.callbacks.TerminateOnNaN
M.TerminateOnNaN = base.define("TerminateOnNaN", "", function() end)

function M.TerminateOnNaN:on_train_batch_end(batch, logs)
  local loss = logs.loss
  if type(loss) == "number" and (loss ~= loss or loss == math.huge
    or loss == -math.huge) then
    base.say(self, "Batch %d: Invalid loss, terminating training", batch)
    self.model.stop_training = true
  end
end

local function check_count(self, name, x, lo)
  rawset(self, name, options.integer(self.__name, name, x, lo))
end

local function check_real(self, name, x)
  if type(x) ~= "number" then
    errors.raise("TypeError", ("%s: %s must be a number, got %s"):format(
      self.__name, name, text.describe(x)))
  end
  self[name] = x
end

-- Values of all variables, to put back later.
local function copy_weights(model)
  local list = {}
  for i, v in ipairs(model.variables) do
    list[i] = { v, v:read_value() }
  end
  return list
end

local function restore_weights(list)
  for _, entry in ipairs(list) do
    entry[1]:assign(entry[2])
  end
end

--- Stop when `monitor` has not become better by min_delta for `patience`
--- epochs; restore_best_weights goes back to the best epoch then.
--- Source: tf.keras.callbacks.EarlyStopping
M.EarlyStopping = base.define("EarlyStopping", "monitor='val_loss' min_delta=0 "
  .. "patience=0 verbose=0 mode='auto' baseline=nil "
  .. "restore_best_weights=false start_from_epoch=0",
  function(self, monitor, min_delta, patience, verbose, mode, baseline,
      restore_best, start)
    self.monitor = base.check_string(self, "monitor", monitor)
    check_real(self, "min_delta", min_delta)
    check_count(self, "patience", patience, 0)
    check_count(self, "start_from_epoch", start, 0)
    self.verbose, self.restore_best_weights = verbose, restore_best
    self.min_delta = math.abs(min_delta)
    if baseline ~= nil then
      check_real(self, "baseline", baseline)
    end
    self.better, self.worst, self.mode = base.comparison(self, mode)
  end)

function M.EarlyStopping:on_train_begin()
  self.wait, self.stopped_epoch, self.best_epoch = 0, 0, 0
  self.best, self.best_weights = self.worst, nil
end

local function improved(self, value, than)
  local delta = self.mode == "max" and -self.min_delta or self.min_delta
  return self.better(value + delta, than)
end

function M.EarlyStopping:on_epoch_end(epoch, logs)
  local current = base.monitored(self, logs)
  if current == nil or epoch < self.start_from_epoch then
    return
  elseif self.restore_best_weights and self.best_weights == nil then
    self.best_weights, self.best_epoch = copy_weights(self.model), epoch
  end
  self.wait = self.wait + 1
  if improved(self, current, self.best) then
    self.best, self.best_epoch = current, epoch
    if self.restore_best_weights then
      self.best_weights = copy_weights(self.model)
    end
    if self.baseline == nil or improved(self, current, self.baseline) then
      self.wait = 0
      return
    end
  end
  if self.wait >= self.patience and epoch > 0 then
    self.stopped_epoch = epoch
    self.model.stop_training = true
  end
end

function M.EarlyStopping:on_train_end()
  if self.stopped_epoch > 0 and self.verbose > 0 then
    base.say(self, "Epoch %d: early stopping", self.stopped_epoch + 1)
  end
  if self.restore_best_weights and self.best_weights ~= nil then
    if self.verbose > 0 then
      base.say(self, "Restoring model weights from the end of the best epoch: "
        .. "%d.", self.best_epoch + 1)
    end
    restore_weights(self.best_weights)
    self.best_weights = nil
  end
end

-- Learning rates -------------------------------------------------------------

--- The learning rate of each epoch is schedule(epoch, lr), epochs from 0.
--- Source: tf.keras.callbacks.LearningRateScheduler
M.LearningRateScheduler = base.define("LearningRateScheduler",
  "schedule:table verbose=0", function(self, schedule, verbose)
    text.check_callable("LearningRateScheduler", "schedule", schedule)
    rawset(self, "schedule", schedule)
    self.verbose = verbose
  end)

function M.LearningRateScheduler:on_epoch_begin(epoch)
  local lr = self.schedule(epoch, rates.get(self.model.optimizer))
  if type(lr) == "userdata" then
    lr = lr:item()
  end
  if type(lr) ~= "number" then
    errors.raise("ValueError", "LearningRateScheduler: The output of the "
      .. "`schedule` function should be a number, got " .. text.describe(lr))
  end
  rates.set(self.model.optimizer, lr, self.__name)
  if self.verbose > 0 then
    base.say(self, "Epoch %d: LearningRateScheduler setting learning rate to "
      .. "%s.", epoch + 1, text.number(lr))
  end
end

function M.LearningRateScheduler:on_epoch_end(_, logs)
  logs.learning_rate = rates.get(self.model.optimizer)
end

--- Multiply the learning rate by factor when `monitor` has not become better
--- for `patience` epochs, down to min_lr.
--- Source: tf.keras.callbacks.ReduceLROnPlateau
M.ReduceLROnPlateau = base.define("ReduceLROnPlateau", "monitor='val_loss' "
  .. "factor=0.1 patience=10 verbose=0 mode='auto' min_delta=0.0001 cooldown=0 "
  .. "min_lr=0", function(self, monitor, factor, patience, verbose, mode,
      min_delta, cooldown, min_lr)
    self.monitor = base.check_string(self, "monitor", monitor)
    check_real(self, "factor", factor)
    if factor >= 1 then
      errors.raise("ValueError", "ReduceLROnPlateau does not support a factor "
        .. ">= 1.0. Got " .. text.number(factor))
    end
    check_count(self, "patience", patience, 0)
    check_count(self, "cooldown", cooldown, 0)
    check_real(self, "min_delta", min_delta)
    check_real(self, "min_lr", min_lr)
    self.verbose = verbose
    self.better, self.worst, self.mode = base.comparison(self, mode)
  end)

function M.ReduceLROnPlateau:on_train_begin()
  self.best, self.wait, self.cooldown_counter = self.worst, 0, 0
end

local function lower_rate(self, epoch)
  local old = rates.get(self.model.optimizer)
  if old <= self.min_lr then
    return
  end
  local new = math.max(old * self.factor, self.min_lr)
  rates.set(self.model.optimizer, new, self.__name)
  if self.verbose > 0 then
    base.say(self, "Epoch %d: ReduceLROnPlateau reducing learning rate to %s.",
      epoch + 1, text.number(new))
  end
  self.cooldown_counter, self.wait = self.cooldown, 0
end

function M.ReduceLROnPlateau:on_epoch_end(epoch, logs)
  logs.learning_rate = rates.get(self.model.optimizer)
  local current = base.monitored(self, logs)
  if current == nil then
    return
  end
  if self.cooldown_counter > 0 then
    self.cooldown_counter, self.wait = self.cooldown_counter - 1, 0
  end
  if improved(self, current, self.best) then
    self.best, self.wait = current, 0
  elseif self.cooldown_counter <= 0 then
    self.wait = self.wait + 1
    if self.wait >= self.patience then
      lower_rate(self, epoch)
    end
  end
end

return M
