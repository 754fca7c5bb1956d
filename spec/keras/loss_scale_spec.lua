-- tf.keras.mixed_precision.LossScaleOptimizer
local R = require "spec.support.replicas"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local O = tf.keras.optimizers
local Scaled = tf.keras.mixed_precision.LossScaleOptimizer
local fails, locals, list = R.fails, R.locals, R.list

describe("LossScaleOptimizer", function()
  R.leaks(before_each, after_each)

  it("scales the loss and takes the scale out again", function()
    local opt = Scaled(O.SGD(0.5), { initial_scale = 64 })
    local v = tf.Variable { 1.0, 2.0 }
    local tape, loss = tf.GradientTape(function()
      return opt:get_scaled_loss(tf.reduce_sum(v * v))
    end)
    assert.equal(5 * 64, loss:item())
    local grads = tape:gradient(loss, { v })
    assert.same({ 128, 256 }, grads[1]:totable())
    grads = opt:get_unscaled_gradients(grads)
    assert.same({ 2, 4 }, grads[1]:totable())
    opt:apply_gradients(grads, { v })
    assert.same({ 0, 0 }, v:totable())
    local half = tf.constant(2, "float16")
    assert.equal("float16", opt:get_scaled_loss(half).dtype)
    local sparse = opt:get_unscaled_gradients { tf.IndexedSlices(
      tf.fill({ 1, 2 }, 64.0), { 1 }, { 3, 2 }), nil, n = 2 }
    assert.same({ { 1, 1 } }, sparse[1].values:totable())
    assert.is_nil(sparse[2])
  end)

  it("says what losses and gradients must be", function()
    local opt = Scaled(O.SGD(0.5), { initial_scale = 64 })
    local v = tf.Variable(1)
    assert.equal(128, opt:get_scaled_loss(2):item())
    fails("TypeError", "loss", function() opt:get_scaled_loss "x" end)
    fails("TypeError", 'gradient of "variable 1"', function()
      opt:get_unscaled_gradients { "x" }
    end)
    fails("TypeError", 'gradient of "variable 1"', function()
      opt:apply_gradients({ { 1, 2 } }, { v })
    end)
    fails("ValueError", "1 gradients for 2 variables", function()
      opt:apply_gradients({ tf.ones {}, n = 1 }, { v, v })
    end)
    fails("TypeError", "expected gradients and variables", function()
      opt:apply_gradients { 3 }
    end)
  end)

  it("takes pairs of gradients and variables by their name, as do others",
    function()
      for _, opt in ipairs { O.SGD(1), Scaled(O.SGD(1)) } do
        local a, b = tf.Variable(3), tf.Variable(5)
        opt:apply_gradients { grads_and_vars = { { tf.constant(1), a } } }
        opt:apply_gradients { name = "step", skip_gradients_aggregation = true,
          grads_and_vars = { { tf.constant(1), a }, { tf.constant(2), b } } }
        assert.equal(1, a:item())
        assert.equal(3, b:item())
        assert.equal(2, opt.iterations:item())
        local twice = {}
        twice.grads_and_vars = twice
        fails("TypeError", 'the list gradients has the key "grads_and_vars"',
          function() opt:apply_gradients(twice) end)
        fails("ValueError", 'unknown option "grad"', function()
          opt:apply_gradients { grads_and_vars = {}, grad = 1 }
        end)
      end
    end)

  R.pair(it, pending, "options count beside all forms of pairs", function(s)
    local own = { skip_gradients_aggregation = true }
    for _, wrap in ipairs { function(opt) return opt end, Scaled } do
      local v, opt = s:scope(function()
        return tf.Variable(0.0), wrap(O.SGD(1.0))
      end)
      s:run(function()
        local given = { { tf.constant(1.0), v } }
        opt:apply_gradients(given, own)
        opt:apply_gradients({ grads_and_vars = given }, own)
        opt:apply_gradients { grads_and_vars = given,
          skip_gradients_aggregation = true }
        opt:apply_gradients { grads_and_vars = given }
      end)
      for _, copy in ipairs(v.values) do
        assert.equal(-3 - 2, copy:item())
      end
    end
  end)

  it("has no apply of gradients that may be scaled or not", function()
    local opt, v = Scaled(O.SGD(1)), tf.Variable(3.0)
    local e = fails("NotImplementedError", "LossScaleOptimizer:apply",
      opt.apply, opt, { tf.constant(1.0) }, { v })
    assert.matches("get_unscaled_gradients", e.hint)
    assert.equal(3, v:item())
  end)

  it("minimize keeps small half gradients", function()
    -- The slope 2^-26 is 0 in float16; times 2^15 it is not.
    local function trained(opt)
      local v = tf.Variable(1.0)
      opt:minimize(function()
        return tf.cast(tf.cast(v, "float16") * tf.constant(2 ^ -13, "float16"),
          "float32") * 2 ^ -13
      end, { v })
      return v:item()
    end
    assert.equal(1, trained(O.SGD(2 ^ 25)))
    assert.equal(0.5, trained(Scaled(O.SGD(2 ^ 25))))
  end)

  it("halves and doubles", function()
    local opt = Scaled(O.SGD(1.0), { initial_scale = 4,
      dynamic_growth_steps = 2 })
    local v = tf.Variable(0.0)
    local function step(g)
      opt:apply_gradients({ tf.constant(g) }, { v })
      return opt.loss_scale:item()
    end
    assert.same({ 4, 8, 8, 4, 4, 8 }, { step(1.0), step(1.0), step(1.0),
      step(0 / 0), step(1.0), step(1.0) })
    assert.equal(-5, v:item())
    assert.equal(5, opt.iterations:item())
    for _ = 1, 5 do step(1 / 0) end
    assert.equal(1, opt.loss_scale:item())
    local fixed = Scaled(O.SGD(1.0), { dynamic = false, initial_scale = 4 })
    fixed:apply_gradients({ tf.constant(0 / 0) }, { v })
    assert.equal(4, fixed.loss_scale:item())
    assert.equal(-5, v:item())
  end)

  R.each(it, pending, "skips a step on all replicas when one has NaN",
    function(s, n)
      local v, opt = s:scope(function()
        return tf.Variable(tf.zeros { 100 }), Scaled(O.SGD(1.0),
          { initial_scale = 8 })
      end)
      for step = 1, 4 do
        s:run(function()
          local bad = step == 3 and R.id() == n - 1
          opt:apply_gradients({ tf.fill({ 100 },
            tf.constant(bad and 0 / 0 or 1.0)) }, { v })
        end)
        local bits = raw.tensor_bytes(v.values[1]:read_value())
        for _, copy in ipairs(v.values) do
          assert.is_true(raw.tensor_bytes(copy:read_value()) == bits)
        end
      end
      assert.equal(-3 * n, v:read_value():item(0))
      assert.same(list(n, 4), locals(s, opt.variables[1]))
      assert.same(list(n, 1), locals(s, opt.dynamic_counter))
      assert.same(list(n, 3), locals(s, opt.iterations))
    end)

  it("is saved with its scale and the inner optimizer's slots", function()
    local function parts(scale)
      return tf.train.Checkpoint { v = tf.Variable { 1.0, 2.0 },
        opt = Scaled(O.SGD { learning_rate = 1, momentum = 0.5 },
          { initial_scale = scale, dynamic_growth_steps = 2 }) }
    end
    local a, b = parts(4), parts(64)
    local path = os.tmpname()
    for _ = 1, 3 do
      a.opt:apply_gradients({ tf.constant { 1, 1 } }, { a.v })
    end
    a:write(path)
    b:read(path):assert_consumed()
    os.remove(path)
    os.remove(path .. ".safetensors")
    assert.equal(8, b.opt.loss_scale:item())
    assert.equal(1, b.opt.dynamic_counter:read_value():item())
    assert.equal(3, b.opt.iterations:read_value():item())
    for _, x in ipairs { a, b } do
      x.opt:apply_gradients({ tf.constant { 1, 1 } }, { x.v })
    end
    assert.same(a.v:totable(), b.v:totable())
    assert.equal(16, b.opt.loss_scale:item())
  end)

  it("hands everything else to the inner optimizer", function()
    local inner = O.Adam(0.25)
    local opt = Scaled(inner)
    assert.equal(0.25, opt.learning_rate)
    opt.learning_rate = 0.5
    assert.equal(0.5, inner.learning_rate)
    assert.equal(inner, opt.inner_optimizer)
    assert.same({ "m", "v" }, opt:get_slot_names())
    assert.equal(2 ^ 15, opt:get_config().initial_scale)
    assert.is_truthy(tostring(opt):find "scale 32768")
    assert.equal(opt, O.get(opt))
  end)

  it("refuses what makes no sense", function()
    fails("TypeError", "must be an optimizer", Scaled, { 1 })
    fails("TypeError", "must be an optimizer", Scaled, Scaled(O.SGD()))
    fails("ValueError", "initial_scale must be given", Scaled, O.SGD(), false)
    fails("ValueError", "dynamic_growth_steps", Scaled, O.SGD(), false, 2, 5)
    for _, scale in ipairs { 0, -1, 0 / 0, 1 / 0, 1e39, 1e-39 } do
      fails("ValueError", "a positive number that float32 holds", Scaled, O.SGD(),
        true, scale)
    end
    for _, steps in ipairs { 0, 1.5, 2 ^ 60 } do
      fails("ValueError", "dynamic_growth_steps must be a whole number", Scaled,
        O.SGD(), true, 1, steps)
    end
    local opt = Scaled(O.SGD())
    for _, name in ipairs { "loss_scale", "initial_scale", "dynamic",
      "dynamic_growth_steps", "dynamic_counter", "inner_optimizer" } do
      fails("TypeError", "LossScaleOptimizer: " .. name .. " cannot be set",
        function() opt[name] = 2 end)
    end
  end)

  it("minimizes over a list of variables, as all do", function()
    local v = tf.Variable(1)
    for what, opt in pairs { ["optimizer"] = O.SGD(),
      LossScaleOptimizer = Scaled(O.SGD()) } do
      fails("TypeError", what .. ":minimize: var_list must be a list, got the "
        .. "Variable", opt.minimize, opt, function()
          return v * v
        end, v)
    end
  end)
end)
