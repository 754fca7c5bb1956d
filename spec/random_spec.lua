--- tf.random: seeds, generators, distributions, errors. That single numbers
--- are right is the case table's business; here it is streams and statistics.
--- All seeds are fixed, so no test can fail by chance.

local leaks = require "spec.support.leaks"
local tf = require "tfdist"
local random_seed = require "tfdist.core.random_seed"

local N = 8000
local unpack = table.unpack or unpack -- luacheck: ignore 113 143

local function list(t) return t:reshape({ -1 }):totable() end

local function same(a, b) return table.concat(list(a), " ")
  == table.concat(list(b), " ") end

local function moments(values)
  local n, mean, square, cube, fourth = #values, 0, 0, 0, 0
  for _, x in ipairs(values) do mean = mean + x / n end
  for _, x in ipairs(values) do
    local d = x - mean
    square, cube = square + d * d / n, cube + d ^ 3 / n
    fourth = fourth + d ^ 4 / n
  end
  return mean, square, cube / square ^ 1.5, fourth / square ^ 2
end

--- Kolmogorov and Smirnov: sqrt(n) times the largest distance between the
--- sample's and the wanted distribution; above 1.95 once in a thousand.
local function kolmogorov(values, cdf)
  table.sort(values)
  local n, most = #values, 0
  for i, x in ipairs(values) do
    local p = cdf(x)
    most = math.max(most, i / n - p, p - (i - 1) / n)
  end
  return most * math.sqrt(n)
end

--- Sum of (seen - expected)^2 / expected; about the number of classes.
local function chi_square(counts, expected)
  local sum = 0
  for i, e in ipairs(expected) do
    sum = sum + ((counts[i] or 0) - e) ^ 2 / e
  end
  return sum
end

--- Normal distribution (Abramowitz and Stegun 26.2.17, error below 1e-7).
local function normal_cdf(x)
  local t = 1 / (1 + 0.2316419 * math.abs(x))
  local tail = math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * t
    * (0.319381530 + t * (-0.356563782 + t * (1.781477937
    + t * (-1.821255978 + t * 1.330274429))))
  return x > 0 and 1 - tail or tail
end

local function caught(kind, pattern, fn, ...)
  local ok, e = pcall(fn, ...)
  assert.is_false(ok)
  assert.are.equal(kind, tf.errors.kind(e))
  assert.truthy(e.message:find(pattern, 1, true), e.message)
end

local DRAWS = {
  normal = function(options) return tf.random.normal({ 50 }, options) end,
  uniform = function(options) return tf.random.uniform({ 50 }, options) end,
  truncated_normal = function(options)
    return tf.random.truncated_normal({ 50 }, options)
  end,
  categorical = function(options)
    return tf.random.categorical({ { 0, 0, 0, 0, 0, 0, 0, 0 } }, 50, options)
  end,
  shuffle = function(options)
    return tf.random.shuffle(tf.range(50), options)
  end,
}

