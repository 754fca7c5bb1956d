-- Sums made by all devices together: every dtype and size, the same bits.
local R = require "spec.support.replicas"
local tf = require "tfdist"

local SIZES = { 0, 1, 63, 1000, 8192, 8193, 30011 }
local DTYPES = { "float32", "float64", "float16", "bfloat16", "int32", "int64",
  "int8", "uint8" }

local function value(dtype, size, id)
  return tf.cast(tf.range(size) % 13 + id, dtype)
end

describe("all_reduce over devices", function()
  R.leaks(before_each, after_each)

  R.each(it, pending, "equals the sum in order", function(s, n)
    for _, dtype in ipairs(DTYPES) do
      local x = s:run(function()
        local list = {}
        for i, size in ipairs(SIZES) do
          list[i] = value(dtype, size, R.id())
        end
        return R.ctx():all_reduce("SUM", list)
      end)
      for i, size in ipairs(SIZES) do
        local expected = tf.cast(tf.cast(tf.range(size) % 13 * n
          + n * (n - 1) / 2, "int32"), dtype):bytes()
        for _, part in ipairs(s:experimental_local_results(x[i])) do
          assert.equal(expected, part:bytes())
        end
      end
    end
  end)

  R.each(it, pending, "means divide; whole numbers too", function(s, n)
    for _, dtype in ipairs { "float32", "float64", "int32" } do
      local x = s:run(function()
        return R.ctx():all_reduce("MEAN", value(dtype, 9000, R.id()))
      end)
      for _, part in ipairs(s:experimental_local_results(x)) do
        assert.near(12 + (n - 1) / 2, part[12]:item(), 1e-6)
      end
    end
  end)

  -- Past 32 MiB of inputs and outputs together; the end is no whole line.
  R.each(it, pending, "equals the sum where caches are too small",
    function(s, n)
      for dtype, bytes in pairs { float32 = 4, int64 = 8 } do
        local size = math.ceil(2 ^ 24 / n / bytes) + 37
        local x = s:run(function()
          return tf.tidy(function()
            return R.ctx():all_reduce(dtype == "int64" and "SUM" or "MEAN",
              value(dtype, size, R.id()))
          end)
        end)
        local whole = tf.range(size) % 13 * n + n * (n - 1) / 2
        if dtype == "float32" then
          whole = tf.cast(whole, dtype) / n
        end
        local expected = tf.cast(whole, dtype):bytes()
        for _, part in ipairs(s:experimental_local_results(x)) do
          assert.is_true(expected == part:bytes())
        end
      end
    end)

  R.each(it, pending, "many in a row add up", function(s, n)
    local x = s:run(function()
      local total = tf.zeros { 3 }
      for i = 1, 50 do
        local part = tf.fill({ 3 }, tf.constant(i + R.id() + 0.0))
        total = total + R.ctx():all_reduce("SUM", part)
      end
      return total
    end)
    local want = 1275 * n + 50 * n * (n - 1) / 2
    for _, part in ipairs(s:experimental_local_results(x)) do
      assert.same({ want, want, want }, part:totable())
    end
  end)

  R.each(it, pending, "rounding does not depend on who asks", function(s)
    local x = s:run(function()
      local t = tf.cast(tf.range(20000), "float32") / (7 + R.id())
      return R.ctx():all_reduce("SUM", t), t
    end)
    local _, t = s:run(function()
      return 0, tf.cast(tf.range(20000), "float32") / (7 + R.id())
    end)
    assert.equal("userdata", type(x))
    local all = s:experimental_local_results((s:run(function(own)
      return R.ctx():all_reduce("SUM", own)
    end, { t })))
    local one = s:reduce("SUM", t):bytes()
    for _, part in ipairs(all) do assert.equal(one, part:bytes()) end
  end)

  R.each(it, pending, "memory may be used again at once", function(s, n)
    s:run(function()
      for round = 1, 60 do
        tf.tidy(function()
          local x = tf.fill({ 20000 }, tf.constant(round + R.id() + 0.0))
          local sum = R.ctx():all_reduce("SUM", x)
          x:release()
          local other = tf.fill({ 20000 }, tf.constant(-1.0))
          local want = round * n + n * (n - 1) / 2
          assert.equal(want, tf.reduce_min(sum):item())
          assert.equal(want, tf.reduce_max(sum):item())
          other:release()
        end)
      end
    end)
  end)

  R.each(it, pending, "views and variables are summed too", function(s, n)
    local v = s:scope(function() return tf.Variable { 1.0, 2.0, 3.0 } end)
    local x = s:run(function()
      local t = tf.transpose(tf.reshape(tf.cast(tf.range(6), "float32"),
        { 2, 3 }))
      return R.ctx():all_reduce("SUM", { t, v })
    end)
    for _, part in ipairs(s:experimental_local_results(x[1])) do
      assert.same({ { 0, 3 * n }, { n, 4 * n }, { 2 * n, 5 * n } },
        part:totable())
    end
    assert.same({ n, 2 * n, 3 * n },
      s:experimental_local_results(x[2])[n]:totable())
  end)
end)
