--- Reductions and gathers of distributed values, leaf by leaf.
local convert = require "tfdist.convert"
local errors = require "tfdist.errors"
local gradient_tape = require "tfdist.gradient_tape"
local nest = require "tfdist.nest"
local options = require "tfdist.options"
local raw = require "tfdist.raw"
local replica = require "tfdist.distribute.replica"
local text = require "tfdist.text"
local values = require "tfdist.distribute.values"

local M = {}

local type = type
local OPS = { "SUM", "MEAN" }

--- The reduction as "SUM" or "MEAN" from a string in any case.
--- Errors: ValueError, TypeError.
function M.op(what, op)
  return (options.choice(what, "op", op, OPS))
end

-- Destinations ---------------------------------------------------------------

local function device_of(x)
  return raw.tensor_device(raw.operand_tensor(x))
end

--- Devices as handles: of a name, a tensor, a variable or a distributed value.
--- Errors: AssertionError for nil and lists, InvalidArgument for a device that
---   is not there, ValueError for anything else.
function M.destinations(what, x)
  if type(x) == "string" then
    return { raw.device_find(x) }
  elseif values.is_value(x) or values.is_mirrored(x) then
    local parts, devices = values.components(x), {}
    for i = 1, parts.n do
      if type(parts[i]) ~= "userdata" then
        return { raw.device_current() }
      elseif raw.kind(parts[i]) == "slices" then
        devices[i] = raw.tensor_device(raw.slices_values(parts[i]))
      else
        devices[i] = device_of(parts[i])
      end
    end
    return devices
  elseif type(x) == "userdata" and raw.is_operand(x) then
    return { device_of(x) }
  elseif type(x) == "userdata" and raw.kind(x) == "device" then
    return { x }
  elseif x == nil or type(x) == "table" then
    errors.raise("AssertionError", ("%s: destinations must be a device, a "
      .. "tensor, a variable or a distributed value, got %s"):format(what,
      text.describe(x)))
  end
  errors.raise("ValueError", ("%s: destinations must be a device, a tensor, a "
    .. "variable or a distributed value, got %s"):format(what,
    text.describe(x)))
end

-- One leaf -------------------------------------------------------------------

--- What the runtime reduces: tensors, variables and slices as they are.
function M.operand(x, what)
  if type(x) == "userdata" and raw.kind(x) == "slices"
    and not raw.is_released(x) then
    return x
  end
  return convert.operand(x, nil, what, "value")
end

local function operands(list, what)
  local out = { n = list.n }
  for i = 1, list.n do
    if list[i] == nil then
      errors.raise("ValueError", ("%s: replica %d has nil"):format(what, i - 1))
    end
    out[i] = M.operand(list[i], what)
  end
  return out
end

-- A plain value, the same on all replicas.
local function reduce_plain(strategy, op, x, what)
  if x == 0 or op == "MEAN" or strategy.num_replicas_in_sync == 1 then
    return x
  end
  errors.raise("ValueError", ("%s: A non-DistributedValues value %s cannot be "
    .. "reduced with the given reduce op %s."):format(what,
    type(x) == "number" and text.number(x) or text.describe(x), op),
    "give a value per replica, as strategy:run returns it")
end

local function is_on_read(x)
  return raw.mirrored_kind_of(x) == "sync_on_read"
end

--- Reduce one leaf onto devices. Returns a Mirrored value, or a plain value
--- that needs no reduction.
function M.leaf(strategy, op, x, devices, what)
  local parts
  if values.is_per_replica(x) or (values.is_mirrored(x) and is_on_read(x)) then
    parts = values.components(x)
  elseif values.is_value(x) or values.is_mirrored(x) then
    if op == "SUM" and strategy.num_replicas_in_sync > 1 then
      errors.raise("AssertionError", what .. ": a mirrored value is the same "
        .. "on all replicas; it has no sum")
    end
    parts = { values.component(x, 0), n = 1 }
  else
    return reduce_plain(strategy, op, x, what)
  end
  return raw.strategy_reduce(strategy.handle, op:lower(), what,
    operands(parts, what), devices)
end

-- The result on one device of M.leaf's.
local function first(x)
  if values.is_value(x) then
    return values.component(x, 0)
  end
  return x
end

--- reduce without axis: a plain tensor on the current device.
function M.across(strategy, op, x, what)
  if strategy.one_copy then
    x = values.is_value(x) and values.component(x, 0) or x
  else
    x = first(M.leaf(strategy, op, x, { raw.device_current() }, what))
  end
  if type(x) == "number" then
    return convert.operand(x, nil, what, "value")
  elseif type(x) == "userdata" and raw.is_operand(x)
    and raw.kind(x) ~= "tensor" then
    return convert.tensor(x, nil, what, "value")
  end
  return x
