--- tf.function_: what is traced when, and what a call does.
local tf = require "tfdist"
local errors = require "tfdist.base.errors"
local expect = require "spec.support.expect"
local grads = require "spec.support.traces".gradient
local raw = require "tfdist.core.raw"

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

local function count(fn, options)
  local traces = { n = 0 }
  local f = tf.function_(function(...)
    traces.n = traces.n + 1
    return fn(...)
  end, options or {})
  return f, traces
end

local raises = expect.raises

local function values(t)
  return tf.convert_to_tensor(t):toflat()
end

describe("a traced function", function()
  it("gives what the plain one gives", function()
    local f = tf.function_(function(x, y) return x * y + 1, x - y end)
    local a, b = f(tf.constant { 1, 2 }, tf.constant { 3, 5 })
    assert.are.same({ 4, 11 }, values(a))
    assert.are.same({ -2, -3 }, values(b))
  end)

  it("runs its Lua code once for each signature", function()
    local f, traces = count(function(x) return x + 1 end)
    for i = 1, 5 do
      assert.are.same({ i + 1 }, values(f(tf.constant { i })))
    end
    assert.are.equal(1, traces.n)
    f(tf.constant { 1, 2 })
    assert.are.equal(2, traces.n)
    f(tf.constant({ 1, 2 }, { dtype = "int32" }))
    assert.are.equal(3, traces.n)
    assert.are.equal(3, f:experimental_get_tracing_count())
  end)

  it("takes options first, last or not at all", function()
    local plain = function(x) return x * 2 end
    for _, f in ipairs { tf.function_(plain), tf.function_()(plain),
      tf.function_ { reduce_retracing = true }(plain),
      tf.function_(plain, { reduce_retracing = true }) } do
      assert.are.same({ 6 }, values(f(tf.constant { 3 })))
    end
    raises("TypeError", "func must be a function", tf.function_, 3)
  end)

  it("gives structures, Lua values and nil as the plain one does", function()
    local f = tf.function_(function(x)
      return { sum = x + x, list = { x * 3, "word" }, n = 2 }, nil, 7
    end)
    local t, none, seven = f(tf.constant(2.0))
    assert.are.equal(4, t.sum:item())
    assert.are.equal(6, t.list[1]:item())
    assert.are.equal("word", t.list[2])
    assert.is_nil(none)
    assert.are.equal(7, seven)
  end)

  it("gives the same at each call: arguments, values twice, structures", function()
    local f = tf.function_(function(x, word, y)
      return y, { x, y + 1 }, word, nil, x, nil
    end)
    local x, y = tf.constant(1.0), tf.constant { 2.0 }
    local function check(a, b)
      local list = { n = select("#", f(a, "word", b)), f(a, "word", b) }
      assert.are.equal(6, list.n)
      assert.is_true(rawequal(b, list[1]))
      assert.is_true(rawequal(a, list[2][1]))
      assert.are.same({ 3 }, values(list[2][2]))
      assert.are.equal("word", list[3])
      assert.is_true(rawequal(a, list[5]))
    end
    for _ = 1, 3 do check(x, y) end
    check(tf.constant(5.0), tf.constant { 2.0 })
    local g = tf.function_(function(a, b)
      local c = a + b
      return c, c, b
    end)
    for _ = 1, 3 do
      local c, d, b = g(x, x)
      assert.are.equal(2, c:item())
      assert.is_true(rawequal(c, d) and rawequal(x, b))
    end
  end)

  it("may give nothing, take nothing, and be empty", function()
    local f = tf.function_(function() end)
    assert.are.equal(0, select("#", f()))
    assert.are.equal(0, select("#", f()))
  end)

  it("keeps captured tensors by value, variables by reference", function()
    local c, v = tf.constant(10.0), tf.Variable(1.0)
    local f = tf.function_(function(x) return x + c + v end)
    assert.are.equal(12, f(tf.constant(1.0)):item())
    c = tf.constant(50.0)
    v:assign(5.0)
    assert.are.equal(16, f(tf.constant(1.0)):item())
    assert.are.equal(50, c:item())
  end)

  it("reads and writes variables in the order of the program", function()
    local v = tf.Variable(5.0)
    local f = tf.function_(function(x)
      v:assign_add(x)
      local first = v:read_value()
      v:assign(v * 2)
      v:assign_sub(x)
      return first, v:read_value(), first
    end)
    local want, x = 5, 1
    for _ = 1, 3 do
      local a, b, c = f(tf.constant(1.0))
      assert.are.equal(want + x, a:item())
      assert.are.equal((want + x) * 2 - x, b:item())
      assert.are.equal(want + x, c:item())
      want = (want + x) * 2 - x
      assert.are.equal(want, v:read_value():item())
    end
  end)

  it("makes variables newer by one a call, whoever holds earlier values",
    function()
      local v, w = tf.Variable { 1, 2 }, tf.Variable { 3, 4 }
      local f = tf.function_(function() v:assign_add(w) end)
      f()
      for i = 1, 3 do
        local held, version, other = v:read_value(), v.version, w.version
        f()
        assert.are.same({ version + 1, other }, { v.version, w.version })
        assert.are.same({ 1 + 3 * i, 2 + 4 * i }, held:totable())
        assert.are.same({ 4 + 3 * i, 6 + 4 * i }, v:totable())
      end
    end)

  it("makes variables on the first call only", function()
    local v
    local f, traces = count(function(x)
      v = v or tf.Variable(function() return tf.random.normal { 2 } end)
      return v * x
    end)
    local first = values(f(tf.constant(2.0)))
    local held = values(v)
    assert.are.same({ held[1] * 2, held[2] * 2 }, first)
    -- As in TensorFlow: what counts is a trace that makes none.
    assert.are.equal(2, traces.n)
    f(tf.constant(3.0))
    assert.are.equal(2, traces.n)
    local bad = tf.function_(function(x) return tf.Variable(1.0) + x end)
    for _ = 1, 2 do
      raises("ValueError", "made on the first call", bad,
        tf.constant(1.0))
    end
  end)

  it("says how a variable made in it gets a value that is computed", function()
    local ok, e = pcall(tf.function_(function()
      return tf.Variable(tf.random.normal { 2 }) + 1
    end))
    assert.is_false(ok)
    assert.are.equal("TypeError", e.kind)
    assert.is_truthy(e.hint:find("tf.Variable(function() return", 1, true))
  end)

  it("draws random numbers anew, the same as the plain function", function()
    local function plain()
      return tf.random.normal { 3 }, tf.random.uniform({ 2 }, { seed = 4 }),
        tf.nn.dropout(tf.ones { 8 }, 0.5)
    end
    local f = tf.function_(plain)
    local function three(fn)
      tf.random.set_seed(11)
      local out = {}
      for _ = 1, 3 do
        for _, t in ipairs { fn() } do out[#out + 1] = values(t) end
      end
      return out
    end
    local traced = three(f)
    assert.are.same(three(plain), traced)
    assert.are_not.same(traced[1], traced[4])
    local g, h = tf.random.Generator.from_seed(3),
      tf.random.Generator.from_seed(3)
    local draw = tf.function_(function() return g:normal { 2 } end)
    for _ = 1, 3 do
      assert.are.same(values(h:normal { 2 }), values(draw()))
    end
  end)

  it("makes generators on the first call only", function()
    local function twice(fn)
      local f = tf.function_(fn)
      local list = { values(f()) }
      list[2] = values(f())
      return list
    end
    local function alone(make)
      local g = make()
      return { values(g:normal { 2 }), values(g:normal { 2 }) }
    end
    local Generator = tf.random.Generator
    for _, make in ipairs { function() return Generator.from_seed(3) end,
      function() return Generator.from_key_counter(3, 5) end,
      function() return Generator.from_seed(4):split(2)[2] end } do
      local kept
      assert.are.same(alone(make), twice(function()
        kept = kept or make()
        return kept:normal { 2 }
      end))
      raises("ValueError", "only supports variables that are made on the first",
        tf.function_(function() return make():normal { 2 } end))
    end
    assert.are.equal(2, #twice(function()
      return tf.random.get_global_generator():normal { 2 }
    end))
  end)

  it("has the length of tensors where it is known", function()
    local size
    tf.function_(function(x)
      size = #x
      return x
    end)(tf.ones { 2, 3 })
    assert.are.equal(2, size)
    raises("ValueError", "length is not known", function()
      tf.function_(function(x) return x * #x end):get_concrete_function(
        tf.TensorSpec({ -1, 3 }, "float32"))
    end)
  end)

  it("prints and checks at every call", function()
    local lines = {}
    local v = tf.Variable(0.0)
    local f = tf.function_(function(x)
      tf.print("x", x, { output_stream = function(line)
        lines[#lines + 1] = line
      end })
      tf.debugging.assert_positive(x, "must grow")
      v:assign_add(x)
      return x * 2
    end)
    f(tf.constant(1.5))
    f(tf.constant(2.5))
    assert.are.same({ "x 1.5\n", "x 2.5\n" }, lines)
    raises("InvalidArgument", "must grow", f, tf.constant(-1.0))
    -- What comes after a check that fails does not happen.
    assert.are.equal(4, v:read_value():item())
    assert.are.equal(6, f(tf.constant(3.0)):item())
  end)

  it("is part of the graph of a traced function that calls it", function()
    local inner, traces = count(function(x) return x * x end)
    local outer = tf.function_(function(x) return inner(x) + inner(x + 1) end)
    assert.are.equal(13, outer(tf.constant(2.0)):item())
    assert.are.equal(25, outer(tf.constant(3.0)):item())
    assert.are.equal(2, traces.n)
  end)

  it("runs as a plain one where it is asked to", function()
    local f, traces = count(function(x) return x + 1 end)
    finally(function() tf.config.run_functions_eagerly(false) end)
    assert.is_false(tf.config.functions_run_eagerly())
    tf.config.run_functions_eagerly(true)
    assert.is_true(tf.config.functions_run_eagerly())
    f(tf.constant(1.0))
    f(tf.constant(1.0))
    assert.are.equal(2, traces.n)
    raises("TypeError", "run_eagerly", tf.config.run_functions_eagerly, 1)
  end)

  it("says that ops do not run while it is traced", function()
    local seen
    tf.function_(function(x)
      seen = { tf.executing_eagerly(), tf.inside_function(),
        tf.is_symbolic_tensor(x) }
      return x
    end)(tf.constant(1.0))
    assert.are.same({ false, true, true }, seen)
    assert.is_true(tf.executing_eagerly())
    assert.is_false(tf.is_symbolic_tensor(tf.constant(1.0)))
  end)

  it("prints what has no values yet, in the trace and behind it", function()
    local v, kept = tf.Variable({ 1, 2 }, { name = "v" }), nil
    local w = tf.Variable(1, { name = "w" })
    local seen = {}
    tf.function_(function(x)
      kept = x * 2
      seen = { tostring(x), tostring(kept[0]), tostring(v), tostring(w),
        "x is " .. x, ("%s"):format(tf.reduce_sum(x)) }
      return x
    end)(tf.constant { 1, 2 })
    seen[#seen + 1] = tostring(kept)
    for i = 1, #seen do
      assert.is_not_nil(seen[i]:find("symbolic", 1, true), seen[i])
    end
    assert.is_not_nil(seen[1]:find("Tensor float32 {2}", 1, true), seen[1])
    assert.is_not_nil(seen[3]:find('Variable "v" float32 {2}', 1, true))
    assert.is_nil(tostring(v):find("symbolic", 1, true))
  end)

  it("names the script's line when a node fails", function()
    local f = tf.function_(function(x)
      local y = tf.linalg.inv(x) -- the line
      return y
    end)
    local line = debug.getinfo(1, "l").currentline - 3
    assert.are.same({ 0.5 }, values(f(tf.constant { { 2.0 } })))
    local ok, e = pcall(function()
      return f(tf.constant { { 0.0 } }):totable()
    end)
    assert.is_false(ok)
    assert.is_not_nil(tostring(e):find("function_spec.lua:" .. line, 1, true),
      tostring(e))
  end)
end)

describe("the signature", function()
  it("tells numbers, strings, booleans and tables apart", function()
    local object = setmetatable({}, {})
    local lists = {
      { 1 }, { 2 }, { 1.5 }, { -0.0 }, { "a" }, { "b" }, { true }, { false },
      { nil, n = 1 }, { n = 0 }, { { 1, 2 } }, { { 2, 1 } }, { { a = 1 } },
      { { b = 1 } }, { { {} } }, { {} }, { 1, 2 }, { "1" }, { object },
      { setmetatable({}, {}) }, { print }, { { 1, { 2 } } }, { { { 1 }, 2 } },
      { 0 / 0 }, { math.huge }, { "a\0b" }, { "a", "b" }, { "a\0S1:b" },
    }
    local seen = {}
    local f, traces = count(function() return tf.constant(1.0) end)
    for i, args in ipairs(lists) do
      f(unpack(args, 1, args.n or #args))
      seen[i] = traces.n
    end
    for i = 1, #lists do assert.are.equal(i, seen[i], "argument " .. i) end
    for _, args in ipairs(lists) do f(unpack(args, 1, args.n or #args)) end
    assert.are.equal(#lists, traces.n)
  end)

  it("tells whole numbers apart that floats do not", function()
    local big = 2 ^ 53
    local whole = math.tointeger and math.tointeger(big) or big -- luacheck: ignore 143
    local f = tf.function_(function(n) return n end)
    assert.are.equal(whole, f(whole))
    assert.are.equal(whole + 1, f(whole + 1))
  end)

  it("does not depend on the order of keys", function()
    local a, b = {}, {}
    for i = 1, 20 do a["k" .. i] = i end
    for i = 20, 1, -1 do b["k" .. i] = i end
    local f, traces = count(function() return tf.constant(1.0) end)
    f(a)
    f(b)
    assert.are.equal(1, traces.n)
  end)

  it("tells shapes, dtypes and devices apart, not values", function()
    local f, traces = count(function(x) return x end)
    f(tf.zeros { 2, 3 })
    f(tf.ones { 2, 3 })
    assert.are.equal(1, traces.n)
    f(tf.zeros { 3, 2 })
    f(tf.zeros { 6 })
    f(tf.zeros({ 2, 3 }, { dtype = "float64" }))
    assert.are.equal(4, traces.n)
  end)

  it("forgets the entry that was not used for longest beyond 64", function()
    local f, traces = count(function(_, x) return x end)
    local x = tf.constant(1.0)
    local log = io.stderr
    io.stderr = { write = function() end } -- luacheck: ignore 122
    finally(function() io.stderr = log end) -- luacheck: ignore 122
    for i = 1, 64 do f(i, x) end
    f(1, x)
    assert.are.equal(64, traces.n)
    f(65, x)
    f(1, x)
    assert.are.equal(65, traces.n)
    f(2, x)
    assert.are.equal(66, traces.n)
  end)

  it("is warned of once when it changes again and again", function()
    local f = count(function(_, x) return x end)
    local x = tf.constant(1.0)
    local lines, log = {}, io.stderr
    io.stderr = { write = function(_, ...) -- luacheck: ignore 122
      lines[#lines + 1] = table.concat { ... }
    end }
    finally(function() io.stderr = log end) -- luacheck: ignore 122
    for i = 1, 5 do f(i, x) end
    assert.are.equal(0, #lines)
    for i = 6, 20 do f(i, x) end
    assert.are.equal(1, #lines)
    assert.is_not_nil(lines[1]:find("argument part 1 was 5 and is 6", 1, true),
      lines[1])
  end)

  it("of objects does not keep them alive", function()
    local f = tf.function_(function() return tf.constant(1.0) end)
    local weak = setmetatable({}, { __mode = "v" })
    do
      local object = setmetatable({}, {})
      weak[1] = object
      f(object)
    end
    f(setmetatable({}, {}))
    collectgarbage()
    collectgarbage()
    assert.is_nil(weak[1])
  end)
end)

describe("input_signature", function()
  it("makes one trace for all sizes that it leaves open", function()
    local f, traces = count(function(x) return tf.reduce_sum(x * 2, 0) end,
      { input_signature = { tf.TensorSpec({ -1, 2 }, "float32") } })
    assert.are.same({ 8, 12 }, values(f(tf.constant { { 1, 2 }, { 3, 4 } })))
    assert.are.same({ 2, 4 }, values(f(tf.constant { { 1, 2 } })))
    assert.are.same({ 2, 4 }, values(f { { 1, 2 } }))
    assert.are.equal(1, traces.n)
    raises("TypeError", "input_signature asks for", f, tf.zeros { 2, 3 })
    raises("TypeError", "input_signature", f, tf.zeros { 2, 2 }, 1)
    raises("TypeError", "input_signature asks for", f, "word")
    raises("TypeError", "element [2] of argument has 1 elements", f, { { 1, 2 },
      { 3 } })
    assert.are.equal(1, traces.n)
  end)

  it("has a trace for each size where gradients need sizes", function()
    local v = tf.Variable { 1, 2 }
    local f = tf.function_(function(x)
      local loss
      local tape = tf.GradientTape(function()
        loss = tf.reduce_sum(x * v)
      end)
      return tape:gradient(loss, v)
    end, { input_signature = { tf.TensorSpec({ -1, 2 }, "float32") } })
    assert.are.same({ 4, 6 }, values(f(tf.constant { { 1, 2 }, { 3, 4 } })))
    assert.are.same({ 1, 2 }, values(f(tf.constant { { 1, 2 } })))
  end)

  it("is given up only for what asks for sizes", function()
    local calls, wrong = 0, nil
    local f = tf.function_(function(x)
      calls = calls + 1
      if wrong ~= nil then
        local raised = wrong
        wrong = nil
        raised()
      end
      return x + 1
    end, { input_signature = { tf.TensorSpec({ -1 }, "float32") } })
    for kind, raise in pairs {
      Cancelled = function()
        raw.interrupt(true)
        raw.check_interrupt()
      end,
      ResourceExhausted = function()
        errors.raise("ResourceExhausted", "no memory")
      end,
      RuntimeError = function() error("spec.lua:1: a mistake", 0) end,
    } do
      calls, wrong = 0, raise
      local e = expect.caught(f, tf.ones { 2 })
      assert.are.equal(kind, errors.kind(errors.wrap(e)), tostring(e))
      assert.are.equal(1, calls)
    end
    f(tf.ones { 2 })
    f(tf.ones { 3 })
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("names the argument that is built otherwise", function()
    local f = tf.function_(function(x, t) return x + t.a end, {
      input_signature = { tf.TensorSpec({ 2 }), { a = tf.TensorSpec({ 2 }) } } })
    local x = tf.ones { 2 }
    assert.are.same({ 2, 2 }, values(f(x, { a = x })))
    for _, wrong in ipairs { { b = x }, { a = x, b = x }, { x }, x } do
      raises("TypeError", "argument 2 is not built as input_signature asks", f,
        x, wrong)
    end
  end)

  it("holds in the trace of another function and on replicas, too", function()
    local inner = tf.function_(function(x) return x / 2 end, {
      input_signature = { tf.TensorSpec({ -1 }, "float32") } })
    local strategy = tf.distribute.MirroredStrategy()
    for _, outer in ipairs {
      tf.function_(function(...) return inner(...) end),
      tf.function_(function(...)
        return strategy:experimental_local_results(
          strategy:run(inner, { ... }))[1]
      end),
    } do
      assert.are.same({ 0.5, 1 }, values(outer { 1, 2 }))
      raises("TypeError", "argument 1 is int32 {2}, input_signature asks for "
        .. "TensorSpec(float32 {?})", outer, tf.constant({ 1, 2 }, "int32"))
      raises("TypeError", "argument 1 is float32 {}", outer, 3)
    end
  end)

  it("of a size takes sizes that are open around it as they come", function()
    local two = tf.function_(function(x) return x + 1 end, {
      input_signature = { tf.TensorSpec({ 2 }) } })
    local outer = tf.function_(function(x) return two(x) end, {
      input_signature = { tf.TensorSpec({ -1 }) } })
    assert.are.same({ 2, 3 }, values(outer { 1, 2 }))
    raises("TypeError", "argument 1 is float32 {3}, input_signature asks for "
      .. "TensorSpec(float32 {2})", outer, { 1, 2, 3 })
    assert.are.same({ 3, 4 }, values(outer { 2, 3 }))
  end)

  it("must be specs", function()
    raises("TypeError", "tf.TensorSpec", tf.function_, print,
      { input_signature = { 3 } })
  end)
end)

describe("reduce_retracing", function()
  it("makes sizes unknown that differ", function()
    local f, traces = count(function(x) return tf.reduce_sum(x) end,
      { reduce_retracing = true })
    for n = 1, 6 do
      assert.are.equal(n, f(tf.ones { n }):item())
    end
    assert.are.equal(2, traces.n)
    f(tf.ones { 2, 2 })
    assert.are.equal(3, traces.n)
  end)
end)

-- Fields of all tables that x holds.
local function fields_of(x, seen)
  local n = 0
  seen[x] = true
  for key, value in next, x do
    n = n + 1
    for _, inner in ipairs { key, value } do
      if type(inner) == "table" and not seen[inner] then
        n = n + fields_of(inner, seen)
      end
    end
  end
  return n
end

describe("what a traced function keeps", function()
  local quiet
  before_each(function()
    quiet = io.stderr
    io.stderr = { write = function() end } -- luacheck: ignore 122
  end)
  after_each(function()
    io.stderr = quiet -- luacheck: ignore 122
  end)

  -- Fields after few and after many calls.
  local function bounded(f, argument)
    for i = 1, 1200 do f(argument(i)) end
    local n = fields_of(f, {})
    for i = 1201, 4000 do f(argument(i)) end
    assert.is_true(fields_of(f, {}) <= n + 1200)
  end

  it("does not grow with the sizes that one graph is called with", function()
    local function sum(x) return tf.reduce_sum(x) end
    local function ones(i) return tf.ones { i } end
    bounded(tf.function_(sum, { input_signature = {
      tf.TensorSpec({ -1 }, "float32") } }), ones)
    bounded(tf.function_(sum, { reduce_retracing = true }), ones)
  end)

  it("does not grow with the numbers that it is called with", function()
    local x = tf.constant(1.0)
    bounded(tf.function_(function(_, t) return t end,
      { reduce_retracing = true }), function(i) return i, x end)
  end)

  it("holds no strategy", function()
    local f = tf.function_(function(x) return x + 1 end)
    local weak = setmetatable({}, { __mode = "v" })
    for i = 1, 3 do
      local strategy = tf.distribute.MirroredStrategy({ "CPU:0" })
      weak[i] = strategy
      assert.are.equal(3, strategy:run(f, { tf.constant(2.0) }):item())
    end
    for _ = 1, 3 do collectgarbage() end
    assert.is_nil(next(weak))
  end)
end)

describe("a concrete function", function()
  local f = tf.function_(function(x, flag)
    return flag and x + 1 or x - 1
  end)

  it("is called with the tensors alone", function()
    local c = f:get_concrete_function(tf.TensorSpec { 2 }, true)
    assert.are.same({ 2, 3 }, values(c(tf.constant { 1, 2 })))
    raises("TypeError", "(TensorSpec(float32 {2})): expected 1 tensors, got 0 "
      .. "among 3 values", c, 3, true, false)
    raises("ValueError", 'graph: stage must be one of recorded, lowered, costs, '
      .. 'got "lower"', c.graph, c, "lower")
    raises("InvalidArgument", "argument 1 is float32 {3}, it was traced with "
      .. "float32 {2}", c, tf.zeros { 3 })
  end)

  it("takes values beside the tensors that it was traced with, no others",
    function()
      local step, other = setmetatable({}, {}), setmetatable({}, {})
      local g = tf.function_(function(self, x, k, t)
        return self == step and x * k + t.a
      end)
      local one = tf.ones { 2 }
      local c = g:get_concrete_function(step, one, 3, { a = one, b = "mean" })
      assert.are.same({ 4, 4 }, values(c(one, one)))
      assert.are.same({ 4, 4 }, values(c(step, one, 3, { a = one })))
      assert.are.same({ 4, 4 }, values(c(step, one, 3, { a = one, b = "mean" })))
      assert.are.same({ 4, 4 }, values(c(nil, one, nil, { a = one, b = "mean" })))
      for _, wrong in ipairs { { step, one, 4, { a = one } },
        { nil, one, nil, { a = one, b = "sum" } },
        { step, one, "3", { a = one } }, { other, one, 3, { a = one } },
        { step, one, 3, { a = one, b = "sum" } },
        { step, one, 3, { a = one, b = "mean", c = true } } } do
        raises("TypeError", "a value that is no tensor is ", c,
          unpack(wrong, 1, 4))
      end
      raises("TypeError", "is the number 4, it was traced with the number 3", c,
        step, one, 4, one)
    end)

  it("is for all sizes that its specs leave open", function()
    local c = f:get_concrete_function(tf.TensorSpec { -1 }, true)
    assert.are.same({ 2, 3 }, values(c(tf.constant { 1, 2 })))
    assert.are.same({ 5 }, values(c(tf.constant { 4 })))
  end)

  it("shows its graph", function()
    local c = f:get_concrete_function(tf.TensorSpec { 2 }, true)
    local recorded = c:graph()
    assert.is_not_nil(recorded:find("x0: float32 {2}", 1, true))
    assert.is_not_nil(recorded:find("= add(x0, c0) float32 {2}", 1, true),
      recorded)
    c(tf.zeros { 2 })
    assert.is_not_nil(c:graph("lowered"):find("add(*, *) -> * float32 {2}", 1,
      true))
  end)

  it("has the lines of updates, too", function()
    local v, w = tf.Variable(1), tf.Variable(2)
    local sgd = tf.keras.optimizers.SGD(0.5)
    sgd:build { w }
    local first = debug.getinfo(1, "l").currentline + 2
    local g = tf.function_(function(x)
      v:assign(x * 2)
      v:assign_add(x)
      v:assign_sub(x)
      sgd:apply_gradients({ x }, { w })
      return x
    end)
    local lines = {}
    for name, line in g:get_concrete_function(tf.constant(3)):graph():gmatch
      "\n%s+\"(%a+)\" = [^\n]*:(%d+)" do
      lines[#lines + 1] = name .. " " .. line - first
    end
    assert.same({ "Variable 0", "Variable 1", "Variable 2", "Variable 3" }, lines)
  end)

  it("is listed with its function", function()
    local g = tf.function_(function(x) return x end)
    g(tf.zeros { 2 })
    g(tf.zeros { 3 })
    local list = g:pretty_printed_concrete_signatures()
    assert.is_not_nil(list:find("TensorSpec(float32 {2}", 1, true))
    assert.is_not_nil(list:find("TensorSpec(float32 {3}", 1, true))
  end)
end)

describe("traced gradients", function()
  it("come from a tape inside", function()
    local f = tf.function_(function(x)
      return grads(function(a) return a * a * a end, x)
    end)
    assert.are.equal(12, f(tf.constant(2.0)):item())
    assert.are.equal(27, f(tf.constant(3.0)):item())
  end)

  it("of variables add up as line by line, to the bit", function()
    local v = tf.Variable(tf.random.uniform({ 64 }, 0.3, 4, { seed = 3 }))
    local function third(x)
      local tape, y = tf.GradientTape(function() return v * v * v * x end)
      return tape:gradient(y, v)
    end
    local function apart(x)
      local tape, y = tf.GradientTape(function()
        return tf.atan2(v, v * v) * v + tf.atan2(v, x) + v:read_value()
      end)
      return tape:gradient(y, v), y
    end
    local function outer(fn, x)
      local outs
      local tape = tf.GradientTape(function() outs = { fn(x) } end)
      return tape:gradient(outs, v)
    end
    local x = tf.random.uniform({ 64 }, 0.3, 4, { seed = 4 })
    for _, fn in ipairs { third, apart } do
      local f = tf.function_(fn)
      assert.are.same(fn(x):toflat(), f(x):toflat())
      assert.are.same(outer(fn, x):toflat(), outer(f, x):toflat())
      v:assign_add(x)
      assert.are.same(outer(fn, x):toflat(), outer(f, x):toflat())
    end
  end)

  it("flow through a call, to arguments and variables, of any order", function()
    local v = tf.Variable(3.0)
    local f = tf.function_(function(x) return x * x * v end)
    local x = tf.constant(2.0)
    local y
    local tape = tf.GradientTape(function(t)
      t:watch(x)
      y = f(x)
    end)
    local gx, gv = unpack(tape:gradient(y, { x, v }))
    assert.are.equal(12, gx:item())
    assert.are.equal(4, gv:item())
    local second = grads(function(a) return grads(f, a) end, x)
    assert.are.equal(6, second:item())
  end)

  it("stop where stop_gradient stands", function()
    local f = tf.function_(function(x) return x * tf.stop_gradient(x) end)
    assert.are.equal(3, grads(f, tf.constant(3.0)):item())
    local inside = tf.function_(function(x)
      return grads(function(a) return a * tf.stop_gradient(a) end, x)
    end)
    assert.are.equal(3, inside(tf.constant(3.0)):item())
  end)

  it("come from custom gradients", function()
    local odd = tf.custom_gradient(function(x)
      return x * 2, function(dy) return dy * 100 end
    end)
    local f = tf.function_(function(x) return odd(x) end)
    local x = tf.constant(1.0)
    assert.are.equal(100, grads(f, x):item())
    assert.are.equal(2, f(x):item())
    local inside = tf.function_(function(a) return grads(odd, a) end)
    assert.are.equal(100, inside(x):item())
  end)

  it("are sparse where eager ones are", function()
    local v = tf.Variable { { 1, 2 }, { 3, 4 }, { 5, 6 } }
    local f = tf.function_(function(ids)
      local y
      local tape = tf.GradientTape(function() y = tf.gather(v, ids) end)
      return tape:gradient(y, v)
    end)
    local g = f(tf.constant({ 2, 0 }, { dtype = "int32" }))
    assert.are.equal("slices", raw.kind(g))
    assert.are.same({ 1, 1, 0, 0, 1, 1 }, values(g))
  end)
end)

describe("tf.autograph", function()
  it("leaves functions as they are", function()
    local function fn(x) return x + 1 end
    assert.are.equal(fn, tf.autograph.experimental.do_not_convert(fn))
    assert.are.equal(fn, tf.autograph.experimental.do_not_convert()(fn))
    local f = tf.function_(tf.autograph.experimental.do_not_convert(fn))
    assert.are.equal(3, f(tf.constant(2.0)):item())
    tf.autograph.set_verbosity(3, true)
  end)

  it("and graphs of TensorFlow 1 say what is there instead", function()
    for hint, ask in pairs {
      ["tf.cond and tf.while_loop"] = function() return tf.autograph.to_graph end,
      ["shape_invariants"] = function()
        return tf.autograph.experimental.set_loop_options
      end,
      ["tf.function_ makes graphs"] = function() return tf.Graph end,
      ["TensorFlow 2"] = function() return tf.compat end,
    } do
      local e = expect.failure(ask)
      assert.are.equal("NotImplementedError", e.kind)
      assert.is_not_nil(e.hint:find(hint, 1, true), e.hint)
    end
  end)
end)
