--- Losses beside PyTorch's: the short form of `make parity`, which compares
--- with TensorFlow what PyTorch has no default for.
local peer = require "spec.parity.peer"
local process = require "spec.support.process"
local tf = require "tfdist"

local PYTHON = "/usr/bin/python3"

describe("losses beside a peer's #once", function()
  it("are compared number by number", function()
    local function difference(ours, theirs)
      local d, where = peer.difference({ loss = ours }, { loss = theirs }, "")
      return d, where
    end
    assert.same({ 0, "" }, { difference({ 1, 2 }, { 1, 2 }) })
    assert.same({ 0.25, " loss 2" }, { difference({ 1, 2.5 }, { 1, 2 }) })
    local d, where = difference({ 0 / 0, 2.5 }, { 1, 2 })
    assert.is_true(d ~= d)
    assert.equal(" loss 1", where)
    assert.has_error(function() difference({ 1 }, { 1, 2 }) end,
      " loss 2 is not there on our side")
    assert.has_error(function() difference({ 1, 2 }, { 1 }) end,
      " loss 2 is there on our side only")
  end)

  it("agree for networks of the usual kinds", function()
    if process.run(PYTHON .. " -c 'import torch'").code ~= 0 then
      pending "needs PyTorch (apt-get install python3-torch)"
    end
    local images, missing = tf.keras.datasets.fashion_mnist.load_data()
    if images == nil then pending(missing) end
    local folder = process.run("mktemp -d").out:gsub("%s+$", "")
    local result = process.run(("%s --cpu-devices=2 scripts/parity/peer.lua %s "
      .. "%s scripts/parity/torch_peer.py --common --steps=5"):format(
      process.hosts[1].path, process.quote(folder), PYTHON))
    process.run("rm -r " .. process.quote(folder))
    assert.equal(0, result.code, result.out .. result.err)
    assert.is_truthy(result.out:find("16 comparisons, 0 over their bounds", 1,
      true), result.out)
  end)
end)
