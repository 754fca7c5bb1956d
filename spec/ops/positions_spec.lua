-- Positions, bytes and images of other dtypes; values by hand.
local tf = require "tfdist"

local function refused(kind, pattern, fn, ...)
  local ok, e = pcall(fn, ...)
  assert.is_false(ok)
  assert.equal(kind, e.kind)
  assert.matches(pattern, e.message)
end

describe("tf.unravel_index", function()
  it("gives the position along each axis", function()
    assert.same({ { 0, 0, 1 }, { 0, 2, 2 } },
      tf.unravel_index({ 0, 2, 5 }, { 2, 3 }):totable())
    assert.same({ 1, 0, 2 }, tf.unravel_index(14, { 2, 3, 4 }):totable())
    assert.equal("int64", tf.unravel_index(tf.constant(3, "int64"), { 4 })
      .dtype)
    assert.same({ 2, 0 }, tf.unravel_index(tf.zeros({ 0 }, "int32"), { 2, 3 })
      .shape)
  end)

  it("refuses positions outside", function()
    refused("InvalidArgument", "indices%[1%] = 6 is outside .*{2, 3}",
      tf.unravel_index, { 0, 6 }, { 2, 3 })
    refused("InvalidArgument", "%-1", tf.unravel_index, -1, { 2 })
  end)
end)

describe("tf.bitcast", function()
  it("reads the same bytes as another dtype", function()
    assert.equal(0x3f800000, tf.bitcast(1, "int32"):item())
    assert.same({ 1, -2 }, tf.bitcast(tf.bitcast({ 1, -2 }, "int32"),
      "float32"):totable())
    assert.same({ { 1, 2, 0, 0 } },
      tf.bitcast(tf.constant({ 0x201 }, "int32"), "uint8"):totable())
    assert.same({ 0x201 }, tf.bitcast(tf.constant({ { 1, 2, 0, 0 } }, "uint8"),
      "int32"):totable())
  end)

  it("refuses rows that make no whole element", function()
    refused("InvalidArgument", "last axis has size 4", tf.bitcast,
      tf.constant({ { 1, 2, 3 } }, "uint8"), "int32")
    refused("TypeError", "bool", tf.bitcast, { true }, "uint8")
  end)
end)

describe("tf.reverse_sequence", function()
  it("reverses the first entries of each row", function()
    local x = tf.constant { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } }
    assert.same({ { 2, 1, 3 }, { 4, 5, 6 }, { 9, 8, 7 } },
      tf.reverse_sequence(x, { 2, 1, 3 }):totable())
    assert.same({ { 4, 2, 9 }, { 1, 5, 6 }, { 7, 8, 3 } },
      tf.reverse_sequence(x, { 2, 0, 3 }, 0, 1):totable())
    refused("InvalidArgument", "seq_lengths%[0%] = 4", tf.reverse_sequence, x,
      { 4, 1, 1 })
  end)
end)

describe("tf.image.convert_image_dtype", function()
  local convert = tf.image.convert_image_dtype

  it("scales between the ranges of the dtypes", function()
    local bytes = tf.constant({ { { 0 }, { 51 }, { 255 } } }, "uint8")
    assert.near(0.2, convert(bytes, "float32"):item(1), 1e-7)
    assert.equal(1, convert(bytes, "float64"):item(2))
    assert.same({ { { 0 }, { 51 }, { 255 } } },
      convert(convert(bytes, "float32"), "uint8"):totable())
    assert.same({ { { 0 }, { 51 * 128 }, { 255 * 128 } } },
      convert(bytes, "int16"):totable())
    assert.same({ { { 0 }, { 51 }, { 255 } } },
      convert(convert(bytes, "int16"), "uint8"):totable())
  end)

  it("clips with saturate, and leaves the same dtype alone", function()
    local x = tf.constant { { { -1.0 }, { 2.0 } } }
    assert.same({ { { 0 }, { 255 } } }, convert(x, "uint8", true):totable())
    assert.is_true(rawequal(x, convert(x, "float32")))
    refused("TypeError", "bool", convert, x, "bool")
  end)
end)

