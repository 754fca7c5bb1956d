--- Arguments of traced functions and of their concrete ones: what is made a
--- tensor, and tensors that were released.
local tf = require "tfdist"
local expect = require "spec.support.expect"
local values = require "spec.support.traces".values

local Spec = tf.TensorSpec

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

describe("a concrete function", function()
  -- x * 2 + o.a
  local function concrete(of)
    return tf.function_(function(x, o)
      return x * 2 + o.a
    end):get_concrete_function(of or Spec({ 2 }, "float32"),
      { a = Spec({}, "float32"), b = "value" }, 3)
  end

  it("makes tensors where it was traced with tensors", function()
    local c = concrete()
    local v, one = tf.Variable { 1, 2 }, tf.constant(1.0)
    for _, x in ipairs { v, { 1, 2 }, { tf.constant(1.0), tf.constant(2.0) },
      tf.constant { 1, 2 } } do
      for _, o in ipairs { { a = 1 }, { a = one }, { a = 1, b = "value" },
        { a = tf.Variable(1.0) } } do
        assert.are.same({ 3, 5 }, values(c(x, o)))
      end
      assert.are.same({ 3, 5 }, values(c(x, { a = 1, b = "value" }, 3)))
      assert.are.same({ 3, 5 }, values(c(x, one)))
    end
    v:assign { 4, 5 }
    assert.are.same({ 9, 11 }, values(c(v, { a = 1 })))
    local open = concrete(Spec({ -1 }, "float32"))
    assert.are.same({ 3, 5, 7 }, values(open({ 1, 2, 3 }, { a = 1 })))
    assert.are.same({ 3 }, values(open({ 1 }, { a = 1 })))
  end)

  it("makes a tensor of a list of one", function()
    local c = tf.function_(function(x) return x + 1 end):get_concrete_function(
      Spec({ 1 }, "float32"))
    assert.are.same({ 4 }, values(c { tf.constant(3.0) }))
    assert.are.same({ 4 }, values(c { 3 }))
  end)

  it("may leave out values that came before the tensors", function()
    local c = tf.function_(function(k, x) return x * k end)
      :get_concrete_function(3, Spec({ 2 }, "float32"))
    assert.are.same({ 3, 6 }, values(c { 1, 2 }))
    assert.are.same({ 3, 6 }, values(c(3, { 1, 2 })))
    refuses("TypeError", "a value that is no tensor is the number 4", c, 4,
      { 1, 2 })
  end)

  it("has gradients in a variable that it is given", function()
    local c, v = concrete(), tf.Variable { 1, 2 }
    local tape, y = tf.GradientTape(function() return c(v, { a = 1 }) end)
    assert.are.same({ 2, 2 }, values(tape:gradient(y, v)))
  end)

  it("names what is no such tensor, and the spec", function()
    local c, x = concrete(), tf.ones { 2 }
    local function wrong(words, ...)
      refuses("TypeError", words, c, ...)
    end
    local of_x = ", it was traced with TensorSpec(float32 {2})"
    local of_a = ", it was traced with TensorSpec(float32 {})"
    wrong(": argument 1 is the number 5" .. of_x, 5, { a = 1 })
    wrong(': argument 1 is the string "x"' .. of_x, "x", { a = 1 })
    wrong(": argument 1 is nil" .. of_x, nil, { a = 1 })
    wrong(": argument 1 is float32 {3}" .. of_x, { 1, 2, 3 }, { a = 1 })
    wrong(": argument 1 is a table" .. of_x .. "; call: element [2] of argument "
      .. "must be a number", { 1, "x" }, { a = 1 })
    wrong(": argument 1 is int32 {2}" .. of_x,
      tf.Variable({ 1, 2 }, { dtype = "int32" }), { a = 1 })
    wrong(': element a of argument 2 is the string "x"' .. of_a, x, { a = "x" })
    c = tf.function_(function(list) return list[1][1] + list[2] end)
      :get_concrete_function { { Spec({}, "float32") }, Spec({}, "float32") }
    wrong(': element [2] of argument 1 is the string "x"', { { 1 }, "x" })
    wrong(': element [1][1] of argument 1 is the string "x"', { { "x" }, 1 })
    c = concrete()
    wrong("a value that is no tensor is the number 4", { 1, 2 },
      { a = 1, b = "value" }, 4)
    wrong('a value that is no tensor is the string "other"', { 1, 2 },
      { a = 1, b = "other" }, 3)
  end)

  it("refuses a tensor that was released, by its place", function()
    local c, x = concrete(), tf.ones { 2 }
    refuses("FailedPrecondition", ": argument 1 is a released tensor", c,
      released(tf.ones { 2 }), { a = 1 })
    refuses("FailedPrecondition", ": element a of argument 2 is a released "
      .. "tensor", c, x, { a = released() })
    refuses("TypeError", ": argument 1 is a released variable, it was traced "
      .. "with", c, released(tf.Variable { 1, 2 }), { a = 1 })
  end)
end)

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

  it("names the place of what its input_signature does not ask for", function()
    local number = Spec({}, "float32")
    local g = tf.function_ { input_signature = { number,
      { a = { number, number }, b = number, c = { { x = number } } } } }(
      function(x) return x end)
    local function given(place, x)
      local o = { a = { 1, 2 }, b = 3, c = { { x = 4 } } }
      if place == "a[2]" then
        o.a[2] = x
      elseif place == "b" then
        o.b = x
      else
        o.c[1].x = x
      end
      return o
    end
    assert.are.equal(5, g(5, given("b", 3)):item())
    for _, place in ipairs { "a[2]", "b", "c[1].x" } do
      local words = (": element %s of argument 2 is %%s, input_signature asks "
        .. "for TensorSpec(float32 {})"):format(place)
      refuses("TypeError", words:format 'the string "x"', g, 5, given(place, "x"))
      refuses("TypeError", words:format "a released tensor", g, 5,
        given(place, released()))
    end
    refuses("TypeError", ": argument 1 is a released tensor, input_signature "
      .. "asks for", g, released(), given("b", 3))
  end)

  it("counts the arguments of a run as the script does", function()
    local strategy = tf.distribute.MirroredStrategy { "CPU:0" }
    refuses("FailedPrecondition", ": argument 1 is a released tensor",
      strategy.run, strategy, f, { released() })
    refuses("FailedPrecondition", ": element a of kwargs is a released tensor",
      strategy.run, strategy, f, { 1 }, { a = released() })
  end)
end)
