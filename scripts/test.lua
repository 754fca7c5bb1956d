--- Run the test suites and add up what they report.
---
--- usage: lua5.4 scripts/test.lua [--long] [--seed=N] [SUITE...]
---   (default: all suites)
--- Each suite's output goes to build/test/SUITE.log and, when something fails,
--- to the terminal. The last line is "N passed, N failed, N skipped".
---
--- Of suites that take long some files are drawn by a seed, which is printed;
--- what tests draw follows from it too (spec/support/seed.lua). One commit has
--- one seed, so that a run can be repeated elsewhere: --seed=N names another,
--- --long runs all files.
---
--- However it ends, nothing that it started outlives it; Ctrl-C gives 130.

local LOGS = "build/test"
local LUA_PATH = "LUA_PATH='lua/?.lua;lua/?/init.lua;./?.lua;;'"
local BUSTED = "/usr/bin/busted --output=plainTerminal"
-- Seconds. Deadlines end what hangs; a slow machine must meet them too.
local FILE_DEADLINE, LONG_FILE_DEADLINE = 1200, 3600
local SPECS = "spec"
-- The specs that say most about memory and threads, for the slow builds.
local CORE = "spec/ops spec/autograd spec/tensor spec/lua "
  .. "spec/memory_oom_spec.lua spec/io spec/graph/traps_spec.lua "
  .. "spec/graph/training_steps_spec.lua spec/graph/random_programs_spec.lua"
-- Thousands of messages, which say nothing of threads: they wait for --long.
local NO_MESSAGES = " ! -path spec/ops/bad_input_spec.lua"
local ALSO = " spec/data spec/keras spec/checkpoint_spec.lua "
  .. "spec/summary_spec.lua"

-- Options.
local long = false
local seed

-- The seed of the checked out tree, or another one each time outside of git.
local function seed_of_tree()
  local pipe = assert(io.popen "git rev-parse --short=7 'HEAD^{tree}' 2>&1")
  local tree = pipe:read "l"
  pipe:close()
  return tree and tree:find "^%x+$" and tonumber(tree:sub(1, 7), 16)
    or os.time()
end

