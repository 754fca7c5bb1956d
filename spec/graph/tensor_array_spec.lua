--- tf.TensorArray line by line and in traced functions. Expected values are
--- closed forms, or those of lists of tensors.
local tf = require "tfdist"
local expect = require "spec.support.expect"
local raw = require "tfdist.core.raw"
local traces = require "spec.support.traces"

local check_gradients, check_same = traces.check_gradients, traces.check_same
local raises, values = expect.raises, traces.values
local unpack = table.unpack or unpack -- luacheck: ignore 143 113

local function array(n, options)
  options = options or {}
  options.size = n
  return tf.TensorArray("float32", options)
end

local function plain(fn) return fn end

describe("tf.TensorArray", function()
  it("gives what was written, line by line and traced", function()
    local function fn(x)
      local ta = array(3, { clear_after_read = false })
      ta = ta:write(0, x):write(2, x * 3):write(1, -x)
      local moved = array(4):scatter({ 3, 0 }, tf.stack { x, x + 1 })
        :write(1, x):write(2, x)
      return ta:stack(), ta:read(1), ta:read(1), ta:gather { 2, 0 }, ta:concat(),
        ta:size(), moved:stack(), array(2):unstack(tf.stack { x, x * x }):read(1),
        array(2, { infer_shape = false }):split(tf.concat({ x, x }, 0), { 3, 1 })
          :read(0)
    end
    local x = tf.constant { 1, 2 }
    local got = { fn(x) }
    local want = { { 1, 2, -1, -2, 3, 6 }, { -1, -2 }, { -1, -2 },
      { 3, 6, 1, 2 }, { 1, 2, -1, -2, 3, 6 }, { 3 }, { 2, 3, 1, 2, 1, 2, 1, 2 },
      { 1, 4 }, { 1, 2, 1 } }
    for i = 1, #want do
      assert.are.same(want[i], values(got[i]))
    end
    assert.are.same({ 3, 2 }, got[1].shape)
    check_same(fn, x)
  end)

  it("tells its dtype, size and element shape", function()
    local ta = tf.TensorArray("int32", { size = 2, dynamic_size = true })
    assert.are.equal("int32", ta.dtype)
    assert.is_true(ta.dynamic_size)
    assert.is_nil(ta.element_shape)
    ta:write(4, { 1, 2, 3 })
    assert.are.same({ 3 }, ta.element_shape)
    assert.are.equal(5, ta:size():item())
    assert.are.equal("int32", ta:size().dtype)
    assert.are.same({ 0, 0, 0 }, values(ta:read(1)))
    assert.are.equal("<TensorArray: int32 {3}>", tostring(ta))
    ta:close()
    assert.are.equal(0, ta:size():item())
    raises("KeyError", "no field", function() return ta.sise end)
  end)

  it("has no more elements than an int32 counts", function()
    for _, size in ipairs { 2 ^ 31, 2 ^ 40, -1, 1.5 } do
      raises("ValueError", "TensorArray: size must be", tf.TensorArray,
        "float32", { size = size })
    end
  end)

  it("refuses what does not fit", function()
    for _, run in ipairs { plain, tf.function_ } do
      local function of(fn)
        return run(function(x) return fn(array(3), x) end)
      end
      local x = tf.constant { 1, 2 }
      raises("OutOfRange", "Tried to write to index 3 but array is not "
        .. "resizeable and size is: 3", of(function(ta, t)
        return ta:write(3, t)
      end), x)
      raises("OutOfRange", "Writing to negative indices (index -1)",
        of(function(ta, t) return ta:write(-1, t) end), x)
      raises("OutOfRange", "Tried to read from index 3 but array size is: 3",
        of(function(ta) return ta:read(3) end), x)
      raises("OutOfRange", "Reading from negative indices (index -2)",
        of(function(ta) return ta:read(-2) end), x)
      raises("InvalidArgument", "dtype is float32 but Op is trying to write "
        .. "dtype int32", of(function(ta, t)
        return ta:write(0, tf.cast(t, "int32"))
      end), x)
      raises("ValueError", "Incompatible shape for value ({3}), expected ({2})",
        of(function(ta, t) return ta:write(0, t):write(1, { 1, 2, 3 }) end), x)
      raises("ValueError", "has no known shape",
        of(function(ta) return ta:read(0) end), x)
      raises("ValueError", "has no known shape",
        of(function(ta) return ta:stack() end), x)
      raises("InvalidArgument", "Expected sum of lengths",
        of(function(ta, t) return ta:split(t, { 1, 2 }) end), x)
      raises("InvalidArgument", "TensorArray's size is not equal to the size of "
        .. "lengths (3 vs. 2)", of(function(ta, t)
        return ta:split(t, { 1, 1 })
      end), x)
      raises("TypeError", "index must be one whole number",
        of(function(ta, t) return ta:read(t) end), x)
    end
    raises("ValueError", "Cannot unstack 4 tensors into a TensorArray of static "
      .. "size 3", function() return array(3):unstack(tf.zeros { 4 }) end)
    raises("TypeError", "must be the TensorArray itself", array(3).read, 3, 0)
  end)

  it("tells who drops what write gives in a traced function", function()
    local function dropped(x)
      local ta = array(1)
      ta:write(0, x)
      return ta:stack()
    end
    assert.equal(7, dropped(tf.constant(7)):item())
    local ok, e = pcall(tf.function_(dropped), tf.constant(7))
    assert.is_false(ok)
    assert.matches("ta = ta:write(index, value)", e.hint, 1, true)
  end)

  it("refuses a known position of known rows alike, traced or not", function()
    for _, run in ipairs { plain, tf.function_ } do
      local function of(words, fn)
        raises("OutOfRange", words, run(function(x)
          return fn(array(3):unstack(x))
        end), tf.constant { 1, 2, 3 })
      end
      of("TensorArray.read: Tried to read from index 3 but array size is: 3",
        function(ta) return ta:read(3) end)
      of("TensorArray.read: Reading from negative indices (index -1)",
        function(ta) return ta:read(-1) end)
      of("TensorArray.gather: Tried to read from index 5 but array size is: 3",
        function(ta) return ta:gather { 0, 5 } end)
      of("TensorArray.write: Tried to write to index 3 but array is not "
        .. "resizeable and size is: 3", function(ta) return ta:write(3, 1.0) end)
    end
    local choose = tf.function_(function(x, i)
      local ta = array(3):unstack(x)
      return tf.cond(tf.less(i, 0), function()
        return ta:write(4, 1.0):read(7) + ta:gather({ 8 })[0]
      end, function() return ta:read(2) end)
    end)
    assert.are.equal(3, choose(tf.constant { 1, 2, 3 }, tf.constant(0)):item())
  end)

  -- TensorFlow's list of a graph says so; its array of eager code OutOfRange.
  it("is an InvalidArgument where the call decides on a bad position", function()
    local function ta()
      return array(3, { element_shape = {} })
    end
    for _, bad in ipairs { 3, -1 } do
      local i = tf.constant(bad, "int32")
      for _, use in ipairs {
        function(at) return ta():read(at) end,
        function(at) return ta():unstack(tf.zeros { 3 }):read(at) end,
        function(at) return ta():gather(tf.stack { 0, at }) end,
        function(at) return ta():write(at, 1.0):stack() end,
      } do
        raises("OutOfRange", "TensorArray.", use, i)
        local traced = tf.function_(use)
        raises("InvalidArgument", ("%d"):format(bad), function()
          return tf.reduce_sum(traced(i)):item()
        end)
      end
    end
  end)

  it("names its method where the call decides on a bad position", function()
    local function ta()
      return array(3, { element_shape = {} })
    end
    local at = { tf.constant(3, "int32"), tf.constant(-1, "int32") }
    for what, use in pairs {
      write = function(i) return ta():write(i, 1.0):stack() end,
      scatter = function(i)
        return ta():scatter(tf.stack { i, 0 }, tf.constant { 1, 2 }):stack()
      end,
      read = function(i) return ta():read(i) end,
      gather = function(i) return ta():gather(tf.stack { 0, i }) end,
    } do
      local in_loop = function(i)
        return tf.while_loop(function(k) return tf.less(k, 1) end,
          function(k) return k + 1 + tf.cast(0 * tf.reduce_sum(use(i)),
            "int32") end, { tf.constant(0, "int32") })
      end
      for _, fn in ipairs { use, in_loop } do
        for _, i in ipairs(at) do
          local ok, e = pcall(function()
            return tf.reduce_sum(tf.function_(fn)(i)):item()
          end)
          assert.is_false(ok)
          assert.are.equal("InvalidArgument", e.kind)
          assert.are.same({ "in TensorArray." .. what
            .. ", of an array of size 3" }, e.notes)
        end
      end
    end
  end)

  it("lets go of what was read, unless told to keep it", function()
    local ta = array(2):unstack(tf.constant { 5, 6 })
    assert.are.equal(5, ta:read(0):item())
    raises("InvalidArgument", "Could not read index 0 twice", ta.read, ta, 0)
    assert.are.equal(6, ta:read(1):item())
    ta:write(0, 7.0)
    assert.are.equal(7, ta:read(0):item())
    local kept = array(1, { clear_after_read = false }):write(0, 1.0)
    assert.are.equal(2, (kept:read(0) + kept:read(0)):item())
  end)

  it("has zeros where nothing was written and the shape is known", function()
    check_same(function()
      return array(2, { element_shape = { 2 } }):stack(),
        array(0, { element_shape = { 2 } }):stack()
    end)
    assert.are.same({ 0, 0, 3, 4 }, values(array(2):write(1, { 3, 4 }):stack()))
  end)

  it("gives gradients", function()
    check_gradients(function(x)
      local ta = array(2, { clear_after_read = false }):unstack(x)
      local a, b = ta:read(0), ta:read(1)
      ta = ta:write(0, a * b):write(1, a * a)
      return tf.reduce_sum(ta:stack() * ta:read(0))
    end, { { { 1.5, 2 }, { -3, 0.5 } } })
  end)

  it("gives the tensor that it was made of a dense gradient", function()
    local function read(x)
      local ta = array(3, { clear_after_read = false }):unstack(x)
      return tf.reduce_sum(ta:read(2) * 5 + ta:gather { 0, 2 })
    end
    local open = tf.TensorSpec({ -1, -1 }, "float32")
    for _, fn in ipairs { read, tf.function_(read),
      tf.function_(read, { input_signature = { open } }) } do
      local x = tf.Variable { { 1, 2 }, { 3, 4 }, { 5, 6 } }
      local tape, y = tf.GradientTape(function() return fn(x) end)
      local grad = tape:gradient(y, x)
      assert.are.equal("tensor", raw.kind(grad))
      assert.are.same({ 1, 1, 0, 0, 11, 11 }, values(grad))
    end
  end)

  it("is made of open sizes beside sizes of 0", function()
    for _, shape in ipairs { { -1, 0 }, { 0, -1 } } do
      local n = shape[1] == 0 and 0 or 3
      local f = tf.function_(function(x)
        return array(n):unstack(x):stack()
      end, { input_signature = { tf.TensorSpec(shape, "float32") } })
      assert.are.same({ n, 3 - n }, f(tf.ones { n, 3 - n }).shape)
    end
  end)

  it("stays as it was in a trace: writes give another one", function()
    local f = tf.function_(function(x)
      local a = array(1, { element_shape = {} })
      local b = a:write(0, x)
      return a:stack(), b:stack()
    end)
    local before, after = f(tf.constant(3.0))
    assert.are.same({ 0 }, values(before))
    assert.are.same({ 3 }, values(after))
  end)
end)

