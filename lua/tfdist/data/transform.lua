--- Stages that call user functions: map, filter, take_while, flat_map,
--- interleave, scan, from_generator, and the loops reduce and
--- get_single_element. Also from_tensors.
---
--- Functions get a tuple as several arguments and may return several values.
--- They run in Lua, one after the other, when their element is asked for;
--- num_parallel_calls and deterministic are accepted and change nothing.
local counts = require "tfdist.data.counts"
local dataset = require "tfdist.data.dataset"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local loops = require "tfdist.core.loops"
local nest = require "tfdist.base.nest"
local notice = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local rows = require "tfdist.data.rows"
local spec = require "tfdist.data.spec"
local text = require "tfdist.base.text"
local traced = require "tfdist.data.traced"
local tracing = require "tfdist.core.tracing"

local M = {}

local select, type = select, type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local INFINITE, UNKNOWN = dataset.INFINITE, dataset.UNKNOWN
local method, stage = dataset.method, dataset.stage

local function describe_function(node)
  return dataset.place_of(node.fn)
end

-- What fn makes of an element, as a pack.
local function call_pack(node, pack)
  local out = element.pack(node.name, node.fn(unpack(pack, 1, pack.n)))
  if out == nil then
    errors.raise("TypeError", node.name .. ": the function returned nothing; "
      .. "it must return the new element")
  end
  return out
end

-- map ------------------------------------------------------------------------

local Map = stage { describe = describe_function, lazy_spec = true }

-- Unknown sizes come out of comparing what two sizes of batch become.
function Map.spec(node)
  local input = node.inputs[1]
  local first = dataset.sample_of(input, 1)
  if first == nil then
    first = element.map(element.zeros, dataset.spec_of(input))
  end
  local found = element.spec_of(dataset.call(node, call_pack, node, first))
  if spec.is_static(dataset.spec_of(input)) then
    return found
  end
  local second = dataset.sample_of(input, 2)
  if second == nil then
    return found
  end
  local other = element.spec_of(dataset.call(node, call_pack, node, second))
  return nest.map_structure(function(a, b)
    return spec.widen(a, b, "map")
  end, found, other)
end

function Map.sample(node, n)
  local one = dataset.sample_of(node.inputs[1], n)
  return one and dataset.call(node, call_pack, node, one)
end

function Map.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  local watch = run.watch_sizes and dataset.batch_size_of(node.inputs[1])
  local self = {}
  function self.next()
    local pack = input:next()
    if pack == nil then
      return nil
    end
    local out = dataset.call(node, call_pack, node, pack)
    if watch and element.batch_size(out) ~= element.batch_size(pack) then
      run.resized = true
    end
    return out
  end
  function self.skip(_, n)
    return dataset.skip(input, n)
  end
  return self
end

--- fn of each element; its results are the new element. element_spec finds out
--- what they are by calling fn on an example.
--- Source: tf.data.Dataset.map
method("map", "map_func num_parallel_calls=nil deterministic=nil "
  .. "synchronous=nil use_unbounded_threadpool=false name=nil",
  function(self, fn)
    return dataset.new(Map, "map", { self.node }, {
      fn = dataset.check_function("Dataset.map", "map_func", fn),
    })
  end)

-- filter, take_while ---------------------------------------------------------

local function truth(node, ...)
  local value = ...
  local in_lua = type(value) == "boolean"
  if type(value) == "userdata" and raw.is_operand(value) then
    value = raw.item(raw.operand_tensor(value))
  end
  if type(value) ~= "boolean" then
    errors.raise("TypeError", ("%s: predicate must return true or false (or a "
      .. "bool scalar), got %s"):format(node.name, text.describe(value)))
  end
  return value, in_lua
end

local function holds(node, pack)
  return truth(node, node.fn(unpack(pack, 1, pack.n)))
end

local function at_most(node)
  local n = dataset.cardinality_of(node.inputs[1])
  return n == 0 and 0 or n == INFINITE and INFINITE or UNKNOWN
end

-- x == 1 is false for every tensor x.
local function warn_of_identity(node)
  if not node.warned then
    node.warned = true
    notice.warn(("filter: %s was false for every element; on tensors == is "
      .. "identity, x:equal(y) compares"):format(dataset.place_of(node.fn)))
  end
end

local Filter = stage { describe = describe_function }

function Filter.cardinality(node)
  local n = at_most(node)
  return n == INFINITE and UNKNOWN or n
