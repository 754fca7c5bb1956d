--- Cases drawn from a seed: programs that TensorFlow ran before us.
---
--- A file of cases (npz) comes from scripts/parity/seeded; its program.py says
--- what programs look like. Here they run on the library, and what they print
--- is compared with what TensorFlow printed.
local json = require "tfdist.core.json"
local listed = require "spec.parity.listed"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

--- Largest difference of an element, relative to its size, to a hundredth of
--- the largest of its tensor, or to SMALL, by dtype. Others are equal.
local BOUNDS = { float32 = 1e-4, float64 = 1e-7, float16 = 1e-2 }
local SMALL = 0.01

-- Files -----------------------------------------------------------------------

--- The cases of a file: { seed, peer, cases, vectors }; nil and a message when
--- it is not there.
function M.load(path)
  local arrays, why = tf.io.read_npz(path)
  if arrays == nil then return nil, why end
  local bytes = tf.convert_to_tensor(arrays.plan):totable()
  for i = 1, #bytes do bytes[i] = string.char(bytes[i]) end
  local plan = json.decode(table.concat(bytes))
  plan.vectors = arrays
  return plan
end

-- The tensor at { dtype, first, shape }.
local function tensor_at(plan, place)
  local kind, first, shape = place[1], place[2], place[3]
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  return tf.reshape(plan.vectors[kind][{ { first, first + count } }], shape)
end

-- Structures ------------------------------------------------------------------

local NIL = {} -- a leaf that is nil

-- Plain tables are structure, objects are not.
local function is_value(x)
  return type(x) ~= "table" or getmetatable(x) ~= nil
end

