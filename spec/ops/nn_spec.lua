--- What the functions of products, windows, normalisation and recurrence
--- refuse, and how they say it.

local tf = require "tfdist"

local function refuses(kind, text, fn, ...)
  local ok, e = pcall(fn, ...)
  assert(not ok, "no error")
  assert.are.equal(kind, e.kind)
  assert(e.message:find(text, 1, true),
    ("the message is %q, expected to find %q"):format(e.message, text))
end

describe("tf.matmul", function()
  it("names both shapes when inner sizes differ", function()
    refuses("InvalidArgument", "matmul: inner sizes differ: a is {64, 784} "
      .. "and b is {100, 10} (784 against 100)", tf.matmul,
      tf.zeros { 64, 784 }, tf.zeros { 100, 10 })
  end)
  it("says which operand is transposed", function()
    refuses("InvalidArgument", "a is {3, 4} transposed and b is {4, 5}",
      tf.matmul, tf.zeros { 3, 4 }, tf.zeros { 4, 5 }, { transpose_a = true })
  end)
  it("wants matrices", function()
    refuses("InvalidArgument", "b has rank 1 {4}; expected rank 2 or more",
      tf.matmul, tf.zeros { 3, 4 }, tf.zeros { 4 })
  end)
  it("wants equal dtypes and numbers", function()
    refuses("InvalidArgument", "a is float32 and b is int32", tf.matmul,
      tf.zeros { 2, 2 }, tf.zeros({ 2, 2 }, "int32"))
    refuses("InvalidArgument", "bool", tf.matmul, tf.zeros({ 2, 2 }, "bool"),
      tf.zeros({ 2, 2 }, "bool"))
  end)
  it("takes transpose or adjoint, not both", function()
    refuses("ValueError", "transpose_b and adjoint_b", tf.matmul,
      tf.zeros { 2, 2 }, tf.zeros { 2, 2 },
      { transpose_b = true, adjoint_b = true })
  end)
  it("broadcasts batches that fit and refuses others", function()
    assert.are.same({ 5, 3, 2, 4 }, tf.matmul(tf.zeros { 5, 1, 2, 3 },
      tf.zeros { 3, 3, 4 }).shape)
    refuses("InvalidArgument", "do not broadcast", tf.matmul,
      tf.zeros { 2, 2, 3 }, tf.zeros { 3, 3, 4 })
  end)
end)

describe("tf.nn.bias_add", function()
  it("wants one bias for each channel", function()
    refuses("InvalidArgument", "bias is {3} and value is {2, 4}",
      tf.nn.bias_add, tf.zeros { 2, 4 }, tf.zeros { 3 })
  end)
end)

describe("tf.nn.conv2d", function()
  local x, f = tf.zeros { 1, 5, 5, 3 }, tf.zeros { 3, 3, 3, 4 }
  it("wants channels that fit", function()
    refuses("InvalidArgument", "input is {1, 5, 5, 3} (3 channels) and "
      .. "filters is {3, 3, 2, 4}", tf.nn.conv2d, x, tf.zeros { 3, 3, 2, 4 },
      1, "SAME")
  end)
  it("checks the lists", function()
    refuses("ValueError", "strides is {1, 2, 3}", tf.nn.conv2d, x, f,
      { 1, 2, 3 }, "SAME")
    refuses("ValueError", "strides is {2, 1, 1, 1}", tf.nn.conv2d, x, f,
      { 2, 1, 1, 1 }, "SAME")
    refuses("ValueError", "strides is {0, 1}", tf.nn.conv2d, x, f, { 0, 1 },
      "SAME")
    refuses("ValueError", "padding lists 2 pairs; expected 4", tf.nn.conv2d, x,
      f, 1, { { 0, 0 }, { 0, 0 } })
    refuses("ValueError", "batch and channels cannot be padded", tf.nn.conv2d,
      x, f, 1, { { 0, 0 }, { 0, 0 }, { 0, 0 }, { 1, 0 } })
  end)
  it("says when the window does not fit", function()
    refuses("InvalidArgument", "a window of 3 does not fit an axis of 1",
      tf.nn.conv2d, tf.zeros { 1, 1, 5, 3 }, f, 1, "VALID")
  end)
  it("wants rank 4", function()
    refuses("InvalidArgument", "input has rank 3", tf.nn.conv2d,
      tf.zeros { 5, 5, 3 }, f, 1, "SAME")
  end)
  it("takes padding in any case", function()
    assert.are.same({ 1, 5, 5, 4 }, tf.nn.conv2d(x, f, 1, "same").shape)
  end)
end)

describe("tf.nn.conv2d_transpose", function()
  it("wants an output shape that gives the input back", function()
    refuses("InvalidArgument", "out_backprop is {1, 3, 3, 4}; expected "
      .. "{1, 4, 4, 4}", tf.nn.conv2d_transpose, tf.zeros { 1, 3, 3, 4 },
      tf.zeros { 3, 3, 2, 4 }, { 1, 7, 7, 2 }, 2)
  end)
end)

