--- Elements on their way through a pipeline.
---
--- An element is a pack: a list with `n`, one entry for each value that users
--- see; an entry is a component or a plain table of components. A component is
--- a tensor, a string, a tensor of strings or a data set. Nothing here copies
--- more than it must: rows and stretches of a tensor are views.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local nest = require "tfdist.base.nest"
local raw = require "tfdist.core.raw"
local spec = require "tfdist.data.spec"
local strings = require "tfdist.core.strings"
local text = require "tfdist.base.text"

local M = {}

local getmetatable, select, type = getmetatable, select, type
local op_run, tensor_dim, tensor_rank = raw.op_run, raw.tensor_dim,
  raw.tensor_rank

local op = raw.op_find

-- From what user code returns ------------------------------------------------

-- "number", "boolean" or "string" for a literal of one kind (a leaf or nested
-- lists of them), "empty" for lists without leaves, "structure" for the rest.
local function literal_kind(x, depth)
  local kind = type(x)
  if kind == "number" or kind == "boolean" or kind == "string" then
    return kind
  elseif kind ~= "table" or getmetatable(x) ~= nil or depth > 8 then
    return "structure"
  end
  local n, keys = nest.layout(x)
  if keys ~= nil then
    return "structure"
  end
  local found = "empty"
  for i = 1, n do
    local own = literal_kind(x[i], depth + 1)
    if own == "structure" or (own ~= found and found ~= "empty"
      and own ~= "empty") then
      return "structure"
    elseif own ~= "empty" then
      found = own
    end
  end
  return found
end

M.literal_kind = literal_kind

local function bad_leaf(what, x)
  errors.raise("TypeError", ("%s: a component must be a tensor, a number, a "
    .. "boolean, a string or a table of them, got %s"):format(what,
    text.describe(x)))
end

-- A component for a value that is no plain table.
local function leaf(x, what)
  local kind = type(x)
  if kind == "userdata" then
    if raw.kind(x) == "tensor" and not raw.is_released(x) then
      return x
    end
    return convert.tensor(x, nil, what, "a component")
  elseif kind == "string" then
    return x
  elseif kind == "number" or kind == "boolean" then
    return (raw.tensor_from_table(x))
  end
  local meta = getmetatable(x)
  if kind == "table" and type(meta) == "table" then
    if strings.is(x) or meta.is_tf_dataset or meta.is_tf_component then
      return x
    elseif meta.__tensor ~= nil then
      return convert.tensor(x, nil, what, "a component")
    end
  end
  return bad_leaf(what, x)
end

local component

local function from_table(x, what, depth)
  local kind = literal_kind(x, 0)
  if kind == "string" then
    return strings.from_table(x, what)
  elseif kind ~= "structure" then
    return (raw.tensor_from_table(x))
  elseif depth > 100 then
    errors.raise("ValueError", what .. ": a component is nested deeper than "
      .. "100 levels or contains itself")
  end
  local out = {}
  local n, keys = nest.layout(x)
  for i = 1, n do
    out[i] = component(x[i], what, depth + 1)
  end
  out.n = x.n
  for i = 1, keys and #keys or 0 do
    out[keys[i]] = component(x[keys[i]], what, depth + 1)
  end
  return out
end

--- A component, or a structure of them, for what user code gave. Rectangular
--- lists of numbers, booleans or strings are one tensor; a list with a tensor
--- inside is a structure.
--- Errors: TypeError, ValueError for ragged lists.
component = function(x, what, depth)
  if type(x) == "table" and getmetatable(x) == nil then
    return from_table(x, what, depth or 0)
  end
  return leaf(x, what)
end

M.component = component

--- A pack of the values that user code returned, nil when there are none or
--- the first is nil.
--- Errors: TypeError for what is no component.
function M.pack(what, ...)
  local first = ...
  if first == nil then
    return nil
  end
  local n = select("#", ...)
  local out = { n = n, ... }
  for i = 1, n do
    local x = out[i]
    if x == nil then
      errors.raise("TypeError", ("%s: value %d of %d is nil; an element has "
        .. "no missing values"):format(what, i, n))
    elseif type(x) ~= "userdata" or raw.kind(x) ~= "tensor"
      or raw.is_released(x) then
      out[i] = component(x, what)
    end
  end
  return out
