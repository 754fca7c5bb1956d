-- tf.keras.mixed_precision: layers that compute in a half type and keep float32.
local R = require "spec.support.replicas"
local tf = require "tfdist"

local K, L = tf.keras, tf.keras.layers
local P = K.mixed_precision
local fails = R.fails

-- Rounding to the half type: of a value, of sums of some of them.
local HALF = { float16 = 2 ^ -11, bfloat16 = 2 ^ -8 }

local function each(fn)
  for dtype, unit in pairs(HALF) do
    fn(dtype, "mixed_" .. dtype, unit)
  end
end

local function with_policy(policy, fn)
  P.set_global_policy(policy)
  local ok, e = pcall(fn)
  P.set_global_policy(nil)
  if not ok then error(e, 0) end
end

local function drawn(dims)
  return tf.random.stateless_uniform(dims, { 7, 11 }, -1, 1)
end

describe("Policy", function()
  R.leaks(before_each, after_each)

  it("says what is computed in and what is kept", function()
    local p = P.Policy "mixed_float16"
    assert.same({ "mixed_float16", "float16", "float32" }, { p.name,
      p.compute_dtype, p.variable_dtype })
    p = P.Policy "float64"
    assert.same({ "float64", "float64", "float64" }, { p.name,
      p.compute_dtype, p.variable_dtype })
    assert.same({ name = "mixed_bfloat16" },
      P.Policy("mixed_bfloat16"):get_config())
    assert.equal('<DTypePolicy "mixed_bfloat16">',
      tostring(P.Policy "mixed_bfloat16"))
  end)

  it("is that of layers that are given none", function()
    assert.equal("float32", P.global_policy().name)
    with_policy("mixed_bfloat16", function()
      assert.equal("mixed_bfloat16", P.global_policy().name)
      assert.equal("mixed_bfloat16", L.Dense(1).dtype_policy.name)
      assert.equal("float64", L.Dense(1, { dtype = "float64" }).compute_dtype)
      assert.equal("float32", K.Input({ 2 }).dtype)
    end)
    assert.equal("float32", L.Dense(1).dtype_policy.name)
    K.backend.set_floatx "float64"
    local name = P.global_policy().name
    K.backend.set_floatx "float32"
    assert.equal("float64", name)
  end)

  it("refuses what is none", function()
    fails("TypeError", [[Policy: "mixed_float8" is no dtype policy]], P.Policy,
      "mixed_float8")
    for given, near in pairs {
      mixed_float17 = "mixed_float16", Mixed_BFloat16 = "mixed_bfloat16",
      float3 = "float32",
    } do
      for _, fn in ipairs { P.Policy, P.set_global_policy, function(name)
        return L.Dense(1, { dtype = name })
      end } do
        local _, e = pcall(fn, given)
        assert.equal("did you mean " .. near .. "?", e.hint)
      end
    end
    local _, e = pcall(P.Policy, 16)
    assert.matches("^policies are .*float32, .*mixed_float16", e.hint)
    fails("ValueError", "set_global_policy: layers cannot compute in int32",
      P.set_global_policy, "int32")
    fails("TypeError", "Dense: the number 7 is no dtype policy", L.Dense, 1, { dtype = 7 })
    fails("TypeError", "DTypePolicy: \"name\" cannot be set", function()
      P.Policy("float16").name = "float32"
    end)
  end)

  it("goes through configurations", function()
    local a = L.Dense(3, { dtype = P.Policy "mixed_bfloat16" })
    assert.equal("mixed_bfloat16", a:get_config().dtype)
    local b = L.Dense:from_config(a:get_config())
    assert.same({ "bfloat16", "float32" }, { b.compute_dtype, b.dtype })
    local m = K.Sequential { a }
    m:build { -1, 2 }
    local copy = K.Sequential:from_config(m:get_config())
    assert.equal("mixed_bfloat16", copy.layers[1].dtype_policy.name)
  end)
end)

