--- Steps of fit, evaluate and predict as graphs: the bits of eager ones.
local on_device = require "spec.support.on_device"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

if tf.config.functions_run_eagerly() then
  return -- in the suite that does without graphs
end

local K = tf.keras
local L = K.layers

local function bits(model)
  local list = {}
  for _, v in ipairs(model.variables) do
    for _, copy in ipairs(raw.kind(v) == "mirrored" and v.values or { v }) do
      list[#list + 1] = raw.tensor_bytes(raw.operand_tensor(copy))
    end
  end
  return list
end

-- What fit, evaluate and predict of make() give; 22 rows in batches of 4.
local function train(strategy, make, eagerly, more)
  tf.random.set_seed(5)
  local x, y = tf.random.normal { 22, 6 }, tf.random.uniform({ 22 },
    { maxval = 3, dtype = "int32" })
  local model, options = strategy:scope(make)
  options.loss = options.loss or K.losses.SparseCategoricalCrossentropy {
    from_logits = true }
  options.metrics = options.metrics or { "accuracy" }
  options.run_eagerly = eagerly
  strategy:scope(function() model:compile(options) end)
  local given = { batch_size = 4, epochs = 3, verbose = 0,
    validation_data = { x, y } }
  for key, value in pairs(more or {}) do given[key] = value end
  local history = model:fit(x, y, given).history
  local evaluated = model:evaluate(x, y, { batch_size = 4, verbose = 0,
    return_dict = true })
  local predicted = model:predict(x, { batch_size = 4, verbose = 0 })
  return { history, evaluated, raw.tensor_bytes(predicted), bits(model) }, model
end

-- notice.warn's lines while fn runs.
local function warnings(fn)
  local notice = require "tfdist.base.notice"
  local before, lines = notice.warn, {}
  notice.warn = function(line) lines[#lines + 1] = line end
  local ok, e = pcall(fn)
  notice.warn = before
  assert(ok, e)
  return lines
end

local function dense()
  return K.Sequential { L.Dense(8, { activation = "relu" }), L.Dense(3) },
    { optimizer = K.optimizers.SGD(0.1, { momentum = 0.9 }) }
end

local CASES = {
  ["dense layers"] = dense,
  ["dropout and batch normalization"] = function()
    return K.Sequential { L.Dense(8), L.BatchNormalization(), L.Dropout(0.4),
      L.GaussianNoise(0.1), L.Dense(3) }, { optimizer = "adam" }
  end,
  convolutions = function()
    return K.Sequential { L.Reshape { 3, 2, 1 }, L.Conv2D(4, 2),
      L.MaxPooling2D { pool_size = { 2, 1 } }, L.Flatten(), L.Dense(3) },
      { optimizer = "rmsprop" }
  end,
  ["recurrent layers"] = function()
    return K.Sequential { L.Reshape { 3, 2 }, L.LSTM(4), L.Dense(3) },
      { optimizer = "adam" }
  end,
  regularization = function()
    return K.Sequential { L.Dense(8, { kernel_regularizer = "l2",
      activity_regularizer = "l2" }), L.Dense(3) }, { optimizer = "sgd" }
  end,
  ["a schedule and clipping"] = function()
    return K.Sequential { L.Dense(3) }, { optimizer = K.optimizers.SGD(
      K.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5),
      { clipnorm = 0.1 }) }
  end,
  ["loss scaling"] = function()
    local model = dense()
    return model, { optimizer = K.mixed_precision.LossScaleOptimizer(
      K.optimizers.Adam { learning_rate = 0.01, use_ema = true },
      { initial_scale = 1.5e38, dynamic_growth_steps = 2 }) }
  end,
  ["a first step that is left out"] = function()
    local model = dense()
    return model, { optimizer = K.mixed_precision.LossScaleOptimizer(
      K.optimizers.Adam { learning_rate = 0.01 }, { initial_scale = 3e38 }),
      loss_weights = { 10 } }
  end,
  ["slots that are shared out"] = function()
    local model = dense()
    return model, { optimizer = tf.distribute.experimental.ShardedOptimizer(
      K.optimizers.AdamW { learning_rate = 0.01, global_clipnorm = 0.5,
        use_ema = true, ema_overwrite_frequency = 3 }) }
  end,
  ["means that take the variables' place"] = function()
    local model = dense()
    return model, { optimizer = K.optimizers.AdamW { learning_rate = 0.01,
      use_ema = true, ema_momentum = 0.5, ema_overwrite_frequency = 3 } }
  end,
  ["steps of several batches"] = function()
    local model, options = dense()
    options.steps_per_execution = 3
    return model, options
  end,
}

-- What this process has devices for.
local STRATEGIES = { default = tf.distribute.get_strategy() }
if replicas.available > 1 then
  STRATEGIES["one device"] = tf.distribute.OneDeviceStrategy(on_device.at(1))
  STRATEGIES["two replicas"] = replicas.mirrored(2)
end

describe("a model's steps as graphs", function()
  for title, strategy in pairs(STRATEGIES) do
    for name, make in pairs(CASES) do
      it(("train as eager ones: %s, %s"):format(name, title), function()
        local want = train(strategy, make, true)
        local got
        assert.are.same({}, warnings(function()
          got = train(strategy, make, false)
        end))
        assert.are.same(want, got)
      end)
    end

    it("count class weights as eager ones, " .. title, function()
      local weights = { class_weight = { [0] = 1, [1] = 2, [2] = 0.5 } }
      assert.are.same((train(strategy, dense, true, weights)),
        (train(strategy, dense, false, weights)))
    end)

    it("learn what is trainable in each epoch, " .. title, function()
      local function freezing(eagerly)
        local model
        local found = train(strategy, function()
          local made, options = dense()
          model = made
          return made, options
        end, eagerly, { callbacks = { { on_epoch_begin = function(_, epoch)
          model.layers[1].trainable = epoch ~= 1
        end } } })
        return found
      end
      assert.are.same(freezing(true), freezing(false))
    end)

    it("take a learning rate that a callback sets, " .. title, function()
      local function slower(eagerly)
        return (train(strategy, dense, eagerly, { callbacks = {
          K.callbacks.LearningRateScheduler(function(epoch)
            return 0.1 / (epoch + 1)
          end) } }))
      end
      assert.are.same(slower(true), slower(false))
    end)
  end

  -- What scripts change between two steps; each gets the model and how often it
  -- was called before.
  local function halves(x) return x * 0.5 end
  local CHANGES = {
    ["a layer's rate"] = function(model, n)
      model.layers[2].rate = n < 2 and 0.5 or 0.1
    end,
    ["a layer's activation"] = function(model, n)
      model.layers[1].activation = n % 2 == 0 and "tanh" or "relu"
      model.layers[4].activation = n > 2 and halves or nil
    end,
    ["what is trainable"] = function(model, n)
      model.layers[3].trainable = n ~= 1
    end,
    ["clipping, on and off"] = function(model, n)
      model.optimizer.clipnorm = n == 1 and 0.01 or nil
    end,
    ["a regularizer's factor"] = function(model, n)
      model.layers[1].kernel_regularizer.l2 = n * 0.1
    end,
    ["a field of one's own, new or in a table"] = function(model, n)
      model.layers[5].factor = n
      model.layers[5].list[1] = n / 2
    end,
  }

  local Own = K.layers.Layer:extend "Own"
  function Own:init()
    K.layers.Layer.init(self)
    self.list = { 1 }
  end
  function Own:call(x) return x * (self.factor or 3) * self.list[1] end

  local function changed(eagerly, change, at)
    local n, model = 0, nil
    return (train(STRATEGIES["two replicas"] or STRATEGIES.default, function()
      model = K.Sequential { L.Dense(8, { kernel_regularizer =
        K.regularizers.L2(0.01) }), L.Dropout(0.2), L.BatchNormalization(),
        L.Dense(3), Own() }
      return model, { optimizer = K.optimizers.SGD(0.1) }
    end, eagerly, { callbacks = { { [at] = function()
      change(model, n)
      n = n + 1
    end } } }))
  end

  for title, change in pairs(CHANGES) do
    it("see what callbacks change: " .. title, function()
      for _, at in ipairs { "on_epoch_begin", "on_epoch_end" } do
        assert.are.same(changed(true, change, at), changed(false, change, at))
      end
    end)
  end

  it("see a change before each batch", function()
    local want = changed(true, CHANGES["a layer's rate"], "on_train_batch_begin")
    local got
    assert.are.same({}, warnings(function()
      got = changed(false, CHANGES["a layer's rate"], "on_train_batch_begin")
    end))
    assert.are.same(want, got)
  end)

  it("are traced when a batch's sizes come again", function()
    local calls = 0
    local model = K.Sequential { L.Dense(1) }
    model:compile { optimizer = "sgd", loss = "mse" }
    function model:train_step(x, y)
      calls = calls + 1
      return { loss = self:compute_loss(x, y, self(x)) }
    end
    local x, y = tf.ones { 10, 2 }, tf.ones { 10, 1 }
    for _ = 1, 3 do model:fit(x, y, { batch_size = 4, verbose = 0 }) end
    -- Each size once eagerly and once at the trace.
    assert.are.equal(4, calls)
    model:compile { optimizer = "sgd", loss = "mse", run_eagerly = true }
    for _ = 1, 3 do model:fit(x, y, { batch_size = 4, verbose = 0 }) end
    assert.are.equal(4 + 9, calls)
    tf.config.run_functions_eagerly(true)
    model:compile { optimizer = "sgd", loss = "mse" }
    model:fit(x, y, { batch_size = 2, epochs = 2, verbose = 0 })
    tf.config.run_functions_eagerly(false)
    assert.are.equal(4 + 9 + 10, calls)
  end)

  it("are not traced again for what the trace itself writes", function()
    local model = K.Sequential { L.Dense(1) }
    model:compile { optimizer = "sgd", loss = "mse" }
    function model:train_step(x, y)
      self.calls = (self.calls or 0) + 1
      return { loss = self:compute_loss(x, y, self(x)) }
    end
    for _ = 1, 4 do model:train_on_batch(tf.ones { 4, 2 }, tf.ones { 4, 1 }) end
    assert.are.equal(2, model.calls)
  end)

  it("stay eager with one notice when they cannot be traced", function()
    local seen = {}
    local model = K.Sequential { L.Dense(1), L.Lambda(function(x)
      seen[#seen + 1] = tf.reduce_sum(x):item()
      return x
    end) }
    model:compile { optimizer = "sgd", loss = "mse" }
    local x, y = tf.ones { 8, 2 }, tf.ones { 8, 1 }
    local lines = warnings(function()
      model:fit(x, y, { batch_size = 2, epochs = 2, verbose = 0 })
    end)
    assert.are.equal(1, #lines)
    assert.is_truthy(lines[1]:find("train_step runs eagerly", 1, true))
    assert.is_truthy(lines[1]:find("traced_spec.lua:%d+"), lines[1])
    assert.are.equal(8, #seen)
  end)

  -- Steps on rows of ones with a layer that calls fn(layer, x).
  local function steps_with(fn)
    local Own2 = L.Layer:extend "Own2"
    function Own2:call(x) return fn(self, x) end
    local layer = Own2()
    local model = K.Sequential { L.Dense(1), layer }
    model:compile { optimizer = "sgd", loss = "mse" }
    return layer, function(n)
      for _ = 1, n do
        model:train_on_batch(tf.ones { 4, 2 }, tf.ones { 4, 1 })
      end
    end
  end

  it("are traced once a change lets them", function()
    local calls = 0
    local layer, steps = steps_with(function(self, x)
      calls = calls + 1
      if self.looks then tf.reduce_sum(x):item() end
      return x
    end)
    layer.looks = true
    assert.are.equal(1, #warnings(function() steps(5) end))
    layer.looks = false
    steps(2)
    calls = 0
    steps(4)
    assert.are.equal(0, calls)
  end)

  it("are traced later where memory was short at the trace", function()
    local errors = require "tfdist.base.errors"
    local calls, short = 0, 1
    local _, steps = steps_with(function(_, x)
      calls = calls + 1
      if not tf.executing_eagerly() and short > 0 then
        short = short - 1
        errors.raise("ResourceExhausted", "no memory")
      end
      return x
    end)
    assert.are.equal(0, #warnings(function() steps(4) end))
    calls = 0
    steps(3)
    assert.are.equal(0, calls)
  end)

  it("see a change in a long list, and stay eager with one too long", function()
    local calls, seen = 0, nil
    local layer, steps = steps_with(function(self, x)
      calls, seen = calls + 1, self.list[1]
      return x * self.list[1]
    end)
    local list = {}
    for i = 1, 1000 do list[i] = i end
    layer.list = list
    steps(4)
    calls = 0
    steps(2)
    assert.are.equal(0, calls)
    list[1] = 7
    steps(1)
    assert.are.equal(7, seen)
    for i = 1, 70000 do list[i] = i end
    assert.are.equal(1, #warnings(function() steps(4) end))
    list[1] = 9
    steps(1)
    assert.are.equal(9, seen)
  end)

  -- Steps joined by steps_per_execution ---------------------------------------

  -- Batches with random numbers of their own, between those of the steps.
  local function noisy(strategy, eagerly, per, change)
    tf.random.set_seed(5)
    local x, y = tf.random.normal { 46, 6 }, tf.random.uniform({ 46 },
      { maxval = 3, dtype = "int32" })
    local data = tf.data.Dataset.from_tensor_slices({ x, y }):batch(4)
      :map(function(a, b) return a + tf.random.normal(a.shape), b end)
    local model = strategy:scope(function()
      local made = K.Sequential { L.Dense(8), L.Dropout(0.4), L.Dense(3) }
      made:compile { optimizer = K.optimizers.Adam(
        K.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)),
        loss = K.losses.SparseCategoricalCrossentropy { from_logits = true },
        metrics = { "accuracy" }, run_eagerly = eagerly,
        steps_per_execution = per }
      return made
    end)
    local seen = {}
    local function note(_, batch, logs)
      seen[#seen + 1] = { batch, logs.loss, logs.accuracy,
        model.optimizer.iterations:read_value():item() }
    end
    if change ~= nil then change(model) end
    local history = model:fit(data, { epochs = 3, verbose = 0,
      callbacks = { { on_train_batch_end = note } } }).history
    local tested = model:evaluate(data, { verbose = 0, return_dict = true,
      callbacks = { { on_test_batch_end = note } } })
    local predicted = model:predict(x, { batch_size = 4, verbose = 0 })
    local slots = bits { variables = model.optimizer.variables }
    return { history, tested, raw.tensor_bytes(predicted), bits(model), slots },
      seen
  end

  -- How often fn calls name of raw, which still does it.
  local function counted(name, fn)
    local before, n = raw[name], 0
    raw[name] = function(...)
      n = n + 1
      return before(...)
    end
    local ok, e = pcall(fn)
    raw[name] = before
    assert(ok, e)
    return n
  end

  -- Batch 11 is smaller.
  local EXECUTIONS = { [2] = { 1, 3, 5, 7, 9, 11 }, [5] = { 4, 9, 11 },
    [50] = { 11 } }

  for title, strategy in pairs(STRATEGIES) do
    it("leave the same when several are joined, " .. title, function()
      local want, each = noisy(strategy, true, 1)
      local at = {}
      for i = 1, 12 do
        for epoch = 0, 3 do
          at[epoch * 12 + each[i][1]] = each[epoch * 12 + i]
        end
      end
      for per, ends in pairs(EXECUTIONS) do
        local got, seen
        assert.are.same({}, warnings(function()
          -- a call for each execution, but those with a size that is new
          local n = counted("graph_calls", function()
            got, seen = noisy(strategy, false, per)
          end)
          assert.is_true(n >= 4 * #ends and n <= 6 * #ends + 6, n)
        end))
        assert.are.same(want, got)
        for epoch = 0, 3 do
          for i, batch in ipairs(ends) do
            assert.are.same(at[epoch * 12 + batch], seen[epoch * #ends + i])
          end
        end
      end
    end)

    it("count several updates in one, " .. title, function()
      local function twice(model)
        function model:train_step(x, y)
          local loss = K.Model.train_step(self, x, y)
          K.Model.train_step(self, x, y)
          return loss
        end
      end
      local want = noisy(strategy, true, 1, twice)
      for _, per in ipairs { 1, 3 } do
        assert.are.same(want, (noisy(strategy, false, per, twice)))
      end
    end)
  end

  it("run one by one with one notice where they cannot be joined", function()
    local function scaled(eagerly, per)
      return (train(STRATEGIES.default, function()
        return dense(), { steps_per_execution = per,
          optimizer = K.mixed_precision.LossScaleOptimizer(
            K.optimizers.SGD(0.1), { initial_scale = 3e38 }) }
      end, eagerly))
    end
    local want, got = scaled(true, 1), nil
    local lines = warnings(function() got = scaled(false, 4) end)
    assert.are.same(want, got)
    assert.are.equal(1, #lines)
    assert.is_truthy(lines[1]:find("steps_per_execution = 4 does not join steps",
      1, true))
  end)

  it("are made before a batch that fails, joined or not", function()
    for _, per in ipairs { 1, 4, 9 } do
      local model, n = K.Sequential { L.Dense(1) }, 0
      model:compile { optimizer = "sgd", loss = "mse",
        steps_per_execution = per }
      local ok, e = pcall(model.fit, model, function()
        n = n + 1
        if n == 8 then error "no more of it" end
        return tf.ones { 2, 3 }, tf.ones { 2, 1 }
      end, { steps_per_epoch = 20, verbose = 0 })
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find("no more of it", 1, true))
      assert.is_truthy(tostring(e):find("step 8 of epoch 1", 1, true))
      assert.are.equal(7, model.optimizer.iterations:read_value():item())
    end
  end)
end)

describe("a layer that a traced function builds", function()
  local Table = L.Layer:extend "Table"
  function Table:build(shape)
    self.table = tf.range(shape[2], { dtype = "float32" }) * 2
    self.w = self:add_weight { shape = { 1 }, initializer = "zeros" }
    self.w:assign { 3 }
    self.inner = L.Dense(1, { use_bias = false })
    self.inner:build(shape)
    self.inner:set_weights { tf.ones { shape[2], 1 } }
  end
  function Table:call(x)
    return self.inner(x + self.table) * self.w
  end

  it("keeps what its build assigns and computes", function()
    local layer = Table()
    local f = tf.function_(function(x) return layer(x) end)
    for n = 1, 2 do
      -- 3 * ((1 + 0) + (1 + 2) + (1 + 4))
      assert.are.same({ 27, n == 2 and 27 or nil },
        tf.reshape(f(tf.ones { n, 3 }), { n }):totable())
    end
  end)

  it("is built on the first call only", function()
    local f = tf.function_(function(x) return Table()(x) end)
    replicas.fails("ValueError", "made on the first call", f, tf.ones { 1, 3 })
    local g = tf.function_(function(x) return x + 1 end)
    assert.are.equal(2, g(tf.constant(1.0)):item())
  end)
end)