end

-- Structures -----------------------------------------------------------------

-- True when no value is a table of components.
local function is_flat(pack)
  for i = 1, pack.n do
    local x = pack[i]
    if type(x) == "table" and getmetatable(x) == nil then
      return false
    end
  end
  return true
end

--- The components as one list with n.
function M.leaves(pack)
  if is_flat(pack) then
    return pack
  end
  return nest.flatten(pack)
end

--- The pack with its components replaced by those of a list.
function M.rebuild(pack, leaves)
  if is_flat(pack) then
    return leaves
  end
  return nest.pack_sequence_as(pack, leaves)
end

--- fn of each component, in the same structure.
function M.map(fn, pack)
  if is_flat(pack) then
    local out = { n = pack.n }
    for i = 1, pack.n do
      out[i] = fn(pack[i])
    end
    return out
  end
  return nest.map_structure(fn, pack)
end

--- The specs of an element, in its structure.
function M.spec_of(pack)
  return M.map(spec.of, pack)
end

--- Lists of components of packs[1..count], leaf by leaf.
--- Errors: InvalidArgument when the structures differ.
local function columns(packs, count, what)
  local first = packs[1]
  local flat = is_flat(first)
  local leaves = M.leaves(first)
  local out = { n = leaves.n }
  for k = 1, leaves.n do
    out[k] = { leaves[k], n = count }
  end
  for i = 2, count do
    local own = packs[i]
    if not flat or own.n ~= first.n or not is_flat(own) then
      local ok, e = pcall(nest.assert_same_structure, first, own)
      if not ok then
        errors.raise("InvalidArgument", ("%s: elements 0 and %d differ in "
          .. "structure: %s"):format(what, i - 1, e.message))
      end
      own = M.leaves(own)
    end
    for k = 1, out.n do
      out[k][i] = own[k]
    end
  end
  return out
end

M.columns = columns

local function is_string(x)
  return type(x) == "string" or strings.is(x)
end

local function mismatch(what, list, i)
  errors.raise("InvalidArgument", ("%s: element 0 has %s and element %d has %s;"
    .. " the components of one batch must be alike"):format(what,
    spec.short(spec.of(list[1])), i - 1, spec.short(spec.of(list[i]))),
    what == "batch" and "padded_batch fills up shapes that differ" or nil)
end

local function same_shape(a, b)
  local rank = tensor_rank(a)
  if tensor_rank(b) ~= rank or raw.tensor_dtype(a) ~= raw.tensor_dtype(b) then
    return false
  end
  for axis = 0, rank - 1 do
    if tensor_dim(a, axis) ~= tensor_dim(b, axis) then
      return false
    end
  end
  return true
end

local STACK = { 0 }

local function stack_leaf(list, count, what)
  local first = list[1]
  if is_string(first) then
    for i = 2, count do
      if not is_string(list[i]) then
        mismatch(what, list, i)
      end
    end
    return strings.stack(list, count, what)
  elseif type(first) ~= "userdata" then
    errors.raise("TypeError", ("%s: a component is %s, which cannot be put "
      .. "into a batch"):format(what, text.describe(first)))
  end
  for i = 2, count do
    if type(list[i]) ~= "userdata" or not same_shape(first, list[i]) then
      mismatch(what, list, i)
    end
  end
  return (op_run(op "stack", list, STACK))
end

M.stack_leaf = stack_leaf

--- Elements packs[1..count] as one, with a new axis 0.
--- Errors: InvalidArgument when they are not alike.
function M.stack(packs, count, what)
  local list = columns(packs, count, what)
  local out = { n = list.n }
  for k = 1, list.n do
    out[k] = stack_leaf(list[k], count, what)
  end
  return M.rebuild(packs[1], out)
end

--- Batches packs[1..count] joined along axis 0.
function M.concat(packs, count, what)
  if count == 1 then
    return packs[1]
  end
  local list = columns(packs, count, what)
  local out = { n = list.n }
  for k = 1, list.n do
    if is_string(list[k][1]) then
      out[k] = strings.concat(list[k], count)
    else
      out[k] = op_run(op "concat", list[k], STACK)
    end
  end
  return M.rebuild(packs[1], out)
