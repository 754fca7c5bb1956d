--- Intersection over union, from a confusion matrix.
local base = require "tfdist.keras.metrics.base"
local errors = require "tfdist.base.errors"
local functions = require "tfdist.keras.losses.functions"
local means = require "tfdist.keras.metrics.means"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local define, add = base.define, base.add
local updater, PAIR = means.updater, means.PAIR

local function init(self, num_classes, target_class_ids)
  options.integer(self.name, "num_classes", num_classes, 1)
  if target_class_ids ~= nil then
    local _, n = options.list(self.name, "target_class_ids", target_class_ids,
      "class numbers")
    for i = 1, n do
      options.integer(self.name, "target_class_ids", target_class_ids[i], 0,
        num_classes - 1)
    end
  end
  self.total_cm = self:add_weight {
    name = "total_confusion_matrix", shape = { num_classes, num_classes },
  }
  rawset(self, "num_classes", num_classes)
end

-- Class numbers as a flat list.
local function flat_ids(self, x, one_hot, axis)
  if one_hot then
    x = tf.argmax(functions.prediction(self.name, x),
      { axis = axis, output_type = "int32" })
  end
  return tf.reshape(base.cast({ dtype = "int32", name = self.name }, x),
    { -1 })
end

local function count(self, labels, predictions, sample_weight)
  local n = self.num_classes
  local size = raw.tensor_size(labels)
  if size ~= raw.tensor_size(predictions) then
    errors.raise("InvalidArgument", ("%s: %d labels for %d predictions"):format(
      self.name, size, raw.tensor_size(predictions)))
  end
  local weights = tf.ones({ size }, self.dtype)
  if sample_weight ~= nil then
    weights = base.weight_like(self, weights, tf.reshape(base.cast(self,
      sample_weight, "sample_weight"), { -1 }))
  end
  local ignored = self.config.ignore_class
  if ignored ~= nil then
    local valid = tf.not_equal(labels, ignored)
    weights = weights * tf.cast(valid, self.dtype)
    labels = tf.where(valid, labels, tf.zeros_like(labels))
  end
  -- Row = label, column = prediction, as one number for each example.
  add(self.total_cm, tf.reshape(tf.math.unsorted_segment_sum(weights,
    labels * n + predictions, n * n), { n, n }))
end

-- IoU of each class and which of them occur at all.
local function each_iou(self)
  local cm = self.total_cm:read_value()
  local n = self.num_classes
  local right = tf.reduce_sum(cm * tf.eye(n, { dtype = self.dtype }),
    { axis = 0 })
  local union = tf.reduce_sum(cm, { axis = 0 })
    + tf.reduce_sum(cm, { axis = 1 }) - right
  return tf.math.divide_no_nan(right, union),
    tf.cast(tf.greater(union, 0), self.dtype)
end

local function mean_iou(self)
  local iou, valid = each_iou(self)
  local ids = self.config.target_class_ids
  if ids ~= nil then
    iou, valid = tf.gather(iou, ids), tf.gather(valid, ids)
  end
  return tf.math.divide_no_nan(tf.reduce_sum(iou * valid),
    tf.reduce_sum(valid))
end

--- Mean IoU of some classes; labels and predictions are class numbers.
--- Source: tf.keras.metrics.IoU
M.IoU = define("IoU", "num_classes:i target_class_ids:table ignore_class=nil "
  .. "sparse_y_true=true sparse_y_pred=true axis=-1", init, "io_u")
updater(M.IoU, PAIR, function(self, y_true, y_pred, weight)
  local config = self.config
  count(self, flat_ids(self, y_true, not config.sparse_y_true, config.axis),
    flat_ids(self, y_pred, not config.sparse_y_pred, config.axis), weight)
end)

function M.IoU:result()
  return mean_iou(self)
end

--- Mean IoU of all classes that occur.
--- Source: tf.keras.metrics.MeanIoU
M.MeanIoU = define("MeanIoU", "num_classes:i ignore_class=nil "
  .. "sparse_y_true=true sparse_y_pred=true axis=-1", function(self, n)
    init(self, n)
  end, "mean_io_u", M.IoU)

--- IoU for labels 0 and 1 and predictions above or below a threshold.
--- Source: tf.keras.metrics.BinaryIoU
M.BinaryIoU = define("BinaryIoU", "target_class_ids:table=nil threshold=0.5",
  function(self, ids, threshold)
    if type(threshold) ~= "number" then
      errors.raise("TypeError", "BinaryIoU: threshold must be a number, got "
        .. text.describe(threshold))
    end
    init(self, 2, ids)
  end, "binary_io_u", M.IoU)
updater(M.BinaryIoU, PAIR, function(self, y_true, y_pred, weight)
  local p = functions.prediction(self.name, y_pred)
  count(self, flat_ids(self, y_true), flat_ids(self, tf.greater_equal(p,
    self.config.threshold)), weight)
end)

-- Labels of those below are one-hot: sparse_y_true, no argument of theirs, is not
-- in their configuration, which makes equal ones.

--- IoU with one-hot labels, and predictions as scores of the classes.
--- Source: tf.keras.metrics.OneHotIoU
M.OneHotIoU = define("OneHotIoU", "num_classes:i target_class_ids:table "
  .. "ignore_class=nil sparse_y_pred=false axis=-1",
  function(self, n, ids)
    init(self, n, ids)
  end, "one_hot_io_u", M.IoU)

--- MeanIoU with one-hot labels.
--- Source: tf.keras.metrics.OneHotMeanIoU
M.OneHotMeanIoU = define("OneHotMeanIoU", "num_classes:i ignore_class=nil "
  .. "sparse_y_pred=false axis=-1", function(self, n)
    init(self, n)
  end, "one_hot_mean_io_u", M.IoU)

return M
