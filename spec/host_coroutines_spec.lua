local process = require "spec.support.process"

local run, quote = process.run, process.quote

local PATH = "LUA_PATH='lua/?.lua;lua/?/init.lua;;' LUA_CPATH='"
  .. process.build .. "/%s/?.so;;' "
local INTERPRETERS = {
  process.hosts[1].path, process.hosts[2].path,
  PATH:format("lua54") .. "lua5.4", PATH:format("luajit") .. "luajit",
}

-- Every way in which an error comes out of C or out of a coroutine, in turn,
-- each followed by a loop that the engine compiles and leaves by its side
-- exits: what an error leaves behind shows there.
local ERRORS = [[
local raw = require "tfdist.core.raw"
local t = raw.tensor_from_table { 1, 2, 3 }
local wrap, create, resume = coroutine.wrap, coroutine.create, coroutine.resume
local function bad() error "x" end
local function op() raw.item(t, 9) end
local function twice() wrap(bad)() end
local ways = {
  function() wrap(bad)() end,
  function() wrap(op)() end,
  function() wrap(twice)() end,
  function() wrap(function() pcall(wrap(op)) bad() end)() end,
  function() local w = wrap(coroutine.yield) w() w() w() end,
  function() local _, e = resume(create(op)) error(e, 0) end,
  function() ("x"):gsub("x", wrap(bad)) end,
  function() table.sort({ 2, 1 }, wrap(op)) end,
  function() load(wrap(bad)) error "refused" end,
  function() wrap(coroutine.yield)(nil) op() end,
  op,
  function() raw.tensor_from_table { { 1 }, { 1, 2 } } end,
}
local failed, sum = 0, 0
for i = 1, 100000 do
  if not pcall(ways[i % #ways + 1]) then failed = failed + 1 end
  for k = 1, 50 do
    sum = sum + ((k * i) % 7 == 0 and 0.5 or 1)
  end
end
print(failed, ("%.1f"):format(sum))]]

-- Of the 50 products in round i, those with a factor of 7 count a half: 7 of
-- them, or all when 7 divides i.
local function expected()
  local sevenths = math.floor(100000 / 7)
  local sum = (100000 - sevenths) * (43 + 7 * 0.5) + sevenths * 25
  return ("100000\t%.1f\n"):format(sum)
end

describe("a hundred thousand errors #once", function()
  for _, interpreter in ipairs(INTERPRETERS) do
    it("leave compiled loops right in " .. interpreter, function()
      local r = run(interpreter .. " -e " .. quote(ERRORS))
      assert.equal(expected(), r.out)
      assert.equal(0, r.code)
    end)
  end
end)

for _, host in ipairs(process.hosts) do
  describe("nesting in C without end #once", function()
    -- Each function calls itself through C code; `stack` in KiB.
    local NESTS = {
      "local function f() local x = coroutine.wrap(f)() return x end",
      "local function f() local _, x = coroutine.resume("
        .. "coroutine.create(f)) return x end",
      "local function f() return (('x'):gsub('x', f)) end",
      "local function f() return (('x'):gsub('x', coroutine.wrap(f))) end",
      "local function f() table.sort({ 1, 2, 3 }, f) end",
      "local function f() print(setmetatable({}, { __tostring = f })) end",
      "local function f() return assert(load(f)) end",
    }

    for _, stack in ipairs { "8192", "1024", "unlimited" } do
      it(("is an error in %s with a stack of %s"):format(host.name, stack),
        function()
          for _, nest in ipairs(NESTS) do
            local path = process.file(nest .. [[

local ok, why = pcall(f)
print(ok, tostring(why):match("overflow") or why)]], ".lua")
            local r = run(("ulimit -s %s && %s %s"):format(stack, host.path,
              path))
            os.remove(path)
            assert.equal(0, r.code, nest)
            assert.matches("overflow\n$", r.out, nest)
          end
        end)
    end
  end)
end
