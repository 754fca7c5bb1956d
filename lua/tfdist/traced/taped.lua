--- Calls of traced functions that tapes follow: one step of the tape each.
---
--- What the function computes is recorded once more, with a tape on it: the
--- whole, if need be by another trace. From it come, for each set of followed
--- values, a forward graph, which also gives what the backward graph reads, and
--- for each set of gradients that arrive and are wanted a backward graph. Where
--- tapes follow the gradient too, it is a graph of the arguments alone, which they
--- see op by op.
local concrete = require "tfdist.traced.concrete"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local gradient_tape = require "tfdist.core.gradient_tape"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local tracing = require "tfdist.core.tracing"

local M = {}

local concat = table.concat

local NO_NUMBERS, NONE = {}, { n = 0 }

local FLOAT = { float16 = true, bfloat16 = true, float32 = true,
                float64 = true }

-- Kinds of what cannot be recorded or differentiated as a whole; op after op it
-- may be, for fewer gradients, or fails where the script asks for it.
local REFUSALS = { NotImplementedError = true, InvalidArgument = true,
  ValueError = true }

local function is_float(t)
  return FLOAT[raw.tensor_dtype(t)] == true
end

local function append(list, x)
  list.n = list.n + 1
  list[list.n] = x
end

-- The whole --------------------------------------------------------------------

-- A symbol in the whole like a tensor.
local function symbol_like(graph, t)
  return raw.graph_input(graph, raw.tensor_dtype(t), raw.tensor_dims(t),
    raw.tensor_device(t))
end

local function results_of(graph)
  raw.graph_next(graph)
  local results = { n = raw.graph_result_count(graph) }
  for i = 1, results.n do
    results[i] = raw.graph_result(graph, i - 1)
  end
  return results
end

-- What gradients may be asked for, behind the arguments: the variables and
-- constants of the function.
local function add_captured(w)
  for i = 0, raw.tape_variable_count(w.tape.handle) - 1 do
    append(w.captured, raw.tape_variable(w.tape.handle, i))
  end
  for i = 0, raw.tape_constant_count(w.tape.handle) - 1 do
    append(w.captured, raw.tape_constant(w.tape.handle, i))
  end
  for i = 0, raw.graph_variable_count(w.graph) - 1 do
    w.variables[i + 1] = raw.graph_variable(w.graph, i)
  end
end

-- Variables that gradients of the user's read: what they have when the gradient
-- is asked for.
local function late_values(w, feeds)
  local list = {}
  for i = 1, feeds.n do
    local at = feeds[i][2]
    if feeds[i][1] == "late" then
      list[at] = raw.operand_tensor(raw.graph_variable(w.graph, at - 1))
    end
  end
  return list
end

-- Source i of these lists.
local function source_of(arguments, captured, i)
  return i <= arguments.n and arguments[i] or captured[i - arguments.n]
end

-- fn(...) on a tape that follows all that a trace may use.
local function on_tape(w, fn, ...)
  w.tape = gradient_tape.new(true, true)
  raw.tape_follow_all(w.tape.handle)
  raw.tape_follow_constants(w.tape.handle)
  return gradient_tape.record(w.tape, fn, ...)
end

-- Record the graph's ops again.
local function record_again(w, c)
  raw.graph_set_followed(c.handle, true)
  raw.graph_start(c.handle, w.symbols, c.words, NO_NUMBERS)
  w.results = state.protect(function()
    raw.graph_stop(c.handle)
  end, on_tape, w, results_of, c.handle)
end

local function copy(w, c, inputs)
  local graph = raw.graph_new(c.name)
  w.made, w.symbols = c, { n = inputs.n }
  w.trace = { graph = graph, name = c.name, draws = {}, words = {}, steps = {},
    numbers = {}, numbers_n = 0 }
  for i = 1, inputs.n do
    w.symbols[i] = symbol_like(graph, inputs[i])
  end
  for i = 1, #c.words, 4 do
    raw.graph_draw(graph, { c.words[i], c.words[i + 1], c.words[i + 2],
      c.words[i + 3] })
  end
  tracing.inside(w.trace, record_again, w, c)
end

