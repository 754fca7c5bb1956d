--- Programs that answer requests: a line in, a line of numbers out. While one
--- is asked, all others are stopped (SIGSTOP), with what they started: threads
--- that spin or wait by polling cost it nothing. Who waited for one that was
--- stopped has nothing to say about it.
local M = {}

local prefix = ""
local QUIET = "env TFDIST_STALL_WARN=86400 "

local live = {} -- the workers that were started and not ended
local answering -- the one that is not stopped, once one was asked

--- Run what is started from now on on this core alone, with one thread.
function M.pin(core)
  prefix = ("env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TFDIST_THREADS=1 "
    .. "taskset -c %d "):format(core)
end

local Worker = {}
Worker.__index = Worker

-- Signals --------------------------------------------------------------------

-- The process and all below it, parents first.
local function family(pid)
  local below, pipe = {}, io.popen "ps -e -o pid=,ppid="
  for child, parent in pipe:read("a"):gmatch "(%d+)%s+(%d+)" do
    below[parent] = below[parent] or {}
    table.insert(below[parent], child)
  end
  pipe:close()
  local list = { pid }
  for _, each in ipairs(list) do -- grows on the way
    for _, child in ipairs(below[each] or {}) do list[#list + 1] = child end
  end
  return list
end

local function signal(name, pids)
  -- What ended meanwhile is no fault.
  os.execute(("kill -%s %s 2>/dev/null"):format(name, table.concat(pids, " ")))
end

function Worker:pause()
  self.stopped = family(self.pid)
  signal("STOP", self.stopped)
end

function Worker:resume()
  if self.stopped then
    signal("CONT", self.stopped)
    self.stopped = nil
  end
end

-- Stop all others.
local function only(worker)
  if answering ~= worker then
    for other in pairs(live) do
      if other ~= worker and not other.stopped then other:pause() end
    end
    answering = worker
  end
  worker:resume()
end

--- A process that reads requests from its stdin, or nil and a message.
--- `free` leaves out the pinning. A hung program ends after an hour.
function M.start(command, free)
  local fifo = os.tmpname()
  os.remove(fifo)
  if not os.execute("mkfifo " .. fifo) then
    return nil, "cannot make a named pipe in /tmp"
  end
  local out = io.popen(("echo $$; exec %s%stimeout 3600 %s < %s")
    :format(QUIET, free and "" or prefix, command, fifo), "r")
  local inp = io.open(fifo, "w") -- waits until the shell has opened it
  os.remove(fifo)
  local pid = out and out:read "*l"
  if pid == nil or inp == nil then
    return nil, "cannot start " .. command
  end
  local worker = setmetatable({ out = out, inp = inp, pid = pid,
    command = command }, Worker)
  live[worker], answering = true, nil -- it runs: the next question stops it
  return worker
end

--- The numbers of the answer, or nil and a message.
function Worker:ask(request)
  if self.inp == nil then
    return nil, "ended: " .. self.command
  end
  only(self)
  self.inp:write(request, "\n")
  self.inp:flush()
  local line = self.out:read "*l"
  if line == nil then
    self:ended()
    return nil, "ended: " .. self.command
  end
  local values = {}
  for word in line:gmatch "%S+" do
    values[#values + 1] = tonumber(word)
    if values[1] == nil then -- "failed: ..."
      return nil, line
    end
  end
  return table.unpack(values)
end

--- A function that asks this, for bench.compare.
function Worker:asking(request)
  return function() return self:ask(request) end
end

function Worker:ended()
  self.inp:close()
  self.out:close()
  self.inp, live[self] = nil, nil
end

function Worker:stop()
  if self.inp ~= nil then
    self:resume()
    -- Workers started later hold copies of the pipe: its end says nothing.
    self.inp:write "quit\n"
    self.inp:flush()
    self:ended()
  end
end

--- Stop those that were started.
function M.stop(...)
  for i = 1, select("#", ...) do
    local w = select(i, ...)
    if w then w:stop() end
  end
end

return M
