--- Protobuf's wire format, as event files need it.
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"

local M = {}

--- A whole number below 2^53 as a varint; negative ones take ten bytes.
M.varint = raw.message_number

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

local function broken(what, problem)
  errors.raise("DataLoss", ("%s: not a valid message: %s"):format(what,
    problem))
end

--- The fields of a message: an iterator of number, value; values of fixed size
--- and those with a length are strings.
--- Errors: DataLoss.
function M.fields(data, what)
  if type(data) ~= "string" then
    broken(what, "a number where a message should be")
  end
  local at = 1
  return function()
    local field, value, after = raw.message_field(data, at, what)
    at = after
    return field, value
  end
end

--- Numbers from little-endian bytes.
--- Errors: DataLoss when they are cut off.
function M.unpack(dtype, data, what)
  local size = dtype == "float32" and 4 or 8
  if type(data) ~= "string" or #data % size ~= 0 then
    broken(what, "numbers are cut off")
  elseif #data == 0 then
    return {}
  end
  return raw.tensor_to_flat(raw.tensor_from_bytes(data, dtype,
    { #data / size }))
end

return M
