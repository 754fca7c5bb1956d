--- Devices of a plug-in, seen from Lua: tfdist runs scripts with the slow back
--- end (spec/support/slow), whose memory the host cannot see. #once
local process = require "spec.support.process"

local PLUGIN = process.build .. "/spec/slow/tfdist_slow.so"

local function run(script, environment)
  local path = process.file(script, ".lua")
  local result = process.run(("TFDIST_PLUGINS=%s %s %s/tfdist %s"):format(PLUGIN,
    environment or "", process.build, path))
  os.remove(path)
  return result
end

describe("ops without a kernel on the device #once", function()
  local SCRIPT = [[
    local tf = require "tfdist"
    tf.device("SLOW:1", function()
      local a = tf.constant { 1, 2, 3 }
      local v = tf.Variable(a)
      local sum = a + v
      v:assign_add(sum + a)
      print(sum:totable()[2], v:totable()[3])
      print(sum.device:match "SLOW:%d", v.device:match "SLOW:%d")
    end)
  ]]

  it("run on the processor, with one notice each", function()
    local r = run(SCRIPT, "TFDIST_SLOW_WITHOUT=add")
    assert.equal(0, r.code, r.err)
    assert.equal("4.0\t12.0\nSLOW:1\tSLOW:1\n", r.out)
    local _, notices = r.err:gsub("add has no kernel for /slow:1: it runs on "
      .. "/cpu:0, with copies there and back\n", "")
    assert.equal(1, notices, r.err)
  end)

  it("fail when placement is not soft", function()
    local r = run([[
      local tf = require "tfdist"
      assert(tf.config.get_soft_device_placement() == true)
      tf.config.set_soft_device_placement(false)
      assert(tf.config.get_soft_device_placement() == false)
      local ok, e = pcall(tf.device, "SLOW:0", function()
        return tf.add(1, 2)
      end)
      print(ok, e.kind, e.message)
    ]], "TFDIST_SLOW_WITHOUT=add")
    assert.equal("false\tNotImplementedError\tadd: there is no kernel for "
      .. "/slow:0\n", r.out)
    assert.equal("", r.err)
  end)

  it("have the processor's gradients", function()
    local r = run([[
      local tf = require "tfdist"
      local function gradient()
        local w = tf.Variable { { 1, 2 }, { 3, 4 } }
        local x = tf.constant { { 1, -1 } }
        local tape, loss = tf.GradientTape(function()
          return tf.reduce_sum(tf.square(tf.matmul(x, w)))
        end)
        return tape:gradient(loss, w):totable()
      end
      local g = tf.device("SLOW:0", gradient)
      print(g[1][1], g[1][2], g[2][1], g[2][2])
    ]], "TFDIST_SLOW_WITHOUT=matmul,square")
    -- x w = { -2, -2 }; the gradient is 2 x' (x w)
    assert.equal("-4.0\t-4.0\t4.0\t4.0\n", r.out, r.err)
  end)
end)

describe("devices of a plug-in #once", function()
  it("are listed behind the processor's", function()
    local r = run [[
      local tf = require "tfdist"
      for _, d in ipairs(tf.config.list_physical_devices()) do print(d) end
      print(#tf.config.list_logical_devices "SLOW")
    ]]
    assert.equal("CPU /physical_device:CPU:0\nSLOW /physical_device:SLOW:0\n"
      .. "SLOW /physical_device:SLOW:1\nSLOW /physical_device:SLOW:2\n"
      .. "SLOW /physical_device:SLOW:3\n4\n", r.out)
  end)

  it("are told of by devices and doctor, with the reason when they cannot be "
    .. "used", function()
    local named = "TFDIST_PLUGINS=" .. PLUGIN .. " "
    local host = process.build .. "/tfdist "
    local r = process.run(named .. host .. "devices")
    assert.matches("/slow:3  slow device, 4.0 GiB\n", r.out, 1, true)
    local refusing = "TFDIST_SLOW_REFUSE='no such card' " .. named .. host
    assert.matches("slow: no such card\n",
      process.run(refusing .. "devices").out, 1, true)
    assert.matches("warn  back ends that cannot be used: slow (",
      process.run(refusing .. "doctor").out, 1, true)
  end)

  it("are not taken from the current directory by a host of PATH", function()
    local r = process.run(([[
      d=$(mktemp -d) && host=$PWD/%s && cd "$d" || exit 1
      mkdir plugins tfdist && : >plugins/tfdist_planted.so
      : >tfdist/tfdist_sown.so && : >tfdist_lying.so
      PATH=$host:$PATH tfdist devices
      rm -r "$d"]]):format(process.build))
    assert.equal(0, r.code, r.err)
    assert.matches("/cpu:0", r.out, 1, true)
    for _, name in ipairs { "planted", "sown", "lying" } do
      assert.is_nil(r.out:find(name, 1, true), r.out)
    end
  end)

  it("train a network to the processor's losses", function()
    local r = run([[
      local tf = require "tfdist"
      local function losses(devices)
        tf.random.set_seed(7)
        local strategy = tf.distribute.MirroredStrategy(devices)
        local model = strategy:scope(function()
          local m = tf.keras.Sequential {
            tf.keras.layers.Input { 8, 8, 1 },
            tf.keras.layers.Conv2D(4, 3, { activation = "relu" }),
            tf.keras.layers.MaxPooling2D(2),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(16, { activation = "relu" }),
            tf.keras.layers.Dropout(0.2),
            tf.keras.layers.Dense(10),
          }
          m:compile {
            optimizer = tf.keras.optimizers.Adam(0.01),
            loss = tf.keras.losses.SparseCategoricalCrossentropy {
              from_logits = true },
            metrics = { "accuracy" },
          }
          return m
        end)
        local x = tf.random.normal({ 96, 8, 8, 1 }, { seed = 3 })
        local y = tf.cast(tf.range(96) % 10, "int32")
        local h = model:fit(x, y, { epochs = 3, batch_size = 32, verbose = 0 })
        return table.concat(h.history.loss, " ") .. " "
          .. table.concat(h.history.accuracy, " ")
      end
      local slow = losses { "SLOW:0", "SLOW:1" }
      local cpu = losses { "CPU:0", "CPU:1" }
      print(slow == cpu, slow, cpu)
    ]], "TFDIST_CPU_DEVICES=2")
    assert.equal(0, r.code, r.err)
    assert.matches("^true\t", r.out)
  end)
end)
