-- Masks in training: losses, metrics, BatchNormalization and wrappers count
-- the steps that a mask leaves in. Expected values are Keras 3.15's, where no
-- closed form says them.
local leaks = require "spec.support.leaks"
local R = require "spec.support.replicas"
local tf = require "tfdist"
local expect = require "spec.support.expect"

local K, L = tf.keras, tf.keras.layers
local near, fails = expect.near, R.fails

local IDS = { { 1, 2, 0 }, { 3, 0, 0 } }
-- 1 where a step counts, 10 where it does not.
local LABELS = { { { 1 }, { 1 }, { 10 } }, { { 1 }, { 10 }, { 10 } } }
local WEIGHTS = { { 1, 2, 7 }, { 3, 7, 7 } }
local MASK = { { true, true, false }, { true, false, false } }

local function embedding()
  return L.Embedding(4, 2, { mask_zero = true, embeddings_initializer = "ones" })
end

local function zeros(units)
  return L.Dense(units or 1, { kernel_initializer = "zeros" })
end

local function sequential(given, units)
  local m = K.Sequential { embedding(),
    L.SimpleRNN(2, { return_sequences = true, kernel_initializer = "ones",
      recurrent_initializer = "zeros" }), zeros(units) }
  given.optimizer, given.loss = "sgd", given.loss or "mse"
  m:compile(given)
  return m
end

local function evaluate(m, y, given)
  given = given or {}
  given.verbose, given.return_dict = 0, true
  return m:evaluate(tf.constant(IDS, "int32"), tf.constant(y or LABELS), given)
end

local function masked(values, mask)
  local x = L.Masking()(tf.constant(values))
  assert.same(mask, L.mask_of(x):totable())
  return x
end

