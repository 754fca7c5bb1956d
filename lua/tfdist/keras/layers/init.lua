--- tf.keras.layers: all layer classes, and getting one by its configuration.
--- Source: tf.keras.layers
local base = require "tfdist.keras.layers.base"
local define = require "tfdist.keras.layers.define"
local call = require "tfdist.keras.layers.call"
local core = require "tfdist.keras.layers.core"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local loading = require "tfdist.base.loading"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

-- Parts of the class Layer.
require "tfdist.keras.layers.configuration"
require "tfdist.keras.layers.symbolic"
require "tfdist.keras.layers.properties"

--- Class to derive layers from. init is the constructor: it calls the one it
--- inherits with name, dtype and so on, before it sets fields; build makes the
--- weights once the shape of the inputs is known, call computes.
---
---   local Scale = tf.keras.layers.Layer:extend "Scale"
---   function Scale:init(start, options)        -- Scale(2, { name = "twice" })
---     tf.keras.layers.Layer.init(self, options)
---     self.start = start
---   end
---   function Scale:build(input_shape)
---     self.factor = self:add_weight { name = "factor", shape = { 1 },
---       initializer = tf.keras.initializers.Constant(self.start) }
---   end
---   function Scale:call(x) return x * self.factor end
--- Source: tf.keras.layers.Layer
M.Layer = base.Layer
M.is_layer = options.wrap("layers.is_layer", "x:table=nil", base.is_layer)

--- The mask a layer gave to a tensor, nil if none.
M.mask_of = options.wrap("layers.mask_of", "x:table=nil", call.mask_of)

local PARTS = {
  "core", "activation", "convolution", "pooling", "normalization",
  "regularization", "merge", "attention", "recurrent", "wrappers", "shaping",
  "preprocessing", "augmentation", "einsum",
}

for _, part in ipairs(PARTS) do
  local classes = require("tfdist.keras.layers." .. part)
  for name, class in pairs(classes) do
    if name:find "^%u" then
      M[name] = class
    end
  end
  for name, fn in pairs(classes.functions or {}) do
    M[name] = fn
  end
end

--- Names that Keras had before.
M.experimental = {
  SyncBatchNormalization = M.SyncBatchNormalization, preprocessing = M,
}

--- Source: tf.keras.Input
M.Input = options.wrap("Input", "shape=nil batch_size:integer=nil name=nil "
  .. "dtype=nil sparse=nil tensor=nil ragged=nil batch_shape=nil", core.input)

--- What inputs of a layer must look like, for `self.input_spec`.
--- Source: tf.keras.layers.InputSpec
M.InputSpec = options.wrap("InputSpec", "dtype:string=nil shape:list=nil "
  .. "ndim:integer=nil max_ndim:integer=nil min_ndim:integer=nil "
  .. "axes:table=nil", function(dtype, shape, ndim, max_ndim, min_ndim, axes)
  if shape ~= nil then
    shape = convert.integers(shape, "InputSpec", "shape")
    ndim, axes = #shape, {}
    for i = 1, #shape do
      axes[i - 1] = shape[i] >= 0 and shape[i] or nil
    end
  end
  return { dtype = dtype, ndim = ndim, max_ndim = max_ndim,
    min_ndim = min_ndim, axes = axes }
end)

M.deserialize, M.custom = define.deserialize, define.custom

--- { class_name = ..., config = {...} }. Source: tf.keras.layers.serialize
function M.serialize(layer)
  return { class_name = getmetatable(layer).__name,
    config = layer:get_config() }
end

options.functions(M, "layers.", {
  deserialize = "config:nest=nil custom_objects:table=nil",
  serialize = "layer:layer",
})
M.get = M.deserialize

setmetatable(M, {
  __index = function(_, name)
    if type(name) ~= "string" then
      return nil
    end
    loading.load("tfdist.base.missing").check("keras.layers", name)
    local near = text.nearest(name, text.names(M))
    errors.raise("KeyError", "tf.keras.layers has no " .. text.quote(name),
      near and "did you mean " .. near .. "?" or nil)
  end,
  __names = function()
    return text.names(M)
  end,
})

return M
