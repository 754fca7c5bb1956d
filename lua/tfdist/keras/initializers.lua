--- tf.keras.initializers: first values of weights.
---
--- An initializer is called with a shape (and a dtype) and returns a tensor.
--- With a seed it gives the same numbers at every call, without one it draws
--- from the global state (tf.random.set_seed).
--- Source: tf.keras.initializers
local backend = require "tfdist.keras.backend"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local objects = require "tfdist.keras.objects"
local options = require "tfdist.base.options"
local random_seed = require "tfdist.core.random_seed"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local family = objects.family("initializer", M)

-- Standard deviation of a standard normal cut off at two.
local TRUNCATED = 0.87962566103423978

local function number(what, name, x)
  if type(x) ~= "number" then
    errors.raise("TypeError", ("%s: %s must be a number, got %s"):format(what,
      name, text.describe(x)))
  end
  return x
end

local function numbers(...)
  local names = { ... }
  return function(self)
    local what = getmetatable(self).__name
    for i = 1, #names do
      number(what, names[i], self[names[i]])
    end
    if self.seed ~= nil then
      random_seed.check(what, self.seed)
    end
  end
end

-- The call of a class: fn(self, dims, dtype).
local function over_shape(name, fn)
  return function(self, shape, dtype)
    if type(dtype) == "table" then
      options.check_keys(name, dtype, { "dtype" })
      dtype = dtype.dtype
    end
    if shape == nil then
      errors.raise("TypeError", name .. ": missing argument shape")
    end
    dtype = convert.dtype(dtype or backend.floatx(), name)
    return fn(self, convert.integers(shape, name, "shape"), dtype)
  end
end

-- Those of the stateless functions.
local function pair_of(self)
  return { random_seed.check(getmetatable(self).__name, self.seed), 0 }
end

local function normal(op, self, dims, mean, stddev, dtype)
  if self.seed == nil then
    return tf.random[op](dims, mean, stddev, dtype)
  end
  return tf.random["stateless_" .. op](dims, pair_of(self), mean, stddev,
    dtype)
end

local function uniform(self, dims, low, high, dtype)
  if self.seed == nil then
    return tf.random.uniform(dims, low, high, dtype)
  end
  return tf.random.stateless_uniform(dims, pair_of(self), low, high, dtype)
end

local function define(name, aliases, signature, setup, fn)
  family:define(name, aliases, signature, {
    setup = setup, call = over_shape(name, fn),
  })
end

define("Zeros", "zeros", "", nil, function(_, dims, dtype)
  return tf.zeros(dims, dtype)
end)

define("Ones", "ones", "", nil, function(_, dims, dtype)
  return tf.ones(dims, dtype)
end)

--- A number everywhere, or a list or tensor of the shape.
define("Constant", "constant", "value=0", nil, function(self, dims, dtype)
  if type(self.value) == "number" then
    return tf.fill(dims, tf.constant(self.value, dtype))
  end
  local t = tf.cast(tf.convert_to_tensor(self.value), dtype)
  if #t.shape == 0 then
    return tf.fill(dims, t)
  end
  return tf.reshape(t, dims)
end)

define("RandomNormal", "random_normal normal",
  "mean=0 stddev=0.05 seed=nil", numbers("mean", "stddev"),
  function(self, dims, dtype)
    return normal("normal", self, dims, self.mean, self.stddev, dtype)
  end)

define("TruncatedNormal", "truncated_normal",
  "mean=0 stddev=0.05 seed=nil", numbers("mean", "stddev"),
  function(self, dims, dtype)
    return normal("truncated_normal", self, dims, self.mean, self.stddev,
      dtype)
  end)

define("RandomUniform", "random_uniform uniform",
  "minval=-0.05 maxval=0.05 seed=nil", numbers("minval", "maxval"),
  function(self, dims, dtype)
    return uniform(self, dims, self.minval, self.maxval, dtype)
  end)

--- Inputs and outputs of one unit of weights of this shape.
--- Source: keras/initializers/initializers_v2.py, _compute_fans
---@param dims integer[]
---@return integer fan_in, integer fan_out
function M.compute_fans(dims)
  dims = convert.integers(dims, "initializers.compute_fans", "shape")
  local rank = #dims
  if rank == 0 then
    return 1, 1
  elseif rank == 1 then
    return dims[1], dims[1]
  end
  local field = lists.product(dims, 1, rank - 2)
  return dims[rank - 1] * field, dims[rank] * field
