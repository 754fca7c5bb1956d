--- Calling layers with KerasTensors: nothing is computed, shapes are. Each call
--- leaves a node that says which layer made which KerasTensor of which.
local base = require "tfdist.keras.layers.base"
local call = require "tfdist.keras.layers.call"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local keras_tensor = require "tfdist.keras.layers.keras_tensor"
local nest = require "tfdist.base.nest"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local is_symbolic = keras_tensor.is_symbolic
local type = type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

-- A shape is a list of numbers; tables of them are structure.
local function is_shape(x)
  return type(x) == "table" and (x[1] == nil and next(x) == nil
    or type(x[1]) == "number")
end

M.is_shape = is_shape

--- Map fn over the shapes of a structure.
local function map_shapes(fn, shapes)
  if is_shape(shapes) then
    return fn(shapes)
  elseif type(shapes) ~= "table" then
    errors.raise("TypeError", "a layer's shapes must be lists of whole "
      .. "numbers, got " .. text.describe(shapes))
  end
  local out = {}
  for key, value in pairs(shapes) do
    out[key] = key == "n" and value or map_shapes(fn, value)
  end
  return out
end

M.map_shapes = map_shapes

-- Zeros for a KerasTensor with `fill` for unknown sizes.
local function zeros_for(shape, dtype, fill)
  local dims = {}
  for i = 1, #shape do
    dims[i] = shape[i] < 0 and fill or shape[i]
  end
  return tf.zeros(dims, dtype)
end

local function replace(structure, fill)
  return nest.map_structure(function(x)
    if is_symbolic(x) then
      return zeros_for(x.shape, x.dtype, fill)
    end
    return x
  end, structure)
end

local function pack(...)
  return { n = select("#", ...), ... }
end

local function run_on_zeros(self, inputs, given, fill)
  local opts = { training = false }
  for key, value in pairs(replace(given or {}, fill)) do
    opts[key] = value
  end
  return call.probe(opts.training, function()
    return pack(call.invoke(self, replace(inputs, fill), opts))
  end)
end

-- Shapes that differ between two fills are open there.
local function merge_specs(self, a, b)
  return nest.map_structure(function(x, y)
    if type(x) ~= "userdata" or raw.kind(x) == nil then
      errors.raise("TypeError", ("%s: call must return tensors, got %s"):format(
        self.name, text.describe(x)))
    end
    local shape, other = x.shape, y.shape
    for i = 1, #shape do
      if shape[i] ~= other[i] then
        shape[i] = -1
      end
    end
    return keras_tensor.new(shape, x.dtype, self.name, nil, 0)
  end, a, b)
end

-- What call() gives, found out by calling it with zeros of two sizes.
local function probe_outputs(self, inputs, given)
  local two = run_on_zeros(self, inputs, given, 2)
  local three = run_on_zeros(self, inputs, given, 3)
  local list = { n = two.n }
  if two.n == 0 then
    errors.raise("TypeError", self.name .. ": call must return tensors, got "
      .. "nothing")
  end
  for i = 1, two.n do
    list[i] = merge_specs(self, two[i], three[i])
  end
  rawget(self, "_own").built = true -- a model of the user's is by its call
  return list
end

-- Elements of several types are refused now rather than by the op that meets
-- the values.
local function mixed_dtypes(self, flat)
  local list = {}
  for i = 1, flat.n do
    list[i] = is_symbolic(flat[i]) and flat[i].dtype or "?"
  end
  errors.raise("InvalidArgument", ("%s: the inputs have dtypes %s; all must "
    .. "have the same"):format(self.name, table.concat(list, ", ")),
    "a Lambda layer with tf.cast, or dtype in tf.keras.Input")
end

local function output_dtype(self, own, inputs)
  local flat = nest.flatten(inputs)
  local given
  for i = 1, flat.n do
    if is_symbolic(flat[i]) then
      given = given or flat[i].dtype
      if self.merges and flat[i].dtype ~= given then
        mixed_dtypes(self, flat)
      end
    end
  end
  if self.output_dtype ~= nil then
    return self:output_dtype(given)
  elseif given == nil or convert.FLOATING[given] or not self.keeps_dtype then
    return own.dtype
  end
  return given
end

-- Results of the call as KerasTensors without a node yet.
local function infer(self, own, inputs, given)
  if self.compute_output_shape == base.Layer.compute_output_shape then
    return probe_outputs(self, inputs, given)
  end
  local dtype = output_dtype(self, own, inputs)
  local list = pack(self:compute_output_shape(call.shape_of(inputs),
    given or {}))
  for i = 1, list.n do
    list[i] = map_shapes(function(shape)
      return keras_tensor.new(shape, dtype, self.name, nil, 0)
    end, list[i])
  end
  return list
end

-- Floats take the layer's dtype, as in a real call.
local function cast(x, dtype)
  if is_symbolic(x) then
    if convert.FLOATING[x.dtype] and x.dtype ~= dtype then
      return keras_tensor.new(x.shape, dtype, x.name, x.node, x.index)
    end
    return x
  end
  return x
end

local function symbolic(self, own, inputs, given)
  local check, seen = call.input_check(getmetatable(self).class), inputs
  if check ~= nil then
    -- Numbers beside KerasTensors are the tensors that a call makes of them.
    seen = check(self, self.autocast and call.to_inputs(self, inputs, own.dtype)
      or inputs)
  end
  seen = nest.map_structure(function(x)
    return cast(x, own.dtype)
  end, seen)
  if not own.built then
    call.check_spec(self, own, seen)
    call.build(self, call.shape_of(seen))
    if self.build_for ~= nil then
      self:build_for(seen)
    end
  end
  call.check_spec(self, own, seen)
  local list = infer(self, own, seen, given)
  local node = { layer = self, inputs = inputs, options = given, outputs = {} }
  own.nodes = own.nodes or {}
  own.nodes[#own.nodes + 1] = node
  for i = 1, list.n do
    list[i] = nest.map_structure(function(x)
      local k = #node.outputs + 1
      node.outputs[k] = x
      x.node, x.index = node, k
      return x
    end, list[i])
  end
  if own.output_shape == nil then
    own.output_shape = call.shape_of(list[1])
  end
  node.results = list
  return unpack(list, 1, list.n)
end

call.hooks.symbolic = symbolic

--- The results of a call with these KerasTensors, without a node; the layer is
--- built if need be.
function M.infer(self, inputs, given)
  local own = rawget(self, "_own")
  if not own.built then
    call.build(self, call.shape_of(inputs))
  end
  local list = infer(self, own, inputs, given)
  return unpack(list, 1, list.n)
end

--- The shape of the output for a shape of the input, both with the batch and
--- with -1 for open sizes. Without a rule of its own a layer is built and
--- called with zeros.
--- Source: tf.keras.layers.Layer.compute_output_shape
local function compute_output_shape(self, input_shape)
  local own = rawget(self, "_own")
  local inputs = map_shapes(function(shape)
    return keras_tensor.new(shape, own.dtype, "input", nil, 0)
  end, input_shape)
  if not own.built then
    call.build(self, input_shape)
  end
  local list = probe_outputs(self, inputs, nil)
  for i = 1, list.n do
    list[i] = call.shape_of(list[i])
  end
  return unpack(list, 1, list.n)
end

base.extend { compute_output_shape = compute_output_shape }

return M
