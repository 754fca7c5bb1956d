--- ZeroPadding, Cropping and UpSampling over one to three axes.
--- Source: tf.keras.layers, reshaping layers
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local axes, copy = support.axes, lists.copy

-- { {before, after}, ... } for n axes from a number, a list of n numbers or a
-- list of n pairs (for one axis: one pair).
local function amounts(self, name, x, n)
  local what = getmetatable(self).__name
  local out = {}
  if n == 1 and type(x) == "table" and type(x[1]) == "number" then
    x = { x }
  end
  if text.is_plain(x) and #x ~= n then
    errors.raise("ValueError", ("%s: %s lists %d entries for %d axes"):format(
      what, name, #x, n))
  end
  for i = 1, n do
    local entry = type(x) == "number" and x or (text.is_plain(x) and x[i])
    local pair = convert.integers(entry or {}, what, name)
    if type(entry) == "number" then
      pair = { entry, entry }
    end
    if #pair ~= 2 or pair[1] < 0 or pair[2] < 0 then
      errors.raise("ValueError", ("%s: %s must be a number from 0, or for each "
        .. "of %d axes a number or a pair, got %s"):format(what, name, n,
        type(x) == "table" and text.is_plain(x) and #x == n
        and text.describe(entry) or text.describe(x)))
    end
    out[i] = pair
  end
  return out
end

for spatial = 1, 3 do
  local function setup(name)
    return function(self, config)
      local own = self._own
      own.amounts = amounts(self, name, config[name], spatial)
      own.format = support.format(self, config.data_format, spatial)
      self.input_spec = { ndim = spatial + 2 }
    end
  end

  -- Sizes plus (sign 1) or minus the amounts.
  local function shaped(sign)
    return function(self, shape)
      local out = copy(shape)
      local first = axes(self._own.format, spatial)
      for i, pair in ipairs(self._own.amounts) do
        local at = first + i - 1
        if out[at] >= 0 then
          out[at] = out[at] + sign * (pair[1] + pair[2])
          if out[at] < 0 then
            errors.raise("ValueError", ("%s: cannot cut %d and %d off axis %d "
              .. "of an input %s"):format(self.name, pair[1], pair[2], at - 1,
              text.shape(shape)))
          end
        end
      end
      return out
    end
  end

  --- Zeros around the spatial axes.
  local name = ("ZeroPadding%dD"):format(spatial)
  M[name] = define.layer(name, "padding=1 data_format=nil", {
    keeps_dtype = true,
    setup = setup "padding",
    call = function(self, x)
      local list = {}
      for i = 1, spatial + 2 do
        list[i] = { 0, 0 }
      end
      local first = axes(self._own.format, spatial)
      for i, pair in ipairs(self._own.amounts) do
        list[first + i - 1] = pair
      end
      return tf.pad(x, list)
    end,
    compute_output_shape = shaped(1),
  })

  --- Cut off the borders of the spatial axes.
  local cropping = ("Cropping%dD"):format(spatial)
  M[cropping] = define.layer(cropping, "cropping=" .. (spatial == 2 and "0"
    or "1") .. " data_format=nil", {
    keeps_dtype = true,
    setup = setup "cropping",
    call = function(self, x)
      local size = self:compute_output_shape(x.shape)
      local begin = {}
      for i = 1, #size do
        begin[i] = 0
      end
      local first = axes(self._own.format, spatial)
      for i, pair in ipairs(self._own.amounts) do
        begin[first + i - 1] = pair[1]
      end
      return tf.slice(x, begin, size)
    end,
    compute_output_shape = shaped(-1),
  })

  --- Every row and column `size` times; images by interpolation, too.
  local upsampling = ("UpSampling%dD"):format(spatial)
  M[upsampling] = define.layer(upsampling, "size=2 data_format=nil"
    .. (spatial == 2 and " interpolation='nearest'" or ""), {
    keeps_dtype = true,
    setup = function(self, config)
      local own = self._own
      own.size = support.tuple(self, "size", config.size, spatial)
      own.format = support.format(self, config.data_format, spatial)
      if config.interpolation ~= nil then
        own.interpolation = options.choice(upsampling, "interpolation",
          config.interpolation, { "nearest", "bilinear", "bicubic", "area" })
      end
      self.input_spec = { ndim = spatial + 2 }
    end,
    call = function(self, x)
      local own = self._own
      local first = axes(own.format, spatial)
      if own.interpolation ~= nil and own.interpolation ~= "nearest" then
        local nchw = own.format == "channels_first"
        local y = nchw and tf.transpose(x, { 0, 2, 3, 1 }) or x
        local dims = y.shape
        y = tf.cast(tf.image.resize(y, { dims[2] * own.size[1],
          dims[3] * own.size[2] }, own.interpolation), x.dtype)
        return nchw and tf.transpose(y, { 0, 3, 1, 2 }) or y
      end
      for i = 1, spatial do
        if own.size[i] > 1 then
          x = tf.repeat_(x, own.size[i], first + i - 2)
        end
      end
      return x
    end,
    compute_output_shape = function(self, shape)
      local out = copy(shape)
      local first = axes(self._own.format, spatial)
      for i = 1, spatial do
        local at = first + i - 1
        out[at] = out[at] >= 0 and out[at] * self._own.size[i] or -1
      end
      return out
    end,
  })
end

return M
