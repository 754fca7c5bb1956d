--- float32 runs on other code than float64 (oneDNN against plain loops): its
--- values and gradients must agree with those of float64, on shapes that are
--- large enough for the library's own kernels.

local tf = require "tfdist"
local cases = require "spec.support.cases"

local unpack = table.unpack or unpack -- luacheck: ignore 113 143

-- Rounding errors grow with the square root of the terms in a sum; 1e-4 of
-- the largest element leaves room for 10^4 of them.
local TOLERANCE = 1e-4

local function largest(t)
  if tf.size(t):item() == 0 then return 0 end
  return tf.reduce_max(tf.abs(t)):item()
end

local function check(label, got, want)
  assert.are.same(want.shape, got.shape, label)
  local error_ = largest(got:cast "float64" - want)
  local bound = TOLERANCE * math.max(largest(want), 1e-3)
  assert(error_ <= bound, ("%s: off by %g, at most %g expected"):format(label,
    error_, bound))
end

-- Outputs and gradients of fn in one dtype; the output gradients are numbers
-- made from the position.
local function run(fn, inputs, dtype)
  local args, outs = {}, nil
  for i, x in ipairs(inputs) do
    args[i] = tf.cast(x, dtype)
  end
  local tape = tf.GradientTape(function(t)
    for _, x in ipairs(args) do t:watch(x) end
    outs = { fn(unpack(args)) }
  end)
  local grads = {}
  for i, out in ipairs(outs) do
    local spec = { kind = "normal", dims = out.shape }
    grads[i] = tf.constant(cases.values(spec, 50 + i), { dtype = "float32",
      shape = out.shape }):cast(dtype)
  end
  local got = tape:gradient(outs, args, { output_gradients = grads })
  return outs, got
end

local function compare(name, shapes, fn)
  it(name, function()
    local inputs = {}
    for i, dims in ipairs(shapes) do
      local values = cases.values({ kind = "normal", dims = dims }, i - 1)
      inputs[i] = tf.constant(values, { dtype = "float32", shape = dims })
    end
    local outs, grads = run(fn, inputs, "float32")
    local want_outs, want_grads = run(fn, inputs, "float64")
    for i, want in ipairs(want_outs) do
      check(name .. ", output " .. i - 1, outs[i], want)
    end
    for i = 1, #shapes do
      check(name .. ", gradient " .. i - 1, grads[i], want_grads[i])
    end
  end)
end

