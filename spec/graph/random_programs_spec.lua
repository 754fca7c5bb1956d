-- Random tensor programs, traced against run line by line. TFD_PROGRAMS says
-- how many; `make check-long` runs 10,000 under AddressSanitizer, on the
-- processor: the stand-in of a GPU compiles two kernels a program.
local process = require "spec.support.process"
local programs = require "spec.support.tensor_programs"

local SEED = tonumber(os.getenv "TFD_PROGRAMS_SEED")
  or require "spec.support.seed"
local THOROUGH = os.getenv "TFD_LONG" and os.getenv "ASAN_OPTIONS"
  and not os.getenv "TFDIST_SPEC_TYPE"
local MANY = tonumber(os.getenv "TFD_PROGRAMS") or THOROUGH and 10000 or 120

describe("random tensor programs", function()
  it(("give the same bits traced, %d of them from seed %d"):format(MANY, SEED),
    function()
      local total = programs.run(MANY, SEED)
      assert.is_true(total.steps > MANY)
    end)

  -- Without fused groups NaN are the same too; small arrays go through row by
  -- row only when asked to.
  for name, switch in pairs { ["no ops fused"] = "TFDIST_FUSION=0",
    ["a few rows at a time"] = "TFDIST_FUSION=small",
    ["memory of its own for each value"] = "TFDIST_PLAN=0" } do
    it(("give the same bits with %s #once"):format(name), function()
      for _, host in ipairs(process.hosts) do
        local r = process.run(("%s %s "
          .. "spec/support/tensor_programs.lua 60 %d"):format(switch, host.path,
            SEED))
        assert.are.equal(0, r.code, r.out .. r.err)
      end
    end)
  end

  it("give the same bits traced, of a fixed seed", function()
    local total = programs.run(60, 7530)
    assert.is_true(total.steps > 60)
  end)
end)
