--- Shapes, sizes and structures that fit nothing, and what the errors say.

local refused = require "spec.support.refused"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

local a_tensor = tf.zeros { 2, 3 }

-- Shapes and dtypes ----------------------------------------------------------

local function z(dims, dtype) return tf.zeros(dims, { dtype = dtype }) end

-- { what, kind of error, words of the message ..., call }
local MISFITS = {
  { "add", "InvalidArgument", "{2, 3}", "{2, 4}", function()
    local x = tf.add(z { 2, 3 }, z { 2, 4 })
    return x
  end },
  { "add", "InvalidArgument", "float32", "int32", "tf.cast", function()
    local x = z { 2 } + z({ 2 }, "int32")
    return x
  end },
  { "sqrt", "InvalidArgument", "int32", "floating-point", function()
    local x = tf.sqrt(z({ 2 }, "int32"))
    return x
  end },
  { "logical_and", "InvalidArgument", "float32", "bool", function()
    local x = tf.logical_and(z { 2 }, z { 2 })
    return x
  end },
  { "bitwise_and", "InvalidArgument", "float32", "integer", function()
    local x = tf.bitwise.bitwise_and(z { 2 }, z { 2 })
    return x
  end },
  { "fused_batch_norm", "InvalidArgument", "float32", "float16", function()
    return (tf.raw_ops.fused_batch_norm(z({ 4, 3 }, "float16"), z { 3 },
      z({ 3 }, "float16"), z { 3 }, z { 3 }))
  end },
  { "layer_normalization", "InvalidArgument", "float32", "float16", function()
    return (tf.raw_ops.layer_normalization(z({ 4, 3 }, "float16"), z { 3 },
      z({ 3 }, "float16")))
  end },
  { "where", "InvalidArgument", "{3}", "{2}", function()
    local x = tf.where(z({ 3 }, "bool"), z { 2 }, z { 2 })
    return x
  end },
  { "reduce_any", "InvalidArgument", "float32", "bool", function()
    local x = tf.reduce_any(z { 2 })
    return x
  end },
  { "reduce_logsumexp", "InvalidArgument", "int32", function()
    local x = tf.reduce_logsumexp(z({ 2 }, "int32"))
    return x
  end },
  { "reshape", "InvalidArgument", "{2, 3}", "{4}", "6 elements", function()
    local x = tf.reshape(z { 2, 3 }, { 4 })
    return x
  end },
  { "reshape", "InvalidArgument", "{-1, -1}", function()
    local x = tf.reshape(z { 2, 3 }, { -1, -1 })
    return x
  end },
  { "broadcast_to", "InvalidArgument", "{2, 3}", "{2, 4}", function()
    local x = tf.broadcast_to(z { 2, 3 }, { 2, 4 })
    return x
  end },
  { "concat", "InvalidArgument", "{2, 3}", "{2, 4}", function()
    local x = tf.concat({ z { 2, 3 }, z { 2, 4 } }, 0)
    return x
  end },
  { "stack", "InvalidArgument", "{2}", "{3}", function()
    local x = tf.stack { z { 2 }, z { 3 } }
    return x
  end },
  { "transpose", "ValueError", "{0, 0}", function()
    local x = tf.transpose(z { 2, 3 }, { 0, 0 })
    return x
  end },
  { "squeeze", "InvalidArgument", "{2, 3}", function()
    local x = tf.squeeze(z { 2, 3 }, { 0 })
    return x
  end },
  { "split", "InvalidArgument", "{5}", "2", function()
    local x = tf.split(z { 5 }, 2)
    return x
  end },
  { "gather", "InvalidArgument", "float32", "int32 or int64", function()
    local x = tf.gather(z { 3 }, z { 2 })
    return x
  end },
  { "gather", "InvalidArgument", "indices[1] = 7", function()
    local x = tf.gather(z { 3 }, { 0, 7 })
    x:item(0)
    return x
  end },
  { "slice", "InvalidArgument", "{2, 3}", function()
    local x = tf.slice(z { 2, 3 }, { 0, 0 }, { 5, 1 })
    return x
  end },
  { "pad", "InvalidArgument", "{2, 3}", function()
    local x = tf.pad(z { 2, 3 }, { { 1, 1 } })
    return x
  end },
  { "tile", "InvalidArgument", "{2, 3}", function()
    local x = tf.tile(z { 2, 3 }, { 2 })
    return x
  end },
  { "eye", "InvalidArgument", "-1", function()
    local x = tf.eye(-1)
    return x
  end },
  { "matmul", "InvalidArgument", "InvalidArgument: matmul: inner sizes differ: "
    .. "a is {64, 784} and b is {100, 10} (784 against 100)", function()
    local x = tf.matmul(z { 64, 784 }, z { 100, 10 })
    return x
  end },
  { "matmul", "InvalidArgument", "rank 1 {3}", function()
    local x = tf.matmul(z { 3 }, z { 3 })
    return x
  end },
  { "matmul", "InvalidArgument", "{2} and {3} do not broadcast", function()
    local x = tf.matmul(z { 2, 3, 4 }, z { 3, 4, 5 })
    return x
  end },
  { "matrix_inverse", "InvalidArgument", "{2, 3}", function()
    local x = tf.linalg.inv(z { 2, 3 })
    return x
  end },
  { "cholesky", "InvalidArgument", "{2, 3}", function()
    local x = tf.linalg.cholesky(z { 2, 3 })
    return x
  end },
  { "matrix_solve", "InvalidArgument", "{3, 3}", "{2, 1}", function()
    local x = tf.linalg.solve(tf.eye(3), z { 2, 1 })
    return x
  end },
  { "einsum", "ValueError", "ij,jk->ik", function()
    local x = tf.einsum("ij,jk->ik", z { 2, 3 })
    return x
  end },
  { "einsum", "ValueError", "label i has size 3", function()
    local x = tf.einsum("i,i->", z { 2 }, z { 3 })
    return x
  end },
  { "conv2d", "InvalidArgument", "{2, 4, 4}", "rank", function()
    local x = tf.nn.conv2d(z { 2, 4, 4 }, z { 3, 3, 1, 1 }, 1, "SAME")
    return x
  end },
  { "conv2d", "InvalidArgument", "{1, 4, 4, 2}", "{3, 3, 3, 1}", function()
    local x = tf.nn.conv2d(z { 1, 4, 4, 2 }, z { 3, 3, 3, 1 }, 1, "SAME")
    return x
  end },
  { "conv2d", "ValueError", "strides is {0}", function()
    local x = tf.nn.conv2d(z { 1, 4, 4, 1 }, z { 3, 3, 1, 1 }, 0, "SAME")
    return x
  end },
  { "max_pool2d", "ValueError", "ksize is {0}", function()
    local x = tf.nn.max_pool2d(z { 1, 4, 4, 1 }, 0, 1, "VALID")
    return x
  end },
  { "bias_add", "InvalidArgument", "{4}", "{2, 3}", function()
    local x = tf.nn.bias_add(z { 2, 3 }, z { 4 })
    return x
  end },
  { "softmax_cross_entropy", "InvalidArgument", "{2, 3}", "{2, 4}", function()
    local x = tf.nn.softmax_cross_entropy_with_logits(z { 2, 3 }, z { 2, 4 })
    return x
  end },
  { "sparse_softmax_cross_entropy", "InvalidArgument", "label 10 at position "
    .. "37 is outside 0..9 (logits have 10 classes; labels count from 0)",
    function()
      local labels = {}
      for i = 1, 64 do labels[i] = i == 38 and 10 or i % 10 end
      local x = tf.nn.sparse_softmax_cross_entropy_with_logits(labels,
        z { 64, 10 })
      x:item(0)
      return x
    end },
  { "segment_sum", "InvalidArgument", "{2}", "{3}", function()
    local x = tf.math.unsorted_segment_sum(z { 3 },
      tf.constant({ 0, 1 }, "int32"), 2)
    return x
  end },
  { "top_k", "InvalidArgument", "5", "{3}", function()
    local x = tf.math.top_k(z { 3 }, 5)
    return x
  end },
  { "uniform", "InvalidArgument", "-1", function()
    local x = tf.random.uniform { -1 }
    return x
  end },
  { "stateless_categorical", "InvalidArgument", "{3}", function()
    local x = tf.random.stateless_categorical(z { 3 }, 2, { 1, 2 })
    return x
  end },
  { "dropout", "ValueError", "1.5", function()
    local x = tf.nn.dropout(z { 3 }, 1.5)
    return x
  end },
  { "cast", "TypeError", '"complex64"', "float32", function()
    local x = tf.cast(z { 3 }, "complex64")
    return x
  end },
  { "index", "IndexError", "5", "{3}", function()
    local x = z { 3 }[5]
    return x
  end },
  { "index", "IndexError", "-4", "axis 1", function()
    local x = z { 2, 3 }[{ 0, -4 }]
    return x
  end },
  { "index", "TypeError", "1.5", function()
    local x = z { 3 }[1.5]
    return x
  end },
  { "index", "TypeError", "true", function()
    local x = z { 3 }[true]
    return x
  end },
  { "index", "IndexError", "3 positions", "rank 2", function()
    local x = z { 2, 3 }[{ 0, 0, 0 }]
    return x
  end },
  { "assign", "ValueError", "{2}", "{3}", function()
    tf.Variable(z { 2 }):assign(z { 3 })
  end },
  { "assign_add", "InvalidArgument", "{2}", "{3}", function()
    tf.Variable(z { 2 }):assign_add(z { 3 })
  end },
  { "assign_add", "ValueError", "float32", "int32", function()
    tf.Variable(z { 2 }):assign_add(z({ 2 }, "int32"))
  end },
  { "IndexedSlices", "InvalidArgument", "{2, 3}", "{5}", function()
    local x = tf.IndexedSlices(z { 2, 3 }, { 0, 1 }, { 5 })
    return x
  end },
}

