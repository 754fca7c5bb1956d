#!/usr/bin/env tfdist
--- Save while training, stop, start again and go on where it stopped; on
--- another number of devices, if you like.
---
--- usage: tfdist --cpu-devices=2 examples/resume.lua [--dir=ckpt/resume]
---          [--steps=30]
--- Run it again: each run goes on for `steps` more.
---
--- prints (with --fresh):
---   starting fresh: …
---   2 replicas, step 10, loss …
---   2 replicas, step 20, loss …
---   2 replicas, step 30, loss …
---   saved …ckpt-3
local tf = require "tfdist"

local opt = tf.flags {
  dir = "ckpt/resume", steps = 30, every = 10, fresh = false, seed = 1,
}
tf.random.set_seed(opt.seed)

local strategy = tf.distribute.MirroredStrategy()
local replicas = strategy.num_replicas_in_sync
local weights, count, optimizer = strategy:scope(function()
  return tf.Variable(tf.zeros { 8, 1 }, { name = "weights" }),
    tf.Variable(0, { name = "count", dtype = "int64", trainable = false,
      aggregation = "ONLY_FIRST_REPLICA" }),
    tf.keras.optimizers.Adam { learning_rate = 0.05 }
end)

local checkpoint = tf.train.Checkpoint {
  weights = weights, count = count, optimizer = optimizer,
}
local manager = tf.train.CheckpointManager(checkpoint, opt.dir,
  { max_to_keep = 3 })
-- nil and the reason when there is none
local restored, why
if opt.fresh then
  why = "asked for"
else
  restored, why = checkpoint:restore(manager.latest_checkpoint)
end
print(restored and "resumed at step " .. count:item()
  or "starting fresh: " .. why)

local target = tf.reshape(tf.range(8, { dtype = "float32" }), { 8, 1 })
local function step()
  local x = tf.random.normal { 32, 8 }
  local tape, loss = tf.GradientTape(function()
    return tf.reduce_mean(tf.square(tf.matmul(x, weights)
      - tf.matmul(x, target))) / replicas
  end)
  optimizer:apply_gradients(tape:gradient(loss, { weights }), { weights })
  count:assign_add(1)
  return loss
end

local train = tf.function_(function()
  return strategy:reduce("SUM", strategy:run(step))
end)

local saved
for i = 1, opt.steps do
  local loss = train()
  if i % opt.every == 0 then
    print(("%d replicas, step %d, loss %.3f"):format(replicas, count:item(),
      loss:item()))
    saved = manager:save()
  end
end
print("saved " .. tostring(saved))
