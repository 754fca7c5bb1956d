--- Elements of data sets as plain Lua values, for comparison.
local raw = require "tfdist.core.raw"

local M = {}

--- A component (or a table of them) as numbers, strings and lists.
function M.plain(x)
  if type(x) == "userdata" then
    return raw.tensor_to_table(raw.operand_tensor(x))
  elseif type(x) == "table" and getmetatable(x) ~= nil then
    return x:totable()
  elseif type(x) == "table" then
    local out = {}
    for key, value in pairs(x) do
      if key ~= "n" then
        out[key] = M.plain(value)
      end
    end
    return out
  end
  return x
end

local function collect(out, first, ...)
  if first == nil then
    return false
  elseif select("#", ...) == 0 then
    out[#out + 1] = M.plain(first)
  else
    local list = { M.plain(first) }
    for i = 1, select("#", ...) do
      list[i + 1] = M.plain((select(i, ...)))
    end
    out[#out + 1] = list
  end
  return true
end

--- All elements: single components as such, tuples as lists.
function M.all(ds, most)
  local out, it = {}, ds:iter()
  while #out < (most or 1e4) and collect(out, it()) do end
  return out
end

--- The first components of all elements, as they are.
function M.first(ds)
  local list = {}
  for x in ds:iter() do
    list[#list + 1] = x
  end
  return list
end

--- What a distributed data set gives: a list of steps, each a list of the
--- replicas' shares of its first component.
function M.steps(strategy, ds, most)
  local out = {}
  for x in ds:iter() do
    local list = strategy:experimental_local_results(x)
    local step = {}
    for i = 1, list.n do
      step[i] = M.plain(list[i])
    end
    out[#out + 1] = step
    if #out == most then
      break
    end
  end
  return out
end

--- 0, 1, ..., n - 1 (or from `first`).
function M.count(n, first)
  local out = {}
  for i = 1, n do
    out[i] = (first or 0) + i - 1
  end
  return out
end

return M
