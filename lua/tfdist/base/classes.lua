--- Classes that users may derive from:
---
---   local Mine = Base:extend "Mine"                  -- or Base:subclass
---   function Mine:init(size) self.size = size end    -- called by Mine(size)
---
--- An object's metatable holds its class in `class`; methods and fields that an
--- object lacks come from its class, then from those it inherits from.
local errors = require "tfdist.base.errors"
local fields = require "tfdist.base.fields"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

-- A new object, from the metatable that the class's objects share; made when the
-- first one is, since what it says of a class may come after the class.
local function new(class, ...)
  local meta = rawget(class, "_object_metatable")
  if meta == nil then
    meta = class._make_metatable(class)
    class._object_metatable = meta
  end
  return class._construct(class, meta, ...)
end

local function construct(class, meta, ...)
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

--- A class without a parent.
---@param name string
---@param path string  where users find it, for messages
---@param make_metatable fun(class:table):table  that of a class's objects
---@param construct_? fun(class:table, meta:table, ...):table  makes an object of
---  it and calls class.init(self, ...)
---@return table
function M.new(name, path, make_metatable, construct_)
  local Root = named(name, nil)
  Root._make_metatable = make_metatable
  Root._construct = construct_ or construct

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

  --- The same. What a class does in its own subclass holds here too.
  function Root:extend(child)
    if type(self) ~= "table" or self.subclass == nil then
      options.wrong_self(name .. ".extend", "class", self, { "name" })
    end
    return self:subclass(child)
  end

  return Root
end

-- Functions of a class whose self is no object, what only the library calls, and
-- what is compared with what a class of the user's has in its place: that looks
-- at self by itself.
local UNGUARDED = { subclass = true, extend = true, from_config = true,
  train_step = true, test_step = true, predict_step = true,
  compute_loss = true, compute_metrics = true }
for name in pairs(fields.HIDDEN) do
  UNGUARDED[name] = name ~= "init"
end

--- Methods of `class` say so when they are called with a dot: those that it has
--- and those that it is given. Classes derived from it have their own.
---@param class table
---@param is_self fun(x:any):boolean
---@param noun string  what self is, "metric"
function M.guard(class, is_self, noun)
  local function guarded(key, value)
    if type(value) ~= "function" or UNGUARDED[key] or key:find "^_" then
      return value
    end
    return options.guarded(class.__name .. "." .. key, value, is_self, noun)
  end
  local meta = getmetatable(class)
  local put = meta.__newindex or rawset
  function meta.__newindex(t, key, value)
    put(t, key, guarded(key, value))
  end
  for _, key in ipairs(text.names(class)) do
    rawset(class, key, guarded(key, rawget(class, key)))
  end
end

local function plain_metatable(class)
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

--- A class without a parent, whose objects are plain tables, and the test for
--- its objects and those of all classes derived from it.
---@param name string
---@param path string
---@param metamethods? table  more of objects: __call
---@return table, fun(x:any):boolean
function M.root(name, path, metamethods)
  local Root = M.new(name, path, plain_metatable)
  Root._root, Root._metamethods = Root, metamethods or {}

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