-- name -> a layer, and what it is called with
local LAYERS = {
  dense = { function() return L.Dense(3) end, { 4, 5 } },
  dense_of_three = { function() return L.Dense(3) end, { 2, 4, 5 } },
  einsum = { function()
    return L.EinsumDense("ab,bc->ac", { 3 }, { bias_axes = "c" })
  end, { 4, 5 } },
  conv1 = { function() return L.Conv1D(2, 3) end, { 2, 7, 3 } },
  conv2 = { function() return L.Conv2D(2, 3) end, { 2, 6, 6, 3 } },
  conv3 = { function() return L.Conv3D(2, 2) end, { 1, 3, 4, 4, 2 } },
  transposed = { function() return L.Conv2DTranspose(2, 3) end,
    { 2, 4, 4, 3 } },
  depthwise = { function() return L.DepthwiseConv2D(3) end, { 2, 6, 6, 3 } },
  separable = { function() return L.SeparableConv2D(2, 3) end,
    { 2, 6, 6, 3 } },
  simple = { function() return L.SimpleRNN(3) end, { 2, 4, 5 } },
  lstm = { function() return L.LSTM(3) end, { 2, 4, 5 } },
  gru = { function() return L.GRU(3) end, { 2, 4, 5 } },
  cells = { function() return L.RNN(L.LSTMCell(3)) end, { 2, 4, 5 } },
  both_ways = { function() return L.Bidirectional(L.LSTM(3)) end, { 2, 4, 5 } },
  each_step = { function() return L.TimeDistributed(L.Dense(3)) end,
    { 2, 4, 5 } },
  batch = { function() return L.BatchNormalization() end, { 6, 5 } },
  layer = { function() return L.LayerNormalization() end, { 6, 5 } },
  group = { function() return L.GroupNormalization(2) end, { 3, 4, 4 } },
  prelu = { function() return L.PReLU() end, { 6, 5 } },
  pool = { function() return L.MaxPooling2D(2) end, { 2, 4, 4, 3 } },
  average = { function() return L.GlobalAveragePooling2D() end,
    { 2, 4, 4, 3 } },
  softmax = { function() return L.Softmax() end, { 2, 5 } },
  rescaled = { function() return L.Rescaling(0.5) end, { 2, 5 } },
}

-- The same weights in two layers.
local function give(from, to)
  local list = {}
  for i, v in ipairs(from.weights) do list[i] = tf.identity(v) end
  to:set_weights(list)
end

