-- Operators of IndexedSlices; dense values by hand.
local tf = require "tfdist"

local function slices()
  return tf.IndexedSlices({ { 1, 2 }, { 3, 4 } }, { 0, 2 }, { 3, 2 })
end

describe("IndexedSlices", function()
  it("stay slices when a number scales them", function()
    for name, case in pairs {
      times = { slices() * 2, { { 2, 4 }, { 6, 8 } } },
      from_left = { 2 * slices(), { { 2, 4 }, { 6, 8 } } },
      over = { slices() / 2, { { 0.5, 1 }, { 1.5, 2 } } },
      minus = { -slices(), { { -1, -2 }, { -3, -4 } } },
      by_name = { tf.math.scalar_mul(2, slices()), { { 2, 4 }, { 6, 8 } } },
    } do
      local got, values = case[1], case[2]
      assert.same(values, got.values:totable(), name)
      assert.same({ 0, 2 }, got.indices:totable(), name)
      assert.same({ 3, 2 }, got.dense_shape, name)
    end
  end)

  it("become dense in all other operators", function()
    assert.same({ { 2, 3 }, { 1, 1 }, { 4, 5 } },
      (slices() + 1):totable())
    assert.same({ { 2, 3 }, { 1, 1 }, { 4, 5 } },
      (tf.ones { 3, 2 } + slices()):totable())
    assert.same({ { 1, 4 }, { 0, 0 }, { 9, 16 } },
      (slices() * slices()):totable())
    assert.same({ { 0, 1 }, { -1, -1 }, { 2, 3 } },
      (slices() - 1):totable())
    assert.same({ { 1, 4 }, { 0, 0 }, { 9, 16 } }, (slices() ^ 2):totable())
  end)

  it("have the length of axis 0 and no order", function()
    assert.equal(3, #slices())
    local ok, e = pcall(function()
      return slices() < slices()
    end)
    assert.is_false(ok)
    assert.equal("TypeError", e.kind)
  end)
end)
