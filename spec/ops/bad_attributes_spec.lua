--- Attributes that no tensor of the call's shape allows: axes of a batch,
--- window and block sizes, counts, depths, shapes, positions. Each is an error
--- that shows the value; none reaches a kernel.

local refused = require "spec.support.refused"
local tf = require "tfdist"

local nn, linalg, raw_ops = tf.nn, tf.linalg, tf.raw_ops

local function z(dims, dtype) return tf.zeros(dims, { dtype = dtype }) end

local ROW, MATRIX, CUBE = z { 3 }, z { 2, 3 }, z { 2, 3, 4 }
local IMAGE, FILTER = z { 1, 4, 4, 1 }, z { 3, 3, 1, 1 }
local INDEX = z({ 2 }, "int32")
local INDEX2 = z({ 2, 1 }, "int32")
local BIG = 2 ^ 53
-- The ends of int64, whatever the engine has for numbers.
local LEAST = -2 ^ 63

-- { name, kind of error, words of the message ..., function, arguments ... };
-- the arguments begin behind the function.
local CASES = {
  -- batch axes
  { "gather_nd", "ValueError", "batch_dims is -1", "0 or more", "{2, 1}",
    raw_ops.gather_nd, MATRIX, INDEX2, -1 },
  { "gather_nd", "ValueError", "batch_dims is 2", raw_ops.gather_nd, MATRIX,
    INDEX2, 2 },
  { "gather_nd", "ValueError", "batch_dims is -", raw_ops.gather_nd, MATRIX,
    INDEX2, LEAST },
  { "gather_nd", "ValueError", "batch_dims is -1", tf.gather_nd, MATRIX,
    INDEX2, { batch_dims = -1 } },
  { "gather_nd", "InvalidArgument", "1 batch axes", raw_ops.gather_nd, CUBE,
    z({ 3, 2, 1 }, "int32"), 1 },
  { "gather", "InvalidArgument", "-2 batch axes", tf.gather, MATRIX, INDEX,
    { batch_dims = -2 } },
  { "gather", "InvalidArgument", "2 batch axes", tf.gather, MATRIX, INDEX,
    { batch_dims = 2 } },
  { "gather", "ValueError", "axis 0 is one of the 1 batch axes", tf.gather,
    MATRIX, INDEX2, { batch_dims = 1, axis = 0 } },
  { "gather", "ValueError", "axis lists 2 axes", raw_ops.gather, MATRIX,
    INDEX, { axis = { 0, 1 } } },
  { "gather_grad", "InvalidArgument", "axis 3", raw_ops.gather_grad, MATRIX,
    INDEX, { 2, 3 }, { axis = 3 } },
  { "gather_grad", "InvalidArgument", "axis 0", raw_ops.gather_grad, MATRIX,
    INDEX, { 2, 3 }, { batch_dims = -1 } },
  { "scatter_nd", "ValueError", "batch_dims is -1", raw_ops.scatter_nd,
    z({ 1 }, "int32"), z { 3 }, { 1, 2, 3 }, -1 },
  { "scatter_nd", "ValueError", "batch_dims is 1", raw_ops.scatter_nd,
    z({ 1 }, "int32"), z { 3 }, { 1, 2, 3 }, 1 },
  { "scatter_nd", "InvalidArgument", "{3, 3}", "1 batch axes",
    raw_ops.scatter_nd, INDEX2, z { 2 }, { 3, 3 }, 1 },
  { "scatter_nd", "InvalidArgument", "-2", raw_ops.scatter_nd, INDEX2,
    z { 2, 3 }, { -2, 3 } },

  -- parts
  { "slice", "InvalidArgument", "begin -1", tf.slice, ROW, { -1 }, { 1 } },
  { "slice", "InvalidArgument", "begin -", tf.slice, ROW, { LEAST }, { -1 } },
  { "slice", "InvalidArgument", "size -2", tf.slice, ROW, { 0 }, { -2 } },
  { "slice", "InvalidArgument", "begin 2 and size 9007199254740992",
    tf.slice, ROW, { 2 }, { BIG } },
  { "strided_slice", "InvalidArgument", "strides[0] is 0",
    raw_ops.strided_slice, ROW, { 0 }, { 3 }, { 0 } },
  { "strided_slice", "InvalidArgument", "-", raw_ops.strided_slice, ROW,
    { LEAST }, { BIG }, { 1 } },
  { "strided_slice", "InvalidArgument", "stride -", raw_ops.strided_slice,
    ROW, { BIG }, { LEAST }, { LEAST } },
  { "strided_slice", "InvalidArgument", "{3}", raw_ops.strided_slice, ROW,
    { -1 }, { 3 }, { 1 } },
  { "strided_slice", "ValueError", "shrink_mask is 2",
    raw_ops.strided_slice, ROW, { 0 }, { 1 }, { 1 }, 2 },
  { "strided_slice", "ValueError", "shrink_mask is -1",
    raw_ops.strided_slice, ROW, { 0 }, { 1 }, { 1 }, -1 },
  { "strided_slice_grad", "InvalidArgument", "{4}", "{3}",
    raw_ops.strided_slice_grad, z { 4 }, { 3 }, { 0 }, { 3 }, { 1 } },
  { "split", "InvalidArgument", "-1", tf.split, ROW, -1 },
  { "split", "InvalidArgument", "0 equal", tf.split, ROW, 0 },
  { "split", "InvalidArgument", "9007199254740992", tf.split, ROW, BIG },
  { "split", "InvalidArgument", "{5, -2}", tf.split, ROW, { 5, -2 } },
  { "unstack", "InvalidArgument", "2", tf.unstack, ROW, 2 },
  { "unstack", "InvalidArgument", "-2", tf.unstack, ROW, -2 },

  -- counts
  { "tile", "InvalidArgument", "-1", tf.tile, ROW, { -1 } },
  { "tile", "InvalidArgument", "too large", tf.tile, ROW, { 2 ^ 62 } },
  { "repeat", "InvalidArgument", "-1", tf.repeat_, ROW, -1, 0 },
  { "repeat_", "ValueError", "-1", tf.repeat_, ROW, { 1, -1, 1 }, 0 },
  { "eye", "InvalidArgument", "num_columns is -2", tf.eye, 2, -2 },
  { "eye", "InvalidArgument", "num_rows is -2", tf.eye, -2 },
  { "eye", "InvalidArgument", "-1", tf.eye, 2, 2, { -1 } },
  { "one_hot", "InvalidArgument", "depth is -1", tf.one_hot, INDEX, -1 },
  { "one_hot", "InvalidArgument", "too large", tf.one_hot, INDEX, 2 ^ 62 },
  { "sequence_mask", "InvalidArgument", "maxlen is -1", tf.sequence_mask,
    INDEX, -1 },
  { "range", "InvalidArgument", "0 to 5 in steps of 0", tf.range, 0, 5, 0 },
  { "range", "InvalidArgument", "in steps of -1", tf.range, 0, 5, -1 },
  { "linspace", "ValueError", "num", "at least 1, got 0", tf.linspace, 0, 1, 0 },
  { "linspace", "ValueError", "num", "got -1", tf.linspace, 0, 1, -1 },
  { "top_k", "InvalidArgument", "k is -1", tf.math.top_k, ROW, -1 },
  { "top_k", "InvalidArgument", "k is 9007199254740992", tf.math.top_k, ROW,
    BIG },
  { "bincount", "ValueError", "size is -1", raw_ops.bincount, INDEX, nil,
    -1 },
  { "bincount", "ValueError", "minlength", "got -1", tf.math.bincount, INDEX,
    { minlength = -1 } },
  { "bincount", "TypeError", "maxlength", "got the string", tf.math.bincount,
    INDEX, { maxlength = "2" } },
  { "segment_sum", "InvalidArgument", "num_segments is -1",
    tf.math.unsorted_segment_sum, z { 2 }, INDEX, -1 },
  -- One counter for each segment, even when rows are empty.
  { "segment_sum", "InvalidArgument", "too large",
    tf.math.unsorted_segment_sum, z({ 2, 0 }, "int8"), INDEX, 2 ^ 61 },
  { "segment_select", "InvalidArgument", "too large",
    tf.math.unsorted_segment_max, z({ 2, 0 }, "int8"), INDEX, 2 ^ 61 },
  { "dynamic_partition", "ValueError", "num_partitions", "0",
    tf.dynamic_partition, z { 2 }, INDEX, 0 },
  { "stateless_categorical", "ValueError", "num_samples", "got -1",
    tf.random.stateless_categorical, MATRIX, -1, { 1, 2 } },
  { "confusion_matrix", "ValueError", "num_classes", "-1",
    tf.math.confusion_matrix, INDEX, INDEX, -1 },
  { "where_indices", "InvalidArgument", "-1", raw_ops.where_indices,
    z({ 3 }, "bool"), -1 },

  -- borders
  { "pad", "InvalidArgument", "a padding is -1", tf.pad, ROW, { { -1, 0 } } },
  { "pad", "InvalidArgument", "too large", raw_ops.pad, ROW, { 2 ^ 62 },
    { 2 ^ 62 } },
  { "pad", "InvalidArgument", "REFLECT", "at most 2 of 3", tf.pad, ROW,
    { { 3, 0 } }, "REFLECT" },
  { "pad", "InvalidArgument", "SYMMETRIC", "at most 3 of 3", tf.pad, ROW,
    { { 0, 4 } }, "SYMMETRIC" },
  { "roll", "InvalidArgument", "2 shifts for 1 axes", tf.roll, ROW,
    { 1, 1 }, { 0 } },

  -- diagonals
  { "matrix_diag", "InvalidArgument", "k = 1", linalg.diag, ROW,
    { k = 1, num_rows = 2, num_cols = 2 } },
  { "matrix_diag", "InvalidArgument", "num_rows is -2", linalg.diag, ROW,
    { num_rows = -2 } },
  { "matrix_diag", "InvalidArgument", "k is -9223372036854775808",
    raw_ops.matrix_diag, ROW, LEAST },
  { "matrix_diag", "InvalidArgument", "k is 9007199254740992",
    raw_ops.matrix_diag, ROW, BIG },
  { "matrix_diag_part", "InvalidArgument", "k = 3", linalg.diag_part, MATRIX,
    { k = 3 } },
  { "matrix_diag_part", "InvalidArgument", "k = -2", linalg.diag_part,
    MATRIX, { k = -2 } },
  { "matrix_diag_part", "InvalidArgument", "k = -9223372036854775808",
    raw_ops.matrix_diag_part, MATRIX, LEAST },
  { "matrix_set_diag", "InvalidArgument", "k = -9223372036854775808",
    raw_ops.matrix_set_diag, MATRIX, z { 2 }, LEAST },
  { "matrix_set_diag", "InvalidArgument", "k = 3", raw_ops.matrix_set_diag,
    MATRIX, z { 0 }, 3 },

  -- windows
  { "conv2d", "ValueError", "strides is {-1}", nn.conv2d, IMAGE, FILTER, -1,
    "SAME" },
  { "conv2d", "ValueError", "strides is {9007199254740992}", nn.conv2d,
    IMAGE, FILTER, BIG, "SAME" },
  { "conv2d", "ValueError", "strides is {2, 1, 1, 1}", "batch", nn.conv2d,
    IMAGE, FILTER, { 2, 1, 1, 1 }, "SAME" },
  { "conv2d", "ValueError", "strides is {1, 1, 1}", nn.conv2d, IMAGE, FILTER,
    { 1, 1, 1 }, "SAME" },
  { "conv2d", "ValueError", "dilations is {0}", nn.conv2d, IMAGE, FILTER, 1,
    "SAME", { dilations = 0 } },
  { "conv2d", "ValueError", "dilations is {9007199254740992}", nn.conv2d,
    IMAGE, FILTER, 1, "SAME", { dilations = BIG } },
  { "conv2d", "InvalidArgument", "window of 9", nn.conv2d, IMAGE, FILTER, 1,
    "VALID", { dilations = 4 } },
  { "conv2d", "ValueError", "padding is {-1, 0, 0, 0}", nn.conv2d, IMAGE,
    FILTER, 1, { { 0, 0 }, { -1, 0 }, { 0, 0 }, { 0, 0 } } },
  { "conv2d", "ValueError", "padding is {9007199254740992", nn.conv2d, IMAGE,
    FILTER, 1, { { 0, 0 }, { BIG, 0 }, { 0, 0 }, { 0, 0 } } },
  { "max_pool2d", "ValueError", "ksize is {-2}", nn.max_pool2d, IMAGE, -2, 1,
    "VALID" },
  { "max_pool2d", "ValueError", "ksize is {9007199254740992}",
    nn.max_pool2d, IMAGE, BIG, 1, "SAME" },
  { "avg_pool2d", "InvalidArgument", "window of 6", nn.avg_pool2d, IMAGE, 6,
    1, "VALID" },
  { "avg_pool2d", "ValueError", "padding is 3 and 0 for a window of 2",
    raw_ops.avg_pool2d, IMAGE, 2, 1, "EXPLICIT", "NHWC", { 3, 0, 0, 0 } },
  { "max_pool_grad", "InvalidArgument", "{1, 2, 2, 1}",
    raw_ops.max_pool_grad, IMAGE, IMAGE, IMAGE, 2, 2, "VALID" },
  { "avg_pool_grad", "InvalidArgument", "-4", raw_ops.avg_pool_grad, IMAGE,
    2, 2, "VALID", "NHWC", nil, { 1, -4, 4, 1 } },
  { "conv_backprop_input", "InvalidArgument", "2 numbers",
    raw_ops.conv_backprop_input, FILTER, IMAGE, 1, "SAME",
    { input_sizes = { 1, 4 } } },
  { "conv_backprop_filter", "InvalidArgument", "{3, 3, 0, 1}",
    raw_ops.conv_backprop_filter, IMAGE, IMAGE, 1, "SAME",
    { filter_sizes = { 3, 3, 0, 1 } } },
  { "space_to_depth", "ValueError", "block_size", "0", nn.space_to_depth,
    IMAGE, 0 },
  { "space_to_depth", "InvalidArgument", "3", nn.space_to_depth, IMAGE, 3 },
  { "depth_to_space", "ValueError", "block_size", "-2", nn.depth_to_space,
    IMAGE, -2 },
  { "local_response_normalization", "ValueError", "depth_radius", "-1",
    nn.local_response_normalization, IMAGE, -1 },

  -- normalisation
  { "layer_normalization", "ValueError", "axis 2", nn.layer_normalization,
    MATRIX, { axis = 2 } },
  { "layer_normalization", "ValueError", "epsilon is -1",
    nn.layer_normalization, MATRIX, { epsilon = -1 } },
  { "layer_normalization", "ValueError", "nan",
    nn.layer_normalization, MATRIX, { epsilon = 0 / 0 } },
  { "group_normalization", "ValueError", "groups is 0",
    nn.group_normalization, MATRIX, { groups = 0 } },
  { "group_normalization", "ValueError", "groups is 2",
    nn.group_normalization, MATRIX, { groups = 2 } },
  { "fused_batch_norm", "ValueError", "exponential_avg_factor is 2",
    raw_ops.fused_batch_norm, MATRIX, ROW, ROW, ROW, ROW,
    { exponential_avg_factor = 2 } },
  { "fused_batch_norm", "ValueError", "nan",
    raw_ops.fused_batch_norm, MATRIX, ROW, ROW, ROW, ROW,
    { exponential_avg_factor = 0 / 0 } },

  -- distributions
  { "stateless_uniform", "InvalidArgument", "minval is 2 and maxval is 1",
    tf.random.stateless_uniform, { 2 }, { 1, 2 }, 2, 1 },
  { "stateless_uniform", "InvalidArgument", "nan",
    tf.random.stateless_uniform, { 2 }, { 1, 2 }, 0 / 0, 1 },
  { "dropout", "ValueError", "rate is 1", nn.dropout, ROW, 1 },
  { "dropout", "ValueError", "nan", nn.dropout, ROW, 0 / 0 },
  { "dropout", "ValueError", "rate is -0.1", nn.dropout, ROW, -0.1 },
}

