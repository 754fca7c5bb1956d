--- Run one program as several workers, each a process of its own with its
--- TF_CONFIG, on ports that nobody has.
local process = require "spec.support.process"

local M = {}

--- By what programs of workers tell each other of events, in FOLDER, a local of
--- theirs: put(name, text), a file that is there as a whole; take(name), its text
--- when it is there; pid(); heard(pid, words), which waits until that process,
--- or "self", has written what fits the pattern to stderr, a file.
M.TALK = [[
local function put(name, text)
  local f = assert(io.open(FOLDER .. "/" .. name .. ".new", "w"))
  f:write(text or "")
  f:close()
  os.rename(FOLDER .. "/" .. name .. ".new", FOLDER .. "/" .. name)
end
local function take(name)
  local f
  repeat f = io.open(FOLDER .. "/" .. name) until f
  local text = f:read "*a"
  f:close()
  return text
end
local function pid()
  local f = io.open "/proc/self/stat"
  local n = f:read "*n"
  f:close()
  return ("%d"):format(n)
end
-- Wait until a process is stopped.
local function stopped(pid)
  local f
  repeat
    if f then f:close() end
    f = assert(io.open("/proc/" .. pid .. "/stat"))
  until f:read "*a":find "%) T "
  f:close()
end
local function heard(pid, words)
  local text
  repeat
    local f = assert(io.open("/proc/" .. pid .. "/fd/2"))
    text = f:read "*a"
    f:close()
  until text:find(words)
end
]]

--- A training of all workers together, to `history`; its sums depend on their
--- order.
M.TRAINING = [[
local tf = require "tfdist"
local strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.random.set_seed(3)
local model = strategy:scope(function()
  local m = tf.keras.Sequential { tf.keras.layers.Dense(8, { activation = "tanh",
    input_shape = { 5 } }), tf.keras.layers.Dense(1) }
  m:compile { optimizer = tf.keras.optimizers.SGD(0.05), loss = "mse" }
  return m
end)
local x = tf.random.stateless_normal({ 64, 5 }, { 1, 2 })
local y = tf.reduce_sum(x * x, { axis = 1, keepdims = true })
local history = model:fit(x, y, { epochs = 6, batch_size = 16, verbose = 0,
  shuffle = false })
]]

--- What programs of workers begin with: the strategy, this worker's number,
--- the replica's number; a tensor's values, and those of all replicas here.
M.HEAD = [[
local tf = require "tfdist"
local s = tf.distribute.MultiWorkerMirroredStrategy()
local w = s.extended.worker_index
local function id()
  return tf.distribute.get_replica_context().replica_id_in_sync_group
end
local function show(x)
  local list = {}
  for i, value in ipairs(x:reshape({ -1 }):totable()) do
    list[i] = ("%g"):format(value)
  end
  return table.concat(list, " ")
end
local function locals(x)
  local list = {}
  for i, part in ipairs(s:experimental_local_results(x)) do
    list[i] = show(part)
  end
  return table.concat(list, " | ")
end
]]

-- Perl is in every Debian; the ports are free when it has ended. They lie below
-- those that the kernel gives to connections, which could take one meanwhile.
local PORTS = [[use Socket; while (@s < $ARGV[0]) { socket(my $s, PF_INET,
SOCK_STREAM, 0); my $p = 20000 + int rand 12000;
bind($s, sockaddr_in($p, INADDR_LOOPBACK)) or next; push @s, $s;
print "$p\n" }]]

--- n free ports of this machine.
function M.ports(n)
  local r = process.run(("perl -e %s %d"):format(process.quote(PORTS), n))
  assert(r.code == 0, r.err)
  local list = {}
  for port in r.out:gmatch "%d+" do
    list[#list + 1] = port
  end
  assert(#list == n)
  return list
end

-- TF_CONFIG of each task of `jobs`, a list of { name, count }.
local function configs(jobs)
  local n = 0
  for _, job in ipairs(jobs) do
    n = n + job[2]
  end
  local ports, at, cluster, list = M.ports(n), 0, {}, {}
  for _, job in ipairs(jobs) do
    local addresses = {}
    for i = 1, job[2] do
      at = at + 1
      addresses[i] = ('"127.0.0.1:%s"'):format(ports[at])
      list[at] = ('"task": {"type": "%s", "index": %d}'):format(job[1], i - 1)
    end
    cluster[#cluster + 1] = ('"%s": [%s]'):format(job[1],
      table.concat(addresses, ", "))
  end
  for i = 1, n do
    list[i] = ('{"cluster": {%s}, %s}'):format(table.concat(cluster, ", "),
      list[i])
  end
  return list
end

local function take(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "*a"
  f:close()
  os.remove(path)
  return text
end

--- Run a Lua program in every worker at once; returns what each did, in order:
--- { out, err, code, ended }, the last one when, in seconds of one clock. All
--- have ended when this returns.
---   program   its text, the same for all
---   n         number of workers (default 2), or
---   jobs      { { "chief", 1 }, { "worker", 2 } }
---   devices   logical CPU devices of each (default 1)
---   host      which host runs it (default the Lua 5.4 one)
---   environment   "NAME=value ..." for all
---   each      the same of worker i, a function
---   only      set of workers (from 0) that are started
---   script    path of another program for worker i, a function
---   arguments     of worker i, a function, as shell words
---   seconds   after which a worker is ended (default 120)
function M.run(given)
  local list = configs(given.jobs or { { "worker", given.n or 2 } })
  local script = process.file(given.program, ".lua")
  local base = os.tmpname()
  local lines, results = {}, {}
  for i, config in ipairs(list) do
    if given.only == nil or given.only[i - 1] then
      lines[#lines + 1] = ("(TF_CONFIG=%s TFDIST_CPU_DEVICES=%d %s timeout -k 5 "
        .. "%d %s %s %s >%s.%d.out 2>%s.%d.err </dev/null; echo $? >%s.%d.code; "
        .. "cut -d ' ' -f 1 /proc/uptime >%s.%d.ended) &")
        :format(process.quote(config), given.devices or 1,
        (given.environment or "") .. " " .. (given.each and given.each(i - 1)
        or ""), given.seconds or 120,
        given.host or process.hosts[1].path,
        given.script and given.script(i - 1) or script,
        given.arguments and given.arguments(i - 1) or "", base, i, base, i,
        base, i, base, i)
    end
  end
  lines[#lines + 1] = "wait"
  local r = process.run(table.concat(lines, "\n"))
  assert(r.code == 0, r.err)
  for i = 1, #list do
    if given.only == nil or given.only[i - 1] then
      results[i] = {
        out = take(("%s.%d.out"):format(base, i)),
        err = take(("%s.%d.err"):format(base, i)),
        code = tonumber(take(("%s.%d.code"):format(base, i))),
        ended = tonumber(take(("%s.%d.ended"):format(base, i))),
      }
    end
  end
  os.remove(base)
  os.remove(script)
  return results
end

--- The same, where all must end well: a list of what each printed.
function M.outputs(given)
  local outs = {}
  for i, r in ipairs(M.run(given)) do
    assert(r.code == 0, ("worker %d ended with %s:\n%s"):format(i - 1, r.code,
      r.err))
    outs[i] = r.out
  end
  return outs
end

return M
