-- What is run on machines with GPUs, on the stand-ins.
local files = require "spec.support.files"
local process = require "spec.support.process"
local standins = require "spec.support.standins"

describe("scripts/gpu_check #once", function()
  it("says how it is called", function()
    local r = process.run "scripts/gpu_check"
    assert.equal(64, r.code)
    assert.matches("usage: scripts/gpu_check PART", r.out, 1, true)
  end)

  it("says why where there is no GPU", function()
    local r = process.run(("env TFDIST_CUDA_LIBRARIES=/none %s")
      :format "scripts/gpu_check check --short")
    if r.code == 0 then
      pending "there is a GPU here"
      return
    end
    assert.equal(3, r.code, r.out .. r.err)
    assert.matches("no GPU", r.out, 1, true)
  end)

  local PROGRAMS = { "backend_cuda_copy", "backend_cuda_array" }
  local made = standins.exists(standins.FOLDER .. "/libcuda.so.1")
  for _, program in ipairs(PROGRAMS) do
    made = made and standins.exists("build/spec/" .. program)
  end;
  -- What a bundle has, by links.
  (made and it or pending)("runs from a bundle, wherever one stands", function()
    local place = files.place()
    local lines = { "set -e", ("mkdir -p %s/bin %s/lib/gpu_check")
      :format(place, place), "here=$(pwd)" }
    local function link(from, to)
      lines[#lines + 1] = ("ln -s \"$here\"/%s %s/%s"):format(from, place, to)
    end
    link("scripts/gpu_check", "gpu_check")
    link(standins.HOST, "bin/tfdist")
    link("build/plugins", "lib/tfdist")
    link("scripts/gpu/*.lua", "lib/gpu_check")
    for _, program in ipairs(PROGRAMS) do
      link("build/spec/" .. program, "lib/gpu_check/" .. program)
    end
    lines[#lines + 1] = ("cd / && %s/gpu_check check --short "
      .. "--standins=\"$here\"/%s"):format(place, standins.FOLDER)
    local r = process.run(table.concat(lines, "\n"), nil, 300)
    os.execute("rm -rf " .. place)
    assert.equal(0, r.code, r.out .. r.err)
    assert.matches("/gpu:0   stand-in (no GPU)", r.out, 1, true)
    assert.matches("ok    gradients", r.out, 1, true)
    local _, oks = r.out:gsub("\nok  ", "")
    assert.equal(3, oks, r.out)
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
    assert.matches('"device": "stand-in (no GPU)"', r.out, 1, true)
  end)
end)
