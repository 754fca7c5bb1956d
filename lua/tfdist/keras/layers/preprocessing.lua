--- Rescaling, Normalization, Resizing, CenterCrop, RandomCrop, RandomFlip,
--- CategoryEncoding, IntegerLookup.
--- Source: tf.keras.layers, preprocessing layers
local base = require "tfdist.keras.layers.base"
local call = require "tfdist.keras.layers.call"
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local copy = lists.copy

local same_shape = support.same_shape

local function to_float(self, x)
  local dtype = self._own.dtype
  return x.dtype == dtype and x or tf.cast(x, dtype)
end

--- x * scale + offset, in the layer's dtype.
--- Source: tf.keras.layers.Rescaling
M.Rescaling = define.layer("Rescaling", "scale:f offset=0", {
  supports_masking = true,
  call = function(self, x)
    return to_float(self, x) * self.scale + self.offset
  end,
  compute_output_shape = same_shape,
})

-- Normalization ---------------------------------------------------------------

local Norm = {}

-- Axes kept (from 0), and the axes to average over.
local function split_axes(self, rank)
  local kept, others, mark = {}, {}, {}
  if self.axis ~= "none" then
    for _, axis in ipairs(convert.integers(self.axis, "Normalization",
      "axis")) do
      local a = axis < 0 and axis + rank or axis
      if a < 0 or a >= rank then
        errors.raise("ValueError", ("Normalization: axis %d is outside an input"
          .. " of rank %d"):format(axis, rank))
      end
      mark[a] = true
    end
  end
  for a = 0, rank - 1 do
    table.insert(mark[a] and kept or others, a)
  end
  return kept, others
end

function Norm.setup(self, config)
  if (config.mean == nil) ~= (config.variance == nil) then
    errors.raise("ValueError", "Normalization: mean and variance belong "
      .. "together; one is missing")
  end
end

