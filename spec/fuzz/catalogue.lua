--- What can be called, and arguments that suit it.
---
--- Loaded before the library: it notes the signatures of the functions that
--- the library makes.
local options = require "tfdist.options"

local M = {}

-- function -> signature, as options.signature gives it
local signatures = setmetatable({}, { __mode = "k" })

local function note(sig, fn)
  signatures[fn] = sig
  return fn
end

local wrap, wrap_signature, method =
  options.wrap, options.wrap_signature, options.method

function options.wrap(what, source, fn)
  return note(options.signature(what, source), wrap(what, source, fn))
end

function options.wrap_signature(sig, fn)
  return note(sig, wrap_signature(sig, fn))
end

function options.method(what, source, fn, is_self, noun)
  return note(options.signature(what, source),
    method(what, source, fn, is_self, noun))
end

local ops = require "tfdist.ops"
local raw = require "tfdist.raw"
local op_function = ops.op_function

-- Ops go to C at once: their functions are made elsewhere.
function ops.op_function(op)
  return note(options.signature(raw.op_name(op), raw.op_schema(op)
    .. " name=nil"), op_function(op))
end

local tf = require "tfdist"

-- What ends the process, reads files, writes to them, or raises by itself.
local LEFT_OUT = {
  ["tf.flags"] = true, ["tf.errors.raise"] = true, ["tf.keras"] = true,
  ["tf.initializers"] = true, ["tf.losses"] = true, ["tf.metrics"] = true,
  ["tf.optimizers"] = true, -- those of tf.keras
  ["tf.raw_ops"] = true, ["tf.errors"] = true, ["tf.compat"] = true,
  ["tf.train"] = true, ["tf.io"] = true,
  ["tf.debugging.enable_check_numerics"] = true,
}

