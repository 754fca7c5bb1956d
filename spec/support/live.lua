--- What is alive: native bytes, and handles by kind.
local raw = require "tfdist.core.raw"

local flush = type(jit) == "table" and jit.flush -- luacheck: ignore 113
  or function() end

--- Counts after a full collection. Compiled traces hold upvalues that never
--- change: LuaJIT lets them go first.
---@param kinds string[]  "tensor", ...
---@return table  bytes and one number for each kind
return function(kinds)
  flush()
  raw.collect()
  local n = { bytes = raw.live_bytes() }
  for _, kind in ipairs(kinds) do
    n[kind] = raw.live_handles(kind)
  end
  return n
end
