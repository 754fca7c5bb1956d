--- Products, convolutions and LSTM through tf.*, against oneDNN called
--- directly (scripts/bench/onednn.c) in the same minute.
---
--- usage: tfdist scripts/bench/kernels.lua [FLOOR] [ROUNDS]
--- FLOOR is the built floor program (default build/bench/onednn). One thread;
--- both sides count processor time. A round runs the floor, then ours; printed
--- are the medians of the ratios floor rate / our rate: 1.03 = 3 % slower.
--- Run with TFDIST_THREADS=1.
local tf = require "tfdist"

local floor_program = arg and arg[1] or "build/bench/onednn"
local rounds = tonumber(arg and arg[2]) or 5

tf.config.set_logical_device_configuration("CPU", 1)

local function median(list)
  table.sort(list)
  return list[math.floor((#list + 1) / 2)]
end

-- Results go at once: with dead tensors waiting for the collector, every call
-- would write to memory that no cache holds.
local function drop(...)
  for i = 1, select("#", ...) do
    (select(i, ...)):release()
  end
end

-- Seconds of one call, the median of some loops of 20 ms.
local function seconds(make)
  local function fn()
    drop(make())
  end
  fn()
  local start = os.clock()
  fn()
  local loops = math.ceil(0.02 / math.max(os.clock() - start, 1e-6))
  local times = {}
  for i = 1, 7 do
    start = os.clock()
    for _ = 1, loops do fn() end
    times[i] = (os.clock() - start) / loops
  end
  return median(times)
end

local function normal(dims)
  return tf.random.normal(dims, 0, 0.1)
end

local benches = {} -- { name, GFLOP, fn }

local function product(name, m, k, n, ta, tb)
  local a = normal(ta and { k, m } or { m, k })
  local b = normal(tb and { n, k } or { k, n })
  benches[#benches + 1] = { name, 2e-9 * m * k * n, function()
    return tf.matmul(a, b, ta, tb)
  end }
end
product("128^3", 128, 128, 128, false, false)
product("256^3", 256, 256, 256, false, false)
product("512^3", 512, 512, 512, false, false)
product("1024^3", 1024, 1024, 1024, false, false)
product("64x784x512", 64, 784, 512, false, false)
product("64x512x512 NT", 64, 512, 512, false, true)
product("64x512x10", 64, 512, 10, false, false)
product("784x64x512 TN", 784, 64, 512, true, false)
product("512x64x512 TN", 512, 64, 512, true, false)
product("50x1024x2048", 50, 1024, 2048, false, false)
product("50x2048x512 NT", 50, 2048, 512, false, true)
product("2500x512x2048", 2500, 512, 2048, false, false)

local function layer(name, n, c, size, o, k, pad)
  local x, f = normal { n, size, size, c }, normal { k, k, c, o }
  local padding = pad > 0 and "SAME" or "VALID"
  local out = size + 2 * pad - k + 1
  local dy = normal { n, out, out, o }
  local work = 2e-9 * n * out * out * o * c * k * k
  local ops = tf.raw_ops
  benches[#benches + 1] = { name .. " forward", work, function()
    return ops.conv2d(x, f, 1, padding)
  end }
  benches[#benches + 1] = { name .. " input", work, function()
    return ops.conv_backprop_input(f, dy, 1, padding, "NHWC", nil, nil,
      { n, size, size, c })
  end }
  benches[#benches + 1] = { name .. " filter", work, function()
    return ops.conv_backprop_filter(x, dy, 1, padding, "NHWC", nil, nil,
      { k, k, c, o })
  end }
end
layer("64x32x13 64 3x3", 64, 32, 13, 64, 3, 0)
layer("8x64x56 64 3x3", 8, 64, 56, 64, 3, 1)
layer("8x256x14 256 3x3", 8, 256, 14, 256, 3, 1)
layer("64x64x8 64 3x3", 64, 64, 8, 64, 3, 1)
layer("64x1x28 32 3x3", 64, 1, 28, 32, 3, 0)

do
  local steps, batch, units = 50, 50, 512
  local x = normal { steps, batch, units }
  local w, u = normal { units, 4 * units }, normal { units, 4 * units }
  local b, h = normal { 4 * units }, normal { batch, units }
  local work = 2e-9 * steps * batch * 4 * units * 2 * units
  local ops = tf.raw_ops
  local sequence, last, cell, space = ops.lstm(x, w, u, b, h, h)
  benches[#benches + 1] = { "lstm 50x50x512 forward", work, function()
    return ops.lstm(x, w, u, b, h, h)
  end }
  benches[#benches + 1] = { "lstm 50x50x512 backward", 2 * work, function()
    return ops.lstm_grad(x, w, u, b, h, h, sequence, last, cell, space,
      sequence, nil, nil)
  end }
end

-- The floor's best rate for each name, reading its lines.
local function floor_rates()
  local rates = {}
  local pipe = assert(io.popen(floor_program .. " 1"))
  for line in pipe:lines() do
    local name, rest = line:match "^(.-)%s%s+([%d.]+.*)$"
    if name == nil then
      name, rest = line:match "^(.-%D)%s+([%d.]+%s.*)$"
    end
    if name ~= nil then
      local best = 0
      for rate in rest:gmatch "%f[%w.][%d.]+%f[%s]" do
        best = math.max(best, tonumber(rate) or 0)
      end
      rates[name] = best
    end
  end
  pipe:close()
  return rates
end

local ratios, ours = {}, {}
for _ = 1, rounds do
  local rates = floor_rates()
  for i, bench in ipairs(benches) do
    local name, work, fn = bench[1], bench[2], bench[3]
    local rate = work / seconds(fn)
    ratios[i], ours[i] = ratios[i] or {}, ours[i] or {}
    ours[i][#ours[i] + 1] = rate
    if rates[name] then
      ratios[i][#ratios[i] + 1] = rates[name] / rate
    end
  end
end

print(("%-28s %8s %8s"):format("one thread", "GFLOP/s", "floor/us"))
for i, bench in ipairs(benches) do
  local ratio = #ratios[i] > 0 and ("%8.2f"):format(median(ratios[i]))
    or "       -"
  print(("%-28s %8.1f %s"):format(bench[1], median(ours[i]), ratio))
end
