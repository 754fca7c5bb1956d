--- tf.IndexedSlices: rows of a tensor that is zero elsewhere.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"

local M = {}

local getters, methods = {}, {}

local function dims_of(x)
  local dims = {}
  for axis = 0, raw.slices_rank(x) - 1 do
    dims[axis + 1] = raw.slices_dim(x, axis)
  end
  return dims
end

function getters.values(x)
  return raw.slices_values(x)
end

function getters.indices(x)
  return raw.slices_indices(x)
end

--- nil where nobody said it; then `shape` has -1 rows.
function getters.dense_shape(x)
  return raw.slices_dim(x, 0) >= 0 and text.as_shape(dims_of(x)) or nil
end

function getters.shape(x)
  return text.as_shape(dims_of(x))
end

function getters.dtype(x)
  return raw.tensor_dtype(raw.slices_values(x))
end

function getters.device(x)
  return raw.device_name(raw.tensor_device(raw.slices_values(x)))
end

--- The dense tensor; repeated rows are added.
function methods.to_dense(self)
  return raw.slices_to_dense(self)
end

function methods.release(self)
  return raw.release(self)
end

local function to_text(x)
  if raw.is_released(x) then
    return "IndexedSlices (released)"
  end
  return ("IndexedSlices %s %s, %d rows\n indices %s\n values %s"):format(
    getters.dtype(x), text.shape(dims_of(x)),
    raw.tensor_size(getters.indices(x)),
    tostring(getters.indices(x)), tostring(getters.values(x)))
end

-- The slices with other values, in the same rows.
local function with_values(x, values)
  return raw.slices_new(values, raw.slices_indices(x), dims_of(x))
end

local function is_slices(x)
  return type(x) == "userdata" and raw.kind(x) == "slices"
end

--- True for IndexedSlices.
M.is_slices = is_slices

--- Operators. A number scales the rows and the result is slices (as
--- tf.math.scalar_mul); everything else makes the slices dense first, as
--- TensorFlow's functions do.
local function set_operators(meta, tf)
  tensor.set_operators(meta, tf)
  local dense_multiply, dense_divide = meta.__mul, meta.__div

  function meta.__mul(a, b)
    if type(b) == "number" and is_slices(a) then
      return with_values(a, raw.slices_values(a) * b)
    elseif type(a) == "number" then
      return with_values(b, a * raw.slices_values(b))
    end
    return dense_multiply(a, b)
  end

  function meta.__div(a, b)
    if type(b) == "number" then
      return with_values(a, raw.slices_values(a) / b)
    end
    return dense_divide(a, b)
  end

  function meta.__unm(a)
    return with_values(a, -raw.slices_values(a))
  end

  function meta.__len(a)
    local n = raw.slices_dim(a, 0)
    if n < 0 then
      errors.raise("ValueError", "IndexedSlices without dense_shape: nothing "
        .. "says how many rows they have")
    end
    return n
  end
end

--- Put tf.IndexedSlices into tf.
function M.install(tf, def)
  local meta = raw.metatable "slices"
  function meta.__names()
    return text.names(methods, getters)
  end
  meta.__index = function(self, key)
    if methods[key] ~= nil then
      return methods[key]
    elseif getters[key] ~= nil then
      return getters[key](self)
    end
    errors.raise("KeyError", "IndexedSlices have no field "
      .. text.describe(key), "fields are values, indices, dense_shape, dtype, "
      .. "device; tf.convert_to_tensor(slices) makes them dense")
  end
  meta.__newindex = function()
    errors.raise("TypeError", "IndexedSlices cannot be changed")
  end
  meta.__tostring = to_text
  tensor.refuse_order(meta)
  set_operators(meta, tf)

  --- Rows `values` at positions `indices` of a tensor of shape dense_shape,
  --- without which they cannot become a tensor.
  --- Shapes: values [n, d1..dk], indices [n].
  --- Errors: InvalidArgument when they do not fit.
  --- Source: tf.IndexedSlices
  def("IndexedSlices", "values indices dense_shape=nil",
    function(values, indices, dense_shape)
      values = convert.tensor(values, nil, "IndexedSlices", "values")
      indices = convert.index_operand(indices, "IndexedSlices", "indices")
      local shape = tensor.shape_of(values)
      local dims
      if dense_shape == nil then
        dims = lists.copy(shape)
        dims[1] = dims[1] and -1
      else
        dims = convert.integers(dense_shape, "IndexedSlices", "dense_shape")
      end
      if #dims ~= #shape then
        errors.raise("InvalidArgument", ("IndexedSlices: values %s do not fit "
          .. "dense_shape %s"):format(text.shape(shape), text.shape(dims)))
      end
      return raw.slices_new(values, raw.operand_tensor(indices), dims)
    end)
end

return M
