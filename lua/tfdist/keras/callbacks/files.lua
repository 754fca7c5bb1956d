--- Callbacks that write files: checkpoints, tables, backups.
local base = require "tfdist.keras.callbacks.base"
local checkpoints = require "tfdist.train.checkpoint"
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local loop = require "tfdist.keras.training.loop"
local notice = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local preemption = require "tfdist.train.preemption"
local random_seed = require "tfdist.core.random_seed"
local rates = require "tfdist.keras.callbacks.rates"
local raw = require "tfdist.core.raw"
local state = require "tfdist.keras.training.state"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local together = require "tfdist.train.together"
local train = require "tfdist.train"

local M = {}

local type = type

-- File names -----------------------------------------------------------------

-- A number without trailing zeros, as str() shows it.
local function python_number(x)
  return ("%.14g"):format(x)
end

local function format_field(value, spec)
  if spec == "" then
    return type(value) == "number" and python_number(value) or tostring(value)
  end
  local flags, kind = spec:match "^([%d%.]*)([dfeg])$"
  if kind == nil or type(value) ~= "number" then
    return nil
  elseif kind == "d" then
    return ("%" .. flags .. "d"):format(math.floor(value))
  end
  return ("%" .. flags .. kind):format(value)
end

--- "ckpt-{epoch:02d}-{val_loss:.2f}" with values put in, as Python writes them.
--- Errors: KeyError for a name that is not among them.
local function format_path(what, path, fields)
  return (path:gsub("{([^{}:]*):?([^{}]*)}", function(name, spec)
    local value = fields[name]
    if value == nil then
      errors.raise("KeyError", ("%s: Failed to format this callback filepath: "
        .. "%s has no value %s"):format(what, text.quote(path),
        text.quote(name)), "available are "
        .. table.concat(text.names(fields), ", "))
    end
    local shown = format_field(value, spec)
    if shown == nil then
      errors.raise("ValueError", ("%s: the format of {%s:%s} is none of d, f, "
        .. "e and g"):format(what, name, spec))
    end
    return shown
  end))
end

local function note(self, remark)
  local trainer = rawget(self, "trainer")
  if trainer ~= nil and trainer.progress ~= nil then
    trainer.progress:note(remark)
  end
end

-- What has just been saved is of this epoch (from 0), whole or up to a batch.
local function saved_at(epoch, batch)
  together.saved_at("after " .. (batch and ("step %d of "):format(batch + 1)
    or "") .. ("epoch %d"):format(epoch + 1))
end

-- ModelCheckpoint ------------------------------------------------------------

--- Save the model's variables, the optimizer's among them, under filepath,
--- after each epoch or every save_freq batches; save_best_only keeps the best
--- `monitor`. filepath may hold {epoch} (from 1) and names of logs:
--- "ckpt-{epoch:02d}-{val_loss:.2f}". model:load_weights(filepath) reads it.
--- Errors: ValueError, KeyError for names that are not there.
--- Source: tf.keras.callbacks.ModelCheckpoint
M.ModelCheckpoint = base.define("ModelCheckpoint", "filepath:s "
  .. "monitor='val_loss' verbose=0 save_best_only=false "
  .. "save_weights_only=false mode='auto' save_freq='epoch' options:table=nil "
  .. "initial_value_threshold=nil", function(self, filepath, monitor, verbose,
      best_only, weights_only, mode, save_freq, _, threshold)
    self.filepath = base.check_path(self, "filepath", filepath)
    self.monitor = base.check_string(self, "monitor", monitor)
    if save_freq ~= "epoch" and not text.is_whole(save_freq) then
      errors.raise("ValueError", "ModelCheckpoint: Unrecognized save_freq: "
        .. text.describe(save_freq) .. ". Expected save_freq are \"epoch\" or "
        .. "a whole number")
    elseif save_freq ~= "epoch" then
      options.integer("ModelCheckpoint", "save_freq", save_freq, 1)
    end
    self.verbose, self.save_freq = verbose, save_freq
    self.save_best_only, self.save_weights_only = best_only, weights_only
    self.better, self.worst = base.comparison(self, mode)
    self.best = threshold or self.worst
    self.batches_seen, self.current_epoch = 0, 0
    -- Logs of batches are read only for those that need them.
    self.ignores_batch_logs = save_freq == "epoch"
  end)

