--- BatchNormalization, SyncBatchNormalization, LayerNormalization,
--- GroupNormalization, UnitNormalization.
--- Source: tf.keras.layers, normalization layers
local contexts = require "tfdist.distribute.contexts"
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

-- What Keras adds to the number of steps that count.
local EPSILON = 1e-7
local HALF = { float16 = true, bfloat16 = true }

local same_shape = support.same_shape

-- Statistics and scales of half-precision layers are kept in float32.
local function wide(dtype)
  return HALF[dtype] and "float32" or dtype
end

-- Axes counted from 0, sorted.
local function resolve_axes(self, axis, rank)
  local list = convert.integers(axis, self.name, "axis")
  local out = {}
  for i = 1, #list do
    local a = list[i] < 0 and list[i] + rank or list[i]
    if a < 0 or a >= rank then
      errors.raise("ValueError", ("%s: axis %d is outside an input of rank %d; "
        .. "axes count from 0, -1 is the last"):format(self.name, list[i],
        rank))
    end
    out[i] = a
  end
  table.sort(out)
  return out
end

local function sizes_of(self, shape, axes)
  local dims, spec = {}, {}
  for i, axis in ipairs(axes) do
    local n = shape[axis + 1]
    if n < 0 then
      support.ask_for_size(("%s: axis %d of the input %s is not known")
        :format(self.name, axis, text.shape(shape)))
    end
    dims[i], spec[axis] = n, n
  end
  return dims, spec
end

local function add_scales(self, dims, dtype)
  local config = self._own.config
  for _, entry in ipairs { { "gamma", config.scale }, { "beta",
    config.center } } do
    local name = entry[1]
    if entry[2] then
      self[name] = self:add_weight {
        name = name, shape = dims, dtype = dtype, autocast = false,
        initializer = config[name .. "_initializer"],
        regularizer = config[name .. "_regularizer"],
        constraint = config[name .. "_constraint"],
      }
    end
  end
end

local SCALES = "epsilon=0.001 center=true scale=true "
  .. "beta_initializer='zeros' gamma_initializer='ones' "
local SCALE_RULES = "beta_regularizer=nil gamma_regularizer=nil "
  .. "beta_constraint=nil gamma_constraint=nil"

-- Batch normalization ---------------------------------------------------------

local Batch = {}

function Batch.setup(self, config)
  for name, most in pairs { momentum = 1, epsilon = math.huge } do
    local value = config[name]
    if type(value) ~= "number" or not (value >= 0 and value <= most) then
      errors.raise("ValueError", ("%s: %s must be a number %s, got %s"):format(
        getmetatable(self).__name, name, most == 1 and "from 0 to 1"
        or "of 0 or more", text.describe(value)))
    end
  end
  for _, name in ipairs { "renorm", "virtual_batch_size", "adjustment" } do
    if config[name] then
      errors.raise("NotImplementedError", ("%s: %s is not implemented"):format(
        getmetatable(self).__name, name))
    end
  end
end

