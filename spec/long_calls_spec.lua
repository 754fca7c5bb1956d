-- Calls of many values: their numbers are exact sums, and their cost grows with
-- the count alone.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"

local unpack = table.unpack or unpack -- luacheck: ignore 113 143
-- Other engines put far fewer arguments on their stack.
local HAS_ROOM = _VERSION == "Lua 5.4"

-- { make(1), ... make(n) }
local function list_of(n, make)
  local list = {}
  for i = 1, n do list[i] = make(i) end
  return list
end

local function wholes(n)
  return list_of(n, function(i) return tf.constant(i, "float64") end)
end

local function sum_to(n) return n * (n + 1) / 2 end

local function total(x)
  return tf.reduce_sum(tf.cast(x, "float64")):item()
end

describe("a list of operands longer than a call has places for", function()
  -- At 16 the list is read into memory of its own.
  for _, n in ipairs { 15, 16, 17, 100 } do
    it("may hold numbers and lists, of " .. n, function()
      local numbers = list_of(n, function(i) return i end)
      local mixed = list_of(n, function(i)
        return i % 2 == 0 and i or tf.constant(i, "float32")
      end)
      local rows = list_of(n, function(i) return { i, 2 * i } end)
      for _, list in ipairs { numbers, mixed } do
        for _, got in ipairs { tf.stack(list), tf.stack(list, 0),
          tf.stack(list, 0, "name"), tf.stack { values = list },
          tf.stack(list, { axis = -1 }) } do
          assert.are.same({ n }, raw.tensor_dims(got))
          assert.are.equal(sum_to(n), total(got))
        end
        assert.are.equal(sum_to(n), tf.add_n(list):item())
      end
      local joined = tf.concat(rows, 0)
      assert.are.same({ 2 * n }, raw.tensor_dims(joined))
      assert.are.equal(3 * sum_to(n), total(joined))
      assert.are.same({ 2, n }, raw.tensor_dims(tf.stack(rows, 1)))
    end)
  end

  it("still is refused for what it cannot hold", function()
    local list = list_of(40, function(i) return i end)
    list[33] = "a word"
    local ok, e = pcall(tf.stack, list)
    assert.is_false(ok)
    assert.truthy(tostring(e):find("values[33]", 1, true))
  end)
end)

describe("more operands than 16 bits count", function()
  for _, n in ipairs { 32768, 70000 } do
    it("add up, eagerly and traced, " .. n, function()
      local list = wholes(n)
      for _, run in ipairs { function(fn) return fn end, tf.function_ } do
        assert.are.equal(sum_to(n), run(tf.add_n)(list):item())
        assert.are.equal(sum_to(n), total(run(tf.stack)(list)))
      end
    end)
  end

  it("have gradients", function()
    local n = 40000
    local list = wholes(n)
    for _, run in ipairs { function(fn) return fn end, tf.function_ } do
      local tape, y = tf.GradientTape(function(t)
        t:watch(list)
        return run(tf.add_n)(list)
      end)
      assert.are.equal(n, total(tf.stack(tape:gradient(y, list))))
    end
  end)

  it("are results of a function", function()
    local n = 40000
    local f = tf.function_(function(x)
      return list_of(n, function(i) return x + i end)
    end)
    for start = 0, 1 do
      local got = f(tf.constant(start, "float64"))
      assert.are.equal(n, #got)
      assert.are.equal(sum_to(n) + n * start, total(tf.stack(got)))
    end
  end)
end)

-- The processor's time of fn(prepare(n)), the least of some.
local function cost(n, prepare, fn)
  local least = math.huge
  for _ = 1, 2 do
    local list = { prepare(n) }
    collectgarbage()
    collectgarbage "stop"
    local began = os.clock()
    fn(unpack(list))
    least = math.min(least, os.clock() - began)
    collectgarbage "restart"
  end
  return least
end

-- Four times the values: 4 times the cost, or 16 if each looks at all others,
-- in every round.
local TIMES, MOST, ROUNDS = 4, 9, 5

local function tensors(n)
  return list_of(n, function(i) return tf.constant(i) end)
end

local CASES = {
  { "tf.stack of numbers", 5000, function(n)
    return list_of(n, function(i) return i end)
  end, tf.stack },
  { "a function of many results", 40000, function(n)
    return tf.function_(function(x)
      return list_of(n, function(i) return x + i end)
    end), tf.constant(1.0)
  end, function(f, x) f(x) end },
  { "a function that takes many tensors from outside", 80000, function(n)
    local list = tensors(n)
    return tf.function_(function(x) return x + tf.add_n(list) end),
      tf.constant(1.0)
  end, function(f, x) f(x) end },
  { "the question which of many values a tape follows", 40000, function(n)
    local list = tensors(n)
    list.n = n
    return list
  end, function(list)
    tf.GradientTape(function(t)
      t:watch(list[1])
      assert.are.equal(list.n, #raw.tape_followed(list, { n = 0 }))
    end)
  end },
  { "a function's results among its arguments", 8000, function(n)
    return tf.function_(function(list)
      return list_of(n, function(i) return list[i] end)
    end), tensors(n)
  end, function(f, list) f(list) end },
}

if HAS_ROOM then
  CASES[#CASES + 1] = { "a known call of many arguments", 30000, function(n)
    local f, list = tf.function_(function(...)
      return (...) + select(n, ...)
    end), tensors(n)
    f(unpack(list, 1, n))
    return f, list, n
  end, function(f, list, n) f(unpack(list, 1, n)) end }
  CASES[#CASES + 1] = { "tf.tidy of many values", 60000, tensors,
    function(list)
      tf.tidy(function() return unpack(list) end)
    end }
  CASES[#CASES + 1] = { "a function of many results in another", 60000,
    function(n)
      local inner = tf.function_(function(...) return ... end)
      return tf.function_(function(x)
        return (inner(unpack(list_of(n, function() return x end))))
      end), tf.constant(1.0)
    end, function(f, x) f(x) end }
end

describe("the cost of many values", function()
  for _, case in ipairs(CASES) do
    local name, n, prepare, fn = unpack(case)

    it("grows with their count: " .. name, function()
      fn(prepare(16)) -- what is loaded late
      local said
      for _ = 1, ROUNDS do
        local few, many = cost(n / TIMES, prepare, fn), cost(n, prepare, fn)
        if many < MOST * few then return end
        said = ("%d values took %.4f s, %d took %.4f"):format(n / TIMES, few, n,
          many)
      end
      error(said)
    end)
  end
end)
