--- Where systems that trace and plan went wrong for others, one behaviour each.
local tf = require "tfdist"
local expect = require "spec.support.expect"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local traces = require "spec.support.traces"

local unpack = table.unpack or unpack -- luacheck: ignore 143 113
local gradient, power = traces.gradient, traces.power
local values = traces.values

-- Blocks tagged #plan run without a memory plan, too (at the end).
describe("results #plan", function()
  it("keep their values when the function is called again", function()
    local v = tf.Variable { 5, 6 }
    local f = tf.function_(function(x)
      local y = x * 2
      v:assign_add(x)
      return y, v:read_value(), x, y, tf.reshape(y, { 2, 1 })
    end)
    local x1, x2 = tf.constant { 1, 2 }, tf.constant { 3, 4 }
    local first = { f(x1) }
    local second = { f(x2) }
    assert.are.same({ 2, 4 }, values(first[1]))
    assert.are.same({ 6, 8 }, values(first[2]))
    assert.are.same({ 1, 2 }, values(first[3]))
    assert.are.same({ 2, 4 }, values(first[4]))
    assert.are.same({ 2, 4 }, values(first[5]))
    assert.are.same({ 6, 8 }, values(second[1]))
    assert.are.same({ 9, 12 }, values(second[2]))
    assert.is_true(rawequal(first[3], x1))
  end)

  it("may be a cast of a read to the dtype that it has", function()
    local v = tf.Variable { 1, 2 }
    local f = tf.function_(function()
      local before = tf.cast(v:read_value(), "float32")
      v:assign_add { 10, 10 }
      return before, tf.cast(v, "float32")
    end)
    for n = 0, 2 do
      local before, after = f()
      assert.are.same({ 1 + 10 * n, 2 + 10 * n }, values(before))
      assert.are.same({ 11 + 10 * n, 12 + 10 * n }, values(after))
    end
  end)

  it("of reads keep their values when the variable is written", function()
    local v = tf.Variable { 1, 2 }
    local f = tf.function_(function() return v:read_value() end)
    local before = f()
    v:assign { 8, 9 }
    assert.are.same({ 1, 2 }, values(before))
    assert.are.same({ 8, 9 }, values(f()))
  end)

  it("are shown as they are made while calls still run", function()
    local f = tf.function_(function(x)
      local y = tf.matmul(x, x)
      return tf.matmul(y, x) + 1
    end)
    local x = tf.ones { 64, 64 }
    local concrete, before = f:get_concrete_function(x), nil
    f(x)
    for _ = 1, 20 do
      f(tf.ones { 64, 64 })
      local text = concrete:graph "lowered" .. concrete:graph "costs"
      -- A GPU records calls again for other addresses.
      text = text:gsub("\n +%d+ of them are started at once[^\n]*", "")
      assert.are.equal(before or text, text)
      before = text
    end
  end)

  it("may be fed back as arguments", function()
    local f = tf.function_(function(x) return x + 1, x * 2 end)
    local a, b = tf.constant { 1 }, nil
    for _ = 1, 4 do a, b = f(a) end
    assert.are.same({ 5 }, values(a))
    assert.are.same({ 8 }, values(b))
  end)
end)

describe("overlapping views #plan", function()
  it("of a variable that is written are read as they were", function()
    local function plain(v)
      return function()
        v:assign(v + tf.reverse(v, { 0 }))
        local old = v:read_value()
        v:assign(tf.concat({ old[{ { 0, 2 } }], old[{ { 0, 3 } }] }, 0))
        v:assign_add(v)
        return v:read_value(), old
      end
    end
    local a, b = tf.Variable { 1, 2, 3, 4, 5 }, tf.Variable { 1, 2, 3, 4, 5 }
    local eager, traced = plain(a), tf.function_(plain(b))
    for _ = 1, 3 do
      local w1, w2 = eager()
      local g1, g2 = traced()
      assert.are.same(values(w1), values(g1))
      assert.are.same(values(w2), values(g2))
      assert.are.same(values(a), values(b))
    end
  end)

  it("of arguments are taken as they are, one tensor twice too", function()
    local function plain(x, y)
      return tf.transpose(x) + y, tf.matmul(x, y), x[0] * y[{ {}, 1 }]
    end
    local f = tf.function_(plain)
    local t = tf.constant { { 1, 2 }, { 3, 4 } }
    for _, args in ipairs { { t, t }, { t, tf.transpose(t) },
      { tf.transpose(t), t }, { tf.broadcast_to(tf.constant { 7, 8 },
      { 2, 2 }), t } } do
      local want, got = { plain(args[1], args[2]) }, { f(args[1], args[2]) }
      for i = 1, 3 do assert.are.same(values(want[i]), values(got[i])) end
    end
  end)
end)

