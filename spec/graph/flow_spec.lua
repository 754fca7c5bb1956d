--- Branches and loops inside traced functions: values, gradients of any order,
--- effects, errors. Expected values are the eager ones or closed forms.
local tf = require "tfdist"
local expect = require "spec.support.expect"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local R = require "spec.support.replicas"
local traces = require "spec.support.traces"

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

local check_gradients, grads = traces.check_gradients, traces.gradient
local power, raises, values = traces.power, expect.raises, traces.values

describe("tf.cond in a traced function", function()
  it("runs the branch that the call chooses", function()
    local traced = { 0, 0 }
    local f = tf.function_(function(x)
      return tf.cond(x:greater(0), function()
        traced[1] = traced[1] + 1
        return { a = x * 2, b = { x } }, 1
      end, function()
        traced[2] = traced[2] + 1
        return { a = -x, b = { x - 1 } }, 1
      end)
    end)
    for _, x in ipairs { 3, -3, 5 } do
      local t, one = f(tf.constant(x + 0.5))
      assert.are.equal(x > 0 and 2 * (x + 0.5) or -(x + 0.5), t.a:item())
      assert.are.equal(x > 0 and x + 0.5 or x - 0.5, t.b[1]:item())
      assert.are.equal(1, one)
    end
    assert.are.same({ 1, 1 }, traced)
  end)

  it("takes a number of one branch as a tensor of the other's dtype", function()
    local f = tf.function_(function(x)
      return tf.cond(x:greater(0), function() return x end,
        function() return 0 end)
    end)
    assert.are.equal(2.5, f(tf.constant(2.5)):item())
    assert.are.equal(0, f(tf.constant(-2.5)):item())
    assert.are.equal("float32", f(tf.constant(-2.5)).dtype)
  end)

  it("decides by a variable as it is at the call", function()
    local v = tf.Variable(true, { trainable = false })
    local f = tf.function_(function(x)
      return tf.cond(v, function() return x + 1 end,
        function() return x - 1 end)
    end)
    assert.are.equal(2, f(tf.constant(1.0)):item())
    v:assign(false)
    assert.are.equal(0, f(tf.constant(1.0)):item())
  end)

  it("writes variables and prints in the branch that runs only", function()
    local v, lines = tf.Variable(1.0), {}
    local f = tf.function_(function(x)
      local before = v:read_value()
      local y = tf.cond(x:greater(0), function()
        v:assign_add(x)
        tf.print("up", x, { output_stream = function(line)
          lines[#lines + 1] = line
        end })
        return v * 10
      end, function()
        return v * 1
      end)
      tf.print("end", { output_stream = function(line)
        lines[#lines + 1] = line
      end })
      return before, y, v:read_value()
    end)
    local function call(x)
      local a, b, c = f(tf.constant(x))
      return { a:item(), b:item(), c:item() }
    end
    assert.are.same({ 1, 30, 3 }, call(2.0))
    assert.are.same({ 3, 3, 3 }, call(-2.0))
    assert.are.same({ 3, 80, 8 }, call(5.0))
    assert.are.same({ "up 2\n", "end\n", "end\n", "up 5\n", "end\n" }, lines)
  end)

  it("nests, and captures through all levels", function()
    local c = tf.constant(100.0)
    local function plain(x, y)
      return tf.cond(x:greater(0), function()
        return tf.cond(y:greater(0), function() return x + y + c end,
          function() return x - y end)
      end, function()
        return tf.cond(y:greater(x), function() return y * 2 end,
          function() return c end)
      end)
    end
    local f = tf.function_(plain)
    for _, p in ipairs { { 1, 2 }, { 1, -2 }, { -1, 2 }, { -1, -2 } } do
      local x, y = tf.constant(p[1] + 0.5), tf.constant(p[2] + 0.5)
      assert.are.equal(plain(x, y):item(), f(x, y):item())
    end
  end)

  it("has gradients of any order, with tapes inside and around", function()
    local v = tf.Variable(3.0)
    check_gradients(function(x)
      return tf.cond(x:greater(0), function() return x * x * x * v end,
        function() return tf.sin(x) end)
    end, { 2.0, -0.5 })
    check_gradients(function(x)
      local z = x * 2
      return z * tf.cond(x:greater(0), function()
        return tf.cond(x:greater(1), function() return tf.exp(z) end,
          function() return z * x end)
      end, function() return x end)
    end, { 2.0, 0.5, -1.0 })
  end)

  it("gives gradients of variables, also where one branch uses none", function()
    local v, u = tf.Variable(3.0), tf.Variable(2.0)
    local f = tf.function_(function(x)
      local y
      local tape = tf.GradientTape(function()
        y = tf.cond(x:greater(0), function() return x * v * v end,
          function() return u * 5 end)
      end)
      return unpack(tape:gradient(y, { v, u }))
    end)
    local a, b = f(tf.constant(2.0))
    assert.are.same({ 12, 0 }, { a:item(), b:item() })
    a, b = f(tf.constant(-2.0))
    assert.are.same({ 0, 5 }, { a:item(), b:item() })
  end)

  it("has the gradient at the values that the branch saw", function()
    local v = tf.Variable(3.0)
    local f = tf.function_(function(x)
      local y
      local tape = tf.GradientTape(function()
        y = tf.cond(x:greater(0), function()
          local before = v * v
          v:assign(v * 2)
          return before + v * v
        end, function() return v * 1 end)
      end)
      v:assign(100.0)
      return tape:gradient(y, v)
    end)
    -- d(v v) at 3 and at 6: reads before and after the write both count.
    assert.are.equal(2 * 3 + 2 * 6, f(tf.constant(1.0)):item())
    v:assign(3.0)
    assert.are.equal(1, f(tf.constant(-1.0)):item())
  end)

  it("gives gradients of constants that a tape follows", function()
    local kept = tf.constant(3.0)
    local function gradients(around)
      return function(x)
        local made = tf.constant(2.0)
        local y
        local tape = tf.GradientTape(function(t)
          t:watch { kept, made }
          y = around(x, kept, made, made * made)
        end)
        local a, b = unpack(tape:gradient(y, { kept, made }))
        return a, b or tf.constant(0.0)
      end
    end
    local function check(want_a, want_b, x, around)
      local a, b = tf.function_(gradients(around))(tf.constant(x))
      assert.are.same({ want_a, want_b }, { a:item(), b:item() })
    end
    local function choice(x, a, b, square)
      return tf.cond(x:greater(0), function() return a * b * x end,
        function()
          return tf.cond(x:greater(-2), function() return a * a + b end,
            function() return a * square end)
        end)
    end
    check(2 * 5, 3 * 5, 5.0, choice)
    check(2 * 3, 1, -1.0, choice)
    check(2 * 2, 3 * 2 * 2, -5.0, choice)
    -- x a^n b^2
    check(7 * 3 * 9 * 4, 7 * 27 * 4, 7.0, function(x, a, _, square)
      local _, y = tf.while_loop(function(i) return i:less(3) end,
        function(i, z) return i + 1, z * a end, { tf.constant(0), x * square })
      return y
    end)
  end)

  it("keeps custom gradients and tapes inside a branch", function()
    local odd = tf.custom_gradient(function(x)
      return x * 2, function(dy) return dy * 100 end
    end)
    local f = tf.function_(function(x)
      return grads(function(a)
        return tf.cond(a:greater(0), function() return odd(a) end,
          function() return a end)
      end, x), tf.cond(x:greater(0), function()
        return grads(function(a) return a * a end, x)
      end, function() return x end)
    end)
    local a, b = f(tf.constant(3.0))
    assert.are.same({ 100, 6 }, { a:item(), b:item() })
    a, b = f(tf.constant(-3.0))
    assert.are.same({ 1, -3 }, { a:item(), b:item() })
  end)

  it("says how the branches' results differ", function()
    local function of(a, b)
      return tf.function_(function(x)
        return tf.cond(x:greater(0), function() return a(x) end,
          function() return b(x) end)
      end)
    end
    local x = tf.constant(1.0)
    local words = "must have the same number, type, and overall structure"
    for _, other in ipairs {
      function(t) return { t } end, function(t) return t, t end,
      function(t) return tf.cast(t, "int32") end, function() end,
      function() return "word" end,
    } do
      raises("TypeError", words, of(function(t) return t end, other), x)
    end
    raises("NotImplementedError", "unknown rank", of(function(t) return t end,
      function(t) return tf.reshape(t, { 1 }) end), x)
    raises("TypeError", "one boolean", tf.function_(function(t)
      return tf.cond(tf.stack { t, t }:greater(0), function() end,
        function() end)
    end), x)
    assert.is_true(tf.executing_eagerly())
  end)

  it("refuses what leaks from a branch", function()
    local kept
    local f = tf.function_(function(x)
      local y = tf.cond(x:greater(0), function()
        kept = x * 2
        return kept
      end, function() return x end)
      return y + kept
    end)
    raises("TypeError", "out of scope", f, tf.constant(1.0))
    assert.is_true(tf.executing_eagerly())
  end)

  it("makes variables of the first trace outside the branch", function()
    local v
    local f = tf.function_(function(x)
      return tf.cond(x:greater(0), function()
        v = v or tf.Variable(7.0)
        return x + v
      end, function() return x end)
    end)
    assert.are.equal(9, f(tf.constant(2.0)):item())
    assert.are.equal(-2, f(tf.constant(-2.0)):item())
  end)

  it("shows its branches", function()
    local f = tf.function_(function(x)
      return tf.cond(x:greater(0), function() return x + x end,
        function() return -x end)
    end)
    local text = f:get_concrete_function(tf.constant(1.0)):graph()
    assert.is_not_nil(text:find("= choice(%", 1, true), text)
    assert.is_not_nil(text:find("branch 0: x0 = operand 1", 1, true), text)
    assert.is_not_nil(text:find("      %1 = negative(x0) float32 {}", 1, true),
      text)
  end)

  it("runs as a program, like what stands before and behind it", function()
    local v = tf.Variable(1.0)
    local f = tf.function_(function(x)
      v:assign_add(x)
      local y = tf.cond(x:greater(0), function()
        v:assign(v * 2)
        return tf.tanh(x) + v
      end, function()
        local _, z = tf.while_loop(function(i) return i:less(3) end,
          function(i, t) return i + 1, t * x end, { tf.constant(0), x })
        return z
      end)
      local after = v * 10
      v:assign(0.0)
      return tf.exp(y), after
    end)
    local function check(x, y, after)
      local a, b = f(tf.constant(x))
      assert.is_true(math.abs(a:item() / y - 1) < 1e-5)
      assert.are.equal(after, b:item())
    end
    local tanh = (1 - math.exp(-4)) / (1 + math.exp(-4))
    check(2.0, math.exp(tanh + 6), 60)
    check(-2.0, math.exp(16), -20)
    check(2.0, math.exp(tanh + 4), 40)
    local text = f:get_concrete_function(tf.constant(2.0)):graph "lowered"
    assert.is_nil(text:find("replayed", 1, true), text)
    assert.is_not_nil(text:find("a choice of\nprogram", 1, true), text)
    assert.is_not_nil(text:find("a loop of\nprogram", 1, true), text)
  end)
end)

describe("tf.case and tf.switch_case in a traced function", function()
  it("take what holds first, or the default", function()
    local f = tf.function_(function(x)
      return tf.case({ { x:greater(10), function() return x * 10 end },
        { x:greater(1), function() return x * 2 end } },
        { default = function() return x end })
    end)
    assert.are.equal(110, f(tf.constant(11.0)):item())
    assert.are.equal(4, f(tf.constant(2.0)):item())
    assert.are.equal(0.5, f(tf.constant(0.5)):item())
  end)

  it("say that none or several hold", function()
    local x = tf.constant(1.0)
    local none = tf.function_(function(t)
      return tf.case { { t:greater(10), function() return t end } }
    end)
    raises("InvalidArgument", "no condition holds", none, x)
    assert.are.equal(11, none(tf.constant(11.0)):item())
    local several = tf.function_(function(t)
      return tf.case({ { t:greater(0), function() return t end },
        { t:greater(-1), function() return t end } }, { exclusive = true })
    end)
    raises("InvalidArgument", "more than one condition", several, x)
  end)

  it("choose by number, the last for what is outside", function()
    local f = tf.function_(function(i, x)
      return tf.switch_case(i, { function() return x end,
        function() return x * 2 end }, { default = function() return -x end })
    end)
    local x = tf.constant(4.0)
    for i, want in pairs { [0] = 4, [1] = 8, [2] = -4, [7] = -4, [-1] = -4 } do
      assert.are.equal(want, f(tf.constant(i, "int32"), x):item())
    end
  end)

  it("choose by whole numbers, line by line and in a graph", function()
    local fns = { function() return tf.constant(5) end,
      function() return tf.constant(7) end }
    local function f(i) return tf.switch_case(i, fns) end
    for way, run in pairs { eager = f, traced = tf.function_(f) } do
      for _, dtype in ipairs { "float32", "float64", "bfloat16", "int64" } do
        assert.are.equal(7, run(tf.constant(1, dtype)):item(), way .. dtype)
        assert.are.equal(5, run(tf.Variable(0, { dtype = dtype })):item())
      end
      raises("InvalidArgument", "switch_case: branch_index has dtype bool", run,
        tf.constant(true))
      local ok, e = pcall(run, tf.constant(1.5))
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find("switch_case: branch_index must be", 1,
        true), tostring(e))
    end
    raises("ValueError", "switch_case: branch_fns is empty", tf.switch_case,
      tf.constant(0, "int32"), {})
  end)
end)

describe("tf.while_loop in a traced function", function()
  it("runs as often as the call says, also never", function()
    local f = tf.function_(power)
    for n = 0, 5 do
      assert.are.equal(2 ^ n, f(tf.constant(2.0),
        tf.constant(n, "int32")):item())
    end
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("has gradients of any order, with tapes inside and around", function()
    for _, n in ipairs { 0, 1, 4 } do
      local count = tf.constant(n, "int32")
      check_gradients(function(x) return power(x, count) * x end, { 1.5, -2.0 })
    end
  end)

  it("has gradients of loops in loops and branches in loops", function()
    check_gradients(function(x)
      local _, y = tf.while_loop(function(i) return tf.less(i, 3) end,
        function(i, y)
          local _, z = tf.while_loop(function(j) return tf.less(j, i) end,
            function(j, z) return j + 1, z * x end,
            { tf.constant(0, "int32"), y })
          return i + 1, tf.cond(z:greater(2), function() return z / 2 end,
            function() return z * z + x end)
        end, { tf.constant(0, "int32"), x })
      return y
    end, { 1.5, 0.75 })
  end)

  it("gives the gradient of a variable that all iterations read", function()
    local v = tf.Variable(2.0)
    local f = tf.function_(function(x, n)
      local y
      local tape = tf.GradientTape(function()
        local _
        _, y = tf.while_loop(function(i) return tf.less(i, n) end,
          function(i, z) return i + 1, z * v end, { tf.constant(0, "int32"), x })
      end)
      return y, tape:gradient(y, v)
    end)
    for n = 1, 4 do
      local y, g = f(tf.constant(3.0), tf.constant(n, "int32"))
      assert.are.equal(3 * 2 ^ n, y:item())
      assert.are.equal(3 * n * 2 ^ (n - 1), g:item())
    end
  end)

  it("agrees with finite differences where values are matrices", function()
    local w = tf.Variable({ { 0.5, -0.2 }, { 0.3, 0.1 } }, { dtype = "float64" })
    local function loss(x)
      local _, y = tf.while_loop(function(i) return tf.less(i, 3) end,
        function(i, h) return i + 1, tf.tanh(tf.matmul(h, w)) + x end,
        { tf.constant(0, "int32"), x })
      return tf.reduce_sum(y * y)
    end
    local f = tf.function_(function(x)
      local y
      local tape = tf.GradientTape(function() y = loss(x) end)
      return tape:gradient(y, w)
    end)
    local x = tf.constant({ { 0.4, -0.7 } }, { dtype = "float64" })
    local got, eps = values(f(x)), 1e-6
    local base = values(w)
    for i = 1, 4 do
      local at = {}
      for sign = -1, 1, 2 do
        local moved = { unpack(base) }
        moved[i] = moved[i] + sign * eps
        w:assign(tf.constant(moved, { dtype = "float64", shape = { 2, 2 } }))
        at[sign] = loss(x):item()
      end
      -- Differences of the second order and of rounding: 1e-8.
      assert.is_true(math.abs((at[1] - at[-1]) / (2 * eps) - got[i]) < 1e-7)
    end
  end)

  -- On a queue, which tells late that there is no such inverse.
  it("takes no gradients of constants that its body makes #once", function()
    local r = process.run(("TFDIST_QUEUE=queued %s -e %s"):format(
      process.hosts[1].path, process.quote [[
local tf = require "tfdist"
local x = tf.constant(2.0)
local function body(y)
  local _, log = tf.linalg.slogdet { { 1, 2 }, { 2, 4 } } -- log is -inf
  return y * 3 + tf.tanh(log)
end
local function loop(y)
  local _, z = tf.while_loop(function(i) return tf.less(i, 2) end,
    function(i, z) return i + 1, body(z) end, { tf.constant(0, "int32"), y })
  return z
end
local function branch(y)
  return tf.cond(tf.greater(y, 0), function() return body(y) end,
    function() return y end)
end
for _, fn in ipairs { loop, branch } do
  local y
  local f = tf.function_(fn)
  local tape = tf.GradientTape(function(t)
    t:watch(x)
    y = f(x)
  end)
  print(y:item(), tape:gradient(y, x):item())
end
]]))
    assert.are.equal("14.0\t9.0\n5.0\t3.0\n", r.out, r.err)
  end)

  it("writes variables, prints and draws in every iteration", function()
    local v, lines = tf.Variable(0.0), {}
    local f = tf.function_(function(n)
      return tf.while_loop(function(i) return tf.less(i, n) end,
        function(i, all)
          v:assign_add(tf.cast(i, "float32") + 1)
          tf.print(i, v, { output_stream = function(line)
            lines[#lines + 1] = line
          end })
          return i + 1, all + tf.one_hot(i, 3) * tf.random.uniform {}
        end, { tf.constant(0, "int32"), tf.zeros { 3 } })
    end)
    local _, drawn = f(tf.constant(3, "int32"))
    assert.are.equal(6, v:read_value():item())
    assert.are.same({ "0 1\n", "1 3\n", "2 6\n" }, lines)
    local a, b, c = unpack(values(drawn))
    assert.is_true(a ~= b and b ~= c and a ~= c)
  end)

  it("stops at maximum_iterations", function()
    local f = tf.function_(function(x)
      return tf.while_loop(function() return tf.constant(true) end,
        function(y) return y + 1 end, { x }, { maximum_iterations = 7 })
    end)
    assert.are.equal(8, f(tf.constant(1.0)):item())
  end)

  it("does nothing where maximum_iterations is negative", function()
    local function count()
      return tf.while_loop(function(i) return tf.less(i, 50) end,
        function(i) return i + 1 end, { tf.constant(0) },
        { maximum_iterations = -4 })
    end
    assert.equal(0, count():item())
    assert.equal(0, tf.function_(count)():item())
  end)

  it("takes maximum_iterations that only a call knows", function()
    local function fn(x, most)
      return tf.while_loop(function(y) return tf.less(y, 1000) end,
        function(y) return y * x end, { x }, { maximum_iterations = most })
    end
    local f = tf.function_(fn)
    -- Turns, until 3 ^ 7 > 1000: the result is 3 ^ (turns + 1).
    for most, turns in pairs { [-4] = 0, [0] = 0, [1] = 1, [3] = 3, [9] = 6 } do
      for _, dtype in ipairs { "int32", "int64", "float32" } do
        local n = tf.constant(most, dtype)
        assert.are.equal(3 ^ (turns + 1), f(tf.constant(3), n):item())
        assert.are.equal(3 ^ (turns + 1), fn(tf.constant(3), n):item())
      end
      check_gradients(function(x)
        return f(x, tf.constant(most, "int32"))
      end, { 3 })
    end
    local v = tf.Variable(2, { dtype = "int32" })
    local counted = tf.function_(function()
      return tf.while_loop(function() return true end,
        function(i) return i + 1 end, { 0 }, { maximum_iterations = v })
    end)
    assert.are.equal(2, counted():item())
    v:assign(5)
    assert.are.equal(5, counted():item())
    raises("InvalidArgument", "must be a whole number", f, tf.constant(3),
      tf.constant(1.5))
    raises("InvalidArgument", "must be a whole number", f, tf.constant(3),
      tf.constant(1 / 0))
    for _, run in ipairs { f, fn } do
      raises("ValueError", "maximum_iterations must be one whole number, got a "
        .. "float32 tensor of shape {2}", run, tf.constant(3), tf.ones { 2 })
      raises("TypeError", "got a bool tensor", run, tf.constant(3),
        tf.constant(true))
    end
  end)

  it("lets shapes change where shape_invariants say so", function()
    local function grow(x, options)
      return tf.while_loop(function(i) return tf.less(i, 3) end,
        function(i, z) return i + 1, tf.concat({ z, z }, 0) end,
        { tf.constant(0, "int32"), x }, options)
    end
    raises("ValueError", "enters the loop with shape {1}, but has shape {2} "
      .. "after one iteration", tf.function_(grow), tf.ones { 1 })
    local f = tf.function_(function(x)
      return grow(x, { shape_invariants = { {}, { -1 } } })
    end)
    local i, y = f(tf.ones { 1 })
    assert.are.equal(3, i:item())
    assert.are.equal(8, #values(y))
    raises("TypeError", "after one iteration", tf.function_(function(x)
      return tf.while_loop(function() return true end, function(z)
        return tf.cast(z, "int32")
      end, { x })
    end), tf.constant(1.0))
  end)

  it("says what to write for a size that the iterations change", function()
    local function grow(count)
      return tf.function_(function(x)
        local _, _, n = tf.while_loop(function(i) return tf.less(i, 3) end,
          function(i, z, n)
            return i + 1, tf.concat({ z, z }, 0), n + count(z)
          end, { tf.constant(0, "int32"), x, tf.constant(0) },
          { shape_invariants = { {}, { -1 }, {} } })
        return n
      end)
    end
    local e = R.fails("NotImplementedError", "shape: a tensor of shape {-1} has "
      .. "sizes that only a call knows", grow(function(z)
      return tf.cast(tf.shape(z)[0], "float32") end), tf.ones { 1 })
    assert.matches("tf.reduce_sum(tf.ones_like(x))", e.hint, 1, true)
    assert.are.equal(1 + 2 + 4, grow(function(z)
      return tf.reduce_sum(tf.ones_like(z)) end)(tf.ones { 1 }):item())
  end)

  it("takes one of shape_invariants for each variable", function()
    local function run(shapes, pair)
      local f = tf.function_(function(x)
        return tf.while_loop(function(i) return tf.less(i, 3) end,
          function(i, z) return i + 1, z end, { tf.constant(0, "int32"),
          pair and { x, b = x } or x }, { shape_invariants = shapes })
      end)
      return f(tf.ones { 1 })
    end
    for _, shapes in ipairs { {}, { {} }, { {}, { -1 }, {} } } do
      raises("ValueError", "shape_invariants and loop_vars don't have the same "
        .. "number of elements: " .. #shapes .. " and 2", run, shapes)
    end
    for _, shapes in ipairs { { {}, { -1 }, { -1 } }, { {}, { -1 } } } do
      raises("ValueError", "the same number of elements", run, shapes, true)
    end
    raises("ValueError", "loop variable 2 has shape {1}, shape_invariants allow "
      .. "{3}", run, { {}, { 3 } })
    raises("ValueError", "allow {-1, -1}", run, { {}, { -1, -1 } })
    raises("TypeError", "of loop variable 2 must be a list of whole numbers, "
      .. 'got the string "any"', run, { {}, "any" })
    raises("TypeError", "like those of loop_vars, got the number 5", run, { {}, 5 }, true)
    assert.are.equal(3, (run { n = 2 }):item())
    assert.are.equal(3, (run({ {}, { { -1 }, b = { 1 } } }, true)):item())
  end)

  it("keeps loops of Lua numbers loops of Lua", function()
    local turns = 0
    local f = tf.function_(function(x)
      local _, y = tf.while_loop(function(i) return i < 4 end, function(i, y)
        turns = turns + 1
        return i + 1, y
      end, { 0, 1 })
      return x * y
    end)
    assert.are.equal(3, f(tf.constant(3.0)):item())
    assert.are.equal(4, turns)
  end)

  it("takes no memory as calls go on", function()
    local f = tf.function_(function(x, n)
      return grads(function(a) return power(a, n) end, x)
    end)
    local x, n = tf.constant(1.01), tf.constant(5, "int32")
    for _ = 1, 20 do f(x, n) end
    collectgarbage()
    collectgarbage()
    local bytes, handles = raw.live_bytes(), raw.live_handles "tensor"
    for _ = 1, 200 do f(x, n) end
    collectgarbage()
    collectgarbage()
    assert.is_true(raw.live_bytes() <= bytes)
    assert.is_true(raw.live_handles "tensor" <= handles)
  end)

  it("leaves nothing when its function is dropped", function()
    local function round()
      for _ = 1, 20 do
        local v = tf.Variable(tf.ones { 8 })
        local f = tf.function_(function(x, n)
          return grads(function(a)
            return tf.cond(n:greater(3), function() return power(a * v, n) end,
              function() return a end)
          end, x)
        end)
        f(tf.ones { 8 }, tf.constant(5, "int32"))
      end
      collectgarbage()
      collectgarbage()
      collectgarbage()
      return raw.live_handles "graph", raw.live_handles "variable",
        raw.live_bytes()
    end
    round()
    local graphs, variables, bytes = round()
    for _ = 1, 2 do
      -- LuaJIT's stack may hold on to what a function made, some 17 graphs; a
      -- leak is that for each of the 20.
      local g, v, b = round()
      assert.is_true(g < graphs + 100 and v < variables + 20)
      assert.is_true(b < bytes + 20 * 32)
    end
  end)
end)

describe("the gradient of a branch that writes a variable", function()
  -- of x * v * x, in a branch that begins with that; v is no function of x
  local function of(write)
    local v = tf.Variable(2.0)
    return tf.function_(function(x)
      return grads(function(t)
        return tf.cond(t:greater(0), function()
          write(v, t)
          return t * v * t
        end, function() return t end)
      end, x)
    end)
  end

  it("knows what it wrote itself", function()
    assert.are.equal(2 * 3 * 15,
      of(function(v, t) v:assign(t * 5) end)(tf.constant(3.0)):item())
  end)

  it("refuses what a loop or a branch in it wrote", function()
    local function loop(v)
      tf.while_loop(function(i) return tf.less(i, 2) end, function(i)
        v:assign(v * 3)
        return i + 1
      end, { 0 })
    end
    for _, write in ipairs {
      loop,
      function(v, t)
        v:assign(t * 5)
        loop(v)
      end,
      function(v, t)
        v:assign(t * 5)
        tf.cond(t:greater(1), function()
          v:assign_add(t)
          return t
        end, function() return t end)
      end,
    } do
      local f = of(write)
      raises("NotImplementedError", "reads a variable that is written in a loop",
        function() f(tf.constant(3.0)) end)
    end
  end)
end)

describe("tf.timestamp in a traced function", function()
  it("is the time of the call, in branches too", function()
    local f = tf.function_(function(x)
      return tf.timestamp(), tf.cond(x:greater(0), function()
        return tf.timestamp() * 0 + 1
      end, function() return 0 end)
    end)
    local before = tf.timestamp():item()
    local first, one = f(tf.constant(1.0))
    local second, zero = f(tf.constant(-1.0))
    assert.are.same({ 1, 0 }, { one:item(), zero:item() })
    assert.is_true(before <= first:item() and first:item() < second:item())
    assert.is_true(second:item() <= tf.timestamp():item())
  end)
end)

describe("loops over what is not dense", function()
  local turned = tf.transpose(tf.random.normal({ 4, 33 }, 0, 1, "float32", 5))
  local list = tf.random.normal({ 3, 33, 4 }, 0, 1, "float32", 6)

  -- Sums along rows, of memory and results that have them as columns.
  local function next_of(x, more)
    local y = x - tf.reduce_mean(x, { -1 }, true)
    return tf.transpose(tf.transpose(y * y + more) * 0.5)
  end
  local LOOPS = {
    while_loop = function(x)
      local _, y = tf.while_loop(function(i) return tf.less(i, 3) end,
        function(i, z) return i + 1, next_of(z, 1) end,
        { tf.constant(0, "int32"), x })
      return y
    end,
    foldl = function(x) return tf.foldl(next_of, list, x) end,
    scan = function(x) return tf.scan(next_of, list, x)[-1] end,
  }

  for name, fn in pairs(LOOPS) do
    it("have the same bits and gradients in a graph: " .. name, function()
      local function both(x)
        local y
        local tape = tf.GradientTape(function(t)
          t:watch(x)
          y = fn(x)
        end)
        return y, tape:gradient(y, x)
      end
      local y, dy = both(turned)
      local traced, dtraced = tf.function_(both)(turned)
      assert.is_false(raw.tensor_is_dense(turned))
      assert.is_true(raw.tensor_bytes(y) == raw.tensor_bytes(traced))
      assert.is_true(raw.tensor_bytes(dy) == raw.tensor_bytes(dtraced))
    end)
  end
end)
