--- The function that is being traced, as the rest of the library sees it.
---
--- A trace hangs on the current state (module state), as its graph hangs on the
--- context: each replica has its own. While ops run for real inside a trace
--- (initial values of variables), there is none.
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"

local M = {}

local type = type
local find = string.find

local error, pcall, xpcall = error, pcall, xpcall
local getinfo = debug.getinfo

local function protected(handler, fn, ...)
  if handler == nil then
    return pcall(fn, ...)
  end
  return xpcall(fn, handler, ...)
end

local function unnote(current, outer, ...)
  current.note = outer
  raw.context_set_note(outer or "")
  return ...
end

--- The trace that goes on, or nil.
function M.current()
  return state.current.trace
end

-- The function that is being traced, "file:line" where it has no other name.
function errors.hooks.traced()
  local trace = state.current.trace
  return trace and trace.name
end

--- Is what goes on a part of a trace, a branch or a loop's body?
function M.is_part()
  local trace = state.current.trace
  return trace ~= nil and trace.root ~= nil
end

-- The trace of the function itself: parts of it have what calls have with it.
local function root_of(trace)
  return trace.root or trace
end

--- The workers of a strategy meet in what is being traced.
---@param handle userdata  the strategy's
function M.note_meeting(handle)
  root_of(state.current.trace).meets = handle
end

--- A graph has scopes of its own: the result ends those that were opened since
--- and not closed, of strategies, names, creators and devices.
---@param own table  the current state
---@return fun()
function M.scopes(own)
  local mode, creators, name_scope = own.mode, own.creators, own.name_scope
  local depth = raw.device_depth()
  return function()
    own.mode, own.creators, own.name_scope = mode, creators, name_scope
    while raw.device_depth() > depth do
      raw.device_pop()
    end
  end
end

--- Call fn(...) while ops are recorded in the part of the trace that `inner`
--- stands for.
function M.inside(inner, fn, ...)
  local own = state.current
  local outer, leave = own.trace, M.scopes(own)
  raw.graph_begin(inner.graph)
  own.trace = inner
  return state.protect(function()
    own.trace = outer
    leave()
    raw.graph_end(inner.graph)
  end, fn, ...)
end

-- Choices and loops inside each other. Each takes some calls of C, of which an
-- engine has 200; an end of that would come in the middle of anything.
local DEEPEST = 48

-- Calls of traced functions inside each other in one trace. Each takes some
-- slots of the engine's stack, of which LuaJIT has 65,500; tail calls take none,
-- and would go on until memory ends.
local DEEPEST_CALL = 500

-- Calls of C that one of them may take before the next: Lua 5.4 has 200, and each
-- tape and each scope takes some.
local ROOM = 40

-- The engine's words for an end of its stack, the second in a message handler.
local function is_full(e)
  return type(e) == "string" and (find(e, "stack overflow", 1, true)
    or find(e, "error in error handling", 1, true)) ~= nil
end

-- Are there that many? No engine says; as many pcalls inside each other do. What
-- else ends one of them is not theirs: Ctrl-C, say.
local function has_room(n)
  if n == 0 then
    return true
  end
  local ok, room = pcall(has_room, n - 1)
  if not ok and not is_full(room) then
    error(room, 0)
  end
  return ok and room
end

-- How many calls of fn there are, that of the caller too: an error that the script
-- caught leaves a count that is too high.
local function calls_on_stack(fn)
  local n, level = 0, 2
  local info = getinfo(level, "f")
  while info ~= nil do
    n = n + (info.func == fn and 1 or 0)
    level = level + 1
    info = getinfo(level, "f")
  end
  return n
end

-- one, many: words for a call and for calls.
local function too_deep(calls, one, many, hint)
  if calls == 0 then
    errors.raise("RuntimeError", "maximum recursion depth exceeded: what goes on "
      .. "leaves no room for a call of " .. one, "each pcall, tape and scope "
      .. "around it takes some of the engine's calls of C")
  end
  errors.raise("RuntimeError", ("maximum recursion depth exceeded: more than %d "
    .. "calls of %s"):format(calls, many), hint)
end

local function returned(counts, calls, ...)
  counts.calls = calls
  return ...
end

--- fn(...), what a traced function of this name has in the trace that goes on.
--- Errors: RuntimeError where it calls itself without end.
function M.call(name, fn, ...)
  local root = root_of(state.current.trace)
  local calls = root.calls or 0
  local room = has_room(ROOM)
  if calls >= DEEPEST_CALL or not room then
    calls = calls_on_stack(M.call) - 1
    if calls >= DEEPEST_CALL or not room then
      too_deep(calls, ('the traced function "%s"'):format(name),
        ('traced functions inside each other, the last of "%s"'):format(name),
        "the trace ends with a Lua value, as a number counted down; "
        .. "tf.while_loop repeats by tensors")
    end
  end
  root.calls = calls + 1
  return returned(root, calls, fn(...))
