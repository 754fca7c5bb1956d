-- Gradients on the GPU against the CPU's, of a few chains of ops.
local tf = require "tfdist"

local function values(shape, seed)
  return tf.device("/cpu:0", function()
    return tf.random.stateless_normal(shape, { seed, 7 })
  end)
end

local CHAINS = {
  products = function(x)
    return tf.reduce_sum(tf.tanh(tf.matmul(x, x)))
  end,
  rows = function(x)
    return tf.reduce_sum(tf.nn.softmax(x) * tf.nn.log_softmax(x))
  end,
  elements = function(x)
    return tf.reduce_mean(tf.exp(-x * x) + tf.sigmoid(x) / (2 + tf.abs(x)))
  end,
  moved = function(x)
    return tf.reduce_sum(tf.transpose(tf.concat({ x, 2 * x }, 0)) ^ 2)
  end,
  windows = function(x)
    local image = tf.reshape(x, { 1, 16, 16, 1 })
    local kernel = tf.reshape(x[0], { 4, 4, 1, 1 })
    return tf.reduce_sum(tf.nn.conv2d(image, kernel, { strides = 1,
      padding = "SAME" }) ^ 2)
  end,
}

local function gradient(place, chain, x)
  return tf.device(place, function()
    local v = tf.Variable(x)
    local tape, y = tf.GradientTape(function()
      return chain(v)
    end)
    return tape:gradient(y, v):totable()
  end)
end

for name, chain in pairs(CHAINS) do
  for seed = 1, 3 do
    local x = values({ 16, 16 }, seed)
    local want, got = gradient("/cpu:0", chain, x), gradient("/gpu:0", chain, x)
    for i = 1, 16 do
      for k = 1, 16 do
        local apart = math.abs(want[i][k] - got[i][k])
        assert(apart <= 1e-4 * (1 + math.abs(want[i][k])),
          ("%s, seed %d, element %d, %d: %g and %g"):format(name, seed, i, k,
          want[i][k], got[i][k]))
      end
    end
  end
  print(name)
end
