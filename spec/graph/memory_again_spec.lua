-- Where memory runs out once, calls of graphs collect garbage and go on, those
-- with steps of the host and of many values too: nothing is done twice.
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local MOST = 200 -- more allocations than any call here makes
local RESULTS = 70 -- more than one call in C hands over

describe("a call of a graph whose memory runs out once", function()
  local count, steps
  before_each(function()
    count, steps = tf.Variable(0.0), 0
  end)
  after_each(function()
    raw.test_fail_allocation(0)
  end)

  -- f counts each call in `count`; `check` takes its results for {1, 2, 3}.
  local function survives(f, check)
    local x = tf.constant { 1, 2, 3 }
    f(x)
    for n = 1, MOST do
      count:assign(0)
      steps = 0
      raw.test_fail_allocation(n)
      local results = { f(x) }
      raw.test_fail_allocation(0)
      assert.are.equal(1, count:item(), "allocation " .. n)
      check(results)
    end
  end

  it("goes on with steps of the host", function()
    survives(tf.function_(function(x)
      local y = x * 2 + 1
      tf.py_function(function() steps = steps + 1 end, { y }, {})
      count:assign_add(1)
      return tf.reduce_sum(y * 3), y - 1
    end), function(results)
      assert.are.equal(1, steps)
      assert.are.equal(3 * (3 + 5 + 7), results[1]:item())
      assert.are.same({ 2, 4, 6 }, results[2]:totable())
    end)
  end)

  it("goes on with many results", function()
    survives(tf.function_(function(x)
      count:assign_add(1)
      local list = {}
      for i = 1, RESULTS do list[i] = x * i end
      return list
    end), function(results)
      for i = 1, RESULTS do
        assert.are.same({ i, 2 * i, 3 * i }, results[1][i]:totable())
      end
    end)
  end)

  it("goes on with many tensors given", function()
    local f = tf.function_(function(list)
      count:assign_add(1)
      return tf.add_n(list)
    end)
    survives(function(x)
      local list = {}
      for i = 1, RESULTS do list[i] = x end
      return f(list)
    end, function(results)
      assert.are.same({ RESULTS, 2 * RESULTS, 3 * RESULTS },
        results[1]:totable())
    end)
  end)
end)
