-- Batches made, cut and taken apart; cases I04..I15.
local E = require "spec.support.elements"
local R = require "spec.support.replicas"
local leaks = require "spec.support.leaks"
local tf = require "tfdist"

local D = tf.data.Dataset
local all, count, fails = E.all, E.count, R.fails

-- range(n) over rows in memory, and made one by one.
local function both(fn)
  fn(function(n) return D.range(n) end)
  fn(function(n) return D.range(n):map(function(x) return x end) end)
end

describe("batch", function()
  leaks(before_each, after_each)

  it("puts elements together, the last batch may be short", function()
    both(function(range)
      assert.same({ count(4), count(4, 4), { 8, 9 } }, all(range(10):batch(4)))
      assert.same({ count(4), count(4, 4) }, all(range(10):batch(4, true)))
      assert.same({ count(4), count(4, 4) },
        all(range(10):batch(4, { drop_remainder = true })))
      assert.same({}, all(range(0):batch(4)))
      assert.same({ { 0 } }, all(range(1):batch(4)))
      assert.same({ { { 0, 1 }, { 2, 3 } }, { { 4, 5 } } },
        all(range(6):batch(2):batch(2)))
    end)
  end)

  it("is told by a tensor whether a short rest is dropped", function()
    for _, name in ipairs { "batch", "padded_batch", "window", "rebatch" } do
      local function batches_by(drop)
        local d = name == "rebatch" and D.range(7):batch(7) or D.range(7)
        local n = 0
        for _ in d[name](d, 2, { drop_remainder = drop }):iter() do
          n = n + 1
        end
        return n
      end
      assert.equal(3, batches_by(tf.constant(true)))
      assert.equal(4, batches_by(tf.constant(false)))
      for _, x in ipairs { tf.constant(1), tf.constant { true }, { true }, 1 } do
        fails("TypeError", "Dataset." .. name .. ": drop_remainder must be "
          .. "true or false, got ", batches_by, x)
      end
    end
    fails("TypeError", "symbolic tensor", tf.function_(function(x)
      D.range(7):batch(2, x)
    end), tf.constant(true))
  end)

  it("keeps the structure", function()
    local ds = D.from_tensor_slices { x = tf.constant { { 1, 2 }, { 3, 4 } },
      y = { tf.constant { 5, 6 }, "ab" and tf.constant { 7, 8 } } }
    assert.same({ { x = { { 1, 2 }, { 3, 4 } }, y = { { 5, 6 }, { 7, 8 } } } },
      all(ds:batch(2)))
    assert.same({ { x = { { 1, 2 }, { 3, 4 } }, y = { { 5, 6 }, { 7, 8 } } } },
      all(ds:map(function(t) return t end):batch(2)))
  end)

  it("names shapes that differ", function()
    local ds = D.range(1, 3):map(function(x) return tf.zeros { x:item() } end)
    local e = fails("InvalidArgument", "float32 {1} and element 1 has float32 "
      .. "{2}", all, ds:batch(2))
    assert.truthy(tostring(e):find("in dataset stage batch", 1, true))
    assert.truthy(tostring(e):find("batch_spec.lua", 1, true))
  end)

  it("unbatch is its inverse", function()
    both(function(range)
      assert.same(count(10), all(range(10):batch(4):unbatch()))
      assert.same(count(8, 2), all(range(10):batch(4):unbatch():skip(2)))
      assert.same({ { 0, 0 }, { 1, 1 } }, all(D.zip { range(2):batch(2),
        range(2):batch(2) }:unbatch()))
    end)
    fails("InvalidArgument", "axis 0", all, D.range(3):unbatch())
  end)

  it("pads elements of different sizes", function()
    local ds = D.range(1, 4):map(function(x)
      return tf.fill({ x:item() }, x)
    end)
    assert.same({ { { 1, 0 }, { 2, 2 } }, { { 3, 3, 3 } } },
      all(ds:padded_batch(2)))
    assert.same({ { { 1, -1, -1, -1 }, { 2, 2, -1, -1 } },
      { { 3, 3, 3, -1 } } }, all(ds:padded_batch(2, {
      padded_shapes = { 4 }, padding_values = -1 })))
    fails("DataLoss", "padded_shapes", all, ds:padded_batch(3, { 2 }))
    local words = D.from_generator(function()
      local list = { { "a" }, { "b", "c" } }
      local i = 0
      return function() i = i + 1 return list[i] end
    end)
    assert.same({ { { "a", "" }, { "b", "c" } } }, all(words:padded_batch(2)))
  end)

  it("windows are data sets", function()
    local function lists(ds)
      return all(ds:flat_map(function(w) return w:batch(10) end))
    end
    assert.same({ { 0, 1, 2 }, { 3, 4, 5 }, { 6 } },
      lists(D.range(7):window(3)))
    assert.same({ { 0, 1, 2 }, { 3, 4, 5 } },
      lists(D.range(7):window(3, { drop_remainder = true })))
    assert.same({ { 0, 1, 2 }, { 1, 2, 3 }, { 2, 3 }, { 3 } },
      lists(D.range(4):window(3, 1)))
    assert.same({ { 0, 2 }, { 1, 3 } },
      lists(D.range(4):window(2, 1, 2, true)))
    assert.same({ { 0 }, { 3 }, { 6 } }, lists(D.range(7):window(1, 3)))
    assert.equal(4, D.range(4):window(3, 1):cardinality())
    assert.equal(2, D.range(4):window(2, 1, 2, true):cardinality())
  end)
end)