end

function Filter.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  -- True while every predicate was false as Lua has it.
  local never, begun = true, false
  return {
    next = function()
      while true do
        local pack = input:next()
        if pack == nil then
          if never and begun then
            warn_of_identity(node)
          end
          return nil
        end
        local kept, in_lua = dataset.call(node, holds, node, pack)
        begun, never = true, never and in_lua and not kept
        if kept then
          return pack
        end
      end
    end,
  }
end

--- The elements for which predicate is true. Source: tf.data.Dataset.filter
method("filter", "predicate name=nil", function(self, fn)
  return dataset.new(Filter, "filter", { self.node }, {
    fn = dataset.check_function("Dataset.filter", "predicate", fn),
  })
end)

local TakeWhile = stage {
  describe = describe_function, cardinality = Filter.cardinality,
}

function TakeWhile.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  local ended = false
  return {
    next = function()
      local pack = not ended and input:next() or nil
      if pack == nil or not dataset.call(node, holds, node, pack) then
        ended = true
        return nil
      end
      return pack
    end,
  }
end

--- The elements up to the first for which predicate is false.
--- Source: tf.data.Dataset.take_while
method("take_while", "predicate name=nil", function(self, fn)
  return dataset.new(TakeWhile, "take_while", { self.node }, {
    fn = dataset.check_function("Dataset.take_while", "predicate", fn),
  })
end)

-- flat_map, interleave -------------------------------------------------------

local function made_dataset(node, pack)
  local made = node.fn(unpack(pack, 1, pack.n))
  if not dataset.is_dataset(made) then
    errors.raise("TypeError", ("%s: map_func must return a dataset, got %s")
      :format(node.name, text.describe(made)))
  end
  return made.node
end

--- The node that the function of a flat_map or interleave makes of an example,
--- nil when there is none.
function M.example_inner(node)
  local one = dataset.sample_of(node.inputs[1], 1)
  return one and dataset.call(node, made_dataset, node, one)
end

local function no_batch_size()
  return nil
end

local Interleave = stage { lazy_spec = true, batch_size = no_batch_size }

function Interleave.cardinality(node)
  return dataset.cardinality_of(node.inputs[1]) == 0 and 0 or UNKNOWN
end

function Interleave.describe(node)
  if node.name == "flat_map" then
    return describe_function(node)
  end
  return ("%s, cycle_length %d, block_length %d"):format(
    describe_function(node), node.cycle_length, node.block_length)
end

function Interleave.sample(node, n)
  local inner = M.example_inner(node)
  return inner and (dataset.sample_of(inner, n) or dataset.first(node))
end

function Interleave.spec(node)
  local inner = M.example_inner(node)
  return inner and dataset.spec_of(inner)
end

-- The slots of the cycle take turns; an empty one gets the next input when its
-- turn comes.
function Interleave.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  local slots, open, ended = {}, 0, false
  local slot, taken, used, cycle = 1, 0, 0, node.cycle_length
  local function advance()
    slot = slot % cycle + 1
    taken = 0
  end
  -- Turns of slots that were never used are not waited for.
  local function finish()
    ended, cycle = true, used
    if slot > used then
      slot, taken = 1, 0
    end
  end
  local self = {}
  local function from_slot()
    local inner = slots[slot]
    local pack = inner:next()
    if pack == nil then
      dataset.close(inner, run)
      slots[slot] = nil
      open = open - 1
      advance()
      return nil
    end
    taken = taken + 1
    if taken == node.block_length then
      advance()
    end
    return pack
  end
  function self.next()
    while not ended or open > 0 do
      if slots[slot] ~= nil then
        local pack = from_slot()
        if pack ~= nil then
          return pack
        end
      elseif ended then
        advance()
      else
        local pack = input:next()
        if pack == nil then
          finish()
        else
          used = math.max(used, slot)
          slots[slot] = dataset.open(dataset.call(node, made_dataset, node,
            pack), run)
          open = open + 1
        end
      end
    end
    return nil
  end
  return self
end

--- The elements of the data sets that map_func makes, one data set after the
--- other. Source: tf.data.Dataset.flat_map
method("flat_map", "map_func name=nil", function(self, fn)
  return dataset.new(Interleave, "flat_map", { self.node }, {
    fn = dataset.check_function("Dataset.flat_map", "map_func", fn),
    cycle_length = 1, block_length = 1,
  })
end)

