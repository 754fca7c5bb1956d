--- tf.Module: objects that know their variables.
---
---   local Linear = tf.Module:subclass "Linear"
---   function Linear:init(rows, columns)        -- called by Linear(rows, ...)
---     self.w = tf.Variable(tf.zeros { rows, columns }, { name = "w" })
---   end
---   function Linear:__call(x) return tf.matmul(x, self.w) end
---   local layer = Linear(3, 2)
---   layer.variables, layer.trainable_variables, layer.submodules, layer.name
---
--- Variables and modules count wherever they sit in the object's fields, also
--- inside plain tables. Order: fields sorted by name, own variables before
--- those of submodules, as in TensorFlow.
---
--- Classes made by hand work too: give their metatable `__index =
--- tf.Module.index(Class)` and inherit from tf.Module:
---   local Linear = setmetatable({}, { __index = tf.Module })
---   local meta = { __index = tf.Module.index(Linear) }
---   local layer = setmetatable({ w = tf.Variable(0) }, meta)
local classes = require "tfdist.base.classes"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"

local M = {}

local getmetatable, rawget, type = getmetatable, rawget, type

local MAX_DEPTH = 200

-- Objects of other modules that count as one variable (distributed ones)
-- answer this in their metatable.
local function is_variable(x)
  if type(x) == "userdata" then
    local kind = raw.kind(x)
    return kind == "variable" or kind == "mirrored"
  elseif type(x) == "table" then
    local meta = getmetatable(x)
    return type(meta) == "table" and meta.__variable == true
  end
  return false
end

local function is_module(x)
  if type(x) ~= "table" then
    return false
  end
  local meta = getmetatable(x)
  if type(meta) ~= "table" then
    return false
  elseif meta.is_tf_module then
    return true
  end
  local index = meta.__index
  return type(index) == "table" and index.is_tf_module == true
    or type(index) == "function" and M.indexers[index] ~= nil
end

M.is_module = is_module
M.is_variable = is_variable

-- index functions made by Module.index -> their class
M.indexers = setmetatable({}, { __mode = "k" })

-- Call visit(leaf) for each leaf of the object's fields, sorted by field name.
local function each_leaf(object, visit)
  local function walk(x, depth)
    if nest.is_nested(x) then
      if depth > MAX_DEPTH then
        errors.raise("ValueError", "Module: fields are nested deeper than "
          .. MAX_DEPTH .. " levels or contain themselves")
      end
      local n, keys = nest.layout(x)
      for i = 1, n do
        walk(x[i], depth + 1)
      end
      for i = 1, keys and #keys or 0 do
        walk(x[keys[i]], depth + 1)
      end
    else
      visit(x)
    end
  end
  local names = {}
  for key in pairs(object) do
    names[#names + 1] = key
  end
  table.sort(names, function(a, b)
    local ta, tb = type(a), type(b)
    if ta ~= tb then
      return ta < tb
    elseif ta == "number" or ta == "string" then
      return a < b
    end
    return tostring(a) < tostring(b)
  end)
  for i = 1, #names do
    walk(rawget(object, names[i]), 1)
  end
end

-- Breadth first: this module's leaves, then those of its submodules.
local function collect(object, want)
  local found, seen, queue = {}, { [object] = true }, { object }
  local at = 1
  while queue[at] ~= nil do
    each_leaf(queue[at], function(leaf)
      if leaf == nil or seen[leaf] then
        return
      end
      if want(leaf) then
        seen[leaf] = true
        found[#found + 1] = leaf
      end
      if is_module(leaf) then
        seen[leaf] = true
        queue[#queue + 1] = leaf
      end
    end)
    at = at + 1
  end
  return found
end

local function snake_case(name)
  return (name:gsub("(%l)(%u)", "%1_%2"):gsub("(%u)(%u%l)", "%1_%2"):lower())
end

local properties = {}

function properties.variables(self)
  return collect(self, is_variable)
end

function properties.trainable_variables(self)
  return collect(self, function(x)
    return is_variable(x) and x.trainable
  end)
end

function properties.non_trainable_variables(self)
  return collect(self, function(x)
    return is_variable(x) and not x.trainable
  end)
end

function properties.submodules(self)
  return collect(self, is_module)
end

function properties.name(self)
  return rawget(self, "_name") or snake_case(self.__name)
end

--- "outer/linear/": the scope that with_name_scope enters.
function properties.name_scope(self)
  return (rawget(self, "_scope") or "") .. properties.name(self) .. "/"
end

--- An __index function that looks in class first, then among the properties.
---@param class table
---@return fun(self:table, key:any):any, fun():string[]  names that it knows
local function index_of(class)
  local function names()
    return text.inherited_names(class, properties)
  end
  local note_absent = text.absent_fields(names)
  local function index(self, key)
    local value = class[key]
    if value ~= nil then
      return value
    end
    local property = properties[key]
    if property ~= nil then
      return property(self)
    end
    return note_absent(key)
  end
  M.indexers[index] = class
  return index, names
end

local function make_metatable(class)
  local index, names = index_of(class)
  local meta = {
    __index = index, __names = names, __name = class.__name,
    is_tf_module = true, class = class,
  }
  -- The class's own metamethods are looked up at each use, so that they may be
  -- defined after the first object was made.
  function meta.__call(self, ...)
    local call = class.__call
    if call == nil then
      errors.raise("TypeError", ("a %s cannot be called: the class defines no "
        .. "__call"):format(class.__name))
    end
    return call(self, ...)
  end
  function meta.__tostring(self)
    local own = class.__tostring
    if own ~= nil then
      return own(self)
    end
    return ("%s \"%s\" (%d variables)"):format(class.__name,
      self.name, #properties.variables(self))
  end
  return meta
end

local function construct(class, meta, ...)
  local self = setmetatable({}, meta)
  local scope = state.shared_scope(state.current)
  if scope ~= "" then
    rawset(self, "_scope", scope)
  end
  class.init(self, ...)
  return self
end

local Module = classes.new("Module", "tf.Module", make_metatable, construct)
Module.is_tf_module = true
Module.index = index_of

--- Called by subclasses that take a name; may be left out.
---@param name? string
function Module:init(name)
  if type(self) ~= "table" then
    options.wrong_self("Module.init", "module", self, { "name" })
  elseif name ~= nil and (type(name) ~= "string"
    or not name:find("^[%a_][%w_]*$")) then
    errors.raise("ValueError", "Module: name must be a word of letters, "
      .. "digits and underscores, got " .. text.describe(name))
  end
  rawset(self, "_name", name)
end

--- fn wrapped so that variables made inside get the module's name scope:
--- `Linear.build = tf.Module.with_name_scope(function(self, x) ... end)`.
--- Source: tf.Module.with_name_scope
---@param fn function
---@return function
function Module.with_name_scope(fn)
  text.check_callable("Module.with_name_scope", "fn", fn)
  return function(self, ...)
    local own = state.current
    local before = own.name_scope
    own.name_scope = self.name_scope
    return state.protect(function()
      own.name_scope = before
    end, fn, self, ...)
  end
end

--- True for objects of tf.Module and its subclasses.
Module.is_module = is_module

M.Module = Module

return M
