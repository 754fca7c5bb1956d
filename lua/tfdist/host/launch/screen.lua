--- What the tasks write, on the screen: whole lines behind the task's name, and
--- the chief's stderr as it comes, so that its progress shows.
local launch = require "tfdist.host".launch
local raw = require "tfdist.core.raw"

local M = {}

local LONGEST = 8192 -- a line on the screen; what is longer becomes several

--- Cut what comes in pieces into lines and call emit(line) for each.
local Lines = {}
Lines.__index = Lines

function M.lines(emit)
  return setmetatable({ rest = "", emit = emit }, Lines)
end

-- As a terminal shows it: what a carriage return went over is gone.
local function visible(line)
  return line:gsub("\r+$", ""):match "[^\r]*$"
end

function Lines:feed(bytes)
  local all, from = self.rest .. bytes, 1
  while true do
    local at = all:find("\n", from, true)
    if at == nil and #all - from < LONGEST then
      break
    elseif at == nil or at - from > LONGEST then
      self.emit(all:sub(from, from + LONGEST - 1))
      from = from + LONGEST
    else
      self.emit(visible(all:sub(from, at - 1)))
      from = at + 1
    end
  end
  self.rest = all:sub(from)
end

--- The last line, which has no end.
function Lines:finish()
  if self.rest ~= "" then
    self.emit(visible(self.rest))
    self.rest = ""
  end
end

-- Screen ----------------------------------------------------------------------

local Screen = {}
Screen.__index = Screen

--- A screen for tasks; with `quiet` the chief alone is shown.
function M.new(quiet)
  return setmetatable({ quiet = quiet, tail = "",
    together = raw.terminal_width(1) ~= nil and raw.terminal_width(2) ~= nil },
    Screen)
end

-- The chief's last line has no end yet: a bar that it draws again goes away,
-- anything else stays where it is.
function Screen:make_room(stream)
  if self.tail ~= "" and (stream == 2 or self.together) then
    launch.write(2, self.together and self.tail:find("\r", 1, true)
      and "\r\27[K" or "\n")
    self.tail = ""
  end
end

--- Write text that begins a line.
function Screen:write(stream, text)
  self:make_room(stream)
  launch.write(stream, text)
end

function Screen:raw(text)
  launch.write(2, text)
  self.tail = (self.tail .. text):match "[^\n]*$":sub(-LONGEST)
end

--- What a task writes to a stream (1 or 2): an object with feed(bytes) and
--- finish().
function Screen:output(name, is_chief, stream)
  local nothing = function() end
  if is_chief and (stream == 2 or self.quiet) then
    return { finish = nothing, feed = function(_, bytes)
      if stream == 2 then
        self:raw(bytes)
      else
        self:write(1, bytes)
      end
    end }
  elseif self.quiet then
    return { feed = nothing, finish = nothing }
  end
  local prefix = "[" .. name .. "] "
  return M.lines(function(line)
    self:write(stream, prefix .. line .. "\n")
  end)
end

return M
