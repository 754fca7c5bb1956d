--- tf.distribute.CrossDeviceOps: how values of several replicas become one.
---
---   local Mine = tf.distribute.CrossDeviceOps:subclass "Mine"
---   function Mine:init(...) end                 -- called by Mine(...)
---   function Mine:reduce_implementation(op, value, destinations, options) end
---   function Mine:batch_reduce_implementation(op, pairs, options) end
---   tf.distribute.MirroredStrategy { cross_device_ops = Mine() }
---
--- Also to override: broadcast_implementation(tensor, destinations) and
--- _gather_implementation(value, destinations, axis, options).
---
--- An object is `native` when the runtime's own reduction does just what it
--- asks for; strategies then do not call it.
local classes = require "tfdist.base.classes"
local communication = require "tfdist.distribute.communication"
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local notice = require "tfdist.base.notice"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"

local M = {}

local getmetatable, type = getmetatable, type

-- Classes --------------------------------------------------------------------

local Base, is_ops = classes.root("CrossDeviceOps",
  "tf.distribute.CrossDeviceOps")
Base.native = false
classes.guard(Base, is_ops, "object")

M.is_ops = is_ops

local function name_of(self)
  return getmetatable(self).class.__name
end

-- Arguments ------------------------------------------------------------------

local function method(name, signature, fn)
  Base[name] = options.method("CrossDeviceOps." .. name, signature, fn, is_ops,
    "object")
end

-- The strategy that a value belongs to, as far as values.new needs it.
local function owner_of(x)
  if values.is_value(x) then
    return { handle = raw.value_strategy(x) }
  elseif values.is_mirrored(x) then
    return { handle = raw.mirrored_strategy(x) }
  end
  return contexts.get_strategy()
end

--- A value with tensors or slices as components, from what users give.
--- Errors: ValueError for lists and what has no device.
local function value_of(what, x)
  if values.is_value(x) or values.is_mirrored(x) then
    local owner = owner_of(x)
    local parts = reduce.operands(owner, values.components(x), what)
    return values.new(owner, "per_replica", parts, parts.n)
  elseif type(x) == "userdata" and (raw.is_operand(x)
    or (raw.kind(x) == "slices" and not raw.is_released(x))) then
    return values.new(owner_of(x), "per_replica", { x }, 1)
  end
  errors.raise("ValueError", ("%s: per_replica_value must be a distributed "
    .. "value or a tensor, got %s"):format(what, text.describe(x)))
end

local function places(what, x)
  if x == nil or x == "" or type(x) == "table" or type(x) == "number"
    or type(x) == "boolean" or type(x) == "function" then
    errors.raise("ValueError", ("%s: destinations must be a device, a tensor, "
      .. "a variable or a distributed value, got %s"):format(what,
      text.describe(x)))
  end
  return reduce.destinations(what, x)
end

-- One component that is already where it shall go.
local function is_there(value, devices)
  return #devices == 1 and raw.value_count(value) == 1
    and reduce.destinations("reduce", value)[1] == devices[1]
end

local function as_mirrored(value)
  return values.new(owner_of(value), "mirrored",
    { values.component(value, 0) }, 1)
end

-- Methods --------------------------------------------------------------------

-- The value and the communication options; also the result, where the value
-- lies there already.
local function arguments(what, x, destinations, more)
  more = communication.read(what, more)
  local devices = places(what, destinations)
  local value = value_of(what, x)
  return value, more, is_there(value, devices) and as_mirrored(value) or nil
end

--- Reduce one distributed value to the destinations; a Mirrored value, or a
--- tensor for one destination.
--- Errors: ValueError for lists and nil.
--- Source: tf.distribute.CrossDeviceOps.reduce
method("reduce", "reduce_op per_replica_value:table destinations:table=nil "
  .. "options:table=nil", function(self, op, x, destinations, more)
    local what = name_of(self) .. ":reduce"
    op = reduce.op(what, op)
    local value, there
    value, more, there = arguments(what, x, destinations, more)
    return there
      or self:reduce_implementation(op, value, destinations, more)
  end)

