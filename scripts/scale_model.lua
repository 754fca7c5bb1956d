--- What all_reduces between up to 1,024 workers cost by the model that chooses
--- their way.
---
---   build/tfdist scripts/scale_model.lua [build]
---
--- Measures them between 2 and 4 processes of this machine (build/bench/processes;
--- `make bench-programs`), fits the model's costs to those of 2, prints
--- prediction and measurement side by side, and then where each way takes over.
--- Beside other work on the machine the measurements tell little.
package.path = "scripts/bench/?.lua;" .. package.path
local costs = require "tfdist.distribute.costs"
local worker = require "worker"

local build = arg[1] or "build"
local CORES = tonumber(io.popen("nproc"):read "a")

local SIZES = { 4, 1024, 16384, 65536, 1048576, 8388608, 26214400 }
local WORKERS = { 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 }
local MOST_BYTES = 1 << 30

-- Seconds by size, the least of three rounds.
local function measure(transport, processes)
  local program = worker.start(("env TFDIST_THREADS=1 OMP_NUM_THREADS=1 "
    .. "%s/bench/processes %s %d"):format(build, transport, processes), true)
  local out = {}
  for round = 1, 3 do
    for _, bytes in ipairs(SIZES) do
      local seconds, why = program:ask("allreduce " .. bytes)
      if seconds == nil then
        print(("%s, %d processes: %s"):format(transport, processes,
          tostring(why)))
        return nil
      end
      out[bytes] = round == 1 and seconds or math.min(out[bytes], seconds)
    end
  end
  program:stop()
  return out
end

-- Latencies from the least size, bytes from the largest; what a message and a
-- step cost, and an addition a byte, keep the proportion that they have here.
local function fit(known, seconds)
  local least, most = SIZES[1], SIZES[#SIZES]
  local way = costs.best(known, 2, most, true)
  local out = { ways = known.ways }
  local short = seconds[least] / costs.seconds(known, (costs.best(known, 2,
    least, true)), 2, least)
  out.step, out.message = known.step * short, known.message * short
  out.byte, out.sum = 0, 0
  local fixed = costs.seconds(out, way, 2, most)
  out.byte, out.sum = known.byte, known.sum
  local long = (seconds[most] - fixed) / (costs.seconds(out, way, 2, most)
    - fixed)
  out.byte, out.sum = known.byte * long, known.sum * long
  return out
end

-- Processes that share a core take turns.
local function compare(model, processes, seconds)
  local turns = math.max(1, processes / CORES)
  print(("  %d processes      predicted    measured  predicted / measured%s")
    :format(processes, turns > 1 and (" (predicted x %g for %d cores)"):format(
      turns, CORES) or ""))
  for _, bytes in ipairs(SIZES) do
    local way, predicted = costs.best(model, processes, bytes, true)
    predicted = predicted * turns
    print(("    %-8s %-8s %9s  %10s  %.2f"):format(costs.size(bytes), way,
      costs.time(predicted), costs.time(seconds[bytes]),
      predicted / seconds[bytes]))
  end
end

-- Where the cheapest way becomes another as sums get longer.
local function takeovers(model, workers, in_order)
  local parts, last = {}, nil
  local bytes = 4
  while bytes <= MOST_BYTES do
    local way = costs.best(model, workers, bytes, in_order)
    if way ~= last then
      parts[#parts + 1] = last == nil and way
        or ("%s from %s"):format(way, costs.size(math.floor(bytes)))
      last = way
    end
    bytes = bytes * 2
  end
  return table.concat(parts, ", ")
end

local function simulate(model, title)
  print(("%s: up to 1,024 workers"):format(title))
  print("  workers      4 B    64 KiB    25 MiB   the cheapest way")
  for _, workers in ipairs(WORKERS) do
    local row = ("  %7d"):format(workers)
    for _, bytes in ipairs { 4, 65536, 26214400 } do
      local _, seconds = costs.best(model, workers, bytes)
      row = row .. ("%10s"):format(costs.time(seconds))
    end
    print(row .. "  " .. takeovers(model, workers))
    print(("%41s in order: %s"):format("", takeovers(model, workers, true)))
  end
end

for _, transport in ipairs { "shm", "tcp" } do
  local known = costs.of(transport)
  local two = measure(transport, 2)
  local four = two and measure(transport, 4)
  local model = two and fit(known, two) or known
  for _, line in ipairs(costs.lines(model, transport .. (two
    and " (as measured here)" or ""), 2)) do
    print(line)
  end
  if two then
    compare(model, 2, two)
  end
  if four then
    compare(model, 4, four)
  end
  simulate(model, transport)
end
