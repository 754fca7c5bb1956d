-- What layers and KerasTensors know before there are values.
local R = require "spec.support.replicas"
local expect = require "spec.support.expect"
local tf = require "tfdist"

local K, L = tf.keras, tf.keras.layers
local fails, near = R.fails, expect.near

local function ones(units, options)
  options = options or {}
  options.kernel_initializer = "ones"
  return L.Dense(units, options)
end

describe("layer.input and layer.output", function()
  R.leaks(before_each, after_each)

  it("make a model of the first layers of another", function()
    local x = K.Input { 4 }
    local h = ones(3, { name = "hidden" })(x)
    for _, whole in ipairs {
      K.Sequential { ones(3, { name = "hidden", input_shape = { 4 } }),
        ones(1) },
      K.Model(x, ones(1)(h)),
    } do
      for _, input in ipairs { whole.input, whole.inputs } do
        local part = K.Model { inputs = input,
          outputs = whole:get_layer("hidden").output }
        near({ { 4, 4, 4 } }, part(tf.ones { 1, 4 }):totable())
      end
    end
  end)

  it("are what a layer's one call took and gave", function()
    local x = K.Input { 5, 2 }
    local layer = L.LSTM(3, { return_state = true })
    local y, h, c = layer(x)
    assert.equal(x, layer.input)
    assert.same({ y, h, c }, layer.output)
    local sum = L.Add()
    sum { h, c }
    assert.same({ h, c }, sum.input)
    assert.equal(x, x.node.layer.output)
    assert.equal(x, x.node.layer.input)
  end)

  it("say when there was no call, or more than one", function()
    local x, layer = K.Input { 2 }, ones(1, { name = "d" })
    fails("ValueError", 'layer "d" was not called', function()
      return layer.output
    end)
    local a, b = layer(x), layer(x)
    fails("ValueError", "multiple inbound nodes", function()
      return layer.output
    end)
    fails("ValueError", "multiple inbound nodes", function()
      return layer.input
    end)
    assert.equal(a, layer:get_output_at(0))
    assert.equal(b, layer:get_output_at(1))
    assert.equal(x, layer:get_input_at(1))
    fails("ValueError", "call 2 of layer", layer.get_output_at, layer, 2)
  end)

  it("follow a Sequential that grows and shrinks", function()
    local m = K.Sequential { ones(3, { input_shape = { 2 } }) }
    local top = ones(1)
    m:add(top)
    assert.equal(m.output, top.output)
    assert.equal(top, m:pop())
    assert.equal(m.layers[1].output, m.output)
    m:add(top)
    assert.equal(m.output, top.output)
  end)

  it("of a subclass are those of its call", function()
    local Own = K.Model:extend "Own"
    function Own:init()
      self.dense = ones(2)
    end
    function Own:call(x)
      return self.dense(x)
    end
    local m, x = Own(), K.Input { 3 }
    assert.is_nil(m.output)
    local y = m(x)
    assert.equal(y, m.output)
    assert.equal(x, m.input)
  end)
end)

describe("a KerasTensor", function()
  R.leaks(before_each, after_each)

  it("is sliced like a tensor", function()
    local x = K.Input { 6 }
    local value = tf.reshape(tf.range(12), { 2, 6 })
    for _, key in ipairs { { {}, { 0, 3 } }, { {}, { 1, -1, 2 } },
      { "...", 0 } } do
      local y = x[key]
      local m = K.Model(x, y)
      near(value[key]:totable(), m(value):totable())
      local shape = value[key].shape
      shape[1] = -1
      assert.same(shape, y.shape)
      near(value[key]:totable(), K.Model:from_config(m:get_config())(value)
        :totable())
    end
    assert.same({ 6 }, x[0].shape)
    fails("IndexError", "6 is outside axis 1", function()
      return x[{ {}, 6 }]
    end)
    fails("TypeError", "no values yet", function()
      return x[x]
    end)
  end)

  it("says that it has no values", function()
    local x = K.Input { 6 }
    for _, name in ipairs { "totable", "item", "iter", "size" } do
      local e = fails("TypeError", name .. ": x is a KerasTensor (B, 6), which "
        .. "has no values yet", x[name], x)
      assert.matches("Lambda", tostring(e), 1, true)
    end
  end)
end)

