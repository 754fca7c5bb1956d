--- What replicas do together: all_reduce, all_gather, reduce_scatter of the
--- replica context, with their gradients.
local communication = require "tfdist.distribute.communication"
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local gradient_tape = require "tfdist.core.gradient_tape"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local replica = require "tfdist.distribute.replica"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"

local M = {}

local function needs_gradient(list)
  if raw.tape_active() == 0 then
    return false
  end
  for i = 1, list.n do
    if raw.kind(list[i]) == "slices" then
      return false
    end
  end
  return true
end

-- Leaves as tensors (variables: this replica's copy) or slices.
local function replica_leaves(value, what)
  local flat = type(value) == "userdata" and { value, n = 1 }
    or nest.leaves(what, value)
  for i = 1, flat.n do
    local x = reduce.operand(flat[i], what)
    if raw.kind(x) ~= "slices" then
      x = convert.tensor(x, nil, what, "value")
    end
    flat[i] = x
  end
  return flat
end

-- replies[i][k]: what replica i gets for leaf k from make(components).
local function each_leaf(payloads, make)
  local replies = {}
  for i = 1, payloads.n do
    replies[i] = { n = payloads[1].n }
  end
  for k = 1, payloads[1].n do
    local parts = { n = payloads.n }
    for i = 1, payloads.n do
      parts[i] = payloads[i][k]
    end
    local value = make(parts, k)
    for i = 1, payloads.n do
      replies[i][k] = values.component(value, i - 1)
    end
  end
  return replies
end

-- what -> detail -> name of the sync point with one value
local points = {}

local function point_of(what, detail, n)
  local known = points[what]
  if known == nil then
    known = {}
    points[what] = known
  end
  local single = known[detail]
  if single == nil then
    single = ("%s(%s)"):format(what, detail)
    known[detail] = single
  end
  return n == 1 and single or ("%s, %d values)"):format(single:sub(1, -2), n)
end

local function zeros_for(grads, outputs, n)
  for i = 1, n do
    if grads[i] == nil then
      local t = outputs[i]
      grads[i] = raw.tensor_from_values({ 0 }, raw.tensor_dtype(t),
        raw.tensor_dims(t))
    elseif raw.kind(grads[i]) == "slices" then
      grads[i] = raw.slices_to_dense(grads[i])
    end
  end
  grads.n = n
  return grads
end

local all_reduce_flat

-- Gradients of the smallest or largest: to the replicas that have it, in equal
-- shares where several have.
local function extreme_gradient(context, flat, outputs, grads, n, more)
  local shares = { n = n }
  for k = 1, n do
    shares[k] = tf.cast(tf.equal(flat[k], outputs[k]),
      raw.tensor_dtype(flat[k]))
  end
  local summed = all_reduce_flat(context, "SUM", grads, more)
  local counts = all_reduce_flat(context, "SUM", shares, more)
  local own = { n = n }
  for k = 1, n do
    own[k] = tf.math.divide(tf.multiply(summed[k], shares[k]), counts[k])
  end
  return own
end

local function all_reduce_gradient(context, op, flat, outputs, more)
  return function(grads, n)
    grads = zeros_for(grads, outputs, n)
    if op == "SUM" or op == "MEAN" then
      return all_reduce_flat(context, op, grads, more)
    elseif op == "PROD" then
      errors.raise("NotImplementedError",
        "all_reduce: the product has no gradient",
        "all_gather and tf.reduce_prod have one")
    end
    return extreme_gradient(context, flat, outputs, grads, n, more)
  end
end

local function all_reduce_answer(strategy, op, payloads, more)
  local grouped = reduce.all_reduce(strategy, op, payloads, "all_reduce", more)
  local replies, count = {}, payloads[1].n
  for i = 1, payloads.n do
    local own = { grouped[1] and grouped[1][i], n = count }
    for k = 2, count do
      own[k] = grouped[k][i]
    end
    replies[i] = own
  end
  return replies
end

all_reduce_flat = function(context, op, flat, more)
  local strategy = context.strategy
  if strategy.one_copy then
    return flat
  end
  -- The answer of the first replica counts; others need none.
  local first = context.replica == nil or context.replica.id == 0
  local outputs = replica.sync(context, point_of("all_reduce", op, flat.n),
    flat, first and function(_, payloads)
      return all_reduce_answer(strategy, op, payloads, more)
    end or nil)
  if needs_gradient(flat) then
    gradient_tape.record_step(flat, outputs,
      all_reduce_gradient(context, op, flat, outputs, more))
  end
  return outputs
end

--- Sum or mean ("MIN", "MAX", "PROD") over all replicas, on each of them;
--- gradients flow through. value may be a structure; all its leaves are reduced
--- together.
--- Errors: RuntimeError unless all replicas call it; InvalidArgument when
---   shapes or dtypes differ.
--- Source: tf.distribute.ReplicaContext.all_reduce
replica.define("all_reduce", "op value:table options:table=nil",
  function(self, op, value, more)
    op = reduce.op("all_reduce", op)
    more = communication.read("all_reduce", more)
    local flat = replica_leaves(value, "all_reduce")
    local outputs = all_reduce_flat(self, op, flat, more)
    if not nest.is_nested(value) then
      return outputs[1]
    end
    return nest.pack_sequence_as(value, outputs)
  end)

-- My rows of a gathered gradient.
local function own_part(t, axis, offset, size)
  local begins, sizes = {}, {}
  for d = 0, raw.tensor_rank(t) - 1 do
    begins[d + 1] = d == axis and offset or 0
    sizes[d + 1] = d == axis and size or raw.tensor_dim(t, d)
  end
  return tf.slice(t, begins, sizes)
end

-- The size along an axis, and the axis from 0.
local function size_along(t, axis)
  local d = axis < 0 and axis + raw.tensor_rank(t) or axis
  return raw.tensor_dim(t, d), d
end

local function gather_answer(strategy, payloads, axis, more)
  local replies = each_leaf(payloads, function(parts)
    return reduce.join(strategy, parts, axis, strategy.replica_devices,
      "all_gather", more)
  end)
  if strategy.over_workers then
    return replies
  end
  -- Where each replica's part begins, for the gradient.
  for k = 1, payloads[1].n do
    local offset = 0
    for i = 1, payloads.n do
      replies[i].offsets = replies[i].offsets or {}
      replies[i].offsets[k] = offset
      offset = offset + size_along(payloads[i][k], axis)
    end
  end
  return replies
end

local all_gather_flat

-- The same where other processes' parts come before.
local function find_offsets(context, flat, axis)
  local sizes, offsets, n = {}, {}, flat.n
  for k = 1, n do
    sizes[k] = size_along(flat[k], axis)
  end
  local all = all_gather_flat(context, { n = 1, raw.tensor_from_values(sizes,
    "int64", { 1, n }) }, 0)[1]
  for k = 1, n do
    offsets[k] = 0
    for r = 0, context.replica_id_in_sync_group - 1 do
      offsets[k] = offsets[k] + raw.item(all, r * n + k - 1)
    end
  end
  return offsets
end

all_gather_flat = function(context, flat, axis, more)
  local strategy = context.strategy
  local outputs = replica.sync(context,
    point_of("all_gather", "axis " .. axis, flat.n), flat,
    function(_, payloads)
      return gather_answer(strategy, payloads, axis, more)
    end)
  local offsets = outputs.offsets
  outputs.offsets = nil
  if needs_gradient(flat) then
    gradient_tape.record_step(flat, outputs, function(grads, n)
      local summed = all_reduce_flat(context, "SUM",
        zeros_for(grads, outputs, n))
      offsets = offsets or find_offsets(context, flat, axis)
      local own = { n = n }
      for k = 1, n do
        local size, d = size_along(flat[k], axis)
        own[k] = own_part(summed[k], d, offsets[k], size)
      end
      return own
    end)
  end
  return outputs
end

--- All replicas' values joined along an axis, on each replica; gradients flow
--- through.
--- Shapes: [..., n_i, ...] give [..., sum n_i, ...].
--- Errors: NotImplementedError for slices; InvalidArgument when other sizes
---   or ranks differ.
--- Source: tf.distribute.ReplicaContext.all_gather
replica.define("all_gather", "value:table axis options:table=nil",
  function(self, value, axis, more)
    options.integer("all_gather", "axis", axis)
    more = communication.read("all_gather", more)
    local flat = replica_leaves(value, "all_gather")
    reduce.check_dense(flat, "all_gather")
    if self.strategy.one_copy then
      return value
    end
    return nest.pack_sequence_as(value,
      all_gather_flat(self, flat, axis, more))
  end)

-- reduce_scatter -------------------------------------------------------------

-- The axis from 0 and the size of one replica's part.
local function part_of(t, axis, n)
  local rank = raw.tensor_rank(t)
  local d = axis < 0 and axis + rank or axis
  if d < 0 or d >= rank then
    errors.raise("ValueError", ("reduce_scatter: axis %d is outside a tensor "
      .. "of rank %d; axes count from 0, -1 is the last"):format(axis, rank))
  end
  local size = raw.tensor_dim(t, d)
  if size % n ~= 0 then
    errors.raise("InvalidArgument", ("reduce_scatter: %d elements along axis "
      .. "%d cannot be shared among %d replicas; a multiple is needed"):format(
      size, axis, n))
  end
  return d, math.floor(size / n)
end

-- The whole reduction on every replica, less what is others' part.
local function scatter_over_workers(strategy, payloads, op, axis, more)
  local whole = reduce.all_reduce(strategy, op, payloads, "reduce_scatter",
    more)
  local replies = {}
  for i = 1, payloads.n do
    replies[i] = { n = payloads[1].n }
    for k = 1, payloads[1].n do
      local d, size = part_of(whole[k][i], axis, strategy.num_replicas_in_sync)
      replies[i][k] = own_part(whole[k][i], d,
        (strategy.first_replica + i - 1) * size, size)
    end
  end
  return replies
end

-- Part i of every replica's value, reduced on replica i's device.
local function scatter_answer(strategy, payloads, op, axis, more)
  local n = payloads.n
  if strategy.over_workers then
    return scatter_over_workers(strategy, payloads, op, axis, more)
  end
  local replies = {}
  for i = 1, n do
    replies[i] = { n = payloads[1].n }
  end
  for k = 1, payloads[1].n do
    for i = 1, n do
      local parts = { n = n }
      for j = 1, n do
        local t = payloads[j][k]
        local d, size = part_of(t, axis, n)
        parts[j] = own_part(t, d, (i - 1) * size, size)
      end
      replies[i][k] = raw.value_component(raw.strategy_reduce(strategy.handle,
        op:lower(), "reduce_scatter", parts,
        { strategy.replica_devices[i] }, 0), 0)
    end
  end
  return replies
end

local function reduce_scatter_flat(context, op, flat, axis, more)
  local strategy = context.strategy
  local outputs = replica.sync(context, point_of("reduce_scatter",
    op .. ", axis " .. axis, flat.n), flat, function(_, payloads)
      return scatter_answer(strategy, payloads, op, axis, more)
    end)
  if needs_gradient(flat) then
    gradient_tape.record_step(flat, outputs, function(grads, n)
      if op ~= "SUM" and op ~= "MEAN" then
        errors.raise("NotImplementedError", "reduce_scatter: only SUM and MEAN "
          .. "have gradients", "all_reduce has one for MIN and MAX")
      end
      local all = all_gather_flat(context, zeros_for(grads, outputs, n), axis)
      for k = 1, op == "MEAN" and n or 0 do
        all[k] = tf.math.divide(all[k], strategy.num_replicas_in_sync)
      end
      all.n = n
      return all
    end)
  end
  return outputs
end

--- The reduction over all replicas, of which each replica gets its part along
--- an axis: replica i part i. Gradients flow through SUM and MEAN.
--- Shapes: [..., n * m, ...] on each of n replicas give [..., m, ...].
--- Errors: InvalidArgument for sizes that are no multiple of the replicas or
---   differ; ValueError for an axis outside; NotImplementedError for slices.
--- Source: the collective of MPI_Reduce_scatter_block; not in TensorFlow.
replica.define("reduce_scatter", "op value:table axis=0 options:table=nil",
  function(self, op, value, axis, more)
    op = reduce.op("reduce_scatter", op)
    options.integer("reduce_scatter", "axis", axis)
    more = communication.read("reduce_scatter", more)
    local flat = replica_leaves(value, "reduce_scatter")
    reduce.check_dense(flat, "reduce_scatter")
    for k = 1, flat.n do
      part_of(flat[k], axis, self.strategy.num_replicas_in_sync)
    end
    if self.strategy.one_copy then
      return value
    end
    return nest.pack_sequence_as(value,
      reduce_scatter_flat(self, op, flat, axis, more))
  end)

return M
