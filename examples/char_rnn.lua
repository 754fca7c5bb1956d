#!/usr/bin/env tfdist
--- A recurrent network that learns to write like a text file, letter by letter.
---
--- usage: tfdist --cpu-devices=2 examples/char_rnn.lua [--file=…/LICENSE]
---          [--steps=300] [--sample=200] …   (see --help)
---
--- prints (with --steps=40 --units=64 --sample=40):
---   11… letters, … kinds, … parameters
---   step 20  loss 3.…
---   step 40  loss …
---   sample:
---   …
--- With the default 300 steps the loss falls to about 1.3, and the sample has
--- words in it.
local tf = require "tfdist"

-- The library's licence lies beside the folder of this script.
local here = (arg[0]:match "^(.*)/" or ".") .. "/.."
local opt = tf.flags {
  file = here .. "/LICENSE", steps = 300, every = 20, units = 128, length = 50,
  batch = 32, sample = 200, temperature = 0.8, seed = 1,
}
tf.random.set_seed(opt.seed)

-- The text as numbers; letters count from 0, in the order of their bytes.
local file = assert(io.open(opt.file, "rb"))
local text = file:read "*a"
file:close()
local letters, number_of = {}, {}
for byte = 0, 255 do
  if text:find(string.char(byte), 1, true) then
    number_of[byte] = #letters
    letters[#letters + 1] = string.char(byte)
  end
end
local codes = {}
for i = 1, #text do codes[i] = number_of[text:byte(i)] end

local layers = tf.keras.layers
local strategy = tf.distribute.MirroredStrategy()
local embedding, gru, dense, optimizer = strategy:scope(function()
  return layers.Embedding(#letters, 32),
    layers.GRU(opt.units, { return_sequences = true }),
    layers.Dense(#letters),
    tf.keras.optimizers.Adam { learning_rate = 3e-3 }
end)

local function logits_of(x)
  return dense(gru(embedding(x)))
end

-- Pieces of the text and what follows each of their letters.
local dataset = tf.data.Dataset.from_tensor_slices(
  tf.constant(codes, { dtype = "int32" }))
  :batch(opt.length + 1, { drop_remainder = true })
  :map(function(piece) return piece[{ { 0, -1 } }], piece[{ { 1 } }] end)
  :shuffle(10000, { seed = opt.seed }):repeat_()
  :batch(opt.batch, { drop_remainder = true })

local variables
local function step(x, y)
  local tape, loss = tf.GradientTape(function()
    local each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits_of(x))
    return tf.reduce_sum(each) / (opt.batch * opt.length)
  end)
  if variables == nil then
    variables = {}
    for _, layer in ipairs { embedding, gru, dense } do
      for _, v in ipairs(layer.trainable_variables) do
        variables[#variables + 1] = v
      end
    end
  end
  optimizer:apply_gradients(tape:gradient(loss, variables), variables)
  return loss
end

-- Traced at the first batch, where the layers make their variables: from then on
-- the replicas run it without Lua.
local train = tf.function_(function(x, y)
  return strategy:reduce("SUM", strategy:run(step, { x, y }))
end)

local total, done = 0, 0
for x, y in strategy:experimental_distribute_dataset(dataset:take(opt.steps))
  :iter() do
  local loss = train(x, y)
  if done == 0 then
    local count = 0
    for _, v in ipairs(variables) do count = count + tf.size(v):item() end
    print(("%d letters, %d kinds, %d parameters"):format(#text, #letters,
      count))
  end
  total, done = total + loss:item(), done + 1
  if done % opt.every == 0 then
    print(("step %d  loss %.3f"):format(done, total / opt.every))
    total = 0
  end
end

-- Write: each letter is drawn from what the network expects after the others.
print "sample:"
local written = { number_of[("T"):byte()] or 0 }
for i = 1, opt.sample do
  local seen = {}
  for k = math.max(1, i - opt.length + 1), i do seen[#seen + 1] = written[k] end
  local next_one = logits_of(tf.constant({ seen }, { dtype = "int32" }))[0][-1]
  written[i + 1] = tf.random.categorical(
    tf.expand_dims(next_one / opt.temperature, 0), 1):item()
end
local sample = {}
for i, code in ipairs(written) do sample[i] = letters[code + 1] end
print((table.concat(sample):gsub("%c", " ")))
