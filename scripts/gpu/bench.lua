-- Figures of one GPU, one line of JSON each.
--
-- usage: bench.lua calls RAW [--standins]
--          ops, products, convolutions and passes over memory; `ratio` is to what
--          the program RAW takes for the driver's and libraries' own calls
--        bench.lua graph [US] [--standins]
--          a traced training step; US: what it takes launch by launch, which is
--          printed alone with TFDIST_CUDA_GRAPHS=0
--        bench.lua step NAME [--standins]
--          training steps of a network of networks.lua
-- --standins: as small as can be.
local tf = require "tfdist"

local words = { ... }
local small = words[#words] == "--standins"
if small then table.remove(words) end

--- Time and words -------------------------------------------------------------

local function now()
  return tf.timestamp():item()
end

-- The best of some rounds of `times` calls each, for one call.
local function seconds(times, fn)
  local best = math.huge
  if small then times = 1 end
  fn()
  for _ = 1, small and 1 or 5 do
    tf.sync_devices()
    local begin = now()
    for _ = 1, times do fn() end
    tf.sync_devices()
    best = math.min(best, (now() - begin) / times)
  end
  return best
end

-- {"name": ..., the rest by name}
local function say(name, fields)
  local names = {}
  if small then fields.device = "stand-in (no GPU)" end
  for key in pairs(fields) do names[#names + 1] = key end
  table.sort(names)
  for i, key in ipairs(names) do
    local value = fields[key]
    names[i] = ('"%s": %s'):format(key, type(value) == "number"
      and ("%.6g"):format(value) or '"' .. value .. '"')
  end
  print(('{"name": "%s", %s}'):format(name, table.concat(names, ", ")))
  io.stdout:flush()
end

--- Calls ----------------------------------------------------------------------

-- Seconds of the program's calls by name.
local function read_raw(program)
  local raw = {}
  local pipe = assert(io.popen(('"%s"%s'):format(program,
    small and " --standins" or "")))
  for line in pipe:lines() do
    local name, value = line:match "^(.-): ([%d.e+-]+)$"
    raw[assert(name, line)] = tonumber(value)
  end
  pipe:close()
  return raw
end

local function ops(raw)
  local x, n = tf.ones { 8 }, small and 2 or 1000
  local spent = seconds(1, function()
    local y = x
    for _ = 1, n do y = y + x end
  end) / n
  say("ops in a row", { us = 1e6 * spent, raw_us = 1e6 * raw.launch,
    ratio = spent / raw.launch })
end

local function product(raw, dtype, n)
  local kind = dtype:match "%w+"
  local a = tf.cast(tf.random.normal { n, n }, kind == "tf32" and "float32"
    or kind)
  local spent = seconds(math.max(1, math.floor(2 ^ 38 / n ^ 3)), function()
    return tf.matmul(a, a)
  end)
  local key = ("matmul %s %d"):format(dtype, n)
  say("matmul " .. dtype, { n = n, tflops = 2e-12 * n ^ 3 / spent,
    ratio = spent / raw[key] })
end

local function products(raw)
  for _, dtype in ipairs { "float32", "tf32", "bfloat16", "float16" } do
    tf.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
    for _, n in ipairs(small and { 16 } or { 1024, 2048, 4096, 8192 }) do
      product(raw, dtype, n)
    end
  end
  tf.config.experimental.enable_tensor_float_32_execution(true)
end

-- Of ResNet-50: side of the image, channels, filters, size of the window.
local SHAPES = { { 56, 64, 64, 3 }, { 56, 64, 256, 1 }, { 28, 128, 128, 3 },
  { 14, 256, 256, 3 }, { 7, 512, 512, 3 } }

local function convolutions(raw)
  local batch = small and 1 or 64
  for _, dtype in ipairs { "float32", "bfloat16" } do
    for _, shape in ipairs(small and { { 4, 2, 2, 3 } } or SHAPES) do
      local side, channels, filters, window = table.unpack(shape)
      local x = tf.cast(tf.random.normal { batch, side, side, channels }, dtype)
      local w = tf.cast(tf.random.normal { window, window, channels, filters },
        dtype)
      local spent = seconds(20, function()
        return tf.nn.conv2d(x, w, { strides = 1, padding = "SAME" })
      end)
      local name = ("conv %s %dx%d %d to %d"):format(dtype, side, side, channels,
        filters)
      say(name, { window = window, ratio = spent / raw[name],
        tflops = 2e-12 * batch * side ^ 2 * channels * filters * window ^ 2
          / spent })
    end
  end
end

local function passes(raw)
  local n = small and 1000 or 2 ^ 27
  local a, b = tf.ones { n }, tf.ones { n }
  local copied = 8 * n / raw.copy -- bytes read and written each second
  for _, pass in ipairs {
    { "add", 12, function() return tf.add(a, b) end },
    { "relu", 8, function() return tf.nn.relu(a) end },
    { "reduce_sum", 4, function() return tf.reduce_sum(a) end },
  } do
    local rate = pass[2] * n / seconds(20, pass[3])
    say(pass[1], { gbs = 1e-9 * rate, of_copy = rate / copied })
  end
end

--- Training steps -------------------------------------------------------------

-- A step as one function without arguments, and its loss.
local function step_of(net)
  local loss_of = tf.keras.losses.SparseCategoricalCrossentropy {
    from_logits = true }
  local optimizer = tf.keras.optimizers.SGD(net.rate)
  net.model(net.x)
  local variables = net.model.trainable_variables
  return function()
    local tape, loss = tf.GradientTape(function()
      return loss_of(net.y, net.model(net.x, { training = true }))
    end)
    optimizer:apply_gradients(tape:gradient(loss, variables), variables)
    return loss
  end
end

-- As often as takes about two seconds. The first times a step is traced, gets its
-- memory and is captured.
local function of_step(step)
  for _ = 1, 2 do step() end
  local once = seconds(1, step)
  return small and once or seconds(math.max(1, math.floor(0.4 / once)), step)
end

local function network(name)
  local dir = arg[0]:match "^(.*/)" or ""
  return dofile(dir .. "networks.lua")[name](small)
end

local function steps(name)
  local info = tf.config.experimental
  for _, policy in ipairs { "float32", "mixed_bfloat16" } do
    tf.keras.mixed_precision.set_global_policy(policy)
    for _, mode in ipairs { "eager", "traced" } do
      collectgarbage() -- what the one before had
      info.reset_memory_stats "GPU:0"
      local net = network(name)
      local step = step_of(net)
      local spent = of_step(mode == "eager" and step or tf.function_(step))
      say("step " .. name, { mode = mode, policy = policy, ms = 1e3 * spent,
        [net.unit .. "_per_s"] = net.per_step / spent, loss = step():item(),
        peak_mib = info.get_memory_info "GPU:0".peak / 2 ^ 20 })
    end
  end
end

--- ----------------------------------------------------------------------------

local PARTS = {
  calls = function(program)
    local raw = read_raw(program)
    for _, part in ipairs { ops, products, convolutions, passes } do part(raw) end
  end,
  graph = function(apart)
    local spent = 1e6 * of_step(tf.function_(step_of(network "mlp")))
    if apart == nil then
      print(("%.6g"):format(spent))
    else
      say("traced step as a graph", { us = spent, launches_us = tonumber(apart),
        ratio = spent / tonumber(apart) })
    end
  end,
  step = steps,
}

tf.device("/gpu:0", function()
  PARTS[words[1]](words[2])
end)
