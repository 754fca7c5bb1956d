--- tf.TensorArray: tensors that are written and read one by one.
---
---   local ta = tf.TensorArray("float32", { size = 3 })
---   ta = ta:write(0, x)
---   ta:stack()
---
--- It is a Lua list of tensors. Where the call of a traced function decides on a
--- position, and in loops of the graph, it is one tensor of all elements, its
--- `rows`, beside how many there are, if that may change.
--- Where ops run at the call, methods change the array and return it; in traced
--- functions they return another one, as TensorFlow's graphs do.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local tf -- set by install

local TensorArray = { __name = "TensorArray" }
local methods, getters = {}, {}

local function is_array(x)
  return getmetatable(x) == TensorArray
end

M.is_array = is_array

function TensorArray.__names()
  return text.names(methods, getters)
end

local check_field = text.field_slips("TensorArray", TensorArray.__names)

function TensorArray:__index(name)
  if methods[name] ~= nil then
    return methods[name]
  elseif getters[name] ~= nil then
    return getters[name](self)
  end
  return check_field(name)
end

function TensorArray:__tostring()
  local shape = rawget(self, "shape")
  return ("<TensorArray: %s %s>"):format(self.dtype, shape and text.shape(shape)
    or "of any shape")
end

local MOST = 2 ^ 31 - 1 -- elements, counted by an int32
local MOST_LISTED = 2 ^ 26 -- that a Lua list may have

local function fail(kind, format, ...)
  errors.raise(kind, ("TensorArray." .. format):format(...))
end

-- The same where values are no good.
local function refuse(kind, format, ...)
  tracing.refuse_values(kind, ("TensorArray." .. format):format(...))
end

-- Fields -----------------------------------------------------------------------
-- items and n: a list with holes and its length, or rows and, where it may grow,
-- count. shape: of an element, -1 = any size, or nil. cleared: positions.

local function field(self, name)
  return rawget(self, name)
end

-- The array that a method changes: itself, or a copy in a trace.
local function changed(self)
  if tracing.current() == nil then
    return self
  end
  local out, items = {}, {}
  for key, value in pairs(self) do
    out[key] = value
  end
  for i, x in pairs(field(self, "items") or {}) do
    items[i] = x
  end
  out.items = items
  return setmetatable(out, TensorArray)
end

function getters.element_shape(self)
  local shape = field(self, "shape")
  return shape and text.as_shape({ unpack(shape) })
end

function getters.dynamic_size(self)
  return field(self, "grows")
end

-- Elements ---------------------------------------------------------------------

local function known_shape(self, what)
  local shape = field(self, "shape")
  for axis = 1, shape and #shape or 0 do
    if shape[axis] < 0 then
      shape = nil
      break
    end
  end
  if shape == nil then
    errors.raise("ValueError", ("TensorArray.%s: an element that was not "
      .. "written has no known shape; give element_shape"):format(what),
      tracing.current() ~= nil and "in a traced function every write gives a "
      .. "new array: ta = ta:write(index, value)" or nil)
  end
  return shape
end

local function typed(self, what, value)
  local t = convert.tensor(value, self.dtype, "TensorArray." .. what, "value")
  if raw.tensor_dtype(t) ~= self.dtype then
    fail("InvalidArgument", "%s: TensorArray dtype is %s but Op is trying to "
      .. "write dtype %s", what, self.dtype, raw.tensor_dtype(t))
  end
  return t
end

-- The tensor as an element; what is known of elements is what all have.
local function fit(self, what, value)
  local t = typed(self, what, value)
  local dims, shape = raw.tensor_dims(t), field(self, "shape")
  local good, merged = shape == nil or #shape == #dims, {}
  for axis = 1, good and #dims or 0 do
    local size = shape and shape[axis] or -1
    good = good and (size < 0 or dims[axis] < 0 or size == dims[axis])
    merged[axis] = size < 0 and dims[axis] or size
  end
  if not good then
    fail("ValueError", "%s: Incompatible shape for value (%s), expected (%s)",
      what, text.shape(dims), text.shape(shape))
  end
  return t, field(self, "infers") and merged or shape
end

