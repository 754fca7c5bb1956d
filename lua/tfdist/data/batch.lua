--- Stages that put elements together and take them apart: batch,
--- padded_batch, unbatch, rebatch, window.
local counts = require "tfdist.data.counts"
local dataset = require "tfdist.data.dataset"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local kinds = require "tfdist.base.kinds"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"
local spec = require "tfdist.data.spec"
local stream = require "tfdist.data.stream"
local strings = require "tfdist.core.strings"
local text = require "tfdist.base.text"

local M = {}

local min = math.min
local INFINITE, UNKNOWN = dataset.INFINITE, dataset.UNKNOWN
local method, stage = dataset.method, dataset.stage

-- batch ----------------------------------------------------------------------

local Batch = stage {}

function Batch.describe(node)
  return text.number(node.rows_per_batch)
    .. (node.drop_remainder and ", drop_remainder" or "")
end

-- Batches that n elements make.
local function batches_of(node, n)
  local full = math.floor(n / node.rows_per_batch)
  local rest = n - full * node.rows_per_batch
  return full + (rest > 0 and not node.drop_remainder and 1 or 0)
end

function Batch.cardinality(node)
  local n = dataset.cardinality_of(node.inputs[1])
  return n < 0 and n or batches_of(node, n)
end

function Batch.batch_size(node)
  return node.rows_per_batch
end

local function leading_size(node)
  return node.drop_remainder and node.rows_per_batch or -1
end

function Batch.spec(node)
  return nest.map_structure(function(x)
    return spec.batched(x, leading_size(node))
  end, dataset.spec_of(node.inputs[1]))
end

local function sample_batch(node, n, join)
  local one = dataset.sample_of(node.inputs[1], n)
  if one == nil then
    return nil
  end
  local packs = {}
  local count = node.drop_remainder and node.rows_per_batch
    or min(n, node.rows_per_batch)
  for i = 1, count do
    packs[i] = one
  end
  return join(packs, count)
end

function Batch.sample(node, n)
  return sample_batch(node, n, function(packs, count)
    return element.stack(packs, count, "batch")
  end)
end

-- Batches of a stream's items joined by `join(list, count)`.
local function open_batches(node, input, join)
  local size = node.rows_per_batch
  local self = {}
  function self.next()
    local list = {}
    local count = input:fill(list, size)
    if count == 0 or (count < size and node.drop_remainder) then
      return nil
    end
    return dataset.call(node, join, list, count)
  end
  function self.skip(_, n)
    return batches_of(node, stream.skip(input, n * size))
  end
  return self
end

local function join_batch(packs, count)
  return element.stack(packs, count, "batch")
end

-- Of rows in memory one gather each.
function Batch.open(node, run)
  local rows = dataset.rows_of(node.inputs[1])
  return open_batches(node, dataset.items(node.inputs[1], run),
    rows and function(list, count)
      return rows:batch(list, count)
    end or join_batch)
end

local function size_of(what, name, x)
  return counts.whole(what, name, x, 1)
end

-- Is a short rest dropped? A scalar bool tensor tells, too.
local function drops(what, x)
  if type(x) == "userdata" and raw.kind(x) == "tensor"
    and raw.tensor_dtype(x) == "bool" and raw.tensor_rank(x) == 0 then
    x = raw.item(x)
  end
  kinds.check(what, "drop_remainder", "boolean", x)
  return x
end

--- Elements put together along a new axis 0, batch_size at a time; the last
--- batch may be shorter unless drop_remainder.
--- Shapes: components [...] give [batch_size, ...].
--- Errors: InvalidArgument when components of one batch differ in shape.
--- Source: tf.data.Dataset.batch
method("batch", "batch_size drop_remainder:any=false num_parallel_calls=nil "
  .. "deterministic=nil name=nil", function(self, batch_size, drop_remainder)
    return dataset.new(Batch, "batch", { self.node }, {
      rows_per_batch = size_of("Dataset.batch", "batch_size", batch_size),
      drop_remainder = drops("Dataset.batch", drop_remainder),
    })
  end)

-- padded_batch ---------------------------------------------------------------

local Padded = stage { describe = Batch.describe,
  cardinality = Batch.cardinality, batch_size = Batch.batch_size }

