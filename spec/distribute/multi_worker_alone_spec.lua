--- Models that are made outside of the strategy where several workers run: each
--- trains one of its own, and is told so once.
local workers = require "spec.support.workers"

local PROGRAM = [[
local tf = require "tfdist"
local x, y = tf.ones { 4, 3 }, tf.ones { 4, 1 }
local function make()
  local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
  m:compile { loss = "mse" }
  return m
end
local function fit(m) m:fit(x, y, { verbose = 0 }) end
]]
local STRATEGY = "local s = tf.distribute.MultiWorkerMirroredStrategy()\n"
local TOLD = "tfdist: warning: %s: this process is worker %d of %d, but model "
  .. '"model" was made outside of a strategy\'s scope: each worker trains one of '
  .. "its own; make and compile it in strategy:scope(function() ... end) of a "
  .. "MultiWorkerMirroredStrategy\n"

-- What each process has written, but where the cluster is from.
local function written(program, given)
  given.program = PROGRAM .. program
  local list = {}
  for i, r in ipairs(workers.run(given)) do
    assert.equal(0, r.code, r.err)
    list[i] = r.err:gsub("tfdist: cluster from [^\n]*\n", "")
  end
  return list
end

describe("models outside of a strategy #once", function()
  it("are told of once, where it exists or where it does not", function()
    for _, before in ipairs { STRATEGY, "" } do
      assert.same({ TOLD:format("fit", 0, 2), TOLD:format("fit", 1, 2) },
        written(before .. "for _ = 1, 2 do fit(make()) end", {}))
    end
    assert.same({ TOLD:format("train_on_batch", 0, 2),
      TOLD:format("train_on_batch", 1, 2) },
      written("make():train_on_batch(x, y)", {
        jobs = { { "chief", 1 }, { "worker", 1 } } }))
  end)

  it("may evaluate, on the chief alone or on all", function()
    assert.same({ "", "" }, written(STRATEGY .. [[
      local m = s:scope(make)
      fit(m)
      if s.extended.should_checkpoint then
        make():evaluate(x, y, { verbose = 0 })
        make():predict(x, { verbose = 0 })
      end]], {}))
    assert.same({ "", "" }, written("make():evaluate(x, y, { verbose = 0 })",
      {}))
  end)

  it("are an evaluator's own, and one worker's", function()
    assert.same({ TOLD:format("fit", 0, 2), TOLD:format("fit", 1, 2), "" },
      written("fit(make())", { jobs = { { "worker", 2 }, { "evaluator", 1 } } }))
    assert.same({ "" }, written("fit(make())", { n = 1 }))
    assert.same({ "", "" }, written("fit(make())", {
      jobs = { { "worker", 1 }, { "evaluator", 1 } } }))
    assert.same({ "" }, written(STRATEGY .. "fit(make())", { n = 1 }))
  end)

  it("are what workers of parameter servers have", function()
    assert.same({ "", "", "" }, written("fit(make())", {
      jobs = { { "worker", 2 }, { "ps", 1 } } }))
  end)

  it("may belong to the strategy of this process alone", function()
    assert.same({ "", "" }, written(
      "fit(tf.distribute.MirroredStrategy():scope(make))", {}))
  end)
end)
