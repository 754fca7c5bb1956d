-- Cases K: optimizers and loss scaling, alone and under strategies.
local R = require "spec.support.replicas"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local at = require("spec.support.on_device").at
local expect = require "spec.support.expect"

local O = tf.keras.optimizers
local fails, locals, list = R.fails, R.locals, R.list

local near = expect.near

-- Plain Lua rules for one number, by optimizer: state s, gradient g, step t.
local reference = {}

function reference.SGD(s, g) s.x = s.x - 0.1 * g end

function reference.momentum(s, g)
  s.m = 0.9 * (s.m or 0) - 0.1 * g
  s.x = s.x + s.m
end

function reference.nesterov(s, g)
  s.m = 0.9 * (s.m or 0) - 0.1 * g
  s.x = s.x + 0.9 * s.m - 0.1 * g
end

function reference.Adam(s, g, t)
  s.m = 0.9 * (s.m or 0) + 0.1 * g
  s.v = 0.999 * (s.v or 0) + 0.001 * g * g
  local lr = 0.1 * math.sqrt(1 - 0.999 ^ t) / (1 - 0.9 ^ t)
  s.x = s.x - lr * s.m / (math.sqrt(s.v) + 1e-7)
end

function reference.amsgrad(s, g, t)
  s.m = 0.9 * (s.m or 0) + 0.1 * g
  s.v = 0.999 * (s.v or 0) + 0.001 * g * g
  s.h = math.max(s.h or 0, s.v)
  local lr = 0.1 * math.sqrt(1 - 0.999 ^ t) / (1 - 0.9 ^ t)
  s.x = s.x - lr * s.m / (math.sqrt(s.h) + 1e-7)
end

function reference.Adamax(s, g, t)
  s.m = 0.9 * (s.m or 0) + 0.1 * g
  s.u = math.max(0.999 * (s.u or 0), math.abs(g))
  s.x = s.x - 0.1 / (1 - 0.9 ^ t) * s.m / (s.u + 1e-7)
end

function reference.Nadam(s, g, t)
  local function schedule(k) return 0.9 * (1 - 0.5 * 0.96 ^ k) end
  s.p = (s.p or 1) * schedule(t)
  s.m = 0.9 * (s.m or 0) + 0.1 * g
  s.v = 0.999 * (s.v or 0) + 0.001 * g * g
  local mean = (1 - schedule(t)) * g / (1 - s.p)
    + schedule(t + 1) * s.m / (1 - s.p * schedule(t + 1))
  s.x = s.x - 0.1 * mean / (math.sqrt(s.v / (1 - 0.999 ^ t)) + 1e-7)
end

function reference.RMSprop(s, g)
  s.r = 0.9 * (s.r or 0) + 0.1 * g * g
  s.x = s.x - 0.1 * g / math.sqrt(s.r + 1e-7)
end

function reference.centered(s, g)
  s.r = 0.9 * (s.r or 0) + 0.1 * g * g
  s.a = 0.9 * (s.a or 0) + 0.1 * g
  s.m = 0.5 * (s.m or 0) + 0.1 * g / math.sqrt(s.r - s.a * s.a + 1e-7)
  s.x = s.x - s.m
end

function reference.Adagrad(s, g)
  s.a = (s.a or 0.1) + g * g
  s.x = s.x - 0.1 * g / math.sqrt(s.a + 1e-7)
end

function reference.Adadelta(s, g)
  s.a = 0.95 * (s.a or 0) + 0.05 * g * g
  local u = g * math.sqrt((s.u or 0) + 1e-7) / math.sqrt(s.a + 1e-7)
  s.u = 0.95 * (s.u or 0) + 0.05 * u * u
  s.x = s.x - 0.1 * u
end

function reference.Ftrl(s, g)
  local before = s.a or 0.1
  s.a = before + g * g
  s.l = (s.l or 0) + g - (math.sqrt(s.a) - math.sqrt(before)) / 0.1 * s.x
  local q = math.sqrt(s.a) / 0.1 + 2 * 0.01
  s.x = math.abs(s.l) > 0.05
    and ((s.l > 0 and 0.05 or -0.05) - s.l) / q or 0
