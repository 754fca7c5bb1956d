--- Files that specs make and read.
local raw = require "tfdist.core.raw"

local M = {}

--- A path that does not exist yet; the caller removes what it puts there.
function M.place(suffix)
  local path = os.tmpname()
  os.remove(path)
  return path .. (suffix or "")
end

--- A new folder of this user alone; the caller removes it.
function M.folder()
  local path = M.place()
  assert(os.execute("mkdir -m 700 " .. path))
  return path
end

--- What fn returns, which is called with a new folder; it is gone then.
function M.in_folder(fn)
  local path = M.folder()
  local function finish(ok, ...)
    os.execute("rm -rf " .. path)
    if not ok then error((...), 0) end
    return ...
  end
  return finish(pcall(fn, path))
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

-- The bits that two numbers under 2^32 do not share.
local function xor(a, b)
  local out, bit = 0, 1
  while a > 0 or b > 0 do
    if a % 2 ~= b % 2 then out = out + bit end
    a, b, bit = math.floor(a / 2), math.floor(b / 2), bit * 2
  end
  return out
end

--- CRC-32 as zip files have it (ISO 3309), bit by bit.
function M.crc32(data)
  local c = 0xFFFFFFFF
  for i = 1, #data do
    c = xor(c, data:byte(i))
    for _ = 1, 8 do
      c = c % 2 == 1 and xor(math.floor(c / 2), 0xEDB88320)
        or math.floor(c / 2)
    end
  end
  return xor(c, 0xFFFFFFFF)
end

--- A zip file of one entry that is not compressed; its bytes begin after
--- 30 + #name.
function M.stored_zip(name, body)
  local number = M.little
  local common = number(20, 2) .. number(0, 8) .. number(M.crc32(body), 4)
    .. number(#body, 4) .. number(#body, 4) .. number(#name, 2) .. number(0, 2)
  local data = "PK\3\4" .. common .. name .. body
  local list = "PK\1\2" .. number(20, 2) .. common .. number(0, 14) .. name
  return data .. list .. "PK\5\6" .. number(0, 4) .. number(1, 2)
    .. number(1, 2) .. number(#list, 4) .. number(#data, 4) .. number(0, 2)
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
