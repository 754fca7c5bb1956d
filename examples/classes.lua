#!/usr/bin/env tfdist
--- Classes of one's own: a layer, a loss, a metric, a callback and a model, each
--- with a constructor.
---
--- usage: tfdist --cpu-devices=2 examples/classes.lua
---
--- prints:
---   Scale "twice", 1 weight
---   epoch 0 of 3
---   epoch 1 of 3
---   epoch 2 of 3
---   loss …  off 100 %
---   { start = 2 }
--- A constructor is the function init(self, …) of the class; calling the class
--- makes an object and calls it. init calls the init of the class it derives
--- from with what that one takes (name, dtype, …), before it sets fields.
local tf = require "tfdist"
local keras = tf.keras

-- A layer: Scale(2, { name = "twice" }).
local Scale = keras.layers.Layer:extend "Scale"

function Scale:init(start, options)
  keras.layers.Layer.init(self, options)
  self.start = start
end

function Scale:build()
  self.factor = self:add_weight { name = "factor", shape = { 1 },
    initializer = keras.initializers.Constant(self.start) }
end

function Scale:call(x)
  return x * self.factor
end

function Scale:get_config()
  local config = keras.layers.Layer.get_config(self)
  config.start = self.start
  return config
end

-- Made again from get_config's table, by clone_model for one.
function Scale:from_config(config)
  local start = config.start
  config.start = nil
  return self(start, config)
end

-- A loss: one number for each example.
local Power = keras.losses.Loss:extend "Power"

function Power:init(exponent, options)
  keras.losses.Loss.init(self, options)
  self.exponent = exponent
end

function Power:call(y_true, y_pred)
  return tf.reduce_mean(tf.abs(y_true - y_pred) ^ self.exponent, -1)
end

-- A metric: the share of predictions that are off by more than a limit.
local Off = keras.metrics.Metric:extend "Off"

function Off:init(limit, options)
  keras.metrics.Metric.init(self, options)
  self.limit = limit
  self.wrong = self:add_weight { name = "wrong" }
  self.seen = self:add_weight { name = "seen" }
end

function Off:update_state(y_true, y_pred)
  local off = tf.greater(tf.abs(y_true - y_pred), self.limit)
  self.wrong:assign_add(tf.reduce_sum(tf.cast(off, "float32")))
  self.seen:assign_add(tf.cast(tf.size(off), "float32"))
end

function Off:result()
  return self.wrong:read_value() / self.seen:read_value()
end

-- A callback.
local Count = keras.callbacks.Callback:extend "Count"

function Count:init(total)
  keras.callbacks.Callback.init(self)
  self.total = total
end

function Count:on_epoch_end(epoch)
  print(("epoch %d of %d"):format(epoch, self.total))
end

-- A model of layers kept in fields.
local Line = keras.Model:extend "Line"

function Line:init(start, options)
  keras.Model.init(self, options)
  self.scale = Scale(start, { name = "twice" })
  self.dense = keras.layers.Dense(1, { kernel_initializer = "zeros" })
end

function Line:call(x)
  return self.scale(x) + self.dense(x)
end

local model = tf.distribute.MirroredStrategy():scope(function()
  local m = Line(2, { name = "line" })
  m:compile {
    optimizer = keras.optimizers.SGD(1e-3), loss = Power(2),
    metrics = { Off(0.25, { name = "off" }) },
  }
  m:build { 8, 1 }
  return m
end)

local x = tf.reshape(tf.range { limit = 8, dtype = "float32" }, { 8, 1 })
print(('%s "%s", %d weight'):format("Scale", model.scale.name,
  #model.scale.weights))
model:fit(x, 4 * x + 1, { epochs = 3, verbose = 0, callbacks = { Count(3) } })
local loss, off = model:evaluate(x, 4 * x + 1, { verbose = 0 })
print(("loss %.3f  off %.0f %%"):format(loss, 100 * off))
local again = Scale:from_config(model.scale:get_config())
print(("{ start = %d }"):format(again.start))
