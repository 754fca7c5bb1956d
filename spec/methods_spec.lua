--- Every public method of every class, called with a dot in place of a colon.
local R = require "spec.support.replicas"
local fields = require "tfdist.base.fields"
local keras = require("tfdist").keras
local files = require "spec.support.files"
local public = require "spec.support.public"
local tf = require "tfdist"

-- Functions of a class that want no object.
local STATIC = {
  index = true, is_module = true, with_name_scope = true, FromString = true,
  from_config = true,
}

-- What is wrong with a method that is called with this in the place of self; nil
-- when it says so itself.
local function fault(fn, self)
  local ok, e = pcall(fn, self)
  if ok then
    return "no error"
  elseif type(e) == "table" and (e.kind == "NotImplementedError"
    or e.kind == "TypeError" and tostring(e.hint):find("with a colon", 1, true))
  then
    return nil
  end
  return tostring(e)
end

-- Names that a value's kind has, not those of the value's own fields.
local function methods_of(value)
  local found, list = {}, {}
  fields.add(found, value)
  for name in pairs(found) do
    local own = type(value) == "table" and rawget(value, name) ~= nil
    local ok, fn = pcall(function() return not own and value[name] end)
    if ok and type(fn) == "function" and not name:find "^_"
      and not fields.HIDDEN[name] and not STATIC[name] then
      list[#list + 1] = { name = name, fn = fn }
    end
  end
  return list
end

local function objects()
  local s = R.mirrored(1)
  local data = tf.data.Dataset.range(4):batch(2)
  local shared = s:experimental_distribute_dataset(data)
  local model = keras.Sequential {
    keras.layers.Dense(1, { input_shape = { 2 } }) }
  model:compile { loss = "mse" }
  local v = tf.Variable(1.0)
  local traced = tf.function_(function(x) return x end)
  local checkpoint = tf.train.Checkpoint { v = v }
  local folder = files.folder()
  local context
  s:run(function() context = tf.distribute.get_replica_context() end)
  return {
    ["a tensor"] = tf.constant(1.0), ["a variable"] = v,
    ["a strategy's variable"] = s:scope(function() return tf.Variable(1.0) end),
    ["slices"] = tf.IndexedSlices(tf.ones { 1, 2 }, { 0 }, { 3, 2 }),
    ["a tape"] = tf.GradientTape(function() end),
    ["a TensorArray"] = tf.TensorArray("float32", { size = 2 }),
    ["a traced function"] = traced,
    ["a concrete function"] = traced:get_concrete_function(tf.constant(1.0)),
    ["a module"] = (tf.Module:extend "Own")(),
    ["a strategy"] = s, ["its extended"] = s.extended,
    ["values"] = s:run(function() return tf.constant(1.0) end),
    ["a replica context"] = context,
    ["an input context"] = tf.distribute.InputContext(),
    ["a resolver"] = tf.distribute.cluster_resolver.SimpleClusterResolver(
      tf.train.ClusterSpec { worker = { "a:1" } }),
    ["a cluster"] = tf.train.ClusterSpec { worker = { "a:1" } },
    ["a data set"] = data, ["its iterator"] = data:iter(),
    ["a shared data set"] = shared, ["an iterator of that"] = shared:iter(),
    ["an optional"] = tf.data.experimental.Optional.empty(),
    ["an optimizer"] = keras.optimizers.Adam(),
    ["a scaling optimizer"] = keras.mixed_precision.LossScaleOptimizer(
      keras.optimizers.Adam()),
    ["a schedule"] = keras.optimizers.schedules.CosineDecay(1, 1),
    ["an initializer"] = keras.initializers.Zeros(),
    ["a regularizer"] = keras.regularizers.L2(),
    ["a policy"] = keras.mixed_precision.Policy "mixed_float16",
    ["a layer"] = keras.layers.Dense(1), ["a Sequential"] = model,
    ["a model"] = keras.Model(model.inputs, model.outputs),
    ["a metric"] = keras.metrics.Mean(),
    ["a loss"] = keras.losses.MeanSquaredError(),
    ["a callback"] = keras.callbacks.EarlyStopping(),
    ["a history"] = model:fit(tf.ones { 2, 2 }, tf.ones { 2, 1 },
      { verbose = 0 }),
    ["a checkpoint"] = checkpoint,
    ["a manager"] = tf.train.CheckpointManager(checkpoint, folder,
      { max_to_keep = 1 }),
    ["a status"] = checkpoint:restore(checkpoint:save(folder .. "/a")),
    ["a writer"] = tf.summary.create_noop_writer(),
    ["an example"] = tf.train.Example { features = tf.train.Features() },
  }, folder
end

describe("a method called with a dot", function()
  it("says so, in every class", function()
    local n = 0
    for _, f in ipairs(public.functions()) do
      local name = f.name:match ":([%w_]+)$"
      if f.class ~= nil and name ~= nil and not STATIC[name]
        and not fields.HIDDEN[name] then
        n = n + 1
        assert.is_nil(fault(f.fn, nil), f.name .. "()")
        assert.is_nil(fault(f.fn, 3), f.name .. "(3)")
      end
    end
    assert.is_true(n > 300, n)
  end)

  it("says so, whatever the object", function()
    local list, folder = objects()
    finally(function() os.execute("rm -rf " .. folder) end)
    for what, object in pairs(list) do
      local methods = methods_of(object)
      assert.is_true(#methods > 0, what)
      for _, method in ipairs(methods) do
        local name = what .. ": " .. method.name
        assert.is_nil(fault(method.fn, nil), name .. "()")
        assert.is_nil(fault(method.fn, 3), name .. "(3)")
      end
    end
  end)

  it("names itself and what it wants", function()
    for what, method in pairs {
      ["Mean.result: the first argument must be the metric itself, got nil"] =
        keras.metrics.Mean().result,
      ["MeanSquaredError.call: the first argument must be the loss itself, got "
        .. "nil"] = keras.losses.MeanSquaredError().call,
      ["Dense.call: the first argument must be the layer itself, got nil"] =
        keras.layers.Dense(1).call,
      ["EarlyStopping.on_train_begin: the first argument must be the callback "
        .. "itself, got nil"] = keras.callbacks.EarlyStopping().on_train_begin,
    } do
      local e = R.fails("TypeError", what, method)
      assert.matches("with a colon$", e.hint)
    end
  end)
end)
