--- What traced steps cost in memory: nothing, once they have run.
--- TFD_LONG=1 runs a million of the smallest, 20,000 of the others.
local tf = require "tfdist"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"

local LONG = os.getenv "TFD_LONG" ~= nil
local SMALLEST = "a dense layer"
local WARM = 200

local function weights(...)
  local list = {}
  for i, dims in ipairs { ... } do
    list[i] = tf.Variable(tf.random.normal(dims, { stddev = 0.05, seed = i }))
  end
  return list
end

local function descend(v, g)
  for i = 1, #v do v[i]:assign_sub(g[i] * 0.1) end
end

-- A traced step of training on x and y: what `loss_of` gives goes down as
-- `update` says. It has the loss as its result, or none.
local function traced_step(v, loss_of, update, is_silent)
  return tf.function_(function(x, y)
    local tape, loss = tf.GradientTape(function() return loss_of(x, y) end)
    update(v, tape:gradient(loss, v))
    if not is_silent then return loss end
  end)
end

local function dense(v)
  return function(x)
    return tf.reduce_mean(tf.tanh(tf.matmul(x, v[1]) + v[2]) ^ 2)
  end
end

-- Steps, each with what it is called with.
local NETWORKS = {
  [SMALLEST] = function(is_silent)
    local v = weights({ 32, 16 }, { 16 })
    return traced_step(v, dense(v), descend, is_silent), tf.ones { 8, 32 }
  end,
  ["convolutions with Adam"] = function()
    local v = weights({ 3, 3, 1, 4 }, { 4 }, { 36, 3 }, { 3 })
    local adam = tf.keras.optimizers.Adam(0.01)
    adam:build(v)
    return traced_step(v, function(x, y)
      local h = tf.nn.relu(tf.nn.conv2d(x, v[1], 1, "VALID") + v[2])
      h = tf.reshape(tf.nn.max_pool2d(h, 2, 2, "VALID"), { -1, 36 })
      return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y,
        tf.matmul(h, v[3]) + v[4]))
    end, function(list, g) adam:apply_gradients(g, list) end),
      tf.ones { 4, 8, 8, 1 }, tf.constant({ 0, 1, 2, 0 }, "int32")
  end,
  ["an LSTM"] = function()
    local layer = tf.keras.layers.LSTM(5)
    local x = tf.ones { 3, 4, 2 }
    layer(x)
    return traced_step(layer.trainable_variables, function(given)
      return tf.reduce_mean(layer(given) ^ 2)
    end, descend), x
  end,
  ["two replicas with momentum"] = replicas.available > 1 and function()
    local strategy, v, sgd = replicas.mirrored(2), nil, nil
    strategy:scope(function()
      v = weights({ 32, 16 }, { 16 })
      sgd = tf.keras.optimizers.SGD(0.1, { momentum = 0.9 })
      sgd:build(v)
    end)
    local loss_of = dense(v)
    return tf.function_(function(x)
      return strategy:reduce("mean", strategy:run(function(own)
        local tape, loss = tf.GradientTape(function() return loss_of(own) end)
        sgd:apply_gradients(tape:gradient(loss, v), v)
        return loss
      end, { x }))
    end), strategy:experimental_distribute_values_from_function(function(c)
      return tf.ones { 8, 32 } * (1 + c.replica_id_in_sync_group)
    end)
  end or nil,
}

-- A number of this process in /proc: the n-th behind `pattern`.
local function number_of(file, pattern, n)
  local f = io.open("/proc/self/" .. file, "rb")
  local text = f:read "*a":match(pattern)
  f:close()
  local k = 0
  for word in text:gmatch "%S+" do
    k = k + 1
    if k == n then return tonumber(word) end
  end
end

-- Pages that the process was given so far.
local function faults() return number_of("stat", "%) (.*)$", 8) end

-- KiB of it that are in memory; statm may be off by what each thread has not
-- yet added.
local function resident() return number_of("smaps_rollup", "Rss:(.*)$", 1) end

local function collect()
  collectgarbage()
  collectgarbage()
end

describe("traced steps allocate nothing:", function()
  local function check(step, x, y)
    for _ = 1, WARM do step(x, y) end
    collect()
    for _ = 1, 200 do
      tf.sync_devices() -- or a queue may become longer than it ever was
      -- All fail, for after a single one a call collects garbage and goes on.
      raw.test_fail_allocation(-1)
      local ok, e = pcall(step, x, y)
      raw.test_fail_allocation(0)
      assert.is_true(ok, tostring(e))
      if e ~= nil then raw.release(e) end
    end
  end

  for name, make in pairs(NETWORKS) do
    it(name, function() check(make()) end)
  end

  it("a dense layer without a result", function()
    check(NETWORKS[SMALLEST](true))
  end)
end)

