--- `tfdist status [FOLDER]`: what the workers of a run are doing, from the
--- records that they keep while they run.
local errors = require "tfdist.base.errors"
local logs = require "tfdist.host.launch.logs"
local raw = require "tfdist.core.raw"
local records = require "tfdist.host.records"

local USAGE = [[
usage: tfdist status [FOLDER]    what the workers of a run are doing
FOLDER is that of the run's logs (--log-dir), by default the newest one's; or
what TFDIST_FLIGHT names. Status 1 when none of its workers runs here.]]

-- Records ---------------------------------------------------------------------

-- Of the last start of the run: files, and how often all were started again.
local function last_start(folder)
  local list, restart = {}, 0
  for _, path in ipairs(records.files_of { folder }) do
    local n = records.start_of(path)
    if n > restart then
      list, restart = {}, n
    end
    if n == restart then
      list[#list + 1] = path
    end
  end
  return list, restart
end

local function name_of_machine()
  local f = io.open "/proc/sys/kernel/hostname"
  local name = f and f:read "l" or ""
  if f then
    f:close()
  end
  return name
end

-- "runs", "has ended", or nil where that is for another machine to say.
local function life(flight)
  if flight.host ~= name_of_machine() then
    return nil
  end
  local f = io.open(("/proc/%s/stat"):format(flight.pid))
  local state = f and f:read "l":match "^.*%)%s+(%S)" or "X"
  if f then
    f:close()
  end
  return (state == "X" or state == "Z") and "has ended"
    or state == "T" and "is stopped" or "runs"
end

-- Seconds between two calls of a process's last collective from its line: the
-- median; nil when there are too few.
local function step_seconds(flight)
  local last, _, id = records.last_of(flight)
  local group, times, gaps = last and flight.groups[id], {}, {}
  for _, number in ipairs(group and records.numbers_of(group) or {}) do
    local record = group[number]
    if record.words == last.words and record.place == last.place then
      times[#times + 1] = record.begun
    end
  end
  for i = 2, #times do
    gaps[i - 1] = (times[i] - times[i - 1]) / 1e6
  end
  table.sort(gaps)
  return gaps[1] and gaps[math.floor(#gaps / 2) + 1]
end

-- Words -----------------------------------------------------------------------

local function duration(seconds)
  if seconds >= 1 then
    return ("%.1f s"):format(seconds)
  elseif seconds >= 1e-3 then
    return ("%.1f ms"):format(seconds * 1e3)
  end
  return ("%.0f us"):format(math.max(seconds, 0) * 1e6)
end

-- The furthest collective of a group that any process has begun.
local function furthest(flights, id)
  local most = 0
  for _, flight in ipairs(flights) do
    local group = flight.groups[id]
    most = math.max(most, group and group.last or 0)
  end
  return most
end

-- What a process does, by its last collective.
local function activity(flight, flights, now)
  local last, number, id = records.last_of(flight)
  if last == nil then
    return "has come to no collective"
  end
  local where = ("collective %d, %s"):format(number, records.calls(last))
  local since = duration(now - math.max(last.begun, last.ended) / 1e6)
  if last.state == "begun" then
    return ("is in %s, for %s"):format(where, since)
  end
  return ("%sended %s, %s ago"):format(number < furthest(flights, id)
    and "keeps others waiting; " or "", where, since)
end

local function show(flight, flights, now)
  local alive = life(flight)
  print(("process %d of %d (pid %s on %s)%s"):format(flight.process,
    flight.processes, flight.pid, flight.host, alive and " " .. alive or ""))
  print("  " .. activity(flight, flights, now))
  local step = step_seconds(flight)
  if step ~= nil then
    print("  comes there every " .. duration(step))
  end
  if flight.cause ~= "" then
    print("  failed: " .. flight.cause)
  end
  return alive ~= nil and alive ~= "has ended"
end

-- The newest folder of logs; nil and where it was looked for.
local function newest_folder()
  local root, newest, newest_at = logs.root(), nil, ""
  local found, list = pcall(raw.folder_list, root)
  for name in (found and list or ""):gmatch "[^%z]+" do
    local at, pid = name:match "^(%d+%-%d+)%-(%d+)$"
    at = at and at .. ("-%09d"):format(pid)
    if at and at > newest_at then
      newest, newest_at = name, at
    end
  end
  return newest and root .. "/" .. newest, root
end

local function fail(text)
  io.stderr:write("tfdist status: ", text, "\n")
  return errors.EXIT_USAGE
end

--- 0 when a worker runs, 1 when none does, 2 for a folder without records.
return function(folder, more)
  if more ~= nil or (folder or ""):sub(1, 1) == "-" then
    io.stderr:write(USAGE, "\n")
    return errors.EXIT_USAGE
  end
  local root
  if folder == nil then
    folder, root = newest_folder()
  end
  if folder == nil then
    return fail("no logs of runs in " .. root)
  end
  local listed, files, restart = pcall(last_start, folder)
  if not listed then
    return fail(tostring(files))
  end
  local flights, why = records.read_all(files)
  if flights == nil then
    return fail(tostring(why))
  elseif #flights == 0 then
    return fail("no records of workers in " .. folder)
  end
  print(("%s: %d workers%s"):format(folder, flights[1].processes, restart > 0
    and (", all started again %d time%s"):format(restart, restart == 1 and ""
      or "s") or ""))
  local now, running = raw.wall_time(), false
  for _, flight in ipairs(flights) do
    running = show(flight, flights, now) or running
  end
  return running and 0 or 1
end
