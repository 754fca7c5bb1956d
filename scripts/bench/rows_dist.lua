--- The benches of strategies: sums between devices, training steps, the cost of
--- a strategy. Everything here is wall time of several threads: on a machine
--- with other work it decides nothing.
local report = require "report"
local worker = require "worker"

local M = {}

-- Replicas are threads: nothing is pinned, one thread for each.
local ONE_THREAD = "env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "

local function ours(bench, devices, settings)
  return worker.start(("%s%sTFDIST_THREADS=1 %s/tfdist --cpu-devices=%d "
    .. "scripts/bench/ours_dist.lua"):format(ONE_THREAD, settings or "",
      bench.build, devices), true)
end

-- One device with all cores, and two devices' examples in a step.
local function ours_whole(bench)
  return worker.start(bench.build .. "/tfdist scripts/bench/ours_dist.lua 2",
    true)
end

local function floor(bench)
  return worker.start(bench.build .. "/bench/steps", true)
end

-- PyTorch: one core and two ranks; or, with "all", one process on all cores,
-- whose steps have both ranks' examples. `before` starts it.
local function torch(bench, all, before)
  local python = bench.python()
  return bench.peer("PyTorch", python
    and ("%s%s%s scripts/bench/torch_ddp.py %s 2>>%s/bench/peers.log"):format(
      before or "", all and "env " or ONE_THREAD, python, all or "",
      bench.build), true)
end

-- TensorFlow or JAX with so many logical devices. One has one core and one
-- thread; with `all`, it has all cores, and steps of two devices' examples.
local function peer_of(bench, name, python, program, devices, all)
  return bench.peer(name, python
    and ("%s scripts/bench/%s %d %d 2>>%s/bench/peers.log")
    :format(python, program, devices, all and 2 or 1, bench.build),
    devices > 1 or all)
end

local function tensorflow(bench, devices, all)
  return peer_of(bench, "TensorFlow", bench.tensorflow(), "tf_peer.py",
    devices, all)
end

local function jax(bench, devices, all)
  return peer_of(bench, "JAX", bench.jax(), "jax_peer.py", devices, all)
end

-- A program that mpirun starts; `settings` are the processes'.
local function mpirun(bench, processes, program, settings)
  return ("mpirun --allow-run-as-root --oversubscribe %s -q -n %d %s%s")
    :format(processes > bench.cores and "--bind-to none" or "--bind-to core",
      processes, settings or "", program)
end

local function mpi(bench, processes)
  local program = bench.build .. "/bench/mpi"
  return bench.peer("Open MPI", bench.exists(program)
    and mpirun(bench, processes, program) or nil, true)
end

local function mpich(bench, processes)
  local program = bench.build .. "/bench/mpich"
  return bench.peer("MPICH", bench.exists(program)
    and ("mpirun.mpich -bind-to %s -n %d %s"):format(
      processes > bench.cores and "none" or "core", processes, program) or nil,
    true)
end

-- A line about two names of the rounds; nothing where one was not asked.
local function line(bench, title, rounds, a, b, options)
  if rounds[a] == nil or rounds[b] == nil then return nil end
  options = options or {}
  local r, why = bench.ratio(rounds, a, b, options.faster, options.scale)
  if r == nil then return report.failed(title, why) end
  r.inconclusive = r.inconclusive or bench.busy
  if not options.hidden then
    report.line(title, r, options.goal, options.unit)
  end
  return r
end

-- A line about one name alone; nothing where it was not asked.
local function alone(bench, title, rounds, name, goal, scale)
  if rounds[name] == nil then return end
  if rounds.failed[name] then
    return report.failed(title, rounds.failed[name])
  end
  report.line(title, { ours = report.median(rounds[name]) * (scale or 1),
    inconclusive = bench.busy }, goal)
end

-- A line about how much longer one takes than another, in seconds.
local function difference(bench, title, rounds, a, b, at_most)
  local r = line(bench, title, rounds, a, b, { hidden = true })
  if r == nil then return end
  local list = {}
  for i, x in ipairs(rounds[a]) do
    list[i] = rounds[b][i] and x - rounds[b][i]
  end
  report.line(title, { ours = report.median(list),
    inconclusive = r.inconclusive }, { at_most = at_most, unit = "s" })
end

