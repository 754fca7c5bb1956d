--- Tensors as users see them: properties, methods, operators, constants.
---
--- Op families add their functions to `methods` through module ops; what is
--- here needs no op or is not one. Variables share everything: their own
--- module falls back to the tables of this one.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local index = require "tfdist.core.index"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local printer = require "tfdist.core.printer"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local type = type
-- The module of typed views, where FFI is on.
local views = raw.ffi_enabled and require "tfdist.core.ffi" or nil

--- name -> function that makes the method
M.lazy_methods = {}

--- name -> function(self, ...); fills itself from lazy_methods.
M.methods = setmetatable({}, {
  __index = function(methods, name)
    local make = M.lazy_methods[name]
    if make == nil then
      return nil
    end
    local method = make()
    rawset(methods, name, method)
    return method
  end,
})

--- Let tensors have a method that is made when it is first used.
---@param name string
---@param make fun():function
function M.put_method(name, make)
  M.lazy_methods[name] = make
  rawset(M.methods, name, nil)
end

--- name -> function(self) -> value
M.getters = {}

local methods, getters = M.methods, M.getters

-- The tensor behind a tensor, a variable or slices, without recording.
local function value_of(x)
  local kind = raw.kind(x)
  if kind == "tensor" then
    return x
  elseif kind == "variable" or kind == "mirrored" or kind == "value" then
    return raw.operand_tensor(x)
  end
  return convert.operand(x, nil, "Tensor", "self")
end

M.value_of = value_of

-- What read(t) says of the tensor behind x. While a snapshot of a variable
-- lives, assignments take fresh memory: it goes at once.
local function fact(read, x)
  local t = value_of(x)
  local answer = read(t)
  if raw.kind(x) == "variable" then
    raw.release(t)
  end
  return answer
end

local function shape_of(x)
  return fact(raw.tensor_dims, x)
end

--- The dtype of a tensor or variable.
function M.dtype_of(x)
  return fact(raw.tensor_dtype, x)
end

M.shape_of = shape_of

--- The sizes of a tensor or variable, for `what`, which counts with them.
--- Errors: NotImplementedError where only a call knows them.
function M.known_shape_of(x, what)
  return fact(function(t)
    return raw.known_dims(t, what)
  end, x)
end

-- Properties -----------------------------------------------------------------

--- Sizes of the axes: a plain list that prints as "{2, 3}" and is equal to
--- another shape of the same sizes.
function getters.shape(x)
  local dims = shape_of(x)
  tracing.look_at_sizes(dims)
  return text.as_shape(dims)
end

getters.dtype = M.dtype_of

function getters.device(x)
  return raw.device_name(fact(raw.tensor_device, x))
end

function getters.rank(x)
  return fact(raw.tensor_rank, x)
end

getters.ndim = getters.rank

-- Methods that are no ops ----------------------------------------------------

local function is_self(x)
  return type(x) == "userdata" and raw.is_operand(x)
    or (type(x) == "table" and (getmetatable(x) or {}).__tensor ~= nil)
end

M.is_self = is_self

-- A method with the calling rule and the check for a dot in place of a colon.
local function method(name, signature, fn)
  methods[name] = options.method("Tensor." .. name, signature, fn, is_self,
    "tensor")
end

--- The value of a tensor with one element, or of element `i` (row-major, from
--- 0), as a number or boolean. Blocks: until it is computed. Whole numbers
--- are exact; LuaJIT's numbers hold 53 bits of them.
--- Errors: ValueError when there are several elements and no `i`; IndexError.
--- Source: numpy.ndarray.item
method("item", "i=nil", function(self, i)
  local t = value_of(self)
  if i == nil and raw.tensor_size(t) ~= 1 then
    errors.raise("ValueError", "item: the tensor has shape "
      .. text.shape(shape_of(t)) .. "; only a tensor with one element has "
      .. "one value", "t:totable() gives all, t:item(i) the i-th")
  end
  return raw.item(t, i)
end)

