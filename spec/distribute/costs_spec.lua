-- The model of what sums between workers cost, as users see it.
local costs = require "tfdist.distribute.costs"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"

local function fails(kind, pattern, fn, ...)
  local ok, e = pcall(fn, ...)
  assert.is_false(ok)
  assert.equal(kind, e.kind, tostring(e))
  assert.is_truthy(e.message:find(pattern, 1, true), tostring(e))
end

describe("costs of sums between workers", function()
  local c = { step = 1, message = 0.5, byte = 0.25, sum = 0.125 }

  it("are those of the formulas", function()
    assert.equal(1 + 3 * 0.5 + 192 * 0.25 + 192 * 0.125,
      costs.seconds(c, "whole", 4, 64))
    assert.equal(6 * 1.5 + 96 * 0.25 + 48 * 0.125,
      costs.seconds(c, "ring", 4, 64))
    assert.equal(20 * 1.5, costs.seconds(c, "halving", 1024, 0))
    assert.equal(0, costs.seconds(c, "ring", 1, 64))
  end)

  it("choose: few steps for few bytes, few bytes for many", function()
    local known = costs.of "tcp"
    assert.equal("whole", (costs.best(known, 8, 4, true)))
    assert.equal("direct", (costs.best(known, 8, 1e8, true)))
    assert.equal("doubling", (costs.best(known, 1024, 4)))
    assert.equal("halving", (costs.best(known, 1024, 1e8)))
  end)

  it("refuse what they do not know", function()
    fails("NotFound", "pigeon", costs.of, "pigeon")
    fails("ValueError", "zigzag", costs.seconds, c, "zigzag", 2, 4)
    fails("ValueError", "0 processes", costs.seconds, c, "ring", 0, 4)
  end)

  it("are less inside hosts and between them than between all", function()
    local got = process.run(process.build .. "/tfdist config costs 8 2")
    assert.equal(0, got.code, got.err)
    local hosts = got.out:match "all_reduce among 8 workers on 2 hosts\n.*"
    assert.is_truthy(hosts, got.out)
    assert.is_truthy(hosts:find("25 MiB .-hierarchical\n"), got.out)
    -- A worker on each host is all over TCP.
    got = process.run(process.build .. "/tfdist config costs 8 8")
    assert.is_nil(got.out:find("hierarchical\n", 1, true), got.out)
    for given, why in pairs {
      ["8 9"] = 'HOSTS must be a whole number from 1 to 8, got "9"',
      ["8 0"] = 'HOSTS must be a whole number from 1 to 8, got "0"',
      ["2.5"] = 'WORKERS must be a whole number from 2 to 65536, got "2.5"',
      ["many 2"] = 'WORKERS must be a whole number from 2 to 65536, got "many"',
    } do
      got = process.run(process.build .. "/tfdist config costs " .. given)
      assert.equal(2, got.code)
      assert.equal("tfdist config: " .. why .. "\n", got.err)
    end
    fails("ValueError", "9 hosts for 8 processes", raw.hosts_cost, 8, 9, 4)
  end)

  it("are printed", function()
    local got = process.run(process.build .. "/tfdist config costs 4")
    assert.equal(0, got.code, got.err)
    assert.is_truthy(got.out:find("over tcp among 4 workers", 1, true), got.out)
    assert.is_truthy(got.out:find("halving", 1, true), got.out)
    -- Shared memory has two ways.
    local shm = got.out:match "over shm.-\nall_reduce"
    assert.is_nil(shm:find("ring", 1, true), got.out)
    assert.is_nil(got.out:find("hosts", 1, true), got.out)
    assert.equal(2, process.run(process.build .. "/tfdist config costs 1").code)
    assert.equal(2, process.run(process.build .. "/tfdist config costs x").code)
    assert.equal(2, process.run(process.build .. "/tfdist-luajit config costs "
      .. "2.5").code)
  end)
end)
