--- One step of a recurrent layer: SimpleRNNCell, LSTMCell, GRUCell,
--- StackedRNNCells.
---
--- `cell(x, states)` returns the output and a list of new states; inside,
--- `call(self, x, options)` finds them in options.states, and options.keep
--- holds the dropout factors of the sequence; a parameter named `states` of a
--- cell of one's own is that list. `state_size` is the size of the state or a
--- list of sizes; `get_initial_state(self, batch_size)`, where a cell has it,
--- gives the first states.
--- Source: tf.keras.layers, recurrent cells
local call = require "tfdist.keras.layers.call"
local cell_states = require "tfdist.keras.layers.cell_states"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local initializers = require "tfdist.keras.initializers"
local lists = require "tfdist.base.lists"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local WEIGHTS = "use_bias=true kernel_initializer='glorot_uniform' "
  .. "recurrent_initializer='orthogonal' bias_initializer='zeros' "
local RULES = "kernel_regularizer=nil recurrent_regularizer=nil "
  .. "bias_regularizer=nil kernel_constraint=nil recurrent_constraint=nil "
  .. "bias_constraint=nil dropout=0 recurrent_dropout=0 "

--- Arguments of each kind, units first.
M.SIMPLE = "units:i activation='tanh' " .. WEIGHTS .. RULES
M.LSTM = "units:i activation='tanh' recurrent_activation='sigmoid' " .. WEIGHTS
  .. "unit_forget_bias=true " .. RULES .. "implementation=2 "
M.GRU = "units:i activation='tanh' recurrent_activation='sigmoid' " .. WEIGHTS
  .. RULES .. "implementation=2 reset_after=true "

local function setup(self, config)
  local own = self._own
  support.size(self, "units", config.units)
  support.rate(self, "dropout", config.dropout)
  support.rate(self, "recurrent_dropout", config.recurrent_dropout)
  own.activation = support.activation(config.activation)
  own.gate = support.gate(config.recurrent_activation)
  self.state_size = config.units
  self.output_size = config.units
end