describe("a mask", function()
  leaks(before_each, after_each)

  it("reaches losses and metrics of fit and evaluate", function()
    local m = sequential { metrics = { "mae", "RootMeanSquaredError",
      K.metrics.MeanSquaredError { name = "m2" } },
      weighted_metrics = { "mse" } }
    local logs = evaluate(m)
    near(1, logs.loss)
    near(1, logs.mae)
    near(1, logs.m2)
    near(1, logs.mse)
    -- Keras' class does not look at the mask.
    near(50.5 ^ 0.5, logs[m.metrics_names[3]], 1e-5)
    local history = m:fit(tf.constant(IDS, "int32"), tf.constant(LABELS),
      { verbose = 0 }).history
    near({ 1 }, history.loss)
    near({ 0.02 }, m.layers[3].bias:totable())
    near({ { 0.01928055 }, { 0.01928055 } }, m.layers[3].kernel:totable())
    history = m:fit(tf.constant(IDS, "int32"), tf.constant(LABELS),
      { verbose = 0, sample_weight = tf.constant(WEIGHTS) }).history
    near({ 1.7778419 }, history.loss)
    near({ 0.8889209 }, history.m2)
    near({ 0.0577130 }, m.layers[3].bias:totable())
  end)

  it("counts by every reduction as Keras has it", function()
    for reduction, values in pairs { sum = { 3, 6 }, none = { 0.5, 1 },
      mean = { 1, 2 }, mean_with_sample_weight = { 1, 1 },
      sum_over_batch_size = { 1, 2 } } do
      local m = sequential {
        loss = K.losses.MeanSquaredError { reduction = reduction } }
      near(values[1], evaluate(m).loss)
      near(values[2], evaluate(m, nil,
        { sample_weight = tf.constant(WEIGHTS) }).loss)
    end
    near(1, evaluate(sequential { loss = function(t, p)
      return tf.square(t - p)
    end }).loss)
    -- One number for the batch is what the function says it is.
    near(50.5, evaluate(sequential { loss = function(t, p)
      return tf.reduce_mean(tf.square(t - p))
    end }).loss)
  end)

  it("joins the classes that a loss ignores", function()
    local logs = evaluate(sequential({ metrics = { "accuracy" },
      loss = K.losses.SparseCategoricalCrossentropy { from_logits = true,
        ignore_class = 1 } }, 2), { { 0, 1, 0 }, { 1, 0, 0 } })
    near(math.log(2), logs.loss)
    near(1 / 3, logs.accuracy)
  end)

  it("reaches the outputs of a graph, each its own", function()
    local x = K.Input({ 3 }, { dtype = "int32" })
    local e = embedding()(x)
    local function ones(name)
      return L.Dense(1, { kernel_initializer = "ones", name = name })
    end
    local m = K.Model(x, { ones "a"(e), ones "b"(L.SimpleRNN(2, {
      kernel_initializer = "ones", recurrent_initializer = "zeros" })(e)) })
    m:compile { optimizer = "sgd", loss = { "mse", "mae" },
      loss_weights = { 1, 10 }, metrics = { { "mae" }, { "mse" } } }
    local y = { tf.constant(LABELS), tf.constant { { 1 }, { 2 } } }
    local logs = m:evaluate(tf.constant(IDS, "int32"), y,
      { verbose = 0, return_dict = true })
    near(6, logs.loss, 1e-5)
    near(1, logs.a_loss)
    near(0.5, logs.b_loss, 1e-5)
    near(1, logs.a_mae)
    near(0.4332312, logs.b_mse)
    m:fit(tf.constant(IDS, "int32"), y, { verbose = 0 })
    near({ 1, 0.9933333, 0.9862682, 1.0003984 }, m.weights[1][{ {}, 0 }]:totable())
    near({ { 0.98 }, }, m.layers[4].kernel:totable()[1] and
      { m.layers[4].kernel:totable()[1] } or {})
  end)

  it("goes through models and layers of one's own", function()
    local Own = K.Model:extend "Own"
    function Own:init()
      K.Model.init(self)
      self.e, self.d = embedding(), zeros()
    end
    function Own:call(x)
      return self.d(self.e(x))
    end
    local m = Own()
    m:compile { optimizer = "sgd", loss = "mse", metrics = { "mae" } }
    local logs = evaluate(m)
    near(1, logs.loss)
    near(1, logs.mae)
    -- A layer that says nothing about masks ends them.
    local Copy = L.Layer:extend "Copy"
    function Copy:call(x) -- luacheck: no self
      return x * 1
    end
    m = K.Sequential { embedding(), Copy(), zeros() }
    m:compile { optimizer = "sgd", loss = "mse" }
    near(50.5, evaluate(m).loss)
    local First = L.Layer:extend "First"
    First.call = Copy.call
    function First:compute_mask(x) -- luacheck: no self
      local rows = x.shape[1]
      return tf.broadcast_to(tf.constant { { true, false, false } },
        { rows, 3 })
    end
    m = K.Sequential { First(), zeros() }
    m:compile { optimizer = "sgd", loss = "mse" }
    near(1, m:evaluate(tf.ones { 2, 3, 1 }, tf.constant(LABELS),
      { verbose = 0, return_dict = true }).loss)
    local Both = L.Layer:extend "Both"
    function Both:call(x) -- luacheck: no self
      return x * 1, x * 2
    end
    function Both:compute_mask(_, mask) -- luacheck: no self
      return { false, mask }
    end
    local a, b = Both()(embedding()(tf.constant(IDS, "int32")))
    assert.is_nil(L.mask_of(a))
    assert.same(MASK, L.mask_of(b):totable())
  end)

  it("may be a list of bools, and nothing else than bools", function()
    local x = tf.constant { { { 2, 3 }, { 4, 5 }, { 9, 9 } } }
    local mean = L.GlobalAveragePooling1D()
    near({ { 3, 4 } }, mean(x, { mask = { { true, true, false } } }))
    local y = L.Add()({ x, x }, { mask = { { { true, false, false } },
      { { false, false, true } } } })
    assert.same({ { true, false, true } }, L.mask_of(y):totable())
    fails("TypeError", "mask must be a tensor", mean, x, { mask = 3 })
    local Wrong = L.Layer:extend "Wrong"
    function Wrong:call(t) -- luacheck: no self
      return t * 1
    end
    function Wrong:compute_mask() -- luacheck: no self
      return 3
    end
    fails("TypeError", "compute_mask must return tensors", Wrong(), x)
  end)

  it("stays when a layer casts its input", function()
    local x = embedding()(tf.constant(IDS, "int32"))
    local y = L.Dense(1, { dtype = "float64" })(x)
    assert.equal("float64", y.dtype)
    assert.same(MASK, L.mask_of(y):totable())
    x = K.Input({ 3, 2 }, { dtype = "float64" })
    local m = K.Model(x, L.Dense(1, { dtype = "float64" })(x))
    y = m(embedding()(tf.constant(IDS, "int32")))
    assert.same(MASK, L.mask_of(y):totable())
  end)

  it("is of the whole batch, however replicas share it", function()
    if R.available < 2 then
      return
    end
    local function run(strategy, reduction)
      return strategy:scope(function()
        local m = sequential { metrics = { "mae" },
          loss = K.losses.MeanSquaredError { reduction = reduction },
          weighted_metrics = { "mse" } }
        local ids, labels, weights = {}, {}, {}
        for i = 1, 7 do
          local n = i % 4 -- of the first, none
          ids[i], labels[i], weights[i] = {}, {}, {}
          for k = 1, 3 do
            ids[i][k] = k <= n and 1 + (i + k) % 3 or 0
            labels[i][k] = { i + k }
            weights[i][k] = 1 + (i * k) % 3
          end
        end
        local logs = m:fit(tf.constant(ids, "int32"), tf.constant(labels), {
          batch_size = 5, epochs = 2, verbose = 0, shuffle = false,
          sample_weight = tf.constant(weights) }).history
        return logs, m:get_weights()
      end)
    end
    for _, reduction in ipairs { "auto", "sum", "none",
      "mean_with_sample_weight" } do
      local want, weights = run(tf.distribute.get_strategy(), reduction)
      for n = 2, math.min(R.available, R.most) do
        local got, other = run(R.mirrored(n), reduction)
        for name, values in pairs(want) do
          near(values, got[name], 1e-4 * math.max(1, values[1]))
        end
        for i, w in ipairs(weights) do
          near(w:totable(), other[i]:totable(), 1e-4)
        end
      end
    end
  end)
end)