--- All elements as nested Lua lists; the plain value of a scalar.
--- Blocks: until they are computed.
method("totable", "", function(self)
  return raw.tensor_to_table(value_of(self))
end)

--- All elements as one Lua list, row-major.
method("toflat", "", function(self)
  return raw.tensor_to_flat(value_of(self))
end)

--- All elements as a string of little-endian bytes, row-major.
method("bytes", "", function(self)
  return raw.tensor_bytes(value_of(self))
end)

--- Number of elements.
method("numel", "", function(self)
  return raw.tensor_size(value_of(self))
end)

--- Number of elements.
method("size", "", function(self)
  return raw.tensor_size(value_of(self))
end)

--- Wait until the elements are computed; returns the tensor.
--- Errors: what the queued work raised.
method("wait", "", function(self)
  raw.tensor_wait(value_of(self))
  return self
end)

--- Give the handle's memory back now, not when the collector comes. Using the
--- handle afterwards is FailedPrecondition; releasing twice is nothing.
function methods.release(self)
  if type(self) ~= "userdata" or raw.kind(self) == nil then
    options.wrong_self("Tensor.release", "tensor", self)
  end
  return raw.release(self)
end

--- The same values on another device; gradients flow through.
--- Errors: InvalidArgument naming the devices there are.
---@param device string  "/cpu:1"
method("to", "device", function(self, device)
  return raw.tensor_to_device(convert.tensor(self, nil, "to", "self"),
    raw.device_find(device))
end)

--- A dense copy of the values.
method("clone", "", function(self)
  return raw.op_run(raw.op_find "copy", { self, n = 1 })
end)

--- Pairs of position (from 0) and row along axis 0, for `for i, row in ...`.
--- Shapes: rows are [d1..dk] of [d0..dk].
method("iter", "", function(self)
  local n, i = #self, -1
  return function()
    i = i + 1
    if i < n then
      return i, self[i]
    end
    return nil
  end
end)

--- The elements in place (LuaJIT with FFI): data[i] for i from 0, row-major,
--- `#data`, and `data.pointer`, a typed pointer that is good as long as the
--- object lives. Views with gaps are copied first.
--- Errors: NotImplementedError without FFI; TypeError for a write.
method("data", "", function(self)
  local t = value_of(self)
  if views == nil then
    errors.raise("NotImplementedError", "data: element pointers need LuaJIT "
      .. "with FFI on", "t:bytes(), t:totable() or t:item(i) work everywhere")
  elseif not raw.tensor_is_dense(t) then
    t = raw.op_run(raw.op_find "copy", { t, n = 1 })
  end
  return views.view(t)
end)

-- Metatable ------------------------------------------------------------------

local ITERATE = "for i, row in t:iter() do goes through the rows, from 0"

-- How Lua calls them in messages of its own.
M.NAMES = { tensor = true, variable = true, mirrored = true }

-- What other libraries call what is here under another name.
local ELSEWHERE = {
  numpy = "t:totable() gives nested lists, t:toflat() one list, t:item() the "
    .. "value of a scalar",
  tolist = "t:totable() gives nested lists, t:toflat() one list",
  to_table = "t:totable() gives nested lists",
  to_flat = "t:toflat() gives one list",
  get_shape = "t.shape is a list of sizes",
  astype = "t:cast(dtype) converts", type = "t.dtype, t:cast(dtype)",
  float = "t:cast(\"float32\") converts",
  int = "t:cast(\"int32\") converts",
  long = "t:cast(\"int64\") converts", double = "t:cast(\"float64\") converts",
  view = "t:reshape { ... }", permute = "t:transpose { ... }",
  flatten = "t:reshape { -1 }",
  T = "t:transpose()", t = "t:transpose()", dim = "t.ndim, #t.shape",
  unsqueeze = "t:expand_dims(axis)", clamp = "t:clip_by_value(min, max)",
  cpu = "t:to \"/cpu:0\"", cuda = "t:to \"/gpu:0\"",
  dot = "a:matmul(b), a:tensordot(b, axes)", mm = "a:matmul(b)", detach = "tf.stop_gradient(t)",
  backward = "tape:gradient(loss, variables) of tf.GradientTape",
  grad = "tape:gradient(loss, variables) of tf.GradientTape",
  gradient = "the tape comes first: tape, loss = tf.GradientTape(fn)",
  requires_grad = "tape:watch(t) of tf.GradientTape",
  set_shape = "t:reshape { ... } gives a tensor of another shape",
  assign = "tensors do not change; tf.Variable has assign",
  assign_add = "tensors do not change; tf.Variable has assign_add",
  assign_sub = "tensors do not change; tf.Variable has assign_sub",
}

