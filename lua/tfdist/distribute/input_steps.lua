--- What each step of a distributed data set gives: packs on the host.
---
--- A plan says how a data set is divided: { strategy, kind ("global", "cut",
--- "dealt"), W, w, R, G, node, nodes, agree, piece, ... }, see module input.
local batch = require "tfdist.data.batch"
local dataset = require "tfdist.data.dataset"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local shares = require "tfdist.distribute.input_shares"
local spec = require "tfdist.data.spec"
local text = require "tfdist.base.text"

local M = {}

local DISTRIBUTE = "experimental_distribute_dataset"

-- A step gives packs[1..R] on the host and, with several workers, the field
-- rows, those of all workers; or nil at the end. A maker of steps is a table
-- { next(self) } like any iterator.

local function need_batched(node, pack, n)
  local size, why = element.batch_size(pack)
  if size ~= nil then
    return size
  end
  local shown = element.spec_of(pack)
  local parts = {}
  local leaves = nest.flatten(shown)
  for i = 1, leaves.n do
    parts[i] = spec.is_spec(leaves[i]) and spec.dims_text(leaves[i].shape)
      or text.describe(leaves[i])
  end
  errors.raise(why == "scalar" and "ValueError" or "InvalidArgument",
    ("%s needs a batched dataset to share among %d replicas; elements here are "
    .. "%s%s"):format(DISTRIBUTE, n, #parts > 1 and table.concat(parts, ", ", 1,
    #parts - 1) .. " and " .. parts[#parts] or parts[1] or "empty",
    node.where and ", made at " .. node.where or ""),
    "add :batch(global_batch_size) before")
end

-- Batches that all workers see: pieces for replicas w * R ... of each.
local function global_steps(plan, source)
  local n = plan.W * plan.R
  local self = {}
  function self.next()
    local pack = dataset.next_pack(source)
    if pack == nil then
      return nil
    end
    local B = need_batched(plan.node, pack, n)
    local G = not source.run.resized and plan.G or nil
    local step = { rows = plan.W > 1 and B or nil }
    for r = 1, plan.R do
      step[r] = element.slice(pack, plan.piece(B, G, plan.w * plan.R + r - 1))
    end
    return step
  end
  return self
end

-- Pieces of the worker's own stream, where the batch size is not known: even
-- ones of every batch.
local function even_stream(plan, source)
  local n, turn, pack, B = plan.W * plan.R, 0, nil, nil
  return {
    next = function()
      if turn == 0 then
        pack = dataset.next_pack(source)
        if pack == nil then
          return nil
        end
        B = need_batched(plan.node, pack, n)
      end
      local first, count = shares.piece(B, nil, n, turn)
      turn = (turn + 1) % n
      return element.slice(pack, first, count)
    end,
  }
end

-- Rows of a pack, where its components have such.
local function has_rows(pack)
  local size = element.batch_size(pack)
  return size == nil or size > 0
end

-- What a replica without data gets: no rows; scalars are zeros.
local function dummy(like)
  return element.map(function(x)
    local size = element.leading(x)
    if size ~= nil then
      return element.slice_leaf(x, 0, 0)
    end
    return element.zeros(spec.of(x))
  end, like)
end

M.dummy = dummy

-- True when asking for the spec reads nothing that only comes once.
local function can_ask(node)
  local good = true
  dataset.walk(node, function(each)
    good = good and not (each.lazy_spec and #each.inputs == 0)
  end)
  return good
end

-- Partial steps of data from functions, as TensorFlow decides: unless every
-- size is known (then a missing element ends the data). `like` is an element,
-- for data whose specs nobody knows: scalars have no rows to be missing.
local function is_partial(plan, like)
  if plan.W > 1 then
    return true
  end
  for i = 1, #plan.nodes do
    if dataset.cardinality_of(plan.nodes[i]) == dataset.INFINITE then
      return false
    end
  end
  if can_ask(plan.node) then
    local ok, found = errors.attempt(dataset.spec_of, plan.node)
    return not (ok and spec.is_static(found))
  end
  local leaves = like and element.leaves(like) or { n = 0 }
  for i = 1, leaves.n do
    if element.leading(leaves[i]) ~= nil then
      return true
    end
  end
  return false
end

-- Put something in the place of missing elements; false when the step is to be
-- given up.
local function fill_step(plan, step, last)
  for r = 1, plan.R do
    if step[r] == nil then
      if plan.partial == nil then
        plan.partial = is_partial(plan, last)
      end
      if not plan.partial then
        return false
      end
      step[r] = dummy(last or element.map(element.zeros,
        dataset.spec_of(plan.node)))
    end
  end
  return true
end

-- Rows of what the replicas here got.
local function rows_of(step, R)
  local rows = 0
  for r = 1, R do
    rows = rows + (step[r] ~= nil and element.batch_size(step[r]) or 0)
  end
  return rows
end

-- The next element for each replica, from streams[r]. plan.agree tells whether
-- any worker has data, and how much all have.
local function dealt_steps(plan, streams)
  local last, ended
  local self = {}
  function self.next()
    local step, data = {}, false
    for r = 1, plan.R do
      step[r] = streams[r]:next()
      ended = ended or step[r] == nil
      last = step[r] or last
      -- A piece without rows may be the list's or the end's.
      data = data or (step[r] ~= nil and (not plan.pieces
        or has_rows(step[r]) or not ended))
    end
    if plan.agree ~= nil then
      data, step.rows = plan.agree(data, rows_of(step, plan.R))
    end
    return data and fill_step(plan, step, last) and step or nil
  end
  return self
end

local function pack_stream(source)
  return { next = function() return dataset.next_pack(source) end }
end

-- plan -> the maker of its steps, reading from sources[1..].
local function make_steps(plan, sources)
  local source = sources[1]
  if plan.kind == "global" then
    return global_steps(plan, source)
  elseif plan.kind == "cut" then
    local stream
    if plan.G ~= nil then
      stream = batch.cut({
        next = function()
          local pack = dataset.next_pack(source)
          if pack ~= nil then
            need_batched(plan.node, pack, plan.W * plan.R)
          end
          return pack
        end,
      }, shares.sizes_for_worker(plan.G, plan.W, plan.R, plan.w), false,
        DISTRIBUTE)
    else
      stream = even_stream(plan, source)
    end
    local streams = {}
    for r = 1, plan.R do
      streams[r] = stream
    end
    plan.partial = true
    return dealt_steps(plan, streams)
  end
  local streams = { pack_stream(source) }
  for r = 2, plan.R do
    streams[r] = #sources == 1 and streams[1] or pack_stream(sources[r])
  end
  return dealt_steps(plan, streams)
end

--- The size that a batch must have, to be shared.
--- Errors: ValueError for scalars, InvalidArgument for sizes that differ.
M.need_batched = need_batched

--- See above. Source: tf.distribute input_lib, partial batch handling
M.is_partial = is_partial

--- Steps of a plan from opened iterators, one for each of plan.nodes: an object
--- with next() -> packs[1..R], nil at the end.
M.make = make_steps

return M
