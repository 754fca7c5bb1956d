--- Choices and loops inside traced functions: graphs that the runtime runs or
--- does not run, or runs again and again.
---
--- What a branch or a loop's body computes is traced once, in a part of its own
--- (tracing.part), followed by a tape of that part. Its gradient is traced into
--- the same part and becomes a choice or a loop again, recorded on the tapes
--- around like the first; so gradients have gradients.
local convert = require "tfdist.core.convert"
local gradient_tape = require "tfdist.core.gradient_tape"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local tracing = require "tfdist.core.tracing"

local M = {}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local FLOAT = { float16 = true, bfloat16 = true, float32 = true,
                float64 = true }

local function is_float(t)
  return FLOAT[raw.tensor_dtype(t)] == true
end

-- What a value is told by. A variable is one handle, and a read has its own id.
local function key_of(x)
  return raw.kind(x) == "variable" and x or raw.tensor_id(x)
end

local function append(list, x)
  list.n = list.n + 1
  list[list.n] = x
  return list.n
end

-- A value of its own: neither a variable's place nor an argument.
local function identity(x)
  return (raw.op_run(raw.op_find "identity", { x, n = 1 }))
end

local function zeros(like)
  local dims = raw.tensor_dims(like)
  for axis = 1, #dims do
    if dims[axis] < 0 then
      return (raw.op_run(raw.op_find "zeros_like", { like, n = 1 }, { 0 }))
    end
  end
  return raw.tensor_from_values({ 0 }, raw.tensor_dtype(like), dims)
end

-- Parts ------------------------------------------------------------------------

--- A part of the trace, in which fn(part) is recorded; what fn returns is
--- part.results. A tape follows it where one follows the trace.
---@param fn function
---@param loop? boolean  it may run again and again
function M.part(fn, loop)
  local part = tracing.part(loop)
  -- Inputs that are no captures, by number: { symbol, outer }.
  part.given, part.reads = {}, {}
  local taped = raw.tape_active() > 0
  tracing.inside(part, function()
    if taped then
      part.tape = gradient_tape.new(true, true)
      raw.tape_follow_all(part.tape.handle)
      gradient_tape.follow_others(part.tape)
    end
    part.results = fn(part)
  end)
  if taped then
    gradient_tape.takes_steps(part.tape, false)
  end
  raw.graph_begin_gradients(part.graph)
  return part
end

-- Trace more in a part, on its tape.
local function inside(part, fn)
  gradient_tape.takes_steps(part.tape, true)
  return state.protect(function()
    gradient_tape.takes_steps(part.tape, false)
  end, tracing.inside, part, fn)
end

--- One more argument of a part: a symbol like `t`, with these sizes (default
--- its own), and its number. outer: what it stands for, if that is one tensor.
local function argument(part, t, dims, outer)
  local symbol = raw.graph_input(part.graph, raw.tensor_dtype(t),
    dims or raw.tensor_dims(t), raw.tensor_device(t))
  local number = raw.graph_input_count(part.graph) - 1
  part.given[number] = { symbol = symbol, outer = outer }
  return symbol, number
end

-- Slot of t among the operands of a step, each of which comes once.
local function slot_of(operands, t)
  local id = raw.tensor_id(t)
  operands.at[id] = operands.at[id] or append(operands, t) - 1
  return operands.at[id]
end

-- The value that variable number i of the part had when its step was recorded;
-- late: that it has now.
local function read_of(part, i, late)
  local v = raw.graph_variable(part.graph, i)
  if late then
    return raw.variable_read(v)
  end
  part.reads[v] = part.reads[v] or raw.variable_read(v)
  return part.reads[v]
end

