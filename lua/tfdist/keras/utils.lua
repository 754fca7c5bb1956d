--- tf.keras.utils: one-hot labels, seeds, batches of one's own, names of
--- classes.
--- Source: tf.keras.utils
local base = require "tfdist.keras.layers.base"
local errors = require "tfdist.base.errors"
local classes = require "tfdist.base.classes"
local define = require "tfdist.keras.layers.define"
local module = require "tfdist.core.module"
local objects = require "tfdist.keras.objects"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

--- Class numbers from 0 as rows with a 1.
--- Shapes: {...} (a last axis of 1 is dropped) to {..., num_classes};
---   num_classes defaults to the largest number plus 1.
--- Errors: InvalidArgument for a class outside 0..num_classes-1.
--- Source: tf.keras.utils.to_categorical
M.to_categorical = options.wrap("utils.to_categorical", "y:t num_classes=nil "
  .. "dtype='float32'", function(y, num_classes, dtype)
  local t = tf.cast(tf.convert_to_tensor(y), "int64")
  local dims = t.shape
  if #dims > 1 and dims[#dims] == 1 then
    t = tf.squeeze(t, { #dims - 1 })
  end
  local empty = t:size() == 0
  local largest = empty and -1 or tf.reduce_max(t):item()
  num_classes = num_classes or largest + 1
  options.integer("to_categorical", "num_classes", num_classes, 0)
  local smallest = empty and 0 or tf.reduce_min(t):item()
  if largest >= num_classes or smallest < 0 then
    errors.raise("InvalidArgument", ("to_categorical: class %s is outside "
      .. "0..%d"):format(text.number(smallest < 0 and smallest or largest),
      num_classes - 1))
  end
  return tf.one_hot(t, num_classes, { dtype = dtype })
end)

--- tf.random.set_seed and math.randomseed.
--- Source: tf.keras.utils.set_random_seed
function M.set_random_seed(seed)
  tf.random.set_seed(seed)
  math.randomseed(seed)
end

--- x / |x| along axis. Source: tf.keras.utils.normalize
M.normalize = options.wrap("utils.normalize", "x:t axis=-1 order=2",
  function(x, axis, order)
    local t = tf.cast(tf.convert_to_tensor(x), "float32")
    local n = tf.norm(t, order, axis, { keepdims = true })
    return t / tf.where(tf.equal(n, 0), tf.ones_like(n), n)
  end)

--- Base class of data that is read batch by batch: a subclass defines
--- length(self), the number of batches, and get(self, i), batch i from 0; it
--- may define on_epoch_end(self).
---
---   local Noise = tf.keras.utils.Sequence:extend "Noise"
---   function Noise:length() return 10 end
---   function Noise:get(i) return tf.random.normal { 4, 2 }, tf.ones { 4 } end
---   for x, y in Noise():iter() do ... end
--- Source: tf.keras.utils.Sequence
local Sequence = module.Module:subclass "Sequence"
Sequence.is_keras_sequence = true
Sequence.extend = Sequence.subclass

function Sequence:length()
  errors.raise("NotImplementedError", ("%s defines no length"):format(
    self.__name))
end

function Sequence:get()
  errors.raise("NotImplementedError", ("%s defines no get"):format(self.__name))
end

--- All batches once.
function Sequence:iter()
  local i, n = -1, self:length()
  return function()
    i = i + 1
    if i < n then
      return self:get(i)
    end
    return nil
  end
end

classes.guard(Sequence, function(x)
  return module.Module.is_module(x) and x.is_keras_sequence == true
end, "sequence")
M.Sequence = Sequence

--- Let configurations name a class of one's own; returns the class.
--- Source: tf.keras.utils.register_keras_serializable
---@param class table   made by Layer:extend or Model:extend
---@param name? string  defaults to the class's
function M.register_keras_serializable(class, name)
  if type(class) ~= "table" or type(class.__name) ~= "string" then
    errors.raise("TypeError", "register_keras_serializable: expected a class, "
      .. "got " .. text.describe(class), "Layer:extend \"Mine\" makes one")
  end
  define.custom[name or class.__name] = class
  return class
end

--- { class_name, config } of a layer, initializer, ...
M.serialize_keras_object = objects.serialize

--- Elements of variables in all. Source: keras.utils.layer_utils.count_params
M.count_params = options.wrap("utils.count_params", "weights:list", base.count)

for _, name in ipairs { "plot_model", "model_to_dot" } do
  M[name] = function()
    errors.raise("NotImplementedError", "utils." .. name .. " is not "
      .. "implemented", "model:summary() lists the layers")
  end
end

options.functions(M, "utils.", {
  set_random_seed = "seed:integer",
  register_keras_serializable = "class name=nil",
  serialize_keras_object = "object:table=nil",
})

return M
