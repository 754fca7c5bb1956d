--- Stages that choose, order and join elements without looking into them:
--- take, skip, repeat_, shard, shuffle, concatenate, zip, enumerate, prefetch.
local counts = require "tfdist.data.counts"
local dataset = require "tfdist.data.dataset"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local pairs = require "tfdist.base.pairs"
local rows = require "tfdist.data.rows"
local seeds = require "tfdist.data.seeds"
local spec = require "tfdist.data.spec"
local stream = require "tfdist.data.stream"
local text = require "tfdist.base.text"

local M = {}

local min, max = math.min, math.max
local INFINITE, UNKNOWN = dataset.INFINITE, dataset.UNKNOWN
local method, stage = dataset.method, dataset.stage

local function cardinality(node)
  return dataset.cardinality_of(node.inputs[1])
end

-- The stream of a node's input.
local function input_of(node, run)
  return dataset.items(node.inputs[1], run)
end

-- take, skip -----------------------------------------------------------------

local Take = stage { rows = rows.of_input }

function Take.describe(node)
  return text.number(node.count or -1)
end

function Take.cardinality(node)
  local n, count = cardinality(node), node.count
  if count == nil then
    return n
  elseif n == INFINITE then
    return count
  end
  return n == UNKNOWN and (count == 0 and 0 or UNKNOWN) or min(n, count)
end

function Take.items(node, run)
  local input, left = input_of(node, run), node.count or math.huge
  local self = {}
  function self.fill(_, list, k)
    k = min(k, left)
    local got = k > 0 and input:fill(list, k) or 0
    left = left - got
    return got
  end
  function self.skip(_, k)
    k = min(k, left)
    left = left - k
    return stream.skip(input, k)
  end
  return self
end

--- The first `count` elements; -1 = all. Source: tf.data.Dataset.take
method("take", "count name=nil", function(self, count)
  return dataset.new(Take, "take", { self.node }, {
    count = counts.or_nil("Dataset.take", "count", count),
  })
end)

local Skip = stage { rows = rows.of_input }

function Skip.describe(node)
  return text.number(node.count or -1)
end

function Skip.cardinality(node)
  local n = cardinality(node)
  if node.count == nil then
    return 0
  end
  return n < 0 and n or max(0, n - node.count)
end

function Skip.items(node, run)
  if node.count == nil then
    return stream.sequence(0)
  end
  local input, first = input_of(node, run), node.count
  local self = {}
  function self.fill(_, list, k)
    if first > 0 then
      local n = first
      first = 0
      stream.skip(input, n)
    end
    return input:fill(list, k)
  end
  function self.skip(_, k)
    local own = first
    first = 0
    return max(0, stream.skip(input, k + own) - own)
  end
  return self
end

--- All but the first `count` elements; -1 = none. Source: tf.data.Dataset.skip
method("skip", "count name=nil", function(self, count)
  return dataset.new(Skip, "skip", { self.node }, {
    count = counts.or_nil("Dataset.skip", "count", count),
  })
end)

-- repeat_ --------------------------------------------------------------------

local Repeat = stage { rows = rows.of_input }

function Repeat.describe(node)
  return node.count and text.number(node.count) or ""
end

function Repeat.cardinality(node)
  local n = cardinality(node)
  if node.count == nil then
    return n == 0 and 0 or n == UNKNOWN and UNKNOWN or INFINITE
  elseif node.count == 0 then
    return 0
  end
  return n < 0 and n or n * node.count
end

