-- Random pipelines against the same stages on Lua lists: over rows in memory,
-- over elements made one by one, and from a saved state.
local E = require "spec.support.elements"
local leaks = require "spec.support.leaks"
local tf = require "tfdist"

local D = tf.data.Dataset

local seed
local function random(lo, hi)
  seed = (seed * 16807) % 2147483647
  return lo + seed % (hi - lo + 1)
end

local function slice(list, first, last)
  local out = {}
  for i = first, math.min(last, #list) do out[#out + 1] = list[i] end
  return out
end

local function times(list, k)
  local out = {}
  for _ = 1, k do
    for _, x in ipairs(list) do out[#out + 1] = x end
  end
  return out
end

local function batched(list, size, drop)
  local out = {}
  for i = 1, #list, size do
    local part = slice(list, i, i + size - 1)
    if #part == size or not drop then out[#out + 1] = part end
  end
  return out
end

local function flat(list)
  local out = {}
  for _, part in ipairs(list) do
    for _, x in ipairs(part) do out[#out + 1] = x end
  end
  return out
end

local function every(list, n, w)
  local out = {}
  for i = w + 1, #list, n do out[#out + 1] = list[i] end
  return out
end

-- Each move: what it does to a data set and to a list; `deep` is how often the
-- elements were batched.
local function moves(deep)
  local list = {
    function()
      local k = random(0, 12)
      return "take " .. k, function(d) return d:take(k) end,
        function(l) return slice(l, 1, k) end
    end,
    function()
      local k = random(0, 6)
      return "skip " .. k, function(d) return d:skip(k) end,
        function(l) return slice(l, k + 1, #l) end
    end,
    function()
      local k = random(0, 3)
      return "repeat " .. k, function(d) return d:repeat_(k) end,
        function(l) return times(l, k) end
    end,
    function()
      local n = random(1, 4)
      local w = random(0, n - 1)
      return ("shard %d %d"):format(n, w),
        function(d) return d:shard(n, w) end,
        function(l) return every(l, n, w) end
    end,
    function()
      local k = random(0, 3)
      return "prefetch " .. k, function(d) return d:prefetch(k) end,
        function(l) return l end
    end,
    function()
      return "shuffle 1", function(d) return d:shuffle(1) end,
        function(l) return l end
    end,
    function()
      return "concatenate itself", function(d) return d:concatenate(d) end,
        function(l) return times(l, 2) end
    end,
    function()
      return "cache", function(d) return d:cache() end,
        function(l) return l end
    end,
  }
  if deep == 0 then
    list[#list + 1] = function()
      local size, drop = random(1, 5), random(0, 1) == 1
      return "batch " .. size .. (drop and " drop" or ""), function(d)
        return d:batch(size, drop)
      end, function(l) return batched(l, size, drop) end, 1
    end
  else
    list[#list + 1] = function()
      return "unbatch", function(d) return d:unbatch() end, flat, -1
    end
    list[#list + 1] = function()
      local size, drop = random(1, 5), random(0, 1) == 1
      return "rebatch " .. size .. (drop and " drop" or ""), function(d)
        return d:rebatch(size, drop)
      end, function(l) return batched(flat(l), size, drop) end
    end
  end
  return list
end

local function program()
  local n, deep = random(0, 20), 0
  local steps, names = {}, { "range " .. n }
  for i = 1, random(1, 6) do
    local list = moves(deep)
    local name, on_dataset, on_list, change = list[random(1, #list)]()
    steps[i] = { on_dataset, on_list }
    names[#names + 1] = name
    deep = deep + (change or 0)
  end
  return n, steps, table.concat(names, ", ")
end

describe("random pipelines", function()
  leaks(before_each, after_each)

  it("give what the same stages make of lists", function()
    for case = 1, 150 do
      seed = case * 7919
      local n, steps, name = program()
      name = ("seed %d: %s"):format(case * 7919, name)
      local list, rows = E.count(n), D.range(n)
      local made = D.range(n):map(function(x) return x end)
      for _, step in ipairs(steps) do
        list, rows, made = step[2](list), step[1](rows), step[1](made)
      end
      assert.same(list, E.all(rows), name)
      assert.same(list, E.all(made), name)
      local known = rows:cardinality()
      if known >= 0 then
        assert.equal(#list, known, name)
      end
      local taken = random(0, #list)
      for _, ds in ipairs { rows, made } do
        local it = ds:iter()
        for _ = 1, taken do it() end
        local rest, other = {}, ds:iter():restore(it:state())
        for x in other do rest[#rest + 1] = E.plain(x) end
        assert.same(slice(list, taken + 1, #list), rest, name)
      end
    end
  end)
end)
