#!/usr/bin/env tfdist
--- Train a small network on the real Fashion-MNIST images, on one device.
---
--- Prints one line for each epoch, "epoch 1  loss 0.5521  accuracy 0.8384",
--- accuracy being that of the 10,000 test images, and at the end
--- "test accuracy 0.87..". Options: see --help.
local tf = require "tfdist"

local opt = tf.flags {
  epochs = 5, batch = 128, learning_rate = 0.1, momentum = 0.9, hidden = 128,
  seed = 1, path = "/usr/share/datasets/fashion-mnist",
}

tf.random.set_seed(opt.seed)

-- nil, message when the files are missing: assert names the package to install
local x_train, y_train, x_test, y_test = assert(
  tf.keras.datasets.fashion_mnist.load_data { path = opt.path })

local function prepare(images, labels)
  local pixels = images:reshape { -1, 784 }:cast("float32") / 255
  return pixels, labels:cast("int32")
end

x_train, y_train = prepare(x_train, y_train)
x_test, y_test = prepare(x_test, y_test)

local function layer(name, inputs, outputs)
  local scale = math.sqrt(2 / inputs)
  return {
    kernel = tf.Variable(tf.random.normal({ inputs, outputs },
      { stddev = scale }), { name = name .. "/kernel" }),
    bias = tf.Variable(tf.zeros { outputs }, { name = name .. "/bias" }),
  }
end

local hidden = layer("hidden", 784, opt.hidden)
local output = layer("output", opt.hidden, 10)
local variables = { hidden.kernel, hidden.bias, output.kernel, output.bias }

-- SGD with momentum: velocity = momentum * velocity - rate * gradient
local velocities = {}
for i, v in ipairs(variables) do
  velocities[i] = tf.Variable(tf.zeros(v.shape), { trainable = false })
end

local function forward(x)
  local h = tf.nn.relu(tf.matmul(x, hidden.kernel) + hidden.bias)
  return tf.matmul(h, output.kernel) + output.bias
end

local function step(x, y)
  local tape, loss = tf.GradientTape(function()
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits {
      labels = y, logits = forward(x),
    })
  end)
  local gradients = tape:gradient(loss, variables)
  for i, v in ipairs(variables) do
    velocities[i]:assign(velocities[i] * opt.momentum
      - gradients[i] * opt.learning_rate)
    v:assign_add(velocities[i])
  end
  return loss
end

local function accuracy(x, y)
  local predicted = tf.argmax(forward(x), { axis = -1, output_type = "int32" })
  return tf.reduce_mean(tf.cast(tf.equal(predicted, y), "float32")):item()
end

local n = #x_train
local steps = math.floor(n / opt.batch)
for epoch = 1, opt.epochs do
  local order = tf.random.shuffle(tf.range(n))
  local total = 0
  for s = 0, steps - 1 do
    local rows = order[{ { s * opt.batch, (s + 1) * opt.batch } }]
    total = total + step(tf.gather(x_train, rows), tf.gather(y_train, rows))
      :item()
  end
  print(("epoch %d  loss %.4f  accuracy %.4f"):format(epoch, total / steps,
    accuracy(x_test, y_test)))
end
print(("test accuracy %.4f"):format(accuracy(x_test, y_test)))
