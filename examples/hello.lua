#!/usr/bin/env tfdist
--- Tensors, gradients and devices in twenty lines.
---
--- usage: tfdist --cpu-devices=2 examples/hello.lua
---
--- prints:
---   Tensor float32 {2, 2} /cpu:0
---   …
---   d(x^3)/dx at 2 = 12
---   computed on /job:localhost/replica:0/task:0/device:CPU:1: 4096
---   2 replicas add up: 3
local tf = require "tfdist"

local a = tf.constant { { 1, 2 }, { 3, 4 } }
print(tf.matmul(a, a) + 1)

local x = tf.Variable(2)
local tape, y = tf.GradientTape(function() return x ^ 3 end)
print(("d(x^3)/dx at 2 = %g"):format(tape:gradient(y, x):item()))

local b = tf.device("/cpu:1", function()
  local ones = tf.ones { 64, 64 }
  return tf.matmul(ones, ones)
end)
print(("computed on %s: %g"):format(b.device, tf.reduce_sum(b[0]):item()))

local strategy = tf.distribute.MirroredStrategy()
local id = strategy:run(function()
  return tf.distribute.get_replica_context().replica_id_in_sync_group + 1
end)
print(("%d replicas add up: %g"):format(strategy.num_replicas_in_sync,
  strategy:reduce("SUM", id):item()))
