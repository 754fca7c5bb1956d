--- Everything under tf that has to do with gradients.
local custom_gradient = require "tfdist.core.custom_gradient"
local gradient_tape = require "tfdist.core.gradient_tape"

local M = {}

--- Put GradientTape, custom_gradient, stop_gradient ... into tf.
---@param tf table
---@param def function  as in tfdist.core.ops
function M.install(tf, def)
  gradient_tape.install(tf, def)
  custom_gradient.install(tf, def)
end

return M
