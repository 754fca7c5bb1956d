-- The optimizers' ops; spec/reference/update.py computes one element at a time.
return function(case, I)
  local W, P, S = { 3, 5 }, { 7 }, { 4, 3 }
  -- Half types compute in float32 and round once for each result.
  local tol = { float32 = 2e-5, float16 = 1e-2, bfloat16 = 8e-2 }

  local function update(name, inputs, run, ref)
    case { name, inputs = inputs, grad = false, tol = tol, fn = run,
      ref = ref }
  end

  update("update_sgd", { I.normal(W), I.normal(W) }, function(tf, w, g)
    return tf.raw_ops.update_sgd(w, g, nil, 0, 0.1)
  end, "each(sgd(0.1), [a], b)")
  update("update_sgd with weight decay", { I.normal(W), I.normal(W) },
    function(tf, w, g)
      return tf.raw_ops.update_sgd(w, g, nil, 0.25, 0.1)
    end, "each(sgd(0.1, 0.25), [a], b)")
  update("update_sgd of a scalar", { I.normal {}, I.normal {} },
    function(tf, w, g)
      return tf.raw_ops.update_sgd(w, g, nil, 0, 0.1)
    end, "each(sgd(0.1), [a], b)")
  update("update_sgd of nothing", { I.normal { 0, 2 }, I.normal { 0, 2 } },
    function(tf, w, g)
      return tf.raw_ops.update_sgd(w, g, nil, 0, 0.1)
    end, "a")
  update("update_sgd of rows", { I.normal(S), I.normal { 5, 3 },
    I.index({ 5 }, 4) }, function(tf, w, g, rows)
      return tf.raw_ops.update_sgd(w, g, rows, 0.25, 0.1)
    end, "rows(sgd(0.1), [a - a * 0.25], b, c)")
  update("update_momentum", { I.normal(W), I.normal(W), I.normal(W) },
    function(tf, w, m, g)
      return tf.raw_ops.update_momentum(w, m, g, nil, 0, 0.1, 0.9)
    end, "each(momentum(0.1, 0.9), [a, b], c)")
  update("update_momentum of rows", { I.normal(S), I.normal(S),
    I.normal { 3, 3 }, I.index({ 3 }, 4, "int64") },
    function(tf, w, m, g, rows)
      return tf.raw_ops.update_momentum(w, m, g, rows, 0, 0.1, 0.9)
    end, "rows(momentum(0.1, 0.9), [a, b], c, d, 'all')")
  update("update_nesterov", { I.normal(W), I.normal(W), I.normal(W) },
    function(tf, w, m, g)
      return tf.raw_ops.update_nesterov(w, m, g, nil, 0.125, 0.1, 0.9)
    end, "each(momentum(0.1, 0.9, True, 0.125), [a, b], c)")

  local moments = { I.normal(W), I.normal(W), I.positive(W), I.normal(W) }
  update("update_adam", moments, function(tf, w, m, v, g)
    return tf.raw_ops.update_adam(w, m, v, g, nil, 0, 0.1, 0.8, 0.9, 1e-3)
  end, "each(adam(0.1, 0.8, 0.9, 1e-3), [a, b, c], d)")
  update("update_adam with weight decay", moments, function(tf, w, m, v, g)
    return tf.raw_ops.update_adam(w, m, v, g, nil, 0.125, 0.1, 0.8, 0.9, 1e-3)
  end, "each(adam(0.1, 0.8, 0.9, 1e-3, 0.125), [a, b, c], d)")
  update("update_adam of rows", { I.normal(S), I.normal(S), I.positive(S),
    I.normal { 2, 3 }, I.index({ 2 }, 4) }, function(tf, w, m, v, g, rows)
      return tf.raw_ops.update_adam(w, m, v, g, rows, 0, 0.1, 0.8, 0.9, 1e-3)
    end, "rows(adam(0.1, 0.8, 0.9, 1e-3), [a, b, c], d, e, 'all')")
  update("update_amsgrad", { I.normal(W), I.normal(W), I.positive(W),
    I.positive(W), I.normal(W) }, function(tf, w, m, v, most, g)
      return tf.raw_ops.update_amsgrad(w, m, v, most, g, nil, 0, 0.1, 0.8,
        0.9, 1e-3)
    end, "each(adam(0.1, 0.8, 0.9, 1e-3), [a, b, c, d], e)")
  update("update_adamax", moments, function(tf, w, m, v, g)
    return tf.raw_ops.update_adamax(w, m, v, g, nil, 0, 0.1, 0.8, 0.9, 1e-3)
  end, "each(adamax(0.1, 0.8, 0.9, 1e-3), [a, b, c], d)")
  update("update_nadam", moments, function(tf, w, m, v, g)
    return tf.raw_ops.update_nadam(w, m, v, g, nil, 0, 0.1, 0.8, 0.9, 1e-3,
      0.5, 0.75, 1.5)
  end, "each(nadam(0.1, 0.8, 0.9, 1e-3, 0.5, 0.75, 1.5), [a, b, c], d)")
  update("update_nadam of rows", { I.normal(S), I.normal(S), I.positive(S),
    I.normal { 2, 3 }, I.index({ 2 }, 4) }, function(tf, w, m, v, g, rows)
      return tf.raw_ops.update_nadam(w, m, v, g, rows, 0, 0.1, 0.8, 0.9, 1e-3,
        0.5, 0.75, 1.5)
    end, "rows(nadam(0.1, 0.8, 0.9, 1e-3, 0.5, 0.75, 1.5), [a, b, c], d, e, "
    .. "'all')")

  update("update_rmsprop", { I.normal(P), I.positive(P), I.normal(P) },
    function(tf, w, s, g)
      return tf.raw_ops.update_rmsprop(w, s, g, nil, 0, 0.1, 0.9, 1e-3)
    end, "each(rmsprop(0.1, 0.9, 1e-3), [a, b], c)")
  -- Squares of means stay below 1, means of squares above it.
  update("update_rmsprop_centered", { I.normal(P), I.positive(P), I.unit(P),
    I.normal(P) }, function(tf, w, s, mean, g)
      return tf.raw_ops.update_rmsprop_centered(w, s + 1, mean, g, nil, 0, 0.1,
        0.9, 1e-3)
    end, "each(rmsprop(0.1, 0.9, 1e-3, True), [a, b + 1, c], d)")
  update("update_rmsprop_momentum", { I.normal(P), I.positive(P), I.normal(P),
    I.normal(P) }, function(tf, w, s, m, g)
      return tf.raw_ops.update_rmsprop_momentum(w, s, m, g, nil, 0, 0.1, 0.9,
        1e-3, 0.5)
    end, "each(rmsprop(0.1, 0.9, 1e-3, False, 0.5), [a, b, c], d)")
  update("update_rmsprop_both", { I.normal(P), I.positive(P), I.normal(P),
    I.unit(P), I.normal(P) }, function(tf, w, s, m, mean, g)
      return tf.raw_ops.update_rmsprop_both(w, s + 1, m, mean, g, nil, 0, 0.1,
        0.9, 1e-3, 0.5)
    end, "each(rmsprop(0.1, 0.9, 1e-3, True, 0.5), [a, b + 1, c, d], e)")
  update("update_adagrad", { I.normal(P), I.positive(P), I.normal(P) },
    function(tf, w, s, g)
      return tf.raw_ops.update_adagrad(w, s, g, nil, 0, 0.1, 1e-3)
    end, "each(adagrad(0.1, 1e-3), [a, b], c)")
  update("update_adadelta", { I.normal(P), I.positive(P), I.positive(P),
    I.normal(P) }, function(tf, w, s, u, g)
      return tf.raw_ops.update_adadelta(w, s, u, g, nil, 0, 0.1, 0.9, 1e-3)
    end, "each(adadelta(0.1, 0.9, 1e-3), [a, b, c], d)")
  update("update_ftrl", { I.normal(P), I.positive(P), I.normal(P),
    I.normal(P) }, function(tf, w, s, z, g)
      return tf.raw_ops.update_ftrl(w, s, z, g, nil, 0, 0.5, 0.5, 0.25, 0.125,
        0.0625)
    end, "each(ftrl(0.5, 0.5, 0.25, 0.125, 0.0625), [a, b, c], d)")
  update("update_ftrl with another power", { I.normal(P), I.positive(P),
    I.normal(P), I.normal(P) }, function(tf, w, s, z, g)
      return tf.raw_ops.update_ftrl(w, s, z, g, nil, 0, 0.5, 0.25, 0, 0.125, 0)
    end, "each(ftrl(0.5, 0.25, 0, 0.125, 0), [a, b, c], d)")
  update("update_average", { I.normal(P), I.normal(P) }, function(tf, m, x)
    return tf.raw_ops.update_average(m, x, nil, 0, 0.75)
  end, "a * 0.75 + b * 0.25")
end
