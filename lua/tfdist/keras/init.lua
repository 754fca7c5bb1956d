--- tf.keras: modules and classes, loaded when they are first used.

local errors = require "tfdist.base.errors"
local fields = require "tfdist.base.fields"
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
    rawset(self, name, value)
    return value
  end,
  __names = function()
    return text.names(MODULES, FIELDS)
  end,
})

-- Names of the methods of all classes that were used so far.
local function method_names()
  local found = {}
  for path, module in pairs(package.loaded) do
    if type(path) == "string" and path:find("^tfdist%.keras")
      and type(module) == "table" then
      for _, class in next, module do
        if text.class_name(class) ~= nil then
          fields.add(found, class)
        end
      end
    end
  end
  return text.names(found)
end

-- Objects of user's classes have any field, so that a slip in the name of a
-- method is nil until it is called.
errors.add_explanation(function(message)
  local name = message:match("method '([%a_][%w_]*)'")
  local near = name and message:find("nil value", 1, true)
    and text.nearest(name, method_names(), 2)
  if near then
    return "RuntimeError", "did you mean " .. near .. "?"
  end
end)

return M
