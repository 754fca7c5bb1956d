--- Calls of traced functions that tapes follow: one step of the tape each.
---
--- What the function computes is recorded once more, with a tape on it: the
--- whole. From it come, for each set of followed values, a forward graph, which
--- also gives what the backward graph reads, and for each set of gradients that
--- arrive and are wanted a backward graph. Where tapes follow the gradient too,
--- it is a graph of the arguments alone, which they see op by op.
local concrete = require "tfdist.traced.concrete"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local gradient_tape = require "tfdist.core.gradient_tape"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"

local M = {}

local concat = table.concat

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

-- What a gradient may be asked for: { number of the argument, or the variable or
-- constant itself; what stands for it in the whole }.
local function add_sources(w)
  w.sources = { n = 0 }
  for i = 1, w.symbols.n do
    if is_float(w.symbols[i]) then
      append(w.sources, { argument = i, inner = w.symbols[i] })
    end
  end
  for i = 0, raw.tape_variable_count(w.tape.handle) - 1 do
    local v = raw.tape_variable(w.tape.handle, i)
    append(w.sources, { outer = v, inner = v })
  end
  for i = 1, w.constants.n do
    append(w.sources, { outer = w.constants[i], inner = w.constants[i] })
  end
end

local function record_whole(w, c)
  w.tape = gradient_tape.new(true, true)
  raw.tape_follow_all(w.tape.handle)
  for i = 0, raw.graph_constant_count(c.handle) - 1 do
    local t = raw.graph_constant(c.handle, i)
    if is_float(t) then
      append(w.constants, t)
      raw.tape_watch(w.tape.handle, t)
    end
  end
  raw.graph_start(c.handle, w.symbols, c.words, {})
  w.results = state.protect(function()
    raw.graph_stop(c.handle)
    w.tape:close()
  end, results_of, c.handle)
end

local function make_whole(c, inputs)
  local graph = raw.graph_new(c.name)
  local w = { graph = graph, symbols = { n = inputs.n }, constants = { n = 0 },
    grads = {}, of_input = {}, variants = {} }
  for i = 1, inputs.n do
    w.symbols[i] = symbol_like(graph, inputs[i])
    w.of_input[i - 1] = { "arguments", i }
  end
  for i = 1, #c.words, 4 do
    raw.graph_draw(graph, { c.words[i], c.words[i + 1], c.words[i + 2],
      c.words[i + 3] })
  end
  raw.graph_begin(graph)
  state.protect(function()
    raw.graph_end(graph)
  end, record_whole, w, c)
  w.first = raw.graph_node_count(graph)
  w.variables_n = raw.graph_variable_count(graph)
  add_sources(w)
  return w
end

-- Graphs of it -----------------------------------------------------------------

-- What each input of a graph from the whole is: { list, its place there }.
local function feeds_of(w, graph)
  local feeds, n = { n = raw.graph_input_count(graph) },
    raw.graph_input_count(w.graph)
  for i = 1, feeds.n do
    local source = raw.graph_source(graph, i - 1)
    if source < 0 then
      feeds[i] = { "variables", -source }
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

-- The symbol of what arrives at result i.
local function arriving(w, i)
  if w.grads[i] == nil then
    w.of_input[raw.graph_input_count(w.graph)] = { "grads", i }
    w.grads[i] = symbol_like(w.graph, w.results[i])
  end
  return w.grads[i]
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
-- `to`, lists of numbers. pure: it computes again what it needs.
local function make_backward(w, from, to, pure)
  local targets, given, sources = { n = from.n }, { n = from.n }, { n = to.n }
  for i = 1, from.n do
    targets[i], given[i] = w.results[from[i]], arriving(w, from[i])
  end
  for i = 1, to.n do
    sources[i] = w.sources[to[i]].inner
  end
  raw.graph_begin(w.graph)
  local results, at = state.protect(function()
    raw.graph_end(w.graph)
  end, function()
    return flatten(w.tape:gradient(targets, sources, given), to.n)
  end)
  local b = { at = at, n = results.n }
  if b.n > 0 then
    b.graph = pure and raw.graph_extract(w.graph, results, true, {})
      or raw.graph_backward(w.graph, results, w.first)
    b.feeds = feeds_of(w, b.graph)
  else
    b.feeds = { n = 0 }
  end
  return b
end

local function backward(w, from, to, pure)
  local key = concat(from, ",") .. ":" .. concat(to, ",")
    .. (pure and "p" or "")
  local b = w.variants[key]
  if b == nil then
    b = make_backward(w, from, to, pure)
    w.variants[key] = b
  end
  return b
end

local function make_forward(w, to)
  local from = { n = 0 }
  for i = 1, w.results.n do
    if is_float(w.results[i]) then
      append(from, i)
    end
  end
  local f = { from = from, to = to, back = backward(w, from, to),
    saved = { n = 0 } }
  for i = 1, f.back.feeds.n do
    local feed = f.back.feeds[i]
    if feed[1] == "saved" then
      append(f.saved, feed[2])
    end
  end
  f.graph = raw.graph_forward(w.graph, w.results, f.saved)
  raw.graph_set_followed(f.graph, false)
  f.feeds = feeds_of(w, f.graph)
  return f
