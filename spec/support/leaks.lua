--- Each test ends with no more handles and bytes than it began with.
---
--- usage, at the head of a describe: `leaks(before_each, after_each)`.
local raw = require "tfdist.raw"

local KINDS = { "tensor", "variable", "slices", "tape", "walk" }
local ROUNDS = 8

local flush = type(jit) == "table" and jit.flush -- luacheck: ignore 113
  or function() end

-- Compiled traces hold upvalues that never change: LuaJIT lets them go first.
-- Twice: a finaliser may drop the last reference to another handle.
local function counts()
  flush()
  raw.collect()
  raw.collect()
  local n = { bytes = raw.live_bytes() }
  for _, kind in ipairs(KINDS) do
    n[kind] = raw.live_handles(kind)
  end
  return n
end

local function grown(before, after)
  for key, n in pairs(after) do
    if n > before[key] then return key end
  end
end

return function(before_each, after_each)
  local before
  before_each(function()
    before = counts()
  end)
  -- LuaJIT clears weak tables only of what an earlier round found dead, so
  -- chains of them take several rounds; what is held stays held in all.
  after_each(function()
    local after, key
    for _ = 1, ROUNDS do
      after = counts()
      key = grown(before, after)
      if key == nil then return end
    end
    error(("leak: %s was %d before the test, is %d after it"):format(key,
      before[key], after[key]), 0)
  end)
end
