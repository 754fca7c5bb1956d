--- Modules that are loaded when they are first needed.
local pairs = require "tfdist.base.pairs"

local M = {}

-- What LuaJIT's require, older and newer, leaves instead of a module.
local MARKS = { userdata = true, number = true }

--- The module of this name. One that failed, for want of memory say, is loaded
--- anew when it is asked for again: LuaJIT's require would remember it, and
--- those that waited for it, as half loaded.
---@param name string
---@return any
function M.load(name)
  local ok, value = pcall(require, name)
  if ok then
    return value
  end
  for key, mark in pairs(package.loaded) do
    if MARKS[type(mark)] and key:find "^tfdist%." then
      package.loaded[key] = nil
    end
  end
  error(value, 0)
end

return M
