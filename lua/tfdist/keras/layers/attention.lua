--- Attention and MultiHeadAttention.
--- Source: tf.keras.layers.Attention, tf.keras.layers.MultiHeadAttention
local call = require "tfdist.keras.layers.call"
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local support = require "tfdist.keras.layers.support"
local symbolic = require "tfdist.keras.layers.symbolic"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local function wrong_inputs(self)
  errors.raise("ValueError", self.name .. ": expects { query, value } or "
    .. "{ query, value, key }")
end

local function list_of(self, inputs)
  if not nest.is_nested(inputs) or #inputs < 2 or #inputs > 3 then
    wrong_inputs(self)
  end
  return inputs
end

local function shapes_of(self, shapes)
  for i = 1, #list_of(self, shapes) do
    if not symbolic.is_shape(shapes[i]) then
      wrong_inputs(self)
    end
  end
  return shapes
end

-- Scores of forbidden positions become as low as the dtype has room for.
local function forbid(scores, allowed)
  if allowed == nil then
    return scores
  end
  return scores + (1 - tf.cast(allowed, scores.dtype))
    * (scores.dtype == "float16" and -65504 or -1e9)
end

-- {1, n, m} that is true where key j is not after query i.
local function causal(n, m)
  return tf.expand_dims(tf.linalg.band_part(tf.ones { n, m }, -1, 0), 0)
end

local function both(a, b)
  if a == nil or b == nil then
    return a or b
  end
  return tf.cast(a, "float32") * tf.cast(b, "float32")
end

-- The mask of an input, {batch, steps} as its first two axes; nil where there is
-- none. An input of one example goes with each of the other's, as its mask may.
local function mask_of(self, name, masks, i, x, other)
  local mask = nest.is_nested(masks) and masks[i]
  if type(mask) ~= "userdata" then
    return nil
  end
  local batch = x.shape[1] == 1 and other.shape[1] or x.shape[1]
  local dims, want = mask.shape, { batch, x.shape[2] }
  for axis = 1, 2 do
    if #dims ~= 2 or dims[axis] ~= want[axis] and dims[axis] ~= 1 then
      errors.raise("InvalidArgument", ("%s: the mask of %s has shape %s; "
        .. "expected %s, its batch and steps"):format(self.name, name,
        text.shape(dims), text.shape(want)))
    end
  end
  return mask
end

--- Luong's attention: softmax(query key') value.
--- Shapes: inputs { query {batch, n, d}, value {batch, m, d}[, key {batch, m,
---   d}] }; the result is {batch, n, d}, scores {batch, n, m} come second with
---   return_attention_scores.
--- Source: tf.keras.layers.Attention
M.Attention = define.layer("Attention", "use_scale=false score_mode='dot' "
  .. "dropout=0 seed=nil causal=false", {
  call_options = { "return_attention_scores", "use_causal_mask" },
  check_inputs = function(self, inputs)
    return support.check_tensors(self, list_of(self, inputs))
  end,
  setup = function(self, config)
    support.rate(self, "dropout", config.dropout)
    if config.score_mode ~= "dot" and config.score_mode ~= "concat" then
      errors.raise("ValueError", "Attention: score_mode must be dot or concat, "
        .. "got " .. text.describe(config.score_mode))
    end
  end,
  build = function(self)
    if self.use_scale then
      self.scale = self:add_weight { name = "scale", shape = {},
        initializer = "ones" }
    end
    if self.score_mode == "concat" then
      self.concat_score_weight = self:add_weight {
        name = "concat_score_weight", shape = {}, initializer = "ones" }
    end
  end,
  scores = function(self, query, key)
    if self.score_mode == "dot" then
      local scores = tf.matmul(query, key, { transpose_b = true })
      return self.scale and scores * self.scale or scores
    end
    local total = tf.expand_dims(query, -2) + tf.expand_dims(key, -3)
    return tf.reduce_sum(tf.tanh(self.scale and total * self.scale or total),
      { axis = -1 }) * self.concat_score_weight
  end,
  call = function(self, inputs, options)
    list_of(self, inputs)
    local query, value = inputs[1], inputs[2]
    local key = inputs[3] or value
    local scores = self:scores(query, key)
    local seen = mask_of(self, "value", options.mask, 2, value, query)
    local allowed = seen and tf.expand_dims(seen, 1)
    if self.causal or options.use_causal_mask then
      local dims = scores.shape
      allowed = both(allowed, causal(dims[2], dims[3]))
    end
    local weights = tf.nn.softmax(forbid(scores, allowed))
    if options.training and self.dropout > 0 then
      weights = tf.nn.dropout(weights, self.dropout, nil, self.seed)
    end
    local y = tf.matmul(weights, value)
    local asked = mask_of(self, "query", options.mask, 1, query, value)
    if asked ~= nil then
      y = y * tf.expand_dims(tf.cast(asked, y.dtype), -1)
    end
    if options.return_attention_scores then
      return y, weights
    end
    return y
  end,
  compute_mask = function(_, _, mask)
    return nest.is_nested(mask) and type(mask[1]) == "userdata" and mask[1]
      or nil
  end,
  compute_output_shape = function(self, shapes, options)
    shapes_of(self, shapes)
    local q, v = shapes[1], shapes[2]
    if options and options.return_attention_scores then
      return { q[1], q[2], v[3] }, { q[1], q[2], v[2] }
    end
    return { q[1], q[2], v[3] }
  end,
})

