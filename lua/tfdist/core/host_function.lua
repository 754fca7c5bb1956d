--- tf.py_function and tf.numpy_function: Lua code that runs at each call of a
--- traced function, where it stands among the ops.
---
--- What it gives must be known at the trace: Tout says it with tf.TensorSpec.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local gradient_tape = require "tfdist.core.gradient_tape"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local FLOATING = convert.FLOATING

-- What comes and goes ----------------------------------------------------------

-- What each result is to be: { dtype, dims or nil }, a list with n.
local function wanted_of(what, Tout)
  if Tout == nil then
    return { n = 0 }
  elseif not text.is_plain(Tout) then
    Tout = { Tout }
  end
  local list, n = options.list(what, "Tout", Tout, "dtypes or tf.TensorSpec")
  local wanted = { n = n }
  for i = 1, n do
    local x = list[i]
    if type(x) == "table" and type(x.dtype) == "string" then
      wanted[i] = { dtype = x.dtype, dims = x.shape }
    else
      wanted[i] = { dtype = convert.dtype(x, what) }
    end
  end
  return wanted
end

local function inputs_of(what, inp)
  local list, n = options.list(what, "inp", inp == nil and {} or inp, "tensors")
  local inputs = { n = n }
  for i = 1, n do
    inputs[i] = convert.tensor(list[i], nil, what, ("inp[%d]"):format(i))
  end
  return inputs
end

local function agree(dims, want)
  local good = want == nil or #want == #dims
  for axis = 1, good and want and #dims or 0 do
    good = good and (want[axis] < 0 or want[axis] == dims[axis])
  end
  return good
end

-- The results of func as tensors of the kinds that Tout names.
local function results_of(what, wanted, ...)
  local n = select("#", ...)
  if n ~= wanted.n then
    errors.raise("InvalidArgument", ("%s: func returns %d values, but expects "
      .. "%d by Tout"):format(what, n, wanted.n))
  end
  local out = { n = n }
  for i = 1, n do
    local want = wanted[i]
    local t = convert.tensor((select(i, ...)), want.dtype, what,
      ("value %d of func"):format(i))
    if raw.tensor_dtype(t) ~= want.dtype then
      errors.raise("InvalidArgument", ("%s: value %d returned by func is %s, "
        .. "but expects %s"):format(what, i, raw.tensor_dtype(t), want.dtype))
    elseif not agree(raw.tensor_dims(t), want.dims) then
      errors.raise("InvalidArgument", ("%s: value %d returned by func has shape "
        .. "%s, but expects %s"):format(what, i, text.shape(raw.tensor_dims(t)),
        text.shape(want.dims)))
    end
    out[i] = t
  end
  return out
end

local function call(what, fn, wanted, inputs)
  return results_of(what, wanted, tracing.call_host(what, fn,
    unpack(inputs, 1, inputs.n)))
end

-- In a graph -------------------------------------------------------------------

local function specs_of(what, wanted)
  for i = 1, wanted.n do
    if wanted[i].dims == nil then
      errors.raise("NotImplementedError", ("%s: the shape of value %d is not "
        .. "known at the trace"):format(what, i),
        "Tout = tf.TensorSpec(shape, dtype) says it")
    end
  end
  return wanted
end

