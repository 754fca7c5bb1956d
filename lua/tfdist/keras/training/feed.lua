--- What fit, evaluate and predict read: arrays, data sets, distributed data
--- sets and functions become one thing, a feed.
---
--- A feed has `steps` (number of batches in an epoch, nil = not known),
--- `restarts` (an epoch can begin anew), of data sets that are distributed the
--- `plan` of how, and open(), which returns a function that gives the next
--- batch as a list { x, y, sample_weight, n = 3 }, values per replica where there
--- are several, and nil at the end. Feeds of data sets can be saved:
--- state(running) says in plain values what their random stages draw next and,
--- when `running`, where the reader opened last is; restore takes the first,
--- open(saved.iterator) the second.
local contexts = require "tfdist.distribute.contexts"
local data = require "tfdist.data"
local errors = require "tfdist.base.errors"
local input = require "tfdist.distribute.input"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local seeds = require "tfdist.data.seeds"
local steps = require "tfdist.keras.training.steps"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"

local M = {}

local type = type

-- Kinds of input -------------------------------------------------------------

local function has_method(x, name)
  local kind = type(x)
  if kind ~= "table" or getmetatable(x) == nil then
    return false
  end
  local ok, found = errors.attempt(function()
    return x[name]
  end)
  return ok and type(found) == "function"
end

