--- Text of tensors.
---
--- A scalar prints as its value. A vector that fits prints in one line after
--- its header; everything else as aligned columns, one row a line, blocks with
--- their position above rank 2. More than 1000 elements are summarised: the
--- first and last of each axis with "..." between them.
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

local floor, abs, huge = math.floor, math.abs, math.huge

local SUMMARISE = 1000
local LINE = 80
local ELLIPSIS = "…"
-- Bits of the significand, which decide how many digits say everything.
local BITS = { float32 = 24, float64 = 53, float16 = 11, bfloat16 = 8 }

local function special(x)
  if x ~= x then
    return "nan"
  elseif x == huge then
    return "inf"
  elseif x == -huge then
    return "-inf"
  end
  return nil
end

-- x rounded to `bits` significant bits; x is finite and not 0.
local function round_bits(x, bits)
  local e = floor(math.log(abs(x)) / math.log(2))
  if abs(x) < 2.0 ^ e then
    e = e - 1
  elseif abs(x) >= 2.0 ^ (e + 1) then
    e = e + 1
  end
  local unit = 2.0 ^ (e - bits + 1)
  local q = x / unit
  local low = floor(q)
  local rest = q - low
  if rest > 0.5 or (rest == 0.5 and low % 2 == 1) then
    low = low + 1
  end
  return low * unit
end

--- The shortest text that reads back as the same value of this dtype.
---@param x number|boolean
---@param dtype string
---@return string
function M.scalar(x, dtype)
  if type(x) == "boolean" then
    return tostring(x)
  end
  local bits = BITS[dtype]
  if bits == nil then
    return text.whole(x)
  elseif special(x) ~= nil then
    return special(x)
  elseif x == floor(x) and abs(x) < 1e15 then
    return ("%.0f"):format(x)
  elseif abs(x) < 1e-300 then
    return ("%.17g"):format(x)
  end
  for digits = 2, 17 do
    local s = ("%." .. digits .. "g"):format(x)
    local back = tonumber(s)
    if back == x or (bits < 53 and round_bits(back, bits) == x) then
      return s
    end
  end
  return ("%.17g"):format(x)
end

local function plain(x)
  return type(x) == "boolean" and tostring(x) or text.whole(x)
end

-- One format for all values of a tensor: whole numbers, fixed point with four
-- decimals, or scientific where that would hide digits.
local function choose_format(values, dtype)
  if BITS[dtype] == nil then
    return plain
  end
  local whole, largest, smallest = true, 0, huge
  for i = 1, #values do
    local x = values[i]
    if special(x) == nil then
      local size = abs(x)
      whole = whole and x == floor(x)
      largest = math.max(largest, size)
      if size > 0 then
        smallest = math.min(smallest, size)
      end
    end
  end
  local pattern = "%.4f"
  if whole and largest < 1e15 then
    pattern = "%.0f"
  elseif largest >= 1e6 or smallest < 1e-4 then
    pattern = "%.4e"
  end
  return function(x)
    return special(x) or pattern:format(x)
  end
end

local function trim(s)
  if s:find("e", 1, true) then
    local digits, exponent = s:match("^(.-)e(.*)$")
    return (digits:gsub("%.?0+$", "")) .. "e" .. exponent
  elseif s:find(".", 1, true) then
    return (s:gsub("%.?0+$", ""))
  end
  return s
end

