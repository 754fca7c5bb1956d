--- Paths as arguments, whole files as strings, and what folders hold.
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

-- Not every engine has strings of this length.
local MOST = 2 ^ 30
local PIECE = 2 ^ 20
-- errno: no memory, no descriptors (in all, for this process), files too large,
-- no space, no quota.
local FULL = {
  [12] = true, [23] = true, [24] = true, [27] = true, [28] = true,
  [122] = true,
}

--- x, a piece of a path: the system would take a zero byte as the end of the
--- whole and meet another file.
--- Errors: ValueError for a zero byte; TypeError for what is no string.
---@param what string   function, for messages
---@param name string   argument, as messages call it
---@param x any
---@return string
function M.piece(what, name, x)
  if type(x) ~= "string" then
    errors.raise("TypeError", ("%s: %s must be a string, got %s"):format(what,
      name, text.describe(x)))
  elseif x:find("%z") then
    errors.raise("ValueError", ("%s: %s must not contain zero bytes, got %s")
      :format(what, name, text.describe(x)))
  end
  return x
end

--- The path x, as M.piece; what is put behind an empty one would lie in "/".
--- Errors: also ValueError for an empty one.
---@param what string
---@param name string
---@param x any
---@return string
function M.path(what, name, x)
  if M.piece(what, name, x) == "" then
    errors.raise("ValueError", ("%s: %s is empty; expected a path"):format(what,
      name))
  end
  return x
end

--- True for the error numbers of what found no room: the disk is full, the
--- file too large, no descriptor or memory left.
---@param code integer?
---@return boolean
function M.is_full(code)
  return FULL[code] or false
end

-- Texts that end with a zero byte each, in byte order.
local function sorted(joined)
  local list = {}
  for name in joined:gmatch "[^%z]+" do
    list[#list + 1] = name
  end
  table.sort(list)
  return list
end

--- Names in a folder, sorted.
--- Errors: NotFound, FailedPrecondition, ResourceExhausted.
---@param folder string
---@return string[]
function M.names(folder)
  return sorted(raw.folder_list(folder))
end

--- Paths that match a pattern with * ? and [sets], sorted.
--- Errors: ResourceExhausted (no descriptors), FailedPrecondition.
---@param pattern string
---@return string[]
function M.glob(pattern)
  return sorted(raw.files_match(pattern))
end

local function too_long(path)
  errors.raise("DataLoss", path .. ": 1 GiB or more in one piece",
    "tf.data reads long files record by record")
end

-- What is left in a file whose length is not known before.
local function in_pieces(f)
  local list, n = {}, 0
  while true do
    local piece, why = f:read(PIECE)
    if piece == nil then
      return why == nil and table.concat(list) or nil, why
    end
    list[#list + 1], n = piece, n + #piece
    if n >= MOST then
      return nil, too_long
    end
  end
end

local function read_open(f)
  -- A folder is open too, and its length is the greatest number.
  local ok, why = f:read(0)
  if ok == nil and why ~= nil then
    return nil, why
  end
  local length = f:seek "end"
  if length ~= nil and length >= MOST then
    return nil, too_long
  elseif length ~= nil then
    f:seek "set"
  end
  if length ~= nil and length > 0 then
    return f:read "*a"
  end
  return in_pieces(f)
end

--- The file, open for reading.
--- Errors: returns nil, message for one that is not there or may not be read;
---   ResourceExhausted without a free descriptor.
---@param path string
---@return file*?
function M.open(path)
  local f, why, code = io.open(path, "rb")
  if f == nil and M.is_full(code) then
    errors.raise("ResourceExhausted", why)
  end
  return f, why
end

--- The contents of a file, less than 1 GiB, which files that do not end pass.
--- Errors: returns nil, message, true for a file that cannot be opened, nil,
---   message, false for one that cannot be read; DataLoss from 1 GiB on;
---   ResourceExhausted without a free descriptor.
---@param path string
---@return string?
function M.read(path)
  local f, why = M.open(path)
  if f == nil then
    return nil, why, true
  end
  local content
  content, why = read_open(f)
  f:close()
  if content == nil and why == too_long then
    too_long(path)
  end
  return content, why, false
end

local function read_input(input, path, most)
  local size = raw.input_size(input)
  if size < 0 then
    errors.raise("FailedPrecondition", path .. ": not a plain file")
  end
  size = math.min(size, most or size)
  return size < MOST and raw.input_read(input, size) or too_long(path)
end

--- The contents of a file that nobody may have to wait for: a plain one, less
--- than 1 GiB or its first `most` bytes. Pipes and devices are refused.
--- Errors: NotFound, FailedPrecondition, DataLoss, ResourceExhausted.
---@param path string
---@param most? integer
---@return string
function M.read_plain(path, most)
  local input = raw.input_open(path)
  local ok, content = pcall(read_input, input, path, most)
  raw.release(input)
  if not ok then
    error(content, 0)
  end
  return content
end

--- Does a folder list a file of this name, a link that leads nowhere included?
---@param folder string
---@param name string
---@return boolean
function M.is_listed(folder, name)
  local is_file, is_folder = raw.file_stat(folder .. "/" .. name)
  local ok, names = true, {}
  if not is_file and not is_folder then
    ok, names = errors.attempt(M.names, folder)
  end
  for _, listed in ipairs(ok and names or {}) do
    is_file = is_file or listed == name
  end
  return is_file or is_folder
end

return M
