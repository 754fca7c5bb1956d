--- Random numbers that are the same on every engine: products stay below 2^53.
local M = {}
M.__index = M

local MODULUS, FACTOR = 2147483647, 16807

--- A stream from any whole numbers.
function M.new(...)
  local x = 1
  for i = 1, select("#", ...) do
    x = (x * 69621 + select(i, ...) % MODULUS + 7 * i) % MODULUS
    x = x * FACTOR % MODULUS
  end
  return setmetatable({ x = x == 0 and 1 or x }, M)
end

--- A number in [0, 1).
function M:unit()
  self.x = self.x * FACTOR % MODULUS
  return (self.x - 1) / (MODULUS - 1)
end

--- A whole number in lo..hi.
function M:int(lo, hi)
  return lo + math.floor(self:unit() * (hi - lo + 1))
end

--- True once in n times.
function M:one_in(n)
  return self:unit() * n < 1
end

--- An element of a list.
function M:pick(list)
  return list[self:int(1, list.n or #list)]
end

--- A whole number below n as a seed for another stream.
function M:seed()
  return self:int(0, MODULUS - 1)
end

return M
