--- The host's commands: `tfdist devices`, `doctor`, `version`, `help`.
---
--- `main(name, ...)` returns the exit code, or nil when there is no such
--- command and the word must be a script. A file tfdist/host/commands/NAME.lua
--- that returns a function adds the command NAME.
local errors = require "tfdist.base.errors"
local help = require "tfdist.host.help"
local launch_options = require "tfdist.host.launch.options"
local raw = require "tfdist.core.raw"

local M = {}

local searchpath = rawget(package, "searchpath")
local DATASET = "/usr/share/datasets/fashion-mnist/"
  .. "train-images-idx3-ubyte.gz"

-- The host's own module; nil when this runs in a plain interpreter.
local has_host, host = pcall(require, "tfdist.host")
if not has_host then
  host = nil
end

--- Version line of this host, "tfdist 0.1.0 · Lua 5.4.4".
function M.version()
  return ("tfdist %s, %s"):format(raw.version(), host and host.lua or _VERSION)
end

-- The machine ----------------------------------------------------------------

local function read_file(path)
  local f = io.open(path, "rb")
  if not f then
    return nil
  end
  local text = f:read("*a")
  f:close()
  return text
end

-- "AVX-512": the widest vector unit that /proc/cpuinfo names.
local function vector_unit(info)
  local flags = " " .. (info:match("flags%s*:([^\n]*)") or "") .. " "
  for _, unit in ipairs { { "avx512f", "AVX-512" }, { "avx2", "AVX2" },
    { "asimd", "NEON" }, { "sse2", "SSE2" } } do
    if flags:find(" " .. unit[1] .. " ", 1, true) then
      return unit[2]
    end
  end
  return nil
end

