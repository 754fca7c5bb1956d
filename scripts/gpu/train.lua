-- usage: train.lua N|all: trains on that many GPUs, and on the CPU; the losses
-- must be equal within 1e-4.
local tf = require "tfdist"
local L = tf.keras.layers

local n = arg[1] == "all" and #tf.config.list_logical_devices "GPU"
  or tonumber(arg[1])

local function losses(devices)
  tf.random.set_seed(3)
  local strategy = tf.distribute.MirroredStrategy { devices = devices }
  local model = strategy:scope(function()
    local m = tf.keras.Sequential {
      L.Conv2D(4, 3, { activation = "relu", input_shape = { 8, 8, 1 } }),
      L.MaxPooling2D(), L.Flatten(), L.Dense(16, { activation = "tanh" }),
      L.Dense(10),
    }
    m:compile { optimizer = "adam",
      loss = tf.keras.losses.SparseCategoricalCrossentropy {
        from_logits = true } }
    return m
  end)
  local x, y = nil, {}
  tf.device("/cpu:0", function()
    x = tf.random.stateless_normal({ 64, 8, 8, 1 }, { 1, 2 })
  end)
  for i = 1, 64 do y[i] = (i * 7) % 10 end
  print(strategy)
  return model:fit(x, tf.constant(y, { dtype = "int32" }),
    { batch_size = 16, epochs = 3, verbose = 0, shuffle = false }).history.loss
end

local gpus = {}
for i = 1, n do gpus[i] = "/gpu:" .. i - 1 end
local want, got = losses { "/cpu:0" }, losses(gpus)
for i = 1, 3 do
  print(want[i], got[i])
  local apart = math.abs(want[i] - got[i]) / want[i]
  assert(apart < 1e-4, "losses differ")
end
