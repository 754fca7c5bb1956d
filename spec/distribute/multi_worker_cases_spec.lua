--- What the reference says of MultiWorkerMirroredStrategy, case by case, on
--- workers that are processes.
local files = require "spec.support.files"
local process = require "spec.support.process"
local workers = require "spec.support.workers"

local HEAD = workers.HEAD .. [[
local function fails(fn, ...)
  local ok, e = pcall(fn, ...)
  print(ok and "nothing raised" or e.kind, (ok and "" or e.message))
end
]]

-- The program's output, the same in every worker, on 2 x 1 and 2 x 2.
local function both(wanted, program)
  for devices = 1, 2 do
    for _, out in ipairs(workers.outputs { program = HEAD .. program,
      devices = devices }) do
      assert.equal(wanted[devices], (out:gsub("\n$", "")))
    end
  end
end

local function alike(x)
  return { x, (x:gsub("[^\n]+", "%0 | %0")) }
end

describe("cases of MultiWorkerMirroredStrategy #once", function()
  it("D12 _update works on this replica's copy", function()
    both(alike "1\n8\n2", [[
      local v = s:scope(function() return tf.Variable(5.0) end)
      for _, op in ipairs { "assign", "assign_add", "assign_sub" } do
        v:assign(op == "assign" and 5.0 or 5.0)
        s:run(function()
          local context = tf.distribute.get_replica_context()
          for _, x in ipairs { tf.constant(2.0), 1.0 } do
            context:_update(v, function(copy, value)
              return copy[op](copy, value)
            end, { x })
          end
        end)
        print(locals(v))
      end
    ]])
  end)

  it("F20 has a cluster_resolver in and out of the scope", function()
    local jobs = { { "chief", 1 }, { "worker", 2 } }
    local outs = workers.outputs { jobs = jobs, program = HEAD .. [[
      local c = s.cluster_resolver
      print(s:scope(function() return rawequal(c, s.cluster_resolver) end),
        c.task_type, c.task_id, c:cluster_spec():num_tasks "worker",
        c:master() ~= "", next(c:num_accelerators()))
      print(s.extended.num_workers, w, s.extended.is_chief,
        s:reduce("SUM", w):item())
      local v = s:scope(function() return tf.Variable(w + 3.0) end)
      print(locals(v))
    ]] }
    for i, task in ipairs { "chief\t0", "worker\t0", "worker\t1" } do
      local lines = ("true\t%s\t2\ttrue\tnil\n3\t%d\t%s\t3.0\n3\n"):format(task,
        i - 1, tostring(i == 1))
      assert.equal(lines, outs[i])
    end
  end)

  it("an evaluator is alone", function()
    local outs = workers.outputs { jobs = { { "evaluator", 1 },
      { "worker", 2 } }, program = HEAD .. [[
      print(s.cluster_resolver.task_type, s.extended.num_workers,
        s.extended.should_checkpoint, s.num_replicas_in_sync)
    ]] }
    assert.same({ "evaluator\t1\ttrue\t1\n", "worker\t2\ttrue\t2\n",
      "worker\t2\tfalse\t2\n" }, outs)
  end)

  it("G18 reduces what the hosts have", function()
    both({ "2.0", "2.0" }, [[print(s:reduce("SUM", 1.0):item())]])
  end)

  it("H06 refuses to gather other shapes, on all workers", function()
    for _, out in ipairs(workers.outputs { program = HEAD .. [[
      local per = s:run(function() return tf.ones { 1, id() + 1 } end)
      fails(s.gather, s, per, 0)
      fails(s.gather, s, s:run(function() return tf.constant(1.0) end), 0)
      print(s:reduce("SUM", 1.0):item())
    ]] }) do
      assert.truthy(out:find("^InvalidArgument\t.*{1, 2}.*{1, 1}"), out)
      assert.truthy(out:find("\nValueError\t.*scalars", 1), out)
      assert.truthy(out:find "\n2.0\n$")
    end
  end)

  it("messages number replicas among those of all workers", function()
    for i, out in ipairs(workers.outputs { devices = 2, program = HEAD .. [[
      local context = tf.distribute.get_replica_context
      local function is_last() return id() == 2 * w + 1 end
      local v, other = s:scope(function()
        return tf.Variable(1.0), tf.Variable(1.0)
      end)
      local sgd = s:scope(tf.keras.optimizers.SGD)
      local rows = tf.constant({ 0 }, "int32")
      fails(s.run, s, function()
        context():all_reduce("SUM", tf.ones { id() + 1 })
      end)
      fails(s.reduce, s, "SUM", s:run(function()
        return tf.IndexedSlices(tf.ones { 1 }, rows, { id() + 1 })
      end))
      fails(s.reduce, s, "SUM", s:run(function()
        return not is_last() and tf.ones { 1 } or nil
      end))
      fails(s.run, s, function() return { [is_last() and "a" or "b"] = 1 } end)
      fails(s.run, s, function()
        sgd:apply_gradients({ tf.ones {} }, { is_last() and v or other })
      end)
    ]] }) do
      local first, last = 2 * i - 2, 2 * i - 1
      local lines = {}
      for line in out:gmatch "[^\n]+" do
        lines[#lines + 1] = line
      end
      for k, wanted in ipairs {
        ("replica %d .*, replica %d "):format(last, first),
        ("replica %d and of replica %d "):format(last, first),
        ("replica %d has nil"):format(last),
        ("replica %d .* than replica %d;"):format(last, first),
        ("on replica %d .* on replica %d"):format(last, first),
      } do
        assert.truthy((lines[k] or ""):find(wanted), wanted .. " in " .. out)
      end
    end
  end)

  it("a variable must have the chief's shape", function()
    for i, out in ipairs(workers.outputs { program = HEAD .. [[
      s:scope(function()
        fails(tf.Variable, tf.ones { 2, 2 + w }, { name = "kernel" })
      end)
    ]] }) do
      assert.truthy(out:find('^InvalidArgument\t.*"kernel".*{2, 3}.*{2, 2}'),
        i .. out)
    end
  end)

  it("reduces mirrored values to themselves", function()
    both({ "3.0\nAssertionError", "3.0\nAssertionError" }, [[
      local v = s:scope(function() return tf.Variable(3.0) end)
      print(s:reduce("MEAN", v):item())
      local ok, e = pcall(s.reduce, s, "SUM", v)
      print(ok or e.kind)
    ]])
  end)

  it("slices are added up over all workers", function()
    local program = HEAD .. [[
      local emb, dense, optimizer = s:scope(function()
        return tf.Variable(tf.reshape(tf.range(12, { dtype = "float32" }),
          { 6, 2 })), tf.Variable { 1.0, -1.0 },
          tf.keras.optimizers.Adam(0.1)
      end)
      local ds = s:experimental_distribute_dataset(
        tf.data.Dataset.from_tensor_slices(tf.constant({ 0, 1, 1, 5, 2, 1, 3, 3,
        0, 4, 5 }, "int32")):batch(4):repeat_(3))
      for ids in ds:iter() do
        s:run(function(ids)
          local tape, loss = tf.GradientTape(function()
            return tf.reduce_sum((tf.gather(emb, ids) * dense) ^ 2) / 4
          end)
          optimizer:apply_gradients(tape:gradient(loss, { emb, dense }),
            { emb, dense })
        end, { ids })
      end
      for _, v in ipairs { emb, dense } do
        for _, x in ipairs(v:read_value():reshape({ -1 }):totable()) do
          print(("%.9g"):format(x))
        end
      end
    ]]
    local script = process.file(program, ".lua")
    local r = process.run(("env -u TF_CONFIG %s %s"):format(
      process.hosts[1].path, script))
    os.remove(script)
    assert.equal(0, r.code, r.err)
    for devices = 1, 2 do
      local outs = workers.outputs { program = program, devices = devices }
      assert.equal(outs[1], outs[2])
      local a, b = r.out:gmatch "%S+", outs[1]:gmatch "%S+"
      for x in a do
        local y = tonumber(b())
        assert.is_true(math.abs(x - y) <= 1e-5 * math.abs(x), x .. " " .. y)
      end
    end
  end)

  it("FILE gives each worker its files", function()
    local outs = files.in_folder(function(folder)
      for k = 1, 4 do
        local f = assert(io.open(("%s/%d.txt"):format(folder, k), "w"))
        for i = 1, 3 do
          f:write(k * 10 + i, "\n")
        end
        f:close()
      end
      return workers.outputs { arguments = function() return folder end,
        program = HEAD .. [[
          local files = {}
          for k = 1, 4 do
            files[k] = ("%s/%d.txt"):format(arg[1], k)
          end
          local ds = tf.data.TextLineDataset(files):map(function(line)
            return tf.constant(tonumber(line))
          end):batch(4)
          local dist = s:experimental_distribute_dataset(ds)
          assert(dist:explain():find("AUTO: the source reads files", 1, true))
          local seen = {}
          for x in dist:iter() do
            seen[#seen + 1] = locals(x)
          end
          print(table.concat(seen, ","))
        ]] }
    end)
    assert.same({ "11 12,13 31,32 33\n", "21 22,23 41,42 43\n" }, outs)
  end)

  it("an operation that takes too long fails on all", function()
    local rs = files.in_folder(function(folder)
      return workers.run { program = 'local FOLDER = os.getenv "FOLDER"\n'
        .. workers.TALK .. [[
        local tf = require "tfdist"
        local s = tf.distribute.MultiWorkerMirroredStrategy {
          communication_options = {
            timeout_seconds = tonumber(os.getenv "SECONDS") } }
        if s.extended.worker_index == 1 then take "over" end
        local ok, e
        repeat -- the other's part is there before its word that it gave up
          ok, e = pcall(s.reduce, s, "SUM", 1.0)
        until not ok
        put "over"
        print(ok or e.kind)
      ]], each = function(i)
        return ("FOLDER=%s SECONDS=%g"):format(folder, i == 0 and 0.2 or 100)
      end }
    end)
    assert.equal("DeadlineExceeded\n", rs[1].out, rs[1].err)
    assert.equal("Aborted\n", rs[2].out, rs[2].err)
  end)

  it("has as long for its start as workers have to meet", function()
    workers.outputs { program = [[
      local tf = require "tfdist"
      tf.distribute.MultiWorkerMirroredStrategy { communication_options = {
        implementation = "RING", timeout_seconds = 0.1 } }
    ]], environment = "TFDIST_FAILPOINTS='meet.done=sleep:800@rank1'" }
  end)

  it("os.exit says farewell", function()
    for _, implementation in ipairs { "AUTO", "RING" } do
      for _, r in ipairs(workers.run { n = 3, program = [[
        local tf = require "tfdist"
        local s = tf.distribute.MultiWorkerMirroredStrategy {
          communication_options = { implementation = "]] .. implementation
          .. [[" } }
        for _ = 1, 20 do
          s:reduce("SUM", tf.ones { 5000 })
        end
        os.exit(7)
      ]] }) do
        assert.equal(7, r.code, r.err)
      end
    end
  end)

  it("os.exit with an error is a failure to who waits", function()
    for _, implementation in ipairs { "AUTO", "RING" } do
      for code, status in pairs { ["false"] = 1, ["259"] = 3 } do
        local rs = workers.run { program = [[
          local tf = require "tfdist"
          local s = tf.distribute.MultiWorkerMirroredStrategy {
            communication_options = { implementation = "]] .. implementation
            .. [[" } }
          s:reduce("SUM", 1.0)
          if s.extended.worker_index == 1 then os.exit(]] .. code .. [[) end
          s:reduce("SUM", 1.0)
        ]] }
        assert.equal(75, rs[1].code, rs[1].err)
        assert.matches("process 1 has ended with status " .. status
          .. " while process 0 waits for it in collective", rs[1].err)
        assert.equal(status, rs[2].code)
      end
    end
  end)

  it("RING is TCP, with the same sums", function()
    local outs = {}
    for _, implementation in ipairs { "AUTO", "RING" } do
      local rs = workers.run { n = 3, devices = 2, program = [[
        local tf = require "tfdist"
        local s = tf.distribute.MultiWorkerMirroredStrategy {
          communication_options = { implementation = "]] .. implementation
          .. [[" } }
        for _, n in ipairs { 1, 7, 5001 } do
          local per = s:run(function()
            local id = tf.distribute.get_replica_context()
              .replica_id_in_sync_group
            return tf.sin(tf.range(n, { dtype = "float32" }) * (id + 0.1))
          end)
          print(("%.9g %.9g"):format(
            s:reduce("SUM", per)[n - 1]:item(),
            tf.reduce_sum(s:reduce("MEAN", per)):item()))
        end
      ]] }
      for i = 1, 3 do
        assert.equal(0, rs[i].code, rs[i].err)
        assert.equal(rs[1].out, rs[i].out)
      end
      assert.equal(implementation == "RING", rs[1].err:find("collectives: TCP",
        1, true) ~= nil, rs[1].err)
      outs[#outs + 1] = rs[1].out
    end
    local a, b = outs[1]:gmatch "%S+", outs[2]:gmatch "%S+"
    for x in a do
      local y = tonumber(b())
      assert.is_true(math.abs(x - y) <= 1e-5 * math.abs(x) + 1e-7, x .. " " .. y)
    end
  end)

  it("options of a call win over those of the strategy", function()
    both({ "3", "10 | 10" }, [[
      print(locals(s:run(function()
        local a, b = id() + 1.0, tf.constant { 1.0, 2.0 }
        return tf.distribute.get_replica_context():all_reduce("SUM",
          { tf.constant(a), b }, { bytes_per_pack = 4,
          timeout_seconds = 60 })[1]
      end)))
    ]])
  end)

  -- What one worker has, its replicas' parts with " | " between them.
  local function parts_of(w, R, part)
    local out = {}
    for i = 1, R do
      local list = part(w * R + i - 1)
      for k, x in ipairs(list) do list[k] = ("%g"):format(x) end
      out[i] = table.concat(list, " ")
    end
    return table.concat(out, " | ")
  end

  it("means along axes weigh by all workers' sizes", function()
    both({ "1.5\n1\n0.666667", "1.5\n2.33333\n2" }, [[
      local function show(x) print(("%g"):format(x:item())) end
      show(s:reduce("MEAN", tf.constant { 1.0, 2.0 }, 0))
      show(s:reduce("MEAN", s:run(function()
        return tf.zeros { id() } + id() -- none in the first replica
      end), 0))
      show(s:reduce("MEAN", s:run(function()
        return tf.fill({ id() + 1, 2 }, id() + 0.0)
      end), { 0, -1 }))
    ]])
  end)

  it("gradients of collectives count the replicas of all workers", function()
    for R = 1, 2 do
      local N = 2 * R
      local outs = workers.outputs { devices = R, program = HEAD .. [[
        local N = s.num_replicas_in_sync
        local function gradient(x, forward)
          print(locals(s:run(function()
            local context = tf.distribute.get_replica_context()
            local own = x()
            local tape, y = tf.GradientTape(function(t)
              t:watch(own)
              return forward(context, own)
            end)
            return tape:gradient(y, own)
          end)))
        end
        local function floats(n) return tf.range(n, { dtype = "float32" }) end
        for _, op in ipairs { "SUM", "MEAN" } do
          gradient(function() return floats(2 * N) end, function(context, x)
            return context:reduce_scatter(op, x) * (id() + 1.0)
          end)
        end
        for _, op in ipairs { "MEAN", "MAX" } do
          gradient(function() return tf.constant { id() + 1.0, 5.0 } end,
            function(context, x)
              return context:all_reduce(op, x) * (id() + 1.0)
            end)
        end
        gradient(function() return tf.ones { 2, id() + 1 } end,
          function(context, x)
            local both = context:all_gather({ x, x * 2.0 }, -1)
            return both[1] * floats(N * (N + 1)):reshape { 2, -1 } + both[2]
          end)
      ]] }
      local all = N * (N + 1) / 2 -- of 1 to N: gradients, gathered columns
      local function scattered(by)
        return function()
          local list = {}
          for k = 0, 2 * N - 1 do
            list[k + 1] = (math.floor(k / 2) + 1) / by
          end
          return list
        end
      end
      for w = 0, 1 do
        assert.equal(table.concat({
          parts_of(w, R, scattered(1)), parts_of(w, R, scattered(N)),
          parts_of(w, R, function() return { all / N, all / N } end),
          -- the last replica's is the largest; 5 is everybody's
          parts_of(w, R, function(r)
            return { r == N - 1 and all or 0, all / N }
          end),
          -- of position p in the gathered rows: N p, and 2 from N replicas
          parts_of(w, R, function(r)
            local list = {}
            for row = 0, 1 do
              for k = 0, r do
                list[#list + 1] = N * (row * all + r * (r + 1) / 2 + k)
                  + 2 * N
              end
            end
            return list
          end),
        }, "\n") .. "\n", outs[w + 1])
      end
    end
  end)

  it("a process's value is told from one for each replica", function()
    local rs = workers.run { devices = 2, program = HEAD .. [[
      local per = s:run(function() return tf.constant(1.0) end)
      s:reduce("SUM", w == 0 and per or 1.0)
    ]] }
    for _, r in ipairs(rs) do
      assert.are_not.equal(0, r.code)
    end
  end)
end)
