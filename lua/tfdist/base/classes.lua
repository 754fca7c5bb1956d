--- Classes that users may derive from:
---
---   local Mine = Base:extend "Mine"                  -- or Base:subclass
---   function Mine:init(size) self.size = size end    -- called by Mine(size)
---
--- An object's metatable holds its class in `class`; methods and fields that an
--- object lacks come from its class, then from those it inherits from.
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"

local M = {}

local function object_metatable(class)
  local function names()
    return text.inherited_names(class)
  end
  local absent = text.absent_fields(names)
  local meta = { class = class, __name = class.__name, __names = names,
    __index = function(_, key)
      local value = class[key]
      return value == nil and absent(key) or value
    end,
    __tostring = function(self)
      return self:describe()
    end }
  for key, value in pairs(class._root._metamethods) do
    meta[key] = value
  end
  return meta
end

local function new(class, ...)
  local meta = rawget(class, "_object_metatable")
  if meta == nil then
    meta = object_metatable(class)
    class._object_metatable = meta
  end
  local self = setmetatable({}, meta)
  class.init(self, ...)
  return self
end

local function named(name, parent)
  return setmetatable({ __name = name, super = parent }, { __index = parent,
    __call = new, is_class = true, __tostring = function()
      return "class " .. name
    end })
end

--- True for classes made here.
function M.is_class(x)
  local meta = type(x) == "table" and getmetatable(x)
  return type(meta) == "table" and rawget(meta, "is_class") == true
end

--- A class without a parent, and the test for its objects and those of all
--- classes derived from it.
---@param name string
---@param path string  where users find it, for messages
---@param metamethods? table  more of objects: __call
---@return table, fun(x:any):boolean
function M.root(name, path, metamethods)
  local Root = named(name, nil)
  Root._root, Root._metamethods = Root, metamethods or {}

  --- A class that inherits from this one; calling it makes an object and calls
  --- init(self, ...).
  function Root:subclass(child)
    if type(self) ~= "table" or self.subclass == nil then
      options.wrong_self(name .. ".subclass", "class", self, { "name" })
    elseif type(child) ~= "string" then
      errors.raise("TypeError", ("%s:subclass: the class needs a name, got %s")
        :format(name, text.describe(child)), path .. ':subclass "Mine"')
    end
    return named(child, self)
  end

  Root.extend = Root.subclass

  --- Called for a new object; classes with arguments put their own in place.
  function Root:init()
    return self
  end

  --- What tostring shows.
  function Root:describe()
    return getmetatable(self).class.__name
  end

  return Root, function(x)
    local meta = type(x) == "table" and getmetatable(x)
    return type(meta) == "table" and type(meta.class) == "table"
      and meta.class._root == Root
  end
end

return M
