--- How training goes on several workers: what one does alone, and would leave
--- weights that differ or others that wait, is told to all.
local workers = require "spec.support.workers"

-- The last drops all that has a gradient now and then, and weights stay equal.
local OTHERS = "tf.keras.layers.BatchNormalization(), "
  .. "tf.keras.layers.Dropout(0.5)"
local FIT = workers.HEAD .. [[
local m = s:scope(function()
  -- Far from what is learnt: later epochs differ by more than rounding does.
  local m = tf.keras.Sequential { tf.keras.layers.Dense(1, {
    kernel_initializer = "ones" }),
    tf.keras.layers.BatchNormalization(), tf.keras.layers.Dropout(0.5) }
  m:compile { loss = "mse", optimizer = tf.keras.optimizers.SGD(0.1) }
  return m
end)
local K, x, y = tf.keras.callbacks, tf.ones { 8, 3 }, tf.ones { 8, 1 }
local kernel
local function fit(epochs, ...)
  local ok, e = pcall(m.fit, m, x, y, { epochs = epochs, batch_size = 4,
    verbose = 0, callbacks = { ... } })
  kernel = m.trainable_variables[1]
  print((ok and "ended" or tostring(e):gsub("\n", " ")))
end
]]

-- Statistics of batches are read by all workers together, or by none.
local ALONE = FIT:gsub(OTHERS:gsub("%p", "%%%0"), "")

-- Callbacks of worker 1, or of all, and what all are told of them.
local APART = {
  { "weights that one callback sets", [[{ on_epoch_end = function(_, e)
    if e == 1 and w == 1 then kernel = m.trainable_variables[1]
    kernel:assign(kernel * 0) end end }]],
    'FailedPrecondition: fit: at its end variable "[%w_/]*kernel" of worker 1 '
    .. "has other values than the chief's; the workers would train apart" },
  { "weights that are set where training ends", [[{ on_train_end = function()
    if w == 0 then m.trainable_variables[2]:assign { 3 } end end }]],
    'fit: at its end variable "[%w_/]*bias" of workers 1, 2 has' },
  { "best weights of other epochs", [[{ on_epoch_end = function(_, e, logs)
    logs.own = math.abs(e - (w + 1) % 3) end },
    K.EarlyStopping { monitor = "own", patience = 9,
    restore_best_weights = true }]],
    "fit: at its end variable \"[%w_/]*kernel\" of workers 1, 2 has other "
    .. "values than the chief's, and so for %d more", plain = true },
  { "a learning rate set in the last epoch", [[{ on_epoch_end = function(_, e)
    if e == 2 and w == 2 then m.optimizer.learning_rate = 0.5 end end }]],
    "ValueError: fit: at its end worker 2 has the learning rate 0.5; the chief "
    .. "has 0.1" },
  { "training that one stops", [[{ on_epoch_end = function(_, e)
    if e == 0 and w == 1 then m.stop_training = true end end }]],
    "ValueError: fit: the workers run apart: worker 1 stops training after epoch "
    .. "1 %(stop_training is true, set in on_epoch_end%); the chief begins "
    .. "epoch 2" },
  { "layers that one freezes", [[{ on_epoch_end = function(_, e)
    if e == 1 and w == 0 then m.layers[1].trainable = false end end }]],
    "ValueError: fit: before epoch 3 worker 1 trains 4 variables of 6 values; "
    .. "the chief trains 2 variables of 2 values" },
  { "a prediction that the chief makes alone", [[{ on_epoch_end = function(_, e)
    if e == 0 and w == 0 then m:predict(x, { verbose = 0 }) end end }]],
    "the workers run apart: worker 1 begins epoch 2; the chief begins a "
    .. "prediction" },
  { "an evaluation that one makes alone", [[{ on_epoch_end = function(_, e)
    if e == 0 and w == 2 then m:evaluate(x, y, { verbose = 0 }) end end }]],
    "the workers run apart: worker 2 begins an evaluation; the chief begins "
    .. "epoch 2" },
  { "training that EarlyStopping stops on the chief", [[{ on_epoch_end =
    function(_, e, logs) logs.own = w == 0 and 1 or -e end },
    K.EarlyStopping { monitor = "own", patience = 1 }]],
    "worker 1 begins epoch 3; the chief stops training after epoch 2 "
    .. "%(stop_training is true, set in on_epoch_end of EarlyStopping%)" },
}

