--- Chaos: random workers of a run are struck at random steps, also when it was
--- started again.
--- Every run ends by itself, with status 0 and the losses of an undisturbed one.
--- The seed is printed; TFDIST_CHAOS_SEED runs it again, TFDIST_CHAOS_RUNS more.
local files = require "spec.support.files"
local process = require "spec.support.process"

local quote = process.quote
local STEPS, WORKERS, STRIKES, DEADLINE = 16, 3, 2, 120
local RUNS = tonumber(os.getenv "TFDIST_CHAOS_RUNS")
  or os.getenv "TFD_LONG" and 200 or 4
local SEED = tonumber(os.getenv "TFDIST_CHAOS_SEED")
  or require "spec.support.seed" % 100000

-- What strikes, as Lua text in the struck worker.
local FAULTS = {
  { "SIGKILL", "signal 'KILL'" }, { "SIGSEGV", "signal 'SEGV'" },
  { "SIGABRT", "signal 'ABRT'" }, { "SIGSTOP", "signal 'STOP'" },
  { "SIGTERM", "signal 'TERM'" }, { "a Lua error", "error 'struck'" },
}

-- arg[2] is "START:WORKER:STEP:FAULT ..."
local PROGRAM = [[
local tf = require "tfdist"
local function signal(name)
  local pid = io.open("/proc/self/stat"):read "*n"
  os.execute(("kill -%s %d"):format(name, pid))
end
local FAULTS = { ]] .. (function()
  local list = {}
  for i, fault in ipairs(FAULTS) do
    list[i] = "function() " .. fault[2] .. " end"
  end
  return table.concat(list, ", ")
end)() .. [[ }
local s = tf.distribute.MultiWorkerMirroredStrategy()
local start, me = os.getenv "TFDIST_RESTART" or "0", s.extended.worker_index
local step, fault = (" " .. (arg[2] or "")):match((" %s:%d:(%%d+):(%%d+)")
  :format(start, me))
step, fault = tonumber(step), tonumber(fault)
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
local losses = model:fit(xs, ys, { batch_size = 12, epochs = 4, verbose = 0,
  callbacks = { tf.keras.callbacks.BackupAndRestore { backup_dir = arg[1],
    save_freq = 2 }, { on_train_batch_end = function()
      step = step and step - 1
      if step == 0 then FAULTS[fault]() end
    end } } }).history.loss
print(("loss %.9g"):format(losses[#losses]))
for _, v in ipairs(model.variables) do
  print(("sum %.9g"):format(tf.reduce_sum(v:read_value()):item()))
end]]

local function run(host, dir, strikes, restarts)
  return process.run(("OMP_NUM_THREADS=1 TFDIST_HEARTBEAT_TIMEOUT=2 %s run -n %d "
    .. "--max-restarts %d --log-dir=%s/logs %s %s/backup %s"):format(host.path,
    WORKERS, restarts, dir, quote(dir .. "/script.lua"), dir, quote(strikes)),
    nil, DEADLINE)
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

-- What all workers print, when these strikes come.
local function outcome(host, strikes, restarts)
  local dir = os.tmpname()
  os.remove(dir)
  os.execute("mkdir -p " .. quote(dir))
  files.write(dir .. "/script.lua", PROGRAM)
  local r = run(host, dir, strikes, restarts)
  os.execute("rm -rf " .. quote(dir))
  assert.equal(0, r.code, ("seed %d: %s\n%s"):format(SEED, strikes, r.err))
  return sorted(r.out)
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
    local strikes, names = {}, {}
    for start = 0, draw(STRIKES) do
      local fault = draw(#FAULTS) + 1
      -- Backups have brought the run at least so far.
      strikes[start + 1] = ("%d:%d:%d:%d"):format(start, draw(WORKERS),
        draw(math.floor(STEPS / (start + 2))) + 1, fault)
      names[start + 1] = FAULTS[fault][1]
    end
    it(("end as others: %s (%d of seed %d, %s)"):format(
      table.concat(names, ", "), n, SEED, host.name), function()
        undisturbed[host] = undisturbed[host] or outcome(host, "", 0)
        assert.equal(undisturbed[host], outcome(host,
          table.concat(strikes, " "), #strikes))
      end)
  end
end)
