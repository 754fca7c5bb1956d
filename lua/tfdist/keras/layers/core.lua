--- Dense, Activation, Flatten, Reshape, Permute, RepeatVector, Lambda, Masking,
--- Embedding, InputLayer and operators on KerasTensors.
local backend = require "tfdist.keras.backend"
local base = require "tfdist.keras.layers.base"
local call = require "tfdist.keras.layers.call"
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local keras_tensor = require "tfdist.keras.layers.keras_tensor"
local lists = require "tfdist.base.lists"
local nest = require "tfdist.base.nest"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local support = require "tfdist.keras.layers.support"
local symbolic = require "tfdist.keras.layers.symbolic"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local copy, product = lists.copy, support.product

local function last(shape)
  return shape[#shape]
end

--- activation(x kernel + bias) over the last axis.
--- Shapes: {..., in} to {..., units}; kernel {in, units}, bias {units}.
--- Source: tf.keras.layers.Dense
M.Dense = define.layer("Dense", "units:i activation=nil use_bias=true "
  .. support.WEIGHTS, {
  supports_masking = true,
  setup = function(self, config)
    support.size(self, "units", config.units)
    self._own.activation = support.activation(config.activation)
    self.input_spec = { min_ndim = 2 }
  end,
  build = function(self, shape)
    local size = last(shape)
    support.add(self, "kernel", { size, self.units })
    if self.use_bias then
      support.add(self, "bias", { self.units })
    end
    self.input_spec = { min_ndim = 2, axes = { [-1] = size } }
  end,
  call = function(self, x)
    local own = self._own
    local t = raw.operand_tensor(x)
    if raw.tensor_dtype(t) ~= own.dtype then
      x = tf.cast(x, own.dtype)
    end
    local y
    if raw.tensor_rank(t) == 2 then
      y = tf.matmul(x, self.kernel)
    else
      local dims = x.shape
      local rows = product(dims, 1, #dims - 1)
      y = tf.matmul(tf.reshape(x, { rows, last(dims) }), self.kernel)
      dims[#dims] = own.config.units
      y = tf.reshape(y, dims)
    end
    return support.finish(y, own.config.use_bias and self.bias or nil,
      own.activation)
  end,
  compute_output_shape = function(self, shape)
    local out = copy(shape)
    out[#out] = self.units
    return out
  end,
})

local same_shape = support.same_shape

--- A function by name or as such. Source: tf.keras.layers.Activation
M.Activation = define.layer("Activation", "activation:f", {
  check_inputs = call.any_structure,
  supports_masking = true,
  setup = function(self, config)
    self._own.activation = support.activation(config.activation)
  end,
  call = function(self, x)
    local f = self._own.activation
    return f and f(x) or x
  end,
  -- What becomes of a structure only the function knows.
  compute_output_shape = function(self, shape)
    if self._own.activation ~= nil and not symbolic.is_shape(shape) then
      return base.Layer.compute_output_shape(self, shape)
    end
    return same_shape(self, shape)
  end,
})

--- What it gets. Source: tf.keras.layers.Identity
M.Identity = define.layer("Identity", "", {
  any_inputs = true,
  supports_masking = true,
  keeps_dtype = true,
  call = function(_, x)
    return x
  end,
  compute_output_shape = same_shape,
})

-- The batch's size before others, of which one may be -1.
local function behind_batch(what, dims, ...)
  for i = 1, dims[1] < 0 and select("#", ...) or 0 do
    if select(i, ...) < 0 then
      raw.refuse_open(dims, what)
    end
  end
  return { dims[1], ... }
end

--- All axes but the batch in one.
--- Source: tf.keras.layers.Flatten
M.Flatten = define.layer("Flatten", "data_format=nil", {
  keeps_dtype = true,
  setup = function(self, config)
    self._own.format = support.format(self, config.data_format, 1)
    self.input_spec = { min_ndim = 1 }
  end,
  call = function(self, x)
    local dims = tensor.shape_of(x)
    if #dims == 1 then
      return tf.expand_dims(x, 1)
    elseif self._own.format == "channels_first" and #dims > 2 then
      local perm = { 0 }
      for axis = 2, #dims - 1 do
        perm[axis] = axis
      end
      perm[#dims] = 1
      x = tf.transpose(x, perm)
    end
    return tf.reshape(x, behind_batch("Flatten", dims, product(dims, 2, #dims)))
  end,
  compute_output_shape = function(_, shape)
    return { shape[1], product(shape, 2, #shape) }
  end,
})

-- target with its -1 found from the sizes there are.
local function resolve(self, shape, target)
  local total = product(shape, 2, #shape)
  local known, at = 1, nil
  for i = 1, #target do
    if target[i] == -1 then
      at = i
    else
      known = known * target[i]
    end
  end
  local out = copy(target)
  if at ~= nil then
    if total < 0 or (known > 0 and total % known == 0) then
      out[at] = total >= 0 and math.floor(total / known) or -1
      known = total
    end
  end
  if total >= 0 and (known ~= total or product(out, 1, #out) ~= total) then
    errors.raise("ValueError", ("%s: %s elements do not fill shape %s"):format(
      self.name, text.number(total), text.shape(target)))
  end
  return out
end

--- Source: tf.keras.layers.Reshape
M.Reshape = define.layer("Reshape", "target_shape:l", {
  keeps_dtype = true,
  setup = function(self, config)
    local shape = convert.integers(config.target_shape, "Reshape",
      "target_shape")
    local open = 0
    for i = 1, #shape do
      if shape[i] == -1 then
        open = open + 1
      elseif shape[i] < 0 then
        open = 2
      end
    end
    if open > 1 then
      errors.raise("ValueError", ("Reshape: target_shape is %s; one size at "
        .. "most may be -1"):format(text.shape(shape)))
    end
    self._own.target = shape
    self.input_spec = { min_ndim = 1 }
  end,
  call = function(self, x)
    local dims = tensor.shape_of(x)
    return tf.reshape(x, behind_batch("Reshape", dims,
      unpack(resolve(self, dims, self._own.target))))
  end,
  compute_output_shape = function(self, shape)
    return { shape[1], unpack(resolve(self, shape, self._own.target)) }
  end,
})

--- Reorder the axes after the batch; dims counts them from 1 as Keras does.
--- Source: tf.keras.layers.Permute
M.Permute = define.layer("Permute", "dims:l", {
  keeps_dtype = true,
  setup = function(self, config)
    local dims = convert.integers(config.dims, "Permute", "dims")
    local sorted = copy(dims)
    table.sort(sorted)
    for i = 1, #sorted do
      if sorted[i] ~= i then
        errors.raise("ValueError", ("Permute: dims is %s; expected each of 1 "
          .. "to %d once"):format(text.shape(dims), #dims))
      end
    end
    self._own.dims = dims
    self.input_spec = { ndim = #dims + 1 }
  end,
  call = function(self, x)
    return tf.transpose(x, { 0, unpack(self._own.dims) })
  end,
  compute_output_shape = function(self, shape)
    local out = { shape[1] }
    for i, axis in ipairs(self._own.dims) do
      out[i + 1] = shape[axis + 1]
    end
    return out
  end,
})

--- {batch, features} n times along a new axis 1.
--- Source: tf.keras.layers.RepeatVector
M.RepeatVector = define.layer("RepeatVector", "n:i", {
  keeps_dtype = true,
  setup = function(self, config)
    support.size(self, "n", config.n)
    self.input_spec = { ndim = 2 }
  end,
  call = function(self, x)
    return tf.tile(tf.expand_dims(x, 1), { 1, self._own.config.n, 1 })
  end,
  compute_output_shape = function(self, shape)
    return { shape[1], self._own.config.n, shape[2] }
  end,
})

-- Functions as layers --------------------------------------------------------

--- A function of tensors as a layer. It gets the inputs and the call's options
--- (training, mask). Variables made inside are not the layer's.
--- Source: tf.keras.layers.Lambda
M.Lambda = define.layer("Lambda", "function_:f output_shape=nil mask=nil "
  .. "arguments:table=nil", {
  any_inputs = true,
  any_option = true,
  setup = function(self, config)
    text.check_callable("Lambda", "function_", config.function_)
  end,
  call = function(self, x, options)
    local given = {}
    for key, value in pairs(self._own.config.arguments or {}) do
      given[key] = value
    end
    for key, value in pairs(options) do
      given[key] = value
    end
    return self._own.config.function_(x, given)
  end,
  compute_mask = function(self, inputs, mask)
    local own = self._own.config.mask
    if type(own) == "function" then
      return own(inputs, mask)
    end
    return own
  end,
  compute_output_shape = function(self, shape)
    local own = self._own.config.output_shape
    if type(own) == "function" then
      return own(shape)
    elseif own ~= nil then
      return { shape[1], unpack(convert.integers(own, "Lambda",
        "output_shape")) }
    end
    return base.Layer.compute_output_shape(self, shape)
  end,
})

local ARITHMETIC = {
  add = true, subtract = true, multiply = true, divide = true, pow = true,
  floormod = true, negative = true,
}

--- What arithmetic and methods of KerasTensors become: inputs are the operands
--- in order.
M.TensorOp = define.layer("TensorOp", "op:s", {
  base_name = "tensor_op",
  check_inputs = function(self, args)
    if not nest.is_nested(args) then
      errors.raise("TypeError", self.name .. ": expects a list of operands, got "
        .. text.describe(args))
    elseif not ARITHMETIC[self._own.config.op] then
      support.check_tensors(self, { args[1] or false })
    end
    return args
  end,
  autocast = false,
  setup = function(_, config)
    local op = config.op
    if type(op) ~= "string"
      or not (ARITHMETIC[op] or keras_tensor.hooks.is_method(op)) then
      errors.raise("ValueError", "TensorOp: op must be the name of a method of "
        .. "tensors, got " .. text.describe(op))
    end
  end,
  call = function(self, args)
    local op = self._own.config.op
    if ARITHMETIC[op] then
      return tf.math[op](args[1], args[2])
    end
    return args[1][op](unpack(args, 1, args.n))
  end,
})

--- What x[key] of a KerasTensor becomes.
M.TensorSlice = define.layer("TensorSlice", "key=nil", {
  base_name = "tensor_slice",
  check_inputs = function(self, x)
    return support.check_tensors(self, { x })[1]
  end,
  autocast = false,
  call = function(self, x)
    return x[self._own.config.key]
  end,
})

function keras_tensor.hooks.slice(x, key)
  return M.TensorSlice({ key = key })(x)
end

function keras_tensor.hooks.is_method(name)
  return tensor.methods[name] ~= nil
    or tensor.lazy_methods[name] ~= nil
end

function keras_tensor.hooks.op(name, ...)
  return M.TensorOp(name)({ n = select("#", ...), ... })
end

-- Inputs ---------------------------------------------------------------------

--- The layer behind tf.keras.Input. Source: tf.keras.layers.InputLayer
M.InputLayer = define.layer("InputLayer", "input_shape=nil batch_size=nil "
  .. "dtype=nil sparse=nil ragged=nil", {
  base_name = "input",
  any_inputs = true,
  autocast = false,
  setup = function(self, config)
    for _, key in ipairs { "sparse", "ragged" } do
      if config[key] then
        errors.raise("NotImplementedError", "Input: " .. key .. " inputs are "
          .. "not implemented")
      end
    end
    local own = self._own
    own.name = own.name or "input_" .. backend.get_uid "input"
    if own.batch_input_shape == nil then
      errors.raise("ValueError", "Input: a shape is needed",
        "tf.keras.Input { 28, 28, 1 }")
    end
    for i, size in ipairs(own.batch_input_shape) do
      if size < -1 then
        errors.raise("ValueError", ("Input: axis %d of shape %s is negative; "
          .. "-1 is for sizes that are not known"):format(i - 1,
          text.shape(own.batch_input_shape)))
      end
    end
    base.set_policy(self, config.dtype or backend.floatx())
    own.built = true
    own.output_shape = copy(own.batch_input_shape)
    local node = { layer = self, inputs = {}, outputs = {} }
    node.outputs[1] = keras_tensor.new(copy(own.batch_input_shape), own.dtype,
      self.name, node, 1)
    node.results = { node.outputs[1], n = 1 }
    own.nodes = { node }
    own.output = node.outputs[1]
  end,
  compute_output_shape = function(self)
    return copy(self._own.batch_input_shape)
  end,
})

-- Masks and ids --------------------------------------------------------------

--- Steps whose features all equal mask_value do not count from here on.
--- Shapes: {batch, steps, ...}.
--- Source: tf.keras.layers.Masking
M.Masking = define.layer("Masking", "mask_value=0", {
  compute_mask = function(self, x)
    return tf.reduce_any(tf.not_equal(x, self.mask_value), { axis = -1 })
  end,
  call = function(self, x)
    local keep = tf.reduce_any(tf.not_equal(x, self.mask_value),
      { axis = -1, keepdims = true })
    return x * tf.cast(keep, x.dtype)
  end,
  compute_output_shape = same_shape,
})

local INDEX = { int32 = true, int64 = true }

--- Rows of a table by whole numbers from 0.
--- Shapes: {...} to {..., output_dim}.
--- Errors: InvalidArgument for an id outside of the table.
--- Source: tf.keras.layers.Embedding
M.Embedding = define.layer("Embedding", "input_dim:i output_dim:i "
  .. "embeddings_initializer='uniform' embeddings_regularizer=nil "
  .. "activity_regularizer=nil embeddings_constraint=nil mask_zero=false "
  .. "input_length=nil", {
  autocast = false,
  input_dtype = "int32",
  setup = function(self, config)
    support.size(self, "input_dim", config.input_dim)
    support.size(self, "output_dim", config.output_dim)
    local own = self._own
    own.open_length = config.input_length == nil
    if own.batch_input_shape == nil then
      own.batch_input_shape = { -1, unpack(convert.integers(
        config.input_length or -1, "Embedding", "input_length")) }
    end
  end,
  build = function(self)
    support.add(self, "embeddings", { self.input_dim, self.output_dim }, nil,
      false)
  end,
  call = function(self, x)
    x = convert.index_operand(x, self.name, "inputs")
    if not INDEX[x.dtype] then
      x = tf.cast(x, "int32")
    end
    -- Only the rows are cast, and their gradients stay sparse.
    local rows = tf.gather(self.embeddings, x)
    return rows.dtype == self._own.dtype and rows
      or tf.cast(rows, self._own.dtype)
  end,
  compute_mask = function(self, x)
    if not self.mask_zero then
      return nil
    end
    return tf.not_equal(convert.index_operand(x, self.name, "inputs"), 0)
  end,
  compute_output_shape = function(self, shape)
    local out = copy(shape)
    out[#out + 1] = self.output_dim
    return out
  end,
  output_dtype = function(self)
    return self._own.dtype
  end,
})

--- A KerasTensor to begin a model with; `shape` is without the batch.
--- `tf.keras.Input { 28, 28, 1 }`, `tf.keras.Input { shape = {}, name = "x" }`
--- Source: tf.keras.Input
function M.input(shape, batch_size, name, dtype, sparse, given, ragged, batch)
  if given ~= nil then
    errors.raise("NotImplementedError", "Input: tensor is not implemented",
      "give shape")
  end
  local own = { name = name, dtype = dtype, sparse = sparse, ragged = ragged,
    batch_size = batch_size }
  if batch ~= nil then
    own.batch_input_shape = batch
  else
    own.input_shape = shape
  end
  return M.InputLayer(own)._own.output
end

return M
