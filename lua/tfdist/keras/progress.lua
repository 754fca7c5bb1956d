--- How fit, evaluate and predict show where they are, on stderr.
---
--- Forms: "bar" redraws one line (at most 10 times a second) and leaves a last
--- one; "lines" writes that last line only, and a heartbeat every minute;
--- "none" writes nothing. `auto` is a bar on a terminal, else lines. The knob
--- is TFDIST_PROGRESS (option --progress of the host).
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"

local M = {}

local floor, max, min = math.floor, math.max, math.min

local FORMS = { "auto", "bar", "lines", "none" }
local REDRAW, HEARTBEAT = 0.1, 60
local BAR = 30

local GLYPHS = {
  utf8 = { full = "\226\148\129", empty = "\226\148\128", dot = " \194\183 " },
  ascii = { full = "=", empty = ".", dot = " - " },
}

-- Numbers --------------------------------------------------------------------

--- A metric's value: four decimals, small ones with an exponent; vectors as
--- "[0.5000 0.6667]".
function M.value(x)
  if type(x) == "table" then
    local parts = {}
    for i = 1, #x do
      parts[i] = M.value(x[i])
    end
    return "[" .. table.concat(parts, " ") .. "]"
  elseif type(x) ~= "number" then
    return tostring(x)
  elseif x ~= x then
    return "nan"
  elseif x == 0 or math.abs(x) >= 1e-3 then
    return ("%.4f"):format(x)
  end
  return ("%.4e"):format(x)
end

local function clock_text(seconds)
  local s = floor(seconds + 0.5)
  if s >= 3600 then
    return ("%d:%02d:%02d"):format(floor(s / 3600), floor(s / 60) % 60, s % 60)
  end
  return ("%d:%02d"):format(floor(s / 60), s % 60)
end

--- Time to go: "3s", "2:05".
function M.left(seconds)
  return seconds < 99.5 and ("%ds"):format(floor(seconds + 0.5))
    or clock_text(seconds)
end

--- Time an epoch took: "9.1 s", "2:05".
function M.duration(seconds)
  return seconds < 99.95 and ("%.1f s"):format(seconds) or clock_text(seconds)
end

--- Time of a step: "820 us", "19 ms", "1.2 s".
function M.step_time(seconds)
  if seconds < 0.9995e-3 then
    return ("%.0f us"):format(seconds * 1e6)
  elseif seconds < 0.9995 then
    return ("%.0f ms"):format(seconds * 1e3)
  end
  return ("%.1f s"):format(seconds)
end

--- Examples in a second: "820", "6.7k", "1.2M".
function M.rate(x)
  if x < 999.5 then
    return ("%.0f"):format(x)
  elseif x < 999950 then
    return ("%.1fk"):format(x / 1e3)
  end
  return ("%.1fM"):format(x / 1e6)
end

-- Where ----------------------------------------------------------------------

local function locale_is_utf8()
  for _, name in ipairs { "LC_ALL", "LC_CTYPE", "LANG" } do
    local value = os.getenv(name)
    if value ~= nil and value ~= "" then
      return value:lower():find("utf%-?8") ~= nil
    end
  end
  return false
end

-- Characters a terminal shows for UTF-8 text without wide ones.
local function width_of(s)
  local _, continued = s:gsub("[\128-\191]", "")
  return #s - continued
end

-- The first `width` characters.
local function cut(s, width)
  if width_of(s) <= width then
    return s
  end
  local at, shown = 1, 0
  while at <= #s do
    local byte = s:byte(at)
    local length = byte < 128 and 1 or byte < 224 and 2 or byte < 240 and 3 or 4
    if shown + 1 > width then
      break
    end
    shown, at = shown + 1, at + length
  end
  return s:sub(1, at - 1)
end

--- The form for `verbose` of fit: 0 none, 1 and "auto" what TFDIST_PROGRESS
--- says, 2 lines. Errors: ValueError for another word in TFDIST_PROGRESS.
---@param verbose any
---@param tty? boolean
function M.form(verbose, tty)
  local wish = (os.getenv "TFDIST_PROGRESS" or ""):lower():match "^%s*(.-)%s*$"
  wish = options.choice("TFDIST_PROGRESS", "the form",
    wish == "" and "auto" or wish, FORMS)
  if verbose == 0 or verbose == false or wish == "none" then
    return "none"
  elseif wish ~= "auto" then
    return wish
  elseif verbose == 2 then
    return "lines"
  end
  if tty == nil then
    tty = raw.terminal_width(2) ~= nil
  end
  return tty and "bar" or "lines"
end

-- Showing --------------------------------------------------------------------

local Progress = { __name = "Progress" }
Progress.__index = Progress

