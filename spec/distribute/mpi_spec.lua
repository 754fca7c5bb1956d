-- Workers that mpirun starts, and MPI asked for where there is none. #once
local files = require "spec.support.files"
local mpi = require "spec.support.mpi"
local process = require "spec.support.process"
local workers = require "spec.support.workers"

local lines = process.lines

local function count(text, part)
  local n, at = 0, 1
  while true do
    local first, last = text:find(part, at, true)
    if first == nil then
      return n
    end
    n, at = n + 1, last + 1
  end
end

local function says(text, part)
  assert.is_truthy(text:find(part, 1, true), text)
end

local WORKERS = [[
local tf = require "tfdist"
local strategy = tf.distribute.MultiWorkerMirroredStrategy()
local ones = strategy:run(function() return tf.constant(1.0) end)
local resolver = strategy.cluster_resolver
io.write(("%s %d of %d: %g\n"):format(resolver.task_type, resolver.task_id,
  strategy.extended.num_workers, strategy:reduce("sum", ones):item()))
]]

-- Bits of all losses.
local TRAINING = workers.TRAINING .. [[
for _, loss in ipairs(history.history.loss) do
  io.write(("%.17g\n"):format(loss))
end
]]

-- mpirun ends who is left when one has ended: that one ends when the other has
-- said why it does. Its finalizers run after its own words.
local FAILING = 'local FOLDER = os.getenv "FOLDER"\n' .. workers.TALK .. [[
local tf = require "tfdist"
local strategy = tf.distribute.MultiWorkerMirroredStrategy()
if strategy.extended.worker_index == 1 then
  LAST = newproxy and newproxy(true) or setmetatable({}, { __gc = 1 })
  getmetatable(LAST).__gc = function() take "said" end
  local labels = nil
  print(labels.first)
end
local ok, e = pcall(strategy.reduce, strategy, "sum", tf.constant(1.0))
io.stderr:write(tostring(e) .. "\n")
put "said"
assert(not ok)
error(e, 0)
]]

local ORDERS = [[
local tf = require "tfdist"
local strategy = tf.distribute.MultiWorkerMirroredStrategy()
local list = strategy:scope(function()
  local list = {}
  for k = 1, 2 do
    list[k] = tf.Variable(k, { synchronization = "on_read",
      aggregation = "sum" })
  end
  return list
end)
local ok, why = pcall(function()
  return list[strategy.extended.worker_index + 1]:read_value()
end)
print(ok, why, "status " .. (ok and 0 or why.exit_code))
]]

local APART = [[
local tf = require "tfdist"
local strategy = tf.distribute.MultiWorkerMirroredStrategy()
local n = strategy.extended.worker_index + 1
local ok, why = pcall(function()
  return strategy:reduce("sum", tf.ones { 3 * n })
end)
print(ok, why, "status " .. why.exit_code)
]]

-- FOLDER is where the workers tell each other of events.
local FAULTS = 'local FOLDER = os.getenv "FOLDER"\n' .. workers.HEAD
  .. workers.TALK .. [[
local function sum(n) return s:reduce("SUM", tf.ones { n }) end
sum(3)
]]

