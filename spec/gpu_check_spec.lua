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
    link("scripts/gpu/*", "lib/gpu_check")
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

  local RANKS = "build/spec/gpu_ranks"
  local nccl = standins.exists(standins.FOLDER .. "/libnccl.so.2");
  (nccl and standins.exists(RANKS) and it or pending)(
    "says whether NCCL takes two ranks on one GPU", function()
      local function said(what)
        local r = process.run(("env TFDIST_CUDA_STANDIN=%s %s %s"):format(
          standins.FOLDER, RANKS, what))
        assert.equal(0, r.code, r.err)
        return r.out
      end
      assert.matches("^said: NCCL takes two ranks on one GPU: 20 right sums",
        said "")
      assert.matches("^said: NCCL refuses two ranks on one GPU: .*Duplicate GPU",
        said "same")
    end)

  local long = os.getenv "TFD_LONG"
    and standins.exists(standins.FOLDER .. "/libnccl.so.2")
    and standins.exists "build/spec/comm_nccl";
  (long and it or pending)("finds nothing wrong with stand-ins", function()
    local r = process.run("scripts/gpu_check check --standins", nil, 900)
    assert.equal(0, r.code, r.out .. r.err)
    assert.is_nil(r.out:match "FAIL", r.out)
    assert.matches("ok    training on 4 parts of a GPU", r.out, 1, true)
    assert.matches("ok    two processes on one GPU", r.out, 1, true)
    assert.matches("\n      NCCL takes two ranks on one GPU", r.out, 1, true)
  end)

  long = long and standins.exists "build/spec/gpu_raw";
  (long and it or pending)("gives figures of each part on stand-ins", function()
    local r = process.run("scripts/gpu_check bench --standins", nil, 300)
    assert.equal(0, r.code, r.out .. r.err)
    local lines = {}
    for line in r.out:gmatch '{"name": [^\n]+}\n' do
      local name = line:match '"name": "([^"]+)"'
      local value = line:match '"ratio": (%d[%d.e+-]*)'
        or line:match '"of_copy": (%d[%d.e+-]*)'
        or line:match '"ms": (%d[%d.e+-]*)'
      lines[name] = (lines[name] or 0) + (value and 1 or 0)
      assert.equal(name ~= "PyTorch", line:find "stand%-in" ~= nil, line)
    end
    local steps = { "mlp", "cnn", "lstm", "resnet-20", "resnet-50", "gpt-2" }
    local want = { ["ops in a row"] = 1, add = 1, relu = 1, reduce_sum = 1,
      ["traced step as a graph"] = 1, PyTorch = 0 }
    for _, name in ipairs(steps) do want["step " .. name] = 4 end
    for _, dtype in ipairs { "float32", "tf32", "bfloat16", "float16" } do
      want["matmul " .. dtype] = 1
    end
    for _, dtype in ipairs { "float32", "bfloat16" } do
      want["conv " .. dtype .. " 4x4 2 to 2"] = 1
    end
    assert.same(want, lines)
  end)
end)
