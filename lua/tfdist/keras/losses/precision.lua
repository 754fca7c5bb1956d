--- What losses are computed in: float32 at least. Sums over a batch soon leave
--- float16, and in both half types stop growing early.
local logits = require "tfdist.keras.logits"
local masks = require "tfdist.keras.masks"
local raw = require "tfdist.core.raw"
local tf = require "tfdist.core.functions"

local M = {}

local HALF = { float16 = true, bfloat16 = true }

local function is_half(x)
  return type(x) == "userdata" and raw.kind(x) == "tensor"
    and HALF[raw.tensor_dtype(x)] == true
end

--- A half-type tensor as float32, with its mask and the logits that it was made
--- of; anything else as it is.
---@param x any
---@return any
function M.widened(x)
  if not is_half(x) then
    return x
  end
  local y = masks.keep(x, tf.cast(x, "float32"))
  local from, known = logits.of(x, false)
  return known and logits.keep(y, tf.cast(from, "float32")) or y
end

return M