describe("a layer of a mixed policy", function()
  R.leaks(before_each, after_each)

  for name, entry in pairs(LAYERS) do
    it(("computes in it: %s"):format(name), function()
      each(function(dtype, policy, unit)
        local x = drawn(entry[2])
        local plain, mixed = entry[1](), nil
        with_policy(policy, function() mixed = entry[1]() end)
        plain(x)
        mixed(x)
        give(plain, mixed)
        local function run(layer)
          local tape, y = tf.GradientTape(function(t)
            t:watch(x)
            return tf.cast(layer(x, { training = true }), "float32")
          end)
          local grads = tape:gradient(y, layer.trainable_weights)
          return y, grads
        end
        assert.equal(dtype, mixed(x).dtype)
        local y, grads = run(mixed)
        local want, want_grads = run(plain)
        -- Some 50 roundings of values up to 4 at most.
        assert.is_true(tf.reduce_max(tf.abs(y - want)):item() < 200 * unit)
        for i, v in ipairs(mixed.trainable_weights) do
          assert.equal("float32", v.dtype)
          assert.equal("float32", grads[i].dtype)
          local size = tf.reduce_max(tf.abs(want_grads[i])):item() + 1
          assert.is_true(tf.reduce_max(tf.abs(grads[i] - want_grads[i])):item()
            < 100 * unit * size, v.name)
        end
      end)
    end)
  end

  it("casts its input and its weights, and nothing else", function()
    each(function(dtype, policy)
      local layer = L.Dense(3, { dtype = policy })
      local x = drawn { 4, 5 }
      local y = layer(x)
      local want = tf.matmul(tf.cast(x, dtype), tf.cast(layer.kernel, dtype))
        + tf.cast(layer.bias, dtype)
      assert.same(want:totable(), y:totable())
      assert.equal("int32", L.Reshape({ 1 }, { dtype = policy })(
        tf.zeros({ 2, 1 }, "int32")).dtype)
    end)
  end)

  it("keeps rows of embeddings sparse", function()
    local layer = L.Embedding(8, 2, { dtype = "mixed_bfloat16" })
    local tape, y = tf.GradientTape(function()
      return tf.reduce_sum(tf.cast(layer(tf.constant({ 1, 1, 3 }, "int32")),
        "float32"))
    end)
    assert.equal("bfloat16", layer(tf.constant({ 1 }, "int32")).dtype)
    local grad = tape:gradient(y, layer.embeddings)
    assert.equal("float32", grad.values.dtype)
    assert.same({ 1, 1, 3 }, grad.indices:totable())
  end)

  it("moves statistics in float32", function()
    local layer = L.BatchNormalization { dtype = "mixed_float16",
      momentum = 0.5 }
    layer(tf.constant { { 1 }, { 1 + 2 ^ -10 } }, { training = true })
    assert.equal("float32", layer.moving_mean.dtype)
    assert.equal(0.5 + 2 ^ -12, layer.moving_mean:read_value():item() * 1)
  end)

  it("takes classes of one's own", function()
    local seen = {}
    local Own = L.Layer:extend "Own"
    function Own:build()
      self.a = self:add_weight { name = "a", shape = {}, initializer = "ones" }
      self.b = self:add_weight { name = "b", shape = {}, initializer = "ones",
        autocast = false }
      self.n = self:add_weight { name = "n", shape = {}, dtype = "int32",
        initializer = "ones" }
      self.c = tf.Variable(1.0)
      self.inner = L.Dense(1, { dtype = "float32" })
    end
    function Own:call(x)
      seen.x, seen.a = x.dtype, tf.identity(self.a).dtype
      seen.sum = (self.a * x).dtype
      seen.b, seen.c = (self.b * 1).dtype, (self.c * 1).dtype
      seen.n = (self.n * 1).dtype
      seen.cast = tf.cast(self.a, "float64").dtype
      seen.value = self.a:read_value().dtype
      seen.inner = self.inner(x).dtype
      return x * self.a
    end
    local layer = Own { dtype = "mixed_bfloat16" }
    assert.equal("bfloat16", layer(tf.ones { 2, 2 }).dtype)
    assert.same({ x = "bfloat16", a = "float32", sum = "bfloat16",
      b = "float32", c = "float32", n = "int32", cast = "float64",
      value = "float32", inner = "float32" }, seen)
    assert.equal("float32", (layer.a * 1).dtype) -- the call is over
    fails("InvalidArgument", "", function()
      layer.call = function(self, x)
        error(tf.matmul(x, self.a))
      end
      layer(tf.ones { 2, 2 })
    end)
    assert.equal("float32", (layer.a * 1).dtype)
  end)

  it("has KerasTensors of what it computes in", function()
    local x = K.Input { 4 }
    local y = L.Dense(2, { dtype = "mixed_float16" })(x)
    assert.same({ "float32", "float16" }, { x.dtype, y.dtype })
    local Own = L.Layer:extend "Scaled"
    function Own:build()
      self.a = self:add_weight { name = "a", shape = {}, initializer = "ones" }
    end
    function Own:call(v) return v * self.a end
    assert.equal("float16", Own({ dtype = "mixed_float16" })(x).dtype)
  end)
end)

