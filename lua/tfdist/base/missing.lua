--- Names of TensorFlow that are not here: using one is a NotImplementedError
--- that says so, not a nil that is called a line later.
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local pairs = require "tfdist.base.pairs"

local M = {}

local WEIGHTS = "model:save_weights(path) and get_config() keep weights and "
  .. "layers"
local STRINGS = "strings are Lua strings; Dataset:map functions get them"
local COMPLEX = "there are no complex dtypes"
local WORKERS = "tf.distribute.MultiWorkerMirroredStrategy runs over several "
  .. "processes"
local EAGER = "ops run at the call; tf.function_ makes a graph of them"

-- namespace -> names, and what to use in their place
local LISTS = {
  [""] = {
    { "Graph Operation import_graph_def graph_util",
      "tf.function_ makes graphs; f:get_concrete_function(...):graph() shows one" },
    { "compat", "all names are those of TensorFlow 2" },
    { "estimator saved_model lite xla tpu "
      .. "mlir quantization experimental types test dtensor security "
      .. "feature_column queue sets audio signal AggregationMethod "
      .. "CriticalSection DeviceSpec IndexedSlicesSpec "
      .. "OptionalSpec RegisterGradient TensorArraySpec TypeSpec "
      .. "approx_top_k autodiff batch_to_space control_dependencies conv "
      .. "edit_distance extract_volume_patches fingerprint "
      .. "get_current_name_scope get_logger get_static_value guarantee_const "
      .. "hessians histogram_fixed_width histogram_fixed_width_bins "
      .. "load_library "
      .. "load_op_library make_ndarray make_tensor_proto matrix_square_root "
      .. "no_gradient nondifferentiable_batch_function parallel_stack "
      .. "quantize random_index_shuffle realdiv "
      .. "register_tensor_conversion_function "
      .. "required_space_to_batch_paddings shape_n space_to_batch "
      .. "space_to_batch_nd sysconfig tuple type_spec_from_value "
      .. "conv2d_backprop_filter_v2 conv2d_backprop_input_v2 NoneTensorSpec "
      .. "fake_quant resource variant qint8 qint16 qint32 quint8 quint16 "
      .. "uint16 uint32 uint64 int4 uint4 float8_e4m3fn float8_e5m2" },
    { "complex complex64 complex128 eig eigvals fftnd ifftnd rfftnd irfftnd",
      COMPLEX },
    { "TensorShape", "shapes are plain lists: x.shape, { -1, 3 } with -1 for a "
      .. "size that is not known" },
    { "DType", "dtypes are strings: x.dtype == \"float32\"" },
    { "strings string_split as_string", STRINGS },
    { "RaggedTensor RaggedTensorSpec ragged ragged_fill_empty_rows "
      .. "ragged_fill_empty_rows_grad",
      "padded_batch makes rows of one length" },
    { "sparse SparseTensor SparseTensorSpec" },
    { "lookup", "a Lua table from word to number" },
    { "run_functions_eagerly", "tf.config.run_functions_eagerly" },
    { "Session InteractiveSession ConfigProto placeholder get_variable "
      .. "variable_scope global_variables_initializer contrib app", EAGER },
    { "layers", "tf.keras.layers" },
  },
  autograph = {
    { "to_graph to_code", "Lua code is not rewritten; tf.cond and tf.while_loop "
      .. "are for what the call decides on" },
    { "trace", "print(...) prints at the trace" },
  },
  ["autograph.experimental"] = {
    { "Feature", "Lua code is not rewritten" },
    { "set_loop_options", "tf.while_loop takes shape_invariants and "
      .. "maximum_iterations" },
  },
  config = {
    { "experimental_functions_run_eagerly "
      .. "experimental_run_functions_eagerly",
      "tf.config.run_functions_eagerly" },
    { "experimental_connect_to_cluster experimental_connect_to_host "
      .. "LogicalDevice PhysicalDevice optimizer get_visible_devices "
      .. "set_visible_devices" },
  },
  ["config.experimental"] = {
    { "ClusterDeviceFilters VirtualDeviceConfiguration disable_mlir_bridge "
      .. "enable_mlir_bridge get_device_details "
      .. "get_device_policy set_device_policy get_memory_usage "
      .. "get_synchronous_execution set_synchronous_execution "
      .. "get_virtual_device_configuration set_virtual_device_configuration "
      .. "get_visible_devices set_visible_devices" },
  },
  ["config.threading"] = {
    { "get_inter_op_parallelism_threads set_inter_op_parallelism_threads" },
  },
  debugging = {
    { "assert_proper_iterable experimental disable_traceback_filtering "
      .. "enable_traceback_filtering is_traceback_filtering_enabled "
      .. "get_log_device_placement set_log_device_placement" },
  },
  distribute = {
    { "Strategy", "the classes of strategies are tf.distribute."
      .. "MirroredStrategy and others; tf.distribute.is_strategy(x) tests" },
    { "StrategyExtended", "strategy.extended" },
    { "ReplicaContext", "tf.distribute.get_replica_context() gives it" },
    { "DistributedValues DistributedDataset DistributedIterator",
      "tf.distribute.is_distributed_value(x) tests" },
    { "ParameterServerStrategy TPUStrategy Server coordinator", WORKERS },
  },
  ["distribute.cluster_resolver"] = {
    { "TPUClusterResolver", WORKERS },
    { "KubernetesExecutableLocation" },
  },
  ["distribute.experimental"] = {
    { "ParameterServerStrategy TPUStrategy PreemptionWatcher coordinator "
      .. "partitioners rpc", WORKERS },
  },
  data = {
    { "DatasetSpec Iterator IteratorSpec NumpyIterator" },
  },
  ["data.experimental"] = {
    { "AutotuneAlgorithm CheckpointInputPipelineHook Counter ServiceOptions "
      .. "DatasetInitializer DatasetStructure ExternalStatePolicy "
      .. "OptionalStructure RandomDataset Reducer SqlDataset TFRecordWriter "
      .. "TensorStructure at bytes_produced_stats copy_to_device "
      .. "dense_to_ragged_batch dense_to_sparse_batch distributed_save "
      .. "enable_debug_mode "
      .. "from_list from_variant get_model_proto get_next_as_optional "
      .. "get_structure group_by_reducer index_table_from_dataset "
      .. "latency_stats load make_batched_features_dataset "
      .. "make_saveable_from_iterator map_and_batch pad_to_cardinality "
      .. "parallel_interleave parse_example_dataset rejection_resample save "
      .. "service shuffle_and_repeat snapshot table_from_dataset to_variant "
      .. "unique" },
  },
  dtypes = {
    { "DType QUANTIZED_DTYPES experimental finfo hashable qint8 qint16 qint32 "
      .. "quint8 quint16 "
      .. "uint16 uint32 uint64 resource variant" },
    { "complex complex64 complex128", COMPLEX },
  },
  errors = {
    { "OpError", "tf.errors.is_error(e)" },
    { "OK ABORTED ALREADY_EXISTS CANCELLED DATA_LOSS DEADLINE_EXCEEDED "
      .. "FAILED_PRECONDITION INTERNAL INVALID_ARGUMENT NOT_FOUND OUT_OF_RANGE "
      .. "PERMISSION_DENIED RESOURCE_EXHAUSTED UNAUTHENTICATED UNAVAILABLE "
      .. "UNIMPLEMENTED UNKNOWN", "errors have no codes; e.kind is a string: "
      .. "e.kind == tf.errors.OutOfRangeError" },
    { "PermissionDeniedError UnauthenticatedError UnknownError",
      "nothing here raises it; a file that cannot be opened or written is "
      .. "tf.errors.FailedPreconditionError" },
  },
  image = {
    { "adjust_gamma adjust_hue adjust_jpeg_quality adjust_saturation "
      .. "combined_non_max_suppression crop_and_resize decode_and_crop_jpeg "
      .. "decode_bmp decode_gif decode_image decode_jpeg decode_jxl "
      .. "decode_png decode_webp "
      .. "draw_bounding_boxes encode_jpeg encode_png extract_glimpse "
      .. "extract_jpeg_shape extract_patches generate_bounding_box_proposals "
      .. "hsv_to_rgb image_gradients is_jpeg non_max_suppression "
      .. "non_max_suppression_overlaps non_max_suppression_padded "
      .. "non_max_suppression_with_scores psnr random_brightness "
      .. "random_contrast random_hue random_jpeg_quality random_saturation "
      .. "rgb_to_hsv rgb_to_yiq rgb_to_yuv sample_distorted_bounding_box "
      .. "sobel_edges ssim ssim_multiscale stateless_random_brightness "
      .. "stateless_random_contrast stateless_random_crop "
      .. "stateless_random_flip_left_right stateless_random_flip_up_down "
      .. "stateless_random_hue stateless_random_jpeg_quality "
      .. "stateless_random_saturation "
      .. "stateless_sample_distorted_bounding_box total_variation yiq_to_rgb "
      .. "yuv_to_rgb" },
  },
  io = {
    { "decode_csv", "tf.data.experimental.CsvDataset or make_csv_dataset" },
    { "decode_image decode_gif decode_bmp decode_jpeg decode_jxl decode_png "
      .. "decode_webp encode_jpeg "
      .. "encode_png decode_and_crop_jpeg extract_jpeg_shape is_jpeg "
      .. "serialize_sparse serialize_many_sparse deserialize_many_sparse "
      .. "parse_single_sequence_example parse_sequence_example write_graph "
      .. "FixedLenSequenceFeature RaggedFeature SparseFeature decode_base64 "
      .. "encode_base64 decode_compressed decode_json_example decode_proto "
      .. "encode_proto match_filenames_once parse_tensor serialize_tensor" },
  },
  ["io.gfile"] = {
    { "GFile", "io.open" },
    { "copy get_registered_schemes join rmtree stat walk" },
  },
  linalg = {
    { "eig eigvals",
      COMPLEX .. "; eigh and eigvalsh take symmetric matrices" },
    { "LinearOperator LinearOperatorAdjoint LinearOperatorBlockDiag "
      .. "LinearOperatorBlockLowerTriangular LinearOperatorCirculant "
      .. "LinearOperatorCirculant2D LinearOperatorCirculant3D "
      .. "LinearOperatorComposition LinearOperatorDiag "
      .. "LinearOperatorFullMatrix LinearOperatorHouseholder "
      .. "LinearOperatorIdentity LinearOperatorInversion "
      .. "LinearOperatorKronecker LinearOperatorLowRankUpdate "
      .. "LinearOperatorLowerTriangular LinearOperatorPermutation "
      .. "LinearOperatorScaledIdentity LinearOperatorToeplitz "
      .. "LinearOperatorTridiag LinearOperatorZeros banded_triangular_solve "
      .. "eigh_tridiagonal experimental expm logm lu lu_matrix_inverse "
      .. "lu_reconstruct lu_solve sqrtm tridiagonal_matmul tridiagonal_solve" },
  },
  math = {
    { "angle conj imag real", COMPLEX },
    { "approx_max_k approx_min_k bessel_i0 bessel_i0e bessel_i1 bessel_i1e "
      .. "betainc is_non_decreasing is_strictly_increasing sobol_sample "
      .. "special" },
  },
  nn = {
    { "RNNCellDeviceWrapper RNNCellDropoutWrapper RNNCellResidualWrapper "
      .. "all_candidate_sampler approx_max_k approx_min_k "
      .. "atrous_conv2d_transpose batch_norm_with_global_normalization "
      .. "collapse_repeated compute_accidental_hits ctc_beam_search_decoder "
      .. "ctc_greedy_decoder ctc_loss ctc_unique_labels dilation2d "
      .. "embedding_lookup_sparse erosion2d experimental "
      .. "fixed_unigram_candidate_sampler fractional_avg_pool "
      .. "fractional_max_pool isotonic_regression "
      .. "learned_unigram_candidate_sampler log_poisson_loss nce_loss "
      .. "safe_embedding_lookup_sparse sampled_softmax_loss space_to_batch "
      .. "with_space_to_batch" },
  },
  ["profiler.experimental"] = {
    { "Profile ProfilerOptions client server", "tf.profiler.experimental.start("
      .. "logdir) and stop(); Trace(name, fn) marks a range" },
  },
  random = {
    { "Algorithm all_candidate_sampler create_rng_state "
      .. "fixed_unigram_candidate_sampler learned_unigram_candidate_sampler "
      .. "log_uniform_candidate_sampler stateless_binomial "
      .. "stateless_parameterized_truncated_normal uniform_candidate_sampler" },
  },
  ["random.experimental"] = {
    { "Generator get_global_generator set_global_generator",
      "they are in tf.random" },
    { "Algorithm create_rng_state index_shuffle" },
  },
  summary = {
    { "SummaryWriter", "tf.summary.create_file_writer" },
  },
  ["summary.experimental"] = {
    { "summary_scope write_raw_pb", "tf.name_scope puts a name before others" },
  },
  train = {
    { "load_checkpoint NewCheckpointReader",
      "tf.train.list_variables(path) and tf.train.load_variable(path, name)" },
    { "ExponentialMovingAverage", "optimizers take use_ema = true" },
    { "AdagradOptimizer AdamOptimizer GradientDescentOptimizer "
      .. "MomentumOptimizer RMSPropOptimizer", "tf.keras.optimizers" },
    { "Saver import_meta_graph", "tf.train.Checkpoint" },
    { "MonitoredTrainingSession get_or_create_global_step", EAGER },
    { "checkpoints_iterator Coordinator ClusterDef ServerDef "
      .. "JobDef CheckpointOptions CheckpointView TrackableView FeatureList "
      .. "FeatureLists SequenceExample experimental" },
  },
  keras = {
    { "preprocessing applications wrappers experimental estimator premade "
      .. "saving export dtensor Function KerasTensor Operation Quantizer "
      .. "RematScope StatelessScope SymbolicScope VariableSpec config device "
      .. "distillation distribution dtype_policies legacy name_scope ops "
      .. "quantizers random remat src tree version visualization "
      .. "__version__" },
    { "Loss Metric Optimizer Initializer Regularizer InputSpec",
      "it is in tf.keras.losses, metrics, optimizers, initializers, "
      .. "regularizers or layers" },
    { "Variable", "tf.Variable" },
    { "DTypePolicy FloatDTypePolicy", "tf.keras.mixed_precision.Policy" },
  },
  ["keras.activations"] = {
    { "celu glu hard_shrink hard_silu hard_swish hard_tanh log_sigmoid "
      .. "soft_shrink sparse_plus sparse_sigmoid sparsemax squareplus "
      .. "tanh_shrink threshold" },
  },
  ["keras.backend"] = {
    { "abs all any arange argmax argmin backend batch_dot batch_flatten "
      .. "batch_get_value batch_normalization batch_set_value bias_add "
      .. "binary_crossentropy binary_focal_crossentropy cast cast_to_floatx "
      .. "categorical_crossentropy categorical_focal_crossentropy clip "
      .. "concatenate constant conv1d conv2d conv2d_transpose conv3d cos "
      .. "count_params ctc_batch_cost ctc_decode ctc_label_dense_to_sparse "
      .. "cumprod cumsum depthwise_conv2d dot dropout dtype elu equal eval "
      .. "exp expand_dims experimental eye flatten foldl foldr function_ "
      .. "gather get_value gradients greater greater_equal hard_sigmoid "
      .. "identity image_data_format in_test_phase in_top_k in_train_phase "
      .. "int_shape is_float_dtype is_int_dtype "
      .. "is_keras_tensor is_sparse l2_normalize learning_phase "
      .. "learning_phase_scope less less_equal local_conv1d local_conv2d log "
      .. "manual_variable_initialization map_fn max maximum mean min minimum "
      .. "moving_average_update name_scope ndim normalize_batch_in_training "
      .. "not_equal one_hot ones ones_like permute_dimensions placeholder "
      .. "pool2d pool3d pow print_tensor prod random_bernoulli "
      .. "random_binomial random_normal random_normal_variable "
      .. "random_uniform random_uniform_variable relu repeat_ "
      .. "repeat_elements reset_uids reshape resize_images resize_volumes "
      .. "result_type reverse rnn round separable_conv2d "
      .. "set_image_data_format set_learning_phase set_value shape sigmoid "
      .. "sign sin softmax softplus softsign sparse_categorical_crossentropy "
      .. "spatial_2d_padding spatial_3d_padding sqrt square squeeze stack "
      .. "standardize_dtype std stop_gradient sum switch tanh "
      .. "temporal_padding tile to_dense transpose truncated_normal update "
      .. "update_add update_sub var variable zeros zeros_like",
      "functions of tf take its place" },
  },
  ["keras.constraints"] = {
    { "RadialConstraint radial_constraint" },
  },
  ["keras.datasets"] = {
    { "cifar10 cifar100 imdb reuters boston_housing california_housing",
      "tf.data reads CSV, TFRecord, NumPy and IDX files" },
  },
  ["keras.initializers"] = {
    { "IdentityInitializer", "Identity" },
    { "OrthogonalInitializer", "Orthogonal" },
    { "STFT STFTInitializer stft" },
  },
  ["keras.utils"] = {
    { "Progbar", "fit shows progress; own loops print" },
    { "image_dataset_from_directory text_dataset_from_directory "
      .. "audio_dataset_from_directory timeseries_dataset_from_array "
      .. "get_file CustomObjectScope custom_object_scope pad_sequences "
      .. "FeatureSpace Config GeneratorEnqueuer OrderedEnqueuer "
      .. "SequenceEnqueuer PyDataset SidecarEvaluator array_to_img "
      .. "img_to_array load_img save_img bounding_boxes clear_session "
      .. "deserialize_keras_object disable_interactive_logging "
      .. "enable_interactive_logging is_interactive_logging_enabled "
      .. "experimental get_custom_objects get_registered_name "
      .. "get_registered_object get_source_inputs is_keras_tensor legacy "
      .. "pack_x_y_sample_weight unpack_x_y_sample_weight sequence "
      .. "split_dataset standardize_dtype to_ordinal "
      .. "warmstart_embedding_matrix" },
  },
  ["keras.layers"] = {
    { "LocallyConnected1D LocallyConnected2D ConvLSTM1D ConvLSTM2D "
      .. "AdaptiveAveragePooling1D AdaptiveAveragePooling2D "
      .. "AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D "
      .. "AdaptiveMaxPooling3D ContrastLimitedAdaptiveHistogramEqualization "
      .. "ReversibleEmbedding ConvLSTM3D DepthwiseConv1D Hashing "
      .. "HashedCrossing RandomHeight "
      .. "RandomWidth DenseFeatures SpectralNormalization AbstractRNNCell "
      .. "AugMix AutoContrast CutMix Equalization FlaxLayer "
      .. "GroupQueryAttention JaxLayer MaxNumBoundingBoxes "
      .. "MelSpectrogram MixUp Pipeline RMSNormalization RandAugment "
      .. "RandomColorDegeneration RandomColorJitter RandomElasticTransform "
      .. "RandomErasing RandomGaussianBlur RandomGrayscale RandomHue "
      .. "RandomInvert RandomPerspective RandomPosterization "
      .. "RandomSaturation RandomSharpness RandomShear STFTSpectrogram "
      .. "Solarization TFSMLayer TorchModuleWrapper Wrapper" },
    { "CuDNNGRU CuDNNLSTM", "GRU and LSTM" },
    { "StringLookup TextVectorization", STRINGS },
  },
  ["keras.models"] = {
    { "load_model save_model model_from_json model_from_yaml", WEIGHTS },
    { "model_from_config Functional experimental" },
  },
  ["keras.callbacks"] = {
    { "RemoteMonitor SidecarEvaluatorModelExport CallbackList "
      .. "OrbaxCheckpoint experimental" },
    { "SwapEMAWeights", "optimizers take use_ema = true" },
  },
  ["keras.metrics"] = {
    { "ConcordanceCorrelation PearsonCorrelation concordance_correlation "
      .. "pearson_correlation" },
  },
  ["keras.mixed_precision"] = {
    { "experimental", "they are in tf.keras.mixed_precision" },
  },
  ["keras.losses"] = {
    { "CTC ctc Dice dice Tversky tversky Circle circle "
      .. "CategoricalGeneralizedCrossEntropy "
      .. "categorical_generalized_cross_entropy" },
  },
  ["keras.optimizers"] = {
    { "legacy experimental", "the classes are in tf.keras.optimizers" },
    { "LossScaleOptimizer", "tf.keras.mixed_precision.LossScaleOptimizer" },
    { "Adafactor Lamb Lion MultiOptimizer Muon OptimizerMap ScheduleFreeAdamW "
      .. "deserialize serialize" },
  },
  ["keras.optimizers.schedules"] = {
    { "deserialize serialize" },
  },
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

-- Methods and fields of strategies that are not here.
local OF_STRATEGIES = {}
for name in ("configure update_config_proto colocate_vars_with experimental_run "
  .. "experimental_assign_to_logical_device "
  .. "experimental_replicate_to_logical_devices "
  .. "experimental_split_to_logical_devices"):gmatch "%S+" do
  OF_STRATEGIES[name] = true
end

--- Raise for a method that TensorFlow's strategies have and these have not, by
--- its name with or without "experimental_".
--- Errors: NotImplementedError naming it.
---@param name string
function M.check_strategy(name)
  for _, full in ipairs { name, "experimental_" .. name } do
    if OF_STRATEGIES[full] then
      errors.raise("NotImplementedError", ("tf.distribute.Strategy.%s is not "
        .. "implemented"):format(full), "TensorFlow has it, tfdist has not")
    end
  end
end

--- The namespaces that names are missing from.
---@return string[]  "" = tf
function M.paths()
  return lists.sorted_keys(names)
end

--- The names of a namespace that are not here.
---@param path string
---@return string[]
function M.names(path)
  return lists.sorted_keys(names[path] or {})
end

return M
