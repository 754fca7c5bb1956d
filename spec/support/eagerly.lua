--- Loaded before the specs (lua5.4 -l spec.support.eagerly) it has them run
--- without graphs: traced functions as plain ones, steps of models op by op.
local tf = require "tfdist"

tf.config.run_functions_eagerly(true)