-- A round without elements is the last.
function Repeat.items(node, run)
  local left, input, seen = node.count or math.huge, nil, false
  local function open()
    if input == nil and left > 0 then
      input, seen = input_of(node, run), false
    end
    return input ~= nil
  end
  -- Of k items that a round was asked for it gave so many.
  local function gave(got, k)
    seen = seen or got > 0
    if got < k then
      if input.close ~= nil then
        input:close()
      end
      input, left = nil, seen and left - 1 or 0
    end
    return got
  end
  local part = {}
  local self = {}
  function self.fill(_, list, k)
    local total = open() and gave(input:fill(list, k), k) or 0
    while total < k and open() do
      local got = gave(input:fill(part, k - total), k - total)
      for i = 1, got do
        list[total + i], part[i] = part[i], nil
      end
      total = total + got
    end
    return total
  end
  function self.skip(_, k)
    local total = 0
    while total < k and open() do
      total = total + gave(stream.skip(input, k - total), k - total)
    end
    return total
  end
  return self
end

--- All elements `count` times; for ever without count (or with -1).
--- Source: tf.data.Dataset.repeat
method("repeat_", "count=nil name=nil", function(self, count)
  return dataset.new(Repeat, "repeat_", { self.node }, {
    count = counts.or_nil("Dataset.repeat_", "count", count),
  })
end)

-- shard ----------------------------------------------------------------------

local Shard = stage { rows = rows.of_input }

function Shard.describe(node)
  return ("%s, %s"):format(text.number(node.num_shards),
    text.number(node.index_of_shard))
end

local function check_hint(node)
  if node.num_shards == M.SHARD_HINT then
    errors.raise("ValueError", "shard: SHARD_HINT stands for the number of "
      .. "workers", "it works in a data set given to "
      .. "experimental_distribute_dataset with auto_shard_policy = \"HINT\"")
  end
end

function Shard.cardinality(node)
  local n = cardinality(node)
  if n < 0 or node.num_shards == M.SHARD_HINT then
    return n
  end
  return math.ceil(max(0, n - node.index_of_shard) / node.num_shards)
end

function Shard.items(node, run)
  check_hint(node)
  local input, n, w = input_of(node, run), node.num_shards, node.index_of_shard
  local every = stream.every(input, n, w)
  if every ~= nil then
    return every
  end
  local before = w -- items to pass over before the next one
  local one = {}
  local self = {}
  function self.fill(_, list, k)
    for i = 1, k do
      local passed = before == 0 or stream.skip(input, before) == before
      before = n - 1
      if not passed or input:fill(one, 1) == 0 then
        before = 0
        return i - 1
      end
      list[i], one[1] = one[1], nil
    end
    return k
  end
  return self
end

--- Stands for both arguments of shard in data sets sharded by HINT.
--- Source: tf.data.experimental.SHARD_HINT
M.SHARD_HINT = -1

--- Every num_shards-th element, beginning with element `index`.
--- Errors: InvalidArgument unless 0 <= index < num_shards.
--- Source: tf.data.Dataset.shard
method("shard", "num_shards index name=nil", function(self, num_shards, index)
  local what = "Dataset.shard"
  num_shards = counts.whole(what, "num_shards", num_shards)
  index = counts.whole(what, "index", index)
  local hint = num_shards == M.SHARD_HINT and index == M.SHARD_HINT
  if not hint and (num_shards < 1 or index < 0 or index >= num_shards) then
    errors.raise("InvalidArgument", ("%s: index %s with num_shards %s; it must "
      .. "be in 0..num_shards - 1"):format(what, text.number(index),
      text.number(num_shards)))
  end
  return dataset.new(Shard, "shard", { self.node }, {
    num_shards = num_shards, index_of_shard = index,
  })
end)

-- shuffle --------------------------------------------------------------------

local Shuffle = stage { rows = rows.of_input }

function Shuffle.describe(node)
  return text.number(node.buffer_size)
    .. (node.seed and ", seed " .. text.number(node.seed) or "")
    .. (node.each_iteration and "" or ", same order in every iteration")
end

local MOST_HELD = 2 ^ 28

-- What would fill the memory before the first element comes.
local function check_buffer(node)
  local n = cardinality(node)
  if node.buffer_size > MOST_HELD and (n == INFINITE or n > MOST_HELD) then
    errors.raise("ResourceExhausted", ("shuffle: buffer_size %s over a data "
      .. "set %s"):format(text.number(node.buffer_size), n == INFINITE
      and "without end" or "of " .. text.number(n) .. " elements"),
      n == INFINITE and "shuffle before repeat_()" or "a smaller buffer will "
      .. "do")
  end
