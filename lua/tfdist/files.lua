--- Paths as arguments, and whole files as strings.
local errors = require "tfdist.errors"
local text = require "tfdist.text"

local M = {}

-- Not every engine has strings of this length.
local MOST = 2 ^ 30
local PIECE = 2 ^ 20
local FULL = { [27] = true, [28] = true, [122] = true } -- errno

--- The path x, whole: the system would take a zero byte as its end and meet
--- another file.
--- Errors: ValueError for a zero byte; TypeError for what is no string.
---@param what string   function, for messages
---@param name string   argument, as messages call it
---@param x any
---@return string
function M.path(what, name, x)
  if type(x) ~= "string" then
    errors.raise("TypeError", ("%s: %s must be a string, got %s"):format(what,
      name, text.describe(x)))
  elseif x:find("%z") then
    errors.raise("ValueError", ("%s: %s must not contain zero bytes, got %s")
      :format(what, name, text.describe(x)))
  end
  return x
end

--- True for the error numbers of a write that found no room: the file grew too
--- large, the disk is full, the quota is used up.
---@param code integer?
---@return boolean
function M.is_full(code)
  return FULL[code] or false
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

--- The contents of a file, less than 1 GiB, which files that do not end pass.
--- Errors: returns nil, message, true for a file that cannot be opened, nil,
---   message, false for one that cannot be read; DataLoss from 1 GiB on.
---@param path string
---@return string?
function M.read(path)
  local f, why = io.open(path, "rb")
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

return M
