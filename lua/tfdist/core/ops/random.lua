--- tf.random: numbers drawn from Philox streams. Element i of a result depends
--- on the seeds and i only, whatever the device and its number of threads.
---
--- Every draw comes in three forms:
---   tf.random.normal(shape, mean, stddev, dtype, seed)      global state, see
---     tfdist.core.random_seed for what seeds mean
---   tf.random.stateless_normal(shape, seed, mean, stddev, dtype)     a pure
---     function; seed is { a, b }
---   generator:normal(shape, mean, stddev, dtype)    state of its own
---
--- Shapes: the result has shape `shape`; gamma and poisson append the shape of
---   their parameters (the stateless forms broadcast them instead).
--- Errors: InvalidArgument (dtype, sizes, bounds), TypeError, ValueError.
---
---   normal(shape, mean=0, stddev=1, dtype="float32")
---   truncated_normal(...)    the same, within two standard deviations
---   uniform(shape, minval=0, maxval=nil, dtype="float32")    in
---     [minval, maxval); maxval defaults to 1, integer dtypes need it
---   categorical(logits, num_samples, dtype="int64")    classes from 0 by their
---     unnormalised log probabilities; {rows, classes} to {rows, num_samples}
---   shuffle(value)    rows of axis 0 in random order
---   gamma(shape, alpha, beta=nil, dtype="float32")    beta is the inverse
---     scale; gradients reach beta, not alpha
---   poisson(shape, lam, dtype="float32")    (int32 in the stateless form)
---
--- mean, stddev, minval and maxval may be tensors that broadcast; gradients
--- reach them. No gradient flows through categorical, shuffle and poisson.
--- Also set_seed(seed), split(seed, num) and fold_in(seed, data) for stateless
--- seeds, Generator (module tfdist.core.generator).
--- Source: tf.random
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local generator = require "tfdist.core.generator"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local select, type = select, type
local unpack = table.unpack or unpack -- luacheck: ignore 113 143
local ALGORITHMS = { "auto_select", "philox", "threefry" }

--- Arguments ------------------------------------------------------------------

-- Shape as slots of an op: count and eight sizes.
local function shape_slots(what, shape)
  local dims = convert.integers(shape, what, "shape")
  local n = #dims
  if n > 8 then
    errors.raise("InvalidArgument", ("%s: shape %s has rank %d; tensors have "
      .. "at most 8 axes"):format(what, text.shape(dims), n))
  end
  local slots = { n }
  for i = 1, 8 do
    local size = dims[i] or 0
    if size < 0 then
      errors.raise("InvalidArgument", ("%s: shape %s: sizes are 0 or more")
        :format(what, text.shape(dims)))
    end
    slots[i + 1] = size
  end
  return slots
end

local function dtype_of(what, dtype, allowed, noun)
  dtype = convert.dtype(dtype, what)
  if not allowed[dtype] then
    errors.raise("InvalidArgument", ("%s: dtype is %s; expected %s"):format(
      what, dtype, noun))
  end
  return dtype
end

local function floating(what, dtype)
  return dtype_of(what, dtype, convert.FLOATING, "a floating-point dtype")
end

local function check_algorithm(what, alg)
  if options.choice(what, "alg", alg, ALGORITHMS) == "threefry" then
    errors.raise("NotImplementedError", what .. ": alg threefry is not "
      .. "implemented; philox is")
  end
end

-- A number given as such or as a tensor with one element; nil for a tensor
-- with more.
local function number_of(x)
  if type(x) == "number" then
    return x
  elseif raw.is_operand(x) then
    local t = raw.operand_tensor(x)
    if raw.tensor_size(t) == 1 and raw.tensor_rank(t) == 0 then
      return raw.item(t)
    end
  end
  return nil
end

local function draw(op, slots, stream, more, reals)
  for i = 1, 4 do
    slots[9 + i] = stream[i]
  end
  for i = 1, #more do
    slots[13 + i] = more[i]
  end
  return (raw.op_run(raw.op_find(op), { n = 0 }, slots, reals))
end

--- Draws from a given stream --------------------------------------------------

-- normal and truncated_normal. A tensor as mean or stddev broadcasts and gets
-- gradients; numbers go to the kernel.
local function normal_like(op)
  return function(tf, what, stream, shape, mean, stddev, dtype)
    local slots = shape_slots(what, shape)
    dtype = floating(what, dtype)
    local more = { raw.enums.dtype[dtype] }
    if type(mean) == "number" and type(stddev) == "number" then
      return draw(op, slots, stream, more, { mean, stddev })
    end
    local z = draw(op, slots, stream, more, { 0, 1 })
    stddev = convert.operand(stddev, dtype, what, "stddev")
    mean = convert.operand(mean, dtype, what, "mean")
    return tf.add(tf.multiply(z, stddev), mean)
  end
end

local normal = normal_like "stateless_normal"
local truncated_normal = normal_like "stateless_truncated_normal"