local function unknown_field(what, key, own_methods, own_getters)
  local hint = ELSEWHERE[key]
  if hint == nil then
    local near = text.nearest(key, text.names(methods, getters,
      M.lazy_methods, own_methods, own_getters))
    hint = near and "did you mean " .. near .. "?" or nil
  end
  errors.raise("KeyError", ("a %s has no field or method %s"):format(what,
    text.quote(key)), hint)
end

-- `hint`, then how to get at a number: in a trace there is none yet.
local function by_value(hint, eager)
  return hint .. (tracing.current() ~= nil and "tf.cond, tf.where and "
    .. "tf.while_loop decide by values, tf.print shows them" or eager)
end

-- Operators like `<` would make one boolean of tensors: refuse them. LuaJIT
-- asks only when both operands have the very same function, so all kinds of
-- tensors share these; with a number it raises a text of its own, which
-- errors.explain knows. Lua asks for a > b as for b < a: messages name both.
local function no_order(symbol, name, turned, other)
  return function()
    errors.raise("TypeError", ("tensors have no `%s` and `%s`: Lua makes the "
      .. "result one boolean"):format(symbol, turned),
      by_value(("a:%s(b) and a:%s(b) compare element by element, "):format(name,
        other), ("a:item() %s b:item() two scalars"):format(symbol)))
  end
end

local no_less = no_order("<", "less", ">", "greater")
local no_less_equal = no_order("<=", "less_equal", ">=", "greater_equal")

errors.add_explanation(function(message)
  local of = message:match("attempt to compare (.*)$")
  if of ~= nil and of:find("userdata", 1, true) then
    return "TypeError", by_value("tensors have no `<`, `>`, `<=` and `>=`: "
      .. "a:less(b), a:greater(b), a:less_equal(b) and a:greater_equal(b) "
      .. "compare element by element, ", "a:item() < b two numbers")
  elseif message:find("to 'i?pairs' %(table expected, got userdata%)") then
    return "TypeError", ITERATE
  end
  -- LuaJIT has no name for what it got.
  local want, got = message:match("%((%a+) expected, got (%a+)%)$")
  if (want == "number" or want == "string")
    and (got == "userdata" or M.NAMES[got]) then
    return "TypeError", want == "number"
      and by_value("", "t:item() is the number of a tensor with one element")
      or "tostring(t) is the text that print shows"
  elseif message:find("^invalid value %(userdata%) at index %d+ in table") then
    return "TypeError", "tostring(t) is the text that print shows"
  end
end)

local function no_pairs(x)
  local what = text.describe(x)
  errors.raise("TypeError", "pairs: " .. what .. " is no table", ITERATE)
end

-- "loss " .. loss is the text that print shows.
local function concat(a, b)
  return tostring(a) .. tostring(b)
end

local function no_call(x)
  errors.raise("TypeError", text.describe(x) .. " cannot be called", ITERATE)
end

local OPERATORS = {
  __add = "add", __sub = "subtract", __mul = "multiply", __div = "divide",
  __idiv = "floordiv", __mod = "floormod", __pow = "pow",
}

--- Let `<`, iteration and calls of what has this metatable be errors with a
--- hint.
---@param meta table
function M.refuse_order(meta)
  meta.__lt, meta.__le = no_less, no_less_equal
  meta.__pairs, meta.__ipairs, meta.__call = no_pairs, no_pairs, no_call
end

