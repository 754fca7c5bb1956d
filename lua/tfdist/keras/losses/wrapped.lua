--- What compile makes of the losses that it is given.
local errors = require "tfdist.base.errors"
local functions = require "tfdist.keras.losses.functions"
local losses = require "tfdist.keras.losses"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

local type = type

-- A loss around a function, as compile makes it.
local Wrapped = losses.Loss:subclass "LossFunctionWrapper"

function Wrapped:init(fn, name)
  rawset(self, "fn", fn)
  losses.Loss.init(self, "auto", name or "loss")
end

function Wrapped:call(y_true, y_pred)
  local values = self.fn(functions.bridged(y_true, y_pred))
  if type(values) ~= "userdata" or not raw.is_operand(values) then
    errors.raise("TypeError", ("%s: a loss function must return a tensor, one "
      .. "value for each example; got %s"):format(self.name,
      text.describe(values)))
  end
  return values
end

--- As get, but always a loss object; functions get the reduction `auto`.
function M.object(identifier)
  local loss = losses.get(identifier)
  if loss == nil or losses.is_loss(loss) then
    return loss
  end
  return Wrapped(loss, type(identifier) == "string" and identifier or nil)
end

return M
