--- Chaos: random workers of a run are struck at random steps, between two of
--- them or in the middle of a sum or a save, also when it was started again: by
--- the launcher, or by hand where it starts nothing again. Such a run ends with
--- the status of the first failure, and what its backup holds is whole. Every
--- run ends well at last; the losses of all its steps are those of an
--- undisturbed one, bit by bit, also those of steps done again.
--- The seed is printed; TFDIST_CHAOS_SEED repeats it, TFDIST_CHAOS_RUNS has more.
local files = require "spec.support.files"
local process = require "spec.support.process"

local quote = process.quote
local STEPS, WORKERS, STRIKES = 16, 3, 2
-- Seconds for each start: a worker that is stopped is missed after 2, has 5 to
-- say why it ends and 5 to end.
local DEADLINE = 30
local LONG = os.getenv "TFD_LONG"
local RUNS = tonumber(os.getenv "TFDIST_CHAOS_RUNS") or LONG and 200 or 4
local SEED = tonumber(os.getenv "TFDIST_CHAOS_SEED")
  or require "spec.support.seed" % 100000

-- What strikes, as Lua text in the struck worker, and the status of the run then
-- (chief: when the chief is struck): who is stopped or cut off is a lost peer
-- of the others. Backups are the chief's. lasting: the launcher never goes
-- on; early: it comes before the others are looked for; over: the transport.
local FAULTS = {
  { "SIGKILL", "signal 'KILL'", code = 137 },
  { "SIGSEGV", "signal 'SEGV'", code = 139 },
  { "SIGABRT", "signal 'ABRT'", code = 134 },
  { "SIGSTOP", "signal 'STOP'", code = 75, chief = 76 },
  { "SIGTERM", "signal 'TERM'", code = 143 },
  { "SIGTERM, saved", "signal 'TERM'", code = 42, saves = true },
  { "SIGINT", "signal 'INT'", code = 130, lasting = true },
  { "a Lua error", "error 'struck'", code = 1 },
  { "an extra sum", "s:reduce('SUM', tf.ones { 3 })", code = 77,
    lasting = true },
  { "SIGKILL in a sum", "fault 'allreduce.chunk=kill@2'", code = 137 },
  { "SIGSTOP in a sum", "fault 'allreduce.chunk=stop@1'", code = 75,
    chief = 76 },
  -- Each end may be the first to find that it has lost the other.
  { "a reset", "fault 'net.send=econnreset@2'", code = 75, either = 76,
    over = "tcp" },
  { "SIGKILL in a save", "in_save 'kill@1'", worker = 0, code = 137 },
  { "SIGSTOP in a save", "in_save 'stop@1'", worker = 0, code = 76 },
  { "a full disk", "fault 'ckpt.write=enospc'", worker = 0, code = 1 },
  { "a backup cut short", "cut()", worker = 0, code = 137, cuts = true },
  { "a late start", "fault 'meet.begin=sleep:1500@1'", code = 0, early = true },
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
local dir = arg[1]
local me = tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id
local s
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
local EARLY = { ]] .. (function()
  local list = {}
  for i, fault in ipairs(FAULTS) do
    list[i] = tostring(fault.early or false)
  end
  return table.concat(list, ", ")
end)() .. [[ }
if EARLY[which] then
  FAULTS[which]()
  which = nil
end
s = tf.distribute.MultiWorkerMirroredStrategy()
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
    save_freq = 2, save_before_preemption = os.getenv "SAVES" ~= nil },
  { on_train_batch_end = function()
    steps = steps + 1
    if steps == struck and which then FAULTS[which]() end
  end } } })
for _, v in ipairs(model.variables) do
  print(("sum %.17g"):format(tf.reduce_sum(v:read_value()):item()))
end]]

