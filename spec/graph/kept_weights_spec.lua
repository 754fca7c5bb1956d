--- Products with a variable that a traced function only reads: the variable is
--- kept in the layout that the product wants, and never longer than it holds.
local tf = require "tfdist"
local files = require "spec.support.files"
local raw = require "tfdist.core.raw"

local M, K, N = 64, 512, 520

-- Other devices read weights as they lie.
local function keeps(w)
  local f = io.open "/proc/cpuinfo"
  local flags = f and f:read "*a" or ""
  if f then f:close() end
  return w.device:lower():find "cpu" ~= nil and flags:find " avx2" ~= nil
    and not flags:find " avx512f"
    and os.getenv "TFDIST_FUSION" ~= "0"
    and not (os.getenv "ONEDNN_MAX_CPU_ISA" or os.getenv "DNNL_MAX_CPU_ISA")
end

local function numbers(...)
  return tf.random.stateless_normal({ ... }, { 3, select("#", ...) })
end

local function same(a, b)
  return tf.reduce_all(tf.equal(a, b)):item()
end

local function collect()
  collectgarbage()
  collectgarbage()
  tf.sync_devices()
end

-- What w's device has given out.
local function memory(w)
  collect()
  return tf.config.experimental.get_memory_info(w.device).current
end

local function product(w)
  return tf.function_(function(x) return tf.matmul(x, w) end)
end

