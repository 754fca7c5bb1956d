--- tf.IndexedSlices as arguments of traced functions: told by the structure of
--- their tensors. Expected values are closed forms.
local expect = require "spec.support.expect"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"
local traces = require "spec.support.traces"

local gradient, raises, values = traces.gradient, expect.raises, traces.values

local function slices(rows, indices, size)
  return tf.IndexedSlices(tf.constant(rows), tf.constant(indices, "int32"),
    { size })
end

local function dense(x) return tf.convert_to_tensor(x) end

describe("IndexedSlices given to a traced function", function()
  it("are traced once for their sizes, whatever their values", function()
    local f = tf.function_(function(t) return dense(t.grad) * 2, t.grad end)
    local out, back = f { grad = slices({ 1, 2 }, { 0, 2 }, 3) }
    assert.are.same({ 2, 0, 4 }, values(out))
    assert.are.same({ 1, 0, 2 }, values(dense(back)))
    assert.are.same({ 0, 12, 0 },
      values((f { grad = slices({ 1, 5 }, { 1, 1 }, 3) })))
    assert.are.equal(1, f:experimental_get_tracing_count())
    assert.are.same({ 0, 12, 0, 0 },
      values((f { grad = slices({ 1, 5 }, { 1, 1 }, 4) })))
    assert.are.same({ 14 }, values((f { grad = slices({ 7 }, { 0 }, 1) })))
    assert.are.equal(3, f:experimental_get_tracing_count())
  end)

  it("give their rows a gradient, in a graph of all numbers of rows", function()
    local f = tf.function_(function(x) return tf.reduce_sum(dense(x) ^ 2) end,
      { reduce_retracing = true })
    for n = 1, 4 do
      local rows = tf.range(1, n + 1, { dtype = "float32" })
      local at = tf.range(n, { dtype = "int32" })
      local want = {}
      for i = 1, n do want[i] = 2 * i end
      assert.are.same(want, values(gradient(function(x)
        return f(tf.IndexedSlices(x, at, { 5 }))
      end, rows)))
    end
    assert.are.equal(2, f:experimental_get_tracing_count())
  end)

  it("are a concrete function's for the size it was traced with", function()
    local c = tf.function_(dense):get_concrete_function(
      slices({ 1, 2 }, { 0, 2 }, 3))
    assert.are.same({ 5, 6, 0 }, values(c(slices({ 5, 6 }, { 0, 1 }, 3))))
    raises("TypeError", "it was traced with", c, slices({ 5, 6 }, { 0, 1 }, 4))
  end)

  it("are applied by an optimizer that is traced once", function()
    local w = tf.Variable { { 1, 2 }, { 3, 4 } }
    local optimizer = tf.keras.optimizers.SGD(1)
    local apply = tf.function_(function(grad)
      optimizer:apply_gradients({ grad }, { w })
    end)
    for _, row in ipairs { 0, 1, 0 } do
      apply(gradient(function(v)
        return tf.reduce_sum(tf.gather(v, { row, row }))
      end, w))
    end
    assert.are.same({ -3, -2, 1, 2 }, values(w))
    assert.are.equal(1, apply:experimental_get_tracing_count())
  end)

  replicas.pair(it, pending, "are each replica's own", function(strategy)
    local f = tf.function_(function(x)
      return strategy:run(function(t) return dense(t) * 3 end, { x })
    end)
    for k = 1, 2 do
      local got = strategy:experimental_local_results(
        f(strategy:experimental_distribute_values_from_function(function(c)
          return slices({ k }, { c.replica_id_in_sync_group }, 2)
        end)))
      assert.are.same({ 3 * k, 0 }, values(got[1]))
      assert.are.same({ 0, 3 * k }, values(got[2]))
    end
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)
end)
