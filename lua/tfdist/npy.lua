--- NumPy's files: npy (one array) and npz (a zip of them).
local convert = require "tfdist.convert"
local errors = require "tfdist.errors"
local files = require "tfdist.files"
local options = require "tfdist.options"
local raw = require "tfdist.raw"
local text = require "tfdist.text"
local tf = require "tfdist"

local M = {}

local DTYPES = {
  f4 = "float32", f8 = "float64", f2 = "float16", i1 = "int8", i2 = "int16",
  i4 = "int32", i8 = "int64", u1 = "uint8", b1 = "bool",
}
local CODES = {}
for code, dtype in pairs(DTYPES) do
  CODES[dtype] = code
end

local function damaged(path, offset, why)
  errors.raise("DataLoss", ("%s: at offset %d: %s"):format(path, offset, why))
end

-- Little-endian unsigned number of n bytes at position `at` (from 1).
local function number_at(data, at, n)
  local x = 0
  for i = n - 1, 0, -1 do
    x = x * 256 + (data:byte(at + i) or 0)
  end
  return x
end

local function parse_shape(path, list)
  local dims, size = {}, 1
  for n in list:gmatch "%d+" do
    dims[#dims + 1] = tonumber(n)
    size = size * tonumber(n)
  end
  if #dims > 8 or size > 2 ^ 53 then
    damaged(path, 10, "a shape that tensors cannot have")
  end
  return dims, size
end

-- The array in the bytes of an npy file.
local function parse(path, data)
  if data:sub(1, 6) ~= "\147NUMPY" or #data < 12 then
    damaged(path, 0, "not an npy file")
  end
  local wide = data:byte(7) >= 2
  local begin = wide and 13 or 11
  local length = number_at(data, 9, wide and 4 or 2)
  if begin - 1 + length > #data then
    damaged(path, 8, "the header goes beyond the end")
  end
  local head = data:sub(begin, begin + length - 1)
  local order, code = head:match "'descr'%s*:%s*'([<>|=]?)(%a%d+)'"
  local fortran = head:match "'fortran_order'%s*:%s*(%a+)"
  local list = head:match "'shape'%s*:%s*%(([%d%s,]*)%)"
  if code == nil or fortran == nil or list == nil then
    damaged(path, begin - 1, "the header is not one of a plain array")
  elseif DTYPES[code] == nil then
    errors.raise("NotImplementedError", ("%s: there is no dtype for %s"):format(
      path, text.quote(code)))
  end
  local dims, size = parse_shape(path, list)
  local item = tonumber(code:match "%d+")
  local body = data:sub(begin + length)
  if #body ~= size * item then
    damaged(path, begin - 1 + length, ("%d bytes of elements, %s %s has %s")
      :format(#body, DTYPES[code], text.shape(dims), text.number(size * item)))
  elseif order == ">" and item > 1 then
    body = body:gsub(("."):rep(item), string.reverse)
  end
  if code == "b1" and body:find "[^%z\1]" then
    damaged(path, begin - 1 + length, "a byte that is no boolean")
  end
  if fortran ~= "True" then
    return raw.tensor_from_bytes(body, DTYPES[code], dims)
  end
  local turned, axes = {}, {}
  for i = 1, #dims do
    turned[i], axes[i] = dims[#dims + 1 - i], #dims - i
  end
  return tf.transpose(raw.tensor_from_bytes(body, DTYPES[code], turned), axes)
end

-- The contents of a file; nil, message, "NotFound" without it.
local function read_all(what, path)
  files.path(what, "the file's path", path)
  local is_file, is_folder = raw.file_stat(path)
  if not is_file and not is_folder then
    return nil, path .. ": No such file or directory", "NotFound"
  end
  local data, why = files.read(path)
  if data == nil then
    errors.raise("FailedPrecondition", ("%s: cannot be read: %s"):format(path,
      is_folder and "is a folder" or tostring(why)))
  end
  return data
end

--- The array of an npy file.
--- Errors: returns nil, message, "NotFound" without the file; raises DataLoss
---   naming file and offset, or from 1 GiB on; NotImplementedError for
---   dtypes there are not.
--- Source: numpy.load
---@param path string
---@return tfdist.Tensor?
M.read_npy = options.wrap("read_npy", "path", function(path)
  local data, why, kind = read_all("read_npy", path)
  if data == nil then
    return nil, why, kind
  end
  return parse(path, data)
end)

--- Write a tensor as an npy file, which appears whole or not at all.
--- Errors: NotImplementedError for bfloat16. Source: numpy.save
M.write_npy = options.wrap("write_npy", "path tensor:t", function(path, x)
  files.path("write_npy", "the file's path", path)
  local t = convert.tensor(x, nil, "write_npy", "tensor")
  local dtype, dims = raw.tensor_dtype(t), t.shape
  if CODES[dtype] == nil then
    errors.raise("NotImplementedError", "write_npy: the format has no " .. dtype)
  end
  local list = table.concat(dims, ", ") .. (#dims == 1 and "," or "")
  local code = CODES[dtype]
  local head = ("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }")
    :format(code:find "1$" and "|" or "<", code, list)
  head = head .. (" "):rep((-(#head + 11)) % 64) .. "\n"
  raw.file_write(path, "\147NUMPY\1\0" .. string.char(#head % 256,
    math.floor(#head / 256)) .. head .. raw.tensor_bytes(t))
end)

-- npz ------------------------------------------------------------------------

local STORED, DEFLATED = 0, 8
-- No deflated byte stands for more than these.
local MOST_BYTES = 1032

-- Deflated bytes: given a gzip file's head and tail, the reader of compressed
-- files does the work and checks the sum.
local function inflate(path, packed, tail, size)
  if size == 0 then
    return ""
  elseif size > #packed * MOST_BYTES then
    damaged(path, 0, ("%d compressed bytes cannot be %s"):format(#packed,
      text.number(size)))
  end
  local name = os.tmpname()
  raw.file_write(name, "\31\139\8\0\0\0\0\0\0\255" .. packed .. tail)
  local ok, data = pcall(function()
    local reader = raw.reader_open("fixed", name, "gzip", { size, 0, 0 })
    local found = raw.reader_next(reader)
    raw.release(reader)
    return found
  end)
  os.remove(name)
  if not ok or data == nil or #data ~= size then
    damaged(path, 0, "a compressed array is damaged")
  end
  return data
end

-- One entry of the central directory at `at`: name, contents, next position,
-- its bytes in the file.
local function entry_of(path, data, at)
  if data:sub(at, at + 3) ~= "PK\1\2" then
    damaged(path, at - 1, "no entry of the zip directory")
  end
  local method = number_at(data, at + 10, 2)
  local packed, size = number_at(data, at + 20, 4), number_at(data, at + 24, 4)
  local names = number_at(data, at + 28, 2)
  local extra, comment = number_at(data, at + 30, 2), number_at(data, at + 32, 2)
  local place = number_at(data, at + 42, 4) + 1
  local name = data:sub(at + 46, at + 45 + names)
  if packed >= 2 ^ 32 - 1 or size >= 2 ^ 32 - 1 then
    errors.raise("NotImplementedError", path .. ": arrays over 4 GiB in npz")
  elseif data:sub(place, place + 3) ~= "PK\3\4" then
    damaged(path, place - 1, "no zip entry")
  end
  local begin = place + 30 + number_at(data, place + 26, 2)
    + number_at(data, place + 28, 2)
  local body = data:sub(begin, begin + packed - 1)
  if #body ~= packed then
    damaged(path, begin - 1, "the file ends in an array")
  elseif method == DEFLATED then
    body = inflate(path, body, data:sub(at + 16, at + 19)
      .. data:sub(at + 24, at + 27), size)
  elseif method ~= STORED then
    errors.raise("NotImplementedError", ("%s: zip method %d"):format(path,
      method))
  end
  return name, body, at + 46 + names + extra + comment, packed
end

--- The arrays of an npz file by name.
--- Errors: as read_npy. Source: numpy.load
---@param path string
---@return table<string, tfdist.Tensor>?
M.read_npz = options.wrap("read_npz", "path", function(path)
  local data, why, kind = read_all("read_npz", path)
  if data == nil then
    return nil, why, kind
  end
  -- The directory's end is the last of its marks.
  local last, from = nil, math.max(1, #data - 65557)
  repeat
    local found = data:find("PK\5\6", from, true)
    last, from = found or last, (found or from) + 1
  until not found
  if last == nil or last + 21 > #data then
    damaged(path, #data, "not a zip file, or cut off")
  end
  local n, at = number_at(data, last + 10, 2), number_at(data, last + 16, 4) + 1
  local out, total = {}, 0
  for _ = 1, n do
    local name, body, packed
    name, body, at, packed = entry_of(path, data, at)
    total = total + packed
    if total > #data then
      damaged(path, at - 1, "its arrays lie on top of each other")
    end
    out[name:gsub("%.npy$", "")] = parse(path .. "(" .. name .. ")", body)
  end
  return out
end)

return M
