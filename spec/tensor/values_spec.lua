-- Tables as values: what belongs to a list, what is an option, what is a
-- mistake. Positions are checked on lists in Lua's array part and outside it.
local tf = require "tfdist"
local expect = require "spec.support.expect"

local failure = expect.failure

local function refused(kind, words, fn, ...)
  local e = failure(fn, ...)
  assert.equal(kind, e.kind)
  for _, word in ipairs(words) do
    assert.truthy(tostring(e):find(word, 1, true),
      ("%q is not in %s"):format(word, tostring(e)))
  end
end

describe("tf.string", function()
  it("is the dtype of elements of datasets", function()
    assert.equal("string", tf.string)
    assert.equal("string", tf.as_dtype(tf.string))
    assert.is_false(tf.dtypes.is_floating(tf.string))
    assert.is_false(tf.dtypes.is_integer(tf.string))
    assert.equal("string", tf.TensorSpec({}, tf.string).dtype)
    local path = os.tmpname()
    local f = assert(io.open(path, "w"))
    f:write "one,1\n"
    f:close()
    local D = tf.data.experimental.CsvDataset
    local word, number = D(path, { tf.string, tf.int32 }):iter():get_next()
    assert.equal("one", word)
    assert.equal(1, number:item())
    os.remove(path)
  end)

  it("is refused where tensors are made", function()
    for name, fn in pairs {
      constant = function() return tf.constant(1, tf.string) end,
      cast = function() return tf.cast(1, tf.string) end,
      zeros = function() return tf.zeros({ 2 }, "String") end,
      Variable = function() return tf.Variable(1, { dtype = tf.string }) end,
      decode_raw = function() return tf.io.decode_raw("x", tf.string) end,
      Dense = function()
        return tf.keras.layers.Dense(2, { dtype = tf.string })
      end,
      size = function() return tf.dtypes.size(tf.string) end,
      convert_to_tensor = function()
        return tf.convert_to_tensor("x", tf.string)
      end,
    } do
      local ok, e = pcall(fn)
      assert.is_false(ok, name)
      assert.equal("NotImplementedError", e.kind)
      assert.equal(name .. ": there are no tensors of strings", e.message)
    end
  end)
end)

describe("all arguments by name", function()
  it("work for functions of one required argument", function()
    local x = tf.constant { value = { 1, 2 }, dtype = "int32" }
    assert.equal("int32", x.dtype)
    assert.same({ 1, 2 }, x:totable())
    assert.same({ 2, 2 }, tf.zeros { shape = { 2, 2 } }.shape)
    assert.equal(3, tf.reduce_sum { input_tensor = { 1, 2 } }:item())
    assert.equal("float64", tf.convert_to_tensor { value = 1,
      dtype = "float64" }.dtype)
  end)

  it("work for variables", function()
    local v = tf.Variable { initial_value = 1, name = "v" }
    assert.same({}, v.shape)
    assert.equal("v", v.name)
    assert.equal(2.5, tf.Variable { initial_value = 2.5 }:value():item())
  end)

  it("are checked when the required one is there", function()
    refused("ValueError", { '"nmae"', "did you mean name?" }, tf.Variable,
      { initial_value = 1, nmae = "v" })
    refused("ValueError", { '"dtpye"', "did you mean dtype?" }, tf.constant,
      { value = 1, dtpye = "int32" })
  end)
end)

describe("making a variable", function()
  it("ends in an error when its creator makes it anew", function()
    assert.is_false(pcall(tf.variable_creator_scope, function()
      return tf.Variable(1.0)
    end, function()
      return tf.Variable(2.0)
    end))
  end)

  it("refuses names with zero bytes", function()
    refused("ValueError", { "Variable: name", "zero bytes" }, tf.Variable, 1,
      { name = "a\0b" })
  end)
end)

