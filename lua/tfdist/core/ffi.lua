--- LuaJIT's way into the C API: wrappers over every function that take and
--- give the same objects as the rest of the library.
---
---   local ffi = require "tfdist.ffi"
---   ffi.tensor_item(t, 0)         every function of src/tfdist.h, no tfd_
---   local view = ffi.view(t)      elements without copying: view[i], #view,
---   view.pointer, view.tensor     i from 0; the view keeps the tensor alive
---
--- Element and size access through FFI costs about 3 ns when compiled,
--- against 25 ns through the C API; making tensors is cheaper through the
--- C API, so the library itself uses only `fast_paths`.
--- Errors: as everywhere, error objects; loading fails on other engines.
local core = require "tfdist.core"
local errors = require "tfdist.base.errors"

if not rawget(_G, "jit") then
  errors.raise("NotImplementedError", "tfdist.ffi: needs LuaJIT")
end

local ffi = require "ffi"
-- Generated from the header, carried by the core module it belongs to.
local build = assert(rawget(_G, "loadstring")(core.ffi_source, "=tfdist.ffi"))()

-- The symbols are in the host itself or in the core module.
local function library()
  local ok, there = pcall(function() return ffi.C.tfd_version end)
  if ok and there ~= nil then
    return ffi.C
  end
  local searchpath = rawget(package, "searchpath")
  return ffi.load(assert(searchpath("tfdist.core", package.cpath)))
end

local C = library()
local cast, new, string = ffi.cast, ffi.new, ffi.string
local slot_type = ffi.typeof("tfd__slot *")
local getmetatable, type, tonumber = getmetatable, type, tonumber

-- Support for the generated wrappers -----------------------------------------

local support = { adopt = core.adopt, fail = core.fail }

local metatables = {}
for kind in pairs(core.enums.handle_kind) do
  metatables[kind] = core.metatable(kind)
end

local function is_handle(x)
  return type(x) == "userdata" and core.kind(x) ~= nil
end

-- Pointer of an open handle; kind "object" takes all kinds.
function support.handle(x, kind, what, name)
  if type(x) ~= "userdata"
    or (getmetatable(x) ~= metatables[kind]
      and not (kind == "object" and is_handle(x))) then
    errors.raise("TypeError", ("%s: argument \"%s\" must be a %s, got %s")
      :format(what, name, kind, core.kind(x) or type(x)))
  end
  local object = cast(slot_type, x).object
  if object == nil then
    errors.raise("FailedPrecondition", what .. ": handle is released")
  end
  return cast("void *", object)
end

function support.handle_or_nil(x, kind, what, name)
  if x == nil then
    return nil
  end
  return support.handle(x, kind, what, name)
end

