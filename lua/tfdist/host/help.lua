--- What the prompt tells about names: how to call a function, the comment in
--- the library's own source, the names in a module, the methods of a value.
local errors = require "tfdist.base.errors"
local fields = require "tfdist.base.fields"
local pairs = require "tfdist.base.pairs"

local M = {}

local has_host, host = pcall(require, "tfdist.host")
local WIDTH = 78

-- Sources --------------------------------------------------------------------

-- Lines of an embedded file, nil when there is none.
local function lines_of(file)
  local text = has_host and host.source(file)
  if not text then
    return nil
  end
  local lines = {}
  for line in (text .. "\n"):gmatch("(.-)\n") do
    lines[#lines + 1] = line
  end
  return lines
end

-- A comment's line as people read it: "size: integer" for a tag of it.
local function untagged(line)
  if not line:find "^@" then
    return line
  end
  line = line:gsub("^@param ([^%s?]+)(%??)%s*", function(name, optional)
    return name .. (optional == "?" and " (optional): " or ": ")
  end)
  return (line:gsub("^@return%s*", "Returns: "):gsub("   +", "  "))
end

-- The comment that ends at line `last`, nil when there is none.
local function block(lines, last)
  local first = last + 1
  while first > 1 and lines[first - 1]:find("^%s*%-%-%-?") do
    first = first - 1
  end
  local out = {}
  for i = first, last do
    if not lines[i]:find("^%s*%-%-.*%-%-%-%-$") then -- a heading
      out[#out + 1] = untagged((lines[i]:gsub("^%s*%-%-%-?%s?", "")))
    end
  end
  return #out > 0 and table.concat(out, "\n") or nil
end

-- What somebody wrote of a function that the library has put another around.
local function behind(fn)
  local text = package.loaded["tfdist.base.text"]
  return text ~= nil and text.written(fn) or fn
end

-- The comment above the function. Functions that are arguments of a definition
-- begin a few lines below its comment.
local function comment(fn)
  local info = debug.getinfo(behind(fn), "S")
  local file = info.source:match("^@lua/(tfdist/.*)$")
  local lines = file and lines_of(file)
  if not lines then
    return nil
  end
  local last = info.linedefined - 1
  local stop = last - 4
  while last > stop and last > 0 and lines[last]:find("%S")
    and not lines[last]:find("^%s*%-%-") do
    last = last - 1
  end
  return block(lines, last)
end

local function plain(name)
  return name:lower():gsub("_", "")
end

-- file -> list of { path, comment } of the comments that say `Source: path`
local known = {}

local function sources_of(file)
  local found = known[file]
  if found == nil then
    found = {}
    local lines = lines_of(file) or {}
    for i, line in ipairs(lines) do
      local path = line:match("^%s*%-%-.*Source: (tf%.[%w_.]+)")
      if path ~= nil then
        found[#found + 1] = { path, block(lines, i) }
      end
    end
    known[file] = found
  end
  return found
end

-- name -> text, of what has no comment of its own
local texts

local function listed(name)
  if texts == nil then
    texts = {}
    local all = require("tfdist.host.help_texts"):gsub("\n%s+", " ")
    for names, text in all:gmatch("([^\n:]+): ([^\n]+)") do
      for each in names:gmatch "%S+" do
        texts[plain(each)] = text
      end
    end
  end
  return texts[plain(name)]
end

-- The comment that says `Source: path`, in the files of the modules that are
-- loaded; else the text that is listed; else a comment on another path's name.
local function sourced(path, name)
  local found
  local last = listed(name) or listed(path:match("[%w_]*$"))
  name = plain(name)
  for module in pairs(package.loaded) do
    local file = type(module) == "string" and module:find("^tfdist%.")
      and module:gsub("%.", "/")
    for _, ending in ipairs(file and { ".lua", "/init.lua" } or {}) do
      for _, source in ipairs(sources_of(file .. ending)) do
        if source[1] == path then
          return source[2]
        elseif plain(source[1]:match("[%w_]*$")) == name then
          found = found or source[2]
        end
      end
    end
  end
  return last or found
end

-- The names of a value in lines, after a title.
local function list(title, found)
  local names = {}
  for name in pairs(found) do
    if not name:find("^_") and not fields.HIDDEN[name] then
      names[#names + 1] = name
    end
  end
  if #names == 0 then
    return nil
  end
  table.sort(names)
  local out, line = {}, title
  for i, name in ipairs(names) do
    local word = " " .. name .. (i < #names and "," or "")
    if #line + #word > WIDTH then
      out[#out + 1] = line
      line = " "
    end
    line = line .. word
  end
  out[#out + 1] = line
  return table.concat(out, "\n")
end

-- Answers --------------------------------------------------------------------

local function join(...)
  local parts = {}
  for i = 1, select("#", ...) do
    parts[#parts + 1] = (select(i, ...)) or nil
  end
  return #parts > 0 and table.concat(parts, "\n") or nil
end

-- How to call a function, and its comment.
local function about_function(topic, fn)
  local options = package.loaded["tfdist.base.options"]
  local usage, inner
  if options ~= nil then
    usage, inner = options.usage(fn)
  end
  local text = comment(inner or fn)
  if text == nil and (usage ~= nil or topic:find "^tf%.") then
    local name = usage and usage:match("^[%w_.:]+") or topic
    name = name:match("[%w_]*$")
    text = sourced(topic, name)
  end
  local class = usage and usage:match("^%u[%w_]*%f[(]")
  return join(usage, text,
    class and list("methods:", options.methods_of(class)))
    or topic .. ": a function"
end

local function is_class(value)
  local meta = getmetatable(value)
  return type(value) == "table" and type(meta) == "table" and meta.__call ~= nil
    and type(rawget(value, "__name")) == "string"
end

local function about_class(topic, class)
  local options = package.loaded["tfdist.base.options"]
  local usage, inner
  if options and type(class.init) == "function" then
    usage, inner = options.usage(class.init)
  end
  local found = {}
  fields.add(found, class)
  for name in pairs(found) do
    if type(class[name]) ~= "function" then
      found[name] = nil
    end
  end
  return join(usage or "class " .. class.__name,
    sourced(topic, class.__name) or (inner and comment(inner)),
    list("methods:", found))
end

--- True for tables that are told about instead of shown: modules and classes.
function M.is_library(value)
  local meta = type(value) == "table" and getmetatable(value)
  return value == package.loaded["tfdist"] or is_class(value)
    or (type(meta) == "table" and rawget(meta, "__names") ~= nil
      and rawget(meta, "__tostring") == nil)
end

local function nothing(topic)
  local tf = package.loaded["tfdist"]
  local text = require "tfdist.base.text"
  local names = {}
  fields.add(names, tf)
  fields.add(names, _G)
  local near = text.nearest(topic, text.names(names))
  errors.raise("KeyError", "there is no " .. topic, near and ("did you mean "
    .. "%s?"):format(rawget(_G, near) == nil and "tf." .. near or near) or nil)
end

local function field(t, name)
  local ok, value = pcall(function()
    return t[name]
  end)
  return ok and value or nil
end

-- The text of "tf.Variable.assign", where tf.Variable is a function that makes
-- objects; nil when there is no such function.
local function about_method(topic, evaluate)
  local prefix, name = topic:match("^(.*)%.([%a_][%w_]*)$")
  local ok, maker = pcall(evaluate, prefix or "nil")
  local options = package.loaded["tfdist.base.options"]
  if not ok or type(maker) ~= "function" or not options then
    return nil
  end
  local class = prefix:find "%.optimizers%." and "optimizer"
    or (options.usage(maker) or prefix):match "[%w_]+%f[%z(]"
  local methods = options.methods_of(class)
  if methods[name] == nil then
    local near = require "tfdist.base.text".nearest(name,
      require "tfdist.base.text".names(methods))
    errors.raise("KeyError", "there is no " .. topic, near and ("did you mean "
      .. "%s.%s?"):format(prefix, near) or nil)
  end
  return about_function(topic, methods[name]), methods[name]
end

--- What there is to say of a topic.
--- Errors: those of evaluating it; KeyError when there is nothing.
---@param topic string
---@param evaluate fun(text:string):any
---@return string? text, any value
function M.about(topic, evaluate)
  topic = topic:gsub(":([%a_][%w_]*)$", ".%1"):gsub("%(%s*%)$", "")
  local ok, value = pcall(evaluate, topic)
  if not ok then
    local said, method = about_method(topic, evaluate)
    if said ~= nil then
      return said, method
    end
    error(value, 0)
  end
  local tf = package.loaded["tfdist"]
  if value == nil and topic:find("^[%a_][%w_]*$") and field(tf, topic) ~= nil
  then
    topic = "tf." .. topic
    value = evaluate(topic)
  end
  if value == nil then
    nothing(topic)
  elseif type(value) == "function" then
    return about_function(topic, value), value
  elseif is_class(value) then
    return about_class(topic, value), value
  end
  local found = {}
  fields.add(found, value)
  local meta = type(value) == "table" and (getmetatable(value) or {})
  local is_module = M.is_library(value) or (type(meta) == "table"
    and meta.__tostring == nil and topic:find("^tf%."))
  return list(is_module and topic .. ":" or "fields:", found),
    not is_module and value or nil
end

return M
