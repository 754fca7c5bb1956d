--- One graph for all sizes that an input signature leaves open, or a graph for
--- each size where code counts with them: never other values.
local tf = require "tfdist"
local cases = require "spec.support.cases"
local expect = require "spec.support.expect"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local traces = require "spec.support.traces"

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

local function open(fn, ...)
  local specs = {}
  for i = 1, select("#", ...) do
    specs[i] = tf.TensorSpec((select(i, ...)), "float32")
  end
  return tf.function_(fn, { input_signature = specs })
end

local function rows(n)
  return tf.reshape(tf.range(0, 2 * n, { dtype = "float32" }), { n, 2 })
end

describe("a result whose size only values tell", function()
  local GIVE = {
    boolean_mask = function(x) return tf.boolean_mask(x, tf.greater(x, 0)) end,
    where = function(x) return tf.where(tf.greater(x, 0)) end,
    unique = tf.unique,
    unique_with_counts = tf.unique_with_counts,
    bincount = function(x) return tf.math.bincount(x, { minlength = 2 }) end,
    confusion_matrix = function(x) return tf.math.confusion_matrix(x, x) end,
    sequence_mask = function(x) return tf.sequence_mask(x) end,
    repeat_ = function(x) return tf.repeat_(x, x) end,
    segment_sum = function(x) return tf.math.segment_sum(x, x) end,
    dynamic_partition = function(x) return tf.dynamic_partition(x, x, 3) end,
    dynamic_stitch = function(x) return tf.dynamic_stitch({ x }, { x }) end,
  }

  it("is refused by name in a trace, and given outside of it", function()
    local x = tf.constant({ 0, 1, 2 }, { dtype = "int32" })
    for name, give in pairs(GIVE) do
      assert.is_not_nil(give(x), name)
      expect.raises("NotImplementedError", name .. ": the size of the result "
        .. "depends on the values of ", tf.function_(give), x)
    end
  end)

  it("is given where there are no values", function()
    local mask = tf.function_(function(x) return tf.sequence_mask(x) end)
    assert.are.same({ 0, 0 },
      { unpack(mask(tf.zeros({ 0 }, { dtype = "int32" })).shape, 1, 2) })
  end)

  it("is given where the arguments tell it", function()
    local labels = tf.constant({ 0, 1, 1 }, { dtype = "int32" })
    local found = tf.constant({ 0, 0, 1 }, { dtype = "int32" })
    local matrix = tf.function_(function(a, b)
      return tf.math.confusion_matrix(a, b, { num_classes = 2 })
    end)
    assert.are.same({ { 1, 0 }, { 1, 1 } }, matrix(labels, found):totable())
    for _, wrong in ipairs { 2, -1 } do
      expect.raises("InvalidArgument", "at [1]: " .. wrong, function(...)
        return matrix(...):totable()
      end, labels, tf.constant({ 0, wrong, 1 }, { dtype = "int32" }))
    end
    local counts = tf.function_(function(a)
      return tf.math.bincount(a, { minlength = 3, maxlength = 3 })
    end)
    assert.are.same({ 1, 2, 0 }, counts(labels):totable())
  end)
end)

describe("a training step of an open number of rows", function()
  it("gives the loss and the gradients of one outside", function()
    local w = tf.Variable(tf.reshape(tf.sin(tf.range(0, 12,
      { dtype = "float32" })), { 4, 3 }))
    local b = tf.Variable { 0.5, -1, 2 }
    local function step(x)
      local loss
      local tape = tf.GradientTape(function()
        local y = tf.nn.softmax(tf.tanh(tf.matmul(x, w) + b))
        loss = tf.reduce_sum(y * y + tf.reduce_mean(x, { 1 }, true))
      end)
      local g = tape:gradient(loss, { w, b })
      return loss, g[1], g[2]
    end
    local f = open(step, { -1, 4 })
    for _, n in ipairs { 0, 1, 7, 64, 7 } do
      local x = tf.cos(tf.reshape(tf.range(0, 4 * n, { dtype = "float32" }),
        { n, 4 }))
      local want, got = { step(x) }, { f(x) }
      for i = 1, 3 do
        assert.are.equal(raw.tensor_bytes(want[i]), raw.tensor_bytes(got[i]))
      end
    end
  end)
end)

