-- What programs for TensorFlow bring along: mixed strategies, replicas without
-- data, calls with `training`, layers that learn shapes from data, classes of
-- their own.
local R = require "spec.support.replicas"
local tf = require "tfdist"

local L = tf.keras.layers
local fails = R.fails

local function pairs_of(n)
  local x = {}
  for i = 1, n do
    x[i] = { i }
  end
  x = tf.constant(x)
  return tf.data.Dataset.from_tensor_slices { x, x * 2 }
end

local function compiled(strategy, loss)
  local function make()
    local m = tf.keras.Sequential {
      L.Dense(1, { input_shape = { 1 }, kernel_initializer = "ones" }),
    }
    m:compile { optimizer = "sgd", loss = loss or "mse", metrics = { "mae" },
      weighted_metrics = { "mse" } }
    return m
  end
  return strategy and strategy:scope(make) or make()
end

describe("data of one strategy, model of another", function()
  local one = tf.distribute.OneDeviceStrategy "/cpu:0"

  R.pair(it, pending, "is an error that names both", function(mirrored)
    local central = tf.distribute.experimental.CentralStorageStrategy()
    local data = mirrored:experimental_distribute_dataset(pairs_of(4):batch(4))
    for _, entry in ipairs { { nil, "no strategy" }, { one,
      "a OneDeviceStrategy" }, { central, "a CentralStorageStrategy" },
      { R.mirrored(2), "another MirroredStrategy" } } do
      local m = compiled(entry[1])
      for _, name in ipairs { "fit", "evaluate", "predict" } do
        local e = fails("ValueError", name .. ": the dataset is distributed "
          .. "by a MirroredStrategy, the model belongs to " .. entry[2],
          m[name], m, data, { verbose = 0 })
        assert.matches("strategy:scope", e.hint, 1, true)
      end
      fails("TypeError", "must be one batch", m.train_on_batch, m, data)
    end
  end)

  it("is no matter with one device on both sides", function()
    local data = one:experimental_distribute_dataset(pairs_of(4):batch(4))
    assert.equal(7.5, compiled():evaluate(data, { verbose = 0 })[1])
  end)

  R.pair(it, pending, "loses no components in run", function(mirrored)
    local data = mirrored:experimental_distribute_dataset(pairs_of(4):batch(4))
    for x in data:iter() do
      fails("ValueError", "a value of 2 replicas", one.run, one, function()
      end, { x })
    end
  end)
end)

describe("a replica without data", function()
  R.pair(it, pending, "has the average loss 0", function(strategy)
    local data = strategy:experimental_distribute_dataset(pairs_of(3):batch(2))
    local losses, penalties
    for x in data:iter() do
      losses, penalties = strategy:run(function(own)
        return tf.nn.compute_average_loss(tf.reduce_sum(own, 1)),
          tf.nn.scale_regularization_loss(tf.reduce_sum(own))
      end, { x })
    end
    assert.equal(1.5, losses.values[1]:item())
    assert.equal(0, losses.values[2]:item())
    assert.equal(0, penalties.values[2]:item())
  end)

  R.pair(it, pending, "changes neither losses nor metrics", function(strategy)
    local function mean(y, p)
      return tf.reduce_mean((y - p) ^ 2)
    end
    local function each(y, p)
      return tf.reduce_mean((y - p) ^ 2, { axis = -1 })
    end
    for _, loss in ipairs { "mse", each, mean } do
      local m, own = compiled(strategy, loss), compiled(nil, loss)
      local data = pairs_of(3):batch(2)
      for _ = 1, 2 do
        local h = m:fit(data, { verbose = 0 }).history
        local want = own:fit(data, { verbose = 0 }).history
        for name, list in pairs(want) do
          assert.near(list[1], h[name][1], 1e-5)
        end
      end
      local found = m:evaluate(data, { verbose = 0 })
      for i, value in ipairs(own:evaluate(data, { verbose = 0 })) do
        assert.near(value, found[i], 1e-5)
      end
    end
  end)
end)
