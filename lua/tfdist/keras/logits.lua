--- What sigmoid and softmax made probabilities of. Cross-entropies of these
--- probabilities are computed from the logits: they stay exact, and their
--- gradients stay alive, where a probability is 0 or 1 in its dtype.
--- Source: x._keras_logits in Keras.
local M = {}

-- probabilities -> logits
local logits = setmetatable({}, { __mode = "k" })

--- Note what probabilities were made of; returns them.
function M.keep(probabilities, x)
  logits[probabilities] = x
  return probabilities
end

--- The predictions for a cross-entropy, and whether they are logits.
---@param y_pred any
---@param from_logits boolean
function M.of(y_pred, from_logits)
  local x = not from_logits and type(y_pred) == "userdata" and logits[y_pred]
  if x then
    return x, true
  end
  return y_pred, from_logits
end

return M
