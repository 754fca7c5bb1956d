-- Sources, order, choice: what comes out of the stages, one by one.
local E = require "spec.support.elements"
local R = require "spec.support.replicas"
local leaks = require "spec.support.leaks"
local tf = require "tfdist"

local D = tf.data.Dataset
local unpack = table.unpack or unpack -- luacheck: ignore 143 113
local all, count, fails = E.all, E.count, R.fails

describe("sources", function()
  leaks(before_each, after_each)

  it("slices give the rows of every component", function()
    local x, y = tf.constant { { 1, 2 }, { 3, 4 }, { 5, 6 } },
      tf.constant { 7, 8, 9 }
    assert.same({ { 1, 2 }, { 3, 4 }, { 5, 6 } }, all(D.from_tensor_slices(x)))
    assert.same({ { { 1, 2 }, 7 }, { { 3, 4 }, 8 }, { { 5, 6 }, 9 } },
      all(D.from_tensor_slices { x, y }))
    assert.same({ { a = { 1, 2 }, b = 7 }, { a = { 3, 4 }, b = 8 },
      { a = { 5, 6 }, b = 9 } }, all(D.from_tensor_slices { a = x, b = y }))
    assert.same({ 3, 3 }, { D.from_tensor_slices(x):cardinality(),
      D.from_tensor_slices { x, y }:cardinality() })
  end)

  it("a rectangular list of numbers is one tensor", function()
    assert.same({ 5, 6, 7 }, all(D.from_tensor_slices { 5, 6, 7 }))
    assert.same({ { 1, 2 }, { 3, 4 } },
      all(D.from_tensor_slices { { 1, 2 }, { 3, 4 } }))
    assert.same({ { 1, 3 }, { 2, 4 } }, all(D.from_tensor_slices {
      tf.constant { 1, 2 }, { 3, 4 } }))
  end)

  it("strings are components", function()
    assert.same({ "a", "b" }, all(D.from_tensor_slices { "a", "b" }))
    assert.same({ { "a", "b" }, { "c" } },
      all(D.from_tensor_slices { "a", "b", "c" }:batch(2)))
  end)

  it("from_tensors is one element", function()
    assert.same({ { 1, 2 } }, all(D.from_tensors { 1, 2 }))
    assert.same({ { { 1, 2 }, 3 } },
      all(D.from_tensors { tf.constant { 1, 2 }, 3 }))
    assert.equal(1, D.from_tensors(3):cardinality())
  end)

  it("ranges count as Python's", function()
    assert.same(count(5), all(D.range(5)))
    assert.same({ 2, 3, 4 }, all(D.range(2, 5)))
    assert.same(count(4), all(D.range { stop = 4 }))
    assert.same({ 2, 3 }, all(D.range { start = 2, stop = 4 }))
    assert.same({ 1, 3, 5 }, all(D.range(1, 6, 2)))
    assert.same({ 5, 4, 3 }, all(D.range(5, 2, -1)))
    assert.same({}, all(D.range(5, 2)))
    assert.equal("int64", D.range(3):iter():get_next().dtype)
    local half = D.range(3, { output_type = "float32" })
    assert.equal("float32", half:iter():get_next().dtype)
    assert.equal(2 ^ 40, D.range(2 ^ 40):cardinality())
    assert.same({ 2 ^ 40 - 1 }, all(D.range(2 ^ 40):skip(2 ^ 40 - 1)))
  end)

  it("counters go on, unique gives values once", function()
    assert.same({ 3, 5, 7 }, all(D.counter(3, 2):take(3)))
    assert.same({ 3, 5 }, all(D.counter(tf.constant(3,
      { dtype = "int32" }), 2):take(2)))
    assert.same({ { 0, -1, -2 } }, all(D.counter { step = -1,
      dtype = "float32" }:batch(3):take(1)))
    assert.equal(tf.data.INFINITE_CARDINALITY, D.counter():cardinality())
    assert.same({ 1, 2, 3 }, all(D.from_tensor_slices { 1, 2, 1, 3, 2 }
      :unique()))
    assert.same({ "a", "b" }, all(D.from_tensor_slices { "a", "b", "a" }
      :unique()))
    fails("TypeError", "one component", all,
      D.zip { D.range(2), D.range(2) }:unique())
    fails("NotImplementedError", "Dataset.snapshot", function()
      return D.range(2):snapshot "x"
    end)
  end)

  it("a generator is called for every iteration", function()
    local calls = 0
    local ds = D.from_generator(function()
      calls = calls + 1
      local i = 0
      return function()
        i = i + 1
        if i <= 3 then
          return i, { i, -i }
        end
      end
    end)
    assert.same({ { 1, { 1, -1 } }, { 2, { 2, -2 } }, { 3, { 3, -3 } } },
      all(ds))
    assert.same(3, #all(ds))
    assert.equal(2, calls)
    assert.equal(tf.data.UNKNOWN_CARDINALITY, ds:cardinality())
  end)

  it("a signature gives numbers their dtype and is checked", function()
    local function gen(...)
      local values = { ... }
      return function()
        local list = {}
        for i = 1, #values do list[i] = values[i] end
        local at = 0
        return function()
          at = at + 1
          return list[at]
        end
      end
    end
    local ds = D.from_generator(gen(1, 2), {
      output_signature = tf.TensorSpec({}, "int32") })
    assert.equal("int32", ds:iter():get_next().dtype)
    assert.equal("int32", ds.element_spec.dtype)
    ds = D.from_generator(gen({ 1, 2 }, { 3 }), "int64", { -1 })
    assert.same({ { 1, 2 }, { 3 } }, all(ds))
    fails("InvalidArgument", "signature", all,
      D.from_generator(gen({ 1, 2 }, { 3 }), "int64", { 2 }))
    fails("TypeError", "signature", all,
      D.from_generator(gen("a"), "int64"))
    fails("TypeError", "of output_types, got the number 7", D.from_generator,
      gen({ 1 }), { { "int64" }, "int64" }, { 7, {} })
    fails("TypeError", "2 values", all, D.from_generator(function()
      return function() return 1, 2 end
    end, "int64"))
  end)

  it("from_generator says what to do with a function that yields", function()
    local ds = D.from_generator(function()
      coroutine.yield(1)
    end)
    local ok, e = pcall(function() return ds:iter()() end)
    assert.is_false(ok)
    assert.equal("TypeError", e.kind)
    assert.matches("and it yields", e.message, 1, true)
    assert.matches("coroutine.wrap(function()", e.hint, 1, true)
    local wrapped = D.from_generator(function()
      return coroutine.wrap(function() coroutine.yield(1) end)
    end)
    assert.equal(1, wrapped:iter()():item())
    local e2 = select(2, pcall(function()
      return D.from_generator(function() error("mine", 0) end):iter()()
    end))
    assert.equal("mine", e2.message)
  end)

  it("arguments reach the generator", function()
    local ds = D.from_generator(function(n)
      local i = 0
      return function()
        i = i + 1
        return i <= n and i or nil
      end
    end, { args = { 4 } })
    assert.same({ 1, 2, 3, 4 }, all(ds))
  end)

  it("random numbers are the same for the same seed", function()
    local a = all(D.random(7):take(5))
    assert.same(a, all(D.random { seed = 7 }:take(5)))
    assert.not_same(a, all(D.random(8):take(5)))
    assert.equal(tf.data.INFINITE_CARDINALITY, D.random(1):cardinality())
  end)

  it("files are listed by pattern", function()
    local base = os.tmpname()
    local names = { base .. "_1.rec", base .. "_2.rec", base .. "_3.rec" }
    for _, name in ipairs(names) do
      io.open(name, "w"):close()
    end
    assert.same(names, all(D.list_files(base .. "_*.rec", false)))
    local shuffled = all(D.list_files(base .. "_?.rec", { seed = 3 }))
    table.sort(shuffled)
    assert.same(names, shuffled)
    for _, name in ipairs(names) do
      os.remove(name)
    end
    os.remove(base)
    fails("NotFound", "no files match", D.list_files, base .. "_*.rec")
    fails("NotFound", "no files match", D.list_files, "/nowhere; echo x")
  end)
end)

describe("order and choice", function()
  leaks(before_each, after_each)

  -- The same stages over rows in memory and over elements made one by one.
  local function both(fn)
    fn(function(n) return D.range(n) end)
    fn(function(n)
      return D.range(n):map(function(x) return x end)
    end)
  end

  it("take, skip and shard", function()
    both(function(range)
      assert.same({ 0, 1, 2 }, all(range(5):take(3)))
      assert.same(count(5), all(range(5):take(-1)))
      assert.same(count(5), all(range(5):take(9)))
      assert.same({}, all(range(5):take(0)))
      assert.same({ 3, 4 }, all(range(5):skip(3)))
      assert.same({}, all(range(5):skip(9)))
      assert.same({}, all(range(5):skip(-1)))
      assert.same({ 1, 4, 7 }, all(range(10):shard(3, 1)))
      assert.same({ 2, 3 }, all(range(10):skip(2):take(2)))
      assert.same({ 0, 3 }, all(range(6):shard(3, 0)))
      assert.same({}, all(range(2):shard(3, 2)))
    end)
  end)

  it("repeat_ goes round, for ever without count", function()
    both(function(range)
      assert.same({ 0, 1, 2, 0, 1, 2 }, all(range(3):repeat_(2)))
      assert.same({ 0, 1, 2, 0 }, all(range(3):repeat_():take(4)))
      assert.same({}, all(range(3):repeat_(0)))
      assert.same({}, all(range(0):repeat_()))
      assert.same({ 1, 2, 0, 1 }, all(range(3):repeat_(2):skip(1):take(4)))
      assert.same({ { 0, 1, 2 }, { 0, 1, 2 } },
        all(range(3):repeat_(2):batch(3)))
      assert.same({ { 0, 1, 2, 0 }, { 1, 2 } },
        all(range(3):repeat_(2):batch(4)))
    end)
  end)

  it("cardinality is known where it can be", function()
    local inf, unknown = tf.data.INFINITE_CARDINALITY,
      tf.data.UNKNOWN_CARDINALITY
    local r = D.range(10)
    assert.same({ 3, 7, 20, inf, 4, 3, 2, unknown, 10, 13, 5 }, {
      r:take(3):cardinality(), r:skip(3):cardinality(),
      r:repeat_(2):cardinality(), r:repeat_():cardinality(),
      r:batch(3):cardinality(), r:batch(3, true):cardinality(),
      r:shard(5, 4):cardinality(),
      r:filter(function() return true end):cardinality(),
      r:shuffle(4):prefetch(1):cardinality(),
      r:concatenate(D.range(3)):cardinality(),
      D.zip { r, D.range(5) }:cardinality(),
    })
  end)

  it("zip ends with the shortest, concatenate goes on", function()
    both(function(range)
      assert.same({ { 0, 0 }, { 1, 1 }, { 2, 2 } },
        all(D.zip { range(3), range(5) }))
      assert.same({ { a = 0, b = 0 } },
        all(D.zip { a = range(3), b = range(1) }))
      assert.same({ 0, 1, 0, 1, 2 }, all(range(2):concatenate(range(3))))
      assert.same({ { 1, 2 }, { 0 } },
        all(range(3):concatenate(range(1)):skip(1):batch(2)))
      assert.same({ { 5, 0 }, { 6, 1 } }, all(range(2):enumerate(5)))
      assert.same({ { 0, { 0, 0 } } },
        all(D.zip { range(1), D.zip { range(1), range(1) } }))
    end)
  end)

  it("counts may be tensors, as the functions of stages get them", function()
    local r, two = D.range(6), tf.constant(2, "int64")
    for _, each in ipairs {
      { r:take(two), { 0, 1 } }, { r:skip(two), { 2, 3, 4, 5 } },
      { r:take(tf.constant(-1, "int32")), { 0, 1, 2, 3, 4, 5 } },
      { D.range(two):repeat_(two), { 0, 1, 0, 1 } },
      { r:shard(two, tf.constant { 1 }), { 1, 3, 5 } },
      { r:shard(two, tf.Variable(0, { dtype = "int32" })), { 0, 2, 4 } },
      { r:take(1):enumerate(two), { { 2, 0 } } },
      { r:batch(two):prefetch(two), { { 0, 1 }, { 2, 3 }, { 4, 5 } } },
      { r:window(two, two, two, true):flat_map(function(w)
        return w:batch(two)
      end), { { 0, 2 }, { 2, 4 } } },
      { D.range(3):interleave(function(i) return r:skip(i + 3) end,
        { cycle_length = two, block_length = two }), { 3, 4, 4, 5, 5, 5 } },
    } do
      assert.same(each[2], all(each[1]))
    end
    for _, bad in ipairs { tf.constant(1.5), tf.constant { 1, 2 },
      tf.constant(-2, "int32") } do
      local done, e = pcall(r.take, r, bad)
      assert.is_false(done)
      assert.matches("take: count must be", e.message, 1, true)
      assert.matches("dataset_spec.lua", tostring(e), 1, true)
    end
  end)

  it("zip takes data sets one by one as it takes a table of them", function()
    both(function(range)
      local a, b, c = range(3), range(2), range(4)
      assert.same(all(D.zip { a, b, c }), all(D.zip(a, b, c)))
      assert.same({ { 0, { 0, 0 } }, { 1, { 1, 1 } } }, all(D.zip(a, { b, c })))
      assert.same({ { 0, { x = 0 } }, { 1, { x = 1 } } },
        all(D.zip(a, { x = b }, { name = "z" })))
      for message, bad in pairs {
        ["must be a dataset, got the number 3"] = { 3, b },
        ["must be a dataset, got nil"] = { n = 3, a, nil, b },
        ["must be a dataset, got the string"] = { a, b, "z" },
        ["unknown option \"nme\""] = { a, b, { nme = "z" } },
      } do
        local done, e = pcall(D.zip, unpack(bad, 1, bad.n or #bad))
        assert.is_false(done)
        assert.matches(message, e.message, 1, true)
        assert.matches("dataset_spec.lua", tostring(e), 1, true)
      end
    end)
  end)

  it("concatenate refuses elements of another type when it is built", function()
    local whole, broken = D.range(3), D.from_tensor_slices { 1.5, 2.5 }
    local done, e = pcall(whole.concatenate, whole, broken)
    assert.is_false(done)
    assert.equal("TypeError", e.kind)
    assert.matches("int64 in one and float32 in another", e.message)
    done, e = pcall(whole.concatenate, whole, D.zip { whole, whole })
    assert.is_false(done, "a tuple behind a number")
    assert.is_true(e.kind == "TypeError" or e.kind == "ValueError")
    -- a user's function is not called for it
    local calls = 0
    local mapped = whole:map(function(x)
      calls = calls + 1
      return x:cast("float32")
    end)
    whole:concatenate(mapped)
    assert.equal(0, calls)
  end)

  it("enumerate keeps a tuple together", function()
    local ds = D.from_tensor_slices { tf.constant { 1, 2 },
      tf.constant { 3, 4 } }:enumerate()
    assert.same({ { 0, { 1, 3 } }, { 1, { 2, 4 } } }, all(ds))
  end)

  it("prefetch changes nothing but when things happen", function()
    local made = 0
    local ds = D.range(6):map(function(x)
      made = made + 1
      return x
    end):prefetch(2)
    local it = ds:iter()
    assert.equal(0, it:get_next():item())
    assert.equal(3, made)
    assert.equal(1, it:get_next():item())
    assert.equal(4, made)
    assert.same(count(6), all(ds))
    assert.same(count(6), all(D.range(6):map(function(x)
      return x
    end):prefetch(0)))
  end)

  it("options come back, the last set wins", function()
    local ds = D.range(3):with_options {
      experimental_distribute = { auto_shard_policy = "data" },
      deterministic = true }
    assert.equal("DATA", ds:options().experimental_distribute.auto_shard_policy)
    local more = tf.data.Options()
    more.experimental_distribute.auto_shard_policy = tf.data.experimental
      .AutoShardPolicy.OFF
    ds = ds:with_options(more)
    assert.equal("OFF", ds:options().experimental_distribute.auto_shard_policy)
    assert.is_true(ds:options().deterministic)
    assert.equal("AUTO", D.range(1):options().experimental_distribute
      .auto_shard_policy)
    fails("ValueError", "unknown option", tf.data.Options, { determinstic = 1 })
    fails("ValueError", "OFF, AUTO", tf.data.Options, {
      experimental_distribute = { auto_shard_policy = "some" } })
  end)
end)

describe("shuffle", function()
  leaks(before_each, after_each)

  local function sorted(list)
    local copy = {}
    for i = 1, #list do copy[i] = list[i] end
    table.sort(copy)
    return copy
  end

  it("gives every element once", function()
    for _, size in ipairs { 1, 2, 7, 30, 31, 1000 } do
      for _, n in ipairs { 0, 1, 2, 29, 30, 31, 2000 } do
        local got = all(D.range(n):shuffle(size, { seed = n }))
        assert.same(count(n), sorted(got))
      end
    end
  end)

  it("rows in memory and single elements come in the same order", function()
    local a = all(D.range(50):shuffle(9, { seed = 5 }))
    local b = all(D.range(50):map(function(x) return x end)
      :shuffle(9, { seed = 5 }))
    assert.same(a, b)
  end)

  it("an element comes at most buffer_size - 1 places early", function()
    local got = all(D.range(500):shuffle(10, { seed = 2 }))
    for i = 1, #got do
      assert.is_true(got[i] < i + 9)
    end
    assert.not_same(count(500), got)
    assert.same(count(20), all(D.range(20):shuffle(1)))
  end)

  it("a full buffer makes every order equally likely", function()
    -- 6 orders of 3 elements, 1200 draws: 200 each, standard deviation 13.
    local seen = {}
    local ds = D.range(3):shuffle(3, { seed = 11 }):repeat_(1200)
      :batch(3)
    for x in ds:iter() do
      local key = table.concat(x:toflat(), " "):gsub("%.0", "")
      seen[key] = (seen[key] or 0) + 1
    end
    local kinds = 0
    for _, times in pairs(seen) do
      kinds = kinds + 1
      assert.is_true(times > 140 and times < 260)
    end
    assert.equal(6, kinds)
  end)

  it("changes with every iteration unless told not to", function()
    local ds = D.range(40):shuffle(40, { seed = 1 })
    local a, b = all(ds), all(ds)
    assert.not_same(a, b)
    local again = D.range(40):shuffle(40, { seed = 1 })
    assert.same(a, all(again))
    assert.same(b, all(again))
    local fixed = D.range(40):shuffle(40, { seed = 1,
      reshuffle_each_iteration = false })
    assert.same(all(fixed), all(fixed))
    assert.same(a, all(fixed))
    local rounds = all(D.range(8):shuffle(8, { seed = 1 }):repeat_(2):batch(8))
    assert.not_same(rounds[1], rounds[2])
  end)

  it("orders rows and elements alike", function()
    local function chain(ds)
      return all(ds:shuffle(7, { seed = 3 }):repeat_(2):skip(3):shard(2, 1)
        :take(14):batch(4))
    end
    local n, elements = 20, {}
    for i = 1, n do elements[i] = i - 1 end
    local rows = chain(D.from_tensor_slices(tf.constant(elements)))
    assert.equal(4, #rows)
    assert.same(rows, chain(D.from_tensor_slices(tf.constant(elements))
      :map(function(x) return x end)))
  end)

  it("makes no elements before they are asked for", function()
    local made
    local function numbers()
      made = 0
      return D.range(12):map(function(x)
        made = made + 1
        return x
      end)
    end
    for asked, build in pairs {
      [0] = function(ds) return ds:shuffle(5):take(0):batch(2) end,
      [3] = function(ds) return ds:take(3):batch(2) end,
      [4] = function(ds) return ds:shard(3, 1) end,
      [5] = function(ds) return ds:skip(7):repeat_(1) end,
      [8] = function(ds) return ds:shuffle(5):take(3) end,
      [14] = function(ds) return ds:repeat_():take(14):batch(4) end,
    } do
      all(build(numbers()))
      assert.equal(asked, made)
    end
  end)

  it("follows tf.random.set_seed without a seed of its own", function()
    tf.random.set_seed(3)
    local a = all(D.range(40):shuffle(40))
    local b = all(D.range(40):shuffle(40))
    tf.random.set_seed(3)
    assert.same(a, all(D.range(40):shuffle(40)))
    assert.same(b, all(D.range(40):shuffle(40)))
    assert.not_same(a, b)
  end)

  it("refuses to buffer what has no end", function()
    fails("ResourceExhausted", "without end", all, D.range(2)
      :map(function(x) return x end):repeat_():shuffle(1e9):take(1))
    fails("ResourceExhausted", "without end", all,
      D.range(2):repeat_():shuffle(1e9):take(1))
    fails("ResourceExhausted", "elements", all,
      D.range(1e15):shuffle(1e15):take(1))
    assert.equal(3, #all(D.range(1e15):shuffle(100):take(3)))
    assert.equal(9, #all(D.range(9):shuffle(1e15)))
  end)
end)
