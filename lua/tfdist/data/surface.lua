--- Where errors of queued work come out, for stages that answer for what other
--- stages raise and for functions that are tried on examples.
local device = require "tfdist.core.device"
local errors = require "tfdist.base.errors"
local random_seed = require "tfdist.core.random_seed"

local M = {}

-- How many of them are waiting for what they called.
local waiting = 0

local function surfaced(...)
  device.sync_devices()
  return ...
end

local function run_and_surface(fn, ...)
  return surfaced(fn(...))
end

--- pcall; while somebody answers for errors they include those of the work that
--- fn queued.
function M.pcall(fn, ...)
  if waiting == 0 then
    return pcall(fn, ...)
  end
  return pcall(run_and_surface, fn, ...)
end

local function done(...)
  waiting = waiting - 1
  return ...
end

--- pcall for a stage that answers for what its inputs raise: all that they do
--- for this element has been done when it returns, and nothing else is blamed
--- on them. Blocks: until all queued work is done, before and after.
--- Errors: those of work that was queued before.
function M.answer(fn, ...)
  device.sync_devices()
  waiting = waiting + 1
  return done(pcall(run_and_surface, fn, ...))
end

local function checked(ok, ...)
  if not ok then
    errors.raise_again((...))
  end
  return ...
end

--- Call fn, which may call users' functions on examples: what these queue must
--- not fail later, in a pipeline that has not run yet, and what they draw must
--- not change what it draws.
function M.find_out(fn, ...)
  waiting = waiting + 1
  return checked(done(pcall(random_seed.aside, fn, ...)))
end

return M
