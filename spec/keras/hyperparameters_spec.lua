-- What optimizers take, and what reading it gives.
local heard = require "spec.support.heard"
local rules = require "tfdist.keras.update_rules"
local text = require "tfdist.base.text"
local tf = require "tfdist"
local fails = require("spec.support.replicas").fails

local O = tf.keras.optimizers

describe("optimizers' hyperparameters", function()
  it("can be read, changed and scheduled", function()
    local opt = O.SGD { learning_rate = 0.5 }
    assert.equal(0.5, opt.learning_rate)
    opt.learning_rate = 0.25
    local v = tf.Variable(1.0)
    opt:apply_gradients({ tf.constant(1.0) }, { v })
    assert.equal(0.75, v:item())
    fails("KeyError", "momentun", function() opt.momentun = 1 end)
    local e = fails("ValueError", 'unknown option "learningrate"', O.Adam,
      { learningrate = 1 })
    assert.is_truthy(e.hint:find "learning_rate")
    fails("ValueError", "momentum", O.SGD, { momentum = 2 })
    local halving = O.SGD(O.schedules.ExponentialDecay(1.0, 1, 0.5))
    local w = tf.Variable(0.0)
    for _ = 1, 3 do halving:apply_gradients({ tf.constant(1.0) }, { w }) end
    assert.equal(-1.75, w:item())
    halving.iterations:assign(0)
    halving:apply_gradients({ tf.constant(1.0) }, { w })
    assert.equal(-2.75, w:item())
    assert.equal("Adam", tostring(O.get "adam"):match "^%a+")
    fails("ValueError", "unknown optimizer", O.get, "adamm")
  end)

  -- As Keras 3, which ignores decay aloud and knows no lr.
  it("are not obeyed in silence by their older names", function()
    for _, name in ipairs(text.names(rules.rules)) do
      local e = fails("ValueError", 'unknown option "lr"', O[name],
        { lr = 0.1, learning_rate = 0.3 })
      assert.equal("did you mean learning_rate?", e.hint)
      local opt
      local told = heard(function()
        opt = O[name] { learning_rate = 0.5, decay = 1 }
      end)
      assert.equal("tfdist: warning: " .. name .. ": argument decay is no "
        .. "longer supported and is ignored; schedules.InverseTimeDecay lowers "
        .. "a learning rate\n", told)
      local plain = O[name] { learning_rate = 0.5 }
      local v, w = tf.Variable(1.0), tf.Variable(1.0)
      for _ = 1, 3 do
        opt:apply_gradients({ tf.constant(0.5) }, { v })
        plain:apply_gradients({ tf.constant(0.5) }, { w })
      end
      assert.equal(w:item(), v:item())
      assert.same(plain:get_config(), opt:get_config())
      e = fails("KeyError", 'no field or method "lr"', function()
        return opt.lr
      end)
      assert.equal("did you mean learning_rate?", e.hint)
      e = fails("KeyError", "has no hyperparameter", function() opt.lr = 1 end)
      assert.equal("did you mean learning_rate?", e.hint)
      fails("KeyError", "has no hyperparameter", function() opt.decay = 1 end)
    end
  end)

  it("learning_rate of a schedule is its value for the next step", function()
    local halving = O.schedules.ExponentialDecay(1.0, 1, 0.5)
    local v = tf.Variable(0.0)
    local function step(opt)
      opt:apply_gradients({ tf.constant(1.0) }, { v })
      return opt.learning_rate
    end
    local rates = { halving, function(n) return 2 ^ -n end,
      function(n) return tf.constant(2 ^ -n) end }
    for i = 1, #rates do
      local opt = O.SGD(rates[i])
      assert.equal(1, opt.learning_rate)
      assert.same({ 0.5, 0.25 }, { step(opt), step(opt) })
      assert.equal(rates[i], opt:get_config().learning_rate)
      local scaled = tf.keras.mixed_precision.LossScaleOptimizer(opt)
      assert.equal(0.25, scaled.learning_rate)
      local traced = tf.function_(function()
        local before = opt.learning_rate
        opt:apply_gradients({ tf.constant(1.0) }, { v })
        return before, opt.learning_rate
      end)
      for n = 2, 4 do
        local before, after = traced()
        if not tf.config.functions_run_eagerly() then -- then they are numbers
          before, after = before:item(), after:item()
        end
        assert.same({ 2 ^ -n, 2 ^ -n / 2 }, { before, after })
      end
      opt.learning_rate = O.schedules.InverseTimeDecay(1, 1, 1)
      assert.near(1 / 6, opt.learning_rate, 1e-12)
      opt.learning_rate = 0.75
      assert.equal(0.75, opt.learning_rate)
    end
    local rate = tf.Variable(0.5)
    assert.equal(rate, O.SGD(rate).learning_rate)
  end)
end)
