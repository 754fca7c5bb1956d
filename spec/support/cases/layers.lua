-- Layers: input 0 (or the first `x` ones) is what the layer is called with, the
-- others are its weights in the order of layer.weights.
return function(case, I)
  local N, P, X = I.normal, I.positive, I.index

  local function layer(entry)
    entry.dtypes = { "float64" }
    case(entry)
  end

  -- Core ---------------------------------------------------------------------
  layer { "Dense", layer = function(L) return L.Dense(3) end,
    inputs = { N{2, 4}, N{4, 3}, N{3} }, ref = "a @ b + c" }
  layer { "Dense with activation and more axes",
    layer = function(L)
      return L.Dense { units = 3, activation = "tanh", use_bias = false }
    end,
    inputs = { N{2, 2, 3, 4}, N{4, 3} }, ref = "np.tanh(a @ b)" }
  layer { "Activation", layer = function(L) return L.Activation "softplus" end,
    inputs = { N{2, 3} }, ref = "np.log1p(np.exp(a))" }
  layer { "Flatten", layer = function(L) return L.Flatten() end,
    inputs = { N{2, 3, 2, 2} }, ref = "a.reshape(2, 12)" }
  layer { "Flatten channels_first",
    layer = function(L) return L.Flatten { data_format = "channels_first" } end,
    inputs = { N{2, 3, 2, 4} }, ref = "a.transpose(0, 2, 3, 1).reshape(2, 24)" }
  layer { "Flatten of one axis", layer = function(L) return L.Flatten() end,
    inputs = { N{3} }, ref = "a[:, None]" }
  layer { "Reshape", layer = function(L) return L.Reshape { 2, -1 } end,
    inputs = { N{2, 3, 4} }, ref = "a.reshape(2, 2, 6)" }
  layer { "Permute", layer = function(L) return L.Permute { 2, 3, 1 } end,
    inputs = { N{2, 3, 4, 2} }, ref = "a.transpose(0, 2, 3, 1)" }
  layer { "RepeatVector", layer = function(L) return L.RepeatVector(3) end,
    inputs = { N{2, 4} }, ref = "np.repeat(a[:, None], 3, 1)" }
  layer { "Embedding", layer = function(L) return L.Embedding(5, 3) end,
    inputs = { X({2, 4}, 5), N{5, 3} }, ref = "b[a]" }
  layer { "Masking", layer = function(L) return L.Masking(0) end,
    inputs = { N{2, 3, 2} }, ref = "a" }

  -- Activations ---------------------------------------------------------------
  layer { "ReLU", layer = function(L)
      return L.ReLU { max_value = 1, negative_slope = 0.1, threshold = 0.2 }
    end, inputs = { N{3, 5} },
    ref = "np.where(a >= 0.2, np.minimum(a, 1), 0.1 * (a - 0.2))" }
  layer { "LeakyReLU", layer = function(L)
      return L.LeakyReLU { negative_slope = 0.1 }
    end, inputs = { N{3, 5} }, ref = "np.where(a > 0, a, 0.1 * a)" }
  layer { "ELU", layer = function(L) return L.ELU(0.5) end,
    inputs = { N{3, 5} }, ref = "np.where(a > 0, a, 0.5 * np.expm1(a))" }
  layer { "PReLU", layer = function(L)
      return L.PReLU { shared_axes = { 1 } }
    end, inputs = { N{2, 3, 4}, N{1, 4} }, ref = "np.where(a > 0, a, b * a)" }
  layer { "ThresholdedReLU", layer = function(L)
      return L.ThresholdedReLU(0.5)
    end, inputs = { N{3, 5} }, ref = "a * (a > 0.5)" }
  layer { "Softmax", layer = function(L) return L.Softmax(1) end,
    inputs = { N{2, 3, 4} }, ref = "softmax(a, 1)" }
  layer { "Softmax over two axes",
    layer = function(L) return L.Softmax { axis = { 1, 2 } } end,
    inputs = { N{2, 3, 4} },
    ref = "softmax(a.reshape(2, 12)).reshape(a.shape)" }

  -- Convolution ---------------------------------------------------------------
  layer { "Conv1D", layer = function(L)
      return L.Conv1D(3, 2, { strides = 2 })
    end, inputs = { N{2, 6, 2}, N{2, 2, 3}, N{3} },
    ref = "conv(a, b, c, 2)" }
  layer { "Conv1D causal", layer = function(L)
      return L.Conv1D(3, 2, { padding = "causal", dilation_rate = 2 })
    end, inputs = { N{2, 6, 2}, N{2, 2, 3}, N{3} },
    ref = "causal(a, b, c, 2)" }
  layer { "Conv2D", layer = function(L)
      return L.Conv2D(3, { 2, 3 }, { padding = "same", activation = "relu" })
    end, inputs = { N{2, 4, 5, 2}, N{2, 3, 2, 3}, N{3} },
    ref = "relu(conv(a, b, c, 1, 'SAME'))" }
  layer { "Conv2D grouped", layer = function(L)
      return L.Conv2D(4, 2, { groups = 2, use_bias = false })
    end, inputs = { N{2, 3, 3, 4}, N{2, 2, 2, 4} }, ref = "conv(a, b)" }
  layer { "Conv2D channels_first", layer = function(L)
      return L.Conv2D(3, 2, { data_format = "channels_first" })
    end, inputs = { N{2, 2, 4, 5}, N{2, 2, 2, 3}, N{3} },
    ref = "conv(a.transpose(0, 2, 3, 1), b, c).transpose(0, 3, 1, 2)" }
  layer { "Conv3D", layer = function(L) return L.Conv3D(2, 2) end,
    inputs = { N{1, 3, 3, 2, 2}, N{2, 2, 2, 2, 2}, N{2} },
    ref = "conv(a, b, c)" }
  layer { "Conv1DTranspose", layer = function(L)
      return L.Conv1DTranspose(2, 3, { strides = 2 })
    end, inputs = { N{2, 3, 2}, N{3, 2, 2}, N{2} },
    ref = "transposed(a, b, c, [7], 2, 'VALID')" }
  layer { "Conv2DTranspose", layer = function(L)
      return L.Conv2DTranspose(2, 3, { strides = 2, padding = "same" })
    end, inputs = { N{2, 3, 2, 2}, N{3, 3, 2, 2}, N{2} },
    ref = "transposed(a, b, c, [6, 4], 2, 'SAME')" }
  layer { "Conv1DTranspose with output_padding", layer = function(L)
      return L.Conv1DTranspose(2, 3, { strides = 3, output_padding = 1 })
    end, inputs = { N{2, 3, 2}, N{3, 2, 2}, N{2} },
    ref = "transposed(a, b, c, [10], 3, 'VALID')" }
  layer { "Conv2DTranspose with output_padding", layer = function(L)
      return L.Conv2DTranspose(2, { 2, 5 }, { strides = { 2, 3 },
        padding = "same", output_padding = { 1, 2 } })
    end, inputs = { N{2, 3, 2, 2}, N{2, 5, 2, 2}, N{2} },
    ref = "transposed(a, b, c, [5, 6], [2, 3], 'SAME')" }
  layer { "Conv2DTranspose with output_padding of odd and even kernels",
    layer = function(L)
      return L.Conv2DTranspose(2, { 3, 4 }, { strides = 2, padding = "same",
        output_padding = { 0, 1 } })
    end, inputs = { N{1, 3, 3, 2}, N{3, 4, 2, 2}, N{2} },
    ref = "transposed(a, b, c, [5, 5], 2, 'SAME')" }
  layer { "Conv2DTranspose with output_padding and a small kernel",
    layer = function(L)
      return L.Conv2DTranspose(2, 1, { strides = { 2, 3 }, padding = "same",
        output_padding = { 1, 2 } })
    end, inputs = { N{1, 3, 2, 2}, N{1, 1, 2, 2}, N{2} },
    ref = "transposed(a, b, c, [6, 6], [2, 3], 'SAME')" }
  layer { "Conv2DTranspose with a stride above the kernel",
    layer = function(L)
      return L.Conv2DTranspose(2, 2, { strides = 3 })
    end, inputs = { N{1, 2, 2, 2}, N{2, 2, 2, 2}, N{2} },
    ref = "transposed(a, b, c, [6, 6], 3, 'VALID')" }
  layer { "DepthwiseConv2D", layer = function(L)
      return L.DepthwiseConv2D(2, { depth_multiplier = 2, strides = 2 })
    end, inputs = { N{2, 4, 4, 2}, N{2, 2, 2, 2}, N{4} },
    ref = "depthwise(a, b, c, 2)" }
  layer { "SeparableConv2D", layer = function(L)
      return L.SeparableConv2D(3, 2, { padding = "same" })
    end, inputs = { N{2, 3, 3, 2}, N{2, 2, 2, 1}, N{1, 1, 2, 3}, N{3} },
    ref = "conv(depthwise(a, b, 0, 1, 'SAME'), c, d)" }

  layer { "SeparableConv1D", layer = function(L)
      return L.SeparableConv1D(3, 2, { strides = 2, depth_multiplier = 2 })
    end, inputs = { N{2, 5, 2}, N{2, 2, 2}, N{1, 4, 3}, N{3} },
    ref = "conv(depthwise(a[:, None], b[None], 0, [1, 2])[:, 0], c, d)" }
  layer { "SeparableConv1D causal", layer = function(L)
      return L.SeparableConv1D(3, 2, { padding = "causal", dilation_rate = 2 })
    end, inputs = { N{2, 5, 2}, N{2, 2, 1}, N{1, 2, 3}, N{3} },
    ref = "conv(np.stack([causal(a[..., i:i+1], b[:, i:i+1], 0, 2)[..., 0] "
      .. "for i in range(2)], -1), c, d)" }

  -- Pooling -------------------------------------------------------------------
  layer { "MaxPooling1D", layer = function(L) return L.MaxPooling1D() end,
    inputs = { N{2, 5, 3} }, ref = "pool(a, [2], 2, 'VALID', 'max')" }
  layer { "MaxPooling2D", layer = function(L)
      return L.MaxPooling2D { pool_size = 3, strides = 2, padding = "same" }
    end, inputs = { N{2, 4, 5, 2} }, ref = "pool(a, [3, 3], 2, 'SAME', 'max')" }
  layer { "AveragePooling1D", layer = function(L)
      return L.AveragePooling1D { pool_size = 3, strides = 1 }
    end, inputs = { N{2, 5, 3} }, ref = "pool(a, [3], 1, 'VALID', 'avg')" }
  layer { "AveragePooling2D", layer = function(L)
      return L.AveragePooling2D { 2, 1 }
    end, inputs = { N{2, 4, 3, 2} },
    ref = "pool(a, [2, 1], [2, 1], 'VALID', 'avg')" }
  layer { "GlobalMaxPooling1D", layer = function(L)
      return L.GlobalMaxPooling1D()
    end, inputs = { N{2, 5, 3} }, ref = "a.max(1)" }
  layer { "GlobalAveragePooling2D", layer = function(L)
      return L.GlobalAveragePooling2D { keepdims = true }
    end, inputs = { N{2, 3, 4, 2} }, ref = "a.mean((1, 2), keepdims=True)" }
  layer { "GlobalAveragePooling1D with a mask", layer = function(L)
      return L.GlobalAveragePooling1D()
    end, inputs = { N{2, 3, 2} },
    mask = { { true, true, false }, { true, false, false } },
    ref = "np.stack([a[0, :2].mean(0), a[1, 0]])" }
  layer { "GlobalMaxPooling2D channels_first", layer = function(L)
      return L.GlobalMaxPooling2D { data_format = "channels_first" }
    end, inputs = { N{2, 3, 4, 2} }, ref = "a.max((2, 3))" }

  -- Normalization -------------------------------------------------------------
  for _, dims in ipairs { { 4, 3 }, { 2, 4, 3 }, { 2, 3, 2, 3 } } do
    layer { "BatchNormalization in inference, rank " .. #dims,
      layer = function(L) return L.BatchNormalization() end,
      inputs = { N(dims), N{3}, N{3}, N{3}, P{3} },
      ref = "batch_norm(a, b, c, d, e)" }
    layer { "BatchNormalization in training, rank " .. #dims,
      layer = function(L) return L.BatchNormalization() end, training = true,
      inputs = { N(dims), N{3}, N{3}, N{3}, P{3} },
      ref = "batch_norm(a, b, c, d, e, True)" }
  end
  layer { "BatchNormalization of axis 1 without scale", training = true,
    layer = function(L)
      return L.BatchNormalization { axis = 1, scale = false }
    end, inputs = { N{4, 3, 2, 2}, N{3}, N{3}, P{3} },
    ref = "np.moveaxis(batch_norm(np.moveaxis(a, 1, -1), 1, b, c, d, True), "
      .. "-1, 1)" }
  layer { "BatchNormalization of a middle axis", training = true,
    layer = function(L) return L.BatchNormalization { axis = 2 } end,
    inputs = { N{3, 2, 3, 2}, N{3}, N{3}, N{3}, P{3} },
    ref = "np.swapaxes(batch_norm(np.swapaxes(a, 2, 3), b, c, d, e, True), "
      .. "2, 3)" }
  layer { "LayerNormalization",
    layer = function(L) return L.LayerNormalization() end,
    inputs = { N{2, 3, 4}, N{4}, N{4} }, ref = "nn.layer_norm(a, b, c)" }
  layer { "LayerNormalization over two axes",
    layer = function(L)
      return L.LayerNormalization { axis = { 1, 2 }, epsilon = 0.1 }
    end, inputs = { N{2, 3, 4}, N{3, 4}, N{3, 4} },
    ref = "nn.layer_norm(a, b, c, 1, 0.1)" }
  layer { "LayerNormalization over axis 1",
    layer = function(L) return L.LayerNormalization { axis = 1 } end,
    inputs = { N{2, 3, 4}, N{3}, N{3} },
    ref = "np.swapaxes(nn.layer_norm(np.swapaxes(a, 1, 2), b, c), 1, 2)" }
  layer { "GroupNormalization",
    layer = function(L) return L.GroupNormalization(2) end,
    inputs = { N{2, 3, 4}, N{4}, N{4} }, ref = "nn.group_norm(a, b, c, 2)" }
  layer { "GroupNormalization of axis 1",
    layer = function(L) return L.GroupNormalization { groups = -1, axis = 1 }
    end, inputs = { N{2, 4, 3}, N{4}, N{4} },
    ref = "nn.group_norm(a, b, c, 4, True)" }
  layer { "UnitNormalization",
    layer = function(L) return L.UnitNormalization() end,
    inputs = { N{3, 4} }, ref = "a / np.sqrt((a * a).sum(-1, keepdims=True))" }

  -- Merging -------------------------------------------------------------------
  for name, ref in pairs {
    Add = "a + b + c[:, None]", Multiply = "a * b * c[:, None]",
    Average = "(a + b + c[:, None]) / 3",
    Maximum = "np.maximum(np.maximum(a, b), c[:, None])",
    Minimum = "np.minimum(np.minimum(a, b), c[:, None])",
  } do
    layer { name, layer = function(L) return L[name]() end, x = 3,
      inputs = { N{2, 3, 4}, N{2, 3, 4}, N{2, 4} }, ref = ref }
  end
  layer { "Subtract", layer = function(L) return L.Subtract() end, x = 2,
    inputs = { N{2, 3}, N{2, 3} }, ref = "a - b" }
  layer { "Concatenate", layer = function(L) return L.Concatenate(1) end, x = 2,
    inputs = { N{2, 3, 2}, N{2, 1, 2} }, ref = "np.concatenate([a, b], 1)" }
  layer { "Dot", layer = function(L) return L.Dot(1) end, x = 2,
    inputs = { N{2, 3}, N{2, 3} }, ref = "(a * b).sum(1, keepdims=True)" }
  layer { "Dot of matrices", layer = function(L) return L.Dot { axes = { 2, 1 },
      normalize = true } end, x = 2,
    inputs = { N{2, 3, 4}, N{2, 4, 5} },
    ref = "(a / np.sqrt((a*a).sum(2, keepdims=True))) @ "
      .. "(b / np.sqrt((b*b).sum(1, keepdims=True)))" }

  -- Shaping -------------------------------------------------------------------
  layer { "ZeroPadding1D", layer = function(L)
      return L.ZeroPadding1D { { 1, 2 } }
    end, inputs = { N{2, 3, 2} },
    ref = "np.pad(a, ((0, 0), (1, 2), (0, 0)))" }
  layer { "ZeroPadding2D", layer = function(L)
      return L.ZeroPadding2D { { 1, 0 }, { 2, 1 } }
    end, inputs = { N{2, 2, 3, 2} },
    ref = "np.pad(a, ((0, 0), (1, 0), (2, 1), (0, 0)))" }
  layer { "Cropping1D", layer = function(L) return L.Cropping1D(1) end,
    inputs = { N{2, 4, 2} }, ref = "a[:, 1:3]" }
  layer { "Cropping2D", layer = function(L)
      return L.Cropping2D { { 1, 0 }, { 0, 2 } }
    end, inputs = { N{2, 3, 4, 2} }, ref = "a[:, 1:, :2]" }
  layer { "UpSampling1D", layer = function(L) return L.UpSampling1D(3) end,
    inputs = { N{2, 2, 2} }, ref = "upsample(a, [3])" }
  layer { "UpSampling2D",
    layer = function(L) return L.UpSampling2D { 2, 3 } end,
    inputs = { N{2, 2, 2, 2} }, ref = "upsample(a, [2, 3])" }

  -- Attention -----------------------------------------------------------------
  layer { "Attention", layer = function(L) return L.Attention() end, x = 3,
    inputs = { N{2, 3, 4}, N{2, 5, 4}, N{2, 5, 4} },
    ref = "attention(a, b, c)" }
  layer { "Attention with a scale, causal", layer = function(L)
      return L.Attention { use_scale = true, causal = true }
    end, x = 2, inputs = { N{2, 3, 4}, N{2, 3, 4}, N{} },
    ref = "attention(a, b, None, np.tri(3) > 0, c)" }
  layer { "MultiHeadAttention", layer = function(L)
      return L.MultiHeadAttention { num_heads = 2, key_dim = 3, value_dim = 2,
        use_bias = false }
    end, x = 2, positional = true,
    inputs = { N{2, 3, 4}, N{2, 5, 3}, N{4, 2, 3}, N{3, 2, 3}, N{3, 2, 2},
      N{2, 2, 4} },
    ref = "multi_head(a, b, c, d, e, f)" }

  layer { "AdditiveAttention", layer = function(L)
      return L.AdditiveAttention()
    end, x = 2, inputs = { N{2, 3, 4}, N{2, 5, 4}, N{4} },
    ref = "np.einsum('bij,bjd->bid', softmax((np.tanh(a[:, :, None] "
      .. "+ b[:, None]) * c).sum(-1)), b)" }
  layer { "EinsumDense", layer = function(L)
      return L.EinsumDense("...b,bcd->...cd", { 3, 2 }, { bias_axes = "cd",
        activation = "tanh" })
    end, inputs = { N{2, 3, 4}, N{4, 3, 2}, N{3, 2} },
    ref = "np.tanh(np.einsum('tub,bcd->tucd', a, b) + c)" }
  layer { "EinsumDense with a bias of one axis", layer = function(L)
      return L.EinsumDense("abc,bd->adc", { 5, -1 }, { bias_axes = "d" })
    end, inputs = { N{2, 3, 4}, N{3, 5}, N{5, 1} },
    ref = "np.einsum('abc,bd->adc', a, b) + c" }

  -- Recurrent -----------------------------------------------------------------
  local mask = { { true, false, true, true }, { true, true, false, false } }
  local python_mask = "[[1, 0, 1, 1], [1, 1, 0, 0]]"
  local function recurrent(name, gates, fn, bias, given)
    local weights = { N{2, 4, 3}, N{3, 2 * gates}, N{2, 2 * gates}, bias }
    local function make(more)
      return function(L)
        local options = {}
        for key, value in pairs(given or {}) do options[key] = value end
        for key, value in pairs(more or {}) do options[key] = value end
        return L[name](2, options)
      end
    end
    local own = name .. (given and " (other)" or "")
    local call = fn:gsub("%)$", "")
    layer { own, layer = make(), inputs = weights, ref = fn .. "[1]" }
    layer { own .. " with sequences and states", inputs = weights,
      layer = make { return_sequences = true, return_state = true },
      ref = "(lambda r: [r[0]] + r[2])(" .. fn .. ")" }
    layer { own .. " backwards", inputs = weights,
      layer = make { return_sequences = true, go_backwards = true },
      ref = call .. ", reverse=True)[0]" }
    layer { own .. " with a mask", inputs = weights, mask = mask,
      layer = make { return_sequences = true },
      ref = call .. ", mask=np.array(" .. python_mask .. ", bool))[0]" }
  end
  recurrent("SimpleRNN", 1, "simple_rnn(a, b, c, d)", N{2})
  recurrent("LSTM", 4, "lstm(a, b, c, d)", N{8})
  recurrent("LSTM", 4, "lstm(a, b, c, d, gate=lambda x: np.clip(x / 6 + .5, "
    .. "0, 1))", N{8}, { recurrent_activation = "hard_sigmoid" })
  recurrent("GRU", 3, "gru(a, b, c, d)", N{2, 6})
  recurrent("GRU", 3, "gru(a, b, c, d, after=False)", N{6},
    { reset_after = false })
  layer { "RNN of two cells", layer = function(L)
      return L.RNN { L.SimpleRNNCell(3), L.LSTMCell(2) }
    end,
    inputs = { N{2, 4, 3}, N{3, 3}, N{3, 3}, N{3}, N{3, 8}, N{2, 8}, N{8} },
    ref = "lstm(simple_rnn(a, b, c, d)[0], e, f, g)[1]" }
  layer { "Bidirectional", layer = function(L)
      return L.Bidirectional(L.SimpleRNN(2, { return_sequences = true }))
    end,
    inputs = { N{2, 4, 3}, N{3, 2}, N{2, 2}, N{2}, N{3, 2}, N{2, 2}, N{2} },
    ref = "np.concatenate([simple_rnn(a, b, c, d)[0], "
      .. "simple_rnn(a, e, f, g, None, True)[0][:, ::-1]], -1)" }
  layer { "Bidirectional summed", layer = function(L)
      return L.Bidirectional(L.GRU(2, { use_bias = false }),
        { merge_mode = "sum" })
    end,
    inputs = { N{2, 4, 3}, N{3, 6}, N{2, 6}, N{3, 6}, N{2, 6} },
    ref = "gru(a, b, c, np.zeros((2, 6)))[1] "
      .. "+ gru(a, d, e, np.zeros((2, 6)), None, True)[1]" }
  layer { "TimeDistributed", layer = function(L)
      return L.TimeDistributed(L.Conv1D(2, 2))
    end, inputs = { N{2, 3, 4, 2}, N{2, 2, 2}, N{2} },
    ref = "np.stack([conv(a[:, t], b, c) for t in range(3)], 1)" }

  -- Preprocessing -------------------------------------------------------------
  layer { "Rescaling", layer = function(L) return L.Rescaling(2, -1) end,
    inputs = { N{2, 3} }, ref = "2 * a - 1" }
  layer { "Normalization", layer = function(L)
      return L.Normalization { mean = { 1, 2, 3 }, variance = { 1, 4, 9 } }
    end, inputs = { N{2, 3} }, ref = "(a - [1, 2, 3]) / [1, 2, 3]" }
  layer { "Discretization", layer = function(L)
      return L.Discretization { -0.5, 0.1, 1 }
    end, inputs = { N{3, 4} }, no_grad = true,
    ref = "np.digitize(a, [-0.5, 0.1, 1])" }
  layer { "CenterCrop", layer = function(L) return L.CenterCrop(2, 3) end,
    inputs = { N{2, 4, 5, 2} }, ref = "a[:, 1:3, 1:4]" }
  layer { "Resizing", layer = function(L)
      return L.Resizing(4, 4, { interpolation = "nearest" })
    end, inputs = { N{2, 2, 2, 1} }, no_grad = true,
    ref = "upsample(a, [2, 2])" }
  layer { "CategoryEncoding", layer = function(L)
      return L.CategoryEncoding(4, { output_mode = "count" })
    end, inputs = { X({3, 5}, 4) },
    ref = "np.stack([np.bincount(r, minlength=4) for r in a])" }
end
