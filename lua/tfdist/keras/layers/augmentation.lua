--- Random changes of images in training: RandomRotation, RandomTranslation,
--- RandomZoom, RandomContrast, RandomBrightness.
---
--- Factors are a number f for -f .. f (contrast: 1 - f .. 1 + f) or a pair
--- { low, high }. Each image of a batch is changed by itself.
--- Shapes: {batch, height, width, channels} or one image.
--- Source: tf.keras.layers, image augmentation layers
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local FILLS = { "reflect", "wrap", "constant", "nearest" }
local METHODS = { "bilinear", "nearest" }

local same_shape = support.same_shape

-- { low, high } of a factor; at least `least` each.
local function range(self, name, x, least)
  local what = getmetatable(self).__name
  local low, high = x, x
  if type(x) == "number" then
    low = -x
  elseif text.is_plain(x) and #x == 2 then
    low, high = x[1], x[2]
  end
  if type(low) ~= "number" or type(high) ~= "number" then
    errors.raise("TypeError", ("%s: %s must be a number or a pair, got %s")
      :format(what, name, text.describe(x)))
  elseif low > high or low < (least or -math.huge) then
    errors.raise("ValueError", ("%s: %s is %s to %s; expected a range from low "
      .. "to high%s"):format(what, name, text.number(low), text.number(high),
      least and " of numbers from " .. text.number(least) or ""))
  end
  return { low, high }
end

-- One number for each image, {n, 1, 1}.
local function draw(self, n, limits)
  return tf.random.uniform({ n, 1, 1 }, limits[1], limits[2], "float32",
    self._own.config.seed)
end

-- Reading at other positions --------------------------------------------------

-- Positions beyond 0 .. n-1 by the way of filling; real numbers.
local function fold(at, n, mode)
  if mode == "reflect" then
    local t = tf.math.floormod(at + 0.5, 2 * n)
    at = tf.minimum(t, 2 * n - t) - 0.5
  elseif mode == "wrap" then
    at = tf.math.floormod(at, n)
  end
  if mode == "constant" then
    return at
  end
  return tf.clip_by_value(at, 0, n - 1)
end

-- Pixels at whole positions; outside (constant only) the fill value.
local function read(x, ys, xs, fill)
  local d = x.shape
  local h, w = d[2], d[3]
  local inside = tf.logical_and(
    tf.logical_and(tf.greater_equal(ys, 0), tf.less_equal(ys, h - 1)),
    tf.logical_and(tf.greater_equal(xs, 0), tf.less_equal(xs, w - 1)))
  local row = tf.cast(tf.clip_by_value(ys, 0, h - 1), "int32")
  local column = tf.cast(tf.clip_by_value(xs, 0, w - 1), "int32")
  local flat = tf.reshape(x, { d[1], h * w, d[4] })
  local index = tf.reshape(row * w + column, { d[1], h * w })
  local y = tf.reshape(tf.gather(flat, index, { batch_dims = 1, axis = 1 }), d)
  return tf.where(tf.expand_dims(inside, -1), y, fill)
end

-- Output (row, column) shows the input at (ys, xs), {n, h, w} each.
local function sample(self, x, ys, xs)
  local own, config = self._own, self._own.config
  local d = x.shape
  ys, xs = fold(ys, d[2], own.fill), fold(xs, d[3], own.fill)
  local fill = tf.constant(config.fill_value, x.dtype)
  if own.method == "nearest" then
    return read(x, tf.round(ys), tf.round(xs), fill)
  end
  local top, left = tf.floor(ys), tf.floor(xs)
  local down = tf.expand_dims(tf.cast(ys - top, x.dtype), -1)
  local right = tf.expand_dims(tf.cast(xs - left, x.dtype), -1)
  local upper = read(x, top, left, fill) * (1 - right)
    + read(x, top, left + 1, fill) * right
  local lower = read(x, top + 1, left, fill) * (1 - right)
    + read(x, top + 1, left + 1, fill) * right
  return upper * (1 - down) + lower * down
end

local function as_batch(self, x, training, change)
  local d = x.shape
  if #d ~= 3 and #d ~= 4 then
    errors.raise("InvalidArgument", ("%s: the input has shape %s; expected an "
      .. "image or a batch of them"):format(self.name, text.shape(d)))
  end
  if x.dtype ~= self._own.dtype then
    x = tf.cast(x, self._own.dtype)
  end
  if not training then
    return x
  elseif #d == 3 then
    return tf.squeeze(change(tf.expand_dims(x, 0)), { 0 })
  end
  return change(x)
end

