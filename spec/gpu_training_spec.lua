-- Training on GPUs, on the stand-ins.
local standins = require "spec.support.standins"

-- Batches are made on one GPU and used on the other, many in each call.
local JOINED = [[
local tf = require "tfdist"
local L = tf.keras.layers
tf.device("/gpu:0", function()
  tf.random.set_seed(5)
  local x = tf.random.normal { 46, 6 }
  local y = tf.random.uniform({ 46 }, { maxval = 3, dtype = "int32" })
  local data = tf.data.Dataset.from_tensor_slices({ x, y }):batch(4)
    :map(function(a, b) return a + tf.random.normal(a.shape), b end)
  local model = tf.distribute.OneDeviceStrategy("/gpu:1"):scope(function()
    local m = tf.keras.Sequential { L.Dense(8), L.Dense(3) }
    m:compile { optimizer = "adam", steps_per_execution = 50,
      loss = tf.keras.losses.SparseCategoricalCrossentropy {
        from_logits = true } }
    return m
  end)
  local losses = model:fit(data, { epochs = 4, verbose = 0 }).history.loss
  for i = 1, 4 do print(("%.9g"):format(losses[i])) end
end)
]]

describe("training on GPUs #once", function()
  if not standins.exists(standins.FOLDER .. "/libcudnn.so.9")
    or not standins.exists(standins.CUDA) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  it("waits for all of a call that is started as several graphs", function()
    local one_by_one = standins.run(JOINED, "TFDIST_CUDA_GRAPHS=0")
    assert.equal(0, one_by_one.code, one_by_one.err)
    assert.equal(one_by_one.out, standins.run(JOINED).out)
  end)

  it("tells of the first value that is refused, and of none behind it",
    function()
      local r = standins.run [[
        local tf = require "tfdist"
        tf.device("/gpu:0", function()
          local x = tf.constant { 1, 2, 3 }
          for i = 5, 6 do
            local _, e = pcall(function()
              local first, second = tf.gather(x, { i }), tf.gather(x, { 9 })
              second:item()
              first:item()
            end)
            print(e.message)
            print(pcall(tf.sync_devices))
          end
        end)
      ]]
      assert.equal("", r.err)
      assert.equal("gather: indices[0] = 5 is outside [0, 3)\ntrue\n"
        .. "gather: indices[0] = 6 is outside [0, 3)\ntrue\n", r.out)
    end)

  it("runs any number of ops with memory of their own in one call", function()
    for _, graphs in ipairs { "", "TFDIST_CUDA_GRAPHS=0" } do
      local r = standins.run([[
        local tf = require "tfdist"
        tf.device("/gpu:0", function()
          local f = tf.function_(function(x)
            for i = 1, 30 do x = x + tf.gather_nd(x, { { 1 }, { 0 } }) end
            return x
          end)
          for i = 1, 4 do print(f(tf.constant { 1, 2 })[0]:item()) end
        end)
      ]], graphs)
      assert.equal("", r.err)
      assert.equal(("%.1f\n"):format(3 * 2 ^ 29):rep(4), r.out)
    end
  end)
end)
