--- Variables without a gradient, of which a program is told. #once
local process = require "spec.support.process"

local PROGRAM = [[
local tf = require "tfdist"
local strategy = tf.distribute.MirroredStrategy()
local a, b, c, optimizer = strategy:scope(function()
  return tf.Variable(1.0, { name = "a" }), tf.Variable(2.0, { name = "b" }),
    tf.Variable(3.0, { name = "c" }), tf.keras.optimizers.SGD(0.5)
end)
local function step(all)
  strategy:run(function()
    local tape, y = tf.GradientTape(function() return all and a + b + c or a * 1 end)
    optimizer:apply_gradients(tape:gradient(y, { a, b, c }), { a, b, c })
  end)
end
for _ = 1, 3 do step(false) end
step(true)
step(false)
tf.function_(step)(false)
print(("%g %g %g"):format(a:item(), b:item(), c:item()))]]

describe("variables without a gradient #once", function()
  it("stay as they are, and are named once", function()
    for _, host in ipairs(process.hosts) do
      local r = process.run(host.path .. " --cpu-devices=2 -e "
        .. process.quote(PROGRAM))
      assert.equal("tfdist: warning: optimizer:apply_gradients: Gradients do "
        .. "not exist for variables b, c; they stay as they are\n", r.err)
      -- Two replicas, each a gradient of 1: a falls by 1 in each of six steps.
      assert.equal("-5 1 2\n", r.out)
      assert.equal(0, r.code)
    end
  end)
end)