-- The specs in `places`, without what `short` says unless all are asked for, as
-- options of find. Of those that are not `always` run, one in `share` is
-- drawn unless all are asked for.
local function files_of(name, places, options)
  local list, rest = {}, {}
  local share, always = options.share, " " .. (options.always or "") .. " "
  local pipe = assert(io.popen(("find %s%s -name '*_spec.lua' | sort")
    :format(places, not long and options.short or "")))
  for file in pipe:lines() do
    local whole = long or not share or always:find(" " .. file .. " ", 1, true)
    table.insert(whole and list or rest, file)
  end
  pipe:close()
  if #rest == 0 then return list end
  math.randomseed(seed)
  local n, all = math.ceil(#rest / share), #list + #rest
  for k = 1, n do
    local at = math.random(k, #rest)
    rest[k], rest[at] = rest[at], rest[k]
    list[#list + 1] = rest[k]
  end
  print(("%-14s %6d of %d files, drawn by --seed=%d; --long runs all"):format(
    name, #list, all, seed))
  return list
end

-- Specs tagged #once start programs of their own: what runs the spec does not
-- matter, so the first suite alone runs them.
-- Each file has a process of its own: what one leaves behind neither disturbs
-- the others nor makes their collections slower.
-- `beside`: it may run as the third job.
local function lua_suite(interpreter, environment, specs, options)
  options = options or {}
  return {
    command = function(name)
      local files = files_of(name, specs or SPECS, options)
      local each = ("OMP_WAIT_POLICY=passive %s %s timeout -k 5 %d %s %s%s")
        :format(LUA_PATH, environment,
          long and LONG_FILE_DEADLINE or FILE_DEADLINE, interpreter, BUSTED,
          options.once and "" or " --exclude-tags=once")
      return ("for file in %s; do echo \"== $file\"; env %s $file "
        .. "|| echo \"exit status $?\"; done"):format(
          table.concat(files, " "), each)
    end,
    kind = "busted", beside = options.beside,
  }
end

local PLAIN54 = "LUA_CPATH='build/lua54/?.so;;'"
local PLAINJIT = "LUA_CPATH='build/luajit/?.so;;'"
local FIVE = "TFDIST_CPU_DEVICES=5"
-- The specs that need more devices than the other suites have.
local DIST = "spec/distribute spec/parity spec/keras/optimizers_spec.lua "
  .. "spec/graph/strategies_spec.lua spec/graph/replica_cases_spec.lua "
  .. "spec/graph/training_steps_spec.lua"
local TWO = "TFDIST_CPU_DEVICES=2 TFDIST_QUEUE=queued"
-- Of the table of cases one in three, drawn; all with --long, which sets it to 1.
local SOME = " TFDIST_CASES_SHARE=${TFD_LONG:-3}"
local HALF = { share = 2, always = "spec/ops/cases_spec.lua" }
-- Devices that the host cannot see and that run everything late.
local ON_SLOW = "spec/ops spec/autograd spec/tensor spec/distribute spec/keras "
  .. "spec/parity spec/data spec/checkpoint_spec.lua "
  .. "spec/checkpoint_deferred_spec.lua spec/checkpoint_manager_spec.lua "
  .. "spec/graph/blocks_spec.lua"
-- What says most of order and failures.
local FIRST_ON_SLOW = "spec/distribute/all_reduce_spec.lua "
  .. "spec/distribute/failure_spec.lua spec/tensor/variable_spec.lua"

local function slow(interpreter, environment, folder, share, always)
  return lua_suite(interpreter .. " -l spec.support.on_device",
    ("%s %s TFDIST_SPEC_TYPE=SLOW TFDIST_PLUGINS=%s/spec/slow"):format(
      environment, TWO, folder), ON_SLOW,
    { share = share, always = FIRST_ON_SLOW .. " " .. (always or "") })
end

-- The stand-ins' GPUs: the CUDA back end's kernels on a model of a GPU. Not
-- there: what several workers do, each a process, what is said of the
-- processor's memory and of the programs that are made for it, and of calls
-- around which no device is chosen.
local ON_GPU = "spec/ops spec/autograd spec/tensor spec/distribute spec/keras "
  .. "spec/parity spec/data spec/checkpoint_spec.lua "
  .. "spec/checkpoint_deferred_spec.lua spec/checkpoint_manager_spec.lua "
  .. "spec/graph ! -name 'multi_worker*' ! -path spec/graph/memory_spec.lua "
  .. "! -path spec/graph/optimizer_spec.lua "
  .. "! -path spec/graph/kept_weights_spec.lua "
  .. "! -path spec/graph/keys_spec.lua"
-- Minutes each, for they have the C++ compiler make every fused kernel.
local NOT_SHORT = " ! -path spec/graph/cases_spec.lua "
  .. "! -path spec/graph/random_programs_spec.lua"

-- They start programs with the stand-ins themselves.
local WITH_GPUS = "spec/cuda_graphs_spec.lua spec/cuda_kernels_spec.lua "
  .. "spec/nccl_spec.lua spec/gpu_training_spec.lua spec/gpu_modes_spec.lua "
  .. "spec/gpu_checkpoint_spec.lua spec/gpu_parts_spec.lua "
  .. "spec/nccl_workers_spec.lua"

-- The table of cases is one file: some of its cases are drawn, too. `programs`:
-- of WITH_GPUS an eighth, too.
local function gpu(interpreter, environment, folder, share, cases, programs)
  local plugin, standin = folder .. "/plugins/tfdist_cuda.so",
    folder .. "/standin"
  local function command(name)
    for _, path in ipairs { plugin, standin .. "/libcuda.so.1" } do
      local file = io.open(path)
      if not file then
        return "echo \"== $(ls " .. path .. " 2>&1)\"; "
          .. "echo '0 successes / 0 failures / 0 errors / 1 pending'"
      end
      file:close()
    end
    local before = programs and lua_suite(interpreter, ("%s TFDIST_BUILD=%s")
      :format(environment, folder), WITH_GPUS, { share = 8, once = true })
      .command(name) .. "; " or ""
    return before .. lua_suite(interpreter .. " -l spec.support.on_device",
      ("%s %s TFDIST_SPEC_TYPE=GPU TFDIST_PLUGINS=%s TFDIST_CUDA_STANDIN=%s "
        .. "TFDIST_STRICT_FP32=1 TFD_STANDIN_DEVICES=2 TFD_STANDIN_SEED=%d "
        .. "TFDIST_CASES_SHARE=%d"):format(environment, TWO, plugin, standin,
        seed % 1000, long and 1 or cases), ON_GPU .. (long and "" or NOT_SHORT),
      { share = share, always = "spec/ops/cases_spec.lua" }).command(name)
  end
  return { command = command, kind = "busted" }
end

local ASAN = "OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0:"
  .. "allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1"
local TSAN = "OMP_NUM_THREADS=1 TSAN_OPTIONS=suppressions="
  .. "scripts/tsan.supp:halt_on_error=0:exitcode=66:"
  .. "allocator_may_return_null=1"

-- In the order in which they begin: the longest of each build first.
local suites = {
  { "lint", { command = "make -s lint", kind = "command" } },
  { "lua5.4", lua_suite("lua5.4", PLAIN54, SPECS, { once = true }) },
  { "c", { command = "make -s test-c", kind = "cmocka" } },
  { "tfdist", lua_suite("build/tfdist", TWO .. SOME) },
  { "luajit", lua_suite("luajit", PLAINJIT) },
  { "tfdist-luajit", lua_suite("build/tfdist-luajit", TWO .. SOME, SPECS,
                               HALF) },
  -- Half of it: "luajit" has all of LuaJIT, and "tfdist" all of the host.
  { "luajit-noffi", lua_suite("luajit", PLAINJIT .. " TFDIST_FFI=0" .. SOME,
                              SPECS, HALF) },
  { "gpu", gpu("lua5.4", PLAIN54, "build", 12, 20) },
  { "slow", slow("lua5.4", PLAIN54, "build", 4,
                 "spec/distribute/same_losses_spec.lua") },
  { "replicas-luajit", lua_suite("build/tfdist-luajit",
                                 FIVE .. " TFDIST_QUEUE=queued", DIST) },
  { "replicas", lua_suite("build/tfdist", FIVE .. " TFDIST_QUEUE=inline",
                          DIST) },
  { "tsan-c", { command = TSAN .. " make -s test-c SAN=thread",
                kind = "cmocka" } },
  { "fuzz", { command = "make -s fuzz-short", kind = "fuzz" } },
  { "asan-c", { command = ASAN .. " make -s test-c SAN=address",
                kind = "cmocka" } },
  { "tsan", lua_suite("build/tsan/tfdist", TSAN .. " " .. TWO .. SOME, CORE,
                     { short = NO_MESSAGES, beside = true }) },
  { "asan", lua_suite("build/asan/tfdist", ASAN .. SOME, CORE .. ALSO,
                      { beside = true }) },
  { "asan-luajit", lua_suite("build/asan/tfdist-luajit",
                             ASAN .. " " .. TWO .. SOME, CORE .. ALSO,
                             HALF) },
  { "asan-gpu", gpu("build/asan/tfdist", ASAN, "build/asan", 48, 60,
                    true) },
  { "asan-dist", lua_suite("build/asan/tfdist", ASAN .. " " .. FIVE
                           .. " TFDIST_QUEUE=queued", "spec/distribute") },
  -- What the others run in groups, call by call.
  { "unfused", lua_suite("build/tfdist-luajit", FIVE .. " TFDIST_QUEUE=queued "
                         .. "TFDIST_FUSION=0", "spec/graph",
                         { beside = true }) },
  -- What the others run as graphs, op by op.
  { "eager", lua_suite("lua5.4 -l spec.support.eagerly", PLAIN54,
                       "spec/keras", { beside = true }) },
  { "tsan-slow", slow("build/tsan/tfdist", TSAN, "build/tsan", 16) },
  { "asan-slow", slow("build/asan/tfdist", ASAN, "build/asan", 16) },
  { "tsan-gpu", gpu("build/tsan/tfdist", TSAN, "build/tsan", 48, 60) },
}

-- What suites need besides what `make` makes, in the order in which it is made:
-- how make is called, and the targets of each suite. A suite begins when its
-- build and those before are there.
local ASAN_HOSTS = "build/asan/tfdist build/asan/tfdist-luajit"
local BUILDS = {
  { name = "plain", make = "make -s -j2", targets = {
    c = "tests-c",
    ["lua5.4"] = "standins build/spec/slow/tfdist_slow.so build/spec/shadow "
      .. "bench-programs",
    slow = "build/spec/slow/tfdist_slow.so",
    gpu = "standins",
  } },
  { name = "address", make = "make -s -j2 SAN=address", targets = {
    ["asan-c"] = "tests-c",
    asan = ASAN_HOSTS,
    ["asan-luajit"] = ASAN_HOSTS,
    ["asan-dist"] = ASAN_HOSTS,
    ["asan-slow"] = ASAN_HOSTS .. " build/asan/spec/slow/tfdist_slow.so",
    ["asan-gpu"] = ASAN_HOSTS .. " standins",
  } },
  { name = "thread", make = "make -s -j2 SAN=thread", targets = {
    ["tsan-c"] = "tests-c",
    tsan = "build/tsan/tfdist",
    ["tsan-slow"] = "build/tsan/tfdist build/tsan/spec/slow/tfdist_slow.so",
    ["tsan-gpu"] = "build/tsan/tfdist standins",
  } },
  { name = "fuzz", make = "make -s -j2", targets = { fuzz = "fuzz-programs" } },
}

-- Seconds a suite or a build may take; a hung one is a failure.
local DEADLINE = 2400
local LONG_DEADLINE = 7200
local BUILD_DEADLINE = 1800

local parsers = {}

-- Sections begin with "== FILE". One that has no summary died, and so did one
-- that failed without a failure.
function parsers.busted(text)
  local pass, fail, skip, seen = 0, 0, 0, false
  for section in (text .. "\n== "):gmatch "(.-)\n== " do
    if section:find "%S" then
      local p, f, e, s = section:match
        "(%d+) success%a* / (%d+) failure%a* / (%d+) error%a* / (%d+) pending"
      local bad = p and tonumber(f) + tonumber(e) or 1
      if bad == 0 and section:find "\nexit status" then bad = 1 end
      pass, fail, skip = pass + (p or 0), fail + bad, skip + (s or 0)
      seen = true
    end
  end
  if not seen then return nil end
  return math.floor(pass), fail, math.floor(skip)
end

function parsers.cmocka(text)
  local pass, fail, skip, seen = 0, 0, 0, false
  for n in text:gmatch "%[  PASSED  %] (%d+) test" do
    pass, seen = pass + tonumber(n), true
  end
  for n in text:gmatch "%[  FAILED  %] (%d+) test" do
    fail = fail + tonumber(n)
  end
  for n in text:gmatch "%[  SKIPPED %] (%d+) test" do
    skip = skip + tonumber(n)
  end
  if not seen then return nil end
  return pass, fail, skip
end

-- One for each host and libFuzzer target that ran.
function parsers.fuzz(text)
  local crashes = text:match "%d+ calls, %d+ errors, (%d+) crashes"
  if not crashes then return nil end
  local _, targets = text:gsub("libFuzzer %S+ +[1-9]%d* runs", "")
  return 2 + targets, tonumber(crashes), 0
end

function parsers.command()
  return 1, 0, 0
end

local function read(path)
  local file = io.open(path)
  if not file then return "" end
  local text = file:read "a"
  file:close()
  return text
end

-- Two suites at a time, for most of one runs on one core. What they leave, for
-- some of their specs wait, is a third job's: the builds of later suites, then
-- suites that wait for nothing but their own work. A finished job says so
-- through a named pipe.
local JOBS = 2

local function log_of(name)
  return ("%s/%s.log"):format(LOGS, name)
end

-- What a run starts is known by a variable in its environment, set to the job:
-- `timeout` and what specs start have process groups and sessions of their own,
-- so no signal to a group reaches them all. Its name has the runner's process
-- and the time, for containers that see each other's processes repeat numbers.
local mark
-- The named pipe, of this run alone: the jobs of one that ended end after it.
local fifo

-- A shell's lines that end what has the variable, of one job or of all: they ask
-- for a second, so that compilers and `make` take away what is half written.
local function ending(job)
  return ([[
    signal=TERM
    for round in $(seq 100); do
      left=$(grep -lsz '^%s=%s' /proc/[0-9]*/environ | cut -d / -f 3)
      [ -n "$left" ] || break
      kill -s $signal $left 2>/dev/null
      [ "$round" -lt 10 ] || signal=KILL
      sleep 0.1
    done]]):format(mark, job and job .. "$" or "")
end

-- A word for the shell that stands for the text.
local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- A process that does it when its pipe is closed, as the end of the runner does,
-- whatever ended that: a session of its own keeps it from signals to the
-- runner's group. It takes the named pipe away, too.
local function start_keeper()
  local pipe = assert(io.popen "echo ${PPID}_$(date +%s%N)")
  mark = "TFD_TEST_RUN_" .. pipe:read "l"
  pipe:close()
  fifo = LOGS .. "/" .. mark
  return assert(io.popen("trap '' INT TERM HUP QUIT; exec setsid sh -c "
    .. quoted("cat >/dev/null; rm -f " .. fifo .. ";" .. ending()), "w"))
end

-- <>: where the runner is gone, nobody reads the pipe. Opened first: it may be
-- gone when the job ends.
local function start(name, command, before, deadline)
  return { started = os.time(), pipe = io.popen(
    ("exec 1<>%s; %s=%s TFD_TEST_SEED=%d %s%stimeout --kill-after=10 %d sh -c "
      .. "%s >%s 2>&1 </dev/null; code=$?; %s; echo %s $code"):format(fifo,
        mark, name, seed, long and "TFD_LONG=1 " or "", before or "", deadline,
        quoted(command), log_of(name), ending(name), name)) }
end

-- What failed: sections with a failure, without what they say of the rest.
local function excerpt(text)
  local parts = {}
  for section in ("\n" .. text .. "\n== "):gmatch "(.-)\n== " do
    if section:find "\nexit status" or section:find "FAILED"
      or not (section:find "success" or section:find "PASSED") then
      section = section:gsub("\nPending %->[^\n]*\n[^\n]*\n", "\n")
      parts[#parts + 1] = section:sub(-4000)
    end
  end
  return table.concat(parts, "\n"):sub(-12000)
end

local function report(name, suite, job, code)
  local text = read(log_of(name))
  local pass, fail, skip = parsers[suite.kind](text)
  if not pass then pass, fail, skip = 0, 1, 0 end
  if code ~= 0 and fail == 0 then
    fail = 1
    if suite.kind == "command" then pass = 0 end
  end
  print(("%-14s %6d passed %4d failed %4d skipped  %4d s"):format(
    name, pass, fail, skip, os.time() - job.started))
  if fail > 0 then io.write(excerpt(text), "\n") end
  io.flush()
  return pass, fail, skip
end

-- The builds that the suites of this list need, as jobs with a name and a
-- command, and how many of them each suite waits for.
local function builds_of(list)
  local jobs, waits = {}, {}
  for _, build in ipairs(BUILDS) do
    local words, seen = { build.make }, {}
    for _, name in ipairs(list) do
      for word in (build.targets[name] or ""):gmatch "%S+" do
        if not seen[word] then words[#words + 1] = word end
        seen[word], waits[name] = true, #jobs + 1
      end
    end
    if #words > 1 then
      jobs[#jobs + 1] = { name = "build-" .. build.name,
        command = table.concat(words, " ") }
    end
  end
  -- Specs look for what the first one makes.
  for _, name in ipairs(list) do
    waits[name] = waits[name] or name ~= "lint" and math.min(#jobs, 1) or 0
  end
  return jobs, waits
end

local function add(totals, ...)
  for i = 1, #totals do totals[i] = totals[i] + select(i, ...) end
end

-- The first suite of the list that may begin, taken out of it.
local function take(list, may_begin)
  for i, name in ipairs(list) do
    if may_begin(name) then return table.remove(list, i) end
  end
end

-- Runs the suites called `names`; the sums of what they report. When a build
-- fails, no more of them begin.
local function run_all(names, by_name)
  assert(os.execute("mkfifo " .. fifo))
  local finished = assert(io.open(fifo, "r+"))
  local builds, waits = builds_of(names)
  local jobs, built, running, third = {}, 0, 0, nil
  local totals = { 0, 0, 0 }

  local function begin(name, command, before)
    if type(command) == "function" then command = command(name) end
    jobs[name] = start(name, command, before,
      not by_name[name] and BUILD_DEADLINE
      or long and LONG_DEADLINE or DEADLINE)
    return name
  end
  local function is_ready(name)
    return waits[name] <= built
  end
  local function begin_all()
    while running < JOBS do
      local name = take(names, is_ready)
      if not name then break end
      begin(name, by_name[name].command)
      running = running + 1
    end
    if third then return end
    local build = builds[built + 1]
    local name = not build and take(names, function(name)
      return by_name[name].beside and is_ready(name)
    end)
    if build or name then
      third = begin(name or build.name, (build or by_name[name]).command,
        "nice -n 5 ")
    end
  end

  begin_all()
  while running > 0 or third do
    local name, code = finished:read "l":match "^(%S+) (%d+)$"
    jobs[name].pipe:close()
    if name == third then
      third = nil
    else
      running = running - 1
    end
    if by_name[name] then
      add(totals, report(name, by_name[name], jobs[name], tonumber(code)))
    elseif code == "0" then
      print(("%-14s made %44d s"):format(name, os.time() - jobs[name].started))
      io.flush()
      built = built + 1
    else
      print(("%-14s failed (%s); not run: %s"):format(name, code,
        table.concat(names, " ")))
      io.write(read(log_of(name)))
      io.flush()
      names, builds, totals[2] = {}, {}, totals[2] + 1
    end
    begin_all()
  end
  finished:close()
  return totals
end

local function main(names)
  os.execute("mkdir -p " .. LOGS)
  local chosen, list, by_name = {}, {}, {}
  for _, name in ipairs(names) do
    local number = name:match "^%-%-seed=(%d+)$"
    if name == "--long" then
      long = true
    elseif number then
      seed = math.tointeger(tonumber(number))
    else
      chosen[name] = true
    end
  end
  seed = seed or seed_of_tree()
  print("seed " .. seed)
  local some = next(chosen) ~= nil
  for _, entry in ipairs(suites) do
    local name = entry[1]
    if chosen[name] or not some then
      chosen[name] = nil
      list[#list + 1], by_name[name] = name, entry[2]
    end
  end
  for name in pairs(chosen) do
    io.stderr:write("scripts/test.lua: no suite \"", name, "\"\n")
    os.exit(2)
  end
  local keeper = start_keeper()
  local ok, totals = pcall(run_all, list, by_name)
  keeper:close()
  if not ok then
    -- Not by an error, which would wait for all pipes.
    io.stderr:write(totals, "\n")
    os.exit(totals:find "interrupted!$" and 130 or 1)
  end
  print(("%d passed, %d failed, %d skipped"):format(totals[1], totals[2],
    totals[3]))
  os.exit(totals[2] == 0 and totals[1] > 0 and 0 or 1)
end

main(arg)
