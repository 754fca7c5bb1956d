--- Random stages: which numbers an iteration of a data set draws.
---
--- A node that draws has a field `stream`, made where the stage is made. Its
--- base seed and the number of the iteration decide everything, so an
--- iterator's state needs to hold no more than these.
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local random_seed = require "tfdist.core.random_seed"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"

local M = {}

-- Kinds of streams: base seeds, and what iterations derive from them.
local BASE, ITERATION = 5, 6
local DEFAULT_SEED = 87654321
local CHUNKS = 2 ^ 21

--- What a random stage draws from: the same numbers for the same seed, fresh
--- ones (or the next ones of the global seed) without. Call it where the stage
--- is made.
function M.stream(what, seed)
  if seed == nil then
    local stream = lists.of(random_seed.next(what))
    stream.is_fresh = random_seed.global_seed() == nil
    return stream
  end
  return lists.of(random_seed.stream(BASE, random_seed.global_seed()
    or DEFAULT_SEED, random_seed.check(what, seed)))
end

local function uniform_ints(stream, n, limit)
  return raw.tensor_to_flat((raw.op_run(raw.op_find "stateless_uniform_int",
    { n = 0 }, { 1, n, 0, 0, 0, 0, 0, 0, 0, stream[1], stream[2], stream[3],
    stream[4], 0, limit, 0, raw.enums.dtype.int64 })))
end

-- A number of 52 bits.
local function seed_of(stream)
  local two = uniform_ints(stream, 2, 2 ^ 26)
  return two[1] * 2 ^ 26 + two[2]
end

--- The base seed of a random node.
function M.base(node)
  node.base_seed = node.base_seed or seed_of(node.stream)
  return node.base_seed
end

--- What the users' functions of an iteration draw from: numbers that depend on
--- nothing that is drawn between its elements, so that another iteration can
--- repeat it. `drawn`: random_seed.drawn of the one to repeat; `share`: as
--- M.share says.
function M.sequence(drawn, share)
  return random_seed.sequence(seed_of, drawn,
    share and not share.functions_below and share.worker)
end

local function have_functions(nodes)
  for i = 1, #nodes do
    if nodes[i].fn or have_functions(nodes[i].inputs) then
      return true
    end
  end
  return false
end

--- Where sequences of users' functions begin that begin now; nil where none of
--- these nodes or below has a function.
function M.here(nodes)
  return have_functions(nodes) and random_seed.position(seed_of) or nil
end

local function note_stages(share, node, is_below)
  share.own[node] = not is_below and share.own[node] ~= false
  if is_below and (node.fn or node.stream) then
    share.functions_below = true
  end
  is_below = is_below or node.num_shards ~= nil
    or node.path ~= nil and not node.is_part
  for i = 1, #node.inputs do
    note_stages(share, node.inputs[i], is_below)
  end
end

--- For an iteration of worker `index`, which has elements of its own: stages that
--- no seed tells what to draw draw other numbers than those of other workers. But
--- all draw alike below a shard, which would give them elements twice, and below
--- a cache file, which may be one for all. Users' functions draw from one sequence:
--- where there are any below, all of them draw alike.
function M.share(node, index)
  local share = { worker = index, own = {} }
  note_stages(share, node, false)
  return share
end

--- The random nodes among nodes and all below them, inputs first.
function M.random_nodes(nodes, found)
  found = found or {}
  for i = 1, #nodes do
    M.random_nodes(nodes[i].inputs, found)
    found[#found + 1] = nodes[i].stream ~= nil and nodes[i] or nil
  end
  return found
end

--- Check a list that should have a seed and a number for each random node.
--- Errors: ValueError.
function M.check(list, field, count)
  local good = text.is_plain(list)
  for i = 1, good and #list or 0 do
    local own = list[i]
    good = good and text.is_plain(own) and text.is_int64(own.seed)
      and text.is_int64(own[field])
  end
  if not good then
    errors.raise("ValueError", "restore: this is no state of a data set: "
      .. text.describe(list))
  elseif #list ~= count then
    errors.raise("ValueError", ("restore: the state is of a data set with %d "
      .. "random stages, this one has %d"):format(#list, count))
  end
end

--- Where the random nodes among nodes are between iterations, plain values.
function M.orders(nodes)
  local list = {}
  for i, node in ipairs(M.random_nodes(nodes)) do
    list[i] = { seed = M.base(node), iterations = node.iterations or 0 }
  end
  return list
end

--- Let the nodes of an equal data set go on where M.orders was called.
--- Errors: ValueError.
function M.set_orders(nodes, saved)
  local random = M.random_nodes(nodes)
  M.check(saved, "iterations", #random)
  for i, node in ipairs(random) do
    node.base_seed, node.iterations = saved[i].seed, saved[i].iterations
  end
end

--- Seed and number of the iteration that a random node begins now. Each
--- opening of a node that changes from one iteration to the next counts.
function M.begin(node, run, each_iteration)
  local own = run.epochs[node]
  if own == nil then
    local saved = run.seeds and run.seeds[node.position or 0]
    own = { seed = saved and saved.seed or M.base(node),
      epoch = saved and saved.epoch or node.iterations or 0 }
    own.first = own.epoch
    run.epochs[node] = own
  else
    own.epoch = own.epoch + 1
  end
  if not run.probing then
    node.iterations = math.max(node.iterations or 0, own.epoch + 1)
  end
  local share, seed = run.share, own.seed
  if share and node.stream.is_fresh and share.own[node] then
    seed = (seed + share.worker) % 2 ^ 53
  end
  return seed, each_iteration and own.epoch or 0
end

local FIRST_DRAWS, DRAWS = 256, 4096

local function request(seed, epoch, chunk)
  local count = chunk == 0 and FIRST_DRAWS or DRAWS
  local lo, hi, counter_lo, counter_hi = random_seed.stream(ITERATION, seed,
    epoch * CHUNKS + chunk)
  return (raw.op_run(raw.op_find "stateless_uniform", { n = 0 },
    { 1, count, 0, 0, 0, 0, 0, 0, 0, lo, hi, counter_lo, counter_hi,
    raw.enums.dtype.float64 }, { 0, 1 }))
end

--- A function that gives list after list of numbers in [0, 1), always the same
--- ones for the same seed and epoch. Each list is asked for one list ahead of
--- its use, so that a queued device is not waited for.
function M.chunks(seed, epoch)
  local chunk, ahead = 0, request(seed, epoch, 0)
  return function()
    local list = raw.tensor_to_flat(ahead)
    chunk = chunk + 1
    ahead = request(seed, epoch, chunk)
    return list
  end
end

--- 0 .. n - 1 in random order, as one list.
function M.permutation(seed, epoch, n)
  local in_order = raw.op_run(raw.op_find "range", { n = 0 },
    { raw.enums.dtype.int32 }, { 0, n, 1 })
  return raw.tensor_to_flat((raw.op_run(raw.op_find "stateless_shuffle",
    { in_order, n = 1 }, lists.of(random_seed.stream(ITERATION, seed,
    epoch * CHUNKS + CHUNKS - 1)))))
end

--- A function draw(k) that gives whole numbers in 0..k-1 from such lists.
function M.draws(seed, epoch)
  local floor = math.floor
  local more, list, at = M.chunks(seed, epoch), {}, 0
  return function(k)
    at = at + 1
    local u = list[at]
    if u == nil then
      list, at = more(), 1
      u = list[1]
    end
    return floor(u * k)
  end
end

return M