describe("a failed trace", function()
  it("leaves nothing: the same call fails again, later ones are right",
    function()
      local broken = true
      local f = tf.function_(function(x)
        local y = x * 2
        tf.device("CPU:0", function()
          tf.GradientTape(function()
            if broken then error("broken here", 0) end
          end)
        end)
        return y
      end)
      local depth = raw.device_depth()
      for _ = 1, 2 do
        local e = expect.caught(f, tf.constant { 3 })
        assert.is_not_nil(tostring(e):find("broken here", 1, true))
        assert.is_true(tf.executing_eagerly())
        assert.are.equal(depth, raw.device_depth())
        assert.are.equal(0, raw.tape_active())
      end
      assert.are.equal(0, f:experimental_get_tracing_count())
      assert.are.equal("", f:pretty_printed_concrete_signatures())
      broken = false
      assert.are.same({ 6 }, values(f(tf.constant { 3 })))
    end)

  it("leaves the scopes that it was in, closed or not", function()
    local strategy, creators = tf.distribute.MirroredStrategy(), 0
    local function creator(next_creator, options)
      creators = creators + 1
      return next_creator(options)
    end
    local scopes = {
      function(...) return strategy:scope(...) end,
      function(...) return tf.name_scope("a scope", ...) end,
      function(...) return tf.variable_creator_scope(creator, ...) end,
      function(...) return tf.device("CPU:0", ...) end,
    }
    local function fail(x, open, closed)
      if closed then return open(function() return x:item() end) end
      open()
      return x:item()
    end
    local depth = raw.device_depth()
    local function check(f, ...)
      local e = expect.failure(f, ...)
      assert.are.equal("TypeError", tf.errors.kind(e))
      assert.is_false(tf.distribute.has_strategy())
      local v = tf.Variable(1.0, { name = "plain" })
      assert.are.equal("plain", v.name)
      assert.are.equal("variable", raw.kind(v))
      assert.are.equal(0, creators)
      assert.are.equal(depth, raw.device_depth())
    end
    for _, open in ipairs(scopes) do
      for _, closed in ipairs { true, false } do
        check(tf.function_(fail), tf.constant(1.0), open, closed)
        check(tf.function_(function(x)
          return tf.cond(tf.greater(x, 0), function()
            return fail(x, open, closed)
          end, function() return x end)
        end), tf.constant(1.0))
      end
    end
  end)

  it("has scopes of its own, as one that does not fail has", function()
    local v
    local f = tf.function_(function(x)
      tf.name_scope("left open")
      local y = tf.cond(tf.greater(x, 0), function()
        tf.name_scope("in a branch")
        return x
      end, function() return -x end)
      v = v or tf.Variable(1.0, { name = "inner" })
      return y
    end)
    assert.are.equal(3, f(tf.constant(-3.0)):item())
    assert.are.equal("left open/inner", v.name)
    assert.are.equal("plain", tf.Variable(1.0, { name = "plain" }).name)
  end)

  it("inside another one ends both", function()
    local inner = tf.function_(function(x) return x:item() end)
    local outer = tf.function_(function(x) return inner(x) end)
    for _ = 1, 2 do
      assert.are.equal("TypeError", tf.errors.kind(expect.failure(outer,
        tf.constant(1.0))))
      assert.is_true(tf.executing_eagerly())
    end
  end)
end)