local function build(gates, bias)
  return function(self, shape)
    local config = self._own.config
    local size = shape[#shape]
    support.add(self, "kernel", { size, gates * config.units })
    support.add(self, "recurrent_kernel", { config.units,
      gates * config.units }, "recurrent")
    if config.use_bias then
      bias(self, config)
    end
    self.input_spec = { ndim = 2, axes = { [-1] = size } }
  end
end

local function plain_bias(gates)
  return function(self, config)
    support.add(self, "bias", { gates * config.units })
  end
end

local function act(f, x)
  return f and f(x) or x
end

-- x kernel + bias with the sequence's dropout.
local function inputs_part(self, x, keep, bias)
  if keep and keep.inputs then
    x = x * keep.inputs
  end
  local y = tf.matmul(x, self.kernel)
  return bias and y + bias or y
end

local function recurrent_part(self, h, keep)
  if keep and keep.recurrent then
    h = h * keep.recurrent
  end
  return tf.matmul(h, self.recurrent_kernel)
end

--- Factors of dropout for one sequence, or nil.
---@param cell table
---@param x tfdist.Tensor  one step
---@param h tfdist.Tensor  the first state
function M.dropout(cell, x, h)
  local keep
  local rate, recurrent = cell.dropout, cell.recurrent_dropout
  -- Cells of one's own may keep a layer there.
  rate = type(rate) == "number" and rate or 0
  recurrent = type(recurrent) == "number" and recurrent or 0
  if rate > 0 then
    keep = { inputs = tf.nn.dropout(tf.ones_like(x), rate) }
  end
  if recurrent > 0 then
    keep = keep or {}
    keep.recurrent = tf.nn.dropout(tf.ones_like(h), recurrent)
  end
  return keep
end

-- The states that a call gives, zeros of these sizes where it gives none.
local function states_of(self, x, given, sizes)
  local states = given
  if states == nil then
    states = {}
    for i = 1, #sizes do
      states[i] = tf.zeros({ x.shape[1], sizes[i] }, x.dtype)
    end
  elseif type(states) ~= "table" then
    states = { states }
  end
  if #states ~= #sizes then
    errors.raise("ValueError", ("%s: expects %d states, got %d"):format(
      self.name, #sizes, #states))
  end
  return states
end

-- A cell that is called by itself starts from zeros and drops for itself.
local function prepare(self, x, options, count)
  local states = options.states
  if type(states) ~= "table" or #states ~= count then
    local units = self._own.config.units
    states = states_of(self, x, states, { units, count > 1 and units or nil })
  end
  if options.keep == nil and options.training then
    options.keep = M.dropout(self, x, states[1])
  end
  return states, options.keep
end

local function shape_of_step(self, shape)
  return { shape[1], self._own.config.units }
end

local function cell(name, signature, fields)
  fields.setup = fields.setup or setup
  fields.call_arguments = { "states" }
  fields.call_options = { "keep" }
  fields.compute_output_shape = shape_of_step
  M[name] = define.layer(name, signature, fields)
end

--- h = activation(x kernel + h recurrent_kernel + bias)
--- Source: tf.keras.layers.SimpleRNNCell
cell("SimpleRNNCell", M.SIMPLE, {
  build = build(1, plain_bias(1)),
  call = function(self, x, options)
    local states, keep = prepare(self, x, options, 1)
    local h = act(self._own.activation, inputs_part(self, x, keep, self.bias)
      + recurrent_part(self, states[1], keep))
    return h, { h }
  end,
})

--- Gates i, f, c, o. States { h, c }.
--- Source: tf.keras.layers.LSTMCell
cell("LSTMCell", M.LSTM, {
  setup = function(self, config)
    setup(self, config)
    self.state_size = { config.units, config.units }
  end,
  build = build(4, function(self, config)
    local units = config.units
    local initializer = config.bias_initializer
    if config.unit_forget_bias then
      local other = initializers.get(initializer)
      initializer = function(_, dtype)
        return tf.concat({ other({ units }, dtype), tf.ones({ units }, dtype),
          other({ 2 * units }, dtype) }, 0)
      end
    end
    self.bias = self:add_weight {
      name = "bias", shape = { 4 * units }, initializer = initializer,
      regularizer = config.bias_regularizer,
      constraint = config.bias_constraint,
    }
  end),
  call = function(self, x, options)
    local states, keep = prepare(self, x, options, 2)
    local own = self._own
    local z = inputs_part(self, x, keep, self.bias)
      + recurrent_part(self, states[1], keep)
    local parts = tf.split(z, 4, 1)
    local c = act(own.gate, parts[2]) * states[2]
      + act(own.gate, parts[1]) * act(own.activation, parts[3])
    local h = act(own.gate, parts[4]) * act(own.activation, c)
    return h, { h, c }
  end,
})

--- Gates z, r, h; with reset_after the reset gate acts on the product and the
--- bias is {2, 3 units}.
--- Source: tf.keras.layers.GRUCell
cell("GRUCell", M.GRU, {
  build = build(3, function(self, config)
    support.add(self, "bias", config.reset_after and { 2, 3 * config.units }
      or { 3 * config.units })
  end),
  call = function(self, x, options)
    local states, keep = prepare(self, x, options, 1)
    local own, h = self._own, states[1]
    local units, after = own.config.units, own.config.reset_after
    local bias, recurrent_bias = self.bias, nil
    if bias ~= nil and after then
      bias, recurrent_bias = self.bias[0], self.bias[1]
    end
    local from_x = tf.split(inputs_part(self, x, keep, bias), 3, 1)
    if keep and keep.recurrent then
      h = h * keep.recurrent
    end
    local candidate, z
    if after then
      local inner = tf.matmul(h, self.recurrent_kernel)
      inner = recurrent_bias and inner + recurrent_bias or inner
      local from_h = tf.split(inner, 3, 1)
      z = act(own.gate, from_x[1] + from_h[1])
      local r = act(own.gate, from_x[2] + from_h[2])
      candidate = from_x[3] + r * from_h[3]
    else
      local kernels = tf.split(self.recurrent_kernel, { 2 * units, units }, 1)
      local from_h = tf.split(tf.matmul(h, kernels[1]), 2, 1)
      z = act(own.gate, from_x[1] + from_h[1])
      local r = act(own.gate, from_x[2] + from_h[2])
      candidate = from_x[3] + tf.matmul(r * h, kernels[2])
    end
    h = z * states[1] + (1 - z) * act(own.activation, candidate)
    return h, { h }
  end,
})

local STACK = "StackedRNNCells"

local function stack_setup(self, config)
  local list, sizes = {}, {}
  if not text.is_plain(config.cells) or #config.cells == 0 then
    errors.raise("TypeError", STACK .. ": expects a list of cells, got "
      .. text.describe(config.cells))
  end
  for i = 1, #config.cells do
    list[i] = cell_states.cell(STACK, config.cells[i])
    lists.append(sizes, cell_states.sizes(STACK, list[i]))
  end
  config.cells = list
  self.list = list
  self.state_size = sizes
  self.output_size = cell_states.output_size(STACK, list[#list])
end

local function stack_build(self, shape)
  local size = shape[#shape]
  for _, inner in ipairs(self.list) do
    call.build_inner(inner, { shape[1], size })
    size = cell_states.output_size(self.name, inner)
  end
end

local function stack_first(self, batch)
  local out = {}
  for _, inner in ipairs(self.list) do
    lists.append(out, cell_states.first(self.name, inner, batch,
      self._own.dtype))
  end
  return out
end

local function stack_call(self, x, options)
  local out, at = {}, 0
  local given = states_of(self, x, options.states, self.state_size)
  -- Factors of dropout hold for a sequence, those of each cell too.
  local keep = options.keep or {}
  options.keep = keep
  for i, inner in ipairs(self.list) do
    local count = #cell_states.sizes(self.name, inner)
    local own = lists.copy(given, at + 1, at + count)
    if options.training and keep[i] == nil then
      -- A stack among them has none itself: it keeps those of its cells there.
      keep[i] = M.dropout(inner, x, own[1]) or {}
    end
    local states
    x, states = call.pass(inner, x, { states = own,
      training = options.training, keep = keep[i] })
    lists.append(out, cell_states.following(self.name, inner, states, count))
    at = at + count
  end
  return x, out
end

--- Cells on top of each other as one cell.
--- Source: tf.keras.layers.StackedRNNCells
M.StackedRNNCells = define.layer("StackedRNNCells", "cells:o", {
  call_arguments = { "states" },
  call_options = { "keep" },
  setup = stack_setup, build = stack_build, call = stack_call,
  get_initial_state = stack_first,
  compute_output_shape = function(self, shape)
    return { shape[1], self.output_size }
  end,
})

return M
