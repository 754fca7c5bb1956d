-- Cases A: contexts and scopes.
local R = require "spec.support.replicas"
local tf = require "tfdist"

local D = tf.distribute
local fails = R.fails

local function one() return D.OneDeviceStrategy "/cpu:0" end

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
      assert.equal(1.0, s.extended:reduce_to(op, 1.0, "/cpu:0"))
      assert.same({ 1.0, n = 1 },
        s.extended:batch_reduce_to(op, { { 1.0, "/cpu:0" } }))
    end
    fails("ValueError", "SUM, MEAN", s.reduce, s, "product", 1.0)
  end)

  it("A12 reduce_to and batch_reduce_to outside, inside, mixed", function()
    local s, other = one(), one()
    local function check()
      assert.equal(1.0, s.extended:reduce_to("MEAN", 1.0, "/cpu:0"))
      assert.same({ 1.0, 1.0, n = 2 }, s.extended:batch_reduce_to("MEAN",
        { { 1.0, "/cpu:0" }, { 1.0, "/cpu:0" } }))
    end
    check()
    s:scope(check)
    other:scope(function()
      fails("RuntimeError", "Mixing different", check)
    end)
  end)

  it("A14 update_non_slot calls once", function()
    local s, calls = one(), 0
    s.extended:update_non_slot("/cpu:0", function() calls = calls + 1 end)
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
    local e = fails("RuntimeError", "strategy:reduce needs cross-replica",
      s.run, s, function() s:reduce("SUM", 1.0) end)
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
    assert.equal("MirroredStrategy{ /cpu:0, /cpu:1 }  2 replicas in sync",
      tostring(s))
    s:run(function()
      assert.equal(("ReplicaContext (replica %d of 2, MirroredStrategy)")
        :format(R.id()), tostring(R.ctx()))
    end)
  end)

  it("device lists are checked", function()
    fails("AssertionError", "empty", D.MirroredStrategy, { devices = {} })
    fails("AssertionError", "twice", D.MirroredStrategy,
      { devices = { "/cpu:0", "CPU:0" } })
    fails("InvalidArgument", "/cpu:63", D.MirroredStrategy, { "/cpu:63" })
    fails("ValueError", "unknown option", D.MirroredStrategy,
      { device = { "/cpu:0" } })
  end)
end)
