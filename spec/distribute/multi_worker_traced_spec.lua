--- Traced steps over the workers of MultiWorkerMirroredStrategy, each a process:
--- the bits of eager ones.
local workers = require "spec.support.workers"

local SHAPES = { { 1, 2 }, { 2, 1 }, { 2, 2 } }

-- Weights, slots and losses of fit(eagerly, optimizer), how often Lua ran a
-- step, and what was warned of.
local FIT = [[
local tf = require "tfdist"
local notice = require "tfdist.base.notice"
local s = tf.distribute.MultiWorkerMirroredStrategy()
local Sharded = tf.distribute.experimental.ShardedOptimizer
local K, L = tf.keras, tf.keras.layers
local steps, warned = 0, 0
function notice.warn() warned = warned + 1 end

local function add(list, x)
  for _, value in ipairs(x:reshape({ -1 }):totable()) do
    list[#list + 1] = ("%.17g"):format(value)
  end
end

local function fit(eagerly, optimizer, layers, x, per)
  steps, warned = 0, 0
  tf.random.set_seed(3)
  local y = tf.random.uniform({ 22 }, { maxval = 3, dtype = "int32" })
  local model = s:scope(function()
    local m = K.Sequential(layers())
    m:compile { optimizer = optimizer(), run_eagerly = eagerly,
      steps_per_execution = per or 1,
      loss = K.losses.SparseCategoricalCrossentropy { from_logits = true } }
    local own = m.train_step
    function m:train_step(...)
      steps = steps + 1
      return own(self, ...)
    end
    return m
  end)
  local list = {}
  add(list, tf.constant(model:fit(x, y, { batch_size = 4, epochs = 3,
    verbose = 0 }).history.loss))
  for _, of in ipairs { model.variables, model.optimizer.variables } do
    for _, v in ipairs(of) do add(list, tf.cast(v:read_value(), "float32")) end
  end
  return table.concat(list, " ")
end

local function both(optimizer, layers, x)
  local wanted = fit(true, optimizer, layers, x)
  local count = steps
  local got = fit(false, optimizer, layers, x)
  local seen = warned
  local joined = fit(false, optimizer, layers, x, 4)
  print(wanted == got and wanted == joined, steps <= count / 3, seen + warned,
    wanted)
end
]]

local function on_all_shapes(program, check)
  for _, shape in ipairs(SHAPES) do
    local outs = workers.outputs { program = program, n = shape[1],
      devices = shape[2] }
    check(outs[1], shape)
    for i = 2, #outs do
      assert.equal(outs[1], outs[i])
    end
  end
end

-- Of each worker the program prints n lines: it gave the same.
local function as_eager(n, program)
  on_all_shapes(FIT .. program, function(out)
    local count = 0
    for line in out:gmatch "[^\n]+" do
      count = count + 1
      assert.truthy(line:find("^true\ttrue\t0\t"), line)
    end
    assert.equal(n, count)
  end)
end

describe("traced steps over workers #once", function()
  it("share out slots as eager ones", function()
    as_eager(3, [[
      local x = tf.random.normal { 22, 6 }
      local function layers()
        return { L.Dense(40, { activation = "relu" }), L.Dense(3) }
      end
      for _, options in ipairs { { learning_rate = 0.01 },
        { learning_rate = 0.01, global_clipnorm = 0.1 },
        { learning_rate = 0.01, use_ema = true, weight_decay = 0.1 } } do
        both(function()
          return Sharded(K.optimizers.AdamW(options))
        end, layers, x)
      end
    ]])
  end)

  it("add up sparse gradients as eager ones", function()
    as_eager(2, [[
      local x = tf.random.uniform({ 22, 5 }, { maxval = 9, dtype = "int32" })
      local function layers()
        return { L.Embedding(9, 4), L.GlobalAveragePooling1D(), L.Dense(3) }
      end
      both(function() return K.optimizers.SGD(0.1) end, layers, x)
      both(function() return K.optimizers.Adam(0.01) end, layers, x)
    ]])
  end)

  it("clip sums of sparse gradients as eager ones", function()
    as_eager(3, [[
      local x = tf.random.uniform({ 22, 5 }, { maxval = 9, dtype = "int32" })
      local function layers()
        return { L.Embedding(9, 4), L.Flatten(), L.Dense(3) }
      end
      for _, clip in ipairs { "clipnorm", "clipvalue", "global_clipnorm" } do
        both(function()
          return K.optimizers.Adam { learning_rate = 0.01, [clip] = 0.02 }
        end, layers, x)
      end
    ]])
  end)

  it("put means in the variables' place as eager ones", function()
    as_eager(2, [[
      local x = tf.random.normal { 22, 6 }
      local function layers()
        return { L.Dense(40, { activation = "relu" }), L.Dense(3) }
      end
      for _, of in ipairs { Sharded, function(o) return o end } do
        both(function()
          return of(K.optimizers.SGD { learning_rate = 0.1, use_ema = true,
            ema_momentum = 0.5, ema_overwrite_frequency = 3 })
        end, layers, x)
      end
    ]])
  end)

  it("fail by the replica's number among all, and the worker's", function()
    local outs = workers.outputs { n = 2, devices = 2,
      program = workers.HEAD .. [[
        local function body(x)
          if id() == 3 then
            x = tf.gather(x, { 2 })
          end
          return tf.reduce_sum(x)
        end
        local step = tf.function_(function(x)
          return s:run(body, { x })
        end)
        for _, fn in ipairs { step, function(x) return s:run(body, { x }) end } do
          fn(tf.ones { 3 })
          local ok, e = pcall(function()
            return locals(fn(tf.ones { 2 }))
          end)
          print(ok, ok or e.kind, ok or e.replica, ok or e.worker,
            ok or tostring(e):match "replica %d of worker %d")
        end
      ]] }
    assert.equal(("true\ttrue\ttrue\ttrue\ttrue\n"):rep(2), outs[1])
    assert.equal(("false\tInvalidArgument\t3\t1\treplica 3 of worker 1\n")
      :rep(2), outs[2])
  end)

  -- Replica i has i + 1 columns: 0..i and 0..i times i.
  it("gather what differs in size as eager ones", function()
    on_all_shapes(workers.HEAD .. [[
      local function body(x)
        return s:run(function(x)
          local own = tf.range(id() + 1)
          local all = tf.distribute.get_replica_context():all_gather(
            tf.stack { own, own * id() }, 1)
          return all, tf.reshape(tf.reduce_sum(all) + x, { 1 })
        end, { x })
      end
      local step = tf.function_(function(x)
        local all, sum = body(x)
        return all, sum, s:gather(all, -1), s:gather(sum, 0)
      end)
      for i = 1, 3 do
        local x = tf.constant(i, "int32")
        local all, sum = body(x)
        local got, of_it, joined, sums = step(x)
        assert(locals(all) == locals(got) and locals(sum) == locals(of_it))
        assert(show(s:gather(all, -1)) == show(joined))
        local parts = show(sums)
        print(locals(got):match "^[^|]*", parts)
      end
      local ok, e = pcall(tf.function_(function()
        return s:gather(s:run(function() return tf.constant(1.0) end), 0)
      end))
      assert(not ok and tostring(e):find("scalars cannot be gathered", 1, true))
    ]], function(out, shape)
      local n, rows, sum = shape[1] * shape[2], { {}, {} }, 0
      for i = 0, n - 1 do
        for k = 0, i do
          rows[1][#rows[1] + 1], rows[2][#rows[2] + 1] = k, k * i
          sum = sum + k + k * i
        end
      end
      local count = 0
      for line in out:gmatch "[^\n]+" do
        count = count + 1
        assert.equal(table.concat(rows[1], " ") .. " "
          .. table.concat(rows[2], " "), (line:match "^(.-)%s*\t"))
        assert.equal((" " .. sum + count):rep(n):sub(2), line:match "\t(.*)$")
      end
      assert.equal(3, count)
    end)
  end)

  -- Of sizes that one worker has met and another one not: each asks the others
  -- for batches and sums in the same order.
  it("join where workers' batches have sizes of their own", function()
    local outs = workers.outputs { n = 3, program = FIT .. [[
      local function run(eagerly, per)
        tf.random.set_seed(3)
        local m = s:scope(function()
          local m = K.Sequential { L.Embedding(9, 4),
            L.GlobalAveragePooling1D(), L.Dense(1) }
          m:compile { optimizer = "sgd", loss = "mse", run_eagerly = eagerly,
            steps_per_execution = per }
          return m
        end)
        local data = s:distribute_datasets_from_function(function(context)
          local w = context.input_pipeline_id
          return tf.data.Dataset.range(11):map(function(i)
            local n = 2 + tf.math.floormod(i * (w + 1) + w, 3):item()
            return tf.ones({ 2, n }, "int32") * (w + n), tf.ones { 2, 1 } * n
          end)
        end)
        local list = {}
        add(list, tf.constant(m:fit(data, { epochs = 3, steps_per_epoch = 11,
          verbose = 0 }).history.loss))
        for _, v in ipairs(m.variables) do add(list, v:read_value()) end
        add(list, m:predict(data, { steps = 4, verbose = 0 }))
        return table.concat(list, " ")
      end
      local wanted = run(true, 1)
      for _, per in ipairs { 1, 4, 11 } do print(run(false, per) == wanted) end
    ]] }
    for _, out in ipairs(outs) do
      assert.equal(("true\n"):rep(3), out)
    end
  end)

  it("take the first replica's values and means of whole numbers", function()
    local program = workers.HEAD .. [[
      local n = s.num_replicas_in_sync
      local function variable(options)
        options.trainable, options.aggregation = false, "ONLY_FIRST_REPLICA"
        return s:scope(function() return tf.Variable(0.0, options) end)
      end
      local v, u = variable {}, variable { synchronization = "ON_READ" }
      local step = tf.function_(function(x)
        local own = s:run(function(x)
          v:assign(x + tf.cast(id(), "float32"))
          v:assign_add(x * 2 + tf.cast(id(), "float32"))
          u:assign_add(x + tf.cast(id(), "float32"))
          local c = tf.distribute.get_replica_context()
          local mean = c:all_reduce("MEAN", tf.cast(x, "int32") + id() * 3)
          return mean
        end, { x })
        return own, v:read_value() * 1, u:read_value() * 1
      end)
      for i = 1, 4 do
        local mean, first, synced = step(tf.constant(i * 2.0))
        mean = s:experimental_local_results(mean)[1]
        -- A mean of 0, 3, 6, ... and the 2 i of all.
        assert(tf.cast(mean, "float64"):item() == 2 * i + 3 * (n - 1) / 2)
        assert(first:item() == 6 * i, first:item())
        assert(synced:item() == i * (i + 1), synced:item())
      end
      for _, copy in ipairs(s:experimental_local_results(v)) do
        assert(copy:read_value():item() == 24)
      end
      print "well"
    ]]
    on_all_shapes(program, function(out)
      assert.equal("well\n", out)
    end)
  end)

  -- Replica r has k rows of r, and k * r of them: so many count.
  it("have means along axes of shares of other sizes", function()
    local program = workers.HEAD .. [[
      local n = s.num_replicas_in_sync
      local rows, sum = 0, 0
      for r = 0, n - 1 do rows, sum = rows + r, sum + r * r end
      for _, dtype in ipairs { "float32", "int32" } do
        local function mean(k)
          return s:reduce("MEAN", s:run(function()
            return tf.cast(tf.fill({ id() * k, 3 }, id()), dtype)
          end), 0), s:reduce("MEAN", s:run(function()
            return tf.cast(tf.fill({ id() * k, 2 }, id()), dtype)
          end), { 0, 1 })
        end
        local traced = tf.function_(mean)
        for k = 1, 3 do
          for _, fn in ipairs { mean, traced } do
            local by_row, whole = fn(k)
            assert(by_row.shape[1] == 3 and #whole.shape == 0)
            for _, m in ipairs { by_row[0], by_row[2], whole } do
              assert(math.abs(m:item() - sum / rows) < 1e-6, m:item())
            end
          end
        end
      end
      print "well"
    ]]
    on_all_shapes(program, function(out)
      assert.equal("well\n", out)
    end)
  end)

  -- Steps with short and with empty shares at the end; then all workers end.
  it("take from iterators what op by op steps take", function()
    local program = workers.HEAD .. [[
      local D = tf.data.Dataset
      local function numbers(n, batch)
        return D.range(n):map(function(x)
          return tf.cast(x, "float32")
        end):batch(batch)
      end
      local function off()
        return numbers(13, 4):with_options { experimental_distribute = {
          auto_shard_policy = "OFF" } }
      end
      local function step(it)
        local x = it:get_next()
        return x, s:reduce("SUM", s:run(tf.reduce_sum, { x }))
      end
      local traced = tf.function_(step)
      for name, make in pairs {
        data = function()
          return s:experimental_distribute_dataset(numbers(13, 4))
        end,
        off = function() return s:experimental_distribute_dataset(off()) end,
        fn = function()
          return s:distribute_datasets_from_function(function(context)
            return numbers(5 + 3 * context.input_pipeline_id, 2)
          end)
        end } do if name == NAME then
        local a, b, n = make():iter(), make():iter(), 0
        while true do
          local ok, x, sum = pcall(step, a)
          local also, y, total = pcall(traced, b)
          assert(ok == also)
          if not ok then
            assert(tf.errors.kind(y) == "OutOfRange", tostring(y))
            break
          end
          n = n + 1
          assert(locals(x) == locals(y) and sum:item() == total:item())
        end
        -- Made anew by each call, to its end.
        local data = make()
        local count = tf.function_(function()
          local it = data:iter()
          return (select(2, tf.while_loop(function(go)
            return go
          end, function(_, k)
            return it:get_next_as_optional():has_value(), k + 1
          end, { tf.constant(true), tf.constant(-1) })))
        end)
        assert(count():item() == n and count():item() == n)
        local ok, all = pcall(tf.function_(function()
          local sum = tf.constant(0.0)
          for x in data:iter() do
            sum = sum + s:reduce("SUM", s:run(tf.reduce_sum, { x }))
          end
          return sum
        end))
        if name == "data" then
          assert(all:item() == 78)
        elseif WORKERS > 1 then
          assert(not ok and tf.errors.kind(all) == "NotImplementedError")
        end
        print(n)
      end end
    ]]
    for name, steps in pairs { data = { 4, 4, 4 }, off = { 4, 7, 7 },
      fn = { 2, 4, 2 } } do
      for i, shape in ipairs(SHAPES) do
        for _, out in ipairs(workers.outputs { n = shape[1], devices = shape[2],
          program = program:gsub("NAME", ("%q"):format(name))
            :gsub("WORKERS", tostring(shape[1])) }) do
          assert.equal(steps[i] .. "\n", out)
        end
      end
    end
  end)

  it("and eager ones read a variable of all replicas more than once", function()
    local program = workers.HEAD .. [[
      local function var()
        return tf.Variable(0.0, { synchronization = "ON_READ",
          aggregation = "MEAN" })
      end
      local v, u = s:scope(var), s:scope(var)
      local function plain(fn) return fn end
      for _, way in ipairs { plain, tf.function_ } do
        local often = way(function(x)
          return v * v, tf.stack { v, v, u, u, v },
            tf.cond(tf.greater(x, 0), function() return v * v + v end,
              function() return v end),
            tf.while_loop(function(i) return tf.less(i, 3) end,
              function(i, y) return i + 1, y + v * v end, { tf.constant(0), x })
        end)
        for first = 1, 2 do
          s:run(function()
            v:assign(first + id())
            u:assign(5 * (first + id()))
          end)
          local a, b, c, _, d = often(tf.constant(1.0))
          print(show(a), show(b), show(c), show(d))
        end
      end
    ]]
    on_all_shapes(program, function(out, shape)
      local lines = {}
      for first = 1, 2 do
        local m = first + (shape[1] * shape[2] - 1) / 2
        lines[first] = ("%g\t%g %g %g %g %g\t%g\t%g\n"):format(m * m, m, m,
          5 * m, 5 * m, m, m * m + m, 1 + 3 * m * m)
      end
      assert.equal(table.concat(lines):rep(2), out)
    end)
  end)

  it("add a variable of all replicas that they read once", function()
    local out = workers.outputs { program = workers.HEAD .. [[
      local v = s:scope(function()
        return tf.Variable(3.0, { synchronization = "ON_READ",
          aggregation = "SUM" })
      end)
      local sum = tf.Variable(1.0)
      local add = tf.function_(function() sum:assign_add(v) end)
      local graph = tostring(add:get_concrete_function():graph())
      add()
      print(select(2, graph:gsub("SyncOnReadVariable", "")), show(sum))
    ]] }
    assert.same({ "1\t7\n", "1\t7\n" }, out)
  end)

  it("end with the error of a worker whose pipeline fails", function()
    local results = workers.run { program = workers.HEAD .. [[
      local calls = 0
      local ds = tf.data.Dataset.range(16):map(function(x)
        calls = calls + 1
        if w == 1 and calls == 9 then error("bad record", 0) end
        return x
      end):batch(4)
      local it = s:experimental_distribute_dataset(ds):iter()
      local step = tf.function_(function(from)
        return s:reduce("SUM", s:run(tf.reduce_sum, { from:get_next() }))
      end)
      for _ = 1, 4 do step(it) end
    ]] }
    assert.equal(75, results[1].code, results[1].err)
    assert.equal(1, results[2].code, results[2].err)
    for _, r in ipairs(results) do
      assert.matches("RuntimeError: bad record", r.err, 1, true)
    end
  end)
end)
