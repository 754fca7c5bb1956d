-- usage, by `tfdist run -n 2`: pair.lua ROUNDS: so many rounds of collectives
-- between two workers that have one GPU together. NCCL takes no two ranks there:
-- what they add up has to go another way, to the same values.
local tf = require "tfdist"

local rounds = tonumber(arg[1])
local strategy = tf.distribute.MultiWorkerMirroredStrategy()
local count = strategy.num_replicas_in_sync
assert(count == 2, count .. " replicas")
local me = strategy.extended.worker_index

-- Is every element of x this number?
local function holds(x, value, what)
  local least, most = tf.reduce_min(x):item(), tf.reduce_max(x):item()
  assert(least == value and most == value,
    ("%s: %g to %g, expected %g"):format(what, least, most, value))
end

-- 1 MiB in whole numbers below 2^24, so that sums are exact.
local function round(k)
  return strategy:run(function()
    local c = tf.distribute.get_replica_context()
    return c:all_reduce("SUM", tf.fill({ 2 ^ 18 }, me + k + 0.0)),
      c:all_reduce("MEAN", tf.fill({ 5 }, me + k + 0.0)),
      c:all_gather(tf.fill({ me + 1, 3 }, k + 0.0), 0)
  end)
end

for k = 1, rounds do
  local sum, mean, all = round(k)
  assert(sum.device:find "GPU", sum.device)
  if k % 50 == 0 or k == rounds then
    holds(sum, 2 * k + 1, "sum")
    holds(mean, k + 0.5, "mean")
    holds(all, k, "gathered")
    assert(#all == 3, #all .. " rows")
  end
end
print(("worker %d: %d rounds"):format(me, rounds))
