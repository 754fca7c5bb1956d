--- tf.GradientTape, with derivatives in closed form.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"
local leaks = require "spec.support.leaks"
local expect = require "spec.support.expect"

local caught = expect.caught

local function scalar(x)
  return tf.constant(x, "float64")
end

local function square(x)
  return x * x
end

-- Derivative of fn at x (a Lua number), as a number.
local function derivative(fn, x)
  x = scalar(x)
  local tape, y = tf.GradientTape(function(tape)
    tape:watch(x)
    return fn(x)
  end)
  return tape:gradient(y, x):item()
end

describe("tf.GradientTape", function()
  leaks(before_each, after_each)

  it("calls fn(tape) and returns the tape, then fn's results", function()
    local given
    local tape, a, b, c = tf.GradientTape(function(tape)
      given = tape
      return 1, nil, "three"
    end)
    assert.equal(given, tape)
    assert.equal(1, a)
    assert.is_nil(b)
    assert.equal("three", c)
    assert.equal(0, raw.tape_active())
  end)

  it("records until close() when there is no fn", function()
    local x = scalar(3)
    local tape = tf.GradientTape()
    assert.equal(1, raw.tape_active())
    tape:watch(x)
    local y = x * x
    tape:close()
    tape:close()
    local z = y * x
    assert.equal(0, raw.tape_active())
    assert.is_nil(tape:gradient(z, x))
  end)

  it("takes its options by name and by position", function()
    local by_name = tf.GradientTape { persistent = true }
    by_name:close()
    local by_place = tf.GradientTape(function() end, true, false)
    assert.is_true(by_name.persistent)
    assert.is_true(by_place.persistent)
    assert.equal("ValueError",
      caught(tf.GradientTape, { persistant = true }).kind)
    assert.equal("TypeError", caught(tf.GradientTape, 3).kind)
    assert.equal("TypeError",
      caught(tf.GradientTape, print, { persistent = 1 }).kind)
    assert.equal(0, raw.tape_active())
  end)

  if _VERSION == "Lua 5.4" then
    it("closes at the end of a scope with <close>", function()
      local load_text = load
      load_text [[
        local tf = ...
        local tape <close> = tf.GradientTape()
      ]](tf)
      assert.equal(0, raw.tape_active())
    end)
  end

  it("passes an error of fn on unchanged and stops recording", function()
    local thrown = { "any value" }
    assert.equal(thrown, caught(tf.GradientTape, function()
      error(thrown)
    end))
    local e = caught(tf.GradientTape, function()
      return tf.reshape(tf.zeros { 4 }, { 3 })
    end)
    assert.equal("InvalidArgument", e.kind)
    assert.truthy(e.traceback:find("tape_spec.lua", 1, true))
    assert.equal(0, raw.tape_active())
  end)

  it("leaves the tapes as they were, however calls nest and fail", function()
    local seed = 20240611
    local function random(n)
      seed = (seed * 1103515245 + 12345) % 2147483648
      return math.floor(seed / 65536) % n
    end
    local function nest(depth)
      local before = raw.tape_active()
      local action = random(6)
      if action == 0 then
        error("planned")
      elseif depth > 0 then
        for _ = 1, 1 + random(2) do
          pcall(tf.GradientTape, function(tape)
            if action == 1 then
              tape:stop_recording(function()
                nest(depth - 1)
              end)
            elseif action == 2 then
              tf.recompute_grad(function()
                nest(depth - 1)
                return scalar(1)
              end)(scalar(1))
            else
              nest(depth - 1)
            end
          end)
          assert.equal(before, raw.tape_active())
        end
      end
    end
    for _ = 1, 300 do
      pcall(nest, 4)
      assert.equal(0, raw.tape_active())
    end
  end)

  it("is not left by a yield of a coroutine", function()
    local x = scalar(2)
    local yields
    local run = coroutine.wrap(function()
      tf.GradientTape(function(tape)
        tape:watch(x)
        yields = debug.getinfo(1, "l").currentline + 1
        coroutine.yield "inside"
      end)
    end)
    local e = caught(run)
    assert.equal("RuntimeError", e.kind)
    assert.is_truthy(e.message:find("attempt to yield across a tfdist boundary",
      1, true))
    local place = debug.getinfo(1, "S").short_src .. ":" .. yields
    assert.equal(place, e.where)
    assert.equal(place, tostring(e):sub(1, #place))
    assert.equal(0, raw.tape_active())
    -- Without a function the tape is the coroutine's own business.
    local steps = coroutine.wrap(function()
      local tape = tf.GradientTape()
      tape:watch(x)
      coroutine.yield "inside"
      local y = x * x
      tape:close()
      return tape:gradient(y, x):item()
    end)
    assert.equal("inside", steps())
    assert.equal(4, steps())
  end)

  it("prints what it is", function()
    local tape = tf.GradientTape { persistent = true }
    assert.equal("GradientTape (persistent, recording, 0 operations)",
      tostring(tape))
    tape:close()
    assert.equal("GradientTape (persistent, stopped, 0 operations)",
      tostring(tape))
  end)

  it("refuses a dot in place of the colon", function()
    local tape = tf.GradientTape(function() end)
    local e = caught(tape.gradient, scalar(1), scalar(1))
    assert.equal("TypeError", e.kind)
    assert.truthy(e.hint:find("tape:gradient", 1, true))
    assert.equal("TypeError", caught(tape.close).kind)
  end)
end)

describe("tape:watch", function()
  leaks(before_each, after_each)

  it("takes tensors, variables and structures of them", function()
    local a, b, c = scalar(2), scalar(3), scalar(5)
    local v = tf.Variable(7.0, { trainable = false, dtype = "float64" })
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(a)
      tape:watch { b, { deep = c }, v }
      return a * b * c * v
    end)
    local g = tape:gradient(y, { a, b, c, v })
    assert.same({ 105, 70, 42, 30 },
      { g[1]:item(), g[2]:item(), g[3]:item(), g[4]:item() })
  end)

  it("is a TypeError for what is no tensor", function()
    tf.GradientTape(function(tape)
      assert.equal("TypeError", caught(tape.watch, tape, 3).kind)
      assert.equal("TypeError", caught(tape.watch, tape, { "x" }).kind)
      assert.equal("TypeError", caught(tape.watch, tape).kind)
    end)
  end)

  it("has no effect on integers", function()
    local x = tf.constant({ 1, 2 }, "int32")
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(x)
      return tf.cast(x, "float32") * 2
    end)
    assert.is_nil(tape:gradient(y, x))
  end)
end)

