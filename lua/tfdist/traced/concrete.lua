--- One traced graph of a function: made by a trace, called with tensors.
local counted = require "tfdist.core.counted"
local errors = require "tfdist.base.errors"
local input_signature = require "tfdist.traced.input_signature"
local lists = require "tfdist.base.lists"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local signature = require "tfdist.traced.signature"
local spec = require "tfdist.data.spec"
local state = require "tfdist.core.state"
local tensor_array = require "tfdist.core.tensor_array"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"
local values = require "tfdist.distribute.values"

local M = {}

local select, type = select, type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local Concrete = { __name = "ConcreteFunction" }
Concrete.__index = Concrete
text.watch_methods("ConcreteFunction", Concrete)

function M.is_concrete(x)
  return getmetatable(x) == Concrete
end

local function check_self(self, name)
  if not M.is_concrete(self) then
    options.wrong_self("ConcreteFunction." .. name, "concrete function", self)
  end
end

local function pack(...)
  return { n = select("#", ...), ... }
end

-- Tracing --------------------------------------------------------------------

-- The arguments with symbolic tensors in the tensors' places. dims[i], if any,
-- are the sizes of tensor i, -1 where the graph is for all.
local function make_symbols(graph, arguments, dims)
  local symbols = { n = 0 }
  local function make(x)
    local i = symbols.n + 1
    symbols.n = i
    symbols[i] = raw.graph_input(graph, raw.tensor_dtype(x),
      dims and dims[i] or raw.tensor_dims(x), raw.tensor_device(x))
    return symbols[i]
  end
  local function convert(x)
    return signature.map_tensors(make, x)
  end
  local out = { n = arguments.n }
  for i = 1, arguments.n do
    out[i] = nest.map_structure(convert, arguments[i])
  end
  return out, symbols
end

-- Results --------------------------------------------------------------------

-- Results are values of their call, which later ones leave as they are. Copies of
-- a distributed variable stand for it where results are regrouped.
local function is_variable(x)
  return type(x) == "userdata" and raw.kind(x) == "variable"
    and rawequal(values.container(x), x)
end

local function has_variable(x, seen)
  if not nest.is_nested(x) or seen[x] then
    return is_variable(x)
  end
  seen[x] = true
  for _, value in pairs(x) do
    if has_variable(value, seen) then
      return true
    end
  end
  return false
end

local function read_leaf(x)
  return is_variable(x) and raw.variable_read(x) or x
end

local FEW = 8 -- select(i, ...) takes as long as there are arguments

local function needs_reading(...)
  if select("#", ...) > FEW then
    return has_variable({ ... }, {})
  end
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    if is_variable(x) or type(x) == "table" and has_variable(x, {}) then
      return true
    end
  end
  return false
end

--- What a traced function gives, of code that is not traced by itself: variables
--- among these as the values that they have.
function M.values_of(...)
  if not needs_reading(...) then
    return ...
  end
  local list = { n = select("#", ...), ... }
  for i = 1, list.n do
    list[i] = nest.map_structure(read_leaf, list[i])
  end
  return unpack(list, 1, list.n)
end

-- What a result is made of at each call: { input = i }, { output = i },
-- { dims, values, indices } of slices, { parts, kind, strategy } of a value,
-- { array } of these or { value = x } for what is the same always.
local function describe_leaf(x, c)
  if is_variable(x) then
    x = raw.variable_read(x)
  end
  if tracing.is_symbolic(x) then
    local outputs, place = c.outputs, c.places[x]
    if place == nil then
      outputs.n = outputs.n + 1
      outputs[outputs.n] = x
      place = { output = outputs.n }
      c.places[x] = place
    end
    c.gives_inputs = c.gives_inputs or place.input ~= nil
    return place
  elseif type(x) == "userdata" and raw.kind(x) == "slices" then
    local dims = {}
    for axis = 1, raw.slices_rank(x) do
      dims[axis] = raw.slices_dim(x, axis - 1)
    end
    return { dims = dims, values = describe_leaf(raw.slices_values(x), c),
      indices = describe_leaf(raw.slices_indices(x), c) }
  end
  if tensor_array.is_array(x) then
    return { array = tensor_array.map(x, function(t)
      return describe_leaf(t, c)
    end) }
  elseif values.is_value(x) then
    local parts, list = {}, values.components(x)
    for i = 1, list.n do
      parts[i] = list[i] ~= nil and describe_leaf(list[i], c) or false
    end
    return { parts = parts, kind = raw.value_kind_of(x),
      strategy = values.owner(x) }
  end
  return { value = x }
