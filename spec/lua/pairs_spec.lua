--- Loops over tables, which LuaJIT's compiler has wrong with the built-in next.
local own = require "tfdist.base.pairs"
local process = require "spec.support.process"

-- Loops in each other, in functions that begin anew: keys of small tables.
local NESTED = [[
local inner = { 1, 2, 3, 4, 5 }
local outer = { a = inner, b = inner, c = inner, d = inner, e = inner }
local function interpreted(...)
  for _ = 1, 100 do end
end
for i = 1, 100000 do
  interpreted()
  local seen = 0
  for _, t in pairs(outer) do
    for _ in pairs(t) do end
    seen = seen + 1
  end
  if seen ~= 5 then
    print("turn " .. i .. " saw " .. seen .. " of 5")
    os.exit(1)
  end
end
print "all"
]]

-- Keys that are compared with those of the turn before.
local COMPARED = [[
if jit then jit.opt.start "hotloop=2" end
local function last(t)
  local n = 0
  for k in pairs(t) do
    if type(k) == "number" and k > n then
      n = k
    end
  end
  return n
end
for i = 1, 2000 do
  local t = {}
  for k = 1, i % 5 do t[k] = true end
  for n, list in pairs { [i % 5] = t, [7] = { 1, 2, i, 4, 5, 6, 7 } } do
    if last(t) ~= i % 5 or last { "x", i } ~= 2 or last(list) ~= n then
      print("turn " .. i .. ": a key is lost")
      os.exit(1)
    end
  end
end
print "all"
]]

describe("pairs", function()
  it("gives each key once in compiled loops, in the library and in scripts #once",
    function()
      for _, host in ipairs(process.hosts) do
        -- Where code lies decides what is compiled: it is new at each start.
        for program, starts in pairs { [NESTED] = 1, [COMPARED] = 5 } do
          local library = 'local pairs = require "tfdist.base.pairs"\n'
            .. program
          for _, command in ipairs {
            host.path .. " -e " .. process.quote(program),
            host.path .. " -e " .. process.quote(library),
            "LUA_PATH='lua/?.lua;;' " .. host.lua .. " -e "
              .. process.quote(library),
          } do
            for _ = 1, starts do
              local r = process.run(command)
              assert.equal("all\n", r.out, r.err)
              assert.equal(0, r.code)
            end
          end
        end
      end
    end)

  it("is the language's own otherwise", function()
    local seen = {}
    for key, value in own { 10, nil, 30, x = "y", [2.5] = false } do
      seen[key] = value
    end
    assert.same({ 10, nil, 30, x = "y", [2.5] = false }, seen)
    for _ in own {} do
      error "an empty table has no keys"
    end
    local t = { a = 1, b = 2, c = 3 }
    for key in own(t) do
      t[key] = nil
    end
    assert.is_nil(next(t))
    assert.same({ pcall(pairs, nil) }, { pcall(own, nil) })
    assert.same({ pcall(pairs, 3) }, { pcall(own, 3) })
  end)

  it("asks __pairs where the language does", function()
    local function words(_, key)
      return key == nil and "word" or nil
    end
    local t = setmetatable({ x = 1 }, { __pairs = function(self)
      return words, self, nil
    end })
    local expected, found = {}, {}
    for key in pairs(t) do expected[#expected + 1] = key end
    for key in own(t) do found[#found + 1] = key end
    assert.same(expected, found)
  end)

  it("names the line of the loop #once", function()
    for _, host in ipairs(process.hosts) do
      local script = process.file("local t\n\nfor k in pairs(t) do print(k) end\n",
        ".lua")
      local r = process.run(host.path .. " " .. script)
      os.remove(script)
      assert.is_truthy(r.err:find(script .. ":3: bad argument #1 to ", 1, true)
        or r.err:find(":3: bad argument #1 to ", 1, true), r.err)
      assert.equal(1, r.code)
    end
  end)
end)