local DEFAULT_CYCLE = 4

--- The elements of the data sets that map_func makes, cycle_length of them at a
--- time taking turns with block_length elements each. cycle_length is 4 when
--- not given, on every machine, so that the order never depends on it.
--- Source: tf.data.Dataset.interleave
method("interleave", "map_func cycle_length=nil block_length=1 "
  .. "num_parallel_calls=nil deterministic=nil name=nil",
  function(self, fn, cycle_length, block_length)
    local what = "Dataset.interleave"
    cycle_length = counts.or_nil(what, "cycle_length", cycle_length)
      or DEFAULT_CYCLE
    return dataset.new(Interleave, "interleave", { self.node }, {
      fn = dataset.check_function(what, "map_func", fn),
      cycle_length = counts.whole(what, "cycle_length", cycle_length, 1),
      block_length = counts.whole(what, "block_length", block_length, 1),
    })
  end)

-- scan -----------------------------------------------------------------------

local Scan = stage { describe = describe_function, lazy_spec = true,
  batch_size = no_batch_size }

function Scan.sample(node)
  return dataset.first(node)
end

function Scan.spec(node)
  local first = dataset.first(node)
  return first and element.spec_of(first)
end

local function scan_step(node, held, pack)
  local values = { n = 0 }
  local function keep(...)
    values = { n = select("#", ...), ... }
  end
  keep(node.fn(held, unpack(pack, 1, pack.n)))
  local state = values[1]
  if values.n < 2 or state == nil then
    errors.raise("TypeError", "scan: the function must return the new state "
      .. "and the element, got " .. values.n .. " values")
  end
  return element.component(state, "scan"),
    element.pack("scan", unpack(values, 2, values.n))
end

function Scan.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  local held = node.initial
  return {
    next = function()
      local pack = input:next()
      if pack == nil then
        return nil
      end
      held, pack = dataset.call(node, scan_step, node, held, pack)
      return pack
    end,
  }
end

--- scan_func(state, element...) returns the next state and the new element; the
--- state begins as initial_state (a table for several values).
--- Source: tf.data.Dataset.scan
method("scan", "initial_state:table scan_func name=nil",
  function(self, initial, fn)
    return dataset.new(Scan, "scan", { self.node }, {
      fn = dataset.check_function("Dataset.scan", "scan_func", fn),
      initial = element.component(initial, "scan"),
    })
  end)

-- reduce, get_single_element -------------------------------------------------

local function reduce_in_graph(self, state, fn)
  local iterator = self:iter()
  local first = iterator:get_next_as_optional()
  local last = loops.run("reduce", {
    vars = { more = first:has_value(), pack = first.pack, state = state },
    again = function(now) return now.more end,
    step = function(now)
      local after = fn(now.state, unpack(now.pack, 1, now.pack.n))
      local ahead = iterator:get_next_as_optional()
      return { more = ahead:has_value(), pack = ahead.pack, state = after }
    end,
  })
  return last.state
end

--- fn(...fn(fn(initial_state, element 0), element 1)...), where an element that
--- is a tuple gives several arguments. Returns the last state. In a traced
--- function it is a loop of the graph.
--- Source: tf.data.Dataset.reduce
method("reduce", "initial_state:table reduce_func name=nil",
  function(self, state, fn)
    dataset.check_function("Dataset.reduce", "reduce_func", fn)
    state = element.component(state, "reduce")
    if tracing.current() ~= nil then
      return reduce_in_graph(self, state, fn)
    end
    local node = { name = "reduce" }
    local iterator = dataset.iterate(self.node)
    while true do
      local pack = dataset.next_pack(iterator)
      if pack == nil then
        return state
      end
      state = dataset.call(node, fn, state, unpack(pack, 1, pack.n))
      if state == nil then
        errors.raise("TypeError", "reduce: reduce_func returned nil; it must "
          .. "return the new state")
      end
    end
  end)

local function single(node)
  local iterator = dataset.iterate(node)
  local pack = dataset.next_pack(iterator)
  if pack == nil then
    errors.raise("InvalidArgument", "get_single_element: the data set is empty")
  elseif dataset.next_pack(iterator) ~= nil then
    iterator:close()
    errors.raise("InvalidArgument", "get_single_element: the data set has more "
      .. "than one element")
  end
  return pack
end