describe("tape:gradient", function()
  leaks(before_each, after_each)

  it("is the derivative", function()
    assert.equal(6, derivative(square, 3))
    assert.equal(27, derivative(function(x)
      return x * x * x
    end, 3))
    assert.equal(1, derivative(function(x)
      return x
    end, 3))
  end)

  it("has the sources' structure; lists carry n", function()
    local a, b, c = scalar(2), scalar(3), scalar(4)
    local tape, y = tf.GradientTape(function(tape)
      tape:watch { a, b }
      return a * b
    end, { persistent = true })
    local g = tape:gradient(y, { c, b, c })
    assert.equal(3, g.n)
    assert.is_nil(g[1])
    assert.equal(2, g[2]:item())
    assert.is_nil(g[3])
    g = tape:gradient(y, { weight = a, rest = { b, c } })
    assert.equal(3, g.weight:item())
    assert.equal(2, g.rest[1]:item())
    assert.equal(2, g.rest.n)
    assert.is_nil(g.n)
    g = tape:gradient(y, { a, b, weight = a })
    assert.equal(3, g.weight:item())
    assert.equal(2, g[2]:item())
    assert.equal(2, g.n)
    assert.equal(2, tape:gradient(y, { a, b, n = 2 }).n)
    assert.same({ n = 0 }, tape:gradient(y, {}))
  end)

  it("adds several targets up, weighed by output_gradients", function()
    local x = scalar(3)
    local tape, y, z = tf.GradientTape(function(tape)
      tape:watch(x)
      return x * x, 5 * x
    end, { persistent = true })
    assert.equal(11, tape:gradient({ y, z }, x):item())
    assert.equal(65, tape:gradient({ y, z }, x,
      { output_gradients = { scalar(10), nil, n = 2 } }):item())
    assert.equal(12, tape:gradient(y, x, scalar(2)):item())
    assert.equal(12, tape:gradient(y, x, { output_gradients = 2 }):item())
  end)

  it("refuses output_gradients that do not fit the targets", function()
    local x = scalar(3)
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(x)
      return x * x
    end)
    assert.equal("ValueError", caught(tape.gradient, tape, { y, y }, x,
      { output_gradients = { scalar(1) } }).kind)
    assert.equal("InvalidArgument", caught(tape.gradient, tape, y, x,
      tf.zeros { 2 }).kind)
    assert.equal("InvalidArgument", caught(tape.gradient, tape, y, x,
      tf.constant(1.0, "float32")).kind)
    assert.equal(6, tape:gradient(y, x):item())
  end)

  it("gives zeros for unconnected sources when asked", function()
    local x, other = scalar(3), tf.ones { 2, 3 }
    local tape, y = tf.GradientTape(function(tape)
      tape:watch { x, other }
      return x * x
    end, { persistent = true })
    assert.is_nil(tape:gradient(y, other))
    local g = tape:gradient(y, other, { unconnected_gradients = "zero" })
    assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, g:totable())
    g = tape:gradient(y, other, nil, tf.UnconnectedGradients.ZERO)
    assert.equal("float32", g.dtype)
    assert.equal("ValueError", caught(tape.gradient, tape, y, other,
      { unconnected_gradients = "all" }).kind)
  end)

  it("follows intermediate results and targets that are sources", function()
    local x = scalar(3)
    local tape, y, z = tf.GradientTape(function(tape)
      tape:watch(x)
      local y = x * x
      return y, y * y
    end)
    local g = tape:gradient(z, { x, y, z })
    assert.same({ 108, 18, 1 }, { g[1]:item(), g[2]:item(), g[3]:item() })
  end)

  it("sums over broadcast axes", function()
    local a, b = tf.ones { 2, 3 }, tf.ones { 3 }
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(b)
      return a * b
    end)
    assert.same({ 2, 2, 2 }, tape:gradient(y, b):totable())
  end)

  it("gives IndexedSlices for rows that were gathered", function()
    local v = tf.Variable(tf.ones { 5, 2 })
    local tape, y = tf.GradientTape(function()
      return tf.gather(v, { 1, 1, 4 })
    end)
    local g = tape:gradient(y, v)
    assert.equal("slices", raw.kind(g))
    assert.same({ { 0, 0 }, { 2, 2 }, { 0, 0 }, { 0, 0 }, { 1, 1 } },
      tf.convert_to_tensor(g):totable())
  end)

  it("joins rows of several uses and adds them to dense ones", function()
    local v = tf.Variable(tf.ones { 3, 2 })
    local tape, y = tf.GradientTape(function()
      return tf.gather(v, { 0, 1 }) * tf.gather(v, { 1, 1 })
    end)
    local g = tape:gradient(y, v)
    assert.equal("slices", raw.kind(g))
    assert.same({ { 1, 1 }, { 3, 3 }, { 0, 0 } },
      tf.convert_to_tensor(g):totable())
    tape, y = tf.GradientTape(function()
      return tf.reduce_sum(tf.gather(v, { 0, 0 })) + tf.reduce_sum(v * 3)
    end)
    assert.same({ { 5, 5 }, { 3, 3 }, { 3, 3 } },
      tape:gradient(y, v):totable())
  end)

  it("is a RuntimeError the second time", function()
    local x = scalar(3)
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(x)
      return x * x
    end)
    tape:gradient(y, x)
    local e = caught(tape.gradient, tape, y, x)
    assert.equal("RuntimeError", e.kind)
    assert.truthy(e.message:find("non-persistent", 1, true))
    assert.truthy(e.hint:find("persistent = true", 1, true))
  end)

  it("may be called again on a persistent tape", function()
    local x = scalar(3)
    local tape, y, z = tf.GradientTape(function(tape)
      tape:watch(x)
      local y = x * x
      return y, y * y
    end, { persistent = true })
    for _ = 1, 3 do
      assert.equal(108, tape:gradient(z, x):item())
      assert.equal(6, tape:gradient(y, x):item())
    end
  end)

  it("ends the recording of a tape that is still open", function()
    local x = scalar(3)
    tf.GradientTape(function(tape)
      tape:watch(x)
      assert.equal(6, tape:gradient(x * x, x):item())
      assert.equal(0, raw.tape_active())
    end)
    tf.GradientTape(function(tape)
      tape:watch(x)
      local first = tape:gradient(x * x * x, x)
      assert.equal(1, raw.tape_active())
      assert.equal(18, tape:gradient(first, x):item())
    end, { persistent = true })
  end)

  it("is a TypeError for targets and sources that are no tensors", function()
    local x = scalar(3)
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(x)
      return x * x
    end)
    assert.equal("TypeError", caught(tape.gradient, tape, 9, x).kind)
    assert.equal("TypeError", caught(tape.gradient, tape, y, "x").kind)
    assert.equal("TypeError", caught(tape.gradient, tape, y, { x, 3 }).kind)
    assert.equal("TypeError", caught(tape.gradient, tape, y).kind)
    assert.equal("TypeError", caught(tape.gradient, tape, nil, x).kind)
    assert.equal(6, tape:gradient(y, x):item())
  end)

  it("goes through thousands of operations", function()
    local x = scalar(1)
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(x)
      local y = x
      for _ = 1, 20000 do
        y = y + x
      end
      return y
    end)
    assert.equal(20001, tape:gradient(y, x):item())
  end)