describe("a model that is a layer of another", function()
  R.leaks(before_each, after_each)

  it("is built with it, and counted in the summary", function()
    local Own = K.Model:extend "Own"
    function Own:init()
      self.dense = ones(2)
    end
    function Own:call(x)
      return self.dense(x)
    end
    local x = K.Input { 4 }
    local sub, inner = Own(), K.Sequential { ones(3), ones(1) }
    local m = K.Model(x, inner(sub(x)))
    assert.is_true(sub.built)
    assert.is_true(inner.built)
    local lines = {}
    m:summary { print_fn = function(line)
      lines[#lines + 1] = line
    end }
    local shown = table.concat(lines, "\n")
    assert.matches(" own%S*%s+%(B, 2%)%s+10\n", shown)
    assert.matches(" model%S*%s+%(B, 1%)%s+13\n", shown)
    assert.matches("total 23", shown, 1, true)
    near({ { 24 } }, m(tf.ones { 1, 4 }):totable())
    assert.equal(6, #m.trainable_variables)
  end)
end)

describe("a call that gives nothing", function()
  R.leaks(before_each, after_each)

  it("is an error wherever the layer is", function()
    local Silent = L.Layer:extend "Silent"
    function Silent.call() end
    local Mute = K.Model:extend "Mute"
    function Mute.call() end
    local x = tf.ones { 1, 2 }
    for _, layer in ipairs { Silent(), Mute(), K.Sequential { Silent() } } do
      fails("TypeError", "call must return tensors, got nothing", layer, x)
    end
  end)
end)

describe("layers of several inputs", function()
  R.leaks(before_each, after_each)

  it("refuse elements of several types when they are built", function()
    local x, ids = K.Input { 3 }, K.Input({ 3 }, { dtype = "int32" })
    for _, name in ipairs { "Concatenate", "Add", "Subtract", "Multiply",
      "Average", "Maximum", "Minimum", "Dot" } do
      fails("InvalidArgument", "the inputs have dtypes float32, int32",
        function()
          (name == "Dot" and L.Dot(1) or L[name]())({ x, ids })
        end)
    end
    fails("InvalidArgument", "dtypes int32, float32", L.concatenate,
      { ids, x })
    -- Floats of several widths become the layer's own.
    assert.equal("float32", L.Add()({ x, K.Input({ 3 },
      { dtype = "float64" }) }).dtype)
    for _, name in ipairs { "Concatenate", "Add", "Maximum" } do
      assert.equal("int32", L[name]()({ ids, ids }).dtype)
    end
  end)
end)

describe("Normalization", function()
  R.leaks(before_each, after_each)

  it("tells its moments", function()
    local layer = L.Normalization()
    assert.is_nil(layer.mean)
    layer:adapt(tf.constant { { 1, 10 }, { 3, 30 } })
    near({ { 2, 20 } }, layer.mean:totable())
    near({ { 1, 100 } }, layer.variance:totable())
    local given = L.Normalization { mean = 2, variance = 4 }
    assert.equal(2, given.mean)
    assert.equal(4, given.variance)
  end)
end)

describe("model:reset_states", function()
  R.leaks(before_each, after_each)

  it("sets the states of all stateful layers to zero", function()
    local m = K.Sequential {
      L.LSTM(2, { stateful = true, batch_input_shape = { 1, 3, 2 } }),
      ones(1),
    }
    local outer = K.Sequential { m }
    local first = m(tf.ones { 1, 3, 2 }):item()
    assert.is_true(math.abs(m(tf.ones { 1, 3, 2 }):item() - first) > 1e-6)
    outer:reset_states()
    near(first, m(tf.ones { 1, 3, 2 }):item())
  end)
end)
