--- Arguments of traced functions that were released.
local tf = require "tfdist"
local expect = require "spec.support.expect"

local function released(x)
  x = x or tf.constant(1.0)
  x:release()
  return x
end

local function call(fn, ...)
  return (fn(...))
end

-- The words, at the line above.
local function refuses(kind, words, fn, ...)
  local line = debug.getinfo(call, "S").linedefined + 1
  expect.raises(kind, words, call, fn, ...)
  expect.raises(kind, ("arguments_spec.lua:%d: %s"):format(line, kind), call, fn,
    ...)
end

describe("a traced function", function()
  local f

  before_each(function()
    f = tf.function_(function(x) return x end)
  end)

  it("refuses a tensor that was released, by its place", function()
    local t = tf.constant(1.0)
    for _ = 1, 3 do f(t) end
    for _ = 1, 2 do
      refuses("FailedPrecondition", ": argument 1 is a released tensor", f,
        released())
    end
    refuses("FailedPrecondition", ": argument 1 is a released tensor", f,
      released(t))
    refuses("FailedPrecondition", ": argument 2 is a released tensor", f, 1, t)
    refuses("FailedPrecondition", ": element a[3].b of argument 2 is a released "
      .. "tensor", f, 1, { a = { 1, 2, { b = t } } })
    refuses("TypeError", "has a tensor as a key: Tensor (released)", f,
      { [t] = 1 })
    tf.GradientTape(function()
      refuses("FailedPrecondition", ": argument 1 is a released tensor", f, t)
    end)
  end)

  it("refuses IndexedSlices that were released, or whose rows were", function()
    local function slices(rows)
      return tf.IndexedSlices(rows, tf.constant({ 0 }, "int32"), { 3, 2 })
    end
    refuses("FailedPrecondition", ": argument 1 is released IndexedSlices", f,
      released(slices(tf.ones { 1, 2 })))
    assert.are.equal(f(slices(tf.ones { 1, 2 })).values.shape[1], 1)
  end)

  it("counts the arguments of a run as the script does", function()
    local strategy = tf.distribute.MirroredStrategy { "CPU:0" }
    refuses("FailedPrecondition", ": argument 1 is a released tensor",
      strategy.run, strategy, f, { released() })
    refuses("FailedPrecondition", ": element a of kwargs is a released tensor",
      strategy.run, strategy, f, { 1 }, { a = released() })
  end)
end)
