--- tf.device, tf.tidy, tf.keep and small functions of the top level.
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local select, type = select, type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function pop_to(depth)
  while raw.device_depth() > depth do
    raw.device_pop()
  end
end

--- Call fn with new tensors and ops on a device; returns what fn returns. nil
--- as name lifts outer rules. Without fn: an object with close(), to be closed
--- in reverse order of opening.
--- Errors: InvalidArgument naming the devices there are.
--- Source: tf.device
---@param name string|nil  "/cpu:1", "CPU:1", a canonical name
---@param fn? function
function M.device(name, fn)
  if type(name) == "table" and type(name.name) == "string" then
    name = name.name
  elseif name ~= nil and type(name) ~= "string" then
    errors.raise("TypeError", "device: device_name must be a string, got "
      .. text.describe(name))
  end
  if fn ~= nil then
    text.check_callable("device", "fn", fn)
  end
  local device = name ~= nil and raw.device_find(name) or nil
  local depth = raw.device_depth()
  raw.device_push(device)
  if fn ~= nil then
    return state.protect(function()
      pop_to(depth)
    end, fn)
  end
  return state.closer("device " .. tostring(name), function()
    if raw.device_depth() ~= depth + 1 then
      errors.raise("RuntimeError", "device: close() in another order than "
        .. "the devices were entered")
    end
    raw.device_pop()
  end)
end

-- Handles that tidy must leave alone, by tf.keep.
local kept = setmetatable({}, { __mode = "k" })

local function keep_leaves(keep, x)
  local flat = nest.flatten(x)
  for i = 1, flat.n do
    if type(flat[i]) == "userdata" then
      keep[flat[i]] = true
    end
  end
end

local function release_others(handles, keep)
  for i = 1, handles.n or #handles do
    local handle = handles[i]
    -- Collected handles leave holes: the list holds them weakly.
    if handle ~= nil and not keep[handle] and not kept[handle] then
      raw.release(handle)
    end
  end
end

local function finish_tidy(ok, ...)
  local handles = raw.tidy_end()
  local keep = {}
  if ok then
    local list = { ... }
    for i = 1, select("#", ...) do
      keep_leaves(keep, list[i])
    end
  end
  release_others(handles, keep)
  if not ok then
    errors.raise_again((...))
  end
  -- An outer tidy answers for what this one hands out.
  for handle in pairs(keep) do
    raw.tidy_note(handle)
  end
  return ...
end

--- Call fn and release every tensor made inside, except those that fn returns
--- (also inside plain tables) and those given to tf.keep. Variables stay.
--- Returns what fn returns. Calls nest.
---@param fn function
function M.tidy(fn)
  raw.tidy_begin()
  return finish_tidy(pcall(fn))
end

--- Mark a tensor so that no tf.tidy releases it; returns it.
---@param x tfdist.Tensor
function M.keep(x)
  if type(x) ~= "userdata" then
    errors.raise("TypeError", "keep: a tensor expected, got "
      .. text.describe(x))
  end
  kept[x] = true
  return x
end

local PRINT_OPTIONS = {
  output_stream = true, summarize = true, sep = true, ["end"] = true,
  name = true,
}

local function is_print_options(x)
  if not text.is_plain(x) or next(x) == nil then
    return false
  end
  for key in pairs(x) do
    if not PRINT_OPTIONS[key] then
      return false
    end
  end
  return true
end

local HAS_VALUE = { variable = true, mirrored = true }