describe("losses and metrics called with predictions that have a mask",
  function()
    leaks(before_each, after_each)

    -- Predictions 1, 3, 4 count, labels are 0.
    local mask = { { true, false }, { true, true } }
    local function predictions()
      return masked({ { { 1 }, { 0 } }, { { 3 }, { 4 } } }, mask)
    end
    local t = { { { 0 }, { 2 } }, { { 0 }, { 0 } } }

    it("count its steps", function()
      local MSE = K.losses.MeanSquaredError
      near(26 / 3, MSE()(t, predictions()))
      near(26, MSE { reduction = "sum" }(t, predictions()))
      near({ { 1, 0 }, { 9, 16 } }, MSE { reduction = "none" }(t, predictions()))
      near(51 / 3, MSE()(t, predictions(), { { 1 }, { 2 } }))
      near(26 / 3, K.metrics.MeanSquaredError()(t, predictions()))
      near(51 / 5, K.metrics.MeanSquaredError()(t, predictions(),
        { { 1 }, { 2 } }))
      near(30 / 4, K.metrics.Mean()(tf.square(predictions() - t)))
      near(0, K.metrics.BinaryAccuracy()(t, predictions()))
    end)

    it("are 0 when none does", function()
      local x = masked({ { { 0 }, { 0 } } }, { { false, false } })
      near(0, K.losses.MeanSquaredError()({ { { 3 }, { 4 } } }, x))
      near(0, K.metrics.MeanSquaredError()({ { { 3 }, { 4 } } }, x))
    end)
  end)

