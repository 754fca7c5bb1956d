-- Calls of many values: what they give are exact sums.
local tf = require "tfdist"
local raw = require "tfdist.core.raw"

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
