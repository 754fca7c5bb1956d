--- What takes a function takes whatever can be called: traced functions and
--- objects with __call.
local tf = require "tfdist"

local function object(fn)
  return setmetatable({}, { __call = function(_, ...) return fn(...) end })
end

local KINDS = {
  { "a traced function", tf.function_ },
  { "an object with __call", object },
}

for _, kind in ipairs(KINDS) do
  local name, wrapped = kind[1], kind[2]

  describe(name .. " in the place of a function", function()
    local function four()
      return tf.constant(2) * 2
    end

    it("runs in scopes and under names", function()
      local strategy = tf.distribute.MirroredStrategy()
      assert.equal(4, strategy:scope(wrapped(four)):item())
      assert.equal(4, tf.name_scope("a", wrapped(four)):item())
      assert.equal(4, tf.init_scope(wrapped(four)):item())
      assert.equal(4, tf.summary.record_if(false, wrapped(four)):item())
      local Module = tf.Module:extend "Module"
      Module.build = tf.Module.with_name_scope(wrapped(function(_, x)
        return x * 2
      end))
      assert.equal(6, Module("m"):build(tf.constant(3)):item())
    end)

    it("makes values and merges them", function()
      local strategy = tf.distribute.MirroredStrategy()
      local values = strategy:experimental_distribute_values_from_function(
        object(function(context)
          return tf.constant(context.replica_id_in_sync_group + 2)
        end))
      local local_values = strategy:experimental_local_results(values)
      assert.equal(2, local_values[1]:item())
      local merged = strategy:run(function()
        return tf.distribute.get_replica_context():merge_call(object(function()
          return 7
        end))
      end)
      assert.equal(7, strategy:experimental_local_results(merged)[1])
    end)

    it("is what a layer or a model calls", function()
      for _, base in ipairs { tf.keras.layers.Layer, tf.keras.Model } do
        local Own = base:extend "Own"
        Own.call = wrapped(function(self, x) return x * self.factor end)
        local layer = Own()
        layer.factor = 3
        assert.equal(6, layer(tf.constant { 2 }):item())
      end
      local Switch = tf.keras.layers.Layer:extend "Switch"
      local traced = wrapped == tf.function_
      Switch.call = wrapped(function(_, x, training)
        if not traced then training = training.training end -- all options
        return training and x * 2 or x
      end)
      assert.equal(3, Switch()(tf.constant { 3 }, { training = false }):item())
      assert.equal(6, Switch()(tf.constant { 3 }, { training = true }):item())
    end)

    it("may run apart on replicas", function()
      local devices = tf.config.list_logical_devices "CPU"
      if #devices < 2 then return pending "needs TFDIST_CPU_DEVICES=2" end
      local strategy = tf.distribute.MirroredStrategy {
        devices = { "CPU:0", "CPU:1" } }
      local ok, e = pcall(strategy.run, strategy, object(function()
        local context = tf.distribute.get_replica_context()
        if context.replica_id_in_sync_group == 0 then
          context:all_reduce("SUM", tf.constant(1))
        end
      end))
      assert.is_false(ok)
      assert.equal("RuntimeError", e.kind)
    end)

    it("is a loss", function()
      local w = tf.Variable(3)
      local loss = wrapped(function() return w * w end)
      tf.keras.optimizers.SGD(0.5):minimize(loss, { w })
      assert.equal(0, w:read_value():item())
      local scaled = tf.keras.mixed_precision.LossScaleOptimizer(
        tf.keras.optimizers.SGD(0.25))
      w:assign(2)
      scaled:minimize(loss, { w })
      assert.equal(1, w:read_value():item())
    end)

    it("is a layer's and a callback's", function()
      local twice = tf.keras.layers.Lambda(wrapped(function(x)
        return x * 2
      end))
      assert.equal(6, twice(tf.constant { 3 })[0]:item())
      local epochs = 0
      local model = tf.keras.Sequential { tf.keras.layers.Dense(1) }
      model:compile { optimizer = "sgd", loss = "mse" }
      model:fit(tf.ones { 2, 1 }, tf.ones { 2, 1 }, { verbose = 0,
        callbacks = { tf.keras.callbacks.LambdaCallback {
          on_epoch_end = object(function() epochs = epochs + 1 end) } } })
      assert.equal(1, epochs)
    end)
  end)
end
