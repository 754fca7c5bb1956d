--- Names of the ops that make, view, join and index tensors, and the functions
--- of TensorFlow that are made of several of them.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

M.functions = {
  transpose = "transpose", reverse = "reverse", expand_dims = "expand_dims",
  squeeze = "squeeze", concat = "concat", stack = "stack",
  tile = "tile", roll = "roll", zeros_like = "zeros_like",
  ones_like = "ones_like",
  gather = "gather", gather_nd = "gather_nd", scatter_nd = "scatter_nd",
  tensor_scatter_nd_update = "tensor_scatter_nd_update",
  tensor_scatter_nd_add = "tensor_scatter_nd_add",
  tensor_scatter_nd_sub = "tensor_scatter_nd_sub",
  tensor_scatter_nd_min = "tensor_scatter_nd_min",
  tensor_scatter_nd_max = "tensor_scatter_nd_max",
  top_k = "math.top_k nn.top_k", in_top_k = "math.in_top_k nn.in_top_k",
  searchsorted = "searchsorted",
  invert_permutation = "math.invert_permutation",
}

M.methods = {
  transpose = "transpose", expand_dims = "expand_dims", squeeze = "squeeze",
  tile = "tile", gather = "gather", gather_nd = "gather_nd",
  reverse = "reverse", roll = "roll", top_k = "top_k",
}

local MOST = 8 -- entries of a list attribute

local function fail(kind, message, ...)
  errors.raise(kind, text.format(message, ...))
end

local product = lists.product
local shape_of, dims_text = tensor.shape_of, text.shape
local known_shape_of = tensor.known_shape_of

