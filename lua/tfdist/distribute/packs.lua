--- Many tensors as a few long ones: what all-reduces send.
---
--- A plan is a function(sizes, element_bytes) -> lengths of the packs in
--- elements, and whether the tensors go last first. Tensors of one dtype are
--- packed together.
local raw = require "tfdist.core.raw"

local M = {}

--- Lengths of n packs of a vector: all of floor(total / n) elements, the last
--- one takes what is left.
---@param total integer elements
---@param n integer at least 1
---@return integer[]
function M.pack_sizes(total, n)
  local each = math.floor(total / n)
  local list = {}
  for i = 1, n - 1 do
    list[i] = each
  end
  list[n] = total - each * (n - 1)
  return list
end

--- The plan of num_packs packs.
function M.by_count(n)
  return function(sizes)
    local total = 0
    for k = 1, #sizes do
      total = total + sizes[k]
    end
    return M.pack_sizes(total, n), false
  end
end

--- Lengths of packs of whole tensors: a pack ends once it has more than
--- `limit` bytes (0 = one pack).
---@param sizes integer[] elements of the tensors
---@param element_bytes integer
---@param limit integer
function M.group_sizes(sizes, element_bytes, limit)
  local list, size = {}, 0
  for k = 1, #sizes do
    size = size + sizes[k]
    if limit > 0 and size * element_bytes > limit then
      list[#list + 1] = size
      size = 0
    end
  end
  if size > 0 or #list == 0 then
    list[#list + 1] = size
  end
  return list
end

--- The plan of packs of about `limit` bytes, last tensor first.
function M.by_bytes(limit)
  return function(sizes, element_bytes)
    return M.group_sizes(sizes, element_bytes, limit), true
  end
end

-- Reduce lists[i][k] on the devices; results[k][i].
local function reduce_all(handle, op, lists, devices, what)
  local count, n = lists[1].n, lists.n
  local own = n == raw.strategy_local_count(handle) and n > 1
  for i = 1, n do
    own = own and raw.strategy_device(handle, i - 1) == devices[i]
  end
  local out = {}
  if own and count > 0 then
    local parts = { n = count * n }
    for k = 1, count do
      for i = 1, n do
        parts[(k - 1) * n + i] = lists[i][k]
      end
    end
    local value = raw.strategy_all_reduce(handle, op:lower(), what, parts)
    for k = 1, count do
      out[k] = {}
      for i = 1, n do
        out[k][i] = raw.value_component(value, (k - 1) * n + i - 1)
      end
    end
    return out
  end
  for k = 1, count do
    local parts = { n = n }
    for i = 1, n do
      parts[i] = lists[i][k]
    end
    local value = raw.strategy_reduce(handle, op:lower(), what, parts, devices)
    out[k] = {}
    for i = 1, n do
      out[k][i] = raw.value_component(value, i - 1)
    end
  end
  return out
end

-- Which elements of lists[1] have the same dtype: { dtype -> positions }, and
-- the dtypes in order.
local function by_dtype(list)
  local groups, order = {}, {}
  for k = 1, list.n do
    local dtype = raw.tensor_dtype(list[k])
    if groups[dtype] == nil then
      groups[dtype] = {}
      order[#order + 1] = dtype
    end
    groups[dtype][#groups[dtype] + 1] = k
  end
  return groups, order
end

local function reversed(list)
  local out = {}
  for i = 1, #list do
    out[i] = list[#list + 1 - i]
  end
  return out
end

-- One device's tensors as packs of these lengths.
local function join(tf, list, positions, lengths, device)
  return tf.device(raw.device_name(device), function()
    local flat = {}
    for j = 1, #positions do
      flat[j] = tf.reshape(list[positions[j]], { -1 })
    end
    local vector = #flat == 1 and flat[1] or tf.concat(flat, 0)
    local out, at = { n = #lengths }, 0
    for p = 1, #lengths do
      out[p] = tf.slice(vector, { at }, { lengths[p] })
      at = at + lengths[p]
    end
    return out
  end)
end

-- The same backwards; out[k] for the positions.
local function cut(tf, results, i, list, positions, device, out)
  tf.device(raw.device_name(device), function()
    local flat = {}
    for p = 1, #results do
      flat[p] = results[p][i]
    end
    local vector = #flat == 1 and flat[1] or tf.concat(flat, 0)
    local at = 0
    for j = 1, #positions do
      local k = positions[j]
      local size = raw.tensor_size(list[k])
      out[k] = out[k] or {}
      out[k][i] = tf.reshape(tf.slice(vector, { at }, { size }),
        raw.tensor_dims(list[k]))
      at = at + size
    end
  end)
end

local function check_same(handle, op, lists, devices, what)
  -- Shapes that differ between replicas would be mixed up by packing: the
  -- reduction of the values themselves names the first.
  for k = 1, lists[1].n do
    local first = lists[1][k]
    for i = 2, lists.n do
      local other = lists[i][k]
      local same = raw.tensor_rank(first) == raw.tensor_rank(other)
        and raw.tensor_dtype(first) == raw.tensor_dtype(other)
      for d = 0, same and raw.tensor_rank(first) - 1 or -1 do
        same = same and raw.tensor_dim(first, d) == raw.tensor_dim(other, d)
      end
      if not same then
        return reduce_all(handle, op, lists, devices, what)
      end
    end
  end
  return nil
end

--- Reduce many dense tensors on their devices: lists[i][k] is what device i has
--- for value k; result[k][i] is what it gets. plan = nil: without packs.
--- Errors: InvalidArgument when shapes or dtypes differ.
function M.all_reduce(tf, handle, op, lists, devices, plan, what)
  if plan == nil then
    return reduce_all(handle, op, lists, devices, what)
  end
  local differing = check_same(handle, op, lists, devices, what)
  if differing ~= nil then
    return differing
  end
  local groups, order = by_dtype(lists[1])
  local out = {}
  for g = 1, #order do
    local positions, sizes = groups[order[g]], {}
    local _, backwards = plan({}, 1)
    if backwards then
      positions = reversed(positions)
    end
    for j = 1, #positions do
      sizes[j] = raw.tensor_size(lists[1][positions[j]])
    end
    local lengths = plan(sizes, raw.dtype_size(raw.dtype_find(order[g])))
    local packed = { n = lists.n }
    for i = 1, lists.n do
      packed[i] = join(tf, lists[i], positions, lengths, devices[i])
    end
    local results = reduce_all(handle, op, packed, devices, what)
    for i = 1, lists.n do
      cut(tf, results, i, lists[1], positions, devices[i], out)
    end
  end
  return out
end

return M
