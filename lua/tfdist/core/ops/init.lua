--- Functions made from the op registry, and the names of everything under tf
--- that comes from op families.
---
--- C reads the calls of ops (raw.op_function); what it asks of Lua is here: to
--- make operands of lists and the like, plain values of attributes that are not
--- plain, and words for what can be neither.
--- Functions are made when their name is first used.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local loading = require "tfdist.base.loading"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local type = type
local is_operand = raw.is_operand
local FAMILIES = {
  "math", "reduce", "array", "linalg", "nn", "loss", "random", "image",
  "positions", "segments", "slicing",
}

-- Public names of the ops that the runtime itself needs.
local CORE = {
  functions = {
    identity = "identity", reshape = "reshape", broadcast_to = "broadcast_to",
  },
  methods = {
    identity = "identity", reshape = "reshape", broadcast_to = "broadcast_to",
  },
}

-- Attributes -----------------------------------------------------------------

-- A number from a number or a scalar tensor.
local function number_of(x, what, name, noun)
  if type(x) == "number" then
    return x
  elseif type(x) == "userdata" and is_operand(x) then
    tracing.need_counts(what, name, x)
    local t = raw.operand_tensor(x)
    if raw.tensor_size(t) == 1 then
      local value = raw.item(t)
      if type(value) == "number" then
        return value
      end
    end
    errors.raise("TypeError", ("%s: %s must be %s, got a tensor of shape %s")
      :format(what, name, noun, text.shape(tensor.shape_of(t))))
  end
  text.check_open(x, what, name)
  errors.raise("TypeError", ("%s: %s must be %s, got %s"):format(what, name,
    noun, text.describe(x)))
end

local function whole_of(x, what, name)
  x = number_of(x, what, name, "a whole number")
  if not text.is_int64(x) then
    errors.raise("ValueError", ("%s: %s must be a whole number%s, got %s")
      :format(what, name, text.is_whole(x) and " of 64 bits" or "",
      text.number(x)))
  end
  return x
end

-- plain[kind](x, what, name, choices): the number, boolean, word or list that x
-- stands for. Errors: TypeError, ValueError.
local plain = {}

function plain.b(x, what, name)
  errors.raise("TypeError", ("%s: %s must be true or false, got %s"):format(
    what, name, text.describe(x)))
end

plain.i = whole_of

function plain.f(x, what, name)
  return number_of(x, what, name, "a number")
end

function plain.d(x, what)
  return convert.dtype(x, what)
end

