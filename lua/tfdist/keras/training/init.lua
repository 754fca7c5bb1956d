--- Training of models: compile, fit, evaluate, predict and their parts.
---
--- Put into the Model class by install. A step runs on every replica of the
--- strategy that was current when the model was made; methods enter its scope
--- themselves.
local alike = require "tfdist.keras.training.alike"
local alone = require "tfdist.keras.training.alone"
local callbacks = require "tfdist.keras.callbacks.base"
local contexts = require "tfdist.distribute.contexts"
local control = require "tfdist.keras.callbacks.control"
local errors = require "tfdist.base.errors"
local failures = require "tfdist.keras.training.failures"
local feed = require "tfdist.keras.training.feed"
local loop = require "tfdist.keras.training.loop"
local metric_base = require "tfdist.keras.metrics.base"
local metrics = require "tfdist.keras.metrics"
local mixed_precision = require "tfdist.keras.mixed_precision"
local options = require "tfdist.base.options"
local optimizers = require "tfdist.keras.optimizers"
local outputs = require "tfdist.keras.training.outputs"
local pairs = require "tfdist.base.pairs"
local progress = require "tfdist.keras.progress"
local state = require "tfdist.keras.training.state"
local steps = require "tfdist.keras.training.steps"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"

local M = {}

local type, ipairs = type, ipairs
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local methods = {}

local function is_model(x)
  return type(x) == "table" and type(getmetatable(x)) == "table"
    and x.is_keras_model == true
end

local function method(name, signature, fn)
  methods[name] = options.method("model:" .. name, signature, fn, is_model,
    "model")
end

-- compile --------------------------------------------------------------------

local function strategy_of(model)
  return model.distribute_strategy or contexts.get_strategy()
end

local function check_owner(strategy, v, what)
  local owner = values.strategy_of(v) or contexts.default_strategy
  if owner ~= strategy and (owner ~= contexts.default_strategy
    or not strategy.one_copy) then
    errors.raise("ValueError", ("compile: %s %s was created in the scope of "
      .. "%s, the model belongs to %s"):format(what, text.quote(v.name), owner.name,
      strategy.name), "make the model, its metrics and its optimizer inside "
      .. "strategy:scope(function() ... end)")
  end
end

local function check_strategy(model, spec, strategy)
  local current = contexts.get_strategy()
  if current ~= contexts.default_strategy and current ~= strategy then
    errors.raise("ValueError", ("compile: model %s was made outside the scope "
      .. "of the %s in which it is compiled"):format(text.quote(model.name),
      current.name), "make the model, its metrics and its optimizer inside "
      .. "strategy:scope(function() ... end)")
  end
  for _, v in ipairs(model.variables) do
    check_owner(strategy, v, "variable")
  end
  local given = {}
  outputs.given(spec.metrics, given)
  outputs.given(spec.weighted, given)
  for _, metric in ipairs(given) do
    local owner = metric_base.strategy_of(metric)
    if owner ~= nil and owner ~= strategy or owner == nil
      and rawget(metric, "weights_made") ~= nil and not strategy.one_copy then
      errors.raise("ValueError", ("compile: metric %s was created in the scope "
        .. "of %s, the model belongs to %s"):format(text.quote(metric.name),
        owner and owner.name or contexts.default_strategy.name, strategy.name),
        "make it inside strategy:scope(function() ... end), or give its name")
    end
  end
end

-- Call fn where variables belong to the strategy.
local function in_scope(strategy, fn)
  local mode = contexts.mode()
  if strategy == contexts.default_strategy
    or mode ~= nil and mode.strategy == strategy then
    return fn()
  end
  return strategy:scope(fn)
end

-- The optimizer for a model of this policy: small gradients leave float16.
local function scaled(model, optimizer, wanted)
  if not wanted or model.dtype_policy.name ~= "mixed_float16"
    or optimizer.get_scaled_loss ~= nil then
    return optimizer
  end
  return mixed_precision.LossScaleOptimizer(optimizer)
end

