--- Reductions, positions of extremes, running sums, counts.

local INTS = { "int8", "int16", "int32", "int64", "uint8" }
local WIDE = { "float32", "float64" }

-- { name, dims, axis (nil = all), keepdims }
local SHAPES = {
  { "all", { 3, 4 } },
  { "all kept", { 3, 4 }, nil, true },
  { "rows", { 3, 5 }, { 1 } },
  { "columns", { 5, 9 }, { 0 } },
  { "columns kept", { 5, 3 }, { 0 }, true },
  { "middle", { 2, 3, 4 }, { 1 } },
  { "outer two", { 2, 3, 9 }, { 0, 1 } },
  { "ends", { 2, 3, 4 }, { 0, -1 } },
  { "inner two kept", { 2, 3, 4 }, { 1, 2 }, true },
  { "no axes", { 2, 3 }, {} },
  { "a scalar", {} },
  { "alternate", { 2, 3, 2, 3 }, { 1, 3 } },
}
local LONG = {
  { "long rows", { 3, 2500 }, { 1 } },
  { "long columns", { 300, 70 }, { 0 } },
  { "wide columns", { 9, 700 }, { 0 } },
  { "everything", { 70, 1100 } },
  { "many columns in groups", { 3, 130, 40 }, { 1 } },
  { "very long columns", { 5000, 9 }, { 0 } },
}

-- Options, since an empty list as a last argument would be options.
local function options_of(s)
  return { axis = s[3], keepdims = s[4] }
end

