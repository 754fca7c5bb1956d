--- Gradients that users define: tf.custom_gradient and its relatives.
---
--- The function runs as usual (recorded, so that its parts can be part of
--- higher derivatives); then a step from its arguments to its results replaces
--- what was recorded for the results.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local gradient_tape = require "tfdist.core.gradient_tape"
local nest = require "tfdist.base.nest"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local getmetatable, select, type = getmetatable, select, type
local unpack = table.unpack or unpack -- luacheck: ignore 113 143

local function pack(...)
  return { n = select("#", ...), ... }
end

--- Values ---------------------------------------------------------------------

local function is_tensor(x)
  if type(x) == "userdata" then
    return raw.is_operand(x)
  end
  local meta = getmetatable(x)
  return type(meta) == "table" and meta.__tensor ~= nil
end

-- The tensors among a structure's leaves, as operands; `at[i]` is the leaf's
-- number, `leaves` their count.
local function tensors_of(structure, what)
  local flat = nest.leaves(what, structure)
  local list = { n = 0, at = {}, leaves = flat.n, flat = flat }
  for i = 1, flat.n do
    if is_tensor(flat[i]) then
      list.n = list.n + 1
      list[list.n] = convert.operand(flat[i], nil, what, "argument")
      list.at[list.n] = i
    end
  end
  return list
end

local function identity(x)
  return (raw.op_run(raw.op_find "identity", { x, n = 1 }))
end

-- The same value under an id of its own, which no tape follows yet.
local function unfollowed(x)
  raw.tape_pause_all(true)
  return state.protect(function()
    raw.tape_pause_all(false)
  end, identity, x)
end

-- Like x: dtype and shape without the elements.
local function shape_of(x)
  return { dtype = raw.tensor_dtype(x), dims = raw.tensor_dims(x) }
end

-- Outputs that no gradient reached get zeros, as gradient functions expect.
local function fill_zeros(grads, n, shapes)
  for i = 1, n do
    if grads[i] == nil then
      local shape = shapes[i]
      grads[i] = raw.tensor_from_values({ 0 }, shape.dtype, shape.dims)
    end
  end
  return grads
end

--- Recording ------------------------------------------------------------------

-- Call fn(...) and find out which variables it uses; the results are packed.
local function watch_variables(fn, args)
  local watcher = raw.tape_new(false, true)
  local variables = { n = 0 }
  local results = state.protect(function()
    raw.tape_stop(watcher)
    for i = 1, raw.tape_variable_count(watcher) do
      variables[i] = raw.tape_variable(watcher, i - 1)
      variables.n = i
    end
    raw.release(watcher)
  end, function()
    return pack(fn(unpack(args, 1, args.n)))
  end)
  return results, variables
end

-- The variables among these operands, as keys: a trace reads one under a new id
-- each time, and of a mirrored one this is the copy in use here.
local function variables_in(inputs)
  local _, variables = watch_variables(function()
    for i = 1, inputs.n do
      if raw.kind(inputs[i]) ~= "tensor" then
        identity(inputs[i])
      end
    end
  end, { n = 0 })
  local found = {}
  for i = 1, variables.n do
    found[variables[i]] = true
  end
  return found
end

local function without_inputs(variables, inputs)
  local given = variables_in(inputs)
  local list = { n = 0 }
  for i = 1, variables.n do
    if not given[variables[i]] then
      list.n = list.n + 1
      list[list.n] = variables[i]
    end
  end
  return list
end

-- Results with their tensors under new ids, and these tensors as a list.
local function renew(results, n, what)
  local outputs = { n = 0 }
  local structure = { n = n }
  for i = 1, n do
    structure[i] = nest.map(what, function(x)
      if x == nil then
        return nil
      end
      local t = unfollowed(convert.operand(x, nil, what, "result"))
      outputs.n = outputs.n + 1
      outputs[outputs.n] = t
      return t
    end, results[i])
  end
  return structure, outputs
end

-- Results when no tape records: tensors too, as TensorFlow's.
local function as_tensors(results, n, what)
  for i = 1, n do
    results[i] = nest.map(what, function(x)
      return x ~= nil and convert.operand(x, nil, what, "result") or nil
    end, results[i])
  end
  return unpack(results, 1, n)
end

