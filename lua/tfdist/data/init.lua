--- tf.data: input pipelines.
require "tfdist.data.basic"
require "tfdist.data.batch"
require "tfdist.data.cache"
require "tfdist.data.combine"
local dataset = require "tfdist.data.dataset"
local loading = require "tfdist.base.loading"
local pairs = require "tfdist.base.pairs"
local pipeline_options = require "tfdist.data.pipeline_options"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
require "tfdist.data.transform"

-- The methods of tensors come with the first function of tf.
assert(tf.identity)

local experimental = {}
for name, value in pairs(require "tfdist.data.experimental") do
  experimental[name] = value
end

local M = {
  Dataset = text.watch("tf.data.Dataset", dataset.statics),
  INFINITE_CARDINALITY = dataset.INFINITE,
  UNKNOWN_CARDINALITY = dataset.UNKNOWN,
  AUTOTUNE = -1,
  Options = pipeline_options.Options,
  ThreadingOptions = pipeline_options.ThreadingOptions,
  experimental = experimental,
}

-- Readers of records are loaded when a name is first used that is not here.
local readers_loaded = false

local function load_readers()
  if readers_loaded then
    return
  end
  local readers = loading.load "tfdist.data.readers"
  for name, value in pairs(readers) do
    if name ~= "experimental" then
      rawset(M, name, value)
    end
  end
  for name, value in pairs(readers.experimental) do
    rawset(experimental, name, value)
  end
  readers_loaded = true
end

local function lazy(names, prefix)
  local check = text.name_slips(prefix, function()
    return text.names(names)
  end)
  return function(_, name)
    if type(name) ~= "string" then
      return nil
    end
    load_readers()
    local found = rawget(names, name)
    if found ~= nil then
      return found
    end
    return check(name)
  end
end

setmetatable(M, { __index = lazy(M, "tf.data") })
setmetatable(experimental, {
  __index = lazy(experimental, "tf.data.experimental"),
})

return M
