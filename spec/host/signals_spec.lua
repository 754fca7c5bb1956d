--- Ctrl-C where an engine is at its end.
local process = require "spec.support.process"

local DEEP = [[
local function inside(depth, fn)
  if depth == 0 then return fn() end
  local ok, y = pcall(inside, depth - 1, fn)
  return ok and y or error(y, 0)
end
local deepest = jit and 100 or 0 -- LuaJIT has no bound on them
while not jit and pcall(inside, deepest + 1, os.time) do
  deepest = deepest + 1
end
local _, e = pcall(inside, deepest - %d, function()
  io.popen "kill -INT $PPID":read(0) -- until that has ended
end)
print(e)]]

for _, host in ipairs(process.hosts) do
  describe(host.name .. " #once", function()
    it("is interrupted where no call of C is left, too", function()
      for left = 0, 3 do
        local r = process.run(("env --default-signal=INT %s -e %s"):format(
          host.path, process.quote(DEEP:format(left))))
        assert.matches("interrupted\n$", r.out, left .. r.err)
      end
    end)
  end)
end