function M.ModelCheckpoint:on_epoch_begin(epoch)
  self.current_epoch = epoch
end

local function save(self, epoch, batch, logs)
  local fields = { epoch = epoch + 1, batch = batch and batch + 1 }
  for name, value in pairs(logs) do
    fields[name] = fields[name] or value
  end
  local path = format_path("ModelCheckpoint", self.filepath, fields)
  if self.save_best_only then
    local current = base.monitored(self, logs)
    if current == nil or not self.better(current, self.best) then
      return
    end
    if self.verbose > 0 then
      base.say(self, "Epoch %d: %s improved from %.5f to %.5f, saving model to "
        .. "%s", epoch + 1, self.monitor, self.best, current, path)
    end
    self.best = current
  elseif self.verbose > 0 then
    base.say(self, "Epoch %d: saving model to %s", epoch + 1, path)
  end
  local written = self.model:save_weights(path)
  saved_at(epoch, batch)
  note(self, "saved " .. (type(written) == "string"
    and written:gsub("%.safetensors$", "") or path))
end

-- Once in save_freq batches, counted over epochs.
local function save_is_due(self)
  if self.save_freq == "epoch" then
    return false
  end
  self.batches_seen = (self.batches_seen + 1) % self.save_freq
  return self.batches_seen == 0
end

function M.ModelCheckpoint:on_train_batch_end(batch, logs)
  if save_is_due(self) then
    save(self, self.current_epoch, batch, logs)
  end
end

function M.ModelCheckpoint:on_epoch_end(epoch, logs)
  if self.save_freq == "epoch" then
    save(self, epoch, nil, logs)
  end
end

-- CSVLogger ------------------------------------------------------------------

--- One line of values for each epoch in a CSV file.
--- Errors: NotFound when the file cannot be opened, ResourceExhausted when the
---   disk is full.
--- Source: tf.keras.callbacks.CSVLogger
M.CSVLogger = base.define("CSVLogger", "filename:s separator=',' append=false",
  function(self, filename, separator, append)
    self.filename = base.check_path(self, "filename", filename)
    self.separator = base.check_string(self, "separator", separator)
    self.append = append
  end)

-- Only the chief's logs go to files.
local function is_chief()
  local ok, first = pcall(function()
    return contexts.get_strategy().extended.should_save_summary
  end)
  return not ok or first ~= false
end

function M.CSVLogger:on_train_begin()
  self.keys = nil
  if not is_chief() then
    return
  end
  local has_header = false
  local folder = self.filename:match "^(.+)/"
  if folder ~= nil then
    raw.folder_make(folder)
  end
  if self.append then
    local old = files.open(self.filename)
    if old ~= nil then
      has_header = (old:read(1) ~= nil)
      old:close()
    end
  end
  local file, why, code = io.open(self.filename, self.append and "a" or "w")
  if file == nil then
    errors.raise(files.is_full(code) and "ResourceExhausted" or "NotFound",
      "CSVLogger: cannot write " .. why)
  end
  self.file, self.has_header = file, has_header
end

local function csv_field(x, separator)
  local s = type(x) == "number" and text.number(x) or tostring(x)
  if type(x) == "table" then
    s = "[" .. table.concat(x, ", ") .. "]"
  end
  if s:find(separator, 1, true) or s:find '["\n]' then
    s = '"' .. s:gsub('"', '""') .. '"'
  end
  return s
end

local function checked(self, ok, why, code)
  if not ok then
    errors.raise(files.is_full(code) and "ResourceExhausted" or "DataLoss",
      ("CSVLogger: cannot write %s: %s"):format(self.filename, why))
  end
