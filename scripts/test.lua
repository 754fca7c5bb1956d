--- Run the test suites and add up what they report.
---
--- usage: lua5.4 scripts/test.lua [SUITE...]     (default: all but LONG)
--- Each suite's output goes to build/test/SUITE.log and, when something fails,
--- to the terminal. The last line is "N passed, N failed, N skipped".

local LOGS = "build/test"
local BUSTED = "/usr/bin/busted --output=plainTerminal --shuffle-files"
local SPECS = "spec"
-- The specs that say most about memory and threads, for the slow builds.
local CORE = "spec/ops spec/autograd spec/tensor spec/lua"

-- Specs tagged #once start programs of their own: what runs the spec does not
-- matter, so the first suite alone runs them.
local function lua_suite(interpreter, environment, specs, all)
  return {
    command = ("env LUA_PATH='lua/?.lua;lua/?/init.lua;./?.lua;;' %s %s %s%s %s")
      :format(environment, interpreter, BUSTED,
        all and "" or " --exclude-tags=once", specs or SPECS),
    kind = "busted",
  }
end

local PLAIN54 = "LUA_CPATH='build/lua54/?.so;;'"
local PLAINJIT = "LUA_CPATH='build/luajit/?.so;;'"
local FIVE = "TFDIST_CPU_DEVICES=5"
-- The specs that need more devices than the other suites have.
local DIST = "spec/dist spec/parity spec/keras/optimizers_spec.lua"
local TWO = "TFDIST_CPU_DEVICES=2 TFDIST_QUEUE=queued"
local ASAN = "OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0:"
  .. "allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1"
local TSAN = "OMP_NUM_THREADS=1 TSAN_OPTIONS=suppressions="
  .. "scripts/tsan.supp:halt_on_error=0:exitcode=66"

local suites = {
  { "lint", { command = "make -s lint", kind = "command" } },
  { "c", { command = "make -s test-c", kind = "cmocka" } },
  { "lua5.4", lua_suite("lua5.4", PLAIN54, SPECS, true) },
  { "luajit", lua_suite("luajit", PLAINJIT) },
  { "luajit-noffi", lua_suite("luajit", PLAINJIT .. " TFDIST_FFI=0") },
  { "tfdist", lua_suite("build/tfdist", TWO) },
  { "tfdist-luajit", lua_suite("build/tfdist-luajit", TWO) },
  { "replicas", lua_suite("build/tfdist", FIVE .. " TFDIST_QUEUE=inline",
                          DIST) },
  { "replicas-luajit", lua_suite("build/tfdist-luajit",
                                 FIVE .. " TFDIST_QUEUE=queued", DIST) },
  { "asan-c", { command = ASAN .. " make -s test-c SAN=address",
                kind = "cmocka" } },
  { "asan", lua_suite("build/asan/tfdist", ASAN, CORE) },
  { "asan-luajit", lua_suite("build/asan/tfdist-luajit", ASAN .. " " .. TWO,
                             CORE) },
  { "tsan-c", { command = TSAN .. " make -s test-c SAN=thread",
                kind = "cmocka" } },
  { "tsan", lua_suite("build/tsan/tfdist", TSAN .. " " .. TWO, CORE) },
  -- Resident memory is only telling in a process of its own.
  { "memory", lua_suite("build/tfdist", "",
                        "--pattern=flat_memory spec/memory") },
  { "memory-luajit", lua_suite("build/tfdist-luajit", "",
                               "--pattern=flat_memory spec/memory") },
}

local BUILDS = {
  ["asan"] = "make -s -j2 SAN=address hosts",
  ["asan-luajit"] = "make -s -j2 SAN=address hosts",
  ["tsan"] = "make -s -j2 SAN=thread hosts",
}

local DEADLINE = 900 -- seconds a suite may take; a hung one is a failure

local parsers = {}

function parsers.busted(text)
  local pass, fail, err, skip = text:match
    "(%d+) success%a* / (%d+) failure%a* / (%d+) error%a* / (%d+) pending"
  if not pass then return nil end
  return tonumber(pass), tonumber(fail) + tonumber(err), tonumber(skip)
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

local function run(name, suite)
  local log = ("%s/%s.log"):format(LOGS, name)
  if BUILDS[name] then
    local built = os.execute(("%s >%s 2>&1"):format(BUILDS[name], log))
    if not built then
      io.write(read(log))
      return 0, 1, 0
    end
  end
  local started = os.time()
  -- --kill-after: no suite and no child of it outlives its deadline.
  local ok = os.execute(("timeout --kill-after=10 %d sh -c %s >%s 2>&1 </dev/null")
    :format(DEADLINE, "'" .. suite.command:gsub("'", "'\\''") .. "'", log))
  local text = read(log)
  local pass, fail, skip = parsers[suite.kind](text)
  if not pass then pass, fail, skip = 0, 1, 0 end
  if not ok and fail == 0 then
    fail = 1
    if suite.kind == "command" then pass = 0 end
  end
  print(("%-14s %6d passed %4d failed %4d skipped  %4d s"):format(
    name, pass, fail, skip, os.time() - started))
  if fail > 0 then io.write(text:sub(-6000), "\n") end
  io.flush()
  return pass, fail, skip
end

-- Run only when named: instrumented builds take longer than
-- all the others together.
local LONG = { asan = true, ["asan-c"] = true, ["asan-luajit"] = true,
               tsan = true, ["tsan-c"] = true }

local function main(names)
  os.execute("mkdir -p " .. LOGS)
  local chosen = {}
  for _, name in ipairs(names) do chosen[name] = true end
  local pass, fail, skip = 0, 0, 0
  for _, entry in ipairs(suites) do
    if chosen[entry[1]] or #names == 0 and not LONG[entry[1]] then
      chosen[entry[1]] = nil
      local p, f, s = run(entry[1], entry[2])
      pass, fail, skip = pass + p, fail + f, skip + s
    end
  end
  for name in pairs(chosen) do
    io.stderr:write("scripts/test.lua: no suite \"", name, "\"\n")
    os.exit(2)
  end
  print(("%d passed, %d failed, %d skipped"):format(pass, fail, skip))
  os.exit(fail == 0 and pass > 0 and 0 or 1)
end

main(arg)
