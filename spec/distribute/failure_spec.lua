--- What is left after a queued computation failed: variables at their last
--- complete update, values that were never computed, devices that work on.
--- Everything holds on inline devices too, where the failing call itself raises.

local replicas = require "spec.support.replicas"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local devices = require "spec.support.on_device"

local function numbers(v)
  return v:read_value():toflat()
end

-- The error of fn or of what it queued.
local function failing(fn)
  local ok, e = pcall(fn)
  if ok then
    ok, e = pcall(tf.sync_devices)
  end
  assert.is_false(ok)
  assert.equal("InvalidArgument", e.kind)
  return e
end

local function quiet()
  assert.has_no.errors(tf.sync_devices)
end

describe("after a computation failed", function()
  -- On the last device: the others must not matter.
  local place = devices.at(raw.device_count(devices.type) - 1)

  local function on_device(name, fn)
    it(name, function() tf.device(place, fn) end)
  end

  on_device("an assignment has not happened", function()
    local v = tf.Variable { 1, 2, 3 }
    failing(function() v:assign(tf.gather(v, { 0, 1, 9 })) end)
    assert.same({ 1, 2, 3 }, numbers(v))
    v:assign_add { 1, 1, 1 }
    assert.same({ 2, 3, 4 }, numbers(v))
    quiet()
  end)

  on_device("neither have those behind it", function()
    local v, w = tf.Variable { 1, 2, 3 }, tf.Variable { 4 }
    v:assign(v * 2)
    w:assign_add { 1 }
    failing(function()
      v:assign(tf.gather(v, { 0, 1, 9 }))
      v:assign(v * 10)
      v:assign_add { 5, 5, 5 }
      w:assign_add(tf.reshape(tf.reduce_sum(v), { 1 }))
      w:scatter_nd_update({ { 0 } }, tf.reshape(tf.reduce_sum(v), { 1 }))
    end)
    assert.same({ 2, 4, 6 }, numbers(v))
    assert.same({ 5 }, numbers(w))
    quiet()
  end)

  on_device("the values before remain where tensors show them", function()
    local v = tf.Variable { 1, 2 }
    local seen = v:read_value() -- the next update cannot write in place
    failing(function()
      v:assign_add { 1, 1 }
      v:assign_add(tf.gather(v, { 0, 7 }))
    end)
    assert.same({ 1, 2 }, seen:toflat())
    assert.same({ 2, 3 }, numbers(v))
  end)

  on_device("host values assigned meanwhile stay", function()
    local v = tf.Variable { 1, 2, 3 }
    local ok = pcall(function()
      v:assign(tf.gather(v, { 0, 1, 9 }))
    end)
    v:assign { 7, 8, 9 }
    local reported = pcall(tf.sync_devices)
    assert.is_false(ok and reported)
    assert.same({ 7, 8, 9 }, numbers(v))
  end)

  on_device("what was not computed raises the error again", function()
    local x = tf.constant { 1, 2, 3 }
    local ok, y = pcall(function()
      local bad = tf.gather(x, { 5 })
      return { bad + 1, tf.reshape(bad, { 1, 1 }) }
    end)
    if not ok then return quiet() end -- inline: there is no such value
    local e = failing(function() return y[1]:item() end)
    assert.matches("indices%[0%] = 5", e.message)
    for _, use in ipairs {
      function() return y[1]:item() end, function() return y[2]:item() end,
      function() return y[1] * 2 end, function() return tf.square(y[2]) end,
      function() return tf.Variable(y[1]):read_value():item() end,
      function() return tf.device("CPU:0", function()
        return tf.identity(y[1]):item()
      end) end,
    } do
      local again = failing(use)
      assert.equal(e.message, again.message)
      assert.equal(e.where, again.where)
    end
    assert.same({ 1, 2, 3 }, x:toflat())
    quiet()
  end)

  on_device("functions that captured it raise it at each call", function()
    local x, v = tf.constant { 1, 2, 3 }, tf.Variable { 1 }
    -- What has constants alone is computed when the function is traced.
    local f = tf.function_(function()
      v:assign_add(tf.gather(x, { 5 }))
      return v + 0
    end)
    for _ = 1, 3 do
      local e = failing(function() return f():toflat() end)
      assert.matches("indices%[0%] = 5", e.message)
      assert.same({ 1 }, numbers(v))
    end
    quiet()
  end)

  on_device("no variable begins with it", function()
    local ok, e = pcall(function()
      tf.Variable(tf.gather(tf.constant { 1, 2 }, { 6 }))
    end)
    assert.is_false(ok)
    assert.equal("InvalidArgument", e.kind)
    quiet()
  end)

  on_device("hundreds of failures do not add up", function()
    local v = tf.Variable { 0 }
    for i = 1, 300 do
      failing(function() v:assign(tf.gather(v, { i })) end)
      v:assign_add { 1 }
    end
    assert.same({ 300 }, numbers(v))
    quiet()
  end)
end)

