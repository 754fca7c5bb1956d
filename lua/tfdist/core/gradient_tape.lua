--- tf.GradientTape: record what is computed, then differentiate it.
---
--- The tape itself is C. Gradient functions written in Lua are steps of the
--- tape: they have a number, the walk stops at them and `run` calls them.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local kinds = require "tfdist.base.kinds"
local lists = require "tfdist.base.lists"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"

local M = {}

--- What the distribution layer answers, put in once. container(variable): the
--- distributed variable that a copy belongs to, else the argument.
--- spread(sources, n): the list with copies in place of variables that stand
--- for several, and how many for each; nil without any. fold(grads, n, counts):
--- the gradients of such a list -> those of the n sources.
local hooks = {}
M.hooks = hooks

local getmetatable, setmetatable, type = getmetatable, setmetatable, type

local Tape = { __name = "GradientTape" }
Tape.__index = Tape
text.watch_methods("GradientTape", Tape)

local CONNECTIONS = { "none", "zero" }

-- Tapes that record, for record_step. Weak: a forgotten tape may go.
local recording = setmetatable({}, { __mode = "k" })

local function is_tape(x)
  return getmetatable(x) == Tape
end

kinds.add("tape", "a tf.GradientTape", is_tape)

--- Steps ----------------------------------------------------------------------

local last_step = 0

--- Record a step whose gradient `fn` computes, on every recording tape.
--- fn(grads, n, walk) gets one gradient (or nil) for each output and returns a
--- list with one gradient (or nil) for each input, or nothing if it has supplied
--- the walk with them; raw.walk_wanted says which are wanted.
---@param inputs table   operands, with n
---@param outputs table  tensors, with n
---@param fn function
function M.record_step(inputs, outputs, fn)
  last_step = last_step + 1
  for tape in pairs(recording) do
    tape.steps[last_step] = fn
  end
  raw.tape_record_host(last_step, inputs, outputs)
end

--- Does the tape take part in record_step? One of a part that is not being
--- traced does not: it would hold on to the steps of others.
function M.takes_steps(tape, on)
  recording[tape] = on and true or nil
end

--- May the one tape that records now follow gradients that it takes, too?
function M.may_follow_gradients()
  for tape in pairs(recording) do
    if tape.persistent then
      return true
    end
  end
  return false
end

--- Let the tape of a part follow what other tapes follow.
function M.follow_others(tape)
  for other in pairs(recording) do
    if other ~= tape then
      raw.tape_follow_tape(tape.handle, other.handle)
    end
  end
end

local function run_step(tape, walk)
  local number, n = raw.walk_host(walk)
  local step = tape.steps[number]
  if step == nil then
    errors.raise("Internal", "GradientTape.gradient: the gradient function of "
      .. "a custom gradient is gone")
  end
  local grads = { n = n }
  for i = 1, n do
    grads[i] = raw.walk_output_grad(walk, i - 1)
  end
  local given = step(grads, n, walk)
  if given ~= nil then
    raw.walk_supply(walk, given)
  end
end

local function collect(tape, walk, n)
  while raw.walk_next(walk) == "host" do
    run_step(tape, walk)
  end
  return raw.walk_gradients(walk, n)
end

local function walk_back(tape, targets, sources, n, grads, zeros)
  local walk = raw.walk_begin(tape.handle, targets, sources, grads, zeros)
  return state.protect(function()
    raw.release(walk)
  end, collect, tape, walk, n)
end

-- The gradients of one walk for n sources, a list with n.
local function run(tape, targets, sources, n, grads, zeros)
  local all, counts
  if hooks.spread ~= nil then
    all, counts = hooks.spread(sources, n)
  end
  if all == nil then
    return walk_back(tape, targets, sources, n, grads, zeros)
  end
  return hooks.fold(walk_back(tape, targets, all, all.n, grads, zeros), n, counts)
end

--- Arguments ------------------------------------------------------------------