-- Append the leaves of the values to a list, in TensorFlow's order.
local function add_leaves(list, count, ...)
  for i = 1, count do
    local x = select(i, ...)
    if x == nil then
      list[#list + 1] = NIL
    elseif is_value(x) or x == NIL then
      list[#list + 1] = x
    elseif x.n ~= nil or #x > 0 then
      add_leaves(list, x.n or #x, unpack(x, 1, x.n or #x))
    else
      local keys = {}
      for key in pairs(x) do keys[#keys + 1] = key end
      table.sort(keys)
      for _, key in ipairs(keys) do add_leaves(list, 1, x[key]) end
    end
  end
  return list
end

local function leaves(...)
  return add_leaves({}, select("#", ...), ...)
end

-- Expressions -----------------------------------------------------------------

local Run = {}
Run.__index = Run

-- What is a keyword of Lua has an underscore here.
local KEYWORDS = { ["repeat"] = true, ["end"] = true, ["and"] = true,
  ["or"] = true, ["not"] = true, ["in"] = true, ["function"] = true }

local function lua_name(name)
  return KEYWORDS[name] and name .. "_" or name
end

local function found(path)
  local at = tf
  for name in path:gmatch "[^.]+" do at = at[lua_name(name)] end
  return at
end

function Run:input(k)
  if self.tensors[k] == nil then
    self.tensors[k] = tensor_at(self.plan, self.case.inputs[k + 1])
  end
  return self.tensors[k]
end

-- The arguments of a call as values; options are a last table.
function Run:arguments(x, names)
  local list = {}
  for i, each in ipairs(x.args) do list[i] = self:value(each, names) end
  local n = #x.args
  if next(x.options) ~= nil then
    n = n + 1
    list[n] = {}
    for key, each in pairs(x.options) do
      list[n][lua_name(key)] = self:value(each, names)
    end
  end
  return list, n
end

-- The n values of `list` behind an object.
local function call_method(fn, object, list, n)
  return fn(object, unpack(list, 1, n))
end

-- Sum of all floats, each times its own of -15/16 ... 17/16.
local function weighed(...)
  local total
  for _, leaf in ipairs(leaves(...)) do
    if leaf ~= NIL and not tf.is_tensor(leaf) then
      leaf = tf.convert_to_tensor(leaf)
    end
    local dtype = leaf ~= NIL and leaf.dtype or "none"
    if tostring(dtype):find "float" then
      local weights, size = {}, tf.size(leaf):item()
      for i = 0, size - 1 do
        weights[i + 1] = (i * 37 % 17 - 8) / 8 + 1 / 16
      end
      local part = tf.reduce_sum(leaf * tf.reshape(
        tf.constant(weights, { dtype = dtype }), leaf.shape))
      total = total and total + tf.cast(part, total.dtype) or part
    end
  end
  return total
end

function Run:gradient(x, names)
  local sources = leaves(self:value(x.wrt, names))
  local target
  local tape = tf.GradientTape(function(t)
    for _, source in ipairs(sources) do
      if not tf.is_variable(source) then t:watch(source) end
    end
    target = self:value(x.gradient, names)
  end)
  return tape:gradient(target, sources)
end

local EVALUATE = {
  ["in"] = function(run, x) return run:input(x["in"]) end,
  var = function(_, x, names) return names[x.var] end,
  call = function(run, x, names)
    local list, n = run:arguments(x, names)
    return found(x.call)(unpack(list, 1, n))
  end,
  apply = function(run, x, names)
    local object = run:value(x.apply, names)
    local list, n = run:arguments(x, names)
    return object(unpack(list, 1, n))
  end,
  method = function(run, x, names)
    local object = run:value(x.of, names)
    local list, n = run:arguments(x, names)
    return call_method(object[lua_name(x.method)], object, list, n)
  end,
  field = function(run, x, names)
    return run:value(x.of, names)[lua_name(x.field)]
  end,
  item = function(run, x, names)
    local list = { n = 0 }
    local function collect(...)
      list = { n = select("#", ...), ... }
    end
    collect(run:value(x.of, names))
    if list.n == 1 and not is_value(list[1]) then list = list[1] end
    return list[x.item + 1]
  end,
  lambda = function(run, x, names)
    return function(...)
      local inner = setmetatable({}, { __index = names })
      for i, name in ipairs(x.lambda) do inner[name] = (select(i, ...)) end
      return run:results(x.body, inner)
    end
  end,
  tuple = function(run, x, names) return run:list(x.tuple, names) end,
  dict = function(run, x, names)
    local out = {}
    for key, each in pairs(x.dict) do out[key] = run:value(each, names) end
    return out
  end,
  ["nil"] = function() return nil end,
  weigh = function(run, x, names)
    return weighed(run:value(x.weigh, names))
  end,
  gradient = function(run, x, names) return run:gradient(x, names) end,
  update = function(run, x, names)
    run:value(x.update, names):apply_gradients(run:value(x.gradients, names),
      run:value(x.variables, names))
  end,
  mask_of = function(run, x, names)
    return tf.keras.layers.mask_of(run:value(x.mask_of, names))
  end,
  table = function(run, x, names)
    local out = {}
    for _, each in ipairs(x.table) do
      out[each[1]] = run:value(each[2], names)
    end
    return out
  end,
}
local KINDS = {}
for kind in pairs(EVALUATE) do KINDS[#KINDS + 1] = kind end

function Run:list(x, names)
  local out = { n = #x }
  for i, each in ipairs(x) do out[i] = self:value(each, names) end
  for i = 1, out.n do
    if out[i] == nil then return out end
  end
  out.n = nil
  return out
end

--- What an expression is; several values where a function returns several.
function Run:value(x, names)
  if type(x) ~= "table" then return x end
  for _, kind in ipairs(KINDS) do
    if x[kind] ~= nil then return EVALUATE[kind](self, x, names) end
  end
  return self:list(x, names)
end

--- The same for what a function returns: a tuple is several values.
function Run:results(x, names)
  if type(x) == "table" and x.tuple ~= nil then
    return unpack(self:list(x.tuple, names), 1, #x.tuple)
  end
  return self:value(x, names)
end

-- Programs --------------------------------------------------------------------

function Run:emit(label, ...)
  for _, leaf in ipairs(leaves(...)) do
    if leaf ~= NIL and type(leaf) ~= "number" and type(leaf) ~= "boolean" then
      leaf = tf.convert_to_tensor(leaf)
    end
    self.out[#self.out + 1] = { label = label, value = leaf }
  end
end

function Run:fill(statement)
  local k = statement.first
  for _, owner in ipairs(leaves(self:value(statement.fill, self.names))) do
    local weights = {}
    for i = 1, #owner.weights do weights[i], k = self:input(k), k + 1 end
    owner:set_weights(weights)
  end
end

function Run:elements(statement)
  local count = 0
  local iterator = self:value(statement.elements, self.names):iter()
  local function take(...)
    if select("#", ...) == 0 or ... == nil then return false end
    if count == statement.most then return false end
    self:emit("element " .. count, ...)
    count = count + 1
    return true
  end
  while take(iterator()) do end
  self:emit("elements", count)
end

--- Run the program of a case; { { label, value } ... }.
function M.run(plan, case)
  local run = setmetatable({ plan = plan, case = case, names = {},
    tensors = {}, out = {} }, Run)
  for _, statement in ipairs(case.program) do
    if statement.let then
      run.names[statement.let] = run:value(statement.be, run.names)
    elseif statement.emit ~= nil then
      run:emit(statement["as"], run:value(statement.emit, run.names))
    elseif statement.fill then
      run:fill(statement)
    else
      run:elements(statement)
    end
  end
  return run.out
end

-- Comparison ------------------------------------------------------------------

local function flat(t)
  return tf.reshape(t, { -1 }):totable()
end

-- |x - y| in units of `size`; NaN and infinity are like themselves only.
local function distance(x, y, size)
  if x == y or x ~= x and y ~= y then return 0 end
  local d = math.abs(x - y) / size
  return d == d and d or math.huge
end

-- Differences of the elements, relative; the largest, and where it is.
-- `forgiven`: 0 for NaN, as in gradients.
local function farthest(ours, theirs, exact, forgiven)
  local scale, most, at = 0, 0, 1
  for _, y in ipairs(theirs) do
    if y == y and math.abs(y) < math.huge then
      scale = math.max(scale, math.abs(y))
    end
  end
  for i, y in ipairs(theirs) do
    local d = distance(ours[i], y, math.max(math.abs(y), scale / 100, SMALL))
    if forgiven and y ~= y and ours[i] == 0 then d = 0 end
    if d > 0 and exact then d = math.huge end
    if d > most then most, at = d, i end
  end
  return most, at
end

-- One output against another: difference over its bound, and what is wrong.
local function compare_output(plan, case, ours, place)
  local label, where = place[1], place[2]
  local value = ours.value
  if where == nil or where == json.null then
    return value == NIL and 0 or math.huge,
      label .. ": TensorFlow has none there"
  elseif value == NIL then
    return math.huge, label .. ": nil, TensorFlow has a value"
  end
  local theirs = tensor_at(plan, where)
  local kind, shape = where[1], table.concat(where[3], ",")
  if type(value) == "number" then
    value = tf.constant(value, { dtype = kind })
  elseif type(value) == "boolean" then
    value = tf.constant(value)
  elseif tostring(value.dtype):match "[%w]+$" ~= kind then
    return math.huge, ("%s: dtype %s, not %s"):format(label,
      tostring(value.dtype), kind)
  end
  if table.concat(value.shape, ",") ~= shape then
    return math.huge, ("%s: shape {%s}, not {%s}"):format(label,
      table.concat(value.shape, ","), shape)
  end
  if kind == "bool" then
    value, theirs = tf.cast(value, "int32"), tf.cast(theirs, "int32")
  end
  local bound = BOUNDS[kind]
  local a, b = flat(value), flat(theirs)
  local d, at = farthest(a, b, bound == nil, label:find "gradient" ~= nil)
  local text = ("%s: element %d is %s, not %s"):format(label, at - 1,
    tostring(a[at]), tostring(b[at]))
  return bound and d / bound / (case.scale or 1) or d, text
end

-- The farthest output that may not differ, what is wrong with it, and why
-- another one may.
local function compare_outputs(plan, case, out)
  if #out ~= #case.outputs then
    return math.huge, ("%d outputs, not %d"):format(#out, #case.outputs)
  end
  local most, what, why = 0, nil, nil
  for i, place in ipairs(case.outputs) do
    local d, text = compare_output(plan, case, out[i], place)
    local reason = d > 1 and listed.reason(case, text, d, out) or nil
    if reason ~= nil then
      why = reason
    elseif d > most then
      most, what = d, text
    end
  end
  return most, what, why
end

local function strategy_run(n, fn)
  if n == 1 then return fn() end
  local devices = {}
  for i = 1, n do devices[i] = "/cpu:" .. i - 1 end
  return tf.distribute.MirroredStrategy { devices = devices }:scope(fn)
end

--- Run a case on n replicas and compare.
---@return table { name, id, replicas, over, message, outside, listed }  `over`:
---   largest difference in bounds of what may not differ; outside when it is
---   more than 1. `listed`: why something else is farther off
function M.compare(plan, case, n)
  local row = { name = case.name, id = case.id, replicas = n, over = math.huge }
  local ok, over, message, why = pcall(function()
    return compare_outputs(plan, case, strategy_run(n, function()
      return M.run(plan, case)
    end))
  end)
  if ok then
    row.over, row.message, row.listed = over, message, why
  else
    row.message = tostring(over)
  end
  row.outside = row.over > 1 -- never NaN
  return row
end

--- Numbers of replicas that a case is for, as far as there are devices.
function M.replicas(case)
  local list = {}
  for _, n in ipairs(case.replicas or { 1 }) do
    if n <= raw.device_count "CPU" then list[#list + 1] = n end
  end
  return list
end

return M