-- Positions shown of an axis: all, or the ends around nil = "...".
local function shown_positions(size, edge)
  local list = {}
  if size <= 2 * edge then
    for i = 0, size - 1 do
      list[#list + 1] = i
    end
    return list, false
  end
  for i = 0, edge - 1 do
    list[#list + 1] = i
  end
  for i = size - edge, size - 1 do
    list[#list + 1] = i
  end
  return list, edge
end

-- Reads the shown elements, row-major.
local function collect(t, dims, positions)
  local rank = #dims
  local strides, stride = {}, 1
  for axis = rank, 1, -1 do
    strides[axis] = stride
    stride = stride * dims[axis]
  end
  local values, n = {}, 0
  local item = raw.item
  local function walk(axis, offset)
    if axis > rank then
      n = n + 1
      values[n] = item(t, offset)
      return
    end
    local list = positions[axis]
    for i = 1, #list do
      walk(axis + 1, offset + list[i] * strides[axis])
    end
  end
  walk(1, 0)
  return values
end

local function pad(s, width)
  -- "…" is one column wide and three bytes long.
  local columns = s == ELLIPSIS and 1 or #s
  return (" "):rep(width - columns) .. s
end

-- One row of cells, cut at `gap` with an ellipsis.
local function row_cells(cells, first, count, gap)
  local row = {}
  for i = 0, count - 1 do
    if gap and i == gap then
      row[#row + 1] = ELLIPSIS
    end
    row[#row + 1] = cells[first + i]
  end
  return row
end

local function vector(header, cells, gap)
  local row = row_cells(cells, 1, #cells, gap)
  local trimmed = {}
  for i = 1, #row do
    trimmed[i] = row[i] == ELLIPSIS and row[i] or trim(row[i])
  end
  local line = header .. ": " .. table.concat(trimmed, " ")
  if #line <= LINE + 20 then
    return line
  end
  local width = 0
  for i = 1, #cells do
    width = math.max(width, #cells[i])
  end
  local per_line = math.max(1, floor(LINE / (width + 1)))
  local lines = { header }
  for first = 1, #row, per_line do
    local part = {}
    for i = first, math.min(first + per_line - 1, #row) do
      part[#part + 1] = pad(row[i], width)
    end
    lines[#lines + 1] = " " .. table.concat(part, " ")
  end
  return table.concat(lines, "\n")
end

-- Rank 2 and more: `positions` are the shown positions of each axis, gaps the
-- places of the ellipses.
local function blocks(header, cells, positions, gaps)
  local rank = #positions
  local lines, width, at = { header }, 0, 1
  for i = 1, #cells do
    width = math.max(width, #cells[i])
  end
  local rows, columns = #positions[rank - 1], #positions[rank]
  local function matrix()
    for r = 0, rows - 1 do
      if gaps[rank - 1] == r and r > 0 then
        lines[#lines + 1] = " " .. ELLIPSIS
      end
      local row = row_cells(cells, at, columns, gaps[rank])
      for i = 1, #row do
        row[i] = pad(row[i], row[i] == ELLIPSIS and 1 or width)
      end
      lines[#lines + 1] = " " .. table.concat(row, "  ")
      at = at + columns
    end
  end
  local function walk(axis, prefix)
    if axis > rank - 2 then
      if prefix ~= "" then
        lines[#lines + 1] = "[" .. prefix .. "]"
      end
      matrix()
      return
    end
    local list = positions[axis]
    for i = 1, #list do
      if gaps[axis] == i - 1 and i > 1 then
        lines[#lines + 1] = ELLIPSIS
      end
      walk(axis + 1, prefix .. (prefix == "" and "" or ", ") .. list[i])
    end
  end
  walk(1, "")
  return table.concat(lines, "\n")
end

-- Stands for the values of a tensor in a function that is being traced.
local SYMBOLIC = "(symbolic: a call knows the values)"

--- The value of a tensor of rank 0 as text.
function M.value(t)
  if raw.tensor_is_symbolic(t) then
    return SYMBOLIC
  end
  return M.scalar(raw.item(t), raw.tensor_dtype(t))
end

--- The values of a tensor as text behind or under `header`.
---@param t tfdist.Tensor
---@param header string  "Tensor float32 {2, 3}" without device
---@param tail string    " /cpu:0", put after the header of several lines
---@return string
function M.body(t, header, tail)
  if raw.tensor_is_symbolic(t) then
    return header .. tail .. " " .. SYMBOLIC
  end
  local dims, size = raw.tensor_dims(t), raw.tensor_size(t)
  local rank = #dims
  if size == 0 then
    return header .. tail .. " (empty)"
  end
  local edge = rank < 5 and 3 or rank == 5 and 2 or 1
  local positions, gaps = {}, {}
  for axis = 1, rank do
    positions[axis], gaps[axis] = shown_positions(dims[axis],
      size > SUMMARISE and edge or dims[axis])
  end
  local cells = collect(t, dims, positions)
  local format = choose_format(cells, raw.tensor_dtype(t))
  for i = 1, #cells do
    cells[i] = format(cells[i])
  end
  if rank == 1 then
    return vector(header, cells, gaps[1])
  end
  return blocks(header .. tail, cells, positions, gaps)
end

--- What print shows.
---@param t tfdist.Tensor
---@return string
function M.tensor(t)
  if raw.is_released(t) then
    return "Tensor (released)"
  end
  local dtype = raw.tensor_dtype(t)
  if raw.tensor_rank(t) == 0 and not raw.tensor_is_symbolic(t) then
    return M.value(t)
  end
  local dims = raw.tensor_dims(t)
  local device = raw.device_short_name(raw.tensor_device(t))
  return M.body(t, "Tensor " .. dtype .. " " .. text.shape(dims),
    " " .. device)
end

return M
