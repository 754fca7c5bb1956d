--- Protobuf's wire format, as event files need it.
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"

local M = {}

local char, floor = string.char, math.floor

--- A whole number of 0..2^53 as a varint; negative ones take ten bytes.
function M.varint(x)
  if x < 0 then
    -- Two's complement of 64 bits, in pieces that doubles hold exactly.
    local low, high = x % 2 ^ 28, floor(x / 2 ^ 28) % 2 ^ 36
    local out = {}
    for i = 1, 4 do
      out[i] = char(low % 128 + 128)
      low = floor(low / 128)
    end
    for i = 5, 9 do
      out[i] = char(high % 128 + 128)
      high = floor(high / 128)
    end
    out[10] = char(high)
    return table.concat(out)
  end
  local out, n = {}, 0
  while x >= 128 do
    n = n + 1
    out[n] = char(x % 128 + 128)
    x = floor(x / 128)
  end
  out[n + 1] = char(x)
  return table.concat(out)
end

--- Field with a length: text, message, packed list.
function M.bytes(field, data)
  return M.varint(field * 8 + 2) .. M.varint(#data) .. data
end

function M.integer(field, x)
  return M.varint(field * 8) .. M.varint(x)
end

--- Little-endian bytes of numbers.
function M.pack(dtype, list)
  return raw.tensor_bytes(raw.tensor_from_values(list, dtype, { #list }))
end

function M.double(field, x)
  return M.varint(field * 8 + 1) .. M.pack("float64", { x })
end

local function broken(what, at)
  errors.raise("DataLoss", ("%s: not a valid message at byte %d"):format(what,
    at - 1))
end

-- In two halves that doubles hold exactly.
local function read_varint(data, at, what)
  local low, high, scale = 0, 0, 1
  for i = at, at + 9 do
    local byte = data:byte(i)
    if byte == nil then
      break
    elseif i == at + 4 then
      scale = 1
    end
    if i < at + 4 then
      low = low + byte % 128 * scale
    else
      high = high + byte % 128 * scale
    end
    if byte < 128 then
      high = high >= 2 ^ 35 and high - 2 ^ 36 or high
      return high * 2 ^ 28 + low, i + 1
    end
    scale = scale * 128
  end
  broken(what, at)
end

local SIZES = { [1] = 8, [5] = 4 }

--- The fields of a message: an iterator of number, value; values of fixed size
--- and those with a length are strings.
--- Errors: DataLoss.
function M.fields(data, what)
  if type(data) ~= "string" then
    broken(what, 1)
  end
  local at = 1
  return function()
    if at > #data then
      return nil
    end
    local begin = at
    local key, after = read_varint(data, at, what)
    local wire = key % 8
    local n = SIZES[wire]
    if wire == 0 then
      n, at = read_varint(data, after, what)
      return floor(key / 8), n
    elseif wire == 2 then
      n, after = read_varint(data, after, what)
    end
    at = after
    if n == nil or n < 0 or at + n - 1 > #data or key < 8 then
      broken(what, begin)
    end
    at = at + n
    return floor(key / 8), data:sub(at - n, at - 1)
  end
end

--- Numbers from little-endian bytes.
--- Errors: DataLoss when they are cut off.
function M.unpack(dtype, data, what)
  local size = dtype == "float32" and 4 or 8
  if type(data) ~= "string" or #data % size ~= 0 then
    broken(what, 1)
  elseif #data == 0 then
    return {}
  end
  return raw.tensor_to_flat(raw.tensor_from_bytes(data, dtype,
    { #data / size }))
end

return M
