--- Layers of several inputs: Add, Subtract, Multiply, Average, Maximum,
--- Minimum, Concatenate, Dot; each also as a function in lower case.
--- Source: tf.keras.layers, merging layers
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local support = require "tfdist.keras.layers.support"
local symbolic = require "tfdist.keras.layers.symbolic"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local function list_of(self, inputs, least)
  if not nest.is_nested(inputs) or #inputs < (least or 1) then
    errors.raise("ValueError", ("%s: expects a list of %d or more inputs, got "
      .. "%s"):format(self.name, least or 1, nest.is_nested(inputs)
      and "a list of " .. #inputs or text.describe(inputs)))
  end
  return inputs
end

local function shapes_of(self, shapes, least)
  if symbolic.is_shape(shapes) then
    errors.raise("ValueError", ("%s: expects a list of %d or more inputs, got "
      .. "one tensor"):format(self.name, least or 1))
  end
  list_of(self, shapes, least)
  for i = 1, #shapes do
    if not symbolic.is_shape(shapes[i]) then
      errors.raise("TypeError", ("%s: input %d must have one shape, got %s")
        :format(self.name, i, text.describe(shapes[i])))
    end
  end
  return shapes
end

local function check_inputs(least)
  return function(self, inputs)
    return support.check_tensors(self, list_of(self, inputs, least))
  end
end

local function shapes_text(shapes)
  local parts = {}
  for i = 1, #shapes do
    parts[i] = text.shape(shapes[i])
  end
  return table.concat(parts, ", ")
end

-- The shape two shapes broadcast to, -1 where that is open; inputs of fewer
-- axes get axes behind the batch.
local function broadcast(self, shapes)
  local out = lists.copy(shapes[1])
  for k = 2, #shapes do
    local a, b = out, shapes[k]
    if #a < #b then
      a, b = b, a
    end
    local gap, joined = #a - #b, lists.copy(a)
    for i = 2, #b do
      local x, y = a[i + gap], b[i]
      if x == 1 then
        joined[i + gap] = y
      elseif y ~= x and y ~= 1 and x ~= -1 and y ~= -1 then
        errors.raise("InvalidArgument", ("%s: inputs of shapes %s do not "
          .. "broadcast"):format(self.name, shapes_text(shapes)))
      elseif x == -1 and y > 1 then
        joined[i + gap] = y
      end
    end
    joined[1] = a[1] ~= -1 and a[1] or b[1] or -1 -- a scalar has no batch
    out = joined
  end
  return out
end

-- Fewer axes: 1s behind the batch.
local function align(inputs)
  local most = 0
  for i = 1, #inputs do
    most = math.max(most, #inputs[i].shape)
  end
  local out = {}
  for i = 1, #inputs do
    local x = inputs[i]
    local dims = x.shape
    if #dims > 0 and #dims < most then
      for _ = 1, most - #dims do
        table.insert(dims, 2, 1)
      end
      x = tf.reshape(x, dims)
    end
    out[i] = x
  end
  return out
end

-- Steps count where they count in some input; inputs without a mask end it.
local function common_mask(_, _, mask)
  if not nest.is_nested(mask) then
    return nil
  end
  local out
  for i = 1, #mask do
    if type(mask[i]) ~= "userdata" then
      return nil
    end
    out = out and tf.logical_or(out, mask[i]) or mask[i]
  end
  return out
end

-- Masks for the elements of the inputs, as a list with holes.
local function element_masks(inputs, mask)
  local out = {}
  for i = 1, nest.is_nested(mask) and #inputs or 0 do
    local m = mask[i]
    if type(m) == "userdata" and #m.shape == #inputs[i].shape - 1 then
      out[i] = tf.broadcast_to(tf.expand_dims(tf.cast(m, "bool"), -1),
        inputs[i].shape)
    end
  end
  return out
end

local function define_merge(name, least, exact, merge)
  M[name] = define.layer(name, "", {
    supports_masking = true,
    merges = true,
    keeps_dtype = name ~= "Average",
    check_inputs = check_inputs(least),
    build = function(self, shapes)
      broadcast(self, shapes_of(self, shapes, least))
      if exact and #shapes ~= least then
        errors.raise("ValueError", ("%s: expects %d inputs, got %d"):format(
          self.name, least, #shapes))
      end
    end,
    call = function(self, inputs, opts)
      local list = align(list_of(self, inputs, least))
      return merge(list, element_masks(list, opts.mask))
    end,
    compute_output_shape = function(self, shapes)
      return broadcast(self, shapes_of(self, shapes, least))
    end,
    compute_mask = common_mask,
  })
end

local function sum(list)
  local y = list[1]
  for i = 2, #list do
    y = y + list[i]
  end
  return y
end

define_merge("Add", 1, false, sum)
define_merge("Subtract", 2, true, function(list)
  return list[1] - list[2]
end)

-- Steps that do not count are factors 1, and 0 where none counts.
define_merge("Multiply", 1, false, function(list, masks)
  local y, any, all = nil, nil, true
  for i = 1, #list do
    local x, m = list[i], masks[i]
    if m ~= nil then
      x = tf.where(m, x, tf.ones_like(x))
      any = any and tf.logical_or(any, m) or m
    end
    all = all and m ~= nil
    y = y and y * x or x
  end
  return all and tf.where(any, y, tf.zeros_like(y)) or y
end)

define_merge("Average", 1, false, function(list)
  return sum(list) / #list
end)

-- The largest or smallest of the steps that count.
local function extreme(op)
  return function(list, masks)
    local y, mask = list[1], masks[1]
    for i = 2, #list do
      local x, m = list[i], masks[i]
      x = m and tf.where(m, x, y) or x
      y = op(mask and tf.where(mask, y, x) or y, x)
      mask = mask and m and tf.logical_or(mask, m) or nil
    end
    return y
  end
end

define_merge("Maximum", 1, false, extreme(tf.maximum))
define_merge("Minimum", 1, false, extreme(tf.minimum))

--- Source: tf.keras.layers.Concatenate
M.Concatenate = define.layer("Concatenate", "axis=-1", {
  supports_masking = true,
  merges = true,
  keeps_dtype = true,
  check_inputs = check_inputs(1),
  setup = function(self, config)
    options.integer("Concatenate", "axis", config.axis)
  end,
  build = function(self, shapes)
    self:compute_output_shape(shapes)
  end,
  call = function(self, inputs)
    return tf.concat(list_of(self, inputs), self.axis)
  end,
  compute_output_shape = function(self, shapes)
    shapes_of(self, shapes)
    local out = lists.copy(shapes[1])
    local axis = self.axis < 0 and self.axis + #out or self.axis
    if axis < 0 or axis >= #out then
      errors.raise("ValueError", ("%s: axis %d is outside inputs of rank %d; "
        .. "axes count from 0, -1 is the last"):format(self.name, self.axis,
        #out))
    end
    for k = 2, #shapes do
      local other = shapes[k]
      local fits = #other == #out
      for i = 1, fits and #out or 0 do
        if i == axis + 1 then
          out[i] = (out[i] < 0 or other[i] < 0) and -1 or out[i] + other[i]
        elseif out[i] == -1 then
          out[i] = other[i]
        elseif other[i] ~= -1 and other[i] ~= out[i] then
          fits = false
        end
      end
      if not fits then
        errors.raise("InvalidArgument", ("%s: inputs of shapes %s cannot be "
          .. "joined along axis %d"):format(self.name, shapes_text(shapes),
          self.axis))
      end
    end
    return out
  end,
  -- Inputs without a mask count in full.
  compute_mask = function(self, inputs, mask)
    if not nest.is_nested(mask) then
      return nil
    end
    local parts = element_masks(inputs, mask)
    for i = 1, #inputs do
      parts[i] = parts[i] or tf.ones(inputs[i].shape, "bool")
    end
    return tf.reduce_any(tf.concat(parts, self.axis), { axis = -1 })
  end,
})

local function dot_axes(self, shapes)
  local axes = convert.integers(self.axes, self.name, "axes")
  if #axes == 1 then
    axes[2] = axes[1]
  end
  for i = 1, 2 do
    local rank = #shapes[i]
    local a = axes[i] < 0 and axes[i] + rank or axes[i]
    if a < 1 or a >= rank then
      errors.raise("ValueError", ("%s: axis %d is outside an input of rank %d "
        .. "(the batch, axis 0, cannot be summed over)"):format(self.name,
        axes[i], rank))
    end
    axes[i] = a
  end
  local x, y = shapes[1][axes[1] + 1], shapes[2][axes[2] + 1]
  if x ~= y and x ~= -1 and y ~= -1 then
    errors.raise("InvalidArgument", ("%s: inputs of shapes %s differ on the "
      .. "axes %d and %d to be summed over"):format(self.name,
      shapes_text(shapes), axes[1], axes[2]))
  end
  return axes
end

-- {batch, rest..., k} as {batch, rows, k}, and the sizes of rest.
local function rows_of(x, axis)
  local dims = x.shape
  local perm, rest, n = { 0 }, {}, 1
  for a = 1, #dims - 1 do
    if a ~= axis then
      perm[#perm + 1] = a
      rest[#rest + 1] = dims[a + 1]
      n = n * dims[a + 1]
    end
  end
  perm[#perm + 1] = axis
  return tf.reshape(tf.transpose(x, perm), { dims[1], n, dims[axis + 1] }), rest
end

--- Sum of products of two inputs along an axis of each, example by example.
--- Shapes: {batch, a..., k...} and {batch, b..., k...} to {batch, a..., b...},
---   {batch, 1} when nothing is left.
--- Source: tf.keras.layers.Dot
M.Dot = define.layer("Dot", "axes:l normalize=false", {
  merges = true,
  check_inputs = check_inputs(2),
  build = function(self, shapes)
    if #shapes_of(self, shapes, 2) ~= 2 then
      errors.raise("ValueError", ("%s: expects 2 inputs, got %d"):format(
        self.name, #shapes))
    end
    dot_axes(self, shapes)
  end,
  call = function(self, inputs)
    local a, b = inputs[1], inputs[2]
    local axes = dot_axes(self, { a.shape, b.shape })
    if self.normalize then
      a = tf.math.l2_normalize(a, { axis = axes[1] })
      b = tf.math.l2_normalize(b, { axis = axes[2] })
    end
    local left, rest = rows_of(a, axes[1])
    local right, more = rows_of(b, axes[2])
    local dims = lists.append(lists.append({ a.shape[1] }, rest), more)
    dims[2] = dims[2] or 1
    return tf.reshape(tf.matmul(left, right, { transpose_b = true }), dims)
  end,
  compute_output_shape = function(self, shapes)
    local axes = dot_axes(self, shapes_of(self, shapes, 2))
    local out = { shapes[1][1] }
    for k = 1, 2 do
      for a = 1, #shapes[k] - 1 do
        if a ~= axes[k] then
          out[#out + 1] = shapes[k][a + 1]
        end
      end
    end
    out[2] = out[2] or 1
    return out
  end,
})

-- tf.keras.layers.add(list, options) and so on.
M.functions = {}
for _, name in ipairs { "Add", "Subtract", "Multiply", "Average", "Maximum",
  "Minimum", "Concatenate", "Dot" } do
  local class = M[name]
  local sig = class.signature
  local own = {}
  for i = 1, sig.n do
    own[i] = sig.names[i] .. (sig.words[i] ~= nil and "=" .. sig.words[i] or "")
  end
  M.functions[name:lower()] = options.wrap("layers." .. name:lower(),
    "inputs " .. table.concat(own, " "), function(inputs, ...)
      return class(...)(inputs)
    end)
end

return M
