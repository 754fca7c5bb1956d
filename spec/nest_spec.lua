--- tf.nest.
local nest = require "tfdist.base.nest"

local function kind_of(fn, ...)
  local ok, e = pcall(fn, ...)
  assert.is_false(ok)
  return e.kind, e.message
end

describe("nest.flatten", function()
  it("lists leaves: list elements first, then keys in order", function()
    assert.same({ 1, 2, 3, 4, 5, n = 5 },
      nest.flatten { 1, { 2, 3 }, b = 5, a = { 4 } })
  end)

  it("gives a list of one for a leaf", function()
    assert.same({ 7, n = 1 }, nest.flatten(7))
    assert.same({ n = 1 }, nest.flatten(nil))
  end)

  it("keeps nil elements of counted lists", function()
    assert.equal(3, nest.flatten({ 1, nil, nil, n = 3 }).n)
    assert.equal(0, nest.flatten({ n = 0 }).n)
  end)

  it("refuses lengths that no list has", function()
    for _, n in ipairs { 2 ^ 27, 2 ^ 53, 1e300 } do
      assert.equal("ValueError", (kind_of(nest.flatten, { n = n })))
      assert.equal("ValueError", (kind_of(nest.map_structure, print,
        { { n = n } })))
    end
  end)

  it("takes tables with a metatable as leaves", function()
    local object = setmetatable({ 1, 2 }, {})
    assert.equal(object, nest.flatten({ object })[1])
    assert.is_false(nest.is_nested(object))
    assert.is_true(nest.is_nested {})
  end)

  it("refuses a table that contains itself", function()
    local t = {}
    t[1] = t
    assert.equal("ValueError", (kind_of(nest.flatten, t)))
    assert.equal("ValueError", (kind_of(nest.map_structure, tostring, t)))
    assert.equal("ValueError", (kind_of(nest.assert_same_structure, t, t)))
  end)

  it("takes 200 levels", function()
    local t = 1
    for _ = 1, 200 do
      t = { t }
    end
    assert.same({ 1, n = 1 }, nest.flatten(t))
    assert.equal("ValueError", (kind_of(nest.flatten, { t })))
  end)
end)

describe("nest.map_structure", function()
  it("keeps the structure", function()
    local got = nest.map_structure(function(x)
      return x * 2
    end, { 1, { a = 2, b = { 3 } } })
    assert.same({ 2, { a = 4, b = { 6 } } }, got)
  end)

  it("takes corresponding leaves of several structures", function()
    local function add(...)
      local sum = 0
      for i = 1, select("#", ...) do
        sum = sum + select(i, ...)
      end
      return sum
    end
    assert.same({ 11, { x = 22 } },
      nest.map_structure(add, { 1, { x = 2 } }, { 10, { x = 20 } }))
    assert.same({ 111, { x = 222 } }, nest.map_structure(add,
      { 1, { x = 2 } }, { 10, { x = 20 } }, { 100, { x = 200 } }))
  end)

  it("keeps the count of a list with nil results", function()
    local got = nest.map_structure(function() return nil end, { 1, 2, n = 2 })
    assert.equal(2, got.n)
  end)

  it("names the place where structures differ", function()
    local kind, message = kind_of(nest.map_structure, math.max,
      { 1, { x = 2 } }, { 1, { y = 2 } })
    assert.equal("ValueError", kind)
    assert.truthy(message:find("element [2]", 1, true))
  end)

  it("needs a function", function()
    assert.equal("TypeError", (kind_of(nest.map_structure, 1, {})))
  end)

  it("may be left by a yield and gone on with", function()
    local co = coroutine.wrap(function()
      return nest.map_structure(coroutine.yield, { 1, { 2 } })
    end)
    assert.equal(1, co())
    assert.equal(2, co("a"))
    assert.same({ "a", { "b" } }, co("b"))
  end)
end)

describe("nest.pack_sequence_as", function()
  it("is the inverse of flatten", function()
    local shape = { 1, { a = 2, b = { 3, 4 } }, z = 5 }
    assert.same(shape, nest.pack_sequence_as(shape, nest.flatten(shape)))
    assert.equal(9, nest.pack_sequence_as(0, { 9 }))
  end)

  it("refuses another number of leaves", function()
    assert.equal("ValueError",
      (kind_of(nest.pack_sequence_as, { 1, 2 }, { 1 })))
  end)
end)

describe("nest.assert_same_structure", function()
  it("compares tables and keys, not leaves", function()
    nest.assert_same_structure({ 1, { a = 2 } }, { "x", { a = false } })
    for _, pair in ipairs {
      { { 1 }, { 1, 2 } }, { { 1 }, 1 }, { { a = 1 }, { b = 1 } },
      { { 1 }, { a = 1 } },
    } do
      assert.equal("ValueError",
        (kind_of(nest.assert_same_structure, pair[1], pair[2])))
    end
  end)
end)

