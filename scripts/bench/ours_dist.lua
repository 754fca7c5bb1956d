--- The library's side of the benchmarks of strategies: answers requests from
--- stdin, one on each line, with one line of numbers (see scripts/bench.lua).
---
--- usage: tfdist --cpu-devices=N scripts/bench/ours_dist.lua [BATCHES]
---                             each step takes so many batches on a device (1)
---   step NAME REPLICAS        wall s of a training step under MirroredStrategy
---   plain NAME                the same on one device without a strategy
---   traced NAME               and that as a traced function
---   gradients NAME WHERE      the gradients alone, of a traced function with the
---                             tape "inside" or "around"
---   traced_step NAME REPLICAS a traced function with the run of all replicas
---   trace NAME                wall s of the trace
---   first NAME                and of the first call beyond those of the next
---   trace_passes NAME         and of both, where memory was touched before
---   worker NAME               a step as one of the workers that TF_CONFIG
---                             names (see cluster.py)
---   traced_worker NAME        the same as a traced function
---   allreduce REPLICAS BYTES  wall s of one sum over replicas to all of them
---   more REPLICAS BYTES       the same for each further one in the same run
---   run REPLICAS              wall s of strategy:run with one merge
---   empty REPLICAS            wall s of strategy:run of an empty function
---   traced_empty REPLICAS     the same of an empty traced function
---   quit
--- The networks are those of scripts/bench/steps.c, and wide and resnet.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"

local clock = raw.monotonic
local BATCHES = tonumber(arg[1] or 1)
local ROWS = 64 * BATCHES

--- Networks -------------------------------------------------------------------

-- Each gives the trainable variables, an input and labels, and the logits.
local networks = {}

local function normal(dims, scale)
  return tf.Variable(tf.random.normal(dims, 0, scale))
end

