-- Calls of the driver that fail one at a time, on the stand-ins: what is read
-- has its values or raises the error.
local seed = require "spec.support.seed"
local standins = require "spec.support.standins"

-- The calls that the program makes after the GPU was found: one in so many of
-- them fails, from a drawn one on.
local FIRST, LAST = 90, 300
local SHARE = os.getenv "TFD_LONG" and 1 or 5

-- Prints each value that is not what it has to be, and then "end".
local READS = [[
local tf = require "tfdist"
local function expect(want, fn)
  local ok, got = pcall(fn)
  if ok and got ~= want then print(want, got) end
end
-- Fails as everything behind it does, which are told with it.
local function tell() pcall(tf.sync_devices) end
pcall(tf.device, "/gpu:0", function()
  local x = tf.constant { 1, 2, 3 }
  expect(4, function() return (x * 2):toflat()[2] end)
  local c = tf.constant { 5, 6, 7 }
  local inside = tf.function_(function() return c * 2 end)
  local given = tf.function_(function(t) return t * 2 end)
  tell()
  for _ = 1, 2 do
    expect(5, function() return c:toflat()[1] end)
    expect(10, function() return (c * 2):toflat()[1] end)
    expect(10, function() return inside():toflat()[1] end)
    expect(10, function() return given(c):toflat()[1] end)
  end
  local v = tf.Variable { 1, 2 }
  local was = 1
  tell()
  for _ = 1, 2 do expect(1, function() return v:toflat()[1] end) end
  if pcall(v.assign, v, { 5, 6 }) and pcall(tf.sync_devices) then was = 5 end
  for _ = 1, 2 do expect(was, function() return v:toflat()[1] end) end
end)
print "end"
]]

describe("calls of the driver that fail #once", function()
  if not standins.exists(standins.FOLDER .. "/libcuda.so.1")
     or not standins.exists(standins.CUDA) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  -- 2 is out of memory, which the next call need not be; after 700 all fail;
  -- 721 is none that the library knows of.
  for _, code in ipairs { 2, 700, 721 } do
    it(("leave no wrong values: error %d"):format(code), function()
      for call = FIRST + seed % SHARE, LAST, SHARE do
        local r = standins.run(READS, ("TFD_STANDIN_DEVICES=1 "
          .. "TFD_STANDIN_MODE=late TFD_STANDIN_FAIL=%d@%d"):format(code, call))
        assert.equal("end\n", r.out, ("at call %d: %s"):format(call, r.err))
      end
    end)
  end

  it("say which GPU it was", function()
    local text = [[
      local tf = require "tfdist"
      pcall(tf.device, "/gpu:0", function() return tf.ones { 2 } * 2 end)
      for _ = 1, 3 do
        local ok, e = pcall(tf.device, "/gpu:1", function()
          return (tf.constant { 1, 2 } * 2):item(0)
        end)
        print(ok and "" or e.message)
      end
    ]]
    local told = 0
    for call = 170 + seed % 4, 290, 4 do -- the first ones find the GPUs
      local out = standins.run(text, "TFD_STANDIN_MODE=late TFD_STANDIN_FAIL="
        .. (call % 8 < 4 and "2@" or "700@") .. call).out
      for line in out:gmatch "[^\n]+" do
        told = told + 1
        assert.matches("^[^/]*/gpu:[01][^/]*$", line, nil, nil, "at " .. call)
      end
    end
    assert.is_true(told > 0, "no failure was seen")
  end)
end)
