--- The core module of this engine, with LuaJIT's fast paths where they are on.
---
--- Everything C offers to Lua, under one name on both engines. Nothing here
--- knows options tables or TensorFlow's names: that is the work of the
--- modules above. Axes, positions and ordinals count from 0.
---
--- Values: handles are userdata; device handles are borrowed, all others are
--- released by the collector or by `:release()`. Enums and dtypes are
--- lower-case strings ("float32", "queued", "on_write"), read in any case.
--- A list of handles may have holes when it carries `n`. A NULL handle is nil.
--- Failures raise error objects (module `tfdist.base.errors`).
---
--- Generated from src/tfdist.h, one for each C function without its `tfd_`;
--- list and length become one list, `_p` arguments become results:
---   version() live_handles(kind) live_bytes() memory_set_limit(bytes)
---   test_fail_allocation(n) test_failpoints(orders) interrupt(on)
---   is_interrupted() is_started()
---   config_set_cpu_devices(n) config_set_queue_mode(mode)
---   config_set_gpu_devices(gpu, limits) config_set_device_threads(n)
---   device_count(type) device_at(type, i) device_find(name)
---   device_name(d) device_short_name(d) device_threads(d)
---   device_is_queued(d) device_synchronize(d)
---   device_memory(d) -> current, peak, reserved   device_reset_peak(d)
---   device_trim(d) device_push(d|nil) device_pop() device_depth()
---   device_current()   context_new() context_enter(c|nil)
---   tensor_from_bytes(string, dtype, dims)
---   tensor_from_values(list, dtype, dims)
---   tensor_item(t, i) -> number   tensor_wait(t) tensor_dtype(t) -> string
---   tensor_rank(t) tensor_dim(t, axis) tensor_size(t) tensor_is_dense(t)
---   tensor_id(t) tensor_device(t) tensor_to_device(t, d)
---   dtype_name(number) dtype_find(name) -> number   dtype_size(number)
---   slices_new(values, indices, dims) slices_values(s) slices_indices(s)
---   slices_rank(s) slices_dim(s, axis) slices_to_dense(s)
---   variable_new(initial, name, trainable, device|nil)
---   variable_assign(v, x) variable_assign_add(v, x) variable_assign_sub(v, x)
---   variable_read(v) variable_update(v, op, inputs, ints, reals)
---   variables_update(list, op, inputs, ints, reals)
---   variable_name(v) variable_is_trainable(v) variable_version(v)
---   variable_set_distribution(v, synchronization, aggregation)
---   variable_synchronization_of(v) variable_aggregation_of(v)
---   variable_set_autocast(v, autocast) context_set_autocast(active, dtype)
---   operand_tensor(x) operand_dtype(x)
---   op_find(name) op_count() op_name(op) op_schema(op)
---   op_is_differentiable(op)
---   tape_new(persistent, watch_accessed_variables) tape_stop(tape) ...
---   walk_begin(tape, targets, sources, target_grads, unconnected_zero)
---   walk_next(walk) -> "done"|"host"   walk_host(walk) -> number, outputs
---   walk_output_grad(walk, i) walk_supply(walk, grads) walk_gradient(walk, i)
---
--- Written by hand in src/lua:
---   kind(x) -> "tensor"|"variable"|"slices"|...|nil for what is no handle
---   metatable(kind) -> the kind's metatable; add __index, operators ...
---   is_operand(x) -> true for open handles that ops accept
---   operand_count(x[, tensors]) -> n if x is a plain list of n such handles
---       (tensors) and nothing else, nil if not
---   same_elements(a, b, n) -> whether two lists begin with the same n values
---   is_released(x)   release(x)   retain(t) -> a tensor's second handle
---   op_run(op, inputs, ints, reals) -> all outputs
---       inputs: list with n, holes are absent optional tensors; ints, reals:
---       attribute slots in schema order (nil = none)
---   op_function(op, index, signature[, method]) -> the op's function, which
---       follows the calling rule: operands and attributes of the schema, then
---       `name`; by position or by name (`index`: name -> position)
---   index(x, key, new_axis) -> x[key] for numbers and lists of slices
---       (core/index.lua), nothing for what is neither
---   binder(marks, index, signature, defaults) -> function(...) -> one value for
---       each parameter, by the calling rule (src/lua/bind_rule.c)
---   set_hook(name, fn)   what C asks of Lua:
---       complain(signature, problem, ...)   raises what is wrong with a call
---       operands(signature, n, ...) -> list of n operands
---       operand_list(signature, list) -> list of operands with n
---       plain(op, name, kind, x, choices) -> what x stands for as a number,
---           boolean, word or list
---       self(signature, x)   raises unless a method's x may be self
---       index(problem, ...)   raises what is wrong with a key of a tensor
---   unary_metamethod(op, ints, reals, slow)   for __unm (Lua passes two)
---   binary_metamethod(op, ints, reals, slow)  operand and operand, operand
---       and number, number and operand; a number gets the operand's dtype
---       if it fits exactly, else slow(a, b)
---   tensor_from_table(value[, dtype]) -> tensor; number, boolean or nested
---       lists up to 8 deep; nil, "handle" when a handle is among the leaves
---   tensor_to_table(t) -> nested lists, or the plain value of a scalar
---   tensor_to_flat(t) -> one list, row-major   tensor_bytes(t) -> string
---   item(t[, i]) -> number or boolean; without i the tensor has one element
---   tidy_begin() tidy_end() -> tensor handles made in between by this
---       coroutine (n and holes)   tidy_note(x)
---   collect()   full collection that reports to the runtime
---   set_position(file, line)   position for messages of queued work
---   note_position()   it is the line of the script that is running
---   enums -> { dtype = { float32 = 1, ... }, queue_mode = ... } numbers
---   device_position(d) -> how many calls were submitted to its queue so far
---   tensor_is_pending(t) -> true until its queue has filled it; never waits
---   graph_key(...) -> text that equal signatures share, nil for what is not
---       plain; and whether a tape is around. Distributed values are their
---       tensors, here and in graph_call
---   tape_followed(list, more) -> "1" for each operand of these lists that tapes
---       follow, "0" for the others, as one text; nil when they follow none. And
---       whether one of the first list is there twice
---   walk_wanted(walk, n) -> likewise, inputs of the step that waits whose
---       gradients are wanted, "2" for those that have one so far
---   graph_call(graph, words, numbers, ...) -> results, for graphs without
---       steps of the host
---   graph_quick(fast, ...) -> fast[graph_key(...)], a table, and the results
---       of the graph in its field 1, which takes neither words nor numbers; or
---       false and what graph_key gives
---   graph_list(graph, words, inputs) -> the same as a list with n
---   graph_into_walk(graph, words, inputs, walk): its results are what the step
---       that waits gives
---   walk_gradients(walk, n) -> list of the gradients of n sources, with n
---   graph_calls(graph, n, words, numbers, inputs, results): n such calls, the
---       lists those of all; results.done: how many are through, also on errors
---   same_fields(tables, copies, counts, n, ignored) -> has each table the
---       fields of its copy, and beside them only ignored ones?
---   same_values(tables, keys, values, n) -> is each field what it was?
---   stop_devices()   before the process ends
---   monotonic() -> seconds of a clock that only goes forward
---   wall_time() -> seconds since 1970, with microseconds
---   terminal_width(fd) -> columns; nil when it is no terminal
---   engine -> "Lua 5.4"|"LuaJIT"
---   check_interrupt()   raises Cancelled after Ctrl-C; for long Lua loops
--- Here: ffi_enabled -> true when the LuaJIT fast paths are in use
---   (TFDIST_FFI=0 switches them off; everything works without);
---   tensor_pointer(t) -> typed cdata pointer, nil unless ffi_enabled;
---   tensor_dims(t) -> list of sizes, -1 for those that only a call knows;
---   open_dim(t, axis) -> one of them;
---   known_dims(t, what), tensor_dim(t, axis), tensor_size(t): the same, but
---   NotImplementedError where there is such a size: nothing counts with -1.
local errors = require "tfdist.base.errors"
local core = require "tfdist.core"
local pairs = require "tfdist.base.pairs"

