--- Names of TensorFlow that are not here: using one is a NotImplementedError
--- that says so, not a nil that is called a line later.
local errors = require "tfdist.errors"

local M = {}

local WEIGHTS = "model:save_weights(path) and get_config() keep weights and "
  .. "layers"
local STRINGS = "strings are Lua strings; Dataset:map functions get them"

-- namespace -> names, and what to use in their place
local LISTS = {
  [""] = {
    { "estimator profiler saved_model function_ autograph Graph lite xla tpu "
      .. "mlir quantization graph_util compat experimental types test "
      .. "feature_column queue sets audio signal complex" },
    { "strings string_split", STRINGS },
    { "RaggedTensor ragged", "padded_batch makes rows of one length" },
    { "sparse SparseTensor" },
    { "TensorArray", "a Lua list of tensors and tf.stack" },
    { "py_function numpy_function", "functions are plain Lua: call it" },
    { "lookup", "a Lua table from word to number" },
    { "run_functions_eagerly", "ops run at the call always" },
  },
  config = {
    { "run_functions_eagerly functions_run_eagerly",
      "ops run at the call always" },
    { "experimental_connect_to_cluster experimental_connect_to_host" },
  },
  io = {
    { "decode_csv", "tf.data.experimental.CsvDataset or make_csv_dataset" },
    { "decode_image decode_gif decode_bmp encode_jpeg serialize_sparse "
      .. "deserialize_many_sparse parse_single_sequence_example "
      .. "parse_sequence_example write_graph" },
  },
  train = {
    { "load_checkpoint", "tf.train.list_variables(path) and "
      .. "tf.train.load_variable(path, name)" },
    { "ExponentialMovingAverage", "optimizers take use_ema = true" },
    { "checkpoints_iterator Coordinator ClusterDef ServerDef JobDef" },
  },
  keras = {
    { "preprocessing applications wrappers experimental estimator premade "
      .. "saving export dtensor" },
  },
  ["keras.datasets"] = {
    { "cifar10 cifar100 imdb reuters boston_housing california_housing",
      "tf.data reads CSV, TFRecord, NumPy and IDX files" },
  },
  ["keras.utils"] = {
    { "Progbar", "fit shows progress; own loops print" },
    { "image_dataset_from_directory text_dataset_from_directory "
      .. "audio_dataset_from_directory timeseries_dataset_from_array "
      .. "get_file CustomObjectScope custom_object_scope pad_sequences "
      .. "FeatureSpace" },
  },
  ["keras.layers"] = {
    { "LocallyConnected1D LocallyConnected2D ConvLSTM1D ConvLSTM2D ConvLSTM3D "
      .. "DepthwiseConv1D Hashing HashedCrossing RandomHeight RandomWidth "
      .. "DenseFeatures SpectralNormalization" },
    { "StringLookup TextVectorization", STRINGS },
  },
  ["keras.models"] = {
    { "load_model save_model model_from_json model_from_yaml", WEIGHTS },
  },
  ["keras.callbacks"] = {
    { "RemoteMonitor SidecarEvaluatorModelExport" },
    { "SwapEMAWeights", "optimizers take use_ema = true" },
  },
  ["keras.mixed_precision"] = {
    { "set_global_policy global_policy Policy experimental",
      "layers compute in the dtype of their weights: dtype = \"bfloat16\"" },
  },
  ["keras.losses"] = { { "CTC Dice Tversky" } },
  ["keras.optimizers"] = { { "legacy experimental", "the classes are in "
    .. "tf.keras.optimizers" } },
}

local names = {}
for path, list in pairs(LISTS) do
  names[path] = {}
  for _, entry in ipairs(list) do
    for name in entry[1]:gmatch "%S+" do
      names[path][name] = entry[2] or false
    end
  end
end

--- Raise for a name that TensorFlow has there and this library has not.
--- Errors: NotImplementedError naming it.
---@param path string  namespace without "tf.", "" = tf
---@param name string
function M.check(path, name)
  local hint = names[path] and names[path][name]
  if hint ~= nil then
    errors.raise("NotImplementedError", ("tf.%s%s is not implemented"):format(
      path == "" and "" or path .. ".", name), hint or nil)
  end
end

--- The names of a namespace that are not here.
---@param path string
---@return string[]
function M.names(path)
  local list = {}
  for name in pairs(names[path] or {}) do
    list[#list + 1] = name
  end
  table.sort(list)
  return list
end

return M
