--- What training keeps with a model, opaque to whoever walks its fields.
local errors = require "tfdist.errors"
local text = require "tfdist.text"

local M = {}

local State = { __name = "training state" }

--- The model's training state, made on first use.
function M.of(model)
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
