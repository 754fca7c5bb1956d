--- What TensorFlow's own tests of strategies ask of traced functions, with their
--- numbers; the letters are those of the eager specs.
local R = require "spec.support.replicas"
local tf = require "tfdist"

local dataset = tf.data.Dataset.from_tensor_slices

local function locals(s, x)
  local out = {}
  for i, t in ipairs(s:experimental_local_results(x)) do
    out[i] = type(t) == "userdata" and tf.convert_to_tensor(t):totable() or t
  end
  return out
end

-- What step gives for all elements of a distributed data set, traced around the
-- run and as what is run.
local function both(s, data, fn, check)
  local around = tf.function_(function(x) return s:run(fn, { x }) end)
  local inside = tf.function_(fn)
  for _, step in ipairs { around, function(x)
    return s:run(inside, { x })
  end } do
    local list = {}
    for x in s:experimental_distribute_dataset(data):iter() do
      list[#list + 1] = locals(s, step(x))
    end
    check(list)
  end
end

describe("a traced function over replicas", function()
  R.pair(it, pending, "F09 F10 is traced once and knows its replica", function(s)
    local traces = 0
    local f = tf.function_(function()
      traces = traces + 1
      return R.id()
    end)
    local first
    for _ = 1, 10 do
      assert.are.same({ 0, 1 }, locals(s, s:run(f)))
      first = first or traces
      assert.are.equal(first, traces)
    end
    assert.are.equal(2, first)
  end)

  R.pair(it, pending, "F11 F12 merges where the run is traced, not in a branch, "
    .. "a loop or a function of one replica", function(s)
    local merged = tf.function_(function()
      R.ctx():merge_call(function() end)
      return 0
    end)
    assert.are.equal(0, s:run(merged))
    local words = "`merge_call` called while defining a new graph"
    local x = tf.constant(1.0)
    local function merge() R.ctx():merge_call(function() end) end
    R.fails("RuntimeError", words, s.run, s, tf.function_(function(t)
      return tf.cond(t:greater(0), function()
        merge()
        return t
      end, function() return t end)
    end), { x })
    R.fails("RuntimeError", words, s.run, s, tf.function_(function(t)
      return tf.while_loop(function(i) return i:less(3) end, function(i)
        merge()
        return i + 1
      end, { t })
    end), { x })
    R.fails("RuntimeError", words, s.run, s, function()
      tf.function_(merge)()
    end)
    assert.are.equal(0, s:run(merged))
  end)

  R.pair(it, pending, "G06 reduces shares whose sizes a call knows", function(s)
    for _, dtype in ipairs { "float32", "int64" } do
      local spec = tf.TensorSpec({ -1 }, dtype)
      local f = tf.function_(function(a, b)
        local x = s:run(function() return R.id() == 0 and a or b end)
        return s:reduce("SUM", x, 0), s:reduce("MEAN", x, 0)
      end, { input_signature = { spec, spec } })
      local function check(a, b, sum, mean)
        local got_sum, got_mean = f(tf.zeros({ a }, dtype), tf.ones({ b }, dtype))
        assert.are.equal(sum, got_sum:item())
        assert.is_true(math.abs(got_mean:item() - mean) < 1e-6)
      end
      check(1, 2, 2, 2 / 3)
      check(3, 5, 5, 5 / 8)
    end
  end)

  R.pair(it, pending, "J16 J18 J25 squares and their gradients of each batch",
    function(s)
      local four = dataset(tf.constant { 5.0, 6.0, 7.0, 8.0 }):batch(2)
      local function flat(list)
        local out = {}
        for i, step in ipairs(list) do
          out[i] = {}
          for _, part in ipairs(step) do
            for _, x in ipairs(part) do out[i][#out[i] + 1] = x end
          end
        end
        return out
      end
      local function square(x) return x * x end
      both(s, four, square, function(list)
        assert.are.same({ { 25, 36 }, { 49, 64 } }, flat(list))
      end)
      both(s, dataset(tf.constant { 5.0, 6.0, 7.0 }):batch(2), square,
        function(list)
          assert.are.same({ { 25, 36 }, { 49 } }, flat(list))
        end)
      both(s, four, function(x)
        local y
        local tape = tf.GradientTape(function(t)
          t:watch(x)
          y = x * x
        end)
        return tape:gradient(y, x)
      end, function(list)
        assert.are.same({ { 10, 12 }, { 14, 16 } }, flat(list))
      end)
    end)

  R.pair(it, pending, "J21 J22 takes shares of other sizes, also none",
    function(s)
      local three = dataset(tf.constant { 5.0, 6.0, 7.0 }):batch(4)
      both(s, three, tf.reduce_mean, function(list)
        assert.are.same({ { 5.5, 7 } }, list)
      end)
      both(s, three, tf.size, function(list)
        assert.are.same({ { 2, 1 } }, list)
      end)
      both(s, dataset(tf.constant({ 5 }, "int64")):batch(2), function(x)
        return x + x
      end, function(list)
        assert.are.same({ { { 10 }, {} } }, list)
      end)
    end)

  R.pair(it, pending, "J24 gives tables of each replica", function(s)
    local f = tf.function_(function(x)
      return s:run(function(e)
        return { a = e - 1, b = { c = e + 1 } }
      end, { x })
    end)
    local a, c = {}, {}
    for x in s:experimental_distribute_dataset(dataset(tf.range(4)):batch(2))
      :iter() do
      local got = f(x)
      for _, v in ipairs(locals(s, got.a)) do a[#a + 1] = v[1] end
      for _, v in ipairs(locals(s, got.b.c)) do c[#c + 1] = v[1] end
    end
    assert.are.same({ -1, 0, 1, 2 }, a)
    assert.are.same({ 1, 2, 3, 4 }, c)
  end)

  R.each(it, pending, "M34 adds to a variable as its first replica does",
    function(s)
      local v = s:scope(function()
        return tf.Variable(0.0, { aggregation = "ONLY_FIRST_REPLICA" })
      end)
      local f = tf.function_(function()
        local out = s:run(function()
          v:assign_add(3)
          return v:read_value()
        end)
        return s:reduce("MEAN", out)
      end)
      assert.are.equal(3, f():item())
      assert.are.equal(6, f():item())
      assert.are.equal(1, f:experimental_get_tracing_count())
      for _, copy in ipairs(locals(s, v)) do assert.are.equal(6, copy) end
    end)

  R.each(it, pending, "M35 sums what replicas assign", function(s, n)
    local v = s:scope(function()
      return tf.Variable(1.0, { aggregation = "SUM" })
    end)
    local function replica() v:assign(R.id() + 1) end
    local around = tf.function_(function() s:run(replica) end)
    local each = tf.function_(replica)
    for _, run in ipairs { around, function() s:run(each) end } do
      for _ = 1, 2 do
        v:assign(-1)
        run()
        for _, copy in ipairs(locals(s, v)) do
          assert.are.equal(n * (n + 1) / 2, copy)
        end
      end
    end
  end)

  R.pair(it, pending, "J26 gives each replica the gradient of a function inside",
    function(s)
      local v = s:scope(function() return tf.Variable(1.0) end)
      local inner = tf.function_(function(x)
        local y
        local tape = tf.GradientTape(function() y = x * v * v end)
        return tape:gradient(y, v)
      end)
      local f = tf.function_(function()
        return s:run(function() return inner(tf.constant(1.0)) end)
      end)
      assert.are.same({ 2, 2 }, locals(s, f()))
      assert.are.same({ 2, 2 }, locals(s, s:run(inner, { tf.constant(1.0) })))
    end)
end)
