--- tf.keras.callbacks: what happens around epochs and batches.
local base = require "tfdist.keras.callbacks.base"
local files = require "tfdist.keras.callbacks.files"
local control = require "tfdist.keras.callbacks.control"
local pairs = require "tfdist.base.pairs"
local tensorboard = require "tfdist.keras.callbacks.tensorboard"

local M = { Callback = base.Callback, is_callback = base.is_callback }

for _, family in ipairs { files, control, tensorboard } do
  for name, class in pairs(family) do
    M[name] = class
  end
end

return M