describe("training on several workers #once", function()
  for _, case in ipairs(APART) do
    it("tells all of " .. case[1], function()
      for _, devices in ipairs { 1, 2 } do
        local outs = workers.outputs { n = 3, devices = devices,
          program = (case.plain and ALONE or FIT) .. "fit(3, " .. case[2] .. ")\n"
          .. "s:reduce('SUM', 1.0)" }
        for i = 1, 3 do
          assert.matches(case[3], outs[i])
        end
      end
    end)
  end

  it("tells the others of a callback that has failed on one", function()
    local outs = workers.outputs { program = FIT .. [[
      fit(3, { on_epoch_end = function(_, e)
        if e == 1 and w == 1 then error "mine" end end })
      fit(2) ]] }
    assert.matches("Aborted: fit: worker 1 failed in on_epoch_end of epoch 2: "
      .. "[^\n]*mine", outs[1])
    assert.matches("^[^\n]*: mine\n", outs[2])
    for i = 1, 2 do
      assert.matches("\nended\n$", outs[i])
    end
  end)

  it("tells the others of a callback that fails before the first epoch",
    function()
      local outs = workers.outputs { program = FIT .. [[
        fit(1, { on_train_begin = function()
          if w == 1 then error "mine" end end })
        fit(1) ]] }
      assert.matches("Aborted: fit: worker 1 failed in on_train_begin: "
        .. "[^\n]*mine", outs[1])
      for i = 1, 2 do
        assert.matches("\nended\n$", outs[i])
      end
    end)

  it("tells of one that failed where others may still meet", function()
    local rs = workers.run { program = FIT .. [[
      fit(3, { on_epoch_end = function(_, e)
        if e == 1 and w == 1 then error "mine" end end },
        { on_epoch_end = function() end })
      fit(2) ]] }
    for i = 1, 2 do
      assert.matches("process 1 is 1 call ahead of process 0: one "
        .. "ended early there, as by an error that was caught",
        rs[i].out .. rs[i].err)
    end
  end)

  -- Row i is three times i: the output is 3 i, its loss 9 i^2.
  it("gives one worker's callbacks the logs of batches, for all make them",
    function()
      for how, wanted in pairs { ["1"] = "31.5 157.5 31.5 157.5 31.5 "
        .. "157.5", ["2"] = "157.5 157.5 157.5" } do
        for chooser = 0, 1 do
          local outs = workers.outputs { program = workers.HEAD .. ([[
            local m = s:scope(function()
              local m = tf.keras.Sequential { tf.keras.layers.Dense(1, {
                kernel_initializer = "ones" }) }
              m:compile { loss = "mse", optimizer = tf.keras.optimizers.SGD(0),
                steps_per_execution = STEPS }
              return m
            end)
            local x = tf.reshape(tf.range(0, 8, 1, "float32"), { 8, 1 })
              * tf.ones { 8, 3 }
            local y, list = tf.zeros { 8, 1 }, {}
            local function note(_, _, logs) list[#list + 1] = logs.loss end
            local given = { batch_size = 4, verbose = 0,
              callbacks = w == CHOOSER and { { on_train_batch_end = note,
              on_test_batch_end = note } } or nil }
            m:evaluate(x, y, given)
            given.validation_data, given.shuffle = { x, y }, false
            m:fit(x, y, given)
            print(table.concat(list, " "))
          ]]):gsub("CHOOSER", chooser):gsub("STEPS", how) }
          assert.equal(wanted .. "\n", outs[chooser + 1])
          assert.equal("\n", outs[2 - chooser])
        end
      end
    end)

  it("says first what failed in one worker's callback of a batch", function()
    for w = 0, 1 do
      local rs = workers.run { program = FIT .. [[
        m:fit(x, y, { epochs = 2, batch_size = 4, verbose = 0,
          callbacks = w == ]] .. w .. [[ and { { on_train_batch_end = function()
            error "mine" end } } or nil })
      ]] }
      assert.matches("^[^\n]*:%d+: mine\n", (rs[w + 1].err:gsub(
        "^tfdist: cluster[^\n]*\n", "")))
      assert.equal(1, rs[w + 1].code)
      assert.matches("Aborted: [^\n]*stopped because of process " .. w
        .. ": [^\n]*:%d+: mine\n", rs[2 - w].err)
    end
  end)

  it("says which worker has stopped within an epoch", function()
    local outs = workers.outputs { program = FIT .. [[
      fit(2, { on_train_batch_end = function(_, b)
        if w == 1 and b == 0 then m.stop_training = true end end }) ]] }
    assert.matches("run apart at collective %d+.*this worker stops training in "
      .. "epoch 1 %(stop_training is true, set in on_train_batch_end%)",
      (outs[2]:gsub("hint", "")))
    assert.matches("hint: a callback that stops training", outs[1], 1, true)
  end)

  it("compares what fit begins with, too", function()
    for _, out in ipairs(workers.outputs { program = FIT .. [[
      fit(1)
      if w == 1 then kernel:assign(kernel * 2) end
      fit(1) ]] }) do
      assert.matches('ended\n.*fit: at its start variable "[%w_/]*kernel" of '
        .. "worker 1 has other values", out)
    end
  end)

  -- Each is an edit of what worker 1 calls, and what all are told.
  it("compares what evaluate and predict are called with", function()
    for _, case in ipairs {
      { "evaluate", "rows = 7", "examples: 7; the chief has examples: 8" },
      { "evaluate", "given.batch_size = 2", "batch_size: 2; the chief has "
        .. "batch_size: 4" },
      { "evaluate", "given.steps = 1", "steps: 1; the chief has steps: nil" },
      { "evaluate", "given.sample_weight = tf.ones { 8 }", "sample_weight: true" },
      { "evaluate", "own.metrics = { 'mae', mean }",
        "metrics: mae, MeanSquaredError mean_squared_error; the chief has "
        .. "metrics: none" },
      { "evaluate", "own.loss = 'mae'", "loss: mae; the chief has loss: mse" },
      { "predict", "rows = 7", "examples: 7; the chief has examples: 8" },
      { "predict", "given.batch_size = 2", "batch_size: 2; the chief has" },
      { "predict", "given.steps = 1", "steps: 1; the chief has steps: nil" },
    } do
      local rs = workers.run { program = workers.HEAD .. [[
        local rows, given, own = 8, { batch_size = 4, verbose = 0 },
          { loss = "mse" }
        local m = s:scope(function()
          local mean = tf.keras.metrics.MeanSquaredError()
          if w == 1 then ]] .. case[2] .. [[ end
          local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
          m:compile(own)
          return m
        end)
        local x, y = tf.ones { rows, 3 }, tf.ones { rows, 1 }
        if "]] .. case[1] .. [[" == "predict" then
          m:predict(x, given)
        else
          m:evaluate(x, y, given)
        end ]] }
      for _, r in ipairs(rs) do
        assert.equal(1, r.code, case[2])
        assert.truthy(r.err:find(("ValueError: %s: worker 1 has %s"):format(
          case[1], case[3]), 1, true), r.err)
      end
    end
  end)

  -- Eight roundings of float32 are allowed, and what stays a replica's own.
  it("goes on with what may differ", function()
    for _, out in ipairs(workers.outputs { devices = 2, program = FIT .. [[
      fit(1)
      if w == 1 then kernel:assign(kernel * (1 + 2 ^ -22)) end
      fit(2, { on_epoch_end = function() end })
      fit(3, { on_epoch_end = function(_, e)
        m.stop_training = e == 1 end })
      fit(0) ]] }) do
      assert.equal("ended\nended\nended\nended\n", out)
    end
  end)
end)
