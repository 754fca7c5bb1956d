--- Elementwise ops.

local INTS = { "int8", "int16", "int32", "int64", "uint8" }
local SIGNED = { "int8", "int16", "int32", "int64" }
local WIDE = { "float32", "float64" }

-- name -> { generator, reference } of functions of one float tensor.
local UNARY = {
  reciprocal = { "positive", "1 / a" },
  sqrt = { "positive", "np.sqrt(a)" },
  rsqrt = { "positive", "1 / np.sqrt(a)" },
  exp = { "normal", "np.exp(a)" },
  expm1 = { "normal", "np.expm1(a)" },
  log = { "positive", "np.log(a)" },
  log1p = { "unit", "np.log1p(a)" },
  sin = { "normal", "np.sin(a)" },
  cos = { "normal", "np.cos(a)" },
  tan = { "unit", "np.tan(a)" },
  asin = { "unit", "np.arcsin(a)" },
  acos = { "unit", "np.arccos(a)" },
  atan = { "normal", "np.arctan(a)" },
  sinh = { "normal", "np.sinh(a)" },
  cosh = { "normal", "np.cosh(a)" },
  tanh = { "normal", "np.tanh(a)" },
  asinh = { "normal", "np.arcsinh(a)" },
  atanh = { "unit", "np.arctanh(a)" },
  erf = { "normal", "erf(a)" },
  erfc = { "normal", "erfc(a)" },
  erfinv = { "unit", "erfinv(a)" },
  lgamma = { "positive", "lgamma(a)" },
  digamma = { "positive", "digamma(a)" },
  sigmoid = { "normal", "sigmoid(a)" },
  log_sigmoid = { "normal", "-softplus(-a)" },
  softplus = { "normal", "softplus(a)" },
}

local function define_unary(case, I)
  for name, entry in pairs(UNARY) do
    local make = I[entry[1]]
    local function fn(tf, x) return tf.math[name](x) end
    -- Slopes near the ends of [-1, 1] and near 0 multiply the rounding of x.
    local tol = { float32 = 1e-5, float16 = 2e-2, bfloat16 = 0.1 }
    case { name, inputs = { make { 3, 4 } }, fn = fn, ref = entry[2],
           tol = tol, grad_tol = 1e-4 }
    case { name .. " of many", inputs = { make { 37, 33 } }, fn = fn,
           ref = entry[2], tol = tol, grad = false }
    case { name .. " of a scalar", inputs = { make {} }, fn = fn,
           ref = entry[2], tol = tol, grad_tol = 1e-4 }
    case { name .. " of nothing", inputs = { make { 2, 0 } }, fn = fn,
           ref = "a", grad = false }
  end
  case { "acosh", inputs = { I.positive { 9 } }, ref = "np.arccosh(a + 1)",
    fn = function(tf, x) return tf.acosh(x + 1) end,
    tol = { float16 = 2e-2, bfloat16 = 0.1 }, grad_tol = 1e-4 }
  case { "ndtri", inputs = { I.unit { 9 } }, ref = "ndtri(a / 2 + 0.5)",
    fn = function(tf, x) return tf.math.ndtri(x / 2 + 0.5) end,
    dtypes = WIDE, grad = true, grad_tol = 1e-4, tol = { float32 = 1e-5 } }
  for name, ref in pairs { abs = "np.abs(a)", negative = "-a",
    square = "a * a", sign = "np.sign(a)" } do
    local function fn(tf, x) return tf.math[name](x) end
    case { name, inputs = { I.normal { 3, 4 } }, fn = fn, ref = ref }
    case { name .. " of integers", inputs = { I.integer({ 40 }, -9, 10) },
      fn = fn, ref = ref, dtypes = SIGNED }
    case { name .. " of bytes", inputs = { I.integer({ 40 }, 0, 16) },
      fn = fn, ref = "wrap(" .. ref .. ", np.uint8)", dtypes = { "uint8" } }
  end
  case { "square that wraps", inputs = { I.integer({ 40 }, 100, 127) },
    fn = function(tf, x) return tf.square(x) end,
    ref = "wrap(a.astype(np.int64) ** 2, dtype)", dtypes = { "int8", "uint8" } }
