-- Cases that hold under every strategy of one process: the default one, one
-- device, copies on several devices, values at one place for several.
local R = require "spec.support.replicas"
local tf = require "tfdist"
local at = require("spec.support.on_device").at

local D = tf.data.Dataset
local distribution = tf.distribute
local fails = R.fails

local function names(n)
  local list = {}
  for i = 1, n do list[i] = at(i - 1) end
  return list
end

-- name, make(), replicas
local STRATEGIES = {
  { "default", distribution.get_strategy, 1 },
  { "one device", function()
    return distribution.OneDeviceStrategy(at(0))
  end, 1 },
}
for n = 1, 4 do
  STRATEGIES[#STRATEGIES + 1] = { "mirrored " .. n, function()
    return R.mirrored(n)
  end, n }
  STRATEGIES[#STRATEGIES + 1] = { "central " .. n, function()
    return distribution.experimental.CentralStorageStrategy(names(n))
  end, n }
end

local function each(name, fn)
  for _, entry in ipairs(STRATEGIES) do
    local title = name .. ", " .. entry[1]
    if entry[3] <= R.available then
      it(title, function() fn(entry[2](), entry[3]) end)
    else
      pending(title .. ": needs TFDIST_CPU_DEVICES=" .. entry[3])
    end
  end
end

