--- Benchmarks: the library beside what it is measured against, in one run.
---
--- usage: lua5.4 scripts/bench.lua [BUILD]   (default: build; `make bench`)
---        ONLY=dispatch,gemm    these benches alone
---        SHORT=1               fewer pairs
---        PYTHON=python3        an interpreter that may have torch
---        TENSORFLOW=no JAX=no TORCH=no  without them (else scripts/venv_peer
---                              makes an environment with each that is missing,
---                              once; of PyTorch, where no interpreter has 2.0
---                              or newer); TORCH=new: the newest PyTorch though
---                              an interpreter has another
--- Two processes answer the same requests by turns (ours, reference, ours,
--- reference ...), each on the same core with one thread; a line shows the
--- median of the pairs' ratios with the tenth and ninetieth percentile, the
--- goal, and whether it was met. Who is asked runs alone: all others are
--- stopped. A reference is asked some times in a row before: where that and its
--- median of the rounds differ by more than a tenth, the ratio does not count.
--- Of a peer that can be run in several ways the fastest is the reference.
--- Before and after each pair a fixed loop is timed: when it drifts, the pair
--- does not count, and a line that lost more than half of its pairs is
--- INCONCLUSIVE. Peers that are not installed are named and left out.
--- All numbers go to BUILD/bench/results.json.
--- Ends with status 1 when a rule is broken: a oneDNN kernel called "ref", or
--- page faults in a steady training step. Missed goals do not fail.
package.path = "scripts/bench/?.lua;" .. package.path

local report = require "report"
local worker = require "worker"

local build = arg[1] or "build"
local short = (os.getenv "SHORT" or "") ~= ""
local pairs_wanted = short and 5 or 11

local bench = {
  build = build,
  short = short,
  broken = {}, -- rules that do not hold
  limits = {}, -- by name, measured first
}

--- The interpreter with a package in an environment of its own; nil without.
--- The first call may make it. `wanted` = "no": it is left out.
local interpreters = {}
function bench.environment(name, package, wanted)
  if interpreters[package] == nil then
    interpreters[package] = false
    if wanted == "no" then
      report.note("%s: not wanted", name)
    else
      local pipe = io.popen(("scripts/venv_peer %s 2>&1"):format(package))
      local last
      for text in pipe:lines() do last = text end
      if pipe:close() then
        interpreters[package] = last
      else
        report.note("%s is missing: %s", name, last or "no reason given")
      end
    end
  end
  return interpreters[package] or nil
end

function bench.tensorflow()
  return bench.environment("TensorFlow", "tensorflow-cpu",
    os.getenv "TENSORFLOW")
end

function bench.jax()
  return bench.environment("JAX", "jax", os.getenv "JAX")
end

-- One whose PyTorch passes this, or nil.
local function torch_with(code)
  for _, python in ipairs { os.getenv "PYTHON" or "python3",
                            "/usr/bin/python3" } do
    local status = os.execute(("%s -c 'import torch; %s' 2>/dev/null"):format(
      python, code))
    if status == true or status == 0 then return python end
  end
end

-- Best one that compiles, which takes 2.0 or newer.
local function find_torch()
  local wanted = os.getenv "TORCH"
  return wanted == nil and torch_with "torch.compile"
    or bench.environment("PyTorch", "torch", wanted)
    or wanted == nil and torch_with "" or nil
end

--- The interpreter that has PyTorch; nil without one.
local torch_python
function bench.python()
  if torch_python == nil then torch_python = find_torch() or false end
  return torch_python or nil
end

--- Run `command` of the peer called `name`, or say once why not. `free`: on
--- all cores.
local missing = {}
function bench.peer(name, command, free)
  if command == nil then
    if not missing[name] then
      report.note("%s is not installed: its columns are left out", name)
      missing[name] = true
    end
    return nil
  end
  return worker.start(command, free)
end

function bench.torch(arguments)
  local python = bench.python()
  return python and ("%s scripts/bench/torch_peer.py %s"):format(python,
    arguments or "")
end

--- The host program with the library's side of a request.
function bench.host(engine, arguments)
  local host = engine == "LuaJIT" and "tfdist-luajit" or "tfdist"
  return ("%s/%s scripts/bench/ours.lua %s"):format(build, host,
    arguments or "")
end

function bench.exists(path)
  local file = io.open(path, "r")
  if file then
    file:close()
  end
  return file ~= nil
end

-- The median of some answers in a row, after one that warms up.
local function alone(ask, times)
  local list = {}
  for i = 0, times do
    local value, why = ask()
    if value == nil then return nil, why or "no answer" end
    list[i] = value
  end
  return report.median(list)
end

