--- Calls that all workers of a strategy make alike, in which they meet.
---
--- A worker that catches an error of such a call has left out the meetings that
--- the others wait in, and would give the next call's values to them. The C side
--- counts the calls, and all workers hear of it where their counts differ.
local errors = require "tfdist.base.errors"
local guard = require "tfdist.base.guard"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local function leave(handle, mark, ok, ...)
  if ok then
    raw.strategy_leave(handle, mark, "")
    return ...
  end
  local e = ...
  raw.strategy_leave(handle, mark, type(e) == "string" and e ~= "" and e
    or errors.is_error(e) and tostring(e) or text.describe(e))
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
  return leave(handle, raw.strategy_enter(handle), guard.pcall(
    state.current.thread, what, fn, ...))
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
