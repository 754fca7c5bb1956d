return function(case, I)
  case { "softmax", inputs = { I.normal { 4, 7 } },
    fn = function(tf, x) return tf.nn.softmax(x) end, ref = "softmax(a)" }
  case { "softmax of a vector", inputs = { I.normal { 19 } },
    fn = function(tf, x) return x:softmax() end, ref = "softmax(a)" }
  case { "softmax axis 0", inputs = { I.normal { 3, 2, 4 } },
    fn = function(tf, x) return tf.nn.softmax(x, { axis = 0 }) end,
    ref = "softmax(a, 0)" }
  case { "softmax of large logits", inputs = { I.normal { 3, 4 } },
    grad = false,
    fn = function(tf, x) return tf.nn.softmax(x * 500) end,
    ref = "softmax(a * 500)",
    tol = { float32 = 1e-4, float16 = 0.3, bfloat16 = 0.5 } }
  case { "softmax of nothing", inputs = { I.normal { 0, 4 } },
    fn = function(tf, x) return tf.nn.softmax(x) end, ref = "a" }
  case { "log_softmax", inputs = { I.normal { 5, 3 } },
    fn = function(tf, x) return tf.nn.log_softmax(x) end,
    ref = "log_softmax(a)" }
  case { "log_softmax axis 1", inputs = { I.normal { 2, 3, 2 } },
    fn = function(tf, x) return tf.nn.log_softmax(x, 1) end,
    ref = "np.swapaxes(log_softmax(np.swapaxes(a, 1, 2)), 1, 2)" }

  case { "softmax_cross_entropy", inputs = { I.positive { 4, 5 },
      I.normal { 4, 5 } },
    fn = function(tf, y, x)
      return tf.nn.softmax_cross_entropy_with_logits(y, x)
    end, ref = "cross_entropy(a, b)",
    tol = { float16 = 2e-2, bfloat16 = 0.1 } }
  case { "softmax_cross_entropy axis 0", inputs = { I.positive { 3, 2 },
      I.normal { 3, 2 } },
    fn = function(tf, y, x)
      return tf.nn.softmax_cross_entropy_with_logits { labels = y, logits = x,
        axis = 0 }
    end, ref = "cross_entropy(a.T, b.T)",
    tol = { float16 = 2e-2, bfloat16 = 0.1 } }
  case { "sparse_softmax_cross_entropy", inputs = { I.index({ 6 }, 4),
      I.normal { 6, 4 } },
    fn = function(tf, y, x)
      return tf.nn.sparse_softmax_cross_entropy_with_logits(y, x)
    end, ref = "sparse_cross_entropy(a, b)" }
  case { "sparse_softmax_cross_entropy of sequences",
    inputs = { I.index({ 2, 3 }, 5, "int64"), I.normal { 2, 3, 5 } },
    fn = function(tf, y, x)
      return tf.nn.sparse_softmax_cross_entropy_with_logits(y, x)
    end, ref = "sparse_cross_entropy(a, b)" }
  case { "sparse_softmax_cross_entropy of bytes",
    inputs = { I.index({ 3 }, 4, "uint8"), I.normal { 3, 4 } },
    fn = function(tf, y, x)
      return tf.nn.sparse_softmax_cross_entropy_with_logits(y, x)
    end, ref = "sparse_cross_entropy(a, b)" }
  case { "sparse_softmax_cross_entropy_grad", inputs = { I.index({ 4 }, 3),
      I.normal { 4, 3 }, I.normal { 4 } },
    fn = function(tf, y, x, w)
      return tf.raw_ops.sparse_softmax_cross_entropy_grad(y, x, w)
    end, ref = "sparse_grad(a, b, c)" }
  case { "sigmoid cross-entropy", op = "softplus",
    inputs = { I.positive { 3, 4 }, I.normal { 3, 4 } },
    fn = function(tf, z, x)
      return tf.nn.sigmoid_cross_entropy_with_logits(z, x)
    end, ref = "binary(a, b)", tol = { float16 = 1e-2, bfloat16 = 8e-2 } }
  case { "weighted cross-entropy", op = "softplus",
    inputs = { I.positive { 3, 4 }, I.normal { 3, 4 } },
    fn = function(tf, z, x)
      return tf.nn.weighted_cross_entropy_with_logits(z, x, 2.5)
    end, ref = "binary(a, b, 2.5)", tol = { float16 = 2e-2, bfloat16 = 0.2 } }

  case { "relu", inputs = { I.normal { 3, 5 } }, dtypes = "number",
    fn = function(tf, x) return tf.nn.relu(x) end,
    ref = "np.maximum(a, 0)" }
  case { "relu_grad", inputs = { I.normal { 3, 5 }, I.normal { 3, 5 } },
    grad = { 0 },
    fn = function(tf, dy, x) return tf.raw_ops.relu_grad(dy, x) end,
    ref = "np.where(b > 0, a, 0)" }
  case { "relu6", inputs = { I.normal { 3, 5 } },
    fn = function(tf, x) return tf.nn.relu6(x * 4) end,
    ref = "np.clip(a * 4, 0, 6)" }
  case { "relu6_grad", inputs = { I.normal { 3, 5 }, I.normal { 3, 5 } },
    grad = { 0 },
    fn = function(tf, dy, x) return tf.raw_ops.relu6_grad(dy, x * 4) end,
    ref = "np.where((b * 4 > 0) & (b * 4 < 6), a, 0)" }
  case { "leaky_relu", inputs = { I.normal { 12 } },
    fn = function(tf, x) return tf.nn.leaky_relu(x, 0.1) end,
    ref = "np.where(a > 0, a, 0.1 * a)" }
  case { "leaky_relu_grad", inputs = { I.normal { 6 }, I.normal { 6 } },
    grad = { 0 },
    fn = function(tf, dy, x)
      return tf.raw_ops.leaky_relu_grad(dy, x, { alpha = 0.3 })
    end, ref = "np.where(b > 0, a, 0.3 * a)" }
  case { "elu", inputs = { I.normal { 12 } },
    fn = function(tf, x) return tf.nn.elu(x) end, ref = "elu(a)" }
  case { "elu alpha", inputs = { I.normal { 12 } },
    fn = function(tf, x) return tf.raw_ops.elu(x, 0.4) end,
    ref = "elu(a, 0.4)" }
  case { "selu", inputs = { I.normal { 12 } },
    fn = function(tf, x) return tf.nn.selu(x) end, ref = "selu(a)" }
  case { "gelu", inputs = { I.normal { 12 } },
    fn = function(tf, x) return tf.nn.gelu(x) end, ref = "gelu(a)" }
  case { "gelu_tanh", inputs = { I.normal { 12 } },
    fn = function(tf, x) return tf.nn.gelu(x, { approximate = true }) end,
    ref = "gelu_tanh(a)" }
  case { "swish", inputs = { I.normal { 12 } },
    fn = function(tf, x) return tf.nn.swish(x) end, ref = "a * sigmoid(a)" }
  case { "swish beta", inputs = { I.normal { 12 } },
    fn = function(tf, x) return tf.nn.silu(x, 1.5) end,
    ref = "a * sigmoid(1.5 * a)" }
  case { "softsign", inputs = { I.normal { 12 } },
    fn = function(tf, x) return tf.nn.softsign(x) end,
    ref = "a / (1 + np.abs(a))" }
  case { "crelu", op = "relu", inputs = { I.normal { 2, 3 } },
    fn = function(tf, x) return tf.nn.crelu(x) end,
    ref = "np.maximum(np.concatenate([a, -a], -1), 0)" }

  -- Which elements fall is the stream's affair; what remains is checked here,
  -- the share and the independence of threads in spec/random_spec.lua.
  case { "dropout keeps or scales", op = "dropout",
    inputs = { I.positive { 40 } },
    fn = function(tf, x)
      local y = tf.raw_ops.dropout(x, 1, 2, 3, 4, 0.25)
      local kept = tf.cast(tf.not_equal(y, 0), x.dtype)
      return y - kept * x / 0.75
    end, ref = "np.zeros_like(a)",
    tol = { float16 = 1e-2, bfloat16 = 5e-2 }, grad = false }
  case { "dropout", inputs = { I.positive { 10 } },
    dtypes = { "float32", "float64" },
    fn = function(tf, x)
      local y = tf.raw_ops.dropout(x, 5, 6, 7, 8, 0)
      return y
    end, ref = "a" }

  case { "l2_loss", op = "reduce_sum", inputs = { I.normal { 3, 4 } },
    fn = function(tf, x) return tf.nn.l2_loss(x) end,
    ref = "np.sum(a * a) / 2", tol = { float16 = 1e-2, bfloat16 = 5e-2 } }
  case { "embedding_lookup", op = "gather",
    inputs = { I.normal { 5, 3 }, I.index({ 2, 2 }, 5) },
    fn = function(tf, p, ids) return tf.nn.embedding_lookup(p, ids) end,
    ref = "a[b]" }
  case { "embedding_lookup with max_norm", op = "gather",
    inputs = { I.normal { 5, 3 }, I.index({ 4 }, 5) },
    fn = function(tf, p, ids)
      return tf.nn.embedding_lookup(p, ids, { max_norm = 0.5 })
    end,
    ref = "a[b] * np.minimum(1, 0.5 / "
      .. "np.sqrt(np.sum(a[b] ** 2, -1, keepdims=True)))",
    tol = { float16 = 1e-2, bfloat16 = 5e-2 } }
end