-- Trace the function again where gradients are Lua's: of its own, of loops and
-- of branches.
local function trace_again(w, c, inputs, fn, ...)
  local made = concrete.record(c.name, function(...)
    tracing.begin_step()
    return on_tape(w, fn, ...)
  end, { n = select("#", ...), ... }, inputs)
  w.made, w.trace = made, made.trace
  w.symbols, w.results = made.symbols, made.outputs
  made.symbols, made.outputs, made.trace = nil, nil, nil
end

local function check(w)
  if next(w.trace.steps) ~= nil or w.trace.numbers_n > 0 then
    errors.raise("NotImplementedError", w.made.name .. ": steps of the host and "
      .. "of optimizers have no gradient as a graph")
  end
end

local function make_whole(c, inputs, fn, ...)
  local w = { captured = { n = 0 }, variables = {}, grads = {}, of_input = {},
    sums = {}, backward = {}, forward = {} }
  if c.has_parts or c.has_custom_gradient then
    trace_again(w, c, inputs, fn, ...)
  else
    copy(w, c, inputs)
  end
  w.graph = w.trace.graph
  raw.graph_begin_gradients(w.graph)
  for i = 1, w.symbols.n do
    w.of_input[i - 1] = { "arguments", i }
  end
  add_captured(w)
  check(w)
  return w
end

-- Graphs of it -----------------------------------------------------------------

-- What each input of a graph from the whole is: { list, its place there }.
local function feeds_of(w, graph)
  local feeds, n = { n = raw.graph_input_count(graph) },
    raw.graph_input_count(w.graph)
  for i = 1, feeds.n do
    local source, late = raw.graph_source(graph, i - 1)
    if source < 0 then
      feeds[i] = { late and "late" or "variables", -source }
    elseif source < n then
      feeds[i] = w.of_input[source]
    else
      feeds[i] = { "saved", source - n }
    end
  end
  return feeds
end

local function fed(feeds, given)
  local inputs = { n = feeds.n }
  for i = 1, feeds.n do
    inputs[i] = given[feeds[i][1]][feeds[i][2]]
  end
  return inputs
end

-- The symbol of the gradient that arrives at result i ("grads") or that source i
-- has from its later uses ("sums").
local function arriving(w, list, i, like)
  local symbols = w[list]
  if symbols[i] == nil then
    w.of_input[raw.graph_input_count(w.graph)] = { list, i }
    symbols[i] = symbol_like(w.graph, raw.operand_tensor(like))
  end
  return symbols[i]
end

-- Gradients as results of a graph: at[i] is the place of source i's, or what its
-- rows are made of.
local function flatten(list, n)
  local results, at = { n = 0 }, {}
  for i = 1, n do
    local grad = list[i]
    if grad ~= nil and raw.kind(grad) == "slices" then
      local dims = {}
      for axis = 1, raw.slices_rank(grad) do
        dims[axis] = raw.slices_dim(grad, axis - 1)
      end
      append(results, raw.slices_values(grad))
      append(results, raw.slices_indices(grad))
      at[i] = { values = results.n - 1, indices = results.n, dims = dims }
    elseif grad ~= nil then
      append(results, grad)
      at[i] = { values = results.n }
    end
  end
  return results, at
end

-- The graph from gradients of the results in `from` to those of sources in
-- `to`, lists of numbers; sums begin with what sources in `begun` have, as they
-- do line by line. pure: it computes again what it needs.
local function make_backward(w, from, to, begun, pure)
  local n = from.n + begun.n
  local targets, given, sources = { n = n }, { n = n }, { n = to.n }
  for i = 1, from.n do
    targets[i] = w.results[from[i]]
    given[i] = arriving(w, "grads", from[i], targets[i])
  end
  for i = 1, begun.n do
    local k = from.n + i
    targets[k] = source_of(w.symbols, w.captured, begun[i])
    given[k] = arriving(w, "sums", begun[i], targets[k])
  end
  for i = 1, to.n do
    sources[i] = source_of(w.symbols, w.captured, to[i])
  end
  local results, at = tracing.inside(w.trace, function()
    return flatten(w.tape:gradient(targets, sources, given), to.n)
  end)
  check(w)
  local b = { at = at, n = results.n, words_n = #w.made.words,
    is_list = results.n > 0 and results.n == to.n }
  for i = 1, to.n do
    b.is_list = b.is_list and at[i] ~= nil and at[i].values == i
      and at[i].dims == nil
  end
  if b.n > 0 then
    b.graph = pure and raw.graph_extract(w.graph, results, true, {})
      or raw.graph_backward(w.graph, results)
    b.feeds = feeds_of(w, b.graph)
  else
    b.feeds = { n = 0 }
  end
  return b
