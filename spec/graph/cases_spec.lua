--- Every op of the case table, traced against run one by one: equal bits. On
--- dense inputs and on views with gaps, with a tape inside the traced function
--- and with one around it.
local tf = require "tfdist"
local cases = require "spec.support.cases"
local traces = require "spec.support.traces"

local unpack = table.unpack or unpack -- luacheck: ignore 143 113
local bits, same, seeded = traces.bits, traces.same_bits, traces.seeded
local call, gradients, inputs = traces.call, traces.case_gradients, traces.inputs

-- Every second element of a copy of twice the length; axes of rank 2 and more
-- in reverse order in memory.
local function gappy(t)
  local rank = #t.shape
  if rank == 0 or t.dtype == "bool" then return t end
  if rank == 1 then
    return tf.stack({ t, t }, { axis = 1 }):reshape { -1 }[{ { 0, nil, 2 } }]
  end
  local perm = {}
  for i = 1, rank do perm[i] = rank - i end
  return tf.transpose(tf.identity(tf.transpose(t, perm)) + tf.cast(0, t.dtype),
    perm)
end

local function check_values(case, dtype, make)
  local args = inputs(case, 0, dtype, make)
  local label = case.name .. " " .. dtype
  local want = bits(seeded(call, case, args))
  local f = tf.function_(function(...) return call(case, { ... }) end)
  for time = 1, 2 do
    local got = seeded(f, unpack(args, 1, #case.inputs))
    same(want, bits(got), ("%s, call %d"):format(label, time))
  end
  assert.are.equal(1, f:experimental_get_tracing_count(), label)
end

local function check_gradients(case, dtype)
  local args = inputs(case, 0, dtype)
  local function plain(...) return call(case, { ... }) end
  local want = bits(seeded(gradients, case, plain, args))
  local inside = tf.function_(function(...)
    return gradients(case, plain, { ... })
  end)
  same(want, bits(seeded(inside, unpack(args, 1, #case.inputs))),
    case.name .. ": tape inside")
  local f = tf.function_(plain)
  same(want, bits(seeded(gradients, case, f, args)),
    case.name .. ": tape around")
end

for _, family in ipairs(cases.families) do
  describe("traced ops of family " .. family, function()
    for _, case in ipairs(cases.load(family)) do
      if cases.NOT_TRACED[case.name] then
        it(case.name .. " says that it needs values", function()
          local args = inputs(case, 0, case.dtypes[1])
          local ok, e = pcall(tf.function_(function(...)
            return call(case, { ... })
          end), unpack(args, 1, #case.inputs))
          assert.is_false(ok)
          assert.are.equal("NotImplementedError", tf.errors.kind(e))
        end)
      elseif cases.is_chosen(case.name) then
        it(case.name, function()
          for _, dtype in ipairs(case.dtypes) do
            check_values(case, dtype)
            check_values(case, dtype, gappy)
          end
          if case.grad then
            check_gradients(case, case.dtypes[1])
          end
        end)
      end
    end
  end)
end