-- One entry for each component from what users give: nil, one value for all,
-- or a structure. `is_value` tells values from structure.
local function entries(what, name, given, pack, is_value)
  local leaves = element.leaves(pack)
  local out = { n = leaves.n }
  if given == nil then
    return out
  elseif is_value(given) then
    for i = 1, leaves.n do
      out[i] = given
    end
    return out
  end
  local function fill(part, wanted)
    if not nest.is_nested(wanted) then
      out.at = (out.at or 0) + 1
      out[out.at] = part
      return
    elseif not text.is_plain(part) then
      errors.raise("ValueError", ("%s: %s must have the structure of the "
        .. "elements"):format(what, name))
    end
    local n, keys = nest.layout(wanted)
    for i = 1, n do
      fill(part[i], wanted[i])
    end
    for i = 1, keys and #keys or 0 do
      fill(part[keys[i]], wanted[keys[i]])
    end
  end
  local wanted = dataset.public_structure(pack)
  fill(given, wanted)
  return out
end

local function is_shape(x)
  if not text.is_plain(x) then
    return false
  end
  for _, value in pairs(x) do
    if type(value) ~= "number" then
      return false
    end
  end
  return true
end

local function is_scalar(x)
  return not text.is_plain(x)
end

local function leaf_dims(x)
  if type(x) == "userdata" then
    return x.shape
  end
  return type(x) == "string" and {} or strings.dims(x)
end

