-- Operators of IndexedSlices; dense values by hand.
local tf = require "tfdist"

local function slices()
  return tf.IndexedSlices({ { 1, 2 }, { 3, 4 } }, { 0, 2 }, { 3, 2 })
end

describe("IndexedSlices", function()
  it("need not say how many rows there are", function()
    local s = tf.IndexedSlices({ { 1, 2 }, { 3, 4 } }, { 2, 0 })
    assert.is_nil(s.dense_shape)
    assert.same({ -1, 2 }, s.shape)
    local v = tf.Variable(tf.zeros { 3, 2 })
    v:scatter_add(s)
    v:scatter_update(-s)
    v:scatter_sub(tf.IndexedSlices { values = { { 1, 1 } }, indices = { 1 } })
    assert.same({ { -3, -4 }, { -1, -1 }, { -1, -2 } }, v:totable())
    local clipped = tf.clip_by_norm(tf.IndexedSlices({ { 3, 4 } }, { 0 }), 1)
    assert.near(0.6, clipped.values[0][0]:item(), 1e-6)
    local w = tf.Variable(tf.ones { 3, 2 })
    tf.keras.optimizers.SGD(0.5):apply_gradients({ s }, { w })
    assert.same({ { -0.5, -1 }, { 1, 1 }, { 0.5, 0 } }, w:totable())
    for _, fn in ipairs { tf.convert_to_tensor, function(x) return x + 1 end,
      function(x) return #x end } do
      local ok, e = pcall(fn, s)
      assert.is_false(ok)
      assert.equal("ValueError", e.kind)
      assert.is_truthy(e.message:find("without dense_shape", 1, true))
    end
    local ok, e = pcall(tf.IndexedSlices, 1, { 0 })
    assert.is_false(ok)
    assert.equal("InvalidArgument", e.kind)
    ok = pcall(tf.IndexedSlices, { { 1 } }, { 0 }, { -2, 1 })
    assert.is_false(ok)
  end)

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
