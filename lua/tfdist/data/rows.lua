--- Data sets whose elements are rows of tensors in memory, in some order.
---
--- Between from_tensor_slices and batch only numbers move (module stream): a
--- batch is one gather for each component, or a view, when the positions follow
--- each other.
---
--- A table of rows has `n`, `spec` (packed, of one row), `batch(self, list, k)`
--- and `row(self, i)`, which give packs.
local convert = require "tfdist.core.convert"
local counts = require "tfdist.data.counts"
local dataset = require "tfdist.data.dataset"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local nest = require "tfdist.base.nest"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local spec = require "tfdist.data.spec"
local stream = require "tfdist.data.stream"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local type, min = type, math.min

-- Columns --------------------------------------------------------------------

-- A column is a component of the source: a tensor, strings, or a progression
-- { start, step, dtype } of numbers.
local Progression = { __name = "progression", is_tf_component = true }

local function is_progression(x)
  return getmetatable(x) == Progression
end

local function column_spec(x)
  if is_progression(x) then
    return spec.new({}, x.dtype)
  end
  return spec.row(spec.of(x))
end

local function column_reader(x)
  if is_progression(x) then
    return function(i)
      return (raw.tensor_from_table(x.start + i * x.step, x.dtype))
    end
  end
  return element.row_reader(x)
end

local function column_batch(x, at, list, k, first)
  if is_progression(x) then
    local values = {}
    for i = 1, k do
      values[i] = x.start + list[i] * x.step
    end
    return (raw.tensor_from_values(values, x.dtype, { k }))
  elseif first ~= nil then
    return element.slice_leaf(x, first, k)
  end
  return element.gather_leaf(x, at, list, k)
end

local Rows = {}
Rows.__index = Rows

--- A table of rows. `pack` is an element whose leaves are columns of n rows.
function M.new(pack, n)
  return setmetatable({
    n = n, pack = pack, columns = element.leaves(pack),
    spec = element.map(column_spec, pack),
  }, Rows)
end

--- The element at position i (from 0).
function Rows:row(i)
  local readers = self.readers
  local out = { n = self.columns.n }
  if readers == nil then
    readers = {}
    for c = 1, out.n do
      readers[c] = column_reader(self.columns[c])
    end
    self.readers = readers
  end
  for c = 1, out.n do
    out[c] = readers[c](i)
  end
  return element.rebuild(self.pack, out)
end

-- The first position when list[1..k] are neighbours in order.
local function run_of(list, k)
  local first = list[1]
  for i = 2, k do
    if list[i] ~= first + i - 1 then
      return nil
    end
  end
  return first
end

--- The batch of list[1..k], k >= 1; list has no more than k entries.
function Rows:batch(list, k)
  local columns = self.columns
  local out = { n = columns.n }
  local first = run_of(list, k)
  local at
  if first == nil then
    at = raw.tensor_from_values(list, "int32", { k })
  end
  for c = 1, columns.n do
    out[c] = column_batch(columns[c], at, list, k, first)
  end
  if at ~= nil then
    raw.release(at)
  end
  return element.rebuild(self.pack, out)
end

-- Sources --------------------------------------------------------------------

local Slices = dataset.stage {}

function Slices.rows(node)
  return node.table_of_rows
end

function Slices.spec(node)
  return node.table_of_rows.spec
end

function Slices.cardinality(node)
  local n = node.table_of_rows.n
  return n == math.huge and dataset.INFINITE or n
end

function Slices.describe(node)
  return node.details
end

function Slices.sample(node)
  local rows = node.table_of_rows
  return rows.n > 0 and rows:row(0) or nil
end

function Slices.items(node)
  return stream.sequence(node.table_of_rows.n)
end

--- True for a source whose rows come in their own order.
function M.is_plain(node)
  return node.rows == Slices.rows
end

--- A data set of the rows of a table.
function M.dataset(name, rows, details)
  return dataset.new(Slices, name, {}, {
    table_of_rows = rows, details = details,
  })
end

-- Columns stay where pipelines work.
local function settled(x)
  if type(x) == "userdata" then
    return raw.retain(raw.tensor_to_device(x, raw.device_at("CPU", 0)))
  end
  return x
end

local function slices_mismatch(what, sizes)
  errors.raise("InvalidArgument", ("%s: the components have %s and %s rows; "
    .. "axis 0 must have the same size in all"):format(what, sizes[1],
    sizes[2]))
end

--- The table of rows of a structure of tensors.
--- Errors: InvalidArgument for scalars and sizes that differ.
function M.from_structure(what, pack)
  local columns = element.leaves(pack)
  local n
  for c = 1, columns.n do
    local x = columns[c]
    local own = element.leading(x)
    if own == nil then
      errors.raise("InvalidArgument", ("%s: component %d is %s, which has no "
        .. "axis 0 to slice"):format(what, c - 1, type(x) == "userdata"
        and "a scalar" or text.describe(x)),
        "from_tensors makes one element of it")
    elseif n ~= nil and own ~= n then
      slices_mismatch(what, { n, own })
    end
    n = own
  end
  if n == nil then
    errors.raise("ValueError", what .. ": there are no components")
  end
  return M.new(element.map(settled, pack), n)