describe("tensors that do not fit", function()
  for i, case in ipairs(MISFITS) do
    it(("are an %s of %s (%d)"):format(case[2], case[1], i), function()
      local words = { case[1] }
      for w = 3, #case - 1 do words[#words + 1] = case[w] end
      refused.check(case[1], case[2], words, case[#case])
    end)
  end
end)

describe("a label that does not fit", function()
  local MESSAGE = "label 10 at position 37%s is outside 0..9 (logits have 10 "
    .. "classes; labels count from 0)"

  local function labels(wrong)
    local list = {}
    for i = 1, 64 do list[i] = wrong and i == 38 and 10 or i % 10 end
    return tf.constant(list, { dtype = "int32" })
  end

  it("is named by the loss of Keras", function()
    refused.check("loss", "InvalidArgument", { MESSAGE:format "" }, function()
      local x = tf.keras.losses.sparse_categorical_crossentropy(labels(true),
        z { 64, 10 }, { from_logits = true })
      x:item(0)
    end)
  end)

  it("is named with its replica", function()
    if replicas.available < 2 then return pending "needs two devices" end
    local strategy = replicas.mirrored(2)
    local y = strategy:experimental_distribute_values_from_function(
      function(context)
        return labels(context.replica_id_in_sync_group == 1)
      end)
    refused.check("loss", "InvalidArgument",
      { MESSAGE:format " of replica 1" }, function()
        local loss = strategy:run(function(of)
          local x = tf.nn.sparse_softmax_cross_entropy_with_logits(of,
            z { 64, 10 })
          return x
        end, { y })
        strategy:experimental_local_results(loss)[2]:item(0)
      end)
  end)
end)

describe("failures of ops", function()
  local function failure(fn)
    local ok, e = pcall(fn)
    assert.is_false(ok)
    return { e.op, e.argument or false, e.bound or false }
  end

  it("say what they are about", function()
    local x = tf.zeros { 3, 5 }
    assert.same({ "gather", "indices", 3 }, failure(function()
      tf.gather(x, tf.constant({ 0, 7 }, "int32")):item(0)
    end))
    local name = "sparse_softmax_cross_entropy"
    assert.same({ name, "labels", 5 }, failure(function()
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.constant({ 0, 1, 9 }, "int32"), x):item(0)
    end))
    assert.same({ name, "labels", false }, failure(function()
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.constant({ 0, 1 }, "int32"), x)
    end))
    assert.same({ "matmul", false, false }, failure(function()
      tf.matmul(x, x)
    end))
  end)
end)

