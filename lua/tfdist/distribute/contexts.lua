--- Which strategy and replica the running code belongs to.
---
--- A stack of modes hangs on the current state (module state), so every
--- replica's coroutine has its own. A mode is in-replica when it has a replica
--- context, else cross-replica. No mode: the default strategy, in its replica
--- context.
local errors = require "tfdist.errors"
local options = require "tfdist.options"
local state = require "tfdist.state"
local text = require "tfdist.text"

local M = {}

-- Set when the strategies are there.
M.default_strategy = nil
M.default_context = nil

--- The innermost mode, or nil.
function M.mode()
  return state.current.mode
end

--- Source: tf.distribute.get_strategy
function M.get_strategy()
  local mode = state.current.mode
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
  end
  return mode.replica
end

--- Source: tf.distribute.in_cross_replica_context
function M.in_cross_replica_context()
  local mode = state.current.mode
  return mode ~= nil and mode.replica == nil
end

function errors.place()
  local mode = state.current.mode
  local replica = mode and mode.replica
  if replica and replica ~= M.default_context then
    return replica.replica_id_in_sync_group
  end
  return nil
end

local function at(mode)
  return mode.where and ", entered at " .. mode.where or ""
end

local function mixing(strategy, mode, what)
  errors.raise("RuntimeError", ("Mixing different tf.distribute.Strategy "
    .. "objects: %s of a %s while the scope of another strategy (%s%s) is "
    .. "active"):format(what, strategy.name, mode.strategy.name, at(mode)),
    "strategies cannot be mixed; leave the other scope first")
end

M.mixing = mixing

--- Raise unless `what` of strategy may be called here: in its cross-replica
--- context or outside of all strategies.
--- Errors: RuntimeError.
function M.require_cross_replica(strategy, what, hint)
  local mode = state.current.mode
  if mode == nil then
    return
  elseif mode.strategy ~= strategy then
    mixing(strategy, mode, what)
  elseif mode.replica ~= nil then
    errors.raise("RuntimeError", ("%s needs cross-replica context but replica "
      .. "%d called it (inside the replica function)"):format(what,
      mode.replica.replica_id_in_sync_group), hint)
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
  local mode = state.current.mode
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
    name_scope = own.name_scope,
  }
  if strategy ~= M.default_strategy then
    own.mode = {
      strategy = strategy, outer = own.mode, where = M.where(),
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
  if own ~= saved.state or own.mode ~= saved.inner then
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
end

local function finish(scope, ok, ...)
  if not ok then
    scope:abandon()
    error((...), 0)
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
  return finish(self, pcall(fn, ...))
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

--- "file:line" of the innermost frame outside the library, of another
--- coroutine when one is given; nil if there is none.
---@param thread? thread
function M.where(thread)
  local level = thread and 0 or 2
  while true do
    local info
    if thread then
      info = debug.getinfo(thread, level, "Sl")
    else
      info = debug.getinfo(level, "Sl")
    end
    if info == nil then
      return nil
    elseif info.what ~= "C"
      and info.source:sub(1, #errors.library) ~= errors.library then
      return ("%s:%d"):format(info.short_src, info.currentline)
    end
    level = level + 1
  end
end

return M
