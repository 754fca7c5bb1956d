--- tf.image: resizing, flipping, cropping, padding of {H, W, C} images and
--- {N, H, W, C} batches. Everything is made of ops with gradients.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local floor = math.floor

--- Checks ---------------------------------------------------------------------

--- The image or batch as a tensor; axis of its rows, counted from 0.
local function images_of(tf, what, images)
  local x = tf.convert_to_tensor(images)
  local rank = #raw.known_dims(raw.operand_tensor(x), what)
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

-- What sums of pixels are made in: float32, or the dtype of wider images.
local WIDE = { float32 = true, float64 = true }

local function widened(tf, x)
  return WIDE[x.dtype] and x or tf.cast(x, "float32")
end

local function whole(what, name, value, least)
  return convert.integer(value, what, name, least)
end

--- Resizing -------------------------------------------------------------------

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

local METHODS = {
  "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian",
  "mitchellcubic",
}

local function lanczos(radius)
  return { radius = radius, function(x)
    if x > radius then
      return 0
    elseif x <= 1e-3 then
      return 1
    end
    local a = math.pi * x
    return radius * math.sin(a) * math.sin(a / radius) / (a * a)
  end }
end

--- Weight of a pixel at distance x >= 0 from the sample, by method.
local KERNELS = {
  bilinear = { radius = 1, function(x)
    return math.max(0, 1 - x)
  end },
  -- Keys 1981 with a = -1/2.
  bicubic = { radius = 2, function(x)
    if x >= 2 then
      return 0
    elseif x >= 1 then
      return ((-0.5 * x + 2.5) * x - 4) * x + 2
    end
    return (1.5 * x - 2.5) * x * x + 1
  end },
  -- Mitchell & Netravali 1988 with B = C = 1/3.
  mitchellcubic = { radius = 2, function(x)
    if x >= 2 then
      return 0
    elseif x >= 1 then
      return ((-7 / 18 * x + 2) * x - 10 / 3) * x + 16 / 9
    end
    return (7 / 6 * x - 2) * x * x + 8 / 9
  end },
  -- Standard deviation 1/2.
  gaussian = { radius = 1.5, function(x)
    return x >= 1.5 and 0 or math.exp(-2 * x * x)
  end },
  lanczos3 = lanczos(3), lanczos5 = lanczos(5),
}

local function zeros(n)
  local row = {}
  for i = 1, n do
    row[i] = 0
  end
  return row
end

--- Weights {to, from} of a kernel; pixels outside count nothing, each row's
--- sum is 1. With antialias the kernel is as wide as the samples are apart.
local function kernel_weights(kernel, from, to, antialias)
  local rows, scale = {}, from / to
  local wide = antialias and math.max(scale, 1) or 1
  for i = 1, to do
    local row, sum = zeros(from), 0
    local at = (i - 0.5) * scale
    local first = math.ceil(at - kernel.radius * wide - 0.5)
    local last = floor(at + kernel.radius * wide - 0.5)
    for j = math.max(first, 0), math.min(last, from - 1) do
      row[j + 1] = kernel[1](math.abs(j + 0.5 - at) / wide)
      sum = sum + row[j + 1]
    end
    for j = 1, from do
      row[j] = row[j] / sum
    end
    rows[i] = row
  end
  return rows
end

--- Weights {to, from} by how much of each pixel lies under a sample.
local function area_weights(from, to)
  local rows, scale = {}, from / to
  for i = 1, to do
    local row = zeros(from)
    local first, last = (i - 1) * scale, i * scale
    for j = floor(first), math.min(math.ceil(last), from) - 1 do
      row[j + 1] = (math.min(last, j + 1) - math.max(first, j)) / scale
    end
    rows[i] = row
  end
  return rows
end

--- Mix the rows of `axis` by weights {to, from}.
local function mix_axis(tf, x, axis, weights)
  local dims = x.shape
  local before = lists.product(dims, 1, axis)
  local after = lists.product(dims, axis + 2)
  local matrix = tf.constant(weights, { dtype = x.dtype })
  local y = tf.matmul(matrix, tf.reshape(x, { before, dims[axis + 1], after }))
  dims[axis + 1] = #weights
  return tf.reshape(y, dims)