local function integer_bound(what, name, x)
  tracing.need_numbers(what, name, x, "bounds of whole numbers",
    "tf.cast(tf.floor(tf.random.uniform(shape, low, high)), \"int32\") takes "
    .. "float32 tensors, or draw outside of the function")
  local value = number_of(x)
  if value == nil and raw.is_operand(x) then
    errors.raise("NotImplementedError", ("%s: %s of an integer draw must be a "
      .. "number; tensors with several bounds work for floating-point dtypes")
      :format(what, name))
  end
  return options.integer(what, name, value == nil and x or value)
end

local function uniform_integer(what, slots, stream, low, high, dtype)
  if high == nil then
    errors.raise("ValueError", ("%s: maxval must be given for dtype %s")
      :format(what, dtype))
  end
  low = integer_bound(what, "minval", low)
  high = integer_bound(what, "maxval", high)
  if low >= high then
    tracing.refuse_values("InvalidArgument", ("%s: minval is %s and maxval is "
      .. "%s; maxval is exclusive and must be larger"):format(what,
      text.number(low), text.number(high)))
    low, high = 0, 1
  end
  return draw("stateless_uniform_int", slots, stream,
    { low, high, 0, raw.enums.dtype[dtype] }, {})
end

local function uniform(tf, what, stream, shape, minval, maxval, dtype)
  local slots = shape_slots(what, shape)
  dtype = convert.dtype(dtype, what)
  if convert.INTEGER[dtype] then
    return uniform_integer(what, slots, stream, minval, maxval, dtype)
  end
  dtype = floating(what, dtype)
  maxval = maxval == nil and 1 or maxval
  local more = { raw.enums.dtype[dtype] }
  if type(minval) == "number" and type(maxval) == "number" then
    if minval > maxval then
      tracing.refuse_values("InvalidArgument", ("%s: minval is %s and maxval is "
        .. "%s; minval must not be larger"):format(what, text.number(minval),
        text.number(maxval)))
      minval, maxval = 0, 1
    end
    return draw("stateless_uniform", slots, stream, more, { minval, maxval })
  end
  local u = draw("stateless_uniform", slots, stream, more, { 0, 1 })
  minval = convert.operand(minval, dtype, what, "minval")
  maxval = convert.operand(maxval, dtype, what, "maxval")
  return tf.add(tf.multiply(u, tf.subtract(maxval, minval)), minval)
end

local function uniform_full_int(_, what, stream, shape, dtype)
  local slots = shape_slots(what, shape)
  dtype = dtype_of(what, dtype, convert.INTEGER, "an integer dtype")
  return draw("stateless_uniform_int", slots, stream,
    { 0, 0, 1, raw.enums.dtype[dtype] }, {})
end

local function categorical(_, what, stream, logits, num_samples, dtype)
  logits = convert.operand(logits, nil, what, "logits")
  num_samples = convert.integer(num_samples, what, "num_samples", 0)
  dtype = dtype_of(what, dtype or "int64", { int32 = true, int64 = true },
    "int32 or int64")
  return (raw.op_run(raw.op_find "stateless_categorical", { logits }, {
    num_samples, stream[1], stream[2], stream[3], stream[4],
    raw.enums.dtype[dtype],
  }, {}))
end

local function shuffle(_, what, stream, value)
  value = convert.operand(value, nil, what, "value")
  return (raw.op_run(raw.op_find "stateless_shuffle", { value }, stream, {}))
end

-- Sizes of `shape` followed by those of tensor t.
local function outer_shape(what, shape, t)
  local dims = convert.integers(shape, what, "shape")
  return lists.append(dims, t.shape)
end

-- A draw with a parameter for each element, in the shape `dims`.
local function draw_with(op, what, stream, parameter, dims, dtype)
  local slots = shape_slots(what, dims)
  for i = 1, 4 do
    slots[9 + i] = stream[i]
  end
  slots[14] = dtype and raw.enums.dtype[dtype]
  return (raw.op_run(raw.op_find(op), { parameter }, slots, {}))
end

-- gamma: `outer` says whether the parameters' shape is added to `shape`.
-- Gradients reach beta; alpha has none.
local function gamma_like(outer)
  return function(tf, what, stream, shape, alpha, beta, dtype)
    dtype = floating(what, dtype)
    alpha = convert.operand(alpha, dtype, what, "alpha")
    if beta ~= nil then
      beta = convert.operand(beta, dtype, what, "beta")
      alpha = tf.add(alpha, tf.zeros_like(beta))
    end
    local dims = outer and outer_shape(what, shape, alpha) or shape
    local x = draw_with("stateless_gamma", what, stream, alpha, dims)
    if beta ~= nil then
      return tf.divide(x, beta)
    end
    return x
  end
end

local gamma, stateless_gamma = gamma_like(true), gamma_like(false)

local function rate_of(what, lam)
  lam = convert.operand(lam, nil, what, "lam")
  if not convert.FLOATING[lam.dtype] then
    errors.raise("InvalidArgument", ("%s: lam is %s; expected a floating-point"
      .. " dtype"):format(what, lam.dtype))
  end
  return lam
