--- Keras optimizers inside a traced function against the same ones outside.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"

-- Without, an update is a call for each variable.
local FUSED = os.getenv "TFDIST_FUSION" ~= "0"

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

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

  it("does nothing but halve the scale where gradients are not finite",
    function()
      local v = tf.Variable(1.0)
      local optimizer = tf.keras.mixed_precision.LossScaleOptimizer(O.SGD(0.5),
        { initial_scale = 8, dynamic_growth_steps = 2 })
      local step = tf.function_(function(g)
        optimizer:apply_gradients({ g }, { v })
      end)
      local function after(g)
        step(tf.constant(g))
        return { v:read_value():item(), optimizer.loss_scale:item(),
          optimizer.dynamic_counter:read_value():item(),
          optimizer.iterations:read_value():item() }
      end
      assert.are.same({ 0.5, 8, 1, 1 }, after(1.0))
      assert.are.same({ 0.5, 4, 0, 1 }, after(math.huge))
      assert.are.same({ 0.5, 2, 0, 1 }, after(0 / 0))
      assert.are.same({ 0, 2, 1, 2 }, after(1.0))
      assert.are.same({ -1, 4, 0, 3 }, after(2.0))
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

  it("has at each call what its hyperparameters are then", function()
    local v = tf.Variable(0.0)
    local optimizer = O.SGD(0.5)
    local step = tf.function_(function()
      optimizer:apply_gradients({ tf.constant(1.0) }, { v })
    end)
    local function taken()
      local before = v:read_value():item()
      step()
      return before - v:read_value():item()
    end
    assert.are.same({ 0.5, 0.5 }, { taken(), taken() })
    optimizer.learning_rate = function(number) return number end
    assert.are.same({ 2, 3 }, { taken(), taken() })
    local rate = tf.Variable(0.25)
    optimizer.learning_rate = rate
    assert.are.equal(0.25, taken())
    rate:assign(4)
    assert.are.equal(4, taken())
    optimizer.learning_rate = 2
    assert.are.same({ 2, 2 }, { taken(), taken() })
    optimizer.learning_rate =
      tf.keras.optimizers.schedules.InverseTimeDecay(2, 1, 0.125)
    assert.are.equal(1, taken()) -- its ninth step
    optimizer.iterations:assign(24)
    assert.are.equal(0.5, taken())
    optimizer.learning_rate = 2
    assert.are.equal(2, taken())
  end)

  -- The gradient is 1, the rate the number of steps before.
  local function counting(make)
    local v = tf.Variable(0.0)
    local optimizer = O.SGD(function(number) return number + 0.0 end)
    local f = tf.function_(make(function()
      optimizer:apply_gradients({ tf.constant(1.0) }, { v })
    end))
    return f, optimizer, function() return -v:read_value():item() end
  end

  it("counts no step of a call that failed, whatever is assigned next",
    function()
      local fails = false
      for name, check in pairs { check = function(x)
        tf.debugging.assert_greater(x, 0.0)
      end, host = function()
        tf.py_function(function()
          if fails then error "no" end
          return tf.constant(0.0)
        end, {}, tf.TensorSpec({}, "float32"))
      end } do
        local f, optimizer, sum = counting(function(step)
          return function(x)
            check(x)
            step()
          end
        end)
        for _ = 1, 2 do f(tf.constant(1.0)) end
        fails = true
        assert.is_false(pcall(f, tf.constant(-1.0)))
        fails = false
        optimizer.iterations:assign(10)
        f(tf.constant(1.0))
        assert.are.equal(11, sum(), name)
      end
    end)

  it("counts the steps of branches that were taken", function()
    local function nothing() return tf.constant(0.0) end
    local function either(x, step)
      tf.cond(tf.greater(x, 0.0), function()
        step()
        return tf.constant(0.0)
      end, nothing)
    end
    local f, _, sum = counting(function(step)
      return function(x) either(x, step) end
    end)
    for _, x in ipairs { 1, -1, 1, -1, 1 } do f(tf.constant(x)) end
    assert.are.equal(0 + 1 + 2, sum())
    f = counting(function(step)
      return function(x)
        either(x, step)
        either(-x, step)
      end
    end)
    local ok, e = pcall(f, tf.constant(1.0))
    assert.is_false(ok)
    assert.are.equal("NotImplementedError", e.kind)
    assert.is_truthy(tostring(e):find("a branch may leave out", 1, true))
    -- No step of these depends on those before.
    local v, optimizer = tf.Variable(0.0), O.SGD(0.5)
    local g = tf.function_(function(x)
      for _, each in ipairs { x, -x } do
        either(each, function()
          optimizer:apply_gradients({ tf.constant(1.0) }, { v })
        end)
      end
    end)
    for _, x in ipairs { 1, -1, 0 } do g(tf.constant(x)) end
    assert.are.equal(-1, v:read_value():item())
    assert.are.equal(2, optimizer.iterations:read_value():item())
  end)

  -- Whoever reads it waits for the step before.
  it("has the step count read by nobody once it is known", function()
    local v = tf.Variable(0.0)
    local optimizer = O.Adam(0.5)
    local step = tf.function_(function()
      optimizer:apply_gradients({ tf.constant(1.0) }, { v })
    end)
    for _ = 1, 2 do step() end
    local held = optimizer.iterations:read_value()
    local item, reads = raw.item, 0
    finally(function() raw.item = item end)
    raw.item = function(...)
      reads = reads + 1
      return item(...)
    end
    for _ = 1, 3 do step() end
    assert.are.equal(0, reads)
    assert.are.equal(2, held:item())
    assert.is_true(reads > 0)
    assert.are.equal(5, optimizer.iterations:read_value():item())
  end)

  -- Small, odd, empty, and large enough that cores share a step.
  local SHAPES = { { 5 }, { 3, 7 }, { 70, 301 }, { 1 }, { 0, 3 }, { 33, 500 } }

  local function filled(shape, phase, dtype)
    local n = 1
    for _, d in ipairs(shape) do n = n * d end
    local x = tf.range(n, { dtype = "float32" }) * 0.37 + phase
    return tf.cast(tf.reshape(tf.sin(x), shape), dtype)
  end

  -- The bits of variables and slots after some steps of one optimizer, and the
  -- calls of the program.
  local function take(make, dtype, traced)
    local variables, gradients = {}, {}
    for i, shape in ipairs(SHAPES) do
      variables[i] = tf.Variable(filled(shape, i, dtype))
      gradients[i] = filled(shape, -i, dtype)
    end
    local optimizer = make()
    optimizer:build(variables)
    local function step(...)
      optimizer:apply_gradients({ ... }, variables)
    end
    local fn = traced and tf.function_(step) or step
    for _ = 1, 3 do fn(unpack(gradients)) end
    local bits = {}
    for _, list in ipairs { variables, optimizer.variables } do
      for _, v in ipairs(list) do
        bits[#bits + 1] = raw.tensor_bytes(v:read_value())
      end
    end
    local text = traced
      and fn:get_concrete_function(unpack(gradients)):graph "lowered"
    return bits, text
  end

  local rules = {
    sgd = makers.SGD,
    momentum = makers.momentum,
    nesterov = function()
      return O.SGD(0.1, { momentum = 0.9, nesterov = true })
    end,
    adam = function() return O.Adam(0.05, { global_clipnorm = 0.5 }) end,
    amsgrad = function() return O.Adam(0.05, { amsgrad = true }) end,
    adamax = function() return O.Adamax(0.05) end,
    nadam = makers.Nadam,
    rmsprop = makers.RMSprop,
    rmsprop_both = function()
      return O.RMSprop(0.01, { centered = true, momentum = 0.5 })
    end,
    adagrad = function() return O.Adagrad(0.1, { clipvalue = 0.25 }) end,
    adadelta = function() return O.Adadelta(0.5) end,
    ftrl = function() return O.Ftrl(0.1) end,
  }
  for name, make in pairs(rules) do
    it("updates all variables in one call: " .. name, function()
      for _, dtype in ipairs { "float32", "float64", "bfloat16" } do
        local want = take(make, dtype, false)
        local got, text = take(make, dtype, true)
        assert.are.same(want, got)
        local call = ("updates(%d of update_%s)"):format(#SHAPES, name)
        assert.are.equal(FUSED, text:find(call, 1, true) ~= nil, text)
        local _, single = text:gsub("\n +update_", "")
        assert.are.equal(FUSED and 0 or #SHAPES, single, text)
      end
    end)
  end

  -- The gradients that two layers give, with what scales them.
  local function scaled_step(make, scale, dtype, traced)
    local w = { tf.Variable(filled({ 37, 64 }, 1, dtype)),
                tf.Variable(filled({ 64 }, 2, dtype)),
                tf.Variable(filled({ 64, 3 }, 3, dtype)) }
    local optimizer = make()
    optimizer:build(w)
    local function step(x, y)
      local loss
      local tape = tf.GradientTape(function()
        local h = tf.nn.relu(tf.matmul(x, w[1]) + w[2])
        loss = tf.reduce_mean((tf.matmul(h, w[3]) - y) ^ 2)
      end)
      local grads = scale(tape:gradient(loss, w), loss, w)
      optimizer:apply_gradients(grads, w)
      return loss
    end
    local fn = traced and tf.function_(step) or step
    local x, y = filled({ 8, 37 }, 5, dtype), filled({ 8, 3 }, 6, dtype)
    local bits = {}
    for _ = 1, 3 do bits[#bits + 1] = raw.tensor_bytes(fn(x, y)) end
    for _, list in ipairs { w, optimizer.variables } do
      for _, v in ipairs(list) do
        bits[#bits + 1] = raw.tensor_bytes(v:read_value())
      end
    end
    return bits, traced and fn:get_concrete_function(x, y):graph "lowered"
  end

  local function global(grads)
    return (tf.clip_by_global_norm(grads, 0.25))
  end

  local scales = {
    ["a global norm"] = global,
    ["the norm of each"] = function(grads)
      for i = 1, 3 do grads[i] = tf.clip_by_norm(grads[i], 0.05) end
      return grads
    end,
    ["what the call computes"] = function(grads, loss)
      for i = 1, 3 do grads[i] = grads[i] * loss end
      return grads
    end,
  }
  for name, scale in pairs(scales) do
    it("scales gradients where it reads them: by " .. name, function()
      for _, rule in ipairs { "sgd", "momentum", "adam", "rmsprop" } do
        for _, dtype in ipairs { "float32", "float64", "bfloat16" } do
          local make = rule == "adam" and makers.Adam or rules[rule]
          local want = scaled_step(make, scale, dtype, false)
          local got, text = scaled_step(make, scale, dtype, true)
          assert.are.same(want, got)
          local call = ("updates(3 of update_%s)%s"):format(rule,
            dtype == "float32" and " scaled" or "")
          assert.are.equal(FUSED, text:find(call, 1, true) ~= nil, text)
        end
      end
    end)
  end

  -- What is needed elsewhere, too, or changes before the update.
  local kept = {
    ["a result of another use"] = function(grads, loss)
      local sum = 0
      for i = 1, 3 do
        grads[i] = grads[i] * loss
        sum = sum + tf.reduce_sum(grads[i])
      end
      for i = 1, 3 do grads[i] = grads[i] + sum end
      return grads
    end,
    ["by as many numbers"] = function(grads)
      for i = 1, 3 do grads[i] = grads[i] * tf.sin(grads[i]) end
      return grads
    end,
    ["by a variable that a step before changes"] = function(grads, _, w)
      for i = 1, 3 do grads[i] = grads[i] * w[2][0] end
      return grads
    end,
  }
  for name, scale in pairs(kept) do
    it("leaves scaled gradients alone: " .. name, function()
      local want = scaled_step(makers.SGD, scale, "float32", false)
      local got, text = scaled_step(makers.SGD, scale, "float32", true)
      assert.are.same(want, got)
      assert.is_falsy(text:find(" scaled", 1, true), text)
    end)
  end

  it("scales the gradient of one variable, too", function()
    local function run(wrap)
      local v = tf.Variable(filled({ 33, 500 }, 1, "float32"))
      local sgd = O.SGD(0.5)
      sgd:build { v }
      local step = wrap(function(x, n)
        sgd:apply_gradients({ tf.sin(x) * n }, { v })
      end)
      step(filled({ 33, 500 }, 2, "float32"), tf.constant(0.37))
      return raw.tensor_bytes(v:read_value())
    end
    local function plain(f) return f end
    assert.are.equal(run(plain), run(tf.function_))
  end)

  -- Both steps, with and without a trace, from the same beginnings.
  local function same(make_step, n)
    local got = {}
    for i, traced in ipairs { false, true } do
      local v = {}
      for k = 1, n do v[k] = tf.Variable(filled({ 4, 5 }, k, "float32")) end
      local step = make_step(v)
      local fn = traced and tf.function_(step) or step
      local bits = {}
      for r = 1, 3 do
        for _, y in ipairs { fn(filled({ 4, 5 }, -r, "float32")) } do
          bits[#bits + 1] = raw.tensor_bytes(y)
        end
      end
      for k = 1, n do bits[#bits + 1] = raw.tensor_bytes(v[k]:read_value()) end
      got[i] = bits
    end
    assert.are.same(got[1], got[2])
  end

  -- A variable as the gradient, which is written between two steps; and one
  -- that is updated twice in one step.
  it("writes no variable before an update has read it", function()
    local function run(wrap)
      local a, b = tf.Variable { 1, 2 }, tf.Variable { 3, 4 }
      local v = tf.Variable { 10, 20 }
      local sgd = O.SGD(0.5, { momentum = 0.5 })
      sgd:build { a, b }
      local step = wrap(function(x)
        sgd:apply_gradients({ v:value() }, { a })
        v:assign(x * 2)
        sgd:apply_gradients({ x, x * x }, { b, b })
      end)
      for _ = 1, 2 do step(tf.constant { 1, 3 }) end
      return { a:read_value():totable(), b:read_value():totable() }
    end
    local want = run(function(fn) return fn end)
    -- Velocities of a: -5, -10, then -2.5 - 1, -5 - 3.
    assert.are.same({ 1 - 5 - 3.5, 2 - 10 - 8 }, want[1])
    assert.are.same(want, run(tf.function_))
  end)

  -- Adam's correction of step 1 or of later ones, whatever the trace saw.
  it("knows the step where the first had no rate, and after a restore",
    function()
      local v = tf.Variable { 1.0 }
      local optimizer = tf.keras.optimizers.Adam { learning_rate = 0 }
      local f = tf.function_(function(g)
        optimizer:apply_gradients { { g, v } }
      end)
      local w, m, s, t = 1.0, 0, 0, 0
      local function step(g)
        f(tf.constant { g })
        t, m, s = t + 1, 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        w = w - optimizer.learning_rate * math.sqrt(1 - 0.999 ^ t)
          / (1 - 0.9 ^ t) * m / (math.sqrt(s) + 1e-7)
        assert.near(w, v:toflat()[1], 1e-5)
      end
      step(1)
      optimizer.learning_rate = 0.1
      for _, g in ipairs { 1, -3, 0.5 } do
        step(g)
      end
      t = 0
      optimizer.iterations:assign(0)
      step(2)
    end)

  it("keeps the order of updates that need each other", function()
    same(function(v)
      local one = O.SGD(0.5)
      one:build(v)
      return function(g)
        -- The second takes what the first wrote, the third writes it again.
        one:apply_gradients({ g }, { v[1] })
        one:apply_gradients({ v[1]:read_value() }, { v[2] })
        one:apply_gradients({ g }, { v[1] })
        -- What a gradient becomes must not take the gradient's place early.
        local h = g * 2
        one:apply_gradients({ h }, { v[3] })
        local k = tf.tanh(h) + v[3]
        one:apply_gradients({ k }, { v[2] })
        return k, v[1]:read_value()
      end
    end, 3)
  end)
end)
