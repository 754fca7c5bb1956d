--- What a traced function gives where it returns variables.
local tf = require "tfdist"

describe("a variable that a traced function returns", function()
  local one = tf.constant(1.0)

  it("is its value at the end of that call", function()
    local v = tf.Variable(0.0)
    local returned = tf.function_(function(d)
      v:assign_add(d)
      return v
    end)
    local updated = tf.function_(function(d) return v:assign_add(d) end)
    for i, f in ipairs { returned, updated } do
      v:assign(10 * i)
      local first = f(one)
      local second = f(one)
      assert.equal(10 * i + 1, first:item())
      assert.equal(10 * i + 2, second:item())
      assert.is_false(tf.is_variable(first))
    end
    local before, after = tf.function_(function(d)
      local was = v:assign_add(d)
      v:assign_add(d)
      return was, { v, { x = v } }
    end)(one)
    v:assign(0)
    -- Both name one variable, read when the function ends.
    assert.equal(24, before:item())
    assert.equal(24, after[1]:item())
    assert.equal(24, after[2].x:item())
  end)

  it("is that in another function, too", function()
    local v = tf.Variable(1.0)
    local inner = tf.function_(function(d) return { v:assign_add(d) } end)
    local a, b = tf.function_(function(d)
      local was = inner(d)[1]
      v:assign_add(5)
      return was, v
    end)(one)
    assert.equal(2, a:item())
    assert.equal(7, b:item())
  end)

  it("passes gradients on, and stays one line by line", function()
    local v = tf.Variable(3.0)
    local f = tf.function_(function(x) return v, x * v end)
    local tape, y = tf.GradientTape(function()
      local value, product = f(one * 2)
      return value * 5 + product
    end)
    assert.equal(7, tape:gradient(y, v):item())
    assert.is_true(tf.is_variable(v:assign_add(1)))
    local made
    local makes = tf.function_(function()
      made = made or tf.Variable(4.0)
      return made
    end)
    local x = makes()
    made:assign(9)
    assert.equal(4, x:item())
    assert.equal(9, makes():item())
  end)

  it("is that where the call goes on op by op", function()
    local v = tf.Variable(1.0)
    local opt = tf.keras.optimizers.SGD(0.5)
    local f = tf.function_(function(d)
      opt:apply_gradients({ d }, { v })
      return v
    end)
    local results = {}
    tf.GradientTape(function()
      results[1], results[2] = f(one), f(one)
    end)
    assert.equal(0.5, results[1]:item())
    assert.equal(0, results[2]:item())
  end)
end)
