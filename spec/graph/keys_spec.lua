--- What a call of a traced function is told by, beside its tensors.
local K = require "tfdist".keras
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local number_type = rawget(math, "type") -- nil where all numbers are floats
local tointeger = rawget(math, "tointeger")

-- Zero of the other sign; in the text it is folded into the other one.
local ZERO = 0.0
local MINUS_ZERO = -ZERO

local function one_value(a, b)
  local tables, list = { { x = a } }, { { x = b } }
  local fields = raw.same_fields(tables, list, { 1 }, 1, {})
  assert.are.equal(fields, raw.same_values(tables, { "x" }, { b }, 1))
  return fields
end

-- Zeros and integers as a script sees them.
local function seen(x)
  return (number_type and number_type(x) or "number") .. 1 / x .. tostring(x)
end

describe("what a trace has read", function()
  local NAN = 0 / 0

  it("is the same value only where a script sees no difference", function()
    local list = { 0.0, MINUS_ZERO, 1.5, NAN, 1 / 0, "1", true, {} }
    if number_type then
      for _, x in ipairs { tointeger(0), tointeger(1), 1.0,
        2 ^ 53, tointeger(2 ^ 53) } do
        list[#list + 1] = x
      end
    end
    for i, a in ipairs(list) do
      for k, b in ipairs(list) do
        assert.are.equal(i == k, one_value(a, b), tostring(a) .. " " .. tostring(b))
      end
    end
    assert.is_true(one_value(NAN, -NAN))
  end)

  it("is read again by a model's steps where a number became another", function()
    local Own = K.layers.Layer:extend "Own"
    local was
    function Own:call(x)
      was = seen(self.number)
      return x * (1 / self.number == -math.huge and -1.0 or 1.0)
    end
    local layer = Own()
    local model = K.Sequential { K.layers.Dense(1), layer }
    model:compile { optimizer = "sgd", loss = "mse" }
    local numbers = { 0.0, MINUS_ZERO, 0.0 }
    if number_type then
      numbers[4], numbers[5] = tointeger(1), 1.0
    end
    for _, x in ipairs(numbers) do
      layer.number = x
      for _ = 1, 3 do
        model:train_on_batch(tf.ones { 4, 2 }, tf.ones { 4, 1 })
      end
      assert.are.equal(seen(x), was)
    end
  end)
end)

describe("a number as an argument", function()
  it("that is NaN is one value", function()
    local f = tf.function_(function(x, n) return x * n end)
    for _ = 1, 4 do
      local y = f(tf.constant(2.0), 0 / 0):item()
      assert.is_true(y ~= y)
      f(tf.constant(2.0), -math.huge + math.huge)
    end
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("is another one where a script sees a difference", function()
    local f = tf.function_(function(_, n) return seen(n) end)
    local numbers = { 0.0, MINUS_ZERO, 1 }
    if number_type then numbers[4] = 1.0 end
    for _ = 1, 2 do
      for _, n in ipairs(numbers) do
        assert.are.equal(seen(n), f(tf.constant(2.0), n))
        assert.are.equal(seen(n), f(nil, n))
      end
    end
    assert.are.equal(2 * #numbers, f:experimental_get_tracing_count())
  end)
end)
