--- The floors of lua/tfdist: ranks of folders, circles of modules, writes into
--- another module's fields, names that no file has.
local common = require "scripts.lint.common"

local M = {}

local complain = common.complain
local LIMIT = 800

-- Floor -> rank; a floor sees those below it and itself. `tfdist` is
-- init.lua, where the names come together.
local RANK = {
  base = 0, core = 1, data = 2, io = 2, distribute = 3, train = 4, traced = 4,
  keras = 5,
  tfdist = 6, host = 7,
}

-- Modules that no file under lua/ makes.
local IN_C = { ["tfdist.core"] = true, ["tfdist.host"] = true }

-- Tables of a module that others register in. What stands in `hooks` is put in
-- by one place.
local REGISTRIES = {
  classes = true, custom = true, hooks = true, whole_builds = true,
}
-- Objects that hang on a module and are no part of it.
local OBJECTS = { current = true }

-- What a shell makes of names and what others see of a temporary file is no
-- library's business; `doctor` asks which `lua` the user's shell finds.
local SHELL = { "io%.popen", "os%.execute", "os%.tmpname" }
local MAY_ASK = "lua/tfdist/host/cli.lua"

local graph = {}   -- floor -> floor -> requires
local modules = {} -- name -> path
local edges = {}   -- module -> module -> requires, lazy ones too
local lazy = {}
local hooks = {}   -- "module.hook" -> place

local function module_of(path)
  return (path:gsub("^lua/", ""):gsub("%.lua$", ""):gsub("/init$", "")
    :gsub("/", "."))
end

local function floor_of(name)
  local word = name:match "^tfdist%.(%w+)"
  return RANK[word] and word or "tfdist"
end

-- A line without its comment.
local function code_of(line)
  local at, quote = 1, nil
  while at <= #line do
    local c = line:sub(at, at)
    if quote then
      if c == "\\" then
        at = at + 1
      elseif c == quote then
        quote = nil
      end
    elseif c == "\"" or c == "'" then
      quote = c
    elseif line:sub(at, at + 1) == "--" then
      return line:sub(1, at - 1)
    end
    at = at + 1
  end
  return line
end

-- Call visit(code, number) for the lines of a file outside of long strings and
-- comments.
local function each_line(path, visit)
  local number, ending = 0, nil
  for line in io.lines(path) do
    number = number + 1
    if ending then
      local _, last = line:find(ending, 1, true)
      line = last and line:sub(last + 1) or ""
      ending = not last and ending or nil
    end
    local level = not ending and line:match "%[(=*)%["
    if level and not line:find("]" .. level .. "]", 1, true) then
      ending = "]" .. level .. "]"
      line = line:match "^(.-)%[=*%["
    end
    visit(code_of(line), number)
  end
  return number
end

local function note(from, to, is_lazy)
  if from == to then return end
  common.add_edge(edges, from, to)
  local a, b = floor_of(from), floor_of(to)
  if a ~= b then
    common.add_edge(graph, a, b)
    if is_lazy then common.add_edge(lazy, a, b) end
  end
  if a ~= b and RANK[b] >= RANK[a] then
    complain("%s requires %s: floor %s may not see %s", modules[from], to, a, b)
  end
end

