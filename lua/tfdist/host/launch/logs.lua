--- What the tasks write, in files: all of it, as it came, while there is room.
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local tasks = require "tfdist.host.launch.tasks"

local M = {}

local SHOWN = 20 -- last lines of stderr that stand for a missing report
local KEPT = 16384 -- bytes that they are looked for in
local MOST_REPORT = 2 ^ 16

--- Where the folders of runs are that were given none.
function M.root()
  local state = os.getenv "XDG_STATE_HOME"
  if state == nil or state == "" then
    state = (os.getenv "HOME" or "") .. "/.local/state"
  end
  return state .. "/tfdist/logs"
end

-- A name of its own for this run: time and process.
local function default_folder()
  local stat = io.open "/proc/self/stat"
  local pid = stat and stat:read "*n" or 0
  if stat then
    stat:close()
  end
  return ("%s/%s-%d"):format(M.root(), os.date "%Y%m%d-%H%M%S", pid)
end

-- Files of one task -----------------------------------------------------------

local Log = {}
Log.__index = Log

function Log:write(stream, bytes)
  if stream == 2 then
    self.last = (self.last .. bytes):sub(-KEPT)
  end
  if self.file == nil then
    return
  end
  local done, why = self.file:write(bytes)
  if done then
    done, why = self.file:flush()
  end
  if not done then
    self.is_partial = true
    self.say(("the log of %s is incomplete: %s: %s"):format(self.name, self.path,
      why))
    self:close()
  end
end

function Log:close()
  if self.file then
    self.file:close()
    self.file = nil
  end
end

--- What the task's host said when it died of an error, { at, code, text }.
function Log:report()
  local file = self.error_file and io.open(self.error_file, "rb")
  if not file then
    return nil
  end
  local at, code, text = (file:read(MOST_REPORT) or ""):match(
    "^(%d+%.%d+) (%d+)\n(.*)$")
  file:close()
  if at == nil then
    return nil
  end
  return { at = tonumber(at), code = tonumber(code), text = text }
end

--- The last lines of its stderr; of a crash the first, which say what it was and
--- where the script was.
function Log:tail()
  local lines = {}
  for line in (self.last:gsub("\n+$", "") .. "\n"):gmatch "([^\n]*)\n" do
    lines[#lines + 1] = line:gsub("\r+$", ""):match "[^\r]*$"
  end
  local first = math.max(1, #lines - SHOWN + 1)
  for i, line in ipairs(lines) do
    if line:find "^tfdist: SIG%u+, " then
      first = i
    end
  end
  return table.concat(lines, "\n", first, math.min(#lines, first + SHOWN - 1))
end

-- Folder ----------------------------------------------------------------------

local Logs = {}
Logs.__index = Logs

-- Of the run before, which may have had more workers.
function Logs:forget_flights()
  for name in (self.folder and raw.folder_list(self.folder) or "")
    :gmatch "[^%z]+" do
    if name:find "^process%-%d+.*%.flight$" then
      os.remove(self.folder .. "/" .. name)
    end
  end
end

--- Files below `folder`, which must be possible; without it below the XDG state
--- folder, or nowhere, which is said.
function M.new(folder, say)
  local self = setmetatable({ folder = folder or default_folder(), say = say },
    Logs)
  local done, e = pcall(raw.folder_make, self.folder)
  if not done and not errors.is_error(e) then
    error(e, 0)
  elseif not done and folder then
    errors.raise_usage(e.kind, "--log-dir: " .. e.message, e.hint)
  elseif not done then
    say("what the tasks write is not kept: " .. e.message)
    self.folder = nil
  end
  self:forget_flights()
  return self
end

--- Begin the files of a task's `restart`-th restart.
function Logs:open(task, restart)
  local log = setmetatable({ name = task.name, say = self.say, last = "" }, Log)
  if self.folder then
    local base = self.folder .. "/" .. tasks.file(task, restart)
    local why
    os.remove(base .. ".error")
    log.error_file = base .. ".error"
    log.path = base .. ".log"
    log.file, why = io.open(log.path, "wb")
    if not log.file then
      log.is_partial = true
      self.say("what " .. task.name .. " writes is not kept: " .. why)
    end
  end
  return log
end

return M