end

-- Component i, from 0. Elements are taken by steps of the host, at the calls of a
-- graph: symbols of its trace have no values there.
local function component(what, i, x)
  local out = element.component(x, what)
  local trace = tracing.current()
  local leaves = trace and element.leaves { out, n = 1 } or { n = 0 }
  for k = 1, leaves.n do
    local t = leaves[k]
    if tracing.is_symbolic(t) then
      errors.raise("NotImplementedError", ("%s inside the traced function "
        .. "\"%s\": component %d is a symbolic %s %s; a data set has tensors "
        .. "whose values are known"):format(what, trace.name, i,
        raw.tensor_dtype(t), text.shape(raw.tensor_dims(t))),
        "make the data set outside, or go over the tensor by tf.map_fn, "
        .. "tf.scan or tf.while_loop")
    end
  end
  return out
end

--- The pack that a structure given by the user is: a list with tensors inside
--- is a tuple, everything else one value.
function M.pack_of(what, x)
  if text.is_plain(x) and element.literal_kind(x, 0) == "structure" then
    local n, keys = nest.layout(x)
    if keys == nil then
      local out = { n = n }
      for i = 1, n do
        if x[i] == nil then
          errors.raise("TypeError", ("%s: component %d is nil"):format(what,
            i - 1))
        end
        out[i] = component(what, i - 1, x[i])
      end
      return out
    end
  end
  return { component(what, 0, x), n = 1 }
end

--- Elements are the rows of tensors: slices along axis 0 of each component. A
--- list with a tensor inside is a tuple of components; a rectangular list of
--- numbers is one tensor; a table with keys gives tables.
--- Shapes: components [n, ...] give n elements [...].
--- Errors: InvalidArgument when sizes of axis 0 differ.
--- Source: tf.data.Dataset.from_tensor_slices
dataset.static("from_tensor_slices", "tensors:nest name=nil", function(x)
  local what = "from_tensor_slices"
  if x == nil then
    errors.raise("TypeError", what .. ": missing argument tensors")
  end
  local rows = dataset.isolated(function()
    return M.from_structure(what, M.pack_of(what, x))
  end)
  return M.dataset(what, rows, rows.n .. " rows")
end)

local whole = counts.whole

-- start, start + step, ... as a column.
local function progression(start, step, dtype)
  return setmetatable({ start = start, step = step, dtype = dtype },
    Progression)
end

--- Numbers start, start + step, ... below stop (above, for a negative step):
--- range(stop), range(start, stop), range(start, stop, step).
--- Source: tf.data.Dataset.range
dataset.static("range", "start=nil stop=nil step=1 output_type='int64' "
  .. "name=nil", function(start, stop, step, output_type)
  local what = "Dataset.range"
  start, stop = options.bounds(what, start, stop, "stop")
  start, stop = whole(what, "start", start), whole(what, "stop", stop)
  step = whole(what, "step", step)
  if step == 0 then
    errors.raise("InvalidArgument", what .. ": step is 0")
  end
  local n = math.max(0, math.ceil((stop - start) / step))
  local column = progression(start, step, convert.dtype(output_type, what))
  local details = text.number(stop)
  if start ~= 0 or step ~= 1 then
    details = text.number(start) .. ", " .. details
      .. (step ~= 1 and ", " .. text.number(step) or "")
  end
  return M.dataset("range", M.new({ column, n = 1 }, n), details)
end)

--- The rows of several plain sources side by side, or nil.
---@param nodes table[]
---@param join fun(packs: table[]): table  one pack of several
function M.side_by_side(nodes, join)
  local n, packs = nil, {}
  for i = 1, #nodes do
    if not M.is_plain(nodes[i]) then
      return nil
    end
    local rows = nodes[i].table_of_rows
    n = n and min(n, rows.n) or rows.n
    packs[i] = rows.pack
  end
  return n and M.new(join(packs), n) or nil
end

--- start, start + step, ... as a column.
function M.counter(start, step, dtype)
  return progression(start, step or 1, dtype or "int64")
end

--- Numbers start, start + step, ... without end.
--- Source: tf.data.Dataset.counter
dataset.static("counter", "start=0 step=1 dtype='int64' name=nil",
  function(start, step, dtype)
    local what = "Dataset.counter"
    start, step = whole(what, "start", start), whole(what, "step", step)
    local column = progression(start, step, convert.dtype(dtype, what))
    return M.dataset("counter", M.new({ column, n = 1 }, math.huge),
      text.number(start) .. ", step " .. text.number(step))
  end)

--- The rows of a stage that passes on those of its input in another order.
function M.of_input(node)
  return dataset.rows_of(node.inputs[1])
end

return M
