--- Cases of the ops that the runtime itself needs.
return function(case, I)
  case { "identity", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x)
      local list = tf.identity_n { x, x }
      return tf.identity(x), list[2]
    end,
    ref = "a, a", dtypes = "number" }
  case { "copy", inputs = { I.normal { 3, 4, 2 } },
    fn = function(tf, x)
      return tf.raw_ops.copy(x), tf.raw_ops.copy(tf.transpose(x)),
        tf.raw_ops.copy(tf.reverse(x, { 1 }))
    end,
    ref = "a, a.T, a[:, ::-1]", dtypes = "number" }
  case { "fill", inputs = {},
    fn = function(tf)
      return tf.fill({ 2, 3 }, 1.5), tf.fill({ 0 }, 1), tf.fill({}, true),
        tf.raw_ops.fill({ 2 }, -3, "int8"), tf.fill({ 2, 2 }, tf.constant(7))
    end,
    ref = "np.full((2, 3), 1.5), np.zeros(0), np.array(1), "
      .. "np.full(2, -3), np.full((2, 2), 7)",
    dtypes = { "float32" }, grad = false }
  case { "reshape", inputs = { I.normal { 2, 3, 4 } },
    fn = function(tf, x)
      return tf.reshape(x, { 4, 6 }), tf.reshape(x, { -1 }),
        tf.reshape(x, { 2, -1, 2 }), tf.reshape(tf.transpose(x), { 8, 3 })
    end,
    ref = "a.reshape(4, 6), a.ravel(), a.reshape(2, -1, 2), a.T.reshape(8, 3)",
    dtypes = "number" }
  case { "reshape empty", inputs = { I.normal { 0, 3 } },
    fn = function(tf, x)
      return tf.reshape(x, { 3, 0 }), tf.reshape(x, { -1, 3 })
    end,
    ref = "a.reshape(3, 0), a" }
  case { "reshape scalar", inputs = { I.normal {} },
    fn = function(tf, x)
      return tf.reshape(x, { 1, 1 }), tf.reshape(tf.reshape(x, { 1 }), {})
    end,
    ref = "a.reshape(1, 1), a" }
  case { "broadcast_to", inputs = { I.normal { 3, 1 } },
    fn = function(tf, x)
      return tf.broadcast_to(x, { 2, 3, 4 }), tf.broadcast_to(x, { 3, 1 }),
        tf.broadcast_to(x, { 3, 0 })
    end,
    ref = "np.broadcast_to(a, (2, 3, 4)), a, np.zeros((3, 0))",
    dtypes = "number" }
end