--- Fill a metatable with what tensors can do.
---@param meta table
---@param tf table
---@param own_methods table  looked up first
---@param own_getters table
---@param what string        "Tensor", for messages
function M.fill_metatable(meta, tf, own_methods, own_getters, what)
  meta.__index = function(self, key)
    if type(key) == "string" then
      local found = own_getters[key]
      if found ~= nil then
        return found(self)
      end
      found = own_methods[key]
      if found ~= nil then
        return found
      elseif key ~= "..." then
        unknown_field(what, key, own_methods, own_getters)
      end
    end
    return index.get(tf, self, key)
  end
  meta.__newindex = function(_, key)
    errors.raise("TypeError", ("a %s cannot be changed by assigning to [%s]")
      :format(what, tostring(key)), "tf.Variable has assign and scatter_update;"
      .. " tf.tensor_scatter_nd_update makes a changed copy")
  end
  meta.__len = function(self)
    text.check_open(self, "#")
    local t = value_of(self)
    if raw.tensor_rank(t) == 0 then
      errors.raise("TypeError", "a scalar has no length (`#` is the size of "
        .. "axis 0)")
    end
    local size = raw.tensor_is_symbolic(t) and raw.tensor_dims(t)[1] or 0
    if size < 0 then
      tracing.look_at_sizes { size }
      errors.raise("ValueError", ("# of a tensor %s: its length is not known "
        .. "before the traced function is called"):format(
        text.shape(raw.tensor_dims(t))), "tf.shape(x)[0] is a tensor with it")
    end
    return raw.tensor_dim(t, 0)
  end
  M.refuse_order(meta)
  meta.__concat = concat
  meta.__names = function()
    return text.names(methods, getters, M.lazy_methods)
  end
  M.set_operators(meta, tf)
end

--- Arithmetic; operands of other kinds take the general way through tf.math.
function M.set_operators(meta, tf)
  for event, name in pairs(OPERATORS) do
    local slow = function(a, b)
      return tf.math[name](a, b)
    end
    meta[event] = raw.binary_metamethod(raw.op_find(name), nil, nil, slow)
  end
  meta.__unm = raw.unary_metamethod(raw.op_find "negative", nil, nil,
    function(a)
      return tf.math.negative(a)
    end)
end

-- Functions under tf ---------------------------------------------------------

local function check_dtype(x, dtype, what)
  local given = raw.tensor_dtype(raw.operand_tensor(x))
  if dtype ~= nil and given ~= dtype then
    errors.raise("TypeError", ("%s: the tensor is %s, asked for is %s"):format(
      what, given, dtype), "tf.cast(x, \"" .. dtype .. "\") converts")
  end
end

