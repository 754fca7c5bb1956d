--- ShardedOptimizer: each replica keeps the slots of a part of every variable.
--- What the same optimizer gives unsharded, with the same gradients, is what it
--- must give, bit by bit.
local R = require "spec.support.replicas"
local files = require "spec.support.files"
local tf = require "tfdist"

local optimizers = tf.keras.optimizers
local Sharded = tf.distribute.experimental.ShardedOptimizer

-- By rows; by elements (few long rows); one element; none to share with all.
local SHAPES = { { 40, 3 }, { 3, 2000 }, {}, { 1 }, { 7 } }

local function values_of(shape, seed)
  return tf.random.stateless_normal(shape, { seed = { seed, 11 } })
end

local function variables(strategy, dtype)
  return strategy:scope(function()
    local list = {}
    for k, shape in ipairs(SHAPES) do
      list[k] = tf.Variable(tf.cast(values_of(shape, k), dtype or "float32"),
        { name = "v" .. k })
    end
    return list
  end)
end

-- The gradient of replica r for variable k in a step.
local function gradient(k, r, step, dtype)
  return tf.cast(values_of(SHAPES[k], 100 * step + 10 * k + r),
    dtype or "float32")
end

local function flat(x)
  return tf.reshape(tf.cast(x, "float64"), { -1 }):totable()
end

-- Bits of variables (all copies) and slots, by name.
local function state(strategy, optimizer, vars)
  local out = {}
  for k, v in ipairs(vars) do
    for i, copy in ipairs(strategy:experimental_local_results(v)) do
      out[("v%d copy %d"):format(k, i)] = flat(copy)
    end
    for _, name in ipairs(optimizer:get_slot_names()) do
      out[("v%d %s"):format(k, name)] = flat(optimizer:get_slot(v, name)
        :read_value())
    end
    local mean = optimizer:get_slot(v, "average")
    out["mean" .. k] = mean and flat(mean:read_value())
  end
  return out
end

