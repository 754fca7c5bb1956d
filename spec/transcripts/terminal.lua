--- A program in a terminal of tmux: keys go in, the screen comes out.
---
---   local screen = terminal.open("build/tfdist", { columns = 80 })
---   screen:wait "> $"
---   screen:type "1 + 2"
---   screen:text()
---   screen:close()
--- Each terminal has a server and an environment of its own.
local process = require "spec.support.process"

local M = {}

local PAUSE = "sleep 0.05"

local Screen = {}
Screen.__index = Screen

local function tmux(self, ...)
  local words = { "tmux -u -f /dev/null -S", process.quote(self.socket) }
  for i = 1, select("#", ...) do
    words[#words + 1] = process.quote((select(i, ...)))
  end
  return process.run(table.concat(words, " "))
end

--- Start a program (a shell command line). options: columns, rows; folder, its
--- home and where its socket lies; seconds that any wait may take (600).
function M.open(command, options)
  local self = setmetatable({
    folder = options.folder, socket = options.folder .. "/socket",
    seconds = options.seconds or 600,
  }, Screen)
  -- What it ends with stays on the screen. Ctrl-C is for the program alone.
  local inner = ("trap : INT; env -i PATH=\"$PATH\" HOME=%s LC_ALL=C.UTF-8 "
    .. "TERM=screen %s; echo \"exit status $?\"; read line"):format(
    process.quote(self.folder), command)
  local started = tmux(self, "new-session", "-d", "-x",
    tostring(options.columns or 80), "-y", tostring(options.rows or 50), inner)
  if started.code ~= 0 then
    error("tmux: " .. started.err, 2)
  end
  return self
end

--- The lines on the screen and above it, without empty ones at the end.
function Screen:text()
  local text = tmux(self, "capture-pane", "-p", "-S", "-").out
  return (text:gsub("[ \t]+\n", "\n"):gsub("%s+$", "")) .. "\n"
end

--- Wait until the text ends in a pattern (its last line break left out).
--- Errors: when it does not in time; the message shows the screen.
function Screen:wait(pattern)
  local last = os.time() + self.seconds
  repeat
    if self:text():gsub("\n$", ""):find(pattern .. "$") then
      return
    end
    os.execute(PAUSE)
  until os.time() > last
  error(("no %q after %d s:\n%s"):format(pattern, self.seconds, self:text()), 2)
end

--- Keys by tmux's names ("Enter", "C-c").
function Screen:keys(...)
  tmux(self, "send-keys", ...)
end

--- A line and Enter.
function Screen:type(line)
  tmux(self, "send-keys", "-l", line)
  self:keys "Enter"
end

--- End the program and its server. True when nothing of them is left.
function Screen:close()
  tmux(self, "kill-server")
  return tmux(self, "list-sessions").code ~= 0
end

return M
