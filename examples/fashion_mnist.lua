#!/usr/bin/env tfdist
--- Train a convolutional network on the real Fashion-MNIST images, the Keras
--- way: on every device of this process.
---
--- usage: tfdist --cpu-devices=2 examples/fashion_mnist.lua [--epochs 6]
---
--- Progress goes to stderr; the last line on stdout is "test accuracy 0.91..".
--- Options: see --help. Six epochs reach 0.90.
local tf = require "tfdist"

local opt = tf.flags {
  epochs = 6, batch_per_replica = 64, seed = 1, limit = 60000, log_dir = "",
  path = "/usr/share/datasets/fashion-mnist",
}

tf.random.set_seed(opt.seed)

local strategy = tf.distribute.MirroredStrategy() -- all devices of this process
print("replicas in sync:", strategy.num_replicas_in_sync)

-- nil, message when the files are missing: assert names the package to install
local x_train, y_train, x_test, y_test = assert(
  tf.keras.datasets.fashion_mnist.load_data { path = opt.path })

local function scale(x, y)
  return x:cast("float32"):expand_dims(-1) / 255, y
end

local batch = opt.batch_per_replica * strategy.num_replicas_in_sync
local train = tf.data.Dataset.from_tensor_slices { x_train, y_train }
  :take(opt.limit):shuffle(#x_train, { seed = opt.seed }):batch(batch)
  :map(scale):prefetch()
local test = tf.data.Dataset.from_tensor_slices { x_test, y_test }
  :batch(batch):map(scale)

local layers = tf.keras.layers
local model = strategy:scope(function()
  local m = tf.keras.Sequential {
    layers.Conv2D(32, 3, { activation = "relu", input_shape = { 28, 28, 1 } }),
    layers.MaxPooling2D(),
    layers.Flatten(),
    layers.Dense(64, { activation = "relu" }),
    layers.Dense(10),
  }
  m:compile {
    optimizer = tf.keras.optimizers.Adam { learning_rate = 1e-3 },
    loss = tf.keras.losses.SparseCategoricalCrossentropy { from_logits = true },
    metrics = { "accuracy" },
  }
  return m
end)
model:summary()

local callbacks = {
  { on_epoch_end = function(self, _, logs) -- any table with on_* functions
      if logs.val_accuracy > 0.93 then self.model.stop_training = true end
    end },
}
if opt.log_dir ~= "" then
  table.insert(callbacks, tf.keras.callbacks.ModelCheckpoint {
    filepath = opt.log_dir .. "/ckpt", save_best_only = true,
  })
  table.insert(callbacks,
    tf.keras.callbacks.TensorBoard { log_dir = opt.log_dir })
end

model:fit(train, {
  epochs = opt.epochs, validation_data = test, callbacks = callbacks,
})
print(("test accuracy %.4f"):format(
  model:evaluate(test, { return_dict = true }).accuracy))
