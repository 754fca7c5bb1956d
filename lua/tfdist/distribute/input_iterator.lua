--- Iterators over distributed data sets, and the specs of what they give.
local basic = require "tfdist.data.basic"
local contexts = require "tfdist.distribute.contexts"
local counted = require "tfdist.core.counted"
local dataset = require "tfdist.data.dataset"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local iterators = require "tfdist.data.iterator"
local json = require "tfdist.core.json"
local lists = require "tfdist.base.lists"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local nest = require "tfdist.base.nest"
local reduce = require "tfdist.distribute.reduce"
local replica_spec = require "tfdist.distribute.replica_spec"
local seeds = require "tfdist.data.seeds"
local shares = require "tfdist.distribute.input_shares"
local spec = require "tfdist.data.spec"
local steps = require "tfdist.distribute.input_steps"
local text = require "tfdist.base.text"
local traced = require "tfdist.data.traced"
local tracing = require "tfdist.core.tracing"
local values = require "tfdist.distribute.values"

local M = {}

local getmetatable, setmetatable, type = getmetatable, setmetatable, type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

-- Specs ------------------------------------------------------------------------

-- The spec of what every replica gets.
local function share_spec(plan, x)
  if not spec.is_spec(x) or plan.kind == "dealt" or x.shape == nil
    or #x.shape == 0 or plan.W * plan.R == 1 then
    return x
  end
  local dims = lists.copy(x.shape)
  dims[1] = (plan.W == 1 or plan.kind == "global")
    and shares.static_share(plan.G or dims[1], plan.W * plan.R, dims[1] >= 0)
    or -1
  return spec.new(dims, x.dtype, x.name)
end

--- The packed spec of what a plan's iterators give.
function M.packed_spec(plan)
  if plan.known_spec == nil then
    plan.known_spec = element.map(function(x)
      if not plan.wrapped then
        return x
      end
      local list = {}
      for r = 1, plan.R do
        list[r] = share_spec(plan, x)
      end
      return replica_spec.new(plan.strategy, list)
    end, dataset.spec_of(plan.node))
  end
  return plan.known_spec
end

function M.element_spec(plan)
  return dataset.public_structure(M.packed_spec(plan))
end

-- Iterators ------------------------------------------------------------------

local function placed(x, device)
  if type(x) == "userdata" then
    return raw.tensor_to_device(x, device)
  end
  return x
end

-- packs[1..R] as values of the strategy, in the structure of an element.
local function regroup(plan, packs)
  local devices = plan.strategy.replica_devices
  local columns, R = {}, plan.R
  for r = 1, R do
    local leaves = element.leaves(packs[r])
    for c = 1, leaves.n do
      columns[c] = columns[c] or {}
      columns[c][r] = plan.fetch and devices[r] ~= nil
        and placed(leaves[c], devices[r]) or leaves[c]
    end
    columns.n = leaves.n
  end
  local out = { n = columns.n }
  for c = 1, columns.n do
    out[c] = plan.wrapped and values.new(plan.strategy, "per_replica",
      columns[c], R) or columns[c][1]
  end
  return element.rebuild(packs[1], out)
end

-- Do several workers read elements alike, each its share of them? With other
-- policies they may have pipelines of their own.
local function reads_alike(plan)
  return plan.W > 1 and (plan.policy == "DATA" or plan.policy == "HINT")
end

-- What all workers draw by, of what all of them read alike: the chief's seeds,
-- and where its functions' numbers begin. The first is nil where they are equal.
-- All of them call it.
local function agreed(plan, seeds_here, functions)
  local own = json.encode { seeds = seeds_here, functions = functions }
  local chiefs = reduce.chiefs_text(plan.strategy, "distributed input", own)
  if chiefs == own then
    return nil, functions
  end
  local said = json.decode(chiefs, "distributed input")
  return said.seeds, said.functions
end

