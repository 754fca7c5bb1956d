--- model:summary(): one line for each layer.
local base = require "tfdist.keras.layers.base"
local convert = require "tfdist.core.convert"
local keras_tensor = require "tfdist.keras.layers.keras_tensor"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local symbolic = require "tfdist.keras.layers.symbolic"
local text = require "tfdist.base.text"

local M = {}

-- Narrowest columns, and the gaps behind them.
local NAME, SHAPE, COUNT, DEVICES = 17, 22, 10, 42
local UNITS = { "KiB", "MiB", "GiB", "TiB" }

--- 1234567 as "1,234,567".
local function grouped(n)
  local digits = text.number(n)
  local out = digits:reverse():gsub("(%d%d%d)", "%1,"):reverse()
  return (out:gsub("^,", ""))
end

--- "1.32 MiB"
local function size_text(bytes)
  local unit
  for i = 1, #UNITS do
    if bytes < 1024 then
      break
    end
    bytes, unit = bytes / 1024, UNITS[i]
  end
  return unit and ("%.2f %s"):format(bytes, unit) or bytes .. " bytes"
end

local function shape_text(shape)
  if not shape then
    return "?"
  elseif symbolic.is_shape(shape) then
    return keras_tensor.shape_text(shape)
  end
  local parts, keys = {}, {}
  for key in pairs(shape) do
    keys[#keys + 1] = key
  end
  table.sort(keys, function(a, b)
    return tostring(a) < tostring(b)
  end)
  for i, key in ipairs(keys) do
    parts[i] = type(shape[key]) == "table" and shape_text(shape[key]) or "?"
  end
  return table.concat(parts, " ")
end

-- { name, shape, count } for each layer; inner models' layers below them when
-- they are to be shown.
local function rows_of(layers, options, depth, rows)
  for _, layer in ipairs(layers) do
    local own = rawget(layer, "_own")
    rows[#rows + 1] = {
      ("  "):rep(depth) .. layer.name
        .. (options.show_trainable and (layer.trainable and " (trainable)"
        or " (frozen)") or ""),
      shape_text(own.output_shape),
      layer.built and grouped(layer:count_params()) or "not built",
    }
    if options.expand_nested and layer.is_keras_model then
      rows_of(layer.layers, options, depth + 1, rows)
    end
  end
  return rows
end

local function widths(rows)
  local name, shape, count = NAME, SHAPE, COUNT
  for _, row in ipairs(rows) do
    name = math.max(name, #row[1] + 4)
    shape = math.max(shape, #row[2] + 7)
    count = math.max(count, #row[3])
  end
  return name, shape, count
end

local function devices_of(strategy)
  local list = {}
  for i = 0, strategy.num_replicas_in_sync - 1 do
    local ok, name = pcall(strategy.replica_device, strategy, i)
    list[#list + 1] = ok and name
      and raw.device_short_name(raw.device_find(name)) or nil
  end
  return list
end

local function bytes_of(variables)
  local bytes = 0
  for _, v in ipairs(variables) do
    bytes = bytes + base.count { v }
      * raw.dtype_size(raw.enums.dtype[convert.dtype(v.dtype, "summary")])
  end
  return bytes
end

local function total_line(model, replicas)
  local all = model.variables
  local trainable = base.count(model.trainable_variables)
  local n = base.count(all)
  local line = (" total %s (%s), trainable %s"):format(grouped(n),
    size_text(bytes_of(all)), grouped(trainable))
  if n > trainable then
    line = line .. ", not trainable " .. grouped(n - trainable)
  end
  return line .. (replicas > 1 and ", per replica" or "")
end

--- The lines of a model's summary.
---@param model table
---@param options table { expand_nested, show_trainable }
---@return string[]
function M.lines(model, options)
  local strategy = model.distribute_strategy
  local replicas = strategy and strategy.num_replicas_in_sync or 1
  local head = ("%s %s"):format(getmetatable(model).__name,
    text.quote(model.name))
  if replicas > 1 then
    head = ("%-" .. DEVICES .. "s%d replicas: %s"):format(head .. "  ",
      replicas, table.concat(devices_of(strategy), " "))
  end
  local rows = rows_of(model.layers, options, 0, {})
  local name, shape, count = widths(rows)
  local format = " %-" .. name .. "s%-" .. shape .. "s%" .. count .. "s"
  local lines = { head, format:format("layer", "output shape", "parameters") }
  for _, row in ipairs(rows) do
    lines[#lines + 1] = format:format(row[1], row[2], row[3])
  end
  lines[#lines + 1] = total_line(model, replicas)
  return lines
end

return M
