-- Cases G and H: reductions and gathers.
local R = require "spec.support.replicas"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local at = require("spec.support.on_device").at

local D = tf.distribute
local fails, locals, list = R.fails, R.locals, R.list

-- 0 + 1 + ... + n
local function upto(n) return n * (n + 1) / 2 end

local function slices(value, row, rows)
  return tf.IndexedSlices(tf.constant { { value } }, { row }, { rows, 1 })
end

describe("reduce", function()
  R.leaks(before_each, after_each)

  R.each(it, pending, "G01 the sum of ones is N", function(s, n)
    local v = s:experimental_distribute_values_from_function(function()
      return tf.constant(1.0)
    end)
    assert.equal(n, s:reduce("SUM", v, nil):item())
    s:scope(function() assert.equal(n, s:reduce("SUM", v):item()) end)
    local numbers = s:run(function() return R.id() + 1 end)
    assert.equal(upto(n), s:reduce("sum", numbers):item())
    assert.equal("float32", s:reduce("sum", numbers).dtype)
  end)

  R.each(it, pending, "G02 along an axis", function(s, n)
    local v = s:run(function() return tf.constant { 1, 2 } end)
    assert.equal(1.5, s:reduce("MEAN", v, 0):item())
    assert.equal(3 * n, s:reduce("SUM", v, { axis = 0 }):item())
    assert.equal(3 * n, s:reduce("SUM", v, -1):item())
  end)

  R.each(it, pending, "G04 structures leaf by leaf", function(s, n)
    local x = s:run(function()
      return { tf.constant(3.0) + 1, tf.constant(3.0) - 1 }
    end)
    local r = s:reduce("SUM", x)
    assert.equal(4 * n, r[1]:item())
    assert.equal(2 * n, r[2]:item())
  end)

  R.each(it, pending, "G05 G06 uneven shares weigh by size", function(s, n)
    for _, dtype in ipairs { "float32", "int32", "float64", "int64" } do
      local v = s:run(function()
        return tf.fill({ R.id() + 1 }, tf.constant(R.id(), dtype))
      end)
      local total = 0
      for r = 0, n - 1 do total = total + r * (r + 1) end
      assert.equal(total, s:reduce("SUM", v, 0):item())
      assert.near(total / upto(n), s:reduce("MEAN", v, 0):item(), 1e-6)
    end
    local empty = s:run(function()
      return tf.ones { R.id() == 0 and 2 or 0 }
    end)
    assert.equal(1, s:reduce("MEAN", empty, 0):item())
  end)

  R.each(it, pending, "G08 keeps the other axes", function(s, n)
    local v = s:run(function() return tf.ones { R.id() == 0 and 2 or 1, 2 } end)
    assert.same({ 1, 1 }, s:reduce("MEAN", v, 0):totable())
    assert.equal(n, s:reduce("SUM", s:run(function()
      return tf.ones { 2, 2 } / 4
    end), { axis = { 0, 1 } }):item())
  end)

  R.each(it, pending, "P08 axes are checked", function(s)
    local v = s:run(function() return tf.ones { 2 } end)
    fails("ValueError", "axis 1", s.reduce, s, "SUM", v, 1)
    fails("TypeError", "axis", s.reduce, s, "SUM", v, "0")
    fails("InvalidArgument", "match", s.reduce, s, "SUM",
      s:run(function() return tf.ones { R.id() + 1 } end))
  end)

  R.each(it, pending, "plain values: only means and zero", function(s)
    assert.equal(0, s:reduce("SUM", 0):item())
    assert.equal(5, s:reduce("MEAN", 5):item())
    fails("ValueError", "A non-DistributedValues value 5 cannot be reduced",
      s.reduce, s, "SUM", 5)
  end)

  R.each(it, pending, "G09 G10 all_reduce of structures", function(s, n)
    for op, by in pairs { SUM = 1, mean = n } do
      local a, b = s:run(function()
        local r = R.ctx():all_reduce(op, {
          tf.constant(2.0 * R.id() + 1), { x = tf.constant { 39.0, R.id() } } })
        return r[1], r[2].x
      end)
      assert.same(list(n, n * n / by), locals(s, a))
      assert.same(list(n, function() return { 39 * n / by,
        upto(n - 1) / by } end), locals(s, b))
      assert.same(s.extended.worker_devices,
        locals(s, s:run(function(x) return x.device end, { a })))
    end
  end)

  R.each(it, pending, "G11 gradients of all_reduce", function(s, n)
    local function gradient(op)
      return locals(s, s:run(function()
        local x = tf.constant(1.0)
        local tape, y = tf.GradientTape(function(t)
          t:watch(x)
          return R.ctx():all_reduce(op, x) * (2 * R.id() + 1)
        end)
        return tape:gradient(y, x)
      end))
    end
    assert.same(list(n, n * n), gradient "SUM")
    assert.same(list(n, n), gradient "MEAN")
  end)

  it("G12 one device: all_reduce changes nothing", function()
    local s = D.OneDeviceStrategy(at(0))
    s:run(function()
      local r = R.ctx():all_reduce("MEAN", { tf.constant(2.0) })
      assert.equal(2, r[1]:item())
      local x = tf.constant(1.0)
      local tape, y = tf.GradientTape(function(t)
        t:watch(x)
        return R.ctx():all_reduce("SUM", x) * 4
      end)
      assert.equal(4, tape:gradient(y, x):item())
    end)
  end)

  R.each(it, pending, "G14-G16 slices stay slices", function(s, n)
    local r = s:reduce("MEAN", s:run(function() return slices(1, 0, 5) end))
    assert.equal("slices", raw.kind(r))
    assert.same({ { 1 }, { 0 }, { 0 }, { 0 }, { 0 } }, r:to_dense():totable())
    local a, b, c = s:run(function()
      local t = R.ctx():all_reduce("SUM",
        { tf.constant(1.0), slices(2, 1, 2), tf.constant(3.0) })
      return t[1], t[2], t[3]
    end)
    assert.same(list(n, n), locals(s, a))
    assert.same(list(n, 3 * n), locals(s, c))
    for _, part in ipairs(s:experimental_local_results(b)) do
      assert.equal("slices", raw.kind(part))
      assert.same({ { 0 }, { 2 * n } }, part:to_dense():totable())
      assert.equal(n, #part.indices)
    end
  end)

  R.each(it, pending, "G21 reduce_to and broadcast_to any destination",
    function(s, n)
      local x = s:run(function() return tf.constant(R.id() + 1.0) end)
      local v = s:scope(function() return tf.Variable(0.0) end)
      local on_all = s.extended:reduce_to("SUM", x, x)
      assert.same(list(n, upto(n)), locals(s, on_all))
      assert.same(list(n, upto(n) / n),
        locals(s, s.extended:reduce_to("MEAN", x, v)))
      local there = s.extended:reduce_to("SUM", x, at(n - 1))
      assert.equal(upto(n), there:item())
      assert.equal(s.extended.worker_devices[n], there.device)
      assert.equal(upto(n) + 0, (on_all + 0):item())
      local batch = s.extended:batch_reduce_to("SUM", { { x, v }, { x, x } })
      assert.same(list(n, upto(n)), locals(s, batch[2]))
      local b = s.extended:broadcast_to(tf.constant(1.0), v)
      assert.same(list(n, 1), locals(s, b))
      assert.equal(7, s.extended:broadcast_to(7, v))
      fails("AssertionError", "destinations", s.extended.reduce_to, s.extended,
        "SUM", x, { v })
      fails("AssertionError", "destinations", s.extended.broadcast_to,
        s.extended, tf.constant(1.0), nil)
      fails("AssertionError", "no sum", s.reduce, s, "SUM", on_all)
      assert.equal(upto(n), s:reduce("MEAN", on_all):item())
    end)

  R.each(it, pending, "half types add up in float32, the same bits everywhere",
    function(s, n)
      -- Beside 2048 a 1 is lost in float16, which rounds to the even neighbour.
      local sums = s:run(function()
        return R.ctx():all_reduce("SUM", tf.cast(tf.constant(
          R.id() == 0 and 2048 or 1), "float16"))
      end)
      local want = ({ nil, 2048, 2050, 2052, 2052 })[n]
      assert.same(R.list(n, function() return want end), R.locals(s, sums))
      for _, dtype in ipairs { "float16", "bfloat16", "float32" } do
        local x = s:run(function()
          local sum = R.ctx():all_reduce("SUM",
            tf.cast(tf.constant { 1.0, 1 / 3, 1e-3 } * (R.id() + 1), dtype))
          assert.equal(dtype, sum.dtype)
          return sum:bytes()
        end)
        assert.equal("string", type(x))
        assert.is_true(n > 1)
      end
    end)

  R.each(it, pending, "read of a variable on read", function(s, n)
    s:scope(function()
      local v = tf.Variable(1.0, { synchronization = "ON_READ",
        aggregation = "SUM" })
      assert.equal(n, s:reduce("SUM", v):item())
    end)
  end)
end)

describe("gather", function()
  R.leaks(before_each, after_each)

  local function both(s, value, axis, check)
    check(s:gather(s:run(value), axis))
    local all = s:run(function()
      return R.ctx():all_gather(value(), axis)
    end)
    for _, part in ipairs(s:experimental_local_results(all)) do check(part) end
  end

  R.each(it, pending, "H01 H02 H09 joins along any axis", function(s, n)
    both(s, function() return tf.constant { 1, 2, 3 } end, 0, function(t)
      assert.same({ 3 * n }, t.shape)
    end)
    both(s, function() return tf.constant { { 1, 2, 3 } } end, 0, function(t)
      assert.same({ n, 3 }, t.shape)
    end)
    both(s, function() return tf.constant { { 1, 2, 3 } } end, -1, function(t)
      assert.same({ 1, 3 * n }, t.shape)
    end)
  end)

  R.each(it, pending, "H04 H05 H10 sizes may differ along the axis",
    function(s, n)
      both(s, function() return tf.ones { R.id() + 1, 1 } end, 0, function(t)
        assert.same({ upto(n), 1 }, t.shape)
      end)
      both(s, function() return tf.ones { 1, R.id() + 1 } end, 1, function(t)
        assert.same({ 1, upto(n) }, t.shape)
      end)
    end)

  R.each(it, pending, "H06 H08 other sizes and ranks must agree", function(s)
    local x = s:run(function() return tf.ones { 1, R.id() + 1 } end)
    fails("InvalidArgument", "replica 1", s.gather, s, x, 0)
    local y = s:run(function()
      return R.id() == 0 and tf.ones { 1 } or tf.ones { 1, 1 }
    end)
    fails("InvalidArgument", "ranks", s.gather, s, y, 0)
    fails("RuntimeError", "cross-replica", s.run, s, function()
      s:gather(tf.ones { 1 }, 0)
    end)
    fails("NotImplementedError", "gathered", s.gather, s,
      s:run(function() return slices(1, 0, 2) end), 0)
  end)

  R.each(it, pending, "H11 H12 nested values", function(s, n)
    s:run(function()
      local r = R.ctx():all_gather({ tf.ones { 1, R.id() + 1 },
        tf.constant { { 1, 2 } } }, 1)
      assert.same({ 1, upto(n) }, r[1].shape)
      assert.same({ 1, 2 * n }, r[2].shape)
    end)
  end)

  R.each(it, pending, "H14 H15 gradients of all_gather", function(s, n)
    local g = s:run(function()
      local x = tf.constant { { 3 }, { 5 } }
      local tape, y = tf.GradientTape(function(t)
        t:watch(x)
        return R.ctx():all_gather({ x, x * 2 }, 1)[1] * (R.id() + 1)
      end)
      return tape:gradient(y, x)
    end)
    assert.same(list(n, function() return { { upto(n) }, { upto(n) } } end),
      locals(s, g))
  end)

  it("plain values are returned as they are", function()
    local s = R.mirrored(1)
    local x = tf.ones { 2 }
    assert.equal(x, s:gather(x, 0))
  end)
end)
