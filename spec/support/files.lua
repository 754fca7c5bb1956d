--- Files that specs make and read.
local raw = require "tfdist.raw"

local M = {}

--- A path that does not exist yet; the caller removes what it puts there.
function M.place(suffix)
  local path = os.tmpname()
  os.remove(path)
  return path .. (suffix or "")
end

--- The bytes of a file.
function M.read(path)
  local f = assert(io.open(path, "rb"))
  local content = f:read "*a"
  f:close()
  return content
end

--- Make a file of these bytes.
function M.write(path, content)
  local f = assert(io.open(path, "wb"))
  f:write(content)
  f:close()
end

--- The bytes of a whole number, lowest first.
function M.little(n, size)
  local out = {}
  for i = 1, size do
    out[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(out)
end

--- Names in a folder, sorted.
function M.names(folder)
  local list = {}
  for name in raw.folder_list(folder):gmatch "[^%z]+" do
    list[#list + 1] = name
  end
  table.sort(list)
  return list
end

return M
