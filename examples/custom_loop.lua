#!/usr/bin/env tfdist
--- A training loop of one's own on several devices, on Fashion-MNIST.
---
--- usage: tfdist --cpu-devices=2 examples/custom_loop.lua [--epochs 2]
---        [--accumulate 1] [--clip 0]
---
--- prints (with --epochs=1 --limit=3840):
---   epoch 1  loss …  accuracy 0.…  test accuracy 0.…
--- Every device trains on its share of each batch; with --accumulate 4 it adds
--- up the gradients of 4 batches before each update, and --clip 1 bounds the
--- norm of what all devices have added up. Two epochs reach about 0.85.
local tf = require "tfdist"

local opt = tf.flags({ epochs = 2, batch_per_replica = 64, limit = 60000,
  accumulate = 1, clip = 0 }, { types = { clip = "float" } })

local strategy = tf.distribute.MirroredStrategy() -- all devices of this process
local replicas = strategy.num_replicas_in_sync
local GLOBAL_BATCH = opt.batch_per_replica * replicas

local x_train, y_train, x_test, y_test =
  assert(tf.keras.datasets.fashion_mnist.load_data())

local function pixels(x)
  return tf.reshape(tf.cast(x, "float32"), { -1, 784 }) / 255
end

local w1, b1, w2, b2, optimizer, correct = strategy:scope(function()
  tf.random.set_seed(1)
  return tf.Variable(tf.random.normal({ 784, 128 }, 0, 0.05), { name = "w1" }),
    tf.Variable(tf.zeros { 128 }, { name = "b1" }),
    tf.Variable(tf.random.normal({ 128, 10 }, 0, 0.1), { name = "w2" }),
    tf.Variable(tf.zeros { 10 }, { name = "b2" }),
    tf.keras.optimizers.Adam { learning_rate = 1e-3,
      global_clipnorm = opt.clip > 0 and opt.clip or nil },
    -- every replica counts for itself; reading adds the counts up
    tf.Variable(0, { dtype = "int64", synchronization = "ON_READ",
      aggregation = "SUM", name = "correct" })
end)
local vars = { w1, b1, w2, b2 }
optimizer:build(vars) -- a traced function makes variables in its first call only

-- What this replica's gradients of earlier batches add up to.
local sums = strategy:scope(function()
  local list = {}
  for k, v in ipairs(vars) do
    list[k] = tf.Variable(tf.zeros(v.shape), { trainable = false,
      synchronization = "ON_READ", aggregation = "SUM", name = "sum" .. k })
  end
  return list
end)

local function logits_of(x)
  return tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2
end

-- Update by the mean of `accumulate` batches' gradients; `complete` says that
-- these are the last of them. Devices exchange nothing until then.
local function apply(grads, complete)
  if opt.accumulate > 1 then
    for k, sum in ipairs(sums) do sum:assign_add(grads[k] / opt.accumulate) end
    grads = sums
  end
  if complete then
    optimizer:apply_gradients(grads, vars) -- all-reduce here
    for _, sum in ipairs(sums) do sum:assign(tf.zeros(sum.shape)) end
  end
end

-- runs once on every replica; images and labels are this replica's share
local function train_step(images, labels, complete)
  local tape, loss = tf.GradientTape(function()
    local logits = logits_of(pixels(images))
    correct:assign_add(tf.math.count_nonzero(tf.equal(
      tf.argmax(logits, { axis = -1 }), tf.cast(labels, "int64"))))
    return tf.nn.compute_average_loss(
      tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
      { global_batch_size = GLOBAL_BATCH })
  end)
  apply(tape:gradient(loss, vars), complete)
  return loss
end

-- The whole step, traced once for each `complete`: from then on the devices run
-- it without Lua. Returns the loss of the global batch.
local distributed_step = tf.function_(function(rows, complete)
  local loss = strategy:run(function(own)
    return train_step(tf.gather(x_train, own), tf.gather(y_train, own),
      complete)
  end, { rows })
  return strategy:reduce("sum", loss)
end)

local count = math.min(opt.limit, #x_train)
local steps = math.floor(count / GLOBAL_BATCH)

for epoch = 1, opt.epochs do
  local order = tf.random.shuffle(tf.range(count))
  local total = 0
  correct:assign(0)
  for step = 0, steps - 1 do
    -- this step's rows, a PerReplica value
    local rows = strategy:experimental_distribute_values_from_function(
      function(context)
        local first = step * GLOBAL_BATCH
          + context.replica_id_in_sync_group * opt.batch_per_replica
        return order[{ { first, first + opt.batch_per_replica } }]
      end)
    local complete = (step + 1) % opt.accumulate == 0
    total = total + distributed_step(rows, complete):item()
  end
  local right = tf.equal(tf.argmax(logits_of(pixels(x_test)), { axis = -1 }),
    tf.cast(y_test, "int64"))
  print(("epoch %d  loss %.4f  accuracy %.4f  test accuracy %.4f"):format(epoch,
    total / steps, correct:read_value():item() / (steps * GLOBAL_BATCH),
    tf.reduce_mean(tf.cast(right, "float32")):item()))
end
