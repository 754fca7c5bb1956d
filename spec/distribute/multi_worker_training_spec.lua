--- Input and training over the workers of MultiWorkerMirroredStrategy, each a
--- process. What one worker does alone is what all do together.
local process = require "spec.support.process"
local workers = require "spec.support.workers"

local HEAD = workers.HEAD .. [[
local function steps(ds)
  for x in ds:iter() do
    print(locals(x))
  end
end
]]

local function lines(...)
  return table.concat({ ... }, "\n") .. "\n"
end

local function numbers(out)
  local list = {}
  for word in out:gmatch "%S+" do
    list[#list + 1] = assert(tonumber(word), out)
  end
  return list
end

local function each_host(test)
  for _, host in ipairs(process.hosts) do
    test(host, " (" .. host.name .. ")")
  end
end

describe("input over workers #once", function()
  it("J05 J28 shares batches among all replicas", function()
    local program = HEAD .. [[
      local D = tf.data.Dataset
      local function policy(ds, name)
        local options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = name
        return ds:with_options(options)
      end
      steps(s:experimental_distribute_dataset(D.range(14):batch(8)))
      steps(s:experimental_distribute_dataset(policy(D.range(4):batch(4),
        "OFF")))
      local ds = s:experimental_distribute_dataset(D.range(4):batch(2))
      print(#ds.element_spec.value_specs, ds:cardinality())
      -- each worker's own, until all have ended
      steps(s:distribute_datasets_from_function(function(context)
        assert(context.num_input_pipelines == 2
          and context.input_pipeline_id == w
          and context.num_replicas_in_sync == s.num_replicas_in_sync)
        return D.range(3 + 2 * w):batch(context:get_per_replica_batch_size(4))
      end))
    ]]
    local outs = workers.outputs { program = program }
    assert.equal(lines("0 1 2 3", "8 9 10 11", "0 1", "2 3", "1\t2", "0 1",
      "2", ""), outs[1])
    assert.equal(lines("4 5 6 7", "12 13", "0 1", "2 3", "1\t2", "0 1",
      "2 3", "4"), outs[2])
    outs = workers.outputs { program = program, devices = 2 }
    assert.equal(lines("0 1 | 2 3", "8 9 | 10 11", "0 | 1", "2 | 3", "2\t2",
      "0 | 1", "2 | ", " | "), outs[1])
    assert.equal(lines("4 5 | 6 7", "12 13 | ", "0 | 1", "2 | 3", "2\t2",
      "0 | 1", "2 | 3", "4 | "), outs[2])
  end)

  it("reads shuffled data alike, whatever each worker drew before", function()
    local outs = workers.outputs { program = HEAD .. [[
      for _ = 1, w do tf.random.normal { 3 } end -- out of step
      local ds = s:experimental_distribute_dataset(
        tf.data.Dataset.range(40):shuffle(40):batch(10))
      for _ = 1, 2 do -- epochs
        local seen = {}
        for x in ds:iter() do
          for _, value in ipairs(s:gather(x, 0):totable()) do
            seen[#seen + 1] = value
          end
        end
        print(("%g"):rep(#seen, " "):format((unpack or table.unpack)(seen)))
      end
    ]] }
    assert.equal(outs[1], outs[2])
    local orders = {}
    for line in outs[1]:gmatch "[^\n]+" do
      orders[#orders + 1] = line
      local list = numbers(line)
      table.sort(list)
      for i = 1, 40 do
        assert.equal(i - 1, list[i])
      end
    end
    assert.are_not.equal(orders[1], orders[2])
  end)

  it("knows the shares of batches that are all full", function()
    local outs = workers.outputs { program = HEAD .. [[
      local D = tf.data.Dataset
      for _, size in ipairs { 4, 5 } do
        for _, full in ipairs { true, false } do
          local ds = s:experimental_distribute_dataset(D.range(23):batch(size,
            { drop_remainder = full }))
          local sizes = {}
          for x in ds:iter() do
            sizes[#sizes + 1] = s:experimental_local_results(x)[1].shape[1]
          end
          print(ds.element_spec.value_specs[1].shape[1], table.concat(sizes, " "))
        end
      end
      local ds = s:experimental_distribute_dataset(D.range(23):batch(4,
        { drop_remainder = true }))
      local sum = tf.function_(function()
        local total = tf.constant(0, { dtype = "int64" })
        for x in ds:iter() do
          total = total + tf.reduce_sum(s:experimental_local_results(x)[1])
        end
        return total
      end)
      print(sum():item())
    ]] }
    assert.equal(lines("2\t2 2 2 2 2", "-1\t2 2 2 2 2 2", "-1\t3 3 3 3",
      "-1\t3 3 3 3 3", "85"), outs[1])
    assert.equal(lines("2\t2 2 2 2 2", "-1\t2 2 2 2 2 1", "-1\t2 2 2 2",
      "-1\t2 2 2 2 0", "105"), outs[2])
  end)

  it("lets functions of data that all read draw alike", function()
    local outs = workers.outputs { program = HEAD .. [[
      for _ = 1, w do -- out of step
        tf.random.normal { 3 }
        tf.random.uniform({}, { seed = 5 })
      end
      local function rows(it)
        local list = {}
        for x in function() return it:get_next_as_optional() end do
          if not x:has_value() then break end
          for _, value in ipairs(s:gather(x:get_value(), 0):totable()) do
            list[#list + 1] = value
          end
        end
        return ("%.9g"):rep(#list, " "):format(
          (unpack or table.unpack)(list))
      end
      local D = tf.data.Dataset
      for _, ds in ipairs { D.range(60):filter(function()
        return tf.random.uniform {}:item() < 0.5
      end):batch(4), D.range(60):filter(function()
        return tf.random.uniform({}, { seed = 5 }):item() < 0.5
      end):batch(4) } do
        ds = s:experimental_distribute_dataset(ds)
        local it = ds:iter()
        it:get_next()
        local state = it:state()
        print(rows(it))
        tf.random.uniform {}
        local again = ds:iter()
        again:restore(state)
        print(rows(again))
        print(rows(ds:iter()))
        -- As a worker alone saves it that has drawn nothing.
        state = ds:iter():state()
        if w == 1 then state.functions = nil end
        again = ds:iter()
        tf.random.uniform({}, { seed = 5 })
        again:restore(state)
        print(rows(again))
      end
    ]] }
    assert.equal(outs[1], outs[2])
    local each = {}
    for line in outs[1]:gmatch "[^\n]+" do
      each[#each + 1] = line
      local list = numbers(line)
      for k = 2, #list do assert.is_true(list[k] > list[k - 1], line) end
      assert.is_true(#list > 10, line)
    end
    assert.equal(8, #each)
    for i = 1, 5, 4 do
      assert.equal(each[i], each[i + 1])
      assert.are_not.equal(each[i + 1], each[i + 2])
    end
  end)

  it("draws for each worker what it reads alone, and shards alike", function()
    local file = os.tmpname()
    os.remove(file)
    local outs = workers.outputs { program = HEAD
      .. ("local FILE = %q\n"):format(file) .. [[
      local D, hint = tf.data.Dataset, tf.data.experimental.SHARD_HINT
      local function line(ds, policy)
        local list = {}
        ds = ds:with_options { experimental_distribute = {
          auto_shard_policy = policy } }
        for x in s:experimental_distribute_dataset(ds:batch(4)):iter() do
          list[#list + 1] = locals(x)
        end
        print(table.concat(list, " "))
      end
      line(D.range(20):shuffle(20), "OFF")
      line(D.range(20):map(function() return tf.random.uniform {} end), "OFF")
      line(D.from_tensor_slices { 0, 10 }:flat_map(function(x)
        return D.range(10):map(function(i)
          return i + tf.cast(x, "int64")
        end):shuffle(10)
      end):shard(hint, hint), "HINT")
      line(D.range(40):filter(function()
        return tf.random.uniform {}:item() < 0.5
      end):shard(hint, hint), "HINT")
      line(D.range(20):shuffle(20):cache(FILE), "OFF")
      for _ = 1, w do tf.random.normal { 3 } end -- out of step
      line(D.range(20):shuffle(20):shard(hint, hint):shuffle(10), "HINT")
      line(D.range(20):shuffle(20, { seed = 3 }), "OFF")
      tf.random.set_seed(3)
      line(D.range(20):shuffle(20), "OFF")
      line(D.range(20):map(function() return tf.random.uniform {} end), "OFF")
    ]] }
    os.remove(file)
    local each = { {}, {} }
    for i, out in ipairs(outs) do
      for line in out:gmatch "[^\n]+" do table.insert(each[i], line) end
      assert.equal(9, #each[i])
    end
    for i, is_alike in ipairs { false, false, false, false, true, false, true,
      true, true } do
      assert.equal(is_alike, each[1][i] == each[2][i])
    end
    for _, i in ipairs { 3, 4, 6 } do -- what shards share
      local both = numbers(each[1][i] .. " " .. each[2][i])
      table.sort(both)
      for k = 1, i == 4 and 0 or 20 do assert.equal(k - 1, both[k]) end
      for k = 2, #both do assert.is_true(both[k] > both[k - 1]) end
    end
  end)

  it("gives each worker's replicas random numbers of their own", function()
    local program = HEAD .. [[
      tf.random.set_seed(7)
      local g = s:scope(function()
        return tf.random.Generator.from_seed(7)
      end)
      local function draw()
        return tf.random.uniform { 1 }, tf.random.uniform({ 1 }, { seed = 3 }),
          g:uniform { 1 }
      end
      local traced = tf.function_(draw)
      for _, fn in ipairs { draw, draw, traced, traced } do
        local a, b, c = s:run(fn)
        for _, x in ipairs { a, b, c } do print(locals(s:gather(x, 0))) end
      end
      print(locals(tf.random.uniform { 1 }))
    ]]
    local outs = workers.outputs { program = program, devices = 2 }
    assert.equal(outs[1], outs[2])
    local list, seen = numbers(outs[1]), {}
    for i = 1, #list do
      assert.is_nil(seen[list[i]], outs[1])
      seen[list[i]] = true
    end
    assert.equal(4 * 3 * 4 + 1, #list)
    assert.same(outs, workers.outputs { program = program, devices = 2 })
  end)
end)

-- Batches of 15 of 50 examples: the last one is short.
local TRAIN = [[
local xs, ys = {}, {}
for i = 1, 50 do
  xs[i] = { math.sin(i), math.cos(3 * i), i % 7 / 7 }
  ys[i] = { 2 * math.sin(i) - math.cos(3 * i) + 0.5 }
end
local function dense(units, seed, activation)
  return tf.keras.layers.Dense(units, { activation = activation,
    kernel_initializer = tf.keras.initializers.GlorotUniform { seed = seed } })
end
local model = s:scope(function()
  local m = tf.keras.Sequential { dense(8, 3, "tanh"), dense(1, 4) }
  m:compile { optimizer = OPTIMIZER, loss = "mse", metrics = { "mae" } }
  return m
end)
]]

local FIT = TRAIN .. [[
local h = model:fit(xs, ys, { batch_size = 15, epochs = 5, shuffle = false,
  verbose = 0, validation_data = { xs, ys } }).history
for i = 1, 5 do
  for _, name in ipairs { "loss", "mae", "val_loss", "val_mae" } do
    print(("%.9g"):format(h[name][i]))
  end
end
for _, x in ipairs { model:evaluate(xs, ys, { batch_size = 32,
  verbose = 0 }) } do
  print(("%.9g"):format(x))
end
for _, p in ipairs { model:predict(xs, { batch_size = 32, verbose = 0 }),
  model:predict_on_batch(xs) } do
  assert(p.shape[1] == 50)
  for _, i in ipairs { 0, 15, 31, 49 } do
    print(("%.9g"):format(p[i]:item()))
  end
end
print(("%.9g"):format((model:train_on_batch(xs, ys))))
]]

-- The same by hand: 20 steps of SGD 0.01.
local LOOP = [[
local w, b, optimizer = s:scope(function()
  return tf.Variable { { 0.1 }, { -0.2 }, { 0.3 } }, tf.Variable(0.0),
    tf.keras.optimizers.SGD(0.01)
end)
local x, y = {}, {}
for i = 1, 160 do
  x[i] = { math.sin(i), math.cos(3 * i), i % 7 / 7 }
  y[i] = { 2 * math.sin(i) - math.cos(3 * i) + 0.5 }
end
local ds = s:experimental_distribute_dataset(
  tf.data.Dataset.from_tensor_slices { tf.constant(x), tf.constant(y) }
  :batch(8))
for x, y in ds:iter() do
  local loss = s:run(function(x, y)
    local tape, loss = tf.GradientTape(function()
      return tf.nn.compute_average_loss(
        tf.reduce_mean((tf.matmul(x, w) + b - y) ^ 2, { axis = -1 }),
        { global_batch_size = 8 })
    end)
    optimizer:apply_gradients(tape:gradient(loss, { w, b }), { w, b })
    return loss
  end, { x, y })
  print(("%.9g"):format(s:reduce("SUM", loss):item()))
end
]]

local function alone(program, host)
  local script = process.file(program, ".lua")
  local r = process.run(("env -u TF_CONFIG TFDIST_LOG=error %s %s"):format(
    host.path, script))
  os.remove(script)
  assert.equal(0, r.code, r.err)
  return r.out
end

local function close(wanted, out, relative)
  local a, b = numbers(wanted), numbers(out)
  assert.equal(#a, #b)
  for i = 1, #a do
    assert.is_true(math.abs(a[i] - b[i]) <= relative * math.abs(a[i]),
      ("line %d: %.9g alone, %.9g together"):format(i, a[i], b[i]))
  end
  return #a
end

local SHAPES = { { 1, 2 }, { 2, 1 }, { 2, 2 }, { 3, 1 } }

describe("training over workers #once", function()
  each_host(function(host, name)
    local function on_all_shapes(program, relative, count)
      local wanted = alone(program, host)
      for _, shape in ipairs(SHAPES) do
        local given = { program = program, n = shape[1], devices = shape[2],
          host = host.path }
        local outs = workers.outputs(given)
        for i = 2, #outs do
          assert.equal(outs[1], outs[i])
        end
        assert.equal(count, close(wanted, outs[1], relative))
        -- again: the same bits
        assert.equal(outs[1], workers.outputs(given)[1])
      end
    end

    it("a loop gives one worker's losses" .. name, function()
      on_all_shapes(HEAD .. LOOP, 1e-5, 20)
    end)

    it("fit, evaluate and predict give one worker's" .. name, function()
      on_all_shapes(HEAD .. FIT:gsub("OPTIMIZER",
        "tf.keras.optimizers.SGD(0.01)"), 1e-5, 31)
    end)
  end)

  -- All bits of losses, metrics and variables, and how often Lua ran a step.
  it("graphs of steps give the bits of eager ones", function()
    local program = HEAD .. [[
      local K, L, steps = tf.keras, tf.keras.layers, nil
      local function fit(eagerly, optimizer)
        tf.random.set_seed(3)
        steps = 0
        local x, y = tf.random.normal { 22, 6 },
          tf.random.uniform({ 22 }, { maxval = 3, dtype = "int32" })
        local model = s:scope(function()
          local m = K.Sequential { L.Dense(8, { activation = "relu" }),
            L.BatchNormalization(), L.Dropout(0.2), L.Dense(3) }
          m:compile { optimizer = optimizer, metrics = { "accuracy" },
            loss = K.losses.SparseCategoricalCrossentropy {
              from_logits = true }, run_eagerly = eagerly }
          local own = m.train_step
          function m:train_step(...)
            steps = steps + 1
            return own(self, ...)
          end
          return m
        end)
        local h = model:fit(x, y, { batch_size = 4, epochs = 3, verbose = 0,
          validation_data = { x, y } }).history
        local list = {}
        for _, name in ipairs { "loss", "accuracy", "val_loss" } do
          for i = 1, 3 do
            list[#list + 1] = ("%.17g"):format(h[name][i])
          end
        end
        for _, v in ipairs(model.variables) do
          for _, value in ipairs(v:read_value():toflat()) do
            list[#list + 1] = ("%.17g"):format(value)
          end
        end
        return table.concat(list, " ")
      end
      for _, make in ipairs {
        function() return K.optimizers.SGD(0.1) end,
        function() return K.optimizers.AdamW { learning_rate = 0.01,
          clipnorm = 0.5, use_ema = true, ema_overwrite_frequency = 4 } end,
        function() return K.mixed_precision.LossScaleOptimizer(
          K.optimizers.SGD(0.1), { initial_scale = 1.5e38,
            dynamic_growth_steps = 2 }) end } do
        local wanted = fit(true, s:scope(make))
        local count = steps
        local got = fit(false, s:scope(make))
        print(wanted == got, count, steps <= count / 3, wanted)
      end
    ]]
    for _, shape in ipairs { { 1, 2 }, { 2, 1 }, { 2, 2 } } do
      local outs = workers.outputs { program = program, n = shape[1],
        devices = shape[2] }
      local runs = 0
      for line in outs[1]:gmatch "[^\n]+" do
        runs = runs + 1
        assert.truthy(line:find("^true\t" .. 18 * shape[2] .. "\ttrue\t"), line)
      end
      assert.equal(3, runs)
      for i = 2, #outs do
        assert.equal(outs[1], outs[i])
      end
    end
  end)

  -- One worker has traced its steps, the other runs them eagerly.
  it("graphs and eager steps meet", function()
    local program = HEAD .. FIT:gsub("OPTIMIZER",
      "tf.keras.optimizers.SGD(0.01)"):gsub('metrics = { "mae" } }',
      'metrics = { "mae" }, run_eagerly = w == ODD }')
    local wanted = workers.outputs { program = (program:gsub("ODD", "-1")) }
    for _, odd in ipairs { "0", "1" } do
      local outs = workers.outputs { program = (program:gsub("ODD", odd)) }
      assert.same(wanted, outs)
    end
  end)

  it("clips the sums, keeps averages, decays", function()
    for _, optimizer in ipairs {
      "tf.keras.optimizers.SGD { learning_rate = 0.05, clipnorm = 0.1 }",
      "tf.keras.optimizers.AdamW { learning_rate = 0.01, use_ema = true, "
        .. "global_clipnorm = 1 }" } do
      local program = HEAD .. FIT:gsub("OPTIMIZER", optimizer)
      local wanted = alone(program, process.hosts[1])
      for _, devices in ipairs { 1, 2 } do
        close(wanted, workers.outputs { program = program,
          devices = devices }[1], 2e-4)
      end
    end
  end)

  -- Each is an edit of what worker 1 calls, and what it is told.
  it("fit that is called in another way on one worker is told to all", function()
    local function fit()
      return HEAD .. [[
        local x, y = tf.ones { 12, 3 }, tf.ones { 12, 1 }
        local function given()
          return { batch_size = 5, epochs = 2, verbose = 0 }
        end
        local options, rate, more, loss = given(), 0.1, 0, "mse"
        local own, trains = {}, true
        local m = s:scope(function()
          if w == 1 then EDIT end
          local m = tf.keras.Sequential { tf.keras.layers.Dense(1, {
            input_shape = { 3 } }) }
          own.loss, own.optimizer = loss, tf.keras.optimizers.SGD(rate)
          m:compile(own)
          m.layers[1].trainable = trains
          return m
        end)
        m:fit(tf.ones { 12 + more, 3 }, tf.ones { 12 + more, 1 }, options)
      ]]
    end
    for edit, told in pairs {
      ["options.epochs = 3"] = "epochs: 3; the chief has epochs: 2",
      ["options.batch_size = 6"] = "batch_size: 6; the chief has batch_size: 5",
      ["options.steps_per_epoch = 1"] = "steps_per_epoch: 1",
      ["options.validation_data = { x, y }"] = "validation: true",
      ["more = 1"] = "examples: 13; the chief has examples: 12",
      ["rate = 0.2"] = "optimizer: ",
      ["options.shuffle = false"] = "shuffle: false; the chief has shuffle: true",
      ["options.sample_weight = tf.ones { 12 }"] = "sample_weight: true; the "
        .. "chief has sample_weight: false",
      ["options.class_weight = { [0] = 2, 0.5 }"] = "class_weight: 2, 0.5; the "
        .. "chief has class_weight: nil",
      ["loss = 'mae'"] = "loss: mae; the chief has loss: mse",
      ["own.metrics = 'mae'"] = "metrics: mae; the chief has metrics: none",
      ["own.metrics = { dense = { 'mse', 'mae' } }"] = "metrics: dense = {mse, "
        .. "mae}; the chief has metrics: none",
      ["own.weighted_metrics = { 'mae' }"] = "weighted_metrics: mae; the chief",
      ["own.steps_per_execution = 2"] = "steps_per_execution: 2; the chief has",
      ["trains = false"] = "trainable variables: 0; the chief has trainable "
        .. "variables: 2",
      ["loss = tf.keras.losses.Huber()"] = "loss: Huber; the chief has",
      ["options.callbacks = { tf.keras.callbacks.EarlyStopping "
        .. "{ monitor = 'loss' } }"] = "need: EarlyStopping; the chief has "
        .. "callbacks that all workers need: none",
    } do
      local rs = workers.run { program = fit():gsub("EDIT", (edit:gsub("%%",
        "%%%%"))) }
      assert.same({ 1, 1 }, { rs[1].code, rs[2].code }, edit)
      for _, r in ipairs(rs) do
        assert.truthy(r.err:find("ValueError: fit: worker 1 has ", 1, true),
          r.err)
        assert.truthy(r.err:find(told, 1, true), r.err)
      end
    end
    -- A callback that no other worker need hear of is one's own affair.
    workers.outputs { program = fit():gsub("EDIT",
      "options.callbacks = { { on_epoch_end = function() end } }") }
  end)

  -- Likewise of what the data are: of most nothing else would be told.
  it("data that are others on one worker are told to all", function()
    local function fit(policy, edit)
      return (HEAD .. [[
        local D = tf.data.Dataset
        local function data(n, batch, ...)
          local how = tf.data.Options()
          how.experimental_distribute.auto_shard_policy = "POLICY"
          return D.from_tensor_slices({ ... }):take(n):batch(batch)
            :with_options(how)
        end
        local function generated(signature)
          local how = tf.data.Options()
          how.experimental_distribute.auto_shard_policy = "POLICY"
          return D.from_generator(function()
            local k = 0
            return function()
              k = k + 1
              if k <= 3 then return tf.ones { 4, 3 }, tf.ones { 4, 1 } end
            end
          end, signature):with_options(how)
        end
        local x, y = tf.ones { 24, 3 }, tf.ones { 24, 1 }
        local own, given = data(12, 4, x, y), { epochs = 1, verbose = 0,
          validation_data = data(8, 4, x, y) }
        if w == 1 then EDIT end
        local m = s:scope(function()
          local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
          m:compile { loss = "mse" }
          return m
        end)
        m:fit(own, given)
      ]]):gsub("POLICY", policy):gsub("EDIT", (edit:gsub("%%", "%%%%")))
    end
    for _, case in ipairs {
      { "DATA", "own = data(20, 4, x, y)", "batches: 5; the chief has batches: 3" },
      { "DATA", "own = data(18, 6, x, y)", "elements of a batch: 6; the chief "
        .. "has elements of a batch: 4" },
      { "DATA", "own = generated()", "elements of a batch: not known; the chief" },
      { "OFF", "own = data(18, 6, x, y)", "elements of a batch: 6; the chief" },
      { "DATA", "own = data(12, 4, tf.cast(x, 'float64'), y)", "element 1: "
        .. "float64 {?, 3}; the chief has element 1: float32 {?, 3}" },
      { "OFF", "own = data(12, 4, tf.ones { 24, 5 }, y)", "element 1: float32 "
        .. "{?, 5}; the chief has element 1: float32 {?, 3}" },
      { "DATA", "own = data(12, 4, x, tf.ones { 24 })", "element 2: float32 {?}; "
        .. "the chief has element 2: float32 {?, 1}" },
      { "DATA", "own = data(12, 4, x, y, tf.ones { 24 })", "elements like: "
        .. "{., ., .}; the chief has elements like: {., .}" },
      { "DATA", "own = data(12, 4, { a = x }, y)", "elements like: {{a .}, .}" },
      { "DATA", "given.validation_data = data(12, 4, x, y)", "validation "
        .. "batches: 3; the chief has validation batches: 2" },
      { "DATA", "given.validation_data = { x, y }", "validation examples: 24" },
      { "DATA", "given.validation_freq = { 2 }", "validation_freq: 2; the chief "
        .. "has validation_freq: 1" },
      { "DATA", "given.validation_steps = 1", "validation_steps: 1" },
    } do
      local rs = workers.run { program = fit(case[1], case[2]) }
      assert.same({ 1, 1 }, { rs[1].code, rs[2].code }, case[2])
      for _, r in ipairs(rs) do
        assert.truthy(r.err:find("ValueError: fit: worker 1 has " .. case[3], 1,
          true), r.err)
      end
    end
    -- Streams of their own may be longer; what is not known may be the same.
    for _, edit in ipairs { "own = data(20, 4, x, y)", "own = generated()",
      -- Who asks knows it.
      "own = generated { output_signature = { tf.TensorSpec({ nil, nil, n = 2 }), "
      .. "tf.TensorSpec() } } assert(own.element_spec)" } do
      workers.outputs { program = fit("OFF", edit) }
    end
  end)

  -- Weights would differ from then on, and no sum shows it.
  it("learning rates that callbacks set apart are told", function()
    for callbacks, told in pairs {
      ["K.LearningRateScheduler(function(e) return e == 0 and 0.1 or 0.1 / (2 - w) "
        .. "end)"] = "before epoch 2 worker 1 has the learning rate 0.1; the "
        .. "chief has 0.05",
      ["{ on_epoch_end = function(_, _, logs) logs.own = -w * logs.loss end }, "
        .. "K.ReduceLROnPlateau { monitor = 'own', mode = 'max', patience = 1, "
        .. "factor = 0.5 }"] = "before epoch 3 worker 1 has the learning rate "
        .. "0.1; the chief has 0.05",
    } do
      local rs = workers.run { program = HEAD .. [[
        local K = tf.keras.callbacks
        local m = s:scope(function()
          local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
          m:compile { loss = "mse", optimizer = tf.keras.optimizers.SGD(0.1) }
          return m
        end)
        m:fit(tf.ones { 8, 3 }, tf.ones { 8, 1 }, { epochs = 4, verbose = 0,
          callbacks = { ]] .. callbacks .. "} })" }
      assert.same({ 1, 1 }, { rs[1].code, rs[2].code }, rs[2].err)
      for _, r in ipairs(rs) do
        assert.matches("ValueError: fit: " .. told, r.err, 1, true)
      end
    end
  end)

  it("a worker whose data end first trains on with no rows", function()
    local outs = workers.outputs { program = HEAD .. [[
      local m = s:scope(function()
        local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
        m:compile { loss = "mse", optimizer = tf.keras.optimizers.SGD(0.1) }
        return m
      end)
      local ds = s:distribute_datasets_from_function(function()
        return tf.data.Dataset.from_tensor_slices { tf.ones { 8, 3 },
          tf.ones { 8, 1 } }:batch(2):take(4 - 3 * w)
      end)
      for _, given in ipairs { { epochs = 2 },
        { epochs = 2, steps_per_epoch = 4 } } do
        given.verbose = 0
        local h = m:fit(ds, given)
        print(#h.history.loss, h.params.steps)
      end
      print(m.optimizer.iterations:read_value():item())
    ]] }
    assert.equal("2\t4\n2\t4\n16\n", outs[1])
    assert.equal(outs[1], outs[2])
  end)

  it("callbacks have the predictions of all workers", function()
    local outs = workers.outputs { devices = 2, program = HEAD .. [[
      local x = tf.reshape(tf.range(1, 7, 1, "float32"), { 6, 1 })
      for k = 1, 2 do
        local m = s:scope(function()
          local m = tf.keras.Sequential { tf.keras.layers.Dense(1, {
            kernel_initializer = "ones" }) }
          m:compile { loss = "mse", steps_per_execution = k }
          return m
        end)
        m:predict(x, { batch_size = 4, verbose = 0, callbacks = { {
          on_predict_batch_end = function(_, _, logs)
            print(tf.reduce_sum(logs.outputs):item(), #logs.outputs)
          end } } })
      end
    ]] }
    assert.equal("10.0\t4\n11.0\t2\n21.0\t6\n", outs[1])
    assert.equal(outs[1], outs[2])
  end)

  it("tells all who failed first, and why", function()
    local rs = workers.run { n = 3, program = HEAD .. [[
      for i = 1, 4 do
        s:reduce("SUM", 1.0)
        if w == 1 and i == 3 then
          error "no more of this"
        end
      end
    ]] }
    for i, r in ipairs(rs) do
      assert.equal(i == 2 and 1 or 75, r.code, r.err)
      assert.truthy(r.err:find("no more of this", 1, true), r.err)
      if i ~= 2 then
        assert.truthy(r.err:find("process 1", 1, true), r.err)
      end
    end
  end)
end)
