--- Random Keras models: what fit, train_on_batch, evaluate and predict give and
--- leave behind, traced against eager.
---
--- In specs: models.differences(seed) is empty where both are the same; as a
--- program: lua5.4 spec/support/random_models.lua FIRST [LAST]
--- Elementwise groups give NaN of another sign: NaN is NaN here.
local notice = require "tfdist.base.notice"
local raw = require "tfdist.core.raw"
local rng = require "spec.fuzz.rng"
local tf = require "tfdist"

local M = {}

local K, L = tf.keras, tf.keras.layers

-- Layers ---------------------------------------------------------------------

local BETWEEN = {
  function() return L.Dropout(0.3) end,
  function() return L.BatchNormalization { momentum = 0.8 } end,
  function() return L.LayerNormalization() end,
  function() return L.GaussianNoise(0.1) end,
  function(r)
    return L.Activation(r:pick { "tanh", "sigmoid", "relu", "softplus", "elu",
      "gelu" })
  end,
  function() return L.LeakyReLU() end,
  function() return L.AlphaDropout(0.2) end,
  function() return L.ActivityRegularization { l2 = 0.01 } end,
}

local function add_dense(r, list)
  for _ = 1, r:int(1, 2) do
    if not r:one_in(9) then
      list[#list + 1] = r:pick(BETWEEN)(r)
    end
    list[#list + 1] = L.Dense(r:int(3, 7), {
      activation = r:pick { "relu", "tanh", "linear" },
      kernel_regularizer = r:pick { false, false, "l2", "l1" } or nil,
      use_bias = not r:one_in(3),
      kernel_constraint = r:pick { false, false, false, "max_norm",
        "non_neg" } or nil,
    })
  end
end

-- Of inputs {3, 2}.
local SEQUENCES = {
  function(r)
    return { L.LSTM(4, { dropout = 0.2,
      recurrent_dropout = r:pick { 0, 0.1 } }) }
  end,
  function(r) return { L.GRU(4, { reset_after = r:one_in(2) }) } end,
  function() return { L.SimpleRNN(4) } end,
  function()
    return { L.Bidirectional(L.LSTM(3, { return_sequences = true })),
      L.GlobalAveragePooling1D() }
  end,
  function()
    return { L.Conv1D(4, 2, { padding = "same" }), L.GlobalMaxPooling1D() }
  end,
  function() return { L.TimeDistributed(L.Dense(3)), L.Flatten() } end,
  function() return { L.LSTM(4, { return_sequences = true }), L.Flatten() } end,
}