end

local function define_rounding(case, I)
  for name, ref in pairs { ceil = "np.ceil(a)", floor = "np.floor(a)",
    rint = "np.rint(a)", round = "np.rint(a)" } do
    case { name, inputs = { I.normal { 5, 7 } }, grad = false,
      fn = function(tf, x) return tf.math[name](x * 3) end,
      ref = name == "round" and "np.rint(a * 3)"
        or (ref:gsub("%(a%)", "(a * 3)")),
      dtypes = WIDE }
    case { name .. " of halves", inputs = { I.integer({ 40 }, -20, 20) },
      grad = false, fn = function(tf, x) return tf.math[name](x / 2) end,
      ref = (ref:gsub("%(a%)", "(a / 2)")), dtypes = "float" }
    case { name .. " of integers", inputs = { I.integer({ 9 }, 0, 20) },
      fn = function(tf, x) return tf.math[name](x) end, ref = "a",
      dtypes = INTS }
  end
  local odd = "np.array([0.0, np.inf, -np.inf, np.nan, 1.0])"
  for name, ref in pairs { is_nan = "np.isnan(v)", is_inf = "np.isinf(v)",
    is_finite = "np.isfinite(v)" } do
    case { name, inputs = { I.positive { 5 } }, grad = false,
      fn = function(tf, x)
        return tf.math[name](x * tf.constant({ 0, math.huge, -math.huge,
          0 / 0, 1 }, { dtype = x.dtype }))
      end,
      ref = ref:gsub("v", odd) }
  end
end

local BINARY = {
  add = "a + b", subtract = "a - b", multiply = "a * b",
  maximum = "np.maximum(a, b)", minimum = "np.minimum(a, b)",
  squared_difference = "(a - b) ** 2",
}

-- { left, right }: equal, scalars, short and long rows, columns, both ways.
local SHAPES = {
  { "same shape", { 3, 4 }, { 3, 4 } },
  { "scalar", { 2, 3 }, {} },
  { "scalar first", {}, { 2, 3 } },
  { "row", { 3, 5 }, { 5 } },
  { "column", { 3, 5 }, { 3, 1 } },
  { "outer", { 4, 1 }, { 1, 3 } },
  { "middle", { 2, 3, 2 }, { 3, 1 } },
  { "both ways", { 2, 1, 3, 1 }, { 4, 1, 2 } },
  { "nothing", { 0, 3 }, { 3 } },
  { "two scalars", {}, {} },
}
local LONG = {
  { "long rows", { 5, 70 }, { 70 } },
  { "long columns", { 5, 70 }, { 5, 1 } },
  { "long both ways", { 3, 1, 50 }, { 2, 1 } },
  { "chunks", { 1300 }, { 1300 } },
  { "short rows of many", { 300, 7 }, { 7 } },
  { "short columns of many", { 7, 300, 2 }, { 300, 1 } },
}