end

local LEAF = {} -- marks descriptions of leaves

local function describe(x, c, depth)
  if not nest.is_nested(x) then
    local leaf = describe_leaf(x, c)
    leaf[LEAF] = true
    return leaf
  elseif depth == nest.MAX_DEPTH then
    nest.too_deep "function_"
  end
  local out = {}
  for key, value in pairs(x) do
    out[key] = describe(value, c, depth + 1)
  end
  return out
end

local function leaf_value(leaf, inputs, outputs)
  if leaf.output ~= nil then
    return outputs[leaf.output]
  elseif leaf.input ~= nil then
    return inputs[leaf.input]
  elseif leaf.dims ~= nil then
    return raw.slices_new(leaf_value(leaf.values, inputs, outputs),
      leaf_value(leaf.indices, inputs, outputs), leaf.dims)
  elseif leaf.array ~= nil then
    return tensor_array.map(leaf.array, function(t)
      return leaf_value(t, inputs, outputs)
    end)
  elseif leaf.parts ~= nil then
    local list, n = {}, #leaf.parts
    for i = 1, n do
      if leaf.parts[i] then
        list[i] = leaf_value(leaf.parts[i], inputs, outputs)
      end
    end
    return values.new(leaf.strategy, leaf.kind, list, n)
  end
  return leaf.value
end

local function build(template, inputs, outputs)
  if template[LEAF] then
    return leaf_value(template, inputs, outputs)
  end
  local out = {}
  for key, value in pairs(template) do
    out[key] = build(value, inputs, outputs)
  end
  return out
end

-- Traces that begin inside each other, where ops run for real: each takes some
-- calls of C, of which an engine has 200.
local DEEPEST = 16

local function record(c, fn, arguments, symbols)
  local own = state.current
  local trace = c.trace
  local depth = own.traces or 0
  if depth == DEEPEST then
    errors.raise("RuntimeError", ("maximum recursion depth exceeded: more than "
      .. "%d traces inside each other, the last of \"%s\""):format(DEEPEST,
      c.name))
  end
  local leave = tracing.scopes(own)
  raw.graph_begin(c.handle)
  own.trace, own.traces = trace, depth + 1
  c.symbols, c.outputs = symbols, { n = 0 }
  state.protect(function()
    own.trace, own.traces = nil, depth
    leave()
    raw.graph_end(c.handle)
  end, function()
    local results = pack(fn(unpack(arguments, 1, arguments.n)))
    c.results, c.places = { n = results.n }, {}
    for i = 1, symbols.n do
      c.places[symbols[i]] = { input = i }
    end
    for i = 1, results.n do
      c.results[i] = describe(results[i], c, 0)
    end
    c.places = nil
  end)
end

local MOST = 64 -- inputs and results of graph_call

-- May run_plain run it? And are its results others than those of graph_call,
-- in their order?
local function is_plain(c)
  local plain = next(c.steps) == nil and c.outputs_n <= MOST
    and c.inputs_n <= MOST and not c.has_custom_gradient
  local other = c.results.n ~= c.outputs_n
  for i = 1, c.results.n do
    other = other or c.results[i].output ~= i or not c.results[i][LEAF]
  end
  return plain, other
end

-- Tensors from before the trace in ops that ran at it, nil = none.
local function folded_of(graph)
  local list = { n = raw.graph_folded_count(graph) }
  for i = 1, list.n do
    list[i] = raw.graph_folded(graph, i - 1)
  end
  return list.n > 0 and list or nil
end

