--- tf.keras: what is there so far. Other names raise NotImplementedError.

local errors = require "tfdist.errors"

local M = {}

local MODULES = {
  datasets = "tfdist.keras.datasets",
  optimizers = "tfdist.keras.optimizers",
}

setmetatable(M, {
  __index = function(self, name)
    local module = MODULES[name]
    if not module then
      errors.raise("NotImplementedError",
        ("tf.keras.%s is not there yet"):format(tostring(name)),
        "README, \"What is not there\", lists what is planned")
    end
    local loaded = require(module)
    rawset(self, name, loaded)
    return loaded
  end,
})

return M
