-- What layers are called with: tensors, and all that is none.
local R = require "spec.support.replicas"
local expect = require "spec.support.expect"
local leaks = require "spec.support.leaks"
local tf = require "tfdist"

local K = tf.keras
local L = K.layers
local fails = R.fails
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

describe("a layer's input", function()
  leaks(before_each, after_each)

  it("is no list where the layer takes one tensor", function()
    local x = tf.ones { 2, 3 }
    local built = L.Dense(1)
    built(x)
    for _, layer in ipairs { L.Dense(1), built } do
      for _, list in ipairs { { x }, { x, x }, { "x", x } } do
        fails("TypeError", layer.name .. ": expects one tensor, got a list of "
          .. #list, layer, list)
      end
      fails("TypeError", "expects one tensor, got a list of 0", layer, {})
      assert.same({ 1, 1 }, layer({ { 1, 2, 3 } }).shape)
    end
  end)

  it("is a tensor, whatever the layer and what it had before", function()
    local x = tf.ones { 2, 3, 4 }
    for _, class in ipairs { "Activation", "AlphaDropout", "BatchNormalization",
      "Bidirectional", "CategoryEncoding", "Conv1D", "Dense", "Dropout",
      "EinsumDense", "Embedding", "Flatten", "GRU", "GaussianNoise",
      "GlobalMaxPooling1D", "GroupNormalization", "LSTMCell",
      "LayerNormalization", "Masking", "MaxPooling1D", "MultiHeadAttention",
      "Normalization", "PReLU", "Permute", "RandomBrightness", "RandomContrast",
      "ReLU", "Rescaling", "Reshape", "Softmax", "StackedRNNCells",
      "TimeDistributed", "TensorSlice", "UnitNormalization", "ZeroPadding1D" } do
      local arguments = { Bidirectional = { L.GRU(2) }, Conv1D = { 2, 1 },
        EinsumDense = { "abc,cd->abd", { 3, 2 } }, Embedding = { 4, 2 },
        GroupNormalization = { 2 }, MultiHeadAttention = { 2, 2 },
        Activation = { "relu" }, AlphaDropout = { 0.5 }, Dropout = { 0.5 },
        Permute = { { 2, 1 } },
        Reshape = { { 12 } }, StackedRNNCells = { { L.LSTMCell(2) } },
        TimeDistributed = { L.Dense(2) }, TensorSlice = { 1 },
        RandomBrightness = { 0.5 }, RandomContrast = { 0.5 },
        CategoryEncoding = { 4 }, Dense = { 2 }, GRU = { 2 },
        GaussianNoise = { 0.5 }, LSTMCell = { 2 }, Rescaling = { 2 } }
      local layer = L[class](unpack(arguments[class] or {}))
      pcall(layer, x, { value = x })
      for text, wrong in pairs { ["a function"] = print, ["the string"] = "x" }
      do
        for _, training in ipairs { false, true } do
          fails("TypeError", "must be a tensor, got " .. text, layer, wrong,
            { training = training, value = class:find "Multi" and x or nil })
        end
      end
    end
    fails("ValueError", "expects { query, value }", L.Attention(), { x })
    fails("TypeError", "input 2 must be a tensor", L.AdditiveAttention(),
      { K.Input { 3, 4 }, "x" })
    fails("TypeError", "value must be a tensor", L.MultiHeadAttention(2, 2), x,
      "x")
    local state = tf.zeros { 2, 2 }
    for _, cell in ipairs { L.GRU, L.LSTM } do
      fails("ValueError", "initial_state must have as many tensors for one "
        .. "direction as for the other, got 3", L.Bidirectional(cell(2)), x,
        { initial_state = { state, state, state } })
    end
    fails("TypeError", "initial_state must be a list", L.Bidirectional(
      L.GRU(2)), x, { initial_state = print })
    fails("TypeError", "initial_state must be a tensor", L.GRU(2), x,
      { initial_state = print })
    fails("TypeError", "input 1 must be a tensor", L.TensorOp "abs", { 3 })
    fails("TypeError", "expects a list of operands", L.TensorOp "abs", 3)
  end)

  it("meets zeros as the first states of a stack of cells", function()
    local cells = L.StackedRNNCells { L.LSTMCell(2), L.GRUCell(3) }
    local y, states = cells(tf.ones { 4, 5 })
    assert.same({ 4, 3 }, y.shape)
    assert.same({ { 4, 2 }, { 4, 2 }, { 4, 3 } }, { states[1].shape,
      states[2].shape, states[3].shape })
    fails("ValueError", "expects 3 states, got 1", cells, tf.ones { 4, 5 },
      { states = { tf.ones { 4, 2 } } })
  end)

  it("has tensors only where it is a list", function()
    local x = tf.ones { 2, 3 }
    for _, name in ipairs { "Add", "Subtract", "Multiply", "Average", "Maximum",
      "Minimum", "Concatenate", "Dot" } do
      local function make()
        return name == "Dot" and L.Dot(1) or L[name]()
      end
      local built = make()
      built { x, x }
      for _, layer in ipairs { make(), built } do
        for text, wrong in pairs { ["a table"] = { x },
          ["the string \"x\""] = "x", ["a function"] = print } do
          fails("TypeError", "input 1 must be a tensor, got " .. text, layer,
            { wrong, x })
          fails("TypeError", "input 2 must be a tensor, got " .. text, layer,
            { K.Input { 3 }, wrong })
        end
        fails("TypeError", "input 1 must be a tensor, got a table", layer,
          { {}, x })
        fails("ValueError", "list of", layer, {})
      end
      fails("TypeError", "input 2 must have one shape, got the string", built
        .compute_output_shape, built, { { -1, 3 }, "x" })
    end
  end)

  it("is a table, by name, to no layer that takes one tensor", function()
    local x, c = tf.ones { 2, 3 }, K.Input { 3 }
    for _, layer in ipairs { L.ReLU(), L.Dense(2), L.Softmax() } do
      for _, inputs in ipairs { { a = x, b = x }, { a = c, b = c } } do
        fails("TypeError", layer.name .. ": expects one tensor, got a table",
          layer, inputs)
      end
    end
  end)

  it("may be numbers beside a tensor, symbolic or not", function()
    local x, c = tf.ones { 2, 3 }, K.Input { 3 }
    assert.same({ { 2, 2, 2 }, { 2, 2, 2 } }, L.Add()({ x, 1 }):totable())
    local y = L.Add()({ c, 1 })
    assert.same({ -1, 3 }, y.shape)
    assert.same({ { 2, 2, 2 }, { 2, 2, 2 } }, K.Model(c, y)(x):totable())
    fails("TypeError", "input 2 must be a tensor, got the string", L.Add(),
      { c, "x" })
  end)

  it("is a list of two or three for attention, as are its shapes", function()
    for _, class in ipairs { L.Attention, L.AdditiveAttention } do
      for _, shapes in ipairs { { 1, 3, 4 }, { { 1, 3, 4 } }, {} } do
        fails("ValueError", "expects { query, value }", class()
          .compute_output_shape, class(), shapes)
      end
    end
    local layer = L.AdditiveAttention()
    fails("ValueError", "expects { query, value }", layer.build, layer,
      { 1, 3, 4 })
    layer:build { { 1, 3, 4 }, { 1, 2, 4 } }
    assert.same({ 4 }, layer.scale.shape)
  end)

  it("has one batch, its steps and its features in MultiHeadAttention",
    function()
      local layer = L.MultiHeadAttention(2, 3, { name = "heads" })
      local q, v = tf.ones { 2, 3, 4 }, tf.ones { 2, 5, 4 }
      assert.same({ 2, 3, 4 }, layer(q, v).shape)
      local function refused(want, ...)
        fails("InvalidArgument", "heads: " .. want, layer, ...)
      end
      refused("value has shape {1, 5, 4}, query {2, 3, 4}; their batches must "
        .. "be equal", q, tf.ones { 1, 5, 4 }) -- would broadcast
      refused("key has shape {2, 1, 4}, value {2, 5, 4}; their steps must be "
        .. "equal", q, v, { key = tf.ones { 2, 1, 4 } })
      refused("query has shape {2, 3, 3}; expected {batch, steps, 4}, for which "
        .. "the layer was built", tf.ones { 2, 3, 3 }, v)
      refused("query has shape {3, 4}; expected {batch, steps, 4}",
        tf.ones { 3, 4 }, v)
      for _, shape in ipairs { { 2, 3, 4 }, { 5 }, { 4, 3, 5 }, { 3, 2, 3, 5 } }
      do
        refused(("attention_mask has shape %s; expected {2, 3, 5}"):format(
          tostring(tf.ones(shape).shape)), q, v,
          { attention_mask = tf.ones(shape) })
      end
      for _, shape in ipairs { { 3, 5 }, { 1, 3, 5 }, { 2, 1, 5 },
        { 2, 2, 3, 5 } } do
        assert.same({ 2, 3, 4 }, layer(q, v, { attention_mask =
          tf.ones(shape, "bool") }).shape)
      end
    end)

  it("has masks of its batch and steps in attention", function()
    local q, v = tf.ones { 2, 3, 4 }, tf.ones { 2, 5, 4 }
    local masks = { tf.ones({ 2, 3 }, "bool"), tf.ones({ 1, 5 }, "bool") }
    for _, class in ipairs { L.Attention, L.AdditiveAttention } do
      local layer = class { name = "seen" }
      assert.same({ 2, 3, 4 }, layer({ q, v }, { mask = masks }).shape)
      fails("InvalidArgument", "seen: the mask of value has shape {2, 3}; "
        .. "expected {2, 5}, its batch and steps", layer, { q, v },
        { mask = { masks[1], masks[1] } })
      fails("InvalidArgument", "seen: the mask of query has shape {1, 5}; "
        .. "expected {2, 3}", layer, { q, v }, { mask = { masks[2], masks[2] } })
      -- One example goes with both.
      assert.same({ 2, 3, 4 }, layer({ q, v[{ { 0, 1 } }] }, { mask = { false,
        tf.ones({ 2, 5 }, "bool") } }).shape)
      assert.same({ 2, 3, 4 }, layer({ q[{ { 0, 1 } }], v }, { mask = { masks[1],
        false } }).shape)
    end
  end)
end)

describe("a wrapper", function()
  it("says that it takes a layer", function()
    for want, given in pairs { ["must be a layer, got the number 3"] = 3,
      ["must be a layer, got a table"] = {}, ["must be a layer, got the string "
      .. '"x"'] = "x", ["is the class Dense itself"] = L.Dense } do
      for _, name in ipairs { "TimeDistributed", "Bidirectional" } do
        fails("TypeError", name .. ": layer " .. want, L[name], given)
      end
      fails("TypeError", "Bidirectional: backward_layer " .. want,
        L.Bidirectional, L.LSTM(2), { backward_layer = given })
    end
  end)
end)

describe("dropout", function()
  leaks(before_each, after_each)

  it("draws for a noise_shape that broadcasts to the input", function()
    for _, name in ipairs { "Dropout", "AlphaDropout" } do
      local x = tf.ones { 64, 3 }
      local y = L[name](0.5, { noise_shape = { -1, 1 } })(x, { training = true })
      expect.near(tf.broadcast_to(y[{ {}, { 0, 1 } }], { 64, 3 }):totable(),
        y:totable())
      for _, shape in ipairs { { 3, 1 }, { 1, 64, 3 }, { 64, 2 } } do
        fails("ValueError", ("%s: noise_shape is %s, the input has shape {64, 3};"
          .. " each size must be 1 or the input's"):format(name,
          tostring(tf.ones(shape).shape)), L[name](0.5, { noise_shape = shape }),
          x, { training = true })
      end
    end
  end)
end)

describe("Normalization", function()
  leaks(before_each, after_each)

  it("has no variance below 0, whatever rounding does", function()
    local n = L.Normalization()
    -- The mean of these squares is below the square of the mean.
    local x = tf.fill({ 100003, 1 }, 123.456)
    n:adapt(x)
    assert.same({ 0 }, n.adapt_variance:totable())
    assert.same({ { 0 } }, n(x[{ { 0, 1 } }]):totable())
  end)

  it("takes examples of a dataset for batches of one", function()
    local rows = tf.constant { { 1, 10 }, { 3, 30 }, { 5, 50 }, { 7, 70 } }
    for _, batches in ipairs { tf.data.Dataset.from_tensor_slices(rows),
      tf.data.Dataset.from_tensor_slices(rows):batch(3) } do
      local n = L.Normalization()
      n:adapt(batches)
      expect.near({ 4, 40 }, n.adapt_mean:totable(), 1e-5)
      expect.near({ 5, 500 }, n.adapt_variance:totable(), 1e-3)
    end
    local one = L.Normalization()
    one:adapt(rows[0])
    assert.same({ 0, 0 }, one(rows[0]):totable())
  end)

  it("puts fewer moments than axes along the last ones", function()
    local n = L.Normalization { axis = { 1, 2 }, mean = { 1, 2, 3 },
      variance = { 1, 4, 9 } }
    assert.same({ { { 0, 0, 0 }, { 1, 1, 1 } } },
      n(tf.constant { { { 1, 2, 3 }, { 2, 4, 6 } } }):totable())
    fails("ValueError", "Normalization: mean has shape {3}; expected a number or "
      .. "shape {2}, the sizes of the input along axis", L.Normalization {
      mean = { 1, 2, 3 }, variance = 1 }, tf.ones { 1, 2 })
  end)

  it("says what it adapts to and what it was built for", function()
    local n = L.Normalization { name = "seen" }
    for got, data in pairs { ['the string "x"'] = "x", ["the number 3"] = 3,
      ["a function"] = print } do
      for name, layer in pairs { Normalization = n,
        IntegerLookup = L.IntegerLookup() } do
        fails("TypeError", name .. ":adapt: data must be a tensor, a list of "
          .. "numbers or a dataset of batches, got " .. got, layer.adapt, layer,
          data)
      end
    end
    fails("ValueError", 'unknown option "steps"', n.adapt, n, tf.ones { 2, 4 },
      { steps = 1 })
    fails("TypeError", "missing argument data", n.adapt, n)
    n:adapt(tf.ones { 2, 4 })
    fails("ValueError", "a batch has shape {2, 3}; expected 4 on axis 1", n.adapt,
      n, tf.ones { 2, 3 })
    fails("InvalidArgument", "seen: the input has shape {2, 3}; expected 4 on "
      .. "axis -1", n, tf.ones { 2, 3 })
    n = L.Normalization { mean = 1, variance = 2 }
    fails("ValueError", "the layer was given mean and variance", n.adapt, n,
      tf.ones { 2, 4 })
  end)
end)

describe("a class of the user's", function()
  leaks(before_each, after_each)

  it("has names of its own, also those of the library's checks", function()
    local x = tf.ones { 2, 3 }
    for _, base in ipairs { L.Layer, L.Dense, L.Add, L.Dropout } do
      local Own = base:extend "Own"
      for _, name in ipairs { "check_inputs", "one_tensor", "any_inputs" } do
        assert.is_nil(base[name])
        Own[name] = function()
          error "called"
        end
      end
      function Own.build()
      end
      function Own.call(_, inputs)
        return inputs * 2
      end
      local layer = base == L.Dense and Own(1) or base == L.Dropout and Own(0.5)
        or Own()
      assert.same({ { 2, 2, 2 }, { 2, 2, 2 } }, layer(x):totable())
    end
  end)

  it("takes what it likes, whatever it extends", function()
    local x = tf.ones { 2, 3 }
    for _, base in ipairs { L.Add, L.Concatenate, L.Dot, L.Attention,
      L.AdditiveAttention, L.ReLU, L.Flatten } do
      local Own = base:extend "Own"
      function Own.build()
      end
      function Own.call(_, inputs)
        return type(inputs) == "table" and inputs.a + inputs.b or inputs
      end
      local layer = base == L.Dot and Own(1) or Own()
      layer.input_spec = nil
      assert.same({ 2, 3 }, layer({ a = x, b = x }).shape)
      assert.equal(x, layer(x))
    end
    local Sum = L.Add:extend "Sum"
    fails("ValueError", "list of", Sum(), x)
  end)
end)

describe("a structure of inputs", function()
  leaks(before_each, after_each)

  local function layers()
    return { L.Dropout(0.5), L.GaussianNoise(0.5), L.GaussianDropout(0.5),
      L.AlphaDropout(0.5), L.ActivityRegularization(), L.Identity(),
      L.Activation "linear" }
  end

  it("comes back from layers that only do something in training", function()
    local x, c = tf.ones { 2, 3 }, K.Input { 3 }
    for _, layer in ipairs(layers()) do
      local list, named = layer { x, x }, layer { a = x, b = x }
      assert.is_true(list[1] == x and list[2] == x and #list == 2)
      assert.is_true(named.a == x and named.b == x)
      list, named = layer { c, c }, layer { a = c, b = { c } }
      assert.same({ { -1, 3 }, { -1, 3 } }, { list[1].shape, list[2].shape })
      assert.same({ { -1, 3 }, { -1, 3 } }, { named.a.shape, named.b[1].shape })
    end
  end)

  it("is nothing that noise can be added to", function()
    local x = tf.ones { 2, 3 }
    for i, layer in ipairs(layers()) do
      if i > 1 and i < 5 then
        fails("TypeError", "expects one tensor in training, got a list of 2",
          layer, { x, x }, { training = true })
      end
      if i < 5 then
        fails("TypeError", "expects one tensor", layer, { a = x, b = x },
          { training = true })
      end
    end
    local y = L.Dropout(0.5)({ x, x }, { training = true })
    assert.same({ 2, 2, 3 }, y.shape)
  end)

  it("goes to an activation function as it is", function()
    local x, c = tf.ones { 2, 3 }, K.Input { 3 }
    local function sum(inputs)
      local a, b = inputs[1] or inputs.a, inputs[2] or inputs.b
      return a + b
    end
    for _, inputs in ipairs { { x, x }, { a = x, b = x } } do
      assert.same({ { 2, 2, 2 }, { 2, 2, 2 } }, L.Activation(sum)(inputs)
        :totable())
    end
    for _, inputs in ipairs { { c, c }, { a = c, b = c } } do
      assert.same({ -1, 3 }, L.Activation(sum)(inputs).shape)
    end
  end)
end)
