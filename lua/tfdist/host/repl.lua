--- The prompt: reads, runs and shows, one chunk after the other.
---
--- Locals stay alive from line to line; `tf` is there; `?name` shows the
--- documentation of a function; Ctrl-C stops what runs and keeps the session.
local errors = require "tfdist.base.errors"
local fields = require "tfdist.base.fields"
local help = require "tfdist.host.help"
local pairs = require "tfdist.base.pairs"

local M = {}

local CHUNK = "=(repl)"
local load_text = rawget(_G, "loadstring") or load
local setfenv = rawget(_G, "setfenv")

local host = require "tfdist.host"

-- Environment ----------------------------------------------------------------

-- Names declared with `local` at the prompt live in `locals`; everything else
-- is global as usual.
local locals, declared = {}, {}

local environment = setmetatable({}, {
  __index = function(_, name)
    if declared[name] then
      return locals[name]
    end
    return _G[name]
  end,
  __newindex = function(_, name, value)
    if declared[name] then
      locals[name] = value
    else
      _G[name] = value
    end
  end,
})

local function compile(text)
  if setfenv then
    local fn, why = load_text(text, CHUNK)
    if fn then
      setfenv(fn, environment)
    end
    return fn, why
  end
  return load_text(text, CHUNK, "t", environment)
end

-- `local a, b = x` at the start of a chunk becomes `a, b = x` with a and b
-- declared. Returns the new text, or nil when it begins in another way.
local function without_local(text)
  local name, rest = text:match("^%s*local%s+function%s+([%a_][%w_]*)(.*)$")
  if name then
    declared[name] = true
    return ("%s = function%s"):format(name, rest)
  end
  local names, after = text:match("^%s*local%s+([%w_,%s<>]-)%s*(=[^=].*)$")
  if not names then
    names = text:match("^%s*local%s+([%a_][%w_,%s<>]-)%s*;?%s*$")
    after = "= nil"
  end
  if not names then
    return nil
  end
  names = names:gsub("<%s*%a+%s*>", "")
  for word in names:gmatch("[%a_][%w_]*") do
    declared[word] = true
  end
  return names .. " " .. after
end

-- Reading --------------------------------------------------------------------

local function is_incomplete(why)
  return why:find("<eof>", 1, true) ~= nil or why:find("'<eof>'", 1, true)
end

-- A function for the text, or nil and the message.
local function understand(text)
  local fn = compile("return " .. text)
  if fn then
    return fn
  end
  local plain, why = compile(text)
  if not plain then
    return nil, why
  end
  local global = without_local(text)
  return global and compile(global) or plain
end

-- A line that is one of Python's words, "exit", "quit()", "help", as long as
-- they mean nothing else: "leave", "help" or nil.
local WORDS = { exit = "leave", quit = "leave", help = "help" }

local function word_of(line)
  local word = line:match("^%s*(%a+)%s*;?%s*$")
    or line:match("^%s*(%a+)%s*%(%s*%)%s*;?%s*$")
  if word == nil or declared[word] or rawget(_G, word) ~= nil then
    return nil
  end
  return WORDS[word]
end

-- One complete chunk: function | nil, why | nil, nil at the end of input.
local function read_chunk()
  local text
  while true do
    local line, what = host.readline(text and ">> " or "> ")
    if line == nil and what == "interrupted" then
      io.write("\n")
      text = nil
    elseif line == nil or (text == nil and word_of(line) == "leave") then
      return nil, nil
    elseif text == nil and word_of(line) == "help" then
      return "?help"
    else
      if text == nil and line:find("^%s*%?") then
        return line:match("^%s*(%?.*)$")
      end
      text = text and text .. "\n" .. line or line:gsub("^=", "return ")
      local fn, why = understand(text)
      if fn or not is_incomplete(why) then
        return fn, why
      end
    end
  end
end

-- Showing --------------------------------------------------------------------

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do
    keys[#keys + 1] = key
  end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then
      return a < b
    end
    return type(a) == "number" or (type(b) ~= "number" and type(a) == "string")
  end)
  return keys
end

local show

