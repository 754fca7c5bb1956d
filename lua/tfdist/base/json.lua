--- JSON text and Lua tables.
---
--- Objects become tables with string keys, arrays lists with their length in
--- `n`, null `json.null`. Keys are written sorted, so that equal values give
--- equal text. A table with only positive whole keys (or `n`) is an array, an
--- empty one an object unless it has `n`.
local errors = require "tfdist.base.errors"
local text = require "tfdist.base.text"

local M = {}

local MAX_DEPTH = 64

--- What null becomes, and what is written as null.
M.null = setmetatable({}, { __tostring = function() return "null" end })

-- Decoding -------------------------------------------------------------------

local function position(source, at)
  local line, start = 1, 1
  for stop in source:gmatch "()\n" do
    if stop >= at then
      break
    end
    line, start = line + 1, stop + 1
  end
  return ("line %d, column %d"):format(line, at - start + 1)
end

local function fail(state, at, expected)
  local got = state.source:sub(at, at)
  errors.raise("ValueError", ("%s: not JSON at %s: expected %s, got %s"):format(
    state.what, position(state.source, at), expected,
    got == "" and "the end" or text.quote(got)))
end

local ESCAPES = {
  ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n",
  r = "\r", t = "\t",
}

-- UTF-8 of a code point.
local function encode_point(c)
  local floor, char = math.floor, string.char
  if c < 0x80 then
    return char(c)
  elseif c < 0x800 then
    return char(0xC0 + floor(c / 0x40), 0x80 + c % 0x40)
  elseif c < 0x10000 then
    return char(0xE0 + floor(c / 0x1000), 0x80 + floor(c / 0x40) % 0x40,
      0x80 + c % 0x40)
  end
  return char(0xF0 + floor(c / 0x40000), 0x80 + floor(c / 0x1000) % 0x40,
    0x80 + floor(c / 0x40) % 0x40, 0x80 + c % 0x40)
end

-- The code point after "\u" at `at`, and the position behind it.
local function read_point(state, at)
  local hex = state.source:match("^%x%x%x%x", at)
  if hex == nil then
    fail(state, at, "four hexadecimal digits")
  end
  local c = tonumber(hex, 16)
  if c >= 0xD800 and c < 0xDC00 then
    local low = tonumber(state.source:match("^\\u(%x%x%x%x)", at + 4) or "", 16)
    if low == nil or low < 0xDC00 or low > 0xDFFF then
      fail(state, at + 4, "the second half of a surrogate pair")
    end
    return 0x10000 + (c - 0xD800) * 0x400 + low - 0xDC00, at + 10
  elseif c >= 0xDC00 and c < 0xE000 then
    fail(state, at, "no lone surrogate")
  end
  return c, at + 4
end

