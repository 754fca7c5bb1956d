--- Reductions and gathers of distributed values, leaf by leaf.
---
--- Strategies whose cross-device ops are `native` reduce in the runtime;
--- others are asked through their objects.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local values = require "tfdist.distribute.values"

local M = {}

local type = type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local OPS = { "SUM", "MEAN", "MIN", "MAX", "PROD" }
-- What the runtime calls them.
local RUNTIME = { SUM = "sum", MEAN = "mean", MIN = "min", MAX = "max",
  PROD = "prod" }

--- The reduction's name in upper case from a string in any case.
--- Errors: ValueError, TypeError.
function M.op(what, op)
  return RUNTIME[op] and op or (options.choice(what, "op", op, OPS))
end

-- Destinations ---------------------------------------------------------------

local function device_of(x)
  return raw.tensor_device(raw.operand_tensor(x))
end

local function component_device(x)
  if type(x) ~= "userdata" then
    return nil
  elseif raw.kind(x) == "slices" then
    return raw.tensor_device(raw.slices_values(x))
  end
  return device_of(x)
end

-- Devices of the components; the replicas' where those are no handles.
local function devices_of_value(x)
  local parts, devices = values.components(x), { given = x }
  local handle = values.is_value(x) and raw.value_strategy(x) or nil
  for i = 1, parts.n do
    local device = component_device(parts[i])
    if device == nil and handle ~= nil and parts.n > 1 then
      device = raw.strategy_device(handle, i - 1)
    end
    devices[i] = device or raw.device_current()
  end
  return devices
end

--- Devices as handles: of a name, a tensor, a variable or a distributed value;
--- `given` is what was asked for.
--- Errors: AssertionError for nil and lists, InvalidArgument for a device that
---   is not there, ValueError for anything else.
function M.destinations(what, x)
  if type(x) == "string" then
    return { raw.device_find(x), given = x }
  elseif values.is_value(x) or values.is_mirrored(x) then
    return devices_of_value(x)
  elseif type(x) == "userdata" and raw.is_operand(x) then
    return { device_of(x), given = x }
  elseif type(x) == "userdata" and raw.kind(x) == "device" then
    return { x, given = raw.device_name(x) }
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

--- A list of components, all as M.operand. Errors: ValueError for nil.
function M.operands(strategy, list, what)
  local out = { n = list.n }
  for i = 1, list.n do
    if list[i] == nil then
      errors.raise("ValueError", ("%s: replica %d has nil"):format(what,
        values.replica_of(strategy, i)))
    end
    out[i] = M.operand(list[i], what)
  end
  return out
end

local operands = M.operands

local function is_numeric(x)
  return type(x) == "userdata" and not values.is_value(x)
    and not raw.is_released(x) and (raw.is_operand(x) or raw.kind(x) == "slices")
end

-- Is x a value of n tensors or slices, the same on all devices?
local function is_reduced(x, n)
  if not values.is_value(x) or raw.is_released(x) or raw.value_count(x) ~= n
    or (n > 1 and values.is_per_replica(x)) then
    return false
  end
  for i = 0, n - 1 do
    if not is_numeric(values.component(x, i)) then
      return false
    end
  end
  return true
end

-- What a strategy's own cross-device ops made, as a Mirrored value.
local function check_result(strategy, x, devices, what)
  local n = #devices
  if is_reduced(x, n) then
    return x
  elseif n == 1 and is_numeric(x) then
    return values.new(strategy, "mirrored", { x }, 1)
  end
  errors.raise("TypeError", ("%s: the cross-device ops %s gave %s; expected a "
    .. "Mirrored value of %d components"):format(what,
    tostring(strategy.cross_device_ops), text.describe(x), n))
end

--- One component of each replica, parts[1..n], combined on the devices; returns
--- a Mirrored value. `communication` = CommunicationOptions or nil.
function M.combine(strategy, op, parts, devices, what, communication)
  local ops = strategy.cross_device_ops
  parts = operands(strategy, parts, what)
  if ops == nil or ops.native or parts.n == 1 then
    return raw.strategy_reduce(strategy.handle, op:lower(), what, parts,
      devices, communication and communication.timeout_seconds or 0)
  end
  local value = values.new(strategy, "per_replica", parts, parts.n)
  return check_result(strategy, ops:reduce(op, value, devices.given or value,
    communication), devices, what)
end

-- A plain value, the same on all replicas here.
local function reduce_plain(strategy, op, x, what)
  if x == 0 or (op ~= "SUM" and op ~= "PROD")
    or strategy.num_replicas_in_sync == 1 then
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

-- What all replicas have alike needs no reduction, only copies.
local function copies_of(strategy, x, devices, what)
  local one = values.component(x, 0)
  if not strategy.over_workers then
    return M.combine(strategy, "MEAN", { one, n = 1 }, devices, what)
  end
  return raw.strategy_broadcast(strategy.handle, what, M.operand(one, what),
    devices)
