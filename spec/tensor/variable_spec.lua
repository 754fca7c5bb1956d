--- Variables: creation, assignment, scatter updates, scopes, printing.
local tf = require "tfdist"
local on_device = require "spec.support.on_device"
local leaks = require "spec.support.leaks"
local variable = require "tfdist.core.variable"
local expect = require "spec.support.expect"

local caught = expect.caught

describe("tf.Variable", function()
  leaks(before_each, after_each)

  it("starts with its initial value, float32 for numbers", function()
    local v = tf.Variable { 1, 2 }
    assert.same({ 1, 2 }, v:totable())
    assert.equal("float32", v.dtype)
    assert.same({ 2 }, v.shape)
    assert.equal("Variable", v.name)
    assert.is_true(v.trainable)
    assert.equal("AUTO", v.synchronization)
    assert.equal("NONE", v.aggregation)
    assert.equal(tf.VariableAggregation.NONE, v.aggregation)
  end)

  it("refuses a shape that it would not keep", function()
    local e = caught(tf.Variable, { 1 }, { shape = { -1 } })
    assert.equal("NotImplementedError", e.kind)
    assert.truthy(e.message:find("shape {-1} leaves a size open", 1, true),
      e.message)
    e = caught(tf.Variable, { 1, 2 }, { shape = { 3 } })
    assert.equal("InvalidArgument", e.kind)
    assert.same({ 2 }, tf.Variable({ 1, 2 }, { shape = { 2 } }).shape)
  end)

  it("adds where the value lies, without the collector's help", function()
    local v, delta = tf.Variable(tf.zeros { 65536 }), tf.ones { 65536 }
    local function assign()
      v:assign_add(delta)
      v:assign_sub(delta)
      assert.same({ 65536 }, v.shape)
      assert.equal("float32", v.dtype)
      v:scatter_nd_add({ { 1 } }, { 1 })
      tf.sync_devices()
    end
    assign()
    collectgarbage()
    collectgarbage "stop"
    local before = tf.config.experimental.get_memory_info(
      on_device.at(0)).current
    for _ = 1, 10 do assign() end
    local after = tf.config.experimental.get_memory_info(
      on_device.at(0)).current
    collectgarbage "restart"
    -- A value alone has four times as many bytes as elements.
    assert.is_true(after - before < 4 * 65536, after - before)
  end)

  it("takes TensorFlow's options", function()
    local function positive(x)
      return x
    end
    local v = tf.Variable(1, { name = "v", trainable = false, dtype = "int32",
      synchronization = "on_read", aggregation = tf.VariableAggregation.SUM,
      constraint = positive })
    assert.equal("v", v.name)
    assert.is_false(v.trainable)
    assert.equal("int32", v.dtype)
    assert.equal("ON_READ", v.synchronization)
    assert.equal("SUM", v.aggregation)
    assert.equal(positive, v.constraint)
  end)

  it("calls a function for its initial value", function()
    assert.equal(5, tf.Variable(function() return 5 end):item())
  end)

  it("is not trainable when it is synchronised on read", function()
    assert.is_false(tf.Variable(1, { synchronization = "ON_READ" }).trainable)
    local e = caught(tf.Variable, 1, { synchronization = "ON_READ",
      trainable = true })
    assert.equal("ValueError", e.kind)
  end)

  it("checks dtype, shape, aggregation and options", function()
    assert.equal("TypeError", caught(tf.Variable, tf.constant(1), {
      dtype = "int32" }).kind)
    assert.equal("InvalidArgument", caught(tf.Variable, { 1, 2 }, {
      shape = { 3 } }).kind)
    assert.equal("ValueError", caught(tf.Variable, 1, { dtype = "int32",
      aggregation = "MEAN" }).kind)
    assert.equal("ValueError", caught(tf.Variable, 1, { aggregation = "MAX" })
      .kind)
    assert.equal("TypeError", caught(tf.Variable).kind)
    local e = caught(tf.Variable, 1, { trainalbe = true })
    assert.equal('Variable: unknown option "trainalbe"', e.message)
    assert.equal("did you mean trainable?", e.hint)
  end)

  it("does not share its value with the tensor it came from", function()
    local t = tf.constant { 1, 2 }
    local v, w = tf.Variable(t), tf.Variable(t)
    v:assign { 5, 6 }
    assert.same({ 1, 2 }, t:totable())
    assert.same({ 1, 2 }, w:totable())
  end)

  it("is assigned in place; earlier reads keep their value", function()
    local v = tf.Variable { 1, 2 }
    local before = v:read_value()
    local version = v.version
    assert.equal(v, v:assign { 3, 4 })
    v:assign_add { 1, 1 }
    v:assign_sub(tf.constant { 2, 0 })
    assert.same({ 2, 5 }, v:totable())
    assert.same({ 1, 2 }, before:totable())
    assert.equal(version + 3, v.version)
    assert.equal("ValueError", caught(v.assign, v, { 1, 2, 3 }).kind)
    assert.equal("ValueError",
      caught(v.assign, v, tf.constant({ 1, 2 }, "int32")).kind)
    assert.equal("InvalidArgument", caught(v.assign_add, v, { 1 }).kind)
  end)

  -- TensorFlow converts what is given to the variable's dtype, which refuses
  -- tensors of another one.
  it("tells of a wrong dtype in one way, however it is written", function()
    local v = tf.Variable { 1, 2 }
    local wrong = tf.constant({ 1, 2 }, "float64")
    local slices = tf.IndexedSlices(wrong, tf.constant({ 0, 1 }, "int32"))
    local positions = tf.constant({ { 0 }, { 1 } }, "int32")
    local batch = tf.constant({ 0, 1 }, "int32")
    local function check(name, ...)
      local e = caught(v[name], v, ...)
      assert.equal("ValueError", e.kind, name)
      assert.truthy(tostring(e):find(name, 1, true))
      assert.truthy(tostring(e):find "float32.*float64")
    end
    for _, name in ipairs { "assign", "assign_add", "assign_sub" } do
      check(name, wrong)
    end
    for _, name in ipairs { "add", "sub", "mul", "div", "min", "max",
      "update" } do
      check("scatter_" .. name, slices)
    end
    for _, name in ipairs { "add", "sub", "min", "max", "update" } do
      check("scatter_nd_" .. name, positions, wrong)
    end
    check("batch_scatter_update", slices)
    check("batch_scatter_update", { values = wrong, indices = batch })
    assert.same({ 1, 2 }, v:totable())
  end)

  it("has the methods and operators of tensors", function()
    local v = tf.Variable { 1, 2 }
    assert.same({ 2, 4 }, (v + v):totable())
    assert.same({ 3, 6 }, (3 * v):totable())
    assert.same({ { 1, 2 } }, v:reshape({ 1, 2 }):totable())
    assert.equal(2, #v)
    assert.equal(1, v.rank)
    assert.equal("TypeError", caught(function() return v < v end).kind)
    assert.equal("TypeError", caught(function() v.name = "x" end).kind)
  end)

  it("called with a dot says so", function()
    local v = tf.Variable(1)
    local e = caught(v.assign, 3)
    assert.equal("TypeError", e.kind)
    assert.equal("Variable.assign: the first argument must be the variable "
      .. "itself, got the number 3", e.message)
    assert.truthy(e.hint:find("variable:assign(value", 1, true))
  end)

  it("prints its value and where it is", function()
    assert.equal(on_device.text
      'Variable "v" float32 {} = 1  on /cpu:0',
      tostring(tf.Variable(1, { name = "v" })))
    assert.equal(on_device.text
      'Variable "w" float32 {2, 2} on /cpu:0\n 1  2\n 3  4',
      tostring(tf.Variable({ { 1, 2 }, { 3, 4 } }, { name = "w" })))
    local v = tf.Variable(1)
    v:release()
    assert.equal("Variable (released)", tostring(v))
  end)

  it("is told from tensors", function()
    assert.is_true(tf.is_variable(tf.Variable(1)))
    assert.is_false(tf.is_variable(tf.constant(1)))
    assert.is_false(tf.is_variable())
  end)

  it("remembers where it was made", function()
    local v = tf.Variable(1)
    assert.truthy(variable.origin(v):find("variable_spec.lua:%d+$"))
  end)
end)

describe("scatter updates", function()
  leaks(before_each, after_each)

  local function rows()
    return tf.Variable { { 1, 2 }, { 3, 4 }, { 5, 6 } }
  end

  local function slices(values, indices)
    return tf.IndexedSlices(values, indices, { 3, 2 })
  end

  it("change whole rows; a row given twice counts twice", function()
    local twice = slices({ { 2, 2 }, { 3, 3 } }, { 1, 1 })
    local once = slices({ { 2, 9 } }, { 2 })
    assert.same({ { 1, 2 }, { 8, 9 }, { 5, 6 } },
      rows():scatter_add(twice):totable())
    assert.same({ { 1, 2 }, { -2, -1 }, { 5, 6 } },
      rows():scatter_sub(twice):totable())
    assert.same({ { 1, 2 }, { 18, 24 }, { 5, 6 } },
      rows():scatter_mul(twice):totable())
    assert.same({ { 1, 2 }, { 0.5, 4 / 6 }, { 5, 6 } }, {
      rows():totable()[1],
      (function()
        local r = rows():scatter_div(twice):totable()[2]
        return { r[1], math.abs(r[2] - 4 / 6) < 1e-6 and 4 / 6 }
      end)(),
      rows():totable()[3],
    })
    assert.same({ { 1, 2 }, { 3, 4 }, { 2, 9 } },
      rows():scatter_update(once):totable())
    assert.same({ { 1, 2 }, { 3, 4 }, { 2, 6 } },
      rows():scatter_min(once):totable())
    assert.same({ { 1, 2 }, { 3, 4 }, { 5, 9 } },
      rows():scatter_max(once):totable())
  end)

  it("by position take indices and updates", function()
    assert.same({ { 1, 20 }, { 30, 4 }, { 5, 6 } },
      rows():scatter_nd_update({ { 0, 1 }, { 1, 0 } }, { 20, 30 }):totable())
    assert.same({ { 1, 2 }, { 3, 4 }, { 6, 8 } },
      rows():scatter_nd_add({ { 2 } }, { { 1, 2 } }):totable())
    assert.same({ { 0, 2 }, { 3, 4 }, { 5, 6 } },
      rows():scatter_nd_sub({ { 0, 0 } }, { 1 }):totable())
  end)

  it("inside a batch take one list of rows for each entry", function()
    local v = tf.Variable { { { 1 }, { 2 } }, { { 3 }, { 4 } } }
    v:batch_scatter_update { values = { { { 9 } }, { { 8 } } },
      indices = { { 1 }, { 0 } } }
    assert.same({ { { 1 }, { 9 } }, { { 8 }, { 4 } } }, v:totable())
    local w = tf.Variable { { 1 }, { 2 } }
    w:batch_scatter_update(tf.IndexedSlices({ { 5 } }, { 1 }, { 2, 1 }))
    assert.same({ { 1 }, { 5 } }, w:totable())
  end)

  it("need IndexedSlices that fit", function()
    assert.equal("TypeError", caught(function()
      rows():scatter_add { 1, 2 }
    end).kind)
    assert.equal("ValueError", caught(function()
      rows():scatter_add(tf.IndexedSlices(tf.constant({ { 1, 2 } }, "int32"),
        { 0 }, { 3, 2 }))
    end).kind)
    assert.is_true(({ InvalidArgument = true, IndexError = true })[
      caught(function()
        rows():scatter_update(slices({ { 1, 2 } }, { 3 }))
        on_device.settle()
      end).kind])
  end)

  it("have readers for rows and positions", function()
    assert.same({ { 5, 6 }, { 1, 2 } }, rows():sparse_read({ 2, 0 }):totable())
    assert.same({ 4 }, rows():gather_nd({ { 1, 1 } }):totable())
  end)
end)

describe("scopes", function()
  leaks(before_each, after_each)

  it("prefix names, nested, and end on errors too", function()
    local function name()
      return tf.Variable(1, { name = "v" }).name
    end
    tf.name_scope("a", function(scope)
      assert.equal("a/", scope)
      assert.equal("a/v", name())
      tf.name_scope("b", function()
        assert.equal("a/b/v", name())
        assert.equal("x/v", tf.name_scope("x/", name))
      end)
      pcall(tf.name_scope, "c", error, "stop")
      assert.equal("a/v", name())
    end)
    assert.equal("v", name())
    local scope = tf.name_scope("d")
    assert.equal("d/v", name())
    scope:close()
    assert.equal("v", name())
  end)

  it("return what the function returns, nil included", function()
    assert.equal(3, select("#", tf.name_scope("a", function()
      return 1, nil, nil
    end)))
  end)

  it("of creators get and may change the arguments, innermost first", function()
    local order = {}
    local function creator(mark)
      return function(next_creator, kwargs)
        order[#order + 1] = mark .. kwargs.initial_value
        kwargs.initial_value = kwargs.initial_value * 10
        return next_creator(kwargs)
      end
    end
    local v = tf.variable_creator_scope(creator "outer", function()
      return tf.variable_creator_scope(creator "inner", function()
        return tf.Variable(1)
      end)
    end)
    assert.equal(100, v:item())
    assert.same({ "inner1", "outer10" }, order)
    assert.equal(1, tf.Variable(1):item())
  end)

  it("of creators end on errors", function()
    local function creator()
      return "mine"
    end
    local scope = tf.variable_creator_scope(creator)
    assert.equal("mine", tf.Variable(1))
    scope:close()
    assert.equal("TypeError", caught(tf.variable_creator_scope, 1).kind)
    pcall(tf.variable_creator_scope, creator, error)
    assert.equal(1, tf.Variable(1):item())
  end)

  it("tf.init_scope lifts name scopes", function()
    tf.name_scope("a", function()
      assert.equal("v", tf.init_scope(function()
        return tf.Variable(1, { name = "v" }).name
      end))
      assert.equal("a/v", tf.Variable(1, { name = "v" }).name)
    end)
  end)
end)