describe("a failed trace that made variables", function()
  it("may make them again", function()
    local broken, v = true, nil
    local f = tf.function_(function(x)
      if v == nil then v = tf.Variable(2.0) end
      if broken then
        v = nil
        error("broken here", 0)
      end
      return x * v
    end)
    local function live()
      collectgarbage()
      collectgarbage()
      return raw.live_handles "variable"
    end
    local before = live()
    for _ = 1, 3 do
      expect.caught(f, tf.constant(3.0))
    end
    assert.is_true(live() <= before + 1)
    broken = false
    assert.are.equal(6, f(tf.constant(3.0)):item())
    assert.are.equal(6, f(tf.constant(3.0)):item())
  end)
end)

describe("calls that differ in one thing", function()
  it("have graphs of their own, tables in another order have not", function()
    local count = 0
    local f = tf.function_(function(...)
      count = count + 1
      local sum = tf.zeros {}
      for _, x in ipairs(tf.nest.flatten({ ... })) do
        if type(x) == "userdata" then
          sum = sum + tf.reduce_sum(tf.cast(x, "float32"))
        elseif type(x) == "number" and x == x then
          sum = sum + (1 / x == -math.huge and -1000 or x)
        end
      end
      return sum
    end)
    local t23, t32 = tf.ones { 2, 3 }, tf.ones { 3, 2 }
    local list = { { t23, 1 }, { t32, 1 }, { tf.cast(t23, "int32"), 1 },
      { tf.cast(t23, "float64"), 1 }, { t23 }, { t23, 2 }, { t23, 1.5 },
      { t23, "1" }, { t23, true }, { { t23, 1 } }, { { t23 }, 1 },
      { { a = t23, b = 1 } }, { { a = t23, c = 1 } }, { t23, t23 },
      { t23, { } }, { t23, 0 }, { t23, -0.0 }, { t23, 0 / 0 }, { t23, 1, 1 } }
    -- LuaJIT folds -0.0 into 0 in a table of constants.
    local zero = 0
    list[17][2] = -zero
    local own = 1 / list[17][2] == -math.huge and #list or #list - 1
    local first = {}
    for i, args in ipairs(list) do
      first[i] = f(unpack(args)):item()
    end
    assert.are.equal(own, count)
    for i, args in ipairs(list) do
      assert.are.equal(first[i], f(unpack(args)):item())
    end
    local a, b = {}, {}
    for k = 1, 9 do
      a["k" .. k], b["k" .. 10 - k] = t23, t23
    end
    f(a)
    f(b)
    assert.are.equal(own + 1, count)
    assert.are.equal(6 + 1, first[1])
    assert.are.equal(6 + 1.5, first[7])
  end)
end)

describe("a symbolic tensor that leaks", function()
  it("is one clear error wherever it is used", function()
    local kept, box = nil, {}
    tf.function_(function(x)
      kept = x * 3
      box.deep = { kept + 1 }
      box.later = coroutine.wrap(function()
        coroutine.yield()
        return kept * 2
      end)
      box.later()
      return x
    end)(tf.constant { 1, 2 })
    for _, use in ipairs {
      function() return kept + 1 end,
      function() return tf.reduce_sum(box.deep[1]) end,
      function() return box.later() end,
      function() return kept:totable() end,
      function() return tf.Variable(kept) end,
      function() return tf.function_(function(x) return x + kept end)(
        tf.constant { 1, 2 }) end,
      function() return tf.function_(function() return kept end)() end,
      function() return tf.function_(function(x) return x end)(kept) end,
    } do
      local e = expect.failure(use)
      assert.are.equal("TypeError", tf.errors.kind(e), tostring(e))
      assert.is_not_nil(tostring(e):find("traps_spec.lua", 1, true))
    end
  end)
end)