--- The only element of a data set with one element.
--- Errors: InvalidArgument when there is none or a second one.
--- Source: tf.data.Dataset.get_single_element
method("get_single_element", "name=nil", function(self)
  local node, pack = self.node
  if tracing.current() == nil then
    pack = single(node)
  else
    pack = traced.take("get_single_element",
      tracing.lifted(dataset.spec_of, node), function() return single(node) end)
  end
  return unpack(pack, 1, pack.n)
end)

-- from_tensors ---------------------------------------------------------------

local One = stage {}

function One.cardinality()
  return 1
end

function One.spec(node)
  return element.spec_of(node.pack)
end

function One.sample(node)
  return node.pack
end

function One.open(node)
  local pack = node.pack
  return {
    next = function()
      local out = pack and element.fresh(pack)
      pack = nil
      return out
    end,
  }
end

--- One element: the structure itself; a list with a tensor inside is a tuple.
--- Source: tf.data.Dataset.from_tensors
dataset.static("from_tensors", "tensors:nest name=nil", function(x)
  return dataset.new(One, "from_tensors", {}, {
    pack = dataset.isolated(function()
      return element.fresh(rows.pack_of("from_tensors", x))
    end),
  })
end)

-- from_generator -------------------------------------------------------------

local Generator = stage { describe = describe_function, lazy_spec = true }

function Generator.cardinality()
  return UNKNOWN
end

function Generator.spec(node)
  if node.signature ~= nil then
    return node.signature
  end
  local first = dataset.first(node)
  return first and element.spec_of(first)
end

function Generator.sample(node)
  return dataset.first(node)
end

-- A component as the signature wants it. Numbers and lists take its dtype.
local function conform(x, wanted, what)
  local got
  if wanted.dtype == "string" then
    got = element.component(x, what)
  elseif type(x) == "userdata" then
    got = element.component(x, what)
  elseif wanted.dtype == "bool" or type(x) == "boolean"
    or element.literal_kind(x, 0) == "string" then
    got = element.component(x, what)
  else
    local why
    got, why = raw.tensor_from_table(x, wanted.dtype)
    if got == nil and why == "handle" then
      got = element.component(x, what)
    end
  end
  local own = spec.of(got)
  if not spec.is_spec(own) or not spec.fits(wanted, own) then
    errors.raise(spec.is_spec(own) and own.dtype == wanted.dtype
      and "InvalidArgument" or "TypeError", ("%s: the generator gave %s where "
      .. "the signature says %s"):format(what, spec.short(own),
      spec.short(wanted)))
  end
  return got
end

local function conform_structure(x, wanted, what)
  if not nest.is_nested(wanted) then
    return conform(x, wanted, what)
  elseif not text.is_plain(x) then
    errors.raise("TypeError", ("%s: the generator gave %s where the signature "
      .. "has a table"):format(what, text.describe(x)))
  end
  local out = {}
  local n, keys = nest.layout(wanted)
  for i = 1, n do
    out[i] = conform_structure(x[i], wanted[i], what)
  end
  for i = 1, keys and #keys or 0 do
    out[keys[i]] = conform_structure(x[keys[i]], wanted[keys[i]], what)
  end
  return out
end

local function generated(node, first, ...)
  if first == nil then
    return nil
  elseif node.signature == nil then
    return element.pack(node.name, first, ...)
  end
  local wanted = node.signature
  local values = { n = select("#", ...) + 1, first, ... }
  if values.n ~= wanted.n then
    errors.raise("TypeError", ("from_generator: the generator gave %d values, "
      .. "the signature has %d"):format(values.n, wanted.n))
  end
  for i = 1, values.n do
    values[i] = conform_structure(values[i], wanted[i], node.name)
  end
  return values
end

-- generator(args...) returns what a for loop takes: a function (with state and
-- control value) that returns the next values, nil at the end. An element that
-- is not like those before it is an error.
local function start_generator(node)
  local ok, step, state, control = pcall(node.fn, unpack(node.args, 1,
    node.args.n))
  local yields = not ok and type(step) == "string"
    and step:find("attempt to yield", 1, true) ~= nil
  if not ok and not yields then
    error(step, 0)
  elseif yields or not text.is_callable(step) then
    errors.raise("TypeError", "from_generator: generator must return an "
      .. "iterator function as a for loop takes it, "
      .. (yields and "and it yields" or "got " .. text.describe(step)),
      "coroutine.wrap(function() ... coroutine.yield(x) ... end) is one")
  end
  return { step = step, state = state, control = control }
