--- Cases of products, convolution, pooling, normalisation and recurrence.
return function(case, I)
  -- Products ------------------------------------------------------------------

  local function product(name, a, b, options, ref)
    case { "matmul " .. name, inputs = { a, b }, ref = ref,
      fn = function(tf, x, y) return tf.matmul(x, y, options) end,
      tol = { float32 = 2e-6 } }
  end
  product("square", I.normal { 5, 4 }, I.normal { 4, 3 }, {}, "a @ b")
  product("transpose_a", I.normal { 4, 5 }, I.normal { 4, 3 },
    { transpose_a = true }, "a.T @ b")
  product("transpose_b", I.normal { 5, 4 }, I.normal { 3, 4 },
    { transpose_b = true }, "a @ b.T")
  product("both transposed", I.normal { 4, 5 }, I.normal { 3, 4 },
    { transpose_a = true, adjoint_b = true }, "a.T @ b.T")
  product("row and column", I.normal { 1, 7 }, I.normal { 7, 1 }, {}, "a @ b")
  product("column and row", I.normal { 7, 1 }, I.normal { 1, 5 }, {}, "a @ b")
  product("batch", I.normal { 2, 3, 4 }, I.normal { 2, 4, 5 }, {}, "a @ b")
  product("batch against one matrix", I.normal { 2, 3, 4 }, I.normal { 4, 5 },
    {}, "a @ b")
  product("one matrix against batch", I.normal { 3, 4 }, I.normal { 2, 4, 5 },
    {}, "a @ b")
  product("batch, matrix transposed", I.normal { 2, 3, 4 }, I.normal { 5, 4 },
    { transpose_b = true }, "a @ b.T")
  product("batch transposed, matrix", I.normal { 2, 4, 3 }, I.normal { 4, 5 },
    { transpose_a = true }, "np.swapaxes(a, 1, 2) @ b")
  product("batch transposed, an axis of 1, matrix", I.normal { 2, 1, 4, 3 },
    I.normal { 4, 5 }, { transpose_a = true }, "np.swapaxes(a, 2, 3) @ b")
  product("batch transposed, axes of 1, matrix", I.normal { 1, 3, 1, 1, 4 },
    I.normal { 1, 5 }, { transpose_a = true }, "np.swapaxes(a, 3, 4) @ b")
  product("broadcast batches", I.normal { 2, 1, 3, 4 }, I.normal { 3, 4, 2 },
    {}, "a @ b")
  product("broadcast batches, both transposed", I.normal { 2, 1, 4, 3 },
    I.normal { 3, 2, 4 }, { transpose_a = true, transpose_b = true },
    "np.swapaxes(a, 2, 3) @ np.swapaxes(b, 1, 2)")
  product("no rows", I.normal { 0, 4 }, I.normal { 4, 3 }, {}, "a @ b")
  product("no inner size", I.normal { 3, 0 }, I.normal { 0, 2 }, {}, "a @ b")
  case { "matmul of integers", inputs = { I.integer({ 7, 9 }, 0, 4),
      I.integer({ 9, 20 }, 0, 4) }, dtypes = "number",
    fn = function(tf, a, b) return tf.matmul(a, b) end, ref = "a @ b" }
  case { "matmul past one block", dtypes = { "float32", "float64", "int64" },
    inputs = { I.integer({ 19, 300 }, -4, 5), I.integer({ 300, 70 }, -4, 5) },
    fn = function(tf, a, b) return tf.matmul(a, b) end, ref = "a @ b",
    grad = false }
  case { "matmul second derivative", grad = true, dtypes = { "float64" },
    inputs = { I.normal { 3, 4 }, I.normal { 4, 2 } },
    fn = function(tf, a, b)
      local y
      local tape = tf.GradientTape(function(t)
        t:watch(a)
        y = tf.reduce_sum(tf.square(tf.matmul(a, b)))
      end)
      return tape:gradient(y, a)
    end, ref = "2 * (a @ b) @ b.T" }

  case { "bias_add", inputs = { I.normal { 2, 3, 4 }, I.normal { 4 } },
    fn = function(tf, a, b) return tf.nn.bias_add(a, b) end, ref = "a + b" }
  for _, n in ipairs { 1, 6, 63, 64 } do
    case { ("bias_add short rows of %d"):format(n),
      inputs = { I.normal { 7, 61, n }, I.normal { n } },
      fn = function(tf, a, b) return tf.nn.bias_add(a, b) end, ref = "a + b",
      grad = false }
  end
  case { "bias_add channels first",
    inputs = { I.normal { 2, 3, 4, 2 }, I.normal { 3 } },
    fn = function(tf, a, b)
      return tf.nn.bias_add(a, b, { data_format = "NCHW" })
    end, ref = "a + b.reshape(1, 3, 1, 1)" }
  case { "bias_add channels first, no space",
    inputs = { I.normal { 5, 3 }, I.normal { 3 } },
    fn = function(tf, a, b)
      return tf.nn.bias_add(a, b, { data_format = "NCHW" })
    end, ref = "a + b" }
  case { "bias_add integers", dtypes = "int",
    inputs = { I.integer({ 2, 3 }, 0, 50), I.integer({ 3 }, 0, 50) },
    fn = function(tf, a, b) return tf.nn.bias_add(a, b) end, ref = "a + b" }
  case { "bias_add empty", inputs = { I.normal { 0, 3 }, I.normal { 3 } },
    fn = function(tf, a, b) return tf.nn.bias_add(a, b) end, ref = "a + b" }

  local function bias_relu(tf, a, b, data_format)
    return tf.raw_ops.bias_add_relu(a, b, data_format or "NHWC")
  end
  case { "bias_add_relu", inputs = { I.normal { 2, 3, 4 }, I.normal { 4 } },
    fn = bias_relu, ref = "np.maximum(a + b, 0)" }
  for _, n in ipairs { 1, 6, 63, 64 } do
    case { ("bias_add_relu rows of %d"):format(n),
      inputs = { I.normal { 7, 61, n }, I.normal { n } }, fn = bias_relu,
      ref = "np.maximum(a + b, 0)", grad = n == 6 }
  end
  case { "bias_add_relu channels first",
    inputs = { I.normal { 2, 3, 4, 2 }, I.normal { 3 } },
    fn = function(tf, a, b) return bias_relu(tf, a, b, "NCHW") end,
    ref = "np.maximum(a + b.reshape(1, 3, 1, 1), 0)" }
  case { "bias_add_relu empty", inputs = { I.normal { 0, 3 }, I.normal { 3 } },
    fn = bias_relu, ref = "np.maximum(a + b, 0)" }

  -- Convolution ----------------------------------------

  local wide = { float32 = 1e-5, float16 = 8e-3, bfloat16 = 5e-2 }

  local function conv2d(name, x, f, options, ref)
    case { "conv2d " .. name, inputs = { x, f }, ref = ref, tol = wide,
      fn = function(tf, a, b)
        return tf.nn.conv2d(a, b, options)
      end }
  end
  conv2d("valid", I.normal { 2, 5, 6, 3 }, I.normal { 3, 2, 3, 4 },
    { strides = 1, padding = "VALID" }, "conv(a, b, 1, 'VALID')")
  conv2d("same", I.normal { 2, 5, 6, 3 }, I.normal { 3, 2, 3, 4 },
    { strides = 1, padding = "SAME" }, "conv(a, b, 1, 'SAME')")
  conv2d("strides", I.normal { 2, 7, 6, 2 }, I.normal { 3, 3, 2, 3 },
    { strides = { 2, 3 }, padding = "SAME" }, "conv(a, b, (2, 3), 'SAME')")
  conv2d("strides past the end", I.normal { 1, 6, 8, 2 },
    I.normal { 3, 3, 2, 3 }, { strides = { 1, 2, 2, 1 }, padding = "VALID" },
    "conv(a, b, 2, 'VALID')")
  conv2d("dilations", I.normal { 2, 7, 8, 2 }, I.normal { 3, 2, 2, 3 },
    { strides = 1, padding = "SAME", dilations = { 2, 3 } },
    "conv(a, b, 1, 'SAME', (2, 3))")
  conv2d("explicit padding", I.normal { 2, 4, 5, 2 }, I.normal { 3, 3, 2, 3 },
    { strides = 1, padding = { { 0, 0 }, { 1, 2 }, { 0, 1 }, { 0, 0 } } },
    "conv(a, b, 1, ((1, 2), (0, 1)))")
  conv2d("one channel", I.normal { 2, 6, 6, 1 }, I.normal { 3, 3, 1, 8 },
    { strides = 1, padding = "SAME" }, "conv(a, b, 1, 'SAME')")
  conv2d("1x1", I.normal { 2, 4, 3, 5 }, I.normal { 1, 1, 5, 6 },
    { strides = 1, padding = "VALID" }, "conv(a, b, 1, 'VALID')")
  conv2d("groups", I.normal { 2, 5, 4, 6 }, I.normal { 2, 3, 3, 4 },
    { strides = 1, padding = "SAME" }, "conv(a, b, 1, 'SAME')")
  conv2d("channels first", I.normal { 2, 3, 5, 6 }, I.normal { 3, 2, 3, 4 },
    { strides = { 1, 1, 2, 1 }, padding = "SAME", data_format = "NCHW" },
    "conv(a, b, (2, 1), 'SAME', first=True)")
  conv2d("channels first, explicit padding", I.normal { 1, 2, 4, 5 },
    I.normal { 3, 3, 2, 3 }, { strides = 1, data_format = "NCHW",
      padding = { { 0, 0 }, { 0, 0 }, { 1, 1 }, { 2, 0 } } },
    "conv(a, b, 1, ((1, 1), (2, 0)), first=True)")
  conv2d("channels first, groups", I.normal { 2, 4, 5, 3 },
    I.normal { 3, 3, 2, 6 },
    { strides = 1, padding = "SAME", data_format = "NCHW" },
    "conv(a, b, 1, 'SAME', first=True)")
  conv2d("no images", I.normal { 0, 5, 6, 3 }, I.normal { 3, 2, 3, 4 },
    { strides = 1, padding = "SAME" }, "conv(a, b, 1, 'SAME')")
  conv2d("window larger than the image by one", I.normal { 1, 2, 3, 1 },
    I.normal { 3, 3, 1, 2 }, { strides = 1, padding = "VALID" },
    "np.zeros((1, 0, 1, 2))")
  case { "conv2d of integers", dtypes = { "int32", "int64" },
    inputs = { I.integer({ 2, 5, 6, 3 }, -3, 4),
      I.integer({ 3, 2, 3, 4 }, -3, 4) },
    fn = function(tf, a, b) return tf.nn.conv2d(a, b, 1, "SAME") end,
    ref = "conv(a, b, 1, 'SAME')" }
  case { "conv2d many channels", dtypes = { "float32", "bfloat16" },
    inputs = { I.normal { 2, 9, 9, 32 }, I.normal { 3, 3, 32, 48 } },
    fn = function(tf, a, b) return tf.nn.conv2d(a, b, 1, "SAME") end,
    ref = "conv(a, b, 1, 'SAME')", tol = { float32 = 5e-5, bfloat16 = 0.2 } }
  case { "conv2d second derivative", dtypes = { "float64" }, grad = true,
    inputs = { I.normal { 1, 4, 4, 2 }, I.normal { 2, 2, 2, 3 } },
    fn = function(tf, a, b)
      local y
      local tape = tf.GradientTape(function(t)
        t:watch(a)
        t:watch(b)
        y = tf.reduce_sum(tf.square(tf.nn.conv2d(a, b, 1, "SAME")))
      end)
      local g = tape:gradient(y, { a, b })
      return g[1], g[2]
    end,
    ref = "(conv_input(b, 2 * conv(a, b, 1, 'SAME'), a.shape, 1, 'SAME'),"
      .. " conv_filter(a, 2 * conv(a, b, 1, 'SAME'), b.shape, 1, 'SAME'))" }

  case { "conv1d", inputs = { I.normal { 2, 9, 3 }, I.normal { 4, 3, 5 } },
    fn = function(tf, a, b) return tf.nn.conv1d(a, b, 2, "SAME") end,
    ref = "conv(a, b, 2, 'SAME')", tol = wide }
  case { "conv1d causal padding",
    inputs = { I.normal { 2, 9, 3 }, I.normal { 3, 3, 2 } },
    fn = function(tf, a, b)
      return tf.nn.conv1d(a, b, { stride = 1, dilations = 2,
        padding = { { 0, 0 }, { 4, 0 }, { 0, 0 } } })
    end, ref = "conv(a, b, 1, ((4, 0),), 2)", tol = wide }
  case { "conv1d channels first",
    inputs = { I.normal { 2, 3, 9 }, I.normal { 4, 3, 5 } },
    fn = function(tf, a, b)
      return tf.nn.conv1d(a, b, 1, "VALID", { data_format = "NCW" })
    end, ref = "conv(a, b, 1, 'VALID', first=True)", tol = wide }
  case { "conv3d",
    inputs = { I.normal { 1, 4, 5, 3, 2 }, I.normal { 2, 3, 2, 2, 3 } },
    fn = function(tf, a, b)
      return tf.nn.conv3d(a, b, { 1, 1, 2, 1, 1 }, "SAME")
    end, ref = "conv(a, b, (1, 2, 1), 'SAME')", tol = wide }
  case { "convolution picks the axes",
    inputs = { I.normal { 1, 4, 5, 2 }, I.normal { 2, 3, 2, 3 } },
    fn = function(tf, a, b) return tf.nn.convolution(a, b) end,
    ref = "conv(a, b, 1, 'VALID')", tol = wide }

  case { "conv_backprop_input as transposed convolution",
    inputs = { I.normal { 2, 3, 4, 3 }, I.normal { 3, 2, 5, 3 } },
    fn = function(tf, a, b)
      return tf.nn.conv2d_transpose(a, b, { 2, 5, 8, 5 }, { 2, 2 })
    end,
    ref = "conv_input(b, a, (2, 5, 8, 5), 2, 'SAME')", tol = wide }
  case { "conv_backprop_input channels first",
    inputs = { I.normal { 2, 3, 3, 4 }, I.normal { 3, 2, 5, 3 } },
    fn = function(tf, a, b)
      return tf.nn.conv2d_transpose(a, b, { 2, 5, 5, 8 }, 2,
        { data_format = "NCHW" })
    end,
    ref = "conv_input(b, a, (2, 5, 5, 8), 2, 'SAME', first=True)", tol = wide }
  case { "conv_backprop_input over one axis",
    inputs = { I.normal { 2, 4, 3 }, I.normal { 3, 2, 3 } },
    fn = function(tf, a, b)
      return tf.nn.conv1d_transpose(a, b, { 2, 9, 2 }, 2, "VALID")
    end,
    ref = "conv_input(b, a, (2, 9, 2), 2, 'VALID')", tol = wide }
  case { "conv_backprop_filter",
    inputs = { I.normal { 2, 5, 6, 3 }, I.normal { 2, 3, 3, 4 } },
    fn = function(tf, a, b)
      return tf.raw_ops.conv_backprop_filter(a, b, { strides = 2,
        padding = "SAME", filter_sizes = { 3, 2, 3, 4 } })
    end,
    ref = "conv_filter(a, b, (3, 2, 3, 4), 2, 'SAME')", tol = wide }
  case { "conv2d depthwise",
    inputs = { I.normal { 2, 5, 6, 3 }, I.normal { 3, 2, 3, 2 } },
    fn = function(tf, a, b)
      return tf.nn.depthwise_conv2d(a, b, { 1, 2, 2, 1 }, "SAME")
    end, ref = "depthwise(a, b, 2, 'SAME')", tol = wide }
  case { "conv2d depthwise, many channels", dtypes = { "float32" },
    inputs = { I.normal { 2, 5, 6, 32 }, I.normal { 3, 3, 32, 1 } },
    fn = function(tf, a, b)
      return tf.nn.depthwise_conv2d(a, b, { 1, 1, 1, 1 }, "SAME")
    end, ref = "depthwise(a, b, 1, 'SAME')", tol = wide }
  case { "conv2d separable", inputs = { I.normal { 2, 5, 4, 3 },
      I.normal { 3, 2, 3, 2 }, I.normal { 1, 1, 6, 4 } },
    fn = function(tf, a, b, c)
      return tf.nn.separable_conv2d(a, b, c, { 1, 1, 1, 1 }, "VALID")
    end,
    ref = "conv(depthwise(a, b, 1, 'VALID'), c, 1, 'VALID')",
    tol = { float32 = 1e-5, float16 = 2e-2, bfloat16 = 0.2 } }
  case { "conv_backprop_filter depthwise",
    inputs = { I.normal { 2, 4, 4, 2 }, I.normal { 2, 4, 4, 4 } },
    fn = function(tf, a, b)
      return tf.nn.depthwise_conv2d_backprop_filter(a, { 3, 3, 2, 2 }, b,
        { 1, 1, 1, 1 }, "SAME")
    end,
    ref = "conv_filter(a, b, (3, 3, 1, 4), 1, 'SAME').reshape(3, 3, 2, 2)",
    tol = wide }
  case { "conv_backprop_input depthwise",
    inputs = { I.normal { 3, 3, 2, 2 }, I.normal { 2, 4, 4, 4 } },
    fn = function(tf, a, b)
      return tf.nn.depthwise_conv2d_backprop_input({ 2, 4, 4, 2 }, a, b,
        { 1, 1, 1, 1 }, "SAME")
    end,
    ref = "conv_input(a.reshape(3, 3, 1, 4), b, (2, 4, 4, 2), 1, 'SAME')",
    tol = wide }

  -- Pooling ----------------------------------------

  local function pooling(kind, name, x, options, ref, dtypes)
    case { kind .. " " .. name, inputs = { x }, ref = ref, dtypes = dtypes,
      fn = function(tf, a) return tf.nn[kind](a, options) end }
  end
  for _, kind in ipairs { "max", "avg" } do
    local function each(axes, name, x, options, ref)
      pooling(kind .. "_pool" .. axes, name, x, options,
        (ref:gsub("KIND", "'" .. kind .. "'")))
    end
    each("2d", "valid", I.normal { 2, 6, 7, 3 },
      { ksize = 2, strides = 2, padding = "VALID" },
      "pool(a, 2, 2, 'VALID', KIND)")
    each("2d", "overlapping, same", I.normal { 2, 6, 7, 3 },
      { ksize = { 1, 3, 3, 1 }, strides = { 1, 2, 1, 1 }, padding = "SAME" },
      "pool(a, 3, (2, 1), 'SAME', KIND)")
    each("2d", "channels first", I.normal { 2, 3, 6, 7 },
      { ksize = 3, strides = 2, padding = "SAME", data_format = "NCHW" },
      "pool(a, 3, 2, 'SAME', KIND, True)")
    each("2d", "explicit padding", I.normal { 1, 5, 5, 2 },
      { ksize = 3, strides = 2,
        padding = { { 0, 0 }, { 1, 0 }, { 2, 1 }, { 0, 0 } } },
      "pool(a, 3, 2, ((1, 0), (2, 1)), KIND)")
    each("2d", "more channels than a block", I.normal { 1, 4, 4, 70 },
      { ksize = 2, strides = 1, padding = "VALID" },
      "pool(a, 2, 1, 'VALID', KIND)")
    -- Every width of vector: 23 = 16 + 4 + 2 + 1, 13 = 8 + 4 + 1.
    for _, channels in ipairs { 5, 13, 16, 23 } do
      local of = (" of %d channels"):format(channels)
      each("2d", "windows apart" .. of, I.normal { 2, 4, 4, channels },
        { ksize = 2, strides = 2, padding = "VALID" },
        "pool(a, 2, 2, 'VALID', KIND)")
      each("2d", "windows apart, uncovered" .. of,
        I.normal { 1, 4, 5, channels },
        { ksize = 1, strides = 2, padding = "VALID" },
        "pool(a, 1, 2, 'VALID', KIND)")
      each("2d", "windows apart, padded" .. of, I.normal { 1, 3, 5, channels },
        { ksize = 2, strides = 2, padding = "SAME" },
        "pool(a, 2, 2, 'SAME', KIND)")
      each("2d", "overlapping" .. of, I.normal { 1, 4, 4, channels },
        { ksize = 3, strides = 1, padding = "SAME" },
        "pool(a, 3, 1, 'SAME', KIND)")
    end
    each("2d", "no images", I.normal { 0, 4, 4, 2 },
      { ksize = 2, strides = 1, padding = "VALID" },
      "pool(a, 2, 1, 'VALID', KIND)")
    each("1d", "over one axis", I.normal { 2, 9, 3 },
      { ksize = 3, strides = 2, padding = "SAME" },
      "pool(a, 3, 2, 'SAME', KIND)")
    each("3d", "over three axes", I.normal { 1, 4, 3, 4, 2 },
      { ksize = 2, strides = { 2, 1, 2 }, padding = "VALID" },
      "pool(a, 2, (2, 1, 2), 'VALID', KIND)")
    each("2d", "over images smaller than the window",
      I.normal { 2, 2, 3, 2 }, { ksize = 3, strides = 1, padding = "VALID" },
      "np.zeros((2, 0, 1, 2))")
    each("", "picks the axes", I.normal { 2, 8, 3 },
      { ksize = 2, strides = 2, padding = "VALID" },
      "pool(a, 2, 2, 'VALID', KIND)")
  end
  case { "max_pool2d of windows beyond all images",
    op = "max_pool2d", inputs = { I.normal { 2, 3, 5, 16 } },
    fn = function(tf, x)
      return tf.nn.max_pool2d(x, { 1e9, 1e9 }, { 1e9, 1e9 }, "SAME")
    end, ref = "a.max(axis=(1, 2), keepdims=True)" }
  case { "max_pool2d of integers", dtypes = "int",
    inputs = { I.integer({ 2, 5, 5, 3 }, 0, 100) },
    fn = function(tf, a) return tf.nn.max_pool2d(a, 3, 2, "SAME") end,
    ref = "pool(a, 3, 2, 'SAME', 'max')" }
  case { "max_pool_with_argmax",
    inputs = { I.normal { 2, 5, 6, 3 } },
    fn = function(tf, a)
      return tf.nn.max_pool_with_argmax(a, 3, 2, "SAME")
    end, ref = "argmax_pool(a, 3, 2, 'SAME', False)" }
  case { "max_pool_with_argmax over the batch", grad = false,
    inputs = { I.normal { 2, 5, 6, 18 } },
    fn = function(tf, a)
      return tf.nn.max_pool_with_argmax(a, { 2, 1 }, 1, "VALID",
        { output_dtype = "int32", include_batch_in_index = true })
    end, ref = "argmax_pool(a, (2, 1), 1, 'VALID', True)" }
  case { "max_pool_grad gives ties to the first", grad = false,
    inputs = { I.integer({ 2, 5, 6, 3 }, 0, 3), I.normal { 2, 3, 3, 3 } },
    fn = function(tf, a, b)
      local y = tf.nn.max_pool2d(a, 3, 2, "SAME")
      return tf.raw_ops.max_pool_grad(a, y, b, 3, 2, "SAME")
    end,
    ref = "max_pool_grad(a, pool(a, 3, 2, 'SAME', 'max'), b, 3, 2, 'SAME')" }
  case { "max_pool_grad_grad", grad = { 1 },
    inputs = { I.normal { 2, 5, 6, 3 }, I.normal { 2, 5, 6, 3 } },
    fn = function(tf, a, b)
      local y = tf.nn.max_pool2d(a, 3, 2, "SAME")
      return tf.raw_ops.max_pool_grad_grad(a, y, b, 3, 2, "SAME")
    end,
    ref = "max_pool_pick(a, pool(a, 3, 2, 'SAME', 'max'), b, 3, 2, 'SAME')" }
  case { "max_pool_grad is linear in its gradient", grad = { 1 },
    dtypes = { "float64" },
    inputs = { I.normal { 2, 5, 6, 3 }, I.normal { 2, 3, 3, 3 } },
    fn = function(tf, a, b)
      local y = tf.nn.max_pool2d(a, 3, 2, "SAME")
      return tf.raw_ops.max_pool_grad(a, y, b, 3, 2, "SAME")
    end,
    ref = "max_pool_grad(a, pool(a, 3, 2, 'SAME', 'max'), b, 3, 2, 'SAME')" }
  case { "avg_pool_grad", inputs = { I.normal { 2, 3, 3, 3 } },
    fn = function(tf, a)
      return tf.raw_ops.avg_pool_grad(a, 3, 2, "SAME",
        { orig_input_shape = { 2, 5, 6, 3 } })
    end,
    ref = "avg_pool_grad(a, (2, 5, 6, 3), 3, 2, 'SAME')" }

  -- Normalisation ----------------------------------------

  local norm = { float32 = 2e-5, float16 = 1e-2, bfloat16 = 8e-2 }

  case { "fused_batch_norm training", tol = norm,
    op = "fused_batch_norm fused_batch_norm_grad",
    inputs = { I.normal { 4, 3, 2, 5 }, I.positive { 5 }, I.normal { 5 } },
    fn = function(tf, x, s, o)
      return (tf.nn.fused_batch_norm(x, s, o))
    end, ref = "batch_norm(a, b, c)[0]" }
  case { "fused_batch_norm moments", tol = norm, grad = false,
    inputs = { I.normal { 4, 3, 2, 5 }, I.positive { 5 }, I.normal { 5 } },
    fn = function(tf, x, s, o) return tf.nn.fused_batch_norm(x, s, o) end,
    ref = "batch_norm(a, b, c)" }
  case { "fused_batch_norm channels first", tol = norm,
    inputs = { I.normal { 4, 5, 3, 7 }, I.positive { 5 }, I.normal { 5 } },
    fn = function(tf, x, s, o)
      return (tf.nn.fused_batch_norm(x, s, o, { data_format = "NCHW",
        epsilon = 0.1 }))
    end, ref = "batch_norm(a, b, c, 0.1, True)[0]" }
  case { "fused_batch_norm of many rows", tol = norm,
    dtypes = { "float32", "float64" }, grad = false,
    inputs = { I.normal { 200, 5, 3 }, I.positive { 3 }, I.normal { 3 } },
    fn = function(tf, x, s, o) return tf.nn.fused_batch_norm(x, s, o) end,
    ref = "batch_norm(a, b, c)" }
  case { "fused_batch_norm inference", tol = norm, grad = { 0, 1, 2 },
    inputs = { I.normal { 4, 3, 5 }, I.positive { 5 }, I.normal { 5 },
      I.normal { 5 }, I.positive { 5 } },
    fn = function(tf, x, s, o, m, v)
      return (tf.nn.fused_batch_norm(x, s, o, m, v, { is_training = false }))
    end, ref = "batch_norm_fixed(a, b, c, d, e)" }
  case { "fused_batch_norm running averages", tol = norm, grad = false,
    inputs = { I.normal { 4, 3, 5 }, I.positive { 5 }, I.normal { 5 },
      I.normal { 5 }, I.positive { 5 } },
    fn = function(tf, x, s, o, m, v)
      return select(2, tf.nn.fused_batch_norm(x, s, o, m, v,
        { exponential_avg_factor = 0.25 }))
    end,
    ref = "(0.75 * d + 0.25 * batch_norm(a, b, c)[1],"
      .. " 0.75 * e + 0.25 * batch_norm(a, b, c)[2])" }
  case { "fused_batch_norm plain variance", tol = norm, grad = false,
    inputs = { I.normal { 4, 3, 5 }, I.positive { 5 }, I.normal { 5 },
      I.normal { 5 }, I.positive { 5 } },
    fn = function(tf, x, s, o, m, v)
      return (select(3, tf.raw_ops.fused_batch_norm(x, s, o, m, v, 0.001,
        "NHWC", true, 0.25, false)))
    end,
    ref = "0.75 * e + 0.25 * 11 / 12 * batch_norm(a, b, c)[2]" }
  case { "layer_normalization last axis", tol = norm,
    op = "layer_normalization layer_normalization_grad",
    inputs = { I.normal { 4, 3, 21 }, I.positive { 21 }, I.normal { 21 } },
    fn = function(tf, x, s, o) return tf.nn.layer_normalization(x, s, o) end,
    ref = "layer_norm(a, b, c)" }
  case { "layer_normalization two axes", tol = norm,
    inputs = { I.normal { 4, 3, 5 }, I.positive { 3, 5 }, I.normal { 3, 5 } },
    fn = function(tf, x, s, o)
      return tf.nn.layer_normalization(x, s, o, { axis = 1, epsilon = 0.1 })
    end, ref = "layer_norm(a, b, c, 1, 0.1)" }
  case { "layer_normalization bare", tol = norm,
    inputs = { I.normal { 4, 9 } },
    fn = function(tf, x) return tf.nn.layer_normalization(x) end,
    ref = "layer_norm(a, 1, 0)" }
  case { "group_normalization", tol = norm,
    op = "group_normalization group_normalization_grad",
    inputs = { I.normal { 3, 4, 2, 6 }, I.positive { 6 }, I.normal { 6 } },
    fn = function(tf, x, s, o)
      return tf.nn.group_normalization(x, s, o, { groups = 3 })
    end, ref = "group_norm(a, b, c, 3)" }
  case { "group_normalization channels first", tol = norm,
    inputs = { I.normal { 3, 6, 4, 5 }, I.positive { 6 }, I.normal { 6 } },
    fn = function(tf, x, s, o)
      return tf.nn.group_normalization(x, s, o, { groups = 2, axis = 1 })
    end, ref = "group_norm(a, b, c, 2, True)" }
  case { "group_normalization of vectors", tol = norm,
    inputs = { I.normal { 3, 6 }, I.positive { 6 } },
    fn = function(tf, x, s)
      return tf.nn.group_normalization(x, s, { groups = 2 })
    end, ref = "group_norm(a, b, 0, 2)" }
  case { "fused_batch_norm by hand", tol = norm,
    inputs = { I.normal { 4, 5 }, I.normal { 5 }, I.positive { 5 },
      I.normal { 5 }, I.positive { 5 } },
    fn = function(tf, x, m, v, o, s)
      return tf.nn.batch_normalization(x, m, v, o, s, 0.01)
    end, ref = "batch_norm_fixed(a, e, d, b, c, 0.01)" }
  case { "conv1d in local response normalisation", tol = norm,
    inputs = { I.normal { 2, 3, 2, 7 } },
    fn = function(tf, x)
      return tf.nn.local_response_normalization(x, 2, 0.5, 0.1, 0.75)
    end, ref = "lrn(a, 2, 0.5, 0.1, 0.75)" }
  case { "reduce_sum weighted moments", tol = norm,
    inputs = { I.normal { 4, 3, 5 }, I.positive { 3, 1 } },
    fn = function(tf, x, w) return tf.nn.weighted_moments(x, { 0, 1 }, w) end,
    ref = "weighted_moments(a, b, (0, 1))" }
  case { "reduce_mean moments", tol = norm,
    inputs = { I.normal { 4, 3, 5 } },
    fn = function(tf, x) return tf.nn.moments(x, { 0, 2 }) end,
    ref = "(a.mean((0, 2)), a.var((0, 2)))" }

  -- Recurrence ----------------------------------------

  local cell = { float32 = 1e-5, float16 = 8e-3, bfloat16 = 6e-2 }

  case { "lstm", op = "lstm lstm_grad", tol = cell,
    inputs = { I.normal { 3, 2, 4 }, I.unit { 4, 20 }, I.unit { 5, 20 },
      I.unit { 20 }, I.unit { 2, 5 } },
    fn = function(tf, x, w, u, b, h)
      return tf.nn.lstm(x, w, u, b, h, h * 0.5)
    end, ref = "lstm(a, b, c, d, e, 0.5 * e)" }
  case { "lstm without states", tol = cell,
    inputs = { I.normal { 4, 3, 2 }, I.unit { 2, 12 }, I.unit { 3, 12 } },
    fn = function(tf, x, w, u) return tf.nn.lstm(x, w, u) end,
    ref = "lstm(a, b, c, 0, np.zeros((3, 3)), 0)" }
  case { "lstm of one step", tol = cell,
    inputs = { I.normal { 1, 3, 2 }, I.unit { 2, 12 }, I.unit { 3, 12 } },
    fn = function(tf, x, w, u) return (tf.nn.lstm(x, w, u)) end,
    ref = "lstm(a, b, c, 0, np.zeros((3, 3)), 0)[0]" }
  case { "lstm of no step", tol = cell, grad = false,
    inputs = { I.normal { 0, 3, 2 }, I.unit { 2, 12 }, I.unit { 3, 12 },
      I.unit { 3, 3 } },
    fn = function(tf, x, w, u, h)
      return select(2, tf.nn.lstm(x, w, u, nil, h, h))
    end, ref = "(d, d)" }
  case { "lstm wide", tol = { float32 = 5e-5 }, dtypes = { "float32" },
    inputs = { I.normal { 5, 9, 33 }, I.unit { 33, 256 },
      I.unit { 64, 256 } },
    fn = function(tf, x, w, u) return tf.nn.lstm(x, w * 0.2, u * 0.2) end,
    ref = "lstm(a, b * 0.2, c * 0.2, 0, np.zeros((9, 64)), 0)" }
  case { "gru", op = "gru gru_grad", tol = cell,
    inputs = { I.normal { 3, 2, 4 }, I.unit { 4, 15 }, I.unit { 5, 15 },
      I.unit { 2, 15 }, I.unit { 2, 5 } },
    fn = function(tf, x, w, u, b, h) return tf.nn.gru(x, w, u, b, h) end,
    ref = "gru(a, b, c, d, e)" }
  case { "gru without states", tol = cell,
    inputs = { I.normal { 4, 3, 2 }, I.unit { 2, 9 }, I.unit { 3, 9 } },
    fn = function(tf, x, w, u) return (tf.nn.gru(x, w, u)) end,
    ref = "gru(a, b, c, np.zeros((2, 9)), np.zeros((3, 3)))[0]" }
end