end

local function backward(w, from, to, begun, pure)
  local key = concat({ concat(from, ","), concat(to, ","), concat(begun, ","),
    pure and "pure" or "" }, ":")
  local b = w.backward[key]
  if b == nil then
    b = make_backward(w, from, to, begun, pure)
    w.backward[key] = b
  end
  return b
end

-- Are the graph's inputs the arguments as they come?
local function are_arguments(w, feeds)
  local same = feeds.n == w.symbols.n
  for i = 1, feeds.n do
    same = same and feeds[i][1] == "arguments" and feeds[i][2] == i
  end
  return same
end

-- The sources' values, where each call has the same.
local function constant_sources(w, to)
  local list = { n = to.n }
  for i = 1, to.n do
    if to[i] <= w.symbols.n then
      return nil
    end
    list[i] = w.captured[to[i] - w.symbols.n]
  end
  return list
end

-- The forward graph for the sources with "1" in `followed`.
local function make_forward(w, followed)
  local from, to = { n = 0 }, { n = 0 }
  for i = 1, w.results.n do
    if is_float(w.results[i]) then
      append(from, i)
    end
  end
  for i = 1, #followed do
    if followed:sub(i, i) == "1" then
      append(to, i)
    end
  end
  local f = { from = from, to = to, back = backward(w, from, to, NONE),
    all = ("1"):rep(to.n), saved = { n = 0 }, saved_at = {}, grads_at = {},
    late_at = {} }
  for i = 1, f.back.feeds.n do
    local feed = f.back.feeds[i]
    if feed[1] == "saved" then
      append(f.saved, feed[2])
      f.saved_at[f.saved.n] = i
    elseif feed[1] ~= "arguments" and feed[1] ~= "variables" then
      f[feed[1] == "grads" and "grads_at" or "late_at"][feed[2]] = i
    end
  end
  f.graph = raw.graph_forward(w.graph, w.results, f.saved)
  raw.graph_set_followed(f.graph, false)
  f.n, f.feeds = raw.graph_result_count(f.graph), feeds_of(w, f.graph)
  f.takes_arguments = are_arguments(w, f.feeds)
  f.sources = constant_sources(w, to)
  return f
end

-- Calls ------------------------------------------------------------------------

local MOST = 64 -- results of graph_list and graph_into_walk

-- The n results of a graph without steps of the host.
local function run(graph, n, inputs, words)
  if n <= MOST then
    return raw.graph_list(graph, words, inputs)
  end
  raw.graph_start(graph, inputs, words, NO_NUMBERS)
  return state.protect(function()
    raw.graph_stop(graph)
  end, results_of, graph)
end

-- What backward graphs take from the call: the inputs of f.back's, those that
-- the forward graph gives still to come; all of it where the gradient may be
-- followed.
local function keep(w, f, arguments)
  local feeds = f.back.feeds
  local kept = { fed = { n = feeds.n } }
  local variables
  if gradient_tape.may_follow_gradients() then
    variables = {}
    kept.arguments, kept.variables = arguments, variables
    for i = 1, #w.variables do
      variables[i] = raw.operand_tensor(w.variables[i])
    end
  end
  for i = 1, feeds.n do
    local list, at = feeds[i][1], feeds[i][2]
    if list == "arguments" then
      kept.fed[i] = arguments[at]
    elseif list == "variables" then
      kept.fed[i] = variables and variables[at] or raw.operand_tensor(w.variables[at])
    end
  end
  return kept
end

-- The same by lists, as other graphs than f.back's are fed.
local function kept_lists(f, kept)
  local feeds = f.back.feeds
  local lists = { all = kept.arguments ~= nil, arguments = kept.arguments or {},
    variables = kept.variables or {}, saved = {}, grads = {}, late = {} }
  for i = 1, feeds.n do
    lists[feeds[i][1]][feeds[i][2]] = kept.fed[i]
  end
  return lists
end

local function has_all(kept, words, b)
  local feeds = b.feeds
  if b.words_n ~= #words then
    return false -- the gradient draws
  end
  for i = 1, feeds.n do
    local list, at = feeds[i][1], feeds[i][2]
    if list ~= "late" and kept[list][at] == nil then
      return false
    end
  end
  return true