-- Numbers of the floating values among these.
local function floating(list)
  local found = {}
  for i = 1, list.n do
    if FLOATING[raw.tensor_dtype(list[i])] then
      found[#found + 1] = i
    end
  end
  return found
end

local function pick(list, numbers)
  local out = { n = #numbers }
  for k, i in ipairs(numbers) do
    out[k] = list[i]
  end
  return out
end

-- The step of the host that goes back over what the latest call recorded.
local function differentiate(what, site, inputs, grads)
  if site.is_part or tracing.is_part() then
    errors.raise("NotImplementedError", what .. ": no gradient here: a step of "
      .. "the host in a branch or a loop has none in the graph")
  end
  local given, numbers = { n = 0 }, {}
  for i = 1, site.outputs_n do
    if grads[i] ~= nil then
      given.n = given.n + 1
      given[given.n], numbers[given.n] = grads[i], i
    end
  end
  local answers = { n = inputs.n }
  for k = 1, inputs.n do
    answers[k] = { dtype = raw.tensor_dtype(inputs[k]),
      dims = raw.tensor_dims(inputs[k]), device = raw.tensor_device(inputs[k]) }
  end
  local out = tracing.host(given, function(...)
    local targets = pick(site.results, numbers)
    local list = site.tape:gradient(targets, site.inputs,
      { output_gradients = { n = given.n, ... },
        unconnected_gradients = "zero" })
    for k = 1, inputs.n do
      list[k] = convert.tensor(list[k], nil, what, "gradient")
    end
    return { n = inputs.n, unpack(list, 1, inputs.n) }
  end, answers)
  local sources = { n = given.n + inputs.n, unpack(given, 1, given.n) }
  for k = 1, inputs.n do
    sources[given.n + k] = inputs[k]
  end
  gradient_tape.record_step(sources, out, function()
    errors.raise("NotImplementedError", what .. ": no gradients of gradients in "
      .. "a traced function", "tapes around the call have them")
  end)
  return out
end

-- Like call, with a tape that keeps what the latest call did.
local function recorded(what, fn, wanted, site, numbers)
  return function(...)
    local given = { n = select("#", ...), ... }
    site.inputs = pick(given, numbers)
    site.tape = gradient_tape.new(true, false)
    site.results = state.protect(function()
      site.tape:close()
    end, function()
      site.tape:watch(site.inputs)
      return call(what, fn, wanted, given)
    end)
    return site.results
  end
end

local function in_graph(what, fn, wanted, inputs, has_gradient)
  specs_of(what, wanted)
  local numbers = floating(inputs)
  if not has_gradient or raw.tape_active() == 0 or #numbers == 0 then
    return tracing.host(inputs, function(...)
      return call(what, fn, wanted, { n = select("#", ...), ... })
    end, wanted)
  end
  local site = { is_part = tracing.is_part(), outputs_n = wanted.n }
  local out = tracing.host(inputs, recorded(what, fn, wanted, site, numbers),
    wanted)
  local sources = pick(inputs, numbers)
  gradient_tape.record_step(sources, out, function(grads)
    return differentiate(what, site, sources, grads)
  end)
  return out
end

-- Functions --------------------------------------------------------------------

local function run(what, fn, inp, Tout, has_gradient)
  text.check_callable(what, "func", fn)
  local wanted, inputs = wanted_of(what, Tout), inputs_of(what, inp)
  local out
  if tracing.current() == nil then
    out = call(what, fn, wanted, inputs)
  else
    out = in_graph(what, fn, wanted, inputs, has_gradient)
  end
  return unpack(out, 1, out.n)
end

--- Put the functions into tf.
function M.install(_, def)
  --- func(inp...), where inp are tensors, at each call of a traced function
  --- too. Tout: dtype or TensorSpec of what func gives, a list of them for
  --- several; traced functions need TensorSpecs. It has gradients.
  --- Errors: InvalidArgument when func gives other things than Tout says.
  --- Source: tf.py_function
  def("py_function", "func inp=nil Tout=nil name=nil", function(fn, inp, Tout)
    return run("py_function", fn, inp, Tout, true)
  end)

  --- The same for a function of plain Lua values: numbers and lists of them.
  --- It has no gradients. Source: tf.numpy_function
  def("numpy_function", "func inp=nil Tout=nil stateful=true name=nil",
    function(fn, inp, Tout)
      text.check_callable("numpy_function", "func", fn)
      return run("numpy_function", function(...)
        local list = { n = select("#", ...), ... }
        for i = 1, list.n do
          list[i] = list[i]:totable()
        end
        return fn(unpack(list, 1, list.n))
      end, inp, Tout, false)
    end)
end

return M
