--- Families of small configured objects: initializers, regularizers,
--- constraints. An object is called for its effect, has get_config() and is
--- found by name, by { class_name = ..., config = {...} } or given as it is.
--- Losses and metrics, which have classes of their own, are found alike.
local backend = require "tfdist.keras.backend"
local classes = require "tfdist.base.classes"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

-- Classes to derive from -----------------------------------------------------

local roots = {}

local function same(...)
  return ...
end

--- A class to derive from (module classes); calling its objects calls their
--- method call. `convert` is applied to what call returns.
---@param name string    "Initializer"
---@param noun string    "initializer", for messages
---@param path string    where users find it
---@param convert? function
function M.class(name, noun, path, convert)
  convert = convert or same
  local class, is_one = classes.root(name, path, { __call = function(self, ...)
    return convert(self:call(...))
  end })
  roots[noun] = class
  function class:call()
    errors.raise("NotImplementedError", ("%s: an own %s defines call(self, ...)")
      :format(self:describe(), noun))
  end
  --- What the constructor needs to make the object again.
  function class.get_config()
    return {}
  end
  classes.guard(class, is_one, noun)
  return class
end

--- True for objects of classes that derive from one that M.class made, and for
--- these classes.
function M.is_own(x, noun)
  local meta = type(x) == "table" and getmetatable(x) or nil
  local class = type(meta) == "table" and rawget(meta, "class")
    or classes.is_class(x) and x or nil
  return class ~= nil and class._root == roots[noun]
end

-- Constructors that are functions, and what to derive from in their place.
local bases = {}

--- Say how to derive where `name` is a function that makes objects.
function M.not_a_class(name, hint)
  bases[name] = hint
end

errors.add_explanation(function(message)
  local name = message:match "attempt to index a function value %(field '(%w+)'"
    or message:match "attempt to index field '(%w+)' %(a function value%)"
  if name ~= nil and bases[name] ~= nil then
    return "TypeError", name .. " makes objects and cannot be derived from; "
      .. bases[name]
  end
end)

local Family = {}
Family.__index = Family

local is_callable = text.is_callable

--- A family of objects; its classes become fields of `module`, and so do get,
--- serialize and deserialize.
---@param noun string    "initializer", for messages
---@param module table
function M.family(noun, module)
  local family = setmetatable({ noun = noun, module = module, classes = {},
    names = {} }, Family)
  local base = noun:sub(1, 1):upper() .. noun:sub(2)
  local path = ("tf.keras.%ss.%s"):format(noun, base)
  module[base] = M.class(base, noun, path)
  family.hint = path .. ":extend \"Mine\" is a class"
  module.get = function(identifier)
    return family:get(identifier)
  end
  module.serialize = M.serialize
  module.deserialize = module.get
  options.functions(module, noun .. "s.", {
    get = "identifier:nest=nil", deserialize = "config:nest=nil",
    serialize = "object:table=nil",
  })
  return family
end

--- An object as { class_name = ..., config = {...} }; functions and nil as they
--- are. Source: tf.keras.utils.serialize_keras_object
function M.serialize(object)
  if type(object) ~= "table" then
    return object
  end
  local meta = getmetatable(object)
  if meta == nil or object.get_config == nil then
    return object
  elseif classes.is_class(object) then
    return M.serialize(object()) -- a class stands for what it makes
  end
  return { class_name = meta.__name, config = object:get_config() }
end