local function define_binary(case, I)
  for name, ref in pairs(BINARY) do
    local function fn(tf, x, y) return tf.math[name](x, y) end
    for _, s in ipairs(SHAPES) do
      case { name .. " " .. s[1], ref = ref, fn = fn,
        inputs = { I.normal(s[2]), I.normal(s[3]) } }
    end
    for _, s in ipairs(LONG) do
      case { name .. " " .. s[1], ref = ref, fn = fn, grad = false,
        inputs = { I.normal(s[2]), I.normal(s[3]) },
        tol = { float16 = 2e-2, bfloat16 = 0.1 } }
      case { name .. " of integers " .. s[1], fn = fn, dtypes = INTS,
        ref = name == "maximum" and ref or name == "minimum" and ref
          or "wrap(" .. ref:gsub("[ab]%f[%W]", "%0.astype(np.int64)")
            .. ", dtype)",
        inputs = { I.integer(s[2], 0, 120), I.integer(s[3], 0, 120) } }
    end
  end
  case { "add that wraps", dtypes = { "int32", "int64" },
    inputs = { I.integer({ 20 }, 1, 9), I.integer({ 20 }, 1, 9) },
    fn = function(tf, x, y)
      local big = x.dtype == "int32" and 2147483647 or 9007199254740992
      return x * big + y
    end,
    ref = "wrap(a.astype(object) * (2147483647 if dtype == 'int32' else 2**53)"
      .. " + b, dtype)" }
  case { "operators", op = "add subtract multiply divide negative pow floormod",
    inputs = { I.positive { 4 }, I.positive { 4 } },
    fn = function(_, x, y)
      return x + y * 2 - x / y, -x % y, x ^ y, 1 - x, 2 / y
    end,
    ref = "a + b * 2 - a / b, np.mod(-a, b), a ** b, 1 - a, 2 / b",
    tol = { float32 = 1e-4, float16 = 0.2, bfloat16 = 2 },
    dtypes = WIDE, grad = { 0 } }
end

local function define_floats(case, I)
  local function floats(name, ref, a, b, options)
    local entry = { name, op = name:match "^%S+", ref = ref,
      inputs = { a, b }, tol = { float16 = 2e-2, bfloat16 = 0.2 },
      fn = function(tf, x, y) return tf.math[name:match "^%S+"](x, y) end }
    for key, value in pairs(options or {}) do entry[key] = value end
    case(entry)
  end
  floats("divide", "a / b", I.normal { 3, 4 }, I.positive { 3, 4 })
  floats("divide row", "a / b", I.normal { 3, 40 }, I.positive { 40 },
    { grad = false })
  floats("atan2", "np.arctan2(a, b)", I.normal { 3, 4 }, I.normal { 4 })
  floats("pow", "a ** b", I.positive { 3, 4 }, I.normal { 3, 4 },
    { dtypes = WIDE, grad = true })
  floats("pow scalar", "a ** b", I.positive { 70 }, I.normal {},
    { tol = { float16 = 5e-2, bfloat16 = 2 } })
  floats("pow halves", "a ** b", I.positive { 9 }, I.unit { 9 })
  floats("xdivy", "a / b", I.normal { 3, 4 }, I.positive { 4 })
  floats("xlogy", "a * np.log(b)", I.normal { 3, 1 }, I.positive { 1, 4 })
  floats("xlog1py", "a * np.log1p(b)", I.normal { 3, 4 }, I.positive { 4 })
  floats("multiply_no_nan", "a * b", I.normal { 3, 4 }, I.normal { 4 })
  floats("divide_no_nan", "a / b", I.normal { 3, 4 }, I.positive { 4 })
  floats("floormod", "np.mod(a, b)", I.normal { 3, 4 }, I.positive { 4 },
    { dtypes = WIDE, grad = { 0 } })
  floats("floordiv", "np.floor(a / b)", I.normal { 3, 4 }, I.positive { 4 },
    { dtypes = WIDE })
  floats("truncatediv", "np.trunc(a / b)", I.normal { 3, 4 },
    I.positive { 4 }, { dtypes = WIDE })
  floats("truncatemod", "np.fmod(a, b)", I.normal { 3, 4 }, I.positive { 4 },
    { dtypes = WIDE, grad = { 0 } })
  floats("nextafter", "np.nextafter(a.astype(dtype), b.astype(dtype))",
    I.normal { 5 }, I.normal { 5 },
    { dtypes = WIDE, grad = false, tol = { float32 = 0, float64 = 0 } })
  floats("igamma", "igamma(a, b)", I.positive { 6 }, I.positive { 6 },
    { dtypes = WIDE, grad = { 1 } })
  floats("igammac", "1 - igamma(a, b)", I.positive { 6 }, I.positive { 6 },
    { dtypes = WIDE, grad = { 1 } })
  case { "zeta", inputs = { I.positive { 6 }, I.positive { 6 } },
    fn = function(tf, x, q) return tf.math.zeta(x + 1.5, q) end,
    ref = "zeta(a + 1.5, b)", dtypes = WIDE, grad = { 1 },
    tol = { float32 = 1e-3 }, grad_tol = 1e-4 }
  case { "polygamma", inputs = { I.integer({ 6 }, 0, 5), I.positive { 6 } },
    fn = function(tf, n, x) return tf.math.polygamma(n, x) end,
    ref = "polygamma(a, b)", dtypes = WIDE, grad = { 1 },
    tol = { float32 = 1e-2, float64 = 1e-8 }, grad_tol = 1e-3 }
  for name, ref in pairs { tanh_grad = "b * (1 - a * a)",
    sigmoid_grad = "b * a * (1 - a)" } do
    case { name, inputs = { I.unit { 3, 4 }, I.normal { 3, 4 } }, ref = ref,
      fn = function(tf, y, dy) return tf.raw_ops[name](y, dy) end,
      tol = { float16 = 1e-2, bfloat16 = 6e-2 } }
  end
