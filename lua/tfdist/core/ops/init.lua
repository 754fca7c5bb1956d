--- Functions made from the op registry, and the names of everything under tf
--- that comes from op families.
---
--- An op's function has two ways. In C (raw.op_function): tensors, then
--- attributes by position as plain numbers, booleans and lists. In Lua, for
--- every other call: the calling rule, conversion of Lua values to operands,
--- attributes to slots.
--- Functions are made when their name is first used.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local loading = require "tfdist.base.loading"
local missing = require "tfdist.base.missing"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"

local M = {}

local type = type
local is_operand, is_int64 = raw.is_operand, text.is_int64
local LIST = 9 -- slots of a list attribute: its count, then up to 8 values
local FAMILIES = {
  "math", "reduce", "array", "linalg", "nn", "loss", "random", "image",
  "positions", "segments",
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

-- encoders[kind](what, name, slot, choices) -> function(x, ints, reals)
local encoders = {}

function encoders.b(what, name, slot)
  return function(x, ints)
    if type(x) ~= "boolean" then
      errors.raise("TypeError", ("%s: %s must be true or false, got %s")
        :format(what, name, text.describe(x)))
    end
    ints[slot] = x and 1 or 0
  end
end

function encoders.i(what, name, slot)
  return function(x, ints)
    ints[slot] = whole_of(x, what, name)
  end
end

function encoders.d(what, name, slot)
  local numbers = raw.enums.dtype
  return function(x, ints)
    ints[slot] = x == nil and 0 or numbers[convert.dtype(x, what)]
  end
end

function encoders.e(what, name, slot, choices)
  local position = {}
  for i = 1, #choices do
    position[choices[i]] = i - 1
  end
  return function(x, ints)
    local at = position[x]
    if at == nil then
      local _
      _, at = options.choice(what, name, x, choices)
    end
    ints[slot] = at
  end
end

function encoders.f(what, name, slot)
  return function(x, _, reals)
    reals[slot] = number_of(x, what, name, "a number")
  end
end

function encoders.l(what, name, slot)
  -- The usual list, plain whole numbers and nothing else, goes in directly;
  -- anything else takes the careful way.
  local function careful(x, ints)
    local list = convert.integers(x, what, name)
    local n = #list
    if n > LIST - 1 then
      errors.raise("ValueError", ("%s: %s has %d entries; %d is the most")
        :format(what, name, n, LIST - 1))
    end
    ints[slot] = n
    for i = 1, n do
      ints[slot + i] = list[i]
    end
  end
  return function(x, ints)
    if x == nil then
      ints[slot] = -1
    elseif type(x) == "number" then
      ints[slot] = 1
      ints[slot + 1] = whole_of(x, what, name)
    elseif not text.is_plain(x) then
      careful(x, ints)
    else
      local n = #x
      if n >= LIST or next(x, n > 0 and n or nil) ~= nil then
        return careful(x, ints)
      end
      ints[slot] = n
      for i = 1, n do
        local value = x[i]
        if type(value) ~= "number" or not is_int64(value) then
          return careful(x, ints)
        end
        ints[slot + i] = value
      end
    end
  end
end

-- Operands -------------------------------------------------------------------

local function convert_list(what, name, x)
  local _, n = options.list(what, name, x, "tensors")
  local list = { n = n }
  local dtype
  for i = 1, n do
    local value = x[i]
    if type(value) == "userdata" and is_operand(value) then
      list[i] = value
    else
      dtype = dtype or convert.common_dtype(x, n)
      list[i] = convert.operand(value, dtype, what, name .. "[" .. i .. "]")
    end
  end
  return list
end

-- The operands for n values of which some are none yet; `marks[i]` is the
-- argument's kind. Returns a list with `n`.
local function convert_operands(what, names, marks, n, ...)
  local values = lists.of(...)
  local dtype, known = nil, false
  for i = 1, n do
    local x = values[i]
    if x ~= nil and not (type(x) == "userdata" and is_operand(x)) then
      local mark = marks[i]
      if mark == "n" or mark == "n?" then
        values[i] = convert.index_operand(x, what, names[i])
      else
        if not known then
          dtype, known = convert.common_dtype(values, n, marks), true
        end
        values[i] = convert.operand(x, dtype, what, names[i])
      end
    end
  end
  values.n = n -- absent optional operands leave holes
  return values
end

-- Op functions ---------------------------------------------------------------

-- Everything that calls of one op share.
local function describe_op(op)
  local name = raw.op_name(op)
  local sig = options.signature(name, raw.op_schema(op) .. " name=nil")
  local info = {
    op = op, name = name, sig = sig, tensors = 0, list = false,
    encode = {}, ints = {}, reals = {},
    -- What C needs to read attributes: a letter each, upper case = required;
    -- x = ignored.
    kinds = "",
  }
  local ints, reals = 0, 0
  for i = 1, sig.n - 1 do
    local kind = sig.kinds[i]
    local letter = kind:sub(1, 1)
    if letter == "t" or letter == "n" then
      info.tensors = i
      info.list = kind == "t*"
    else
      local choices = {}
      for choice in (kind:match("%((.*)%)") or ""):gmatch("[^|]+") do
        choices[#choices + 1] = choice
      end
      local slot = letter == "f" and reals + 1 or ints + 1
      local encode = encoders[letter](name, sig.names[i], slot, choices)
      info.encode[#info.encode + 1] = encode
      if letter == "f" then
        reals = reals + 1
        info.reals[slot] = 0
      else
        ints = ints + (letter == "l" and LIST or 1)
        for j = slot, ints do
          info.ints[j] = 0
        end
      end
      if sig.required[i] then
        info.kinds = info.kinds .. letter:upper()
      else
        info.kinds = info.kinds .. letter
        encode(sig.defaults[i], info.ints, info.reals)
      end
    end
  end
  -- Calls write their attributes into ints and reals.
  info.default_ints, info.default_reals = lists.copy(info.ints),
    lists.copy(info.reals)
  return info
end

-- Text of the function that runs an op on the values of its parameters, for
-- a number of tensors and of attributes.
local function runner_text(tensors, attributes)
  local params, tests, encode, encoders_list = {}, {}, {}, {}
  for i = 1, tensors + attributes do
    params[i] = "a" .. i
  end
  for i = 1, tensors do
    tests[i] = ("type(a%d) ~= 'userdata' or not is_operand(a%d)"):format(i, i)
  end
  for j = 1, attributes do
    encoders_list[j] = ", e" .. j
    encode[j] = ("e%d(a%d, ints, reals)"):format(j, tensors + j)
  end
  local inputs = table.concat(params, ", ", 1, tensors)
  local comma = tensors > 0 and ", " or ""
  return ([[
local type, is_operand, run, convert, op, what, names, marks,
  ints, reals%s = ...
return function(%s)
  local inputs
  if %s then
    inputs = convert(what, names, marks, %d%s%s)
  else
    inputs = { %s }
  end
  %s
  return run(op, inputs, ints, reals)
end]]):format(table.concat(encoders_list), table.concat(params, ", "),
    tensors > 0 and table.concat(tests, " or ") or "false", tensors, comma,
    inputs, inputs, table.concat(encode, "\n  "))
end

local runners = {}
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local load_text = rawget(_G, "loadstring") or load
local SOURCE = debug.getinfo(1, "S").source

local function run_op(info)
  local op, what, n = info.op, info.name, info.tensors
  local names, marks, encode = info.sig.names, info.sig.kinds, info.encode
  local attributes = #encode
  local ints, reals = info.ints, info.reals
  if info.list then
    return function(list, ...)
      local inputs = convert_list(what, names[1], list)
      for j = 1, attributes do
        encode[j]((select(j, ...)), ints, reals)
      end
      return raw.op_run(op, inputs, ints, reals)
    end
  end
  local key = n * 64 + attributes
  local maker = runners[key]
  if maker == nil then
    maker = assert(load_text(runner_text(n, attributes), SOURCE))
    runners[key] = maker
  end
  return maker(type, is_operand, raw.op_run, convert_operands, op, what, names,
    marks, ints, reals, unpack(encode, 1, attributes))
end

local functions, infos, parsed = {}, {}, {}

local function info_of(op)
  local info = infos[op]
  if info == nil then
    info = describe_op(op)
    infos[op] = info
  end
  return info
end

-- The op with its general calling rule, in Lua.
local function slow_function(op)
  local slow = parsed[op]
  if slow == nil then
    local info = info_of(op)
    slow = options.wrap_signature(info.sig, run_op(info))
    parsed[op] = slow
  end
  return slow
end

-- True when Lua numbers take the dtype of the op's other operand.
local function takes_numbers(info)
  local kinds = info.sig.kinds
  return info.tensors == 2 and kinds[1] == "t" and kinds[2] == "t"
end

local function with_fast_path(op, slow)
  local info = info_of(op)
  if info.list then
    return slow
  end
  return raw.op_function(op, info.tensors, info.default_ints,
    info.default_reals, slow, info.kinds .. "x", takes_numbers(info))
end

--- The public function of op number `op`.
---@param op integer
---@return function
function M.op_function(op)
  local fn = functions[op]
  if fn == nil then
    info_of(op)
    fn = options.describe(with_fast_path(op, slow_function(op)),
      info_of(op).sig)
    functions[op] = fn
  end
  return fn
end

-- fn as a method called `name`: a dot in place of the colon is an error.
local function checked(name, fn, names)
  local function method(self, ...)
    if type(self) ~= "userdata" and not tensor.is_self(self) then
      options.wrong_self("Tensor." .. name, "tensor", self, names)
    end
    return fn(self, ...)
  end
  return options.describe_as(method, fn)
end

local function op_method(op, name)
  local info = info_of(op)
  local names = {}
  for i = 2, info.sig.n - 1 do
    names[i - 1] = info.sig.names[i]
  end
  return options.describe(with_fast_path(op, checked(name, slow_function(op),
    names)), info.sig)
end

-- Names ----------------------------------------------------------------------

-- lazy[namespace][name] = function that makes the value; "" is tf itself.
local lazy = { [""] = {} }
local namespaces = {}
M.lazy = lazy

local function find(namespace, name)
  local make = lazy[namespace] and lazy[namespace][name]
  if make ~= nil then
    return make()
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
  missing.check(path, name)
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
        if value == nil and type(name) == "string" then
          M.check_name(path, name, M.names(path))
        end
        rawset(self, name, value)
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

local function once(make)
  local value
  return function()
    if value == nil then
      value = make()
    end
    return value
  end
end

local function publish(paths, make)
  make = once(make)
  for path in paths:gmatch("%S+") do
    local namespace, name = path:match("^(.*)%.([^.]*)$")
    namespace, name = namespace or "", name or path
    lazy[namespace] = lazy[namespace] or {}
    lazy[namespace][name] = make
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
  local wrapped = once(function()
    return options.wrap(what, signature, fn)
  end)
  publish(paths, wrapped)
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
      return checked(name, wrapped(), names)
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
      publish(paths, function()
        return M.op_function(op)
      end)
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
    publish("raw_ops." .. name, function()
      return M.op_function(op)
    end)
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