describe("the global seed", function()
  for name, draw in pairs(DRAWS) do
    it("repeats the sequence of calls of " .. name, function()
      tf.random.set_seed(42)
      local a, b = draw(), draw()
      tf.random.set_seed(42)
      assert.is_true(same(a, draw()))
      assert.is_true(same(b, draw()))
      assert.is_false(same(a, b))
    end)

    it("when different gives other numbers in " .. name, function()
      tf.random.set_seed(1)
      local a = draw()
      tf.random.set_seed(2)
      assert.is_false(same(a, draw()))
    end)

    it("repeats calls of " .. name .. " with an op seed by their own count",
      function()
        tf.random.set_seed(7)
        local a, b = draw { seed = 3 }, draw { seed = 3 }
        local other = draw { seed = 4 }
        assert.is_false(same(a, b))
        assert.is_false(same(a, other))
        tf.random.set_seed(7)
        draw()
        tf.random.normal({ 2 }, { seed = 9 })
        assert.is_true(same(a, draw { seed = 3 }))
        draw()
        assert.is_true(same(b, draw { seed = 3 }))
        tf.random.set_seed(8)
        assert.is_false(same(a, draw { seed = 3 }))
      end)
  end

  it("may be any whole number", function()
    local seen = {}
    for _, seed in ipairs { 0, 1, -1, 2 ^ 31, 2 ^ 32, 2 ^ 52, -2 ^ 40 } do
      tf.random.set_seed(seed)
      local text = table.concat(list(tf.random.uniform { 4 }), " ")
      assert.is_nil(seen[text])
      seen[text] = true
    end
  end)

  it("may have more than 64 bits, of which the lower ones count", function()
    for _, seed in ipairs { 2 ^ 63, 0xcbf29ce484222325, 2 ^ 64 - 2 ^ 11,
      -2 ^ 70, 1e300 } do
      local low = seed % 2 ^ 53
      tf.random.set_seed(low)
      local a = tf.random.uniform { 4 }
      tf.random.set_seed(seed)
      local saved = random_seed.state()
      assert.is_true(same(a, tf.random.uniform { 4 }))
      random_seed.restore(saved)
      assert.is_true(same(a, tf.random.uniform { 4 }))
      local G = tf.random.Generator
      local b = G.from_seed(low):normal { 4 }
      assert.is_true(same(b, G.from_seed(seed):normal { 4 }))
      assert.is_true(same(b, G.from_key_counter(seed, 0):normal { 4 }))
      local function shuffled(s)
        return tf.data.Dataset.range(9):shuffle(4, { seed = s }):batch(9)
          :get_single_element()
      end
      assert.is_true(same(shuffled(low), shuffled(seed)))
      local function weights(s)
        return tf.keras.initializers.GlorotUniform { seed = s } { 2, 2 }
      end
      assert.is_true(same(weights(low), weights(seed)))
      assert.same({ 4 }, tf.random.normal({ 4 }, { seed = seed }).shape)
    end
  end)

  it("must be a whole number", function()
    caught("TypeError", "seed must be a whole number", tf.random.set_seed, "x")
    caught("ValueError", "seed must be a whole number", tf.random.set_seed,
      0.5)
    caught("TypeError", "seed", tf.random.normal, { 2 }, { seed = "x" })
    caught("ValueError", "seed", tf.random.normal, { 2 }, { seed = 1.5 })
  end)

  it("when missing is different in every run", function()
    assert.are_not.equal(random_seed.entropy(), random_seed.entropy())
  end)
end)

describe("stateless functions", function()
  it("depend on their two seeds only", function()
    local a = tf.random.stateless_normal({ 10 }, { seed = { 1, 2 } })
    tf.random.set_seed(99)
    assert.is_true(same(a, tf.random.stateless_normal({ 10 }, { 1, 2 })))
    assert.is_true(same(a, tf.random.stateless_normal({ 10 },
      tf.constant({ 1, 2 }, "int64"))))
    assert.is_false(same(a, tf.random.stateless_normal({ 10 }, { 2, 1 })))
    assert.is_false(same(a, tf.random.stateless_normal({ 10 }, { 1, 3 })))
  end)

  it("give the same first numbers for every shape", function()
    local long = list(tf.random.stateless_uniform({ 1000 }, { 3, 4 }))
    local short = list(tf.random.stateless_uniform({ 2, 3 }, { 3, 4 }))
    for i, x in ipairs(short) do assert.are.equal(long[i], x) end
  end)

  it("need two whole numbers as seed", function()
    caught("TypeError", "missing argument seed", tf.random.stateless_normal,
      { 2 })
    caught("InvalidArgument", "two whole numbers, got 3",
      tf.random.stateless_normal, { 2 }, { 1, 2, 3 })
    caught("ValueError", "whole numbers", tf.random.stateless_normal, { 2 },
      { 1, 2.5 })
    caught("NotImplementedError", "threefry", tf.random.stateless_normal,
      { 2 }, { 1, 2 }, { alg = "threefry" })
  end)

  it("split and fold_in make new seeds", function()
    local seeds = tf.random.split({ 1, 2 }, 3)
    assert.are.same({ 3, 2 }, { seeds.shape[1], seeds.shape[2] })
    assert.is_true(same(seeds, tf.random.split({ 1, 2 }, 3)))
    local a = tf.random.fold_in({ 1, 2 }, 0)
    local b = tf.random.fold_in({ 1, 2 }, 1)
    assert.is_false(same(a, b))
    assert.is_false(same(tf.random.stateless_normal({ 4 }, a),
      tf.random.stateless_normal({ 4 }, b)))
  end)
end)