end

-- Zeros where the formula alone would give NaN.
local function define_zeros(case, I)
  local function zeroed(tf, x)
    return x * tf.constant({ 0, 1, 0, 1 }, { dtype = x.dtype })
  end
  local ref = "np.array([0, 1, 0, 1])"
  case { "divide_no_nan by zero", inputs = { I.normal { 4 },
      I.positive { 4 } }, grad = { 0 },
    fn = function(tf, x, y) return tf.math.divide_no_nan(x, zeroed(tf, y)) end,
    ref = "np.where(" .. ref .. " > 0, a / b, 0)",
    tol = { float16 = 2e-2, bfloat16 = 0.2 } }
  for name, formula in pairs { xlogy = "np.log(b)", xlog1py = "np.log1p(b)",
    xdivy = "1 / b" } do
    case { name .. " with zeros", inputs = { I.normal { 4 },
        I.positive { 4 } }, dtypes = WIDE, grad = false,
      fn = function(tf, x, y)
        return tf.math[name](zeroed(tf, x), y * zeroed(tf, x) ^ 2)
      end,
      ref = ("np.where(%s > 0, a * %s, 0)"):format(ref,
        (formula:gsub("b", "(b * (a * " .. ref .. ") ** 2)"))) }
  end
  case { "multiply_no_nan with infinities", inputs = { I.positive { 4 } },
    grad = false, fn = function(tf, x)
      return tf.math.multiply_no_nan(x / zeroed(tf, x), zeroed(tf, x))
    end, ref = "np.where(" .. ref .. " > 0, a, 0)" }
  case { "pow of zero", inputs = { I.positive { 4 } }, grad = true,
    dtypes = WIDE,
    fn = function(tf, x) return tf.pow(zeroed(tf, x), x) end,
    ref = "(a * " .. ref .. ") ** a" }
end