local function steps_of(plan, saved)
  local sources = {}
  for i = 1, #plan.nodes do
    local source, share = dataset.iterate(plan.nodes[i]), nil
    if plan.W > 1 and plan.kind ~= "global" then
      share = seeds.share(plan.nodes[i], plan.w)
    end
    source.run = dataset.new_run(saved and saved.seeds[i],
      saved and saved.drawn and saved.drawn[i] or nil, share)
    source.run.watch_sizes = plan.kind == "global"
    sources[i] = source
  end
  local maker = steps.make(plan, sources)
  return sources, {
    next = function()
      local packs = dataset.traced(plan.nodes[1], maker.next, maker)
      local pack = packs and regroup(plan, packs)
      if pack then
        pack.rows = packs.rows
      end
      return pack
    end,
  }
end

local function check_context()
  local mode = contexts.mode()
  if mode ~= nil and mode.replica ~= nil then
    errors.raise("ValueError", "DistributedIterator: get_next must be called "
      .. "in cross-replica context, not inside the replica function",
      "pass the element to strategy:run(step, { it:get_next() })")
  end
end

local take = counted.method("get_next", function(_, ahead)
  return dataset.isolated(ahead.next)
end)

local function next_step(self)
  check_context()
  if self.done then
    return nil
  elseif self.closed then
    errors.raise("FailedPrecondition", "DistributedIterator: it was closed")
  elseif self.ahead == nil then
    errors.raise("FailedPrecondition", "DistributedIterator: it was made inside "
      .. "a traced function, which has ended")
  end
  self.count = self.count + 1
  local pack = take(self.plan.strategy, self.ahead)
  if pack == nil then
    self.done = true
    self.count = self.count - 1
  end
  self.rows = pack and pack.rows
  return pack
end

-- Of a packed spec: the specs of all tensors, and where each is.
local function each_tensor(plan, packed)
  local flat, specs, devices = nest.flatten(packed), { n = 0 }, {}
  for i = 1, flat.n do
    for r = 1, plan.wrapped and plan.R or 1 do
      specs.n = specs.n + 1
      specs[specs.n] = plan.wrapped and flat[i].value_specs[r] or flat[i]
      devices[specs.n] = plan.fetch and plan.strategy.replica_devices[r]
        or raw.device_at("CPU", 0)
    end
  end
  return specs, devices
end

-- All tensors of a step, those of a value's replicas in a row.
local function tensors_of(plan, pack)
  local flat, list = nest.flatten(pack), { n = 0 }
  for i = 1, flat.n do
    for r = 1, plan.wrapped and plan.R or 1 do
      list.n = list.n + 1
      list[list.n] = plan.wrapped and values.component(flat[i], r - 1) or flat[i]
    end
  end
  return list
end

-- A step of such tensors.
local function step_of(plan, packed, list)
  local at = 0
  return nest.map_structure(function()
    local parts = {}
    for r = 1, plan.wrapped and plan.R or 1 do
      parts[r] = list[at + r]
    end
    at = at + #parts
    return plan.wrapped and values.new(plan.strategy, "per_replica", parts,
      plan.R) or parts[1]
  end, packed)
end

-- Inside a trace: what each call takes anew.
local function next_traced(self, way, ended)
  local plan = self.plan
  check_context()
  local packed = tracing.lifted(M.packed_spec, plan)
  local specs, devices = each_tensor(plan, packed)
  local got = traced.step(self, way, specs, function(iterator)
    local pack = next_step(iterator)
    return pack and tensors_of(plan, { n = pack.n, unpack(pack, 1, pack.n) })
  end, ended, devices)
  if way ~= "optional" then
    return got and step_of(plan, packed, got)
  end
  got.pack, got.spec = step_of(plan, packed, got.pack), packed
  return got
end

-- Its get_next is tf.distribute.DistributedIterator.get_next: PerReplica values,
-- and a ValueError inside a replica function.
local Iterator, iterator_methods, check_self = iterators.class {
  name = "DistributedIterator", unit = "step", next_pack = next_step,
  traced = next_traced,
  taken = function(self)
    return self.count
  end,
  spec_of = function(self)
    return M.packed_spec(self.plan)
  end,
  element_spec = function(self)
    return M.element_spec(rawget(self, "plan"))
  end,
  of = function(self)
    return " of " .. self.plan.strategy.name
  end,
}

function M.is_iterator(x)
  return getmetatable(x) == Iterator
end

--- Rows of the step given last, of all workers; nil where this process is alone.
function M.rows_of(iterator)
  return rawget(iterator, "rows")
