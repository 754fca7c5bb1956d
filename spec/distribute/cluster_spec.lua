-- Cases O and P of cluster resolvers, and every mistake in TF_CONFIG.
local cluster = require "tfdist.distribute.cluster"
local files = require "spec.support.files"
local json = require "tfdist.core.json"
local mpi = require "tfdist.distribute.cluster.mpi"
local process = require "spec.support.process"
local roles = require "tfdist.distribute.cluster.roles"
local slurm = require "tfdist.distribute.cluster.slurm"
local resolvers = require "tfdist.distribute.cluster.resolver"
local tf = require "tfdist"

local C = tf.distribute.cluster_resolver
local ClusterSpec = tf.train.ClusterSpec

local made = {}

-- A file of this text, removed at the end.
local function temporary(content)
  made[#made + 1] = process.file(content)
  return made[#made]
end

teardown(function()
  for _, path in ipairs(made) do
    os.remove(path)
  end
end)

-- fn() with these environment variables and no others.
local function with_environment(variables, fn)
  local getenv = os.getenv
  os.getenv = function(name) -- luacheck: ignore
    return variables[name]
  end
  local done, why = pcall(fn)
  os.getenv = getenv -- luacheck: ignore
  if not done then
    error(why, 0)
  end
end

local function with_config(source, fn)
  with_environment({ TF_CONFIG = source }, fn)
end

local function fails(kind, pattern, fn)
  local done, e = pcall(fn)
  assert.is_false(done, "no error was raised")
  assert.equal(kind, e.kind, tostring(e))
  assert.is_truthy(e.message:find(pattern), tostring(e))
  return e
end

local CLUSTER = '"cluster":{"ps":["ps0:2222","ps1:2222"],'
  .. '"worker":["worker0:2222","worker1:2222","worker2:2222"]}'

local function config(rest)
  return "{" .. CLUSTER .. (rest and "," .. rest or "") .. "}"
end

local TASK = '"task":{"type":"ps","index":0}'

describe("ClusterSpec", function()
  it("takes lists, and addresses by task index from 0", function()
    local spec = ClusterSpec { worker = { "a:1", "b:2" },
      ps = { [0] = "c:3", [2] = "d:4" } }
    assert.same({ "ps", "worker" }, spec:jobs())
    assert.equal(2, spec:num_tasks "ps")
    assert.same({ 0, 2 }, spec:task_indices "ps")
    assert.equal("d:4", spec:task_address("ps", 2))
    assert.equal("b:2", spec:task_address("worker", 1))
    assert.same({ "c:3", nil, "d:4", n = 3 }, spec:job_tasks "ps")
    assert.same({ worker = { "a:1", "b:2" }, ps = { [0] = "c:3", [2] = "d:4" } },
      spec:as_dict())
    assert.equal(spec, ClusterSpec(spec))
    assert.equal(spec, ClusterSpec(spec:as_dict()))
    assert.not_equal(spec, ClusterSpec { worker = { "a:1", "b:2" } })
    assert.equal("ClusterSpec ps { 0: c:3, 2: d:4 } worker { 0: a:1, 1: b:2 }",
      tostring(spec))
  end)

  it("says what is wrong", function()
    local spec = ClusterSpec { worker = { "a:1" } }
    assert.equal("did you mean worker?", fails("ValueError",
      'there is no job "wroker"; jobs: worker', function()
        spec:num_tasks "wroker"
      end).hint)
    fails("ValueError", 'job "worker" has no task 1; tasks: 0', function()
      spec:task_address("worker", 1)
    end)
    fails("TypeError", "cluster must be a table of jobs", function()
      ClusterSpec "worker"
    end)
    fails("TypeError", "name of a job must be a string", function()
      ClusterSpec { { "a:1" } }
    end)
    fails("TypeError", 'job "worker" must be a list of addresses', function()
      ClusterSpec { worker = "a:1" }
    end)
    fails("TypeError", 'task 1 of job "worker" must be an address', function()
      ClusterSpec { worker = { "a:1", 5 } }
    end)
    fails("TypeError", "no whole number from 0: ", function()
      ClusterSpec { worker = { [-1] = "a:1" } }
    end)
  end)
end)

describe("TFConfigClusterResolver", function()
  it("O01 reads the jobs in order", function()
    with_config(config(TASK), function()
      local spec = C.TFConfigClusterResolver():cluster_spec()
      assert.same({ "ps", "worker" }, spec:jobs())
      assert.same({ ps = { "ps0:2222", "ps1:2222" }, worker = { "worker0:2222",
        "worker1:2222", "worker2:2222" } }, spec:as_dict())
    end)
  end)

  it("O02 O04 O05 O06 knows master, layer and task", function()
    with_config(config(TASK), function()
      assert.equal("ps0:2222", C.TFConfigClusterResolver():master())
      assert.equal("worker2:2222",
        C.TFConfigClusterResolver():master("worker", 2))
    end)
    with_config(config(TASK .. ',"session_master":"sessionmaster:2222"'),
      function()
        assert.equal("sessionmaster:2222", C.TFConfigClusterResolver():master())
      end)
    with_config(config(TASK .. ',"rpc_layer":"grpc"'), function()
      local r = C.TFConfigClusterResolver()
      assert.equal("grpc://ps0:2222", r:master())
      assert.same({ "ps", 0, "grpc" }, { r.task_type, r.task_id, r.rpc_layer })
    end)
  end)

  it("lets arguments win over the environment, and fields over both", function()
    with_config(config(TASK .. ',"rpc_layer":"grpc"'), function()
      local r = C.TFConfigClusterResolver { task_type = "worker", task_id = 1,
        rpc_layer = "http", environment = "here" }
      assert.equal("http://worker1:2222", r:master())
      assert.equal("here", r.environment)
      r.task_id = 2
      assert.equal("http://worker2:2222", r:master())
      assert.equal("worker1:2222", C.TFConfigClusterResolver():master("worker",
        1, ""))
      -- task_id alone counts too
      assert.equal("grpc://ps1:2222",
        C.TFConfigClusterResolver { task_id = 1 }:master())
    end)
  end)

  it("O08 takes numbers as types and strings as indices", function()
    with_config('{"cluster":{"123456":["a:1","b:2"]},'
      .. '"task":{"type":123456,"index":"1"}}', function()
      local r = C.TFConfigClusterResolver()
      assert.equal("123456", r.task_type)
      assert.equal(1, r.task_id)
    end)
  end)

  it("O09 has no master when the process is alone", function()
    for _, source in ipairs { "{}", "", '{"cluster":{}}',
      '{"cluster":{"worker":["worker1:2222"]}}' } do
      with_config(source, function()
        assert.equal("", C.TFConfigClusterResolver():master())
      end)
    end
    with_environment({}, function()
      local r = C.TFConfigClusterResolver()
      assert.equal("", r:master())
      assert.same({}, r:cluster_spec():jobs())
      assert.is_nil(r.task_type)
    end)
  end)

  it("O10 counts the accelerators of a task", function()
    local devices = {}
    for _, d in ipairs { { "worker", 0, "TPU", 0 }, { "worker", 0, "TPU", 1 },
      { "worker", 0, "GPU", 0 }, { "worker", 0, "GPU", 1 },
      { "worker", 0, "CPU", 0 }, { "worker", 1, "GPU", 0 },
      { "worker2", 3, "GPU", 4 } } do
      devices[#devices + 1] = { device_type = d[3], name =
        ("/job:%s/replica:0/task:%d/device:%s:%d"):format(d[1], d[2], d[3],
        d[4]) }
    end
    local count = resolvers.count_accelerators
    assert.same({ TPU = 2, GPU = 2 }, count(devices, "worker", 0))
    assert.same({ GPU = 1 }, count(devices, "worker2", 3))
    assert.same({ TPU = 2, GPU = 4 }, count(devices))
    -- names without a job are this process's
    assert.same({ GPU = 1 }, count({ { name = "/device:GPU:0",
      device_type = "GPU" } }, "worker", 1, "worker", 1))
  end)
end)

-- Text of TF_CONFIG, the place and words of its error.
local MISTAKES = {
  { "{", "TF_CONFIG: not JSON at line 1, column 1" },
  { "worker0:2222", "TF_CONFIG: not JSON" },
  { " ", "TF_CONFIG: not JSON at line 1, column 1" },
  { "\t \t", "TF_CONFIG: not JSON" },
  { "[]", "TF_CONFIG: expected an object with cluster and task, got a list" },
  { "7", "TF_CONFIG: expected an object with cluster and task, got 7" },
  { '{"cluster":7}', "TF_CONFIG.cluster: expected an object of jobs, got 7" },
  { '{"cluster":null}', "TF_CONFIG.cluster: expected an object .*, got null" },
  { '{"cluster":[]}', "TF_CONFIG.cluster: expected .*, got a list of 0" },
  { '{"clutser":{}}', "TF_CONFIG.clutser: unknown", "did you mean cluster?" },
  { '{"cluster":{"worker":"a:1"}}',
    'TF_CONFIG.cluster.worker: expected a list .*, got "a:1"' },
  { '{"cluster":{"worker":[]}}', "TF_CONFIG.cluster.worker: has no tasks" },
  { '{"cluster":{"worker":{}}}', "TF_CONFIG.cluster.worker: has no tasks" },
  { '{"cluster":{"worker":{"x":"a:1"}}}',
    'TF_CONFIG.cluster.worker: "x" is no task index' },
  { '{"cluster":{"worker":{"01":"a:1"}}}',
    'TF_CONFIG.cluster.worker: "01" is no task index' },
  { '{"cluster":{"worker":{"n":9e15}}}',
    'TF_CONFIG.cluster.worker: "n" is no task index' },
  { '{"cluster":{"n":"x"}}', 'TF_CONFIG.cluster.n: expected a list .*"x"' },
  { '{"cluster":[1],"n":3}', "TF_CONFIG.cluster: expected .*, got a list of 1" },
  { '{"cluster":{"worker":[1]}}',
    'TF_CONFIG.cluster.worker%[0%]: expected an address "host:port", got 1' },
  { '{"cluster":{"worker":["a:1",null]}}',
    "TF_CONFIG.cluster.worker%[1%]: expected an address .* got null" },
  { '{"cluster":{"worker":["a"]}}',
    'TF_CONFIG.cluster.worker%[0%]: "a"; expected "host:port"' },
  { '{"cluster":{"worker":["a:"]}}', '"a:": port missing; expected 1 to' },
  { '{"cluster":{"worker":[":1"]}}', '":1": the host is missing' },
  { '{"cluster":{"worker":["a:0"]}}', 'port "0"; expected 1 to 65535' },
  { '{"cluster":{"worker":["a:70000"]}}', 'port "70000"; expected 1 to' },
  { '{"cluster":{"worker":["a:-1"]}}', 'port "%-1"; expected 1 to 65535' },
  { '{"cluster":{"worker":["a:1x"]}}', 'port "1x"; expected 1 to 65535' },
  { '{"cluster":{"worker":["::1:2222"]}}', "IPv6 host in brackets" },
  { '{"cluster":{"worker":["h\195\182st:1"]}}', "a host has letters, digits" },
  { '{"cluster":{"worker":["a b:1"]}}', "a host has letters, digits" },
  { '{"cluster":{"worker":["a:1","a:1"]}}',
    'worker%[1%]: "a:1" is the address of TF_CONFIG.cluster.worker%[0%] too' },
  { '{"cluster":{"worker":["a:1"],"worker":["b:1"]}}', "TF_CONFIG: not JSON" },
  { '{"cluster":{"w\195\182rker":["a:1"]}}', "is no name of a job" },
  { '{"cluster":{"chief":["a:1","b:1"]}}',
    "TF_CONFIG.cluster.chief: 2 tasks; expected one" },
  { '{"cluster":{"chief":["a:1"],"master":["b:1"]}}', "both chief and master" },
  { '{"cluster":{"worker":["a:1","b:1"]}}',
    "TF_CONFIG.task: missing: which of the cluster's 2 tasks is this process?" },
  { config '"task":[]', "TF_CONFIG.task: expected an object" },
  { config '"task":{"index":0}',
    "TF_CONFIG.task.type: expected the name of a job, got nothing" },
  { config '"task":{"type":"ps"}',
    "TF_CONFIG.task.index: expected a task index 0, 1, ..., got nothing" },
  { config '"task":{"type":"ps","index":-1}', "task.index: .* got %-1" },
  { config '"task":{"type":"ps","index":0.5}', "task.index: .* got 0.5" },
  { config '"task":{"type":"ps","index":"one"}', 'task.index: .* got "one"' },
  { config '"task":{"type":"ps","index":2}',
    "TF_CONFIG.task.index: 2 out of range, job 'ps' has 2 tasks" },
  { config '"task":{"type":"wroker","index":0}',
    'TF_CONFIG.task.type: there is no job "wroker" in the cluster; jobs: ps, ',
    "did you mean worker?" },
  { '{"task":{"type":"worker","index":3}}', "TF_CONFIG.cluster: missing" },
  { config(TASK .. ',"rpc_layer":7'), "TF_CONFIG.rpc_layer: expected a string" },
  { config(TASK .. ',"environment":{}'), "TF_CONFIG.environment: expected" },
  { '{"x":"' .. ("y"):rep(2 ^ 20) .. '"}',
    "TF_CONFIG: 1048584 bytes; expected at most 1048576" },
  { '{"cluster":{"worker":["' .. ("h"):rep(9999) .. ':1"]}}',
    "an address of 10001 characters; expected at most 261" },
  { ("["):rep(5000) .. ("]"):rep(5000), "TF_CONFIG: .*levels" },
}

describe("TF_CONFIG", function()
  it("is told where it is wrong, and what was expected", function()
    for _, case in ipairs(MISTAKES) do
      with_config(case[1], function()
        local e = fails("ValueError", case[2], C.TFConfigClusterResolver)
        assert.equal(2, e.exit_code)
        if case[3] ~= nil then
          assert.equal(case[3], e.hint)
        end
      end)
    end
  end)

  it("takes IPv6 hosts, an evaluator of its own and a task alone", function()
    with_config('{"cluster":{"worker":["[::1]:2222"]},'
      .. '"task":{"type":"evaluator","index":0}}', function()
      local r = C.TFConfigClusterResolver()
      assert.equal("[::1]:2222", r:cluster_spec():task_address("worker", 0))
      assert.equal("evaluator", r.task_type)
    end)
    with_config('{"task":{"type":"worker","index":0}}', function()
      assert.equal("worker", C.TFConfigClusterResolver().task_type)
    end)
  end)

  it("ends a host with status 2 when it is wrong", function()
    local script = temporary(
      'require"tfdist".distribute.cluster_resolver.TFConfigClusterResolver()')
    local bad = "TF_CONFIG=" .. process.quote(
      config '"task":{"type":"ps","index":5}') .. " "
    for _, host in ipairs { "/tfdist", "/tfdist-luajit" } do
      local host_bad = bad .. process.build .. host
      local got = process.run(host_bad .. " " .. script)
      assert.equal(2, got.code)
      assert.is_truthy(got.err:find("TF_CONFIG.task.index: 5 out of range, job "
        .. "'ps' has 2 tasks", 1, true), got.err)
      assert.equal(2, process.run(host_bad .. " config check").code)
    end
  end)

  it("is refused soon, whatever is wrong with it #once", function()
    local folder, words, n = files.folder(), {}, 0
    for _, case in ipairs(MISTAKES) do
      -- Longer ones fit in no environment.
      if #case[1] < 2 ^ 17 - 16 then
        n = n + 1
        files.write(("%s/%d"):format(folder, n), case[1])
        words[n] = ("export TF_CONFIG=\"$(cat %s/%d)\"; date +%%s%%N; "
          .. "%s config check; echo $?; date +%%s%%N"):format(folder, n,
          process.hosts[n % 2 + 1].path)
      end
    end
    local r = process.run(table.concat(words, "\n"))
    os.execute("rm -r " .. folder)
    local times = {}
    for from, code, to in r.out:gmatch "(%d+)\n(%d+)\n(%d+)\n" do
      times[#times + 1] = (tonumber(to) - tonumber(from)) / 1e9
      assert.equal("2", code, words[#times])
    end
    assert.equal(n, #times, r.out)
    assert.is_true(n >= 25)
    table.sort(times)
    assert.is_true(times[math.ceil(n / 2)] < 0.1, times[math.ceil(n / 2)])
  end)

  it("is shown by config check", function()
    local got = process.run("TF_CONFIG=" .. process.quote(config(
      '"task":{"type":"worker","index":0}')) .. " " .. process.build
      .. "/tfdist config check")
    assert.equal(0, got.code, got.err)
    assert.is_truthy(got.out:find("0  worker0:2222  (this process)", 1, true),
      got.out)
    assert.is_truthy(got.out:find("chief    yes", 1, true), got.out)
  end)
end)

describe("the cluster that a process finds", function()
  local OPEN_MPI = { OMPI_COMM_WORLD_SIZE = "4", OMPI_COMM_WORLD_RANK = "3" }
  local HYDRA = { PMI_SIZE = "4", PMI_RANK = "3", MPI_LOCALNRANKS = "2" }
  local SRUN_PMI = { PMI_SIZE = "2", PMI_RANK = "1" }
  local STEP = { SLURM_PROCID = "1", SLURM_STEP_NUM_TASKS = "2",
    SLURM_STEP_NODELIST = "n[1-2]", SLURM_STEP_TASKS_PER_NODE = "1(x2)" }
  -- Of sbatch's script, and of a shell under salloc.
  local BATCH = { SLURM_PROCID = "0", SLURM_STEP_NUM_TASKS = "1",
    SLURM_STEP_NODELIST = "n1", SLURM_STEP_TASKS_PER_NODE = "1" }
  local CONFIG = { TF_CONFIG = config '"task":{"type":"worker","index":1}' }
  local CASES = {
    { "TF_CONFIG", CONFIG, STEP, OPEN_MPI },
    { "TF_CONFIG (tfdist run)", CONFIG, STEP, { TFDIST_RESTART = "0" } },
    { "Slurm", STEP },
    { "Slurm", STEP, SRUN_PMI }, -- srun --mpi=pmi2
    { "MPI", STEP, OPEN_MPI }, -- mpirun whose daemons are a step
    { "MPI", STEP, HYDRA },
    { "MPI", BATCH, OPEN_MPI }, -- mpirun on the node of sbatch's script
    { "MPI", BATCH, HYDRA },
    { "MPI", OPEN_MPI }, { "MPI", HYDRA }, { "MPI", SRUN_PMI },
    { "alone", BATCH },
    { "alone", { OMPI_COMM_WORLD_SIZE = "1" } },
    { "alone", { SLURM_JOB_ID = "7", SLURM_NNODES = "2" } },
    { "alone", STEP, OPEN_MPI, { TFDIST_AUTO_CLUSTER = "0" } },
    { "alone", STEP, OPEN_MPI, { TFDIST_AUTO_CLUSTER = " 0 " } },
    { "TF_CONFIG", CONFIG, { TFDIST_AUTO_CLUSTER = "0" } },
  }

  local function all_of(case)
    local variables = {}
    for i = 2, #case do
      for name, value in pairs(case[i]) do
        variables[name] = value
      end
    end
    return variables
  end

  it("is the one that TF_CONFIG, mpirun, srun speak of, in this order",
    function()
      local of_mpi = mpi.MPIClusterResolver
      mpi.MPIClusterResolver = function() return "ranks" end
      local done, why = pcall(function()
        for i, case in ipairs(CASES) do
          with_environment(all_of(case), function()
            local resolver, source = cluster.find()
            assert.equal(case[1], source or "alone", "case " .. i)
            assert.equal(case[1] == "MPI", resolver == "ranks")
            if case[1]:find "TF_CONFIG" or case[1] == "Slurm" then
              assert.equal(1, resolver.task_id)
            end
          end)
        end
      end)
      mpi.MPIClusterResolver = of_mpi
      if not done then error(why, 0) end
    end)

  -- Who does not speak is not asked: MPI would look for its own peers.
  it("is found without MPI where others speak, and not where one is given #once",
    function()
      local script = temporary [[
        local tf = require "tfdist"
        local C = tf.distribute.cluster_resolver
        local resolver = C.SimpleClusterResolver(tf.train.ClusterSpec {
          worker = { "127.0.0.1:7" } }, { task_type = "worker", task_id = 0 })
        print(require "tfdist.distribute.cluster".find().task_id)
        print(tf.distribute.MultiWorkerMirroredStrategy {
          cluster_resolver = resolver }.extended.num_workers)
        for line in io.lines "/proc/self/maps" do
          assert(not line:find "libmpi")
        end]]
      for _, case in ipairs { CASES[1], CASES[4] } do
        local words = {}
        for name, value in pairs(all_of(case)) do
          words[#words + 1] = name .. "=" .. process.quote(value)
        end
        local r = process.run(("env %s %s %s"):format(table.concat(words, " "),
          process.hosts[1].path, script), nil, 60)
        assert.equal(0, r.code, r.err)
        assert.equal("1\n1\n", r.out)
      end
    end)
end)

describe("SimpleClusterResolver", function()
  local spec = ClusterSpec { worker = { "a:1", "b:2" } }

  it("answers what it was given", function()
    local r = C.SimpleClusterResolver(spec, { master = "m:1",
      task_type = "worker", task_id = 1, environment = "e",
      num_accelerators = { GPU = 3 }, rpc_layer = "grpc" })
    assert.equal(spec, r:cluster_spec())
    assert.equal("grpc://m:1", r:master())
    assert.equal("grpc://a:1", r:master("worker", 0))
    assert.equal("http://a:1", r:master("worker", 0, "http"))
    assert.same({ "worker", 1, "e" }, { r.task_type, r.task_id, r.environment })
    assert.same({ GPU = 3 }, r:num_accelerators())
  end)

  it("refuses what is no ClusterSpec and no string", function()
    fails("TypeError", "cluster_spec must be a tf.train.ClusterSpec", function()
      C.SimpleClusterResolver { worker = { "a:1" } }
    end)
    fails("TypeError", "master must be a string", function()
      C.SimpleClusterResolver(spec, { master = 5 })
    end)
  end)
end)

describe("UnionResolver", function()
  local function simple(jobs, options)
    return C.SimpleClusterResolver(ClusterSpec(jobs), options)
  end

  it("P06 joins lists in order and indices as they are", function()
    local r = C.UnionResolver(simple({ worker = { "a:1" }, ps = { "p:1" } },
      { master = "m:1", task_type = "worker", task_id = 0 }),
      simple { worker = { "b:1", "c:1" } })
    assert.same({ worker = { "a:1", "b:1", "c:1" }, ps = { "p:1" } },
      r:cluster_spec():as_dict())
    assert.equal("m:1", r:master())
    assert.equal("c:1", r:master("worker", 2))
    assert.same({ "worker", 0 }, { r.task_type, r.task_id })
    r = C.UnionResolver(simple { worker = { [1] = "a:1", [5] = "x:1" } },
      simple { worker = { "b:1" } }, { rpc_layer = "grpc" })
    assert.same({ worker = { [0] = "b:1", [1] = "a:1", [5] = "x:1" } },
      r:cluster_spec():as_dict())
    assert.equal("grpc", r.rpc_layer)
  end)

  it("P06 refuses nothing, what is none, and an index twice", function()
    fails("ValueError", "at least one resolver", function()
      C.UnionResolver()
    end)
    fails("TypeError", "argument 2 must be a cluster resolver", function()
      C.UnionResolver(simple { worker = { "a:1" } }, 5)
    end)
    fails("ValueError", "unknown option", function()
      C.UnionResolver(simple { worker = { "a:1" } }, { rpc = "grpc" })
    end)
    fails("KeyError", 'task 0 of job "worker": a:1 and b:1', function()
      C.UnionResolver(simple { worker = { [0] = "a:1", [2] = "c:1" } },
        simple { worker = { "b:1" } }):cluster_spec()
    end)
  end)

  it("takes resolvers of the user's", function()
    local Mine = C.ClusterResolver:subclass "Mine"
    function Mine:init(address) self.address = address end
    function Mine:cluster_spec()
      return ClusterSpec { worker = { self.address } }
    end
    local r = C.UnionResolver(Mine "a:1", simple { worker = { "b:1" } })
    assert.same({ worker = { "a:1", "b:1" } }, r:cluster_spec():as_dict())
    fails("NotImplementedError", "Mine:master must be given", function()
      Mine "a:1":master()
    end)
  end)
end)

describe("SlurmClusterResolver", function()
  local function step(rank, nodes, counts, total, more)
    local variables = { SLURM_PROCID = tostring(rank),
      SLURM_STEP_NODELIST = nodes, SLURM_STEP_TASKS_PER_NODE = counts,
      SLURM_STEP_NUM_TASKS = tostring(total) }
    for name, value in pairs(more or {}) do
      variables[name] = value
    end
    return variables
  end

  it("O15 expands Slurm's short forms", function()
    assert.same({ "n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9" },
      slurm.expand_hosts "n[1-2],m5,o[3-4,6,7-9]")
    assert.same({ "n08", "n09", "n10" }, slurm.expand_hosts "n[08-10]")
    assert.same({ "r1n1", "r1n3", "r2n1", "r2n3" },
      slurm.expand_hosts "r[1-2]n[1,3]")
    assert.same({ 3, 3, 2, 1 }, slurm.expand_counts "3(x2),2,1")
    for _, bad in ipairs { "n[1-", "n[]", "n[2-1]", "n[a]", "", "a,,b", "n]",
      "n[1-99999999]" } do
      fails("ValueError", "expand_hosts: ", function()
        slurm.expand_hosts(bad)
      end)
    end
    for _, bad in ipairs { "", "2(x)", "x", "2(x0)", "2,", "-1" } do
      fails("ValueError", "is no count", function()
        slurm.expand_counts(bad)
      end)
    end
    -- Short texts that stand for more than fits into memory.
    for _, bad in ipairs { "n[1-65536],m", "n[1-65536,1-65536]",
      ("n[1-65536],"):rep(1000) .. "m" } do
      fails("ValueError", "more than 65536 hosts", function()
        slurm.expand_hosts(bad)
      end)
    end
    fails("ValueError", "more than 65536 hosts", function()
      slurm.expand_counts(("1(x65536),"):rep(1000) .. "1")
    end)
  end)

  it("O11 O12 gives the tasks of a step to jobs by rank", function()
    with_environment(step(1, "t02n[13,41,43]", "1(x3)", 3), function()
      local r = C.SlurmClusterResolver { jobs = { ps = 1, worker = 2 },
        auto_set_gpu = false }
      assert.same({ ps = { "t02n13:8888" },
        worker = { "t02n41:8888", "t02n43:8888" } },
        r:cluster_spec():as_dict())
      assert.same({ "worker", 0 }, { r.task_type, r.task_id })
      assert.equal("grpc://t02n43:8888", r:master("worker", 1))
      assert.equal("http://t02n43:8888", r:master("worker", 1, "http"))
      r.rpc_layer = "test"
      assert.equal("test://t02n43:8888", r:master("worker", 1))
      assert.equal("test://t02n41:8888", r:master())
    end)
  end)

  it("counts ports from the base on each node, all workers by default",
    function()
      with_environment(step(2, "n[9-10]", "2,1", 3), function()
        local r = C.SlurmClusterResolver { port_base = 5000 }
        assert.same({ worker = { "n9:5000", "n9:5001", "n10:5000" } },
          r:cluster_spec():as_dict())
        assert.equal(2, r.task_id)
      end)
    end)

  it("O14 gives each task its GPUs", function()
    local script = temporary [[
      local tf = require "tfdist"
      local r = tf.distribute.cluster_resolver.SlurmClusterResolver {
        jobs = { worker = 4 }, gpus_per_node = 4, gpus_per_task = 2 }
      r:cluster_spec()
      print(r.task_type, r.task_id, os.getenv "CUDA_VISIBLE_DEVICES")
    ]]
    local got = process.run("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 "
      .. "SLURM_STEP_NODELIST='t02n[13,41]' SLURM_STEP_TASKS_PER_NODE='2(x2)' "
      .. process.build .. "/tfdist " .. script)
    assert.equal(0, got.code, got.err)
    assert.equal("worker\t1\t2,3", (got.out:gsub("%s+$", "")))
  end)

  it("says what does not fit", function()
    with_environment({}, function()
      local e = fails("RuntimeError", "SLURM_PROCID is not set",
        C.SlurmClusterResolver)
      assert.is_truthy(e.hint:find "srun")
    end)
    with_environment(step(0, "n[1-2]", "1(x2)", 3), function()
      fails("RuntimeError", "2 tasks per node on 2 nodes do not make the step's "
        .. "3 tasks", C.SlurmClusterResolver)
    end)
    with_environment(step(0, "n[1-2]", "1(x2)", 2), function()
      fails("RuntimeError", "jobs have 3 tasks, the step 2", function()
        C.SlurmClusterResolver { jobs = { worker = 3 } }
      end)
      fails("RuntimeError", "do not fit on a node with 1", function()
        C.SlurmClusterResolver { gpus_per_node = 1, gpus_per_task = 2 }
      end)
    end)
    with_environment(step(2, "n[1-2]", "1(x2)", 2), function()
      fails("RuntimeError", "SLURM_PROCID is 2; the step has 2 tasks",
        C.SlurmClusterResolver)
    end)
    with_environment(step("x", "n1", "1", 1), function()
      fails("ValueError", 'SLURM_PROCID is "x"; expected a whole number',
        C.SlurmClusterResolver)
    end)
  end)
end)

describe("resolvers of other schedulers", function()
  local function pod(name, job, ip, phase)
    return { metadata = { name = name, labels = { ["job-name"] = job } },
      status = { phase = phase or "Running", hostIP = ip } }
  end

  local function pods_file(list)
    list.n = #list
    return temporary(json.encode { kind = "List", items = list })
  end

  it("Kubernetes lists the pods with a label, sorted by name", function()
    local path = pods_file { pod("tf-1", "tensorflow", "10.0.0.2"),
      pod("tf-0", "tensorflow", "10.0.0.1"), pod("other", "x", "10.0.0.9") }
    local r = C.KubernetesClusterResolver { pods_file = path }
    assert.same({ worker = { "10.0.0.1:8470", "10.0.0.2:8470" } },
      r:cluster_spec():as_dict())
    r = C.KubernetesClusterResolver { pods_file = path, tf_server_port = 2222,
      job_to_label_mapping = { ps = { "job-name=x" },
        worker = { "job-name=tensorflow" } } }
    assert.same({ ps = { "10.0.0.9:2222" },
      worker = { "10.0.0.1:2222", "10.0.0.2:2222" } },
      r:cluster_spec():as_dict())
    r.task_type, r.task_id = "worker", 1
    assert.equal("grpc://10.0.0.2:2222", r:master())
    local asked
    r = C.KubernetesClusterResolver { override_client = function(selector)
      asked = selector
      return { items = { pod("a", "b", "1.2.3.4") } }
    end }
    assert.same({ worker = { "1.2.3.4:8470" } }, r:cluster_spec():as_dict())
    assert.equal("job-name=tensorflow", asked)
  end)

  it("Kubernetes refuses pods that do not run, and no list", function()
    local path = pods_file { pod("tf-0", "tensorflow", "10.0.0.1", "Pending") }
    fails("RuntimeError", 'pod "tf%-0" is Pending; expected Running', function()
      C.KubernetesClusterResolver { pods_file = path }:cluster_spec()
    end)
    fails("ValueError", "kubectl get pods %-o json", function()
      C.KubernetesClusterResolver():cluster_spec()
    end)
    fails("NotFound", "nowhere.json", function()
      C.KubernetesClusterResolver { pods_file = "nowhere.json" }:cluster_spec()
    end)
  end)

  it("lists that are none are told, with their file", function()
    local function given(name, options, source)
      return function()
        options[name == "GCE" and "instances_file" or "pods_file"] =
          source:find "^/" and source or temporary(source)
        return C[name .. "ClusterResolver"](options):cluster_spec()
      end
    end
    for source, told in pairs {
      ['{"items": 3}'] = "expected a list of pods in items, got the number 3",
      ['{"items": null}'] = "expected a list of pods in items, got null",
      ["[]"] = "expected a list of pods in items, got nil",
      ["/tmp"] = "/tmp: Is a directory",
      ["{"] = "not JSON at line 1",
    } do
      fails("ValueError", "^KubernetesClusterResolver: .*" .. told,
        given("Kubernetes", {}, source))
    end
    -- More than a text can be; nothing of it is read.
    local endless = temporary ""
    os.execute("truncate -s 2G " .. endless)
    fails("DataLoss", endless .. ": 1 GiB or more",
      given("Kubernetes", {}, endless))
    fails("ValueError", 'expected a list of label selectors of job "worker", '
      .. "got the number 3", given("Kubernetes", { job_to_label_mapping =
        { worker = 3 } }, '{"items": []}'))
    fails("TypeError", "pods_file must be a string, got the number 3", function()
      C.KubernetesClusterResolver { pods_file = 3 }
    end)
    for source, told in pairs {
      ['{"items": 3}'] = "expected a list of instances, got the number 3",
      ['{"error": "no"}'] = "expected a list of instances, got a table",
    } do
      fails("ValueError", "^GCEClusterResolver: " .. told,
        given("GCE", {}, source))
    end
    fails("TypeError", "override_client must be a function", function()
      C.GCEClusterResolver { override_client = "gcloud" }
    end)
  end)

  it("GCE lists the running instances of a group", function()
    local function instance(name, group, ip, status)
      return { name = name, status = status or "RUNNING",
        zone = "https://x/zones/us-east1-d",
        metadata = { items = { { key = "created-by",
          value = "projects/1/zones/z/instanceGroupManagers/" .. group } } },
        networkInterfaces = { { networkIP = ip } } }
    end
    local r = C.GCEClusterResolver { project = "p", zone = "us-east1-d",
      instance_group = "g", port = 8470, task_id = 1,
      override_client = function(project, zone, group)
        assert.same({ "p", "us-east1-d", "g" }, { project, zone, group })
        return json.encode { n = 2, instance("b", "g", "10.1.2.4"),
          instance("a", "g", "10.1.2.3") }
      end }
    assert.same({ worker = { "10.1.2.3:8470", "10.1.2.4:8470" } },
      r:cluster_spec():as_dict())
    assert.equal("grpc://10.1.2.4:8470", r:master())
    local path = temporary(json.encode { n = 4, instance("a", "g", "10.1.2.3"),
      instance("b", "h", "10.1.2.4"), instance("c", "g", "10.1.2.5", "STOPPED"),
      instance("d", "g", "10.1.2.6") })
    r = C.GCEClusterResolver { instance_group = "g", instances_file = path }
    assert.same({ worker = { "10.1.2.3:8470", "10.1.2.6:8470" } },
      r:cluster_spec():as_dict())
  end)

  it("SageMaker lists its hosts", function()
    with_environment({ SM_HOSTS = '["algo-2","algo-1"]',
      SM_CURRENT_HOST = "algo-2" }, function()
      local r = C.SageMakerClusterResolver()
      assert.same({ worker = { "algo-1:2223", "algo-2:2223" } },
        r:cluster_spec():as_dict())
      assert.same({ "worker", 1 }, { r.task_type, r.task_id })
      assert.equal("grpc://algo-2:2223", r:master())
    end)
    with_environment({ SM_HOSTS = '{"a":1}' }, function()
      fails("ValueError", "SM_HOSTS must be a list", C.SageMakerClusterResolver)
    end)
    with_environment({ SM_HOSTS = '["a","b"]', SM_CURRENT_HOST = "c" },
      function()
        fails("ValueError", 'SM_CURRENT_HOST is "c"; expected one of SM_HOSTS: '
          .. '%["a","b"%]', C.SageMakerClusterResolver)
      end)
  end)
end)

describe("roles", function()
  local with_chief = ClusterSpec { chief = { "a:1" },
    worker = { "b:1", "c:1" }, ps = { "p:1" }, evaluator = { "e:1" } }
  local workers = ClusterSpec { worker = { "b:1", "c:1" } }

  it("P01 say who is chief, how many work, and where one stands", function()
    assert.is_true(roles.is_chief(with_chief, "chief", 0))
    assert.is_false(roles.is_chief(with_chief, "worker", 0))
    assert.is_true(roles.is_chief(with_chief, "evaluator", 0))
    assert.is_true(roles.is_chief(workers, "worker", 0))
    assert.is_false(roles.is_chief(workers, "worker", 1))
    assert.equal(3, roles.worker_count(with_chief, "chief"))
    assert.equal(1, roles.worker_count(with_chief, "evaluator"))
    assert.equal(2, roles.worker_count(workers, "worker"))
    assert.equal(0, roles.id_in_cluster(with_chief, "chief", 0))
    assert.equal(2, roles.id_in_cluster(with_chief, "worker", 1))
    assert.equal(1, roles.id_in_cluster(workers, "worker", 1))
    assert.equal(0, roles.id_in_cluster(with_chief, "evaluator", 0))
    for _, fn in ipairs { roles.worker_count, roles.id_in_cluster } do
      fails("ValueError", "a parameter server has no", function()
        fn(with_chief, "ps", 0)
      end)
    end
  end)

  it("P02 refuse what no cluster is", function()
    local cases = {
      { ClusterSpec { chief = { "a:1", "b:1" } }, "chief", 0, "one chief" },
      { ClusterSpec { evaluator = { "a:1", "b:1" } }, "evaluator", 0,
        "one evaluator" },
      { workers, "boss", 0, "of type chief, worker, ps or evaluator" },
      { workers, "chief", 0, 'there is no job "chief"' },
      { workers, "worker", 2, "out of range, job 'worker' has 2 tasks" },
      { nil, "worker", 0, "may be nil" }, { workers, nil, 0, "may be nil" },
    }
    for _, case in pairs(cases) do
      fails("ValueError", case[4], function()
        roles.is_chief(case[1], case[2], case[3])
      end)
    end
  end)
end)
