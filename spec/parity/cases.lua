--- What is trained here and by a peer (Keras, PyTorch) for comparison.
---
--- A case has a name, `x` and `y` (forms of images and labels, see forms),
--- layers, a loss and an optimizer. What stands for an
--- object of tf.keras is a list { class, arguments..., option = value }; the
--- peer makes the same object from it. Defaults are left out on purpose: they
--- are compared too.
--- `steps` are trained one by one, or `fit` has the options of model:fit.
--- `alone`: the peer's numbers of one replica are what we should have on any
--- number of them. `replicas` lists how many are tried, where not all.
--- `outputs` lists those of a graph, `y` has a form for each then.
--- `bound` is the largest relative difference of a loss, 1e-4 without it.
--- Models of 200 steps have smooth activations and a small rate, for training
--- itself magnifies rounding otherwise; see training.lua.
local M = {}

local CROSS = { "losses.SparseCategoricalCrossentropy", from_logits = true }
local SGD = { "optimizers.SGD", 0.01 }
local ADAM = { "optimizers.Adam" }

--- How the peer and we make examples of images (bytes, {n, 28, 28}) and labels
--- (0..9), by name. flat: 784 pixels in 0..1; image: {28, 28, 1}; rows: 28
--- steps of 28 pixels; tokens: the 28 bytes of row 14; ids: 4 rows
--- of a table of 512, other ones for each of 16 examples. classes: the labels;
--- onehot: ten numbers each; upper: 1 for labels from 5 on, else 0; pixels: the
--- image itself, flat.
M.forms = { x = { "flat", "image", "rows", "tokens", "ids" },
  y = { "classes", "onehot", "upper", "pixels" } }

local MODELS = {
  mlp = { x = "flat", layers = {
    { "layers.Dense", 256, activation = "tanh" },
    { "layers.Dense", 128, activation = "tanh" }, { "layers.Dense", 10 } } },
  cnn = { x = "image", layers = {
    { "layers.Conv2D", 8, 3, activation = "tanh" },
    { "layers.MaxPooling2D" },
    { "layers.Conv2D", 16, 3, activation = "tanh", padding = "same" },
    { "layers.AveragePooling2D", 2 }, { "layers.Flatten" },
    { "layers.Dense", 10 } } },
  lstm = { x = "rows", layers = {
    { "layers.LSTM", 48 }, { "layers.Dense", 10 } } },
  norm = { x = "image", layers = {
    { "layers.Conv2D", 8, 3, strides = 2, use_bias = false },
    { "layers.BatchNormalization" }, { "layers.Activation", "tanh" },
    { "layers.Flatten" }, { "layers.Dense", 64 },
    { "layers.BatchNormalization" }, { "layers.Activation", "sigmoid" },
    { "layers.Dense", 10 } } },
}

local list = {}

