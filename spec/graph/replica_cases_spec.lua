--- The case table in replicas, each with inputs of its own, values and
--- gradients: a traced run, and a run of what is traced, against one line by
--- line, equal bits. A drawn share of the cases, each in one of its dtypes; all
--- of both with TFD_LONG.
local cases = require "spec.support.cases"
local replicas = require "spec.support.replicas"
local rng = require "spec.fuzz.rng"
local seed = require "spec.support.seed"
local tf = require "tfdist"
local traces = require "spec.support.traces"

local seeded = traces.seeded

local LONG = os.getenv "TFD_LONG" ~= nil
local SHARE = LONG and 1 or math.max(4, cases.share) -- one in so many

-- The arguments of all replicas, each a value.
local function distributed(case, strategy, dtype)
  local out = {}
  for i = 1, #case.inputs do
    out[i] = strategy:experimental_distribute_values_from_function(
      function(context)
        return traces.input(case.inputs[i],
          i - 1 + context.replica_id_in_sync_group, dtype)
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

-- What a replica computes: the case's results or its gradients, line by line
-- or with the case's own code traced.
local function values_of(case)
  return function(...) return traces.call(case, { ... }) end
end

local function gradients_of(case, traced)
  local fn = values_of(case)
  if traced then fn = tf.function_(fn) end
  return function(...)
    return traces.case_gradients(case, fn, { ... })
  end
end

-- One after the other, twice: a run of `replica` line by line, then each of
-- `runs`.
local function check(strategy, args, label, replica, runs)
  local function eager() return strategy:run(replica, args) end
  local want = bits(strategy, seeded(eager))
  for how, run in pairs(runs) do
    for call = 1, 2 do
      traces.same_bits(want, bits(strategy, seeded(run)),
        ("%s, %s, call %d"):format(label, how, call))
    end
  end
  return #want
end

local function check_values(case, strategy, args, label)
  local fn = values_of(case)
  return check(strategy, args, label, fn, {
    ["traced around"] = tf.function_(function()
      return strategy:run(fn, args)
    end) })
end

local function check_gradients(case, strategy, args, label)
  local fn = gradients_of(case)
  local f, part = tf.function_(fn), gradients_of(case, true)
  return check(strategy, args, label .. ": gradients", fn, {
    ["traced around"] = tf.function_(function()
      return strategy:run(fn, args)
    end),
    ["traced in each"] = function() return strategy:run(f, args) end,
    ["a tape around"] = function() return strategy:run(part, args) end,
  })
end

-- A case in one dtype, or in all. Whole numbers have no gradients.
local function check_case(case, strategy, n, first, last)
  for k = first, last do
    local dtype = case.dtypes[k]
    local args = distributed(case, strategy, dtype)
    local label = ("%s %s"):format(case.name, dtype)
    assert.is_true(check_values(case, strategy, args, label) >= n, label)
    if case.grad and cases.FLOAT[dtype] then
      check_gradients(case, strategy, args, label)
    end
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
          local drawn, k = r:one_in(SHARE), r:int(1, #case.dtypes)
          if drawn and not cases.NOT_TRACED[case.name] then
            check_case(case, strategy, n, LONG and 1 or k,
              LONG and #case.dtypes or k)
          end
        end
      end)
    end
  end
end
