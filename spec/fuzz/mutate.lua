--- Calls that are right but for one or two things: the cases of the op specs
--- with inputs and attributes changed at random.
local cases = require "spec.support.cases"
local tf = require "tfdist"
local values = require "spec.fuzz.values"

local M = {}

local unpack = table.unpack or unpack -- luacheck: ignore 113 143

local all = {}
for _, family in ipairs(cases.families) do
  for _, case in ipairs(cases.load(family)) do all[#all + 1] = case end
end
-- Families make some of their cases in the order of pairs, which has none.
table.sort(all, function(a, b) return a[1] < b[1] end)
for i = 2, #all do
  assert(all[i - 1][1] ~= all[i][1], "two cases have one name: " .. all[i][1])
end

-- Values ---------------------------------------------------------------------

local mutate

local function mutated_number(v, x)
  local rng = v.rng
  local how = rng:int(1, 7)
  if how == 1 then return x + 1 end
  if how == 2 then return x - 1 end
  if how == 3 then return -x end
  if how == 4 then return x * 2 end
  if how == 5 then return rng:int(-2, 5) end
  return v:real_or_strange()
end

local function mutated_table(v, t)
  local rng = v.rng
  local out, keys = {}, values.keys(t)
  for _, key in ipairs(keys) do out[key] = t[key] end
  local how = rng:int(1, 5)
  if #keys == 0 or how == 1 then
    out[#out + 1] = rng:int(-1, 3)
  elseif how == 2 and #out > 0 then
    out[#out] = nil
  else
    local key = rng:pick(keys)
    out[key] = mutate(v, out[key])
  end
  return out
end

function mutate(v, x)
  local rng = v.rng
  if rng:one_in(12) then return v:garbage() end
  local kind = type(x)
  if kind == "number" then return mutated_number(v, x) end
  if kind == "boolean" then return not x end
  if kind == "string" then return rng:one_in(3) and v:word() or x end
  if kind == "table" and getmetatable(x) == nil then
    return mutated_table(v, x)
  end
  if kind == "userdata" then
    return rng:one_in(2) and v:operand() or x
  end
  return x
end

-- A library whose functions change one of their arguments now and then.
local function spoilt(v, t)
  return setmetatable({}, {
    __index = function(_, name)
      local value = t[name]
      if type(value) == "table" and value ~= tf.newaxis then
        return spoilt(v, value)
      elseif type(value) ~= "function" or not v.rng:one_in(2) then
        return value
      end
      return function(...)
        local n = select("#", ...)
        local args = { ... }
        if n > 0 then
          local i = v.rng:int(1, n)
          args[i] = mutate(v, args[i])
        end
        local result = value(unpack(args, 1, n))
        values.close(result) -- a tape whose function was taken away is open
        return result
      end
    end,
  })
end

-- Inputs ---------------------------------------------------------------------

local function changed_dims(rng, dims)
  local out = {}
  for i = 1, #dims do out[i] = dims[i] end
  local how = rng:int(1, 6)
  local i = rng:int(1, math.max(#dims, 1))
  if how == 1 and #dims < 8 then
    table.insert(out, i, rng:int(1, 2))
  elseif how == 2 and #dims > 0 then
    table.remove(out, i)
  elseif how == 3 and #dims > 0 then
    out[i] = 0
  elseif #dims > 0 then
    out[i] = math.max(0, out[i] + rng:pick { 1, -1, 2, 9 })
  end
  return out
end

local function input(v, spec, k, dtype)
  local rng = v.rng
  dtype = spec.dtype or dtype
  if rng:one_in(20) then return v:garbage() end
  if rng:one_in(15) then dtype = v:dtype() end
  local dims = spec.dims
  if rng:one_in(6) then dims = changed_dims(rng, dims) end
  if rng:one_in(8) then return v:tensor(dtype, dims) end
  local like = { kind = spec.kind, dims = dims, lo = spec.lo, hi = spec.hi }
  if rng:one_in(10) and like.kind == "integer" then
    like.lo, like.hi = like.lo - 2, like.hi + 3
  end
  local data = cases.values(like, k,
    spec.kind == "boolean" and "bool" or dtype)
  for i = 1, #data do
    if dtype == "bool" then
      data[i] = data[i] == true or type(data[i]) == "number"
        and data[i] > 0
    elseif type(data[i]) == "boolean" then
      data[i] = data[i] and 1 or 0
    elseif spec.kind ~= "integer" and rng:one_in(200) then
      data[i] = v:special(dtype)
    end
    if dtype ~= "bool" then data[i] = v.fitting(data[i], dtype) end
  end
  local t = #data == 0 and tf.zeros(dims, { dtype = dtype })
    or tf.constant(data, { dtype = dtype, shape = dims })
  if rng:one_in(4) then t = v:view(t) end
  return t
end

--- A case's text, function and arguments.
function M.next(v, rng)
  local case = rng:pick(all)
  local dtype = rng:one_in(4) and v:dtype() or rng:pick(case.dtypes)
  local args = { n = #case.inputs + 1 }
  args[1] = rng:one_in(2) and tf or spoilt(v, tf)
  for i, spec in ipairs(case.inputs) do
    args[i + 1] = input(v, spec, i - 1, dtype)
  end
  return { name = "case " .. case.name, fn = case.fn }, args
end

return M
