--- Branches and loops in random tensor programs, lines of them in the bodies.
---
--- What a body sees is given to it alone: gradients of a value are then summed
--- within the body in the order in which lines use it, eager and traced.
local moves = require "spec.support.programs.moves"

local M = {}

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

-- How a body may see values of around.
local FREE, CUT = "tf.identity(v[%d])", "tf.stop_gradient(v[%d])"

-- Values under names of their own, which nothing else uses.
local function give(g, s, ids, text)
  local given = {}
  for i, id in ipairs(ids) do
    given[i] = g.new_ids(1)[1]
    s.body[#s.body + 1] = { defs = { given[i] }, text = text:format(id) }
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
  for i, id in ipairs(ids) do parts[i] = ("[%d] = v[%d]"):format(id, id) end
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
  return { open = head, body = body, defs = {},
    close = ("return H.tie(v[%d], %s) end%s"):format(result(inner),
      list_of(tied), tail) }
end

local function branch(g, s, depth)
  local ids = g.choose(3)
  if #ids == 0 then return nil end
  local given = give(g, s, ids, FREE)
  if not g.prepare(s) then return nil end
  local like = g.values[given[1]]
  local function result(inner) return latest_like(inner, like) end
  local head = "function() local v = " .. table_of(given)
  local out = g.new_ids(1)[1]
  s.body[#s.body + 1] = { defs = { out },
    open = ("v[%d] = tf.cond(H.holds(v[%d]),"):format(out, moves.find(g)),
    close = ")", body = {
      body_of(g, given, depth, head, result, given, ","),
      body_of(g, given, depth, head, result, given, ""),
    } }
  return out
end

local function loop(g, s, depth)
  local ids = g.choose(3)
  if #ids == 0 then return nil end
  local start = give(g, s, { table.remove(ids, 1) }, FREE)[1]
  local given = give(g, s, ids, CUT)
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
      end, { start }, ""),
    } }
  return out
end

--- A branch or a loop as one statement; nil when none can be made. What it
--- needs of the generator stands in g: choose, new_ids, prepare, inside, lines.
function M.statement(g, depth)
  local s = { open = "do", body = {}, close = "end", defs = {} }
  local out = (g.rng:one_in(2) and branch or loop)(g, s, depth)
  if out == nil then return nil end
  s.defs[1] = out
  return s
end

return M
