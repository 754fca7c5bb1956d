--- The programs that the benchmarks compare with do what they say.

local process = require "spec.support.process"

local bench = process.build .. "/bench/"

describe("the programs of the benchmarks #once", function()
  it("print every measurement of queues and memory", function()
    local r = process.run(bench .. "queue 2 1")
    assert.equal(0, r.code, r.err)
    local rows, faults = 0, 0
    for line in r.out:gmatch "[^\n]+" do
      rows = rows + (line:find "ns%s+ratio%s+[%d.]+%s+goal" and 1 or 0)
      faults = faults + (line:find "%d faults in a pass" and 1 or 0)
    end
    assert.equal(16, rows, r.out) -- six of queues, two of steps, eight of memory
    assert.equal(3, faults, r.out)
  end)

  -- Kinks of ReLU and pooling leave up to 0.005 in the slope that a gradient is
  -- held against; a term that is missing or added is a tenth or more.
  it("compute the gradients of the networks that they train", function()
    -- The last has 53 arrays of parameters, half a second each.
    local names = { "mlp", "cnn", "lenet", "lstm", "tiny",
      os.getenv "TFD_LONG" and "gpt" or "gpt 7" }
    local r = process.run(bench .. "steps", "check "
      .. table.concat(names, "\ncheck ") .. "\nquit\n")
    assert.equal(0, r.code, r.err)
    local n = 0
    for off in r.out:gmatch "%S+" do
      n = n + 1
      assert.is_true(tonumber(off) < 0.02, (names[n] or "?") .. ": " .. r.out)
    end
    assert.equal(#names, n, r.out)
  end)
end)