local function names_of(t)
  local meta = getmetatable(t)
  local names = {}
  if type(meta) == "table" and meta.__names then
    names = meta.__names(t)
  else
    for name in pairs(t) do
      if type(name) == "string" then names[#names + 1] = name end
    end
  end
  table.sort(names)
  return names
end

-- Methods of classes that users derive from are no functions of the library.
local function is_class(t)
  local meta = getmetatable(t)
  return rawget(t, "__name") ~= nil
    or type(meta) == "table" and rawget(meta, "__call") ~= nil
end

local function collect(path, t, depth, list)
  for _, name in ipairs(names_of(t)) do
    local full = path .. "." .. name
    if not LEFT_OUT[full] and name:sub(1, 2) ~= "__" then
      local ok, value = pcall(function() return t[name] end)
      if ok and type(value) == "function" then
        list[#list + 1] = { name = full, fn = value, sig = signatures[value] }
      elseif ok and type(value) == "table" and depth < 4
        and value ~= tf.newaxis and not is_class(value) then
        collect(full, value, depth + 1, list)
      end
    end
  end
end

--- All public functions: { name, fn, sig (nil where unknown) }.
M.functions = {}
collect("tf", tf, 0, M.functions)

--- All ops of the registry.
M.ops = {}
for op = 0, raw.op_count() - 1 do
  local name = raw.op_name(op)
  M.ops[op + 1] = {
    name = "tf.raw_ops." .. name, fn = tf.raw_ops[name],
    sig = options.signature(name, raw.op_schema(op)),
  }
end

--- All names of methods of tensors.
M.methods = {}
do
  local tensor = require "tfdist.tensor"
  for name in pairs(tensor.lazy_method_names) do
    M.methods[#M.methods + 1] = name
  end
  for name in pairs(tensor.methods) do
    if not tensor.lazy_method_names[name] then
      M.methods[#M.methods + 1] = name
    end
  end
  table.sort(M.methods)
end

--- The signature of a function or nil.
function M.signature_of(fn)
  return signatures[fn]
end

-- Arguments ------------------------------------------------------------------

-- Parameter names of functions that carry no kinds, and what suits them.
local BY_NAME = {
  axis = "axis", axes = "axes", dim = "axis", shape = "dims", dims = "dims",
  size = "dims", perm = "perm", dtype = "d", out_type = "d", output_type = "d",
  Tout = "d", fn = "fn", true_fn = "fn", false_fn = "fn", cond = "fn",
  body = "fn", default = "fn", creator = "fn", variable_creator = "fn",
  func = "fn", f = "fn", name = "word", message = "word", device = "word",
  device_name = "word", equation = "word", mode = "word", ord = "word",
  padding = "word", data_format = "word", direction = "word",
  keepdims = "b", keep_dims = "b", exclusive = "b", reverse = "b",
  adjoint = "b", training = "b", persistent = "b", trainable = "b",
  k = "i", num = "i", depth = "i", n = "i", num_segments = "i", seed = "i",
  maxlen = "i", num_classes = "i", num_samples = "i", batch_dims = "i",
  minlength = "i", maxlength = "i", batch_shape = "dims", strides = "l",
  ksize = "l", dilations = "l", multiples = "l", paddings = "pad",
  begin = "l", ["end"] = "l", shift = "l", block_size = "i", i = "i",
  rate = "f", epsilon = "f", alpha = "f", stddev = "f", mean = "f",
  minval = "f", maxval = "f", start = "f", limit = "f", delta = "f",
  stop = "f", clip_norm = "f", values = "t*", inputs = "t*", tensors = "t*",
  structure = "nest", nest1 = "nest", nest2 = "nest", elems = "t",
  flat_sequence = "t*", loop_vars = "t*", sources = "t", target = "t",
  num_or_size_splits = "l", repeats = "i", key = "i", count = "i",
}

local make = {}

function make.t(v)
  if v.rng:one_in(8) then return v:plain() end
  return v:operand()
end

make["n"] = function(v)
  if v.rng:one_in(3) then return v:plain() end
  if v.rng:one_in(2) then return v:tensor(v.rng:pick { "int32", "int64" }) end
  return v:operand()
end

make["t*"] = function(v)
  local n = v.rng:one_in(40) and v.rng:int(0, 300) or v.rng:int(1, 4)
  if v.rng:one_in(3) then
    local list = {}
    for i = 1, n do list[i] = make.t(v) end
    return list
  end
  return v:alike(n)
end

function make.b(v) return v.rng:one_in(2) end
function make.i(v) return v:small() end
function make.d(v) return v:dtype() end
function make.f(v) return v:real() end
function make.l(v) return v.rng:one_in(3) and v:dims() or v:list() end
function make.dims(v) return v:dims() end
function make.axis(v) return v:axis() end
function make.axes(v) return v.rng:one_in(2) and v:axis() or v:list() end
function make.perm(v) return v:permutation() end
function make.fn(v) return v:callback() end
function make.word(v) return v:word() end

function make.pad(v)
  local list = {}
  for i = 1, v.rng:int(1, 4) do
    list[i] = { v.rng:int(0, 2), v.rng:int(0, 2) }
  end
  return list
end

function make.nest(v)
  return { v:operand(), { a = v:operand(), b = 1 }, n = 2 }
end

-- Mostly something that suits the parameter.
local function argument(v, name, kind)
  if v.rng:one_in(20) then return v:garbage() end
  if kind == nil or kind == "table" then kind = BY_NAME[name] or "t" end
  if kind:sub(1, 1) == "e" then
    local choices = {}
    for choice in kind:match("%((.*)%)"):gmatch "[^|]+" do
      choices[#choices + 1] = choice
    end
    return v.rng:pick(choices)
  end
  if name == "axis" and (kind == "i" or kind == "l") then
    return make.axis(v)
  elseif name == "perm" then
    return make.perm(v)
  elseif name:find "shape" or name == "dims" or name:find "_sizes" then
    return make.dims(v)
  elseif kind == "i" and name:find "seed" or name:find "counter" then
    return v.rng:int(0, 1000000)
  end
  if make[kind] == nil then kind = kind:gsub("[?]", "") end
  return make[kind](v)
end

-- A misspelt or a surplus option.
local function spoil(v, named)
  named[v.rng:pick { "axs", "keepdim", "dtyp", "zzz", 1, 1.5, true }] = 1
end

--- Arguments for a signature: a list with n, options at its end or not.
function M.arguments(v, sig)
  local rng = v.rng
  local args = { n = 0 }
  if sig == nil then
    for _ = 1, rng:int(0, 3) do
      args.n = args.n + 1
      args[args.n] = rng:one_in(3) and v:garbage() or v:operand()
    end
    return args
  end
  local named = {}
  local positional = rng:one_in(3) and rng:int(0, sig.n) or sig.n
  for i = 1, sig.n do
    local wanted = sig.required[i] or rng:one_in(2)
    if wanted and rng:one_in(60) then wanted = false end
    if wanted and i <= positional then
      args[i] = argument(v, sig.names[i], sig.kinds[i])
      args.n = i
    elseif wanted then
      named[sig.names[i]] = argument(v, sig.names[i], sig.kinds[i])
    end
  end
  if rng:one_in(40) then spoil(v, named) end
  if next(named) ~= nil then
    args.n = args.n + 1
    args[args.n] = named
  end
  if rng:one_in(60) then
    for _ = 1, rng:int(1, 20) do
      args.n = args.n + 1
      args[args.n] = v:garbage()
    end
  end
  return args
end

return M