describe("tf.TensorArray in loops of the graph", function()
  local function squares(n, options)
    local _, ta = tf.while_loop(function(i) return tf.less(i, n) end,
      function(i, t)
        return i + 1, t:write(i, tf.cast(i * i, "float32"))
      end, { tf.constant(0, "int32"), array(options.size, options) })
    return ta
  end

  it("is written and read where the call says", function()
    local f = tf.function_(function(n, x)
      local ta = squares(n, { size = 5 })
      local _, out = tf.while_loop(function(i) return tf.less(i, n) end,
        function(i, t)
          return i + 1, t:write(i, ta:read(i) * x)
        end, { tf.constant(0, "int32"), array(5, { element_shape = { 2 } }) })
      return ta:stack(), out:stack(), ta:size(), ta:read(n - 1)
    end)
    local all, out, n, last = f(tf.constant(3, "int32"), tf.constant { 1, -1 })
    assert.are.same({ 0, 1, 4, 0, 0 }, values(all))
    assert.are.same({ 0, 0, 1, -1, 4, -4, 0, 0, 0, 0 }, values(out))
    assert.are.same({ 5, 4 }, { n:item(), last:item() })
    all = f(tf.constant(5, "int32"), tf.constant { 1, -1 })
    assert.are.same({ 0, 1, 4, 9, 16 }, values(all))
    raises("InvalidArgument", "is outside", f, tf.constant(6, "int32"),
      tf.constant { 1, -1 })
    assert.are.equal(1, f:experimental_get_tracing_count())
  end)

  it("is a result of a traced function", function()
    local f = tf.function_(function(x)
      local _, rows = tf.while_loop(function(i) return tf.less(i, 2) end,
        function(i, t) return i + 1, t:write(i, x * x) end,
        { tf.constant(0, "int32"), array(2) })
      return { items = array(3):write(0, x):write(2, x * 2), rows = rows }, x
    end)
    for i = 1, 3 do
      local x = tf.constant { i, 1 }
      local tape, got = tf.GradientTape(function(tape)
        tape:watch(x)
        local arrays = f(x)
        return tf.stack { arrays.items:write(1, x * 5):stack()[1],
          arrays.items:read(2), arrays.rows:stack()[1] }
      end)
      assert.are.same({ 5 * i, 5, 2 * i, 2, i * i, 1 }, values(got))
      assert.are.same({ 7 + 2 * i, 9 }, values(tape:gradient(got, x)))
    end
  end)

  it("grows where it may", function()
    local f = tf.function_(function(n)
      local ta = squares(n, { size = 0, dynamic_size = true })
      local sparse = array(1, { dynamic_size = true, element_shape = {} })
        :write(n, 5.0)
      return ta:stack(), ta:size(), sparse:stack(), sparse:size()
    end)
    for n = 1, 4 do
      local all, size, sparse, more = f(tf.constant(n, "int32"))
      assert.are.same({ unpack({ 0, 1, 4, 9 }, 1, n) }, values(all))
      assert.are.same({ n, n + 1 }, { size:item(), more:item() })
      assert.are.equal(5, values(sparse)[n + 1])
    end
  end)

  it("passes through branches and loops in loops", function()
    local function fn(x)
      local ta = array(3):unstack(x)
      ta = tf.cond(tf.reduce_sum(x):greater(0), function()
        return ta:write(0, x[1] * 10)
      end, function() return ta end)
      local _, out = tf.while_loop(function(i) return tf.less(i, 2) end,
        function(i, t)
          local _, inner = tf.while_loop(function(j) return tf.less(j, 2) end,
            function(j, u) return j + 1, u:write(i * 2 + j, ta:read(i + j)) end,
            { tf.constant(0, "int32"), t })
          return i + 1, inner
        end, { tf.constant(0, "int32"), array(4) })
      return out:stack()
    end
    local f = tf.function_(fn)
    assert.are.same({ 20, 2, 2, 3 }, values(f(tf.constant { 1, 2, 3 })))
    assert.are.same({ -1, -2, -2, 0 }, values(f(tf.constant { -1, -2, 0 })))
  end)

  it("gives gradients of any order", function()
    check_gradients(function(x)
      local ta = array(3, { clear_after_read = false }):unstack(x)
      local _, out = tf.while_loop(function(i) return tf.less(i, 3) end,
        function(i, t)
          local row = ta:read(i)
          return i + 1, t:write(2 - i, row * row * x[0])
        end, { tf.constant(0, "int32"), array(3, { element_shape = {} }) })
      return tf.reduce_sum(out:stack() ^ 2)
    end, { { 1.5, 2, -0.5 } })
  end)
end)

describe("a tf.TensorArray of very many elements", function()
  it("grows to no more elements than an array may have", function()
    for _, run in ipairs { plain, tf.function_ } do
      raises("OutOfRange", "TensorArray.write: index 1000000000000 is not below "
        .. "2147483647", run(function()
        return array(0, { dynamic_size = true }):write(1e12, tf.ones { 3 })
          :size()
      end))
    end
  end)

  it("makes no list of elements that no memory holds", function()
    for _, name in ipairs { "stack", "concat" } do
      for _, run in ipairs { plain, tf.function_ } do
        raises("ResourceExhausted", "TensorArray." .. name .. ": 1000000000 "
          .. "elements of 12 bytes", run(function()
          local ta = array(1e9):write(1, tf.ones { 3 })
          return ta[name](ta)
        end))
      end
    end
  end)
end)