end

-- The forward graph for what tapes follow among the sources; nil for nothing.
local function forward_for(w, arguments)
  local to = { n = 0 }
  for i = 1, w.sources.n do
    local source = w.sources[i]
    if raw.tape_follows(source.outer or arguments[source.argument]) then
      append(to, i)
    end
  end
  if to.n == 0 then
    return nil
  end
  local key = concat(to, ",")
  local f = w.variants[key]
  if f == nil then
    f = make_forward(w, to)
    w.variants[key] = f
  end
  return f
end

-- Calls ------------------------------------------------------------------------

local function run(graph, inputs, words)
  raw.graph_start(graph, inputs, words, {})
  return state.protect(function()
    raw.graph_stop(graph)
  end, results_of, graph)
end

-- What backward graphs with these feeds take from the call; all of it where the
-- gradient may be followed.
local function keep(w, feeds, arguments)
  local kept = { arguments = {}, variables = {}, saved = {} }
  if gradient_tape.may_follow_gradients() then
    kept.all = true
    kept.arguments = arguments
    for i = 1, w.variables_n do
      kept.variables[i] = raw.operand_tensor(raw.graph_variable(w.graph, i - 1))
    end
    return kept
  end
  for i = 1, feeds.n do
    local list, at = feeds[i][1], feeds[i][2]
    if list == "arguments" then
      kept.arguments[at] = arguments[at]
    elseif list == "variables" then
      kept.variables[at] = raw.operand_tensor(
        raw.graph_variable(w.graph, at - 1))
    end
  end
  return kept
end

local function has_all(kept, feeds)
  for i = 1, feeds.n do
    local list, at = feeds[i][1], feeds[i][2]
    if kept[list][at] == nil then
      return false
    end
  end
  return true
end

-- Zeros where nothing arrives: the graph for all gradients has all it needs.
local function full(w, f, grads)
  for i = 1, f.from.n do
    local at = f.from[i]
    grads[at] = grads[at] or raw.tensor_from_values({ 0 },
      raw.tensor_dtype(w.results[at]), raw.tensor_dims(w.results[at]))
  end
  return f.back, f.to
end

local function gradients(w, f, kept, words, grads, needs)
  local from, to = { n = 0 }, { n = 0 }
  for i = 1, f.from.n do
    local at = f.from[i]
    if grads[at] ~= nil then
      append(from, at)
      grads[at] = convert.tensor(grads[at], nil, "gradient", "x")
    end
  end
  for i = 1, f.to.n do
    if needs(i) then
      append(to, f.to[i])
    end
  end
  kept.grads = grads
  local b = backward(w, from, to, kept.all and raw.tape_active() > 0)
  if not has_all(kept, b.feeds) then
    b, to = full(w, f, grads)
  end
  local got = b.n > 0 and run(b.graph, fed(b.feeds, kept), words)
  kept.grads = nil
  local of = {}
  for i = 1, to.n do
    local at = b.at[i]
    if at ~= nil and at.dims ~= nil then
      of[to[i]] = raw.slices_new(got[at.values], got[at.indices], at.dims)
    elseif at ~= nil then
      of[to[i]] = got[at.values]
    end
  end
  local out = { n = f.to.n }
  for i = 1, f.to.n do
    out[i] = of[f.to[i]]
  end
  return out
end

local function run_followed(c, f, arguments)
  local w = c.whole
  local kept = keep(w, f.back.feeds, arguments)
  local words = concrete.next_words(c)
  local outputs = run(f.graph, fed(f.feeds, { arguments = arguments }), words)
  for i = 1, f.saved.n do
    local at = c.outputs_n + i
    kept.saved[f.saved[i]], outputs[at] = outputs[at], nil
  end
  outputs.n = c.outputs_n
  local inputs = { n = f.to.n }
  for i = 1, f.to.n do
    local source = w.sources[f.to[i]]
    inputs[i] = source.outer or arguments[source.argument]
  end
  gradient_tape.record_step(inputs, outputs, function(grads, _, needs)
    return gradients(w, f, kept, words, grads, needs)
  end)
  return concrete.give(c, arguments, outputs)
end

-- The forward graph for this call; nil where tapes follow nothing, or where
-- there can be none: then they see op after op.
local function prepare(c, arguments)
  if c.whole == nil then
    c.whole = make_whole(c, arguments)
    raw.graph_set_followed(c.handle, false)
  end
  return forward_for(c.whole, arguments)
end

local function may_have_whole(c)
  return c.whole ~= false and c.known == nil and next(c.steps) == nil
    and #c.numbers == 0
end

--- Run c on a list of tensors, on the tapes that follow.
function M.run(c, arguments)
  if raw.tape_active() == 0 or not may_have_whole(c) then
    return concrete.run(c, arguments)
  end
  local ok, f = pcall(prepare, c, arguments)
  if not ok then
    if not REFUSALS[errors.kind(f)] then
      error(f, 0)
    end
    c.whole = false
    raw.graph_set_followed(c.handle, true)
  elseif f ~= nil then
    return run_followed(c, f, arguments)
  end
  return concrete.run(c, arguments)
end

return M
