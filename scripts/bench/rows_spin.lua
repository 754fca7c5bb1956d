--- The bench of how long idle threads spin: one device with all cores, a step
--- of many small parallel loops, alone and beside a process that never waits.
local report = require "report"
local rows_dist = require "rows_dist"
local worker = require "worker"

local M = {}

local ask = rows_dist.ask

-- As users run it; as libgomp does by itself; without spinning.
local SETTINGS = {
  { "bounded", "env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY " },
  { "libgomp's", "env -u OMP_WAIT_POLICY GOMP_SPINCOUNT=300000 " },
  { "none", "env -u GOMP_SPINCOUNT OMP_WAIT_POLICY=passive " },
}

-- A process that takes a core until it is stopped.
local function spinner()
  local pipe = io.popen "echo $$; while :; do :; done"
  local pid = pipe:read "*n"
  return function()
    os.execute(("kill %d"):format(pid))
    pipe:close()
  end
end

local function lines(bench, list, title, best, goal)
  local rounds = ask(bench, list, bench.short and 3 or 7)
  for i = 2, #SETTINGS do
    local name = SETTINGS[i][1]
    local r, why = bench.ratio(rounds, "bounded", name)
    local text = ("LSTM step, %s: bounded / %s"):format(title, name)
    if r == nil then
      report.failed(text, why)
    else
      r.inconclusive = bench.busy
      report.line(text, r, name == best and goal or nil)
    end
  end
end

local function spin(bench)
  local list = {}
  for _, setting in ipairs(SETTINGS) do
    local name, environment = setting[1], setting[2]
    list[#list + 1] = { name, worker.start(("%s%s/tfdist "
      .. "scripts/bench/ours_fit.lua"):format(environment, bench.build), true),
      "lstm 40" }
  end
  lines(bench, list, "quiet", "libgomp's", { at_most = 1.25 })
  local stop = spinner()
  bench.busy = false -- that is the point of it
  lines(bench, list, "busy", "none", { at_most = 2.5 })
  stop()
  for _, entry in ipairs(list) do worker.stop(entry[2]) end
end

--- A step beside a spinning process for each core --------------------------------

-- What a half share of each core may make of a step: 2, and what is lost.
local FAIR = 2.2

local function busy_lines(quiet, busy, list)
  for _, entry in ipairs(list) do
    local name = entry[1]
    local title = ("MLP step, %s: busy / quiet"):format(name)
    local why = quiet.failed[name] or busy.failed[name]
    if why then
      report.failed(title, why)
    elseif quiet[name] then
      local a, b = report.median(busy[name]), report.median(quiet[name])
      report.line(title, { ours = a, reference = b, ratio = a / b },
        name == "traced" and { at_most = FAIR } or nil)
    end
  end
end

local function beside(bench)
  local whole = rows_dist.ours_whole(bench)
  local list = {
    { "traced", whole, "traced mlp" }, { "eager", whole, "plain mlp" },
    { "TensorFlow", rows_dist.tensorflow(bench, 1, true), "step mlp" },
    { "JAX", rows_dist.jax(bench, 1, true), "step mlp" },
    { "PyTorch", rows_dist.torch(bench, "all"), "single mlp" },
  }
  local count, stops = bench.short and 3 or 7, {}
  local quiet = ask(bench, list, count)
  for core = 1, bench.cores do stops[core] = spinner() end
  bench.busy = false
  local busy = ask(bench, list, count)
  for _, stop in ipairs(stops) do stop() end
  busy_lines(quiet, busy, list)
  for _, entry in ipairs(list) do worker.stop(entry[2]) end
end

M.all = {
  { name = "beside", title = "steps beside a busy process for each core",
    run = beside },
  { name = "spin", title = "idle threads, alone and beside a busy process",
    run = spin },
}

return M
