-- usage: memory.lua STEPS: that many steps of a training; after the first tenth
-- what the device has reserved stays as it is, but for when tensors are
-- collected.
local tf = require "tfdist"

local steps = tonumber(arg[1])

local function reserved()
  return tf.config.experimental.get_memory_info("GPU:0").reserved
end

tf.device("/gpu:0", function()
  local w = tf.Variable(tf.ones { 64, 64 } / 64)
  local x = tf.ones { 32, 64 }
  local before
  for step = 1, steps do
    local tape, loss = tf.GradientTape(function()
      return tf.reduce_mean((tf.tanh(tf.matmul(x, w)) - 0.5) ^ 2)
    end)
    w:assign_sub(tape:gradient(loss, w) * 0.1)
    if step % 50 == 0 then loss:item() end
    if step == steps / 10 then
      collectgarbage()
      before = reserved()
    end
  end
  collectgarbage()
  print(before, reserved())
  assert(reserved() <= 1.25 * before, "memory has grown")
end)