end

--- Number of steps of a plan, or one of tf.data's constants where it is not
--- known.
function M.cardinality(plan)
  local n = dataset.cardinality_of(plan.node)
  if n < 0 or plan.kind == "global" then
    return n
  elseif plan.kind == "dealt" then
    local parts = #plan.nodes == 1 and plan.R or 1
    return steps.is_partial(plan) and math.ceil(n / parts)
      or math.floor(n / parts)
  end
  return dataset.UNKNOWN
end

-- One that each call of the traced function makes anew. Of several workers the
-- one with the most steps ends a loop.
local function iterate_traced(plan)
  local left = dataset.UNKNOWN
  if plan.W == 1 or plan.kind == "global" then
    left = tracing.lifted(M.cardinality, plan)
  end
  return setmetatable(traced.iterator({ plan = plan, count = 0 }, function()
    return M.iterate(plan)
  end, left), Iterator)
end

local function begin_functions(self)
  for i = 1, #self.sources do
    random_seed.begin_at(self.sources[i].run.sequence, self.functions)
  end
end

--- An iterator from the beginning. All workers make it together where they read
--- alike what is random or has users' functions.
function M.iterate(plan)
  if tracing.current() ~= nil then
    return iterate_traced(plan)
  end
  local self = setmetatable({ plan = plan, count = 0, done = false }, Iterator)
  self.sources, self.steps = steps_of(plan)
  self.seeds = {}
  local random = 0
  for i = 1, #self.sources do
    self.seeds[i] = self.sources[i]:state().seeds
    random = random + #self.seeds[i]
  end
  local alike = reads_alike(plan)
  local functions = alike and seeds.here(plan.nodes) or nil
  if functions or alike and random > 0 then
    local others
    others, self.functions = agreed(plan, self.seeds, functions)
    if others then
      self.seeds = others
      self.sources, self.steps = steps_of(plan, { seeds = others })
    end
    begin_functions(self)
  end
  self.ahead = basic.ahead(self.steps, plan.buffer)
  return self
end

--- Where the iterator is, for a checkpoint: a plain table of numbers.
function iterator_methods.state(self)
  check_self(self, "state")
  local drawn = { n = #self.sources }
  for i = 1, drawn.n do
    drawn[i] = self.sources[i]:state().drawn or false
  end
  return { version = 1, count = self.count, seeds = self.seeds, drawn = drawn,
    functions = self.functions, resized = self.sources[1].run.resized }
end

--- Go where another iterator of an equal data set was at state(); as the
--- restore of a data set's own iterator. All workers call it together.
--- Errors: ValueError for a state of another data set.
function iterator_methods.restore(self, saved)
  check_self(self, "restore")
  if not text.is_plain(saved) or saved.version ~= 1
    or not text.is_plain(saved.seeds) or #saved.seeds ~= #self.plan.nodes
    or not text.is_whole(saved.count) or saved.count < 0
    or saved.drawn ~= nil and not text.is_plain(saved.drawn) then
    errors.raise("ValueError", "restore: this is no state of this iterator: "
      .. text.describe(saved))
  end
  self:close()
  self.closed, self.done, self.count = false, false, saved.count
  self.seeds, self.functions = saved.seeds, saved.functions
  self.sources, self.steps = steps_of(self.plan, saved)
  local functions = reads_alike(self.plan) and seeds.here(self.plan.nodes)
  if functions then
    -- What one worker saved alone does not say where functions begin.
    self.functions = select(2, agreed(self.plan, self.seeds,
      self.functions or functions))
  end
  begin_functions(self)
  if self.plan.kind == "global" then
    self.sources[1]:restore { version = 1, count = saved.count,
      seeds = saved.seeds[1], drawn = saved.drawn and saved.drawn[1] or nil,
      functions = self.functions, resized = saved.resized }
  else
    for _ = 1, saved.count do
      dataset.isolated(self.steps.next)
    end
  end
  self.ahead = basic.ahead(self.steps, self.plan.buffer)
  return self
end

--- Give files and buffers back now.
function iterator_methods.close(self)
  check_self(self, "close")
  for i = 1, #self.sources do
    self.sources[i]:close()
  end
  self.closed = true
end

return M