-- A position: a whole number, or the tensor that has it at a call.
local function position(what, index)
  if type(index) ~= "number" then
    local t = convert.index_operand(index, "TensorArray." .. what, "index")
    t = raw.kind(t) == "variable" and raw.variable_read(t)
      or raw.operand_tensor(t)
    if not convert.INTEGER[raw.tensor_dtype(t)] or raw.tensor_size(t) ~= 1 then
      fail("TypeError", "%s: index must be one whole number, got a %s tensor of "
        .. "shape %s", what, raw.tensor_dtype(t), text.shape(raw.tensor_dims(t)))
    end
    if tracing.is_symbolic(t) then
      return nil, tf.reshape(t, {})
    end
    index = raw.item(t)
  end
  return options.integer("TensorArray." .. what, "index", index)
end

local function item(self, what, i)
  local t = field(self, "items")[i + 1]
  if t == nil then
    t = tf.zeros(known_shape(self, what), self.dtype)
  end
  return t
end

-- All elements as a Lua list.
local function elements(self, what)
  if self.n > MOST_LISTED then
    local shape, size = field(self, "shape") or {}, 1
    for axis = 1, #shape do
      size = size * math.max(shape[axis], 1)
    end
    fail("ResourceExhausted", "%s: %d elements of %d bytes, of which at most %d "
      .. "are put together", what, self.n,
      size * raw.dtype_size(raw.dtype_find(self.dtype)), MOST_LISTED)
  end
  local list = {}
  for i = 0, self.n - 1 do
    list[i + 1] = item(self, what, i)
  end
  return list
end

-- All elements as one tensor.
local function all_rows(self, what)
  if field(self, "rows") ~= nil then
    return self.rows
  end
  local list = elements(self, what)
  if #list > 0 then
    return tf.stack(list, 0)
  end
  local dims = { 0 }
  for axis, size in ipairs(known_shape(self, what)) do
    dims[axis + 1] = size
  end
  return tf.zeros(dims, self.dtype)
end

local function count_of(self)
  if field(self, "rows") == nil then
    return tf.constant(self.n, "int32")
  end
  return field(self, "count")
    or tf.constant(raw.tensor_dim(self.rows, 0), "int32")
end

-- How many there are, -1 where only a call knows.
local function size_of(self)
  return field(self, "rows") == nil and self.n or raw.tensor_dims(self.rows)[1]
end

-- Is there this position, as far as is known?
local function is_within(self, index)
  local size = size_of(self)
  return index >= 0 and (size < 0 or index < size)
end

-- The same elements, as rows.
local function as_rows(self, what)
  local out = changed(self)
  if field(out, "rows") == nil then
    out.rows = all_rows(self, what)
    out.count = field(self, "grows") and count_of(self) or nil
    out.items, out.n = nil, nil
    local dims = raw.tensor_dims(out.rows)
    table.remove(dims, 1)
    out.shape = dims
  end
  return out
end

-- fn(...) on rows: what it raises at a call is told with the method, as the
-- script knows no op of that name.
local function on_rows(what, rows, fn, ...)
  local size = raw.tensor_dims(rows)[1]
  local ok, t = tracing.noted(("in TensorArray.%s%s"):format(what, size < 0
    and "" or (", of an array of size %d"):format(size)), nil, fn, ...)
  if not ok then
    error(t, 0)
  end
  return t
end

-- Writing ----------------------------------------------------------------------

-- Rows until there is one at this position.
local function grow(self, index)
  local dims = raw.tensor_dims(self.rows)
  dims[1] = 1
  local row = tf.zeros(dims, self.dtype)
  dims[1] = -1
  self.rows, self.count = tf.while_loop(function(_, n)
    return tf.less_equal(n, index)
  end, function(all, n)
    return tf.concat({ all, row }, 0), n + 1
  end, { self.rows, self.count }, { shape_invariants = { dims, {} } })
end

local function write_row(self, what, index, t)
  local out
  if field(self, "rows") == nil and field(self, "shape") == nil then
    local like = changed(self)
    like.shape = raw.tensor_dims(t)
    self = like
  end
  out = as_rows(self, what)
  if field(out, "grows") then
    grow(out, index)
  end
  out.rows = on_rows(what, out.rows, tf.tensor_scatter_nd_update, out.rows,
    tf.reshape(index, { 1, 1 }), tf.expand_dims(t, 0))
  return out
