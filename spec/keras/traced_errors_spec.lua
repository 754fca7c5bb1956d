--- What fails in a traced step says what it says when it runs eagerly.
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

if tf.config.functions_run_eagerly() then
  return -- in the suite that does without graphs
end

local K = tf.keras
local L = K.layers

-- The error of fit in its fourth batch of 4, for the data where() makes bad.
local function failure(strategy, make, data, eagerly, per)
  tf.random.set_seed(3)
  local model = strategy:scope(function()
    local made = make()
    made:compile { optimizer = "sgd", run_eagerly = eagerly,
      steps_per_execution = per or 1,
      loss = K.losses.SparseCategoricalCrossentropy { from_logits = true } }
    return made
  end)
  local x, y = data()
  local ok, e = pcall(model.fit, model, tf.constant(x), tf.constant(y, "int32"),
    { batch_size = 4, epochs = 1, shuffle = false, verbose = 0 })
  assert.is_false(ok)
  return e
end

local function labels(bad)
  local x, y = {}, {}
  for i = 1, 16 do
    x[i], y[i] = { i % 5, i % 3 }, i == 14 and bad or i % 3
  end
  return x, y
end

local Outer = L.Layer:extend "Outer"
function Outer:init()
  L.Layer.init(self, { name = "outer" })
  self.inner = L.Embedding(5, 3, { name = "ids" })
end
function Outer:call(x)
  return tf.reduce_mean(self.inner(tf.cast(x, "int32")), { axis = 1 })
end

local CASES = {
  ["a label out of range"] = {
    function() return K.Sequential({ L.Dense(3) }, "net") end,
    function() return labels(7) end,
    'in loss "sparse_categorical_crossentropy", labels {4}, predictions {4, 3}',
  },
  ["an id in a layer inside another"] = {
    function() return K.Sequential({ Outer() }, "net") end,
    function()
      local x, y = labels(0)
      x[14] = { 1, 6 }
      return x, y
    end,
    'in layer "ids" (Embedding, input_dim = 5, output_dim = 3)',
    'in layer "outer" (Outer)',
  },
}

local STRATEGIES = { default = tf.distribute.get_strategy() }
if replicas.available > 1 then
  STRATEGIES["two replicas"] = replicas.mirrored(2)
end

describe("an error in a traced step", function()
  for title, strategy in pairs(STRATEGIES) do
    for name, case in pairs(CASES) do
      it(("says where it was: %s, %s"):format(name, title), function()
        local want = failure(strategy, case[1], case[2], true)
        local got = failure(strategy, case[1], case[2], false)
        assert.are.equal(want.kind, got.kind)
        assert.are.equal(want.message, got.message)
        assert.are.equal(want.replica or got.replica, got.replica)
        for i = 3, #case do
          local note = title == "default" and case[i]
            or case[i]:gsub("{4", "{2")
          assert.are.equal(note, (got.notes or {})[i - 2])
        end
        if not want.deferred then -- queued work knows less
          assert.are.equal(tostring(want), tostring(got))
        end
      end)

      it(("says in which batch of several: %s, %s"):format(name, title),
        function()
          local want = failure(strategy, case[1], case[2], false)
          for _, per in ipairs { 2, 3, 9 } do
            local got = failure(strategy, case[1], case[2], false, per)
            assert.are.equal(want.kind, got.kind)
            assert.are.equal(want.message, got.message)
            assert.are.equal(want.where, got.where)
            assert.is_truthy(tostring(got):find("step 4 of epoch 1", 1, true))
          end
        end)
    end
  end

  -- A queue fails while the next steps are on their way to it.
  local function look_up(x)
    return x + tf.gather(tf.ones { 3 }, tf.cast(x, "int32"))
  end

  local function fit_with_bad_step(strategy, bad, options, callback)
    local x = {}
    for i = 1, 32 do x[i] = { i > 4 * (bad - 1) and i <= 4 * bad and 7 or 1 } end
    local model = strategy:scope(function()
      local made = K.Sequential { L.Lambda(look_up), L.Dense(1) }
      options.optimizer, options.loss = "sgd", "mse"
      made:compile(options)
      return made
    end)
    return select(2, pcall(model.fit, model, tf.constant(x), tf.ones { 32, 1 },
      { batch_size = 4, shuffle = false, verbose = 0, callbacks = { callback } }))
  end

  for title, strategy in pairs(STRATEGIES) do
    it("says in which step it was, when it is met in another: " .. title,
      function()
        for _, bad in ipairs { 1, 2, 3, 6, 8 } do
          for per = 1, 3 do
            for _, callback in ipairs { {}, {
              on_train_batch_end = function(_, _, logs) return logs.loss end } } do
              for _, eagerly in ipairs { false, true } do
                local e = fit_with_bad_step(strategy, bad, {
                  run_eagerly = eagerly, steps_per_execution = per }, callback)
                local found = {}
                for step in tostring(e):gmatch "step (%d+) of epoch 1" do
                  found[#found + 1] = tonumber(step)
                end
                assert.are.same({ bad }, found, tostring(e))
              end
            end
          end
        end
      end)
  end

  it("names the line of the op in a function of the user's", function()
    local here
    local function own(y, p)
      here = debug.getinfo(1, "l").currentline + 1
      return tf.reduce_mean(tf.gather(p, tf.cast(y, "int32")), { axis = -1 })
    end
    local function fit(eagerly)
      local model = K.Sequential { L.Dense(3) }
      model:compile { optimizer = "sgd", loss = own, run_eagerly = eagerly }
      local x, y = labels(9)
      local ok, e = pcall(model.fit, model, tf.constant(x), tf.constant(y),
        { batch_size = 4, shuffle = false, verbose = 0 })
      assert.is_false(ok)
      return e
    end
    local want, got = fit(true), fit(false)
    assert.is_truthy(got.where:find("traced_errors_spec.lua:" .. here, 1, true))
    assert.are.equal(want.where, got.where)
    assert.are.equal(want.message, got.message)
  end)

  it("is said by functions of tf.function_, too, with tapes and without",
    function()
      local layer = L.Embedding(3, 2, { name = "rows" })
      layer:build { 4 }
      local step = tf.function_(function(ids) return layer(ids) end)
      step(tf.constant({ 0, 1 }, "int32"))
      local function check(fn)
        local ok, e = pcall(fn)
        assert.is_false(ok)
        assert.are.same({ 'in layer "rows" (Embedding, input_dim = 3, '
          .. 'output_dim = 2)' }, e.notes)
        assert.is_truthy(e.where:find("traced_errors_spec.lua", 1, true))
      end
      local bad = tf.constant({ 0, 3 }, "int32")
      check(function() return step(bad):totable() end)
      check(function()
        local tape, y = tf.GradientTape(function() return step(bad) end)
        tape:gradient(y, layer.variables)
        return y:totable()
      end)
    end)
end)