describe("pooling", function()
  it("refuses padding as wide as the window", function()
    refuses("ValueError", "expected less than the window", tf.nn.max_pool2d,
      tf.zeros { 1, 4, 4, 1 }, 2, 2,
      { { 0, 0 }, { 2, 0 }, { 0, 0 }, { 0, 0 } })
  end)
  it("averages floating-point numbers only", function()
    refuses("InvalidArgument", "int32", tf.nn.avg_pool2d,
      tf.zeros({ 1, 4, 4, 1 }, "int32"), 2, 2, "SAME")
  end)
  it("counts no padding in averages", function()
    local y = tf.nn.avg_pool2d(tf.ones { 1, 3, 3, 1 }, 2, 2, "SAME")
    assert.are.same({ 1, 1, 1, 1 }, y:reshape { -1 }:totable())
  end)
end)

describe("normalisation", function()
  it("wants a divisor of the channels as groups", function()
    refuses("ValueError", "groups is 4 and x is {2, 3, 3, 6} (6 channels)",
      tf.nn.group_normalization, tf.zeros { 2, 3, 3, 6 }, nil, nil, 4)
  end)
  it("wants scales of the channels", function()
    refuses("InvalidArgument", "scale is {3}; expected {4}",
      tf.nn.fused_batch_norm, tf.zeros { 2, 4 }, tf.ones { 3 },
      tf.zeros { 4 })
  end)
  it("wants moments for inference", function()
    refuses("ValueError", "mean and variance are missing",
      tf.nn.fused_batch_norm, tf.zeros { 2, 4 }, tf.ones { 4 },
      tf.zeros { 4 }, { is_training = false })
  end)
  it("keeps statistics of half types in float32", function()
    local _, mean = tf.raw_ops.layer_normalization(
      tf.zeros({ 2, 4 }, "bfloat16"))
    assert.are.equal("float32", mean.dtype)
  end)
  it("takes float32 scales beside half inputs", function()
    local y, mean = tf.nn.fused_batch_norm(tf.ones({ 2, 4 }, "float16"),
      tf.ones { 4 }, tf.zeros { 4 })
    assert.are.equal("float16", y.dtype)
    assert.are.equal("float32", mean.dtype)
  end)
  it("gives NaN moments for an empty batch", function()
    local y, mean = tf.nn.fused_batch_norm(tf.zeros { 0, 2 }, tf.ones { 2 },
      tf.zeros { 2 })
    assert.are.same({ 0, 2 }, y.shape)
    local m = mean:totable()
    assert(m[1] ~= m[1])
  end)
  it("has no second derivatives through the fused operations", function()
    local x = tf.constant { { 1, 2, 4 }, { 3, 5, 6 } }
    refuses("NotImplementedError", "no second derivatives", function()
      local outer = tf.GradientTape(nil, { persistent = true })
      outer:watch(x)
      local inner = tf.GradientTape()
      inner:watch(x)
      local y = tf.reduce_sum(tf.square(tf.nn.layer_normalization(x)))
      local g = inner:gradient(y, x)
      return outer:gradient(g, x)
    end)
  end)
end)

describe("softmax and what is made of it", function()
  -- NaN is not equal to itself. x - max(x) is NaN where x is inf.
  it("are NaN for a row with infinity", function()
    local nn = tf.nn
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
      for _, n in ipairs { 2, 40 } do
        local row, class = { n = n }, {}
        for i = 1, n do row[i], class[i] = i == 2 and 1 / 0 or 0, 1 / n end
        local x = tf.constant({ row, class }, { dtype = dtype })
        local labels = tf.constant({ class, class }, { dtype = dtype })
        local sparse = nn.sparse_softmax_cross_entropy_with_logits
        for _, y in ipairs { nn.softmax(x), nn.log_softmax(x),
          nn.softmax_cross_entropy_with_logits { labels = labels, logits = x },
          sparse { labels = { 0, 0 }, logits = x } } do
          y = tf.cast(tf.reshape(y, { 2, -1 }), "float64"):totable()
          for i = 1, #y[1] do
            assert.is_true(y[1][i] ~= y[1][i])
            assert.is_true(y[2][i] == y[2][i])
          end
        end
      end
    end
    assert.same({ 0, 1 }, nn.softmax({ -1 / 0, 0 }):totable())
  end)
end)

describe("fused recurrence", function()
  it("wants weights that fit", function()
    refuses("InvalidArgument", "recurrent_kernel is {3, 10}; expected "
      .. "{units, 4 * units}", tf.nn.lstm, tf.zeros { 2, 1, 2 },
      tf.zeros { 2, 12 }, tf.zeros { 3, 10 })
    refuses("InvalidArgument", "kernel is {5, 12}; expected {2, 12}",
      tf.nn.lstm, tf.zeros { 2, 1, 2 }, tf.zeros { 5, 12 },
      tf.zeros { 3, 12 })
  end)
  it("keeps no workspace without a tape", function()
    local _, _, _, space = tf.raw_ops.lstm(tf.zeros { 2, 1, 2 },
      tf.zeros { 2, 12 }, tf.zeros { 3, 12 }, nil, nil, nil, false)
    assert.are.same({ 0 }, space.shape)
  end)
  it("says why an inference pass has no gradients", function()
    local x = tf.zeros { 2, 1, 2 }
    refuses("FailedPrecondition", "training = true", function()
      local tape = tf.GradientTape()
      tape:watch(x)
      local y = tf.nn.gru(x, tf.zeros { 2, 9 }, tf.zeros { 3, 9 }, nil, nil,
        false)
      return tape:gradient(y, x)
    end)
  end)
end)
