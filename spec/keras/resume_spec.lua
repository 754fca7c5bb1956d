-- A fit that goes on from its backup ends with the bits of an undisturbed one.
local R = require "spec.support.replicas"
local files = require "spec.support.files"
local heard = require "spec.support.heard"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local at = require("spec.support.on_device").at

local C, L = tf.keras.callbacks, tf.keras.layers

-- Noise from a generator of the layer's own.
local Noise = L.Layer:extend "Noise"
function Noise:init()
  self.generator = tf.random.Generator.from_seed(5)
end
function Noise:call(x, training)
  return training and x + self.generator:normal(x.shape, 0, 0.1) or x
end

local function rows()
  local x = tf.random.stateless_normal({ 24, 3 }, { 1, 2 })
  return x, tf.reduce_sum(x, 1, true)
end

local function slices()
  return tf.data.Dataset.from_tensor_slices { rows() }
end

local function noisy(x, y)
  return x + tf.random.normal({ 3 }, 0, 0.1), y
end

local function twisted(x, y)
  return x * tf.random.uniform({ 3 }, 0.5, 1, "float32", 11), y
end

-- Six batches of 4, three times; what fit gets besides.
local DATA = {
  arrays = function()
    local x, y = rows()
    return x, y, { batch_size = 4 }
  end,
  ["a shuffled data set"] = function()
    return slices():shuffle(10):batch(4)
  end,
  ["noise in map"] = function()
    return slices():map(noisy):shuffle(7):map(twisted):batch(4):prefetch(2)
  end,
  ["a data set without end"] = function()
    return slices():shuffle(10):map(noisy):repeat_():batch(4), nil,
      { steps_per_epoch = 6 }
  end,
  ["unknown length"] = function()
    return slices():shuffle(24):filter(function()
      return true
    end):batch(4)
  end,
  ["epochs of half the data"] = function()
    return slices():shuffle(24):map(noisy):batch(4), nil,
      { steps_per_epoch = 3, epochs = 6 }
  end,
  ["epochs that the data does not fill"] = function()
    return slices():map(noisy):shuffle(24):batch(4), nil,
      { steps_per_epoch = 4, epochs = 6 }
  end,
  ["noise in validation"] = function()
    return slices():shuffle(24):batch(4), nil, {
      validation_data = slices():take(8):map(noisy):batch(4) }
  end,
  interleaved = function()
    return tf.data.Dataset.range(3):interleave(function(i)
      return slices():skip(i:item() * 8):take(8):shuffle(8)
    end, { cycle_length = 2 }):batch(4)
  end,
}

