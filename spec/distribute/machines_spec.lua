-- Workers on two machines: a real Slurm of two nodes, and network namespaces
-- joined by a cable that can be pulled. As root, with Debian's packages. #once
local files = require "spec.support.files"
local machines = require "spec.support.machines"
local mpi = require "spec.support.mpi"
local process = require "spec.support.process"
local slurm = require "tfdist.distribute.cluster.slurm"
local workers = require "spec.support.workers"

local lines = process.lines
local lacks = machines.lacks

local WORKERS = [[
local tf = require "tfdist"
local strategy = tf.distribute.MultiWorkerMirroredStrategy()
local ones = strategy:run(function() return tf.constant(1.0) end)
local resolver = strategy.cluster_resolver
io.write(("%s %d of %d: %g\n"):format(resolver.task_type, resolver.task_id,
  strategy.extended.num_workers, strategy:reduce("sum", ones):item()))
]]

-- The chief's losses; one worker has the same, for the batches are the same.
local TRAINING = workers.TRAINING .. [[
if strategy.extended.is_chief then
  for _, loss in ipairs(history.history.loss) do
    print(("loss %.9g"):format(loss))
  end
end
]]

local function check_losses(text)
  local path = process.file(TRAINING, ".lua")
  local alone = process.run("TFDIST_CPU_DEVICES=1 TFDIST_AUTO_CLUSTER=0 "
    .. process.hosts[1].path .. " " .. path)
  os.remove(path)
  local function losses(from)
    local list = {}
    for loss in from:gmatch "loss (%S+)" do
      list[#list + 1] = tonumber(loss)
    end
    return list
  end
  local wanted, got = losses(alone.out), losses(text)
  assert.equal(6, #wanted, alone.err)
  assert.is_true(wanted[6] < wanted[1])
  assert.equal(6, #got, text)
  for i, loss in ipairs(wanted) do
    assert.is_true(math.abs(got[i] - loss) <= 1e-5 * loss, text)
  end
end

local function says(text, part)
  assert.is_truthy(text:find(part, 1, true), text)
end

-- Its path, and what removes it.
local function script_of(text)
  local path = process.file(text, ".lua")
  return path, function() os.remove(path) end
end

describe("under Slurm #once", function()
  local why = lacks("munged slurmctld slurmd srun", "slurm-wlm munge")
  local probe = why == nil and process.run("spec/support/slurm.sh true")
  if probe and probe.code == 77 then
    why = "no Slurm on this machine: "
      .. (probe.err:match "error: ([^\n]*initialize[^\n]*)" or probe.err)
  end
  if why then
    pending(why)
    return
  end

  local function srun(command)
    return process.run("OMP_NUM_THREADS=1 TFDIST_CPU_DEVICES=1 "
      .. "spec/support/slurm.sh " .. command, nil, 120)
  end

  for _, host in ipairs(process.hosts) do
    it(host.name .. " workers of a step find each other", function()
      local path, remove = script_of(WORKERS)
      local r = srun(("srun -N2 -n3 %s %s"):format(host.path, path))
      remove()
      assert.equal(0, r.code, r.err)
      assert.same({ "worker 0 of 3: 3", "worker 1 of 3: 3",
        "worker 2 of 3: 3" }, lines(r.out))
      says(r.err, "cluster from Slurm: 3 workers, chief is worker 0; ")
    end)
  end

  it("workers of two nodes train as one does", function()
    local path, remove = script_of(TRAINING)
    local r = srun(("srun -N2 -n2 %s %s"):format(process.hosts[1].path, path))
    remove()
    assert.equal(0, r.code, r.err)
    says(r.err, "cluster from Slurm: 2 workers, chief is worker 0; ")
    check_losses(r.out)
  end)

  -- The step that they agree on is theirs: both say it, and go on after it.
  it("workers that scancel asks to end save, and go on in the next step",
    function()
      local folder = files.folder()
      local path, remove = script_of [[
        local tf = require "tfdist"
        local dir, last = arg[1], tonumber(arg[2])
        local s = tf.distribute.MultiWorkerMirroredStrategy()
        local me = s.extended.worker_index
        local v = s:scope(function() return tf.Variable(0.0) end)
        local handler = tf.distribute.experimental.PreemptionCheckpointHandler(
          s.cluster_resolver, tf.train.Checkpoint { v = v }, dir .. "/saves")
        local function say(what)
          io.write(("%d %s %g\n"):format(me, what, v:read_value():item()))
        end
        say "from"
        local n = 0
        while n ~= last do
          handler:run(function() v:assign_add(1.0) end)
          n = n + 1
          io.open(dir .. "/ready-" .. me, "w"):close()
        end
        say "to"]]
      local start = ("srun -N2 -n2 %s %s %s"):format(process.hosts[1].path, path,
        folder)
      local r = srun("sh -c " .. process.quote(([[%s & pid=$!
        until [ -e %s/ready-0 ] && [ -e %s/ready-1 ]; do
          kill -0 $pid || break
          sleep 0.05
        done
        scancel -s TERM $(squeue -h -o %%i)
        wait $pid; echo status $?
        %s 3; echo status $?]]):format(start, folder, folder, start)))
      remove()
      os.execute("rm -r " .. folder)
      local before, after = r.out:match "^(.-)status 42\n(.*)status 0\n$"
      assert.is_truthy(before, r.out .. r.err)
      assert.same({ "0 from 0", "1 from 0" }, lines(before))
      local from = tonumber(after:match "0 from (%d+)")
      assert.is_true(from >= 1, r.out)
      assert.same({ "0 from " .. from, "0 to " .. from + 3, "1 from " .. from,
        "1 to " .. from + 3 }, lines(after))
    end)

  it("MPI is not started, though Slurm speaks for it", function()
    local path, remove = script_of(WORKERS .. [[
      for line in io.lines "/proc/self/maps" do
        assert(not line:find "libmpi")
      end]])
    local r = srun(("srun --mpi=none -N2 -n2 %s %s"):format(
      process.hosts[1].path, path))
    remove()
    assert.equal(0, r.code, r.err)
    assert.same({ "worker 0 of 2: 2", "worker 1 of 2: 2" }, lines(r.out))
  end)

  -- The daemons of mpirun are tasks of a step, one on each node: what starts
  -- under them has their variables, which speak of two.
  for _, name in ipairs(mpi.all) do
    it("mpirun's word comes first in an allocation (" .. name .. ")", function()
      local path, remove = script_of(WORKERS
        .. 'io.write("step of ", os.getenv "SLURM_STEP_NUM_TASKS", "\\n")')
      local r = srun(("env OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo "
        .. "salloc -N2 -n4 %s -n 4 %s %s"):format(mpi.starters[name],
        process.hosts[1].path, path))
      remove()
      assert.equal(0, r.code, r.err)
      assert.same({ "step of 2", "step of 2", "step of 2", "step of 2",
        "worker 0 of 4: 4", "worker 1 of 4: 4", "worker 2 of 4: 4",
        "worker 3 of 4: 4" }, lines(r.out))
      says(r.err, "cluster from MPI: 4 workers, chief is worker 0; ")
    end)
  end

  it("a script's error ends the step, with its cause", function()
    local path, remove = script_of [[
      local tf = require "tfdist"
      local strategy = tf.distribute.MultiWorkerMirroredStrategy()
      if strategy.extended.worker_index == 1 then error "no such field" end
      strategy:reduce("sum", tf.constant(1.0))]]
    local r = srun(("srun -N2 -n2 %s %s"):format(process.hosts[1].path, path))
    remove()
    assert.not_equal(0, r.code)
    says(r.err, "no such field")
    says(r.err, "process 1")
  end)

  it("hosts are what scontrol says", function()
    local text = "n[1-3,5],a,b[08-11],c,r[1-2]n[1,3-4],x[001-003,9]"
    local r = srun(("scontrol show hostnames '%s'"):format(text))
    assert.equal(0, r.code, r.err)
    local expected = {}
    for name in r.out:gmatch "%S+" do
      expected[#expected + 1] = name
    end
    assert.equal(20, #expected)
    assert.same(expected, slurm.expand_hosts(text))
  end)
end)

describe("in network namespaces #once", function()
  local why = machines.no_namespaces()
  if why then
    pending(why)
    return
  end

  -- The workers, `count` (1) behind each card; `between` is shell that runs while
  -- they do, `each` is set for worker i, `line` for the cable. Their output,
  -- errors and statuses.
  local function run(program, settings, between, each, count, line)
    local path, remove = script_of(program)
    local base = os.tmpname()
    local places, addresses, words, pids = {}, {}, {}, {}
    settings = settings:gsub("BASE", (base:gsub("%%", "%%%%")))
    for i, place in ipairs { "$ONE", "$TWO" } do
      for k = 1, count or 1 do
        places[#places + 1] = place
        addresses[#places] = ('"10.99.0.%d:%d"'):format(i, 2221 + k)
      end
    end
    for i, place in ipairs(places) do
      pids[i] = "$pid" .. i
      words[i] = ("%s env OMP_NUM_THREADS=1 TFDIST_CPU_DEVICES=1 %s %s "
        .. "TF_CONFIG=%s timeout -k 5 60 %s %s >>%s.%d.out 2>>%s.%d.err & "
        .. "pid%d=$!"):format(place, settings, each and each(i - 1) or "",
        process.quote(
          ([[{"cluster": {"worker": [%s]}, "task": {"type": "worker", ]]
            .. [["index": %d}}]]):format(table.concat(addresses, ", "), i - 1)),
        process.hosts[1].path, path, base, i, base, i, i)
    end
    words[#words + 1] = (between or ""):gsub("BASE", (base:gsub("%%", "%%%%")))
    words[#words + 1] = ("s=; for p in %s; do wait $p; s=\"$s $?\"; done; echo $s")
      :format(table.concat(pids, " "))
    local r = process.run((line or "") .. " spec/support/netns.sh "
      .. process.quote(table.concat(words, "\n")), nil, 120)
    remove()
    local got = { codes = lines(r.out)[1] }
    for i in ipairs(places) do
      got[i] = process.run(("cat %s.%d.out %s.%d.err"):format(base, i, base, i))
        .out
    end
    os.execute(("rm -f %s %s.*"):format(base, base))
    return got
  end

  it("workers that know the secret meet", function()
    local got = run(WORKERS, "TFDIST_SECRET=between-us")
    assert.equal("0 0", got.codes, got[1] .. got[2])
    says(got[1], "worker 0 of 2: 2")
    says(got[1], "collectives: TCP")
    says(got[2], "worker 1 of 2: 2")
  end)

  -- 2^24 + 1 is no single float: the sum tells who was added to whom.
  it("those of a machine add up before machines do", function()
    local program = [[
      local tf = require "tfdist"
      local strategy = tf.distribute.MultiWorkerMirroredStrategy()
      local given = { 16777216.0, 0.0, 1.0, 1.0 }
      local k = strategy.extended.worker_index + 1
      local sum = strategy:reduce("sum", tf.fill({ 300 }, given[k]))
      print(("sums from %d to %d"):format(tf.reduce_min(sum):item(),
        tf.reduce_max(sum):item()))]]
    for transport, sum in pairs { [""] = 16777218, tcp = 16777216 } do
      local got = run(program, "TFDIST_SECRET=between-us TFDIST_TRANSPORT="
        .. transport, nil, nil, 2)
      assert.equal("0 0 0 0", got.codes, table.concat(got))
      for i = 1, 4 do
        says(got[i], ("sums from %d to %d"):format(sum, sum))
      end
    end
  end)

  it("workers of two machines train as one does", function()
    local got = run(TRAINING, "TFDIST_SECRET=between-us")
    assert.equal("0 0", got.codes, got[1] .. got[2])
    says(got[1], "collectives: TCP")
    check_losses(got[1])
  end)

  it("workers without one are told how to have one", function()
    local got = run(WORKERS, "")
    assert.equal("2 2", got.codes)
    for i = 1, 2 do
      says(got[i], "can be reached")
      says(got[i], "TFDIST_SECRET")
    end
  end)

  local HEAD = [[
    local tf = require "tfdist"
    local strategy = tf.distribute.MultiWorkerMirroredStrategy()
    print "met"
    io.stdout:flush()
  ]]
  local FOREVER = HEAD
    .. 'while true do strategy:reduce("sum", tf.constant(1.0)) end'
  local WHEN_MET = [[
    until grep -q met BASE.1.out && grep -q met BASE.2.out; do
      kill -0 $pid1 && kill -0 $pid2 || break
      sleep 0.05
    done
  ]]

  -- Bad lines, whose times hang on the machine's.
  local function on_bad_line(name, fn)
    it(name, os.getenv "TFD_LONG" and fn or function()
      pending "a bad line takes a machine of its own: make check-long"
    end)
  end

  on_bad_line("what goes one way only ends both, too", function()
    -- What the second sends goes to a card that nobody has. It hears what the
    -- first one says at its end: it is to have ended by then.
    local got = run(FOREVER, "TFDIST_SECRET=between-us", WHEN_MET .. [[
        $TWO ip neigh replace 10.99.0.1 lladdr 02:00:00:00:00:99 dev card \
          nud permanent]], function(i)
        return "TFDIST_HEARTBEAT_TIMEOUT=" .. (i == 0 and 10 or 2)
      end)
    assert.equal("75 76", got.codes, got[1] .. got[2])
    says(got[1], "process 1 of 2 has not been heard of")
    says(got[2], "process 0 of 2 has not been heard of")
  end)

  on_bad_line("connections that are reset end both, with the system's word",
    function()
      local got = run(FOREVER, "TFDIST_SECRET=between-us", WHEN_MET .. [[
        $ONE ss -K dst 10.99.0.2 >BASE.ss
        grep -q 10.99.0.2: BASE.ss || {
          echo unsupported >>BASE.1.out
          kill $pid1 $pid2
        }]])
      if got[1]:find "unsupported" then
        pending "this kernel resets no connections for ss -K"
        return
      end
      assert.equal("75 76", got.codes, got[1] .. got[2])
      says(got[1] .. got[2], "process ")
      says(got[1] .. got[2], " (Connection reset by peer)")
    end)

  on_bad_line("a line that loses every third packet is slow, and nothing else",
    function()
      local lossy = "$%s tc qdisc add dev card root tbf rate 20mbit burst 4k "
        .. "limit 6k"
      if lacks("tc", "iproute2") or process.run("spec/support/netns.sh "
        .. process.quote(lossy:format "ONE")).code ~= 0 then
        pending "this kernel has no token buckets (sch_tbf)"
        return
      end
      local got = run(HEAD .. [[
        local function is_lossy()
          local file = io.open(os.getenv "LOSSY")
          return tf.constant(file and file:close() and 1.0 or 0.0)
        end
        repeat until strategy:reduce("sum", is_lossy()):item() == 2
        for _ = 1, 20 do
          assert(strategy:reduce("sum", tf.ones { 50000 }):totable()[77] == 2)
        end
        print "done"]], "TFDIST_SECRET=between-us LOSSY=BASE.lossy", WHEN_MET
        .. lossy:format "ONE" .. "\n" .. lossy:format "TWO" .. [[

        >BASE.lossy
        until grep -q done BASE.1.out || ! kill -0 $pid1; do sleep 0.05; done
        $ONE tc -s qdisc show dev card >>BASE.1.err]])
      assert.equal("0 0", got.codes, got[1] .. got[2])
      says(got[1], "done")
      assert.is_truthy(got[1]:find "dropped [1-9]", got[1])
    end)

  on_bad_line("packets that overtake each other change nothing", function()
    local why_not = lacks("perl", "perl")
      or process.run("test -c /dev/net/tun").code ~= 0 and "no /dev/net/tun"
    if why_not then
      pending(why_not)
      return
    end
    local program = HEAD .. [[
      local w = strategy.extended.worker_index
      for k = 1, 30 do
        local n = k % 3 == 0 and 60000 or 40 * k
        local x = tf.sin(tf.range(n, { dtype = "float32" }) * (w + k))
        print(("sum %.17g"):format(tf.reduce_sum(strategy:reduce("sum", x)
          * tf.range(n, { dtype = "float32" })):item()))
      end
      print "done"]]
    local function sums(line)
      local got = run(program, "TFDIST_SECRET=between-us "
        .. "TFDIST_HEARTBEAT_TIMEOUT=4", WHEN_MET .. "until grep -q done "
        .. "BASE.1.out || ! kill -0 $pid1; do sleep 0.05; done\n"
        .. "$ONE cat /proc/net/netstat >>BASE.1.err", nil, nil, line)
      assert.equal("0 0", got.codes, got[1] .. got[2])
      local names, numbers = got[1]:match "(TcpExt: %a[^\n]*)\n(TcpExt: [^\n]*)"
      assert.is_truthy(names, got[1])
      local at, list = {}, {}
      for name in names:gmatch "%S+" do
        at[#at + 1] = name
      end
      for number in numbers:gmatch "%S+" do
        list[at[#list + 1]], list[#list + 1] = tonumber(number), number
      end
      return got[1]:gsub("TcpExt.*", ""):gsub("[^\n]*tfdist[^\n]*\n", ""),
        assert(list.TCPOFOQueue, names)
    end
    local wanted = sums ""
    local got, out_of_order = sums("DISORDER="
      .. require "spec.support.seed" % 1000000)
    assert.equal(wanted, got)
    assert.is_true(out_of_order > 0)
  end)

  it("a cable that is pulled ends both, and each says whom it misses",
    function()
      local got = run(FOREVER,
        "TFDIST_SECRET=between-us TFDIST_HEARTBEAT_TIMEOUT=2",
        WHEN_MET .. "$CUT")
      assert.equal("75 76", got.codes, got[1] .. got[2])
      says(got[1], "process 1 of 2 has not been heard of")
      says(got[2], "process 0 of 2 has not been heard of")
    end)

  -- Their records tell when they know: no call does before that.
  it("a cable that is pulled while nobody calls anything is noticed, too",
    function()
      local folder = files.folder()
      local got = run(HEAD .. [[
        repeat until io.open(os.getenv "NOTICED")
        strategy:reduce("sum", tf.constant(1.0))]], "TFDIST_SECRET=between-us "
        .. "TFDIST_HEARTBEAT_TIMEOUT=2 NOTICED=BASE.noticed "
        .. "TFDIST_FLIGHT=" .. folder, WHEN_MET .. ([[
        $CUT
        for w in 0 1; do
          until grep -aq "process $w of 2 has not been heard of" FOLDER/*; do
            kill -0 $pid1 && kill -0 $pid2 || break
            sleep 0.05
          done
        done
        >BASE.noticed]]):gsub("FOLDER", folder))
      os.execute("rm -r " .. folder)
      assert.equal("75 76", got.codes, got[1] .. got[2])
      for i = 1, 2 do
        local seconds = got[i]:match(("process %d of 2 has not been heard of "
          .. "for ([%%d.]+) s"):format(2 - i))
        assert.is_truthy(seconds, got[i])
        -- As long again where the system's own clock is the first to ring.
        assert.is_true(tonumber(seconds) >= 2 and tonumber(seconds) <= 4, got[i])
        assert.is_nil(got[i]:find("stopped because of", 1, true))
      end
    end)
end)