-- All elements of the results of fn for each step, in order.
local function flat_steps(s, data, fn)
  local out = {}
  for x in s:experimental_distribute_dataset(data):iter() do
    local step = {}
    for _, part in ipairs(R.locals(s, s:run(fn, { x }))) do
      for _, value in ipairs(type(part) == "table" and part or { part }) do
        step[#step + 1] = value
      end
    end
    out[#out + 1] = step
  end
  return out
end

local function square(x)
  return x * x
end

describe("under every strategy", function()
  R.leaks(before_each, after_each)

  each("A15 array data adds up", function(s)
    local sum = 0
    for x in s:experimental_make_numpy_dataset(tf.ones { 10 }):iter() do
      for _, value in ipairs(R.locals(s, x)) do sum = sum + value end
    end
    assert.equal(10, sum)
  end)

  each("A21 a data set that is distributed", function(s, n)
    local x = s:experimental_distribute_dataset(D.range(12 * n):batch(n))
      :iter():get_next()
    local got = {}
    for _, part in ipairs(R.locals(s, x)) do
      for _, value in ipairs(part) do got[#got + 1] = value end
    end
    for i = 1, n do assert.equal(i - 1, got[i]) end
    assert.equal(n, #got)
  end)

  each("A22 one that a function makes", function(s, n)
    local x = s:distribute_datasets_from_function(function(c)
      assert.equal(1, c.num_input_pipelines)
      assert.equal(n, c.num_replicas_in_sync)
      return D.range(10):batch(2)
    end):iter():get_next()
    local parts = R.locals(s, x)
    assert.equal(n, #parts)
    for i = 1, n do assert.same({ 2 * i - 2, 2 * i - 1 }, parts[i]) end
  end)

  each("J16 squares of five to eight", function(s)
    assert.same({ { 25, 36 }, { 49, 64 } }, flat_steps(s,
      D.from_tensor_slices({ 5, 6, 7, 8 }):batch(2), square))
  end)

  each("J18 a short last batch", function(s)
    assert.same({ { 25, 36 }, { 49 } }, flat_steps(s,
      D.from_tensor_slices({ 5, 6, 7 }):batch(2), square))
  end)

  each("J22 int64 batches, shares without elements", function(s, n)
    local data = D.from_tensor_slices(tf.constant({ 5 }, "int64")):batch(n)
    local x = s:experimental_distribute_dataset(data):iter():get_next()
    local parts = R.locals(s, s:run(function(v)
      assert.equal("int64", v.dtype)
      return v + v
    end, { x }))
    assert.same({ 10 }, parts[1])
    for i = 2, n do assert.same({}, parts[i]) end
  end)

  each("J24 tables as results", function(s)
    local x = s:experimental_distribute_dataset(D.range(4):batch(4)):iter()
      :get_next()
    local r = s:run(function(v)
      return { a = v - 1, b = { c = v + 1 } }
    end, { x })
    local a, c = {}, {}
    for _, part in ipairs(R.locals(s, r.a)) do
      for _, value in ipairs(part) do a[#a + 1] = value end
    end
    for _, part in ipairs(R.locals(s, r.b.c)) do
      for _, value in ipairs(part) do c[#c + 1] = value end
    end
    assert.same({ -1, 0, 1, 2 }, a)
    assert.same({ 1, 2, 3, 4 }, c)
  end)

  each("J25 gradients of squares", function(s)
    assert.same({ { 10, 12 }, { 14, 16 } }, flat_steps(s,
      D.from_tensor_slices({ 5, 6, 7, 8 }):batch(2), function(x)
        local tape = tf.GradientTape()
        tape:watch(x)
        local y = square(x)
        return tape:gradient(y, x)
      end))
  end)

  each("J26 gradients of a function in a function", function(s, n)
    local v = s:scope(function() return tf.Variable(1.0) end)
    local function inner()
      local tape, y = tf.GradientTape(function() return v * v end)
      return tape:gradient(y, v)
    end
    local gradients = R.locals(s, s:run(function()
      return (function() return inner() end)()
    end))
    assert.same(R.list(n, 2), gradients)
  end)

  each("K06 K11 K12 losses add up in replicas, and only there", function(s, n)
    local losses = { 2.5, 6.2, 5 }
    local a, b = s:run(function()
      return tf.nn.compute_average_loss(losses),
        tf.nn.scale_regularization_loss(losses)
    end)
    assert.near(13.7 / 3, s:reduce("SUM", a, nil):item(), 1e-5)
    assert.near(13.7, s:reduce("SUM", b, nil):item(), 1e-5)
    s:scope(function()
      if not distribution.in_cross_replica_context() then
        assert.equal(1, n)
        return -- the default scope changes nothing
      end
      fails("RuntimeError", "cross replica context",
        tf.nn.compute_average_loss, losses)
      fails("RuntimeError", "cross replica context",
        tf.nn.scale_regularization_loss, losses)
    end)
  end)
end)

describe("what one strategy saves another restores", function()
  local dir
  R.leaks(before_each, after_each)
  before_each(function()
    dir = os.tmpname()
    os.remove(dir)
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  local function made(s, value, options)
    return s:scope(function() return tf.Variable(value, options) end)
  end

  local function others(fn)
    for _, entry in ipairs(STRATEGIES) do
      if entry[3] <= R.available then fn(entry[2](), entry[3]) end
    end
  end

  for _, aggregation in ipairs { "NONE", "SUM", "MEAN",
    "ONLY_FIRST_REPLICA" } do
    each("B12 L01 ON_WRITE " .. aggregation, function(s)
      local v = made(s, 1, { aggregation = aggregation })
      v:assign(2)
      tf.train.Checkpoint { v = v }:write(dir .. "/v")
      others(function(other)
        local w = made(other, 9, { aggregation = aggregation })
        tf.train.Checkpoint { v = w }:read(dir .. "/v"):assert_consumed()
        assert.equal(2, w:read_value():item())
      end)
    end)
  end

  -- Each replica adds its share; together they are what was saved.
  each("C11 L02 ON_READ SUM", function(s, n)
    local options = { synchronization = "ON_READ", aggregation = "SUM" }
    local v = made(s, 0, options)
    s:run(function() v:assign_add(tf.constant(12.0)) end)
    assert.equal(12 * n, v:read_value():item())
    tf.train.Checkpoint { v = v }:write(dir .. "/v")
    others(function(other)
      local w = made(other, 1, options)
      tf.train.Checkpoint { v = w }:read(dir .. "/v"):assert_consumed()
      assert.near(12 * n, w:read_value():item(), 1e-5)
    end)
  end)

  each("C11 L02 ON_READ MEAN", function(s, n)
    local options = { synchronization = "ON_READ", aggregation = "MEAN" }
    local v = made(s, 0, options)
    s:run(function() v:assign(tf.constant(1.0 + R.id())) end)
    tf.train.Checkpoint { v = v }:write(dir .. "/v")
    others(function(other)
      local w = made(other, 9, options)
      tf.train.Checkpoint { v = w }:read(dir .. "/v"):assert_consumed()
      assert.near((n + 1) / 2, w:read_value():item(), 1e-6)
    end)
  end)

  each("L04 three rounds of ten steps count on", function(s)
    for round = 1, 3 do
      local v, opt, ckpt
      s:scope(function()
        v = tf.Variable { 1, 1 }
        opt = tf.keras.optimizers.Adam { learning_rate = 0.1 }
        ckpt = tf.train.Checkpoint { v = v, opt = opt }
        local status = ckpt:restore(tf.train.latest_checkpoint(dir))
        assert.equal(round > 1, status ~= nil)
      end)
      for _ = 1, 10 do
        s:run(function()
          opt:apply_gradients({ tf.constant { 1, 2 } }, { v })
        end)
      end
      assert.equal(10 * round, opt.iterations:read_value():item())
      ckpt:save(dir .. "/ckpt")
    end
  end)
end)
