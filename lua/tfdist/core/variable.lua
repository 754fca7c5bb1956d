--- tf.Variable: creation through creator scopes, assignment, printing.
---
--- A variable has all properties, methods and operators of a tensor; they read
--- its value at the call. Attributes that only Lua needs (constraint, where it
--- was made) hang on weak tables.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local printer = require "tfdist.core.printer"
local raw = require "tfdist.core.raw"
local scatter = require "tfdist.core.scatter"
local state = require "tfdist.core.state"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local SYNCHRONIZATION = { "AUTO", "NONE", "ON_WRITE", "ON_READ" }
local AGGREGATION = { "NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA" }

M.methods, M.getters = {}, {}
local methods, getters = M.methods, M.getters

local constraints = setmetatable({}, { __mode = "k" })
local origins = setmetatable({}, { __mode = "k" })

local function is_variable(x)
  return type(x) == "userdata" and raw.kind(x) == "variable"
end

--- True for variables (not for tensors).
M.is_variable = is_variable

--- Script position where a variable was made, "train.lua:12", or nil.
function M.origin(variable)
  return origins[variable]
end

-- Properties -----------------------------------------------------------------

function getters.name(v)
  return raw.variable_name(v)
end

function getters.trainable(v)
  return raw.variable_is_trainable(v)
end

function getters.synchronization(v)
  return raw.variable_synchronization_of(v):upper()
end

function getters.aggregation(v)
  return raw.variable_aggregation_of(v):upper()
end

function getters.constraint(v)
  return constraints[v]
end

--- Grows with each write, and when failed work has undone queued ones.
function getters.version(v)
  return raw.variable_version(v)
end

-- Methods --------------------------------------------------------------------

local function method(name, signature, fn)
  methods[name] = options.method("Variable." .. name, signature, fn,
    is_variable, "variable")
end

local function operand_for(v, what, name, x)
  return convert.operand(x, tensor.dtype_of(v), what, name)
end

local ASSIGN = " use_locking=false name=nil read_value=true"

--- Replace the value; returns the variable.
--- Errors: ValueError on another shape or dtype.
--- Source: tf.Variable.assign
method("assign", "value" .. ASSIGN, function(self, value)
  raw.variable_assign(self, operand_for(self, "assign", "value", value))
  return self
end)

--- value += delta; returns the variable.
method("assign_add", "delta" .. ASSIGN, function(self, delta)
  raw.variable_assign_add(self, operand_for(self, "assign_add", "delta",
    delta))
  return self
end)

--- value -= delta; returns the variable.
method("assign_sub", "delta" .. ASSIGN, function(self, delta)
  raw.variable_assign_sub(self, operand_for(self, "assign_sub", "delta",
    delta))
  return self
end)

--- The value as a tensor that later assignments do not change.
method("read_value", "", function(self)
  return raw.variable_read(self)
end)

--- The same as read_value.
method("value", "", function(self)
  return raw.variable_read(self)
end)

--- Always true: variables start with a value.
method("is_initialized", "", function()
  return true
end)

function methods.release(self)
  return raw.release(self)
end

local function to_text(v)
  if raw.is_released(v) then
    return "Variable (released)"
  end
  local t = raw.operand_tensor(v)
  local dims = tensor.shape_of(t)
  local dtype = raw.tensor_dtype(t)
  local header = ("Variable %s %s %s"):format(text.quote(raw.variable_name(v)),
    dtype, text.shape(dims))
  local place = "on " .. raw.device_short_name(raw.tensor_device(t))
  if #dims == 0 then
    return ("%s = %s  %s"):format(header, printer.value(t), place)
  end
  return printer.body(t, header, " " .. place)
end

-- Creation -------------------------------------------------------------------