describe("the error of a symbolic tensor that leaks", function()
  it("says where the tensor is from", function()
    local given, made, first
    local f = tf.function_(function(x)
      given, made = x, x * 2
      first = first or x
      return tf.while_loop(function(i) return tf.less(i, 3) end, function(i)
        first = i
        return i + 1
      end, { x[0] })
    end)
    f(tf.constant { 1, 2 })
    for words, x in pairs {
      ['float32 {2} given as an argument, belongs to the function "'] = given,
      ["float32 {} given as an argument, belongs to the"] = first,
      ["float32 {2} made at "] = made,
    } do
      local e = tostring(expect.failure(function() return x + 1 end))
      assert.is_not_nil(e:find("input 0, " .. words, 1, true), e)
      assert.is_not_nil(e:find("traps_spec.lua:%d+, belongs to the function")
        or e:find("given as", 1, true), e)
    end
    local e = tostring(expect.failure(given.totable, given))
    assert.is_not_nil(e:find('float32 {2}, given as an argument to the '
      .. 'function "', 1, true), e)
    assert.is_nil(e:find("made", 1, true))
  end)

  it("says the line of what calls the host, chooses or repeats", function()
    local spec = tf.TensorSpec({ 2 }, "float32")
    local data = tf.data.Dataset.from_tensor_slices(tf.ones { 1, 2 })
    local made, lines
    local function keep(x)
      made[#made + 1] = x
      lines[#lines + 1] = debug.getinfo(2, "l").currentline
    end
    local f = tf.function_(function(x)
      made, lines = {}, {}
      keep(tf.py_function(function(a) return a * 2 end, { x }, spec))
      keep(tf.numpy_function(function(a) return a end, { x }, spec))
      keep(tf.cond(tf.less(x[0], 2), function() return x end,
        function() return x + 1 end))
      keep(tf.map_fn(function(e) return e * 2 end, x))
      keep(tf.foldl(function(sum, e) return sum + e end, x))
      local tape, y = tf.GradientTape(function(tape)
        tape:watch(x)
        return tf.py_function(function(a) return a * a end, { x }, spec)
      end)
      keep(tape:gradient(y, x))
      for e in data:iter() do keep(e) end
      return x
    end)
    f(tf.constant { 1, 2 })
    assert.are.equal(7, #made)
    for i = 1, #made do
      local e = tostring(expect.failure(function() return made[i] + 1 end))
      local line = tonumber(e:match "made at [^ ]*traps_spec.lua:(%d+), belongs")
      assert.is_not_nil(line, e)
      assert.is_true(line <= lines[i] and line >= lines[i] - 1, e)
    end
  end)
end)

describe("functions that are dropped", function()
  it("leave no memory", function()
    local function round()
      for _ = 1, 250 do
        local v = tf.Variable(tf.ones { 64 })
        local f = tf.function_(function(x)
          return tf.cond(tf.less(x[0], 2), function() return x * v + 1 end,
            function() return v + 0 end)
        end)
        f(tf.ones { 64 })
      end
      collectgarbage()
      collectgarbage()
      return raw.live_handles "graph", raw.live_handles "variable",
        raw.live_bytes(), collectgarbage "count"
    end
    local graphs, variables, bytes, kib = round()
    for _ = 1, 3 do
      local g, v, b, k = round()
      assert.is_true(g <= graphs and v <= variables and b <= bytes)
      -- Less than a table of each; a compiler keeps what it compiled there.
      assert.is_true(rawget(_G, "jit") ~= nil or k <= kib + 10,
        k - kib .. " KiB")
    end
  end)
end)

describe("a traced function in replicas", function()
  local strategy = tf.distribute.MirroredStrategy()

  it("is traced once for each, and never again", function()
    local count = 0
    local f = tf.function_(function()
      count = count + 1
      return tf.distribute.get_replica_context().replica_id_in_sync_group
    end)
    for _ = 1, 10 do
      local ids = strategy:experimental_local_results(strategy:run(f))
      for i, id in ipairs(ids) do
        assert.are.equal(i - 1, tf.convert_to_tensor(id):item())
      end
    end
    assert.are.equal(strategy.num_replicas_in_sync, count)
  end)

  it("reads each replica's copy of a variable", function()
    local v = strategy:scope(function() return tf.Variable(3.0) end)
    local f = tf.function_(function(x) return x * v end)
    for n = 1, 3 do
      v:assign(n)
      local list = strategy:experimental_local_results(strategy:run(f,
        { tf.constant(2.0) }))
      for _, t in ipairs(list) do assert.are.equal(2 * n, t:item()) end
    end
  end)

  it("refuses what the replicas do together", function()
    local function refused(kind, words, fn)
      local e = expect.failure(fn)
      assert.are.equal(kind, tf.errors.kind(e), tostring(e))
      assert.is_not_nil(tostring(e):find(words, 1, true), tostring(e))
    end
    local replica = tf.distribute.get_replica_context
    refused("RuntimeError", "`merge_call` called while defining a new graph",
      function()
        local f = tf.function_(function()
          replica():merge_call(function() end)
        end)
        strategy:run(function() f() end)
      end)
    refused("NotImplementedError", "all_reduce: not inside the traced function",
      function()
        local f = tf.function_(function()
          return replica():all_reduce("sum", tf.constant(1.0))
        end)
        strategy:run(function() return f() end)
      end)
    local function whole(fn)
      return function()
        return tf.function_(function(x)
          return strategy:run(fn, { x })
        end)(tf.ones { 2 })
      end
    end
    local function sum(x) return replica():all_reduce("sum", x) end
    refused("NotImplementedError", "all_reduce: not inside tf.cond, ",
      whole(function(x)
        return tf.cond(tf.greater(x[0], 0.5), function() return sum(x) end,
          function() return x end)
      end))
    refused("NotImplementedError", "all_reduce: not inside tf.while_loop, ",
      whole(function(x)
        local _, y = tf.while_loop(function(i) return tf.less(i, 3) end,
          function(i, y) return i + 1, sum(y) end, { tf.constant(0), x })
        return y
      end))
    strategy:run(function() end)
  end)
end)

describe("loops that the call decides on", function()
  it("have gradients where they do not run, and of the third order", function()
    local f = tf.function_(function(x, n)
      local function fn(t) return power(t, n) end
      local function first(t) return gradient(fn, t) end
      local function second(t) return gradient(first, t) end
      return fn(x), first(x), second(x), gradient(second, x)
    end)
    local x = tf.constant(1.5)
    for n = 0, 5 do
      local list = { f(x, tf.constant(n, "int32")) }
      local factor = 1
      for order = 0, 3 do
        -- Products of at most five factors 1.5 are exact.
        assert.are.equal(factor * 1.5 ^ math.max(n - order, 0),
          list[order + 1]:item())
        factor = factor * math.max(n - order, 0)
      end
    end
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("may be differentiated twice on one tape", function()
    local f = tf.function_(function(x, n)
      local tape = tf.GradientTape({ persistent = true })
      tape:watch(x)
      local y = power(x, n)
      local z = y * y
      tape:close()
      return tape:gradient(y, x), tape:gradient(z, x), tape:gradient(y, x)
    end)
    local a, b, c = f(tf.constant(2.0), tf.constant(3, "int32"))
    assert.are.same({ 12, 6 * 32, 12 }, { a:item(), b:item(), c:item() })
  end)

  it("end where a condition on values says", function()
    local f = tf.function_(function(x)
      return tf.while_loop(function(i, s, go)
        return tf.logical_and(go, tf.less(i, tf.constant(100, "int32")))
      end, function(i, s)
        local sum = s + x[i]
        return i + 1, sum, tf.less(sum, 10)
      end, { tf.constant(0, "int32"), tf.constant(0.0), tf.constant(true) })
    end)
    for _, case in ipairs { { { 4, 5, 6, 7 }, 3, 15 }, { { 10, 1 }, 1, 10 } } do
      local i, sum = f(tf.constant(case[1]))
      assert.are.same({ case[2], case[3] }, { i:item(), sum:item() })
    end
  end)

  it("draw other numbers than what is around them", function()
    tf.random.set_seed(11)
    local f = tf.function_(function(n)
      local before = tf.random.uniform {}
      local _, rows = tf.while_loop(function(i) return tf.less(i, n) end,
        function(i, t)
          return i + 1, t:write(i, tf.random.uniform {})
        end, { tf.constant(0, "int32"), tf.TensorArray("float32", { size = 4 }) })
      return before, rows:stack(), tf.random.uniform {}
    end)
    local seen, n = {}, 0
    for _ = 1, 2 do
      local before, rows, after = f(tf.constant(4, "int32"))
      for _, x in ipairs { before:item(), after:item(), unpack(values(rows)) } do
        n = n + (seen[x] and 0 or 1)
        seen[x] = true
      end
    end
    assert.are.equal(12, n)
  end)

  it("run as often as each replica says, and meet nowhere inside", function()
    local strategy = tf.distribute.MirroredStrategy()
    local function over(body)
      return tf.function_(function(n)
        return strategy:run(function()
          local replica = tf.distribute.get_replica_context()
          local id = tf.convert_to_tensor(replica.replica_id_in_sync_group)
          local _, y = tf.while_loop(function(i)
            return tf.less(i, n + tf.cast(id, "int32"))
          end, function(i, y) return i + 1, body(replica, y) end,
            { tf.constant(0, "int32"), tf.constant(1.0) })
          return y
        end)
      end)
    end
    local list = strategy:experimental_local_results(over(function(_, y)
      return y * 2
    end)(tf.constant(2, "int32")))
    for i, y in ipairs(list) do
      assert.are.equal(2 ^ (1 + i), y:item())
    end
    local e = expect.failure(over(function(replica, y)
      return replica:all_reduce("sum", y)
    end), tf.constant(2, "int32"))
    assert.are.equal("NotImplementedError", e.kind)
    assert.is_true(tf.executing_eagerly())
  end)
end)

describe("graphs that are long or deep", function()
  -- The stack is smaller than a byte for each node.
  local LONG = [[
local tf = require "tfdist"
local function run(n, fn)
  return tf.function_(function(x)
    for _ = 1, n do x = fn(x) end
    return x
  end)
end
local one = tf.ones { 2 }
print(run(99999, function(x) return x + 1 end)(one)[0]:item() == 100000)
print(run(4999, function(x) return tf.reverse(x + 1, { 0 }) end)(one)[0]:item()
  == 5000)
print(tf.function_(function(x)
  local y = x
  local tape = tf.GradientTape(function(t)
    t:watch(x)
    y = run(19999, function(z) return z * 1 end)(y)
  end)
  return tape:gradient(y, x)
end)(one)[0]:item() == 1)
]]

  it("take no more stack than others #once", function()
    for _, host in ipairs(os.getenv "TFD_LONG" and process.hosts
      or { process.hosts[1] }) do
      local r = process.run(("ulimit -s 128; %s -e %s"):format(host.path,
        process.quote(LONG)))
      assert.are.equal(("true\n"):rep(3), r.out, r.err)
      assert.are.equal(0, r.code, r.err)
    end
  end)

  local function choice(x, fn)
    return tf.cond(tf.greater(tf.reduce_sum(x), -1), function() return fn(x) end,
      function() return x end)
  end

  local function loop(x, fn)
    local _, y = tf.while_loop(function(i)
      return tf.less(i, tf.constant(1, "int32"))
    end, function(i, y) return i + 1, fn(y) end,
      { tf.constant(0, "int32"), x })
    return y
  end

  local function nest(flow, x, depth)
    if depth == 0 then return x * x end
    return flow(x, function(y) return nest(flow, y, depth - 1) end)
  end

  it("hold 48 control flows inside each other, and say so of more", function()
    for _, flow in ipairs { choice, loop } do
      local depth = 48
      local function fn(x) return nest(flow, x, depth) end
      local first = function(x) return gradient(fn, x) end
      local f = tf.function_(function(x)
        return fn(x), first(x), gradient(first, x)
      end)
      local x = tf.constant(3.0)
      local y, slope, bend = f(x)
      assert.are.same({ 9, 6, 2 }, { y:item(), slope:item(), bend:item() })
      depth = 200
      f = tf.function_(fn)
      for _ = 1, 2 do
        local e = expect.failure(f, x)
        assert.are.equal("RuntimeError", tf.errors.kind(e), tostring(e))
        assert.is_truthy(tostring(e):find("more than 48 choices and loops", 1,
          true), tostring(e))
        assert.is_true(tf.executing_eagerly())
        assert.are.equal(0, raw.tape_active())
      end
      depth = 2
      assert.are.equal(9, f(x):item())
    end
  end)
end)

describe("parts of a batch", function()
  it("have the gradients of one device on several, in replica order", function()
    local strategy = tf.distribute.MirroredStrategy()
    local n = strategy.num_replicas_in_sync
    local first = tf.random.stateless_normal({ 7, 5 }, { 3, 1 })
    local function part(i)
      return tf.random.stateless_normal({ 11, 7 }, { 4, i })
    end
    local function slope(v, x)
      local loss
      local tape = tf.GradientTape(function()
        loss = tf.reduce_sum(tf.tanh(tf.matmul(x, v)) ^ 2)
      end)
      return tape:gradient(loss, v)
    end
    local one = tf.Variable(first)
    local alone = tf.function_(function(...)
      local total
      for _, x in ipairs { ... } do
        local g = slope(one, x)
        total = total and total + g or g
      end
      one:assign_sub(total * 0.01)
    end)
    local copies = strategy:scope(function() return tf.Variable(first) end)
    local together = tf.function_(function(x)
      strategy:run(function(own)
        local context = tf.distribute.get_replica_context()
        local total = context:all_reduce("sum", slope(copies, own))
        copies:assign_sub(total * 0.01)
      end, { x })
    end)
    for step = 1, 3 do
      local parts = {}
      for i = 1, n do parts[i] = part(step * 8 + i) end
      alone(unpack(parts))
      together(strategy:experimental_distribute_values_from_function(
        function(context)
          return parts[context.replica_id_in_sync_group + 1]
        end))
      assert.are.equal(raw.tensor_bytes(one:read_value()),
        raw.tensor_bytes(tf.identity(copies)))
    end
  end)
end)

-- However many threads share the work, and whoever else wants the processor.
describe("a traced step beside others", function()
  local SCRIPT = [[
local tf = require "tfdist"
local raw = require "tfdist.core.raw"
local list = {}
for i = 1, 40000 do list[i] = (i * 7919 % 3001) / 1000 - 1.5 end
local x = tf.constant(list, { shape = { 400, 100 } })
local w = tf.Variable(tf.fill({ 100 }, 0.5))
local f = tf.function_(function(a)
  local loss
  local tape = tf.GradientTape(function()
    local h = tf.nn.softmax(tf.tanh(a * w) * 2 + 1)
    loss = tf.reduce_sum(h * h) + tf.reduce_mean(tf.exp(-a) * w)
  end)
  w:assign_sub(tape:gradient(loss, w))
  return loss
end)
local out = {}
for i = 1, 4 do out[i] = raw.tensor_bytes(f(x)) end
out[5] = raw.tensor_bytes(w:read_value())
print((table.concat(out):gsub(".", function(c)
  return ("%02x"):format(c:byte())
end)))
]]

  it("gives the same bits #once", function()
    local host = process.hosts[1].path
    local busy = "for i in 1 2; do timeout 120 sh -c 'while :; do :; done' & "
      .. "all=\"$all $!\"; done; "
    -- Stopped and continued again and again, and then left to itself.
    local stopped = " & p=$!; i=0; while [ $i -lt 2000 ]; do kill -STOP $p; "
      .. "kill -CONT $p; i=$((i + 1)); done; wait $p"
    local want
    for _, threads in ipairs { 1, 2, 3, 8 } do
      for _, beside in ipairs { "", busy, stopped } do
        local before, behind = beside, ""
        if beside == stopped then before, behind = "", stopped end
        local r = process.run(("all=; %sTFDIST_THREADS=%d %s -e %s%s; code=$?; "
          .. "kill $all 2>/dev/null; exit $code"):format(before, threads, host,
          process.quote(SCRIPT), behind))
        assert.are.equal(0, r.code, r.err)
        want = want or r.out
        assert.are.equal(want, r.out)
      end
    end
    assert.is_true(#want > 800)
  end)
end)

describe("values with memory of their own", function()
  it("are those that share it #once", function()
    for _, host in ipairs(process.hosts) do
      local r = process.run(("TFDIST_PLAN=0 %s /usr/bin/busted -o plainTerminal "
        .. "--tags=plan spec/graph/traps_spec.lua "
        .. "spec/graph/training_steps_spec.lua"):format(host.path))
      assert.are.equal(0, r.code, r.out .. r.err)
      assert.is_truthy(r.out:find("[1-9]%d* successes"), r.out)
    end
  end)
end)
