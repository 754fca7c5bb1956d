-- Callbacks: when they are called, what they do to training, what they write.
local R = require "spec.support.replicas"
local errors = require "tfdist.base.errors"
local tf = require "tfdist"
local files = require "spec.support.files"
local listen = require "spec.support.heard"

local C, L = tf.keras.callbacks, tf.keras.layers
local fails = R.fails

-- One weight w = 1 that predicts w x; with loss "mae" on x = 1, y = 0 it goes
-- down by the learning rate each step.
local function model(rate)
  local m = tf.keras.Sequential { L.Dense(1, { input_shape = { 1 },
    use_bias = false, kernel_initializer = "ones" }) }
  m:compile { optimizer = tf.keras.optimizers.SGD { learning_rate = rate or 0 },
    loss = "mae" }
  return m
end

local X, Y = { { 1 } }, { { 0 } }

local function weight(m)
  return m.variables[1]:read_value():item()
end

local function fit(m, callbacks, more)
  local options = { verbose = 0, epochs = 1, callbacks = callbacks }
  for key, value in pairs(more or {}) do
    options[key] = value
  end
  return m:fit(tf.constant(X), tf.constant(Y), options)
end

-- A callback that gives the monitored value `v` the listed values.
local function script(list)
  return { on_epoch_end = function(_, epoch, logs)
    logs.v = list[epoch + 1]
  end }
end

local made