end

-- Rows -----------------------------------------------------------------------

-- Attributes of strided_slice for axis 0 from `first` to `last`.
local function slice_slots(t, first, last, shrink)
  local rank = tensor_rank(t)
  local ints = { rank, first, 0, 0, 0, 0, 0, 0, 0, rank, last, 0, 0, 0, 0, 0, 0,
    0, rank, 1, 1, 1, 1, 1, 1, 1, 1, shrink }
  for axis = 1, rank - 1 do
    ints[11 + axis] = tensor_dim(t, axis)
  end
  return ints
end

local function fresh_leaf(x)
  return type(x) == "userdata" and raw.retain(x) or x
end

--- The element with handles of its own, which the user may release.
function M.fresh(pack)
  return M.map(fresh_leaf, pack)
end

--- Rows first .. first + count - 1 of a component.
function M.slice_leaf(x, first, count)
  if type(x) ~= "userdata" then
    return strings.rows(x, first, count)
  elseif first == 0 and count == tensor_dim(x, 0) then
    return raw.retain(x)
  end
  return (op_run(op "strided_slice", { x, n = 1 },
    slice_slots(x, first, first + count, 0)))
end

--- A function that gives row i of a component, for many rows.
function M.row_reader(x)
  if type(x) ~= "userdata" then
    return function(i)
      return strings.row(x, i)
    end
  end
  local inputs, slots = { x, n = 1 }, slice_slots(x, 0, 1, 1)
  local slice = op "strided_slice"
  return function(i)
    slots[2], slots[11] = i, i + 1
    return (op_run(slice, inputs, slots))
  end
end

--- Row i of a component.
function M.row_leaf(x, i)
  return M.row_reader(x)(i)
end

local WHOLE = { 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

--- Rows of a component at positions: `at` is an int32 tensor, `list` the same
--- as a Lua list of n.
function M.gather_leaf(x, at, list, n)
  if type(x) ~= "userdata" then
    return strings.gather(x, list, n)
  end
  return (op_run(op "gather", { x, at, n = 2 }, WHOLE))
end

--- Rows first .. first + count - 1 of a batch.
function M.slice(pack, first, count)
  return M.map(function(x)
    return M.slice_leaf(x, first, count)
  end, pack)
end

--- Row i of a batch.
function M.row(pack, i)
  return M.map(function(x)
    return M.row_leaf(x, i)
  end, pack)
end

--- Size of axis 0 of a component; nil for scalars.
function M.leading(x)
  if type(x) == "userdata" then
    return tensor_rank(x) > 0 and tensor_dim(x, 0) or nil
  elseif strings.is(x) then
    return x.dims[1]
  end
  return nil
end

--- The size of axis 0 that all components share; nil and a reason otherwise.
function M.batch_size(pack)
  local leaves = M.leaves(pack)
  local size
  for k = 1, leaves.n do
    local own = M.leading(leaves[k])
    if own == nil then
      return nil, "scalar"
    elseif size ~= nil and own ~= size then
      return nil, ("sizes %d and %d"):format(size, own)
    end
    size = own
  end
  return size, size == nil and "nothing" or nil
end

--- batch_size that must be there.
--- Errors: InvalidArgument naming the components.
function M.need_batch_size(pack, what)
  local size, why = M.batch_size(pack)
  if size == nil then
    errors.raise("InvalidArgument", ("%s: every component needs an axis 0 of "
      .. "the same size, got %s"):format(what,
      spec.structure_text(M.spec_of(pack))),
      why == "scalar" and "scalars have none" or nil)
  end
  return size
end

--- Zeros of a component's shape; sizes below 0 become 0.
function M.zeros(s)
  local dims = {}
  for i = 1, s.shape and #s.shape or 0 do
    dims[i] = math.max(s.shape[i], 0)
  end
  if s.dtype == "string" then
    local list = {}
    for i = 1, lists.product(dims) do
      list[i] = ""
    end
    return #dims == 0 and "" or strings.new(list, dims)
  end
  return (raw.tensor_from_values({ 0 }, s.dtype, dims))
end

return M
