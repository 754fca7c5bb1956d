-- Modules of the library are loaded when they are needed. One that could not be
-- loaded, as when memory was short, is loaded the next time.
local process = require "spec.support.process"
local seed = require "spec.support.seed"

-- One in so many is tried, drawn by the seed; all with TFD_LONG.
local SHARE = os.getenv "TFD_LONG" and 1 or 5

-- The names of modules that `require "tfdist"` alone does not load: each fails
-- once, in a process that then asks for everything twice more.
local CHILD = [[
local name, names = ...
require "tfdist"
local touch = function()
  local tf = require "tfdist"
  tf.tidy(function() end)
  assert(tf.add(1, 2):item() == 3 and tf.math.argmax { 1, 2 }:item() == 1)
  assert(tf.image.flip_left_right and tf.linalg.norm and tf.random.normal)
  assert(tf.nn.softmax and tf.math.segment_sum and tf.einsum)
  assert(tf.Variable(1):assign_add(1):item() == 2)
  local tape, y = tf.GradientTape(function()
    return tf.nn.compute_average_loss { 1, 2 }
  end)
  assert(tape and y:item() == 1.5 and tf.debugging.check_numerics)
  assert(tf.data.Dataset.range(4):batch(2):iter():get_next().shape[1] == 2)
  assert(tf.data.TextLineDataset and tf.data.experimental.CsvDataset)
  assert(tf.keras.layers.Dense(2)(tf.ones { 1, 2 }).shape[2] == 2)
  local model = tf.keras.Sequential { tf.keras.layers.Dense(1) }
  model:compile { optimizer = "sgd", loss = "mse", metrics = { "mae" } }
  model:fit(tf.ones { 2, 1 }, tf.ones { 2, 1 }, { verbose = 0 })
  assert(tf.keras.callbacks.CSVLogger and tf.keras.datasets.mnist)
  assert(tf.keras.utils and tf.keras.constraints and tf.keras.regularizers)
  assert(tf.keras.mixed_precision and tf.zeros_initializer)
  assert(tf.train.Checkpoint {} and tf.train.Example and tf.io.read_npz)
  assert(tf.summary.create_file_writer and tf.nest.flatten and tf.config)
  assert(tf.distribute.MirroredStrategy():scope(function() return 1 end) == 1)
  assert(tf.flags and tf.Module and tf.TensorSpec({ 1 }))
end
if name == "-" then
  local before = {}
  for key in pairs(package.loaded) do before[key] = true end
  touch()
  for key in pairs(package.loaded) do
    if key:find "^tfdist%." and not before[key] then print(key) end
  end
  return
end
local failed
package.preload[name] = function()
  package.preload[name], failed = nil, true
  error("not enough memory", 0)
end
-- Names one by one, as a program meets them after a failure.
for _ = 1, 3 do
  local ok, e = pcall(touch)
  if ok then break end
  failed = tostring(e)
end
local ok, e = pcall(touch)
print(failed and ok and "loaded" or tostring(failed) .. ": " .. tostring(e))
]]

describe("a module that failed to load #once", function()
  for _, host in ipairs(process.hosts) do
    it("is loaded when it is needed again: " .. host.name, function()
      local script = process.file(CHILD, ".lua")
      local r = process.run(("%s %s -"):format(host.path, script))
      local n = 0
      for name in r.out:gmatch "[^\n]+" do
        n = n + 1
        if (n + seed) % SHARE == 0 then
          local got = process.run(("%s %s %s"):format(host.path, script, name))
          assert.are.equal("loaded\n", got.out, name .. got.err)
        end
      end
      os.remove(script)
      assert.is_true(n > 60, n .. " modules: " .. r.err)
    end)
  end
end)

describe("what is read before any other name of tf is used #once", function()
  it("has the methods of tensors", function()
    local path = os.tmpname()
    local write = process.call(process.hosts[1].path, { "-e",
      ("require('tfdist').io.write_npy(%q, require('tfdist').ones { 2, 3 })")
        :format(path) })
    assert.equal(0, write.code, write.err)
    for _, host in ipairs(process.hosts) do
      local read = process.call(host.path, { "-e",
        ("local x = require('tfdist').io.read_npy(%q) "
          .. "print(#x.shape, x:item(5))"):format(path) })
      assert.matches("^2%s+1", read.out, 1, false, read.err)
    end
    os.remove(path)
  end)
end)
