-- Training gives the same numbers on any number of devices: the short form;
-- scripts/parity.lua is the long one.
local raw = require "tfdist.core.raw"
local training = require "spec.parity.training"

local STEPS, HIDDEN = 20, { 32, 16 }
local devices = raw.device_count "CPU"

local data

local function run(n, optimizer)
  return training.run { data = data, n = n, steps = STEPS, hidden = HIDDEN,
    optimizer = optimizer }
end

describe("training parity", function()
  local missing

  setup(function()
    local message
    data, message = training.data(STEPS * 128)
    missing = data == nil and message
  end)
  teardown(function() data = nil end)

  for _, entry in ipairs(training.optimizers) do
    local name, optimizer = entry[1], entry[2]
    it(name .. " has the same losses on 1, 2 and 4 devices", function()
      if missing then pending(missing) end
      local alone = run(1, optimizer)
      assert.is_true(alone[STEPS] < alone[1], "the loss does not fall")
      for _, n in ipairs { 2, 4 } do
        if n <= devices then
          -- Float32 sums in another order: 1e-7 at first, which 20 steps
          -- hardly amplify.
          local d = training.difference(run(n, optimizer), alone)
          assert.is_true(d <= 1e-5, ("%d devices: %g"):format(n, d))
        end
      end
    end)
  end

  it("gives the same bits when it is repeated", function()
    if missing then pending(missing) end
    local most = devices >= 4 and 4 or devices
    local first, first_bits = run(most, training.optimizers[4][2])
    local again, again_bits = run(most, training.optimizers[4][2])
    assert.same(first, again)
    assert.is_true(first_bits == again_bits)
  end)
end)