-- Record a step from inputs and variables to outputs.
local function record(inputs, variables, outputs, step)
  local all = { n = inputs.n + variables.n }
  for i = 1, inputs.n do
    all[i] = inputs[i]
  end
  for i = 1, variables.n do
    all[inputs.n + i] = variables[i]
  end
  local shapes = {}
  for i = 1, outputs.n do
    shapes[i] = shape_of(outputs[i])
  end
  gradient_tape.record_step(all, outputs, function(grads, n)
    return step(fill_zeros(grads, n, shapes))
  end)
end

--- custom_gradient ------------------------------------------------------------

-- A Lua value given as a gradient, as a handle (or nil).
local function gradient_value(x, input, what)
  if x == nil or raw.kind(x) == "slices" then
    return x
  end
  return convert.operand(x, raw.tensor_dtype(raw.operand_tensor(input)), what,
    "gradient")
end

-- Results of a gradient function for the arguments, one for each tensor.
-- They may be given one by one or as one list, for all leaves of the arguments
-- or for the tensors among them.
local function match(values, inputs, what)
  if values.n == 1 and nest.is_nested(values[1]) then
    values = nest.leaves(what, values[1])
  end
  local grads = { n = inputs.n }
  for i = 1, inputs.n do
    local at
    if values.n == inputs.n then
      at = i
    elseif values.n == inputs.leaves then
      at = inputs.at[i]
    else
      errors.raise("ValueError", ("%s: expected %d gradients from the gradient "
        .. "function, got %d"):format(what, inputs.n, values.n),
        "return one gradient (or nil) for each argument")
    end
    grads[i] = gradient_value(values[at], inputs[i], what)
  end
  return grads
end

