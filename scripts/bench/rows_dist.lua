--- The benches of strategies: sums between devices, training steps, the cost of
--- a strategy. Everything here is wall time of several threads: on a machine
--- with other work it decides nothing.
local report = require "report"
local worker = require "worker"

local M = {}

-- Loose threads everywhere: replicas are threads, so nothing is pinned.
local ONE_THREAD = "env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "

local function ours(bench, devices)
  return worker.start(("%sTFDIST_THREADS=1 %s/tfdist --cpu-devices=%d "
    .. "scripts/bench/ours_dist.lua"):format(ONE_THREAD, bench.build, devices),
    true)
end

local function floor(bench)
  return worker.start(bench.build .. "/bench/steps", true)
end

local function torch(bench)
  local python = bench.python
  return bench.peer("PyTorch", python and ("%s%s scripts/bench/torch_ddp.py")
    :format(ONE_THREAD, python), true)
end

local function line(bench, name, mine, reference, options)
  local r, why = bench.compare(mine, reference, options.faster,
    bench.short and 3 or 7)
  if r == nil then return report.failed(name, why) end
  if bench.busy then r.inconclusive = true end
  report.line(name, r, options.goal, options.unit)
  return r
end

--- 1 Sums between devices ---------------------------------------------------------

local SIZES = { { 4, "4 B" }, { 1024, "1 KiB" }, { 65536, "64 KiB" },
                { 1048576, "1 MiB" }, { 26214400, "25 MiB" },
                { 67108864, "64 MiB" } }

local function all_reduce(bench)
  local mine, hand, peer = ours(bench, 2), floor(bench), torch(bench)
  for _, size in ipairs(SIZES) do
    local bytes, text = size[1], size[2]
    local request = ("allreduce 2 %d"):format(bytes)
    local r = line(bench, text .. " / hand-written threads",
      mine:asking(request), hand:asking(request),
      { goal = bytes >= 65536 and { at_most = 1.1 } or nil })
    if r and bytes >= 67108864 then
      -- Both buffers are read and written.
      local rate = 4e-9 * bytes / r.ours
      local limit = bench.limits["a += b over 128 MiB, all cores"]
      report.line("  traffic / memory limit", { ours = rate, reference = limit,
        ratio = rate / limit, inconclusive = bench.busy }, { at_least = 0.9 },
        "GB/s")
    end
    if peer then
      line(bench, text .. ", x faster than gloo", mine:asking(request),
        peer:asking(("gloo %d"):format(bytes)),
        { faster = true, goal = { at_least = 1 } })
    end
  end
  worker.stop(mine, hand, peer)
end

--- 14 and 15 Steps -----------------------------------------------------------------

-- Goals: of the floor; of PyTorch's DistributedDataParallel; weak scaling.
local NETWORKS = {
  { "mlp", "MLP 784-512-512-10", 1.08, 3.5, 0.96 },
  { "cnn", "CNN 32-64-FC64", 1.10, 2.7, 0.94 },
  { "lenet", "LeNet-5", 1.12, nil, nil },
  { "lstm", "LSTM 2 x 512, 50 steps", 1.06, 1.3, 0.98 },
}

local function steps(bench)
  local mine, hand, peer = ours(bench, 2), floor(bench), torch(bench)
  for _, network in ipairs(NETWORKS) do
    local name, title, of_floor, of_ddp, scaling = table.unpack(network, 1, 5)
    local wrong = hand:ask("check " .. name)
    if wrong == nil or wrong > 0.05 then
      bench.broken[#bench.broken + 1] = ("the floor program's gradient of %s "
        .. "is off by %s"):format(name, tostring(wrong))
    end
    local two = "step " .. name .. " 2"
    line(bench, title .. ", 2 devices / floor", mine:asking(two),
      hand:asking(two), { goal = { at_most = of_floor } })
    line(bench, "  1 device / floor", mine:asking("step " .. name .. " 1"),
      hand:asking("step " .. name .. " 1"), { goal = { at_most = of_floor } })
    line(bench, "  efficiency 1 -> 2", mine:asking(two),
      mine:asking("step " .. name .. " 1"), { faster = true,
        goal = scaling and { at_least = scaling } })
    if peer then
      line(bench, "  x faster than PyTorch, 1", mine:asking("step " .. name
        .. " 1"), peer:asking("single " .. name), { faster = true })
      line(bench, "  x faster than PyTorch DDP, 2", mine:asking(two),
        peer:asking("ddp " .. name), { faster = true,
          goal = of_ddp and { at_least = of_ddp } })
    end
  end
  worker.stop(mine, hand, peer)
end

--- 16 and 23 What strategies cost ----------------------------------------------------

local function overhead(bench)
  local mine = ours(bench, 8)
  line(bench, "MLP, Mirrored with 1 / none", mine:asking "step mlp 1",
    mine:asking "plain mlp", { goal = { at_most = 1.01 } })
  for _, replicas in ipairs { 1, 2, 4 } do
    local list, why = {}, nil
    for i = 1, bench.short and 3 or 7 do
      list[i], why = mine:ask("run " .. replicas)
    end
    local name = ("run with one merge, %d replicas"):format(replicas)
    if list[1] == nil then
      report.failed(name, why)
    else
      report.line(name, { ours = report.median(list),
        inconclusive = bench.busy }, replicas == 4 and { at_most = 10e-6,
        unit = "s" } or nil)
    end
  end
  -- More replicas than cores: no cliff.
  for _, replicas in ipairs { 4, 8 } do
    line(bench, ("MLP, %d replicas / %d x 2 replicas"):format(replicas,
      replicas / 2), function()
      local t, why = mine:ask("step mlp " .. replicas)
      return t and t / (replicas / 2), why
    end, mine:asking "step mlp 2", { goal = { at_most = 1.1 } })
  end
  mine:stop()
end

M.all = {
  { name = "allreduce", title = "sums between two devices of this process",
    run = all_reduce },
  { name = "steps", title = "training steps under MirroredStrategy",
    run = steps },
  { name = "overhead", title = "what strategies cost", run = overhead },
}

return M
