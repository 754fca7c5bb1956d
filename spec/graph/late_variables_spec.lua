-- Gradients of the user's read variables when they are asked for, as eagerly and
-- as TensorFlow's functions do, whatever was assigned since the call and whether
-- or not the function itself reads them. All functions here are of the first
-- degree in what they take, so that each value is a product.
local tf = require "tfdist"

local FACTOR, FIRST, LATER = 10.0, 2.0, 5.0

local function eagerly(fn) return fn end

-- f(x) = v x or 3 x, of which df/dx is given as FACTOR v.
local function custom(v, reads)
  return tf.custom_gradient(function(x)
    return x * (reads and v or 3), function(dy, variables)
      local gradient = dy * v * FACTOR
      if variables == nil then return gradient end
      assert.are.equal(1, variables.n)
      return gradient, { dy * v * FACTOR * FACTOR }
    end
  end)
end

local function item(x)
  return x ~= nil and tf.convert_to_tensor(x):item() or nil
end

-- What x has a gradient of, followed around fn(x).
local function follow(fn, x, options)
  return tf.GradientTape(function(t)
    t:watch(x)
    return fn(x)
  end, options)
end

for mode, run in pairs { eagerly = eagerly, traced = tf.function_ } do
  for _, reads in ipairs { true, false } do
    local name = mode .. (reads and ", read by the function too"
      or ", read by the gradient alone")
    local value = reads and FIRST or 3.0
    local v, f, x

    describe("a variable in a custom gradient, " .. name, function()
      before_each(function()
        v, x = tf.Variable(FIRST), tf.constant(1.0)
        f = custom(v, reads)
      end)

      local function check(want, tape, y, of_v)
        local got = tape:gradient(y, { x, v })
        assert.are.equal(want, item(got[1]))
        assert.are.equal(of_v or (reads and want * FACTOR or nil), item(got[2]))
      end

      it("is read after an assignment behind the call", function()
        local tape, y = follow(run(f), x)
        v:assign(LATER)
        assert.are.equal(value, y:item())
        check(FACTOR * LATER, tape, y)
      end)

      it("is read after the function's own assignment and one more", function()
        local fn = run(function(a)
          local y = f(a)
          v:assign(LATER)
          return y
        end)
        for _, last in ipairs { LATER, 7.0 } do
          v:assign(FIRST)
          local tape, y = follow(fn, x)
          v:assign(last)
          assert.are.equal(value, y:item())
          check(FACTOR * last, tape, y)
        end
      end)

      it("is not read late where ops of the function read it", function()
        local tape, y = follow(run(function(a) return f(a) * v end), x)
        v:assign(LATER)
        -- dy of f is FIRST; the other factor of the product is f's value
        local of_f = FIRST * FACTOR * LATER
        check(of_f, tape, y, value + (reads and of_f * FACTOR or 0))
      end)

      it("is read anew for each gradient of a persistent tape", function()
        local tape, y = follow(run(f), x, { persistent = true })
        for _, now in ipairs { FIRST, LATER, 7.0 } do
          v:assign(now)
          assert.are.equal(FACTOR * now, tape:gradient(y, x):item())
        end
      end)

      it("is read once all calls are behind", function()
        local fn = run(f)
        local tape, y, z = follow(function(a)
          local first = fn(a)
          v:assign(3.0)
          return first, fn(a)
        end, x)
        v:assign(LATER)
        check(2 * FACTOR * LATER, tape, { y, z })
      end)

      it("is read where a tape inside asks for the gradient", function()
        local fn = run(function(a)
          local tape, y = follow(f, a)
          v:assign(LATER)
          local got = tape:gradient(y, { a, v })
          return y, got[1], got[2]
        end)
        for _ = 1, 2 do
          v:assign(FIRST)
          local y, of_x, of_v = fn(x)
          assert.are.same({ value, FACTOR * LATER },
            { y:item(), of_x:item() })
          assert.are.equal(reads and FACTOR * FACTOR * LATER or nil, item(of_v))
        end
      end)

      it("has a gradient of its own in that gradient", function()
        local fn, d = run(f), nil
        local tape = follow(function(a)
          local inner, y = follow(fn, a, { persistent = true })
          v:assign(LATER)
          d = inner:gradient(y, a)
          return y
        end, x, { persistent = true })
        v:assign(7.0)
        assert.are.equal(FACTOR * LATER, d:item())
        assert.are.equal(FACTOR, item(tape:gradient(d, v)))
      end)

      for part, around in pairs {
        ["a branch"] = function(a)
          return tf.cond(tf.greater(a, 0), function() return f(a) end,
            function() return a end)
        end,
        ["a loop"] = function(a)
          return (select(2, tf.while_loop(function(i) return tf.less(i, 1) end,
            function(i, z) return i + 1, f(z) end, { tf.constant(0), a })))
        end,
        ["a loop that writes it"] = function(a)
          return (select(2, tf.while_loop(function(i) return tf.less(i, 1) end,
            function(i, z)
              z = f(z)
              v:assign_add(1)
              return i + 1, z
            end, { tf.constant(0), a })))
        end,
      } do
        it("is read late in " .. part, function()
          local tape, y = follow(run(around), x)
          v:assign(LATER)
          assert.are.equal(value, y:item())
          assert.are.equal(FACTOR * LATER, tape:gradient(y, x):item())
        end)

        it("is read late in " .. part .. ", the tape inside", function()
          local fn = run(function(a)
            local tape, y = follow(around, a, { persistent = true })
            v:assign(LATER)
            local d = tape:gradient(y, a)
            v:assign(7.0)
            return d, tape:gradient(y, a)
          end)
          for _ = 1, 2 do
            v:assign(FIRST)
            local d, again = fn(x)
            assert.are.same({ FACTOR * LATER, FACTOR * 7 },
              { d:item(), again:item() })
          end
        end)
      end
    end)
  end

  describe("what is computed again for the gradient, " .. mode, function()
    it("reads variables as they are then", function()
      local v, x = tf.Variable(FIRST), tf.constant(3.0)
      local fn = run(tf.recompute_grad(function(a) return a * a * v end))
      local tape, y = follow(fn, x)
      v:assign(LATER)
      local got = tape:gradient(y, { x, v })
      assert.are.same({ 9 * FIRST, 2 * 3 * LATER, 9.0 },
        { y:item(), item(got[1]), item(got[2]) })
    end)
  end)

  describe("a gradient that assigns, " .. mode, function()
    it("does so each time it is asked for", function()
      local count, x = tf.Variable(0.0), tf.constant(1.0)
      local fn = run(tf.custom_gradient(function(a)
        return a * 3, function(dy)
          count:assign_add(1)
          return dy * count
        end
      end))
      for k = 1, 3 do
        local tape, y = follow(fn, x)
        assert.are.equal(k, tape:gradient(y, x):item())
        assert.are.equal(k, item(count))
      end
    end)
  end)
end

describe("a gradient with an effect in a branch of a trace", function()
  local v = tf.Variable(FIRST)
  for what, act in pairs {
    ["writes a variable"] = function() v:assign_add(1) end,
    ["has a step of the host"] = function() tf.print("not to be seen") end,
  } do
    it("is refused by name where it " .. what, function()
      local f = tf.custom_gradient(function(a)
        return a * 3, function(dy)
          act()
          return dy
        end
      end)
      local fn = tf.function_(function(a)
        local tape, y = follow(function(b)
          return tf.cond(tf.greater(b, 0), function() return f(b) end,
            function() return b end)
        end, a)
        return tape:gradient(y, a)
      end)
      local ok, e = pcall(fn, tf.constant(1.0))
      assert.is_false(ok)
      assert.are.equal("NotImplementedError", e.kind)
      assert.truthy(tostring(e):find("the gradient " .. what, 1, true))
    end)
  end
end)
