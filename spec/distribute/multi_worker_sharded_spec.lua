--- ShardedOptimizer over the workers of MultiWorkerMirroredStrategy: training,
--- saving and restoring are those of the optimizer itself, bit by bit.
local files = require "spec.support.files"
local process = require "spec.support.process"
local workers = require "spec.support.workers"

-- Printed after training: losses, weights, the step count and all slots. The
-- first layer's kernel is long enough to go by itself.
local HEAD = [[
local tf = require "tfdist"
local given = arg[1] or ""
local s = tf.distribute.MultiWorkerMirroredStrategy()
local Sharded = tf.distribute.experimental.ShardedOptimizer
local function normal(shape, seed)
  return tf.random.stateless_normal(shape, { seed = { seed, 3 } })
end
local x, y = normal({ 50, 100 }, 1), normal({ 50, 4 }, 2)
local function make(optimizer, sharded)
  return s:scope(function()
    local function dense(units, seed, activation)
      return tf.keras.layers.Dense(units, { activation = activation,
        kernel_initializer = tf.keras.initializers.GlorotUniform {
          seed = seed } })
    end
    local m = tf.keras.Sequential { dense(1000, 3, "tanh"), dense(4, 4) }
    m:compile { loss = "mse",
      optimizer = sharded and Sharded(optimizer) or optimizer }
    return m
  end)
end
local function fit(m, epochs, more)
  local options = { batch_size = 15, epochs = epochs, shuffle = false,
    verbose = 0 }
  for name, value in pairs(more or {}) do
    options[name] = value
  end
  for _, loss in ipairs(m:fit(x, y, options).history.loss) do
    print(("loss %.17g"):format(loss))
  end
end
-- A number that another last place somewhere would change.
local function show(m)
  for _, list in ipairs { m.variables, m.optimizer.variables } do
    for _, v in ipairs(list) do
      local t = tf.cast(v:read_value(), "float64"):reshape { -1 }
      local at = tf.cast(tf.range(t.shape[1]), "float64")
      print(v.name:match "[^/]*$", ("%.17g"):format(tf.reduce_sum(t
        * (1 + at / 7)):item()))
    end
  end
end
]]

local TRAIN = HEAD .. [[
local m = make(OPTIMIZER, given == "sharded")
fit(m, 3)
show(m)
]]

local SHAPES = { { 2, 1 }, { 2, 2 }, { 3, 1 }, { 1, 2 } }

local function with(program, argument, shape, more)
  local one = { program = program, n = shape[1], devices = shape[2],
    arguments = function() return argument end }
  for name, value in pairs(more or {}) do
    one[name] = value
  end
  local outs = workers.outputs(one)
  for i = 2, #outs do
    assert.equal(outs[1], outs[i])
  end
  return outs[1]
end

