--- A disk that may lose its power: what it holds then of what a process did to
--- a folder.
---
--- What was written to a file is held when the file is synced, and what was
--- done to the names in a folder when the folder is. Of everything else any part
--- may be held: each write, or the first bytes of it, and each name made, changed
--- or taken away, for itself. A rename is held as a whole.
local files = require "spec.support.files"
local raw = require "tfdist.core.raw"

local M = {}

--- What spec/support/faults.c wrote to a log, as a list of calls: what, from, to,
--- data.
function M.calls(log)
  local list, at = {}, 1
  while at <= #log do
    local what, from, to, behind = log:match("^(%a+) (%S+) ([^\n]*)\n()", at)
    assert(what, "no log of calls")
    local call = { what = what, from = from, to = to }
    if what == "write" then
      call.data = log:sub(behind, behind + tonumber(to) - 1)
      assert(#call.data == tonumber(to))
      behind = behind + #call.data + 1
    end
    list[#list + 1], at = call, behind
  end
  return list
end

-- Files: held, the bytes; writes since, { at, data }; size. Folders: names now
-- and names held, to files and folders; changes since, each a list of
-- { name, what it names or nil }.
local function new_file(bytes)
  return { held = bytes, writes = {}, size = #bytes }
end

local function new_folder()
  return { now = {}, held = {}, changes = {} }
end

local Disk = {}
Disk.__index = Disk

local function of_folder(path)
  local folder = new_folder()
  for _, name in ipairs(files.names(path)) do
    local where = path .. "/" .. name
    local _, is_folder = raw.file_stat(where)
    local node = is_folder and of_folder(where) or new_file(files.read(where))
    folder.now[name], folder.held[name] = node, node
  end
  return folder
end

--- A disk that holds what lies in a folder, synced.
function M.new(path)
  return setmetatable({ path = path, root = of_folder(path) }, Disk)
end

-- The folder that a path lies in, and its name there; nil for the root's own.
function Disk:find(path)
  assert(path:sub(1, #self.path) == self.path)
  local folder, name = self.root, nil
  for part in path:sub(#self.path + 1):gmatch "[^/]+" do
    folder = name and folder.now[name] or folder
    name = part
  end
  return folder, name
end

local function change(folder, list)
  folder.changes[#folder.changes + 1] = list
  for _, each in ipairs(list) do
    folder.now[each[1]] = each[2]
  end
end

local function written(bytes, at, data)
  bytes = bytes .. ("\0"):rep(at - #bytes)
  return bytes:sub(1, at) .. data .. bytes:sub(at + #data + 1)
end

local function sync(node)
  for _, each in ipairs(node.writes or {}) do
    node.held = written(node.held, each[1], each[2])
  end
  if node.writes then
    node.writes = {}
    return
  end
  node.held, node.changes = {}, {}
  for name, each in pairs(node.now) do
    node.held[name] = each
  end
end

local CALLS = {}

function CALLS.create(folder, name)
  assert(folder.now[name] == nil, "files are made, not emptied")
  change(folder, { { name, new_file "" } })
end

function CALLS.write(folder, name, call)
  local file = folder.now[name]
  file.writes[#file.writes + 1] = { file.size, call.data }
  file.size = file.size + #call.data
end

function CALLS.fsync(folder, name)
  sync(name and folder.now[name] or folder)
end

function CALLS.mkdir(folder, name)
  change(folder, { { name, new_folder() } })
end

function CALLS.rename(folder, name, call, disk)
  local other, to = disk:find(call.to)
  assert(other == folder)
  change(folder, { { to, folder.now[name] }, { name, nil } })
end

function CALLS.unlink(folder, name)
  assert(folder.now[name])
  change(folder, { { name, nil } })
end

--- One of the calls is made.
function Disk:call(call)
  local folder, name = self:find(call.from)
  CALLS[call.what](folder, name, call, self)
end

-- Of a write: all, its first bytes, so many bytes of nothing, or no byte.
local function held_of_file(file, holds, draw)
  local bytes = file.held
  for _, each in ipairs(file.writes) do
    local at, data = each[1], each[2]
    local part = holds.writes == "drawn" and draw(4) or holds.writes and 0 or 3
    if part == 1 then
      data = data:sub(1, draw(#data))
    elseif part == 2 then
      data = ("\0"):rep(#data)
    end
    if part < 3 then
      bytes = written(bytes, at, data)
    end
  end
  return bytes
end

local function held_of_folder(folder, holds, draw, path, found)
  local names = {}
  for name, each in pairs(folder.held) do
    names[name] = each
  end
  for _, list in ipairs(folder.changes) do
    if holds.names == "drawn" and draw(2) == 0 or holds.names == true then
      for _, each in ipairs(list) do
        names[each[1]] = each[2]
      end
    end
  end
  found[#found + 1] = { path }
  local sorted = {}
  for name in pairs(names) do
    sorted[#sorted + 1] = name
  end
  table.sort(sorted) -- what is drawn follows from the seed alone
  for _, name in ipairs(sorted) do
    local node, where = names[name], path .. "/" .. name
    if node.writes then
      found[#found + 1] = { where, held_of_file(node, holds, draw) }
    else
      held_of_folder(node, holds, draw, where, found)
    end
  end
  return found
end

--- What is held when the power goes: a list of { path, bytes }, folders without
--- bytes, before what lies in them.
--- holds: { writes, names }, each true (all), false (what was synced) or
--- "drawn"; draw(n): a number under n.
function Disk:held(holds, draw)
  return held_of_folder(self.root, holds, draw, self.path, {})
end

return M
