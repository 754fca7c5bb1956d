--- The layers of src/: ranks, private headers, calls upward through tfdist.h,
--- circles of files inside a folder.
local common = require "scripts.lint.common"

local M = {}

local complain = common.complain
local LIMIT = 800
local COLUMNS = 80 -- of comments too, which are broken by hand

-- Folder -> rank. Equal ranks are siblings and do not see each other.
local RANK = {
  base = 0, types = 1, backend = 2, device = 3, tensor = 4, comm = 4, ops = 5,
  distribute = 6, autograd = 6, graph = 6, io = 6, lua = 8, host = 9,
}

-- Headers that other folders may include: all of these folders, the one that
-- is called like its folder, lists (.def), and these.
local OPEN = { base = true, types = true }
local FACES = {
  ["backend/cuda/native.h"] = true, ["backend/draw.h"] = true, ["backend/lay.h"] = true,
  ["backend/plugin.h"] = true, ["backend/recurrent.h"] = true,
  ["backend/blocks.h"] = true, ["backend/rows.h"] = true,
  ["backend/strip.h"] = true,
  ["backend/update_rules.h"] = true, ["backend/window.h"] = true,
  ["lua/bind.h"] = true, ["lua/embedded.h"] = true,
  ["ops/attributes.h"] = true,
}

local graph = {} -- folder -> folder -> includes
local private, upward = {}, {}

local function check_include(path, folder, target)
  if target == "tfdist.h" then return end
  if target:find "^tfdist/" then
    complain("%s includes %s: tfdist.h is the way to its parts", path, target)
  end
  local to = target:match "^(%w+)/"
  if not to or not RANK[to] then return end
  if to == folder then
    -- The private part of a back end: only its own folder looks inside.
    local inner = target:match "^backend/(%w+)/"
    if inner and inner ~= "kernels"
       and not path:find("src/backend/" .. inner .. "/", 1, true) then
      private[path .. " includes " .. target] = true
    end
    return
  end
  common.add_edge(graph, folder, to)
  if RANK[to] >= RANK[folder] then
    complain("%s includes %s: layer %s may not see %s", path, target, folder,
      to)
  end
  if not OPEN[to] and not FACES[target] and not target:find "%.def$"
     and target ~= to .. "/" .. to .. ".h" then
    private[path .. " includes " .. target] = true
  end
end

local function check_file(path, folder)
  local lines = 0
  for line in io.lines(path) do
    lines = lines + 1
    local target = line:match '^#%s*include%s+"([^"]+)"'
    if target and folder then check_include(path, folder, target) end
    if (utf8.len(line) or #line) > COLUMNS then
      complain("%s:%d is longer than %d columns", path, lines, COLUMNS)
    end
    if line:match "^#%s*include%s+[<\"]lua[%w]*%.h" and folder
       and RANK[folder] < RANK.lua then
      complain("%s:%d includes lua.h below the binding", path, lines)
    end
  end
  if lines > LIMIT then
    complain("%s has %d lines (limit %d)", path, lines, LIMIT)
  end
end

-- Text without comments and strings.
local function code_of(path)
  return (common.read(path):gsub("/%*.-%*/", " "):gsub('\\.', "")
    :gsub('"[^"\n]*"', '""'):gsub("//[^\n]*", ""))
end

-- Call visit(name) for the functions that a file defines for others.
local function each_definition(code, visit)
  for head in ("\n" .. code):gmatch "\n([%a_][^\n;={}]-tfd_[%w_]+%b())%s*{" do
    if not head:find "^static" and not head:find "^typedef" then
      visit(head:match "(tfd_[%w_]+)%s*%(")
    end
  end
end

-- Which file defines a name, and which files of others use it.
local function check_calls(paths)
  local code, owner = {}, {}
  for _, path in ipairs(paths) do
    code[path] = code_of(path)
    each_definition(code[path], function(name) owner[name] = path end)
  end
  local inside = {}
  for _, path in ipairs(paths) do
    local folder = path:match "^src/(%w+)/"
    for name in code[path]:gmatch "%f[%w_](tfd_[%w_]+)" do
      local at = owner[name]
      local to = at and at:match "^src/(%w+)/"
      if to == folder and at ~= path then
        common.add_edge(inside, path, at)
      elseif to and RANK[to] > RANK[folder] then
        upward[("%s calls %s of %s"):format(path, name, to)] = true
      end
    end
  end
  local circles = {}
  for _, set in ipairs(common.cycles(inside)) do
    local text = table.concat(set, " "):gsub("src/", "")
    circles[text] = true
  end
  common.refuse(circles, "files in a circle")
  common.refuse(upward, "call upward")
end

function M.run()
  local sources = {}
  for _, path in ipairs(common.files(
    "'src/*.c' 'src/*.h' 'src/*.cc' 'src/*.cu' 'spec/c/*.c'")) do
    local folder = path:match "^src/(%w+)/"
    check_file(path, RANK[folder] and folder)
    if RANK[folder] and path:find "%.c$"
       and not path:find "^src/backend/cuda/" then
      sources[#sources + 1] = path
    end
  end
  check_calls(sources)
  common.refuse(private, "private header")
  return graph
end

return M