--- A display. options: form, write(text), now() in seconds, width() in columns,
--- utf8; all but form have defaults.
function M.new(form, more)
  more = more or {}
  return setmetatable({
    form = form,
    write = more.write or function(s)
      io.stderr:write(s)
    end,
    now = more.now or raw.monotonic,
    width = more.width or function()
      return raw.terminal_width(2) or tonumber(os.getenv "COLUMNS") or 80
    end,
    glyphs = (more.utf8 == nil and locale_is_utf8() or more.utf8)
      and GLYPHS.utf8 or GLYPHS.ascii,
  }, Progress)
end

--- Begin `total` steps (nil: not known). With epoch (from 0) and epochs a
--- headline says which one.
function Progress:begin(total, epoch, epochs)
  self.total, self.step, self.examples = total, 0, 0
  self.epoch, self.epochs = epoch, epochs
  self.started = self.now()
  self.drawn, self.beat = self.started, self.started
  self.notes, self.open = {}, false
  if epoch ~= nil and self.form ~= "none" then
    self.write(("Epoch %d/%d\n"):format(epoch + 1, epochs))
  end
end

--- True when update would draw now: the time to read values.
function Progress:due()
  local now = self.now()
  return self.form == "bar" and now - self.drawn >= REDRAW
    or self.form == "lines" and now - self.beat >= HEARTBEAT
end

local function metric_parts(logs, out)
  for _, entry in ipairs(logs or {}) do
    out[#out + 1] = entry[1] .. " " .. M.value(entry[2])
  end
  return out
end

local function count_text(self)
  local total = self.total and tostring(self.total) or "?"
  local done = tostring(self.step)
  return (" "):rep(max(#total - #done, 0)) .. done .. "/" .. total
end

local function bar(self, width)
  local full = min(width, floor(self.step / self.total * width + 0.5))
  return self.glyphs.full:rep(full) .. self.glyphs.empty:rep(width - full)
end

local function join(self, parts)
  return table.concat(parts, self.glyphs.dot)
end

-- The line that is redrawn, as wide as the terminal allows.
local function live_line(self, logs)
  local elapsed = max(self.now() - self.started, 1e-9)
  local per_step = elapsed / max(self.step, 1)
  local parts = {}
  if self.total ~= nil then
    parts[1] = M.left(per_step * (self.total - self.step)) .. " left"
  end
  parts[#parts + 1] = M.step_time(per_step) .. "/step"
  parts[#parts + 1] = M.rate(self.examples / elapsed) .. " ex/s"
  local tail = join(self, metric_parts(logs, parts))
  local columns = self.width() - 1
  local head = " " .. count_text(self) .. " "
  if self.total ~= nil and self.total > 0 then
    local room = min(BAR, columns - width_of(head) - width_of(tail) - 2)
    if room >= 5 then
      return head .. bar(self, room) .. "  " .. tail
    end
  end
  return cut(head .. " " .. tail, columns)
end

local function heartbeat(self, logs)
  local parts = metric_parts(logs, {})
  self.write(("%sstep %s %s\n"):format(self.epoch
    and ("epoch %d/%d "):format(self.epoch + 1, self.epochs) or "",
    (count_text(self):gsub("^ +", "")), table.concat(parts, " ")))
end

--- So many steps and examples are done. `logs` are pairs { name, value }.
function Progress:update(step, examples, logs)
  self.step, self.examples = step, examples
  local now = self.now()
  if self.form == "bar" and now - self.drawn >= REDRAW then
    self.drawn, self.open = now, true
    self.write("\r" .. live_line(self, logs) .. "\27[K")
  elseif self.form == "lines" and now - self.beat >= HEARTBEAT then
    self.beat = now
    heartbeat(self, logs)
  end
end

--- Add a remark to the last line ("saved runs/ckpt").
function Progress:note(remark)
  if self.notes ~= nil then
    self.notes[#self.notes + 1] = remark
  end
end

--- All steps are done: stop the clock of the last line.
function Progress:done(step, examples)
  self.step, self.examples = step, examples
  self.elapsed = self.now() - self.started
end

--- The last line, which stays.
function Progress:finish(logs)
  if self.form == "none" then
    return
  end
  local elapsed = max(self.elapsed or self.now() - self.started, 1e-9)
  self.total = self.total or self.step
  local parts = { M.duration(elapsed), M.rate(self.examples / elapsed)
    .. " ex/s" }
  metric_parts(logs, parts)
  for _, remark in ipairs(self.notes) do
    parts[#parts + 1] = remark
  end
  local line = " " .. count_text(self) .. "  " .. join(self, parts)
  if self.form == "bar" then
    line = "\r" .. line .. "\27[K"
  end
  self.open, self.elapsed = false, nil
  self.write(line .. "\n")
end

--- Leave a line that is being redrawn, for what else is to be said.
function Progress:interrupt()
  if self.open then
    self.open = false
    self.write("\n")
  end
end

return M
