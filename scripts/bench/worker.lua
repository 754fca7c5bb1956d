--- Programs that answer requests: a line in, a line of numbers out.
local M = {}

local prefix = ""

--- Run what is started from now on on this core alone, with one thread.
function M.pin(core)
  prefix = ("env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TFDIST_THREADS=1 "
    .. "taskset -c %d "):format(core)
end

local Worker = {}
Worker.__index = Worker

--- A process that reads requests from its stdin, or nil and a message.
--- `free` leaves out the pinning. A hung program ends after a quarter of an hour.
function M.start(command, free)
  local fifo = os.tmpname()
  os.remove(fifo)
  if not os.execute("mkfifo " .. fifo) then
    return nil, "cannot make a named pipe in /tmp"
  end
  local out = io.popen(("%stimeout 900 %s < %s"):format(
    free and "env " or prefix, command, fifo), "r")
  local inp = io.open(fifo, "w") -- waits until the shell has opened it
  os.remove(fifo)
  if out == nil or inp == nil then
    return nil, "cannot start " .. command
  end
  return setmetatable({ out = out, inp = inp, command = command }, Worker)
end

--- The numbers of the answer, or nil and a message.
function Worker:ask(request)
  if self.inp == nil then
    return nil, "ended: " .. self.command
  end
  self.inp:write(request, "\n")
  self.inp:flush()
  local line = self.out:read "*l"
  if line == nil then
    self.inp:close()
    self.out:close()
    self.inp = nil
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

function Worker:stop()
  if self.inp ~= nil then
    -- Workers started later hold copies of the pipe: its end says nothing.
    self.inp:write "quit\n"
    self.inp:close()
    self.out:close()
    self.inp = nil
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