-- The operand behind a target or source; Lua numbers are no such thing.
local function operand(x, what, name)
  if type(x) == "userdata" and raw.is_operand(x) then
    return x
  end
  local meta = getmetatable(x)
  if type(x) == "userdata"
    or (type(meta) == "table" and meta.__tensor ~= nil) then
    return convert.operand(x, nil, what, name)
  end
  errors.raise("TypeError", ("%s: %s must be a tensor or variable, got %s")
    :format(what, name, text.describe(x)),
    type(x) == "number" and "make it a tensor with tf.constant before fn runs"
    or type(x) == "table" and (getmetatable(x) or {}).is_keras_layer
    and "its weights are in the field trainable_variables" or nil)
end

-- The leaves of a structure as operands: a list with n.
local function leaves(structure, what, name)
  local flat = nest.leaves(what, structure)
  for i = 1, flat.n do
    local x = flat[i]
    if type(x) ~= "userdata" or not raw.is_operand(x) then
      flat[i] = operand(x, what, nest.is_nested(structure)
        and ("%s (leaf %d)"):format(name, i) or name)
    end
  end
  return flat
end

-- The same as a list, which is the structure itself where that is a list of
-- operands, and its length.
local function operands(structure, what, name)
  if type(structure) == "userdata" and raw.is_operand(structure) then
    return { structure }, 1
  end
  local n = raw.operand_count(structure)
  if n ~= nil then
    return structure, n
  end
  local flat = leaves(structure, what, name)
  return flat, flat.n
end

-- `structure` with its leaves replaced; lists carry n, for nil has no place.
local function regroup(structure, flat, at)
  if not nest.is_nested(structure) then
    return flat[at], at + 1
  end
  local out = {}
  local n, keys = nest.layout(structure)
  for i = 1, n do
    local x = structure[i]
    if type(x) == "userdata" then
      out[i], at = flat[at], at + 1
    else
      out[i], at = regroup(x, flat, at)
    end
  end
  if n > 0 or keys == nil then
    out.n = n
  end
  for i = 1, keys and #keys or 0 do
    out[keys[i]], at = regroup(structure[keys[i]], flat, at)
  end
  return out, at
end

local NO_GRADIENTS = { n = 0 }

local function target_gradients(x, targets, n, what)
  if x == nil then
    return NO_GRADIENTS
  end
  local flat = nest.leaves(what, x)
  if flat.n ~= n then
    errors.raise("ValueError", ("%s: %d output_gradients for %d targets; give "
      .. "one for each"):format(what, flat.n, n),
      "a list that ends in nil needs n = " .. n)
  end
  for i = 1, flat.n do
    local grad = flat[i]
    if grad ~= nil and raw.kind(grad) ~= "slices" then
      flat[i] = convert.operand(grad,
        raw.tensor_dtype(raw.operand_tensor(targets[i])), what,
        "output_gradients")
    end
  end
  return flat
end

local function wants_zeros(x, what)
  if x == "none" then
    return false
  end
  local _, position = options.choice(what, "unconnected_gradients", x,
    CONNECTIONS)
  return position == 1
end

local function check_unused(tape, what)
  if tape.used and not tape.persistent then
    errors.raise("RuntimeError", what .. ": a non-persistent GradientTape can "
      .. "only be used to compute one set of gradients (or jacobians)",
      "tf.GradientTape(fn, { persistent = true }) keeps what it recorded")
  end
end

-- A tape that is still open is closed by its first gradient, as in TensorFlow.
local function close_for_gradient(tape)
  if not tape.persistent then
    tape:close()
  end
end

-- What was recorded has served.
local function finish(tape)
  tape.used = true
  if not tape.persistent then
    tape.steps = {}
  end
end

--- Making ---------------------------------------------------------------------