function Batch.build(self, shape)
  local own, config = self._own, self._own.config
  local axes = resolve_axes(self, config.axis, #shape)
  local dims, spec = sizes_of(self, shape, axes)
  local dtype = wide(own.dtype)
  own.axes = axes
  -- The op takes the channels as the last axis or as axis 1.
  own.op_format = #axes == 1 and (axes[1] == #shape - 1 and "NHWC"
    or axes[1] == 1 and "NCHW") or nil
  add_scales(self, dims, dtype)
  for _, name in ipairs { "mean", "variance" } do
    self["moving_" .. name] = self:add_weight {
      name = "moving_" .. name, shape = dims, dtype = dtype, autocast = false,
      initializer = config["moving_" .. name .. "_initializer"],
      trainable = false, synchronization = "ON_READ", aggregation = "MEAN",
    }
  end
  self.input_spec = { ndim = #shape, axes = spec }
end

-- Parameters as the shape of x with 1 for the axes that are averaged over.
local function spread(own, t, rank, dims)
  if t == nil then
    return nil
  end
  local shape = {}
  for i = 1, rank do
    shape[i] = 1
  end
  for _, axis in ipairs(own.axes) do
    shape[axis + 1] = dims[axis + 1]
  end
  return tf.reshape(t, shape)
end

local function other_axes(own, rank)
  local kept, list = {}, {}
  for _, axis in ipairs(own.axes) do
    kept[axis] = true
  end
  for axis = 0, rank - 1 do
    if not kept[axis] then
      list[#list + 1] = axis
    end
  end
  return list
end

local function normalize(self, x, mean, variance)
  local own = self._own
  local dims = x.shape
  local rank = #dims
  local y = HALF[x.dtype] and tf.cast(x, "float32") or x
  y = tf.nn.batch_normalization(y, spread(own, mean, rank, dims),
    spread(own, variance, rank, dims), spread(own, self.beta, rank, dims),
    spread(own, self.gamma, rank, dims), own.config.epsilon)
  return y.dtype == x.dtype and y or tf.cast(y, x.dtype)
end

local function move(variable, value, momentum)
  variable:assign_sub((variable:read_value() - value) * (1 - momentum))
end

local function count_of(dims, own)
  local kept, n = {}, 1
  for _, axis in ipairs(own.axes) do
    kept[axis + 1] = true
  end
  for i = 1, #dims do
    if not kept[i] and dims[i] < 0 then
      raw.refuse_open(dims, "BatchNormalization")
    end
    n = kept[i] and n or n * dims[i]
  end
  return n
end

-- One op for everything, moving statistics included.
local function fused(self, x, training)
  local own, config = self._own, self._own.config
  local gamma, beta = self.gamma, self.beta
  gamma = gamma or tf.ones_like(self.moving_mean)
  beta = beta or tf.zeros_like(self.moving_mean)
  local y, mean, variance = tf.raw_ops.fused_batch_norm(x, gamma, beta,
    self.moving_mean, self.moving_variance, config.epsilon, own.op_format,
    training, training and 1 - config.momentum or 1, false)
  if training then
    self.moving_mean:assign(mean)
    self.moving_variance:assign(variance)
  end
  return y
end

-- Where x counts, as bools of its shape, and x with zeros elsewhere.
local function masked(self, x, mask)
  if #mask.shape ~= #x.shape - 1 then
    errors.raise("ValueError", ("%s: the mask has shape %s, the input %s; "
      .. "expected one axis less"):format(self.name, text.shape(mask.shape),
      text.shape(x.shape)))
  end
  local counts = tf.broadcast_to(tf.expand_dims(tf.cast(mask, "bool"), -1),
    x.shape)
  return counts, tf.where(counts, x, tf.zeros_like(x))
end

-- Keras' rule for steps that do not count: with none that do, 0 and 0.
local function masked_moments(self, x, mask, axes)
  local dims = x.shape
  local counts, kept = masked(self, x, mask)
  local n = tf.reduce_sum(tf.cast(counts, x.dtype), axes) + EPSILON
  local mean = tf.reduce_sum(kept, axes) / n
  local off = tf.where(counts, x - spread(self._own, mean, #dims, dims),
    tf.zeros_like(x))
  return mean, tf.reduce_sum(tf.square(off), axes) / n
end

local function moments(self, x, mask)
  local axes = other_axes(self._own, #x.shape)
  if mask ~= nil then
    return masked_moments(self, x, mask, axes)
  end
  return tf.nn.moments(x, axes)
end

-- A replica without data has no statistics: what it assigns changes nothing, but
-- where assigning is a sync point, the others wait for it.
local function stay(self, is_fused)
  for _, variable in ipairs { self.moving_mean, self.moving_variance } do
    local value = variable:read_value()
    if is_fused then
      variable:assign(value)
    else
      variable:assign_sub(tf.zeros_like(value))
    end
  end
end

function Batch.call(self, x, options)
  local own, config = self._own, self._own.config
  -- A layer that is not trainable keeps its statistics.
  local moves = options.training and own.trainable
  local training = moves and count_of(x.shape, own) > 0
  local mask = moves and options.mask or nil
  local is_fused = own.op_format ~= nil and mask == nil
  if moves and not training then
    stay(self, is_fused)
  end
  if is_fused then
    return fused(self, x, training)
  elseif not training then
    return normalize(self, x, self.moving_mean, self.moving_variance)
  end
  local y = HALF[x.dtype] and tf.cast(x, "float32") or x
  local mean, variance = moments(self, y, mask)
  move(self.moving_mean, mean, config.momentum)
  move(self.moving_variance, variance, config.momentum)
  return normalize(self, x, mean, variance)
end

local BATCH = "axis=-1 momentum=0.99 " .. SCALES
  .. "moving_mean_initializer='zeros' moving_variance_initializer='ones' "
  .. SCALE_RULES .. " renorm=false renorm_clipping=nil renorm_momentum=0.99 "
  .. "fused=nil virtual_batch_size=nil adjustment=nil"

-- Moments over the batches of all replicas, for means that are large beside the
-- deviation, too: each replica sums around a centre of its own, and the few sums
-- are joined in float64.
local function moments_together(self, x, mask, context)
  local own = self._own
  local dims, counts = x.shape, nil
  local axes = other_axes(own, #dims)
  local n = tf.constant(count_of(dims, own), x.dtype)
  if mask ~= nil then
    counts, x = masked(self, x, mask)
    n = tf.reduce_sum(tf.cast(counts, x.dtype), axes)
  end
  local some = tf.maximum(n, 1)
  local centre = tf.reduce_sum(x, axes) / some
  local off = x - spread(own, centre, #dims, dims)
  if counts ~= nil then
    off = tf.where(counts, off, tf.zeros_like(off))
  end
  local function double(t)
    return tf.cast(t, "float64")
  end
  -- The centre is a mean that was rounded: what is left is around it.
  local left = double(tf.reduce_sum(off, axes))
  local squares = double(tf.reduce_sum(tf.square(off), axes))
    - tf.square(left) / double(some)
  n = double(n)
  local mean = double(centre) + left / double(some)
  local sums = context:all_reduce("SUM", {
    n * mean, squares + n * tf.square(mean), n,
  })
  n = tf.maximum(sums[3], 1) -- of no steps that count, 0 and 0
  mean = sums[1] / n
  return tf.cast(mean, x.dtype), tf.cast(sums[2] / n - tf.square(mean), x.dtype)
end

local function together(self, x, options)
  local context = contexts.get_replica_context()
  if not options.training or not self._own.trainable or context == nil
    or context.num_replicas_in_sync == 1 then
    return Batch.call(self, x, options)
  end
  local momentum = self._own.config.momentum
  local y = HALF[x.dtype] and tf.cast(x, "float32") or x
  local mean, variance = moments_together(self, y, options.mask, context)
  move(self.moving_mean, mean, momentum)
  move(self.moving_variance, variance, momentum)
  return normalize(self, x, mean, variance)
end

--- (x - mean) / sqrt(variance + epsilon) * gamma + beta over all axes but
--- `axis`: with training the batch's own moments, which the moving ones follow,
--- else the moving ones. In training steps that the mask leaves out do not
--- count. Each replica moves its own; reading takes their mean. With synchronized
--- the moments are those of all replicas' batches: in training every replica
--- must call the layer then.
--- Source: tf.keras.layers.BatchNormalization
M.BatchNormalization = define.layer("BatchNormalization", BATCH
  .. " synchronized=false", {
  supports_masking = true,
  setup = Batch.setup, build = Batch.build,
  call = function(self, x, options)
    if self._own.config.synchronized then
      return together(self, x, options)
    end
    return Batch.call(self, x, options)
  end,
  compute_output_shape = same_shape,
})

--- BatchNormalization { synchronized = true } under its older name.
--- Source: tf.keras.layers.experimental.SyncBatchNormalization
M.SyncBatchNormalization = define.layer("SyncBatchNormalization", BATCH, {
  supports_masking = true,
  setup = Batch.setup, build = Batch.build, call = together,
  compute_output_shape = same_shape,
})

-- Within an example -----------------------------------------------------------

-- True when axes are the last ones in a row.
local function trailing(axes, rank)
  for i, axis in ipairs(axes) do
    if axis ~= rank - #axes + i - 1 then
      return false
    end
  end
  return true
end

--- Over `axis` (the last, or several) of each example.
--- Source: tf.keras.layers.LayerNormalization
M.LayerNormalization = define.layer("LayerNormalization", "axis=-1 " .. SCALES
  .. SCALE_RULES, {
  supports_masking = true,
  build = function(self, shape)
    local own = self._own
    own.axes = resolve_axes(self, own.config.axis, #shape)
    local dims, spec = sizes_of(self, shape, own.axes)
    own.first = trailing(own.axes, #shape) and own.axes[1] or nil
    add_scales(self, dims)
    self.input_spec = { ndim = #shape, axes = spec }
  end,
  call = function(self, x)
    local own = self._own
    if own.first ~= nil then
      return tf.nn.layer_normalization(x, self.gamma, self.beta, own.first,
        own.config.epsilon)
    end
    local dims = x.shape
    local mean, variance = tf.nn.moments(x, own.axes, { keepdims = true })
    return tf.nn.batch_normalization(x, mean, variance,
      spread(own, self.beta, #dims, dims), spread(own, self.gamma, #dims, dims),
      own.config.epsilon)
  end,
  compute_output_shape = same_shape,
})

--- Over space and the channels of each of `groups` groups; -1 groups are as
--- many as channels.
--- Source: tf.keras.layers.GroupNormalization
M.GroupNormalization = define.layer("GroupNormalization", "groups=32 axis=-1 "
  .. SCALES .. SCALE_RULES, {
  supports_masking = true,
  build = function(self, shape)
    local own, config = self._own, self._own.config
    local axes = resolve_axes(self, config.axis, #shape)
    local dims, spec = sizes_of(self, shape, axes)
    own.groups = config.groups == -1 and dims[1] or config.groups
    if type(own.groups) ~= "number" or own.groups < 1
      or dims[1] % own.groups ~= 0 then
      errors.raise("ValueError", ("%s: %d channels cannot be shared out to %s "
        .. "groups"):format(self.name, dims[1], tostring(config.groups)))
    end
    own.axis, own.axes = axes[1] == #shape - 1 and -1 or axes[1], axes
    add_scales(self, dims)
    self.input_spec = { ndim = #shape, axes = spec }
  end,
  call = function(self, x)
    local own = self._own
    local axis, back = own.axis, nil
    if axis ~= -1 and axis ~= 1 then
      local perm = {}
      back = {}
      for a = 0, #x.shape - 1 do
        if a ~= axis then
          perm[#perm + 1] = a
        end
      end
      perm[#perm + 1] = axis
      for i = 1, #perm do
        back[perm[i] + 1] = i - 1
      end
      x = tf.transpose(x, perm)
      axis = -1
    end
    local y = tf.nn.group_normalization(x, self.gamma, self.beta, own.groups,
      axis, own.config.epsilon)
    return back and tf.transpose(y, back) or y
  end,
  compute_output_shape = same_shape,
})

--- Length 1 along `axis`. Source: tf.keras.layers.UnitNormalization
M.UnitNormalization = define.layer("UnitNormalization", "axis=-1", {
  supports_masking = true,
  call = function(self, x)
    return (tf.math.l2_normalize(x, { axis = self.axis }))
  end,
  compute_output_shape = same_shape,
})

return M
