--- Random ops draw exactly what the definition of their streams says. The
--- first input only carries the dtype.

local INTS = { "int8", "int16", "int32", "int64", "uint8" }

return function(case, I)
  local function draw(name, ref, fn, options)
    local entry = {
      name, op = "stateless_" .. name:match "^%S+", inputs = { I.unit { 0 } },
      fn = fn, ref = "__import__('philox')." .. ref, grad = false,
    }
    for key, value in pairs(options or {}) do
      entry[key] = value
    end
    case(entry)
  end

  draw("uniform", "uniform(dtype, [2, 3], (1, 2))", function(tf, like)
    return tf.random.stateless_uniform({ 2, 3 },
      { seed = { 1, 2 }, dtype = like.dtype })
  end)
  draw("uniform over several spans with bounds",
    "uniform(dtype, [3, 211], (5, 0), -2, 3)", function(tf, like)
      return tf.random.stateless_uniform({ 3, 211 }, { 5, 0 }, -2, 3,
        like.dtype)
    end, { tol = { float32 = 1e-6, float16 = 4e-3, bfloat16 = 2e-2 } })
  draw("uniform with negative and large seeds",
    "uniform(dtype, [5], (-7, 2**52 + 12345))", function(tf, like)
      return tf.random.stateless_uniform({ 5 },
        { seed = { -7, 2 ^ 52 + 12345 }, dtype = like.dtype })
    end)
  draw("uniform of nothing", "uniform(dtype, [0, 4], (1, 2))",
    function(tf, like)
      return tf.random.stateless_uniform({ 0, 4 },
        { seed = { 1, 2 }, dtype = like.dtype })
    end)
  draw("uniform scalar", "uniform(dtype, [], (8, 8))", function(tf, like)
    return tf.random.stateless_uniform({}, { 8, 8 }, { dtype = like.dtype })
  end)
  draw("uniform with a tensor of bounds",
    "uniform(dtype, [4, 2], (1, 1)) * np.array([1, 10])", function(tf, like)
      return tf.random.stateless_uniform({ 4, 2 }, { 1, 1 }, 0,
        tf.constant({ 1, 10 }, like.dtype), like.dtype)
    end)

  local NORMAL = { float32 = 2e-6, float16 = 4e-3, bfloat16 = 3e-2 }
  draw("normal", "normal(dtype, [2, 3], (1, 2))", function(tf, like)
    return tf.random.stateless_normal({ 2, 3 },
      { seed = { 1, 2 }, dtype = like.dtype })
  end, { tol = NORMAL })
  draw("normal over several spans with moments",
    "normal(dtype, [631], (5, 6), 2, 0.5)", function(tf, like)
      return tf.random.stateless_normal({ 631 }, { 5, 6 }, 2, 0.5, like.dtype)
    end, { tol = NORMAL })
  draw("normal with tensors of moments",
    "normal(dtype, [5, 2], (5, 6), np.array([1, 2]), np.array([[3]]))",
    function(tf, like)
      return tf.random.stateless_normal({ 5, 2 }, { 5, 6 },
        tf.constant({ 1, 2 }, like.dtype), tf.constant({ { 3 } }, like.dtype),
        like.dtype)
    end, { tol = { float32 = 1e-5, float16 = 2e-2, bfloat16 = 1e-1 } })
  draw("truncated_normal", "truncated(dtype, [2, 3], (1, 2))",
    function(tf, like)
      return tf.random.stateless_truncated_normal({ 2, 3 },
        { seed = { 1, 2 }, dtype = like.dtype })
    end, { tol = NORMAL })
  draw("truncated_normal over several spans with moments",
    "truncated(dtype, [307], (3, 4), -1, 2)", function(tf, like)
      return tf.random.stateless_truncated_normal({ 307 }, { 3, 4 }, -1, 2,
        like.dtype)
    end, { tol = { float32 = 4e-6, float16 = 4e-3, bfloat16 = 3e-2 } })

  draw("uniform_int", "integers([7, 20], (1, 2), 3, 17)", function(tf, like)
    return tf.random.stateless_uniform({ 7, 20 }, { 1, 2 }, 3, 17, like.dtype)
  end, { dtypes = INTS, inputs = { I.integer({ 0 }, 0, 1) } })
  draw("uniform_int over wide ranges",
    "integers([300], (1, 2), -2**40, 2**52)", function(tf)
      return tf.random.stateless_uniform({ 300 }, { 1, 2 }, -2 ^ 40, 2 ^ 52,
        "int64")
    end, { dtypes = { "int64" }, inputs = { I.integer({ 0 }, 0, 1) } })
  draw("uniform_int of all values of a dtype",
    "integers([300], (1, 2), -128, 128)", function(tf)
      return tf.random.stateless_uniform({ 300 }, { 1, 2 }, -128, 128, "int8")
    end, { dtypes = { "int8" }, inputs = { I.integer({ 0 }, 0, 1) } })

  draw("categorical", "categorical(a, 6, (3, 1))", function(tf, logits)
    return tf.random.stateless_categorical(logits, 6, { 3, 1 })
  end, { inputs = { I.normal { 4, 5 } } })
  draw("categorical as int32", "categorical(a, 1, (3, 1))",
    function(tf, logits)
      return tf.random.stateless_categorical(logits, 1, { 3, 1 }, "int32")
    end, { inputs = { I.normal { 70, 33 } }, dtypes = { "float32" } })
  draw("categorical without samples", "categorical(a, 0, (3, 1))",
    function(tf, logits)
      return tf.random.stateless_categorical(logits, 0, { 3, 1 })
    end, { inputs = { I.normal { 4, 5 } } })

  draw("shuffle", "shuffle(a, (9, 2))", function(tf, x)
    return tf.random.stateless_shuffle(x, { 9, 2 })
  end, { inputs = { I.integer({ 9, 2 }, 0, 100) }, dtypes = "number" })
  draw("shuffle of a list", "shuffle(a, (0, 0))", function(tf, x)
    return tf.random.stateless_shuffle(x, { 0, 0 })
  end, { inputs = { I.integer({ 101 }, 0, 100) }, dtypes = { "int32" } })
  draw("shuffle of nothing", "shuffle(a, (1, 2))", function(tf, x)
    return tf.random.stateless_shuffle(x, { 1, 2 })
  end, { inputs = { I.integer({ 3, 0 }, 0, 100) }, dtypes = { "int32" } })

  draw("gamma", "gamma([5, 2, 3], (4, 2), a)", function(tf, alpha)
    return tf.random.stateless_gamma({ 5, 2, 3 }, { 4, 2 }, alpha,
      { dtype = alpha.dtype })
  end, { inputs = { I.positive { 2, 3 } } })
  draw("gamma with a scale", "gamma([6, 3], (4, 2), a) / b",
    function(tf, alpha, beta)
      return tf.random.stateless_gamma({ 6, 3 }, { 4, 2 }, alpha, beta,
        alpha.dtype)
    end, { inputs = { I.positive { 3 }, I.positive { 6, 1 } },
           grad = { 1 }, tol = { float16 = 1e-2, bfloat16 = 6e-2 } })
  draw("poisson", "poisson([4, 3], (4, 2), a)", function(tf, rate)
    return tf.random.stateless_poisson({ 4, 3 }, { 4, 2 }, rate,
      { dtype = "int32" })
  end, { inputs = { I.positive { 4, 1 } } })
  draw("poisson with large rates", "poisson([200], (4, 7), a * 40)",
    function(tf, rate)
      return tf.random.stateless_poisson({ 200 }, { 4, 7 }, rate * 40,
        { dtype = "float64" })
    end, { inputs = { I.positive { 200 } }, dtypes = { "float64" } })
end
