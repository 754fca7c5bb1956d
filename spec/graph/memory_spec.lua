--- What traced steps cost in memory: nothing, once they have run.
--- TFD_LONG=1 runs a million of them.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"

local TIMES = os.getenv "TFD_LONG" and 500 or 1
local ROUNDS, STEPS, WARM = 8, 250, 500

-- A step of training: with the loss as its result, or without any.
local function make_step(returns)
  local w, b = tf.Variable(tf.ones { 32, 16 }), tf.Variable(tf.zeros { 16 })
  return tf.function_(function(x)
    local loss
    local tape = tf.GradientTape(function()
      loss = tf.reduce_mean(tf.tanh(tf.matmul(x, w) + b) ^ 2)
    end)
    local g = tape:gradient(loss, { w, b })
    w:assign_sub(g[1] * 0.1)
    b:assign_sub(g[2] * 0.1)
    if returns then return loss end
  end)
end

-- Pages that the process was given so far.
local function faults()
  local f = io.open("/proc/self/stat", "rb")
  local text = f:read "*a":match "%) (.*)$"
  f:close()
  local k = 0
  for word in text:gmatch "%S+" do
    k = k + 1
    if k == 8 then return tonumber(word) end
  end
end

local function collect()
  collectgarbage()
  collectgarbage()
end

describe("traced steps", function()
  it("allocate nothing", function()
    local x = tf.ones { 8, 32 }
    local with, without = make_step(true), make_step(false)
    local function step()
      local loss = with(x)
      raw.release(loss)
      without(x)
    end
    for _ = 1, WARM do step() end
    collect()
    for _ = 1, 200 do
      tf.sync_devices() -- or a queue may become longer than it ever was
      raw.test_fail_allocation(1) -- the next one fails
      local ok, e = pcall(step)
      raw.test_fail_allocation(0)
      assert.is_true(ok, tostring(e))
    end
  end)

  -- Lua's own heap grows with its garbage and then no more, where as much is
  -- made between two collections.
  local function pages(step, x)
    collect()
    collectgarbage "stop"
    local before = faults()
    for _ = 1, STEPS do step(x) end
    local n = faults() - before
    collectgarbage "restart"
    return n
  end

  it("get no page from the system, and memory stays flat", function()
    local x = tf.ones { 8, 32 }
    local step = make_step(true)
    local device = raw.device_at("CPU", 0)
    for _ = 1, WARM do step(x) end
    collect()
    local bytes, handles = raw.live_bytes(), raw.live_handles "tensor"
    local _, _, reserved = raw.device_memory(device)
    -- Many rounds in turn get none; a compiler takes some before.
    for _ = 1, TIMES do
      local quiet, rounds = 0, 0
      while quiet < ROUNDS and rounds < 20 * ROUNDS do
        rounds = rounds + 1
        quiet = pages(step, x) == 0 and quiet + 1 or 0
      end
      assert.are.equal(ROUNDS, quiet)
    end
    collect()
    local _, _, now = raw.device_memory(device)
    assert.is_true(raw.live_bytes() <= bytes)
    assert.is_true(raw.live_handles "tensor" <= handles)
    assert.is_true(now <= reserved)
    assert.are.equal(1, step:experimental_get_tracing_count())
  end)
end)

describe("a traced function that calls Lua", function()
  it("lets go of what is used up", function()
    local device = raw.device_at("CPU", 0)
    local before, inside
    local f = tf.function_(function(x)
      tf.py_function(function() end, { x }) -- so it runs node by node
      for _ = 1, 30 do x = tf.cumsum(x) end
      tf.py_function(function(sum)
        sum:item()
        inside = raw.device_memory(device)
      end, { tf.reduce_sum(x) })
      return x
    end)
    local x = tf.ones { 65536 }
    for _ = 1, 3 do
      collect()
      tf.sync_devices()
      before = raw.device_memory(device)
      f(x)
      local held = inside - before
      assert.is_true(held <= 4 * 4 * 65536, held .. " bytes")
    end
  end)
end)

describe("the memory of a convolutional network's step", function()
  local function weights()
    local list = {}
    for i, dims in ipairs { { 3, 3, 1, 32 }, { 32 }, { 3, 3, 32, 64 }, { 64 },
      { 1600, 64 }, { 64 }, { 64, 10 }, { 10 } } do
      list[i] = tf.Variable(tf.random.normal(dims, { stddev = 0.05 }))
    end
    return list
  end

  local function make(v)
    return function(x, y)
      local loss
      local tape = tf.GradientTape(function()
        local h = tf.nn.relu(tf.nn.conv2d(x, v[1], 1, "VALID") + v[2])
        h = tf.nn.max_pool2d(h, 2, 2, "VALID")
        h = tf.nn.relu(tf.nn.conv2d(h, v[3], 1, "VALID") + v[4])
        h = tf.reshape(tf.nn.max_pool2d(h, 2, 2, "VALID"), { -1, 1600 })
        h = tf.nn.relu(tf.matmul(h, v[5]) + v[6])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y,
          tf.matmul(h, v[7]) + v[8]))
      end)
      local g = tape:gradient(loss, v)
      for i = 1, #v do v[i]:assign_sub(g[i] * 0.01) end
      return loss
    end
  end

  -- Most bytes that the device held at once, in the third step and later.
  local function peak(step)
    local x = tf.zeros { 64, 28, 28, 1 }
    local y = tf.zeros({ 64 }, "int32")
    local device = raw.device_at("CPU", 0)
    local most
    for i = 1, 5 do
      if i == 3 then raw.device_reset_peak(device) end
      tf.tidy(function() step(x, y):item() end)
      collect() -- tapes hold what they saw
      most = select(2, raw.device_memory(device))
    end
    return most
  end

  it("is at most 0.8 of eager execution's", function()
    local eager, traced = peak(make(weights())),
      peak(tf.function_(make(weights())))
    assert.is_true(traced <= 0.8 * eager,
      ("traced %d, eager %d bytes"):format(traced, eager))
  end)
end)

describe("a trace that lacks memory", function()
  it("fails or goes on, and is as ever the next time", function()
    local x = tf.constant { 1, 2 }
    for k = 1, 80 do
      local f = tf.function_(function(y)
        return y * 2, tf.timestamp()
      end)
      tf.sync_devices()
      raw.test_fail_allocation(k)
      local ok, e = pcall(f, x)
      raw.test_fail_allocation(0)
      assert.is_true(ok or tostring(e):find("memory", 1, true) ~= nil,
        tostring(e))
      for _ = 1, 2 do
        local y, time = f(x)
        assert.are.same({ 2, 4 }, y:totable())
        assert.is_true(time:item() > 0)
      end
    end
  end)
end)
