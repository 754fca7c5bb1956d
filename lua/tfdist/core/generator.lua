--- tf.random.Generator: an own stream of random numbers that does not depend
--- on the global seed or on what others draw.
---
---   local g = tf.random.Generator.from_seed(1)
---   g:normal({ 2, 3 })            -- and truncated_normal, uniform, ...
---   local a, b = unpack(g:split(2))
---
--- Its state is a seed ("key") and the number of draws so far ("counter").
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local Generator = { __name = "Generator" }
local methods = {}
local getters = {}
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function is_generator(x)
  return getmetatable(x) == Generator
end

M.is_generator = is_generator

-- As for TensorFlow's, whose state is a variable: traced functions make one at
-- their first trace only. Errors: ValueError at another one.
local function new(key, counter)
  tracing.made_variable "Generator"
  return setmetatable({ _key = key % 2 ^ 53, _counter = counter % 2 ^ 53 },
    Generator)
end

function Generator.__names()
  return text.names(methods, getters)
end

function Generator.__index(self, name)
  if methods[name] ~= nil then
    return methods[name]
  elseif getters[name] ~= nil then
    return getters[name](self)
  elseif type(name) == "string" and name:find("^%a") then
    errors.raise("KeyError", "a Generator has no field or method "
      .. text.quote(name), text.suggestion(name, Generator.__names(), "method"))
  end
  return nil
end

function Generator.__tostring(self)
  return ("<Generator: philox, key %.0f, %.0f draws>"):format(self._key,
    self._counter)
end

-- Checkpoints hold key and counter.
function Generator.__checkpoint_state(self)
  return { key = self._key, counter = self._counter }
end

function Generator.__checkpoint_restore(self, saved)
  if not (text.is_plain(saved) and text.is_int64(saved.key)
    and text.is_int64(saved.counter)) then
    errors.raise("ValueError", "this is no state of a Generator: "
      .. text.describe(saved))
  end
  self._key, self._counter = saved.key % 2 ^ 53, saved.counter % 2 ^ 53
end

function getters.algorithm()
  return "philox"
end

function getters.key(self)
  return self._key
end

--- int64 tensor {counter, 0, key}, accepted by from_state and reset.
function getters.state(self)
  return raw.tensor_from_table({ self._counter, 0, self._key }, "int64")
end

-- The stream of the next draw.
local function advance(self)
  return lists.of(random_seed.at_each_call(function()
    local counter = self._counter
    self._counter = (counter + 1) % 2 ^ 53
    return random_seed.stream(random_seed.GENERATOR, self._key,
      random_seed.of_worker(counter))
  end))
end

local function check_algorithm(what, alg)
  options.choice(what, "alg", alg, { "philox", "auto_select" })
end