-- "AMD EPYC 7B13, 23.5 GiB, AVX-512"
local function machine()
  local info = read_file("/proc/cpuinfo") or ""
  local name = info:match("model name%s*:%s*([^\n]*)") or "CPU"
  local kib = tonumber((read_file("/proc/meminfo") or ""):match(
    "MemTotal:%s*(%d+)"))
  local parts = { name }
  if kib then
    parts[#parts + 1] = ("%.1f GiB"):format(kib / 2 ^ 20)
  end
  parts[#parts + 1] = vector_unit(info)
  return table.concat(parts, ", ")
end

-- What other devices are: "NVIDIA H200, 139.8 GiB".
local function accelerator(device)
  local model, memory = raw.device_describe(device)
  return memory > 0 and ("%s, %.1f GiB"):format(model, memory / 2 ^ 30) or model
end

-- Plug-ins that cannot be used: lists of name, reason and file.
local function refused()
  local list = {}
  for i = 0, raw.backend_count() - 1 do
    local name, _, _, path, reason = raw.backend_at(i)
    if reason ~= "" then
      list[#list + 1] = { name, reason, path }
    end
  end
  return list
end

-- Who adds up what GPUs have, or why it is not NCCL.
local function between_gpus()
  local whole = 0
  for i = 0, raw.backend_count() - 1 do
    local _, kind, n = raw.backend_at(i)
    whole = whole + (kind == "GPU" and n or 0)
  end
  if whole == 1 then
    return "through the host, for they are parts of one GPU"
  end
  local parts = whole < raw.device_count "GPU"
    and "; through the host where some are parts of one GPU" or ""
  for i = 0, raw.provider_count() - 1 do
    local name, _, reason = raw.provider_at(i)
    if name:find "^nccl_" then
      return reason == "" and "NCCL" .. parts or reason
    end
  end
  return "no plug-in for NCCL"
end

-- Devices that are what they say, and those that stand in for them in tests.
local function count_gpus()
  local real, others = 0, 0
  for i = 0, raw.device_count("GPU") - 1 do
    if raw.device_describe(raw.device_at("GPU", i)):find "^stand%-in" then
      others = others + 1
    else
      real = real + 1
    end
  end
  return real, others
end

-- Commands -------------------------------------------------------------------

local commands = {}

function commands.version()
  print(M.version())
  return 0
end

--- One line for each logical device.
function commands.devices()
  local n, cpus = raw.device_count(""), raw.device_count("CPU")
  local total = 0
  for i = 0, cpus - 1 do
    total = total + raw.device_threads(raw.device_at("CPU", i))
  end
  for i = 0, n - 1 do
    local d = raw.device_at("", i)
    local threads = raw.device_threads(d)
    print(("%-8s %s"):format(raw.device_short_name(d),
      i >= cpus and accelerator(d) or ("%d core%s%s"):format(threads,
        threads == 1 and "" or "s", i == 0 and " of " .. machine() or "")))
  end
  if cpus == 1 and total > 1 then
    local list = {}
    for i = 0, total - 1 do
      list[#list + 1] = "/cpu:" .. i
    end
    print(("%-8s --cpu-devices=%d would give %s, one core each"):format("",
      total, total <= 8 and table.concat(list, " ")
        or list[1] .. " ... " .. list[total]))
  end
  if raw.device_count("GPU") == 0 then
    print("/gpu     none")
  end
  for _, plugin in ipairs(refused()) do
    print(("%-8s %s: %s"):format("", plugin[1], plugin[2]))
  end
  if raw.device_count("GPU") > 1 then
    print(("%-8s sums between GPUs: %s"):format("", between_gpus()))
  end
  return 0
end

-- Checks of `doctor`: each returns "ok", "--", "warn" or "FAIL", what was
-- seen, and what to do about it.
local checks = {}

checks[#checks + 1] = function()
  return "ok", ("%s, core built with %s"):format(M.version(),
    host and host.compiler and "gcc " .. host.compiler:match("^%S+")
      or "an unknown compiler")
end

checks[#checks + 1] = function()
  local path = searchpath("tfdist.core", package.cpath)
  if path then
    return "ok", "module for plain interpreters at " .. path
  end
  return "--", "no module for plain interpreters on package.cpath",
    "LUA_CPATH names none; of rocks: eval \"$(luarocks path)\""
end

checks[#checks + 1] = function()
  local tf = require "tfdist"
  local n = 256
  local a = tf.ones { n, n }
  local b = tf.matmul(a, a)
  assert(b:item(0) == n, "matmul gave a wrong product")
  local begin, rounds = os.clock(), 0
  repeat
    b = tf.matmul(a, a)
    b:item(0)
    rounds = rounds + 1
  until os.clock() - begin > 0.2
  local flops = 2 * n ^ 3 * rounds / (os.clock() - begin)
  return "ok", ("matrix product, self-test %.0f GFLOP/s of processor time")
    :format(flops / 1e9)
end

checks[#checks + 1] = function()
  local tf = require "tfdist"
  local done, root = pcall(function() -- a queue says so when it is read
    return tf.linalg.cholesky({ { 4 } }):item()
  end)
  if not done and errors.is_error(root) and root.kind == "Unavailable" then
    return "--", "no LAPACK for tf.linalg", root.hint
  end
  assert(done and root == 2, "LAPACK gave a wrong factor")
  return "ok", "LAPACK, self-test"
end

checks[#checks + 1] = function()
  if read_file(DATASET) then
    return "ok", DATASET:match("^(.*)/")
  end
  return "--", "no data set for the examples",
    "apt-get install dataset-fashion-mnist"
end

checks[#checks + 1] = function()
  local real, others = count_gpus()
  if others > 0 then
    return "warn", others .. " stand-in(s) for GPUs, which are none: results "
      .. "are a processor's", "unset TFDIST_CUDA_STANDIN"
  elseif real > 0 then
    return "ok", real .. " GPU(s)"
  end
  for i = 0, raw.backend_count() - 1 do
    if raw.backend_at(i) == "cuda" then return "--", "no GPU in use" end
  end
  return "--", "no GPU in use, and no plug-in for CUDA",
    "in the sources: scripts/packages cuda && make"
end

checks[#checks + 1] = function()
  local parts = {}
  for _, plugin in ipairs(refused()) do
    parts[#parts + 1] = ("%s (%s): %s"):format(plugin[1], plugin[3], plugin[2])
  end
  if #parts > 0 then
    return "warn", "back ends that cannot be used: " .. table.concat(parts, "; ")
  end
  return nil
end

checks[#checks + 1] = function()
  local good, bad = {}, {}
  for i = 0, raw.provider_count() - 1 do
    local name, path, reason = raw.provider_at(i)
    if reason == "" then
      good[#good + 1] = name
    else
      bad[#bad + 1] = ("%s (%s): %s"):format(name, path, reason)
    end
  end
  if #bad > 0 then
    return "--", "collectives that cannot be used: " .. table.concat(bad, "; ")
  end
  return "ok", "collectives: " .. table.concat(good, ", ")
end

checks[#checks + 1] = function()
  local p = io.popen("lua -v 2>&1")
  local text = p and p:read("*l") or ""
  if p then
    p:close()
  end
  local version = text:match("^Lua (%d+%.%d+)")
  if version and version ~= "5.4" then
    return "warn", "`lua` is Lua " .. version .. " here; write lua5.4"
  end
  return nil
end

checks[#checks + 1] = function()
  if os.getenv("TF_CONFIG") then
    return "warn", "TF_CONFIG is set in this shell: scripts with a "
      .. "multi-worker strategy will wait for their peers"
  end
  return nil
end

--- Look at the installation; 1 when something is broken.
function commands.doctor()
  local count, warnings, broken = 0, 0, 0
  for _, check in ipairs(checks) do
    local done, state, text, advice = pcall(check)
    if not done then
      state, text, advice = "FAIL", tostring(state):gsub("\n.*", ""), nil
    end
    if state then
      count = count + 1
      warnings = warnings + (state == "warn" and 1 or 0)
      broken = broken + (state == "FAIL" and 1 or 0)
      print(("%-5s %s"):format(state, advice and ("%-44s %s"):format(text,
        advice) or text))
    end
  end
  print(("%d checks, %d warning%s, %s"):format(count, warnings,
    warnings == 1 and "" or "s", broken == 0 and "nothing broken"
      or broken .. " broken"))
  return broken == 0 and 0 or 1
end

local USAGE = [=[
usage: tfdist [options] [script.lua [args...]]        run a script
       tfdist [options]                               prompt (on a terminal)
       tfdist run -n N script.lua [args...]           start many workers
       tfdist ckpt ls|verify PATH...                  look into checkpoints
       tfdist events ls|plot RUN [TAG...]             look at tf.summary files
       tfdist status [FOLDER]                         what workers are doing
       tfdist flight FILE...                          where workers part
       tfdist config check                            the cluster of TF_CONFIG
       tfdist config costs [WORKERS [HOSTS]]          what sums between them cost
       tfdist devices | doctor | version | help [topic]

Lua options (as in lua):   -e STAT  -l MOD  -l g=MOD  -i  -v  -E  -W  -  --
  (tfdist is the Lua 5.4 host, tfdist-luajit the LuaJIT one: same options)
  --strict[=error]         warn about (or refuse) undeclared globals
Devices:
  --cpu-devices=N          split this machine's CPU into N logical devices
  --threads=N              cores for each device
  --memory-limit=SIZE      most memory of each device: 512M, 16GiB
  --queue=auto|inline|queued   how devices run their work
Seeing:
  --log=error|warning|info|debug     --full-traceback
  --progress=auto|bar|lines|none     how fit shows its progress
  --profile[=FILE]         a timeline for ui.perfetto.dev (tfdist-trace.json)
  --version  --help  --failpoints
Safety:
  --allow-bytecode         let load and require take bytecode
A script called like a command is run with ./NAME.
Topics: env run]=]

local TOPICS = { run = launch_options.USAGE }

TOPICS.env = [[
TFDIST_CPU_DEVICES=N       as --cpu-devices
TFDIST_GPU_DEVICES=N       split each GPU into N logical devices
TFDIST_PLUGINS=PLACES      files or folders of plug-ins, between colons
TFDIST_LAPACK_LIBRARIES=FOLDER   liblapacke.so.3 and libopenblas.so.0 from there
TFDIST_THREADS=N           as --threads
TFDIST_QUEUE=MODE          as --queue
TFDIST_LOG=LEVEL           as --log
TFDIST_PROGRESS=FORM       as --progress
TFDIST_MEMORY_LIMIT=SIZE   as --memory-limit
TFDIST_CORES=N             cores that the process takes at most
TFDIST_FUSION=0            traced functions run every op by itself
TFDIST_PLAN=0              and give every value memory of its own
TFDIST_CUDA_GRAPHS=0       and launch every op on a GPU by itself
TFDIST_CUDA_LIBRARIES=FOLDERS   where cuBLASLt, cuDNN, NVRTC and NCCL are, too
TFDIST_CUBIN_CACHE=FOLDER, 0    kernels of traced functions, kept there or not
TFDIST_CUBIN_CACHE_BYTES=N      at most so many bytes of them (64 MiB)
TFDIST_STRICT_FP32=1       float32 products on GPUs without TF32
TFDIST_FFI=0               no FFI fast paths (LuaJIT)
TFDIST_ERROR_FILE=FILE     where an uncaught error is written, too
TFDIST_RESTART=N           set by run: how often all were started again
TFDIST_TASK=NAME           set by run: what the task's files are called like
TFDIST_RETURN_AFTER=N      set by run: after so many epochs fit (or end_epoch of
                           a PreemptionCheckpointHandler) ends with 42, so that
                           workers that were left out can come back
TFDIST_AUTO_CLUSTER=0      of clusters only TF_CONFIG is looked at
TFDIST_SECRET=TEXT         what all workers of a cluster know
TFDIST_SECRET_FILE=PATH    a file with it, of mode 0600
TFDIST_INSECURE=1          no secret between machines
TFDIST_TRANSPORT=NAME      who moves bytes between workers: shm, tcp,
                           ring, halving, doubling (over TCP too),
                           hierarchical (shm in hosts, TCP between), mpi
TFDIST_MPI=BUILD           which MPI: openmpi, mpich (default: who started us)
TFDIST_RENDEZVOUS_TIMEOUT=S   seconds that workers wait for each other (300)
TFDIST_HEARTBEAT_TIMEOUT=S    seconds that a worker may be silent (10)
TFDIST_OP_TIMEOUT=S        seconds that workers wait in an operation (600)
TFDIST_STALL_WARN=S        seconds after which a wait names who is late (30)
TFDIST_OVERLAP=1, 0        sums of gradients while the rest is computed, or not
TFDIST_FLIGHT=FOLDER       what workers do together is recorded there
TFDIST_DEV=DIR             the Lua library from DIR instead of the host
TFDIST_CUDA_STANDIN=FOLDER   libraries that stand in for a GPU's (tests)
TFDIST_FAIL_ALLOC=N        the N-th allocation fails (tests)
TFDIST_FAILPOINTS=ORDERS   faults at named places: tfdist --failpoints (tests)
LUA_INIT LUA_PATH LUA_CPATH (and LUA_INIT_5_4 ...)   as in lua]]

TOPICS.devices = "usage: tfdist devices    what there is to compute on"
TOPICS.doctor = "usage: tfdist doctor    what is installed, and what to do about "
  .. "what is not"
TOPICS.version = "usage: tfdist version"
TOPICS.help = "usage: tfdist help [TOPIC]    topics: env, run, devices, doctor, "
  .. "version; tf.NAME of the library"

-- The value of "tf.data.Dataset".
local function value_of(path)
  local value = { tf = require "tfdist" }
  for name in path:gmatch "[^.]+" do
    value = value[name]
  end
  return value
end

--- Usage, or one topic.
function commands.help(topic)
  if topic == nil then
    print(USAGE)
    return 0
  elseif TOPICS[topic] then
    print(TOPICS[topic])
    return 0
  elseif topic:find "^tf[.:]" or topic == "tf" then
    local ok, text = pcall(help.about, topic, value_of)
    if ok and text ~= nil then
      print(text)
      return 0
    elseif errors.is_error(text) and text.hint ~= nil then
      io.stderr:write(("tfdist help: %s; %s\n"):format(text.message, text.hint))
      return 2
    end
  end
  io.stderr:write(("tfdist help: no topic %q; there are: env, run, "
    .. "devices, doctor, version, and names as tf.matmul\n"):format(topic))
  return 2
end

local TAKES_NONE = { devices = true, doctor = true, version = true }

-- A command that another part of the library brings.
local function find_extra(name)
  if not name:find("^%a+$") then
    return nil
  end
  local module = "tfdist.host.commands." .. name
  local there = host and host.source(module:gsub("%.", "/") .. ".lua")
    or searchpath(module, package.path)
  return there and require(module) or nil
end

--- Run a command with its arguments.
---@param name string
---@return integer? exit code; nil when there is no such command
function M.main(name, ...)
  local command = commands[name] or find_extra(name)
  if command == nil then
    return nil
  end
  local first = ...
  local asks = first == "--help" or first == "-h"
  if asks and TOPICS[name] then
    print(TOPICS[name])
    return 0
  elseif first ~= nil and TAKES_NONE[name] then
    io.stderr:write(("tfdist %s: it takes no arguments, got %q\n%s\n"):format(
      name, first, TOPICS[name]))
    return 2
  end
  local done, code = pcall(command, ...)
  if done then
    return not asks and code or 0 -- the others show their usage
  elseif errors.is_error(code) and code.kind ~= "Cancelled" then
    io.stderr:write("tfdist ", name, ": ", tostring(code), "\n")
    return 1
  end
  error(code, 0)
end

return M
