--- Calls of a traced function that go row by row together: the bits of the ops
--- run one by one, and what a person sees of it.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"
local traces = require "spec.support.traces"

-- More than what stays in the cache anyway: 256 KiB.
local ROWS, COLUMNS = 256, 256

local function numbers(...)
  local n = 1
  for _, size in ipairs { ... } do n = n * size end
  local x = tf.range(0, n, { dtype = "float32" })
  return tf.reshape(tf.sin(x) * 3, { ... })
end

local function bytes(...)
  local list = {}
  for i, t in ipairs { ... } do list[i] = raw.tensor_bytes(t) end
  return list
end

-- The lowered graph of fn, whose results are eager's.
local function lowered(fn, ...)
  local f = tf.function_(fn)
  assert.are.same(bytes(fn(...)), bytes(f(...)))
  return f:get_concrete_function(...):graph "lowered",
    f:get_concrete_function(...):graph "costs"
end

local function norm(x)
  local centered = x - tf.reduce_mean(x, { -1 }, true)
  local variance = tf.reduce_mean(tf.square(centered), { -1 }, true)
  return centered * tf.math.rsqrt(variance + 1e-5)
end

describe("calls that do not mix rows", function()
  it("are one, of a normalization written in ops", function()
    local program, costs = lowered(function(x, y)
      return norm(x + y)
    end, numbers(ROWS, COLUMNS), numbers(COLUMNS))
    if not program:find("rows at a time", 1, true) then
      return pending("the device runs calls one by one")
    end
    assert.truthy(program:find(": 1 calls", 1, true), program)
    assert.truthy(program:find("of 256 rows at a time", 1, true), program)
    assert.truthy(costs:find("rows(add, reduce_mean, fused(subtract, square), "
      .. "reduce_mean, fused(add, rsqrt), multiply)", 1, true), costs)
    -- What passes between them is not written: in 256 KiB + 1 KiB and a
    -- number, out 256 KiB, and where the device says so the sum in place.
    local read = tonumber(costs:match "flops, (%d+) bytes read and written")
    assert.is_true(read <= 2 * 4 * ROWS * COLUMNS + 4 * COLUMNS + 4, costs)
  end)

  it("take rows of several axes, masks and sums without their axis", function()
    lowered(function(x, mask)
      local shares = tf.nn.softmax(x * 0.125 + mask)
      return shares, tf.reduce_max(shares * x, -1) * 2
    end, numbers(4, 2, 100, 128), numbers(100, 128))
    lowered(function(x)
      local y = tf.reshape(norm(x), { -1, 32 })
      return tf.reduce_sum(y * 2, -1) + 1, norm(tf.reshape(y, { 64, -1 }))
    end, numbers(16, 40, 128))
  end)

  it("leave others as they are: columns, other rows, what overlaps", function()
    lowered(function(x)
      local y = x * 2 + 1
      return tf.reduce_sum(y, 0), tf.nn.softmax(tf.transpose(y)) * 3,
        y - tf.reverse(tf.exp(y * 0.25), { 0 }), y[{ { 1, 200 } }] * y[1]
    end, numbers(ROWS, COLUMNS))
    local v = tf.Variable(numbers(ROWS, COLUMNS))
    local function step()
      v:assign(tf.nn.softmax(v * 2) - tf.reduce_mean(v, -1, true))
      v:assign(v * 2 - v[0] * 0.5)
      return v:read_value()
    end
    local want = bytes(step(), step())
    v:assign(numbers(ROWS, COLUMNS))
    local f = tf.function_(step)
    assert.are.same(want, bytes(f(), f()))
  end)

  it("have the gradients of the ops", function()
    local x, scale = numbers(ROWS, COLUMNS), numbers(COLUMNS)
    lowered(function(a, s)
      local tape, y = tf.GradientTape(function(t)
        t:watch { a, s }
        return tf.nn.softmax(norm(a) * s) * a
      end)
      local g = tape:gradient(y, { a, s })
      return y, g[1], g[2]
    end, x, scale)
  end)

  it("add up all rows on the way", function()
    local text = lowered(function(x, up)
      local y = x * up
      local z = y + 1
      return tf.reduce_sum(up, 0), z, tf.reduce_mean(y, { 0 }, true),
        tf.reduce_sum(tf.reshape(z, { 64, -1, 256 }), { 0, 1 })
    end, numbers(2048, 256), numbers(2048, 256))
    if not text:find("rows at a time", 1, true) then
      return pending("the device runs calls one by one")
    end
    assert.truthy(text:find(": 1 calls", 1, true), text)
    assert.truthy(text:find(" of 2048 rows at a time", 1, true), text)
  end)

  it("write no value that takes another one's place and is used up", function()
    local text = lowered(function(x, y)
      local z = tf.cumsum(x, 0) + y
      return tf.nn.softmax(z) * z
    end, numbers(512, COLUMNS), numbers(COLUMNS))
    if not text:find("rows at a time", 1, true) then
      return pending("the device runs calls one by one")
    end
    assert.truthy(text:find "add%(a%+0, %*%) %-> t%+0", text)
  end)

  it("add up as the kernel does: any number of rows, infinities", function()
    for _, rows in ipairs { 1027, 2048, 2049, 3100 } do
      for _, columns in ipairs { 50, 300 } do
        local x = numbers(rows, columns)
        local often = tf.equal(tf.math.floormod(tf.range(rows), 311), 0)
        local huge = tf.where(tf.reshape(often, { -1, 1 }), x * 3e38, x)
        for _, given in ipairs { x, huge } do
          lowered(function(v)
            local y = v * 0.75
            return tf.reduce_sum(y, 0), tf.reduce_mean(y - 2, 0), y
          end, given)
        end
      end
    end
  end)

  it("leave sums alone that a later one takes, or that are not of all rows",
    function()
      lowered(function(x)
        local y = x * 0.5
        return y - tf.reduce_sum(y, 0), y * tf.reduce_mean(y, 0, true)
      end, numbers(2048, 64))
      lowered(function(x)
        local y = x * 0.5
        return tf.reduce_sum(y, { 0, 2 }), tf.reduce_sum(y, 1),
          tf.reduce_sum(y, 0), tf.reduce_sum(y), tf.reduce_max(y, { 0, 1 }),
          tf.reduce_sum(tf.reshape(y, { -1, 4 }), 0)
      end, numbers(32, 64, 64))
      lowered(function(x) -- of as many rows as the sums are
        return tf.reduce_sum(x * 0.5, { 1, 3 }), tf.reduce_max(x, { 1, 3 })
      end, numbers(8, 32, 32, 16))
    end)

  it("leave the numbers that calls behind them draw alone", function()
    local function step(x)
      local y = norm(x)
      return y, tf.random.uniform({ 8 }, 0, tf.reduce_max(y)),
        tf.random.normal { 8 }
    end
    local f = tf.function_(step)
    local x = numbers(ROWS, COLUMNS)
    local function twice(fn)
      tf.random.set_seed(7)
      return { bytes(fn(x)), bytes(fn(x)) }
    end
    local want = twice(step)
    assert.are.same(want, twice(f))
    assert.are_not.equal(want[1][3], want[2][3])
  end)

  it("give any number of rows", function()
    local f = tf.function_(norm, { input_signature = {
      tf.TensorSpec({ -1, 1000 }, "float32") } })
    for _, n in ipairs { 1, 7, 63, 65, 200, 0 } do
      local x = numbers(n, 1000)
      assert.are.same(traces.values(norm(x)), traces.values(f(x)))
    end
  end)
end)
