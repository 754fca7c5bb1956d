--- Array and linear algebra ops: what the case table cannot say. Views share
--- memory, updates run in place, messages name position and bound, second
--- derivatives.
local tf = require "tfdist"
local leaks = require "spec.support.leaks"
local raw = require "tfdist.core.raw"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

-- The error of a call, or of the work it queued.
local function caught(fn, ...)
  local args, n = { ... }, select("#", ...)
  local ok, e = pcall(function()
    fn(unpack(args, 1, n))
    tf.zeros({}):item() -- waits for everything before it
  end)
  assert.is_false(ok)
  return e
end

local function message(kind, fn, ...)
  local e = caught(fn, ...)
  assert.equal(kind, e.kind)
  return e.message
end

local function matrix()
  return tf.constant { { 1, 2, 3 }, { 4, 5, 6 } }
end

local function bytes()
  return raw.live_bytes()
end

describe("a view", function()
  leaks(before_each, after_each)

  it("takes no memory of its own", function()
    local x = tf.zeros { 64, 64, 4 }
    local before = bytes()
    local views = {
      tf.transpose(x), tf.expand_dims(x, 0), x[{ { 1, 30, 2 } }],
      tf.reverse(x, { 0 }), tf.split(x, 8), tf.unstack(x, { axis = 1 }),
      tf.linalg.diag_part(x), tf.broadcast_to(x, { 9, 64, 64, 4 }),
    }
    assert.equal(before, bytes())
    assert.equal(8, #views)
  end)

  it("of a view counts from its own first element", function()
    local x = tf.reshape(tf.range(24), { 2, 3, 4 })
    local v = tf.transpose(tf.reverse(x, { 0, 2 }))[{ { 1, 4, 2 }, -1 }]
    assert.same({ { 22, 10 }, { 20, 8 } }, v:totable())
    assert.same({ 22, 10, 20, 8 }, tf.reshape(v, { -1 }):totable())
  end)
end)

describe("sums of scattered truths", function()
  leaks(before_each, after_each)

  it("are truths that any true update makes true", function()
    local y = tf.scatter_nd({ { 2 }, { 0 }, { 2 } },
      tf.constant { false, false, true }, { 4 })
    assert.same({ false, false, true, false }, y:totable())
    local dy = tf.constant { true, true, false }
    assert.same({ false, true, true }, tf.raw_ops.gather_grad(dy, { 2, 1, 2 },
      { 3 }):totable())
  end)
end)

describe("an index outside its tensor", function()
  leaks(before_each, after_each)

  it("is named with position and bound", function()
    local x = matrix()
    assert.equal("gather: indices[2] = 7 is outside [0, 2)",
      message("InvalidArgument", tf.gather, x, { 0, 1, 7 }))
    assert.equal("gather: indices = -1 is outside [0, 2)",
      message("InvalidArgument", tf.gather, x, -1))
    assert.equal("gather: indices[1,0] = 3 is outside [0, 3)",
      message("InvalidArgument", tf.gather, x, { { 0 }, { 3 } },
        { axis = 1 }))
    assert.equal("gather_nd: indices[1] = {1, 3} is outside shape {2, 3}",
      message("InvalidArgument", tf.gather_nd, x, { { 0, 0 }, { 1, 3 } }))
    assert.equal("scatter_nd: indices[0] = {5} is outside shape {4}",
      message("InvalidArgument", tf.scatter_nd, { { 5 } }, { 1 }, { 4 }))
    assert.equal("segment_sum: segment_ids[1] = 4 is outside [0, 2)",
      message("InvalidArgument", tf.math.unsorted_segment_sum, x, { 0, 4 },
        2))
    assert.equal("segment_sum: segment_ids must not fall, but "
      .. "segment_ids[0] = 1 is above the last, 0",
      message("InvalidArgument", tf.math.segment_sum, matrix(), { 1, 0 }))
    assert.equal("dynamic_partition: partitions[1] = 2 is outside [0, 2)",
      message("InvalidArgument", tf.dynamic_partition, x, { 0, 2 }, 2))
    for dtype, at in pairs { bool = { true, false }, float32 = tf.ones { 2 } } do
      assert.equal(("dynamic_partition: partitions has dtype %s; expected an "
        .. "integer dtype"):format(dtype),
        message("InvalidArgument", tf.dynamic_partition, x, at, 2))
      assert.equal(("dynamic_stitch: indices has dtype %s; expected an "
        .. "integer dtype"):format(dtype),
        message("InvalidArgument", tf.dynamic_stitch, { at }, { x }))
    end
    assert.equal("invert_permutation: 1 occurs twice in x",
      message("InvalidArgument", tf.math.invert_permutation, { 1, 1 }))
  end)

  it("leaves the variable as it was", function()
    local v = tf.Variable { 1, 2, 3 }
    local e = caught(v.scatter_nd_update, v, { { 0 }, { 9 } }, { 7, 7 })
    assert.equal("InvalidArgument", e.kind)
    assert.same({ 1, 2, 3 }, v:read_value():totable())
  end)

  it("of a one-hot code and of a mask may be of any whole dtype", function()
    for _, dtype in ipairs { "uint8", "int8", "int16", "int32", "int64" } do
      local n = tf.constant({ 0, 2 }, { dtype = dtype })
      assert.same({ { 1, 0, 0 }, { 0, 0, 1 } }, tf.one_hot(n, 3):totable())
      assert.same({ { false, false }, { true, true } },
        tf.sequence_mask(n):totable())
      assert.same({ { 0, 0, 0 }, { 1, 1, 0 } }, tf.sequence_mask(n, 3, "int32")
        :totable())
    end
    for _, fn in ipairs { tf.one_hot, tf.sequence_mask } do
      assert.equal("InvalidArgument", caught(fn, tf.ones { 2 }, 3).kind)
    end
  end)

  it("of a one-hot code gives zeros", function()
    assert.same({ { 0, 0 }, { 0, 0 }, { 1, 0 } },
      tf.one_hot({ -1, 2, 0 }, 2):totable())
  end)
end)

describe("a shape that does not fit", function()
  leaks(before_each, after_each)

  it("is named", function()
    local x = matrix()
    assert.equal("concat: values[0] has shape {2, 3} and values[1] has {3}; "
      .. "they may differ along the axis only",
      message("InvalidArgument", tf.concat, { x, x[0] }, 0))
    assert.equal("concat: values[0] is float32 and values[1] is int32; all "
      .. "must have the same dtype (use tf.cast)",
      message("InvalidArgument", tf.concat, { x, tf.cast(x, "int32") }, 0))
    assert.equal("stack: values[0] has shape {3} and values[1] has {2, 3}; "
      .. "all must be equal",
      message("InvalidArgument", tf.stack, { x[0], x }))
    assert.equal("split: axis 1 of {2, 3} cannot be cut into 2 equal pieces",
      message("InvalidArgument", tf.split, x, 2, 1))
    assert.equal("split: pieces of sizes {1, 4} do not make up axis 1 of "
      .. "{2, 3}", message("InvalidArgument", tf.split, x, { 1, 4 }, 1))
    assert.equal("transpose: perm {0, 0} does not name each axis of a tensor "
      .. "of rank 2 {2, 3} once",
      message("ValueError", tf.transpose, x, { 0, 0 }))
    assert.equal("squeeze: axis 0 of {2, 3} has size 2; only axes of size 1 "
      .. "can go", message("InvalidArgument", tf.squeeze, x, { 0 }))
    assert.equal("slice: axis 1: begin 2 and size 2 do not fit a tensor of "
      .. "shape {2, 3}",
      message("InvalidArgument", tf.slice, x, { 0, 2 }, { 1, 2 }))
    assert.equal("pad: axis 0: paddings 2 and 0; mode REFLECT mirrors at most "
      .. "1 of 2 elements",
      message("InvalidArgument", tf.pad, x, { { 2, 0 }, { 0, 0 } },
        "REFLECT"))
    assert.equal("top_k: k is 4, but the last axis of {2, 3} has 3 elements",
      message("InvalidArgument", tf.math.top_k, x, 4))
    assert.same({ 0, 1, 2, 3 }, tf.range({ limit = 4 }):totable())
    assert.same({ 1, 3 }, tf.range(1, { limit = 4, delta = 2 }):totable())
    assert.equal("range: missing argument limit", message("TypeError",
      tf.range))
    assert.equal("range: from 1 to 5 is not possible in steps of -1",
      message("InvalidArgument", tf.range, 1, 5, -1))
    assert.equal("boolean_mask: mask {3} does not fit the shape {2, 3} from "
      .. "axis 0 on",
      message("InvalidArgument", tf.boolean_mask, x, { true, false, true }))
    assert.equal("strided_slice: begin_mask must be a whole number, got true",
      message("TypeError", tf.strided_slice, x, { 0 }, { 1 }, nil,
        tf.constant(true)))
    assert.equal("strided_slice: end_mask is -1; bits are those of a whole "
      .. "number from 0 on",
      message("ValueError", tf.strided_slice, x, { 0 }, { 1 }, nil, 0, -1))
    assert.equal("tensor_scatter_nd_update: updates have shape {1}; the "
      .. "indices ask for {1, 3}",
      message("InvalidArgument", tf.tensor_scatter_nd_update, x, { { 0 } },
        { 1 }))
  end)

  it("cannot reach memory through the ops of gradients", function()
    local x = matrix()
    assert.equal("InvalidArgument", caught(tf.raw_ops.strided_slice_grad, x,
      { 2, 3 }, { 1, 0 }, { 3, 3 }, { 1, 1 }).kind)
    assert.equal("InvalidArgument", caught(tf.raw_ops.gather_grad, x,
      { 0, 1, 2 }, { 4, 3 }).kind)
    assert.equal("InvalidArgument", caught(tf.raw_ops.where_indices,
      { true, true }, 1).kind)
  end)
end)

describe("a matrix that cannot be done", function()
  leaks(before_each, after_each)

  it("is named with its place in the batch", function()
    local batch = tf.constant { { { 1, 0 }, { 0, 1 } }, { { 1, 2 }, { 2, 4 } } }
    assert.equal("matrix_inverse: matrix 1 of the batch is not invertible",
      message("InvalidArgument", tf.linalg.inv, batch))
    assert.equal("matrix_solve: the matrix is not invertible",
      message("InvalidArgument", tf.linalg.solve, batch[1], { { 1 }, { 1 } }))
    assert.equal("cholesky: the matrix is not positive definite",
      message("InvalidArgument", tf.linalg.cholesky, -batch[0]))
    assert.equal("triangular_solve: the matrix is not invertible: its "
      .. "diagonal has a 0",
      message("InvalidArgument", tf.linalg.triangular_solve,
        { { 0, 0 }, { 1, 1 } }, { { 1 }, { 1 } }))
    assert.equal("matrix_inverse: input has shape {2, 3}; expected square "
      .. "matrices {..., n, n}",
      message("InvalidArgument", tf.linalg.inv, matrix()))
    assert.equal("cholesky: input has dtype int32; expected float32 or "
      .. "float64",
      message("InvalidArgument", tf.linalg.cholesky,
        tf.cast(batch, "int32")))
  end)
end)

describe("an equation that does not fit", function()
  leaks(before_each, after_each)

  it("is a ValueError that names the label", function()
    local x = matrix()
    assert.equal("einsum: label j has size 2 in tensor 1 and 3 before",
      message("ValueError", tf.einsum, "ij,jk->ik", x, x))
    assert.equal("einsum: label z of the result is in no term",
      message("ValueError", tf.einsum, "ij->iz", x))
    assert.equal("einsum: \"ij,jk\" has 2 terms, 1 tensors are given",
      message("ValueError", tf.einsum, "ij,jk", x))
    assert.equal("einsum: \"ijk\" does not fit tensor 0 of shape {2, 3}",
      message("ValueError", tf.einsum, "ijk->", x))
  end)
end)

describe("an update of a variable", function()
  leaks(before_each, after_each)

  it("runs in place while nobody else holds the value", function()
    local v = tf.Variable(tf.zeros { 1000, 8 })
    raw.collect()
    local before = bytes()
    v:scatter_nd_add({ { 3 }, { 3 } }, tf.ones { 2, 8 })
    assert.equal(2, v[3][0]:item()) -- waits: queued updates keep the old value
    collectgarbage()
    collectgarbage()
    assert.is_true(bytes() <= before)
  end)

  it("leaves a value that was read before as it was", function()
    local v = tf.Variable { 1, 2, 3 }
    local old = v:read_value()
    v:scatter_nd_update({ { 1 } }, { 9 })
    assert.same({ 1, 2, 3 }, old:totable())
    assert.same({ 1, 9, 3 }, v:read_value():totable())
  end)

  it("takes rows one after the other", function()
    local v = tf.Variable { { 8, 8 }, { 4, 4 } }
    raw.variable_update(v, raw.op_find "scatter_div",
      { tf.constant({ 0, 0, 1 }, "int32"),
        tf.constant { { 2, 4 }, { 2, 1 }, { 4, 2 } }, n = 2 })
    assert.same({ { 2, 2 }, { 1, 2 } }, v:read_value():totable())
    v:scatter_update(tf.IndexedSlices({ { 7, 7 } },
      tf.constant({ 0 }, "int32"), { 2, 2 }))
    assert.same({ { 7, 7 }, { 1, 2 } }, v:read_value():totable())
  end)
end)

describe("the gradient of gather along axis 0", function()
  leaks(before_each, after_each)

  it("is sparse, and sums rows that occur twice when made dense", function()
    local table_ = tf.Variable(tf.ones { 5, 2 })
    local loss
    local tape = tf.GradientTape(function()
      loss = tf.reduce_sum(tf.gather(table_, { 1, 4, 1 })
        * tf.constant { { 1, 2 }, { 3, 4 }, { 5, 6 } })
    end)
    local g = tape:gradient(loss, table_)
    assert.equal("slices", raw.kind(g))
    assert.same({ { 0, 0 }, { 6, 8 }, { 0, 0 }, { 0, 0 }, { 3, 4 } },
      tf.convert_to_tensor(g):totable())
  end)
end)

-- Second derivatives: d/dx of sum(w * gradient) against differences of the
-- gradient. Steps of 1e-5 in float64 leave errors of about 1e-9.
describe("the second derivative", function()
  leaks(before_each, after_each)

  local function gradient_of(f, x)
    local y
    local tape = tf.GradientTape(function(t)
      t:watch(x)
      y = f(x)
    end)
    return tf.convert_to_tensor(tape:gradient(y, x))
  end

  local function check(name, f, values, tolerance)
    local x = tf.constant(values, "float64")
    local w = tf.math.cos(tf.cast(tf.reshape(tf.range(tf.size(x):item()),
      x.shape), "float64"))
    local function projected(at)
      return tf.reduce_sum(gradient_of(f, at) * w)
    end
    local got = tf.reshape(gradient_of(projected, x), { -1 }):totable()
    local n = #got
    for i = 1, n do
      local step = tf.reshape(tf.one_hot(i - 1, n, { dtype = "float64" })
        * 1e-5, x.shape)
      local want = (projected(x + step) - projected(x - step)):item() / 2e-5
      assert(math.abs(got[i] - want) < tolerance * (1 + math.abs(want)),
        ("%s: element %d is %.10g, differences give %.10g"):format(name,
          i - 1, got[i], want))
    end
  end

  local A = { { 2, 0.5, -0.3 }, { 0.1, 1.5, 0.4 }, { -0.2, 0.6, 3 } }
  local V = { 0.3, -1.2, 0.7, 2.1, 0.4 }

  local cases = {
    slice = { V, function(x) return tf.reduce_prod(tf.slice(x, 1, 3)) end },
    strided = { V, function(x)
      return tf.reduce_prod(x[{ { nil, nil, -2 } }])
    end },
    pad = { V, function(x)
      return tf.reduce_sum(tf.pad(x, { { 2, 3 } }, "REFLECT") ^ 3)
    end },
    gather = { V, function(x)
      return tf.reduce_prod(tf.gather(x, { 0, 2, 2 }))
    end },
    gather_axis = { A, function(x)
      return tf.reduce_prod(tf.gather(x, { 0, 2 }, { axis = 1 }))
    end },
    gather_nd = { A, function(x)
      return tf.reduce_prod(tf.gather_nd(x, { { 0, 1 }, { 2, 2 }, { 0, 1 } }))
    end },
    concat = { V, function(x)
      return tf.reduce_prod(tf.concat({ x, x * x }, 0))
    end },
    stack = { V, function(x)
      return tf.reduce_sum(tf.reduce_prod(tf.stack { x, x * x }, 0) ^ 2)
    end },
    tile = { V, function(x) return tf.reduce_sum(tf.tile(x, { 3 }) ^ 3) end },
    sort = { V, function(x)
      return tf.reduce_sum(tf.sort(x) ^ 3 * { 1, 2, 3, 4, 5 })
    end },
    top_k = { V, function(x)
      return tf.reduce_prod((tf.math.top_k(x, 3)))
    end },
    scatter = { V, function(x)
      return tf.reduce_sum(tf.scatter_nd({ { 1 }, { 0 }, { 1 }, { 2 }, { 0 } },
        x * x, { 4 }) ^ 2)
    end },
    segment = { V, function(x)
      return tf.reduce_sum(tf.math.segment_mean(x, { 0, 0, 1, 1, 1 }) ^ 3)
        + tf.reduce_sum(tf.math.segment_max(x, { 0, 0, 1, 1, 1 }) ^ 3)
        + tf.reduce_sum(tf.math.segment_prod(x, { 0, 0, 1, 1, 1 }) ^ 2)
    end },
    set_diag = { A, function(x)
      return tf.reduce_sum(tf.linalg.set_diag(x ^ 2,
        tf.linalg.diag_part(x) ^ 3) ^ 2)
    end },
    inverse = { A, function(x) return tf.reduce_sum(tf.linalg.inv(x)) end },
    solve = { A, function(x)
      return tf.reduce_sum(tf.linalg.solve(x, x * x))
    end },
    determinant = { A, function(x) return tf.linalg.det(x) end },
    slogdet = { A, function(x)
      local _, logarithm = tf.linalg.slogdet(x)
      return logarithm
    end },
    cholesky = { A, function(x)
      local l = tf.linalg.cholesky(tf.matmul(x, x, { transpose_b = true }))
      return tf.reduce_sum(l * l * l)
    end },
    triangular = { A, function(x)
      return tf.reduce_sum(tf.linalg.triangular_solve(x, x * x) ^ 2)
    end },
    eigenvalues = { A, function(x)
      return tf.reduce_sum(tf.linalg.eigvalsh(x + tf.transpose(x)) ^ 3)
    end },
    singular_values = { A, function(x)
      return tf.reduce_sum(tf.linalg.svd(x, false, false) ^ 3)
    end },
    norm = { A, function(x)
      return tf.norm(x) ^ 3 + tf.reduce_sum(tf.math.l2_normalize(x, 1) ^ 3)
    end },
    einsum = { A, function(x)
      return tf.reduce_sum(tf.einsum("ij,jk,kl->il", x, x, x))
    end },
  }
  for name, case in pairs(cases) do
    it("of " .. name .. " agrees with differences", function()
      check(name, case[2], case[1], 1e-6)
    end)
  end
end)

-- Work that only the device's thread sees: failures come at the next wait.
describe("queued work", function()
  it("reports an index when the result is read", function()
    local ok, e = pcall(function()
      return tf.gather({ 1, 2 }, { 5 }):totable()
    end)
    assert.is_false(ok)
    assert.equal("InvalidArgument", e.kind)
    assert.equal("gather: indices[0] = 5 is outside [0, 2)", e.message)
  end)
end)