end

-- Along an axis --------------------------------------------------------------

local function check_axis(axis, what)
  if type(axis) == "number" then
    return { options.integer(what, "axis", axis) }
  elseif not nest.is_nested(axis) then
    errors.raise("TypeError", ("%s: axis must be a whole number or a list, got "
      .. "%s"):format(what, text.describe(axis)))
  end
  local list = {}
  for i = 1, #axis do
    list[i] = options.integer(what, "axis", axis[i])
  end
  return list
end

-- The axis counted from 0 for a tensor of this rank.
local function resolve_axis(axis, rank, what)
  if axis < -rank or axis >= rank then
    errors.raise("ValueError", ("%s: axis %d is outside a tensor of rank %d; "
      .. "axes count from 0, -1 is the last"):format(what, axis, rank))
  end
  return axis < 0 and axis + rank or axis
end

local function parts_of(strategy, x)
  if values.is_value(x) or values.is_mirrored(x) then
    return values.components(x)
  end
  local parts = { n = strategy.num_replicas_in_sync }
  for i = 1, parts.n do
    parts[i] = x
  end
  return parts
end

--- Sum or mean across replicas and along axes; short and empty shares weigh by
--- their sizes.
function M.along(tf, strategy, op, x, axis, what)
  local axes = check_axis(axis, what)
  local parts = parts_of(strategy, x)
  local sums, count = { n = parts.n }, 0
  for i = 1, parts.n do
    local t = convert.tensor(parts[i], nil, what, "value")
    local rank, size, list = raw.tensor_rank(t), 1, {}
    for k = 1, #axes do
      list[k] = resolve_axis(axes[k], rank, what)
      size = size * raw.tensor_dim(t, list[k])
    end
    count = count + size
    sums[i] = tf.reduce_sum(t, { axis = list })
  end
  local total = raw.value_component(raw.strategy_reduce(strategy.handle, "sum",
    what, sums, { raw.device_current() }), 0)
  if op == "SUM" then
    return total
  end
  return tf.math.divide(total, raw.tensor_from_values({ count },
    raw.tensor_dtype(total), {}))
end

-- Inside the replica function ------------------------------------------------

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
  local flat = nest.flatten(value)
  for i = 1, flat.n do
    local x = M.operand(flat[i], what)
    if raw.kind(x) ~= "slices" then
      x = convert.tensor(x, nil, what, "value")
    end
    flat[i] = x
  end
  return flat
end

-- replies[i][k]: what replica i gets for leaf k from make(components).
local function each_leaf(strategy, payloads, make)
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
      replies[i][k] = raw.value_component(value, i - 1)
    end
  end
  return replies
end

local function point_of(what, detail, n)
  return ("%s(%s%s)"):format(what, detail, n == 1 and "" or (", %d values")
    :format(n))
end

local function zeros_for(grads, outputs, n)
  for i = 1, n do
    if grads[i] == nil then
      local t = outputs[i]
      local dims = {}
      for axis = 0, raw.tensor_rank(t) - 1 do
        dims[axis + 1] = raw.tensor_dim(t, axis)
      end
      grads[i] = raw.tensor_from_values({ 0 }, raw.tensor_dtype(t), dims)
    elseif raw.kind(grads[i]) == "slices" then
      grads[i] = raw.slices_to_dense(grads[i])
    end
  end
  grads.n = n
  return grads
end

--- Reduce many values on all replicas at once: lists[i][k] is what replica i-1
--- has for value k; the result[k][i] is what it gets.
function M.all_reduce(strategy, op, lists, what)
  local count, n = lists[1].n, lists.n
  local parts = { n = count * n }
  for k = 1, count do
    for i = 1, n do
      parts[(k - 1) * n + i] = lists[i][k]
    end
  end
  local out = {}
  if count == 0 then
    return out
  end
  local value = raw.strategy_all_reduce(strategy.handle, op:lower(), what,
    parts)
  for k = 1, count do
    out[k] = { n = n }
    for i = 1, n do
      out[k][i] = raw.value_component(value, (k - 1) * n + i - 1)
    end
  end
  raw.release(value)
  return out
end

local function all_reduce_flat(context, op, flat)
  local strategy = context.strategy
  if strategy.one_copy then
    return flat
  end
  local outputs = replica.sync(context, point_of("all_reduce", op, flat.n),
    flat, function(_, payloads)
      local grouped = M.all_reduce(strategy, op, payloads, "all_reduce")
      local replies = {}
      for i = 1, payloads.n do
        replies[i] = { n = flat.n }
        for k = 1, flat.n do
          replies[i][k] = grouped[k][i]
        end
      end
      return replies
    end)
  if needs_gradient(flat) then
    gradient_tape.record_step(flat, outputs, function(grads, n)
      return all_reduce_flat(context, op, zeros_for(grads, outputs, n))
    end)
  end
  return outputs
