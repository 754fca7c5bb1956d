--- How a run of tasks ended, in words.
local groups = require "tfdist.host.launch.group"

local M = {}

local SIGNAL_NAMES = { [1] = "SIGHUP", [2] = "SIGINT", [3] = "SIGQUIT",
  [4] = "SIGILL", [6] = "SIGABRT", [7] = "SIGBUS", [8] = "SIGFPE",
  [9] = "SIGKILL", [11] = "SIGSEGV", [13] = "SIGPIPE", [15] = "SIGTERM",
  [24] = "SIGXCPU", [25] = "SIGXFSZ", [31] = "SIGSYS" }
-- Ends of workers that were to do something together.
local TOGETHER = { [75] = true, [76] = true, [77] = true }
local LINE = ("\226\148\128"):rep(8)

--- "worker 0, worker 1 and worker 2"
function M.list_of(names)
  if #names < 2 then
    return names[1]
  end
  return table.concat(names, ", ", 1, #names - 1) .. " and " .. names[#names]
end

local function how(code, signal)
  if signal then
    return ("signal %d%s"):format(signal, SIGNAL_NAMES[signal]
      and ", " .. SIGNAL_NAMES[signal] or "")
  end
  return "exit " .. code
end

local function duration(seconds)
  if seconds < 100 then
    return ("%.1f s"):format(seconds)
  end
  return ("%d:%02d:%02d"):format(math.floor(seconds / 3600),
    math.floor(seconds / 60) % 60, math.floor(seconds) % 60)
end

-- "; worker 0 was stopped, worker 2 ended with 75": all others that did not end
-- well.
local function others(first, all)
  local stopped, parts = {}, {}
  for _, task in ipairs(all) do
    local e = task.ended
    if task ~= first and e and e.code ~= 0 then
      if e.stopped then
        stopped[#stopped + 1] = task.name
      else
        parts[#parts + 1] = task.name .. " ended with " .. e.code
      end
    end
  end
  if #stopped > 0 then
    table.insert(parts, 1, M.list_of(stopped)
      .. (#stopped == 1 and " was" or " were") .. " stopped")
  end
  return #parts > 0 and "; " .. table.concat(parts, ", ") or ""
end

--- "worker 1 failed first (exit 1, after 12.4 s); worker 0 was stopped"
function M.sentence(first, all)
  local task = first.task
  return ("%s %s (%s, after %s)%s"):format(task.name,
    first.code == groups.SAVED and "asks to be started again"
      or #all > 1 and "failed first" or "failed",
    how(first.code, first.signal), duration(task.ended.after),
    others(task, all))
end

-- "~/logs/{chief,worker-{0,1}}.log"
local function log_files(all, folder)
  local jobs, by_job = {}, {}
  for _, task in ipairs(all) do
    if by_job[task.job] == nil then
      by_job[task.job] = {}
      jobs[#jobs + 1] = task.job
    end
    if task.file ~= task.job then
      table.insert(by_job[task.job], task.index)
    end
  end
  for i, job in ipairs(jobs) do
    local n = #by_job[job]
    jobs[i] = job .. (n == 0 and "" or n == 1 and "-" .. by_job[job][1]
      or ("-{%s}"):format(n <= 4 and table.concat(by_job[job], ",")
        or by_job[job][1] .. ".." .. by_job[job][n]))
  end
  local home = os.getenv "HOME"
  if home and home ~= "" and folder:sub(1, #home + 1) == home .. "/" then
    folder = "~" .. folder:sub(#home + 1)
  end
  return ("%s/%s.log"):format(folder, #jobs == 1 and jobs[1]
    or "{" .. table.concat(jobs, ",") .. "}")
end

-- Where they are, and of whom they have not all.
local function about_logs(all, folder)
  local partial = {}
  for _, task in ipairs(all) do
    if task.log and task.log.is_partial then
      partial[#partial + 1] = task.name
    end
  end
  return #partial == 0 and "full logs: " .. log_files(all, folder)
    or ("logs: %s; incomplete: %s"):format(log_files(all, folder),
      M.list_of(partial))
end

--- The end of a run that failed: who was first, its error, where all the rest
--- is.
function M.failure(first, all, logs)
  local task = first.task
  local text = task.ended.report and task.ended.report.text or task.log:tail()
  return ("tfdist run: %s.\n%s %s %s\n%s\n%s"):format(
    M.sentence(first, all), LINE, task.name, LINE,
    text ~= "" and (text:gsub("\n+$", ""))
      or "it has written nothing to stderr",
    logs.folder and about_logs(all, logs.folder) .. "\n"
      .. (TOGETHER[first.code] and "what they did together: tfdist flight "
      .. logs.folder .. "\n" or "") or "")
end

function M.timed_out(seconds, all)
  return ("not done after %s%s"):format(duration(seconds), others(nil, all))
end

return M