-- Slots for the inputs of a graph extracted from `part`. slot_for(number) is
-- asked for those that are neither captured nor variables.
local function add_slots(slots, graph, part, operands, slot_for, note)
  for i = 0, raw.graph_input_count(graph) - 1 do
    local source, late = raw.graph_source(graph, i)
    if source < 0 then
      append(slots, slot_of(operands, read_of(part, -1 - source, late)))
    elseif part.given[source] ~= nil then
      append(slots, slot_for(source))
    else
      local outer = raw.graph_captured(part.graph, source)
      append(slots, slot_of(operands, outer))
      note(outer, outer)
    end
  end
end

-- Gradients --------------------------------------------------------------------

-- Dense gradients inside a part, a list with holes: also where a source is nil.
-- What nobody wants is not even recorded, as its gradient may fail.
local function gradients(part, targets, sources, given)
  local there = { n = 0 }
  for i = 1, sources.n do
    if sources[i] ~= nil then
      append(there, sources[i])
    end
  end
  local list, k = part.tape:gradient(targets, there, given), 0
  local out = { n = sources.n }
  for i = 1, sources.n do
    k = sources[i] ~= nil and k + 1 or k
    if sources[i] ~= nil and list[k] ~= nil then
      out[i] = convert.tensor(list[k], nil, "gradient", "x")
    end
  end
  return out
end

-- Record the step on the tapes around: rule(grads, wanted) gives the gradients of
-- the sources' outer values, of which nobody wants those with a "0".
local function record(sources, outputs, rule)
  local inputs = { n = sources.n }
  for i = 1, sources.n do
    inputs[i] = sources[i].outer
  end
  gradient_tape.record_step(inputs, outputs, function(grads, n, walk)
    for i = 1, n do
      grads[i] = grads[i] ~= nil and convert.tensor(grads[i], nil, "gradient",
        "x") or nil
    end
    return rule(grads, raw.walk_wanted(walk, sources.n))
  end)
end

-- Variables and constants that the part's tape follows are sources too.
local function add_followed(part, add)
  for i = 0, raw.tape_variable_count(part.tape.handle) - 1 do
    local v = raw.tape_variable(part.tape.handle, i)
    add(v, v)
  end
  for i = 0, raw.tape_constant_count(part.tape.handle) - 1 do
    local t = raw.tape_constant(part.tape.handle, i)
    add(t, t)
  end
end

-- Choices ----------------------------------------------------------------------

local emit_choice

-- Gradients of the wanted sources in branch k for what arrives at its results;
-- zeros where only results that nothing arrives at depend on one.
local function branch_gradients(c, k, grads, wanted)
  local part, results = c.parts[k], c.results[k]
  return inside(part, function()
    local targets, given, inner = { n = 0 }, { n = 0 }, { n = c.sources.n }
    local others = { n = 0 }
    for j = 1, results.n do
      if grads[j] ~= nil and is_float(results[j]) then
        append(targets, results[j])
        append(given, (argument(part, results[j], nil, grads[j])))
      elseif is_float(results[j]) then
        append(others, results[j])
      end
    end
    for i = 1, inner.n do
      inner[i] = wanted:sub(i, i) ~= "0"
        and (c.sources[i].inner[k] or c.sources[i].outer) or nil
    end
    local list = gradients(part, targets, inner, given)
    local of_others = others.n > 0 and gradients(part, others, inner) or {}
    for i = 1, inner.n do
      if list[i] == nil and of_others[i] ~= nil then
        list[i] = zeros(raw.operand_tensor(c.sources[i].outer))
      end
    end
    return list
  end)
end

-- The gradient of a choice is a choice between those of its branches, zeros
-- where one has none and another has.
local function differentiate_choice(c, grads, wanted)
  local lists, some_have = {}, { n = 0 }
  for k = 1, #c.parts do
    lists[k] = branch_gradients(c, k, grads, wanted)
  end
  local results = {}
  for k = 1, #lists do
    results[k] = { n = 0 }
  end
  for i = 1, c.sources.n do
    local some
    for k = 1, #lists do
      some = some or lists[k][i]
    end
    if some ~= nil then
      append(some_have, i)
      for k = 1, #lists do
        append(results[k], lists[k][i]
          or zeros(raw.operand_tensor(c.sources[i].outer)))
      end
    end
  end
  local out = { n = c.sources.n }
  if some_have.n > 0 then
    local got = emit_choice { parts = c.parts, index = c.index, pure = true,
      results = results }
    for j = 1, some_have.n do
      out[some_have[j]] = got[j]
    end
  end
  return out