end

-- Zeros where nothing arrives: the graph for all gradients has all it needs.
local function fill(w, f, grads)
  for i = 1, f.from.n do
    local at = f.from[i]
    grads[at] = grads[at] or raw.tensor_from_values({ 0 },
      raw.tensor_dtype(w.results[at]), raw.tensor_dims(w.results[at]))
  end
end

-- Rows that sources in `to` have from their later uses are made dense where the
-- call's own gradient is, as line by line when the first dense one comes. Rows
-- behind rows stay a list, and the others are nothing to begin with.
local function make_dense(sums, to, own)
  local list = { n = 0 }
  for k = 1, to.n do
    local sum, at = sums[to[k]], own.at[k]
    if sum ~= nil and raw.kind(sum) == "slices" then
      sum = at ~= nil and at.dims == nil
        and convert.tensor(sum, nil, "gradient", "x") or nil
    end
    sums[to[k]] = sum
    if sum ~= nil then
      append(list, to[k])
    end
  end
  return list
end

-- The backward graph for what arrives and is wanted, and what it gives.
local function choose(w, f, kept, words, grads, wanted, walk)
  local from, to, begun = { n = 0 }, { n = 0 }, { n = 0 }
  for i = 1, f.from.n do
    if grads[f.from[i]] ~= nil then
      append(from, f.from[i])
    end
  end
  local place, sums, has_rows = {}, {}, false
  kept.sums = sums
  for i = 1, f.to.n do
    local flag = wanted:sub(i, i)
    if flag ~= "0" then
      append(to, f.to[i])
    end
    if flag == "2" then
      append(begun, f.to[i])
      place[f.to[i]], sums[f.to[i]] = i - 1, raw.walk_sum(walk, i - 1)
      has_rows = has_rows or raw.kind(sums[f.to[i]]) == "slices"
    end
  end
  local pure = kept.all and raw.tape_active() > 0
  if has_rows then
    begun = make_dense(sums, to, backward(w, from, to, NONE, pure))
  end
  local b = backward(w, from, to, begun, pure)
  if not has_all(kept, words, b) then
    fill(w, f, grads)
    return f.back, f.to
  end
  for k = 1, begun.n do
    raw.walk_take(walk, place[begun[k]])
  end
  return b, to
end

-- What a graph for the sources in `to` gives for all of a step.
local function give(b, all, to, got)
  if b.is_list and to == all then
    return got
  end
  local out, k = { n = all.n }, 1
  for i = 1, all.n do
    if to[k] == all[i] then
      local at = b.at[k]
      if at ~= nil and at.dims ~= nil then
        out[i] = raw.slices_new(got[at.values], got[at.indices], at.dims)
      elseif at ~= nil then
        out[i] = got[at.values]
      end
      k = k + 1
    end
  end
  return out
end

-- All gradients that f.back's graph gives for all that may arrive; nothing where
-- the walk has them.
local function give_all(w, f, kept, words, grads, walk)
  local inputs, b = kept.fed, f.back
  for at, i in pairs(f.grads_at) do
    inputs[i] = grads[at]
  end
  local late = next(f.late_at) ~= nil and late_values(w, b.feeds)
  for at, i in pairs(f.late_at) do
    inputs[i] = late[at]
  end
  local given
  if b.is_list and b.n <= MOST then
    raw.graph_into_walk(b.graph, words, inputs, walk)
  else
    given = give(b, f.to, f.to, b.n > 0 and run(b.graph, b.n, inputs, words))
  end
  for _, i in pairs(f.grads_at) do
    inputs[i] = nil -- a persistent tape holds on to the rest
  end
  for _, i in pairs(f.late_at) do
    inputs[i] = nil
  end
  return given
end

local function gradients(w, f, kept, words, grads, walk)
  local wanted = raw.walk_wanted(walk, f.to.n)
  local all = wanted == f.all and kept.arguments == nil
  for i = 1, f.from.n do
    local at = f.from[i]
    all = all and grads[at] ~= nil
    if grads[at] ~= nil and raw.kind(grads[at]) ~= "tensor" then
      grads[at] = convert.tensor(grads[at], nil, "gradient", "x")
    end
  end
  if all then
    return give_all(w, f, kept, words, grads, walk)
  end
  local lists = kept_lists(f, kept)
  lists.grads = grads
  local b, to = choose(w, f, lists, words, grads, wanted, walk)
  lists.late = late_values(w, b.feeds)
  return give(b, f.to, to, b.n > 0
    and run(b.graph, b.n, fed(b.feeds, lists), words))
