--- Streams of items: what stages work on that choose and order elements without
--- looking into them. An item is an element, a pack, or the position of one among
--- rows in memory (module rows), so that shuffle, take, skip, shard and repeat_
--- over such rows move numbers only.
---
---   fill(self, list, k)   puts up to k items into list[1..k] and returns how
---                         many; fewer than k = the end, and from then on 0
---   skip(self, k)         passes over up to k items without making them, returns
---                         how many there were; optional
---   close(self)           optional
local M = {}

local type, min = type, math.min

-- Positions cost nothing to have before their time, elements do.
local AHEAD = 64
local POSITIONS = 1024

--- How many items like this one may be asked for before they are needed.
function M.ahead(item)
  return type(item) == "number" and POSITIONS or 1
end

--- Pass over up to k items; returns how many there were.
function M.skip(stream, k)
  if stream.skip ~= nil then
    return stream:skip(k)
  end
  local list, done = {}, 0
  while done < k do
    local want = min(k - done, M.ahead(list[1]))
    local got = stream:fill(list, want)
    done = done + got
    if got < want then
      break
    end
  end
  return done
end

local Sequence = {}
Sequence.__index = Sequence

function Sequence.fill(self, list, k)
  local at, step = self.at, self.step
  local count = min(k, self.left)
  for i = 1, count do
    list[i] = at
    at = at + step
  end
  self.at, self.left = at, self.left - count
  return count
end

function Sequence.skip(self, k)
  local count = min(k, self.left)
  self.at, self.left = self.at + count * self.step, self.left - count
  return count
end

--- The positions 0 .. n - 1 in order.
function M.sequence(n)
  return setmetatable({ at = 0, left = n, step = 1 }, Sequence)
end

--- Every n-th of a sequence, from its item w on; nil for other streams.
function M.every(stream, n, w)
  if getmetatable(stream) ~= Sequence then
    return nil
  end
  return setmetatable({ at = stream.at + w * stream.step,
    left = math.ceil(math.max(0, stream.left - w) / n),
    step = n * stream.step }, Sequence)
end

-- Elements of an iterator ----------------------------------------------------

local Pulled = {}
Pulled.__index = Pulled

function Pulled.fill(self, list, k)
  local iterator = self.iterator
  for i = 1, k do
    local pack = iterator:next()
    if pack == nil then
      return i - 1
    end
    list[i] = pack
  end
  return k
end

function Pulled.skip(self, k)
  return self.pass_over(self.iterator, k)
end

--- The elements of an iterator; nothing is pulled before it is asked for.
---@param iterator table
---@param pass_over fun(iterator:table, k:integer):integer
---@param close? fun()
function M.pulled(iterator, pass_over, close)
  return setmetatable({ iterator = iterator, pass_over = pass_over,
    close = close }, Pulled)
end

-- Iterators over streams ------------------------------------------------------

local Packs = {}
Packs.__index = Packs

function Packs.next(self)
  local one = self.one
  if self.stream:fill(one, 1) == 0 then
    return nil
  end
  local pack = one[1]
  one[1] = nil -- nobody's here from now on
  return pack
end

function Packs.skip(self, n)
  return M.skip(self.stream, n)
end

local Rows = {}
Rows.__index = Rows

function Rows.next(self)
  local list, at = self.list, self.at
  if at == self.count then
    self.count = self.stream:fill(list, AHEAD)
    at = 0
    if self.count == 0 then
      self.at = 0
      return nil
    end
  end
  at = at + 1
  self.at = at
  return self.rows:row(list[at])
end

function Rows.skip(self, n)
  local own = min(n, self.count - self.at)
  self.at = self.at + own
  return own + M.skip(self.stream, n - own)
end

--- An iterator over a stream's elements.
---@param stream table
---@param rows? table  what its items are positions of
function M.elements(stream, rows)
  if rows == nil then
    return setmetatable({ stream = stream, one = {} }, Packs)
  end
  return setmetatable({ stream = stream, rows = rows, list = {}, at = 0,
    count = 0 }, Rows)
end

return M
