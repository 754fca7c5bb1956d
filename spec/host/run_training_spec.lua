--- `tfdist run` around training: a worker is killed, and the fit goes on from
--- its last backup, with all workers or with those that are left.
local files = require "spec.support.files"
local process = require "spec.support.process"

local quote = process.quote
local DEADLINE = 300

-- 50 examples in batches of 15: four steps an epoch, the last one smaller. The
-- kill comes in the third epoch, 2 steps after a backup.
local PROGRAM = [[
local tf = require "tfdist"
local dir, stop = arg[1], tonumber(arg[2])
local s = tf.distribute.MultiWorkerMirroredStrategy()
if s.extended.worker_index ~= s.extended.num_workers - 1
    or os.getenv "TFDIST_RESTART" ~= "0" then
  stop = nil
end
tf.random.set_seed(5)
local xs, ys = {}, {}
for i = 1, 50 do
  xs[i] = { math.sin(i), math.cos(3 * i), i % 7 / 7 }
  ys[i] = { 2 * math.sin(i) - math.cos(3 * i) + 0.5 }
end
local model = s:scope(function()
  local m = tf.keras.Sequential { tf.keras.layers.Dense(8, {
    activation = "tanh" }), tf.keras.layers.Dense(1) }
  m:compile { optimizer = tf.keras.optimizers.SGD(0.01), loss = "mse" }
  return m
end)
local function kill()
  local pid = io.open("/proc/self/stat"):read "*n"
  os.execute(("kill -KILL %d"):format(pid))
end
local losses = model:fit(xs, ys, { batch_size = 15, epochs = 4, verbose = 0,
  callbacks = { tf.keras.callbacks.BackupAndRestore { backup_dir = dir,
    save_freq = 4 }, { on_train_batch_end = function()
      stop = stop and stop - 1
      if stop == 0 then kill() end
    end } } }).history.loss
print("workers " .. s.extended.num_workers)
print(("loss %.9g"):format(losses[#losses]))
for _, v in ipairs(model.variables) do
  print(("sum %.9g"):format(tf.reduce_sum(v:read_value()):item()))
end]]

-- Seven epochs; the chief notes each with its number of workers and its loss.
-- Worker arg[2] is killed after so many batches of some starts, when all three
-- workers are there: arg[3] is "START:BATCHES ...".
local ELASTIC = [[
local tf = require "tfdist"
local dir, victim, kills = arg[1], tonumber(arg[2]), arg[3] or ""
local s = tf.distribute.MultiWorkerMirroredStrategy()
local n = s.extended.num_workers
local start = os.getenv "TFDIST_RESTART" or "0"
local stop = n == 3 and s.extended.worker_index == victim
  and tonumber((" " .. kills):match(" " .. start .. ":(%d+)"))
tf.random.set_seed(5)
local xs, ys = {}, {}
for i = 1, 50 do
  xs[i] = { math.sin(i), math.cos(3 * i), i % 7 / 7 }
  ys[i] = { 2 * math.sin(i) - math.cos(3 * i) + 0.5 }
end
local model = s:scope(function()
  local m = tf.keras.Sequential { tf.keras.layers.Dense(8, {
    activation = "tanh" }), tf.keras.layers.Dense(1) }
  m:compile { loss = "mse",
    optimizer = tf.distribute.experimental.ShardedOptimizer(
      tf.keras.optimizers.Adam(0.01)) }
  return m
end)
model:fit(xs, ys, { batch_size = 15, epochs = 7, verbose = 0,
  callbacks = { tf.keras.callbacks.BackupAndRestore { backup_dir =
    dir .. "/backup", save_freq = SAVE_FREQ }, {
    on_train_batch_end = function()
      stop = stop and stop - 1
      if stop == 0 then
        os.execute(("kill -KILL %d"):format(io.open("/proc/self/stat")
          :read "*n"))
      end
    end,
    on_epoch_end = function(_, epoch, logs)
      if s.extended.is_chief then
        local f = assert(io.open(dir .. "/curve", "a"))
        f:write(("%d %d %.9g\n"):format(epoch, n, logs.loss))
        f:close()
      end
    end } } })]]

-- The same in a loop of the script's own: five epochs of four steps, whose
-- twelve rows the workers share. Worker 1 is killed in the third.
local LOOP = [[
local tf = require "tfdist"
local dir, kills = arg[1], arg[2] == "kill"
local s = tf.distribute.MultiWorkerMirroredStrategy()
local n, me = s.extended.num_workers, s.extended.worker_index
kills = kills and me == 1 and os.getenv "TFDIST_RESTART" == "0"
local weights, epoch = s:scope(function()
  return tf.Variable({ 0.5, -0.25 }), tf.Variable(0, { dtype = "int64",
    trainable = false, aggregation = "ONLY_FIRST_REPLICA" })
end)
local manager = tf.train.CheckpointManager(tf.train.Checkpoint {
  weights = weights, epoch = epoch }, dir .. "/backup", { max_to_keep = 1 })
local handler = tf.distribute.experimental.PreemptionCheckpointHandler(
  s.cluster_resolver, manager)
local function step(b)
  local rows = {}
  for i = me + 1, 12, n do
    rows[#rows + 1] = { math.sin(12 * b + i), math.cos(3 * i + b) }
  end
  s:run(function()
    local x = tf.constant(rows)
    local tape, loss = tf.GradientTape(function()
      local y = tf.reduce_sum(x * weights, { axis = 1 })
      return tf.reduce_sum((y - 1) ^ 2)
    end)
    local g = tf.distribute.get_replica_context():all_reduce("SUM",
      tape:gradient(loss, weights))
    weights:assign_sub(0.01 * g)
  end)
end
for e = epoch:read_value():item() + 1, 5 do
  for b = 1, 4 do
    handler:run(step, { b })
    if kills and e == 3 and b == 2 then
      os.execute(("kill -KILL %d"):format(io.open("/proc/self/stat"):read "*n"))
    end
  end
  epoch:assign(tf.constant(e, "int64"))
  if s.extended.is_chief then
    local f = assert(io.open(dir .. "/curve", "a"))
    f:write(("%d %d %.9g\n"):format(e - 1, n,
      tf.reduce_sum(weights:read_value()):item()))
    f:close()
  end
  manager:save()
  handler:end_epoch()
end]]

for _, host in ipairs(process.hosts) do
  describe(host.name .. " run, training #once", function()
    local folder

    before_each(function()
      folder = files.folder()
      files.write(folder .. "/train.lua", PROGRAM)
    end)

    after_each(function()
      os.execute("rm -r " .. quote(folder))
    end)

    local function train(options, stop)
      return process.run(("XDG_STATE_HOME=%s %s run -n 2 --quiet-workers %s "
        .. "%s/train.lua %s/backup %s"):format(folder, host.path, options,
        folder, folder, stop or ""), nil, DEADLINE)
    end

    local function numbers(text)
      local list = {}
      for n in text:gmatch "%a+ (%S+)" do
        list[#list + 1] = tonumber(n)
      end
      return list
    end

    it("ends with the same bits when a killed worker comes back", function()
      local straight = train ""
      assert.equal(0, straight.code, straight.err)
      local r = train("--max-restarts=1", 10)
      assert.equal(0, r.code, r.err)
      assert.matches("worker 1 failed first %(signal 9, SIGKILL, after [%d.]+ "
        .. "s%); worker 0 [^\n]*; starting again %(1 of 1%)\n", r.err)
      assert.equal(straight.out, r.out)
    end)

    it("goes on with the worker that is left, on the same batches", function()
      local straight = train ""
      -- in the last epoch, so that it need not come back
      local r = train("--max-restarts=1 --min-workers=1", 14)
      assert.equal(0, r.code, r.err)
      assert.matches("starting again without worker 1 %(1 of 1%)", r.err)
      local all, left = numbers(straight.out), numbers(r.out)
      assert.same({ 2, 1 }, { all[1], left[1] })
      assert.equal(#all, #left)
      for i = 2, #all do -- the order of sums is all that differs
        assert.is_true(math.abs(left[i] - all[i]) <= 1e-5 * math.abs(all[i]),
          ("%.9g, not %.9g"):format(left[i], all[i]))
      end
    end)

    -- The notes of a run: workers and loss of each epoch.
    local function curve(options, arguments, save_freq, environment, program)
      os.execute(("cd %s && rm -rf backup curve"):format(quote(folder)))
      files.write(folder .. "/elastic.lua", ((program or ELASTIC):gsub(
        "SAVE_FREQ", save_freq or "'epoch'")))
      local r = process.run(("%s XDG_STATE_HOME=%s %s run %s %s/elastic.lua %s "
        .. "%s"):format(environment or "", folder, host.path, options, folder,
        folder, arguments or ""), nil, DEADLINE)
      assert.equal(0, r.code, r.err)
      local workers, losses = {}, {}
      for epoch, n, loss in files.read(folder .. "/curve"):gmatch
        "(%d+) (%d+) (%S+)" do
        assert.equal(#losses, tonumber(epoch))
        workers[#workers + 1] = tonumber(n)
        losses[#losses + 1] = tonumber(loss)
      end
      return workers, losses, r.err
    end

    local function is_near(wanted, losses)
      assert.equal(#wanted, #losses)
      for i = 1, #wanted do -- the order of sums is all that differs
        assert.is_true(math.abs(losses[i] - wanted[i]) <= 1e-5 * wanted[i],
          ("epoch %d: %.9g, not %.9g"):format(i, losses[i], wanted[i]))
      end
    end

    it("takes a killed worker in again at the next epoch", function()
      local _, alone = curve "-n 1"
      local workers, wanted = curve "-n 3"
      assert.same({ 3, 3, 3, 3, 3, 3, 3 }, workers)
      is_near(alone, wanted)
      for _, victim in ipairs { 0, 1, 2 } do
        local found, losses, err = curve("-n 3 --max-restarts=1 "
          .. "--min-workers=2", victim .. " 0:10", victim == 1 and "3" or nil)
        assert.same({ 3, 3, 2, 3, 3, 3, 3 }, found)
        is_near(wanted, losses)
        assert.matches(("starting again without worker %d (1 of 1)\n"):format(
          victim):gsub("[()]", "%%%0"), err)
        assert.matches("tfdist: epoch 3 is over and backed up", err)
        assert.matches("tfdist run: an epoch is over; starting again with "
          .. "worker " .. victim .. "\n", err)
      end
    end)

    it("takes it in again in a loop of the script's own", function()
      local _, wanted = curve("-n 3", nil, nil, nil, LOOP)
      local found, weights, err = curve("-n 3 --max-restarts=1 "
        .. "--min-workers=2", "kill", nil, nil, LOOP)
      assert.same({ 3, 3, 2, 3, 3 }, found)
      for i = 1, #wanted do
        assert.is_true(math.abs(weights[i] - wanted[i]) <= 1e-5, ("epoch %d: "
          .. "%.9g, not %.9g"):format(i, weights[i], wanted[i]))
      end
      assert.matches("tfdist: an epoch is over and saved: ending", err)
      assert.matches("tfdist run: an epoch is over; starting again with "
        .. "worker 1\n", err)
    end)

    it("waits longer for one that is killed again", function()
      local _, wanted = curve "-n 3"
      local workers, losses, err = curve("-n 3 --max-restarts=2 "
        .. "--min-workers=2", "1 '0:6 2:2'")
      assert.same({ 3, 2, 2, 2, 3, 3, 3 }, workers)
      is_near(wanted, losses)
      assert.matches("without worker 1 %(2 of 2%)", err)
    end)

    it("by ssh, takes one in when its machine answers", function()
      local _, wanted = curve "-n 1"
      -- Runs things here; the first time, the third host does not answer.
      local ssh = [[#!/bin/sh
        while [ "${1#-}" != "$1" ]; do
          case $1 in -o) shift ;; esac
          shift
        done
        host=$1
        shift
        if [ "$*" = true ] && [ $host = 127.0.0.3 ] && ! [ -e FOLDER/up ]; then
          echo up >FOLDER/up
          exit 255
        fi
        cd / && exec setsid -w sh -c "$*"]]
      files.write(folder .. "/ssh", (ssh:gsub("FOLDER", folder)))
      os.execute("chmod +x " .. folder .. "/ssh")
      local ports = require "spec.support.workers".ports(1)
      local found, losses, err = curve(("--hosts=127.0.0.1,127.0.0.2,127.0.0.3 "
        .. "--ssh --port=%d --max-restarts=1 --min-workers=2"):format(ports[1]),
        "2 0:2", nil, "PATH=" .. folder .. ":$PATH ")
      assert.same({ 2, 2, 2, 3, 3, 3, 3 }, found)
      is_near(wanted, losses)
      assert.matches("again without worker 2 %(127.0.0.3 cannot be reached%)",
        err)
    end)

    it("ends with the killed worker's status without --max-restarts",
      function()
        local r = train("", 10)
        assert.equal(137, r.code)
        assert.matches("worker 1 failed first %(signal 9, SIGKILL, after "
          .. "[%d.]+ s%); worker 0 [^\n]*%.\n", r.err)
      end)

    it("runs the example as it says", function()
      local r = process.run(("XDG_STATE_HOME=%s %s run -n 2 examples/"
        .. "multi_worker.lua --examples 8000 --epochs 2 --backup %s/backup")
        :format(folder, host.path, folder), nil, DEADLINE)
      assert.equal(0, r.code, r.err)
      local list = {}
      for line in r.out:gmatch "[^\n]+" do
        list[#list + 1] = line
      end
      table.sort(list)
      assert.same({ "[worker 0] I am worker 0 of 2 workers",
        "[worker 0] trained on 2 replicas, accuracy above a half: true",
        "[worker 1] I am worker 1 of 2 workers" }, list)
      -- the chief's progress, as it is
      assert.matches("\nEpoch 1/2\n", r.err)
      assert.is_nil(r.err:find("[worker", 1, true))
    end)
  end)
end
