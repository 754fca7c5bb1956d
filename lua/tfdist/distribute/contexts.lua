--- Which strategy and replica the running code belongs to.
---
--- A stack of modes hangs on the current state (module state), so every
--- replica's coroutine has its own. A mode is in-replica when it has a replica
--- context, else cross-replica. No mode: the default strategy, in its replica
--- context.
local errors = require "tfdist.base.errors"
local guard = require "tfdist.base.guard"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"

local M = {}

--- Where a program is that has begun no strategy.
function M.set_default(strategy, context)
  M.default_strategy, M.default_context = strategy, context
end

function M.is_strategy(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  return meta ~= nil and meta.is_tf_strategy == true
end

-- A scope whose coroutine has yielded without leaving it.
local function check_thread(mode)
  local status = coroutine.status(mode.thread)
  if status == "suspended" or status == "dead" then
    errors.raise("RuntimeError", ("the scope of a %s is open in a coroutine "
      .. "that has %s%s"):format(mode.strategy.name, status == "dead"
      and "ended" or "yielded", mode.where and " (entered at " .. mode.where
      .. ")" or ""), "close scopes before a coroutine yields or ends")
  end
end

--- The innermost mode, or nil.
--- Errors: RuntimeError where a coroutine left its scope open.
function M.mode()
  local mode = state.current.mode
  if mode ~= nil and mode.thread ~= nil then
    check_thread(mode)
  end
  return mode
end

--- Source: tf.distribute.get_strategy
function M.get_strategy()
  local mode = M.mode()
  return mode and mode.strategy or M.default_strategy
end

--- Source: tf.distribute.has_strategy
function M.has_strategy()
  return M.get_strategy() ~= M.default_strategy
end

--- The replica's context; nil in cross-replica context.
--- Source: tf.distribute.get_replica_context
function M.get_replica_context()
  local mode = state.current.mode
  if mode == nil then
    return M.default_context
  elseif mode.thread ~= nil then
    check_thread(mode)
  end
  return mode.replica
end

--- Source: tf.distribute.in_cross_replica_context
function M.in_cross_replica_context()
  local mode = state.current.mode
  return mode ~= nil and mode.replica == nil
end

local joined -- among the workers that this process has joined, nil = none

--- From now on work that fails outside of runs is of this `role` of a strategy.
function M.join(role)
  joined = role
end

--- The role in which this process has joined other workers; nil = it has not.
function M.joined()
  return joined
end

-- What a traced call or a queue did fails after the run that it belongs to.
function errors.hooks.place(told)
  local mode = state.current.mode
  local replica = mode and mode.replica
  local role = told and joined
  if mode ~= nil then
    role = mode.strategy.role
  end
  return replica and replica ~= M.default_context
    and replica.replica_id_in_sync_group or nil,
    role and role.num_workers > 1 and role.worker_index or nil
end

local function at(mode)
  return mode.where and ", entered at " .. mode.where or ""
end

local function mixing(strategy, mode, what)
  what = what == "scope()" and ("%s scope entered at %s"):format(strategy.name,
    M.where() or "the prompt") or ("%s of a %s"):format(what, strategy.name)
  errors.raise("RuntimeError", ("Mixing different tf.distribute.Strategy "
    .. "objects: %s while the scope of another strategy (%s%s) is active; "
    .. "strategies cannot be mixed"):format(what, mode.strategy.name, at(mode)),
    "leave the other scope first")
end

M.mixing = mixing

--- Raise unless `what` of strategy may be called here: in its cross-replica
--- context or outside of all strategies.
--- Errors: RuntimeError.
function M.require_cross_replica(strategy, what, hint)
  local mode = M.mode()
  if mode == nil then
    return
  elseif mode.strategy ~= strategy then
    mixing(strategy, mode, what)
  elseif mode.replica ~= nil then
    local where = M.where()
    errors.raise("RuntimeError", ("%s needs cross-replica context but replica "
      .. "%d called it%s"):format(what, mode.replica.replica_id_in_sync_group,
      where and " at " .. where or ""), hint)
  end
end

--- Call fn(...) in a new mode; returns its results.
function M.with_mode(mode, fn, ...)
  local own = state.current
  local before = own.mode
  mode.outer = before
  own.mode = mode
  return state.protect(function()
    own.mode = before
  end, fn, ...)
end

-- Scopes ---------------------------------------------------------------------

local Scope = { __name = "strategy scope" }
Scope.__index = Scope

--- A scope of the strategy, not entered. `creator` makes its variables (nil =
--- the scope changes nothing for them).
function M.new_scope(strategy, creator)
  return setmetatable({ strategy = strategy, creator = creator, entered = {} },
    Scope)
end

local function check_enter(strategy)
  local mode = M.mode()
  if mode == nil then
    return
  elseif strategy == M.default_strategy then
    if mode.strategy ~= strategy then
      errors.raise("RuntimeError", "the default strategy's scope must not nest "
        .. "inside the scope of a " .. mode.strategy.name .. at(mode))
    end
    return
  end
  M.require_cross_replica(strategy, "scope()")
end

--- Enter the scope; it may be entered several times.
function Scope:enter()
  local own = state.current
  local strategy = self.strategy
  check_enter(strategy)
  local saved = {
    state = own, mode = own.mode, creators = own.creators,
    name_scope = own.name_scope, thread = guard.thread(),
    devices = raw.device_depth(),
  }
  if strategy ~= M.default_strategy then
    own.mode = {
      strategy = strategy, outer = own.mode, where = M.where(),
      thread = saved.thread,
    }
    saved.inner = own.mode
    if saved.mode == nil then
      own.creators = { fn = self.creator, next = own.creators }
    end
  else
    saved.inner = own.mode
    own.creators = { fn = self.creator, next = own.creators }
  end
  saved.inner_creators = own.creators
  self.entered[#self.entered + 1] = saved
end

-- Whatever was opened inside must be closed by now.
local function check_exit(saved)
  local own = state.current
  if saved.thread ~= guard.thread() and (saved.thread == nil
    or coroutine.status(saved.thread) ~= "dead") then
    errors.raise("RuntimeError", "strategy scope: it was entered in another "
      .. "coroutine", "leave it where it was entered")
  elseif raw.device_depth() > saved.devices then
    errors.raise("RuntimeError", "Device scope nesting error: a tf.device "
      .. "opened inside the strategy scope is still open",
      "close it before the strategy scope")
  elseif own ~= saved.state or own.mode ~= saved.inner then
    errors.raise("RuntimeError", "strategy scope: scopes are left in another "
      .. "order than they were entered")
  elseif own.creators ~= saved.inner_creators then
    errors.raise("RuntimeError", "Variable creator scope nesting error: a "
      .. "variable_creator_scope opened inside the strategy scope is still "
      .. "open", "close it before the strategy scope")
  elseif own.name_scope ~= saved.name_scope then
    errors.raise("RuntimeError", "Variable scope nesting error: a name_scope "
      .. "opened inside the strategy scope is still open",
      "close it before the strategy scope")
  end
end

--- Leave the scope once. Errors: RuntimeError when something opened inside is
--- still open; leaving may then be tried again.
function Scope:exit()
  local saved = self.entered[#self.entered]
  if saved == nil then
    errors.raise("RuntimeError", "strategy scope: it is not entered")
  end
  check_exit(saved)
  self.entered[#self.entered] = nil
  state.current.mode = saved.mode
  state.current.creators = saved.creators
end

-- After an error: back to what was, whatever is open.
function Scope:abandon()
  local saved = self.entered[#self.entered]
  self.entered[#self.entered] = nil
  saved.state.mode, saved.state.creators = saved.mode, saved.creators
  saved.state.name_scope = saved.name_scope
  while raw.device_depth() > saved.devices do
    raw.device_pop()
  end
end

local function finish(scope, depth, ok, ...)
  -- Whatever was entered above this entry and not left goes too.
  if not ok then
    while #scope.entered > depth do
      scope:abandon()
    end
    scope:abandon()
    errors.raise_again((...))
  end
  local left, why = pcall(scope.exit, scope)
  if not left then
    scope:abandon()
    error(why, 0)
  end
  return ...
end

--- Call fn inside the scope; returns what it returns.
function Scope:call(fn, ...)
  self:enter()
  local depth = #self.entered
  return finish(self, depth, guard.pcall(state.current.thread,
    self:place(), fn, ...))
end

-- "strategy:scope (entered at train.lua:3)"
function Scope:place()
  local mode = self.entered[#self.entered].inner
  return "strategy:scope" .. (mode and mode.where and " (entered at "
    .. mode.where .. ")" or "")
end

function Scope:close()
  if #self.entered > 0 then
    self:exit()
  end
end

Scope.__close = Scope.close

function Scope:__tostring()
  return ("scope of %s (%s)"):format(tostring(self.strategy),
    #self.entered > 0 and "open" or "closed")
end

-- experimental_set_strategy --------------------------------------------------

local installed

--- Install a strategy's scope for everything that follows; nil removes it.
--- Errors: RuntimeError inside a scope or a replica function.
--- Source: tf.distribute.experimental_set_strategy
M.experimental_set_strategy = options.wrap(
  "distribute.experimental_set_strategy", "strategy=nil", function(strategy)
    local mode = state.current.mode
    local own = installed and installed.entered[1]
    if mode ~= nil and not (own and own.inner == mode) then
      errors.raise("RuntimeError", "experimental_set_strategy: Must not be "
        .. "called inside a strategy scope or a replica function" .. at(mode))
    end
    if strategy ~= nil and not M.is_strategy(strategy) then
      errors.raise("TypeError", "experimental_set_strategy: strategy must be a "
        .. "strategy or nil, got " .. text.describe(strategy))
    end
    if own then
      installed:exit()
      installed = nil
    end
    if strategy ~= nil and strategy ~= M.default_strategy then
      local scope = strategy:new_scope()
      scope:enter()
      installed = scope
    end
  end)

local getinfo = debug.getinfo
-- function -> its file, false for the library's and C's; getinfo is slow.
local files = setmetatable({}, { __mode = "k" })

local function file_of(fn)
  local file = files[fn]
  if file == nil then
    local info = getinfo(fn, "S")
    file = info.what ~= "C"
      and info.source:sub(1, #errors.library) ~= errors.library
      and info.short_src
    files[fn] = file
  end
  return file
end

--- "file:line" of the innermost frame outside the library, of another
--- coroutine when one is given; nil if there is none.
---@param thread? thread
function M.where(thread)
  local level = thread and 0 or 2
  while true do
    local info
    if thread then
      info = getinfo(thread, level, "fl")
    else
      info = getinfo(level, "fl")
    end
    if info == nil then
      return nil
    end
    local file = file_of(info.func)
    if file then
      return ("%s:%d"):format(file, info.currentline)
    end
    level = level + 1
  end
end

return M
