--- TensorBoard's event files: messages in TFRecord frames.
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local raw = require "tfdist.core.raw"
local wire = require "tfdist.io.wire"

local M = {}

local FLOAT, DOUBLE, STRING = 1, 2, 7
local CLASSES = { scalars = 1, histograms = 2, text = 2, images = 3 }

-- Writing --------------------------------------------------------------------

local function shape_message(dims)
  local out = {}
  for i = 1, #dims do
    out[i] = wire.bytes(2, wire.integer(1, dims[i]))
  end
  return table.concat(out)
end

--- A TensorProto of numbers ("float32", "float64").
function M.numbers(dtype, list, dims)
  return wire.integer(1, dtype == "float32" and FLOAT or DOUBLE)
    .. wire.bytes(2, shape_message(dims))
    .. wire.bytes(4, #list > 0 and wire.pack(dtype, list) or "")
end

--- A TensorProto of strings.
function M.texts(list, dims)
  local out = { wire.integer(1, STRING), wire.bytes(2, shape_message(dims)) }
  for i = 1, #list do
    out[#out + 1] = wire.bytes(8, list[i])
  end
  return table.concat(out)
end

--- An event with one summary value.
---@param plugin string  "scalars", "histograms", "images", "text"
---@param tensor string  a TensorProto
function M.summary(wall, step, tag, plugin, tensor, description)
  local metadata = wire.bytes(1, wire.bytes(1, plugin))
    .. (description and wire.bytes(3, description) or "")
    .. (CLASSES[plugin] and wire.integer(4, CLASSES[plugin]) or "")
  local value = wire.bytes(1, tag) .. wire.bytes(8, tensor)
    .. wire.bytes(9, metadata)
  return wire.double(1, wall) .. wire.integer(2, step)
    .. wire.bytes(5, wire.bytes(1, value))
end

--- The event that a file begins with.
function M.version(wall)
  return wire.double(1, wall) .. wire.bytes(3, "brain.Event:2")
end

-- Reading --------------------------------------------------------------------

-- Sizes, and numbers where there are any.
local function read_tensor(data, what)
  local dtype, dims, content, floats = nil, {}, nil, nil
  for field, value in wire.fields(data, what) do
    if field == 1 then
      dtype = value
    elseif field == 2 then
      for inner, dim in wire.fields(value, what) do
        if inner == 2 then
          local size = 0
          for key, x in wire.fields(dim, what) do
            size = key == 1 and x or size
          end
          dims[#dims + 1] = size
        end
      end
    elseif field == 4 and value ~= "" then
      content = value
    elseif field == 5 or field == 6 then
      floats = value
    end
  end
  local kind = dtype == FLOAT and "float32" or dtype == DOUBLE and "float64"
  local bytes = content or floats
  return { dims = dims, numbers = kind and bytes
    and wire.unpack(kind, bytes, what) or nil }
end

local function read_plugin(data, what)
  for field, value in wire.fields(data, what) do
    if field == 1 then
      for inner, name in wire.fields(value, what) do
        if inner == 1 then
          return tostring(name)
        end
      end
    end
  end
  return nil
end

local OLD_KINDS = { [2] = "scalars", [4] = "images", [5] = "histograms" }

local function read_value(data, what)
  local out = { tag = "" }
  for field, value in wire.fields(data, what) do
    if field == 1 then
      out.tag = tostring(value)
    elseif field == 2 then
      out.kind, out.value = "scalars", wire.unpack("float32", value, what)[1]
    elseif OLD_KINDS[field] then
      out.kind = OLD_KINDS[field]
    elseif field == 8 then
      out.tensor = read_tensor(value, what)
    elseif field == 9 then
      out.kind = read_plugin(value, what) or out.kind
    end
  end
  if out.kind == "scalars" and out.value == nil then
    out.value = out.tensor and out.tensor.numbers and out.tensor.numbers[1]
  end
  return out
end

--- One event: { wall, step, version?, values }.
--- Errors: DataLoss.
function M.parse(data, what)
  local event = { step = 0, wall = 0, values = {} }
  for field, value in wire.fields(data, what) do
    if field == 1 then
      event.wall = wire.unpack("float64", value, what)[1]
    elseif field == 2 and type(value) == "number" then
      event.step = value
    elseif field == 3 then
      event.version = value
    elseif field == 5 then
      for inner, item in wire.fields(value, what) do
        if inner == 1 then
          event.values[#event.values + 1] = read_value(item, what)
        end
      end
    end
  end
  return event
end

--- Call visit(event) for each event of a file. A file that ends inside an event
--- is being written: returns the message then.
--- Errors: NotFound, DataLoss for other damage.
---@param path string
---@param visit fun(event:table)
---@return string? message
function M.read(path, visit)
  local reader = raw.reader_open("records", path, "none", {})
  while true do
    local ok, record = pcall(raw.reader_next, reader)
    if not ok then
      if errors.kind(record) == "DataLoss" and record.argument == "end" then
        raw.release(reader)
        return record.message
      end
      error(record, 0)
    elseif record == nil then
      raw.release(reader)
      return nil
    end
    visit(M.parse(record, path))
  end
end

--- Event files of a run: the path itself, or what its folder holds, the folders
--- in it too.
---@return string[]
function M.files(path)
  local is_file, is_folder = raw.file_stat(path)
  if is_file then
    return { path }
  elseif not is_folder then
    errors.raise("NotFound", path .. ": there is no such run")
  end
  local out = {}
  for _, name in ipairs(files.names(path)) do
    local full = path .. "/" .. name
    local _, folder = raw.file_stat(full)
    if folder then
      for _, inner in ipairs(M.files(full)) do
        out[#out + 1] = inner
      end
    elseif name:find("tfevents", 1, true) then
      out[#out + 1] = full
    end
  end
  return out
end

return M
