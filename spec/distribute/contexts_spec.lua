-- Cases A: contexts and scopes.
local R = require "spec.support.replicas"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local on_device = require "spec.support.on_device"

local at = on_device.at
local D = tf.distribute
local fails = R.fails

local function one() return D.OneDeviceStrategy(at(0)) end

local function assert_default()
  assert.is_false(D.has_strategy())
  assert.is_false(D.in_cross_replica_context())
  assert.equal(0, D.get_replica_context().replica_id_in_sync_group)
  assert.equal(1, D.get_replica_context().num_replicas_in_sync)
end

describe("contexts", function()
  before_each(assert_default)
  after_each(assert_default)

  R.each(it, pending, "A01 the replica function sees its replica", function(s)
    local function check()
      local seen = 0
      s:run(function()
        assert.is_not_nil(D.get_replica_context())
        assert.is_false(D.in_cross_replica_context())
        assert.is_true(D.has_strategy())
        assert.equal(s, D.get_strategy())
        assert.equal(s, R.ctx().strategy)
        assert.equal(s.num_replicas_in_sync, R.ctx().num_replicas_in_sync)
        local v = tf.Variable(1.0)
        assert.equal("NONE", v.aggregation)
        seen = seen + 1
      end)
      assert.equal(s.num_replicas_in_sync, seen)
    end
    check()
    s:scope(check)
  end, 1)

  R.each(it, pending, "A02 scope is cross-replica context", function(s)
    s:scope(function()
      assert.is_nil(D.get_replica_context())
      assert.is_true(D.in_cross_replica_context())
      assert.is_true(D.has_strategy())
      assert.equal(s, D.get_strategy())
    end)
    assert.is_true(D.is_strategy(s))
  end, 1)

  it("A04 a variable creator left open is a nesting error", function()
    local scope = one():scope()
    local creator = tf.variable_creator_scope(function(next_creator, kwargs)
      return next_creator(kwargs)
    end)
    fails("RuntimeError", "Variable creator scope nesting error", scope.close,
      scope)
    creator:close()
    scope:close()
  end)

  it("A05 a name scope left open is a nesting error", function()
    local scope = one():scope()
    local names = tf.name_scope("a")
    fails("RuntimeError", "Variable scope nesting error", scope.close, scope)
    names:close()
    scope:close()
  end)

  R.pair(it, pending, "A06 the settings reach the variable", function(s)
    s:scope(function()
      local v = tf.Variable(1.0, {
        synchronization = "ON_WRITE", aggregation = "MEAN" })
      assert.equal("ON_WRITE", v.synchronization)
      assert.equal("MEAN", v.aggregation)
    end)
  end)

  it("A08 set_strategy inside a scope is an error", function()
    local s, other = one(), one()
    s:scope(function()
      for _, x in ipairs { other, s } do
        fails("RuntimeError", "Must not be called inside",
          D.experimental_set_strategy, x)
      end
      fails("RuntimeError", "Must not be called inside",
        D.experimental_set_strategy, nil)
    end)
  end)

  it("set_strategy installs, swaps and removes", function()
    local s, other = one(), one()
    D.experimental_set_strategy(s)
    assert.equal(s, D.get_strategy())
    assert.is_true(D.in_cross_replica_context())
    D.experimental_set_strategy(other)
    assert.equal(other, D.get_strategy())
    D.experimental_set_strategy(nil)
    assert.is_false(D.has_strategy())
  end)

  it("A09 scopes of one strategy nest, of two do not", function()
    local s, other = one(), one()
    local a, b = s:scope(), s:scope()
    assert.equal(s, D.get_strategy())
    a:enter()
    assert.equal(s, D.get_strategy())
    fails("RuntimeError", "Mixing different", other.scope, other)
    a:close()
    b:close()
    a:close()
    b:enter()
    assert.equal(s, D.get_strategy())
    b:close()
  end)

  it("a scope ends when its function fails", function()
    local s = one()
    local ok, e = pcall(s.scope, s, function() error({ "mine" }) end)
    assert.is_false(ok)
    assert.same({ "mine" }, e)
  end)

  it("A10 reduce works in and out of scope, not in another's", function()
    local s, other = one(), one()
    assert.equal(1, s:reduce("MEAN", 1.0):item())
    s:scope(function()
      assert.equal(1, s:reduce("MEAN", 1.0, nil):item())
    end)
    other:scope(function()
      fails("RuntimeError", "Mixing different", s.reduce, s, "MEAN", 1.0)
    end)
  end)

  it("A11 reductions take strings in any case", function()
    local s = one()
    for _, op in ipairs { "mean", "MEAN", "sum", "SUM", D.ReduceOp.SUM } do
      assert.equal(1, s:reduce(op, 1.0):item())
      assert.equal(1.0, s.extended:reduce_to(op, 1.0, at(0)))
      assert.same({ 1.0, n = 1 },
        s.extended:batch_reduce_to(op, { { 1.0, at(0) } }))
    end
    fails("ValueError", "SUM, MEAN", s.reduce, s, "product", 1.0)
  end)

  it("A12 reduce_to and batch_reduce_to outside, inside, mixed", function()
    local s, other = one(), one()
    local function check()
      assert.equal(1.0, s.extended:reduce_to("MEAN", 1.0, at(0)))
      assert.same({ 1.0, 1.0, n = 2 }, s.extended:batch_reduce_to("MEAN",
        { { 1.0, at(0) }, { 1.0, at(0) } }))
    end
    check()
    s:scope(check)
    other:scope(function()
      fails("RuntimeError", "Mixing different", check)
    end)
  end)

  it("A14 update_non_slot calls once", function()
    local s, calls = one(), 0
    s.extended:update_non_slot(at(0), function() calls = calls + 1 end)
    assert.equal(1, calls)
  end)

  it("A18 merge_call of the default context", function()
    local function merge(strategy, text)
      assert.equal(D.get_strategy(), strategy)
      assert.is_nil(D.get_replica_context())
      assert.is_true(D.in_cross_replica_context())
      assert.is_false(D.has_strategy())
      return "foo_" .. text
    end
    assert.equal("foo_bar",
      D.get_replica_context():merge_call(merge, { "bar" }))
  end)

  it("A19 the default scope changes almost nothing", function()
    local default, s = D.get_strategy(), one()
    default:scope(function()
      assert_default()
      default:scope(assert_default)
      s:scope(function()
        fails("RuntimeError", "Mixing different", tf.Variable, 1.0)
      end)
    end)
    s:scope(function()
      tf.Variable(1.0)
      fails("RuntimeError", "must not nest", default.scope, default)
    end)
  end)

  it("A20 the default strategy runs inline", function()
    local default = D.get_strategy()
    local x = tf.constant { 1, 2 }
    assert.equal(x, default:run(function(y) return y end, { x }))
    assert.equal(x, default:run(function(y) return y end, { x }))
    fails("RuntimeError", "none", function()
      return default.extended.worker_devices
    end)
  end)

  R.pair(it, pending, "run inside a replica function is an error", function(s)
    fails("RuntimeError", "cross-replica context", s.run, s, function()
      s:run(function() end)
    end)
    fails("RuntimeError", "cross-replica context", s.run, s, function()
      s:scope(function() end)
    end)
    local e = fails("RuntimeError", "strategy:reduce needs cross-replica "
      .. "context but replica 0 called it at ",
      s.run, s, function() s:reduce("SUM", 1.0) end)
    assert.is_truthy(e.message:find "contexts_spec%.lua:%d+$")
    assert.equal(0, e.replica)
    assert.is_truthy(e.hint:find("all_reduce", 1, true))
  end)

  R.pair(it, pending, "a context kept for later cannot be used", function(s)
    local kept = {}
    s:run(function() kept[#kept + 1] = R.ctx() end)
    fails("RuntimeError", "need to be inside", kept[1].all_reduce, kept[1],
      "SUM", 1.0)
    fails("RuntimeError", "mismatching", s.run, s, function()
      kept[1]:all_reduce("SUM", 1.0)
    end)
  end)

  R.pair(it, pending, "strategies and contexts print", function(s)
    local how = ({ CPU = "all devices share memory", GPU = "NCCL" })
      [on_device.type] or "copies through the host"
    assert.equal(on_device.text("MirroredStrategy{ /cpu:0, /cpu:1 }  2 "
      .. "replicas in sync, reduction: ") .. how, tostring(s))
    local own = tf.distribute.MirroredStrategy {
      cross_device_ops = tf.distribute.ReductionToOneDevice() }
    if own.num_replicas_in_sync > 1 then
      assert.matches("reduction: ReductionToOneDevice$", tostring(own))
    end
    assert.equal(on_device.text "MirroredStrategy{ /cpu:0 }  1 replica in sync",
      tostring(R.mirrored(1)))
    assert.equal(on_device.text "CentralStorageStrategy{ /cpu:0, /cpu:1 }  2 "
      .. "replicas in sync, variables on /cpu:0", tostring(
      D.experimental.CentralStorageStrategy { compute_devices =
        { at(0), at(1) } }))
    s:run(function()
      assert.equal(("ReplicaContext (replica %d of 2, MirroredStrategy)")
        :format(R.id()), tostring(R.ctx()))
    end)
  end)

  it("E8 strategies in each other name both places", function()
    local s, other = one(), one()
    local e = s:scope(function()
      return fails("RuntimeError", "OneDeviceStrategy scope entered at ",
        function() other:scope(function() end) end)
    end)
    assert.is_truthy(e.message:find("while the scope of another strategy "
      .. "(OneDeviceStrategy, entered at ", 1, true))
    assert.is_truthy(e.message:find("strategies cannot be mixed", 1, true))
    local _, count = e.message:gsub("contexts_spec%.lua:%d+", "")
    assert.equal(2, count)
  end)

  it("a device scope left open is a nesting error", function()
    local scope = one():scope()
    local device = tf.device(at(0))
    fails("RuntimeError", "Device scope nesting error", scope.close, scope)
    device:close()
    scope:close()
  end)

  it("an error unwinds what was left open in a scope", function()
    local s, depth = one(), raw.device_depth()
    assert.is_false((pcall(s.scope, s, function()
      s:scope()
      tf.device(at(0))
      tf.name_scope "n"
      error "mine"
    end)))
    assert.equal(depth, raw.device_depth())
    assert_default()
  end)

  R.each(it, pending, "F20 there is no cluster resolver", function(s)
    for _, x in ipairs { s, one(), D.get_strategy() } do
      assert.is_nil(x.cluster_resolver)
      if x ~= D.get_strategy() then
        x:scope(function() assert.is_nil(x.cluster_resolver) end)
      end
    end
  end, 1)

  describe("coroutines of the user's", function()
    local yield, wrap = coroutine.yield, coroutine.wrap

    it("cannot leave a scope by a yield", function()
      local s = one()
      local e = fails("RuntimeError", "attempt to yield across a tfdist "
        .. "boundary: a coroutine cannot be left inside strategy:scope "
        .. "(entered at ", wrap(function() s:scope(yield) end))
      assert.is_truthy(e.message:find "contexts_spec%.lua:%d+")
      fails("RuntimeError", "boundary", wrap(function()
        tf.device(at(0), yield)
      end))
      fails("RuntimeError", "boundary", wrap(function()
        tf.name_scope("n", yield)
      end))
      assert.equal(on_device.depth, raw.device_depth())
    end)

    R.pair(it, pending, "cannot leave a run or a merge by a yield", function(s)
      fails("RuntimeError", "a merge function", wrap(function()
        s:run(function() R.ctx():merge_call(function() yield() end) end)
      end))
      fails("RuntimeError", "yielded outside", wrap(function()
        s:run(yield)
      end))
      -- Runs inside of coroutines, and yields between them, are fine.
      local steps = wrap(function()
        for _ = 1, 3 do
          yield((s:reduce("SUM", s:run(function()
            return R.ctx():all_reduce("SUM", tf.constant(1.0))
          end))))
        end
      end)
      for _ = 1, 3 do
        local ok, e = pcall(steps)
        assert.is_true(not ok or e ~= nil)
      end
    end)

    it("that yielded keep no scope for others", function()
      local s = one()
      local thread = coroutine.create(function()
        local scope = s:scope()
        yield()
        scope:close()
      end)
      coroutine.resume(thread)
      local e = fails("RuntimeError", "in a coroutine that has yielded",
        D.get_strategy)
      assert.is_truthy(e.message:find("entered at", 1, true))
      assert.is_true(coroutine.resume(thread))
      assert_default()
    end)

    it("that ended leave a scope that can be closed", function()
      local s, scope = one(), nil
      wrap(function() scope = s:scope() end)()
      fails("RuntimeError", "that has ended", D.get_strategy)
      scope:close()
      assert_default()
      local other = s:scope()
      fails("RuntimeError", "another coroutine", wrap(function()
        other:close()
      end))
      other:close()
    end)

    R.pair(it, pending, "cannot resume a replica", function(s)
      local first
      local e = fails("RuntimeError", "resumed by something else", s.run, s,
        function()
          first = first or coroutine.running()
          if R.id() == 1 then
            local ok, why = coroutine.resume(first)
            assert.is_false(ok)
            error(why, 0)
          end
          R.ctx():all_reduce("SUM", 1.0)
        end)
      assert.equal(1, e.replica)
      assert.equal(2, s:reduce("SUM", s:run(function()
        return tf.constant(1.0)
      end)):item())
    end)
  end)

  it("device lists are checked", function()
    fails("AssertionError", "empty", D.MirroredStrategy, { devices = {} })
    fails("AssertionError", "twice", D.MirroredStrategy,
      { devices = { at(0), on_device.text "CPU:0" } })
    fails("InvalidArgument", "/cpu:63", D.MirroredStrategy, { "/cpu:63" })
    fails("ValueError", "unknown option", D.MirroredStrategy,
      { device = { at(0) } })
  end)
end)
