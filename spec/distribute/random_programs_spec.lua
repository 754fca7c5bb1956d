-- Whatever a program does, strategies and contexts are as before (F13, F15,
-- F16 of the fault list).
local R = require "spec.support.replicas"
local programs = require "spec.support.random_programs"

describe("random programs of strategies", function()
  R.leaks(before_each, after_each)

  for block = 0, 2 do
    it(("leave everything as it was, seeds from %d"):format(block * 100 + 1),
      function()
        local total = programs.run(100, block * 100)
        assert.is_true(total.steps > 300)
        assert.is_true(total.failed > 10)
      end)
  end
end)