end

-- Errors that are texts name the line that called a coroutine's function: here
-- pcall does, which has no line, so that they name the user's alone.
local function next_generated(node, self)
  local function give(ok, control, ...)
    if not ok then
      error(control, 0)
    end
    self.control = control
    return generated(node, control, ...)
  end
  return give(pcall(self.step, self.state, self.control))
end

local function check_like_first(node, self, pack)
  local found = element.spec_of(pack)
  if self.found == nil then
    self.found = found
    return
  end
  local ok, e = pcall(nest.assert_same_structure, self.found, found)
  if not ok then
    errors.raise("TypeError", "from_generator: an element has another "
      .. "structure than the first one: " .. e.message)
  end
  local a, b = element.leaves(self.found), element.leaves(found)
  for i = 1, a.n do
    if spec.is_spec(a[i]) and spec.is_spec(b[i]) and a[i].dtype ~= b[i].dtype
    then
      errors.raise("TypeError", ("from_generator: component %d is %s, in the "
        .. "first element it was %s"):format(i - 1, b[i].dtype, a[i].dtype))
    end
  end
end

function Generator.open(node)
  local self, ended
  return {
    next = function()
      if ended then
        return nil
      end
      self = self or dataset.call(node, start_generator, node)
      local pack = dataset.call(node, next_generated, node, self)
      ended = pack == nil
      if not ended and node.signature == nil then
        dataset.call(node, check_like_first, node, self, pack)
      end
      return pack
    end,
  }
end

-- output_types and output_shapes as a structure of specs.
local function signature_of(what, types, shapes)
  local function build(kind, shape)
    if not nest.is_nested(kind) then
      return spec.new(spec.dims(what, shape), spec.dtype(kind, what))
    end
    if shape ~= nil and not text.is_plain(shape) then
      errors.raise("TypeError", what .. ": output_shapes must have the "
        .. "structure of output_types, got " .. text.describe(shape)
        .. " in the place of a list")
    end
    local out = {}
    local n, keys = nest.layout(kind)
    for i = 1, n do
      out[i] = build(kind[i], shape and shape[i])
    end
    for i = 1, keys and #keys or 0 do
      out[keys[i]] = build(kind[keys[i]], shape and shape[keys[i]])
    end
    return out
  end
  nest.leaves(what, types) -- refuses what contains itself
  return build(types, shapes)
end

local function as_pack(signature)
  if nest.is_nested(signature) then
    local n, keys = nest.layout(signature)
    if keys == nil then
      local out = { n = n }
      for i = 1, n do
        out[i] = signature[i]
      end
      return out
    end
  end
  return { signature, n = 1 }
end

--- Elements from Lua: generator(args...) is called for each iteration and
--- returns an iterator function as a for loop takes it, whose values are an
--- element (nil first = the end). output_signature (TensorSpecs) or
--- output_types and output_shapes say what the elements must be, and which
--- dtype numbers get; without them the first element does (numbers float32).
--- Errors: TypeError and InvalidArgument for elements that do not fit.
--- Source: tf.data.Dataset.from_generator
dataset.static("from_generator", "generator output_types:table=nil "
  .. "output_shapes:table=nil args:table=nil output_signature:table=nil "
  .. "name=nil", function(fn, types, shapes, args, signature)
    local what = "from_generator"
    if signature ~= nil and types ~= nil then
      errors.raise("TypeError", what .. ": give output_signature or "
        .. "output_types, not both")
    elseif types ~= nil then
      signature = signature_of(what, types, shapes)
    end
    if signature ~= nil then
      local flat = nest.flatten(signature)
      for i = 1, flat.n do
        if not spec.is_spec(flat[i]) then
          errors.raise("TypeError", what .. ": output_signature must hold "
            .. "TensorSpecs, got " .. text.describe(flat[i]))
        end
      end
      signature = as_pack(signature)
    end
    if args ~= nil and not text.is_plain(args) then
      errors.raise("TypeError", what .. ": args must be a list, got "
        .. text.describe(args))
    end
    local given = { n = args and options.length(what, "args", args) or 0 }
    for i = 1, given.n do
      given[i] = args[i]
    end
    return dataset.new(Generator, what, {}, {
      fn = dataset.check_function(what, "generator", fn),
      signature = signature, args = given,
    })
  end)

return M
