--- Data sets inside traced functions: read anew at each call. Expected values
--- are those of the elements.
local tf = require "tfdist"
local expect = require "spec.support.expect"
local warned = require "spec.support.heard"
local raw = require "tfdist.core.raw"
local traces = require "spec.support.traces"

local raises, values = expect.raises, traces.values
local D = tf.data.Dataset

local function slices(list, other)
  return D.from_tensor_slices(other == nil and list
    or { tf.constant(list), tf.constant(other) })
end

describe("iterator:get_next() in a traced function", function()
  it("takes the next element at each call", function()
    local it = slices({ 1, 2, 3 }, { 10, 20, 30 }):iter()
    local f = tf.function_(function(x)
      local a, b = it:get_next()
      return a * x + b
    end)
    local x = tf.constant(2.0)
    assert.are.same({ 12, 24, 36 }, { f(x):item(), f(x):item(), f(x):item() })
    raises("OutOfRange", "the data set has ended", f, x)
    raises("OutOfRange", "the data set has ended", f, x)
    assert.are.equal(1, f:experimental_get_tracing_count())
    assert.is_true(tf.executing_eagerly())
  end)

  -- The line, the count and the hint.
  it("tells of the end as where ops run", function()
    local strategy = tf.distribute.MirroredStrategy { "CPU:0" }
    local data = tf.data.Dataset.range(3)
    for unit, make in pairs {
      elements = function() return data:iter() end,
      steps = function()
        return strategy:experimental_distribute_dataset(data):iter()
      end,
    } do
      local function next_of(it)
        local x = it:get_next()
        return tf.reduce_sum(strategy:reduce("sum", x))
      end
      local line = debug.getinfo(next_of, "S").linedefined + 1
      local g = tf.function_(next_of)
      for _, fn in ipairs { next_of, g } do
        local it = make()
        for _ = 1, 3 do fn(it) end
        local e = expect.failure(fn, it)
        assert.are.equal(("spec/graph/data_spec.lua:%d: OutOfRange: get_next: the "
          .. "data set has ended after 3 %s\nhint: a for loop over dataset:iter() "
          .. "ends by itself"):format(line, unit), tostring(e))
      end
    end
  end)

  it("counts from the beginning where each call makes the iterator", function()
    local n = 3
    local data = tf.data.Dataset.from_generator(function()
      local i = 0
      return function()
        i = i + 1
        return i <= n and tf.constant(i) or nil
      end
    end, { output_signature = tf.TensorSpec({}, "float32") })
    local function two()
      local it = data:iter()
      return it:get_next() + it:get_next()
    end
    local f = tf.function_(two)
    assert.are.equal(3, f():item())
    n = 1
    for _ = 1, 2 do
      assert.are.equal(tostring(expect.failure(two)), tostring(expect.failure(f)))
    end
    raises("OutOfRange", "the data set has ended after 1 element\n", f)
  end)

  it("takes several, in their order, also in branches and loops", function()
    local it = D.range(100):iter()
    local f = tf.function_(function(n)
      local first = it:get_next()
      local more = tf.cond(n:greater(2), function() return it:get_next() end,
        function() return tf.constant(-1, "int64") end)
      local _, sum = tf.while_loop(function(i) return tf.less(i, n) end,
        function(i, s) return i + 1, s + it:get_next() end,
        { tf.constant(0, "int32"), tf.constant(0, "int64") })
      return first, more, sum
    end)
    local function call(n)
      local a, b, c = f(tf.constant(n, "int32"))
      return { a:item(), b:item(), c:item() }
    end
    assert.are.same({ 0, -1, 1 + 2 }, call(2))
    assert.are.same({ 3, 4, 5 + 6 + 7 }, call(3))
    assert.are.same({ 8, -1, 0 }, call(0))
    assert.are.equal(9, it:get_next():item())
  end)

  describe("goes on op by op where it needs sizes that batches leave open",
    function()
      local layers = tf.keras.layers
      local x = { 1, 2, 3, 4, 5 }
      for what, body in pairs {
        ["in Lua"] = function(t) return tf.reduce_sum(t) / t.shape[1] end,
        ["with #"] = function(t) return tf.reduce_sum(t) / #t end,
        ["for a gradient"] = function(t)
          local tape, out = tf.GradientTape(function(own)
            own:watch(t)
            return tf.nn.compute_average_loss(t * t)
          end)
          -- d/dt sum(t^2)/n = 2 t / n
          return tf.reduce_sum(tape:gradient(out, t)) / 2
        end,
        ["in a layer"] = function(t)
          local noise = layers.GaussianNoise(0)(t, { training = true })
          return tf.reduce_sum(noise) / tf.cast(tf.size(t), "float32")
        end,
      } do
        it(what, function()
          local iterator = slices(x):batch(2):iter()
          local f = tf.function_(function(from)
            return body(from:get_next())
          end)
          local got = {}
          local heard = warned(function()
            for i = 1, 3 do got[i] = f(iterator):item() end
          end)
          assert.are.same({ 1.5, 3.5, 5 }, got)
          assert.are.equal(1, select(2, heard:gsub("goes on op by op", "")))
          assert.is_truthy(heard:find("drop_remainder = true", 1, true))
          raises("OutOfRange", "has ended", f, iterator)
        end)
      end

      it("each signature by itself", function()
        local runs = 0
        local f = tf.function_(function(from)
          runs = runs + 1
          local t = from:get_next()
          return tf.reduce_sum(t) / t.shape[1]
        end)
        local short, even = slices(x):batch(2):iter(),
          slices(x):batch(1, { drop_remainder = true }):iter()
        warned(function()
          assert.are.equal(1.5, f(short):item())
        end)
        for i = 1, 4 do assert.are.equal(i, f(even):item()) end
        assert.are.equal(3, runs)
        assert.are.equal(3.5, f(short):item())
        assert.are.equal(4, runs)
      end)

      it("but no concrete function", function()
        local f = tf.function_(function(from)
          local t = from:get_next()
          return tf.reduce_sum(tf.matmul(t, tf.ones { t.shape[2], 3 }))
        end)
        local two = tf.data.Dataset.from_tensor_slices(tf.ones { 5, 4 })
        local it = two:batch(2):iter()
        local c = f:get_concrete_function(it)
        for _, want in ipairs { 24, 24, 12 } do
          assert.are.equal(want, c(it):item())
        end
      end)

      it("and says what is wrong with the script", function()
        local f = tf.function_(function(from)
          return tf.reduce_sum(from:get_next(), 3)
        end)
        assert.are.equal("", warned(function()
          raises("ValueError", "tensor of rank 1 {2}", f,
            slices(x):batch(2):iter())
        end))
      end)
    end)

  it("takes structures, and batches of open size", function()
    local it = D.from_tensor_slices { x = { { 1, 2 }, { 3, 4 }, { 5, 6 } },
      y = { 1, 2, 3 } }:batch(2):iter()
    local f = tf.function_(function()
      local e = it:get_next()
      return tf.reduce_sum(e.x, 0), tf.reduce_mean(e.y)
    end)
    local sum, mean = f()
    assert.are.same({ 4, 6, 1.5 }, { values(sum)[1], values(sum)[2],
      mean:item() })
    sum, mean = f()
    assert.are.same({ 5, 6, 3 }, { values(sum)[1], values(sum)[2],
      mean:item() })
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("gives gradients with respect to variables", function()
    local v, it = tf.Variable(3.0), slices({ 2, 5 }):iter()
    local f = tf.function_(function()
      local x = it:get_next()
      local loss
      local tape = tf.GradientTape(function()
        loss = v * v * tf.convert_to_tensor(x)
      end)
      return tape:gradient(loss, v)
    end)
    assert.are.same({ 12, 30 }, { f():item(), f():item() })
  end)

  it("refuses strings and iterators of other traces", function()
    local it = D.from_tensor_slices { "a", "b" }:iter()
    raises("NotImplementedError", "of strings", tf.function_(function()
      return it:get_next()
    end))
    local kept
    tf.function_(function() kept = D.range(3):iter() end)()
    raises("FailedPrecondition", "made inside a traced function",
      function() return kept:get_next() end)
  end)
end)

describe("get_next_as_optional in a traced function", function()
  it("says at the call whether there is an element", function()
    local it = slices({ 5, 6 }):iter()
    local f = tf.function_(function()
      local o = it:get_next_as_optional()
      return o:has_value(), tf.cond(o:has_value(), function()
        return o:get_value()
      end, function() return tf.constant(-1.0) end)
    end)
    for _, want in ipairs { { true, 5 }, { true, 6 }, { false, -1 } } do
      local has, x = f()
      assert.are.same(want, { has:item(), x:item() })
    end
    local g = tf.function_(function()
      return it:get_next_as_optional():get_value()
    end)
    raises("InvalidArgument", "the Optional has no value", g)
  end)
end)

describe("a loop over a data set in a traced function", function()
  it("reads the data set anew at each call", function()
    local made = 0
    local data = D.range(3):map(function(x)
      made = made + 1
      return tf.cast(x, "float32") * 2
    end)
    local f = tf.function_(function(x)
      local sum = tf.zeros {}
      for e in data:iter() do
        sum = sum * 10 + e * x
      end
      return sum
    end)
    assert.are.equal(24, f(tf.constant(1.0)):item())
    local before = made
    assert.are.equal(48, f(tf.constant(2.0)):item())
    assert.are.equal(before + 3, made)
    assert.are.equal(24, f(tf.constant(1.0)):item())
  end)

  it("needs a length that is known", function()
    raises("NotImplementedError", "length is not known", tf.function_(function()
      for _ in D.range(3):filter(function(x) return x:greater(1) end):iter() do
        error("not reached")
      end
    end))
    local it = D.range(3):iter()
    raises("NotImplementedError", "length is not known", tf.function_(function()
      return it()
    end))
    raises("RuntimeError", "is not supported while tracing", tf.function_(
      function() return D.range(3):as_numpy_iterator() end))
  end)

  it("as Dataset.reduce is a loop of the graph, of any length", function()
    local turns = 0
    local data = D.range(10):filter(function(x) return (x % 3):equal(1) end)
    local f = tf.function_(function(x)
      return data:reduce(x, function(sum, e)
        turns = turns + 1
        return sum * 10 + tf.cast(e, "float32")
      end), D.range(0):reduce(x, function(s) return s end)
    end)
    for _, x in ipairs { 0, 2 } do
      local sum, none = f(tf.constant(x + 0.0))
      assert.are.equal(x * 1000 + 147, sum:item())
      assert.are.equal(x, none:item())
    end
    assert.are.equal(1, turns)
    local one = tf.function_(function()
      return D.range(7, 8):get_single_element()
    end)
    assert.are.equal(7, one():item())
    raises("InvalidArgument", "more than one element", tf.function_(function()
      return D.range(2):get_single_element()
    end))
  end)

  it("shuffles anew at each call, like line by line", function()
    local function run(wrap)
      tf.random.set_seed(5)
      local data = D.range(6):shuffle(6, { seed = 3 })
      local f = wrap(function()
        local all = {}
        for e in data:iter() do all[#all + 1] = e end
        return tf.stack(all)
      end)
      local list = {}
      for i = 1, 3 do list[i] = values(f()) end
      return list
    end
    assert.are.same(run(function(fn) return fn end), run(tf.function_))
  end)

  it("leaves no memory", function()
    local data = slices({ 1, 2, 3 })
    local f = tf.function_(function()
      local sum = tf.zeros {}
      for e in data:iter() do sum = sum + e end
      return sum
    end)
    for _ = 1, 20 do f() end
    collectgarbage()
    collectgarbage()
    local bytes, handles = raw.live_bytes(), raw.live_handles "tensor"
    for _ = 1, 200 do f() end
    collectgarbage()
    collectgarbage()
    -- Some may wait for a finalizer of the last round.
    assert.is_true(raw.live_bytes() < bytes + 200 * 4)
    assert.is_true(raw.live_handles "tensor" < handles + 100)
  end)
end)

describe("a distributed data set in a traced function", function()
  local strategy = tf.distribute.MirroredStrategy()
  local R = strategy.num_replicas_in_sync

  local function distributed(rows)
    local x = tf.reshape(tf.range(0, 2 * rows, { dtype = "float32" }),
      { rows, 2 })
    return strategy:experimental_distribute_dataset(
      D.from_tensor_slices { x = x, y = tf.range(rows) }:batch(2 * R))
  end

  -- Sum of all that the replicas get, weighed.
  local function total(e, v)
    return strategy:reduce("sum", strategy:run(function(part)
      return tf.reduce_sum(part.x * v) + tf.reduce_sum(tf.cast(part.y,
        "float32"))
    end, { e }))
  end

  it("gives each replica its share at each call", function()
    local v = tf.Variable(3.0)
    local want = {}
    for e in distributed(6 * R - 1):iter() do
      want[#want + 1] = total(e, v):item()
    end
    local it = distributed(6 * R - 1):iter()
    local f = tf.function_(function() return total(it:get_next(), v) end)
    local got = {}
    for i = 1, #want do got[i] = f():item() end
    assert.are.same(want, got)
    assert.are.equal(3, #want)
    raises("OutOfRange", "the data set has ended", f)
    local g = tf.function_(function()
      return it:get_next_as_optional():has_value()
    end)
    assert.is_false(g():item())
    raises("ValueError", "cross-replica context", tf.function_(function()
      return strategy:run(function() return it:get_next() end)
    end))
  end)

  it("is read anew by a loop", function()
    local data, v = distributed(4 * R), tf.Variable(1.0)
    local want = 0
    for e in data:iter() do want = want + total(e, v):item() end
    local f = tf.function_(function()
      local sum = tf.zeros {}
      for e in data:iter() do sum = sum + total(e, v) end
      return sum
    end)
    assert.are.equal(want, f():item())
    assert.are.equal(want, f():item())
  end)
end)

describe("a data set of symbolic tensors", function()
  it("is refused where it is made", function()
    for name, make in pairs { from_tensors = D.from_tensors,
      from_tensor_slices = D.from_tensor_slices } do
      local f = tf.function_(function(x)
        local data = make { tf.constant { 1, 2, 3 }, x }
        return data:reduce(tf.constant(0), function(sum) return sum end)
      end)
      raises("NotImplementedError", name .. " inside the traced function", f,
        tf.constant { 1, 2, 3 })
      raises("NotImplementedError", "component 1 is a symbolic float32 {3}; a "
        .. "data set has tensors whose values are known", f,
        tf.constant { 1, 2, 3 })
    end
  end)
end)
