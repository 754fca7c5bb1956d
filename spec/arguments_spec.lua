--- Arguments of a wrong kind are told by an error object that names them.
local errors = require "tfdist.base.errors"
local options = require "tfdist.base.options"
local public = require "spec.support.public"
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
  { "the list gradients has the key \"w\"", function()
    keras.optimizers.SGD():apply_gradients { w = { tf.constant(1), v } }
  end },
  { "the list gradients has the key \"w\"", function()
    keras.optimizers.SGD():apply_gradients({ w = v }, {})
  end },
  { "the list variables has the key \"w\"", function()
    keras.optimizers.SGD():apply_gradients({}, { w = v })
  end },
  { "the list gradients has a key that is no position", function()
    keras.optimizers.SGD():apply_gradients({ [0] = v }, {})
  end },
  { "the list grads has the key \"w\"", function()
    keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD())
      :get_unscaled_gradients { w = v }
  end },
  { "the list args has the key \"x\"", function()
    tf.data.Dataset.from_generator(function() end, { args = { x = 1 },
      output_signature = tf.TensorSpec({}, "float32") })
  end },
  { "the list value has the key \"x\"", function()
    tf.train.BytesList { value = { x = "text" } }
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

describe("a function that may be left out", function()
  local strategy = tf.distribute.MirroredStrategy { devices = { "/cpu:0" } }
  local writer = tf.summary.create_noop_writer()
  local tape -- that records, for each case
  local mine
  strategy:scope(function() mine = tf.Variable(1) end)
  local default = tf.distribute.get_strategy()

  -- How messages name the call, the parameter, and the call.
  local TAKERS = {
    { "strategy:scope", "fn", strategy.scope, strategy },
    { "strategy:scope", "fn", default.scope, default },
    { "name_scope", "fn", tf.name_scope, "a" },
    { "device", "fn", tf.device, "/cpu:0" },
    { "GradientTape", "fn", tf.GradientTape },
    { "GradientTape.stop_recording", "fn", function(...)
      return tape:stop_recording(...)
    end },
    { "variable_creator_scope", "fn", tf.variable_creator_scope,
      function(next_creator, kwargs) return next_creator(kwargs) end },
    { "profiler.Trace", "fn", tf.profiler.experimental.Trace, "a" },
    { "record_if", "fn", tf.summary.record_if, true },
    { "SummaryWriter.as_default", "fn", writer.as_default, writer },
    { "StrategyExtended.colocate_vars_with", "fn", function(...)
      return strategy.extended:colocate_vars_with(mine, ...)
    end },
    { "function_", "func", tf.function_ },
    { "autograph.experimental.do_not_convert", "func",
      tf.autograph.experimental.do_not_convert },
  }

  -- The call with these arguments behind its first one, where it works;
  -- closes what it opens.
  local function call(entry, ...)
    tape = tf.GradientTape()
    local outer = entry[1]:find "^StrategyExtended" and strategy:scope()
    local ok, got
    if entry[4] ~= nil then
      ok, got = pcall(entry[3], entry[4], ...)
    else
      ok, got = pcall(entry[3], ...)
    end
    if ok and entry[2] == "fn" and got ~= nil then got:close() end
    if outer then outer:close() end
    tape:close()
    return ok, got
  end

  for i, entry in ipairs(TAKERS) do
    local what, name = entry[1], entry[2]
    describe(("(%s, %d)"):format(what, i), function()
      it("opens what close() ends, or waits for it, when left out", function()
        local ok, got = call(entry)
        assert.is_true(ok, tostring(got))
        if name == "func" then
          assert.equal("function", type(got))
        else
          assert.truthy(got.close)
        end
      end)

      it("must not be nil", function()
        local raised = { call(entry, nil) }
        assert.is_false(raised[1])
        assert.equal("TypeError", errors.kind(raised[2]))
        assert.equal(("%s: %s must be a function, got nil"):format(what, name),
          raised[2].message)
        assert.truthy(tostring(raised[2]):find("leave the argument out", 1,
          true))
      end)

      it("is told in the same words when it is something else", function()
        local ok, e = call(entry, 5)
        assert.is_false(ok)
        assert.equal("TypeError", errors.kind(e))
        assert.equal(("%s: %s must be a function, got the number 5"):format(
          what, name), e.message)
      end)

      it("runs when it is given", function()
        local ran = 0
        local ok, got = call(entry, function() ran = ran + 1 end)
        assert.is_true(ok, tostring(got))
        if name == "func" then got() end
        assert.equal(1, ran)
      end)
    end)
  end

  it("may be skipped by nil before another argument", function()
    local held = tf.GradientTape(nil, { persistent = true })
    assert.truthy(tostring(held):find("persistent", 1, true))
    held:close()
    local traced = tf.function_(nil, {
      input_signature = { tf.TensorSpec({ 2 }, "float32") } })
    assert.equal(4, traced(function(x) return tf.reduce_sum(x) end)(
      tf.constant { 1.0, 3.0 }):item())
  end)

  it("must not be nil when it comes later, either", function()
    for _, taker in ipairs { tf.function_,
      tf.autograph.experimental.do_not_convert } do
      local later = taker()
      local ok, e = pcall(later, nil)
      assert.is_false(ok)
      assert.equal("TypeError", errors.kind(e))
      assert.truthy(e.message:find("func must be a function, got nil", 1,
        true), e.message)
    end
  end)

  it("is one of those above, wherever it has their name", function()
    local seen = {}
    for _, entry in ipairs(public.functions()) do
      local sig = entry.sig
      for i = 1, sig and sig.n or 0 do
        if not sig.required[i] and (sig.names[i] == "fn"
          or sig.names[i] == "func") then
          assert.truthy(("body later"):find(sig.kinds[i] or "none", 1, true),
            entry.name)
          seen[#seen + 1] = entry.name
        end
      end
    end
    assert.is_true(#seen >= 7, table.concat(seen, " "))
  end)

  it("counts with the arguments of a method, self first", function()
    local class = {}
    local run = options.method("C.run", "x fn:body=nil", function(_, x, fn)
      return x, fn
    end, function(self) return self == class end, "C")
    local function message(...)
      local _, e = pcall(run, ...)
      return e.message
    end
    assert.equal("C.run: fn must be a function, got nil",
      message(class, 1, nil))
    assert.equal("C.run: missing argument x", message(class))
    assert.equal("C.run: takes at most 2 arguments (x, fn), got one more: "
      .. "the number 3", message(class, 1, print, 3))
    assert.same({ 1, nil }, { run(class, 1) })
    assert.same({ 1, print }, { run(class, 1, print) })
    assert.same({ 1, print }, { run(class, { x = 1, fn = print }) })
    assert.same({ 1, print }, { run(class, 1, { fn = print }) })
  end)
end)

describe("a kind of arguments", function()
  it("is one that the fuzzer has values for", function()
    local catalogue = require "spec.fuzz.catalogue"
    local seen = 0
    for _, entry in ipairs(public.functions()) do
      for i = 1, entry.sig and entry.sig.n or 0 do
        local kind = entry.sig.kinds[i]
        assert.is_true(catalogue.knows(kind), ("%s: %s"):format(entry.name,
          tostring(kind)))
        seen = seen + (kind and 1 or 0)
      end
    end
    assert.is_true(seen > 100, seen)
  end)
end)
