--- Steps of training: what they keep as they go on, how often they are traced,
--- and where gradients lie.
local tf = require "tfdist"
local heard = require "spec.support.heard"
local on_device = require "spec.support.on_device"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"

describe("steps of training", function()
  it("take no memory and no retracing as they go on", function()
    local v = tf.Variable(tf.ones { 32, 32 })
    local f = tf.function_(function(x)
      local loss
      local tape = tf.GradientTape(function()
        loss = tf.reduce_mean(tf.matmul(x, v) ^ 2)
      end)
      v:assign_sub(tape:gradient(loss, v) * 0.01)
      return loss
    end)
    local x = tf.ones { 8, 32 }
    for _ = 1, 50 do f(x) end
    collectgarbage()
    collectgarbage()
    local bytes, handles = raw.live_bytes(), raw.live_handles "tensor"
    for _ = 1, 2000 do f(x) end
    collectgarbage()
    collectgarbage()
    assert.are.equal(1, f:experimental_get_tracing_count())
    assert.is_true(raw.live_bytes() <= bytes)
    assert.is_true(raw.live_handles "tensor" <= handles)
  end)

  -- Two weights and an optimizer that has its slots.
  local function built(strategy)
    local v, optimizer
    local function make()
      v = { tf.Variable(tf.ones { 3 }), tf.Variable(2.0) }
      optimizer = tf.keras.optimizers.Adam(0.1)
      optimizer:build(v)
    end
    if strategy then strategy:scope(make) else make() end
    local count = 0
    return function(x)
      count = count + 1
      local tape, loss = tf.GradientTape(function()
        return tf.reduce_sum((v[1] - x) ^ 2) + v[2] ^ 2
      end)
      optimizer:apply_gradients(tape:gradient(loss, v), v)
      return loss
    end, function() return count end
  end

  -- Three steps, in each of which the loss goes down.
  local function take(run)
    local before = 1 / 0
    for _ = 1, 3 do
      local loss = run():item()
      assert.is_true(loss < before)
      before = loss
    end
  end

  it("of an optimizer are traced once", function()
    local step, count = built()
    local f, x = tf.function_(step), tf.zeros { 3 }
    take(function() return f(x) end)
    assert.are.equal(1, count())
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  replicas.each(it, pending, "of an optimizer are traced once around a run",
    function(strategy, n)
      local step, count = built(strategy)
      local traced, x = 0, tf.zeros { 3 }
      local f = tf.function_(function(given)
        traced = traced + 1
        return strategy:reduce("mean", strategy:run(step, { given }))
      end)
      take(function() return f(x) end)
      assert.are.equal(1, traced)
      assert.are.equal(1, f:experimental_get_tracing_count())
      assert.are.equal(n, count())
    end)

  replicas.each(it, pending, "of an optimizer are traced once in each replica",
    function(strategy, n)
      local step, count = built(strategy)
      local f, x = tf.function_(step), tf.zeros { 3 }
      take(function()
        return strategy:reduce("mean", strategy:run(f, { x }))
      end)
      assert.are.equal(n, count())
    end)

  -- After a call with NaN what the graph's memory holds is NaN, but for what a
  -- call writes first.
  local function check_after_nan(plain, x, w)
    local f = tf.function_(plain)
    local want = { plain(x, w) }
    for _ = 1, 2 do
      f(tf.fill(x.shape, 0 / 0), w)
      local got = { f(x, w) }
      for i = 1, #want do
        assert.are.equal(raw.tensor_bytes(want[i]), raw.tensor_bytes(got[i]), i)
      end
    end
  end

  it("let gradients of one value fan out #plan", function()
    tf.random.set_seed(3)
    check_after_nan(function(x, w)
      local loss, unused
      local tape = tf.GradientTape({ persistent = true })
      tape:watch(x)
      local a = tf.matmul(x, w)
      local b = tf.matmul(a, w)
      unused = tf.exp(b)
      loss = tf.reduce_sum(a + b) + tf.reduce_sum(tf.stop_gradient(a) * b)
      tape:close()
      return tape:gradient(loss, x), tape:gradient(loss, w), loss,
        tape:gradient(unused, w)
    end, tf.random.normal { 3, 3 }, tf.Variable(tf.random.normal { 3, 3 }))
  end)

  it("give one gradient to many, and take many for one #plan", function()
    tf.random.set_seed(4)
    check_after_nan(function(x, w)
      local each = {}
      local tape, loss = tf.GradientTape(function(t)
        t:watch(x)
        local a = tf.matmul(x, w)
        -- The sum's gradient is all of its terms'; each gives one for a.
        each = { a, tf.tanh(a), tf.transpose(a), tf.reshape(a, { 8, 8 }),
          tf.concat({ a[{ { 4 } }], a[{ { 0, 4 } }] }, 0), tf.nn.softmax(a) }
        local sum = each[1]
        for i = 2, #each do sum = sum + each[i] end
        each[#each + 1] = sum
        return tf.reduce_sum(sum * sum)
      end)
      local g = tape:gradient(loss, { x, w, each[1], each[2], each[6], each[7] })
      return loss, g[1], g[2], g[3], g[4], g[5], g[6]
    end, tf.random.normal { 8, 8 }, tf.Variable(tf.random.normal { 8, 8 }))
  end)
end)

describe("the warning of many traces", function()
  -- What is said of six traces after ten calls, each with `quiet` calls of a
  -- known signature behind it.
  local function said(quiet)
    local f = tf.function_(function(x, n) return x * n end)
    local x, text = tf.constant(2.0), ""
    for _ = 1, 10 do f(x, 0) end
    for n = 1, 6 do
      text = text .. heard(function() f(x, n) end)
      for _ = 1, quiet do text = text .. heard(function() f(x, 0) end) end
    end
    assert.are.equal(7, f:experimental_get_tracing_count())
    return text
  end

  it("is about the last ten calls: six in sixty are none", function()
    assert.are.equal("", said(9))
    assert.are.equal("", said(1)) -- five in ten
  end)

  it("comes once where they are more than five, and names what differs",
    function()
      local text = said(0)
      assert.is_truthy(text:find("6 of the last 10 calls", 1, true), text)
      assert.is_truthy(text:find("argument part 2 was 5 and is 6", 1, true),
        text)
      local _, warnings = text:gsub("warning", "")
      assert.are.equal(1, warnings)
    end)
end)

describe("a last batch that is smaller", function()
  local function batches()
    return tf.data.Dataset.from_tensor_slices({ tf.ones { 10, 3 },
      tf.ones { 10, 1 } }):batch(4)
  end

  -- Traces after each of three epochs.
  local function traces(options, body)
    local v = tf.Variable(tf.ones { 3, 1 })
    local f = tf.function_(body(v), options)
    local list = {}
    for epoch = 1, 3 do
      for x, y in batches():iter() do f(x, y) end
      list[epoch] = f:experimental_get_tracing_count()
    end
    return list
  end

  local function step(v)
    return function(x, y)
      local tape, loss = tf.GradientTape(function()
        return tf.reduce_mean((tf.matmul(x, v) - y) ^ 2)
      end)
      v:assign_sub(tape:gradient(loss, v) * 0.1)
      return loss
    end
  end

  local function prediction(v)
    return function(x) return tf.matmul(x, v) end
  end

  it("is one trace more, and none in later epochs", function()
    for _, retracing in ipairs { false, true } do
      for _, body in ipairs { step, prediction } do
        local options = { reduce_retracing = retracing }
        assert.are.same({ 2, 2, 2 }, traces(options, body))
        tf.device(on_device.at(0), function()
          assert.are.same({ 2, 2, 2 }, traces(options, body))
        end)
      end
    end
  end)

  -- The first step of each size runs line by line, so the last batch is traced
  -- when it comes again.
  it("is one trace more in fit, and none after two epochs", function()
    local traced, eager = 0, 0
    local model = tf.keras.Sequential { tf.keras.layers.Dense(1) }
    model:compile { optimizer = tf.keras.optimizers.Adam(0.1),
      loss = function(y, p)
        if tf.executing_eagerly() then
          eager = eager + 1
        else
          traced = traced + 1
        end
        return tf.reduce_mean((y - p) ^ 2, -1)
      end }
    local list = {}
    for epoch = 1, 4 do
      model:fit(batches(), { epochs = 1, verbose = 0 })
      list[epoch] = { traced, eager }
    end
    assert.are.same({ { 1, 2 }, { 2, 2 }, { 2, 2 }, { 2, 2 } }, list)
  end)
end)
