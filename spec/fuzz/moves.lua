--- The kinds of random calls: an op, a function, a method, an operator, an
--- assignment, a gradient, scopes inside each other.
local mutate = require "spec.fuzz.mutate"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local values = require "spec.fuzz.values"

local M = {}

local unpack = table.unpack or unpack -- luacheck: ignore 113 143

local function text(name, args)
  return name .. "(" .. values.text(args) .. ")"
end

-- Calls are made here and not by pcall itself, so that the error's position
-- is a line of this file.
local function caller(fn, args)
  return function()
    local results = { n = 0 }
    local function take(...)
      results = { n = select("#", ...), ... }
    end
    take(fn(unpack(args, 1, args.n)))
    return unpack(results, 1, results.n)
  end
end

local function call_of(entry, v, catalogue)
  local args = catalogue.arguments(v, entry.sig)
  return text(entry.name, args), caller(entry.fn, args)
end

local moves = {}

--- A case of the op specs, changed a little.
function moves.case(v, rng)
  local entry, args = mutate.next(v, rng)
  return text(entry.name, args), caller(entry.fn, args)
end

function moves.op(v, rng, catalogue)
  return call_of(rng:pick(catalogue.ops), v, catalogue)
end

moves["function"] = function(v, rng, catalogue)
  return call_of(rng:pick(catalogue.functions), v, catalogue)
end

function moves.method(v, rng, catalogue)
  local name = rng:pick(catalogue.methods)
  local self = rng:one_in(12) and v:garbage() or v:operand()
  local method = tf.Tensor[name]
  local args = catalogue.arguments(v, catalogue.signature_of(method))
  if name == "release" then args.n = 0 end
  if not rng:one_in(30) then
    for i = args.n, 1, -1 do args[i + 1] = args[i] end
    args[1], args.n = self, args.n + 1
  end
  return text("tf.Tensor." .. name, args), caller(method, args)
end

-- Objects of Keras, data sets, strategies ------------------------------------

--- A method of an object, with itself as the first argument nearly always.
function moves.object(v, rng, catalogue)
  local maker = rng:pick(catalogue.maker_names)
  local object, names = catalogue.object(maker)
  -- Some have fields only.
  local name = names[1] and rng:pick(names) or "no_such_method"
  local method = object[name] or tostring
  local args = catalogue.arguments(v, catalogue.signature_of(method))
  for i = args.n, 1, -1 do args[i + 1] = args[i] end
  -- Those that bind no arguments take what they are called with as it is.
  local bound = catalogue.signature_of(method) ~= nil
  args.n, args[1] = args.n + 1, bound and rng:one_in(40) and v:garbage()
    or object
  return text(maker .. ":" .. name, args), caller(method, args)
end

local function build_and_call(class, x, args)
  local object = class(unpack(args, 1, args.n))
  local meta = getmetatable(object)
  if type(meta) == "table" and rawget(meta, "__call") then
    return (object(x))
  end
  return object.name
end

--- An object of a class, called with a tensor where it can be called.
function moves.class(v, rng, catalogue)
  local entry = rng:pick(catalogue.classes)
  local args = catalogue.arguments(v, entry.sig)
  local all = { n = 3, entry.class, v:operand(), args }
  return text(entry.name, args), caller(build_and_call, all)
end

-- A field of an object set to something.
local function assign(object, name, value) object[name] = value end

function moves.assign(v, rng, catalogue)
  local maker = rng:pick(catalogue.maker_names)
  local object, names = catalogue.object(maker)
  local name = rng:pick { "name", "no_such", "learning_rate", "trainable",
    "num_replicas_in_sync", rng:pick(names) }
  local args = { n = 3, object, name, v:garbage() }
  return text(maker .. "." .. name .. " =", args), caller(assign, args)
end

-- Operators and indices ------------------------------------------------------