end

-- Record the choice c: parts, index, results (of each part, a list), pure.
function emit_choice(c)
  local graph = tracing.current().graph
  local operands = { c.index, n = 1, at = {} }
  local graphs, slots = { n = 0 }, { n = 0 }
  local sources, seen = { n = 0 }, {}
  local at
  local function note(outer, inner)
    if is_float(raw.operand_tensor(outer)) then
      local key = key_of(outer)
      seen[key] = seen[key] or append(sources, { outer = outer, inner = {} })
      sources[seen[key]].inner[at] = inner
    end
  end
  for k, part in ipairs(c.parts) do
    at = k
    append(graphs, raw.graph_extract(part.graph, c.results[k],
      c.pure == true, {}))
    add_slots(slots, graphs[k], part, operands, function(number)
      local given = part.given[number]
      note(given.outer, given.symbol)
      return slot_of(operands, given.outer)
    end, note)
    if part.tape ~= nil then
      add_followed(part, note)
    end
  end
  operands.at = nil
  raw.note_position()
  raw.graph_choice(graph, graphs, operands, slots)
  local out = { n = c.results[1].n }
  for i = 1, out.n do
    out[i] = raw.graph_output(graph, i - 1)
  end
  if c.parts[1].tape ~= nil and raw.tape_active() > 0 then
    c.sources = sources
    record(sources, out, function(grads, wanted)
      return differentiate_choice(c, grads, wanted)
    end)
  end
  return out
end

--- Run the part whose number (from 0) `index` is, else the last. results: of
--- each part, a list of its tensors; returns those of the part that runs.
function M.choose(index, parts, results)
  return emit_choice { parts = parts, index = index, results = results }
end

-- Loops ------------------------------------------------------------------------

local emit_loop

-- The loop that goes back over the iterations of l: gradients of its carries
-- and sums of gradients are carried, what the iterations began with are rows.
local function backward_of(l, grads)
  local part, c = l.part, l.carries.n
  local b = { part = part, pure = true, count = l.outputs[c + 1],
    reversed = not l.reversed, strided = true, size = l.size, most = -1,
    others = l.others,
    carries = { n = 0 }, rows = { n = 0 }, stacks = { n = 0 } }
  local targets, given = { n = 0 }, { n = 0 }
  for j = 1, c do
    local carry = l.carries[j]
    append(b.rows, { number = carry.number, symbol = carry.symbol,
      tensor = l.outputs[c + 1 + l.own_stacks + j] })
    if is_float(carry.symbol) then
      local symbol, number = argument(part, carry.symbol)
      b.carries[j] = { symbol = symbol, number = number,
        init = grads[j] or zeros(l.outputs[j]) }
      append(targets, carry.result)
      append(given, symbol)
    end
  end
  for s = 1, l.stacks.n do
    local grad = grads[c + 1 + s]
    if grad ~= nil and is_float(l.stacks[s]) then
      local symbol, number = argument(part, l.stacks[s])
      append(b.rows, { number = number, symbol = symbol, tensor = grad })
      append(targets, l.stacks[s])
      append(given, symbol)
    end
  end
  for r = 1, l.rows.n do
    append(b.rows, l.rows[r])
  end
  return b, targets, given
end

