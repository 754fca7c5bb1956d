--- tf.keras.regularizers: penalties on weights that are added to the loss.
--- A regularizer is called with a tensor and returns a scalar.
--- Source: tf.keras.regularizers
local errors = require "tfdist.base.errors"
local objects = require "tfdist.keras.objects"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local family = objects.family("regularizer", M)

local function check(...)
  local names = { ... }
  return function(self)
    for i = 1, #names do
      local x = self[names[i]]
      if type(x) ~= "number" or x ~= x or x < 0 or x == math.huge then
        errors.raise(type(x) == "number" and "ValueError" or "TypeError",
          ("%s: %s must be a number from 0, got %s"):format(
          getmetatable(self).__name, names[i], text.describe(x)))
      end
    end
  end
end

local function penalty(self, x)
  local sum
  if (self.l1 or 0) ~= 0 then
    sum = tf.reduce_sum(tf.abs(x)) * self.l1
  end
  if (self.l2 or 0) ~= 0 then
    local squares = tf.reduce_sum(tf.square(x)) * self.l2
    sum = sum and sum + squares or squares
  end
  return sum or tf.zeros({}, tf.convert_to_tensor(x).dtype)
end

--- l1 * sum |x|
family:define("L1", "l1", "l1=0.01", { setup = check "l1", call = penalty })

--- l2 * sum x^2
family:define("L2", "l2", "l2=0.01", { setup = check "l2", call = penalty })

--- Both. By name ("l1_l2") each is 0.01.
family:define("L1L2", "", "l1=0 l2=0",
  { setup = check("l1", "l2"), call = penalty })

M.l1_l2 = options.wrap("l1_l2", "l1=0.01 l2=0.01", function(l1, l2)
  return M.L1L2 { l1 = l1, l2 = l2 }
end)
family.classes.l1_l2 = M.l1_l2

local MODES = { "rows", "columns" }

--- factor times half the sum of the cosines between different rows (or
--- columns), by absolute value.
--- Shapes: a matrix.
--- Source: tf.keras.regularizers.OrthogonalRegularizer
family:define("OrthogonalRegularizer", "orthogonal_regularizer",
  "factor=0.01 mode=rows", {
    setup = function(self)
      check "factor"(self)
      self.mode = options.choice("OrthogonalRegularizer", "mode", self.mode,
        MODES)
    end,
    call = function(self, x)
      x = tf.convert_to_tensor(x)
      if #x.shape ~= 2 then
        errors.raise("ValueError", ("OrthogonalRegularizer: the weights have "
          .. "shape %s; a matrix is expected"):format(text.shape(x.shape)))
      end
      local rows = self.mode == "rows"
      local unit = tf.math.l2_normalize(x, { axis = rows and 1 or 0 })
      local product = rows and tf.matmul(unit, unit, { transpose_b = true })
        or tf.matmul(unit, unit, { transpose_a = true })
      local size = product.shape[1]
      local off = product * (1 - tf.eye(size, { dtype = x.dtype }))
      local pairs_count = math.max(1, size * (size - 1) / 2)
      return tf.reduce_sum(tf.abs(off)) * (self.factor * 0.5 / pairs_count)
    end,
  })

return M
