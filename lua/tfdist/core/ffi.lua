--- LuaJIT's short ways into the C API: elements and sizes, and views of them.
---
--- Element and size access through FFI costs about 3 ns when compiled,
--- against 25 ns through the C API; making tensors is cheaper through the
--- C API, so the library itself uses only `fast_paths`. Wrappers of all of it
--- are in `tfdist.ffi`, which weighs on every collection once it is loaded.
--- Errors: as everywhere, error objects; loading fails on other engines.
local core = require "tfdist.core"
local errors = require "tfdist.base.errors"
local pairs = require "tfdist.base.pairs"

if not rawget(_G, "jit") then
  errors.raise("NotImplementedError", "tfdist.ffi: needs LuaJIT")
end

local ffi = require "ffi"
ffi.cdef(core.ffi_declarations)

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
local cast, new = ffi.cast, ffi.new
local handle_type = ffi.typeof("tfd__handle *")
local getmetatable, type, tonumber = getmetatable, type, tonumber

local M = { library = C }

-- Pointer of a handle, NULL when it is released.
local function object_of(x)
  local handle = cast(handle_type, x)
  local slot = handle.slot
  if slot.life ~= handle.life then
    return nil
  end
  return slot.object
end

--- kind -> metatable of its handles
M.metatables = {}
for kind in pairs(core.enums.handle_kind) do
  M.metatables[kind] = core.metatable(kind)
end

local function is_handle(x)
  return type(x) == "userdata" and core.kind(x) ~= nil
end

--- Pointer of an open handle; kind "object" takes all kinds.
function M.handle(x, kind, what, name)
  if type(x) ~= "userdata"
    or (getmetatable(x) ~= M.metatables[kind]
      and not (kind == "object" and is_handle(x))) then
    errors.raise("TypeError", ("%s: argument \"%s\" must be a %s, got %s")
      :format(what, name, kind, core.kind(x) or type(x)))
  end
  local object = object_of(x)
  if object == nil then
    errors.raise("FailedPrecondition", what .. ": handle is released")
  end
  return cast("void *", object)
end

--- enum -> value -> name
M.enum_names = {}
for enum, values in pairs(core.enums) do
  M.enum_names[enum] = {}
  for name, value in pairs(values) do
    M.enum_names[enum][value] = name
  end
end

-- Views ----------------------------------------------------------------------

local CTYPES = {
  float32 = "float *", float64 = "double *", float16 = "uint16_t *",
  bfloat16 = "uint16_t *", int8 = "int8_t *", int16 = "int16_t *",
  int32 = "int32_t *", int64 = "int64_t *", uint8 = "uint8_t *",
  bool = "uint8_t *",
}

local data_cell = new("void *[1]")
local fast = {}

-- Typed address of element 0; the caller keeps the tensor alive.
local function tensor_pointer(t)
  local object = M.handle(t, "tensor", "Tensor:data", "tensor")
  local code = C.tfd_tensor_data(object, data_cell)
  if code ~= 0 then
    core.fail(code)
  end
  return cast(CTYPES[fast.tensor_dtype(t)], data_cell[0])
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
  local pointer, dtype = tensor_pointer(t), fast.tensor_dtype(t)
  local wide = dtype == "float64"
  return setmetatable({
    pointer = pointer, n = fast.tensor_size(t), tensor = t, wide = wide,
    -- The missing key must not go through __index.
    bits = (wide or dtype == "float32") and cast("uint32_t *", pointer),
  }, View)
end

-- Fast paths -----------------------------------------------------------------

local tensor_mt = M.metatables.tensor
local number_cell = new("double[1]")

-- Type checks written out so that compiled code folds them.
local function open(t)
  if type(t) ~= "userdata" or getmetatable(t) ~= tensor_mt then
    return nil
  end
  return object_of(t)
end

fast.tensor_pointer = tensor_pointer

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

local dtype_names = M.enum_names.dtype

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
