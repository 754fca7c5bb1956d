--- Gradients that go to other workers in buckets while the backward pass goes
--- on: the bits and the order of collectives of steps that wait for all first.
local files = require "spec.support.files"
local records = require "tfdist.host.records"
local workers = require "spec.support.workers"

-- A bucket has about one of the layers.
local HEAD = [[
local tf = require "tfdist"
local s = tf.distribute.MultiWorkerMirroredStrategy {
  communication_options = { bytes_per_pack = 600 } }
local w = s.extended.worker_index
local K, L = tf.keras, tf.keras.layers
]]

-- Prints weights and slots after eager steps and after traced ones: once where
-- they are the same.
local FIT = HEAD .. [[
local function fit(eagerly, layers, x)
  tf.random.set_seed(3)
  local y = tf.random.uniform({ 22 }, { maxval = 3, dtype = "int32" })
  local model = s:scope(function()
    local m = K.Sequential(layers())
    m:compile { optimizer = K.optimizers.Adam(0.01), run_eagerly = eagerly,
      loss = K.losses.SparseCategoricalCrossentropy { from_logits = true } }
    return m
  end)
  model:fit(x, y, { batch_size = 4, epochs = 2, verbose = 0 })
  local list = {}
  for _, of in ipairs { model.variables, model.optimizer.variables } do
    for _, v in ipairs(of) do
      v = tf.cast(v:read_value(), "float32"):reshape { -1 }
      for _, value in ipairs(v:totable()) do
        list[#list + 1] = ("%.17g"):format(value)
      end
    end
  end
  return table.concat(list, " ")
end

local function both(layers, x)
  local wanted = fit(true, layers, x)
  print(fit(false, layers, x) == wanted, wanted)
end

tf.random.set_seed(7)
both(function()
  return { L.Dense(20, { activation = "relu" }), L.BatchNormalization(),
    L.Dense(20, { activation = "tanh" }), L.Dense(3) }
end, tf.random.normal { 22, 20 })
both(function()
  return { L.Embedding(90, 4), L.Flatten(), L.Dense(20), L.Dense(3) }
end, tf.random.uniform({ 22, 5 }, { maxval = 90, dtype = "int32" }))
]]

-- What all workers print, which is the same.
local function print_of(given)
  local outs = workers.outputs(given)
  for i = 2, #outs do
    assert.equal(outs[1], outs[i])
  end
  local count = 0
  for line in outs[1]:gmatch "[^\n]+" do
    assert.truthy(line:find "^true\t", line:sub(1, 80))
    count = count + 1
  end
  assert.equal(2, count)
  return outs[1]
end

describe("sums that overlap the backward pass #once", function()
  local function long(name, fn)
    if os.getenv "TFD_LONG" then it(name, fn) end
  end

  for _, transport in ipairs { "tcp", "shm" } do
    local most = transport == "shm" and not os.getenv "TFD_LONG" and 1 or 2
    for devices = 1, most do
      it(("leave the bits as they are, %d devices, %s"):format(devices,
        transport), function()
        local function run(each)
          return print_of { program = FIT, devices = devices, each = each,
            environment = "TFDIST_TRANSPORT=" .. transport }
        end
        local got = run(function() return "TFDIST_OVERLAP=1" end)
        -- Each process decides for itself: the collectives are the same.
        if os.getenv "TFD_LONG" then
          assert.equal(got, run(function() return "TFDIST_OVERLAP=0" end))
        end
        assert.equal(got, run(function(i)
          return "TFDIST_OVERLAP=" .. i
        end))
      end)
    end
  end

  -- The gradient of the first layer cannot be computed in the worker BAD, or in
  -- both: what the others are in has begun by then, or nothing has.
  local FAILING = HEAD .. [[
    local fails = tf.custom_gradient(function(x, row)
      return x * 1, function(dy)
        return tf.zeros_like(dy) + tf.gather(dy, tf.cast(row, "int32")),
          tf.zeros_like(row)
      end
    end)
    local first, second, optimizer = s:scope(function()
      local function variable() return tf.Variable(tf.ones { 20, 20 }) end
      return variable(), variable(), K.optimizers.SGD(0.1)
    end)
    local step = tf.function_(function(x, row)
      s:run(function(x, row)
        local tape, loss = tf.GradientTape(function()
          return tf.reduce_sum(tf.matmul(fails(tf.matmul(x, first), row),
            second))
        end)
        local grads = tape:gradient(loss, { first, second })
        optimizer:apply_gradients { { grads[1], first },
          { grads[2], second } }
      end, { x, row })
    end)
    local bad = os.getenv "BAD"
    local ok, e = pcall(step, tf.ones { 4, 20 },
      (bad == "both" or bad == tostring(w)) and 99.0 or 0.0)
    print(ok, tostring(e))
  ]]

  it("begin before the backward pass has come to its end", function()
    local function sums_of(overlap)
      local sums = 0
      files.in_folder(function(folder)
        for _, r in ipairs(workers.run { program = FAILING,
          environment = ("BAD=both TFDIST_OVERLAP=%d TFDIST_FLIGHT=%s"):format(
          overlap, folder) }) do
          assert.truthy(r.out:find "^false", r.out .. r.err)
        end
        for i = 0, 1 do
          local record = records.read(("%s/process-%d.flight"):format(folder,
            i))
          for _, group in pairs(record.groups) do
            for _, number in ipairs(records.numbers_of(group)) do
              if group[number].words:find "^all_reduce sum of float32%[400%]" then
                sums = sums + 1
              end
            end
          end
        end
      end)
      return sums
    end
    assert.equal(0, sums_of(0))
    -- Who fails first tells the others, who may not have come to it yet.
    assert.truthy(sums_of(1) >= 1)
  end)

  it("that one cannot go on with end for all, with its error", function()
    for bad = 0, 1 do
      for i, r in ipairs(workers.run { program = FAILING,
        environment = "TFDIST_OVERLAP=1 BAD=" .. bad }) do
        assert.matches(("^false\t.*%s[^\n]*%%.lua:%%d+: InvalidArgument: gather: "
          .. "indices = 99 "):format(i == bad + 1 and ""
          or "stopped because of process " .. bad .. ": "), r.out)
      end
    end
  end)

  long("say who keeps the first of several", function()
    files.in_folder(function(folder)
      local rs = workers.run { program = HEAD
        .. ("local FOLDER = %q\n"):format(folder) .. workers.TALK .. [[
        local a, b, optimizer = s:scope(function()
          return tf.Variable(tf.ones { 200 }), tf.Variable(tf.ones { 200 }),
            K.optimizers.SGD(0.1)
        end)
        local function step()
          s:run(function()
            optimizer:apply_gradients { { a * 1, a }, { b * 1, b } }
          end)
        end
        step()
        if w == 0 then
          print(pcall(step))
          put "over"
        end
        take "over"
      ]], environment = "TFDIST_STALL_WARN=0.2 TFDIST_OP_TIMEOUT=15" }
      assert.truthy(rs[1].out:find "^false.*deadline", rs[1].out)
      assert.truthy(rs[1].err:find("process 0 has waited for %d+ s in collective "
        .. "%d+, all_reduce at [^\n]*%.lua:%d+: process 1 was last heard of"),
        rs[1].err)
    end)
  end)

  it("say what TFDIST_OVERLAP may be", function()
    for _, r in ipairs(workers.run { program = HEAD,
      environment = "TFDIST_OVERLAP=often" }) do
      assert.equal(2, r.code)
      assert.truthy(r.err:find('TFDIST_OVERLAP is "often"; expected 0 or 1', 1,
        true), r.err)
    end
  end)
end)
