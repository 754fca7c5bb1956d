-- The network of examples/fashion_mnist.lua trains alike wherever its replicas
-- are: the same bits on devices of another kind as on the processor's, but for
-- GPUs, whose libraries add up in an order of their own.
local expect = require "spec.support.expect"
local files = require "spec.support.files"
local on_device = require "spec.support.on_device"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local IMAGES, BATCH, EPOCHS = 512, 64, 2

local missing
if on_device.type == "CPU" then
  missing = "needs TFDIST_SPEC_TYPE, devices to compare with"
elseif raw.device_count "CPU" < 2 then
  missing = "needs TFDIST_CPU_DEVICES=2"
elseif not tf.keras.datasets.fashion_mnist.load_data() then
  missing = "needs dataset-fashion-mnist"
end

-- The function of the example that makes and compiles it.
local function network()
  local text = files.read "examples/fashion_mnist.lua"
  local made = assert(text:match "\n(local layers = .-\nend\n)\nlocal model = ")
  local compile = rawget(_G, "loadstring") or load
  return assert(compile('local tf = require "tfdist"\n' .. made
    .. "return make_model()"))()
end

-- Losses of all steps, the history, the weights.
local function train(devices)
  local x, y = tf.keras.datasets.fashion_mnist.load_data()
  tf.random.set_seed(7)
  local strategy = tf.distribute.MirroredStrategy { devices = devices }
  local data = tf.data.Dataset.from_tensor_slices { x, y }
    :take(IMAGES):shuffle(IMAGES, { seed = 7 }):batch(BATCH)
    :map(function(image, label)
      return image:cast("float32"):expand_dims(-1) / 255, label
    end):prefetch()
  local model = strategy:scope(network)
  local steps = {}
  local history = model:fit(data, { epochs = EPOCHS, verbose = 0, callbacks = {
    { on_train_batch_end = function(_, _, logs)
        steps[#steps + 1] = logs.loss
      end },
  } }).history
  local weights = {}
  for i, v in ipairs(model.trainable_variables) do
    weights[i] = v.values[2]:toflat()
  end
  return steps, history, weights
end

describe("the demo's network on two devices of another kind", function()
  (missing and pending or it)("has the losses that it has on the processor's"
    .. (missing and ": " .. missing or ""), function()
    local steps, history, weights = train { on_device.at(0), on_device.at(1) }
    local steps1, history1, weights1 = train { "/cpu:0", "/cpu:1" }
    local same = on_device.type == "GPU" and function(want, got)
      expect.near(want, got, 1e-5)
    end or assert.same
    assert.equal(IMAGES / BATCH * EPOCHS, #steps)
    same(steps1, steps)
    for name, list in pairs(history1) do same(list, history[name]) end
    same(weights1, weights)
    assert.is_true(history.loss[EPOCHS] < 0.9 * history.loss[1])
  end)
end)
