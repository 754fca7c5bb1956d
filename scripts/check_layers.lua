--- Hold the import graphs against the layers of the architecture.
---
--- usage: lua5.4 scripts/check_layers.lua [--dot]
--- Fails on what scripts/lint/c.lua and scripts/lint/lua.lua refuse. Prints the
--- edges between folders and how many files make them, those that are followed
--- at a call in brackets; with --dot a diagram of them for Graphviz.

package.path = (arg[0]:match "^(.*)scripts/[^/]*$" or "./") .. "?.lua;"
  .. package.path
local common = require "scripts.lint.common"

local c = require "scripts.lint.c".run()
local lua, lazy = require "scripts.lint.lua".run()

local function each_edge(graph, visit)
  for _, from in ipairs(common.sorted_keys(graph)) do
    for _, to in ipairs(common.sorted_keys(graph[from])) do
      visit(from, to, graph[from][to])
    end
  end
end

local function print_edges(title, graph, calls)
  print(title)
  each_edge(graph, function(from, to, count)
    local late = calls and calls[from] and calls[from][to]
    print(("  %-24s %d%s"):format(from .. " -> " .. to, count,
      late and (" (%d)"):format(late) or ""))
  end)
end

local function print_dot(title, graph)
  print(("  subgraph \"cluster_%s\" {\n    label = %q"):format(title, title))
  each_edge(graph, function(from, to, count)
    print(("    %q -> %q [label = %d]"):format(title .. "/" .. from,
      title .. "/" .. to, count))
  end)
  print "  }"
end

if arg[1] == "--dot" then
  print "digraph layers {\n  node [shape = box]"
  print_dot("src", c)
  print_dot("lua", lua)
  print "}"
else
  print_edges("src", c)
  print_edges("lua", lua, lazy)
end
for _, text in ipairs(common.problems) do io.stderr:write(text, "\n") end
os.exit(#common.problems == 0 and 0 or 1)
