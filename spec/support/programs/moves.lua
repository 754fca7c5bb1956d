--- What random tensor programs are made of: each move is a line of Lua over the
--- values v[1], v[2], ... and variables V[1], ... that exist when it is chosen.
---
--- A move may ask for what no op takes: then the line is not taken, or ends the
--- program, so that errors are compared too.
local cases = require "spec.support.cases"

local M = {}

local FLOAT = { float16 = true, bfloat16 = true, float32 = true,
  float64 = true }
local WHOLE = { int8 = true, int16 = true, int32 = true, int64 = true,
  uint8 = true }
M.FLOAT, M.WHOLE = FLOAT, WHOLE

local function words(s)
  local list = {}
  for word in s:gmatch "%S+" do list[#list + 1] = word end
  return list
end

local UNARY = words [[exp expm1 log1p sin cos tanh sigmoid sqrt rsqrt abs
  negative square floor ceil softplus erf reciprocal sign log rint atan asinh]]
local ACTIVATIONS = words [[relu elu selu gelu softsign swish leaky_relu relu6
  softmax log_softmax]]
local BINARY = words [[add subtract multiply maximum minimum
  squared_difference]]
local COMPARE = words "less less_equal greater greater_equal equal not_equal"
local REDUCE = words [[reduce_sum reduce_mean reduce_max reduce_min reduce_prod
  reduce_logsumexp]]
local DTYPES = words [[float32 float32 float32 float32 float64 float16 bfloat16
  int32 int64 int8 uint8 bool]]
local SIZES = { 0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 16, 33 }

-- Choosing -------------------------------------------------------------------

local function numel(dims)
  local n = 1
  for i = 1, #dims do n = n * dims[i] end
  return n
end

local function same_dims(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

local function braces(list)
  return "{" .. table.concat(list, ", ") .. "}"
end

local function list_of(dims)
  return #dims == 0 and "{}" or braces(dims)
end

--- Sizes of a random shape of at most 600 elements, 0 among them now and then.
function M.shape(rng)
  local dims = {}
  for i = 1, rng:pick { 0, 1, 1, 2, 2, 2, 3, 4 } do
    dims[i] = rng:pick(SIZES)
  end
  if numel(dims) > 600 then return { dims[1] } end
  -- Long enough for the vector loops and their ends.
  if rng:one_in(20) then return { rng:int(200, 1100) } end
  return dims
end

function M.dtype(rng)
  return rng:pick(DTYPES)
end

-- Number of a value for which fits(value) holds; later ones are likelier.
local function find(g, fits)
  local list = {}
  for i = 1, #g.visible do
    local id = g.visible[i]
    if fits == nil or fits(g.values[id]) then list[#list + 1] = id end
  end
  if #list == 0 then return nil end
  local from = g.rng:one_in(2) and math.max(1, #list - 4) or 1
  return list[g.rng:int(from, #list)]
end

local function is_float(value) return FLOAT[value.dtype] end
local function is_number(value) return value.dtype ~= "bool" end

local function v(id)
  return ("v[%d]"):format(id)
end

-- Values of a formula: H.fill(dtype, dims, seed).
local function fresh(g, dtype, dims)
  return ("H.fill(%q, %s, %d)"):format(dtype, list_of(dims),
    g.rng:int(1, 9999))
end

-- Another operand that broadcasts with a value: a value, a variable, a number.
local function partner(g, id)
  local value, rng = g.values[id], g.rng
  local way = rng:int(1, 8)
  if way <= 4 then
    local other = find(g, function(x)
      if x.dtype ~= value.dtype then return false end
      return way <= 2 or same_dims(x.dims, value.dims) or #x.dims == 0
    end)
    return v(other or id)
  elseif way == 5 and is_float(value) then
    return ("%.3f"):format(rng:unit() * 3 - 1)
  elseif way == 6 then
    for i, variable in ipairs(g.variables) do
      if variable.dtype == value.dtype then return ("V[%d]"):format(i) end
    end
  end
  local dims = {}
  for i = rng:int(1, #value.dims + 1), #value.dims do
    dims[#dims + 1] = rng:one_in(3) and 1 or value.dims[i]
  end
  return fresh(g, value.dtype, dims)
end

-- Moves ----------------------------------------------------------------------
-- Each returns the line's right side and how many values it gives, or nil.

local moves = {}
M.moves = moves

function moves.unary(g)
  local id = find(g, is_float)
  if id == nil then return nil end
  if g.rng:one_in(3) then
    return ("tf.nn.%s(%s)"):format(g.rng:pick(ACTIVATIONS), v(id)), 1
  end
  return ("tf.math.%s(%s)"):format(g.rng:pick(UNARY), v(id)), 1
end

function moves.binary(g)
  local id = find(g, is_number)
  if id == nil then return nil end
  local a, b = v(id), partner(g, id)
  if g.rng:one_in(2) then a, b = b, a end
  if g.rng:one_in(6) and is_float(g.values[id]) then
    return ("tf.divide(%s, %s)"):format(a, b), 1
  elseif g.rng:one_in(12) then
    return ("tf.math.%s(%s, %s)"):format(g.rng:pick {
      "floordiv", "floormod", "pow" }, a, b), 1
  end
  return ("tf.math.%s(%s, %s)"):format(g.rng:pick(BINARY), a, b), 1
end

function moves.operator(g)
  local id = find(g, is_float)
  if id == nil then return nil end
  local form = g.rng:pick { "%s * 2 + 0.5", "-%s", "%s ^ 2", "1 - %s",
    "%s / 3", "%s * 1", "%s + 0" }
  return form:format(v(id)), 1
end

function moves.compare(g)
  local id = find(g, is_number)
  if id == nil then return nil end
  return ("tf.%s(%s, %s)"):format(g.rng:pick(COMPARE), v(id),
    partner(g, id)), 1
end

function moves.logic(g)
  local id = find(g, function(x) return x.dtype == "bool" end)
  if id == nil then return nil end
  local a = v(id)
  local way = g.rng:int(1, 4)
  if way == 1 then return ("tf.logical_not(%s)"):format(a), 1 end
  if way == 2 then
    return ("tf.%s(%s, %s)"):format(g.rng:pick { "logical_and", "logical_or" },
      a, partner(g, id)), 1
  elseif way == 3 then
    return ("tf.%s(%s)"):format(g.rng:pick { "reduce_any", "reduce_all" }, a), 1
  end
  local x = find(g, is_number)
  if x == nil then return nil end
  return ("tf.where(%s, %s, %s)"):format(a, v(x), partner(g, x)), 1
end

function moves.cast(g)
  local id = find(g)
  return ("tf.cast(%s, %q)"):format(v(id), M.dtype(g.rng)), 1
end

-- An axis of the value, now and then one that it does not have.
local function axis_of(g, id)
  local rank = #g.values[id].dims
  if rank == 0 or g.rng:one_in(60) then return rank end
  return g.rng:int(-rank, rank - 1)
end

function moves.reduce(g)
  local id = find(g, is_float)
  if id == nil then return nil end
  local name, rng = g.rng:pick(REDUCE), g.rng
  if #g.values[id].dims == 0 or rng:one_in(3) then
    return ("tf.%s(%s)"):format(name, v(id)), 1
  end
  return ("tf.%s(%s, %d, %s)"):format(name, v(id), axis_of(g, id),
    tostring(rng:one_in(3))), 1
end

-- What sums of a row come back to.
local ROW_WISE = {
  "x - tf.reduce_mean(x, {-1}, true)",
  "x / (tf.reduce_sum(tf.abs(x), -1, true) + 1)",
  "tf.exp(x - tf.reduce_max(x, -1, true)) * 0.5",
  "tf.nn.softmax(x * 0.5 + 1) - x",
  "tf.nn.log_softmax(x) * x",
  "tf.expand_dims(tf.reduce_min(x * 2, -1), -1) + x * x",
  "tf.reduce_sum(tf.reduce_prod(x, -1, true) - x, -1)",
}

function moves.rows(g)
  local id = find(g, function(x) return is_float(x) and #x.dims > 0 end)
  if id == nil then return nil end
  local lines = { "local x = " .. v(id) }
  for _ = 1, g.rng:int(1, 3) do
    local line = g.rng:pick(ROW_WISE)
    lines[#lines + 1] = ("x = #x.shape > 0 and %s or x"):format(line)
  end
  return ("(function() %s; return x end)()"):format(
    table.concat(lines, "; ")), 1
end

function moves.along(g)
  local id = find(g, is_number)
  if id == nil then return nil end
  return ("tf.%s(%s, %d)"):format(g.rng:pick { "cumsum", "argmax", "argmin",
    "expand_dims" }, v(id), axis_of(g, id)), 1
end

function moves.reshape(g)
  local id = find(g)
  local dims, n = {}, numel(g.values[id].dims)
  if g.rng:one_in(4) or n == 0 then
    return ("tf.reshape(%s, {-1})"):format(v(id)), 1
  end
  for _ = 1, g.rng:int(1, 2) do
    local factors = {}
    for k = 1, n do
      if n % k == 0 then factors[#factors + 1] = k end
    end
    dims[#dims + 1] = g.rng:pick(factors)
    n = n / dims[#dims]
  end
  dims[#dims + 1] = g.rng:one_in(2) and -1 or math.floor(n)
  return ("tf.reshape(%s, %s)"):format(v(id), braces(dims)), 1
end

function moves.turn(g)
  local id = find(g, function(x) return #x.dims > 0 end)
  if id == nil then return nil end
  local rank = #g.values[id].dims
  if g.rng:one_in(3) then
    return ("tf.reverse(%s, {%d})"):format(v(id), g.rng:int(0, rank - 1)), 1
  end
  local perm = {}
  for i = 1, rank do perm[i] = i - 1 end
  for i = rank, 2, -1 do
    local k = g.rng:int(1, i)
    perm[i], perm[k] = perm[k], perm[i]
  end
  return ("tf.transpose(%s, %s)"):format(v(id), braces(perm)), 1
end

function moves.slice(g)
  local id = find(g, function(x) return #x.dims > 0 end)
  if id == nil then return nil end
  local parts = {}
  for i, size in ipairs(g.values[id].dims) do
    local from = g.rng:int(0, size)
    parts[i] = g.rng:pick {
      "{}", "{nil, nil, 2}", ("{%d, %d}"):format(from, g.rng:int(from, size)),
      "{nil, nil, -1}" }
  end
  return ("%s[{%s}]"):format(v(id), table.concat(parts, ", ")), 1
end

function moves.spread(g)
  local id = find(g)
  local dims, out = g.values[id].dims, {}
  local way = g.rng:int(1, 3)
  if numel(dims) > 200 then return nil end
  for i = 1, #dims do
    if way == 1 then
      out[i] = g.rng:int(1, 2)
    elseif way == 2 then
      out[i] = ("{%d, %d}"):format(g.rng:int(0, 1), g.rng:int(0, 2))
    else
      out[i] = dims[i]
    end
  end
  if way == 3 then table.insert(out, 1, g.rng:int(0, 3)) end
  return ("tf.%s(%s, %s)"):format(({ "tile", "pad", "broadcast_to" })[way],
    v(id), braces(out)), 1
end

function moves.join(g)
  local id = find(g)
  local value = g.values[id]
  local other = find(g, function(x)
    return x.dtype == value.dtype and same_dims(x.dims, value.dims)
  end)
  if g.rng:one_in(2) or #value.dims == 0 then
    return ("tf.stack({%s, %s, %s}, {axis = %d})"):format(v(id), v(other),
      v(id), g.rng:int(0, #value.dims)), 1
  end
  return ("tf.concat({%s, %s}, %d)"):format(v(id), v(other),
    axis_of(g, id)), 1
end

function moves.part(g)
  local id = find(g, function(x)
    return #x.dims > 0 and x.dims[1] >= 1 and x.dims[1] <= 4
  end)
  if id == nil then return nil end
  local n = g.values[id].dims[1]
  if g.rng:one_in(2) then
    return ("H.unpack(tf.unstack(%s, %d))"):format(v(id), n), n
  end
  return ("H.unpack(tf.split(%s, %d, 0))"):format(v(id), n), n
end

function moves.gather(g)
  local id = find(g, function(x) return #x.dims > 0 and x.dims[1] > 0 end)
  if id == nil then return nil end
  local index = {}
  for i = 1, g.rng:int(1, 5) do
    index[i] = g.rng:int(0, g.values[id].dims[1] - 1)
  end
  return ("tf.gather(%s, tf.constant(%s, \"int32\"))"):format(v(id),
    braces(index)), 1
end

function moves.matmul(g)
  local id = find(g, function(x) return is_float(x) and #x.dims >= 2 end)
  if id == nil then return nil end
  local value = g.values[id]
  local inner = value.dims[#value.dims]
  local other = find(g, function(x)
    return x.dtype == value.dtype and #x.dims >= 2 and #x.dims <= #value.dims
      and x.dims[#x.dims - 1] == inner
  end)
  if other == nil or g.rng:one_in(3) then
    return ("tf.matmul(%s, %s)"):format(v(id), fresh(g, value.dtype,
      { inner, g.rng:pick { 1, 2, 3, 5, 17 } })), 1
  elseif g.rng:one_in(4) then
    return ("tf.matmul(%s, %s, true)"):format(v(id), v(id)), 1
  end
  return ("tf.matmul(%s, %s)"):format(v(id), v(other)), 1
end

function moves.constant(g)
  if g.rng:one_in(3) then
    local id = find(g)
    return ("tf.%s(%s)"):format(g.rng:pick { "zeros_like", "ones_like",
      "identity", "stop_gradient", "shape" }, v(id)), 1
  end
  return fresh(g, M.dtype(g.rng), M.shape(g.rng)), 1
end

function moves.draw(g)
  local seed = g.rng:one_in(2) and (", seed = %d"):format(g.rng:int(0, 9)) or ""
  local way = g.rng:int(1, 4)
  if way == 1 then
    return ("tf.random.uniform(%s, {minval = 0, maxval = 9, dtype = \"int32\""
      .. "%s})"):format(list_of(M.shape(g.rng)), seed), 1
  elseif way == 2 then
    return ("tf.random.normal(%s, {stddev = 2%s})"):format(
      list_of(M.shape(g.rng)), seed), 1
  elseif way == 3 then
    return ("tf.random.stateless_uniform(%s, {seed = {%d, 7}})"):format(
      list_of(M.shape(g.rng)), g.rng:int(0, 9)), 1
  end
  local id = find(g, is_float)
  if id == nil then return nil end
  return ("tf.nn.dropout(%s, 0.5)"):format(v(id)), 1
end

-- Variables ------------------------------------------------------------------

function moves.read(g)
  if #g.variables == 0 then return nil end
  local which = g.rng:int(1, #g.variables)
  return (g.rng:one_in(2) and "V[%d]:read_value()" or "tf.identity(V[%d])")
    :format(which), 1
end

function moves.write(g)
  if #g.variables == 0 then return nil end
  local which = g.rng:int(1, #g.variables)
  local variable = g.variables[which]
  local id = find(g, function(x)
    return x.dtype == variable.dtype and same_dims(x.dims, variable.dims)
  end)
  local x = id and v(id) or fresh(g, variable.dtype, variable.dims)
  if id ~= nil and g.rng:one_in(3) then
    x = ("V[%d] * 0.5 + %s"):format(which, v(id))
  end
  return ("V[%d]:%s(%s)"):format(which, g.rng:pick { "assign", "assign_add",
    "assign_sub" }, x), 0
end

function moves.write_rows(g)
  if #g.variables == 0 then return nil end
  local which = g.rng:int(1, #g.variables)
  local variable = g.variables[which]
  local n = variable.dims[1]
  if n == nil or n == 0 then return nil end
  local dims = { 2 }
  for i = 2, #variable.dims do dims[i] = variable.dims[i] end
  return ("V[%d]:%s(tf.IndexedSlices(%s, tf.constant({%d, %d}, \"int32\")))")
    :format(which, g.rng:pick { "scatter_add", "scatter_update",
      "scatter_sub" }, fresh(g, variable.dtype, dims), g.rng:int(0, n - 1),
      g.rng:int(0, n - 1)), 0
end

-- Steps of the host ----------------------------------------------------------

function moves.check(g)
  local id = find(g, is_number)
  if id == nil then return nil end
  return ("H.assert(%s)"):format(v(id)), 0
end

-- The case table -------------------------------------------------------------

local all_cases
local function case_list()
  if all_cases ~= nil then return all_cases end
  all_cases = {}
  for _, family in ipairs(cases.families) do
    for _, case in ipairs(cases.load(family)) do
      local n = 0
      for _, spec in ipairs(case.inputs) do n = n + numel(spec.dims) end
      if n <= 800 and not cases.NOT_TRACED[case.name] then
        all_cases[#all_cases + 1] = case
      end
    end
  end
  -- A seed means the same program in every process.
  table.sort(all_cases, function(a, b)
    if a.family ~= b.family then return a.family < b.family end
    return a.name < b.name
  end)
  return all_cases
end

--- An op of the case table. Where a value of the program has an input's dtype
--- and shape, it takes that one, unless the input needs values of its own.
function moves.case(g)
  local case = g.rng:pick(case_list())
  local dtype = g.rng:pick(case.dtypes)
  local args = { ("%q"):format(case.family), ("%q"):format(case.name),
    ("%q"):format(dtype) }
  for i, spec in ipairs(case.inputs) do
    local id
    if spec.kind == "normal" or spec.kind == "positive" then
      id = find(g, function(x)
        return x.dtype == (spec.dtype or dtype) and same_dims(x.dims, spec.dims)
      end)
    end
    args[#args + 1] = id and v(id) or ("H.input(%q, %q, %q, %d)"):format(
      case.family, case.name, dtype, i)
  end
  return ("H.case(%s)"):format(table.concat(args, ", ")), -1
end

-- How often each is chosen.
M.weights = { unary = 6, binary = 10, operator = 3, compare = 2, logic = 3,
  cast = 3, reduce = 5, rows = 4, along = 2, reshape = 3, turn = 3, slice = 3,
  spread = 2, join = 3, part = 1, gather = 2, matmul = 4, constant = 2,
  draw = 2, read = 3, write = 4, write_rows = 1, check = 1, case = 6 }

M.find, M.numel, M.list_of, M.same_dims = find, numel, list_of, same_dims

return M
