--- What a call of a traced function is told by, beside its tensors.
local K = require "tfdist".keras
local raw = require "tfdist.core.raw"
local rng = require "spec.fuzz.rng"
local seed = require "spec.support.seed"
local signature = require "tfdist.traced.signature"
local tf = require "tfdist"
local values = require "spec.support.traces".values

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

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

describe("the short key of a call", function()
  local SIZES = { 0, 1, 2, 63, 64, 127, 128, 129, 255, 256, 384, 16383, 16384,
    32768, 2 ^ 28 }

  it("tells shapes apart, whatever their sizes", function()
    local seen_keys, n = {}, 0
    local function meet(dims)
      local x = tf.zeros(dims)
      local key = raw.graph_key(x)
      assert.are.equal(key, (raw.graph_key(tf.zeros(dims))))
      assert.is_nil(seen_keys[key], table.concat(dims, " "))
      seen_keys[key], n = true, n + 1
    end
    for _, a in ipairs(SIZES) do
      meet { 0, a }
      for _, b in ipairs(SIZES) do meet { a, 0, b } end
    end
    assert.are.equal(#SIZES * (#SIZES + 1), n)
  end)

  -- Lua keeps such strings once each.
  it("has at most 40 bytes for a batch, its labels and a number", function()
    local x, y = tf.zeros { 256, 28, 28, 1 }, tf.zeros { 256, 10 }
    assert.is_true(#raw.graph_key(x, y, 1) <= 40)
  end)
end)

describe("a call whose key is known", function()
  local x = tf.constant { 1, 2 }

  it("gives as many results as the first one", function()
    local v = tf.Variable(0.0)
    local fns = {
      function() v:assign_add(1) end,
      function(a) return a * 2 end,
      function(a) return a * 2, a * 3 end,
      function(a) return a end,
      function(a) return { a * 2 } end,
      function(a) return nil, a * 2 end,
      function() return nil end,
    }
    for i, fn in ipairs(fns) do
      local f = tf.function_(fn)
      for _ = 1, 4 do
        assert.are.equal(select("#", fn(x)), select("#", f(x)), "function " .. i)
      end
      assert.are.equal(1, f:experimental_get_tracing_count())
    end
    assert.are.equal(8, v:item())
  end)

  it("runs what is kept for it, and says the key where nothing is", function()
    local f = tf.function_(function(a) return a * 2 end)
    local entry = f:get_concrete_function(x)
    local fast = { [raw.graph_key(x)] = entry }
    local found, y, more = raw.graph_quick(fast, x)
    assert.is_true(rawequal(entry, found))
    assert.are.same({ 2, 4 }, values(y))
    assert.is_nil(more)
    local function miss(...)
      local no, key, taped = raw.graph_quick(fast, ...)
      local same_key, same_taped = raw.graph_key(...)
      assert.is_false(no)
      assert.are.equal(same_key, key)
      assert.are.equal(same_taped, taped)
    end
    miss(tf.constant { 1, 2, 3 })
    miss(x, x)
    miss({})
    miss()
    tf.GradientTape(function() miss(x) end)
    tf.device("/cpu:0", function() miss(x) end)
    fast[raw.graph_key(x)] = {}
    miss(x)
    fast[raw.graph_key(x)] = 1
    miss(x)
    assert.has_error(function() raw.graph_quick(1, x) end)
    assert.has_error(function()
      raw.graph_quick({ [raw.graph_key(x)] = { 1 } }, x)
    end)
  end)

  it("is interrupted like others", function()
    local f = tf.function_(function(a) return a * 2 end)
    for _ = 1, 2 do f(x) end
    raw.interrupt(true)
    local ok, e = pcall(f, x)
    assert.is_false(ok)
    assert.are.equal("Cancelled", e.kind)
    assert.are.same({ 2, 4 }, values(f(x)))
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
    local numbers = { 0.0, MINUS_ZERO, 1 }
    if number_type then numbers[4] = 1.0 end
    -- An object has no short key.
    for _, first in ipairs { tf.constant(2.0), K } do
      local f = tf.function_(function(_, n) return seen(n) end)
      for _ = 1, 2 do
        for _, n in ipairs(numbers) do
          assert.are.equal(seen(n), f(first, n))
        end
      end
      assert.are.equal(#numbers, f:experimental_get_tracing_count())
    end
  end)
end)

describe("what is set around a call", function()
  local function after(fn, ...)
    fn()
    return ...
  end

  -- fn in each setting, eager and traced, twice: the same, and traced once for
  -- each, or so many times.
  local function check(fn, around, times)
    local f = tf.function_(fn)
    local function traced(...) return f(...) end
    for _ = 1, 2 do
      for i, set in ipairs(around) do
        assert.are.equal(tostring(set(fn)), tostring(set(traced)),
          "setting " .. i)
      end
    end
    assert.are.equal(times or #around, f:experimental_get_tracing_count())
  end

  local function plain(fn) return fn() end

  it("is a part of the key: name scopes", function()
    check(function()
      return tf.name_scope("inner", function(scope) return scope end)
    end, { plain, function(fn) return tf.name_scope("a", fn) end,
      function(fn) return tf.name_scope("b L", fn) end })
  end)

  it("is a part of the key: strategies, replicas and devices", function()
    local one, two = tf.distribute.MirroredStrategy(),
      tf.distribute.MirroredStrategy()
    local n = one.num_replicas_in_sync
    -- On other devices all runs in a scope of the first one, as an update of it.
    local around = os.getenv "TFDIST_SPEC_TYPE" and 1 or 0
    local v = one:scope(function() return tf.Variable(3.0) end)
    local function over(fn)
      local list = {}
      one:run(function() list[#list + 1] = fn() end)
      return table.concat(list, " ")
    end
    check(function()
      local d = tf.distribute
      local replica = d.get_replica_context()
      local id = replica and replica.replica_id_in_sync_group
      return ("%s %s %d %s %s"):format(id, d.in_cross_replica_context(),
        d.get_strategy().num_replicas_in_sync, d.has_strategy(),
        (tf.constant(1.0) + v).device)
    end, { plain, over, function(fn)
      return one:scope(function() return fn() end)
    end, function(fn)
      return two:scope(function() return fn() end)
    end, function(fn)
      local list = {}
      one.extended:update(v, function() list[#list + 1] = fn() end)
      return table.concat(list, " ")
    end, function(fn)
      return tf.device("CPU:0", function() return fn() end)
    end }, 4 + 2 * n - around)
  end)

  it("is asked for at each call: seeds, learning rates, whether to trace", function()
    local function seeded(number)
      return function(fn)
        tf.random.set_seed(number)
        return fn():totable()[1] + fn():totable()[1]
      end
    end
    check(function() return tf.random.uniform { 2 } end, { seeded(1), seeded(2) },
      1)
    local function train(traced)
      local optimizer, v = K.optimizers.SGD(0.5), tf.Variable(8.0)
      local function step() optimizer:apply_gradients { { tf.ones {}, v } } end
      local f = traced and tf.function_(step) or step
      for _, rate in ipairs { 0.5, 0.25, 2 } do
        optimizer.learning_rate = rate
        f()
      end
      return v:read_value():item()
    end
    assert.are.equal(8 - 2.75, train(false))
    assert.are.equal(8 - 2.75, train(true))
    local f = tf.function_(tf.executing_eagerly)
    for _, eagerly in ipairs { false, true, false } do
      tf.config.run_functions_eagerly(eagerly)
      assert.are.equal(eagerly, f())
    end
    tf.config.run_functions_eagerly(false)
  end)

  it("is a part of the key: dtypes of layers", function()
    local mixed = K.mixed_precision
    check(function()
      return K.backend.floatx() .. mixed.global_policy().name
    end, { plain, function(fn)
      K.backend.set_floatx "float64"
      return after(function() K.backend.set_floatx "float32" end, fn())
    end, function(fn)
      mixed.set_global_policy "mixed_bfloat16"
      return after(function() mixed.set_global_policy(nil) end, fn())
    end })
  end)

  it("is a part of the key: the small number of constraints", function()
    local norm = K.constraints.UnitNorm()
    check(function() return norm(tf.constant { 0.5, 0 }) end, {
      plain, function(fn)
        K.backend.set_epsilon(0.5)
        return after(function() K.backend.set_epsilon(1e-7) end, fn())
      end })
  end)

  it("is seen by a model's steps", function()
    local layer = K.layers.Dense(3, { use_bias = false,
      kernel_constraint = "unit_norm" })
    local model = K.Sequential { layer }
    model:compile { optimizer = K.optimizers.SGD(0.0), loss = "mse" }
    local twin = K.Sequential { K.layers.Dense(3, { use_bias = false,
      kernel_constraint = "unit_norm" }) }
    twin:compile { optimizer = K.optimizers.SGD(0.0), loss = "mse",
      run_eagerly = true }
    local x, y = tf.ones { 4, 2 }, tf.ones { 4, 3 }
    model:build { -1, 2 }
    twin:build { -1, 2 }
    twin:set_weights(model:get_weights())
    for _, policy in ipairs { "float32", "mixed_bfloat16" } do
      layer.dtype_policy, twin.layers[1].dtype_policy = policy, policy
      for _, epsilon in ipairs { 1e-7, 0.5, 1e-7 } do
        K.backend.set_epsilon(epsilon)
        for _ = 1, 3 do
          assert.are.equal(twin:train_on_batch(x, y), model:train_on_batch(x, y))
          assert.are.same(values(twin.weights[1]), values(model.weights[1]))
        end
      end
    end
  end)

  it("is a part of the key: where ops without a kernel run", function()
    local config = tf.config
    check(config.get_soft_device_placement, { plain, function(fn)
      config.set_soft_device_placement(false)
      return after(function() config.set_soft_device_placement(true) end, fn())
    end })
    local enable = config.experimental.enable_tensor_float_32_execution
    local enabled = config.experimental.tensor_float_32_execution_enabled
    local on = enabled()
    enable(on)
    check(enabled, { plain, function(fn)
      enable(not on)
      return after(function() enable(on) end, fn())
    end })
  end)
end)

-- Signatures that are drawn, half of them near another one, against a text of
-- what they are made of that knows nothing of keys.
describe("random signatures", function()
  local DTYPES = { "float32", "float64", "int32", "bool" }
  local FIELDS = { "a", "b", "c1", "c 1" }
  local OBJECTS = { K, tf }
  local LEAVES = { 0.0, MINUS_ZERO, 1, 1.0, 0 / 0, "1", "a\0b", true }

  local function tensor(r)
    local dims = {}
    for axis = 1, r:int(0, 3) do dims[axis] = r:int(0, 2) end
    return tf.zeros(dims, r:pick(DTYPES))
  end

  local function draw(r, depth)
    local what = r:int(1, depth > 0 and 7 or 5)
    if what <= 2 then return tensor(r) end
    if what <= 4 then return r:pick(LEAVES) end
    if what == 5 then return r:pick(OBJECTS) end
    local out = {}
    for i = 1, r:int(0, 2) do out[i] = draw(r, depth - 1) end
    for _ = 1, what == 7 and r:int(0, 3) or 0 do
      out[r:pick(FIELDS)] = draw(r, depth - 1)
    end
    return out
  end

  local function table_near(r, x, near)
    local keys, out = {}, {}
    for key in pairs(x) do table.insert(keys, r:int(1, #keys + 1), key) end
    for _, key in ipairs(keys) do out[key] = near(r, x[key]) end
    local change = r:int(1, 12)
    if change == 1 then
      out[r:pick(FIELDS)] = nil
    elseif change == 2 then
      out[#out] = nil
    elseif change == 3 and type(out[#out]) == "table" and out[#out] ~= K
      and out[#out] ~= tf then
      local last = table.remove(out)
      for _, value in ipairs(last) do out[#out + 1] = value end
    end
    return out
  end

  -- The same made anew, something in it perhaps changed.
  local function near(r, x)
    local change = r:int(1, 8)
    if change == 1 then
      return { near(r, x) }
    elseif type(x) == "userdata" then
      local dims = {}
      for axis = 1, #x.shape do dims[axis] = x.shape[axis] end
      if change == 2 and #dims > 0 then dims[r:int(1, #dims)] = r:int(0, 2) end
      return tf.zeros(dims, change == 3 and r:pick(DTYPES) or x.dtype)
    elseif type(x) ~= "table" then
      return change <= 4 and r:pick(LEAVES) or x
    elseif x == K or x == tf then
      return change == 2 and r:pick(OBJECTS) or x
    end
    return table_near(r, x, near)
  end

  local function describe_value(x)
    if type(x) == "userdata" then
      return ("tensor %s {%s}"):format(x.dtype, table.concat(x.shape, ","))
    elseif type(x) == "number" then
      return x ~= x and "NaN" or "number " .. seen(x)
    elseif type(x) == "string" then
      return ("%q"):format(x)
    elseif type(x) ~= "table" or x == K or x == tf then
      return tostring(x)
    end
    local parts = {}
    for i, value in ipairs(x) do
      parts[i] = ("[%d] = %s"):format(i, describe_value(value))
    end
    for _, key in ipairs(FIELDS) do
      if x[key] ~= nil then
        parts[#parts + 1] = ("[%q] = %s"):format(key, describe_value(x[key]))
      end
    end
    return "{" .. table.concat(parts, ", ") .. "}"
  end

  local function text_of(...)
    local parts = {}
    for i = 1, select("#", ...) do
      parts[i] = describe_value((select(i, ...)))
    end
    return table.concat(parts, "; ")
  end

  local notice = require "tfdist.base.notice"
  local warn = notice.warn
  setup(function() notice.warn = function() end end)
  teardown(function() notice.warn = warn end)

  local function check(r)
    local f = tf.function_(text_of)
    local known, count, calls = {}, 0, {}
    -- A function keeps 64 graphs.
    while count < 60 and #calls < 600 do
      local args = {}
      if #calls > 0 and not r:one_in(8) then
        local old = r:pick(calls)
        for i = 1, #old do args[i] = near(r, old[i]) end
      else
        for i = 1, r:int(0, 2) do args[i] = draw(r, 2) end
      end
      calls[#calls + 1] = args
      local text = text_of(unpack(args))
      if not known[text] then
        known[text], count = true, count + 1
      end
      assert.are.equal(text, f(unpack(args)))
      assert.are.equal(count, f:experimental_get_tracing_count(), text)
    end
    for _, args in ipairs(calls) do
      assert.are.equal(text_of(unpack(args)), f(unpack(args)))
    end
    assert.are.equal(count, f:experimental_get_tracing_count())
  end

  it(("have a graph each (seed %d)"):format(seed), function()
    for i = 1, 4 do check(rng.new(seed, i)) end
  end)
end)

describe("what differs between two calls", function()
  local function difference(a, b)
    local _, _, old = signature.of({}, unpack(a, 1, a.n or #a))
    local _, _, new = signature.of({}, unpack(b, 1, b.n or #b))
    return signature.difference(old, new)
  end

  it("has words that are not the same", function()
    local long = ("x"):rep(80)
    for words, calls in pairs {
      ["part 1 was 1 and is 2"] = { { 1 }, { 2 } },
      ["part 2 was nothing and is true"] = { { 1 }, { 1, true } },
      ["part 1 was an object and is another one"] = { { print }, { pairs } },
      ['xxx..." and is another one'] = { { long .. "a" }, { long .. "b" } },
      ["part 1 was a float32 tensor of shape {1} and is a float32 tensor of "
        .. "shape {2}"] = { { tf.ones { 1 } }, { tf.ones { 2 } } },
      ["part 1 was a table with a list of 1 and is a table with a list of 2"]
        = { { { 1 } }, { { 1, 2 } } },
      ['part 4 was the end of a table and is "b"'] = { { { a = 1 } },
        { { a = 1, b = 2 } } },
    } do
      local said = difference(calls[1], calls[2])
      assert.is_not_nil(said:find(words, 1, true), said)
    end
  end)

  it("names kinds of numbers where these are all that differs", function()
    local whole, float = tonumber "1", tonumber "1.0"
    local said = difference({ whole }, { float })
    assert.are.equal(rawget(math, "type") and "argument part 1 was the integer "
      .. "1 and is the float 1" or "nothing", (said:gsub("1%.0$", "1")))
  end)
end)
