-- What a replica needs goes to the queue of its own device: replica 1 neither
-- puts work on the queue of device 0 nor waits for it, also where what it
-- reads lies there. Seen in the queues: nobody runs the first device's until
-- the host waits; slow devices hold it.
local R = require "spec.support.replicas"
local cases = require "spec.support.cases"
local functions = require "tfdist.keras.losses.functions".functions
local on_device = require "spec.support.on_device"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function pack(...)
  return { n = select("#", ...), ... }
end

local device = on_device.handle

local function slow(name)
  if on_device.type ~= "SLOW" then return function() end end
  return assert(package.loadlib(os.getenv "TFDIST_PLUGINS" .. "/tfdist_slow.so",
    name))
end

-- Ops that ask where elements go before they know a result's shape. What a device
-- with memory of its own has, it alone can read.
local READ = on_device.type ~= "CPU" and { dynamic_partition = true } or {}

local hold, let_go = slow "slow_hold", slow "slow_let_go"

local queued = R.available > 1 and raw.device_is_queued(device(0))

local function pair(name, fn)
  if queued then
    it(name, function()
      fn(R.mirrored(2))
    end)
  else
    pending(name .. ": needs TFDIST_CPU_DEVICES=2 TFDIST_QUEUE=queued")
  end
end

-- Names of the classes of losses and of their functions.
local function losses()
  local names = {}
  for name, value in pairs(tf.keras.losses) do
    if functions[name] or type(value) == "table" and value.is_tf_loss
      and name ~= "Loss" then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  assert(#names > 30)
  return names
end

local function synchronize()
  raw.device_synchronize(device(0))
  raw.device_synchronize(device(1))
end

-- Until device 1 alone has made t; an error when it does not.
local function check_made(t)
  local deadline = os.time() + 120 -- ends a hang, on any machine
  while raw.tensor_is_pending(t) do
    assert(os.time() < deadline, "replica 1 waits for the queue of device 0")
  end
end

-- What a GPU has no kernel for the processor does, for which the queue of each
-- device hands over what lies there.
local function done_on_processor(before)
  return on_device.type == "GPU"
    and raw.device_position(raw.device_at("CPU", 0)) > before
end

-- Run step(id) on both replicas: the second must leave the first device's queue
-- alone. step returns tensors of its own.
local function check(strategy, step)
  synchronize()
  local made
  finally(let_go)
  strategy:run(function()
    local id = R.id()
    if id == 1 then hold() end
    local before = raw.device_position(device(1 - id))
    local processor = raw.device_position(raw.device_at("CPU", 0))
    local results = pack(step(id))
    if not done_on_processor(processor) then
      assert.equal(before, raw.device_position(device(1 - id)),
        "calls on the queue of the other replica's device")
    end
    made = results
  end)
  for k = 1, made.n do
    if type(made[k]) == "userdata" and raw.kind(made[k]) == "tensor" then
      check_made(made[k])
    end
  end
end

local FLOAT = { float16 = true, bfloat16 = true, float32 = true,
                float64 = true }

local function tensors(case)
  local dtype, list = case.dtypes[1], {}
  for k, spec in ipairs(case.inputs) do
    list[k] = tf.constant(cases.values(spec, k - 1, dtype), {
      dtype = spec.dtype or dtype, shape = spec.dims })
  end
  return list
end

-- The same values in another order in memory.
local function gappy(t)
  if #t.shape < 2 then return t end
  local perm, back = {}, {}
  for i = 1, #t.shape do perm[i], back[i] = #t.shape - i, #t.shape - i end
  local other = tf.transpose(t, perm)
  return tf.transpose(tf.stack({ other, other }, { axis = 0 })[0], back)
end

local function floats(list)
  local out = {}
  for k = 1, list.n or #list do
    local x = list[k]
    if type(x) == "userdata" and FLOAT[x.dtype] then
      out[#out + 1] = x
    end
  end
  return out
end

-- Inputs and outputs of fn, watched; the gradients follow the results.
local function with_gradients(sources, fn)
  local outs
  local tape = tf.GradientTape(function(tape)
    for _, x in ipairs(sources) do tape:watch(x) end
    outs = pack(fn())
  end)
  local targets = floats(outs)
  if #sources > 0 and #targets > 0 then
    for _, g in ipairs(tape:gradient(targets, sources)) do
      outs.n = outs.n + 1
      outs[outs.n] = g
    end
  end
  return unpack(outs, 1, outs.n)
end

describe("a replica's work on what lies on another device", function()
  for _, family in ipairs(cases.families) do
    for _, case in ipairs(cases.load(family)) do
      local own = READ[case.name] and pending or pair
      own("stays on its own device: " .. case.name, function(strategy)
        local given = tensors(case)
        local views = {}
        for k, t in ipairs(given) do views[k] = gappy(t) end
        local sources = {}
        if case.grad == true then
          sources = floats(given)
        end
        for k, at in ipairs(type(case.grad) == "table" and case.grad or {}) do
          sources[k] = given[at + 1]
        end
        check(strategy, function()
          case.fn(tf, unpack(views, 1, #case.inputs))
          return with_gradients(sources, function()
            return case.fn(tf, unpack(given, 1, #case.inputs))
          end)
        end)
      end)
    end
  end
end)

describe("a layer that a replica calls with what lies on another device", function()
  for _, case in ipairs(cases.load "layers") do
    pair("stays on its own device: " .. case.name, function(strategy)
      local nx = case.x or 1
      local inputs = {}
      case.dtypes = { "float32" }
      for k, x in ipairs(tensors(case)) do
        inputs[k] = k <= nx and x or nil
      end
      local layer = strategy:scope(function()
        return case.layer(tf.keras.layers)
      end)
      local function call()
        local options = { training = case.training,
          mask = case.mask and tf.constant(case.mask) }
        if case.positional then
          return layer(inputs[1], inputs[2], options)
        end
        return layer(nx > 1 and inputs or inputs[1], options)
      end
      strategy:run(call)
      local sources = case.no_grad and {} or floats(inputs)
      check(strategy, function()
        local weights = case.no_grad and {} or layer.trainable_variables
        local all = {}
        for i = 1, #sources do all[i] = sources[i] end
        for i = 1, #weights do all[#all + 1] = weights[i] end
        return with_gradients(all, call)
      end)
    end)
  end
end)

describe("numbers, losses and metrics beside what lies on another device", function()
  local x, y, labels
  before_each(function()
    x = tf.constant { { 0.2, 0.7 }, { 0.4, 0.1 } }
    y = tf.constant { { 0, 1 }, { 1, 0 } }
    labels = tf.constant({ 1, 0 }, "int32")
  end)

  local NUMBERS = {
    ["x + 0"] = function() return x + 0 end,
    ["1 - x"] = function() return 1 - x end,
    ["x / 2"] = function() return x / 2 end,
    ["x ^ 2"] = function() return x ^ 2 end,
    ["tf.maximum"] = function() return tf.maximum(x, 0.5) end,
    ["tf.minimum of a number first"] = function()
      return tf.minimum(0.5, x)
    end,
    ["x:greater"] = function()
      return x, tf.cast(x:greater(0.3), "float32")
    end,
    ["a number that another dtype holds"] = function()
      return labels * 2, tf.maximum(labels, 0)
    end,
    ["tf.where"] = function() return tf.where(x:less(0.3), x, 0) end,
    ["tf.clip_by_value"] = function() return tf.clip_by_value(x, 0, 0.5) end,
    ["a slice"] = function() return x[{ {}, { 0, 1 } }] * 3 end,
    ["an element"] = function() return x[0][1] * 3 end,
    ["tf.stack with numbers"] = function() return tf.stack { x, x } end,
    ["a list of tensors and numbers"] = function()
      return tf.convert_to_tensor { x[0][0], 2 }
    end,
    ["tf.gather"] = function() return tf.gather(x, { 1, 0 }) end,
    ["tf.one_hot"] = function() return tf.one_hot(labels, 3) end,
    ["tf.reduce_mean"] = function() return tf.reduce_mean(x, { axis = -1 }) end,
    ["tf.nn.moments"] = function() return tf.nn.moments(x, { 0 }) end,
    ["tf.zeros_like"] = function() return tf.zeros_like(x) + tf.ones_like(x) end,
    ["tf.identity"] = function() return tf.identity(x) end,
    ["tf.nn.dropout"] = function() return tf.nn.dropout(x, 0.5) end,
    ["tf.linalg.norm"] = function() return tf.norm(x) end,
    ["tf.clip_by_global_norm"] = function()
      local list, norm = tf.clip_by_global_norm({ x, y }, 0.1)
      return list[1], list[2], norm
    end,
    ["tf.custom_gradient"] = function()
      return tf.custom_gradient(function(v)
        return v * 2, function(dy) return dy * 3 end
      end)(x)
    end,
  }
  for name, fn in pairs(NUMBERS) do
    pair("stay on the replica's device: " .. name, function(strategy)
      check(strategy, function()
        return with_gradients({ x, y }, fn)
      end)
    end)
  end

  for _, name in ipairs(losses()) do
    pair("stay on the replica's device: the loss " .. name, function(strategy)
      local loss = strategy:scope(function()
        if type(tf.keras.losses[name]) == "table" then
          return tf.keras.losses[name] { reduction = "sum" }
        end
        return tf.keras.losses.get(name)
      end)
      local truth = name:lower():find "^sparse" and labels or y
      local function call()
        return loss(truth, x)
      end
      strategy:run(call)
      check(strategy, function()
        return with_gradients({ x }, call)
      end)
    end)
  end

  local ARGUMENTS = {
    MeanIoU = { 2 }, OneHotMeanIoU = { 2 }, IoU = { 2, { 0 } },
    OneHotIoU = { 2, { 0 } }, BinaryIoU = {}, MeanTensor = {},
    MeanRelativeError = { { 1, 2 } }, SensitivityAtSpecificity = { 0.5 },
    SpecificityAtSensitivity = { 0.5 }, PrecisionAtRecall = { 0.5 },
    RecallAtPrecision = { 0.5 }, MeanMetricWrapper = { function(a, b)
      return tf.abs(a - b)
    end },
  }
  local VALUES = { Mean = true, Sum = true, MeanTensor = true }
  local classes = {}
  for name, class in pairs(tf.keras.metrics) do
    if name:find "^%u%l" and name ~= "Metric" and type(class) == "table" then
      classes[#classes + 1] = name
    end
  end
  table.sort(classes)
  for _, name in ipairs(classes) do
    pair("stay on the replica's device: the metric " .. name, function(strategy)
      local metric = strategy:scope(function()
        return tf.keras.metrics[name](unpack(ARGUMENTS[name] or {}))
      end)
      local truth = name:find "^Sparse" and labels or y
      local function call()
        if VALUES[name] then
          metric:update_state(x)
        else
          metric:update_state(truth, x)
        end
      end
      strategy:run(call)
      check(strategy, call)
    end)
  end

  pair("stay on the replica's device: a model's step", function(strategy)
    local model, loss = strategy:scope(function()
      return tf.keras.Sequential {
        tf.keras.layers.Dense(4, { activation = "relu" }),
        tf.keras.layers.Dropout(0.5), tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Dense(2),
      }, tf.keras.losses.SparseCategoricalCrossentropy {
        from_logits = true, reduction = "none" }
    end)
    local function step()
      local tape, value = tf.GradientTape(function()
        return tf.reduce_sum(loss(labels, model(x, { training = true }))) / 4
      end)
      return value, unpack(tape:gradient(value, model.trainable_variables))
    end
    strategy:run(step)
    check(strategy, step)
  end)
end)

describe("a view that goes to another device", function()
  pair("is the same there, and the queue it leaves has no work", function()
    local x = tf.reshape(tf.range(24.0), { 2, 3, 4 })
    local views = {
      tf.transpose(x, { 2, 0, 1 }), x[{ {}, { nil, nil, -1 } }],
      x[{ { nil, nil, -1 }, -1, { 3, 0, -2 } }], x[{ {}, {}, 1 }],
      tf.broadcast_to(x[1][2][3], { 2, 2 }), x[{ {}, { 1, 1 } }], x[0][0][0],
    }
    synchronize()
    local before, moved = raw.device_position(device(0)), {}
    for i, view in ipairs(views) do
      moved[i] = raw.tensor_to_device(view, device(1))
    end
    assert.equal(before, raw.device_position(device(0)))
    for i, view in ipairs(views) do
      assert.same(view:totable(), moved[i]:totable())
      assert.same(view.shape, moved[i].shape)
    end
  end)
end)

describe("values that a function gives for each replica", function()
  pair("lie on the replicas' devices", function(strategy)
    local values = strategy:experimental_distribute_values_from_function(
      function(context)
        return { x = tf.fill({ 2 }, context.replica_id_in_sync_group), y = 3 }
      end)
    synchronize()
    for i, x in ipairs(values.x.values) do
      assert.equal(raw.device_name(device(i - 1)), x.device)
    end
    local before = raw.device_position(device(0))
    assert.same({ 1, 1 }, values.x.values[2]:totable())
    assert.equal(before, raw.device_position(device(0)))
    assert.same({ 0, 0 }, values.x.values[1]:totable())
    assert.same({ 3, 3, n = 2 }, values.y.values)
  end)
end)
