--- What a person sees of fused groups: the lowered graph and its costs.
local tf = require "tfdist"
local on_device = require "spec.support.on_device"
local raw = require "tfdist.core.raw"

-- Without, each op is a call, and so are copies into variables.
local FUSED = os.getenv "TFDIST_FUSION" ~= "0"

describe("a traced function's groups", function()
  local function cell(x, w)
    return tf.tanh(x * w + 1) - x
  end

  local function run()
    local f = tf.function_(cell)
    local x = tf.constant { { 0.5, -2, 3 }, { 1, 0.25, -0.125 } }
    local w = tf.constant { 2, -1, 0.5 }
    return f(x, w), f:get_concrete_function(x, w), cell(x, w)
  end

  it("are one call with the bits of the ops", function()
    local y, concrete, want = run()
    local program = concrete:graph "lowered"
    assert.truthy(program:find(FUSED and ": 1 calls" or ": 4 calls", 1, true))
    assert.are.equal(FUSED,
      program:find("fused(multiply, add, tanh, subtract)", 1, true) ~= nil)
    assert.are.equal(raw.tensor_bytes(want), raw.tensor_bytes(y))
  end)

  it("give the NaN that the op gives, of two", function()
    local x = tf.constant { 0 / 0, -(0 / 0), 1, -0.0, 0 }
    local y = tf.constant { -(0 / 0), 0 / 0, 0 / 0, 0, -0.0 }
    local function fn(a, b)
      return tf.maximum(-a, b), tf.minimum(a, -b)
    end
    local f = tf.function_(fn)
    for _, pair in ipairs { { x, y }, { y, x }, { x, x }, { y, y } } do
      local want, got = { fn(pair[1], pair[2]) }, { f(pair[1], pair[2]) }
      for i = 1, 2 do
        assert.are.equal(raw.tensor_bytes(want[i]), raw.tensor_bytes(got[i]))
      end
    end
  end)

  it("cost an operation for each op and element", function()
    local _, concrete = run()
    -- 4 ops on 6 elements; in 6 + 3 + 1 and out 6 of 4 bytes. One by one 6 + 3,
    -- 6 + 1, 6 and 6 + 6 in, 4 times 6 out.
    assert.truthy(concrete:graph "costs":find(FUSED
      and "1 calls, 24 flops, 64 bytes read and written"
      or "4 calls, 24 flops, 232 bytes read and written", 1, true))
  end)

  it("run an op alone in place where that saves memory enough", function()
    local f = tf.function_(function(x)
      return tf.cumsum(tf.nn.relu(tf.cumsum(x)))
    end)
    -- GPUs run what is alone by kernels of their own.
    local by_strips = FUSED and on_device.type == "CPU"
    for size, in_place in pairs { [64] = false, [4096] = by_strips } do
      local x = tf.range(0, size, { dtype = "float32" }) - size / 2
      local want = tf.cumsum(tf.nn.relu(tf.cumsum(x)))
      assert.are.equal(raw.tensor_bytes(want), raw.tensor_bytes(f(x)))
      local from, to = f:get_concrete_function(x):graph "lowered":match
        "relu%((a%+%d+)%) %-> (a%+%d+)"
      assert.are.equal(in_place, from == to, size)
    end
  end)

  it("write an optimizer of ops straight into its variables", function()
    local m, w = tf.Variable { 1, 2 }, tf.Variable { 8, 8 }
    local step = tf.function_(function(g)
      m:assign(m * 0.5 + g)
      w:assign_sub(m * 2)
    end)
    step(tf.constant { 1, 3 })
    step(tf.constant { 1, 3 })
    -- m: 1.5, 4 then 1.75, 5
    assert.are.same({ 1.75, 5 }, m:read_value():totable())
    assert.are.same({ 8 - 2 * 1.5 - 2 * 1.75, 8 - 2 * 4 - 2 * 5 },
      w:read_value():totable())
    local program = step:get_concrete_function(tf.constant { 1, 3 })
      :graph "lowered"
    assert.truthy(program:find(FUSED and ": 1 calls" or ": 5 calls", 1, true))
  end)

  -- Each element's new value takes others' old ones.
  it("do not write into a variable that they read in another order", function()
    local size = 40
    local start = tf.reshape(tf.sin(tf.range(0, size * size,
      { dtype = "float32" })) * 3, { size, size })
    for what, fn in pairs {
      row = function(v) return v * 2 - v[0] end,
      column = function(v) return (v + 1) * v[{ {}, { 0, 1 } }] end,
      turned = function(v) return v * 0.5 + tf.transpose(v) end,
      reversed = function(v) return tf.reverse(v, { 1 }) - v * 0.25 end,
    } do
      local v = tf.Variable(start)
      local step = tf.function_(function() v:assign(fn(v)) end)
      local want = start
      for _ = 1, 2 do
        want = fn(want)
        step()
        assert.are.equal(raw.tensor_bytes(want), raw.tensor_bytes(v:value()),
          what)
      end
    end
  end)
end)
