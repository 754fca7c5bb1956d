-- Values that wait in a restore until their variables are made, by replicas.
local R = require "spec.support.replicas"
local files = require "spec.support.files"
local tf = require "tfdist"
local at = require("spec.support.on_device").at

local L = tf.keras.layers

local Lazy = tf.Module:subclass "Lazy"
function Lazy:init(options)
  self.options = options
end
function Lazy:__call(x)
  if rawget(self, "w") == nil then
    self.w = tf.Variable({ 1, 2 }, self.options)
  end
  return self.w * x
end

local function copies(v)
  local list = {}
  for i = 1, #v.values do
    list[i] = v.values[i]:totable()
  end
  return list
end

describe("a restore that is settled inside a replica", function()
  local dir
  R.leaks(before_each, after_each)
  before_each(function()
    dir = files.place()
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  local function save(value)
    return tf.train.Checkpoint { net = { w = tf.Variable(value) } }
      :write(dir .. "/c")
  end

  for _, aggregation in ipairs { "NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA" } do
    R.each(it, pending, "gives all copies the value, aggregation "
      .. aggregation, function(s, n)
        local net = Lazy { aggregation = aggregation }
        local status = tf.train.Checkpoint { net = net }:read(save { 7, 8 })
        local y = s:run(function()
          return net(tf.constant(1))
        end)
        local want = {}
        for i = 1, n do
          want[i] = { 7, 8 }
          assert.same({ 7, 8 }, y.values[i]:totable())
        end
        assert.same(want, copies(net.w))
        status:assert_consumed()
      end)

    local ON_READ = { NONE = { 6, 8 }, SUM = { 3, 4 }, MEAN = { 6, 8 },
      ONLY_FIRST_REPLICA = { 6, 8 } }
    -- A sum is kept in equal shares: C11.
    R.pair(it, pending, "gives all copies their part, ON_READ " .. aggregation,
      function(s)
        local net = Lazy { synchronization = "ON_READ",
          aggregation = aggregation }
        tf.train.Checkpoint { net = net }:restore(save { 6, 8 })
        s:run(function()
          net(tf.constant(1))
        end)
        local want = ON_READ[aggregation]
        assert.same({ want, want }, copies(net.w))
      end)
  end

  R.pair(it, pending, "gives a variable of CentralStorageStrategy the value",
    function()
      local s = tf.distribute.experimental.CentralStorageStrategy {
        compute_devices = { at(0), at(1) },
        parameter_device = at(0) }
      local net = Lazy {}
      tf.train.Checkpoint { net = net }:read(save { 7, 8 })
      s:run(function()
        net(tf.constant(1))
      end)
      assert.same({ 7, 8 }, net.w:read_value():totable())
    end)

  R.pair(it, pending, "reaches layers built there, and their slots",
    function(s)
      local function parts()
        return s:scope(function()
          return tf.train.Checkpoint { layer = L.Dense(1, { use_bias = false }),
            opt = tf.keras.optimizers.SGD { learning_rate = 1, momentum = 0.5 } }
        end)
      end
      local function step(c)
        s:run(function()
          local tape, loss = tf.GradientTape(function()
            return tf.reduce_sum(c.layer(tf.constant { { 1, 2 } }))
          end)
          c.opt:apply_gradients(tape:gradient(loss, c.layer.weights),
            c.layer.weights)
        end)
      end
      local a, b = parts(), parts()
      step(a)
      local path = a:write(dir .. "/c")
      step(a)
      b:restore(path)
      step(b)
      assert.same(copies(a.layer.kernel), copies(b.layer.kernel))
      assert.same(copies(b.layer.kernel)[1], copies(b.layer.kernel)[2])
      local slot = b.opt:get_slot(b.layer.kernel, "momentum")
      -- Two replicas' gradients {1, 2}: 0.5 * -{2, 4} - {2, 4}.
      assert.same({ { { -3 }, { -6 } }, { { -3 }, { -6 } } }, copies(slot))
    end)

  -- Where a step of training in the replicas is traced.
  local TRACED = {
    ["not traced"] = function(s, step)
      return function() s:run(step) end
    end,
    ["traced in replicas"] = function(s, step)
      local traced = tf.function_(step)
      return function() s:run(traced) end
    end,
    ["traced around replicas"] = function(s, step)
      return tf.function_(function() s:run(step) end)
    end,
  }

  for how, around in pairs(TRACED) do
    R.each(it, pending, "reaches layers and slots that the first step makes, "
      .. how, function(s, n)
        local function parts()
          return s:scope(function()
            return tf.train.Checkpoint {
              model = tf.keras.Sequential { L.Dense(1, { use_bias = false,
                kernel_initializer = "ones" }) },
              opt = tf.keras.optimizers.SGD { learning_rate = 1,
                momentum = 0.5 },
            }
          end)
        end
        local function train(c)
          around(s, function()
            local tape, loss = tf.GradientTape(function()
              return tf.reduce_sum(c.model(tf.constant { { 1, 2 } }))
            end)
            c.opt:apply_gradients(tape:gradient(loss, c.model.weights),
              c.model.weights)
          end)()
        end
        local a, b = parts(), parts()
        train(a)
        local status = b:read(a:write(dir .. "/c"))
        train(b)
        status:assert_consumed()
        -- Gradients g = n {1, 2}: 1 - g, and from there - (0.5 g + g).
        for _, each in ipairs(copies(b.model.weights[1])) do
          assert.same({ { 1 - 2.5 * n }, { 1 - 5 * n } }, each)
        end
      end, 1)
  end

  -- A state that doubles at every step, from 0.5 in the file.
  for _, build in ipairs { "at its call", "by hand" } do
    R.each(it, pending, "reaches the states of a recurrent layer built "
      .. build, function(s)
        local function layer()
          return s:scope(function()
            return L.SimpleRNN(1, { stateful = true, activation = "linear",
              use_bias = false })
          end)
        end
        local a, b = layer(), layer()
        s:scope(function() a:build { 1, 3, 1 } end)
        a:set_weights { { { 0 } }, { { 2 } } }
        a:reset_states { tf.constant { { 0.5 } } }
        local status = tf.train.Checkpoint { rnn = b }:read(
          tf.train.Checkpoint { rnn = a }:write(dir .. "/c"))
        if build == "by hand" then
          s:scope(function() b:build { 1, 3, 1 } end)
          status:assert_consumed()
        end
        local y = s:run(b, { tf.zeros { 1, 3, 1 } })
        status:assert_consumed()
        for _, each in ipairs(s:experimental_local_results(y)) do
          assert.same({ { 4 } }, each:totable())
        end
      end, 1)
  end

  R.each(it, pending, "reaches weights that no field of a layer holds",
    function(s)
      local Plain = L.Layer:extend "Plain"
      function Plain:build()
        self:add_weight { name = "a", shape = { 2 }, initializer = "zeros" }
      end
      function Plain:call(x)
        return x + self.weights[1]
      end
      local function layer()
        return s:scope(function() return Plain() end)
      end
      local a, b = layer(), layer()
      s:run(a, { tf.zeros { 1, 2 } })
      a:set_weights { { 5, 6 } }
      tf.train.Checkpoint { l = b }:read(
        tf.train.Checkpoint { l = a }:write(dir .. "/c"))
      local y = s:run(b, { tf.zeros { 1, 2 } })
      for _, each in ipairs(s:experimental_local_results(y)) do
        assert.same({ { 5, 6 } }, each:totable())
      end
    end, 1)

  local function model(s)
    return s:scope(function()
      local m = tf.keras.Sequential { L.Dense(3), L.Dense(1) }
      m:compile { optimizer = tf.keras.optimizers.SGD(0.125), loss = "mse" }
      return m
    end)
  end

  local function pairs_of(v)
    local list = {}
    for i, each in ipairs(v) do
      list[i] = copies(each)
      assert.same(list[i][1], list[i][2])
    end
    return list
  end

  R.pair(it, pending, "load_weights, then fit or predict of an unbuilt model",
    function(s)
      local x = tf.constant { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } }
      local y = tf.zeros { 4, 1 }
      local a = model(s)
      a:fit(x, y, { verbose = 0, shuffle = false })
      a:save_weights(dir .. "/w")
      local want = a:predict(x, { verbose = 0 }):totable()
      local c = model(s)
      c:load_weights(dir .. "/w")
      assert.same(want, c:predict(x, { verbose = 0 }):totable())
      local b = model(s)
      b:load_weights(dir .. "/w")
      for _, m in ipairs { a, b } do
        m:fit(x, y, { verbose = 0, shuffle = false, epochs = 2 })
      end
      assert.same(pairs_of(a.variables), pairs_of(b.variables))
    end)

  R.pair(it, pending, "fit refuses to train copies that differ", function(s)
    local m = model(s)
    local x, y = tf.ones { 4, 2 }, tf.zeros { 4, 1 }
    m:fit(x, y, { verbose = 0 })
    local kernel = m.variables[1]
    s:run(function()
      kernel:assign_add(tf.fill({ 2, 3 }, tf.cast(R.id(), "float32")))
    end)
    R.fails("FailedPrecondition", "dense", m.fit, m, x, y, { verbose = 0 })
    kernel:assign(kernel.values[1]:read_value())
    m:fit(x, y, { verbose = 0 })
  end)

  R.pair(it, pending, "fit lets alone what a replica may have for itself",
    function(s)
      local m = model(s)
      local x, y = tf.ones { 4, 2 }, tf.zeros { 4, 1 }
      m.seen = s:scope(function()
        return tf.Variable(0, { trainable = false })
      end)
      s:run(function()
        m.seen:assign(tf.cast(R.id(), "float32"))
      end)
      m:fit(x, y, { verbose = 0 })
      assert.same({ 0, 1 }, copies(m.seen))
    end)
end)

describe("a restore that waits for a metric's variables", function()
  it("is over when the metric is reset, and begins anew with the next", function()
    local dir = files.place()
    local function metric() return tf.keras.metrics.MeanTensor() end
    local old = metric()
    old:update_state { 1, 2 }
    local path = tf.train.Checkpoint { m = old }:write(dir .. "/c")
    local new = metric()
    local checkpoint = tf.train.Checkpoint { m = new }
    checkpoint:read(path)
    new:reset_state()
    new:update_state { 5, 7 }
    assert.same({ 5, 7 }, new:result():totable())
    new = metric()
    checkpoint = tf.train.Checkpoint { m = new }
    new:reset_state()
    checkpoint:read(path)
    new:update_state { 5, 7 }
    assert.same({ 3, 4.5 }, new:result():totable())
    os.execute("rm -rf " .. dir)
  end)
end)
