--- Cases of the ops that make, view, join and index tensors.
return function(case, I)
  local EACH = { "float32", "float64", "float16", "int32", "int64", "uint8" }

  -- Views -------------------------------------------------------------------

  case { "transpose reverses", inputs = { I.normal { 2, 3, 4 } },
    fn = function(tf, x) return tf.transpose(x) end,
    ref = "a.T" }
  case { "transpose perm", inputs = { I.normal { 2, 3, 4 } },
    fn = function(tf, x) return tf.transpose(x, { 1, 0, -1 }) end,
    ref = "np.transpose(a, (1, 0, 2))", dtypes = "number" }
  case { "transpose scalar", inputs = { I.normal {} },
    fn = function(tf, x) return tf.transpose(x) end, ref = "a" }
  case { "transpose large", op = "transpose copy",
    inputs = { I.normal { 70, 3, 129 } },
    fn = function(tf, x)
      return tf.reshape(tf.transpose(x, { 2, 1, 0 }), { -1 })
    end,
    ref = "np.transpose(a, (2, 1, 0)).reshape(-1)", dtypes = EACH,
    grad = false }
  case { "transpose bool", op = "transpose concat tile pad",
    inputs = { I.boolean { 2, 3 } },
    fn = function(tf, x)
      return tf.transpose(x), tf.concat({ x, x }, 0), tf.tile(x, { 1, 2 }),
        tf.pad(x, { { 0, 1 }, { 0, 0 } }, { constant_values = 1 })
    end,
    ref = "a.T, np.concatenate([a, a]), np.tile(a, (1, 2)), "
      .. "np.pad(a, ((0, 1), (0, 0)), constant_values=1)",
    dtypes = { "float32" }, grad = false }
  case { "matrix_transpose", inputs = { I.normal { 2, 3, 4 } },
    fn = function(tf, x) return tf.linalg.matrix_transpose(x) end,
    ref = "np.swapaxes(a, -1, -2)" }
  case { "reverse", inputs = { I.normal { 3, 4, 2 } },
    fn = function(tf, x) return tf.reverse(x, { 0, -1 }) end,
    ref = "a[::-1, :, ::-1]", dtypes = "number" }
  case { "reverse empty", inputs = { I.normal { 0, 4 } },
    fn = function(tf, x) return tf.reverse(x, { 0, 1 }) end, ref = "a" }
  case { "expand_dims", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      return tf.expand_dims(x, 0), tf.expand_dims(x, -1), tf.expand_dims(x, 1)
    end,
    ref = "a[None], a[..., None], a[:, None]" }
  case { "squeeze", inputs = { I.normal { 1, 3, 1, 2 } },
    fn = function(tf, x) return tf.squeeze(x), tf.squeeze(x, { 0 }),
      tf.squeeze(x, { -2 }) end,
    ref = "a.squeeze(), a.squeeze(0), a.squeeze(-2)" }
  case { "slice", inputs = { I.normal { 4, 5, 3 } },
    fn = function(tf, x) return tf.slice(x, { 1, 0, 2 }, { 2, -1, 1 }) end,
    ref = "a[1:3, :, 2:3]", dtypes = "number" }
  case { "slice empty", inputs = { I.normal { 4, 5 } },
    fn = function(tf, x) return tf.slice(x, { 4, 1 }, { 0, 2 }) end,
    ref = "a[4:4, 1:3]" }
  case { "strided_slice", inputs = { I.normal { 6, 7, 3 } },
    fn = function(tf, x)
      return tf.strided_slice(x, { 1, -2, 0 }, { 6, 0, 3 }, { 2, -3, 1 })
    end,
    ref = "a[1:6:2, -2:0:-3, 0:3]", dtypes = "number" }
  case { "strided_slice masks", inputs = { I.normal { 6, 7, 3 } },
    fn = function(tf, x)
      return tf.strided_slice(x, { 9, 5, 0, 1 }, { 9, -9, 0, 2 },
        { 2, -2, 1, 1 }, { begin_mask = 1, end_mask = 1, ellipsis_mask = 4,
          shrink_axis_mask = 8 }),
        tf.strided_slice(x, { 0, 0, -1 }, { 0, 0, 0 }, nil,
          { ellipsis_mask = 1, new_axis_mask = 2, shrink_axis_mask = 4 })
    end,
    ref = "a[::2, 5:-9:-2, ..., 1], a[..., None, -1]" }
  case { "strided_slice index", inputs = { I.normal { 5, 4 } },
    fn = function(_, x)
      return x[2], x[{ { 1, 4, 2 }, -1 }], x[{ { nil, nil, -1 }, { 1 } }]
    end,
    ref = "a[2], a[1:4:2, -1], a[::-1, 1:]" }
  case { "strided_slice_grad", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      return tf.raw_ops.strided_slice_grad(x, { 4, 7 }, { 1, 5 }, { 4, -1 },
        { 2, -2 })
    end,
    ref = "spread(a, (4, 7))" }
  case { "split", inputs = { I.normal { 2, 6 } },
    fn = function(tf, x)
      local p = tf.split(x, 3, { axis = 1 })
      local q = tf.split(x, 2)
      return p[1], p[2], p[3], q[2]
    end,
    ref = "a[:, :2], a[:, 2:4], a[:, 4:], a[1:]", dtypes = "number" }
  case { "split one used", inputs = { I.normal { 2, 6 } },
    fn = function(tf, x) return tf.split(x, 3, { axis = -1 })[2] end,
    ref = "a[:, 2:4]" }
  case { "split_v", inputs = { I.normal { 7, 2 } },
    fn = function(tf, x)
      local p = tf.split(x, { 1, -1, 0, 2 })
      return p[1], p[2], p[3], p[4]
    end,
    ref = "a[:1], a[1:5], a[5:5], a[5:]" }
  case { "split_v many", inputs = { I.normal { 2, 21 } },
    fn = function(tf, x)
      local sizes = {}
      for i = 1, 20 do sizes[i] = 1 end
      sizes[7] = -1
      local p = tf.split(x, sizes, { axis = 1 })
      return p[1], p[7], p[8], p[20]
    end,
    ref = "a[:, :1], a[:, 6:8], a[:, 8:9], a[:, 20:]" }
  case { "unstack", inputs = { I.normal { 3, 2, 2 } },
    fn = function(tf, x)
      local p, q = tf.unstack(x), tf.unstack(x, { axis = -1 })
      return p[1], p[3], q[2]
    end,
    ref = "a[0], a[2], a[..., 1]" }
  case { "matrix_diag_part", inputs = { I.normal { 2, 3, 5 } },
    fn = function(tf, x)
      return tf.linalg.diag_part(x), tf.linalg.diag_part(x, { k = 2 }),
        tf.linalg.diag_part(x, { k = -1 })
    end,
    ref = "tuple(np.diagonal(a, k, -2, -1) for k in (0, 2, -1))" }

  -- Joining and growing -----------------------------------------------------

  case { "concat", inputs = { I.normal { 2, 3 }, I.normal { 2, 1 },
      I.normal { 2, 0 } },
    fn = function(tf, a, b, c) return tf.concat({ a, b, c }, 1) end,
    ref = "np.concatenate([a, b, c], 1)", dtypes = "number" }
  case { "concat first axis", inputs = { I.normal { 2, 3, 2 },
      I.normal { 4, 3, 2 } },
    fn = function(tf, a, b) return tf.concat({ a, b, a }, -3) end,
    ref = "np.concatenate([a, b, a], 0)" }
  case { "concat transposed", inputs = { I.normal { 3, 4 },
      I.normal { 2, 3 } },
    fn = function(tf, a, b) return tf.concat({ tf.transpose(a), b }, 0) end,
    ref = "np.concatenate([a.T, b], 0)" }
  case { "stack", inputs = { I.normal { 2, 3 }, I.normal { 2, 3 } },
    fn = function(tf, a, b)
      return tf.stack { a, b }, tf.stack({ a, b, a }, { axis = 1 }),
        tf.stack({ a, b }, { axis = -1 })
    end,
    ref = "np.stack([a, b]), np.stack([a, b, a], 1), np.stack([a, b], -1)",
    dtypes = "number" }
  case { "stack scalars", inputs = { I.normal {}, I.normal {} },
    fn = function(tf, a, b) return tf.stack { a, b, 2.5 } end,
    ref = "np.stack([a, b, 2.5])" }
  case { "tile", inputs = { I.normal { 2, 1, 3 } },
    fn = function(tf, x) return tf.tile(x, { 2, 5, 3 }),
      tf.tile(x, { 1, 1, 1 }) end,
    ref = "np.tile(a, (2, 5, 3)), a", dtypes = "number" }
  case { "tile along axes of size 1", op = "tile",
    inputs = { I.normal { 1, 1, 3 }, I.normal { 1, 2, 1 } },
    fn = function(tf, x, y)
      return tf.tile(x, { 2, 3, 1 }), tf.tile(x, { 4, 1, 2 }),
        tf.tile(y, { 3, 2, 1 }), tf.tile(y, { 2, 1, 5 })
    end,
    ref = "np.tile(a, (2, 3, 1)), np.tile(a, (4, 1, 2)), "
      .. "np.tile(b, (3, 2, 1)), np.tile(b, (2, 1, 5))", dtypes = "number" }
  case { "tile to nothing", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x) return tf.tile(x, { 0, 2 }) end,
    ref = "np.tile(a, (0, 2))" }
  case { "repeat", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      return tf.repeat_(x, 2), tf.repeat_(x, 3, -1), tf.repeat_(x, 0, 0)
    end,
    ref = "np.repeat(a, 2), np.repeat(a, 3, -1), np.repeat(a, 0, 0)",
    dtypes = "number" }
  case { "repeat each", op = "repeat gather", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x) return tf.repeat_(x, { 2, 0, 1 }, 1) end,
    ref = "np.repeat(a, [2, 0, 1], 1)" }
  case { "pad", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      return tf.pad(x, { { 1, 0 }, { 2, 3 } }),
        tf.pad(x, { { 0, 0 }, { 1, 1 } }, { constant_values = 7 })
    end,
    ref = "np.pad(a, ((1, 0), (2, 3))), "
      .. "np.pad(a, ((0, 0), (1, 1)), constant_values=7)",
    dtypes = "number" }
  case { "pad reflect", inputs = { I.normal { 3, 1, 4 } },
    fn = function(tf, x)
      return tf.pad(x, { { 2, 1 }, { 0, 0 }, { 3, 2 } }, "REFLECT")
    end,
    ref = "np.pad(a, ((2, 1), (0, 0), (3, 2)), 'reflect')",
    dtypes = "number" }
  case { "pad symmetric along axes of size 1", op = "pad",
    inputs = { I.normal { 1, 3, 1 }, I.normal { 1, 1, 2 } },
    fn = function(tf, x, y)
      return tf.pad(x, { { 1, 1 }, { 0, 2 }, { 1, 0 } }, "SYMMETRIC"),
        tf.pad(y, { { 1, 0 }, { 1, 1 }, { 2, 1 } }, "SYMMETRIC")
    end,
    ref = "np.pad(a, ((1, 1), (0, 2), (1, 0)), 'symmetric'), "
      .. "np.pad(b, ((1, 0), (1, 1), (2, 1)), 'symmetric')" }
  case { "pad symmetric", inputs = { I.normal { 3, 4 } },
    fn = function(tf, x)
      return tf.pad(x, { { 3, 1 }, { 4, 0 } }, "SYMMETRIC")
    end,
    ref = "np.pad(a, ((3, 1), (4, 0)), 'symmetric')" }
  case { "roll", inputs = { I.normal { 4, 5 } },
    fn = function(tf, x)
      return tf.roll(x, 2, 1), tf.roll(x, { -1, 7, 2 }, { 0, 1, 0 })
    end,
    ref = "np.roll(a, 2, 1), np.roll(np.roll(a, 1, 0), 7, 1)",
    dtypes = "number" }
  case { "roll empty", inputs = { I.normal { 0, 5 } },
    fn = function(tf, x) return tf.roll(x, 2, 0) end, ref = "a" }
  case { "meshgrid", op = "reshape broadcast_to",
    inputs = { I.normal { 2 }, I.normal { 3 } },
    fn = function(tf, x, y)
      local g, h = tf.meshgrid(x, y), tf.meshgrid(x, y, { indexing = "ij" })
      return g[1], g[2], h[1], h[2]
    end,
    ref = "(*np.meshgrid(a, b), *np.meshgrid(a, b, indexing='ij'))" }
  case { "space_to_depth", op = "reshape transpose",
    inputs = { I.normal { 2, 4, 6, 3 } },
    fn = function(tf, x)
      local y = tf.nn.space_to_depth(x, 2)
      return y, tf.nn.depth_to_space(y, 2)
    end,
    ref = "space_to_depth(a, 2), a" }
  case { "space_to_depth NCHW", op = "reshape transpose",
    inputs = { I.normal { 2, 3, 4, 6 } },
    fn = function(tf, x)
      local y = tf.nn.space_to_depth(x, 2, "NCHW")
      return y, tf.nn.depth_to_space(y, 2, "NCHW")
    end,
    ref = "np.moveaxis(space_to_depth(np.moveaxis(a, 1, -1), 2), -1, 1), a" }

  -- From attributes ---------------------------------------------------------

  case { "zeros_like", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      return tf.zeros_like(x), tf.zeros_like(x, "int32"), tf.zeros { 2, 0 }
    end,
    ref = "np.zeros_like(a), np.zeros(a.shape, int), np.zeros((2, 0))",
    dtypes = "number", grad = false }
  case { "ones_like", op = "ones_like fill", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      return tf.ones_like(x), tf.ones_like(x, { dtype = "int8" }),
        tf.ones { 3 }, tf.fill({ 2, 2 }, 5), tf.fill({}, 2)
    end,
    ref = "np.ones_like(a), np.ones(a.shape, int), np.ones(3), "
      .. "np.full((2, 2), 5), np.array(2)",
    dtypes = "number", grad = false }
  case { "eye", inputs = {},
    fn = function(tf)
      return tf.eye(3), tf.eye(2, 4, { dtype = "float64" }),
        tf.eye(2, { batch_shape = { 3 } }), tf.eye(0)
    end,
    ref = "np.eye(3), np.eye(2, 4), np.stack([np.eye(2)] * 3), np.eye(0)",
    dtypes = { "float32" }, grad = false }
  case { "range", inputs = {},
    fn = function(tf)
      return tf.range(4), tf.range(2, 9, 3), tf.range(3, -3, -2),
        tf.range(0.5, 2, 0.25), tf.range(2, 2), tf.range(3, { dtype = "int64" })
    end,
    ref = "np.arange(4), np.arange(2, 9, 3), np.arange(3, -3, -2), "
      .. "np.arange(0.5, 2, 0.25), np.arange(0), np.arange(3)",
    dtypes = { "float32" }, grad = false }
  case { "linspace", op = "range concat",
    inputs = { I.normal { 2 }, I.normal { 2 } },
    fn = function(tf, a, b)
      return tf.linspace(a, b, 5), tf.linspace(a, b, 4, { axis = 1 }),
        tf.linspace(a, b, 1)
    end,
    ref = "np.linspace(a, b, 5), np.linspace(a, b, 4, axis=1), a[None]" }
  case { "one_hot", inputs = { I.integer({ 2, 3 }, -1, 6, "int32") },
    fn = function(tf, x)
      return tf.one_hot(x, 4), tf.one_hot(x, 4, { axis = 0 }),
        tf.one_hot(x, 4, { on_value = 5, off_value = -1, axis = 1,
          dtype = "int32" })
    end,
    ref = "one_hot(a, 4), np.moveaxis(one_hot(a, 4), -1, 0), "
      .. "np.moveaxis(one_hot(a, 4), -1, 1) * 6 - 1",
    dtypes = { "float32" }, grad = false }
  case { "sequence_mask", inputs = { I.integer({ 4 }, -1, 6, "int64") },
    fn = function(tf, x)
      return tf.sequence_mask(x), tf.sequence_mask(x, 3),
        tf.sequence_mask(x, { maxlen = 8, dtype = "float32" })
    end,
    ref = "tuple(np.arange(n) < a[:, None] for n in (a.max(), 3, 8))",
    dtypes = { "float32" }, grad = false }
  case { "shape", op = "identity", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      return tf.shape(x), tf.size(x), tf.rank(x), tf.ensure_shape(x, { 2, -1 })
    end,
    ref = "np.array(a.shape), np.array(a.size), np.array(a.ndim), a" }

  -- Matrices ----------------------------------------------------------------

  case { "matrix_diag", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      return tf.linalg.diag(x), tf.linalg.diag(x, { k = 1 }),
        tf.linalg.diag(x, { k = -2, padding_value = 9 }),
        tf.linalg.diag(x, { num_rows = 3, num_cols = 5 })
    end,
    ref = "diag(a, 0), diag(a, 1), diag(a, -2, fill=9), diag(a, 0, cols=5)" }
  case { "matrix_set_diag", inputs = { I.normal { 2, 3, 4 },
      I.normal { 2, 3 } },
    fn = function(tf, x, d)
      return tf.linalg.set_diag(x, d), tf.linalg.set_diag(x, d, { k = 1 })
    end,
    ref = "set_diag(a, b, 0), set_diag(a, b, 1)" }
  case { "matrix_band_part", inputs = { I.normal { 2, 4, 5 } },
    fn = function(tf, x)
      return tf.linalg.band_part(x, -1, 0), tf.linalg.band_part(x, 0, -1),
        tf.linalg.band_part(x, 1, 2), tf.linalg.band_part(x, 9, 0)
    end,
    ref = "np.tril(a), np.triu(a), np.triu(np.tril(a, 2), -1), np.tril(a)" }
  case { "tensor_diag", op = "matrix_diag", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      local d = tf.linalg.tensor_diag(x)
      return d, tf.linalg.tensor_diag_part(d), tf.linalg.trace(
        tf.reshape(d, { 6, 6 }))
    end,
    ref = "np.diag(a.ravel()).reshape(2, 3, 2, 3), a, a.sum()" }

  -- Indices -----------------------------------------------------------------

  case { "gather", inputs = { I.normal { 5, 3 }, I.index({ 2, 4 }, 5) },
    fn = function(tf, x, i) return tf.gather(x, i) end,
    ref = "a[b]", dtypes = "number" }
  case { "gather scalar index", inputs = { I.normal { 5, 3 } },
    fn = function(tf, x) return tf.gather(x, 2), tf.gather(x, {}) end,
    ref = "a[2], a[:0]" }
  case { "gather axis", inputs = { I.normal { 2, 5, 3 },
      I.index({ 4 }, 3, "int64") },
    fn = function(tf, x, i)
      return tf.gather(x, i, { axis = 1 }), tf.gather(x, i, { axis = -1 })
    end,
    ref = "np.take(a, b, 1), np.take(a, b, 2)", dtypes = "number" }
  case { "gather batch", inputs = { I.normal { 2, 3, 4 },
      I.index({ 2, 2 }, 3) },
    fn = function(tf, x, i)
      return tf.gather(x, i, { batch_dims = 1 }),
        tf.gather(x, i, { batch_dims = 1, axis = 2 }),
        tf.gather(x, i, { batch_dims = -1, axis = -1 })
    end,
    ref = "gather(a, b, 1, 1), gather(a, b, 2, 1), gather(a, b, 2, 1)" }
  case { "gather long", inputs = { I.normal { 300, 64 },
      I.index({ 700 }, 300) },
    fn = function(tf, x, i) return tf.gather(x, i) end, ref = "a[b]",
    grad = false }
  case { "gather_grad", inputs = { I.normal { 2, 2, 4 },
      I.index({ 2, 2 }, 3) },
    fn = function(tf, x, i)
      return tf.raw_ops.gather_grad(x, i, { 2, 3, 4 }, 1, 1)
    end,
    ref = "gather_grad(a, b, (2, 3, 4), 1, 1)" }
  case { "gather_nd", inputs = { I.normal { 3, 4, 2 }, I.index({ 5, 2 }, 3) },
    fn = function(tf, x, i) return tf.gather_nd(x, i) end,
    ref = "a[b[:, 0], b[:, 1]]", dtypes = "number" }
  case { "gather_nd elements", inputs = { I.normal { 3, 3 },
      I.index({ 2, 2, 2 }, 3) },
    fn = function(tf, x, i)
      return tf.gather_nd(x, i), tf.gather_nd(x, tf.slice(i, { 0, 0, 0 },
        { -1, -1, 1 }))
    end,
    ref = "a[b[..., 0], b[..., 1]], a[b[..., 0]]" }
  case { "gather_nd batch", inputs = { I.normal { 2, 3, 4 },
      I.index({ 2, 2, 1 }, 3) },
    fn = function(tf, x, i) return tf.gather_nd(x, i, { batch_dims = 1 }) end,
    ref = "np.stack([a[k][b[k, :, 0]] for k in range(2)])" }
  case { "scatter_nd", inputs = { I.index({ 4, 1 }, 3), I.normal { 4, 2 } },
    fn = function(tf, i, x) return tf.scatter_nd(i, x, { 5, 2 }) end,
    ref = "combine(np.add, np.zeros((5, 2), b.dtype), a, b)",
    dtypes = "number" }
  case { "scatter_nd elements", inputs = { I.index({ 6, 2 }, 3),
      I.normal { 6 } },
    fn = function(tf, i, x) return tf.scatter_nd(i, x, { 3, 3 }) end,
    ref = "combine(np.add, np.zeros((3, 3)), a, b)" }
  for _, name in ipairs { "add", "subtract", "minimum", "maximum" } do
    local op = "tensor_scatter_nd_" .. name:sub(1, 3)
    case { op, inputs = { I.normal { 5, 3 }, I.index({ 6, 1 }, 4),
        I.normal { 6, 3 } },
      fn = function(tf, x, i, u) return tf[op](x, i, u) end,
      ref = "combine(np." .. name .. ", a, b, c)", dtypes = "number",
      tol = { float16 = 1e-2, bfloat16 = 1e-1 } }
    local rows = "scatter_" .. name:sub(1, 3)
    case { rows, inputs = { I.normal { 5, 3 }, I.index({ 2, 2 }, 4),
        I.normal { 2, 2, 3 } },
      fn = function(tf, x, i, u) return tf.raw_ops[rows](x, i, u) end,
      ref = "combine(np." .. name .. ", a, b[..., None], c)",
      dtypes = "number", grad = false,
      tol = { float16 = 1e-2, bfloat16 = 1e-1 } }
  end
  case { "tensor_scatter_nd_update", inputs = { I.normal { 3, 4, 2 },
      I.index({ 1, 2 }, 3), I.normal { 1, 2 } },
    fn = function(tf, x, i, u)
      return tf.tensor_scatter_nd_update(x, i, u)
    end,
    ref = "combine(None, a, b, c)", dtypes = "number" }
  case { "tensor_scatter_nd_update bool", inputs = { I.boolean { 6 },
      I.index({ 3, 1 }, 6), I.boolean { 3 } },
    fn = function(tf, x, i, u)
      return tf.tensor_scatter_nd_update(x, i, u)
    end,
    ref = "combine(None, a, b, c)", dtypes = { "float32" }, grad = false }
  case { "scatter_update", inputs = { I.normal { 4, 2 }, I.index({ 3 }, 4),
      I.normal { 3, 2 } },
    fn = function(tf, x, i, u) return tf.raw_ops.scatter_update(x, i, u) end,
    ref = "combine(None, a, b[:, None], c)", dtypes = "number", grad = false }
  case { "scatter_mul", inputs = { I.positive { 4, 2 }, I.index({ 3 }, 4),
      I.positive { 3, 2 } },
    fn = function(tf, x, i, u) return tf.raw_ops.scatter_mul(x, i, u) end,
    ref = "combine(np.multiply, a, b[:, None], c)", grad = false,
    tol = { float16 = 2e-2, bfloat16 = 1e-1 } }
  case { "scatter_div", inputs = { I.positive { 4, 2 }, I.index({ 3 }, 4),
      I.positive { 3, 2 } },
    fn = function(tf, x, i, u) return tf.raw_ops.scatter_div(x, i, u) end,
    ref = "combine(np.divide, a, b[:, None], c)", grad = false,
    tol = { float16 = 2e-2, bfloat16 = 1e-1 } }
  case { "scatter_div int", op = "scatter_div",
    inputs = { I.integer({ 4 }, -90, 90), I.index({ 2 }, 4),
      I.integer({ 2 }, 2, 5) },
    fn = function(tf, x, i, u) return tf.raw_ops.scatter_div(x, i, u) end,
    ref = "combine(lambda x, y: np.trunc(x / y), a, b[:, None], c)",
    dtypes = { "int32", "int64", "int8" } }
  case { "boolean_mask", op = "where_indices gather",
    inputs = { I.normal { 3, 2, 4 }, I.boolean { 3, 2 }, I.boolean { 4 } },
    fn = function(tf, x, m, n)
      return tf.boolean_mask(x, m), tf.boolean_mask(x, n, { axis = 2 })
    end,
    ref = "a[b], a[:, :, c]", dtypes = "number" }
  case { "where_indices", inputs = { I.boolean { 3, 4 },
      I.integer({ 7 }, -1, 2) },
    fn = function(tf, x, y) return tf.where(x), tf.where(y) end,
    ref = "np.argwhere(a), np.argwhere(b)",
    dtypes = { "float32", "float64", "float16", "int32", "int8" },
    grad = false }
  case { "where select", op = "select", inputs = { I.boolean { 2, 3 },
      I.normal { 2, 3 }, I.normal { 3 } },
    fn = function(tf, c, x, y) return tf.where(c, x, y) end,
    ref = "np.where(a, b, c)" }
  case { "unique", inputs = { I.integer({ 30 }, -4, 5) },
    fn = function(tf, x)
      local y, at = tf.unique(x)
      local z, at64, n = tf.unique_with_counts(x, "int64")
      return y, at, z, at64, n
    end,
    ref = "(*unique(a)[:2], *unique(a))",
    dtypes = { "float32", "float64", "int32", "int64", "int8" },
    grad = false }
  case { "invert_permutation", inputs = {},
    fn = function(tf) return tf.math.invert_permutation { 3, 0, 2, 1 } end,
    ref = "np.argsort([3, 0, 2, 1])", dtypes = { "float32" }, grad = false }
  case { "dynamic_partition", op = "gather",
    inputs = { I.normal { 5, 2 }, I.index({ 5 }, 3) },
    fn = function(tf, x, p)
      local parts = tf.dynamic_partition(x, p, 3)
      return parts[1], parts[2], parts[3]
    end,
    ref = "tuple(a[b == k] for k in range(3))" }
  case { "dynamic_stitch", op = "tensor_scatter_nd_update",
    inputs = { I.normal { 2, 3 }, I.normal { 2, 2, 3 } },
    fn = function(tf, x, y)
      return tf.dynamic_stitch({ { 4, 0 }, { { 1, 5 }, { 2, 3 } } }, { x, y })
    end,
    ref = "np.stack([a[1], b[0, 0], b[1, 0], b[1, 1], a[0], b[0, 1]])" }

  -- Order -------------------------------------------------------------------

  case { "sort", op = "sort_pairs", inputs = { I.normal { 3, 7 } },
    fn = function(tf, x)
      return tf.sort(x), tf.sort(x, { direction = "DESCENDING" }),
        tf.sort(x, 0)
    end,
    ref = "np.sort(a), -np.sort(-a), np.sort(a, 0)" }
  case { "sort integers", op = "sort_pairs",
    inputs = { I.integer({ 2, 90 }, 0, 100) },
    fn = function(tf, x)
      return tf.sort(x), tf.argsort(x), tf.argsort(x, { axis = 0 }),
        tf.argsort(x, { direction = "DESCENDING" })
    end,
    ref = "np.sort(a), np.argsort(a, kind='stable'), "
      .. "np.argsort(a, 0, kind='stable'), descending(a)",
    dtypes = "number", grad = false }
  case { "sort long", op = "sort_pairs", inputs = { I.normal { 20000 } },
    fn = function(tf, x) return tf.sort(x) end,
    ref = "np.sort(a)", grad = false }
  case { "top_k", inputs = { I.normal { 2, 60 } },
    fn = function(tf, x)
      local v, at = tf.math.top_k(x, 3)
      local all, all_at = tf.nn.top_k(x, 60)
      return v, at, all, all_at
    end,
    ref = "-np.sort(-a)[:, :3], descending(a)[:, :3], -np.sort(-a), "
      .. "descending(a)" }
  case { "top_k ties", op = "top_k", inputs = { I.integer({ 4, 50 }, 0, 6) },
    fn = function(tf, x)
      local _, few = tf.math.top_k(x, 4)
      local _, more = tf.math.top_k(x, 20)
      return few, more
    end,
    ref = "descending(a)[:, :4], descending(a)[:, :20]",
    dtypes = { "float32", "int32", "uint8" }, grad = false }
  case { "in_top_k", inputs = { I.integer({ 6 }, -1, 6, "int32"),
      I.normal { 6, 5 } },
    fn = function(tf, t, x)
      return tf.math.in_top_k(t, x, 1), tf.math.in_top_k(t, x, 3)
    end,
    ref = "in_top_k(a, b, 1), in_top_k(a, b, 3)", grad = false }
  case { "searchsorted", inputs = { I.integer({ 2, 6 }, 0, 9),
      I.integer({ 2, 4 }, 0, 9) },
    fn = function(tf, x, v)
      x = tf.sort(x)
      return tf.searchsorted(x, v), tf.searchsorted(x, v, { side = "right",
        out_type = "int64" })
    end,
    ref = "searchsorted(a, b, 'left'), searchsorted(a, b, 'right')",
    dtypes = { "float32", "float64", "int32", "int64" }, grad = false }

  -- Segments ----------------------------------------------------------------

  for kind, op in pairs { sum = "segment_sum", mean = "segment_sum",
    prod = "segment_select", min = "segment_select", max = "segment_select" }
  do
    case { "segment_" .. kind, op = op, inputs = { I.normal { 6, 2 } },
      fn = function(tf, x)
        return tf.math["segment_" .. kind](x, { 0, 0, 2, 2, 2, 3 })
      end,
      ref = "segments('" .. kind .. "', a, [0, 0, 2, 2, 2, 3], 4, True)" }
    case { "unsorted_segment_" .. kind, op = op,
      inputs = { I.normal { 7, 2 }, I.integer({ 7 }, -1, 3, "int32") },
      fn = function(tf, x, ids)
        return tf.math["unsorted_segment_" .. kind](x, ids, 3)
      end,
      ref = "segments('" .. kind .. "', a, b, 3, False)" }
  end
  case { "segment_sum integers", op = "segment_sum segment_select",
    inputs = { I.integer({ 8 }, 0, 4), I.integer({ 8 }, 0, 3, "int64") },
    fn = function(tf, x, ids)
      return tf.math.unsorted_segment_sum(x, ids, 3),
        tf.math.unsorted_segment_max(x, ids, 3)
    end,
    ref = "segments('sum', a, b, 3, False), segments('max', a, b, 3, False)",
    dtypes = "int" }
  case { "segment_sum of matrices", op = "segment_sum",
    inputs = { I.normal { 2, 3, 2 }, I.index({ 2, 3 }, 4) },
    fn = function(tf, x, ids)
      return tf.math.unsorted_segment_sum(x, ids, 4),
        tf.math.unsorted_segment_sqrt_n(x, ids, 4)
    end,
    ref = "segments('sum', a.reshape(6, 2), b.ravel(), 4, False), "
      .. "segments('sqrt_n', a.reshape(6, 2), b.ravel(), 4, False)" }
  case { "segment_gather", inputs = { I.normal { 3, 2 },
      I.integer({ 5 }, -1, 3, "int32") },
    fn = function(tf, x, ids) return tf.raw_ops.segment_gather(x, ids) end,
    ref = "np.where(b[:, None] < 0, 0, a[b])" }
end
