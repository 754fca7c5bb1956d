--- What the transcripts of fit run: one step waits for a line from a pipe.
---
--- usage: tfdist spec/transcripts/fit.lua [PIPE]
--- A line y = 2 x + 1 from zeros; all numbers are known, only times are not.
local tf = require "tfdist"

local x = tf.reshape(tf.range(8, { dtype = "float32" }), { 8, 1 }) / 8
local model = tf.keras.Sequential { tf.keras.layers.Dense(1, {
  input_shape = { 1 }, kernel_initializer = "zeros" }) }
model:compile { optimizer = tf.keras.optimizers.SGD(0.1), loss = "mse" }

-- The bar is redrawn at most every 0.1 s, by every other step, with the values
-- of the step before: late steps draw it at 2, 4 and 6; then step 7 waits.
local function wait(_, step)
  if arg[1] == nil then return end
  if step < 6 then
    os.execute "sleep 0.11"
  elseif step == 6 then
    local pipe = assert(io.open(arg[1]))
    pipe:read "*l"
    pipe:close()
  end
end

model:fit(x, x * 2 + 1, { epochs = 2, batch_size = 1, shuffle = false,
  validation_data = { x, x * 2 + 1 },
  callbacks = { { on_train_batch_end = wait } } })