--- Trace fn with these arguments, to a graph that is not complete. `dims`: sizes
--- of its tensors where they are to be other than they are; may_create: may it
--- make variables? may_fall_back: is there a graph for these sizes alone where
--- this one fails? "elements": is there another way where those of what it takes
--- from data sets are not known?
--- Errors: whatever fn raises; then nothing is left.
function M.record(name, fn, arguments, tensors, dims, may_create, may_fall_back)
  local graph = raw.graph_new(name)
  local c = setmetatable({
    name = name, handle = graph, inputs_n = tensors.n, created = 0,
    trace = { graph = graph, name = name, draws = {}, words = {}, numbers = {},
      numbers_n = 0, steps = {}, created = 0, may_create = may_create,
      may_fall_back = may_fall_back },
  }, Concrete)
  local given, symbols = make_symbols(graph, arguments, dims)
  record(c, fn, given, symbols)
  local trace = c.trace
  c.draws, c.steps, c.created = trace.draws, trace.steps, trace.created
  c.words, c.numbers, c.meets = trace.words, trace.numbers, trace.meets
  c.outputs_n = c.outputs.n
  return c
end

local SCALAR = { number = true, string = true, boolean = true }

-- The values among these leaves that are no tensors: what each is told by, words
-- for it, and its place. Objects are not held.
local function others_of(flat)
  local others = { n = 0, leaves = flat.n, at = {} }
  for i = 1, flat.n do
    local x = flat[i]
    local has_tensors = type(x) == "userdata" and (raw.kind(x) == "tensor"
      or values.is_value(x))
    if x ~= nil and not spec.is_spec(x) and not has_tensors then
      others.n = others.n + 1
      others[others.n] = { type(x) == "number" and x or signature.part(x),
        SCALAR[type(x)] and text.describe(x) or "an object", i }
      others.at[i] = others[others.n]
    end
  end
  return others
end

-- Values beside the tensors may be left out, or be nil; those that are there
-- choose among graphs, of which this is one.
local function check_others(self, flat)
  local given = others_of(flat)
  for i = 1, given.n do
    local x, others = given[i][1], self.others
    local known = others[i]
    if flat.n == others.leaves then
      known = others.at[given[i][3]]
    end
    if known == nil or known[1] ~= x and (x == x or known[1] == known[1]) then
      errors.raise("TypeError", ("%s: a value that is no tensor is %s, it was "
        .. "traced with %s"):format(self:pretty_printed_signature(),
        given[i][2], known == nil and "tensors alone"
        or known[2] == given[i][2] and "another one" or known[2]),
        "the function itself, or get_concrete_function, has a graph for each")
    end
  end
end

