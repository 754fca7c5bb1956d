--- LuaJIT's way into the C API: wrappers over every function that take and
--- give the same objects as the rest of the library.
---
---   local ffi = require "tfdist.ffi"
---   ffi.tensor_item(t, 0)         every function of src/tfdist.h, no tfd_
---   local view = ffi.view(t)      elements without copying: view[i], #view,
---   view.pointer, view.tensor     i from 0; the view keeps the tensor alive
local core = require "tfdist.core"
local errors = require "tfdist.base.errors"
local short = require "tfdist.core.ffi"

local ffi = require "ffi"
local new, string = ffi.new, ffi.string
local type, tonumber = type, tonumber

local support = { adopt = core.adopt, fail = core.fail, handle = short.handle }

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

function support.enum_name(enum, value)
  return short.enum_names[enum][tonumber(value)]
end

-- Generated from the header, carried by the core module it belongs to.
local build = assert(rawget(_G, "loadstring")(core.ffi_wrappers,
  "=tfdist.ffi"))()
local M = build(short.library, support)

M.view = short.view

return M
