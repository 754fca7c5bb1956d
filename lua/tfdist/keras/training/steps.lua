--- What one replica does in a step of training, evaluation or prediction.
---
--- A loss that is a mean is scaled so that gradients summed over replicas give
--- the mean over the global batch, also when shares differ in size: each
--- replica divides its sum by the number of examples of all replicas.
local base = require "tfdist.keras.metrics.base"
local contexts = require "tfdist.distribute.contexts"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local notice = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local outputs = require "tfdist.keras.training.outputs"
local pairs = require "tfdist.base.pairs"
local precision = require "tfdist.keras.losses.precision"
local raw = require "tfdist.core.raw"
local state = require "tfdist.keras.training.state"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"
local loss_weights = require "tfdist.keras.losses.weights"

local M = {}

local type = type

-- Sizes ----------------------------------------------------------------------

local function rows(t)
  return raw.tensor_rank(t) > 0 and raw.tensor_dim(t, 0) or 1
end

--- Examples in a structure: the size of axis 0 of its first tensor.
function M.examples(structure)
  if type(structure) == "userdata" and raw.kind(structure) == "tensor" then
    return rows(structure)
  end
  local flat = nest.flatten(structure)
  for i = 1, flat.n do
    local x = flat[i]
    if type(x) == "userdata" and raw.is_operand(x) then
      return rows(raw.operand_tensor(x))
    end
  end
  return 1
end

-- Examples of the global batch, as far as this replica knows.
local function global_examples(own, n)
  if own.step_examples ~= nil then
    return own.step_examples
  end
  local mode = contexts.mode()
  return n * (mode and mode.strategy.num_replicas_in_sync or 1)
end

local function replica_count()
  local mode = contexts.mode()
  return mode and mode.strategy.num_replicas_in_sync or 1
end

-- Losses ---------------------------------------------------------------------

local function resolve_losses(own, names)
  if own.names == nil then
    own.names = names
    own.losses, own.loss_weights = outputs.losses(own.spec, names)
  end
end

local function no_labels(names, i)
  errors.raise("ValueError", ("compute_loss: output %s has a loss but there "
    .. "are no labels for it"):format(text.quote(names[i])),
    "give y, or a dataset of pairs x, y")
end

local widened = precision.widened

local WIDTH = { float16 = 1, bfloat16 = 1, float32 = 2, float64 = 3 }

-- a + b in the wider of their types, as outputs and layers may differ in it; a
-- may be nil.
local function plus(a, b)
  b = widened(b)
  if a == nil then
    return b
  end
  a = widened(a)
  local left, right = raw.tensor_dtype(a), raw.tensor_dtype(b)
  if left ~= right then
    local wide = (WIDTH[left] or 0) < (WIDTH[right] or 0) and right or left
    a, b = tf.cast(a, wide), tf.cast(b, wide)
  end
  return a + b
end

-- The shape of a tensor; any other value, which the loss refuses, as it is.
local function shown(x)
  return type(x) == "userdata" and raw.is_operand(x) and text.shape(x.shape)
    or text.describe(x)
end

local function place_of(loss, y_true, y_pred)
  return ("in loss %s, labels %s, predictions %s"):format(
    text.quote(loss.name), shown(y_true), shown(y_pred))
end

-- Losses of a call, weighed, and what their mean divides by; errors name the
-- loss.
local function call_loss(loss, y_true, y_pred, weight)
  local ok, values
  y_true, y_pred = widened(y_true), widened(y_pred)
  if tracing.current() == nil then
    ok, values = pcall(loss.call, loss, y_true, y_pred)
  else
    ok, values = tracing.noted(place_of(loss, y_true, y_pred), nil, loss.call,
      loss, y_true, y_pred)
  end
  if not ok then
    error(errors.note(errors.wrap(values), place_of(loss, y_true, y_pred)), 0)
  end
  return loss_weights.weigh(loss, widened(values), y_pred, weight)
end

-- A sum over all replicas where this one has a part: what counts in a batch
-- shows only in the data.
local function over_replicas(x)
  local context = contexts.get_replica_context()
  if context == nil or context.num_replicas_in_sync == 1 then
    return x
  end
  return context:all_reduce("SUM", x)
end

-- What a loss computes from nothing may be nan.
local function nothing(sum)
  return tf.math.multiply_no_nan(sum, tf.zeros_like(sum))
end

