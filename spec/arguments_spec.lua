--- Arguments of a wrong kind are told by an error object that names them.
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local tf = require "tfdist"

local keras = tf.keras

local function deep(n)
  local t = {}
  for _ = 1, n do t = { t } end
  return t
end

local function model()
  local made = keras.Sequential { keras.layers.Dense(1,
    { input_shape = { 2 } }) }
  made:compile { optimizer = "sgd", loss = "mse" }
  return made
end

local v = tf.Variable { 1, 2 }

-- What is called, and what its message must say.
local CALLS = {
  { "weights", function() keras.utils.count_params() end },
  { "weights%[1%]", function() keras.utils.count_params { 1 } end },
  { "initializers.compute_fans", function()
    keras.initializers.compute_fans "a"
  end },
  { "layer must be a layer, got the number 0", function()
    keras.layers.serialize(0)
  end },
  { "min_ndim must be a whole number", function()
    keras.layers.InputSpec { min_ndim = "a" }
  end },
  { "shape must be a list", function()
    keras.layers.InputSpec { shape = "x" }
  end },
  { "Input", function() keras.Input({}, { 1, "a" }) end },
  { "optimizer:build", function() keras.optimizers.Adam():build { 1 } end },
  { "var must be a variable, got the number 0", function()
    keras.optimizers.Adam():add_slot(0, "x")
  end },
  { "slot_name must be a string", function()
    keras.optimizers.Adam():add_slot(v, {})
  end },
  { "var_list must be a list", function()
    keras.optimizers.Adam():exclude_from_weight_decay(1)
  end },
  { "var_names%[1%] must be a string", function()
    keras.optimizers.Adam():exclude_from_weight_decay({}, { 1 })
  end },
  { "tape must be a tf.GradientTape, got the number 3", function()
    keras.optimizers.Adam():minimize(v, { v }, { tape = 3 })
  end },
  { "save_dir must be a string", function()
    tf.train.update_checkpoint_state({}, "a")
  end },
  { "feature must be a table", function()
    tf.train.Features { feature = 1 }
  end },
  { "missing argument class", function() keras.backend.snake_case() end },
  { "missing argument base", function() keras.backend.unique_name() end },
  { "compile your model", function()
    local made = keras.Sequential { keras.layers.Dense(1) }
    made:train_step(tf.ones { 1, 2 }, tf.ones { 1, 1 })
  end },
  { "n of the list gradients must be its length, got the string \"x\"", function()
    keras.optimizers.SGD():apply_gradients({ n = "x" }, { tf.Variable(1) })
  end },
  { "n of the list gradients must be its length", function()
    keras.optimizers.SGD():apply_gradients { n = "x" }
  end },
  { "n of the list variables must be its length", function()
    keras.optimizers.SGD():apply_gradients({ 1 }, { n = -1 })
  end },
  { "n of the list grads must be its length", function()
    keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD())
      :get_unscaled_gradients { n = "x" }
  end },
  { "n of the list args must be its length", function()
    tf.data.Dataset.from_generator(function() end, { args = { n = "x" },
      output_signature = tf.TensorSpec({}, "float32") })
  end },
  { "n of the list value must be its length", function()
    tf.train.BytesList { value = { n = 1.5 } }
  end },
  { "optimizer:get_unscaled_gradients: the gradient of", function()
    keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD())
      :get_unscaled_gradients { "x" }
  end },
  { "get_memory_info: device must be a string, got the number 3", function()
    tf.config.experimental.get_memory_info(3)
  end },
  { "reset_memory_stats: device must be a string, got a table", function()
    tf.config.experimental.reset_memory_stats {}
  end },
  { "layers must be a list", function()
    keras.Sequential:from_config {}
  end },
  { "class_weight", function()
    model():fit(tf.ones { 1, 2 }, tf.ones { 1, 1 }, { verbose = 0,
      class_weight = 3 })
  end },
}

describe("arguments of a wrong kind", function()
  for i, entry in ipairs(CALLS) do
    it(("raise an error that says %s (%d)"):format(entry[1], i), function()
      local ok, e = pcall(entry[2])
      assert.is_false(ok)
      assert.is_true(errors.is_error(e), tostring(e))
      assert.truthy(tostring(e):find(entry[1]), tostring(e))
      assert.is_nil(tostring(e):find("attempt to", 1, true), tostring(e))
    end)
  end

  it("may be lists and numbers where activations take tensors", function()
    assert.same({ 0.5 }, keras.activations.hard_sigmoid({ 0 }):totable())
    local e = select(2, pcall(keras.activations.softmax, { 1, 2 }))
    assert.equal("ValueError", errors.kind(e))
  end)

  it("may be nested very deeply", function()
    local made = model()
    for _, x in ipairs { deep(300), deep(100000) } do
      local ok, e = pcall(made.fit, made, x, x, { verbose = 0 })
      assert.is_false(ok)
      assert.is_true(errors.is_error(e), tostring(e))
    end
  end)
end)

describe("a kind in a signature", function()
  local function caught(signature, ...)
    local _, e = pcall(options.wrap("f", signature, function() end), ...)
    return e
  end

  it("says what the argument must be", function()
    for kind, noun in pairs { string = "a string", number = "a number",
      integer = "a whole number", boolean = "true or false",
      callable = "a function", list = "a list", dict = "a table" } do
      local e = caught("x y:" .. kind .. "=nil", 1, v)
      assert.equal("TypeError", errors.kind(e))
      assert.equal(("f: y must be %s, got the Variable \"Variable\""):format(noun), e.message)
      assert.is_nil(caught("x y:" .. kind .. "=nil", 1))
    end
  end)
end)

describe("results that count something", function()
  it("are whole, even of numbers that came from a division", function()
    local D, L = tf.data.Dataset, keras.layers
    local context = tf.distribute.InputContext { num_replicas_in_sync = 2 }
    local results = {
      ["4"] = context:get_per_replica_batch_size(8),
      ["3"] = D.range(10):take(6 / 2):cardinality(),
      ["7"] = D.range(10):skip(6 / 2):cardinality(),
      ["20"] = D.range(10):repeat_(4 / 2):cardinality(),
      ["5"] = tf.data.experimental.cardinality(D.range(10):batch(4 / 2)),
      ["16"] = L.Reshape({ 4, -1 }):compute_output_shape { 1, 8, 8, 1 }[3],
    }
    for wanted, got in pairs(results) do
      assert.equal(wanted, tostring(got))
    end
  end)
end)
