local leaks = require "spec.support.leaks"
local raw = require "tfdist.core.raw"

-- Lua 5.4's part of the library, absent on LuaJIT.
local math = rawget(_G, "math")
local from, to = raw.tensor_from_table, raw.tensor_to_table

local function dims(t)
  local list = {}
  for i = 0, raw.tensor_rank(t) - 1 do
    list[i + 1] = raw.tensor_dim(t, i)
  end
  return list
end

local function failure(...)
  local ok, e = pcall(from, ...)
  assert.is_false(ok)
  return e
end

describe("tensors from tables", function()
  leaks(before_each, after_each)

  it("believes the field n no further than elements go", function()
    for _, n in ipairs { 5000, 2 ^ 31, 2 ^ 40, 2 ^ 53 } do
      local e = failure { 1, 2, n = n }
      assert.equal("TypeError", e.kind)
      assert.truthy(e.message:find("element [3]", 1, true), e.message)
    end
  end)

  it("take shape from nesting and dtype from the leaves", function()
    for _, case in ipairs {
      { 5, {}, "float32" }, { true, {}, "bool" }, { { 1, 2 }, { 2 }, "float32" },
      { { { 1 }, { 2 }, { 3 } }, { 3, 1 }, "float32" }, { {}, { 0 }, "float32" },
      { { {}, {} }, { 2, 0 }, "float32" }, { { true, false }, { 2 }, "bool" },
      { { { { { { { { { 7 } } } } } } } }, { 1, 1, 1, 1, 1, 1, 1, 1 },
        "float32" },
    } do
      local t = from(case[1])
      assert.same(case[2], dims(t))
      assert.equal(case[3], raw.tensor_dtype(t))
      assert.same(case[1], to(t))
    end
  end)

  it("obey a dtype that is given", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16",
      "int8", "int16", "int32", "int64", "uint8" } do
      local t = from({ { 1, 2 }, { 3, 100 } }, dtype)
      assert.equal(dtype, raw.tensor_dtype(t))
      assert.same({ { 1, 2 }, { 3, 100 } }, to(t))
      assert.same({ 1, 2, 3, 100 }, raw.tensor_to_flat(t))
      assert.equal(3, raw.item(t, 2))
    end
    assert.equal("TypeError", failure({ 1 }, "float").kind)
  end)

  it("keep the bounds of integers and no more", function()
    for dtype, range in pairs { int8 = { -128, 127 }, uint8 = { 0, 255 },
      int16 = { -32768, 32767 }, int32 = { -2 ^ 31, 2 ^ 31 - 1 },
      int64 = { -2 ^ 53, 2 ^ 53 } } do
      assert.same(range, to(from(range, dtype)))
      if dtype ~= "int64" then
        assert.equal("TypeError", failure({ range[1] - 1 }, dtype).kind)
        assert.equal("TypeError", failure({ range[2] + 1 }, dtype).kind)
      end
    end
    assert.equal("TypeError", failure({ 1.5 }, "int32").kind)
    assert.equal("TypeError", failure({ 0 / 0 }, "int32").kind)
    assert.equal("TypeError", failure({ 1 / 0 }, "int64").kind)
  end)

  it("keep all 64 bits where Lua has them", function()
    if not math.maxinteger then
      return
    end
    local list = { math.maxinteger, math.mininteger, 2 ^ 53 + 1 }
    list[3] = math.tointeger(2 ^ 53) + 1
    assert.same(list, to(from(list, "int64")))
    assert.equal("integer", math.type(to(from({ 3 }, "int32"))[1]))
    assert.equal("integer", math.type(raw.item(from(3, "uint8"))))
    assert.equal("float", math.type(raw.item(from(3))))
  end)

  it("keep special floats", function()
    local t = to(from({ 1 / 0, -1 / 0, 0 / 0 }, "float16"))
    assert.equal(1 / 0, t[1])
    assert.equal(-1 / 0, t[2])
    assert.is_true(t[3] ~= t[3])
  end)

  it("name the place of a ragged row", function()
    local e = failure { { 1, 2 }, { 3 } }
    assert.equal("ValueError", e.kind)
    assert.matches("element %[2%] of value has 1 elements.*have 2", e.message)
    e = failure { { { 1 }, { 2 } }, { { 3 }, { 4, 5 } } }
    assert.matches("element %[2%]%[2%] of value has 2", e.message)
    e = failure { { 1 }, 2 }
    assert.matches("element %[2%] of value is a number", e.message)
  end)

  it("name the place of a leaf of another type", function()
    local e = failure { { 1, 2 }, { 3, "x" } }
    assert.equal("TypeError", e.kind)
    assert.matches("element %[2%]%[2%] of value must be a number.*got a string",
      e.message)
    assert.equal("TypeError", failure({ 1, true }).kind)
    assert.equal("TypeError", failure({ true, 1 }).kind)
    assert.equal("TypeError", failure({ true }, "float32").kind)
    assert.equal("TypeError", failure({ 1 }, "bool").kind)
    assert.equal("TypeError", failure("text").kind)
    assert.equal("TypeError", failure(nil).kind)
    assert.equal("TypeError", failure({ print }).kind)
    assert.equal("TypeError", failure({ 1, { 2 } }).kind)
  end)

  it("see holes through n", function()
    local e = failure { 1, nil, 3, n = 3 }
    assert.equal("TypeError", e.kind)
    assert.matches("%[2%].*got nil", e.message)
    assert.same({ 1, 2 }, to(from { 1, 2, 3, n = 2 }))
  end)

  it("end at eight levels and at tables inside themselves", function()
    local deep = 1
    for _ = 1, 9 do
      deep = { deep }
    end
    assert.equal("ValueError", failure(deep).kind)
    local loop = {}
    loop[1] = loop
    assert.matches("contains itself", failure(loop).message)
    local deeper = 1
    for _ = 1, 1e5 do
      deeper = { deeper }
    end
    assert.equal("ValueError", failure(deeper).kind)
  end)

  it("leave lists of handles to the caller", function()
    local t = from { 1 }
    local result, what = from { t, t }
    assert.is_nil(result)
    assert.equal("handle", what)
    result, what = from { 1, t }
    assert.is_nil(result)
    assert.equal("handle", what)
  end)

  it("do not run metamethods", function()
    local proxy = setmetatable({ 1, 2 }, {
      __index = error, __len = error, __newindex = error,
    })
    assert.same({ 1, 2 }, to(from(proxy)))
  end)
