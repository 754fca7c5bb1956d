--- tf.data.Dataset: what all stages share, and the iterators users hold.
---
--- A data set is a node of a pipeline: a stage, its inputs and its arguments.
--- Nodes never change; an iterator opens its node, which opens its inputs.
---
--- A stage is a table of functions, made with M.stage and found through the
--- node's metatable. node.inputs holds nodes; everything a stage knows is a
--- field of its node, never an upvalue, so that a pipeline can be rebuilt with
--- another input (sharding does that).
---   open(node, run)   an iterator { next(self) -> pack or nil
---                     [, skip(self, n)] [, close(self)] }
---   items(node, run)  a stream (module stream) of positions where rows(node)
---                     gives rows, else of elements; a stage whose open and items
---                     are both there has items for rows alone
---   spec(node)        packed structure of TensorSpecs, nil = unknown until an
---                     element was seen; default: that of input 1
---   cardinality(node) default: that of input 1
---   describe(node)    arguments for printing
---   batch_size(node)  rows of a full batch, nil = unknown; default: that of
---                     the inputs
---   sample(node, n)   an element as it may come out, batches of at most n
---                     rows, made without disturbing anything; nil = none
---   rows(node)        for stages whose elements are rows of tensors in some
---                     order: their table (module rows), nil = they are not
--- `run` is the state of one iteration: seeds of random stages and what must be
--- closed.
local device = require "tfdist.core.device"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local iterators = require "tfdist.data.iterator"
local lists = require "tfdist.base.lists"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local seeds = require "tfdist.data.seeds"
local spec = require "tfdist.data.spec"
local state = require "tfdist.core.state"
local steps = require "tfdist.data.traced"
local stream = require "tfdist.data.stream"
local surface = require "tfdist.data.surface"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local getmetatable, setmetatable, type = getmetatable, setmetatable, type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local getinfo = debug.getinfo

--- cardinality() of data sets without end, and of those that must be read to
--- know. Source: tf.data.INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
M.INFINITE, M.UNKNOWN = -1, -2

local Dataset = { __name = "Dataset", is_tf_dataset = true }
local methods, getters = {}, {}

--- name -> function of tf.data.Dataset.
M.statics = {}

--- True for data sets.
function M.is_dataset(x) return getmetatable(x) == Dataset end

-- Nodes ----------------------------------------------------------------------

