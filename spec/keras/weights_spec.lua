-- model:save_weights and load_weights between models that are not made alike.
local files = require "spec.support.files"
local notice = require "tfdist.base.notice"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

local L = tf.keras.layers
local Sequential = tf.keras.Sequential

-- What fn warns of.
local function captured(fn)
  local heard, warn = {}, notice.warn
  notice.warn = function(message)
    heard[#heard + 1] = message
  end
  local ok, e = pcall(fn)
  notice.warn = warn
  assert.is_true(ok, tostring(e))
  return table.concat(heard, "\n")
end

local function dense(name, value, inputs)
  return L.Dense(4, { name = name, input_dim = inputs,
    kernel_initializer = tf.keras.initializers.Constant(value) })
end

-- A functional model of Dense layers whose kernels hold these values.
local function functional(values)
  local x = tf.keras.Input { 4 }
  local y = x
  for i, value in ipairs(values) do
    y = dense("f" .. i, value)(y)
  end
  return tf.keras.Model(x, y)
end

local function sequential(values)
  local m = Sequential {}
  for i, value in ipairs(values) do
    m:add(dense("s" .. i, value, i == 1 and 4 or nil))
  end
  return m
end

-- The first element of each kernel.
local function kernels(m)
  local list = {}
  for _, layer in ipairs(m.layers) do
    if #layer.weights > 0 then
      list[#list + 1] = layer.kernel:read_value():totable()[1][1]
    end
  end
  return list
end

describe("saved weights", function()
  local path
  replicas.leaks(before_each, after_each)
  before_each(function()
    path = files.place() .. "/w"
  end)
  after_each(function()
    os.execute("rm -rf " .. path:match "^(.*)/w$")
  end)

  -- What loading into `to` what `from` wrote warns of, and the kernels then.
  local function moved(from, to)
    from:save_weights(path)
    local heard = captured(function()
      to:load_weights(path)
    end)
    return heard, kernels(to)
  end

  it("go layer by layer between a Sequential and a functional model",
    function()
      local heard, got = moved(sequential { 1, 2, 3 },
        functional { 7, 8, 9 })
      assert.same({ 1, 2, 3 }, got)
      assert.equal("", heard)
      heard, got = moved(functional { 1, 2, 3 }, sequential { 7, 8, 9 })
      assert.same({ 1, 2, 3 }, got)
      assert.equal("", heard)
      heard, got = moved(sequential { 1 }, functional { 7 })
      assert.same({ 1 }, got)
      assert.equal("", heard)
    end)

  it("pass by layers without weights on one side", function()
    local to = Sequential { dense("a", 7, 4), L.Dropout(0.5), L.ReLU(),
      dense("b", 8) }
    local heard, got = moved(sequential { 1, 2 }, to)
    assert.same({ 1, 2 }, got)
    assert.equal("", heard)
    heard, got = moved(to, functional { 7, 8 })
    assert.same({ 1, 2 }, got)
    assert.equal("", heard)
  end)

  it("are matched in models within models", function()
    local from = sequential { 1, 2 }
    local to = functional { 7, 8 }
    local x = tf.keras.Input { 4 }
    local outer = tf.keras.Model(x, dense("last", 9)(to(x)))
    local wrapped = Sequential { from, dense("last", 3) }
    wrapped:save_weights(path)
    assert.equal("", captured(function()
      outer:load_weights(path)
    end))
    assert.same({ 1, 2 }, kernels(to))
    assert.equal(3, outer:get_layer("last").kernel:read_value():totable()[1][1])
  end)

  it("that are too few are told, the rest is loaded", function()
    local heard, got = moved(sequential { 1, 2 }, functional { 7, 8, 9 })
    assert.same({ 1, 2, 9 }, got)
    assert.matches("has no value for 2 of the 6 variables", heard, 1, true)
    assert.matches("f3/bias, f3/kernel", heard, 1, true)
  end)

  it("that are too many are told", function()
    local heard, got = moved(sequential { 1, 2, 3 }, functional { 7, 8 })
    assert.same({ 1, 2 }, got)
    assert.matches("has no variable for 2 of the values", heard, 1, true)
    assert.matches("layers/2/bias, layers/2/kernel", heard, 1, true)
  end)

  it("of another class of model are told to be none of this one's", function()
    local Own = tf.keras.Model:extend "Own"
    function Own:init()
      self.first = dense("first", 7)
    end
    function Own:call(x)
      return self.first(x)
    end
    local m = Own()
    m(tf.ones { 1, 4 })
    sequential({ 1 }):save_weights(path)
    local heard = captured(function()
      m:load_weights(path)
    end)
    assert.matches("has no value for 2 of the 2 variables", heard, 1, true)
  end)

  it("reach layers that are not built by their place in the list", function()
    sequential({ 1, 2 }):save_weights(path)
    local to = Sequential { dense("a", 7), dense("b", 8) }
    assert.equal("", captured(function()
      to:load_weights(path)
    end))
    to(tf.ones { 1, 4 })
    assert.same({ 1, 2 }, kernels(to))
  end)

  it("with an optimizer's state load into a model without, unasked", function()
    local from = sequential { 1 }
    from:compile { optimizer = "adam", loss = "mse" }
    from:fit(tf.ones { 2, 4 }, tf.zeros { 2, 4 }, { verbose = 0 })
    local want = kernels(from)
    local heard, got = moved(from, functional { 7 })
    assert.same(want, got)
    assert.equal("", heard)
  end)

  it("are the same for models of a strategy", function()
    local strategy = replicas.mirrored(replicas.available)
    sequential({ 1, 2 }):save_weights(path)
    local to = strategy:scope(function()
      return functional { 7, 8 }
    end)
    assert.equal("", captured(function()
      to:load_weights(path)
    end))
    assert.same({ 1, 2 }, kernels(to))
  end)
end)