local function define_integers(case, I)
  local a, b = I.integer({ 60 }, -50, 50), I.integer({ 60 }, 1, 9)
  for name, ref in pairs { floordiv = "a // b", floormod = "a % b",
    truncatediv = "truncated(a, b)[0]", truncatemod = "truncated(a, b)[1]" } do
    local function fn(tf, x, y) return tf[name == "floordiv" and "floor_div"
      or name](x, y) end
    case { name .. " of integers", inputs = { a, b }, fn = fn, ref = ref,
      dtypes = SIGNED }
    case { name .. " of integers by negatives",
      inputs = { a, I.integer({ 60 }, -9, 0) }, fn = fn, ref = ref,
      dtypes = SIGNED }
    case { name .. " of bytes", inputs = { I.integer({ 20 }, 0, 250),
        I.integer({ 20 }, 1, 9) }, fn = fn, ref = ref, dtypes = { "uint8" } }
  end
  case { "pow of integers", inputs = { a, I.integer({ 60 }, 0, 6) },
    fn = function(tf, x, y) return tf.pow(x, y) end,
    ref = "wrap(a.astype(object) ** b.astype(object), dtype)",
    dtypes = SIGNED }
  case { "divide of integers", inputs = { a, b }, dtypes = INTS,
    fn = function(tf, x, y) return tf.divide(tf.abs(x), y) end,
    ref = "(lambda t: np.abs(a).astype(t) / b.astype(t))("
      .. "np.float32 if a.itemsize < 4 else np.float64)" }
  case { "divide_no_nan of integers", inputs = { a, I.integer({ 60 }, 0, 3) },
    dtypes = SIGNED,
    fn = function(tf, x, y) return tf.math.divide_no_nan(x, y) end,
    ref = "np.where(b == 0, 0, a / np.maximum(b, 1).astype(np.float64))" }
  for name, ref in pairs { bitwise_and = "a & b", bitwise_or = "a | b",
    bitwise_xor = "a ^ b", left_shift = "wrap(a.astype(object) << b, dtype)",
    right_shift = "a >> b" } do
    case { name, inputs = { I.integer({ 5, 40 }, 0, 120),
        I.integer({ 40 }, 0, 7) }, dtypes = INTS, ref = ref,
      fn = function(tf, x, y) return tf.bitwise[name](x, y) end }
  end
  case { "right_shift of negatives", inputs = { a, I.integer({ 60 }, 0, 7) },
    dtypes = SIGNED, ref = "a >> b",
    fn = function(tf, x, y) return tf.bitwise.right_shift(x, y) end }
  case { "invert", inputs = { I.integer({ 33 }, 0, 120) }, dtypes = INTS,
    fn = function(tf, x) return tf.bitwise.invert(x) end, ref = "~a" }
end

local function define_logic(case, I)
  for name, op in pairs { equal = "==", not_equal = "!=", less = "<",
    less_equal = "<=", greater = ">", greater_equal = ">=" } do
    local ref = "a " .. op .. " b"
    local function fn(tf, x, y) return tf[name](x, y) end
    case { name, inputs = { I.integer({ 5, 40 }, 0, 3),
        I.integer({ 40 }, 0, 3) }, fn = fn, ref = ref, dtypes = "number",
      grad = false }
    case { name .. " scalar", inputs = { I.integer({ 30 }, 0, 3),
        I.integer({}, 0, 3) }, fn = fn, ref = ref, dtypes = "number",
      grad = false }
    case { name .. " method", inputs = { I.normal { 3, 4 } }, grad = false,
      fn = function(_, x) return x[name](x, 0) end,
      ref = "a " .. op .. " 0" }
  end
  case { "equal of booleans", inputs = { I.boolean { 9 }, I.boolean { 9 } },
    fn = function(tf, x, y) return tf.equal(x, y), tf.not_equal(x, y) end,
    ref = "a == b, a != b", dtypes = { "bool" } }
  for name, ref in pairs { logical_and = "a & b", logical_or = "a | b",
    logical_xor = "a ^ b" } do
    case { name, inputs = { I.boolean { 5, 40 }, I.boolean { 40 } },
      fn = function(tf, x, y) return tf.math[name](x, y) end, ref = ref,
      dtypes = { "bool" } }
  end
  case { "logical_not", inputs = { I.boolean { 9 } }, ref = "~a",
    fn = function(tf, x) return tf.logical_not(x) end, dtypes = { "bool" } }
end

