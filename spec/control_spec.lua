--- tf.cond, tf.while_loop, tf.map_fn and the like.
local tf = require "tfdist"
local leaks = require "spec.support.leaks"
local expect = require "spec.support.expect"

local caught = expect.caught

local function value(x)
  return function()
    return x
  end
end

describe("branches", function()
  leaks(before_each, after_each)

  it("take booleans and scalar tensors", function()
    assert.equal(1, tf.cond(true, value(1), value(2)))
    assert.equal(2, tf.cond(tf.constant(false), value(1), value(2)))
    assert.equal("TypeError", caught(tf.cond, tf.constant(1), value(1),
      value(2)).kind)
    assert.equal("TypeError", caught(tf.cond, true, 1, 2).kind)
  end)

  it("choose the first case that holds", function()
    local pairs_list = { { false, value(1) }, { true, value(2) },
      { tf.constant(true), value(3) } }
    assert.equal(2, tf.case(pairs_list))
    assert.equal("InvalidArgument", caught(tf.case, pairs_list,
      { exclusive = true }).kind)
    assert.equal(9, tf.case({ { false, value(1) } }, { default = value(9) }))
    assert.equal("InvalidArgument", caught(tf.case, { { false, value(1) } })
      .kind)
  end)

  it("switch by an index from 0, the last for what is outside", function()
    local fns = { value "a", value "b" }
    assert.equal("a", tf.switch_case(0, fns))
    assert.equal("b", tf.switch_case(tf.constant(1, "int32"), fns))
    assert.equal("b", tf.switch_case(7, fns))
  end)

  it("switch by the keys of a table from 0, as by a dict", function()
    for n = 1, 6 do
      local fns = {}
      for i = n - 1, 0, -1 do
        fns[i] = value(10 * i)
      end
      for i = 0, n - 1 do
        assert.equal(10 * i, tf.switch_case(i, fns))
        assert.equal(10 * i, tf.switch_case(tf.constant(i, "int32"), fns))
      end
      assert.equal(10 * (n - 1), tf.switch_case(n, fns))
      assert.equal(-1, tf.switch_case(n, fns, { default = value(-1) }))
    end
    local f = tf.function_(function(i)
      return tf.switch_case(i, { [0] = value(tf.constant(3)),
        [1] = value(tf.constant(5)) })
    end)
    assert.equal(3, f(tf.constant(0, "int32")):item())
    assert.equal(5, f(tf.constant(1, "int32")):item())
  end)

  it("switch by no other keys", function()
    local f = value(1)
    for shown, fns in pairs {
      ["the key 2 beside 0; the keys of 2 functions are 0 .. 1"] =
        { [0] = f, [2] = f },
      ["the key -1 beside 0"] = { [-1] = f, [0] = f },
      ["the key 1.5 beside 0"] = { [0] = f, [1.5] = f },
      ['the key "n" beside 0'] = { [0] = f, n = 1 },
      ['the list branch_fns has the key "a"'] = { a = f },
      ["the list branch_fns has holes"] = { [2] = f },
    } do
      local e = caught(tf.switch_case, 0, fns)
      assert.equal("TypeError", e.kind)
      assert.is_truthy(e.message:find(shown, 1, true), e.message)
    end
  end)

  it("switch by no list with a hole, which is named", function()
    local fns = { value(tf.constant(1)), nil, value(tf.constant(3)) }
    local traced = tf.function_(function(i) return tf.switch_case(i, fns) end)
    local function given(i)
      return tf.switch_case(i, { n = 3, fns[1], nil, fns[3] })
    end
    for _, fn in ipairs { traced, given, tf.function_(given) } do
      for i = 0, 2 do
        local e = caught(fn, tf.constant(i, "int32"))
        assert.equal("TypeError", e.kind)
        assert.is_truthy(e.message:find("switch_case: branch_fns[2] must be a "
          .. "function, got nil", 1, true), e.message)
      end
    end
    assert.equal("TypeError", caught(tf.switch_case, 0, fns).kind)
    assert.equal("TypeError", caught(tf.switch_case, 0, { 3 }).kind)
  end)
end)

describe("loops", function()
  leaks(before_each, after_each)

  it("go on while the condition holds", function()
    local i, sum = tf.while_loop(function(i)
      return tf.less(i, 5)
    end, function(i, sum)
      return i + 1, sum + i
    end, { tf.constant(0), tf.constant(0) })
    assert.equal(5, i:item())
    assert.equal(10, sum:item())
    assert.equal(3, (tf.while_loop(value(true), function(x)
      return x + 1
    end, { 0 }, { maximum_iterations = 3 })))
    assert.equal("ValueError", caught(tf.while_loop, value(true),
      function() end, { 1, 2 }).kind)
  end)

  it("map rows to rows", function()
    local t = tf.constant { { 1, 2 }, { 3, 4 }, { 5, 6 } }
    assert.same({ 3, 7, 11 }, tf.map_fn(tf.reduce_sum, t):totable())
    local a, b = tf.map_fn(function(x, y)
      return x + y, x - y
    end, { t, t })
    assert.same({ { 2, 4 }, { 6, 8 }, { 10, 12 } }, a:totable())
    assert.same({ { 0, 0 }, { 0, 0 }, { 0, 0 } }, b:totable())
    assert.equal("InvalidArgument", caught(tf.map_fn, tf.add,
      { tf.constant { 1 }, tf.constant { 1, 2 } }).kind)
  end)

  it("fold from either end, and keep what is in between", function()
    local t = tf.constant { 1, 2, 3 }
    local function digits(a, x)
      return a * 10 + x
    end
    assert.equal(123, tf.foldl(digits, t):item())
    assert.equal(321, tf.foldr(digits, t):item())
    assert.equal(4123, tf.foldl(digits, t, tf.constant(4)):item())
    assert.same({ 1, 12, 123 }, tf.scan(digits, t):totable())
    assert.same({ 321, 32, 3 }, tf.scan(digits, t,
      { reverse = true }):totable())
  end)

  it("carry gradients", function()
    local x = tf.Variable { 1, 2, 3 }
    local tape, y = tf.GradientTape(function()
      return tf.foldl(function(a, b) return a * b end, x)
    end)
    assert.equal(6, y:item())
    assert.same({ 6, 3, 2 }, tf.convert_to_tensor(tape:gradient(y, x))
      :totable())
  end)
end)

describe("tf.timestamp", function()
  it("gives seconds since 1970 as a float64 scalar", function()
    local before = os.time()
    local t = tf.timestamp()
    assert.equal("float64", t.dtype)
    assert.same({}, t.shape)
    -- The clock of whole seconds is up to a tick late, so that right after a
    -- second's begin it still says the one before.
    assert.is_true(t:item() >= before and t:item() <= os.time() + 2)
    assert.is_true(tf.timestamp():item() >= t:item())
  end)
end)

describe("a table that a traced function is given", function()
  it("has no tensors as keys", function()
    local f = tf.function_(function() return 1 end)
    local key = tf.constant(1)
    for _, x in ipairs { { [key] = 5 }, { a = { [key] = key } } } do
      local e = caught(f, x)
      assert.equal("TypeError", e.kind)
      assert.is_truthy(e.message:find("as a key: " .. tostring(key), 1, true),
        e.message)
    end
  end)
end)