-- One output's loss: { scaled, tracked }, both scalars; tracked is its mean
-- times n.
local function one_loss(loss, y_true, y_pred, weight, n, total)
  local values, divisor = call_loss(loss, y_true, y_pred, weight)
  local sum = raw.tensor_rank(values) == 0 and values or tf.reduce_sum(values)
  local size = raw.tensor_size(values)
  local reduction = loss.reduction
  if reduction == "sum" then
    return sum, sum * total
  elseif reduction == "none" then
    return sum, size == 0 and sum or sum * (n / size)
  elseif divisor ~= nil then
    local part = tf.math.divide_no_nan(n == 0 and nothing(sum) or sum,
      over_replicas(divisor))
    return part, part * total
  elseif n == 0 then
    local none = nothing(sum)
    return none, none
  elseif raw.tensor_rank(values) == 0 then
    return sum * (n / total), sum * n
  end
  local each = size / n -- losses for one example
  return sum / (each * total), each == 1 and sum or sum / each
end

local function scaled(x, weight)
  return weight ~= nil and weight ~= 1 and x * weight or x
end

-- What layers add, counted once whatever the number of replicas: each has a part
-- by its share of the examples, for an activity's penalty is a mean over those;
-- of the weights' own ones all replicas together have one. A mean over none may
-- be nan.
local function add_penalties(model, own, loss, detail)
  local list = model.losses
  if #list == 0 then
    return loss, detail
  end
  local sum
  for i = 1, #list do
    sum = plus(sum, list[i])
  end
  local n, replicas = detail.n, replica_count()
  local total = global_examples(own, n)
  local part = sum
  if replicas > 1 and n == 0 and total > 0 then
    sum = nothing(sum)
    part = sum
  elseif replicas > 1 then
    part = sum / (total > 0 and total / n or replicas)
  end
  detail.total = plus(detail.total, sum * n)
  return plus(loss, part), detail
end

local NAMES = { "x", "y", "y_pred", "sample_weight", "training" }

--- Values of a batch, which come one by one, or by name in one table.
--- Errors: ValueError for another name; TypeError where y_pred can be no
---   outputs of a model, or is missing where it is not `optional`.
function M.values(what, x, y, y_pred, sample_weight, optional)
  if y == nil and y_pred == nil and text.is_plain(x) and x.y_pred ~= nil then
    options.check_keys(what, x, NAMES)
    if x.sample_weight ~= nil then
      sample_weight = x.sample_weight
    end
    x, y, y_pred = x.x, x.y, x.y_pred
  end
  if y_pred == nil and not optional then
    errors.raise("TypeError", what .. ": missing argument y_pred, what the "
      .. "model gives for x", what .. "(x, y, model(x))")
  elseif y_pred ~= nil and not outputs.are_outputs(y_pred) then
    errors.raise("TypeError", ("%s: y_pred must be tensors, got %s"):format(
      what, text.describe(y_pred)))
  end
  return x, y, y_pred, sample_weight
end

-- The losses of the outputs, added to detail; nil where none has one.
local function output_losses(model, own, y, y_pred, sample_weight, detail)
  local list, names = outputs.flatten(model, y_pred)
  resolve_losses(own, names)
  local labels = outputs.match("y", y, names)
  local weights = outputs.match("sample_weight", sample_weight, names)
  if #names > 1 and sample_weight ~= nil and not nest.is_nested(sample_weight)
  then
    for i = 1, #names do
      weights[i] = sample_weight
    end
  end
  local total = global_examples(own, detail.n)
  local loss
  for i = 1, #names do
    local object = own.losses[i]
    if object ~= nil then
      if labels[i] == nil then
        no_labels(names, i)
      end
      local part, tracked = one_loss(object, labels[i], list[i], weights[i],
        detail.n, total)
      detail.each[i] = tracked
      loss = plus(loss, scaled(part, own.loss_weights[i]))
      detail.total = plus(detail.total, scaled(tracked, own.loss_weights[i]))
    end
  end
  return loss
end

--- The loss that a step minimises: a scalar whose sum over replicas is the
--- global one. As second value what the loss metrics count. Where compile got no
--- loss, that is what layers and add_loss add, which needs no predictions.
--- Errors: ValueError when there is nothing to minimise.
--- Source: tf.keras.Model.compute_loss
function M.compute_loss(model, x, y, y_pred, sample_weight)
  local own = state.compiled(model, "compute_loss")
  x, y, y_pred, sample_weight = M.values("model:compute_loss", x, y, y_pred,
    sample_weight, own.spec.loss == nil)
  local detail = { n = M.examples(x ~= nil and x or y_pred), each = {} }
  local loss
  if y_pred ~= nil then
    loss = output_losses(model, own, y, y_pred, sample_weight, detail)
  end
  loss, detail = add_penalties(model, own, loss, detail)
  if loss == nil then
    errors.raise("ValueError", ("model %s has no loss to compute"):format(
      text.quote(model.name)), "pass loss = ... to compile, or call add_loss")
  end
  return loss, detail