end

-- Weights are made in Lua: a side takes that many rows of them.
local MAX_SIDE = 65536

local function target_size(x, first, size, keep_ratio)
  local dims = convert.integers(size, "resize", "size")
  if #dims ~= 2 or math.min(dims[1], dims[2]) < 1
    or math.max(dims[1], dims[2]) > MAX_SIDE then
    errors.raise("ValueError", ("resize: size is %s; expected { height, width "
      .. "}, both 1 to %d"):format(text.shape(dims), MAX_SIDE))
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
  method = options.choice("resize", "method", method, METHODS)
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
  x = widened(tf, x)
  for side, to in ipairs { height, width } do
    local axis = first + side - 1
    local from = x.shape[axis + 1]
    if method == "bilinear" and not antialias then
      x = lerp_axis(tf, x, axis, to)
    elseif method == "area" then
      x = mix_axis(tf, x, axis, area_weights(from, to))
    elseif from ~= to or method == "gaussian" or method == "mitchellcubic" then
      x = mix_axis(tf, x, axis, kernel_weights(KERNELS[method], from, to,
        antialias))
    end
  end
  return x
end

--- x rounded to float32's 24 bits.
local function single(x)
  local far = x * (2 ^ 29 + 1)
  return far - (far - x)
end

--- Resize with the aspect ratio kept, then pad to the size, evenly by what the
--- size is before it is rounded down: in float32, whose rounding decides.
local function resize_with_pad(tf, images, height, width, method, antialias)
  local what = "resize_with_pad"
  height = whole(what, "target_height", height, 1)
  width = whole(what, "target_width", width, 1)
  local x, first = images_of(tf, what, images)
  local h, w = x.shape[first + 1], x.shape[first + 2]
  local ratio = math.max(single(h / height), single(w / width))
  local exact_h, exact_w = single(h / ratio), single(w / ratio)
  local to_h, to_w = math.max(1, floor(exact_h)), math.max(1, floor(exact_w))
  x = resize(tf, x, { to_h, to_w }, method, false, antialias)
  local top = math.max(0, floor((height - exact_h) / 2))
  local left = math.max(0, floor((width - exact_w) / 2))
  local paddings = {}
  for axis = 1, #x.shape do
    paddings[axis] = { 0, 0 }
  end
  paddings[first + 1] = { top, height - to_h - top }
  paddings[first + 2] = { left, width - to_w - left }
  return tf.pad(x, paddings)
end

--- Cropping and padding -------------------------------------------------------

local function crop(tf, what, images, top, left, height, width)
  local x, first = images_of(tf, what, images)
  top, left = whole(what, "offset_height", top, 0),
    whole(what, "offset_width", left, 0)
  height, width = whole(what, "target_height", height, 1),
    whole(what, "target_width", width, 1)
  local h, w = x.shape[first + 1], x.shape[first + 2]
  -- The sums might be more than 64 bits hold.
  if top > h - height or left > w - width then
    errors.raise("ValueError", ("%s: %d rows from row %d and %d columns from "
      .. "column %d are outside images of %d rows and %d columns"):format(what,
      height, top, width, left, h, w))
  end
  return window(x, first, top, left, height, width)
end

local function pad(tf, what, images, top, left, height, width)
  local x, first = images_of(tf, what, images)
  top, left = whole(what, "offset_height", top, 0),
    whole(what, "offset_width", left, 0)
  height, width = whole(what, "target_height", height, 1),
    whole(what, "target_width", width, 1)
  local below = height - x.shape[first + 1]
  local right = width - x.shape[first + 2]
  if top > below or left > right then
    errors.raise("ValueError", ("%s: images of %d rows and %d columns at row "
      .. "%d, column %d do not fit into %d rows and %d columns"):format(what,
      x.shape[first + 1], x.shape[first + 2], top, left, height, width))
  end
  local paddings = {}
  for axis = 0, #x.shape - 1 do
    paddings[axis + 1] = { 0, 0 }
  end
  paddings[first + 1], paddings[first + 2] = { top, below - top },
    { left, right - left }
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
  fraction = convert.number(fraction, "central_crop", "central_fraction")
  if not (fraction > 0 and fraction <= 1) then
    errors.raise("ValueError", ("central_crop: central_fraction is %s; "
      .. "expected more than 0 and at most 1"):format(
      text.describe(fraction)))
  end
  local h, w = x.shape[first + 1], x.shape[first + 2]
  local top, left = floor((h - h * fraction) / 2), floor((w - w * fraction) / 2)
  return window(x, first, top, left, h - 2 * top, w - 2 * left)
