--- Small images as PNG files, for summaries. The pixels are stored without
--- compression; every PNG reader takes that.
local M = {}

local char, floor = string.char, math.floor
local load_text = rawget(_G, "loadstring") or load

-- Exclusive or of 32-bit numbers: an operator of 5.4, a module of LuaJIT.
local function find_xor()
  local ok, bit = pcall(require, "bit")
  if ok then
    return function(a, b)
      local x = bit.bxor(a, b)
      return x < 0 and x + 2 ^ 32 or x
    end
  end
  return load_text("return function(a, b) return a ~ b end")()
end

local xor = find_xor()
local table_crc = {}

for i = 0, 255 do
  local c = i
  for _ = 1, 8 do
    local half = floor(c / 2)
    c = c % 2 == 1 and xor(half, 0xEDB88320) or half
  end
  table_crc[i] = c
end

local function crc32(data)
  local c = 0xFFFFFFFF
  for i = 1, #data do
    c = xor(floor(c / 256), table_crc[xor(c % 256, data:byte(i))])
  end
  return xor(c, 0xFFFFFFFF)
end

local function adler32(data)
  local a, b = 1, 0
  for i = 1, #data do
    a = (a + data:byte(i)) % 65521
    b = (b + a) % 65521
  end
  return b * 65536 + a
end

local function big(x)
  return char(floor(x / 2 ^ 24) % 256, floor(x / 65536) % 256,
    floor(x / 256) % 256, floor(x) % 256)
end

local function chunk(kind, data)
  return big(#data) .. kind .. data .. big(crc32(kind .. data))
end

-- zlib's format with stored blocks.
local function store(data)
  local out = { "\120\1" }
  local at = 1
  repeat
    local piece = data:sub(at, at + 65534)
    at = at + #piece
    local n = #piece
    out[#out + 1] = char(at > #data and 1 or 0, n % 256, floor(n / 256),
      255 - n % 256, 255 - floor(n / 256)) .. piece
  until at > #data
  out[#out + 1] = big(adler32(data))
  return table.concat(out)
end

local COLORS = { [1] = 0, [2] = 4, [3] = 2, [4] = 6 }

--- The PNG of width x height pixels of 1 to 4 channels, one byte each, given
--- row-major.
---@param pixels string
---@return string
function M.encode(pixels, height, width, channels)
  local rows, stride = {}, width * channels
  for y = 0, height - 1 do
    rows[y + 1] = "\0" .. pixels:sub(y * stride + 1, (y + 1) * stride)
  end
  return "\137PNG\r\n\26\n" .. chunk("IHDR", big(width) .. big(height)
    .. char(8, COLORS[channels], 0, 0, 0))
    .. chunk("IDAT", store(table.concat(rows))) .. chunk("IEND", "")
end

return M
