--- input_signature: specs in the places of a traced function's tensors, and
--- arguments as they want them.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local loops = require "tfdist.core.loops"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local replica_spec = require "tfdist.distribute.replica_spec"
local spec = require "tfdist.data.spec"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"
local values = require "tfdist.distribute.values"

local M = {}

local type = type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

-- Each TensorSpec of a leaf, which may have one for each replica.
local function tensor_specs(leaf)
  if replica_spec.is_spec(leaf) then
    return leaf.value_specs
  end
  return { spec.is_spec(leaf) and leaf or nil }
end

-- Reading ----------------------------------------------------------------------

local function check_leaf(leaf)
  local list = tensor_specs(leaf)
  for r = 1, math.max(#list, 1) do
    if not spec.is_spec(list[r]) then
      errors.raise("TypeError", "function_: input_signature must be a list of "
        .. "tf.TensorSpec, got " .. text.describe(list[r] or leaf))
    elseif list[r].shape == nil then
      errors.raise("NotImplementedError", "function_: a TensorSpec of unknown "
        .. "rank cannot be traced")
    end
  end
  return list
end

--- The specs of an input_signature as a pack, and the sizes of all its tensors:
--- nil when all are known.
--- Errors: TypeError, NotImplementedError.
function M.read(given)
  local list, n = options.list("function_", "input_signature", given,
    "tf.TensorSpec")
  local specs, dims, open = { n = n, unpack(list, 1, n) }, {}, false
  local flat = nest.flatten(specs)
  for i = 1, flat.n do
    for _, each in ipairs(check_leaf(flat[i])) do
      dims[#dims + 1] = each.shape
      for axis = 1, #each.shape do
        open = open or each.shape[axis] < 0
      end
    end
  end
  return specs, open and dims or nil
end

--- Do specs among these arguments leave a size open?
function M.has_open_size(arguments)
  local flat = nest.flatten(arguments)
  for i = 1, flat.n do
    for _, each in ipairs(tensor_specs(flat[i])) do
      for _, size in ipairs(each.shape or {}) do
        if size < 0 then
          return true
        end
      end
    end
  end
  return false
end

--- Sizes of the tensors among these arguments, as their specs have them.
function M.dims_of(arguments)
  local flat, dims = nest.flatten(arguments), {}
  for i = 1, flat.n do
    for _, each in ipairs(tensor_specs(flat[i])) do
      dims[#dims + 1] = each.shape
    end
    if type(flat[i]) == "userdata" and raw.kind(flat[i]) == "tensor" then
      dims[#dims + 1] = raw.tensor_dims(flat[i])
    end
  end
  return dims
end

-- Examples ---------------------------------------------------------------------

local function example_tensor(x)
  if x.shape == nil then
    errors.raise("NotImplementedError", "get_concrete_function: a TensorSpec "
      .. "of unknown rank cannot be traced")
  end
  local dims = {}
  for i = 1, #x.shape do
    dims[i] = x.shape[i] < 0 and 1 or x.shape[i]
  end
  -- One element, however many the shape has: only its description is looked at.
  return tracing.lifted(tf.broadcast_to, raw.tensor_from_values({ 0 }, x.dtype,
    {}), dims)
end

--- A value of the kind that a spec describes; sizes that any go are 1. What is no
--- spec is its own.
function M.example(x)
  if spec.is_spec(x) then
    return example_tensor(x)
  elseif not replica_spec.is_spec(x) then
    return x
  end
  local strategy, list = replica_spec.strategy_of(x), {}
  for r, each in ipairs(x.value_specs) do
    list[r] = raw.tensor_to_device(example_tensor(each),
      strategy.replica_devices[r])
  end
  return values.new(strategy, "per_replica", list, #list)
end

-- Arguments --------------------------------------------------------------------

local ASKS = "input_signature asks for"

-- Words for a place: { i = number of an argument, n = of its leaf, specs = what it
-- is built as }, a number of an argument, or words already.
local function place_of(at)
  if type(at) == "number" then
    return "argument " .. at
  elseif type(at) == "string" then
    return at
  end
  local left, path = at.n, {}
  local function find(x)
    if not nest.is_nested(x) then
      left = left - 1
      return left == 0
    end
    local n, keys = nest.layout(x)
    local depth = #path + 1
    for k = 1, n + (keys and #keys or 0) do
      path[depth] = k <= n and k or keys[k - n]
      if find(x[path[depth]]) then
        return true
      end
    end
    path[depth] = nil
    return false
  end
  find(at.specs)
  return nest.path_text(path) .. " of argument " .. at.i
end

local function wrong_input(name, at, got, want, asks, why)
  errors.raise("TypeError", ("%s: %s is %s, %s %s%s"):format(name, place_of(at),
    got, asks or ASKS, tostring(want), why or ""))
end

-- One tensor as a spec wants it; i: its place, as place_of has it.
-- `whole`: what the message names; asks: words before it.
local function fit_tensor(name, i, x, want, whole, asks)
  local ok, t = pcall(convert.tensor, x, want.dtype,
    asks == nil and "input_signature" or "call", "argument")
  if not ok then
    -- Which of its elements it is, the error of the conversion knows.
    wrong_input(name, i, text.describe(x), whole, asks,
      type(x) == "table" and "; " .. loops.said(t) or nil)
  end
  local dims = raw.tensor_dims(t)
  local good = raw.tensor_dtype(t) == want.dtype
    and (want.shape == nil or #want.shape == #dims)
  for axis = 1, good and want.shape and #dims or 0 do
    local size = want.shape[axis]
    if size >= 0 and dims[axis] < 0 then
      tracing.look_at_sizes(dims) -- nobody knows; set_shape in TensorFlow
    end
    good = good and (size < 0 or dims[axis] < 0 or size == dims[axis])
  end
  if not good then
    wrong_input(name, i, asks and type(x) == "number" and text.describe(x)
      or raw.tensor_dtype(t) .. " " .. text.shape(dims), whole, asks)
  end
  return t
end

--- x as a tensor that a spec describes. `place`: words for where it stands.
--- Errors: TypeError, with asks before the spec.
function M.fit(name, place, x, want, asks)
  return fit_tensor(name, place, x, want, want, asks)
end

-- One leaf of the arguments.
local function fit(name, i, x, want)
  if not replica_spec.is_spec(want) then
    return fit_tensor(name, i, x, want, want)
  end
  local specs = want.value_specs
  local is_one = values.is_value(x) and raw.value_kind_of(x) == "per_replica"
  local parts = is_one and values.components(x)
  if not parts or parts.n ~= #specs then
    wrong_input(name, i, text.describe(x), want)
  end
  local list = {}
  for r = 1, parts.n do
    list[r] = fit_tensor(name, i, parts[r], specs[r], want)
  end
  return values.new(values.owner(x), "per_replica", list, parts.n)
end

-- Argument i has the tables that its specs stand in.
local function check_structure(name, i, want, x)
  local ok, problem = pcall(nest.assert_same_structure, want, x)
  if not ok then
    errors.raise("TypeError", ("%s: argument %d is not built as "
      .. "input_signature asks; %s"):format(name, i, loops.said(problem)))
  end
end

local function is_leaf(x)
  return spec.is_spec(x) or replica_spec.is_spec(x)
end

--- A pack of arguments as the specs have them: tensors of their dtypes.
--- Errors: TypeError.
function M.conform(name, specs, arguments)
  if arguments.n > specs.n then
    errors.raise("TypeError", ("%s: %d arguments given, input_signature has %d")
      :format(name, arguments.n, specs.n))
  end
  local out = { n = specs.n }
  for i = 1, specs.n do
    if is_leaf(specs[i]) then
      out[i] = fit(name, i, arguments[i], specs[i])
    else
      check_structure(name, i, specs[i], arguments[i])
      local at = { i = i, n = 0, specs = specs[i] }
      out[i] = nest.map_structure(function(want, x)
        at.n = at.n + 1
        return fit(name, at, x, want)
      end, specs[i], arguments[i])
    end
  end
  return out
end

return M
