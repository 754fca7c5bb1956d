--- tf.keras: modules and classes, loaded when they are first used.

local loading = require "tfdist.base.loading"
local text = require "tfdist.base.text"

local M = {}

local MODULES = {}
for _, name in ipairs {
  "activations", "backend", "callbacks", "constraints", "datasets",
  "initializers", "layers", "losses", "metrics", "mixed_precision", "models",
  "optimizers", "regularizers", "utils",
} do
  MODULES[name] = "tfdist.keras." .. name
end

-- name = { module, field of it }
local FIELDS = {
  Model = { "models", "Model" }, Sequential = { "models", "Sequential" },
  Input = { "models", "Input" }, Layer = { "layers", "Layer" },
}

local check_name = text.name_slips("tf.keras", function()
  return text.names(MODULES, FIELDS)
end)

local function load(name)
  local path = MODULES[name]
  if path then
    return text.watch("tf.keras." .. name, loading.load(path))
  end
  return check_name(name)
end

setmetatable(M, {
  __index = function(self, name)
    local field = FIELDS[name]
    local value
    if field then
      value = load(field[1])[field[2]]
    else
      value = load(name)
    end
    if value ~= nil then
      rawset(self, name, value)
    end
    return value
  end,
  __names = function()
    return text.names(MODULES, FIELDS)
  end,
})

return M
