--- The case table in replicas, each with inputs of its own: a traced run against
--- one line by line, equal bits. A drawn share of the cases; all with TFD_LONG.
local cases = require "spec.support.cases"
local replicas = require "spec.support.replicas"
local rng = require "spec.fuzz.rng"
local seed = require "spec.support.seed"
local tf = require "tfdist"
local traces = require "spec.support.traces"

local seeded = traces.seeded
local unpack = table.unpack or unpack -- luacheck: ignore 143 113

local SHARE = os.getenv "TFD_LONG" and 1 or 6 -- one in so many

-- The arguments of all replicas, each a value.
local function distributed(case, strategy)
  local out, dtype = {}, case.dtypes[1]
  for i, spec in ipairs(case.inputs) do
    out[i] = strategy:experimental_distribute_values_from_function(
      function(context)
        return traces.input(spec, i - 1 + context.replica_id_in_sync_group,
          dtype)
      end)
  end
  return out
end

-- The bits of all replicas' results.
local function bits(strategy, out)
  local list = {}
  for _, value in ipairs(out) do
    for _, x in ipairs(strategy:experimental_local_results(value)) do
      list[#list + 1] = x
    end
  end
  return traces.bits(list)
end

local function check(case, strategy, n)
  local args = distributed(case, strategy)
  local function over()
    return strategy:run(function(...)
      return { case.fn(tf, unpack({ ... }, 1, #case.inputs)) }
    end, args)
  end
  local want = bits(strategy, seeded(over))
  assert.is_true(#want >= n, case.name)
  local f = tf.function_(over)
  for call = 1, 2 do
    traces.same_bits(want, bits(strategy, seeded(f)),
      ("%s, call %d"):format(case.name, call))
  end
end

for _, n in ipairs { 2, 4 } do
  for index, family in ipairs(cases.families) do
    local name = ("ops of family %s in %d replicas (seed %d)"):format(family, n,
      seed)
    if replicas.available < n then
      pending(name .. ": needs TFDIST_CPU_DEVICES=" .. n)
    else
      it(name, function()
        local r, strategy = rng.new(seed, n, index), replicas.mirrored(n)
        for _, case in ipairs(cases.load(family)) do
          local drawn = r:one_in(SHARE)
          if drawn and not cases.NOT_TRACED[case.name] then
            check(case, strategy, n)
          end
        end
      end)
    end
  end
end
