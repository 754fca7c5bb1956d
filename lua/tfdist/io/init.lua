--- tf.io: files, TFRecord writing, tf.train.Example parsing, npy and npz.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local example = require "tfdist.io.example"
local files = require "tfdist.core.files"
local npy = require "tfdist.io.npy"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local strings = require "tfdist.core.strings"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
-- What is read are tensors: their methods come with the names of the core.
local _ = tf.constant

local M = {}

for name, value in pairs(example.io) do
  M[name] = value
end
for name, value in pairs(npy) do
  M[name] = value
end

-- Files ----------------------------------------------------------------------

--- The contents of a file as a string.
--- Errors: returns nil, message, "NotFound" when it cannot be opened; DataLoss
---   from 1 GiB on.
--- Source: tf.io.read_file
---@param filename string
---@return string?
M.read_file = options.wrap("read_file", "filename name=nil", function(filename)
  files.path("read_file", "the file name", filename)
  local contents, why, missing = files.read(filename)
  if contents == nil and missing then
    return nil, why, "NotFound"
  elseif contents == nil then
    return nil, filename .. ": cannot be read", "FailedPrecondition"
  end
  return contents
end)

--- Write a string to a file, which appears whole or not at all; folders are
--- made.
--- Errors: ResourceExhausted, FailedPrecondition.
--- Source: tf.io.write_file
M.write_file = options.wrap("write_file", "filename contents name=nil",
  function(filename, contents)
    files.path("write_file", "the file name", filename)
    if type(contents) ~= "string" then
      errors.raise("TypeError", "write_file: contents must be a string, got "
        .. text.describe(contents))
    end
    local folder = filename:match("^(.+)/[^/]*$")
    if folder ~= nil then
      raw.folder_make(folder)
    end
    raw.file_write(filename, contents)
  end)

local function exists(path)
  local is_file, is_folder = raw.file_stat(path)
  return is_file or is_folder
end

