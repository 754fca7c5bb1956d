--- RNN, SimpleRNN, LSTM, GRU.
---
--- A layer over the steps of {batch, steps, features}. LSTM and GRU run as one
--- op where that computes the same (usual activations, no mask, no dropout of
--- states, reset_after); everything else goes step by step.
--- Source: tf.keras.layers, recurrent layers
local base = require "tfdist.keras.layers.base"
local cell_states = require "tfdist.keras.layers.cell_states"
local cells = require "tfdist.keras.layers.cells"
local call = require "tfdist.keras.layers.call"
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local arguments = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

for name, class in pairs(cells) do
  if name:find "^%u%l" or name == "LSTMCell" or name == "GRUCell" then
    M[name] = class
  end
end

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local SEQUENCE = "return_sequences=false return_state=false "
  .. "go_backwards=false stateful=false unroll=false time_major=false "
  .. "zero_output_for_mask=false"

local function sizes_of(self)
  return cell_states.sizes(self.name, self.cell)
end

local function first_of_cell(self, batch, dtype)
  return cell_states.first(self.name, self.cell, batch, dtype)
end

local function build(self, shape)
  local own, config = self._own, self._own.config
  local batch = shape[config.time_major and 2 or 1]
  call.build_inner(self.cell, lists.append({ batch }, shape, 3))
  self.input_spec = { ndim = #shape, axes = { [-1] = shape[#shape] } }
  if config.stateful then
    if batch < 0 then
      errors.raise("ValueError", ("%s: a stateful layer needs the batch size")
        :format(self.name), "give batch_input_shape = { batch, steps, "
        .. "features }")
    end
    local states = {}
    for i, first in ipairs(first_of_cell(self, batch, own.dtype)) do
      states[i] = tf.Variable(first, {
        name = self.name .. "/state_" .. (i - 1), trainable = false,
        synchronization = "ON_READ", aggregation = "ONLY_FIRST_REPLICA",
      })
    end
    -- No weights: checkpoints find them, set_weights and optimizers do not.
    rawset(self, "states", states)
    own.kept_batch = batch
  end
end

-- Kept states are those of so many examples: fewer, or one for all, would
-- broadcast.
local function check_kept(self, batch)
  local kept = self._own.kept_batch
  if batch ~= kept then
    errors.raise("ValueError", ("%s: the states of this stateful layer are "
      .. "those of a batch of %d, for which it was built; got a batch of %d")
      :format(self.name, kept, batch), "leave a short last batch out: "
      .. "dataset:batch(n, { drop_remainder = true }); on several replicas a "
      .. "batch is one replica's share")
  end
end

-- List of first states, or nil for zeros.
local function first_states(self, batch, options)
  if self.states ~= nil then
    check_kept(self, batch)
  end
  local given = options.initial_state
  if given == nil then
    if self.states == nil then
      return nil
    end
    given = {}
    for i, v in ipairs(self.states) do
      given[i] = v:read_value()
    end
    return given
  end
  given = text.is_plain(given) and given or { given }
  local n = #sizes_of(self)
  if #given ~= n then
    errors.raise("ValueError", ("%s: initial_state has %d tensors; the cell "
      .. "has %d states"):format(self.name, #given, n))
  end
  local dtype, out = self._own.dtype, {}
  for i = 1, n do
    out[i] = convert.operand(call.to_inputs(self, given[i], dtype, true), nil,
      self.name, "initial_state")
  end
  return out
end

local function step_masks(mask, config)
  if type(mask) ~= "userdata" then
    return nil
  end
  if not config.time_major then
    mask = tf.transpose(mask)
  end
  if config.go_backwards then
    mask = tf.reverse(mask, { 0 })
  end
  return tf.unstack(tf.cast(mask, "bool"))
end

-- `new` where the mask {batch} is true, else `old`.
local function kept(mask, new, old)
  local dims = { -1 }
  for axis = 2, #new.shape do
    dims[axis] = 1
  end
  return tf.where(tf.reshape(mask, dims), new, old)
end

-- Steps one by one; xs is time-major. Returns the last output, all outputs
-- (time-major; nil unless wanted) and the states.
local function loop(self, xs, states, mask, options)
  local config, cell = self._own.config, self.cell
  local steps = tf.unstack(xs)
  local masks = step_masks(mask, config)
  states = states or first_of_cell(self, xs.shape[2], xs.dtype)
  local own = { training = options.training }
  if options.training and #steps > 0 then
    own.keep = cells.dropout(cell, steps[1], states[1])
  end
  local outputs, y = {}, nil
  for t = 1, #steps do
    own.states = lists.copy(states) -- which the cell may write to
    local out, new = call.pass(cell, steps[t], own)
    if out == nil then
      errors.raise("TypeError", ("%s: call of cell %s must return its output "
        .. "and its new states, got nothing"):format(self.name, cell.name))
    end
    new = cell_states.following(self.name, cell, new, #states)
    local m = masks and masks[t]
    if m ~= nil then
      local last = not config.zero_output_for_mask and y
      out = kept(m, out, last or tf.zeros_like(out))
      for i = 1, #new do
        new[i] = kept(m, new[i], states[i])
      end
    end
    y, outputs[t], states = out, out, new
  end
  if #steps == 0 then
    local dims = { xs.shape[2], cell_states.output_size(self.name, cell) }
    return tf.zeros(dims, xs.dtype), tf.zeros({ 0, dims[1], dims[2] },
      xs.dtype), states
  end
  return y, config.return_sequences and tf.stack(outputs) or nil, states
end

local function time_major(self, x)
  local config = self._own.config
  if not config.time_major then
    local perm = { 1, 0 }
    for axis = 2, #x.shape - 1 do
      perm[axis + 1] = axis
    end
    x = tf.transpose(x, perm)
  end
  if config.go_backwards then
    x = tf.reverse(x, { 0 })
  end
  return x
end

local function batch_major(self, x)
  if self._own.config.time_major then
    return x
  end
  local perm = { 1, 0 }
  for axis = 2, #x.shape - 1 do
    perm[axis + 1] = axis
  end
  return tf.transpose(x, perm)
end

local function forward(self, x, options)
  local config = self._own.config
  local xs = time_major(self, x)
  local states = first_states(self, xs.shape[2], options)
  local last, all, new
  local mask = options.mask
  if self.fused ~= nil and type(mask) ~= "userdata"
    and self._own.can_fuse and xs.shape[1] > 0 then
    last, all, new = self:fused(xs, states, options)
  else
    last, all, new = loop(self, xs, states, mask, options)
  end
  if self.states ~= nil then
    for i, v in ipairs(self.states) do
      v:assign(new[i])
    end
  end
  local y = config.return_sequences and batch_major(self, all) or last
  if config.return_state then
    return y, unpack(new)
  end
  return y
end

local function output_shape(self, shape)
  local config = self._own.config
  local batch = shape[config.time_major and 2 or 1]
  local size = cell_states.output_size(self.name, self.cell)
  local out = { batch, size }
  if config.return_sequences then
    out = { shape[1], shape[2], size }
  end
  if not config.return_state then
    return out
  end
  local states = {}
  for i, n in ipairs(sizes_of(self)) do
    states[i] = { batch, n }
  end
  return out, unpack(states)
end

local function keep_mask(self, _, mask)
  return self._own.config.return_sequences and type(mask) == "userdata"
    and mask or nil
end

--- Zeros (or given values) as the states of a stateful layer.
--- Source: tf.keras.layers.RNN.reset_states
local function reset_states(self, states)
  if not self._own.config.stateful then
    errors.raise("ValueError", self.name .. ": reset_states: the layer is not "
      .. "stateful", "stateful = true")
  end
  for i, v in ipairs(self.states or {}) do
    v:assign(states and states[i] or tf.zeros(v.shape, v.dtype))
  end
end

--- The states before the first step, zeros unless the cell gives others: a list
--- with one for each state of the cell. `inputs` is a batch, or the number of its
--- examples.
--- Source: tf.keras.layers.RNN.get_initial_state
local function get_initial_state(self, inputs)
  local batch = inputs
  if type(inputs) == "userdata" then
    batch = inputs.shape[self._own.config.time_major and 2 or 1]
  end
  arguments.integer(self.name .. ":get_initial_state", "inputs", batch, 0)
  return first_of_cell(self, batch, self._own.dtype)
end

local function recurrent(name, signature, fields)
  fields.call_options = { "initial_state" }
  fields.supports_masking = true
  fields.build, fields.call = build, forward
  fields.compute_output_shape = output_shape
  fields.compute_mask = keep_mask
  fields.reset_states, fields.reset_state = reset_states, reset_states
  fields.get_initial_state = get_initial_state
  arguments.methods(fields, name .. ":", {
    reset_states = "states:list=nil", reset_state = "states:list=nil",
    get_initial_state = "inputs" }, base.is_layer, "layer")
  M[name] = define.layer(name, signature .. SEQUENCE, fields)
end

--- A layer of a cell (or a list of cells, stacked).
--- Shapes: {batch, steps, features} to {batch, size}, with return_sequences
---   {batch, steps, size}; the states come after it with return_state.
--- Source: tf.keras.layers.RNN
recurrent("RNN", "cell:o ", {
  setup = function(self, config)
    local cell = config.cell
    if text.is_plain(cell) and cell[1] ~= nil then
      cell = M.StackedRNNCells(cell)
    end
    config.cell = cell_states.cell("RNN", cell)
    self.cell = config.cell
    self.input_spec = { min_ndim = 3 }
  end,
})

-- The cell of a named layer, with the layer's arguments.
local function own_cell(self, config, class)
  local args, sig = {}, cells[class].signature
  for i = 1, sig.n do
    local key = sig.names[i]
    if key ~= "units" then
      args[key] = config[key]
    end
  end
  args.name = self.name .. "/" .. (class:gsub("Cell$", "_cell"):lower())
  args.dtype = self._own.policy
  self.input_spec = { ndim = 3 }
  self.cell = cells[class](config.units, args)
end

--- Source: tf.keras.layers.SimpleRNN
recurrent("SimpleRNN", cells.SIMPLE, {
  setup = function(self, config)
    own_cell(self, config, "SimpleRNNCell")
  end,
})

-- Inputs with the dropout of the sequence.
local function dropped(self, xs, options)
  local rate = self._own.config.dropout
  if not options.training or rate == 0 then
    return xs
  end
  local dims = xs.shape
  return xs * tf.nn.dropout(tf.ones({ 1, dims[2], dims[3] }, xs.dtype), rate)
end

local function usual(config)
  return config.activation == "tanh"
    and config.recurrent_activation == "sigmoid"
    and config.recurrent_dropout == 0 and not config.unroll
end

--- Source: tf.keras.layers.LSTM
recurrent("LSTM", cells.LSTM, {
  setup = function(self, config)
    own_cell(self, config, "LSTMCell")
    self._own.can_fuse = usual(config)
  end,
  fused = function(self, xs, states, options)
    local cell = self.cell
    states = states or {}
    local all, h, c = tf.nn.lstm(dropped(self, xs, options), cell.kernel,
      cell.recurrent_kernel, cell.bias, states[1], states[2])
    return h, all, { h, c }
  end,
})

--- Source: tf.keras.layers.GRU
recurrent("GRU", cells.GRU, {
  setup = function(self, config)
    own_cell(self, config, "GRUCell")
    self._own.can_fuse = usual(config) and config.reset_after
  end,
  fused = function(self, xs, states, options)
    local cell = self.cell
    local all, h = tf.nn.gru(dropped(self, xs, options), cell.kernel,
      cell.recurrent_kernel, cell.bias, states and states[1])
    return h, all, { h }
  end,
})

return M
