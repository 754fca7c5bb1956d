--- The benches of training the Keras way, of its input and of checkpoints, on
--- the Fashion-MNIST images. Wall time: other work on the machine counts too.
local report = require "report"
local rows_dist = require "rows_dist"
local worker = require "worker"

local M = {}

local line, alone, ask = rows_dist.line, rows_dist.alone, rows_dist.ask
local tensorflow, torch = rows_dist.tensorflow, rows_dist.torch

local ONE_THREAD = "env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "

-- One device has one core and one thread, on every side; two have all cores
-- and a thread each, and TensorFlow as many threads as it likes. Peers are asked
-- with one device and all cores too.
local function start_all(bench, input_only)
  local function ours(devices)
    return worker.start(("%sTFDIST_THREADS=1 %s/tfdist --cpu-devices=%d "
      .. "scripts/bench/ours_fit.lua"):format(ONE_THREAD, bench.build, devices),
      devices > 1)
  end
  local all = { one = ours(1), two = ours(2), tf_one = tensorflow(bench, 1) }
  if not input_only then
    local python = bench.python()
    all.tf_two, all.tf_all = tensorflow(bench, 2), tensorflow(bench, 1, true)
    all.torch_two, all.torch_all = torch(bench), torch(bench, "all")
    all.torch_one = bench.peer("PyTorch", python
      and ("%s%s scripts/bench/torch_ddp.py"):format(ONE_THREAD, python))
  end
  return all
end

local function stop_all(all)
  for _, name in ipairs { "one", "two", "tf_one", "tf_two", "tf_all",
                          "torch_one", "torch_two", "torch_all" } do
    worker.stop(all[name])
  end
end

local function has_images(bench)
  local there = bench.exists(
    "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
  if not there then
    report.note "the Fashion-MNIST images are missing (scripts/packages data)"
  end
  return there
end

--- Epochs of fit ------------------------------------------------------------------

-- What does not learn is not worth timing.
local function check_learned(bench, list)
  for _, entry in ipairs(list) do
    local name, program, request = entry[1], entry[2], entry[3]
    if program then
      local _, accuracy = program:ask(request)
      if accuracy and accuracy < 0.6 then
        bench.broken[#bench.broken + 1] = ("fit: %s reaches an accuracy of %g "
          .. "only (%s)"):format(name, accuracy, request)
      end
    end
  end
end

local NETWORKS = {
  { "mlp", "MLP 784-512-512-10", images = 6400, epochs = 5 },
  { "cnn", "CNN 32-64-FC64", images = 3200, epochs = 3 },
}

local function fit_lines(bench, title, rounds)
  local double = { faster = true, goal = { at_least = 2 } }
  line(bench, title .. ", 1: x faster than Keras", rounds, "ours, 1",
    "Keras, 1", double)
  rows_dist.best_line(bench, "  2 devices: x faster than Keras", rounds,
    "ours, 2", { { "Keras, 2", "two devices" },
                 { "Keras, all", "one device, all cores" } }, double)
  line(bench, "  1 device: x faster than PyTorch", rounds, "ours, 1",
    "PyTorch, 1", { faster = true, goal = { at_least = 1 } })
  rows_dist.best_line(bench, "  2: x faster than PyTorch", rounds, "ours, 2",
    { { "PyTorch, 2", "two processes" },
      { "PyTorch, all", "one process, all cores" } },
    { faster = true, goal = { at_least = 1 } })
  line(bench, "  efficiency 1 -> 2", rounds, "ours, 2", "ours, 1",
    { faster = true, scale = 0.5 })
  line(bench, "  Keras' own efficiency", rounds, "Keras, 2", "Keras, 1",
    { faster = true, scale = 0.5 })
end

local function fit(bench)
  if not has_images(bench) then return end
  local all = start_all(bench)
  for _, network in ipairs(NETWORKS) do
    local name, images = network[1], network.images
    local what = ("%s %d"):format(name, images)
    report.note("%s: an epoch is %d images in batches of 128", network[2],
      images)
    local list = {
      { "ours, 1", all.one, "fit " .. what },
      { "Keras, 1", all.tf_one, "fit " .. what },
      { "PyTorch, 1", all.torch_one, "fit " .. what },
      { "ours, 2", all.two, "fit " .. what },
      { "Keras, 2", all.tf_two, "fit " .. what },
      { "PyTorch, 2", all.torch_two, "ddpfit " .. what },
      { "Keras, all", all.tf_all, "fit " .. what },
      { "PyTorch, all", all.torch_all, "fit " .. what },
    }
    check_learned(bench, list)
    fit_lines(bench, network[2], ask(bench, list, bench.short and 1
      or network.epochs))
  end
  stop_all(all)
end

--- 18 Input ---------------------------------------------------------------------

-- from_tensor_slices, shuffle, batch, map to floats, prefetch.
local function input(bench)
  if not has_images(bench) then return end
  local all = start_all(bench, true)
  for _, devices in ipairs { 1, 2 } do
    local mine = devices == 1 and all.one or all.two
    for _, network in ipairs(NETWORKS) do
      local name = network[1]
      local what = ("%s %d"):format(name, network.images)
      line(bench, ("%s, %d: with input / without"):format(name:upper(),
        devices), ask(bench, { { "fit", mine, "fit " .. what },
          { "bare", mine, "bare " .. what } }, bench.short and 3 or 5),
        "fit", "bare", { goal = { at_most = 1.02 } })
    end
  end
  local what = "input mlp 12800"
  local rounds = ask(bench, { { "ours", all.one, what },
    { "tf", all.tf_one, what } }, bench.short and 3 or 5)
  alone(bench, "a batch of 128 alone", rounds, "ours")
  line(bench, "  x faster than tf.data", rounds, "ours", "tf",
    { faster = true, goal = { at_least = 1 } })
  stop_all(all)
end

--- 19 Checkpoints ---------------------------------------------------------------

local MIB = 100

local function checkpoint(bench)
  local mine = worker.start(bench.build
    .. "/tfdist scripts/bench/ours_fit.lua", true)
  local floor = worker.start(bench.build .. "/bench/floor", true)
  local rounds = ask(bench, {
    { "save", mine, "save " .. MIB }, { "write", floor, "write " .. MIB },
    { "restore", mine, "restore " .. MIB }, { "read", floor, "read " .. MIB },
  }, bench.short and 3 or 5)
  line(bench, ("%d MiB: write + fsync / save"):format(MIB), rounds, "save",
    "write", { faster = true, goal = { at_least = 0.8 } })
  line(bench, "  read / restore", rounds, "restore", "read",
    { faster = true, goal = { at_least = 0.8 } })
  worker.stop(mine, floor)
end

M.all = {
  { name = "fit", title = "an epoch of compile and fit, Fashion-MNIST",
    run = fit },
  { name = "input", title = "what reading the input costs", run = input },
  { name = "checkpoint", title = "saving and restoring, against the disk",
    run = checkpoint },
}

return M
