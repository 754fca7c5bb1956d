--- `tfdist ckpt ls PATH...`, `tfdist ckpt verify PATH...`: what checkpoints hold,
--- or which there are in a folder, and whether every byte is as it was written.
local checkpoint = require "tfdist.train.checkpoint"
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local together = require "tfdist.train.together"
local train = require "tfdist.train"

local USAGE = [[
usage: tfdist ckpt ls FOLDER...      checkpoints in a folder
       tfdist ckpt ls FILE...        tensors of checkpoints
       tfdist ckpt verify FILE...    read all of them, compare checksums
FILE is a checkpoint's name or file, any safetensors file too, or a folder. That
of a BackupAndRestore has its backup in a folder below it, which is looked into.]]

local actions = {}

-- Names of files, and all that stands in them, come from others.
local function say(message)
  io.stderr:write("tfdist ckpt: ", text.printable(message), "\n")
end

local function show(format, ...)
  print(text.printable(format:format(...)))
end

-- Run an action for every file, whatever is wrong with some; true if all is
-- well.
local function each(run, files)
  local good = true
  for _, file in ipairs(files) do
    local ok, result = pcall(run, file)
    if not ok and not errors.is_error(result) then
      error(result, 0)
    elseif not ok then
      say(result.kind .. ": " .. result.message)
    end
    good = good and ok and result
  end
  return good
end

-- A folder, unless a checkpoint has the same name.
local function is_folder(path)
  local _, folder = raw.file_stat(path)
  return folder and not raw.file_stat(checkpoint.file_name(path))
end

-- Paths of the checkpoints in a folder.
local function paths_in(folder)
  local paths = checkpoint.in_folder(folder)
  for i, name in ipairs(paths) do
    paths[i] = folder:gsub("/*$", "") .. "/" .. name
  end
  return paths
end

-- The same, or those that a BackupAndRestore of this folder keeps, and where
-- they are; nil, message when there are none.
local function in_folder(folder)
  local paths = paths_in(folder)
  if #paths > 0 then
    return paths, folder
  end
  local below = folder:gsub("/*$", "") .. "/" .. together.BACKUPS
  paths = is_folder(below) and paths_in(below) or {}
  if #paths > 0 then
    return paths, below
  end
  return nil, folder .. ": there are no checkpoints in this folder"
end

-- "12 tensors, 3456 bytes"
local function summary(list)
  local bytes = 0
  for _, entry in ipairs(list) do
    bytes = bytes + entry.bytes
  end
  return ("%d tensor%s, %s bytes"):format(#list, #list == 1 and "" or "s",
    text.number(bytes))
end

local function ls_folder(folder)
  local paths, place = in_folder(folder)
  if paths == nil then
    say(place)
    return false
  end
  local latest = train.latest_checkpoint((place:gsub("(.)/+$", "%1")))
  local good = true
  for _, path in ipairs(paths) do
    local ok, list = pcall(checkpoint.list, path)
    if not ok and not errors.is_error(list) then
      error(list, 0)
    end
    good = good and ok
    show("%s  %s%s", path, ok and summary(list) or list.kind .. ": "
      .. list.message, path == latest and "  (latest)" or "")
  end
  return good
end

function actions.ls(file)
  if is_folder(file) then
    return ls_folder(file)
  end
  local list, message = checkpoint.list(file)
  if list == nil then
    say(message)
    return false
  end
  local width = 4
  for _, entry in ipairs(list) do
    width = math.max(width, #entry.name)
  end
  for _, entry in ipairs(list) do
    show("%-" .. math.min(width, 80) .. "s  %-9s %-18s %12s bytes", entry.name,
      entry.dtype, entry.shape, text.number(entry.bytes))
  end
  print(summary(list))
  return true
end

function actions.verify(file)
  if is_folder(file) then
    local paths, message = in_folder(file)
    if paths == nil then
      say(message)
    end
    return paths ~= nil and each(actions.verify, paths)
  end
  local count, message = checkpoint.verify(file)
  if count == nil then
    say(message)
    return false
  end
  show("ok    %s: %d tensor%s", file, count, count == 1 and "" or "s")
  return true
end

return function(action, ...)
  local run, files = actions[action or ""], { ... }
  if run == nil or #files == 0 then
    io.stderr:write(USAGE, "\n")
    return 2
  end
  return each(run, files) and 0 or 1
end