describe("a traced product with a weight that it does not write", function()
  local x, w, f

  before_each(function()
    x, w = numbers(M, K), tf.Variable(numbers(K, N))
    f = product(w)
  end)

  -- The weight is kept, then written: the product is of what it is now.
  local function follows(write)
    local before
    for _ = 1, 3 do
      before = f(x)
      assert.is_true(same(before, tf.matmul(x, w)))
    end
    write()
    for _ = 1, 3 do
      local now = f(x)
      assert.is_true(same(now, tf.matmul(x, w)))
      assert.is_false(same(now, before))
    end
  end

  it("has eager's bits", function()
    for _, sizes in ipairs { { 48, 512, 512 }, { 47, 512, 512 },
      { 128, 520, 784 }, { 65, 513, 512 } } do
      local a, b = numbers(sizes[1], sizes[2]), numbers(sizes[2], sizes[3])
      local v = tf.Variable(b)
      local turned = tf.Variable(tf.transpose(b))
      local g = tf.function_(function(y)
        return tf.matmul(y, v), tf.matmul(y, turned, { transpose_b = true }),
          tf.matmul(tf.reshape(y, { 1, sizes[1], sizes[2] }), v)
      end)
      local want, other = tf.matmul(a, b), tf.matmul(a, turned,
        { transpose_b = true })
      for _ = 1, 3 do
        local y, z, batch = g(a)
        assert.is_true(same(y, want))
        assert.is_true(same(z, other))
        assert.is_true(same(batch[0], want))
      end
    end
  end)

  it("follows assignments", function()
    follows(function() w:assign(numbers(K, N) * 2) end)
    follows(function() w:assign_add(tf.ones { K, N }) end)
    follows(function() w:assign_sub(tf.ones { K, N }) end)
    local held = w:read_value() -- so that the next one takes other memory
    follows(function() w:assign_add(tf.ones { K, N }) end)
    follows(function() w:assign(held) end)
    follows(function() w:scatter_update(tf.IndexedSlices(tf.ones { 1, N },
      tf.constant({ 3 }, "int32"))) end)
    follows(function() w:scatter_nd_add({ { 5, 7 } }, { 1.0 }) end)
  end)

  it("follows other programs, and what fails in them", function()
    local write = tf.function_(function(y) w:assign_add(y) end)
    follows(function() write(tf.ones { K, N }) end)
    local put = tf.function_(function(i)
      w:scatter_nd_update(tf.stack { i }, tf.ones { 1, N })
    end)
    follows(function() put(tf.constant({ 9 }, "int32")) end)
    follows(function()
      local ok = pcall(function()
        w:assign_add(tf.ones { K, N })
        put(tf.constant({ K }, "int32"))
        tf.sync_devices()
      end)
      assert.is_false(ok)
      w:assign_add(tf.ones { K, N })
    end)
    pcall(function()
      put(tf.constant({ -1 }, "int32"))
      tf.sync_devices()
    end)
    assert.is_true(same(f(x), tf.matmul(x, w)))
  end)

  it("follows optimizers and checkpoints", function()
    local optimizer = tf.keras.optimizers.SGD(0.5)
    local function step()
      local tape, loss = tf.GradientTape(function()
        return tf.reduce_mean(f(x) ^ 2)
      end)
      optimizer:apply_gradients { { tape:gradient(loss, w), w } }
    end
    follows(step)
    follows(tf.function_(step))
    local place = files.place()
    finally(function()
      os.remove(place .. ".index")
      os.remove(place .. ".data-00000-of-00001")
    end)
    local path = tf.train.Checkpoint { w = w }:write(place)
    follows(function() w:assign(tf.ones { K, N }) end)
    follows(function() tf.train.Checkpoint { w = w }:read(path) end)
  end)

  it("follows the weights of a model", function()
    local model = tf.keras.Sequential {
      tf.keras.layers.Dense(N, { input_shape = { K } }) }
    model:compile { optimizer = "sgd", loss = "mse" }
    local options = { batch_size = M, verbose = 0 }
    local data = numbers(3 * M, K)
    local function check()
      assert.is_true(same(tf.constant(model:predict(data, options)[0]),
        tf.constant(model(data[{ { 0, M } }])[0])))
    end
    check()
    model:fit(data, numbers(3 * M, N), { batch_size = M, verbose = 0 })
    check()
    local weights = model:get_weights()
    weights[1] = weights[1] * 2
    model:set_weights(weights)
    check()
  end)

  it("follows each replica's", function()
    local strategy = tf.distribute.MirroredStrategy()
    local v = strategy:scope(function()
      return tf.Variable(numbers(K, N), { aggregation = "mean" })
    end)
    local g = tf.function_(function()
      return tf.matmul(x, v)
    end)
    local function check()
      local want = tf.matmul(x, v)
      for _ = 1, 3 do
        local got = strategy:experimental_local_results(strategy:run(g))
        for i = 1, #got do
          assert.is_true(same(got[i], want))
        end
      end
    end
    for _, write in ipairs {
      function() end,
      function() v:assign(numbers(K, N) * 3) end,
      function()
        strategy:run(function() v:assign_add(tf.ones { K, N }) end)
      end,
      function()
        strategy:run(tf.function_(function() v:assign_sub(x[0][0] * v) end))
      end,
    } do
      write()
      check()
    end
  end)

  it("takes memory from the second call on that finds it as it was", function()
    local bytes = keeps(w) and K * N * 4 or 0
    f(x)
    local before = memory(w)
    for _ = 1, 3 do
      w:assign_add(tf.ones { K, N })
      f(x)
    end
    assert.are.equal(before, memory(w))
    f(x)
    assert.are.equal(before + bytes, memory(w))
    w:assign_add(tf.ones { K, N })
    f(x)
    assert.are.equal(before + bytes, memory(w))
    local graphs = raw.live_handles "graph"
    f = nil -- luacheck: ignore 311
    assert.is_true(memory(w) <= before)
    assert.are.equal(graphs - 1, raw.live_handles "graph")
  end)

  it("takes none where the program writes the weight", function()
    local step = tf.function_(function(y)
      local z = tf.matmul(y, w)
      w:assign_sub(tf.ones { K, N })
      return z
    end)
    for _ = 1, 2 do step(x) end
    local before = memory(w)
    for _ = 1, 3 do
      local want = tf.matmul(x, w)
      assert.is_true(same(step(x), want))
    end
    assert.are.equal(before, memory(w))
  end)
end)
