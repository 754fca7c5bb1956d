-- Cases F: run, regrouping, merge_call.
local R = require "spec.support.replicas"
local refused = require "spec.support.refused"
local tf = require "tfdist"
local on_device = require "spec.support.on_device"

local at = on_device.at
local D = tf.distribute
local fails, locals, list = R.fails, R.locals, R.list

describe("strategy:run", function()
  R.leaks(before_each, after_each)

  R.each(it, pending, "F01 specialises arguments, regroups results",
    function(s, n)
      local x = s:run(function() return R.id() + 1 end)
      local out1 = s:run(function(y) return { a = 2 * y, b = y * y } end, { x })
      local out2 = s:run(function(t) return t.a + 2 * t.b + 2 end, nil, out1)
      assert.same(list(n, function(i) return i + 1 end), locals(s, x))
      assert.same(list(n, function(i) return 2 * (i + 1) end),
        locals(s, out1.a))
      assert.same(list(n, function(i) return 2 * (i + 1) * (i + 2) + 2 end),
        locals(s, out2))
    end)

  R.each(it, pending, "arguments may be false, nil and structures",
    function(s)
      local x = s:run(function() return R.id() > 0 end)
      local function check(a, b, c, ...)
        assert.equal(R.id() > 0, a)
        assert.is_nil(b)
        assert.equal(0, select("#", ...))
        return c
      end
      assert.equal(3, s:run(check, { x, nil, 3, n = 3 }))
      assert.equal(R.list, s:run(function(a, _, t)
        return check(a, nil, t[1])
      end, { x, nil, { R.list }, n = 3 }))
    end)

  it("F02 one device wraps nothing", function()
    local s = D.OneDeviceStrategy(at(0))
    local x = s:run(function() return tf.constant(4.0) end)
    assert.equal("tensor", require "tfdist.core.raw".kind(x))
    local out = s:run(function(y) return { a = y * 2, b = y * y } end, { x })
    assert.equal(8, out.a:item())
    assert.equal(42, s:run(function(t) return t.a + 2 * t.b + 2 end,
      { out }):item())
    assert.equal(1, s:experimental_local_results(out.b).n)
  end)

  R.each(it, pending, "F04 merge_call gives all the same", function(s, n)
    local x = s:run(function()
      local eleven = R.ctx():merge_call(function() return 11 end)
      return tf.constant(eleven + 1)
    end)
    assert.same(list(n, 12), locals(s, x))
  end, 1)

  R.each(it, pending, "F05 errors pass through from everywhere", function(s)
    local mine = { "an error of mine" }
    local function raise() error(mine, 0) end
    local function try(fn)
      local ok, e = pcall(s.run, s, fn)
      assert.is_false(ok)
      assert.equal(mine, e)
    end
    try(raise)
    try(function() R.ctx():merge_call(raise) end)
    try(function()
      R.ctx():merge_call(function() end)
      raise()
    end)
    try(function()
      R.ctx():merge_call(function()
        s:run(function() R.ctx():merge_call(raise) end)
      end)
    end)
    assert.equal(s.num_replicas_in_sync,
      s:reduce("SUM", s:run(function() return tf.constant(1.0) end)):item())
  end)

  R.each(it, pending, "F06 each id once", function(s, n)
    local seen = {}
    s:run(function() seen[#seen + 1] = R.id() end)
    assert.same(list(n, function(i) return i end), seen)
  end, 1)

  R.each(it, pending, "F08 a step counter counts once", function(s, n)
    s:scope(function()
      local step = tf.Variable(0, { dtype = "int64",
        aggregation = "ONLY_FIRST_REPLICA" })
      s:run(function() step:assign_add(1) end)
      assert.same(list(n, 1), locals(s, step))
    end)
  end)

  R.each(it, pending, "F11 equal plain results stay plain", function(s)
    assert.equal(0.0, s:run(function()
      R.ctx():merge_call(function() end)
      return 0.0
    end))
    assert.equal(4, select("#", s:run(function() return nil, 1, nil, nil end)))
  end)

  R.each(it, pending, "F14-F16 local results of structures", function(s, n)
    assert.same(list(n, function() return { 1, 2 } end),
      R.locals(s, s:run(function() return { 1, 2 } end)))
    assert.same(list(n, function() return { { a = 1, b = 2 }, { c = 3 } } end),
      R.locals(s, { { a = 1, b = 2 }, { c = 3 } }))
  end)

  R.each(it, pending, "F18 F19 structures and tensors that differ",
    function(s, n)
      local x = s:run(function()
        return { a = R.id() + 1, b = R.id() + 2 }
      end)
      assert.same(list(n, function(i) return { a = i + 1, b = i + 2 } end),
        locals(s, x))
      assert.same(list(n, function() return { 2, 3 } end),
        locals(s, s:run(function() return tf.constant { 2, 3 } end)))
    end)

  R.each(it, pending, "results that are one object stay it", function(s)
    local object, tensor = setmetatable({}, {}), tf.constant(1.0)
    assert.equal(object, s:run(function() return object end))
    assert.equal(tensor, s:run(function() return tensor end))
    local v = s:scope(function() return tf.Variable(1.0) end)
    assert.equal(v, s:run(function() return v end))
    assert.equal(v, s:run(function() return v.values[R.id() + 1] end))
  end)

  R.each(it, pending, "structures must match", function(s)
    fails("AssertionError", "keys", s.run, s, function()
      return R.id() == 0 and { a = 1 } or { b = 1 }
    end)
  end)

  R.each(it, pending, "merge_call regroups arguments, splits results",
    function(s, n)
      local x = s:run(function()
        local sum, mine, plain = R.ctx():merge_call(function(strategy, a, b)
          assert.equal(s, strategy)
          assert.is_true(D.in_cross_replica_context())
          assert.equal("same", b)
          return strategy:reduce("SUM", a), a, b
        end, { tf.constant(R.id() + 0.0), "same" })
        assert.equal("same", plain)
        assert.equal(R.id(), mine:item())
        return sum
      end)
      assert.equal(n * (n - 1) / 2, x:item())
    end)

  R.each(it, pending, "F09 F10 the number of the replica, again and again",
    function(s, n)
      for _ = 1, 10 do
        assert.same(list(n, function(i) return i end), locals(s, s:run(R.id)))
      end
    end, 2)

  R.each(it, pending, "a run keeps nothing of the one before", function(s)
    local kept = setmetatable({}, { __mode = "k" })
    do
      local object = {}
      kept[object] = true
      s:run(function(x)
        R.ctx():merge_call(function() end, { object })
        return x
      end, { object })
    end
    collectgarbage()
    collectgarbage()
    assert.is_nil((next(kept)))
  end)

  R.each(it, pending, "P09 merge_call on one replica only", function(s)
    fails("RuntimeError", "merge_call", s.run, s, function()
      if R.id() == 0 then R.ctx():merge_call(function() end) end
    end)
  end)

  R.each(it, pending, "E9 replicas that take different paths", function(s)
    local e = fails("RuntimeError", "replicas took different paths", s.run, s,
      function()
        if R.id() == 0 then R.ctx():all_reduce("SUM", 1.0) end
      end)
    assert.is_truthy(e.message:find "all_reduce.* at .*run_spec")
    assert.is_truthy(e.message:find "replica 1 returned at .*run_spec.lua:%d+")
    fails("RuntimeError", "replicas took different paths", s.run, s, function()
      if R.id() == 1 then R.ctx():merge_call(function() end) end
    end)
    fails("RuntimeError", "all_reduce(MEAN)", s.run, s, function()
      R.ctx():all_reduce(R.id() == 0 and "SUM" or "MEAN", 1.0)
    end)
    fails("InvalidArgument", "replica 1", s.run, s, function()
      R.ctx():all_reduce("SUM", tf.zeros { R.id() + 1 })
    end)
    assert.equal(1, s:run(function() return 1 end))
  end)

  R.each(it, pending, "what goes wrong at a sync point is told at its line",
    function(s, n)
      local line = debug.getinfo(1, "l").currentline
      local optimizer = tf.keras.optimizers.SGD(0.1)
      local w = s:scope(function() return tf.Variable { 1, 2 } end)
      for i, step in ipairs {
        function() R.ctx():all_reduce("SUM", tf.zeros { R.id() + 1 }) end,
        function() optimizer:apply_gradients({ tf.ones { 3 } }, { w }) end,
        function() R.ctx():all_gather(tf.zeros { 1, R.id() + 1 }, 0) end,
      } do
        local e = fails("InvalidArgument", "{", s.run, s, step)
        assert.matches("run_spec%.lua:" .. line + 3 + i .. "$", e.where)
        assert.matches(":" .. line + 3 + i .. ":[^\n]*%(replica 0%)",
          e.traceback)
        assert.is_nil(e.notes)
      end
      local e = fails("InvalidArgument", "replica 1", s.run, s, function()
        if R.id() < 1 then
          R.ctx():all_reduce("SUM", tf.zeros { 1 })
        else
          R.ctx():all_reduce("SUM", tf.zeros { 2 })
        end
      end)
      assert.matches(":" .. line + 16 .. "$", e.where)
      assert.equal(n - 1, #e.notes)
      assert.matches("^replica 1: .*:" .. line + 18 .. "$", e.notes[1])
    end)

  R.pair(it, pending, "a merge function's error is told at its line, run's, too",
    function(s)
      local line = debug.getinfo(1, "l").currentline
      local function step(merge)
        local y = R.ctx():merge_call(merge)
        return y
      end
      local reshape, mine = function()
        s:run(step, { function() local _ = tf.reshape(tf.ones { 3 }, { 7 }) end })
      end, function()
        s:run(step, { function() error("mine") end })
      end
      for at_line, e in pairs {
        [line + 6] = fails("InvalidArgument", "reshape", reshape),
        [line + 8] = fails("RuntimeError", "mine", mine),
      } do
        assert.matches("run_spec%.lua:" .. at_line .. "$", e.where)
        assert.is_nil(e.traceback:find("(replica 0)", 1, true))
      end
    end)

  R.each(it, pending, "an error names the replica and stops the others",
    function(s, n)
      local cleaned = 0
      local e = fails("RuntimeError", "no luck", s.run, s, function()
        local ok, why = pcall(function()
          if R.id() == n - 1 then error "no luck" end
          R.ctx():all_reduce("SUM", 1.0)
        end)
        cleaned = cleaned + 1
        if not ok then error(why, 0) end
      end)
      assert.equal(n - 1, e.replica)
      assert.is_truthy(e.traceback:find("run on replica " .. n - 1, 1, true))
      assert.is_truthy(e.where:find "run_spec")
      assert.equal(n, cleaned)
    end)

  R.each(it, pending, "pcall around sync points works", function(s, n)
    local x = s:run(function()
      local ok, sum = pcall(function()
        return R.ctx():all_reduce("SUM", tf.constant(1.0))
      end)
      assert.is_true(ok)
      return sum
    end)
    assert.same(list(n, n), locals(s, x))
  end)

  R.pair(it, pending, "sync points in a coroutine of the user's", function(s)
    fails("RuntimeError", "coroutine", s.run, s, function()
      local resume = coroutine.wrap(function()
        R.ctx():all_reduce("SUM", 1.0)
      end)
      resume()
    end)
    fails("RuntimeError", "yielded", s.run, s, function() coroutine.yield() end)
  end)

  R.pair(it, pending, "each replica has its own devices, tapes and names",
    function(s)
      local d = s:run(function()
        return tf.device(at(0), function()
          R.ctx():merge_call(function()
            assert.equal(on_device.depth,
              require "tfdist.core.raw".device_depth())
          end)
          return tf.zeros { 1 }.device
        end), tf.zeros { 1 }.device, R.ctx().devices[1]
      end)
      assert.equal("string", type(d))
      local _, own, named = s:run(function()
        return 0, tf.zeros { 1 }.device, R.ctx().devices[1]
      end)
      assert.same(s.extended.worker_devices, locals(s, own))
      assert.same(s.extended.worker_devices, locals(s, named))
    end)

  R.pair(it, pending, "PerReplica values print and refuse to be tensors",
    function(s)
      local x = s:run(function() return R.id() * 10, tf.constant { 1, 2 } end)
      assert.equal(on_device.text
        "PerReplica{\n  0  /cpu:0  0\n  1  /cpu:1  10\n}",
        tostring(x))
      local _, t = s:run(function() return 0, tf.constant { 1, 2 } end)
      fails("ValueError", "PerReplica", function() return t + 1 end)
      fails("ValueError", "PerReplica", function() return t:sum() end)
      fails("ValueError", "PerReplica", tf.reduce_sum, t)
      fails("ValueError", "PerReplica", function() return t.dtype end)
      -- Captured by a replica function it is that replica's component.
      assert.same({ 4, 4 }, locals(s, s:run(function()
        return tf.reduce_sum(t) + t[0]
      end)))
    end)

  R.pair(it, pending, "sync points in callbacks of C are told", function(s)
    local e = fails("RuntimeError", "a sync point inside a function that C "
      .. "calls", s.run, s, function()
        local t = { 3, 1, 2 }
        table.sort(t, function(a, b)
          R.ctx():merge_call(function() end)
          return a < b
        end)
      end)
    assert.is_truthy(e.where:find "run_spec%.lua:%d+")
    assert.equal(0, e.replica)
    -- Values in values print.
    local v = s:scope(function() return tf.Variable(1.0) end)
    local x = s.extended:update(v, function() return s:run(R.id) end)
    assert.is_truthy(tostring(x):find("PerReplica{", 1, true))
  end)

  it("results have their methods before any op was named", function()
    local P = require "spec.support.process"
    local host = P.hosts[rawget(_G, "jit") and 2 or 1].path
    local r = P.run(("TFDIST_CPU_DEVICES=2 %s -e %s"):format(host, P.quote [[
        local D = require "tfdist".distribute
        local s = D.MirroredStrategy()
        local x = s:run(function()
          return D.get_replica_context():all_reduce("SUM", 1.0) + 1
        end)
        io.write(tostring(x.values[2]))]]))
    assert.equal("", r.err)
    assert.equal("3", r.out)
  end)

  R.each(it, pending, "what fails before the first turn leaves no trace",
    function(s)
      local circle = {}
      circle[1] = circle
      fails("ValueError", "contains itself", s.run, s, function() end, circle)
      fails("ValueError", "contains itself", s.run, s, function()
        return circle
      end)
      fails("ValueError", "contains itself", s.run, s, function()
        R.ctx():merge_call(function() end, { circle })
      end)
      fails("ValueError", 'the key "arg"', s.run, s, function() end,
        { arg = 1 })
      assert.equal(1, s:run(function() return 1 end))
      assert.is_false(D.has_strategy())
    end)

  it("arguments are checked", function()
    local s = R.mirrored(1)
    fails("ValueError", "args must be a table", s.extended.update, s.extended,
      s:scope(function() return tf.Variable(1) end), print, tf.ones { 2 })
    fails("ValueError", "args must be a table", s.extended.update_non_slot,
      s.extended, {}, print, tf.ones { 2 })
    fails("ValueError", "kwargs must be a table", s.run, s, function()
      tf.distribute.get_replica_context():merge_call(print, {}, tf.ones { 2 })
    end)
    fails("ValueError", "args must be a table", s.run, s, function() end,
      tf.constant(1.0))
    fails("TypeError", "fn must be a function", s.run, s, 3)
    local e = fails("TypeError", "MirroredStrategy.run", s.run,
      function() end)
    assert.is_truthy(e.hint:find("with a colon", 1, true))
  end)

  R.each(it, pending, "lists of arguments have a possible length",
    function(s)
      local v = s:scope(function() return tf.Variable(1.0) end)
      local function count(...) return select("#", ...) end
      for _, n in ipairs { "x", {}, true, 0.5, -1, 251, 1e6, 0 / 0, 1 / 0 } do
        refused.check("run", "ValueError", { "strategy:run: n, the length" },
          function() s:run(count, { 1, n = n }) end)
        refused.check("merge_call", "ValueError",
          { "merge_call: n, the length" }, function()
            s:run(function()
              R.ctx():merge_call(count, { 1, n = n })
            end)
          end)
        refused.check("update", "ValueError", { "update: n, the length" },
          function() s.extended:update(v, count, { 1, n = n }) end)
      end
      for _, n in ipairs { 0, 1, 3, 250 } do
        assert.equal(n, s:run(count, { n = n }))
        assert.equal(n + 1, s:run(function()
          return R.ctx():merge_call(count, { n = n })
        end))
      end
    end)

  R.each(it, pending, "values from a function", function(s, n)
    local v = s:experimental_distribute_values_from_function(function(ctx)
      assert.equal(n, ctx.num_replicas_in_sync)
      return tf.constant(ctx.replica_id_in_sync_group + 0.0)
    end)
    assert.same(list(n, function(i) return i end), locals(s, v))
    assert.equal(n, #v.values)
    local t = s:experimental_distribute_values_from_function(function()
      return { a = 5, b = { 6 } }
    end)
    assert.same(list(n, 5), locals(s, t.a))
    assert.same(list(n, 6), locals(s, t.b[1]))
  end)

  R.each(it, pending, "components are the same objects each time", function(s, n)
    local v = s:run(function() return tf.constant(R.id() + 0.0) end)
    local parts, again = v.values, v.values
    assert.not_equal(parts, again)
    for i = 1, n do
      assert.is_true(parts[i] == again[i])
      assert.is_true(parts[i] == s:experimental_local_results(v)[i])
    end
    again[1] = nil
    assert.equal(0, v.values[1]:item())
    parts[2]:release()
    assert.equal(1, v.values[2]:item())
    tf.tidy(function() assert.equal(1, v.values[2]:item()) end)
    assert.equal(1, v.values[2]:item())
  end)

  it("refuses devices of this process and of others together", function()
    local function made(...)
      return tf.distribute.MirroredStrategy { ... }
    end
    local other = "/job:worker/replica:0/task:1/device:CPU:0"
    fails("ValueError", "cannot be mixed", made, at(0), other)
    fails("ValueError", "cannot be mixed", made,
      "/job:localhost/device:CPU:0", other)
    fails("ValueError", "need a task", made, "/job:worker/device:CPU:0")
    fails("RuntimeError", "several workers", made, other,
      "/job:worker/replica:0/task:0/device:CPU:0")
    fails("InvalidArgument", "no device", made, other)
  end)

  R.each(it, pending, "assigns values of the variable's shape only", function(s)
    local v = s:scope(function()
      return tf.Variable({ 1, 2 }, { aggregation = "SUM" })
    end)
    fails("ValueError", "{3}", v.assign, v, { 1, 2, 3 })
    fails("ValueError", "{3}", s.run, s, function() v:assign { 1, 2, 3 } end)
    fails("InvalidArgument", "{3}", v.assign_add, v, { 1, 2, 3 })
    for _, copy in ipairs(v.values) do
      assert.same({ 1, 2 }, copy:totable())
    end
  end)
end)