-- Sizes ----------------------------------------------------------------------

-- Ways to ask for a tensor of a shape.
local MAKERS = {
  zeros = function(dims) return tf.zeros(dims) end,
  ones = function(dims) return tf.ones(dims) end,
  fill = function(dims) return tf.fill(dims, 1) end,
  constant = function(dims) return tf.constant(1, { shape = dims }) end,
  broadcast_to = function(dims) return tf.broadcast_to(z { 1 }, dims) end,
  uniform = function(dims) return tf.random.uniform(dims) end,
  normal = function(dims) return tf.random.normal(dims) end,
}

for _, make in pairs(MAKERS) do refused.help(make) end

describe("shapes that nothing can have", function()
  local HUGE = { 2 ^ 31, 2 ^ 31, 2 ^ 31 }
  -- Where the shape is an attribute of an op, it is too long a list.
  local RANK_9 = {
    zeros = "ValueError", ones = "ValueError", fill = "ValueError",
    broadcast_to = "ValueError",
  }

  for name, make in pairs(MAKERS) do
    it(("are refused by %s"):format(name), function()
      refused.check(name .. " huge", "InvalidArgument", { "2147483648" },
        function()
          local x = make(HUGE)
          return x
        end)
      local kind = RANK_9[name] or "InvalidArgument"
      refused.check(name .. " rank 9", kind, { "9" },
        function()
          local x = make { 1, 1, 1, 1, 1, 1, 1, 1, 1 }
          return x
        end)
      refused.check(name .. " negative", "InvalidArgument", { "-3" }, function()
        local x = make { 2, -3 }
        return x
      end)
      refused.check(name .. " fraction", "ValueError", { "1.5" }, function()
        local x = make { 1.5 }
        return x
      end)
    end)
  end

  it("are ResourceExhausted when only memory is missing", function()
    for name, make in pairs(MAKERS) do
      if name ~= "broadcast_to" then
        refused.check(name, "ResourceExhausted", { "out of memory", "wanted" },
          function()
            -- More bytes than a process has addresses: where memory is
            -- promised without limit, fewer would be had and then filled.
            local x = make { 2 ^ 47 }
            return x
          end)
      end
    end
  end)

  it("do not come out of sums of sizes", function()
    local x = tf.broadcast_to(z { 1 }, { 2 ^ 60 })
    refused.check("concat", "InvalidArgument", { "concat" }, function()
      local y = tf.concat({ x, x }, 0)
      return y
    end)
    refused.check("tile", "InvalidArgument", { "tile" }, function()
      local y = tf.tile(x, { 4 })
      return y
    end)
    refused.check("pad", "InvalidArgument", { "pad" }, function()
      local y = tf.raw_ops.pad(x, { 2 ^ 61 }, { 2 ^ 61 })
      return y
    end)
    refused.check("repeat", "InvalidArgument", { "repeat" }, function()
      local y = tf.repeat_(x, 2 ^ 40, 0)
      return y
    end)
  end)
end)

