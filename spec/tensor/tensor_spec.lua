--- Tensors: making, reading, properties, operators, printing.
local tf = require "tfdist"
local on_device = require "spec.support.on_device"
local raw = require "tfdist.core.raw"
local leaks = require "spec.support.leaks"
local expect = require "spec.support.expect"

local caught = expect.caught

-- 0, 1, 2, ... in a shape of two axes.
local function counting(rows, columns)
  local t = {}
  for i = 1, rows do
    t[i] = {}
    for j = 1, columns do
      t[i][j] = (i - 1) * columns + j - 1
    end
  end
  return tf.constant(t)
end

describe("tf.constant", function()
  leaks(before_each, after_each)

  it("makes float32 of numbers and bool of booleans", function()
    assert.equal("float32", tf.constant(1).dtype)
    assert.equal("float32", tf.constant({ 1, 2 }).dtype)
    assert.equal("bool", tf.constant(true).dtype)
    assert.equal("bool", tf.constant({ { true }, { false } }).dtype)
  end)

  it("takes the dtype in any case, positionally and by name", function()
    assert.equal("int32", tf.constant(1, "int32").dtype)
    assert.equal("int64", tf.constant(1, { dtype = tf.int64 }).dtype)
    assert.equal("float64", tf.constant(1, "Float64").dtype)
  end)

  it("has the shape of the nested lists", function()
    assert.same({}, tf.constant(1).shape)
    assert.same({ 3 }, tf.constant({ 1, 2, 3 }).shape)
    assert.same({ 2, 1, 2 }, tf.constant({ { { 1, 2 } }, { { 3, 4 } } }).shape)
    assert.same({ 0 }, tf.constant({}).shape)
  end)

  it("fills a shape with one value, or lays several out row-major", function()
    assert.same({ { 7, 7 }, { 7, 7 } },
      tf.constant(7, { shape = { 2, 2 } }):totable())
    assert.same({ { 1, 2 }, { 3, 4 } },
      tf.constant({ 1, 2, 3, 4 }, { shape = { 2, 2 } }):totable())
    assert.same({ { true, true } },
      tf.constant(true, { shape = { 1, 2 } }):totable())
    assert.equal("InvalidArgument",
      caught(tf.constant, { 1, 2, 3 }, { shape = { 2, 2 } }).kind)
  end)

  it("packs tensors among the leaves", function()
    local a = tf.constant({ 1, 2 }, "int32")
    local t = tf.constant { a, a }
    assert.same({ { 1, 2 }, { 1, 2 } }, t:totable())
    assert.equal("int32", t.dtype)
    assert.same({ { 1, 2 }, { 3, 4 } },
      tf.constant({ a, { 3, 4 } }):totable())
  end)

  it("refuses ragged lists, other dtypes and what is no number", function()
    assert.equal("ValueError", caught(tf.constant, { { 1 }, { 1, 2 } }).kind)
    assert.equal("TypeError", caught(tf.constant, print).kind)
    assert.equal("TypeError", caught(tf.constant, 1, "float31").kind)
    assert.equal("TypeError", caught(tf.constant, tf.constant(1), "int32").kind)
    assert.equal("TypeError", caught(tf.constant, 1.5, "int32").kind)
    assert.equal("TypeError", caught(tf.constant).kind)
  end)

  it("names the nearest option for an unknown one", function()
    local e = caught(tf.constant, 1, { dtpye = "int32" })
    assert.equal("ValueError", e.kind)
    assert.equal('constant: unknown option "dtpye"', e.message)
    assert.equal("did you mean dtype?", e.hint)
  end)
end)

