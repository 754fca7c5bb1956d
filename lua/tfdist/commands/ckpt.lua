--- `tfdist ckpt ls FILE...`, `tfdist ckpt verify FILE...`: what checkpoints hold,
--- and whether every byte is as it was written.
local checkpoint = require "tfdist.checkpoint"
local errors = require "tfdist.errors"
local text = require "tfdist.text"

local USAGE = [[
usage: tfdist ckpt ls FILE...        tensors of checkpoints
       tfdist ckpt verify FILE...    read all of them, compare checksums
FILE is a checkpoint's name or file, any safetensors file too.]]

local actions = {}

local function say(file, message)
  io.stderr:write("tfdist ckpt: ", message or file, "\n")
end

function actions.ls(file)
  local list, message = checkpoint.list(file)
  if list == nil then
    say(file, message)
    return false
  end
  local width, bytes = 4, 0
  for _, entry in ipairs(list) do
    width = math.max(width, #entry.name)
    bytes = bytes + entry.bytes
  end
  for _, entry in ipairs(list) do
    print(("%-" .. math.min(width, 80) .. "s  %-9s %-18s %12s bytes"):format(
      entry.name, entry.dtype, entry.shape, text.number(entry.bytes)))
  end
  print(("%d tensors, %s bytes"):format(#list, text.number(bytes)))
  return true
end

function actions.verify(file)
  local count, message = checkpoint.verify(file)
  if count == nil then
    say(file, message)
    return false
  end
  print(("ok    %s: %d tensors"):format(file, count))
  return true
end

return function(action, ...)
  local run, files = actions[action or ""], { ... }
  if run == nil or #files == 0 then
    io.stderr:write(USAGE, "\n")
    return 2
  end
  local good = true
  for _, file in ipairs(files) do
    local ok, result = pcall(run, file)
    if not ok and not errors.is_error(result) then
      error(result, 0)
    elseif not ok then
      say(file, result.kind .. ": " .. result.message)
    end
    good = good and ok and result
  end
  return good and 0 or 1
end
