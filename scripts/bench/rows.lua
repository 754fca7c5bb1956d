--- The benches: what is asked of whom, and the goals.
---
--- Goals are those of the project's performance plan. Times of 300 ns and the
--- like are meant for a core of 3.6 GHz that nobody else uses; ratios hold
--- anywhere.
local report = require "report"
local rows_dist = require "rows_dist"
local rows_fit = require "rows_fit"
local rows_spin = require "rows_spin"
local rows_strangers = require "rows_strangers"
local rows_traced = require "rows_traced"
local worker = require "worker"

local M = {}

local QUIET = 0.3 -- cores others may use while wall time is measured

local function broken(bench, ...)
  bench.broken[#bench.broken + 1] = string.format(...)
end

-- One comparison as a line; without a reference ours alone.
local function line(bench, name, ours, reference, options)
  local r, why
  if reference == nil then
    local list = {}
    for i = 1, bench.short and 3 or 7 do
      list[i], why = ours()
      if list[i] == nil then return report.failed(name, why) end
    end
    r = { ours = report.median(list) }
  else
    r, why = bench.compare(ours, reference, options.faster, options.pairs)
    if r == nil then return report.failed(name, why) end
  end
  if options.wall and bench.busy then r.inconclusive = true end
  report.line(name, r, options.goal, options.unit)
  return r
end

-- Hosts that were built: { { engine, worker }, ... }.
local function hosts(bench)
  local list = {}
  for _, engine in ipairs { "Lua 5.4", "LuaJIT" } do
    local command = bench.host(engine)
    if bench.exists(command:match "^%S+") then
      list[#list + 1] = { engine, worker.start(command) }
    else
      report.note("the %s host is not built: left out", engine)
    end
  end
  return list
end

--- Limits, measured first ------------------------------------------------------

function M.limits(bench)
  local function limit(name, request, unit)
    local value = bench.open_floor:ask(request)
    bench.limits[name] = value
    report.limit(name, value, unit)
  end
  report.limits()
  bench.open_floor = worker.start(bench.build .. "/bench/floor", true)
  limit("multiply-add, 1 core", "fma 1", "GFLOP/s")
  limit("multiply-add, all cores", "fma " .. bench.cores, "GFLOP/s")
  limit("a += b over 128 MiB, 1 core", "add 1", "GB/s")
  limit("a += b over 128 MiB, all cores", "add " .. bench.cores, "GB/s")
  limit("memcpy over 128 MiB, 1 core", "copy 1", "GB/s")
  limit("futex round trip", "futex", "s")
  bench.open_floor:stop()
end

--- 8 Dispatch -------------------------------------------------------------------

local OPS = {
  { "add", "a + b, 16 floats" },
  { "mul", "a * b, 16 floats" },
  { "matmul", "matmul, 4x4" },
  { "add_tape", "a + b, recorded" },
  { "mul_tape", "a * b, recorded" },
  { "matmul_tape", "matmul, recorded" },
  { "backward", "a + b, both ways" },
  { "coroutine", "a + b, resume + yield" },
}

local BUDGET = { ["Lua 5.4"] = 300e-9, ["LuaJIT"] = 200e-9 }

local function dispatch(bench)
  local torch = bench.peer("PyTorch", bench.torch())
  for _, host in ipairs(hosts(bench)) do
    local engine, ours = host[1], host[2]
    for _, op in ipairs(OPS) do
      local request, title = op[1], op[2]
      local r = line(bench, ("%s, %s"):format(title, engine),
        ours:asking(request), torch and torch:asking(request),
        { faster = true, goal = torch and { at_least = 5 } })
      if r and request == "add_tape" then
        report.line("  as time", { ours = r.ours,
          inconclusive = r.inconclusive },
          { at_most = BUDGET[engine], unit = "s" })
      end
    end
    ours:stop()
  end
  -- A queued device: what the script's thread spends, and the worker's part.
  local queued = worker.start("env TFDIST_QUEUE=queued " .. bench.host "Lua 5.4")
  line(bench, "a + b, queued, Lua 5.4", queued:asking "add",
    torch and torch:asking "add", { faster = true,
      goal = torch and { at_least = 5 } })
  worker.stop(torch, queued)
end

--- 9 and 13 The queue program's lines --------------------------------------------

-- A line of a program that measures itself, or nil.
local function read_line(text)
  local name, ours, what, reference, ratio, goal = text:match(
    "^(.-)%s+([%d.]+) ns%s+(.-)%s+([%d.]+) ns%s+ratio%s+([%d.]+)%s+goal%s*(.*)$")
  return name and {
    name = name, ours = ours * 1e-9, what = what, ratio = tonumber(ratio),
    reference = reference * 1e-9, goal = goal,
  }
end

local queue_lines

-- What build/bench/queue says.
local function run_queue(bench)
  if queue_lines then return queue_lines end
  queue_lines = {}
  local pipe = io.popen("timeout 300 " .. bench.build .. "/bench/queue 2>&1")
  for text in pipe:lines() do
    local read = read_line(text)
    if read then
      queue_lines[#queue_lines + 1] = read
    else
      local what_faults, count = text:match "^(.-)%s+(%d+) faults in a pass"
      if what_faults then
        queue_lines[#queue_lines + 1] = { name = what_faults,
          faults = tonumber(count) }
      end
    end
  end
  pipe:close()
  return queue_lines
end

-- "<= 1.10", "<= 80 ns", "< 1 from 1 MiB" as goals.
local function read_goal(text, name)
  local number, unit = text:match "^<=?%s*([%d.]+)%s*(.*)$"
  local bytes = tonumber(name:match "(%d+) B$")
  if number == nil or (unit:find "from 1 MiB" and bytes < 1048576) then
    return nil
  elseif unit == "ns" then
    return { at_most = number * 1e-9, unit = "s" }
  end
  return { at_most = tonumber(number) }
end

local function print_queue(bench, memory)
  for _, l in ipairs(run_queue(bench)) do
    local is_memory = l.name:find "buffer" ~= nil
    if is_memory == memory and l.faults == nil then
      report.line(("%s / %s"):format(l.name, l.what), { ours = l.ours,
        reference = l.reference, ratio = l.ratio,
        inconclusive = not memory and bench.busy }, read_goal(l.goal, l.name))
    elseif is_memory == memory and l.faults then
      report.line(l.name .. ": faults", { ours = l.faults },
        { at_most = 0, unit = "faults" }, "faults")
    end
  end
end

--- 10 and 11 Products, convolution, LSTM -----------------------------------------

local kernel_lines

-- { name, rate, ratio } of kernels.lua, which alternates floor and library.
local function run_kernels(bench)
  if kernel_lines then return kernel_lines end
  kernel_lines = {}
  local pipe = io.popen(("env OMP_NUM_THREADS=1 TFDIST_THREADS=1 taskset -c %d "
    .. "timeout 600 %s/tfdist scripts/bench/kernels.lua %s/bench/onednn %d "
    .. "2>&1"):format(bench.core, bench.build, bench.build,
    bench.short and 1 or 5))
  for text in pipe:lines() do
    local name, rate, ratio = text:match "^(.-)%s+([%d.]+)%s+([%d.]+)%s*$"
    if name then
      kernel_lines[#kernel_lines + 1] = { name, tonumber(rate),
        tonumber(ratio) }
    end
  end
  pipe:close()
  return kernel_lines
end

-- No oneDNN kernel of the slow kind may run; its recurrent cells are called
-- "ref" too, and are judged by their rate.
local names_checked = false
local function check_names(bench)
  if names_checked then return end
  names_checked = true
  local seen, slow = 0, 0
  local pipe = io.popen("env DNNL_VERBOSE=1 " .. bench.host("Lua 5.4",
    "kernels") .. " 2>&1")
  for text in pipe:lines() do
    local kind, name = text:match "^%a+_verbose,exec,cpu,([^,]+),([^,]+)"
    if kind then
      seen = seen + 1
      if name:find "^ref" and kind ~= "rnn" then
        slow = slow + 1
        broken(bench, "a oneDNN kernel is \"%s\": %s", name, text)
      end
    end
  end
  pipe:close()
  report.line("kernels called ref, of " .. seen, { ours = slow },
    { at_most = 0, unit = "calls" }, "calls")
  if seen == 0 then
    report.note("oneDNN printed no names: nothing was checked")
  end
end

local function print_kernels(bench, is_product)
  local peak = bench.limits["multiply-add, 1 core"]
  for _, l in ipairs(run_kernels(bench)) do
    local name, rate, ratio = l[1], l[2], l[3]
    local is_conv = name:find "forward" or name:find "input"
      or name:find "filter" or name:find "backward"
    if (not is_conv) == is_product then
      local small = name:find "x10$" ~= nil -- below 128^3
      report.line(("%s, %.0f %% of peak"):format(name, 100 * rate / peak),
        { ours = rate, reference = rate * ratio, ratio = ratio },
        not small and { at_most = is_product and 1.03 or 1.07 } or nil,
        "GF/s")
    end
  end
  check_names(bench)
end

--- 12 Elementwise ---------------------------------------------------------------

local function bytes_text(n)
  local bytes = n * 4
  if bytes >= 1048576 then return ("%.0f MiB"):format(bytes / 1048576) end
  return ("%.0f KiB"):format(bytes / 1024)
end

local function elementwise(bench)
  local ours = worker.start(bench.host "Lua 5.4")
  local torch = bench.peer("PyTorch", bench.torch())
  local function one(what, n, goal)
    local request = ("%s %d"):format(what, n)
    local size = bytes_text(n)
    local mine = ours:asking(request)
    line(bench, ("%s %s / one loop"):format(what, size), mine,
      bench.floor:asking(request), { goal = goal })
    line(bench, ("  traced %s / one loop"):format(size),
      ours:asking(("%s_traced %d"):format(what, n)),
      bench.floor:asking(request), { goal = { at_most = what == "chain"
        and 1.3 or 1.2 } })
    if what == "chain" then
      line(bench, ("%s %s / five loops"):format(what, size), mine,
        bench.floor:asking(("steps %d"):format(n)), {})
    end
    if torch then
      line(bench, ("%s %s, x faster than PyTorch"):format(what, size), mine,
        torch:asking(request), { faster = true, goal = { at_least = 1 } })
    end
  end
  for _, n in ipairs { 1024, 16384, 262144, 4194304, 16777216 } do
    one("chain", n, { at_most = 2.6 })
  end
  for _, what in ipairs { "sgd", "momentum", "adam" } do
    for _, n in ipairs { 101770, 4194304 } do
      one(what, n, { at_most = 2.6 })
      line(bench, ("  its optimizer %s / one loop"):format(bytes_text(n)),
        ours:asking(("%s_optimizer %d"):format(what, n)),
        bench.floor:asking(("%s %d"):format(what, n)),
        { goal = { at_most = 1.1 } })
    end
  end
  worker.stop(ours, torch)
end

--- Fused programs: what build/bench/strip says, which takes turns itself.
local function fused(bench)
  local pipe = io.popen(("taskset -c %d timeout 300 %s/bench/strip 2>&1")
    :format(bench.core, bench.build))
  for text in pipe:lines() do
    local l = read_line(text)
    if l then
      report.line(("%s / %s"):format(l.name, l.what), { ours = l.ours,
        reference = l.reference, ratio = l.ratio }, read_goal(l.goal, l.name))
    else
      report.failed("fused ops", text)
    end
  end
  pipe:close()
end

--- 13 Memory --------------------------------------------------------------------

local function memory(bench)
  local torch = bench.peer("PyTorch", bench.torch())
  print_queue(bench, true)
  for _, host in ipairs(hosts(bench)) do
    local engine, ours = host[1], host[2]
    line(bench, "zeros {16}, " .. engine, ours:asking "zeros",
      torch and torch:asking "zeros", { faster = true,
        goal = torch and { at_least = 1 } })
    local r = line(bench, "training step, " .. engine, ours:asking "step",
      torch and torch:asking "step", { faster = true,
        goal = torch and { at_least = 1 } })
    local _, faults = ours:ask "step"
    if r and faults and faults >= 0 then
      report.line("  page faults for each step", { ours = faults },
        { at_most = 0, unit = "faults" }, "faults")
      if faults > 0 then
        broken(bench, "%g page faults for each training step on %s", faults,
          engine)
      end
    end
    ours:stop()
  end
  worker.stop(torch)
end

--- Two devices at once ------------------------------------------------------------

local function devices(bench)
  if not bench.exists(bench.build .. "/tfdist-luajit") then
    return report.note "needs the LuaJIT host for its clock: left out"
  elseif bench.cores < 2 then
    return report.note "needs two cores: left out"
  end
  local ours = worker.start("env TFDIST_CPU_DEVICES=2 TFDIST_QUEUE=queued "
    .. "TFDIST_THREADS=1 OMP_NUM_THREADS=1 " .. bench.host "LuaJIT", true)
  local possible = bench.limits["multiply-add, all cores"]
    / bench.limits["multiply-add, 1 core"] * 2 / bench.cores
  report.note("the same arithmetic without a runtime: x %.2f", possible)
  for _, what in ipairs { "matmul", "chain" } do
    line(bench, ("%s on 2 devices, speed-up"):format(what), function()
      local both, why = ours:ask("both " .. what)
      return both and both / 2, why
    end, ours:asking("one " .. what), { faster = true, wall = true,
      goal = { at_least = 1.9 } })
  end
  ours:stop()
end

--- 20 Start -----------------------------------------------------------------------

-- A process of its own spawns: peak memory of a child starts at its parent's.
local function spawning(spawner)
  local peaks = {}
  return peaks, function(command, field)
    return function()
      local wall, cpu, peak = spawner:ask("spawn exec env OMP_NUM_THREADS=1 "
        .. "OPENBLAS_NUM_THREADS=1 " .. command)
      peaks[command] = peak
      return field == "cpu" and cpu or wall, cpu
    end
  end
end

-- Lines about a peer: its bare import, its first step, its memory.
local function beside_peer(bench, spawn, peaks, host, peer)
  local count = bench.short and 1 or peer.pairs
  line(bench, ("  / import %s alone"):format(peer.module), spawn(host),
    spawn(peer.import), { faster = true, wall = true, pairs = count,
      goal = { at_least = 6 } })
  line(bench, ("  / %s's first step"):format(peer.name), spawn(host),
    spawn(peer.first), { faster = true, wall = true, pairs = count,
      goal = { at_least = 6 } })
  local ours, theirs = peaks[host], peaks[peer.first]
  if ours and theirs then
    report.line(("  peak memory / %s's"):format(peer.name), { ours = ours,
      reference = theirs, ratio = ours / theirs }, { at_most = 1 }, "MiB")
  end
end

local function start(bench)
  local spawner = worker.start(bench.build .. "/bench/floor", true)
  local peaks, spawn = spawning(spawner)
  local peers, tf = {}, bench.tensorflow()
  if bench.python() then
    peers[1] = { name = "PyTorch", module = "torch", pairs = 5,
      import = bench.python() .. " -c 'import torch'",
      first = bench.torch "first" }
  end
  if tf then
    peers[#peers + 1] = { name = "TensorFlow", module = "tensorflow",
      pairs = 2, import = tf .. " -c 'import tensorflow' 2>/dev/null",
      first = tf .. " scripts/bench/tf_peer.py first 2>/dev/null" }
  end
  local count = bench.short and 3 or 7
  for _, engine in ipairs { "Lua 5.4", "LuaJIT" } do
    local host = bench.host(engine, "first")
    local program = host:match "^%S+"
    if bench.exists(program) then
      local empty = program .. " -e ''"
      local plain = (engine == "LuaJIT" and "luajit" or "lua5.4") .. " -e ''"
      line(bench, ("empty script, %s / %s"):format(engine, plain:match "^%S+"),
        spawn(empty), spawn(plain), { wall = true, pairs = count,
          goal = { at_most = 0.015, unit = "s" } })
      line(bench, "  processor time", spawn(empty, "cpu"),
        spawn(plain, "cpu"), { pairs = count })
      line(bench, ("first training step, %s"):format(engine), spawn(host),
        nil, { wall = true, goal = { at_most = 0.15, unit = "s" } })
      for _, peer in ipairs(peers) do
        beside_peer(bench, spawn, peaks, host, peer)
      end
    end
  end
  spawner:stop()
end

--- ----------------------------------------------------------------------------------

local function timed_by_wall(run)
  return function(bench)
    local load = bench.other_load()
    bench.busy = load > QUIET
    if bench.busy then
      report.note("others use %.1f cores: wall times decide nothing", load)
    end
    run(bench)
    bench.busy = false
  end
end

M.all = {
  { name = "dispatch", title = "one op from Lua; x faster than PyTorch eager",
    run = dispatch },
  { name = "queue", title = "hand-over and waiting, against bare threads",
    run = timed_by_wall(function(bench) print_queue(bench, false) end) },
  { name = "gemm", title = "products through tf.*, against raw oneDNN",
    run = function(bench) print_kernels(bench, true) end },
  { name = "conv", title = "convolution and LSTM, against raw oneDNN",
    run = function(bench) print_kernels(bench, false) end },
  { name = "elementwise", title = "chains and updates, against one C loop",
    run = elementwise },
  { name = "fused", title = "elementwise programs, against one C loop",
    run = fused },
  { name = "memory", title = "allocator, faults, a training step",
    run = memory },
  { name = "devices", title = "two devices at once, against one",
    run = timed_by_wall(devices) },
  { name = "start", title = "from nothing to the first training step",
    run = timed_by_wall(start) },
}
for _, more in ipairs { rows_dist.all, rows_fit.all, rows_spin.all,
                        rows_strangers.all, rows_traced.all } do
  for _, row in ipairs(more) do
    row.run = timed_by_wall(row.run)
    M.all[#M.all + 1] = row
  end
end

return M