describe("slices of axes whose sizes are open", function()
  it("go on to the end of what there is, in one graph", function()
    local f = open(function(x)
      return x[{ {} }], x[{ { 1 } }], x[{ { nil, nil, 2 } }], x[1],
        x[{ "...", 1 }], x[{ {}, tf.newaxis, 0 }]
    end, { -1, 2 })
    for _, n in ipairs { 2, 3, 5 } do
      local x = rows(n)
      local got = { f(x) }
      local whole = x:totable()
      assert.are.same(whole, got[1]:totable())
      assert.are.same({ unpack(whole, 2) }, got[2]:totable())
      assert.are.same(math.ceil(n / 2), got[3].shape[1])
      assert.are.same({ 2, 3 }, got[4]:totable())
      for i = 1, n do
        assert.are.equal(2 * i - 1, got[5][i - 1]:item())
        assert.are.equal(2 * i - 2, got[6][i - 1][0]:item())
      end
    end
    assert.are.equal(1, f:experimental_get_tracing_count())
    local none = f.python_function
    local empty = open(function(x) return (none(x)) end, { -1, 2 })(
      tf.zeros { 0, 2 })
    assert.are.equal(0, empty.shape[1])
  end)

  it("from behind the end are empty", function()
    local f = open(function(x) return x[{ { 4 } }] end, { -1, 2 })
    assert.are.equal(0, f(rows(3)).shape[1])
    assert.are.equal(2, f(rows(6)).shape[1])
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("that count from the end have a graph for each size", function()
    local f = open(function(x) return x[-1], x[{ { 0, -1 } }],
      x[{ { nil, nil, -1 } }] end, { -1, 2 })
    for _, n in ipairs { 3, 5, 3 } do
      local last, most, turned = f(rows(n))
      assert.are.same({ 2 * n - 2, 2 * n - 1 }, last:totable())
      assert.are.equal(n - 1, most.shape[1])
      assert.are.same({ 2 * n - 2, 2 * n - 1 }, turned[0]:totable())
    end
    assert.are.equal(2, f:experimental_get_tracing_count())
  end)

  it("outside of what there is are refused by the call", function()
    local f = open(function(x) return x[4] end, { -1, 2 })
    assert.are.same({ 8, 9 }, f(rows(6)):totable())
    local e = expect.failure(f, rows(4))
    assert.are.equal("IndexError", tf.errors.kind(e), tostring(e))
  end)

  it("give gradients", function()
    local f = open(function(x) return x[{ { 1 } }] * 3 end, { -1, 2 })
    local x = rows(3)
    local y
    local tape = tf.GradientTape(function(t)
      t:watch(x)
      y = f(x)
    end)
    assert.are.same({ { 0, 0 }, { 3, 3 }, { 3, 3 } },
      tape:gradient(y, x):totable())
  end)
end)

describe("what counts with sizes that are open", function()
  it("tells those of the call", function()
    local f = open(function(x) return tf.shape(x), tf.size(x) end, { -1, 2 })
    for _, n in ipairs { 1, 4 } do
      local shape, size = f(rows(n))
      assert.are.same({ n, 2 }, shape:totable())
      assert.are.equal(2 * n, size:item())
    end
  end)

  -- name = { function of x {?, 2}, one graph for all sizes? }
  local LOOK = {
    ["the sizes of a shape"] = { function(x)
      return tf.reduce_sum(x) / x.shape[1]
    end },
    ["the length"] = { function(x)
      local sum = tf.zeros {}
      for i = 0, #x - 1 do
        sum = sum + tf.reduce_sum(x[i])
      end
      return sum
    end },
    ["a fold"] = { function(x)
      return tf.foldl(function(a, row) return a * 2 + row end, x)
    end },
    ["a fold from the end"] = { function(x)
      return tf.foldr(function(a, row) return a * 2 + row end, x)
    end },
    ["a scan"] = { function(x)
      return tf.scan(function(a, row) return a * 2 + row end, x)
    end },
    ["rows that are mapped"] = { function(x)
      return tf.map_fn(function(row) return row * 2 end, x)
    end },
    ["an average loss"] = { function(x)
      return tf.nn.compute_average_loss(tf.reduce_sum(x, { axis = 1 }))
    end },
    ["a loss"] = { function(x)
      return tf.keras.losses.mean_squared_error(x, x * 2)
    end, one = true },
    ["flattening"] = { function(x)
      return tf.keras.layers.Flatten()(tf.expand_dims(x, 1))
    end, one = true },
    ["reshaping"] = { function(x)
      return tf.keras.layers.Reshape { 2, 1 }(x)
    end, one = true },
    ["a shape of the rest"] = { function(x) return tf.ensure_shape(x, { -1, 2 }) end,
      one = true },
    ["pieces"] = { function(x) return tf.split(x, { 1, -1 })[2] end },
    ["repeated rows"] = { function(x)
      return tf.repeat_(tf.transpose(x), { 2, 1 }, 0)
    end, one = true },
    ["a product of axes"] = { function(x)
      return tf.einsum("ij,kj->ik", x, x)
    end },
    ["a solution for each of several"] = { function(x)
      local m = tf.expand_dims(tf.expand_dims(x[{ {}, 1 }], -1), -1)
      return tf.linalg.solve(m, tf.ones { 1, 1, 1 })
    end },
  }
  for name, case in pairs(LOOK) do
    it("gives the values of each size: " .. name, function()
      local f = open(case[1], { -1, 2 })
      for _, n in ipairs { 3, 1, 5 } do
        local want = case[1](rows(n))
        assert.are.same(want:totable(), f(rows(n)):totable())
      end
      if case.one then
        assert.are.equal(1, f:experimental_get_tracing_count())
      end
    end)
  end

  it("goes through a loop with the sizes that it has", function()
    local f = open(function(x)
      local _, y = tf.while_loop(function(i) return tf.less(i, 2) end,
        function(i) return i + 1, x end, { tf.constant(0), tf.zeros { 3, 2 } })
      return y
    end, { -1, 2 })
    assert.are.same(rows(3):totable(), f(rows(3)):totable())
    local e = expect.failure(f, rows(2))
    assert.are.equal("ValueError", tf.errors.kind(e), tostring(e))
  end)

  it("gives a concrete function the gradients of each size", function()
    local f = tf.function_(function(x) return tf.reduce_sum(x * x) end)
    local c = f:get_concrete_function(tf.TensorSpec({ -1 }, "float32"))
    for _, list in ipairs { { 3 }, { 1, 2 }, {}, { 4, 5, 6 } } do
      local x, twice = tf.constant(list), {}
      local tape, y = tf.GradientTape(function(tape)
        tape:watch(x)
        return c(x)
      end)
      for i, value in ipairs(list) do twice[i] = 2 * value end
      assert.are.same(twice, tape:gradient(y, x):totable())
    end
  end)

  it("tells small from large by all of its sizes", function()
    local function fn(x)
      return tf.linalg.matrix_rank(x), tf.linalg.pinv(x)
    end
    local f = open(fn, { -1, -1 })
    for _, dims in ipairs { { 3, 2 }, { 2, 5 }, { 3, 2 } } do
      local x = tf.ones(dims)
      local rank, inverse = f(x)
      assert.are.equal(1, rank:item())
      assert.are.same(tf.linalg.pinv(x):totable(), inverse:totable())
    end
  end)

  it("normalises by the batch in training", function()
    local layer, same = tf.keras.layers.BatchNormalization(),
      tf.keras.layers.BatchNormalization()
    layer:build { -1, 2 }
    same:build { -1, 2 }
    local f = open(function(x) return layer(x, { training = true }) end,
      { -1, 2 })
    for _, n in ipairs { 3, 5 } do
      assert.are.same(same(rows(n), { training = true }):totable(),
        f(rows(n)):totable())
    end
    assert.are.same(same.moving_mean:totable(), layer.moving_mean:totable())
  end)

  it("does not write what does not fit into a variable", function()
    local v = tf.Variable { 1, 2 }
    for _, write in ipairs { "assign", "assign_add", "assign_sub" } do
      local f = open(function(x) v[write](v, x * 2) end, { -1 })
      for _, n in ipairs { 3, 4096 } do
        local e = expect.failure(f, tf.ones { n })
        assert.is_true(tf.errors.kind(e) == "InvalidArgument"
          or tf.errors.kind(e) == "ValueError", tostring(e))
      end
      assert.are.same({ 1, 2 }, v:read_value():totable())
    end
  end)

  it("fails as the script's mistake where it is one", function()
    local calls = 0
    local f = open(function(x)
      calls = calls + 1
      return tf.matmul(x, tf.zeros { 3, 3 })
    end, { -1, 2 })
    for _ = 1, 2 do
      local e = expect.failure(f, rows(2))
      assert.are.equal("InvalidArgument", tf.errors.kind(e), tostring(e))
    end
    assert.are.equal(2, calls) -- it is no question about a size
  end)
end)

-- The case table, all sizes open ---------------------------------------------

-- They must be told how many results there are.
local FIXED = { unstack = true }

local function check(case)
  local dtype = case.dtypes[1]
  local args, specs = {}, {}
  for i, spec in ipairs(case.inputs) do
    local of = spec.dtype or dtype
    local dims = {}
    for axis = 1, #spec.dims do dims[axis] = -1 end
    args[i] = traces.input(spec, i - 1, dtype)
    specs[i] = tf.TensorSpec(dims, of)
  end
  local function fn(...) return case.fn(tf, ...) end
  local want = traces.bits { traces.seeded(fn, unpack(args)) }
  local f = tf.function_(fn, { input_signature = specs })
  traces.same_bits(want, traces.bits { traces.seeded(f, unpack(args)) },
    case.name)
end

for _, family in ipairs(cases.families) do
  it("all sizes open: ops of family " .. family .. " keep their values",
    function()
      for _, case in ipairs(cases.load(family)) do
        if not cases.NOT_TRACED[case.name] and not FIXED[case.name] then
          check(case)
        end
      end
    end)
end

describe("a trace by specs", function()
  -- Each alone in its process: nothing else has asked for an op before.
  for name, code in pairs {
    ["get_concrete_function"] = [[
      tf.function_(function(x) return x + 1 end):get_concrete_function(
        tf.TensorSpec({ 2 }, "float32"))]],
    ["an input_signature"] = [[
      local f = tf.function_ { input_signature = { tf.TensorSpec({}, "float32") }
        } (function(x) return x:square() + 1 end)
      assert(f(2):item() == 5)]],
  } do
    it("may be the first thing of a program: " .. name .. " #once", function()
      for _, host in ipairs(process.hosts) do
        local r = process.run(host.path .. " -e " .. process.quote(
          "local tf = require 'tfdist' " .. code))
        assert.are.equal(0, r.code, r.err)
      end
    end)
  end

  it("takes no memory for their sizes", function()
    local before = tf.config.experimental.get_memory_info "CPU:0".peak
    local c = tf.function_(function(x) return x + 1 end):get_concrete_function(
      tf.TensorSpec({ 2 ^ 30, 2 ^ 10 }, "float32"))
    assert.is_truthy(c:graph():find("= add(x0, c0) float32 {1073741824, 1024}",
      1, true), c:graph())
    assert.is_true(tf.config.experimental.get_memory_info "CPU:0".peak - before
      < 2 ^ 20)
  end)
end)