local function split_case(case)
  local words, args = {}, { n = 0 }
  local fn, last = nil, 0
  for i in pairs(case) do last = math.max(last, i) end
  for i = 3, last do
    if fn ~= nil then
      args.n = args.n + 1
      args[args.n] = case[i]
    elseif type(case[i]) == "string" then
      words[#words + 1] = case[i]
    else
      fn = case[i]
    end
  end
  return words, fn, args
end

local unpack = table.unpack or unpack -- luacheck: ignore 113 143

describe("an attribute out of range", function()
  for i, case in ipairs(CASES) do
    it(("is an %s of %s (%d)"):format(case[2], case[1], i), function()
      local words, fn, args = split_case(case)
      words[#words + 1] = case[1]
      refused.check(case[1], case[2], words, function()
        local x = fn(unpack(args, 1, args.n))
        return x
      end)
    end)
  end
end)

describe("an attribute at the end of its range", function()
  it("is allowed", function()
    assert.same({ 1, 3 }, tf.gather_nd({ { 1, 2 }, { 3, 4 } }, { { 0 }, { 0 } },
      { batch_dims = 1 }):totable())
    assert.same({ 1, 2 }, tf.gather({ { 1, 2 }, { 3, 4 } }, 0,
      { batch_dims = 0 }):totable())
    -- An empty list of axes stands for the first axis behind the batch.
    assert.same({ { 1 }, { 4 } }, raw_ops.gather({ { 1, 2 }, { 3, 4 } },
      { { 0 }, { 1 } }, { axis = {}, batch_dims = 1 }):totable())
    assert.same({}, tf.slice({ 1, 2, 3 }, { 3 }, { -1 }):totable())
    assert.same({ 3 }, raw_ops.strided_slice({ 1, 2, 3 }, { 2 }, { BIG },
      { BIG }):totable())
    assert.same({ 1 }, raw_ops.strided_slice({ 1, 2, 3 }, { 0 }, { LEAST },
      { LEAST }):totable())
    assert.same({ { 0, 0 }, { 0, 0 } }, linalg.diag_part(z { 2, 2, 2 })
      :totable())
    assert.same({ { 1, 0 }, { 0, 1 } }, raw_ops.matrix_band_part(tf.eye(2),
      LEAST, 2 ^ 62):totable())
    assert.equal(1, nn.max_pool2d(tf.ones { 1, 4, 4, 1 }, 4, 2 ^ 31 - 1,
      "VALID"):item())
  end)

  it("can be rolled back by the gradient", function()
    for _, shift in ipairs { LEAST, 2 ^ 53, -1, 4 } do
      local x = tf.constant { 1, 2, 3 }
      local tape, y = tf.GradientTape(function(t)
        t:watch(x)
        return tf.roll(x, shift, 0)
      end)
      local dy = tf.constant { 4, 5, 6 }
      local dx = tape:gradient(y, x, { output_gradients = dy })
      assert.equal(tf.reduce_sum(y * dy):item(), tf.reduce_sum(x * dx):item())
    end
  end)
end)
