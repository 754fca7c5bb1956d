--- The same training on different numbers of devices, for comparison.
---
--- Images, first weights and batches are the same in every run; a replica's
--- share is the next contiguous part of a batch. Parity: losses of the whole
--- batch agree, copies of a variable hold the same bits after each step, and a
--- run repeated gives the same bits. Hidden layers are smooth (tanh): with ReLU
--- one of the millions of sums on the way that is all but 0 may fall on the
--- other side of it, and from there on losses differ by 1e-4.
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local M = {}

--- Optimizers by name, each made anew by its function. Rates are such that
--- training does not magnify rounding a hundred times within 20 steps.
M.optimizers = {
  { "SGD", function(O) return O.SGD(0.01) end },
  { "momentum", function(O) return O.SGD(0.01, 0.9) end },
  { "nesterov", function(O) return O.SGD(0.01, 0.9, true) end },
  { "Adam", function(O) return O.Adam() end },
  { "amsgrad", function(O) return O.Adam { amsgrad = true } end },
  { "AdamW", function(O) return O.AdamW() end },
  { "Adamax", function(O) return O.Adamax() end },
  { "Nadam", function(O) return O.Nadam(2e-4) end },
  { "RMSprop", function(O) return O.RMSprop(2e-4) end },
  { "RMSprop centered", function(O)
    return O.RMSprop { centered = true, momentum = 0.5, learning_rate = 1e-4 }
  end },
  { "Adagrad", function(O) return O.Adagrad() end },
  { "Adadelta", function(O) return O.Adadelta(0.5) end },
  { "Ftrl", function(O) return O.Ftrl(0.01) end },
  { "clipped SGD", function(O)
    return O.SGD { learning_rate = 0.01, global_clipnorm = 0.5 }
  end },
}

--- Images in 0..1 as {count, 784} and labels, or nil and a message.
function M.data(count)
  local x, y = tf.keras.datasets.fashion_mnist.load_data()
  if x == nil then return nil, y end
  return {
    images = tf.reshape(tf.cast(x[{ { 0, count } }], "float32"), { -1, 784 })
      / 255,
    labels = y[{ { 0, count } }],
    count = count,
  }
end

local function mirrored(n)
  local devices = {}
  for i = 1, n do devices[i] = "/cpu:" .. i - 1 end
  return tf.distribute.MirroredStrategy { devices = devices }
end

-- Uniform in +- sqrt(6 / (in + out)), as Glorot and Bengio have it.
local function weights(n, m, seed)
  local limit = math.sqrt(6 / (n + m))
  return tf.Variable(tf.random.stateless_uniform({ n, m }, { 1, seed }, -limit,
    limit))
end

local function model(sizes)
  local vars = {}
  for i = 1, #sizes - 1 do
    vars[#vars + 1] = weights(sizes[i], sizes[i + 1], i)
    vars[#vars + 1] = tf.Variable(tf.zeros { sizes[i + 1] })
  end
  return vars
end

local function logits(vars, x, activation)
  for i = 1, #vars, 2 do
    x = tf.matmul(x, vars[i]) + vars[i + 1]
    if i + 1 < #vars then x = activation(x) end
  end
  return x
end

--- Raise unless the copies of every variable hold the same bits.
local function check_copies(vars, step)
  for k, v in ipairs(vars) do
    local first = raw.tensor_bytes(v.values[1]:read_value())
    for i = 2, #v.values do
      if raw.tensor_bytes(v.values[i]:read_value()) ~= first then
        error(("step %d: copy %d of variable %d differs from copy 0"):format(
          step, i - 1, k - 1))
      end
    end
  end
end

-- The share of each replica in batch `step`.
local function share(strategy, data, batch, step)
  local n = strategy.num_replicas_in_sync
  local from = (step * batch) % (data.count - batch + 1)
  local function part(t)
    return strategy:experimental_distribute_values_from_function(
      function(context)
        local i = context.replica_id_in_sync_group
        return t[{ { from + i * batch / n, from + (i + 1) * batch / n } }]
      end)
  end
  return part(data.images), part(data.labels)
end

--- Train 784-hidden...-10 on n devices. Returns the losses as a list and the
--- last values of all variables as one string.
---@param options table  { data, n, steps, hidden, optimizer, batch = 128,
---   activation = "tanh" }
function M.run(options)
  local batch = options.batch or 128
  local activation = tf.nn[options.activation or "tanh"]
  local strategy = mirrored(options.n)
  local sizes = { 784 }
  for _, size in ipairs(options.hidden) do sizes[#sizes + 1] = size end
  sizes[#sizes + 1] = 10
  local vars, optimizer = strategy:scope(function()
    return model(sizes), options.optimizer(tf.keras.optimizers)
  end)
  local function step(x, y)
    local tape, loss = tf.GradientTape(function()
      return tf.nn.compute_average_loss(
        tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits(vars, x,
          activation)),
        { global_batch_size = batch })
    end)
    optimizer:apply_gradients(tape:gradient(loss, vars), vars)
    return loss
  end
  local losses = {}
  for i = 1, options.steps do
    local x, y = share(strategy, options.data, batch, i - 1)
    losses[i] = strategy:reduce("SUM", strategy:run(step, { x, y })):item()
    if options.n > 1 then check_copies(vars, i) end
  end
  local bits = {}
  for k, v in ipairs(vars) do
    bits[k] = raw.tensor_bytes(v:read_value())
  end
  return losses, table.concat(bits)
end

--- Largest relative difference of two lists.
function M.difference(a, b)
  local most = 0
  for i = 1, #a do
    local d = math.abs(a[i] - b[i]) / math.abs(b[i])
    if d > most or d ~= d then most = d end
  end
  return most
end

return M
