--- Native memory stays flat, whatever the Lua collector thinks of tiny handles.

local raw = require "tfdist.core.raw"
local tf = require "tfdist"

-- Training needs two devices; the other tests run on the first.
if not raw.is_started() then raw.config_set_cpu_devices(2) end

local PAGE_MIB = 4096 / 1048576
local MOST_MIB = 8

--- Resident memory of this process. Units: MiB.
local function resident()
  local file = assert(io.open "/proc/self/statm")
  local _, pages = file:read("*n", "*n")
  file:close()
  return pages * PAGE_MIB
end

--- MiB by which work(n) makes the process grow, after a shorter run. The heap
--- of the engine and the devices' queues reach their full size at some time,
--- so the least of a few runs counts; what each of them loses is in that too.
local function growth(work, first, n)
  local least = math.huge
  work(first)
  for _ = 1, 4 do
    collectgarbage()
    local before = resident()
    work(n)
    collectgarbage()
    least = math.min(least, resident() - before)
    if least < MOST_MIB then break end
  end
  return least
end

local function assert_flat(grown)
  assert.is_true(grown < MOST_MIB, ("grew by %.1f MiB"):format(grown))
end

--- A Lua heap large enough that the collector is in no hurry.
local function ballast(megabytes)
  local keep = {}
  for i = 1, megabytes * 1024 do keep[i] = ("%08d"):format(i):rep(128) end
  return keep
end

describe("memory", function()
  it("is flat over a million small ops", function()
    local x = tf.constant { 1, 2, 3, 4 }
    local function work(n)
      for _ = 1, n do x = x + 0 end
      x:item(0)
    end
    assert_flat(growth(work, 200000, 800000))
  end)

  it("of dropped tensors is given back beside a 30-MB Lua heap", function()
    local keep = ballast(30)
    collectgarbage()
    local before = resident()
    local peak = before
    for i = 1, 20000 do
      tf.zeros { 4096 } -- luacheck: ignore
      if i % 500 == 0 then peak = math.max(peak, resident()) end
    end
    assert.is_true(peak - before < 120,
      ("20,000 tensors of 16 KiB (312 MiB) grew the process by %.1f MiB")
      :format(peak - before))
    assert.are.equal(30 * 1024, #keep)
  end)

  it("comes back from gradients of a long loop", function()
    local w = tf.Variable(tf.zeros { 64, 64 })
    local x = tf.ones { 16, 64 }
    local function work(n)
      for _ = 1, n do
        local tape, loss = tf.GradientTape(function()
          return tf.reduce_sum(tf.matmul(x, w))
        end)
        w:assign_sub(tape:gradient(loss, w) * 1e-6)
      end
      w:read_value():item(0)
    end
    assert_flat(growth(work, 2000, 8000))
  end)

  -- TFDIST_SPEC_STEPS=100000 is the long form.
  it("is flat over training steps under MirroredStrategy", function()
    local steps = tonumber(os.getenv "TFDIST_SPEC_STEPS") or 10000
    local strategy = tf.distribute.MirroredStrategy()
    local w, b, optimizer = strategy:scope(function()
      return tf.Variable(tf.zeros { 8, 4 }), tf.Variable(tf.zeros { 4 }),
        tf.keras.optimizers.Adam()
    end)
    local vars = { w, b }
    local function share(make)
      return strategy:experimental_distribute_values_from_function(make)
    end
    local x = share(function() return tf.ones { 4, 8 } end)
    local y = share(function(context)
      return tf.fill({ 4 }, tf.constant(
        context.replica_id_in_sync_group % 2, "int32"))
    end)
    local function step(images, labels)
      local tape, loss = tf.GradientTape(function()
        return tf.nn.compute_average_loss(
          tf.nn.sparse_softmax_cross_entropy_with_logits(labels,
            tf.matmul(images, w) + b))
      end)
      optimizer:apply_gradients(tape:gradient(loss, vars), vars)
      return loss
    end
    local function train(n)
      local loss
      for _ = 1, n do loss = strategy:run(step, { x, y }) end
      return strategy:reduce("SUM", loss):item()
    end
    local first = train(1)
    train(math.floor(steps / 5))
    collectgarbage()
    local handles, last = raw.live_handles "tensor", nil
    local grown = growth(function(n) last = train(n) end, 1, steps)
    if os.getenv "TFDIST_SPEC_STEPS" then
      print(("%d steps: %.1f MiB more; %d tensors, then %d"):format(
        steps, grown, handles, raw.live_handles "tensor"))
    end
    assert.is_true(last < first)
    assert_flat(grown)
    assert.is_true(raw.live_handles "tensor" <= handles + 100)
  end)

  it("counts live bytes and gives a peak", function()
    collectgarbage()
    collectgarbage()
    tf.config.experimental.reset_memory_stats("CPU:0")
    local before = tf.config.experimental.get_memory_info("CPU:0")
    local t
    tf.device("CPU:0", function() t = tf.zeros { 1024, 1024 } end)
    local during = tf.config.experimental.get_memory_info("CPU:0")
    assert.is_true(during.current - before.current >= 4194304)
    t:release()
    local after = tf.config.experimental.get_memory_info("CPU:0")
    assert.is_true(after.current <= before.current)
    assert.is_true(after.peak >= during.current)
  end)

  it("of what only led to a loss is free while its gradient is taken", function()
    if not _VERSION:find "5.4" then
      pending "LuaJIT's collector takes the whole heap, so it comes less often"
    end
    local function current()
      return tf.config.experimental.get_memory_info("CPU:0").current
    end
    local v = tf.Variable(tf.zeros { 512, 512 })
    local recorded, taken
    local noted = tf.custom_gradient(function(x)
      return tf.identity(x), function(dy)
        taken = current()
        return dy
      end
    end)
    collectgarbage()
    collectgarbage()
    local before = current()
    local tape, loss = tf.GradientTape(function()
      local y = v + 0
      for _ = 1, 8 do y = y + 0 end
      y = tf.reduce_sum(noted(y))
      recorded = current()
      return y
    end)
    tape:gradient(loss, v)
    assert.is_true(recorded - before >= 8 * 2 ^ 20)
    assert.is_true(taken - before < 4 * 2 ^ 20, taken - before)
  end)

  it("is released by tf.tidy but for what it returns", function()
    collectgarbage()
    collectgarbage()
    local before = tf.config.experimental.get_memory_info("CPU:0").current
    local kept
    tf.device("CPU:0", function()
      kept = tf.tidy(function()
        local a = tf.zeros { 512, 512 }
        local b = a + 1
        return tf.reduce_sum(b)
      end)
    end)
    local after = tf.config.experimental.get_memory_info("CPU:0").current
    assert.are.equal(262144, kept:item())
    assert.is_true(after - before < 4096)
  end)
end)
