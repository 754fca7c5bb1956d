--- Gradients of max pools behind relus and biases, which take shorter ways,
--- against their definition: the first of the largest gets a window's gradient,
--- a relu hands on where its result is positive, a bias gets the sum.
local tf = require "tfdist"

local N, H, W, C = 2, 5, 6, 3

-- Numbers with many ties, zeros and negative ones among them; half of the
-- sums with a bias of 0.5 are 0.5 and more.
local seed = require "spec.support.seed"
local state = seed
local function draw(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return math.floor(state / 65536) % n
end

local function image()
  local x = {}
  for i = 1, N * H * W * C do x[i] = (draw(7) - 3) / 2 end
  return x
end

local function at(n, h, w, c, height, width)
  return ((n * height + h) * width + w) * C + c + 1
end

-- What pooling by k x k windows with a stride gives, and which element each
-- maximum is; VALID.
local function pool(x, k, stride)
  local y, from = {}, {}
  local height = math.floor((H - k) / stride) + 1
  local width = math.floor((W - k) / stride) + 1
  for n = 0, N - 1 do
    for h = 0, height - 1 do
      for w = 0, width - 1 do
        for c = 0, C - 1 do
          local best
          for i = 0, k - 1 do
            for j = 0, k - 1 do
              local e = at(n, h * stride + i, w * stride + j, c, H, W)
              if best == nil or x[e] > x[best] then best = e end
            end
          end
          local to = at(n, h, w, c, height, width)
          y[to], from[to] = x[best], best
        end
      end
    end
  end
  return y, from, { N, height, width, C }
end

-- The gradient of the sum of a pool's results weighted by 1, 2, 3...
local function routed(from)
  local d = {}
  for i = 1, N * H * W * C do d[i] = 0 end
  for to, e in ipairs(from) do d[e] = d[e] + to end
  return d
end

local function sums(d)
  local b = { 0, 0, 0 }
  for i, x in ipairs(d) do
    local c = (i - 1) % C + 1
    b[c] = b[c] + x
  end
  return b
end

local function gated(d, y)
  local out = {}
  for i, x in ipairs(d) do out[i] = y[i] > 0 and x or 0 end
  return out
end

local function each(x, fn)
  local y = {}
  for i, v in ipairs(x) do y[i] = fn(v, (i - 1) % C + 1) end
  return y
end

local function relu(x) return each(x, function(v) return math.max(v, 0) end) end

local BIAS = { 0.5, -0.5, 0 }
local function biased(x)
  return each(x, function(v, c) return v + BIAS[c] end)
end

local function weights(dims)
  return tf.reshape(tf.range(1, dims[1] * dims[2] * dims[3] * dims[4] + 1, 1,
    "float32"), dims)
end

-- Gradients of fn(x, bias), taken as they are and in a trace.
local function gradients(fn, x, dims)
  local a = tf.reshape(tf.constant(x), { N, H, W, C })
  local b = tf.constant(BIAS)
  local function take(p, q)
    local tape, loss = tf.GradientTape(function(t)
      t:watch { p, q }
      local y, more = fn(p, q)
      return tf.reduce_sum(y * weights(dims)) + (more or 0)
    end)
    return tape:gradient(loss, { p, q }, nil, "zero")
  end
  local results = {}
  for i, way in ipairs { take, tf.function_(take) } do
    local g = way(a, b)
    results[i] = { g[1], g[2] }
  end
  return results
end

local function check(results, dx, db)
  for _, g in ipairs(results) do
    assert.same(dx, tf.reshape(g[1], { -1 }):totable(), "seed " .. seed)
    assert.same(db, g[2]:totable(), "seed " .. seed)
  end
end

local add = tf.nn.bias_add

describe("the gradient of a max pool", function()
  for _, window in ipairs { { 2, 2 }, { 3, 2 }, { 2, 1 }, { 1, 1 } } do
    local k, stride = window[1], window[2]
    local function max_pool(x)
      return tf.nn.max_pool2d(x, k, stride, "VALID")
    end
    local function name(of)
      return ("behind %s, windows of %d, stride %d"):format(of, k, stride)
    end

    it(name "a relu", function()
      local x = image()
      local y = relu(x)
      local _, from, dims = pool(y, k, stride)
      check(gradients(function(p) return max_pool(tf.nn.relu(p)) end, x, dims),
        gated(routed(from), y), { 0, 0, 0 })
    end)

    it(name "bias and relu", function()
      local x = image()
      local y = relu(biased(x))
      local _, from, dims = pool(y, k, stride)
      local d = gated(routed(from), y)
      check(gradients(function(p, b)
        return max_pool(tf.nn.relu(add(p, b)))
      end, x, dims), d, sums(d))
      check(gradients(function(p, b)
        return max_pool(tf.raw_ops.bias_add_relu(p, b))
      end, x, dims), d, sums(d))
    end)

    it(name "a relu that others read", function()
      local x = image()
      local y = relu(biased(x))
      local _, from, dims = pool(y, k, stride)
      local d = routed(from)
      for i = 1, #d do d[i] = d[i] + 3 end
      d = gated(d, y)
      check(gradients(function(p, b)
        local r = tf.nn.relu(add(p, b))
        return max_pool(r), tf.reduce_sum(r) * 3
      end, x, dims), d, sums(d))
    end)

    it(name "two biases and relus", function()
      local x = image()
      local inner = relu(biased(x))
      local y = relu(biased(inner))
      local _, from, dims = pool(y, k, stride)
      local d = gated(routed(from), y)
      local below = gated(d, inner)
      local db = sums(d)
      for c, s in ipairs(sums(below)) do db[c] = db[c] + s end
      check(gradients(function(p, b)
        return max_pool(tf.nn.relu(add(tf.nn.relu(add(p, b)), b)))
      end, x, dims), below, db)
      check(gradients(function(p, b)
        return max_pool(tf.raw_ops.bias_add_relu(tf.raw_ops.bias_add_relu(p, b),
          b))
      end, x, dims), below, db)
      -- The outer relu hands on what the inner one's gate must still stop.
      local z = relu(inner)
      local _, of, size = pool(z, k, stride)
      local e = gated(routed(of), inner)
      check(gradients(function(p, b)
        return max_pool(tf.nn.relu(tf.raw_ops.bias_add_relu(p, b)))
      end, x, size), e, sums(e))
    end)
  end

  it("is whole for a relu's result itself", function()
    local x = image()
    local y = relu(x)
    local _, from, dims = pool(y, 2, 2)
    local p = tf.reshape(tf.constant(x), { N, H, W, C })
    local r
    local tape, loss = tf.GradientTape(function(t)
      t:watch(p)
      r = tf.nn.relu(p)
      return tf.reduce_sum(tf.nn.max_pool2d(r, 2, 2, "VALID") * weights(dims))
    end)
    local g = tape:gradient(loss, { r, p })
    local d = routed(from)
    assert.same(d, tf.reshape(g[1], { -1 }):totable())
    assert.same(gated(d, y), tf.reshape(g[2], { -1 }):totable())
  end)

  it("of channels first has sums along the channels", function()
    -- The bias is added along the last axis, which pooling makes shorter.
    local x = tf.constant { { { { 1, 4, 3, 2 }, { 2, 1, 1, 5 } } } }
    local b = tf.constant { 0, 0, 0, 0 }
    local tape, loss = tf.GradientTape(function(t)
      t:watch(b)
      local y = tf.nn.relu(add(x, b))
      return tf.reduce_sum(tf.nn.max_pool2d(y, { 1, 2 }, { 1, 1 }, "SAME",
        "NCHW") * tf.constant { { { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } } } })
    end)
    -- Maxima: 4 4 3 2 at 1 1 2 3, and 2 1 5 5 at 0 1 3 3.
    assert.same({ 5, 1 + 2 + 6, 3, 4 + 7 + 8 }, tape:gradient(loss, b):totable())
  end)

  it("has sums along other axes than a pool's channels", function()
    local x = tf.constant { { { { 1 }, { 4 }, { 3 } }, { { 2 }, { 1 }, { 5 } } } }
    local b = tf.constant { 0, 0 }
    local tape, loss = tf.GradientTape(function(t)
      t:watch(b)
      local y = tf.nn.relu(add(x, b, "NCHW"))
      return tf.reduce_sum(tf.nn.max_pool2d(y, { 1, 2 }, 1, "VALID"))
    end)
    assert.same({ 2, 2 }, tape:gradient(loss, b):totable())
    tape, loss = tf.GradientTape(function(t)
      t:watch(b)
      local y = tf.nn.relu(add(x, b, "NCHW"))
      return tf.reduce_sum(tf.nn.max_pool2d(y, { 2, 1 }, 1, "SAME")
        * tf.constant { { { { 1 }, { 2 }, { 3 } }, { { 4 }, { 5 }, { 6 } } } })
    end)
    -- Maxima: 2 4 5 and 2 1 5; the second row gives 1 and 4, 5, 3 and 6.
    assert.same({ 2, 1 + 3 + 4 + 5 + 6 }, tape:gradient(loss, b):totable())
  end)

  it("of a gradient is that of the plain way", function()
    local x = tf.constant { { { { 1 }, { 2 } }, { { -1 }, { 3 } } } }
    local b = tf.constant { 1 }
    local outer, first
    outer = tf.GradientTape(function(t)
      t:watch { x, b }
      local inner, loss = tf.GradientTape(function(u)
        u:watch { x, b }
        local y = tf.nn.max_pool2d(tf.nn.relu(add(x, b)), 2, 2, "VALID")
        return tf.reduce_sum(y * y * y)
      end)
      local g = inner:gradient(loss, { x, b })
      first = tf.reduce_sum(g[1]) + 2 * tf.reduce_sum(g[2])
    end)
    assert.equal(3 * 3 * 16, first:item()) -- 3 y^2 with y = 4, once and twice
    local g = outer:gradient(first, { x, b })
    assert.same({ 0, 0, 0, 3 * 6 * 4 }, tf.reshape(g[1], { -1 }):totable())
    assert.same({ 3 * 6 * 4 }, g[2]:totable())
  end)

  it("is followed from a gradient to those made of it", function()
    local x = tf.constant { { { { 1 }, { 2 } }, { { 4 }, { 3 } } } }
    local b = tf.constant { 1 }
    local dz, db
    local outer = tf.GradientTape(function(t)
      t:watch(b)
      local z
      local inner, loss = tf.GradientTape(function(u)
        u:watch(b)
        z = add(x, b)
        return tf.reduce_sum(tf.nn.max_pool2d(tf.nn.relu(z), 2, 2, "VALID"))
      end)
      local g = inner:gradient(loss, { z, b })
      dz, db = g[1], g[2]
    end)
    local g = outer:gradient(db, dz)
    assert.same({ 1, 1, 1, 1 }, tf.reshape(g, { -1 }):totable())
  end)

  it("hands on nothing where the maximum is NaN", function()
    local nan = 0 / 0
    local x = tf.constant { { { { nan }, { 2 } }, { { -1 }, { 3 } } } }
    local b = tf.constant { 0 }
    local tape, loss = tf.GradientTape(function(t)
      t:watch { x, b }
      return tf.reduce_sum(tf.nn.max_pool2d(tf.nn.relu(add(x, b)), 2, 2,
        "VALID"))
    end)
    local g = tape:gradient(loss, { x, b })
    local total = 0
    for _, v in ipairs(tf.reshape(g[1], { -1 }):totable()) do total = total + v end
    assert.equal(total, g[2]:item())
  end)
end)