end

local function run_followed(w, f, arguments)
  local c = w.made
  local kept = keep(w, f, arguments)
  local words = concrete.next_words(c)
  local outputs = run(f.graph, f.n, f.takes_arguments and arguments
    or fed(f.feeds, { arguments = arguments }), words)
  for i = 1, f.saved.n do
    local at = c.outputs_n + i
    kept.fed[f.saved_at[i]], outputs[at] = outputs[at], nil
  end
  outputs.n = c.outputs_n
  local inputs = f.sources or { n = f.to.n }
  for i = 1, f.sources == nil and f.to.n or 0 do
    inputs[i] = source_of(arguments, w.captured, f.to[i])
  end
  gradient_tape.record_step(inputs, outputs, function(grads, _, walk)
    return gradients(w, f, kept, words, grads, walk)
  end)
  return concrete.give(c, arguments, outputs)
end

local SIZES = 8 -- that a graph of open sizes has wholes for

-- The sizes that a graph for several is called with.
local function sizes_of(c, arguments)
  if c.known == nil then
    return ""
  end
  local parts = {}
  for i = 1, arguments.n do
    parts[i] = concat(raw.tensor_dims(arguments[i]), ",")
  end
  return concat(parts, ";")
end

-- The whole for this call and its forward graph, nil where tapes follow nothing.
-- No whole for a tensor given twice, whose uses would not add up in their order.
local function prepare(c, key, arguments, ...)
  local w = c.wholes[key]
  if w == nil then
    w = make_whole(c, arguments, ...)
    if c.wholes_n == SIZES then
      c.wholes, c.wholes_n = {}, 0
    end
    c.wholes[key], c.wholes_n = w, c.wholes_n + 1
  end
  local followed, twice = raw.tape_followed(arguments, w.captured)
  if twice then
    return nil
  end
  if followed ~= nil and w.forward[followed] == nil then
    w.forward[followed] = make_forward(w, followed)
  end
  return w, w.forward[followed or ""]
end

-- Under two tapes each op is a step: gradients of gradients add up what comes
-- through the call and through its gradient op by op, and two sums of one value
-- round otherwise than one.
local function may_have_whole(c, key, fn)
  return c.wholes[key] ~= false and raw.tape_active() == 1
    and (fn ~= nil or not c.has_parts and not c.has_custom_gradient)
end

-- What the trace computed of tensors that a tape follows now is a constant of the
-- graph: their gradients are those line by line.
local function check_folded(c, fn)
  if fn == nil then
    errors.raise("NotImplementedError", c.name .. ": a tape follows a tensor "
      .. "from outside the function, of which the trace has computed values",
      "give it as an argument, or call the function instead of its concrete "
      .. "function")
  end
end

--- Run c, what fn(...) was traced to (fn may be nil), on a list of tensors and on
--- the tapes that follow.
function M.run(c, arguments, fn, ...)
  if c.runs and fn ~= nil then
    return fn(...) -- Lua that the graph calls has called it again
  elseif raw.tape_active() == 0 then
    return concrete.run(c, arguments)
  elseif c.folded ~= nil and raw.tape_followed(c.folded, NONE) ~= nil then
    check_folded(c, fn)
    return fn(...)
  end
  if c.wholes == nil then
    c.wholes, c.wholes_n = {}, 0
  end
  local key = sizes_of(c, arguments)
  local ok, w, f = may_have_whole(c, key, fn)
  if ok then
    ok, w, f = pcall(prepare, c, key, arguments, fn, ...)
    if not ok and not REFUSALS[errors.kind(w)] then
      error(w, 0)
    end
    if not ok then
      c.wholes[key] = false
    end
    ok = ok and w ~= nil
  end
  if f ~= nil then
    return run_followed(w, f, arguments)
  elseif not ok and c.has_custom_gradient and fn ~= nil then
    return fn(...)
  end
  raw.graph_set_followed(c.handle, not ok)
  return concrete.run(c, arguments)
end

return M
