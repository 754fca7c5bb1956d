--- Layers around another layer: TimeDistributed, Bidirectional.
--- Source: tf.keras.layers, wrappers
local base = require "tfdist.keras.layers.base"
local call = require "tfdist.keras.layers.call"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local select = select
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function rest_of(shape, first)
  return lists.append({ first }, shape, 3)
end

--- The layer at every step on its own.
--- Shapes: {batch, steps, ...} to {batch, steps, ...}.
--- Source: tf.keras.layers.TimeDistributed
M.TimeDistributed = define.layer("TimeDistributed", "layer:o", {
  supports_masking = true,
  setup = function(self, config)
    config.layer = define.inner("TimeDistributed", "layer", config.layer)
    self.layer = config.layer
    self.input_spec = { min_ndim = 3 }
  end,
  build = function(self, shape)
    call.build_inner(self.layer, rest_of(shape, -1))
  end,
  call = function(self, x, opts)
    local dims = x.shape
    local rows, mask = dims[1] * dims[2], opts.mask
    -- The layer gets the part of the mask that is its own.
    local own = mask ~= nil and #mask.shape == #dims - 1
      and { mask = tf.reshape(mask, rest_of(mask.shape, rows)) } or nil
    local y = self.layer(tf.reshape(x, rest_of(dims, rows)), own)
    return tf.reshape(y, lists.append({ dims[1], dims[2] }, y.shape, 2))
  end,
  compute_output_shape = function(self, shape)
    local inner = self.layer:compute_output_shape(rest_of(shape, shape[1]))
    return lists.append({ shape[1], shape[2] }, inner, 2)
  end,
})

-- Bidirectional ---------------------------------------------------------------

local MODES = { "sum", "mul", "ave", "concat" }

local function recreate(layer, prefix, backwards)
  local config = layer:get_config()
  config.name = prefix .. layer.name
  if backwards then
    config.go_backwards = not config.go_backwards
  end
  -- The two directions repeat different steps where a mask leaves some out.
  if config.zero_output_for_mask ~= nil then
    config.zero_output_for_mask = config.return_sequences
  end
  return getmetatable(layer).class:from_config(config)
end

local function check_recurrent(layer)
  if not base.is_layer(layer) or layer.go_backwards == nil then
    errors.raise("ValueError", "Bidirectional: expects a recurrent layer (RNN, "
      .. "SimpleRNN, LSTM, GRU), got " .. text.describe(layer))
  end
end

local MERGE = {}

function MERGE.sum(a, b) return a + b end
function MERGE.mul(a, b) return a * b end
function MERGE.ave(a, b) return (a + b) / 2 end
function MERGE.concat(a, b) return tf.concat({ a, b }, -1) end

local function pack(...)
  return { n = select("#", ...), ... }
end

-- Outputs of both directions as one list: y (or both), then the states.
local function join(mode, forward, backward, merge)
  local out = {}
  if mode == nil then
    out[1], out[2] = forward[1], backward[1]
  else
    out[1] = merge(forward[1], backward[1])
  end
  for _, list in ipairs { forward, backward } do
    lists.append(out, list, 2, list.n)
  end
  return out
end

local function reset_both(self)
  if not base.is_layer(self) or self.forward_layer == nil then
    options.wrong_self("Bidirectional.reset_states", "layer", self)
  end
  self.forward_layer:reset_states()
  self.backward_layer:reset_states()
end

--- A recurrent layer forwards and a copy of it backwards; outputs are merged
--- by merge_mode ("concat", "sum", "mul", "ave"; with "none" both come).
--- Source: tf.keras.layers.Bidirectional
M.Bidirectional = define.layer("Bidirectional", "layer:o merge_mode='concat' "
  .. "backward_layer=nil", {
  supports_masking = true,
  call_options = { "initial_state" },
  setup = function(self, config)
    local layer = define.inner("Bidirectional", "layer", config.layer)
    check_recurrent(layer)
    config.layer = layer
    self.forward_layer = recreate(layer, "forward_", false)
    if config.backward_layer ~= nil then
      config.backward_layer = define.inner("Bidirectional", "backward_layer",
        config.backward_layer)
      check_recurrent(config.backward_layer)
      if config.backward_layer.go_backwards == layer.go_backwards then
        errors.raise("ValueError", "Bidirectional: backward_layer must run the "
          .. "other way than layer", "go_backwards = true")
      end
      self.backward_layer = recreate(config.backward_layer, "", false)
    else
      self.backward_layer = recreate(layer, "backward_", true)
    end
    local mode = config.merge_mode
    if mode ~= "none" and mode ~= nil then
      self._own.mode = options.choice("Bidirectional", "merge_mode", mode,
        MODES)
    end
  end,
  build = function(self, shape)
    call.build_inner(self.forward_layer, shape)
    call.build_inner(self.backward_layer, shape)
  end,
  call = function(self, x, opts)
    local first, second
    if opts.initial_state ~= nil then
      local given, n = options.list(self.name, "initial_state",
        opts.initial_state, "tensors")
      if n % 2 ~= 0 then
        errors.raise("ValueError", ("%s: initial_state must have as many "
          .. "tensors for one direction as for the other, got %d"):format(
          self.name, n))
      end
      first = { unpack(given, 1, n / 2) }
      second = { unpack(given, n / 2 + 1, n) }
    end
    local forward = pack(self.forward_layer(x, { mask = opts.mask,
      initial_state = first }))
    local backward = pack(self.backward_layer(x, { mask = opts.mask,
      initial_state = second }))
    if self.backward_layer.return_sequences then
      local axis = self.backward_layer.time_major and 0 or 1
      backward[1] = tf.reverse(backward[1], { axis })
    end
    local mode = self._own.mode
    return unpack(join(mode, forward, backward, MERGE[mode]))
  end,
  reset_states = reset_both,
  reset_state = reset_both,
  compute_mask = function(self, _, mask)
    if not self.forward_layer.return_sequences or type(mask) ~= "userdata" then
      return nil
    end
    return self._own.mode == nil and { mask, mask } or mask
  end,
  compute_output_shape = function(self, shape)
    local forward = pack(self.forward_layer:compute_output_shape(shape))
    local backward = pack(self.backward_layer:compute_output_shape(shape))
    local mode = self._own.mode
    return unpack(join(mode, forward, backward, function(a, b)
      local out = lists.copy(a)
      if mode == "concat" then
        out[#out] = a[#a] + b[#b]
      end
      return out
    end))
  end,
})

return M