end)

describe("variables on a tape", function()
  leaks(before_each, after_each)

  it("are watched by themselves, in order of first use", function()
    local a, b = tf.Variable(2.0), tf.Variable(3.0)
    local fixed = tf.Variable(5.0, { trainable = false })
    local tape, y = tf.GradientTape(function()
      return b * fixed * a * b
    end)
    local watched = tape:watched_variables()
    assert.equal(2, #watched)
    assert.equal(b, watched[1])
    assert.equal(a, watched[2])
    local g = tape:gradient(y, { a, b, fixed })
    assert.equal(45, g[1]:item())
    assert.equal(60, g[2]:item())
    assert.is_nil(g[3])
    assert.equal(2, #tape:watched_variables())
  end)

  it("are left alone with watch_accessed_variables = false", function()
    local a, b = tf.Variable(2.0), tf.Variable(3.0)
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(a)
      return a * b
    end, { watch_accessed_variables = false })
    local g = tape:gradient(y, { a, b })
    assert.equal(3, g[1]:item())
    assert.is_nil(g[2])
    assert.equal(1, #tape:watched_variables())
  end)

  it("count with the value they had when they were used", function()
    local v = tf.Variable(2.0)
    local tape, y, z = tf.GradientTape(function()
      local y = v * v
      v:assign(10.0)
      return y, v * v
    end, { persistent = true })
    assert.equal(4, tape:gradient(y, v):item())
    assert.equal(20, tape:gradient(z, v):item())
    v:assign_add(1.0)
    assert.equal(4, tape:gradient(y, v):item())
  end)

  it("train: gradient descent finds the line", function()
    -- y = 2 x + 1 at 8 points; the error falls geometrically.
    local x = tf.reshape(tf.range(8, { dtype = "float64" }), { 8, 1 }) / 8
    local y = x * 2 + 1
    local w = tf.Variable(tf.zeros({ 1, 1 }, "float64"))
    local b = tf.Variable(tf.zeros({ 1 }, "float64"))
    for _ = 1, 2000 do
      local tape, loss = tf.GradientTape(function()
        return tf.reduce_mean(square(tf.matmul(x, w) + b - y))
      end)
      local g = tape:gradient(loss, { w, b })
      w:assign_sub(g[1] * 0.5)
      b:assign_sub(g[2] * 0.5)
    end
    assert.is_true(math.abs(w:item() - 2) < 1e-6)
    assert.is_true(math.abs(b:item() - 1) < 1e-6)
  end)
end)

describe("nested tapes", function()
  leaks(before_each, after_each)

  it("give higher derivatives", function()
    -- x^5: 5 x^4, 20 x^3, 60 x^2, 120 x, 120
    local function nth(fn, n)
      if n == 0 then
        return fn
      end
      return nth(function(x)
        local tape, y = tf.GradientTape(function(tape)
          tape:watch(x)
          return fn(x)
        end)
        return tape:gradient(y, x)
      end, n - 1)
    end
    local function power5(x)
      return x * x * x * x * x
    end
    local x = scalar(2)
    local found = {}
    for n = 0, 5 do
      found[n + 1] = nth(power5, n)(x):item()
    end
    assert.same({ 32, 80, 160, 240, 240, 120 }, found)
  end)

  it("each record for themselves", function()
    local x = scalar(3)
    local outer, inner, y, z = tf.GradientTape(function(outer)
      outer:watch(x)
      local inner, y = tf.GradientTape(function(inner)
        inner:watch(x)
        return x * x
      end)
      return inner, y, y * x
    end)
    assert.is_nil(inner:gradient(z, x))
    assert.equal(27, outer:gradient(z, x):item())
    assert.is_truthy(y)
  end)
end)

describe("tape:stop_recording", function()
  leaks(before_each, after_each)

  it("records nothing while fn runs and returns what fn returns", function()
    local x = scalar(3)
    local tape, y, z, label = tf.GradientTape(function(tape)
      tape:watch(x)
      local y, label = tape:stop_recording(function()
        return x * x, "label"
      end)
      return y, x * 5, label
    end)
    assert.equal("label", label)
    local g = tape:gradient({ y, z }, x)
    assert.equal(5, g:item())
  end)

  it("goes on after an error and with close()", function()
    tf.GradientTape(function(tape)
      caught(tape.stop_recording, tape, function()
        error("planned")
      end)
      assert.equal(1, raw.tape_active())
      local pause = tape:stop_recording()
      assert.equal(0, raw.tape_active())
      pause:close()
      assert.equal(1, raw.tape_active())
    end)
  end)

  it("is a RuntimeError when the tape does not record", function()
    local tape = tf.GradientTape(function() end)
    assert.equal("RuntimeError", caught(tape.stop_recording, tape, print).kind)
  end)
end)

describe("tape:reset", function()
  leaks(before_each, after_each)

  it("forgets what was recorded and watched", function()
    local x, v = scalar(3), tf.Variable(2.0, { dtype = "float64" })
    local tape, y, z = tf.GradientTape(function(tape)
      tape:watch(x)
      local y = x * v
      tape:reset()
      tape:watch(x)
      return y, x * x
    end, { persistent = true })
    assert.is_nil(tape:gradient(y, x))
    assert.equal(6, tape:gradient(z, x):item())
    assert.same({}, tape:watched_variables())
  end)
end)

describe("tape:jacobian", function()
  leaks(before_each, after_each)

  it("holds every derivative: of W x it is W", function()
    local w = tf.constant({ { 1, 2, 3 }, { 4, 5, 6 } }, "float64")
    local x = tf.ones({ 3, 1 }, "float64")
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(x)
      return tf.reshape(tf.matmul(w, x), { 2 })
    end)
    local j = tape:jacobian(y, x)
    assert.same({ 2, 3, 1 }, j.shape)
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, j:reshape({ 2, 3 }):totable())
    assert.equal("RuntimeError", caught(tape.jacobian, tape, y, x).kind)
    assert.equal("RuntimeError", caught(tape.gradient, tape, y, x).kind)
  end)

  it("takes structures of sources", function()
    local a = tf.constant({ 2, 3 }, "float64")
    local v = tf.Variable(4.0, { dtype = "float64" })
    local other = scalar(1)
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(a)
      return a * a * v
    end)
    local j = tape:jacobian(y, { a = a, rest = { v, other } })
    assert.same({ { 16, 0 }, { 0, 24 } }, j.a:totable())
    assert.same({ 4, 9 }, j.rest[1]:totable())
    assert.is_nil(j.rest[2])
    assert.equal(2, j.rest.n)
    assert.equal(v, tape:watched_variables()[1])
  end)

  it("of a scalar is the gradient; unconnected may be zeros", function()
    local x, other = tf.constant({ 1, 2 }, "float64"), tf.ones { 3 }
    local tape, y = tf.GradientTape(function(tape)
      tape:watch { x, other }
      return tf.reduce_sum(x * x)
    end, { persistent = true })
    assert.same({ 2, 4 }, tape:jacobian(y, x):totable())
    assert.same({ 0, 0, 0 }, tape:jacobian(y, other,
      { unconnected_gradients = "zero" }):totable())
    assert.same({ 2, 4 }, tape:gradient(y, x):totable())
  end)

  it("has the right shape without elements", function()
    local x = tf.zeros({ 0 }, "float64")
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(x)
      return x * x
    end)
    assert.same({ 0, 0 }, tape:jacobian(y, x).shape)
  end)

  it("can be differentiated by an outer tape: hessians", function()
    -- x0^2 x1: hessian {{2 x1, 2 x0}, {2 x0, 0}}
    local x = tf.constant({ 3, 5 }, "float64")
    local outer, g = tf.GradientTape(function(outer)
      outer:watch(x)
      local inner, y = tf.GradientTape(function(inner)
        inner:watch(x)
        return x[0] * x[0] * x[1]
      end)
      return inner:gradient(y, x)
    end)
    assert.same({ { 10, 6 }, { 6, 0 } }, outer:jacobian(g, x):totable())
  end)