end

-- Positions that all fit into the buffer: one random order of them.
local function whole_order(node, run, n)
  local input = input_of(node, run)
  local order, list, at
  local function begin()
    list = {}
    n = input:fill(list, n)
    local seed, epoch = seeds.begin(node, run, node.each_iteration)
    order, at = seeds.permutation(seed, epoch, n), 0
  end
  local self = {}
  function self.fill(_, out, k)
    if order == nil then
      begin()
    end
    local got = min(k, n - at)
    for i = 1, got do
      out[i] = list[order[at + i] + 1]
    end
    at = at + got
    return got
  end
  function self.skip(_, k)
    if order == nil then
      begin()
    end
    local got = min(k, n - at)
    at = at + got
    return got
  end
  return self
end

local MOST_AT_ONCE = 2 ^ 24

-- Each item is drawn from the `buffer_size` ones that come next, with everything
-- in one loop: this runs for every element of an epoch.
function Shuffle.items(node, run)
  check_buffer(node)
  local n = cardinality(node)
  if n >= 0 and n <= min(node.buffer_size, MOST_AT_ONCE)
    and dataset.rows_of(node) ~= nil then
    return whole_order(node, run, n)
  end
  local input = input_of(node, run)
  local more_draws = seeds.chunks(seeds.begin(node, run, node.each_iteration))
  local uniform, draw = {}, 0
  local size = node.buffer_size
  local held, count, ended = nil, 0, false
  local list, at, got, ahead = {}, 0, 0, 1
  local function refill()
    got = input:fill(list, ahead)
    at = 0
    return got > 0
  end
  local self = {}
  function self.fill(_, out, k)
    if held == nil then
      held = {}
      count = input:fill(held, size)
      ended = count < size
      ahead = stream.ahead(held[1])
    end
    for i = 1, k do
      if count == 0 then
        return i - 1
      end
      draw = draw + 1
      local u = uniform[draw]
      if u == nil then
        uniform, draw = more_draws(), 1
        u = uniform[1]
      end
      u = u * count
      local slot = u - u % 1 + 1
      out[i] = held[slot]
      if not ended and (at < got or refill()) then
        at = at + 1
        held[slot] = list[at]
      else
        ended = true
        held[slot] = held[count]
        held[count] = nil
        count = count - 1
      end
    end
    return k
  end
  return self
end

--- Elements in random order: each is drawn from a buffer of the next
--- buffer_size ones, so a buffer as large as the data set shuffles it fully.
--- With a seed the order is the same in every run of the program; without, that
--- of tf.random.set_seed. Every iteration has an order of its own unless
--- reshuffle_each_iteration is false.
--- Source: tf.data.Dataset.shuffle
method("shuffle", "buffer_size seed=nil reshuffle_each_iteration=true name=nil",
  function(self, buffer_size, seed, each_iteration)
    local what = "Dataset.shuffle"
    buffer_size = counts.whole(what, "buffer_size", buffer_size, 1)
    return dataset.new(Shuffle, "shuffle", { self.node }, {
      buffer_size = buffer_size, seed = seed,
      each_iteration = each_iteration ~= false,
      stream = seeds.stream(what, seed),
    })
  end)

-- concatenate ----------------------------------------------------------------

local Concatenate = stage {}

function Concatenate.cardinality(node)
  local total = 0
  for i = 1, #node.inputs do
    local n = dataset.cardinality_of(node.inputs[i])
    if n == INFINITE then
      return INFINITE
    elseif n == UNKNOWN or total == UNKNOWN then
      total = UNKNOWN
    else
      total = total + n
    end
  end
  return total
end

