--- Training on 1, 2 and 4 devices side by side, on Fashion-MNIST.
---
--- usage: tfdist --cpu-devices=4 scripts/parity.lua [--steps 200]
---        [--short_steps 20] [--tolerance 1e-5] [--activation tanh]
--- 784-512-512-10, batches of 128: SGD 0.01 over all steps, every optimizer over
--- the short ones. Prints the largest relative difference of losses from those
--- of one device; the program fails when one is over the tolerance, when copies
--- of a variable differ, or when a repeated run gives other bits.
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local training = require "spec.parity.training"

local opt = tf.flags { steps = 200, short_steps = 20, tolerance = 1e-5,
  activation = "tanh" }

local data = assert(training.data(60000))
local counts = {}
for _, n in ipairs { 2, 4 } do
  if n <= raw.device_count "CPU" then counts[#counts + 1] = n end
end

local failed = false

local function compare(name, steps, optimizer)
  local function run(n)
    return training.run { data = data, n = n, steps = steps,
      hidden = { 512, 512 }, optimizer = optimizer,
      activation = opt.activation }
  end
  local alone = run(1)
  local line = ("%-18s %4d steps  loss %.4f -> %.4f"):format(name, steps,
    alone[1], alone[steps])
  for _, n in ipairs(counts) do
    local losses, bits = run(n)
    local d = training.difference(losses, alone)
    line = line .. ("  %d devices: %.1e"):format(n, d)
    if not (d <= opt.tolerance) then -- luacheck: ignore 581
      failed = true
      line = line .. " TOO MUCH"
    end
    local again, again_bits = run(n)
    if training.difference(again, losses) ~= 0 or again_bits ~= bits then
      failed = true
      line = line .. " REPEATED RUN DIFFERS"
    end
  end
  print(line)
end

compare("SGD 0.01", opt.steps, training.optimizers[1][2])
for _, entry in ipairs(training.optimizers) do
  compare(entry[1], opt.short_steps, entry[2])
end
os.exit(failed and 1 or 0)