--- Ask every function of `askers`, a table by name, once in each of `count`
--- rounds, always in the same order: `order` lists the names. A function gives
--- a number or nil and a message. Before, each is asked some times in a row.
--- Result: { by name { numbers }, drifted = { booleans }, failed = { by name
--- message }, alone = { by name median } }; who fails is not asked again.
function bench.rounds(askers, order, count)
  local result = { drifted = {}, failed = {}, alone = {} }
  for _, name in ipairs(order) do
    result.alone[name], result.failed[name] = alone(askers[name],
      math.min(count, 3))
  end
  for round = 1, count do
    local before = bench.floor:ask "quiet"
    for _, name in ipairs(order) do
      local list = result[name] or {}
      result[name] = list
      if result.failed[name] == nil then
        local why
        list[round], why = askers[name]()
        if list[round] == nil then
          result.failed[name] = why or "no answer"
        end
      end
    end
    local after = bench.floor:ask "quiet"
    local drift = before and after and math.abs(after / before - 1) or 0
    result.drifted[round] = drift > 0.05
  end
  return result
end

-- A reference alone and in the rounds are as far apart at most.
local APART = 1.1

--- What two of the rounds' names say about each other: { ours, reference,
--- ratio, low, high, pairs, discarded }, medians and percentiles; or nil and
--- a message. The ratio is a / b, or b / a with `faster`, times `scale`.
function bench.ratio(rounds, a, b, faster, scale)
  local why = rounds.failed[a] or rounds.failed[b]
  if why ~= nil then return nil, why end
  local ratios, all, discarded = {}, {}, 0
  for round, drifted in ipairs(rounds.drifted) do
    local x, y = rounds[a][round], rounds[b][round]
    local ratio = (faster and y / x or x / y) * (scale or 1)
    all[round] = ratio
    if drifted then
      discarded = discarded + 1
    else
      ratios[#ratios + 1] = ratio
    end
  end
  local steady = #ratios * 2 >= #all
  local used = steady and ratios or all
  local reference, once = report.median(rounds[b]), rounds.alone[b]
  local apart = once and math.max(reference / once, once / reference) > APART
  return {
    ours = report.median(rounds[a]), reference = reference, alone = once,
    apart = apart or nil,
    ratio = report.median(used),
    low = report.percentile(used, 0.1), high = report.percentile(used, 0.9),
    pairs = #all, discarded = discarded, inconclusive = not steady or apart,
  }
end

--- Interleaved measurements of two functions that give a number or nil and a
--- message; a result of bench.ratio.
function bench.compare(ours, reference, faster, count)
  return bench.ratio(bench.rounds({ ours = ours, reference = reference },
    { "ours", "reference" }, count or pairs_wanted), "ours", "reference",
    faster)
end

--- Cores that other programs kept busy just now.
function bench.other_load()
  local function busy()
    local file = io.open "/proc/stat"
    if file == nil then return 0, 0 end
    local line = file:read "*l"
    file:close()
    local sum, idle, i = 0, 0, 0
    for n in line:gmatch "%d+" do
      i, sum = i + 1, sum + tonumber(n)
      if i == 4 or i == 5 then idle = idle + tonumber(n) end
    end
    return sum - idle, sum
  end
  local b0, s0 = busy()
  os.execute "sleep 0.5"
  local b1, s1 = busy()
  return s1 > s0 and (b1 - b0) / (s1 - s0) * bench.cores or 0
end

local function machine()
  local file = io.open "/proc/cpuinfo"
  local text = file and file:read "*a" or ""
  if file then file:close() end
  local cores = 0
  for _ in text:gmatch "\nprocessor%s*:" do cores = cores + 1 end
  if text:find "^processor" then cores = cores + 1 end
  bench.cores = math.max(cores, 1)
  return text:match "model name%s*:%s*([^\n]+)" or "unknown processor"
end

--- Main -----------------------------------------------------------------------

local rows = require "rows"

local function chosen()
  local only, known = os.getenv "ONLY" or "", {}
  if only == "" then return rows.all end
  local names = {}
  for _, row in ipairs(rows.all) do
    known[row.name] = row
    names[#names + 1] = row.name
  end
  local list = {}
  for name in only:gmatch "[^,%s]+" do
    if known[name] == nil then
      io.stderr:write(("bench: no bench \"%s\"; there are: %s\n"):format(name,
        table.concat(names, ", ")))
      os.exit(2)
    end
    list[#list + 1] = known[name]
  end
  return list
end

local list = chosen()
local processor = machine()
bench.core = bench.cores - 1
worker.pin(bench.core)
bench.floor = assert(worker.start(build .. "/bench/floor"))
report.open { machine = processor, cores = bench.cores, short = short }
report.note("%d x %s; others use %.1f cores now", bench.cores, processor,
  bench.other_load())
rows.limits(bench)
for _, row in ipairs(list) do
  report.section(row.name, row.title, bench.other_load())
  local begun = os.time()
  row.run(bench)
  report.note("%d s", os.time() - begun)
end
bench.floor:stop()
report.close(build .. "/bench/results.json", bench)
for _, text in ipairs(bench.broken) do
  print("BROKEN: " .. text)
end
os.exit(#bench.broken == 0)
