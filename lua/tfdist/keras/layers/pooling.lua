--- Max, average and global pooling over one to three axes.
--- Source: tf.keras.layers, pooling layers
local define = require "tfdist.keras.layers.define"
local lists = require "tfdist.base.lists"
local support = require "tfdist.keras.layers.support"
local tf = require "tfdist.core.functions"

local M = {}

local axes, copy = support.axes, lists.copy

local function define_pool(kind, op, spatial)
  local name = ("%sPooling%dD"):format(kind, spatial)
  --- Shapes: {batch, spatial..., channels}; strides default to pool_size.
  M[name] = define.layer(name, "pool_size=2 strides=nil padding='valid' "
    .. "data_format=nil", {
    setup = function(self, config)
      local own = self._own
      own.pool_size = support.tuple(self, "pool_size", config.pool_size,
        spatial)
      own.strides = config.strides == nil and own.pool_size
        or support.tuple(self, "strides", config.strides, spatial)
      own.padding = support.padding(self, config.padding)
      own.format, own.op_format = support.format(self, config.data_format,
        spatial)
      self.input_spec = { ndim = spatial + 2 }
    end,
    call = function(self, x)
      local own = self._own
      return tf.nn[op](x, own.pool_size, own.strides, own.padding:upper(),
        own.op_format)
    end,
    compute_output_shape = function(self, shape)
      local own = self._own
      local out = copy(shape)
      local first = axes(own.format, spatial)
      for i = 1, spatial do
        out[first + i - 1] = support.output_length(shape[first + i - 1],
          own.pool_size[i], own.strides[i], own.padding)
      end
      return out
    end,
  })
  M[(kind == "Max" and "MaxPool%dD" or "AvgPool%dD"):format(spatial)] = M[name]
end

-- Mean over the steps that count; `axis` is theirs.
local function masked_mean(x, mask, axis, keepdims)
  mask = tf.cast(tf.expand_dims(mask, axis == 1 and 2 or 1), "bool")
  local given = { axis = axis, keepdims = keepdims }
  return tf.reduce_sum(tf.where(mask, x, tf.zeros_like(x)), given)
    / tf.reduce_sum(tf.cast(mask, x.dtype), given)
end

local function define_global(kind, op, spatial)
  local name = ("Global%sPooling%dD"):format(kind, spatial)
  local masked = kind == "Average" and spatial == 1
  --- Shapes: {batch, spatial..., channels} to {batch, channels}; with keepdims
  ---   spatial sizes are 1.
  M[name] = define.layer(name, "data_format=nil keepdims=false", {
    supports_masking = masked,
    setup = function(self, config)
      self._own.format = support.format(self, config.data_format, spatial)
      self.input_spec = { ndim = spatial + 2 }
    end,
    call = function(self, x, options)
      local own = self._own
      local first = axes(own.format, spatial)
      if masked and options.mask ~= nil then
        return masked_mean(x, options.mask, first - 1, own.config.keepdims)
      end
      local list = {}
      for i = 1, spatial do
        list[i] = first + i - 2
      end
      return tf[op](x, list, own.config.keepdims)
    end,
    compute_mask = function()
      return nil
    end,
    compute_output_shape = function(self, shape)
      local own = self._own
      local first, at = axes(own.format, spatial)
      if not own.config.keepdims then
        return { shape[1], shape[at] }
      end
      local out = copy(shape)
      for i = 1, spatial do
        out[first + i - 1] = 1
      end
      return out
    end,
  })
  M[(kind == "Max" and "GlobalMaxPool%dD" or "GlobalAvgPool%dD")
    :format(spatial)] = M[name]
end

for spatial = 1, 3 do
  define_pool("Max", "max_pool", spatial)
  define_pool("Average", "avg_pool", spatial)
  define_global("Max", "reduce_max", spatial)
  define_global("Average", "reduce_mean", spatial)
end

return M