local function define_choice(case, I)
  local function where(tf, c, x, y) return tf.where(c, x, y) end
  case { "select", inputs = { I.boolean { 3, 4 }, I.normal { 3, 4 },
      I.normal { 3, 4 } }, fn = where, ref = "np.where(a, b, c)",
    dtypes = "number" }
  case { "select row", inputs = { I.boolean { 5, 1 }, I.normal { 40 },
      I.normal {} }, fn = where, ref = "np.where(a, b, c)" }
  case { "select scalars", inputs = { I.boolean { 50 }, I.normal {},
      I.normal {} }, fn = where, ref = "np.where(a, b, c)" }
  case { "select scalar first", inputs = { I.boolean { 50 }, I.normal {},
      I.normal { 50 } }, fn = where, ref = "np.where(a, b, c)" }
  case { "select of booleans", inputs = { I.boolean { 9 }, I.boolean { 9 },
      I.boolean { 9 } }, fn = where, ref = "np.where(a, b, c)",
    dtypes = { "bool" } }
  case { "clip_by_value", inputs = { I.normal { 5, 9 } },
    fn = function(tf, x) return tf.clip_by_value(x, -0.5, 0.75) end,
    ref = "np.clip(a, -0.5, 0.75)" }
  case { "clip_by_value tensors", inputs = { I.normal { 5, 9 },
      I.unit { 9 }, I.positive { 5, 1 } },
    fn = function(tf, x, lo, hi) return tf.clip_by_value(x, lo - 1, hi) end,
    ref = "np.minimum(np.maximum(a, b - 1), c)" }
  case { "clip_by_value of integers", inputs = { I.integer({ 40 }, 0, 100) },
    fn = function(_, x) return x:clip(10, 50) end, dtypes = INTS,
    ref = "np.clip(a, 10, 50)" }
  case { "add_n", inputs = { I.normal { 3, 400 }, I.normal { 3, 400 },
      I.normal { 3, 400 } }, grad = false,
    fn = function(tf, ...) return tf.add_n { ... } end, ref = "a + b + c" }
  case { "add_n small", inputs = { I.normal { 5 }, I.normal { 5 } },
    fn = function(tf, x, y) return tf.add_n { x, y, x } end,
    ref = "2 * a + b" }
  case { "add_n of one", inputs = { I.integer({ 5 }, 0, 9) }, dtypes = INTS,
    fn = function(tf, x) return tf.math.accumulate_n { x } end, ref = "a" }
end

local function define_cast(case, I)
  local to = { "float32", "float64", "float16", "bfloat16" }
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16",
    "int8", "int16", "int32", "int64", "uint8" } do
    case { "cast to " .. dtype, inputs = { I.integer({ 3, 70 }, 0, 120) },
      op = "cast", fn = function(tf, x) return tf.cast(x, dtype) end,
      ref = "a", dtypes = "number", grad = false }
  end
  for _, dtype in ipairs(to) do
    case { "cast of floats to " .. dtype, inputs = { I.normal { 3, 70 } },
      op = "cast", fn = function(tf, x) return tf.cast(x, dtype) end,
      ref = ("as_%s(a)"):format(dtype), grad = false,
      tol = { float16 = 0, float32 = 0, float64 = 0, bfloat16 = 0 } }
  end
  for _, dtype in ipairs(INTS) do
    case { "cast of floats to " .. dtype, inputs = { I.normal { 3, 70 } },
      op = "cast", fn = function(tf, x) return tf.cast(x * 200, dtype) end,
      ref = "cast_int(a * 200, '" .. dtype .. "')", dtypes = WIDE,
      grad = false }
    case { "cast of integers to " .. dtype .. " wraps",
      inputs = { I.integer({ 3, 70 }, -30000, 30000) }, op = "cast",
      fn = function(tf, x) return tf.cast(x, dtype) end,
      ref = "wrap(a, '" .. dtype .. "')",
      dtypes = { "int16", "int32", "int64" } }
    case { "saturate_cast to " .. dtype, op = "cast",
      inputs = { I.integer({ 3, 70 }, -30000, 30000) },
      fn = function(tf, x) return tf.saturate_cast(x, dtype) end,
      ref = "cast_int(a, '" .. dtype .. "')", grad = false,
      dtypes = { "float32", "float64", "int16", "int32", "int64" } }
  end
  case { "cast to bool", inputs = { I.integer({ 50 }, 0, 3) },
    fn = function(_, x) return x:cast "bool" end, ref = "a != 0",
    dtypes = "number", grad = false }
  case { "cast from bool", inputs = { I.boolean { 50 } }, dtypes = { "bool" },
    fn = function(_, x)
      return x:cast "float32", x:cast "int8", x:cast "bfloat16"
    end, ref = "a, a, a" }
  case { "cast there and back", inputs = { I.normal { 9 } }, op = "cast",
    fn = function(_, x) return x:cast "float64":cast(x.dtype) end,
    ref = "a", dtypes = WIDE, grad = true }
