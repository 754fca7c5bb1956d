--- NumPy's files: npy (one array) and npz (a zip of them).
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

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
  local dims = {}
  for digits in list:gmatch "%d+" do
    dims[#dims + 1] = tonumber(digits)
    if #dims > 8 or dims[#dims] > 2 ^ 53 then
      damaged(path, 10, "a shape that tensors cannot have")
    end
  end
  return dims
end

-- The header's text, up to the elements.
local function read_header(path, input)
  local head = raw.input_read(input, 10)
  if head:sub(1, 6) ~= "\147NUMPY" or #head < 10 then
    damaged(path, 0, "not an npy file")
  end
  local wide = head:byte(7) >= 2
  if wide then
    head = head .. raw.input_read(input, 2)
  end
  local length = number_at(head, 9, wide and 4 or 2)
  local header = raw.input_read(input, length)
  if #header < length then
    damaged(path, 8, "the header goes beyond the end")
  end
  return header
end

-- The array that the input's part is; `path` is what messages call it.
local function read_array(path, input)
  local head = read_header(path, input)
  local order, code = head:match "'descr'%s*:%s*'([<>|=]?)(%a%d+)'"
  local fortran = head:match "'fortran_order'%s*:%s*(%a+)"
  local list = head:match "'shape'%s*:%s*%(([%d%s,]*)%)"
  if code == nil or fortran == nil or list == nil then
    damaged(path, 10, "the header is not one of a plain array")
  elseif DTYPES[code] == nil then
    errors.raise("NotImplementedError", ("%s: there is no dtype for %s"):format(
      path, text.quote(code)))
  end
  local dims, big = parse_shape(path, list), order == ">"
  if fortran ~= "True" then
    return raw.input_tensor(input, DTYPES[code], dims, big)
  end
  local turned, axes = {}, {}
  for i = 1, #dims do
    turned[i], axes[i] = dims[#dims + 1 - i], #dims - i
  end
  return tf.transpose(raw.input_tensor(input, DTYPES[code], turned, big), axes)
end

-- What read(path, input) makes of a file; nil, message, "NotFound" without it.
local function with_file(what, path, read)
  files.path(what, "the file's path", path)
  local is_file, is_folder = raw.file_stat(path)
  if not is_file and not is_folder then
    return nil, path .. ": No such file or directory", "NotFound"
  end
  local input = raw.input_open(path)
  local ok, result = pcall(read, path, input)
  raw.release(input)
  if not ok then
    error(result, 0)
  end
  return result
end

--- The array of an npy file.
--- Errors: returns nil, message, "NotFound" without the file; raises DataLoss
---   naming file and offset; NotImplementedError for dtypes there are not.
--- Source: numpy.load
---@param path string
---@return tfdist.Tensor?
M.read_npy = options.wrap("read_npy", "path", function(path)
  return with_file("read_npy", path, read_array)
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
local DIRECTORY_END = 22 -- bytes, and a comment of up to 65,535

-- The zip's directory, where it begins, and how many entries it has.
local function read_directory(path, input)
  local size = raw.input_size(input)
  if size < 0 then
    errors.raise("FailedPrecondition", path .. ": not a plain file")
  end
  local from = math.max(0, size - DIRECTORY_END - 65535)
  raw.input_part(input, path, from, size - from, false)
  local tail = raw.input_read(input, size - from)
  -- The directory's end is the last of its marks.
  local last, at = nil, 1
  repeat
    local found = tail:find("PK\5\6", at, true)
    last, at = found or last, (found or at) + 1
  until not found
  if last == nil or last + DIRECTORY_END - 1 > #tail then
    damaged(path, size, "not a zip file, or cut off")
  end
  local bytes, begin = number_at(tail, last + 12, 4),
    number_at(tail, last + 16, 4)
  raw.input_part(input, path, begin, bytes, false)
  return raw.input_read(input, bytes), begin, number_at(tail, last + 10, 2)
end

-- Go to the contents of an entry, which messages call `label`.
local function enter(path, input, label, place, packed, method)
  raw.input_part(input, label, place, 30, false)
  local head = raw.input_read(input, 30)
  if head:sub(1, 4) ~= "PK\3\4" then
    damaged(path, place, "no zip entry")
  end
  raw.input_part(input, label, place + 30 + number_at(head, 27, 2)
    + number_at(head, 29, 2), packed, method == DEFLATED)
end

-- One entry of the directory at `at`: name, array, next position, its bytes in
-- the file.
local function read_entry(path, input, directory, at, begin)
  if directory:sub(at, at + 3) ~= "PK\1\2" then
    damaged(path, begin + at - 1, "no entry of the zip directory")
  end
  local method = number_at(directory, at + 10, 2)
  local packed = number_at(directory, at + 20, 4)
  local size = number_at(directory, at + 24, 4)
  local names = number_at(directory, at + 28, 2)
  local name = directory:sub(at + 46, at + 45 + names)
  local label = ("%s(%s)"):format(path, (name:gsub("%c", "?")))
  if packed >= 2 ^ 32 - 1 or size >= 2 ^ 32 - 1 then
    errors.raise("NotImplementedError", path .. ": arrays over 4 GiB in npz")
  elseif method ~= STORED and method ~= DEFLATED then
    errors.raise("NotImplementedError", ("%s: zip method %d"):format(path,
      method))
  end
  enter(path, input, label, number_at(directory, at + 42, 4), packed, method)
  local array = read_array(label, input)
  if raw.input_crc(input) ~= number_at(directory, at + 16, 4) then
    damaged(label, 0, "the array does not have its checksum")
  end
  return name, array, at + 46 + names + number_at(directory, at + 30, 2)
    + number_at(directory, at + 32, 2), packed
end

local function read_arrays(path, input)
  local directory, begin, n = read_directory(path, input)
  local size = raw.input_size(input)
  local out, total, at = {}, 0, 1
  for _ = 1, n do
    local name, array, packed
    name, array, at, packed = read_entry(path, input, directory, at, begin)
    total = total + packed
    if total > size then
      damaged(path, begin + at - 1, "its arrays lie on top of each other")
    end
    out[name:gsub("%.npy$", "")] = array
  end
  return out
end

--- The arrays of an npz file by name.
--- Errors: as read_npy; ResourceExhausted for compressed arrays that unpack to
---   more than 64 MiB and more than 100 times the file.
--- Source: numpy.load
---@param path string
---@return table<string, tfdist.Tensor>?
M.read_npz = options.wrap("read_npz", "path", function(path)
  return with_file("read_npz", path, read_arrays)
end)

return M
