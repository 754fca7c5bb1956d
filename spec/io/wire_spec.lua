--- Protobuf's wire format: the examples of its documentation, and damage.
local wire = require "tfdist.io.wire"

local function fields(data)
  local out = {}
  for field, value in wire.fields(data, "x") do
    out[#out + 1] = { field, value }
  end
  return out
end

local function refuses(data, why)
  local ok, e = pcall(fields, data)
  assert.is_false(ok)
  assert.equal("DataLoss", e.kind)
  assert.matches("^x: not a valid message.*" .. why, e.message)
end

describe("a protobuf message", function()
  it("is written as the documentation says", function()
    assert.equal("\8\150\1", wire.integer(1, 150))
    assert.equal("\18\7testing", wire.bytes(2, "testing"))
    assert.equal("\0", wire.varint(0))
    assert.equal(("\255"):rep(9) .. "\1", wire.varint(-1))
    assert.equal("\254" .. ("\255"):rep(8) .. "\1", wire.varint(-2))
    assert.equal("\9\0\0\0\0\0\0\240\63", wire.double(1, 1))
    assert.equal("TypeError", select(2, pcall(wire.varint, 1.5)).kind)
  end)

  it("is read field by field", function()
    assert.same({ { 1, 150 }, { 2, "testing" }, { 3, "1234" },
      { 4, "12345678" }, { 5, -2 }, { 6, 2 ^ 53 - 1 } },
      fields("\8\150\1\18\7testing\0291234\03312345678"
        .. wire.integer(5, -2) .. wire.integer(6, 2 ^ 53 - 1)))
    assert.same({}, fields "")
    assert.same({ 1.5, -2 }, wire.unpack("float32",
      wire.pack("float32", { 1.5, -2 }), "x"))
  end)

  it("that is damaged is DataLoss", function()
    refuses("\8", "cut off")
    refuses("\8\150", "cut off")
    refuses("\8" .. ("\255"):rep(10), "too long")
    refuses("\18\7test", "beyond the end")
    refuses("\29\1\2", "beyond the end")
    refuses("\18" .. ("\255"):rep(9) .. "\1", "beyond the end")
    refuses("\0\1", "field number 0")
    refuses("\11\1", "wire type")
    refuses(7, "a number where a message should be")
    assert.equal("DataLoss",
      select(2, pcall(wire.unpack, "float64", "1234567", "x")).kind)
  end)
end)
