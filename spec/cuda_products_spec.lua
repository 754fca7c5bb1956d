-- Products with what follows them as one call of cuBLASLt, on its stand-in.
local standins = require "spec.support.standins"

-- check(name, fn, ...): fn's values op by op and traced, and which calls of the
-- traced one are products. Eager rounds to the type three times (product, sum,
-- activation), an epilogue once: four units in the last place of values below 8
-- are more than both can differ.
local HEAD = [[
local tf = require "tfdist"
local UNITS = { float32 = 2 ^ -24, float16 = 2 ^ -11, bfloat16 = 2 ^ -8,
  float64 = 2 ^ -53 }
local function flat(t)
  return tf.reshape(tf.cast(t, "float64"), { -1 }):totable()
end
local function near(name, want, got, unit)
  want, got = flat(want), flat(got)
  for i, x in ipairs(want) do
    if not (math.abs(x - got[i]) <= 32 * unit) then
      print("apart", name, i, x, got[i])
    end
  end
end
local function products(f, ...)
  local list = {}
  for line in f:get_concrete_function(...):graph("lowered"):gmatch "[^\n]+" do
    list[#list + 1] = line:match "^%s+(fused%(matmul.-%))%("
      or line:match "^%s+(matmul)%("
  end
  return table.concat(list, " ")
end
local function check(name, fn, ...)
  local f = tf.function_(fn)
  local want, got = fn(...), f(...)
  near(name, want, got, UNITS[want.dtype.name or tostring(want.dtype)])
  print(name .. ": " .. products(f, ...))
end
-- Values of a formula, sums below 8.
local function values(shape, seed, dtype)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  local list = {}
  for i = 1, n do list[i] = ((i * 37 + seed * 11) % 41 - 20) / 20 end
  return tf.cast(tf.reshape(tf.constant(list), shape), dtype or "float32")
end
local nn, m = tf.nn, tf.matmul
]]

local CASES = HEAD .. [[
local dtype = DTYPE
tf.device("/gpu:0", function()
  local x, w = values({ 6, 9 }, 1, dtype), values({ 9, 16 }, 2, dtype)
  local b, wide = values({ 16 }, 3, dtype), values({ 17 }, 3, dtype)
  local turned = tf.transpose(w)
  local cube = values({ 3, 6, 9 }, 4, dtype)
  local each = values({ 3, 9, 16 }, 5, dtype)
  check("bias", function(a) return nn.bias_add(m(a, w), b) end, x)
  check("bias first", function(a) return b + m(a, w) end, x)
  check("bias and relu", function(a)
    return tf.raw_ops.bias_add_relu(m(a, w), b)
  end, x)
  check("three ops", function(a) return nn.relu(m(a, w) + b) end, x)
  check("relu", function(a) return nn.relu(m(a, w)) end, x)
  check("gelu", function(a) return nn.gelu(m(a, w) + b, true) end, x)
  check("rows of a batch", function(a) return nn.relu(m(a, w) + b) end, cube)
  check("a batch", function(a) return nn.gelu(m(a, each) + b, true) end, cube)
  check("another shape", function(a)
    local y = m(tf.reshape(a, { 18, 9 }), w)
    return nn.relu(nn.bias_add(tf.reshape(y, { 3, 6, 16 }), b))
  end, cube)
  check("turned", function(a)
    return m(a, turned, { transpose_a = true, transpose_b = true }) + b
  end, tf.transpose(x))
  -- No bias that cuBLASLt takes: it begins two or four bytes further.
  check("shifted", function(a, c)
    return nn.gelu(m(a, w) + tf.slice(c, { 1 }, { 16 }), true)
  end, x, wide)
  check("shifted, relu", function(a, c)
    return nn.relu(m(a, w) + tf.slice(c, { 1 }, { 16 }))
  end, x, wide)
end)
]]

-- What stays apart, and what has to come in order.
local APART = HEAD .. [[
tf.device("/gpu:0", function()
  local x, w = values({ 6, 9 }, 1), values({ 9, 16 }, 2)
  local b = values({ 16 }, 3)
  check("used twice", function(a)
    local y = m(a, w)
    return nn.relu(y + b) + y
  end, x)
  check("exact gelu", function(a) return nn.gelu(m(a, w) + b) end, x)
  check("gelu alone", function(a) return nn.gelu(m(a, w), true) end, x)
  check("a column", function(a) return m(a, w) + values({ 6, 1 }, 3) end, x)
  check("other axes", function(a)
    return tf.transpose(m(a, w)) + values({ 6 }, 3)
  end, x)
  check("doubles", function(a)
    return nn.relu(m(a, tf.cast(w, "float64")) + tf.cast(b, "float64"))
  end, tf.cast(x, "float64"))
  check("none", function(a) return m(a, w) + b end, tf.zeros { 0, 9 })
  local v = tf.Variable(b)
  check("written between", function(a)
    v:assign(b)
    local y = m(a, w)
    v:assign_add(tf.ones { 16 })
    return y + v
  end, x)
  check("written behind", function(a)
    v:assign(b)
    local y = m(a, w) + v
    v:assign_add(y[0])
    return y
  end, x)
end)
]]

-- A network with gradients, in Keras's words.
local GRADIENTS = HEAD .. [[
tf.device("/gpu:0", function()
  local L = tf.keras.layers
  local model = tf.keras.Sequential {
    L.Dense(16, { activation = "relu", input_shape = { 4, 9 } }),
    L.Dense(8),
  }
  for i, v in ipairs(model.trainable_variables) do
    v:assign(values(v.shape, i) * 0.5)
  end
  local x = values({ 2, 4, 9 }, 7)
  local function step(a)
    local tape, loss = tf.GradientTape(function()
      return tf.reduce_sum(model(a) ^ 2)
    end)
    return tape:gradient(loss, model.trainable_variables)
  end
  local f = tf.function_(step)
  local want, got = step(x), f(x)
  for i, g in ipairs(want) do near("gradient " .. i, g, got[i], 2 ^ -14) end
  print((products(f, x)))
end)
]]

-- Prints nothing; the stand-in counts.
local ROUNDS = HEAD .. [[
tf.device("/gpu:0", function()
  local x, w, b = values({ 6, 9 }, 1), values({ 9, 16 }, 2), values({ 16 }, 3)
  local f = TRACED(function(a) return nn.relu(m(a, w) + b) end)
  local kept = {}
  for i = 1, ROUNDS do kept[i] = f(x) end
  kept[1]:totable()
end)
]]

-- RELU of NaN is NaN, whatever cuBLASLt's is.
local NANS = HEAD .. [[
tf.device("/gpu:0", function()
  for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
    local w, b = values({ 9, 16 }, 2, dtype), values({ 16 }, 3, dtype)
    local x = tf.cast(tf.fill({ 6, 9 }, 0 / 0), dtype)
    for _, fn in ipairs {
      function(a) return nn.relu(m(a, w) + b) end,
      function(a) return nn.relu(m(a, w)) end,
    } do
      local f, left = tf.function_(fn), 0
      for _, y in ipairs(flat(f(x))) do left = left + (y ~= y and 0 or 1) end
      print(dtype, products(f, x), left)
    end
  end
end)
]]

-- So many functions with a RELU epilogue. Prints nothing.
local ASKED = HEAD .. [[
tf.device("/gpu:0", function()
  local x, w, b = values({ 6, 9 }, 1), values({ 9, 16 }, 2), values({ 16 }, 3)
  for _ = 1, ROUNDS do
    tf.function_(function(a) return nn.relu(m(a, w) + b) end)(x)
  end
end)
]]

describe("products on a GPU that is none #once", function()
  if not standins.exists(standins.FOLDER .. "/libcublasLt.so.13")
    or not standins.exists(standins.CUDA) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  local function run(text, more)
    local r = standins.run(text, more)
    assert.equal(0, r.code, r.err)
    return r.out
  end

  local ALL = [[
bias: fused(matmul, bias_add)
bias first: fused(matmul, add)
bias and relu: fused(matmul, bias_add_relu)
three ops: fused(matmul, add, relu)
relu: fused(matmul, relu)
gelu: fused(matmul, add, gelu_tanh)
rows of a batch: fused(matmul, add, relu)
a batch: fused(matmul, add, gelu_tanh)
another shape: fused(matmul, reshape, bias_add, relu)
turned: fused(matmul, add)
shifted: fused(matmul, add, gelu_tanh)
shifted, relu: fused(matmul, add, relu)
]]

  for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
    it("add a bias and apply an activation before they write: " .. dtype,
      function()
        local script = CASES:gsub("DTYPE", ("%q"):format(dtype), 1)
        assert.equal(ALL, run(script))
        if dtype ~= "float32" then return end
        local apart = ALL:gsub("fused%b()", "matmul")
        assert.equal(apart, run(script, "TFD_STANDIN_REFUSES=epilogues"))
        assert.equal(apart, run(script, "TFDIST_FUSION=0"))
      end)
  end

  it("do so for nothing else, and in the script's order", function()
    assert.equal([[
used twice: matmul
exact gelu: fused(matmul, add)
gelu alone: matmul
a column: matmul
other axes: matmul
doubles: matmul
none: matmul
written between: matmul
written behind: fused(matmul, add)
]], run(APART))
  end)

  it("have gradients as ever", function()
    assert.matches("^fused%(matmul, reshape, bias_add_relu%) "
      .. "fused%(matmul, reshape, bias_add%) matmul", run(GRADIENTS))
  end)

  it("keep NaN, with RELU epilogues that do and without others", function()
    local function lines(with_bias, alone)
      local list = {}
      for _, dtype in ipairs { "float32", "float16", "bfloat16" } do
        list[#list + 1] = ("%s\t%s\t0\n"):format(dtype, with_bias)
        list[#list + 1] = ("%s\t%s\t0\n"):format(dtype, alone)
      end
      return table.concat(list)
    end
    assert.equal(lines("fused(matmul, add, relu)", "fused(matmul, relu)"),
      run(NANS))
    assert.equal(lines("fused(matmul, add)", "matmul"),
      run(NANS, "TFD_STANDIN_REFUSES=nan"))
  end)

  local function launches(text, how, rounds)
    local path = os.tmpname()
    local script = text:gsub("TRACED", how):gsub("ROUNDS", rounds)
    run(script, "TFDIST_CUDA_GRAPHS=0 TFD_STANDIN_COUNTS=" .. path)
    local f = assert(io.open(path))
    local n = tonumber(f:read "*a":match "(%d+) launches")
    f:close()
    os.remove(path)
    return n
  end

  it("ask cuBLASLt once what its RELU makes of NaN", function()
    assert.equal(8, launches(ASKED, "", 16) - launches(ASKED, "", 8))
  end)

  it("are one launch", function()
    assert.equal(8 * 3, launches(ROUNDS, "", 16)
      - launches(ROUNDS, "", 8))
    assert.equal(8, launches(ROUNDS, "tf.function_", 16)
      - launches(ROUNDS, "tf.function_", 8))
  end)
end)