local function check_pairs(what, list)
  local _, n = options.list(what, "value_destination_pairs", list, "pairs")
  local out = { n = n }
  for i = 1, n do
    local pair = list[i]
    if not text.is_plain(pair) or (pair.n or #pair) ~= 2 then
      errors.raise("ValueError", ("%s: entry %d must be a pair { value, "
        .. "destinations }, got %s"):format(what, i, text.describe(pair)))
    end
    out[i] = { value_of(what, pair[1]), pair[2] }
    out[i].devices = places(what, pair[2])
  end
  return out
end

--- reduce for a list of { value, destinations }; a list of results.
--- Source: tf.distribute.CrossDeviceOps.batch_reduce
method("batch_reduce", "reduce_op value_destination_pairs:table "
  .. "options:table=nil", function(self, op, list, more)
    local what = name_of(self) .. ":batch_reduce"
    op = reduce.op(what, op)
    more = communication.read(what, more)
    local pairs_list, all_there = check_pairs(what, list), true
    for i = 1, pairs_list.n do
      all_there = all_there and is_there(pairs_list[i][1],
        pairs_list[i].devices)
    end
    if all_there then
      local out = { n = pairs_list.n }
      for i = 1, out.n do
        out[i] = as_mirrored(pairs_list[i][1])
      end
      return out
    end
    return self:batch_reduce_implementation(op, pairs_list, more)
  end)

--- Copies of a tensor on all destinations, a Mirrored value.
--- Source: tf.distribute.CrossDeviceOps.broadcast
method("broadcast", "tensor destinations:table=nil", function(self, x,
    destinations)
  places(name_of(self) .. ":broadcast", destinations)
  return self:broadcast_implementation(x, destinations)
end)

--- The components joined along an axis, on all destinations.
method("_gather", "per_replica_value:table destinations:table axis "
  .. "options:table=nil", function(self, x, destinations, axis, more)
    local what = name_of(self) .. ":_gather"
    options.integer(what, "axis", axis)
    local value, there
    value, more, there = arguments(what, x, destinations, more)
    return there
      or self:_gather_implementation(value, destinations, axis, more)
  end)

local function not_implemented(name)
  Base[name] = function(self)
    errors.raise("NotImplementedError", ("%s:%s must be given by the class")
      :format(name_of(self), name))
  end
end

not_implemented "reduce_implementation"
not_implemented "batch_reduce_implementation"

function Base:broadcast_implementation(x, destinations)
  local what = name_of(self) .. ":broadcast"
  return raw.strategy_broadcast(owner_of(x).handle, what,
    reduce.operand(x, what), places(what, destinations))
end

function Base:_gather_implementation(value, destinations, axis, more)
  local what = name_of(self) .. ":_gather"
  return raw.strategy_gather(owner_of(value).handle, axis, what,
    values.components(value), places(what, destinations),
    more and more.timeout_seconds or 0)
end

-- ReductionToOneDevice -------------------------------------------------------

local One = Base:subclass "ReductionToOneDevice"
classes.guard(One, is_ops, "object")

local ONE = options.parser("ReductionToOneDevice",
  "reduce_to_device=nil accumulation_fn=nil")

--- Reduce on reduce_to_device (by default the first destination) with
--- accumulation_fn(list of tensors) (by default their sum in replica order),
--- then copy to the destinations.
--- Errors: InvalidArgument for a device that is not there.
--- Source: tf.distribute.ReductionToOneDevice
function One:init(...)
  local device, fn = ONE(...)
  if device ~= nil then
    if type(device) ~= "string" then
      errors.raise("TypeError", "ReductionToOneDevice: reduce_to_device must "
        .. "be a device name, got " .. text.describe(device))
    end
    self.reduce_to_device = raw.device_name(raw.device_find(device))
  end
  if fn ~= nil then
    text.check_callable("ReductionToOneDevice", "accumulation_fn", fn)
  end
  self.accumulation_fn = fn
  self.native = device == nil and fn == nil
    and getmetatable(self).class == One
end

function One:describe()
  if self.reduce_to_device == nil then
    return name_of(self)
  end
  return ("%s on %s"):format(name_of(self), raw.device_short_name(
    raw.device_find(self.reduce_to_device)))
end

local function has_slices(parts)
  for i = 1, parts.n do
    if raw.kind(parts[i]) == "slices" then
      return true
    end
  end
  return false
end

-- The user's sum of all components, on one device.
local function accumulate(self, op, parts, device)
  local name = raw.device_name(device)
  return tf.device(name, function()
    local list = { n = parts.n }
    for i = 1, parts.n do
      list[i] = raw.tensor_to_device(raw.operand_tensor(parts[i]), device)
    end
    local sum = self.accumulation_fn(list)
    if type(sum) ~= "userdata" or not raw.is_operand(sum) then
      errors.raise("TypeError", "ReductionToOneDevice: accumulation_fn must "
        .. "return a tensor, got " .. text.describe(sum))
    elseif op == "MEAN" then
      sum = tf.math.divide(sum, raw.tensor_from_values({ parts.n },
        raw.tensor_dtype(raw.operand_tensor(sum)), {}))
    end
    return sum
  end)
end

function One:reduce_implementation(op, value, destinations)
  local what = name_of(self) .. ":reduce"
  local devices = places(what, destinations)
  local handle = raw.value_strategy(value)
  local parts = values.components(value)
  local device = self.reduce_to_device and raw.device_find(
    self.reduce_to_device) or devices[1]
  local result
  if self.accumulation_fn ~= nil and (op == "SUM" or op == "MEAN")
    and not has_slices(parts) then
    result = accumulate(self, op, parts, device)
  elseif device == devices[1] then
    return raw.strategy_reduce(handle, op:lower(), what, parts, devices, 0)
  else
    result = raw.value_component(raw.strategy_reduce(handle, op:lower(), what,
      parts, { device }, 0), 0)
  end
  return raw.strategy_broadcast(handle, what, result, devices)
end

-- Each of a batch by itself.
local function reduce_each(self, op, pairs_list, more)
  local out = { n = pairs_list.n }
  for i = 1, out.n do
    out[i] = self:reduce_implementation(op, pairs_list[i][1], pairs_list[i][2],
      more)
  end
  return out
end

One.batch_reduce_implementation = reduce_each

local one_device = One()

-- All-reduce in packs --------------------------------------------------------

local AllReduce = Base:subclass "AllReduceCrossDeviceOps"
classes.guard(AllReduce, is_ops, "object")

-- Element i of each list is where pair i's value lives, in order; nil unless
-- that is also where it shall go, and the same for all pairs.
local function common_devices(pairs_list)
  local common
  for i = 1, pairs_list.n do
    local from = reduce.destinations("reduce", pairs_list[i][1])
    local to = reduce.destinations("reduce", pairs_list[i][2])
    common = common or from
    if #from ~= #common or #to ~= #common then
      return nil
    end
    local there = {}
    for k = 1, #from do
      if from[k] ~= common[k] then
        return nil
      end
      there[from[k]] = true
    end
    for k = 1, #to do
      if not there[to[k]] then
        return nil
      end
    end
  end
  return common
end

-- Are these the devices of the value's strategy, which can then send many
-- values at once?
local function are_the_strategys(handle, devices)
  local same = #devices == raw.strategy_local_count(handle)
  for i = 1, #devices do
    same = same and raw.strategy_device(handle, i - 1) == devices[i]
  end
  return same
end

-- Mirrored values in the order of the pairs.
local function all_reduce(self, op, pairs_list, handle, more)
  local n, parts = raw.strategy_local_count(handle), { n = 0 }
  for k = 1, pairs_list.n do
    local own = values.components(pairs_list[k][1])
    for i = 1, n do
      parts[(k - 1) * n + i] = own[i]
    end
  end
  parts.n = pairs_list.n * n
  local packs, bytes = self:plan(pairs_list.n, more)
  local value = raw.strategy_all_reduce_packed(handle, op:lower(),
    name_of(self), parts, packs, bytes or 0, more and more.timeout_seconds or 0)
  local out = { n = pairs_list.n }
  for k = 1, pairs_list.n do
    local own = { n = n }
    for i = 1, n do
      own[i] = raw.value_component(value, (k - 1) * n + i - 1)
    end
    out[k] = values.new({ handle = handle }, "mirrored", own, n)
  end
  return out
end

function AllReduce:reduce_implementation(op, value, destinations, more)
  return self:batch_reduce_implementation(op, { { value, destinations },
    n = 1 }, more)[1]
end

function AllReduce:batch_reduce_implementation(op, pairs_list, more)
  if pairs_list.n == 0 then
    return { n = 0 }
  end
  local devices = common_devices(pairs_list)
  local handle = raw.value_strategy(pairs_list[1][1])
  if devices ~= nil and are_the_strategys(handle, devices) then
    return all_reduce(self, op, pairs_list, handle, more)
  elseif pairs_list.n == 1 then
    return { one_device:reduce_implementation(op, pairs_list[1][1],
      pairs_list[1][2]), n = 1 }
  end
  return reduce_each(self, op, pairs_list, more)
end

--- How a batch of n values is sent: the number of packs (0 = as they are, -1 =
--- packs of whole values) and the bytes after which such a pack ends.
function AllReduce:plan(n)
  return n < 2 and 0 or self.num_packs
end

local function with_num_packs(name)
  local class = AllReduce:subclass(name)
  local parse = options.parser(name, "num_packs=1")
  function class:init(...)
    self.num_packs = options.integer(name, "num_packs", (parse(...)), 0)
  end
  function class:describe()
    return ("%s (num_packs = %d)"):format(name_of(self), self.num_packs)
  end
  return class
end

-- NCCL and hierarchical copies are for GPUs; devices that share memory add up
-- where the values lie.
local Nccl = with_num_packs "NcclAllReduce"
local Hierarchical = with_num_packs "HierarchicalCopyAllReduce"

local told = false

local init = Nccl.init

--- Says once per process that there is no NCCL.
function Nccl:init(...)
  init(self, ...)
  if not told and not M.has_nccl() then
    told = true
    notice.warn "NcclAllReduce: NCCL is not there, sums are made in process"
  end
end

-- CollectiveAllReduce --------------------------------------------------------

local Collective = AllReduce:subclass "CollectiveAllReduce"

--- What strategies over several processes use, here within one: late values go
--- first, packs are of about bytes_per_pack (0 = one pack).
function Collective:init(more)
  self.options = communication.read("CollectiveAllReduce", more)
    or communication.CommunicationOptions()
end

function Collective:plan(_, more)
  return -1, self.options:merge(more).bytes_per_pack
end

-- Choosing -------------------------------------------------------------------

local own

-- The runtime asks NCCL itself, for all values at once and without copies.
local function between_gpus()
  if own == nil then
    own = Nccl(1)
    own.native = true
  end
  return own
end

--- What a strategy uses when nothing is said.
---@param handle userdata  the strategy's
function M.choose(handle)
  return raw.strategy_provider(handle) == "nccl" and between_gpus()
    or one_device
end

-- Looked for once.
local found

--- True when there are GPUs, and NCCL's plug-in can be used.
function M.has_nccl()
  if found == nil then
    found = false
    local n = raw.device_count "GPU" > 0 and raw.provider_count() or 0
    for i = 0, n - 1 do
      local name, _, reason = raw.provider_at(i)
      found = found or name:find "^nccl_" ~= nil and reason == ""
    end
  end
  return found
end

--- What of a strategy's cross-device ops handles this value: whole numbers of
--- 32 bits are never NCCL's.
function M.for_value(ops, x)
  local meta = getmetatable(ops)
  if meta.class ~= Nccl and meta.class ~= Collective then
    return ops
  end
  local part = (values.is_value(x) or values.is_mirrored(x))
    and values.component(x, 0) or x
  if type(part) == "userdata" and raw.is_operand(part)
    and raw.tensor_dtype(raw.operand_tensor(part)) == "int32" then
    return one_device
  end
  return ops
end

--- The argument cross_device_ops of a strategy. Errors: TypeError.
function M.check(what, x)
  if x == nil or is_ops(x) then
    return x
  end
  local hint = type(x) == "table" and rawget(x, "__name")
    and "call the class: " .. x.__name .. "()" or nil
  errors.raise("TypeError", ("%s: cross_device_ops must be a CrossDeviceOps "
    .. "object, got %s"):format(what, text.describe(x)), hint)
end

M.CrossDeviceOps, M.ReductionToOneDevice = Base, One
M.NcclAllReduce, M.HierarchicalCopyAllReduce = Nccl, Hierarchical
M.AllReduceCrossDeviceOps, M.CollectiveAllReduce = AllReduce, Collective

return M