end)

describe("tape:batch_jacobian", function()
  leaks(before_each, after_each)

  it("is the jacobian of each row", function()
    local x = tf.constant({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, "float64")
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(x)
      return x * x
    end)
    assert.same({ { { 2, 0 }, { 0, 4 } }, { { 6, 0 }, { 0, 8 } },
      { { 10, 0 }, { 0, 12 } } }, tape:batch_jacobian(y, x):totable())
  end)

  it("refuses rows that do not match and gives nil or zeros", function()
    local x, other = tf.ones { 3, 2 }, tf.ones { 3, 4 }
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(x)
      return x * x
    end, { persistent = true })
    assert.equal("ValueError",
      caught(tape.batch_jacobian, tape, y, tf.ones { 2, 2 }).kind)
    assert.is_nil(tape:batch_jacobian(y, other))
    assert.same({ 3, 2, 4 }, tape:batch_jacobian(y, other,
      { unconnected_gradients = "zero" }).shape)
  end)
end)

describe("tf.stop_gradient", function()
  leaks(before_each, after_each)

  it("keeps the value and stops the gradient", function()
    assert.equal(3, derivative(function(x)
      return tf.stop_gradient(x) * x
    end, 3))
    assert.equal(9, tf.stop_gradient(scalar(3) * 3):item())
    assert.equal(2, tf.stop_gradient(2):item())
    local v = tf.Variable(2.0)
    local tape, y = tf.GradientTape(function()
      return tf.stop_gradient(v) * v
    end)
    assert.equal(2, tape:gradient(y, v):item())
    assert.equal("TypeError", caught(tf.stop_gradient, print).kind)
    assert.equal(0, raw.tape_active())
  end)

  it("is not changed by a later assignment", function()
    local v = tf.Variable(2.0)
    local before = tf.stop_gradient(v)
    v:assign(5.0)
    assert.equal(2, before:item())
    assert.equal(5, v:item())
  end)
end)
