--- The TensorBoard callback: event files through tf.summary.
local base = require "tfdist.keras.callbacks.base"
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local rates = require "tfdist.keras.callbacks.rates"
local summary = require "tfdist.train.summary"
local text = require "tfdist.base.text"

local M = {}

local type = type

--- Write losses and metrics of each epoch (with update_freq also of batches)
--- for TensorBoard: log_dir/train and log_dir/validation; with histogram_freq
--- the weights too. Graphs and profiles are not written.
--- Errors: NotImplementedError for write_images, embeddings and profile_batch.
--- Source: tf.keras.callbacks.TensorBoard
M.TensorBoard = base.define("TensorBoard", "log_dir='logs' histogram_freq=0 "
  .. "write_graph=true write_images=false write_steps_per_second=false "
  .. "update_freq='epoch' profile_batch=0 embeddings_freq=0 "
  .. "embeddings_metadata=nil", function(self, log_dir, histogram_freq, _,
      write_images, steps_per_second, update_freq, profile_batch,
      embeddings_freq)
    self.log_dir = base.check_path(self, "log_dir", log_dir)
    self.histogram_freq = options.integer("TensorBoard", "histogram_freq",
      histogram_freq, 0)
    for name, used in pairs { write_images = write_images,
      profile_batch = profile_batch ~= 0 and profile_batch,
      embeddings_freq = embeddings_freq ~= 0 } do
      if used then
        errors.raise("NotImplementedError", "TensorBoard: " .. name
          .. " is not implemented")
      end
    end
    if update_freq == "batch" then
      update_freq = 1
    elseif update_freq ~= "epoch" then
      if type(update_freq) ~= "number" then
        errors.raise("ValueError", "TensorBoard: update_freq must be \"epoch\","
          .. " \"batch\" or a number of batches, got "
          .. text.describe(update_freq))
      end
      options.integer("TensorBoard", "update_freq", update_freq, 1)
    end
    self.update_freq, self.write_steps_per_second = update_freq,
      steps_per_second
    self.ignores_batch_logs = update_freq == "epoch"
  end)

local function writer_of(self, name)
  if self.writers[name] == nil then
    self.writers[name] = summary.create_file_writer(self.log_dir .. "/"
      .. name)
  end
  return self.writers[name]
end

function M.TensorBoard:on_train_begin()
  self.writers, self.step = {}, 0
  local extended = contexts.get_strategy().extended
  self.off = extended.should_save_summary == false
end

-- Write pairs name -> number under prefix .. name.
local function scalars(self, writer, prefix, logs, step)
  writer_of(self, writer):as_default(function()
    for name, value in pairs(logs) do
      if type(value) == "number" then
        summary.scalar(prefix .. name, value, { step = step })
      end
    end
  end)
end

function M.TensorBoard:on_train_batch_end(_, logs)
  self.step = self.step + 1
  if not self.off and self.update_freq ~= "epoch"
    and self.step % self.update_freq == 0 then
    scalars(self, "train", "batch_", logs, self.step)
  end
end

-- Some variables are read by all workers together, whoever writes them.
local function histograms(self, epoch)
  local function each(write)
    for _, v in ipairs(self.model.variables) do
      write(v.name, v:read_value(), { step = epoch })
    end
  end
  if self.off then
    return each(function() end)
  end
  writer_of(self, "train"):as_default(function()
    each(summary.histogram)
  end)
end

local function write_logs(self, epoch, logs)
  local train, validation = {}, {}
  for name, value in pairs(logs) do
    local rest = name:match "^val_(.*)$"
    if rest ~= nil then
      validation[rest] = value
    else
      train[name] = value
    end
  end
  local optimizer = self.model.optimizer
  if optimizer ~= nil then
    train.learning_rate = rates.get(optimizer)
  end
  scalars(self, "train", "epoch_", train, epoch)
  if next(validation) ~= nil then
    scalars(self, "validation", "epoch_", validation, epoch)
  end
end

function M.TensorBoard:on_epoch_end(epoch, logs)
  if not self.off then
    write_logs(self, epoch, logs)
  end
  if self.histogram_freq > 0 and epoch % self.histogram_freq == 0 then
    histograms(self, epoch)
  end
  -- A process that dies later loses nothing of this epoch.
  for _, writer in pairs(self.writers) do
    writer:flush()
  end
end

function M.TensorBoard:on_train_end()
  for _, writer in pairs(self.writers) do
    writer:close()
  end
  self.writers = {}
end

return M
