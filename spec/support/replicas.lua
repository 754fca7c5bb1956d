--- Strategies of every size that this process has devices for, and errors by
--- kind, for the specs of distribution.
local errors = require "tfdist.base.errors"
local leaks = require "spec.support.leaks"
local on_device = require "spec.support.on_device"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local M = {}


M.available = raw.device_count(on_device.type)
--- The largest number of replicas that specs try.
M.most = 5

--- MirroredStrategy with n replicas.
function M.mirrored(n)
  return tf.distribute.MirroredStrategy { devices = M.list(n, on_device.at) }
end

--- it(name, fn(strategy, n)) for 2..5 replicas; those without devices pend.
function M.each(it, pending, name, fn, first)
  for n = first or 2, M.most do
    local title = ("%s, %d replicas"):format(name, n)
    if n <= M.available then
      it(title, function()
        fn(M.mirrored(n), n)
      end)
    else
      pending((title .. ": needs TFDIST_%s_DEVICES=%d"):format(on_device.type, n))
    end
  end
end

--- it(name, fn(strategy)) with two replicas.
function M.pair(it, pending, name, fn)
  if M.available < 2 then
    pending((name .. ": needs TFDIST_%s_DEVICES=2"):format(on_device.type))
  else
    it(name, function()
      fn(M.mirrored(2))
    end)
  end
end

M.leaks = leaks

--- The number of the running replica.
function M.id()
  return tf.distribute.get_replica_context().replica_id_in_sync_group
end

--- The running replica's context.
function M.ctx()
  return tf.distribute.get_replica_context()
end

--- Raise unless fn fails with an error object of this kind, whose message
--- contains `part`. Returns the error.
function M.fails(kind, part, fn, ...)
  local ok, e = pcall(fn, ...)
  if ok then
    error("expected a " .. kind .. ", nothing was raised", 2)
  elseif errors.kind(e) ~= kind then
    error(("expected a %s, got: %s"):format(kind, tostring(e)), 2)
  elseif part and not e.message:find(part, 1, true) then
    error(("expected %q in: %s"):format(part, e.message), 2)
  end
  return e
end

--- Components of x as plain Lua values.
function M.locals(strategy, x)
  local list = strategy:experimental_local_results(x)
  local out = {}
  for i = 1, list.n do
    local c = list[i]
    if type(c) == "userdata" then
      c = c:totable()
    end
    out[i] = c
  end
  return out
end

--- n copies of x, or of x(i) for i from 0.
function M.list(n, x)
  local out = {}
  for i = 1, n do
    if type(x) == "function" then
      out[i] = x(i - 1)
    else
      out[i] = x
    end
  end
  return out
end

return M