local function check_requires(path, name, code, number)
  for text in code:gmatch "[\"'](tfdist[%w_.]*)[\"']" do
    local required = code:find("require%s*%(?%s*[\"']" .. text:gsub("%.", "%%.")
      .. "[\"']")
    if modules[text] then
      note(name, text, not code:find "^%S" or not required)
    elseif text:find "%.$" then
      for other in pairs(modules) do
        if other:sub(1, #text) == text and not other:find(".", #text + 1, true)
        then
          note(name, other, true)
        end
      end
    elseif required and not IN_C[text] then
      complain("%s:%d requires %s, which is not there", path, number, text)
    end
  end
end

-- Where the locals that a function's locals hide are kept.
local OUTER = {}

-- What an assignment writes to: "a.b.c" of `a.b.c = `, `function a.b.c(`.
local WRITES = {
  "^%s*([%a_][%w_]*%.[%w_.]+)[%w_.%[%]\"']*%s*=[^=]",
  "^%s*([%a_][%w_]*%.[%w_.]+)%[.-%]%s*=[^=]",
  "^%s*([%a_][%w_]*)%[.-%]%s*=[^=]",
  "^%s*function%s+([%a_][%w_]*[.:][%w_.:]+)%s*%(",
  "%f[%w_]rawset%(([%a_][%w_.]*),", "%f[%w_]setmetatable%(([%a_][%w_.]*),",
}

-- `own` maps locals to what they stand for, "module" or "module|field".
local function check_writes(path, own, code, number)
  local target, how
  for _, pattern in ipairs(WRITES) do
    target, how = code:match(pattern), pattern
    if target then break end
  end
  local base = target and not code:find "^%s*local%s" and target:match "^[%w_]+"
  local stands = base and own[base]
  if not stands then return end
  local list = { stands:match "|([%w_]+)$" }
  for word in target:sub(#base + 1):gmatch "[%w_]+" do
    list[#list + 1] = word
  end
  local inner = #list > 1 or how:find "%["
  if list[1] == "hooks" and list[2] then
    local hook = stands:match "^[^|]+" .. "." .. list[2]
    if hooks[hook] then
      complain("%s:%d puts in %s, as %s does", path, number, hook, hooks[hook])
    end
    hooks[hook] = path .. ":" .. number
  elseif not inner or not (REGISTRIES[list[1]] or OBJECTS[list[1]]) then
    complain("%s:%d writes into %s", path, number, target)
  end
end

-- Locals of a function are forgotten at its end.
local function note_local(own, code)
  if code:find "^end" then
    for name, indent in pairs(own[OUTER]) do
      own[name], own[OUTER][name] = indent or nil, nil
    end
    return
  end
  local name, module = code:match
    "^%s*local%s+([%w_]+)%s*=%s*[%w_.]*%s*%(?\"(tfdist[%w_.]*)\"%)?%s*$"
  if name and modules[module] then
    own[name] = module
    return
  end
  local alias, base, field = code:match
    "^%s*local%s+([%w_]+)%s*=%s*([%w_]+)%.([%w_]+)%s*$"
  if alias then
    if code:find "^%s" then own[OUTER][alias] = own[alias] or false end
    own[alias] = own[base] and not own[base]:find "|"
      and own[base] .. "|" .. field or nil
    return
  end
  -- Another local of this name, or a parameter.
  for word in (code:match "^%s*local%s+([%w_,%s]+)" or ""):gmatch "[%w_]+" do
    own[word] = nil
  end
end

local function check_shell(path, code, number)
  for _, call in ipairs(SHELL) do
    if code:find("%f[%w]" .. call) and path ~= MAY_ASK then
      complain("%s:%d uses %s", path, number, (call:gsub("%%", "")))
    end
  end
end

-- Loops that LuaJIT takes for one over the built-in next, which base.pairs
-- keeps from the library.
local function check_loops(path, code, number)
  if code:find "%f[%w]in%s+next%f[^%w_]" then
    complain("%s:%d has a loop over next: pairs, or next by another name", path,
      number)
  end
end

local function check_file(path)
  local name, own = module_of(path), { [OUTER] = {} }
  local library = modules[name] == path
  local lines = each_line(path, function(code, number)
    if library then
      check_shell(path, code, number)
      check_loops(path, code, number)
      note_local(own, code)
      check_writes(path, own, code, number)
      check_requires(path, name, code, number)
    else
      local target = code:match "require%s*%(?%s*[\"'](tfdist[%w_.]*)[\"']"
      if target and not modules[target] and not IN_C[target] then
        complain("%s:%d requires %s, which is not there", path, number, target)
      end
    end
  end)
  if lines > LIMIT then
    complain("%s has %d lines (limit %d)", path, lines, LIMIT)
  end
end

function M.run()
  local paths, folders = common.files "'*.lua'", {}
  for _, path in ipairs(paths) do
    if path:find "^lua/" then
      local name = module_of(path)
      if modules[name] then
        complain("%s and %s are one module", path, modules[name])
      end
      modules[name] = path
      folders[path:match "^(.*)/"] = true
    end
  end
  for _, path in pairs(modules) do
    if folders[path:match "^(.*)%.lua$"] then
      complain("%s stands beside a folder of its name", path)
    end
  end
  for _, path in ipairs(paths) do check_file(path) end
  for _, set in ipairs(common.cycles(edges)) do
    complain("modules in a circle: %s", table.concat(set, " "))
  end
  return graph, lazy
end

return M
