--- Cases of the linear algebra ops.
return function(case, I)
  local REAL = { "float32", "float64" }
  local LOOSE = { float32 = 2e-4, float64 = 1e-9 }

  -- Well-conditioned matrices from any input.
  local function regular(tf, x)
    return x + 3 * tf.eye(x.shape[#x.shape], { dtype = x.dtype })
  end

  local function definite(tf, x)
    return tf.matmul(x, x, { transpose_b = true })
      + tf.eye(x.shape[#x.shape], { dtype = x.dtype })
  end

  -- A larger matrix than one block, from a few numbers.
  local function large(tf, x, n)
    local row = tf.cast(tf.range(n), x.dtype)
    local mixed = tf.math.sin(tf.expand_dims(row * 1.7, 1) * row + x)
    return mixed + 2 * n * tf.eye(n, { dtype = x.dtype })
  end

  case { "matrix_inverse", inputs = { I.normal { 2, 4, 4 } },
    fn = function(tf, x)
      x = regular(tf, x)
      return tf.linalg.inv(x), tf.linalg.inv(x, { adjoint = true })
    end,
    ref = "np.linalg.inv(a + 3 * np.eye(4)), "
      .. "np.swapaxes(np.linalg.inv(a + 3 * np.eye(4)), 1, 2)",
    dtypes = REAL, tol = LOOSE, grad_tol = 1e-5 }
  case { "matrix_inverse pivots", op = "matrix_inverse",
    inputs = { I.normal { 1 } },
    fn = function(tf)
      return tf.linalg.inv { { 0, 2, 0 }, { 0, 0, 4 }, { 1, 0, 0 } }
    end,
    ref = "np.array([[0, 0, 1], [0.5, 0, 0], [0, 0.25, 0]])",
    dtypes = { "float32" }, grad = false }
  case { "matrix_inverse large", op = "matrix_inverse",
    inputs = { I.unit { 1 } },
    fn = function(tf, x) return tf.linalg.inv(large(tf, x, 150)) end,
    ref = "np.linalg.inv(large(a, 150))", dtypes = REAL, tol = LOOSE,
    grad = false }
  case { "matrix_inverse empty", op = "matrix_inverse",
    inputs = { I.normal { 2, 0, 0 } },
    fn = function(tf, x) return tf.linalg.inv(x), tf.linalg.det(x) end,
    ref = "a, np.ones(2)", dtypes = REAL }
  case { "matrix_solve", inputs = { I.normal { 2, 3, 3 },
      I.normal { 2, 3, 2 } },
    fn = function(tf, a, b)
      a = regular(tf, a)
      return tf.linalg.solve(a, b), tf.linalg.solve(a, b, { adjoint = true })
    end,
    ref = "np.linalg.solve(a + 3 * np.eye(3), b), "
      .. "np.linalg.solve(np.swapaxes(a, 1, 2) + 3 * np.eye(3), b)",
    dtypes = REAL, tol = LOOSE, grad_tol = 1e-5 }
  case { "matrix_solve broadcast", op = "matrix_solve",
    inputs = { I.normal { 3, 3 }, I.normal { 2, 3, 2 } },
    fn = function(tf, a, b) return tf.linalg.solve(regular(tf, a), b) end,
    ref = "np.linalg.solve((a + 3 * np.eye(3))[None], b)",
    dtypes = REAL, tol = LOOSE, grad_tol = 1e-5 }
  case { "matrix_solve large", op = "matrix_solve",
    inputs = { I.unit { 1 }, I.normal { 140, 3 } },
    fn = function(tf, x, b)
      local a = large(tf, x, 140)
      return tf.linalg.solve(a, b), tf.linalg.solve(a, b, { adjoint = true })
    end,
    ref = "np.linalg.solve(large(a, 140), b), "
      .. "np.linalg.solve(large(a, 140).T, b)",
    dtypes = REAL, tol = LOOSE, grad = false }
  case { "matrix_determinant", inputs = { I.normal { 2, 2, 3, 3 } },
    fn = function(tf, x) return tf.linalg.det(x) end,
    ref = "np.linalg.det(a)", dtypes = REAL, tol = LOOSE, grad_tol = 1e-5 }
  case { "matrix_determinant singular", op = "matrix_determinant slogdet",
    inputs = { I.normal { 1 } },
    fn = function(tf)
      local sign, log = tf.linalg.slogdet { { 1, 2 }, { 2, 4 } }
      return tf.linalg.det { { 1, 2 }, { 2, 4 } }, sign, log
    end,
    ref = "0.0, 0.0, -np.inf", dtypes = { "float32" }, grad = false }
  case { "slogdet", inputs = { I.normal { 3, 3, 3 } },
    fn = function(tf, x) return tf.linalg.slogdet(x) end,
    ref = "tuple(np.linalg.slogdet(a))", dtypes = REAL, tol = LOOSE,
    grad_tol = 1e-5 }
  case { "triangular_solve", inputs = { I.normal { 2, 3, 3 },
      I.normal { 2, 3, 2 } },
    fn = function(tf, a, b)
      a = regular(tf, a)
      local function solve(lower, adjoint)
        return tf.linalg.triangular_solve(a, b, lower, adjoint)
      end
      return solve(true, false), solve(true, true), solve(false, false),
        solve(false, true)
    end,
    ref = "triangular(a + 3 * np.eye(3), b)", dtypes = REAL, tol = LOOSE,
    grad_tol = 1e-5 }
  case { "triangular_solve large", op = "triangular_solve",
    inputs = { I.unit { 1 }, I.normal { 130, 2 } },
    fn = function(tf, x, b)
      local a = large(tf, x, 130)
      return tf.linalg.triangular_solve(a, b),
        tf.linalg.triangular_solve(a, b, true, true),
        tf.linalg.triangular_solve(a, b, false, false),
        tf.linalg.triangular_solve(a, b, false, true)
    end,
    ref = "triangular(large(a, 130), b)", dtypes = REAL, tol = LOOSE,
    grad = false }
  case { "cholesky", inputs = { I.normal { 2, 3, 3 } },
    fn = function(tf, x) return tf.linalg.cholesky(definite(tf, x)) end,
    ref = "np.linalg.cholesky(a @ np.swapaxes(a, 1, 2) + np.eye(3))",
    dtypes = REAL, tol = LOOSE, grad_tol = 1e-5 }
  case { "cholesky large", op = "cholesky", inputs = { I.unit { 1 } },
    fn = function(tf, x)
      x = large(tf, x, 170)
      return tf.linalg.cholesky(tf.matmul(x, x, { transpose_b = true }))
    end,
    ref = "np.linalg.cholesky(large(a, 170) @ large(a, 170).T)",
    dtypes = { "float64" }, grad = false }
  case { "cholesky_solve", op = "triangular_solve cholesky",
    inputs = { I.normal { 3, 3 }, I.normal { 3, 2 } },
    fn = function(tf, x, b)
      local s = definite(tf, x)
      return tf.linalg.cholesky_solve(tf.linalg.cholesky(s), b),
        tf.linalg.logdet(s)
    end,
    ref = "np.linalg.solve(a @ a.T + np.eye(3), b), "
      .. "np.linalg.slogdet(a @ a.T + np.eye(3))[1]",
    dtypes = REAL, tol = LOOSE, grad_tol = 1e-5 }
  case { "lstsq", op = "triangular_solve", inputs = { I.normal { 5, 3 },
      I.normal { 5, 2 } },
    fn = function(tf, a, b)
      return tf.linalg.lstsq(a, b),
        tf.linalg.lstsq(tf.transpose(a), tf.slice(b, { 0, 0 }, { 3, 2 }))
    end,
    ref = "np.linalg.lstsq(a, b, None)[0], "
      .. "np.linalg.lstsq(a.T, b[:3], None)[0]",
    dtypes = REAL, tol = { float32 = 2e-3, float64 = 1e-9 },
    grad_tol = 1e-4 }
  -- Vectors are determined up to their sign: compare what does not depend on
  -- it.
  case { "self_adjoint_eig", inputs = { I.normal { 2, 5, 5 } },
    fn = function(tf, x)
      local e, v = tf.linalg.eigh(x)
      local back = tf.matmul(v * tf.expand_dims(e, -2), v,
        { transpose_b = true })
      return e, back, tf.matmul(v, v, { transpose_a = true }),
        tf.linalg.eigvalsh(x), tf.square(v)
    end,
    ref = "eigen(a)", dtypes = REAL, tol = LOOSE, grad_tol = 1e-4 }
  case { "self_adjoint_eig large", op = "self_adjoint_eig",
    inputs = { I.unit { 1 } },
    fn = function(tf, x) return tf.linalg.eigvalsh(large(tf, x, 80)) end,
    ref = "np.linalg.eigvalsh(large(a, 80))", dtypes = REAL,
    tol = { float32 = 1e-3, float64 = 1e-9 }, grad = false }
  for name, dims in pairs { tall = { 2, 5, 3 }, wide = { 3, 4 },
    square = { 4, 4 } } do
    case { "svd " .. name, inputs = { I.normal(dims) },
      fn = function(tf, x)
        local s, u, v = tf.linalg.svd(x)
        return s, tf.matmul(u * tf.expand_dims(s, -2), v,
          { transpose_b = true }), tf.square(u), tf.square(v),
          tf.matmul(u * tf.expand_dims(s * s, -2), v, { transpose_b = true })
      end,
      ref = "singular(a)", dtypes = REAL, tol = LOOSE, grad_tol = 1e-4 }
  end
  case { "svd deficient", op = "svd", inputs = { I.normal { 4, 1 } },
    fn = function(tf, x)
      x = tf.matmul(x, tf.ones({ 1, 3 }, x.dtype))
      local s, u, v = tf.linalg.svd(x)
      return tf.maximum(s, 1e-5), tf.matmul(u, u, { transpose_a = true }),
        tf.matmul(v, v, { transpose_a = true }), tf.linalg.matrix_rank(x)
    end,
    ref = "np.maximum(np.linalg.svd(a @ np.ones((1, 3)))[1], 1e-5), "
      .. "np.eye(3), np.eye(3), np.array(1)",
    dtypes = REAL, tol = LOOSE, grad = false }
  case { "pinv", op = "svd", inputs = { I.normal { 2, 5, 3 } },
    fn = function(tf, x)
      return tf.linalg.pinv(x), tf.norm(x, 2, { 1, 2 }),
        tf.norm(x, 2, { -1, -2 }, true)
    end,
    ref = "np.linalg.pinv(a), np.linalg.norm(a, 2, (1, 2)), "
      .. "np.linalg.norm(a, 2, (1, 2), True)",
    dtypes = REAL, tol = LOOSE, grad_tol = 1e-4 }
  for name, dims in pairs { tall = { 2, 5, 3 }, square = { 4, 4 },
    wide = { 3, 5 } } do
    case { "qr " .. name, inputs = { I.normal(dims) },
      fn = function(tf, x) return tf.linalg.qr(x) end,
      ref = "qr(a)", dtypes = REAL, tol = LOOSE, grad = name ~= "wide",
      grad_tol = 1e-4 }
  end
  case { "qr full", op = "qr", inputs = { I.normal { 4, 2 } },
    fn = function(tf, x)
      return tf.linalg.qr(x, { full_matrices = true })
    end,
    ref = "tuple(np.linalg.qr(a, 'complete'))", dtypes = REAL, tol = LOOSE,
    grad = false }
  case { "cross", inputs = { I.normal { 2, 3 }, I.normal { 2, 3 } },
    fn = function(tf, a, b) return tf.linalg.cross(a, b) end,
    ref = "np.cross(a, b)",
    dtypes = { "float32", "float64", "float16", "bfloat16", "int32" } }

  -- Norms ---------------------------------------------------------------------

  case { "norm", op = "reduce_euclidean_norm", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      return tf.norm(x), tf.norm(x, 1), tf.norm(x, math.huge),
        tf.norm(x, 3, 1), tf.norm(x, 2, 0, true), tf.norm(x, "fro", { 0, 1 }),
        tf.norm(x, 1, { 0, 1 }), tf.norm(x, math.huge, { -2, -1 })
    end,
    ref = "np.linalg.norm(a), np.linalg.norm(a.ravel(), 1), "
      .. "np.linalg.norm(a.ravel(), np.inf), np.linalg.norm(a, 3, 1), "
      .. "np.linalg.norm(a, 2, 0, True), np.linalg.norm(a), "
      .. "np.linalg.norm(a, 1), np.linalg.norm(a, np.inf)",
    dtypes = REAL }
  case { "normalize", op = "reduce_euclidean_norm",
    inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      local y, n = tf.linalg.normalize(x, { axis = 1 })
      return y, n, tf.math.l2_normalize(x, 0), tf.nn.l2_normalize(x * 0, 0)
    end,
    ref = "a / np.linalg.norm(a, axis=1, keepdims=True), "
      .. "np.linalg.norm(a, axis=1, keepdims=True), "
      .. "a / np.linalg.norm(a, axis=0), a * 0",
    dtypes = REAL }

  -- Contractions --------------------------------------------------------------

  case { "tensordot", op = "matmul", inputs = { I.normal { 2, 3, 4 },
      I.normal { 4, 3, 2 } },
    fn = function(tf, a, b)
      return tf.tensordot(a, b, 1), tf.tensordot(a, b, { { 2, 1 }, { 0, 1 } }),
        tf.tensordot(a, b, { 0, -1 }), tf.tensordot(a, tf.transpose(b), 3)
    end,
    ref = "np.tensordot(a, b, 1), np.tensordot(a, b, ((2, 1), (0, 1))), "
      .. "np.tensordot(a, b, (0, -1)), np.tensordot(a, b.T, 3)",
    dtypes = REAL, tol = LOOSE }
  case { "matvec", op = "matmul", inputs = { I.normal { 2, 3, 4 },
      I.normal { 2, 4 }, I.normal { 3 } },
    fn = function(tf, a, x, y)
      return tf.linalg.matvec(a, x),
        tf.linalg.matvec(a, y, { transpose_a = true })
    end,
    ref = "(a @ b[..., None])[..., 0], np.swapaxes(a, 1, 2) @ c",
    dtypes = REAL, tol = LOOSE }
  for name, terms in pairs {
    product = { "ij,jk->ik", { 3, 4 }, { 4, 2 } },
    transposed = { "ji,kj->ik", { 4, 3 }, { 2, 4 } },
    ["batch"] = { "bij,bjk->bik", { 2, 3, 4 }, { 2, 4, 2 } },
    attention = { "bthd,bshd->bhts", { 2, 3, 2, 4 }, { 2, 5, 2, 4 } },
    implicit = { "ij,jk", { 3, 4 }, { 4, 2 } },
    inner = { "i,i", { 5 }, { 5 } },
    outer = { "i,j->ij", { 3 }, { 4 } },
    ["elementwise"] = { "ij,ij->ji", { 3, 4 }, { 3, 4 } },
    ["dots"] = { "...ij,...jk->...ik", { 2, 3, 4 }, { 4, 2 } },
    ["dots broadcast"] = { "b...i,...i->b...", { 2, 1, 3, 4 }, { 5, 1, 4 } },
    summed = { "ijk,kl->il", { 2, 3, 4 }, { 4, 2 } },
    two = { "ijk,jkl->il", { 2, 3, 4 }, { 3, 4, 2 } },
    bilinear = { "bi,ij,bj->b", { 2, 3 }, { 3, 4 }, { 2, 4 } },
    scalar = { "ij,->ji", { 2, 3 }, {} },
  } do
    local inputs = {}
    for i = 2, #terms do inputs[i - 1] = I.normal(terms[i]) end
    local letters = { "a", "b", "c" }
    case { "einsum " .. name, op = "matmul multiply", inputs = inputs,
      fn = function(tf, ...) return tf.einsum(terms[1], ...) end,
      ref = "np.einsum('" .. terms[1] .. "', "
        .. table.concat(letters, ", ", 1, #inputs) .. ")",
      dtypes = REAL, tol = LOOSE }
  end
  case { "einsum one tensor", op = "matrix_diag_part reduce_sum transpose",
    inputs = { I.normal { 3, 3, 2 } },
    fn = function(tf, x)
      return tf.einsum("iij->ij", x), tf.einsum("iij", x),
        tf.einsum("ijk->", x), tf.einsum("...k->k...", x),
        tf.einsum("ijk->kij", x)
    end,
    ref = "tuple(np.einsum(e, a) for e in ('iij->ij', 'iij', 'ijk->', "
      .. "'...k->k...', 'ijk->kij'))",
    dtypes = REAL, tol = LOOSE }
  case { "einsum integers", op = "matmul", inputs = {
      I.integer({ 3, 4 }, 0, 5), I.integer({ 4, 2 }, 0, 5) },
    fn = function(tf, a, b) return tf.einsum("ij,jk->ik", a, b) end,
    ref = "a @ b", dtypes = { "int32", "int64" } }
end
