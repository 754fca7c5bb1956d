--- Keras optimizers inside a traced function against the same ones outside.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"

local function data()
  return tf.constant { { 0.5, -1, 2 }, { 1, 0.25, -0.5 } },
    tf.constant { { 1 }, { -1 } }
end

-- The bits of weights and losses after some steps, and the traces that it took.
local function train(make, steps, traced)
  local w = tf.Variable { { 0.3 }, { -0.2 }, { 0.1 } }
  local b = tf.Variable { 0.05 }
  local optimizer = make()
  local traces = 0
  local function step(x, y)
    traces = traces + 1
    local loss
    local tape = tf.GradientTape(function()
      loss = tf.reduce_mean((tf.matmul(x, w) + b - y) ^ 2)
    end)
    optimizer:apply_gradients(tape:gradient(loss, { w, b }), { w, b })
    return loss
  end
  local fn = traced and tf.function_(step) or step
  local x, y = data()
  local bits = {}
  for i = 1, steps do bits[i] = raw.tensor_bytes(fn(x, y)) end
  for _, v in ipairs { w, b } do
    bits[#bits + 1] = raw.tensor_bytes(v:read_value())
  end
  assert.are.equal(steps, optimizer.iterations:read_value():item())
  return bits, traces
end

describe("an optimizer in a traced function", function()
  local O = tf.keras.optimizers
  local makers = {
    SGD = function() return O.SGD(0.1) end,
    momentum = function() return O.SGD(0.1, { momentum = 0.9 }) end,
    Adam = function() return O.Adam(0.05) end,
    AdamW = function() return O.AdamW(0.05) end,
    Nadam = function() return O.Nadam(0.05) end,
    RMSprop = function() return O.RMSprop(0.01) end,
    ["a schedule"] = function()
      return O.SGD(O.schedules.ExponentialDecay(0.1, 2, 0.5))
    end,
    clipping = function() return O.SGD(0.1, { clipnorm = 0.1 }) end,
  }
  for name, make in pairs(makers) do
    it("takes the steps of one outside: " .. name, function()
      local want = train(make, 5, false)
      local got, traces = train(make, 5, true)
      assert.are.same(want, got)
      -- One that makes the slots, one that counts.
      assert.are.equal(2, traces)
    end)
  end

  it("is refused where values decide what it does", function()
    local v = tf.Variable(1.0)
    local optimizer = tf.keras.mixed_precision.LossScaleOptimizer(O.SGD(0.5))
    local ok, e = pcall(tf.function_(function(g)
      optimizer:apply_gradients({ g }, { v })
    end), tf.constant(1.0))
    assert.is_false(ok)
    assert.are.equal("NotImplementedError", tf.errors.kind(e), tostring(e))
    assert.are.equal(1, v:read_value():item())
  end)

  it("goes on where it was when the learning rate changes", function()
    local v = tf.Variable(1.0)
    local optimizer = O.SGD(0.5)
    local step = tf.function_(function(g)
      optimizer:apply_gradients({ g }, { v })
    end)
    step(tf.constant(1.0))
    assert.are.equal(0.5, v:read_value():item())
    optimizer.learning_rate = 0.25
    step(tf.constant(1.0))
    assert.are.equal(0.25, v:read_value():item())
    optimizer:apply_gradients({ tf.constant(1.0) }, { v })
    assert.are.equal(0, v:read_value():item())
    assert.are.equal(3, optimizer.iterations:read_value():item())
  end)
end)