describe("under mpirun #once", function()
  if #mpi.all == 0 then
    pending(mpi.why)
    return
  end
  -- Open MPI's own daemons pass on 4096 bytes at a time, whatever ends there.
  if not table.concat(mpi.all, " "):find "mpich" then
    pending "whole lines of MPICH's workers: no mpich, libmpich-dev"
  else
    it("lines of the workers stay whole (mpich)", function()
      -- Both write at once, and no more than starters read at once.
      local r = mpi.run { mpi = "mpich", program = workers.HEAD .. [[
        for k = 1, 300 do
          s:reduce("SUM", tf.ones { 1 })
          io.write("worker ", w, " has ", k, "\n")
        end
      ]] }
      assert.equal(0, r.code, r.err)
      local next_of = { ["0"] = 1, ["1"] = 1 }
      for line in r.out:gmatch "[^\n]+" do
        local w, k = line:match "^worker ([01]) has (%d+)$"
        assert.equal(next_of[w], tonumber(k), line)
        next_of[w] = next_of[w] + 1
      end
      assert.same({ ["0"] = 301, ["1"] = 301 }, next_of)
    end)
  end

  for _, name in ipairs(mpi.all) do
    for _, host in ipairs(process.hosts) do
      it(("%s workers find each other (%s)"):format(host.name, name), function()
        local r = mpi.run { mpi = name, program = WORKERS, host = host.path }
        assert.equal(0, r.code, r.err)
        assert.same({ "worker 0 of 2: 2", "worker 1 of 2: 2" }, lines(r.out))
        says(r.err, "cluster from MPI: 2 workers, chief is worker 0; "
          .. "collectives: MPI")
      end)
    end

    it("training has the losses of TCP, bit for bit (" .. name .. ")",
      function()
        local tcp = lines(table.concat(workers.outputs { program = TRAINING }))
        assert.equal(12, #tcp)
        for _ = 1, 2 do
          local r = mpi.run { mpi = name, program = TRAINING }
          assert.equal(0, r.code, r.err)
          assert.same(tcp, lines(r.out))
        end
      end)

    it("a script's error ends all, and is told first (" .. name .. ")",
      function()
        local r = files.in_folder(function(folder)
          return mpi.run { mpi = name, program = FAILING, seconds = 60,
            environment = "FOLDER=" .. folder }
        end)
        -- mpirun takes that of the first process to end, or both.
        assert.is_truthy(r.code == 1 or r.code == 75, r.code)
        local _, line = FAILING:match "^.*\n%s+print":gsub("\n", "")
        says(r.err, (":%d: attempt to index a nil value (local 'labels')"):format(
          line + 1))
        says(r.err, "stopped because of process 1: ")
      end)

    it("and those that take variables in another order (" .. name .. ")",
      function()
        local r = mpi.run { mpi = name, program = ORDERS, seconds = 60 }
        assert.equal(2, count(r.out, "what differs is the operation, its "
          .. "variables"), r.out)
        assert.equal(2, count(r.out, "status 77"), r.out)
      end)

    it("programs that run apart hear of both sides (" .. name .. ")",
      function()
        local r = mpi.run { mpi = name, program = APART, seconds = 60 }
        assert.equal(2, count(r.out, "process 0 calls all_reduce sum of "
          .. "float32[3]"), r.out)
        assert.equal(2, count(r.out, "process 1 calls all_reduce sum of "
          .. "float32[6]"), r.out)
        assert.equal(2, count(r.out, ".lua:4, process 1"), r.out)
        assert.equal(2, count(r.out, "status 77"), r.out)
      end)
  end

  for _, name in ipairs(mpi.all) do
    local function run(program, environment, fn)
      files.in_folder(function(folder)
        fn(mpi.run { mpi = name, program = FAULTS .. program,
          environment = ("FOLDER=%s %s"):format(folder, environment) })
      end)
    end

    it("a wait says who is late and where (" .. name .. ")", function()
      -- Both write to one file, where the late one reads that it is missed.
      files.in_folder(function(folder)
        local shell = ("sh -c 'exec %s \"$@\" 2>>%s/err' sh"):format(
          process.hosts[1].path, folder)
        local r = mpi.run { mpi = name, host = shell, program = FAULTS
          .. [[
            if w == 1 then
              heard("self", "heard of in collective %d+, all_reduce sum of "
                .. "float32%[3%]")
            end
            sum(4)]], environment = "FOLDER=" .. folder
          .. " TFDIST_STALL_WARN=0.5" }
        local err = files.read(folder .. "/err")
        assert.equal(0, r.code, r.err .. err)
        assert.is_truthy(err:find("process 0 has waited for %d+ s in "
          .. "collective %d+, all_reduce sum of float32%[4%] at [^\n]*: process "
          .. "1 was last heard of in collective %d+, all_reduce sum of "
          .. "float32%[3%] at "), err)
      end)
    end)

    it("one that is stopped ends the job (" .. name .. ")", function()
      run([[
        if w == 1 then os.execute("kill -STOP " .. pid()) end
        while true do sum(4) end]], "TFDIST_HEARTBEAT_TIMEOUT=4", function(r)
          assert.is_truthy(r.code == 75 or r.code == 76, r.err)
          says(r.err, "process 1 of 2 has not been heard of for ")
        end)
    end)

    it("so does one that ends with a status of its own (" .. name .. ")",
      function()
        run("if w == 1 then os.exit(3) end while true do sum(4) end", "",
          function(r)
            assert.is_truthy(r.code == 3 or r.code == 75, r.code .. r.err)
          end)
      end)

    it("and one that is killed (" .. name .. ")", function()
      run([[
        if w == 1 then os.execute("kill -KILL " .. pid()) end
        while true do sum(4) end]], "", function(r)
          assert.is_truthy(r.code == 137 or r.code == 9 or r.code == 75,
            r.code .. r.err)
        end)
    end)

    -- What each process ends with is noted behind mpirun's back, which may tell
    -- something else, end who notes it, and leave processes behind: those hold
    -- the lock.
    it("Ctrl-C ends a start that waits for others (" .. name .. ")", function()
      files.in_folder(function(folder)
        local wrapper = folder .. "/start"
        files.write(wrapper, (([[
          rank=$OMPI_COMM_WORLD_RANK$PMI_RANK
          exec 9>>FOLDER/lock
          flock -s 9
          env --default-signal=INT HOST "$@" 2>FOLDER/err-$rank
          echo $? >FOLDER/new-$rank
          mv FOLDER/new-$rank FOLDER/status-$rank
        ]]):gsub("%u+%f[ /]", { HOST = process.hosts[1].path,
          FOLDER = folder })))
        mpi.run { mpi = name, host = "setsid --wait sh " .. wrapper,
          leave = folder .. "/status-0", program = 'local FOLDER = os.getenv '
          .. '"FOLDER"\n' .. workers.TALK .. [[
            if (os.getenv "OMPI_COMM_WORLD_RANK" or os.getenv "PMI_RANK") == "1"
            then
              local first = take "pid"
              repeat
                local f = assert(io.open("/proc/" .. first .. "/maps"))
                local text = f:read "*a"
                f:close()
              until text:find "libmpi"
              os.execute("kill -INT " .. first)
              take "status-0"
            else
              put("pid", pid())
              require "tfdist".distribute.MultiWorkerMirroredStrategy()
            end]], environment = "FOLDER=" .. folder }
        assert.equal(0, process.run("flock -w 60 " .. folder .. "/lock true")
          .code, "processes are left")
        local err = files.read(folder .. "/err-0")
        assert.equal("130\n", files.read(folder .. "/status-0"), err)
        says(err, "Cancelled: interrupted")
      end)
    end)

    it("where there is no TCP, work goes on without (" .. name .. ")", function()
      run("sum(4)", "TFDIST_FAILPOINTS=net.listen=eacces", function(r)
        assert.equal(0, r.code, r.err)
        assert.equal(1, count(r.err, "processes that are stopped will not be "
          .. "noticed"), r.err)
        says(r.err, "Permission denied")
      end)
    end)
  end

  local name = mpi.all[1]

  it("the example trains", function()
    if process.run "test -d /usr/share/datasets/fashion-mnist".code ~= 0 then
      pending "needs apt-get install dataset-fashion-mnist"
      return
    end
    local backup = os.tmpname()
    os.remove(backup)
    local f = assert(io.open "examples/multi_worker.lua")
    local program = f:read "*a"
    f:close()
    local r = mpi.run { mpi = name, program = program,
      arguments = "--examples 8000 --epochs 2 --backup " .. backup }
    os.execute("rm -rf " .. backup)
    assert.equal(0, r.code, r.err)
    says(r.out, "I am worker 0 of 2 workers")
    says(r.out, "I am worker 1 of 2 workers")
    says(r.out, "trained on 2 replicas, accuracy above a half: true")
  end)

  it("TF_CONFIG comes first", function()
    local r = mpi.run { mpi = name, program = WORKERS,
      environment = process.quote 'TF_CONFIG={"cluster": {"worker": '
        .. [['["127.0.0.1:2222"]}, "task": {"type": "worker", "index": 0}}']] }
    assert.equal(0, r.code, r.err)
    assert.same({ "worker 0 of 1: 1", "worker 0 of 1: 1" }, lines(r.out))
    says(r.err, "cluster from TF_CONFIG: one worker")
  end)

  it("and it alone is looked at with TFDIST_AUTO_CLUSTER=0", function()
    local r = mpi.run { mpi = name, program = WORKERS,
      environment = "TFDIST_AUTO_CLUSTER=0" }
    assert.same({ "worker 0 of 1: 1", "worker 0 of 1: 1" }, lines(r.out))
  end)

  it("the resolver tells tasks, hosts and ports", function()
    local r = mpi.run { mpi = name, program = [[
      local tf = require "tfdist"
      local r = tf.distribute.cluster_resolver.MPIClusterResolver { port_base = 70 }
      print(r.task_type, r.task_id, (tostring(r:cluster_spec()):gsub(
        "%s" .. io.popen "hostname":read "l" .. ":", " HOST:")), r:master())
    ]] }
    assert.equal(0, r.code, r.err)
    local found = lines(r.out)
    for i = 0, 1 do
      says(found[i + 1], ("worker\t%d\tClusterSpec worker { 0: HOST:70, 1: "
        .. "HOST:71 }"):format(i))
      says(found[i + 1], ("grpc://%s:7%d"):format(
        process.run "hostname".out:match "%S+", i))
    end
  end)

  it("a plug-in for another MPI says which is missing", function()
    -- mpirun ends who is left when one has ended.
    local r = files.in_folder(function(folder)
      return mpi.run { mpi = name, environment = "TFDIST_MPI=lam FOLDER="
        .. folder, program = 'local FOLDER = os.getenv "FOLDER"\n'
        .. workers.TALK .. [[
          local rank = os.getenv "OMPI_COMM_WORLD_RANK" or os.getenv "PMI_RANK"
          local _, e = pcall(require "tfdist".distribute
            .MultiWorkerMirroredStrategy)
          io.stderr:write("said: " .. e.message .. "\n")
          put("said-" .. rank)
          take "said-0"
          take "said-1"
          error(e, 0)]] }
    end)
    assert.equal(2, count(r.err, "said: group: there is no provider "
      .. "\"mpi\" built for lam"), r.err)
    says(r.err, "`make` says what they need")
  end)
end)

describe("without mpirun, MPI #once", function()
  local function fails(environment, program)
    local script = process.file(program, ".lua")
    local r = process.run(("%s %s %s"):format(environment,
      process.hosts[1].path, script))
    os.remove(script)
    assert.not_equal(0, r.code)
    return r
  end

  it("is not there for resolvers", function()
    says(fails("", [[require "tfdist".distribute.cluster_resolver
      .MPIClusterResolver()]]).err, #mpi.all > 0
      and "no MPI started this process" or "there is no provider \"mpi\"")
  end)

  it("is no implementation of collectives", function()
    local r = fails([[TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:2222", ]]
      .. [["127.0.0.1:2223"]}, "task": {"type": "worker", "index": 0}}']], [[
      local tf = require "tfdist"
      tf.distribute.MultiWorkerMirroredStrategy { communication_options =
        tf.distribute.experimental.CommunicationOptions {
          implementation = "MPI" } }]])
    assert.equal(2, r.code)
    if #mpi.all > 0 then
      says(r.err, "provider \"mpi\": no MPI started this process")
      says(r.err, "mpirun -n 2 tfdist script.lua")
    end
  end)
end)
