--- Chaos: random workers of a run are struck at random steps, between two of
--- them or in the middle of a sum or a save, also when it was started again.
--- Every run ends by itself, with status 0 (130 where one was interrupted, and
--- then with 0 when it is started once more); the losses of all its steps are
--- those of an undisturbed one, bit by bit, also those of steps done again.
--- The seed is printed; TFDIST_CHAOS_SEED repeats it, TFDIST_CHAOS_RUNS has more.
local files = require "spec.support.files"
local process = require "spec.support.process"

local quote = process.quote
local STEPS, WORKERS, STRIKES, DEADLINE = 16, 3, 2, 120
local RUNS = tonumber(os.getenv "TFDIST_CHAOS_RUNS")
  or os.getenv "TFD_LONG" and 200 or 4
local SEED = tonumber(os.getenv "TFDIST_CHAOS_SEED")
  or require "spec.support.seed" % 100000

-- What strikes, as Lua text in the struck worker. Backups are the chief's.
local FAULTS = {
  { "SIGKILL", "signal 'KILL'" }, { "SIGSEGV", "signal 'SEGV'" },
  { "SIGABRT", "signal 'ABRT'" }, { "SIGSTOP", "signal 'STOP'" },
  { "SIGTERM", "signal 'TERM'" }, { "SIGINT", "signal 'INT'", code = 130 },
  { "a Lua error", "error 'struck'" },
  { "SIGKILL in a sum", "fault 'allreduce.chunk=kill@2'" },
  { "SIGSTOP in a sum", "fault 'allreduce.chunk=stop@1'" },
  { "SIGKILL in a save", "in_save 'kill@1'", worker = 0 },
  { "SIGSTOP in a save", "in_save 'stop@1'", worker = 0 },
  { "a full disk", "fault 'ckpt.write=enospc'", worker = 0 },
  { "a backup cut short", "cut()", worker = 0 },
}

