--- Calling a layer: inputs become tensors, the layer is built when it is not,
--- masks and `training` pass from the outer layer to those inside.
---
--- `training` is what the call says, else what the enclosing call says, else
--- false. `call(self, inputs, options)` finds it in options, beside `mask` and
--- whatever else was given. `call(self, inputs, training, mask)`, with
--- parameters of these names, gets the values themselves.
local base = require "tfdist.keras.layers.base"
local checkpoint = require "tfdist.train.checkpoint"
local classes = require "tfdist.base.classes"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local keras_tensor = require "tfdist.keras.layers.keras_tensor"
local lists = require "tfdist.base.lists"
local masks = require "tfdist.keras.masks"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"

local M = {}

--- symbolic(layer, own, inputs, given), put in once: the call with KerasTensors.
M.hooks = {}

local getmetatable, ipairs, rawget, select, type, xpcall =
  getmetatable, ipairs, rawget, select, type, xpcall
local FLOATING = convert.FLOATING
local MAX_DEPTH = 200
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local is_symbolic = keras_tensor.is_symbolic
local has_symbolic = keras_tensor.has_symbolic

-- Masks ----------------------------------------------------------------------

M.mask_of, M.set_mask = masks.of, masks.set

--- The mask of the output, or a list of masks for several outputs with false
--- for none. Layers that support masking pass theirs on; a class of one's own
--- that makes masks defines this, and is asked without a mask, too.
--- Source: tf.keras.layers.Layer.compute_mask
local function default_mask(self, _, mask)
  return self.supports_masking and mask or nil
end

classes.guard(base.Layer, base.is_layer, "layer")
base.extend { compute_mask = default_mask }
default_mask = base.Layer.compute_mask

-- Outputs that have a mask keep it.
local function give_masks(self, inputs, mask, ...)
  local made = self:compute_mask(inputs, mask)
  if made == nil then
    return
  elseif type(made) ~= "table" then
    made = { made }
  end
  local flat = nest.flatten { n = select("#", ...), ... }
  for i = 1, flat.n do
    local x, m = flat[i], made[i]
    if m and type(m) ~= "userdata" then
      errors.raise("TypeError", ("%s: compute_mask must return tensors, got %s")
        :format(self.name, text.describe(m)))
    elseif m and type(x) == "userdata" and masks.of(x) == nil then
      masks.set(x, m)
    end
  end
end

-- Masks that are given as lists of booleans, one for each input.
local function given_mask(self, inputs, mask)
  if type(mask) == "userdata" then
    return mask
  elseif not text.is_plain(mask) then
    errors.raise("TypeError", ("%s: mask must be a tensor of bools, got %s")
      :format(self.name, text.describe(mask)))
  elseif not nest.is_nested(inputs) then
    return convert.tensor(mask, "bool", self.name, "mask")
  end
  local out = {}
  for key, x in pairs(inputs) do
    if key ~= "n" then
      out[key] = mask[key] and given_mask(self, x, mask[key]) or false
    end
  end
  return out
end

-- Inputs ---------------------------------------------------------------------

local function first_leaf(x)
  local depth = 0
  while text.is_plain(x) and depth < 9 do
    local inner = x[1]
    x, depth = inner, depth + 1
  end
  return x
end

--- Numbers and lists of numbers as tensors; with `cast`, tensors of a
--- floating-point dtype in the layer's own.
local function to_inputs(self, x, dtype, cast, depth)
  local kind = type(x)
  if kind == "userdata" then
    if cast and raw.is_operand(x) then
      local given = raw.tensor_dtype(raw.operand_tensor(x))
      if given ~= dtype and FLOATING[given] then
        return masks.keep(x, tf.cast(x, dtype))
      end
    end
    return x
  elseif kind == "number" or kind == "boolean" then
    return convert.tensor(x, dtype, self.name, "inputs")
  elseif kind ~= "table" or getmetatable(x) ~= nil then
    return x
  end
  local leaf = first_leaf(x)
  if type(leaf) == "number" or type(leaf) == "boolean" then
    return convert.tensor(x, dtype, self.name, "inputs")
  end
  depth = (depth or 0) + 1
  if depth > MAX_DEPTH then
    errors.raise("ValueError", ("%s: the inputs are nested deeper than %d "
      .. "levels or contain themselves"):format(self.name, MAX_DEPTH))
  end
  local out = {}
  for key, value in pairs(x) do
    out[key] = key == "n" and value
      or to_inputs(self, value, dtype, cast, depth)
  end
  return out
