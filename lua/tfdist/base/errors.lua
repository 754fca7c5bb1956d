--- The one error object, the same on both engines.
---
--- Fields: `kind` ("ValueError", "InvalidArgument", ...), `message`, `hint`
--- (or nil), `where` ("file:line" of the innermost frame outside this
--- library, or nil), `replica`, `worker` (numbers or nil), `notes` (list of
--- lines, innermost first), `traceback` (text of the user's frames), `deferred`
--- (true when queued work failed and a later call raises it), `exit_code` (what
--- the host ends with when nobody catches it, 1 if nil).
--- tostring gives where, kind and message, then replica, notes and hint.
---
--- `error("text")` and `error(table)` of user code are left alone; `wrap`
--- makes an object of a text when one is needed.
local pairs = require "tfdist.base.pairs"

local M = {}

local getinfo = debug.getinfo
local MAX_FRAMES = 24

--- Characters of one value that a message shows.
M.SHOWN = 200
local MOST = 4000 -- of a whole message

--- Sources that start so belong to this library, not to the user.
M.library = getinfo(1, "S").source:match("^(.*)base/errors%.lua$") or "@lua/tfdist/"

--- True keeps the library's own frames in tracebacks.
M.full_traceback = false

--- What higher floors answer, put in once. place(told): the current replica and
--- worker, nil for either; of work that fails late its replica is told.
--- last_saved(): the checkpoint that this run saved last, nil for none.
M.hooks = {}

local Error = {}
Error.__index = Error
Error.__name = "tfdist.Error"

function Error.__tostring(e)
  local lines = { ("%s: %s"):format(e.kind, e.message) }
  if e.where then
    lines[1] = e.where .. ": " .. lines[1]
  end
  if e.replica then
    lines[#lines + 1] = "  replica " .. e.replica
      .. (e.worker and " of worker " .. e.worker or "")
  elseif e.worker then
    lines[#lines + 1] = "  worker " .. e.worker
  end
  for _, note in ipairs(e.notes or {}) do
    lines[#lines + 1] = "  " .. note
  end
  if e.hint then
    lines[#lines + 1] = "hint: " .. e.hint
  end
  return table.concat(lines, "\n")
end

function Error.__concat(a, b)
  return tostring(a) .. tostring(b)
end

-- Frames ---------------------------------------------------------------------

local function is_library(info)
  return info.source:sub(1, #M.library) == M.library
end

-- Functions of the language itself, by value: the C frames worth showing.
local standard = {}
for _, name in ipairs { "string", "table", "math", "os", "io", "coroutine" } do
  for key, value in pairs(_G[name] or {}) do
    standard[value] = name .. "." .. key
  end
end
for _, name in ipairs { "pcall", "xpcall", "require", "dofile", "load" } do
  standard[_G[name]] = name
end

local function frame_name(info)
  if info.what == "main" then
    return "in main chunk"
  elseif info.what == "C" then
    return standard[info.func] and ("in function '%s'"):format(
      standard[info.func]) or "in a C function"
  elseif info.name == nil or info.namewhat == "" then
    return ("in function <%s:%d>"):format(info.short_src, info.linedefined)
  end
  local what = info.namewhat == "global" and "function" or info.namewhat
  return ("in %s '%s'"):format(what, info.name)
end

-- The frame's line, or nil when the reader has no use for it: pcall, and by
-- `caller`, the frame that called it, what C does for the library.
local function frame_line(info, caller)
  if info.what == "C" then
    if not M.full_traceback and (not standard[info.func]
      or info.func == pcall or info.func == xpcall
      or (caller ~= nil and caller.what ~= "C" and is_library(caller))) then
      return nil
    end
    return "[C]: " .. frame_name(info)
  elseif is_library(info) and not M.full_traceback then
    return nil
  elseif info.currentline > 0 then
    return ("%s:%d: %s"):format(info.short_src, info.currentline,
      frame_name(info))
  end
  return info.short_src .. ": " .. frame_name(info)
end

--- Lines of the call stack, innermost first, without this library's frames.
---@param level? integer 1 = the caller of traceback
---@param thread? thread  another coroutine's stack; level 0 is its innermost
---@return string "stack traceback:" and one indented line for each frame
function M.traceback(level, thread)
  local lines = { "stack traceback:" }
  level = (level or 1) + (thread and 0 or 1)
  local function frame(at)
    local info -- no tail calls: they count as frames on some engines
    if thread then
      info = getinfo(thread, at, "Slnf")
    else
      info = getinfo(at + 1, "Slnf")
    end
    return info
  end
  while true do
    local info = frame(level)
    if not info then
      break
    end
    local line = frame_line(info, info.what == "C" and frame(level + 1) or nil)
    if line and #lines > MAX_FRAMES then
      lines[#lines + 1] = "    ..."
      break
    elseif line then
      lines[#lines + 1] = "    " .. line
    end
    level = level + 1
  end
  return table.concat(lines, "\n")
end

-- "file:line" of the innermost user frame; nil at the prompt.
local function user_position(level)
  level = level + 1
  while true do
    local info = getinfo(level, "Sl")
    if not info then
      return nil
    elseif info.what ~= "C" and not is_library(info) then
      if info.source == "=(repl)" then
        return nil
      end
      return ("%s:%d"):format(info.short_src, info.currentline)
    end
    level = level + 1
  end
end

--- "file:line" of the innermost frame outside this library; nil at the prompt.
---@return string?
function M.position()
  local where = user_position(2)
  return where
end

-- Objects --------------------------------------------------------------------

-- The ends of a text that is too long; characters stay whole.
local function cut(text, most)
  local half = math.floor(most / 2)
  return text:sub(1, half):gsub("[\192-\255]?[\128-\191]*$", "") .. "…"
    .. text:sub(-half):gsub("^[\128-\191]+", "")
end

-- Values that users give may be of any length; messages are read by people.
local function readable(message)
  if #message <= M.SHOWN then
    return message
  end
  message = message:gsub("%S+", function(word)
    return #word > M.SHOWN + 50 and cut(word, M.SHOWN) or nil
  end)
  return #message > MOST and cut(message, MOST) or message
end

-- Does a frame of the stack belong to the function that begins at this
-- "file:line"? A tail call leaves none of who made it.
local function has_frame(where, level)
  local info = getinfo(level + 1, "S")
  while info ~= nil do
    if info.what ~= "C"
      and ("%s:%d"):format(info.short_src, info.linedefined) == where then
      return true
    end
    level = level + 1
    info = getinfo(level + 1, "S")
  end
  return false
end

local function make(kind, message, hint, where, replica, level)
  local e = {
    kind = kind, message = message, hint = hint, replica = replica,
    where = where or user_position(level + 1),
    traceback = M.traceback(M.full_traceback and 1 or level + 1),
    exit_code = kind == "Internal" and M.EXIT_INTERNAL or nil,
  }
  if M.hooks.place then
    local r, w = M.hooks.place(replica)
    e.replica, e.worker = replica or r, w
  end
  setmetatable(e, Error)
  local traced = M.hooks.traced and M.hooks.traced()
  if traced and traced:find ":%d+$" and not has_frame(traced, level) then
    M.note(e, "in the traced function " .. traced)
  end
  return e
end

--- An error object, not raised.
---@param kind string
---@param message string operation, values, expectation
---@param hint? string what to do about it
function M.new(kind, message, hint)
  return make(kind, readable(message), hint, nil, nil, 2)
end

--- Raise an error object.
---@param kind string
---@param message string
---@param hint? string
---@param where? string position of a failure that surfaced later
---@param replica? integer
---@param op? string        what failed, "gather"
---@param argument? string  what of it is wrong
---@param bound? number     that a value did not keep
---@param exit_code? integer  that the host ends with when nobody catches it
---@param note? string  lines for `notes`: what a traced op belongs to
function M.raise(kind, message, hint, where, replica, op, argument, bound,
    exit_code, note)
  local e = make(kind, readable(message), hint, where, replica, 2)
  for line in (note or ""):gmatch "[^\n]+" do
    M.note(e, line)
  end
  e.op, e.argument, e.bound = op, argument, bound
  e.exit_code = exit_code or e.exit_code
  e.deferred = where ~= nil or nil
  local saved = M.is_of_peer(e) and M.hooks.last_saved and M.hooks.last_saved()
  if saved then -- what a new start goes on from
    M.note(e, "last checkpoint of this run: " .. saved)
  end
  error(e, 0)
end

--- Status of a process that was started with what it cannot use.
M.EXIT_USAGE = 2
--- Of one that the library itself has failed: every Internal.
M.EXIT_INTERNAL = 70
--- Of one that ends because another process of its job has failed.
M.EXIT_PEER_FAILED = 75
--- The same where that one is the chief.
M.EXIT_CHIEF_LOST = 76
--- Of one that ends because the processes of its job run apart.
M.EXIT_DESYNC = 77

--- Raise an error object for how the process was started: a host that nobody
--- keeps from ending ends with EXIT_USAGE.
---@param kind string
---@param message string
---@param hint? string
function M.raise_usage(kind, message, hint)
  local e = make(kind, readable(message), hint, nil, nil, 2)
  e.exit_code = M.EXIT_USAGE
  error(e, 0)
end

local function renamed(what, ok, ...)
  if ok then
    return ...
  end
  local e = ...
  if M.is_error(e) then
    e.message = e.message:gsub("^[%w_.:]+: ", what .. ": ", 1)
  end
  error(e, 0)
end

--- fn(...) whose errors name `what`, the function that the user called, not
--- the one that does its work.
---@param what string
---@param fn function
function M.said_by(what, fn, ...)
  return renamed(what, pcall(fn, ...))
end

--- True for error objects.
function M.is_error(x)
  return getmetatable(x) == Error
end

--- The kind of an error object, nil for anything else.
function M.kind(x)
  return getmetatable(x) == Error and x.kind or nil
end

--- Does an error say that another process of the job has failed?
function M.is_of_peer(x)
  local code = M.is_error(x) and x.exit_code
  return code == M.EXIT_PEER_FAILED or code == M.EXIT_CHIEF_LOST
end

--- Does an error say something about the data that was read? Want of memory and
--- interruption do not: what they ended is as good as it was.
---@param x any  what pcall returned
---@return boolean
function M.is_of_data(x)
  local kind = M.kind(x)
  return kind ~= nil and kind ~= "ResourceExhausted" and kind ~= "Cancelled"
end

local function unless_cancelled(ok, ...)
  if not ok and M.kind((...)) == "Cancelled" then
    error((...), 0)
  end
  return ok, ...
end

--- As pcall, where a failure is an answer: an interruption is none, and passes.
---@param fn function
function M.attempt(fn, ...)
  return unless_cancelled(pcall(fn, ...))
end

local explanations = {}

--- Register fn(message, where) -> kind, hint for texts that Lua itself raises
--- and that mean something particular here; nil when it does not know the text.
--- `where` is "file:line" or nil.
function M.add_explanation(fn)
  explanations[#explanations + 1] = fn
end

--- Kind and hint for a text raised by Lua, nil when there is no more to say.
---@param message string
---@return string|nil kind, string|nil hint
function M.explain(message)
  local where, text = message:match("^(.-:%d+): (.*)$")
  for i = 1, #explanations do
    local kind, hint = explanations[i](text or message, where)
    if kind ~= nil then
      return kind, hint
    end
  end
  return nil
end

--- Whatever pcall caught, as an object: texts become a RuntimeError with that
--- text (or the kind that it stands for), everything else passes through.
function M.wrap(x)
  if type(x) ~= "string" then
    return x
  end
  local where, text = x:match("^(.-:%d+): (.*)$")
  local kind, hint = M.explain(x)
  local e = make(kind or "RuntimeError", text or x, hint, where, nil, 2)
  e.where = where
  return e
end

--- What pcall caught: a text of the engine's that there is more to say about as
--- an object, the user's texts and objects as they are.
function M.explained(x)
  if type(x) == "string" and M.explain(x) ~= nil then
    return M.wrap(x)
  end
  return x
end

--- Raise it again.
function M.raise_again(x)
  error(M.explained(x), 0)
end

--- tostring that never raises, whatever __tostring does.
---@param x any
---@return string
function M.text_of(x)
  local ok, text = pcall(tostring, x)
  if ok then
    return text
  end
  ok, text = pcall(tostring, text)
  return ("(a %s value whose __tostring fails%s)"):format(type(x),
    ok and ": " .. text or "")
end

--- Say on stderr where the script is: for who keeps others waiting.
function M.say_where()
  io.stderr:write(("tfdist: the script is here, and goes on:\n%s\n"):format(
    M.traceback(2)))
end

--- Raise what Ctrl-C raises.
function M.interrupted()
  error(make("Cancelled", "interrupted", nil, nil, nil, 2), 0)
end

--- All there is to say about an uncaught error: its text and the user's frames.
---@param x any what was raised
---@param level? integer where the stack begins, as in traceback
---@return string
function M.report(x, level)
  if M.is_error(x) then
    local frames = tostring(x.traceback)
    if not frames:find("\n", 1, true) then
      return M.text_of(x) -- nothing of the user's was running
    end
    return M.text_of(x) .. "\n" .. frames
  elseif type(x) == "string" or type(x) == "number" then
    local _, hint = M.explain(tostring(x))
    return x .. (hint and "\nhint: " .. hint or "") .. "\n"
      .. M.traceback((level or 1) + 1)
  end
  local mt = getmetatable(x)
  if type(mt) == "table" and rawget(mt, "__tostring") then
    return M.text_of(x)
  end
  return ("(error object is a %s value)\n%s"):format(type(x),
    M.traceback((level or 1) + 1))
end

--- Add a line of context ("in layer \"dense\"") to an error object on its way
--- up; other values are left alone, and so is what an error says already, as
--- those of traced ops do. Returns the value.
function M.note(x, text)
  if M.is_error(x) then
    x.notes = x.notes or {}
    for _, line in ipairs(x.notes) do
      if line == text then
        return x
      end
    end
    x.notes[#x.notes + 1] = text
  end
  return x
end

--- The same for what runs now; not for a deferred failure, which came from work
--- that was queued before, maybe by something else.
function M.note_running(x, text)
  if M.is_error(x) and x.deferred then
    return x
  end
  return M.note(x, text)
end

return M