end

-- Metrics --------------------------------------------------------------------

-- Add n examples with the sum `tracked` to a mean.
local function track(metric, tracked, n)
  base.add(metric.total, base.cast(metric, tracked))
  base.add(metric.count, n)
end

-- Metrics that there were not before; a backup may have what they held.
local function new_metrics(own)
  if own.on_metrics ~= nil then
    own.on_metrics()
  end
end

local function output_trackers(own, names)
  if own.trackers == nil then
    own.trackers = {}
    local count = 0
    for i = 1, #names do
      count = count + (own.losses[i] ~= nil and 1 or 0)
    end
    for i = 1, #names do
      if #names > 1 and own.losses[i] ~= nil then
        own.trackers[i] = own.new_mean(names[i] .. "_loss")
      end
    end
    new_metrics(own)
  end
  return own.trackers
end

--- Count the step's loss.
function M.track_loss(model, loss, detail, n)
  local own = state.of(model)
  if detail == nil then
    return track(own.loss_tracker, loss * (n * replica_count()), n)
  end
  track(own.loss_tracker, detail.total, n)
  for i, tracker in pairs(output_trackers(own, own.names)) do
    track(tracker, detail.each[i], n)
  end
end

-- A name that no result has yet, as in Keras: of several outputs the output's
-- name comes first; weighted metrics get "weighted_", then all get a number.
local function free_name(used, own_name, output, weighted)
  local name = output .. own_name
  if used[name] and weighted then
    name = output .. "weighted_" .. own_name
  end
  local free, count = name, 0
  while used[free] do
    count = count + 1
    free = name .. "_" .. count
  end
  used[free] = true
  return free
end

--- The list model.metrics, of a class that defines metrics(self) what this
--- gives.
--- Errors: TypeError for another thing than a list of metrics.
function M.metrics_of(model)
  local list = model.metrics
  if type(list) == "function" then
    list = list(model)
  end
  local is_list, wrong = text.is_plain(list), nil
  for i = 1, is_list and #list or 0 do
    if wrong == nil and not base.is_metric(list[i]) then
      wrong = list[i]
    end
  end
  if not is_list or wrong ~= nil then
    errors.raise("TypeError", ("model %s: metrics must be a list of metrics, "
      .. "got %s"):format(text.quote(model.name), list == nil and "nothing"
      or text.describe(wrong or list)),
      "function MyModel:metrics() return { self.loss_tracker } end")
  end
  return list
end

--- True when the class or the script says itself what model.metrics is.
function M.lists_metrics(model)
  return rawget(model, "metrics") ~= nil
    or getmetatable(model).class.metrics ~= nil
end

--- The name of a compiled metric's result.
function M.result_name(own, metric)
  return own.shown ~= nil and own.shown[metric] or metric.name
end

