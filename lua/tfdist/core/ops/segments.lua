--- Rows of tensors by number: reductions of segments, partitions and their
--- inverse.
local convert = require "tfdist.core.convert"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local shape_of, dims_text = tensor.shape_of, text.shape
local known_shape_of = tensor.known_shape_of

local function fail(kind, message, ...)
  errors.raise(kind, text.format(message, ...))
end

-- Segments ------------------------------------------------------------------

local function define_segments(tf, def)
  local ops = tf.raw_ops
  local KINDS = { prod = "PROD", min = "MIN", max = "MAX" }

  local function reduce(kind, data, ids, n, sorted)
    if KINDS[kind] then
      return ops.segment_select(data, ids, n, KINDS[kind], sorted)
    end
    return ops.segment_sum(data, ids, n, kind == "mean", sorted)
  end

  for _, kind in ipairs { "sum", "mean", "prod", "min", "max" } do
    -- Rows that share an id, ids in rising order; result row i is segment i.
    local name = "segment_" .. kind
    def("math." .. name, "data segment_ids name=nil", function(data, ids)
      ids = convert.index_operand(ids, name, "segment_ids")
      local t = raw.operand_tensor(ids)
      local size = raw.tensor_size(t)
      local n = 0
      if size > 0 and raw.tensor_dtype(t) ~= "bool" then
        tracing.need_values(name, "segment_ids", t, ("use tf.math.unsorted_%s "
          .. "with num_segments"):format(name))
        n = raw.item(t, size - 1) + 1
      end
      return reduce(kind, data, ids, math.max(n, 0), true)
    end)
    -- Ids in any order, of any rank; ids below 0 leave a row out.
    def("math.unsorted_" .. name, "data segment_ids num_segments name=nil",
      function(data, ids, n)
        return reduce(kind, data, ids, n, false)
      end)
  end

  --- Sums divided by the square root of the number of rows.
  --- Source: tf.math.unsorted_segment_sqrt_n
  def("math.unsorted_segment_sqrt_n",
    "data segment_ids num_segments name=nil", function(data, ids, n)
      data = convert.operand(data, nil, "unsorted_segment_sqrt_n", "data")
      ids = convert.index_operand(ids, "unsorted_segment_sqrt_n",
        "segment_ids")
      local total = reduce("sum", data, ids, n)
      local dims = shape_of(total)
      for i = 2, #dims do
        dims[i] = 1
      end
      local ones = tf.ones_like(ids, raw.tensor_dtype(raw.operand_tensor(data)))
      local counts = tf.maximum(reduce("sum", ones, ids, n), 1)
      return total / tf.reshape(tf.sqrt(counts), dims)
    end)
end

-- Partitions ----------------------------------------------------------------

local function define_partition(tf, def)
  --- Rows of data by the partition they belong to, as a list of tensors.
  --- Blocks: until partitions is computed. Source: tf.dynamic_partition
  def("dynamic_partition", "data partitions num_partitions name=nil",
    function(data, partitions, n)
      local what = "dynamic_partition"
      options.integer(what, "num_partitions", n, 1, 65536)
      data = convert.operand(data, nil, what, "data")
      partitions = convert.whole_operand(partitions, what, "partitions")
      local dims, part_dims = known_shape_of(data, what),
        known_shape_of(partitions, what)
      local rows = { lists.product(part_dims) }
      for i = 1, #dims do
        if i <= #part_dims and dims[i] ~= part_dims[i] or #part_dims > #dims
        then
          fail("InvalidArgument", "%s: partitions %s do not fit data %s", what,
            dims_text(part_dims), dims_text(dims))
        elseif i > #part_dims then
          rows[#rows + 1] = dims[i]
        end
      end
      local chosen = {}
      for i = 1, n do
        chosen[i] = {}
      end
      partitions = raw.operand_tensor(partitions)
      tracing.need_values(what, "partitions", partitions)
      local flat = raw.tensor_to_flat(partitions)
      for i = 1, #flat do
        local list = chosen[flat[i] + 1]
        if list == nil then
          tracing.refuse_values("InvalidArgument", ("%s: partitions[%d] = %s is "
            .. "outside [0, %d)"):format(what, i - 1, text.number(flat[i]), n))
        else
          list[#list + 1] = i - 1
        end
      end
      data = tf.reshape(data, rows)
      for i = 1, n do
        chosen[i] = tf.gather(data, tf.constant(chosen[i], "int32"))
      end
      return chosen
    end)
end

local function define_stitch(tf, def)
  local ops = tf.raw_ops

  --- The inverse: row indices[k][i] of the result is data[k][i]; where an index
  --- occurs twice the last one counts. Source: tf.dynamic_stitch
  def("dynamic_stitch", "indices data name=nil", function(indices, data)
    local what = "dynamic_stitch"
    local all_rows, all_data = {}, {}
    local _, count = options.list(what, "indices", indices, "tensors")
    local _, others = options.list(what, "data", data, "tensors")
    if count ~= others or count == 0 then
      fail("InvalidArgument", "%s: %d tensors of indices and %d of data; "
        .. "expected as many of both, and one at least", what, count, others)
    end
    for k = 1, count do
      local at = convert.whole_operand(indices[k], what, "indices")
      local x = convert.operand(data[k], nil, what, "data")
      local dims = known_shape_of(x, what)
      local rows = { -1 }
      for i = #shape_of(at) + 1, #dims do
        rows[#rows + 1] = dims[i]
      end
      all_rows[k] = tf.reshape(at, { -1 })
      all_data[k] = tf.reshape(x, rows)
    end
    local at, rows = tf.concat(all_rows, 0), tf.concat(all_data, 0)
    local dims = shape_of(rows)
    if dims[1] > 0 then
      tracing.need_values(what, "indices", at)
      dims[1] = tf.reduce_max(at):item() + 1
    end
    return tf.tensor_scatter_nd_update(
      ops.fill(dims, 0, raw.tensor_dtype(raw.operand_tensor(rows))),
      tf.expand_dims(at, -1), rows)
  end)
end

function M.define(tf, def)
  define_segments(tf, def)
  define_partition(tf, def)
  define_stitch(tf, def)
end

return M