local function add(name, model, fields)
  local case = { name = name, x = model.x, layers = model.layers, y = "classes",
    loss = CROSS, optimizer = SGD, batch = 64 }
  for key, value in pairs(fields) do case[key] = value end
  list[#list + 1] = case
  case.id = #list
end

-- The models of the usual kinds: any peer knows these.
for _, kind in ipairs { "mlp", "cnn", "lstm", "norm" } do
  add(kind .. ", SGD 0.01", MODELS[kind], { steps = 200, common = true })
  add(kind .. ", Adam", MODELS[kind], { steps = 20, optimizer = ADAM,
    common = true })
end

-- Optimizers with what they are by default, and with what else they have.
for _, optimizer in ipairs {
  { "SGD", 0.01, 0.9 }, { "SGD", 0.01, 0.9, true }, { "RMSprop" },
  { "RMSprop", 1e-4, centered = true, momentum = 0.5 }, { "Adagrad" },
  { "Adadelta" }, { "Adamax" }, { "Nadam" }, { "Ftrl" }, { "AdamW" },
  { "Adam", amsgrad = true }, { "Adam", weight_decay = 0.01 },
  { "Adam", clipnorm = 0.01 }, { "Adam", clipvalue = 1e-3 },
  { "Adam", global_clipnorm = 0.1 },
  { "SGD", 0.1, use_ema = true, ema_overwrite_frequency = 5 },
} do
  local words = {}
  for _, value in ipairs(optimizer) do words[#words + 1] = tostring(value) end
  for _, key in ipairs { "amsgrad", "centered", "weight_decay", "clipnorm",
    "clipvalue", "global_clipnorm", "use_ema" } do
    if optimizer[key] then words[#words + 1] = key end
  end
  local object = { "optimizers." .. optimizer[1] }
  for key, value in pairs(optimizer) do
    if key ~= 1 then object[key] = value end
  end
  add("mlp, " .. table.concat(words, " "), MODELS.mlp, { steps = 20,
    optimizer = object, alone = true })
end

for _, schedule in ipairs {
  { "ExponentialDecay", 0.05, 5, 0.5 },
  { "ExponentialDecay", 0.05, 5, 0.5, staircase = true },
  { "CosineDecay", 0.01, 15, warmup_target = 0.05, warmup_steps = 5 },
  { "CosineDecayRestarts", 0.05, 6 }, { "InverseTimeDecay", 0.05, 5, 0.5 },
  { "PolynomialDecay", 0.05, 10, 0.001, 2.0, true },
  { "PiecewiseConstantDecay", { 3, 9 }, { 0.05, 0.02, 0.01 } },
} do
  local object = {}
  for key, value in pairs(schedule) do object[key] = value end
  object[1] = "optimizers.schedules." .. schedule[1]
  add("mlp, " .. schedule[1] .. (schedule.staircase and " staircase" or ""),
    MODELS.mlp, { steps = 20, optimizer = { "optimizers.SGD", object },
      alone = true })
end

-- Other layers.
local function layers_case(name, x, layers, fields)
  fields = fields or {}
  fields.steps = fields.steps or 20
  if fields.alone == nil then fields.alone = true end
  fields.optimizer = fields.optimizer or ADAM
  add(name, { x = x, layers = layers }, fields)
end

local HEAD = { "layers.Dense", 10 }

layers_case("mlp, ReLU", "flat", { { "layers.Dense", 128,
  activation = "relu" }, HEAD })
for _, name in ipairs { "elu", "selu", "softplus", "softsign", "swish", "gelu",
  "exponential", "hard_sigmoid", "mish", "leaky_relu", "relu6" } do
  layers_case("activation " .. name, "flat",
    { { "layers.Dense", 16, activation = name }, HEAD })
end
layers_case("activation softmax, layers", "flat", {
  { "layers.Dense", 32 }, { "layers.PReLU" }, { "layers.Dense", 32 },
  { "layers.LeakyReLU" }, { "layers.Dense", 32 }, { "layers.ELU" },
  { "layers.Dense", 10, activation = "softmax" } },
  { loss = { "losses.SparseCategoricalCrossentropy" } })
layers_case("GRU", "rows", { { "layers.GRU", 32 }, HEAD })
layers_case("GRU before", "rows", {
  { "layers.GRU", 32, reset_after = false }, HEAD })
layers_case("SimpleRNN", "rows", { { "layers.SimpleRNN", 32 }, HEAD })
layers_case("LSTM twice", "rows", {
  { "layers.LSTM", 24, return_sequences = true },
  { "layers.LSTM", 24, go_backwards = true }, HEAD })
layers_case("Bidirectional", "rows", {
  { "layers.Bidirectional", { "layers.LSTM", 16, return_sequences = true } },
  { "layers.Bidirectional", { "layers.GRU", 16 }, merge_mode = "sum" }, HEAD })
layers_case("TimeDistributed", "rows", {
  { "layers.TimeDistributed", { "layers.Dense", 8, activation = "tanh" } },
  { "layers.Flatten" }, HEAD })
layers_case("Embedding, mask", "tokens", {
  { "layers.Embedding", 256, 12, mask_zero = true }, { "layers.LSTM", 16 },
  HEAD }, { optimizer = SGD })
-- Every row is in a batch once: Keras 3 squares the gradients of repeated rows
-- one by one where it should square their sum.
for _, optimizer in ipairs { { "SGD", 0.1 }, { "SGD", 0.1, 0.9 },
  { "SGD", 0.1, 0.9, true }, { "Adam", 0.01 }, { "Adam", 0.01, amsgrad = true },
  { "AdamW", 0.01 }, { "Adamax", 0.01 }, { "Nadam", 0.01 },
  { "RMSprop", 0.001 }, { "RMSprop", 0.001, momentum = 0.5, centered = true },
  { "Adagrad", 0.1 }, { "Adadelta", 1.5 }, { "Ftrl", 0.1 } } do
  local object = { "optimizers." .. optimizer[1] }
  for key, value in pairs(optimizer) do
    if key ~= 1 then object[key] = value end
  end
  layers_case(("rows, %s%s%s"):format(optimizer[1], optimizer[3] and " momentum"
    or "", optimizer[4] and " nesterov" or optimizer.amsgrad and " amsgrad"
    or optimizer.centered and " centered" or ""), "ids", {
    { "layers.Embedding", 512, 8 }, { "layers.Flatten" }, HEAD },
    { optimizer = object, batch = 16, alone = false })
end
layers_case("Conv1D", "rows", {
  { "layers.Conv1D", 16, 3, padding = "causal", dilation_rate = 2,
    activation = "tanh" }, { "layers.MaxPooling1D" },
  { "layers.Conv1D", 16, 3, strides = 2 },
  { "layers.GlobalMaxPooling1D" }, HEAD })
layers_case("Conv2D kinds", "image", {
  { "layers.Conv2D", 8, { 5, 3 }, strides = 2, padding = "same" },
  { "layers.DepthwiseConv2D", 3, depth_multiplier = 2,
    activation = "tanh" },
  { "layers.SeparableConv2D", 8, 3, activation = "tanh" },
  { "layers.ZeroPadding2D", 1 },
  { "layers.Conv2D", 8, 3, groups = 2, dilation_rate = 2 },
  { "layers.Cropping2D", { { 1, 0 }, { 0, 1 } } },
  { "layers.GlobalAveragePooling2D" }, HEAD })
layers_case("Conv2DTranspose", "image", {
  { "layers.Conv2D", 4, 3, strides = 4, padding = "same",
    activation = "tanh" },
  { "layers.Conv2DTranspose", 4, 3, strides = 2, padding = "same",
    activation = "tanh" },
  { "layers.UpSampling2D" }, { "layers.Conv2D", 1, 1 },
  { "layers.Flatten" } },
  { y = "pixels", loss = { "losses.MeanSquaredError" } })
layers_case("LayerNormalization", "flat", {
  { "layers.Dense", 64 }, { "layers.LayerNormalization" },
  { "layers.Activation", "tanh" }, HEAD })
layers_case("GroupNormalization", "image", {
  { "layers.Conv2D", 8, 3, strides = 3 },
  { "layers.GroupNormalization", 4 }, { "layers.Activation", "tanh" },
  { "layers.Flatten" }, HEAD })
layers_case("BatchNormalization of few", "flat", {
  { "layers.Dense", 32 },
  { "layers.BatchNormalization", momentum = 0.9, epsilon = 1e-5,
    scale = false }, { "layers.Activation", "tanh" },
  { "layers.UnitNormalization" }, HEAD }, { alone = false })
layers_case("shapes", "flat", {
  { "layers.Rescaling", 2, offset = -1 }, { "layers.Reshape", { 14, 56 } },
  { "layers.Permute", { 2, 1 } }, { "layers.Dense", 6 },
  { "layers.Flatten" }, { "layers.Dense", 8, activation = "tanh" },
  { "layers.RepeatVector", 3 }, { "layers.SimpleRNN", 8 }, HEAD })
layers_case("EinsumDense", "rows", {
  { "layers.EinsumDense", "abc,cd->abd", { 28, 8 }, bias_axes = "d",
    activation = "tanh" }, { "layers.GlobalAveragePooling1D" }, HEAD })

-- Graphs: `at` names the outputs a layer takes, 0 is the input.
layers_case("MultiHeadAttention", "rows", {
  { "layers.Dense", 16 },
  { "layers.MultiHeadAttention", 2, 8, at = { 1, 1 }, each = true },
  { "layers.Add", at = { 1, 2 } }, { "layers.LayerNormalization" },
  { "layers.GlobalAveragePooling1D" }, HEAD }, { graph = true })
layers_case("merges", "flat", {
  { "layers.Dense", 16, activation = "tanh", at = { 0 } },
  { "layers.Dense", 16, activation = "sigmoid", at = { 0 } },
  { "layers.Multiply", at = { 1, 2 } }, { "layers.Average", at = { 1, 3 } },
  { "layers.Maximum", at = { 3, 4 } }, { "layers.Subtract", at = { 1, 5 } },
  { "layers.Dot", 1, normalize = true, at = { 1, 2 } },
  { "layers.Concatenate", at = { 4, 6, 7 } }, HEAD }, { graph = true })

-- Penalties, constraints, losses.
layers_case("penalties", "flat", {
  { "layers.Dense", 32, activation = "tanh",
    kernel_regularizer = { "regularizers.L2", 0.01 },
    bias_regularizer = { "regularizers.L1", 0.01 },
    activity_regularizer = { "regularizers.L2", 1e-3 } },
  { "layers.Dense", 10,
    kernel_regularizer = { "regularizers.L1L2", 1e-3, 1e-3 } } })
layers_case("constraints", "flat", {
  { "layers.Dense", 32, activation = "tanh",
    kernel_constraint = { "constraints.MaxNorm", 0.5 } },
  { "layers.Dense", 32, activation = "tanh",
    kernel_constraint = { "constraints.UnitNorm" } },
  { "layers.Dense", 16, activation = "tanh",
    kernel_constraint = { "constraints.NonNeg" } },
  { "layers.Dense", 10,
    kernel_constraint = { "constraints.MinMaxNorm", 0.2, 0.8 } } })

local function loss_case(loss, y, units, activation, more)
  local object = { "losses." .. loss }
  for key, value in pairs(more or {}) do object[key] = value end
  layers_case("loss " .. loss .. (more and " *" or ""), "flat", {
    { "layers.Dense", 32, activation = "tanh" },
    { "layers.Dense", units, activation = activation } },
    { y = y, loss = object })
end

loss_case("CategoricalCrossentropy", "onehot", 10, "softmax")
loss_case("CategoricalCrossentropy", "onehot", 10, nil,
  { from_logits = true, label_smoothing = 0.1 })
loss_case("BinaryCrossentropy", "upper", 1, "sigmoid")
loss_case("BinaryCrossentropy", "upper", 1, nil,
  { from_logits = true, label_smoothing = 0.2 })
loss_case("BinaryFocalCrossentropy", "upper", 1, "sigmoid")
loss_case("CategoricalFocalCrossentropy", "onehot", 10, "softmax")
loss_case("MeanSquaredError", "pixels", 784, "sigmoid")
loss_case("MeanAbsoluteError", "pixels", 784, "sigmoid")
loss_case("MeanAbsolutePercentageError", "pixels", 784, "sigmoid")
loss_case("MeanSquaredLogarithmicError", "pixels", 784, "sigmoid")
loss_case("Huber", "pixels", 784, nil, { delta = 0.3 })
loss_case("LogCosh", "pixels", 784, nil)
loss_case("CosineSimilarity", "pixels", 784, "sigmoid")
loss_case("KLDivergence", "onehot", 10, "softmax")
loss_case("Poisson", "onehot", 10, "softplus")
loss_case("Hinge", "upper", 1, "tanh")
loss_case("SquaredHinge", "upper", 1, "tanh")
loss_case("CategoricalHinge", "onehot", 10, "softmax")

-- fit ------------------------------------------------------------------------

-- A rate that keeps rounding small, for accuracy counts: one example that is
-- nearly undecided and falls on the other side is 1e-3 of 1000.
local function fit_case(name, model, fields)
  fields.fit.epochs = fields.fit.epochs or 3
  fields.fit.batch_size = fields.fit.batch_size or 64
  fields.fit.shuffle = false
  fields.rows = fields.rows or 1024
  if fields.alone == nil then fields.alone = true end
  fields.optimizer = fields.optimizer or { "optimizers.SGD", 0.1 }
  add("fit: " .. name, model, fields)
end

local SMALL = { x = "flat", layers = {
  { "layers.Dense", 32, activation = "tanh" }, { "layers.Dense", 10 } } }
local BINARY = { x = "flat", layers = {
  { "layers.Dense", 16, activation = "tanh" },
  { "layers.Dense", 1, activation = "sigmoid" } } }
local SOFTMAX = { x = "flat", layers = {
  { "layers.Dense", 16, activation = "tanh" },
  { "layers.Dense", 10, activation = "softmax" } } }

fit_case("accuracy", SMALL, { metrics = { "accuracy" }, fit = {},
  alone = false })
fit_case("batches that do not divide", SMALL, { rows = 1000, alone = false,
  metrics = { "accuracy" }, fit = { batch_size = 96 } })
fit_case("validation split", SMALL, { metrics = { "accuracy" },
  fit = { validation_split = 0.25 } })
fit_case("class weights", SMALL, { metrics = { "accuracy" },
  weighted_metrics = { "accuracy" }, fit = { class_weight = { [0] = 0.5,
    [1] = 2, [2] = 1, [3] = 1, [4] = 3, [5] = 1, [6] = 0.25, [7] = 1, [8] = 1,
    [9] = 1.5 } } })
fit_case("sample weights", SMALL, { weights = true, metrics = { "accuracy" },
  weighted_metrics = { "accuracy", { "metrics.SparseCategoricalCrossentropy",
    from_logits = true, name = "entropy" } },
  fit = { validation_split = 0.25 } })
-- Of several replicas Keras 3 reads the first one's moving statistics; here
-- they are the mean of all, as in Keras 2.
fit_case("batch normalisation", MODELS.norm, { rows = 512, replicas = { 1 },
  metrics = { "accuracy" }, fit = { validation_split = 0.25 } })
fit_case("steps_per_epoch", SMALL, { metrics = { "accuracy" },
  fit = { epochs = 2, steps_per_epoch = 5 } })
fit_case("binary metrics", BINARY, { y = "upper",
  loss = { "losses.BinaryCrossentropy" }, fit = {},
  metrics = { "accuracy", { "metrics.AUC", name = "auc" },
    { "metrics.AUC", curve = "PR", name = "auc_pr" },
    { "metrics.Precision", name = "precision" },
    { "metrics.Recall", name = "recall" },
    { "metrics.Precision", thresholds = 0.7, name = "precision_7" },
    { "metrics.TruePositives", name = "tp" },
    { "metrics.FalseNegatives", name = "fn" },
    { "metrics.SensitivityAtSpecificity", 0.8, name = "sens" },
    { "metrics.PrecisionAtRecall", 0.8, name = "prec_at" },
    { "metrics.BinaryCrossentropy", name = "entropy" },
    { "metrics.BinaryIoU", name = "iou" },
    { "metrics.F1Score", threshold = 0.5, average = "micro", name = "f1" },
    { "metrics.Hinge", name = "hinge" } } })
fit_case("metrics of classes", SOFTMAX, { y = "onehot",
  loss = { "losses.CategoricalCrossentropy" }, fit = {},
  metrics = { "accuracy", { "metrics.TopKCategoricalAccuracy", 3,
    name = "top3" }, { "metrics.F1Score", average = "macro", name = "f1" },
    { "metrics.FBetaScore", average = "weighted", beta = 0.5, name = "fbeta" },
    { "metrics.Precision", class_id = 3, name = "precision_of_3" },
    { "metrics.Recall", top_k = 2, name = "recall_of_2" },
    { "metrics.OneHotMeanIoU", 10, name = "iou" },
    { "metrics.KLDivergence", name = "kl" },
    { "metrics.CosineSimilarity", name = "cosine" },
    { "metrics.RootMeanSquaredError", name = "rmse" },
    { "metrics.MeanAbsoluteError", name = "mae" } } })
fit_case("ReduceLROnPlateau", SMALL, {
  optimizer = { "optimizers.SGD", 0.5 },
  fit = { epochs = 8, validation_split = 0.25 }, metrics = { "accuracy" },
  callbacks = { { "callbacks.ReduceLROnPlateau", "val_loss", factor = 0.5,
    patience = 1, min_delta = 0.2, cooldown = 1, min_lr = 0.1 } } })
fit_case("LearningRateScheduler", SMALL, {
  optimizer = { "optimizers.SGD", 0.1 }, fit = { epochs = 3 },
  halve = true })
fit_case("EarlyStopping", SMALL, { optimizer = { "optimizers.SGD", 0.1 },
  fit = { epochs = 8, validation_split = 0.25 },
  callbacks = { { "callbacks.EarlyStopping", min_delta = 0.1, patience = 1,
    restore_best_weights = true } } })
fit_case("penalties", { x = "flat", layers = {
  { "layers.Dense", 32, activation = "tanh",
    kernel_regularizer = { "regularizers.L2", 0.01 } },
  { "layers.Dense", 10, activity_regularizer = { "regularizers.L1", 1e-3 } } },
  }, { metrics = { "accuracy" }, fit = { validation_split = 0.25 } })

local TWO = { x = "flat", layers = {
  { "layers.Dense", 32, activation = "tanh", at = { 0 } },
  { "layers.Dense", 10, name = "kind", at = { 1 } },
  { "layers.Dense", 1, activation = "sigmoid", name = "half", at = { 1 } } } }
fit_case("two outputs", TWO, { graph = true, outputs = { 2, 3 },
  y = { "classes", "upper" }, fit = { validation_split = 0.25 },
  loss = { CROSS, "binary_crossentropy" }, loss_weights = { 1, 0.5 },
  metrics = { { "accuracy" },
    { "accuracy", { "metrics.AUC", name = "auc" } } } })
fit_case("two outputs by name", TWO, { graph = true, outputs = { 2, 3 },
  y = { kind = "classes", half = "upper" }, fit = {},
  loss = { kind = CROSS, half = "binary_crossentropy" },
  metrics = { kind = "accuracy", half = { "mse", "mae" } },
  weighted_metrics = { half = "mse" } })

M.list = list

return M