-- t, whose last axes are the last ones kept, in a shape that broadcasts to one.
local function spread(self, t, shape)
  local its = t.shape
  if #its == 0 then
    return t
  end
  local kept, dims = split_axes(self, #shape), {}
  for i = 1, #shape do
    dims[i] = 1
  end
  for i = 1, #its do
    dims[kept[#kept - #its + i] + 1] = its[i]
  end
  return tf.reshape(t, dims)
end

-- Refuse a mean or a variance of the user's that does not go along the axes.
local function check_given(self, name, shape)
  local its = tf.convert_to_tensor(self._own.config[name]).shape
  local kept, want = split_axes(self, #shape), {}
  for i, a in ipairs(kept) do
    want[i] = shape[a + 1]
  end
  local fits = #its <= #kept
  for i = 1, fits and #its or 0 do
    local size = want[#kept - #its + i]
    fits = fits and (its[i] == 1 or size < 0 or its[i] == size)
  end
  if not fits then
    errors.raise("ValueError", ("Normalization: %s has shape %s; expected a "
      .. "number or shape %s, the sizes of the input along axis"):format(name,
      text.shape(its), text.shape(want)))
  end
end

function Norm.build(self, shape)
  if self._own.config.mean ~= nil then
    check_given(self, "mean", shape)
    check_given(self, "variance", shape)
    return
  end
  local dims, axes = {}, {}
  for i, a in ipairs((split_axes(self, #shape))) do
    dims[i] = shape[a + 1]
    if dims[i] < 0 then
      errors.raise("ValueError", ("Normalization: axis %d of the input %s is "
        .. "not known"):format(a, text.shape(shape)))
    end
    axes[a == #shape - 1 and -1 or a] = dims[i]
  end
  for _, name in ipairs { "mean", "variance" } do
    self["adapt_" .. name] = self:add_weight { name = name, shape = dims,
      trainable = false, initializer = name == "mean" and "zeros" or "ones" }
  end
  self.count = self:add_weight { name = "count", dtype = "int64",
    trainable = false, initializer = "zeros" }
  self.input_spec = { axes = axes }
end

-- Batches of a tensor, a list of numbers or anything with iter().
local function batches_of(what, data)
  if type(data) == "userdata" or text.is_plain(data) then
    local done = false
    return function()
      if not done then
        done = true
        return data
      end
      return nil
    end
  elseif type(data) ~= "table" or type(data.iter) ~= "function" then
    errors.raise("TypeError", ("%s: data must be a tensor, a list of numbers or "
      .. "a dataset of batches, got %s"):format(what, text.describe(data)))
  end
  return data:iter()
end

-- The moments of a batch along the kept axes, and how many values each is of.
local function moments(self, x)
  local kept, others = split_axes(self, #x.shape)
  for i, a in ipairs(kept) do
    local want = self.adapt_mean.shape[i]
    if x.shape[a + 1] ~= want then
      errors.raise("ValueError", ("Normalization:adapt: a batch has shape %s; "
        .. "expected %d on axis %d, for which the layer was built"):format(
        text.shape(x.shape), want, a))
    end
  end
  local n = 1
  for _, a in ipairs(others) do
    n = n * x.shape[a + 1]
  end
  x = tf.cast(x, "float64")
  local mean = tf.reduce_mean(x, { axis = others, keepdims = true })
  return n, tf.reshape(mean, self.adapt_mean.shape), tf.reduce_mean(
    tf.square(x - mean), { axis = others })
end

--- Mean and variance of data: a tensor, or a dataset of batches of tensors.
--- Batches are joined by their squares around the means, of which none is below
--- 0: a mean of squares less the square of the mean may be, and has no root.
--- Source: tf.keras.layers.Normalization.adapt
Norm.adapt = options.method("Normalization:adapt", "data",
  function(self, data)
    if self._own.config.mean ~= nil then
      errors.raise("ValueError", "Normalization:adapt: the layer was given mean "
        .. "and variance")
    end
    local mean, variance, count = nil, nil, 0
    for batch in batches_of("Normalization:adapt", data) do
      local x = to_float(self, tf.convert_to_tensor(batch))
      call.build_inner(self, x.shape)
      local n, m, v = moments(self, x)
      count = count + n
      if n > 0 then
        local part, before = n / count, mean or m
        mean = before + (m - before) * part
        variance = ((variance or v) + tf.square(before - mean)) * (1 - part)
          + (v + tf.square(m - mean)) * part
      end
    end
    if mean == nil then
      errors.raise("ValueError", "Normalization: adapt got no data")
    end
    self.adapt_mean:assign(tf.cast(mean, self.dtype))
    self.adapt_variance:assign(tf.cast(variance, self.dtype))
    self.count:assign(tf.constant(count, "int64"))
  end, base.is_layer, "layer")

--- (x - mean) / sqrt(variance) along `axis` (a number, a list or "none"), with
--- moments that are given or found by adapt; `invert` goes back.
--- Source: tf.keras.layers.Normalization
M.Normalization = define.layer("Normalization", "axis=-1 mean=nil "
  .. "variance=nil invert=false", {
  supports_masking = true,
  setup = Norm.setup, build = Norm.build, adapt = Norm.adapt,
  call = function(self, x)
    local config = self._own.config
    x = to_float(self, x)
    local shape = x.shape
    local mean, variance = self.adapt_mean, self.adapt_variance
    if config.mean ~= nil then
      mean = tf.convert_to_tensor(config.mean, { dtype_hint = x.dtype })
      variance = tf.convert_to_tensor(config.variance, { dtype_hint = x.dtype })
    end
    local deviation = tf.maximum(tf.sqrt(spread(self, variance, shape)), 1e-7)
    mean = spread(self, mean, shape)
    if config.invert then
      return mean + x * deviation
    end
    return (x - mean) / deviation
  end,
  compute_output_shape = same_shape,
})

-- What was given, else what adapt found in a shape that broadcasts to inputs;
-- nil before the layer is built.
local function moment(name)
  return function(self)
    local own = self._own
    if own.config[name] ~= nil or not own.built then
      return own.config[name]
    end
    return spread(self, self["adapt_" .. name]:read_value(), own.build_shape)
  end
end

M.Normalization.getters = setmetatable({ mean = moment "mean",
  variance = moment "variance" }, { __index = base.Layer.getters })

-- Images ----------------------------------------------------------------------

-- Positions of height and width in a shape of rank 3 or 4, from 1.
local function image_axes(self, shape)
  if #shape ~= 3 and #shape ~= 4 then
    errors.raise("InvalidArgument", ("%s: the input has shape %s; expected an "
      .. "image or a batch of them"):format(self.name, text.shape(shape)))
  end
  return #shape - 2, #shape - 1
end

local function with_size(self, shape)
  local out = copy(shape)
  local h, w = image_axes(self, shape)
  out[h], out[w] = self.height, self.width
  return out
end

local function check_size(self, config)
  support.size(self, "height", config.height)
  support.size(self, "width", config.width)
end

local function crop(x, top, left, height, width)
  local dims = x.shape
  local n = #dims
  local begin = n == 4 and { 0, top, left, 0 } or { top, left, 0 }
  dims[n - 2], dims[n - 1] = height, width
  return tf.slice(x, begin, dims)
end

-- The largest part of the wanted shape in the middle, resized.
local function smart_resize(x, height, width, method)
  local dims = x.shape
  local h, w = dims[#dims - 2], dims[#dims - 1]
  local ch = math.min(h, math.floor(w * height / width))
  local cw = math.min(w, math.floor(h * width / height))
  local part = crop(x, math.floor((h - ch) / 2), math.floor((w - cw) / 2), ch,
    cw)
  return tf.image.resize(part, { height, width }, method or "bilinear")
end

local METHODS = {
  "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian",
  "mitchellcubic",
}

--- Source: tf.keras.layers.Resizing
M.Resizing = define.layer("Resizing", "height:i width:i "
  .. "interpolation='bilinear' crop_to_aspect_ratio=false", {
  setup = function(self, config)
    check_size(self, config)
    self._own.method = options.choice("Resizing", "interpolation",
      config.interpolation, METHODS)
  end,
  call = function(self, x)
    image_axes(self, x.shape)
    if self.crop_to_aspect_ratio then
      return to_float(self, smart_resize(x, self.height, self.width,
        self._own.method))
    end
    return to_float(self, tf.image.resize(x, { self.height, self.width },
      self._own.method))
  end,
  compute_output_shape = with_size,
})

-- The middle of x; smaller images are resized.
local function center(self, x)
  local dims = x.shape
  local at_h, at_w = image_axes(self, dims)
  local h, w = dims[at_h] - self.height, dims[at_w] - self.width
  if h < 0 or w < 0 then
    return to_float(self, smart_resize(x, self.height, self.width))
  end
  return to_float(self, crop(x, math.floor(h / 2), math.floor(w / 2),
    self.height, self.width))
end

--- Source: tf.keras.layers.CenterCrop
M.CenterCrop = define.layer("CenterCrop", "height:i width:i", {
  setup = check_size,
  call = center,
  compute_output_shape = with_size,
})

local function draw(n, seed)
  return math.min(n, math.floor(tf.random.uniform({}, 0, n + 1, "float32",
    seed):item()))
end

--- In training a part at a random place, the same for the batch; else the
--- middle. Source: tf.keras.layers.RandomCrop
M.RandomCrop = define.layer("RandomCrop", "height:i width:i seed=nil", {
  setup = check_size,
  call = function(self, x, opts)
    local dims = x.shape
    local at_h, at_w = image_axes(self, dims)
    local h, w = dims[at_h] - self.height, dims[at_w] - self.width
    if not opts.training or h < 0 or w < 0 then
      return center(self, x)
    end
    return to_float(self, crop(x, draw(h, self.seed), draw(w, self.seed),
      self.height, self.width))
  end,
  compute_output_shape = with_size,
})

local FLIPS = { "horizontal_and_vertical", "horizontal", "vertical" }

--- In training every image of the batch is mirrored or not by chance.
--- Source: tf.keras.layers.RandomFlip
M.RandomFlip = define.layer("RandomFlip", "mode='horizontal_and_vertical' "
  .. "seed=nil", {
  setup = function(self, config)
    self._own.mode = options.choice("RandomFlip", "mode", config.mode, FLIPS)
  end,
  call = function(self, x, opts)
    x = to_float(self, x)
    if not opts.training then
      return x
    end
    local dims = x.shape
    local at_h, at_w = image_axes(self, dims)
    local coins = #dims == 4 and { dims[1], 1, 1, 1 } or { 1, 1, 1 }
    for _, entry in ipairs { { "horizontal", at_w }, { "vertical", at_h } } do
      if self._own.mode:find(entry[1], 1, true) then
        local flip = tf.less(tf.random.uniform(coins, 0, 1, "float32",
          self.seed), 0.5)
        x = tf.where(flip, tf.reverse(x, { entry[2] - 1 }), x)
      end
    end
    return x
  end,
  compute_output_shape = same_shape,
})

-- Whole numbers ---------------------------------------------------------------

local OUTPUTS = { "multi_hot", "one_hot", "count" }

--- Whole numbers below num_tokens as rows of num_tokens numbers: 1 at each one
--- that occurs (multi_hot), how often it occurs (count), or a row for each
--- (one_hot).
--- Errors: InvalidArgument for a number outside.
--- Source: tf.keras.layers.CategoryEncoding
M.CategoryEncoding = define.layer("CategoryEncoding", "num_tokens:i "
  .. "output_mode='multi_hot' sparse=false", {
  autocast = "lists",
  setup = function(self, config)
    support.size(self, "num_tokens", config.num_tokens)
    self._own.mode = options.choice("CategoryEncoding", "output_mode",
      config.output_mode, OUTPUTS)
    if config.sparse then
      errors.raise("NotImplementedError", "CategoryEncoding: sparse is not "
        .. "implemented")
    end
  end,
  call = function(self, x)
    x = tf.cast(x, "int32")
    local n = self.num_tokens
    if x:size() > 0 then
      local low, high = tf.reduce_min(x):item(), tf.reduce_max(x):item()
      if low < 0 or high >= n then
        errors.raise("InvalidArgument", ("%s: %s is outside 0..%d"):format(
          self.name, text.number(low < 0 and low or high), n - 1))
      end
    end
    local dims = x.shape
    local hot = tf.one_hot(x, n, { dtype = self._own.dtype })
    if self._own.mode == "one_hot" then
      return #dims > 1 and dims[#dims] == 1 and tf.squeeze(hot, { #dims - 1 })
        or hot
    elseif #dims == 0 then
      return hot
    end
    local axis = #dims == 1 and 0 or #dims - 1
    return self._own.mode == "count" and tf.reduce_sum(hot, { axis = axis })
      or tf.reduce_max(hot, { axis = axis })
  end,
  output_dtype = function(self)
    return self._own.dtype
  end,
  compute_output_shape = function(self, shape)
    local out = copy(shape)
    if self._own.mode == "one_hot" then
      if #out > 1 and out[#out] == 1 then
        out[#out] = nil
      end
      out[#out + 1] = self.num_tokens
    elseif #out <= 1 then
      out = { self.num_tokens }
    else
      out[#out] = self.num_tokens
    end
    return out
  end,
})

--- The number of boundaries that are not above each element.
--- Source: tf.keras.layers.Discretization
M.Discretization = define.layer("Discretization", "bin_boundaries:l", {
  setup = function(self, config)
    local list = config.bin_boundaries
    for i = 1, text.is_plain(list) and #list or 0 do
      if type(list[i]) ~= "number" or (i > 1 and list[i] <= list[i - 1]) then
        list = nil
        break
      end
    end
    if not text.is_plain(list) then
      errors.raise("ValueError", "Discretization: bin_boundaries must be a "
        .. "list of rising numbers, got "
        .. text.describe(config.bin_boundaries))
    end
    self._own.boundaries = list
  end,
  call = function(self, x)
    local bins = tf.constant(self._own.boundaries, x.dtype)
    local flat = tf.reshape(x, { x:size() })
    return tf.cast(tf.reshape(tf.searchsorted(bins, flat, "right"), x.shape),
      "int32")
  end,
  output_dtype = function()
    return "int32"
  end,
  compute_output_shape = same_shape,
})

--- Numbers of a vocabulary by their place in it; others get the places before
--- the first. `invert` goes back.
--- Source: tf.keras.layers.IntegerLookup
M.IntegerLookup = define.layer("IntegerLookup", "max_tokens=nil "
  .. "num_oov_indices=1 mask_token=nil oov_token=-1 vocabulary=nil "
  .. "invert=false output_mode='int'", {
  autocast = "lists",
  setup = function(self, config)
    local own = self._own
    if config.output_mode ~= "int" then
      errors.raise("NotImplementedError", "IntegerLookup: output_mode other "
        .. "than int is not implemented", "CategoryEncoding encodes indices")
    end
    options.integer("IntegerLookup", "num_oov_indices",
      config.num_oov_indices, 0, 1)
    own.words = config.vocabulary and convert.integers(config.vocabulary,
      "IntegerLookup", "vocabulary")
  end,
  --- The vocabulary from data, frequent numbers first.
  adapt = options.method("IntegerLookup:adapt", "data", function(self, data)
    local counts, list = {}, {}
    for batch in batches_of("IntegerLookup:adapt", data) do
      for _, x in ipairs(tf.convert_to_tensor(batch):toflat()) do
        if counts[x] == nil then
          counts[x] = 0
          list[#list + 1] = x
        end
        counts[x] = counts[x] + 1
      end
    end
    table.sort(list, function(a, b)
      if counts[a] ~= counts[b] then
        return counts[a] > counts[b]
      end
      return a > b
    end)
    local config = self._own.config
    local room = config.max_tokens and config.max_tokens
      - config.num_oov_indices - (config.mask_token and 1 or 0)
    for i = #list, (room or #list) + 1, -1 do
      list[i] = nil
    end
    self._own.words = list
    config.vocabulary = list
    self._own.tables = nil
  end, base.is_layer, "layer"),
  get_vocabulary = function(self)
    local config, out = self._own.config, {}
    if config.mask_token ~= nil then
      out[1] = config.mask_token
    end
    for _ = 1, config.num_oov_indices do
      out[#out + 1] = config.oov_token
    end
    for _, x in ipairs(self._own.words or {}) do
      out[#out + 1] = x
    end
    return out
  end,
  call = function(self, x)
    local own, config = self._own, self._own.config
    if own.words == nil then
      errors.raise("ValueError", self.name .. ": there is no vocabulary",
        "give vocabulary, or call adapt with data")
    end
    local list = self:get_vocabulary()
    local place = {}
    local first = #list - #own.words
    for i, word in ipairs(list) do
      if i > first or (config.mask_token ~= nil and i == 1) then
        place[word] = i - 1
      end
    end
    local flat, out = x:toflat(), {}
    local missing = config.mask_token ~= nil and 1 or 0
    for i, value in ipairs(flat) do
      if config.invert then
        out[i] = list[value + 1] or config.oov_token
      else
        out[i] = place[value]
        if out[i] == nil and config.num_oov_indices == 0 then
          errors.raise("InvalidArgument", ("%s: %s is not in the vocabulary")
            :format(self.name, text.number(value)))
        end
        out[i] = out[i] or missing
      end
    end
    return tf.reshape(tf.constant(out, "int64"), x.shape)
  end,
  output_dtype = function()
    return "int64"
  end,
  compute_output_shape = same_shape,
})

return M
