-- GPUs that are split into logical devices, on the stand-ins.
local process = require "spec.support.process"
local standins = require "spec.support.standins"

-- Says what it got of "GPU:0".
local SPLIT = [[
local tf = require "tfdist"
local C = tf.config
C.set_logical_device_configuration("GPU:0", {
  C.LogicalDeviceConfiguration { memory_limit = 8 },
  C.LogicalDeviceConfiguration() })
]]

describe("logical GPUs #once", function()
  if not standins.exists(standins.FOLDER .. "/libcuda.so.1")
     or not standins.exists(standins.CUDA) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  it("are devices of one GPU, beside those that are whole", function()
    local r = standins.run(SPLIT .. [[
      print(#C.get_logical_device_configuration "GPU:0",
        C.get_logical_device_configuration "GPU:1")
      for _, d in ipairs(C.list_logical_devices "GPU") do print(d.name) end
      local s = tf.distribute.MirroredStrategy {
        devices = { "/gpu:0", "/gpu:1" } }
      print(s)
      local sum = s:run(function()
        local id = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.distribute.get_replica_context():all_reduce("SUM",
          tf.fill({ 3 }, id + 1))
      end)
      print(s:experimental_local_results(sum)[2]:item(1))
      print(tf.distribute.MirroredStrategy { devices = { "/gpu:0", "/gpu:2" } })
    ]])
    assert.equal("", r.err)
    assert.equal("2\tnil\n/device:GPU:0\n/device:GPU:1\n/device:GPU:2\n"
      .. "MirroredStrategy{ /gpu:0, /gpu:1 }  2 replicas in sync, "
      .. "reduction: copies through the host\n3.0\n"
      .. "MirroredStrategy{ /gpu:0, /gpu:2 }  2 replicas in sync, "
      .. "reduction: NCCL\n", r.out)
  end)

  it("take no more than their limit, and go on after that", function()
    local r = standins.run(SPLIT .. [[
      local function fill(place, megabytes)
        return pcall(tf.device, place, function()
          return tf.fill({ megabytes, 256, 1024 }, 2):sum():item()
        end)
      end
      local ok, e = fill("/gpu:0", 16)
      print(ok, e.kind)
      print(fill("/gpu:1", 16))
      for _ = 1, 8 do assert(fill("/gpu:0", 3)) end -- collected and reused
      print(fill("/gpu:0", 3))
    ]])
    assert.equal("", r.err)
    assert.equal(("false\tResourceExhausted\ntrue\t%.1f\ntrue\t%.1f\n"):format(
      16 * 2 ^ 19, 3 * 2 ^ 19), r.out)
  end)

  it("train a network to the CPU's losses, four of one GPU", function()
    local want = standins.script(standins.TRAINING:format '"/cpu:0"', "")
    local got = standins.run(standins.TRAINING:format
      '"/gpu:0", "/gpu:1", "/gpu:2", "/gpu:3"',
      "TFD_STANDIN_DEVICES=1 TFDIST_GPU_DEVICES=4")
    assert.equal(0, got.code, got.err)
    assert.equal("", standins.apart(want.out, got.out))
  end)

  it("are refused where there is no such GPU", function()
    local r = standins.run [[
      local tf = require "tfdist"
      local _, e = pcall(tf.config.set_logical_device_configuration, "GPU:2", 2)
      print(e.kind, e.message)
    ]]
    assert.equal("ValueError\tconfig.set_logical_device_configuration: no "
      .. "physical device \"GPU:2\"; there is /physical_device:CPU:0, /physical_device:GPU:0, "
      .. "/physical_device:GPU:1\n", r.out)
  end)

  it("stay as they were when others are refused", function()
    local r = standins.run [[
      local tf = require "tfdist"
      local set = tf.config.set_logical_device_configuration
      set("GPU:0", 2)
      set("GPU:1", { { memory_limit = 8 }, {} })
      for _, n in ipairs { 63, 65 } do print((pcall(set, "GPU:1", n))) end
      -- 2 ^ 44 MiB are 2 ^ 64 bytes.
      for _, limit in ipairs { 2 ^ 43, 2 ^ 44, 2 ^ 44 + 8 } do
        local _, e = pcall(set, "GPU:1", { { memory_limit = limit } })
        print(e.kind, e.message)
      end
      print(#tf.config.list_logical_devices "GPU")
      local _, e = pcall(tf.device, "/gpu:2", function()
        return tf.zeros { 9, 256, 1024 }
      end)
      print(e.kind)
    ]]
    local refused = "ValueError\tconfig.LogicalDeviceConfiguration: "
      .. "memory_limit must be in 1..8796093022207, got %d\n"
    assert.equal("false\nfalse\n" .. refused:format(2 ^ 43)
      .. refused:format(2 ^ 44) .. refused:format(2 ^ 44 + 8) .. "4\nResourceExhausted\n", r.out)
  end)

  it("are no part of sums by NCCL, which devices says", function()
    local function said(environment)
      local r = process.run(("TFDIST_PLUGINS=%s:%s TFDIST_CUDA_STANDIN=%s %s %s "
        .. "devices"):format(standins.CUDA, standins.NCCL, standins.FOLDER,
        environment, standins.HOST))
      assert.equal(0, r.code, r.err)
      return r.out:match "sums between GPUs: ([^\n]*)"
    end
    assert.equal("NCCL", said "TFD_STANDIN_DEVICES=2")
    assert.equal("through the host, for they are parts of one GPU",
      said "TFD_STANDIN_DEVICES=1 TFDIST_GPU_DEVICES=2")
    assert.equal("NCCL; through the host where some are parts of one GPU",
      said "TFD_STANDIN_DEVICES=2 TFDIST_GPU_DEVICES=2")
  end)

  it("that have no memory left leave a variable's copies alike", function()
    local r = standins.run [[
      local tf = require "tfdist"
      tf.config.set_logical_device_configuration("GPU:0",
        { { memory_limit = 8 }, { memory_limit = 1 } })
      local s = tf.distribute.MirroredStrategy { "/gpu:0", "/gpu:1" }
      local N = 100 * 1024 -- two of these fit the second one, and no more
      local v = s:scope(function() return tf.Variable(tf.zeros { N }) end)
      local ones = tf.device("/cpu:0", function() return tf.ones { N } end)
      local full = tf.device("/gpu:1", function() return tf.zeros { N } end)
      local function show(ok, e)
        print(ok or e.kind)
        for _, copy in ipairs(s:experimental_local_results(v)) do
          print(copy:read_value():toflat()[1])
        end
      end
      show(pcall(v.assign, v, ones))
      show(pcall(v.assign_add, v, ones))
      full = nil
      collectgarbage() -- what was read, too
      show(pcall(v.assign_sub, v, ones))
    ]]
    assert.equal(("ResourceExhausted\n%.1f\n%.1f\n"):rep(2):format(0, 0, 0, 0)
      .. "true\n-1.0\n-1.0\n", r.out, r.err)
  end)
end)
