-- The CUDA toolkit where there is none: scripts/packages cuda, with a pip that
-- makes the files that the packages have.
local files = require "spec.support.files"
local process = require "spec.support.process"

local PIP = [[#!/bin/sh
[ "$3" = install ] || exit 0
echo "$@" >>pip.log
[ ! -e no-network ] || exit 1
while [ "$1" != --target ]; do shift; done
make() { mkdir -p "$(dirname "$1")" && echo "${1##*/}" >"$1"; }
cd "$2" || { mkdir -p "$2" && cd "$2"; }
for file in cu13/bin/nvcc cu13/nvvm/bin/cicc cu13/include/cuda.h \
  cu13/include/nvrtc.h cu13/include/cublasLt.h cudnn/include/cudnn.h \
  nccl/include/nccl.h nccl/lib/libnccl.so.2; do
  make "nvidia/$file"
done
]]

describe("a toolkit from packages #once", function()
  local root

  local function sh(command)
    return process.run(("cd %s && export PATH=%s/bin:$PATH && %s"):format(root,
      root, command))
  end

  local function exists(path)
    return sh("test -e build/cuda-toolkit/" .. path).code == 0
  end

  before_each(function()
    root = files.place()
    process.run(("mkdir -p %s/bin %s/scripts && cp scripts/packages %s/scripts")
      :format(root, root, root))
    files.write(root .. "/bin/python3", PIP)
    sh "chmod +x bin/python3"
  end)
  after_each(function()
    os.execute("rm -rf " .. root)
  end)

  local INSTALL = "CUDA=/none scripts/packages cuda"

  it("is one folder, loaded once, which make finds", function()
    local r = sh(INSTALL)
    assert.equal(0, r.code, r.err)
    for _, path in ipairs { "bin/nvcc", "nvvm/bin/cicc", "include/cublasLt.h",
      "include/cudnn.h", "include/nccl.h", "lib/libnccl.so.2" } do
      assert.is_true(exists(path), path)
    end
    assert.is_false(exists "python")
    local log = files.read(root .. "/pip.log")
    assert.matches("nvidia%-cuda%-nvcc==%d", log)
    assert.equal(0, sh(INSTALL).code)
    assert.equal(log, files.read(root .. "/pip.log"))
    local here = process.run("pwd").out:match "[^\n]+"
    files.write(root .. "/show.mk", "BUILD = b\nshow:\n\t@echo $(NVCC) "
      .. "$(CUDA_HEADERS)\nparts:\ninclude " .. here
      .. "/src/backend/cuda/rules.mk\n")
    assert.equal("build/cuda-toolkit/bin/nvcc "
      .. "build/cuda-toolkit/include/cudnn.h\n",
      sh("make -s -f show.mk show").out)
  end)

  it("is not there when a part could not be loaded", function()
    files.write(root .. "/no-network", "")
    assert.not_equal(0, sh(INSTALL).code)
    assert.is_false(exists "")
    os.remove(root .. "/no-network")
    assert.equal(0, sh(INSTALL).code)
    assert.is_true(exists "bin/nvcc")
  end)

  it("is not loaded where there is one", function()
    assert.equal(0, sh(INSTALL .. " && mv build/cuda-toolkit have").code)
    files.write(root .. "/no-network", "")
    local r = sh "CUDA=have scripts/packages cuda"
    assert.equal(0, r.code, r.err)
    assert.is_false(exists "")
  end)

  it("is named by the table of what was built", function()
    local r = process.run("scripts/built " .. root)
    assert.matches("CUDA plug%-in +no +scripts/packages cuda", r.out)
    assert.matches("NCCL plug%-in +no +scripts/packages cuda", r.out)
  end)

  it("is named by the doctor", function()
    local r = process.run(("ln -s $(pwd)/build/tfdist %s/bin && %s/bin/tfdist "
      .. "doctor"):format(root, root))
    assert.matches("no plug%-in for CUDA +.*scripts/packages cuda", r.out)
  end)
end)
