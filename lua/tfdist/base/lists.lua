--- Plain lists of values or sizes: parts, products, joining.
local pairs = require "tfdist.base.pairs"

local M = {}

local select = select

--- The arguments as a list: what `{ ... }` and `{ fn() }` give. With four
--- values and more those leave LuaJIT's compiled code at each call, which takes
--- a hundred times as long.
---@return table
function M.of(...)
  local list = { n = select("#", ...), ... }
  list.n = nil
  return list
end

--- The entries from `first` to `last` as a list of their own; all by default.
---@param list table
---@param first? integer
---@param last? integer
---@return table
function M.copy(list, first, last)
  return M.append({}, list, first, last)
end

--- The keys of a table, sorted: texts alone or numbers alone.
---@param t table
---@return table
function M.sorted_keys(t)
  local keys = {}
  for key in pairs(t) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end

--- The product of the entries from `first` to `last`, 1 when there are none;
--- of all by default.
---@param list number[]
---@param first? integer
---@param last? integer
---@return number
function M.product(list, first, last)
  local n = 1
  for i = first or 1, last or #list do
    n = n * list[i]
  end
  return n
end

--- Put the entries of `from` from `first` to `last` (all by default) behind
--- those of `to`.
---@return table to
function M.append(to, from, first, last)
  local n, first_one = #to, first or 1
  for i = first_one, last or #from do
    to[n + 1 + i - first_one] = from[i]
  end
  return to
end

return M
