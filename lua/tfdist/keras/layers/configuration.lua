--- Layers as tables of plain values, and from such tables.
local base = require "tfdist.keras.layers.base"
local errors = require "tfdist.base.errors"
local objects = require "tfdist.keras.objects"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

local getmetatable, rawget, type = getmetatable, rawget, type
local methods = {}

local function serialize(value)
  if text.is_plain(value) then
    local out = {}
    for key, x in pairs(value) do
      out[key] = serialize(x)
    end
    return out
  end
  return objects.serialize(value)
end

M.serialize_value = serialize

--- Everything a new layer like this one needs, without weights.
--- Source: tf.keras.layers.Layer.get_config
function methods:get_config()
  local own = rawget(self, "_own")
  local config = {
    name = self.name, trainable = own.trainable, dtype = own.policy.name,
    batch_input_shape = own.batch_input_shape,
    activity_regularizer = objects.serialize(own.activity_regularizer),
  }
  for key, value in pairs(own.config) do
    config[key] = serialize(value)
  end
  return config
end

--- The class that from_config was called on, itself or by one of its objects.
--- Errors: TypeError when it was called with a dot, or without a config.
---@param self any
---@param what string    "Layer", for messages
---@param config any
function M.class_of(self, what, config)
  if base.is_layer(self) then
    self = getmetatable(self).class
  end
  local meta = type(self) == "table" and getmetatable(self) or nil
  if type(meta) ~= "table" or meta.__call == nil then
    options.wrong_self(what .. ".from_config", "class", self, { "config" })
  elseif type(config) ~= "table" then
    errors.raise("TypeError", ("%s.from_config: config must be a table, got %s")
      :format(self.__name or what, text.describe(config)),
      "get_config() gives it")
  end
  return self
end

--- A layer of this class from get_config's table: `Dense:from_config(config)`.
--- Errors: ValueError for an unknown key.
--- Source: tf.keras.layers.Layer.from_config
function methods:from_config(config)
  local class = M.class_of(self, "Layer", config)
  local sig = class.signature
  if sig == nil then
    return class(config)
  end
  options.check_keys(class.__name, config, sig.names)
  local args, n, rest = {}, 0, {}
  for key, value in pairs(config) do
    rest[key] = value
  end
  for i = 1, sig.n do
    if sig.required[i] then
      n = n + 1
      args[n], rest[sig.names[i]] = rest[sig.names[i]], nil
    end
  end
  args[n + 1] = rest
  return class((rawget(table, "unpack") or rawget(_G, "unpack"))(args, 1,
    n + 1))
end

options.methods(methods, "Layer.", { get_config = "" }, base.is_layer, "layer")
options.methods(methods, "Layer.", {
  from_config = "config:nest=nil custom_objects:table=nil" })
base.extend(methods)

return M
