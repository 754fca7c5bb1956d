--- What training keeps with a model, opaque to whoever walks its fields.
local errors = require "tfdist.base.errors"
local text = require "tfdist.base.text"

local M = {}

local type = type

local State = { __name = "training state" }

--- The model's training state, made on first use.
function M.of(model)
  if type(model) ~= "table" then
    errors.raise("TypeError", "the first argument must be the model itself, "
      .. "got " .. text.describe(model), "call its methods with a colon")
  end
  local own = rawget(model, "_training")
  if own == nil then
    own = setmetatable({}, State)
    rawset(model, "_training", own)
  end
  return own
end

--- The same, for what needs compile() before.
--- Errors: RuntimeError.
function M.compiled(model, what)
  local own = M.of(model)
  if not own.compiled then
    errors.raise("RuntimeError", ("%s: You must compile your model before "
      .. "training/testing (model %s)"):format(what, text.quote(model.name)),
      "model:compile { optimizer = \"adam\", loss = ... }")
  end
  return own
end

return M