describe("ShardedOptimizer over workers #once", function()
  for _, transport in ipairs { "shm", "tcp" } do
    it("gives the optimizer's bits, over " .. transport, function()
      local program = TRAIN:gsub("OPTIMIZER", "tf.keras.optimizers.Adam(0.01)")
      for _, shape in ipairs(SHAPES) do
        local more = { environment = "TFDIST_TRANSPORT=" .. transport,
          host = process.hosts[1 + shape[2] % #process.hosts].path }
        local plain = with(program, "plain", shape, more)
        assert.equal(plain, with(program, "sharded", shape, more))
        assert.truthy(plain:find "loss %d")
      end
    end)
  end

  it("with clipping, decay and averages", function()
    for _, optimizer in ipairs {
      "tf.keras.optimizers.AdamW { learning_rate = 0.01, use_ema = true, "
        .. "ema_overwrite_frequency = 5, weight_decay = 0.1 }",
      "tf.keras.optimizers.SGD { learning_rate = 0.05, momentum = 0.9, "
        .. "global_clipnorm = 0.3 }" } do
      local program = TRAIN:gsub("OPTIMIZER", optimizer)
      assert.equal(with(program, "plain", { 2, 2 }),
        with(program, "sharded", { 2, 2 }))
    end
  end)

  it("sums sparse gradients", function()
    local program = HEAD .. [[
      local m = s:scope(function()
        local m = tf.keras.Sequential {
          tf.keras.layers.Embedding(40, 3, { input_length = 4 }),
          tf.keras.layers.Flatten(), tf.keras.layers.Dense(1) }
        for i, v in ipairs(m.variables) do
          v:assign(normal(v.shape, i))
        end
        local o = tf.keras.optimizers.Adam(0.01)
        m:compile { loss = "mse", optimizer = given == "sharded" and Sharded(o)
          or o }
        return m
      end)
      local at = {}
      for i = 1, 50 do
        at[i] = { i % 40, (3 * i) % 40, 5, (i * i) % 40 }
      end
      x, y = tf.constant(at, "int32"), normal({ 50, 1 }, 9)
      m:predict(x, { verbose = 0 })
      for i, v in ipairs(m.variables) do
        v:assign(normal(v.shape, i))
      end
      fit(m, 2)
      show(m)
    ]]
    assert.equal(with(program, "plain", { 3, 1 }),
      with(program, "sharded", { 3, 1 }))
  end)

  it("keeps a part of the slots in each worker", function()
    local outs = workers.outputs { n = 3, program = HEAD .. [[
      local function used(make_one)
        local v, o = s:scope(function()
          return tf.Variable(tf.zeros { 300, 1000 }), make_one()
        end)
        local function now()
          collectgarbage()
          collectgarbage()
          tf.sync_devices() -- what is queued holds memory
          return tf.config.experimental.get_memory_info("CPU:0").current
        end
        local before = now()
        o:build { v }
        return now() - before, v, o
      end
      local plain, v, o = used(tf.keras.optimizers.Adam)
      local sharded, w, p = used(function()
        return Sharded(tf.keras.optimizers.Adam())
      end)
      assert(v and o and w and p)
      print(plain, sharded)
    ]] }
    for _, out in ipairs(outs) do
      local plain, sharded = out:match "(%d+)%s+(%d+)"
      assert.is_true(tonumber(plain) >= 2400000)
      assert.is_true(tonumber(sharded) <= 800000 * 1.13 + 4096, out)
    end
  end)

  it("is saved whole, and goes on in jobs of other sizes", function()
    local folder = files.place()
    local program = HEAD .. [[
      local how, from, to = given:match "(%a+),(%d+),(%d+)"
      local m = make(tf.keras.optimizers.Adam(0.01), how == "sharded")
      fit(m, tonumber(to), { callbacks = {
        tf.keras.callbacks.BackupAndRestore { backup_dir = FOLDER,
          delete_checkpoint = false } } })
      assert(m.optimizer.iterations:read_value():item() == 4 * tonumber(to))
      show(m)
    ]]
    program = program:gsub("FOLDER", ("%q"):format(folder))
    local wanted = with(program, "plain,0,4", { 2, 1 })
    os.execute("rm -rf " .. process.quote(folder))
    local last = wanted:match "loss %S+\nkernel.*$"
    for _, step in ipairs { { "sharded,0,2", { 2, 1 } },
      { "plain,2,3", { 2, 1 } }, { "sharded,3,4", { 2, 1 } } } do
      local out = with(program, step[1], step[2])
      if step[1] == "sharded,3,4" then
        assert.equal(last, out)
      end
    end
    os.execute("rm -rf " .. process.quote(folder))
    -- other sizes: the same batches, sums in another order
    local function numbers(out)
      local list = {}
      for x in out:gmatch "%s(%-?[%d.e+-]+)\n" do
        list[#list + 1] = tonumber(x)
      end
      return list
    end
    local out
    for _, step in ipairs { { "sharded,0,1", { 2, 2 } },
      { "sharded,1,2", { 3, 1 } }, { "plain,2,3", { 1, 1 } },
      { "sharded,3,4", { 2, 1 } } } do
      out = with(program, step[1], step[2])
    end
    os.execute("rm -rf " .. process.quote(folder))
    local a, b = numbers(last), numbers(out)
    assert.equal(#a, #b)
    for i = 1, #a do
      assert.is_true(math.abs(a[i] - b[i]) <= 1e-3 * (1 + math.abs(a[i])),
        ("%g and %g"):format(a[i], b[i]))
    end
  end)
end)