-- The sizes that all of list[1..count] are filled up to.
local function target_dims(what, list, count, asked)
  local dims = leaf_dims(list[1])
  for i = 2, count do
    local own = leaf_dims(list[i])
    if #own ~= #dims then
      errors.raise("InvalidArgument", ("%s: elements of ranks %d and %d cannot "
        .. "be padded to one shape"):format(what, #dims, #own))
    end
    for k = 1, #dims do
      dims[k] = math.max(dims[k], own[k])
    end
  end
  if asked == nil then
    return dims
  end
  local n = asked.n or #asked
  for key in pairs(asked) do
    n = type(key) == "number" and math.max(n, key) or n
  end
  if n ~= #dims then
    errors.raise("ValueError", ("%s: padded_shapes has %d sizes for a "
      .. "component of rank %d"):format(what, n, #dims))
  end
  for k = 1, n do
    local size = asked[k] or -1
    if size >= 0 and size < dims[k] then
      errors.raise("DataLoss", ("%s: an element has size %d along axis %d, "
        .. "padded_shapes says %d"):format(what, dims[k], k - 1, size))
    end
    dims[k] = size >= 0 and size or dims[k]
  end
  return dims
end

local function pad_tensor(x, dims, value)
  local rank = #dims
  local own, needed = x.shape, false
  local ints = { rank, 0, 0, 0, 0, 0, 0, 0, 0, rank, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  for k = 1, rank do
    ints[10 + k] = dims[k] - own[k]
    needed = needed or ints[10 + k] > 0
  end
  if not needed then
    return x
  end
  return (raw.op_run(raw.op_find "pad", { x, n = 1 }, ints, { value }))
end

local function pad_strings(x, dims, value)
  local own = leaf_dims(x)
  if #dims == 0 then
    return x
  end
  local out, from = {}, 0
  local function fill(axis, inside)
    for i = 1, dims[axis] do
      local here = inside and i <= own[axis]
      if axis < #dims then
        fill(axis + 1, here)
      elseif here then
        from = from + 1
        out[#out + 1] = x.list[from]
      else
        out[#out + 1] = value
      end
    end
  end
  fill(1, true)
  return strings.new(out, dims)
end

local function pad_leaf(what, x, dims, value)
  if type(x) == "userdata" then
    if type(value) == "userdata" then
      value = raw.item(raw.operand_tensor(value))
    elseif type(value) == "boolean" then
      value = value and 1 or 0
    elseif value ~= nil and type(value) ~= "number" then
      errors.raise("TypeError", ("%s: padding value for a %s component is %s")
        :format(what, x.dtype, text.describe(value)))
    end
    return pad_tensor(x, dims, value or 0)
  end
  return pad_strings(x, dims, value or "")
end

local function join_padded(node, packs, count)
  local what = "padded_batch"
  local columns = element.columns(packs, count, what)
  local shapes = entries(what, "padded_shapes", node.padded_shapes, packs[1],
    is_shape)
  local values = entries(what, "padding_values", node.padding_values, packs[1],
    is_scalar)
  local out = { n = columns.n }
  for c = 1, columns.n do
    local list = columns[c]
    local dims = target_dims(what, list, count, shapes[c])
    for i = 1, count do
      list[i] = pad_leaf(what, list[i], dims, values[c])
    end
    out[c] = element.stack_leaf(list, count, what)
  end
  return element.rebuild(packs[1], out)
end

function Padded.open(node, run)
  return open_batches(node, dataset.packs(node.inputs[1], run),
    function(packs, count)
      return join_padded(node, packs, count)
    end)
end

function Padded.sample(node, n)
  return sample_batch(node, n, function(packs, count)
    return join_padded(node, packs, count)
  end)
end

function Padded.spec(node)
  local inner = dataset.spec_of(node.inputs[1])
  local shapes = entries("padded_batch", "padded_shapes", node.padded_shapes,
    inner, is_shape)
  local leaves = nest.flatten(inner)
  local out = { n = leaves.n }
  for c = 1, leaves.n do
    local s = leaves[c]
    local dims = { leading_size(node) }
    for k = 1, s.shape and #s.shape or 0 do
      local asked = shapes[c] and shapes[c][k] or nil
      -- Without padded_shapes sizes that are known stay.
      dims[k + 1] = asked or (shapes[c] and -1) or s.shape[k]
    end
    out[c] = spec.new(s.shape and dims or nil, s.dtype)
  end
  return nest.pack_sequence_as(inner, out)
end

--- Like batch for elements of different sizes: every component is filled up at
--- the end of each axis to the largest in its batch, or to padded_shapes (-1 =
--- the largest), with padding_values (0, or ""). Both may be one value for all
--- components or follow the structure of the elements.
--- Errors: DataLoss for an element larger than padded_shapes.
--- Source: tf.data.Dataset.padded_batch
method("padded_batch", "batch_size padded_shapes:table=nil "
  .. "padding_values:table=nil drop_remainder:any=false name=nil",
  function(self, batch_size, padded_shapes, padding_values, drop_remainder)
    return dataset.new(Padded, "padded_batch", { self.node }, {
      rows_per_batch = size_of("Dataset.padded_batch", "batch_size",
        batch_size),
      padded_shapes = padded_shapes, padding_values = padding_values,
      drop_remainder = drops("Dataset.padded_batch", drop_remainder),
    })
  end)

-- unbatch --------------------------------------------------------------------

local function no_batch_size()
  return nil
end

local Unbatch = stage { batch_size = no_batch_size }

function Unbatch.cardinality(node)
  local input = node.inputs[1]
  local n = dataset.cardinality_of(input)
  if n <= 0 then
    return n
  end
  local known = dataset.known_spec(input)
  if known ~= nil then
    local first = nest.flatten(known)[1]
    if spec.is_spec(first) and first.shape and (first.shape[1] or -1) >= 0 then
      return n * first.shape[1]
    end
  end
  return UNKNOWN
end

function Unbatch.spec(node)
  return nest.map_structure(spec.row, dataset.spec_of(node.inputs[1]))
end

function Unbatch.sample(node, n)
  local pack = dataset.sample_of(node.inputs[1], n)
  if pack == nil or element.batch_size(pack) == 0 then
    return dataset.first(node)
  end
  return element.row(pack, 0)
end

function Unbatch.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  local pack, at, size = nil, 0, 0
  local self = {}
  local function more()
    while at == size do
      pack = input:next()
      if pack == nil then
        size, at = 0, 0
        return false
      end
      at = 0
      size = dataset.call(node, element.need_batch_size, pack, "unbatch")
    end
    return true
  end
  function self.next()
    if not more() then
      return nil
    end
    at = at + 1
    return element.row(pack, at - 1)
  end
  function self.skip(_, n)
    local done = 0
    while done < n and more() do
      local own = min(n - done, size - at)
      at = at + own
      done = done + own
    end
    return done
  end
  return self
end

--- The rows of batches as elements. Shapes: [n, ...] give n elements [...].
--- Errors: InvalidArgument for scalars and sizes of axis 0 that differ.
--- Source: tf.data.Dataset.unbatch
method("unbatch", "name=nil", function(self)
  return dataset.new(Unbatch, "unbatch", { self.node })
end)

-- rebatch --------------------------------------------------------------------

local Rebatch = stage {}

function Rebatch.describe(node)
  local parts = {}
  for i = 1, #node.sizes do
    parts[i] = text.number(node.sizes[i])
  end
  local list = table.concat(parts, ", ")
  return (#parts > 1 and "{" .. list .. "}" or list)
    .. (node.drop_remainder and ", drop_remainder" or "")
end

function Rebatch.batch_size(node)
  return #node.sizes == 1 and node.sizes[1] or nil
end

function Rebatch.cardinality(node)
  return dataset.cardinality_of(node.inputs[1]) == INFINITE and INFINITE
    or UNKNOWN
end

-- The size that all pieces have, or -1: sizes must be equal, and either the
-- remainder goes or batches of known size are cut without one.
local function piece_size(node, size_of_input)
  local size = node.sizes[1]
  for i = 2, #node.sizes do
    if node.sizes[i] ~= size then
      return -1
    end
  end
  if node.drop_remainder or (size > 0 and size_of_input >= 0
    and size_of_input % size == 0) then
    return size
  end
  return -1
end

function Rebatch.spec(node)
  return nest.map_structure(function(x)
    local outer = spec.is_spec(x) and x.shape and x.shape[1] or -1
    return spec.batched(spec.row(x), piece_size(node, outer))
  end, dataset.spec_of(node.inputs[1]))
end

function Rebatch.sample(node, n)
  local pack = dataset.sample_of(node.inputs[1], n)
  local size = pack and element.batch_size(pack)
  if size == nil or size == 0 then
    return dataset.first(node)
  end
  return element.slice(pack, 0, min(size, math.max(1, node.sizes[1])))
end

--- Pieces cut from a stream of batches: `next(sizes)` of what input gives.
--- A piece of size 0 reads nothing (but the first batch, for its shape).
---@param input table    iterator of batches
---@param sizes integer[] used in turn
---@param drop boolean   leave a last piece out that is too short
---@param first? integer where in sizes to begin, from 0
function M.cut(input, sizes, drop, what, first)
  local turn, pack, at, size, ended = first or 0, nil, 0, 0, false
  local shape -- the last batch seen
  local self = {}
  local function read()
    local batch = input:next()
    if batch == nil then
      ended, pack, at, size = true, nil, 0, 0
      return false
    end
    pack, at, size = batch, 0, element.need_batch_size(batch, what)
    shape = batch
    return true
  end
  -- Up to `wanted` rows, across batches.
  local function gather(wanted)
    local parts, count, got = {}, 0, 0
    while got < wanted do
      if at == size and not read() then
        break
      end
      local own = min(wanted - got, size - at)
      if own > 0 then
        count = count + 1
        parts[count] = element.slice(pack, at, own)
        at = at + own
        got = got + own
      end
    end
    return parts, count, got
  end
  function self.next()
    if ended then
      return nil
    end
    local wanted = sizes[turn % #sizes + 1]
    if wanted == 0 then
      if shape == nil and not read() then
        return nil
      end
      turn = turn + 1
      return element.slice(shape, 0, 0)
    end
    local parts, count, got = gather(wanted)
    turn = turn + 1
    if got == 0 or (got < wanted and drop) then
      return nil
    end
    return element.concat(parts, count, what)
  end
  return self
end

function Rebatch.open(node, run)
  local cutter = M.cut(dataset.open(node.inputs[1], run), node.sizes,
    node.drop_remainder, "rebatch")
  return {
    next = function()
      return dataset.call(node, cutter.next)
    end,
  }
end

--- Batches of other sizes from a stream of batches, across their borders:
--- batch_size is one size or a list of sizes used in turn; 0 in the list gives
--- an empty batch. The last batch may be shorter unless drop_remainder.
--- Source: tf.data.Dataset.rebatch
method("rebatch", "batch_size drop_remainder:any=false name=nil",
  function(self, batch_size, drop_remainder)
    local what = "Dataset.rebatch"
    local sizes = type(batch_size) == "table" and batch_size or { batch_size }
    local list, n, total = {}, sizes.n or #sizes, 0
    for i = 1, n do
      list[i] = options.integer(what, "batch_size", sizes[i], 0)
      total = total + list[i]
    end
    if total == 0 then
      errors.raise("ValueError", what .. ": batch_size must have a size above "
        .. "0")
    end
    return dataset.new(Rebatch, "rebatch", { self.node }, {
      sizes = list, drop_remainder = drops(what, drop_remainder),
    })
  end)

-- window ---------------------------------------------------------------------

--- A data set of packs that are there already.
local Held = stage {}

function Held.cardinality(node)
  return #node.packs
end

function Held.describe(node)
  return ("%d elements"):format(#node.packs)
end

function Held.sample(node)
  return node.packs[1]
end

function Held.spec(node)
  return node.packs[1] and element.spec_of(node.packs[1])
end

function Held.open(node)
  local at, packs = 0, node.packs
  return {
    next = function()
      at = at + 1
      return packs[at] and element.fresh(packs[at])
    end,
  }
end

--- A data set of the given packs.
function M.of_packs(name, packs)
  return dataset.new(Held, name, {}, { packs = packs })
end

local Window = stage { batch_size = no_batch_size }

function Window.describe(node)
  return ("%d, shift %d, stride %d%s"):format(node.size, node.shift,
    node.stride, node.drop_remainder and ", drop_remainder" or "")
end

function Window.cardinality(node)
  local n = dataset.cardinality_of(node.inputs[1])
  if n < 0 then
    return n
  elseif node.drop_remainder then
    local span = (node.size - 1) * node.stride + 1
    return n < span and 0 or math.floor((n - span) / node.shift) + 1
  end
  return math.ceil(n / node.shift)
end

-- One data set for each component of a window.
local function window_pack(packs)
  local columns = element.columns(packs, #packs, "window")
  local out = { n = columns.n }
  for c = 1, columns.n do
    local own = {}
    for i = 1, #packs do
      own[i] = { columns[c][i], n = 1 }
    end
    out[c] = M.of_packs("window", own)
  end
  return element.rebuild(packs[1], out)
end

function Window.sample(node, n)
  local one = dataset.sample_of(node.inputs[1], n)
  return one and window_pack { one }
end

function Window.spec(node)
  return element.spec_of(Window.sample(node, 1) or errors.raise("ValueError",
    "element_spec: the data set (window) is empty"))
end

function Window.open(node, run)
  local input = dataset.open(node.inputs[1], run)
  local held, ended = {}, false
  local span = (node.size - 1) * node.stride + 1
  local self = {}
  function self.next()
    while #held < span and not ended do
      local pack = input:next()
      ended = pack == nil
      held[#held + 1] = pack
    end
    if #held == 0 or (#held < span and node.drop_remainder) then
      return nil
    end
    local packs = {}
    for i = 1, min(span, #held), node.stride do
      packs[#packs + 1] = held[i]
    end
    local rest = {}
    for i = node.shift + 1, #held do
      rest[#rest + 1] = held[i]
    end
    if node.shift > #held and not ended then
      dataset.skip(input, node.shift - #held)
    end
    held = rest
    return window_pack(packs)
  end
  return self
end

--- Data sets of `size` neighbouring elements (every stride-th), one for each
--- component; the next window begins `shift` elements later.
--- Source: tf.data.Dataset.window
method("window", "size shift=nil stride=1 drop_remainder:any=false name=nil",
  function(self, size, shift, stride, drop_remainder)
    local what = "Dataset.window"
    size = counts.whole(what, "size", size, 1)
    return dataset.new(Window, "window", { self.node }, {
      size = size, shift = counts.whole(what, "shift", shift or size, 1),
      stride = counts.whole(what, "stride", stride, 1),
      drop_remainder = drops(what, drop_remainder),
    })
  end)

return M
