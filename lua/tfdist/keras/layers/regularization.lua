--- Dropout and noise: layers that do something in training only.
local call = require "tfdist.keras.layers.call"
local define = require "tfdist.keras.layers.define"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local regularizers = require "tfdist.keras.regularizers"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

-- A structure comes back as it is where there is nothing to do.
local any_structure = call.any_structure

-- The one tensor that noise is added to.
local function one_tensor(self, x)
  if nest.is_nested(x) then
    errors.raise("TypeError", self.name .. ": expects one tensor in training, "
      .. "got " .. (#x > 0 and "a list of " .. #x or "a table"))
  end
  return x
end

local function check_rate(self, config)
  support.rate(self, "rate", config.rate)
end

-- The shape of what is drawn for x, nil for its own: noise_shape, in which -1 is
-- the input's size.
local function noise_shape(self, x)
  if self.noise_shape == nil then
    return nil
  end
  local what = getmetatable(self).class.__name
  local dims = convert.integers(self.noise_shape, what, "noise_shape")
  local shape, drawn = x.shape, {}
  local fits = #dims <= #shape
  for i = 1, fits and #dims or 0 do
    local size = shape[#shape - #dims + i]
    drawn[i] = dims[i] == -1 and size or dims[i]
    fits = fits and (drawn[i] == 1 or drawn[i] == size)
  end
  if not fits then
    errors.raise("ValueError", ("%s: noise_shape is %s, the input has shape %s; "
      .. "each size must be 1 or the input's"):format(what, text.shape(dims),
      text.shape(shape)), "an unknown size is written -1")
  end
  return drawn
end

local function layer(name, signature, fields)
  M[name] = define.elementwise(name, signature, fields)
end

--- Elements become 0 with probability rate, others grow by 1 / (1 - rate).
--- Source: tf.keras.layers.Dropout
layer("Dropout", "rate:f noise_shape=nil seed=nil", {
  check_inputs = any_structure,
  setup = check_rate,
  call = function(self, x, options)
    if not options.training or self.rate == 0 then
      return x
    end
    x = call.one_tensor(self, x)
    return tf.nn.dropout(x, self.rate, noise_shape(self, x), self.seed)
  end,
})

for spatial = 1, 3 do
  --- Dropout of whole channels.
  --- Source: tf.keras.layers.SpatialDropout1D .. 3D
  layer(("SpatialDropout%dD"):format(spatial), spatial == 1
    and "rate:f seed=nil data_format=nil"
    or "rate:f data_format=nil seed=nil", {
    setup = function(self, config)
      check_rate(self, config)
      self._own.format = support.format(self, config.data_format, spatial)
      self.input_spec = { ndim = spatial + 2 }
    end,
    call = function(self, x, options)
      if not options.training or self.rate == 0 then
        return x
      end
      local dims = x.shape
      local first = support.axes(self._own.format, spatial)
      for i = first, first + spatial - 1 do
        dims[i] = 1
      end
      return tf.nn.dropout(x, self.rate, dims, self.seed)
    end,
  })
end

--- x + normal numbers. Source: tf.keras.layers.GaussianNoise
layer("GaussianNoise", "stddev:f seed=nil", {
  check_inputs = any_structure,
  setup = function(_, config)
    if type(config.stddev) ~= "number" or config.stddev < 0 then
      errors.raise("ValueError", "GaussianNoise: stddev must be a number from "
        .. "0, got " .. text.describe(config.stddev))
    end
  end,
  call = function(self, x, options)
    if not options.training then
      return x
    end
    x = one_tensor(self, x)
    return x + tf.random.normal(x.shape, 0, self.stddev, x.dtype, self.seed)
  end,
})

--- x times numbers around 1 of variance rate / (1 - rate).
--- Source: tf.keras.layers.GaussianDropout
layer("GaussianDropout", "rate:f seed=nil", {
  check_inputs = any_structure,
  setup = check_rate,
  call = function(self, x, options)
    if not options.training or self.rate == 0 then
      return x
    end
    x = one_tensor(self, x)
    local stddev = math.sqrt(self.rate / (1 - self.rate))
    return x * tf.random.normal(x.shape, 1, stddev, x.dtype, self.seed)
  end,
})

--- Dropout to the lowest value of selu that keeps mean and variance.
--- Source: tf.keras.layers.AlphaDropout
layer("AlphaDropout", "rate:f noise_shape=nil seed=nil", {
  check_inputs = any_structure,
  setup = check_rate,
  call = function(self, x, options)
    local rate = self.rate
    if not options.training or rate == 0 then
      return x
    end
    x = one_tensor(self, x)
    local low = -1.7580993408473766
    local keep = tf.cast(tf.greater_equal(tf.random.uniform(
      noise_shape(self, x) or x.shape, 0, 1, "float32", self.seed), rate),
      x.dtype)
    local a = ((1 - rate) * (1 + rate * low ^ 2)) ^ -0.5
    return (x * keep + (1 - keep) * low) * a + (-a * low * rate)
  end,
})

--- The inputs as they are, with a penalty of l1 |x| + l2 x^2 on the loss.
--- Source: tf.keras.layers.ActivityRegularization
layer("ActivityRegularization", "l1=0 l2=0", {
  check_inputs = any_structure,
  setup = function(self, config)
    self._own.activity_regularizer = regularizers.L1L2 {
      l1 = config.l1, l2 = config.l2 }
  end,
  call = function(_, x)
    return x
  end,
})

return M
