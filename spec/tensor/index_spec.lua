--- Positions and slices, against plain Lua loops.
local tf = require "tfdist"
local leaks = require "spec.support.leaks"
local expect = require "spec.support.expect"

local caught = expect.caught

-- t[i][j] = 10 i + j in Lua tables counted from 0, and as a tensor.
local ROWS, COLUMNS = 4, 5

local function matrix()
  local t = {}
  for i = 0, ROWS - 1 do
    t[i + 1] = {}
    for j = 0, COLUMNS - 1 do
      t[i + 1][j + 1] = 10 * i + j
    end
  end
  return tf.constant(t)
end

-- Positions that Python's begin:end:step takes, from the definition.
local function python_range(size, b, e, step)
  local list = {}
  step = step or 1
  if step > 0 then
    b, e = b or 0, e or size
    b = b < 0 and math.max(b + size, 0) or math.min(b, size)
    e = e < 0 and math.max(e + size, 0) or math.min(e, size)
    while b < e do
      list[#list + 1] = b
      b = b + step
    end
  else
    b = b == nil and size - 1 or b < 0 and math.max(b + size, -1)
      or math.min(b, size - 1)
    e = e == nil and -1 or e < 0 and math.max(e + size, -1)
      or math.min(e, size - 1)
    while b > e do
      list[#list + 1] = b
      b = b + step
    end
  end
  return list
end

describe("t[i]", function()
  leaks(before_each, after_each)

  it("is row i, from 0 or from the end", function()
    local t = matrix()
    assert.same({ 10, 11, 12, 13, 14 }, t[1]:totable())
    assert.same({ 30, 31, 32, 33, 34 }, t[-1]:totable())
    assert.equal(23, t[2][3]:item())
  end)

  it("is an IndexError outside, with value and size", function()
    local t = matrix()
    for _, i in ipairs { 4, -5, 100 } do
      local e = caught(function()
        return t[i]
      end)
      assert.equal("IndexError", e.kind)
      assert.truthy(e.message:find(tostring(i), 1, true))
      assert.truthy(e.message:find("size 4", 1, true))
    end
    assert.equal("IndexError", caught(function()
      return tf.constant(1)[0]
    end).kind)
  end)

  it("needs a whole number", function()
    local e = caught(function()
      return matrix()[1.5]
    end)
    assert.equal("TypeError", e.kind)
    assert.truthy(e.message:find("1.5", 1, true))
  end)
end)

describe("t[{ ... }]", function()
  leaks(before_each, after_each)

  it("takes one position for each axis", function()
    local t = matrix()
    assert.equal(23, t[{ 2, 3 }]:item())
    assert.equal(34, t[{ -1, -1 }]:item())
    assert.same({ 20, 21, 22, 23, 24 }, t[{ 2 }]:totable())
  end)

  it("takes half-open ranges, whole axes and positions together", function()
    local t = matrix()
    assert.same({ 14, 24 }, t[{ { 1, 3 }, -1 }]:totable())
    assert.same({ 3, 13, 23, 33 }, t[{ {}, 3 }]:totable())
    assert.same({ 2, 5 }, t[{ { 1, 3 }, {}, n = 2 }].shape)
    assert.same({ 4, 2 }, t[{ nil, { 3 }, n = 2 }].shape)
    assert.same({ 2, 5 }, t[{ { 1, 3 } }].shape)
  end)

  it("agrees with Python for every range and step", function()
    local t = tf.constant { 0, 1, 2, 3, 4 }
    for b = -6, 7 do
      for e = -6, 7 do
        for _, step in ipairs { 1, 2, 3, -1, -2 } do
          -- 7 stands for an end left open.
          local from = b ~= 7 and b or nil
          local to = e ~= 7 and e or nil
          assert.same(python_range(5, from, to, step),
            t[{ { from, to, step } }]:totable())
        end
      end
    end
  end)

  it("inserts axes with tf.newaxis and skips axes with \"...\"", function()
    local t = matrix()
    assert.same({ 1, 4, 5 }, t[tf.newaxis].shape)
    assert.same({ 4, 1, 5 }, t[{ {}, tf.newaxis }].shape)
    assert.same({ 4, 5, 1 }, t[{ "...", tf.newaxis }].shape)
    assert.same({ 4 }, t[{ "...", 2 }].shape)
    assert.same({ 2, 12, 22, 32 }, t[{ "...", 2 }]:totable())
    assert.same({ 1, 5, 1 }, t[{ tf.newaxis, 0, "...", tf.newaxis }].shape)
    assert.same({ 4, 5 }, t["..."].shape)
  end)

  it("takes scalar integer tensors as positions", function()
    assert.equal(23, matrix()[{ tf.constant(2, "int32"), 3 }]:item())
  end)

  it("takes scalars as parts of ranges", function()
    local t = tf.range(6)
    local function scalar(x) return x and tf.constant(x, "int32") end
    for _, r in ipairs { { 1, 4 }, { 0, -1 }, { 5, 0, -2 }, { nil, 3 },
      { -2, nil }, { 0, 6, 3 } } do
      local want = {}
      for _, i in ipairs(python_range(6, r[1], r[2], r[3])) do
        want[#want + 1] = i
      end
      assert.same(want, t[{ { scalar(r[1]), scalar(r[2]), scalar(r[3]) } }]
        :totable())
    end
    local v = tf.Variable(2, { dtype = "int64" })
    assert.same({ 0, 1 }, t[{ { 0, v } }]:totable())
    for shown, bad in pairs {
      ["must be a whole number, got 1.5"] = tf.constant(1.5),
      ["must be a whole number, got true"] = tf.constant(true),
      ["must be a scalar, got shape {2}"] = tf.constant { 1, 2 },
    } do
      local e = caught(function() return t[{ { 0, bad } }] end)
      assert.equal("TypeError", e.kind)
      assert.is_truthy(e.message:find(shown, 1, true), e.message)
    end
  end)

  it("says what to write where a graph does not know a range", function()
    local x, i = tf.range(6), tf.constant(2, "int32")
    for shown, fn in pairs {
      ["a part of the range for axis 0 of a tensor of shape {6} is a scalar "
        .. "(int32) that only a call"] =
        function(at) return x[{ { 0, at } }] end,
      ["a part of the range for axis 0"] =
        function(at) return x[{ { 0, 6, at } }] end,
      ["a part of the range for axis 1"] =
        function(at) return matrix()[{ {}, { at, 3 } }] end,
    } do
      local e = caught(tf.function_(fn), i)
      assert.equal("NotImplementedError", e.kind)
      assert.is_truthy(e.message:find(shown, 1, true), e.message)
      assert.is_truthy(e.hint:find("tf.gather", 1, true))
    end
    assert.same({ 2, 3, 4 }, tf.function_(function(at)
      return tf.gather(x, at + tf.range(3))
    end)(i):totable())
  end)

  it("refuses too many positions, unknown keys and a step of 0", function()
    local t = matrix()
    assert.equal("IndexError", caught(function()
      return t[{ 0, 0, 0 }]
    end).kind)
    assert.equal("IndexError", caught(function() return t[{ {}, 5 }] end).kind)
    assert.equal("ValueError", caught(function() return t[{ { 0, 1, 0 } }] end)
      .kind)
    assert.equal("ValueError", caught(function()
      return t[{ "...", "..." }]
    end).kind)
    assert.equal("TypeError", caught(function() return t[{ a = 1 }] end).kind)
    assert.equal("TypeError", caught(function() return t[{ print }] end).kind)
    assert.equal("TypeError", caught(function() return t[print] end).kind)
  end)

  it("works on variables, whose value it reads", function()
    local v = tf.Variable { { 1, 2 }, { 3, 4 } }
    assert.same({ 3, 4 }, v[1]:totable())
    assert.equal(2, v[{ 0, -1 }]:item())
  end)
end)

describe("t[tensor]", function()
  leaks(before_each, after_each)

  it("gathers rows by integer tensors", function()
    local t = matrix()
    assert.same({ { 20, 21, 22, 23, 24 }, { 0, 1, 2, 3, 4 } },
      t[tf.constant({ 2, 0 }, "int32")]:totable())
    assert.same({ 10, 11, 12, 13, 14 },
      t[tf.constant(1, "int64")]:totable())
  end)

  it("selects by boolean tensors", function()
    local t = matrix()
    assert.same({ { 0, 1, 2, 3, 4 }, { 30, 31, 32, 33, 34 } },
      t[tf.constant { true, false, false, true }]:totable())
  end)

  it("refuses other dtypes", function()
    assert.equal("TypeError", caught(function()
      return matrix()[tf.constant { 1, 2 }]
    end).kind)
  end)
end)
