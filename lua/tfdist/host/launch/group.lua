--- One run of a group of tasks, from the first start to the last end.
---
--- What happened is told by how and when the tasks ended, never by what they
--- wrote: `launch.next` says what the system says, in its order.
local errors = require "tfdist.base.errors"
local launch = require "tfdist.host".launch
local raw = require "tfdist.core.raw"

local M = {}

M.SIGNALS = { INT = 2, KILL = 9, PIPE = 13, TERM = 15 }
M.PEER_FAILED, M.CHIEF_LOST = errors.EXIT_PEER_FAILED, errors.EXIT_CHIEF_LOST
M.SAVED = 42
M.TIMED_OUT = 124 -- as timeout(1)

local GRACE = 5 -- seconds to SIGKILL
-- Seconds from a failure to SIGTERM and to SIGKILL for the rest. Ends that
-- others cause or share leave it time to end by itself, and to say why: of a
-- dead peer all hear within 2 s. Who is stopped hears nothing.
local AT_ONCE = { term = 0, kill = GRACE }
local BY_OTHERS = { term = 3, kill = GRACE }
local PATIENCE = { [M.PEER_FAILED] = BY_OTHERS, [M.CHIEF_LOST] = BY_OTHERS,
  [M.SAVED] = { term = 30, kill = 30 + GRACE } }
-- All got the launcher's signal: from the first end to SIGKILL, unless they save.
local AFTER_SIGNAL = 2 * GRACE
local BY_PEER = { [M.PEER_FAILED] = true, [M.CHIEF_LOST] = true }
local FOREVER = 3600
local LOOK = 1 -- at moments that come, so often

local Group = {}
Group.__index = Group

-- Ends ------------------------------------------------------------------------

function Group:each_alive(visit)
  for _, task in ipairs(self.tasks) do
    if task.id ~= nil and task.ended == nil then
      visit(task)
    end
  end
end

function Group:signal(number)
  self:each_alive(function(task)
    self.send(task, number)
  end)
end

local function sooner(a, b)
  return a == nil and b or math.min(a, b)
end

--- Stop what still runs; `served`: it has done what it was there for.
function Group:stop(served)
  if self.stopped_at == nil then
    self.stopped_at = raw.wall_time()
    self.served = served
    self.kill_at = sooner(self.kill_at, raw.monotonic() + GRACE)
    self:signal(M.SIGNALS.TERM)
  end
end

function Group:kill()
  self.stopped_at = self.stopped_at or raw.wall_time()
  self.kill_at = nil
  self:signal(M.SIGNALS.KILL)
end

-- Those that serve others until these are done: parameter servers, and workers
-- that have them and a chief.
local function serves(task, has)
  return task.job == "ps" or (task.job == "worker" and has.ps and has.chief)
end

function Group:check_servers()
  local has, busy = {}, false
  for _, task in ipairs(self.tasks) do
    has[task.job] = true
  end
  for _, task in ipairs(self.tasks) do
    busy = busy or (task.ended == nil and not serves(task, has))
  end
  if has.ps and not busy then
    self.served_at = sooner(self.served_at, raw.monotonic() + GRACE)
  end
end

function Group:on_exit(task, code, signal)
  task.ended = { code = code, signal = signal, at = raw.wall_time(),
    after = raw.monotonic() - task.started,
    stopped = self.stopped_at ~= nil, report = self.report_of(task) }
  if self.asked ~= nil then
    local saves = code == 0 or code == M.SAVED
    self.kill_at = sooner(self.kill_at, raw.monotonic()
      + (saves and PATIENCE[M.SAVED].kill or AFTER_SIGNAL))
  elseif code == 0 then
    self:check_servers()
  else
    local now, patience = raw.monotonic(), PATIENCE[code] or AT_ONCE
    self.stop_at = sooner(self.stop_at, now + patience.term)
    self.kill_at = sooner(self.kill_at, now + patience.kill)
  end
end

-- Signals to the launcher are for the tasks, too; the second one kills.
function Group:on_signal(number)
  if self.asked ~= nil then
    self.killed_by = number
    self:kill()
    return
  end
  self.asked = number
  self:signal(number)
end

