--- tf.keras.losses: classes with a reduction, and functions without.
---
---   local loss_fn = tf.keras.losses.SparseCategoricalCrossentropy {
---     from_logits = true, reduction = "none" }
---   loss_fn(y_true, y_pred[, sample_weight])
---
--- A class of one's own:
---   local Loss = tf.keras.losses.Loss
---   local Quartic = Loss:subclass "Quartic"
---   function Quartic:call(y_true, y_pred) return (y_true - y_pred) ^ 4 end
local backend = require "tfdist.keras.backend"
local classes = require "tfdist.base.classes"
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local functions = require "tfdist.keras.losses.functions"
local module = require "tfdist.core.module"
local objects = require "tfdist.keras.objects"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local precision = require "tfdist.keras.losses.precision"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local weights = require "tfdist.keras.losses.weights"

-- Puts the default context in place.
require "tfdist.distribute"

local M = {}

local type = type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local REDUCTIONS = { "auto", "none", "sum", "sum_over_batch_size", "mean",
  "mean_with_sample_weight" }

--- Names of the reductions.
--- Source: tf.keras.losses.Reduction
M.Reduction = {
  AUTO = "auto", NONE = "none", SUM = "sum",
  SUM_OVER_BATCH_SIZE = "sum_over_batch_size",
}

-- Sums -----------------------------------------------------------------------

local function reduce(values, reduction, by)
  if reduction == "none" or raw.tensor_rank(values) == 0
    or raw.tensor_rank(values) == 1 and raw.tensor_size(values) == 0 then
    return values
  end
  local sum = tf.reduce_sum(values)
  local n = raw.tensor_size(values)
  if reduction == "sum" or n == 0 then
    return sum
  end
  return by ~= nil and tf.math.divide_no_nan(sum, by) or sum / n
end

-- Loss -----------------------------------------------------------------------

--- Base class: call(y_true, y_pred) gives one loss per example, which calling
--- the object weighs and reduces.
---   local Power = tf.keras.losses.Loss:extend "Power"
---   function Power:init(exponent, options)      -- Power(2, { name = "p" })
---     tf.keras.losses.Loss.init(self, options)
---     self.exponent = exponent
---   end
--- Source: tf.keras.losses.Loss
local Loss = module.Module:subclass "Loss"

local base_init = options.method("Loss.init", "reduction='auto' name=nil",
  function(self, reduction, name)
    self.reduction = options.choice(self.__name, "reduction", reduction,
      REDUCTIONS)
    if name ~= nil and type(name) ~= "string" then
      errors.raise("TypeError", ("%s: name must be a string, got %s"):format(
        self.__name, text.describe(name)))
    end
    rawset(self, "_name", name or backend.snake_case(self.__name))
  end)

--- Called by subclasses that take reduction and name.
function Loss:init(...)
  base_init(self, ...)
end

function Loss:call()
  errors.raise("NotImplementedError", ("%s: a loss class defines "
    .. "call(self, y_true, y_pred)"):format(self.__name))
end

local function reduction_of(self)
  local reduction = rawget(self, "reduction") or "auto"
  if reduction == "sum" or reduction == "none" then
    return reduction
  elseif contexts.has_strategy() then
    errors.raise("ValueError", ("%s: reduction %s cannot be used inside a "
      .. "strategy: Please use reduction SUM or NONE, except for losses given "
      .. "to compile"):format(self.name, reduction), "reduction = \"none\", "
      .. "then tf.nn.compute_average_loss(losses, { global_batch_size = G })")
  end
  return reduction
end

local function get_config(self)
  local config = { reduction = self.reduction, name = self.name }
  for key, value in pairs(rawget(self, "config") or {}) do
    config[key] = value
  end
  return config
end

function Loss:get_config()
  return get_config(self)
end

Loss.__call = options.method("loss", "y_true:table y_pred:table "
  .. "sample_weight:table=nil", function(self, y_true, y_pred, sample_weight)
    local reduction = reduction_of(self)
    y_true, y_pred = precision.widened(y_true), precision.widened(y_pred)
    local values, by = weights.weigh(self, self:call(y_true, y_pred), y_pred,
      sample_weight)
    return reduce(values, reduction, by)
  end)

function Loss:__tostring()
  return ("%s (reduction %s)"):format(self.__name, self.reduction)
end

M.Loss = Loss

--- True for objects of Loss and its subclasses.
function M.is_loss(x)
  return type(x) == "table" and type(getmetatable(x)) == "table"
    and getmetatable(x).is_tf_module == true and x.is_tf_loss == true
end

Loss.is_tf_loss = true
classes.guard(Loss, M.is_loss, "loss")

-- Classes of the functions ---------------------------------------------------

local loss_classes = {}

-- A class whose call is the function with the same options.
local function define(class_name, function_name)
  local class = Loss:subclass(class_name)
  classes.guard(class, M.is_loss, "loss")
  local fn = functions.functions[function_name]
  local signature = functions.signatures[function_name]
  local sig = options.signature(class_name, signature)
  local parse = options.method(class_name, signature
    .. " reduction='auto' name='" .. function_name .. "'",
    function(self, ...)
      local given, config = { ... }, {}
      for i = 1, sig.n do
        config[sig.names[i]] = given[i]
      end
      rawset(self, "config", config)
      rawset(self, "given", given)
      base_init(self, given[sig.n + 1], given[sig.n + 2])
    end)
  class.init = parse
  function class.call(self, y_true, y_pred)
    return fn(y_true, y_pred, unpack(rawget(self, "given"), 1, sig.n))
  end
  loss_classes[class_name] = class
  M[class_name] = class
end

for class_name, function_name in pairs {
  MeanSquaredError = "mean_squared_error",
  MeanAbsoluteError = "mean_absolute_error",
  MeanAbsolutePercentageError = "mean_absolute_percentage_error",
  MeanSquaredLogarithmicError = "mean_squared_logarithmic_error",
  Huber = "huber", LogCosh = "log_cosh", Hinge = "hinge",
  CosineSimilarity = "cosine_similarity", SquaredHinge = "squared_hinge",
  CategoricalHinge = "categorical_hinge", KLDivergence = "kl_divergence",
  Poisson = "poisson", BinaryCrossentropy = "binary_crossentropy",
  BinaryFocalCrossentropy = "binary_focal_crossentropy",
  CategoricalCrossentropy = "categorical_crossentropy",
  CategoricalFocalCrossentropy = "categorical_focal_crossentropy",
  SparseCategoricalCrossentropy = "sparse_categorical_crossentropy",
} do
  define(class_name, function_name)
end

for name, fn in pairs(functions.functions) do
  M[name] = fn
end

-- Looking up -----------------------------------------------------------------

local function known_names()
  local names = text.names(loss_classes, functions.functions)
  -- Small letters first: they win where case is all that differs.
  table.sort(names, function(a, b)
    return a:lower() == b:lower() and a > b or a:lower() < b:lower()
  end)
  local list = {}
  for _, lower in ipairs { true, false } do
    for _, name in ipairs(names) do
      if (name == name:lower()) == lower then
        list[#list + 1] = name
      end
    end
  end
  return list
end

objects.publish(M, {
  noun = "loss", plural = "losses", classes = loss_classes,
  functions = functions.functions, is_object = M.is_loss, names = known_names,
})

options.methods(Loss, "Loss.", { get_config = "" }, M.is_loss, "loss")

return M
