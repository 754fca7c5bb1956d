--- NaNs of any bits are numbers in Lua. LuaJIT tells its types by the bits of
--- NaNs: one that comes out of memory as it is would become something else.
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

-- { 1.5, NaN, NaN, NaN } as an idx file: all bits set, a negative quiet one,
-- a signalling one.
local function file_of(type, one_and_a_half, nans)
  return process.file(("\0\0%s\1\0\0\0\4%s%s"):format(type, one_and_a_half,
    nans))
end

local FILES = {
  float32 = { "\13", "\63\192\0\0", "\255\255\255\255" .. "\255\192\0\0"
    .. "\127\128\0\1" },
  float64 = { "\14", "\63\248\0\0\0\0\0\0", ("\255"):rep(8)
    .. "\255\250\0\0\0\0\18\52" .. "\127\240\0\0\0\0\0\1" },
}

describe("a NaN of any bits", function()
  for dtype, parts in pairs(FILES) do
    it("is a number, " .. dtype, function()
      local path = file_of(parts[1], parts[2], parts[3])
      local t = tf.identity(raw.read_idx(path))
      os.remove(path)
      assert.equal(dtype, t.dtype)
      assert.equal(1.5, t:item(0))
      local list = t:totable()
      for i = 1, 3 do
        for _, x in ipairs { t:item(i), t[i]:item(), list[i + 1] } do
          assert.equal("number", type(x))
          assert.is_true(x ~= x)
        end
        assert.matches("nan", tostring(t[i]))
      end
      assert.matches("1%.5 nan nan nan", tostring(t))
      if rawget(_G, "jit") ~= nil then
        local view = require "tfdist.ffi".view(t)
        assert.equal(1.5, view[0])
        for i = 1, 3 do
          assert.equal("number", type(view[i]))
          assert.is_true(view[i] ~= view[i])
        end
      end
    end)
  end
end)
