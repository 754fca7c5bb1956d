--- tf.data.experimental: functions that make transformations for
--- dataset:apply, older names, and what has no method.
local basic = require "tfdist.data.basic"
local dataset = require "tfdist.data.dataset"
local errors = require "tfdist.base.errors"
local optional = require "tfdist.data.optional"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local pipeline_options = require "tfdist.data.pipeline_options"
local surface = require "tfdist.data.surface"
local text = require "tfdist.base.text"

local M = {
  SHARD_HINT = basic.SHARD_HINT, AUTOTUNE = -1,
  INFINITE_CARDINALITY = dataset.INFINITE,
  UNKNOWN_CARDINALITY = dataset.UNKNOWN,
  AutoShardPolicy = pipeline_options.AutoShardPolicy,
  AutotuneOptions = pipeline_options.AutotuneOptions,
  DistributeOptions = pipeline_options.DistributeOptions,
  OptimizationOptions = pipeline_options.OptimizationOptions,
  Optional = { from_value = optional.from_value, empty = optional.empty },
  ThreadingOptions = pipeline_options.ThreadingOptions,
  choose_from_datasets = dataset.statics.choose_from_datasets,
  sample_from_datasets = dataset.statics.sample_from_datasets,
}

-- Methods that also exist as makers of transformations: name = method.
local TRANSFORMATIONS = {
  bucket_by_sequence_length = "bucket_by_sequence_length",
  enumerate_dataset = "enumerate", group_by_window = "group_by_window",
  prefetch_to_device = "prefetch", scan = "scan", take_while = "take_while",
  unbatch = "unbatch",
}

for name, method in pairs(TRANSFORMATIONS) do
  --- name(...) gives a function for dataset:apply that calls
  --- dataset:method(...). Source: tf.data.experimental
  M[name] = function(...)
    local n, args = select("#", ...), { ... }
    if name == "prefetch_to_device" then
      -- The device is that of the replica the data goes to.
      n, args = math.max(n - 1, 0), { select(2, ...) }
    end
    return function(ds)
      dataset.node_of(name, "dataset", ds)
      return ds[method](ds, (rawget(table, "unpack")
        or rawget(_G, "unpack"))(args, 1, n))
    end
  end
end

--- The number of elements. Source: tf.data.experimental.cardinality
M.cardinality = options.wrap("cardinality", "dataset:table", function(ds)
  return dataset.cardinality_of(dataset.node_of("cardinality", "dataset", ds))
end)

--- The only element. Source: tf.data.experimental.get_single_element
M.get_single_element = options.wrap("get_single_element", "dataset:table",
  function(ds)
    dataset.node_of("get_single_element", "dataset", ds)
    return ds:get_single_element()
  end)

-- assert_cardinality ---------------------------------------------------------

local Assert = dataset.stage {}

function Assert.describe(node)
  return text.number(node.expected)
end

function Assert.cardinality(node)
  return node.expected
end

local function wrong_number(node, words)
  errors.raise("FailedPrecondition", ("assert_cardinality: %s elements were "
    .. "expected, the data set has %s"):format(text.number(node.expected),
    words))
end

function Assert.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  local count = 0
  return {
    next = function()
      local pack = input:next()
      if pack == nil then
        if count ~= node.expected then
          dataset.call(node, wrong_number, node, text.number(count))
        end
        return nil
      end
      count = count + 1
      if node.expected >= 0 and count > node.expected then
        dataset.call(node, wrong_number, node, "more")
      end
      return pack
    end,
  }
end

--- Tell how many elements there are where it cannot be known; a wrong number is
--- FailedPrecondition when it is noticed.
--- Source: tf.data.experimental.assert_cardinality
M.assert_cardinality = options.wrap("assert_cardinality",
  "expected_cardinality", function(expected)
    options.integer("assert_cardinality", "expected_cardinality", expected, -1)
    return function(ds)
      return dataset.new(Assert, "assert_cardinality", {
        dataset.node_of("assert_cardinality", "dataset", ds),
      }, { expected = expected })
    end
  end)

-- ignore_errors --------------------------------------------------------------

local Ignore = dataset.stage {}

function Ignore.cardinality(node)
  local n = dataset.cardinality_of(node.inputs[1])
  return n == 0 and 0 or dataset.UNKNOWN
end

local MOST_IN_A_ROW = 10000

function Ignore.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  return {
    next = function()
      local e
      for _ = 1, MOST_IN_A_ROW do
        local ok, pack = surface.answer(input.next, input)
        if ok then
          return pack
        elseif errors.kind(pack) == "Cancelled" then
          error(pack, 0)
        end
        e = pack
        if node.log_warning then
          io.stderr:write(("tfdist: ignored: %s\n"):format(tostring(e)))
        end
      end
      error(e, 0)
    end,
  }
end

--- Leave out elements that raise errors (but not 10,000 in a row).
--- Source: tf.data.experimental.ignore_errors
M.ignore_errors = options.wrap("ignore_errors", "log_warning=false",
  function(log_warning)
    return function(ds)
      return dataset.new(Ignore, "ignore_errors", {
        dataset.node_of("ignore_errors", "dataset", ds),
      }, { log_warning = log_warning })
    end
  end)

--- The same as a method. Source: tf.data.Dataset.ignore_errors
dataset.method("ignore_errors", "log_warning=false name=nil",
  function(self, log_warning)
    return self:apply(M.ignore_errors(log_warning))
  end)

-- What TensorFlow has and this library has not says so.
for _, name in ipairs {
  "fingerprint", "load", "ragged_batch", "rejection_resample", "save",
  "snapshot", "sparse_batch",
} do
  dataset.not_there(name)
end

return M