end

M.to_inputs = to_inputs

-- By class and not in a field of it: classes that users make of the library's
-- take what they like, and have names of their own.
local input_checks = {}

--- Layers of this very class take their inputs as check(self, inputs) returns
--- them, or raise with it.
---@param class table
---@param check function
function M.set_input_check(class, check)
  input_checks[class] = check
end

--- The one of a class, nil where it takes anything.
function M.input_check(class)
  return input_checks[class]
end

--- What a layer of this library that takes one tensor is called with, as one.
--- Errors: TypeError.
function M.one_tensor(self, x)
  if type(x) == "userdata" and raw.is_operand(x) or is_symbolic(x) then
    return x
  end
  local leaf = type(first_leaf(x))
  if leaf == "number" or leaf == "boolean" then
    return x -- of a layer that takes numbers as they are
  elseif nest.is_nested(x) then
    local n, keys = nest.layout(x)
    if keys ~= nil or rawget(self, "_own").input_spec ~= nil
      or has_symbolic(x) then
      errors.raise("TypeError", ("%s: expects one tensor, got %s"):format(
        self.name, keys ~= nil and "a table" or "a list of " .. n))
    end
  end
  return convert.operand(x, nil, self.name, "inputs")
end

--- The same for a layer that takes structures, too, as they are.
--- Errors: TypeError.
function M.any_structure(self, x)
  return nest.is_nested(x) and x or M.one_tensor(self, x)
end

--- The shape of a tensor or KerasTensor; of a structure, a structure of shapes.
local function shape_of(x)
  if nest.is_nested(x) then
    local out = {}
    for key, value in pairs(x) do
      out[key] = key == "n" and value or shape_of(value)
    end
    return out
  elseif is_symbolic(x) then
    return lists.copy(x.shape)
  elseif type(x) == "userdata" and raw.kind(x) == "tensor" then
    return text.as_shape(raw.tensor_dims(x)) -- layers are built for any batch
  elseif type(x) == "userdata" and raw.kind(x) ~= nil then
    return x.shape
  elseif type(x) == "table" and (getmetatable(x) or {}).__tensor ~= nil then
    return x.shape
  end
  return nil
end

M.shape_of = shape_of

-- What inputs must look like --------------------------------------------------

local function misfit(self, x, expected, hint)
  errors.raise("InvalidArgument", ("%s: the input has shape %s; expected %s")
    :format(self.name, is_symbolic(x) and keras_tensor.shape_text(x.shape)
    or text.shape(x.shape), expected), hint)
end

-- One example in the place of a batch is the usual reason.
local BATCHES = "the first axis is the batch: dataset:batch(n), or "
  .. "tf.expand_dims(x, 0) for one example"

-- A specification as what is checked: bounds of the rank, and axes with their
-- sizes in a list.
local function compile(spec)
  local checks = {
    min = spec.ndim or spec.min_ndim or 0,
    max = spec.ndim or spec.max_ndim or math.huge, axes = {},
  }
  checks.rank = spec.ndim and "rank " .. spec.ndim
    or spec.min_ndim and ("rank %d or more"):format(spec.min_ndim)
    or ("rank %d or less"):format(spec.max_ndim or 0)
  for axis, size in pairs(spec.axes or {}) do
    table.insert(checks.axes, { axis, size })
  end
  return checks
end