local function widen_all(node)
  local found = dataset.spec_of(node.inputs[1])
  for i = 2, #node.inputs do
    local other = dataset.spec_of(node.inputs[i])
    nest.assert_same_structure(found, other)
    found = nest.map_structure(function(a, b)
      return spec.widen(a, b, node.name)
    end, found, other)
  end
  return found
end

function Concatenate.spec(node)
  return dataset.call(node, widen_all, node)
end

function Concatenate.open(node, run)
  local at, input = 0, nil
  local self = {}
  local function more()
    at = at + 1
    if node.inputs[at] == nil then
      input = nil
      return false
    end
    input = dataset.open(node.inputs[at], run)
    return true
  end
  function self.next()
    while input ~= nil or (at == 0 and more()) do
      local pack = input:next()
      if pack ~= nil then
        return pack
      end
      more()
    end
    return nil
  end
  function self.skip(_, n)
    local done = 0
    while done < n and (input ~= nil or (at == 0 and more())) do
      done = done + dataset.skip(input, n - done)
      if done < n then
        more()
      end
    end
    return done
  end
  return self
end

-- Are the elements known without making any?
local function is_known(node)
  local done, found = errors.attempt(dataset.known_spec, node)
  return done and found ~= nil
end

--- The elements of this data set, then those of another.
--- Errors: TypeError or ValueError when the elements are of different kinds;
---   where a user's function makes them, once element_spec is asked for, or in a
---   batch.
--- Source: tf.data.Dataset.concatenate
method("concatenate", "dataset name=nil", function(self, other)
  local joined = dataset.new(Concatenate, "concatenate", {
    self.node, dataset.node_of("Dataset.concatenate", "dataset", other),
  })
  if is_known(joined.node.inputs[1]) and is_known(joined.node.inputs[2]) then
    dataset.known_spec(joined.node)
  end
  return joined
end)

-- zip, enumerate -------------------------------------------------------------

local Zip = stage {}

-- One pack for packs[i] of input i: in a list of data sets each gives its
-- value, or a table of its values when it has several.
local function join(node, packs)
  local function value(pack)
    if pack.n == 1 then
      return pack[1]
    end
    local list = { n = pack.n }
    for i = 1, pack.n do
      list[i] = pack[i]
    end
    return list
  end
  local out = nest.map_structure(function(i)
    return value(packs[i])
  end, node.structure)
  if node.is_tuple then
    out.n = nest.layout(node.structure)
    return out
  end
  return { out, n = 1 }
end

function Zip.cardinality(node)
  local least = INFINITE
  for i = 1, #node.inputs do
    local n = dataset.cardinality_of(node.inputs[i])
    if n == 0 then
      return 0
    elseif n == UNKNOWN or least == UNKNOWN then
      least = UNKNOWN
    elseif n ~= INFINITE then
      least = least == INFINITE and n or min(least, n)
    end
  end
  return least
end

function Zip.spec(node)
  local specs = {}
  for i = 1, #node.inputs do
    specs[i] = dataset.spec_of(node.inputs[i])
  end
  return join(node, specs)
end

function Zip.sample(node, n)
  local packs = {}
  for i = 1, #node.inputs do
    packs[i] = dataset.sample_of(node.inputs[i], n)
    if packs[i] == nil then
      return nil
    end
  end
  return join(node, packs)
end

function Zip.open(node, run)
  local inputs = {}
  for i = 1, #node.inputs do
    inputs[i] = dataset.open(node.inputs[i], run)
  end
  local self = {}
  function self.next()
    local packs = {}
    for i = 1, #inputs do
      packs[i] = inputs[i]:next()
      if packs[i] == nil then
        return nil
      end
    end
    return join(node, packs)
  end
  function self.skip(_, n)
    local done = n
    for i = 1, #inputs do
      done = min(done, dataset.skip(inputs[i], n))
    end
    return done
  end
  return self
end

