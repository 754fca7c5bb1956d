--- tf.function_: a Lua function that is traced once for each signature; from
--- then on the C runtime runs the graph.
---
---   local step = tf.function_(function(x, y) ... return loss end)
---   local step = tf.function_ { reduce_retracing = true }(function(x, y) ...)
---
--- Lua code runs at the trace only: print, upvalues, `if` and `for` on Lua
--- values. tf.print, checks, random numbers and variables belong to the graph.
local concrete = require "tfdist.traced.concrete"
local counted = require "tfdist.core.counted"
local errors = require "tfdist.base.errors"
local input_signature = require "tfdist.traced.input_signature"
local nest = require "tfdist.base.nest"
local notice = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local signature = require "tfdist.traced.signature"
local state = require "tfdist.core.state"
local taping = require "tfdist.traced.taped"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local tracing = require "tfdist.core.tracing"

local M = {}

local select, type = select, type
local graph_key, graph_quick = raw.graph_key, raw.graph_quick
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local ENTRIES = 64 -- of one function
local SHORT = 1024 -- keys of plain calls; an entry for all sizes has many
local WEAK_KEYS, WEAK_VALUES = { __mode = "k" }, { __mode = "v" }
local WINDOW, MANY = 10, 5 -- more traces than MANY in the last WINDOW calls

local Function = { __name = "Function" }
local methods = {}
Function.__index = methods
text.watch_methods("Function", methods)

local function is_function(x)
  return getmetatable(x) == Function
end

local function pack(...)
  return { n = select("#", ...), ... }
end

-- Where a function was written, "train.lua:12".
local function name_of(fn)
  local info = type(fn) == "function" and debug.getinfo(fn, "S") or {}
  if info.what == "Lua" or info.what == "main" then
    return ("%s:%d"):format(info.short_src, info.linedefined)
  end
  return "function"
end

-- Retracing --------------------------------------------------------------------

-- A trace at this tick of the clock; too many among the latest calls are said
-- once.
local function count_trace(self, parts)
  local latest, before = self.latest, self.last_parts
  self.traces = self.traces + 1
  self.last_parts = parts
  latest.n = latest.n % WINDOW + 1
  latest[latest.n] = self.clock
  if self.warned or before == nil then
    return
  end
  local traces = 0
  for i = 1, #latest do
    traces = traces + (latest[i] > self.clock - WINDOW and 1 or 0)
  end
  if traces > MANY then
    self.warned = true
    notice.warn(("%d of the last %d calls of the traced function %s were new "
      .. "signatures, which is slow; the last differs: %s. Pass numbers as "
      .. "tensors, set reduce_retracing = true or give an input_signature")
      :format(traces, WINDOW, self.name, signature.difference(before, parts)))
  end
end

-- Entries ----------------------------------------------------------------------

local function forget_short(self)
  self.fast, self.fast_n = {}, 0
end

-- The clock counts calls.
local function use(self, entry)
  local clock = self.clock + 1
  self.clock, entry.used = clock, clock
end

-- A new entry; the one not used for longest goes.
local function keep(self, key, entry)
  local before = self.entries[key]
  entry.key = key
  self.entries[key] = entry
  if before ~= nil then
    return forget_short(self)
  end
  self.entries_n = self.entries_n + 1
  if self.entries_n <= ENTRIES then
    return
  end
  local oldest
  for _, other in pairs(self.entries) do
    if oldest == nil or other.used < oldest.used then
      oldest = other
    end
  end
  self.entries[oldest.key] = nil
  self.entries_n = self.entries_n - 1
  forget_short(self)
end

-- Plain calls with this key find the entry at once.
local function keep_short(self, key, entry)
  if self.fast_n == SHORT then
    forget_short(self)
  end
  self.fast[key], self.fast_n = entry, self.fast_n + 1
end

-- Names of what failed stay out of error positions: the trace is the script's.
local function trace(self, arguments, tensors, dims, may_fall_back)
  local may_create = self.traces == 0 and not self.created
  local c = concrete.trace(self.name, self.python_function, arguments, tensors,
    dims, may_create, may_fall_back)
  if c.meets then
    self.meets, self.quick = c.meets, false
  end
  if c.created > 0 then
    -- Variables are there from now on: what counts is a trace that makes none.
    self.created = true
    c = concrete.trace(self.name, self.python_function, arguments, tensors,
      dims, false, may_fall_back)
  end
  return c
