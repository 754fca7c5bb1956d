--- How many dropped tensors wait for Lua's collector.

local tf = require "tfdist"
local raw = require "tfdist.core.raw"

local IS_54 = _VERSION == "Lua 5.4"

local function live()
  return raw.live_handles "tensor"
end

describe("the collector", function()
  local before

  before_each(function()
    collectgarbage()
    collectgarbage()
    before = live()
  end)

  after_each(function()
    collectgarbage "restart"
    collectgarbage()
    collectgarbage()
    assert.is_true(live() <= before)
  end)

  it("takes small temporaries while they are few", function()
    local x, most = tf.constant { 1, 2 }, 0
    for i = 1, 300000 do
      local y = x + x
      if i % 100 == 0 then most = math.max(most, live() - before) end
      assert(y)
    end
    -- LuaJIT's own pace: when its heap has doubled.
    assert.is_true(most < (IS_54 and 4096 or 200000), most)
  end)

  it("takes tensors that lived for a while and were dropped", function()
    local x, kept, most = tf.constant { 1, 2 }, {}, 0
    for i = 1, 400000 do
      kept[i % 4000] = x + x
      if i % 1000 == 0 then most = math.max(most, live() - before) end
    end
    assert.is_true(#kept > 0 and most < 250000, most)
  end)

  it("waits while the script has stopped it", function()
    local x = tf.constant { 1, 2 }
    collectgarbage "stop"
    for _ = 1, 5000 do assert(x + x) end
    assert.is_true(live() - before >= 5000)
  end)
end)