describe("images of whole numbers", function()
  local image = tf.image
  -- 0, 20, .. 220 of {2, 2, 3}.
  local function given(dtype)
    return tf.reshape(tf.cast(tf.range(12) * 20, dtype), { 2, 2, 3 })
  end
  local function flat(x) return tf.reshape(x, { -1 }):totable() end

  it("are as bright as floats, within their range", function()
    for _, delta in ipairs { 0.25, tf.constant(0.25, "float64") } do
      local x = image.adjust_brightness(given "uint8", delta)
      assert.equal("uint8", x.dtype)
      for i, got in ipairs(flat(x)) do
        -- Scaled by 255.5 where floats become whole, as TensorFlow has it.
        local want = math.min(((i - 1) * 20 / 255 + 0.25) * 255.5, 255)
        assert.equal(math.floor(want), got)
      end
    end
    assert.equal(0, flat(image.adjust_brightness(given "uint8", -0.25))[4])
    -- 0.25 of the range of int16
    assert.equal(math.floor(0.25 * 32767.5), flat(image.adjust_brightness(
      given "int16", 0.25))[1])
  end)

  it("have contrast that does not wrap round", function()
    local x = image.adjust_contrast(given "uint8", 2)
    assert.equal("uint8", x.dtype)
    for i, got in ipairs(flat(x)) do
      -- The mean of a channel is 90, 110 or 130.
      local mean = 90 + (i - 1) % 3 * 20
      assert.equal(math.max(0, math.min(255, ((i - 1) * 20 - mean) * 2 + mean)),
        got)
    end
  end)

  it("become gray, and colours from one channel only", function()
    for _, dtype in ipairs { "uint8", "int32", "int16" } do
      local x = image.rgb_to_grayscale(given(dtype))
      assert.equal(dtype, x.dtype)
      -- 20 * 0.587 + 40 * 0.114 = 16.3; each pixel is 60 * 0.9999 more.
      assert.same({ 16, 76, 136, 196 }, flat(x))
    end
    refused("ValueError", "grayscale_to_rgb: images have shape {2, 2, 3}; "
      .. "expected 1 channel", image.grayscale_to_rgb, given "uint8")
  end)
end)

describe("images of half precision", function()
  local image = tf.image
  local HALF = { "float16", "bfloat16" }

  -- f(x) of such an image of {2, 2, 1} is want(x), rounded to `dtype` once.
  local function near_by(values, half, dtype, f, want)
    local x = tf.reshape(tf.constant(values, { dtype = half }), { 2, 2, 1 })
    local y = f(x)
    assert.equal(dtype or half, y.dtype)
    local given, wanted = tf.reshape(x, { -1 }):totable(), {}
    for i = 1, 4 do
      wanted[i] = want(given[i], given)
    end
    local got = tf.reshape(y, { -1 })
    wanted = tf.cast(tf.constant(wanted, { dtype = "float64" }), y.dtype)
    if y.dtype == half then
      assert.same(wanted:totable(), got:totable())
    else -- sums of four, each rounded to 24 bits
      for i = 0, 3 do
        assert.near(wanted:item(i), got:item(i), 1e-6)
      end
    end
  end

  it("are float32 when they are resized, unless to the nearest", function()
    for _, half in ipairs(HALF) do
      local x = tf.constant({ { { 0 }, { 2 } }, { { 4 }, { 7 } } },
        { dtype = half })
      for _, method in pairs(image.ResizeMethod) do
        local dtype = method == "nearest" and half or "float32"
        for _, size in ipairs { { 1, 1 }, { 2, 2 }, { 3, 5 } } do
          assert.equal(dtype, image.resize(x, size, method).dtype, method)
        end
        assert.equal(dtype, image.resize_with_pad(x, 3, 5, method).dtype,
          method)
      end
      -- A tenth of the way from 0 to 2 is no number of half precision.
      assert.equal(3.25, image.resize(x, { 1, 1 }):item())
      assert.near(0.2, image.resize(x, { 2, 5 })[0][1]:item(), 1e-7)
    end
  end)

  it("send gradients back in their own dtype", function()
    for _, half in ipairs(HALF) do
      local x = tf.ones({ 2, 2, 1 }, half)
      local tape = tf.GradientTape()
      tape:watch(x)
      local y = tf.reduce_sum(image.resize(x, { 4, 4 }))
      tape:close()
      local grad = tape:gradient(y, x)
      assert.equal(half, grad.dtype)
      assert.same({ { { 4 }, { 4 } }, { { 4 }, { 4 } } }, grad:totable())
    end
  end)

  it("are float32 when they are standardized", function()
    for _, half in ipairs(HALF) do
      near_by({ 0.1, 0.2, 0.4, 0.7 }, half, "float32",
        image.per_image_standardization, function(x, all)
          local mean, squares = 0, 0
          for i = 1, 4 do
            mean = mean + all[i] / 4
          end
          for i = 1, 4 do
            squares = squares + (all[i] - mean) ^ 2 / 4
          end
          return (x - mean) / math.max(math.sqrt(squares), 0.5)
        end)
    end
  end)

  it("are rounded once when brightness or contrast change", function()
    for _, half in ipairs(HALF) do
      near_by({ 0.11, 0.23, 0.47, 0.7 }, half, nil, function(x)
        return image.adjust_contrast(x, 1.7)
      end, function(x, all)
        local mean = (all[1] + all[2] + all[3] + all[4]) / 4
        return (x - mean) * 1.7 + mean
      end)
    end
    near_by({ 0.11, 0.23, 0.47, 0.7 }, "bfloat16", nil, function(x)
      return image.adjust_brightness(x, 0.1)
    end, function(x) return x + 0.1 end)
  end)

  it("are rounded once when they become gray", function()
    for _, half in ipairs(HALF) do
      near_by({ 0.11, 0.23, 0.47, 0.7 }, half, nil, function(x)
        return image.rgb_to_grayscale(tf.concat({ x, x * 2, x * 4 }, -1))
      end, function(x)
        return (0.2989 + 2 * 0.5870 + 4 * 0.1140) * x
      end)
    end
  end)

  it("come from whole numbers as those times 1 / largest", function()
    -- 1 / 255 is 129 / 2^15 in bfloat16, and 105 times that has 212 / 2^9 next.
    local x = image.convert_image_dtype(tf.constant({ 105 },
      { dtype = "uint8" }), "bfloat16")
    assert.same({ 0.4140625 }, x:totable())
  end)
end)