describe("the class that SparseCategoricalCrossentropy ignores", function()
  leaks(before_each, after_each)
  local HALF = { { 0.5, 0.5 }, { 0.5, 0.5 } }
  local Loss = K.losses.SparseCategoricalCrossentropy

  it("does not count in a mean", function()
    near(math.log(2), Loss { ignore_class = 0 }({ 0, 1 }, HALF))
    near(math.log(2), Loss { ignore_class = 0, reduction = "sum" }({ 0, 1 },
      HALF))
    near({ 0, math.log(2) }, Loss { ignore_class = 0, reduction = "none" }(
      { 0, 1 }, HALF))
    near(2 * math.log(2), Loss { ignore_class = 0 }({ 0, 1 }, HALF, { 5, 2 }))
    near(0, Loss { ignore_class = 0 }({ 0, 0 }, HALF))
  end)

  it("counts in a metric without weights, as in Keras", function()
    local Metric = K.metrics.SparseCategoricalCrossentropy
    near(math.log(2) / 2, Metric { ignore_class = 0 }({ 0, 1 }, HALF))
    near(math.log(2), Metric { ignore_class = 0 }({ 0, 1 }, HALF, { 1, 1 }))
  end)
end)

describe("BatchNormalization with a mask", function()
  leaks(before_each, after_each)

  local function data()
    return tf.reshape(tf.range(12, { dtype = "float32" }), { 2, 3, 2 })
  end

  it("takes its moments from the steps that count", function()
    local bn = L.BatchNormalization { momentum = 0.5 }
    local y = bn(data(), { training = true, mask = tf.constant(MASK) })
    near({ -1.0689591, -0.2672398, 0.5344795, 1.3361989, 2.1379180,
      2.9396371 }, y[{ {}, {}, 0 }]:toflat())
    near({ 4 / 3, 11 / 6 }, bn.moving_mean)
    near({ 3.6111111, 3.6111111 }, bn.moving_variance)
    bn = L.BatchNormalization { momentum = 0.5, axis = 1 }
    bn(data(), { training = true, mask = tf.constant(MASK) })
    near({ 1.75, 1.25, 0 }, bn.moving_mean)
    near({ 5.125, 0.625, 0.5 }, bn.moving_variance)
    bn = L.BatchNormalization { momentum = 0.5 }
    bn(data(), { training = true, mask = tf.zeros({ 2, 3 }, "bool") })
    near({ 0, 0 }, bn.moving_mean)
    near({ 0.5, 0.5 }, bn.moving_variance)
    fails("ValueError", "one axis less", bn, data(), { training = true,
      mask = tf.constant { true, true } })
  end)

  it("gets it in fit", function()
    local m = K.Sequential { L.Embedding(4, 2, { mask_zero = true,
      embeddings_initializer = function()
        return tf.constant { { 9, 9 }, { 1, 2 }, { 3, 5 }, { 2, 0 } }
      end }), L.BatchNormalization { momentum = 0.5 },
      L.Dense(1, { kernel_initializer = "ones" }) }
    m:compile { optimizer = "sgd", loss = "mse" }
    local history = m:fit(tf.constant(IDS, "int32"), tf.constant(LABELS),
      { verbose = 0 }).history
    near({ 4.1893106 }, history.loss, 1e-5)
    local bn = m.layers[2]
    near({ 1, 1.1666666 }, bn.moving_mean)
    near({ 0.8333334, 2.6111112 }, bn.moving_variance)
    near({ 0.9681195, 0.9680943 }, bn.gamma, 2e-6)
    near({ 0.02, 0.02 }, bn.beta)
    near({ 0.9953920, 2.0036569 }, m.weights[1][1]:totable(), 2e-6)
  end)
end)

