--- tf.data: input pipelines.
local basic = require "tfdist.data.basic"
require "tfdist.data.batch"
local dataset = require "tfdist.data.dataset"
local tf = require "tfdist"
require "tfdist.data.transform"

-- The methods of tensors come with the first function of tf.
assert(tf.identity)

local M = {
  Dataset = dataset.statics,
  INFINITE_CARDINALITY = dataset.INFINITE,
  UNKNOWN_CARDINALITY = dataset.UNKNOWN,
  AUTOTUNE = -1,
  experimental = { SHARD_HINT = basic.SHARD_HINT, AUTOTUNE = -1 },
}

return M
