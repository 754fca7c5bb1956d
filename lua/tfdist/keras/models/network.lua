--- The graph of a functional model: which calls lead from its inputs to its
--- outputs, in an order in which they can be made.
local configuration = require "tfdist.keras.layers.configuration"
local errors = require "tfdist.base.errors"
local keras_tensor = require "tfdist.keras.layers.keras_tensor"
local kinds = require "tfdist.base.kinds"
local lists = require "tfdist.base.lists"
local masks = require "tfdist.keras.masks"
local nest = require "tfdist.base.nest"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local symbolic = require "tfdist.keras.layers.symbolic"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local is_symbolic = keras_tensor.is_symbolic
local MAX_DEPTH = 10000

-- KerasTensors of a structure, in order.
local function tensors_of(x)
  local list, flat = {}, nest.flatten(x)
  for i = 1, flat.n do
    if is_symbolic(flat[i]) then
      list[#list + 1] = flat[i]
    end
  end
  return list
end

local function arguments_of(node)
  local list = tensors_of(node.inputs)
  if node.options ~= nil then
    for _, x in ipairs(tensors_of(node.options)) do
      list[#list + 1] = x
    end
  end
  return list
end

local function check_tensors(what, structure)
  local flat = nest.flatten(structure)
  for i = 1, flat.n do
    if not is_symbolic(flat[i]) then
      errors.raise("TypeError", ("Model: %s must be KerasTensors, got %s")
        :format(what, text.describe(flat[i])),
        "tf.keras.Input and layers called with it give them")
    end
  end
  if flat.n == 0 then
    errors.raise("ValueError", "Model: there are no " .. what)
  end
  return flat
end

-- Calls from inputs to outputs, each after those it needs; and the layers in
-- the order in which they are met on the way from the outputs.
local function sort_nodes(flat_in, flat_out)
  local nodes, met, state = {}, {}, {}
  local known = {}
  for i = 1, flat_in.n do
    known[flat_in[i]] = true
  end
  local function visit(x, depth)
    if known[x] then
      if x.node ~= nil and met[x.node.layer] == nil then
        met[#met + 1], met[x.node.layer] = x.node.layer, #met + 1
      end
      return
    end
    local node = x.node
    if node == nil or #arguments_of(node) == 0 then
      errors.raise("ValueError", ("Model: the outputs need %s, which is not "
        .. "among the inputs"):format(tostring(x)), "list every tf.keras.Input "
        .. "in inputs")
    elseif state[node] == "open" or depth > MAX_DEPTH then
      errors.raise("ValueError", "Model: the layers form a circle")
    elseif state[node] == "done" then
      return
    end
    state[node] = "open"
    if met[node.layer] == nil then
      met[#met + 1], met[node.layer] = node.layer, #met + 1
    end
    for _, y in ipairs(arguments_of(node)) do
      visit(y, depth + 1)
    end
    state[node] = "done"
    nodes[#nodes + 1] = node
  end
  for i = 1, flat_out.n do
    visit(flat_out[i], 1)
  end
  return nodes, met
end

-- Layers by how far they are from the outputs, farthest first.
local function sort_layers(nodes, met, flat_in)
  local depth, own = {}, {}
  for i = #nodes, 1, -1 do
    local node = nodes[i]
    local d = math.max(depth[node] or 0, own[node.layer] or 0)
    own[node.layer] = math.max(own[node.layer] or 0, d)
    for _, x in ipairs(arguments_of(node)) do
      if x.node ~= nil then
        depth[x.node] = math.max(depth[x.node] or 0, d + 1)
      end
    end
  end
  for i = 1, flat_in.n do
    local node = flat_in[i].node
    own[node.layer] = math.max(own[node.layer] or 0, depth[node] or 0)
    if met[node.layer] == nil then
      met[#met + 1], met[node.layer] = node.layer, #met + 1
    end
  end
  local layers = lists.copy(met)
  table.sort(layers, function(a, b)
    if own[a] ~= own[b] then
      return own[a] > own[b]
    end
    return met[a] < met[b]
  end)
  return layers
end

--- Refuse two layers of one name.
--- Errors: ValueError.
function M.check_names(layers, what)
  local seen = {}
  for _, layer in ipairs(layers) do
    if seen[layer.name] ~= nil and seen[layer.name] ~= layer then
      errors.raise("ValueError", ("%s: two layers are called %s"):format(what,
        text.quote(layer.name)), "names in a model must differ; give one with "
        .. "name = ")
    end
    seen[layer.name] = layer
  end
end

-- Inputs that are results of layers in the middle of another model get an
-- Input of their own.
local function check_inputs(flat)
  local seen = {}
  for i = 1, flat.n do
    local x = flat[i]
    if seen[x] then
      errors.raise("ValueError", ("Model: input %s is listed twice"):format(
        tostring(x)))
    end
    seen[x] = true
  end
end

local function names_of(flat)
  local names, counts = {}, {}
  for i = 1, flat.n do
    local name = flat[i].node.layer.name
    counts[name] = (counts[name] or 0) + 1
    names[i] = counts[name] == 1 and name or name .. "_" .. (counts[name] - 1)
  end
  return names
end

--- The graph between structures of KerasTensors.
--- Errors: ValueError when the outputs need something else, TypeError.
---@return table { inputs, outputs, nodes, layers, input_names, output_names }
function M.new(inputs, outputs)
  local flat_in = check_tensors("inputs", inputs)
  local flat_out = check_tensors("outputs", outputs)
  check_inputs(flat_in)
  local nodes, met = sort_nodes(flat_in, flat_out)
  local layers = sort_layers(nodes, met, flat_in)
  M.check_names(layers, "Model")
  return {
    inputs = inputs, outputs = outputs, flat_in = flat_in,
    flat_out = flat_out, nodes = nodes, layers = layers,
    input_names = names_of(flat_in), output_names = names_of(flat_out),
  }
end

-- Running --------------------------------------------------------------------

local function by_name(network, x, name)
  local list = { n = network.flat_in.n }
  for i = 1, list.n do
    list[i] = x[network.input_names[i]]
    if list[i] == nil then
      errors.raise("ValueError", ("%s: there is no input %s among those given")
        :format(name, text.quote(network.input_names[i])))
    end
  end
  return list
end

-- What was given for each input, in order.
local function conform(network, x, name)
  local wanted = network.flat_in.n
  if not nest.is_nested(x) then
    if wanted ~= 1 then
      errors.raise("ValueError", ("%s: expects %d inputs (%s), got one tensor")
        :format(name, wanted, table.concat(network.input_names, ", ")))
    end
    return { x, n = 1 }
  end
  local n = nest.layout(x)
  if n == 0 then
    local reference = network.inputs
    if nest.is_nested(reference) and #reference == 0 then
      local part = {}
      for key in pairs(reference) do
        if x[key] == nil then
          errors.raise("ValueError", ("%s: there is no input %s among those "
            .. "given"):format(name, text.quote(tostring(key))))
        end
        part[key] = x[key]
      end
      return nest.flatten(part)
    end
    return by_name(network, x, name)
  end
  local flat = nest.flatten(x)
  if flat.n ~= wanted then
    errors.raise("ValueError", ("%s: expects %d inputs (%s), got %d"):format(
      name, wanted, table.concat(network.input_names, ", "), flat.n))
  end
  return flat
end

local function lookup(structure, known)
  return nest.map_structure(function(x)
    if is_symbolic(x) then
      return known[x]
    end
    return x
  end, structure)
end

local function keep(node, known, ...)
  local values = { n = select("#", ...), ... }
  local flat = nest.flatten(values)
  if flat.n < #node.outputs then
    errors.raise("ValueError", ("%s: the call gave %d tensors, and %d when the "
      .. "model was made"):format(node.layer.name, flat.n, #node.outputs))
  end
  for i = 1, #node.outputs do
    known[node.outputs[i]] = flat[i]
  end
end

-- A shape in the rank of another one, as in_rank makes it of a tensor's.
local function rank_of(shape, other)
  local rank, want = #shape, #other
  local out = lists.copy(shape)
  if rank == want + 1 and shape[rank] == 1 then
    out[rank] = nil
  elseif rank == want - 1 and want > 1 and other[want] == 1 then
    out[want] = 1
  end
  return out
end

--- x in the rank of `shape`, as far as a last axis of size 1 is missing or too
--- many: {batch} for an input {batch, 1}, as Keras takes it.
---@param x tfdist.Tensor
---@param shape integer[]  the input's, with the batch
function M.in_rank(x, shape)
  local t = raw.operand_tensor(x)
  local rank, want = raw.tensor_rank(t), #shape
  if rank == want + 1 and raw.open_dim(t, rank - 1) == 1 then
    return masks.keep(x, tf.squeeze(x, { axis = -1 }))
  elseif rank == want - 1 and want > 1 and shape[want] == 1 then
    return masks.keep(x, tf.expand_dims(x, -1))
  end
  return x
end

-- The shape of a tensor, symbolic or not, with -1 where it is open.
local function shape_of(x)
  if is_symbolic(x) then
    return x.shape
  end
  local t, dims = raw.operand_tensor(x), {}
  for axis = 0, raw.tensor_rank(t) - 1 do
    dims[axis + 1] = raw.open_dim(t, axis)
  end
  return dims
end

-- Refuse sizes that the layers were not called with when the model was made; any
-- number of examples goes.
local function check_input(network, i, x, name)
  local want, have = network.flat_in[i].shape, shape_of(x)
  local fits = #have == #want
  for axis = 2, fits and #want or 0 do
    fits = fits and (have[axis] == want[axis] or have[axis] < 0
      or want[axis] < 0)
  end
  if not fits then
    errors.raise("InvalidArgument", ("%s: input %s has shape %s; expected %s")
      :format(name, text.quote(network.input_names[i]),
      keras_tensor.shape_text(have), keras_tensor.shape_text(want)),
      #have == #want - 1 and "the first axis is the batch: dataset:batch(n), or "
      .. "tf.expand_dims(x, 0) for one example" or nil)
  end
end

--- Make all calls with real tensors (or KerasTensors); returns the outputs in
--- their structure.
---@param network table
---@param x any
---@param name string  the model's, for messages
---@param mask any
function M.run(network, x, name, mask)
  local given = conform(network, x, name)
  local known = {}
  for i = 1, given.n do
    local input = network.flat_in[i]
    local value = given[i]
    if type(value) == "userdata" and value.dtype ~= input.dtype then
      value = masks.keep(value, tf.cast(value, input.dtype))
    end
    if type(value) == "userdata" then
      value = M.in_rank(value, input.shape)
    end
    if type(value) == "userdata" or is_symbolic(value) then
      check_input(network, i, value, name)
    end
    known[input] = value
  end
  if mask ~= nil then
    local flat = nest.flatten(mask)
    for i = 1, given.n do
      if type(flat[i]) == "userdata" then
        masks.set(known[network.flat_in[i]], flat[i])
      end
    end
  end
  for _, node in ipairs(network.nodes) do
    local options = node.options and lookup(node.options, known)
    keep(node, known, node.layer(lookup(node.inputs, known), options))
  end
  return lookup(network.outputs, known)
end

--- Shapes of the outputs for shapes of the inputs; `name` is the model's, for
--- messages.
function M.output_shapes(network, shapes, name)
  local given = conform(network, symbolic.map_shapes(function(shape)
    return keras_tensor.new(shape, "float32", "input", nil, 0)
  end, symbolic.is_shape(shapes) and { shapes } or shapes), name)
  local known = {}
  for i = 1, network.flat_in.n do
    local input, x = network.flat_in[i], given[i]
    if not is_symbolic(x) then
      errors.raise("TypeError", ("%s: input %s must have a shape, got %s")
        :format(name, text.quote(network.input_names[i]), text.describe(x)))
    end
    local shape = rank_of(x.shape, input.shape)
    known[input] = keras_tensor.new(shape, input.dtype, input.name, nil, 0)
    check_input(network, i, known[input], name)
  end
  for _, node in ipairs(network.nodes) do
    keep(node, known, symbolic.infer(node.layer, lookup(node.inputs, known),
      node.options and lookup(node.options, known)))
  end
  return nest.map_structure(function(x)
    return known[x]
  end, network.outputs)
end

-- Configuration --------------------------------------------------------------

-- KerasTensors as { keras_history = { layer, call of it, result } }, calls and
-- results from 0.
local function references(structure, position)
  if structure == nil then
    return nil
  end
  return configuration.serialize_value(nest.map_structure(function(x)
    if is_symbolic(x) then
      return { keras_history = { x.node.layer.name, position[x.node],
        x.index - 1 } }
    end
    return x
  end, structure))
end

--- layers, nodes, inputs and outputs by name.
function M.config(network)
  local position, counts = {}, {}
  local function number(node)
    local layer = node.layer
    position[node] = counts[layer] or 0
    counts[layer] = position[node] + 1
  end
  for i = 1, network.flat_in.n do
    number(network.flat_in[i].node)
  end
  for _, node in ipairs(network.nodes) do
    number(node)
  end
  local layers, nodes = {}, {}
  for i, layer in ipairs(network.layers) do
    layers[i] = { class_name = getmetatable(layer).__name, name = layer.name,
      config = layer:get_config() }
  end
  for i, node in ipairs(network.nodes) do
    nodes[i] = {
      layer = node.layer.name, inputs = references(node.inputs, position),
      options = references(node.options, position),
    }
  end
  return {
    layers = layers, nodes = nodes,
    inputs = references(network.inputs, position),
    outputs = references(network.outputs, position),
  }
end

local function resolve(structure, made)
  if type(structure) ~= "table" or getmetatable(structure) ~= nil then
    return structure
  elseif structure.keras_history ~= nil then
    local ref = structure.keras_history
    local node = made[ref[1]] and made[ref[1]][ref[2] + 1]
    if node == nil then
      errors.raise("ValueError", ("Model:from_config: call %s of layer %s is "
        .. "not there"):format(tostring(ref[2]), text.describe(ref[1])))
    end
    return node[ref[3] + 1]
  end
  local out = {}
  for key, value in pairs(structure) do
    out[key] = resolve(value, made)
  end
  return out
end

-- What a class of the user's makes of a configuration has the name in it.
local function check_name(layer, entry)
  local name = text.is_plain(entry.config) and entry.config.name
  if type(name) == "string" and layer.name ~= name then
    errors.raise("ValueError", ("Model.from_config: %s:from_config made a layer "
      .. "called %s of the configuration of %s"):format(
      getmetatable(layer).class.__name, text.quote(layer.name),
      text.quote(name)), "a constructor that takes more than options needs a "
      .. "from_config of its class: return self(config.units, config)")
  end
end

--- Inputs and outputs from config's table; `deserialize` makes layers.
function M.from_config(config, deserialize)
  local layers, made = {}, {}
  for _, part in ipairs { "layers", "nodes" } do
    kinds.check("Model.from_config", part, "list", config[part])
  end
  for _, entry in ipairs(config.layers) do
    local layer = deserialize(entry)
    check_name(layer, entry)
    layers[layer.name] = layer
    made[layer.name] = {}
    if layer._own.output ~= nil then
      made[layer.name][1] = { layer._own.output }
    end
  end
  for _, entry in ipairs(config.nodes) do
    local layer = text.is_plain(entry) and layers[entry.layer]
    if not layer then
      errors.raise("ValueError", "Model.from_config: a node names no layer that "
        .. "is there")
    end
    local outputs = { layer(resolve(entry.inputs, made),
      resolve(entry.options, made)) }
    local flat = nest.flatten(outputs)
    table.insert(made[entry.layer], flat)
  end
  return resolve(config.inputs, made), resolve(config.outputs, made)
end

return M
