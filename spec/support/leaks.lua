--- Each test ends with no more handles and bytes than it began with, once what
--- it queued is done: copies hold both ends.
---
--- usage, at the head of a describe: `leaks(before_each, after_each)`.
local on_device = require "spec.support.on_device"
local live = require "spec.support.live"

local KINDS = { "tensor", "variable", "slices", "tape", "walk" }
local ROUNDS = 8

-- A full collection of a test run's heap takes a tenth of a second: one for
-- each test is the usual case.
local function counts()
  on_device.settle()
  return live(KINDS)
end

local function grown(before, after)
  for key, n in pairs(after) do
    if n > before[key] then return key end
  end
end

return function(before_each, after_each)
  local before
  before_each(function()
    if before == nil then
      counts() -- finalisers may drop the last reference to other handles
      before = counts()
    end
  end)
  -- A finaliser may drop what only the next collection finds, and LuaJIT
  -- clears weak tables only of what an earlier round found dead, so chains of
  -- them take several rounds; what is held stays held in all.
  after_each(function()
    local after, key
    for _ = 1, ROUNDS do
      after = counts()
      key = grown(before, after)
      if key == nil then
        before = after -- where the next test of this describe begins
        return
      end
    end
    local was = before
    before = after -- one leak is one failure
    error(("leak: %s was %d before the test, is %d after it"):format(key,
      was[key], after[key]), 0)
  end)
end