-- Rounds of those in `list` that are there: { name, worker, request } each.
local function ask(bench, list, count)
  local askers, order = {}, {}
  for _, entry in ipairs(list) do
    local name, program, request = entry[1], entry[2], entry[3]
    if program then
      askers[name] = program:asking(request)
      order[#order + 1] = name
    end
  end
  return bench.rounds(askers, order, count)
end

-- A line about a peer that can be run in several ways: `names` lists
-- { name, what it is }; the fastest is the reference, the others are said.
local function best_line(bench, title, rounds, a, names, options)
  local best = names[1] -- which line() says why not, where none is there
  local function median(entry)
    local list = rounds[entry[1]]
    return list and not rounds.failed[entry[1]] and report.median(list) or nil
  end
  for _, entry in ipairs(names) do
    if median(entry) and median(entry) < (median(best) or math.huge) then
      best = entry
    end
  end
  local r = line(bench, title, rounds, a, best[1], options)
  if median(best) then
    report.note("  at its best: %s", best[2])
  end
  for _, entry in ipairs(names) do
    if entry ~= best and rounds[entry[1]] then
      local why = rounds.failed[entry[1]]
      report.note("    %s: %s", entry[2], why and why:sub(1, 200)
        or report.value(median(entry), "s"))
    end
  end
  return r
end

M.ask, M.line, M.alone, M.best_line = ask, line, alone, best_line
M.tensorflow, M.torch, M.jax = tensorflow, torch, jax
M.ours, M.ours_whole, M.floor = ours, ours_whole, floor

--- The ways of using all cores, fastest first by turns.
M.WAYS = {
  { "PyTorch", { { "ddp", "two processes" },
                 { "torch all", "one process, all cores" } } },
  { "TensorFlow", { { "tf two", "two devices" },
                    { "tf all", "one device, all cores" } } },
  { "JAX", { { "jax two", "two devices" },
             { "jax all", "one device, all cores" } } },
}

--- 1 Sums between devices ---------------------------------------------------------

-- The `middle` ones between two processes alone.
local SIZES = { { 4, "4 B" }, { 1024, "1 KiB" }, { 65536, "64 KiB" },
                { 1048576, "1 MiB" }, { 4194304, "4 MiB", middle = true },
                { 8388608, "8 MiB", middle = true }, { 26214400, "25 MiB" },
                { 67108864, "64 MiB" } }

local function one_size(bench, workers, devices, bytes, text)
  local request = ("%d %d"):format(devices, bytes)
  local two = devices == 2
  local rounds = ask(bench, {
    { "ours", workers.mine, "allreduce " .. request },
    { "more", bytes <= 1048576 and workers.mine, "more " .. request },
    { "hand", workers.hand, "allreduce " .. request },
    { "gloo", two and workers.peer, "gloo " .. bytes },
    { "mpi", two and workers.mpi, "allreduce " .. bytes },
  }, bench.short and 3 or 5)
  local goal = bytes >= 65536 and { at_most = 1.1 } or nil
  local r = line(bench, text .. " / hand-written threads", rounds, "ours",
    "hand", { goal = goal })
  if r and two and bytes >= 67108864 then
    -- Both buffers are read and written.
    local rate = 4e-9 * bytes / r.ours
    local limit = bench.limits["a += b over 128 MiB, all cores"]
    report.line("  traffic / memory limit", { ours = rate, reference = limit,
      ratio = rate / limit, inconclusive = bench.busy }, { at_least = 0.9 },
      "GB/s")
  end
  line(bench, "  one more in the same run / hand", rounds, "more", "hand",
    { goal = goal or { at_most = 0.3e-6, unit = "s" } })
  line(bench, "  x faster than gloo", rounds, "ours", "gloo",
    { faster = true, goal = { at_least = 1 } })
  line(bench, "  x faster than Open MPI", rounds, "ours", "mpi",
    { faster = true, goal = bytes >= 1048576 and { at_least = bytes >= 26214400
      and 3.5 or 5 } or nil })
end

local function all_reduce(bench)
  local workers = { mine = ours(bench, 8), hand = floor(bench),
    peer = torch(bench), mpi = mpi(bench, 2) }
  for _, devices in ipairs { 2, 4, 8 } do
    -- The threads of the reference spin: each needs a core.
    for _, size in ipairs(devices <= math.max(bench.cores, 2) and SIZES
      or {}) do
      if not size.middle then
        one_size(bench, workers, devices, size[1],
          devices > 2 and ("%s, %d devices"):format(size[2], devices)
          or size[2])
      end
    end
  end
  worker.stop(workers.mine, workers.hand, workers.peer, workers.mpi)
end

--- 2 to 5 Sums between processes -----------------------------------------------------

local function processes(bench, provider, count)
  return worker.start(("%sTFDIST_THREADS=1 %s/bench/processes %s %d"):format(
    ONE_THREAD, bench.build, provider, count), true)
end

-- The provider of that name, where mpirun and its plug-in are there.
local function by_mpi(bench, count)
  if not bench.exists(bench.build .. "/bench/mpi") then return nil end
  return worker.start(mpirun(bench, count,
    ("%s/bench/processes mpi %d"):format(bench.build, count),
    ("%sTFDIST_THREADS=1 TFDIST_PLUGINS=%s/plugins "):format(ONE_THREAD,
      bench.build)), true)
end

local function between(bench, workers, bytes, text)
  local request = "allreduce " .. bytes
  local rounds = ask(bench, {
    { "shm", workers.shm, request }, { "tcp", workers.tcp, request },
    { "lent", bytes >= 65536 and workers.shm, "lent " .. bytes },
    { "ring", workers.ring, request }, { "mpi", workers.mpi, request },
    { "by mpi", workers.by_mpi, request },
    { "mpich", workers.mpich, request },
    { "inside", bytes >= 65536 and workers.inside, "allreduce 2 " .. bytes },
    { "by hosts", workers.by_hosts, request },
    { "gloo", workers.peer, "gloo " .. bytes },
    { "memory", bytes >= 1048576 and workers.shm, "memory " .. bytes },
    { "stream", bytes >= 65536 and workers.stream, "exchange " .. bytes },
  }, (bench.short or bytes >= 4194304) and 3 or 5)
  local goal = bytes >= 1048576 and { at_least = 2 }
    or bytes <= 1024 and { at_least = 1 } or nil
  if workers.mpi == nil then
    alone(bench, text .. ", shared memory", rounds, "shm")
  end
  line(bench, text .. ", shared memory, x faster than Open MPI", rounds, "shm",
    "mpi", { faster = true, goal = goal })
  -- What strategies sum lies in memory that the group lends.
  line(bench, "  gradients' own, x faster than Open MPI", rounds, "lent",
    "mpi", { faster = true, goal = bytes >= 26214400 and { at_least = 3.5 }
      or bytes >= 1048576 and { at_least = 5 } or nil })
  line(bench, "  gradients' own, x faster than gloo", rounds, "lent", "gloo",
    { faster = true })
  line(bench, "  gradients' own, x faster than MPICH", rounds, "lent", "mpich",
    { faster = true })
  line(bench, "  gradients' own / devices of one process", rounds, "lent",
    "inside", { goal = { at_most = 1.15 } })
  line(bench, "  gradients' own / memory's limit", rounds, "lent", "memory",
    { scale = 3 / 2 })
  -- A sum reads and writes each element once, the pass reads two for each one
  -- that it writes. Memory of one's own is copied before and behind that.
  line(bench, "  shared memory / memory's limit", rounds, "shm", "memory",
    { scale = 3 / 2 })
  line(bench, "  shared memory / memory's limit of it and two copies", rounds,
    "shm", "memory", { scale = 3 / 6 })
  line(bench, "  TCP / shared memory", rounds, "tcp", "shm")
  -- A sum of two sends and receives each byte once.
  line(bench, "  TCP / a bare connection", rounds, "tcp", "stream",
    { goal = bytes >= 4194304 and { at_most = 1.18 } or nil })
  line(bench, "  TCP in a ring / TCP", rounds, "ring", "tcp")
  line(bench, "  two hosts, inside and then between them / TCP", rounds,
    "by hosts", "tcp")
  line(bench, "  by MPI / Open MPI alone", rounds, "by mpi", "mpi",
    { goal = bytes >= 65536 and { at_most = 1.03 } or nil })
  if bytes == 4 and workers.inside then -- each has a core
    difference(bench, "  by MPI - Open MPI alone", rounds, "by mpi", "mpi",
      0.3e-6)
  end
  line(bench, "  TCP, x faster than gloo", rounds, "tcp", "gloo",
    { faster = true, goal = bytes <= 65536 and { at_least = 3 }
      or bytes >= 4194304 and { at_least = 1 } or nil })
end

local function between_processes(bench)
  for _, count in ipairs { 2, 4 } do
    local workers = { shm = processes(bench, "shm", count),
      tcp = processes(bench, "tcp", count), mpi = mpi(bench, count),
      by_mpi = by_mpi(bench, count),
      by_hosts = count > 2 and processes(bench, "hierarchical", count) or nil,
      ring = count > 2 and processes(bench, "ring", count) or nil,
      stream = count == 2 and worker.start(bench.build .. "/bench/stream", true)
        or nil,
      peer = count == 2 and torch(bench) or nil,
      mpich = count == 2 and mpich(bench, count) or nil,
      inside = count == 2 and ours(bench, 2) or nil }
    if count > 2 then report.note "gloo is asked with two processes alone" end
    for _, size in ipairs(SIZES) do
      if count == 2 or not size.middle then
        between(bench, workers, size[1], ("%s, %d processes"):format(size[2],
          count))
      end
    end
    for _, each in pairs(workers) do
      each:stop()
    end
  end
end

--- 14 and 15 Steps -----------------------------------------------------------------

-- PyTorch: the goals against versions 1 and 2.
local NETWORKS = {
  { "mlp", "MLP 784-512-512-10", floor = 1.08, PyTorch = { 3.5, 2 },
    scaling = 0.96, TensorFlow = { 2 } },
  { "cnn", "CNN 32-64-FC64", floor = 1.10, PyTorch = { 2.7, 1.2 },
    scaling = 0.94, TensorFlow = { 2 } },
  { "lenet", "LeNet-5", floor = 1.12, TensorFlow = { 2 } },
  { "lstm", "LSTM 2 x 512, 50 steps", floor = 1.06, PyTorch = { 1.3, 1.1 },
    scaling = 0.98, rounds = 3 },
}

-- The goal against a peer, whose version PyTorch's worker tells.
local function goal_against(network, peer, torch_worker)
  local goals = network[peer]
  if goals == nil or #goals == 1 then return goals and goals[1] end
  local major = torch_worker and torch_worker:ask "version"
  return goals[major and math.min(major, #goals) or 1]
end

local function least(bound)
  return bound and { at_least = bound }
end

local function step_lines(bench, network, rounds, torch_worker)
  local of_floor = { goal = { at_most = network.floor } }
  line(bench, network[2] .. ", 2 / floor", rounds, "two", "floor two",
    of_floor)
  line(bench, "  1 device / floor", rounds, "one", "floor one", of_floor)
  line(bench, "  efficiency 1 -> 2", rounds, "two", "one", { faster = true,
    goal = least(network.scaling) })
  line(bench, "  the floor's own efficiency", rounds, "floor two", "floor one",
    { faster = true })
  for i, name in ipairs { "torch", "tf one", "jax one" } do
    local peer, ways = M.WAYS[i][1], M.WAYS[i][2]
    line(bench, ("  x faster than %s, 1"):format(peer), rounds, "one", name,
      { faster = true })
    best_line(bench, ("  x faster than %s, 2"):format(peer), rounds, "two",
      ways, { faster = true,
        goal = least(goal_against(network, peer, torch_worker)) })
  end
end

-- A term that is missing from a gradient is a tenth of it or more; the slope
-- that it is held against is right to 0.005 (steps.c).
local FLOOR_BOUND = 0.02

local function check_floor(bench, hand, name)
  local wrong, why = hand:ask("check " .. name)
  if wrong == nil or wrong ~= wrong or wrong > FLOOR_BOUND then
    bench.broken[#bench.broken + 1] = ("the floor program's gradient of %s "
      .. "is off by %s"):format(name, tostring(wrong or why))
  end
end

local function steps(bench)
  local mine, hand, peer = ours(bench, 2), floor(bench), torch(bench)
  local peer_all = torch(bench, "all")
  local tf_one, tf_two, tf_all = tensorflow(bench, 1), tensorflow(bench, 2),
    tensorflow(bench, 1, true)
  local jax_one, jax_two, jax_all = jax(bench, 1), jax(bench, 2),
    jax(bench, 1, true)
  for _, network in ipairs(NETWORKS) do
    local name = network[1]
    check_floor(bench, hand, name)
    local rounds = ask(bench, {
      { "two", mine, "step " .. name .. " 2" },
      { "floor two", hand, "step " .. name .. " 2" },
      { "ddp", peer, "ddp " .. name },
      { "torch all", peer_all, "single " .. name },
      { "tf two", tf_two, "step " .. name },
      { "tf all", tf_all, "step " .. name },
      { "jax two", jax_two, "step " .. name },
      { "jax all", jax_all, "step " .. name },
      { "one", mine, "step " .. name .. " 1" },
      { "floor one", hand, "step " .. name .. " 1" },
      { "torch", peer, "single " .. name },
      { "tf one", tf_one, "step " .. name },
      { "jax one", jax_one, "step " .. name },
    }, bench.short and 3 or network.rounds or 5)
    step_lines(bench, network, rounds, peer)
  end
  worker.stop(mine, hand, peer, peer_all, tf_one, tf_two, tf_all, jax_one,
    jax_two, jax_all)
end

--- 14 and 15 Steps of two workers ---------------------------------------------------

-- Two workers of one machine, each with a core, or with all of them.
local function cluster(bench, command, all)
  return worker.start(("python3 scripts/bench/cluster.py %s%s "
    .. "2>>%s/bench/peers.log"):format(all and "all " or "", command,
    bench.build), true)
end

local function our_workers(bench, transport)
  return cluster(bench, ("env TFDIST_TRANSPORT=%s %s/tfdist --cpu-devices=1 "
    .. "scripts/bench/ours_dist.lua"):format(transport, bench.build))
end

local function tf_workers(bench, all)
  local python = bench.tensorflow()
  return python and cluster(bench, python .. " scripts/bench/tf_peer.py workers",
    all) or bench.peer("TensorFlow", nil)
end

local WORKER_WAYS = {
  { "PyTorch", { { "ddp", "DistributedDataParallel, gloo" } } },
  { "TensorFlow", { { "tf", "MultiWorkerMirrored, a core each" },
                    { "tf all", "MultiWorkerMirrored, all cores each" } } },
}

local function worker_lines(bench, network, rounds, torch_worker)
  line(bench, network[2] .. ", 2 workers, shm / 2 devices", rounds, "shm",
    "devices")
  line(bench, "  TCP / shared memory", rounds, "tcp", "shm")
  line(bench, "  efficiency, 1 device -> 2 workers", rounds, "shm", "one",
    { faster = true, goal = least(network.scaling) })
  line(bench, "  the floor's own efficiency", rounds, "floor two", "floor one",
    { faster = true })
  for _, way in ipairs(WORKER_WAYS) do
    best_line(bench, ("  x faster than %s, 2 workers"):format(way[1]), rounds,
      "shm", way[2], { faster = true,
        goal = least(goal_against(network, way[1], torch_worker)) })
  end
end

local function worker_steps(bench)
  local mine, peer, hand = ours(bench, 2), torch(bench), floor(bench)
  local shm, tcp = our_workers(bench, "shm"), our_workers(bench, "tcp")
  local tf_own, tf_all = tf_workers(bench), tf_workers(bench, true)
  for _, network in ipairs(NETWORKS) do
    local name = network[1]
    local rounds = ask(bench, {
      { "shm", shm, "worker " .. name }, { "tcp", tcp, "worker " .. name },
      { "devices", mine, "step " .. name .. " 2" },
      { "one", mine, "step " .. name .. " 1" },
      { "floor two", hand, "step " .. name .. " 2" },
      { "floor one", hand, "step " .. name .. " 1" },
      { "ddp", peer, "ddp " .. name },
      { "tf", tf_own, "step " .. name }, { "tf all", tf_all, "step " .. name },
    }, bench.short and 3 or network.rounds or 5)
    worker_lines(bench, network, rounds, peer)
  end
  worker.stop(mine, peer, hand, shm, tcp, tf_own, tf_all)
end

--- 7 Sums while the backward pass goes on -----------------------------------------

-- The workers' loopback carries as much as a network where it may be told so:
-- in a namespace of their own, by root.
local WIRE = "ip link set lo up && tc qdisc add dev lo root tbf rate 10gbit "
  .. "burst 256kb latency 200ms"

local function is_ok(command)
  return (os.execute(command .. " >/dev/null 2>&1")) == true
end

local function overlap(bench)
  local before = ""
  if is_ok(("unshare -n sh -c '%s'"):format(WIRE)) then
    before = ("unshare -n sh -c '%s && exec \"$@\"' wire "):format(WIRE)
  else
    report.note("  no network of our own: over plain loopback a sum is a core's "
      .. "work, as the backward pass is")
  end
  local function workers(on)
    return worker.start(("%spython3 scripts/bench/cluster.py env TFDIST_OVERLAP=%d "
      .. "TFDIST_TRANSPORT=tcp %s/tfdist --cpu-devices=1 "
      .. "scripts/bench/ours_dist.lua 2>>%s/bench/peers.log"):format(before, on,
        bench.build, bench.build), true)
  end
  local on, off, mine = workers(1), workers(0), ours(bench, 1)
  local peer = torch(bench, nil, before)
  local rounds = ask(bench, {
    { "on", on, "traced_worker wide" }, { "off", off, "traced_worker wide" },
    { "one", mine, "traced_step wide 1" }, { "ddp", peer, "ddp wide" },
  }, bench.short and 3 or 5)
  local r = line(bench, "MLP 1024-4x2048-10, overlap / without", rounds, "on",
    "off", { goal = { at_most = 0.9 } })
  if r and not rounds.failed.one then
    -- As much can be hidden as the backward pass takes, two thirds of a step.
    local step = report.median(rounds.one)
    local sum = math.min(r.reference - step, step * 2 / 3)
    local hidden = math.max(1 - r.ratio, 0) * r.reference
    report.line("  hidden of what can be", { ours = hidden, reference = sum,
      ratio = hidden / sum, inconclusive = r.inconclusive },
      { at_least = 0.6 })
  end
  line(bench, "  x faster than PyTorch's DistributedDataParallel", rounds, "on",
    "ddp", { faster = true, goal = { at_least = 1 } })
  worker.stop(on, off, mine, peer)
end

--- 16 and 23 What strategies cost ----------------------------------------------------

local function overhead(bench)
  local mine = ours(bench, 8)
  local count = bench.short and 3 or 7
  local rounds = ask(bench, {
    { "none", mine, "plain mlp" }, { "1", mine, "step mlp 1" },
    { "2", mine, "step mlp 2" }, { "4", mine, "step mlp 4" },
    { "8", mine, "step mlp 8" },
    { "run 1", mine, "run 1" }, { "run 2", mine, "run 2" },
    { "run 4", mine, "run 4" }, { "empty 4", mine, "empty 4" },
    { "traced_empty 4", mine, "traced_empty 4" },
  }, count)
  line(bench, "MLP, Mirrored with 1 / none", rounds, "1", "none",
    { goal = { at_most = 1.01 } })
  for _, replicas in ipairs { 1, 2, 4 } do
    alone(bench, ("run with one merge, %d replicas"):format(replicas), rounds,
      "run " .. replicas, replicas == 4 and { at_most = 10e-6, unit = "s" }
      or nil)
  end
  alone(bench, "empty run, 4 replicas", rounds, "empty 4")
  alone(bench, "run of an empty traced function, 4 replicas", rounds,
    "traced_empty 4", { at_most = 10e-6, unit = "s" })
  -- More replicas than cores: no cliff.
  for _, replicas in ipairs { 4, 8 } do
    line(bench, ("MLP, %d replicas / %d x 2 replicas"):format(replicas,
      replicas / 2), rounds, tostring(replicas), "2",
      { scale = 2 / replicas, goal = { at_most = 1.1 } })
  end
  mine:stop()
  if bench.exists(bench.build .. "/tfdist-luajit") then
    local jit = worker.start(("%sTFDIST_THREADS=1 %s/tfdist-luajit "
      .. "--cpu-devices=4 scripts/bench/ours_dist.lua"):format(ONE_THREAD,
      bench.build), true)
    alone(bench, "run with one merge, 4, LuaJIT", ask(bench, {
      { "run", jit, "run 4" } }, count), "run", { at_most = 10e-6,
      unit = "s" })
    jit:stop()
  end
end

M.all = {
  { name = "allreduce", title = "sums between devices of this process",
    run = all_reduce },
  { name = "processes", title = "sums between processes of this machine",
    run = between_processes },
  { name = "steps", title = "training steps under MirroredStrategy",
    run = steps },
  { name = "workers", title = "training steps of two workers",
    run = worker_steps },
  { name = "overlap", title = "sums while the backward pass goes on",
    run = overlap },
  { name = "overhead", title = "what strategies cost", run = overhead },
}

return M
