--- The library's side of the benchmarks: answers requests from stdin, one on
--- each line, with one line of numbers (see scripts/bench.lua, which asks).
---
--- usage: tfdist scripts/bench/ours.lua            answer requests
---        tfdist scripts/bench/ours.lua first      one training step, then end
---        tfdist scripts/bench/ours.lua kernels    run every oneDNN kernel once
--- Answers are processor seconds for one unit (op, call, step); `two` gives
--- wall seconds, `step` adds the page faults of a step.
local tf = require "tfdist"

local clock = os.clock
local unpack = table.unpack or rawget(_G, "unpack")

-- Page faults of this process so far; nil where there is no /proc.
local function faults()
  local file = io.open("/proc/self/stat", "r")
  if file == nil then
    return nil
  end
  local stat = file:read "*a"
  file:close()
  -- After the name in parentheses: state, 6 numbers, then minor faults.
  return tonumber((stat:match "^.*%) %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+)"))
end

-- Seconds of one unit: run(n) does n of them; about 20 ms in one piece.
local sizes = {}
local function timed(name, run)
  local n = sizes[name]
  if n == nil then
    n = 200
    repeat
      n = n * 2
      local start = clock()
      run(n)
    until clock() - start > 0.01
    sizes[name] = n
  end
  local start = clock()
  run(n)
  return (clock() - start) / n
end

--- Dispatch -------------------------------------------------------------------

local TAPE = 200 -- ops on a tape before it is dropped

local vector_a, vector_b = tf.random.normal { 16 }, tf.random.normal { 16 }
local matrix_a, matrix_b = tf.random.normal { 4, 4 }, tf.random.normal { 4, 4 }
local last -- keeps one result alive, as a script would

local function add(n)
  local a, b = vector_a, vector_b
  for _ = 1, n do last = a + b end
end

local function mul(n)
  local a, b = vector_a, vector_b
  for _ = 1, n do last = a * b end
end

local function matmul(n)
  local a, b, product = matrix_a, matrix_b, tf.matmul
  for _ = 1, n do last = product(a, b) end
end

local function taped(run, watched)
  return function(n)
    for _ = 1, n, TAPE do
      tf.GradientTape(function(tape)
        tape:watch(watched)
        run(TAPE)
      end)
    end
  end
end

-- A chain of TAPE sums and its gradient; a unit is one sum, both ways.
local function backward(n)
  local a, b = vector_a, vector_b
  for _ = 1, n, TAPE do
    local y = a
    local tape = tf.GradientTape(function(t)
      t:watch(a)
      for _ = 1, TAPE do y = y + b end
    end)
    last = tape:gradient(y, a)
  end
end

-- One resume and one yield for each op, as replicas at sync points.
local function in_coroutine(n)
  local a, b = vector_a, vector_b
  local step = coroutine.wrap(function()
    while true do
      last = a + b
      coroutine.yield()
    end
  end)
  for _ = 1, n do step() end
end

local function allocate(n)
  local dims = { 16 }
  for _ = 1, n do last = tf.zeros(dims) end
end

local ops = {
  add = add, mul = mul, matmul = matmul,
  add_tape = taped(add, vector_a),
  mul_tape = taped(mul, vector_a),
  matmul_tape = taped(matmul, matrix_a),
  backward = backward,
  coroutine = in_coroutine,
  zeros = allocate,
}

--- Elementwise ----------------------------------------------------------------

local arrays = {}
local function array(n, i)
  if arrays.n ~= n then
    arrays = { n = n }
  end
  if arrays[i] == nil then
    arrays[i] = tf.random.normal({ n }, 0, 0.1)
  end
  return arrays[i]
end

local function variable(n, i)
  local key = "v" .. i
  array(n, i)
  if arrays[key] == nil then
    arrays[key] = tf.Variable(tf.zeros { n })
  end
  return arrays[key]
end

local elementwise = {}

-- The same five ops as in floor.c.
function elementwise.chain(n)
  local x, a, b = array(n, 1), array(n, 2), array(n, 3)
  local t = tf.nn.relu(x * a + b)
  last = t * t - x
end

function elementwise.sgd(n)
  variable(n, 1):assign_sub(array(n, 2) * 1e-9)
