return function(case, I)
  local image = { I.normal { 4, 5, 2 } }
  local batch = { I.normal { 2, 3, 4, 2 } }

  case { "resize up", op = "gather", inputs = image,
    fn = function(tf, x) return tf.image.resize(x, { 7, 9 }) end,
    ref = "bilinear(a, 7, 9)" }
  case { "resize down", op = "gather", inputs = image,
    fn = function(tf, x) return tf.image.resize(x, { 2, 3 }) end,
    ref = "bilinear(a, 2, 3)" }
  case { "resize a batch", op = "gather", inputs = batch,
    fn = function(tf, x) return tf.image.resize(x, { 5, 2 }) end,
    ref = "batch(a, bilinear, 5, 2)" }
  case { "resize to nearest", op = "gather", inputs = image,
    dtypes = "number",
    fn = function(tf, x)
      return tf.image.resize(x, { 7, 3 }, { method = "nearest" })
    end, ref = "nearest(a, 7, 3)" }
  local TOL = { float16 = 1e-2, bfloat16 = 6e-2 }
  for _, method in ipairs {
    "bicubic", "mitchellcubic", "gaussian", "lanczos3", "lanczos5",
  } do
    for _, size in ipairs { { 7, 9 }, { 2, 3 }, { 4, 5 } } do
      case { ("resize %s to %d x %d"):format(method, size[1], size[2]),
        op = "matmul", inputs = image, tol = TOL,
        fn = function(tf, x) return tf.image.resize(x, size, method) end,
        ref = ("filtered(a, %d, %d, %q)"):format(size[1], size[2], method) }
    end
  end
  case { "resize bilinear antialias", op = "matmul", inputs = image, tol = TOL,
    fn = function(tf, x)
      return tf.image.resize(x, { 2, 9 }, { antialias = true })
    end, ref = "filtered(a, 2, 9, 'triangle', True)" }
  case { "resize bicubic antialias", op = "matmul", inputs = batch, tol = TOL,
    fn = function(tf, x)
      return tf.image.resize(x, { 2, 1 },
        { method = "bicubic", antialias = true })
    end, ref = "batch(a, filtered, 2, 1, 'bicubic', True)" }
  for _, size in ipairs { { 7, 9 }, { 2, 3 }, { 4, 1 } } do
    case { ("resize area to %d x %d"):format(size[1], size[2]), op = "matmul",
      inputs = image, tol = TOL,
      fn = function(tf, x) return tf.image.resize(x, size, "area") end,
      ref = ("area(a, %d, %d)"):format(size[1], size[2]) }
  end
  case { "resize_with_pad", op = "pad", inputs = image,
    fn = function(tf, x) return tf.image.resize_with_pad(x, 8, 5) end,
    ref = "np.pad(bilinear(a, 4, 5), ((2, 2), (0, 0), (0, 0)))" }
  case { "convert_image_dtype to float64", op = "cast",
    dtypes = { "uint8" }, grad = false,
    inputs = { I.integer({ 2, 3, 1 }, 0, 255, "uint8") },
    fn = function(tf, x)
      return tf.image.convert_image_dtype(x, "float64")
    end, ref = "a / 255" }
  case { "resize with the aspect ratio", op = "gather", inputs = image,
    fn = function(tf, x)
      return tf.image.resize(x, { 8, 5 }, { preserve_aspect_ratio = true })
    end, ref = "bilinear(a, 4, 5)" }

  case { "flip_left_right", op = "reverse", inputs = batch, dtypes = "all",
    fn = function(tf, x) return tf.image.flip_left_right(x) end,
    ref = "a[:, :, ::-1]" }
  case { "flip_up_down", op = "reverse", inputs = image, dtypes = "all",
    fn = function(tf, x) return tf.image.flip_up_down(x) end,
    ref = "a[::-1]" }
  for k = 0, 5 do
    case { "rot90 by " .. k, op = "reverse", inputs = image,
      fn = function(tf, x) return tf.image.rot90(x, k) end,
      ref = ("np.rot90(a, %d)"):format(k) }
  end
  case { "image transpose", op = "transpose", inputs = batch,
    fn = function(tf, x) return tf.image.transpose(x) end,
    ref = "np.swapaxes(a, 1, 2)" }

  case { "crop_to_bounding_box", op = "strided_slice", inputs = batch,
    fn = function(tf, x) return tf.image.crop_to_bounding_box(x, 1, 2, 2, 1) end,
    ref = "a[:, 1:3, 2:3]" }
  case { "pad_to_bounding_box", op = "pad", inputs = image,
    fn = function(tf, x) return tf.image.pad_to_bounding_box(x, 1, 2, 6, 8) end,
    ref = "np.pad(a, ((1, 1), (2, 1), (0, 0)))" }
  case { "resize_with_crop_or_pad", op = "pad", inputs = image,
    fn = function(tf, x) return tf.image.resize_with_crop_or_pad(x, 7, 2) end,
    ref = "np.pad(a[:, 1:3], ((1, 2), (0, 0), (0, 0)))" }
  case { "central_crop", op = "strided_slice", inputs = { I.normal { 8, 6, 1 } },
    fn = function(tf, x) return tf.image.central_crop(x, 0.5) end,
    ref = "a[2:6, 1:5]" }

  case { "per_image_standardization", op = "reduce_std", inputs = image,
    fn = function(tf, x) return tf.image.per_image_standardization(x) end,
    ref = "standardize(a)", tol = { float16 = 2e-2, bfloat16 = 0.1 } }
  case { "adjust_brightness", op = "add", inputs = image,
    fn = function(tf, x) return tf.image.adjust_brightness(x, 0.25) end,
    ref = "a + 0.25" }
  case { "adjust_contrast", op = "reduce_mean", inputs = image,
    fn = function(tf, x) return tf.image.adjust_contrast(x, 2) end,
    ref = "(a - a.mean((0, 1))) * 2 + a.mean((0, 1))",
    tol = { float16 = 2e-2, bfloat16 = 0.1 } }
  case { "rgb_to_grayscale", op = "multiply", inputs = { I.normal { 2, 2, 3 } },
    fn = function(tf, x) return tf.image.rgb_to_grayscale(x) end,
    ref = "(a @ np.array([0.2989, 0.5870, 0.1140]))[..., None]",
    tol = { float16 = 1e-2, bfloat16 = 5e-2 } }
  case { "grayscale_to_rgb", op = "concat", inputs = { I.normal { 2, 2, 1 } },
    fn = function(tf, x) return tf.image.grayscale_to_rgb(x) end,
    ref = "np.repeat(a, 3, -1)" }
end
