-- Cells of recurrent layers: of the user's own, and on top of each other.
local leaks = require "spec.support.leaks"
local R = require "spec.support.replicas"
local tf = require "tfdist"
local expect = require "spec.support.expect"

local K = tf.keras
local L = K.layers
local fails = R.fails
local near = expect.near

-- A cell that adds up what it gets. `fields` are its state_size and others,
-- `methods` take the place of its own.
local function cell(fields, methods)
  local Sum = L.Layer:extend "Sum"
  function Sum:init()
    L.Layer.init(self)
    for key, value in pairs(fields) do
      self[key] = value
    end
  end
  function Sum:call(x, options)
    local s = options.states[1] + x
    return s, { s }
  end
  for name, fn in pairs(methods or {}) do
    Sum[name] = fn
  end
  return Sum()
end

-- {2, 3, 2}: 1, 2, 3 for the first example, ten times as much for the second.
local function sequences()
  local steps = tf.constant { { { 1 }, { 2 }, { 3 } },
    { { 10 }, { 20 }, { 30 } } }
  return steps * tf.ones { 2, 3, 2 }
end

local function tens(_, batch)
  return tf.fill({ batch, 2 }, 100)
end

describe("a cell of the user's", function()
  leaks(before_each, after_each)

  it("gives the first states where it has get_initial_state", function()
    for _, first in ipairs { tens, function(self, batch)
      return { tf.cast(tens(self, batch), "int32") }
    end } do
      local layer = L.RNN(cell({ state_size = 2 },
        { get_initial_state = first }))
      near({ { 106, 106 }, { 160, 160 } }, layer(sequences()))
      near({ { 100, 100 } }, layer:get_initial_state(1)[1])
    end
    local kept = L.RNN(cell({ state_size = 2 }, { get_initial_state = tens }),
      { stateful = true })
    kept(sequences())
    near({ { 112, 112 }, { 220, 220 } }, kept(sequences()))
    local two = L.RNN(cell({ state_size = { 2, 2 } }, {
      get_initial_state = function(_, batch)
        return { tf.zeros { batch, 2 }, tf.ones { batch, 2 } }
      end,
      call = function(_, x, options)
        return x, { options.states[1] + x, options.states[2] * 2 }
      end,
    }), { return_state = true })
    local _, sum, power = two(sequences())
    near({ { 6, 6 }, { 60, 60 } }, sum)
    near({ { 8, 8 }, { 8, 8 } }, power)
  end)

  it("says what get_initial_state must return", function()
    for got, value in pairs { nothing = false, ['the string "x"'] = { "x" } } do
      local layer = L.RNN(cell({ state_size = 2 }, {
        get_initial_state = function() return value or nil end }))
      fails("TypeError", "get_initial_state of cell sum", layer, sequences())
      fails("TypeError", "got " .. got, layer, sequences())
    end
  end)

  it("may write into the states that it is given, with masks, too", function()
    local mask = tf.constant { { true, false, true }, { false, true, false } }
    for _, keep in ipairs { false, true } do
      local list = {}
      local layer = L.RNN(cell({ state_size = 2 }, {
        call = function(_, x, options)
          local states = options.states
          states[1] = states[1] + x
          list[1] = states[1]
          return states[1], keep and list or states
        end }), { return_sequences = true })
      near({ { { 1, 1 }, { 1, 1 }, { 4, 4 } },
        { { 0, 0 }, { 20, 20 }, { 20, 20 } } }, layer(sequences(),
        { mask = mask }))
      list[1] = nil -- functions of classes live on
    end
  end)

  it("may have states of any rank under a mask", function()
    local mask = tf.constant { { true, false, true }, { false, true, false } }
    local layer = L.RNN(cell({ state_size = 2 }, {
      get_initial_state = function(_, batch)
        return tf.zeros { batch, 2, 2 }
      end,
      call = function(_, x, options)
        local s = options.states[1] + tf.expand_dims(x, 1)
        return s, s
      end }))
    near({ { { 4, 4 }, { 4, 4 } }, { { 20, 20 }, { 20, 20 } } },
      layer(sequences(), { mask = mask }))
  end)

  it("gets the list where its parameter is named states", function()
    local layer = L.RNN(cell({ state_size = 2 }, {
      call = function(_, x, states, training)
        local s = states[1] + x * (training and 2 or 1)
        return s, { s }
      end }))
    near({ { 6, 6 }, { 60, 60 } }, layer(sequences()))
    near({ { 12, 12 }, { 120, 120 } }, layer(sequences(), { training = true }))
  end)

  it("may return one state without a list, and keep a Dropout", function()
    local layer = L.RNN(cell({ state_size = 2, dropout = L.Dropout(0) }, {
      call = function(self, x, options)
        local s = options.states[1] + self.dropout(x)
        return s, s
      end }))
    near({ { 6, 6 }, { 60, 60 } }, layer(sequences(), { training = true }))
  end)

  it("must return as many states as it is given", function()
    for got, states in pairs { nothing = false, ["a list of 0"] = {},
      ["a list of 2"] = { 1, 2 } } do
      local layer = L.RNN(cell({ state_size = 2 }, {
        call = function(_, x) return x, states or nil end }))
      fails("ValueError", "call of cell sum", layer, sequences())
      fails("ValueError", "a list of 1, its new states, got " .. got, layer,
        sequences())
    end
    fails("TypeError", "must return its output", L.RNN(cell({ state_size = 2 },
      { call = function() end })), sequences())
  end)

  it("has one whole number or more for its state_size", function()
    local function refuses(kind, message, size)
      fails(kind, message, L.RNN, cell { state_size = size })
      fails(kind, message, L.StackedRNNCells, { L.LSTMCell(2),
        cell { state_size = size } })
    end
    refuses("ValueError", "one or more, got an empty list", {})
    refuses("ValueError", 'one or more, got the string "2"', "2")
    refuses("ValueError", "at least 0, got -2", -2)
    refuses("ValueError", "a whole number, got 2.5", { 1, 2.5 })
    refuses("TypeError", "a whole number, got a table", { { 2 }, 2 })
    refuses("TypeError", "has no state_size", nil)
    fails("TypeError", "output_size of cell sum", function()
      L.RNN(cell { state_size = 2, output_size = "a" })(K.Input { 6, 2 })
    end)
    fails("TypeError", "got the class LSTMCell", L.RNN, L.LSTMCell)
    fails("TypeError", "must be a layer that has call and state_size", L.RNN,
      { state_size = 2 })
  end)
end)