-- Fully connected layers of these sizes; returns variables and a function.
local function dense(sizes)
  local variables = {}
  for i = 1, #sizes - 1 do
    variables[#variables + 1] = normal({ sizes[i], sizes[i + 1] },
      math.sqrt(1 / sizes[i]))
    variables[#variables + 1] = tf.Variable(tf.zeros { sizes[i + 1] })
  end
  local count = #variables -- callers append theirs
  return variables, function(x)
    for i = 1, count, 2 do
      x = tf.matmul(x, variables[i]) + variables[i + 1]
      if i < count - 1 then x = tf.nn.relu(x) end
    end
    return x
  end
end

local function labels(n, classes)
  return tf.random.uniform({ n }, 0, classes, "int32")
end

function networks.mlp()
  local variables, forward = dense { 784, 512, 512, 10 }
  return variables, forward, function()
    return tf.random.normal { ROWS, 784 }, labels(ROWS, 10)
  end
end

-- Gradients of 59 MB.
function networks.wide()
  local variables, forward = dense { 1024, 2048, 2048, 2048, 2048, 10 }
  return variables, forward, function()
    return tf.random.normal { ROWS, 1024 }, labels(ROWS, 10)
  end
end

-- Convolution, activation, pooling for each of `filters`, then dense layers.
local function convolutional(filters, sizes)
  local variables, forward = dense(sizes)
  local first = #variables
  for _, f in ipairs(filters) do
    variables[#variables + 1] = normal({ f.size, f.size, f.from, f.to },
      math.sqrt(1 / (f.size * f.size * f.from)))
    variables[#variables + 1] = tf.Variable(tf.zeros { f.to })
  end
  local function run(x)
    for i, f in ipairs(filters) do
      local k = first + 2 * i - 1
      x = tf.nn.conv2d(x, variables[k], 1, f.padding)
      x = tf.nn.relu(tf.nn.bias_add(x, variables[k + 1]))
      x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    end
    return forward(tf.reshape(x, { x.shape[1], -1 }))
  end
  return variables, run, function()
    return tf.random.normal { ROWS, 28, 28, 1 }, labels(ROWS, 10)
  end
end

function networks.cnn()
  return convolutional({
    { size = 3, from = 1, to = 32, padding = "VALID" },
    { size = 3, from = 32, to = 64, padding = "VALID" },
  }, { 1600, 64, 10 })
end

function networks.lenet()
  return convolutional({
    { size = 5, from = 1, to = 6, padding = "SAME" },
    { size = 5, from = 6, to = 16, padding = "VALID" },
  }, { 400, 120, 84, 10 })
end

function networks.lstm()
  local units, steps, batch, classes = 512, 50, 50 * BATCHES, 65
  local variables, forward = dense { units, classes }
  for i = 0, 1 do
    local scale = math.sqrt(1 / units)
    variables[3 + 3 * i] = normal({ units, 4 * units }, scale)
    variables[4 + 3 * i] = normal({ units, 4 * units }, scale)
    variables[5 + 3 * i] = tf.Variable(tf.zeros { 4 * units })
  end
  local function run(x)
    for i = 0, 1 do
      x = tf.nn.lstm(x, variables[3 + 3 * i], variables[4 + 3 * i],
        variables[5 + 3 * i])
    end
    return forward(tf.reshape(x, { steps * batch, units }))
  end
  return variables, run, function()
    return tf.random.normal { steps, batch, units }, labels(steps * batch,
      classes)
  end
end

function networks.tiny()
  local variables, forward = dense { 4, 64, 64, 2 }
  return variables, forward, function()
    return tf.random.normal { 4 * BATCHES, 4 }, labels(4 * BATCHES, 2)
  end
end

-- Layer normalization with its scale and offset, in the ops that it consists of.
local function norm(x, scale, offset)
  local centered = x - tf.reduce_mean(x, { -1 }, true)
  local variance = tf.reduce_mean(tf.square(centered), { -1 }, true)
  return centered * tf.math.rsqrt(variance + 1e-5) * scale + offset
end

-- Of 4 layers, 256 wide, 4 heads, over 16 sequences of 128 tokens out of 256.
function networks.gpt()
  local layers, width, heads, steps, tokens = 4, 256, 4, 128, 256
  local batch = 16 * BATCHES
  local variables, depth = {}, width / heads
  local function new(v)
    variables[#variables + 1] = v
    return v
  end
  local function kernel(from, to)
    return new(normal({ from, to }, 0.02)), new(tf.Variable(tf.zeros { to }))
  end
  local function scale()
    return new(tf.Variable(tf.ones { width })),
      new(tf.Variable(tf.zeros { width }))
  end
  local embedding = new(normal({ tokens, width }, 0.02))
  local places = new(normal({ steps, width }, 0.02))
  local blocks = {}
  for i = 1, layers do
    local b = {}
    b.scale_1, b.offset_1 = scale()
    b.inner, b.inner_bias = kernel(width, 3 * width)
    b.outer, b.outer_bias = kernel(width, width)
    b.scale_2, b.offset_2 = scale()
    b.up, b.up_bias = kernel(width, 4 * width)
    b.down, b.down_bias = kernel(4 * width, width)
    blocks[i] = b
  end
  local scale_out, offset_out = scale()
  local head = new(normal({ width, tokens }, 0.02))
  local mask = (1 - tf.linalg.band_part(tf.ones { steps, steps }, -1, 0)) * -1e9
  local rows = { batch * steps, width }
  local function attend(x, b)
    local all = tf.matmul(tf.reshape(x, rows), b.inner) + b.inner_bias
    all = tf.transpose(tf.reshape(all, { batch, steps, 3, heads, depth }),
      { 2, 0, 3, 1, 4 })
    local parts = tf.unstack(all, 3, 0)
    local scores = tf.matmul(parts[1], parts[2], { transpose_b = true })
    local shares = tf.nn.softmax(scores * (1 / math.sqrt(depth)) + mask)
    local y = tf.transpose(tf.matmul(shares, parts[3]), { 0, 2, 1, 3 })
    y = tf.matmul(tf.reshape(y, rows), b.outer) + b.outer_bias
    return tf.reshape(y, { batch, steps, width })
  end
  local function forward(x)
    local h = tf.gather(embedding, x) + places
    for _, b in ipairs(blocks) do
      h = h + attend(norm(h, b.scale_1, b.offset_1), b)
      local f = tf.reshape(norm(h, b.scale_2, b.offset_2), rows)
      f = tf.nn.gelu(tf.matmul(f, b.up) + b.up_bias, true)
      f = tf.matmul(f, b.down) + b.down_bias
      h = h + tf.reshape(f, { batch, steps, width })
    end
    return tf.matmul(tf.reshape(norm(h, scale_out, offset_out), rows), head)
  end
  return variables, forward, function()
    return tf.random.uniform({ batch, steps }, 0, tokens, "int32"),
      labels(batch * steps, tokens)
  end
end

-- Of 20 layers, for the images of CIFAR.
function networks.resnet()
  local model = require("scripts.gpu.networks")["resnet-20"]().model
  return model.trainable_variables, function(x)
    return model(x, { training = true })
  end, function()
    return tf.random.normal { ROWS, 32, 32, 3 }, labels(ROWS, 10)
  end
end

--- Steps ----------------------------------------------------------------------

-- A step's function of its input, for inside and outside of strategies.
local function make_step(name)
  local variables, forward, data = networks[name]()
  local optimizer = tf.keras.optimizers.SGD(1e-4)
  local function step(x, y, replicas)
    local tape, loss = tf.GradientTape(function()
      local each = tf.nn.sparse_softmax_cross_entropy_with_logits(y,
        forward(x))
      return tf.reduce_sum(each) / (#each * replicas)
    end)
    optimizer:apply_gradients(tape:gradient(loss, variables), variables)
    return loss
  end
  return step, data
end

-- Strategies, and what was made under them, by name and replicas.
local made = {}

local function mirrored(replicas)
  local devices = {}
  for i = 1, replicas do devices[i] = "CPU:" .. i - 1 end
  return tf.distribute.MirroredStrategy { devices = devices }
end

local multi_worker

-- Under MultiWorkerMirroredStrategy where no number of replicas is given.
local function distributed(name, replicas, as_graph)
  local key = name .. (replicas or " workers") .. (as_graph and " traced" or "")
  if made[key] == nil then
    local strategy
    if replicas then
      strategy = mirrored(replicas)
    else
      multi_worker = multi_worker
        or tf.distribute.MultiWorkerMirroredStrategy()
      strategy, replicas = multi_worker, multi_worker.num_replicas_in_sync
    end
    local step, data = strategy:scope(function() return make_step(name) end)
    local x, y = strategy:run(data)
    local function run(a, b)
      return strategy:experimental_local_results(strategy:run(step,
        { a, b, replicas }))[1]
    end
    local fn = as_graph and tf.function_(run) or run
    made[key] = function() return fn(x, y) end
  end
  return made[key]
end

local function plain(name)
  if made[name] == nil then
    local step, data = make_step(name)
    local x, y = data()
    made[name] = function() return step(x, y, 1) end
  end
  return made[name]
end

local function traced(name)
  local key = "traced " .. name
  if made[key] == nil then
    local step, data = make_step(name)
    local x, y = data()
    local fn = tf.function_(step)
    made[key] = function() return fn(x, y, 1) end
  end
  return made[key]
end

local function gradients(name, where)
  local key = where .. " " .. name
  if made[key] == nil then
    local variables, forward, data = networks[name]()
    local x, y = data()
    local function loss_of(a, b)
      return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(b,
        forward(a)))
    end
    local fn = tf.function_(loss_of)
    local function differentiate(a, b)
      local tape, loss = tf.GradientTape(function()
        return (where == "inside" and loss_of or fn)(a, b)
      end)
      return tape:gradient(loss, variables)
    end
    local run = where == "inside" and tf.function_(differentiate)
      or differentiate
    made[key] = function() return tf.reduce_sum(run(x, y)[#variables]) end
  end
  return made[key]
end

-- A function that gives, for another function of the same step each time, the
-- seconds of its trace and of its first call beyond those of the next: there the
-- program is made, and the first time its memory touched. Then what it gave
-- first.
local function trace_times(name)
  local step, data = make_step(name)
  local x, y = data()
  step(x, y, 1):item() -- the optimizer makes its variables
  local function seconds(call)
    local start = clock()
    call()
    return clock() - start
  end
  local function times()
    local fn = tf.function_(step)
    local function run() fn(x, y, 1):item() end
    local trace = seconds(function() fn:get_concrete_function(x, y, 1) end)
    local first, warm = seconds(run), {}
    for i = 1, 3 do
      warm[i] = seconds(run)
    end
    table.sort(warm)
    return trace, math.max(first - warm[2], 0)
  end
  return times, times()
end

-- Of both where memory was touched before.
local function pass_times(name)
  local times = trace_times(name)
  local trace, passes = times()
  return trace + passes
end

-- Wall seconds of one call; the device is waited for at both ends.
local function timed(step, times)
  step():item()
  step():item()
  local start, last = clock(), nil
  for _ = 1, times do last = step() end
  last:item()
  return (clock() - start) / times
end

local function step_times(name)
  return (name == "lstm" or name == "gpt") and 2 or name == "tiny" and 2000
    or name == "wide" and 5 or name == "resnet" and 4 or 30
end

--- Sums and merges ------------------------------------------------------------

-- Wall s of a run with `count` sums. The buffers are written anew before each
-- sum, as gradients are.
local function sums(replicas, bytes, count, times)
  local strategy = mirrored(replicas)
  local n, spent = bytes / 4, 0
  local function make()
    local list = { n = count }
    for i = 1, count do list[i] = tf.fill({ n }, 1) end
    return list
  end
  local function reduce(list)
    local context = tf.distribute.get_replica_context()
    for i = 1, count do context:all_reduce("SUM", list[i]) end
  end
  for i = -2, times do
    local buffers = strategy:run(make)
    tf.sync_devices()
    local start = clock()
    strategy:run(reduce, { buffers })
    tf.sync_devices()
    if i > 0 then spent = spent + clock() - start end
  end
  return spent / times
end

local function all_reduce(replicas, bytes)
  return sums(replicas, bytes, 1, bytes > 1048576 and 20 or 400)
end

local MORE = 8

local function one_more(replicas, bytes)
  local times = bytes > 65536 and 20 or 100
  return (sums(replicas, bytes, 1 + MORE, times)
    - sums(replicas, bytes, 1, times)) / MORE
end

-- Wall s of strategy:run(fn).
local function calls(replicas, fn)
  local strategy, times = mirrored(replicas), 2000
  for _ = 1, 200 do strategy:run(fn) end
  local start = clock()
  for _ = 1, times do strategy:run(fn) end
  return (clock() - start) / times
end

local function empty_run(replicas)
  return calls(replicas, function() end)
end

local function one_merge(replicas)
  local function merge() return 1 end
  return calls(replicas, function()
    return tf.distribute.get_replica_context():merge_call(merge)
  end)
end

--- Requests -------------------------------------------------------------------

local function answer(what, a, b)
  if what == "step" then
    return timed(distributed(a, tonumber(b)), step_times(a))
  elseif what == "worker" then
    return timed(distributed(a), step_times(a))
  elseif what == "traced_worker" then
    return timed(distributed(a, nil, true), step_times(a))
  elseif what == "plain" then
    return timed(plain(a), step_times(a))
  elseif what == "traced" then
    return timed(traced(a), step_times(a))
  elseif what == "gradients" then
    return timed(gradients(a, b), step_times(a))
  elseif what == "traced_step" then
    return timed(distributed(a, tonumber(b), true), step_times(a))
  elseif what == "trace" then
    return (select(2, trace_times(a)))
  elseif what == "first" then
    return (select(3, trace_times(a)))
  elseif what == "trace_passes" then
    return pass_times(a)
  elseif what == "allreduce" then
    return all_reduce(tonumber(a), tonumber(b))
  elseif what == "more" then
    return one_more(tonumber(a), tonumber(b))
  elseif what == "empty" then
    return empty_run(tonumber(a))
  elseif what == "traced_empty" then
    return calls(tonumber(a), tf.function_(function() end))
  elseif what == "run" then
    return one_merge(tonumber(a))
  end
  error("no such request: " .. what)
end

require("scripts.bench.answers").serve(answer)
