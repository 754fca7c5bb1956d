#!/usr/bin/env tfdist
--- A variational autoencoder: learns to draw clothes from sixteen numbers.
---
--- usage: tfdist --cpu-devices=2 examples/vae.lua [--steps=600]
---          [--images=4] …   (see --help)
---
--- prints (with --steps=60 --images=1):
---   step 20  loss …  reconstruction …  divergence …
---   step 40  loss …  reconstruction …  divergence …
---   step 60  loss …  reconstruction …  divergence …
---   …
--- The loss is nats for each image: about 400 in the beginning, about 250
--- after 600 steps. Then the decoder draws images from random numbers, with
--- characters for shades of grey.
local tf = require "tfdist"

local opt = tf.flags {
  steps = 600, every = 20, batch = 128, latent = 16, hidden = 256, images = 4,
  seed = 1, path = "/usr/share/datasets/fashion-mnist",
}
tf.random.set_seed(opt.seed)

local x_train = assert(
  tf.keras.datasets.fashion_mnist.load_data { path = opt.path })

local layers = tf.keras.layers
local strategy = tf.distribute.MirroredStrategy()
local encoder, decoder, optimizer = strategy:scope(function()
  return tf.keras.Sequential {
      layers.Dense(opt.hidden, { activation = "relu", input_shape = { 784 } }),
      layers.Dense(2 * opt.latent),
    },
    tf.keras.Sequential {
      layers.Dense(opt.hidden, { activation = "relu",
        input_shape = { opt.latent } }),
      layers.Dense(784),
    },
    tf.keras.optimizers.Adam { learning_rate = 1e-3 }
end)

local dataset = tf.data.Dataset.from_tensor_slices(x_train)
  :shuffle(#x_train, { seed = opt.seed }):repeat_():batch(opt.batch)
  :map(function(x)
    return tf.reshape(tf.cast(x, "float32"), { -1, 784 }) / 255
  end)

local variables = {}
for _, model in ipairs { encoder, decoder } do
  for _, v in ipairs(model.trainable_variables) do
    variables[#variables + 1] = v
  end
end

local function step(x)
  local tape, loss, reconstruction, divergence = tf.GradientTape(function()
    local both = tf.split(encoder(x), 2, { axis = 1 })
    local mean, log_variance = both[1], both[2]
    local noise = tf.random.normal(mean.shape)
    local logits = decoder(mean + noise * tf.exp(log_variance * 0.5))
    local error = tf.reduce_sum(
      tf.nn.sigmoid_cross_entropy_with_logits(x, logits)) / opt.batch
    local distance = tf.reduce_sum(tf.square(mean) + tf.exp(log_variance) - 1
      - log_variance) * (0.5 / opt.batch)
    return error + distance, error, distance
  end)
  optimizer:apply_gradients(tape:gradient(loss, variables), variables)
  return loss, reconstruction, divergence
end

-- Traced at the first batch: from then on the replicas run it without Lua.
local train = tf.function_(function(x)
  return strategy:run(step, { x })
end)

local done = 0
for x in strategy:experimental_distribute_dataset(dataset:take(opt.steps))
  :iter() do
  local parts = { train(x) }
  done = done + 1
  if done % opt.every == 0 then
    for i = 1, 3 do
      parts[i] = strategy:reduce("SUM", parts[i]):item()
    end
    print(("step %d  loss %.1f  reconstruction %.1f  divergence %.1f")
      :format(done, parts[1], parts[2], parts[3]))
  end
end

-- Pictures from nothing, two rows of pixels for each line of text.
local shades = " .:-=+*#%@"
for _ = 1, opt.images do
  local image = tf.reshape(tf.sigmoid(
    decoder(tf.random.normal { 1, opt.latent })), { 14, 2, 28 })
  local rows = tf.reduce_mean(image, { axis = 1 }):totable()
  for _, row in ipairs(rows) do
    local line = {}
    for i, grey in ipairs(row) do
      local k = math.min(math.floor(grey * #shades), #shades - 1) + 1
      line[i] = shades:sub(k, k)
    end
    print("|" .. table.concat(line) .. "|")
  end
  print ""
end