describe("a model of a mixed policy", function()
  R.leaks(before_each, after_each)

  local x = drawn { 64, 4 }
  local y = tf.cast(tf.greater(tf.reduce_sum(x, 1), 0), "int32")

  local function trained(policy, options)
    local strategy, history, weights = R.mirrored(options.n or 1), nil, nil
    with_policy(policy, function()
      strategy:scope(function()
        tf.random.set_seed(3)
        local m = K.Sequential { L.Dense(8, { activation = "relu" }),
          L.BatchNormalization(), L.Dense(2) }
        m:compile { optimizer = K.optimizers.SGD(0.1), loss =
          K.losses.SparseCategoricalCrossentropy { from_logits = true },
          metrics = { "accuracy" }, run_eagerly = options.eager,
          auto_scale_loss = options.scaled }
        history = m:fit(x, y, { epochs = 4, verbose = 0, batch_size = 16,
          shuffle = false }).history
        weights = {}
        for i, v in ipairs(m.trainable_variables) do
          assert.equal("float32", v.dtype)
          weights[i] = v:read_value():totable()
        end
        weights.optimizer = m.optimizer
      end)
    end)
    return history, weights
  end

  it("learns what one of float32 does", function()
    for n = 1, math.min(R.available, 2) do
      local plain = trained("float32", { n = n })
      each(function(_, policy, unit)
        local got = trained(policy, { n = n })
        for i = 1, 4 do
          assert.is_true(math.abs(got.loss[i] - plain.loss[i]) < 30 * unit)
        end
      end)
    end
  end)

  it("learns the same in a graph", function()
    each(function(_, policy)
      local a, b = trained(policy, { eager = true }), trained(policy, {})
      for i = 1, 4 do
        assert.is_true(math.abs(a.loss[i] - b.loss[i]) < 1e-3)
      end
    end)
  end)

  it("scales losses where gradients could vanish", function()
    local function text(policy, options)
      local _, weights = trained(policy, options or {})
      return tostring(weights.optimizer)
    end
    assert.matches("^LossScaleOptimizer %(scale 32768%) of SGD",
      text "mixed_float16")
    assert.matches("^SGD", text "mixed_bfloat16")
    assert.matches("^SGD", text("mixed_float16", { scaled = false }))
    with_policy("mixed_float16", function()
      local m = K.Sequential { L.Dense(1) }
      local own = P.LossScaleOptimizer(K.optimizers.SGD(), {
        initial_scale = 2 })
      m:compile { optimizer = own, loss = "mse" }
      assert.equal(own, m.optimizer)
    end)
  end)

  it("shows optimizers in a trace, too", function()
    local plain, v = K.optimizers.Adam(0.1), tf.Variable(1.0)
    local scaled = P.LossScaleOptimizer(K.optimizers.SGD())
    plain:build { v }
    scaled:build { v }
    local seen
    tf.function_(function()
      seen = { tostring(plain), tostring(scaled) }
    end):get_concrete_function()
    assert.same({ "Adam (in a traced function)",
      "LossScaleOptimizer of SGD (in a traced function)" }, seen)
  end)

  -- A gradient of 2^-26 is 0 in float16 and 2^-11 when the loss is scaled.
  it("keeps gradients that float16 has no place for", function()
    local function moved(scaled)
      local after
      with_policy("mixed_float16", function()
        local m = K.Sequential { L.Dense(1, { use_bias = false,
          kernel_initializer = "zeros" }) }
        m:compile { optimizer = K.optimizers.SGD(2 ^ 20), run_eagerly = true,
          auto_scale_loss = scaled, loss = function(_, p)
            return tf.reduce_mean(p, -1) * 2 ^ -26
          end }
        m:fit(tf.ones { 1, 1 }, tf.zeros { 1, 1 }, { verbose = 0 })
        after = m.layers[1].kernel:read_value():totable()
      end)
      return after[1][1]
    end
    assert.equal(-2 ^ -6, moved(true))
    assert.equal(0, moved(false))
  end)
end)

describe("numbers beside weights of a mixed policy", function()
  for name, fn in pairs {
    ["1 - w"] = function(w) return 1 - w end,
    ["w * 2"] = function(w) return w * 2 end,
    ["w ^ 2"] = function(w) return w ^ 2 end,
    ["w / {2}"] = function(w) return w / { 2 } end,
    maximum = function(w) return tf.maximum(w, 0) end,
    clip_by_value = function(w) return tf.clip_by_value(w, 0, 1) end,
    greater = function(w) return tf.cast(tf.greater(w, 0), "float16") end,
    concat = function(w) return tf.concat({ w, { 1 } }, 0) end,
  } do
    it("become what the weight is taken in: " .. name, function()
      local Own = tf.keras.layers.Layer:extend "Own"
      function Own:build()
        self.w = self:add_weight { name = "w", shape = { 1 },
          initializer = "ones" }
      end
      function Own:call(x) return x * fn(self.w) end
      local layer = Own { dtype = "mixed_float16" }
      assert.equal("float16", layer(tf.ones { 2, 1 }).dtype)
      assert.equal("float32", layer.w.dtype)
    end)
  end
end)