describe("numbers that scalar tensors hold", function()
  it("are taken as numbers are", function()
    local half = tf.constant(0.5)
    for _, rate in ipairs { half, tf.Variable(0.5), tf.constant(0.5, "float64") }
    do
      for _, x in ipairs(tf.nn.dropout(tf.ones { 50 }, rate):totable()) do
        assert.is_true(x == 0 or x == 2)
      end
    end
    assert.same({ { { 1 }, { 1 } }, { { 1 }, { 1 } } },
      tf.image.central_crop(tf.ones { 4, 4, 1 }, half):totable())
    for _, dtype in ipairs { "float64", "float32", "float16" } do
      local x = tf.constant({ { { 1 }, { 3 } } }, { dtype = dtype })
      assert.same({ { { 1.5 }, { 2.5 } } },
        tf.image.adjust_contrast(x, half):totable())
      assert.equal(dtype, tf.image.adjust_contrast(x, half).dtype)
    end
    refused("TypeError", "dropout: rate must be a number, got the string \"a\"",
      tf.nn.dropout, tf.ones { 2 }, "a")
    refused("TypeError", "dropout: rate must be a number, got a Tensor",
      tf.nn.dropout, tf.ones { 2 }, tf.ones { 1 })
  end)
end)

describe("boxes of images", function()
  it("must fit, whatever their numbers", function()
    local x = tf.ones { 3, 3, 1 }
    for _, big in ipairs { 4, 2 ^ 62,
      rawget(math, "maxinteger") or 2 ^ 53 } do
      refused("ValueError", "are outside images of 3 rows and 3 columns",
        tf.image.crop_to_bounding_box, x, big, 0, big, 1)
      refused("ValueError", "are outside images of 3 rows and 3 columns",
        tf.image.crop_to_bounding_box, x, 0, 0, 1, big)
      refused("ValueError", "do not fit into 1 rows and 4 columns",
        tf.image.pad_to_bounding_box, x, big, 0, 1, 4)
    end
    for _, big in ipairs { 2 ^ 63, 1e300 } do
      refused("ValueError", "offset_height must be a whole number of 64 bits",
        tf.image.crop_to_bounding_box, x, big, 0, 1, 1)
    end
  end)
end)

describe("tf.image.resize_with_pad", function()
  it("keeps the aspect ratio and centres", function()
    local x = tf.ones { 2, 4, 1 }
    assert.same({ { 0, 0 }, { 1, 1 }, { 0, 0 } }, tf.image.resize_with_pad(x,
      3, 2):reshape({ 3, 2 }):totable())
  end)

  it("knows all methods by name", function()
    for name, method in pairs(tf.image.ResizeMethod) do
      assert.near(1, tf.image.resize(tf.ones { 4, 4, 1 }, { 3, 7 }, method)
        :item(5), 1e-6, name)
    end
    refused("ValueError", "one of bilinear, nearest, bicubic", tf.image.resize,
      tf.ones { 2, 2, 1 }, { 1, 1 }, "nope")
  end)
end)