end

local FEW = 8 -- calls inside each other that nobody asks whether there is room

--- fn(...), what `what` calls of the script's while ops or a graph run.
--- Errors: RuntimeError where it comes back to itself without end.
function M.call_host(what, fn, ...)
  local own = state.current
  local counts = own.host_calls
  if counts == nil then
    counts = { calls = 0 }
    own.host_calls = counts
  end
  local calls = counts.calls
  local room = calls < FEW or has_room(ROOM)
  if calls >= DEEPEST_CALL or not room then
    calls = calls_on_stack(M.call_host) - 1
    if calls >= DEEPEST_CALL or not room then
      too_deep(calls, what, what .. " inside each other", "its func comes back to "
        .. "it: a number counted down ends that")
    end
  end
  counts.calls = calls + 1
  return returned(counts, calls, fn(...))
end

--- A part of the trace that goes on; `loop`: what it records may run again.
--- Errors: RuntimeError for one too deep inside others.
function M.part(loop)
  local trace = state.current.trace
  local depth = (trace.depth or 0) + 1
  if depth > DEEPEST then
    errors.raise("RuntimeError", ("more than %d choices and loops of the graph "
      .. "inside each other, in the traced function \"%s\""):format(DEEPEST,
      trace.name), "a Lua `for` unrolls; tf.while_loop repeats one body")
  end
  root_of(trace).has_parts = true
  return { graph = raw.graph_part(trace.graph, trace.name), name = trace.name,
    depth = depth, root = root_of(trace), loops = loop or trace.loops }
end

--- Call fn(...) while ops run: for what is made once, at the trace.
function M.lifted(fn, ...)
  local own = state.current
  local trace = own.trace
  if trace == nil then
    return fn(...)
  end
  raw.graph_pause(trace.graph, true)
  raw.tape_pause_all(true)
  own.trace = nil
  return state.protect(function()
    own.trace = trace
    raw.tape_pause_all(false)
    raw.graph_pause(trace.graph, false)
  end, fn, ...)
end

local function lifted_making(own, fn, ...)
  local outer = own.making
  own.making = own.trace
  return state.protect(function()
    own.making = outer
  end, M.lifted, fn, ...)
end

--- The same for what may make variables: they are the trace's, which has to be
--- one that may make some.
function M.lifted_making(fn, ...)
  local own = state.current
  if own.trace == nil then
    return fn(...)
  end
  return lifted_making(own, fn, ...)
end

