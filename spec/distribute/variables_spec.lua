-- Cases B, C, D: reading and writing distributed variables.
local R = require "spec.support.replicas"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local on_device = require "spec.support.on_device"

local at, text = on_device.at, on_device.text

local fails, locals, list = R.fails, R.locals, R.list
local ALL = { "NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA" }

local function make(s, value, options)
  return s:scope(function() return tf.Variable(value, options) end)
end

local function on_read(s, value, aggregation, name)
  return make(s, value, { synchronization = "ON_READ", name = name,
    aggregation = aggregation })
end

describe("a variable synchronized on write", function()
  R.leaks(before_each, after_each)

  local UPDATES = { assign = 1.0, assign_add = 1.0, assign_sub = -1.0 }

  R.each(it, pending, "B01 is assigned in both contexts", function(s, n)
    for _, aggregation in ipairs(ALL) do
      for op, x in pairs(UPDATES) do
        local v = make(s, 0.0, { aggregation = aggregation })
        v[op](v, x)
        assert.same(list(n, 1), locals(s, v))
        if aggregation ~= "SUM" then
          local w = make(s, 0.0, { aggregation = aggregation })
          s:run(function() w[op](w, x) end)
          assert.same(list(n, 1), locals(s, w))
        end
      end
    end
  end)

  R.each(it, pending, "B02 takes another variable's value", function(s, n)
    local two = make(s, 2.0)
    for _, aggregation in ipairs { "NONE", "MEAN", "ONLY_FIRST_REPLICA" } do
      local v = make(s, 0.0, { aggregation = aggregation })
      v:assign(two)
      s:run(function() v:assign_add(two) end)
      assert.same(list(n, 4), locals(s, v))
    end
  end)

  R.each(it, pending, "B04 B05 B06 reads give the copy", function(s, n)
    local v = make(s, 1.0, { aggregation = "MEAN" })
    assert.same(list(n, 2), locals(s, s:run(function()
      v:assign_add(1.0)
      return v:value()
    end)))
    for i, c in ipairs(v.values) do
      assert.equal(2, v:read_value():item())
      assert.equal(s.extended.worker_devices[i], c.device)
    end
    for _, aggregation in ipairs(ALL) do
      local w = make(s, 3.0, { aggregation = aggregation })
      assert.same(list(n, 3), locals(s, s:run(function()
        return w:read_value()
      end)))
    end
  end)

  R.each(it, pending, "B08 starts with the same random value", function(s, n)
    local v = s:run(function()
      return tf.Variable(function() return tf.random.normal { 3 } end)
    end)
    local all = locals(s, v)
    for i = 2, n do assert.same(all[1], all[i]) end
  end)

  R.each(it, pending, "B09 ONLY_FIRST_REPLICA takes replica 0's", function(s, n)
    local v = make(s, 15.0, { aggregation = "ONLY_FIRST_REPLICA" })
    local r = s:run(function() return v:assign(R.id()) end)
    assert.same(list(n, 0), locals(s, r))
  end)

  R.each(it, pending, "B10 B11 is made lazily; operators work", function(s, n)
    local made
    s:run(function()
      made = made or {}
      local w = tf.Variable(0.0, { aggregation = "MEAN" })
      made[R.id() + 1] = w
      w:assign_add(2.0)
    end)
    assert.equal(made[1], made[2])
    assert.same(list(n, 2), locals(s, made[1]))
    local v = make(s, 1, { dtype = "int32", aggregation = "SUM" })
    assert.equal(2, (v + 1):item())
    assert.same(list(n, 2), locals(s, s:run(function() return v + 1 end)))
    assert.equal("int32", v.dtype)
  end)

  R.each(it, pending, "D01 NONE: every replica writes its own copy",
    function(s, n)
      local v = make(s, 1.0)
      s:run(function() v:assign(5.0 + R.id()) end)
      assert.same(list(n, function(i) return 5 + i end), locals(s, v))
      assert.is_truthy(tostring(v):find("copies differ", 1, true))
    end)

  R.each(it, pending, "D02 SUM of one plain value is an error", function(s)
    local v = make(s, 1.0, { aggregation = "SUM" })
    fails("ValueError", "A non-DistributedValues value 5 cannot be reduced",
      s.run, s, function() v:assign(5.0) end)
    s:run(function() v:assign(0) end)
    assert.equal(0, v:read_value():item())
  end)

  R.each(it, pending, "D04 D05 D08 D10 D11 MEAN", function(s, n)
    local mean = (n - 1) / 2
    local function try(op, x, expected)
      local v = make(s, 1.0, { aggregation = "MEAN" })
      s:run(function()
        local r = v[op](v, x or R.id())
        assert.near(expected, r:read_value():item(), 1e-6)
      end)
      assert.near(expected, v:read_value():item(), 1e-6)
    end
    try("assign", nil, mean)
    try("assign", 5.0, 5)
    try("assign_add", nil, 1 + mean)
    try("assign_add", 5.0, 6)
    try("assign_sub", nil, 1 - mean)
    try("assign_sub", 1.0, 0)
    local sum = make(s, 1.0, { aggregation = "SUM" })
    s:run(function() sum:assign_add(R.id()) end)
    assert.equal(1 + n * (n - 1) / 2, sum:read_value():item())
  end)

  R.each(it, pending, "D06 D09 in cross-replica context", function(s, n)
    local v = make(s, 1.0)
    assert.equal(7, v:assign_add(6.0):read_value():item())
    assert.is_nil(v:assign_add(2.0, { read_value = false }))
    assert.same(list(n, 9), locals(s, v))
    assert.same(list(n, 7), locals(s, v:assign_sub(2.0)))
    for i, c in ipairs(v.values) do
      assert.equal(s.extended.worker_devices[i], c.device)
    end
    local x = s:run(function() return tf.constant(R.id() + 0.0) end)
    fails("ValueError", "PerReplica", v.assign, v, x)
  end)

  R.each(it, pending, "B14 B15 B16 B18 B19 scatters", function(s, n)
    local function slices(value, row, dtype)
      return tf.IndexedSlices(tf.constant({ value }, { dtype = dtype }),
        { row }, { 3 })
    end
    local v = make(s, { 0, 0, 0 }, { dtype = "int32", aggregation = "SUM" })
    s:run(function()
      v:scatter_add(tf.IndexedSlices(tf.constant({ 1, 1 }, "int32"), { 1, 2 },
        { 3 }))
    end)
    assert.same({ 0, n, n }, v:totable())
    if n == 2 then
      local d = make(s, { 1, 6, 1 }, { dtype = "int32", aggregation = "SUM" })
      s:run(function()
        d:scatter_div(slices(R.id() + 2, R.id(), "int32"))
      end)
      assert.same({ 0, 2, 1 }, d:totable())
      local m = make(s, { 2.0, 1.0, 1.0 }, { aggregation = "MEAN" })
      s:run(function() m:scatter_mul(slices(R.id() + 2, R.id())) end)
      assert.same({ 2, 1.5, 1 }, m:totable())
    end
    fails("NotImplementedError", "SUM", s.run, s, function()
      v:scatter_max(slices(1, 0, "int32"))
    end)
    fails("NotImplementedError", "SUM", s.run, s, function()
      v:scatter_update(slices(1, 0, "int32"))
    end)
    local first = make(s, { 0, 0, 0 }, { aggregation = "ONLY_FIRST_REPLICA" })
    s:run(function() first:scatter_max(slices(1 + R.id(), 0)) end)
    s:run(function() first:scatter_update(slices(3, 1)) end)
    assert.same(list(n, function() return { 1, 3, 0 } end), locals(s, first))
  end)

  R.each(it, pending, "B20 scatters in cross-replica context", function(s, n)
    local v = make(s, { 1.0, 1.0, 1.0 }, { aggregation = "SUM" })
    v:scatter_add(tf.IndexedSlices(tf.constant { 2.0 }, { 0 }, { 3 }))
    assert.same(list(n, function() return { 3, 1, 1 } end), locals(s, v))
    local w = make(s, { 1.0, 1.0, 1.0 })
    w:scatter_min(tf.IndexedSlices(tf.constant { 2.0 }, { 0 }, { 3 }))
    assert.same({ 1, 1, 1 }, w:totable())
  end)

  R.each(it, pending, "gradients find this replica's copy", function(s, n)
    local v = make(s, 2.0)
    s:run(function() v:assign(R.id() + 1.0) end)
    local g = s:run(function()
      local tape, y = tf.GradientTape(function() return v * v * v end)
      return tape:gradient(y, v)
    end)
    assert.same(list(n, function(i) return 3 * (i + 1) ^ 2 end), locals(s, g))
    s:run(function()
      local tape = tf.GradientTape(function() return v * v end)
      assert.same({ v }, tape:watched_variables())
    end)
    local tape, y = tf.GradientTape(function() return v * v end)
    assert.same({ v }, tape:watched_variables())
    assert.equal(2, tape:gradient(y, { v })[1]:item())
  end)

  R.pair(it, pending, "gradients of all copies that were read", function(s)
    local v, fixed = make(s, { 1.0, 2.0 }), make(s, 3.0, { trainable = false })
    local function on(device, x)
      return tf.device(device, function() return tf.reduce_sum(x * x) end)
    end
    local function gradient(fn, device)
      local tape, y = tf.GradientTape(fn)
      return tf.device(device, function()
        return tape:gradient(y, { v, { of = v } })
      end)
    end
    for _, device in ipairs { at(0), at(1) } do
      local g = gradient(function()
        return on(at(0), v) + 0.5 * on(at(1), v)
      end, device)
      assert.same({ 3, 6 }, g[1]:totable())
      assert.same({ 3, 6 }, g[2].of:totable())
      assert.same({ 2, 4 }, gradient(function()
        return on(at(1), v)
      end, device)[1]:totable())
    end
    local tape, y = tf.GradientTape(function(t)
      t:watch(fixed)
      return on(at(1), fixed) + on(at(0), fixed)
    end)
    assert.equal(12, tape:gradient(y, fixed):item())
    local rows, sum = tf.GradientTape(function()
      local function row(device)
        return tf.device(device, function() return tf.gather(v, { 1 }) end)
      end
      return tf.reduce_sum(row(at(0)) + 2 * row(at(1)))
    end)
    assert.same({ 0, 3 }, rows:gradient(sum, v):totable())
    local jacobian, both = tf.GradientTape(function()
      return tf.device(at(1), function() return 1 * v end) + v
    end)
    assert.same({ { 2, 0 }, { 0, 2 } }, jacobian:jacobian(both, v):totable())
    local outer, slope = tf.GradientTape(function()
      local inner, z = tf.GradientTape(function()
        return on(at(0), v) * on(at(1), v)
      end)
      return tf.reduce_sum(inner:gradient(z, v))
    end)
    -- 4 (v.v) sum(v), whose gradient is 8 v sum(v) + 4 (v.v)
    assert.same({ 44, 68 }, outer:gradient(slope, v):totable())
  end)

  R.pair(it, pending, "acts as a tensor and prints", function(s)
    local v = make(s, { { 1, 2 }, { 3, 4 } }, { name = "w" })
    assert.same({ 2, 2 }, v.shape)
    assert.equal(10, tf.reduce_sum(v):item())
    assert.same({ 3, 4 }, v[1]:totable())
    assert.same({ { 7, 10 }, { 15, 22 } }, tf.matmul(v, v):totable())
    assert.equal(2, #v)
    assert.is_true(tf.is_variable(v))
    assert.equal(s, v.distribute_strategy)
    assert.equal(text('MirroredVariable "b" float32 {} = 1   on /cpu:0 /cpu:1 '
      .. "(equal)"), tostring(make(s, 1.0, { name = "b" })))
    assert.is_true(s.extended:variable_created_in_scope(v))
    assert.is_false(s.extended:variable_created_in_scope(tf.Variable(1.0)))
    assert.equal(v, s.extended:value_container(v.values[2]))
  end)
end)

describe("a variable synchronized on read", function()
  R.leaks(before_each, after_each)

  R.pair(it, pending, "prints the copies that differ, a replica its own one",
    function(s)
      local v = on_read(s, { 0.0, 0.0 }, "SUM", "v")
      local w = on_read(s, { { 0.0 } }, "MEAN", "w")
      local n = on_read(s, 0.0, "SUM", "n")
      local seen = {}
      s:run(function()
        local k = R.id() + 1
        v:assign_add { k, 10 * k }
        w:assign_add { { k } }
        n:assign_add(k)
        seen[k] = tostring(v) .. "; " .. tostring(n)
      end)
      assert.equal(text('SyncOnReadVariable "v" float32 {2} on /cpu:0 /cpu:1 '
        .. "(copies differ)\ncopy 0 /cpu:0: 1 10\ncopy 1 /cpu:1: 2 20"),
        tostring(v))
      assert.equal(text('SyncOnReadVariable "w" float32 {1, 1} on /cpu:0 '
        .. "/cpu:1 (copies differ)\ncopy 0 /cpu:0\n 1\ncopy 1 /cpu:1\n 2"),
        tostring(w))
      assert.equal(text('SyncOnReadVariable "n" float32 {} = 1 | 2   on /cpu:0 '
        .. "/cpu:1 (copies differ)"), tostring(n))
      -- Replica 0 comes first: the other copies are as they were.
      assert.is_truthy(seen[1]:find('"v" float32 {2}: 1 10;', 1, true))
      assert.is_truthy(seen[2]:find('"v" float32 {2}: 2 20;', 1, true))
      assert.is_truthy(seen[2]:find(text('"n" float32 {} = 2   on /cpu:1 '
        .. "(this replica's copy)"), 1, true))
    end)

  R.each(it, pending, "C01 C02 is assigned locally, or everywhere",
    function(s, n)
      for op, x in pairs { assign = 1, assign_add = 1, assign_sub = -1 } do
        for _, aggregation in ipairs(ALL) do
          local v = on_read(s, 0.0, aggregation)
          s:run(function() v[op](v, x) end)
          assert.same(list(n, 1), locals(s, v))
        end
        for _, aggregation in ipairs { "MEAN", "ONLY_FIRST_REPLICA", "NONE" } do
          local v = on_read(s, 0.0, aggregation)
          v[op](v, x)
          assert.same(list(n, 1), locals(s, v))
        end
      end
    end)

  R.each(it, pending, "C04 SUM refuses to add across replicas", function(s)
    local v = on_read(s, 0.0, "SUM")
    for _, op in ipairs { "assign_add", "assign_sub" } do
      fails("ValueError", "SyncOnReadVariable does not support", v[op], v, 1)
    end
  end)

  R.each(it, pending, "C05 C06 C08 reads", function(s, n)
    local expected = { SUM = n * (n - 1) / 2, MEAN = (n - 1) / 2,
      ONLY_FIRST_REPLICA = 0 }
    for _, aggregation in ipairs(ALL) do
      local v = on_read(s, 0.0, aggregation)
      s:run(function() v:assign(R.id()) end)
      assert.same(list(n, function(i) return i end),
        locals(s, s:run(function() return v:read_value() end)))
      if aggregation == "NONE" then
        fails("ValueError", "Could not convert from", v.read_value, v)
        fails("ValueError", "Could not convert from", tf.identity, v)
      else
        for _, x in ipairs { v:read_value(), v:value(), tf.identity(v), v + 0 }
        do
          assert.near(expected[aggregation], x:item(), 1e-6)
        end
        assert.near(expected[aggregation], s.extended:read_var(v):item(), 1e-6)
      end
    end
  end)

  R.each(it, pending, "C09 starts with the same random value", function(s, n)
    local v = s:run(function()
      return tf.Variable(function() return tf.random.normal { 3 } end,
        { synchronization = "ON_READ", aggregation = "SUM" })
    end)
    local all = locals(s, v)
    for i = 2, n do assert.same(all[1], all[i]) end
  end)

  R.each(it, pending, "C10 operators", function(s, n)
    local v = on_read(s, 0.0, "MEAN")
    s:run(function() v:assign(R.id()) end)
    assert.near((n - 1) / 2 + 1, (v + 1):item(), 1e-6)
    assert.same(list(n, function(i) return i + 1 end),
      locals(s, s:run(function() return v + 1 end)))
  end)

  R.each(it, pending, "C12 no scatters", function(s)
    for _, aggregation in ipairs { "MEAN", "SUM", "ONLY_FIRST_REPLICA" } do
      local v = on_read(s, { 0.0, 0.0 }, aggregation)
      for _, op in ipairs { "sub", "add", "div", "mul", "min", "max", "update" }
      do
        fails("NotImplementedError", "on read", s.run, s, function()
          v["scatter_" .. op](v, tf.IndexedSlices(tf.constant { 1.0 }, { 0 },
            { 2 }))
        end)
      end
    end
  end)

  R.each(it, pending, "C14 C15 SUM spreads, copies regroup", function(s, n)
    local v = on_read(s, 1.0, "MEAN")
    v:assign(6.0)
    assert.equal(6, v:read_value():item())
    local sum = on_read(s, 1.0, "SUM")
    assert.equal(n, sum:read_value():item())
    local r = s:run(function() return sum:assign_add(2.0 + R.id()) end)
    assert.equal(sum, r)
    assert.same(list(n, function(i) return 3 + i end), locals(s, sum))
    assert.equal(3 * n + n * (n - 1) / 2, sum:read_value():item())
    sum:assign(6.0 * n)
    assert.same(list(n, 6), locals(s, sum))
    assert.equal(6 * n, sum:read_value():item())
    assert.equal(sum, s:run(function() return sum.values[R.id() + 1] end))
    local whole = make(s, 0, { dtype = "int32", synchronization = "ON_READ",
      aggregation = "SUM" })
    whole:assign(2 * n + 1)
    assert.same(list(n, 2), locals(s, whole))
  end)
end)

describe("update", function()
  R.each(it, pending, "calls once per copy with its components",
    function(s, n)
      local v = make(s, 1.0)
      local x = s.extended:broadcast_to(tf.constant(2.0), v)
      local devices = {}
      local r = s.extended:update(v, function(copy, y, z)
        devices[#devices + 1] = tf.zeros({}).device
        assert.equal("variable", raw.kind(copy))
        assert.is_true(tf.distribute.in_cross_replica_context())
        v:assign_add(y) -- through the wrapper: this copy only
        copy:assign_add(z)
        return copy:read_value()
      end, { x, 3.0 })
      assert.same(s.extended.worker_devices, devices)
      assert.same(list(n, 6), locals(s, v))
      assert.same(list(n, 6), locals(s, r))
      assert.equal(7, (r + 1):item())
      local parts = s.extended:update(v, function() return 1 end,
        { group = false })
      assert.same({ 1, 1 }, { parts[1], parts[2] })
    end)

  R.each(it, pending, "D12 _update in a replica function", function(s, n)
    for _, strategy in ipairs { s, tf.distribute.get_strategy() } do
      for op, want in pairs { assign = 1, assign_add = 8, assign_sub = 2 } do
        local v = strategy:scope(function() return tf.Variable(5.0) end)
        strategy:run(function()
          local function update(copy, x) copy[op](copy, x) end
          R.ctx():_update(v, update, { tf.constant(2.0) })
          R.ctx():_update(v, update, { 1.0 })
        end)
        assert.equal(want, v:read_value():item())
        if strategy == s then assert.same(list(n, want), locals(s, v)) end
      end
    end
  end)

  R.each(it, pending, "takes keywords as a last table", function(s, n)
    local v = make(s, 1.0)
    s.extended:update(v, function(copy, x, more)
      copy:assign(x + more.y)
    end, { args = { tf.constant(2.0) }, kwargs = { y = 3.0 } })
    assert.same(list(n, 5), locals(s, v))
    local r = s.extended:update_non_slot(v, function(x, more)
      return x + more.y
    end, { args = { 2.0 }, kwargs = { y = 3.0 }, group = false })
    assert.same({ 5, 5 }, { r[1], r[2] })
  end)

  R.each(it, pending, "P10 refuses PerReplica values and strangers", function(s)
    local v = make(s, 1.0)
    local x = s:run(function() return tf.constant(R.id() + 0.0) end)
    fails("TypeError", "PerReplica", s.extended.update, s.extended, v,
      function() end, { x })
    fails("ValueError", "scope", s.extended.update, s.extended,
      tf.Variable(1.0), function() end)
    local other = R.mirrored(2)
    other:scope(function()
      fails("RuntimeError", "Mixing different", s.extended.update, s.extended,
        v, function() end)
      fails("RuntimeError", "Mixing different", v.assign, v, 1.0)
    end)
  end)

  R.each(it, pending, "in a replica function merges first", function(s, n)
    local v = make(s, 1.0)
    s:run(function()
      local sum = R.ctx():merge_call(function(_, x)
        return s.extended:reduce_to("SUM", x, v)
      end, { tf.constant(1.0) })
      assert.equal(n, sum:item())
      s.extended:update(v, function(copy, x) copy:assign(x) end, { 9.0 })
    end)
    assert.same(list(n, 9), locals(s, v))
  end)
end)
