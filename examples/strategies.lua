#!/usr/bin/env tfdist
--- A tour of distribution strategies, small enough for the prompt.
---
--- usage: tfdist --cpu-devices=4 examples/strategies.lua
---
--- The strategy, a variable with its copies, what each replica computed, sums
--- and means across replicas, what replicas tell each other inside a step, one
--- training step, and what a mistake looks like.
---
--- prints:
---   MirroredStrategy{ /cpu:0, /cpu:1 }  2 replicas in sync…
---   MirroredVariable "v" float32 {} = 1   on /cpu:0 /cpu:1 (equal)
---   PerReplica{
---     0  /cpu:0  0
---     1  /cpu:1  10
---   }
---   sum 10, mean 5
---   …
local tf = require "tfdist"

-- 1. A strategy: one replica of the computation on each device.
local strategy = tf.distribute.MirroredStrategy()
local replicas = strategy.num_replicas_in_sync
print(strategy)

-- 2. Variables made in its scope have a copy on every device.
local v = strategy:scope(function()
  return tf.Variable(1.0, { name = "v", aggregation = "MEAN" })
end)
print(v)

local function context()
  return tf.distribute.get_replica_context()
end

-- 3. run calls a function once for each replica; results that differ come back
-- as one PerReplica value.
local tens = strategy:run(function()
  return context().replica_id_in_sync_group * 10
end)
print(tens)

-- 4. Across replicas: reduce gives one tensor, gather joins.
print(("sum %g, mean %g"):format(strategy:reduce("sum", tens):item(),
  strategy:reduce("mean", tens):item()))
local rows = strategy:run(function()
  return tf.ones { context().replica_id_in_sync_group + 1 }
end)
print(("rows in all: %d"):format(#strategy:gather(rows, 0)))

-- 5. Inside the function all_reduce does the same for everybody at once.
local shares = strategy:run(function()
  local mine = tf.constant(context().replica_id_in_sync_group + 1.0)
  return mine / context():all_reduce("sum", mine)
end)
print(("the shares add up to %g"):format(strategy:reduce("sum", shares):item()))

-- 6. A write in a replica function is combined by the variable's rule.
strategy:run(function()
  v:assign(tf.constant(context().replica_id_in_sync_group + 0.0))
end)
print(("mean of the replica numbers: %g"):format(v:read_value():item()))

-- 7. A training step: gradients of all replicas are summed by the optimizer.
local w, optimizer = strategy:scope(function()
  return tf.Variable({ 0.0 }, { name = "w" }),
    tf.keras.optimizers.SGD { learning_rate = 0.1 }
end)
strategy:run(function()
  local tape, loss = tf.GradientTape(function()
    return tf.reduce_sum((w - 1) ^ 2) / replicas
  end)
  optimizer:apply_gradients({ tape:gradient(loss, w) }, { w })
end)
print(("w after one step: %g"):format(w:read_value()[0]:item()))

-- 8. Mistakes are told with the replica and the line.
local ok, e = pcall(strategy.run, strategy, function()
  if context().replica_id_in_sync_group == 0 then
    context():all_reduce("sum", 1.0)
  end
end)
if not ok then
  print(e.kind .. ": " .. e.message)
end
