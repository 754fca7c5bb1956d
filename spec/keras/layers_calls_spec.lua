-- Calling layers: building, training, masks, losses, errors; state under
-- strategies.
local leaks = require "spec.support.leaks"
local R = require "spec.support.replicas"
local tf = require "tfdist"
local at = require("spec.support.on_device").at
local expect = require "spec.support.expect"

local K = tf.keras
local L = K.layers
local fails = R.fails

local near = expect.near

local names = expect.names

describe("a layer", function()
  leaks(before_each, after_each)

  it("is built by its first call", function()
    local d = L.Dense(3, { name = "d" })
    assert.is_false(d.built)
    assert.same({}, d.weights)
    d(tf.ones { 2, 4 })
    assert.is_true(d.built)
    assert.same({ 4, 3 }, d.kernel.shape)
    assert.same({ "d/kernel", "d/bias" }, names(d.weights))
    assert.equal(15, d:count_params())
    assert.equal('Dense "d" (15 parameters)', tostring(d))
    fails("ValueError", "not built", function() L.Dense(1):count_params() end)
  end)

  it("is built once, by hand or by its first call", function()
    local layers = { L.Dense(3), L.LSTM(3), L.Bidirectional(L.GRU(2)),
      L.BatchNormalization(), L.TimeDistributed(L.Dense(2)) }
    for i, layer in ipairs(layers) do
      local dims = i == 1 and { 1, 2 } or { 1, 4, 2 }
      layer:build(dims)
      assert.is_true(layer.built)
      local weights, values = layer.weights, {}
      for k, w in ipairs(weights) do
        values[k] = w:read_value() + 1
      end
      layer:set_weights(values)
      layer(tf.ones(dims))
      assert.equal(#values, #layer.weights)
      for k, value in ipairs(values) do
        assert.equal(weights[k], layer.weights[k])
        if i ~= 4 then near(value:totable(), weights[k]:totable()) end
      end
    end
    fails("ValueError", "is built already", layers[1].build, layers[1],
      { 1, 2 })
  end)

  it("has a name with a number of its own", function()
    local a, b = L.Dense(1), L.Dense(1)
    local n = tonumber(a.name:match "^dense_?(%d*)$") or 0
    assert.equal("dense_" .. (n + 1), b.name)
    assert.is_truthy(L.MaxPooling2D().name:find "^max_pooling2d")
    assert.is_truthy(L.ReLU().name:find "^re_lu")
  end)

  it("takes lists of numbers, and floats of another dtype", function()
    local d = L.Dense(1, { kernel_initializer = "ones" })
    near({ { 3 } }, d({ { 1, 2 } }):totable())
    local y = d(tf.ones({ 1, 2 }, "float64"))
    assert.equal("float32", y.dtype)
    local wide = L.Dense(1, { dtype = "float64" })
    assert.equal("float64", wide(tf.ones { 1, 2 }).dtype)
    assert.equal("float64", wide.kernel.dtype)
    near({ { 2 } }, d(tf.ones({ 1, 2 }, "uint8")):totable())
  end)

  it("does not blame the layer that runs when queued work fails", function()
    local early = L.Lambda(function(x)
      return tf.gather(x, tf.constant({ 9 }, "int32"))
    end, { name = "early" })
    local late = L.Lambda(function(x)
      tf.sync_devices()
      return x
    end, { name = "late" })
    local m = K.Sequential { early, late }
    local e = fails("InvalidArgument", "indices[0] = 9", function()
      return m(tf.ones { 2, 4 }):totable()
    end)
    assert.is_nil(tostring(e):find('"late"', 1, true))
  end)

  it("says which layer an error comes from", function()
    local d = L.Dense(10, { name = "d" })
    d(tf.ones { 2, 4 })
    local e = fails("InvalidArgument", "d: the input has shape {2, 5}", d,
      tf.ones { 2, 5 })
    assert.same({ 'in layer "d" (Dense, units = 10)' }, e.notes)
    local m = K.Sequential({ L.Lambda(function(x)
      return tf.matmul(x, tf.ones { 3, 3 })
    end, { name = "f" }) }, { name = "m" })
    e = fails("InvalidArgument", "matmul", m, tf.ones { 2, 4 })
    assert.same({ 'in layer "f" (Lambda)', 'in layer "m" (Sequential)' },
      e.notes)
    m = K.Sequential { L.Lambda(function() error("oh", 0) end) }
    e = fails("RuntimeError", "oh", m, tf.ones { 2, 4 })
    assert.equal(2, #e.notes)
  end)

  it("refuses arguments that mean nothing", function()
    local e = fails("ValueError", 'Dense: unknown option "activaton"', L.Dense,
      3, { activaton = "relu" })
    assert.equal("did you mean activation?", e.hint)
    fails("ValueError", "unknown activation", L.Dense, 3, "rellu")
    fails("TypeError", "units must be a whole number", L.Dense, "3")
    fails("ValueError", "at least 1", L.Dense, 0)
    fails("TypeError", "missing argument units", L.Dense)
    fails("ValueError", "rate must be in [0, 1)", L.Dropout, 1)
    fails("ValueError", "padding must be one of", L.Conv2D, 3, 3,
      { padding = "sam" })
    fails("ValueError", "kernel_size must be a number or a list of 2", L.Conv2D,
      3, { 3 })
    fails("ValueError", "cannot both be larger", L.Conv2D, 3, 3,
      { strides = 2, dilation_rate = 2 })
    fails("ValueError", "share", function()
      L.Conv2D(3, 1, { groups = 2 })
    end)
    for _, layer in ipairs { L.Reshape {}, L.Flatten() } do
      fails("InvalidArgument", "has shape {}; expected rank 1 or more", layer,
        tf.constant(1.0))
    end
    local d = L.Dense(1)
    fails("ValueError", "unknown option", d, tf.ones { 1, 1 },
      { trainng = true })
    fails("TypeError", "training must be", d, tf.ones { 1, 1 },
      { training = "yes" })
    fails("TypeError", "missing argument inputs", d)
    fails("TypeError", "must be a tensor", d, "x")
    fails("TypeError", "one argument more", d, tf.ones { 1, 1 }, tf.ones { 1 })
    fails("KeyError", "tf.keras.layers has no", function() return L.Dence end)
    fails("NotImplementedError", "ConvLSTM2D", function()
      return L.ConvLSTM2D
    end)
    fails("InvalidArgument", "rank 4", L.Conv2D(1, 1), tf.ones { 1, 2, 3 })
    fails("InvalidArgument", "do not broadcast", L.Add(),
      { tf.ones { 1, 2 }, tf.ones { 1, 3 } })
    fails("ValueError", "list of 2 or more", L.Subtract(), tf.ones { 1, 2 })
    for _, op in ipairs { "no_such", {}, 3 } do
      fails("ValueError", "TensorOp: op must be the name of a method of tensors",
        L.TensorOp, op)
    end
  end)

  it("starts afresh after a build that failed", function()
    local Odd = L.Layer:extend "Odd"
    function Odd:build(shape)
      self.a = self:add_weight { name = "a", shape = { shape[2] } }
      if shape[2] == 3 then error("no three", 0) end
    end
    local odd = Odd()
    fails("RuntimeError", "no three", odd, tf.ones { 1, 3 })
    odd(tf.ones { 1, 4 })
    assert.equal(1, #odd.weights)
    assert.same({ 4 }, odd.a.shape)
  end)

  it("sets and gives weights", function()
    local d = L.Dense(1)
    d(tf.ones { 1, 2 })
    d:set_weights { { { 1 }, { 2 } }, { 3 } }
    near({ { 6 } }, d({ { 1, 1 } }):totable())
    local w = d:get_weights()
    d.kernel:assign { { 0 }, { 0 } }
    near({ { 1 }, { 2 } }, w[1]:totable())
    fails("ValueError", "2 weights, got 1", d.set_weights, d, { { 1 } })
    fails("ValueError", "has shape {2, 1}, got {1, 1}", d.set_weights, d,
      { { { 1 } }, { 3 } })
    near({ { 0 }, { 0 } }, d.kernel:totable())
  end)
end)

describe("a class of one's own", function()
  leaks(before_each, after_each)

  local function block()
    local Block = L.Layer:extend "Block"
    function Block:init(units, options)
      L.Layer.init(self, options)
      self.second = L.Dense(units, { name = "second" })
      self.list = { L.Dense(1, { name = "list" }) }
    end
    function Block:build(shape)
      self.scale = self:add_weight { name = "scale", shape = { shape[2] },
        initializer = "ones" }
      self.steps = self:add_weight { name = "steps", shape = {},
        dtype = "int32", trainable = false }
    end
    function Block:call(x, options)
      self.saw = options.training
      self:add_loss(tf.reduce_sum(x))
      return self.list[1](self.second(x * self.scale))
    end
    return Block
  end

  it("tracks weights and layers in the order of assignment", function()
    local b = block()(2, { name = "b" })
    b(tf.ones { 1, 3 })
    assert.same({ "b/scale", "second/kernel", "second/bias", "list/kernel",
      "list/bias", "b/steps" }, names(b.weights))
    assert.equal(5, #b.trainable_variables)
    assert.same({ "b/steps" }, names(b.non_trainable_variables))
    assert.equal("b", b.name)
    assert.is_true(tf.Module.is_module(b))
    local outer = tf.Module()
    outer.b = b
    assert.equal(6, #outer.variables)
  end)

  it("freezes all that is inside", function()
    local b = block()(2)
    b(tf.ones { 1, 3 })
    b.trainable = false
    assert.same({}, b.trainable_variables)
    assert.equal(6, #b.non_trainable_variables)
    assert.is_false(b.second.trainable)
    b.trainable = true
    b.second.trainable = false
    assert.same(3, #b.trainable_variables)
    fails("TypeError", "true or false", function() b.trainable = 1 end)
  end)

  it("hears of training from the call around it", function()
    local b = block()(2)
    b(tf.ones { 1, 3 })
    assert.is_false(b.saw)
    b(tf.ones { 1, 3 }, { training = true })
    assert.is_true(b.saw)
    local m = K.Sequential { b }
    m(tf.ones { 1, 3 }, { training = true })
    assert.is_true(b.saw)
    m(tf.ones { 1, 3 })
    assert.is_false(b.saw)
  end)

  it("adds losses of the last call, and regularization", function()
    local b = block()(2)
    local m = K.Sequential { b, L.Dense(1, { kernel_regularizer = "l2",
      kernel_initializer = "ones", activity_regularizer = "l1" }) }
    m(tf.ones { 2, 3 })
    m(tf.ones { 1, 3 })
    local losses = m.losses
    assert.equal(3, #losses)
    assert.near(3, losses[1]:item(), 1e-6)
    assert.near(0.01, losses[3]:item(), 1e-6)
    m.layers[2].kernel:assign { { 2 } }
    assert.near(0.04, m.losses[3]:item(), 1e-6)
    local lazy = L.Dense(1)
    lazy:add_loss(function() return tf.constant(7) end)
    assert.near(7, lazy.losses[1]:item(), 1e-6)
  end)

  it("names a regularizer of outputs that returns no number", function()
    local dense = L.Dense(1, { name = "d",
      activity_regularizer = function() return {} end })
    local ok, e = pcall(dense, tf.ones { 2, 3 })
    assert.is_false(ok)
    assert.equal("TypeError", e.kind)
    assert.matches("d: activity_regularizer must return a number or a scalar "
      .. "tensor, got a table", e.message, 1, true)
  end)

  it("gets its shape from a call with zeros", function()
    local b = block()(2)
    local x = K.Input { 3 }
    assert.same({ -1, 1 }, b(x).shape)
    assert.same({ -1, 1 }, b:compute_output_shape { -1, 3 })
  end)
end)

describe("masks", function()
  leaks(before_each, after_each)

  it("go from Embedding and Masking to whoever can use them", function()
    local ids = tf.constant({ { 1, 2, 0 }, { 3, 0, 0 } }, "int32")
    local e = L.Embedding(4, 2, { mask_zero = true,
      embeddings_initializer = "ones" })
    local x = e(ids)
    assert.same({ { true, true, false }, { true, false, false } },
      L.mask_of(x):totable())
    local y = L.Dense(2)(L.Dropout(0.5)(x))
    assert.is_truthy(L.mask_of(y))
    assert.is_nil(L.mask_of(L.GlobalAveragePooling1D()(y)))
    local m = L.Masking(1)(tf.constant { { { 1, 1 }, { 1, 2 } } })
    assert.same({ { false, true } }, L.mask_of(m):totable())
    near({ { { 0, 0 }, { 1, 2 } } }, m:totable())
  end)

  it("keep recurrent layers from steps that do not count", function()
    local e = L.Embedding(4, 2, { mask_zero = true })
    local lstm = L.LSTM(3)
    local short = lstm(e(tf.constant({ { 1, 2 } }, "int32")))
    local long = lstm(e(tf.constant({ { 1, 2, 0, 0 } }, "int32")))
    near(short:totable(), long:totable(), 1e-6)
    local m = K.Sequential { e, L.Bidirectional(lstm), L.Dense(1) }
    near(m(tf.constant({ { 1, 2 } }, "int32")):totable(),
      m(tf.constant({ { 1, 2, 0 } }, "int32")):totable(), 1e-6)
  end)

  it("reach attention", function()
    local e = L.Embedding(4, 2, { mask_zero = true })
    local a = L.MultiHeadAttention(1, 2)
    local function run(ids)
      local x = e(tf.constant(ids, "int32"))
      return a(x, x)
    end
    local short, long = run { { 1, 2 } }, run { { 1, 2, 0 } }
    near(short[0]:totable(), long[{ 0, { 0, 2 } }]:totable(), 1e-5)
  end)
end)

describe("layers of training only", function()
  leaks(before_each, after_each)
  local x = tf.ones { 100, 100 }

  it("do nothing in inference", function()
    for _, layer in ipairs { L.Dropout(0.5), L.GaussianNoise(1),
      L.GaussianDropout(0.5), L.AlphaDropout(0.5),
      L.SpatialDropout1D(0.5) } do
      local given = layer:describe():find "Spatial" and tf.ones { 2, 3, 4 }
        or tf.ones { 3, 4 }
      near(given:totable(), layer(given):totable())
    end
  end)

  -- 10000 elements: 5 standard errors of the mean are 0.05.
  it("keep the mean", function()
    for _, layer in ipairs { L.Dropout(0.5, { seed = 1 }),
      L.GaussianNoise(0.5, { seed = 1 }),
      L.GaussianDropout(0.5, { seed = 1 }) } do
      local y = layer(x, { training = true })
      assert.near(1, tf.reduce_mean(y):item(), 0.05)
      assert.not_same(x:totable(), y:totable())
    end
    local y = L.AlphaDropout(0.3, { seed = 1 })(tf.random.normal({ 100, 100 },
      { seed = 2 }), { training = true })
    assert.near(0, tf.reduce_mean(y):item(), 0.05)
    assert.near(1, tf.math.reduce_std(y):item(), 0.05)
  end)

  it("drop whole channels", function()
    local y = L.SpatialDropout2D(0.5)(tf.ones { 4, 3, 3, 8 },
      { training = true })
    local first = y[{ {}, {0, 1}, {0, 1} }]
    near(tf.broadcast_to(first, { 4, 3, 3, 8 }):totable(), y:totable())
    for i, dims in ipairs { { 9, 2, 8 }, { 9, 2, 2, 8 }, { 9, 2, 2, 2, 8 } } do
      local layer = L[("SpatialDropout%dD"):format(i)](0.5, { seed = 7 })
      local function draws()
        tf.random.set_seed(3)
        return layer(tf.ones(dims), { training = true }):totable()
      end
      assert.same(draws(), draws())
    end
  end)
end)

describe("recurrent layers", function()
  leaks(before_each, after_each)

  it("give the same by one op and step by step", function()
    local x = tf.random.normal({ 3, 5, 4 }, { seed = 1 })
    for _, name in ipairs { "LSTM", "GRU" } do
      local one = L[name](6, { return_sequences = true, return_state = true,
        bias_initializer = "random_normal" })
      local many = L[name](6, { return_sequences = true, return_state = true,
        unroll = true })
      local a = { one(x) }
      many(x)
      many:set_weights(one:get_weights())
      local b = { many(x) }
      assert.equal(#a, #b)
      for i = 1, #a do near(a[i]:totable(), b[i]:totable(), 1e-5) end
    end
  end)

  it("go on from states that are given or kept", function()
    local x = tf.random.normal({ 2, 6, 3 }, { seed = 1 })
    local whole = L.LSTM(4, { return_state = true })
    local y = whole(x)
    local _, h, c = whole(x[{ {}, { 0, 3 } }])
    near(y:totable(), (whole(x[{ {}, { 3, 6 } }], { initial_state = { h, c } }))
      :totable(), 1e-5)
    local kept = L.LSTM(4, { stateful = true })
    kept(x[{ {}, { 0, 3 } }])
    kept:set_weights(whole:get_weights())
    kept:reset_states()
    kept(x[{ {}, { 0, 3 } }])
    near(y:totable(), kept(x[{ {}, { 3, 6 } }]):totable(), 1e-5)
    fails("ValueError", "not stateful", whole.reset_states, whole)
    fails("ValueError", "2 states", whole, x, { initial_state = h })
  end)

  it("keep states for the batch that they were built for, no other", function()
    for _, name in ipairs { "SimpleRNN", "LSTM", "GRU" } do
      for _, rows in ipairs { 1, 3 } do -- one row would broadcast
        local m = tf.keras.Sequential { L[name](2, { stateful = true,
          batch_input_shape = { 4, 3, 5 }, name = "kept" }), L.Dense(1) }
        m:compile("sgd", "mse")
        local x, y = tf.ones { 4 + rows, 3, 5 }, tf.ones { 4 + rows, 1 }
        local want = ("kept: the states of this stateful layer are those of a "
          .. "batch of 4, for which it was built; got a batch of %d"):format(rows)
        fails("ValueError", want, m.predict, m, x, { batch_size = 4,
          verbose = 0 })
        fails("ValueError", want, m.fit, m, x, y, { batch_size = 4,
          verbose = 0 })
      end
    end
  end)

  it("keep their states apart from their weights", function()
    for _, name in ipairs { "SimpleRNN", "LSTM", "GRU" } do
      local kept, plain = L[name](3, { stateful = true }), L[name](3)
      kept:build { 2, 4, 5 }
      plain:build { 2, 4, 5 }
      for _, list in ipairs { "weights", "variables", "trainable_weights",
        "non_trainable_weights" } do
        assert.equal(#plain[list], #kept[list])
      end
      assert.equal(plain:count_params(), kept:count_params())
      assert.equal(name == "LSTM" and 2 or 1, #kept.states)
    end
    local both = L.Bidirectional(L.GRU(2, { stateful = true }))
    both(tf.ones { 1, 2, 2 })
    both:reset_state()
    near({ { 0, 0 } }, both.backward_layer.states[1])
  end)

  it("start LSTM's forget gate at 1", function()
    local l = L.LSTM(2)
    l(tf.ones { 1, 1, 1 })
    near({ 0, 0, 1, 1, 0, 0, 0, 0 }, l.cell.bias:totable())
  end)

  it("drop inputs and states for a whole sequence", function()
    local l = L.SimpleRNN(3, { dropout = 0.5, recurrent_dropout = 0.5 })
    local x = tf.ones { 2, 4, 5 }
    l(x)
    tf.random.set_seed(1)
    local a = l(x, { training = true })
    tf.random.set_seed(1)
    near(a:totable(), l(x, { training = true }):totable())
    assert.not_same(l(x):totable(), a:totable())
  end)

  it("run a cell of the user's", function()
    local Sum = L.Layer:extend "Sum"
    function Sum:init()
      self.state_size, self.output_size = 2, 2
    end
    function Sum:call(x, options)
      local s = options.states[1] + x
      return s, { s }
    end
    local x = tf.reshape(tf.range(12, { dtype = "float32" }), { 1, 6, 2 })
    near({ { 30, 36 } }, L.RNN(Sum())(x):totable())
    assert.same({ -1, 2 }, L.RNN(Sum())(K.Input { 6, 2 }).shape)
  end)
end)

describe("preprocessing layers", function()
  leaks(before_each, after_each)

  it("Normalization learns its moments", function()
    local n = L.Normalization()
    n:adapt(tf.constant { { 1, 10 }, { 3, 30 } })
    near({ { -1, -1 }, { 1, 1 } }, n(tf.constant { { 1, 10 }, { 3, 30 } })
      :totable(), 1e-5)
    assert.same({}, n.trainable_variables)
    local back = L.Normalization { mean = 2, variance = 4, invert = true }
    near({ { 4 } }, back({ { 1 } }):totable())
  end)

  it("Normalization reads a dataset", function()
    local n = L.Normalization { axis = "none" }
    n:adapt(tf.data.Dataset.from_tensor_slices { 1, 2, 3, 6 }:batch(3))
    near(3, n.adapt_mean:item(), 1e-6)
    near(3.5, n.adapt_variance:item(), 1e-6)
  end)

  it("flip and crop in training only", function()
    local x = tf.reshape(tf.range(32, { dtype = "float32" }), { 2, 4, 4, 1 })
    local f = L.RandomFlip("horizontal", { seed = 1 })
    near(x:totable(), f(x):totable())
    local seen = {}
    for _ = 1, 20 do
      local y = f(x, { training = true })
      seen[y:item(0)] = true
    end
    assert.is_true(seen[0] and seen[3])
    local c = L.RandomCrop(2, 3)
    assert.same({ 2, 2, 3, 1 }, c(x, { training = true }).shape)
    near(x[{ {}, { 1, 3 }, { 0, 3 } }]:totable(), c(x):totable())
  end)

  -- A picture whose value is 10 row + column.
  local function picture(n)
    local rows = tf.reshape(tf.range(n, { dtype = "float32" }), { 1, n, 1, 1 })
    return rows * 10 + tf.reshape(rows, { 1, 1, n, 1 })
  end

  it("turn, move and zoom images by what is asked", function()
    local x = picture(4)
    local train = { training = true }
    -- A quarter counter-clockwise puts the last column on top.
    near(tf.image.rot90(x):totable(),
      L.RandomRotation({ 0.25, 0.25 })(x, train):totable(), 1e-4)
    near(x:totable(), L.RandomRotation(0.5)(x):totable())
    local moved = L.RandomTranslation({ 0.25, 0.25 }, { -0.25, -0.25 },
      { fill_mode = "constant", fill_value = -1 })(x, train)
    near({ { { { -1 }, { -1 }, { -1 }, { -1 } },
      { { 1 }, { 2 }, { 3 }, { -1 } }, { { 11 }, { 12 }, { 13 }, { -1 } },
      { { 21 }, { 22 }, { 23 }, { -1 } } } }, moved:totable(), 1e-4)
    for mode, edge in pairs { reflect = 0, nearest = 0, wrap = 30 } do
      local y = L.RandomTranslation({ 0.25, 0.25 }, 0, { fill_mode = mode })(x,
        train)
      assert.near(edge, y:item(0), 1e-4)
      assert.near(0, y:item(4), 1e-4)
    end
    -- Half size: rows -1.5, 0.5, 2.5, 4.5 of the picture around its middle.
    local small = L.RandomZoom({ 1, 1 }, nil, { fill_mode = "nearest" })(x,
      train)
    near({ { 0, 0.5, 2.5, 3 } }, tf.reshape(small, { 4, 4 })[{ { 0, 1 } }]
      :totable(), 1e-4)
    local near_by = L.RandomZoom({ -0.5, -0.5 }, { interpolation = "nearest" })
    assert.same(x.shape, near_by(x, train).shape)
    assert.same({ 4, 4, 1 }, L.RandomRotation(0.1)(x[0], train).shape)
    fails("TypeError", "number or a pair", L.RandomRotation, "x")
    fails("ValueError", "low to high", L.RandomZoom, { 1, 0 })
    fails("InvalidArgument", "expected an image", L.RandomZoom(0.1),
      tf.ones { 2, 2 })
  end)

  it("change each image by itself", function()
    local x = tf.repeat_(picture(4), 8, 0)
    local y = L.RandomRotation(0.5, { seed = 1 })(x, { training = true })
    assert.not_same(y[0]:totable(), y[1]:totable())
  end)

  it("change contrast and brightness", function()
    local x = picture(2)
    local c = L.RandomContrast({ 0.5, -0.5 })
    near({ { { { 2.75 }, { 3.25 } }, { { 7.75 }, { 8.25 } } } },
      c(x, { training = true }):totable(), 1e-5)
    local b = L.RandomBrightness({ 0.5, 0.5 }, { value_range = { 0, 10 } })
    near({ { { { 5 }, { 6 } }, { { 10 }, { 10 } } } },
      b(x, { training = true }):totable(), 1e-5)
    near(x:totable(), b(x):totable())
  end)

  it("look numbers up", function()
    local t = L.IntegerLookup { vocabulary = { 12, 36, 1138 } }
    assert.same({ { 1, 3, 0 } }, t(tf.constant({ { 12, 1138, 5 } }, "int64"))
      :totable())
    local back = L.IntegerLookup { vocabulary = { 12, 36 }, invert = true }
    assert.same({ 12, -1 }, back(tf.constant({ 1, 0 }, "int64")):totable())
    local learned = L.IntegerLookup { max_tokens = 3 }
    learned:adapt(tf.constant({ 5, 7, 7, 5, 7, 9 }, "int64"))
    assert.same({ -1, 7, 5 }, learned:get_vocabulary())
    fails("InvalidArgument", "outside 0..2", L.CategoryEncoding(3),
      tf.constant({ 3 }, "int32"))
    near({ { 1, 0, 1 } }, L.CategoryEncoding(3)(tf.constant({ { 0, 2, 2 } },
      "int32")):totable())
  end)
end)

describe("batch normalization", function()
  leaks(before_each, after_each)

  it("moves by the plain variance of inputs of every rank", function()
    local flat = { 1, 3, 5, 7 }
    for _, dims in ipairs { { 4, 1 }, { 2, 2, 1 }, { 1, 2, 2, 1 },
      { 1, 1, 2, 2, 1 }, { 2, 1, 2 } } do
      local bn = L.BatchNormalization { momentum = 0.9,
        axis = #dims == 3 and dims[3] == 2 and 1 or -1 }
      bn(tf.reshape(tf.constant(flat), dims), { training = true })
      near({ 0.4 }, bn.moving_mean:totable())
      near({ 0.9 + 0.1 * 5 }, bn.moving_variance:totable())
    end
  end)

  it("keeps its statistics when frozen, and without data", function()
    local bn = L.BatchNormalization()
    bn(tf.ones { 2, 2 })
    bn.trainable = false
    bn(tf.ones { 2, 2 } * 5, { training = true })
    near({ 0, 0 }, bn.moving_mean:totable())
    bn.trainable = true
    for _, dims in ipairs { { 0, 2 } } do
      assert.same(dims, bn(tf.ones(dims), { training = true }).shape)
    end
    near({ 0, 0 }, bn.moving_mean:totable())
    near({ 1, 1 }, bn.moving_variance:totable())
    local images = L.BatchNormalization()
    assert.same({ 0, 3, 3, 2 }, images(tf.ones { 0, 3, 3, 2 },
      { training = true }).shape)
    near({ 1, 1 }, images.moving_variance:totable())
  end)
end)

describe("layers under a strategy", function()
  R.leaks(before_each, after_each)

  -- K14: replica r sees 8j + i + 100r at row j, column i of 16x8; the batch
  -- mean of column i is 60 + i + 100r.
  for _, momentum in ipairs { 0.8, 0.9, 0.99 } do
    R.each(it, pending, "K14 testTrainNetworkWithBatchNorm, momentum "
      .. momentum, function(strategy, n)
      local bn, dense, optimizer = strategy:scope(function()
        return L.BatchNormalization { momentum = momentum, name = "bn" },
          L.Dense(1), K.optimizers.SGD { learning_rate = 0.001 }
      end)
      local function step()
        local r = R.id()
        local x = tf.reshape(tf.range(128, { dtype = "float32" }), { 16, 8 })
          + 100 * r
        local tape, loss = tf.GradientTape(function()
          return tf.reduce_mean(tf.abs(dense(bn(x, { training = true })) - 1))
            / n
        end)
        local vars = bn.trainable_variables
        for _, v in ipairs(dense.trainable_variables) do
          vars[#vars + 1] = v
        end
        optimizer:apply_gradients(tape:gradient(loss, vars), vars)
      end
      local want = { 0, 0, 0, 0, 0, 0, 0, 0 }
      for _ = 1, 10 do
        strategy:run(step)
        for i = 1, 8 do
          want[i] = want[i] - (want[i] - (60 + i - 1 + 50 * (n - 1)))
            * (1 - momentum)
        end
        near(want, bn.moving_mean:read_value():totable(), 1e-4)
      end
    end)
  end

  R.pair(it, pending, "are built once, inside strategy:run", function(strategy)
    local m = strategy:scope(function()
      return K.Sequential { L.Dense(3), L.Dense(2) }
    end)
    strategy:run(function() m(tf.ones { 2, 4 }, { training = true }) end)
    assert.equal(4, #m.weights)
    for _, v in ipairs(m.weights) do
      assert.equal(2, #v.values)
      assert.same(v.values[1]:totable(), v.values[2]:totable())
    end
    local lines = {}
    m:summary { print_fn = function(line) lines[#lines + 1] = line end }
    assert.is_truthy(lines[1]:find(("2 replicas: %s %s"):format(at(0), at(1)),
      1, true))
    assert.is_truthy(lines[#lines]:find(", per replica", 1, true))
  end)

  R.pair(it, pending, "work under every strategy of one machine", function()
    for _, strategy in ipairs {
      tf.distribute.OneDeviceStrategy(at(1)),
      tf.distribute.experimental.CentralStorageStrategy {
        compute_devices = { at(0), at(1) },
        parameter_device = at(0),
      },
    } do
      local m, optimizer = strategy:scope(function()
        return K.Sequential { L.Dense(3, { kernel_initializer = "ones",
          input_shape = { 2 } }), L.BatchNormalization(), L.Dense(1) },
          K.optimizers.SGD { learning_rate = 0.1 }
      end)
      local first, last
      for _ = 1, 5 do
        local out = strategy:run(function()
          local x = tf.constant { { 1, 2 }, { 3, 4 } }
          local tape, loss = tf.GradientTape(function()
            return tf.reduce_mean(tf.square(m(x, { training = true }) - 3))
          end)
          local vars = m.trainable_variables
          optimizer:apply_gradients(tape:gradient(loss, vars), vars)
          return loss
        end)
        last = strategy:reduce("mean", out):item()
        first = first or last
      end
      assert.is_true(last < first)
      assert.equal(6, #m.trainable_variables)
    end
  end)

  R.pair(it, pending, "keep each replica's losses apart", function(strategy)
    local d = strategy:scope(function() return L.ActivityRegularization(1) end)
    local out = strategy:run(function()
      d(tf.ones { 1, 2 } * (R.id() + 1))
      R.ctx():all_reduce("SUM", tf.constant(1))
      return d.losses[1]
    end)
    assert.same({ 2, 4 }, R.locals(strategy, out))
  end)

  R.pair(it, pending, "name the replica of an error", function(strategy)
    local d = strategy:scope(function() return L.Dense(3, { name = "d" }) end)
    strategy:run(function() d(tf.ones { 1, 4 }) end)
    local e = fails("InvalidArgument", "d: the input has shape {1, 5}",
      function()
        strategy:run(function() d(tf.ones { 1, R.id() + 4 }) end)
      end)
    assert.equal(1, e.replica)
    assert.same({ 'in layer "d" (Dense, units = 3)' }, e.notes)
  end)

  R.each(it, pending, "SyncBatchNormalization sees all replicas' data",
    function(strategy, n)
      local bn = strategy:scope(function()
        return L.SyncBatchNormalization { momentum = 0, epsilon = 0 }
      end)
      local total, square = 0, 0
      for r = 0, n - 1 do
        for _, x in ipairs { r, r + 1 } do
          total, square = total + x, square + x * x
        end
      end
      local mean = total / (2 * n)
      local variance = square / (2 * n) - mean * mean
      local grads = strategy:run(function()
        local x = tf.constant { { R.id() }, { R.id() + 1 } }
        local tape, y = tf.GradientTape(function(tape)
          tape:watch(x)
          local z = bn(x, { training = true })
          return z
        end)
        local g = tape:gradient(y, x)
        return y, g
      end)
      for r, y in ipairs(R.locals(strategy, grads)) do
        near({ { (r - 1 - mean) / math.sqrt(variance) },
          { (r - mean) / math.sqrt(variance) } }, y, 1e-5)
      end
      near({ mean }, bn.moving_mean:read_value():totable(), 1e-6)
      near({ variance }, bn.moving_variance:read_value():totable(), 1e-5)
    end)

  -- The gradient of the sum of all replicas' losses, as if they were one batch.
  R.pair(it, pending, "SyncBatchNormalization's gradients are those of the "
    .. "whole batch", function(strategy)
      local x = tf.random.normal({ 6, 3 }, { seed = 1 })
      local factors = tf.random.normal({ 6, 3 }, { seed = 2 })
      local one = L.BatchNormalization()
      local function slopes(bn, part, weights)
        local tape, y = tf.GradientTape(function(tape)
          tape:watch(part)
          return tf.reduce_sum(bn(part, { training = true }) * weights)
        end)
        local vars = bn.trainable_variables
        local grads = tape:gradient(y, { part, vars[1], vars[2] })
        return grads[1], grads[2], grads[3]
      end
      one(x)
      local want, gamma, beta = slopes(one, x, factors)
      local both = strategy:scope(function()
        return L.SyncBatchNormalization { input_shape = { 3 } }
      end)
      strategy:run(function() both(tf.ones { 1, 3 }) end)
      local got, g, b = strategy:run(function()
        local rows = { 3 * R.id(), 3 * R.id() + 3 }
        return slopes(both, x[{ rows }], factors[{ rows }])
      end)
      near(want:totable(), strategy:gather(got, 0):totable(), 1e-5)
      near(gamma:totable(), strategy:reduce("sum", g):totable(), 1e-5)
      near(beta:totable(), strategy:reduce("sum", b):totable(), 1e-5)
    end)

  R.pair(it, pending, "BatchNormalization leaves a replica without data alone",
    function(strategy)
      local bn = strategy:scope(function()
        return L.BatchNormalization { momentum = 0.5 }
      end)
      strategy:run(function()
        bn(tf.ones { R.id() == 0 and 2 or 0, 3 }, { training = true })
      end)
      near({ 0.5, 0.5, 0.5 }, bn.moving_mean.values[1]:totable())
      near({ 0, 0, 0 }, bn.moving_mean.values[2]:totable())
    end)
end)