--- Names of the files that match a pattern with * ? and [sets], sorted.
--- Source: tf.io.matching_files, tf.io.gfile.glob
---@param pattern string|string[]
---@return string[]
M.matching_files = options.wrap("matching_files", "pattern:table name=nil",
  function(pattern)
    if type(pattern) == "string" then
      pattern = { pattern }
    end
    local list, n = options.list("matching_files", "pattern", pattern)
    local out = {}
    for i = 1, n do
      files.piece("matching_files", "the file name", list[i])
      for _, path in ipairs(files.glob(list[i])) do
        out[#out + 1] = path
      end
    end
    table.sort(out)
    return out
  end)

local function path_function(name, fn)
  return options.wrap("gfile." .. name, "path", function(path)
    files.piece("gfile." .. name, "the file name", path)
    return fn(path)
  end)
end

--- tf.io.gfile: exists, isdir, listdir, glob, makedirs, remove, rename.
M.gfile = {
  exists = path_function("exists", exists),
  isdir = path_function("isdir", function(path)
    local _, is_folder = raw.file_stat(path)
    return is_folder
  end),
  listdir = path_function("listdir", files.names),
  makedirs = path_function("makedirs", raw.folder_make),
  mkdir = path_function("mkdir", raw.folder_make),
  glob = M.matching_files,
  remove = path_function("remove", function(path)
    local ok, why = os.remove(path)
    if not ok then
      errors.raise(exists(path) and "FailedPrecondition" or "NotFound", why)
    end
  end),
  rename = options.wrap("gfile.rename", "src dst overwrite=false",
    function(from, to, overwrite)
      files.path("gfile.rename", "src", from)
      files.path("gfile.rename", "dst", to)
      if exists(to) and not overwrite then
        errors.raise("AlreadyExists", ("gfile.rename: %s exists"):format(to),
          "overwrite = true replaces it")
      end
      local ok, why = os.rename(from, to)
      if not ok then
        errors.raise(exists(from) and "FailedPrecondition" or "NotFound", why)
      end
    end),
}
text.watch("tf.io.gfile", M.gfile)

-- TFRecord -------------------------------------------------------------------

local COMPRESSION = { "", "NONE", "GZIP", "ZLIB" }
local Options = { __name = "TFRecordOptions" }

--- Options of TFRecordWriter: compression_type "GZIP", "ZLIB" or "".
--- Source: tf.io.TFRecordOptions
M.TFRecordOptions = options.wrap("TFRecordOptions", "compression_type=''",
  function(kind)
    return setmetatable({ compression_type = options.choice("TFRecordOptions",
      "compression_type", kind, COMPRESSION) }, Options)
  end)

local Writer = { __name = "TFRecordWriter" }
Writer.__index = Writer
text.watch_methods("TFRecordWriter", Writer)

local function is_writer(x)
  return type(x) == "table" and getmetatable(x) == Writer
end

local function writer_method(name, signature, fn)
  Writer[name] = options.method("TFRecordWriter." .. name, signature, fn,
    is_writer, "writer")
end

--- Add a record: a string, or a tf.train.Example.
--- Errors: FailedPrecondition when closed; ResourceExhausted.
writer_method("write", "record:table", function(self, record)
  if type(record) == "table" and record.SerializeToString then
    record = record:SerializeToString()
  elseif type(record) ~= "string" then
    errors.raise("TypeError", "TFRecordWriter.write: the record must be a "
      .. "string, got " .. text.describe(record))
  end
  raw.writer_record(self.handle, record)
end)

writer_method("flush", "", function(self)
  raw.writer_flush(self.handle)
end)

--- Complete the file. (It is also completed when the writer is collected.)
writer_method("close", "", function(self)
  raw.writer_close(self.handle)
end)

Writer.__close = function(self)
  raw.writer_close(self.handle)
end

function Writer.__tostring(self)
  return "TFRecordWriter " .. text.quote(self.path)
end

--- Writes records to a new file. options: "GZIP", "ZLIB" or TFRecordOptions.
--- Errors: NotFound (no such folder), FailedPrecondition.
--- Source: tf.io.TFRecordWriter
M.TFRecordWriter = options.wrap("TFRecordWriter", "path options:table=nil",
  function(path, kind)
    files.path("TFRecordWriter", "the file name", path)
    if getmetatable(kind) == Options then
      kind = kind.compression_type
    end
    kind = kind == nil and "" or options.choice("TFRecordWriter", "options",
      kind, COMPRESSION)
    return setmetatable({ path = path, handle = raw.writer_open(path,
      (kind == "" or kind == "NONE") and "none" or kind:lower()) }, Writer)
  end)

-- Raw bytes --------------------------------------------------------------------

local function decode_one(what, data, dtype, little)
  if type(data) ~= "string" then
    errors.raise("TypeError", what .. ": input_bytes must be a string, got "
      .. text.describe(data))
  end
  dtype = convert.dtype(dtype, what)
  local size = raw.dtype_size(raw.dtype_find(dtype))
  if #data % size ~= 0 then
    errors.raise("InvalidArgument", ("%s: %d bytes are no whole number of %s, "
      .. "%d bytes each"):format(what, #data, dtype, size))
  elseif not little and size > 1 then
    data = data:gsub(("."):rep(size), string.reverse)
  end
  return raw.tensor_from_bytes(data, dtype, { #data / size })
end

--- The bytes of a string as a tensor of out_type; strings of a tensor become
--- its rows. bool takes bytes 0 and 1.
--- Shapes: [n] for a string; [d0.., n] for strings of equal length.
--- Errors: InvalidArgument when the length does not fit.
--- Source: tf.io.decode_raw
M.decode_raw = options.wrap("decode_raw",
  "input_bytes:table out_type little_endian=true fixed_length=nil name=nil",
  function(data, dtype, little)
    if not strings.is(data) then
      return decode_one("decode_raw", data, dtype, little)
    end
    local rows = data:toflat()
    for i = 1, #rows do
      rows[i] = decode_one("decode_raw", rows[i], dtype, little)
    end
    local t = tf.stack(rows)
    local dims = data.shape
    dims[#dims + 1] = -1
    return tf.reshape(t, dims)
  end)

--- The record's bytes of a table of values by name: strings, numbers (float),
--- integer and float tensors, lists of these.
---@param features table
---@return string
function M.serialize_example(features)
  if not text.is_plain(features) then
    errors.raise("TypeError", "serialize_example: expected a table by name, got "
      .. text.describe(features))
  end
  local train, out = example.train, {}
  for name, x in pairs(features) do
    local first = text.is_plain(x) and x[1] or x
    if strings.is(x) or type(first) == "string" then
      out[name] = train.Feature { bytes_list = train.BytesList { value =
        type(x) == "string" and { x } or x } }
    else
      local t = tf.reshape(tf.convert_to_tensor(x), { -1 })
      local whole = not t.dtype:find "float"
      out[name] = train.Feature { [whole and "int64_list" or "float_list"] =
        train[whole and "Int64List" or "FloatList"] { value = t } }
    end
  end
  return train.Example { features = train.Features { feature = out } }
    :SerializeToString()
end

options.functions(M, "", { serialize_example = "features:nest" })

return M
