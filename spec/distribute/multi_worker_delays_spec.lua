--- Messages that are late change nothing but the time: neither sums nor who is
--- there.
local workers = require "spec.support.workers"

-- Steps whose sums depend on their order, small and of several frames.
local PROGRAM = workers.HEAD .. [[
for k = 1, 4 do
  local results = s:run(function()
    local c = tf.distribute.get_replica_context()
    local x = tf.sin(tf.range(k % 2 == 0 and 100003 or 7, {
      dtype = "float32" }) * (id() + 0.1))
    return { c:all_reduce("SUM", x), c:all_gather(x, 0) }
  end)
  for _, x in ipairs(results) do
    print(("%.17g %.17g"):format(x[-1]:item(), tf.reduce_sum(x * x):item()))
  end
end]]

-- Each message is so late, and one process's heartbeats are.
local DELAYS = {
  "net.send=sleep:15@rank1",
  "net.receive=sleep:10@rank0;net.receive=sleep:25@rank2",
  "net.beat=sleep:500@rank1;net.send=sleep:5@rank0",
  "allreduce.chunk=sleep:20@rank2",
}
if not os.getenv "TFD_LONG" then DELAYS = { table.concat(DELAYS, ";") } end

describe("messages that are late #once", function()
  for _, transport in ipairs { "tcp", "ring", "hierarchical" } do
    if transport == "tcp" or os.getenv "TFD_LONG" then
      it("change nothing over " .. transport, function()
        local function run(faults)
          return workers.outputs { program = PROGRAM, n = 3,
            environment = ("TFDIST_TRANSPORT=%s TFDIST_HEARTBEAT_TIMEOUT=2 "
            .. "TFDIST_FAILPOINTS='%s'"):format(transport, faults) }
        end
        local wanted = run ""
        for _, faults in ipairs(DELAYS) do
          assert.same(wanted, run(faults))
        end
      end)
    end
  end
end)