-- What the backward loop computes for each source that is wanted or carried;
-- at[i] tells where it is.
local function fill_backward(l, b, targets, given, wanted)
  local part, inner, at = l.part, { n = l.sources.n }, {}
  for i = 1, inner.n do
    if l.sources[i].carry ~= nil or wanted:sub(i, i) ~= "0" then
      inner[i] = l.sources[i].inner
    end
  end
  local list = gradients(part, targets, inner, given)
  local packed = { n = 0 }
  for i = 1, inner.n do
    local source = l.sources[i]
    if source.carry ~= nil then
      local carry = b.carries[source.carry]
      carry.result = list[i] or zeros(carry.symbol)
      at[i] = { carry = append(packed, carry) }
    elseif list[i] ~= nil and source.row then
      at[i] = { stack = append(b.stacks, list[i]) }
    elseif list[i] ~= nil then
      local symbol, number = argument(part, list[i])
      at[i] = { carry = append(packed, { symbol = symbol, number = number,
        init = zeros(list[i]),
        result = (raw.op_run(raw.op_find "add", { symbol, list[i], n = 2 })) }) }
    end
  end
  b.carries = packed
  return at
end

-- Zeros for what the loop takes without depending on it.
local function differentiate_loop(l, grads, wanted)
  local b, at
  inside(l.part, function()
    local targets, given
    b, targets, given = backward_of(l, grads)
    at = fill_backward(l, b, targets, given, wanted)
  end)
  local outputs = emit_loop(b)
  local out = { n = l.sources.n }
  for i = 1, out.n do
    if at[i] ~= nil then
      out[i] = outputs[at[i].carry or b.carries.n + 1 + at[i].stack]
    elseif wanted:sub(i, i) ~= "0" then
      out[i] = zeros(raw.operand_tensor(l.sources[i].outer))
    end
  end
  return out
end

-- While tapes follow, what each iteration begins with is stacked too.
local function with_records(l)
  l.own_stacks = l.stacks.n
  if not l.taped then
    return
  end
  tracing.inside(l.part, function()
    for j = 1, l.carries.n do
      append(l.stacks, identity(l.carries[j].symbol))
    end
  end)
end

local function extract_loop(l)
  local results = { n = 0 }
  for j = 1, l.carries.n do
    append(results, l.carries[j].result)
  end
  for s = 1, l.stacks.n do
    append(results, l.stacks[s])
  end
  local graphs = { raw.graph_extract(l.part.graph, results, l.pure == true,
    l.others), n = 1 }
  if l.condition ~= nil then
    append(graphs, raw.graph_extract(l.condition.graph,
      { l.condition.result, n = 1 }, false, l.others))
  end
  return graphs
end

-- Operands that are counted off, and what each argument of the part is: a carry,
-- or a row if the body asks for it.
local function count_operands(l, body)
  local operands = { l.count, n = 1, at = {} }
  local slots, sources, used = {}, { n = 0 }, { n = 0 }
  local function note(entry, outer, carry)
    if is_float(entry.symbol) then
      append(sources, { outer = outer, inner = entry.symbol, carry = carry,
        row = carry == nil })
    end
  end
  local function add(entry, outer, carry)
    slots[entry.number] = append(operands, outer) - 1
    note(entry, outer, carry)
  end
  local asked = {}
  for i = 0, raw.graph_input_count(body) - 1 do
    asked[raw.graph_source(body, i)] = true
  end
  for j = 1, l.carries.n do
    add(l.carries[j], l.carries[j].init, j)
  end
  for r = 1, l.rows.n do
    -- The first row says how many there are where nothing else does.
    local says = r == 1 and l.count == nil and l.condition == nil
    if says or asked[l.rows[r].number] then
      append(used, l.rows[r])
      add(l.rows[r], l.rows[r].tensor)
    else
      note(l.rows[r], l.rows[r].tensor)
    end
  end
  l.rows = used
  return operands, slots, sources
end

