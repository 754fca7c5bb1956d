--- Names of the linear algebra ops, and the functions that are made of them:
--- norms, diagonals, solvers, contractions.
local convert = require "tfdist.core.convert"
local einsum = require "tfdist.core.ops.einsum"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local tensor = require "tfdist.core.tensor"
local text = require "tfdist.base.text"

local M = {}

M.functions = {
  matrix_inverse = "linalg.inv",
  matrix_determinant = "linalg.det",
  slogdet = "linalg.slogdet",
  cholesky = "linalg.cholesky",
  cross = "linalg.cross",
}

M.methods = {}

local function fail(kind, message, ...)
  errors.raise(kind, text.format(message, ...))
end

local part, product = lists.copy, lists.product
local shape_of, dims_text = tensor.shape_of, text.shape
local known_shape_of = tensor.known_shape_of

local function joined(a, b)
  return lists.append(lists.copy(a), b)
end

-- Operands of one dtype: Lua numbers take that of the tensors.
local function operands(what, a, a_name, b, b_name)
  local dtype = convert.common_dtype({ a, b }, 2)
  return convert.operand(a, dtype, what, a_name),
    convert.operand(b, dtype, what, b_name)
end

-- Solvers -------------------------------------------------------------------

-- Both with the batch axes that their batches broadcast to.
local function same_batch(tf, what, a, b)
  local x, y = shape_of(a), shape_of(b)
  if #x < 2 or #y < 2 then
    fail("InvalidArgument", "%s: matrix %s and rhs %s; expected rank 2 or more",
      what, dims_text(x), dims_text(y))
  elseif #x > 2 or #y > 2 then
    x, y = known_shape_of(a, what), known_shape_of(b, what)
  end
  local batch = tf.broadcast_static_shape(part(x, 1, #x - 2),
    part(y, 1, #y - 2))
  local function widened(t, dims)
    local full = joined(batch, part(dims, #dims - 1, #dims))
    return dims_text(full) == dims_text(dims) and t
      or tf.broadcast_to(t, full)
  end
  return widened(a, x), widened(b, y)
end

local function define_solvers(tf, def)
  local ops = tf.raw_ops

  --- x with matrix x = rhs, by LU with row exchanges; batches broadcast.
  --- Shapes: matrix {..., n, n}, rhs and result {..., n, k}.
  --- Errors: InvalidArgument for a singular matrix. Source: tf.linalg.solve
  def("linalg.solve", "matrix rhs adjoint=false name=nil",
    function(a, b, adjoint)
      a, b = operands("solve", a, "matrix", b, "rhs")
      a, b = same_batch(tf, "solve", a, b)
      return ops.matrix_solve(a, b, adjoint)
    end)

  --- The same for a triangular matrix, of which the other half is not read.
  --- Source: tf.linalg.triangular_solve
  def("linalg.triangular_solve", "matrix rhs lower=true adjoint=false name=nil",
    function(a, b, lower, adjoint)
      a, b = operands("triangular_solve", a, "matrix", b, "rhs")
      a, b = same_batch(tf, "triangular_solve", a, b)
      return ops.triangular_solve(a, b, lower, adjoint)
    end)

  local function cholesky_solve(l, b)
    local y = ops.triangular_solve(l, b, true, false)
    return ops.triangular_solve(l, y, true, true)
  end

  --- x with L transpose(L) x = rhs, where chol is L.
  --- Source: tf.linalg.cholesky_solve
  def("linalg.cholesky_solve", "chol rhs name=nil", function(l, b)
    l, b = operands("cholesky_solve", l, "chol", b, "rhs")
    l, b = same_batch(tf, "cholesky_solve", l, b)
    return cholesky_solve(l, b)
  end)

  --- The x of least |matrix x - rhs|^2 + l2_regularizer |x|^2, by the normal
  --- equations; for wide matrices the smallest x. Both are as accurate as the
  --- square of the condition number allows. Source: tf.linalg.lstsq(fast=True)
  def("linalg.lstsq", "matrix rhs l2_regularizer=0 fast=true name=nil",
    function(a, b, l2, fast)
      if not fast then
        fail("NotImplementedError", "lstsq: only fast = true")
      end
      a, b = operands("lstsq", a, "matrix", b, "rhs")
      a, b = same_batch(tf, "lstsq", a, b)
      local dims = known_shape_of(a, "lstsq")
      local m, n = dims[#dims - 1], dims[#dims]
      local at = ops.matrix_transpose(a)
      local square = m >= n and tf.matmul(at, a) or tf.matmul(a, at)
      square = square + tf.eye(math.min(m, n), { dtype = a.dtype }) * l2
      local l = tf.linalg.cholesky(square)
      if m >= n then
        return cholesky_solve(l, tf.matmul(at, b))
      end
      return tf.matmul(at, cholesky_solve(l, b))
    end)

  --- Logarithm of the determinant of positive definite matrices.
  --- Source: tf.linalg.logdet
  def("linalg.logdet", "matrix name=nil", function(a)
    local diagonal = ops.matrix_diag_part(tf.linalg.cholesky(a))
    return tf.reduce_sum(tf.math.log(diagonal), -1) * 2
  end)
end

-- Factorisations ------------------------------------------------------------

local function define_factors(tf, def)
  local ops = tf.raw_ops

  --- Eigenvalues in rising order and eigenvectors (columns) of symmetric
  --- matrices, of which the lower triangle is read.
  --- Shapes: {..., n, n} gives {..., n} and {..., n, n}.
  --- Source: tf.linalg.eigh
  def("linalg.eigh self_adjoint_eig", "tensor name=nil", function(x)
    return ops.self_adjoint_eig(x)
  end)

  --- The eigenvalues alone. Source: tf.linalg.eigvalsh
  def("linalg.eigvalsh self_adjoint_eigvals", "tensor name=nil", function(x)
    return (ops.self_adjoint_eig(x))
  end)

  --- Singular values from the largest down, left and right singular vectors
  --- (columns): x = u diag(s) transpose(v).
  --- Shapes: {..., m, n} gives {..., k}, {..., m, k}, {..., n, k} with k the
  ---   smaller of m and n.
  --- Source: tf.linalg.svd
  def("linalg.svd", "tensor full_matrices=false compute_uv=true name=nil",
    function(x, full, vectors)
      if full and vectors then
        fail("NotImplementedError", "svd: only full_matrices = false")
      end
      if vectors then
        return ops.svd(x)
      end
      return (ops.svd(x))
    end)

  --- Orthogonal q and upper triangular r with x = q r.
  --- Shapes: {..., m, n} gives {..., m, k} and {..., k, n}, k the smaller of m
  ---   and n, or m with full_matrices. Source: tf.linalg.qr
  def("linalg.qr", "input full_matrices=false name=nil", function(x, full)
    return ops.qr(x, full)
  end)
end

local function define_rank(tf, def)
  local ops = tf.raw_ops

  local function epsilon(x)
    return raw.tensor_dtype(raw.operand_tensor(x)) == "float64" and 2 ^ -52
      or 2 ^ -23
  end

  --- Moore-Penrose inverse: singular values up to rcond times the largest
  --- count as 0. Source: tf.linalg.pinv
  def("linalg.pinv", "a rcond=nil validate_args=false name=nil",
    function(x, rcond)
      x = convert.operand(x, nil, "pinv", "a")
      local dims = known_shape_of(x, "pinv")
      local s, u, v = ops.svd(x)
      rcond = rcond or 10 * math.max(dims[#dims - 1], dims[#dims]) * epsilon(x)
      local cut = tf.reduce_max(s, -1, true) * rcond
      local inverse = tf.where(tf.greater(s, cut), tf.math.reciprocal(s),
        tf.zeros_like(s))
      return tf.matmul(v * tf.expand_dims(inverse, -2), u,
        { transpose_b = true })
    end)

  --- Number of singular values above `tol`, as int32. Source:
  --- tf.linalg.matrix_rank
  def("linalg.matrix_rank", "a tol=nil validate_args=false name=nil",
    function(x, tol)
      x = convert.operand(x, nil, "matrix_rank", "a")
      local dims = known_shape_of(x, "matrix_rank")
      local s = ops.svd(x)
      tol = tol or tf.reduce_max(s, -1, true)
        * (math.max(dims[#dims - 1], dims[#dims]) * epsilon(x))
      return tf.reduce_sum(tf.cast(tf.greater(s, tol), "int32"), -1)
    end)
end

-- Diagonals -----------------------------------------------------------------

local function one_diagonal(what, k)
  if type(k) == "number" then
    return k
  end
  k = convert.integers(k, what, "k")
  if #k == 2 and k[1] ~= k[2] then
    fail("NotImplementedError", "%s: k names several diagonals; one at a "
      .. "time", what)
  end
  return k[1]
end

local function define_diagonals(tf, def)
  local ops = tf.raw_ops

  --- Matrices with the given diagonals: {..., n} gives {..., n, n}.
  --- Source: tf.linalg.diag
  def("linalg.diag", "diagonal name=nil k=0 num_rows=-1 num_cols=-1 "
    .. "padding_value=0 align='RIGHT_LEFT'",
    function(x, _, k, rows, columns, padding)
      return ops.matrix_diag(x, one_diagonal("diag", k), rows, columns,
        padding)
    end)

  --- A view of diagonal k of each matrix. Source: tf.linalg.diag_part
  def("linalg.diag_part", "input name=nil k=0 padding_value=0 "
    .. "align='RIGHT_LEFT'", function(x, _, k)
      return ops.matrix_diag_part(x, one_diagonal("diag_part", k))
    end)

  --- The matrices with diagonal k replaced. Source: tf.linalg.set_diag
  def("linalg.set_diag", "input diagonal name=nil k=0 align='RIGHT_LEFT'",
    function(x, diagonal, _, k)
      return ops.matrix_set_diag(x, diagonal, one_diagonal("set_diag", k))
    end)

  --- What lies within num_lower diagonals below and num_upper above the main
  --- one, zeros elsewhere; -1 keeps a whole triangle.
  --- Source: tf.linalg.band_part
  def("linalg.band_part", "input num_lower num_upper name=nil",
    function(x, lower, upper)
      return ops.matrix_band_part(x, lower, upper)
    end)

  --- Sum of each main diagonal. Source: tf.linalg.trace
  def("linalg.trace", "x name=nil", function(x)
    return tf.reduce_sum(ops.matrix_diag_part(x), -1)
  end)
end

local function define_tensor_diagonals(tf, def)
  local ops = tf.raw_ops

  --- Shape d gives shape d .. d with the elements on the diagonal.
  --- Source: tf.linalg.tensor_diag
  def("linalg.tensor_diag", "diagonal name=nil", function(x)
    x = convert.operand(x, nil, "tensor_diag", "diagonal")
    local dims = known_shape_of(x, "tensor_diag")
    return tf.reshape(ops.matrix_diag(tf.reshape(x, { -1 })),
      joined(dims, dims))
  end)

  --- The inverse of tensor_diag. Source: tf.linalg.tensor_diag_part
  def("linalg.tensor_diag_part", "input name=nil", function(x)
    x = convert.operand(x, nil, "tensor_diag_part", "input")
    local dims = known_shape_of(x, "tensor_diag_part")
    local half = part(dims, 1, math.floor(#dims / 2))
    if #dims == 0 or dims_text(joined(half, half)) ~= dims_text(dims) then
      fail("InvalidArgument", "tensor_diag_part: the input has shape %s; "
        .. "expected a shape twice in a row", dims_text(dims))
    end
    local n = product(half, 1, #half)
    return tf.reshape(ops.matrix_diag_part(tf.reshape(x, { n, n })), half)
  end)

  --- A view with the last two axes exchanged.
  --- Source: tf.linalg.matrix_transpose
  def("linalg.matrix_transpose", "a name=nil conjugate=false", function(a)
    return ops.matrix_transpose(a)
  end)

  --- The same: dtypes are real. Source: tf.linalg.adjoint
  def("linalg.adjoint", "matrix name=nil", function(a)
    return ops.matrix_transpose(a)
  end)
end

-- Norms ---------------------------------------------------------------------

-- 1, 2, math.huge, another number, or "euclidean".
local function order_of(what, order)
  if type(order) == "number" and order > 0 then
    return order
  elseif order == "euclidean" or order == "fro" then
    return "euclidean"
  elseif order == "inf" then
    return math.huge
  end
  return fail("ValueError", "%s: ord is %s; expected \"euclidean\", \"fro\", "
    .. "1, 2, math.huge or another positive number", what,
    text.describe(order))
end

local function vector_norm(tf, x, order, axis, keepdims)
  if order == "euclidean" or order == 2 then
    return tf.raw_ops.reduce_euclidean_norm(x, axis, keepdims)
  end
  x = tf.abs(x)
  if order == 1 then
    return tf.reduce_sum(x, axis, keepdims)
  elseif order == math.huge then
    return tf.reduce_max(x, axis, keepdims)
  end
  return tf.pow(tf.reduce_sum(tf.pow(x, order), axis, keepdims), 1 / order)
end

-- The largest singular value of the matrices in a pair of axes.
local function spectral_norm(tf, x, axes, keepdims)
  local dims, perm, used = shape_of(x), {}, {}
  for i = 1, 2 do
    axes[i] = axes[i] < 0 and axes[i] + #dims or axes[i]
    used[axes[i]] = true
  end
  for i = 0, #dims - 1 do
    if not used[i] then
      perm[#perm + 1] = i
    end
  end
  local s = tf.raw_ops.svd(tf.transpose(x, joined(perm, axes)))
  s = tf.reduce_max(s, -1)
  if keepdims then
    table.sort(axes)
    s = tf.expand_dims(tf.expand_dims(s, axes[1]), axes[2])
  end
  return s
end

local function matrix_norm(tf, x, order, axes, keepdims)
  if order == "euclidean" then
    return vector_norm(tf, x, order, axes, keepdims)
  elseif order == 2 then
    return spectral_norm(tf, x, axes, keepdims)
  elseif order ~= 1 and order ~= math.huge then
    fail("NotImplementedError", "norm: ord %s of matrices; \"fro\", 1, 2 and "
      .. "math.huge are there", text.describe(order))
  end
  -- 1: the largest column sum; infinity: the largest row sum.
  local summed, rest = axes[1], axes[2]
  if order == math.huge then
    summed, rest = rest, summed
  end
  x = tf.reduce_max(tf.reduce_sum(tf.abs(x), summed, true), rest, true)
  return keepdims and x or tf.squeeze(x, axes)
end

local function define_norms(tf, def)
  local function norm(what, x, order, axis, keepdims)
    x = convert.operand(x, nil, what, "tensor")
    order = order_of(what, order)
    if axis == nil or type(axis) == "number" then
      return vector_norm(tf, x, order, axis, keepdims)
    end
    axis = convert.integers(axis, what, "axis")
    if #axis == 1 then
      return vector_norm(tf, x, order, axis, keepdims)
    elseif #axis ~= 2 then
      fail("ValueError", "%s: axis has %d entries; 1 for vectors, 2 for "
        .. "matrices", what, #axis)
    end
    return matrix_norm(tf, x, order, axis, keepdims)
  end

  --- Norm of all elements, of vectors along an axis, or of matrices along a
  --- pair of axes. ord: "euclidean", "fro", 1, 2, math.huge or p > 0.
  --- Source: tf.norm
  def("norm linalg.norm", "tensor ord='euclidean' axis=nil keepdims=false "
    .. "name=nil", function(x, order, axis, keepdims)
      return norm("norm", x, order, axis, keepdims)
    end, "norm")

  --- The tensor divided by its norm, and the norm (axes kept).
  --- Source: tf.linalg.normalize
  def("linalg.normalize", "tensor ord='euclidean' axis=nil name=nil",
    function(x, order, axis)
      x = convert.operand(x, nil, "normalize", "tensor")
      local n = norm("normalize", x, order, axis, true)
      return x / n, n
    end)

  --- x / sqrt(max(sum(x^2), epsilon)), sums along axis (nil = all).
  --- Source: tf.math.l2_normalize
  def("math.l2_normalize nn.l2_normalize linalg.l2_normalize",
    "x axis=nil epsilon=1e-12 name=nil", function(x, axis, epsilon)
      x = convert.operand(x, nil, "l2_normalize", "x")
      local sums = tf.reduce_sum(tf.square(x), axis, true)
      return x * tf.math.rsqrt(tf.maximum(sums, epsilon))
    end)
end

-- Contractions --------------------------------------------------------------

-- Axes of tensordot as two lists of positions from 0.
local function dot_axes(axes, a, b)
  if type(axes) == "number" then
    options.integer("tensordot", "axes", axes, 0, math.min(#a, #b))
    local x, y = {}, {}
    for i = 1, axes do
      x[i], y[i] = #a - axes + i - 1, i - 1
    end
    return x, y
  end
  axes = raw.is_operand(axes) and axes:totable() or axes
  options.list("tensordot", "axes", axes, "two lists of axes")
  local pair = { axes[1], axes[2] }
  for i = 1, 2 do
    local dims = i == 1 and a or b
    pair[i] = convert.integers(pair[i], "tensordot", "axes")
    for k, axis in ipairs(pair[i]) do
      if axis < -#dims or axis >= #dims then
        fail("ValueError", "tensordot: axis %d is outside a tensor of rank %d "
          .. "%s", axis, #dims, dims_text(dims))
      end
      pair[i][k] = axis < 0 and axis + #dims or axis
    end
  end
  return pair[1], pair[2]
end

-- Axes that are not in `used`, and their sizes.
local function free_axes(dims, used)
  local seen, axes, sizes = {}, {}, {}
  for _, axis in ipairs(used) do
    seen[axis] = true
  end
  for i = 1, #dims do
    if not seen[i - 1] then
      axes[#axes + 1], sizes[#sizes + 1] = i - 1, dims[i]
    end
  end
  return axes, sizes
end

local function define_contractions(tf, def)
  local ops = tf.raw_ops

  --- Sum over pairs of axes: the last `axes` of a with the first of b, or the
  --- two lists in `axes`. Source: tf.tensordot
  def("tensordot linalg.tensordot", "a b axes name=nil", function(a, b, axes)
    a, b = operands("tensordot", a, "a", b, "b")
    local x, y = known_shape_of(a, "tensordot"), known_shape_of(b, "tensordot")
    local sum_a, sum_b = dot_axes(axes, x, y)
    local free_a, dims_a = free_axes(x, sum_a)
    local free_b, dims_b = free_axes(y, sum_b)
    local k = 1
    for i = 1, math.max(#sum_a, #sum_b) do
      local n, m = x[(sum_a[i] or #x) + 1], y[(sum_b[i] or #y) + 1]
      if n == nil or n ~= m then
        fail("InvalidArgument", "tensordot: axes of a %s and b %s do not pair "
          .. "up", dims_text(x), dims_text(y))
      end
      k = k * n
    end
    a = tf.reshape(tf.transpose(a, joined(free_a, sum_a)),
      { product(dims_a, 1, #dims_a), k })
    b = tf.reshape(tf.transpose(b, joined(sum_b, free_b)),
      { k, product(dims_b, 1, #dims_b) })
    return tf.reshape(tf.matmul(a, b), joined(dims_a, dims_b))
  end)

  --- Matrix times vector: a {..., m, n}, b {..., n} give {..., m}.
  --- Source: tf.linalg.matvec
  def("linalg.matvec", "a b transpose_a=false adjoint_a=false name=nil",
    function(a, b, transpose_a, adjoint_a)
      a, b = operands("matvec", a, "a", b, "b")
      return tf.squeeze(tf.matmul(a, tf.expand_dims(b, -1),
        { transpose_a = transpose_a or adjoint_a }), { -1 })
    end)

  --- Einstein summation, with "...", repeated labels and implicit results:
  --- tf.einsum("bij,bjk->bik", a, b).
  --- Errors: ValueError for an equation that does not fit the tensors.
  --- Source: tf.einsum
  def("einsum linalg.einsum", "equation x1 x2=nil x3=nil x4=nil x5=nil x6=nil "
    .. "x7=nil x8=nil name=nil", function(equation, ...)
      local inputs = {}
      for i = 1, 8 do
        local x = select(i, ...)
        if x ~= nil then
          inputs[#inputs + 1] = x
        end
      end
      if type(equation) ~= "string" then
        fail("TypeError", "einsum: the equation must be a string, got %s",
          text.describe(equation))
      end
      local dtype = convert.common_dtype(inputs, #inputs)
      for i = 1, #inputs do
        inputs[i] = convert.operand(inputs[i], dtype, "einsum", "x" .. i)
      end
      return einsum.run(ops, equation, inputs)
    end)
end

function M.define(tf, def)
  define_solvers(tf, def)
  define_factors(tf, def)
  define_rank(tf, def)
  define_diagonals(tf, def)
  define_tensor_diagonals(tf, def)
  define_norms(tf, def)
  define_contractions(tf, def)
end

return M