-- Some steps of an optimizer; returns it with its variables.
local function train(strategy, make, steps, dtype, first)
  local vars = variables(strategy, dtype)
  local optimizer = strategy:scope(make)
  for step = first or 1, steps do
    strategy:run(function()
      local grads = { n = #vars }
      for k = 1, #vars do
        grads[k] = gradient(k, R.id(), step, dtype)
      end
      optimizer:apply_gradients(grads, vars)
    end)
  end
  return optimizer, vars
end

local function same(strategy, make, steps, dtype)
  local plain, plain_vars = train(strategy, make, steps, dtype)
  local sharded, vars = train(strategy, function()
    return Sharded(make())
  end, steps, dtype)
  assert.is_true(sharded.is_sharded)
  assert.same(state(strategy, plain, plain_vars),
    state(strategy, sharded, vars))
  assert.equal(steps, sharded.iterations:read_value():item())
end

local ALL = {
  SGD = { momentum = 0.9, nesterov = true }, Adam = { amsgrad = true },
  AdamW = { weight_decay = 0.1 }, Adamax = {}, Nadam = {},
  RMSprop = { momentum = 0.5, centered = true }, Adagrad = {}, Adadelta = {},
  Ftrl = { l1_regularization_strength = 0.01 },
}

describe("ShardedOptimizer", function()
  R.each(it, pending, "gives the bits of every optimizer", function(strategy)
    for name, given in pairs(ALL) do
      same(strategy, function()
        return optimizers[name](given)
      end, 3)
    end
    same(strategy, optimizers.SGD, 2) -- without slots
  end)

  R.each(it, pending, "gives them with everything around", function(strategy)
    for _, given in ipairs {
      { clipnorm = 0.5 }, { clipvalue = 0.3 }, { global_clipnorm = 1 },
      { use_ema = true, ema_momentum = 0.5, ema_overwrite_frequency = 2 },
      { weight_decay = 0.1, global_clipnorm = 2 } } do
      same(strategy, function()
        return optimizers.Adam(given)
      end, 3)
    end
    same(strategy, function()
      local o = optimizers.AdamW { weight_decay = 0.2 }
      o:exclude_from_weight_decay { var_names = { "v2", "v5" } }
      return o
    end, 2)
    for _, dtype in ipairs { "float64", "bfloat16", "float16" } do
      same(strategy, optimizers.Adam, 2, dtype)
    end
  end)

  R.each(it, pending, "takes gradients that were summed before",
    function(strategy)
      local function run(make)
        local vars = variables(strategy)
        local o = strategy:scope(make)
        strategy:run(function()
          local grads = {}
          for k = 1, #vars do
            grads[k] = R.ctx():all_reduce("SUM", gradient(k, R.id(), 1))
          end
          o:apply_gradients(grads, vars,
            { skip_gradients_aggregation = true })
        end)
        return state(strategy, o, vars)
      end
      assert.same(run(optimizers.Adam), run(function()
        return Sharded(optimizers.Adam())
      end))
    end)

  R.each(it, pending, "updates the rows that sparse gradients name",
    function(strategy)
      local function run(make)
        local table_, w, o = strategy:scope(function()
          return tf.Variable(values_of({ 50, 4 }, 1)),
            tf.Variable(values_of({ 4 }, 2)), make()
        end)
        for step = 1, 3 do
          strategy:run(function()
            local r = R.id()
            local at = tf.constant({ (7 * r + step) % 50, 49, 3, 3 }, "int64")
            o:apply_gradients({
              tf.IndexedSlices(values_of({ 4, 4 }, 10 * step + r), at,
                { 50, 4 }),
              values_of({ 4 }, 50 + r) }, { table_, w })
          end)
        end
        local out = {}
        for k, v in ipairs { table_, w } do
          out[k] = flat(v)
          for _, name in ipairs(o:get_slot_names()) do
            out[k .. name] = flat(o:get_slot(v, name):read_value())
          end
        end
        return out
      end
      for _, given in ipairs { { "Adam", {} }, { "Adagrad", {} },
        { "RMSprop", {} }, { "SGD", { momentum = 0.9 } },
        { "AdamW", { weight_decay = 0.1 } }, { "Adam", { clipnorm = 0.1 } },
        { "Adam", { global_clipnorm = 0.1 } } } do
        local function make()
          return optimizers[given[1]](given[2])
        end
        assert.same(run(make), run(function()
          return Sharded(make())
        end), given[1])
      end
    end)

  R.pair(it, pending, "a variable of few long rows takes no sparse gradient",
    function(strategy)
      local v, o = strategy:scope(function()
        return tf.Variable(tf.zeros { 3, 2000 }, { name = "few" }),
          Sharded(optimizers.Adam())
      end)
      local e = R.fails("NotImplementedError", "\"few\" {3, 2000}", function()
        strategy:run(function()
          o:apply_gradients({ tf.IndexedSlices(tf.ones { 1, 2000 },
            tf.constant({ 1 }, "int64"), { 3, 2000 }) }, { v })
        end)
      end)
      assert.truthy(e.hint:find("convert_to_tensor", 1, true))
      assert.equal(0, v:read_value():reshape({ -1 })[0]:item())
    end)

  R.each(it, pending, "divides the memory of slots", function(strategy, n)
    local rows, columns = 64 * n, 1000
    local bytes = 4 * rows * columns
    local function used(make)
      local v, o = strategy:scope(function()
        return tf.Variable(tf.zeros { rows, columns }), make()
      end)
      collectgarbage()
      collectgarbage()
      local before, more = {}, {}
      local function current(i)
        return tf.config.experimental.get_memory_info(
          strategy.extended.worker_devices[i]).current
      end
      for i = 1, n do
        before[i] = current(i)
      end
      o:build { v }
      collectgarbage()
      collectgarbage()
      for i = 1, n do
        more[i] = current(i) - before[i]
      end
      assert.truthy(v and o)
      return more
    end
    local plain = used(optimizers.Adam)
    local sharded = used(function()
      return Sharded(optimizers.Adam())
    end)
    for i = 1, n do
      assert.is_true(plain[i] >= 2 * bytes)
      -- a page for the step count and what the pool rounds up to
      assert.is_true(sharded[i] <= 2 * bytes / n * 1.13 + 4096,
        ("device %d: %d of %d bytes"):format(i, sharded[i], 2 * bytes))
    end
  end)

  R.each(it, pending, "is saved whole and restored into any parts",
    function(strategy, n)
      local base = files.place()
      local function make()
        return optimizers.Adam { learning_rate = 0.01, use_ema = true }
      end
      local function sharded()
        return Sharded(make())
      end
      local function checkpoint(o, vars)
        return tf.train.Checkpoint { optimizer = o, vars = vars }
      end
      local wanted = state(strategy, train(strategy, make, 4))
      local others = { strategy, R.mirrored(2),
        n > 2 and R.mirrored(n - 1) or R.mirrored(2) }
      for a, from in ipairs { make, sharded } do
        local o, vars = train(strategy, from, 2)
        local path = checkpoint(o, vars):save(base .. a)
        for b, into in ipairs { make, sharded } do
          for c, other in ipairs(others) do
            local o2 = other:scope(into)
            local vars2 = variables(other)
            local status = checkpoint(o2, vars2):restore(path)
            o2:build(vars2)
            status:assert_consumed()
            local found = state(other, o2, vars2)
            for key, value in pairs(state(strategy, o, vars)) do
              if not key:find "copy" then
                assert.same(value, found[key], ("%s %d %d %d"):format(key, a, b,
                  c))
              end
            end
            if c == 1 then -- and it goes on as if it had never stopped
              for step = 3, 4 do
                other:run(function()
                  local grads = {}
                  for k = 1, #vars2 do
                    grads[k] = gradient(k, R.id(), step)
                  end
                  o2:apply_gradients(grads, vars2)
                end)
              end
              assert.same(wanted, state(other, o2, vars2))
            end
          end
        end
        os.remove(path .. ".safetensors")
      end
    end)

  R.pair(it, pending, "works inside of loss scaling", function(strategy)
    local function run(make)
      local vars = variables(strategy)
      local o = strategy:scope(function()
        return tf.keras.mixed_precision.LossScaleOptimizer(make(),
          { dynamic_growth_steps = 2 })
      end)
      for step = 1, 3 do
        strategy:run(function()
          local grads = {}
          for k = 1, #vars do
            grads[k] = gradient(k, R.id(), step)
              * (step == 2 and k == 2 and math.huge or 1)
          end
          o:apply_gradients(o:get_unscaled_gradients(grads), vars)
        end)
      end
      assert.equal(2, o.iterations:read_value():item())
      return state(strategy, o.inner_optimizer, vars)
    end
    assert.same(run(optimizers.Adam), run(function()
      return Sharded(optimizers.Adam())
    end))
  end)

  R.pair(it, pending, "slots read and take whole values", function(strategy)
    local o, vars = train(strategy, function()
      return Sharded(optimizers.Adam())
    end, 1)
    local m = o:get_slot(vars[1], "m")
    assert.equal("float32", m.dtype)
    assert.same({ 40, 3 }, m.shape)
    assert.equal("v1/m", m.name)
    assert.is_false(m.trainable)
    assert.equal(2, m.parts.n)
    assert.same({ 60 }, m.parts[2].shape)
    assert.equal('SharedSlot "v1/m" float32 {40, 3}, in 2 parts', tostring(m))
    local x = values_of({ 40, 3 }, 77)
    m:assign(x)
    assert.same(flat(x), flat(m:read_value()))
    assert.same(x:totable(), m:totable())
    R.fails("ValueError", "{40, 3}", m.assign, m, tf.zeros { 3, 40 })
    R.fails("ValueError", "float64", m.assign, m, tf.zeros({ 40, 3 },
      "float64"))
    R.fails("KeyError", "read_valu", function() return m.read_valu end)
    R.fails("KeyError", "no field", function() m.name = "x" end)
    R.fails("TypeError", "slot", m.read_value)
    assert.equal(1 + 2 * #vars, #o.variables)
    assert.truthy(tostring(o):find("sharded", 1, true))
  end)

  it("says what it cannot take", function()
    local adam = optimizers.Adam()
    local v = tf.Variable { 1, 2 }
    adam:apply_gradients({ tf.ones { 2 } }, { v })
    R.fails("ValueError", "slots already", Sharded, adam)
    R.fails("ValueError", "is one already", Sharded,
      Sharded(optimizers.Adam()))
    local e = R.fails("TypeError", "LossScaleOptimizer", Sharded,
      tf.keras.mixed_precision.LossScaleOptimizer(optimizers.Adam()))
    assert.truthy(e.hint:find("LossScaleOptimizer(ShardedOptimizer", 1, true))
    for _, x in ipairs { 3, {}, true, v } do
      R.fails("TypeError", "optimizer", Sharded, x)
    end
    R.fails("ValueError", "unknown optimizer", Sharded, "adamm")
    R.fails("TypeError", "ShardedOptimizer", Sharded)
    assert.is_true(Sharded("adam").is_sharded)
    assert.is_false(optimizers.Adam().is_sharded)
  end)

  it("is the optimizer itself where there is one replica", function()
    local strategy = R.mirrored(1)
    same(strategy, optimizers.Adam, 2)
    local v, o = tf.Variable { 1, 2 }, Sharded(optimizers.Adam())
    o:apply_gradients({ tf.ones { 2 } }, { v })
    assert.equal("userdata", type(o:get_slot(v, "m")))
    local step = tf.function_(function()
      o:apply_gradients({ tf.ones { 2 } }, { v })
    end)
    step()
    step()
    assert.equal(3, o.iterations:read_value():item())
  end)

  R.pair(it, pending, "is traced with dense gradients", function(strategy)
    local function steps(wrap)
      local v, o = strategy:scope(function()
        return tf.Variable(tf.zeros { 40 }), Sharded(optimizers.Adam(0.1))
      end)
      o:build { v }
      local step = wrap(function(x)
        strategy:run(function()
          o:apply_gradients({ x * 2 - v }, { v })
        end)
      end)
      local x = tf.cast(tf.range(40), "float32")
      for i = 1, 4 do step(x * (i / 10)) end
      return { v:totable(), o:get_slot(v, "m"):totable(),
        o.iterations:read_value():item() }
    end
    assert.same(steps(function(fn) return fn end), steps(tf.function_))
  end)

  R.pair(it, pending, "is not traced with sparse ones", function(strategy)
    local v, o = strategy:scope(function()
      return tf.Variable(tf.zeros { 40, 2 }), Sharded(optimizers.Adam())
    end)
    o:build { v }
    local step = tf.function_(function()
      o:apply_gradients({ tf.IndexedSlices(tf.ones { 1, 2 }, tf.constant({ 3 },
        "int64"), { 40, 2 }) }, { v })
    end)
    R.fails("NotImplementedError", "sparse gradient", function()
      strategy:run(step)
    end)
  end)

  R.pair(it, pending, "leaves variables that have one copy alone", function()
    local strategy = tf.distribute.experimental.CentralStorageStrategy {
      compute_devices = { "CPU:0", "CPU:1" }, parameter_device = "CPU:0" }
    same(strategy, optimizers.Adam, 2)
  end)

  R.pair(it, pending, "is refused where another strategy's variables are",
    function(strategy)
      local o, vars = train(strategy, function()
        return Sharded(optimizers.Adam())
      end, 1)
      local other = R.mirrored(2)
      R.fails("ValueError", "made outside", function()
        other:run(function()
          o:apply_gradients({ gradient(1, 0, 1) }, { vars[1] })
        end)
      end)
      R.fails("InvalidArgument", "v2", function()
        strategy:run(function()
          o:apply_gradients({ gradient(1, 0, 1), tf.ones { 2000, 3 } },
            { vars[1], vars[2] })
        end)
      end)
    end)
end)