--- A recording tape.
---@param persistent boolean
---@param watch_accessed_variables boolean
---@return tfdist.GradientTape
function M.new(persistent, watch_accessed_variables)
  local tape = setmetatable({
    handle = raw.tape_new(persistent, watch_accessed_variables),
    persistent = persistent, used = false, steps = {},
  }, Tape)
  recording[tape] = true
  return tape
end

--- Stop recording; nothing if the tape does not record.
function Tape:close()
  if not is_tape(self) then
    options.wrong_self("GradientTape.close", "tape", self)
  end
  if raw.tape_is_recording(self.handle) then
    raw.tape_stop(self.handle)
  end
  recording[self] = nil
end

Tape.__close = Tape.close

function Tape:__tostring()
  return ("GradientTape (%s%s, %d operations)"):format(
    self.persistent and "persistent, " or "",
    raw.tape_is_recording(self.handle) and "recording" or "stopped",
    raw.tape_length(self.handle))
end

local function check_flag(x, name)
  if type(x) ~= "boolean" then
    errors.raise("TypeError", ("GradientTape: %s must be true or false, got %s")
      :format(name, text.describe(x)))
  end
end

-- Call fn(tape, ...) and close the tape, whatever happens.
local function record(tape, fn, ...)
  return state.protect(function()
    tape:close()
  end, fn, ...)
end

M.record = record

local function make(fn, persistent, watch_accessed_variables)
  if persistent ~= false and text.is_callable(persistent)
    and text.is_plain(fn) then
    errors.raise("TypeError", "GradientTape: fn must be a function, got a table "
      .. "before it", "options come last: tf.GradientTape(fn, { persistent = "
      .. "true })")
  elseif fn ~= nil then
    text.check_callable("GradientTape", "fn", fn)
  end
  check_flag(persistent, "persistent")
  check_flag(watch_accessed_variables, "watch_accessed_variables")
  local tape = M.new(persistent, watch_accessed_variables)
  if fn == nil then
    return tape
  end
  return tape, record(tape, fn, tape)
end

--- Methods --------------------------------------------------------------------

local function method(name, signature, fn)
  Tape[name] = options.method("GradientTape." .. name, signature, fn, is_tape,
    "tape")
end

--- Follow what is computed from a tensor, a variable, or all leaves of a
--- structure of them. Trainable variables are followed by themselves.
--- Errors: TypeError for anything else.
--- Source: tf.GradientTape.watch
method("watch", "tensor", function(self, tensor)
  local flat = leaves(tensor, "GradientTape.watch", "tensor")
  flat = hooks.spread ~= nil and hooks.spread(flat, flat.n) or flat
  for i = 1, flat.n do
    raw.tape_watch(self.handle, flat[i])
  end
end)

--- Variables watched so far, in order of first use.
--- Source: tf.GradientTape.watched_variables
method("watched_variables", "", function(self)
  if self.variables ~= nil then
    return self.variables
  end
  local list = {}
  for i = 1, raw.tape_variable_count(self.handle) do
    list[i] = raw.tape_variable(self.handle, i - 1)
    list[i] = hooks.container and hooks.container(list[i]) or list[i]
  end
  return list
end)

options.hint_missing("GradientTape.gradient", "target", "the function given to "
  .. "tf.GradientTape must return the loss: return loss")

--- Derivatives of target (several are summed) for sources: one tensor or
--- variable, a list, or a table with string keys; the result has the same
--- structure, nil where no path leads from source to target. Lists carry n.
--- Embedding rows come back as tf.IndexedSlices.
---
--- output_gradients: what the targets' own gradients are, by default ones.
--- unconnected_gradients: "none", or "zero" for zeros instead of nil.
--- Errors: RuntimeError when a non-persistent tape is used twice; TypeError for
---   what is no tensor.
--- Source: tf.GradientTape.gradient
method("gradient", "target sources output_gradients:table=nil "
  .. "unconnected_gradients='none'",
  function(self, target, sources, output_gradients, unconnected_gradients)
    local what = "GradientTape.gradient"
    check_unused(self, what)
    local zeros = wants_zeros(unconnected_gradients, what)
    local targets, count = operands(target, what, "target")
    local list, n = operands(sources, what, "sources")
    local grads = target_gradients(output_gradients, targets, count, what)
    close_for_gradient(self)
    if not self.persistent then
      raw.forward_ended()
    end
    local results = run(self, targets, list, n, grads, zeros)
    finish(self)
    if rawequal(list, sources) then
      return results
    end
    return (regroup(sources, results, 1))
  end)

