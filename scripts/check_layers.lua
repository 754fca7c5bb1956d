--- Hold the import graph against the layers of the architecture.
---
--- usage: lua5.4 scripts/check_layers.lua
--- Fails on an include that points up or to a sibling, on a foreign header
--- that is not a front door, on lua.h outside the binding and the host, on a
--- cycle between Lua modules, on a shell or a common temporary file in the
--- library, and on files over 800 lines. Prints the edges.

local LIMIT = 800

-- Folder -> rank. Equal ranks are siblings and do not see each other.
local RANK = {
  base = 0, types = 1, backend = 2, device = 3, tensor = 4, comm = 4, ops = 5,
  distribute = 6, autograd = 6, graph = 6, io = 6, lua = 8, host = 9,
}
-- The private part of a back end: only its own folder looks inside.
local PRIVATE = "^backend/(%w+)/"

local problems = {}

local function complain(...)
  problems[#problems + 1] = (...):format(select(2, ...))
end

local function files(pattern)
  local pipe = assert(io.popen("git ls-files -co --exclude-standard " .. pattern))
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

local edges = {}

local function note_edge(from, to)
  if from == to then return end
  local key = from .. " -> " .. to
  edges[key] = (edges[key] or 0) + 1
end

local function check_include(path, folder, target)
  if target == "tfdist.h" then return end
  if target:find "^tfdist/" then
    complain("%s includes %s: tfdist.h is the way to its parts", path, target)
  end
  local to = target:match "^(%w+)/"
  if not to or not RANK[to] then return end
  note_edge(folder, to)
  if RANK[to] > RANK[folder] or (RANK[to] == RANK[folder] and to ~= folder) then
    complain("%s includes %s: layer %s may not see %s", path, target, folder, to)
  end
  local inner = target:match(PRIVATE)
  if inner and not path:find("src/backend/" .. inner .. "/", 1, true)
     and inner ~= "kernels" then
    complain("%s includes %s, which is private to backend/%s", path, target,
      inner)
  end
end

local function check_c(path)
  local folder = path:match "^src/(%w+)/"
  local lines = 0
  for line in io.lines(path) do
    lines = lines + 1
    local target = line:match '^#%s*include%s+"([^"]+)"'
    if target and folder then check_include(path, folder, target) end
    if line:match "^#%s*include%s+[<\"]lua[%w]*%.h" and folder
       and RANK[folder] < RANK.lua then
      complain("%s:%d includes lua.h below the binding", path, lines)
    end
  end
  if lines > LIMIT then complain("%s has %d lines (limit %d)", path, lines, LIMIT) end
end

-- What a shell makes of names and what others see of a temporary file is no
-- library's business; `doctor` asks which `lua` the user's shell finds.
local SHELL = { "io%.popen", "os%.execute", "os%.tmpname" }
local MAY_ASK = "lua/tfdist/host/cli.lua"

local function check_shell(path, line, number)
  for _, call in ipairs(SHELL) do
    if line:find("%f[%w]" .. call) and path ~= MAY_ASK then
      complain("%s:%d uses %s", path, number, (call:gsub("%%", "")))
    end
  end
end

local requires = {}

local function module_of(path)
  return (path:gsub("^lua/", ""):gsub("%.lua$", ""):gsub("/init$", "")
    :gsub("/", "."))
end

local function check_lua(path)
  local lines = 0
  local mine = {}
  for line in io.lines(path) do
    lines = lines + 1
    -- Only a require at the left margin runs at load; deferred ones inside
    -- functions may point back.
    local target = line:match "^local%s+[%w_]+%s*=%s*require%s*%(?%s*[\"']([%w_.]+)"
    if target then mine[#mine + 1] = target end
    if path:find "^lua/" then check_shell(path, line, lines) end
  end
  if lines > LIMIT then complain("%s has %d lines (limit %d)", path, lines, LIMIT) end
  if path:find "^lua/" then requires[module_of(path)] = mine end
end

-- Modules that no file under lua/ makes.
local IN_C = { ["tfdist.core"] = true, ["tfdist.host"] = true }

-- A name that is required anywhere and is that of no file.
local function check_names(paths)
  for _, path in ipairs(paths) do
    local number = 0
    for line in io.lines(path) do
      number = number + 1
      local target = line:match "require%s*%(?%s*[\"'](tfdist[%w_.]*)[\"']"
      if target and not target:find "%.$" and not requires[target]
         and not IN_C[target] then
        complain("%s:%d requires %s, which is not there", path, number, target)
      end
    end
  end
end

local function find_cycles()
  local state = {}
  local function visit(name, trail)
    if state[name] == "done" or not requires[name] then return end
    if state[name] == "open" then
      complain("modules in a circle: %s -> %s", table.concat(trail, " -> "), name)
      return
    end
    state[name] = "open"
    trail[#trail + 1] = name
    for _, target in ipairs(requires[name]) do visit(target, trail) end
    trail[#trail] = nil
    state[name] = "done"
  end
  local names = {}
  for name in pairs(requires) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do visit(name, {}) end
end

for _, path in ipairs(files "'src/*.c' 'src/*.h' 'src/*.cc' 'src/*.cu' 'spec/c/*.c'") do
  check_c(path)
end
local lua_files = files "'*.lua'"
for _, path in ipairs(lua_files) do check_lua(path) end
check_names(lua_files)
find_cycles()

local names = {}
for key in pairs(edges) do names[#names + 1] = key end
table.sort(names)
for _, key in ipairs(names) do print(("%-24s %d"):format(key, edges[key])) end
for _, text in ipairs(problems) do io.stderr:write(text, "\n") end
os.exit(#problems == 0 and 0 or 1)
