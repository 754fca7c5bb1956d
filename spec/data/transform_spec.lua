-- Stages that call functions, and the errors of those.
local E = require "spec.support.elements"
local R = require "spec.support.replicas"
local leaks = require "spec.support.leaks"
local tf = require "tfdist"

local D = tf.data.Dataset
local all, count, fails = E.all, E.count, R.fails

describe("functions of a pipeline", function()
  leaks(before_each, after_each)

  it("map gets tuples as arguments and returns them as results", function()
    local ds = D.zip { D.range(3), D.range(3, 6) }
    assert.same({ 3, 5, 7 }, all(ds:map(function(a, b) return a + b end)))
    assert.same({ { 3, 0 }, { 4, 1 }, { 5, 2 } },
      all(ds:map(function(a, b) return b, a end)))
    assert.same({ { s = 3 }, { s = 5 }, { s = 7 } },
      all(ds:map(function(a, b) return { s = a + b } end)))
    assert.same({ 3, 5, 7 }, all(ds:map(function(a, b) return { s = a + b } end)
      :map(function(t) return t.s end)))
    assert.same({ 1, 1, 1 }, all(ds:map(function() return 1 end)))
    assert.same({ "x", "x", "x" }, all(ds:map(function() return "x" end)))
    assert.same({ { 1, 2 }, { 1, 2 }, { 1, 2 } },
      all(ds:map(function() return { 1, 2 } end)))
    assert.same(3, #all(ds:map(function(a) return a end,
      { num_parallel_calls = tf.data.AUTOTUNE })))
  end)

  it("filter and take_while", function()
    local even = function(x) return x:item() % 2 == 0 end
    assert.same({ 0, 2, 4 }, all(D.range(6):filter(even)))
    assert.same({ 0, 1, 2 }, all(D.range(6):take_while(function(x)
      return x:item() < 3
    end)))
    assert.same({ 0, 1 }, all(D.range(6):filter(function(x)
      return tf.less(x, tf.constant(2, "int64"))
    end)))
    fails("TypeError", "predicate must return", all,
      D.range(3):filter(function() return 1 end))
  end)

  it("flat_map joins, interleave takes turns", function()
    local function times(k)
      return function(x) return D.from_tensors(x):repeat_(k) end
    end
    assert.same({ 0, 1, 0, 1, 2 }, all(D.range(2, 4):flat_map(function(x)
      return D.range(x:item())
    end)))
    -- The example of tf.data's documentation.
    assert.same({ 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4,
      3, 3, 4, 4, 5, 5, 5, 5, 5, 5 }, all(D.range(1, 6):interleave(times(6),
      { cycle_length = 2, block_length = 4 })))
    assert.same({ 0, 0, 1, 1 }, all(D.range(2):interleave(times(2), 1)))
    assert.same({ 0, 1, 0, 1 }, all(D.range(2):interleave(times(2), 9)))
    assert.same({}, all(D.range(0):interleave(times(2))))
    -- Slots that no input reaches cost nothing.
    assert.same({ 0, 1, 0, 1, 0, 1 },
      all(D.range(2):interleave(times(3), 2 ^ 53)))
    fails("TypeError", "must return a dataset", all,
      D.range(2):flat_map(function(x) return x end))
  end)

  it("scan and reduce carry a state", function()
    local zero = tf.constant(0, "int64")
    assert.same({ 0, 1, 3, 6 }, all(D.range(4):scan(zero, function(s, x)
      return s + x, s + x
    end)))
    assert.equal(6, D.range(4):reduce(zero, function(s, x)
      return s + x
    end):item())
    local r = D.zip { D.range(4), D.range(4) }:reduce({ n = 0, m = 1 },
      function(s, a, b)
        return { n = s.n + a:cast "float32", m = s.m + b:cast "float32" }
      end)
    assert.equal(6, r.n:item())
    assert.equal(7, r.m:item())
    assert.equal(10, D.range(0):reduce(10, function() end):item())
  end)

  it("A15 the elements of an array of ones add up", function()
    local ds = D.from_tensor_slices(tf.ones { 10 })
    assert.equal(10, ds:reduce(0, function(s, x) return s + x end):item())
  end)

  it("get_single_element, apply", function()
    assert.equal(4, D.range(4, 5):get_single_element():item())
    fails("InvalidArgument", "empty", function()
      return D.range(0):get_single_element()
    end)
    fails("InvalidArgument", "more than one", function()
      return D.range(2):get_single_element()
    end)
    assert.same({ 0, 1 }, all(D.range(9):apply(function(d)
      return d:take(2)
    end)))
    fails("TypeError", "must return a dataset", function()
      return D.range(2):apply(function() end)
    end)
  end)

  it("chosen and sampled data sets", function()
    local a, b = D.range(3), D.range(10, 13)
    assert.same({ 0, 10, 11, 1 }, all(D.choose_from_datasets({ a, b },
      D.from_tensor_slices(tf.constant({ 0, 1, 1, 0 }, "int64")))))
    fails("InvalidArgument", "choice", all, D.choose_from_datasets({ a, b },
      D.range(2, 3)))
    local got = all(D.sample_from_datasets({ D.range(100), D.range(100, 200) },
      { weights = { 0.8, 0.2 }, seed = 2 }):take(100))
    local low = 0
    for _, x in ipairs(got) do low = low + (x < 100 and 1 or 0) end
    assert.is_true(low > 64 and low < 95) -- 80, standard deviation 4
    table.sort(got)
    local whole = all(D.sample_from_datasets({ a, b }, { seed = 1 }))
    table.sort(whole)
    assert.same({ 0, 1, 2, 10, 11, 12 }, whole)
    fails("ValueError", "weights", D.sample_from_datasets, { a, b }, { 1 })
  end)

  it("groups by key and by length", function()
    local ds = D.range(10):group_by_window(function(x)
      return x:item() % 2
    end, function(_, w) return w:batch(3) end, 3)
    assert.same({ { 0, 2, 4 }, { 1, 3, 5 }, { 6, 8 }, { 7, 9 } }, all(ds))
    local rows = D.range(1, 6):map(function(x) return tf.ones { x:item() } end)
    local shapes = {}
    for x in rows:bucket_by_sequence_length(function(x) return #x end,
      { 3, 5 }, { 2, 2, 1 }):iter() do
      shapes[#shapes + 1] = x.shape
    end
    assert.same({ { 2, 2 }, { 2, 4 }, { 1, 5 } }, shapes)
  end)

  -- TensorFlow 2.21's order.
  it("gives what is left of groups by rising keys", function()
    local ds = D.from_tensor_slices { 5, 3, 5, 9, -2, 3, 3, 9, 7, 5, 1 }
    local function batches(_, w) return w:batch(10) end
    assert.same({ { 5, 5 }, { 3, 3 }, { 9, 9 }, { -2 }, { 1 }, { 3 }, { 5 },
      { 7 } }, all(ds:group_by_window(function(x) return x:item() end, batches,
      2)))
    assert.same({ { 3, 9 }, { 3, 3 }, { -2, 7, 1 }, { 9 }, { 5, 5, 5 } },
      all(ds:group_by_window(function(x) return x:item() % 3 end, batches,
      { window_size_func = function(key) return key:item() + 2 end })))
    local rows = D.from_tensor_slices { 7, 2, 5, 1, 9, 3, 12, 4 }
      :map(function(x) return tf.fill({ x:item() }, x) end)
    local function firsts(sizes, options)
      local out = {}
      for x in rows:bucket_by_sequence_length(function(x) return #x end,
        { 3, 6, 10 }, sizes, options):iter() do
        out[#out + 1] = x[{ {}, 0 }]:totable()
      end
      return out
    end
    assert.same({ { 2, 1 }, { 5, 3, 4 }, { 7, 9 }, { 12 } },
      firsts { 5, 5, 5, 5 })
    assert.same({ { 2, 1 }, { 7, 9 }, { 5, 3 } }, firsts({ 2, 2, 2, 2 },
      { drop_remainder = true }))
  end)

  it("element_spec says what comes", function()
    local ds = D.from_tensor_slices { tf.zeros { 10, 4 }, tf.zeros { 10 } }
    local s = ds.element_spec
    assert.same({ { 4 }, {} }, { s[1].shape, s[2].shape })
    s = ds:batch(3).element_spec
    assert.same({ { -1, 4 }, { -1 } }, { s[1].shape, s[2].shape })
    s = ds:batch(3):map(function(a, b)
      return a:cast "int32", b:sum(), tf.zeros { 2 }
    end).element_spec
    assert.same({ { -1, 4 }, {}, { 2 } },
      { s[1].shape, s[2].shape, s[3].shape })
    assert.equal("int32", s[1].dtype)
    assert.equal("string", D.from_tensor_slices { "a" }.element_spec.dtype)
    assert.equal(tostring(tf.TensorSpec({ -1, 4 }, "int32")), tostring(s[1]))
    fails("ValueError", "empty", function()
      return D.from_generator(function() return function() end end).element_spec
    end)
  end)

  it("specs leave random orders alone", function()
    local a = D.range(30):shuffle(30, { seed = 1 }):batch(2)
      :map(function(x) return x end)
    local b = D.range(30):shuffle(30, { seed = 1 }):batch(2)
    local _ = a.element_spec
    assert.same(all(b), all(a))
  end)

  it("the pipeline prints", function()
    local shown = tostring(D.range(10):shuffle(3, { seed = 1 }):batch(4)
      :map(function(x) return x end):prefetch())
    assert.truthy(shown:find("3 elements", 1, true))
    assert.truthy(shown:find("range(10)\n  shuffle(3, seed 1)\n  batch(4)\n"
      .. "  map(", 1, true))
    assert.truthy(shown:find("transform_spec.lua", 1, true))
    assert.truthy(tostring(D.zip { D.range(2):batch(1), D.range(3) })
      :find("range(3)", 1, true))
  end)
end)

describe("tf.data.experimental", function()
  leaks(before_each, after_each)
  local X = tf.data.experimental

  it("transformations for apply", function()
    assert.same({ { 3, 0 }, { 4, 1 } }, all(D.range(2)
      :apply(X.enumerate_dataset(3))))
    assert.same(count(4), all(D.range(4):batch(3):apply(X.unbatch())))
    assert.same(count(4), all(D.range(4)
      :apply(X.prefetch_to_device("/cpu:0", 1))))
    assert.same({ 0, 1 }, all(D.range(4):apply(X.take_while(function(x)
      return x:item() < 2
    end))))
    assert.equal(4, X.cardinality(D.range(4)))
    assert.equal(3, X.get_single_element(D.range(3, 4)):item())
    fails("NotImplementedError", "rejection", function()
      return X.rejection_resample
    end)
  end)

  it("assert_cardinality", function()
    local odd = D.range(6):filter(function(x) return x:item() % 2 == 1 end)
    local ds = odd:apply(X.assert_cardinality(3))
    assert.equal(3, ds:cardinality())
    assert.same({ 1, 3, 5 }, all(ds))
    fails("FailedPrecondition", "the data set has 3", all,
      odd:apply(X.assert_cardinality(4)))
    fails("FailedPrecondition", "the data set has more", all,
      odd:apply(X.assert_cardinality(2)))
  end)

  it("ignore_errors", function()
    local ds = D.range(5):map(function(x)
      assert(x:item() % 2 == 0)
      return x
    end)
    assert.same({ 0, 2, 4 }, all(ds:apply(X.ignore_errors())))
    fails("RuntimeError", "no good", all, D.range(3):repeat_():map(function()
      error "no good"
    end):apply(X.ignore_errors()))
  end)

  -- Reading outside of a tensor fails where the queue comes to it.
  local function tens(x)
    return tf.gather(tf.constant { 10, 20, 30, 40 }, tf.cast(x, "int32"))
  end

  it("ignore_errors sees what fails in queued work", function()
    local ds = D.from_tensor_slices { 9, 0, 5, 1, 6, 2 }
    local good = { 10, 20, 30 }
    assert.same(good, all(ds:map(tens):ignore_errors()))
    assert.same(good, all(ds:map(tens):prefetch(3):ignore_errors()))
    assert.same(good, all(ds:map(tens):ignore_errors():prefetch(3)))
    assert.same({ { 10, 20 }, { 30 } }, all(ds:map(tens):ignore_errors()
      :batch(2)))
    assert.same({ 22, 42, 62 }, all(ds:map(tens):map(function(x)
      return x + 1
    end):ignore_errors():map(function(x) return x * 2 end)))
    assert.same({ 0, 1, 2 }, all(ds:map(function(x)
      tens(x)
      return x
    end):ignore_errors()))
    assert.same(good, all(ds:interleave(function(x)
      return D.from_tensors(x):map(tens)
    end, { cycle_length = 2 }):ignore_errors()))
    assert.same({ { 30 } }, all(ds:skip(1):map(tens):batch(2):ignore_errors()))
    assert.same({ 10, 20, 30, 10, 20, 30 }, all(ds:map(tens):ignore_errors()
      :repeat_(2)))
  end)

  it("ignore_errors leaves other errors to those who made them", function()
    local ds = D.from_tensor_slices { 0, 1 }:ignore_errors():iter()
    local lost
    local e = fails("InvalidArgument", "9 is outside", function()
      lost = tens(9)
      ds:get_next()
      lost:wait()
    end)
    assert.is_nil(e.message:find("dataset", 1, true))
    assert.same({ 0, 1 }, all(D.from_tensor_slices { 0, 1 }:ignore_errors()))
  end)

  it("an example that element_spec asks for fails there", function()
    local ds = D.from_tensor_slices { 9, 0 }:map(tens)
    fails("InvalidArgument", "9 is outside", function()
      return ds.element_spec
    end)
    tf.sync_devices()
    assert.same({ 10 }, all(ds:ignore_errors()))
  end)

  it("as_numpy_iterator gives Lua values", function()
    local out = {}
    for x, t in D.range(2):map(function(x)
      return x, { s = "a", v = { 1, 2 } }
    end):as_numpy_iterator() do
      out[#out + 1] = { x, t }
    end
    assert.same({ { 0, { s = "a", v = { 1, 2 } } },
      { 1, { s = "a", v = { 1, 2 } } } }, out)
  end)
end)

describe("errors of a pipeline", function()
  leaks(before_each, after_each)

  it("name the stage and the function", function()
    local ds = D.range(5):map(function(x)
      if x:item() == 2 then error "bad element" end
      return x
    end)
    local it = ds:batch(1):iter()
    it:get_next()
    it:get_next()
    local e = fails("RuntimeError", "bad element", it.get_next, it)
    assert.truthy(tostring(e):find("in dataset stage map, function at", 1,
      true))
    assert.truthy(tostring(e):find("transform_spec.lua", 1, true))
  end)

  it("names the stage of work that was queued", function()
    local function bad(i)
      return tf.gather(tf.range(4), i)
    end
    local strategy = tf.distribute.MirroredStrategy()
    local rows = D.range(4, 8):map(bad):map(function(x)
      tf.sync_devices()
      return x
    end):batch(2)
    for _, each in ipairs { rows,
      strategy:experimental_distribute_dataset(rows) } do
      local ok, e = pcall(function()
        for _ in each:iter() do end
      end)
      assert.is_false(ok)
      assert.equal("InvalidArgument", e.kind)
      assert.equal(1, #e.notes)
      local line = debug.getinfo(bad, "S").linedefined
      assert.matches("in dataset stage map, function at ", e.notes[1], 1, true)
      assert.matches("_spec%.lua:" .. line .. ", made", e.notes[1])
    end
  end)

  it("tables raised by the user pass through", function()
    local mine = {}
    local ok, e = pcall(all, D.range(1):map(function() error(mine) end))
    assert.is_false(ok)
    assert.equal(mine, e)
  end)

  it("an iterator goes on after an error, also behind prefetch", function()
    local function faulty(x)
      if x:item() == 1 then error "one" end
      return x
    end
    for _, ds in ipairs { D.range(4):map(faulty),
      D.range(4):map(faulty):prefetch(2) } do
      local it = ds:iter()
      assert.equal(0, it:get_next():item())
      fails("RuntimeError", "one", it.get_next, it)
      assert.equal(2, it:get_next():item())
      assert.equal(3, it:get_next():item())
      fails("OutOfRange", "ended", it.get_next, it)
      fails("OutOfRange", "ended", it.get_next, it)
    end
  end)

  it("wrong arguments", function()
    local ds = D.range(3)
    fails("TypeError", "map_func must be a function", ds.map, ds, 3)
    fails("ValueError", "at least 1", ds.batch, ds, 0)
    fails("ValueError", "whole number", ds.batch, ds, 2.5)
    fails("TypeError", "batch_size", ds.batch, ds, "2")
    fails("InvalidArgument", "num_shards", ds.shard, ds, 2, 2)
    fails("InvalidArgument", "num_shards", ds.shard, ds, 0, 0)
    fails("ValueError", "at least 1", ds.shuffle, ds, 0)
    fails("TypeError", "dataset must be a dataset", ds.concatenate, ds, 3)
    fails("TypeError", "the dataset itself", ds.map, function() end)
    fails("KeyError", "shufle", function() return ds:shufle(3) end)
    fails("TypeError", "cannot be changed", function() ds.x = 1 end)
    fails("InvalidArgument", "3 and 2 rows", D.from_tensor_slices,
      { tf.zeros { 3 }, tf.zeros { 2 } })
    fails("InvalidArgument", "a scalar", D.from_tensor_slices,
      { tf.zeros { 3 }, tf.zeros {} })
    fails("ValueError", "no data sets", D.zip, {})
    fails("TypeError", "must be a dataset", D.zip, { 3 })
  end)

  it("errors in a coroutine name the user's line", function()
    local function gen()
      return D.from_generator(function()
        return coroutine.wrap(function()
          for i = 1, 4 do
            if i == 4 then error("boom") end
            coroutine.yield(tf.fill({ 2 }, i))
          end
        end)
      end)
    end
    local line = debug.getinfo(gen, "S").linedefined + 4
    for _, ds in ipairs { gen(), gen():batch(2), gen():prefetch(2),
      gen():map(function(x) return x end), gen():shuffle(2), gen():cache(),
      D.range(2):flat_map(gen), gen():batch(2):prefetch(2) } do
      local e = fails("RuntimeError", nil, all, ds)
      assert.equal("boom", e.message)
      assert.truthy(e.where:find("transform_spec%.lua:" .. line .. "$"))
    end
    fails("InvalidArgument", "reshape", all, D.from_generator(function()
      return coroutine.wrap(function() tf.ones { 2 }:reshape { 7 } end)
    end))
  end)

  it("elements that make no sense", function()
    local function gen(...)
      local steps = { ... }
      return D.from_generator(function()
        local i = 0
        return function()
          i = i + 1
          if steps[i] then return steps[i]() end
        end
      end)
    end
    fails("TypeError", "value 2 of 3 is nil", all, gen(function()
      return 1, nil, 3
    end))
    fails("TypeError", "structure", all, gen(function() return 1, 2 end,
      function() return 1 end))
    fails("TypeError", "component 0 is bool", all, gen(function() return 1 end,
      function() return true end))
    fails("TypeError", "a function", all, gen(function() return print end))
    fails("TypeError", "must return an iterator function", all,
      D.from_generator(function() return 3 end))
    fails("TypeError", "returned nothing", all,
      D.range(1):map(function() end))
    fails("TypeError", "must be a tensor", all,
      D.range(1):map(function() return io.stdout end))
    fails("FailedPrecondition", "released", all, D.range(1):map(function(x)
      x:release()
      return x
    end))
    local loop = {}
    loop.x = loop
    fails("ValueError", "contains itself", all,
      D.range(1):map(function() return loop end))
    for _, name in ipairs { "output_types", "output_signature" } do
      fails("ValueError", "contains itself", D.from_generator, print,
        { [name] = loop })
    end
    assert.same(count(2), all(D.range(2):map(function(x) return x end)))
  end)

  it("a pipeline that uses its own iterator", function()
    local it
    it = D.range(3):map(function() return it:get_next() end):iter()
    fails("RuntimeError", "while it makes one", it.get_next, it)
  end)
end)
