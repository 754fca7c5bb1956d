--- Nodes that give the bits of what they take are left out, and no others.
local on_device = require "spec.support.on_device"
local rng = require "spec.fuzz.rng"
local seed = require "spec.support.seed"
local tf = require "tfdist"
local traces = require "spec.support.traces"

local bits, same = traces.bits, traces.same_bits
local INF = math.huge
local FUSED = os.getenv "TFDIST_FUSION" ~= "0"
local CPU = on_device.type == "CPU" -- elsewhere a compiler makes each program
local FLOATS = CPU and { "float32", "float64", "float16", "bfloat16" }
  or { "float32" }
local INTS = CPU and { "int8", "uint8", "int16", "int32", "int64" } or {}

-- A GPU's arithmetic makes one NaN of all; what is left out keeps them.
local NAN = CPU and 0 / 0 or 0

local function input(dtype, shape)
  local list = { 0, 1, 2, 3, 5, 100, 7, 42 }
  for i, x in ipairs(dtype:find "float" and { -0.0, INF, -INF, NAN, 1e-40,
                                              -1.5, 0.1, -1 / 3 } or {}) do
    list[#list + 1] = x
    list[i] = -list[i]
  end
  return tf.constant(list, { dtype = dtype, shape = shape })
end

-- The program of fn, after the bits were compared.
local function lowered(fn, ...)
  local f = tf.function_(fn)
  for call = 1, 2 do
    same(bits { fn(...) }, bits { f(...) }, "call " .. call)
  end
  return f:get_concrete_function(...):graph "lowered"
end

local function has(text, name)
  return text:find("%f[%w_]" .. name .. "%f[^%w_]") ~= nil
end

local function constant(x, like)
  return tf.constant(x, { dtype = like.dtype })
end

-- name, what a node does, the op, dtypes in which it is left out, those in
-- which it is not.
local RULES = {
  { "x * 1", function(x) return x * constant(1, x) end, "multiply",
    { FLOATS, INTS } },
  { "1 * x", function(x) return constant(1, x) * x end, "multiply",
    { FLOATS, INTS } },
  { "x * 2", function(x) return x * constant(2, x) end, "multiply", nil,
    { FLOATS, INTS } },
  { "x / 1", function(x) return x / constant(1, x) end, "divide",
    { FLOATS } },
  { "1 / x", function(x) return constant(1, x) / x end, "divide", nil,
    { FLOATS } },
  { "x - 0", function(x) return x - constant(0, x) end, "subtract",
    { FLOATS, INTS } },
  { "x - -0", function(x) return x - constant(-0.0, x) end, "subtract", nil,
    { FLOATS } },
  { "0 - x", function(x) return constant(0, x) - x end, "subtract", nil,
    { FLOATS, INTS } },
  { "x + -0", function(x) return x + constant(-0.0, x) end, "add",
    { FLOATS } },
  { "-0 + x", function(x) return constant(-0.0, x) + x end, "add",
    { FLOATS } },
  { "x + 0", function(x) return x + constant(0, x) end, "add", { INTS },
    { FLOATS } },
  { "-(-x)", function(x) return -(-x) end, "negative",
    { FLOATS, CPU and { "int8", "int16", "int32", "int64" } or {} } },
  { "-(-(-x))", function(x) return -(-(-x)) end, "negative", nil,
    { FLOATS } },
}

local function each(lists, fn)
  for _, list in ipairs(lists or {}) do
    for _, dtype in ipairs(list) do fn(dtype) end
  end
end

describe("exact algebra", function()
  for _, rule in ipairs(RULES) do
    local name, fn, op = rule[1], rule[2], rule[3]
    -- Between two others, so that it is neither first nor last.
    local function around(x) return tf.maximum(fn(tf.square(x)), x) end

    it("keeps the bits: " .. name, function()
      each(rule[4], function(dtype)
        local text = lowered(around, input(dtype))
        assert.are.equal(not FUSED, has(text, op), dtype .. ": " .. text)
      end)
      each(rule[5], function(dtype)
        local text = lowered(around, input(dtype))
        assert.is_true(has(text, op), dtype .. ": " .. text)
      end)
    end)
  end

  it("leaves casts out that keep all values, and no others", function()
    local digits = { bool = 1, int8 = 7, uint8 = 8, bfloat16 = 8, float16 = 11,
      int16 = 15, float32 = 24, int32 = 31, float64 = 53, int64 = 63 }
    local list = {}
    for name in pairs(digits) do
      if CPU or name:find "32" then list[#list + 1] = name end
    end
    table.sort(list)
    for _, from in ipairs(list) do
      for _, to in ipairs(list) do
        local whole = not from:find "float"
        local holds = to ~= "bool" and digits[to] >= digits[from]
          and (from ~= "bfloat16" or to:find "float" and to ~= "float16")
        if whole then
          holds = holds and (to ~= "uint8" or from == "bool")
        else
          holds = holds and to:find "float"
        end
        local x = input(from == "bool" and "uint8" or from)
        x = from == "bool" and tf.cast(x, "bool") or x
        local text = from == to or lowered(function(t)
          return tf.where(tf.equal(t, t), tf.cast(tf.cast(t, to), from), t)
        end, x)
        assert.are.equal(from ~= to and not (holds and FUSED),
          has(tostring(text), "cast"), from .. " " .. to)
      end
    end
  end)

  it("asks for the shape and the type of the operand", function()
    local x = tf.constant { 1, 2, 3 }
    assert.is_true(has(lowered(function(t)
      return tf.square(t) * tf.constant { { 1 } }
    end, x), "multiply"))
    assert.is_true(has(lowered(function(t, n)
      return tf.square(t) * n
    end, x, tf.constant(1.0)), "multiply"))
  end)

  it("keeps what is a result", function()
    local f = tf.function_(function(x)
      local y = x * 1.0
      return y, y, -(-y)
    end)
    local a, b, c = f(tf.constant { 1, 2 })
    f(tf.constant { 3, 4 })
    for _, y in ipairs { a, b, c } do
      assert.are.same({ 1, 2 }, y:totable())
    end
  end)

  -- What is read is a copy where the variable is written before it is used.
  it("lets no value see a later write", function()
    local v = tf.Variable { 1, 2 }
    local step = tf.function_(function(x)
      local before = v * 1.0
      local written = v:assign(x) - 0.0
      v:assign_add(x)
      return before, written, tf.identity(v)
    end)
    local before, written, after = step(tf.constant { 10, 20 })
    assert.are.same({ 1, 2 }, before:totable())
    assert.are.same({ 10, 20 }, written:totable())
    assert.are.same({ 20, 40 }, after:totable())
    v:assign { 0, 0 }
    assert.are.same({ 1, 2 }, before:totable())
  end)

  local OPS = {
    function(x) return x * constant(1, x) end,
    function(x) return constant(1, x) * x end,
    function(x) return x / constant(1, x) end,
    function(x) return x - constant(0, x) end,
    function(x) return x + constant(-0.0, x) end,
    function(x) return x + constant(0, x) end,
    function(x) return x * constant(0.5, x) end,
    function(x) return -x end,
    function(x) return tf.tanh(x) end,
    function(x) return tf.transpose(x) end,
    function(x) return tf.reshape(x, { -1, 4 }) end,
    function(x) return tf.cast(tf.cast(x, "float64"), x.dtype) end,
    function(x) return tf.cast(tf.cast(x, "float16"), x.dtype) end,
  }

  it(("gives what ops one by one give, gradients too (seed %d)"):format(seed),
    function()
      local random = rng.new(seed)
      for _ = 1, not CPU and 4 or os.getenv "TFD_LONG" and 300 or 40 do
        local list = {}
        for i = 1, random:int(2, 9) do list[i] = OPS[random:int(1, #OPS)] end
        local dtype = ({ "float32", "float64" })[random:int(1, 2)]
        local function fn(x)
          local y
          local tape = tf.GradientTape(function(t)
            t:watch(x)
            y = x
            for _, op in ipairs(list) do y = op(y) end
          end)
          return y, tape:gradient(y, x)
        end
        lowered(fn, input(dtype, { 4, 4 }))
      end
    end)
end)