local function constant(value, dtype, shape)
  if dtype == nil and shape == nil and type(value) == "number" then
    return raw.tensor_from_table(value)
  end
  dtype = convert.dtype(dtype, "constant")
  if type(value) == "boolean" and dtype ~= nil and dtype ~= "bool" then
    value = value and 1 or 0
  end
  if dtype == "bool" and type(value) == "number" then
    value = value ~= 0
  end
  local t
  if text.is_plain(value) then
    local why
    t, why = raw.tensor_from_table(value, dtype)
    if t == nil and why == "handle" then
      t = convert.tensor(value, dtype, "constant", "value")
    end
  else
    t = convert.tensor(value, dtype, "constant", "value")
  end
  check_dtype(t, dtype, "constant")
  if shape == nil then
    return t
  end
  shape = convert.integers(shape, "constant", "shape")
  local size = raw.tensor_size(t)
  if size == 1 then
    return raw.tensor_from_values({ raw.tensor_to_flat(t)[1] == true and 1
      or raw.tensor_to_flat(t)[1] or 0 }, raw.tensor_dtype(t), shape)
  elseif size ~= lists.product(shape) then
    errors.raise("InvalidArgument", ("constant: %d values do not fill shape %s")
      :format(size, text.shape(shape)))
  end
  local ints = { #shape, 0, 0, 0, 0, 0, 0, 0, 0 }
  for i = 1, #shape do
    ints[1 + i] = shape[i]
  end
  return raw.op_run(raw.op_find "reshape", { t, n = 1 }, ints)
end

-- Names of tf and tf.dtypes; "string" is that of elements of datasets.
M.DTYPES = { double = "float64", half = "float16" }
for name in ([[float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8
  bool string]]):gmatch "%S+" do
  M.DTYPES[name] = name
end

local LIMITS = {
  float16 = 65504, bfloat16 = 3.3895313892515355e38,
  float32 = 3.4028234663852886e38, float64 = 1.7976931348623157e308,
  int8 = 127, int16 = 32767, int32 = 2147483647, uint8 = 255,
  -- The largest whole number below 2^63 that both engines hold exactly.
  int64 = 9223372036854774784,
}

-- A dtype's name, that of the elements of datasets too.
local function any_dtype(dtype, what)
  if type(dtype) == "string" and dtype:lower() == "string" then
    return "string"
  end
  return convert.dtype(dtype, what)
end

local function dtype_functions(def)
  def("as_dtype dtypes.as_dtype", "type_value", function(dtype)
    return any_dtype(dtype, "as_dtype")
  end)
  --- Bytes of one element.
  def("dtypes.size", "dtype", function(dtype)
    return raw.dtype_size(raw.enums.dtype[convert.dtype(dtype, "size")])
  end)
  def("dtypes.is_floating", "dtype", function(dtype)
    return convert.FLOATING[any_dtype(dtype, "is_floating")] or false
  end)
  --- True for int8 .. int64 and uint8; false for bool.
  def("dtypes.is_integer", "dtype", function(dtype)
    return convert.INTEGER[any_dtype(dtype, "is_integer")] or false
  end)
  --- Largest finite value. int64's is the largest that a double holds.
  def("dtypes.max", "dtype", function(dtype)
    dtype = convert.dtype(dtype, "max")
    if dtype == "bool" then
      return true
    end
    return LIMITS[dtype]
  end)
  --- Smallest finite value.
  def("dtypes.min", "dtype", function(dtype)
    dtype = convert.dtype(dtype, "min")
    if dtype == "bool" then
      return false
    elseif dtype == "uint8" then
      return 0
    elseif dtype == "int64" then
      return -9223372036854775808
    end
    return -LIMITS[dtype] - (convert.INTEGER[dtype] and 1 or 0)
  end)
end

--- Put tensors and their constructors into tf.
---@param tf table
---@param def function  as op families get it
function M.install(tf, def)
  local meta = raw.metatable "tensor"
  M.fill_metatable(meta, tf, methods, getters, "Tensor")
  meta.__tostring = printer.tensor
  for name, dtype in pairs(M.DTYPES) do
    tf[name] = dtype
  end
  tf.newaxis = index.newaxis
  tf.Tensor = methods
  dtype_functions(def)

  --- A tensor from a number, a boolean, nested lists or a tensor. Numbers are
  --- float32 unless dtype says otherwise.
  --- Shapes: that of the nested lists; with `shape`, one value fills it and
  ---   several are laid out row-major.
  --- Errors: ValueError for ragged lists, InvalidArgument for a shape that
  ---   does not fit.
  --- Source: tf.constant
  def("constant", "value dtype=nil shape=nil name=nil", constant)

  --- A tensor of what can be one: variables are read, IndexedSlices become
  --- dense. `dtype_hint` is used for Lua numbers when dtype is not given.
  --- Source: tf.convert_to_tensor
  def("convert_to_tensor", "value dtype=nil dtype_hint=nil name=nil",
    function(value, dtype, hint)
      dtype = convert.dtype(dtype, "convert_to_tensor")
      hint = convert.dtype(hint, "convert_to_tensor")
      local t = convert.tensor(value, dtype or hint, "convert_to_tensor",
        "value")
      check_dtype(t, dtype, "convert_to_tensor")
      return t
    end)

  --- True for tensors, variables, IndexedSlices and objects that stand for one.
  def("is_tensor", "x:table=nil", function(x)
    return is_self(x) or (type(x) == "userdata" and raw.kind(x) == "slices")
  end)
end

return M
