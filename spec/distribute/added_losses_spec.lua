-- What layers add to the loss of fit, where replicas have unequal parts of a
-- batch, or none: closed forms, the same on any number of them.
local R = require "spec.support.replicas"
local tf = require "tfdist"

local K, L = tf.keras, tf.keras.layers

-- A loss of the outputs that is always 0.
local Nothing = K.losses.Loss:extend "Nothing"
function Nothing:call(_, y_pred) -- luacheck: ignore 212
  return tf.reduce_sum(y_pred * 0, { axis = -1 })
end

local Mean = L.Layer:extend "Mean"
function Mean:call(x)
  self:add_loss(tf.reduce_mean(x))
  return x
end

-- Of a layer y = w x, the first of these, whose penalty is mean(y), w = 1.
local WAYS = {
  ["activity_regularizer"] = function(options)
    options.activity_regularizer = K.regularizers.L1(1)
    return { L.Dense(1, options) }
  end,
  ["ActivityRegularization"] = function(options)
    return { L.Dense(1, options), L.ActivityRegularization { l1 = 1 } }
  end,
  ["add_loss"] = function(options)
    return { L.Dense(1, options), Mean() }
  end,
}

describe("losses that layers add", function()
  for name, way in pairs(WAYS) do
    for _, eagerly in ipairs { true, false } do
      R.each(it, pending, ("%s, %s"):format(name, eagerly and "eager"
        or "traced"), function(s)
          for count, mean in pairs { [1] = 1, [3] = 3, [5] = 4 } do
            local model = s:scope(function()
              local m = K.Sequential(way { input_shape = { 1 },
                use_bias = false, kernel_initializer = "ones",
                kernel_regularizer = K.regularizers.L2(1) })
              m:compile { optimizer = K.optimizers.SGD(0.01),
                loss = Nothing(), run_eagerly = eagerly }
              return m
            end)
            local x = tf.constant { { 1 }, { 2 }, { 6 }, { 3 }, { 8 } }
            x = x[{ { 0, count } }]
            local w, losses = 1, {}
            for step = 1, 3 do
              losses[step] = w * mean + w * w
              w = w - 0.01 * (mean + 2 * w)
            end
            local history = model:fit(x, tf.zeros { count, 1 }, { epochs = 3,
              batch_size = 8, shuffle = false, verbose = 0 }).history
            for step = 1, 3 do
              assert.near(losses[step], history.loss[step], 1e-5)
            end
            assert.near(w, model.weights[1]:totable()[1][1], 1e-6)
          end
        end)
    end
  end
end)