--- Define a class: setup(object) checks its configuration after construction,
--- call(object, ...) is what calling it does.
---@param name string        "GlorotUniform"
---@param aliases string     more names, "glorot_uniform"
---@param signature string
---@param class table        { setup?, call, methods? }
function Family:define(name, aliases, signature, class)
  local sig = options.signature(name, signature)
  local methods = class.methods or {}
  local meta = { __name = name, family = self }
  meta.__call = class.call
  function meta.__names()
    return text.names(methods)
  end
  local note_absent = text.absent_fields(meta.__names)
  function meta.__index(_, key)
    local value = methods[key]
    return value == nil and note_absent(key) or value
  end
  function meta.__tostring(object)
    local parts = {}
    for i = 1, sig.n do
      local value = rawget(object, sig.names[i])
      parts[#parts + 1] = value ~= nil and sig.names[i] .. " = "
        .. (type(value) == "number" and text.number(value) or tostring(value))
        or nil
    end
    return name .. " { " .. table.concat(parts, ", ") .. " }"
  end
  --- The arguments it was made with.
  function methods.get_config(object)
    if getmetatable(object) ~= meta then
      options.wrong_self(name .. ".get_config", self.noun, object)
    end
    local config = {}
    for i = 1, sig.n do
      config[sig.names[i]] = M.serialize(rawget(object, sig.names[i]))
    end
    return config
  end
  local function make(...)
    local object, values = {}, { ... }
    for i = 1, sig.n do
      object[sig.names[i]] = values[i]
    end
    setmetatable(object, meta)
    if class.setup then
      class.setup(object)
    end
    return object
  end
  local constructor = options.wrap_signature(sig, make)
  M.not_a_class(name, self.hint)
  self.module[name] = constructor
  self.names[#self.names + 1] = name
  self.classes[name:lower()] = constructor
  self.classes[backend.snake_case(name)] = constructor
  for alias in aliases:gmatch("%S+") do
    self.classes[alias] = constructor
    self.module[alias] = constructor
    self.names[#self.names + 1] = alias
  end
end

--- The object an identifier means; nil for nil.
--- Errors: ValueError for an unknown name, TypeError.
function Family:get(identifier)
  for _, constructor in pairs(self.classes) do
    if constructor == identifier then
      return constructor() -- as Keras takes classes
    end
  end
  if M.is_own(identifier, self.noun) and classes.is_class(identifier) then
    return identifier() -- a class derived from the base
  elseif identifier == nil or is_callable(identifier) then
    return identifier
  elseif text.is_plain(identifier) and identifier.class_name ~= nil then
    local config = identifier.config or {}
    local constructor = self:named(identifier.class_name)
    return next(config) == nil and constructor() or constructor(config)
  elseif type(identifier) == "string" then
    return self:named(identifier)()
  end
  errors.raise("TypeError", ("%ss.get: expected a name, a function or an "
    .. "object of tf.keras.%ss, got %s"):format(self.noun, self.noun,
    text.describe(identifier)))
end

function Family:named(name)
  local constructor = type(name) == "string"
    and (self.classes[name] or self.classes[name:lower()])
  if not constructor then
    errors.raise("ValueError", ("unknown %s %s"):format(self.noun,
      text.name(name)), type(name) == "string"
      and text.suggestion(name, self.names, self.noun) or nil)
  end
  return constructor
end

--- get, serialize and deserialize of a module of classes with state and of
--- functions: losses, metrics.
---@param module table
---@param kind table  { noun = "loss", plural = "losses", classes = by name,
---  functions = by name, is_object = is it one?, names = list for hints }
function M.publish(module, kind)
  local noun, plural = kind.noun, kind.plural

  --- An object for the name of a class, the function of a function's name, or
  --- the object or function itself. nil gives nil.
  --- Errors: ValueError naming the nearest one, TypeError.
  --- Source: tf.keras.losses.get, tf.keras.metrics.get
  function module.get(identifier)
    text.refuse_class(plural .. ".get", "the " .. noun, identifier)
    if identifier == nil or is_callable(identifier)
      or kind.is_object(identifier) then
      return identifier
    elseif type(identifier) == "string" then
      if kind.classes[identifier] ~= nil then
        return kind.classes[identifier]()
      elseif kind.functions[identifier] ~= nil then
        return kind.functions[identifier]
      end
      errors.raise("ValueError", ("unknown %s %s"):format(noun,
        text.quote(identifier)), text.suggestion(identifier, kind.names(),
        noun))
    elseif type(identifier) == "table" and identifier.class_name ~= nil then
      return module.deserialize(identifier)
    end
    errors.raise("TypeError", ("a %s is a name, a function or an object of "
      .. "tf.keras.%s, got %s"):format(noun, plural, text.describe(identifier)))
  end

  --- { class_name = ..., config = ... } of an object.
  function module.serialize(object)
    if not kind.is_object(object) then
      errors.raise("TypeError", ("%s.serialize: a %s object expected, got %s")
        :format(plural, noun, text.describe(object)))
    end
    return { class_name = object.__name, config = object:get_config() }
  end

  --- An object from what serialize gives, with fresh state.
  --- Errors: TypeError; ValueError for an unknown class.
  function module.deserialize(config)
    if not text.is_plain(config) or config.class_name == nil then
      errors.raise("TypeError", ("%s.deserialize: expected { class_name = , "
        .. "config = }, got %s"):format(plural, text.describe(config)))
    end
    local class = kind.classes[config.class_name]
    if class == nil then
      errors.raise("ValueError", ("%s.deserialize: unknown class %s"):format(
        plural, text.quote(tostring(config.class_name))))
    end
    return class(config.config or {})
  end

  options.functions(module, plural .. ".", {
    get = "identifier:nest=nil", serialize = "object:table=nil",
    deserialize = "config:nest=nil",
  })
end

return M
