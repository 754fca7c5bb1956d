--- The states of recurrent cells: how many and of what size, the first ones and
--- those that a step returns.
---
--- Cells may be of the user's own: what they say and return is checked here, and
--- lists that they were given or return stay theirs.
--- Source: tf.keras.layers, recurrent cells
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local base = require "tfdist.keras.layers.base"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local SIZES = "self.state_size = units in its init, or a list of sizes"

--- A cell: a layer with a state_size, or the configuration of one.
--- Errors: TypeError.
---@param what string  who wants it
---@param given any
---@return table cell
function M.cell(what, given)
  if not base.is_layer(given)
    and not (text.is_plain(given) and given.class_name ~= nil) then
    errors.raise("TypeError", ("%s: a cell must be a layer that has call and "
      .. "state_size, got %s"):format(what, text.describe(given)),
      "LSTMCell(units), or Layer:extend for one of your own")
  end
  local cell = define.deserialize(given)
  M.sizes(what, cell)
  return cell
end

--- The sizes of a cell's states, one or more.
--- Errors: TypeError, ValueError.
---@param what string
---@param cell table
---@return integer[] sizes
function M.sizes(what, cell)
  local given = cell.state_size
  if given == nil then
    errors.raise("TypeError", ("%s: cell %s has no state_size"):format(what,
      cell.name), SIZES)
  elseif type(given) == "number" then
    given = { given }
  end
  if not text.is_plain(given) or given[1] == nil then
    errors.raise("ValueError", ("%s: state_size of cell %s must be a whole "
      .. "number, or a list of one or more, got %s"):format(what, cell.name,
      text.is_plain(given) and next(given) == nil and "an empty list"
      or text.describe(given)), SIZES)
  end
  local out = {}
  for i = 1, #given do
    out[i] = options.integer(what, "state_size of cell " .. cell.name,
      given[i], 0)
  end
  return out
end

--- The size of a cell's output: what it says, else that of its first state.
--- Errors: TypeError, ValueError.
function M.output_size(what, cell)
  local size = cell.output_size
  if size == nil then
    return M.sizes(what, cell)[1]
  end
  return options.integer(what, "output_size of cell " .. cell.name, size, 0)
end

-- What a cell's own get_initial_state gives.
local function own_first(what, cell, batch, dtype)
  local given = cell:get_initial_state(batch)
  local name = "what get_initial_state of cell " .. cell.name .. " returns"
  if not text.is_plain(given) then
    given = { given }
  end
  if given[1] == nil then
    errors.raise("TypeError", ("%s: %s must be a tensor or a list of tensors, "
      .. "got %s"):format(what, name, next(given) == nil and "nothing"
      or text.describe(given)))
  end
  local count = #M.sizes(what, cell)
  if #given ~= count then
    errors.raise("ValueError", ("%s: get_initial_state of cell %s returns %d "
      .. "states, its state_size says %d"):format(what, cell.name, #given,
      count))
  end
  local out = {}
  for i = 1, #given do
    out[i] = tf.cast(convert.operand(given[i], nil, what, name), dtype)
  end
  return out
end

--- The states before the first step: what the cell's get_initial_state gives,
--- else zeros of its sizes.
---@param what string
---@param cell table
---@param batch integer
---@param dtype string
---@return tfdist.Tensor[] states
function M.first(what, cell, batch, dtype)
  if type(cell.get_initial_state) == "function" then
    return own_first(what, cell, batch, dtype)
  end
  local out = {}
  for i, n in ipairs(M.sizes(what, cell)) do
    out[i] = tf.zeros({ batch, n }, dtype)
  end
  return out
end

--- What a cell's call returned as its new states, as a list that nobody else
--- writes to.
--- Errors: ValueError.
---@param what string
---@param cell table
---@param new any
---@param count integer  how many the call was given
---@return tfdist.Tensor[] states
function M.following(what, cell, new, count)
  if type(new) == "userdata" and count == 1 then
    return { new }
  elseif text.is_plain(new) and #new == count then
    return lists.copy(new)
  end
  local got = new == nil and "nothing" or text.is_plain(new)
    and "a list of " .. #new or text.describe(new)
  errors.raise("ValueError", ("%s: call of cell %s must return its output and a "
    .. "list of %d, its new states, got %s for them"):format(what, cell.name,
    count, got), "return output, { state, ... }")
end

return M
