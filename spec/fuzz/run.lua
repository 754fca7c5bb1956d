--- Everything that fuzzes: random calls and damaged files under both hosts,
--- then the libFuzzer targets. Prints "N calls, N errors, 0 crashes"; exit
--- status 1 after any crash, hang, leak or other violation. Calls and files
--- depend on SEED only; so do the inputs of a target without threads, of which
--- a slow machine makes fewer.
---
--- usage: lua5.4 spec/fuzz/run.lua BUILD TARGETS [CALLS [SEED [SECONDS]]]
--- BUILD holds the hosts, TARGETS the libFuzzer programs. CALLS is for each host,
--- SECONDS for each libFuzzer target; the environment's FUZZ_TARGETS names these,
--- with the least seconds of one as NAME=SECONDS.

local build, targets = arg[1], assert(arg[2],
  "usage: run.lua BUILD TARGETS [CALLS [SEED [SECONDS]]]")
local calls = tonumber(arg[3]) or 100000
local seed = tonumber(arg[4]) or require "spec.support.seed"
local seconds = tonumber(arg[5]) or 60

local BATCH, BATCH_DEADLINE = 10000, 2400
-- What makes calls, and the part of CALLS that it makes.
local SCRIPTS = { { name = "ops", part = 1 }, { name = "files", part = 0.2 } }
local HOSTS = { "tfdist", "tfdist-luajit" }
-- The libFuzzer programs and their seconds, in the order of the Makefile.
local TARGETS = {}
for name, least in (os.getenv "FUZZ_TARGETS" or ""):gmatch "([^%s=]+)=?(%d*)" do
  TARGETS[#TARGETS + 1] = { name, math.max(seconds, tonumber(least) or 0) }
end
local LOGS = targets .. "/logs"
local SEEDS = targets .. "/seeds"
-- Calls write files: each batch has an empty folder to work in.
local WORK = targets .. "/work"

local function absolute(path)
  return path:find "^/" and path or os.getenv "PWD" .. "/" .. path
end

local ENVIRONMENT = "env LUA_PATH='./?.lua;;' OMP_NUM_THREADS=1 "
  .. "TFDIST_LOG=error TFDIST_MEMORY_LIMIT=16777216 "
  .. "ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_abort=1 "
  .. "UBSAN_OPTIONS=print_stacktrace=1 "
-- Inline devices let AddressSanitizer see every block's end; queued ones have
-- other orders of events.
local MODES = { "TFDIST_CPU_DEVICES=1 TFDIST_QUEUE=inline ",
                "TFDIST_CPU_DEVICES=2 TFDIST_QUEUE=queued " }

local totals = { calls = 0, errors = 0, crashes = 0 }

local function read(path)
  local file = io.open(path)
  if file == nil then return "" end
  local text = file:read "a"
  file:close()
  return text
end

local function execute(command, deadline, log)
  local _, how, code = os.execute(("timeout -s ABRT -k 10 %d %s >%s 2>&1")
    :format(deadline, command, log))
  return how == "exit" and code or 128 + code
end

local function clean_folder()
  os.execute(("rm -rf '%s' && mkdir -p '%s' && ln -s '%s' '%s/spec'"):format(
    WORK, WORK, absolute "spec", WORK))
end

local function report(what, log)
  totals.crashes = totals.crashes + 1
  io.write(("== %s\n%s\n"):format(what, read(log):sub(-4000)))
  io.flush()
end

-- The last call that a crashed episode printed is the one that crashed.
local function replay(program, script, batch_seed, state, mode)
  local episode = read(state):match "^%d+ (%d+)"
  if episode == nil then return end
  local log = LOGS .. "/replay.log"
  clean_folder()
  local command = ("env -C '%s' %s%s%s spec/fuzz/%s.lua 0 %d %s"):format(
    WORK, ENVIRONMENT, mode, program, script, batch_seed, episode)
  execute(command, 900, log)
  report("again with: " .. command, log)
end

local function run_batch(host, script, number, count)
  local log = ("%s/%s-%s-%d.log"):format(LOGS, host, script, number)
  local state = LOGS .. "/" .. host .. ".state"
  local program = absolute(build .. "/" .. host)
  local mode, batch_seed = MODES[number % 2 + 1], seed + number
  clean_folder()
  local code = execute(("env -C '%s' %sTFDIST_FUZZ_STATE=%s %s%s "
    .. "spec/fuzz/%s.lua %d %d"):format(WORK, ENVIRONMENT, absolute(state),
    mode, program, script, count, batch_seed), BATCH_DEADLINE, log)
  local made, errors = read(log):match "(%d+) calls, (%d+) errors, %d+ viol"
  totals.calls = totals.calls + (tonumber(made) or 0)
  totals.errors = totals.errors + (tonumber(errors) or 0)
  if code ~= 0 or made == nil then
    report(("%s, %s, seed %d: exit status %d"):format(host, script, batch_seed,
      code), log)
    if made == nil then replay(program, script, batch_seed, state, mode) end
  end
end

local function run_target(name, time)
  local log = ("%s/%s.log"):format(LOGS, name)
  -- Found in this run only: what an earlier one found would change the order.
  local folder = targets .. "/corpus/" .. name
  os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(folder, folder))
  local code = execute(("%s%s/%s -max_total_time=%d -timeout=120 "
    .. "-rss_limit_mb=2048 -max_len=1024 -len_control=10 -seed=%d "
    .. "-print_final_stats=1 -artifact_prefix=%s/ -seed_inputs=@%s/%s.list %s")
    :format(ENVIRONMENT, targets, name, time, math.max(seed, 1), LOGS, SEEDS,
    name, folder), time + 120, log)
  local runs = tonumber(read(log):match "number_of_executed_units: (%d+)")
  if code ~= 0 or runs == nil then
    report(("libFuzzer %s: exit status %d"):format(name, code), log)
  end
  print(("libFuzzer %-12s %9d runs"):format(name, runs or 0))
end

os.execute("mkdir -p " .. LOGS)
print(("seed %d"):format(seed))
for _, host in ipairs(HOSTS) do
  for _, script in ipairs(SCRIPTS) do
    local count = math.ceil(calls * script.part)
    for number = 0, math.ceil(count / BATCH) - 1 do
      run_batch(host, script.name, number, math.min(BATCH,
        count - number * BATCH))
    end
  end
end
assert(os.execute(("lua5.4 spec/fuzz/seeds.lua %s"):format(SEEDS)))
for _, target in ipairs(TARGETS) do run_target(target[1], target[2]) end
print(("%d calls, %d errors, %d crashes"):format(totals.calls, totals.errors,
  totals.crashes))
os.exit(totals.crashes == 0 and 0 or 1)
