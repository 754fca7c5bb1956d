--- Whole numbers that stages are given: as such, or as tensors of one element,
--- which the functions of map, interleave and others get.
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"

local M = {}

local type = type

--- Errors: TypeError, ValueError.
---@param what string   stage, for messages
---@param name string   argument
---@param x any
---@param lo? number
---@return integer
function M.whole(what, name, x, lo)
  if type(x) == "userdata" and raw.is_operand(x) then
    local t = raw.operand_tensor(x)
    x = raw.tensor_size(t) == 1 and raw.item(t) or x
  end
  return options.integer(what, name, x, lo)
end

--- A count that may be -1 (or nil) for "all" or "for ever": nil then.
--- Errors: TypeError, ValueError.
function M.or_nil(what, name, x)
  if x == nil then
    return nil
  end
  x = M.whole(what, name, x, -1)
  return x ~= -1 and x or nil
end

return M