local OPERATORS = {
  ["+"] = function(a, b) return (a + b) end,
  ["-"] = function(a, b) return (a - b) end,
  ["*"] = function(a, b) return (a * b) end,
  ["/"] = function(a, b) return (a / b) end,
  ["%"] = function(a, b) return (a % b) end,
  ["^"] = function(a, b) return (a ^ b) end,
  ["<"] = function(a, b) return (a < b) end,
  ["<="] = function(a, b) return (a <= b) end,
  ["=="] = function(a, b) return (a == b) end,
  ["unm"] = function(a) return (-a) end,
  ["len"] = function(a) return (#a) end,
  ["tostring"] = function(a) return (tostring(a)) end,
  ["shape"] = function(a) return (a.shape) end,
  ["dtype"] = function(a) return (a.dtype) end,
  ["device"] = function(a) return (a.device) end,
  ["set"] = function(a, b) a[1] = b end,
  ["call"] = function(a, b) return (a.no_such_thing(b)) end,
}
local SYMBOLS = {}
for symbol in pairs(OPERATORS) do SYMBOLS[#SYMBOLS + 1] = symbol end
table.sort(SYMBOLS)

-- Lua's own complaint about an operator that neither operand has is not ours.
local function is_ours(x)
  return type(x) == "userdata" and raw.kind(x) ~= nil
end

function moves.operator(v, rng)
  local symbol = rng:pick(SYMBOLS)
  local a, b = v:operand(), v:operand()
  if rng:one_in(3) then b = rng:pick { 1, 0, 2.5, -1, 2 ^ 40, 0 / 0 } end
  if rng:one_in(10) then b = v:garbage() end
  -- `<` of different types and `==` never reach the library.
  if not is_ours(b) and (symbol == "<" or symbol == "<=") then symbol = "+" end
  if rng:one_in(6) and type(b) == "number" and symbol ~= "set"
    and symbol ~= "unm" and symbol ~= "len" and symbol ~= "call"
    and symbol ~= "shape" and symbol ~= "dtype" and symbol ~= "device" then
    a, b = b, a
  end
  return text(symbol, { n = 2, a, b }), caller(OPERATORS[symbol],
    { n = 2, a, b })
end

local function random_entry(v, rng)
  local how = rng:int(1, 8)
  if how <= 3 then return rng:int(-3, 3) end
  if how == 4 then return {} end
  if how == 5 then return { rng:int(-4, 4), rng:int(-4, 4) } end
  if how == 6 then return { nil, rng:int(-4, 4), rng:int(-3, 3) } end
  if how == 7 then return rng:pick { tf.newaxis, "...", {}, 0 } end
  return v:garbage()
end

local function get(t, key) return (t[key]) end

function moves.index(v, rng)
  local key
  if rng:one_in(3) then
    key = rng:one_in(3) and v:garbage() or rng:int(-4, 4)
  elseif rng:one_in(4) then
    key = v:tensor(rng:pick { "int32", "bool", "int64" })
  else
    key = {}
    for i = 1, rng:int(0, 4) do key[i] = random_entry(v, rng) end
  end
  if type(key) == "string" then key = rng:int(0, 2) end
  local args = { n = 2, v:operand(), key }
  return text("index", args), caller(get, args)
end

-- Variables ------------------------------------------------------------------

local WRITES = {
  "assign", "assign_add", "assign_sub", "scatter_nd_update", "scatter_nd_add",
  "scatter_update", "scatter_add", "batch_scatter_update", "scatter_max",
  "scatter_nd_min", "sparse_read", "gather_nd", "read_value", "value",
}

local function write(variable, name, ...)
  return (variable[name](variable, ...))
end

function moves.variable(v, rng)
  local name = rng:pick(WRITES)
  local variable = v.pool[rng:int(9, 10)]
  if not is_ours(variable) or raw.is_released(variable)
    or raw.kind(variable) ~= "variable" then
    variable = v:variable()
    v.pool[rng:int(9, 10)] = variable
  end
  local args = { n = 3, variable, name }
  if rng:one_in(10) then
    args[3] = v:garbage()
  elseif name:find "^scatter_nd" then
    args[3], args[4], args.n = v:tensor "int32", v:operand(), 4
  elseif name:find "scatter" then
    args[3] = rng:one_in(2) and v:slices() or v:operand()
  elseif rng:one_in(3) then
    args[3] = v:operand()
  else
    args[3] = tf.ones_like(variable)
  end
  return text("Variable", args), caller(write, args)
end

-- Gradients ------------------------------------------------------------------

local function same_shape(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

-- Fuzzing has an oracle here: a gradient is shaped like its source.
local function check_gradient(source, gradient)
  if gradient == nil then return end
  if not same_shape(source.shape, gradient.shape)
    or source.dtype ~= gradient.dtype then
    error(("fault: gradient %s {%s} of a source %s {%s}"):format(
      gradient.dtype, table.concat(gradient.shape, ","), source.dtype,
      table.concat(source.shape, ",")), 0)
  end
end

local function collect_operands(x, list, depth)
  if is_ours(x) then
    if raw.is_operand(x) then list[#list + 1] = x end
  elseif type(x) == "table" and getmetatable(x) == nil and depth < 2 then
    for i = 1, math.min(#x, 9) do collect_operands(x[i], list, depth + 1) end
  end
end

local function sources_of(args)
  local list = {}
  for i = 1, args.n do collect_operands(args[i], list, 0) end
  return list
end

local function differentiate(fn, sources, options)
  local results
  local tape = tf.GradientTape(function(t)
    for i = 1, #sources do t:watch(sources[i]) end
    results = { fn() }
  end, { persistent = options.persistent })
  local targets = {}
  for i = 1, 9 do
    if is_ours(results[i]) and raw.kind(results[i]) == "tensor" then
      targets[#targets + 1] = results[i]
    end
  end
  for _ = 1, options.persistent and 2 or 1 do
    local grads = tape:gradient(targets, sources, options.zero and
      { unconnected_gradients = "zero" } or nil)
    for i = 1, #sources do check_gradient(sources[i], grads[i]) end
  end
  return unpack(results, 1, 3)
end

-- A second tape around the first: gradients of gradients.
local function differentiate_twice(fn, sources)
  local grads
  local outer = tf.GradientTape(function(o)
    for i = 1, #sources do o:watch(sources[i]) end
    local y
    local inner = tf.GradientTape(function(t)
      for i = 1, #sources do t:watch(sources[i]) end
      y = fn()
    end)
    values.close(y)
    grads = inner:gradient(y, sources)
  end)
  local targets = {}
  for i = 1, #sources do
    if is_ours(grads[i]) then targets[#targets + 1] = grads[i] end
  end
  if #targets == 0 then return end
  local second = outer:gradient(targets, sources)
  for i = 1, #sources do check_gradient(sources[i], second[i]) end
end

function moves.gradient(v, rng, catalogue)
  local entry, args
  if rng:one_in(2) then
    entry, args = mutate.next(v, rng)
  else
    entry = rng:pick(rng:one_in(3) and catalogue.functions or catalogue.ops)
    args = catalogue.arguments(v, entry.sig)
  end
  local sources = sources_of(args)
  local fn = caller(entry.fn, args)
  local options = { persistent = rng:one_in(4), zero = rng:one_in(4) }
  if rng:one_in(4) then
    return text("gradient of gradient of " .. entry.name, args), function()
      differentiate_twice(fn, sources)
    end
  end
  return text("gradient of " .. entry.name, args), function()
    return differentiate(fn, sources, options)
  end
end

local TAPE_METHODS = {
  "gradient", "jacobian", "batch_jacobian", "watch", "watched_variables",
  "reset", "stop_recording", "close",
}

--- A tape misused: methods in any order with any arguments.
function moves.tape(v, rng)
  local steps = {}
  for i = 1, rng:int(1, 4) do
    local small = v:tensor("float32", { rng:int(1, 2), 2 })
    local args = { n = 0 }
    for j = 1, rng:int(0, 3) do
      args.n = j
      args[j] = rng:one_in(4) and v:garbage() or small
    end
    steps[i] = { name = rng:pick(TAPE_METHODS), args = args }
  end
  local x = v:tensor("float32", { 2, 2 })
  local persistent = rng:one_in(2)
  local names = {}
  for i, step in ipairs(steps) do
    names[i] = text("tape:" .. step.name, step.args)
  end
  return table.concat(names, " "), function()
    local tape = tf.GradientTape({ persistent = persistent })
    local ok, e = pcall(function()
      local _ = tf.square(x) * 2
      for _, step in ipairs(steps) do
        values.close(tape[step.name](tape, unpack(step.args, 1, step.args.n)))
      end
    end)
    tape:close()
    if not ok then error(e, 0) end
  end
end

-- Scopes ---------------------------------------------------------------------

local SCOPES = {}

SCOPES["device"] = function(rng, fn)
  return tf.device(rng:pick { "/cpu:0", "CPU:0", "/cpu:1", "cpu:9" }, fn)
end
SCOPES["no device"] = function(_, fn) return tf.device(nil, fn) end
SCOPES["tidy"] = function(_, fn) return tf.tidy(fn) end
SCOPES["name_scope"] = function(rng, fn)
  return tf.name_scope(rng:pick { "a", "b/", "" }, fn)
end
SCOPES["init_scope"] = function(_, fn) return tf.init_scope(fn) end
SCOPES["tape"] = function(rng, fn)
  return select(2, tf.GradientTape(fn, { persistent = rng:one_in(2) }))
end
SCOPES["pause"] = function(_, fn)
  local inner
  tf.GradientTape(function(t)
    t:stop_recording(function() inner = { fn() } end)
  end)
  return unpack(inner)
end
SCOPES["creator"] = function(rng, fn)
  local bad = rng:one_in(4)
  return tf.variable_creator_scope(function(next_creator, kwargs)
    if bad then error("fuzz: creator", 0) end
    return next_creator(kwargs)
  end, fn)
end
local SCOPE_NAMES = {}
for name in pairs(SCOPES) do SCOPE_NAMES[#SCOPE_NAMES + 1] = name end
table.sort(SCOPE_NAMES)

local ENDS = {
  function() return tf.constant { 1, 2 } end,
  function(x) return tf.square(x) end,
  function(x) return tf.Variable(x) end,
  function() error("fuzz: in the middle", 0) end,
  function() error(values.STOP, 0) end,
  function() error(nil) end,
  function(x) return tf.reshape(x, { 7, 7 }) end,
  function(x) return tf.GradientTape(function() return tf.exp(x) end) end,
}

local function enter(names, at, rng, finish, x)
  if at > #names then
    return (finish(x))
  end
  return (SCOPES[names[at]](rng, function()
    return (enter(names, at + 1, rng, finish, x))
  end))
end

--- Scopes inside each other, and an error somewhere: all must be left again.
function moves.scopes(v, rng)
  local names = {}
  for i = 1, rng:int(1, 6) do names[i] = rng:pick(SCOPE_NAMES) end
  local finish = rng:pick(ENDS)
  local x = v:operand()
  local order = require "spec.fuzz.rng".new(rng:seed())
  return "scopes " .. table.concat(names, ", "), function()
    return (enter(names, 1, order, finish, x))
  end
end

-- Choosing -------------------------------------------------------------------

local WEIGHTS = {
  { "case", 22 }, { "op", 15 }, { "function", 20 }, { "method", 7 },
  { "operator", 6 }, { "index", 5 }, { "variable", 5 }, { "gradient", 20 },
  { "tape", 3 }, { "scopes", 3 }, { "object", 20 }, { "class", 12 },
  { "assign", 3 },
}
local TURNS = {}
for _, entry in ipairs(WEIGHTS) do
  for _ = 1, entry[2] do TURNS[#TURNS + 1] = entry[1] end
end

--- The next call: its text and a function that makes it.
function M.next(v, rng, catalogue)
  return moves[rng:pick(TURNS)](v, rng, catalogue)
end

return M
