-- Networks whose training steps are measured: NAME = function(small), where
-- `small` asks for sizes that the stand-ins can do. It makes
--   model, x, y   with one batch, ready in memory; labels are classes
--   rate          of plain gradient descent
--   per_step      items of a step; unit = what they are
local tf = require "tfdist"
local K = tf.keras
local L = K.layers

local M = {}

local function labels(shape, classes)
  return tf.random.uniform(shape, { maxval = classes, dtype = "int32" })
end

local function images(model, batch, shape, classes)
  return { model = model, x = tf.random.normal { batch, table.unpack(shape) },
    y = labels({ batch }, classes), rate = 0.01, per_step = batch,
    unit = "images" }
end

function M.mlp(small)
  local width, batch = small and 16 or 512, small and 4 or 128
  return images(K.Sequential {
    L.Dense(width, { activation = "relu", input_shape = { 784 } }),
    L.Dense(width, { activation = "relu" }),
    L.Dense(10, { dtype = "float32" }),
  }, batch, { 784 }, 10)
end

function M.cnn(small)
  local width, side, batch = small and 2 or 32, small and 12 or 28,
    small and 2 or 128
  return images(K.Sequential {
    L.Conv2D(width, 3, { activation = "relu", input_shape = { side, side, 1 } }),
    L.MaxPooling2D(),
    L.Conv2D(2 * width, 3, { activation = "relu" }),
    L.MaxPooling2D(), L.Flatten(),
    L.Dense(2 * width, { activation = "relu" }),
    L.Dense(10, { dtype = "float32" }),
  }, batch, { side, side, 1 }, 10)
end

function M.lstm(small)
  local units, steps, batch = small and 4 or 512, small and 3 or 50,
    small and 2 or 100
  local net = images(K.Sequential {
    L.LSTM(units, { return_sequences = true, input_shape = { steps, units } }),
    L.LSTM(units), L.Dense(10, { dtype = "float32" }),
  }, batch, { steps, units }, 10)
  net.unit = "sequences"
  return net
end

--- Residual networks ----------------------------------------------------------

local function convolved(x, filters, size, stride, activation)
  x = L.Conv2D(filters, size, { strides = stride, padding = "same",
    use_bias = false })(x)
  x = L.BatchNormalization()(x)
  return activation and L.Activation "relu"(x) or x
end

-- Two convolutions of 3 x 3, or 1 x 1, 3 x 3 and 1 x 1 to four times as many.
local function block(x, filters, stride, narrow)
  local out = narrow and 4 * filters or filters
  local y = narrow and convolved(x, filters, 1, 1, true) or x
  y = convolved(y, filters, 3, stride, true)
  y = convolved(y, out, narrow and 1 or 3, 1)
  local from = x.shape
  if stride > 1 or from[#from] ~= out then
    x = convolved(x, out, 1, stride)
  end
  return L.Activation "relu"(L.Add()({ x, y }))
end

local function residual(input, x, stages, filters, narrow, classes)
  for stage, blocks in ipairs(stages) do
    for i = 1, blocks do
      x = block(x, filters * 2 ^ (stage - 1), i == 1 and stage > 1 and 2 or 1,
        narrow)
    end
  end
  x = L.GlobalAveragePooling2D()(x)
  return K.Model(input, L.Dense(classes, { dtype = "float32" })(x))
end

M["resnet-20"] = function(small)
  local side, batch, blocks = small and 4 or 32, small and 2 or 64,
    small and 1 or 3
  local input = K.Input { side, side, 3 }
  local width = small and 2 or 16
  return images(residual(input, convolved(input, width, 3, 1, true),
    { blocks, blocks, blocks }, width, false, 10), batch, { side, side, 3 }, 10)
end

M["resnet-50"] = function(small)
  local side, batch, width = small and 16 or 224, small and 2 or 64,
    small and 1 or 64
  local input = K.Input { side, side, 3 }
  local x = convolved(input, width, 7, 2, true)
  x = L.MaxPooling2D(3, { strides = 2, padding = "same" })(x)
  return images(residual(input, x, small and { 1, 1 } or { 3, 4, 6, 3 }, width,
    true, small and 10 or 1000), batch, { side, side, 3 }, small and 10 or 1000)
end

--- GPT-2 ----------------------------------------------------------------------

-- Adds one row for each place of a sequence.
local Places = L.Layer:extend "Places"

function Places:build(shape)
  self.table = self:add_weight { name = "table", shape = { shape[2], shape[3] },
    initializer = "random_normal" }
end

function Places:call(x)
  return x + tf.cast(self.table, x.dtype)
end

-- Words come in and go out by one table.
local Gpt = K.Model:extend "Gpt"

function Gpt:init(body, words)
  K.Model.init(self)
  self.body, self.words = body, words
end

function Gpt:call(x)
  local h = self.body(x)
  local dims, size = h.shape, self.words.embeddings.shape
  local logits = tf.matmul(tf.reshape(h, { dims[1] * dims[2], dims[3] }),
    tf.cast(self.words.embeddings, h.dtype), { transpose_b = true })
  return tf.cast(tf.reshape(logits, { dims[1], dims[2], size[1] }), "float32")
end

local function gelu(x)
  return tf.nn.gelu(x, true)
end

local function transformer(x, heads, width)
  local n = L.LayerNormalization { epsilon = 1e-5 }(x)
  local seen = L.MultiHeadAttention(heads, width / heads)(n, n,
    { use_causal_mask = true })
  x = L.Add()({ x, seen })
  n = L.LayerNormalization { epsilon = 1e-5 }(x)
  n = L.Dense(4 * width, { activation = gelu })(n)
  return L.Add()({ x, L.Dense(width)(n) })
end

M["gpt-2"] = function(small)
  local o = small and { 1, 16, 2, 8, 2, 31 } or { 12, 768, 12, 1024, 8, 50257 }
  local blocks, width, heads, steps, batch, count = table.unpack(o)
  local input = K.Input { shape = { steps }, dtype = "int32" }
  local words = L.Embedding(count, width)
  local x = Places()(words(input))
  for _ = 1, blocks do x = transformer(x, heads, width) end
  x = L.LayerNormalization { epsilon = 1e-5 }(x)
  return { model = Gpt(K.Model(input, x), words),
    x = labels({ batch, steps }, count), y = labels({ batch, steps }, count),
    rate = 1e-3, per_step = batch * steps, unit = "tokens" }
end

return M
