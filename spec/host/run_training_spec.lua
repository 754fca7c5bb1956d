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

for _, host in ipairs(process.hosts) do
  describe(host.name .. " run, training #once", function()
    local folder

    before_each(function()
      folder = process.run "mktemp -d".out:gsub("%s+$", "")
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
      local r = train("--max-restarts=1 --min-workers=1", 10)
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
