--- Gradients that users define, with derivatives in closed form.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"
local leaks = require "spec.support.leaks"
local expect = require "spec.support.expect"

local unpack = table.unpack or unpack -- luacheck: ignore 113 143

local caught = expect.caught

local function scalar(x)
  return tf.constant(x, "float64")
end

-- First and second derivative of f at x, as numbers.
local function derivatives(f, x)
  local outer, first = tf.GradientTape(function(outer)
    outer:watch(x)
    local inner, y = tf.GradientTape(function(inner)
      inner:watch(x)
      return f(x)
    end)
    return inner:gradient(y, x)
  end)
  return first:item(), outer:gradient(first, x):item()
end

-- Tape and result of fn(...) with all arguments watched.
local function record(fn, ...)
  local args = { ... }
  return tf.GradientTape(function(tape)
    tape:watch(args)
    return fn(unpack(args))
  end, { persistent = true })
end

-- Square with ten times the right gradient.
local function make_square10()
  return tf.custom_gradient(function(x)
    return x * x, function(dy)
      return 20 * x * dy
    end
  end)
end

describe("tf.custom_gradient", function()
  leaks(before_each, after_each)

  it("uses the function's own gradient", function()
    local f = make_square10()
    local x = scalar(3)
    local tape, y = record(function(a)
      return 2 * f(a)
    end, x)
    assert.equal(18, y:item())
    assert.equal(120, tape:gradient(y, x):item())
    assert.equal(120, tape:gradient(y, x):item())
    assert.equal(9, f(x):item())
    assert.equal(9, (f(3)):item())
  end)

  it("makes stable what is not: log(1 + e^x)", function()
    local log1pexp = tf.custom_gradient(function(x)
      local e = tf.exp(x)
      return tf.math.log(1 + e), function(dy)
        return dy * (1 - 1 / (1 + e))
      end
    end)
    local x = tf.constant(100.0)
    local tape, y = record(log1pexp, x)
    assert.equal(1, tape:gradient(y, x):item())
  end)

  it("has several arguments and results", function()
    local f = tf.custom_gradient(function(a, b)
      return a + b, a * b, function(d_sum, d_product)
        return d_sum * 10, d_product * 100
      end
    end)
    local a, b = scalar(2), scalar(3)
    local tape, sum, product = record(f, a, b)
    assert.equal(5, sum:item())
    assert.equal(6, product:item())
    local g = tape:gradient({ sum, product }, { a, b })
    assert.same({ 10, 100 }, { g[1]:item(), g[2]:item() })
    g = tape:gradient(sum, { a, b }) -- nothing reaches product: dy is zero
    assert.same({ 10, 0 }, { g[1]:item(), g[2]:item() })
  end)

  it("may leave arguments without gradient", function()
    local f = tf.custom_gradient(function(a, b)
      return a * b, function(dy)
        return nil, dy
      end
    end)
    local a, b = scalar(2), scalar(3)
    local tape, y = record(f, a, b)
    local g = tape:gradient(y, { a, b })
    assert.is_nil(g[1])
    assert.equal(1, g[2]:item())
  end)

  it("takes structures and plain values among the arguments", function()
    local f = tf.custom_gradient(function(pair, factor)
      return { sum = (pair[1] + pair[2]) * factor }, function(dy)
        return { dy, dy * 2 }
      end
    end)
    local a, b = scalar(2), scalar(3)
    local tape, y = tf.GradientTape(function(tape)
      tape:watch { a, b }
      return f({ a, b }, 10)
    end)
    assert.equal(50, y.sum:item())
    local g = tape:gradient(y, { a, b })
    assert.same({ 1, 2 }, { g[1]:item(), g[2]:item() })
  end)

  it("accepts one gradient for every leaf, plain values too", function()
    local f = tf.custom_gradient(function(factor, a)
      return a * factor, function(dy)
        return nil, dy * 7
      end
    end)
    local a = scalar(2)
    local tape, y = tf.GradientTape(function(tape)
      tape:watch(a)
      return f(10, a)
    end)
    assert.equal(7, tape:gradient(y, a):item())
  end)

  it("turns plain numbers into gradients of the argument's dtype", function()
    local f = tf.custom_gradient(function(a)
      return a * a, function()
        return 4
      end
    end)
    local a = scalar(2)
    local tape, y = record(f, a)
    assert.equal("float64", tape:gradient(y, a).dtype)
    assert.equal(4, tape:gradient(y, a):item())
  end)

  it("passes the argument through when f returns it", function()
    local f = tf.custom_gradient(function(a)
      return a, function(dy)
        return dy * 5
      end
    end)
    local a = scalar(2)
    local tape, y = record(function(x)
      return f(f(x))
    end, a)
    assert.equal(25, tape:gradient(y, a):item())
  end)

  it("gives sparse gradients", function()
    local v = tf.Variable(tf.ones { 4, 2 })
    local f = tf.custom_gradient(function(table_)
      return tf.reduce_sum(table_), function()
        return tf.IndexedSlices(tf.ones { 1, 2 }, tf.constant({ 2 }, "int32"),
          { 4, 2 })
      end
    end)
    local tape, y = tf.GradientTape(function()
      return f(v)
    end)
    local g = tape:gradient(y, v)
    assert.equal("slices", raw.kind(g))
    assert.same({ { 0, 0 }, { 0, 0 }, { 1, 1 }, { 0, 0 } },
      tf.convert_to_tensor(g):totable())
  end)

  it("differentiates the gradient function too", function()
    -- Declared gradient 3 x^2 of the value x^2: derivative of it is 6 x.
    local f = tf.custom_gradient(function(x)
      return x * x, function(dy)
        return dy * 3 * x * x
      end
    end)
    local x = scalar(2)
    local first, second = derivatives(f, x)
    assert.equal(12, first)
    assert.equal(12, second)
  end)

  it("hands variables that f uses to the gradient function", function()
    local v = tf.Variable(3.0, { dtype = "float64" })
    local w = tf.Variable(5.0, { dtype = "float64" })
    local seen
    local f = tf.custom_gradient(function(x)
      return x * v * w, function(dy, variables)
        seen = variables
        return dy * 100, { dy * 10, nil, n = 2 }
      end
    end)
    local x = scalar(2)
    local tape, y = record(f, x)
    local g = tape:gradient(y, { x, v, w })
    assert.same({ 100, 10 }, { g[1]:item(), g[2]:item() })
    assert.is_nil(g[3])
    assert.equal(2, seen.n)
    assert.equal(v, seen[1])
    assert.equal(w, seen[2])
  end)

  it("does not count variables that are arguments", function()
    local v = tf.Variable(3.0, { dtype = "float64" })
    local f = make_square10()
    local tape, y = tf.GradientTape(function()
      return f(v)
    end)
    assert.equal(60, tape:gradient(y, v):item())
  end)

  it("does not count them in traced functions, replicas and branches either",
    function()
      local strategy = tf.distribute.MirroredStrategy { devices = { "cpu:0" } }
      local f = tf.custom_gradient(function(x)
        return x * x, function(dy) return dy * 10 end
      end)
      for _, make in ipairs { function() return tf.Variable(3.0) end,
        function() return strategy:scope(function() return tf.Variable(3.0)
          end) end } do
        local v, w = make(), make()
        local g = tf.custom_gradient(function(x)
          return x * w, function(dy, variables)
            assert.equal(1, #variables)
            return dy * 100, { dy * 7 }
          end
        end)
        local function step()
          local tape, y = tf.GradientTape(function() return f(v) + g(v) end)
          local dv, dw = unpack(tape:gradient(y, { v, w }))
          return y, dv, dw
        end
        for _, call in ipairs { step, tf.function_(step), function()
          return strategy:run(tf.function_(step)) end,
          tf.function_(function() return strategy:run(step) end) } do
          local y, dv, dw = call()
          assert.same({ 18, 110, 7 }, { y:item(), dv:item(), dw:item() })
        end
        local taken = tf.function_(function(p)
          return tf.cond(p, step, function() return v + 0, v + 0, v + 0 end)
        end)
        local y, dv, dw = taken(tf.constant(true))
        assert.same({ 18, 110, 7 }, { y:item(), dv:item(), dw:item() })
        assert.equal(9, tf.function_(f)(v):item())
      end
    end)

  it("refuses a gradient function without room for the variables", function()
    local v = tf.Variable(3.0)
    local f = tf.custom_gradient(function(x)
      return x * v, function(dy)
        return dy
      end
    end)
    local x = tf.constant(2.0)
    local e = caught(record, f, x)
    assert.equal("TypeError", e.kind)
    assert.truthy(e.message:find("variables", 1, true))
    assert.equal(0, raw.tape_active())
  end)

  it("refuses what is no function and results without one", function()
    assert.equal("TypeError", caught(tf.custom_gradient, 3).kind)
    local f = tf.custom_gradient(function(x)
      return x * x
    end)
    assert.equal("TypeError", caught(f, scalar(2)).kind)
    assert.equal("TypeError", caught(record, f, scalar(2)).kind)
  end)

  it("refuses gradients that do not fit the arguments", function()
    local answer
    local f = tf.custom_gradient(function(a, b)
      return a * b, function(dy)
        return answer(dy)
      end
    end)
    local a, b = scalar(2), scalar(3)
    local function kind_of(fn)
      answer = fn
      local tape, y = record(f, a, b)
      return caught(tape.gradient, tape, y, a).kind
    end
    assert.equal("ValueError", kind_of(function(dy)
      return dy
    end))
    assert.equal("InvalidArgument", kind_of(function(dy)
      return tf.zeros({ 2 }, "float64"), dy
    end))
    assert.equal("InvalidArgument", kind_of(function(dy)
      return tf.cast(dy, "float32"), dy
    end))
    assert.equal("TypeError", kind_of(function(dy)
      return "text", dy
    end))
  end)

  it("passes an error of the gradient function on", function()
    local thrown = { "any value" }
    local f = tf.custom_gradient(function(x)
      return x * x, function()
        error(thrown)
      end
    end)
    local x = scalar(2)
    local tape, y = record(f, x)
    assert.equal(thrown, caught(tape.gradient, tape, y, x))
    assert.equal(thrown, caught(tape.gradient, tape, y, x))
    tape:reset()
    assert.equal(0, raw.live_handles "walk")
  end)

  it("may use a tape inside", function()
    local f = tf.custom_gradient(function(x)
      local tape, y = tf.GradientTape(function(tape)
        tape:watch(x)
        return x * x * x
      end)
      local slope = tape:gradient(y, x)
      return y, function(dy)
        return dy * slope
      end
    end)
    local x = scalar(2)
    local tape, y = record(f, x)
    assert.equal(12, tape:gradient(y, x):item())
  end)
end)

describe("tf.recompute_grad", function()
  leaks(before_each, after_each)

  it("has the gradient of f and runs f again for it", function()
    local calls = 0
    local f = tf.recompute_grad(function(a, b, power)
      calls = calls + 1
      assert.equal(2, power)
      return a * a * b, a + b
    end)
    local a, b = scalar(3), scalar(5)
    local tape, y, z = tf.GradientTape(function(tape)
      tape:watch { a, b }
      return f(a, b, 2)
    end, { persistent = true })
    assert.equal(1, calls)
    local g = tape:gradient(y, { a, b })
    assert.same({ 30, 9 }, { g[1]:item(), g[2]:item() })
    assert.equal(2, calls)
    g = tape:gradient({ y, z }, { a, b })
    assert.same({ 31, 10 }, { g[1]:item(), g[2]:item() })
    assert.equal(45, (f(a, b, 2)):item())
  end)

  it("keeps nothing of the forward pass but the arguments", function()
    local n = 65536
    local x = tf.ones { n }
    local function block(v)
      for _ = 1, 10 do
        v = v * v
      end
      return v
    end
    local function held(fn)
      raw.collect()
      local before = raw.live_bytes()
      local tape, y = record(fn, x)
      raw.collect()
      local bytes = raw.live_bytes() - before
      return bytes / (4 * n), tape, y
    end
    assert.is_true(held(block) >= 10)
    local kept, tape, y = held(tf.recompute_grad(block))
    assert.is_true(kept <= 2)
    assert.equal(1024, tape:gradient(y, x)[0]:item())
  end)

  it("finds the variables", function()
    local v = tf.Variable(3.0, { dtype = "float64" })
    local f = tf.recompute_grad(function(x)
      return x * x * v
    end)
    local x = scalar(2)
    local tape, y = record(f, x)
    local g = tape:gradient(y, { x, v })
    assert.same({ 12, 4 }, { g[1]:item(), g[2]:item() })
    assert.equal(v, tape:watched_variables()[1])
  end)

  it("can be differentiated again, and holds custom gradients", function()
    local f = tf.recompute_grad(function(x)
      return x * x * x
    end)
    local x = scalar(2)
    local first, second = derivatives(f, x)
    assert.equal(12, first)
    assert.equal(12, second)
    local g = tf.recompute_grad(make_square10())
    local tape, y = record(g, x)
    assert.equal(40, tape:gradient(y, x):item())
  end)

  it("records again after an error of f", function()
    local f = tf.recompute_grad(function()
      error("planned")
    end)
    tf.GradientTape(function()
      caught(f, scalar(1))
      assert.equal(1, raw.tape_active())
    end)
  end)
end)

describe("tf.grad_pass_through", function()
  leaks(before_each, after_each)

  it("gives f the gradient of the identity", function()
    local f = tf.grad_pass_through(function(x)
      return tf.round(x)
    end)
    local x = scalar(2.6)
    local tape, y = record(function(a)
      return 4 * f(a)
    end, x)
    assert.equal(12, y:item())
    assert.equal(4, tape:gradient(y, x):item())
    assert.equal(3, f(x):item())
  end)
end)

describe("tf.gradients", function()
  it("is not there: there is GradientTape", function()
    local e = caught(tf.gradients, scalar(1), { scalar(1) })
    assert.equal("NotImplementedError", e.kind)
    assert.truthy(e.hint:find("GradientTape", 1, true))
  end)
end)
