--- Defining the library's own layers: arguments by the calling rule, kept as
--- the configuration.
local base = require "tfdist.keras.layers.base"
local call = require "tfdist.keras.layers.call"
local classes = require "tfdist.base.classes"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local state = require "tfdist.core.state"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"

local M = {}

-- name -> class of every layer defined here
M.classes = {}

local function with_common(signature)
  local sig = options.signature("", signature)
  local parts = { signature }
  for word in base.COMMON:gmatch "%S+" do
    if sig.index[word:match "^[%w_]+"] == nil then
      parts[#parts + 1] = word
    end
  end
  return table.concat(parts, " "), sig
end

-- What says how a class is made is no field of it.
local NO_FIELDS = { any_inputs = true, check_inputs = true, super = true }

--- Make a layer class. `fields` are its methods: setup(self, config) completes
--- the configuration after construction, then build, call,
--- compute_output_shape. `fields.super` is the class it extends. What is called
--- gets one tensor, unless `fields.any_inputs` is true or
--- `fields.check_inputs(self, inputs)` returns what it takes them as; the class
--- has neither field.
---@param name string
---@param signature string
---@param fields table
---@return table class
function M.layer(name, signature, fields)
  local super = fields.super or base.Layer
  local class = super:extend(name)
  classes.guard(class, base.is_layer, "layer")
  local full, own_sig = with_common(signature)
  local sig = options.signature(name, full)
  class.signature = sig
  class.is_leaf = true
  for key, value in pairs(fields) do
    if not NO_FIELDS[key] then
      class[key] = value
    end
  end
  if not fields.any_inputs then
    call.set_input_check(class, fields.check_inputs
      or call.input_check(super) or call.one_tensor)
  end
  class.init = options.method(name, full, function(self, ...)
    local given, values = {}, { ... }
    local config = rawget(self, "_own").config
    for i = 1, sig.n do
      local key = sig.names[i]
      given[key] = values[i]
      if own_sig.index[key] ~= nil then
        config[key] = values[i]
      end
    end
    if own_sig.index.input_dim ~= nil then
      given.input_dim = nil -- another meaning here
    end
    base.apply_common(self, given)
    if self.setup ~= nil then
      self:setup(config)
    end
  end, base.is_layer, "layer")
  M.classes[name] = class
  return class
end

--- The same for a layer whose outputs have the shape and mask of its inputs.
function M.elementwise(name, signature, fields)
  fields.supports_masking = true
  fields.compute_output_shape = support.same_shape
  return M.layer(name, signature, fields)
end

-- By configuration -----------------------------------------------------------

-- Classes of the user's own that may stand in a configuration.
M.custom = {}

local function class_named(name, custom)
  local class = custom and custom[name] or M.classes[name]
    or M.custom[name]
  if class == nil then
    errors.raise("ValueError", "unknown layer class " .. text.name(name),
      type(name) == "string"
      and text.suggestion(name, text.names(M.classes), "class")
      or "tf.keras.utils.register_keras_serializable() makes classes of your "
      .. "own known")
  end
  return class
end

--- Call fn(...); the classes `own` may stand in configurations meanwhile.
---@param own table  name -> class
function M.with_custom(own, fn, ...)
  local before = M.custom
  M.custom = setmetatable(own, { __index = before })
  return state.protect(function()
    M.custom = before
  end, fn, ...)
end

--- A layer from { class_name = ..., config = {...} }; classes that are not the
--- library's come from custom_objects or
--- tf.keras.utils.register_keras_serializable.
--- Errors: ValueError for an unknown class.
--- Source: tf.keras.layers.deserialize
---@param config table
---@param custom? table  name -> class
function M.deserialize(config, custom)
  if base.is_layer(config) then
    return config
  elseif not text.is_plain(config) or config.class_name == nil then
    errors.raise("TypeError", "layers.deserialize: expected { class_name = , "
      .. "config = }, got " .. text.describe(config))
  end
  return class_named(config.class_name, custom):from_config(
    config.config or {}, custom)
end

--- The layer that a wrapper is given, or one of its configuration.
--- Errors: TypeError, ValueError for an unknown class.
---@param what string  who wants it
---@param name string  its argument
---@param given any
function M.inner(what, name, given)
  if not base.is_layer(given)
    and not (text.is_plain(given) and given.class_name ~= nil) then
    text.refuse_class(what, name, given)
    errors.raise("TypeError", ("%s: %s must be a layer, got %s"):format(what,
      name, text.describe(given)))
  end
  return M.deserialize(given)
end

return M