-- Those that are stopped are missed after two seconds; elsewhere a slow machine
-- has the usual ones.
local function run(host, transport, dir, starts, strikes, restarts)
  local list, settings = {}, "TFDIST_TRANSPORT=" .. transport
  for i, strike in ipairs(strikes) do
    local fault = FAULTS[strike.fault]
    local comes = i > starts and i <= starts + 1 + restarts
    list[i] = ("%d:%d:%d:%d"):format(i - 1, strike.worker, strike.step,
      strike.fault)
    if comes and fault[1]:find "STOP" then
      settings = settings .. " TFDIST_HEARTBEAT_TIMEOUT=2"
    end
    if comes and fault.saves then
      settings = settings .. " SAVES=1"
    end
  end
  return process.run(("%s OMP_NUM_THREADS=1 %s run -n %d "
    .. "--max-restarts %d --log-dir=%s/logs %s %s %d %s"):format(settings,
    host.path, WORKERS, restarts, dir, quote(dir .. "/script.lua"), dir, starts,
    quote(table.concat(list, " "))), nil, DEADLINE * (restarts + 1))
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

-- What the first `n` strikes leave can be gone on from: all of it is whole,
-- unless that is what was struck. Who did a third step has a second one's backup.
local function check_backup(host, dir, strikes, n)
  local cut, longest = false, 0
  for i = 1, n do
    cut = cut or FAULTS[strikes[i].fault].cuts
    longest = math.max(longest, strikes[i].step)
  end
  if longest < 3 or cut then return end
  local r = process.run(("%s ckpt verify %s/backup/chief"):format(host.path,
    dir), nil, DEADLINE)
  assert.equal(0, r.code, r.err)
  assert.matches("%d tensor", r.out)
end

-- What all workers print and note, when these strikes come. by_hand: the
-- launcher starts nothing again.
local function outcome(host, transport, strikes, title, by_hand)
  local dir = os.tmpname()
  os.remove(dir)
  os.execute("mkdir -p " .. quote(dir))
  files.write(dir .. "/script.lua", PROGRAM)
  local starts = 0
  local r, last
  repeat
    r = run(host, transport, dir, starts, strikes,
      by_hand and 0 or #strikes - starts)
    -- The first one that the launcher does not go on after.
    last = false
    for i = #strikes, starts + 1, -1 do
      local fault = FAULTS[strikes[i].fault]
      if fault.code ~= 0 and (by_hand or fault.lasting) then last = i end
    end
    local fault = last and FAULTS[strikes[last].fault]
    local code = not fault and 0
      or strikes[last].worker == 0 and fault.chief or fault.code
    assert.equal(fault and r.code == fault.either and r.code or code, r.code,
      title .. "\n" .. r.err)
    if last then
      local _, again = r.err:gsub("; starting again", "")
      assert.equal(last - starts - 1, again, r.err)
      check_backup(host, dir, strikes, last)
      starts = last
    end
  until not last
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
    -- All of them once where there is time for it.
    local each = LONG and n <= #FAULTS
    local by_hand = draw(2) == 0 or each
    local strikes, names = {}, {}
    for start = 0, each and 0 or draw(STRIKES) do
      local fault = draw(#FAULTS) + 1
      fault = each and n or fault
      local worker = draw(WORKERS)
      -- Backups have brought the run at least so far.
      strikes[start + 1] = { fault = fault,
        worker = FAULTS[fault].worker or worker,
        step = draw(math.floor(STEPS / (start + 2))) + 1 }
      names[start + 1] = FAULTS[fault][1]
      transport = FAULTS[fault].over or transport
      if FAULTS[fault].code == 0 then break end -- there is no other start
    end
    local title = ("%s%s (%d of seed %d, %s, %s)"):format(
      table.concat(names, ", "), by_hand and " by hand" or "", n, SEED,
      host.name, transport)
    it("end as others: " .. title, function()
      undisturbed[host] = undisturbed[host] or outcome(host, transport, {},
        title)
      local wanted, got = undisturbed[host], outcome(host, transport, strikes,
        title, by_hand)
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
