-- Functions of the user's that return nothing, or something else than asked
-- for: one error that says which.
local R = require "spec.support.replicas"
local tf = require "tfdist"

local K, L = tf.keras, tf.keras.layers
local fails = R.fails

local WRONG = {
  { function() end, "nothing" }, { function() return "x" end, "the string \"x\"" },
  { function() return true end, "true" }, { function() return {} end, "a table" },
}

local function compiled(layer, metrics)
  local m = K.Sequential { layer or L.Dense(1, { input_shape = { 2 } }) }
  m:compile { optimizer = "sgd", loss = "mse", metrics = metrics }
  return m
end

local function fit(m)
  return m:fit(tf.ones { 4, 2 }, tf.ones { 4, 1 }, { verbose = 0 })
end

describe("functions that do not return what they should", function()
  it("are named: activations", function()
    for _, entry in ipairs(WRONG) do
      fails("TypeError", "an activation function must return a tensor, got "
        .. entry[2], L.Dense(1, { activation = entry[1] }), tf.ones { 1, 2 })
    end
    local same = L.Activation(function(x) return x end)
    assert.same({ 1, 1 }, same(tf.ones { 2 }):totable())
  end)

  it("are named: regularizers", function()
    for _, entry in ipairs(WRONG) do
      fails("TypeError", "a regularizer must return a tensor, got "
        .. entry[2], fit, compiled(L.Dense(1, { input_shape = { 2 },
        kernel_regularizer = entry[1] })))
    end
  end)

  it("are named: initializers, other shapes too", function()
    for _, entry in ipairs(WRONG) do
      fails("TypeError", "an initializer must return a tensor, got "
        .. entry[2], L.Dense(1, { kernel_initializer = entry[1] }),
        tf.ones { 1, 2 })
    end
    local numbers = L.Dense(1, { kernel_initializer = function()
      return { { 2 }, { 3 } }
    end })
    assert.same({ { 5 } }, numbers(tf.ones { 1, 2 }):totable())
    fails("ValueError", "initializer of kernel returned shape {2}, asked "
      .. "for was {2, 1}", L.Dense(1, { kernel_initializer = function()
      return { 2, 3 }
    end }), tf.ones { 1, 2 })
    fails("ValueError", "initializer of kernel returned shape {4, 3}, asked "
      .. "for was {4, 1}", L.Dense(1, { use_bias = false,
      kernel_initializer = function() return tf.ones { 4, 3 } end }),
      tf.ones { 1, 4 })
  end)

  it("are named: learning rate schedules", function()
    for _, entry in ipairs(WRONG) do
      local Rate = K.optimizers.schedules.LearningRateSchedule:subclass "Rate"
      Rate.call = entry[1]
      local v = tf.Variable(1)
      fails("TypeError", "a schedule must return a number, got " .. entry[2],
        function()
          K.optimizers.SGD(Rate()):apply_gradients({ tf.ones {} }, { v })
        end)
      assert.equal(1, v:item())
    end
  end)

  it("are named: steps and results of metrics", function()
    for i = 1, 3 do
      local entry = WRONG[i]
      local Model = K.Model:subclass "Model"
      function Model:init() self.dense = L.Dense(1) end
      function Model:call(x) return self.dense(x) end
      Model.train_step = entry[1]
      local m = Model()
      m:compile { optimizer = "sgd", loss = "mse" }
      fails("TypeError", "train_step must return a table of results by name, "
        .. "got " .. entry[2], fit, m)
    end
    local Metric = K.metrics.Metric:subclass "Metric"
    function Metric:update_state() end
    function Metric:result() end
    fails("TypeError", "metric \"own\": result must return a tensor or a "
      .. "number, got nothing", fit, compiled(nil, { Metric { name = "own" } }))
  end)

  it("are named: calls of models", function()
    for _, entry in ipairs(WRONG) do
      local Model = K.Model:subclass "Model"
      Model.call = entry[1]
      local m = Model()
      m:compile { loss = "mse" }
      if entry[2] ~= "a table" then
        fails("TypeError", "call must return tensors, got " .. entry[2],
          m.evaluate, m, tf.ones { 2, 1 }, tf.ones { 2 }, { verbose = 0 })
      end
    end
  end)
end)

describe("CSVLogger", function()
  it("says when the disk is full", function()
    fails("ResourceExhausted", "CSVLogger: cannot write /dev/full: No space "
      .. "left", function()
        compiled():fit(tf.ones { 4, 2 }, tf.ones { 4, 1 }, { verbose = 0,
          callbacks = { K.callbacks.CSVLogger "/dev/full" } })
      end)
  end)
end)

describe("Sequential", function()
  it("refuses itself as a layer", function()
    local m = K.Sequential()
    fails("ValueError", "cannot be in itself", m.add, m, m)
    local inner = K.Sequential {}
    m:add(inner)
    fails("ValueError", "cannot be in itself", inner.add, inner, m)
  end)
end)
