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

  -- Rows of sums are a size, the way, the two times and how far they are apart.
  -- The costs are those of two processes' least and largest sums.
  it("hold the model of 1,024 workers against measurements", function()
    if not os.getenv "TFD_LONG" then
      pending "half a minute: make check-long"
      return
    end
    local r = process.run(process.build .. "/tfdist scripts/scale_model.lua "
      .. process.build, nil, 300)
    assert.equal(0, r.code, r.err)
    local SECONDS = { us = 1e-6, ms = 1e-3, s = 1 }
    local TIME = "([%d.]+) (%l?s)%s+"
    for _, transport in ipairs { "shm", "tcp" } do
      local text = r.out:match("(all_reduce over " .. transport .. " .-\n%s+1024 "
        .. "[^\n]*\n)")
      assert.is_truthy(text, r.out)
      for _, n in ipairs { 2, 4 } do
        local ratios = {}
        local rows = text:match("\n  " .. n .. " processes [^\n]*\n(.*)")
        for line in rows:gmatch "[^\n]+" do
          local _, _, _, _, ratio = line:match("^    %d+ %w+%s+%l+%s+" .. TIME
            .. TIME .. "([%d.]+)$")
          if ratio == nil then break end
          ratios[#ratios + 1] = ratio
        end
        assert.equal(7, #ratios, text)
        if n == 2 then
          assert.is_true(math.abs(ratios[1] - 1) < 0.05, text)
          assert.is_true(math.abs(ratios[7] - 1) < 0.05, text)
        end
      end
      local row = { text:match("\n%s+1024%s+" .. TIME .. TIME .. TIME .. "%l") }
      local last = 0
      for i = 1, 5, 2 do
        local seconds = tonumber(row[i]) * SECONDS[row[i + 1]]
        assert.is_true(seconds > last, text)
        last = seconds
      end
    end
  end)
end)