local function show_table(t, depth)
  if depth > 3 then
    return "{...}"
  end
  local parts, n = {}, #t
  for i = 1, math.min(n, 20) do
    parts[#parts + 1] = show(t[i], depth + 1)
  end
  if n > 20 then
    parts[#parts + 1] = ("... %d more"):format(n - 20)
  end
  local shown = 0
  for _, key in ipairs(sorted_keys(t)) do
    local listed = type(key) == "number" and key >= 1 and key <= n
      and key % 1 == 0
    if not listed and shown < 20 then
      local name = type(key) == "string" and key:find("^[%a_][%w_]*$") and key
        or "[" .. show(key, depth + 1) .. "]"
      parts[#parts + 1] = name .. " = " .. show(t[key], depth + 1)
      shown = shown + 1
    end
  end
  if #parts == 0 then
    return "{}"
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

function show(value, depth)
  if type(value) == "string" and depth > 0 then
    return ("%q"):format(value)
  elseif type(value) == "table" then
    local mt = getmetatable(value)
    if not (type(mt) == "table" and mt.__tostring) then
      return show_table(value, depth)
    end
  end
  local ok, text = pcall(tostring, value)
  if ok then
    return text
  elseif not errors.is_error(text) then
    return errors.text_of(value)
  elseif depth > 0 then
    return ("(%s: %s)"):format(text.kind, text.message)
  end
  error(text, 0) -- what failed when the value was computed
end

-- Results side by side; those of several lines one below the other.
local function print_results(n, ...)
  local parts, tall = {}, false
  for i = 1, n do
    parts[i] = show((select(i, ...)), 0)
    tall = tall or parts[i]:find("\n", 1, true) ~= nil
  end
  if n > 0 then
    print(table.concat(parts, tall and "\n" or "    "))
  end
end

-- Errors that come from the typed line itself need no position.
local function print_error(x)
  local text
  if errors.is_error(x) then
    text = errors.text_of(x)
    if errors.full_traceback then
      text = text .. "\n" .. tostring(x.traceback)
    end
  elseif type(x) == "string" then
    local _, hint = errors.explain(x)
    text = x:gsub("^%(repl%):%d+: ", "") .. (hint and "\nhint: " .. hint or "")
  else
    text = errors.report(x)
  end
  io.stdout:flush()
  io.stderr:write(text, "\n")
end

-- Documentation --------------------------------------------------------------

local HELP = [[
An expression prints its value. A statement runs; an unfinished one goes on
with ">>". Locals stay alive from line to line; tf is tfdist.
?NAME shows what NAME is: ?tf.data.Dataset, ?tf.matmul, ?x for a value of yours.
Ctrl-C stops what runs; Ctrl-D or exit leaves.]]

local function value_of(text)
  local fn, why = compile("return " .. text)
  if not fn then
    error(why, 0)
  end
  return fn()
end

local function explain(topic)
  if topic == "" or topic == "help" then
    print(HELP)
    return
  end
  local text, value = help.about(topic, value_of)
  if value ~= nil and type(value) ~= "function" and not help.is_library(value)
  then
    print_results(1, value)
  end
  if text ~= nil then
    print(text)
  end
end

-- Completion -----------------------------------------------------------------

local function complete(word)
  local prefix, last = word:match("^(.*[%.:])([%a_]?[%w_]*)$")
  local found, out = {}, {}
  if prefix then
    local fn = compile("return " .. prefix:sub(1, -2))
    local ok, value = pcall(fn or error)
    if not ok then
      return out
    end
    fields.add(found, value)
  else
    prefix, last = "", word
    fields.add(found, _G)
    for name in pairs(declared) do
      found[name] = true
    end
  end
  for name in pairs(found) do
    if name:sub(1, #last) == last and (last ~= "" or not (name:find "^_"
      or fields.HIDDEN[name])) then
      out[#out + 1] = prefix .. name
    end
  end
  table.sort(out)
  return out
end

-- The loop -------------------------------------------------------------------

local function banner(tf)
  local dot = (os.getenv("LC_ALL") or os.getenv("LC_CTYPE")
    or os.getenv("LANG") or ""):upper():find("UTF%-?8") and " · " or " - "
  local parts = { "tfdist " .. require("tfdist.core.raw").version(), host.lua }
  if tf then
    local n = require("tfdist.core.raw").device_count("CPU")
    parts[#parts + 1] = ("%d logical CPU device%s"):format(n,
      n == 1 and "" or "s")
  end
  parts[#parts + 1] = "?help"
  parts[#parts + 1] = "Ctrl-D leaves"
  print(table.concat(parts, dot))
end

local function after(ok, ...)
  if not ok then
    print_error((...))
    return
  end
  print_results(select("#", ...), ...)
end

-- Whatever happens while a result is shown, the prompt goes on: values come
-- with code of their own, and Ctrl-C may strike there too.
local function guarded(fn, ...)
  local ok, why = pcall(fn, ...)
  if not ok and not pcall(print_error, why) then
    io.stderr:write("the error cannot be shown\n")
  end
end

local function run_chunk(chunk)
  host.reset_interrupt()
  guarded(after, pcall(chunk))
end

--- Run the prompt until the end of input.
function M.run()
  local ok, tf = pcall(require, "tfdist")
  if ok and rawget(_G, "tf") == nil then
    rawset(_G, "tf", tf)
  elseif not ok then
    print_error(tf)
  end
  if host.isatty(0) then
    banner(ok)
  end
  host.complete(complete)
  while true do
    local chunk, why = read_chunk()
    if type(chunk) == "string" then
      guarded(explain, chunk:match("^%?%s*(.-)%s*$"))
    elseif chunk then
      run_chunk(chunk)
    elseif why then
      print_error(why)
    else
      break
    end
  end
  if host.isatty(0) then
    io.write("\n")
  end
end

return M