--- Record nothing while fn runs; returns what fn returns. Without fn: an object
--- whose close() goes on.
--- Errors: RuntimeError when the tape does not record.
--- Source: tf.GradientTape.stop_recording
method("stop_recording", "fn:body=nil", function(self, fn)
  if fn ~= nil then
    text.check_callable("GradientTape.stop_recording", "fn", fn)
  end
  if not raw.tape_is_recording(self.handle) then
    errors.raise("RuntimeError", "GradientTape.stop_recording: the tape is not "
      .. "recording", "it records while its fn runs, or until close()")
  end
  raw.tape_stop(self.handle)
  local function resume()
    if not raw.tape_is_recording(self.handle) then
      raw.tape_resume(self.handle)
    end
  end
  if fn == nil then
    return state.closer("stop_recording", resume)
  end
  return state.protect(resume, fn)
end)

--- Forget everything recorded and watched.
--- Source: tf.GradientTape.reset
method("reset", "", function(self)
  raw.tape_reset(self.handle)
  self.steps, self.used = {}, false
  self.variables = nil
end)

--- Jacobians ------------------------------------------------------------------

-- The number 1 in little-endian bytes.
local ONE = {
  float16 = "\0\60", bfloat16 = "\128\63", float32 = "\0\0\128\63",
  float64 = "\0\0\0\0\0\0\240\63",
}

local function describe(x)
  local t = raw.operand_tensor(x)
  return { dims = raw.tensor_dims(t), dtype = raw.tensor_dtype(t),
    size = raw.tensor_size(t) }
end