end

-- A graph of sizes that are not known refuses what needs them (gradients, Lua
-- code that counts with them): then each size has its own. What fails there too
-- is the script's own mistake, in words about the sizes that it has.
local function trace_open(self, arguments, tensors, dims, may_be_plain)
  local elements = may_be_plain and "elements" or nil
  if dims == nil or self.by_size then
    return trace(self, arguments, tensors, nil, elements)
  end
  local ok, c = pcall(trace, self, arguments, tensors, dims, true)
  if ok then
    return c
  elseif errors.kind(c) ~= "NotImplementedError" then
    error(c, 0) -- no question about a size
  end
  c = trace(self, arguments, tensors, nil, elements)
  self.by_size = true
  return c
end

-- What may be a question about sizes.
local OF_SIZES = { NotImplementedError = true, InvalidArgument = true,
  ValueError = true }

-- The entry, or nil and why there is no graph: sizes of what it takes from data
-- sets are known to nobody before the call.
local function trace_or_reason(self, may_be_plain, arguments, tensors, dims)
  if not may_be_plain then
    return trace_open(self, arguments, tensors, dims)
  end
  local before = tracing.open_elements
  local ok, entry = pcall(trace_open, self, arguments, tensors, dims, true)
  if ok then
    return entry
  elseif before == tracing.open_elements or not OF_SIZES[errors.kind(entry)]
    or entry.late_variable then
    error(entry, 0)
  end
  return nil, entry
end

-- Sizes that differ from those `known` become unknown; and whether any did.
local function relax(known, tensors)
  local out, changed = {}, known == nil
  for i = 1, tensors.n do
    out[i] = raw.tensor_dims(tensors[i])
    for axis = 1, known and #out[i] or 0 do
      local size = known[i][axis]
      changed = changed or size ~= -1 and size ~= out[i][axis]
      out[i][axis] = size == out[i][axis] and size or -1
    end
  end
  return out, changed
end

-- The key without sizes.
local function open_key(parts)
  local out = {}
  for i = 1, #parts do
    out[i] = parts[i]:find "^T " and parts[i]:gsub(" %-?%d+", " ?") or parts[i]
  end
  return table.concat(out, "\0")
end

-- From now on each size has its own: graphs are found by the signatures that
-- they were traced for, not without their sizes.
local function keep_by_size(self)
  local entries = {}
  for _, entry in pairs(self.entries) do
    entries[entry.given], entry.key = entry, entry.given
  end
  self.entries = entries
end

-- The entry for a call and its tensors. Where there is none and the call
-- `may_be_plain`: nil, and for the first such call why and its key.
local function entry_of(self, may_be_plain, ...)
  local key, tensors, parts = signature.of(self, ...)
  local given, entry = key, self.entries[key]
  if entry ~= nil then
    use(self, entry)
    return entry, tensors
  end
  if may_be_plain and self.op_by_op and self.op_by_op[key] then
    return nil
  end
  local dims, relaxed
  if self.specs then
    dims = self.open_dims
    key = self.by_size and key or open_key(parts)
  elseif self.reduce_retracing and not self.by_size then
    key = open_key(parts)
    entry = self.entries[key]
    dims, relaxed = relax(entry and entry.known, tensors)
  end
  entry = not relaxed and self.entries[key] or nil
  if entry == nil then
    local why
    local by_size = self.by_size
    entry, why = trace_or_reason(self, may_be_plain, pack(...), tensors, dims)
    if entry == nil then
      return nil, why, given
    elseif self.by_size then
      key = (signature.of(self, ...))
      if not by_size then
        keep_by_size(self)
      end
    end
    entry.given = given
    entry.call = function(inputs)
      return taping.run(entry, inputs)
    end
    entry.known = dims
    use(self, entry)
    count_trace(self, parts)
    keep(self, key, entry)
  else
    use(self, entry)
  end
  return entry, tensors
end

-- Calls ------------------------------------------------------------------------

-- The arguments as the signature has them.
local function conform(self, arguments)
  return input_signature.conform(self.name, self.specs, arguments)