-- Structures -----------------------------------------------------------------

local function deep_table()
  local deep = a_tensor
  for _ = 1, 100000 do deep = { deep } end
  return deep
end

local function loop_table()
  local loop = { a_tensor }
  loop[2] = loop
  return loop
end

-- Everything that walks a structure of the user's.
local WALKERS = {
  constant = function(x) return tf.constant(x) end,
  convert_to_tensor = function(x) return tf.convert_to_tensor(x) end,
  Variable = function(x) return tf.Variable(x) end,
  add = function(x) return tf.add(x, 1) end,
  stack = function(x) return tf.stack(x) end,
  concat = function(x) return tf.concat(x, 0) end,
  ["nest.flatten"] = function(x) return tf.nest.flatten(x) end,
  ["nest.map_structure"] = function(x)
    return tf.nest.map_structure(function(y) return y end, x)
  end,
  ["nest.map_structure of two"] = function(x)
    return tf.nest.map_structure(function(y) return y end, x, x)
  end,
  ["nest.pack_sequence_as"] = function(x)
    return tf.nest.pack_sequence_as(x, { 1 })
  end,
  ["nest.assert_same_structure"] = function(x)
    return tf.nest.assert_same_structure(x, x)
  end,
  ["GradientTape.watch"] = function(x)
    return tf.GradientTape(function(t) t:watch(x) end)
  end,
  ["GradientTape.gradient"] = function(x)
    local t = tf.GradientTape(function() end)
    return t:gradient(a_tensor, x)
  end,
  map_fn = function(x) return tf.map_fn(function(y) return y end, x) end,
  tidy = function(x) return tf.tidy(function() return x end) end,
}

for _, walk in pairs(WALKERS) do refused.help(walk) end

describe("tables without end", function()
  for name, walk in pairs(WALKERS) do
    it(("are a ValueError of %s"):format(name), function()
      for label, x in pairs { deep = deep_table(), loop = loop_table() } do
        refused.check(name .. " " .. label, "ValueError", {}, function()
          local y = walk(x)
          return y
        end)
      end
    end)
  end

  it("are printed as far as they make sense", function()
    local lines = 0
    local function count() lines = lines + 1 end
    tf.print(deep_table(), { output_stream = count })
    tf.print(loop_table(), { output_stream = count })
    assert.equal(2, lines)
  end)
end)

describe("lists with holes", function()
  it("are refused where every element counts", function()
    refused.check("constant", "TypeError", { "[2]", "nil" }, function()
      local x = tf.constant { 1, nil, 3, n = 3 }
      return x
    end)
    refused.check("reshape", "TypeError", { "shape", "nil" }, function()
      local x = tf.reshape(a_tensor, { 2, nil, 3, n = 3 })
      return x
    end)
    local words = { "sources (leaf 2)", "nil" }
    refused.check("gradient", "TypeError", words, function()
      local t = tf.GradientTape(function() end)
      local x = t:gradient(a_tensor, { a_tensor, nil, a_tensor, n = 3 })
      return x
    end)
  end)
end)
