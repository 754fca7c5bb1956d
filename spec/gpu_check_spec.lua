-- What is run on machines with GPUs, on the stand-ins.
local process = require "spec.support.process"
local standins = require "spec.support.standins"

describe("scripts/gpu_check #once", function()
  it("says how it is called", function()
    local r = process.run "scripts/gpu_check"
    assert.equal(64, r.code)
    assert.matches("usage: scripts/gpu_check PART", r.out, 1, true)
  end)

  local long = os.getenv "TFD_LONG"
    and standins.exists(standins.FOLDER .. "/libnccl.so.2")
    and standins.exists "build/spec/comm_nccl";
  (long and it or pending)("finds nothing wrong with stand-ins", function()
    local r = process.run("scripts/gpu_check check --standins", nil, 900)
    assert.equal(0, r.code, r.out .. r.err)
    assert.is_nil(r.out:match "FAIL", r.out)
    assert.matches("ok    training on 4 parts of a GPU", r.out, 1, true)
    r = process.run("scripts/gpu_check bench --standins", nil, 300)
    assert.equal(0, r.code, r.out .. r.err)
    assert.matches('"matmul bfloat16", "tflops": %d', r.out)
  end)
end)
