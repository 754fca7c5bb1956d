--- The bench of bad connections: steps of two workers over TCP, with and without
--- strangers at the chief's port. The strangers are of this machine, and take
--- of its cores: a second line holds the same steps against those beside as many
--- attempts at a port where nobody listens.
local report = require "report"
local worker = require "worker"

local M = {}

local GOAL = { at_most = 1.03 }
-- Few, and many pairs of them: what a machine does meanwhile is in both.
local STEPS, PAIRS = 60, 25

-- Free ports of the workers, and one that stays free.
local function ports(bench)
  local list = {}
  local pipe = io.popen(bench.build
    .. "/tfdist run --dry-run -n 3 scripts/bench/strangers.lua")
  for port in pipe:read "a":gmatch '"127%.0%.0%.1:(%d+)"' do
    list[#list + 1] = port
  end
  pipe:close()
  return list
end

-- Each has a core of its own, as mpirun's have: those that wake each other are
-- put on one.
local function start(bench)
  local list = ports(bench)
  local one = ([[env OMP_NUM_THREADS=1 TFDIST_THREADS=1 TFDIST_TRANSPORT=tcp \
    TF_CONFIG="{\"cluster\": {\"worker\": [\"127.0.0.1:%s\", \
    \"127.0.0.1:%s\"]}, \"task\": {\"type\": \"worker\", \"index\": %%d}}" \
    %s %s/tfdist scripts/bench/strangers.lua %s/bench/knock %s %s]]):format(
    list[1], list[2], bench.cores > 1 and "taskset -c %d" or "", bench.build,
    bench.build, list[1], list[3])
  return worker.start(("sh -c '%s & exec %s' 2>>%s/bench/peers.log"):format(
    one:format(1, 1), one:format(0, 0), bench.build), true)
end

local function strangers(bench)
  local chief = start(bench)
  local pairs_n = bench.short and PAIRS // 3 or PAIRS
  local function line(title, request)
    local r, why = bench.compare(chief:asking("flood " .. STEPS),
      chief:asking(request .. " " .. STEPS), false, pairs_n)
    if r == nil then
      report.failed(title, why)
    else
      r.inconclusive = r.inconclusive or bench.busy
      report.line(title, r, GOAL)
    end
  end
  line("step, 1,000 bad connections/s", "quiet")
  line("  as many at the workers' port / at another", "elsewhere")
  worker.stop(chief)
end

M.all = {
  { name = "strangers", title = "steps while strangers knock at the port",
    run = strangers },
}

return M
