--- What calls use implicitly on the Lua side: name scope and variable
--- creators. The C side (devices, tapes) has its context.
---
--- One state for each replica's coroutine: whoever switches coroutines swaps
--- `M.current` together with raw.context_enter.
local errors = require "tfdist.base.errors"
local guard = require "tfdist.base.guard"
local pairs = require "tfdist.base.pairs"

local resume = coroutine.resume

local M = {}

--- `creators` of a state is a linked list, innermost first: { creator = fn,
--- next = list }.
M.current = { name_scope = "" }

--- The name scope of a state as variables have it. All replicas make the same
--- ones: "main/replica_1/", which the second replica sees as the scope of its
--- run, is "main/" to them.
---@param own table
---@return string
function M.shared_scope(own)
  local scope, seen = own.name_scope, own.run_seen
  if seen == nil or scope:sub(1, #seen) ~= seen then
    return scope
  end
  return own.run_scope .. scope:sub(#seen + 1)
end

--- Whether what tf.function_ made is called as plain functions.
M.eagerly = false

---@param on boolean
function M.call_eagerly(on)
  M.eagerly = on
end

local settings = {} -- [name] = text

--- The settings of the whole library that are not as at first, as text: code
--- reads them as it is traced.
M.settings = ""

--- A setting has another value now; nil: as at first.
---@param name string
---@param value any
function M.note_setting(name, value)
  settings[name] = value ~= nil and tostring(value) or nil
  local parts = {}
  for key, words in pairs(settings) do
    parts[#parts + 1] = key .. "=" .. words
  end
  table.sort(parts)
  M.settings = table.concat(parts, " ")
end

--- Resume a coroutine in its state; returns whether it has not failed, and what
--- it yielded first or its error.
---@param state table
---@param thread thread
---@param ... any
---@return boolean, any
function M.resume(state, thread, ...)
  local before = M.current
  M.current = state
  local ok, signal = resume(thread, ...)
  M.current = before
  return ok, signal
end

local function leave(undo, ok, ...)
  if not ok then
    -- What there is to say may depend on what ends now.
    local e = errors.explained((...))
    undo()
    error(e, 0)
  end
  undo()
  return ...
end

--- Call fn and run undo afterwards, also when fn raised; returns fn's results.
--- Errors: RuntimeError when a coroutine of the user's yields inside fn.
---@param undo fun()
---@param fn function
---@param ... any
---@return any
function M.protect(undo, fn, ...)
  return leave(undo, guard.pcall(M.current.thread,
    "a scope, a tape or a tf.device", fn, ...))
end

--- An object with `close`, for the forms without a function; closing twice is
--- nothing. On Lua 5.4 `local x <close> =` works.
---@param name string
---@param undo fun()
---@return table
function M.closer(name, undo)
  local open = true
  local object = {}
  function object.close()
    if open then
      open = false
      undo()
    end
  end
  return setmetatable(object, {
    __name = name,
    __close = object.close,
    __tostring = function()
      return name .. (open and " (open)" or " (closed)")
    end,
  })
end

return M
