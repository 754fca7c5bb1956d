--- pairs, for the library's own loops and for scripts inside the host.
---
--- LuaJIT (as of 2022, in Debian 12) compiles a loop that the built-in next
--- drives wrongly now and then: it ends early, or begins once more with a key
--- that is none of the table's. The interpreter of such a loop is a fast way of
--- its own, which no other iterator takes; a call of next is compiled rightly.
local rawequal, type = rawequal, type
local next, pairs = next, pairs

local jit = rawget(_G, "jit")

if jit == nil then
  return pairs
end

-- Compiled calls of next leave the key in a cell that the following call writes;
-- until July 2022 an instruction that compares keys could read that cell late,
-- until November 2023 one could read a table before a new key moved it. Both do
-- so only as loads within instructions, which this switches off.
local LOADS_HELD_SINCE = 1699920000 -- of the versions 2.1.SECONDS
if jit.opt ~= nil
  and (tonumber(jit.version:match "%.(%d+)$") or 0) < LOADS_HELD_SINCE then
  jit.opt.start("-fuse")
end

local function step(t, key)
  return next(t, key)
end

return function(t)
  if type(t) ~= "table" then
    return pairs(t) -- whose error names the line of the loop
  end
  local iterator, state, first = pairs(t)
  return rawequal(iterator, next) and step or iterator, state, first
end