local function initial_operand(kwargs)
  local value = kwargs.initial_value
  if type(value) == "function" then
    value = value()
  end
  if value == nil then
    errors.raise("ValueError", "Variable: an initial value is needed")
  end
  local dtype = convert.dtype(kwargs.dtype, "Variable")
  local operand = convert.operand(value, dtype, "Variable", "initial_value")
  local t = raw.operand_tensor(operand)
  if dtype ~= nil and raw.tensor_dtype(t) ~= dtype then
    errors.raise("TypeError", ("Variable: the initial value is %s, dtype is %s")
      :format(raw.tensor_dtype(t), dtype),
      ("tf.cast(x, \"%s\") converts"):format(dtype))
  end
  if kwargs.shape ~= nil then
    local want = convert.integers(kwargs.shape, "Variable", "shape")
    local dims = tensor.shape_of(t)
    local fits, open = #want == #dims, false
    for i = 1, #dims do
      fits = fits and (want[i] == dims[i] or want[i] == -1)
      open = open or want[i] == -1
    end
    if not fits then
      errors.raise("InvalidArgument", ("Variable: the initial value has shape "
        .. "%s, shape is %s"):format(text.shape(dims), text.shape(want)))
    elseif open then
      errors.raise("NotImplementedError", ("Variable: shape %s leaves a size "
        .. "open; a variable keeps the shape of its initial value, here %s")
        :format(text.shape(want), text.shape(dims)))
    end
  end
  return operand, raw.tensor_dtype(t)
end

--- Check and complete what tf.Variable was given: dtype, synchronization,
--- aggregation and trainable by TensorFlow's rules. For creators that make
--- variables of their own.
--- Errors: ValueError, TypeError, InvalidArgument.
---@param kwargs table
---@return table  { operand, dtype, name, trainable, synchronization,
---  aggregation, constraint }
function M.specification(kwargs)
  local synchronization = options.choice("Variable", "synchronization",
    kwargs.synchronization or "AUTO", SYNCHRONIZATION)
  local aggregation = options.choice("Variable", "aggregation",
    kwargs.aggregation or "NONE", AGGREGATION)
  local trainable = kwargs.trainable
  if trainable == nil then
    trainable = synchronization ~= "ON_READ"
  elseif type(trainable) ~= "boolean" then
    errors.raise("TypeError", "Variable: trainable must be true or false, got "
      .. text.describe(trainable))
  elseif trainable and synchronization == "ON_READ" then
    errors.raise("ValueError", "Variable: synchronization ON_READ is for "
      .. "variables that are not trainable", "pass trainable = false")
  end
  local operand, dtype = initial_operand(kwargs)
  if aggregation == "MEAN" and not convert.FLOATING[dtype] then
    errors.raise("ValueError", ("Variable: aggregation MEAN needs a "
      .. "floating-point dtype, got %s"):format(dtype))
  end
  local name = kwargs.name
  if name == nil then
    name = "Variable"
  elseif type(name) ~= "string" then
    errors.raise("TypeError", "Variable: name must be a string, got "
      .. text.describe(name))
  elseif name:find("\0", 1, true) then
    errors.raise("ValueError", "Variable: name must not contain zero bytes, got "
      .. text.quote(name))
  end
  return {
    operand = operand, dtype = dtype, trainable = trainable,
    name = state.shared_scope(state.current) .. name,
    synchronization = synchronization, aggregation = aggregation,
    constraint = kwargs.constraint,
  }
end

