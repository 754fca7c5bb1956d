-- Cases G21-G28, P04: cross-device ops, packs, options of communication.
local P = require "spec.support.process"
local R = require "spec.support.replicas"
local cross_device = require "tfdist.distribute.cross_device_ops"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local at = require("spec.support.on_device").at

local D = tf.distribute
local fails, locals, list = R.fails, R.locals, R.list

-- What G21 tries: ops by name, made anew for each test.
local KINDS = {
  one = function() return D.ReductionToOneDevice() end,
  ["one on cpu"] = function() return D.ReductionToOneDevice(at(0)) end,
  ["one with add_n"] = function()
    return D.ReductionToOneDevice { accumulation_fn = function(x)
      return tf.add_n(x)
    end }
  end,
  hierarchical = function() return D.HierarchicalCopyAllReduce(8) end,
  ["hierarchical without packs"] = function()
    return D.HierarchicalCopyAllReduce { num_packs = 0 }
  end,
  collective = function() return cross_device.CollectiveAllReduce() end,
  ["collective, packs of 1"] = function()
    return cross_device.CollectiveAllReduce { bytes_per_pack = 1 }
  end,
  ["collective, packs of 4"] = function()
    return cross_device.CollectiveAllReduce { bytes_per_pack = 4 }
  end,
}

local function per_replica(s, fn)
  return s:experimental_distribute_values_from_function(function(ctx)
    return fn(ctx.replica_id_in_sync_group)
  end)
end

local function numbers(x)
  if not D.is_distributed_value(x) then return { x:item() } end
  local out = {}
  for i, part in ipairs(x.values) do out[i] = part:item() end
  return out
end

