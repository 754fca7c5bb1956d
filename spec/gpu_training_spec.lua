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

-- Losses of three epochs, the scale of the loss and the steps that counted.
local MIXED = [[
local tf = require "tfdist"
local K = tf.keras
local L, P = K.layers, K.mixed_precision
local function train(place, policy)
  return tf.device(place, function()
    P.set_global_policy(policy)
    tf.random.set_seed(3)
    local m = K.Sequential { L.Conv2D(4, 3, { activation = "relu",
      input_shape = { 6, 6, 1 } }), L.BatchNormalization(), L.Flatten(),
      L.Dense(16, { activation = "tanh" }),
      L.Dense(10, { dtype = "float32" }) }
    local optimizer = K.optimizers.Adam(0.01)
    if policy == "mixed_float16" then
      optimizer = P.LossScaleOptimizer(optimizer, { initial_scale = 2 ^ 22,
        dynamic_growth_steps = 8 })
    end
    m:compile { optimizer = optimizer, loss =
      K.losses.SparseCategoricalCrossentropy { from_logits = true } }
    local y = {}
    for i = 1, 64 do y[i] = (i * 7) % 10 end
    local losses = m:fit(tf.random.normal { 64, 6, 6, 1 },
      tf.constant(y, "int32"), { batch_size = 16, epochs = 3, verbose = 0,
        shuffle = false }).history.loss
    local scale = policy == "mixed_float16" and optimizer.loss_scale:item()
    local at = m.trainable_variables[1]:read_value().device
    assert(at:find(place:match "%a+":upper()), at)
    return losses, ("%g %g"):format(scale or 1, optimizer.iterations:item()),
      m:predict(tf.ones { 1, 6, 6, 1 }, { verbose = 0 }):toflat()
  end)
end
-- Sums in another order round to neighbours in the half type: two units of its
-- last place.
for policy, bound in pairs { mixed_float16 = 2 ^ -10,
  mixed_bfloat16 = 2 ^ -7 } do
  local want, steps, last = train("/cpu:0", policy)
  local got, gpu_steps, gpu_last = train("/gpu:0", policy)
  assert(steps == gpu_steps, steps .. " on the CPU, " .. gpu_steps)
  print(steps)
  for i = 1, 3 do
    assert(math.abs(got[i] - want[i]) <= bound * want[i], got[i] .. policy)
  end
  for i = 1, #last do
    assert(math.abs(last[i] - gpu_last[i]) <= bound, gpu_last[i] .. policy)
  end
end
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

  it("with mixed policies has the processor's losses, scales and steps",
    function()
      local r = standins.run(MIXED)
      assert.equal("", r.err)
      local lines = {}
      for line in r.out:gmatch "[^\n]+" do lines[line] = true end
      -- Six of twelve steps overflow float16, and halve the scale.
      assert.same({ ["65536 6"] = true, ["1 12"] = true }, lines)
    end)
end)
