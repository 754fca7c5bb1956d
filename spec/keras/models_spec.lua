-- Sequential, functional and subclassed models.
local leaks = require "spec.support.leaks"
local R = require "spec.support.replicas"
local tf = require "tfdist"
local expect = require "spec.support.expect"

local K = tf.keras
local L = K.layers
local fails = R.fails

local near = expect.near

local names = expect.names

local function ones(units, options)
  options = options or {}
  options.kernel_initializer = "ones"
  return L.Dense(units, options)
end

local function lines_of(model, options)
  local lines = {}
  options = options or {}
  options.print_fn = function(line) lines[#lines + 1] = line end
  model:summary(options)
  return lines
end

describe("Sequential", function()
  leaks(before_each, after_each)

  it("is built at once when the input is known", function()
    local m = K.Sequential { ones(3, { input_shape = { 4 } }), ones(2) }
    assert.is_true(m.built)
    assert.equal(4, #m.weights)
    assert.same({ -1, 2 }, m.output_shape)
    near({ { 12, 12 } }, m(tf.ones { 1, 4 }):totable())
    m = K.Sequential { K.Input { 4 }, ones(3) }
    assert.is_true(m.built)
    assert.equal(1, #m.layers)
    m = K.Sequential()
    m:add(ones(3))
    assert.is_false(m.built)
    m:build { -1, 4 }
    assert.is_true(m.built)
    assert.same({ 4, 3 }, m.layers[1].kernel.shape)
  end)

  it("waits for its first call otherwise", function()
    local m = K.Sequential { ones(3), ones(2) }
    assert.same({}, m.weights)
    assert.matches("not built$", lines_of(m)[3])
    near({ { 12, 12 } }, m(tf.ones { 1, 4 }):totable())
    assert.is_true(m.built)
    assert.equal(4, #m.trainable_variables)
  end)

  it("grows and shrinks", function()
    local m = K.Sequential({ ones(3, { input_shape = { 2 } }) },
      { name = "grow" })
    m:add(ones(2, { name = "top" }))
    near({ { 6, 6 } }, m(tf.ones { 1, 2 }):totable())
    assert.equal("top", m:pop().name)
    near({ { 2, 2, 2 } }, m(tf.ones { 1, 2 }):totable())
    assert.same({ -1, 3 }, m.output_shape)
    assert.equal("grow", m.name)
    m:pop()
    fails("TypeError", "no layers", m.pop, m)
  end)

  it("refuses what does not fit", function()
    fails("TypeError", "entry 1 must be a layer, got the number 3",
      K.Sequential, { 3 })
    fails("ValueError", 'two layers are called "a"', K.Sequential,
      { L.Dense(1, { name = "a" }), L.Dense(1, { name = "a" }) })
    local d = L.Dense(1)
    fails("ValueError", "in it already", K.Sequential, { d, d })
    fails("ValueError", "several outputs", K.Sequential,
      { L.LSTM(1, { return_state = true, input_shape = { 2, 3 } }) })
    fails("ValueError", "unknown option", K.Sequential, { laiers = {} })
    local m = K.Sequential { L.Dense(1, { input_shape = { 2 } }) }
    fails("InvalidArgument", "rank 4", m.add, m, L.Conv2D(1, 1))
    assert.equal(1, #m.layers)
    near({ 2, 1 }, m(tf.ones { 2, 2 }).shape)
  end)

  it("holds models", function()
    local inner = K.Sequential({ ones(2) }, { name = "inner" })
    local m = K.Sequential { inner, ones(1) }
    near({ { 8 } }, m(tf.ones { 1, 4 }):totable())
    assert.equal(4, #m.weights)
    assert.equal(inner, m:get_layer "inner")
    assert.equal(inner, m:get_layer { index = 0 })
    local e = fails("ValueError", "no layer", m.get_layer, m, "iner")
    assert.equal("did you mean inner?", e.hint)
    fails("ValueError", "index 5", m.get_layer, m, { index = 5 })
  end)

  it("comes back from its configuration", function()
    local m = K.Sequential({
      L.Conv2D(2, 3, { input_shape = { 5, 5, 1 }, activation = "relu",
        kernel_regularizer = K.regularizers.L2(0.1) }),
      L.BatchNormalization(), L.Reshape { 9, 2 }, L.Bidirectional(L.LSTM(2)),
    }, { name = "m" })
    local again = K.Sequential:from_config(m:get_config())
    assert.equal("m", again.name)
    assert.same(names(m.layers), names(again.layers))
    again:set_weights(m:get_weights())
    local x = tf.random.normal({ 2, 5, 5, 1 }, { seed = 1 })
    near(m(x):totable(), again(x):totable())
    assert.equal(#m.losses, #again.losses)
  end)

  it("is fitted by a loss's name as by its object", function()
    local x = tf.random.normal({ 32, 3 }, { seed = 1 })
    local y = tf.cast(tf.greater(tf.reduce_sum(x, { axis = 1 }), 0), "float32")
    local got = {}
    for i, loss in ipairs { "binary_crossentropy",
      K.losses.BinaryCrossentropy() } do
      local m = K.Sequential { L.Dense(1, { activation = "sigmoid",
        kernel_initializer = "ones" }) }
      m:compile { optimizer = "sgd", loss = loss }
      got[i] = m:fit(x, y, { epochs = 2, batch_size = 8, shuffle = false,
        verbose = 0 }).history.loss
    end
    near(got[2], got[1])
  end)

  it("is trained by a loop of one's own", function()
    local m = K.Sequential { L.Dense(8, { activation = "tanh" }), L.Dense(1) }
    local optimizer = K.optimizers.Adam { learning_rate = 0.05 }
    tf.random.set_seed(1)
    local x = tf.random.normal { 64, 2 }
    local y = x[{ {}, { 0, 1 } }] * x[{ {}, { 1, 2 } }]
    local first, last
    for _ = 1, 60 do
      local tape, loss = tf.GradientTape(function()
        return tf.reduce_mean(tf.square(m(x, { training = true }) - y))
      end)
      local vars = m.trainable_variables
      optimizer:apply_gradients(tape:gradient(loss, vars), vars)
      last = loss:item()
      first = first or last
    end
    assert.is_true(last < 0.5 * first)
  end)
end)

describe("a functional model", function()
  leaks(before_each, after_each)

  it("computes what its layers do", function()
    local x = K.Input { 4 }
    local h = ones(3)(x)
    local m = K.Model(x, ones(1)(h), { name = "f" })
    assert.equal("f", m.name)
    near({ { 12 } }, m(tf.ones { 1, 4 }):totable())
    near({ { 12 } }, m({ { 1, 1, 1, 1 } }):totable())
    assert.same({ -1, 1 }, m.output_shape)
    assert.equal(3, #m.layers)
    assert.equal(4, #m.weights)
    local other = K.Model { inputs = x, outputs = h }
    near({ { 4, 4, 4 } }, other(tf.ones { 1, 4 }):totable())
  end)

  it("takes and gives structures", function()
    local a, b = K.Input({ 2 }, { name = "a" }), K.Input({ 2 }, { name = "b" })
    local shared = ones(2, { name = "shared" })
    local sum = L.Add()({ shared(a), shared(b) })
    local m = K.Model({ a, b }, { sum = sum, first = a })
    assert.same({ "a", "b" }, m.input_names)
    local xa, xb = tf.ones { 1, 2 }, tf.ones { 1, 2 } * 2
    for _, given in ipairs { { xa, xb }, { a = xa, b = xb } } do
      near({ { 6, 6 } }, m(given).sum:totable())
    end
    assert.equal(2, #m.weights)
    local dict = K.Model({ left = a, right = b }, { sum, a * b })
    local out = dict { left = xa, right = xb }
    near({ { 6, 6 } }, out[1]:totable())
    near({ { 2, 2 } }, out[2]:totable())
    fails("ValueError", "expects 2 inputs (a, b), got one", m, xa)
    fails("ValueError", "expects 2 inputs (a, b), got 3", m, { xa, xb, xa })
    for _, x in ipairs { K.Input { 1 }, { K.Input { 1 } } } do
      fails("ValueError", "expects 2 inputs (a, b), got 1", m, x)
    end
    fails("ValueError", 'no input "right"', dict, { left = xa })
  end)

  it("says that a call gives fewer tensors than the model has", function()
    local a, b = K.Input { 3 }, K.Input { 3 }
    local both = L.Dropout(0.5) { a, b }
    local m = K.Model({ a, b }, L.Add() { both[1], both[2] })
    local x = tf.ones { 2, 3 }
    assert.same({ 2, 3 }, m({ x, x }).shape)
    fails("ValueError", "the call gave 1 tensors, and 2 when the model was "
      .. "made", m, { x, x }, { training = true })
  end)

  it("leaves out named inputs that are not its own, symbolic or not", function()
    local a, b, c = K.Input { 1 }, K.Input { 2 }, K.Input { 7 }
    local m = K.Model({ left = a, right = b }, L.Concatenate()({ a, b }))
    local x = tf.ones { 2, 1 }
    assert.same({ 2, 3 }, m({ left = x, right = tf.ones { 2, 2 },
      key = x, z = x }).shape)
    assert.same({ -1, 3 }, m({ left = a, right = b, key = c, z = c }).shape)
    assert.same({ 4, 3 }, m:compute_output_shape { left = { 4, 1 },
      right = { 4, 2 }, key = { 4, 7 }, z = { 4, 7 } })
    fails("ValueError", 'no input "right"', m, { left = a })
    fails("ValueError", 'no input "right"', m.compute_output_shape, m,
      { left = { 4, 1 } })
    fails("TypeError", "got the string", m.compute_output_shape, m, "x")
    fails("TypeError", "got the string", m.compute_output_shape, m,
      { left = { 4, 1 }, right = "x" })
  end)

  it("uses models and several outputs of a layer as layers", function()
    local x = K.Input { 3, 2 }
    local y, h, c = L.LSTM(4, { return_state = true })(x)
    assert.same({ -1, 4 }, c.shape)
    local inner = K.Model(x, { y, h + c })
    local z = K.Input { 3, 2 }
    local out = inner(z)
    local m = K.Model(z, L.Concatenate()(out))
    assert.same({ 5, 8 }, m(tf.ones { 5, 3, 2 }).shape)
    assert.equal(3, #m.weights)
    local encoder = L.LSTM(4)(x, { initial_state = { h, c } })
    assert.same({ 2, 4 }, K.Model(x, encoder)(tf.ones { 2, 3, 2 }).shape)
  end)

  it("lists weights layer by layer, frozen ones too", function()
    local m = K.Sequential { L.Dense(3, { input_shape = { 2 } }),
      L.BatchNormalization(), L.Dense(1) }
    local shapes = {}
    m.layers[1].trainable = false
    for i, w in ipairs(m.weights) do shapes[i] = table.concat(w.shape, ",") end
    assert.same({ "2,3", "3", "3", "3", "3", "3", "3,1", "1" }, shapes)
    assert.equal(m.layers[2].moving_mean, m.weights[5])
    assert.equal(4, #m.trainable_weights)
  end)

  it("lets KerasTensors be computed with", function()
    local x = K.Input { 3 }
    local y = (2 * x - 1) / x + (-x) ^ 2
    local z = y:reshape { -1, 3, 1 }
    assert.same({ -1, 3, 1 }, z.shape)
    local m = K.Model(x, { y, z:reduce_sum { axis = 1 } })
    local out = m { { 1, 2, 4 } }
    near({ { 2, 5.5, 17.75 } }, out[1]:totable())
    near({ { 25.25 } }, out[2]:totable())
    local e = fails("TypeError", "KerasTensor", tf.nn.relu, x)
    assert.is_truthy(e.hint:find "Lambda")
    local f = L.Lambda(function(t) return tf.nn.relu(t) end)(x)
    assert.same({ -1, 3 }, f.shape)
    assert.equal('KerasTensor float32 (B, 3) "' .. x.name .. '"', tostring(x))
  end)

  it("casts inputs to their dtype and keeps ids whole", function()
    local ids = K.Input({ 2 }, { dtype = "int32" })
    local rows = L.Embedding(3, 2, { embeddings_initializer = "ones" })
    local m = K.Model(ids, rows(ids))
    assert.same({ 1, 2, 2 }, m(tf.constant({ { 1, 2 } }, "int64")).shape)
    local x = K.Input { 2 }
    near({ { 2 } }, K.Model(x, ones(1)(x))(tf.ones({ 1, 2 }, "uint8"))
      :totable())
  end)

  it("passes masks and training on", function()
    local ids = K.Input({ 3 }, { dtype = "int32" })
    local e = L.Embedding(4, 2, { mask_zero = true })(ids)
    local m = K.Model(ids, L.GRU(2)(L.Dropout(0.5)(e)))
    near(m(tf.constant({ { 1, 2, 0 } }, "int32")):totable(),
      m(tf.constant({ { 1, 2, 0 } }, "int32")):totable())
    local d = K.Input { 1000 }
    local drop = K.Model(d, L.Dropout(0.5)(d))
    local zeros = tf.math.count_nonzero(drop(tf.ones { 1, 1000 },
      { training = true })):item()
    assert.is_true(zeros < 600 and zeros > 400)
  end)

  it("comes back from its configuration", function()
    local a, b = K.Input { 2 }, K.Input({ 2 }, { name = "second" })
    local shared = L.Dense(2, { activation = "tanh" })
    local out = L.Concatenate()({ shared(a), shared(b), a * 2 })
    local m = K.Model({ a, b }, { out = out, same = shared(shared(a)) })
    local again = K.Model:from_config(m:get_config())
    again:set_weights(m:get_weights())
    local x = { tf.ones { 1, 2 }, tf.ones { 1, 2 } * 3 }
    local want, got = m(x), again(x)
    near(want.out:totable(), got.out:totable())
    near(want.same:totable(), got.same:totable())
    assert.same(names(m.layers), names(again.layers))
    local clone = K.models.clone_model(m)
    assert.same(names(m.layers), names(clone.layers))
  end)

  it("is cloned with layers of one's own, inside others, too", function()
    local Scale = L.Layer:extend "Scale"
    function Scale:init(options)
      L.Layer.init(self, { name = options.name })
      self.by = options.by
    end
    function Scale:build()
      self.factor = self:add_weight { name = "factor", shape = {},
        initializer = K.initializers.Constant(self.by) }
    end
    function Scale:call(x) return x * self.factor end
    function Scale:get_config() return { name = self.name, by = self.by } end
    local x = K.Input { 2, 3 }
    local out = L.TimeDistributed(Scale { by = 2 })(Scale { by = 3 }(x))
    for _, m in ipairs { K.Model(x, out), K.Sequential { Scale { by = 6 } } } do
      local clone = K.models.clone_model(m)
      assert.near(6, clone(tf.ones { 1, 2, 3 })[0][0][0]:item(), 1e-6)
      assert.same(names(m.layers), names(clone.layers))
      m:build { 1, 2, 3 }
      m.weights[1]:assign(tf.zeros {})
      assert.near(6, clone(tf.ones { 1, 2, 3 })[0][0][0]:item(), 1e-6)
    end
    local e = fails("ValueError", 'unknown layer class "Scale"',
      K.Model.from_config, K.Model, K.Model(x, out):get_config())
    assert.matches("register_keras_serializable", e.hint, 1, true)
    function Scale:init(by) -- loses the name
      L.Layer.init(self)
      self.by = by
    end
    e = fails("ValueError", 'Scale:from_config made a layer called "scale',
      K.models.clone_model, K.Model(x, out))
    assert.matches("from_config of its class", e.hint, 1, true)
  end)

  it("refuses graphs with loose ends", function()
    local a, b = K.Input { 2 }, K.Input { 2 }
    fails("ValueError", "which is not among the inputs", K.Model, a,
      L.Add()({ a, b }))
    fails("TypeError", "outputs must be KerasTensors", K.Model, a,
      tf.ones { 1 })
    fails("ValueError", "belong together", K.Model, a)
    fails("ValueError", "listed twice", K.Model, { a, a }, L.Dense(1)(a))
    fails("ValueError", "two layers are called", K.Model, a,
      L.Dense(1, { name = "x" })(L.Dense(1, { name = "x" })(a)))
    fails("ValueError", "a shape is needed", K.Input)
    fails("InvalidArgument", "expected 2 on axis -1", function()
      local d = L.Dense(1)
      d(a)
      d(K.Input { 3 })
    end)
    fails("ValueError", "not known", L.Dense(1), K.Input { -1 })
    fails("NotImplementedError", "load_model", function()
      return K.models.load_model
    end)
  end)

  it("prints a summary", function()
    local x = K.Input({ 28, 28, 1 }, { name = "image" })
    local h = L.Conv2D(32, 3, { name = "conv2d" })(x)
    h = L.Flatten { name = "flatten" }(L.MaxPooling2D { name = "pool" }(h))
    local m = K.Model(x, L.Dense(64, { name = "dense" })(h), { name = "net" })
    m:get_layer("conv2d").trainable = false
    assert.same({
      'Model "net"',
      " layer            output shape          parameters",
      " image            (B, 28, 28, 1)                 0",
      " conv2d           (B, 26, 26, 32)              320",
      " pool             (B, 13, 13, 32)                0",
      " flatten          (B, 5408)                      0",
      " dense            (B, 64)                  346,176",
      " total 346,496 (1.32 MiB), trainable 346,176, not trainable 320",
    }, lines_of(m))
    local outer = K.Sequential({ m }, { name = "outer" })
    local lines = lines_of(outer, { expand_nested = true,
      show_trainable = true })
    assert.equal(9, #lines)
    assert.is_truthy(lines[5]:find("  conv2d (frozen)", 1, true))
  end)

  it("shows in a summary what is there before the first call", function()
    local Own = K.Model:extend "Own"
    function Own:init()
      K.Model.init(self, { name = "own" })
      self.a = K.Sequential({ L.Dense(3, { input_shape = { 2 } }) },
        { name = "a" })
      self.b = L.Dense(2, { name = "b" })
    end
    function Own:call(x) return self.b(self.a(x)) end
    local m = Own()
    assert.same({
      'Own "own"',
      " layer            output shape          parameters",
      " a                (B, 3)                         9",
      " b                ?                      not built",
      " total 9 (36 bytes), trainable 9",
    }, lines_of(m))
    m(tf.ones { 1, 2 })
    assert.equal(" total 17 (68 bytes), trainable 17", lines_of(m)[5])
  end)
end)

describe("weights in a file", function()
  leaks(before_each, after_each)

  local function make()
    return K.Sequential { L.Conv2D(2, 2, { name = "c" }),
      L.BatchNormalization { name = "b" }, L.Flatten { name = "f" },
      L.Dense(2, { name = "d" }) }
  end

  it("come back, also before the model is built", function()
    local folder = os.tmpname()
    os.remove(folder)
    local path = folder .. "/w"
    local x = tf.random.normal({ 2, 4, 4, 1 }, { seed = 1 })
    local m = make()
    m(x, { training = true })
    local want = m(x):totable()
    m:save_weights(path)
    local built, waiting = make(), make()
    built(x)
    assert(built:load_weights(path))
    near(want, built(x):totable())
    assert(waiting:load_weights(tf.train.latest_checkpoint(folder)))
    near(want, waiting(x):totable())
    m:save_weights(path .. ".h5")
    assert.equal(path, tf.train.latest_checkpoint(folder))
    for _, name in ipairs { "/w.safetensors", "/w.h5.safetensors",
      "/checkpoint" } do
      os.remove(folder .. name)
    end
    os.remove(folder)
    local e = fails("TypeError", "missing argument filepath", m.load_weights, m,
      tf.train.latest_checkpoint(folder))
    assert.matches("latest_checkpoint", e.hint, 1, true)
    fails("NotFound", path, m.load_weights, m, path)
    fails("NotImplementedError", "by_name", m.load_weights, m, path,
      { by_name = true })
  end)
end)

describe("a model's properties", function()
  local function set(m, name, value)
    m[name] = value
  end

  it("that follow from its layers cannot be assigned", function()
    local m = K.Sequential { ones(2, { input_shape = { 3 } }) }
    fails("ValueError", "layers of", set, m, "layers", {})
    for _, name in ipairs { "weights", "variables", "trainable_weights",
      "trainable_variables", "non_trainable_weights",
      "non_trainable_variables" } do
      fails("ValueError", name .. " of", set, m, name, {})
      fails("ValueError", name .. " of", set, m.layers[1], name, {})
    end
    assert.equal(2, #m.weights)
    assert.equal(1, #m.layers)
  end)

  it("have the optimizer that trains it", function()
    local m = K.Sequential { ones(1, { input_shape = { 1 } }) }
    fails("RuntimeError", "compile", set, m, "optimizer", "sgd")
    m:compile { optimizer = K.optimizers.SGD(0), loss = "mse" }
    local x, y = tf.constant { { 1 } }, tf.constant { { 3 } }
    m:train_on_batch(x, y)
    near({ { 1 } }, m.layers[1].kernel:totable())
    m.optimizer = K.optimizers.SGD(0.25)
    m:train_on_batch(x, y) -- the gradient is 2 (1 - 3)
    near({ { 2 } }, m.layers[1].kernel:totable())
    assert.equal(0.25, m.optimizer.learning_rate)
    fails("ValueError", "adm", set, m, "optimizer", "adm")
    assert.equal(0.25, m.optimizer.learning_rate)
  end)
end)

describe("a model of one's own class", function()
  leaks(before_each, after_each)

  local function two()
    local Two = K.Model:extend "Two"
    function Two:init(units)
      K.Model.init(self, { name = "two" })
      self.first = ones(units)
      self.drop = L.Dropout(0.5)
      self.blocks = { ones(2), ones(1) }
    end
    function Two:call(x, options)
      x = self.drop(self.first(x))
      if options.double then x = x * 2 end
      for _, block in ipairs(self.blocks) do x = block(x) end
      return x
    end
    return Two
  end

  it("has its layers in order, and is built by a call", function()
    local m = two()(3)
    assert.equal("two", m.name)
    assert.is_false(m.built)
    near({ { 24 } }, m(tf.ones { 1, 4 }):totable())
    near({ { 48 } }, m(tf.ones { 1, 4 }, { double = true }):totable())
    assert.is_true(m.built)
    assert.equal(4, #m.layers)
    assert.equal(6, #m.trainable_variables)
    assert.equal('Two "two" (26 parameters)', tostring(m))
    assert.equal(" total 26 (104 bytes), trainable 26",
      lines_of(m)[#lines_of(m)])
    local b = two()(3)
    b:build { -1, 4 }
    assert.equal(6, #b.weights)
    local Pair = K.Model:extend "Pair"
    function Pair:init() self.d = ones(1) end
    function Pair:call(x) return self.d(x.a) + self.d(x.b) end
    local p = Pair()
    p:build { a = { -1, 2 }, b = { -1, 2 } }
    near({ { 4 } }, p { a = tf.ones { 1, 2 }, b = tf.ones { 1, 2 } }:totable())
    fails("NotImplementedError", "get_config", m.get_config, m)
    local Empty = K.Model:extend "Empty"
    fails("NotImplementedError", "defines no call", Empty(), tf.ones { 1 })
  end)

  it("is built once, by hand or by its first call", function()
    for _, ends_in_base in ipairs { false, true } do
      local Own = K.Model:extend "Own"
      function Own:build(shape)
        self.k = self:add_weight { name = "k", shape = { shape[2], 2 } }
        if ends_in_base then
          K.Model.build(self, shape)
        end
      end
      function Own:call(x)
        return tf.matmul(x, self.k)
      end
      local by_hand, by_call = Own(), Own()
      by_hand:build { 1, 3 }
      assert.is_true(by_hand.built)
      by_hand:set_weights { tf.ones { 3, 2 } }
      near({ { 3, 3 } }, by_hand(tf.ones { 1, 3 }):totable())
      by_call(tf.ones { 1, 3 })
      assert.equal(1, #by_hand.weights)
      assert.equal(1, #by_call.weights)
    end
  end)

  it("may hold its layers in a field of any name", function()
    local Stack = K.Model:extend "Stack"
    function Stack:init()
      self.layers = { ones(2), ones(1) }
    end
    function Stack:call(x)
      return self.layers[2](self.layers[1](x))
    end
    near({ { 6 } }, Stack()(tf.ones { 1, 3 }):totable())
  end)

  it("works as a layer", function()
    local m = K.Sequential { two()(3), ones(1) }
    near({ { 24 } }, m(tf.ones { 1, 4 }):totable())
    local x = K.Input { 4 }
    local f = K.Model(x, two()(3)(x))
    near({ { 24 } }, f(tf.ones { 1, 4 }):totable())
  end)

  it("is restored by its class from a configuration", function()
    local Scale = L.Layer:extend "Scale"
    function Scale:init(options)
      L.Layer.init(self, { name = options.name })
      self.by = options.by
    end
    function Scale:call(x) return x * self.by end
    function Scale:get_config()
      return { name = self.name, by = self.by }
    end
    local m = K.Sequential { Scale { by = 3 } }
    local config = m:get_config()
    fails("ValueError", 'unknown layer class "Scale"',
      K.Sequential.from_config, K.Sequential, config)
    local again = K.Sequential:from_config(config, { Scale = Scale })
    near({ { 3 } }, again(tf.ones { 1, 1 }):totable())
    K.utils.register_keras_serializable(Scale)
    near({ { 3 } }, K.Sequential:from_config(config)(tf.ones { 1, 1 })
      :totable())
    K.layers.custom.Scale = nil
  end)

  it("wants from_config called with a colon, with a config", function()
    local config = L.Dense(3):get_config()
    assert.equal(3, L.Dense:from_config(config).units)
    for name, class in pairs { Layer = L.Dense, Sequential = K.Sequential,
      Model = K.Model } do
      local e = fails("TypeError", name .. ".from_config: the first argument "
        .. "must be the class itself, got a table", class.from_config, config)
      assert.equal("call class:from_config(config) with a colon", e.hint)
      fails("TypeError", "config must be a table, got nil", class.from_config,
        class)
    end
  end)
end)

describe("what a model of a graph is given", function()
  local function model(shape, layer)
    local x = K.Input(shape, { name = "x" })
    return K.Model(x, layer(x), { name = "net" })
  end

  it("has the sizes of its inputs, but for the batch and open ones", function()
    local pooled = model({ 4, 3 }, L.GlobalAveragePooling1D())
    for _, shape in ipairs { { 5, 7, 3 }, { 5, 4, 2 }, { 5, 4 },
      { 5, 4, 3, 2 } } do
      local want = ('net: input "x" has shape (%s); expected (B, 4, 3)'):format(
        table.concat(shape, ", "))
      fails("InvalidArgument", want, pooled, tf.ones(shape))
      fails("InvalidArgument", want, pooled.predict, pooled, tf.ones(shape),
        { verbose = 0 })
    end
    fails("InvalidArgument", 'net: input "x" has shape (B, 7, 3)', pooled,
      K.Input { 7, 3 })
    assert.same({ 9, 3 }, pooled(tf.ones { 9, 4, 3 }).shape)
    assert.same({ 2, 3 }, model({ -1, 3 }, L.GlobalAveragePooling1D())(
      tf.ones { 2, 7, 3 }).shape)
  end)

  it("is not taken for another input of the model", function()
    local a, b = K.Input({ 3 }, { name = "a" }), K.Input({ 2 }, { name = "b" })
    local both = K.Model({ a, b }, L.Concatenate() { a, b }, { name = "both" })
    fails("InvalidArgument", 'both: input "a" has shape (5, 2); expected (B, 3)',
      both, { tf.ones { 5, 2 }, tf.ones { 5, 3 } })
  end)

  it("may lack a last axis of size 1, or have one more", function()
    local double = L.Dense(1, { kernel_initializer = K.initializers.Constant(2) })
    local graph = model({ 1 }, double)
    local list = K.Sequential { K.Input { 1 }, double }
    for _, m in ipairs { graph, list } do
      near({ { 2 }, { 4 } }, m(tf.constant { 1, 2 }))
      near({ { 2 }, { 4 } }, m(tf.constant { { { 1 } }, { { 2 } } }))
      m:compile { optimizer = K.optimizers.SGD(0.1), loss = "mse" }
      near({ 0, 0 }, m:fit({ 1, 2, 3 }, { 2, 4, 6 }, { epochs = 2,
        batch_size = 2, verbose = 0 }).history.loss)
      near({ { 6 } }, m:predict({ 3 }, { verbose = 0 }))
    end
    assert.same({ -1, 1 }, graph(K.Input { 1, 1 }).shape)
  end)
end)
