--- Variables of a strategy in traced functions, where what is made of them is no
--- op: printed, checked, given to Lua, carried by loops. Expected values are
--- closed forms.
local expect = require "spec.support.expect"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

local raises = expect.raises

local function plain(fn) return fn end

-- A mirrored variable and one whose value is the sum of its copies.
local function variables(strategy)
  return strategy:scope(function()
    return tf.Variable(3.0), tf.Variable(1.0,
      { synchronization = "ON_READ", aggregation = "SUM" })
  end)
end

describe("a strategy's variables in a traced function", function()
  replicas.pair(it, pending, "are printed as their values", function(strategy)
    for _, run in ipairs { plain, tf.function_ } do
      local v, sum = variables(strategy)
      local lines = {}
      local function show()
        tf.print(v, sum, { output_stream = function(line)
          lines[#lines + 1] = line
        end })
      end
      local across = run(show)
      local inside = run(function() strategy:run(show) end)
      across()
      inside()
      v:assign(4.0)
      sum:assign(10.0)
      across()
      inside()
      assert.are.same({ "3 2\n", "3 1\n", "3 1\n", "4 10\n", "4 5\n", "4 5\n" },
        lines)
    end
  end)

  -- The text has a line for each replica.
  replicas.pair(it, pending, "and what the replicas have are printed as eagerly",
    function(strategy)
      local function printed(run, start)
        local lines = {}
        local f = run(function(x)
          local made = strategy:run(function()
            local context = tf.distribute.get_replica_context()
            return x + context.replica_id_in_sync_group
          end)
          tf.print("first", made, { made, 7 }, x, { output_stream = function(text)
            lines[#lines + 1] = text
          end })
          return made
        end)
        for i = 0, 1 do f(tf.constant(start + i)) end
        local got = f(tf.constant(100.0))
        local given = run(function(value)
          tf.print(value, { output_stream = function(text)
            lines[#lines + 1] = text
          end })
        end)
        given(got)
        return lines
      end
      local want, got = printed(plain, 3.5), printed(tf.function_, 3.5)
      assert.are.same(want, got)
      assert.are.equal(4, #got)
      for i, pair in ipairs { { "3.5", "4.5" }, { "4.5", "5.5" },
        { "100", "101" }, { "100", "101" } } do
        assert.truthy(got[i]:find("0  %S+  " .. pair[1] .. "\n"))
        assert.truthy(got[i]:find("1  %S+  " .. pair[2] .. "\n"))
      end
    end)

  replicas.pair(it, pending, "are checked and given to Lua at each call",
    function(strategy)
      for _, run in ipairs { plain, tf.function_ } do
        local v, sum = variables(strategy)
        local seen
        local f = run(function(x)
          local y = x * sum
          tf.debugging.assert_less(sum, v)
          tf.py_function(function(a, b)
            seen = { a:item(), b:item() }
          end, { sum, v }, {})
          return y + sum
        end)
        assert.are.equal(12, f(tf.constant(5.0)):item())
        assert.are.same({ 2, 3 }, seen)
        v:assign(20.0)
        sum:assign(8.0)
        assert.are.equal(48, f(tf.constant(5.0)):item())
        assert.are.same({ 8, 20 }, seen)
        v:assign(6.0)
        raises("InvalidArgument", "8 and 6", f, tf.constant(5.0))
      end
    end)

  replicas.pair(it, pending, "are what loops begin with", function(strategy)
    for _, run in ipairs { plain, tf.function_ } do
      local v, sum = variables(strategy)
      local f = run(function(x)
        return tf.while_loop(function(i) return tf.less(i, 3) end,
          function(i, a, b)
            v:assign(a)
            return i + 1, a * x, b + a
          end, { tf.constant(0), v, sum })
      end)
      for start, copies in pairs { [3] = 2, [5] = 10 } do
        v:assign(start)
        sum:assign(copies)
        local tape, a = tf.GradientTape(function()
          return (select(2, f(tf.constant(2.0))))
        end)
        assert.are.equal(8 * start, a:item())
        assert.are.equal(4 * start, v:read_value():item())
        assert.are.equal(8, tape:gradient(a, v):item())
        v:assign(start)
        local _, _, b = f(tf.constant(2.0))
        assert.are.equal(copies + 7 * start, b:item())
      end
    end
  end)

  -- What becomes of {1, 2}, in replicas and outside of them.
  local OWN_VALUES = {
    { function(v) v:assign_add(v) end, { 2, 4 } },
    { function(v) v:assign_sub(v) end, { 0, 0 } },
    { function(v) v:assign(v) end, { 1, 2 } },
    { function(v) v:assign_add(v * 2) end, { 3, 6 } },
    { function(v) v:assign_add(v.values[1]) end, { 2, 4 } },
    { function(v) v:assign_sub(v.values[1]) end, { 0, 0 } },
    { function(v) v:assign_add(tf.IndexedSlices(v, { 1, 0 }, { 2 })) end,
      { 3, 3 } },
    { function(v) v:scatter_add(tf.IndexedSlices(v, { 1, 0 }, { 2 })) end,
      { 3, 3 } },
  }

  local function copies_of(v)
    local out = {}
    for i, copy in ipairs(v.values) do out[i] = copy:read_value():totable() end
    return out
  end

  for _, aggregation in ipairs { "ONLY_FIRST_REPLICA", "MEAN" } do
    replicas.pair(it, pending, "give a write their values from before it, "
      .. aggregation, function(strategy)
      for i, case in ipairs(OWN_VALUES) do
        local write = case[1]
        local ways = {
          ["in replicas"] = function(v)
            strategy:run(function() write(v) end)
          end,
          ["in replicas, traced"] = tf.function_(function(v)
            strategy:run(function() write(v) end)
          end),
          ["of replicas, traced"] = function(v)
            strategy:run(tf.function_(function() write(v) end))
          end,
          ["outside"] = write,
          ["outside, traced"] = tf.function_(function(v) write(v) end),
        }
        for way, call in pairs(ways) do
          local v = strategy:scope(function()
            return tf.Variable({ 1.0, 2.0 }, { aggregation = aggregation })
          end)
          call(v)
          assert.are.same({ case[2], case[2] }, copies_of(v), i .. " " .. way)
        end
      end
    end)
  end

  -- By the value m of v; x is {1, 2}, w another variable.
  local READ_OFTEN = {
    { function(v) return v * v end, function(m) return m * m end },
    { function(v) return tf.add_n { v, v, v } end,
      function(m) return 3 * m end },
    { function(v) return tf.stack { v, v, v + v } end,
      function(m) return { m, m, 2 * m } end },
    { function(v) return tf.where(tf.greater(v, 0), v, v) end,
      function(m) return m end },
    { function(v) return tf.clip_by_value(v + 1, v, v) end,
      function(m) return m end },
    { function(v) return v:read_value() * v + tf.identity(v) * v end,
      function(m) return 2 * m * m end },
    { function(v, x)
      return tf.cond(tf.greater(x[1], 0), function() return v * v end,
        function() return v + v end)
    end, function(m) return m * m end },
    { function(v, x)
      return tf.while_loop(function(y) return tf.less(y[1], 1 + 9 * v * v) end,
        function(y) return y + v * v end, { x })
    end, function(m) return { 1 + 9 * m * m, 2 + 9 * m * m } end },
    { function(v, x)
      return tf.map_fn(function(one) return one + v * v end, x)
    end, function(m) return { 1 + m * m, 2 + m * m } end },
    { function(v, x)
      return tf.function_(function(a, y) return a * a + y * (v - v) end)(v, x)
    end, function(m) return { m * m, m * m } end },
    { function(v, x)
      return tf.custom_gradient(function(y)
        return y * v * v + v, function(d) return d end
      end)(x)
    end, function(m) return { m * m + m, 2 * m * m + m } end },
    { function(v, _, w)
      w:assign(tf.stack { v, v })
      w:scatter_add(tf.IndexedSlices(tf.stack { v, v * v }, { 0, 1 }, { 2 }))
      return w:read_value()
    end, function(m) return { 2 * m, m + m * m } end },
    { function(v, x)
      local sum = v.distribute_strategy:reduce("sum", v)
      return tf.add_n { sum, sum, v, v } + x
    end, function(m) return { 6 * m + 1, 6 * m + 2 } end },
  }

  replicas.pair(it, pending, "are operands more than once", function(strategy)
    local x, w = tf.constant { 1.0, 2.0 }, tf.Variable { 0.0, 0.0 }
    for i, case in ipairs(READ_OFTEN) do
      local v = strategy:scope(function()
        return tf.Variable(1.0,
          { synchronization = "ON_READ", aggregation = "MEAN" })
      end)
      local own = function() return case[1](v, x, w) end
      local ways = {
        plain = case[1], captured = tf.function_(own),
        given = tf.function_(function(a, b) return case[1](a, b, w) end),
      }
      for _, first in ipairs { 2, 6 } do -- of replica 0; the other has twice it
        strategy:run(function()
          v:assign(first * (1 + replicas.id()))
        end)
        for name, call in pairs(ways) do
          local got = call(v, x, w)
          assert.are.same(case[2](1.5 * first),
            got.ndim > 0 and got:totable() or got:item(), i .. " " .. name)
        end
      end
    end
  end)

  replicas.pair(it, pending, "are what a metric multiplies", function(strategy)
    local Squared = tf.keras.metrics.Metric:extend "Squared"
    function Squared:init(options)
      tf.keras.metrics.Metric.init(self, options)
      self.sum = self:add_weight { name = "sum", initializer = "zeros",
        shape = {} }
    end
    function Squared:update_state(y) self.sum:assign_add(tf.reduce_sum(y)) end
    function Squared:result() return self.sum * self.sum end
    local metric = strategy:scope(function() return Squared() end)
    local result = tf.function_(function() return metric:result() end)
    for steps = 1, 3 do
      strategy:run(function() metric:update_state(tf.ones { 3 }) end)
      assert.are.equal((6 * steps) ^ 2, metric:result():item())
      assert.are.equal((6 * steps) ^ 2, result():item())
    end
  end)

  -- TensorFlow's: each copy takes what the variable is once those before it are
  -- written.
  local ANEW = {
    MEAN = {
      assign_add = function(a, b)
        a = a + (a + b) / 2
        return a, b + (a + b) / 2
      end,
      assign_sub = function(a, b)
        a = a - (a + b) / 2
        return a, b - (a + b) / 2
      end,
      assign = function(a, b)
        a = (a + b) / 2
        return a, (a + b) / 2
      end,
    },
    ONLY_FIRST_REPLICA = {
      assign_add = function(a, b) return 2 * a, b + 2 * a end,
      assign_sub = function(_, b) return 0, b end,
      assign = function(a) return a, a end,
    },
    SUM = {
      assign = function(a, b) return (a + b) / 2, (a + b) / 2 end,
    },
  }

  replicas.pair(it, pending, "are written with themselves outside of replicas",
    function(strategy)
      for aggregation, ops in pairs(ANEW) do for op, becomes in pairs(ops) do
        for _, run in ipairs { plain, tf.function_ } do
          local v = strategy:scope(function()
            return tf.Variable(0.0,
              { synchronization = "ON_READ", aggregation = aggregation })
          end)
          local write = run(function() v[op](v, v) end)
          local a, b = 1, 3
          strategy:run(function() v:assign(1 + 2 * replicas.id()) end)
          for _ = 1, 3 do
            write()
            a, b = becomes(a, b)
            assert.are.same({ a, b }, copies_of(v), aggregation .. op)
          end
        end
      end end
    end)
end)
