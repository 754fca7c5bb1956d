--- Losses beside PyTorch's: the short form of `make parity`, which compares
--- with TensorFlow what PyTorch has no default for.
local process = require "spec.support.process"

local PYTHON = "/usr/bin/python3"

describe("losses beside a peer's #once", function()
  it("agree for networks of the usual kinds", function()
    if process.run(PYTHON .. " -c 'import torch'").code ~= 0 then
      pending "needs PyTorch (apt-get install python3-torch)"
    end
    local folder = process.run("mktemp -d").out:gsub("%s+$", "")
    local result = process.run(("%s --cpu-devices=2 scripts/parity/peer.lua %s "
      .. "%s scripts/parity/torch_peer.py --common --steps=5"):format(
      process.hosts[1].path, process.quote(folder), PYTHON), nil, 240)
    process.run("rm -r " .. process.quote(folder))
    if result.err:find("apt-get install", 1, true) then pending(result.err) end
    assert.equal(0, result.code, result.out .. result.err)
    assert.is_truthy(result.out:find("16 comparisons, 0 over their bounds", 1,
      true), result.out)
  end)
end)