-- The loop --------------------------------------------------------------------

local events = {}

function events.output(group, task, stream, bytes)
  group.on_output(task, stream, bytes)
end

function events.exit(group, task, code, signal)
  group:on_exit(task, code, signal)
end

function events.closed(_, task)
  task.closed = true
end

-- What is shown is lost, and why; nil = nobody reads it: as a program of a
-- pipeline.
function events.broken(group, _, why)
  group.asked = group.asked or M.SIGNALS.PIPE
  if why ~= nil then
    group.lost_output = why
  else
    group.killed_by = group.killed_by or M.SIGNALS.PIPE
  end
  group:stop()
end

function Group:deadlines(now)
  if self.until_at and now >= self.until_at then
    self.until_at, self.timed_out = nil, true
    self:stop()
  end
  if self.stop_at and now >= self.stop_at then
    self.stop_at = nil
    self:stop()
  end
  if self.served_at and now >= self.served_at then
    self.served_at = nil
    self:stop(true)
  end
  if self.kill_at and now >= self.kill_at then
    self:kill()
  end
end

-- Seconds until the next deadline, or until the next look.
function Group:time_to_wait(now)
  local at = now + FOREVER
  for _, field in ipairs { "until_at", "stop_at", "served_at", "kill_at" } do
    at = math.min(at, self[field] or at)
  end
  return at < now + FOREVER and math.max(0, math.min(at - now, LOOK)) or FOREVER
end

-- Time in which this process did not run is no time of the tasks': where all
-- are stopped together, they go on together.
function Group:forgive(seconds)
  for _, field in ipairs { "stop_at", "served_at", "kill_at" } do
    self[field] = self[field] and self[field] + seconds
  end
end

-- Have all ended, and is all that they wrote read?
function Group:is_over()
  for _, task in ipairs(self.tasks) do
    if task.id ~= nil and not task.closed then
      return false
    end
  end
  return true
end

function Group:watch()
  local now = raw.monotonic()
  while not self:is_over() do
    self:deadlines(now)
    local wait = self:time_to_wait(now)
    local kind, a, b, c = launch.next(wait)
    local late = raw.monotonic() - now - wait
    if wait < FOREVER and late > LOOK then
      self:forgive(late)
    end
    if kind == "signal" then
      self:on_signal(a)
    elseif kind ~= nil then
      events[kind](self, self.tasks[a], b, c)
    end
    now = raw.monotonic()
  end
end

-- The first cause -------------------------------------------------------------

-- When and how a task failed by itself; nil when it did not.
local function failure_of(task, stopped_at)
  local e = task.ended
  if e == nil or e.code == 0 then
    return nil
  elseif not e.stopped then
    return { task = task, code = e.code, signal = e.signal,
      at = e.report and e.report.at or e.at }
  elseif e.report and e.report.at < stopped_at then
    return { task = task, code = e.report.code, at = e.report.at }
  end
  return nil
end

-- Who fails because of a peer is not the first, whatever the clock says.
local function is_before(a, b)
  local a_peer, b_peer = BY_PEER[a.code] or false, BY_PEER[b.code] or false
  if a_peer ~= b_peer then
    return b_peer
  end
  return a.at < b.at
end

--- The first failure { task, code, signal, at }, nil when all went well.
function Group:first_failure()
  local first
  for _, task in ipairs(self.tasks) do
    local failure = failure_of(task, self.stopped_at)
    if failure ~= nil and (first == nil or is_before(failure, first)) then
      first = failure
    end
  end
  return first
end

--- Run tasks until all have ended.
---
--- config: tasks; start(task) -> id or nil, message; send(task, signal);
--- on_output(task, stream, bytes); report_of(task) -> { at, code, text } or nil;
--- until_at, a moment of raw.monotonic() or nil.
---@return table  group with asked, killed_by (signals), timed_out, and
---  first_failure()
function M.run(config)
  local group = setmetatable(config, Group)
  for _, task in ipairs(group.tasks) do
    local id, why = group.start(task)
    if id == nil then
      group.failed_start = why
      group:kill()
      break
    end
    task.id, task.started = id, raw.monotonic()
  end
  group:watch()
  launch.forget()
  return group
end

return M