end

--- Sum or mean over all replicas, on each of them; gradients flow through.
--- value may be a structure; all its leaves are reduced together.
--- Errors: RuntimeError unless all replicas call it; InvalidArgument when
---   shapes or dtypes differ.
--- Source: tf.distribute.ReplicaContext.all_reduce
replica.define("all_reduce", "op value:table options:table=nil",
  function(self, op, value)
    op = M.op("all_reduce", op)
    local flat = replica_leaves(value, "all_reduce")
    return nest.pack_sequence_as(value, all_reduce_flat(self, op, flat))
  end)

-- My rows of a gathered gradient.
local function own_part(tf, grad, axis, offset, size)
  local begins, sizes = {}, {}
  for d = 0, raw.tensor_rank(grad) - 1 do
    begins[d + 1] = d == axis and offset or 0
    sizes[d + 1] = d == axis and size or raw.tensor_dim(grad, d)
  end
  return tf.slice(grad, begins, sizes)
end

local function gather_answer(strategy, payloads, axis)
  local replies = each_leaf(strategy, payloads, function(parts)
    return raw.strategy_gather(strategy.handle, axis, "all_gather", parts,
      strategy.replica_devices)
  end)
  -- Where each replica's part begins, for the gradient.
  for k = 1, payloads[1].n do
    local offset = 0
    for i = 1, payloads.n do
      local t = payloads[i][k]
      local d = axis < 0 and axis + raw.tensor_rank(t) or axis
      replies[i].offsets = replies[i].offsets or {}
      replies[i].offsets[k] = offset
      offset = offset + raw.tensor_dim(t, d)
    end
  end
  return replies
end

local function all_gather_flat(tf, context, flat, axis)
  local strategy = context.strategy
  local outputs = replica.sync(context,
    point_of("all_gather", "axis " .. axis, flat.n), flat,
    function(_, payloads)
      return gather_answer(strategy, payloads, axis)
    end)
  if needs_gradient(flat) then
    gradient_tape.record_step(flat, outputs, function(grads, n)
      local summed = all_reduce_flat(context, "SUM",
        zeros_for(grads, outputs, n))
      local own = { n = n }
      for k = 1, n do
        local d = axis < 0 and axis + raw.tensor_rank(flat[k]) or axis
        own[k] = own_part(tf, summed[k], d, outputs.offsets[k],
          raw.tensor_dim(flat[k], d))
      end
      return own
    end)
  end
  return outputs
end

local function check_dense(flat, what)
  for i = 1, flat.n do
    if raw.kind(flat[i]) == "slices" then
      errors.raise("NotImplementedError", what .. ": IndexedSlices cannot be "
        .. "gathered")
    end
  end
end

--- Put in what needs ops.
function M.install(tf)
  --- All replicas' values joined along an axis, on each replica; gradients flow
  --- through.
  --- Shapes: [..., n_i, ...] give [..., sum n_i, ...].
  --- Errors: NotImplementedError for slices; InvalidArgument when other sizes
  ---   or ranks differ.
  --- Source: tf.distribute.ReplicaContext.all_gather
  replica.define("all_gather", "value:table axis options:table=nil",
    function(self, value, axis)
      options.integer("all_gather", "axis", axis)
      local flat = replica_leaves(value, "all_gather")
      check_dense(flat, "all_gather")
      if self.strategy.one_copy then
        return value
      end
      return nest.pack_sequence_as(value,
        all_gather_flat(tf, self, flat, axis))
    end)
end

-- Outside --------------------------------------------------------------------

--- Join the components of x along an axis on the current device.
function M.gather(strategy, x, axis)
  if not (values.is_value(x) or values.is_mirrored(x)) then
    if type(x) == "userdata" and raw.kind(x) == "slices" then
      check_dense({ x, n = 1 }, "gather")
    end
    return x
  end
  local parts = operands(values.components(x), "gather")
  check_dense(parts, "gather")
  return raw.value_component(raw.strategy_gather(strategy.handle, axis,
    "gather", parts, { raw.device_current() }), 0)
end

--- Copies of x on all destination devices as a Mirrored value; plain Lua
--- values are returned as they are.
function M.broadcast(strategy, x, devices)
  if type(x) ~= "userdata" then
    return x
  end
  return raw.strategy_reduce(strategy.handle, "sum", "broadcast_to",
    { M.operand(x, "broadcast_to"), n = 1 }, devices)
end

return M
