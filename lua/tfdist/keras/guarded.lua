--- Steps of an optimizer that values decide on which only a call of a traced
--- function knows: a branch of the graph that writes variables or does not.
local flow = require "tfdist.core.flow"
local tf = require "tfdist.core.functions"

local M = {}

--- Trace fn() as what the calls do where the condition holds.
---@param condition tfdist.Tensor  one boolean, symbolic
---@param fn function  gives nothing
function M.when(condition, fn)
  local index = tf.where(tf.reshape(condition, {}), tf.constant(0, "int32"),
    tf.constant(1, "int32"))
  local taken = flow.part(function() fn() end)
  local left = flow.part(function() end)
  flow.choose(index, { taken, left }, { { n = 0 }, { n = 0 } })
end

return M
