--- Methods of variables that change some of their elements in place.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"

local M = {}

-- What goes into the variable has its dtype, as in assignments.
local function check_dtype(variable, method, what, given)
  local dtype = tensor.dtype_of(variable)
  if given ~= dtype then
    errors.raise("ValueError", ("Variable:%s: the variable is %s, the %s are %s")
      :format(method, dtype, what, given))
  end
end

-- values and indices {n, 1} of IndexedSlices, in the variable's dtype.
local function parts(variable, method, delta)
  if raw.kind(delta) ~= "slices" then
    errors.raise("TypeError", ("Variable:%s: sparse_delta must be "
      .. "IndexedSlices, got %s"):format(method, text.describe(delta)),
      "tf.IndexedSlices(values, indices, variable.shape)")
  end
  local values, indices = raw.slices_values(delta), raw.slices_indices(delta)
  check_dtype(variable, method, "slices", raw.tensor_dtype(values))
  return values, indices
end

-- A scatter op with indices {n, depth}; the op's input 0 is the variable.
local function scatter(variable, method, op, indices, updates)
  raw.variable_update(variable, raw.op_find(op),
    { indices, updates, n = 2 })
  return variable
end

-- Ops with one index for each row, by method: the names are the same.
local BY_ROW = {
  "scatter_update", "scatter_add", "scatter_sub", "scatter_mul",
  "scatter_div", "scatter_min", "scatter_max",
}

local BY_POSITION = {
  scatter_nd_update = "tensor_scatter_nd_update",
  scatter_nd_add = "tensor_scatter_nd_add",
  scatter_nd_sub = "tensor_scatter_nd_sub",
  scatter_nd_min = "tensor_scatter_nd_min",
  scatter_nd_max = "tensor_scatter_nd_max",
}

-- Indices {b1..bm, k} of rows inside a batch become full positions.
local function batch_positions(indices, method)
  local dims = tensor.shape_of(indices)
  local flat = raw.tensor_to_flat(indices)
  if #dims == 0 then
    errors.raise("InvalidArgument", "Variable:" .. method
      .. ": indices must have rank 1 or more")
  end
  local depth = #dims
  local out, at = {}, {}
  for axis = 1, depth do
    at[axis] = 0
  end
  for i = 1, #flat do
    for axis = 1, depth - 1 do
      out[#out + 1] = at[axis]
    end
    out[#out + 1] = flat[i]
    for axis = depth, 1, -1 do
      at[axis] = at[axis] + 1
      if at[axis] < dims[axis] then
        break
      end
      at[axis] = 0
    end
  end
  dims[depth + 1] = depth
  return raw.tensor_from_values(out, "int32", dims)
end

--- Add the methods to a variable's method table.
---@param methods table
---@param tf table
---@param is_self fun(x:any):boolean
function M.install(methods, tf, is_self)
  local function method(name, signature, fn)
    methods[name] = options.method("Variable." .. name, signature, fn, is_self,
      "variable")
  end
  local SLICES = "sparse_delta use_locking=false name=nil"

  for _, name in ipairs(BY_ROW) do
    -- Rows of IndexedSlices replace, are added to ... rows of the variable; a
    -- row given twice counts twice.
    method(name, SLICES, function(self, delta)
      local values, indices = parts(self, name, delta)
      return scatter(self, name, name, indices, values)
    end)
  end
  for name, op in pairs(BY_POSITION) do
    -- indices [n, depth], updates [n, rest of the variable's shape].
    method(name, "indices updates name=nil", function(self, indices, updates)
      local dtype = tensor.dtype_of(self)
      local what = "Variable:" .. name
      updates = convert.operand(updates, dtype, what, "updates")
      check_dtype(self, name, "updates", raw.operand_dtype(updates))
      return scatter(self, name, op,
        convert.index_operand(indices, what, "indices"), updates)
    end)
  end

  --- Replace rows inside each entry of a batch: values [b1..bm, k, rest],
  --- indices [b1..bm, k]. IndexedSlices have one axis of indices only, so for
  --- m > 0 the argument is a table { values = , indices = }.
  --- Source: tf.Variable.batch_scatter_update
  method("batch_scatter_update", SLICES, function(self, delta)
    local what = "batch_scatter_update"
    local values, indices
    if text.is_plain(delta) then
      options.check_keys("Variable:" .. what, delta, { "values", "indices" })
      values = convert.operand(delta.values,
        tensor.dtype_of(self), what, "values")
      check_dtype(self, what, "values", raw.operand_dtype(values))
      indices = raw.operand_tensor(convert.index_operand(delta.indices, what,
        "indices"))
    else
      values, indices = parts(self, what, delta)
    end
    return scatter(self, what, "tensor_scatter_nd_update",
      batch_positions(indices, what), values)
  end)

  --- Rows by position: tf.gather of the variable.
  method("sparse_read", "indices name=nil", function(self, indices)
    return tf.gather(self, indices)
  end)

  --- tf.gather_nd of the variable.
  method("gather_nd", "indices name=nil", function(self, indices)
    return tf.gather_nd(self, indices)
  end)
end

return M
