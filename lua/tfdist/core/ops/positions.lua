--- Positions inside tensors, and the same bytes read in another way.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

-- Row-major positions as one list for each axis: list by list, the way the
-- result {rank, n} is laid out.
local function unravel(indices, sizes)
  local total = lists.product(sizes)
  local n, out = #indices, {}
  for i = 1, n do
    local at = indices[i]
    if at < 0 or at >= total then
      tracing.refuse_values("InvalidArgument", ("unravel_index: indices[%d] = "
        .. "%s is outside a tensor of shape %s"):format(i - 1, text.number(at),
        text.shape(sizes)))
      at = 0
    end
    for axis = #sizes, 1, -1 do
      local size = math.max(sizes[axis], 1)
      out[(axis - 1) * n + i] = at % size
      at = math.floor(at / size)
    end
  end
  return out
end

-- The same of positions that only a call knows, which looks at them, too.
local function unravel_later(tf, x, sizes)
  local out, stride, at = {}, 1, tf.cast(x, "int64")
  local said = "unravel_index: indices of " .. text.shape(sizes)
  local function whole(n) return tf.constant(n, "int64") end
  tf.debugging.assert_non_negative(at, said)
  tf.debugging.assert_less(at, whole(lists.product(sizes)), said)
  for axis = #sizes, 1, -1 do
    local size = math.max(sizes[axis], 1)
    out[axis] = at:floordiv(whole(stride)):floormod(whole(size))
    stride = stride * size
  end
  return tf.cast(tf.stack(out, 0), raw.tensor_dtype(x))
end

--- Dims of the same bytes with elements of another size.
local function recast(dims, from, to, dtype)
  if from > to then
    dims[#dims + 1] = from / to
  elseif from < to then
    if dims[#dims] ~= to / from then
      errors.raise("InvalidArgument", ("bitcast: elements of %d bytes make %s "
        .. "when the last axis has size %d, got shape %s"):format(from, dtype,
        to / from, text.shape(dims)))
    end
    dims[#dims] = nil
  end
  return dims
end

local function define_bitcast(def)
  --- The same bytes as elements of another dtype; no gradient.
  --- Shapes: that of the input; with smaller elements one more axis, with
  ---   larger ones the last axis goes.
  --- Errors: InvalidArgument when the last axis does not make whole elements;
  ---   TypeError for bool.
  --- Source: tf.bitcast
  def("bitcast", "input type name=nil", function(input, dtype)
    local x = convert.tensor(input, nil, "bitcast", "input")
    dtype = convert.dtype(dtype, "bitcast")
    local old = raw.tensor_dtype(x)
    if dtype == "bool" or old == "bool" then
      errors.raise("TypeError", "bitcast: bool has no bytes of its own")
    end
    tracing.need_numbers("bitcast", "input", x, "what it reads as bytes",
      "call it outside of the function")
    local sizes = raw.enums.dtype
    return raw.tensor_from_bytes(raw.tensor_bytes(x), dtype,
      recast(raw.tensor_dims(x), raw.dtype_size(sizes[old]),
      raw.dtype_size(sizes[dtype]), dtype))
  end)
end

local function define_reverse(tf, def)
  --- Reverse the first seq_lengths[i] entries along seq_axis of each entry i
  --- along batch_axis; the rest stays.
  --- Errors: InvalidArgument for lengths that do not fit.
  --- Source: tf.reverse_sequence
  def("reverse_sequence", "input seq_lengths seq_axis=1 batch_axis=0 name=nil",
    function(input, lengths, seq_axis, batch_axis)
      local what = "reverse_sequence"
      local x = tf.convert_to_tensor(input)
      local dims = x.shape
      local axes = {}
      for name, axis in pairs { seq_axis = seq_axis, batch_axis = batch_axis }
      do
        axis = options.integer(what, name, axis, -#dims, #dims - 1)
        axes[name] = axis % #dims
      end
      local seq, batch = axes.seq_axis, axes.batch_axis
      local list = convert.integers(lengths, what, "seq_lengths")
      if seq == batch or #list ~= dims[batch + 1] then
        errors.raise("InvalidArgument", ("%s: %d lengths along axis %d for "
          .. "sequences along axis %d of shape %s"):format(what, #list, batch,
          seq, text.shape(dims)))
      end
      local rows = {}
      for i = 1, #list do
        local n = list[i]
        if n < 0 or n > dims[seq + 1] then
          tracing.refuse_values("InvalidArgument", ("%s: seq_lengths[%d] = %s "
            .. "is outside 0..%d"):format(what, i - 1, text.number(n),
            dims[seq + 1]))
          n = 0
        end
        local order = {}
        for j = 1, dims[seq + 1] do
          order[j] = j <= n and n - j or j - 1
        end
        rows[i] = tf.gather(tf.gather(x, { i - 1 }, { axis = batch }), order,
          { axis = seq })
      end
      return #rows == 0 and x or tf.concat(rows, batch)
    end)
end

--- Called by the op loader.
---@param tf table
---@param def fun(paths:string, signature:string, fn:function)
function M.define(tf, def)
  --- Positions along each axis of row-major positions in a tensor of shape
  --- dims.
  --- Shapes: indices {} gives {rank}, {n} gives {rank, n}.
  --- Errors: InvalidArgument for positions outside.
  --- Source: tf.unravel_index
  def("unravel_index", "indices dims name=nil", function(indices, dims)
    local x = raw.operand_tensor(convert.index_operand(indices,
      "unravel_index", "indices"))
    local sizes = convert.integers(dims, "unravel_index", "dims")
    local dtype, rank = raw.tensor_dtype(x), raw.tensor_rank(x)
    if not convert.INTEGER[dtype] or rank > 1 then
      errors.raise("TypeError", ("unravel_index: indices must be one whole "
        .. "number or a list of them, got a %s tensor of rank %d"):format(dtype,
        rank))
    end
    if tracing.is_symbolic(x) then
      return unravel_later(tf, x, sizes)
    end
    local shape = { #sizes, rank == 1 and raw.tensor_size(x) or nil }
    return raw.tensor_from_values(unravel(raw.tensor_to_flat(x), sizes), dtype,
      shape)
  end)
  define_bitcast(def)
  define_reverse(tf, def)
end

return M