local function append_variables(grads, list, variables, what)
  local n = nest.is_nested(list) and (list.n or #list) or -1
  if n < variables.n and n >= 0 and list.n == nil then
    n = variables.n -- a list that ends in nil
  end
  if n ~= variables.n then
    errors.raise("ValueError", ("%s: the function uses %d variables; the "
      .. "gradient function must return a list of their gradients last, got %s")
      :format(what, variables.n, text.describe(list)))
  end
  for i = 1, n do
    grads[grads.n + i] = gradient_value(list[i], variables[i], what)
  end
  grads.n = grads.n + n
  return grads
end

-- Without room for `variables` the function cannot give their gradients.
local function check_takes_variables(fn, outputs, what)
  local info = type(fn) == "function" and debug.getinfo(fn, "u") or {}
  if info.nparams ~= nil and not info.isvararg and info.nparams <= outputs then
    errors.raise("TypeError", what .. ": the function uses variables, so its "
      .. "gradient function must take them as a last argument and return a "
      .. "list of their gradients last",
      "return grad, variable_grads from function(dy, variables)")
  end
end

local function gradient_step(grad_fn, inputs, variables, what)
  return function(dy)
    local n = dy.n
    if variables.n > 0 then
      n = n + 1
      dy[n] = variables
    end
    local values = pack(grad_fn(unpack(dy, 1, n)))
    local list
    if variables.n > 0 then
      list = values[values.n]
      values[values.n] = nil
      values.n = values.n - 1
    end
    local grads = match(values, inputs, what)
    if variables.n > 0 then
      append_variables(grads, list, variables, what)
    end
    return grads
  end
end

--- Give a function a gradient of its own.
---
--- f(x...) returns its outputs and, last, a function grad(dy...) that gets one
--- gradient for each output and returns one (or nil) for each argument. If f
--- uses variables besides its arguments, it is grad(dy..., variables) and
--- returns a list of the variables' gradients after the others.
--- Errors: TypeError when f returns no gradient function; when the gradient is
---   computed, ValueError for another number of gradients, InvalidArgument for
---   another shape or dtype than the argument's.
--- Source: tf.custom_gradient
---@param f function
---@return function
local function custom_gradient(f)
  local what = "custom_gradient"
  text.check_callable(what, "f", f)
  return function(...)
    tracing.custom_gradient()
    local args = pack(...)
    local results, variables
    local is_recorded = raw.tape_active() > 0
    if is_recorded then
      results, variables = watch_variables(f, args)
    else
      results = pack(f(...))
    end
    local n = results.n - 1
    local grad_fn = results[results.n]
    if n < 1 or not text.is_callable(grad_fn) then
      errors.raise("TypeError", what .. ": f must return its outputs and then "
        .. "a gradient function, got " .. text.describe(grad_fn) .. " last")
    end
    if not is_recorded then
      return as_tensors(results, n, what)
    end
    local inputs = tensors_of(args, what)
    variables = without_inputs(variables, inputs)
    local structure, outputs = renew(results, n, what)
    if variables.n > 0 then
      check_takes_variables(grad_fn, outputs.n, what)
    end
    record(inputs, variables, outputs,
      gradient_step(grad_fn, inputs, variables, what))
    return unpack(structure, 1, n)
  end
end

--- recompute_grad -------------------------------------------------------------

-- Arguments with their tensors replaced by copies that a tape may watch.
local function copy_arguments(args, inputs)
  local copies = { n = inputs.n }
  local flat = { n = inputs.leaves }
  for i = 1, inputs.leaves do
    flat[i] = inputs.flat[i]
  end
  for i = 1, inputs.n do
    copies[i] = identity(inputs[i])
    flat[inputs.at[i]] = copies[i]
  end
  return nest.pack_sequence_as(args, flat), copies
end

local function recompute(f, args, inputs, variables, dy)
  local again, sources = copy_arguments(args, inputs)
  local tape = gradient_tape.new(false, true)
  local results = gradient_tape.record(tape, function()
    tape:watch(sources)
    return pack(f(unpack(again, 1, again.n)))
  end)
  local targets = tensors_of(results, "recompute_grad")
  for i = 1, variables.n do
    sources[sources.n + i] = variables[i]
  end
  sources.n = sources.n + variables.n
  local plain = { n = targets.n }
  for i = 1, targets.n do
    plain[i] = targets[i]
  end
  return tape:gradient(plain, sources, { n = dy.n, unpack(dy, 1, dy.n) },
    "zero")
end

-- What f returned, recorded as one step.
local function recorded(results, inputs, variables, step, what)
  local structure, outputs = renew(results, results.n, what)
  record(inputs, variables, outputs, step)
  return unpack(structure, 1, structure.n)
end

--- A function like f that keeps nothing for the gradient but its arguments:
--- the gradient runs f again. Saves memory, costs a second forward pass.
--- Source: tf.recompute_grad
---@param f function
---@return function
local function recompute_grad(f)
  local what = "recompute_grad"
  text.check_callable(what, "f", f)
  return function(...)
    tracing.custom_gradient()
    if raw.tape_active() == 0 then
      local results = pack(f(...))
      return as_tensors(results, results.n, what)
    end
    local args = pack(...)
    raw.tape_pause_all(true)
    local results, variables = state.protect(function()
      raw.tape_pause_all(false)
    end, watch_variables, f, args)
    local inputs = tensors_of(args, what)
    variables = without_inputs(variables, inputs)
    return recorded(results, inputs, variables, function(dy)
      return recompute(f, args, inputs, variables, dy)
    end, what)
  end
end

--- The rest -------------------------------------------------------------------

--- A function like f whose gradient is that of the identity: gradients of the
--- outputs become those of the arguments, one for one. Variables that f uses
--- get none.
--- Source: tf.grad_pass_through
---@param f function
---@return function
local function grad_pass_through(f)
  local what = "grad_pass_through"
  text.check_callable(what, "f", f)
  return function(...)
    tracing.custom_gradient()
    if raw.tape_active() == 0 then
      local results = pack(f(...))
      return as_tensors(results, results.n, what)
    end
    local args = pack(...)
    local results = pack(f(...))
    local inputs = tensors_of(args, what)
    return recorded(results, inputs, { n = 0 }, function(dy)
      return match(dy, inputs, what)
    end, what)
  end
end

--- Put the functions into tf.
function M.install(_, def)
  def("custom_gradient", "f", custom_gradient)
  def("recompute_grad", "f", recompute_grad)
  def("grad_pass_through", "f", grad_pass_through)

  --- The same values; no gradient flows back through them.
  --- Source: tf.stop_gradient
  def("stop_gradient", "input name=nil", function(input)
    local x = convert.operand(input, nil, "stop_gradient", "input")
    tracing.note_unfollowed(x)
    return unfollowed(x)
  end, "stop_gradient")

  --- Errors: NotImplementedError: graphs have no symbolic gradients here.
  --- Source: tf.gradients
  def("gradients", "ys xs=nil grad_ys:table=nil name=nil", function()
    errors.raise("NotImplementedError", "gradients: there are no symbolic "
      .. "gradients", "use tf.GradientTape")
  end)
end

return M
