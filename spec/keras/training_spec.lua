-- fit, evaluate and predict: against loops written by hand, closed forms and
-- one device; data of every kind; errors.
local R = require "spec.support.replicas"
local tf = require "tfdist"
local heard = require "spec.support.heard"
local at = require("spec.support.on_device").at
local expect = require "spec.support.expect"

local L, K = tf.keras.layers, tf.keras.metrics
local fails = R.fails

local near = expect.near

-- n rows of 3 numbers and a class in 0..2, by a formula.
local function rows(n)
  local x, y = {}, {}
  for i = 1, n do
    x[i] = { math.sin(i), math.cos(2 * i), math.sin(3 * i + 1) }
    y[i] = (i * 7) % 3
  end
  return tf.constant(x), tf.constant(y, "int32")
end

local function by_formula(scale)
  return function(shape, dtype)
    local size = 1
    for i = 1, #shape do
      size = size * shape[i]
    end
    local list = {}
    for i = 1, size do
      list[i] = scale * math.sin(5 * i)
    end
    return tf.cast(tf.reshape(tf.constant(list), shape), dtype or "float32")
  end
end

local function network()
  return tf.keras.Sequential {
    L.Dense(5, { activation = "tanh", input_shape = { 3 },
      kernel_initializer = by_formula(0.5) }),
    L.Dense(3, { kernel_initializer = by_formula(0.7) }),
  }
end

local function compiled(more)
  local m = network()
  local options = {
    optimizer = tf.keras.optimizers.SGD { learning_rate = 0.1, momentum = 0.9 },
    loss = tf.keras.losses.SparseCategoricalCrossentropy { from_logits = true },
    metrics = { "accuracy" },
  }
  for key, value in pairs(more or {}) do
    options[key] = value
  end
  m:compile(options)
  return m
end

local function in_scope(strategy, fn, ...)
  local args = { ... }
  return strategy:scope(function()
    return fn(args[1])
  end)
end

-- The same training by hand on one device: batches of `size` in order.
local function by_hand(x, y, size, epochs)
  local m = network()
  local optimizer = tf.keras.optimizers.SGD { learning_rate = 0.1,
    momentum = 0.9 }
  local n = #x
  for _ = 1, epochs do
    for first = 0, n - 1, size do
      local last = math.min(first + size, n)
      local xb, yb = x[{ { first, last } }], y[{ { first, last } }]
      local tape, loss = tf.GradientTape(function()
        return tf.nn.compute_average_loss(
          tf.nn.sparse_softmax_cross_entropy_with_logits(yb,
          m(xb, { training = true })), { global_batch_size = last - first })
      end)
      local vars = m.trainable_variables
      optimizer:apply_gradients(tape:gradient(loss, vars), vars)
    end
  end
  return m
end

local function same_weights(a, b, tolerance)
  for i, v in ipairs(a.variables) do
    local left, right = v:read_value():totable(),
      b.variables[i]:read_value():totable()
    if tolerance then
      near(left, right, tolerance)
    else
      assert.same(left, right)
    end
  end
end

-- Plain numbers of every forward pass, for losses computed here.
local function losses_of(m, x, y)
  return tf.keras.losses.sparse_categorical_crossentropy(y, m(x),
    { from_logits = true }):totable()
end

local function mean(list)
  local sum = 0
  for i = 1, #list do
    sum = sum + list[i]
  end
  return sum / #list
end

local QUIET = { verbose = 0 }

local function quiet(more)
  local out = { verbose = 0 }
  for key, value in pairs(more or {}) do
    out[key] = value
  end
  return out
end

local function batches(x, y, size)
  return tf.data.Dataset.from_tensor_slices { x, y }:batch(size)
end