end

local function define_sizes(tf, def)
  --- Images of another size: float32, or float64 where they are; "nearest" keeps
  --- any dtype. Pixel centres are at halves; `antialias` widens the kernel where
  --- images shrink (nearest and area need it not).
  --- Source: tf.image.resize
  def("image.resize", "images size method=bilinear "
    .. "preserve_aspect_ratio=false antialias=false name=nil",
    function(...) return resize(tf, ...) end)
  --- The largest image of the same aspect ratio that fits, zeros around it.
  --- Source: tf.image.resize_with_pad
  def("image.resize_with_pad", "image target_height target_width "
    .. "method=bilinear antialias=false",
    function(...) return resize_with_pad(tf, ...) end)
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

--- Flipping -------------------------------------------------------------------

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

-- sizes are those of x.
local function window_anywhere(x, tf, sizes, dims, seed)
  local begins = {}
  for axis = 1, #sizes do
    local room = sizes[axis] - (dims[axis] or math.huge)
    if #dims ~= #sizes or room < 0 or dims[axis] < 0 then
      errors.raise("InvalidArgument", ("random_crop: a window of %s does not "
        .. "fit into %s"):format(text.shape(dims), text.shape(sizes)))
    end
    local u = tf.random.uniform({}, { seed = seed })
    if tracing.is_symbolic(u) then
      begins[axis] = tf.minimum(tf.cast(u * (room + 1), "int32"), room)
    else
      begins[axis] = floor(u:item() * (room + 1))
    end
  end
  return tf.slice(x, begins, dims)
end

local function random_crop(tf, value, size, seed)
  local x = tf.convert_to_tensor(value)
  local dims = convert.integers(size, "random_crop", "size")
  local sizes = raw.known_dims(raw.operand_tensor(x), "random_crop")
  local is_shape = #dims == #sizes
  for axis = 1, #dims do
    is_shape = is_shape and dims[axis] >= 0
  end
  return tracing.refusing_values(tf, is_shape and dims or nil, window_anywhere,
    x, tf, sizes, dims, seed)
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

--- Values ---------------------------------------------------------------------

--- Values of one dtype's range in another's: 0..1 for floating dtypes, 0..max
--- for whole numbers.
local function convert_dtype(tf, image, dtype, saturate)
  local what = "convert_image_dtype"
  local x = tf.convert_to_tensor(image)
  dtype = convert.dtype(dtype, what)
  local cast = saturate and tf.saturate_cast or tf.cast
  local floating = convert.FLOATING[dtype] or false
  if x.dtype == dtype then
    return x
  elseif not floating and not convert.INTEGER[dtype]
    or not convert.FLOATING[x.dtype] and not convert.INTEGER[x.dtype] then
    errors.raise("TypeError", ("%s: images of %s and %s have no range of "
      .. "values"):format(what, x.dtype, dtype))
  elseif convert.FLOATING[x.dtype] then
    -- The half makes truncation round.
    return floating and tf.cast(x, dtype)
      or cast(x * (tf.dtypes.max(dtype) + 0.5), dtype)
  end
  local from = tf.dtypes.max(x.dtype)
  if floating then -- rounded as TensorFlow's product
    return tf.cast(x, dtype) * (1 / from)
  end
  local to = tf.dtypes.max(dtype)
  if from > to then
    return cast(tf.math.floordiv(x, floor((from + 1) / (to + 1))), dtype)
  end
  return cast(x, dtype) * floor((to + 1) / (from + 1))