end

local function count_dtype(what, dtype)
  dtype = convert.dtype(dtype, what)
  if dtype == "bool" then
    errors.raise("InvalidArgument", what .. ": dtype is bool; expected a "
      .. "number's dtype")
  end
  return dtype
end

local function poisson(_, what, stream, shape, lam, dtype)
  dtype = count_dtype(what, dtype)
  lam = rate_of(what, lam)
  return draw_with("stateless_poisson", what, stream, lam,
    outer_shape(what, shape, lam), dtype)
end

local function stateless_poisson(_, what, stream, shape, lam, dtype)
  dtype = count_dtype(what, dtype)
  return draw_with("stateless_poisson", what, stream, rate_of(what, lam),
    shape, dtype)
end

--- Names ----------------------------------------------------------------------

-- Every draw: its function, required arguments, optional ones.
local DRAWS = {
  { "normal", normal, "shape", "mean=0 stddev=1 dtype=float32", 4 },
  { "truncated_normal", truncated_normal, "shape",
    "mean=0 stddev=1 dtype=float32", 4 },
  { "uniform", uniform, "shape", "minval=0 maxval=nil dtype=float32", 4 },
  { "categorical", categorical, "logits num_samples", "dtype=nil", 3 },
  { "shuffle", shuffle, "value", "", 1 },
}

-- fn(..., seed) drawing from the global state.
local function define_stateful(tf, def, name, fn, signature, n)
  local what = "random." .. name
  local paths = what
  if name == "shuffle" then
    paths = what .. " random_shuffle"
  end
  def(paths, signature .. " seed=nil name=nil", function(...)
    local stream = lists.of(random_seed.next(what, (select(n + 1, ...))))
    return fn(tf, what, stream, ...)
  end)
end

-- fn(required..., seed, optional...), a function of its arguments.
local function define_stateless(tf, def, name, fn, required, optional)
  local what = "random.stateless_" .. name
  local paths = what
  if name == "shuffle" then
    paths = what .. " random.experimental.stateless_shuffle"
  end
  local before = select(2, required:gsub("%S+", ""))
  local alg = before + 1 + select(2, optional:gsub("%S+", "")) + 1
  -- The seed may come by name in a table of options: not a required
  -- parameter to the calling rule, but to this function.
  local signature = ("%s seed=nil %s alg=auto_select name=nil"):format(
    required, optional)
  def(paths, signature, function(...)
    check_algorithm(what, (select(alg, ...)))
    local stream = lists.of(random_seed.pair(what, (select(before + 1, ...)),
      convert.integers))
    -- Without the seed; what comes after the last one fn does not look at.
    if before == 2 then
      local x, y, _, z = ...
      return fn(tf, what, stream, x, y, z)
    end
    local x, _, y, z, w = ...
    return fn(tf, what, stream, x, y, z, w)
  end)
end

local function define_seeds(tf, def)
  def("random.split random.experimental.stateless_split",
    "seed num=2 alg=auto_select name=nil", function(seed, num, alg)
      local what = "random.split"
      check_algorithm(what, alg)
      num = options.integer(what, "num", num, 0)
      local stream = lists.of(random_seed.pair(what, seed, convert.integers))
      return uniform_full_int(tf, what, stream, { num, 2 }, "int32")
    end)
  def("random.fold_in random.experimental.stateless_fold_in",
    "seed data alg=auto_select name=nil", function(seed, data, alg)
      local what = "random.fold_in"
      check_algorithm(what, alg)
      local stream = lists.of(random_seed.pair(what, seed, convert.integers))
      tracing.need_seed(what, "data", data)
      local first = uniform_full_int(tf, what, stream, { 1 }, "int32")
      local number = number_of(data)
      if number == nil then
        number = data
      end
      number = options.integer(what, "data", number)
      return tf.constant({ raw.item(first), number }, { dtype = "int64" })
    end)
end

--- Called by the op loader.
---@param tf table
---@param def fun(paths:string, signature:string, fn:function)
function M.define(tf, def)
  for i = 1, #DRAWS do
    local name, fn, required, optional, n = unpack(DRAWS[i])
    define_stateful(tf, def, name, fn, required .. " " .. optional, n)
    define_stateless(tf, def, name, fn, required, optional)
  end
  define_stateful(tf, def, "gamma", gamma,
    "shape alpha beta=nil dtype=float32", 4)
  define_stateful(tf, def, "poisson", poisson,
    "shape lam dtype=float32", 3)
  define_stateless(tf, def, "gamma", stateless_gamma, "shape",
    "alpha beta=nil dtype=float32")
  define_stateless(tf, def, "poisson", stateless_poisson, "shape",
    "lam dtype=int32")
  def("random.set_seed", "seed", random_seed.set_seed)
  define_seeds(tf, def)
  generator.define(tf, def, {
    normal = normal, truncated_normal = truncated_normal, uniform = uniform,
    uniform_full_int = uniform_full_int,
  })
end

return M
