--- tf.data: input pipelines.
local basic = require "tfdist.data.basic"
require "tfdist.data.batch"
local dataset = require "tfdist.data.dataset"
local pipeline_options = require "tfdist.data.pipeline_options"
local tf = require "tfdist"
require "tfdist.data.transform"

-- The methods of tensors come with the first function of tf.
assert(tf.identity)

local M = {
  Dataset = dataset.statics,
  INFINITE_CARDINALITY = dataset.INFINITE,
  UNKNOWN_CARDINALITY = dataset.UNKNOWN,
  AUTOTUNE = -1,
  Options = pipeline_options.Options,
  ThreadingOptions = pipeline_options.ThreadingOptions,
  experimental = {
    SHARD_HINT = basic.SHARD_HINT, AUTOTUNE = -1,
    INFINITE_CARDINALITY = dataset.INFINITE,
    UNKNOWN_CARDINALITY = dataset.UNKNOWN,
    AutoShardPolicy = pipeline_options.AutoShardPolicy,
    DistributeOptions = pipeline_options.DistributeOptions,
    ThreadingOptions = pipeline_options.ThreadingOptions,
    AutotuneOptions = pipeline_options.AutotuneOptions,
    OptimizationOptions = pipeline_options.OptimizationOptions,
  },
}

return M