end

local function write_item(self, index, t, shape)
  local out = changed(self)
  out.shape = shape
  out.n = math.max(out.n, index + 1)
  out.items[index + 1] = t
  return out
end

-- For the method `what`.
local function put(self, what, index, value)
  local t, shape = fit(self, what, value)
  local known, symbol = position(what, index)
  if known == nil then
    return write_row(self, what, symbol, t)
  elseif known < 0 then
    refuse("OutOfRange", "%s: Writing to negative indices (index %d) is not "
      .. "allowed.", what, known)
    self = changed(self)
    self.shape = shape
    return self
  elseif not field(self, "grows") and not is_within(self, known) then
    refuse("OutOfRange", "%s: Tried to write to index %d but array is not "
      .. "resizeable and size is: %d", what, known, size_of(self))
    self = changed(self)
    self.shape = shape
    return self
  elseif known >= MOST and field(self, "grows") then
    refuse("OutOfRange", "%s: index %d is not below %d, the most elements that "
      .. "an array has", what, known, MOST)
    self = changed(self)
    self.shape = shape
    return self
  elseif field(self, "rows") ~= nil then
    return write_row(self, what, tf.constant(known, "int32"), t)
  end
  return write_item(self, known, t, shape)
end

local function write(self, index, value)
  return put(self, "write", index, value)
end

-- Reading ----------------------------------------------------------------------

-- An element there is, or one like those.
local function some_item(self, what)
  if field(self, "rows") ~= nil then
    return tf.reduce_sum(self.rows, 0)
  end
  local _, t = next(field(self, "items"))
  return t or tf.zeros(known_shape(self, what), self.dtype)
end

local function refuse_index(self, what, index)
  if index < 0 then
    refuse("OutOfRange", "%s: Reading from negative indices (index %d) is not "
      .. "allowed.", what, index)
  else
    refuse("OutOfRange", "%s: Tried to read from index %d but array size is: %d ",
      what, index, size_of(self))
  end
  return some_item(self, what)
end

local function read_item(self, index)
  local t = self.items[index + 1]
  if t == nil and self.cleared[index] then
    fail("InvalidArgument", "read: Could not read index %d twice because it "
      .. "was cleared after a previous read (perhaps try setting "
      .. "clear_after_read = false?)", index)
  end
  t = t or item(self, "read", index)
  if field(self, "clears") and tracing.current() == nil then
    self.items[index + 1] = nil
    self.cleared[index] = true
  end
  return t
end

local function read(self, index)
  local known, symbol = position("read", index)
  if known ~= nil and not is_within(self, known) then
    return refuse_index(self, "read", known)
  elseif known ~= nil and field(self, "rows") == nil then
    return read_item(self, known)
  end
  local rows = all_rows(self, "read")
  return on_rows("read", rows, tf.gather, rows, symbol
    or tf.constant(known, "int32"))
end

-- Several at once --------------------------------------------------------------

local function rows_of(self, what, value)
  local t = typed(self, what, value)
  if raw.tensor_rank(t) == 0 then
    fail("ValueError", "%s: value must have an axis 0, got a scalar", what)
  end
  return t
end

local function check_size(self, what, n)
  if field(self, "rows") == nil and n > self.n and not field(self, "grows") then
    refuse("ValueError", "%s: Cannot unstack %d tensors into a TensorArray of "
      .. "static size %d ", what, n, self.n)
  end
end

-- The rows of t, whose gradient is dense, as it is where ops run: not a list of
-- those that were read.
local function dense_rows(t)
  local dims, open = raw.tensor_dims(t), 0
  for axis = 1, #dims do
    -- Beside a size of 0 no other one follows from the number of elements.
    open = open + (dims[axis] < 0 and 1 or dims[axis] == 0 and 2 or 0)
  end
  return open > 1 and tf.concat({ t }, 0) or tf.reshape(t, dims)
end