describe("training", function()
  R.leaks(before_each, after_each)

  it("gives the weights of a loop by hand, bit for bit on one device",
    function()
      local x, y = rows(22)
      local m = compiled()
      m:fit(x, y, quiet { epochs = 3, batch_size = 8, shuffle = false })
      same_weights(by_hand(x, y, 8, 3), m)
    end)

  it("gives them on OneDeviceStrategy, too", function()
    local x, y = rows(22)
    local m = in_scope(tf.distribute.OneDeviceStrategy(at(0)), compiled)
    m:fit(batches(x, y, 8), quiet { epochs = 3 })
    same_weights(by_hand(x, y, 8, 3), m)
  end)

  R.each(it, pending, "gives them on several devices, short and empty shares "
    .. "included", function(strategy)
      -- 22 = 8 + 8 + 6; 17 = 8 + 8 + 1
      for _, n in ipairs { 22, 17 } do
        local x, y = rows(n)
        local m = in_scope(strategy, compiled)
        local h = m:fit(batches(x, y, 8), quiet { epochs = 3 })
        same_weights(by_hand(x, y, 8, 3), m, 2e-6)
        local one = compiled()
        local g = one:fit(batches(x, y, 8), quiet { epochs = 3 })
        near(g.history.loss, h.history.loss, 2e-6)
        near(g.history.accuracy, h.history.accuracy)
        near({ one:evaluate(x, y, quiet { batch_size = 8 }) },
          { m:evaluate(x, y, quiet { batch_size = 8 }) }, 2e-6)
        near(one:predict(x, quiet { batch_size = 8 }):totable(),
          m:predict(x, quiet { batch_size = 8 }), 5e-6)
      end
    end)

  it("gives them with central storage, too", function()
    if R.available < 2 then
      return pending "needs TFDIST_CPU_DEVICES=2"
    end
    local x, y = rows(22)
    local m = in_scope(tf.distribute.experimental.CentralStorageStrategy {
      compute_devices = { at(0), at(1) } }, compiled)
    local h = m:fit(batches(x, y, 8), quiet { epochs = 2 })
    same_weights(by_hand(x, y, 8, 2), m, 2e-6)
    local one = compiled():fit(batches(x, y, 8), quiet { epochs = 2 })
    near(one.history.accuracy, h.history.accuracy)
    near(one.history.loss, h.history.loss, 2e-6)
  end)

  it("scales losses for an optimizer that asks for it", function()
    local x, y = rows(16)
    local sgd = tf.keras.optimizers.SGD { learning_rate = 0.1, momentum = 0.9 }
    local m = compiled {
      optimizer = tf.keras.mixed_precision.LossScaleOptimizer(sgd),
    }
    m:fit(x, y, quiet { epochs = 2, batch_size = 8, shuffle = false })
    -- The scale is a power of two: nothing is rounded.
    same_weights(by_hand(x, y, 8, 2), m)
  end)

  it("weighs a short last batch by its examples in evaluate", function()
    local x, y = rows(7)
    local m = compiled()
    local got = m:evaluate(x, y, quiet { batch_size = 4, return_dict = true })
    near(mean(losses_of(m, x, y)), got.loss)
    local right = 0
    for i, c in ipairs(tf.argmax(m(x), { axis = -1 }):totable()) do
      right = right + (c == y:totable()[i] and 1 or 0)
    end
    near(right / 7, got.accuracy)
    local loss, accuracy = m:evaluate(batches(x, y, 4), QUIET)
    near({ got.loss, got.accuracy }, { loss, accuracy })
    assert.same({ "loss", "accuracy" }, m.metrics_names)
  end)

  it("gives predictions in the order of the examples", function()
    local x, y = rows(11)
    local m = compiled()
    near(m(x):totable(), m:predict(x, quiet { batch_size = 4 }))
    near(m(x):totable(), m:predict(batches(x, y, 3), QUIET))
    assert.same({ 11, 3 }, m:predict(tf.data.Dataset.from_tensor_slices(x)
      :batch(5), QUIET).shape)
    near(m(x):totable(), m:predict_on_batch(x))
  end)

  it("records each epoch in the history it returns", function()
    local x, y = rows(16)
    local m = compiled()
    local h = m:fit(x, y, quiet { epochs = 3, validation_data = { x, y } })
    assert.same({ 0, 1, 2 }, h.epoch)
    for _, name in ipairs { "loss", "accuracy", "val_loss", "val_accuracy" } do
      assert.equal(3, #h.history[name])
    end
    -- The weights after the epoch are those that it validates.
    near(mean(losses_of(m, x, y)), h.history.val_loss[3])
    assert.is_true(h.history.loss[3] < h.history.loss[1])
  end)

  it("sums without scaling, means with 1/N (K15)", function()
    -- w x against y: d/dw of (w x - y)^2 is 2 x (w x - y)
    local function run(reduction, batch, strategy)
      local function make()
        local m = tf.keras.Sequential { L.Dense(1, { input_shape = { 1 },
          use_bias = false, kernel_initializer = function()
            return tf.constant { { 2 } }
          end }) }
        m:compile { optimizer = tf.keras.optimizers.SGD {
          learning_rate = 0.001 },
          loss = tf.keras.losses.MeanSquaredError { reduction = reduction } }
        return m
      end
      local m = strategy and strategy:scope(make) or make()
      local x = tf.constant { { 2 }, { 7 }, { 2 }, { 7 } }
      local y = tf.constant { { 6 }, { 21 }, { 6 }, { 21 } }
      m:fit(x[{ { 0, batch } }], y[{ { 0, batch } }],
        quiet { batch_size = batch, shuffle = false })
      return m.variables[1]:read_value():item()
    end
    near(2 + 0.106, run("sum", 2))
    near(2.053, run("sum_over_batch_size", 2))
    if R.available >= 2 then
      -- Both replicas see x = 2 and 7 once each.
      near(2 + 0.106 * 2, run("sum", 4, R.mirrored(2)), 2e-6)
      near(2.053, run("auto", 4, R.mirrored(2)), 2e-6)
      near(2.053, run("sum_over_batch_size", 4, R.mirrored(2)), 2e-6)
    end
  end)

  it("reads data sets, functions and distributed data alike", function()
    local x, y = rows(12)
    local expected = by_hand(x, y, 4, 2)
    local m = compiled()
    m:fit(batches(x, y, 4), quiet { epochs = 2 })
    same_weights(expected, m)
    local f = compiled()
    local first = 0
    f:fit(function()
      local from = first % 12
      first = first + 4
      return x[{ { from, from + 4 } }], y[{ { from, from + 4 } }]
    end, quiet { epochs = 2, steps_per_epoch = 3 })
    same_weights(expected, f)
  end)

  it("shuffles arrays anew in each epoch unless told not to", function()
    local seen = {}
    local m = compiled { metrics = {} }
    local x, y = rows(32)
    tf.random.set_seed(3)
    function m.train_step(self, xb)
      seen[#seen + 1] = xb:totable()[1][1]
      return { loss = tf.constant(0) }
    end
    m:fit(x, y, quiet { epochs = 2, batch_size = 32 })
    assert.not_equal(seen[1], seen[2])
    m:fit(x, y, quiet { epochs = 2, batch_size = 32, shuffle = false })
    assert.equal(seen[3], seen[4])
    near(math.sin(1), seen[3])
  end)

  it("takes the last fraction of arrays for validation", function()
    local x, y = rows(10)
    local m = compiled { optimizer = tf.keras.optimizers.SGD {
      learning_rate = 0 } }
    local h = m:fit(x, y, quiet { validation_split = 0.2 })
    local all = losses_of(m, x, y)
    near(mean { all[9], all[10] }, h.history.val_loss[1])
    near((mean(all) * 10 - all[9] - all[10]) / 8, h.history.loss[1])
    fails("ValueError", "only supported for tensors", m.fit, m,
      batches(x, y, 2), quiet { validation_split = 0.2 })
    fails("ValueError", "in 0..1", m.fit, m, x, y,
      quiet { validation_split = 1.5 })
  end)

  it("validates in the epochs asked for", function()
    local x, y = rows(6)
    local m = compiled()
    local h = m:fit(x, y, quiet { epochs = 4, validation_data = { x, y },
      validation_freq = 2 })
    assert.equal(2, #h.history.val_loss)
    h = m:fit(x, y, quiet { epochs = 4, validation_data = { x, y },
      validation_freq = { 1, 2, 4 } })
    assert.equal(3, #h.history.val_loss)
    fails("ValueError", "validation_data has 4 entries; expected { x, y } or",
      m.fit, m, x, y, quiet { validation_data = { x, y, x, y } })
  end)

  it("weighs examples and classes", function()
    local x, y = rows(6)
    local frozen = { optimizer = tf.keras.optimizers.SGD { learning_rate = 0 },
      metrics = {} }
    frozen.weighted_metrics = { tf.keras.metrics.SparseCategoricalCrossentropy {
      from_logits = true, name = "weighted" } }
    local m = compiled(frozen)
    local each, labels = losses_of(m, x, y), y:totable()
    local w = { 1, 2, 0, 1, 3, 1 }
    local sum, all = 0, 0
    for i = 1, 6 do
      sum, all = sum + w[i] * each[i], all + w[i]
    end
    local h = m:fit(x, y, quiet { sample_weight = w, shuffle = false })
    near(sum / 6, h.history.loss[1])
    near(sum / all, h.history.weighted[1])
    local by_class = 0
    local class_weight = { [0] = 1, [1] = 2, [2] = 5 }
    for i = 1, 6 do
      by_class = by_class + class_weight[labels[i]] * each[i]
    end
    h = m:fit(x, y, quiet { class_weight = class_weight })
    near(by_class / 6, h.history.loss[1])
    -- a callback that looks at a batch leaves fit its weights
    -- (and its metrics empty)
    h = m:fit(x, y, quiet { class_weight = class_weight, batch_size = 3,
      shuffle = false, callbacks = { { on_train_batch_begin = function()
        m:test_on_batch(x, y)
      end } } })
    local last = 0
    for i = 4, 6 do
      last = last + class_weight[labels[i]] * each[i]
    end
    near(last / 3, h.history.loss[1])
    local e = fails("ValueError", "fit: class_weight has a weight for class 3, "
      .. "but none for class 0", m.fit, m, x, y,
      quiet { class_weight = { 1, 2, 3 } })
    assert.matches("count from 0", e.hint)
    fails("ValueError", 'train_on_batch: class_weight has the string "2" '
      .. "under the number 1; it maps classes, counted from 0, to numbers",
      m.train_on_batch, m, x, y, nil, { [0] = 1, [1] = "2" })
  end)

  it("counts steps in whole numbers", function()
    local x, y = rows(6)
    local m = compiled()
    for _, steps in ipairs { 0, -1, 1.5, 0 / 0, "3" } do
      for _, name in ipairs { "evaluate", "predict" } do
        local kind = type(steps) == "string" and "TypeError" or "ValueError"
        local what = ("model:%s: steps"):format(name)
        if name == "evaluate" then
          fails(kind, what, m.evaluate, m, x, y, { steps = steps })
        else
          fails(kind, what, m.predict, m, x, { steps = steps })
        end
      end
    end
  end)

  it("names metrics that are called alike apart", function()
    local m = tf.keras.Sequential { tf.keras.layers.Dense(1, {
      input_shape = { 1 }, kernel_initializer = "ones" }) }
    m:compile { loss = "mse", metrics = { "mae", "mae" },
      weighted_metrics = { "mae", "mae" } }
    local x, y = tf.constant { { 1.0 }, { 2.0 } }, tf.constant { { 0.0 },
      { 0.0 } }
    local found = m:evaluate(x, y, { sample_weight = tf.constant { 3.0, 1.0 },
      return_dict = true, verbose = 0 })
    assert.same({ loss = 3.5, mae = 1.5, mae_1 = 1.5, weighted_mae = 1.25,
      weighted_mae_1 = 1.25 }, found)
    assert.same({ "loss", "mae", "mae_1", "weighted_mae", "weighted_mae_1" },
      m.metrics_names)
  end)

  it("adds regularization once, whatever the number of replicas", function()
    local function make()
      local m = tf.keras.Sequential { L.Dense(1, { input_shape = { 1 },
        use_bias = false, kernel_initializer = "ones",
        kernel_regularizer = tf.keras.regularizers.L2(0.5) }) }
      m:compile { optimizer = tf.keras.optimizers.SGD { learning_rate = 0.1 },
        loss = "mse" }
      return m
    end
    local x = tf.constant { { 0 }, { 0 }, { 0 }, { 0 } }
    -- loss 0.5 w^2, gradient w
    local one = make()
    local h = one:fit(x, x, quiet { batch_size = 4 })
    near(0.5, h.history.loss[1])
    near(0.9, one.variables[1]:read_value():item())
    if R.available >= 2 then
      local two = R.mirrored(2):scope(make)
      h = two:fit(x, x, quiet { batch_size = 4 })
      near(0.5, h.history.loss[1])
      near(0.9, two.variables[1]:read_value():item())
    end
  end)

  it("has one loss and metrics for each output", function()
    local input = tf.keras.Input { 2 }
    local a = L.Dense(1, { name = "a", kernel_initializer = "ones" })(input)
    local b = L.Dense(1, { name = "b", kernel_initializer = "zeros" })(input)
    local m = tf.keras.Model(input, { a, b })
    m:compile { optimizer = "sgd", loss = { a = "mse", b = "mae" },
      loss_weights = { a = 1, b = 10 }, metrics = {
        a = { "mae", tf.keras.metrics.MeanSquaredError { name = "own" } } } }
    local x = tf.constant { { 1, 2 }, { 3, 4 } }
    local y = { a = tf.constant { { 1 }, { 1 } },
      b = tf.constant { { 5 }, { 1 } } }
    -- a: 3 - 1, 7 - 1: mse 20, mae 4; b: mae 3
    local got = m:evaluate(x, y, quiet { return_dict = true })
    near(20 + 30, got.loss)
    near(20, got.a_loss)
    near(3, got.b_loss)
    near(4, got.a_mae)
    near(20, got.a_own)
    assert.same({ "loss", "a_loss", "b_loss", "a_mae", "a_own" },
      m.metrics_names)
    m:compile { optimizer = "sgd", loss = { "mse", "mae" } }
    near(23, (m:evaluate(x, { y.a, y.b }, QUIET)))
    m:compile { optimizer = "sgd", loss = { c = "mse" } }
    local e = fails("ValueError", "no output \"c\"", m.evaluate, m, x, y, QUIET)
    assert.truthy(e.hint)
  end)

  it("runs a train_step of the user's own and shows what it returns", function()
    local Own = tf.keras.Model:extend "Own"
    function Own:init()
      tf.keras.Model.init(self)
      self.dense = L.Dense(1, { kernel_initializer = "zeros" })
      self.tracker = K.Mean { name = "distance" }
    end
    function Own:call(x)
      return self.dense(x)
    end
    function Own:train_step(x, y)
      local tape, loss = tf.GradientTape(function()
        return self:compute_loss(x, y, self(x, { training = true }))
      end)
      local vars = self.trainable_variables
      self.optimizer:apply_gradients(tape:gradient(loss, vars), vars)
      self.tracker:update_state(y)
      return { distance = self.tracker:result(), two = tf.constant(2) }
    end
    local function make()
      local m = Own()
      m:compile { optimizer = "sgd", loss = "mse" }
      return m
    end
    local m = make()
    local x = tf.constant { { 1 }, { 2 }, { 3 }, { 4 } }
    local h = m:fit(x, x, quiet { batch_size = 2 })
    near(2.5, h.history.distance[1])
    near(2, h.history.two[1])
    if R.available >= 2 then
      local pair = R.mirrored(2):scope(make)
      h = pair:fit(x, x, quiet { batch_size = 2, shuffle = false })
      near(2.5, h.history.distance[1])
      local one = make()
      one:fit(x, x, quiet { batch_size = 2, shuffle = false })
      -- What multiplies on a GPU adds up in an order of its own.
      same_weights(one, pair, at(0) == "/gpu:0" and 1e-6)
    end
  end)

  it("does one batch at a time", function()
    local x, y = rows(8)
    local m, other = compiled(), compiled()
    local before = mean(losses_of(m, x, y))
    local loss, accuracy = m:train_on_batch(x, y)
    near(before, loss)
    assert.equal("number", type(accuracy))
    other:fit(x, y, quiet { batch_size = 8, shuffle = false })
    same_weights(other, m)
    local got = m:test_on_batch(x, y, { return_dict = true })
    near(mean(losses_of(m, x, y)), got.loss)
    local alone = compiled { metrics = {} }
    assert.equal("number", type(alone:train_on_batch(x, y)))
  end)

  it("calls several batches one execution", function()
    local x, y = rows(20)
    local m = compiled { steps_per_execution = 2 }
    local calls = {}
    m:fit(x, y, quiet { batch_size = 4, shuffle = false, callbacks = {
      { on_train_batch_end = function(_, batch)
        calls[#calls + 1] = batch
      end } } })
    assert.same({ 1, 3, 4 }, calls)
    local plain = compiled()
    plain:fit(x, y, quiet { batch_size = 4, shuffle = false })
    same_weights(plain, m)
  end)

  it("goes on in the data where the last epoch stopped", function()
    local x, y = rows(12)
    local seen = {}
    local m = compiled { metrics = {}, run_eagerly = true }
    function m.train_step(_, xb)
      seen[#seen + 1] = #xb
      return { loss = tf.constant(0) }
    end
    m:fit(batches(x, y, 5):repeat_(), quiet { epochs = 2,
      steps_per_epoch = 2 })
    assert.same({ 5, 5, 2, 5 }, seen)
  end)

  it("chooses accuracy and crossentropy by the shapes", function()
    local x = tf.constant { { 1 }, { 2 } }
    local function class_of(units, y)
      local m = tf.keras.Sequential { L.Dense(units, { input_shape = { 1 },
        activation = "sigmoid" }) }
      m:compile { optimizer = "sgd", loss = "mse", metrics = { "accuracy" } }
      pcall(m.evaluate, m, x, y, QUIET)
      return m.metrics[2].__name
    end
    assert.equal("BinaryAccuracy", class_of(1, { { 1 }, { 0 } }))
    assert.equal("CategoricalAccuracy", class_of(2, { { 1, 0 }, { 0, 1 } }))
    local m = compiled { metrics = { "crossentropy", "acc" } }
    local xs, ys = rows(5)
    local got = m:evaluate(xs, ys, quiet { return_dict = true })
    near(got.loss, got.crossentropy)
    assert.equal("SparseCategoricalAccuracy", m.metrics[3].__name)
  end)

  describe("errors", function()
    it("wants compile before training", function()
      local x, y = rows(4)
      fails("RuntimeError", "You must compile", network().fit, network(), x, y)
      fails("RuntimeError", "You must compile", function()
        network():evaluate(x, y)
      end)
      assert.same({ 4, 3 }, network():predict(x, QUIET).shape)
    end)

    it("names unknown losses, metrics, optimizers and options", function()
      local m = network()
      fails("ValueError", "unknown loss", m.compile, m, { loss = "mseq" })
      fails("ValueError", "unknown metric", m.compile, m, { loss = "mse",
        metrics = { "acuracy" } })
      fails("ValueError", "unknown optimizer", m.compile, m,
        { optimizer = "adamm" })
      local e = fails("ValueError", "unknown option", m.compile, m,
        { optimiser = "adam" })
      assert.matches("optimizer", e.hint)
      local c = compiled()
      local e2 = fails("ValueError", "unknown option", c.fit, c, tf.zeros { 1 },
        tf.zeros { 1 }, { epoch = 3 })
      assert.matches("epochs", e2.hint)
      -- What is not all options is y, which stands in data sets.
      local ds = batches(tf.zeros { 4, 3 }, tf.zeros { 4 }, 2)
      for name, slip in pairs { fit = "calbacks", evaluate = "step" } do
        for _, more in ipairs { false, 0 } do
          local e3 = fails("ValueError", ('unknown option "%s"'):format(slip),
            c[name], c, ds, { [slip] = {}, verbose = more or nil })
          assert.matches("did you mean", e3.hint)
        end
      end
      local own = { out = tf.zeros { 4 } }
      fails("ValueError", 'unknown option "out"', c.fit, c, ds, { verbose = 0,
        out = own.out })
      for _, y in ipairs { own, { y = own.out, z = own.out } } do
        local lacks = "fit: y cannot be given with a dataset"
        fails("ValueError", lacks, c.fit, c, ds, y)
        fails("ValueError", lacks, c.fit, c, ds, { y = y, verbose = 0 })
      end
    end)

    it("names data that does not go together", function()
      local x, y = rows(4)
      local m = compiled()
      fails("ValueError", "Data cardinality is ambiguous: x has 4 examples, y "
        .. "has 3", m.fit, m, x, y[{ { 0, 3 } }], QUIET)
      fails("ValueError", "y cannot be given with a dataset", m.fit, m,
        batches(x, y, 2), y, QUIET)
      for _, part in ipairs { y, { 0, 1 }, { out = y }, { epoch = y } } do
        fails("ValueError", "fit: validation_data: y cannot be given with a "
          .. "dataset", m.fit, m, x, y, quiet { validation_data = {
            batches(x, y, 2), part } })
      end
      fails("ValueError", "batch_size cannot be given", m.fit, m,
        batches(x, y, 2), quiet { batch_size = 3 })
      fails("ValueError", "the dataset is infinite", m.fit, m,
        batches(x, y, 2):repeat_(), QUIET)
      fails("ValueError", "no examples", m.fit, m, tf.zeros { 0, 3 },
        tf.zeros { 0 }, QUIET)
      fails("ValueError", "there are no labels", m.fit, m, x, QUIET)
      fails("ValueError", "gave no element", m.fit, m, function() end, QUIET)
      fails("TypeError", "x must be a tensor", m.fit, m, "x", QUIET)
      fails("TypeError", "fit: x has nil in the place of tensor 2", m.fit, m,
        { x, n = 2 }, y, QUIET)
      fails("ValueError", "epochs must be at least 0", m.fit, m, x, y,
        quiet { epochs = -1 })
    end)

    it("tells in which step a failure came up (E18)", function()
      local x = rows(4)
      local m = compiled()
      local e = fails("InvalidArgument", "sparse_categorical_crossentropy: "
        .. "label 3 at position 1", m.fit, m, x, tf.constant({ 0, 3, 1, 1 },
        "int32"), quiet { batch_size = 2, shuffle = false })
      assert.matches("outside 0..2", e.message, 1, true)
      assert.matches("step 1 of epoch 1", tostring(e), 1, true)
    end)

    it("names the loss whose shapes do not go together", function()
      local x = rows(4)
      local m = compiled { loss = "mse", metrics = {} }
      local e = fails("InvalidArgument", "do not broadcast", m.fit, m, x,
        tf.ones { 4, 2 }, QUIET)
      assert.matches('in loss "mse", labels {4, 2}, predictions {4, 3}',
        tostring(e), 1, true)
      m = compiled { loss = function() return 3 end, metrics = {} }
      fails("TypeError", "a loss function must return a tensor", m.fit, m, x, x,
        QUIET)
    end)

    R.pair(it, pending, "is not for replica functions", function(strategy)
      local m = strategy:scope(compiled)
      local x, y = rows(4)
      fails("RuntimeError", "cannot be called in a replica function",
        strategy.run, strategy, function()
          m:fit(x, y, QUIET)
        end)
    end)

    it("wants steps for distributed data of unknown length", function()
      local strategy = tf.distribute.OneDeviceStrategy(at(0))
      local m = strategy:scope(compiled)
      local x, y = rows(8)
      local known = strategy:distribute_datasets_from_function(function()
        return batches(x, y, 4)
      end)
      assert.equal(1, #m:fit(known, QUIET).epoch)
      local e = fails("ValueError", "must specify the number of steps", m.fit,
        m, strategy:distribute_datasets_from_function(function()
          return batches(x, y, 4):filter(function() return true end)
        end), QUIET)
      assert.matches("steps_per_epoch", e.hint)
    end)

    -- Keras 3.15's counts for a known number of batches.
    it("begins a data set anew that an epoch has come to the end of", function()
      local x, y = rows(8)
      for _, case in ipairs {
        { 6, 3, "0 1 2 3 | 0 1 2 3 | 0 1 2 3 |" }, { 4, 2, "0 1 2 3 | 0 1 2 3 |" },
        { 3, 3, "0 1 2 | 0 | 0 1 2 |" }, { 2, 4, "0 1 | 0 1 | 0 1 | 0 1 |" },
      } do
        for _, is_known in ipairs { true, false } do
          local seen, h = {}, nil
          local source = batches(x, y, 2)
          if not is_known then
            source = source:filter(function() return true end)
          end
          local said = heard(function()
            h = compiled():fit(source, quiet { steps_per_epoch = case[1],
              epochs = case[2], callbacks = { {
                on_train_batch_end = function(_, batch)
                  seen[#seen + 1] = ("%d"):format(batch)
                end,
                on_epoch_end = function() seen[#seen + 1] = "|" end } } })
          end)
          assert.equal(case[3], table.concat(seen, " "))
          assert.equal(case[2], #h.history.loss)
          assert.equal(4 % case[1] == 0 and 0 or 1,
            select(2, said:gsub("ran out of data; it begins anew", "")))
        end
      end
    end)

    it("warns and stops when a function has no more data", function()
      local x, y = rows(6)
      local left, h = 3, nil
      assert.matches("ran out of data; interrupting training after step 1 of 2",
        heard(function()
          h = compiled():fit(function()
            left = left - 1
            if left >= 0 then return x, y end
          end, quiet { epochs = 3, steps_per_epoch = 2 })
        end))
      assert.equal(2, #h.history.loss)
    end)

    R.pair(it, pending, "refuses variables and metrics of another strategy",
      function(strategy)
        local m = network()
        fails("ValueError", "was created in the scope of", function()
          strategy:scope(function()
            local other = tf.keras.Sequential { m }
            other:compile { loss = "mse" }
          end)
        end)
        local metric = R.mirrored(2):scope(function()
          return K.Mean()
        end)
        fails("ValueError", "metric \"mean\" was created in the scope of",
          function()
            strategy:scope(function()
              network():compile { loss = "mse", metrics = { metric } }
            end)
          end)
      end)
  end)
end)

describe("more steps than there are batches", function()
  it("count no example twice in evaluate and predict", function()
    local x, y = tf.constant { { 1 }, { 2 }, { 4 } }, tf.zeros { 3, 1 }
    local m = tf.keras.Sequential { L.Dense(1, { input_shape = { 1 },
      kernel_initializer = "ones" }) }
    m:compile { optimizer = tf.keras.optimizers.SGD(0), loss = "mse" }
    local few = { batch_size = 2, steps = 3, verbose = 0 }
    local said = heard(function()
      assert.same({ { 1 }, { 2 }, { 4 } }, m:predict(x, few):totable())
      near(7, m:evaluate(x, y, few)) -- (1 + 4 + 16) / 3
    end)
    assert.equal("tfdist: warning: predict: Your input ran out of data after "
      .. "step 2 of 3\ntfdist: warning: evaluate: Your input ran out of data "
      .. "after step 2 of 3\n", said)
    for _, validation in ipairs { { validation_data = { x, y } },
      { validation_split = 0.5 } } do
      validation.validation_steps, validation.epochs = 3, 2
      validation.batch_size, validation.verbose = 2, 0
      local h
      said = heard(function()
        h = m:fit(tf.concat({ x, x }, 0), tf.zeros { 6, 1 }, validation).history
      end)
      near({ 7, 7 }, h.val_loss)
      assert.equal(1, select(2, said:gsub("ran out of data", "")))
    end
  end)
end)

describe("the steps of a model", function()
  it("are called with a colon", function()
    local m = network()
    for _, name in ipairs { "train_step", "test_step", "predict_step",
      "compute_metrics" } do
      fails("TypeError", "model:" .. name .. ": the first argument", function()
        m[name]("x", tf.ones { 1, 3 })
      end)
    end
  end)
end)

describe("a model without trainable variables", function()
  it("is fitted for its metrics, with one warning, until it has some", function()
    local x, y = tf.constant { { 1 }, { 2 }, { 4 } }, tf.zeros { 3, 1 }
    local m = tf.keras.Sequential { L.Dense(1, { input_shape = { 1 },
      kernel_initializer = "ones" }) }
    m.trainable = false
    m:compile { optimizer = tf.keras.optimizers.SGD(0.1), loss = "mse",
      metrics = { "mae" } }
    local h
    local said = heard(function()
      h = m:fit(x, y, { epochs = 3, verbose = 0 }).history
      near(7, (m:train_on_batch(x, y)))
    end)
    assert.equal(('tfdist: warning: model "%s" has no trainable variables; fit '
      .. "updates none\n"):format(m.name), said)
    near({ 7, 7, 7 }, h.loss)
    near({ 7 / 3, 7 / 3, 7 / 3 }, h.mae)
    assert.equal(0, m.optimizer.iterations:item())
    near({ { 1 } }, m.layers[1].kernel)
    m.trainable = true
    m:fit(x, y, { verbose = 0 })
    -- the slope of the mean of (w x)^2 is 2 w (1 + 4 + 16) / 3
    near({ { 1 - 0.1 * 14 } }, m.layers[1].kernel)
  end)
end)