end

local function go_on_plain(self, e, key, ...)
  local said = self.op_by_op
  if not said or self.op_by_op_n == ENTRIES then
    self.op_by_op, self.op_by_op_n = {}, 0
  end
  self.op_by_op[key], self.op_by_op_n = true, self.op_by_op_n + 1
  if said then
    return ...
  end
  notice.warn(("the traced function %s goes on op by op: it takes elements of "
    .. "sizes that only a call knows, and its graph needs them (%s). batch(n, { "
    .. "drop_remainder = true }) makes them known, as does an element that is "
    .. "taken outside and passed to the function"):format(self.name, e.message))
  return ...
end

-- Short keys say nothing about these.
local function note_around(self, scope, settings)
  if self.scope ~= scope or self.settings ~= settings then
    self.scope, self.settings = scope, settings
    forget_short(self)
  end
end

-- `key`: that of a call whose entry may be found by it.
local function call_keyed(self, key, taped, ...)
  local known = key ~= nil and self.fast[key]
  if known then
    if taped then
      return taping.run(known, concrete.tensors_of(...), self.plain, ...)
    end
    use(self, known)
    return concrete.run_plain(known, ...)
  end
  local entry, tensors, new_plain = entry_of(self, true, ...)
  if new_plain ~= nil then
    -- What fails here, too, is the script's own mistake.
    return go_on_plain(self, tensors, new_plain, self.plain(...))
  elseif entry == nil then
    return self.plain(...)
  elseif key ~= nil and entry.plain then
    keep_short(self, key, entry)
  end
  if entry.meets then -- who traced it just now knew nothing of that before
    return counted.call(entry.meets, "a traced function", taping.run, entry,
      tensors, self.plain, ...)
  end
  return taping.run(entry, tensors, self.plain, ...)
end

local function call(self, own, ...)
  note_around(self, own.name_scope, state.settings)
  if own.mode == nil and own.layer_call == nil then
    local key, taped = graph_key(...)
    return call_keyed(self, key, taped, ...)
  end
  return call_keyed(self, nil, nil, ...)
end

-- Workers that meet in it hear of one where it fails before that.
local function call_counted(self, own, ...)
  if self.meets then
    return counted.call(self.meets, "a traced function", call, self, own, ...)
  end
  return call(self, own, ...)
end

local function call_conformed(self, own, ...)
  local given = conform(self, pack(...))
  return call_counted(self, own, unpack(given, 1, given.n))
end

function Function:__call(...)
  local own = state.current
  -- Inside another trace it is part of that graph.
  if state.eagerly then
    return self.python_function(...)
  elseif own.trace ~= nil then
    return concrete.values_of(tracing.call(self.name, self.within, ...))
  elseif self.quick and own.mode == nil and own.layer_call == nil then
    note_around(self, own.name_scope, state.settings)
    local entry, a, b = graph_quick(self.fast, ...)
    if not entry then
      return call_keyed(self, a, b, ...)
    end
    use(self, entry)
    if entry.outputs_n == 1 then
      return a
    end
    return -- more have no quick way
  elseif self.specs then
    return call_conformed(self, own, ...)
  end
  return call_counted(self, own, ...)
end

