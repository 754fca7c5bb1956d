--- Calls that no yield of the user's own coroutines may leave.
---
--- A scope, a tape or a run belongs to the thread of control that began it:
--- code that yielded out of it would leave it in force for the code that goes
--- on. In a coroutine of the user's such calls go through a C function that
--- cannot be left, so that the yield itself is the error; replicas' sync points
--- are not concerned, their coroutines begin inside.
local errors = require "tfdist.base.errors"

local M = {}

local select, type = select, type
local running = coroutine.running
local gsub = string.gsub
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function pack(...)
  return { n = select("#", ...), ... }
end

--- The running coroutine, nil in the main one.
function M.thread()
  local thread, is_main = running()
  if is_main then
    return nil
  end
  return thread
end

--- True for the engine's text about a yield that C code forbids.
---@param text string
function M.is_boundary(text)
  return text:find("attempt to yield across a?%s?C%-call boundary") ~= nil
end

--- What was raised, made clear where it is the engine's word for such a yield.
---@param e any
---@param what string
function M.explain(e, what)
  if type(e) == "string" and M.is_boundary(e) then
    return errors.new("RuntimeError", "attempt to yield across a tfdist "
      .. "boundary: a coroutine cannot be left inside " .. what,
      "yield between such calls, or begin them in the code that resumes")
  end
  return e
end

--- Call fn(...); returns ok and its results or its error, as pcall. `what` is
--- what a yield must not leave; `own` a coroutine whose yields may (a
--- replica's) or nil.
---@param own thread|nil
---@param what string
---@param fn function
function M.pcall(own, what, fn, ...)
  local thread, is_main = running()
  if thread == nil or is_main or thread == own then
    return pcall(fn, ...)
  end
  local arguments, results = pack(...), nil
  -- The text of the engine has no line; where the yield stands is seen there.
  local ok, e = xpcall(gsub, function(e)
    return M.explain(e, what)
  end, "x", "x", function()
    results = pack(fn(unpack(arguments, 1, arguments.n)))
  end)
  if ok then
    return true, unpack(results, 1, results.n)
  end
  return false, e
end

return M
