--- The library's side of the benchmarks of fit and of input: answers requests
--- from stdin, one on each line, with one line of numbers (see
--- scripts/bench.lua).
---
--- usage: tfdist --cpu-devices=N scripts/bench/ours_fit.lua
---   fit NAME IMAGES       wall s of an epoch of model:fit over so many images
---                         of Fashion-MNIST on all N devices, and its accuracy
---   bare NAME IMAGES      the same with one batch, ready in memory, again and
---                         again: no input to read
---   input NAME IMAGES     wall s of a batch of the same input alone
---   lstm STEPS            wall s of a step of a small LSTM: parallel loops of some
---                         microseconds each
---   save MIB, restore MIB   wall s of a checkpoint of so much
---   quit
--- One device: the default strategy. Batches of 128, shared by the devices.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"

local clock = raw.monotonic
local layers = tf.keras.layers
local BATCH = 128

local strategy = raw.device_count "CPU" > 1 and tf.distribute.MirroredStrategy()
  or tf.distribute.get_strategy()

--- Models ---------------------------------------------------------------------

local networks = {}

function networks.mlp()
  return tf.keras.Sequential {
    layers.Dense(512, { activation = "relu", input_shape = { 784 } }),
    layers.Dense(512, { activation = "relu" }),
    layers.Dense(10),
  }
end

function networks.cnn()
  return tf.keras.Sequential {
    layers.Conv2D(32, 3, { activation = "relu", input_shape = { 28, 28, 1 } }),
    layers.MaxPooling2D(),
    layers.Conv2D(64, 3, { activation = "relu" }),
    layers.MaxPooling2D(),
    layers.Flatten(),
    layers.Dense(64, { activation = "relu" }),
    layers.Dense(10),
  }
end

local function compiled(name)
  return strategy:scope(function()
    local model = networks[name]()
    model:compile {
      optimizer = tf.keras.optimizers.Adam(1e-3),
      loss = tf.keras.losses.SparseCategoricalCrossentropy {
        from_logits = true },
      metrics = { "accuracy" },
    }
    return model
  end)
end

--- Input ----------------------------------------------------------------------

local images = {}

local function dataset(name, limit)
  if images.x == nil then
    images.x, images.y = assert(tf.keras.datasets.fashion_mnist.load_data())
  end
  local function scale(x, y)
    x = x:cast "float32" / 255
    return x:reshape(name == "mlp" and { -1, 784 } or { -1, 28, 28, 1 }), y
  end
  return tf.data.Dataset.from_tensor_slices { images.x, images.y }
    :take(limit):shuffle(limit):batch(BATCH):map(scale):prefetch()
end

local function ready(name, limit)
  local x, y = dataset(name, limit):iter():get_next()
  return tf.data.Dataset.from_tensors { x, y }
    :repeat_(math.floor(limit / BATCH))
end

local function read_input(name, limit)
  local train = dataset(name, limit)
  local start, count, last = clock(), 0, nil
  for x in train:iter() do
    count, last = count + 1, x
  end
  tf.reduce_sum(last):item()
  return (clock() - start) / count
end

-- Models and their data by kind and name.
local made = {}

local function fit(make_data, name, limit)
  local key = name .. limit .. tostring(make_data)
  if made[key] == nil then
    made[key] = { model = compiled(name), data = make_data(name, limit) }
    made[key].model:fit(made[key].data, { verbose = 0 })
  end
  local it = made[key]
  local start = clock()
  local history = it.model:fit(it.data, { verbose = 0 })
  return clock() - start, history.history.accuracy[1]
end

--- Small loops ----------------------------------------------------------------

local small

local function lstm(steps)
  if small == nil then
    small = { x = tf.random.normal { 32, 20, 16 },
      y = tf.random.normal { 32, 1 },
      model = tf.keras.Sequential { layers.LSTM(32), layers.Dense(1) } }
    small.model:compile { optimizer = "sgd", loss = "mse" }
    small.model:train_on_batch(small.x, small.y)
  end
  local start = clock()
  for _ = 1, steps do
    small.model:train_on_batch(small.x, small.y)
  end
  tf.sync_devices()
  return (clock() - start) / steps
end

--- Checkpoints ----------------------------------------------------------------

local saved

-- 25 variables; written to a file of the folder for temporary ones.
local function checkpoint(mib)
  if saved == nil then
    local variables = {}
    for i = 1, 25 do
      variables[i] = tf.Variable(tf.random.normal { mib * 1048576 / 100 })
    end
    local path = os.tmpname()
    os.remove(path)
    saved = { path = path, checkpoint = tf.train.Checkpoint {
      variables = variables } }
  end
  return saved
end

local function save(mib)
  local it = checkpoint(mib)
  local start = clock()
  it.file = it.checkpoint:write(it.path) -- replaces what was there
  return clock() - start
end

local function restore(mib)
  local it = checkpoint(mib)
  if it.file == nil then save(mib) end
  local start = clock()
  it.checkpoint:read(it.file)
  tf.sync_devices()
  return clock() - start
end

local function clean_up()
  if saved and saved.file then os.remove(saved.file .. ".safetensors") end
end

--- Requests -------------------------------------------------------------------

local function answer(what, a, b)
  if what == "fit" then
    return fit(dataset, a, tonumber(b))
  elseif what == "bare" then
    return fit(ready, a, tonumber(b))
  elseif what == "input" then
    return read_input(a, tonumber(b))
  elseif what == "lstm" then
    return lstm(tonumber(a))
  elseif what == "save" then
    return save(tonumber(a))
  elseif what == "restore" then
    return restore(tonumber(a))
  end
  error("no such request: " .. what)
end

require("scripts.bench.answers").serve(answer)
clean_up()
