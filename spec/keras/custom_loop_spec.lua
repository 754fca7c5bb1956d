-- The example of a training loop of one's own, run as a program. #once
local process = require "spec.support.process"

local DATA = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"

local function run(host, options)
  local r = process.run(host.path .. " --cpu-devices=2 examples/custom_loop.lua"
    .. " --epochs 1 --limit 3840 " .. options)
  assert.equal("", r.err)
  assert.equal(0, r.code)
  local loss, accuracy, test = r.out:match
    "^epoch 1  loss (%S+)  accuracy (%S+)  test accuracy (%S+)\n$"
  assert.is_truthy(test, r.out)
  return tonumber(loss), tonumber(accuracy), tonumber(test)
end

describe("examples/custom_loop.lua #once", function()
  local missing

  setup(function()
    local file = io.open(DATA, "rb")
    missing = file == nil
    if file then file:close() end
  end)

  for _, host in ipairs(process.hosts) do
    it("learns under " .. host.name, function()
      if missing then pending "needs dataset-fashion-mnist" end
      local loss, accuracy, test = run(host, "--clip 1")
      assert.is_true(loss < 2 and accuracy > 0.4 and test > 0.5)
    end)
  end

  it("adds up halves of a batch to what the whole gives", function()
    if missing then pending "needs dataset-fashion-mnist" end
    local loss, accuracy, test = run(process.hosts[1], "")
    local loss_2, accuracy_2, test_2 = run(process.hosts[1],
      "--batch_per_replica 32 --accumulate 2")
    -- The same examples and the same weights at each step, but for rounding.
    assert.near(loss, loss_2, 2e-3)
    assert.near(accuracy, accuracy_2, 2e-3)
    assert.near(test, test_2, 5e-3)
  end)
end)
