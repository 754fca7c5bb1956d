--- Structures that branches and loops give: the same rules where ops run and in
--- traced functions.
local tf = require "tfdist"
local expect = require "spec.support.expect"

local raises = expect.raises

local function i32(x) return tf.constant(x, "int32") end

-- fn as it is and as a traced function.
local function both(fn)
  return { fn, tf.function_(fn) }
end

describe("a loop of one variable", function()
  it("takes a list of that one from its body, as TensorFlow", function()
    for _, f in ipairs(both(function(n)
      return tf.while_loop(function(i) return i:less(n) end,
        function(i) return { i + 1 } end, { i32(0) })
    end)) do
      assert.equal(5, f(i32(5)):item())
      assert.equal(0, f(i32(-1)):item())
    end
  end)

  it("keeps a structure that is its variable", function()
    for _, f in ipairs(both(function(x)
      return tf.while_loop(function(s) return s[1]:less(20) end,
        function(s) return { s[1] * 2 } end, { { x } })
    end)) do
      assert.equal(24, f(tf.constant(3))[1]:item())
    end
  end)

  it("takes a list of such a structure, as TensorFlow", function()
    for _, f in ipairs(both(function(x)
      return tf.while_loop(function(s) return s[1]:less(20) end,
        function(s) return { { s[1] * 2, s[2] + 1 } } end, { { x, x } })
    end)) do
      local s = f(tf.constant(3))
      assert.same({ 24, 6 }, { s[1]:item(), s[2]:item() })
    end
  end)

  it("refuses a list of others", function()
    for _, bad in ipairs { {}, { 1, 2 } } do
      for _, f in ipairs(both(function()
        return tf.while_loop(function(i) return i:less(3) end,
          function() return bad end, { i32(0) })
      end)) do
        raises("ValueError", ("body returned %d values for 1 loop variables")
          :format(#bad), f)
      end
    end
  end)
end)

describe("states of loops", function()
  it("keep their structure from one iteration to the next", function()
    for _, f in ipairs(both(function(x)
      return tf.while_loop(function(i) return i:less(3) end,
        function(i, s) return i + 1, { b = s.a } end, { i32(0), { a = x } })
    end)) do
      raises("ValueError", "{a} against {b}", f, tf.constant(1))
    end
    for _, fold in ipairs { "foldl", "foldr", "scan" } do
      for _, f in ipairs(both(function(x)
        return tf[fold](function(a) return { a } end, x, tf.constant(0))
      end)) do
        raises("ValueError", "structures differ", f, tf.constant { 1, 2 })
      end
    end
  end)

  it("are named by their number where they are no tensors", function()
    raises("TypeError", "loop variable 2 must be a tensor, got the string \"a\"",
      tf.function_(function(n)
        return tf.while_loop(function(i) return i:less(n) end,
          function(i) return i + 1, "a" end, { i32(0), "a" })
      end), i32(3))
  end)
end)

describe("the number of a branch", function()
  it("is one", function()
    local one = function() return tf.constant(1) end
    for _, f in ipairs(both(function(i)
      return (tf.switch_case(i, { one, one }))
    end)) do
      assert.equal(1, f(i32(0)):item())
      raises("InvalidArgument", "switch_case: branch_index has shape {2}; "
        .. "expected a scalar", f, tf.constant({ 0, 1 }, { dtype = "int32" }))
    end
  end)
end)

describe("branches with results that differ", function()
  it("say what both have", function()
    for _, case in ipairs {
      { "a", "b",
        "the string \"a\" in branch 0 and the string \"b\" in branch 1" },
      { nil, tf.constant(1), "nil in branch 0 and a Tensor in branch 1" },
      { tf.constant(1), "b",
        "the string \"b\" in branch 1 and a Tensor in branch 0" },
    } do
      raises("TypeError", "result 1 is " .. case[3], tf.function_(function(p)
        return tf.cond(p, function() return case[1] end,
          function() return case[2] end)
      end), tf.constant(true))
    end
  end)
end)