end

local function define_composites(case, I)
  case { "polyval", op = "add", inputs = { I.normal { 4 }, I.normal { 4 },
      I.normal {} }, fn = function(tf, x, y, z)
      return tf.math.polyval({ y, z, 2 }, x)
    end, ref = "b * a * a + c * a + 2",
    tol = { float16 = 2e-2, bfloat16 = 0.2 } }
  case { "reciprocal_no_nan", op = "divide_no_nan",
    inputs = { I.integer({ 20 }, 0, 4) }, grad = false,
    fn = function(tf, x) return tf.math.reciprocal_no_nan(x) end,
    ref = "np.where(a == 0, 0, 1 / np.maximum(a, 1))" }
  case { "lbeta", op = "lgamma", inputs = { I.positive { 3, 4 } },
    fn = function(tf, x) return tf.math.lbeta(x) end,
    ref = "lgamma(a).sum(-1) - lgamma(a.sum(-1))", dtypes = WIDE,
    grad = true, tol = { float32 = 1e-5 } }
  case { "ndtr", op = "erfc", inputs = { I.normal { 9 } },
    fn = function(tf, x) return tf.math.ndtr(x) end,
    ref = "erfc(-a / np.sqrt(2)) / 2" }
  case { "erfcinv", op = "ndtri", inputs = { I.unit { 9 } },
    fn = function(tf, x) return tf.math.erfcinv(x + 1) end,
    ref = "-erfinv(a)", dtypes = WIDE, tol = { float32 = 1e-5 } }
  case { "clip_by_norm", op = "maximum", inputs = { I.normal { 3, 4 } },
    fn = function(tf, x) return tf.clip_by_norm(x, 0.5) end,
    ref = "a * 0.5 / np.maximum(np.sqrt((a * a).sum()), 0.5)" }
  case { "clip_by_norm axes", op = "maximum", inputs = { I.normal { 3, 4 } },
    fn = function(tf, x) return tf.clip_by_norm(x, 1.5, { axes = { 1 } }) end,
    ref = "a * 1.5 / np.maximum(np.sqrt((a * a).sum(1, keepdims=True)), 1.5)" }
  case { "clip_by_average_norm", op = "maximum",
    inputs = { I.normal { 3, 4 } },
    fn = function(tf, x) return tf.clip_by_average_norm(x, 0.01) end,
    ref = "a * 0.01 / np.maximum(np.sqrt((a * a).sum()) / 12, 0.01)" }
  case { "clip_by_global_norm", op = "maximum",
    inputs = { I.normal { 3, 4 }, I.normal { 5 } },
    fn = function(tf, x, y)
      local list, norm = tf.clip_by_global_norm({ x, nil, y, n = 3 }, 0.7)
      return list[1], list[3], norm
    end,
    ref = "(lambda n: (a * 0.7 / max(n, 0.7), b * 0.7 / max(n, 0.7), n))("
      .. "np.sqrt((a * a).sum() + (b * b).sum()))" }
  case { "zero_fraction", op = "count_nonzero",
    inputs = { I.integer({ 50 }, 0, 3) }, dtypes = { "int32", "float64" },
    fn = function(tf, x) return tf.nn.zero_fraction(x) end,
    ref = "np.float32((a == 0).mean())" }
  case { "scalar_mul", op = "multiply", inputs = { I.normal { 9 } },
    fn = function(tf, x) return tf.math.scalar_mul(3, x) end, ref = "3 * a" }
end

return function(case, I)
  define_unary(case, I)
  define_rounding(case, I)
  define_binary(case, I)
  define_floats(case, I)
  define_zeros(case, I)
  define_integers(case, I)
  define_logic(case, I)
  define_choice(case, I)
  define_cast(case, I)
  define_composites(case, I)
end