local function list_reader(ctype)
  local array = ffi.typeof(ctype)
  return function(list)
    local n = list and (list.n or #list) or 0
    if n == 0 then
      return nil, 0
    end
    local values = array(n)
    for i = 1, n do
      values[i - 1] = list[i]
    end
    return values, n
  end
end

support.ints = list_reader("int64_t[?]")
support.reals = list_reader("double[?]")

function support.handles(list, ctype)
  local n = list and (list.n or #list) or 0
  if n == 0 then
    return nil, 0
  end
  local values = new(ctype, n)
  for i = 1, n do
    if list[i] ~= nil then
      values[i - 1] = support.handle(list[i], "object", "list", "handles")
    end
  end
  return values, n
end

function support.text(pointer)
  if pointer == nil then
    return nil
  end
  return string(pointer)
end

function support.bytes(pointer, size)
  if pointer == nil then
    return nil
  end
  return string(pointer, size)
end

function support.enum(enum, name, what, argument)
  local value = core.enums[enum][type(name) == "string" and name:lower() or 0]
  if value == nil then
    errors.raise("ValueError", ("%s: argument \"%s\" cannot be \"%s\"")
      :format(what, argument, tostring(name)))
  end
  return value
end

local enum_names = {}
for enum, values in pairs(core.enums) do
  enum_names[enum] = {}
  for name, value in pairs(values) do
    enum_names[enum][value] = name
  end
end

function support.enum_name(enum, value)
  return enum_names[enum][tonumber(value)]
end

local M = build(C, support)

-- Views ----------------------------------------------------------------------

local CTYPES = {
  float32 = "float *", float64 = "double *", float16 = "uint16_t *",
  bfloat16 = "uint16_t *", int8 = "int8_t *", int16 = "int16_t *",
  int32 = "int32_t *", int64 = "int64_t *", uint8 = "uint8_t *",
  bool = "uint8_t *",
}

local data_cell = new("void *[1]")

-- Typed address of element 0; the caller keeps the tensor alive.
local function tensor_pointer(t)
  local object = support.handle(t, "tensor", "Tensor:data", "tensor")
  local code = C.tfd_tensor_data(object, data_cell)
  if code ~= 0 then
    core.fail(code)
  end
  return cast(CTYPES[M.tensor_dtype(t)], data_cell[0])
end

local View = {}

-- Negative NaNs that lie in memory would be taken for objects of LuaJIT, by
-- their bits: those are looked at first.
local function is_strange(view, i)
  local bits = view.bits
  if view.wide then
    return bits[2 * i + 1] >= 0xfff80000
  end
  return bits[i] > 0xff800000
end

function View.__index(view, i)
  if type(i) ~= "number" or i < 0 or i >= view.n then
    errors.raise("IndexError", ("view: position %s is outside 0..%d")
      :format(tostring(i), view.n - 1))
  elseif view.bits and is_strange(view, i - i % 1) then
    return 0 / 0
  end
  return view.pointer[i]
end

function View.__newindex()
  errors.raise("TypeError", "view: tensors cannot be written",
    "use a variable and assign")
end

function View.__len(view)
  return view.n
end

--- The tensor's elements in place: view[i] for i = 0 .. view.n - 1, row-major.
--- Half types appear as their 16 bits, booleans as 0 and 1.
--- Owns: the view holds the tensor; `view.pointer` alone does not.
---   `view.pointer[i]` of floats must not be read where a NaN can lie.
--- Errors: FailedPrecondition for tensors the host cannot see or that are
---   not dense.
function M.view(t)
  local pointer, dtype = tensor_pointer(t), M.tensor_dtype(t)
  local wide = dtype == "float64"
  return setmetatable({
    pointer = pointer, n = M.tensor_size(t), tensor = t, wide = wide,
    -- The missing key must not go through __index.
    bits = (wide or dtype == "float32") and cast("uint32_t *", pointer),
  }, View)
end

-- Fast paths -----------------------------------------------------------------

local tensor_mt = metatables.tensor
local number_cell = new("double[1]")

-- Type checks written out so that compiled code folds them.
local function open(t)
  if type(t) ~= "userdata" or getmetatable(t) ~= tensor_mt then
    return nil
  end
  return cast(slot_type, t).object
end

local fast = { tensor_pointer = tensor_pointer }

local function size_path(name)
  local slow = core[name]
  local fn = C["tfd_" .. name]
  fast[name] = function(t)
    local object = open(t)
    if object == nil then
      return slow(t)
    end
    return tonumber(fn(cast("void *", object)))
  end
end

size_path("tensor_size")
size_path("tensor_rank")

function fast.tensor_dim(t, axis)
  local object = open(t)
  if object == nil or type(axis) ~= "number" or axis % 1 ~= 0
    or axis < -8 or axis > 8 then
    return core.tensor_dim(t, axis)
  end
  return tonumber(C.tfd_tensor_dim(cast("void *", object), axis))
end

local dtype_names = enum_names.dtype

function fast.tensor_dtype(t)
  local object = open(t)
  if object == nil then
    return core.tensor_dtype(t)
  end
  return dtype_names[tonumber(C.tfd_tensor_dtype(cast("void *", object)))]
end

local BOOL = core.enums.dtype.bool

function fast.item(t, i)
  local object = open(t)
  if object == nil or type(i) ~= "number" or i % 1 ~= 0 or i < 0 or i > 1e15
    or C.tfd_is_interrupted() then
    return core.item(t, i)
  end
  object = cast("void *", object)
  -- The error of queued work is told once: it must not be asked for again.
  local code = C.tfd_tensor_item(object, i, number_cell)
  if code ~= 0 then
    core.fail(code)
  end
  if tonumber(C.tfd_tensor_dtype(object)) == BOOL then
    return number_cell[0] ~= 0
  end
  return number_cell[0]
end

M.fast_paths = fast

return M
