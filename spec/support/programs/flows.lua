--- Branches, loops and functions of rows in random tensor programs, lines of
--- them in the bodies.
---
--- What a body sees is given to it alone, and to each turn of a loop by one op:
--- gradients of a value are then summed within the body in the order in which
--- lines use it, eager and traced.
local moves = require "spec.support.programs.moves"

local M = {}

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

-- Values under names of their own, which nothing else uses.
local function give(g, s, ids)
  local given = {}
  for i, id in ipairs(ids) do
    given[i] = g.new_ids(1)[1]
    s.body[#s.body + 1] = { defs = { given[i] },
      text = ("tf.identity(v[%d])"):format(id) }
    g.values[given[i]] = g.values[id]
  end
  return given
end

-- What a body has to go on with.
local function scope(g, given)
  local inner = g.inside()
  for i, id in ipairs(given) do
    inner.visible[i], inner.v[id] = id, g.v[id]
  end
  return inner
end

local function table_of(ids, also)
  local parts = {}
  local text = also and "[%d] = tf.identity(v[%d])" or "[%d] = v[%d]"
  for i, id in ipairs(ids) do parts[i] = text:format(id, id) end
  parts[#parts + 1] = also
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function list_of(ids)
  local parts = {}
  for i, id in ipairs(ids) do parts[i] = ("v[%d]"):format(id) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- The latest value like this one; there is always that itself.
local function latest_like(inner, like)
  for i = #inner.visible, 1, -1 do
    local x = inner.values[inner.visible[i]]
    if x.dtype == like.dtype and moves.same_dims(x.dims, like.dims) then
      return inner.visible[i]
    end
  end
end

-- The text of a body with its result tied to what was given.
local function body_of(g, given, depth, head, result, tied, tail)
  local inner = scope(g, given)
  local body = g.lines(inner, g.rng:int(1, 4), depth - 1)
  g.last = inner.last
  local made = { unpack(inner.visible, math.max(#given + 1, #inner.visible - 2)) }
  return { open = head, body = body, defs = {},
    close = ("return H.tie(v[%d], %s, %s) end%s"):format(result(inner),
      list_of(tied), list_of(made), tail) }
end

-- All, or now and then the first alone: a branch may leave a value without
-- gradient.
local function some(g, ids)
  return g.rng:one_in(3) and { ids[1] } or ids
end

local function branch(g, s, depth)
  local ids = g.choose(3)
  if #ids == 0 then return nil end
  local given = give(g, s, ids)
  if not g.prepare(s) then return nil end
  local like = g.values[given[1]]
  local function result(inner) return latest_like(inner, like) end
  local head = "function() local v = " .. table_of(given)
  local out = g.new_ids(1)[1]
  s.body[#s.body + 1] = { defs = { out },
    open = ("v[%d] = tf.cond(H.holds(v[%d]),"):format(out, moves.find(g)),
    close = ")", body = {
      body_of(g, given, depth, head, result, some(g, given), ","),
      body_of(g, given, depth, head, result, some(g, given), ""),
    } }
  return out, given
end

local function loop(g, s, depth)
  local ids = g.choose(3)
  if #ids == 0 then return nil end
  local start = give(g, s, { table.remove(ids, 1) })[1]
  local given = give(g, s, ids)
  if not g.prepare(s) then return nil end
  local like = g.values[start]
  local all = { start, unpack(given) }
  local out = g.new_ids(1)[1]
  s.body[#s.body + 1] = { defs = { out },
    open = ("v[%d] = H.loop(H.times(v[%d]), v[%d],"):format(out, moves.find(g),
      start), close = ")", body = {
      body_of(g, all, depth, "function(x) local v = " .. table_of(given,
        ("[%d] = x"):format(start)), function(inner)
        return latest_like(inner, like)
      end, all, ""),
    } }
  return out, all
end

local function has_rows(x)
  return #x.dims > 0 and x.dims[1] > 0 and x.dims[1] <= 8
end

-- A function of the rows of one value, alone or with a state that goes along.
local function over_rows(g, s, depth)
  local elems = g.preferred(has_rows) or moves.find(g, has_rows)
  if elems == nil then return nil end
  local state = g.rng:one_in(2) and g.choose(1)[1] or nil
  local free = give(g, s, { elems, state })
  local given = give(g, s, g.choose(2))
  local row = g.new_ids(1)[1]
  s.body[#s.body + 1] = { defs = { row }, text = ("v[%d][0]"):format(free[1]) }
  if not g.prepare(s) then return nil end
  local value = g.values[free[1]]
  g.values[row] = { dtype = value.dtype, dims = { unpack(value.dims, 2) } }
  local start = free[2]
  local seen = { row, start, unpack(given) }
  if start == nil then seen = { row, unpack(given) } end
  local like = g.values[start or row]
  local also = ("[%d] = x"):format(row)
  -- States are stacked too: what the body makes of one comes in one sum.
  if start ~= nil then
    also = also .. (", [%d] = tf.identity(a)"):format(start)
  end
  local out = g.new_ids(1)[1]
  local name = start == nil and "map_fn" or g.rng:pick { "scan", "foldl",
    "foldr" }
  s.body[#s.body + 1] = { defs = { out },
    open = ("v[%d] = tf.%s("):format(out, name),
    close = start == nil and (", v[%d])"):format(free[1])
      or (", v[%d], v[%d])"):format(free[1], start),
    body = { body_of(g, seen, depth,
      ("function(%sx) local v = %s"):format(start and "a, " or "",
        table_of(given, also)), function(inner)
        return latest_like(inner, like)
      end, seen, "") } }
  return out, start and { free[1], start, unpack(given) }
    or { free[1], unpack(given) }
end

--- A branch, a loop or a function of rows as one statement; nil when none can be
--- made. What it needs of the generator stands in g: choose, preferred, new_ids,
--- prepare, inside, lines.
function M.statement(g, depth)
  local s = { open = "do", body = {}, close = "end", defs = {} }
  local out, given = g.rng:pick { branch, branch, loop, loop, over_rows }(g, s,
    depth)
  if out == nil then return nil end
  s.body[#s.body + 1] = { defs = { out },
    text = ("H.connect(v[%d], %s)"):format(out, list_of(given)) }
  s.defs[1] = out
  return s
end

return M