end

function elementwise.momentum(n)
  local w, g, m = variable(n, 1), array(n, 2), variable(n, 3)
  m:assign(m * 0.9 - g * 1e-9)
  w:assign_add(m)
end

function elementwise.adam(n)
  local w, g, m, v = variable(n, 1), array(n, 2), variable(n, 3), variable(n, 4)
  m:assign_add((g - m) * 0.1)
  v:assign_add((g * g - v) * 0.001)
  w:assign_sub(m * 1e-9 / (tf.sqrt(v) + 1e-7))
end

-- The same, traced once. What they are given are arguments: ops on captured
-- tensors alone would run at the trace.
for _, name in ipairs { "chain", "sgd", "momentum", "adam" } do
  local made = {} -- the function's key among the arrays
  local function make(n)
    for i = 1, 4 do variable(n, i) end
    local fn = tf.function_(function(x, y, z)
      local own = arrays
      arrays = { x, y, z, n = n, v1 = own.v1, v3 = own.v3, v4 = own.v4 }
      elementwise[name](n)
      arrays = own
      return name == "chain" and last or nil
    end)
    arrays[made] = { fn, arrays[1], arrays[2], arrays[3] }
  end
  elementwise[name .. "_traced"] = function(n)
    if arrays.n ~= n or arrays[made] == nil then make(n) end
    local call = arrays[made]
    last = call[1](call[2], call[3], call[4]) or last
  end
end

-- What an optimizer does with one variable and its gradient.
local function updating(name, options)
  return function(n)
    local w, g = variable(n, 1), array(n, 2)
    arrays[options] = arrays[options] or tf.keras.optimizers[name](options)
    arrays[options]:apply_gradients({ g }, { w })
  end
end

elementwise.sgd_optimizer = updating("SGD", { learning_rate = 1e-9 })
elementwise.momentum_optimizer = updating("SGD", { learning_rate = 1e-9,
  momentum = 0.9 })
elementwise.adam_optimizer = updating("Adam", { learning_rate = 1e-9 })

-- Calls of fn until `least` seconds have passed, and their seconds.
local function repeated(fn, n, least)
  local calls, start = 0, clock()
  repeat
    local more = math.max(calls, 1)
    for _ = 1, more do fn(n) end
    calls = calls + more
  until clock() - start >= least
  return calls, clock() - start
end

local function elementwise_time(name, n)
  local fn = elementwise[name]
  local key = name .. n
  if sizes[key] == nil then
    -- The first temporaries touch fresh memory until the collector runs.
    repeated(fn, n, 0.2)
    sizes[key] = 1
  end
  local calls, spent = repeated(fn, n, 0.02)
  return spent / calls
end

--- A training step ------------------------------------------------------------

-- 784-128-10, 64 examples, softmax cross-entropy, plain gradient descent.
local function make_step()
  local x = tf.random.normal { 64, 784 }
  local labels = tf.random.uniform({ 64 }, 0, 10, "int32")
  local variables = {
    tf.Variable(tf.random.normal({ 784, 128 }, 0, 0.05)),
    tf.Variable(tf.zeros { 128 }),
    tf.Variable(tf.random.normal({ 128, 10 }, 0, 0.1)),
    tf.Variable(tf.zeros { 10 }),
  }
  return function()
    local tape, loss = tf.GradientTape(function()
      local h = tf.nn.relu(tf.matmul(x, variables[1]) + variables[2])
      local logits = tf.matmul(h, variables[3]) + variables[4]
      return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    end)
    local gradients = tape:gradient(loss, variables)
    for i = 1, #variables do
      variables[i]:assign_sub(gradients[i] * 0.01)
    end
    return loss
  end
end

local step
local function training()
  if step == nil then
    step = make_step()
    -- The interpreter's heap grows until its collector's second round, some
    -- 10,000 steps from here: these faults are none of a step's.
    for _ = 1, 20000 do step() end
  end
  local before, start, steps = faults(), clock(), 40
  for _ = 1, steps do step() end
  local spent = (clock() - start) / steps
  step():item()
  return spent, before and (faults() - before) / steps or -1
end

--- Two devices ----------------------------------------------------------------