describe("traced steps get no page from the system, and memory stays flat:",
  function()
    -- Lua's own heap grows with its garbage and then no more, where as much is
    -- made between two collections.
    local function pages(steps, step, x, y)
      collect()
      collectgarbage "stop"
      local before = faults()
      for _ = 1, steps do step(x, y) end
      local n = faults() - before
      collectgarbage "restart"
      return n
    end

    -- The heap has its size after a few rounds, a compiler takes some more.
    local WARM_ROUNDS = 10
    local SPARE = 256 -- KiB by which what is resident may grow

    -- What was made and not yet let go, and what the device has for it.
    local function held()
      collect()
      tf.sync_devices()
      local _, _, reserved = raw.device_memory(raw.device_at("CPU", 0))
      return { bytes = raw.live_bytes(), tensors = raw.live_handles "tensor",
               reserved = reserved }
    end

    local function check(rounds, steps, step, x, y)
      for _ = 1, WARM_ROUNDS do pages(steps, step, x, y) end
      local before, first, quiet = held(), resident(), 0
      for _ = 1, rounds do
        if pages(steps, step, x, y) == 0 then quiet = quiet + 1 end
      end
      local grown, after = resident() - first, held()
      -- The system may take pages away and give them back.
      assert.is_true(quiet >= 0.75 * rounds,
        ("%d of %d rounds got none"):format(quiet, rounds))
      assert.is_true(grown <= SPARE, grown .. " KiB")
      for what, most in pairs(before) do
        assert.is_true(after[what] <= most, ("%s: %d, then %d"):format(what,
          most, after[what]))
      end
      assert.are.equal(1, step:experimental_get_tracing_count())
    end

    for name, make in pairs(NETWORKS) do
      it(name, function()
        local steps = name == SMALLEST and 250 or LONG and 50 or 20
        local rounds = not LONG and 20
          or (name == SMALLEST and 1e6 or 20000) / steps
        check(rounds, steps, make())
      end)
    end
  end)

describe("a traced function that calls Lua", function()
  it("lets go of what is used up", function()
    local device = raw.device_at("CPU", 0)
    local before, inside
    local f = tf.function_(function(x)
      tf.py_function(function() end, { x }) -- so it runs node by node
      for _ = 1, 30 do x = tf.cumsum(x) end
      tf.py_function(function(sum)
        sum:item()
        inside = raw.device_memory(device)
      end, { tf.reduce_sum(x) })
      return x
    end)
    local x = tf.ones { 65536 }
    for _ = 1, 3 do
      collect()
      tf.sync_devices()
      before = raw.device_memory(device)
      f(x)
      local held = inside - before
      assert.is_true(held <= 4 * 4 * 65536, held .. " bytes")
    end
  end)
end)

describe("the memory of a convolutional network's step", function()
  local function own_weights()
    return weights({ 3, 3, 1, 32 }, { 32 }, { 3, 3, 32, 64 }, { 64 },
      { 1600, 64 }, { 64 }, { 64, 10 }, { 10 })
  end

  local function make(v)
    return function(x, y)
      local loss
      local tape = tf.GradientTape(function()
        local h = tf.nn.relu(tf.nn.conv2d(x, v[1], 1, "VALID") + v[2])
        h = tf.nn.max_pool2d(h, 2, 2, "VALID")
        h = tf.nn.relu(tf.nn.conv2d(h, v[3], 1, "VALID") + v[4])
        h = tf.reshape(tf.nn.max_pool2d(h, 2, 2, "VALID"), { -1, 1600 })
        h = tf.nn.relu(tf.matmul(h, v[5]) + v[6])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y,
          tf.matmul(h, v[7]) + v[8]))
      end)
      local g = tape:gradient(loss, v)
      for i = 1, #v do v[i]:assign_sub(g[i] * 0.01) end
      return loss
    end
  end

  -- Most bytes that the device held at once, in the third step and later.
  local function peak(step)
    local x = tf.zeros { 64, 28, 28, 1 }
    local y = tf.zeros({ 64 }, "int32")
    local device = raw.device_at("CPU", 0)
    local most
    for i = 1, 5 do
      if i == 3 then raw.device_reset_peak(device) end
      tf.tidy(function() step(x, y):item() end)
      collect() -- tapes hold what they saw
      most = select(2, raw.device_memory(device))
    end
    return most
  end

  it("is at most 0.8 of eager execution's", function()
    local eager, traced = peak(make(own_weights())),
      peak(tf.function_(make(own_weights())))
    assert.is_true(traced <= 0.8 * eager,
      ("traced %d, eager %d bytes"):format(traced, eager))
  end)
end)

describe("a trace that lacks memory", function()
  it("fails or goes on, and is as ever the next time", function()
    local x = tf.constant { 1, 2 }
    for k = 1, 80 do
      local f = tf.function_(function(y)
        return y * 2, tf.timestamp()
      end)
      tf.sync_devices()
      raw.test_fail_allocation(k)
      local ok, e = pcall(f, x)
      raw.test_fail_allocation(0)
      assert.is_true(ok or tostring(e):find("memory", 1, true) ~= nil,
        tostring(e))
      for _ = 1, 2 do
        local y, time = f(x)
        assert.are.same({ 2, 4 }, y:totable())
        assert.is_true(time:item() > 0)
      end
    end
  end)
end)

describe("a traced call that finds no memory", function()
  local GARBAGE = "do local x = tf.ones { 75000000 } x = nil end\n"
  local CALL = [[
    print(tf.function_(function(x)
      return tf.reduce_sum(tf.map_fn(function(i)
        return tf.ones { 1000000 } * i
      end, x))
    end)(tf.ones { 30 }):item())]]
  local STEP = 50000 -- KiB

  it("lets go of garbage first, the first one too #once", function()
    for _, host in ipairs(process.hosts) do
      local function run(code, limit)
        return process.run(("ulimit -v %d; exec %s -e %s"):format(limit,
          host.path, process.quote('local tf = require "tfdist"\n' .. code)),
          nil, 120)
      end
      if run(CALL, 4000000).code ~= 0 then
        return pending "hosts with a sanitizer need all memory there is"
      end
      -- Room for either, not for both: 286 and 114 MiB.
      local limit = 2 * STEP
      for _, code in ipairs { CALL, GARBAGE } do
        while run(code, limit).code ~= 0 do limit = limit + STEP end
      end
      local r = run(GARBAGE .. CALL, limit)
      assert.are.equal(0, r.code, r.err)
      assert.are.equal(30000000, tonumber(r.out))
    end
  end)
end)
