--- tf.py_function and tf.numpy_function, line by line and in traced functions.
--- Expected values are closed forms.
local tf = require "tfdist"
local expect = require "spec.support.expect"
local traces = require "spec.support.traces"

local gradient, raises, values = traces.gradient, expect.raises, traces.values

local function plain(fn) return fn end

describe("tf.py_function", function()
  it("may call the function that it stands in, as a data set may", function()
    local spec = tf.TensorSpec({}, "float32")
    for _, run in ipairs { plain, tf.function_ } do
      local v = tf.Variable(0.0)
      local f, g
      f = run(function(x)
        v:assign_add(x)
        local y = tf.py_function(function(a)
          return a:item() < 4 and f(a + 1) or a
        end, { x }, spec)
        return y * 2
      end)
      -- 4, doubled by the calls with 4, 3, 2 and 1
      assert.are.equal(64, f(tf.constant(1.0)):item())
      assert.are.equal(10, v:read_value():item())
      assert.are.equal(16, f(tf.constant(3.0)):item())
      assert.are.equal(17, v:read_value():item())

      local top = true
      local data = tf.data.Dataset.range(3):map(function(x)
        return g(tf.cast(x, "float32"))
      end)
      g = run(function(x)
        return tf.py_function(function(a)
          if not top then
            return a * 10
          end
          top = false
          a = data:reduce(a, function(sum, e) return sum + e end)
          top = true
          return a
        end, { x }, spec)
      end)
      assert.are.equal(31, g(tf.constant(1.0)):item())
      assert.are.equal(32, g(tf.constant(2.0)):item())
    end
  end)

  it("runs Lua at each call, where it stands", function()
    for _, run in ipairs { plain, tf.function_ } do
      local seen = {}
      local v = tf.Variable(1.0)
      local f = run(function(x)
        v:assign_add(x)
        local y = tf.py_function(function(a, b)
          seen[#seen + 1] = a:item() + b:item()
          return a + #seen
        end, { v, x }, tf.TensorSpec({}, "float32"))
        v:assign(0.0)
        return y * 2
      end)
      local got = { f(tf.constant(2.0)):item(), f(tf.constant(3.0)):item() }
      assert.are.same({ 5, 6 }, seen)
      assert.are.same({ (3 + 1) * 2, (3 + 2) * 2 }, got)
    end
  end)

  it("gives several values, or none, of the dtypes that it names", function()
    for _, run in ipairs { plain, tf.function_ } do
      local lines = {}
      local f = run(function(x)
        tf.py_function(function(t) lines[#lines + 1] = t:item() end, { x })
        local n, all = tf.py_function(function(t)
          return 7, { t:item(), 2 }
        end, { x }, { tf.TensorSpec({}, "int32"), tf.TensorSpec { 2 } })
        return n, all
      end)
      local n, all = f(tf.constant(5.0))
      assert.are.same({ "int32", 7 }, { n.dtype, n:item() })
      assert.are.same({ 5, 2 }, values(all))
      assert.are.same({ 5 }, lines)
    end
    assert.are.equal(3, tf.py_function(function(t) return t + 1 end,
      { tf.constant(2.0) }, "float32"):item())
  end)

  it("checks what Lua gives", function()
    for _, run in ipairs { plain, tf.function_ } do
      local function of(fn, ...)
        local Tout = { ... }
        return run(function(x) return tf.py_function(fn, { x }, Tout) end)
      end
      local x, scalar = tf.constant { 1, 2 }, tf.TensorSpec({}, "float32")
      raises("InvalidArgument", "value 1 returned by func is int32, but expects "
        .. "float32", of(function(t) return tf.cast(t[0], "int32") end, scalar),
        x)
      raises("InvalidArgument", "has shape {2}, but expects {}",
        of(function(t) return t end, scalar), x)
      raises("InvalidArgument", "func returns 2 values, but expects 1",
        of(function(t) return t[0], t[1] end, scalar), x)
      raises("InvalidArgument", "func returns 0 values, but expects 1",
        of(function() end, scalar), x)
      local e = expect.caught(of(function() error("mine", 0) end, scalar), x)
      assert.is_not_nil(tostring(e):find("mine", 1, true))
      assert.is_true(tf.executing_eagerly())
    end
    raises("NotImplementedError", "the shape of value 1 is not known",
      tf.function_(function(x)
        return tf.py_function(function(t) return t end, { x }, "float32")
      end), tf.constant(1.0))
    raises("TypeError", "func", tf.py_function, 3)
  end)

  it("has gradients, by tapes inside and around", function()
    local runs = 0
    local function fn(x)
      local y = tf.py_function(function(t, n)
        runs = runs + 1
        return t * t * tf.cast(n, "float32"), t + 1
      end, { x * 2, tf.constant(3, "int32") },
        { tf.TensorSpec { 2 }, tf.TensorSpec { 2 } })
      return tf.reduce_sum(y)
    end
    local x = tf.constant { 1.5, -2 }
    local want = { 24 * 1.5, 24 * -2 } -- of 3 (2 x)^2
    assert.are.same(want, values(gradient(fn, x)))
    local inside = tf.function_(function(t) return gradient(fn, t) end)
    runs = 0
    for call = 1, 2 do
      assert.are.same(want, values(inside(x)))
      assert.are.equal(call, runs)
    end
    assert.are.same(want, values(gradient(tf.function_(fn), x)))
    assert.are.same({ 24, 24 }, values(gradient(function(t)
      return tf.reduce_sum(gradient(fn, t))
    end, x)))
    raises("NotImplementedError", "no gradients of gradients",
      tf.function_(function(t)
        return gradient(function(u) return tf.reduce_sum(gradient(fn, u)) end, t)
      end), x)
  end)

  it("runs in branches and loops that the call decides on", function()
    local seen = {}
    local f = tf.function_(function(n)
      local _, sum = tf.while_loop(function(i) return tf.less(i, n) end,
        function(i, s)
          return i + 1, s + tf.py_function(function(t)
            seen[#seen + 1] = t:item()
            return t * t
          end, { i }, tf.TensorSpec({}, "int32"))
        end, { tf.constant(0, "int32"), tf.constant(0, "int32") })
      return sum
    end)
    assert.are.equal(0 + 1 + 4 + 9, f(tf.constant(4, "int32")):item())
    assert.are.same({ 0, 1, 2, 3 }, seen)
    raises("NotImplementedError", "no gradient here", tf.function_(function(x)
      return gradient(function(t)
        return tf.cond(t:greater(0), function()
          return tf.py_function(function(u) return u * u end, { t },
            tf.TensorSpec({}, "float32"))
        end, function() return t end)
      end, x)
    end), tf.constant(2.0))
  end)
end)

describe("tf.numpy_function", function()
  it("gets plain Lua values", function()
    for _, run in ipairs { plain, tf.function_ } do
      local f = run(function(x, n)
        return tf.numpy_function(function(rows, k)
          assert(type(rows) == "table" and type(k) == "number")
          return { rows[1][2] + k, rows[2][1] }
        end, { x, n }, tf.TensorSpec({ 2 }, "float64"))
      end)
      local got = f(tf.constant { { 1, 2 }, { 3, 4 } }, tf.constant(10, "int32"))
      assert.are.equal("float64", got.dtype)
      assert.are.same({ 12, 3 }, values(got))
    end
  end)

  it("has no gradient", function()
    for _, run in ipairs { plain, tf.function_ } do
      local f = run(function(x)
        return gradient(function(t)
          return tf.numpy_function(function(u) return u * 2 end, { t },
            tf.TensorSpec({}, "float32"))
        end, x)
      end)
      assert.is_nil(f(tf.constant(3.0)))
    end
  end)
end)
