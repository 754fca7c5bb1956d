--- A tape around a call of a traced function: the call is one step of the tape,
--- its gradient a graph.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local seed = require "spec.support.seed"

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

local exact = os.getenv "TFDIST_FUSION" == "0"

local draws = 0

local function random(dims)
  draws = draws + 1
  return tf.random.uniform(dims, 0.3, 1.7, { seed = seed + draws })
end

-- Values in one list; what is absent is "none".
local function values(x)
  return x == nil and "none" or tf.convert_to_tensor(x):toflat()
end

-- Equal bits where each node runs by itself; else as sums may round.
local function same(want, got, label)
  want, got = values(want), values(got)
  if exact or type(want) == "string" then
    return assert.are.same(want, got, label)
  end
  assert.are.equal(#want, #got, label)
  for i = 1, #want do
    assert.is_true(math.abs(want[i] - got[i])
      <= 1e-5 * math.max(1, math.abs(want[i])),
      ("%s, element %d: %g, not %g"):format(label, i, got[i], want[i]))
  end
end

-- The outputs of fn(xs...) and gradients of `pick(outputs)` by sources, and how
-- many steps the tape has.
local function differentiate(fn, xs, sources, pick)
  local outs
  local tape = tf.GradientTape(function(t)
    t:watch(xs)
    outs = { fn(unpack(xs)) }
  end)
  local steps = raw.tape_length(tape.handle)
  return outs, tape:gradient(pick and pick(outs) or outs, sources), steps
end

-- fn line by line and traced, twice, from one seed.
local function check(fn, xs, sources, pick)
  local f = tf.function_(fn)
  tf.random.set_seed(3)
  local want, grads = differentiate(fn, xs, sources, pick)
  for time = 1, 2 do
    tf.random.set_seed(3)
    local got, traced, steps = differentiate(f, xs, sources, pick)
    assert.are.equal(1, steps)
    for i = 1, #want do
      same(want[i], got[i], ("result %d of call %d"):format(i, time))
    end
    for i = 1, sources.n or #sources do
      same(grads[i], traced[i], ("gradient %d of call %d"):format(i, time))
    end
  end
  assert.are.equal(1, f:experimental_get_tracing_count())
  return f
end

describe("a tape around a traced function", function()
  it("has one step for the call, with the gradients of its ops", function()
    local w, b = tf.Variable(random { 5, 3 }), tf.Variable(random { 3 })
    local x = random { 4, 5 }
    check(function(a)
      return tf.reduce_sum(tf.tanh(tf.matmul(a, w) * 0.1 + b) ^ 2)
    end, { x }, { w, b, x })
  end)

  it("gives what the closed form says", function()
    local v = tf.Variable(3.0)
    local x = tf.constant(2.0)
    local f = tf.function_(function(a) return a * a * v end)
    local outs, grads = differentiate(f, { x }, { x, v })
    assert.are.same({ 12, 12, 4 },
      { outs[1]:item(), grads[1]:item(), grads[2]:item() })
  end)

  it("adds what arrives at several results, and leaves out the others",
    function()
      local v = tf.Variable(random { 3 })
      local x, y = random { 3 }, random { 3 }
      local function fn(a, c)
        local p = a * v
        return p, tf.exp(p) * c, tf.cast(a, "int32"), c - 1
      end
      check(fn, { x, y }, { x, y, v }, function(outs)
        return { outs[1], outs[2], outs[4] }
      end)
      for _, i in ipairs { 1, 2, 4 } do
        check(fn, { x, y }, { x, y, v, n = 3 }, function(outs)
          return outs[i]
        end)
      end
    end)

  it("follows what it watches and nothing else", function()
    local v = tf.Variable(random { 3 })
    local still = tf.Variable(random { 3 }, { trainable = false })
    local taken, x = random { 3 }, random { 3 }
    local f = tf.function_(function(a) return a * v * still * (taken * a) end)
    local function by(fn, watched)
      local y
      local tape = tf.GradientTape(function(t)
        t:watch(watched)
        y = fn(x)
      end)
      local seen = tape:watched_variables()
      return { tape:gradient(y, { x, v, still, taken }), #seen }
    end
    for _, watched in ipairs { {}, { x }, { still }, { taken },
                               { x, still, taken } } do
      local want, got = by(f.python_function, watched), by(f, watched)
      assert.are.equal(want[2], got[2])
      for i = 1, 4 do
        same(want[1][i], got[1][i], "gradient " .. i)
      end
    end
  end)

  it("takes no part where it follows nothing", function()
    local f = tf.function_(function(a) return tf.exp(a) * 2 end)
    local x = random { 3 }
    local tape, y = tf.GradientTape(function() return f(x) end)
    assert.are.equal(0, raw.tape_length(tape.handle))
    assert.are.equal("none", values(tape:gradient(y, x)))
    assert.truthy(f:get_concrete_function(x):graph "lowered":find "%d calls")
  end)

  it("keeps what the gradient reads and no more", function()
    local x, w = random { 4, 5 }, tf.Variable(random { 5, 3 })
    local f = tf.function_(function(a)
      return tf.reduce_sum(tf.tanh(tf.matmul(a * 2 + 1, w)) + 3)
    end)
    differentiate(f, { x }, { w })
    local whole = f:get_concrete_function(x).wholes[""]
    local _, forward = next(whole.forward)
    assert.are.equal(2, forward.saved.n) -- tanh, and what the product takes
  end)

  it("keeps variables as they were", function()
    local v = tf.Variable(random { 3 })
    local function late(fn)
      local y
      v:assign { 1, 2, 3 }
      local tape = tf.GradientTape(function() y = fn() end)
      v:assign { 7, 8, 9 }
      return tape:gradient(y, v)
    end
    local f = tf.function_(function() return v * v * v end)
    assert.are.same({ 3, 12, 27 }, late(f):toflat())
    assert.are.same({ 3, 12, 27 }, late(f):toflat())
  end)

  it("sees variables that the call writes before and after", function()
    local v = tf.Variable(random { 3 })
    local x = random { 3 }
    local start = v:read_value()
    local function fn(a)
      local before = v * a
      v:assign_add(a)
      return before, v * v * a
    end
    local function fresh(g)
      return function(a)
        v:assign(start)
        return g(a)
      end
    end
    local f = tf.function_(fn)
    local want, grads = differentiate(fresh(fn), { x }, { x, v })
    for _ = 1, 2 do
      local got, traced = differentiate(fresh(f), { x }, { x, v })
      for i = 1, 2 do
        same(want[i], got[i], "result")
        same(grads[i], traced[i], "gradient")
      end
    end
  end)

  it("uses the mask that the call drew", function()
    local x = random { 64 }
    check(function(a)
      return tf.nn.dropout(a, 0.5) * a
    end, { x }, { x })
  end)

  it("stops where the function says", function()
    local x = random { 3 }
    check(function(a)
      return a * tf.stop_gradient(a * a) + tf.stop_gradient(a)
    end, { x }, { x })
  end)

  it("follows functions of any number of arguments and constants", function()
    local n = 5000
    local sum = n * (n + 1) / 2 -- exact in float32
    local weighted = tf.function_(function(x)
      local y = tf.zeros {}
      for i = 1, n do
        y = y + x * i
      end
      return y
    end)
    local v = tf.Variable(1)
    local x = tf.constant(1)
    local tape, y = tf.GradientTape(function(t)
      t:watch(x)
      return weighted(x)
    end)
    assert.are.equal(sum, y:item())
    assert.are.equal(sum, tape:gradient(y, x):item())

    local list = {}
    for i = 1, n do
      list[i] = tf.constant(i)
    end
    local all = tf.function_(function(xs)
      return tf.add_n(xs) * v
    end)
    tape, y = tf.GradientTape(function(t)
      t:watch(list[n])
      return all(list)
    end)
    assert.are.equal(1, tape:gradient(y, list[n]):item())
    tape, y = tf.GradientTape(function()
      return all(list)
    end)
    assert.are.equal(sum, tape:gradient(y, v):item())
  end)

  it("goes through loops and branches", function()
    local v = tf.Variable(random { 3 })
    local x, n = random { 3 }, tf.constant(3, "int32")
    check(function(a)
      local _, y = tf.while_loop(function(i) return tf.less(i, n) end,
        function(i, y) return i + 1, tf.tanh(y * v) end,
        { tf.constant(0, "int32"), a * 1 })
      return tf.cond(tf.less(tf.reduce_sum(y), 0), function() return y * v end,
        function() return tf.exp(y) end)
    end, { x }, { x, v })
  end)

  it("takes gradients that the function defines", function()
    local v = tf.Variable(random { 3 })
    local x = random { 3 }
    local custom = tf.custom_gradient(function(a)
      return a * 2, function(dy) return dy * a * 5 end
    end)
    check(function(a) return custom(a * v) * a end, { x }, { x, v })
    local again = tf.recompute_grad(function(a) return tf.tanh(a * v) end)
    check(function(a) return again(a) * a end, { x }, { x, v })
  end)

  it("serves a graph of open sizes", function()
    local v = tf.Variable(random { 3 })
    local function fn(a) return tf.reduce_sum(tf.tanh(a * v)) end
    local f = tf.function_(fn, { input_signature = {
      tf.TensorSpec({ -1, 3 }, "float32") } })
    for _, rows in ipairs { 2, 5, 2, 1, 3, 4, 6, 7, 8, 9, 2 } do
      local x = random { rows, 3 }
      local want, grads = differentiate(fn, { x }, { x, v })
      local got, traced, steps = differentiate(f, { x }, { x, v })
      assert.are.equal(1, steps)
      same(want[1], got[1], "result")
      for i = 1, 2 do
        same(grads[i], traced[i], "gradient " .. i)
      end
    end
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("runs no Lua code of the function again without those", function()
    local runs = 0
    local f = tf.function_(function(a)
      runs = runs + 1
      return a * a
    end)
    local x = random { 3 }
    for _ = 1, 2 do
      differentiate(f, { x }, { x })
    end
    assert.are.equal(1, runs)
  end)

  it("gives rows of tables", function()
    local table_ = tf.Variable(random { 6, 2 })
    local f = tf.function_(function(ids)
      return tf.reduce_sum(tf.gather(table_, ids) ^ 2)
    end)
    local ids = tf.constant({ 4, 1, 4 }, "int32")
    local tape, y = tf.GradientTape(function() return f(ids) end)
    local grad = tape:gradient(y, table_)
    assert.are.equal("slices", raw.kind(grad))
    local plain, z = tf.GradientTape(function()
      return f.python_function(ids)
    end)
    same(plain:gradient(z, table_), grad, "rows")
  end)

  it("may be asked again when it is persistent", function()
    local x = random { 3 }
    local function fn(a) return a * a, tf.exp(a) end
    local function asked(g)
      local y, z
      local tape = tf.GradientTape(function(t)
        t:watch(x)
        y, z = g(x)
      end, { persistent = true })
      return { tape:gradient(y, x), tape:gradient(z, x),
        tape:gradient({ y, z }, x), tape:jacobian(y, x), tape:gradient(y, x) }
    end
    local want, got = asked(fn), asked(tf.function_(fn))
    for i = 1, 5 do
      same(want[i], got[i], "gradient " .. i)
    end
  end)

  it("has gradients of gradients", function()
    local x = tf.constant(2.0)
    local v = tf.Variable(3.0)
    local f = tf.function_(function(a)
      return a * a * a * v * tf.stop_gradient(a)
    end)
    local outer, first = tf.GradientTape(function(t)
      t:watch(x)
      local inner, y = tf.GradientTape(function(s)
        s:watch(x)
        return f(x)
      end)
      return inner:gradient(y, { x, v })
    end, { persistent = true })
    -- 3 x^2 v s and x^3 s with s = x, which has no slope
    assert.are.same({ 72, 16 }, { first[1]:item(), first[2]:item() })
    local xx, xv = unpack(outer:gradient(first[1], { x, v }))
    assert.are.same({ 72, 24 }, { xx:item(), xv:item() })
    assert.are.equal(24, outer:gradient(first[2], x):item())
  end)

  it("has gradients of a value and of its gradient, to the bit", function()
    local function fn(a) return tf.exp(tf.sin(a) * a) end
    local x = tf.random.uniform({ 64 }, 0.3, 4, { seed = 3 })
    local function second(f)
      local outs
      local outer = tf.GradientTape(function(t)
        t:watch(x)
        local inner, y = tf.GradientTape(function(s)
          s:watch(x)
          return f(x)
        end)
        outs = { y, inner:gradient(y, x) }
      end)
      return outer:gradient(outs, x)
    end
    assert.are.same(values(second(fn)), values(second(tf.function_(fn))))
  end)

  it("gives all gradients on without a handle in between", function()
    local v = tf.Variable(random { 3 })
    local x = random { 3 }
    local function fn(a) return tf.tanh(a) * v end
    local _, want = differentiate(fn, { x }, { x, v })
    local supply = raw.walk_supply
    raw.walk_supply = nil
    local ok, _, got = pcall(differentiate, tf.function_(fn), { x }, { x, v })
    raw.walk_supply = supply
    assert.is_true(ok)
    for i = 1, 2 do same(want[i], got[i], "gradient " .. i) end
  end)

  it("follows gradients that it takes itself", function()
    local x = tf.constant(2.0)
    local f = tf.function_(function(a) return a * a * a end)
    local first
    local tape = tf.GradientTape(function(t)
      t:watch(x)
      first = t:gradient(f(x), x)
    end, { persistent = true })
    assert.are.equal(12, first:item())
    assert.are.equal(12, tape:gradient(first, x):item())
  end)

  it("goes on through other ops and calls", function()
    local v = tf.Variable(random { 3 })
    local x = random { 3 }
    local f = tf.function_(function(a) return tf.tanh(a) * v end)
    local function chain(g)
      return function(a) return g(tf.exp(g(a * 2))) + 1 end
    end
    local want, grads = differentiate(chain(f.python_function), { x }, { x, v })
    local got, traced, steps = differentiate(chain(f), { x }, { x, v })
    assert.are.equal(5, steps) -- two calls among multiply, exp and add
    same(want[1], got[1], "result")
    for i = 1, 2 do
      same(grads[i], traced[i], "gradient " .. i)
    end
  end)

  it("adds up in the order of the uses", function()
    local v = tf.Variable(1.0)
    local small, large = tf.constant(1.0), tf.constant(1e8)
    local f = tf.function_(function() return v * small - v * large end)
    local y
    local tape = tf.GradientTape(function()
      y = f()
      y = y + v * large
    end)
    -- (1e8 - 1e8) + 1, where 1e8 + (1 - 1e8) is 0
    assert.are.equal(1, tape:gradient(y, v):item())
  end)

  it("adds up in that order behind rows of an embedding", function()
    local v = tf.Variable(tf.ones { 3, 1 })
    local large = tf.constant(1e8)
    local rows = tf.constant({ 2, 0, 2 }, "int32")
    local dense = tf.function_(function() return v * large - v * large end)
    local sparse = tf.function_(function()
      return (tf.gather(v, rows) * large) - (tf.gather(v, rows) * large)
    end)
    local function slope(f, ids)
      local y
      local tape = tf.GradientTape(function()
        y = tf.reduce_sum(f())
        y = y + tf.reduce_sum(tf.gather(v, tf.constant(ids, "int32")))
      end)
      return tape:gradient(y, v)
    end
    -- (1 - 1e8) + 1e8 is 0 in float32, where 1 + (1e8 - 1e8) is 1.
    for _, ids in ipairs { { 0 }, { 0, 1 }, { 1, 0, 0 }, { 0 } } do
      local grad = slope(dense, ids)
      assert.are.equal("tensor", raw.kind(grad))
      assert.are.same({ 0, 0, 0 }, grad:toflat())
      grad = slope(sparse, ids)
      assert.are.equal("slices", raw.kind(grad))
      local want = slope(sparse.python_function, ids)
      assert.are.same(want.indices:toflat(), grad.indices:toflat())
      assert.are.same(want.values:toflat(), grad.values:toflat())
      assert.are.equal(0, values(grad)[1])
    end
  end)

  it("goes on with rows in any number", function()
    local v = tf.Variable(tf.ones { 4, 2 })
    local f = tf.function_(function() return v * v end)
    local function step(n)
      local y
      local tape = tf.GradientTape(function()
        y = tf.reduce_sum(f())
          + tf.reduce_sum(tf.gather(v, tf.zeros({ n }, "int32")))
      end)
      return tape:gradient(y, v):toflat()
    end
    for n = 1, 300 do
      assert.are.same({ 2 + n, 2 + n, 2, 2, 2, 2, 2, 2 }, step(n))
    end
  end)

  it("follows tensors that the trace alone computes with", function()
    local c, x = tf.constant { 2.0, 3.0 }, tf.constant { 5.0, 7.0 }
    local f = tf.function_(function(a) return a * c + c * c end)
    local function slope()
      local y
      local tape = tf.GradientTape(function(t)
        t:watch(c)
        y = f(x)
      end)
      return tape:gradient(y, c):toflat()
    end
    assert.are.same({ 9, 13 }, slope()) -- a + 2 c
    assert.are.same({ 14, 30 }, f(x):toflat())
    assert.are.same({ 9, 13 }, slope())
    local first
    local outer = tf.GradientTape(function(t)
      t:watch(c)
      local y
      local inner = tf.GradientTape(function(u)
        u:watch(c)
        y = f(x)
      end)
      first = inner:gradient(y, c)
    end)
    assert.are.same({ 2, 2 }, outer:gradient(first, c):toflat())
    local concrete = f:get_concrete_function(x)
    assert.are.same({ 14, 30 }, concrete(x):toflat())
    local ok, e = pcall(tf.GradientTape, function(t)
      t:watch(c)
      concrete(x)
    end)
    assert.is_false(ok)
    assert.are.equal("NotImplementedError", e.kind)
    assert.is_truthy(e.message:find("a tape follows a tensor from outside", 1,
      true), e.message)
  end)

  it("sees op after op where a tensor is given twice", function()
    local f = tf.function_(function(a, b) return a * b + a end)
    local x, y = random { 3 }, random { 3 }
    local function by(fn, b)
      local _, grads, steps = differentiate(fn, { x, b }, { x })
      return grads[1], steps
    end
    local grad, steps = by(f, x)
    same(by(f.python_function, x), grad, "twice")
    assert.are.equal(2, steps)
    grad, steps = by(f, y)
    same(by(f.python_function, y), grad, "once")
    assert.are.equal(1, steps)
  end)

  it("leaves nothing behind", function()
    local v = tf.Variable(tf.ones { 256, 256 })
    local f = tf.function_(function(a) return tf.tanh(a * v) * v end)
    local x = tf.ones { 256, 256 }
    local function used()
      for _ = 1, 2 do collectgarbage() end
      tf.sync_devices()
      return tf.config.experimental.get_memory_info(x.device).current
    end
    local function call()
      local tape, y = tf.GradientTape(function() return f(x) end)
      return tape, y
    end
    local tape, y = call()
    tape:gradient(y, v)
    tape, y = nil, nil
    local before = used(tape, y)
    tape, y = call()
    assert.is_true(used() >= before + 2 * 4 * 256 * 256) -- y and tanh
    tape:gradient(y, v)
    assert.is_true(used() < before + 2 * 4 * 256 * 256)
    tape, y = nil, nil
    assert.are.equal(before, used(), tape, y)
  end)

  it("says where the function was wrong", function()
    local f = tf.function_(function(a, i) return tf.gather(a, i) * 2 end)
    local line = debug.getinfo(1, "l").currentline - 1
    local x = random { 3 }
    tf.GradientTape(function(t)
      t:watch(x)
      return f(x, tf.constant({ 0 }, "int32"))
    end)
    local ok, e = pcall(function()
      local _, y = tf.GradientTape(function(t)
        t:watch(x)
        return f(x, tf.constant({ 9 }, "int32"))
      end)
      return y:toflat()
    end)
    assert.is_false(ok)
    assert.truthy(tostring(e):find("gather", 1, true), tostring(e))
    assert.truthy(tostring(e):find("tape_spec.lua:" .. line, 1, true),
      tostring(e))
  end)

  replicas.pair(it, pending, "works in a replica", function(strategy)
    local f, v
    strategy:scope(function() v = tf.Variable(random { 3 }) end)
    f = tf.function_(function(a) return tf.tanh(a * v) end)
    local x = random { 3 }
    local function step(g)
      return strategy:experimental_local_results(strategy:run(function()
        local tape, y = tf.GradientTape(function() return g(x) end)
        return tape:gradient(y, v)
      end))
    end
    local want = step(f.python_function)
    for _ = 1, 2 do
      local got = step(f)
      for i = 1, 2 do
        same(want[i], got[i], "replica " .. i)
      end
    end
  end)
end)

-- All are the third power.
local CUBES = {
  ["of ops"] = function(a) return a * a * a end,
  ["of a call"] = tf.function_(function(a) return a * a * a end),
  ["of a choice"] = function(a)
    return tf.cond(tf.less(a, 3), function() return a * a * a end,
      function() return a end)
  end,
  ["of a loop"] = function(a)
    return (select(2, tf.while_loop(function(i) return tf.less(i, 3) end,
      function(i, z) return i + 1, z * a end,
      { tf.constant(0), tf.ones_like(a) })))
  end,
  ["of a custom gradient"] = tf.custom_gradient(function(a)
    return a * a * a, function(dy) return dy * a * a * 3 end
  end),
}

describe("a variable that a custom gradient alone reads", function()
  it("has the value that it has when the gradient is asked for", function()
    for _, run in ipairs { function(fn) return fn end, tf.function_ } do
      for _, parts in ipairs { 1, 2 } do
        local w, v = tf.Variable(2.0), tf.Variable(7.0)
        local custom = tf.custom_gradient(function(a)
          return a * 3, function(dy) return dy * w end
        end)
        local f = run(function(x) return custom(x) * x, custom(x) * v end)
        local x, list = tf.constant(5.0), {}
        local tape = tf.GradientTape(function(t)
          t:watch(x)
          list = { f(x) }
          list = { unpack(list, 1, parts) }
        end, { persistent = true })
        -- d(custom(x) x) = w x + 3 x, and of the other result w v
        local more = parts == 2 and 7 or 0
        assert.are.equal(2 * (5 + more) + 15, tape:gradient(list, x):item())
        w:assign(10.0)
        assert.are.equal(10 * (5 + more) + 15, tape:gradient(list, x):item())
      end
    end
  end)
end)

describe("a persistent tape that still records", function()
  -- x^3 and its three derivatives by x, each asked of what the last one gave.
  local function derivatives(cube, x)
    local list
    tf.GradientTape(function(t)
      t:watch(x)
      local y = cube(x)
      local first = t:gradient(y, x)
      local second = t:gradient(first, x)
      list = { y, first, second, t:gradient(second, x) }
    end, { persistent = true })
    return unpack(list)
  end

  local function items(...)
    local list = { ... }
    for i = 1, select("#", ...) do list[i] = list[i]:item() end
    return list
  end

  for name, cube in pairs(CUBES) do
    local function fn(x) return derivatives(cube, x) end
    local f = tf.function_(fn)

    it("has gradients of gradients, " .. name, function()
      for _, g in ipairs { fn, f } do
        for _ = 1, 2 do
          assert.are.same({ 8, 12, 12, 6 }, items(g(tf.constant(2.0))))
        end
      end
    end)

    it("has them on a tape around, too, " .. name, function()
      local x = tf.constant(2.0)
      local outer, y, first, second = tf.GradientTape(function(t)
        t:watch(x)
        return f(x)
      end, { persistent = true })
      assert.are.same({ 12, 12, 6 }, items(outer:gradient(y, x),
        outer:gradient(first, x), outer:gradient(second, x)))
    end)
  end

  it("has them by a variable, and with a tape in each turn of a loop", function()
    local v = tf.Variable(2.0)
    local f = tf.function_(function(x)
      local first, second
      tf.GradientTape(function(t)
        first = t:gradient(v * v * v * x, v)
        second = t:gradient(first, v)
      end, { persistent = true })
      local turned = select(2, tf.while_loop(function(i)
        return tf.less(i, 2)
      end, function(i, z)
        local slope
        local tape = tf.GradientTape(function(t)
          t:watch(z)
          slope = t:gradient(z * z * z, z)
        end, { persistent = true })
        return i + 1, tape:gradient(slope, z) -- 6 z
      end, { tf.constant(0), x }))
      return first, second, turned
    end)
    assert.are.same({ 36, 36, 108 }, items(f(tf.constant(3.0))))
  end)

  -- A step of the host keeps a function from being one program.
  it("has those of a loop that begins and turns with transposed values",
    function()
      local f = tf.function_(function(x)
        tf.debugging.assert_less(x, 100.0)
        return (select(2, tf.while_loop(function(i) return tf.less(i, 2) end,
          function(i, z) return i + 1, tf.transpose(z * z) end,
          { tf.constant(0), tf.transpose(x) })))
      end)
      local x = tf.constant { { 1.0, 2 }, { 3, 4 } }
      for _ = 1, 2 do
        local tape, y = tf.GradientTape(function(t)
          t:watch(x)
          return f(x)
        end)
        assert.are.same({ { 1, 81 }, { 16, 256 } }, y:totable())
        assert.are.same({ { 4, 32 }, { 108, 256 } },
          tape:gradient(y, x):totable())
      end
    end)

  for name, branch in pairs { ["one program"] = false, ["a branch"] = true } do
    it("tells results of one value apart, with " .. name, function()
      local f = tf.function_(function(x)
        return tf.sin(x), tf.sin(x), branch and tf.cond(tf.greater(x, 0),
          function() return x * 2 end, function() return x end) or x * 2
      end)
      local x = tf.constant(1.5)
      for _ = 1, 2 do
        local a, b
        local tape = tf.GradientTape(function(t)
          t:watch(x)
          a, b = f(x)
        end, { persistent = true })
        assert.is_nil(tape:gradient(a, b))
        assert.is_nil(tape:gradient(b, a))
        assert.are.near(2 * math.cos(1.5), tape:gradient({ a, b }, x):item(),
          1e-6)
      end
    end)
  end
end)