-- Record the loop l: part, carries and rows (number, symbol and init or tensor,
-- and result), stacks, condition or count, reversed, strided, size, most,
-- pure.
function emit_loop(l)
  local graph = tracing.current().graph
  l.taped = l.part.tape ~= nil and raw.tape_active() > 0
  with_records(l)
  local graphs = extract_loop(l)
  local operands, numbers, sources = count_operands(l, graphs[1])
  local slots, seen = { n = 0 }, {}
  local function note(outer, inner)
    local key = key_of(outer)
    if is_float(raw.operand_tensor(outer)) and not seen[key] then
      seen[key] = true
      append(sources, { outer = outer, inner = inner })
    end
  end
  add_slots(slots, graphs[1], l.part, operands, function(number)
    return numbers[number]
  end, note)
  if l.condition ~= nil then
    add_slots(slots, graphs[2], l.condition, operands, function(number)
      return number + 1 -- its arguments are the carries
    end, note)
  end
  operands.at = nil
  raw.note_position()
  raw.graph_loop(graph, graphs, operands, slots, l.carries.n, l.rows.n,
    l.stacks.n, l.size, l.most, l.reversed, l.strided == true)
  l.outputs = { n = l.carries.n + 1 + l.stacks.n }
  for i = 1, l.outputs.n do
    l.outputs[i] = raw.graph_output(graph, i - 1)
  end
  if l.taped then
    add_followed(l.part, note)
    if l.condition ~= nil then
      add_followed(l.condition, note)
    end
    l.sources = sources
    record(sources, l.outputs, function(grads, wanted)
      return differentiate_loop(l, grads, wanted)
    end)
  end
  return l.outputs
end

--- Repeat a body. l.inits: tensors that the carries begin with; l.dims: sizes
--- that they may have; l.tensors: of which each iteration gets one row; l.count
--- or l.check(...): how often, a tensor, or whether again, a boolean tensor;
--- without either as often as there are rows;
--- l.most: at most, -1 = any number; l.size: the number where it is known, or -1;
--- l.reversed: from the last row. l.body(carries, rows) gives the next carries
--- and what is stacked, two lists. Returns the last carries and the stacks.
function M.loop(l)
  local carries, rows = { n = l.inits.n }, { n = l.tensors.n }
  local function symbols_of(part, at)
    local out = { n = l.inits.n }
    for j = 1, out.n do
      local symbol, number = argument(part, l.inits[j], l.dims[j])
      out[j] = symbol
      if at ~= nil then
        at[j] = { symbol = symbol, number = number, init = l.inits[j] }
      end
    end
    return out
  end
  local stacks
  local part = M.part(function(part)
    local given, values = symbols_of(part, carries), { n = rows.n }
    for r = 1, rows.n do
      local symbol, number = M.row(part, l.tensors[r])
      rows[r] = { symbol = symbol, number = number, tensor = l.tensors[r] }
      values[r] = symbol
    end
    local next_carries
    next_carries, stacks = l.body(given, values)
    for j = 1, carries.n do
      carries[j].result = identity(next_carries[j])
    end
    for s = 1, stacks.n do
      stacks[s] = identity(stacks[s])
    end
  end, true)
  local condition
  if l.check ~= nil then
    condition = M.part(function(inner)
      inner.result = identity(l.check(symbols_of(inner)))
    end, true)
  end
  local others = { part.graph, n = 1 }
  if condition ~= nil then
    append(others, condition.graph)
  end
  local outputs = emit_loop { part = part, condition = condition,
    carries = carries, rows = rows, stacks = { n = stacks.n,
      unpack(stacks, 1, stacks.n) }, count = l.count, reversed = l.reversed,
    size = l.size, most = l.most, others = others }
  local last, stacked = { n = carries.n }, { n = stacks.n }
  for j = 1, last.n do
    last[j] = outputs[j]
  end
  for s = 1, stacked.n do
    stacked[s] = outputs[carries.n + 1 + s]
  end
  return last, stacked
end

--- A value under an id of its own.
M.identity = identity
M.argument = argument

--- One more argument of a part, like a row of t.
function M.row(part, t)
  local dims = raw.tensor_dims(t)
  table.remove(dims, 1)
  return argument(part, t, dims)
end

return M
