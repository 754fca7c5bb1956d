--- tf.keras.constraints: what weights are pushed back into after each update.
--- A constraint is called with a tensor and returns one of the same shape.
--- Source: tf.keras.constraints
local backend = require "tfdist.keras.backend"
local convert = require "tfdist.core.convert"
local objects = require "tfdist.keras.objects"
local tf = require "tfdist.core.functions"

local M = {}

local family = objects.family("constraint", M)

local function norms(self, w)
  return tf.sqrt(tf.reduce_sum(tf.square(w), { axis = self.axis,
    keepdims = true }))
end

local function setup(self)
  self.axis = convert.integers(self.axis, getmetatable(self).__name, "axis")
end

--- Norms along axis are at most max_value.
family:define("MaxNorm", "max_norm", "max_value=2 axis=0", {
  setup = setup,
  call = function(self, w)
    local n = norms(self, w)
    local wanted = tf.clip_by_value(n, 0, self.max_value)
    return w * (wanted / (n + backend.epsilon()))
  end,
})

--- No element is negative.
family:define("NonNeg", "non_neg", "", {
  call = function(_, w)
    return w * tf.cast(tf.greater_equal(w, 0), w.dtype)
  end,
})

--- Norms along axis are 1.
family:define("UnitNorm", "unit_norm", "axis=0", {
  setup = setup,
  call = function(self, w)
    return w / (norms(self, w) + backend.epsilon())
  end,
})

--- Norms along axis move by `rate` to the range min_value .. max_value.
family:define("MinMaxNorm", "min_max_norm",
  "min_value=0 max_value=1 rate=1 axis=0", {
    setup = setup,
    call = function(self, w)
      local n = norms(self, w)
      local wanted = tf.clip_by_value(n, self.min_value, self.max_value)
        * self.rate + n * (1 - self.rate)
      return w * (wanted / (n + backend.epsilon()))
    end,
  })

return M
