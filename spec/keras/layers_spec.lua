-- Every layer against NumPy: values, shapes, symbolic calls, configuration,
-- gradients by finite differences. The table is spec/support/cases/layers.lua.
local cases = require "spec.support.cases"
local leaks = require "spec.support.leaks"
local tf = require "tfdist"

local L = tf.keras.layers
local all = cases.load "layers"
local expected = cases.reference("layers", all)
local STEP = 1e-5

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function pack(...)
  return { n = select("#", ...), ... }
end

local function tensors(case)
  local list = {}
  for k, spec in ipairs(case.inputs) do
    list[k] = tf.reshape(tf.constant(cases.values(spec, k - 1, "float64"),
      spec.dtype or "float64"), spec.dims)
  end
  return list
end

-- The layer with its weights, and fn(inputs...) that calls it.
local function prepare(case)
  local list = tensors(case)
  local nx = case.x or 1
  local layer = case.layer(L)
  local class = getmetatable(layer).class
  local config = layer:get_config()
  config.dtype = "float64"
  -- Cells inside keep a dtype of their own.
  local function widen(t)
    for key, value in pairs(t) do
      if key == "dtype" then
        t[key] = "float64"
      elseif type(value) == "table" and getmetatable(value) == nil then
        widen(value)
      end
    end
  end
  widen(config)
  layer = class:from_config(config)
  local inputs, weights = {}, {}
  for k, t in ipairs(list) do
    table.insert(k <= nx and inputs or weights, t)
  end
  local function run(layer_now, given)
    local options = { training = case.training,
      mask = case.mask and tf.constant(case.mask) }
    if case.positional then
      return layer_now(given[1], given[2], options)
    end
    return layer_now(nx > 1 and given or given[1], options)
  end
  run(layer, inputs)
  assert.equal(#weights, #layer.weights)
  layer:set_weights(weights)
  return layer, inputs, weights, run
end

local function check_values(outs, want, tolerance)
  assert.equal(#want, outs.n)
  for k, one in ipairs(want) do
    assert.same(one.dims, outs[k].shape)
    local got = outs[k]:toflat()
    for i = 1, #one.values do
      assert.near(one.values[i], got[i], tolerance)
    end
  end
end

-- Sum of products with fixed factors, so that every element counts.
local function score(outs)
  local total
  for k = 1, outs.n do
    local y = outs[k]
    local factors = { n = y:size() }
    for i = 1, y:size() do
      factors[i] = math.sin(i * 1.7 + k)
    end
    local part = tf.reduce_sum(tf.reshape(tf.cast(y, "float64"), { y:size() })
      * tf.constant(factors, "float64"))
    total = total and total + part or part
  end
  return total
end

local function changed(t, i, by)
  local flat = t:toflat()
  flat[i] = flat[i] + by
  return tf.reshape(tf.constant(flat, "float64"), t.shape)
end

local function slope(f, i, t)
  return (f(changed(t, i, STEP)) - f(changed(t, i, -STEP))) / (2 * STEP)
end

local function check_slopes(grad, t, f, what)
  assert(grad ~= nil, "no gradient for " .. what)
  grad = tf.convert_to_tensor(grad):toflat()
  -- Some positions of large tensors are enough.
  local n = #grad
  for i = 1, n, math.max(1, math.floor(n / 12)) do
    assert.near(slope(f, i, t), grad[i], 1e-6 * (1 + math.abs(grad[i])))
  end
end

local function check_gradients(case)
  local layer, inputs, _, run = prepare(case)
  local vars = layer.trainable_variables
  local watched = {}
  for i, x in ipairs(inputs) do
    watched[i] = x.dtype == "float64" and x or nil
  end
  local tape, loss = tf.GradientTape(function(tape)
    for _, x in pairs(watched) do tape:watch(x) end
    return score(pack(run(layer, inputs)))
  end, { persistent = true })
  for i, x in pairs(watched) do
    check_slopes(tape:gradient(loss, x), x, function(t)
      local given = { unpack(inputs) }
      given[i] = t
      return score(pack(run(layer, given))):item()
    end, "input " .. i)
  end
  for _, v in ipairs(vars) do
    local value = v:read_value()
    check_slopes(tape:gradient(loss, v), value, function(t)
      v:assign(t)
      local y = score(pack(run(layer, inputs))):item()
      v:assign(value)
      return y
    end, v.name)
  end
end

local function open_shape(x)
  local dims = x.shape
  dims[1] = -1
  return dims
end

local function check_symbolic(case)
  local _, inputs, _, run = prepare(case)
  local layer = case.layer(L)
  local symbols = {}
  for i, x in ipairs(inputs) do
    local dims = x.shape
    table.remove(dims, 1)
    symbols[i] = tf.keras.Input { shape = dims, dtype = x.dtype }
  end
  local outs
  if case.positional then
    outs = pack(layer(symbols[1], symbols[2]))
  else
    outs = pack(layer((case.x or 1) > 1 and symbols or symbols[1]))
  end
  local real = pack(run((prepare(case)), inputs))
  assert.equal(real.n, outs.n)
  for k = 1, outs.n do
    assert.same(open_shape(real[k]), outs[k].shape)
  end
end

describe("a layer against NumPy:", function()
  for _, case in ipairs(all) do
    it(case.name .. ": values", function()
      local layer, inputs, _, run = prepare(case)
      check_values(pack(run(layer, inputs)), expected[case.name].float64,
        1e-9)
    end)

    if not case.no_grad then
      it(case.name .. ": gradients", function()
        check_gradients(case)
      end)
    end

    it(case.name .. ": symbolic shapes", function()
      check_symbolic(case)
    end)

    it(case.name .. ": no examples", function()
      local layer, inputs, _, run = prepare(case)
      local empty = {}
      for i, x in ipairs(inputs) do
        empty[i] = x[{ { 0, 0 } }]
      end
      local mask = case.mask
      case.mask = nil
      local tape, loss, shape = tf.GradientTape(function()
        local outs = pack(run(layer, empty))
        return score(outs), outs[1].shape
      end)
      case.mask = mask
      assert.equal(0, shape[1])
      local vars = layer.trainable_variables
      if #vars > 0 then
        for i, g in ipairs(tape:gradient(loss, vars)) do
          assert.same(vars[i].shape, tf.convert_to_tensor(g).shape)
        end
      end
    end)

    it(case.name .. ": configuration", function()
      local layer, inputs, _, run = prepare(case)
      local again = L.deserialize(L.serialize(layer))
      assert.equal(layer.name, again.name)
      run(again, inputs)
      again:set_weights(layer:get_weights())
      check_values(pack(run(again, inputs)), expected[case.name].float64,
        1e-9)
    end)
  end
end)

describe("layers", function()
  leaks(before_each, after_each)

  it("leave nothing behind", function()
    for _, case in ipairs(all) do
      local layer, inputs, _, run = prepare(case)
      local tape, loss = tf.GradientTape(function()
        return score(pack(run(layer, inputs)))
      end)
      if not case.no_grad then
        tape:gradient(loss, layer.trainable_variables)
      end
      check_symbolic(case)
    end
  end)
end)