describe("after a step failed", function()
  replicas.leaks(before_each, after_each)

  local function weights(strategy, v)
    local list = {}
    for i, copy in ipairs(strategy:experimental_local_results(v)) do
      list[i] = numbers(copy)
      assert.same(list[1], list[i])
    end
    return list[1]
  end

  -- Two steps of Adam for v * v from v, learning rate 0.5, both counted.
  local function after_two_steps(v)
    local g1, g2 = 2 * v, 2 * (v - 0.5)
    local mean = (0.09 * g1 + 0.1 * g2) / 0.19
    local square = (0.000999 * g1 * g1 + 0.001 * g2 * g2) / 0.001999
    return v - 0.5 - 0.5 * mean / (math.sqrt(square) + 1e-7)
  end

  local function fail_in_turn(strategy, n, is_traced)
    local v, rows, optimizer, count, steps
    strategy:scope(function()
      v = tf.Variable { 1, 2, 3, 4 }
      rows = tf.Variable({ { 1 }, { 2 } })
      count = tf.Variable(0, { dtype = "int64" })
      optimizer = tf.keras.optimizers.Adam {
        learning_rate = function(step)
          steps[#steps + 1] = step
          return 0.5
        end,
      }
    end)
    local function fn(row)
      local tape, loss = tf.GradientTape(function()
        return tf.reduce_sum(v * v) + tf.reduce_sum(tf.gather(rows, row))
      end)
      local vars = { v, rows }
      optimizer:apply_gradients(tape:gradient(loss, vars), vars)
      count:assign_add(tf.constant(1, "int64"))
      return loss
    end
    fn = is_traced and tf.function_(fn) or fn
    local function step(bad)
      return strategy:run(fn, { strategy:
        experimental_distribute_values_from_function(function(context)
          local id = context.replica_id_in_sync_group
          return tf.constant({ bad == id and 9 or 1 }, "int32")
        end) })
    end
    steps = {}
    step(nil)
    local before = { weights(strategy, v), weights(strategy, rows) }
    for id = 0, n - 1 do
      local e = failing(function() step(id) end)
      if not is_traced then
        assert.equal(id, e.replica)
      end
      quiet() -- the others' failures went with it
      assert.same(before, { weights(strategy, v), weights(strategy, rows) })
      assert.same({ 1 }, weights(strategy, optimizer.iterations))
      assert.same({ 1 }, weights(strategy, count))
    end
    steps = {}
    step(nil)
    assert.same({ 1 }, steps)
    assert.same({ 2 }, weights(strategy, optimizer.iterations))
    assert.same({ 2 }, weights(strategy, count))
    local second = weights(strategy, v)
    for i = 1, 4 do
      assert.near(after_two_steps(i), second[i], 1e-5)
    end
  end

  replicas.each(it, pending, "weights, slots and counts are those before",
    function(strategy, n)
      fail_in_turn(strategy, n, false)
    end)

  replicas.each(it, pending, "so they are where it is traced",
    function(strategy, n)
      fail_in_turn(strategy, n, true)
    end)

  replicas.pair(it, pending, "errors of all replicas go with the first",
    function(strategy)
      local x = tf.constant { 1, 2 }
      local e = failing(function()
        local result = strategy:run(function()
          local id = tf.distribute.get_replica_context().replica_id_in_sync_group
          return tf.gather(x, { 7 + id })
        end)
        return strategy:reduce("sum", result)
      end)
      assert.matches("indices%[0%] = 7", e.message)
      assert.equal(0, e.replica)
      quiet()
    end)

  replicas.pair(it, pending, "what its first step did not make is made later",
    function(strategy)
      local model = strategy:scope(function()
        local m = tf.keras.Sequential {
          tf.keras.layers.Embedding(5, 2, { input_length = 2 }),
          tf.keras.layers.Flatten(), tf.keras.layers.Dense(1),
        }
        m:compile("adam", "mse", { metrics = { "mae" } })
        return m
      end)
      local function fit(row)
        return model:fit(tf.constant({ { 1, 2 }, row, { 0, 1 }, { 2, 2 } },
          "int32"), tf.ones { 4, 1 }, { verbose = 0, shuffle = false })
      end
      for _ = 1, 2 do
        local e = failing(function() fit { 3, 9 } end)
        assert.matches("indices%[1,1%] = 9", e.message)
        quiet()
      end
      assert.is_number(fit({ 3, 4 }).history.loss[1])
      assert.same({ 1 }, weights(strategy, model.optimizer.iterations))
    end)

  replicas.pair(it, pending, "fit leaves the weights of the last good step",
    function(strategy)
      local model
      strategy:scope(function()
        model = tf.keras.Sequential {
          tf.keras.layers.Dense(8, { activation = "relu", input_shape = { 4 } }),
          tf.keras.layers.Dense(3),
        }
        model:compile {
          optimizer = tf.keras.optimizers.Adam(0.01),
          loss = tf.keras.losses.SparseCategoricalCrossentropy {
            from_logits = true },
        }
      end)
      local x, labels = tf.random.normal { 16, 4 }, {}
      for i = 1, 16 do labels[i] = i % 3 end
      local function fit()
        return model:fit(x, tf.constant(labels, "int32"), {
          batch_size = 4, verbose = 0, shuffle = false }) -- leaves no frame
      end
      fit()
      local before = {}
      for i, v in ipairs(model.variables) do
        before[i] = weights(strategy, v)
      end
      labels[2], labels[4] = 7, 8 -- both replicas of the first step
      local line
      local e = failing(function()
        line = debug.getinfo(1, "l").currentline + 1
        local _ = fit()
      end)
      assert.matches("label 7", e.message) -- submitted first
      assert.equal("spec/distribute/failure_spec.lua:" .. line, e.where)
      quiet()
      for i, v in ipairs(model.variables) do
        assert.same(before[i], weights(strategy, v))
      end
      labels[2], labels[4] = 2, 1
      assert.is_true(fit().history.loss[1] < 10)
    end)
end)
