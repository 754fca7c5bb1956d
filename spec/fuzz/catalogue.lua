--- What can be called, and arguments that suit it.
---
local fields = require "tfdist.base.fields"
local options = require "tfdist.base.options"
local public = require "spec.support.public"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local M = {}

-- What ends the process, raises by itself or changes what all calls do.
local LEFT_OUT = {
  ["tf.flags"] = true, ["tf.errors"] = true, ["tf.raw_ops"] = true,
  ["tf.compat"] = true, ["tf.initializers"] = true, ["tf.losses"] = true,
  ["tf.metrics"] = true, ["tf.optimizers"] = true, -- those of tf.keras
  ["tf.debugging.enable_check_numerics"] = true,
  ["tf.config.set_queue_mode"] = true,
}

--- All public functions and constructors: { name, fn, sig (nil where unknown) }.
M.functions = {}
--- Classes: those that are called to make an object.
M.classes = {}

for _, entry in ipairs(public.functions(LEFT_OUT)) do
  if entry.class == nil then
    M.functions[#M.functions + 1] = entry
  elseif not entry.name:find ":" then
    local class = entry.class
    local made = { name = entry.name, sig = entry.sig, class = class,
      fn = function(...) return class(...) end }
    M.functions[#M.functions + 1] = made
    M.classes[#M.classes + 1] = made
  end
end

--- All ops of the registry.
M.ops = {}
for op = 0, raw.op_count() - 1 do
  local name = raw.op_name(op)
  M.ops[op + 1] = {
    name = "tf.raw_ops." .. name, fn = tf.raw_ops[name],
    sig = options.signature(name, raw.op_schema(op)),
  }
end

--- All names of methods of tensors.
M.methods = {}
do
  local tensor = require "tfdist.core.tensor"
  for name in pairs(tensor.lazy_methods) do
    M.methods[#M.methods + 1] = name
  end
  for name in pairs(tensor.methods) do
    if not tensor.lazy_methods[name] then
      M.methods[#M.methods + 1] = name
    end
  end
  table.sort(M.methods)
end

--- The signature of a function or nil.
M.signature_of = options.signature_of

-- Arguments ------------------------------------------------------------------

-- Parameter names of functions that carry no kinds, and what suits them.
local BY_NAME = {
  axis = "axis", axes = "axes", dim = "axis", shape = "dims", dims = "dims",
  size = "dims", perm = "perm", dtype = "d", out_type = "d", output_type = "d",
  Tout = "d", fn = "fn", true_fn = "fn", false_fn = "fn", cond = "fn",
  body = "fn", default = "fn", creator = "fn", variable_creator = "fn",
  func = "fn", f = "fn", name = "word", message = "word", device = "word",
  device_name = "word", equation = "word", mode = "word", ord = "word",
  padding = "word", data_format = "word", direction = "word",
  keepdims = "b", keep_dims = "b", exclusive = "b", reverse = "b",
  adjoint = "b", training = "b", persistent = "b", trainable = "b",
  k = "i", num = "i", depth = "i", n = "i", num_segments = "i", seed = "i",
  maxlen = "i", num_classes = "i", num_samples = "i", batch_dims = "i",
  minlength = "i", maxlength = "i", batch_shape = "dims", strides = "l",
  ksize = "l", dilations = "l", multiples = "l", paddings = "pad",
  begin = "l", ["end"] = "l", shift = "l", block_size = "i", i = "i",
  rate = "f", epsilon = "f", alpha = "f", stddev = "f", mean = "f",
  minval = "f", maxval = "f", start = "f", limit = "f", delta = "f",
  stop = "f", clip_norm = "f", values = "t*", inputs = "t*", tensors = "t*",
  structure = "nest", nest1 = "nest", nest2 = "nest", elems = "t",
  flat_sequence = "t*", loop_vars = "t*", sources = "t", target = "t",
  num_or_size_splits = "l", repeats = "i", key = "i", count = "i",
  -- Keras, data sets, files.
  units = "i", filters = "i", kernel_size = "i", pool_size = "i",
  input_dim = "i", output_dim = "i", num_heads = "i", key_dim = "i",
  epochs = "i", batch_size = "i", steps_per_epoch = "i", steps = "i",
  verbose = "i", initial_epoch = "i", buffer_size = "i", start_index = "i",
  num_shards = "i", index = "i", cycle_length = "i", block_length = "i",
  activation = "activation", optimizer = "optimizer", loss = "loss",
  metrics = "loss", map_func = "fn", predicate = "fn", reduce_func = "fn",
  generator = "generator", value_fn = "fn", dataset_fn = "fn",
  dataset = "dataset", datasets = "datasets", validation_data = "dataset",
  layer = "layer", layers = "layers", cell = "layer", model = "layer",
  var_list = "variables", vars = "variables", grads = "t*",
  vars_and_grads = "pairs", callbacks = "callbacks",
  path = "path", filepath = "path", filename = "path", filenames = "path",
  directory = "path", log_dir = "path", logdir = "path", save_dir = "path",
  backup_dir = "path", save_path = "path", file_prefix = "path",
  checkpoint_dir = "path", ckpt_dir_or_file = "path", src = "path",
  dst = "path", pattern = "path", file_pattern = "path",
  model_checkpoint_path = "path", latest_filename = "path",
  learning_rate = "f", initial_learning_rate = "f", momentum = "f",
  decay_steps = "i", decay_rate = "f", threshold = "f", monitor = "word",
}

local make = {}

local function keras(name, list)
  return function(v)
    local at = tf.keras[name][v.rng:pick(list)]
    return at()
  end
end

local LOSSES = { "MeanSquaredError", "BinaryCrossentropy", "Huber",
  "SparseCategoricalCrossentropy" }

make.optimizer = keras("optimizers", { "SGD", "Adam", "RMSprop" })
make.loss = keras("losses", LOSSES)

function make.activation(v)
  return v.rng:pick { "relu", "softmax", "tanh", "linear", "selu", "", "Relu" }
end

function make.dataset(v)
  local n = v.rng:int(0, 5)
  return v.rng:one_in(2) and tf.data.Dataset.range(n)
    or tf.data.Dataset.from_tensor_slices { tf.ones { n, 2 }, tf.ones { n } }
end

function make.datasets(v) return { make.dataset(v), make.dataset(v) } end

function make.generator(v)
  local fn = v:callback()
  return function() return fn end
end

function make.layer(v)
  return v.rng:pick { tf.keras.layers.Dense, tf.keras.layers.LSTMCell } (
    v.rng:int(1, 3))
end

function make.layers(v) return { make.layer(v), make.layer(v) } end

function make.variables(v) return { v:variable(), v:variable(), n = 2 } end

function make.variable(v) return v:variable() end

function make.tape(v)
  local x = v:operand()
  return (tf.GradientTape(function() return tf.identity(x) end))
end

function make.pairs(v) return { { v:operand(), v:variable() } } end

function make.callbacks(v)
  return { { on_epoch_end = v:callback() }, tf.keras.callbacks.History() }
end

-- Files lie in the working folder, which is one of the run's own.
function make.path(v)
  return v.rng:pick { "a", "b.txt", "d/e", "*", "", "no/such", "c.npy", "d/" }
end

function make.t(v)
  if v.rng:one_in(8) then return v:plain() end
  return v:operand()
end

make["n"] = function(v)
  if v.rng:one_in(3) then return v:plain() end
  if v.rng:one_in(2) then return v:tensor(v.rng:pick { "int32", "int64" }) end
  return v:operand()
end

make["t*"] = function(v)
  local n = v.rng:one_in(40) and v.rng:int(0, 300) or v.rng:int(1, 4)
  if v.rng:one_in(3) then
    local list = {}
    for i = 1, n do list[i] = make.t(v) end
    return list
  end
  return v:alike(n)
end

function make.b(v) return v.rng:one_in(2) end
function make.any(v) return v.rng:one_in(3) and v:operand() or make.b(v) end
function make.i(v) return v:small() end
function make.d(v) return v:dtype() end
function make.f(v) return v:real() end
function make.l(v) return v.rng:one_in(3) and v:dims() or v:list() end
function make.dims(v) return v:dims() end
function make.axis(v) return v:axis() end
function make.axes(v) return v.rng:one_in(2) and v:axis() or v:list() end
function make.perm(v) return v:permutation() end
function make.fn(v) return v:callback() end
function make.word(v) return v:word() end

function make.pad(v)
  local list = {}
  for i = 1, v.rng:int(1, 4) do
    list[i] = { v.rng:int(0, 2), v.rng:int(0, 2) }
  end
  return list
end

function make.nest(v)
  return { v:operand(), { a = v:operand(), b = 1 }, n = 2 }
end

-- What counts rounds has to come to an end.
local ROUNDS = { epochs = true, steps_per_epoch = true, steps = true,
  initial_epoch = true, validation_steps = true }

-- Kinds that say nothing about what suits.
local VAGUE = { table = true, nest = true, list = true, string = true,
  dict = true, o = true, s = "word", layer = "layer", variable = "variable",
  integer = "i", number = "f", boolean = "b", callable = "fn", body = "fn",
  later = "fn" }

--- Is there something that suits a parameter of this kind?
function M.knows(kind)
  return kind == nil or VAGUE[kind] ~= nil or kind:sub(1, 1) == "e"
    or make[kind] ~= nil or make[(kind:gsub("[?]", ""))] ~= nil
end

-- Mostly something that suits the parameter.
local function argument(v, name, kind)
  if BY_NAME[name] == "path" and not v.rng:one_in(9) then
    return make.path(v)
  elseif ROUNDS[name] then
    return v.rng:int(-1, 3)
  end
  if v.rng:one_in(20) then return v:garbage() end
  if kind == nil or VAGUE[kind] then
    kind = BY_NAME[name] or type(VAGUE[kind]) == "string" and VAGUE[kind]
      or "t"
  end
  if kind:sub(1, 1) == "e" then
    local choices = {}
    for choice in kind:match("%((.*)%)"):gmatch "[^|]+" do
      choices[#choices + 1] = choice
    end
    return v.rng:pick(choices)
  end
  if name == "axis" and (kind == "i" or kind == "l") then
    return make.axis(v)
  elseif name == "perm" then
    return make.perm(v)
  elseif name:find "shape" or name == "dims" or name:find "_sizes" then
    return make.dims(v)
  elseif kind == "i" and name:find "seed" or name:find "counter" then
    return v.rng:int(0, 1000000)
  end
  if make[kind] == nil then kind = kind:gsub("[?]", "") end
  return make[kind](v)
end

-- A misspelt or a surplus option.
local function spoil(v, named)
  named[v.rng:pick { "axs", "keepdim", "dtyp", "zzz", 1, 1.5, true }] = 1
end

-- Objects --------------------------------------------------------------------

local function small_model()
  local model = tf.keras.Sequential { tf.keras.layers.Dense(1,
    { input_shape = { 2 } }) }
  model:compile { optimizer = "sgd", loss = "mse", metrics = { "mae" } }
  return model
end

local function functional_model()
  local x = tf.keras.Input { 2 }
  return tf.keras.Model(x, tf.keras.layers.Dense(1)(x))
end

-- What a strategy of all devices makes of fn's function.
local function mirrored(fn)
  return function() return fn(tf.distribute.MirroredStrategy()) end
end

local function cluster()
  return { worker = { "a:1", "b:1" }, ps = { "c:1" } }
end

local function batches()
  return tf.data.Dataset.from_tensor_slices { tf.ones { 5, 2 }, tf.ones { 5 } }
    :batch(2)
end

--- Makers of objects whose methods are called.
M.makers = {
  model = small_model, functional = functional_model,
  layer = function() return tf.keras.layers.Dense(2) end,
  built = function()
    local layer = tf.keras.layers.LSTM(2)
    layer:build { 1, 2, 3 }
    return layer
  end,
  sgd = function() return tf.keras.optimizers.SGD(0.1, 0.9) end,
  adam = function() return tf.keras.optimizers.Adam() end,
  mean = function() return tf.keras.metrics.Mean() end,
  auc = function() return tf.keras.metrics.AUC() end,
  mse = function() return tf.keras.losses.MeanSquaredError() end,
  callback = function() return tf.keras.callbacks.EarlyStopping() end,
  schedule = function()
    return tf.keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
  end,
  initializer = function() return tf.keras.initializers.GlorotUniform() end,
  range = function() return tf.data.Dataset.range(5) end,
  slices = function()
    return tf.data.Dataset.from_tensor_slices({ x = tf.ones { 4, 2 } })
      :batch(2)
  end,
  iterator = function() return tf.data.Dataset.range(3):iter() end,
  pipeline_options = function() return tf.data.Options() end,
  strategy = function() return tf.distribute.MirroredStrategy() end,
  one_device = function()
    return tf.distribute.OneDeviceStrategy "/cpu:0"
  end,
  extended = function() return tf.distribute.get_strategy().extended end,
  context = function() return tf.distribute.get_replica_context() end,
  reduction = function() return tf.distribute.ReductionToOneDevice() end,
  checkpoint = function() return tf.train.Checkpoint { v = tf.Variable(1) } end,
  manager = function()
    return tf.train.CheckpointManager(tf.train.Checkpoint {}, "ckpt",
      { max_to_keep = 1 })
  end,
  example = function()
    return tf.train.Example { features = tf.train.Features { feature = {} } }
  end,
  generator = function() return tf.random.Generator.from_seed(1) end,
  module = function() return tf.Module() end,
  central = function()
    return tf.distribute.experimental.CentralStorageStrategy()
  end,
  mirrored_extended = mirrored(function(s) return s.extended end),
  per_replica = mirrored(function(s)
    return s:experimental_distribute_values_from_function(function()
      return tf.ones { 2 }
    end)
  end),
  mirrored_variable = mirrored(function(s)
    return s:scope(function() return tf.Variable { 1, 2 } end)
  end),
  on_read_variable = mirrored(function(s)
    return s:scope(function()
      return tf.Variable({ 1, 2 }, { trainable = false,
        synchronization = "ON_READ", aggregation = "SUM" })
    end)
  end),
  distributed = mirrored(function(s)
    return s:experimental_distribute_dataset(batches())
  end),
  distributed_iterator = mirrored(function(s)
    return s:experimental_distribute_dataset(batches()):iter()
  end),
  mirrored_model = mirrored(function(s) return s:scope(small_model) end),
  mirrored_optimizer = mirrored(function(s)
    return s:scope(function() return tf.keras.optimizers.Adam() end)
  end),
  hierarchical = function() return tf.distribute.HierarchicalCopyAllReduce() end,
  input_context = function() return tf.distribute.InputContext(2, 1, 4) end,
  resolver = function()
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
      tf.train.ClusterSpec(cluster()))
  end,
  union = function()
    return tf.distribute.cluster_resolver.UnionResolver(
      tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster())))
  end,
  cluster_spec = function() return tf.train.ClusterSpec(cluster()) end,
  shuffled = function() return batches():shuffle(3, { seed = 1 }):repeat_(2) end,
  mapped = function()
    return batches():map(function(x, y) return x + 1, y end):cache():prefetch()
  end,
  options = function() return tf.distribute.InputOptions() end,
  communication = function()
    return tf.distribute.experimental.CommunicationOptions()
  end,
  embedding = function()
    return tf.keras.layers.Embedding(4, 2, { mask_zero = true })
  end,
  bidirectional = function()
    return tf.keras.layers.Bidirectional(tf.keras.layers.GRU(2))
  end,
  attention = function() return tf.keras.layers.MultiHeadAttention(2, 2) end,
  normalization = function() return tf.keras.layers.BatchNormalization() end,
  lambda = function()
    return tf.keras.layers.Lambda(function(x) return x * 2 end)
  end,
  own_layer = function() return tf.keras.layers.Layer:extend "Mine" () end,
  own_model = function() return tf.keras.Model:extend "Mine" () end,
  own_metric = function() return tf.keras.metrics.Metric:extend "Mine" () end,
  own_loss = function() return tf.keras.losses.Loss:extend "Mine" () end,
  accuracy = function() return tf.keras.metrics.SparseCategoricalAccuracy() end,
  scaled = function()
    return tf.keras.mixed_precision.LossScaleOptimizer(
      tf.keras.optimizers.SGD(0.1))
  end,
  backup = function() return tf.keras.callbacks.BackupAndRestore "d" end,
  writer = function() return tf.summary.create_file_writer "d" end,
  records = function() return tf.io.TFRecordWriter "r" end,
  slices_of = function()
    return tf.IndexedSlices(tf.ones { 1, 2 },
      tf.constant({ 0 }, { dtype = "int32" }))
  end,
  tensor_spec = function() return tf.TensorSpec({ -1, 2 }, "float32") end,
  optional = function()
    return tf.data.Dataset.range(1):iter():get_next_as_optional()
  end,
}
M.maker_names = {}
for name in pairs(M.makers) do M.maker_names[#M.maker_names + 1] = name end
table.sort(M.maker_names)

-- What classes define for the library to call, which checks what it gives.
local HOOKS = {}
for name in ([[
  batch_reduce_implementation broadcast_implementation build call
  compute_mask compute_output_shape on_batch_begin on_batch_end on_epoch_begin
  on_epoch_end on_predict_batch_begin on_predict_batch_end on_predict_begin
  on_predict_end on_test_batch_begin on_test_batch_end on_test_begin
  on_test_end on_train_batch_begin on_train_batch_end on_train_begin
  on_train_end reduce_implementation set_model set_params
]]):gmatch "%S+" do
  HOOKS[name] = true
end

-- maker -> names of the methods of what it makes
local method_names = {}

--- A fresh object and the sorted names of its methods.
function M.object(maker)
  local object = M.makers[maker]()
  if method_names[maker] == nil then
    local found, names = {}, {}
    fields.add(found, object)
    for name in pairs(found) do
      local ok, value = pcall(function() return object[name] end)
      if ok and type(value) == "function" and not name:find "^_"
        and not fields.HIDDEN[name] and not HOOKS[name] then
        names[#names + 1] = name
      end
    end
    table.sort(names)
    method_names[maker] = names
  end
  return object, method_names[maker]
end

--- Arguments for a signature: a list with n, options at its end or not.
function M.arguments(v, sig)
  local rng = v.rng
  local args = { n = 0 }
  if sig == nil then
    for _ = 1, rng:int(0, 3) do
      args.n = args.n + 1
      args[args.n] = rng:one_in(3) and v:garbage() or v:operand()
    end
    return args
  end
  local named = {}
  local positional = rng:one_in(3) and rng:int(0, sig.n) or sig.n
  for i = 1, sig.n do
    local wanted = sig.required[i] or rng:one_in(2)
    if wanted and rng:one_in(60) then wanted = false end
    if wanted and i <= positional then
      args[i] = argument(v, sig.names[i], sig.kinds[i])
      args.n = i
    elseif wanted then
      named[sig.names[i]] = argument(v, sig.names[i], sig.kinds[i])
    end
  end
  if rng:one_in(40) then spoil(v, named) end
  if next(named) ~= nil then
    args.n = args.n + 1
    args[args.n] = named
  end
  if rng:one_in(60) then
    for _ = 1, rng:int(1, 20) do
      args.n = args.n + 1
      args[args.n] = v:garbage()
    end
  end
  return args
end

return M

