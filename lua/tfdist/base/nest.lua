--- tf.nest: structures of plain tables.
---
--- A plain table (no metatable) is structure; everything else, tables with a
--- metatable too, is a leaf. The order of leaves is: list elements 1..n (the
--- field `n` counts, so nil elements survive), then other keys sorted, numbers
--- before strings. Tables nested deeper than 200 levels, or in a circle, are a
--- ValueError.
--- Source: tf.nest
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

local type = type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local MAX_DEPTH = 200

--- Levels that a structure may have.
M.MAX_DEPTH = MAX_DEPTH
-- No list has so many values; a field n beyond it was meant as something else.
local MAX_LENGTH = 2 ^ 26

local is_nested = text.is_plain

--- A structure that is too deep is refused, in the name of what was called.
---@param what string
local function too_deep(what)
  errors.raise("ValueError", what .. ": the structure is nested deeper than "
    .. MAX_DEPTH .. " levels or contains itself")
end

M.too_deep = too_deep

local function key_less(a, b)
  local ta, tb = type(a), type(b)
  if ta == tb and (ta == "number" or ta == "string") then
    return a < b
  elseif ta ~= tb and (ta == "number" or tb == "number") then
    return ta == "number"
  end
  return tostring(a) < tostring(b)
end

--- Length of the list part and the sorted other keys (nil when none).
---@param t table
---@return integer n, any[]|nil keys
local function layout(t)
  local n = t.n
  local counted = type(n) == "number" and n >= 0 and text.is_whole(n)
  if not counted then
    n = #t
  elseif n > MAX_LENGTH then
    errors.raise("ValueError", ("a list whose field n, its length, is %s; at "
      .. "most %s"):format(text.number(n), text.number(MAX_LENGTH)))
  end
  local keys
  for key in pairs(t) do
    if type(key) == "number" and not (key >= 1 and key <= n and key % 1 == 0)
      or type(key) ~= "number" and not (counted and key == "n") then
      keys = keys or {}
      keys[#keys + 1] = key
    end
  end
  if keys ~= nil then
    table.sort(keys, key_less)
  end
  return n, keys
end

--- The same for callers who may give anything. Errors: TypeError.
function M.layout(t)
  if not is_nested(t) then
    errors.raise("TypeError", "nest.layout: the structure must be a plain "
      .. "table, got " .. text.describe(t))
  end
  return layout(t)
end

local function flatten_into(x, out, count, depth, what)
  if not is_nested(x) then
    count = count + 1
    out[count] = x
    return count
  elseif depth == 0 then
    too_deep(what)
  end
  local n, keys = layout(x)
  for i = 1, n do
    local leaf = x[i]
    if type(leaf) == "userdata" then
      count = count + 1
      out[count] = leaf
    else
      count = flatten_into(leaf, out, count, depth - 1, what)
    end
  end
  if keys ~= nil then
    for i = 1, #keys do
      count = flatten_into(x[keys[i]], out, count, depth - 1, what)
    end
  end
  return count
end

--- True for a plain table.
---@param structure any
---@return boolean
function M.is_nested(structure)
  return is_nested(structure)
end

--- The leaves as a list; field `n` is their count, so that nil leaves survive.
--- A leaf alone gives a list of one.
--- Errors: ValueError for a structure that contains itself.
--- Source: tf.nest.flatten
---@param structure any
---@return any[]
function M.flatten(structure)
  return M.leaves("nest.flatten", structure)
end

--- The same for the rest of the library.
---@param what string  the error begins so
---@param structure any
---@return any[]
function M.leaves(what, structure)
  local out = {}
  out.n = flatten_into(structure, out, 0, MAX_DEPTH, what)
  return out
end

--- "element x", 'element x[1].y' for messages, of a list of keys.
---@param path any[]
---@return string
local function path_text(path)
  if #path == 0 then
    return "the structure itself"
  end
  local parts = {}
  for i = 1, #path do
    local key = path[i]
    if type(key) == "string" and key:find("^[%a_][%w_]*$") then
      parts[i] = (i > 1 and "." or "") .. key
    else
      parts[i] = "[" .. (type(key) == "string" and text.quote(key)
        or tostring(key)) .. "]"
    end
  end
  return "element " .. table.concat(parts)
end

M.path_text = path_text

local function differ(what, path, why)
  errors.raise("ValueError", ("%s: structures differ at %s: %s"):format(
    what, path_text(path), why))
end

local function keys_text(n, keys)
  local parts = {}
  if n > 0 or keys == nil then
    parts[1] = "a list of " .. n
  end
  for i = 1, keys and #keys or 0 do
    parts[#parts + 1] = tostring(keys[i])
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function same(a, b, path, what)
  local na, nb = is_nested(a), is_nested(b)
  if na ~= nb then
    differ(what, path, ("%s against %s"):format(
      na and "a table" or text.describe(a),
      nb and "a table" or text.describe(b)))
  elseif not na then
    return
  elseif #path >= MAX_DEPTH then
    too_deep(what)
  end
  local n, keys = layout(a)
  local m, other = layout(b)
  local equal = n == m and (keys and #keys) == (other and #other)
  for i = 1, equal and keys and #keys or 0 do
    equal = equal and keys[i] == other[i]
  end
  if not equal then
    differ(what, path, keys_text(n, keys) .. " against "
      .. keys_text(m, other))
  end
  local depth = #path + 1
  for i = 1, n + (keys and #keys or 0) do
    local key = i <= n and i or keys[i - n]
    path[depth] = key
    same(a[key], b[key], path, what)
    path[depth] = nil
  end
end

--- Check that two structures have the same tables and keys.
--- Errors: ValueError naming the first place where they differ.
--- Source: tf.nest.assert_same_structure
---@param nest1 any
---@param nest2 any
M.assert_same_structure = options.wrap("nest.assert_same_structure",
  "nest1:table=nil nest2:table=nil check_types=true expand_composites=false",
  function(nest1, nest2)
    same(nest1, nest2, {}, "nest.assert_same_structure")
  end)

--- The same for the rest of the library.
---@param a any
---@param b any
---@param what string  the errors begin so
function M.check_same(a, b, what)
  same(a, b, {}, what)
end

local function map1(fn, x, depth, what)
  if not is_nested(x) then
    return (fn(x))
  elseif depth == 0 then
    too_deep(what)
  end
  local out = {}
  local n, keys = layout(x)
  for i = 1, n do
    out[i] = map1(fn, x[i], depth - 1, what)
  end
  if x.n ~= nil and x.n == n then
    out.n = n
  end
  if keys ~= nil then
    for i = 1, #keys do
      out[keys[i]] = map1(fn, x[keys[i]], depth - 1, what)
    end
  end
  return out
end

--- map_structure of one structure for the rest of the library.
---@param what string  the error begins so
---@param fn function
---@param structure any
---@return any
function M.map(what, fn, structure)
  return map1(fn, structure, MAX_DEPTH, what)
end

local function map2(fn, a, b, depth)
  if not is_nested(a) then
    return (fn(a, b))
  end
  local out = {}
  local n, keys = layout(a)
  for i = 1, n do
    out[i] = map2(fn, a[i], b[i], depth - 1)
  end
  if a.n ~= nil and a.n == n then
    out.n = n
  end
  if keys ~= nil then
    for i = 1, #keys do
      out[keys[i]] = map2(fn, a[keys[i]], b[keys[i]], depth - 1)
    end
  end
  return out
end

local function pack(structure, flat, count, depth)
  if not is_nested(structure) then
    count = count + 1
    return flat[count], count
  elseif depth == 0 then
    too_deep("nest.pack_sequence_as")
  end
  local out = {}
  local n, keys = layout(structure)
  for i = 1, n do
    out[i], count = pack(structure[i], flat, count, depth - 1)
  end
  if structure.n ~= nil and structure.n == n then
    out.n = n
  end
  if keys ~= nil then
    for i = 1, #keys do
      local key = keys[i]
      out[key], count = pack(structure[key], flat, count, depth - 1)
    end
  end
  return out, count
end

--- The structure with its leaves replaced by those of a list.
--- Errors: ValueError when the counts differ.
--- Source: tf.nest.pack_sequence_as
---@param structure any
---@param flat_sequence any[]
---@return any
function M.pack_sequence_as(structure, flat_sequence)
  local wanted = M.flatten(structure).n
  local _, given = options.list("nest.pack_sequence_as", "flat_sequence",
    flat_sequence)
  if given ~= wanted then
    errors.raise("ValueError", ("nest.pack_sequence_as: the structure has %d "
      .. "leaves, the list has %d elements"):format(wanted, given))
  end
  return (pack(structure, flat_sequence, 0, MAX_DEPTH))
end

--- Call fn on each leaf (with several structures: on corresponding leaves) and
--- collect the first results in the same structure.
--- Errors: ValueError when the structures differ.
--- Source: tf.nest.map_structure
---@param fn function
---@param structure any
---@param ... any  more structures
---@return any
function M.map_structure(fn, structure, ...)
  if not text.is_callable(fn) then
    errors.raise("TypeError", "nest.map_structure: the first argument must be "
      .. "a function, got " .. text.describe(fn))
  end
  local more = select("#", ...)
  if more == 0 then
    return map1(fn, structure, MAX_DEPTH, "nest.map_structure")
  end
  local flats = {}
  for i = 1, more do
    local other = select(i, ...)
    same(structure, other, {}, "nest.map_structure")
    flats[i] = M.flatten(other)
  end
  if more == 1 then
    return map2(fn, structure, (...), MAX_DEPTH)
  end
  local position = 0
  return map1(function(leaf)
    position = position + 1
    local others = {}
    for i = 1, more do
      others[i] = flats[i][position]
    end
    return (fn(leaf, unpack(others, 1, more)))
  end, structure, MAX_DEPTH, "nest.map_structure")
end

return M