--- Bahdanau's attention: softmax(sum(scale tanh(query + key))) value.
--- Shapes: as Attention; scale {d}.
--- Source: tf.keras.layers.AdditiveAttention
M.AdditiveAttention = define.layer("AdditiveAttention", "use_scale=true "
  .. "dropout=0 seed=nil causal=false", {
  super = M.Attention,
  setup = function(self, config)
    support.rate(self, "dropout", config.dropout)
  end,
  build = function(self, shapes)
    local value = shapes_of(self, shapes)[2]
    if self.use_scale then
      self.scale = self:add_weight { name = "scale",
        shape = { value[#value] }, initializer = "glorot_uniform" }
    end
  end,
  scores = function(self, query, key)
    local total = tf.tanh(tf.expand_dims(query, -2) + tf.expand_dims(key, -3))
    return tf.reduce_sum(self.scale and total * self.scale or total,
      { axis = -1 })
  end,
})

-- MultiHeadAttention ----------------------------------------------------------

local Heads = {}

local function last_size(self, shape, what)
  local n = shape[#shape]
  if n == nil or n < 0 or #shape ~= 3 then
    errors.raise("InvalidArgument", ("%s: %s has shape %s; expected {batch, "
      .. "steps, features}"):format(self.name, what, text.shape(shape)))
  end
  return n
end

local function add_projection(self, name, rows, heads, size)
  self[name .. "_kernel"] = self:add_weight {
    name = name .. "/kernel", shape = { rows, heads, size },
    initializer = self.kernel_initializer,
    regularizer = self.kernel_regularizer,
    constraint = self.kernel_constraint,
  }
  if self.use_bias then
    self[name .. "_bias"] = self:add_weight {
      name = name .. "/bias", shape = { heads, size },
      initializer = self.bias_initializer,
      regularizer = self.bias_regularizer, constraint = self.bias_constraint,
    }
  end
end

function Heads.make(self, query, value, key)
  local own = self._own
  if own.made then
    return
  end
  own.made = true
  local heads, size = self.num_heads, self.key_dim
  local features = last_size(self, query, "query")
  add_projection(self, "query", features, heads, size)
  add_projection(self, "key", last_size(self, key, "key"), heads, size)
  add_projection(self, "value", last_size(self, value, "value"), heads,
    own.value_dim)
  local width = own.output_size or features
  self.output_kernel = self:add_weight {
    name = "attention_output/kernel", shape = { heads, own.value_dim, width },
    initializer = self.kernel_initializer,
    regularizer = self.kernel_regularizer,
    constraint = self.kernel_constraint,
  }
  if self.use_bias then
    self.output_bias = self:add_weight {
      name = "attention_output/bias", shape = { width },
      initializer = self.bias_initializer,
      regularizer = self.bias_regularizer, constraint = self.bias_constraint,
    }
  end
end

-- Refuse inputs of other sizes than those that the layer was built for, and
-- such as would broadcast.
function Heads.check(self, query, value, key)
  local q, v = query.shape, value.shape
  for _, given in ipairs { { "query", query }, { "value", value },
    { "key", key } } do
    local name, dims = given[1], given[2].shape
    local features = self[name .. "_kernel"].shape[1]
    if #dims ~= 3 or dims[3] ~= features then
      errors.raise("InvalidArgument", ("%s: %s has shape %s; expected {batch, "
        .. "steps, %d}, for which the layer was built"):format(self.name, name,
        text.shape(dims), features))
    elseif dims[1] ~= q[1] or name == "key" and dims[2] ~= v[2] then
      local other = dims[1] ~= q[1] and "query" or "value"
      errors.raise("InvalidArgument", ("%s: %s has shape %s, %s %s; their %s "
        .. "must be equal"):format(self.name, name, text.shape(dims), other,
        text.shape(other == "query" and q or v), other == "query" and "batches"
        or "steps"))
    end
  end
end

-- A mask that goes with scores of these sizes, {batch, heads, n, m}: one of
-- {n, m} for all, of {batch, n, m} for all heads, or whole.
local function mask_for(what, given, sizes)
  local dims = given.shape
  local rank = #dims
  local fits = rank >= 2 and rank <= 4
  for axis = 1, fits and rank or 0 do
    local want = rank == 3 and axis == 1 and sizes[1] or sizes[4 - rank + axis]
    fits = fits and (dims[axis] == want or dims[axis] == 1)
  end
  if not fits then
    errors.raise("InvalidArgument", ("%s: attention_mask has shape %s; expected "
      .. "%s, {batch, steps of query, steps of value}"):format(what,
      text.shape(dims), text.shape { sizes[1], sizes[3], sizes[4] }))
  end
  return rank == 3 and tf.expand_dims(given, 1) or given
end

-- {batch, steps, in} by {in, heads, size} to {batch, heads, steps, size}.
local function project(x, kernel, bias)
  local dims, k = x.shape, kernel.shape
  local y = tf.matmul(tf.reshape(x, { dims[1] * dims[2], dims[3] }),
    tf.reshape(kernel, { k[1], k[2] * k[3] }))
  y = tf.reshape(y, { dims[1], dims[2], k[2], k[3] })
  if bias ~= nil then
    y = y + bias
  end
  return tf.transpose(y, { 0, 2, 1, 3 })
end

local function operand_of(self, x, name)
  return convert.operand(call.to_inputs(self, x, self._own.dtype, true), nil,
    self.name, name)
end

-- 1 where a query may see a key, {batch, 1, n, m}; nil without any mask.
local function allowed_of(self, options, query, value, key)
  local mask
  local given = options.attention_mask
  if given ~= nil then
    given = convert.operand(given, "bool", self.name, "attention_mask")
    mask = mask_for(self.name, given, { query.shape[1], self.num_heads,
      query.shape[2], value.shape[2] })
  end
  local masks = options.masks or {}
  if masks.query then
    mask = both(mask, tf.reshape(masks.query, { query.shape[1], 1,
      query.shape[2], 1 }))
  end
  for _, m in ipairs { masks.value or false, masks.key or false } do
    if m then
      mask = both(mask, tf.reshape(m, { value.shape[1], 1, 1,
        value.shape[2] }))
    end
  end
  if options.use_causal_mask then
    mask = both(mask, tf.expand_dims(causal(query.shape[2], key.shape[2]), 0))
  end
  return mask
end

--- Several attentions side by side: `layer(query, value)`, `layer(query, value,
--- { key = , attention_mask = , return_attention_scores = , use_causal_mask =
--- })`.
--- Shapes: query {batch, n, d}, value and key {batch, m, e}; the result is
---   {batch, n, output_shape or d}, scores {batch, heads, n, m};
---   attention_mask {batch, n, m}.
--- Source: tf.keras.layers.MultiHeadAttention
M.MultiHeadAttention = define.layer("MultiHeadAttention", "num_heads:i "
  .. "key_dim:i value_dim=nil dropout=0 use_bias=true output_shape=nil "
  .. "attention_axes=nil kernel_initializer='glorot_uniform' "
  .. "bias_initializer='zeros' kernel_regularizer=nil bias_regularizer=nil "
  .. "activity_regularizer=nil kernel_constraint=nil bias_constraint=nil", {
  call_arguments = { "value", "key" },
  call_options = { "attention_mask", "return_attention_scores",
    "use_causal_mask" },
  supports_masking = true,
  setup = function(self, config)
    support.size(self, "num_heads", config.num_heads)
    support.size(self, "key_dim", config.key_dim)
    support.rate(self, "dropout", config.dropout)
    if config.attention_axes ~= nil then
      errors.raise("NotImplementedError", "MultiHeadAttention: attention_axes "
        .. "is not implemented; attention is over axis 1")
    end
    local own = self._own
    own.value_dim = support.size(self, "value_dim", config.value_dim
      or config.key_dim)
    own.output_size = config.output_shape and support.tuple(self,
      "output_shape", config.output_shape, 1)[1]
  end,
  build = function()
    -- The weights need the value's shape, which the call knows.
  end,
  call = function(self, query, options)
    local value = options.value
    if value == nil then
      errors.raise("TypeError", self.name .. ": missing argument value",
        "layer(query, value)")
    end
    options.masks = {
      query = call.mask_of(query), value = call.mask_of(value),
      key = options.key and call.mask_of(options.key),
    }
    value = operand_of(self, value, "value")
    local key = options.key and operand_of(self, options.key, "key") or value
    Heads.make(self, query.shape, value.shape, key.shape)
    Heads.check(self, query, value, key)
    local q = project(query, self.query_kernel, self.query_bias)
    local k = project(key, self.key_kernel, self.key_bias)
    local v = project(value, self.value_kernel, self.value_bias)
    local scores = tf.matmul(q * (1 / math.sqrt(self.key_dim)), k,
      { transpose_b = true })
    local allowed = allowed_of(self, options, query, value, key)
    local weights = tf.nn.softmax(forbid(scores, allowed))
    if allowed ~= nil
      and (self.dropout > 0 or options.return_attention_scores) then
      -- Keras gives queries that may see nothing zeros here, else means.
      weights = weights * tf.cast(allowed, weights.dtype)
    end
    local used = weights
    if options.training and self.dropout > 0 then
      used = tf.nn.dropout(weights, self.dropout)
    end
    local y = tf.transpose(tf.matmul(used, v), { 0, 2, 1, 3 })
    local dims, o = y.shape, self.output_kernel.shape
    y = tf.matmul(tf.reshape(y, { dims[1] * dims[2], dims[3] * dims[4] }),
      tf.reshape(self.output_kernel, { o[1] * o[2], o[3] }))
    y = tf.reshape(y, { dims[1], dims[2], o[3] })
    if self.output_bias ~= nil then
      y = y + self.output_bias
    end
    if options.return_attention_scores then
      return y, weights
    end
    return y
  end,
  compute_mask = function(_, query)
    return call.mask_of(query)
  end,
  compute_output_shape = function(self, shape, options)
    local value = options and options.value and options.value.shape or shape
    local key = options and options.key and options.key.shape or value
    Heads.make(self, shape, value, key)
    local out = { shape[1], shape[2], self._own.output_size or shape[3] }
    if options and options.return_attention_scores then
      return out, { shape[1], self.num_heads, shape[2], key[2] }
    end
    return out
  end,
})

return M