end)

describe("single elements", function()
  leaks(before_each, after_each)

  it("need a position unless there is just one", function()
    assert.equal(4, raw.item(from(4)))
    assert.equal(4, raw.item(from { { 4 } }))
    local ok, e = pcall(raw.item, from { 1, 2 })
    assert.is_false(ok)
    assert.equal("ValueError", e.kind)
    for _, i in ipairs { -1, 2, 1e9 } do
      ok, e = pcall(raw.item, from { 1, 2 }, i)
      assert.is_false(ok)
      assert.equal("IndexError", e.kind)
    end
    assert.equal("TypeError", select(2, pcall(raw.item, from { 1 }, 0.5)).kind)
  end)

  it("are booleans and numbers as the dtype says", function()
    assert.is_true(raw.item(from { false, true }, 1))
    assert.equal(2.5, raw.item(from { 2.5 }, 0))
    assert.equal(-3, raw.item(from({ -3 }, "int8"), 0))
  end)

  it("follow a view's strides", function()
    local t = from { { 1, 2, 3 }, { 4, 5, 6 } }
    local r = raw.op_run(raw.op_find("reshape"), { t },
      { 2, 3, 2, 0, 0, 0, 0, 0, 0 })
    assert.same({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, to(r))
    assert.equal(4, raw.item(r, 3))
  end)
end)