-- 0-based axis of a tensor of shape dims. Errors: ValueError.
local function axis_of(what, axis, dims)
  options.integer(what, "axis", axis)
  if axis < -#dims or axis >= #dims then
    fail("ValueError", "%s: axis %d is outside a tensor of rank %d %s; axes "
      .. "count from 0, -1 is the last", what, axis, #dims, dims_text(dims))
  end
  return axis < 0 and axis + #dims or axis
end

-- A plain number from a number or a scalar tensor; nil stays nil.
local function number(what, name, x)
  if x == nil or type(x) == "number" then
    return x
  end
  tracing.need_counts(what, name, x)
  local t = convert.tensor(x, nil, what, name)
  if raw.tensor_size(t) ~= 1 then
    fail("InvalidArgument", "%s: %s must be one number, got a tensor of shape "
      .. "%s", what, name, dims_text(shape_of(t)))
  end
  return raw.item(t)
end

local function dtype_of(x)
  return raw.is_operand(x) and raw.operand_dtype(x) or nil
end

local function integers(list)
  return raw.tensor_from_values(list, "int32", { #list })
end

-- Tensors from sizes and values ---------------------------------------------

local SIZES = 2 ^ 32 -- so many elements are not complained about

-- Are these sizes as op calls take them, few and not large?
local function is_plain_shape(dims)
  if type(dims) ~= "table" or getmetatable(dims) ~= nil then
    return false
  end
  local n, size = #dims, 1
  if n > MOST or next(dims, n > 0 and n or nil) ~= nil then
    return false
  end
  for i = 1, n do
    local d = dims[i]
    if type(d) ~= "number" or d < 0 or d % 1 ~= 0 then
      return false
    end
    size = size * d
  end
  return size < SIZES
end

local function define_makers(tf, def)
  local ops = tf.raw_ops

  local function filled(what, dims, value, dtype)
    if is_plain_shape(dims) then
      return ops.fill(dims, value, convert.dtype(dtype, what) or "float32")
    end
    dims = convert.integers(dims, what, what == "fill" and "dims" or "shape")
    dtype = convert.dtype(dtype, what) or "float32"
    local size = 1
    for i = 1, #dims do
      size = dims[i] >= 0 and size * dims[i] or math.huge
    end
    if #dims <= MOST and size < SIZES then -- nothing to complain about
      return ops.fill(dims, value, dtype)
    end
    return errors.said_by(what, ops.fill, dims, value, dtype)
  end

  --- Zeros. Errors: InvalidArgument for negative sizes. Source: tf.zeros
  def("zeros", "shape dtype='float32' name=nil", function(shape, dtype)
    return filled("zeros", shape, 0, dtype)
  end)

  --- Ones. Source: tf.ones
  def("ones", "shape dtype='float32' name=nil", function(shape, dtype)
    return filled("ones", shape, 1, dtype)
  end)

  --- One value everywhere, in its own dtype: float32 for a Lua number.
  --- Source: tf.fill
  def("fill", "dims value name=nil", function(dims, value)
    if type(value) == "number" then
      return filled("fill", dims, value)
    elseif type(value) == "boolean" then
      return filled("fill", dims, value and 1 or 0, "bool")
    end
    local x = convert.operand(value, nil, "fill", "value")
    return tf.broadcast_to(x, convert.integers(dims, "fill", "dims"))
  end)

  --- Identity matrices {batch..., rows, columns}. Source: tf.eye
  def("eye linalg.eye", "num_rows num_columns=nil batch_shape=nil "
    .. "dtype='float32' name=nil", function(rows, columns, batch, dtype)
      batch = batch and convert.integers(batch, "eye", "batch_shape")
      if batch and #batch > MOST - 2 then
        fail("ValueError", "eye: batch_shape has %d entries; %d is the most",
          #batch, MOST - 2)
      end
      return ops.eye(rows, columns or -1, { batch_shape = batch,
        dtype = dtype })
    end)
end

local function define_ranges(tf, def)
  local ops = tf.raw_ops

  --- start, start + delta, ... below limit. Whole Lua numbers give int32,
  --- others float32, tensors their dtype. Source: tf.range
  def("range", "start=nil limit=nil delta=1 dtype=nil name=nil",
    function(start, limit, delta, dtype)
      dtype = dtype or dtype_of(start) or dtype_of(limit) or dtype_of(delta)
      start, limit = options.bounds("range", start, limit, "limit")
      start = number("range", "start", start)
      limit = number("range", "limit", limit)
      delta = number("range", "delta", delta)
      local whole = text.is_whole(start) and text.is_whole(limit)
        and text.is_whole(delta)
      return ops.range(start, limit, delta,
        dtype or (whole and "int32" or "float32"))
    end)

  --- num values from start to stop, both included, along a new axis. start and
  --- stop may be tensors of one shape. Source: tf.linspace
  def("linspace lin_space", "start stop num name=nil axis=0",
    function(start, stop, num, _, axis)
      num = number("linspace", "num", num)
      options.integer("linspace", "num", num, 1)
      local dtype = dtype_of(start) or dtype_of(stop) or "float32"
      start = tf.expand_dims(convert.operand(start, dtype, "linspace",
        "start"), axis)
      stop = tf.expand_dims(convert.operand(stop, dtype, "linspace", "stop"),
        axis)
      if num == 1 then
        return start + stop * 0
      end
      local dims = shape_of(start)
      axis = axis_of("linspace", axis, dims)
      for i = 1, #dims do
        dims[i] = i == axis + 1 and num - 1 or 1
      end
      local steps = ops.range(0, num - 1, 1, dtype):reshape(dims)
      local inner = start + (stop - start) / (num - 1) * steps
      return tf.concat({ inner, stop }, axis)
    end)

  -- Whole numbers of any width as positions: images have labels of one byte.
  local function positions(x, what, name)
    local t, dtype = convert.whole_operand(x, what, name)
    return (dtype == "int32" or dtype == "int64") and t or ops.cast(t, "int32")
  end

  --- Rows with on_value at the position indices says, from 0.
  --- Source: tf.one_hot
  def("one_hot", "indices depth on_value=1 off_value=0 axis=-1 dtype=nil "
    .. "name=nil", function(indices, ...)
      return ops.one_hot(positions(indices, "one_hot", "indices"), ...)
    end)

  --- out[..., j] is true where j < lengths[...]; maxlen nil = the largest.
  --- Source: tf.sequence_mask
  def("sequence_mask", "lengths maxlen=nil dtype='bool' name=nil",
    function(lengths, maxlen, dtype)
      lengths = positions(lengths, "sequence_mask", "lengths")
      if maxlen == nil then
        local t = raw.operand_tensor(lengths)
        maxlen = 0
        if raw.tensor_size(t) ~= 0 then
          tracing.need_values("sequence_mask", "lengths", t, "give maxlen")
          maxlen = math.max(0, tf.reduce_max(lengths):item())
        end
      end
      return ops.sequence_mask(lengths, number("sequence_mask", "maxlen",
        maxlen), dtype)
    end)
end

-- Shapes --------------------------------------------------------------------

local function broadcast_shapes(what, a, b)
  local dims, rank = {}, math.max(#a, #b)
  for i = 1, rank do
    local x, y = a[#a - rank + i] or 1, b[#b - rank + i] or 1
    if x ~= y and x ~= 1 and y ~= 1 then
      fail("ValueError", "%s: shapes %s and %s do not broadcast", what,
        dims_text(a), dims_text(b))
    end
    dims[i] = x == 1 and y or x
  end
  return dims
end

local function define_shapes(tf, def)
  local function operand(x, what)
    return convert.operand(x, nil, what, "input")
  end

  --- The sizes of all axes as an integer tensor. Source: tf.shape
  def("shape", "input out_type='int32' name=nil", function(x, dtype)
    local dims = raw.known_dims(raw.operand_tensor(operand(x, "shape")),
      "shape")
    return raw.tensor_from_values(dims, convert.dtype(dtype, "shape"),
      { #dims })
  end)

  --- The number of elements as an integer scalar. Source: tf.size
  def("size", "input out_type='int32' name=nil", function(x, dtype)
    local n = raw.tensor_size(raw.operand_tensor(operand(x, "size")))
    return raw.tensor_from_values({ n }, convert.dtype(dtype, "size"), {})
  end)

  --- The number of axes as an int32 scalar. Source: tf.rank
  def("rank", "input name=nil", function(x)
    return raw.tensor_from_values({ #shape_of(operand(x, "rank")) }, "int32",
      {})
  end)

  --- The shape that two shapes broadcast to, as a list. Errors: ValueError.
  --- Source: tf.broadcast_static_shape
  def("broadcast_static_shape", "shape_x shape_y", function(a, b)
    local what = "broadcast_static_shape"
    return broadcast_shapes(what, convert.integers(a, what, "shape_x"),
      convert.integers(b, what, "shape_y"))
  end)

  --- The same as an int32 tensor. Source: tf.broadcast_dynamic_shape
  def("broadcast_dynamic_shape", "shape_x shape_y", function(a, b)
    local what = "broadcast_dynamic_shape"
    return integers(broadcast_shapes(what,
      convert.integers(a, what, "shape_x"),
      convert.integers(b, what, "shape_y")))
  end)
end

local function define_checks(tf, def)
  --- x itself if it has this shape, where -1 fits any size.
  --- Errors: InvalidArgument. Source: tf.ensure_shape
  def("ensure_shape", "x shape name=nil", function(x, shape)
    x = convert.operand(x, nil, "ensure_shape", "x")
    shape = convert.integers(shape, "ensure_shape", "shape")
    local dims = shape_of(x)
    local fits = #dims == #shape
    for i = 1, #dims do
      fits = fits and (shape[i] == dims[i] or shape[i] == -1)
      if dims[i] < 0 and not fits then
        raw.refuse_open(dims, "ensure_shape")
      end
    end
    if not fits then
      fail("InvalidArgument", "ensure_shape: x has shape %s, expected %s",
        dims_text(dims), dims_text(shape))
    end
    return tf.identity(x)
  end)

  --- New tensors with the same values. Source: tf.identity_n
  def("identity_n", "input name=nil", function(list)
    local out = {}
    local _, n = options.list("identity_n", "input", list, "tensors")
    for i = 1, n do
      out[i] = tf.identity(list[i])
    end
    return out
  end)
end

-- Parts ---------------------------------------------------------------------

-- Pieces of sizes that may be more than a list attribute holds: cut into
-- groups first, so that the gradient is joined a group at a time.
local function split_sizes(ops, value, sizes, axis)
  if #sizes <= MOST then
    return lists.of(errors.said_by("split", ops.split_v, value, sizes, axis))
  end
  local each = math.ceil(#sizes / MOST)
  local groups, totals = {}, {}
  for i = 1, #sizes do
    local k = math.floor((i - 1) / each) + 1
    groups[k] = groups[k] or {}
    totals[k] = (totals[k] or 0) + sizes[i]
    groups[k][#groups[k] + 1] = sizes[i]
  end
  local out = {}
  local parts = lists.of(errors.said_by("split", ops.split_v, value, totals, axis))
  for k = 1, #groups do
    lists.append(out, split_sizes(ops, parts[k], groups[k], axis))
  end
  return out
end

-- Replace one -1 by what is left of the axis.
local function fill_in(sizes, value, axis)
  local known, open = 0, nil
  for i = 1, #sizes do
    if sizes[i] == -1 and open == nil then
      open = i
    else
      known = known + sizes[i]
    end
  end
  if open ~= nil then
    sizes[open] = raw.tensor_dim(raw.operand_tensor(value), axis) - known
  end
  return sizes
end

local function define_parts(tf, def)
  local ops = tf.raw_ops

  --- Pieces of an axis as a list: a number of equal ones, or one for each size
  --- (one may be -1). Views: nothing is copied. Source: tf.split
  def("split", "value num_or_size_splits axis=0 num=nil name=nil",
    function(value, sizes, axis)
      value = convert.operand(value, nil, "split", "value")
      if type(sizes) == "number" then
        return lists.of(ops.split(value, sizes, axis))
      end
      sizes = convert.integers(sizes, "split", "num_or_size_splits")
      axis = axis_of("split", number("split", "axis", axis), shape_of(value))
      return split_sizes(ops, value, fill_in(sizes, value, axis), axis)
    end, "split")

  --- The tensors along an axis, as a list of views. Source: tf.unstack
  def("unstack", "value num=nil axis=0 name=nil", function(value, num, axis)
    return lists.of(ops.unstack(value, num or -1, axis))
  end, "unstack")
end

local function define_choices(tf, def)
  local ops = tf.raw_ops

  --- Elements where mask is true: the axes of mask, from `axis` on, become one.
  --- Blocks: until mask is computed. Source: tf.boolean_mask
  def("boolean_mask", "tensor mask axis=0 name=nil", function(x, mask, axis)
    x = convert.operand(x, nil, "boolean_mask", "tensor")
    mask = convert.operand(mask, "bool", "boolean_mask", "mask")
    tracing.need_values("boolean_mask", "mask", raw.operand_tensor(mask))
    local dims, mask_dims = shape_of(x), shape_of(mask)
    axis = #dims == 0 and 0 or axis_of("boolean_mask", axis, dims)
    local fits = #mask_dims > 0
    for i = 1, #mask_dims do
      fits = fits and dims[axis + i] == mask_dims[i]
    end
    if not fits then
      fail("InvalidArgument", "boolean_mask: mask %s does not fit the shape %s "
        .. "from axis %d on", dims_text(mask_dims), dims_text(dims), axis)
    end
    local flat = {}
    for i = 1, #dims do
      if i <= axis or i > axis + #mask_dims then
        flat[#flat + 1] = dims[i]
      elseif i == axis + 1 then
        flat[#flat + 1] = product(mask_dims, 1, #mask_dims)
      end
    end
    local at = tf.where(tf.reshape(mask, { -1 }))
    return tf.gather(tf.reshape(x, flat), tf.reshape(at, { -1 }),
      { axis = axis })
  end)

  --- Positions {n, rank} (int64) of the elements that are true or not 0; with
  --- x and y, those of x where condition is true and of y elsewhere.
  --- Blocks: with one argument, until condition is computed. Source: tf.where
  def("where", "condition x=nil y=nil name=nil", function(condition, x, y)
    if x ~= nil and y ~= nil then
      return errors.said_by("where", ops.select, condition, x, y)
    elseif x ~= nil or y ~= nil then
      fail("ValueError", "where: give both x and y, or neither")
    end
    condition = convert.operand(condition, nil, "where", "condition")
    tracing.need_values("where", "condition", raw.operand_tensor(condition))
    local n = ops.count_nonzero(condition):item()
    return ops.where_indices(condition, n)
  end)
end

-- Growing and rearranging ---------------------------------------------------

-- Sizes of x with paddings; nil where these refuse the shape, not how far a
-- mirror reaches.
local function padded(x, before, after, mode)
  if type(mode) ~= "string" or mode:upper() == "CONSTANT"
    or not raw.is_operand(x) then
    return nil
  end
  local dims = shape_of(x)
  for i = 1, #dims do
    if #before ~= #dims or #after ~= #dims or dims[i] < 0
      or math.min(before[i], after[i]) < 0 then
      return nil
    end
    dims[i] = dims[i] + before[i] + after[i]
  end
  return dims
end

local function define_growth(tf, def)
  local ops = tf.raw_ops

  --- Add elements around a tensor: paddings has { before, after } for each
  --- axis. mode is CONSTANT, REFLECT or SYMMETRIC. Source: tf.pad
  def("pad", "tensor paddings mode='CONSTANT' constant_values=0 name=nil",
    function(x, paddings, mode, value)
      tracing.need_counts("pad", "paddings", paddings)
      paddings = raw.tensor_to_flat(convert.tensor(paddings, "int32", "pad",
        "paddings"))
      local before, after = {}, {}
      for i = 1, #paddings, 2 do
        before[#before + 1], after[#after + 1] = paddings[i], paddings[i + 1]
      end
      return tracing.refusing_values(tf, padded(x, before, after, mode),
        ops.pad, x, before, after, mode, value)
    end, "pad")

  --- Each element of an axis several times in a row; `repeats` is one number
  --- or one for each element. Without axis the tensor is flattened.
  --- Source: tf.repeat
  def("repeat_", "input repeats axis=nil name=nil", function(x, repeats, axis)
    x = convert.operand(x, nil, "repeat_", "input")
    if axis == nil then
      x, axis = tf.reshape(x, { -1 }), 0
    end
    tracing.need_values("repeat_", "repeats", repeats)
    repeats = lists.append({}, convert.integers(repeats, "repeat_", "repeats"))
    for i = 1, #repeats do
      if repeats[i] < 0 then
        tracing.refuse_values(#repeats == 1 and "InvalidArgument"
          or "ValueError", ("repeat_: repeats[%d] = %s; expected 0 or more")
          :format(i - 1, text.number(repeats[i])))
        repeats[i] = 0
      end
    end
    if #repeats == 1 then
      return ops["repeat"](x, repeats[1], axis)
    end
    local dims = shape_of(x)
    axis = axis_of("repeat_", axis, dims)
    if #repeats ~= raw.tensor_dim(raw.operand_tensor(x), axis) then
      fail("InvalidArgument", "repeat_: %d repeats for axis %d of %s", #repeats,
        axis, dims_text(dims))
    end
    local at = {}
    for i = 1, #repeats do
      for _ = 1, repeats[i] do
        at[#at + 1] = i - 1
      end
    end
    return tf.gather(x, integers(at), { axis = axis })
  end)
end

local function define_grids(tf, def)
  --- Coordinate grids of 1-D tensors, as a list; indexing "xy" swaps the first
  --- two axes of the result. Source: tf.meshgrid
  def("meshgrid", "x1 x2=nil x3=nil x4=nil x5=nil x6=nil indexing='xy' "
    .. "name=nil", function(x1, x2, x3, x4, x5, x6, indexing)
      local list = { x1, x2, x3, x4, x5, x6 }
      local n, swap = #list, false
      if options.choice("meshgrid", "indexing", indexing, { "xy", "ij" })
        == "xy" then
        swap = n > 1
      end
      local dims = {}
      for i = 1, n do
        list[i] = tf.reshape(list[i], { -1 })
        dims[i] = shape_of(list[i])[1]
      end
      if swap then
        dims[1], dims[2] = dims[2], dims[1]
      end
      for i = 1, n do
        local at = swap and i <= 2 and 3 - i or i
        local own = {}
        for k = 1, n do
          own[k] = k == at and dims[k] or 1
        end
        list[i] = tf.broadcast_to(tf.reshape(list[i], own), dims)
      end
      return list
    end)
end

-- The input, its sizes, and whether channels come last.
local function blocks(what, x, size, format)
  x = convert.operand(x, nil, what, "input")
  format = options.choice(what, "data_format", format, { "NHWC", "NCHW" })
  options.integer(what, "block_size", size, 2)
  local d = known_shape_of(x, what)
  if #d ~= 4 then
    fail("InvalidArgument", "%s: the input has shape %s; expected rank 4",
      what, dims_text(d))
  end
  return x, d, format == "NHWC"
end

local function divide(what, dims, n, by)
  if n % by ~= 0 then
    fail("InvalidArgument", "%s: a size of %s is no multiple of %d", what,
      dims_text(dims), by)
  end
  return n / by
end

local function define_blocks(tf, def)
  --- Blocks of size x size positions become channels.
  --- Source: tf.nn.space_to_depth
  def("nn.space_to_depth", "input block_size data_format='NHWC' name=nil",
    function(x, b, format)
      local what = "space_to_depth"
      local d, channels_last
      x, d, channels_last = blocks(what, x, b, format)
      if channels_last then
        local h, w = divide(what, d, d[2], b), divide(what, d, d[3], b)
        x = tf.reshape(x, { d[1], h, b, w, b, d[4] })
        return tf.reshape(tf.transpose(x, { 0, 1, 3, 2, 4, 5 }),
          { d[1], h, w, b * b * d[4] })
      end
      local h, w = divide(what, d, d[3], b), divide(what, d, d[4], b)
      x = tf.reshape(x, { d[1], d[2], h, b, w, b })
      return tf.reshape(tf.transpose(x, { 0, 3, 5, 1, 2, 4 }),
        { d[1], b * b * d[2], h, w })
    end)

  --- Channels become blocks of size x size positions.
  --- Source: tf.nn.depth_to_space
  def("nn.depth_to_space", "input block_size data_format='NHWC' name=nil",
    function(x, b, format)
      local what = "depth_to_space"
      local d, channels_last
      x, d, channels_last = blocks(what, x, b, format)
      if channels_last then
        local c = divide(what, d, d[4], b * b)
        x = tf.reshape(x, { d[1], d[2], d[3], b, b, c })
        return tf.reshape(tf.transpose(x, { 0, 1, 3, 2, 4, 5 }),
          { d[1], d[2] * b, d[3] * b, c })
      end
      local c = divide(what, d, d[2], b * b)
      x = tf.reshape(x, { d[1], b, b, c, d[3], d[4] })
      return tf.reshape(tf.transpose(x, { 0, 3, 4, 1, 5, 2 }),
        { d[1], c, d[3] * b, d[4] * b })
    end)
end

-- Order ---------------------------------------------------------------------

local function define_order(tf, def)
  local ops = tf.raw_ops

  -- Values and positions along `axis`: the op works on the last one.
  local function ordered(what, x, axis, direction)
    x = convert.operand(x, nil, what, "values")
    local dims = shape_of(x)
    axis = axis_of(what, axis, dims)
    if axis == #dims - 1 then
      return ops.sort_pairs(x, direction)
    end
    local perm = {}
    for i = 1, #dims do
      perm[i] = i - 1
    end
    perm[axis + 1], perm[#dims] = #dims - 1, axis
    local values, at = ops.sort_pairs(tf.transpose(x, perm), direction)
    return tf.transpose(values, perm), tf.transpose(at, perm)
  end

  --- Sorted along an axis; NaN last. Source: tf.sort
  def("sort", "values axis=-1 direction='ASCENDING' name=nil",
    function(x, axis, direction)
      return (ordered("sort", x, axis, direction))
    end, "sort")

  --- int32 positions that sort an axis; equal values keep their order.
  --- Source: tf.argsort
  def("argsort", "values axis=-1 direction='ASCENDING' stable=false name=nil",
    function(x, axis, direction)
      local _, at = ordered("argsort", x, axis, direction)
      return at
    end, "argsort")

  --- The distinct values of a vector in order of first occurrence, and for
  --- each element the number of its value. Blocks: until x is computed.
  --- Source: tf.unique
  def("unique", "x out_idx='int32' name=nil", function(x, dtype)
    local y, at, _, n = ops.unique(x, dtype)
    tracing.need_values("unique", "x", y)
    return ops.slice(y, { 0 }, { n:item() }), at
  end)

  --- unique, and how often each value occurs. Source: tf.unique_with_counts
  def("unique_with_counts", "x out_idx='int32' name=nil", function(x, dtype)
    local y, at, counts, n = ops.unique(x, dtype)
    tracing.need_values("unique_with_counts", "x", y)
    n = n:item()
    return ops.slice(y, { 0 }, { n }), at,
      tf.cast(ops.slice(counts, { 0 }, { n }), dtype)
  end)
end

function M.define(tf, def)
  define_makers(tf, def)
  define_ranges(tf, def)
  define_shapes(tf, def)
  define_checks(tf, def)
  define_parts(tf, def)
  define_choices(tf, def)
  define_growth(tf, def)
  define_grids(tf, def)
  define_blocks(tf, def)
  define_order(tf, def)
end

return M