-- Of a variable its value, as a traced function prints it.
local function shown(x, depth)
  if type(x) == "userdata" and HAS_VALUE[raw.kind(x)] then
    return tostring(raw.operand_tensor(x))
  elseif not nest.is_nested(x) or depth > 200 then
    return tostring(x)
  end
  local parts = {}
  local n, keys = nest.layout(x)
  for i = 1, n do
    parts[i] = shown(x[i], depth + 1)
  end
  for i = 1, keys and #keys or 0 do
    parts[#parts + 1] = tostring(keys[i]) .. " = "
      .. shown(x[keys[i]], depth + 1)
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

-- Add what the graph has of leaf x to the list. Returns how to make the leaf of
-- these values again, from `first` on; nil where the graph has nothing of it.
local function add_printed(values, x)
  if type(x) ~= "userdata" or not raw.is_operand(x) then
    return nil
  end
  local first = values.n + 1
  if raw.kind(x) ~= "value" then
    values[first], values.n = x, first
    return function(given)
      return given[first]
    end
  end
  local count = raw.value_count(x)
  for i = 1, count do
    values[first + i - 1] = raw.value_component(x, i - 1)
    if values[first + i - 1] == nil then
      return nil -- known to Lua alone
    end
  end
  values.n = values.n + count
  local strategy, kind = raw.value_strategy(x), raw.value_kind_of(x)
  return function(given)
    return raw.value_new(strategy, kind, { n = count,
      unpack(given, first, first + count - 1) })
  end
end

-- At each call of the function that is being traced.
local function print_later(list, n, more)
  local flat = nest.flatten { n = n, unpack(list, 1, n) }
  local values, again_of = { n = 0 }, {}
  for i = 1, flat.n do
    again_of[i] = add_printed(values, flat[i])
  end
  tracing.host(values, function(...)
    local given = { ... }
    local now = { n = flat.n, unpack(flat, 1, flat.n) }
    for i, again in pairs(again_of) do
      now[i] = again(given)
    end
    local again = nest.pack_sequence_as({ n = n, unpack(list, 1, n) }, now)
    again[n + 1] = more
    M.print(unpack(again, 1, n + (next(more) ~= nil and 1 or 0)))
  end)
end

local function check_print_options(more)
  local stream = more.output_stream
  if stream ~= nil and type(stream) ~= "string" and not text.is_callable(stream)
    and io.type(stream) == nil and not (type(stream) == "table"
    and text.is_callable(stream.write)) then
    errors.raise("TypeError", "print: output_stream must be stdout, stderr, "
      .. "file://path, a file or a function, got " .. text.describe(stream))
  end
  for _, name in ipairs { "sep", "end" } do
    local x = more[name]
    if x ~= nil and type(x) ~= "string" and type(x) ~= "number" then
      errors.raise("TypeError", ("print: %s must be a string, got %s"):format(
        name, text.describe(x)))
    end
  end
end

--- Print values and structures of tensors to stderr. A last table with only
--- the options output_stream ("stdout", "stderr", "file://path", a file or a
--- function), sep and end is not printed.
--- Source: tf.print
function M.print(...)
  local n = select("#", ...)
  local list = { ... }
  local more = {}
  if n > 0 and is_print_options(list[n]) then
    more, n = list[n], n - 1
    check_print_options(more)
  end
  if tracing.current() ~= nil then
    return print_later(list, n, more)
  end
  for i = 1, n do
    list[i] = shown(list[i], 0)
  end
  local line = table.concat(list, more.sep or " ", 1, n)
    .. (more["end"] or "\n")
  local stream = more.output_stream or "stderr"
  if text.is_callable(stream) then
    stream(line)
  elseif stream == "stderr" or stream == "stdout" then
    io[stream]:write(line)
  elseif type(stream) == "string" then
    local path = stream:match("^file://(.+)$")
    if path == nil then
      errors.raise("ValueError", "print: output_stream must be stdout, stderr "
        .. "or file://path, got " .. text.quote(stream))
    end
    files.path("print", "output_stream", path)
    local file, why = io.open(path, "a")
    if file == nil then
      errors.raise("NotFound", "print: cannot write " .. why)
    end
    file:write(line)
    file:close()
  else
    stream:write(line)
  end
end

--- Nothing: in eager execution all arguments are computed already.
--- Source: tf.group
function M.group() end

--- Source: tf.no_op
function M.no_op() end

--- Wait for all work of all devices.
--- Errors: the first failure of queued work.
--- Source: tf.test.experimental.sync_devices
function M.sync_devices()
  for i = 0, raw.device_count("") - 1 do
    raw.device_synchronize(raw.device_at("", i))
  end
end

options.functions(M, "", {
  device = "device_name=nil fn:body=nil", tidy = "fn:callable",
  keep = "x", no_op = "name=nil", sync_devices = "",
})

return M
