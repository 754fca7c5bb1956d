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

local function without_number(part)
  local base, number = part:match "^(.+)_(%d+)$"
  return base ~= nil and tonumber(number) < (counts[base] or 0) and base or nil
end

--- "model_1/dense_7/kernel" as "model/dense/kernel", where "model_1" and "dense_7"
--- were given by `unique`: processes that made other things before, a model for a
--- look at it, say, number theirs otherwise. Names of scripts stay as they are.
---@param name string
---@return string
function M.known_as(name)
  return (name:gsub("[^/]+", without_number))
end

return M
