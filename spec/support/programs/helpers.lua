--- What the lines of random tensor programs call: H in their text.
local cases = require "spec.support.cases"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local M = {}

local FLOAT = require "spec.support.programs.moves".FLOAT
local unpack = table.unpack or unpack -- luacheck: ignore 143 113

M.trace_inner = false -- are functions inside traced, or called as they are?
M.unsigned = false -- are zeros of gradients all the same?

M.unpack = function(list) return unpack(list) end

function M.is_tensor(x)
  return type(x) == "userdata" and raw.kind(x) == "tensor"
end

--- Wait for all devices. Errors: what failed there and nobody was told of.
function M.settle()
  for i = 0, raw.device_count "CPU" - 1 do
    raw.device_synchronize(raw.device_at("CPU", i))
  end
end

--- Values of a formula: a few different numbers, of both signs where there are.
function M.fill(dtype, dims, seed)
  local n, list = 1, {}
  for i = 1, #dims do n = n * dims[i] end
  local x = seed * 7919 % 2147483647
  for i = 1, n do
    x = (x * 16807 + 11) % 2147483647
    if dtype == "bool" then
      list[i] = x % 2 == 0
    elseif dtype:find "float" then
      list[i] = x % 3001 / 1000 - 1.5
    else
      list[i] = x % 9 - (dtype == "uint8" and 0 or 4)
    end
  end
  return tf.constant(list, { dtype = dtype, shape = dims })
end

-- The case table -------------------------------------------------------------

local by_family = {}

local function case_of(family, name)
  if by_family[family] == nil then
    by_family[family] = {}
    for _, case in ipairs(cases.load(family)) do
      by_family[family][case.name] = case
    end
  end
  return by_family[family][name]
end

--- Input `i` of a case.
function M.input(family, name, dtype, i)
  local spec = case_of(family, name).inputs[i]
  return tf.constant(cases.values(spec, i - 1, dtype), {
    dtype = spec.dtype or dtype, shape = spec.dims })
end

function M.case(family, name, _, ...)
  return case_of(family, name).fn(tf, ...)
end

-- Gradients, functions, checks -----------------------------------------------

--- Gradients with zeros where no path leads. Sums over the turns of a loop begin
--- with zeros, which have no sign.
function M.gradients(tape, targets, sources)
  local list = tape:gradient(targets, sources)
  local out = {}
  for i, source in ipairs(sources) do
    local g = list[i]
    if g == nil then g = tf.zeros_like(source) end
    out[i] = tf.convert_to_tensor(g)
    if M.unsigned then out[i] = out[i] + 0 end
  end
  return unpack(out)
end

function M.inner(fn)
  return M.trace_inner and tf.function_(fn) or fn
end

--- A function with a gradient of its own.
function M.custom(x)
  return tf.custom_gradient(function(y)
    return tf.tanh(y) * 2, function(dy) return dy * 3 - y end
  end)(x)
end

-- Replicas -------------------------------------------------------------------

local strategy

--- fn on two replicas, which see other values of the first argument, and what
--- becomes of its result: a sum or the like of both, made `inside` or behind.
function M.over(op, inside, fn, ...)
  strategy = strategy or tf.distribute.MirroredStrategy {
    devices = { "CPU:0", "CPU:1" } }
  local out = strategy:run(function(x, ...)
    local context = tf.distribute.get_replica_context()
    if FLOAT[x.dtype] then x = x + context.replica_id_in_sync_group / 4 end
    local y = fn(x, ...)
    return inside and context:all_reduce(op, y) or y
  end, { ... })
  return inside and strategy:experimental_local_results(out)[1]
    or strategy:reduce(op, out)
end

-- Branches and loops ---------------------------------------------------------

local function sum_of(x)
  return tf.reduce_sum(tf.cast(x, "float32"))
end

--- A condition that depends on the values.
function M.holds(x)
  return tf.greater(sum_of(x), 0)
end

--- How often: 0, 1 or 3 times.
function M.times(x)
  local sum = sum_of(x)
  return tf.cast(tf.greater(sum, -1), "int32")
    + tf.cast(tf.greater(sum, 0), "int32") * 2
end

--- fn of fn of ... x.
function M.loop(n, x, fn)
  local _, y = tf.while_loop(function(i) return tf.less(i, n) end,
    function(i, z) return i + 1, fn(z) end, { tf.constant(0, "int32"), x })
  return y
end

--- x and something of all values of the lists: of those given to a body, so that
--- none is without gradient, and of those that its lines made.
function M.tie(x, given, made)
  if not FLOAT[x.dtype] then return x end
  local function add(list, fn)
    for _, t in ipairs(list) do
      if FLOAT[t.dtype] then
        local part = fn(t) * (0.25 / math.max(raw.tensor_size(t), 1))
        x = x + tf.cast(tf.reduce_sum(part), x.dtype)
      end
    end
  end
  add(given, function(t) return t end)
  add(made, tf.tanh)
  return x
end

--- x, with zeros as gradients of all values of the list: what a branch or a loop
--- that did not run leaves out line by line is zero in a graph, and zero times
--- an infinite slope is NaN.
function M.connect(x, list)
  if not FLOAT[x.dtype] then return x end
  for _, t in ipairs(list) do
    if FLOAT[t.dtype] then
      local none = tf.where(tf.zeros(t.shape, "bool"), t, tf.zeros_like(t))
      x = x + tf.cast(tf.reduce_sum(none), x.dtype)
    end
  end
  return x
end

-- Checks ---------------------------------------------------------------------

--- Fails when an element is large: a step of the host inside a graph.
function M.assert(x)
  tf.debugging.assert_less_equal(x, tf.cast(100, x.dtype))
end

-- Inputs ---------------------------------------------------------------------

-- The same values with gaps between rows or elements.
local function gappy(t)
  local rank = #t.shape
  if rank == 0 or t.dtype == "bool" then return t end
  if rank == 1 then
    return tf.stack({ t, t }, { axis = 1 }):reshape { -1 }[{ { 0, nil, 2 } }]
  end
  local perm = {}
  for i = 1, rank do perm[i] = rank - i end
  return tf.transpose(tf.identity(tf.transpose(t, perm)) + tf.cast(0, t.dtype),
    perm)
end

--- The arguments of call number `k`: 1, 2: other values; 3: views. In call 2
--- equal specifications are one tensor, unless `apart`: a tape tells tensors by
--- identity, and a graph's inputs are all their own.
function M.inputs(specs, k, apart)
  local list, by_spec = {}, {}
  for i, s in ipairs(specs) do
    local t = k == 2 and not apart and by_spec[s]
      or M.fill(s.dtype, s.dims, 100 * k + i)
    by_spec[s] = t
    list[i] = k == 3 and gappy(t) or t
  end
  return list
end

function M.variables(specs)
  local list = {}
  for i, s in ipairs(specs) do
    list[i] = tf.Variable(M.fill(s.dtype, s.dims, 50 + i))
  end
  return list
end

return M