end

--- Reduce one leaf onto devices. Returns a Mirrored value, or a plain value
--- that needs no reduction. A plain value is reduced over processes: each of
--- them has one.
function M.leaf(strategy, op, x, devices, what, communication)
  local parts
  if values.is_per_replica(x) or (values.is_mirrored(x) and is_on_read(x)) then
    parts = values.components(x)
  elseif values.is_value(x) or values.is_mirrored(x) then
    if (op == "SUM" or op == "PROD") and strategy.num_replicas_in_sync > 1 then
      errors.raise("AssertionError", ("%s: a mirrored value is the same on all "
        .. "replicas; it has no %s"):format(what, op == "SUM" and "sum"
        or "product"))
    end
    return copies_of(strategy, x, devices, what)
  elseif strategy.over_workers then
    parts = { x, n = 1 }
  else
    return reduce_plain(strategy, op, x, what)
  end
  return M.combine(strategy, op, parts, devices, what, communication)
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
    local device = raw.device_current()
    x = first(M.leaf(strategy, op, x,
      { device, given = raw.device_name(device) }, what))
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

-- A list of each process's whole numbers as one tensor on a device.
local function of_hosts(strategy, op, what, list, device)
  return raw.value_component(raw.strategy_reduce(strategy.handle, op, what,
    { raw.tensor_from_values(list, "int64", { #list }) }, { device }, 0), 0)
end

--- A list of each process's whole numbers as one: "sum", "max" and so on.
function M.over_hosts(strategy, op, what, list)
  return raw.tensor_to_flat(of_hosts(strategy, op, what, list,
    strategy.replica_devices[1]))
end

local BYTES = 4096 -- of a text that become a string at once

-- The vectors of processes, one after the other.
local function joined(strategy, what, t, seconds)
  return raw.value_component(raw.strategy_gather(strategy.handle, 0, what,
    { t }, { strategy.replica_devices[1] }, seconds or 0), 0)
end

--- The chief's vector on all workers, of the dtype that all give. Every worker
--- calls it.
function M.chiefs_tensor(strategy, what, t)
  if strategy.role.worker_index ~= 0 then
    t = raw.tensor_from_values({}, raw.tensor_dtype(t), { 0 })
  end
  return joined(strategy, what, t)
end

-- The texts of processes, each a list of bytes, one after the other.
local function joined_text(strategy, what, list, seconds)
  local t = joined(strategy, what,
    raw.tensor_from_values(list, "uint8", { #list }), seconds)
  local flat, parts = raw.tensor_to_flat(t), {}
  for i = 1, #flat, BYTES do
    parts[#parts + 1] = string.char(unpack(flat, i,
      math.min(i + BYTES - 1, #flat)))
  end
  return table.concat(parts)
end

local function bytes_of(text_)
  local list = {}
  for i = 1, #text_ do
    list[i] = text_:byte(i)
  end
  return list
end

--- The chief's text on all workers, within `seconds`, or the strategy's time.
--- Every worker calls it.
function M.chiefs_text(strategy, what, text_, seconds)
  return joined_text(strategy, what,
    strategy.role.worker_index == 0 and bytes_of(text_) or {}, seconds)
end

--- Each worker's text on all of them, the chief's first. Every worker calls it.
---@return string[]
function M.each_text(strategy, what, text_)
  local all = joined_text(strategy, what, bytes_of(#text_ .. ":" .. text_))
  local list, at = {}, 1
  while at <= #all do
    local digits = all:match("^%d+", at)
    local from = at + #digits + 1
    at = from + tonumber(digits)
    list[#list + 1] = all:sub(from, at - 1)
  end
  return list
end

local function parts_of(strategy, x)
  if values.is_value(x) or values.is_mirrored(x) then
    return values.components(x)
  end
  local parts = { n = strategy.local_count }
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
  local sums, count, list = { n = parts.n }, 0, nil
  for i = 1, parts.n do
    local t = convert.tensor(parts[i], nil, what, "value")
    local rank, size = raw.tensor_rank(t), 1
    list = {}
    for k = 1, #axes do
      list[k] = resolve_axis(axes[k], rank, what)
      size = size * raw.tensor_dim(t, list[k])
    end
    count = count + size
    sums[i] = tf.reduce_sum(t, { axis = list })
  end
  if strategy.over_workers then -- whose axes must be the same
    table.sort(list)
    what = ("%s along axis %s"):format(what, table.concat(list, ", "))
  end
  local total = raw.value_component(raw.strategy_reduce(strategy.handle, "sum",
    what, sums, { raw.device_current() }, 0), 0)
  if op == "SUM" then
    return total
  elseif strategy.over_workers then
    -- A tensor, for a recorded function has no number.
    return tf.math.divide(total, tf.cast(tf.reshape(of_hosts(strategy, "sum",
      what, { count }, raw.device_current()), {}), raw.tensor_dtype(total)))
  end
  return tf.math.divide(total, raw.tensor_from_values({ count },
    raw.tensor_dtype(total), {}))
end

-- Many values at once --------------------------------------------------------

-- By the strategy's own cross-device ops, value by value of the batch.
local function all_reduce_through(strategy, op, lists, what, communication)
  local count, n = lists[1].n, lists.n
  local pairs_list = { n = count }
  for k = 1, count do
    local parts = { n = n }
    for i = 1, n do
      parts[i] = lists[i][k]
    end
    local value = values.new(strategy, "per_replica",
      operands(strategy, parts, what), n)
    pairs_list[k] = { value, value }
  end
  local results = strategy.cross_device_ops:batch_reduce(op, pairs_list,
    communication)
  if not text.is_plain(results) then
    errors.raise("TypeError", ("%s: the cross-device ops %s gave %s; expected "
      .. "a list of %d Mirrored values"):format(what,
      tostring(strategy.cross_device_ops), text.describe(results), count))
  end
  local out = {}
  for k = 1, count do
    out[k] = values.components(check_result(strategy, results[k],
      strategy.replica_devices, what))
  end
  return out
end

local function forget()
  raw.context_set_about {}
end

--- What fn(...) returns, whose sums over workers are about these variables in
--- this order: workers that sum others up, or the same in another order, are
--- told so. fn does not yield.
function M.about(strategy, variables, fn, ...)
  if not strategy.over_workers then
    return fn(...)
  end
  raw.context_set_about(variables)
  return state.protect(forget, fn, ...)
end

--- Reduce many values on all replicas at once: lists[i][k] is what replica i-1
--- has for value k; the result[k][i] is what it gets.
function M.all_reduce(strategy, op, lists, what, communication)
  local count, n = lists[1].n, lists.n
  local ops = strategy.cross_device_ops
  if count == 0 then
    return {}
  elseif ops ~= nil and not ops.native then
    return all_reduce_through(strategy, op, lists, what, communication)
  end
  local parts = { lists[1][1], lists[2] and lists[2][1], n = count * n }
  for k = 1, count do
    for i = 1, n do
      parts[(k - 1) * n + i] = lists[i][k]
    end
  end
  local value
  if communication ~= nil and strategy.over_workers then
    value = raw.strategy_all_reduce_packed(strategy.handle, RUNTIME[op], what,
      parts, -1, communication.bytes_per_pack,
      communication.timeout_seconds or 0)
  else
    value = raw.strategy_all_reduce(strategy.handle, RUNTIME[op], what, parts)
  end
  local out = {}
  for k = 1, count do
    local own = { raw.value_component(value, (k - 1) * n), n = n }
    for i = 2, n do
      own[i] = raw.value_component(value, (k - 1) * n + i - 1)
    end
    out[k] = own
  end
  raw.release(value)
  return out
end

-- Gather and broadcast -------------------------------------------------------

--- Errors: NotImplementedError for slices among list[1..n].
function M.check_dense(list, what)
  for i = 1, list.n do
    if type(list[i]) == "userdata" and raw.kind(list[i]) == "slices" then
      errors.raise("NotImplementedError", what .. ": IndexedSlices cannot be "
        .. "gathered")
    end
  end
end

--- Components parts[1..n] joined along an axis on the devices; a Mirrored
--- value.
function M.join(strategy, parts, axis, devices, what, communication)
  local ops = strategy.cross_device_ops
  parts = operands(strategy, parts, what)
  M.check_dense(parts, what)
  if ops == nil or ops.native or parts.n == 1 then
    return raw.strategy_gather(strategy.handle, axis, what, parts, devices,
      communication and communication.timeout_seconds or 0)
  end
  local value = values.new(strategy, "per_replica", parts, parts.n)
  return check_result(strategy, ops:_gather(value, devices.given or value, axis,
    communication), devices, what)
end

--- Join the components of x along an axis on the current device.
function M.gather(strategy, x, axis)
  local parts
  if values.is_value(x) or values.is_mirrored(x) then
    parts = values.components(x)
  elseif strategy.over_workers then
    parts = { x, n = 1 }
  else
    M.check_dense({ x, n = 1 }, "gather")
    return x
  end
  local device = raw.device_current()
  return first(M.join(strategy, parts, axis,
    { device, given = raw.device_name(device) }, "gather"))
end

--- Copies of x on all destination devices as a Mirrored value; plain Lua
--- values are returned as they are.
function M.broadcast(strategy, x, devices)
  if type(x) ~= "userdata" then
    return x
  end
  local ops = strategy.cross_device_ops
  if ops ~= nil and not ops.native then
    return check_result(strategy, ops:broadcast(x, devices.given), devices,
      "broadcast_to")
  end
  return raw.strategy_broadcast(strategy.handle, "broadcast_to",
    M.operand(x, "broadcast_to"), devices)
end

return M
