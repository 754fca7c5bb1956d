-- Figures of one GPU, one line of JSON each: ops in a row (microseconds each),
-- products (TFLOP/s), elementwise ops and sums (GB/s of memory moved).
local tf = require "tfdist"

local small = arg[1] == "--standins"

local function seconds(fn)
  local best = math.huge
  fn()
  for _ = 1, small and 1 or 5 do
    tf.sync_devices()
    local begin = tf.timestamp():item()
    fn()
    tf.sync_devices()
    best = math.min(best, tf.timestamp():item() - begin)
  end
  return best
end

local function say(name, unit, value)
  print(('{"name": "%s", "%s": %.4g%s}'):format(name, unit, value,
    small and ', "device": "stand-in (no GPU)"' or ""))
end

tf.device("/gpu:0", function()
  local rounds = small and 2 or 1000
  local x = tf.ones { 8 }
  say("ops in a row", "us", 1e6 / rounds * seconds(function()
    local y = x
    for _ = 1, rounds do y = y + x end
  end))
  for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
    local n, times = small and 16 or 4096, small and 1 or 20
    local a = tf.cast(tf.ones { n, n }, dtype)
    say("matmul " .. dtype, "tflops", 2e-12 * n ^ 3 * times / seconds(function()
      for _ = 1, times do tf.matmul(a, a) end
    end))
  end
  local n, times = small and 1000 or 2 ^ 26, small and 1 or 20
  local a = tf.ones { n }
  say("add", "gbs", 12e-9 * n * times / seconds(function()
    for _ = 1, times do tf.add(a, a) end
  end))
  say("reduce_sum", "gbs", 4e-9 * n * times / seconds(function()
    for _ = 1, times do tf.reduce_sum(a) end
  end))
end)
