--- The class of the specs' own strategy; its rules are spec/support/ensemble.c.
require "tfdist.distribute"
local options = require "tfdist.base.options"
local strategy = require "tfdist.distribute.strategy"

local Ensemble = strategy.class "EnsembleStrategy"

--- A member on each device, trained on all of the data.
return options.wrap("EnsembleStrategy", "devices", function(names)
  return strategy.new(Ensemble, "ensemble",
    strategy.devices("EnsembleStrategy", names))
end)