describe("a table that contains itself", function()
  local tf = require "tfdist"
  local data, circle = tf.data.Dataset, { tf.ones { 2 } }
  local list = {}
  circle.again, list[1] = circle, list
  local strategy = tf.distribute.MirroredStrategy { devices = { "/cpu:0" } }
  local function nothing() end
  local function gives() return circle end
  local context = tf.distribute.get_replica_context
  local mine = strategy:scope(function() return tf.Variable(1) end)
  local function update(...)
    return strategy.extended:update(mine, ...)
  end
  local function in_replica(fn, ...)
    local args = { ... }
    strategy:run(function() fn(context(), args[1], args[2], args[3]) end)
  end
  local function custom(output, gives_gradient)
    local f = tf.custom_gradient(function(x)
      return output or x * 1, gives_gradient or nothing
    end)
    local x = tf.Variable(1)
    local tape, y = tf.GradientTape(function() return f(x) end)
    return tape:gradient(y, x)
  end
  local function gradient(targets, sources)
    local tape = tf.GradientTape(nothing)
    return tape:gradient(targets, sources)
  end
  local function model()
    local m = tf.keras.Sequential {
      tf.keras.layers.Dense(1, { input_shape = { 2 } }) }
    m:compile { loss = "mse" }
    return m
  end
  -- What errors begin with, and the calls.
  for _, case in ipairs {
    { "from_tensors", function() data.from_tensors(circle) end },
    { "from_tensor_slices", function() data.from_tensor_slices(circle) end },
    { "from_generator", function()
      data.from_generator(nothing, { output_types = circle })
    end },
    { "zip", function() data.zip(list) end },
    { "strategy:run", function() strategy:run(nothing, { circle }) end },
    { "strategy:run", function() strategy:run(gives) end },
    { "strategy:experimental_distribute_values_from_function", function()
      strategy:experimental_distribute_values_from_function(gives)
    end },
    { "strategy:experimental_local_results", function()
      strategy:experimental_local_results(circle)
    end },
    { "strategy:reduce", function() strategy:reduce("sum", circle) end },
    { "strategy:gather", function() strategy:gather(circle, 0) end },
    { "reduce_to", function()
      strategy.extended:reduce_to("sum", circle, "/cpu:0")
    end },
    { "reduce_to", function()
      context().strategy.extended:reduce_to("sum", circle, "/cpu:0")
    end },
    { "batch_reduce_to", function()
      strategy.extended:batch_reduce_to("sum", { { circle, "/cpu:0" } })
    end },
    { "update", function() update(nothing, { circle }) end },
    { "update", function() update(nothing, {}, circle) end },
    { "update", function() update(gives) end },
    { "update", function() in_replica(function() update(gives) end) end },
    { "update", function()
      in_replica(function() update(nothing, { circle }) end)
    end },
    { "update_non_slot", function()
      strategy.extended:update_non_slot({ "/cpu:0" }, nothing, { circle })
    end },
    { "update_non_slot", function()
      strategy.extended:update_non_slot({ "/cpu:0" }, gives)
    end },
    { "merge_call", function()
      in_replica(context().merge_call, nothing, { circle })
    end },
    { "merge_call", function()
      in_replica(context().merge_call, nothing, {}, circle)
    end },
    { "merge_call", function() in_replica(context().merge_call, gives) end },
    { "all_reduce", function()
      in_replica(context().all_reduce, "sum", circle)
    end },
    { "all_gather", function() in_replica(context().all_gather, circle, 0) end },
    { "custom_gradient", function() custom(circle) end },
    { "custom_gradient", function() custom(nil, gives) end },
    { "custom_gradient", function()
      tf.custom_gradient(function() return circle, nothing end)(1)
    end },
    { "recompute_grad", function() tf.recompute_grad(gives)(1) end },
    { "function_", function() tf.function_(nothing)(circle) end },
    { "function_", function() tf.function_(gives)() end },
    { "get_concrete_function", function()
      tf.function_(nothing):get_concrete_function(circle)
    end },
    { "GradientTape.gradient", function() gradient(circle, tf.ones { 1 }) end },
    { "GradientTape.gradient", function() gradient(tf.ones { 1 }, circle) end },
    { "while_loop", function()
      tf.while_loop(function() return true end, gives, { 1 })
    end },
    { "map_fn", function() tf.map_fn(nothing, circle) end },
    { "fit", function() model():fit(circle, circle, { verbose = 0 }) end },
    { "predict", function() model():predict(circle, { verbose = 0 }) end },
    { "constant", function() tf.constant(list) end },
  } do
    local what, call = case[1], case[2]
    it("is refused in the name of " .. what, function()
      local kind, message = kind_of(call)
      assert.equal("ValueError", kind, message)
      assert.equal(what .. ": ", message:sub(1, #what + 2))
      assert.matches("contains itself", message, 1, true)
    end)
  end
end)