local function resolve_metrics(own, names, labels, list)
  if own.metrics_made ~= nil then
    return
  end
  local spec = own.spec
  own.plain = outputs.metrics("compile: metrics", spec.metrics, names, labels,
    list, own.losses or {})
  own.weighted = outputs.metrics("compile: weighted_metrics", spec.weighted,
    names, labels, list, own.losses or {})
  local all, used = {}, {}
  own.shown = {}
  for _, family in ipairs { own.plain, own.weighted } do
    for i = 1, #names do
      local output = #names > 1 and names[i] .. "_" or ""
      for _, metric in ipairs(family[i]) do
        if own.shown[metric] == nil then
          all[#all + 1] = metric
          own.shown[metric] = free_name(used, metric.name, output,
            family == own.weighted)
        end
      end
    end
  end
  own.metrics_made = all
  new_metrics(own)
end

--- Update the compiled metrics.
function M.update_metrics(model, y, y_pred, sample_weight)
  local own = state.compiled(model, "compute_metrics")
  local list, names = outputs.flatten(model, y_pred)
  local labels = outputs.match("y", y, names)
  resolve_metrics(own, names, labels, list)
  local weights
  for i = 1, #names do
    for _, metric in ipairs(own.plain[i]) do
      metric:update_state(labels[i], list[i])
    end
    if #own.weighted[i] > 0 then
      weights = weights or (nest.is_nested(sample_weight)
        and outputs.match("sample_weight", sample_weight, names))
      for _, metric in ipairs(own.weighted[i]) do
        metric:update_state(labels[i], list[i], weights and weights[i]
          or not weights and sample_weight or nil)
      end
    end
  end
end

--- True when the model's class defines compute_metrics itself.
function M.own_metrics(model)
  return model.compute_metrics ~= model.training_defaults.compute_metrics
end

local function count_metrics(model, x, y, y_pred, sample_weight)
  if M.own_metrics(model) then
    return model:compute_metrics(x, y, y_pred, sample_weight)
  end
  M.update_metrics(model, y, y_pred, sample_weight)
end

-- Steps ----------------------------------------------------------------------

local function trainable(model, own)
  if own.variables == nil then
    own.variables = model.trainable_variables
  end
  return own.variables
end

-- Such a model is trained for its metrics and callbacks, as in Keras.
local function note_no_variables(model, own)
  if not own.noted_no_variables then
    own.noted_no_variables = true
    notice.warn(("model %s has no trainable variables; fit updates none")
      :format(text.quote(model.name)))
  end
end

local function update(optimizer, tape, target, variables, scales)
  local gradients = tape:gradient(target, variables)
  if scales then
    gradients = optimizer:get_unscaled_gradients(gradients)
  end
  optimizer:apply_gradients(gradients, variables)
end

-- What there is for the one output that class_weight is for.
local function of_one(x, what)
  local flat = nest.flatten(x)
  if flat.n ~= 1 then
    errors.raise("ValueError", ("class_weight is for models with one output, "
      .. "got %s for %d"):format(what, flat.n), "sample_weight takes weights "
      .. "for each output")
  end
  return flat[1]
end

-- Classes of labels, which may be one-hot; floats may be just below theirs.
local function classes_of(y)
  local last = raw.tensor_rank(y) - 1
  if last > 0 then
    y = raw.tensor_dim(y, last) > 1
      and tf.argmax(y, { axis = -1, output_type = "int32" })
      or tf.squeeze(y, { axis = -1 })
  end
  return tf.cast(convert.FLOATING[raw.tensor_dtype(y)] and tf.round(y) or y,
    "int32")
end

-- Weights of examples by their class, times their own.
local function class_weights(own, y, weight)
  local list = own.class_weight
  if list == nil or y == nil then
    return weight
  end
  local by_class = tf.gather(tf.constant(list),
    classes_of(of_one(y, "labels")))
  if weight == nil then
    return by_class
  end
  return loss_weights.joined(tf.cast(of_one(weight, "weights"), "float32"),
    by_class, "class_weight", "labels' classes have")
end

-- optimizer -> whether it wants the gradients of a larger loss, as a
-- LossScaleOptimizer does; asking for a field that is not there takes long.
local scaling = setmetatable({}, { __mode = "k" })

local function scales_losses(optimizer)
  local known = scaling[optimizer]
  if known == nil then
    known = type(optimizer.get_scaled_loss) == "function"
    scaling[optimizer] = known
  end
  return known
end

-- The model's outputs for x. What its call gives is told by its name, not as an
-- argument of compute_loss; one of the script's own may need none.
local function forward(model, x, training)
  local y_pred = model(x, { training = training })
  if model.compute_loss == M.compute_loss
    and not outputs.are_outputs(y_pred) then
    outputs.flatten(model, y_pred)
  end
  return y_pred
end

--- Forward, backward and update; returns the scaled loss.
function M.train(model, x, y, sample_weight)
  local own = state.compiled(model, "train_step")
  sample_weight = class_weights(own, y, sample_weight)
  local optimizer = own.optimizer
  local scales = scales_losses(optimizer)
  local tape, loss, detail, y_pred, target = tf.GradientTape(function()
    local y_pred = forward(model, x, true)
    local loss, detail = model:compute_loss(x, y, y_pred, sample_weight)
    return loss, detail, y_pred, scales and optimizer:get_scaled_loss(loss)
      or loss
  end)
  local variables = trainable(model, own)
  if #variables > 0 then
    update(optimizer, tape, target, variables, scales)
  else
    note_no_variables(model, own)
  end
  M.track_loss(model, loss, detail, M.examples(x))
  return count_metrics(model, x, y, y_pred, sample_weight) or loss
end

--- Forward and count; returns the scaled loss.
function M.test(model, x, y, sample_weight)
  local y_pred = forward(model, x, false)
  local loss, detail
  local own = state.compiled(model, "test_step")
  if own.spec.loss ~= nil or model.compute_loss ~= M.compute_loss
    or #model.losses > 0 then
    loss, detail = model:compute_loss(x, y, y_pred, sample_weight)
    M.track_loss(model, loss, detail, M.examples(x))
  end
  return count_metrics(model, x, y, y_pred, sample_weight) or loss
    or nest.flatten(y_pred)[1]
end

--- Forward only.
function M.predict(model, x)
  return model(x, { training = false })
end

return M