local function check_one(self, checks, x)
  local symbolic = is_symbolic(x)
  local t, rank
  if symbolic then
    rank = #x.shape
  else
    x = convert.operand(x, nil, self.name, "inputs")
    t = raw.operand_tensor(x)
    rank = raw.tensor_rank(t)
  end
  if rank < checks.min or rank > checks.max then
    misfit(self, x, checks.rank, rank == checks.min - 1 and BATCHES or nil)
  end
  local axes = checks.axes
  for i = 1, #axes do
    local axis, size = axes[i][1], axes[i][2]
    local at = axis < 0 and axis + rank or axis
    local have
    if symbolic then
      have = x.shape[at + 1]
    elseif at >= 0 and at < rank then
      have = raw.open_dim(t, at)
    end
    if have ~= size and have ~= -1 then
      misfit(self, x, ("%s on axis %d, which the layer's weights were made "
        .. "for"):format(text.number(size), axis))
    end
  end
end

local function check_spec(self, own, inputs)
  local spec = own.input_spec
  if spec == nil then
    return
  elseif spec[1] == nil then
    local checks = own.checks
    if checks == nil then
      checks = compile(spec)
      own.checks = checks
    end
    check_one(self, checks, inputs)
    return
  end
  local flat = nest.flatten(inputs)
  if flat.n ~= #spec then
    errors.raise("ValueError", ("%s: expects %d inputs, got %d"):format(
      self.name, #spec, flat.n))
  end
  for i = 1, flat.n do
    check_one(self, compile(spec[i]), flat[i])
  end
end

-- Run a build, once: in a trace, too, what it assigns to weights and the tensors
-- that it keeps have to outlive the trace. Weights that it leaves behind when it
-- fails are not the layer's; those that no assignment to a field has shown get
-- what waits for them.
local function run_build(self, own, build, shapes)
  local before, done = #own.weights, false
  own.building, own.build_shape = true, shapes
  state.protect(function()
    own.building = nil
    for i = done and 0 or #own.weights, before + 1, -1 do
      own.weights[i] = nil
    end
  end, function()
    tracing.lifted_making(random_seed.build, build, self, shapes)
    checkpoint.settle(self)
    done = true
  end)
end

--- Build the layer for inputs of these shapes, once.
function M.build(self, shapes)
  local own = rawget(self, "_own")
  local class = getmetatable(self).class
  run_build(self, own, class.build_in_call or class.build, shapes)
  -- A model of the user's is built when its first call is over.
  own.built = class.build_in_call == nil
end

--- layer:build(shape): as the first call would do it.
--- Errors: ValueError for a layer that has its weights.
--- Source: tf.keras.layers.Layer.build
function base.hooks.build(self, shapes)
  if not base.is_layer(self) then
    options.wrong_self("Layer.build", "layer", self, { "shape" })
  end
  local own = rawget(self, "_own")
  local build = getmetatable(self).class.build
  if own.building or base.whole_builds[build] then
    return build(self, shapes)
  elseif own.built and #own.weights > 0 then
    errors.raise("ValueError", ("layer %s is built already"):format(
      text.quote(self.name)), "other shapes need another layer")
  end
  run_build(self, own, build, shapes)
  own.built = true
end

--- For layers that build those inside them.
function M.build_inner(self, shapes)
  if not rawget(self, "_own").built then
    M.build(self, shapes)
  end
end

-- Parameters -----------------------------------------------------------------

local debug = rawget(_G, "debug")
local VALUES = { training = true, mask = true }

-- Names of fn's parameters behind self and inputs; none where they are not
-- known (no debug library, stripped bytecode).
local function parameters(fn)
  local names = {}
  fn = text.written(fn)
  local info = debug ~= nil and fn ~= nil and debug.getinfo(fn, "u") or {}
  for i = 3, info.nparams or 0 do
    names[#names + 1] = debug.getlocal(fn, i)
  end
  return names
end

-- call -> names of the values that it takes, false for one table of options
local passing = setmetatable({}, { __mode = "k" })

local function passing_of(self, fn)
  local names = parameters(fn)
  local by_name = false
  for _, name in ipairs(names) do
    by_name = by_name or VALUES[name]
  end
  for _, name in ipairs(self.call_arguments or {}) do
    by_name = by_name or name == names[1]
  end
  -- A cell of one's own, written down as TensorFlow's are.
  by_name = by_name or names[1] == "states" and self.state_size ~= nil
  passing[fn] = by_name and names or false
  return passing[fn]
end

-- self:call with options as its parameters want them.
local function invoke(self, inputs, opts)
  local fn = self.call
  local names = passing[fn]
  if names == nil then
    names = passing_of(self, fn)
  end
  if not names then
    return fn(self, inputs, opts)
  end
  local list = {}
  for i = 1, #names do
    local name = names[i]
    local value = opts[name]
    if value == nil and (name == "options" or name == "opts") then
      value = opts
    end
    list[i] = value
  end
  return fn(self, inputs, unpack(list, 1, #names))
end

--- self:call with options as its parameters want them, for the layer around it
--- that has done the rest.
M.pass = invoke

-- Ops take the variables of layers as `dtype` from now on; nil: as they are.
local function set_autocast(current, dtype)
  current.autocast = dtype
  raw.context_set_autocast(dtype ~= nil, dtype or "float32")
end

--- self:call with options as its parameters want them. Ops in it take the
--- layer's variables in the dtype that it computes in.
function M.invoke(self, inputs, opts)
  local dtype, current = rawget(self, "_own").autocast, state.current
  local before = current.autocast
  if dtype == before then
    return invoke(self, inputs, opts)
  end
  set_autocast(current, dtype)
  return state.protect(function()
    set_autocast(current, before)
  end, invoke, self, inputs, opts)
end

-- The call -------------------------------------------------------------------

local function record_shape(own, inputs, out)
  local shape = shape_of(out)
  if shape == nil then
    own.output_shape = false
    return
  end
  -- The first axis is the batch where inputs and outputs agree about it.
  local first = shape_of(inputs)
  while type(first) == "table" and type(first[1]) == "table" do
    first = first[1]
  end
  local batch = type(first) == "table" and first[1] or nil
  local function open(dims)
    if type(dims[1]) == "table" or next(dims) ~= nil and dims[1] == nil then
      for key, value in pairs(dims) do
        if type(value) == "table" then
          dims[key] = open(value)
        end
      end
    elseif dims[1] ~= nil and dims[1] == batch then
      dims[1] = -1
    end
    return dims
  end
  own.output_shape = open(shape)
end

local function add_activity_loss(self, regularizer, y)
  local loss = regularizer(y)
  if type(loss) ~= "number" and not raw.is_operand(loss) then
    errors.raise("TypeError", self.name .. ": activity_regularizer must return "
      .. "a number or a scalar tensor, got " .. text.describe(loss))
  end
  self:add_loss(loss / math.max(1, y.shape[1] or 1))
end

-- What follows call(): masks, activity penalties.
local function outputs(self, own, inputs, opts, ...)
  local first = ...
  if first == nil then
    errors.raise("TypeError", self.name .. ": call must return tensors, got "
      .. "nothing")
  end
  own.built = true
  if own.output_shape == nil then
    record_shape(own, inputs, first)
  end
  if opts.mask ~= nil
    or getmetatable(self).class.compute_mask ~= default_mask then
    give_masks(self, inputs, opts.mask, ...)
  end
  if own.activity_regularizer ~= nil then
    local flat = nest.flatten(first)
    for i = 1, flat.n do
      add_activity_loss(self, own.activity_regularizer, flat[i])
    end
  end
  return ...
end

local function forward(self, own, inputs, opts)
  if inputs == nil then
    errors.raise("TypeError", self.name .. ": missing argument inputs")
  end
  local autocast = self.autocast
  if autocast then
    inputs = to_inputs(self, inputs, own.dtype, autocast == true)
  end
  local check = input_checks[getmetatable(self).class]
  if check ~= nil then
    inputs = check(self, inputs)
  end
  if not own.built then
    check_spec(self, own, inputs)
    M.build(self, shape_of(inputs))
  end
  check_spec(self, own, inputs)
  if opts.mask == nil then
    opts.mask = masks.of_each(inputs)
  else
    opts.mask = given_mask(self, inputs, opts.mask)
  end
  return outputs(self, own, inputs, opts, M.invoke(self, inputs, opts))
end

local function finish(current, outer, ok, ...)
  current.layer_call = outer
  if not ok then
    error((...), 0)
  end
  return ...
end

-- Tensors given by position after the first go where the class wants them.
local function positional(self, given, ...)
  local names = self.call_arguments
  if names == nil then
    names = passing[self.call]
    if names == nil then
      names = passing_of(self, self.call)
    end
    names = names or {}
  end
  local list, n = { given, ... }, select("#", ...) + 1
  local out = {}
  for i = 1, n do
    local x = list[i]
    if i == n and text.is_plain(x) and x[1] == nil then
      for key, value in pairs(x) do
        out[key] = value
      end
    elseif x ~= nil then
      if names[i] == nil then
        errors.raise("TypeError", ("%s: got one argument more than it takes: "
          .. "%s"):format(self.name, text.describe(x)),
          "layer(inputs, { training = true })")
      end
      out[names[i]] = x
    end
  end
  return out
end

local CALL = { "training", "mask" }

local function check_given(self, given)
  local class = getmetatable(self).class
  local training = given.training
  if training ~= nil and type(training) ~= "boolean" then
    if training ~= 0 and training ~= 1 then
      errors.raise("TypeError", ("%s: training must be true or false, got %s")
        :format(self.name, text.describe(training)))
    end
  end
  if class.signature == nil or class.any_option then
    return -- a class of the user's own
  end
  local known = class.call_names
  if known == nil then
    known = { is = {} }
    for _, list in ipairs { CALL, class.call_arguments or {},
      class.call_options or {} } do
      for _, name in ipairs(list) do
        known[#known + 1] = name
        known.is[name] = true
      end
    end
    class.call_names = known
  end
  for key in pairs(given) do
    if not known.is[key] then
      options.check_keys(self.name, given, known) -- says what it is
    end
  end
end

--- layer(inputs, options): see the head of this file. With KerasTensors among
--- the inputs the result is KerasTensors.
function base.hooks.call(self, inputs, given, ...)
  if given ~= nil and (select("#", ...) > 0 or type(given) == "userdata"
    or is_symbolic(given) or not text.is_plain(given)
    or given[1] ~= nil) then
    given = positional(self, given, ...)
  end
  local own = rawget(self, "_own")
  if given ~= nil then
    check_given(self, given)
  end
  if has_symbolic(inputs) or (given ~= nil and has_symbolic(given)) then
    return finish(state.current, state.current.layer_call,
      xpcall(M.hooks.symbolic, own.handler, self, own, inputs, given))
  end
  local current = state.current
  local outer = current.layer_call
  local opts = {}
  if given ~= nil then
    for key, value in pairs(given) do
      opts[key] = value
    end
  end
  local training = opts.training
  if training == nil then
    training = outer ~= nil and outer.training
  elseif type(training) == "number" then
    training = training ~= 0
  end
  opts.training = training
  if outer == nil then
    local token = {}
    own.token = own.token or {}
    own.token[base.replica_key()] = token
    current.layer_call = { training = training, token = token }
  elseif outer.training ~= training then
    current.layer_call = { training = training, token = outer.token }
  end
  if current.trace ~= nil then
    return finish(current, outer, tracing.noted(base.place_of(self),
      own.handler, forward, self, own, inputs, opts))
  end
  return finish(current, outer, xpcall(forward, own.handler, self, own, inputs,
    opts))
end

M.check_spec = check_spec

--- Call fn as if inside a layer's call with this `training`, without
--- recording; for looking at shapes.
function M.probe(training, fn, ...)
  local current = state.current
  local outer = current.layer_call
  current.layer_call = { training = training, token = {} }
  raw.tape_pause_all(true)
  return state.protect(function()
    raw.tape_pause_all(false)
    current.layer_call = outer
  end, fn, ...)
end

return M