end

function M.CSVLogger:on_epoch_end(epoch, logs)
  if self.file == nil then
    return
  end
  if self.keys == nil then
    self.keys = text.names(logs)
    if not self.has_header then
      checked(self, self.file:write("epoch", self.separator,
        table.concat(self.keys, self.separator), "\n"))
    end
  end
  local row = { text.number(epoch) }
  for _, name in ipairs(self.keys) do
    local value = logs[name]
    row[#row + 1] = value == nil and "NA" or csv_field(value, self.separator)
  end
  checked(self, self.file:write(table.concat(row, self.separator), "\n"))
  checked(self, self.file:flush())
end

function M.CSVLogger:on_train_end()
  if self.file ~= nil then
    self.file:close()
    self.file = nil
  end
end

-- BackupAndRestore -----------------------------------------------------------

--- Back up model, optimizer and epoch after each epoch (or every save_freq
--- batches), with metrics and the states of the random numbers and of the data
--- set; a fit that was interrupted goes on at the next epoch (or batch) when the
--- same script runs again, and ends with the bits that it would have ended with.
--- Functions that give batches go on where they begin, caches that were filled
--- from random stages are filled anew, and callbacks remember nothing. The
--- backup is deleted at the end of training unless delete_checkpoint is false.
--- save_before_preemption: after SIGTERM to any worker all back up after the same
--- batch and end with status 42. So they do after an epoch (after
--- TFDIST_RETURN_AFTER epochs) when `tfdist run --min-workers` has left workers
--- out, which come back then.
--- Errors: NotImplementedError under strategies that have no backup; ValueError
---   for a data set with other random stages.
--- Source: tf.keras.callbacks.BackupAndRestore
M.BackupAndRestore = base.define("BackupAndRestore", "backup_dir:s "
  .. "save_freq='epoch' delete_checkpoint=true save_before_preemption=false",
  function(self, backup_dir, save_freq, delete_checkpoint, before_preemption)
    self.backup_dir = base.check_path(self, "backup_dir", backup_dir)
    if save_freq ~= "epoch" then
      options.integer("BackupAndRestore", "save_freq", save_freq, 1)
    end
    self.save_freq, self.delete_checkpoint = save_freq, delete_checkpoint
    self.save_before_preemption = before_preemption
    self.ignores_batch_logs = true
  end)

local function folder_of(self)
  return self.backup_dir .. "/" .. together.BACKUPS
end

local SUPPORTED = {
  DefaultStrategy = true, MirroredStrategy = true, OneDeviceStrategy = true,
  MultiWorkerMirroredStrategy = true, CollectiveAllReduceStrategy = true,
  ParameterServerStrategy = true, TPUStrategy = true,
}

local function check_strategy(strategy)
  if not SUPPORTED[strategy.name] then
    errors.raise("NotImplementedError", "BackupAndRestore only supports empty "
      .. "strategy, MirroredStrategy, MultiWorkerMirroredStrategy, OneDevice "
      .. "and ParameterServerStrategy, got " .. strategy.name)
  end
end

-- What a backup holds beside variables. Read, it waits in `saved`: it counts
-- when the data is where it was.
local Position = { __name = "position of a fit" }
Position.__index = Position

function Position:__checkpoint_state()
  return {
    random = random_seed.state(), data = loop.position(self.own, self.within),
    learning_rate = rates.settable(self.own.optimizer),
  }
end

function Position:__checkpoint_restore(saved)
  self.saved = saved
end

-- The compiled metrics, many of which the first step makes.
local Metrics = { __name = "metrics of a fit" }

function Metrics:__checkpoint_children()
  local own = self.own
  local list = { { "loss", own.loss_tracker } }
  for i, tracker in pairs(own.trackers or {}) do
    list[#list + 1] = { "output_" .. i - 1, tracker }
  end
  for i, metric in ipairs(own.metrics_made or {}) do
    list[#list + 1] = { "metric_" .. i - 1, metric }
  end
  return list
end

-- A schedule's rate follows from the step; another may have been changed.
local function go_on(self, own)
  local saved = self.position.saved or {}
  own.resume = {
    epoch = self.epoch:read_value():item() + 1,
    step = self.batch:read_value():item() + 1,
    random = saved.random, data = saved.data,
  }
  if saved.learning_rate ~= nil
    and rates.settable(own.optimizer) ~= nil then
    rates.set(own.optimizer, saved.learning_rate, self.__name)
  end
  function own.on_metrics()
    checkpoints.settle(self.metrics)
  end
end

function M.BackupAndRestore:on_train_begin()
  local own = state.of(self.model)
  check_strategy(own.strategy)
  if self.save_before_preemption then
    preemption.watch()
  end
  -- The last epoch that is over, and the last batch of the one after it.
  for _, name in ipairs { "epoch", "batch" } do
    self[name] = tf.Variable(-1, { dtype = "int64", trainable = false,
      name = "backup/" .. name, aggregation = "ONLY_FIRST_REPLICA" })
  end
  self.position = setmetatable({ own = own }, Position)
  self.metrics = setmetatable({ own = own }, Metrics)
  local checkpoint = train.Checkpoint { model = self.model,
    optimizer = self.model.optimizer, epoch = self.epoch, batch = self.batch,
    position = self.position, metrics = self.metrics,
    generator = tf.random.get_global_generator() }
  getmetatable(checkpoint).__checkpoint_exact(checkpoint, true)
  self.manager = train.CheckpointManager(checkpoint,
    folder_of(self), { max_to_keep = 1 })
  own.on_metrics = nil
  self.model:reset_metrics()
  if self.manager:restore_or_initialize() ~= nil then
    go_on(self, own)
  end
  self.batches_seen, self.current_epoch = 0, -1
  self.return_after = preemption.epochs_until_return()
end

-- All other callbacks have seen the end of the epoch before.
function M.BackupAndRestore:on_epoch_begin(epoch)
  self.current_epoch = epoch
  if self.return_after == 0 then
    if is_chief() then
      preemption.say_return(("epoch %d is over and backed up"):format(epoch))
    end
    preemption.exit()
  end
end

-- After an epoch, or a batch of it.
local function back_up(self, epoch, batch)
  self.position.within = batch ~= nil
  self.epoch:assign(tf.constant(batch and epoch - 1 or epoch, "int64"))
  self.batch:assign(tf.constant(batch or -1, "int64"))
  self.manager:save()
  saved_at(epoch, batch)
end

function M.BackupAndRestore:on_train_batch_end(batch)
  local asked = self.save_before_preemption
    and preemption.agreed(state.of(self.model).strategy)
  if asked or save_is_due(self) then
    back_up(self, self.current_epoch, batch)
  end
  if asked then
    if is_chief() then
      notice.say(("asked to end: backed up after batch %d of epoch %d"):format(
        batch + 1, self.current_epoch + 1))
    end
    preemption.exit()
  end
end

function M.BackupAndRestore:on_epoch_end(epoch)
  self.return_after = self.return_after and self.return_after - 1
  if self.save_freq == "epoch" or self.return_after == 0 then
    back_up(self, epoch)
  end
end

local function delete_backup(self)
  local strategy = state.of(self.model).strategy
  together.forget(self.manager.latest_checkpoint)
  if not strategy.extended.should_checkpoint then
    return
  end
  getmetatable(self.manager).__clear(self.manager)
  os.remove(folder_of(self))
  os.remove(self.backup_dir)
end

function M.BackupAndRestore:on_train_end()
  if self.delete_checkpoint then
    delete_backup(self)
  end
  self.manager, self.position, self.metrics = nil, nil, nil
  state.of(self.model).on_metrics = nil
end

return M
