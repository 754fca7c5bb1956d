#!/usr/bin/env tfdist
--- Train a convolutional network on the real Fashion-MNIST images, the Keras
--- way: on every device of this process.
---
--- usage: tfdist --cpu-devices=2 examples/fashion_mnist.lua [--epochs 6]
---
--- Progress goes to stderr. The best weights are kept in runs/fashion, and what
--- TensorBoard shows. Options: see --help. Six epochs reach 0.90.
---
--- prints (with --epochs 1 --limit 12800):
---   replicas in sync:…2
---   Sequential "model"…
---   …
---    total 347,146 (1.32 MiB), trainable 347,146, per replica
---   test accuracy 0.…
---   the same checkpoint on one device 0.…
local tf = require "tfdist"

local opt = tf.flags {
  epochs = 6, batch_per_replica = 64, seed = 1, limit = 60000,
  log_dir = "runs/fashion", path = "/usr/share/datasets/fashion-mnist",
}

tf.random.set_seed(opt.seed)

local strategy = tf.distribute.MirroredStrategy() -- all devices of this process
print(("replicas in sync: %d"):format(strategy.num_replicas_in_sync))

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
local function make_model()
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
end

local model = strategy:scope(make_model)
model:summary()

model:fit(train, {
  epochs = opt.epochs,
  validation_data = test,
  callbacks = {
    tf.keras.callbacks.ModelCheckpoint {
      filepath = opt.log_dir .. "/ckpt", save_best_only = true,
    },
    tf.keras.callbacks.TensorBoard { log_dir = opt.log_dir },
    { on_epoch_end = function(self, _, logs) -- any table with on_* functions
        if logs.val_accuracy > 0.93 then self.model.stop_training = true end
      end },
  },
})
local accuracy = model:evaluate(test, { return_dict = true }).accuracy
print(("test accuracy %.4f"):format(accuracy))

-- What was trained on all devices runs on one.
local path = model:save_weights(opt.log_dir .. "/weights")
local single = tf.distribute.OneDeviceStrategy("/cpu:0"):scope(function()
  local m = make_model()
  assert(m:load_weights(path))
  return m
end)
local again = single:evaluate(test, { return_dict = true }).accuracy
print(("the same checkpoint on one device %.4f"):format(again))