end

-- fn(x) on images that are `widened`; others come back, whole numbers cut to what
-- their dtype holds.
local function in_floats(tf, x, fn)
  if WIDE[x.dtype] then
    return fn(x)
  end
  return convert_dtype(tf, fn(convert_dtype(tf, x, "float32")), x.dtype, true)
end

local function check_channels(what, x, n)
  if x.shape[#x.shape] ~= n then
    errors.raise("ValueError", ("%s: images have shape %s; expected %d channel%s")
      :format(what, text.shape(x.shape), n, n == 1 and "" or "s"))
  end
end

-- A tensor among the arguments in the dtype of the images; a number as it is.
local function as_pixels(tf, value, x)
  return raw.is_operand(value) and tf.cast(value, x.dtype) or value
end

local function define_values(tf, def)
  --- Images of another dtype, values scaled to its range: float images have
  --- 0..1, others 0..largest. `saturate` clips what does not fit; without it floats
  --- are clipped as well (tf.cast), where TensorFlow leaves them undefined, and
  --- whole numbers wrap round.
  --- Source: tf.image.convert_image_dtype
  def("image.convert_image_dtype", "image dtype saturate=false name=nil",
    function(...) return convert_dtype(tf, ...) end)
  --- Each image with mean 0 and deviation 1: float32, or float64 where it is.
  --- Source: tf.image.per_image_standardization
  def("image.per_image_standardization", "image", function(image)
    local x, first = images_of(tf, "per_image_standardization", image)
    x = widened(tf, x)
    local axes = { first, first + 1, first + 2 }
    local n = x.shape[first + 1] * x.shape[first + 2] * x.shape[first + 3]
    local mean = tf.reduce_mean(x, { axis = axes, keepdims = true })
    local deviation = tf.math.reduce_std(x, { axis = axes, keepdims = true })
    return (x - mean) / tf.maximum(deviation, 1 / math.sqrt(n))
  end)
  def("image.adjust_brightness", "image delta", function(image, delta)
    local function brighter(x)
      return x + as_pixels(tf, delta, x)
    end
    local given = tf.convert_to_tensor(image)
    if given.dtype == "float16" then -- TensorFlow adds in that
      return brighter(given)
    end
    return in_floats(tf, given, brighter)
  end)
  def("image.adjust_contrast", "images contrast_factor",
    function(images, factor)
      local given, first = images_of(tf, "adjust_contrast", images)
      return in_floats(tf, given, function(x)
        local mean = tf.reduce_mean(x, { axis = { first, first + 1 },
          keepdims = true })
        return (x - mean) * as_pixels(tf, factor, x) + mean
      end)
    end)
  def("image.rgb_to_grayscale", "images name=nil", function(images)
    local given = images_of(tf, "rgb_to_grayscale", images)
    check_channels("rgb_to_grayscale", given, 3)
    return in_floats(tf, given, function(x)
      local weights = tf.constant({ 0.2989, 0.5870, 0.1140 },
        { dtype = x.dtype })
      return tf.reduce_sum(x * weights, { axis = -1, keepdims = true })
    end)
  end)
  def("image.grayscale_to_rgb", "images name=nil", function(images)
    local x = images_of(tf, "grayscale_to_rgb", images)
    check_channels("grayscale_to_rgb", x, 1)
    return tf.concat({ x, x, x }, -1)
  end)
end

M.constants = {
  ["image.ResizeMethod"] = {
    BILINEAR = "bilinear", NEAREST_NEIGHBOR = "nearest", BICUBIC = "bicubic",
    AREA = "area", LANCZOS3 = "lanczos3", LANCZOS5 = "lanczos5",
    GAUSSIAN = "gaussian", MITCHELLCUBIC = "mitchellcubic",
  },
}

--- Called by the op loader.
---@param tf table
---@param def fun(paths:string, signature:string, fn:function)
function M.define(tf, def)
  define_sizes(tf, def)
  define_flips(tf, def)
  define_values(tf, def)
end

return M
