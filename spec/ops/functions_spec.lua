--- Functions made from the op registry: the calling rule, conversion of Lua
--- values, attributes, messages.
local tf = require "tfdist"
local leaks = require "spec.support.leaks"
local ops = require "tfdist.core.ops"
local raw = require "tfdist.core.raw"
local expect = require "spec.support.expect"

local caught = expect.caught

local function matrix()
  return tf.constant { { 1, 2, 3 }, { 4, 5, 6 } }
end

describe("an op function", function()
  leaks(before_each, after_each)

  -- Functions of Lua that run while fn does, itself not counted.
  local getinfo, sethook = debug.getinfo, debug.sethook
  local function entered(fn)
    local n = -1
    sethook(function()
      if getinfo(2, "S").what ~= "C" then n = n + 1 end
    end, "c")
    fn()
    sethook()
    return n
  end

  it("reads plain calls without a function of Lua", function()
    local t, k = matrix(), tf.constant { { 1, 0, 2 } }
    local at = tf.constant({ 0 }, { dtype = "int32" })
    local sum, product, join, pick, clip = tf.reduce_sum, tf.matmul, tf.concat,
      tf.gather, tf.clip_by_value
    for _, fn in ipairs {
      function() return sum(t, 0) end,
      function() return sum(t, { axis = 0, keepdims = true }) end,
      function() return sum { input_tensor = t, axis = { 0, 1 } } end,
      function() return product(t, k, { transpose_b = true }) end,
      function() return join({ t, k }, { axis = 0 }) end,
      function() return pick(t, at, { axis = 1 }) end,
      function() return pick(t, { 1, 0 }) end,
      function() return sum { 1, 2 } end,
      function() return raw.index(t, { { 0, 1 }, -1 }, tf.newaxis) end,
      function() return clip(t, 1, { clip_value_max = 2, name = "clip" }) end,
    } do
      fn() -- functions are made when their name is first used
      assert.equal(0, entered(fn))
    end
    assert.is_true(entered(function() return sum { t, t } end) > 0)
  end)

  it("gives the same by every way of calling", function()
    local t = matrix()
    local want = { 6, 15 }
    assert.same(want, tf.reduce_sum(t, 1):totable())
    assert.same(want, tf.reduce_sum(t, { 1 }):totable())
    assert.same(want, tf.reduce_sum(t, -1):totable())
    assert.same(want, tf.reduce_sum(t, { axis = 1 }):totable())
    assert.same(want, tf.reduce_sum(t, { axis = { 1 } }):totable())
    assert.same(want, tf.reduce_sum(t, 1, { keepdims = false }):totable())
    assert.same(want, tf.reduce_sum(t, 1, false, "name"):totable())
    assert.same(want, tf.math.reduce_sum(t, 1, { name = "n" }):totable())
    assert.same(want, tf.raw_ops.reduce_sum(t, 1):totable())
    assert.same(want, t:sum(1):totable())
    assert.same(want, t:sum({ axis = 1 }):totable())
    assert.same({ { 6 }, { 15 } }, t:sum(1, true):totable())
    assert.equal(21, t:sum():item())
    assert.equal(21, tf.reduce_sum(t):item())
  end)

  it("keeps its defaults after calls with other attributes", function()
    local t = matrix()
    assert.same({ { 5, 7, 9 } }, tf.reduce_sum(t, 0, true):totable())
    assert.equal(21, tf.reduce_sum(t):item())
    assert.equal("ValueError", caught(tf.reduce_sum, t, 7).kind)
    assert.equal(21, tf.reduce_sum(t, nil):item())
    assert.same({ 6, 15 }, tf.reduce_sum(t, { axis = 1 }):totable())
  end)

  it("converts numbers and tables, to the dtype of a tensor operand", function()
    assert.equal("float32", tf.add(1, 2).dtype)
    assert.equal(3, tf.add(1, 2):item())
    local n = tf.constant({ 1, 2 }, "int64")
    assert.equal("int64", tf.add(n, { 1, 1 }).dtype)
    assert.equal("int64", tf.add(1, n).dtype)
    assert.equal("float64", tf.multiply(tf.constant(2, "float64"), 0.1).dtype)
    assert.equal(0.2, tf.multiply(tf.constant(2, "float64"), 0.1):item())
    assert.equal(6, tf.reduce_sum({ 1, 2, 3 }):item())
    assert.equal("bool", tf.reduce_all({ true, false }).dtype)
    assert.same({ 1, 6 }, tf.where({ true, false }, 1, { 5, 6 }):totable())
  end)

  it("converts indices to int32", function()
    assert.same({ 7, 5 }, tf.gather(tf.constant { 5, 6, 7 },
      { 2, 0 }):totable())
    assert.equal("TypeError", caught(tf.gather, tf.constant { 5 }, 0.5).kind)
  end)

  it("takes lists of tensors, numbers and tables", function()
    assert.same({ 1, 2, 3 }, tf.concat({ tf.constant { 1 }, { 2, 3 } },
      0):totable())
    assert.equal("int32", tf.concat({ { 1 }, tf.constant({ 2 }, "int32") }, 0)
      .dtype)
    local e = caught(tf.concat, tf.constant { 1 }, 0)
    assert.equal("TypeError", e.kind)
    assert.equal("concat: values must be a list of tensors, got a Tensor",
      e.message)
  end)

  it("takes all arguments by name", function()
    assert.same({ { 11 } }, tf.matmul({ a = { { 1, 2 } }, b = { { 3, 4 } },
      transpose_b = true }):totable())
    assert.same({ 1, 2 }, tf.concat({ { 1 }, { 2 } }, { axis = 0 }):totable())
    assert.equal(6, tf.reduce_sum({ input_tensor = { 1, 2, 3 } }):item())
    assert.same({ 0, 1 }, tf.one_hot(1, { depth = 2 }):totable())
  end)

  it("reads variables and IndexedSlices like tensors", function()
    local v = tf.Variable { 1, 2 }
    assert.equal(3, tf.reduce_sum(v):item())
    assert.same({ 2, 4 }, tf.add(v, v):totable())
    local s = tf.IndexedSlices({ 5 }, { 1 }, { 2 })
    assert.same({ 1, 7 }, tf.add(v, s):totable())
  end)

  it("reads objects that stand for a tensor", function()
    local meta = {}
    meta.__tensor = function(x)
      return x.tensor
    end
    local object = setmetatable({ tensor = tf.constant { 1, 2 } }, meta)
    assert.same({ 2, 3 }, tf.add(object, 1):totable())
    assert.equal(3, tf.reduce_sum(object):item())
    assert.is_true(tf.is_tensor(object))
    local function refuse()
      error({ kind = "ValueError" }, 0)
    end
    object = setmetatable({}, { __tensor = refuse })
    assert.equal("ValueError", caught(tf.add, object, 1).kind)
  end)

  it("names the argument and what was given", function()
    local t = matrix()
    for message, call in pairs {
      ["add: y must be a tensor, got a function"] = { tf.add, t, print },
      ['add: y must be a tensor, got the string "a"'] = { tf.add, t, "a" },
      ["reduce_sum: axis must be a whole number, got 1.5"] =
        { tf.reduce_sum, t, 1.5 },
      ["reduce_sum: axis must be whole numbers, got 1.5"] =
        { tf.reduce_sum, t, { 0, 1.5 } },
      ["reduce_sum: keepdims must be true or false, got the number 1"] =
        { tf.reduce_sum, t, 0, 1 },
      ["reduce_sum: missing argument input_tensor"] = { tf.reduce_sum },
      ["reshape: missing argument shape"] = { tf.reshape, t },
      ["reduce_sum: axis 2 is outside a tensor of rank 2 {2, 3}; axes count "
        .. "from 0, -1 is the last"] = { tf.reduce_sum, t, { axis = 2 } },
      ['bias_add: data_format must be one of NHWC, NCHW, got "NCWH"'] =
        { tf.nn.bias_add, t, { 1, 2, 3 }, "NCWH" },
      ["conv2d: data_format must be a string, got true"] =
        { function(x)
          return (tf.nn.conv2d(x, tf.ones { 1, 1, 1, 1 }, 1,
            { { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } }, true))
        end, tf.ones { 1, 3, 3, 1 } },
      ["transpose: perm has 9 entries; 8 is the most"] =
        { tf.raw_ops.transpose, t, { 0, 1, 2, 3, 4, 5, 6, 7, 8 } },
      ["add: x is int32 and y is float32; both must have the same dtype (use "
        .. "tf.cast)"] = { tf.add, tf.constant(1, "int32"), tf.constant(1) },
    } do
      assert.equal(message, caught(call[1], call[2], call[3], call[4]).message)
    end
  end)

  it("names the nearest option for an unknown one", function()
    local e = caught(tf.reduce_sum, matrix(), { keep_dims = true })
    assert.equal("ValueError", e.kind)
    assert.equal('reduce_sum: unknown option "keep_dims"', e.message)
    assert.equal("did you mean keepdims?", e.hint)
  end)

  it("points at the line of the script", function()
    local line = debug.getinfo(1, "l").currentline + 1
    local e = caught(function() return tf.reduce_sum(matrix(), 5) + 0 end)
    assert.truthy(e.where:find("functions_spec.lua:" .. line .. "$"))
    line = debug.getinfo(1, "l").currentline + 1
    e = caught(function() return matrix():sum({ axes = 1 }) + 0 end)
    assert.truthy(e.where:find("functions_spec.lua:" .. line .. "$"))
  end)

  it("accepts attributes as scalar tensors and enumerations in any case",
    function()
      assert.same({ 6, 15 }, tf.reduce_sum(matrix(),
        tf.constant(1, "int32")):totable())
      assert.same({ { 2, 4, 6 }, { 5, 7, 9 } },
        tf.nn.bias_add(matrix(), { 1, 2, 3 }, "nhwc"):totable())
    end)
end)

describe("definitions of functions that are no ops", function()
  it("get the calling rule, several names and methods", function()
    ops.def("spec_twice spec.twice", "x factor=2 name=nil",
      function(x, factor)
        return x * factor
      end, "spec_twice")
    local t = tf.constant(3)
    assert.equal(6, tf.spec_twice(t):item())
    assert.equal(9, tf.spec.twice(t, { factor = 3 }):item())
    assert.equal(6, t:spec_twice():item())
    assert.equal("TypeError", caught(t.spec_twice, 1).kind)
    assert.equal('spec_twice: unknown option "factr"',
      caught(tf.spec_twice, t, { factr = 1 }).message)
  end)
end)
