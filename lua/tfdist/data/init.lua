--- tf.data: input pipelines.
require "tfdist.data.basic"
require "tfdist.data.batch"
require "tfdist.data.cache"
require "tfdist.data.combine"
local dataset = require "tfdist.data.dataset"
local experimental = require "tfdist.data.experimental"
local pipeline_options = require "tfdist.data.pipeline_options"
local errors = require "tfdist.errors"
local text = require "tfdist.text"
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
  experimental = experimental,
}

setmetatable(experimental, {
  __index = function(_, name)
    errors.raise("NotImplementedError", ("tf.data.experimental.%s is not there "
      .. "yet"):format(tostring(name)))
  end,
})

local function load_readers()
  local ok, readers = pcall(require, "tfdist.data.readers")
  if ok then
    return readers
  elseif tostring(readers):find("module 'tfdist.data.readers' not found", 1,
    true) then
    return {}
  end
  error(readers, 0)
end

-- Readers of records are loaded when one of their names is first used.
setmetatable(M, {
  __index = function(_, name)
    if type(name) ~= "string" then
      return nil
    end
    local readers = load_readers()
    for key, fn in pairs(readers) do
      M[key] = fn
    end
    local found = rawget(M, name)
    if found == nil then
      errors.raise("NotImplementedError", ("tf.data.%s is not there yet")
        :format(name), text.suggestion(name, { "Dataset", "Options" }, "name"))
    end
    return found
  end,
})

return M
