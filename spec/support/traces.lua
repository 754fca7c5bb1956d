--- Traced functions held against the same code line by line.
local assert = require "luassert"
local cases = require "spec.support.cases"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local unpack = table.unpack or unpack -- luacheck: ignore 143 113

local M = {}

--- All elements of a tensor or variable as a flat list.
function M.values(t)
  return tf.convert_to_tensor(t):toflat()
end

--- Input number k of a case of spec/support/cases.lua as a tensor.
function M.input(spec, k, dtype)
  return tf.constant(cases.values(spec, k, dtype), {
    dtype = spec.dtype or dtype, shape = spec.dims })
end

--- All inputs of a case, from number k on; each as make(tensor) if given.
function M.inputs(case, k, dtype, make)
  local out = {}
  for i, spec in ipairs(case.inputs) do
    local t = M.input(spec, i - 1 + k, dtype)
    out[i] = make and make(t) or t
  end
  return out
end

--- The results of a case as a list.
function M.call(case, args)
  return { case.fn(tf, unpack(args, 1, #case.inputs)) }
end

--- Gradients of all floating-point results of fn(args...), as M.call gives
--- them, by the case's inputs; absent ones are left out.
function M.case_gradients(case, fn, args)
  local sources = {}
  for i, which in ipairs(cases.differentiated(case)) do
    sources[i] = args[which]
  end
  local targets = {}
  local tape = tf.GradientTape(function(t)
    t:watch(sources)
    for _, out in ipairs(fn(unpack(args, 1, #case.inputs))) do
      if cases.FLOAT[out.dtype] then targets[#targets + 1] = out end
    end
  end)
  local got = tape:gradient(targets, sources)
  local out = {}
  for i = 1, #sources do out[#out + 1] = got[i] end
  return out
end

--- Tensors of a list as text: dtype, shape and bits.
function M.bits(outs)
  local out = {}
  for i, t in ipairs(outs) do
    t = tf.convert_to_tensor(t)
    out[i] = ("%s {%s} %s"):format(t.dtype, table.concat(t.shape, ", "),
      raw.tensor_bytes(t))
  end
  return out
end

--- Fails where two lists of M.bits differ.
function M.same_bits(want, got, label)
  assert.are.equal(#want, #got, label .. ": another number of results")
  for i = 1, #want do
    assert.is_true(want[i] == got[i], ("%s: result %d differs"):format(label, i))
  end
end

--- fn(...) with a seed that is always the same: eager and traced calls then
--- draw the same numbers.
function M.seeded(fn, ...)
  tf.random.set_seed(5)
  return fn(...)
end

--- x to the power of n, an int32 tensor, by a loop.
function M.power(x, n)
  local _, y = tf.while_loop(function(i) return tf.less(i, n) end,
    function(i, y) return i + 1, y * x end,
    { tf.constant(0, "int32"), tf.ones_like(x) })
  return y
end

--- The gradient of fn(x) by x.
function M.gradient(fn, x)
  local y
  local tape = tf.GradientTape(function(t)
    t:watch(x)
    y = fn(x)
  end)
  return tape:gradient(y, x)
end

local function second_of(t, x)
  -- What is not connected is nil outside, zeros where another branch is.
  return M.values(t or tf.zeros_like(x))
end

--- fn of each x, its first and second gradient: eager, traced with the tapes
--- around the call, and with the tapes inside. Equal bits, the second gradients
--- equal numbers.
function M.check_gradients(fn, xs)
  local function first(x) return M.gradient(fn, x) end
  local inside = tf.function_(function(x)
    return fn(x), first(x), M.gradient(first, x)
  end)
  local f = tf.function_(fn)
  local function around(x) return M.gradient(f, x) end
  for _, value in ipairs(xs) do
    local x = tf.constant(value)
    local want = { fn(x), first(x), (M.gradient(first, x)) }
    local got = { inside(x) }
    local outer = { f(x), around(x), (M.gradient(around, x)) }
    for i = 1, 2 do
      assert.are.equal(raw.tensor_bytes(want[i]), raw.tensor_bytes(got[i]), i)
      assert.are.equal(raw.tensor_bytes(want[i]), raw.tensor_bytes(outer[i]), i)
    end
    assert.are.same(second_of(want[3], x), second_of(got[3], x))
    assert.are.same(second_of(want[3], x), second_of(outer[3], x))
  end
end

--- fn(...) line by line and traced, twice: results of the same bits, dtypes and
--- sizes, one trace. Returns the traced function.
function M.check_same(fn, ...)
  local f = tf.function_(fn)
  local want = tf.nest.flatten({ fn(...) })
  for _ = 1, 2 do
    local got = tf.nest.flatten({ f(...) })
    assert.are.equal(want.n, got.n)
    for i = 1, want.n do
      assert.are.same(raw.tensor_dims(want[i]), raw.tensor_dims(got[i]))
      assert.are.equal(want[i].dtype, got[i].dtype)
      assert.are.equal(raw.tensor_bytes(want[i]), raw.tensor_bytes(got[i]))
    end
  end
  assert.are.equal(1, f:experimental_get_tracing_count())
  return f
end

return M