describe("a count in a tensor", function()
  it("is one, in a trace too if it is a constant", function()
    local n, x = tf.constant(4, "int32"), tf.constant({ 1, 2, 2 }, "int32")
    local cases = {
      { { 0, 1, 2, 0 }, function() return tf.math.bincount(x,
        { minlength = n }) end },
      { { 0, 1 }, function() return tf.math.bincount(x,
        { maxlength = tf.constant(2, "int32") }) end },
      { { 0, 1, 2 }, function(t) return tf.math.bincount(t,
        { minlength = tf.shape(t)[0], maxlength = tf.shape(t)[0] }) end },
      { { 0, 1, 2, 0 }, function() return tf.linalg.diag_part(
        tf.math.confusion_matrix(x, x, { num_classes = n })) end },
      { { 1, 4 }, function() return tf.shape(tf.random.categorical({ { 0 } },
        n)) end },
      { { 4, 4, 1 }, function() return tf.shape(
        tf.image.resize_with_crop_or_pad(tf.ones { 2, 2, 1 }, n, n)) end },
    }
    for i, case in ipairs(cases) do
      assert.same(case[1], case[2](x):totable(), i)
      assert.same(case[1], tf.function_(case[2])(x):totable(), i)
    end
  end)

  it("is refused by name where only a call knows it, or as several", function()
    local x = tf.constant({ 1, 2, 2 }, "int32")
    refused("NotImplementedError", "bincount: minlength has values",
      tf.function_(function(n) return tf.math.bincount(x, { minlength = n })
      end), tf.constant(4, "int32"))
    refused("NotImplementedError", "confusion_matrix: num_classes has values",
      tf.function_(function(n) return tf.math.confusion_matrix(x, x, n)
      end), tf.constant(4, "int32"))
    refused("TypeError", "minlength must be a whole number, got a tensor of",
      tf.math.bincount, x, { minlength = x })
    refused("ValueError", "got 2.5", tf.math.bincount, x,
      { minlength = tf.constant(2.5) })
  end)
end)

describe("Generator.binomial", function()
  it("has the mean and variance of its distribution", function()
    local g = tf.random.Generator.from_seed(3)
    local n, counts, p = 4000, 20, 0.3
    local x = tf.cast(g:binomial({ n }, counts, p), "float64")
    -- Five standard errors.
    assert.near(counts * p, tf.reduce_mean(x):item(),
      5 * math.sqrt(counts * p * (1 - p) / n))
    assert.near(counts * p * (1 - p), tf.math.reduce_variance(x):item(), 0.5)
    assert.equal("int32", g:binomial({ 2 }, 3, 0.5).dtype)
  end)

  it("broadcasts counts and probabilities", function()
    local g = tf.random.Generator.from_seed(3)
    assert.same({ { 0, 7, 0 }, { 0, 7, 0 } },
      g:binomial({ 2, 3 }, { 5, 7, 0 }, { 0, 1, 1 }):totable())
    refused("InvalidArgument", "0%.%.1", g.binomial, g, { 2 }, 3, 1.5)
    refused("InvalidArgument", "counts", g.binomial, g, { 2 }, -1, 0.5)
  end)

  it("names what a generator does not have", function()
    refused("KeyError", "norml", function()
      return tf.random.Generator.from_seed(3):norml { 2 }
    end)
  end)
end)

describe("messages name the function that was called", function()
  it("not the one that does its work", function()
    refused("InvalidArgument", "^zeros: ", tf.zeros, { -1 })
    refused("InvalidArgument", "^ones: ", tf.ones, { -1 })
    local devices = tf.config.list_physical_devices "CPU"
    refused("ValueError", "^config%.set_logical_device_configuration: ",
      tf.config.set_logical_device_configuration, devices[1], 0)
    refused("ValueError", "^config%.threading%.set_intra",
      tf.config.threading.set_intra_op_parallelism_threads, -3)
  end)

  it("and what is in the wrong order", function()
    local ok, e = pcall(tf.GradientTape, { persistent = true }, print)
    assert.is_false(ok)
    assert.equal("TypeError", e.kind)
    assert.matches("tf.GradientTape%(fn, {", e.hint)
  end)
end)