local function read_string(state, at)
  local source, parts = state.source, {}
  while true do
    local stop = source:find('[%z\1-\31\\"]', at)
    if stop == nil then
      fail(state, #source + 1, "the end of the text")
    end
    parts[#parts + 1] = source:sub(at, stop - 1)
    local c = source:sub(stop, stop)
    if c == '"' then
      return table.concat(parts), stop + 1
    elseif c ~= "\\" then
      fail(state, stop, "no control character")
    end
    local escape = source:sub(stop + 1, stop + 1)
    if escape == "u" then
      local point
      point, at = read_point(state, stop + 2)
      parts[#parts + 1] = encode_point(point)
    elseif ESCAPES[escape] then
      parts[#parts + 1] = ESCAPES[escape]
      at = stop + 2
    else
      fail(state, stop + 1, "an escape")
    end
  end
end

local WORDS = { ["true"] = true, ["false"] = false, null = M.null }
local read_value

local function skip(state, at)
  return state.source:find("[^ \t\r\n]", at) or #state.source + 1
end

local function read_object(state, at, depth)
  local source, out = state.source, {}
  at = skip(state, at)
  if source:sub(at, at) == "}" then
    return out, at + 1
  end
  while true do
    if source:sub(at, at) ~= '"' then
      fail(state, at, "a key")
    end
    local key, stop = read_string(state, at + 1)
    if out[key] ~= nil then
      fail(state, at, "no second " .. text.quote(key))
    end
    at = skip(state, stop)
    if source:sub(at, at) ~= ":" then
      fail(state, at, "':'")
    end
    out[key], at = read_value(state, skip(state, at + 1), depth)
    at = skip(state, at)
    local c = source:sub(at, at)
    if c == "}" then
      return out, at + 1
    elseif c ~= "," then
      fail(state, at, "',' or '}'")
    end
    at = skip(state, at + 1)
  end
end

local function read_array(state, at, depth)
  local source, out, n = state.source, {}, 0
  at = skip(state, at)
  if source:sub(at, at) == "]" then
    out.n = 0
    return out, at + 1
  end
  while true do
    n = n + 1
    out[n], at = read_value(state, at, depth)
    at = skip(state, at)
    local c = source:sub(at, at)
    if c == "]" then
      out.n = n
      return out, at + 1
    elseif c ~= "," then
      fail(state, at, "',' or ']'")
    end
    at = skip(state, at + 1)
  end
end

local function read_number(state, at)
  local source = state.source
  local stop = select(2, source:find("^-?%d+", at))
  local digits = stop and source:sub(at, stop):gsub("^-", "")
  if stop == nil or (digits:find "^0" and #digits > 1) then
    fail(state, at, "a value")
  end
  stop = select(2, source:find("^%.%d+", stop + 1)) or stop
  stop = select(2, source:find("^[eE][+-]?%d+", stop + 1)) or stop
  local x = tonumber(source:sub(at, stop))
  if x == nil or x == math.huge or x == -math.huge then
    fail(state, at, "a number below 2^1024")
  end
  return x, stop + 1
end

function read_value(state, at, depth)
  if depth > MAX_DEPTH then
    fail(state, at, "at most " .. MAX_DEPTH .. " levels")
  end
  local c = state.source:sub(at, at)
  if c == "{" then
    return read_object(state, at + 1, depth + 1)
  elseif c == "[" then
    return read_array(state, at + 1, depth + 1)
  elseif c == '"' then
    return read_string(state, at + 1)
  end
  local word = state.source:match("^%a+", at)
  if word and WORDS[word] ~= nil then
    return WORDS[word], at + #word
  end
  return read_number(state, at)
end

--- The value that a JSON text says.
--- Errors: ValueError with line and column; a key given twice is one.
---@param source string
---@param what? string  what is read, for messages
---@return any
function M.decode(source, what)
  local state = { source = source, what = what or "json.decode" }
  local value, at = read_value(state, skip(state, 1), 0)
  at = skip(state, at)
  if at <= #source then
    fail(state, at, "the end")
  end
  return value
end

-- Encoding -------------------------------------------------------------------

local function quote(s)
  return '"' .. s:gsub('[%c"\\\127]', function(c)
    if c == '"' or c == "\\" then
      return "\\" .. c
    elseif c == "\n" then
      return "\\n"
    end
    return ("\\u%04x"):format(c:byte())
  end) .. '"'
end

-- Length when t is written as an array, else nil.
local function array_length(t)
  local n = t.n
  if type(n) == "number" then
    return n
  elseif next(t) == nil then
    return nil
  end
  for key in pairs(t) do
    if not text.is_whole(key) or key < 1 or key > #t then
      return nil
    end
  end
  return #t
end

local write

local function write_table(t, out, depth, gap)
  local inner = gap and gap .. "  " or nil
  local open = inner and "\n" .. inner or ""
  local close = gap and "\n" .. gap or ""
  local n = array_length(t)
  if n ~= nil then
    out[#out + 1] = "["
    for i = 1, n do
      out[#out + 1] = (i > 1 and "," or "") .. open
      write(t[i], out, depth + 1, inner)
    end
    out[#out + 1] = (n > 0 and close or "") .. "]"
    return
  end
  local keys = {}
  for key in pairs(t) do
    if type(key) ~= "string" then
      errors.raise("TypeError", "json.encode: a key must be a string, got "
        .. text.describe(key))
    end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  out[#out + 1] = "{"
  for i, key in ipairs(keys) do
    out[#out + 1] = (i > 1 and "," or "") .. open .. quote(key)
      .. (gap and ": " or ":")
    write(t[key], out, depth + 1, inner)
  end
  out[#out + 1] = (#keys > 0 and close or "") .. "}"
end

function write(x, out, depth, gap)
  local kind = type(x)
  if depth > MAX_DEPTH then
    errors.raise("ValueError", "json.encode: nested deeper than " .. MAX_DEPTH
      .. " levels or contains itself")
  elseif x == nil or x == M.null then
    out[#out + 1] = "null"
  elseif kind == "string" then
    out[#out + 1] = quote(x)
  elseif kind == "boolean" then
    out[#out + 1] = tostring(x)
  elseif kind == "number" then
    if x ~= x or x == math.huge or x == -math.huge then
      errors.raise("ValueError", "json.encode: JSON has no " .. text.number(x))
    end
    out[#out + 1] = text.is_whole(x) and math.abs(x) < 2 ^ 53
      and text.number(x) or ("%.17g"):format(x)
  elseif kind == "table" then
    write_table(x, out, depth, gap)
  else
    errors.raise("TypeError", "json.encode: cannot write "
      .. text.describe(x))
  end
end

--- The JSON text of a value; with `pretty` on several lines.
--- Errors: TypeError, ValueError for what JSON cannot say.
---@param value any
---@param pretty? boolean
---@return string
function M.encode(value, pretty)
  local out = {}
  write(value, out, 0, pretty and "" or nil)
  return table.concat(out)
end

return M