-- A layer that reads at places(self, rows, columns, shape), both real and
-- counted from the middle of the image.
local function moving(name, signature, factors, places)
  M[name] = define.layer(name, signature .. " fill_mode='reflect' "
    .. "interpolation='bilinear' seed=nil fill_value=0", {
    setup = function(self, config)
      local own = self._own
      own.fill = options.choice(name, "fill_mode", config.fill_mode, FILLS)
      own.method = options.choice(name, "interpolation", config.interpolation,
        METHODS)
      for _, factor in ipairs(factors) do
        own[factor] = config[factor] ~= nil
          and range(self, factor, config[factor]) or nil
      end
    end,
    call = function(self, x, opts)
      return as_batch(self, x, opts.training, function(images)
        local d = images.shape
        local ym, xm = (d[2] - 1) / 2, (d[3] - 1) / 2
        local ys = tf.reshape(tf.range(d[2], { dtype = "float32" }) - ym,
          { 1, d[2], 1 })
        local xs = tf.reshape(tf.range(d[3], { dtype = "float32" }) - xm,
          { 1, 1, d[3] })
        local all = tf.zeros { d[1], d[2], d[3] }
        ys, xs = places(self, ys, xs, d)
        return sample(self, images, ys + all + ym, xs + all + xm)
      end)
    end,
    compute_output_shape = same_shape,
  })
end

--- Turned counter-clockwise by factor times a full turn.
moving("RandomRotation", "factor:f", { "factor" }, function(self, ys, xs, d)
  local angle = draw(self, d[1], self._own.factor) * (2 * math.pi)
  local c, s = tf.cos(angle), tf.sin(angle)
  return ys * c + xs * s, xs * c - ys * s
end)

--- Moved down and to the right by these parts of height and width.
moving("RandomTranslation", "height_factor:f width_factor:f",
  { "height_factor", "width_factor" }, function(self, ys, xs, d)
    local own = self._own
    return ys - draw(self, d[1], own.height_factor) * d[2],
      xs - draw(self, d[1], own.width_factor) * d[3]
  end)

--- Larger by a negative factor, smaller by a positive one; without
--- width_factor both sides change alike.
moving("RandomZoom", "height_factor:f width_factor=nil",
  { "height_factor", "width_factor" }, function(self, ys, xs, d)
    local own = self._own
    local zoom = draw(self, d[1], own.height_factor) + 1
    local wide = own.width_factor and draw(self, d[1], own.width_factor) + 1
      or zoom
    return ys * zoom, xs * wide
  end)

-- Values ----------------------------------------------------------------------

local function check_limits(self, config)
  local limits = config.value_range
  if not text.is_plain(limits) or #limits ~= 2 then
    errors.raise("TypeError", ("%s: value_range must be { low, high }, got %s")
      :format(getmetatable(self).__name, text.describe(limits)))
  end
end

-- One factor for each image: {n, 1, 1, 1}.
local function factors_of(self, images)
  return tf.expand_dims(tf.cast(draw(self, images.shape[1],
    self._own.factor), images.dtype), -1)
end

--- (x - mean) * f + mean for each channel, f in 1 - factor .. 1 + factor,
--- clipped to value_range when that is given.
M.RandomContrast = define.layer("RandomContrast", "factor:f seed=nil "
  .. "value_range=nil", {
  setup = function(self, config)
    local f = config.factor
    if text.is_plain(f) and #f == 2 and type(f[1]) == "number" then
      f = { -f[1], f[2] }
    end
    self._own.factor = range(self, "factor", f, -1)
    if config.value_range ~= nil then
      check_limits(self, config)
    end
  end,
  call = function(self, x, opts)
    return as_batch(self, x, opts.training, function(images)
      local f = factors_of(self, images) + 1
      local mean = tf.reduce_mean(images, { axis = { 1, 2 }, keepdims = true })
      local y = (images - mean) * f + mean
      local limits = self.value_range
      return limits and tf.clip_by_value(y, limits[1], limits[2]) or y
    end)
  end,
  compute_output_shape = same_shape,
})

--- x + f times the width of value_range, clipped to it.
M.RandomBrightness = define.layer("RandomBrightness", "factor:f "
  .. "value_range:l=nil seed=nil", {
  setup = function(self, config)
    config.value_range = config.value_range or { 0, 255 }
    check_limits(self, config)
    self._own.factor = range(self, "factor", config.factor, -1)
  end,
  call = function(self, x, opts)
    return as_batch(self, x, opts.training, function(images)
      local limits = self.value_range
      local f = factors_of(self, images)
      return tf.clip_by_value(images + f * (limits[2] - limits[1]), limits[1],
        limits[2])
    end)
  end,
  compute_output_shape = same_shape,
})

return M
