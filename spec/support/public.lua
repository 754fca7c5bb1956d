--- All public functions with what they take, found by walking through tf.
local options = require "tfdist.base.options"
local tf = require "tfdist"

local M = {}

local function names_of(t)
  local meta = getmetatable(t)
  local names = {}
  if type(meta) == "table" and meta.__names then
    names = meta.__names(t)
  end
  for name in next, t do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

--- True for classes: tables that make objects when they are called.
function M.is_class(t)
  local meta = getmetatable(t)
  return rawget(t, "__name") ~= nil
    or type(meta) == "table" and rawget(meta, "__call") ~= nil
end

local function add(list, seen, name, fn, of)
  if not seen[fn] then
    seen[fn] = true
    list[#list + 1] = { name = name, fn = fn, class = of,
      sig = options.signature_of(fn) }
  end
end

-- The methods of a class and of those it derives from.
local function add_methods(list, seen, path, class)
  local at = class
  while type(at) == "table" do
    for _, name in ipairs(names_of(at)) do
      local fn = rawget(at, name)
      if type(fn) == "function" and not name:find "^_" then
        add(list, seen, path .. (name == "init" and "" or ":" .. name), fn,
          class)
      end
    end
    local meta = getmetatable(at)
    at = type(meta) == "table" and rawget(meta, "__index") or nil
  end
end

local function collect(list, seen, path, t, left_out)
  for _, name in ipairs(names_of(t)) do
    local full = path .. "." .. name
    local ok, value = pcall(function() return t[name] end)
    if not ok or name:find "^_" or left_out[full] then
      value = nil
    end
    if type(value) == "function" then
      add(list, seen, full, value)
    elseif type(value) == "table" and not seen[value]
      and value ~= tf.newaxis then
      seen[value] = true
      if M.is_class(value) then
        add_methods(list, seen, full, value)
      else
        collect(list, seen, full, value, left_out)
      end
    end
  end
end

--- Functions, constructors and methods of classes: a list of { name, fn,
--- class = of a constructor or method, sig = nil where none is known }.
---@param left_out? table  name -> true
function M.functions(left_out)
  local list, seen = {}, { [tf] = true }
  collect(list, seen, "tf", tf, left_out or {})
  return list
end

return M
