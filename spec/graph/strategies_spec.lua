--- strategy:run inside a traced function, and of one: the bits of eager
--- execution, traced once.
local expect = require "spec.support.expect"
local on_device = require "spec.support.on_device"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

local replica = tf.distribute.get_replica_context

-- What this process has devices for.
local function strategies()
  local n = math.min(replicas.available, 4)
  local names = replicas.list(n, on_device.at)
  local list = {
    OneDevice = tf.distribute.OneDeviceStrategy(names[n]),
    default = tf.distribute.get_strategy(),
  }
  if n > 1 then
    list.Mirrored = replicas.mirrored(n)
    list.Central = tf.distribute.experimental.CentralStorageStrategy(names)
  end
  if n > 2 then
    list["Mirrored of 2"] = replicas.mirrored(2)
  end
  return list
end

-- All bits of a result, place and structure included.
local function bits(x, out)
  out = out or {}
  if type(x) == "table" then
    local keys = {}
    for key in pairs(x) do keys[#keys + 1] = tostring(key) end
    table.sort(keys)
    for _, key in ipairs(keys) do
      out[#out + 1] = key
      bits(x[key] == nil and x[tonumber(key)] or x[key], out)
    end
  elseif type(x) ~= "userdata" then
    out[#out + 1] = tostring(x)
  elseif raw.kind(x) == "tensor" then
    out[#out + 1] = raw.tensor_dtype(x) .. x.device
      .. table.concat(raw.tensor_dims(x), ",")
    out[#out + 1] = raw.tensor_bytes(x)
  elseif raw.kind(x) == "value" then
    for i = 0, raw.value_count(x) - 1 do bits(x.values[i + 1], out) end
  else
    bits(tf.convert_to_tensor(x), out)
  end
  return out
end

-- make() gives a step and its variables; `how` runs it.
local function steps(strategy, make, how, n)
  tf.random.set_seed(7)
  local step, variables = make(strategy)
  local run = how(strategy, step)
  local x = strategy:experimental_distribute_values_from_function(function(c)
    local k = c.replica_id_in_sync_group
    return tf.constant { { 1 + k, -0.5 }, { 0.25 * k, 3 } }
  end)
  local out = {}
  for _ = 1, n or 3 do
    bits({ run(x) }, out)
    for _, v in ipairs(variables or {}) do
      bits(strategy:experimental_local_results(v), out)
    end
  end
  return out
end

local HOW = {
  eager = function(strategy, step)
    return function(...) return strategy:run(step, { ... }) end
  end,
  inside = function(strategy, step)
    return tf.function_(function(...) return strategy:run(step, { ... }) end)
  end,
  outside = function(strategy, step)
    local fn = tf.function_(step)
    return function(...) return strategy:run(fn, { ... }) end
  end,
}

-- A variable of the strategy's.
local function var(strategy, x, options)
  return strategy:scope(function() return tf.Variable(x, options) end)
end

local CASES = {
  ["no sync point"] = function()
    return function(x) return x * 2, replica().replica_id_in_sync_group end
  end,
  ["a mean of gradients"] = function(strategy)
    local w = var(strategy, { { 0.5, -1 }, { 2, 0.25 } },
      { aggregation = "MEAN" })
    return function(x)
      local tape, loss = tf.GradientTape(function()
        return tf.reduce_mean((tf.matmul(x, w) - 1) ^ 2)
      end)
      local g = replica():all_reduce("mean", tape:gradient(loss, w))
      w:assign_sub(g * 0.1)
      return loss
    end, { w }
  end,
  ["gradients through an all_reduce"] = function()
    return function(x)
      local tape, y = tf.GradientTape(function(t)
        t:watch(x)
        return tf.reduce_sum(replica():all_reduce("sum", x * x) * x)
      end)
      return tape:gradient(y, x)
    end
  end,
  ["a gather"] = function()
    return function(x) return replica():all_gather(x, 0) end
  end,
  ["a reduce_scatter"] = function()
    return function(x)
      local n = replica().num_replicas_in_sync
      return replica():reduce_scatter("sum", tf.tile(x, { n, 1 }))
    end
  end,
  ["a merge call"] = function(strategy)
    local v = var(strategy, { { 1.0, 2 }, { 3, 4 } })
    return function(x)
      return replica():merge_call(function(s, value)
        local mean = s:reduce("mean", value)
        s.extended:update(v, function(copy, y) copy:assign_add(y) end, { mean })
        return mean
      end, { x })
    end, { v }
  end,
  ["a variable summed on read"] = function(strategy)
    local v = var(strategy, 0.5, { synchronization = "ON_READ",
      aggregation = "SUM" })
    return function(x)
      v:assign_add(tf.reduce_sum(x))
      return v * 2
    end, { v }
  end,
  ["what replicas write together"] = function(strategy)
    local list = {}
    for i, aggregation in ipairs { "SUM", "MEAN", "ONLY_FIRST_REPLICA" } do
      list[i] = var(strategy, { { 1.0, 2 }, { 3, 4 } },
        { aggregation = aggregation })
    end
    return function(x)
      for _, v in ipairs(list) do v:assign_add(x) end
      return list[1] + list[2]
    end, list
  end,
  ["random numbers of each replica"] = function()
    return function(x)
      return tf.nn.dropout(x, 0.5), tf.random.normal({ 3 }, { seed = 4 })
    end
  end,
  ["a structure"] = function()
    return function(x) return { a = x, { x + 1, "b" }, tf.constant(2) } end
  end,
}
for _, op in ipairs { "SUM", "MEAN", "MIN", "MAX", "PROD" } do
  for _, dtype in ipairs { "float32", "float16", "bfloat16", "int32" } do
    CASES[("all_reduce %s of %s"):format(op, dtype)] = function()
      return function(x)
        return replica():all_reduce(op, tf.cast(x * 3, dtype))
      end
    end
  end
end

local O = tf.keras.optimizers
local OPTIMIZERS = {
  SGD = function() return O.SGD(0.1) end,
  momentum = function() return O.SGD(0.1, { momentum = 0.9 }) end,
  Adam = function() return O.Adam(0.05) end,
  AdamW = function() return O.AdamW(0.05) end,
  ["SGD with running means"] = function()
    return O.SGD(0.1, { use_ema = true, ema_momentum = 0.8 })
  end,
  ["a schedule"] = function()
    return O.SGD(O.schedules.ExponentialDecay(0.1, 2, 0.5))
  end,
}
for name, make in pairs(OPTIMIZERS) do
  CASES["the optimizer " .. name] = function(strategy)
    local w = var(strategy, { { 0.5, -1 }, { 2, 0.25 } })
    local table_ = var(strategy, { { 1.0, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } })
    local optimizer = strategy:scope(make)
    return function(x)
      local tape, loss = tf.GradientTape(function()
        local rows = tf.gather(table_, tf.cast(tf.abs(x[1]), "int32"))
        return tf.reduce_mean((tf.matmul(x, w) - rows) ^ 2)
      end)
      local list = { w, table_ }
      optimizer:apply_gradients(tape:gradient(loss, list), list)
      local mean = optimizer:get_slot(w, "average")
      return loss, mean and mean * 1
    end, { w, table_ }
  end
end

describe("a run", function()
  for name, strategy in pairs(strategies()) do
    for case, make in pairs(CASES) do
      it(("is traced: %s, %s"):format(case, name), function()
        local want = steps(strategy, make, HOW.eager)
        assert.are.same(want, steps(strategy, make, HOW.inside))
        assert.are.same(want, steps(strategy, make, HOW.outside))
      end)
    end
  end

  replicas.pair(it, pending, "is traced once, whatever the values",
    function(strategy)
      local traces = 0
      local fn = tf.function_(function(x)
        traces = traces + 1
        return x + 1
      end)
      for k = 1, 4 do
        strategy:run(fn, { tf.constant(k) })
        strategy:run(fn, {
          strategy:experimental_distribute_values_from_function(function()
            return tf.constant(k)
          end) })
      end
      assert.are.equal(4, traces) -- two signatures on two replicas
    end)

  replicas.pair(it, pending, "is told by each part of a distributed value",
    function(strategy)
      local traces = 0
      local fn = tf.function_(function(x, k)
        traces = traces + 1
        return strategy:reduce("sum", strategy:run(function(own)
          return tf.reduce_sum(own * k)
        end, { x }))
      end)
      local function call(k, ...)
        local parts = { ... }
        return fn(strategy:experimental_distribute_values_from_function(
          function(c) return parts[c.replica_id_in_sync_group + 1] end), k)
          :item()
      end
      local one, two = tf.constant { 1.0, 2 }, tf.constant { 3.0, 4, 5 }
      for _ = 1, 3 do
        assert.are.equal(12, call(2, one, one))
        assert.are.equal(30, call(2, one, two))
        assert.are.equal(30, call(2, two, one))
        assert.are.equal(45, call(3, two, one))
      end
      assert.are.equal(4, traces)
      local whole = tf.constant({ 1, 2 }, "int32")
      assert.are.equal(6, call(1, whole, whole))
      assert.are.equal(5, traces)
    end)

  replicas.pair(it, pending, "is followed to the parts of a distributed value",
    function(strategy)
      local fn = tf.function_(function(x)
        return strategy:reduce("sum", strategy:run(function(own)
          return own * own
        end, { x }))
      end)
      for k = 1, 3 do
        local x = strategy:experimental_distribute_values_from_function(
          function(c) return tf.constant(k + c.replica_id_in_sync_group / 2) end)
        local tape, y = tf.GradientTape(function(t)
          for _, part in ipairs(x.values) do t:watch(part) end
          return fn(x)
        end)
        local gradients = tape:gradient(y, x.values)
        assert.are.same({ 2 * k, 2 * k + 1 },
          { gradients[1]:item(), gradients[2]:item() })
      end
    end)

  replicas.pair(it, pending, "is a program for each device between sync points",
    function(strategy)
      local fn = tf.function_(function(x)
        return strategy:run(function(own)
          return replica():all_reduce("sum", tf.exp(own) * 2) + own
        end, { x })
      end)
      local x = tf.constant { 1, 2 }
      fn(x)
      local programs = {}
      local text = fn:get_concrete_function(x):graph "lowered"
      for device in text:gmatch "program [^\n]- on ([^:]+:%d+):" do
        programs[#programs + 1] = device
      end
      -- Both compute, the first adds up, the second takes the sum.
      local a, b = on_device.at(0), on_device.at(1)
      table.sort(programs)
      assert.are.same({ a, a, b, b }, programs, text)
    end)

  replicas.pair(it, pending, "sums gradients and updates all copies in one step",
    function(strategy)
      local v = var(strategy, { 1.0, 2 })
      local optimizer = strategy:scope(function() return O.SGD(0.5) end)
      local fn = tf.function_(function(x)
        strategy:run(function(own)
          optimizer:apply_gradients({ own }, { v })
        end, { x })
      end)
      local x = tf.constant { 1, 3 }
      for _ = 1, 3 do fn(x) end
      assert.are.same({ 1 - 3, 2 - 9 }, v:read_value():totable())
      local text = fn:get_concrete_function(x):graph "lowered"
      assert.is_truthy(text:find("a step of all devices", 1, true), text)
    end)

  replicas.pair(it, pending, "may make variables when it is traced first",
    function(strategy)
      local v
      local fn = tf.function_(function(x)
        local id = replica().replica_id_in_sync_group
        if v == nil then
          v = tf.Variable(1.0, { aggregation = "SUM" })
        end
        v:assign_add(x * (id + 1))
      end)
      for _ = 1, 3 do strategy:run(fn, { tf.constant(1.0) }) end
      assert.are.equal(10, v:read_value():item())
      assert.are.equal(2, #v.values)
    end)

  replicas.pair(it, pending, "fails with the replica and leaves nothing behind",
    function(strategy)
      local fn = tf.function_(function(x)
        if replica().replica_id_in_sync_group == 1 then error("stop", 0) end
        return replica():all_reduce("sum", x)
      end)
      for _ = 1, 2 do
        local e = expect.failure(function()
          strategy:run(fn, { tf.constant(1.0) })
        end)
        assert.is_not_nil(tostring(e):find("stop", 1, true), tostring(e))
        assert.is_nil(raw.graph_recording())
      end
      assert.are.equal(2, strategy:run(function()
        return replica():all_reduce("sum", tf.constant(1.0))
      end).values[1]:item())
    end)

  -- Not on devices that the host cannot see: each needs its own.
  local CPU = on_device.type == "CPU"

  replicas.pair(CPU and it or pending, pending,
    "reads a captured tensor where it lies",
    function(strategy)
      local size, row = 1024, 256
      local large = tf.reshape(tf.range(size * row, { dtype = "float32" }),
        { size, row })
      local kept = tf.range(7, { dtype = "float32" })
      local function fn(x)
        return tf.reduce_max(tf.gather(large, x)),
          tf.cond(tf.greater(x[0], 2), function() return kept end,
            function() return kept * 2 end)
      end
      local step = tf.function_(function(x)
        return strategy:run(fn, { x })
      end)
      local x = tf.constant({ 3, 1000 }, "int32")
      local device = raw.device_at("CPU", 1)
      collectgarbage()
      tf.sync_devices()
      local before = raw.device_memory(device)
      local most, same = step(x)
      tf.sync_devices()
      assert.is_true(raw.device_memory(device) - before < size * row * 4)
      for _ = 1, 2 do
        for i, t in ipairs(most.values) do
          assert.are.equal(1001 * row - 1, t:item())
          assert.are.equal("CPU:" .. i - 1, t.device:sub(-5))
          assert.are.same(kept:totable(), same.values[i]:totable())
        end
        most, same = step(x)
      end
    end)
end)

describe("checks that a call makes for a replica", function()
  -- step on two replicas raises this at calls, and tells this replica.
  local function told(strategy, step, message, id)
    local traced = tf.function_(step)
    for _, run in ipairs { function(x) return strategy:run(step, { x }) end,
      function(x) return strategy:run(traced, { x }) end,
      tf.function_(function(x) return strategy:run(step, { x }) end) } do
      local e = expect.failure(function()
        for _, t in ipairs(run(tf.constant(3)).values) do
          t:item()
        end
      end)
      assert.matches(message, e.message, 1, true)
      assert.are.equal(id, e.replica)
    end
  end

  replicas.pair(it, pending, "tell which one it was", function(strategy)
    told(strategy, function(x)
      tf.debugging.assert_less(x * 0 + replicas.id(), 1, "too many")
      return x
    end, "too many", 1)
    told(strategy, function(x)
      return tf.cond(tf.greater(x, 0), function()
        return x + tf.reduce_sum(tf.repeat_(tf.ones { 1 },
          { replicas.id() - 1 }))
      end, function() return x end)
    end, "repeats[0] = -1", 0)
  end)
end)

describe("a call of a traced function in replicas", function()
  local jit = rawget(_G, "jit")

  -- What Lua executes in fn(...) after a few calls; on LuaJIT in the replicas'
  -- coroutines, too. What is compiled calls no hook.
  local function instructions(fn, ...)
    for _ = 1, 3 do fn(...) end
    local n = 0
    if jit then
      jit.off()
      jit.flush()
    end
    debug.sethook(function() n = n + 1 end, "", 1)
    fn(...)
    debug.sethook()
    if jit then jit.on() end
    return n
  end

  replicas.pair(it, pending, "runs as much Lua for 100 ops as for one",
    function(strategy)
      finally(function()
        debug.sethook()
        if jit then jit.on() end
      end)
      local v = var(strategy, { 1.0, 2 })
      local function step(n)
        return function(x)
          for i = 1, n do x = i % 2 == 0 and tf.sin(x) or x * v end
          return x
        end
      end
      local x = strategy:experimental_distribute_values_from_function(
        function(c) return tf.ones { 2 } + c.replica_id_in_sync_group end)
      local ways = {
        ["inside"] = HOW.inside, ["outside"] = HOW.outside,
        ["with a sum"] = function(_, fn)
          return tf.function_(function(own)
            return strategy:reduce("sum", strategy:run(fn, { own }))
          end)
        end,
      }
      for name, how in pairs(ways) do
        local one = instructions(how(strategy, step(1)), x)
        local many = instructions(how(strategy, step(100)), x)
        assert.is_true(one > 0 and math.abs(many - one) <= 5,
          ("%s: %d, not %d"):format(name, many, one))
      end
      -- Line by line each op has some.
      local y = x.values[1]
      assert.is_true(instructions(step(100), y)
        > instructions(step(1), y) + 500)
    end)
end)
