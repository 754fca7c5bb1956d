-- CentralStorageStrategy: replicas on many devices, variables on one.
local R = require "spec.support.replicas"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local at = require("spec.support.on_device").at

local fails, locals, list = R.fails, R.locals, R.list

local function names(n)
  return list(n, at)
end

local function central(n, parameter)
  return tf.distribute.experimental.CentralStorageStrategy {
    compute_devices = names(n), parameter_device = parameter }
end

-- it(name, fn(strategy, n)) for 2..5 replicas.
local function each(name, fn)
  R.each(it, pending, name, function(_, n) fn(central(n), n) end)
end

describe("CentralStorageStrategy", function()
  R.leaks(before_each, after_each)

  it("with one device has plain variables", function()
    local s = central(1)
    local v = s:scope(function() return tf.Variable(1.0) end)
    assert.equal("variable", raw.kind(v))
    assert.equal(1, s.num_replicas_in_sync)
  end)

  each("keeps one variable on the parameter device", function(s, n)
    local v = s:scope(function()
      return tf.Variable(1.0, { aggregation = "SUM", name = "v" })
    end)
    assert.equal(n, s.num_replicas_in_sync)
    assert.equal(1, #s.extended.parameter_devices)
    assert.equal(s.extended.parameter_devices[1], v.values[1].device)
    assert.is_truthy(tostring(v):find '^AggregatingVariable "v"')
    s:run(function() v:assign_add(tf.constant(R.id() + 1.0)) end)
    assert.equal(1 + n * (n + 1) / 2, v:read_value():item())
    assert.same(list(n, 2 + n * (n + 1) / 2),
      locals(s, s:run(function() return v + 1 end)))
    local there = central(n, at(1))
    local w = there:scope(function() return tf.Variable(1.0) end)
    assert.equal(raw.device_name(raw.device_find(at(1))), w.device)
  end)

  each("aggregates by the variable's rule", function(s, n)
    local function try(aggregation, expected)
      local v = s:scope(function()
        return tf.Variable(0.0, { aggregation = aggregation })
      end)
      s:run(function() v:assign(tf.constant(R.id() + 1.0)) end)
      assert.near(expected, v:read_value():item(), 1e-6)
      v:assign(7.0)
      assert.equal(7, v:read_value():item())
    end
    try("SUM", n * (n + 1) / 2)
    try("MEAN", (n + 1) / 2)
    try("ONLY_FIRST_REPLICA", 1)
    local none = s:scope(function() return tf.Variable(0.0) end)
    fails("ValueError", "must specify an aggregation", s.run, s, function()
      none:assign(1.0)
    end)
  end)

  each("update calls once, with first components", function(s)
    local v = s:scope(function() return tf.Variable(1.0) end)
    local x = s:run(function() return tf.constant(R.id() + 5.0) end)
    local calls = 0
    s.extended:update(v, function(copy, y)
      calls = calls + 1
      copy:assign(y)
    end, { x })
    assert.equal(1, calls)
    assert.equal(5, v:read_value():item())
  end)

  each("trains", function(s, n)
    local v, opt = s:scope(function()
      return tf.Variable { 0.0 }, tf.keras.optimizers.Adam(0.1)
    end)
    local plain, alone = tf.Variable { 0.0 }, tf.keras.optimizers.Adam(0.1)
    for _ = 1, 3 do
      s:run(function()
        local tape, loss = tf.GradientTape(function()
          return tf.reduce_sum((v - 1) ^ 2) / n
        end)
        opt:apply_gradients({ tape:gradient(loss, v) }, { v })
      end)
      alone:minimize(function() return tf.reduce_sum((plain - 1) ^ 2) end,
        { plain })
    end
    assert.near(plain:totable()[1], v:read_value():totable()[1], 1e-6)
    fails("NotImplementedError", "aggregate", s.run, s, function()
      opt:apply_gradients({ tf.ones { 1 } }, { v },
        { experimental_aggregate_gradients = false })
    end)
    local clipping = tf.keras.optimizers.SGD { clipnorm = 1 }
    fails("ValueError", "clip", s.run, s, function()
      clipping:apply_gradients({ tf.ones { 1 } }, { v })
    end)
  end)

  each("counts examples for metrics on replicas that have none", function(s, n)
    local keras = tf.keras
    for _, make in ipairs {
      function() return keras.metrics.MeanAbsoluteError() end,
      function() return keras.metrics.MeanMetricWrapper(function(t, p)
        return tf.reduce_mean(tf.abs(t - p)) end) end,
    } do
      local metric = s:scope(make)
      s:run(function()
        local rows = R.id() == 0 and 2 or 0
        metric:update_state(tf.zeros { rows, 1 }, tf.fill({ rows, 1 }, 3.0))
      end)
      assert.equal(3, metric:result():item())
    end
    local model = s:scope(function()
      local m = keras.Sequential { keras.layers.Dense(1, { input_shape = { 2 },
        kernel_initializer = "ones" }) }
      m:compile { optimizer = "sgd", loss = "mse", metrics = { "mae" } }
      return m
    end)
    local rows = 2 * n + 1
    local loss, mae = model:evaluate(tf.ones { rows, 2 }, tf.zeros { rows, 1 },
      { batch_size = 2 * n, verbose = 0 })
    assert.near(4, loss, 1e-5)
    assert.near(2, mae, 1e-5)
  end)

  each("normalizes batches that leave replicas without data", function(s, n)
    for _, mask in ipairs { false, true } do
      local layer = s:scope(function()
        local made = tf.keras.layers.BatchNormalization { momentum = 0.9 }
        made:build { 0, 1, 1 }
        return made
      end)
      s:run(function()
        local rows = R.id() == 0 and 2 or 0
        layer(tf.fill({ rows, 1, 1 }, 5.0), { training = true,
          mask = mask and tf.ones({ rows, 1 }, "bool") or nil })
      end)
      -- The first replica's moves by a tenth, the others' stay.
      assert.near(0.1 * 5 / n, layer.moving_mean:read_value():totable()[1], 1e-5)
      assert.near(1 - 0.1 / n, layer.moving_variance:read_value():totable()[1],
        1e-5)
    end
  end)
end)