describe("a fit that goes on from its backup", function()
  local folder
  R.leaks(before_each, after_each)
  before_each(function()
    folder = files.place()
  end)
  after_each(function()
    os.execute("rm -rf " .. folder .. " " .. folder .. ".kept")
  end)

  local function model(strategy, optimizer)
    return strategy:scope(function()
      local m = tf.keras.Sequential { L.Dense(8, { activation = "relu" }),
        L.BatchNormalization(), L.Dropout(0.5), Noise(), L.GaussianNoise(0.1),
        L.Dropout(0.25, { seed = 3 }), L.Dense(1) }
      m:compile { loss = "mse", optimizer = optimizer and optimizer()
        or tf.keras.optimizers.Adam(0.01) }
      return m
    end)
  end

  local function bytes(m)
    local list = {}
    for _, v in ipairs(m.variables) do
      local copies = raw.kind(v) == "mirrored" and v.values or { v }
      for _, copy in ipairs(copies) do
        list[#list + 1] = raw.tensor_bytes(raw.operand_tensor(copy))
          :gsub(".", function(c)
            return ("%02x"):format(c:byte())
          end)
      end
    end
    return list
  end

  -- Train on all three times; stop after `stop` batches. Returns the batches made.
  local function fit(m, kind, freq, stop, more)
    local x, y, options = DATA[kind]()
    local made = {}
    options = options or {}
    options.epochs, options.verbose = options.epochs or 3, 0
    options.callbacks = {
      C.BackupAndRestore { backup_dir = folder, save_freq = freq }, {
        on_train_batch_end = function(_, batch)
          made[#made + 1] = batch
          if #made == stop then
            error("pulled the plug", 0)
          end
        end } }
    options.callbacks[3] = more
    local ok, e
    local said = heard(function()
      ok, e = pcall(m.fit, m, x, y, options)
    end)
    assert.equal(stop == nil, ok, tostring(e))
    assert.equal("", (said:gsub("^[^\n]*ran out of data; it begins anew.*$", "")))
    return made
  end

  local function each_strategy(name, fn)
    it(name .. ", one device", function()
      fn(tf.distribute.OneDeviceStrategy(at(0)))
    end)
    R.pair(it, pending, name .. ", two devices", fn)
  end

  -- Batches made before the plug is pulled, and those that are left.
  local PLUGS = { { "epoch", 9, 12 }, { 2, 9, 10 }, { 4, 6, 14 }, { 6, 12, 6 },
    { 5, 16, 3 } }

  for kind in pairs(DATA) do
    each_strategy("with " .. kind, function(s)
      tf.random.set_seed(3)
      local whole = model(s)
      fit(whole, kind, "epoch")
      local want = bytes(whole)
      for _, plug in ipairs(PLUGS) do
        tf.random.set_seed(3)
        fit(model(s), kind, plug[1], plug[2])
        tf.random.set_seed(99)
        tf.random.normal { 3 }
        local m = model(s)
        assert.equal(plug[3], #fit(m, kind, plug[1]), "left of " .. plug[2])
        assert.same(want, bytes(m), "after " .. plug[2])
      end
    end)
  end

  each_strategy("with the same model, without a seed", function(s)
    local m = model(s)
    -- The last backup of the first epoch is kept for the second run.
    fit(m, "arrays", 4, nil, { on_train_batch_begin = function(_, batch)
      if batch == 4 and not tf.io.gfile.exists(folder .. ".kept") then
        os.execute(("cp -r %s %s.kept"):format(folder, folder))
      end
    end })
    local want = bytes(m)
    os.execute(("mv %s.kept %s"):format(folder, folder))
    assert.equal(14, #fit(m, "arrays", 4))
    assert.same(want, bytes(m))
  end)

  each_strategy("with a scale for the loss", function(s)
    local function scaled()
      return tf.keras.mixed_precision.LossScaleOptimizer(
        tf.keras.optimizers.SGD { learning_rate = 0.0625, momentum = 0.5 },
        { dynamic_growth_steps = 4 })
    end
    tf.random.set_seed(3)
    local whole = model(s, scaled)
    fit(whole, "arrays", "epoch")
    tf.random.set_seed(3)
    fit(model(s, scaled), "arrays", 3, 8)
    local m = model(s, scaled)
    assert.equal(12, #fit(m, "arrays", 3))
    assert.same(bytes(whole), bytes(m))
    -- 18 steps: doubled after each four.
    assert.equal(2 ^ (15 + 4), m.optimizer.loss_scale:item())
  end)

  local function keeps_the_rate(s, make)
    local function sgd()
      return tf.keras.optimizers.SGD { learning_rate = make(), momentum = 0.5 }
    end
    local once = C.LearningRateScheduler(function(epoch, lr)
      return epoch == 1 and lr / 4 or lr
    end)
    tf.random.set_seed(3)
    local whole = model(s, sgd)
    fit(whole, "arrays", "epoch", nil, once)
    tf.random.set_seed(3)
    fit(model(s, sgd), "arrays", "epoch", 15, once)
    local m = model(s, sgd)
    fit(m, "arrays", "epoch", nil)
    assert.same(bytes(whole), bytes(m))
  end

  each_strategy("keeps a learning rate that was changed", function(s)
    keeps_the_rate(s, function() return 0.125 end)
  end)

  each_strategy("keeps a learning rate that is a variable", function(s)
    keeps_the_rate(s, function() return tf.Variable(0.125) end)
  end)

  each_strategy("counts metrics on where they were", function(s)
    local function build()
      return s:scope(function()
        local inputs = tf.keras.Input { 3 }
        local h = L.Dense(4, { activation = "sigmoid" })(inputs)
        local m = tf.keras.Model(inputs, { L.Dense(1, { name = "a",
          activation = "sigmoid" })(h), L.Dense(3, { name = "b" })(h) })
        m:compile { optimizer = "sgd", loss = { "mse", "mae" },
          metrics = { { "accuracy", tf.keras.metrics.AUC() }, { "mse" } } }
        return m
      end)
    end
    local x = rows()
    local y = { tf.cast(tf.reduce_sum(x, 1, true):greater(0), "float32"), x }
    local function train(save_freq, stop)
      local m, made = build(), 0
      local ok, h = pcall(m.fit, m, x, y, { batch_size = 4, epochs = 2,
        verbose = 0, callbacks = {
          C.BackupAndRestore { backup_dir = folder, save_freq = save_freq },
          { on_train_batch_end = function()
            made = made + 1
            if made == stop then
              error("pulled the plug", 0)
            end
          end } } })
      return ok and h.history
    end
    tf.random.set_seed(3)
    local whole = train(2)
    -- From within the second epoch on, from its beginning, from the last batch
    -- before it.
    for save_freq, stop in pairs { [2] = 10, epoch = 10, [6] = 7 } do
      tf.random.set_seed(3)
      assert.is_false(train(save_freq, stop))
      tf.random.set_seed(4)
      local rest = train(save_freq)
      local count = 0
      for name, list in pairs(whole) do
        count = count + 1
        assert.equal(list[2], rest[name][#rest[name]], save_freq .. name)
      end
      assert.equal(6, count)
    end
  end)

  it("refuses a data set with other random stages", function()
    local s = tf.distribute.get_strategy()
    fit(model(s), "arrays", 2, 3)
    local m = model(s)
    R.fails("ValueError", "random stages", m.fit, m, slices():batch(4), {
      verbose = 0, callbacks = { C.BackupAndRestore(folder) } })
  end)

  local FIT = [[
local folder, freq, plug, keep = ...
local tf = require "tfdist"
local L, C = tf.keras.layers, tf.keras.callbacks
local strategy = tf.distribute.MirroredStrategy()
local m = strategy:scope(function()
  local m = tf.keras.Sequential { L.Dense(4), L.Dropout(0.5), L.Dense(1) }
  m:compile { optimizer = "adam", loss = "mse" }
  return m
end)
local x = tf.random.stateless_normal({ 24, 3 }, { 1, 2 })
local ds = tf.data.Dataset.from_tensor_slices { x, tf.reduce_sum(x, 1, true) }
ds = ds:map(function(a, b) return a + tf.random.normal { 3 }, b end)
  :shuffle(24):batch(4)
local made = 0
m:fit(ds, { verbose = 0, epochs = 2, callbacks = {
  C.BackupAndRestore { backup_dir = folder, save_freq = tonumber(freq) or freq },
  { on_train_batch_end = function()
    made = made + 1
    if made == tonumber(plug) then
      os.execute("cp -r " .. folder .. " " .. keep)
    end
  end } } })
for _, v in ipairs(m.variables) do
  print((tostring(v:read_value()):gsub("%s+", " ")))
  for _, x in ipairs(v:read_value():toflat()) do
    print(("%a"):format(x))
  end
end
]]

  for _, host in ipairs(process.hosts) do
    for _, freq in ipairs { "epoch", "4" } do
      it(("in a new process of %s #once, backup every %s"):format(host.name,
        freq), function()
          local script = process.file(FIT, ".lua")
          local kept = folder .. ".kept"
          local function run(where, plug)
            local r = process.run(("TFDIST_CPU_DEVICES=2 %s %s %s %s %s %s")
              :format(host.path, script, where, freq, plug, kept))
            assert.equal(0, r.code, r.err)
            return r.out
          end
          -- No seed is set: what the first one drew is known to its backup only.
          local want = run(folder, 8)
          assert.is_true(#want > 200)
          assert.equal(want, run(kept, 0))
          os.remove(script)
        end)
    end
  end
end)