describe("float32 agrees with float64 in", function()
  for _, ta in ipairs { false, true } do
    for _, tb in ipairs { false, true } do
      compare(("a product, transposes %s %s"):format(tostring(ta),
        tostring(tb)),
        { ta and { 70, 37 } or { 37, 70 }, tb and { 65, 70 } or { 70, 65 } },
        function(a, b)
          return tf.matmul(a, b, { transpose_a = ta, transpose_b = tb })
        end)
    end
  end
  compare("a product with a vector", { { 1, 700 }, { 700, 65 } }, tf.matmul)
  compare("a batch against one matrix", { { 5, 33, 40 }, { 40, 31 } },
    tf.matmul)
  compare("broadcast batches", { { 3, 1, 33, 20 }, { 4, 20, 31 } }, tf.matmul)
  compare("transposed batches", { { 6, 20, 33 }, { 6, 31, 20 } },
    function(a, b)
      return tf.matmul(a, b, { transpose_a = true, transpose_b = true })
    end)
  compare("a product of views", { { 40, 50 }, { 60, 50 } }, function(a, b)
    return tf.matmul(a[{ { 3, 37 }, {} }], tf.transpose(b))
  end)

  local function conv(name, x, f, ...)
    local options = { ... }
    compare(name, { x, f }, function(a, b)
      return tf.nn.conv2d(a, b, unpack(options))
    end)
  end
  conv("a convolution", { 3, 13, 12, 32 }, { 3, 3, 32, 48 }, 1, "VALID")
  conv("a strided convolution", { 2, 13, 12, 16 }, { 5, 3, 16, 32 }, 2, "SAME")
  conv("a dilated convolution", { 2, 13, 12, 16 }, { 3, 3, 16, 16 }, 1,
    "SAME", "NHWC", 2)
  conv("a convolution of one channel", { 2, 14, 14, 1 }, { 3, 3, 1, 32 }, 1,
    "VALID")
  conv("a strided convolution of one channel", { 3, 13, 12, 1 },
    { 5, 3, 1, 8 }, 2, "SAME")
  conv("a convolution of one channel that leaves gaps", { 2, 13, 12, 1 },
    { 2, 2, 1, 8 }, { 1, 3, 4, 1 }, "VALID")
  conv("a dilated convolution of one channel", { 2, 13, 12, 1 },
    { 3, 2, 1, 8 }, 1, "SAME", "NHWC", { 1, 2, 3, 1 })
  conv("one channel of images that taps reach past", { 2, 3, 2, 1 },
    { 5, 5, 1, 8 }, 1, "SAME", "NHWC", 2)
  conv("one channel of many images", { 40, 24, 24, 1 }, { 3, 3, 1, 8 }, 1,
    "SAME")
  conv("one channel of channels first", { 2, 1, 9, 8 }, { 3, 3, 1, 24 }, 1,
    "SAME", "NCHW")
  conv("a convolution of few channels", { 2, 14, 14, 6 }, { 5, 5, 6, 16 }, 1,
    "SAME")
  conv("a convolution of channels first", { 2, 16, 9, 8 }, { 3, 3, 16, 24 }, 1,
    "SAME", "NCHW")
  conv("a grouped convolution", { 2, 8, 8, 32 }, { 3, 3, 8, 32 }, 1, "SAME")
  conv("a 1x1 convolution", { 2, 8, 8, 64 }, { 1, 1, 64, 32 }, 1, "SAME")
  compare("a depthwise convolution", { { 2, 9, 9, 32 }, { 3, 3, 32, 1 } },
    function(a, b)
      return tf.nn.depthwise_conv2d(a, b, { 1, 1, 1, 1 }, "SAME")
    end)
  compare("a transposed convolution", { { 2, 7, 7, 16 }, { 3, 3, 8, 16 } },
    function(a, b)
      return tf.nn.conv2d_transpose(a, b, { 2, 14, 14, 8 }, 2)
    end)
  compare("a convolution over one axis", { { 2, 40, 16 }, { 5, 16, 32 } },
    function(a, b) return tf.nn.conv1d(a, b, 1, "SAME") end)
  compare("a convolution over three axes",
    { { 1, 6, 7, 8, 16 }, { 3, 3, 3, 16, 16 } },
    function(a, b) return tf.nn.conv3d(a, b, 1, "SAME") end)

  compare("a transposed convolution to one channel",
    { { 2, 7, 7, 16 }, { 3, 3, 1, 16 } }, function(a, b)
      return tf.nn.conv2d_transpose(a, b, { 2, 14, 14, 1 }, 2)
    end)
  compare("a convolution of one channel over one axis",
    { { 2, 40, 1 }, { 5, 1, 32 } },
    function(a, b) return tf.nn.conv1d(a, b, 1, "SAME") end)
  compare("a convolution of one channel over three axes",
    { { 2, 6, 7, 8, 1 }, { 3, 2, 3, 1, 16 } },
    function(a, b) return tf.nn.conv3d(a, b, { 1, 2, 1, 2, 1 }, "SAME") end)

  compare("LSTM", { { 6, 5, 17 }, { 17, 128 }, { 32, 128 }, { 128 },
    { 5, 32 }, { 5, 32 } }, function(x, w, u, b, h, c)
    return tf.nn.lstm(x, w * 0.3, u * 0.3, b, h, c)
  end)
  compare("LSTM without bias and states", { { 4, 3, 32 }, { 32, 256 },
    { 64, 256 } }, function(x, w, u)
    return (tf.nn.lstm(x, w * 0.3, u * 0.3))
  end)
  compare("GRU", { { 6, 5, 17 }, { 17, 96 }, { 32, 96 }, { 2, 96 },
    { 5, 32 } }, function(x, w, u, b, h)
    return tf.nn.gru(x, w * 0.3, u * 0.3, b, h)
  end)
  compare("GRU without bias and states", { { 4, 3, 32 }, { 32, 192 },
    { 64, 192 } }, function(x, w, u)
    return (tf.nn.gru(x, w * 0.3, u * 0.3))
  end)
end)

describe("the gradient of one channel", function()
  it("is the same bits for an image, whatever is beside it", function()
    local n, size, filters = 40, 6, 8
    local filter = tf.random.normal { 3, 3, 1, filters }
    local dy = tf.random.normal { n, size, size, filters }
    local function gradient(part)
      return tf.raw_ops.conv_backprop_input(filter, part, 1, "SAME", "NHWC", nil,
        nil, { part.shape[1], size, size, 1 })
    end
    local all = gradient(dy)
    for _, at in ipairs { { 0, 1 }, { 11, 3 }, { 20, 20 }, { 39, 1 } } do
      local first, images = at[1], at[2]
      assert.are.same(
        tf.slice(all, { first, 0, 0, 0 }, { images, size, size, 1 }):toflat(),
        gradient(tf.slice(dy, { first, 0, 0, 0 },
          { images, size, size, filters })):toflat())
    end
  end)
end)