local function is_dataset(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  return type(meta) == "table" and meta.is_tf_dataset == true
end

local function is_distributed(x)
  return not is_dataset(x) and has_method(x, "iter")
end

--- True for what carries labels and weights by itself.
function M.is_stream(x)
  return is_dataset(x) or is_distributed(x) or type(x) == "function"
end

-- Arrays ---------------------------------------------------------------------

-- What is nested too deeply counts as a structure, which refuses it.
local function has_handles(x, depth)
  if type(x) == "userdata" or depth > nest.MAX_DEPTH then
    return true
  elseif not nest.is_nested(x) then
    return false
  end
  for key, each in pairs(x) do
    if type(key) == "string" and key ~= "n" or has_handles(each, depth + 1) then
      return true
    end
  end
  return false
end

-- Nested lists of numbers are one tensor; any tensor inside makes a structure.
local function to_tensors(what, name, x)
  if x == nil then
    return nil
  elseif nest.is_nested(x) and has_handles(x, 0) then
    return nest.map(what, function(leaf)
      return to_tensors(what, name, leaf)
    end, x)
  elseif type(x) == "userdata" and not raw.is_operand(x)
    or type(x) == "function" or type(x) == "string" then
    errors.raise("TypeError", ("%s: %s must be a tensor, a list of numbers or "
      .. "a dataset, got %s"):format(what, name, text.describe(x)),
      values.is_value(x) and "a global batch is cut by itself; pass it as one "
      .. "tensor" or nil)
  elseif M.is_stream(x) then
    errors.raise("TypeError", ("%s: %s must be one batch, got %s"):format(what,
      name, text.describe(x)), "fit, evaluate and predict take datasets")
  end
  return tf.convert_to_tensor(x)
end

M.to_tensors = to_tensors

-- Rows of all tensors; they must agree.
local function rows_of(what, arrays)
  local n, first
  for _, entry in ipairs(arrays) do
    local flat = nest.flatten(entry.value)
    for i = 1, flat.n do
      local t = flat[i]
      if t == nil then
        errors.raise("TypeError", ("%s: %s has nil in the place of tensor %d")
          :format(what, entry.name, i))
      elseif raw.tensor_rank(t) == 0 then
        errors.raise("ValueError", ("%s: %s is a scalar; axis 0 counts the "
          .. "examples"):format(what, entry.name))
      end
      local size = raw.tensor_dim(t, 0)
      if n ~= nil and size ~= n then
        errors.raise("ValueError", ("%s: Data cardinality is ambiguous: %s has "
          .. "%d examples, %s has %d"):format(what, first, n, entry.name,
          size))
      end
      n, first = size, first or entry.name
    end
  end
  return n
end

--- x, y and sample_weight as tensors, and the number of rows.
function M.arrays(what, x, y, sample_weight)
  local list = {}
  for i, name in ipairs { "x", "y", "sample_weight" } do
    local value = to_tensors(what, name, ({ x, y, sample_weight })[i])
    if value ~= nil then
      list[#list + 1] = { name = name, value = value, at = i }
    end
  end
  if #list == 0 then
    errors.raise("ValueError", what .. ": there is no data: x is nil")
  end
  return list, rows_of(what, list)
end

--- Rows first..last-1 of every array.
function M.part(list, first, last)
  local out = {}
  for i, entry in ipairs(list) do
    out[i] = { name = entry.name, at = entry.at, value = nest.map_structure(
      function(t)
        return t[{ { first, last } }]
      end, entry.value) }
  end
  return out
end

-- Batches on replicas --------------------------------------------------------

local function own_rows(t, device, first, size)
  local begins, sizes = {}, {}
  for axis = 0, raw.tensor_rank(t) - 1 do
    begins[axis + 1] = axis == 0 and first or 0
    sizes[axis + 1] = axis == 0 and size or raw.tensor_dim(t, axis)
  end
  return raw.tensor_to_device(tf.slice(t, begins, sizes), device)
end

--- A batch cut into one contiguous piece for each replica, sizes differing by
--- one at most; those of the replicas here.
function M.split(strategy, x)
  local count, before = strategy.num_replicas_in_sync, strategy.first_replica
  local here = strategy.local_count
  return nest.map_structure(function(leaf)
    if type(leaf) ~= "userdata" or not raw.is_operand(leaf) then
      return leaf
    end
    local t = raw.operand_tensor(leaf)
    if raw.tensor_rank(t) == 0 then
      return leaf
    end
    local n, parts, first = raw.tensor_dim(t, 0), {}, 0
    for i = 1, before + here do
      local size = math.floor(n / count) + (i <= n % count and 1 or 0)
      if i > before then
        parts[i - before] = own_rows(t, strategy.replica_devices[i - before],
          first, size)
      end
      first = first + size
    end
    return values.new(strategy, "per_replica", parts, here)
  end, x)
end

--- A pack cut likewise where the strategy has several replicas.
function M.distribute(strategy, pack)
  if strategy.one_copy then
    return pack
  end
  pack.rows = strategy.over_workers and M.count(pack) or nil
  for i = 1, 3 do
    if pack[i] ~= nil then
      pack[i] = M.split(strategy, pack[i])
    end
  end
  return pack
end

--- Examples of the global batch in a pack.
function M.count(pack)
  if pack.rows ~= nil then
    return pack.rows -- of all workers
  end
  local x = pack[1]
  if type(x) == "userdata" and raw.kind(x) == "tensor" then
    return steps.examples(x)
  end
  local flat = nest.flatten(x ~= nil and x or pack[2])
  for i = 1, flat.n do
    x = flat[i]
    if values.is_value(x) then
      local n = 0
      for k = 0, raw.value_count(x) - 1 do
        local t = raw.operand_tensor(raw.value_component(x, k))
        n = n + (raw.tensor_rank(t) > 0 and raw.tensor_dim(t, 0) or 1)
      end
      return n
    elseif type(x) == "userdata" and raw.is_operand(x) then
      return steps.examples(x)
    end
  end
  return 1
end

-- Feeds ----------------------------------------------------------------------

local function check_columns(what, n, stream)
  if n > 3 then
    errors.raise("ValueError", ("%s: elements of the %s must be x, or x, y, or "
      .. "x, y, sample_weight; got %d values"):format(what, stream, n))
  end
end

local function reader(what, next_element, convert)
  local function gather(...)
    local x = ...
    if x == nil then
      return nil
    end
    check_columns(what, select("#", ...), "dataset")
    local x1, y, w = ...
    local pack = { x1, y, w, n = 3, rows = type(next_element) == "table"
      and input.rows_of(next_element) or nil }
    return convert and convert(pack) or pack
  end
  return function()
    return gather(next_element())
  end
end

local function nodes_of(source)
  local plan = rawget(source, "plan")
  return is_dataset(source) and { source.node }
    or type(plan) == "table" and plan.nodes or nil
end

local function of_iterable(what, source, steps_known, convert)
  local plan = not is_dataset(source) and rawget(source, "plan") or nil
  local feed = { steps = steps_known, restarts = true,
    plan = type(plan) == "table" and plan or nil }
  local nodes, iterator = nodes_of(source), nil
  function feed.open(saved)
    iterator = source:iter()
    if saved ~= nil then
      iterator:restore(saved)
    end
    return reader(what, iterator, convert)
  end
  if nodes ~= nil then
    function feed.state(running)
      return { orders = seeds.orders(nodes),
        iterator = running and iterator ~= nil and iterator:state() or nil }
    end
    function feed.restore(saved)
      seeds.set_orders(nodes, saved.orders)
    end
  end
  return feed
end

local function cardinality(source)
  if not has_method(source, "cardinality") then
    return -2
  end
  local n = source:cardinality()
  return type(n) == "userdata" and raw.item(raw.operand_tensor(n)) or n
end

local function of_dataset(own, what, dataset, wanted)
  local n = cardinality(dataset)
  if n == -1 and wanted == nil then
    errors.raise("ValueError", what .. ": the dataset is infinite; tell how "
      .. "many steps an epoch has", "steps_per_epoch = n in fit, steps = n in "
      .. "evaluate and predict")
  end
  local known = n >= 0 and n or nil
  if own.strategy == contexts.default_strategy then
    return of_iterable(what, dataset, known)
  end
  return of_iterable(what,
    own.strategy:experimental_distribute_dataset(dataset), known)
end

-- Shares of another strategy would lose all but the first replica's.
local function check_strategy(own, what, source)
  local plan = rawget(source, "plan")
  local its = type(plan) == "table" and plan.strategy or own.strategy
  if its ~= own.strategy and not (its.one_copy and own.strategy.one_copy) then
    local name = own.strategy == contexts.default_strategy and "no strategy"
      or its.name == own.strategy.name and "another " .. its.name
      or "a " .. own.strategy.name
    errors.raise("ValueError", ("%s: the dataset is distributed by a %s, the "
      .. "model belongs to %s"):format(what, its.name, name),
      "make and compile the model inside strategy:scope(function() ... end) of "
      .. "the dataset's strategy")
  end
end

local function of_distributed(own, what, source, wanted)
  check_strategy(own, what, source)
  local n = cardinality(source)
  if wanted == nil and n < 0 then
    errors.raise("ValueError", what .. ": When providing a distributed dataset "
      .. "whose length is not known, you must specify the number of steps to "
      .. "run", "steps_per_epoch = n in fit, steps = n in evaluate and predict")
  end
  return of_iterable(what, source, n >= 0 and n or nil)
end

local function of_function(own, what, fn)
  return {
    restarts = false,
    open = function()
      return reader(what, fn, function(pack)
        for i, name in ipairs { "x", "y", "sample_weight" } do
          pack[i] = to_tensors(what, name, pack[i])
        end
        return M.distribute(own.strategy, pack)
      end)
    end,
  }
end

--- A feed of arrays in batches of batch_size, shuffled or in order. Training
--- goes through them again for more steps than they have; what evaluate and
--- predict count, they count once.
function M.of_arrays(own, what, list, rows, batch_size, shuffle, wanted)
  options.integer(what, "batch_size", batch_size, 1)
  if rows == 0 then
    errors.raise("ValueError", what .. ": the data has no examples")
  end
  local columns = { n = 3 }
  local last = 0
  for _, entry in ipairs(list) do
    columns[entry.at] = entry.value
    last = math.max(last, entry.at)
  end
  -- A tuple has no holes: weights without labels come with weights' place.
  local tuple, places = {}, {}
  for i = 1, last do
    if columns[i] ~= nil then
      tuple[#tuple + 1] = columns[i]
      places[#places + 1] = i
    end
  end
  local dataset = data.Dataset.from_tensor_slices(tuple)
  if shuffle then
    dataset = dataset:shuffle(rows)
  end
  dataset = dataset:batch(batch_size)
  if what == "fit" and wanted ~= nil and wanted > dataset:cardinality() then
    dataset = dataset:repeat_()
  end
  local feed = of_dataset(own, what, dataset, wanted or dataset:cardinality())
  feed.rows = rows
  if #places == last then
    return feed
  end
  local open = feed.open
  function feed.open(saved)
    local next_pack = open(saved)
    return function()
      local pack = next_pack()
      if pack == nil then
        return nil
      end
      local out = { n = 3, rows = pack.rows }
      for i, place in ipairs(places) do
        out[place] = pack[i]
      end
      return out
    end
  end
  return feed
end

local function only_arrays(what, name, value, kind)
  if name == "y" and text.is_plain(value) then
    options.check_options("model", what, name, value)
  end
  if value ~= nil then
    errors.raise("ValueError", ("%s: %s cannot be given with a %s"):format(what,
      name, kind), name == "batch_size" and "the dataset makes the batches"
      or "its elements are x, y or x, y, " .. "sample_weight")
  end
end

--- A feed of whatever fit, evaluate and predict take.
---@param own table       training state: strategy
---@param what string     "fit"
---@param spec table      { x, y, sample_weight, batch_size, shuffle, steps }
function M.new(own, what, spec)
  local x = spec.x
  if not M.is_stream(x) then
    local list, rows = M.arrays(what, x, spec.y, spec.sample_weight)
    return M.of_arrays(own, what, list, rows, spec.batch_size or 32,
      spec.shuffle, spec.steps)
  end
  local kind = type(x) == "function" and "function" or "dataset"
  only_arrays(what, "y", spec.y, kind)
  only_arrays(what, "sample_weight", spec.sample_weight, kind)
  only_arrays(what, "batch_size", spec.batch_size, kind)
  if kind == "function" then
    return of_function(own, what, x)
  elseif is_dataset(x) then
    return of_dataset(own, what, x, spec.steps)
  end
  return of_distributed(own, what, x, spec.steps)
end

return M
