--- tf.keras: what is there so far. Other names raise NotImplementedError.

local text = require "tfdist.text"

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

local function load(name)
  local path = MODULES[name]
  local ok, module
  if path then
    ok, module = pcall(require, path)
    if ok then
      return text.watch("tf.keras." .. name, module)
    elseif not (type(module) == "string"
      and module:find("module '" .. path .. "' not found", 1, true)) then
      error(module, 0)
    end
  end
  text.not_there("tf.keras", tostring(name), text.names(MODULES, FIELDS))
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
    rawset(self, name, value)
    return value
  end,
  __names = function()
    return text.names(MODULES, FIELDS)
  end,
})

return M