end

options.functions(M, "initializers.", { compute_fans = "shape" })

local MODES = { "fan_in", "fan_out", "fan_avg" }
local DISTRIBUTIONS = {
  "truncated_normal", "untruncated_normal", "normal", "uniform",
}

local function scaled(self, scale, mode, distribution, dims, dtype)
  local fan_in, fan_out = M.compute_fans(dims)
  local fan = mode == "fan_in" and fan_in or mode == "fan_out" and fan_out
    or (fan_in + fan_out) / 2
  scale = scale / math.max(1, fan)
  if distribution == "uniform" then
    local limit = math.sqrt(3 * scale)
    return uniform(self, dims, -limit, limit, dtype)
  elseif distribution == "untruncated_normal" then
    return normal("normal", self, dims, 0, math.sqrt(scale), dtype)
  end
  return normal("truncated_normal", self, dims, 0,
    math.sqrt(scale) / TRUNCATED, dtype)
end

define("VarianceScaling", "variance_scaling",
  "scale=1 mode=fan_in distribution=truncated_normal seed=nil",
  function(self)
    number("VarianceScaling", "scale", self.scale)
    if self.scale <= 0 then
      errors.raise("ValueError", "VarianceScaling: scale must be larger than "
        .. "0, got " .. text.number(self.scale))
    end
    self.mode = options.choice("VarianceScaling", "mode", self.mode, MODES)
    self.distribution = options.choice("VarianceScaling", "distribution",
      self.distribution, DISTRIBUTIONS)
  end,
  function(self, dims, dtype)
    return scaled(self, self.scale, self.mode, self.distribution, dims, dtype)
  end)

local SCALED = {
  { "GlorotNormal", "glorot_normal xavier_normal", 1, "fan_avg",
    "truncated_normal" },
  { "GlorotUniform", "glorot_uniform xavier_uniform", 1, "fan_avg",
    "uniform" },
  { "HeNormal", "he_normal", 2, "fan_in", "truncated_normal" },
  { "HeUniform", "he_uniform", 2, "fan_in", "uniform" },
  { "LecunNormal", "lecun_normal", 1, "fan_in", "truncated_normal" },
  { "LecunUniform", "lecun_uniform", 1, "fan_in", "uniform" },
}

for _, entry in ipairs(SCALED) do
  define(entry[1], entry[2], "seed=nil", numbers(),
    function(self, dims, dtype)
      return scaled(self, entry[3], entry[4], entry[5], dims, dtype)
    end)
end

--- Rows or columns of length one at right angles; of longer shapes all axes but
--- the last make the rows.
define("Orthogonal", "orthogonal", "gain=1 seed=nil", numbers("gain"),
  function(self, dims, dtype)
    local rank = #dims
    if rank < 2 then
      errors.raise("ValueError", ("Orthogonal: shape %s has rank %d; at least "
        .. "two axes are needed"):format(text.shape(dims), rank))
    end
    local rows, columns = lists.product(dims, 1, rank - 1), dims[rank]
    local tall = { math.max(rows, columns), math.min(rows, columns) }
    -- The decomposition has no half precision.
    local wide = dtype == "float64" and dtype or "float32"
    local q, r = tf.linalg.qr(normal("normal", self, tall, 0, 1, wide))
    q = q * tf.sign(tf.linalg.diag_part(r))
    if rows < columns then
      q = tf.linalg.matrix_transpose(q)
    end
    return tf.cast(tf.reshape(q, dims) * self.gain, dtype)
  end)

--- gain on the diagonal of a matrix, 0 elsewhere.
define("Identity", "identity", "gain=1", numbers("gain"),
  function(self, dims, dtype)
    if #dims ~= 2 then
      errors.raise("ValueError", ("Identity: shape %s has rank %d; only "
        .. "matrices have a diagonal"):format(text.shape(dims), #dims))
    end
    return tf.eye(dims[1], dims[2], { dtype = dtype }) * self.gain
  end)

return M
