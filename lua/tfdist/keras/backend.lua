--- tf.keras.backend: what all layers share. The default dtype, the fuzz factor
--- and the numbering of names.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local names = require "tfdist.base.names"
local options = require "tfdist.base.options"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"

local M = {}

local floatx, epsilon = "float32", 1e-7

--- The dtype of layers that are given none.
--- Source: tf.keras.backend.floatx
function M.floatx()
  return floatx
end

--- Errors: ValueError unless it is a floating-point dtype.
--- Source: tf.keras.backend.set_floatx
---@param dtype string
function M.set_floatx(dtype)
  dtype = convert.dtype(dtype, "backend.set_floatx")
  if not convert.FLOATING[dtype] then
    errors.raise("ValueError", ("backend.set_floatx: %s is no floating-point "
      .. "dtype"):format(text.describe(dtype)))
  end
  floatx = dtype
  state.note_setting("floatx", dtype ~= "float32" and dtype or nil)
end

--- The small number that keeps divisions finite, 1e-7.
--- Source: tf.keras.backend.epsilon
function M.epsilon()
  return epsilon
end

--- Source: tf.keras.backend.set_epsilon
---@param value number
function M.set_epsilon(value)
  epsilon = value
  state.note_setting("epsilon", value ~= 1e-7 and ("%.17g"):format(value) or nil)
end

--- 1, 2, ... for each prefix. Source: tf.keras.backend.get_uid
---@param prefix? string
---@return integer
function M.get_uid(prefix)
  return names.next_number(prefix)
end

--- Start the numbering of names again. Source: tf.keras.backend.clear_session
function M.clear_session()
  names.clear()
end

--- "MaxPooling2D" as "max_pooling2d", as Keras writes it.
---@param class string
---@return string
function M.snake_case(class)
  return (class:gsub("(.)(%u[%l%d]+)", "%1_%2"):gsub("(%l)(%u)", "%1_%2")
    :lower())
end

--- "dense" for the first, then "dense_1", ...
---@param base string
---@return string
function M.unique_name(base)
  return names.unique(base)
end

options.functions(M, "backend.", {
  floatx = "", set_floatx = "dtype",
  epsilon = "", set_epsilon = "value:number", get_uid = "prefix:string=''",
  clear_session = "", snake_case = "class:string", unique_name = "base:string",
})

return M
