--- Traced functions that call themselves.
local tf = require "tfdist"
local errors = require "tfdist.base.errors"
local expect = require "spec.support.expect"
local raw = require "tfdist.core.raw"

local DEEPEST = 500

-- fn, that ends by itself where nothing else ends it.
local function bounded(fn)
  local calls = 0
  return tf.function_(function(...)
    calls = calls + 1
    if calls > 20 * DEEPEST then
      error("nothing bounds it", 0)
    end
    return fn(...)
  end)
end

local function countdown()
  local down
  down = bounded(function(n, x)
    if n == 0 then
      return x
    end
    return down(n - 1, x + 1)
  end)
  return down
end

describe("a traced function that calls itself", function()
  local x

  before_each(function()
    x = tf.constant(1.0)
  end)

  after_each(function()
    assert.is_true(tf.executing_eagerly())
    assert.are.equal(0, raw.tape_active())
  end)

  local function refuses(f, words, ...)
    for _ = 1, 2 do
      local e = expect.failure(f, ...)
      assert.are.equal("RuntimeError", e.kind, tostring(e))
      assert.is_truthy(tostring(e):find("maximum recursion depth exceeded: more "
        .. "than " .. words, 1, true), tostring(e))
      assert.is_truthy(tostring(e):find("recursion_spec.lua:%d+"), tostring(e))
    end
  end

  it("ends where a number that is counted down ends it", function()
    local down = countdown()
    for _, n in ipairs { 0, 1, 40, DEEPEST } do
      assert.are.equal(n + 1, down(n, x):item())
    end
    local fibonacci
    fibonacci = bounded(function(n, y)
      if n < 2 then
        return y
      end
      return fibonacci(n - 1, y) + fibonacci(n - 2, y)
    end)
    assert.are.equal(377, fibonacci(13, x):item())
  end)

  it("is one error where nothing ends it", function()
    local calls = DEEPEST .. " calls of traced functions inside each other"
    local last, inner, ping, pong
    last = bounded(function(y) return last(y - 1) end)
    inner = bounded(function(y) return inner(y - 1) + 1 end)
    ping = bounded(function(y) return (pong(y - 1)) end)
    pong = bounded(function(y) return ping(y * 2) end)
    refuses(last, calls, x)
    refuses(inner, calls, x)
    refuses(ping, calls, x)
    refuses(countdown(), calls, DEEPEST + 1, x)
    local f = tf.function_ { input_signature = { tf.TensorSpec({}, "float32") } }
    local signed
    signed = f(function(y) return last(signed(y)) end)
    refuses(signed, calls, x)
  end)

  -- What tapes and pcall take of an engine's own stack may end first.
  it("is one error where each call waits in a tape or in pcall", function()
    local taped, caught
    taped = bounded(function(y)
      local tape, z = tf.GradientTape(function(tape)
        tape:watch(y)
        return taped(y * 2)
      end)
      return tape:gradient(z, y)
    end)
    caught = bounded(function(y)
      local ok, z = pcall(caught, y)
      return ok and z or error(z, 0)
    end)
    for _, f in ipairs { taped, caught } do
      refuses(f, "", x)
      local e = tostring(expect.failure(f, x))
      local most = tonumber(e:match "than (%d+) calls of traced functions inside")
      assert.is_true(most ~= nil and most > 100 and most <= DEEPEST, e)
    end
    local square
    square = bounded(function(n, y)
      local tape, z = tf.GradientTape(function(tape)
        tape:watch(y)
        return n == 0 and y * y or square(n - 1, y * 2)
      end)
      return n == 20 and tape:gradient(z, y) or z
    end)
    assert.are.equal(2 ^ 41, square(20, x):item()) -- of (2^20 x)^2
  end)

  it("is one error in each replica, too", function()
    local last
    last = bounded(function(y) return last(y - 1) end)
    local strategy = tf.distribute.MirroredStrategy()
    refuses(function() strategy:run(last, { x }) end, DEEPEST .. " calls", x)
  end)

  it("is one error where each call begins a trace", function()
    local again
    again = bounded(function()
      return tf.init_scope(function() return again(tf.constant(2.0)) end)
    end)
    refuses(again, "16 traces inside each other", x)
    local down
    down = bounded(function(n)
      return n == 0 and tf.constant(2.0)
        or tf.init_scope(function() return down(n - 1) end)
    end)
    assert.are.equal(2, down(4):item())
  end)

  -- fn() inside as many pcalls.
  local function caught_in(depth, fn)
    if depth == 0 then
      return fn()
    end
    local ok, y = pcall(caught_in, depth - 1, fn)
    return ok and y or error(y, 0)
  end

  it("is one error where the first call has no room left", function()
    local inner = bounded(function(y) return y + 1 end)
    local function nested(depth)
      return tf.function_(function(y)
        return caught_in(depth, function() return inner(y) end)
      end)
    end
    assert.are.equal(2, nested(20)(x):item())
    if rawget(_G, "jit") then return end -- has no bound on them
    -- Where pcall itself ends, it is the engine's word.
    for depth = 160, 120, -1 do
      local ok, e = pcall(nested(depth), x)
      if not ok and not tostring(e):find "stack overflow" then
        assert.are.equal("RuntimeError", e.kind, tostring(e))
        assert.is_truthy(tostring(e):find("leaves no room for a call of the "
          .. "traced function", 1, true), tostring(e))
        return
      end
    end
    error("there is room everywhere")
  end)

  it("is one error in a message handler of a full stack, too", function()
    if rawget(_G, "jit") then return end -- crashes there, by itself
    local inner = bounded(function(y) return y + 1 end)
    local ok, e
    local outer = tf.function_(function(y)
      local function endless() return string.gsub("a", "a", endless) end
      xpcall(endless, function()
        ok, e = pcall(inner, y)
      end)
      return y
    end)
    assert.are.equal(1, outer(x):item())
    assert.is_false(ok)
    assert.are.equal("RuntimeError", errors.kind(e), tostring(e))
    assert.is_truthy(tostring(e):find("leaves no room for a call of the "
      .. "traced function", 1, true), tostring(e))
  end)

  it("ends by what comes from outside wherever that comes", function()
    local tracing = require "tfdist.core.tracing"
    local inner = bounded(function(y) return y + 1 end)
    local outer = tf.function_(function(y) return inner(y) end)
    local jit = rawget(_G, "jit")
    if jit then
      jit.off()
      jit.flush() -- compiled code looks at no hook
    end
    finally(function()
      debug.sethook()
      if jit then jit.on() end
    end)
    local has_room
    for i = 1, math.huge do
      local name, value = debug.getupvalue(tracing.call, i)
      assert(name, "tracing.call has no has_room")
      has_room = value
      if name == "has_room" then break end
    end
    local first = debug.getinfo(has_room, "S").linedefined + 1
    -- As it begins for the nth time.
    for n = 1, 41 do
      local seen = 0
      debug.sethook(function(_, line)
        local begins = line == first
          and debug.getinfo(2, "f").func == has_room
        seen = seen + (begins and 1 or 0)
        if seen == n then
          debug.sethook()
          errors.interrupted()
        end
      end, "l")
      local e = expect.caught(outer, x)
      assert.are.equal(n, seen)
      assert.are.equal("Cancelled", e.kind, n .. ": " .. tostring(e))
    end
    assert.are.equal(2, outer(x):item())
  end)

  it("may fail and be caught as often as one likes", function()
    local down = countdown()
    local broken = tf.function_(function() error("broken", 0) end)
    local f = tf.function_(function(y)
      for _ = 1, 2 * DEEPEST do
        pcall(broken, y)
      end
      return down(DEEPEST - 1, y)
    end)
    assert.are.equal(DEEPEST, f(x):item())
  end)
end)