-- `rows` times the i-th unit vector of size n (i from 0), shaped as `dims`.
local function unit(info, rows, n, i)
  local one = ONE[info.dtype]
  local row = ("\0"):rep(#one * i) .. one .. ("\0"):rep(#one * (n - 1 - i))
  return raw.tensor_from_bytes(row:rep(rows), info.dtype, info.dims)
end

local function zeros(info)
  return raw.tensor_from_values({ 0 }, info.dtype, info.dims)
end

local function reshape(x, dims)
  local ints = { #dims, 0, 0, 0, 0, 0, 0, 0, 0 }
  for i = 1, #dims do
    ints[i + 1] = dims[i]
  end
  return (raw.op_run(raw.op_find "reshape", { x, n = 1 }, ints))
end

local function joined(a, from, b)
  return lists.append(lists.copy(a, from), b)
end

-- One walk for each unit vector: columns[k][i] is the gradient of source k.
local function unit_gradients(tape, target, sources, rows, n)
  local info = describe(target)
  local columns = { connected = {} }
  for k = 1, sources.n do
    columns[k] = { n = n }
  end
  if ONE[info.dtype] == nil then
    return columns
  end
  for i = 1, n > 0 and n or 1 do
    -- A target without elements is walked once, to see what it depends on.
    local grads = run(tape, { target, n = 1 }, sources, sources.n,
      n > 0 and { unit(info, rows, n, i - 1), n = 1 } or { n = 0 }, false)
    for k = 1, sources.n do
      if grads[k] ~= nil then
        columns.connected[k] = true
        columns[k][i] = convert.tensor(grads[k], nil, "jacobian", "gradient")
      end
    end
  end
  return columns
end

-- Stack the gradients of one source along `axis` and give them their shape.
local function assemble(column, info, dims, axis)
  if column.n == 0 then
    return zeros { dims = dims, dtype = info.dtype }
  end
  for i = 1, column.n do
    column[i] = column[i] or zeros(info)
  end
  return reshape(raw.op_run(raw.op_find "stack", column, { axis }), dims)
end

-- The walks of one jacobian share the tape; then it has served.
local function with_kept_tape(self, what, fn)
  check_unused(self, what)
  close_for_gradient(self)
  raw.tape_keep(self.handle)
  local results = fn()
  if not self.persistent then
    self.variables = self:watched_variables()
    raw.tape_reset(self.handle)
  end
  finish(self)
  return results
end

local JACOBIAN = "target sources unconnected_gradients='none' "
  .. "parallel_iterations=nil experimental_use_pfor=true"

--- All derivatives of each element of target for each element of sources.
--- Shapes: target [t...], source [s...]; result [t..., s...]. Cost: one walk
---   for each element of target.
--- Errors: as gradient.
--- Source: tf.GradientTape.jacobian
method("jacobian", JACOBIAN, function(self, target, sources, unconnected)
  local what = "GradientTape.jacobian"
  local fill = wants_zeros(unconnected, what)
  local y = operand(target, what, "target")
  local list = leaves(sources, what, "sources")
  local of = describe(y)
  local results = with_kept_tape(self, what, function()
    local columns = unit_gradients(self, y, list, 1, of.size)
    local found = { n = list.n }
    for k = 1, list.n do
      local info = describe(list[k])
      local dims = joined(of.dims, 1, info.dims)
      if columns.connected[k] then
        found[k] = assemble(columns[k], info, dims, 0)
      elseif fill then
        found[k] = zeros { dims = dims, dtype = info.dtype }
      end
    end
    return found
  end)
  return (regroup(sources, results, 1))
end)

local function check_batch(of, info, what)
  if #of.dims == 0 or #info.dims == 0 or of.dims[1] ~= info.dims[1] then
    errors.raise("ValueError", ("%s: target is %s and source is %s; both need "
      .. "the same first dimension"):format(what, text.shape(of.dims),
      text.shape(info.dims)))
  end
end

--- The jacobian of each row by itself, for rows that do not depend on each
--- other's sources.
--- Shapes: target [b, t...], source [b, s...]; result [b, t..., s...]. Cost:
---   one walk for each element of a row of target.
--- Errors: ValueError when the first dimensions differ.
--- Source: tf.GradientTape.batch_jacobian
method("batch_jacobian", "target source unconnected_gradients='none' "
  .. "parallel_iterations=nil experimental_use_pfor=true",
  function(self, target, source, unconnected)
    local what = "GradientTape.batch_jacobian"
    local fill = wants_zeros(unconnected, what)
    local y = operand(target, what, "target")
    local x = operand(source, what, "source")
    local of, info = describe(y), describe(x)
    check_batch(of, info, what)
    local n = lists.product(of.dims, 2)
    local dims = joined(of.dims, 1, joined(info.dims, 2, {}))
    return with_kept_tape(self, what, function()
      local columns = unit_gradients(self, y, { x, n = 1 }, of.dims[1], n)
      if columns.connected[1] then
        return assemble(columns[1], info, dims, 1)
      end
      return fill and zeros { dims = dims, dtype = info.dtype } or nil
    end)
  end)

--- Put tf.GradientTape into tf.
function M.install(tf, def)
  --- Call fn(tape) and record it; returns the tape, then what fn returns.
  --- Without fn: a tape that records until close(). persistent: gradient may
  --- be called several times. watch_accessed_variables: follow every trainable
  --- variable that is used. An error of fn closes the tape and goes on.
  --- Source: tf.GradientTape
  def("GradientTape",
    "fn:body=nil persistent:any=false watch_accessed_variables:any=true",
    make)
  tf.UnconnectedGradients = { NONE = "none", ZERO = "zero" }
end

return M