local function wall()
  local ffi = require "ffi"
  local t = ffi.new "struct tfd_bench_time"
  ffi.C.clock_gettime(1, t)
  return tonumber(t.s) + 1e-9 * tonumber(t.ns)
end

local function load_of(device, name)
  return tf.device("CPU:" .. device, function()
    if name == "matmul" then
      local a = tf.random.normal { 512, 512 }
      return function() last = tf.matmul(a, a) end
    end
    local n = 65536 -- in the core's own cache
    local x, a, b = tf.random.normal { n }, tf.random.normal { n },
      tf.random.normal { n }
    return function()
      local t = tf.nn.relu(x * a + b)
      last = t * t - x
    end
  end)
end

local loads = {}

-- `times` rounds on each of the first `devices` devices.
local function two(name, devices)
  if loads[name] == nil then
    pcall(require("ffi").cdef,
      "struct tfd_bench_time { long s, ns; };"
        .. "int clock_gettime(int clock, void *t);")
    loads[name] = { load_of(0, name), load_of(1, name) }
  end
  local run, times = loads[name], name == "matmul" and 40 or 400
  local function finish(t)
    while #t.shape > 0 do t = t[0] end
    t:item()
  end
  for d = 1, 2 do
    run[d]()
    finish(last)
  end
  local start = wall()
  local results = {}
  for _ = 1, times do
    for d = 1, devices do
      run[d]()
      results[d] = last
    end
  end
  for d = 1, devices do finish(results[d]) end
  return (wall() - start) / times
end

--- Kernels --------------------------------------------------------------------

-- One of everything that may go to oneDNN; run with DNNL_VERBOSE=1.
local function kernels()
  local function normal(...)
    return tf.Variable(tf.random.normal({ ... }, 0, 0.1))
  end
  local function both_ways(fn, ...)
    local inputs = { ... }
    local tape, y = tf.GradientTape(function()
      return tf.reduce_sum(fn(unpack(inputs)))
    end)
    tape:gradient(y, inputs)
  end
  for _, n in ipairs { 16, 64, 512 } do
    both_ways(tf.matmul, normal(64, n), normal(n, 128))
    both_ways(function(a, b) return tf.matmul(a, b, true, true) end,
      normal(n, 64), normal(128, n))
  end
  both_ways(tf.matmul, normal(8, 32, 48), normal(8, 48, 24))
  for _, c in ipairs { { 1, 6 }, { 6, 16 }, { 3, 32 }, { 32, 64 } } do
    for _, padding in ipairs { "VALID", "SAME" } do
      for stride = 1, 2 do
        both_ways(function(x, f)
          return tf.nn.conv2d(x, f, stride, padding)
        end, normal(8, 14, 14, c[1]), normal(5, 5, c[1], c[2]))
      end
    end
  end
  both_ways(function(x, f)
    return tf.nn.conv1d(x, f, 1, "SAME")
  end, normal(8, 30, 12), normal(3, 12, 20))
  both_ways(function(x, f)
    return tf.nn.depthwise_conv2d(x, f, { 1, 1, 1, 1 }, "SAME")
  end, normal(8, 14, 14, 16), normal(3, 3, 16, 1))
  both_ways(function(x)
    return tf.nn.max_pool2d(x, 2, 2, "VALID")
  end, normal(8, 14, 14, 16))
  both_ways(function(x)
    return tf.nn.avg_pool2d(x, 2, 2, "VALID")
  end, normal(8, 14, 14, 16))
  both_ways(function(x, w, u)
    return (tf.raw_ops.lstm(x, w, u))
  end, normal(5, 8, 24), normal(24, 128), normal(32, 128))
end

--- Requests -------------------------------------------------------------------

local function answer(name, argument)
  if ops[name] then
    return timed(name, ops[name])
  elseif elementwise[name] then
    return elementwise_time(name, tonumber(argument))
  elseif name == "step" then
    return training()
  elseif name == "one" then
    return two(argument, 1)
  elseif name == "both" then
    return two(argument, 2)
  end
  error("no such request: " .. name)
end

if arg[1] == "first" then
  print(make_step()():item())
  return
elseif arg[1] == "kernels" then
  kernels()
  return
end

require("scripts.bench.answers").serve(answer)
