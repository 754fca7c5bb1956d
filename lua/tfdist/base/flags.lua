--- tf.flags: the options of a script from its command line.
---
--- `tf.flags { epochs = 5, verbose = false, log_dir = "runs" }` returns a table
--- with the same keys; each may be set as `--epochs 3`, `--epochs=3`,
--- `--verbose`, `--no-verbose`, `--noverbose`, `--log-dir=x` (dashes and
--- underscores are the same). The default decides the type: whole number,
--- number, boolean, string, or list of such values (`--sizes 64,32`). What is no
--- flag lands in [1], [2], ...; after `--` everything does. `--help` and `-h`
--- print the flags and end the program.
---
--- A default that is an integer takes whole numbers only: 5, not 5.0. LuaJIT
--- does not tell these two apart, there all take any number; `types = { rate =
--- "float", epochs = "integer" }` says it for both engines.
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

local CHECK = { "args", "help", "description", "program", "choices", "types" }
local TYPES = { "float", "integer" }

local number_type = rawget(math, "type")
local to_integer = rawget(math, "tointeger")

local function dashed(name)
  return "--" .. name:gsub("_", "-")
end

local function sorted_names(defaults)
  local names = {}
  for name, value in pairs(defaults) do
    if type(name) ~= "string" or not name:find("^%a[%w_]*$") then
      errors.raise("ValueError", "flags: a flag's name must be a word, got "
        .. text.describe(name))
    end
    local kind = type(value)
    if kind ~= "number" and kind ~= "string" and kind ~= "boolean"
      and not text.is_plain(value) then
      errors.raise("TypeError", ("flags: the default of %s must be a number, "
        .. "a string, a boolean or a list, got %s"):format(name,
        text.describe(value)))
    end
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

local function value_text(value)
  if type(value) == "table" then
    local parts = {}
    for i = 1, #value do
      parts[i] = value_text(value[i])
    end
    return table.concat(parts, ",")
  elseif type(value) == "number" then
    return text.number(value)
  end
  return tostring(value)
end

local TRUTH = {
  ["true"] = true, yes = true, on = true, ["1"] = true,
  ["false"] = false, no = false, off = false, ["0"] = false,
}

-- True for a default that takes whole numbers only.
local function is_integer(default, kind)
  if type(default) ~= "number" then
    return false
  elseif kind ~= nil then
    return kind == "integer"
  end
  return number_type ~= nil and number_type(default) == "integer"
end

local function convert_number(flag, word, whole)
  local number = tonumber(word)
  if number == nil or (whole and not text.is_int64(number)) then
    errors.raise("ValueError", ("flags: %s needs a %snumber, got %s"):format(
      flag, whole and "whole " or "", text.quote(word)))
  end
  return whole and to_integer ~= nil and to_integer(number) or number
end

-- `type_name`: what `types` says of the flag.
local function convert(flag, word, like, type_name)
  local kind = type(like)
  if kind == "number" then
    return convert_number(flag, word, is_integer(like, type_name))
  elseif kind == "boolean" then
    local truth = TRUTH[word:lower()]
    if truth == nil then
      errors.raise("ValueError", ("flags: %s is true or false, got %s"):format(
        flag, text.quote(word)))
    end
    return truth
  elseif kind == "table" then
    local list = {}
    for part in (word .. ","):gmatch("([^,]*),") do
      if part ~= "" then
        list[#list + 1] = convert(flag, part, like[1] == nil and "" or like[1],
          type_name)
      end
    end
    return list
  end
  return word
end

