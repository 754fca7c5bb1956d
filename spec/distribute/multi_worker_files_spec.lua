--- What workers save and restore together: the chief's files stay, a fit that
--- was interrupted ends with the bits of one that was not.
local files = require "spec.support.files"
local process = require "spec.support.process"
local workers = require "spec.support.workers"

local HEAD = [[
local tf = require "tfdist"
local s = tf.distribute.MultiWorkerMirroredStrategy()
local w = s.extended.worker_index
local dir = arg[1]
]]

local function names_in(path)
  local r = process.run(("cd %s && ls -A"):format(process.quote(path)))
  return (r.out:gsub("\n", " "):gsub(" $", ""))
end

local function words(...)
  local list = { ... }
  return function()
    return table.concat(list, " ")
  end
end

describe("files of several workers #once", function()
  it("all save, the chief's checkpoints stay and all restore them", function()
    local program = HEAD .. [[
      local v, total = s:scope(function()
        return tf.Variable { 1.0, 2.0 }, tf.Variable(0.0, {
          synchronization = "ON_READ", aggregation = "SUM" })
      end)
      local checkpoint = tf.train.Checkpoint { v = v, total = total }
      local manager = tf.train.CheckpointManager(checkpoint, dir,
        { max_to_keep = 2 })
      print((tostring(manager:restore_or_initialize()):gsub("^.*/", "")))
      print(("%g %g"):format(v:read_value()[1]:item(),
        total:read_value():item()))
      for _ = 1, 3 do
        v:assign_add { 1.0, 1.0 }
        s:run(function() total:assign_add(1.0) end)
        -- whoever comes back from save finds the file
        local file = assert(io.open(manager:save() .. ".safetensors"))
        file:close()
      end
    ]]
    for _, devices in ipairs { 1, 2 } do
      files.in_folder(function(path)
        local given = { program = program, devices = devices,
          arguments = words(path) }
        assert.same({ "nil\n2 0\n", "nil\n2 0\n" }, workers.outputs(given))
        assert.equal("checkpoint ckpt-2.safetensors ckpt-3.safetensors",
          names_in(path))
        local line = ("ckpt-3\n5 %d\n"):format(3 * 2 * devices)
        assert.same({ line, line }, workers.outputs(given))
        -- one worker, too, whatever the number of replicas was
        local script = process.file(program, ".lua")
        local r = process.run(("env -u TF_CONFIG %s %s %s"):format(
          process.hosts[1].path, script, path))
        os.remove(script)
        assert.equal(("ckpt-6\n8 %d\n"):format(6 * 2 * devices), r.out, r.err)
      end)
    end
  end)

  it("tells all when the chief cannot save", function()
    files.in_folder(function(path)
      local rs = workers.run { arguments = words(path), program = HEAD .. [[
        local v = s:scope(function() return tf.Variable(1.0) end)
        io.open(dir .. "/file", "w"):close()
        local ok, e = pcall(tf.train.Checkpoint { v = v }.write,
          tf.train.Checkpoint { v = v }, dir .. "/file/below")
        print(ok, e.kind)
        print(s:reduce("SUM", 1.0):item() == 2) -- and goes on
      ]] }
      assert.same({ 0, 0 }, { rs[1].code, rs[2].code }, rs[2].err)
      assert.equal("false\tAborted\ntrue\n", rs[2].out)
      assert.truthy(rs[1].out:find "^false\t%w+\ntrue\n$", rs[1].out)
      assert.are_not.equal(rs[1].out, rs[2].out)
    end)
  end)

  it("an interrupted fit goes on, and ends with the same bits", function()
    local program = HEAD .. [[
      local stop = tonumber(arg[2])
      tf.random.set_seed(5)
      local xs, ys = {}, {}
      for i = 1, 50 do
        xs[i] = { math.sin(i), math.cos(3 * i), i % 7 / 7 }
        ys[i] = { 2 * math.sin(i) - math.cos(3 * i) + 0.5 }
      end
      local model = s:scope(function()
        local K = tf.keras.layers
        local m = tf.keras.Sequential { K.Dense(8, { activation = "tanh" }),
          K.BatchNormalization(), K.Dropout(0.3), K.Dense(1) }
        m:compile { optimizer = tf.keras.optimizers.Adam(0.01), loss = "mse",
          metrics = { "mae" } }
        return m
      end)
      local h = model:fit(xs, ys, { batch_size = 15, epochs = 4, verbose = 0,
        callbacks = { tf.keras.callbacks.BackupAndRestore { backup_dir = dir,
          save_freq = 3 }, { on_train_batch_end = function()
            stop = stop and stop - 1
            if stop == 0 and w == 1 then
              error "pulled the plug"
            end
          end } } }).history
      print(#h.loss)
      for i = #h.loss - 1, #h.loss do
        print(("%.9g %.9g"):format(h.loss[i], h.mae[i]))
      end
      for _, v in ipairs(model.variables) do
        print(("%.9g"):format(tf.reduce_sum(v:read_value()):item()))
      end
    ]]
    for i, host in ipairs(process.hosts) do
      files.in_folder(function(path)
        local given = { program = program, devices = i, host = host.path,
          arguments = words(path .. "/b") }
        local straight = workers.outputs(given)
        assert.equal("", names_in(path))
        assert.equal(straight[1], straight[2])
        given.arguments = words(path .. "/b", "9") -- in the third epoch
        local rs = workers.run(given)
        assert.same({ 75, 1 }, { rs[1].code, rs[2].code })
        assert.equal("b", names_in(path))
        given.arguments = words(path .. "/b")
        local resumed = workers.outputs(given)
        assert.equal(resumed[1], resumed[2])
        local epochs = tonumber(resumed[1]:match "^%d+")
        assert.is_true(epochs < 4)
        assert.equal((straight[1]:gsub("^%d+\n", "")),
          (resumed[1]:gsub("^%d+\n", "")))
        assert.equal("", names_in(path))
      end)
    end
  end)

  -- Worker 1 is asked to end in its third step; then all start again.
  local ASKED = [[
    local function ask()
      if w == 1 then
        local f = io.open "/proc/self/stat"
        os.execute("kill -TERM " .. f:read "*n")
        f:close()
      end
    end
  ]]

  it("who is asked to end has all save after one step, and end", function()
    local program = HEAD .. ASKED .. [[
      local E = tf.distribute.experimental
      local v, handler = s:scope(function()
        local v = tf.Variable(0.0)
        return v, E.PreemptionCheckpointHandler(s.cluster_resolver,
          tf.train.Checkpoint { v = v }, dir, load(arg[2] or "")())
      end)
      local from = handler.total_run_calls
      while handler.total_run_calls < 8 do
        local got = handler:run(function(x, more)
          s:run(function() v:assign_add(x) end)
          if from == 0 and handler.total_run_calls == 2 then
            ask()
          end
          return x + more.y
        end, { 1.0 }, { y = 1 })
        assert(got == 2)
      end
      print(("%d %g"):format(from, v:read_value():item()))
    ]]
    for i, host in ipairs(process.hosts) do
      files.in_folder(function(path)
        local given = { program = program, devices = i, host = host.path,
          arguments = words(path) }
        local rs = workers.run(given)
        assert.same({ 42, 42 }, { rs[1].code, rs[2].code },
          rs[1].err .. rs[2].err)
        assert.truthy(rs[1].err:find("asked to end: saved .*/ckpt%-1 after 3 "),
          rs[1].err)
        assert.same({ "3 8\n", "3 8\n" }, workers.outputs(given))
      end)
    end
    -- functions of one's own; time to go on
    files.in_folder(function(path)
      local rs = workers.run { program = program, arguments = words(path,
        process.quote [[return { grace_period = 0.001, exit_fn = function()
          print "over"
          os.exit(7, true)
        end, termination_watcher_fn = function()
          return false
        end }]]) }
      for _, r in ipairs(rs) do
        assert.equal(7, r.code, r.err)
        assert.equal("over\n", r.out)
      end
      assert.truthy(names_in(path):find "ckpt%-2")
    end)
  end)

  it("fit backs up before it ends", function()
    local program = HEAD .. ASKED .. [[
      local model = s:scope(function()
        local m = tf.keras.Sequential { tf.keras.layers.Dense(1, {
          kernel_initializer = "ones" }) }
        m:compile { optimizer = "sgd", loss = "mse" }
        return m
      end)
      local count = 0
      local h = model:fit({ { 1 }, { 2 }, { 3 }, { 4 } }, { { 1 }, { 2 }, { 3 },
        { 5 } }, { batch_size = 2, epochs = 3, verbose = 0, shuffle = false,
        callbacks = { { on_train_batch_end = function()
          count = count + 1
          if count == 3 and arg[2] == "ask" then
            ask()
          end
        end },
        tf.keras.callbacks.BackupAndRestore { backup_dir = dir .. "/b",
          save_before_preemption = true } } }).history
      print(count, ("%.9g"):format(model.variables[1]:read_value():totable()[1]
        [1]))
    ]]
    files.in_folder(function(path)
      local straight = workers.outputs { program = program,
        arguments = words(path) }
      local rs = workers.run { program = program,
        arguments = words(path, "ask") }
      assert.same({ 42, 42 }, { rs[1].code, rs[2].code }, rs[1].err)
      local rest = workers.outputs { program = program,
        arguments = words(path) }
      assert.equal(straight[1]:match "^6(.*)", rest[2]:match "^3(.*)")
    end)
  end)

  it("only the chief writes logs", function()
    files.in_folder(function(path)
      local r = workers.run { arguments = words(path), program = HEAD .. [[
        local model = s:scope(function()
          local m = tf.keras.Sequential { tf.keras.layers.Dense(1) }
          m:compile { optimizer = "sgd", loss = "mse" }
          return m
        end)
        model:fit({ { 1 }, { 2 } }, { { 1 }, { 2 } }, { epochs = 2, callbacks = {
          tf.keras.callbacks.CSVLogger(dir .. "/log" .. w .. ".csv"),
          tf.keras.callbacks.TensorBoard { log_dir = dir .. "/tb" .. w },
          tf.keras.callbacks.ModelCheckpoint(dir .. "/w-{epoch}") } })
      ]] }
      assert.same({ 0, 0 }, { r[1].code, r[2].code }, r[2].err)
      assert.equal("checkpoint log0.csv tb0 w-1.safetensors w-2.safetensors",
        names_in(path))
      assert.truthy(r[1].err:find("Epoch 2/2", 1, true))
      assert.equal("", r[2].err)
    end)
  end)

  it("only the chief writes histograms, of what all read together", function()
    files.in_folder(function(path)
      local outs = workers.outputs { arguments = words(path), program = HEAD
        .. [[
        local model = s:scope(function()
          local K = tf.keras.layers
          local m = tf.keras.Sequential { K.BatchNormalization(), K.Dense(1) }
          m:compile { optimizer = "sgd", loss = "mse" }
          return m
        end)
        model:fit({ { 1 }, { 3 } }, { { 1 }, { 2 } }, { verbose = 0,
          epochs = 2, batch_size = 2, callbacks = { tf.keras.callbacks
          .TensorBoard { log_dir = dir .. "/" .. w, histogram_freq = 1 } } })
        print(#model.variables)
      ]] }
      assert.same({ "6\n", "6\n" }, outs)
      assert.equal("0", names_in(path))
      local r = process.run("cat " .. path .. "/0/train/*")
      local _, n = r.out:gsub("batch_normalization/moving_mean", "")
      assert.equal(2, n) -- one in each epoch
    end)
  end)
end)
