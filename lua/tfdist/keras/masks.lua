--- Masks: which steps of a tensor count. Layers give them to their outputs;
--- layers behind, losses and metrics find them there.
---
--- A mask is a bool tensor with the leading axes of its tensor, false where a
--- step does not count. It hangs on the tensor, so what is made from the tensor
--- by an op has none. Source: x._keras_mask in Keras.
local nest = require "tfdist.base.nest"

local M = {}

local type = type

-- tensor -> mask
local masks = setmetatable({}, { __mode = "k" })
-- False until the first mask: models without masks do not look.
local used = false

--- The mask of a tensor, or nil.
---@param x any
---@return tfdist.Tensor|nil
function M.of(x)
  if used and type(x) == "userdata" then
    return masks[x]
  end
  return nil
end

--- Give a tensor a mask.
function M.set(x, mask)
  used = true
  masks[x] = mask
end

--- `to` counts where `from` does; returns `to`.
function M.keep(from, to)
  if used and masks[from] ~= nil and to ~= from then
    masks[to] = masks[from]
  end
  return to
end

--- The mask of a tensor, for a structure a structure of masks with false for
--- none; nil when there are none at all.
function M.of_each(inputs)
  if not used then
    return nil
  elseif not nest.is_nested(inputs) then
    return M.of(inputs)
  end
  local found = false
  local out = nest.map_structure(function(x)
    local mask = M.of(x)
    found = found or mask ~= nil
    return mask or false
  end, inputs)
  return found and out or nil
end

return M