--- Say how to train: an optimizer (name or object), losses and metrics (names,
--- functions or objects; for several outputs lists or tables by output name).
--- Metrics "accuracy" and "crossentropy" choose their class by shapes. The
--- weights stay; optimizer state and metrics are new.
--- Steps become graphs when they come again, unless run_eagerly is true;
--- jit_compile changes nothing. With auto_scale_loss the optimizer of a model
--- that computes in float16 and keeps float32 gets a LossScaleOptimizer around.
--- Errors: ValueError for unknown names and for variables or metrics of
---   another strategy.
--- Source: tf.keras.Model.compile
method("compile", "optimizer='rmsprop' loss:table=nil metrics:table=nil "
  .. "loss_weights:table=nil weighted_metrics:table=nil run_eagerly=nil "
  .. "steps_per_execution=1 jit_compile=nil auto_scale_loss=true",
  function(self, optimizer, loss, metric_spec, loss_weights, weighted,
      run_eagerly, steps_per_execution, _, auto_scale_loss)
    options.integer("model:compile", "steps_per_execution",
      steps_per_execution, 1)
    local spec = { loss = loss, metrics = metric_spec,
      loss_weights = loss_weights, weighted = weighted }
    outputs.check(spec)
    local own = state.of(self)
    local strategy = strategy_of(self)
    check_strategy(self, spec, strategy)
    optimizer = in_scope(strategy, function()
      return scaled(self, optimizers.get(optimizer), auto_scale_loss)
    end)
    for key in pairs(own) do
      own[key] = nil
    end
    own.strategy, own.spec = strategy, spec
    own.steps_per_execution = steps_per_execution
    own.run_eagerly = run_eagerly
    function own.new_mean(name)
      return metrics.Mean { name = name }
    end
    in_scope(strategy, function()
      own.optimizer = optimizer
      own.loss_tracker = own.new_mean("loss")
    end)
    own.compiled = true
  end)

-- Results --------------------------------------------------------------------

local function reset_states(list)
  for _, metric in ipairs(list) do
    metric:reset_state()
  end
end

--- All of model.metrics back to zero, as at the start of an epoch. A class that
--- holds metrics otherwise than in fields defines metrics(self), which returns
--- the list.
method("reset_metrics", "", function(self)
  reset_states(steps.metrics_of(self))
end)

--- Results of all metrics by name, tensors.
method("get_metrics_result", "", function(self)
  return loop.logs(loop.results(self))
end)