describe("a generator", function()
  it("made from a seed draws the same numbers again", function()
    local g = tf.random.Generator.from_seed(5)
    local h = tf.random.Generator.from_seed(5)
    local a, b = g:normal { 20 }, g:normal { 20 }
    assert.is_false(same(a, b))
    tf.random.set_seed(1)
    assert.is_true(same(a, h:normal { 20 }))
    assert.is_true(same(b, h:normal { 20 }))
    local other = tf.random.Generator.from_seed(6)
    assert.is_false(same(a, other:normal { 20 }))
  end)

  it("made without a seed differs from others", function()
    local g = tf.random.Generator.from_non_deterministic_state()
    local h = tf.random.Generator.from_non_deterministic_state()
    assert.is_false(same(g:uniform { 20 }, h:uniform { 20 }))
  end)

  it("goes on from a state, skips and starts again", function()
    local g = tf.random.Generator.from_seed(5)
    local first = g:uniform { 5 }
    local state = g.state
    local second = g:uniform { 5 }
    assert.is_true(same(second,
      tf.random.Generator.from_state(state):uniform { 5 }))
    g:reset(state)
    assert.is_true(same(second, g:uniform { 5 }))
    g:reset_from_seed(5)
    assert.is_true(same(first, g:uniform { 5 }))
    g:reset_from_seed(5)
    g:skip(1)
    assert.is_true(same(second, g:uniform { 5 }))
    g:reset_from_key_counter(g.key, 0)
    assert.is_true(same(first, g:uniform { 5 }))
    local h = tf.random.Generator.from_key_counter(g.key, 1)
    assert.is_true(same(second, h:uniform { 5 }))
    assert.are.equal("philox", g.algorithm)
  end)

  it("splits into independent ones", function()
    local g = tf.random.Generator.from_seed(5)
    local parts = g:split(3)
    assert.are.equal(3, #parts)
    local a, b = parts[1]:normal { 20 }, parts[2]:normal { 20 }
    assert.is_false(same(a, b))
    assert.is_false(same(a, g:normal { 20 }))
    local again = tf.random.Generator.from_seed(5):split(3)
    assert.is_true(same(a, again[1]:normal { 20 }))
  end)

  it("has every draw", function()
    local g = tf.random.Generator.from_seed(1)
    assert.are.equal("float64", g:normal({ 2 }, 3, 2, "float64").dtype)
    assert.are.equal("float16",
      g:truncated_normal({ 2 }, { dtype = "float16" }).dtype)
    for _, x in ipairs(list(g:uniform({ 50 }, 2, 5, "int32"))) do
      assert.is_true(x >= 2 and x < 5)
    end
    assert.are.equal("int64", g:uniform_full_int({ 2 }).dtype)
    assert.are.same({ 2, 4 }, { g:make_seeds(4).shape[1],
      g:make_seeds(4).shape[2] })
  end)

  it("can be the global one", function()
    local before = tf.random.get_global_generator()
    local g = tf.random.Generator.from_seed(5)
    tf.random.set_global_generator(g)
    assert.are.equal(g, tf.random.get_global_generator())
    tf.random.set_global_generator(before)
    caught("TypeError", "must be a tf.random.Generator",
      tf.random.set_global_generator, 5)
  end)

  it("is called with a colon", function()
    local g = tf.random.Generator.from_seed(5)
    caught("TypeError", "the generator itself", g.normal, { 2 })
  end)

  it("refuses what is no state", function()
    caught("InvalidArgument", "3 numbers, got 2",
      tf.random.Generator.from_state, { 1, 2 })
    caught("ValueError", "alg", tf.random.Generator.from_seed, 1, "dice")
  end)
end)

describe("uniform numbers", function()
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
    it("are spread evenly in " .. dtype, function()
      local values = list(tf.random.stateless_uniform({ N },
        { seed = { 11, 1 }, dtype = dtype }))
      local mean, variance = moments(values)
      assert.is_true(math.abs(mean - 0.5) < 0.01)
      assert.is_true(math.abs(variance - 1 / 12) < 0.004)
      local tolerance = dtype == "bfloat16" and 3 or 1.95 -- 256 values only
      assert.is_true(kolmogorov(values, function(x) return x end) < tolerance)
      assert.is_true(values[1] >= 0 and values[N] < 1)
    end)

    it("never reach maxval in " .. dtype, function()
      for _, range in ipairs { { 0, 1 }, { 1, 1.01 }, { -3, 7 }, { -1, 0 } } do
        local t = tf.random.stateless_uniform({ N }, { 3, 1 }, range[1],
          range[2], dtype)
        local low = tf.constant(range[1], dtype):item()
        local high = tf.constant(range[2], dtype):item()
        assert.is_true(tf.reduce_min(t):item() >= low)
        assert.is_true(tf.reduce_max(t):item() < high)
      end
    end)
  end

  it("of an empty range are its lower end", function()
    assert.are.same({ 2, 2 }, list(tf.random.uniform({ 2 }, 2, 2)))
  end)

  it("of neighbouring elements and streams do not depend on each other",
    function()
      local a = list(tf.random.stateless_uniform({ N }, { 1, 0 }))
      local b = list(tf.random.stateless_uniform({ N }, { 1, 1 }))
      local neighbours, streams = 0, 0
      for i = 1, N - 1 do
        neighbours = neighbours + (a[i] - 0.5) * (a[i + 1] - 0.5)
        streams = streams + (a[i] - 0.5) * (b[i] - 0.5)
      end
      -- standard deviation of the mean product: (1/12) / sqrt(N)
      local bound = 4 / 12 / math.sqrt(N)
      assert.is_true(math.abs(neighbours / N) < bound)
      assert.is_true(math.abs(streams / N) < bound)
    end)

  for _, dtype in ipairs { "int8", "int16", "int32", "int64", "uint8" } do
    it("are whole and equally likely in " .. dtype, function()
      local counts, expected = {}, {}
      for _, x in ipairs(list(tf.random.stateless_uniform({ N }, { 4, 4 }, 10,
        20, dtype))) do
        counts[x - 9] = (counts[x - 9] or 0) + 1
      end
      for i = 1, 10 do expected[i] = N / 10 end
      -- 9 degrees of freedom: above 27.9 once in a thousand
      assert.is_true(chi_square(counts, expected) < 27.9)
    end)
  end

  it("reach both ends of the integers", function()
    local seen = {}
    for _, x in ipairs(list(tf.random.stateless_uniform({ N }, { 4, 4 }, 0,
      256, "uint8"))) do
      seen[x] = true
    end
    for x = 0, 255 do assert.is_true(seen[x]) end
  end)
end)

describe("normal numbers", function()
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
    it("have the moments and the distribution in " .. dtype, function()
      local values = list(tf.random.stateless_normal({ N },
        { seed = { 12, 1 }, dtype = dtype }))
      local mean, variance, skew, kurtosis = moments(values)
      assert.is_true(math.abs(mean) < 0.03)
      assert.is_true(math.abs(variance - 1) < 0.04)
      assert.is_true(math.abs(skew) < 0.07)
      assert.is_true(math.abs(kurtosis - 3) < 0.14)
      assert.is_true(kolmogorov(values, normal_cdf) < 1.95)
    end)
  end

  it("can be moved and scaled", function()
    local mean, variance = moments(list(tf.random.stateless_normal({ N },
      { 1, 1 }, -4, 0.5)))
    assert.is_true(math.abs(mean + 4) < 0.02)
    assert.is_true(math.abs(variance - 0.25) < 0.01)
  end)

  it("of odd counts are complete", function()
    for _, n in ipairs { 1, 3, 255, 257, 1001 } do
      local values = list(tf.random.stateless_normal({ n }, { 5, 5 }))
      assert.are.equal(n, #values)
      assert.are_not.equal(0, values[n])
    end
  end)
end)

describe("truncated normal numbers", function()
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
    it("stay within two standard deviations in " .. dtype, function()
      local values = list(tf.random.stateless_truncated_normal({ N },
        { 2, 2 }, 1, 3, dtype))
      for _, x in ipairs(values) do assert.is_true(x >= -5 and x <= 7) end
      local mean, variance = moments(values)
      assert.is_true(math.abs(mean - 1) < 0.06)
      -- variance of the cut distribution: 1 - 4 phi(2) / erf(sqrt(2))
      assert.is_true(math.abs(variance - 9 * 0.7737413) < 0.15)
      assert.is_true(kolmogorov(values, function(x)
        return (normal_cdf((x - 1) / 3) - normal_cdf(-2)) / 0.9544997361
      end) < 1.95)
    end)
  end
end)

describe("gamma numbers", function()
  for _, alpha in ipairs { 0.3, 1, 2.5, 40 } do
    it("have the moments of alpha = " .. alpha, function()
      local values = list(tf.random.stateless_gamma({ N }, { 8, 1 }, alpha, 2))
      local mean, variance = moments(values)
      -- standard deviation of the mean: sqrt(alpha) / 2 / sqrt(N)
      local sd = math.sqrt(alpha / N) / 2
      assert.is_true(math.abs(mean - alpha / 2) < 4 * sd)
      assert.is_true(math.abs(variance / (alpha / 4) - 1) < 0.2)
      for _, x in ipairs(values) do assert.is_true(x > 0) end
    end)
  end

  it("of alpha = 1 are exponential", function()
    local values = list(tf.random.stateless_gamma({ N }, { 8, 2 }, 1))
    assert.is_true(kolmogorov(values, function(x)
      return 1 - math.exp(-x)
    end) < 1.95)
  end)

  it("add the shape of the parameters to theirs", function()
    local t = tf.random.gamma({ 7 }, { { 1 }, { 2 } }, { 1, 2, 3 })
    assert.are.same({ 7, 2, 3 }, { unpack(t.shape) })
    caught("InvalidArgument", "does not broadcast", tf.random.stateless_gamma,
      { 4 }, { 1, 2 }, { 1, 2 })
  end)
end)

describe("poisson numbers", function()
  for _, rate in ipairs { 0.5, 4, 12, 300 } do
    it("have the moments of rate = " .. rate, function()
      local values = list(tf.random.stateless_poisson({ N }, { 8, 1 }, rate))
      local mean, variance = moments(values)
      assert.is_true(math.abs(mean - rate) < 4 * math.sqrt(rate / N))
      assert.is_true(math.abs(variance / rate - 1) < 0.1)
    end)
  end

  it("follow the distribution on both sides of the change of method",
    function()
      for _, rate in ipairs { 9.5, 10.5 } do
        local counts, expected = {}, {}
        for _, k in ipairs(list(tf.random.stateless_poisson({ N }, { 8, 3 },
          rate))) do
          local class = math.max(1, math.min(15, k - 3))
          counts[class] = (counts[class] or 0) + 1
        end
        local p = math.exp(-rate)
        for k = 0, 60 do
          local class = math.max(1, math.min(15, k - 3))
          expected[class] = (expected[class] or 0) + p * N
          p = p * rate / (k + 1)
        end
        -- 14 degrees of freedom: above 36.1 once in a thousand
        assert.is_true(chi_square(counts, expected) < 36.1)
      end
    end)

  it("add the shape of the rates to theirs", function()
    local t = tf.random.poisson({ 2 }, { 1, 0 })
    assert.are.same({ 2, 2 }, { unpack(t.shape) })
    assert.are.equal("float32", t.dtype)
    assert.are.equal(0, t[{ 0, 1 }]:item())
    caught("InvalidArgument", "bool", tf.random.poisson, { 2 }, 1,
      { dtype = "bool" })
    caught("InvalidArgument", "lam is int32", tf.random.poisson, { 2 },
      tf.constant(1, "int32"))
  end)
end)

describe("categorical draws", function()
  it("follow the probabilities of each row", function()
    local p = { { 0.5, 0.25, 0.125, 0.125 }, { 0.1, 0.2, 0.3, 0.4 } }
    local logits = {}
    for r, row in ipairs(p) do
      logits[r] = {}
      for i, x in ipairs(row) do logits[r][i] = math.log(x) + 7 * r end
    end
    local drawn = tf.random.stateless_categorical(logits, N, { 6, 6 })
    assert.are.equal("int64", drawn.dtype)
    for r, row in ipairs(drawn:totable()) do
      local counts, expected = {}, {}
      for _, class in ipairs(row) do
        counts[class + 1] = (counts[class + 1] or 0) + 1
      end
      for i, x in ipairs(p[r]) do expected[i] = x * N end
      -- 3 degrees of freedom: above 16.3 once in a thousand
      assert.is_true(chi_square(counts, expected) < 16.3)
    end
  end)

  it("never give a class without weight", function()
    local none = -math.huge
    local drawn = tf.random.stateless_categorical(
      { { none, 0, none, 0 / 0 }, { 1000, none, -1000, none } }, 200, { 1, 1 })
    local rows = drawn:totable()
    for i = 1, 200 do
      assert.are.equal(1, rows[1][i])
      assert.are.equal(0, rows[2][i])
    end
  end)

  it("need a class that can be drawn", function()
    caught("InvalidArgument", "row 1 of logits has no finite value",
      function()
        list(tf.random.categorical({ { 0 }, { -math.huge } }, 3))
      end)
    caught("InvalidArgument", "rank", tf.random.categorical, { 0, 1 }, 3)
    caught("InvalidArgument", "floating-point", tf.random.categorical,
      tf.constant({ { 1 } }, "int32"), 3)
    caught("ValueError", "num_samples", tf.random.categorical, { { 0 } }, -1)
    caught("InvalidArgument", "int32 or int64", tf.random.categorical,
      { { 0 } }, 1, { dtype = "float32" })
  end)
end)

describe("a shuffle", function()
  it("keeps the rows and moves them", function()
    local x = tf.reshape(tf.range(300), { 100, 3 })
    local rows, moved = tf.random.stateless_shuffle(x, { 1, 1 }):totable(), 0
    local seen = {}
    for i, row in ipairs(rows) do
      assert.are.equal(row[1] + 1, row[2])
      assert.are.equal(row[1] + 2, row[3])
      seen[row[1] / 3 + 1] = true
      if row[1] ~= 3 * (i - 1) then moved = moved + 1 end
    end
    for i = 1, 100 do assert.is_true(seen[i]) end
    assert.is_true(moved > 80)
  end)

  it("makes every order equally often", function()
    local counts, expected, count = {}, {}, 6000
    local order = { ["123"] = 1, ["132"] = 2, ["213"] = 3, ["231"] = 4,
                    ["312"] = 5, ["321"] = 6 }
    local x = tf.constant({ 1, 2, 3 }, "int32")
    for i = 1, count do
      local t = tf.random.stateless_shuffle(x, { 3, i }):totable()
      local k = order[("%d%d%d"):format(t[1], t[2], t[3])]
      counts[k] = (counts[k] or 0) + 1
    end
    for i = 1, 6 do expected[i] = count / 6 end
    -- 5 degrees of freedom: above 20.5 once in a thousand
    assert.is_true(chi_square(counts, expected) < 20.5)
  end)

  it("leaves scalars and empty tensors alone", function()
    assert.are.equal(5, tf.random.shuffle(5):item())
    assert.are.same({}, list(tf.random.shuffle(tf.zeros { 0, 3 })))
  end)
end)

describe("random functions", function()
  leaks(before_each, after_each)

  it("check dtype, shape and bounds", function()
    caught("InvalidArgument", "floating-point", tf.random.normal, { 2 },
      { dtype = "int32" })
    caught("InvalidArgument", "floating-point", tf.random.uniform, { 2 },
      { dtype = "bool" })
    caught("TypeError", "no dtype", tf.random.uniform, { 2 },
      { dtype = "float" })
    caught("InvalidArgument", "sizes are 0 or more", tf.random.normal,
      { 2, -1 })
    caught("InvalidArgument", "at most 8 axes", tf.random.normal,
      { 1, 1, 1, 1, 1, 1, 1, 1, 1 })
    caught("ValueError", "whole numbers", tf.random.normal, { 1.5 })
    caught("TypeError", "missing argument shape", tf.random.normal)
    caught("ValueError", "maxval must be given", tf.random.uniform, { 2 },
      { dtype = "int32" })
    caught("InvalidArgument", "must be larger", tf.random.uniform, { 2 }, 3, 3,
      "int32")
    caught("InvalidArgument", "do not fit int8", tf.random.uniform, { 2 }, 0,
      1000, "int8")
    caught("InvalidArgument", "minval must not be larger", tf.random.uniform,
      { 2 }, 3, 2)
    caught("InvalidArgument", "finite", tf.random.uniform, { 2 }, 0,
      math.huge)
    caught("ValueError", "unknown option", tf.random.uniform, { 2 },
      { max = 3 })
  end)

  it("take shapes of any kind", function()
    assert.are.equal(0, #tf.random.normal({}).shape)
    assert.are.same({ 3 }, { tf.random.normal(3).shape[1] })
    assert.are.same({ 2, 3 },
      { unpack(tf.random.normal(tf.constant({ 2, 3 }, "int32")).shape) })
  end)

  it("have gradients for their moments only", function()
    local mean, stddev = tf.constant { 1, 2 }, tf.constant(3)
    local z, x
    local tape = tf.GradientTape(function(t)
      t:watch(mean)
      t:watch(stddev)
      x = tf.random.stateless_normal({ 2 }, { 1, 2 }, mean, stddev)
      z = tf.reduce_sum(x)
    end)
    local dmean, dstddev = tape:gradient(z, { mean, stddev })
    if type(dmean) == "table" then dmean, dstddev = dmean[1], dmean[2] end
    assert.are.same({ 1, 1 }, list(dmean))
    local raw = list(tf.random.stateless_normal({ 2 }, { 1, 2 }))
    assert.is_true(math.abs(dstddev:item() - raw[1] - raw[2]) < 1e-5)

    local logits = tf.constant { { 1, 2 } }
    local drawn
    tape = tf.GradientTape(function(t)
      t:watch(logits)
      drawn = tf.random.shuffle(logits)
    end)
    assert.is_nil((tape:gradient(drawn, logits)))
  end)

  it("say that a graph takes seeds as numbers", function()
    local S = tf.random
    local seed = tf.constant({ 1, 2 }, "int32")
    local kept = tf.Variable({ 1, 2 }, { dtype = "int32" })
    for name, fn in pairs {
      ["stateless_normal: seed"] =
        function(s) return S.stateless_normal({ 2 }, s) end,
      ["stateless_uniform: seed"] =
        function(s) return S.stateless_uniform({ 2 }, { 1, s[0] }) end,
      ["stateless_categorical: seed"] =
        function(s) return S.stateless_categorical({ { 0, 1 } }, 3, s) end,
      ["stateless_gamma: seed"] =
        function() return S.stateless_gamma({ 2 }, kept, 1.0) end,
      ["split: seed"] = function(s) return S.split(s) end,
      ["fold_in: seed"] = function(s) return S.fold_in(s, 1) end,
      ["fold_in: data"] = function(s) return S.fold_in({ 1, 2 }, s[0]) end,
    } do
      local ok, e = pcall(tf.function_(fn), seed)
      assert.is_false(ok)
      assert.are.equal("NotImplementedError", e.kind)
      assert.is_truthy(e.message:find("random." .. name .. " has values (int32 ",
        1, true), e.message)
    end
    local known = tf.function_(function()
      return S.stateless_normal({ 2 }, seed), S.stateless_normal({ 2 },
        S.fold_in(seed, 3)), S.stateless_normal({ 2 }, S.split({ 1, 2 })[0])
    end)
    local a, b, c = known()
    assert.are.same(list(S.stateless_normal({ 2 }, { 1, 2 })), list(a))
    assert.are.same(list(S.stateless_normal({ 2 }, S.fold_in(seed, 3))), list(b))
    assert.are.same(list(S.stateless_normal({ 2 }, S.split({ 1, 2 })[0])),
      list(c))
  end)

  it("refuse bounds of whole numbers that only a call knows by name", function()
    local R, kept = tf.random, tf.Variable(5, { dtype = "int32" })
    local generator = R.Generator.from_seed(1)
    for name, fn in pairs {
      ["random.uniform: maxval"] = function(n)
        return R.uniform({ 3 }, 0, n, "int32") end,
      ["random.uniform: minval"] = function(n)
        return R.uniform({ 3 }, n, 9, "int64") end,
      ["random.stateless_uniform: maxval"] = function()
        return R.stateless_uniform({ 3 }, { 1, 2 }, 0, kept, "int32") end,
      ["Generator.uniform: maxval"] = function(n)
        return generator:uniform({ 3 }, 0, n, "int32") end,
    } do
      local ok, e = pcall(tf.function_(fn), tf.constant(4, "int32"))
      assert.is_false(ok)
      assert.are.equal("NotImplementedError", e.kind)
      assert.is_truthy(e.message:find(name .. " has values (int32 {})", 1, true),
        e.message)
    end
    local known = tf.constant(1, "int32")
    assert.are.same({ 0, 0 }, tf.function_(function()
      return R.uniform({ 2 }, 0, known, "int32") end)():totable())
  end)

  it("release what they make", function()
    for _ = 1, 100 do
      tf.random.normal { 100 }
      tf.random.shuffle(tf.random.uniform { 10, 2 })
      tf.random.categorical({ { 0, 1 } }, 3)
    end
  end)
end)