local function unstack(self, value)
  local t = rows_of(self, "unstack", value)
  local grows = field(self, "grows")
  local n = grows and raw.tensor_dim(t, 0) or raw.open_dim(t, 0)
  check_size(self, "unstack", n)
  local out = changed(self)
  if tracing.current() ~= nil then
    local _, shape = fit(self, "unstack", n == 0 and tf.reduce_sum(t, 0) or t[0])
    out.items, out.n, out.rows, out.shape = nil, nil, dense_rows(t), shape
    out.count = grows and tf.constant(n, "int32") or nil
    return out
  end
  local list = n > 0 and tf.unstack(t) or {}
  out.items, out.n, out.cleared = {}, n, {}
  for i = 1, n do
    out.items[i], out.shape = fit(out, "unstack", list[i])
  end
  return out
end

local function known_list(what, name, x)
  if type(x) == "userdata" and tracing.is_symbolic(raw.operand_tensor(x)) then
    return nil
  end
  return convert.integers(x, "TensorArray." .. what, name)
end

local function scatter(self, indices, value)
  local t = rows_of(self, "scatter", value)
  local list = known_list("scatter", "indices", indices)
  if list == nil then
    for i = 0, raw.tensor_dim(t, 0) - 1 do
      self = put(self, "scatter", indices[i], t[i])
    end
    return self
  end
  for i = 1, math.min(#list, raw.tensor_dim(t, 0)) do
    self = put(self, "scatter", list[i], t[i - 1])
  end
  return self
end

local function gather(self, indices)
  local list = known_list("gather", "indices", indices)
  for k = 1, list and field(self, "rows") ~= nil and #list or 0 do
    if not is_within(self, list[k]) then
      local t = refuse_index(self, "gather", list[k])
      local parts = {}
      for i = 1, #list do
        parts[i] = t
      end
      return tf.stack(parts, 0)
    end
  end
  if list == nil or field(self, "rows") ~= nil then
    local rows = all_rows(self, "gather")
    return on_rows("gather", rows, tf.gather, rows, list
      and raw.tensor_from_values(list, "int32", { #list }) or indices)
  end
  local parts = {}
  for k, i in ipairs(list) do
    parts[k] = i >= 0 and i < self.n and item(self, "gather", i)
      or refuse_index(self, "gather", i)
  end
  return tf.stack(parts, 0)
end

local function concat(self)
  if field(self, "rows") ~= nil then
    local dims = raw.known_dims(self.rows, "TensorArray.concat")
    dims[2] = dims[1] * (dims[2] or 1)
    table.remove(dims, 1)
    return tf.reshape(self.rows, dims)
  end
  local parts = elements(self, "concat")
  return #parts > 0 and tf.concat(parts, 0) or tf.zeros({ 0 }, self.dtype)
end

local function split(self, value, lengths)
  local t = rows_of(self, "split", value)
  local list, sum = convert.integers(lengths, "TensorArray.split", "lengths"), 0
  for i = 1, #list do
    if list[i] < 0 then
      refuse("InvalidArgument", "split: lengths[%d] = %d; expected 0 or more",
        i - 1, list[i])
    end
    sum = sum + math.max(list[i], 0)
  end
  if sum ~= raw.tensor_dim(t, 0) then
    refuse("InvalidArgument", "split: Expected sum of lengths to be equal to "
      .. "values.shape[0], but sum of lengths is %d and value's shape is: %s",
      sum, text.shape(raw.tensor_dims(t)))
  end
  if field(self, "rows") == nil and #list ~= self.n
    and not field(self, "grows") then
    refuse("InvalidArgument", "split: TensorArray's size is not equal to the "
      .. "size of lengths (%d vs. %d), and the TensorArray is not marked as "
      .. "dynamically resizeable.", self.n, #list)
  end
  local out, begin = changed(self), 0
  out.items, out.n, out.rows, out.count = {}, #list, nil, nil
  out.cleared = {}
  for i = 1, #list do -- which may differ in length
    local length = math.max(list[i], 0)
    out.items[i] = t[{ { begin, begin + length } }]
    begin = begin + length
  end
  return out
end

-- Methods ----------------------------------------------------------------------

local function method(name, signature, fn)
  methods[name] = options.method("TensorArray." .. name, signature, fn,
    is_array, "TensorArray")
end

--- Put value at a position. Returns the array to go on with.
--- Errors: OutOfRange outside of an array of fixed size; InvalidArgument for
---   another dtype, ValueError for another shape.
--- Source: tf.TensorArray.write
method("write", "index value name=nil", write)

--- The element at a position; zeros where none was written. After that it is
--- gone, unless the array was made with clear_after_read = false or is traced.
--- Errors: OutOfRange; InvalidArgument for an element that is gone.
--- Source: tf.TensorArray.read
method("read", "index name=nil", read)

--- All elements along a new axis 0. Source: tf.TensorArray.stack
method("stack", "name=nil", function(self)
  return all_rows(self, "stack")
end)

--- The elements at these positions along a new axis 0.
--- Source: tf.TensorArray.gather
method("gather", "indices name=nil", gather)

--- All elements along their axis 0. Source: tf.TensorArray.concat
method("concat", "name=nil", concat)

--- The rows of value as elements. Source: tf.TensorArray.unstack
method("unstack", "value name=nil", unstack)

--- Put the rows of value at these positions. Source: tf.TensorArray.scatter
method("scatter", "indices value name=nil", scatter)

--- Parts of value, of these lengths along axis 0, as elements.
--- Source: tf.TensorArray.split
method("split", "value lengths name=nil", split)

--- How many elements there are, an int32 scalar. Source: tf.TensorArray.size
method("size", "name=nil", count_of)

--- The same array. Source: tf.TensorArray.identity
method("identity", "", function(self) return self end)

--- Let all elements go. Source: tf.TensorArray.close
method("close", "name=nil", function(self)
  self.items, self.n, self.rows, self.count = {}, 0, nil, nil
end)

-- Loops and branches -----------------------------------------------------------

--- Is its element's shape what only a write will say?
function M.is_blank(self)
  return field(self, "rows") == nil and field(self, "shape") == nil
    and next(field(self, "items")) == nil
end

--- The tensors that stand for the array in a loop, a list: rows, and a count if
--- it may grow.
function M.spread(self)
  local out = as_rows(self, "loop")
  return { out.rows, field(out, "grows") and out.count or nil }
end

--- Sizes that the rows may have as a loop goes on.
function M.dims(self, rows)
  local dims = raw.tensor_dims(rows)
  if field(self, "grows") then
    dims[1] = -1
  end
  return dims
end

--- An array like this one of such tensors.
function M.gathered(self, rows, count)
  local out = changed(self)
  local dims = raw.tensor_dims(rows)
  table.remove(dims, 1)
  out.items, out.n, out.rows, out.count, out.shape = nil, nil, rows, count, dims
  return out
end

--- A copy whose elements have the shape of another's.
function M.like(self, other)
  local out = changed(self)
  out.shape = field(other, "shape")
  return out
end

--- One with fn(tensor) in each tensor's place.
function M.map(self, fn)
  local out = setmetatable({}, TensorArray)
  for key, value in pairs(self) do
    out[key] = (key == "rows" or key == "count") and fn(value) or value
  end
  if field(self, "items") ~= nil then
    out.items = {}
    for i, x in pairs(field(self, "items")) do
      out.items[i] = fn(x)
    end
  end
  return out
end

--- Put tf.TensorArray into tf.
function M.install(functions, def)
  tf = functions

  --- An array of `size` tensors of one dtype; with dynamic_size it grows as it
  --- is written. infer_shape: all elements have the shape of the first.
  --- Source: tf.TensorArray
  def("TensorArray", "dtype size=nil dynamic_size=nil clear_after_read=nil "
    .. "tensor_array_name=nil handle=nil flow=nil infer_shape=true "
    .. "element_shape:table=nil colocate_with_first_write_call=true name=nil",
    function(dtype, size, grows, clears, _, handle, flow, infers, shape)
      if handle ~= nil or flow ~= nil then
        errors.raise("NotImplementedError", "TensorArray: there are no handles "
          .. "and flows of arrays here")
      end
      if type(size) == "userdata" then
        tracing.need_counts("TensorArray", "size", size)
        size = raw.item(raw.operand_tensor(size))
      end
      size = options.integer("TensorArray", "size", size or 0, 0, MOST)
      return setmetatable({ dtype = convert.dtype(dtype, "TensorArray"),
        grows = grows == true, clears = clears ~= false, infers = infers ~= false,
        shape = shape and convert.integers(shape, "TensorArray",
          "element_shape") or nil, items = {}, n = size, cleared = {} },
        TensorArray)
    end)
end

return M
