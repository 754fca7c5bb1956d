--- One script, one worker or many.
---
--- prints (with --examples 8000 --epochs 2):
---   I am worker 0 of 1 workers
---   trained on 2 replicas, accuracy above a half: true
---
--- Every worker runs this file; MultiWorkerMirroredStrategy finds the others:
---   TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]},
---     "task": {"type": "worker", "index": 0}}' tfdist examples/multi_worker.lua
--- and the same with "index": 1 in another shell, or
---   tfdist run -n 2 examples/multi_worker.lua
---   mpirun -n 2 tfdist examples/multi_worker.lua
--- A run that was interrupted goes on when it is started again.
local tf = require "tfdist"
local flags = tf.flags { epochs = 3, examples = 60000, batch = 256,
  backup = "backup" }

local strategy = tf.distribute.MultiWorkerMirroredStrategy {
  communication_options = tf.distribute.experimental.CommunicationOptions {
    implementation = "auto",             -- "ring" | "nccl" | "mpi"
    timeout_seconds = 120,
  },
}
local info, workers = strategy.cluster_resolver, strategy.extended.num_workers
print(("I am %s %d of %d workers"):format(info.task_type, info.task_id,
  workers))

local function make_dataset(ctx)         -- InputContext: called in every worker
  local batch = ctx:get_per_replica_batch_size(flags.batch)
  local x, y = assert(tf.keras.datasets.fashion_mnist.load_data())
  return tf.data.Dataset.from_tensor_slices { x, y }
    :take(flags.examples)
    :shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    :shuffle(30000):batch(batch, { drop_remainder = true })
    :map(function(img, label)
      return img:cast("float32"):reshape { -1, 784 } / 255, label
    end)
end

local model = strategy:scope(function()
  local m = tf.keras.Sequential {
    tf.keras.layers.Dense(128, { activation = "relu" }),
    tf.keras.layers.Dense(10),
  }
  m:compile { optimizer = "adam", metrics = { "accuracy" },
    loss = tf.keras.losses.SparseCategoricalCrossentropy {
      from_logits = true } }
  return m
end)
local history = model:fit(
  strategy:distribute_datasets_from_function(make_dataset), {
    epochs = flags.epochs,
    callbacks = { tf.keras.callbacks.BackupAndRestore {
      backup_dir = flags.backup } },
  }).history

if strategy.extended.is_chief then
  print(("trained on %d replicas, accuracy above a half: %s"):format(
    strategy.num_replicas_in_sync, history.accuracy[#history.accuracy] > 0.5))
end