describe("cells on top of each other", function()
  leaks(before_each, after_each)

  it("begin with what each of them gives", function()
    local layer = L.RNN({ cell({ state_size = 2 },
      { get_initial_state = tens }), cell { state_size = 2 } },
      { return_state = true })
    local y, first, second = layer(sequences())
    near({ { 106, 106 }, { 160, 160 } }, first:totable())
    near({ { 310, 310 }, { 400, 400 } }, second:totable())
    near(second:totable(), y)
  end)

  it("drop for a whole sequence", function()
    -- The input's weight is 1: steps of equal inputs add equal amounts.
    local layer = L.RNN({ L.SimpleRNNCell(4, { activation = "linear",
      kernel_initializer = "ones", recurrent_initializer = "zeros",
      dropout = 0.5 }), cell { state_size = 4 } }, { return_sequences = true })
    tf.random.set_seed(3)
    local y = layer(tf.ones { 1, 8, 6 }, { training = true })
    for step = 2, 8 do
      near((y[0][0] * step):totable(), y[0][step - 1], 1e-4)
    end
  end)

  it("drop for a whole sequence within each other, too", function()
    local inner = L.SimpleRNNCell(1, { activation = "linear", use_bias = false,
      kernel_initializer = "ones", recurrent_initializer = "zeros",
      dropout = 0.5 })
    local layer = L.RNN(L.StackedRNNCells { L.StackedRNNCells { inner } },
      { return_sequences = true })
    local y = layer(tf.ones { 1, 6, 64 }, { training = true })
    for step = 1, 5 do
      near(y[0][0]:totable(), y[0][step], 1e-4)
    end
  end)

  it("name an initial_state of another length", function()
    for _, given in ipairs { cell({ state_size = { 2, 1 } },
      { get_initial_state = function(_, batch)
        return { tf.zeros { batch, 2 }, tf.zeros { batch, 1 } }
      end }), { L.SimpleRNNCell(2), L.SimpleRNNCell(1) } } do
      fails("ValueError", "initial_state has 1 tensors; the cell has 2 states",
        L.RNN(given), tf.ones { 2, 3, 2 }, { initial_state = {
          tf.zeros { 2, 2 } } })
    end
    fails("ValueError", "returns 1 states, its state_size says 2",
      L.RNN(cell({ state_size = { 2, 2 } }, { get_initial_state = tens })),
      sequences())
  end)
end)
