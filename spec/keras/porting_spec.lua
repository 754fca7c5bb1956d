-- What programs for TensorFlow bring along: mixed strategies, replicas without
-- data, calls with `training`, layers that learn shapes from data, classes of
-- their own.
local R = require "spec.support.replicas"
local tf = require "tfdist"
local at = require("spec.support.on_device").at

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
  local one = tf.distribute.OneDeviceStrategy(at(0))

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
    assert.equal(7.5, (compiled():evaluate(data, { verbose = 0 })))
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
      local found = { m:evaluate(data, { verbose = 0 }) }
      for i, value in ipairs { own:evaluate(data, { verbose = 0 }) } do
        assert.near(value, found[i], 1e-5)
      end
    end
  end)
end)

describe("call(x, training)", function()
  local one = tf.constant { { 1 } }

  local function class(call)
    local C = tf.keras.Model:extend "Own"
    C.call = call
    return C
  end

  it("gets a boolean in fit, evaluate, predict and calls", function()
    local seen = {}
    local C = class(function(self, x, training)
      seen[#seen + 1] = training
      self.dense = self.dense or L.Dense(1, { kernel_initializer = "ones" })
      return self.dense(training and x * 3 or x)
    end)
    local m = C()
    assert.equal(1, m(one):item())
    assert.equal(3, m(one, true):item())
    assert.equal(3, m(one, { training = true }):item())
    assert.same({ false, true, true }, seen)
    m:compile("sgd", "mse")
    seen = {}
    m:fit(one, one, { verbose = 0 })
    m:evaluate(one, one, { verbose = 0 })
    m:predict(one, { verbose = 0 })
    assert.same({ true, false, false }, seen)
  end)

  it("passes on to layers inside", function()
    local Inner = L.Layer:extend "Inner"
    function Inner:call(x, mask, training)
      return mask == nil and training and x * 5 or x
    end
    local inner = Inner()
    local C = class(function(_, x)
      return inner(x)
    end)
    assert.equal(5, C()(one, { training = true }):item())
    assert.equal(1, C()(one):item())
    local input = tf.keras.Input { 1 }
    local graph = tf.keras.Model(input, inner(input))
    assert.equal(5, graph(one, { training = true }):item())
  end)

  it("gets a table under any other name", function()
    local C = class(function(_, x, options)
      return options.training and x * 2 or x
    end)
    assert.equal(2, C()(one, { training = true }):item())
    fails("TypeError", "one argument more", C(), one, true)
    local D = class(function(_, x, training, options)
      assert.equal(training, options.training)
      return x
    end)
    assert.equal(1, D()(one):item())
  end)

  it("gets tensors by position", function()
    local C = class(function(_, x, y, training)
      return training and x + y or x - y
    end)
    assert.equal(-1, C()(one, one * 2):item())
    assert.equal(3, C()(one, one * 2, { training = true }):item())
  end)
end)

describe("Sequential from an Embedding of open length", function()
  local ids = tf.constant({ { 1, 2 }, { 3, 4 }, { 0, 1 } }, "int32")

  local function network()
    return tf.keras.Sequential { L.Embedding(5, 2), L.Flatten(), L.Dense(1) }
  end

  it("is built by its first data", function()
    local m = network()
    assert.is_false(m.built)
    assert.same({ 3, 1 }, m(ids).shape)
    assert.same({ 4, 1 }, m.layers[3].kernel.shape)
    m = network()
    m:compile("sgd", "mse")
    m:fit(ids, tf.ones { 3, 1 }, { verbose = 0 })
    assert.same({ 4, 1 }, m.layers[3].kernel.shape)
    fails("InvalidArgument", "shape {1, 6}", m, tf.zeros({ 1, 3 }, "int32"))
    m = network()
    m:build { -1, 2 }
    assert.same({ -1, 1 }, m.output_shape)
  end)

  it("comes from its configuration", function()
    local m = tf.keras.Sequential:from_config(network():get_config())
    assert.same({ 3, 1 }, m(ids).shape)
  end)

  it("is built at once where nothing asks for the length", function()
    assert.is_true(tf.keras.Sequential { L.Embedding(5, 2),
      L.GlobalAveragePooling1D(), L.Dense(1) }.built)
  end)
end)

describe("class numbers for categorical_crossentropy", function()
  it("are an error that names the sparse one", function()
    local ids, rows = tf.constant({ 0, 1, 2 }, "int32"), tf.fill({ 3, 3 }, 0.5)
    for _, loss in ipairs { tf.keras.losses.CategoricalCrossentropy(),
      tf.keras.losses.categorical_crossentropy,
      tf.keras.losses.CategoricalFocalCrossentropy() } do
      local e = fails("InvalidArgument", "y_true has shape {3}", loss, ids,
        rows)
      assert.matches("sparse_categorical_crossentropy", e.hint, 1, true)
    end
  end)

  it("broadcast in losses that are means of distances", function()
    assert.equal(1, tf.keras.losses.MeanSquaredError()(tf.ones { 3 },
      tf.zeros { 3, 3 }):item())
    assert.equal(0, tf.keras.losses.MeanSquaredError()(tf.range(3),
      tf.reshape(tf.range(3), { 3, 1 })):item())
  end)
end)

describe("classes of one's own", function()
  local K = tf.keras
  local errors = require "tfdist.base.errors"

  it("derive by extend and by subclass everywhere", function()
    for _, base in ipairs { tf.Module, K.layers.Layer, K.layers.Dense, K.Model,
      K.losses.Loss, K.losses.Huber, K.metrics.Metric, K.metrics.Mean,
      K.callbacks.Callback, K.callbacks.EarlyStopping,
      K.initializers.Initializer, K.regularizers.Regularizer,
      K.constraints.Constraint, K.optimizers.schedules.LearningRateSchedule,
      tf.distribute.CrossDeviceOps,
      tf.distribute.cluster_resolver.ClusterResolver } do
      for _, name in ipairs { "extend", "subclass" } do
        local class = base[name](base, "Mine")
        assert.equal("class Mine", tostring(class))
        assert.equal(base, class.super)
        fails("TypeError", "needs a name", base[name], base)
      end
    end
  end)

  it("say where there is nothing to derive from", function()
    fails("NotImplementedError", "Optimizer", K.optimizers.Optimizer.extend,
      K.optimizers.Optimizer, "Mine")
    for _, fn in ipairs { K.optimizers.SGD, K.initializers.Zeros,
      K.optimizers.schedules.CosineDecay } do
      local _, e = pcall(function()
        local place = {}
        place.Zeros, place.SGD, place.CosineDecay = fn, fn, fn
        return place.SGD:extend "Mine"
      end)
      e = errors.wrap(e)
      assert.equal("TypeError", e.kind)
      assert.matches("cannot be derived from", e.hint, 1, true)
    end
    fails("NotImplementedError", "defines call", K.constraints.Constraint(), 1)
  end)

  R.pair(it, pending, "work in fit", function(strategy)
    local Fill = K.initializers.Initializer:extend "Fill"
    function Fill:init(value) self.value = value or 5 end
    function Fill:call(shape) return tf.fill(shape, self.value) end
    function Fill:get_config() return { value = self.value } end
    local Sum = K.regularizers.Regularizer:extend "Sum"
    function Sum:call(w) return tf.reduce_sum(w) end -- luacheck: no self
    local Most = K.constraints.Constraint:subclass "Most"
    function Most:call(w) return tf.minimum(w, 4) end -- luacheck: no self
    local Half = K.optimizers.schedules.LearningRateSchedule:extend "Half"
    function Half:call(step) -- luacheck: no self
      return tf.constant(0.5) / (step + 1)
    end
    local seen = {}
    local Watch = K.callbacks.Callback:extend "Watch"
    function Watch:on_epoch_end(epoch, logs)
      seen[#seen + 1] = { epoch, logs.loss, self.model ~= nil }
    end
    local Own = K.losses.Loss:extend "Own"
    function Own:call(y, p) -- luacheck: no self
      return tf.reduce_sum(tf.abs(y - p), -1)
    end
    local Count = K.metrics.Metric:extend "Count"
    function Count:init()
      K.metrics.Metric.init(self, "count")
      self.n = self:add_weight { name = "n" }
    end
    function Count:update_state(y) self.n:assign_add(y.shape[1]) end
    function Count:result() return self.n:read_value() end
    local function make()
      local m = K.Sequential { L.Dense(1, { input_shape = { 2 },
        use_bias = false, kernel_initializer = Fill, kernel_regularizer = Sum(),
        kernel_constraint = Most() }) }
      m:compile { optimizer = K.optimizers.SGD { learning_rate = Half() },
        loss = Own(), metrics = { Count() } }
      return m
    end
    local m = strategy:scope(make)
    assert.equal(10, m.losses[1]:item())
    local h = m:fit(tf.ones { 4, 2 }, tf.zeros { 4, 1 }, { verbose = 0,
      callbacks = { Watch() } }).history
    -- |0 - 10| and a penalty of 10; kernel 5 - 0.5 (1 + 1) = 4.
    assert.same({ { 0, 20, true } }, seen)
    assert.equal(4, h.count[1])
    assert.same({ { 4 }, { 4 } }, m.layers[1].kernel:read_value():totable())
    assert.same({ class_name = "Fill", config = { value = 5 } },
      m.layers[1]:get_config().kernel_initializer)
  end)
end)

describe("slips", function()
  local notice = require "tfdist.base.notice"

  -- What fn warns of.
  local function captured(fn)
    local heard, warn = {}, notice.warn
    notice.warn = function(message)
      heard[#heard + 1] = message
    end
    local ok, e = pcall(fn)
    notice.warn = warn
    assert.is_true(ok, tostring(e))
    return table.concat(heard)
  end

  it("of == in a filter are told when nothing passed", function()
    local none = captured(function()
      for _ in tf.data.Dataset.range(3):filter(function(x)
        return x == 1
      end):iter() do
        error "nothing is identical"
      end
    end)
    assert.matches("== is identity", none, 1, true)
    local some = captured(function()
      local n = 0
      for _ in tf.data.Dataset.range(3):filter(function(x)
        return x:item() > 1
      end):iter() do
        n = n + 1
      end
      assert.equal(1, n)
      for _ in tf.data.Dataset.range(3):filter(function(x)
        return x:equal(7)
      end):iter() do
        error "none is equal"
      end
    end)
    assert.equal("", some)
  end)

  it("of reduce's order name the right one", function()
    local s = tf.distribute.get_strategy()
    local e = fails("TypeError", "operation comes first", s.reduce, s,
      tf.constant(1), "SUM")
    assert.equal('strategy:reduce("SUM", value)', e.hint)
    e = fails("TypeError", "missing argument value", s.reduce, s,
      tf.constant(1))
    assert.equal("the operation comes first: reduce(reduce_op, value, axis)",
      e.hint)
    e = fails("TypeError", "missing argument value", s.reduce, s, "sum")
    assert.matches("returns nothing", e.hint)
  end)

  it("in compile leave the model as it was", function()
    local m = compiled()
    fails("ValueError", "adm", m.compile, m, { optimizer = "adm" })
    assert.is_true(m.compiled)
    assert.equal(2, #m:fit(tf.ones { 2, 1 }, tf.ones { 2, 1 }, { verbose = 0,
      epochs = 2 }).history.loss)
  end)
end)

describe("BatchNormalization { synchronized = true }", function()
  R.pair(it, pending, "has the moments of all replicas", function(strategy)
    local layer = strategy:scope(function()
      local made = L.BatchNormalization { synchronized = true, epsilon = 0,
        momentum = 0 }
      made:build { -1, 1 }
      return made
    end)
    local data = strategy:experimental_distribute_dataset(
      tf.data.Dataset.from_tensor_slices(tf.constant { { 0 }, { 2 }, { 4 },
        { 6 } }):batch(4))
    for x in data:iter() do
      local y = strategy:run(function(own)
        return layer(own, { training = true })
      end, { x })
      -- Mean 3, variance 5.
      assert.near(-3 / math.sqrt(5), y.values[1]:totable()[1][1], 1e-5)
      assert.near(3 / math.sqrt(5), y.values[2]:totable()[2][1], 1e-5)
    end
    assert.near(3, layer.moving_mean:read_value():totable()[1], 1e-5)
    assert.is_true(layer:get_config().synchronized)
  end)

  R.pair(it, pending, "has them where they are small beside the mean",
    function(strategy)
      for _, mask in ipairs { false, { true, true, false } } do
        local layer = strategy:scope(function()
          return L.BatchNormalization { synchronized = true, momentum = 0,
            epsilon = 0 }
        end)
        -- 4096 -+ 1/64 -+ 1/128, without rounding; float32 has 4096^2 to 2.
        local y = strategy:run(function()
          local middle = 4096 + (2 * R.id() - 1) / 64
          local x = { { middle - 1 / 128 }, { middle + 1 / 128 } }
          x[3] = mask and { 1e6 } or nil
          return layer(tf.constant(x), { training = true,
            mask = mask and tf.constant(mask, "bool") or nil })
        end)
        local variance = 1 / 64 ^ 2 + 1 / 128 ^ 2
        assert.near(4096, layer.moving_mean:read_value():totable()[1], 1e-3)
        assert.near(variance, layer.moving_variance:read_value():totable()[1],
          1e-6)
        -- 4096 / deviation has 18 of 24 bits before the point
        assert.near(-(1 / 64 + 1 / 128) / math.sqrt(variance),
          y.values[1]:totable()[1][1], 0.05)
      end
    end)

  it("has a momentum from 0 to 1", function()
    for _, class in ipairs { "BatchNormalization", "SyncBatchNormalization" } do
      for value, got in pairs { [2] = "2", [-0.5] = "-0.5" } do
        fails("ValueError", class .. ": momentum must be a number from 0 to 1, "
          .. "got the number " .. got, L[class], { momentum = value })
      end
      fails("ValueError", class .. ": epsilon must be a number of 0 or more, got "
        .. "the number -1", L[class], { epsilon = -1 })
      L[class] { momentum = 1, epsilon = 0 }
    end
  end)
end)

describe("an index without a row", function()
  local ids = tf.constant({ { 1, 2 }, { 3, 9 } }, "int32")

  it("is blamed on the Embedding, queued or not", function()
    local m = tf.keras.Sequential { L.Embedding(5, 2, { input_length = 2,
      name = "words" }), L.Flatten(), L.Dense(1) }
    m:compile("sgd", "mse")
    local e = fails("InvalidArgument", "indices[1,1] = 9", m.fit, m, ids,
      tf.ones { 2, 1 }, { verbose = 0, shuffle = false })
    assert.matches('in layer "words"', tostring(e), 1, true)
  end)

  it("is blamed on class_weight", function()
    local m = tf.keras.Sequential { L.Dense(3, { input_shape = { 2 } }) }
    m:compile("sgd", "sparse_categorical_crossentropy")
    for _, method in ipairs { "fit", "train_on_batch" } do
      local e = fails("InvalidArgument", "= 2 is outside", m[method], m,
        tf.ones { 4, 2 }, tf.constant({ 0, 1, 2, 2 }, "int32"), {
          verbose = method == "fit" and 0 or nil,
          class_weight = { [0] = 1, [1] = 2 } })
      assert.matches("a label of none of the classes 0 to 1, which class_weight "
        .. "has weights for", tostring(e), 1, true)
    end
  end)
end)

describe("get_initial_state", function()
  it("gives zeros for each state of the cell", function()
    local list = L.LSTM(3):get_initial_state(tf.ones { 2, 4, 5 })
    assert.equal(2, #list)
    assert.same({ 2, 3 }, list[2].shape)
    assert.same({ 4, 3 }, L.GRU(3):get_initial_state(4)[1].shape)
    local x = tf.ones { 2, 4, 5 }
    local gru = L.GRU(3)
    assert.same(gru(x):totable(), gru(x, { initial_state =
      gru:get_initial_state(x) }):totable())
  end)
end)

describe("apply", function()
  it("is apply_gradients of two lists, with its checks", function()
    local a, b = tf.Variable(1.0), tf.Variable(2.0)
    local opt = tf.keras.optimizers.SGD { learning_rate = 0.5 }
    local one = tf.constant(1.0)
    assert.equal(1, opt:apply({ one, one * 2 }, { a, b }):item())
    assert.equal(0.5, a:item())
    assert.equal(1, b:item())
    opt:apply { grads = { one, n = 2 }, trainable_variables = { a, b } }
    assert.equal(0, a:item())
    assert.equal(1, b:item())
    for shown, given in pairs {
      ["1 gradients for 2 variables"] = { { one }, { a, b } },
      ["No gradients provided"] = { { n = 1 }, { a } },
    } do
      fails("ValueError", shown, opt.apply, opt, given[1], given[2])
    end
    fails("TypeError", "missing argument trainable_variables", opt.apply, opt,
      { { one, a } })
    fails("TypeError", "got the number 3", opt.apply, opt, 3, { a })
    assert.equal(2, opt.iterations:item())
  end)

  R.pair(it, pending, "sums over replicas", function(strategy)
    local opt, v
    strategy:scope(function()
      opt = tf.keras.optimizers.SGD { learning_rate = 1 }
      v = tf.Variable(0.0)
    end)
    fails("RuntimeError", "cross-replica", strategy.scope, strategy, function()
      opt:apply({ tf.constant(1.0) }, { v })
    end)
    strategy:run(function()
      opt:apply({ tf.constant(1.0) }, { v })
    end)
    assert.equal(-2, v:read_value():item())
  end)
end)