describe("a list of values", function()
  it("has no keys but positions", function()
    local hint = "options go into a table of their own"
    refused("TypeError", { "constant", '"x"' }, tf.constant, { x = 1 })
    refused("TypeError", { '"dtype"', hint }, tf.constant,
      { 1, 2, dtype = "int32" })
    refused("TypeError", { "[2]", '"x"' }, tf.constant,
      { { 1, 2 }, { 3, 4, x = 5 } })
    refused("TypeError", { "add: the list y", '"k"' }, tf.add, { 1, 2 },
      { 1, 2, k = 3 })
    refused("TypeError", { '"axis"', hint }, tf.reduce_sum,
      { 1, 2, axis = 0 })
    refused("TypeError", { '"dtype"' }, tf.constant,
      { tf.ones { 1 }, dtype = "int32" })
    refused("TypeError", { '"axis"' }, tf.stack, { tf.ones { 1 }, axis = 0 })
    refused("TypeError", { '"dtype"' }, tf.zeros, { 2, dtype = "int32" })
    refused("TypeError", { "no position: 1.5" }, tf.constant,
      { 1, 2, [1.5] = 3 })
    refused("TypeError", { "no position: a boolean" }, tf.constant,
      { 1, [true] = 3 })
    -- Where the key lies among the elements is the engine's choice.
    for _, n in ipairs { 1, 5, 8, 33, 40, 65, 129, 1000, 1025, 4097,
      5000 } do
      local list, other, last = { [0] = 1 }, { dtype = 1 }, { dtype = 1 }
      for i = 1, n do list[i], other[i], last[n + 1 - i] = i, i, i end
      refused("TypeError", { "no position: 0" }, tf.constant, list)
      refused("TypeError", { "no position: 0" }, tf.constant, { list })
      refused("TypeError", { 'has the key "dtype"' }, tf.constant, other)
      refused("TypeError", { 'has the key "dtype"' }, tf.constant, last)
    end
  end)

  it("is looked through when it is long", function()
    local list = { x = 1 }
    for i = 1, 200 do
      list[i] = i
    end
    refused("TypeError", { '"x"' }, tf.constant, list)
    list = {}
    for i = 1, 5000 do
      list[i] = i
    end
    assert.equal(5000, tf.constant(list):numel())
    list.x = 1
    refused("TypeError", { '"x"' }, tf.constant, list)
  end)

  it("has no holes, wherever the engine ends it", function()
    refused("TypeError", { "element [2] of value is nil" }, tf.constant,
      { 1, nil, 3 })
    refused("TypeError", { "element [1] of value is nil" }, tf.constant,
      { nil, 1 })
    refused("TypeError", { "element [2] of value is nil" }, tf.constant,
      { { 1, 2 }, nil, { 3, 4 } })
    refused("TypeError", { "element [2][1] of value is nil" }, tf.constant,
      { { 1, 2 }, { nil, 4 } })
    refused("TypeError", { "[3]", "got nil" }, tf.constant, { 1, 2, n = 3 })
    assert.same({ 1, 2 }, tf.constant({ 1, 2, n = 2 }):totable())
  end)

  it("is named by the function that got it", function()
    refused("TypeError", { "add: element [2] of y", "got a string" }, tf.add,
      { 1, 2 }, { 1, "x" })
    refused("TypeError", { "matmul: b must be a tensor", "the string" },
      tf.matmul, { { 1 } }, "x")
  end)
end)

describe("Lua numbers among indices", function()
  it("are integers, those among the updates are not", function()
    local x = tf.scatter_nd({ { 0 }, { 2 } }, { 1.5, 2.5 }, { 3 })
    assert.equal("float32", x.dtype)
    assert.same({ 1.5, 0, 2.5 }, x:totable())
    assert.equal("float32", tf.scatter_nd({ { 0 } }, { 1 }, { 3 }).dtype)
    assert.equal("float64", tf.tensor_scatter_nd_update(
      tf.zeros({ 3 }, "float64"), { { 1 } }, { 1.5 }).dtype)
  end)
end)

describe("a shape", function()
  local shape = tf.zeros({ 2, 3 }).shape

  it("prints and compares as its sizes", function()
    assert.equal("{2, 3}", tostring(shape))
    assert.equal("shape {2, 3}", "shape " .. shape)
    assert.is_true(shape == tf.ones({ 2, 3 }).shape)
    assert.is_false(shape == tf.ones({ 3, 2 }).shape)
    assert.is_false(shape == tf.ones({ 2 }).shape)
  end)

  it("is a plain list for everybody", function()
    assert.same({ 2, 3 }, shape)
    assert.equal(2, #shape)
    local sum = 0
    for _, size in ipairs(shape) do
      sum = sum + size
    end
    assert.equal(5, sum)
    assert.same({ 2, 3 }, tf.ones(shape).shape)
    assert.same({ 2, 3 }, tf.ones({ 6 }):reshape(shape).shape)
    assert.same({ 2, 3 }, tf.constant(shape):totable())
    assert.same({ 2, 3, n = 2 }, tf.nest.flatten { shape })
    assert.same({ 3 }, tf.IndexedSlices({ 1 }, { 0 }, { 3 }).shape)
  end)
end)