-- arg: a folder, the number of starts before, and "START:WORKER:STEP:FAULT ..."
local PROGRAM = [[
local tf = require "tfdist"
local fault = require "tfdist.core.raw".test_failpoints
local function signal(name)
  local pid = io.open("/proc/self/stat"):read "*n"
  io.popen(("kill -%s %d"):format(name, pid)):close()
end
local PLACES = { "create", "write", "after_data", "sync", "rename",
  "after_rename", "sync_folder" }
local s = tf.distribute.MultiWorkerMirroredStrategy()
local dir, me = arg[1], s.extended.worker_index
local start = arg[2] + (os.getenv "TFDIST_RESTART" or 0)
local struck, which = (" " .. (arg[3] or "")):match((" %d:%d:(%%d+):(%%d+)")
  :format(start, me))
struck, which = tonumber(struck), tonumber(which)
local function in_save(action)
  fault(("ckpt.%s=%s"):format(PLACES[struck % #PLACES + 1], action))
end
local function cut()
  for path in io.popen("ls " .. dir .. "/backup/chief/*.safetensors"):lines() do
    local f = io.open(path, "rb")
    local text = f:read "*a"
    f:close()
    f = io.open(path, "wb")
    f:write(text:sub(1, math.floor(#text / 2)))
    f:close()
  end
  signal "KILL"
end
local FAULTS = { ]] .. (function()
  local list = {}
  for i, fault in ipairs(FAULTS) do
    list[i] = "function() " .. fault[2] .. " end"
  end
  return table.concat(list, ", ")
end)() .. [[ }
tf.random.set_seed(5)
local xs, ys = {}, {}
for i = 1, 48 do
  xs[i] = { math.sin(i), math.cos(3 * i) }
  ys[i] = { 2 * math.sin(i) - math.cos(3 * i) }
end
local model = s:scope(function()
  local m = tf.keras.Sequential { tf.keras.layers.Dense(4, {
    activation = "tanh" }), tf.keras.layers.Dense(1) }
  m:compile { optimizer = tf.keras.optimizers.SGD(0.01), loss = "mse" }
  return m
end)
local now, steps = nil, 0
-- A step is noted before it is saved.
model:fit(xs, ys, { batch_size = 12, epochs = 4, verbose = 0, callbacks = {
  { on_epoch_begin = function(_, epoch) now = epoch end,
    on_train_batch_end = function(_, batch, logs)
      local f = io.open(dir .. "/history-" .. me, "a")
      f:write(("%d:%d %.17g\n"):format(now, batch, logs.loss))
      f:close()
    end },
  tf.keras.callbacks.BackupAndRestore { backup_dir = dir .. "/backup",
    save_freq = 2 },
  { on_train_batch_end = function()
    steps = steps + 1
    if steps == struck then FAULTS[which]() end
  end } } })
for _, v in ipairs(model.variables) do
  print(("sum %.17g"):format(tf.reduce_sum(v:read_value()):item()))
end]]

-- Those that are stopped are missed after two seconds; elsewhere a slow machine
-- has the usual ones.
local function run(host, transport, dir, starts, strikes, restarts)
  local list, patience = {}, ""
  for i, strike in ipairs(strikes) do
    local name = FAULTS[strike.fault][1]
    list[i] = ("%d:%d:%d:%d"):format(i - 1, strike.worker, strike.step,
      strike.fault)
    if name:find "STOP" then patience = "TFDIST_HEARTBEAT_TIMEOUT=2" end
  end
  return process.run(("TFDIST_TRANSPORT=%s OMP_NUM_THREADS=1 %s %s run -n %d "
    .. "--max-restarts %d --log-dir=%s/logs %s %s %d %s"):format(transport,
    patience, host.path, WORKERS, restarts, dir, quote(dir .. "/script.lua"),
    dir, starts, quote(table.concat(list, " "))), nil, DEADLINE)
end

-- What the workers printed, in order of the text: they come in any order.
local function sorted(text)
  local list = {}
  for line in text:gmatch "%l+ [-%d.e]+\n" do
    list[#list + 1] = line
  end
  table.sort(list)
  return table.concat(list)
end

-- Every loss that a worker noted, by step.
local function history(dir, worker)
  local losses = {}
  for step, loss in files.read(dir .. "/history-" .. worker)
      :gmatch "(%S+) (%S+)\n" do
    losses[step] = losses[step] or loss
    assert(losses[step] == loss, step .. " was " .. losses[step] .. ", then "
      .. loss)
  end
  return losses
end

-- What all workers print and note, when these strikes come.
local function outcome(host, transport, strikes, title)
  local dir = os.tmpname()
  os.remove(dir)
  os.execute("mkdir -p " .. quote(dir))
  files.write(dir .. "/script.lua", PROGRAM)
  local starts = 0
  local r, last
  repeat
    r = run(host, transport, dir, starts, strikes, #strikes - starts)
    last = starts
    -- Who interrupted it starts it again.
    for i = #strikes, last + 1, -1 do
      if r.code == FAULTS[strikes[i].fault].code then starts = i end
    end
  until starts == last
  assert.equal(0, r.code, title .. "\n" .. r.err)
  local got = { out = sorted(r.out) }
  for worker = 0, WORKERS - 1 do
    got[worker] = history(dir, worker)
  end
  os.execute("rm -rf " .. quote(dir))
  return got
end

describe("runs that are struck #once", function()
  local undisturbed = {}
  local state = SEED

  local function draw(n)
    state = state * 16807 % 2147483647
    return math.floor(state / 65536) % n
  end

  for n = 1, RUNS do
    local host = process.hosts[n % #process.hosts + 1]
    local transport = math.floor(n / 2) % 2 == 0 and "shm" or "tcp"
    local strikes, names = {}, {}
    for start = 0, draw(STRIKES) do
      local fault = draw(#FAULTS) + 1
      local worker = draw(WORKERS)
      -- Backups have brought the run at least so far.
      strikes[start + 1] = { fault = fault,
        worker = FAULTS[fault].worker or worker,
        step = draw(math.floor(STEPS / (start + 2))) + 1 }
      names[start + 1] = FAULTS[fault][1]
    end
    local title = ("%s (%d of seed %d, %s, %s)"):format(
      table.concat(names, ", "), n, SEED, host.name, transport)
    it("end as others: " .. title, function()
      undisturbed[host] = undisturbed[host] or outcome(host, transport, {},
        title)
      local wanted, got = undisturbed[host], outcome(host, transport, strikes,
        title)
      assert.equal(wanted.out, got.out)
      -- The chief notes all that is in a backup; others may end before.
      assert.is_truthy(wanted[0]["3:3"])
      assert.same(wanted[0], got[0])
      for worker = 1, WORKERS - 1 do
        for step, loss in pairs(got[worker]) do
          assert.equal(wanted[worker][step], loss)
        end
      end
    end)
  end
end)
