--- tf.debugging.
local tf = require "tfdist"
local leaks = require "spec.support.leaks"
local expect = require "spec.support.expect"
local d = tf.debugging

local caught = expect.caught

describe("value checks", function()
  leaks(before_each, after_each)

  it("pass when the relation holds for all elements", function()
    d.assert_equal({ 1, 2 }, tf.constant { 1, 2 })
    d.assert_none_equal({ 1, 2 }, { 2, 1 })
    d.assert_less({ 1, 2 }, 3)
    d.assert_less_equal({ 1, 2 }, 2)
    d.assert_greater({ 1, 2 }, 0)
    d.assert_greater_equal({ 1, 2 }, 1)
    d.assert_positive { 1, 2 }
    d.assert_negative { -1, -2 }
    d.assert_non_negative { 0, 2 }
    d.assert_non_positive { 0, -2 }
    d.assert_near(1, 1 + 1e-7)
    d.Assert(true)
    tf.assert_equal(1, 1)
    assert.equal(2, d.check_numerics({ 1, 2 }, "x").shape[1])
    assert.equal(2, #d.assert_all_finite { 1, 2 })
  end)

  it("name the first element that fails", function()
    local e = caught(d.assert_equal, tf.constant { { 1, 2 }, { 3, 4 } },
      { { 1, 2 }, { 5, 4 } })
    assert.equal("InvalidArgument", e.kind)
    assert.equal("assert_equal: at [1, 0]: 3 and 5, expected x = y; 1 of 4 "
      .. "elements fail", e.message)
    e = caught(d.assert_less, { 1, 2 }, 2, "sizes")
    assert.equal("sizes: assert_less: at [1]: 2 and 2, expected x < y; 1 of 2 "
      .. "elements fail", e.message)
    assert.equal("InvalidArgument", caught(d.assert_positive, 0).kind)
    assert.equal("InvalidArgument", caught(d.assert_near, 1, 1.001).kind)
    assert.equal("InvalidArgument", caught(d.Assert, false, { 1, "x" }).kind)
  end)

  it("find infinities and NaN", function()
    for _, bad in ipairs { math.huge, -math.huge, 0 / 0 } do
      local e = caught(d.check_numerics, tf.constant { 1, bad }, "loss")
      assert.equal("InvalidArgument", e.kind)
      assert.truthy(e.message:find("^loss: check_numerics: at %[1%]"))
    end
    assert.equal("InvalidArgument", caught(d.assert_all_finite, { 1 / 0 }).kind)
  end)

  it("that are not there say so", function()
    assert.equal("NotImplementedError", caught(d.enable_check_numerics).kind)
  end)
end)

describe("shape and dtype checks", function()
  leaks(before_each, after_each)

  it("pass when they hold", function()
    local t = tf.constant { { 1, 2, 3 } }
    d.assert_rank(t, 2)
    d.assert_rank_at_least(t, 1)
    d.assert_rank_in(t, { 1, 2 })
    d.assert_scalar(1)
    d.assert_type(t, "float32")
    d.assert_integer(tf.constant(1, "int32"))
    assert.equal("float32", d.assert_same_float_dtype { t })
    assert.is_true(d.is_numeric_tensor(t))
    assert.is_false(d.is_numeric_tensor(tf.constant(true)))
    assert.is_false(d.is_numeric_tensor(1))
    d.assert_shapes { { t, { 1, "C" } }, { t[0], { "C" } }, { t, "NC" },
      { t, { -1, 3 } } }
  end)

  it("raise ValueError for shapes and TypeError for dtypes", function()
    local t = tf.constant { { 1, 2, 3 } }
    assert.equal("ValueError", caught(d.assert_rank, t, 1).kind)
    assert.equal("ValueError", caught(d.assert_rank_at_least, t, 3).kind)
    assert.equal("ValueError", caught(d.assert_rank_in, t, { 1, 3 }).kind)
    assert.equal("ValueError", caught(d.assert_scalar, t).kind)
    assert.equal("TypeError", caught(d.assert_type, t, "int32").kind)
    assert.equal("TypeError", caught(d.assert_integer, t).kind)
    assert.equal("TypeError", caught(d.assert_same_float_dtype, print).kind)
    assert.equal("ValueError", caught(d.assert_same_float_dtype,
      { t, tf.constant(1, "float64") }).kind)
    local e = caught(d.assert_shapes,
      { { t, { "N", "C" } }, { t, { "C", 3 } } })
    assert.equal("ValueError", e.kind)
    assert.equal('assert_shapes: tensor 2 {1, 3}: axis 0 has size 1, but "C" '
      .. "is 3 before", e.message)
    assert.equal("ValueError", caught(d.assert_shapes, { { t, { 1 } } }).kind)
  end)
end)
