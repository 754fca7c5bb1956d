--- tf.image: resizing, flipping, cropping, padding of {H, W, C} images and
--- {N, H, W, C} batches. Everything is made of ops with gradients.
local convert = require "tfdist.convert"
local errors = require "tfdist.errors"
local options = require "tfdist.options"
local text = require "tfdist.text"

local M = {}

local floor = math.floor

--- Checks ------------------------------------------------------------------------

--- The image or batch as a tensor; axis of its rows, counted from 0.
local function images_of(tf, what, images)
  local x = tf.convert_to_tensor(images)
  local rank = #x.shape
  if rank ~= 3 and rank ~= 4 then
    errors.raise("ValueError", ("%s: images have shape %s; expected {height, "
      .. "width, channels}, or a batch of such"):format(what,
      text.shape(x.shape)))
  end
  return x, rank - 3
end

--- Slice of rows and columns; all of every other axis.
local function window(x, first, top, left, height, width)
  local parts = {}
  for axis = 0, #x.shape - 1 do
    parts[axis + 1] = {}
  end
  parts[first + 1] = { top, top + height }
  parts[first + 2] = { left, left + width }
  return x[parts]
end

local function whole(what, name, value, least)
  return options.integer(what, name, value, least)
end

--- Resizing ------------------------------------------------------------------------

--- For each of `to` samples over `from`: the two neighbours and how far the
--- sample lies towards the second. Pixel centres are at halves.
local function neighbours(from, to)
  local low, high, part = {}, {}, {}
  local scale = from / to
  for i = 1, to do
    local at = (i - 0.5) * scale - 0.5
    local below = floor(at)
    low[i] = math.max(below, 0)
    high[i] = math.min(math.ceil(at), from - 1)
    part[i] = at - below
  end
  return low, high, part
end

local function nearest(from, to)
  local index = {}
  for i = 1, to do
    index[i] = math.min(floor((i - 0.5) * from / to), from - 1)
  end
  return index
end

--- A list of n numbers as a tensor that broadcasts along `axis`.
local function along(tf, values, rank, axis, dtype)
  local dims = {}
  for i = 1, rank do
    dims[i] = 1
  end
  dims[axis + 1] = #values
  return tf.reshape(tf.constant(values, { dtype = dtype }), dims)
end

