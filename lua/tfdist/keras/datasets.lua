--- tf.keras.datasets: data sets that Debian packages install, read in place.

local files = require "tfdist.core.files"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local tf = require "tfdist.core.functions"

local M = {}

local FILES = {
  "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
}

--- `name` in `path`, plain or gzip; nil when there is neither.
local function locate(path, name)
  for _, candidate in ipairs { name .. ".gz", name } do
    local full = path .. "/" .. candidate
    if raw.file_stat(full) then return full end
  end
  return nil
end

local function load_idx_set(what, path, advice)
  files.path(what, "path", path)
  local parts = {}
  for i, name in ipairs(FILES) do
    local file = locate(path, name)
    if not file then
      return nil, ("%s/%s.gz is missing; %s"):format(path, name, advice),
        "NotFound"
    end
    -- The names of tensors are loaded with the first function of tf.
    parts[i] = tf.identity(raw.read_idx(file))
  end
  return parts[1], parts[2], parts[3], parts[4]
end

M.fashion_mnist = {}

--- The Fashion-MNIST images: ten kinds of clothing, 60,000 to train and 10,000
--- to test.
---
--- Shapes: x_train uint8 {60000, 28, 28}, y_train uint8 {60000},
---   x_test uint8 {10000, 28, 28}, y_test uint8 {10000}.
--- Units: pixels 0..255; labels 0..9.
--- Errors: returns nil, message, "NotFound" when a file is missing; raises
---   DataLoss naming file and offset for a damaged one.
--- Source: tf.keras.datasets.fashion_mnist.load_data
---@param path? string  folder with the four idx files, plain or gzip
---@return tfdist.Tensor x_train
---@return tfdist.Tensor y_train
---@return tfdist.Tensor x_test
---@return tfdist.Tensor y_test
M.fashion_mnist.load_data = options.wrap("fashion_mnist.load_data",
  "path='/usr/share/datasets/fashion-mnist'", function(path)
    return load_idx_set("fashion_mnist.load_data", path,
      "apt-get install dataset-fashion-mnist, or pass { path = ... }")
  end)

M.mnist = {}

--- The MNIST digits from a folder of the four idx files.
---
--- Shapes and errors: as fashion_mnist.load_data.
--- Source: tf.keras.datasets.mnist.load_data
---@param path? string
M.mnist.load_data = options.wrap("mnist.load_data",
  "path='/usr/share/datasets/mnist'", function(path)
    return load_idx_set("mnist.load_data", path,
      "no package brings these digits: put their idx files there, or pass "
      .. "{ path = ... }; apt-get install dataset-fashion-mnist brings images "
      .. "of the same form, for fashion_mnist.load_data()")
  end)

return M