local function python(axis)
  if axis == nil then return "None" end
  return "(" .. table.concat(axis, ",") .. (#axis > 0 and ",)" or ")")
end

local function arguments(s)
  return ("axis=%s, keepdims=%s"):format(python(s[3]),
    s[4] and "True" or "False")
end

local function define_floats(case, I)
  local refs = {
    reduce_sum = { "a.sum(%s)", "normal" },
    reduce_mean = { "a.mean(%s)", "normal" },
    reduce_prod = { "a.prod(%s)", "positive" },
    reduce_max = { "a.max(%s)", "normal" },
    reduce_min = { "a.min(%s)", "normal" },
    reduce_logsumexp = { "logsumexp(a, %s)", "normal" },
    reduce_euclidean_norm = { "np.sqrt((a * a).sum(%s))", "normal" },
    reduce_variance = { "a.var(%s)", "normal" },
    reduce_std = { "a.std(%s)", "normal" },
  }
  for name, entry in pairs(refs) do
    local smooth = name ~= "reduce_std" and name ~= "reduce_euclidean_norm"
    for _, s in ipairs(SHAPES) do
      -- The norm of one number is not differentiable at 0, its deviation is
      -- 0: no slope to compare.
      local single = s[1] == "no axes" or s[1] == "a scalar"
      case { name .. " of " .. s[1], inputs = { I[entry[2]](s[2]) },
        fn = function(tf, x) return tf.math[name](x, options_of(s)) end,
        ref = entry[1]:format(arguments(s)), grad = smooth or not single,
        tol = { float16 = 2e-2, bfloat16 = 0.2 } }
    end
    for _, s in ipairs(LONG) do
      if name ~= "reduce_prod" then
        case { name .. " of " .. s[1], inputs = { I[entry[2]](s[2]) },
          fn = function(tf, x) return tf.math[name](x, s[3]) end, grad = false,
          ref = entry[1]:format(arguments(s)),
          -- Partial sums reach 70 where the result is near 0.
          tol = { float32 = 2e-4, float16 = 1e-2, bfloat16 = 0.1 } }
      end
    end
  end
  case { "reduce_prod of many", inputs = { I.unit { 3000 } }, grad = false,
    fn = function(tf, x) return tf.reduce_prod(x * 0.001 + 1) end,
    ref = "(a * 0.001 + 1).prod()", dtypes = WIDE }
  case { "reduce_prod with zeros", inputs = { I.positive { 2, 3 } },
    fn = function(tf, x)
      return tf.reduce_prod(x * tf.constant({ { 0, 1, 1 }, { 0, 0, 1 } },
        { dtype = x.dtype }), 1)
    end,
    ref = "(a * np.array([[0, 1, 1], [0, 0, 1]])).prod(1)" }
end

local function define_integers(case, I)
  local refs = {
    reduce_sum = "a.sum(%s, dtype=a.dtype)",
    reduce_prod = "a.prod(%s, dtype=a.dtype)",
    reduce_max = "a.max(%s)", reduce_min = "a.min(%s)",
  }
  for _, list in ipairs { SHAPES, LONG } do
    for _, s in ipairs(list) do
      for name, ref in pairs(refs) do
        case { name .. " of integers " .. s[1], dtypes = INTS,
          inputs = { I.integer(s[2], 0, 100) },
          fn = function(tf, x) return tf[name](x, options_of(s)) end,
          ref = ref:format(arguments(s)) }
      end
      case { "count_nonzero " .. s[1], inputs = { I.integer(s[2], 0, 3) },
        dtypes = { "float32", "float64", "bfloat16", "int8", "int64" },
        fn = function(tf, x) return tf.math.count_nonzero(x, options_of(s)) end,
        ref = ("(a != 0).sum(%s)"):format(arguments(s)), grad = false }
    end
  end
  case { "reduce_mean of integers", inputs = { I.integer({ 5, 7 }, -50, 50) },
    dtypes = { "int8", "int16", "int32", "int64" },
    fn = function(tf, x)
      return tf.reduce_mean(x), tf.reduce_mean(x, 0), tf.reduce_mean(x, 1)
    end, ref = "int_mean(a), int_mean(a, 0), int_mean(a, 1)" }
  case { "count_nonzero as int32", inputs = { I.boolean { 4, 5 } },
    dtypes = { "bool" }, ref = "a.sum(0)",
    fn = function(tf, x)
      return tf.math.count_nonzero(x, { axis = 0, dtype = "int32" })
    end }
  for name, ref in pairs { reduce_any = "a.any(%s)", reduce_all = "a.all(%s)" }
  do
    for _, s in ipairs(SHAPES) do
      case { name .. " " .. s[1], inputs = { I.boolean(s[2]) },
        dtypes = { "bool" }, ref = ref:format(arguments(s)),
        fn = function(tf, x) return tf[name](x, options_of(s)) end }
    end
  end
end

local function define_empty(case, I)
  for name, ref in pairs {
    reduce_sum = "np.zeros(3)", reduce_prod = "np.ones(3)",
    reduce_max = "np.full(3, -np.inf)", reduce_min = "np.full(3, np.inf)",
    reduce_mean = "np.full(3, np.nan)",
    reduce_logsumexp = "np.full(3, -np.inf)",
    reduce_euclidean_norm = "np.zeros(3)",
  } do
    case { name .. " of nothing", inputs = { I.normal { 3, 0 } }, ref = ref,
      fn = function(tf, x) return tf.math[name](x, 1) end, grad = false }
    case { name .. " to nothing", inputs = { I.normal { 0, 3 } },
      ref = "np.zeros((0,))", grad = false,
      fn = function(tf, x) return tf.math[name](x, 1) end }
  end
  for name, ref in pairs {
    reduce_sum = "0", reduce_prod = "1", reduce_mean = "0",
    reduce_max = "lowest_int(dtype)", reduce_min = "lowest_int(dtype, True)",
  } do
    case { name .. " of no integers", inputs = { I.integer({ 0 }, 0, 1) },
      dtypes = { "int8", "int16", "int32", "uint8" }, ref = ref,
      fn = function(tf, x) return tf[name](x) end }
  end
  case { "reduce_any of nothing", op = "reduce_any reduce_all",
    inputs = { I.boolean { 0 } }, dtypes = { "bool" }, ref = "False, True",
    fn = function(tf, x) return tf.reduce_any(x), tf.reduce_all(x) end }
  local odd = "np.array([1, np.nan, np.inf, -np.inf])"
  case { "reduce_max with NaN", op = "reduce_max reduce_min reduce_sum",
    inputs = { I.positive { 4 } }, grad = false,
    fn = function(tf, x)
      local y = x * tf.constant({ 1, 0 / 0, math.huge, -math.huge },
        { dtype = x.dtype })
      return tf.reduce_max(y), tf.reduce_min(y), tf.reduce_sum(y),
        tf.reduce_max(y[{ { 2, 4 } }]), tf.reduce_sum(y[{ { 2, 3 } }]),
        tf.reduce_logsumexp(y[{ { 2, 4 } }]),
        tf.reduce_logsumexp(y[{ { 3, 4 } }])
    end,
    ref = "(lambda y: (y.max(), y.min(), y.sum(), y[2:].max(), y[2], np.inf, "
      .. "-np.inf))(a * " .. odd .. ")" }
end

local function define_positions(case, I)
  for name, ref in pairs { argmax = "a.argmax", argmin = "a.argmin" } do
    for _, s in ipairs { { { 7 }, 0 }, { { 4, 5 }, 0 }, { { 4, 5 }, 1 },
      { { 3, 4, 5 }, 1 }, { { 3, 2000 }, -1 }, { { 70, 20 }, 0 } } do
      local title = ("%s of {%s} along %d"):format(name,
        table.concat(s[1], ", "), s[2])
      local reference = ("%s(%d)"):format(ref, s[2])
      case { title, op = name, inputs = { I.normal(s[1]) }, grad = false,
        fn = function(tf, x) return tf[name](x, s[2]) end, ref = reference,
        dtypes = WIDE }
      case { title .. " with ties", op = name, grad = false,
        inputs = { I.integer(s[1], 0, 9) }, dtypes = "number",
        fn = function(_, x) return x[name](x, s[2]) end, ref = reference }
    end
    case { name .. " as int32", inputs = { I.boolean { 9 } }, grad = false,
      dtypes = { "bool" }, ref = ref .. "(0)",
      fn = function(tf, x)
        return tf[name](x, { output_type = "int32" })
      end }
  end
end

local function define_running(case, I)
  local refs = { cumsum = "cumsum", cumprod = "cumprod",
                 cumulative_logsumexp = "cumlogsumexp" }
  local switches = { { false, false }, { true, false }, { false, true },
                     { true, true } }
  for name, ref in pairs(refs) do
    for _, s in ipairs { { { 5 }, 0 }, { { 3, 4 }, 0 }, { { 3, 4 }, 1 },
      { { 2, 3, 70 }, 1 }, { { 2, 900 }, -1 }, { { 0, 3 }, 0 } } do
      for _, w in ipairs(switches) do
        local size = 1
        for _, d in ipairs(s[1]) do size = size * d end
        case { ("%s of {%s} along %d%s%s"):format(name,
            table.concat(s[1], ", "), s[2], w[1] and " exclusive" or "",
            w[2] and " reverse" or ""), op = name,
          inputs = { name == "cumprod" and I.positive(s[1])
            or I.normal(s[1]) },
          -- An exclusive first element is -inf: no finite differences.
          grad = size < 100 and not (w[1] and name:find "logsumexp"),
          fn = function(tf, x)
            if name == "cumprod" and size > 1000 then x = x ^ 0.01 end
            return tf.math[name](x, s[2], w[1], w[2])
          end,
          ref = ("%s(%s, axis=%d, exclusive=%s, reverse=%s)"):format(ref,
            name == "cumprod" and size > 1000 and "a ** 0.01" or "a",
            s[2], w[1] and "True" or "False", w[2] and "True" or "False"),
          dtypes = size > 1000 and WIDE or "float",
          tol = { float32 = 1e-4, float16 = 5e-2, bfloat16 = 0.5 } }
        if name ~= "cumulative_logsumexp" then
          case { ("%s of integers {%s} along %d%s%s"):format(name,
              table.concat(s[1], ", "), s[2], w[1] and " exclusive" or "",
              w[2] and " reverse" or ""), op = name, dtypes = INTS,
            inputs = { I.integer(s[1], 0, 9) },
            fn = function(tf, x) return tf.math[name](x, s[2], w[1], w[2]) end,
            ref = ("%s(a, axis=%d, exclusive=%s, reverse=%s)"):format(ref,
              s[2], w[1] and "True" or "False", w[2] and "True" or "False") }
        end
      end
    end
  end
end

local function define_exclusive(case, I)
  for _, reverse in ipairs { false, true } do
    case { "cumulative_logsumexp exclusive" .. (reverse and " reverse" or ""),
      inputs = { I.normal { 5, 2 } },
      fn = function(tf, x)
        local y = tf.math.cumulative_logsumexp(x, 0, true, reverse)
        return tf.slice(y, { reverse and 0 or 1, 0 }, { 4, 2 })
      end,
      ref = ("cumlogsumexp(a, exclusive=True, reverse=%s)[%s]"):format(
        reverse and "True" or "False", reverse and ":-1" or "1:") }
  end
end

local function define_counts(case, I)
  local integer = { "int32", "int64", "uint8" }
  case { "bincount", inputs = { I.integer({ 40 }, 0, 7) }, dtypes = integer,
    fn = function(tf, x) return tf.math.bincount(x) end,
    ref = "bincount(a, a.max() + 1)" }
  case { "bincount of weights", inputs = { I.index({ 40 }, 7),
      I.normal { 40 } }, grad = false,
    fn = function(tf, x, w) return tf.math.bincount(x, w) end,
    ref = "bincount(a, a.max() + 1, b)", tol = { float16 = 1e-2,
      bfloat16 = 6e-2 } }
  case { "bincount with limits", inputs = { I.integer({ 40 }, 0, 7) },
    dtypes = integer, fn = function(tf, x)
      return tf.math.bincount(x, nil, 9), tf.math.bincount(x, nil, nil, 3),
        tf.math.bincount(x, { dtype = "float32", binary_output = true })
    end,
    ref = "bincount(a, 9), bincount(a, 3), np.minimum(bincount(a, "
      .. "a.max() + 1), 1)" }
  case { "bincount of rows", inputs = { I.integer({ 3, 9 }, 0, 5) },
    dtypes = integer,
    fn = function(tf, x) return tf.math.bincount(x, { axis = -1 }) end,
    ref = "np.array([bincount(r, a.max() + 1) for r in a])" }
  case { "confusion_matrix", op = "bincount",
    inputs = { I.index({ 30 }, 4), I.index({ 30 }, 4) },
    dtypes = { "float32" }, grad = false,
    fn = function(tf, x, y)
      return tf.math.confusion_matrix(x, y, { num_classes = 5 })
    end, ref = "bincount(a * 5 + b, 25).reshape(5, 5)" }
  case { "methods", op = "reduce_sum", inputs = { I.normal { 3, 4 } },
    fn = function(_, x)
      return x:sum(), x:mean(0), x:max(1), x:min { axis = 1, keepdims = true },
        x:prod(), x:std(), x:var(0), x:cumsum(1), x:logsumexp()
    end,
    ref = "a.sum(), a.mean(0), a.max(1), a.min(1, keepdims=True), a.prod(), "
      .. "a.std(), a.var(0), a.cumsum(1), logsumexp(a)", dtypes = WIDE,
    grad = true }
end

return function(case, I)
  define_floats(case, I)
  define_integers(case, I)
  define_empty(case, I)
  define_positions(case, I)
  define_running(case, I)
  define_exclusive(case, I)
  define_counts(case, I)
end
