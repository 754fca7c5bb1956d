--- Automatic names: what they count, and what they say without the numbers.
local M = {}

local counts = {}

--- 1, 2, ... for each prefix.
---@param prefix string
---@return integer
function M.next_number(prefix)
  counts[prefix] = (counts[prefix] or 0) + 1
  return counts[prefix]
end

--- Start all counts again.
function M.clear()
  counts = {}
end

--- "dense" for the first, then "dense_1", ...
---@param base string
---@return string
function M.unique(base)
  local n = M.next_number(base)
  return n == 1 and base or base .. "_" .. (n - 1)
end

-- Place of a number among those of one base that were asked for: how many lower
-- ones there are, and whether it is there already.
local function place_of(list, number)
  local at = 1
  while list[at] and list[at] < number do
    at = at + 1
  end
  if list[at] == number then
    return at .. "="
  end
  table.insert(list, at, number)
  return at .. "+"
end

--- A name without its numbers: "dense_7/kernel" tells what "dense_6/kernel" does
--- in a process that made another layer before. Among the names that `seen`, a
--- table, was given before they have places, so that names in another order
--- differ, as do other names.
---@param name string
---@param seen table
---@return string
function M.known_as(name, seen)
  local parts, prefix = {}, ""
  for part in name:gmatch "[^/]+" do
    local base, digits = part:match "^(.+)_(%d+)$"
    prefix = prefix .. "/" .. (base or part)
    seen[prefix] = seen[prefix] or {}
    parts[#parts + 1] = (base or part) .. ":"
      .. place_of(seen[prefix], tonumber(digits) or 0)
  end
  return table.concat(parts, "/")
end

return M
