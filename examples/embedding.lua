#!/usr/bin/env tfdist
--- Word vectors with sparse gradients: only the rows that were used move.
---
--- usage: tfdist --cpu-devices=2 examples/embedding.lua [--steps=200]
---
--- prints:
---   gradient: IndexedSlices of 96 rows for a table of 10000
---   step 100  loss …
---   step 200  loss …
---   nearest to 4: …5…
---   rows that moved: 50
--- Numbers that occur near each other end up near each other: the list names
--- neighbours of 4.
local tf = require "tfdist"

local opt = tf.flags {
  words = 10000, used = 50, size = 8, batch = 64, steps = 200, seed = 1,
}
tf.random.set_seed(opt.seed)

local strategy = tf.distribute.MirroredStrategy()
local replicas = strategy.num_replicas_in_sync
local vectors, optimizer = strategy:scope(function()
  return tf.Variable(tf.random.normal({ opt.words, opt.size }, 0, 0.1),
      { name = "vectors" }),
    tf.keras.optimizers.Adagrad { learning_rate = 0.5 }
end)
local before = tf.identity(vectors)

-- A pair of neighbours, and a pair of words that have nothing in common.
local function draw(n)
  local word = tf.random.uniform({ n }, 0, opt.used - 1, "int32")
  return word, word + 1, tf.random.uniform({ n }, 0, opt.used, "int32")
end

local told = false
local function step()
  local n = math.floor(opt.batch / replicas)
  local word, near, any = draw(n)
  local tape, loss = tf.GradientTape(function()
    local w = tf.nn.embedding_lookup(vectors, word)
    local like = tf.reduce_sum(w * tf.nn.embedding_lookup(vectors, near),
      { axis = 1 })
    local unlike = tf.reduce_sum(w * tf.nn.embedding_lookup(vectors, any),
      { axis = 1 })
    return (tf.reduce_sum(tf.nn.softplus(-like) + tf.nn.softplus(unlike)))
      / opt.batch
  end)
  local gradients = tape:gradient(loss, { vectors })
  if not told then
    told = true
    print(("gradient: IndexedSlices of %d rows for a table of %d"):format(
      gradients[1].indices.shape[1], opt.words))
  end
  optimizer:apply_gradients(gradients, { vectors })
  return loss
end

-- The Lua code of the step, its print too, runs in the first call only.
local train = tf.function_(function()
  return strategy:reduce("SUM", strategy:run(step))
end)

for i = 1, opt.steps do
  local loss = train()
  if i % 100 == 0 then
    print(("step %d  loss %.3f"):format(i, loss:item()))
  end
end

local table_now = tf.identity(vectors)
local used = table_now[{ { 0, opt.used } }]
local likeness = tf.linalg.matvec(used, used[4])
local _, order = tf.math.top_k(likeness, 6)
local names = {}
for _, i in ipairs(order:totable()) do
  if i ~= 4 then names[#names + 1] = ("%d"):format(i) end
end
table.sort(names)
print("nearest to 4: " .. table.concat(names, " "))
local moved = tf.reduce_any(tf.not_equal(before, table_now), { axis = 1 })
print(("rows that moved: %d"):format(
  tf.reduce_sum(tf.cast(moved, "int32")):item()))
