-- Checkpoints that are written on one kind of device and read on another, on
-- the stand-ins.
local files = require "spec.support.files"
local standins = require "spec.support.standins"

-- Trains at each place, saves, and restores at each other one, before and after
-- the variables are made; says what does not have the same bits.
local MOVES = [[
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local D, L, O = tf.distribute, tf.keras.layers, tf.keras.optimizers
local PLACES = {
  { D.OneDeviceStrategy "/cpu:0", "CPU" },
  { D.OneDeviceStrategy "/gpu:1", "GPU" },
  { D.MirroredStrategy { devices = { "/gpu:0", "/gpu:1" } }, "GPU" },
}

local function make(strategy, training)
  return strategy:scope(function()
    local m = tf.keras.Sequential { L.Dense(7, { activation = "relu" }),
      L.BatchNormalization(), L.Dense(3, { dtype = "mixed_bfloat16" }) }
    m:compile { loss = "mse", optimizer =
      tf.keras.mixed_precision.LossScaleOptimizer(O.AdamW {
        learning_rate = 0.01, amsgrad = true, use_ema = true },
        { initial_scale = 4, dynamic_growth_steps = 2 }) }
    local made = { model = m, optimizer = m.optimizer,
      generator = tf.random.Generator.from_seed(training and 5 or 6),
      half = tf.Variable(training and { 1, 2 } or { 0, 0 },
        { dtype = "float16" }) }
    return made
  end)
end

local function build(made, strategy)
  strategy:scope(function()
    made.model:build { -1, 6 }
    made.optimizer:build(made.model.trainable_variables)
  end)
end

local function variables(made)
  local all = { made.half }
  for _, list in ipairs { made.model.variables, made.optimizer.variables } do
    for _, v in ipairs(list) do all[#all + 1] = v end
  end
  return all
end

-- What is saved, of each variable; replicas' own values are put together.
local function saved(made)
  local list = {}
  for i, v in ipairs(variables(made)) do
    list[i] = raw.tensor_bytes(v:read_value())
  end
  return list, raw.tensor_bytes(made.generator.state)
end

for i, from in ipairs(PLACES) do
  local written = make(from[1], true)
  local x = tf.random.stateless_normal({ 16, 6 }, { 1, i })
  written.model:fit(x, x[{ {}, { 0, 3 } }], { batch_size = 8, verbose = 0 })
  from[1]:scope(function() written.generator:normal { 3 } end)
  local path = ("%s/%d"):format(FOLDER, i)
  tf.train.Checkpoint(written):write(path)
  local want, state = saved(written)
  assert(#want > 20, #want)
  for k, to in ipairs(PLACES) do
    local read, before = make(to[1]), (i + k) % 2 == 0
    if before then build(read, to[1]) end
    local status = tf.train.Checkpoint(read):read(path)
    if not before then build(read, to[1]) end
    status:assert_consumed()
    for n, v in ipairs(variables(read)) do
      for _, copy in ipairs(raw.kind(v) == "mirrored" and v.values or { v }) do
        local t = raw.operand_tensor(copy)
        if raw.tensor_bytes(t) ~= want[n] or not t.device:find(to[2]) then
          print(i, k, v.name, t.device)
        end
      end
    end
    assert(raw.tensor_bytes(read.generator.state) == state)
  end
end
]]

describe("checkpoints of GPUs #once", function()
  if not standins.exists(standins.FOLDER .. "/libcudnn.so.9")
    or not standins.exists(standins.CUDA) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  it("keep all bits on the way to the processor and back", function()
    local folder = files.place()
    local r = standins.run(("local FOLDER = %q\n"):format(folder) .. MOVES)
    os.execute("rm -rf " .. folder)
    assert.equal("", r.err)
    assert.equal("", r.out)
    assert.equal(0, r.code)
  end)
end)
