-- The tour of strategies prints what its header says, on both hosts.
local P = require "spec.support.process"

describe("examples/strategies.lua", function()
  for _, host in ipairs(P.hosts) do
    for _, n in ipairs { 1, 4 } do
      it(("runs under %s with %d devices"):format(host.name, n), function()
        local r = P.run(("%s --cpu-devices=%d examples/strategies.lua"):format(
          host.path, n))
        assert.equal("", r.err)
        assert.equal(0, r.code)
        local function has(text)
          if not r.out:find(text, 1, true) then
            error(("expected %q in:\n%s"):format(text, r.out), 2)
          end
        end
        has(("%d replica%s in sync"):format(n, n == 1 and "" or "s"))
        has 'MirroredVariable "v" float32 {} = 1   on /cpu:0'
        -- 0 + 10 + 20 + 30, their mean; 1 + 2 + 3 + 4 rows
        has(("sum %g, mean %g"):format(5 * n * (n - 1), 5 * (n - 1)))
        has(("rows in all: %d"):format(n * (n + 1) / 2))
        has "the shares add up to 1"
        has(("mean of the replica numbers: %g"):format((n - 1) / 2))
        -- 0 - 0.1 * d/dw (w - 1)^2 at 0
        has "w after one step: 0.2"
        if n > 1 then
          has(("PerReplica{\n  0  /cpu:0  0\n  1  /cpu:1  10\n"))
          has "RuntimeError: replicas took different paths: replica 0 reached "
          assert.is_truthy(r.out:find("strategies%.lua:%d+, replica 1 "
            .. "returned at examples/strategies%.lua:%d+"))
        end
      end)
    end
  end
end)
