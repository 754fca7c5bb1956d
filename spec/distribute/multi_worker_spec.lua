--- MultiWorkerMirroredStrategy over real processes. Expected values are closed
--- forms over the replicas' numbers r = 0 .. N - 1.
local files = require "spec.support.files"
local process = require "spec.support.process"
local workers = require "spec.support.workers"

-- What all programs begin with.
local HEAD = workers.HEAD

local function every_shape(test)
  for _, host in ipairs(process.hosts) do
    for _, R in ipairs { 1, 2 } do
      test(R, host)
    end
  end
end

local function outputs(program, R, host, more)
  local given = { program = HEAD .. program, devices = R, host = host.path }
  for key, value in pairs(more or {}) do
    given[key] = value
  end
  return workers.outputs(given)
end

-- Lines that both workers print alike.
local function same(lines, outs)
  for _, out in ipairs(outs) do
    assert.equal(table.concat(lines, "\n") .. "\n", out)
  end
end

local function sum(N, f)
  local total = 0
  for r = 0, N - 1 do
    total = total + f(r)
  end
  return ("%g"):format(total)
end

describe("MultiWorkerMirroredStrategy #once", function()
  every_shape(function(R, host)
    local N = 2 * R
    local name = (" (2 x %d, %s)"):format(R, host.name)

    it("says who is who" .. name, function()
      local outs = outputs([[
        local e, c = s.extended, s.cluster_resolver
        print(s.num_replicas_in_sync, e.num_workers, e.worker_index)
        print(e.should_checkpoint, e.should_save_summary, e.is_chief,
          e.experimental_between_graph, e.experimental_should_init,
          #e.worker_devices)
        print(c.task_type, c.task_id, c:cluster_spec():num_tasks "worker",
          s:scope(function() return s.cluster_resolver == c end))
        print(locals(s:run(function() return tf.constant(id()) end)))
        print((tostring(s):gsub("^.*}  ", "")))
      ]], R, host)
      for w = 0, 1 do
        local ids = { w * R, R == 2 and w * R + 1 or nil }
        local chief = tostring(w == 0)
        assert.equal(table.concat({
          ("%d\t2\t%d"):format(N, w),
          ("%s\t%s\t%s\ttrue\ttrue\t%d"):format(chief, chief, chief, R),
          ("worker\t%d\t2\ttrue"):format(w), table.concat(ids, " | "),
          ("%d replicas in sync, worker %d of 2"):format(N, w) }, "\n") .. "\n",
          outs[w + 1])
      end
    end)

    it("reduces over all replicas" .. name, function()
      local outs = outputs([[
        local per = s:run(function() return tf.constant { id(), 2.0 * id() } end)
        for _, op in ipairs { "SUM", "MEAN", "MIN", "MAX", "PROD" } do
          print(show(s:reduce(op, per)))
        end
        local ints = s:run(function() return tf.constant(id() + 1, "int32") end)
        print(show(s:reduce("SUM", ints)), show(s:reduce("MEAN", ints)))
        -- what a process has, not its replicas: once for each process
        print(show(s:reduce("SUM", 1.0)), show(s:reduce("MEAN", 3.0)),
          show(s:reduce("SUM", tf.constant { 1.0, 2.0 })))
        -- along an axis: r + 1 times r
        local rows = s:run(function() return tf.fill({ id() + 1 }, id() + 0.0) end)
        print(show(s:reduce("SUM", rows, 0)), show(s:reduce("MEAN", rows, 0)))
        -- nested
        local both = s:run(function() return { a = tf.constant(id() + 0.0),
          b = tf.constant(1.0) } end)
        local out = s:reduce("SUM", both)
        print(show(out.a), show(out.b))
      ]], R, host)
      local product = 1
      for r = 0, N - 1 do
        product = product * r
      end
      local ids = sum(N, function(r) return r end)
      local all = N * (N + 1) / 2
      local squares = sum(N, function(r) return r * (r + 1) end)
      same({
        ids .. " " .. 2 * ids, ("%g %g"):format(ids / N, 2 * ids / N), "0 0",
        ("%g %g"):format(N - 1, 2 * (N - 1)), "0 0",
        ("%g\t%g"):format(all, all / N),
        "2\t3\t2 4",
        ("%s\t%g"):format(squares, squares / all),
        ("%s\t%d"):format(ids, N),
      }, outs)
    end)

    it("gathers, reduces and merges in replicas" .. name, function()
      local outs = outputs([[
        local ragged = function()
          return tf.fill({ 1, id() + 1 }, id() + 0.0)
        end
        print(show(s:gather(s:run(ragged), 1)))
        print(show(s:gather(tf.constant { 7.0 }, 0)))
        local function context()
          return tf.distribute.get_replica_context()
        end
        print(locals(s:run(function()
          return context():all_reduce("SUM", { tf.constant(id() + 1.0) })[1]
        end)))
        print(locals(s:run(function()
          return context():all_gather(ragged(), 1)
        end)))
        print(locals(s:run(function()
          return context():reduce_scatter("SUM",
            tf.range(context().num_replicas_in_sync) + id())
        end)))
        print(s:run(function()
          return context():merge_call(function(strategy, x)
            return strategy:reduce("MEAN", x):item()
          end, { tf.constant(id() * 2.0) })
        end))
        local N = s.num_replicas_in_sync
        -- gradients: of a sum the sum; of a gather each one's own part
        print(locals(s:run(function()
          local x = tf.constant(1.0 + id())
          local tape, y = tf.GradientTape(function(t)
            t:watch(x)
            return context():all_reduce("SUM", x * x)
          end)
          return tape:gradient(y, x, { output_gradients =
            tf.constant(id() + 1.0) })
        end)))
        print(locals(s:run(function()
          local x = ragged()
          local tape, y = tf.GradientTape(function(t)
            t:watch(x)
            return context():all_gather(x, 1) * tf.range(
              N * (N + 1) / 2, { dtype = "float32" }) * (id() + 1.0)
          end)
          return tape:gradient(y, x)
        end)))
      ]], R, host)
      local gathered = {}
      for r = 0, N - 1 do
        for _ = 0, r do
          gathered[#gathered + 1] = r
        end
      end
      gathered = table.concat(gathered, " ")
      local function each(w, f)
        return f(w * R) .. (R == 2 and " | " .. f(w * R + 1) or "")
      end
      local all = N * (N + 1) / 2
      for w = 0, 1 do
        assert.equal(table.concat({
          gathered, "7 7",
          each(w, function() return ("%g"):format(all) end),
          each(w, function() return gathered end),
          each(w, function(r) return ("%g"):format(N * r + N * (N - 1) / 2) end),
          ("%.1f"):format(N - 1):gsub("%.0$", host.lua == "luajit" and "" or ".0"),
          each(w, function(r) return ("%g"):format(2 * (r + 1) * all) end),
          each(w, function(r)
            local parts = {}
            for i = 0, r do
              parts[i + 1] = ("%g"):format(all * (r * (r + 1) / 2 + i))
            end
            return table.concat(parts, " ")
          end),
        }, "\n") .. "\n", outs[w + 1])
      end
    end)

    it("makes variables of the chief's values" .. name, function()
      local outs = outputs([[
        local w = s.extended.worker_index
        local v, total, mean, first = s:scope(function()
          local function on_read(aggregation)
            return tf.Variable(1.0, { synchronization = "ON_READ",
              aggregation = aggregation })
          end
          return tf.Variable({ 1.0 + w, 2.0 + w }, { name = "v" }),
            on_read "SUM", on_read "MEAN", on_read "ONLY_FIRST_REPLICA"
        end)
        print(locals(v))
        print(show(total), show(mean), show(first)) -- N ones, one, one
        s:run(function()
          total:assign_add(id() + 0.0)
          mean:assign(id() + 0.0)
          first:assign(id() + 5.0)
        end)
        print(show(total), show(mean), show(first))
        total:assign(8.0)
        print(show(s:experimental_local_results(total)[1]), show(total))
        -- written together
        local t = s:scope(function()
          return { sum = tf.Variable(1.0, { aggregation = "SUM" }),
            mean = tf.Variable(1.0, { aggregation = "MEAN" }),
            first = tf.Variable(1.0, { aggregation = "ONLY_FIRST_REPLICA" }) }
        end)
        s:run(function()
          for _, each in pairs { "sum", "mean", "first" } do
            t[each]:assign_add(tf.constant(id() + 1.0))
          end
        end)
        print(locals(t.sum), locals(t.mean), locals(t.first))
        -- made in a replica
        local inside
        s:run(function()
          inside = inside or tf.Variable(10.0 + w)
        end)
        print(locals(inside))
      ]], R, host)
      local function alike(x)
        return R == 1 and x or x .. " | " .. x
      end
      local ids = N * (N - 1) / 2
      same({
        alike "1 2",
        ("%d\t1\t1"):format(N),
        ("%g\t%g\t5"):format(N + ids, ids / N),
        ("%g\t8"):format(8 / N),
        ("%s\t%s\t%s"):format(alike(("%g"):format(1 + ids + N)),
          alike(("%g"):format(1 + ids / N + 1)), alike "2"),
        alike "10",
      }, outs)
    end)
  end)

  it("gives up on workers that do not come, with status 2", function()
    local r = workers.run { program = HEAD, only = { [0] = true },
      environment = "TFDIST_RENDEZVOUS_TIMEOUT=1" }[1]
    assert.equal(2, r.code, r.err)
    assert.truthy(r.err:find("DeadlineExceeded", 1, true), r.err)
    assert.truthy(r.err:find "127%.0%.0%.1:%d+", r.err)
  end)

  it("tells a worker that gave up from one that never came", function()
    local wanted = "process 1 %(127%.0%.0%.1:%d+%): was here and has ended; "
      .. "process 2 %(127%.0%.0%.1:%d+%): not heard of\n"
    local rs
    -- On a machine that is busy the first may not meet the second in its time.
    for _ = 1, 5 do
      rs = workers.run { n = 3, only = { [0] = true, [1] = true },
        program = HEAD, each = function(i)
          return "TFDIST_RENDEZVOUS_TIMEOUT=" .. (i == 0 and 2 or 1)
        end }
      if rs[1].err:find(wanted) then break end
    end
    assert.matches(wanted, rs[1].err)
    assert.same({ 2, 2 }, { rs[1].code, rs[2].code })
  end)

  it("names the transports that there are, with status 2", function()
    for _, r in ipairs(workers.run { program = HEAD,
      environment = "TFDIST_TRANSPORT=pigeon" }) do
      assert.equal(2, r.code, r.err)
      assert.matches("NotFound: TFDIST_TRANSPORT is \"pigeon\", expected shm, "
        .. "tcp, ring, halving, doubling, hierarchical, or the name of a "
        .. "plug%-in", r.err)
    end
  end)

  it("names who has its port, with status 2", function()
    local r = process.run(("perl -e %s"):format(process.quote(
      [[use Socket; $0 = "holder"; socket(my $s, PF_INET, SOCK_STREAM, 0);
      bind($s, sockaddr_in(0, INADDR_LOOPBACK)); listen($s, 1);
      my ($p) = sockaddr_in(getsockname $s);
      $ENV{TF_CONFIG} = qq({"cluster": {"worker": ["127.0.0.1:$p",
      "127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}});
      print "$$\n"; $| = 1; system(@ARGV); print $? >> 8]]) .. " "
      .. process.hosts[1].path .. " -e " .. process.quote(HEAD)))
    local pid, code = r.out:match "^(%d+)\n(%d+)$"
    assert.equal("2", code, r.out .. r.err)
    assert.truthy(r.err:find("cannot listen on 127%.0%.0%.1:%d+: Address already "
      .. "in use %(pid " .. pid .. " '"), r.err)
  end)

  -- Neither waits for the other; 127.1 is 127.0.0.1 to the system.
  it("names two workers that have one address, with status 2", function()
    local port = workers.ports(1)[1]
    for i = 0, 1 do
      local r = process.run(("TF_CONFIG=%s %s -e %s"):format(process.quote(
        ([[{"cluster": {"worker": ["127.1:%s", "127.0.0.1:%s"]},
        "task": {"type": "worker", "index": %d}}]]):format(port, port, i)),
        process.hosts[1].path, process.quote(HEAD)), nil, 20)
      assert.equal(2, r.code, r.err)
      assert.matches(("FailedPrecondition: group: process 0 (127.1:%s) and "
        .. "process 1 (127.0.0.1:%s) have one address"):format(port, port), r.err,
        1, true)
    end
  end)

  it("waits for a port whose holder ends", function()
    for _, r in ipairs(workers.run { program = HEAD,
      environment = "TFDIST_FAILPOINTS='net.listen=eaddrinuse@1@rank1'" }) do
      assert.equal(0, r.code, r.err)
    end
  end)

  it("says that an address is not this machine's, with status 2", function()
    local r = process.run(("TFDIST_INSECURE=1 TF_CONFIG=%s %s -e %s"):format(
      process.quote [[{"cluster": {"worker": ["203.0.113.1:2222",
      "203.0.113.2:2222"]}, "task": {"type": "worker", "index": 0}}]],
      process.hosts[1].path, process.quote(HEAD)))
    assert.equal(2, r.code, r.err)
    assert.truthy(r.err:find("this machine has none of that address", 1, true),
      r.err)
  end)

  it("says how many workers there can be, with status 2", function()
    local r = workers.run { program = HEAD, n = 65, only = { [0] = true } }[1]
    assert.equal(2, r.code, r.err)
    assert.truthy(r.err:find("serves up to 64 processes, not 65", 1, true),
      r.err)
  end)

  it("refuses workers of another version or build", function()
    local function of_chief(name)
      return process.run(process.hosts[1].path .. " -e " .. process.quote(
        'io.write(require "tfdist.core.raw".' .. name .. "())")).out
    end
    local version, build = of_chief "version", of_chief "build_id"
    assert.matches("^%x+$", build)
    local lua_part = process.run(process.hosts[1].path
      .. [[ -e 'print(select(2, pcall(require, "tfdist.lua_id")))']]).out
      :match "%S+"
    assert.matches("^%x+$", lua_part)
    for name, words in pairs { version = "9.9, build " .. build,
      build_id = version .. ", build 9.9", lua_id = version .. ", build "
      .. build .. ", Lua part 99" } do
      local rs = workers.run { program = [[
        local raw = require "tfdist.core.raw"
        local other = os.getenv "OTHER"
        if other == "lua_id" then
          package.preload["tfdist.lua_id"] = function() return "99" end
        elseif other then
          raw[other] = function() return "9.9" end
        end
        ]] .. HEAD .. 's:reduce("SUM", 1.0)',
        each = function(i) return i == 1 and "OTHER=" .. name or "" end }
      assert.same({ 75, 2 }, { rs[1].code, rs[2].code }, rs[1].err .. rs[2].err)
      for _, r in ipairs(rs) do
        assert.truthy(r.err:find(("worker 0 runs tfdist %s, build %s, Lua part "
          .. "%s; worker 1 runs tfdist %s"):format(version, build, lua_part,
          words), 1, true), r.err)
      end
    end
  end)

  it("runs a script that came through a pipe", function()
    local list = {}
    for i = 1, 2 do
      list[i] = process.file(""):gsub("$", ".pipe")
      os.execute(("mkfifo %s; timeout 20 sh -c %s >/dev/null 2>&1 &"):format(
        list[i], process.quote(("echo %s >%s"):format(process.quote(
        workers.HEAD:gsub("\n", " ") .. "print(s:reduce('sum', 1))"), list[i]))))
    end
    local rs = workers.run { program = "", seconds = 20, script = function(i)
      return list[i + 1]
    end }
    for i, r in ipairs(rs) do
      os.remove(list[i])
      os.remove((list[i]:gsub("%.pipe$", "")))
      assert.are.same({ 0, "2\n" }, { r.code, r.out }, r.err)
    end
  end)

  it("says when scripts differ, and goes on", function()
    local other = process.file(HEAD .. "-- other\n", ".lua")
    local rs = workers.run { program = HEAD, script = function(i)
      return i == 1 and other or nil
    end }
    os.remove(other)
    assert.same({ 0, 0 }, { rs[1].code, rs[2].code }, rs[2].err)
    assert.truthy(rs[2].err:find("worker 1 runs another script than worker 0: "
      .. "[^\n]*" .. other:gsub("%p", "%%%0")), rs[2].err)
    assert.is_nil(rs[1].err:find("another script", 1, true))
  end)

  -- One build has both hosts, whose numbers are the library's.
  it("runs one script on both hosts, and draws by the chief's seed", function()
    local function bits(of, seed)
      local rs = workers.run { host = "sh -c 'exec $HOST \"$@\"' -",
        each = function(i) return "HOST=" .. process.hosts[of[i + 1]].path end,
        arguments = function() return seed or 5 end, program = HEAD .. [[
          tf.random.set_seed(w == 0 and 5 or tonumber(arg[1]))
          local m = s:scope(function()
            local m = tf.keras.Sequential { tf.keras.layers.Dense(2) }
            m:compile { optimizer = tf.keras.optimizers.SGD(0.1), loss = "mse" }
            return m
          end)
          local x = tf.reshape(tf.range(16, { dtype = "float32" }) / 7, { 8, 2 })
          local loss = m:fit(tf.data.Dataset.from_tensor_slices { x, x }
            :shuffle(8):map(function(a) return a, a * 0.5 end):batch(4), {
            epochs = 3, verbose = 0 }).history.loss
          for i = 1, 3 do io.write(("%.17g "):format(loss[i])) end
          local v = m.variables[1]:read_value():reshape { -1 }:totable()
          for i = 1, 4 do io.write(("%.17g "):format(v[i])) end]] }
      for i = 1, 2 do assert.equal(0, rs[i].code, rs[i].err) end
      assert.equal(rs[1].out, rs[2].out)
      return rs[1].out
    end
    local alike = bits { 1, 1 }
    assert.equal(alike, bits { 1, 2 })
    assert.equal(alike, bits { 2, 1 })
    assert.equal(alike, bits({ 1, 1 }, 9))
  end)

  it("takes no secret that others can read", function()
    local path = process.file "a secret\n"
    for mode, code in pairs { ["644"] = 2, ["600"] = 0 } do
      os.execute(("chmod %s %s"):format(mode, path))
      for _, r in ipairs(workers.run { program = HEAD,
        environment = "TFDIST_SECRET_FILE=" .. path }) do
        assert.equal(code, r.code, r.err)
        assert.equal(code == 2, r.err:find("chmod 600 " .. path, 1, true)
          ~= nil, r.err)
      end
    end
    os.remove(path)
    local r = workers.run { program = HEAD, environment = "TFDIST_SECRET_FILE="
      .. path }
    assert.same({ 2, 2 }, { r[1].code, r[2].code })
  end)

  it("says at once what is no file with a secret, and which variable names it",
    function()
      files.in_folder(function(folder)
        local path = folder .. "/secret"
        for make, says in pairs {
          ["mkfifo -m 600 %s"] = "FailedPrecondition: secret: %s is no file",
          ["mkdir -m 700 %s"] = "FailedPrecondition: secret: %s is no file",
          ["ln -s /dev/zero %s"] = "FailedPrecondition: secret: %s is no file",
          ["install -m 600 /dev/null %s"] =
            "InvalidArgument: secret: %s is empty",
          ["truncate -s 1G %s; chmod 600 %s"] =
            "InvalidArgument: secret: %s has more than 4096 bytes",
          ["ln -s secret %s"] = "FailedPrecondition: secret: cannot read %s: ",
          ["true %s"] = "NotFound: secret: cannot read %s: ",
        } do
          os.execute("rm -rf " .. path)
          os.execute((make:gsub("%%s", path)))
          local r = workers.run { program = HEAD, only = { [0] = true },
            seconds = 20, environment = "TFDIST_SECRET_FILE=" .. path }[1]
          assert.equal(2, r.code, make .. r.err)
          assert.truthy(r.err:find(says:format(path), 1, true), r.err)
          assert.matches("hint: TFDIST_SECRET_FILE names a file", r.err, 1, true)
        end
      end)
    end)

  it("refuses workers with another secret", function()
    -- The first one listens until the second has been refused.
    local rs = files.in_folder(function(folder)
      return workers.run { program = 'local FOLDER = os.getenv "FOLDER"\n'
        .. workers.TALK .. [[
          local tf = require "tfdist"
          local ok, e
          repeat
            ok, e = pcall(tf.distribute.MultiWorkerMirroredStrategy)
            if os.getenv "TFDIST_SECRET" == "s1" then put "refused" end
          until io.open(FOLDER .. "/refused")
          assert(not ok)
          error(e, 0)]],
        each = function(i)
          return ("FOLDER=%s TFDIST_SECRET=s%d TFDIST_RENDEZVOUS_TIMEOUT=%d")
            :format(folder, i, i == 0 and 1 or 100)
        end }
    end)
    assert.same({ 2, 2 }, { rs[1].code, rs[2].code }, rs[2].err)
    assert.truthy(rs[2].err:find("FailedPrecondition", 1, true), rs[2].err)
  end)

  it("checks what it is given", function()
    local r = workers.run { n = 1, program = [[
      local tf = require "tfdist"
      local M = tf.distribute.MultiWorkerMirroredStrategy
      local R = tf.distribute.cluster_resolver
      local function fails(fn, ...)
        local ok, e = pcall(fn, ...)
        print(not ok and e.kind .. ": " .. e.message)
      end
      fails(M, { cluster_resolver = 3 })
      fails(M, { communication_options = "no" })
      fails(tf.distribute.experimental.MultiWorkerMirroredStrategy, "gloo")
      fails(M, { comunication_options = {} })
      local two = tf.train.ClusterSpec { worker = { "a:1", "b:1" } }
      fails(M, { cluster_resolver = R.SimpleClusterResolver(two) })
      fails(M, { cluster_resolver = R.SimpleClusterResolver(two, {
        task_type = "worker", task_id = 2 }) })
      fails(M, { cluster_resolver = R.SimpleClusterResolver(
        tf.train.ClusterSpec { worker = { "a:1" }, ps = { "b:1" } },
        { task_type = "ps", task_id = 0 }) })
      fails(M, { cluster_resolver = R.SimpleClusterResolver(two, {
        task_type = "worker", task_id = 0 }) })
      local s = tf.distribute.experimental.MultiWorkerMirroredStrategy("ring")
      print(s.name, s.communication_options.implementation)
    ]] }[1]
    assert.equal(0, r.code, r.err)
    local wanted = {
      "ValueError: .*cluster_resolver must be a cluster resolver, got the number 3",
      "ValueError: .*must be CommunicationOptions, got",
      "ValueError: .*AUTO, RING, NCCL, MPI",
      "ValueError: .*unknown option \"comunication_options\"",
      "ValueError: .*task_id",
      "ValueError: task id 2", "ValueError: .*this process is ps 0",
      "FailedPrecondition: .*secret", "MultiWorkerMirroredStrategy\tRING",
    }
    local at = 0
    for line in r.out:gmatch "[^\n]+" do
      at = at + 1
      assert.truthy(line:find("^" .. wanted[at]), line)
    end
    assert.equal(#wanted, at)
  end)

  it("works alone without a cluster", function()
    for _, environment in ipairs { "", "TFDIST_AUTO_CLUSTER=0 " } do
      local script = process.file(HEAD .. [[
        print(s.num_replicas_in_sync, s.extended.num_workers,
          s.extended.is_chief, s.cluster_resolver.task_type,
          s.cluster_resolver.task_id)
        local v = s:scope(function() return tf.Variable(1.0) end)
        s:run(function() v:assign_add(id() + 1.0) end)
        print(locals(v))
      ]], ".lua")
      local r = process.run(("env -u TF_CONFIG %s TFDIST_CPU_DEVICES=2 %s %s")
        :format(environment, process.hosts[1].path, script))
      os.remove(script)
      assert.equal("2\t1\ttrue\tworker\t0\n2 | 3\n", r.out, r.err)
      assert.equal("tfdist: no cluster: one worker\n", r.err)
    end
  end)
end)