-- Numbers as evaluate and the on_batch methods give them: the loss, then the
-- metrics, or a table by name.
local function answer(list, return_dict)
  if return_dict then
    return loop.logs(list)
  end
  local out = {}
  for i, entry in ipairs(list) do
    out[i] = entry[2]
  end
  return unpack(out, 1, #list)
end

-- fit ------------------------------------------------------------------------

local function new_progress(own, verbose, given)
  if type(given) == "table" and verbose == 0 then
    for _, each in pairs(given) do
      if callbacks.is_callback(each) and each.shows_progress then
        verbose = 1
      end
    end
  end
  if verbose ~= "auto" and verbose ~= 0 and verbose ~= 1 and verbose ~= 2
    and type(verbose) ~= "boolean" then
    errors.raise("ValueError", "fit: verbose must be \"auto\", 0, 1 or 2, got "
      .. text.describe(verbose))
  end
  local chief = own.strategy.extended.should_save_summary
  return progress.new(chief == false and "none" or progress.form(verbose))
end

-- class -> weight from 0 on, as a list.
local function class_weights(what, given)
  if given == nil then
    return nil
  end
  local list, last = {}, -1
  for key, weight in pairs(given) do
    if not text.is_whole(key) or key < 0 or type(weight) ~= "number" then
      errors.raise("ValueError", ("%s: class_weight has %s under %s; it maps "
        .. "classes, counted from 0, to numbers"):format(what,
        text.describe(weight), text.describe(key)),
        "class_weight = { [0] = 1, [1] = 2.5 }")
    end
    list[key + 1], last = weight, math.max(last, key)
  end
  for class = 0, last do
    if list[class + 1] == nil then
      errors.raise("ValueError", ("%s: class_weight has a weight for class %d, "
        .. "but none for class %d"):format(what, last, class),
        "class_weight = { [0] = 1, [1] = 2.5 }: classes count from 0, and each "
        .. "needs a weight")
    end
  end
  return last >= 0 and list or nil
end

local function check_steps(what, name, wanted)
  if wanted ~= nil then
    options.integer(what, name, wanted, 1)
  end
end

local function check_counts(epochs, initial_epoch, steps_per_epoch,
    validation_steps)
  local what = "model:fit"
  options.integer(what, "epochs", epochs, 0)
  options.integer(what, "initial_epoch", initial_epoch, 0)
  check_steps(what, "steps_per_epoch", steps_per_epoch)
  check_steps(what, "validation_steps", validation_steps)
end

local function check_freq(freq)
  if type(freq) == "number" then
    options.integer("model:fit", "validation_freq", freq, 1)
  else
    local _, n = options.list("model:fit", "validation_freq", freq,
      "epochs, counted from 1")
    for i = 1, n do
      options.integer("model:fit", "validation_freq", freq[i], 1)
    end
  end
  return freq
end

-- The last fraction of the arrays, before shuffling.
local function split_arrays(own, spec, fraction)
  if type(fraction) ~= "number" or fraction <= 0 or fraction >= 1 then
    errors.raise("ValueError", "fit: validation_split must be in 0..1, got "
      .. text.describe(fraction))
  elseif feed.is_stream(spec.x) then
    errors.raise("ValueError", "fit: `validation_split` is only supported for "
      .. "tensors, not for datasets", "pass validation_data")
  end
  local list, rows = feed.arrays("fit", spec.x, spec.y, spec.sample_weight)
  local at = math.floor(rows * (1 - fraction))
  if at == 0 or at == rows then
    errors.raise("ValueError", ("fit: Training data contains %d samples, which "
      .. "is not sufficient to split it by validation_split = %s"):format(rows,
      text.number(fraction)))
  end
  local train = feed.of_arrays(own, "fit", feed.part(list, 0, at), at,
    spec.batch_size or 32, spec.shuffle, spec.steps)
  return train, feed.of_arrays(own, "fit: validation_split",
    feed.part(list, at, rows), rows - at,
    spec.validation_batch_size or spec.batch_size or 32, false,
    spec.validation_steps)
end

local function validation_feed(own, data, spec)
  if feed.is_stream(data) then
    return feed.new(own, "fit: validation_data", { x = data,
      steps = spec.validation_steps })
  elseif not text.is_plain(data) then
    errors.raise("TypeError", "fit: validation_data must be a dataset or "
      .. "{ x, y } or { x, y, sample_weight }, got " .. text.describe(data))
  elseif #data > 3 then
    errors.raise("ValueError", ("fit: validation_data has %d entries; expected "
      .. "{ x, y } or { x, y, sample_weight }"):format(#data))
  end
  return feed.new(own, "fit: validation_data", {
    x = data[1], y = data[2], sample_weight = data[3],
    batch_size = spec.validation_batch_size or spec.batch_size,
    steps = spec.validation_steps,
  })
end

local function check_shuffle(shuffle)
  if type(shuffle) == "string" then
    errors.raise("NotImplementedError", "fit: shuffle = " .. text.quote(shuffle)
      .. " is not implemented; it is true or false")
  end
end

--- Train for epochs - initial_epoch epochs. x: tensors (with y, sample_weight),
--- a dataset of batches x, y[, sample_weight], a distributed dataset, or a
--- function that gives the next batch and nil at the end. batch_size is the
--- global one. Returns a History.
--- class_weight maps class numbers (from 0) to weights. validation_freq is a
--- number of epochs, or a list of epochs counted from 1.
--- Errors: RuntimeError before compile; ValueError for data that does not go
---   together and for infinite data without steps_per_epoch.
--- Blocks: until the last epoch is over. Source: tf.keras.Model.fit
method("fit", "x:nest y:table=nil batch_size=nil epochs=1 verbose='auto' "
  .. "callbacks:table=nil validation_split=0 validation_data:table=nil "
  .. "shuffle:any=true class_weight:dict=nil sample_weight:table=nil "
  .. "initial_epoch=0 steps_per_epoch=nil validation_steps=nil "
  .. "validation_batch_size=nil validation_freq:table=1 max_queue_size=10 "
  .. "workers=1 use_multiprocessing=false",
  function(self, x, y, batch_size, epochs, verbose, given, split,
      validation_data, shuffle, class_weight, sample_weight, initial_epoch,
      steps_per_epoch, validation_steps, validation_batch_size, freq)
    local own = state.compiled(self, "fit")
    alone.note(self, own, "fit")
    check_counts(epochs, initial_epoch, steps_per_epoch, validation_steps)
    check_shuffle(shuffle)
    local spec = { x = x, y = y, sample_weight = sample_weight,
      batch_size = batch_size, shuffle = shuffle, steps = steps_per_epoch,
      validation_steps = validation_steps,
      validation_batch_size = validation_batch_size }
    local weights = class_weights("fit", class_weight)
    check_freq(freq)
    local shown = new_progress(own, verbose, given)
    local history = control.History()
    loop.inside(own, shown, function()
      own.class_weight = weights
      local source, validation
      if split ~= 0 and validation_data == nil then
        source, validation = split_arrays(own, spec, split)
      else
        source = feed.new(own, "fit", spec)
        validation = validation_data ~= nil
          and validation_feed(own, validation_data, spec) or nil
      end
      local params = { epochs = epochs, verbose = verbose,
        steps = steps_per_epoch or source.steps }
      local run = {
        model = self, own = own, source = source, limit = steps_per_epoch,
        epochs = epochs, initial_epoch = initial_epoch, progress = shown,
        callbacks = callbacks.list(given, self, params, { progress = shown },
          { history }),
        validation = validation and { source = validation,
          steps = validation_steps, freq = freq },
      }
      alike.settle(run, spec)
      params.steps = run.limit or source.steps
      loop.fit(run)
    end)
    rawset(self, "history", history)
    return history
  end)

-- evaluate, predict ----------------------------------------------------------

--- Loss and metrics on data: the loss alone, or a list { loss, metric, ... } in
--- the order of model.metrics_names; with return_dict a table by names. A
--- short last batch counts by its examples.
--- Errors: RuntimeError before compile; ValueError.
--- Source: tf.keras.Model.evaluate
method("evaluate", "x:nest y:table=nil batch_size=nil verbose='auto' "
  .. "sample_weight:table=nil steps=nil callbacks:table=nil max_queue_size=10 "
  .. "workers=1 use_multiprocessing=false return_dict=false",
  function(self, x, y, batch_size, verbose, sample_weight, wanted, given, _, _,
      _, return_dict)
    local own = state.compiled(self, "evaluate")
    check_steps("model:evaluate", "steps", wanted)
    local shown = new_progress(own, verbose, given)
    local found = loop.inside(own, shown, function()
      local spec = { x = x, y = y, sample_weight = sample_weight,
        batch_size = batch_size, steps = wanted }
      local source = feed.new(own, "evaluate", spec)
      local list = callbacks.list(given, self, { steps = wanted or source.steps,
        verbose = verbose }, { progress = shown })
      alike.check("evaluate", self, own, source, list, spec)
      shown:begin(wanted or source.steps)
      local results, count, examples = loop.evaluate(self, source, {
        steps = wanted, progress = shown, what = "evaluate", callbacks = list,
      })
      shown:done(count, examples)
      shown:finish(results)
      return results
    end)
    return answer(found, return_dict)
  end)

-- predict works without compile.
local function prepared(model)
  local own = state.of(model)
  if not own.compiled then
    own.strategy = strategy_of(model)
    own.spec = own.spec or {}
  end
  return own
end

--- The model's outputs for all of x, joined along axis 0 in the order of the
--- examples.
--- Source: tf.keras.Model.predict
method("predict", "x:nest batch_size=nil verbose='auto' steps=nil "
  .. "callbacks:table=nil max_queue_size=10 workers=1 "
  .. "use_multiprocessing=false", function(self, x, batch_size, verbose, wanted,
      given)
    local own = prepared(self)
    check_steps("model:predict", "steps", wanted)
    local shown = new_progress(own, verbose, given)
    return loop.inside(own, shown, function()
      local spec = { x = x, batch_size = batch_size, steps = wanted }
      local source = feed.new(own, "predict", spec)
      local list = callbacks.list(given, self, { steps = wanted or source.steps,
        verbose = verbose }, { progress = shown })
      alike.check("predict", self, own, source, list, spec)
      shown:begin(wanted or source.steps)
      local out, count, examples = loop.predict(self, source, {
        steps = wanted, progress = shown, tf = tf, callbacks = list,
      })
      shown:done(count, examples)
      shown:finish {}
      return out
    end)
  end)

-- One batch ------------------------------------------------------------------

local silent = progress.new("none")

-- One batch of arrays through a step on every replica; then what finish() gives,
-- or the step's outputs.
local function on_batch(self, own, mode, x, y, sample_weight, body, finish,
    class_weight)
  local what = mode .. "_on_batch"
  return loop.inside(own, silent, function()
    own.class_weight = class_weight
    local pack = feed.distribute(own.strategy, {
      n = 3, feed.to_tensors(what, "x", x), feed.to_tensors(what, "y", y),
      feed.to_tensors(what, "sample_weight", sample_weight),
    })
    local ok, result = loop.run_body(self, own, mode, body, pack)
    if ok and finish ~= nil then
      ok, result = pcall(finish) -- reads what the step has left in a queue
    end
    if not ok then
      error(failures.told(own, self, result), 0)
    end
    return result
  end)
end

-- What on_batch ends with: the results of the model's metrics.
local function results_of(self, own, reset)
  return function()
    local metrics_now = loop.metrics_after(self, own)
    local found = loop.numbers(loop.results(self, metrics_now))
    if reset and self.reset_metrics == methods.reset_metrics then
      reset_states(metrics_now)
    elseif reset then
      self:reset_metrics()
    end
    return found
  end
end

--- One update on one batch; loss and metrics as evaluate gives them. Metrics go
--- on counting from the last batch unless reset_metrics is true.
--- Source: tf.keras.Model.train_on_batch
method("train_on_batch", "x:nest y:table=nil sample_weight:table=nil "
  .. "class_weight:dict=nil reset_metrics=true return_dict=false",
  function(self, x, y, sample_weight, class_weight, reset, return_dict)
    local own = state.compiled(self, "train_on_batch")
    alone.note(self, own, "train_on_batch")
    local weights = class_weights("train_on_batch", class_weight)
    own.variables = nil
    return answer(on_batch(self, own, "train", x, y, sample_weight,
      (loop.train_body(self)), results_of(self, own, reset), weights),
      return_dict)
  end)

--- Loss and metrics of one batch. Source: tf.keras.Model.test_on_batch
method("test_on_batch", "x:nest y:table=nil sample_weight:table=nil "
  .. "reset_metrics=true return_dict=false",
  function(self, x, y, sample_weight, reset, return_dict)
    local own = state.compiled(self, "test_on_batch")
    return answer(on_batch(self, own, "test", x, y, sample_weight,
      (loop.test_body(self)), results_of(self, own, reset)), return_dict)
  end)

--- Outputs for one batch. Source: tf.keras.Model.predict_on_batch
method("predict_on_batch", "x:nest", function(self, x)
  local own = prepared(self)
  local body = loop.predict_body(self)
  local out = on_batch(self, own, "predict", x, nil, nil, function(v)
    return body(v)
  end)
  return loop.join({ loop.gathered(own, out) }, tf)
end)

-- What users override --------------------------------------------------------

-- Their values are taken as they come: subclasses have steps of their own.
local function check_self(name, self)
  if not is_model(self) then
    options.wrong_self("model:" .. name, "model", self)
  end
end

--- What a replica does with its share of a batch: define train_step(self, x, y,
--- sample_weight) in a subclass to do something else, and return a table of
--- values by name for the logs (those of replica 0 are shown).
--- Source: tf.keras.Model.train_step
function methods.train_step(self, x, y, sample_weight)
  check_self("train_step", self)
  local found = steps.train(self, x, y, sample_weight)
  return type(found) == "table" and found or self:get_metrics_result()
end

--- The same for evaluate. Source: tf.keras.Model.test_step
function methods.test_step(self, x, y, sample_weight)
  check_self("test_step", self)
  local found = steps.test(self, x, y, sample_weight)
  return type(found) == "table" and found or self:get_metrics_result()
end

--- The same for predict. Source: tf.keras.Model.predict_step
function methods.predict_step(self, x)
  check_self("predict_step", self)
  return steps.predict(self, x)
end

methods.compute_loss = steps.compute_loss

--- Update the compiled metrics; returns all results by name.
--- Source: tf.keras.Model.compute_metrics
function methods.compute_metrics(self, x, y, y_pred, sample_weight)
  check_self("compute_metrics", self)
  steps.update_metrics(self, select(2, steps.values("model:compute_metrics", x,
    y, y_pred, sample_weight)))
  return self:get_metrics_result()
end

-- Properties -----------------------------------------------------------------

local getters, setters = {}, {}

function getters.optimizer(self)
  return state.of(self).optimizer
end

--- Another optimizer for what compile() has set up.
function setters.optimizer(self, value)
  local own = state.compiled(self, "model.optimizer")
  own.optimizer = in_scope(own.strategy, function()
    return optimizers.get(value)
  end)
end

--- What compile was given as loss.
function getters.loss(self)
  local spec = state.of(self).spec
  return spec and spec.loss
end

--- The loss metrics, the compiled metrics, then those in fields and of layers.
local function all_metrics(self, of_layers)
  local own = state.of(self)
  local list, seen = {}, {}
  local function put(metric)
    if metric ~= nil and not seen[metric] then
      seen[metric] = true
      list[#list + 1] = metric
    end
  end
  put(own.loss_tracker)
  for i = 1, own.names and #own.names or 0 do
    put(own.trackers and own.trackers[i])
  end
  for _, metric in ipairs(own.metrics_made or {}) do
    put(metric)
  end
  if own.metrics_made == nil and own.spec ~= nil then
    local given = {}
    outputs.given(own.spec.metrics, given)
    outputs.given(own.spec.weighted, given)
    for _, metric in ipairs(given) do
      put(metric)
    end
  end
  for _, metric in ipairs(of_layers) do
    put(metric)
  end
  return list
end

function getters.metrics_names(self)
  local names, own = {}, state.of(self)
  for i, metric in ipairs(steps.metrics_of(self)) do
    names[i] = steps.result_name(own, metric)
  end
  return names
end

--- True after compile.
function getters.compiled(self)
  return state.of(self).compiled == true
end

--- Put training into the class Model.
---@param Model table  with tables `getters`: name -> function(self), and
---   `setters`: name -> function(self, value)
function M.install(Model)
  for name, fn in pairs(methods) do
    Model[name] = fn
  end
  Model.training_defaults = {
    train_step = methods.train_step, test_step = methods.test_step,
    predict_step = methods.predict_step,
    compute_metrics = methods.compute_metrics,
    compute_loss = methods.compute_loss,
  }
  for name, fn in pairs(getters) do
    Model.getters[name] = fn
  end
  for name, fn in pairs(setters) do
    Model.setters[name] = fn
  end
  local of_layers = Model.getters.metrics
  Model.getters.metrics = function(self)
    return all_metrics(self, of_layers and of_layers(self) or {})
  end
end

return M
