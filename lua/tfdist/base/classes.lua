--- Classes that users may derive from:
---
---   local Mine = Base:subclass "Mine"
---   function Mine:init(size) self.size = size end    -- called by Mine(size)
---
--- An object's metatable holds its class in `class`; methods and fields that an
--- object lacks come from its class, then from those it inherits from.
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"

local M = {}

local function new(class, ...)
  local meta = rawget(class, "object_meta")
  if meta == nil then
    meta = { __index = class, class = class, __tostring = function(self)
      return self:describe()
    end }
    class.object_meta = meta
  end
  local self = setmetatable({}, meta)
  class.init(self, ...)
  return self
end

local function named(name, parent)
  return setmetatable({ __name = name }, { __index = parent, __call = new,
    __tostring = function()
      return "class " .. name
    end })
end

--- A class without a parent, and the test for its objects and those of all
--- classes derived from it.
---@param name string
---@param path string  where users find it, for messages
---@return table, fun(x:any):boolean
function M.root(name, path)
  local Root = named(name, nil)
  Root.root = Root

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
      and meta.class.root == Root
  end
end

return M
