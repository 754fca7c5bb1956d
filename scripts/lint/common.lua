--- What the checks of C and of Lua share: complaints, files, graphs.
local M = { problems = {} }

function M.complain(...)
  M.problems[#M.problems + 1] = (...):format(select(2, ...))
end

--- Files that are tracked, or new and not ignored.
---@param patterns string  for git ls-files
---@return string[]
function M.files(patterns)
  local pipe = assert(io.popen("git ls-files -co --exclude-standard "
    .. patterns))
  local list = {}
  for path in pipe:lines() do
    local file = io.open(path)
    if file then
      file:close()
      list[#list + 1] = path
    end
  end
  pipe:close()
  return list
end

function M.read(path)
  local file = assert(io.open(path))
  local text = file:read "a"
  file:close()
  return text
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

M.sorted_keys = sorted_keys

--- Note an edge of a graph { [from] = { [to] = count } }.
function M.add_edge(graph, from, to)
  graph[from] = graph[from] or {}
  graph[from][to] = (graph[from][to] or 0) + 1
end

--- The circles of a graph: the sets of nodes that reach each other, the names
--- of each sorted (Tarjan).
---@return string[][]
function M.cycles(graph)
  local index, low, on, stack, count, found = {}, {}, {}, {}, 0, {}
  local function visit(node)
    count = count + 1
    index[node], low[node] = count, count
    stack[#stack + 1], on[node] = node, true
    for _, to in ipairs(sorted_keys(graph[node] or {})) do
      if index[to] == nil then
        visit(to)
        low[node] = math.min(low[node], low[to])
      elseif on[to] then
        low[node] = math.min(low[node], index[to])
      end
    end
    if low[node] < index[node] then return end
    local set = {}
    repeat
      local last = table.remove(stack)
      on[last] = nil
      set[#set + 1] = last
    until last == node
    if #set > 1 then
      table.sort(set)
      found[#found + 1] = set
    end
  end
  for _, node in ipairs(sorted_keys(graph)) do
    if index[node] == nil then visit(node) end
  end
  return found
end

--- Complain of each thing that a check found.
---@param found table<string, boolean>
---@param what string
function M.refuse(found, what)
  for _, text in ipairs(sorted_keys(found)) do
    M.complain("%s: %s", what, text)
  end
end

return M
