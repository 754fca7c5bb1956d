--- pairs, for the library's own loops and for scripts inside the host.
---
--- LuaJIT (as of 2022, in Debian 12) compiles a loop that the built-in next
--- drives wrongly now and then: it ends early, or begins once more with a key
--- that is none of the table's. The interpreter of such a loop is a fast way of
--- its own, which no other iterator takes; a call of next is compiled rightly.
local rawequal, type = rawequal, type
local next, pairs = next, pairs

if rawget(_G, "jit") == nil then
  return pairs
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