describe("tf.convert_to_tensor", function()
  leaks(before_each, after_each)

  it("returns tensors as they are and reads variables", function()
    local t = tf.constant { 1, 2 }
    assert.equal(t, tf.convert_to_tensor(t))
    local v = tf.Variable { 1, 2 }
    local r = tf.convert_to_tensor(v)
    v:assign_add { 1, 1 }
    assert.same({ 1, 2 }, r:totable())
  end)

  it("takes dtype as a demand and dtype_hint as a wish", function()
    assert.equal("int32",
      tf.convert_to_tensor(1, { dtype_hint = "int32" }).dtype)
    assert.equal("float32", tf.convert_to_tensor(tf.constant(1),
      { dtype_hint = "int32" }).dtype)
    assert.equal("TypeError", caught(tf.convert_to_tensor, tf.constant(1),
      "int32").kind)
  end)

  it("makes IndexedSlices dense", function()
    local s = tf.IndexedSlices({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, { 0, 2, 0 },
      { 3, 2 })
    assert.same({ { 6, 8 }, { 0, 0 }, { 3, 4 } },
      tf.convert_to_tensor(s):totable())
  end)
end)

describe("IndexedSlices", function()
  leaks(before_each, after_each)

  it("have values, indices and a dense shape", function()
    local s = tf.IndexedSlices({ { 1, 2 } }, { 1 }, { dense_shape = { 3, 2 } })
    assert.same({ { 1, 2 } }, s.values:totable())
    assert.same({ 1 }, s.indices:totable())
    assert.equal("int32", s.indices.dtype)
    assert.same({ 3, 2 }, s.dense_shape)
    assert.equal("float32", s.dtype)
    assert.truthy(tostring(s):find("IndexedSlices float32 {3, 2}, 1 rows", 1,
      true))
  end)

  it("must fit their shape", function()
    assert.equal("InvalidArgument", caught(tf.IndexedSlices, { { 1, 2 } },
      { 0 }, { 3 }).kind)
    assert.is_nil(tf.IndexedSlices({ 1 }, { 0 }).dense_shape)
  end)
end)

describe("a tensor", function()
  leaks(before_each, after_each)

  it("knows its shape, dtype, rank, length and device", function()
    local t = counting(2, 3)
    assert.same({ 2, 3 }, t.shape)
    assert.equal("float32", t.dtype)
    assert.equal(2, t.rank)
    assert.equal(2, t.ndim)
    assert.equal(2, #t)
    assert.equal(6, t:numel())
    assert.equal(6, t:size())
    assert.equal(on_device.text
      "/job:localhost/replica:0/task:0/device:CPU:0", t.device)
    assert.equal("TypeError", caught(function()
      return #tf.constant(1)
    end).kind)
  end)

  it("gives its values as numbers, tables and bytes", function()
    assert.equal(7, tf.constant(7):item())
    assert.equal(7, tf.constant({ { 7 } }):item())
    assert.equal(4, counting(2, 3):item(4))
    assert.is_true(tf.constant(true):item())
    assert.same({ { 0, 1 }, { 2, 3 } }, counting(2, 2):totable())
    assert.equal(7, tf.constant(7):totable())
    assert.same({ 0, 1, 2, 3 }, counting(2, 2):toflat())
    assert.equal("\1\2\255", tf.constant({ 1, 2, 255 }, "uint8"):bytes())
    assert.equal("ValueError", caught(function()
      return counting(2, 2):item()
    end).kind)
    assert.equal("IndexError", caught(function()
      return counting(2, 2):item(4)
    end).kind)
  end)

  it("keeps whole numbers whole in text on both engines", function()
    assert.equal("3", tostring(tf.constant(3, "int32"):item()):gsub("%.0", ""))
    assert.equal(2, tf.constant({ 1, 2 }, "int64"):totable()[2])
  end)

  it("is not changed by assignment to fields", function()
    local t = counting(2, 2)
    assert.equal("TypeError", caught(function()
      t[0] = 1
    end).kind)
    assert.equal("TypeError", caught(function()
      t.shape = {}
    end).kind)
  end)

  it("names the nearest field for an unknown one", function()
    local e = caught(function()
      return counting(2, 2).shap
    end)
    assert.equal("KeyError", e.kind)
    assert.equal("did you mean shape?", e.hint)
    e = caught(function()
      return counting(2, 2):reshpae { 4 }
    end)
    assert.equal("did you mean reshape?", e.hint)
  end)

  it("called with a dot says so", function()
    local t = counting(2, 2)
    local e = caught(t.reshape, { 4 })
    assert.equal("TypeError", e.kind)
    assert.equal("Tensor.reshape: the first argument must be the tensor "
      .. "itself, got a table", e.message)
    assert.equal("call tensor:reshape(shape) with a colon", e.hint)
    assert.equal("TypeError", caught(t.item).kind)
  end)

  it("gives whole numbers of 64 bits exactly, where Lua has them", function()
    local x = 9007199254740993 -- 2^53 + 1
    local t = tf.constant({ x, -x }, "int64")
    for _, item in ipairs { t:item(0), t[0]:item(), -t[1]:item(),
      tf.constant(x, "int64"):item(), tf.gather(t, 0):item(),
      tf.Variable(t)[0]:item(), tf.reverse(t, { 0 })[1]:item(),
      (tf.Variable(x - 1, { dtype = "int64" }):assign_add(1)):item() } do
      assert.equal(x, item)
    end
    assert.same({ x, -x }, t:totable())
    assert.same({ x, x }, tf.fill({ 1, 2 }, tf.constant(x, "int64"))[0]
      :totable())
  end)

  it("is FailedPrecondition after release, and prints", function()
    local t = counting(2, 2)
    t:release()
    t:release()
    assert.equal("Tensor (released)", tostring(t))
    assert.equal("FailedPrecondition", caught(function()
      return t + 1
    end).kind)
    assert.equal("FailedPrecondition", caught(function()
      return t.shape
    end).kind)
  end)

  it("can be copied and moved to another device", function()
    local t = counting(2, 2)
    local c = t:clone()
    assert.same(t:totable(), c:totable())
    assert.not_equal(t, c)
    assert.same(t:totable(), t:to(on_device.at(0)):totable())
    local e = caught(function()
      return t:to "/cpu:99"
    end)
    assert.equal("InvalidArgument", e.kind)
    assert.truthy(e.message:find("/cpu:99", 1, true))
  end)

  it("iterates over rows, positions from 0", function()
    local seen = {}
    for i, row in counting(3, 2):iter() do
      seen[#seen + 1] = { i, row:totable() }
    end
    assert.same({ { 0, { 0, 1 } }, { 1, { 2, 3 } }, { 2, { 4, 5 } } }, seen)
  end)

  it("shows its elements in place where FFI is on", function()
    local t = counting(2, 2)
    if raw.ffi_enabled then
      local data = t:data()
      assert.equal(4, data.n)
      assert.equal(3, data[3])
      assert.equal(2, t[{ {}, 0 }]:data()[1])
    else
      assert.equal("NotImplementedError", caught(t.data, t).kind)
    end
  end)

  it("is told from other values", function()
    assert.is_true(tf.is_tensor(tf.constant(1)))
    assert.is_true(tf.is_tensor(tf.Variable(1)))
    assert.is_true(tf.is_tensor(tf.IndexedSlices({ 1 }, { 0 }, { 1 })))
    assert.is_false(tf.is_tensor(1))
    assert.is_false(tf.is_tensor({}))
    assert.is_false(tf.is_tensor(nil))
  end)
end)

describe("operators", function()
  leaks(before_each, after_each)

  it("work between tensors and numbers, on both sides", function()
    local a, b = tf.constant { 7, -7 }, tf.constant { 2, 2 }
    assert.same({ 9, -5 }, (a + b):totable())
    assert.same({ 5, -9 }, (a - 2):totable())
    assert.same({ 14, -14 }, (2 * a):totable())
    assert.same({ 3.5, -3.5 }, (a / b):totable())
    assert.same({ 1, 1 }, (a % b):totable())
    assert.same({ 49, 49 }, (a ^ 2):totable())
    assert.same({ -7, 7 }, (-a):totable())
    assert.same({ 9, 9 }, (3 ^ b):totable())
  end)

  it("keep the dtype of the tensor", function()
    local n = tf.constant({ 1, 2 }, "int32")
    assert.equal("int32", (n + 1).dtype)
    assert.same({ 2, 3 }, (n + 1):totable())
    local e = caught(function()
      return n + 1.5
    end)
    assert.equal("TypeError", e.kind)
    assert.truthy(e.message:find("1.5", 1, true))
  end)

  it("take nested lists", function()
    assert.same({ 2, 4 }, (tf.constant { 1, 2 } + { 1, 2 }):totable())
  end)

  it("do not order tensors", function()
    local a = tf.constant(1)
    for _, fn in ipairs {
      function() return a < a end, function() return a <= a end,
      function() return a > a end,
    } do
      local e = caught(fn)
      assert.equal("TypeError", e.kind)
      assert.truthy(e.hint:find("less", 1, true))
    end
  end)

  it("compare identity with ==", function()
    local a, b = tf.constant(1), tf.constant(1)
    assert.is_true(a == a) -- luacheck: ignore
    assert.is_false(a == b)
  end)

  it("name the argument that is no tensor", function()
    local e = caught(tf.add, tf.constant(1), print)
    assert.equal("TypeError", e.kind)
    assert.equal("add: y must be a tensor, got a function", e.message)
    e = caught(tf.add, tf.constant(1))
    assert.equal("add: missing argument y", e.message)
  end)
end)

describe("printing", function()
  local text = on_device.text

  leaks(before_each, after_each)

  local function show(x, dtype)
    return tostring(tf.constant(x, dtype))
  end

  it("shows a scalar as its value, as short as possible", function()
    assert.equal("15", show(15))
    assert.equal("0.1", show(0.1))
    assert.equal("0.1", show(0.1, "float64"))
    assert.equal("0.1", show(0.1, "float16"))
    assert.equal("0.334", show(1 / 3, "bfloat16"))
    assert.equal("0.33333334", show(1 / 3))
    assert.equal("0.3333333333333333", show(1 / 3, "float64"))
    assert.equal("-2.5", show(-2.5))
    assert.equal("true", show(true))
    assert.equal("7", show(7, "int64"))
    assert.equal("inf", show(math.huge))
    assert.equal("nan", (show(0 / 0):gsub("-", "")))
  end)

  it("shows whole numbers with all their digits", function()
    -- 2^53 + 2, which a double holds
    assert.equal("Tensor int64 {2}: 9007199254740994 -3",
      show({ 9007199254740994, -3 }, "int64"))
    assert.equal("Tensor int32 {2}: 2000000000 1",
      show({ 2000000000, 1 }, "int32"))
    assert.equal("9007199254740994", show(9007199254740994, "int64"))
    assert.matches("\n +%-3  9007199254740994\n +1  +20$",
      show({ { -3, 9007199254740994 }, { 1, 20 } }, "int64"))
    if rawget(math, "type") ~= nil then
      assert.equal("Tensor int64 {2}: 9007199254740993 -3",
        show({ 9007199254740993, -3 }, "int64"))
      assert.equal("-9223372036854775807", show(-9223372036854775807, "int64"))
    end
  end)

  it("shows a vector in one line", function()
    assert.equal("Tensor float32 {3}: -0.9384 0.2811 -1.531",
      show { -0.9384, 0.2811, -1.5310 })
    assert.equal("Tensor bool {2}: true false", show { true, false })
    assert.equal(text "Tensor float32 {0} /cpu:0 (empty)", show {})
  end)

  it("aligns the columns of a matrix", function()
    assert.equal(text "Tensor float32 {2, 3} /cpu:0\n"
      .. " -0.9384   0.2811   1.1045\n"
      .. "  0.4270  -1.5310   0.0602",
      show { { -0.9384, 0.2811, 1.1045 }, { 0.4270, -1.5310, 0.0602 } })
    assert.equal(text "Tensor int32 {2, 2} /cpu:0\n  1  10\n 20   2",
      show({ { 1, 10 }, { 20, 2 } }, "int32"))
  end)

  it("heads the blocks of higher ranks with their position", function()
    assert.equal(text
      "Tensor float32 {2, 1, 2} /cpu:0\n[0]\n 1  2\n[1]\n 3  4",
      show { { { 1, 2 } }, { { 3, 4 } } })
  end)

  it("summarises more than 1000 elements", function()
    local lines = {}
    for line in tostring(counting(50, 40)):gmatch("[^\n]+") do
      lines[#lines + 1] = line
    end
    assert.equal(8, #lines)
    assert.equal(" …", lines[5])
    assert.truthy(lines[2]:find("^ +0 +1 +2  … +37 +38 +39$"))
    assert.truthy(lines[8]:find("1960 +1961 +1962  … +1997 +1998 +1999$"))
  end)

  it("uses powers of ten where four decimals hide digits", function()
    assert.equal("Tensor float32 {2}: 1e-06 2.5e-06", show { 1e-6, 2.5e-6 })
  end)
end)
