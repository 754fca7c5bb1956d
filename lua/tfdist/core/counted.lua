--- Calls that all workers of a strategy make alike, in which they meet.
---
--- A worker that catches an error of such a call may have left out the meetings
--- that the others wait in, and would give the next call's values to them. The C
--- side counts the calls, and all workers hear of it where their counts differ.
--- Whether a call that failed would have met the others, the next one of the same
--- line tells.
local errors = require "tfdist.base.errors"
local guard = require "tfdist.base.guard"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

-- Strategies and lines of the script -> calls that errors have ended before they
-- met others; nil as long as there is none.
local owed
local depth = 0 -- calls that lie in each other

local function place_of(handle, what)
  return ("%s %s %s"):format(tostring(handle), what, errors.position() or "")
end

local function note_end(handle, what, met, failed)
  local place = place_of(handle, what)
  if failed and not met then
    owed = owed or {}
    owed[place] = (owed[place] or 0) + 1
  elseif met and owed ~= nil then
    owed[place] = nil
  end
end

local function leave(handle, mark, what, ok, ...)
  depth = depth - 1
  if ok then
    local met = raw.strategy_leave(handle, mark, "")
    if owed ~= nil and depth == 0 then
      note_end(handle, what, met, false)
    end
    return ...
  end
  local e = ...
  local met = raw.strategy_leave(handle, mark, type(e) == "string" and e ~= ""
    and e or errors.is_error(e) and tostring(e) or text.describe(e))
  if depth == 0 then
    note_end(handle, what, met, true)
  end
  errors.raise_again(e)
end

--- fn(...), as one of them; within others it is a part of the outermost.
---@param handle userdata  of the strategy
---@param what string      for errors of coroutines that leave it
---@param fn function
---@return any ...
function M.call(handle, what, fn, ...)
  if tracing.current() ~= nil then
    tracing.note_meeting(handle)
    return fn(...)
  end
  local left = owed ~= nil and depth == 0 and owed[place_of(handle, what)] or 0
  local mark = raw.strategy_enter(handle, left)
  depth = depth + 1
  return leave(handle, mark, what, guard.pcall(state.current.thread, what, fn,
    ...))
end

--- fn of a strategy's method as one that counts where there are other workers.
---@param what string
---@param fn fun(strategy: tfdist.Strategy, ...):any
---@return function
function M.method(what, fn)
  return function(strategy, ...)
    if strategy.over_workers then
      return M.call(strategy.handle, what, fn, strategy, ...)
    end
    return fn(strategy, ...)
  end
end

return M