local M = {}
for name, value in pairs(core) do
  M[name] = value
end

-- The core walks its list of ops by name; numbers do not change.
local numbers = {}

function M.op_find(name)
  local number = numbers[name]
  if number == nil then
    number = core.op_find(name)
    numbers[name] = number
  end
  return number
end

core.set_library_prefix(errors.library)
core.set_raise(errors.raise)

M.ffi_enabled = false
if rawget(_G, "jit")
  and not (os.getenv("TFDIST_FFI") or ""):match "^%s*0%s*$" then
  local fast = require "tfdist.core.ffi"
  for name, fn in pairs(fast.fast_paths) do
    M[name] = fn
  end
  M.ffi_enabled = true
end

local slices_to_dense = M.slices_to_dense

--- Ops of its own that nobody called: they are those of the line that runs.
function M.slices_to_dense(slices)
  core.note_position()
  return slices_to_dense(slices)
end

local tensor_dim, tensor_rank = M.tensor_dim, M.tensor_rank

M.open_dim = tensor_dim

--- The sizes of a tensor's axes as a list.
function M.tensor_dims(t)
  local dims = {}
  for axis = 0, tensor_rank(t) - 1 do
    dims[axis + 1] = tensor_dim(t, axis)
  end
  return dims
end

--- What needs all of these sizes cannot have them.
function M.refuse_open(dims, what)
  errors.raise("NotImplementedError", ("%s: a tensor of shape {%s} has sizes "
    .. "that only a call knows, in a graph for all of them"):format(what,
    table.concat(dims, ", ")), "tf.reduce_sum(tf.ones_like(x)) counts the "
    .. "elements as a tensor; a tf.while_loop can carry a size as a loop "
    .. "variable")
end

function M.known_dims(t, what)
  local dims = M.tensor_dims(t)
  for axis = 1, #dims do
    if dims[axis] < 0 then M.refuse_open(dims, what) end
  end
  return dims
end

function M.tensor_dim(t, axis)
  local n = tensor_dim(t, axis)
  if n < 0 and axis >= 0 and axis < tensor_rank(t) then
    M.refuse_open(M.tensor_dims(t), ("size of axis %d"):format(axis))
  end
  return n
end

local tensor_size = M.tensor_size

function M.tensor_size(t)
  local n = tensor_size(t)
  if n < 0 then M.refuse_open(M.tensor_dims(t), "size") end
  return n
end

return M
