-- Cases J, A16, A21..A25: what strategies make of data sets. What involves
-- several workers is arithmetic and stands in input_shares_spec.
local E = require "spec.support.elements"
local R = require "spec.support.replicas"
local replica_spec = require "tfdist.distribute.replica_spec"
local tf = require "tfdist"
local on_device = require "spec.support.on_device"

local at = on_device.at
local D = tf.data.Dataset
local distribution = tf.distribute
local all, count, fails, steps = E.all, E.count, R.fails, E.steps

local function central(n)
  local names = {}
  for i = 1, n do names[i] = at(i - 1) end
  return distribution.experimental.CentralStorageStrategy(names)
end

-- it(name, fn(strategy, replicas)) for one device, Mirrored and Central.
local function strategies(name, fn)
  it(name .. ", one device", function()
    fn(distribution.OneDeviceStrategy(at(0)), 1)
  end)
  for n = 2, 4 do
    if R.available >= n then
      it(("%s, mirrored %d"):format(name, n), function()
        fn(R.mirrored(n), n)
      end)
      it(("%s, central %d"):format(name, n), function() fn(central(n), n) end)
    else
      pending(("%s, %d replicas: needs TFDIST_CPU_DEVICES=%d"):format(name, n,
        n))
    end
  end
end

local function joined(step)
  local out = {}
  for _, part in ipairs(step) do
    if type(part) == "table" then
      for _, x in ipairs(part) do out[#out + 1] = x end
    else
      out[#out + 1] = part
    end
  end
  return out
end

describe("contexts and options of input", function()
  it("A24 the share of a replica must divide evenly", function()
    local c = distribution.InputContext { num_replicas_in_sync = 6 }
    assert.equal(2, c:get_per_replica_batch_size(12))
    local e = fails("ValueError", "13", c.get_per_replica_batch_size, c, 13)
    assert.truthy(e.message:find("not divisible", 1, true))
  end)

  it("A25 contexts print", function()
    assert.truthy(tostring(distribution.InputContext())
      :find("input pipeline id 0, total: 1", 1, true))
    assert.truthy(tostring(distribution.InputContext { num_input_pipelines = 3,
      input_pipeline_id = 1 }):find("id 1, total: 3", 1, true))
  end)

  it("options are checked", function()
    local o = distribution.InputOptions()
    assert.equal("PER_WORKER", o.experimental_replication_mode)
    assert.equal(1, o.experimental_per_replica_buffer_size)
    fails("ValueError", "unknown option", distribution.InputOptions,
      { experimental_prefetch = 1 })
    fails("ValueError", "PER_REPLICA", distribution.InputOptions,
      { experimental_place_dataset_on_device = true })
    fails("ValueError", "experimental_per_replica_buffer_size",
      distribution.InputOptions, { experimental_per_replica_buffer_size = -1 })
  end)
end)

describe("the default strategy", function()
  R.leaks(before_each, after_each)
  local s = distribution.get_strategy()

  it("A21 leaves data sets alone", function()
    local ds = D.range(10):batch(2)
    assert.equal(ds, s:experimental_distribute_dataset(ds))
    assert.same({ 0, 1 }, ds:iter():get_next():totable())
  end)

  it("A22 from a function too", function()
    local ds = s:distribute_datasets_from_function(function(c)
      assert.equal(1, c.num_input_pipelines)
      return D.range(10):batch(2)
    end)
    assert.same({ 0, 1 }, ds:iter():get_next():totable())
  end)

  it("A15 array data adds up", function()
    local ds = s:experimental_make_numpy_dataset(tf.ones { 10 })
    assert.equal(10, ds:reduce(0, function(a, x) return a + x end):item())
  end)

  it("A16 steps on an iterator", function()
    local seen = {}
    local it = D.from_tensors(1.0):repeat_():iter()
    s.extended:experimental_run_steps_on_iterator(function(_, x)
      seen[#seen + 1] = x:item()
    end, it)
    assert.same({ 1 }, seen)
    local c = s.extended:experimental_run_steps_on_iterator(function(c, x)
      c:set_last_step_output("x", x)
      c:set_non_tensor_output("n", #seen)
    end, it, 3, { y = 2 })
    assert.equal(1, c.last_step_outputs.x:item())
    assert.same({ 2, 1 }, { c.last_step_outputs.y, c.non_tensor_outputs.n })
    fails("TypeError", "iterator", function()
      s.extended:experimental_run_steps_on_iterator(function() end, 3)
    end)
  end)
end)

describe("steps on an iterator", function()
  R.leaks(before_each, after_each)

  strategies("keep what replicas put out together", function(s, n)
    local it = s:experimental_distribute_dataset(D.range(4 * n):map(
      function(x) return tf.cast(x, "float32") end):batch(2 * n)):iter()
    local c = s.extended:experimental_run_steps_on_iterator(function(c, x)
      s:run(function(v)
        c:set_last_step_output("mean", tf.reduce_mean(v), "MEAN")
        c:set_last_step_output("sum", tf.reduce_sum(v), "SUM")
        c:set_non_tensor_output("id", R.id())
        c:set_non_tensor_output("place", { at = R.id() })
        c:set_non_tensor_output("word", "all say this")
        fails("AssertionError", "reduce_op", c.set_last_step_output, c, "x", v)
      end, { x })
    end, it, 2)
    -- The second step has 2n .. 4n - 1.
    assert.near(3 * n - 0.5, c.last_step_outputs.mean:item(), 1e-5)
    assert.near(2 * n * (3 * n - 0.5), c.last_step_outputs.sum:item(), 1e-4)
    local outputs = c.non_tensor_outputs
    assert.equal(n, outputs.id.n)
    for i = 1, n do
      assert.equal(i - 1, outputs.id[i])
      assert.equal(i - 1, outputs.place[i].at)
    end
    assert.same({ "all say this", n = 1 }, outputs.word)
  end)
end)

describe("distributed data sets", function()
  R.leaks(before_each, after_each)

  strategies("J02 a batch is split", function(s, n)
    local ds = s:experimental_distribute_dataset(D.range(100):batch(12))
    local got = steps(s, ds)
    assert.equal(9, #got)
    for k = 0, 7 do
      for r = 1, n do
        assert.same(count(12 / n, k * 12 + (r - 1) * (12 / n)), got[k + 1][r])
      end
    end
    assert.same(count(4, 96), joined(got[9]))
  end)

  strategies("J01 the last batch fills replicas in order", function(s, n)
    local got = steps(s, s:experimental_distribute_dataset(
      D.range(9):batch(n)))
    local rest = 9 % n
    for r = 1, n do
      assert.equal(1, #got[1][r])
      if rest > 0 then
        assert.equal(n == 1 and 1 or r <= rest and 1 or 0, #got[#got][r])
      end
    end
    local flat = {}
    for _, step in ipairs(got) do
      for _, x in ipairs(joined(step)) do flat[#flat + 1] = x end
    end
    assert.same(count(9), flat)
  end)

  strategies("J16 squares of five to eight", function(s)
    local ds = s:experimental_distribute_dataset(
      D.from_tensor_slices { 5, 6, 7, 8 }:batch(2))
    local out = {}
    for x in ds:iter() do
      local y = s:run(function(v) return v * v end, { x })
      local step = {}
      for _, part in ipairs(s:experimental_local_results(y)) do
        step[#step + 1] = E.plain(part)
      end
      out[#out + 1] = joined(step)
    end
    assert.same({ { 25, 36 }, { 49, 64 } }, out)
  end)

  strategies("J18 dynamic batch", function(s)
    local got = steps(s, s:experimental_distribute_dataset(
      D.from_tensor_slices { 5, 6, 7 }:batch(2):map(function(x)
        return x * x
      end)))
    assert.same({ { 25, 36 }, { 49 } }, { joined(got[1]), joined(got[2]) })
  end)

  strategies("J19 J29 functions give the next elements", function(s, n)
    local seen
    local ds = s:distribute_datasets_from_function(function(c)
      seen = c
      return D.from_tensor_slices { 5, 6, 7, 8 }
    end)
    assert.same({ 1, 0, n }, { seen.num_input_pipelines,
      seen.input_pipeline_id, seen.num_replicas_in_sync })
    local first = steps(s, ds, 1)[1]
    for r = 1, n do assert.equal(4 + r, first[r]) end
  end)

  strategies("J09 J10 partial steps of functions", function(s, n)
    local got = steps(s, s:distribute_datasets_from_function(function()
      return D.range(9):batch(2)
    end))
    local parts = 5
    assert.equal(math.ceil(parts / n), #got)
    for k = 1, #got do
      for r = 1, n do
        local part = (k - 1) * n + r - 1
        local wanted = part < 4 and { 2 * part, 2 * part + 1 }
          or part == 4 and { 8 } or {}
        assert.same(wanted, got[k][r])
      end
    end
  end)

  strategies("J14 input functions that return a function", function(s, n)
    local it = s:make_input_fn_iterator(function()
      local i = -1
      return function()
        i = i + 1
        return i < 10 * n and math.floor(i / n) or nil
      end
    end)
    for i = 0, 9 do
      for _, x in ipairs(s:experimental_local_results(it:get_next())) do
        assert.equal(i, x:item())
      end
    end
    fails("OutOfRange", "after 10 steps", it.get_next, it)
    local first = s:make_dataset_iterator(D.range(24):batch(12)):get_next()
    assert.same(count(12), joined(R.locals(s, first)))
  end)

  strategies("J04 fully static shapes end with the last whole step",
    function(s, n)
      local got = steps(s, s:distribute_datasets_from_function(function()
        return D.range(9):batch(2, true)
      end))
      assert.equal(math.floor(4 / n), #got)
    end)

  strategies("J08 tuples and tables", function(s, n)
    local ds = D.range(8):batch(4):map(function(x)
      return { a = x, b = { x * x, x } }, x + 1
    end)
    local seen = 0
    for t, y in s:experimental_distribute_dataset(ds):iter() do
      local a = s:experimental_local_results(t.a)
      local b = s:experimental_local_results(t.b[1])
      local c = s:experimental_local_results(y)
      for r = 1, n do
        for i, x in ipairs(E.plain(a[r])) do
          assert.equal(x * x, E.plain(b[r])[i])
          assert.equal(x + 1, E.plain(c[r])[i])
          seen = seen + 1
        end
      end
    end
    assert.equal(8, seen)
  end)

  strategies("J15 J20 shares lie on the replicas' devices", function(s, n)
    local ds = D.range(8):batch(8):map(function(x) return x + 1 end)
    local function devices(options, from_function)
      local dist
      if from_function then
        dist = s:distribute_datasets_from_function(function()
          return D.range(8):batch(2)
        end, options)
      else
        dist = s:experimental_distribute_dataset(ds, options)
      end
      local list = s:experimental_local_results(dist:iter():get_next())
      local out = {}
      for r = 1, n do out[r] = list[r].device:match "%u+:%d+$" end
      return out
    end
    local spread, home = {}, {}
    for r = 1, n do
      spread[r] = on_device.text "CPU:" .. (r - 1)
      home[r] = "CPU:0"
    end
    for _, from in ipairs { false, true } do
      assert.same(spread, devices(nil, from))
      assert.same(spread, devices({ experimental_fetch_to_device = true },
        from))
      assert.same(home, devices(distribution.InputOptions {
        experimental_fetch_to_device = false }, from))
    end
  end)

  strategies("element_spec is an input_signature", function(s, n)
    local pairs_of = D.zip { D.range(10), D.range(10):map(function(x)
      return tf.cast(x, "float32")
    end) }
    local named = D.from_tensor_slices { x = tf.range(10), y = tf.ones { 10, 2 } }
    local function total(...)
      return s:reduce("SUM", s:run(function(a, b)
        if b == nil then a, b = a.x, a.y end
        return tf.reduce_sum(tf.cast(a, "float32")) + tf.reduce_sum(b)
      end, { ... }))
    end
    local function call(fn, a, b)
      if b == nil then return fn(a):item() end
      return fn(a, b):item()
    end
    local function epoch(ds, signature, sum)
      local traces, got = 0, 0
      local fn = tf.function_ { input_signature = signature(ds.element_spec) }(
        function(...)
          traces = traces + 1
          return total(...)
        end)
      for a, b in ds:iter() do got = got + call(fn, a, b) end
      assert.equal(sum, got)
      got = 0
      local concrete = fn:get_concrete_function()
      for a, b in ds:iter() do got = got + call(concrete, a, b) end
      assert.equal(sum, got)
      assert.equal(1, traces)
      return fn
    end
    local two = s:experimental_distribute_dataset(pairs_of:batch(4))
    local fn = epoch(two, function(spec) return spec end, 90)
    epoch(s:experimental_distribute_dataset(named:batch(4)), function(spec)
      return { spec }
    end, 65)
    local a, b = two:iter():get_next()
    local want = n > 1 and "input_signature asks for PerReplicaSpec(TensorSpec("
      .. "float32 {?})" or "input_signature asks for TensorSpec(float32 {?})"
    R.fails("TypeError", want, fn, a, a)
    R.fails("TypeError", want, fn, a, tf.ones { 4, 1 })
    R.fails("TypeError", "2 arguments given, input_signature has 1",
      tf.function_ { input_signature = { two.element_spec[2] } }(total), b, b)
    local open = tf.function_(total):get_concrete_function(two.element_spec[1],
      two.element_spec[2])
    assert.equal(12, open(a, b):item())
  end)

  strategies("J11 J12 element_spec fits every element", function(s, n)
    local ds = s:experimental_distribute_dataset(D.zip { D.range(10),
      D.range(10) }:batch(4))
    local it = ds:iter()
    assert.equal(tostring(ds.element_spec[1]), tostring(it.element_spec[1]))
    local one = ds.element_spec[2]
    if n > 1 then
      assert.is_true(replica_spec.is_spec(one))
      assert.equal(n, #one.value_specs)
      one = one.value_specs[n]
    end
    assert.same({ -1 }, one.shape)
    assert.equal("int64", one.dtype)
    if n > 1 then
      local fixed = s:experimental_distribute_dataset(D.range(24):batch(12,
        true))
      assert.same({ 12 / n }, fixed.element_spec.value_specs[1].shape)
    end
    for _ in it do end
  end)

  strategies("J30 array data twice over", function(s, n)
    local x, y = tf.reshape(tf.range(12), { 6, 2 }), tf.range(6)
    local made = s:experimental_make_numpy_dataset { x, y }
    local ds = s:experimental_distribute_dataset(made:repeat_(2):batch(6))
    local it = ds:iter()
    for _ = 1, 2 do
      local a, b = it:get_next()
      local xs, ys = {}, {}
      for r = 1, n do
        xs[r] = E.plain(s:experimental_local_results(a)[r])
        ys[r] = E.plain(s:experimental_local_results(b)[r])
      end
      assert.same(x:totable(), joined(xs))
      assert.same(y:totable(), joined(ys))
    end
    fails("OutOfRange", "after 2 steps", it.get_next, it)
  end)

  strategies("J25 gradients of squares", function(s)
    local out = {}
    local ds = s:experimental_distribute_dataset(
      D.from_tensor_slices { 5, 6, 7, 8 }:batch(2))
    for x in ds:iter() do
      local g = s:run(function(v)
        local tape, y = tf.GradientTape(function(t)
          t:watch(v)
          return v * v
        end)
        return tape:gradient(y, v)
      end, { x })
      local step = {}
      for _, part in ipairs(s:experimental_local_results(g)) do
        step[#step + 1] = E.plain(part)
      end
      out[#out + 1] = joined(step)
    end
    assert.same({ { 10, 12 }, { 14, 16 } }, out)
  end)

  strategies("loops, OutOfRange, optionals and a new start", function(s)
    local ds = s:experimental_distribute_dataset(D.range(6):batch(4))
    for _ = 1, 2 do
      local n = 0
      for _ in ds:iter() do n = n + 1 end
      assert.equal(2, n)
    end
    local it = ds:iter()
    assert.is_true(it:get_next_as_optional():has_value())
    it:get_next()
    for _ = 1, 2 do fails("OutOfRange", "after 2 steps", it.get_next, it) end
    assert.is_false(it:get_next_as_optional():has_value())
    assert.equal(2, ds:cardinality())
  end)

  strategies("iterators go where another was by its state", function(s)
    for _, make in ipairs {
      function()
        return s:experimental_distribute_dataset(D.range(40)
          :shuffle(40, { seed = 1 }):batch(6):repeat_(2))
      end,
      function()
        return s:experimental_distribute_dataset(D.range(40)
          :batch(7):with_options { experimental_distribute = {
          auto_shard_policy = "OFF" } })
      end,
      function()
        return s:distribute_datasets_from_function(function()
          return D.range(40):shuffle(9):batch(4)
        end)
      end,
    } do
      local ds = make()
      local it = ds:iter()
      it:get_next()
      it:get_next()
      local saved, wanted, got = it:state(), {}, {}
      local function values_of(x)
        local out = {}
        for _, part in ipairs(s:experimental_local_results(x)) do
          out[#out + 1] = E.plain(part)
        end
        return out
      end
      for x in it do wanted[#wanted + 1] = values_of(x) end
      for x in ds:iter():restore(saved) do got[#got + 1] = values_of(x) end
      assert.same(wanted, got)
    end
  end)

  R.pair(it, pending, "J21 J22 means and sizes of short batches", function(s)
    local ds = s:experimental_distribute_dataset(
      D.from_tensor_slices { 5, 6, 7 }:batch(4))
    local x = ds:iter():get_next()
    assert.same({ 5.5, 7 }, R.locals(s, s:run(function(v)
      return v:mean()
    end, { x })))
    assert.same({ 2, 1 }, R.locals(s, s:run(function(v)
      return v.shape[1]
    end, { x })))
    ds = s:experimental_distribute_dataset(D.from_tensor_slices(
      tf.constant({ 5 }, "int64")):batch(2))
    assert.same({ { 10 }, {} }, R.locals(s, s:run(function(v)
      return v + v
    end, { ds:iter():get_next() })))
  end)

  R.pair(it, pending, "J24 elements as results", function(s)
    local ds = s:experimental_distribute_dataset(D.range(4):batch(2))
    local r = s:run(function(x) return { a = x - 1, b = x + 1 } end,
      { ds:iter():get_next() })
    assert.same({ { -1 }, { 0 } }, R.locals(s, r.a))
    assert.same({ { 1 }, { 2 } }, R.locals(s, r.b))
  end)

  R.pair(it, pending, "PER_REPLICA calls the function for each", function(s)
    local ids = {}
    local options = { experimental_replication_mode = "PER_REPLICA",
      experimental_place_dataset_on_device = true }
    local ds = s:distribute_datasets_from_function(function(c)
      ids[#ids + 1] = c.input_pipeline_id
      assert.equal(2, c.num_input_pipelines)
      return D.range(10):shard(2, c.input_pipeline_id)
    end, options)
    assert.same({ 0, 1 }, ids)
    assert.same({ { 0, 1 }, { 2, 3 } }, steps(s, ds, 2))
    ds = s:distribute_datasets_from_function(function(c)
      return D.range(2 + c.input_pipeline_id):batch(1)
    end, options)
    assert.same({ { { 0 }, { 0 } }, { { 1 }, { 1 } }, { {}, { 2 } } },
      steps(s, ds))
    fails("NotImplementedError", "PER_REPLICA", function()
      s:experimental_distribute_dataset(D.range(4):batch(2), options)
    end)
    fails("NotImplementedError", "only works with MirroredStrategy", function()
      central(2):distribute_datasets_from_function(function()
        return D.range(3)
      end, options)
    end)
  end)

  R.pair(it, pending, "scalars have no rows to be missing", function(s)
    local ds = s:distribute_datasets_from_function(function()
      return D.from_tensor_slices { 5, 6, 7 }
    end)
    assert.same({ { 5, 6 } }, steps(s, ds))
    ds = s:distribute_datasets_from_function(function()
      return D.from_generator(function()
        local i = 0
        return function()
          i = i + 1
          return i < 4 and i or nil
        end
      end)
    end)
    assert.same({ { 1, 2 } }, steps(s, ds))
  end)

  R.pair(it, pending, "E10 an unbatched data set", function(s)
    local e = fails("ValueError", "experimental_distribute_dataset needs a "
      .. "batched dataset to share among 2 replicas; elements here are "
      .. "{28, 28} and {}", function()
        s:experimental_distribute_dataset(D.from_tensor_slices {
          tf.zeros { 5, 28, 28 }, tf.zeros { 5 } })
      end)
    assert.equal("add :batch(global_batch_size) before", e.hint)
    local ds = s:experimental_distribute_dataset(D.from_generator(function()
      return function() return 1 end
    end))
    local it = ds:iter()
    fails("ValueError", "needs a batched dataset", it.get_next, it)
  end)

  R.pair(it, pending, "get_next inside a replica", function(s)
    local it = s:experimental_distribute_dataset(D.range(4):batch(2)):iter()
    fails("ValueError", "cross-replica context", function()
      s:run(function() return it:get_next() end)
    end)
    fails("RuntimeError", nil, function()
      s:run(function()
        s:experimental_distribute_dataset(D.range(4):batch(2))
      end)
    end)
  end)

  R.pair(it, pending, "explain says who gets what", function(s)
    local words = s:experimental_distribute_dataset(D.range(14):batch(7))
      :explain()
    assert.truthy(words:find("Each batch of 7 elements is shared among 2 "
      .. "replicas: 4 and 3 elements", 1, true))
    assert.truthy(words:find("fills replica 0 first", 1, true))
    words = s:experimental_distribute_dataset(D.range(14):batch(7)
      :with_options { experimental_distribute = { auto_shard_policy = "OFF" } })
      :explain()
    assert.truthy(words:find("pieces of 4 and 3 elements in turn", 1, true))
    words = s:distribute_datasets_from_function(function()
      return D.range(3)
    end):explain()
    assert.truthy(words:find("next 2 elements", 1, true))
    assert.truthy(distribution.OneDeviceStrategy(at(0))
      :experimental_distribute_dataset(D.range(2)):explain()
      :find("One replica", 1, true))
  end)

  R.pair(it, pending, "a distributed data set is the end of the pipeline",
    function(s)
      local ds = s:experimental_distribute_dataset(D.range(4):batch(2))
      local e = fails("KeyError", "map", function()
        return ds:map(function() end)
      end)
      assert.truthy(e.hint:find("before it is distributed", 1, true))
      fails("TypeError", "distributed already", function()
        s:experimental_distribute_dataset(ds)
      end)
      fails("TypeError", "must be a dataset", function()
        s:experimental_distribute_dataset { 1, 2 }
      end)
      assert.truthy(tostring(ds):find("MirroredStrategy, 2 replicas", 1, true))
    end)

  R.pair(it, pending, "infinite data goes on", function(s)
    local ds = s:experimental_distribute_dataset(D.range(3):batch(2):repeat_())
    assert.same({ { { 0 }, { 1 } }, { { 2 }, {} }, { { 0 }, { 1 } } },
      steps(s, ds, 3))
    assert.same(8, #all(D.range(8)))
  end)

  R.pair(it, pending, "steps are prepared ahead", function(s)
    local made = 0
    local ds = D.range(12):batch(2):map(function(x)
      made = made + 1
      return x
    end)
    local it = s:experimental_distribute_dataset(ds, {
      experimental_per_replica_buffer_size = 2 }):iter()
    it:get_next()
    assert.equal(3, made)
    made = 0
    it = s:experimental_distribute_dataset(ds, {
      experimental_per_replica_buffer_size = 0 }):iter()
    it:get_next()
    assert.equal(1, made)
  end)
end)