local function zip(name, structure)
  local nodes = {}
  local positions = nest.map(name, function(x)
    nodes[#nodes + 1] = dataset.node_of(name, "datasets", x)
    return #nodes
  end, structure)
  if #nodes == 0 then
    errors.raise("ValueError", name .. ": there are no data sets")
  end
  local fields = {
    structure = positions,
    is_tuple = nest.is_nested(positions) and select(2, nest.layout(positions))
      == nil,
  }
  local side = rows.side_by_side(nodes, function(packs)
    return join(fields, packs)
  end)
  if side ~= nil then
    return rows.dataset(name, side, text.number(side.n) .. " rows")
  end
  return dataset.new(Zip, name, nodes, fields)
end

-- Is x a data set or a table of them, and not the options behind those?
local function is_zipped(x)
  if dataset.is_dataset(x) then
    return true
  end
  for _, value in pairs(text.is_plain(x) and x or {}) do
    if dataset.is_dataset(value) or text.is_plain(value) then
      return true
    end
  end
  return false
end

--- Elements of several data sets side by side, until one ends: zip { a, b }, or
--- zip(a, b), gives a tuple, zip { x = a, y = b } a table. An element that is a
--- tuple itself becomes a list in it.
--- Source: tf.data.Dataset.zip
dataset.static("zip", "datasets:nest name=nil", function(datasets)
  return zip("zip", datasets)
end, function(first, second, ...)
  if not (is_zipped(second) or is_zipped((...))) then
    return first, second, ...
  end
  local list = { n = select("#", ...) + 2, first, second, ... }
  local last, names = list[list.n], nil
  if text.is_plain(last) and not is_zipped(last) then
    list[list.n], names, list.n = nil, last, list.n - 1
  end
  return list, names
end)

--- int64 numbers from `start` on before each element, which becomes a list
--- when it is a tuple. Source: tf.data.Dataset.enumerate
method("enumerate", "start=0 name=nil", function(self, start)
  start = counts.whole("Dataset.enumerate", "start", start)
  local n = dataset.cardinality_of(self.node)
  local counter = rows.dataset("range", rows.new({ rows.counter(start),
    n = 1 }, n >= 0 and n or math.huge), "from " .. text.number(start))
  return zip("enumerate", { counter, self })
end)

-- prefetch -------------------------------------------------------------------

local Prefetch = stage { rows = rows.of_input }

function Prefetch.describe(node)
  return text.number(node.buffer_size)
end

Prefetch.items = input_of

--- An iterator that stays `ahead` elements ahead of its reader. What goes wrong
--- is raised where its element is asked for.
function M.ahead(input, ahead)
  local queue, first, last, ended = {}, 1, 0, false
  local self = {}
  local function fill()
    while not ended and last - first < ahead do
      local ok, pack = pcall(input.next, input)
      last = last + 1
      queue[last] = { ok = ok, pack = pack }
      ended = ok and pack == nil
      if not ok then
        return
      end
    end
  end
  function self.next()
    fill()
    local entry = queue[first]
    if entry == nil then
      return nil
    end
    queue[first] = nil
    first = first + 1
    if not entry.ok then
      error(entry.pack, 0)
    end
    return entry.pack
  end
  function self.skip(_, n)
    local done = 0
    while done < n and first <= last do
      if self.next() == nil then
        return done
      end
      done = done + 1
    end
    return ended and done or done + dataset.skip(input, n - done)
  end
  return self
end

function Prefetch.open(node, run)
  return M.ahead(dataset.open(node.inputs[1], run), node.buffer_size)
end

--- Elements prepared ahead of their use: buffer_size of them (2 by default or
--- for AUTOTUNE). Lua runs in one thread, so the functions of the pipeline run
--- when an element is asked for, buffer_size elements early; what they leave to
--- queued devices goes on while the caller computes.
--- Source: tf.data.Dataset.prefetch
method("prefetch", "buffer_size=-1 name=nil", function(self, buffer_size)
  buffer_size = counts.or_nil("Dataset.prefetch", "buffer_size",
    buffer_size) or 2
  return dataset.new(Prefetch, "prefetch", { self.node }, {
    buffer_size = buffer_size,
  })
end)

return M