--- strategy:run of the function: the run is what is traced, all replicas and
--- what they do together. With an input_signature each replica's arguments are
--- as it says.
--- Source: tf.distribute.MirroredStrategy.run, which lifts functions likewise
function Function:run_over(strategy, args, kwargs)
  if state.eagerly then
    return strategy:run(self.python_function, args, kwargs)
  elseif tracing.current() ~= nil then
    return strategy:run(self.within, args, kwargs)
  end
  local over = self.over[strategy]
  if over == nil then
    over = self.lift(strategy)
    self.over[strategy] = over
  end
  return over(kwargs, unpack(args or {}, 1, args and (args.n or #args) or 0))
end

function Function:__tostring()
  return ("<function_ %s: %d traces>"):format(self.name, self.traces)
end

-- Methods ----------------------------------------------------------------------

local function check_self(self, name)
  if not is_function(self) then
    options.wrong_self("Function." .. name, "traced function", self)
  end
end

-- A graph for all sizes that the specs leave open.
local function open_concrete(self, arguments, given)
  local _, tensors = signature.of(self, unpack(given, 1, given.n))
  local dims = input_signature.dims_of(arguments)
  local c = trace(self, given, tensors, dims)
  c.known = dims
  self.traces = self.traces + 1
  c.call = function(inputs)
    return taping.run(c, inputs)
  end
  return c
end

--- The graph for these arguments, TensorSpecs in the place of tensors; with an
--- input_signature for that. It is called with the tensors alone.
--- Source: tf.types.experimental.PolymorphicFunction.get_concrete_function
function methods:get_concrete_function(...)
  check_self(self, "get_concrete_function")
  local arguments = pack(...)
  if arguments.n == 0 and self.specs then
    arguments = self.specs
  end
  local given = { n = arguments.n }
  for i = 1, arguments.n do
    given[i] = nest.map("get_concrete_function", input_signature.example,
      arguments[i])
  end
  if self.specs then
    given = conform(self, given)
  elseif input_signature.has_open_size(arguments) then
    return open_concrete(self, arguments, given)
  end
  return (entry_of(self, false, unpack(given, 1, given.n)))
end

--- One line for each signature that was traced.
--- Source: PolymorphicFunction.pretty_printed_concrete_signatures
function methods:pretty_printed_concrete_signatures()
  check_self(self, "pretty_printed_concrete_signatures")
  local list = {}
  for _, entry in pairs(self.entries) do
    list[#list + 1] = entry
  end
  table.sort(list, function(a, b)
    return a.used < b.used
  end)
  for i = 1, #list do
    list[i] = list[i]:pretty_printed_signature()
  end
  return table.concat(list, "\n")
end

--- How often the function was traced.
--- Source: PolymorphicFunction.experimental_get_tracing_count
function methods:experimental_get_tracing_count()
  check_self(self, "experimental_get_tracing_count")
  return self.traces
end

-- Making -----------------------------------------------------------------------

local make

make = function(fn, given_specs, reduce_retracing)
  -- What fn gets has operators and methods once the ops are loaded, which it may
  -- not have asked for before.
  assert(tf.constant)
  local self = setmetatable({
    python_function = fn, name = name_of(fn), entries = {}, entries_n = 0,
    clock = 0, fast = {}, fast_n = 0, quick = true, latest = { n = 0 }, traces = 0,
    reduce_retracing = reduce_retracing == true, created = false,
    warned = false, by_size = false, specs = false, op_by_op = false,
    scope = "", settings = "",
    over = setmetatable({}, WEAK_KEYS),
  }, Function)
  if given_specs ~= nil then
    self.specs, self.open_dims = input_signature.read(given_specs)
    self.quick = false
  end
  -- What it is where it has to run as plain code.
  function self.plain(...)
    return concrete.values_of(fn(...))
  end
  -- What it is in the trace of another one and on each replica.
  self.within = not self.specs and fn or function(...)
    local given = conform(self, pack(...))
    return fn(unpack(given, 1, given.n))
  end
  function self.lift(strategy)
    local held = setmetatable({ strategy }, WEAK_VALUES) -- by who calls it
    local over = make(function(kwargs, ...)
      return held[1]:run(self.within, pack(...), kwargs)
    end, nil, reduce_retracing)
    over.name, over.hidden = self.name, 1
    return over
  end
  return self
end

--- A function that is traced: tf.function_(fn), tf.function_(fn, options) or
--- tf.function_(options)(fn). Options: input_signature, reduce_retracing;
--- autograph and jit_compile have no effect.
--- Source: tf.function
M.function_ = options.wrap("function_", "func:later=nil "
  .. "input_signature:table=nil autograph=true jit_compile=nil "
  .. "reduce_retracing=false "
  .. "experimental_implements=nil experimental_autograph_options=nil "
  .. "experimental_attributes=nil experimental_relax_shapes=nil "
  .. "experimental_compile=nil", function(fn, given_specs, _, _, reduce,
    _, _, _, relax_shapes)
    reduce = reduce or relax_shapes
    if fn == nil then
      return function(later)
        text.check_callable("function_", "func", later)
        return make(later, given_specs, reduce)
      end
    end
    text.check_callable("function_", "func", fn)
    return make(fn, given_specs, reduce)
  end)

return M