describe("cross-device ops", function()
  R.leaks(before_each, after_each)

  R.each(it, pending, "G21 reduce, batch_reduce, broadcast", function(s, n)
    for name, make in pairs(KINDS) do
      local ops = make()
      local a = per_replica(s, function(d) return tf.constant(d + 0.0) end)
      local b = per_replica(s, function(d) return tf.constant(d + 1.0) end)
      local v = s:scope(function() return tf.Variable(0.0) end)
      local places = { a, v, at(0), at(n - 1), tf.zeros { 1 } }
      for op, by in pairs { MEAN = 1, sum = n } do
        local low, high = (n - 1) / 2 * by, ((n - 1) / 2 + 1) * by
        for _, place in ipairs(places) do
          local got = numbers(ops:reduce(op, a, place))
          assert.same(list(#got, low), got, name)
          for _, other in ipairs(places) do
            local both = ops:batch_reduce(op, { { a, place }, { b, other } })
            assert.equal(low, numbers(both[1])[1])
            assert.equal(high, numbers(both[2])[1])
          end
        end
      end
      local one = ops:broadcast(tf.constant(1.0), v)
      assert.same(list(n, 1), numbers(one))
      for i, part in ipairs(one.values) do
        assert.equal(s.extended.worker_devices[i], part.device)
      end
      assert.equal(0, v:read_value():item())
    end
  end, 1)

  R.each(it, pending, "G22 G28 the choice by devices and dtype", function(s)
    assert.is_truthy(tostring(s.cross_device_ops):find(
      at(0) == "/gpu:0" and "^NcclAllReduce" or "^ReductionToOneDevice"))
    assert.is_true(s.cross_device_ops.native)
    assert.equal(s.cross_device_ops, cross_device.choose(s.handle))
    local nccl = D.NcclAllReduce()
    local x = tf.constant(1, "int32")
    assert.is_truthy(tostring(cross_device.for_value(nccl, x))
      :find "^ReductionToOneDevice")
    assert.equal(nccl, cross_device.for_value(nccl, tf.constant(1.0)))
    assert.equal(cross_device.for_value(s.cross_device_ops, x),
      s.extended:_get_cross_device_ops(x))
  end, 1)

  R.each(it, pending, "G24 G26 slices are joined", function(s, n)
    for name, make in pairs(KINDS) do
      local ops = make()
      local x = s:run(function()
        local id = R.id()
        if id % 2 == 0 then
          return tf.IndexedSlices(tf.constant { { 1.0, 2.0 }, { 3.0, 4.0 } },
            { 1, 2 }, { 5, 2 })
        end
        return tf.IndexedSlices(tf.constant { { 3.0, 4.0 } }, { 2 }, { 5, 2 })
      end)
      local sum = ops:reduce("SUM", x, x)
      local even, odd = math.ceil(n / 2), math.floor(n / 2)
      for _, part in ipairs(sum.values) do
        assert.equal("slices", raw.kind(part), name)
        assert.equal(2 * even + odd, #part.indices)
        assert.same({ { 0, 0 }, { even, 2 * even }, { 3 * n, 4 * n }, { 0, 0 },
          { 0, 0 } }, part:to_dense():totable())
      end
      -- Dense and sparse values of one batch keep their order.
      local d = per_replica(s, function(id) return tf.constant(id + 0.0) end)
      local got = ops:batch_reduce("SUM", { { d, d }, { x, x }, { d, d } })
      assert.equal(n * (n - 1) / 2, numbers(got[1])[1])
      assert.equal("slices", raw.kind(got[2].values[1]))
      assert.equal(n * (n - 1) / 2, numbers(got[3])[n])
    end
  end)

  it("P04 negative numbers of packs", function()
    for _, class in ipairs { D.NcclAllReduce, D.HierarchicalCopyAllReduce } do
      fails("ValueError", "num_packs", class, -1)
      fails("TypeError", "num_packs", class, "x")
    end
  end)

  R.each(it, pending, "a strategy uses its own, in packs of any size",
    function(_, n)
      for name, make in pairs(KINDS) do
        local s = D.MirroredStrategy { devices = list(n, function(i)
          return at(i)
        end), cross_device_ops = make() }
        local v = s:scope(function()
          return tf.Variable(0.0, { aggregation = "SUM" })
        end)
        local r = s:run(function()
          local id = R.id()
          v:assign_add(tf.constant(id + 1.0))
          return R.ctx():all_reduce("SUM", {
            tf.reshape(tf.range(3) + id, { 3, 1 }), tf.ones { 4 } * id,
            tf.zeros { 0 }, tf.cast(tf.ones { 2, 2 }, "bfloat16"),
            tf.constant(id, "int32") })
        end)
        local total = n * (n - 1) / 2
        for i = 0, n - 1 do
          local function part(k)
            return r[k].values[i + 1]
          end
          assert.same({ { total }, { n + total }, { 2 * n + total } },
            part(1):totable(), name)
          assert.same(list(4, total), part(2):totable())
          assert.same({ 0 }, part(3).shape)
          assert.equal("bfloat16", part(4).dtype)
          assert.same({ { n, n }, { n, n } }, part(4):totable())
          assert.equal(total, part(5):item())
          assert.equal(s.extended.worker_devices[i + 1], part(2).device)
        end
        assert.same(list(n, total + n), locals(s, v))
        local x = s:run(function() return tf.constant { R.id() + 0.0 } end)
        assert.same({ total }, s:reduce("SUM", x):totable())
        assert.equal(n, #s:gather(x, 0))
        assert.same(list(n, 1), numbers(s.extended:broadcast_to(
          tf.constant(1.0), v)))
        fails("InvalidArgument", nil, s.run, s, function()
          R.ctx():all_reduce("SUM", { tf.ones { R.id() + 1 }, 1.0 })
        end)
      end
    end)

  R.each(it, pending, "classes of one's own are called", function(_, n)
    local calls = {}
    local Mine = D.CrossDeviceOps:subclass "Mine"
    function Mine:init(factor) self.factor = factor end
    function Mine:reduce_implementation(op, value, destinations, options)
      calls[#calls + 1] = op
      assert.is_true(options == nil or options.bytes_per_pack == 7)
      local sum = tf.add_n(value.values) * self.factor
      return self:broadcast(sum, destinations)
    end
    function Mine:batch_reduce_implementation(op, pairs_list, options)
      local out = {}
      for i, pair in ipairs(pairs_list) do
        out[i] = self:reduce_implementation(op, pair[1], pair[2], options)
      end
      return out
    end
    local s = D.MirroredStrategy { devices = list(n, function(i)
      return at(i)
    end), cross_device_ops = Mine(10) }
    local x = s:run(function() return R.ctx():all_reduce("SUM", 1.0) end)
    assert.same(list(n, 10 * n), locals(s, x))
    local y = s:run(function() return tf.constant(1.0) end)
    assert.equal(10 * n, s:reduce("MEAN", y):item())
    s.extended:reduce_to("SUM", y, y, { bytes_per_pack = 7 })
    assert.same({ "SUM", "MEAN", "SUM" }, calls)
    assert.equal("Mine", tostring(s.cross_device_ops))
    local Empty = D.CrossDeviceOps:subclass "Empty"
    fails("NotImplementedError", "Empty:reduce_implementation", Empty().reduce,
      Empty(), "SUM", y, y)
    fails("TypeError", "must be a CrossDeviceOps object", D.MirroredStrategy,
      { cross_device_ops = Empty })
    local Wrong = D.CrossDeviceOps:subclass "Wrong"
    function Wrong:reduce_implementation() return "nothing" end
    local w = D.MirroredStrategy { devices = { at(0), at(1) },
      cross_device_ops = Wrong() }
    fails("TypeError", "Wrong gave", w.reduce, w, "SUM",
      w:run(function() return tf.constant(1.0) end))
  end)

  R.pair(it, pending, "results of classes of one's own are checked", function()
    local result
    local Mine = D.CrossDeviceOps:subclass "Mine"
    local function give(self, op, value) return result(value, self, op) end
    Mine.reduce_implementation, Mine._gather_implementation = give, give
    function Mine:batch_reduce_implementation(op, pairs_list)
      return result(pairs_list[1][1], self, op)
    end
    local s = D.MirroredStrategy { devices = { at(0), at(1) },
      cross_device_ops = Mine() }
    local function give_number() return tf.constant(R.id() + 1.0) end
    local x = s:run(give_number)
    local names = s:run(function() return "replica " .. R.id() end)
    local wide = R.mirrored(1):run(give_number)
    local v = s:scope(function() return tf.Variable(1.0) end)
    local results = { "text", 3, true, print, {}, { x }, { "text", "more" },
      names, wide, x, tf.Variable, coroutine.create(print), { names } }
    for i = 0, #results do
      result = function() return results[i] end
      if i ~= 9 then -- a tensor, all that one device needs
        fails("TypeError", "the cross-device ops Mine gave", s.reduce, s, "SUM",
          x)
      end
      fails("TypeError", "the cross-device ops Mine gave",
        s.extended.reduce_to, s.extended, "SUM", x, v)
      fails("TypeError", "the cross-device ops Mine gave", s.run, s,
        function() R.ctx():all_reduce("SUM", 1.0) end)
      fails("TypeError", "the cross-device ops Mine gave", s.run, s,
        function() R.ctx():all_gather(tf.ones { 1 }, 0) end)
    end
  end)

  it("arguments are checked", function()
    local ops, x = D.ReductionToOneDevice(), tf.constant(1.0)
    assert.equal(1, numbers(ops:reduce("MEAN", x, x))[1])
    fails("ValueError", "per_replica_value", ops.reduce, ops, "SUM", { x }, x)
    fails("ValueError", "per_replica_value", ops.reduce, ops, "SUM", 3, x)
    fails("ValueError", "destinations", ops.reduce, ops, "SUM", x, { x })
    fails("ValueError", "destinations", ops.reduce, ops, "SUM", x, "")
    fails("ValueError", "destinations", ops.reduce, ops, "SUM", x)
    fails("ValueError", "pair", ops.batch_reduce, ops, "SUM", { x })
    fails("ValueError", "pair", ops.batch_reduce, ops, "SUM", { { x } })
    fails("InvalidArgument", "/cpu:60", D.ReductionToOneDevice, "/cpu:60")
    fails("TypeError", "accumulation_fn", D.ReductionToOneDevice,
      { accumulation_fn = 3 })
    local bad = D.ReductionToOneDevice { accumulation_fn = function() end }
    if R.available > 1 then
      fails("TypeError", "accumulation_fn must return", bad.reduce, bad, "SUM",
        x, at(1))
    end
    assert.equal(0, ops:batch_reduce("SUM", {}).n)
  end)

  it("NcclAllReduce says once that there is no NCCL", function()
    local r = P.run(("TFDIST_CPU_DEVICES=2 %s -e %s"):format(P.hosts[1].path,
      P.quote [[local tf = require "tfdist"
        local s = tf.distribute.MirroredStrategy {
          cross_device_ops = tf.distribute.NcclAllReduce(2) }
        for _ = 1, 3 do
          local x = s:run(function()
            return tf.distribute.get_replica_context():all_reduce("SUM", {
              tf.ones { 3 }, tf.ones { 2 } })
          end)
          io.write(s:reduce("MEAN", x[1]):sum():item(), " ")
        end]]))
    assert.equal("", (r.out:gsub("6%.?0? ", "")))
    assert.equal("tfdist: warning: NcclAllReduce: NCCL is not there, sums are "
      .. "made in process\n", r.err)
    assert.equal(0, r.code)
  end)
end)

describe("communication options", function()
  local E = D.experimental

  it("have defaults, are checked and merged", function()
    local o = E.CommunicationOptions()
    assert.equal(0, o.bytes_per_pack)
    assert.is_nil(o.timeout_seconds)
    assert.equal("AUTO", o.implementation)
    local a = E.CommunicationOptions { bytes_per_pack = 5,
      timeout_seconds = 2, implementation = "ring" }
    assert.equal(E.CommunicationImplementation.RING, a.implementation)
    local b = a:merge(E.CommunicationOptions { implementation = "NCCL" })
    assert.same({ 5, 2, "NCCL" },
      { b.bytes_per_pack, b.timeout_seconds, b.implementation })
    assert.equal(a, a:merge(nil))
    assert.is_true(o:merge(a) == a)
    fails("ValueError", "bytes_per_pack", E.CommunicationOptions, -1)
    fails("ValueError", "timeout_seconds", E.CommunicationOptions,
      { timeout_seconds = -1 })
    fails("ValueError", "AUTO, RING, NCCL, MPI", E.CommunicationOptions,
      { implementation = "GLOO" })
    fails("ValueError", "implementation", E.CommunicationOptions,
      { implementation = 3 })
    assert.equal(4, E.CollectiveHints(4).bytes_per_pack)
    assert.equal("NCCL", E.CollectiveCommunication.NCCL)
  end)

  R.pair(it, pending, "are taken by every reduction", function(s)
    local o = E.CommunicationOptions { bytes_per_pack = 4 }
    assert.same({ 2, 2 }, locals(s, s:run(function()
      R.ctx():all_gather(tf.ones { 1 }, 0, o)
      return R.ctx():all_reduce("SUM", 1.0, o)
    end)))
    local x = s:run(function() return tf.constant(1.0) end)
    assert.equal(2, s.extended:reduce_to("SUM", x, at(0), o):item())
    assert.equal(2, s.extended:batch_reduce_to("SUM", { { x, at(0) } },
      o)[1]:item())
    fails("TypeError", "CommunicationOptions", s.extended.reduce_to, s.extended,
      "SUM", x, x, 3)
    local e = fails("ValueError", "bytes_per_pak", s.extended.reduce_to,
      s.extended, "SUM", x, x, { bytes_per_pak = 3 })
    assert.equal("did you mean bytes_per_pack?", e.hint)
  end)
end)

describe("reductions that are no sums", function()
  R.leaks(before_each, after_each)

  R.each(it, pending, "MIN, MAX, PROD", function(s, n)
    local product = 1
    for i = 1, n do product = product * i end
    local want = { MIN = 1, MAX = n, PROD = product }
    for _, dtype in ipairs { "float32", "float64", "float16", "int32", "int64" }
    do
      for op, expected in pairs(want) do
        local x = s:run(function()
          return R.ctx():all_reduce(op, tf.cast(tf.constant { R.id() + 1 },
            dtype))
        end)
        assert.same(list(n, function() return { expected } end), locals(s, x))
        local y = s:run(function() return tf.cast(R.id() + 1, dtype) end)
        assert.equal(expected, s:reduce(op:lower(), y):item())
        assert.equal(dtype, s:reduce(op, y).dtype)
        fails("TypeError", "SUM", s.reduce, s, op, x, 0)
      end
    end
    assert.equal(3, s:reduce("MAX", 3):item())
    fails("ValueError", "cannot be reduced", s.reduce, s, "PROD", 3)
    fails("NotImplementedError", "sums and means", s.reduce, s, "MAX",
      s:run(function()
        return tf.IndexedSlices(tf.ones { 1 }, { 0 }, { 2 })
      end))
  end)

  R.each(it, pending, "gradients of MIN and MAX go to who has it",
    function(s, n)
      local function gradient(op)
        return locals(s, s:run(function()
          local x = tf.constant { R.id() + 0.0, 5.0 }
          local tape, y = tf.GradientTape(function(t)
            t:watch(x)
            return tf.reduce_sum(R.ctx():all_reduce(op, x))
          end)
          return tape:gradient(y, x)
        end))
      end
      local max, min = gradient "MAX", gradient "MIN"
      for i = 1, n do
        assert.near(i == n and n or 0, max[i][1], 1e-6)
        assert.near(i == 1 and n or 0, min[i][1], 1e-6)
        assert.near(1, max[i][2], 1e-6)
      end
      fails("NotImplementedError", "product", gradient, "PROD")
    end)

  R.each(it, pending, "reduce_scatter gives each its part", function(s, n)
    local total = n * (n - 1) / 2
    for op, by in pairs { SUM = 1, MEAN = n } do
      local x = s:run(function()
        local t = tf.reshape(tf.cast(tf.range(4 * n), "float32"), { 2 * n, 2 })
        local part = R.ctx():reduce_scatter(op, t + R.id())
        assert.same({ 2, 2 }, part.shape)
        local cols = R.ctx():reduce_scatter(op, { tf.transpose(t) }, -1)
        assert.same({ 2, 2 }, cols[1].shape)
        return part, part.device
      end)
      assert.same(list(n, function(i)
        local function value(k) return (n * (4 * i + k) + total) / by end
        return { { value(0), value(1) }, { value(2), value(3) } }
      end), locals(s, x))
    end
    local _, where = s:run(function()
      return 0, R.ctx():reduce_scatter("SUM", tf.ones { n }).device
    end)
    assert.same(s.extended.worker_devices, locals(s, where))
  end)

  R.each(it, pending, "reduce_scatter's gradient is a gather", function(s, n)
    local g = s:run(function()
      local x = tf.ones { n }
      local tape, y = tf.GradientTape(function(t)
        t:watch(x)
        return R.ctx():reduce_scatter("SUM", x) * (R.id() + 1)
      end)
      return tape:gradient(y, x)
    end)
    assert.same(list(n, function()
      return list(n, function(i) return i + 1 end)
    end), locals(s, g))
    fails("InvalidArgument", "multiple", s.run, s, function()
      R.ctx():reduce_scatter("SUM", tf.ones { n + 1 })
    end)
    fails("ValueError", "axis 1", s.run, s, function()
      R.ctx():reduce_scatter("SUM", tf.ones { n }, 1)
    end)
  end)
end)
