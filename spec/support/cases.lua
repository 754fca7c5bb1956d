--- The case table that drives every op.
---
--- A family's file in spec/support/cases lists cases; this module collects
--- them, makes their inputs from a formula that spec/reference/reference.py
--- repeats, and reads the expected values that it computes with NumPy.

local seed = require "spec.support.seed"

local M = {}

local FLOATS = { "float32", "float64", "float16", "bfloat16" }
local INTS = { "int8", "int16", "int32", "int64", "uint8" }

local function join(...)
  local all = {}
  for _, list in ipairs { ... } do
    for _, item in ipairs(list) do all[#all + 1] = item end
  end
  return all
end

local DTYPES = {
  float = FLOATS,
  int = INTS,
  number = join(FLOATS, INTS),
  all = join(FLOATS, INTS, { "bool" }),
}

--- The dtypes that have gradients.
M.FLOAT = {}
for _, dtype in ipairs(FLOATS) do M.FLOAT[dtype] = true end

M.families = {
  "core", "math", "reduce", "array", "linalg", "nn", "loss", "random",
  "image", "update",
}

--- Their Lua code decides by values, which a traced function's call only knows.
M.NOT_TRACED = {}
for name in ("bincount,bincount of weights,bincount with limits,"
  .. "bincount of rows,sequence_mask,boolean_mask,"
  .. "where_indices,unique,dynamic_partition"):gmatch "[^,]+" do
  M.NOT_TRACED[name] = true
end

local only = os.getenv "TFDIST_CASES" -- a Lua pattern, to run a few
--- One case in this many, drawn by the seed.
M.share = tonumber(os.getenv "TFDIST_CASES_SHARE" or 1)

--- Is the case of this name one of those that are to run?
function M.is_chosen(name)
  if only and not name:find(only) then return false end
  local hash = seed
  for i = 1, #name do hash = (hash * 31 + name:byte(i)) % 1000003 end
  return hash % M.share == 0
end

-- Input generators -----------------------------------------------------------

local I = {}

local function generator(kind)
  return function(dims) return { kind = kind, dims = dims } end
end

I.normal = generator "normal"
I.positive = generator "positive"
I.unit = generator "unit"
I.boolean = function(dims)
  return { kind = "boolean", dims = dims, dtype = "bool" }
end
I.integer = function(dims, lo, hi, dtype)
  return { kind = "integer", dims = dims, lo = lo, hi = hi, dtype = dtype }
end
I.index = function(dims, n, dtype)
  return { kind = "integer", dims = dims, lo = 0, hi = n,
           dtype = dtype or "int32" }
end

local MODULUS = 2147483647

--- Element `i` of input `k`: a number in (0, 1) that is the same, to the last
--- bit, in Lua and in Python (every product stays below 2^53).
local function uniform(k, i, round)
  local x = (i * 7919 + k * 104729 + round * 1299709 + 12345) % MODULUS
  for _ = 1, 3 do x = (x * 16807 + 11) % MODULUS end
  return (x + 1) / (MODULUS + 2)
end

local function element(spec, k, i)
  local kind = spec.kind
  if kind == "normal" then
    local a, b, c = uniform(k, i, 0), uniform(k, i, 1), uniform(k, i, 2)
    return (a + b + c - 1.5) * 2
  elseif kind == "positive" then
    return 0.1 + 2.9 * uniform(k, i, 0)
  elseif kind == "unit" then
    return -0.95 + 1.9 * uniform(k, i, 0)
  elseif kind == "boolean" then
    return uniform(k, i, 0) < 0.5
  end
  return spec.lo + math.floor(uniform(k, i, 0) * (spec.hi - spec.lo))
end

local function numel(dims)
  local n = 1
  for _, d in ipairs(dims) do n = n * d end
  return n
end
M.numel = numel

local WHOLE = {}
for _, dtype in ipairs(INTS) do WHOLE[dtype] = true end

local elements = {}

-- At least `n` elements of input `k`, which dtypes, shapes and perturbations ask
-- for again.
local function elements_of(spec, k, n)
  local key = table.concat({ spec.kind, k, spec.lo or "", spec.hi or "" }, " ")
  local list = elements[key] or {}
  elements[key] = list
  for i = #list + 1, n do list[i] = element(spec, k, i - 1) end
  return list
end

--- Flat values of input `k` (from 0) of a case, row-major. Real numbers become
--- a few different whole ones for integer dtypes, none below 0 for uint8, and
--- their signs for bool.
function M.values(spec, k, dtype)
  dtype = spec.dtype or dtype
  local n, out = numel(spec.dims), {}
  local list = elements_of(spec, k, n)
  local whole = WHOLE[dtype] and spec.kind ~= "integer"
  local sign = dtype == "bool" and spec.kind ~= "boolean"
  for i = 1, n do
    local x = list[i]
    if whole then x = math.floor(x * 3) end
    if dtype == "uint8" then x = math.abs(x) end
    if sign then x = x > 0 end
    out[i] = x
  end
  return out
end

-- Collecting ------------------------------------------------------------------

local function normalise(family, entry)
  local name = entry[1]
  assert(type(name) == "string", family .. ": a case needs a name")
  entry.name = name
  entry.family = family
  entry.op = entry.op or name:match "^%S+"
  entry.inputs = entry.inputs or {}
  local dtypes = entry.dtypes or "float"
  if entry.grad == nil then
    entry.grad = dtypes == "float" or dtypes == "number"
  end
  entry.dtypes = type(dtypes) == "table" and dtypes
    or assert(DTYPES[dtypes], name .. ": unknown dtypes " .. tostring(dtypes))
  return entry
end

--- The inputs that a case's gradients are taken by, as numbers from 1.
function M.differentiated(case)
  local list = {}
  for i, spec in ipairs(case.inputs) do
    local float = spec.dtype == nil and spec.kind ~= "boolean"
      or M.FLOAT[spec.dtype]
    if float and case.grad == true then list[#list + 1] = i end
  end
  if type(case.grad) == "table" then
    for _, i in ipairs(case.grad) do list[#list + 1] = i + 1 end
  end
  return list
end

--- All cases of one family; an empty list when it has no file.
function M.load(family)
  local cases, seen = {}, {}
  local path = "spec/support/cases/" .. family .. ".lua"
  local file = io.open(path)
  if not file then return cases end
  file:close()
  local define = assert(loadfile(path))()
  define(function(entry)
    local case = normalise(family, entry)
    assert(not seen[case.name], "two cases named " .. case.name)
    seen[case.name] = true
    cases[#cases + 1] = case
  end, I)
  return cases
end

-- Reference values --------------------------------------------------------------

local function quote(s)
  return '"' .. s:gsub('[%c"\\]', function(c)
    return ("\\u%04x"):format(c:byte())
  end) .. '"'
end

local function describe(case)
  local inputs = {}
  for i, spec in ipairs(case.inputs) do
    inputs[i] = ('{"kind":%s,"dims":[%s],"lo":%d,"hi":%d,"dtype":%s}'):format(
      quote(spec.kind), table.concat(spec.dims, ","), spec.lo or 0,
      spec.hi or 0, spec.dtype and quote(spec.dtype) or "null")
  end
  local dtypes = {}
  for i, d in ipairs(case.dtypes) do dtypes[i] = quote(d) end
  return ('{"name":%s,"ref":%s,"inputs":[%s],"dtypes":[%s]}'):format(
    quote(case.name), quote(case.ref), table.concat(inputs, ","),
    table.concat(dtypes, ","))
end

local function number(text)
  if text == "nan" then return 0 / 0 end
  if text == "inf" then return math.huge end
  if text == "-inf" then return -math.huge end
  return assert(tonumber(text), text)
end

local function parse(line)
  local name, dtype, dims, values =
    line:match "^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$"
  assert(name, "bad reference line: " .. line)
  local out = { dims = {}, values = {} }
  for d in dims:gmatch "%d+" do out.dims[#out.dims + 1] = tonumber(d) end
  for v in values:gmatch "%S+" do
    out.values[#out.values + 1] = number(v)
  end
  return name, dtype, out
end

--- Expected outputs of a family's cases: [name][dtype] = list of
--- { dims, values }. Runs Python once; errors name the case that failed.
function M.reference(family, cases)
  local request = os.tmpname()
  local answer = os.tmpname()
  local file = assert(io.open(request, "w"))
  local lines = {}
  for i, case in ipairs(cases) do lines[i] = describe(case) end
  file:write("[", table.concat(lines, ",\n"), "]\n")
  file:close()
  local python = os.getenv "TFDIST_PYTHON" or "/usr/bin/python3"
  local command = ("%s spec/reference/reference.py %s %s %s"):format(
    python, family, request, answer)
  local ok = os.execute(command)
  assert(ok == true or ok == 0, "reference failed: " .. command)
  local expected = {}
  for line in io.lines(answer) do
    local name, dtype, out = parse(line)
    expected[name] = expected[name] or {}
    local outs = expected[name][dtype] or {}
    expected[name][dtype] = outs
    outs[#outs + 1] = out
  end
  os.remove(request)
  os.remove(answer)
  return expected
end

return M