-- "file:line" of the innermost frame outside the library.
local function script_position()
  local level = 2
  while true do
    local info = debug.getinfo(level, "Sl")
    if info == nil then
      return nil
    elseif info.what ~= "C"
      and info.source:sub(1, #errors.library) ~= errors.library then
      return ("%s:%d"):format(info.short_src, info.currentline)
    end
    level = level + 1
  end
end

--- Make one plain variable on `device` (nil = the current one).
---@param spec table  as M.specification returns it
---@param device? userdata
---@return tfdist.Variable
function M.new(spec, device)
  local v = raw.variable_new(spec.operand, spec.name, spec.trainable, device)
  raw.variable_set_distribution(v, spec.synchronization:lower(),
    spec.aggregation:lower())
  constraints[v] = spec.constraint
  origins[v] = script_position()
  return v
end

local function default_creator(kwargs)
  return M.new(M.specification(kwargs))
end

-- Run the chain of creators, innermost scope first.
local function create(creators, kwargs)
  if creators == nil then
    return default_creator(kwargs)
  end
  local function next_creator(changed)
    return create(creators.next, changed or kwargs)
  end
  -- No tail call: a creator that calls tf.Variable must end in an error.
  local made = creators.fn(next_creator, kwargs)
  return made
end

--- Make a variable from a table of tf.Variable's arguments, through the
--- creator scopes.
---@param kwargs table
---@return any
function M.create(kwargs)
  tracing.made_variable(kwargs.name or "Variable")
  return tracing.lifted(create, state.current.creators, kwargs)
end

--- Put a creator around fn's variables; with nil for fn: around all from now
--- until the result's close().
---@param creator fun(next_creator, kwargs):any
---@param fn? function
function M.creator_scope(creator, fn, ...)
  local own = state.current
  local before = own.creators
  own.creators = { fn = creator, next = before }
  local function undo()
    own.creators = before
  end
  if fn == nil then
    return state.closer("variable_creator_scope", undo)
  end
  return state.protect(undo, fn, ...)
end

local SIGNATURE = "initial_value trainable=nil validate_shape=true "
  .. "caching_device=nil name=nil variable_def=nil dtype=nil import_scope=nil "
  .. "constraint=nil synchronization='AUTO' aggregation='NONE' shape=nil"

local function constants(list)
  local t = {}
  for i = 1, #list do
    t[list[i]] = list[i]
  end
  return t
end

local check_function = text.check_callable

--- Name scope around fn's variables: "scope/name". A name that ends with "/"
--- starts anew. fn gets the full scope, which names the replica but the first.
--- Without fn: an object with close().
--- Source: tf.name_scope
local function name_scope(name, fn)
  if type(name) ~= "string" then
    errors.raise("TypeError", "name_scope: name must be a string, got "
      .. text.describe(name))
  end
  if fn ~= nil then
    check_function("name_scope", "fn", fn)
  end
  local own = state.current
  local before = own.name_scope
  if name ~= "" and name:sub(-1) ~= "/" then
    name = before .. name .. "/"
  end
  own.name_scope = name
  local function undo()
    own.name_scope = before
  end
  if fn == nil then
    return state.closer("name_scope", undo)
  end
  return state.protect(undo, fn, name)
end

--- Put variables into tf.
function M.install(tf, def)
  local meta = raw.metatable "variable"
  scatter.install(methods, tf, is_variable)
  setmetatable(methods, { __index = tensor.methods })
  setmetatable(getters, { __index = tensor.getters })
  tensor.fill_metatable(meta, tf, methods, getters, "Variable")
  meta.__tostring = to_text
  tf.VariableSynchronization = constants(SYNCHRONIZATION)
  tf.VariableAggregation = constants(AGGREGATION)

  --- A tensor that can change. Numbers make float32 unless dtype says
  --- otherwise; a function as initial value is called for it.
  --- Errors: ValueError for settings that contradict each other, TypeError,
  ---   InvalidArgument.
  --- Source: tf.Variable
  def("Variable", SIGNATURE, function(initial, trainable, validate_shape,
      caching_device, name, _, dtype, _, constraint, synchronization,
      aggregation, shape)
    return M.create {
      initial_value = initial, trainable = trainable,
      validate_shape = validate_shape, caching_device = caching_device,
      name = name, dtype = dtype, constraint = constraint,
      synchronization = synchronization, aggregation = aggregation,
      shape = shape,
    }
  end)

  --- True for variables, false for tensors and everything else.
  def("is_variable", "x:table=nil", function(x)
    return is_variable(x)
      or (type(x) == "userdata" and raw.kind(x) == "mirrored")
  end)

  --- Call fn; its variables are made by creator(next_creator, kwargs), where
  --- next_creator(kwargs) makes them in the usual way.
  --- Source: tf.variable_creator_scope
  def("variable_creator_scope", "variable_creator fn:body=nil",
    function(creator, fn)
      check_function("variable_creator_scope", "variable_creator", creator)
      if fn ~= nil then
        check_function("variable_creator_scope", "fn", fn)
      end
      return M.creator_scope(creator, fn)
    end)

  def("name_scope", "name fn:body=nil", name_scope)

  --- Call fn outside of name scopes and without recording on tapes.
  --- Source: tf.init_scope
  def("init_scope", "fn", function(fn)
    check_function("init_scope", "fn", fn)
    local own = state.current
    local before = own.name_scope
    own.name_scope = ""
    raw.tape_pause_all(true)
    return state.protect(function()
      own.name_scope = before
      raw.tape_pause_all(false)
    end, tracing.lifted, fn)
  end)
end

return M