local function read_state(what, state)
  if is_generator(state) then
    return state._key, state._counter
  end
  local list = convert.integers(state, what, "state")
  if #list ~= 3 then
    errors.raise("InvalidArgument", ("%s: a Philox state has 3 numbers, got %d")
      :format(what, #list), "pass another generator's .state")
  end
  return list[3], list[1]
end

local function method(name, signature, fn)
  methods[name] = options.method("Generator." .. name, signature, fn,
    is_generator, "generator")
end

--- Start again: from a state, from a seed, from key and counter.
method("reset", "state", function(self, state)
  local key, counter = read_state("Generator.reset", state)
  self._key, self._counter = key % 2 ^ 53, counter % 2 ^ 53
end)

method("reset_from_seed", "seed", function(self, seed)
  self._key = random_seed.check("Generator.reset_from_seed", seed) % 2 ^ 53
  self._counter = 0
end)

method("reset_from_key_counter", "key counter", function(self, key, counter)
  local what = "Generator.reset_from_key_counter"
  self._key = random_seed.check(what, key, "key") % 2 ^ 53
  self._counter = random_seed.check(what, counter, "counter") % 2 ^ 53
end)

--- Leave out `delta` draws.
method("skip", "delta", function(self, delta)
  self._counter = (self._counter
    + random_seed.check("Generator.skip", delta, "delta")) % 2 ^ 53
end)

-- Elements of one block of trials.
local BLOCK = 2 ^ 20

-- Trials in blocks; those past an element's own count do not count.
local function draw_binomial(tf, draws, self, shape, counts, probs, dtype)
  local what = "Generator.binomial"
  local dims = convert.integers(shape, what, "shape")
  counts = tf.cast(convert.tensor(counts, nil, what, "counts"), "float64")
  probs = tf.cast(convert.tensor(probs, nil, what, "probs"), "float64")
  local most, size = 0, 1
  for _, n in ipairs(raw.tensor_to_flat(counts)) do
    if not (n >= 0 and n < 2 ^ 31) then
      errors.raise("InvalidArgument", what .. ": counts must be 0 or more, got "
        .. text.number(n))
    end
    most = math.max(most, math.floor(n))
  end
  for _, p in ipairs(raw.tensor_to_flat(probs)) do
    if not (p >= 0 and p <= 1) then
      errors.raise("InvalidArgument", what .. ": probs must be in 0..1, got "
        .. text.number(p))
    end
  end
  for i = 1, #dims do
    size = size * math.max(dims[i], 1)
  end
  local total = tf.zeros(dims, "float64")
  local rows = math.max(1, math.floor(BLOCK / size))
  local block, ones = { 1 }, { 1 }
  for i = 1, #dims do
    block[i + 1], ones[i + 1] = dims[i], 1
  end
  for first = 0, most - 1, rows do
    block[1] = math.min(rows, most - first)
    local u = draws.uniform(tf, what, advance(self), block, 0, 1, "float64")
    local trial = tf.reshape(tf.range(first, first + block[1],
      { dtype = "float64" }), { block[1], unpack(ones, 2) })
    total = total + tf.reduce_sum(tf.cast(tf.logical_and(tf.less(u, probs),
      tf.less(trial, tf.floor(counts))), "float64"), 0)
  end
  return tf.cast(total, convert.dtype(dtype, what))
end

local function split(tf, draws, self, count)
  -- Two 32-bit draws make the 53 bits of a key, exact on every engine.
  local halves = raw.tensor_to_flat(draws.uniform(tf, "Generator.split",
    advance(self), { 2 * count }, 0, 2 ^ 32, "int64"))
  local list = {}
  for i = 1, count do
    list[i] = new(halves[2 * i - 1] + halves[2 * i] % 2 ^ 21 * 2 ^ 32, 0)
  end
  return list
end

local function define_methods(tf, draws)
  method("normal", "shape mean=0 stddev=1 dtype=float32 name=nil",
    function(self, shape, mean, stddev, dtype)
      return draws.normal(tf, "Generator.normal", advance(self), shape, mean,
        stddev, dtype)
    end)
  method("truncated_normal", "shape mean=0 stddev=1 dtype=float32 name=nil",
    function(self, shape, mean, stddev, dtype)
      return draws.truncated_normal(tf, "Generator.truncated_normal",
        advance(self), shape, mean, stddev, dtype)
    end)
  method("uniform", "shape minval=0 maxval=nil dtype=float32 name=nil",
    function(self, shape, minval, maxval, dtype)
      return draws.uniform(tf, "Generator.uniform", advance(self), shape,
        minval, maxval, dtype)
    end)
  --- How many of `counts` trials succeed, each with probability `probs`; both
  --- broadcast to the last axes of `shape`.
  --- Shapes: the result is shape. Costs counts draws for each element.
  --- Errors: InvalidArgument for negative counts, or probabilities outside
  ---   0..1.
  --- Source: tf.random.Generator.binomial
  method("binomial", "shape counts probs dtype=int32 name=nil",
    function(self, shape, counts, probs, dtype)
      return draw_binomial(tf, draws, self, shape, counts, probs, dtype)
    end)
  method("uniform_full_int", "shape dtype=int64 name=nil",
    function(self, shape, dtype)
      return draws.uniform_full_int(tf, "Generator.uniform_full_int",
        advance(self), shape, dtype)
    end)
  --- Seeds for stateless functions: int64 tensor {2, count}, a column each.
  method("make_seeds", "count=1", function(self, count)
    local what = "Generator.make_seeds"
    count = options.integer(what, "count", count, 0)
    return draws.uniform_full_int(tf, what, advance(self), { 2, count },
      "int64")
  end)
  --- A list of `count` generators whose numbers are independent of this one's
  --- and of each other's.
  method("split", "count=1", function(self, count)
    local what = "Generator.split"
    count = options.integer(what, "count", count, 0)
    if count > 0 then
      tracing.made_variable "Generator"
    end
    -- The first trace makes them, from numbers that are there then.
    return tracing.lifted(split, tf, draws, self, count)
  end)
end

--- Publish tf.random.Generator and the global generator.
---@param tf table
---@param def function
---@param draws table   draw functions (tf, what, stream, arguments...)
function M.define(tf, def, draws)
  define_methods(tf, draws)
  local class = "random.Generator."
  def(class .. "from_seed", "seed alg=philox", function(seed, alg)
    check_algorithm("Generator.from_seed", alg)
    return new(random_seed.check("Generator.from_seed", seed), 0)
  end)
  def(class .. "from_state", "state alg=philox", function(state, alg)
    check_algorithm("Generator.from_state", alg)
    return new(read_state("Generator.from_state", state))
  end)
  def(class .. "from_key_counter", "key counter alg=philox",
    function(key, counter, alg)
      local what = "Generator.from_key_counter"
      check_algorithm(what, alg)
      return new(random_seed.check(what, key, "key"),
        random_seed.check(what, counter, "counter"))
    end)
  def(class .. "from_non_deterministic_state", "alg=philox", function(alg)
    check_algorithm("Generator.from_non_deterministic_state", alg)
    return new(random_seed.entropy(), 0)
  end)
  local global
  def("random.get_global_generator", "", function()
    global = global or tracing.lifted(new, random_seed.entropy(), 0)
    return global
  end)
  def("random.set_global_generator", "generator", function(generator)
    if not is_generator(generator) then
      errors.raise("TypeError", "random.set_global_generator: generator must "
        .. "be a tf.random.Generator")
    end
    global = generator
  end)
end

return M