-- Where tensors stand among the arguments that it was traced with: the spec of
-- each in its place, true for values and IndexedSlices, which have several, and
-- false for what has none. specs.at counts.
local function places_of(x, specs)
  if nest.is_nested(x) then
    local out, any = {}, false
    local n, keys = nest.layout(x)
    for i = 1, n + (keys and #keys or 0) do
      local key = i <= n and i or keys[i - n]
      out[key] = places_of(x[key], specs)
      any = any or out[key] ~= false
    end
    return any and out
  end
  local first = specs.at
  signature.map_tensors(function(t)
    specs.at = specs.at + 1
    return t
  end, x)
  if specs.at == first then
    return false
  end
  return raw.kind(x) ~= "tensor" or specs[specs.at]
end

-- For all arguments, and for those alone that have tensors.
local function all_places_of(arguments, specs)
  specs.at = 0
  local all, few = { n = arguments.n }, { n = 0 }
  for i = 1, arguments.n do
    all[i] = places_of(arguments[i], specs)
    if all[i] then
      few.n = few.n + 1
      few[few.n] = all[i]
    end
  end
  specs.at = nil
  return all, few
end

--- Likewise, to one that can be called.
function M.trace(name, fn, arguments, ...)
  local c = M.record(name, fn, arguments, ...)
  local trace, symbols = c.trace, c.symbols
  c.others = others_of(nest.flatten(arguments))
  raw.graph_complete(c.handle, c.outputs)
  c.specs = {}
  for i = 1, symbols.n do
    c.specs[i] = spec.new(raw.tensor_dims(symbols[i]),
      raw.tensor_dtype(symbols[i]))
  end
  c.all_places, c.few_places = all_places_of(arguments, c.specs)
  c.uncertain, c.has_parts = trace.uncertain, trace.has_parts == true
  c.has_custom_gradient = trace.has_custom_gradient == true
  c.plain, c.arranged = is_plain(c)
  if c.plain and not c.arranged and c.outputs_n < 2 and #c.draws == 0
    and #c.numbers == 0 then
    c[1] = c.handle
  end
  c.folded = folded_of(c.handle)
  -- Symbolic tensors hold the graph: none is kept.
  c.symbols, c.outputs, c.trace = nil, nil, nil
  return c
end

--- Why calls of it cannot be prepared before those ahead of them have run; nil
--- when they can.
function M.why_alone(c)
  if next(c.steps) ~= nil then
    return "calls functions of the host"
  elseif c.uncertain then
    return "decides by its values whether a step counts"
  end
  return c.outputs_n > MOST and "has too many results" or nil
end

-- Calling --------------------------------------------------------------------

local NO_WORDS = {}

local function next_words(draws)
  if #draws == 0 then
    return NO_WORDS
  end
  local words = {}
  for i = 1, #draws do
    local at = 4 * i
    words[at - 3], words[at - 2], words[at - 1], words[at] = draws[i]()
  end
  return words
end

local function next_numbers(numbers)
  if #numbers == 0 then
    return NO_WORDS
  elseif #numbers == 1 then
    return numbers[1]()
  elseif tracing.preparation == nil then
    return (tracing.preparing({}, next_numbers, numbers))
  end
  local list = {}
  for i = 1, #numbers do
    lists.append(list, numbers[i]())
  end
  return list
end

local function add_tensors(list, ...)
  local given = { ... }
  for i = 1, select("#", ...) do
    local x = given[i]
    local kind = type(x) == "userdata" and raw.kind(x)
    if kind == "tensor" then
      list.n = list.n + 1
      list[list.n] = x
    elseif kind == "value" then
      local parts = values.components(x)
      add_tensors(list, unpack(parts, 1, parts.n))
    end
  end
  return list
end

--- The tensors among these and those of distributed values, a list with n.
function M.tensors_of(...)
  return add_tensors({ n = 0 }, ...)
end

--- What the function returns for these inputs and outputs of the graph: some are
--- arguments, given twice, structures or no tensors.
function M.give(c, inputs, outputs)
  local results = c.results
  if results.n == 1 then
    return build(results[1], inputs, outputs)
  end
  local list = {}
  for i = 1, results.n do
    list[i] = build(results[i], inputs, outputs)
  end
  return unpack(list, 1, results.n)
end

--- Random words for its next call.
function M.next_words(c)
  return next_words(c.draws)
end

local function next_of_call(c)
  return next_words(c.draws), next_numbers(c.numbers)
end

--- Words and numbers for its next call, where those before that have not run
--- yet and are known as `group`'s.
function M.next_call(c, group)
  return tracing.preparing(group, next_of_call, c)
end

--- The first result of call i of several, whose inputs and outputs follow each
--- other.
function M.result_of(c, i, inputs, outputs)
  local ins, outs = {}, {}
  for k = 1, c.inputs_n do
    ins[k] = inputs[(i - 1) * c.inputs_n + k]
  end
  for k = 1, c.outputs_n do
    outs[k] = outputs[(i - 1) * c.outputs_n + k]
  end
  return c.results.n > 0 and build(c.results[1], ins, outs) or nil
end

--- Call it where no step of the host lies between: one call in C.
function M.run_plain(c, ...)
  if not c.arranged then
    return raw.graph_call(c.handle, next_words(c.draws),
      next_numbers(c.numbers), ...)
  end
  return M.give(c, c.gives_inputs and M.tensors_of(...), {
    raw.graph_call(c.handle, next_words(c.draws), next_numbers(c.numbers), ...)
  })
end

local function run_steps(c, graph)
  while raw.graph_next(graph) == "host" do
    local number, n = raw.graph_due(graph)
    local given = {}
    for i = 1, n do
      given[i] = raw.graph_value(graph, i - 1)
    end
    local step = c.steps[number]
    local answers = step.fn(unpack(given, 1, n))
    if step.answers then
      raw.graph_supply(graph, answers)
    end
  end
end

local function collect(c, graph)
  run_steps(c, graph)
  local outputs = {}
  for i = 1, c.outputs_n do
    outputs[i] = raw.graph_result(graph, i - 1)
  end
  return outputs
end

--- Run the graph on a list of tensors. Meanwhile c.runs is true: its steps of the
--- host may call the function again.
function M.run(c, inputs)
  local graph = c.handle
  if c.plain then -- which also collects garbage where memory is short
    return M.give(c, inputs, { raw.graph_call(graph, next_words(c.draws),
      next_numbers(c.numbers), unpack(inputs, 1, inputs.n)) })
  end
  raw.graph_start(graph, inputs, next_words(c.draws),
    next_numbers(c.numbers))
  c.runs = true
  return M.give(c, inputs, state.protect(function()
    c.runs = false
    raw.graph_stop(graph)
  end, collect, c, graph))
end

-- The places that these arguments are for: values beside the tensors may be left
-- out. nil where their number tells of none.
local function places_for(self, n)
  local all = self.all_places
  if n == self.few_places.n and n ~= all.n then
    return self.few_places
  end
  for i = n + 1, all.n do
    if all[i] then
      return nil
    end
  end
  return n <= all.n and all or nil
end

-- Is a list given where a tensor was? One of a single tensor may be meant so.
local function has_list(places, given)
  for i = 1, places and given.n or 0 do
    if spec.is_spec(places[i]) and nest.is_nested(given[i]) then
      return true
    end
  end
  return false
end

-- x with tensors where places have specs; path: the keys on the way there.
local function fit(self, places, x, i, path)
  if spec.is_spec(places) then
    if type(x) == "userdata" and raw.kind(x) == "tensor" then
      return x
    end
    local place = "argument " .. i
    if #path > 0 then
      place = nest.path_text(path) .. " of " .. place
    end
    return input_signature.fit(self.name, place, x, places,
      "it was traced with")
  elseif type(places) ~= "table" or not nest.is_nested(x) then
    return x
  end
  local out, depth = {}, #path + 1
  for key, value in pairs(x) do
    out[key] = value
  end
  for key, inner in pairs(places) do
    path[depth] = key
    out[key] = fit(self, inner, x[key], i, path)
  end
  path[depth] = nil
  return out
end

local function fit_all(self, places, given)
  local out = { n = given.n }
  for i = 1, given.n do
    out[i] = fit(self, places[i], given[i], i, {})
  end
  return out
end

local function inputs_among(flat)
  local inputs = { n = 0 }
  local function add(t)
    inputs.n = inputs.n + 1
    inputs[inputs.n] = t
    return t
  end
  for i = 1, flat.n do
    signature.map_tensors(add, flat[i])
  end
  return inputs
end

--- Call with the function's tensors, in their order; what else a tensor can be
--- made of, variables too, is one where the trace had one.
--- Errors: TypeError, InvalidArgument for others than it was traced with;
---   FailedPrecondition for a tensor that was released.
function Concrete:__call(...)
  local given = pack(...)
  signature.check_open(self, given)
  local flat = nest.flatten(given)
  local inputs = inputs_among(flat)
  local places = places_for(self, given.n)
  if places and (inputs.n ~= self.inputs_n or has_list(places, given)) then
    flat = nest.flatten(fit_all(self, places, given))
    inputs = inputs_among(flat)
  end
  if inputs.n ~= self.inputs_n then
    errors.raise("TypeError", ("%s: expected %d tensors, got %d among %d values")
      :format(self:pretty_printed_signature(), self.inputs_n, inputs.n, flat.n),
      "numbers were traced by value; what it was traced with a tensor for is a "
      .. "tensor in each call")
  end
  check_others(self, flat)
  if self.meets then
    return counted.call(self.meets, "a concrete function", self.call, inputs)
  end
  return self.call(inputs)
end

--- "name(TensorSpec(float32 {2}), ...)".
function Concrete:pretty_printed_signature()
  check_self(self, "pretty_printed_signature")
  local parts = {}
  for i = 1, #self.specs do
    parts[i] = tostring(self.specs[i])
  end
  return self.name .. "(" .. table.concat(parts, ", ") .. ")"
end

local STAGES = { "recorded", "lowered", "costs" }

--- The graph as text: "recorded" (default), "lowered", as it runs, or "costs" of
--- that.
function Concrete:graph(stage)
  check_self(self, "graph")
  return raw.graph_text(self.handle, (options.choice("graph", "stage",
    stage or "recorded", STAGES)))
end

function Concrete:__tostring()
  return "ConcreteFunction " .. self:pretty_printed_signature()
end

return M