-- "train.lua:12", the innermost line outside this library; nil at the prompt.
local function user_position()
  for level = 3, 40 do
    local info = getinfo(level, "Sl")
    if info == nil then
      return nil
    elseif info.what ~= "C" and info.currentline > 0 and info.source:sub(1,
      #errors.library) ~= errors.library and info.source ~= "=(repl)" then
      return ("%s:%d"):format(info.short_src, info.currentline)
    end
  end
end

--- Where a user's function stands, "train.lua:12".
function M.place_of(fn)
  fn = text.written(fn)
  if fn == nil then
    return "a callable object"
  end
  local info = getinfo(fn, "S")
  if info.what == "C" then
    return "a C function"
  end
  return ("%s:%d"):format(info.short_src, info.linedefined)
end

local Base = {}

function Base.describe() return nil end

function Base.rows() return nil end

function Base.spec(node)
  return M.spec_of(node.inputs[1])
end

function Base.cardinality(node)
  return M.cardinality_of(node.inputs[1])
end

function Base.sample(node, n)
  if node.inputs[1] == nil then
    return M.first(node)
  end
  return M.sample_of(node.inputs[1], n)
end

-- The one size that all inputs' batches have; of a source, what its spec says.
function Base.batch_size(node)
  local size
  for i = 1, #node.inputs do
    local own = M.batch_size_of(node.inputs[i])
    if own == nil or (size ~= nil and own ~= size) then
      return nil
    end
    size = own
  end
  if #node.inputs > 0 then
    return size
  end
  local known = M.known_spec(node)
  local leaves = known and nest.flatten(known) or { n = 0 }
  for i = 1, leaves.n do
    local own = spec.is_spec(leaves[i]) and leaves[i].shape
      and leaves[i].shape[1] or -1
    if own < 0 or (size ~= nil and own ~= size) then
      return nil
    end
    size = own
  end
  return size
end

--- A stage from its functions; the rest are the defaults.
function M.stage(functions)
  setmetatable(functions, { __index = Base })
  functions.__index = functions
  return functions
end

--- A data set of a stage.
---@param stage table
---@param name string      as users call it, "shuffle"
---@param inputs table[]   nodes
---@param fields? table    what the stage knows; becomes the node
function M.new(stage, name, inputs, fields)
  local node = setmetatable(fields or {}, stage)
  node.name, node.inputs, node.where = name, inputs, user_position()
  return setmetatable({ node = node }, Dataset)
end

--- A copy of a node with other inputs.
function M.rebuild(node, inputs)
  local copy = {}
  for key, value in pairs(node) do
    copy[key] = value
  end
  copy.inputs, copy.known_spec = inputs, nil
  return setmetatable(copy, getmetatable(node))
end

--- The data set of a node.
function M.wrap(node)
  return setmetatable({ node = node }, Dataset)
end

function M.cardinality_of(node)
  return math.floor(node.cardinality(node)) -- whole, whatever it was made of
end

--- Rows of a full batch, nil when nothing says so before reading.
function M.batch_size_of(node)
  return node.batch_size(node)
end

function M.sample_of(node, n)
  return node.sample(node, n)
end

--- The rows that the node's elements are, or nil (module rows).
function M.rows_of(node)
  return node.rows(node)
end

-- One iteration --------------------------------------------------------------

--- State of one iteration. `saved` is what another one's state says of seeds,
--- `drawn` what it says of the numbers that users' functions drew; `share` is
--- that of a worker (seeds.share), nil where all draw alike.
function M.new_run(saved, drawn, share)
  return { closers = {}, epochs = {}, seeds = saved, share = share,
    sequence = seeds.sequence(drawn, share) }
end

local function close_run(run)
  local closers = run.closers
  run.closers = {}
  for iterator in pairs(closers) do
    iterator:close()
  end
end

--- Open a node: its rows in order where it has any, else what its stage does.
function M.open(node, run)
  local iterator
  local rows = node.rows(node)
  if rows ~= nil or node.open == nil then
    iterator = stream.elements(node.items(node, run), rows)
  else
    iterator = node.open(node, run)
  end
  if iterator.close ~= nil then
    run.closers[iterator] = true
  end
  return iterator
end

--- Close an iterator before its run ends.
function M.close(iterator, run)
  if iterator.close ~= nil and run.closers[iterator] then
    run.closers[iterator] = nil
    iterator:close()
  end
end

--- Pass over up to n elements; returns how many there were.
function M.skip(iterator, n)
  if iterator.skip ~= nil then
    return iterator:skip(n)
  end
  for i = 1, n do
    if iterator:next() == nil then
      return i - 1
    end
  end
  return n
end

--- The stream of a node's elements.
function M.packs(node, run)
  local iterator = M.open(node, run)
  return stream.pulled(iterator, M.skip, function()
    M.close(iterator, run)
  end)
end

--- The stream of a node's items: positions where it has rows.
function M.items(node, run)
  if node.open == nil or node.rows(node) ~= nil then
    return node.items(node, run)
  end
  return M.packs(node, run)
end

-- An example is nobody's element: what it draws is not either.
local function probe(node)
  local run = M.new_run()
  run.probing = true
  return state.protect(function()
    close_run(run)
  end, function()
    return M.open(node, run):next()
  end)
end

--- The first element, from an iteration of its own; nil when there is none.
function M.first(node)
  return random_seed.aside(probe, node)
end

local walk

-- Is "file:line" inside a function?
local function holds(fn, where)
  local file, line = where:match("^(.*):(%d+)$")
  fn = text.written(fn)
  local info = fn ~= nil and getinfo(fn, "S") or nil
  return info ~= nil and line ~= nil and info.short_src == file
    and tonumber(line) >= info.linedefined
    and tonumber(line) <= info.lastlinedefined
end

-- The stage whose function is at the place of an error; nil where there are
-- several.
local function stage_at(node, where)
  local found, n = nil, 0
  walk(node, function(each)
    if holds(each.fn, where) then
      found, n = each, n + 1
    end
  end)
  return n == 1 and found or nil
end

-- What went wrong in a stage, on its way out. Queued work that fails does so
-- when another stage runs, or none: it is of the function where it was called.
local function note(node, e)
  e = errors.wrap(e)
  if errors.is_error(e) and e.deferred then
    node = not e.stage and e.where and stage_at(node, e.where) or nil
    if node == nil then
      return e
    end
    e.stage = node.name
  end
  local text_of = ("in dataset stage %s"):format(node.name)
  if node.fn ~= nil then
    text_of = text_of .. ", function at " .. M.place_of(node.fn)
  end
  if node.where ~= nil then
    text_of = text_of .. ", made at " .. node.where
  end
  return errors.note(e, text_of)
end

local function checked(node, ok, ...)
  if not ok then
    error(note(node, (...)), 0)
  end
  return ...
end

local function traced(node, ok, ...)
  local e = ...
  if not ok then
    error(errors.is_error(e) and e.deferred and note(node, e) or e, 0)
  end
  return ...
end

--- Call fn, which runs the stages up to a node; failures of work that they
--- queued name the stage.
function M.traced(node, fn, ...)
  return traced(node, pcall(fn, ...))
end

--- Call fn for a stage; its errors name the stage, the function that the user
--- gave to it and where it was made (module surface: or those of its work).
function M.call(node, fn, ...)
  return checked(node, surface.pcall(fn, ...))
end

-- Visiting -------------------------------------------------------------------

walk = function(node, fn)
  for i = 1, #node.inputs do
    walk(node.inputs[i], fn)
  end
  fn(node)
end

--- Call fn for every node, inputs first.
M.walk = walk

-- Iterators ------------------------------------------------------------------

-- Pipelines work on the host's first CPU device whatever surrounds them.
local function host()
  return raw.device_at("CPU", 0)
end

local function start(self)
  local node = self.node
  for position, each in ipairs(seeds.random_nodes { node }) do
    each.position = position
  end
  self.inner = M.open(node, self.run)
end

local function pull(self)
  if self.inner == nil then
    start(self)
  end
  return self.inner:next()
end

local function leave(ok, ...)
  raw.device_pop()
  raw.tidy_end()
  if not ok then
    error((...), 0)
  end
  return ...
end

--- Call fn where pipelines work: on the host's device, and so that no tf.tidy
--- around releases the tensors made inside, which are the pipeline's own or in
--- buffers and caches. Delivered elements are left to the collector.
function M.isolated(fn, ...)
  raw.tidy_begin()
  raw.device_push(host())
  return leave(pcall(fn, ...))
end

local function finish_pull(self, outer, ok, pack)
  random_seed.enter(outer)
  self.pulling = false
  self.count = self.count + 1
  if not ok then
    return traced(self.node, false, pack)
  elseif pack == nil then
    self.done = true
    self.inner = nil
    close_run(self.run)
    return nil
  end
  return pack
end

--- The next element as a pack, nil at the end.
function M.next_pack(self)
  if self.done then
    return nil
  elseif self.run == nil then
    errors.raise("FailedPrecondition", "dataset iterator: it was made inside a "
      .. "traced function, which has ended", "iter() makes another one")
  elseif self.closed then
    errors.raise("FailedPrecondition", "dataset iterator: it was closed",
      "dataset:iter() makes another one")
  elseif self.pulling then
    errors.raise("RuntimeError", "dataset iterator: asked for an element "
      .. "while it makes one", "a function of the pipeline uses the iterator "
      .. "that it belongs to")
  end
  self.pulling = true
  return finish_pull(self, random_seed.enter(self.run.sequence),
    pcall(M.isolated, pull, self))
end

local function next_traced(self, way, ended)
  return steps.step(self, way, tracing.lifted(M.spec_of, self.node), M.next_pack,
    ended)
end

-- The failed pull at the end is counted too.
local function taken(self)
  return self.done and self.count - 1 or self.count
end

local Iterator, iterator_methods, check_iterator = iterators.class {
  name = "DatasetIterator", unit = "element", next_pack = M.next_pack,
  traced = next_traced,
  taken = taken,
  spec_of = function(_, pack)
    return element.spec_of(pack)
  end,
  element_spec = function(self)
    return M.element_spec(rawget(self, "node"))
  end,
}

--- True for iterators over data sets.
function M.is_iterator(x)
  return getmetatable(x) == Iterator
end

--- Where the iterator is: a plain table of numbers, for a checkpoint. It holds
--- the number of elements taken, the seeds of this iteration and what its
--- users' functions draw from, once they have drawn.
function iterator_methods.state(self)
  check_iterator(self, "state")
  local list = {}
  for i, node in ipairs(seeds.random_nodes { self.node }) do
    local own = self.run.epochs[node]
    local saved = self.run.seeds and self.run.seeds[node.position or 0]
    list[i] = own and { seed = own.seed, epoch = own.first }
      or saved or { seed = seeds.base(node), epoch = node.iterations or 0 }
  end
  return { version = 1, count = taken(self), seeds = list, done = self.done,
    drawn = random_seed.drawn(self.run.sequence), resized = self.run.resized }
end

local function check_state(self, saved)
  local good = text.is_plain(saved) and saved.version == 1
    and text.is_int64(saved.count) and saved.count >= 0
  if not good then
    errors.raise("ValueError", "restore: this is no state of a dataset "
      .. "iterator: " .. text.describe(saved))
  end
  seeds.check(saved.seeds, "epoch", #seeds.random_nodes { self.node })
end

-- Functions that draw must draw again.
local function pass_over(self, saved)
  start(self)
  if saved.drawn == nil then
    M.skip(self.inner, saved.count)
    return
  end
  for _ = 1, saved.count do
    if self.inner:next() == nil then
      return
    end
  end
end

--- Go where another iterator of an equal data set was when state() was called:
--- the pipeline starts again with the same seeds and passes over the elements
--- taken. Stages that can pass over elements without making them (slices,
--- batches, map) do so unless users' functions draw random numbers; files are
--- read again up to that place.
--- Errors: ValueError for a state of another data set.
function iterator_methods.restore(self, saved)
  check_iterator(self, "restore")
  check_state(self, saved)
  local run = M.new_run(saved.seeds, saved.drawn)
  random_seed.begin_at(run.sequence, saved.functions)
  run.watch_sizes, run.resized = self.run.watch_sizes, saved.resized or nil
  close_run(self.run)
  self.run = run
  self.inner, self.closed, self.done = nil, false, saved.done or false
  self.count = saved.count + (self.done and 1 or 0)
  if not self.done then
    local outer = random_seed.enter(self.run.sequence)
    state.protect(function()
      random_seed.enter(outer)
    end, M.isolated, pass_over, self, saved)
  end
  return self
end

--- Give files and buffers back now; asking for elements is an error then.
function iterator_methods.close(self)
  check_iterator(self, "close")
  if not self.closed and not self.done then
    self.closed = true
    self.inner = nil
    close_run(self.run)
  end
end

--- An iterator over a node.
function M.iterate(node)
  return setmetatable({
    node = node, run = M.new_run(), count = 0, done = false, closed = false,
  }, Iterator)
end

-- Specs ----------------------------------------------------------------------

--- The packed spec of a node: from its stages, else from an element.
--- Errors: ValueError when there is no element to see.
function M.spec_of(node)
  if node.known_spec == nil then
    local found = surface.find_out(node.spec, node)
    if found == nil then
      local sample = surface.find_out(M.sample_of, node, 2)
      if sample == nil then
        errors.raise("ValueError", ("element_spec: the data set (%s) is empty, "
          .. "so nothing says what its elements are"):format(node.name))
      end
      found = element.spec_of(sample)
    elseif found.n == nil then
      -- A user's structure: one spec, a list of them, or a table by keys.
      local n, keys
      if nest.is_nested(found) then
        n, keys = nest.layout(found)
      end
      if n == nil or keys ~= nil then
        found = { found, n = 1 }
      else
        found = lists.copy(found, 1, n)
        found.n = n
      end
    end
    node.known_spec = found
  end
  return node.known_spec
end

--- The spec that is known without calling user functions, or nil.
function M.known_spec(node)
  if node.known_spec ~= nil then
    return node.known_spec
  elseif node.lazy_spec then
    return nil
  end
  for i = 1, #node.inputs do
    if M.known_spec(node.inputs[i]) == nil then
      return nil
    end
  end
  return M.spec_of(node)
end

--- A packed structure as users see it: the one value, or a list.
function M.public_structure(pack)
  if pack.n == 1 then
    return pack[1]
  end
  return lists.copy(pack, 1, pack.n)
end

--- What users see as element_spec.
function M.element_spec(node)
  return M.public_structure(M.spec_of(node))
end

getters.element_spec = function(self)
  return M.element_spec(self.node)
end

-- Methods --------------------------------------------------------------------

--- Define dataset:name(...).
function M.method(name, signature, fn)
  for each in name:gmatch "%S+" do
    methods[each] = options.method("Dataset." .. each, signature, fn,
      M.is_dataset, "dataset")
    M.statics[each] = methods[each]
  end
end

--- Make dataset:name(...) a NotImplementedError.
function M.not_there(name)
  methods[name] = function()
    errors.raise("NotImplementedError", "Dataset." .. name .. " is not there",
      "README, \"What is not there\"")
  end
  M.statics[name] = methods[name]
end

--- Define tf.data.Dataset.name(...); arrange(...) gives the arguments that the
--- signature is for, where a call may have others.
function M.static(name, signature, fn, arrange)
  local bound = options.wrap("Dataset." .. name, signature, fn)
  local call = arrange and function(...) return bound(arrange(...)) end or bound
  M.statics[name] = options.describe_as(function(first, ...)
    if rawequal(first, M.statics) then
      errors.raise("TypeError", ("Dataset.%s: called with a colon"):format(
        name), ("call tf.data.Dataset.%s(...) with a dot"):format(name))
    end
    return call(first, ...)
  end, bound)
end

--- The node of an argument that must be a data set.
--- Errors: TypeError.
function M.node_of(what, name, x)
  if not M.is_dataset(x) then
    errors.raise("TypeError", ("%s: %s must be a dataset, got %s"):format(what,
      name, text.describe(x)))
  end
  return x.node
end

--- An argument that must be callable.
--- Errors: TypeError.
function M.check_function(what, name, fn)
  if not text.is_callable(fn) or M.is_dataset(fn) then
    errors.raise("TypeError", ("%s: %s must be a function, got %s"):format(what,
      name, text.describe(fn)))
  end
  return fn
end

--- Elements for a loop: `for x, y in dataset:iter() do`. The object also has
--- get_next, get_next_as_optional, state, restore and close. A loop in a traced
--- function is written out, element by element, each read anew at each call.
M.method("iter make_one_shot_iterator", "", function(self)
  local node = self.node
  if tracing.current() == nil then
    return M.iterate(node)
  end
  return setmetatable(steps.iterator({ node = node, count = 0 }, function()
    return M.iterate(node)
  end, tracing.lifted(M.cardinality_of, node)), Iterator)
end)

--- Elements as plain Lua values, for a loop: numbers, booleans, strings and
--- nested lists in place of tensors. Source: tf.data.Dataset.as_numpy_iterator
--- Errors: RuntimeError in a traced function.
M.method("as_numpy_iterator", "", function(self)
  if tracing.current() ~= nil then
    errors.raise("RuntimeError", "as_numpy_iterator() is not supported while "
      .. "tracing functions")
  end
  local iterator = M.iterate(self.node)
  local function plain(x)
    if type(x) == "string" or M.is_dataset(x) then
      return x
    end
    return x:totable()
  end
  return function()
    local pack = M.next_pack(iterator)
    if pack == nil then
      return nil
    end
    local out = element.map(plain, pack)
    return unpack(out, 1, out.n)
  end
end)

--- How many elements there are: a number, tf.data.INFINITE_CARDINALITY (-1) or
--- tf.data.UNKNOWN_CARDINALITY (-2). Source: tf.data.Dataset.cardinality
M.method("cardinality", "", function(self)
  return M.cardinality_of(self.node)
end)

--- What fn makes of the data set. Source: tf.data.Dataset.apply
M.method("apply", "transformation_func", function(self, fn)
  M.check_function("Dataset.apply", "transformation_func", fn)
  local result = fn(self)
  if not M.is_dataset(result) then
    errors.raise("TypeError", "Dataset.apply: transformation_func must return "
      .. "a dataset, got " .. text.describe(result))
  end
  return result
end)

local function unknown_name(key)
  errors.raise("KeyError", "a Dataset has no field or method "
    .. text.name(key), type(key) == "string"
    and text.suggestion(key, text.names(methods), "method")
    or "datasets are read by loops: for x in dataset:iter() do")
end

function Dataset.__index(self, key)
  local found = methods[key]
  if found ~= nil then
    return found
  elseif getters[key] ~= nil then
    return getters[key](self)
  end
  return unknown_name(key)
end

-- For the prompt.
function Dataset.__names()
  return text.names(methods, getters)
end

function Dataset.__newindex(_, key)
  errors.raise("TypeError", "a Dataset cannot be changed by assigning to "
    .. tostring(key), "its methods return new data sets")
end

function Dataset.__len(self)
  local n = M.cardinality_of(self.node)
  if n < 0 then
    errors.raise("TypeError", "#: the length of the dataset is "
      .. (n == M.INFINITE and "infinite" or "unknown"))
  end
  return n
end

-- `for x in dataset do` calls what it finds.
function Dataset.__call(self)
  errors.raise("TypeError", text.describe(self) .. " cannot be called",
    "for x in dataset:iter() do")
end

-- Printing -------------------------------------------------------------------

local function lines_of(node, depth, out)
  for i = 1, #node.inputs do
    lines_of(node.inputs[i], i == 1 and #node.inputs == 1 and depth
      or depth + 1, out)
  end
  local details = node.describe(node)
  out[#out + 1] = ("%s  %s%s"):format(("  "):rep(depth), node.name,
    details and ("(%s)"):format(details) or "")
end

--- The pipeline, source first, with indented branches.
function M.pipeline_text(node)
  local out = {}
  lines_of(node, 0, out)
  return table.concat(out, "\n")
end

function Dataset.__tostring(self)
  local node = self.node
  local n = M.cardinality_of(node)
  local ok, known = errors.attempt(M.known_spec, node)
  local head = n == M.INFINITE and "without end"
    or n == M.UNKNOWN and "of unknown length"
    or ("%s element%s"):format(text.number(n), n == 1 and "" or "s")
  if ok and known ~= nil then
    head = head .. " of " .. spec.structure_text(M.public_structure(known))
  end
  return ("Dataset, %s\n%s"):format(head, M.pipeline_text(node))
end

--- tf.keep for tensors that stages hold on to over several pulls.
M.keep = device.keep

return M