describe("recurrent layers with a mask", function()
  leaks(before_each, after_each)

  local x = tf.reshape(tf.range(1, 13, { dtype = "float32" }), { 2, 3, 2 }) / 10
  local mask = tf.constant { { true, true, false }, { false, true, false } }
  -- First unit of the two directions at the steps that count.
  local KNOWN = {
    SimpleRNN = { { 0.2913126, 0.7037985, 0.9562374 },
      { 0.5801049, 0.6043679, 0.9562374 } },
    LSTM = { { 0.0952412, 0.3547923, 0.5927907 },
      { 0.3227770, 0.2560645, 0.5927907 } },
    GRU = { { 0.1239703, 0.2854351, 0.1244146 },
      { 0.2622806, 0.2005366, 0.1244146 } },
  }

  local function layer(name, more)
    local given = { kernel_initializer = "ones", return_sequences = true,
      recurrent_initializer = K.initializers.Constant(0.3) }
    for key, value in pairs(more or {}) do
      given[key] = value
    end
    return L[name](2, given)
  end

  local function twice(a)
    return { a, a }
  end

  it("repeat the last output, or give zeros", function()
    for name, known in pairs(KNOWN) do
      local f = known[1]
      near({ { twice(f[1]), twice(f[2]), twice(f[2]) },
        { { 0, 0 }, twice(f[3]), twice(f[3]) } }, layer(name)(x,
        { mask = mask }))
      near({ { twice(f[1]), twice(f[2]), { 0, 0 } },
        { { 0, 0 }, twice(f[3]), { 0, 0 } } }, layer(name,
        { zero_output_for_mask = true })(x, { mask = mask }))
      near({ twice(f[2]), twice(f[3]) }, layer(name,
        { return_sequences = false })(x, { mask = mask }))
      near({ { 0, 0 }, { 0, 0 } }, layer(name, { return_sequences = false,
        zero_output_for_mask = true })(x, { mask = mask }))
    end
  end)

  it("give zeros in both directions", function()
    for name, known in pairs(KNOWN) do
      local f, b = known[1], known[2]
      local function both(a, c)
        return { a, a, c, c }
      end
      local zero = both(0, 0)
      near({ { both(f[1], b[1]), both(f[2], b[2]), zero },
        { zero, both(f[3], b[3]), zero } }, L.Bidirectional(layer(name))(x,
        { mask = mask }))
      near({ { twice(f[1] + b[1]), twice(f[2] + b[2]), { 0, 0 } },
        { { 0, 0 }, twice(f[3] + b[3]), { 0, 0 } } }, L.Bidirectional(
        layer(name), { merge_mode = "sum" })(x, { mask = mask }))
      -- The last output is that of the last step that counts.
      for _, zero_output in ipairs { false, true } do
        near({ both(f[2], b[1]), both(f[3], b[3]) }, L.Bidirectional(
          layer(name, { return_sequences = false,
            zero_output_for_mask = zero_output }))(x, { mask = mask }))
      end
      local p, q = L.Bidirectional(layer(name), { merge_mode = "none" })(x,
        { mask = mask })
      assert.same(mask:totable(), L.mask_of(p):totable())
      assert.same(mask:totable(), L.mask_of(q):totable())
    end
  end)
end)