function plain.e(x, what, name, choices)
  local words = {}
  for word in choices:gmatch("[^|]+") do
    words[#words + 1] = word
  end
  return (options.choice(what, name, x, words))
end

function plain.l(x, what, name)
  if type(x) == "number" then
    return whole_of(x, what, name)
  end
  return convert.integers(x, what, name)
end

raw.set_hook("plain", function(what, name, kind, x, choices)
  return plain[kind](x, what, name, choices)
end)

-- Operands -------------------------------------------------------------------

raw.set_hook("operand_list", function(sig, x)
  local what, name = sig.what, sig.names[1]
  local _, n = options.list(what, name, x, "tensors")
  local list = { n = n }
  local dtype, known = nil, false
  for i = 1, n do
    local value = x[i]
    if type(value) == "userdata" and is_operand(value) then
      list[i] = value
    else
      if not known then
        dtype, known = convert.common_dtype(x, n), true
      end
      list[i] = convert.operand(value, dtype, what, name .. "[" .. i .. "]")
    end
  end
  return list
end)

-- Absent optional operands leave holes.
raw.set_hook("operands", function(sig, n, ...)
  local what, names, kinds = sig.what, sig.names, sig.kinds
  local values = lists.of(...)
  local dtype, known = nil, false
  for i = 1, n do
    local x = values[i]
    if x ~= nil and not (type(x) == "userdata" and is_operand(x)) then
      if kinds[i]:sub(1, 1) == "n" then
        values[i] = convert.index_operand(x, what, names[i])
      else
        if not known then
          dtype, known = convert.common_dtype(values, n, kinds), true
        end
        values[i] = convert.operand(x, dtype, what, names[i])
      end
    end
  end
  return values
end)

-- Op functions ---------------------------------------------------------------

local function signature_of(op)
  return options.signature(raw.op_name(op), raw.op_schema(op) .. " name=nil")
end

local functions = {}

--- The public function of op number `op`.
---@param op integer
---@return function
function M.op_function(op)
  local fn = functions[op]
  if fn == nil then
    local sig = signature_of(op)
    fn = options.describe(raw.op_function(op, sig.index, sig), sig)
    functions[op] = fn
  end
  return fn
end

-- Refuse what cannot be self: a dot in place of the colon.
local function check_self(name, x, names)
  if type(x) ~= "userdata" and not tensor.is_self(x) then
    options.wrong_self("Tensor." .. name, "tensor", x, names)
  end
end

raw.set_hook("self", function(sig, x)
  check_self(sig.method, x, lists.copy(sig.names, 2, sig.n - 1))
end)

-- fn as a method called `name`.
local function checked(name, fn, names)
  local function method(self, ...)
    check_self(name, self, names)
    return fn(self, ...)
  end
  return options.describe_as(method, fn)
end

local function op_method(op, name)
  local sig = signature_of(op)
  sig.method = name
  return options.describe(raw.op_function(op, sig.index, sig, true), sig)
end

-- Names ----------------------------------------------------------------------

-- lazy[namespace][name] = the number of an op, or a function that gives the
-- value; "" is tf itself. No closures for ops: there are hundreds of names, and
-- LuaJIT's collector looks at everything in each of its cycles.
local lazy = { [""] = {} }
local namespaces = {}
M.lazy = lazy

local function find(namespace, name)
  if type(name) ~= "string" then
    return nil
  end
  local known = lazy[namespace] and lazy[namespace][name]
  if type(known) == "number" then
    return M.op_function(known)
  elseif known ~= nil then
    return known()
  end
  local path = namespace == "" and name or namespace .. "." .. name
  if lazy[path] ~= nil then
    return M.namespace(path)
  end
  return nil
end

--- The value called `name` in a namespace ("" = tf), nil if there is none.
M.find = find

-- Names that are no slips of the ones that are near: programs ask for them,
-- and nil is the answer.
local ABSENT = {
  real = true, imag = true, conj = true, angle = true, fft = true,
}

-- What Python has words for.
local WORDS = {
  None = "nil stands for no value, -1 for an unknown size in shapes",
  True = "true", False = "false",
}

-- "nn.softmax" for "softmax": the namespace that has just this name.
local function elsewhere(name)
  if lazy[""][name] ~= nil then
    return name
  end
  for _, path in ipairs { "nn", "math", "linalg", "image", "random" } do
    if lazy[path] ~= nil and lazy[path][name] ~= nil then
      return path .. "." .. name
    end
  end
  return nil
end

--- Refuse a name that is not there but nearly one that is, or is one in
--- another place: what follows could only be a call of nil. Other names are
--- nil, so that programs can ask.
--- Errors: KeyError naming the nearest, NotImplementedError for what only
--- TensorFlow has.
---@param path string   namespace, "" = tf
---@param name string
---@param names string[]|fun():string[]  the names there are
---@param places? fun(name:string):string[]  other places that have it
function M.check_name(path, name, names, places)
  loading.load("tfdist.base.missing").check(path, name)
  if ABSENT[name] or not name:find("^%a") then
    return
  elseif WORDS[name] ~= nil then
    errors.raise("KeyError", ("there is no tf.%s"):format(name), WORDS[name])
  end
  local prefix = path == "" and "" or path .. "."
  local near = elsewhere(name)
  if near == nil and places ~= nil then
    local list = places(name)
    near = list[1] and table.concat(list, " or "):sub(#"tf." + 1)
  end
  if near == nil then
    near = text.nearest(name, type(names) == "function" and names() or names,
      2)
    near = near and prefix .. near
  end
  if near ~= nil then
    errors.raise("KeyError", ("there is no tf.%s%s"):format(prefix, name),
      ("did you mean tf.%s?"):format(near))
  end
end

--- The table of a namespace ("math"); it fills itself as names are used.
---@param path string
---@return table
function M.namespace(path)
  local space = namespaces[path]
  if space == nil then
    space = setmetatable({}, {
      __index = function(self, name)
        local value = find(path, name)
        if value ~= nil then
          rawset(self, name, value)
        elseif type(name) == "string" then
          M.check_name(path, name, M.names(path))
        end
        return value
      end,
      __path = "tf." .. path,
      -- All names, for completion and `pairs`-like listings.
      __names = function()
        return M.names(path)
      end,
    })
    namespaces[path] = space
  end
  return space
end

--- Sorted names of a namespace, made or not.
---@param path string
---@return string[]
function M.names(path)
  local seen, list = {}, {}
  local function add(name)
    if not seen[name] then
      seen[name] = true
      list[#list + 1] = name
    end
  end
  for name in pairs(lazy[path] or {}) do
    add(name)
  end
  for name in pairs(namespaces[path] or {}) do
    add(name)
  end
  local prefix = path == "" and "" or path .. "."
  for other in pairs(lazy) do
    if other ~= path and other:sub(1, #prefix) == prefix then
      add(other:sub(#prefix + 1):match("^[^.]+"))
    end
  end
  table.sort(list)
  return list
end

local function publish(paths, known)
  for path in paths:gmatch("%S+") do
    local namespace, name = path:match("^(.*)%.([^.]*)$")
    namespace, name = namespace or "", name or path
    lazy[namespace] = lazy[namespace] or {}
    lazy[namespace][name] = known
    local space = namespaces[namespace]
    if space ~= nil then
      rawset(space, name, nil)
    end
  end
end

local function publish_methods(names, make)
  for name in names:gmatch("%S+") do
    tensor.put_method(name, function()
      return make(name)
    end)
  end
end

--- Define a function that is no op: `paths` under tf, its signature, and fn,
--- which gets positional values. `methods` are names on tensors.
---@param paths string      "norm linalg.norm"
---@param signature string
---@param fn function
---@param methods? string   "norm"
function M.def(paths, signature, fn, methods)
  local what = paths:match("^(%S+)")
  what = what:match("[^.]*$")
  local wrapped
  local function known()
    wrapped = wrapped or options.wrap(what, signature, fn)
    return wrapped
  end
  publish(paths, known)
  if methods ~= nil then
    publish_methods(methods, function(name)
      local names = {}
      for word in signature:gmatch("%S+") do
        local parameter = word:match("^[%a_][%w_]*")
        if parameter ~= nil and parameter ~= "name" then
          names[#names + 1] = parameter
        end
      end
      table.remove(names, 1)
      return checked(name, known(), names)
    end)
  end
end

--- Names that families publish for ops that the library does not have.
M.unknown = {}

local function publish_family(family, ops)
  for name, paths in pairs(family.functions or {}) do
    local op = ops[name]
    if op == nil then
      M.unknown[#M.unknown + 1] = name
    else
      publish(paths, op)
    end
  end
  for path, value in pairs(family.constants or {}) do
    publish(path, function()
      return value
    end)
  end
  for name, names in pairs(family.methods or {}) do
    local op = ops[name]
    if op == nil then
      M.unknown[#M.unknown + 1] = name
    else
      publish_methods(names, function(method)
        return op_method(op, method)
      end)
    end
  end
end

--- Publish all ops and families in tf.
---@param tf table
function M.install(tf)
  namespaces[""] = tf
  local ops = {}
  for op = 0, raw.op_count() - 1 do
    local name = raw.op_name(op)
    ops[name] = op
    publish("raw_ops." .. name, op)
  end
  tensor.install(tf, M.def)
  for name, dtype in pairs(tensor.DTYPES) do
    publish("dtypes." .. name, function()
      return dtype
    end)
  end
  publish_family(CORE, ops)
  for i = 1, #FAMILIES do
    local family = loading.load("tfdist.core.ops." .. FAMILIES[i])
    publish_family(family, ops)
    family.define(tf, M.def)
  end
end

return M
