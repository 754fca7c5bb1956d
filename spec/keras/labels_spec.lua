-- Labels [n] for predictions [n, 1]: each row is an example, for losses and
-- metrics however they are given, with weights, and where a replica's share of
-- the last batch is empty. Expected values are sums over rows.
local R = require "spec.support.replicas"
local tf = require "tfdist"
local expect = require "spec.support.expect"

local L, K = tf.keras.layers, tf.keras
local near, fails = expect.near, R.fails

local N = 40 -- batches of 16: two replicas share the last as 8 and 0 rows

local function data()
  local x, y, w = {}, {}, {}
  for i = 1, N do
    x[i], y[i], w[i] = (i * 7 % N) / N + 0.01, i % 3 == 0 and 1 or 0, i % 5
  end
  return x, y, w
end

local function mean_of(fn, weighted)
  local x, y, w = data()
  local sum, all = 0, 0
  for i = 1, N do
    local weight = weighted and w[i] or 1
    sum, all = sum + weight * fn(x[i], y[i]), all + weight
  end
  return sum / all, sum / N
end

local function distance(x, y) return math.abs(x - y) end
local function square(x, y) return (x - y) ^ 2 end
local function hit(x, y) return (x > 0.5) == (y > 0.5) and 1 or 0 end
local function hinge(x, y) return math.max(0, 1 - (2 * y - 1) * x) end

local function mean_distance(y_true, y_pred)
  return tf.reduce_mean(tf.abs(y_true - y_pred))
end

local function row_distance(y_true, y_pred)
  return tf.reduce_mean(tf.abs(y_true - y_pred), { axis = -1 })
end

-- { name, entry for compile, value of one row }
local METRICS = {
  { "mae by name", "mae", distance },
  { "mse by name", "mse", square },
  { "hinge by name", "hinge", hinge },
  { "accuracy by name", "accuracy", hit },
  { "binary_accuracy by name", "binary_accuracy", hit },
  { "a class", function() return K.metrics.MeanAbsoluteError() end, distance,
    make = true },
  { "a function of the library", K.losses.mean_absolute_error, distance },
  { "a function for each row", row_distance, distance },
}

local function evaluate(options, more)
  local x, y, w = data()
  local m = K.Sequential { L.Lambda(function(t) return t end) }
  m:compile(options)
  local call = { batch_size = 16, verbose = 0, return_dict = true }
  if more then call.sample_weight = tf.constant(w) end
  return m:evaluate(tf.reshape(tf.constant(x), { N, 1 }), tf.constant(y), call)
end

local function other_than_loss(found)
  for name, value in pairs(found) do
    if name ~= "loss" then return value end
  end
end

local function check_metrics()
  for _, entry in ipairs(METRICS) do
    local metric = entry.make and entry[2]() or entry[2]
    local found = evaluate { loss = "mse", metrics = { metric } }
    near((mean_of(entry[3])), other_than_loss(found), 1e-5)
    metric = entry.make and entry[2]() or entry[2]
    found = evaluate({ loss = "mse", weighted_metrics = { metric } }, true)
    near((mean_of(entry[3], true)), other_than_loss(found), 1e-5)
  end
end

local function check_losses()
  for name, fn in pairs { mae = distance, mse = square, hinge = hinge } do
    near((mean_of(fn)), evaluate { loss = name }.loss, 1e-5)
    local _, weighted = mean_of(fn, true)
    near(weighted, evaluate({ loss = name }, true).loss, 1e-5)
  end
  local _, weighted = mean_of(square, true)
  near(weighted, evaluate({ loss = K.losses.MeanSquaredError() }, true).loss,
    1e-5)
  _, weighted = mean_of(distance, true)
  near(weighted, evaluate({ loss = row_distance }, true).loss, 1e-5)
end