-- Layers, the width of the input, and whether that is whole numbers below 11.
local KINDS = {
  function(r)
    local list = {}
    add_dense(r, list)
    return list, 6
  end,
  function(r)
    local list = { L.Reshape { 3, 2 } }
    for _, layer in ipairs(r:pick(SEQUENCES)(r)) do
      list[#list + 1] = layer
    end
    add_dense(r, list)
    return list, 6
  end,
  function(r)
    local list = { L.Reshape { 4, 4, 1 }, L.Conv2D(3, 2, {
      padding = r:pick { "same", "valid" }, activation = "relu" }) }
    if r:one_in(2) then list[#list + 1] = L.BatchNormalization() end
    if r:one_in(2) then
      list[#list + 1] = r:pick { L.MaxPooling2D, L.AveragePooling2D } {
        pool_size = 2 }
    end
    if r:one_in(3) then list[#list + 1] = L.SpatialDropout2D(0.3) end
    list[#list + 1] = L.Flatten()
    return list, 16
  end,
  function(r)
    local list = { L.Embedding(11, 4, { mask_zero = r:one_in(2) }),
      r:pick { function() return L.LSTM(3) end, L.GlobalAveragePooling1D,
        L.Flatten } () }
    add_dense(r, list)
    return list, 5, true
  end,
}

-- Training steps of one's own.
local Custom = K.Model:subclass "RandomModel"

function Custom:init(parts, style)
  K.Model.init(self)
  self.parts, self.style = parts, style
  if style == "metric" then
    self.seen = K.metrics.Mean { name = "seen" }
  elseif style == "variable" then
    self.counter = tf.Variable(0.0, { trainable = false })
  end
end

function Custom:call(x, options)
  for _, layer in ipairs(self.parts) do x = layer(x, options) end
  return x
end

function Custom:own_step(x, y, weight)
  local tape, loss = tf.GradientTape(function()
    return (self:compute_loss(x, y, self(x, { training = true }), weight))
  end)
  local variables = self.trainable_variables
  self.optimizer:apply_gradients(tape:gradient(loss, variables), variables)
  return { loss = loss }
end

function Custom:train_step(x, y, weight)
  if self.style == "metric" then
    self.seen:update_state(tf.reduce_mean(tf.cast(x, "float32")))
  elseif self.style == "variable" then
    self.counter:assign_add(1)
  elseif self.style == "own" then
    return self:own_step(x, y, weight)
  elseif self.style == "twice" then
    self:own_step(x, y, weight)
  end
  return K.Model.train_step(self, x, y, weight)
end

local function model_of(r, list, width, whole)
  local form = r:int(0, 3)
  if form == 0 then
    return Custom(list, r:pick { "plain", "metric", "variable", "own",
      "twice" })
  elseif form > 1 or whole then
    return K.Sequential(list)
  end
  local input = K.Input { width }
  local x = input
  for _, layer in ipairs(list) do x = layer(x) end
  return K.Model { inputs = input, outputs = x }
end

-- Options --------------------------------------------------------------------

local function rate(r)
  local S = K.optimizers.schedules
  return r:pick { function() return 0.05 end, function() return 0.01 end,
    function() return S.ExponentialDecay(0.05, 3, 0.7) end,
    function() return S.CosineDecay(0.05, 20) end,
    function()
      return S.PiecewiseConstantDecay({ 3, 7 }, { 0.05, 0.02, 0.01 })
    end,
    function() return S.PolynomialDecay(0.05, 15) end } ()
end

local OWN = {
  SGD = function(r, o)
    o.momentum = r:pick { 0, 0.9 }
    o.nesterov = o.momentum > 0 and r:one_in(2)
  end,
  Adam = function(r, o) o.amsgrad = r:one_in(3) end,
  AdamW = function(r, o) o.amsgrad = r:one_in(3) end,
  RMSprop = function(r, o)
    o.centered, o.momentum = r:one_in(2), r:pick { 0, 0.5 }
  end,
}

local function optimizer_of(r)
  local o = { learning_rate = rate(r) }
  local clip = r:pick { false, false, false, "clipnorm", "clipvalue",
    "global_clipnorm" }
  if clip then o[clip] = 0.1 end
  if r:one_in(4) then
    o.use_ema, o.ema_momentum = true, 0.7
    o.ema_overwrite_frequency = r:pick { 2, 3, false } or nil
  end
  if r:one_in(6) then o.weight_decay = 0.01 end
  local name = r:pick { "SGD", "SGD", "Adam", "AdamW", "RMSprop", "Adagrad",
    "Adadelta", "Adamax", "Nadam", "Ftrl" }
  if OWN[name] then OWN[name](r, o) end
  if name == "Ftrl" then o.weight_decay = nil end
  local made = K.optimizers[name](o)
  if r:one_in(9) then
    made = K.mixed_precision.LossScaleOptimizer(made, {
      initial_scale = r:pick { 1024, 1e38 }, dynamic_growth_steps = 2 })
  end
  return made
end

-- Losses, metrics and labels of one task: outputs, what compile gets, labels.
local TASKS = {
  function(r, o)
    o.loss = K.losses.SparseCategoricalCrossentropy { from_logits = true }
    o.metrics = { r:pick { "accuracy", "crossentropy",
      K.metrics.SparseTopKCategoricalAccuracy { k = 2 } } }
    o.weighted_metrics = r:one_in(2) and { "accuracy" } or nil
    return 3, function(n)
      return tf.random.uniform({ n }, { maxval = 3, dtype = "int32" })
    end
  end,
  function(r, o)
    o.loss = K.losses.BinaryCrossentropy { from_logits = true,
      label_smoothing = r:pick { 0, 0.1 } }
    o.metrics = { r:pick { "accuracy", "Precision", "Recall", "BinaryIoU",
      K.metrics.AUC { from_logits = true, num_thresholds = 11 } } }
    return 1, function(n)
      return tf.cast(tf.random.uniform({ n, 1 }, { maxval = 2,
        dtype = "int32" }), "float32")
    end
  end,
  function(r, o)
    o.loss = r:pick { "mse", "mae", "huber", "log_cosh",
      "mean_squared_logarithmic_error", "cosine_similarity", "hinge" }
    o.metrics = { r:pick { "mae", "mse", "RootMeanSquaredError", "R2Score",
      "cosine_similarity" } }
    return 2, function(n) return tf.random.normal { n, 2 } end
  end,
}

-- Callbacks; `lines` gets what they see.
local function key(logs)
  local names, out = {}, {}
  for name in pairs(logs or {}) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do
    local list = type(logs[name]) == "table" and logs[name] or { logs[name] }
    local parts = {}
    for k, x in ipairs(list) do
      parts[k] = x ~= x and "nan" or ("%.17g"):format(x)
    end
    out[i] = name .. "=" .. table.concat(parts, ",")
  end
  return table.concat(out, " ")
end

local function is_number(model)
  return type(model.optimizer.learning_rate) == "number"
end

local CALLBACKS = {
  function(model)
    return { on_epoch_begin = function(_, epoch)
      if is_number(model) then
        model.optimizer.learning_rate = 0.05 / (epoch + 1)
      end
    end }
  end,
  function(model)
    return is_number(model) and K.callbacks.ReduceLROnPlateau {
      monitor = "loss", patience = 0, factor = 0.5, min_delta = 10 } or {}
  end,
  function()
    return K.callbacks.EarlyStopping { monitor = "loss", patience = 1,
      restore_best_weights = true }
  end,
  function(model, lines)
    return {
      on_train_batch_begin = function(_, batch)
        lines[#lines + 1] = "begin " .. batch
        if batch == 2 and is_number(model) then
          model.optimizer.learning_rate = model.optimizer.learning_rate * 0.9
        end
      end,
      on_train_batch_end = function(_, batch, logs)
        lines[#lines + 1] = "end " .. batch .. " " .. key(logs)
      end,
    }
  end,
  function(model)
    return { on_train_batch_end = function(_, batch)
      local v = model.trainable_variables[1]
      if batch % 3 == 1 then v:assign(v * 0.5) end
    end }
  end,
  function(model)
    return { on_epoch_end = function(_, epoch)
      model.layers[#model.layers].trainable = epoch % 2 == 1
    end }
  end,
  function(model, lines)
    return { on_train_batch_end = function(_, batch)
      if batch == 3 then model:set_weights(model:get_weights()) end
      lines[#lines + 1] = "step "
        .. model.optimizer.iterations:read_value():item()
    end }
  end,
  function(model)
    return { on_train_batch_end = function(_, batch)
      if batch == 3 then model.stop_training = true end
    end }
  end,
  function() return K.callbacks.TerminateOnNaN() end,
}

-- A run ----------------------------------------------------------------------

local function add_values(out, name, v)
  for i, copy in ipairs(raw.kind(v) == "mirrored" and v.values or { v }) do
    local list = raw.tensor_to_flat(tf.cast(copy, "float64"))
    for k, x in ipairs(list) do
      list[k] = x ~= x and "nan" or ("%.17g"):format(x)
    end
    out[name .. " " .. i] = table.concat(list, " ")
  end
end

local function strategy_of(r)
  local several = r:one_in(2)
  if several and raw.device_count "CPU" > 1 then
    return tf.distribute.MirroredStrategy { "/cpu:0", "/cpu:1" }
  end
  return tf.distribute.get_strategy()
end

local function make(r, eagerly)
  local strategy, made = strategy_of(r), {}
  strategy:scope(function()
    local list, width, whole = r:pick(KINDS)(r)
    local options = { run_eagerly = eagerly,
      steps_per_execution = r:pick { 1, 1, 2, 3, 7 } }
    local outputs
    outputs, made.labels = r:pick(TASKS)(r, options)
    list[#list + 1] = L.Dense(outputs)
    made.classes, made.width, made.whole = outputs == 3, width, whole
    made.model = model_of(r, list, width, whole)
    options.optimizer = optimizer_of(r)
    made.model:compile(options)
  end)
  return made
end

local function fit_options(r, made, x, y, lines)
  local options = { batch_size = 4, epochs = 3, verbose = 0,
    sample_weight = r:one_in(3) and tf.random.uniform { x.shape[1] } or nil,
    validation_data = r:one_in(2) and { x, y } or nil,
    steps_per_epoch = r:one_in(3) and 4 or nil }
  local weighs = r:one_in(3)
  if made.classes and weighs then
    options.class_weight = { [0] = 1, [1] = 2, [2] = 0.5 }
  end
  options.callbacks = {}
  for i = 1, r:int(0, 2) do
    options.callbacks[i] = r:pick(CALLBACKS)(made.model, lines)
  end
  return options
end

local function use(r, model, x, y, options, out)
  for name, list in pairs(model:fit(x, y, options).history) do
    out["history " .. name] = key { list }
    for i, value in ipairs(list) do
      out["history " .. name .. i] = key { [name] = value }
    end
  end
  local reset = r:one_in(2)
  for i = 1, 4 do
    local rows = { { 0, i == 3 and 3 or 6 } }
    out["batch " .. i] = key(model:train_on_batch(x[rows], y[rows],
      { return_dict = true, reset_metrics = reset }))
  end
  if is_number(model) then model.optimizer.learning_rate = 0.003 end
  options.callbacks, options.epochs = nil, 2
  model:fit(x, y, options)
  out.evaluated = key(model:evaluate(x, y, { batch_size = 5, verbose = 0,
    return_dict = true }))
  for i = 1, 3 do
    out["test " .. i] = key(model:test_on_batch(x, y, { return_dict = true }))
  end
  add_values(out, "predicted", model:predict(x, { batch_size = 4,
    verbose = 0 }))
end

local function outcome(seed, eagerly)
  local r, out, lines = rng.new(seed, 17), {}, {}
  tf.random.set_seed(seed)
  local made = make(r, eagerly)
  local n = r:pick { 17, 22, 24 }
  local x = made.whole and tf.random.uniform({ n, made.width }, { maxval = 11,
    dtype = "int32" }) or tf.random.normal { n, made.width }
  local y = made.labels(n)
  local options = fit_options(r, made, x, y, lines)
  local warn = notice.warn
  notice.warn = function() end
  local ok, e = pcall(use, r, made.model, x, y, options, out)
  notice.warn = warn
  out.error = not ok and tostring(e) or nil
  out.lines = table.concat(lines, "\n")
  for i, v in ipairs(made.model.variables) do add_values(out, "v" .. i, v) end
  for i, v in ipairs(made.model.optimizer.variables) do
    add_values(out, "o" .. i, v)
  end
  return out
end

--- What is not the same when the model of a seed runs traced: lines of text.
--- As second value what the eager run gave, by name.
function M.differences(seed)
  local want, got, list = outcome(seed, true), outcome(seed, false), {}
  for name, value in pairs(want) do
    if got[name] ~= value then
      list[#list + 1] = ("%s: %s, eagerly %s"):format(name,
        tostring(got[name]):sub(1, 200), value:sub(1, 200))
    end
  end
  for name in pairs(got) do
    if want[name] == nil then list[#list + 1] = name end
  end
  table.sort(list)
  return list, want
end

if arg and arg[0] and arg[0]:find "random_models%.lua$" then
  local first = tonumber(arg[1])
  local bad = 0
  for seed = first, tonumber(arg[2]) or first do
    local list, want = M.differences(seed)
    if want.error then print(seed, want.error:match "^[^\n]*") end
    if #list > 0 then
      bad = bad + 1
      print(seed, table.concat(list, "\n  "))
    end
  end
  print(("%d of %d differ"):format(bad, (tonumber(arg[2]) or first) - first
    + 1))
  os.exit(bad == 0 and 0 or 1)
end

return M