local function lerp_axis(tf, x, axis, to)
  local from = x.shape[axis + 1]
  if from == to then
    return x
  end
  local low, high, part = neighbours(from, to)
  local below = tf.gather(x, low, { axis = axis })
  local above = tf.gather(x, high, { axis = axis })
  return below + (above - below) * along(tf, part, #x.shape, axis, x.dtype)
end

local METHODS = { "bilinear", "nearest" }
local OTHER_METHODS = {
  area = true, bicubic = true, gaussian = true, lanczos3 = true,
  lanczos5 = true, mitchellcubic = true,
}

local function method_of(method, antialias)
  local name = type(method) == "string" and method:lower() or method
  if OTHER_METHODS[name] or antialias then
    errors.raise("NotImplementedError", ("resize: %s is not there; bilinear "
      .. "and nearest without antialias are"):format(
      antialias and "antialias" or name))
  end
  return options.choice("resize", "method", name, METHODS)
end

local function target_size(x, first, size, keep_ratio)
  local dims = convert.integers(size, "resize", "size")
  if #dims ~= 2 or dims[1] < 1 or dims[2] < 1 then
    errors.raise("ValueError", ("resize: size is %s; expected { height, width "
      .. "}, both at least 1"):format(text.shape(dims)))
  end
  local height, width = dims[1], dims[2]
  if keep_ratio then
    local h, w = x.shape[first + 1], x.shape[first + 2]
    local scale = math.min(height / h, width / w)
    height = math.max(1, floor(h * scale + 0.5))
    width = math.max(1, floor(w * scale + 0.5))
  end
  return height, width
end

local function resize(tf, images, size, method, keep_ratio, antialias)
  local x, first = images_of(tf, "resize", images)
  method = method_of(method, antialias)
  local height, width = target_size(x, first, size, keep_ratio)
  if x.shape[first + 1] == 0 or x.shape[first + 2] == 0 then
    errors.raise("InvalidArgument", ("resize: images of shape %s have no "
      .. "pixels"):format(text.shape(x.shape)))
  end
  if method == "nearest" then
    x = tf.gather(x, nearest(x.shape[first + 1], height), { axis = first })
    return tf.gather(x, nearest(x.shape[first + 2], width),
      { axis = first + 1 })
  end
  if not convert.FLOATING[x.dtype] then
    x = tf.cast(x, "float32")
  end
  x = lerp_axis(tf, x, first, height)
  return lerp_axis(tf, x, first + 1, width)
end

--- Cropping and padding --------------------------------------------------------------

local function crop(tf, what, images, top, left, height, width)
  local x, first = images_of(tf, what, images)
  top, left = whole(what, "offset_height", top, 0),
    whole(what, "offset_width", left, 0)
  height, width = whole(what, "target_height", height, 1),
    whole(what, "target_width", width, 1)
  local h, w = x.shape[first + 1], x.shape[first + 2]
  if top + height > h or left + width > w then
    errors.raise("ValueError", ("%s: rows %d..%d and columns %d..%d are "
      .. "outside images of %d rows and %d columns"):format(what, top,
      top + height - 1, left, left + width - 1, h, w))
  end
  return window(x, first, top, left, height, width)
end

local function pad(tf, what, images, top, left, height, width)
  local x, first = images_of(tf, what, images)
  top, left = whole(what, "offset_height", top, 0),
    whole(what, "offset_width", left, 0)
  local below = whole(what, "target_height", height, 1) - top
    - x.shape[first + 1]
  local right = whole(what, "target_width", width, 1) - left
    - x.shape[first + 2]
  if below < 0 or right < 0 then
    errors.raise("ValueError", ("%s: images of %d rows and %d columns at row "
      .. "%d, column %d do not fit into %d rows and %d columns"):format(what,
      x.shape[first + 1], x.shape[first + 2], top, left, height, width))
  end
  local paddings = {}
  for axis = 0, #x.shape - 1 do
    paddings[axis + 1] = { 0, 0 }
  end
  paddings[first + 1], paddings[first + 2] = { top, below }, { left, right }
  return tf.pad(x, paddings)
end

--- Crop each axis that is too long around its middle, pad each too short. --
local function crop_or_pad(tf, images, height, width)
  local what = "resize_with_crop_or_pad"
  local x, first = images_of(tf, what, images)
  height = whole(what, "target_height", height, 1)
  width = whole(what, "target_width", width, 1)
  local h, w = x.shape[first + 1], x.shape[first + 2]
  local keep_h, keep_w = math.min(h, height), math.min(w, width)
  x = window(x, first, floor((h - keep_h) / 2), floor((w - keep_w) / 2),
    keep_h, keep_w)
  return pad(tf, what, x, floor((height - keep_h) / 2),
    floor((width - keep_w) / 2), height, width)
end

local function central_crop(tf, images, fraction)
  local x, first = images_of(tf, "central_crop", images)
  if type(fraction) ~= "number" or not (fraction > 0 and fraction <= 1) then
    errors.raise("ValueError", ("central_crop: central_fraction is %s; "
      .. "expected more than 0 and at most 1"):format(tostring(fraction)))
  end
  local h, w = x.shape[first + 1], x.shape[first + 2]
  local top, left = floor((h - h * fraction) / 2), floor((w - w * fraction) / 2)
  return window(x, first, top, left, h - 2 * top, w - 2 * left)
end

local function define_sizes(tf, def)
  def("image.resize", "images size method=bilinear "
    .. "preserve_aspect_ratio=false antialias=false name=nil",
    function(...) return resize(tf, ...) end)
  def("image.crop_to_bounding_box",
    "image offset_height offset_width target_height target_width",
    function(...) return crop(tf, "crop_to_bounding_box", ...) end)
  def("image.pad_to_bounding_box",
    "image offset_height offset_width target_height target_width",
    function(...) return pad(tf, "pad_to_bounding_box", ...) end)
  def("image.resize_with_crop_or_pad", "image target_height target_width",
    function(...) return crop_or_pad(tf, ...) end)
  def("image.central_crop", "image central_fraction",
    function(...) return central_crop(tf, ...) end)
end

--- Flipping -----------------------------------------------------------------------

local function flip(tf, what, images, side)
  local x, first = images_of(tf, what, images)
  return tf.reverse(x, { first + side })
end

--- Flip each image of a batch, or the one image, with probability 1/2.
local function random_flip(tf, what, images, side, seed)
  local x, first = images_of(tf, what, images)
  local dims = first == 1 and { x.shape[1], 1, 1, 1 } or { 1, 1, 1 }
  local coin = tf.less(tf.random.uniform(dims, { seed = seed }), 0.5)
  return tf.where(coin, tf.reverse(x, { first + side }), x)
end

local function swap_sides(tf, x, first)
  local perm = {}
  for axis = 0, #x.shape - 1 do
    perm[axis + 1] = axis
  end
  perm[first + 1], perm[first + 2] = first + 1, first
  return tf.transpose(x, perm)
end

--- Quarter turns, counter-clockwise.
local function turn(tf, images, k)
  local x, first = images_of(tf, "rot90", images)
  k = whole("rot90", "k", k) % 4
  if k == 1 then
    return tf.reverse(swap_sides(tf, x, first), { first })
  elseif k == 2 then
    return tf.reverse(x, { first, first + 1 })
  elseif k == 3 then
    return tf.reverse(swap_sides(tf, x, first), { first + 1 })
  end
  return x
end

local function random_crop(tf, value, size, seed)
  local x = tf.convert_to_tensor(value)
  local dims = convert.integers(size, "random_crop", "size")
  local parts = {}
  for axis = 1, #x.shape do
    local room = x.shape[axis] - (dims[axis] or math.huge)
    if #dims ~= #x.shape or room < 0 or dims[axis] < 0 then
      errors.raise("InvalidArgument", ("random_crop: a window of %s does not "
        .. "fit into %s"):format(text.shape(dims), text.shape(x.shape)))
    end
    local at = floor(tf.random.uniform({}, { seed = seed }):item()
      * (room + 1))
    parts[axis] = { at, at + dims[axis] }
  end
  return x[parts]
end

local function define_flips(tf, def)
  for name, side in pairs { flip_up_down = 0, flip_left_right = 1 } do
    def("image." .. name, "image", function(image)
      return flip(tf, name, image, side)
    end)
    def("image.random_" .. name, "image seed=nil", function(image, seed)
      return random_flip(tf, "random_" .. name, image, side, seed)
    end)
  end
  def("image.rot90", "image k=1 name=nil", function(image, k)
    return turn(tf, image, k)
  end)
  def("image.transpose", "image name=nil", function(image)
    local x, first = images_of(tf, "transpose", image)
    return swap_sides(tf, x, first)
  end)
  def("image.random_crop random_crop", "value size seed=nil name=nil",
    function(value, size, seed)
      return random_crop(tf, value, size, seed)
    end)
end

--- Values -----------------------------------------------------------------------------

local function define_values(tf, def)
  def("image.per_image_standardization", "image", function(image)
    local x, first = images_of(tf, "per_image_standardization", image)
    if not convert.FLOATING[x.dtype] then
      x = tf.cast(x, "float32")
    end
    local axes = { first, first + 1, first + 2 }
    local n = x.shape[first + 1] * x.shape[first + 2] * x.shape[first + 3]
    local mean = tf.reduce_mean(x, { axis = axes, keepdims = true })
    local deviation = tf.math.reduce_std(x, { axis = axes, keepdims = true })
    return (x - mean) / tf.maximum(deviation, 1 / math.sqrt(n))
  end)
  def("image.adjust_brightness", "image delta", function(image, delta)
    return tf.convert_to_tensor(image) + delta
  end)
  def("image.adjust_contrast", "images contrast_factor",
    function(images, factor)
      local x, first = images_of(tf, "adjust_contrast", images)
      local mean = tf.reduce_mean(x, { axis = { first, first + 1 },
        keepdims = true })
      return (x - mean) * factor + mean
    end)
  def("image.rgb_to_grayscale", "images name=nil", function(images)
    local x = images_of(tf, "rgb_to_grayscale", images)
    if x.shape[#x.shape] ~= 3 then
      errors.raise("ValueError", ("rgb_to_grayscale: images have shape %s; "
        .. "expected 3 channels"):format(text.shape(x.shape)))
    end
    local weights = tf.constant({ 0.2989, 0.5870, 0.1140 },
      { dtype = x.dtype })
    return tf.reduce_sum(x * weights, { axis = -1, keepdims = true })
  end)
  def("image.grayscale_to_rgb", "images name=nil", function(images)
    local x = images_of(tf, "grayscale_to_rgb", images)
    return tf.concat({ x, x, x }, -1)
  end)
end

--- Called by the op loader.
---@param tf table
---@param def fun(paths:string, signature:string, fn:function)
function M.define(tf, def)
  define_sizes(tf, def)
  define_flips(tf, def)
  define_values(tf, def)
end

return M
