--- Functions of rows inside traced functions: one body, as often as there are
--- rows. Expected values are the eager ones or closed forms.
local tf = require "tfdist"
local expect = require "spec.support.expect"
local traces = require "spec.support.traces"

local check_gradients, check_same = traces.check_gradients, traces.check_same
local raises, values = expect.raises, traces.values

local TABLE = { { 1.5, 2 }, { -3, 4 }, { 0.5, -6 } }

local function open(fn, ...)
  return tf.function_(fn, { input_signature = { tf.TensorSpec(...) } })
end

describe("tf.map_fn in a traced function", function()
  it("traces its function once and gives eager's bits", function()
    local turns = 0
    local f = tf.function_(function(x)
      return tf.map_fn(function(row)
        turns = turns + 1
        return tf.sin(row) * tf.reduce_sum(x)
      end, x)
    end)
    local x = tf.constant(TABLE)
    assert.are.same(values(f.python_function(x)), values(f(x)))
    assert.are.equal(3 + 1, turns)
    check_same(f.python_function, x)
  end)

  it("takes and gives structures, other dtypes and shapes", function()
    local x, n = tf.constant(TABLE), tf.constant({ 3, 1, 2 }, "int32")
    check_same(function(a, b)
      return tf.map_fn(function(row, i)
        return { sum = tf.reduce_sum(row), pair = { i * 2, tf.reverse(row, { 0 }) },
          all = tf.stack { row, row } }
      end, { a, b }, { fn_output_signature = { sum = "float32",
        pair = { "int32", tf.TensorSpec { 2 } }, all = tf.TensorSpec { -1, 2 } } })
    end, x, n)
    check_same(function(a, b)
      local p, q = tf.map_fn(function(t) return t.row + 1, t.i end,
        { row = a, i = b })
      return p, q, tf.map_fn(function(i) return tf.cast(i, "float32") end, b),
        tf.map_fn(function() return 7 end, b), tf.vectorized_map(function(row)
          return tf.linalg.norm(row)
        end, a)
    end, x, n)
  end)

  it("refuses what its signature does not say", function()
    for _, run in ipairs { function(fn) return fn end, tf.function_ } do
      local function of(fn, signature)
        return run(function(x)
          return tf.map_fn(fn, x, { fn_output_signature = signature })
        end)
      end
      local x = tf.constant(TABLE)
      raises("TypeError", "fn's result is int32, fn_output_signature asks for "
        .. "float32", of(function(r) return tf.cast(r, "int32") end, "float32"),
        x)
      raises("ValueError", "fn's result has shape {2}", of(function(r)
        return r
      end, tf.TensorSpec { 3 }), x)
      raises("ValueError", "structures differ", of(function(r)
        return r, r
      end, "float32"), x)
      raises("InvalidArgument", "elems differ in axis 0: 3 and 2",
        run(function(t)
          return tf.map_fn(tf.add, { t, t[{ { 1 } }] })
        end), x)
    end
  end)

  it("gives no rows of what fn would give", function()
    local none = tf.zeros { 0, 2 }
    local function of(signature)
      return function(x)
        return tf.map_fn(function(row) return tf.stack { row, row, row } end, x,
          { fn_output_signature = signature })
      end
    end
    assert.are.same({ 0, 3, 2 }, tf.function_(of())(none).shape)
    assert.are.same({ 0, 3, 2 }, of(tf.TensorSpec { 3, 2 })(none).shape)
    -- Line by line nobody knows; TensorFlow gives no shape then.
    assert.are.same({ 0 }, of()(none).shape)
    assert.are.equal("int32", of("int32")(none).dtype)
  end)

  it("is one graph for any number of rows", function()
    local turns = 0
    local f = open(function(x)
      return tf.map_fn(function(row)
        turns = turns + 1
        return row * 2 + tf.reduce_sum(x, 0)
      end, x), tf.map_fn(function() return tf.constant(3.0) end, x)
    end, { -1, 2 })
    for _, n in ipairs { 3, 1, 0, 5 } do
      local x = tf.reshape(tf.range(0, 2 * n, { dtype = "float32" }), { n, 2 })
      local y, threes = f(x)
      assert.are.same(values(x * 2 + tf.reduce_sum(x, 0)), values(y))
      assert.are.same({ n }, threes.shape)
      assert.are.same(values(tf.fill({ n }, 3)), values(threes))
    end
    assert.are.equal(1, turns)
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("nests, with rows of around", function()
    local x = tf.constant(TABLE)
    check_same(function(t)
      local other = tf.transpose(t)
      return tf.map_fn(function(row)
        return tf.map_fn(function(column)
          return tf.reduce_sum(row) * column + tf.foldl(tf.add, t)[0]
        end, other)
      end, t)
    end, x)
  end)

  it("has gradients of any order, of rows and of what is around", function()
    check_gradients(function(x)
      return tf.reduce_sum(tf.map_fn(function(row)
        return row * row * row * tf.reduce_sum(x)
      end, x))
    end, { TABLE })
    check_gradients(function(x)
      return tf.reduce_sum(tf.map_fn(function(row)
        return tf.cond(tf.reduce_sum(row):greater(0), function()
          return tf.exp(row)
        end, function() return row * row end)
      end, x))
    end, { TABLE })
    local v = tf.Variable { 2, 3 }
    local f = tf.function_(function(x)
      local y
      local tape = tf.GradientTape(function()
        y = tf.reduce_sum(tf.map_fn(function(row) return row * v end, x))
      end)
      return tape:gradient(y, v)
    end)
    assert.are.same({ -1, 0 }, values(f(tf.constant(TABLE))))
  end)

  it("has gradients where the number of rows is open", function()
    local f = open(function(x)
      return traces.gradient(function(t)
        return tf.reduce_sum(tf.map_fn(function(row) return row ^ 3 end, t))
      end, x)
    end, { -1 })
    assert.are.same({ 3, 12, 27 }, values(f(tf.constant { 1, 2, 3 })))
    assert.are.same({ 48 }, values(f(tf.constant { 4 })))
  end)

  it("writes variables, prints and draws at each row", function()
    local v, lines = tf.Variable(0.0), {}
    local f = tf.function_(function(x)
      return tf.map_fn(function(row)
        v:assign_add(row)
        tf.print(row, { output_stream = function(line)
          lines[#lines + 1] = line
        end })
        return v:read_value(), tf.random.uniform {}
      end, x)
    end)
    local sums, drawn = f(tf.constant { 1, 2, 3 })
    assert.are.same({ 1, 3, 6 }, values(sums))
    assert.are.same({ "1\n", "2\n", "3\n" }, lines)
    local d = values(drawn)
    assert.is_true(d[1] ~= d[2] and d[2] ~= d[3] and d[1] ~= d[3])
  end)

  it("runs in each replica", function()
    local strategy = tf.distribute.MirroredStrategy()
    local f = tf.function_(function(x)
      return strategy:run(function(t)
        return tf.map_fn(function(row) return row * 2 end, t)
      end, { x })
    end)
    for _, t in ipairs(strategy:experimental_local_results(f(
      tf.constant { 1, 2 }))) do
      assert.are.same({ 2, 4 }, values(t))
    end
  end)
end)

describe("tf.vectorized_map", function()
  it("lets one row stand for all", function()
    local function fn(x, y)
      return tf.vectorized_map(function(a, b) return a * b end, { x, y })
    end
    local x, y = tf.constant(TABLE), tf.constant { { 2, 3 } }
    assert.are.same({ 3, 6, -6, 12, 1, -18 }, values(fn(x, y)))
    check_same(fn, x, y)
  end)
end)

describe("folds and scans in a traced function", function()
  local function digits(a, x) return a * 10 + x end

  it("give eager's bits, from either end, with and without a begin", function()
    local t = tf.constant { 1, 2, 3 }
    local turns = 0
    check_same(function(x)
      return tf.foldl(digits, x), tf.foldr(digits, x),
        tf.foldl(digits, x, tf.constant(4.0)), tf.foldr(digits, x, 4),
        tf.scan(digits, x), tf.scan(digits, x, { reverse = true }),
        tf.scan(digits, x, tf.constant(4.0)),
        tf.scan(digits, x, 4, { reverse = true }),
        tf.foldl(digits, x[{ { 0, 1 } }]), tf.scan(digits, x[{ { 0, 1 } }])
    end, t)
    tf.function_(function(x)
      return tf.scan(function(a, row)
        turns = turns + 1
        return a + row
      end, x)
    end)(t)
    assert.are.equal(1, turns)
  end)

  it("carry structures", function()
    check_same(function(x, n)
      local a, b = tf.foldl(function(state, row)
        return state[1] + row.x, state[2] * row.n
      end, { x = x, n = n }, { tf.zeros { 2 }, tf.constant(1, "int32") })
      return a, b, tf.scan(function(state, row)
        return { p = state.q, q = state.p + row }
      end, x, { initializer = { p = tf.zeros { 2 }, q = tf.ones { 2 } } })
    end, tf.constant(TABLE), tf.constant({ 3, 1, 2 }, "int32"))
  end)

  it("of no rows give the begin, or nothing", function()
    local none = tf.zeros { 0, 2 }
    local function fn(x)
      return tf.foldl(tf.add, x, tf.constant { 5, 6 }),
        tf.scan(tf.add, x, tf.constant { 5, 6 })
    end
    local last, all = fn(none)
    assert.are.same({ 5, 6 }, values(last))
    assert.are.same({ 0, 2 }, all.shape)
    check_same(fn, none)
    for _, run in ipairs { function(f) return f end, tf.function_ } do
      raises("ValueError", "elems are empty and there is no initializer",
        run(function(x) return tf.foldl(tf.add, x) end), none)
      raises("ValueError", "elems are empty and there is no initializer",
        run(function(x) return tf.scan(tf.add, x) end), none)
    end
  end)

  it("say what is wrong with the next state", function()
    local x = tf.constant(TABLE)
    local function none() end
    for _, run in ipairs { function(f) return f end, tf.function_ } do
      for _, name in ipairs { "scan", "foldl", "foldr" } do
        local said = "ValueError: " .. name
          .. ": fn returned nothing, expected the next state"
        raises("ValueError", said, run(function(t) return tf[name](none, t) end),
          x)
        raises("ValueError", said, run(function(t)
          return tf[name](none, t, tf.zeros { 2 })
        end), x)
      end
    end
    raises("ValueError", "ValueError: scan: fn's results: structures differ",
      tf.scan, function(a) return { a, a } end, x)
    raises("TypeError", "TypeError: scan: ", tf.scan, function() return "x" end, x)
  end)

  it("are one graph for any number of rows", function()
    local f = open(function(x)
      return tf.foldl(tf.add, x), tf.scan(digits, x),
        tf.foldr(digits, x, tf.constant(1.0))
    end, { -1 })
    for n = 1, 4 do
      local x = tf.range(1, n + 1, { dtype = "float32" })
      local sum, all, back = f(x)
      assert.are.equal(n * (n + 1) / 2, sum:item())
      assert.are.same(values(tf.scan(digits, x)), values(all))
      assert.are.equal(tf.foldr(digits, x, 1):item(), back:item())
    end
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("have gradients of any order", function()
    for _, fn in ipairs {
      function(x) return tf.foldl(function(a, b) return a * b end, x) end,
      function(x) return tf.foldr(function(a, b) return a * b + a end, x) end,
      function(x)
        return tf.reduce_sum(tf.scan(function(a, b) return tf.sin(a) * b end,
          x) ^ 2)
      end,
      function(x)
        return tf.reduce_sum(tf.scan(function(a, b) return a * b end, x,
          { initializer = x[0] * 2, reverse = true }))
      end,
    } do
      check_gradients(fn, { { 1.5, 2, -0.5 } })
    end
  end)

  it("keep the shape and dtype of their state", function()
    raises("ValueError", "foldl: loop variable 1 enters the loop with shape {2}",
      tf.function_(function(x)
        return tf.foldl(function(a, b) return tf.concat({ a, b }, 0) end, x)
      end), tf.constant(TABLE))
    raises("TypeError", "scan: loop variable 1 is float32 and int32",
      tf.function_(function(x)
        return tf.scan(function(a) return tf.cast(a, "int32") end, x)
      end), tf.constant(TABLE))
  end)
end)