describe("labels [n] for predictions [n, 1]", function()
  it("are one example each to metrics", check_metrics)

  it("are one example each to losses, with weights", check_losses)

  it("weigh by class", function()
    local x, y = data()
    local m = K.Sequential { L.Dense(1, { input_shape = { 1 },
      use_bias = false, kernel_initializer = "ones" }) }
    m:compile { loss = "mse", optimizer = K.optimizers.SGD(0) }
    local h = m:fit(tf.reshape(tf.constant(x), { N, 1 }), tf.constant(y),
      { verbose = 0, batch_size = 16, class_weight = { [0] = 1, [1] = 3 } })
    near((mean_of(function(a, b) return square(a, b) * (1 + 2 * b) end)),
      h.history.loss[1], 1e-5)
  end)

  it("weigh by class, times weights of their own in any shape", function()
    local x, y, w = data()
    local labels = {}
    for i = 1, N do
      labels[i] = y[i] * 0.99999994 -- what is computed is not always whole
    end
    local want = 0
    for i = 1, N do
      want = want + square(x[i], y[i]) * (1 + 2 * y[i]) * w[i] / N
    end
    local m = K.Sequential { L.Dense(1, { input_shape = { 1 },
      use_bias = false, kernel_initializer = "ones" }) }
    m:compile { loss = "mse", optimizer = K.optimizers.SGD(0) }
    for _, y_shape in ipairs { { N }, { N, 1 } } do
      for _, w_shape in ipairs { { N }, { N, 1 } } do
        local h = m:fit(tf.reshape(tf.constant(x), { N, 1 }),
          tf.reshape(tf.constant(labels), y_shape), { verbose = 0,
            batch_size = 16, class_weight = { [0] = 1, [1] = 3 },
            sample_weight = tf.reshape(tf.constant(w), w_shape) })
        near(want, h.history.loss[1], 1e-5)
      end
    end
  end)

  it("weigh steps by class and whole examples by weights", function()
    local m = K.Sequential { L.Dense(2, { input_shape = { 2, 2 } }) }
    local each = tf.constant { { 1, 2 }, { 3, 4 } }
    m:compile { optimizer = K.optimizers.SGD(0), loss = function(_, p)
      return each + 0 * tf.reduce_sum(p, { axis = -1 })
    end }
    local labels = tf.constant({ { { 0 }, { 1 } }, { { 1 }, { 0 } } }, "int32")
    local loss = m:train_on_batch(tf.ones { 2, 2, 2 }, labels, { 1, 10 },
      { [0] = 1, [1] = 5 })
    near((1 * 1 + 2 * 5 + (3 * 5 + 4 * 1) * 10) / 4, loss, 1e-5)
    near(2.5, (m:train_on_batch(tf.ones { 2, 2, 2 }, labels, nil, {})), 1e-5)
  end)

  it("of several outputs have no classes to weigh", function()
    local x = K.Input { 1 }
    local m = K.Model(x, { L.Dense(1)(x), L.Dense(1)(x) })
    m:compile("sgd", "mse")
    local y = { tf.ones { 4, 1 }, tf.ones { 4, 1 } }
    fails("ValueError", "class_weight is for models with one output, got labels "
      .. "for 2", m.fit, m, tf.ones { 4, 1 }, y, { verbose = 0,
        class_weight = { [0] = 1, [1] = 2 } })
  end)

  it("are so for functions called directly", function()
    local y, p = tf.constant { 0, 1, 1 }, tf.constant { { 0.5 }, { 0.25 }, { 1 } }
    assert.same({ 0.5, 0.75, 0 }, K.losses.mean_absolute_error(y, p):totable())
    assert.same({ 0.5, 0.75, 0 }, K.losses.mean_absolute_error(p, y):totable())
    assert.same({ { 1 }, { 0 }, { 1 } },
      K.metrics.binary_accuracy(y, p):totable())
    -- Of higher ranks the last axis goes.
    assert.same({ 0.25 }, K.losses.mean_absolute_error(tf.zeros { 1, 2 },
      tf.constant { { { 0.5 }, { 0 } } }):totable())
  end)

  R.pair(it, pending, "are so on two replicas, one without examples at the end",
    function(strategy)
      strategy:scope(function()
        check_metrics()
        check_losses()
      end)
    end)

  R.pair(it, pending, "leave means of nothing out of a mean of batches",
    function(strategy)
      -- Shares of 8, 8, 8, 8 and 8 rows, and one of none.
      local found = strategy:scope(function()
        return evaluate { loss = "mse", metrics = { mean_distance } }
      end)
      near((mean_of(distance)), other_than_loss(found), 1e-5)
    end)
end)

describe("weights that do not fit", function()
  it("are told in the shape that they were given in", function()
    local loss = K.losses.MeanSquaredError()
    local y = tf.zeros { 2, 3, 4 }
    for shape, want in pairs { [{ 5 }] = "{5}", [{ 2, 4 }] = "{2, 4}",
      [{ 2, 4, 1 }] = "{2, 4, 1}" } do
      fails("InvalidArgument", ("sample_weight has shape %s, the losses have "
        .. "shape {2, 3}"):format(want), loss, y, y,
        tf.ones(shape))
    end
    local m = K.Sequential { L.Embedding(5, 3, { mask_zero = true }), L.Dense(1) }
    m:compile("sgd", "mse")
    for shape, want in pairs { [{ 3 }] = "{3}", [{ 4, 3 }] = "{4, 3}" } do
      fails("InvalidArgument", ("sample_weight has shape %s, the mask has shape "
        .. "{4, 2}"):format(want), m.train_on_batch, m, tf.ones({ 4, 2 }, "int32"),
        tf.zeros { 4, 2, 1 }, tf.ones(shape))
    end
    m = K.Sequential { L.Dense(1, { input_shape = { 2 } }) }
    m:compile("sgd", "mse")
    fails("InvalidArgument", "class_weight: sample_weight has shape {3}, the "
      .. "labels' classes have shape {4}", m.train_on_batch, m, tf.ones { 4, 2 },
      tf.zeros { 4 }, { sample_weight = { tf.ones { 3 } },
        class_weight = { [0] = 1 } })
  end)
end)

describe("a call without return", function()
  it("is named by evaluate", function()
    local m = K.Sequential { L.Lambda(function() end) }
    m:compile { loss = "mse" }
    fails("TypeError", "call must return tensors, got nothing", m.evaluate, m,
      tf.ones { 2, 1 }, tf.ones { 2 }, { verbose = 0 })
  end)
end)