describe("layers of several inputs with masks", function()
  leaks(before_each, after_each)

  local X, Z = { { 2, 3 }, { 4, -5 }, { 6, 7 } }, { { 1, 9 }, { 8, 2 }, { 5, 1 } }
  local M1, M2 = { true, true, false }, { true, false, false }

  -- The rows of a layer's output and its mask; without a mask of the second
  -- input, one of the first alone.
  local function run(layer, second)
    local x, z = tf.constant { X }, tf.constant { Z }
    local y = layer({ x, z }, { mask = { tf.constant { M1 },
      second and tf.constant { M2 } or false } })
    local mask = L.mask_of(y)
    return y:totable()[1], mask and mask:totable()[1]
  end

  it("count steps that count in one of them", function()
    for _, name in ipairs { "Add", "Subtract", "Multiply", "Average",
      "Maximum", "Minimum", "Concatenate" } do
      local _, mask = run(L[name](), true)
      assert.same(M1, mask)
      _, mask = run(L[name]())
      assert.same(name == "Concatenate" and { true, true, true } or nil, mask)
    end
    local _, mask = run(L.Concatenate(1), true)
    assert.same({ true, true, false, true, false, false }, mask)
    _, mask = run(L.Concatenate(1))
    assert.same({ true, true, false, true, true, true }, mask)
  end)

  it("leave out what does not count", function()
    near({ { 2, 27 }, { 4, -5 }, { 0, 0 } }, (run(L.Multiply(), true)))
    near({ { 2, 27 }, { 32, -10 }, { 5, 1 } }, (run(L.Multiply())))
    near({ { 2, 9 }, { 4, -5 }, { 6, 7 } }, (run(L.Maximum(), true)))
    near({ { 2, 9 }, { 8, 2 }, { 5, 1 } }, (run(L.Maximum())))
    near({ { 1, 3 }, { 4, -5 }, { 6, 7 } }, (run(L.Minimum(), true)))
    near({ { 1, 3 }, { 4, -5 }, { 5, 1 } }, (run(L.Minimum())))
    near({ { 3, 12 }, { 12, -3 }, { 11, 8 } }, (run(L.Add(), true)))
  end)

  it("give queries that may see nothing no scores", function()
    local a = L.MultiHeadAttention(1, 2)
    local x = masked({ { { 1, 2 }, { 0, 0 } } }, { { true, false } })
    local _, scores = a(x, x, { return_attention_scores = true })
    near({ { { { 1, 0 }, { 0, 0 } } } }, scores)
  end)
end)

describe("layers of one input with a mask", function()
  leaks(before_each, after_each)

  local x = tf.constant { { { 2, 3 }, { 4, -5 }, { 60, 70 } } }
  local mask = tf.constant { { true, true, false } }

  it("average the steps that count", function()
    local Mean = L.GlobalAveragePooling1D
    near({ { 3, -1 } }, Mean()(x, { mask = mask }))
    near({ { { 3, -1 } } }, Mean { keepdims = true }(x, { mask = mask }))
    near({ { 3, -1 } }, Mean { data_format = "channels_first" }(
      tf.transpose(x, { 0, 2, 1 }), { mask = mask }))
  end)

  it("give 0 where Softmax has nothing to choose from", function()
    near({ { 0, 1, 0 }, { 0, 0, 0 } }, L.Softmax()({ { 1, 2, 3 }, { 4, 5, 6 } },
      { mask = tf.constant { { false, true, false },
        { false, false, false } } }))
  end)

  it("hand each step's part on in TimeDistributed", function()
    local inner = L.SimpleRNN(1, { kernel_initializer = "ones",
      recurrent_initializer = "ones", activation = "linear" })
    local steps = tf.constant { { { { 1 }, { 2 } }, { { 3 }, { 4 } } } }
    local y = L.TimeDistributed(inner)(steps, { mask = tf.constant {
      { { true, false }, { true, true } } } })
    near({ { { 1 }, { 7 } } }, y)
    local bn = L.BatchNormalization { momentum = 0 }
    L.TimeDistributed(bn)(x, { mask = mask, training = true })
    near({ 3, -1 }, bn.moving_mean)
  end)

  it("pass it on", function()
    for _, layer in ipairs { L.Identity(), L.Rescaling(2), L.Dense(1),
      L.Dropout(0.5), L.LayerNormalization(), L.Activation "relu",
      L.TimeDistributed(L.Dense(1)) } do
      assert.same(mask:totable(), L.mask_of(layer(tf.identity(x),
        { mask = mask })):totable())
    end
    for _, layer in ipairs { L.Flatten(), L.Permute { 2, 1 }, L.Conv1D(1, 1),
      L.MaxPooling1D(1), L.ZeroPadding1D(0) } do
      assert.is_nil(L.mask_of(layer(tf.identity(x), { mask = mask })))
    end
  end)
end)
