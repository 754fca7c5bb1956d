--- Each test ends with the handles and bytes it began with.
---
--- usage, at the head of a describe: `leaks(before_each, after_each)`.
local raw = require "tfdist.raw"

local KINDS = { "tensor", "variable", "slices", "tape", "walk" }

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

return function(before_each, after_each)
  local before
  before_each(function()
    before = counts()
  end)
  after_each(function()
    local after = counts()
    for key, n in pairs(after) do
      if n ~= before[key] then
        error(("leak: %s was %d before the test, is %d after it"):format(key,
          before[key], n), 0)
      end
    end
  end)
end