describe("a func of tf.py_function that comes back to it", function()
  local SCALAR = tf.TensorSpec({}, "float32")
  local calls, last -- the call that ends it, nil = none

  before_each(function()
    calls, last = 0, nil
  end)

  -- fn(again, ...) where again(...) is the same by py_function, as it is and
  -- traced.
  local function both(fn)
    local list = {}
    for i, wrap in ipairs { function(f) return f end, tf.function_ } do
      local f
      local function again(x)
        local y = tf.py_function(function(a)
          calls = calls + 1
          assert(calls <= 20 * DEEPEST, "nothing bounds it")
          return calls == last and a or f(a + 1)
        end, { x }, SCALAR)
        return y
      end
      f = wrap(function(x) return fn(again, x) end)
      list[i] = f
    end
    return list
  end

  local LINE = debug.getinfo(both, "S").linedefined + 5 -- of its local y

  local function refuses(f, most)
    for _ = 1, 2 do
      local e = expect.failure(f, tf.constant(1.0))
      assert.are.equal("RuntimeError", e.kind, tostring(e))
      local n = tostring(e):match("recursion_spec.lua:" .. LINE .. ": "
        .. "RuntimeError: maximum recursion depth exceeded: more than (%d+) "
        .. "calls of py_function inside each other")
      assert.is_truthy(n, tostring(e))
      assert.is_true(tonumber(n) > 100 and tonumber(n) <= most, n)
    end
    assert.is_true(tf.executing_eagerly())
    assert.are.equal(0, raw.tape_active())
  end

  it("is one error where nothing ends it", function()
    for _, f in ipairs(both(function(again, x) return again(x) + 1 end)) do
      refuses(f, DEEPEST)
      assert.are.equal(2 * DEEPEST, calls)
      calls = 0
    end
  end)

  -- What tapes and pcall take of an engine's own stack may end first.
  it("is one error where each call waits in a tape or in pcall", function()
    for _, fn in ipairs {
      function(again, x)
        local tape, y = tf.GradientTape(function(tape)
          tape:watch(x)
          return again(x)
        end)
        return tape ~= nil and y
      end,
      function(again, x)
        local ok, y = pcall(again, x)
        return ok and y or error(y, 0)
      end,
    } do
      for _, f in ipairs(both(fn)) do
        refuses(f, DEEPEST)
      end
    end
  end)

  it("ends where its func does not come back", function()
    for _, f in ipairs(both(function(again, x) return again(x) end)) do
      for _, n in ipairs { 1, 2, 40, DEEPEST } do
        calls, last = 0, n
        assert.are.equal(n, f(tf.constant(1.0)):item())
      end
    end
  end)

  it("may fail and be caught as often as one likes", function()
    local function broken()
      return tf.py_function(function() error("broken", 0) end, {}, SCALAR)
    end
    for _ = 1, 2 * DEEPEST do
      pcall(broken)
    end
    local y = tf.numpy_function(function() return 3 end, {}, SCALAR)
    assert.are.equal(3, y:item())
  end)
end)
