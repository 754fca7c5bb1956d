--- The file "checkpoint" (JSON) of a folder, which lists its checkpoints.
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local json = require "tfdist.core.json"
local log = require "tfdist.base.notice"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

--- Its name.
M.NAME = "checkpoint"

--- Is it a list of names?
function M.is_names(list)
  if type(list) ~= "table" then
    return false
  end
  for i = 1, list.n or #list do
    if type(list[i]) ~= "string" or list[i]:find "%z" then
      return false
    end
  end
  return true
end

-- What the state file holds; nil, a reason when it is there and damaged.
local function decoded(path)
  local ok, found = pcall(function()
    return json.decode(files.read_plain(path), path)
  end)
  if not ok and not errors.is_of_data(found) then
    error(found, 0)
  elseif not ok then
    return nil, found.message
  end
  return type(found) == "table" and M.is_names(found.all_model_checkpoint_paths)
    and M.is_names { found.model_checkpoint_path } and found or nil,
    path .. ": no checkpoints are named in it"
end

-- Path of a state file -> the warning it had: one start reads it several times.
local warned = {}

--- The state file as a table; nil when there is none or it is not one, of which
--- a warning tells once.
function M.read(folder)
  if type(folder) ~= "string" then
    errors.raise("TypeError", "checkpoint_dir must be a folder's path, got "
      .. text.describe(folder))
  end
  files.path("latest_checkpoint", "checkpoint_dir", folder)
  local path = folder .. "/" .. M.NAME
  if not files.is_listed(folder, M.NAME) then
    return nil
  end
  local found, why = decoded(path)
  if found == nil and warned[path] ~= why then
    log.warn(why .. "; this list of checkpoints is ignored")
  end
  warned[path] = found == nil and why or nil
  return found
end

--- Write it. `removing`: names of files that are removed next; whoever reads the
--- state after this process died removes what is left of them.
function M.write(folder, latest, all, timestamps, preserved, removing)
  raw.file_write(folder .. "/" .. M.NAME, json.encode({
    model_checkpoint_path = latest,
    all_model_checkpoint_paths = all or { latest },
    all_model_checkpoint_timestamps = timestamps,
    last_preserved_timestamp = preserved,
    removing = removing,
  }, true) .. "\n")
end

return M
