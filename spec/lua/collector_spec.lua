--- How many dropped tensors wait for Lua's collector.

local tf = require "tfdist"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"

local IS_54 = _VERSION == "Lua 5.4"

-- A program without the specs' own heap: 200000 sums, with a heap of so many
-- tables of its own. How often the collector came, and the most that waited.
local CHILD = [[
local tf = require "tfdist"
local live = require "tfdist.core.raw".live_handles
local own, x, last, most, times = {}, tf.constant { 1, 2 }, 0, 0, 0
for i = 1, %d do own[i] = { i } end
for i = 1, 200000 do
  local y = x + x
  if i %% 100 == 0 then
    local n = live "tensor"
    if n < last then times = times + 1 end
    last, most = n, math.max(n, most)
  end
  assert(y)
end
print(times, most)
]]

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

  if not IS_54 then
    -- A cycle of LuaJIT's looks at all that the library is, about 1.5 MB.
    it("comes for as many temporaries as are worth a cycle", function()
      local host = process.build .. "/tfdist-luajit -e "
      for _, own in ipairs { 0, 20000 } do
        local r = process.run(host .. process.quote(CHILD:format(own)))
        assert.equal("", r.err)
        local times, most = r.out:match "^(%d+)%s+(%d+)"
        assert.is_true(tonumber(times) <= 9, times)
        assert.is_true(tonumber(most) <= 40000, most)
      end
    end)
  end

  it("waits while the script has stopped it", function()
    local x = tf.constant { 1, 2 }
    collectgarbage "stop"
    for _ = 1, 5000 do assert(x + x) end
    assert.is_true(live() - before >= 5000)
  end)
end)