end

local made = {
  SGD = function() return O.SGD { learning_rate = 0.1 } end,
  momentum = function() return O.SGD(0.1, 0.9) end,
  nesterov = function()
    return O.SGD { learning_rate = 0.1, momentum = 0.9, nesterov = true }
  end,
  Adam = function() return O.Adam(0.1) end,
  amsgrad = function()
    return O.Adam { learning_rate = 0.1, amsgrad = true }
  end,
  Adamax = function() return O.Adamax(0.1) end,
  Nadam = function() return O.Nadam(0.1) end,
  RMSprop = function() return O.RMSprop(0.1) end,
  centered = function()
    return O.RMSprop { learning_rate = 0.1, momentum = 0.5, centered = true }
  end,
  Adagrad = function() return O.Adagrad(0.1) end,
  Adadelta = function() return O.Adadelta(0.1) end,
  Ftrl = function()
    return O.Ftrl { learning_rate = 0.1, l1_regularization_strength = 0.05,
      l2_regularization_strength = 0.01 }
  end,
}

local GRADS = { 1.0, -0.5, 0.25, 2.0, -3.0 }

describe("optimizers", function()
  R.leaks(before_each, after_each)

  for name, make in pairs(made) do
    it(name .. " follows its formula", function()
      local v = tf.Variable({ 1.0, 2.0 }, { dtype = "float64" })
      local opt, s, z = make(), { x = 1.0 }, { x = 2.0 }
      for t, g in ipairs(GRADS) do
        opt:apply_gradients({ tf.constant({ g, -g }, "float64") }, { v })
        reference[name](s, g, t)
        reference[name](z, -g, t)
        near({ s.x, z.x }, v:totable(), 1e-9)
      end
      assert.equal(#GRADS, opt.iterations:read_value():item())
      assert.equal(name == "SGD" and 1 or 1 + #opt:get_slot_names(),
        #opt.variables)
    end)

    it(name .. " takes rows that are not named for gradients of 0", function()
      local v = tf.Variable({ { 1.0 }, { 2.0 }, { 3.0 } },
        { dtype = "float64" })
      local w = tf.Variable({ { 1.0 }, { 2.0 }, { 3.0 } },
        { dtype = "float64" })
      local opt, other = make(), make()
      for _, rows in ipairs { { 0, 2, 0 }, { 1, 1, 1 }, { 2, 1, 2 } } do
        local g = tf.IndexedSlices(tf.constant({ { 1.0 }, { 2.0 }, { 0.5 } },
          "float64"), rows, { 3, 1 })
        opt:apply_gradients({ g }, { v })
        other:apply_gradients({ g:to_dense() }, { w })
        assert.same(w:totable(), v:totable())
      end
    end)
  end

  R.each(it, pending, "K01 sum over replicas unless told otherwise",
    function(s, n)
      for _, aggregate in ipairs { true, false } do
        local v, opt = s:scope(function()
          return tf.Variable { 0.0, 0.0 }, O.SGD(0.1)
        end)
        s:run(function()
          local g = tf.ones { 2 } * (R.id() + 1)
          opt:apply_gradients({ g }, { v },
            { experimental_aggregate_gradients = aggregate })
        end)
        for i, x in ipairs(locals(s, v)) do
          local want = aggregate and -0.1 * n * (n + 1) / 2 or -0.1 * i
          near({ want, want }, x)
        end
        assert.same(list(n, 1), locals(s, opt.iterations))
      end
    end)

  it("K02 one device", function()
    local s = tf.distribute.OneDeviceStrategy(at(0))
    for _, aggregate in ipairs { true, false } do
      local v, opt = s:scope(function()
        return tf.Variable { 0.0, 0.0 }, O.SGD(0.1)
      end)
      s:run(function()
        opt:apply_gradients({ tf.ones { 2 } }, { v },
          { experimental_aggregate_gradients = aggregate })
      end)
      near({ -0.1, -0.1 }, v:totable())
    end
  end)

  R.each(it, pending, "K15 a sum of losses and means of them", function(s, n)
    -- loss (wx - y)^2 of both examples; its slope in w at 2 is -106.
    local function trained(loss_of)
      local w, opt = s:scope(function()
        return tf.Variable(2.0), O.SGD(0.001)
      end)
      s:run(function()
        local tape, loss = tf.GradientTape(function()
          local x = tf.constant { 2.0, 7.0 }
          return loss_of((w * x - tf.constant { 6.0, 21.0 }) ^ 2)
        end)
        opt:apply_gradients(tape:gradient(loss, { w }), { w })
      end)
      return w:read_value():item()
    end
    assert.near(2 + 0.106 * n, trained(tf.reduce_sum), 1e-5)
    assert.near(2.053, trained(function(losses)
      return tf.reduce_mean(losses) / n
    end), 1e-5)
    assert.near(2.053, trained(function(losses)
      return tf.nn.compute_average_loss(losses)
    end), 1e-5)
  end)

  R.each(it, pending, "the update of a stretch each is the update of a whole",
    function(s, n)
      for name, make in pairs(made) do
        local start = tf.random.stateless_uniform({ 100, 101 }, { 1, 2 })
        local w = tf.Variable(start)
        local alone = make()
        local v, small, opt = s:scope(function()
          return tf.Variable(start), tf.Variable { 1.0, 2.0 }, make()
        end)
        local kept
        for step = 1, 3 do
          local grads, sum = {}, nil
          for i = 1, n do
            grads[i] = tf.random.stateless_uniform({ 100, 101 }, { step, i },
              -1, 1)
            sum = sum and sum + grads[i] or grads[i]
          end
          alone:apply_gradients({ sum }, { w })
          s:run(function()
            opt:apply_gradients({ tf.identity(grads[R.id() + 1]),
              tf.ones { 2 } }, { v, small })
          end)
          -- What somebody has read does not change under him.
          kept = kept or { v.values[1]:read_value(), w:read_value() }
        end
        local want = raw.tensor_bytes(w:read_value())
        for _, copy in ipairs(v.values) do
          assert.is_true(raw.tensor_bytes(copy:read_value()) == want, name)
        end
        assert.is_true(raw.tensor_bytes(kept[1]) == raw.tensor_bytes(kept[2]))
      end
    end)

  R.pair(it, pending, "copies that went apart are updated one by one",
    function(s)
      local v, opt = s:scope(function()
        return tf.Variable(tf.zeros { 10000 }), O.SGD(1.0)
      end)
      local function step(aggregate)
        s:run(function()
          opt:apply_gradients({ tf.fill({ 10000 },
            tf.constant(R.id() + 1.0)) }, { v },
            { skip_gradients_aggregation = not aggregate })
        end)
      end
      step(false)
      step(true)
      for i, copy in ipairs(v.values) do
        assert.equal(-3 - i, tf.reduce_max(copy):item())
        assert.equal(-3 - i, tf.reduce_min(copy):item())
      end
    end)

  R.pair(it, pending, "replicas must update the same variables", function(s)
    local a, b, opt = s:scope(function()
      return tf.Variable(1.0, { name = "a" }), tf.Variable(1.0, { name = "b" }),
        O.SGD(1.0)
    end)
    fails("RuntimeError", "variable 1 is \"b\" on replica 1 and \"a\" on "
      .. "replica 0", s.run, s, function()
        local vars = R.id() == 0 and { a, b } or { b, a }
        opt:apply_gradients({ tf.ones {}, tf.ones {} }, vars)
      end)
    assert.equal(1, a:read_value():item())
    -- A copy stands for its variable; one that comes twice is updated twice.
    s:run(function()
      opt:apply_gradients({ tf.ones {}, tf.ones {} },
        { a.values[R.id() + 1], a })
    end)
    assert.same({ -3, -3 }, locals(s, a))
    fails("InvalidArgument", "variable \"a\"", s.run, s, function()
      opt:apply_gradients({ tf.ones { 2 } }, { a })
    end)
    fails("InvalidArgument", "float64", s.run, s, function()
      opt:apply_gradients({ tf.constant(1, "float64") }, { a })
    end)
    fails("InvalidArgument", "gradients", s.run, s, function()
      opt:apply_gradients({ tf.ones { R.id() + 1 } }, { a })
    end)
    assert.same({ -3, -3 }, locals(s, a))
  end)

  local function bad_gradients()
    return { tf.ones { 3 }, tf.ones({ 2 }, "float64"),
      tf.IndexedSlices(tf.ones { 1, 2 }, { 0 }, { 2, 2 }) }
  end

  local wrong = "apply_gradients: variable \"b\""

  -- The last gradient is bad: nothing has changed, and the next step is the
  -- first one.
  local function check_whole(opt, a, b, apply)
    for _, bad in ipairs(bad_gradients()) do
      fails("InvalidArgument", wrong, apply, { tf.ones { 2 }, bad })
      assert.equal(0, opt.iterations:read_value():item())
      for _, v in ipairs { a, b } do
        assert.same({ 1, 1 }, v:read_value():totable())
      end
    end
    apply { tf.ones { 2 }, tf.ones { 2 } }
    assert.equal(1, opt.iterations:read_value():item())
    for _, v in ipairs { a, b } do
      assert.is_true(v:read_value()[0]:item() < 1)
    end
  end

  local function makers()
    local decays = O.SGD { learning_rate = 0.5, weight_decay = 0.25 }
    decays:exclude_from_weight_decay { var_names = { "^b$" } }
    return { O.SGD(0.5), O.Adam(0.5), decays,
      O.SGD { learning_rate = 0.5, clipnorm = 9 } }
  end

  local function ones_named(name)
    return tf.Variable(tf.ones { 2 }, { name = name })
  end

  it("a gradient that does not fit leaves all variables as they were",
    function()
      for _, opt in ipairs(makers()) do
        local a, b = ones_named "a", ones_named "b"
        check_whole(opt, a, b, function(grads)
          opt:apply_gradients(grads, { a, b })
        end)
      end
    end)

  R.pair(it, pending, "nor does one in a replica change other variables",
    function(s)
      local optimizers = s:scope(makers)
      for _, opt in ipairs(optimizers) do
        for _, own in ipairs { true, false } do
          local a, b = s:scope(function()
            return ones_named "a", ones_named "b"
          end)
          opt.iterations:assign(0)
          check_whole(opt, a, b, function(grads)
            s:run(function()
              -- Gradients where their replica is, or all on one device.
              local mine = own and tf.nest.map_structure(tf.identity, grads)
                or grads
              opt:apply_gradients(mine, { a, b })
            end)
          end)
        end
      end
    end)

  R.pair(it, pending, "a user's own cross-device ops add gradients up",
    function()
      local Mine = tf.distribute.CrossDeviceOps:subclass "Mine"
      function Mine:batch_reduce_implementation(_, pairs_list)
        local out = {}
        for i, pair in ipairs(pairs_list) do
          out[i] = self:broadcast(tf.add_n(pair[1].values) * 10, pair[2])
        end
        return out
      end
      local s = tf.distribute.MirroredStrategy {
        devices = { at(0), at(1) }, cross_device_ops = Mine(),
      }
      local v, opt = s:scope(function() return tf.Variable(0.0), O.SGD(1.0) end)
      s:run(function() opt:apply_gradients({ tf.ones {} }, { v }) end)
      assert.same({ -20, -20 }, locals(s, v))
    end)

  R.pair(it, pending, "sparse gradients of replicas are added up", function(s)
    local v, opt = s:scope(function()
      return tf.Variable { { 1.0, 1.0 }, { 2.0, 2.0 }, { 3.0, 3.0 } },
        O.SGD(0.5, 0.5)
    end)
    for _ = 1, 2 do
      s:run(function()
        opt:apply_gradients({ tf.IndexedSlices(tf.ones { 2, 2 },
          { 0, R.id() + 1 }, { 3, 2 }) }, { v })
      end)
    end
    -- Row 0: moments -1, -1.5; rows 1 and 2: -0.5, -0.75.
    for _, copy in ipairs(v.values) do
      assert.same({ { -1.5, -1.5 }, { 0.75, 0.75 }, { 1.75, 1.75 } },
        copy:totable())
    end
  end)

  R.each(it, pending, "K16 slots once per copy, on its device", function(s, n)
    local v, opt = s:scope(function()
      return tf.Variable({ 1.0 }, { name = "w" }), O.Adam()
    end)
    s:run(function() opt:apply_gradients({ tf.ones { 1 } }, { v }) end)
    local slot = opt:get_slot(v, "m")
    assert.equal("w/m", slot.name)
    for i, copy in ipairs(slot.values) do
      assert.equal(s.extended.worker_devices[i], copy.device)
      assert.equal(i == 1 and "w/m" or "w/m/replica_" .. i - 1, copy.name)
    end
    assert.equal(3, #opt.variables)
    assert.equal(n, #opt.iterations.values)
  end)

  R.each(it, pending, "training equals training on the whole batch",
    function(s, n)
      -- 4n examples of y = 3x + 1; losses divided by the global batch.
      local xs, ys = {}, {}
      for i = 1, 4 * n do
        xs[i], ys[i] = i / (4 * n), 3 * i / (4 * n) + 1
      end
      local function losses(w, b, x, y)
        return (x * w + b - y) ^ 2
      end
      for name, make in pairs(made) do
        local w0, b0 = tf.Variable(0.0), tf.Variable(0.0)
        local alone = make()
        local w, b, opt = s:scope(function()
          return tf.Variable(0.0), tf.Variable(0.0), make()
        end)
        for _ = 1, 5 do
          local tape, loss = tf.GradientTape(function()
            return tf.nn.compute_average_loss(losses(w0, b0, tf.constant(xs),
              tf.constant(ys)))
          end)
          alone:apply_gradients(tape:gradient(loss, { w0, b0 }), { w0, b0 })
          s:run(function()
            local x, y = {}, {}
            for i = 1, 4 do
              x[i], y[i] = xs[4 * R.id() + i], ys[4 * R.id() + i]
            end
            local own, part = tf.GradientTape(function()
              return tf.nn.compute_average_loss(losses(w, b, tf.constant(x),
                tf.constant(y)))
            end)
            opt:apply_gradients(own:gradient(part, { w, b }), { w, b })
          end)
        end
        local first = locals(s, w)
        for i = 2, n do assert.equal(first[1], first[i]) end
        assert.near(w0:item(), first[1], 2e-5, name)
        assert.near(b0:item(), b:read_value():item(), 2e-5, name)
      end
    end)

  R.each(it, pending, "K18 reduce_to and update make progress", function(s)
    local w = s:scope(function() return tf.Variable(3.0) end)
    local before
    for _ = 1, 10 do
      local g = s:run(function()
        local tape, loss = tf.GradientTape(function()
          return (w - 1) ^ 2 / s.num_replicas_in_sync
        end)
        return tape:gradient(loss, w)
      end)
      s.extended:update(w, function(copy, grad)
        copy:assign_sub(grad * 0.2)
      end, { s.extended:reduce_to("SUM", g, w) })
      local now = math.abs(w:read_value():item() - 1)
      assert.is_true(before == nil or now < before)
      before = now
    end
    assert.is_true(before < 0.05)
  end)

  R.each(it, pending, "errors of apply_gradients", function(s)
    local v, opt = s:scope(function()
      return tf.Variable(1.0, { name = "w" }), O.SGD()
    end)
    s:scope(function()
      fails("RuntimeError", "cannot be called in cross-replica context",
        opt.apply_gradients, opt, { tf.constant(1.0) }, { v })
    end)
    fails("ValueError", "No gradients provided for any variable: w", s.run, s,
      function() opt:apply_gradients({ n = 1 }, { v }) end)
    s:run(function() opt:apply_gradients({ n = 0 }, { n = 0 }) end)
    assert.equal(1, v:read_value():item())
    local stranger = tf.Variable({ 1.0, 2.0 }, { name = "dense/kernel" })
    local e = fails("ValueError", 'got variable "dense/kernel" {2} that was '
      .. "made outside this strategy's scope (made at ", s.run, s, function()
        opt:apply_gradients({ tf.ones { 2 } }, { stranger })
      end)
    assert.is_truthy(e.hint:find("strategy:scope", 1, true))
    s:run(function()
      opt:apply_gradients({ { nil, v, n = 2 }, { tf.constant(1.0), v } })
    end)
  end)

  it("clips after adding up", function()
    local function step(options)
      options.learning_rate = 1
      local a, b = tf.Variable { 0.0, 0.0 }, tf.Variable(0.0)
      O.SGD(options):apply_gradients({ tf.constant { 3.0, 4.0 },
        tf.constant(12.0) }, { a, b })
      local flat = a:totable()
      return { -flat[1], -flat[2], -b:item() }
    end
    near({ 3, 3.5, 3.5 }, step { clipvalue = 3.5 })
    near({ 0.6, 0.8, 1 }, step { clipnorm = 1 })
    near({ 3 / 13, 4 / 13, 12 / 13 }, step { global_clipnorm = 1 })
  end)

  it("clips in one way", function()
    fails("ValueError", "SGD: only one of clipnorm, clipvalue and "
      .. "global_clipnorm can be set, got clipnorm and clipvalue", O.SGD,
      { clipnorm = 1, clipvalue = 1 })
    fails("ValueError", "got clipvalue and global_clipnorm", O.Adam,
      { clipvalue = 1, global_clipnorm = 1 })
  end)

  it("takes as many gradients as variables", function()
    local a, b = tf.Variable(1.0), tf.Variable(1.0)
    local opt = O.SGD { learning_rate = 1 }
    local one = tf.constant(1.0)
    fails("ValueError", "1 gradients for 2 variables", opt.apply_gradients,
      opt, { one }, { a, b })
    fails("ValueError", "2 gradients for 1 variables", opt.apply_gradients,
      opt, { one, one }, { a })
    fails("ValueError", "3 gradients for 2 variables", opt.apply_gradients,
      opt, { nil, one, one }, { a, b })
    assert.equal(1, a:item())
    opt:apply_gradients({ nil, one }, { a, b })
    opt:apply_gradients({ one, n = 2 }, { a, b })
    assert.equal(0, a:item())
    assert.equal(0, b:item())
  end)

  it("weight decay takes a share of all but the excluded", function()
    local a, b = tf.Variable(4.0, { name = "w" }), tf.Variable(4.0,
      { name = "bias" })
    local opt = O.SGD { learning_rate = 0.5, weight_decay = 0.25 }
    opt:exclude_from_weight_decay { var_names = { "bias" } }
    opt:apply_gradients({ tf.constant(1.0), tf.constant(1.0) }, { a, b })
    assert.equal(4 - 4 * 0.125 - 0.5, a:item())
    assert.equal(3.5, b:item())
    opt:exclude_from_weight_decay { a }
    opt:apply_gradients({ tf.constant(0.0), tf.constant(0.0) }, { a, b })
    assert.equal(3, a:item())
    assert.equal(3.0625, b:item())
    assert.equal(0.004, O.AdamW().weight_decay)
    local c, adam, same = tf.Variable(1.0), O.AdamW(0.1), { x = 1.0 }
    for t = 1, 3 do
      adam:apply_gradients({ tf.constant(0.5) }, { c })
      same.x = same.x * (1 - 0.1 * 0.004)
      reference.Adam(same, 0.5, t)
      assert.near(same.x, c:item(), 1e-6)
    end
  end)

  it("keeps a running mean of the variables", function()
    local v = tf.Variable(1.0)
    local opt = O.SGD { learning_rate = 1, use_ema = true, ema_momentum = 0.5,
      ema_overwrite_frequency = 3 }
    local x, mean = 1, nil
    for step = 1, 4 do
      opt:apply_gradients({ tf.constant(0.5) }, { v })
      x = x - 0.5
      mean = mean and mean * 0.5 + x * 0.5 or x
      if step == 3 then x = mean end
      assert.equal(x, v:item())
      assert.equal(mean, opt:get_slot(v, "average"):item())
    end
    opt:finalize_variable_values { v }
    assert.equal(mean, v:item())
  end)

  it("leaves the running means in the variables after fit", function()
    -- y = w x + b from w = 1, b = 0: w is 1, 0.5, 0.25, 0.125 without bias.
    local function fit(use_bias, given)
      given.use_ema, given.ema_momentum, given.learning_rate = true, 0.9, 0.1
      local m = tf.keras.Sequential { tf.keras.layers.Dense(1,
        { use_bias = use_bias, kernel_initializer = "ones" }) }
      m:compile { loss = "mse", optimizer = O.SGD(given) }
      m:fit(tf.constant { { 1 }, { 2 } }, tf.zeros { 2, 1 },
        { epochs = 3, verbose = 0 })
      return m.weights
    end
    local mean = 0.9 * (0.9 * 0.5 + 0.1 * 0.25) + 0.1 * 0.125
    assert.near(mean, fit(false, {})[1]:item(), 1e-6)
    -- Keras 3.15's values.
    assert.near(0.45125, fit(false, { ema_overwrite_frequency = 2 })[1]:item(),
      1e-6)
    local both = fit(true, {})
    assert.near(0.4643, both[1]:item(), 1e-6)
    assert.near(-0.3195, both[2]:item(), 1e-6)
  end)

  it("half types are updated in float32", function()
    for _, dtype in ipairs { "float16", "bfloat16" } do
      for name, make in pairs(made) do
        local v = tf.Variable(tf.cast(tf.fill({ 1500 }, 1.0), dtype))
        local opt, s = make(), { x = 1.0 }
        for t = 1, 3 do
          opt:apply_gradients({ tf.cast(tf.fill({ 1500 }, 0.5), dtype) },
            { v })
          reference[name](s, 0.5, t)
        end
        local numbers = tf.cast(v, "float32"):totable()
        assert.near(s.x, numbers[1], dtype == "float16" and 5e-3 or 4e-2, name)
        assert.equal(numbers[1], numbers[1500])
      end
    end
  end)

  it("refuses what makes no sense", function()
    fails("ValueError", "epsilon must be at least 0", O.Adam,
      { epsilon = -1 })
    fails("ValueError", "learning_rate must be at least 0, got nan", O.SGD,
      0 / 0)
    fails("TypeError", "rho must be a number", O.RMSprop, { rho = "0.9" })
    fails("ValueError", "learning_rate_power must be 0 or less", O.Ftrl,
      { learning_rate_power = 1 })
    fails("ValueError", "whole number of steps", O.SGD,
      { use_ema = true, ema_overwrite_frequency = 0.5 })
    local opt = O.SGD()
    fails("ValueError", "momentum must be between 0 and 1", function()
      opt.momentum = 2
    end)
    local v = tf.Variable({ { 1.0 }, { 2.0 } }, { constraint = tf.abs,
      name = "w" })
    fails("RuntimeError", "constraint", opt.apply_gradients, opt,
      { tf.IndexedSlices(tf.ones { 1, 1 }, { 0 }, { 2, 1 }) }, { v })
    local w = tf.Variable { { 1.0 }, { 2.0 } }
    fails("InvalidArgument", nil, function()
      opt:apply_gradients({ tf.IndexedSlices(tf.ones { 1, 1 }, { 5 },
        { 2, 1 }) }, { w })
      w:totable()
    end)
    local count = tf.Variable(1, { dtype = "int32" })
    fails("InvalidArgument", "floating", opt.apply_gradients, opt,
      { tf.constant(1, "int32") }, { count })
  end)

  it("minimize", function()
    local v, opt = tf.Variable(2.0), O.SGD(0.25)
    for _ = 1, 2 do opt:minimize(function() return v * v end, { v }) end
    assert.equal(0.5, v:item())
  end)

  it("may get other variables, in another order, at each step", function()
    local a, b, c = tf.Variable(0.0), tf.Variable(0.0), tf.Variable(0.0)
    local opt, vars = O.SGD(1), { a, b }
    local function step(x, y)
      opt:apply_gradients({ tf.constant(x), y and tf.constant(y), n = 2 }, vars)
    end
    step(1, 2)
    step(1, 2)
    vars[1], vars[2] = b, a -- the same table
    step(10, 20)
    vars[2] = c
    step(100)
    step(1000, 3)
    vars[2] = nil
    fails("ValueError", "2 gradients for 1 variables", step, 1, 2)
    assert.equal(-22, a:item())
    assert.equal(-1114, b:item())
    assert.equal(-3, c:item())
  end)

  it("constraints are applied after the update", function()
    local v = tf.Variable(0.5, { constraint = function(x)
      return tf.maximum(x, 0)
    end })
    O.SGD(1):apply_gradients({ tf.constant(1.0) }, { v })
    assert.equal(0, v:item())
  end)
end)

describe("schedules", function()
  it("follow their formulas", function()
    local S = O.schedules
    assert.near(0.1 * 0.5 ^ 1.5, S.ExponentialDecay(0.1, 2, 0.5)(3), 1e-12)
    assert.near(0.05, S.ExponentialDecay(0.1, 2, 0.5, true)(3), 1e-12)
    local p = S.PiecewiseConstantDecay({ 10, 20 }, { 3, 2, 1 })
    assert.same({ 3, 3, 2, 1 }, { p(0), p(10), p(11), p(21) })
    assert.near(0.55, S.PolynomialDecay(1, 10, 0.1)(5), 1e-12)
    assert.near(0.1, S.PolynomialDecay(1, 10, 0.1)(50), 1e-12)
    assert.near(0.5, S.InverseTimeDecay(1, 10, 1)(10), 1e-12)
    assert.near(0.5, S.CosineDecay(1, 10)(5), 1e-12)
    local warm = S.CosineDecay(0.2, 10, { warmup_target = 1, warmup_steps = 4,
      alpha = 0.1 })
    for step, want in pairs { [0] = 0.2, [1] = 0.4, [3] = 0.8, [4] = 1,
      [9] = 0.55, [14] = 0.1, [20] = 0.1 } do
      assert.near(want, warm(step), 1e-12)
    end
    assert.near(1, S.CosineDecayRestarts(1, 10)(10), 1e-9)
    assert.near(0.5, S.CosineDecayRestarts(1, 10)(20), 1e-9)
    assert.near(0.25, S.CosineDecayRestarts { initial_learning_rate = 1,
      first_decay_steps = 10, t_mul = 1, m_mul = 0.5 }(15), 1e-9)
  end)

  it("give the arguments they were made with", function()
    local S = O.schedules
    local config = S.PolynomialDecay(1, 10, { end_learning_rate = 0.1 })
      :get_config()
    assert.same({ name = "PolynomialDecay", initial_learning_rate = 1,
      decay_steps = 10, end_learning_rate = 0.1, power = 1, cycle = false },
      config)
    assert.near(0.55, S.PolynomialDecay(config)(5), 1e-12)
  end)

  it("refuse what is no number", function()
    local S = O.schedules
    fails("TypeError", "boundaries must be a list of numbers",
      S.PiecewiseConstantDecay, 0, { 1 })
    fails("TypeError", "values[2] must be a number, got the string",
      S.PiecewiseConstantDecay, { 10 }, { 1, "x" })
    fails("ValueError", "1 boundaries need 2 values",
      S.PiecewiseConstantDecay, { 10 }, { 1 })
    fails("TypeError", "end_learning_rate", S.PolynomialDecay, 1, 10, "x")
    fails("TypeError", "decay_rate", S.InverseTimeDecay, 1, 10, "x")
    fails("TypeError", "alpha", S.CosineDecay, 1, 10, "x")
    fails("TypeError", "m_mul", S.CosineDecayRestarts, 1, 10, 2, "x")
  end)
end)
