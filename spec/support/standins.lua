--- GPUs that are none, for specs: the plug-ins for CUDA and NCCL with the
--- libraries of spec/support/cuda behind them, in processes of their own.
local process = require "spec.support.process"

local M = {}

M.FOLDER = process.build .. "/standin"
M.CUDA = process.build .. "/plugins/tfdist_cuda.so"
M.NCCL = process.build .. "/plugins/tfdist_nccl_2.so"
M.HOST = process.build .. "/tfdist"

function M.exists(path)
  local f = io.open(path)
  if f then f:close() end
  return f ~= nil
end

--- Run a script of this text: what it prints, and what goes to stderr.
function M.script(text, environment)
  local path = process.file(text, ".lua")
  local result = process.run(("env %s %s %s"):format(environment, M.HOST, path))
  os.remove(path)
  return result
end

--- With two GPUs; more = other variables.
function M.run(text, more)
  return M.script(text, ("TFDIST_PLUGINS=%s:%s TFDIST_CUDA_STANDIN=%s "
    .. "TFDIST_STRICT_FP32=1 TFD_STANDIN_DEVICES=2 %s"):format(M.CUDA, M.NCCL,
    M.FOLDER, more or ""))
end

-- %s = an expression of a strategy.
local TRAINING = [[
local tf = require "tfdist"
local L = tf.keras.layers
tf.random.set_seed(3)
local strategy = %s
local model = strategy:scope(function()
  local m = tf.keras.Sequential {
    L.Conv2D(4, 3, { activation = "relu", input_shape = { 8, 8, 1 } }),
    L.MaxPooling2D(), L.Flatten(), L.Dense(16, { activation = "tanh" }),
    L.Dense(10),
  }
  m:compile { optimizer = "adam", metrics = { "accuracy" },
    loss = tf.keras.losses.SparseCategoricalCrossentropy {
      from_logits = true } }
  return m
end)
local x = tf.device("/cpu:0", function()
  return tf.random.stateless_normal({ 64, 8, 8, 1 }, { 1, 2 })
end)
local y = {}
for i = 1, 64 do y[i] = (i * 7) %% 10 end
local history = model:fit(x, tf.constant(y, { dtype = "int32" }),
  { batch_size = 16, epochs = 3, verbose = 0, shuffle = false })
print(table.concat(history.history.loss, " "))
]]

--- A program that prints the losses of one training in that strategy.
function M.training(strategy)
  return TRAINING:format(strategy)
end

--- The same in a MirroredStrategy on the devices that %s names.
M.TRAINING = TRAINING:gsub("%%s", function()
  return "tf.distribute.MirroredStrategy { devices = { %s } }"
end, 1)

function M.numbers(text)
  local list = {}
  for number in text:gmatch "%S+" do list[#list + 1] = tonumber(number) end
  return list
end

--- The difference of two trainings' losses, "" = there is none.
function M.apart(want, got)
  want, got = M.numbers(want), M.numbers(got)
  if #want ~= 3 or #got ~= 3 then
    return ("%d and %d losses"):format(#want, #got)
  end
  for i = 1, #want do
    local apart = math.abs(want[i] - got[i])
    if apart ~= apart or apart >= 1e-4 * want[i] then
      return ("epoch %d: %s on the CPU, %s on GPUs"):format(i, want[i], got[i])
    end
  end
  return ""
end

return M