--- The text that `--help` prints.
---@param defaults table
---@param more table  { help = {flag = text}, description, program, types }
---@return string
function M.help_text(defaults, more)
  local names = sorted_names(defaults)
  local lines = { "usage: " .. (more.program or "script") .. " [flags]" }
  if more.description ~= nil then
    lines[#lines + 1] = more.description
  end
  local width = 6
  for i = 1, #names do
    width = math.max(width, #names[i] + 2)
  end
  for i = 1, #names do
    local name = names[i]
    local note = more.help and more.help[name]
    local choices = more.choices and more.choices[name]
    local default = defaults[name]
    local like = default
    if type(default) == "table" then
      like = default[1]
    end
    lines[#lines + 1] = ("  %-" .. width .. "s  %s(%sdefault %s)%s"):format(
      dashed(name), note and note .. " " or "",
      not is_integer(like, more.types and more.types[name]) and ""
        or like == default and "whole number, " or "whole numbers, ",
      value_text(default) == "" and "empty" or value_text(default),
      choices and " one of " .. table.concat(choices, ", ") or "")
  end
  lines[#lines + 1] = ("  %-" .. width .. "s  this text"):format(
    defaults.h == nil and "--help, -h" or "--help")
  return table.concat(lines, "\n")
end

local function unknown_flag(word, names)
  local shown = {}
  for i = 1, #names do
    shown[i] = dashed(names[i])
  end
  local near = text.nearest(word:gsub("^%-+", ""):gsub("-", "_"), names)
  local hint = near and "did you mean " .. dashed(near) .. "?"
    or "flags are " .. table.concat(shown, ", ")
    .. (#shown > 0 and ", " or "") .. "--help"
  errors.raise("ValueError", "flags: unknown flag " .. text.quote(word), hint)
end

local function check_choice(flag, value, choices)
  if choices == nil then
    return
  end
  for i = 1, #choices do
    if choices[i] == value then
      return
    end
  end
  local shown = {}
  for i = 1, #choices do
    shown[i] = value_text(choices[i])
  end
  errors.raise("ValueError", ("flags: %s must be one of %s, got %s"):format(
    flag, table.concat(shown, ", "), value_text(value)))
end

-- One word that starts with two dashes; returns the next position.
local function read_flag(result, defaults, names, args, i, more)
  local word = args[i]
  local name, value = word:match("^%-%-([^=]+)=(.*)$")
  name = (name or word:sub(3)):gsub("-", "_")
  local flag = dashed(name)
  local default = defaults[name]
  if default == nil then
    local negated = name:match("^no_?(.+)$")
    if negated ~= nil and type(defaults[negated]) == "boolean"
      and value == nil then
      result[negated] = false
      return i + 1
    end
    unknown_flag(word:match("^[^=]+"), names)
  end
  if value == nil then
    if type(default) == "boolean" then
      result[name] = true
      return i + 1
    end
    i = i + 1
    value = args[i]
    if value == nil then
      errors.raise("ValueError", "flags: " .. flag .. " needs a value")
    end
  end
  result[name] = convert(flag, value, default, more.types and more.types[name])
  check_choice(flag, result[name], more.choices and more.choices[name])
  return i + 1
end

local function asks_help(word, defaults)
  return word == "--help" and defaults.help == nil
    or word == "-h" and defaults.h == nil
end

local function check_types(types, defaults, names)
  for name, kind in pairs(types or {}) do
    local default = defaults[name]
    if type(default) == "table" then
      default = default[1]
    end
    if type(default) ~= "number" then
      options.check_keys("flags: types", { [name] = kind }, names)
      errors.raise("ValueError", ("flags: types: the default of %s is no "
        .. "number"):format(name))
    end
    options.choice("flags", "types." .. name, kind, TYPES)
  end
end

local function copy(value)
  return type(value) == "table" and lists.copy(value) or value
end

--- Read the script's command line.
--- Errors: ValueError for an unknown flag, a missing or unsuitable value.
---@param defaults table  flag = default
---@param more? table     { help = {flag = text}, choices = {flag = list},
---  types = {flag = "float" or "integer"}, description = text, program = name,
---  args = list instead of `arg` }
---@return table          values by flag name; other words in [1], [2], ...
function M.parse(defaults, more)
  if not text.is_plain(defaults) then
    errors.raise("TypeError", "flags: defaults must be a table, got "
      .. text.describe(defaults))
  end
  more = more or {}
  options.check_keys("flags", more, CHECK)
  local names = sorted_names(defaults)
  check_types(more.types, defaults, names)
  local args = more.args or _G.arg or {}
  local result, rest = {}, 0
  for i = 1, #names do
    result[names[i]] = copy(defaults[names[i]])
  end
  local i, only_words = 1, false
  while args[i] ~= nil do
    local word = args[i]
    if not only_words and asks_help(word, defaults) then
      more.program = more.program or (_G.arg and _G.arg[0])
      io.stdout:write(M.help_text(defaults, more), "\n")
      os.exit(0)
    elseif only_words or word:sub(1, 2) ~= "--" then
      rest = rest + 1
      result[rest] = word
      i = i + 1
    elseif word == "--" then
      only_words = true
      i = i + 1
    else
      i = read_flag(result, defaults, names, args, i, more)
    end
  end
  return result
end

return M
