--- CSV rows to values: fields, quotes, dtypes, defaults.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

local find, sub = string.find, string.sub
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local DTYPES = { float32 = true, float64 = true, int32 = true, int64 = true,
  string = true }

local function column_of(what, i, x)
  if type(x) == "string" and DTYPES[x] then
    return { dtype = x }
  elseif type(x) == "string" then
    return { dtype = "string", default = x }
  elseif type(x) == "number" then
    return { dtype = "float32", default = x }
  elseif type(x) == "userdata" and raw.is_operand(x) then
    local t = raw.operand_tensor(x)
    local dtype = raw.tensor_dtype(t)
    if DTYPES[dtype] and raw.tensor_size(t) <= 1 then
      return { dtype = dtype,
        default = raw.tensor_size(t) == 1 and raw.item(t) or nil }
    end
  elseif text.is_plain(x) and next(x) ~= nil and #x == 1 then
    return column_of(what, i, x[1])
  end
  errors.raise("ValueError", ("%s: record_defaults %d must be float32, float64, "
    .. "int32, int64 or string, or a value of these, got %s"):format(what, i,
    text.describe(x)))
end

local function positions(what, name, list)
  local out, before = {}, -1
  for i, at in ipairs(convert.integers(list, what, name)) do
    options.integer(what, name, at, 0)
    if at <= before then
      errors.raise("ValueError", ("%s: %s must grow, got %d after %d"):format(
        what, name, at, before))
    end
    out[i], before = at, at
  end
  return out
end

--- Columns from record_defaults: a list of { dtype, default, at }, `at` the
--- position in the row from 1; `all` says that the row has no others.
function M.columns(what, defaults, select, exclude)
  local list, n = options.list(what, "record_defaults", defaults)
  local columns = { all = select == nil and exclude == nil }
  if n == 0 then
    errors.raise("ValueError", what .. ": record_defaults is empty")
  end
  local chosen = select and positions(what, "select_cols", select)
  if chosen and #chosen ~= n then
    errors.raise("ValueError", ("%s: %d record_defaults for %d select_cols")
      :format(what, n, #chosen))
  end
  local out = {}
  for _, at in ipairs(exclude and positions(what, "exclude_cols", exclude)
    or {}) do
    out[at + 1] = true
  end
  local at = 0
  for i = 1, n do
    repeat
      at = at + 1
    until not out[at]
    columns[i] = column_of(what, i, list[i])
    columns[i].at = chosen and chosen[i] + 1 or at
  end
  return columns
end

--- How rows are read. The caller puts `place`, a function that says which row
--- of which file is being read, for messages.
function M.format(what, delim, quotes, na, columns)
  if type(delim) ~= "string" or #delim ~= 1 or delim == '"'
    or delim == "\n" then
    errors.raise("ValueError", what .. ": field_delim must be one character, "
      .. "no quote, got " .. text.describe(delim))
  end
  return { what = what, delim = delim, quotes = quotes, na = na,
    columns = columns }
end

local function bad_row(format, row, why)
  errors.raise("InvalidArgument", ("%s: %s in row %s (%s)"):format(format.what,
    why, text.quote(#row > 80 and row:sub(1, 80) .. "..." or row),
    format.place()))
end

-- The quoted field that begins at `at`; its text and where the next begins.
local function quoted(format, row, at)
  local parts, from = {}, at + 1
  while true do
    local stop = find(row, '"', from, true)
    if stop == nil then
      bad_row(format, row, "a quote is not closed")
    end
    parts[#parts + 1] = sub(row, from, stop - 1)
    local after = sub(row, stop + 1, stop + 1)
    if after == '"' then
      parts[#parts + 1] = '"'
      from = stop + 2
    elseif after == "" or after == format.delim then
      return table.concat(parts), stop + 2
    else
      bad_row(format, row, "text after a closing quote")
    end
  end
end

--- The fields of a row as a list of strings, and which were quoted.
--- Errors: InvalidArgument for quotes in the wrong place.
function M.split(format, row)
  local fields, n, at, marks = {}, 0, 1, nil
  local delim, size = format.delim, #row
  while at <= size + 1 do
    n = n + 1
    if format.quotes and sub(row, at, at) == '"' then
      marks = marks or {}
      marks[n] = true
      fields[n], at = quoted(format, row, at)
    else
      local stop = find(row, delim, at, true) or size + 1
      fields[n] = sub(row, at, stop - 1)
      at = stop + 1
      if format.quotes and find(fields[n], '"', 1, true) then
        bad_row(format, row, "a quote inside a field without quotes")
      end
    end
  end
  return fields, marks
end

local function bad_field(format, row, column, field)
  bad_row(format, row, ("column %d: %s is no %s"):format(column.at - 1,
    text.quote(#field > 80 and field:sub(1, 80) .. "..." or field),
    column.dtype))
end

local LIMITS = { int32 = 2 ^ 31, int64 = 2 ^ 53 }
local WORDS = { nan = 0 / 0, inf = math.huge, ["+inf"] = math.huge,
  ["-inf"] = -math.huge, infinity = math.huge, ["-infinity"] = -math.huge }

local function number_of(format, row, column, field)
  local x = field:find("^%s*[+-]?%.?%d[%d.eE+-]*%s*$")
    and tonumber((field:gsub("^%s*%+", ""))) or WORDS[field:lower()]
  local limit = LIMITS[column.dtype]
  if x == nil or (limit and (not text.is_whole(x) or x < -limit
    or x >= limit)) then
    bad_field(format, row, column, field)
  end
  return raw.tensor_from_values({ x }, column.dtype, {})
end

local function value_of(format, row, column, field, was_quoted)
  if field == nil then
    bad_row(format, row, ("there is no column %d"):format(column.at - 1))
  elseif (field == "" and not (was_quoted and column.dtype == "string"))
    or (field == format.na and not was_quoted) then
    local default = column.default
    if default == nil then
      bad_row(format, row, ("column %d is required but missing"):format(
        column.at - 1))
    elseif column.dtype == "string" then
      return default
    end
    return raw.tensor_from_values({ default }, column.dtype, {})
  elseif column.dtype == "string" then
    return field
  end
  return number_of(format, row, column, field)
end

--- The values of a row, one for each column.
--- Errors: InvalidArgument naming column and text.
function M.decode(format, row)
  local fields, marks = M.split(format, row)
  local columns, values = format.columns, {}
  if columns.all and #fields ~= #columns then
    bad_row(format, row, ("expected %d fields, got %d"):format(#columns,
      #fields))
  end
  for i = 1, #columns do
    local column = columns[i]
    values[i] = value_of(format, row, column, fields[column.at],
      marks and marks[column.at])
  end
  return unpack(values, 1, #columns)
end

return M