local function place()
  local path = files.place()
  made[#made + 1] = path
  return path
end

local read = files.read

local function exists(path)
  local file = io.open(path, "rb")
  return file ~= nil and (file:close() or true)
end

-- Rows 1 to 10 in batches of 4; a model that gives x and -2 x.
local function outputs_of(strategy, steps_per_execution)
  local m = strategy:scope(function()
    local x = tf.keras.Input { shape = { 1 } }
    local function times(by)
      return L.Dense(1, { use_bias = false,
        kernel_initializer = tf.keras.initializers.Constant(by) })(x)
    end
    local both = tf.keras.Model(x, { times(1), times(-2) })
    both:compile { loss = "mse", steps_per_execution = steps_per_execution }
    return both
  end)
  local seen = {}
  m:predict(tf.reshape(tf.range(1, 11, 1, "float32"), { 10, 1 }), {
    batch_size = 4, verbose = 0, callbacks = { {
      on_predict_batch_end = function(_, _, logs)
        local a, b = logs.outputs[1], logs.outputs[2]
        assert.same((a * -2):totable(), b:totable())
        seen[#seen + 1] = tf.reshape(a, { -1 }):totable()
      end } } })
  return seen
end

describe("on_predict_batch_end", function()
  R.leaks(before_each, after_each)

  R.each(it, pending, "has the outputs of all replicas and steps",
    function(strategy)
      assert.same({ { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10 } },
        outputs_of(strategy))
      assert.same({ { 1, 2, 3, 4, 5, 6, 7, 8 }, { 9, 10 } },
        outputs_of(strategy, 2))
    end, 1)
end)

describe("callbacks", function()
  R.leaks(before_each, after_each)

  before_each(function()
    made = {}
  end)

  after_each(function()
    for _, path in ipairs(made) do
      os.execute("rm -rf " .. path .. "*")
    end
  end)

  it("are called in Keras's order, epochs and batches from 0", function()
    local seen = {}
    local all = {}
    for _, name in ipairs { "train_begin", "train_end", "epoch_begin",
      "epoch_end", "train_batch_begin", "train_batch_end", "test_begin",
      "test_end", "test_batch_begin", "test_batch_end", "predict_begin",
      "predict_end", "predict_batch_begin", "predict_batch_end" } do
      all["on_" .. name] = function(_, at)
        seen[#seen + 1] = type(at) == "number" and name .. " " .. at or name
      end
    end
    local m = model()
    m:fit(tf.constant { { 1 }, { 2 } }, tf.constant { { 1 }, { 2 } }, {
      batch_size = 1, verbose = 0, callbacks = { all },
      validation_data = { X, Y } })
    assert.same({ "train_begin", "epoch_begin 0", "train_batch_begin 0",
      "train_batch_end 0", "train_batch_begin 1", "train_batch_end 1",
      "test_begin", "test_batch_begin 0", "test_batch_end 0", "test_end",
      "epoch_end 0", "train_end" }, seen)
    seen = {}
    m:predict(X, { verbose = 0, callbacks = all })
    assert.same({ "predict_begin", "predict_batch_begin 0",
      "predict_batch_end 0", "predict_end" }, seen)
    assert.equal(m, all.model)
  end)

  it("get numbers in their logs, and the model to stop", function()
    local m = model(0.25)
    local losses = {}
    local h = fit(m, { { on_train_batch_end = function(_, _, logs)
      losses[#losses + 1] = logs.loss
    end, on_epoch_end = function(self, epoch)
      self.model.stop_training = epoch == 2
    end } }, { epochs = 10 })
    assert.same({ 1, 0.75, 0.5 }, losses)
    assert.same({ 1, 0.75, 0.5 }, h.history.loss)
  end)

  it("are refused with hooks that cannot be called", function()
    local Mine = C.Callback:subclass "Mine"
    Mine.on_train_begin = {}
    for shown, callback in pairs {
      ["on_epoch_end must be a function, got the number 3"] =
        { on_epoch_end = 3 },
      ["on_test_end must be a function, got false"] = { on_test_end = false },
      ["on_train_begin must be a function, got a table"] = Mine(),
    } do
      fails("TypeError", shown, fit, model(), { callback })
    end
    local called = {}
    fit(model(), { { on_epoch_end = setmetatable({}, {
      __call = function(_, _, epoch) called[#called + 1] = epoch end,
    }) } }, { epochs = 2 })
    assert.same({ 0, 1 }, called)
  end)

  it("are refused with hooks that there are not", function()
    local e = fails("ValueError", "there is no hook \"on_epoch_ends\"", fit,
      model(), { { on_epoch_ends = print } })
    assert.matches("on_epoch_end", e.hint)
    fails("TypeError", "entry 1 must be a callback", fit, model(), { 3 })
    fails("NotImplementedError", "RemoteMonitor", function()
      return C.RemoteMonitor
    end)
  end)

  it("are refused in tables where nobody would call them", function()
    local one = C.LambdaCallback { on_epoch_end = function() end }
    local hooks = { on_epoch_end = function() end }
    for shown, given in pairs {
      ['the table has the key "a" and no hook; a list of callbacks, or one '
        .. 'table with on_* functions, expected'] = { a = one },
      ['the table has the key "b" and no hook'] = { one, b = hooks },
      ["the table has the key 0 and no hook"] = { [0] = one },
      ["entry 2 has the key 1 and no hook; a callback, or a table with on_* "
        .. "functions, expected"] = { one, { one } },
      ['entry 1 has the key "epoch_end" and no hook'] =
        { { epoch_end = print } },
      ["a table with on_test_end is one callback, and nobody would call a "
        .. "LambdaCallback at position 1 of it"] = { one, on_test_end = print },
      ["nobody would call a table at position 2 of it"] =
        { 7, hooks, on_test_end = print },
      ["the callback must be a callback or a table with on_* functions, got a "
        .. "Sequential"] = model(),
      ["entry 1 must be a callback or a table with on_* functions, got a Mean"]
        = { tf.keras.metrics.Mean() },
      ["functions, got a Adam"] = { tf.keras.optimizers.Adam() },
      ["functions, got a Dataset"] = { tf.data.Dataset.range(3) },
      ["the callback must be a callback or a table with on_* functions, got a "
        .. "table"] = setmetatable({ one }, { __index = table }),
    } do
      fails("TypeError", shown, fit, model(), given)
    end
    local e = fails("TypeError", "no hook", fit, model(),
      { epoch_end = print })
    assert.matches("on_epoch_end", e.hint)
    e = fails("TypeError", "is one callback", fit, model(),
      { one, on_test_end = print })
    assert.matches("two callbacks are { callback, { on_test_end = ... } }",
      e.hint, 1, true)
  end)

  it("may keep tables, and say why they cannot be asked", function()
    local Own = {}
    Own.__index = Own
    fit(model(), { setmetatable({ { 1, 2, 3 } }, Own) })
    local function raising(e)
      return setmetatable({}, { __index = function() error(e, 0) end })
    end
    local e = fails("TypeError", "entry 1 must be a callback", fit, model(),
      { raising "no such field" })
    assert.matches("no such field", e.hint, 1, true)
    local interrupted
    xpcall(function() errors.raise("Cancelled", "interrupted") end,
      function(x) interrupted = x end)
    fails("Cancelled", "interrupted", fit, model(), { raising(interrupted) })
  end)

  it("may be objects of any class, with the hooks that they have by then",
    function()
    local Own = {}
    Own.__index = Own
    local seen = {}
    local function note(name)
      return function(_, i) seen[#seen + 1] = name .. i end
    end
    local own, late = setmetatable({}, Own), C.Callback()
    fit(model(), own)
    fit(model(), { own, late })
    Own.on_epoch_end = note "epoch "
    fit(model(), own)
    function late:on_epoch_begin(epoch)
      self.on_train_batch_end = epoch > 0 and note "batch " or nil
    end
    fit(model(), { late, own }, { epochs = 2 })
    assert.same({ "epoch 0", "epoch 0", "batch 0", "epoch 1" }, seen)
  end)

  it("may be one table with hooks and fields of its own", function()
    local kept = tf.keras.metrics.Mean()
    fit(model(), { kept, on_epoch_end = function(self, _, logs)
      self[1]:update_state(logs.loss)
    end })
    assert.near(1, kept:result():item(), 1e-6)
    local losses = { kept = 7, on_epoch_end = function(self, _, logs)
      self[#self + 1] = logs.loss
    end }
    local m = model(0.25)
    fit(m, losses, { epochs = 2 })
    fit(m, { losses, {} })
    assert.same({ 1, 0.75, 0.5 }, { losses[1], losses[2], losses[3] })
  end)

  it("may be subclasses and LambdaCallbacks", function()
    local Mine = C.Callback:subclass "Mine"
    local seen = {}
    function Mine:on_epoch_begin(epoch)
      seen[#seen + 1] = self.params.epochs + epoch
    end
    fit(model(), { Mine(), C.LambdaCallback { on_epoch_end = function(epoch)
      seen[#seen + 1] = "end " .. epoch
    end } }, { epochs = 2 })
    assert.same({ 2, "end 0", 3, "end 1" }, seen)
  end)

  describe("EarlyStopping", function()
    local function stop_at(values, options)
      options.monitor = "v"
      local h = fit(model(), { script(values), C.EarlyStopping(options) },
        { epochs = #values })
      return #h.epoch
    end

    it("stops after patience epochs without a better value", function()
      assert.equal(2, stop_at({ 1, 1, 1, 1 }, {}))
      assert.equal(5, stop_at({ 3, 2, 2.5, 2.5, 2.5, 1 }, { patience = 3 }))
      assert.equal(4, stop_at({ 3, 2.9, 2.85, 2.8, 2.6 }, { patience = 2,
        min_delta = 0.15, start_from_epoch = 1 }))
      assert.equal(3, stop_at({ 1, 2, 1, 3 }, { mode = "max" }))
      assert.equal(3, stop_at({ 5, 5, 5, 5 }, { start_from_epoch = 1 }))
    end)

    it("wants to be better than the baseline", function()
      assert.equal(3, stop_at({ 3, 2.5, 2.2, 2.1, 1 }, { baseline = 2,
        patience = 3 }))
    end)

    it("goes back to the weights of the best epoch", function()
      local m = model(0.25)
      fit(m, { script { 3, 1, 2, 2, 2 }, C.EarlyStopping { monitor = "v",
        patience = 2, restore_best_weights = true } }, { epochs = 9 })
      assert.equal(0.5, weight(m)) -- after epoch 1
    end)

    it("says once that its monitor is not there, and what is", function()
      local heard = listen(function()
        fit(model(), { C.EarlyStopping() }, { epochs = 3 })
      end)
      assert.matches('"val_loss" is not among the logs; available are loss',
        heard, 1, true)
      assert.equal(1, select(2, heard:gsub("EarlyStopping", "")))
    end)

    it("refuses options that make no sense", function()
      local e = fails("ValueError", "unknown option", C.EarlyStopping,
        { patiense = 3 })
      assert.matches("patience", e.hint)
      fails("ValueError", "patience must be at least 0", C.EarlyStopping,
        { patience = -1 })
      fails("ValueError", "mode must be one of", C.EarlyStopping,
        { mode = "lowest" })
    end)
  end)

  it("LearningRateScheduler sets the rate of each epoch", function()
    local m = model(1)
    local h = fit(m, { C.LearningRateScheduler(function(epoch, lr)
      return epoch == 0 and lr / 4 or lr / 2
    end) }, { epochs = 3 })
    assert.same({ 0.25, 0.125, 0.0625 }, h.history.learning_rate)
    assert.equal(1 - 0.25 - 0.125 - 0.0625, weight(m))
    fails("ValueError", "should be a number", fit, model(),
      { C.LearningRateScheduler(function() end) })
  end)

  it("ReduceLROnPlateau lowers the rate, with a cooldown and a floor",
    function()
      local m = model(1)
      local rates = {}
      fit(m, { script { 5, 5, 5, 5, 5, 5, 5, 5 }, C.ReduceLROnPlateau {
        monitor = "v", factor = 0.5, patience = 2, cooldown = 1, min_lr = 0.3,
      }, { on_epoch_end = function(self)
        rates[#rates + 1] = self.model.optimizer.learning_rate
      end } }, { epochs = 8 })
      -- epoch 2: two waits; then one of cooldown, two waits
      assert.same({ 1, 1, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3 }, rates)
      fails("ValueError", "does not support a factor >= 1.0",
        C.ReduceLROnPlateau, { factor = 1 })
    end)

  describe("learning rates", function()
    local Own = tf.keras.optimizers.schedules.LearningRateSchedule:extend "Own"
    function Own:call(step) return 1 / (tf.cast(step, "float32") + 1) end

    -- What a rate of 1/2 may be made of; what a schedule gives after steps 1, 2.
    local FIXED = {
      ["a number"] = function() return 0.5 end,
      ["a variable"] = function() return tf.Variable(0.5) end,
      ["a tensor"] = function() return tf.constant(0.5) end,
    }
    local FOLLOWING = {
      ["a schedule"] = { function()
        return tf.keras.optimizers.schedules.PiecewiseConstantDecay({ 1 },
          { 0.5, 0.25 })
      end, { 0.5, 0.25 } },
      ["a schedule of one's own"] = { Own, { 1 / 2, 1 / 3 } },
      ["a function"] = { function()
        return function(step) return 0.5 / (step + 1) end
      end, { 0.25, 0.5 / 3 } },
    }

    local function read_rates(m, callback)
      local h = fit(m, { script { 5, 5 }, callback }, { epochs = 2 })
      return h.history.learning_rate
    end

    local function written(m)
      local folder = place()
      fit(m, { C.TensorBoard(folder) })
      local pipe = io.popen("cat " .. folder .. "/train/*")
      local bytes = pipe:read "*a"
      pipe:close()
      return bytes
    end

    for what, rate in pairs(FIXED) do
      it("may be " .. what, function()
        assert.same({ 0.25, 0.125 }, read_rates(model(rate()),
          C.LearningRateScheduler(function(_, lr) return lr / 2 end)))
        local m = model(rate())
        assert.same({ 0.5, 0.5 }, read_rates(m, C.ReduceLROnPlateau {
          monitor = "v", patience = 1, factor = 0.5 }))
        assert.equal(0.25, tf.convert_to_tensor(m.optimizer.learning_rate)
          :item())
        assert.matches("epoch_learning_rate", written(m))
      end)
    end

    for what, case in pairs(FOLLOWING) do
      it("may be " .. what .. ", which callbacks read and do not set",
        function()
          local got = read_rates(model(case[1]()),
            C.ReduceLROnPlateau { monitor = "v", patience = 3 })
          for i, want in ipairs(case[2]) do
            assert.near(want, got[i], 1e-7)
          end
          assert.matches("epoch_learning_rate", written(model(case[1]())))
          fails("TypeError", "ReduceLROnPlateau: the optimizer's learning rate "
            .. "is a", read_rates, model(case[1]()), C.ReduceLROnPlateau {
              monitor = "v", patience = 1 })
          fails("TypeError", "LearningRateScheduler: the optimizer's learning "
            .. "rate is a", read_rates, model(case[1]()),
            C.LearningRateScheduler(function() return 1 end))
        end)
    end
  end)

  it("TerminateOnNaN stops at once", function()
    local m = model(0)
    local batches = 0
    local heard = listen(function()
      m:fit(tf.constant { { 1 }, { 0 / 0 }, { 1 } }, tf.constant { { 0 }, { 0 },
        { 0 } }, { batch_size = 1, shuffle = false, verbose = 0, epochs = 3,
        callbacks = { C.TerminateOnNaN(), { on_train_batch_end = function()
          batches = batches + 1
        end } } })
    end)
    assert.equal(2, batches)
    assert.matches("Batch 1: Invalid loss", heard, 1, true)
  end)

  it("CSVLogger writes one line for each epoch, and goes on", function()
    local path = place()
    fit(model(0.25), { C.CSVLogger(path) }, { epochs = 2,
      validation_data = { X, Y }, validation_freq = { 1 } })
    assert.equal("epoch,loss,val_loss\n0,1,0.75\n1,0.75,NA\n", read(path))
    fit(model(0.25), { C.CSVLogger { filename = path, separator = ",",
      append = true } }, { validation_data = { X, Y } })
    assert.equal("epoch,loss,val_loss\n0,1,0.75\n1,0.75,NA\n0,1,0.75\n",
      read(path))
    path = path .. ".d/of/logs.csv" -- in folders that are made
    fit(model(0.25), { C.CSVLogger(path) })
    assert.equal("epoch,loss\n0,1\n", read(path))
  end)

  describe("ModelCheckpoint", function()
    it("writes weights that load again, under formatted names", function()
      local path = place() .. "/w"
      local m = model(0.25)
      fit(m, { C.ModelCheckpoint { filepath = path .. "-{epoch:02d}-{loss:.2f}",
        save_weights_only = true } }, { epochs = 2 })
      assert.equal(path .. "-02-0.75",
        tf.train.latest_checkpoint(path:match "^(.*)/"))
      local other = model()
      assert(other:load_weights(path .. "-01-1.00"))
      assert.equal(0.75, weight(other))
      assert(other:load_weights(path .. "-02-0.75"))
      assert.equal(0.5, weight(other))
    end)

    it("keeps the best, with the optimizer's state", function()
      local path = place() .. "/w"
      local m = model(0.25)
      fit(m, { script { 3, 1, 2 }, C.ModelCheckpoint { filepath = path,
        monitor = "v", save_best_only = true } }, { epochs = 3 })
      local other = model()
      assert(other:load_weights(path))
      assert.equal(0.5, weight(other))
      assert(tf.train.Checkpoint(other, { optimizer = other.optimizer })
        :restore(path))
      assert.equal(2, other.optimizer.iterations:read_value():item())
    end)

    it("saves every few batches", function()
      local path = place() .. "/w"
      model(0.25):fit(tf.ones { 5, 1 }, tf.zeros { 5, 1 }, { batch_size = 1,
        verbose = 0,
        callbacks = { C.ModelCheckpoint { filepath = path .. "{batch}",
          save_freq = 2 } } })
      assert.is_true(exists(path .. "2.safetensors"))
      assert.is_true(exists(path .. "4.safetensors"))
      assert.is_false(exists(path .. "1.safetensors") or false)
    end)

    it("names what a file name asks for and is not there", function()
      local e = fails("KeyError", "has no value \"val_los\"", fit, model(),
        { C.ModelCheckpoint { filepath = "x-{val_los:.2f}" } })
      assert.matches("available are epoch, loss", e.hint, 1, true)
      fails("ValueError", "Unrecognized save_freq", C.ModelCheckpoint,
        { filepath = "x", save_freq = "batch" })
      fails("TypeError", "missing argument filepath", C.ModelCheckpoint)
    end)
  end)

  describe("BackupAndRestore", function()
    local function interrupted(make, folder)
      local m = make()
      local seen = 0
      local ok, e = pcall(fit, m, { C.BackupAndRestore(folder), {
        on_epoch_begin = function(_, epoch)
          if epoch == 4 then
            error("pulled the plug", 0)
          end
          seen = seen + 1
        end } }, { epochs = 10 })
      assert.is_false(ok)
      assert.matches("pulled the plug", tostring(e))
      assert.equal(4, seen)
      return weight(m)
    end

    it("goes on in the epoch that was interrupted (K19)", function()
      local folder = place()
      local function make()
        return model(0.0625)
      end
      local left = interrupted(make, folder)
      assert.equal(1 - 4 / 16, left)
      local m = make()
      local h = fit(m, { C.BackupAndRestore(folder) }, { epochs = 10 })
      assert.equal(6, #h.epoch)
      assert.same({ 4, 5, 6, 7, 8, 9 }, h.epoch)
      assert.equal(1 - 10 / 16, weight(m))
      assert.equal(10, m.optimizer.iterations:read_value():item())
      assert.is_false(exists(folder .. "/chief/checkpoint") or false)
      -- Nothing is left: the next one starts anew.
      assert.equal(2, #fit(make(), { C.BackupAndRestore { backup_dir = folder,
        delete_checkpoint = false } }, { epochs = 2 }).epoch)
      assert.is_true(exists(folder .. "/chief/checkpoint"))
    end)

    R.pair(it, pending, "does so on two devices", function(strategy)
      local folder = place()
      local function make()
        return strategy:scope(function()
          return model(0.0625)
        end)
      end
      interrupted(make, folder)
      local m = make()
      local h = fit(m, { C.BackupAndRestore(folder) }, { epochs = 10 })
      assert.equal(6, #h.epoch)
      assert.equal(1 - 10 / 16, weight(m))
    end)

    it("checks what it is given", function()
      fails("TypeError", "backup_dir", C.BackupAndRestore, { backup_dir = 3 })
      fails("ValueError", "backup_dir is empty", C.BackupAndRestore, "")
      fails("ValueError", "save_freq", C.BackupAndRestore, { backup_dir = "x",
        save_freq = 0 })
    end)
  end)

  it("TensorBoard writes scalars of epochs and of batches", function()
    local folder = place()
    fit(model(0.25), { C.TensorBoard { log_dir = folder, update_freq = "batch",
      histogram_freq = 1 } }, { epochs = 2, validation_data = { X, Y } })
    local pipe = io.popen("cat " .. folder .. "/train/* " .. folder
      .. "/validation/*")
    local bytes = pipe:read "*a"
    pipe:close()
    for _, tag in ipairs { "epoch_loss", "batch_loss", "epoch_learning_rate",
      "dense" } do
      assert.is_truthy(bytes:find(tag, 1, true), tag)
    end
    fails("NotImplementedError", "embeddings_freq", C.TensorBoard,
      { embeddings_freq = 1 })
  end)

  it("cost no waiting for the devices unless they read the logs", function()
    local list = require "tfdist.keras.callbacks.base".list({
      C.ModelCheckpoint { filepath = "x" }, C.History() }, model(), {}, {})
    assert.is_false(list:wants_logs "train")
  end)
end)