describe("rebatch", function()
  leaks(before_each, after_each)

  local function singles(n, empty_at)
    local out = {}
    for i = 0, n - 1 do
      if empty_at == "before" then out[#out + 1] = {} end
      out[#out + 1] = { i }
      if empty_at == "after" then out[#out + 1] = {} end
    end
    return out
  end

  it("I04 I11 into halves", function()
    both(function(range)
      local pairs_of = { { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6, 7 } }
      for _, drop in ipairs { false, true } do
        assert.same(pairs_of, all(range(8):batch(4):rebatch({ 2, 2 }, drop)))
        assert.same(pairs_of, all(range(8):batch(4):rebatch(2, drop)))
      end
    end)
  end)

  it("I05 a partial batch", function()
    assert.same({ { 0, 1 }, { 2, 3 }, { 4 } },
      all(D.range(5):batch(4):rebatch { 2, 2 }))
  end)

  it("I06 a partial batch with drop_remainder", function()
    assert.same({ { 0, 1 }, { 2, 3 } },
      all(D.range(5):batch(4):rebatch({ 2, 2 }, true)))
  end)

  it("I08 empty splits", function()
    assert.same({ { 0 }, { 1 }, { 2 }, { 3 }, {}, { 4 }, { 5 }, { 6 }, { 7 },
      {} }, all(D.range(8):batch(4):rebatch { 1, 1, 1, 1, 0 }))
  end)

  it("I09 empty first splits", function()
    local wanted = singles(8, "before")
    wanted[#wanted + 1] = {}
    assert.same(wanted, all(D.range(8):batch(4):rebatch { 0, 1 }))
  end)

  it("I10 empty last splits", function()
    assert.same(singles(8, "after"), all(D.range(8):batch(4):rebatch { 1, 0 }))
  end)

  it("I12 multiple batches", function()
    assert.same({ { { 0, 1 }, { 2, 3 } }, { { 4, 5 }, { 6, 7 } },
      { { 8, 9 }, { 10, 11 } }, { { 12, 13 }, { 14, 15 } } },
      all(D.range(16):batch(2):batch(4):rebatch { 2, 2 }))
  end)

  it("I14 static shapes", function()
    local function size(ds) return ds.element_spec.shape[1] end
    local fixed, open = D.range(8):batch(4, true), D.range(8):batch(4)
    assert.equal(2, size(fixed:rebatch { 2, 2 }))
    assert.equal(2, size(fixed:rebatch(2)))
    assert.equal(3, size(fixed:rebatch(3, true)))
    assert.equal(-1, size(fixed:rebatch(3)))
    assert.equal(2, size(open:rebatch(2, true)))
    assert.equal(-1, size(open:rebatch(2)))
    assert.equal(-1, size(fixed:rebatch { 3, 1 }))
  end)

  it("across batches of any size", function()
    local ds = D.range(7):batch(3):rebatch(2)
    assert.same({ { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6 } }, all(ds))
    assert.same({ { 0, 1, 2, 3, 4 }, { 5, 6 } },
      all(D.range(7):batch(3):rebatch(5)))
    fails("ValueError", "above 0", function() D.range(3):rebatch(0) end)
    fails("ValueError", "at least 0", function() D.range(3):rebatch(-1) end)
  end)
end)