--- A draw of random numbers: fn gives the four words of its stream at each
--- call; those returned here stand for them at the trace.
function M.draw(fn, ...)
  local trace = root_of(state.current.trace)
  local draws = trace.draws
  draws[#draws + 1] = fn
  lists.append(trace.words, { ... })
  raw.graph_draw(trace.graph, { ... })
  return ...
end

--- A number that no other draw of any trace has.
function M.draw_number()
  M.drawn = (M.drawn or 0) + 1
  return M.drawn
end

--- n numbers that fn() gives at each call, as a list; returns the first's place.
--- `uncertain`: values of this call decide on what fn gives for the next one.
--- Errors: NotImplementedError in a loop, whose iterations would share them.
function M.numbers(n, fn, uncertain)
  local trace = state.current.trace
  if trace.loops then
    errors.raise("NotImplementedError", "an optimizer's step in a loop that the "
      .. "call decides on cannot be traced", "a Lua `for` unrolls")
  end
  trace = root_of(trace)
  trace.uncertain = trace.uncertain or uncertain
  local first = trace.numbers_n
  trace.numbers[#trace.numbers + 1] = fn
  trace.numbers_n = first + n
  return first
end

--- fn(...), two results, where all functions of M.numbers are called for calls that belong
--- together: M.preparation is `whose` then, else nil. What they say of the calls
--- before counts, though these may not have run yet.
function M.preparing(whose, fn, ...)
  M.preparation = whose
  local ok, a, b = pcall(fn, ...)
  M.preparation = nil
  if not ok then
    error(a, 0)
  end
  return a, b
end

--- The update just recorded takes its numbers from there on.
function M.takes_numbers(first)
  raw.graph_numbers(state.current.trace.graph, first)
end

local function told(replica, ok, ...)
  if ok then
    return ...
  end
  local e = ...
  if errors.is_error(e) and e.replica == nil then
    e.replica = replica
  end
  error(e, 0)
end

-- fn, whose errors tell the replica that is being traced, if one is: the call
-- has none of its own.
local function of_replica(fn)
  local replica = errors.hooks.place and errors.hooks.place()
  if replica == nil then
    return fn
  end
  return function(...)
    return told(replica, pcall(fn, ...))
  end
end

--- fn(values...) is called at this point of the program, at each call, with the
--- values that these tensors and variables then have. `answers`: specs (dtype,
--- dims, device) of the tensors that it gives; returns symbols for them, a list.
---@param values table  with n
---@param fn function
---@param answers? table  with n
function M.host(values, fn, answers)
  local trace = state.current.trace
  local given = { n = values.n }
  for i = 1, values.n do
    given[i] = raw.kind(values[i]) == "variable" and raw.variable_read(values[i])
      or values[i]
  end
  raw.note_position()
  local number = raw.graph_host(trace.graph, given)
  root_of(trace).steps[number] = { fn = of_replica(fn),
    answers = answers ~= nil }
  local symbols = { n = answers and answers.n or 0 }
  for i = 1, symbols.n do
    local want = answers[i]
    symbols[i] = raw.graph_answer(trace.graph, want.dtype, want.dims,
      want.device or raw.device_current())
  end
  return symbols
end

--- Refuse values that are known: in a branch or a loop's body, which may never
--- run, at the calls that get there. It returns then, and the caller records what
--- follows with values that will do, of the shape that a result has anyway.
--- Errors: kind, with the message and the hint.
function M.refuse_values(kind, message, hint)
  if not M.is_part() then
    errors.raise(kind, message, hint)
  end
  local trace, where = state.current.trace, errors.position()
  -- Behind another one it would never be reached.
  if trace.refused ~= raw.graph_node_count(trace.graph) then
    M.host({ n = 0 }, function()
      errors.raise(kind, message, hint, where)
    end)
    trace.refused = raw.graph_node_count(trace.graph)
  end
end

local FLOATING = { float16 = true, bfloat16 = true, float32 = true,
                   float64 = true }

-- Of this shape, with gradients in x as what fn(x) gives would have.
local function stand_in(tf, x, dims)
  local dtype = raw.operand_dtype(x)
  if FLOATING[dtype] then
    return tf.broadcast_to(tf.reduce_sum(x), dims)
  end
  return tf.zeros(dims, dtype)
end

--- fn(x, ...), which refuses values as M.refuse_values does where dims, the sizes
--- of its result, are known all the same (not nil).
---@param tf table
---@param dims integer[]?
---@param fn function
---@param x any  an operand
function M.refusing_values(tf, dims, fn, x, ...)
  if dims == nil or not M.is_part() then
    return fn(x, ...)
  end
  local ok, y = pcall(fn, x, ...)
  if ok then
    return y
  elseif errors.kind(y) ~= "InvalidArgument" then
    error(y, 0)
  end
  M.refuse_values(y.kind, y.message, y.hint)
  return stand_in(tf, x, dims)
end

--- True for a tensor whose values only a call knows.
function M.is_symbolic(x)
  return type(x) == "userdata" and raw.kind(x) == "tensor"
    and raw.tensor_is_symbolic(x)
end

-- x, the argument `name`, has no values at all where an op that it needs was
-- refused.
local function check_refused(what, name, x)
  local refused = raw.tensor_refused(x)
  if refused ~= nil then
    errors.raise("NotImplementedError", ("%s: %s (%s %s) has no values: %s")
      :format(what, name, raw.tensor_dtype(x), text.shape(raw.tensor_dims(x)),
      refused), "a branch and a loop's body may never run: a call that gets "
      .. "there raises that")
  end
end

--- The size of what `what` gives depends on the values of its argument x.
--- Errors: NotImplementedError where only a call knows them; `instead` is what to
---   do in place of it, beside calling it outside.
function M.need_values(what, name, x, instead)
  if M.is_symbolic(x) then
    check_refused(what, name, x)
    errors.raise("NotImplementedError", ("%s: the size of the result depends on "
      .. "the values of %s (%s %s), which only a call of the traced function "
      .. "\"%s\" knows"):format(what, name, raw.tensor_dtype(x),
      text.shape(raw.tensor_dims(x)), root_of(state.current.trace).name),
      (instead or "keep the size: tf.where(condition, x, y), weights of 0 and 1")
      .. ", or call it outside of the function")
  end
end

-- The tensor among x and the entries of a list whose values only a call knows.
local function unknown_in(x)
  if type(x) == "userdata" and raw.is_operand(x) then
    local t = raw.kind(x) == "variable" and raw.variable_read(x)
      or raw.operand_tensor(x)
    return M.is_symbolic(t) and t or nil
  end
  for i = 1, text.is_plain(x) and #x or 0 do
    local t = unknown_in(x[i])
    if t ~= nil then
      return t
    end
  end
  return nil
end

--- x, or what is in it, are numbers in a graph, which takes `noun` as such.
--- Errors: NotImplementedError where only a call knows them; `instead` is what to
---   do then.
function M.need_numbers(what, name, x, noun, instead)
  if state.current.trace == nil then
    return
  end
  local t = unknown_in(x)
  if t ~= nil then
    check_refused(what, name, t)
    errors.raise("NotImplementedError", ("%s: %s has values (%s %s) that only a "
      .. "call of the traced function \"%s\" knows; a graph takes %s as "
      .. "numbers"):format(what, name, raw.tensor_dtype(t),
      text.shape(raw.tensor_dims(t)), root_of(state.current.trace).name, noun),
      instead)
  end
end

--- The same for what says sizes, axes or counts.
function M.need_counts(what, name, x)
  M.need_numbers(what, name, x, "it", "a Lua number as argument of the "
    .. "function gives each value a graph of its own; sizes of a tensor are "
    .. "numbers (tf.shape), -1 is the size that reshape finds; or call it outside "
    .. "of the function")
end

--- The same for seeds.
function M.need_seed(what, name, x)
  M.need_numbers(what, name, x, "seeds", "a seed of numbers gives the same at "
    .. "each call, tf.random.normal and the like draw anew; or draw outside and "
    .. "pass the result")
end

M.open_elements = 0

--- The trace that goes on takes an element with these sizes.
--- tracing.open_elements counts those with a size that only a call knows: a
--- function that needs it falls back to plain code.
function M.note_element(dims)
  for axis = 1, #dims do
    if dims[axis] < 0 then
      local root = root_of(state.current.trace)
      M.open_elements = M.open_elements + 1
      root.may_fall_back = root.may_fall_back == "elements" or root.may_fall_back
      return
    end
  end
end

--- A variable was made: only the first trace of a function may.
function M.made_variable(name)
  local trace = state.current.trace or state.current.making
  trace = trace and root_of(trace)
  if trace == nil then
    return
  elseif not trace.may_create then
    local e = errors.new("ValueError", ("tf.function_ \"%s\" only supports "
      .. "variables that are made on the first call; it made \"%s\" on a later "
      .. "one"):format(trace.name, name),
      "make it once, outside or behind `if v == nil`")
    e.late_variable = true -- for who traces again when it is there
    error(e, 0)
  end
  trace.created = trace.created + 1
end

--- Code of the script looks at sizes, of which -1 is one that only a call knows.
--- Errors: NotImplementedError where a graph for each size can be had instead.
function M.look_at_sizes(dims)
  local trace = state.current.trace
  if trace == nil or root_of(trace).may_fall_back ~= true then
    return
  end
  for axis = 1, #dims do
    if dims[axis] < 0 then
      raw.refuse_open(dims, "shape")
    end
  end
end

--- fn(...) as pcall gives it (xpcall, with a handler), where errors that what is
--- recorded here raises at calls say `note`, a line: an error on its way up at a
--- call meets nobody who knows.
---@param note string
---@param handler? function
---@param fn function
function M.noted(note, handler, fn, ...)
  local current = state.current
  local outer = current.note
  note = outer ~= nil and note .. "\n" .. outer or note
  current.note = note
  raw.context_set_note(note)
  return unnote(current, outer, protected(handler, fn, ...))
end

--- What is recorded belongs to a call of the function that a tape follows as one
--- step, which has all that it captures.
function M.begin_step()
  root_of(state.current.trace).is_step = true
end

--- No tape sees this use of x. A part of such a step notes a variable all the
--- same: the part captures it, and gives zeros where it gives nothing.
function M.note_unfollowed(x)
  local trace = state.current.trace
  if trace ~= nil and trace.tape ~= nil and trace.root.is_step
    and raw.kind(x) == "variable" then
    raw.tape_watch(trace.tape.handle, x)
  end
end

--- Gradient functions in Lua cannot be replayed.
function M.custom_gradient()
  local trace = state.current.trace
  if trace ~= nil then
    root_of(trace).has_custom_gradient = true
  end
end

return M
