-- Cases E: making variables under a strategy.
local R = require "spec.support.replicas"
local tf = require "tfdist"
local at = require("spec.support.on_device").at

local fails = R.fails

describe("variable creation", function()
  R.leaks(before_each, after_each)

  R.each(it, pending, "E01 E02 E04 names", function(s)
    local v = s:run(function()
      local foo = tf.Variable(1.0, { name = "foo" })
      R.ctx():merge_call(function() end)
      return foo
    end)
    assert.equal("foo", v.name)
    assert.equal("foo", v.values[1].name)
    assert.equal("foo/replica_1", v.values[2].name)
    assert.equal("Variable", s:run(function() return tf.Variable(1.0) end).name)
    local all = s:run(function()
      local list = {}
      for i, name in ipairs { "foo/bar", "foo_1/bar", "foo_1/bar_1",
        "foo/bar_1" } do
        list[i] = tf.Variable(i, { name = name })
        R.ctx():merge_call(function() end)
      end
      return list
    end)
    for i, name in ipairs { "foo/bar", "foo_1/bar", "foo_1/bar_1",
      "foo/bar_1" } do
      assert.equal(name, all[i].name)
      assert.equal(i, all[i]:read_value():item())
    end
  end)

  R.each(it, pending, "E05 names may count replicas", function(s)
    local v = s:run(function()
      return tf.Variable(1.0, { name = "foo_" .. R.id() })
    end)
    assert.equal("foo_0", v.name)
  end)

  R.each(it, pending, "E06 kinds and settings", function(s)
    local t = s:run(function()
      return tf.name_scope("common", function()
        local a = tf.Variable(1.0, { name = "a" })
        R.ctx():merge_call(function() end)
        return { a, tf.Variable(1.0, { name = "b", synchronization = "ON_READ",
          aggregation = "SUM" }), tf.Variable(1.0, { name = "c",
          synchronization = "ON_WRITE", aggregation = "MEAN" }) }
      end)
    end)
    assert.is_truthy(tostring(t[1]):find("^MirroredVariable"))
    assert.is_truthy(tostring(t[2]):find("^SyncOnReadVariable"))
    assert.is_truthy(tostring(t[3]):find("^MirroredVariable"))
    assert.same({ "common/a", "common/b", "common/c" },
      { t[1].name, t[2].name, t[3].name })
    assert.same({ "NONE", "SUM", "MEAN" },
      { t[1].aggregation, t[2].aggregation, t[3].aggregation })
    assert.equal("ON_READ", t[2].synchronization)
  end)

  R.each(it, pending, "E08 E09 E10 P05 settings are checked", function(s)
    s:scope(function()
      fails("ValueError", "`NONE` variable synchronization mode", tf.Variable,
        1.0, { name = "v", synchronization = "NONE" })
      fails("ValueError", "Invalid variable synchronization mode: Invalid for "
        .. "variable: v", tf.Variable, 1.0, { name = "v",
        synchronization = "Invalid" })
      fails("ValueError", "Invalid variable aggregation mode: invalid for "
        .. "variable: v", tf.Variable, 1.0, { name = "v",
        aggregation = "invalid" })
      fails("ValueError", "MEAN", tf.Variable, 1, { dtype = "int32",
        aggregation = "MEAN" })
    end)
  end)

  R.each(it, pending, "E11 replicas must make the same", function(s)
    fails("RuntimeError", "replica 1", s.run, s, function()
      tf.Variable(1.0, { name = R.id() == 0 and "foo" or "bar" })
    end)
    fails("RuntimeError", "replica 1", s.run, s, function()
      if R.id() == 1 then tf.Variable(1.0) end
    end)
  end)

  R.each(it, pending, "E12 trainable", function(s)
    s:scope(function()
      assert.is_true(tf.Variable(1.0).trainable)
      for _, want in ipairs { "unset", true, false } do
        local trainable = want
        if want == "unset" then trainable = nil end
        local v = tf.Variable(1.0, { synchronization = "ON_READ",
          trainable = trainable })
        assert.equal(want == true, v.trainable)
      end
    end)
  end)

  R.each(it, pending, "E14 name scopes", function(s)
    local a, b, c
    s:scope(function()
      tf.name_scope("main", function()
        a = tf.Variable(1.0, { name = "a" })
        s:run(function()
          b = tf.Variable(1.0, { name = "b" })
          tf.name_scope("foo", function()
            R.ctx():merge_call(function()
              c = tf.Variable(1.0, { name = "c" })
            end)
          end)
        end)
      end)
    end)
    assert.same({ "main/a", "main/a/replica_1" },
      { a.values[1].name, a.values[2].name })
    assert.same({ "main/b", "main/b/replica_1" },
      { b.values[1].name, b.values[2].name })
    assert.same({ "main/foo/c", "main/foo/c/replica_1" },
      { c.values[1].name, c.values[2].name })
  end)

  R.pair(it, pending, "E15 scopes that are seen name the replica", function(s)
    for _, traced in ipairs { false, true } do
      local seen = {}
      local function names(scope) seen[R.id()] = scope end
      local function step() tf.name_scope("foo", names) end
      if traced then step = tf.function_(step) end
      tf.name_scope("main", function() s:run(step) end)
      assert.same({ [0] = "main/foo/", "main/replica_1/foo/" }, seen)
    end
  end)

  R.pair(it, pending, "E15 the scope of a replica can be entered again",
    function(s)
      local seen = {}
      local v = s:run(function()
        return tf.name_scope("foo", function(scope)
          return tf.name_scope("bar", function()
            return tf.name_scope(scope, function(again)
              seen[R.id()] = again
              return tf.Variable(1.0, { name = "v" })
            end)
          end)
        end)
      end)
      assert.same({ [0] = "foo/", "replica_1/foo/" }, seen)
      assert.same({ "foo/v", "foo/v/replica_1" },
        { v.values[1].name, v.values[2].name })
    end)

  R.pair(it, pending, "E15 scopes that start anew are the replicas' alike",
    function(s)
      for _, outer in ipairs { "main", "" } do
        for name, want in pairs { ["abs/"] = "abs/", ["main/x/"] = "main/x/",
          ["main/"] = "main/", [""] = "" } do
          local seen, inner = {}, {}
          local v = tf.name_scope(outer, function()
            return s:run(function()
              return tf.name_scope("foo", function()
                return tf.name_scope(name, function(scope)
                  seen[R.id()] = scope
                  return tf.name_scope("in", function(deeper)
                    inner[R.id()] = deeper
                    return tf.Variable(1.0, { name = "v" })
                  end)
                end)
              end)
            end)
          end)
          assert.same({ [0] = want, want }, seen)
          assert.same({ [0] = want .. "in/", want .. "in/" }, inner)
          assert.same({ want .. "in/v", want .. "in/v/replica_1" },
            { v.values[1].name, v.values[2].name })
        end
      end
    end)

  R.pair(it, pending, "E15 each run has the scope that it begins in",
    function(s)
      for outer, prefix in pairs { a = "a/", [""] = "", b = "b/" } do
        local seen = {}
        local v = tf.name_scope(outer, function()
          return s:run(function()
            return tf.name_scope("x", function(scope)
              seen[R.id()] = scope
              return tf.Variable(1.0, { name = "v" })
            end)
          end)
        end)
        assert.same({ [0] = prefix .. "x/", prefix .. "replica_1/x/" }, seen)
        assert.same({ prefix .. "x/v", prefix .. "x/v/replica_1" },
          { v.values[1].name, v.values[2].name })
      end
    end)

  R.pair(it, pending, "E15 modules of replicas have one scope", function(s)
    local Own = tf.Module:subclass "Own"
    local scopes = {}
    tf.name_scope("main", function()
      s:run(function() scopes[R.id()] = Own("m").name_scope end)
    end)
    assert.same({ [0] = "main/m/", "main/m/" }, scopes)
  end)

  R.pair(it, pending, "E15 a replica's own coroutines have its scope",
    function(s)
      local seen = {}
      local v = tf.name_scope("main", function()
        return s:run(function()
          return coroutine.wrap(function()
            return tf.name_scope("foo", function(scope)
              seen[R.id()] = scope
              return tf.Variable(1.0, { name = "v" })
            end)
          end)()
        end)
      end)
      assert.same({ [0] = "main/foo/", "main/replica_1/foo/" }, seen)
      assert.same({ "main/foo/v", "main/foo/v/replica_1" },
        { v.values[1].name, v.values[2].name })
    end)

  R.pair(it, pending, "E16 creators of replicas stay with them", function(s)
    local x = s:scope(function()
      return tf.variable_creator_scope(function()
        return "main"
      end, function()
        return s:run(function()
          return tf.variable_creator_scope(function(next_creator, kwargs)
            R.ctx():merge_call(function() end)
            return next_creator(kwargs) .. ":" .. R.id()
          end, function() return tf.Variable(1.0) end)
        end)
      end)
    end)
    assert.same({ "main:0", "main:1" }, R.locals(s, x))
  end)

  R.each(it, pending, "is not recorded, copies the first value", function(s)
    s:scope(function()
      local calls = 0
      local tape = tf.GradientTape()
      local v = tf.Variable(function()
        calls = calls + 1
        return tf.ones { 2 } * 3
      end)
      assert.equal(1, calls)
      assert.equal(0, #tape:watched_variables())
      tape:close()
      assert.same({ 3, 3 }, v.values[2]:totable())
    end)
  end)

  R.each(it, pending, "modules collect distributed variables", function(s)
    local m = tf.Module()
    s:scope(function() m.w = tf.Variable(1.0, { name = "w" }) end)
    assert.equal(m.w, m.trainable_variables[1])
  end)

  it("one device: plain variables on the device", function()
    local s = tf.distribute.OneDeviceStrategy(at(0))
    local v = s:scope(function() return tf.Variable(1.0) end)
    assert.equal("variable", require "tfdist.core.raw".kind(v))
    assert.is_true(s.extended:variable_created_in_scope(v))
    s:run(function() v:assign_add(2.0) end)
    assert.equal(3, v:read_value():item())
    assert.equal(4, s.extended:update(v, function(w, x)
      return w:assign_add(x)
    end, { 1.0 }):read_value():item())
  end)
end)
