-- Traced functions on stand-ins of GPUs: launches that come again are captured
-- and started as one graph, with the same bits and errors.
local standins = require "spec.support.standins"

-- Training steps of a small network on batches of SIZES, the label of step BAD
-- out of range, and step SKIP left out; READ: the loss of each step is read.
-- Then all bytes, and GRAPH: what runs.
local STEPS = [[
local tf = require "tfdist"
local raw = require "tfdist.core.raw"
local steps, sizes, bad, skip = STEPS, { SIZES }, BAD, SKIP
tf.device("/DEVICE:0", function()
  local w1 = tf.Variable(tf.random.stateless_normal({ 8, 16 }, { 1, 2 }))
  local w2 = tf.Variable(tf.random.stateless_normal({ 16, 5 }, { 1, 3 }))
  local step = tf.function_(function(x, y, rate)
    local tape, loss = tf.GradientTape(function()
      local h = tf.tanh(tf.matmul(x, w1))
      local losses = tf.nn.sparse_softmax_cross_entropy_with_logits {
        labels = y, logits = tf.matmul(h, w2) }
      return tf.reduce_mean(losses)
    end)
    local g = tape:gradient(loss, { w1, w2 })
    w1:assign_sub(g[1] * rate)
    w2:assign_sub(g[2] * rate)
    return loss, (tf.math.top_k(tf.matmul(x, w1), 3))
  end)
  local rate, kept, last = tf.constant(0.125), {}, nil
  for i = 1, steps do
    local n = sizes[i % #sizes + 1]
    local labels = {}
    for k = 1, n do labels[k] = i == bad and k == 3 and 9 or (k * i) % 5 end
    local x = tf.random.stateless_normal({ n, 8 }, { i, 4 })
    local y = tf.constant(labels, { dtype = "int32" })
    local ok, loss, top = true, nil, nil
    if i ~= skip then ok, loss, top = pcall(step, x, y, rate) end
    if ok and loss then
      -- All are kept: each step's lie elsewhere.
      last, kept[i] = { loss, top }, { x, y, loss, top }
      if READ then ok, loss = pcall(loss.item, loss) end
    end
    if not ok then print(i, loss.kind, loss.message, loss.where:match ":%d+$") end
  end
  for _, t in ipairs { w1:value(), w2:value(), last[1], last[2] } do
    print((raw.tensor_bytes(t):gsub(".", function(c)
      return ("%02x"):format(c:byte())
    end)))
  end
  if GRAPH then
    local f = step:get_concrete_function(tf.ones { sizes[1], 8 },
      tf.zeros({ sizes[1] }, "int32"), rate)
    print(f:graph "lowered":match "(%d+ of them are started at once.-)\n")
  end
end)
]]

local function script(o)
  local values = { STEPS = tostring(o.steps), SIZES = o.sizes or "6",
    BAD = tostring(o.bad), SKIP = tostring(o.skip), DEVICE = o.device or "gpu",
    READ = tostring(o.read ~= false), GRAPH = tostring(o.graph or false) }
  return (STEPS:gsub("%f[%u]%u+%f[%U]", values))
end

local function counts(path)
  local f = assert(io.open(path))
  local text = f:read "*a"
  f:close()
  os.remove(path)
  local launches, graphs, captures, captured = text:match
    "(%d+) launches, (%d+) graphs, (%d+) captures of (%d+)"
  return { launches = tonumber(launches), graphs = tonumber(graphs),
    captures = tonumber(captures), captured = tonumber(captured) }
end

--- What the script prints, and the driver's counts.
local function run(o, more)
  local path = os.tmpname()
  local r = standins.run(script(o), "TFD_STANDIN_COUNTS=" .. path .. " "
    .. (more or ""))
  assert.equal(o.code or 0, r.code, r.err)
  return r.out, counts(path), r
end

local OFF = "TFDIST_CUDA_GRAPHS=0"

describe("traced steps on stand-ins of GPUs #once", function()
  if not standins.exists(standins.FOLDER .. "/libcudnn.so.9")
    or not standins.exists(standins.CUDA) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  it("are started as one graph, with the same bits", function()
    local want, off = run({ steps = 12 }, OFF)
    assert.same({ 0, 0 }, { off.graphs, off.captures })
    local few
    for _, o in ipairs { { steps = 12, read = false }, { steps = 12 } } do
      local got, n = run(o)
      assert.equal(want, got)
      -- The second step makes homes, the third one captures.
      assert.equal(10, n.graphs)
      assert.is_true(n.captures >= 1 and n.captures <= 4, n.captures)
      few = n
    end
    local _, many = run { steps = 16 }
    -- Each step more: one graph; x is made, x and y are copied there, loss and
    -- top back.
    assert.equal(4, many.graphs - few.graphs)
    assert.is_true(many.launches - few.launches <= 4 * 5,
      ("%d launches for 4 steps"):format(many.launches - few.launches))
    assert.equal(few.captures, many.captures)
  end)

  it("say in the lowered graph that they are", function()
    local out = run { steps = 5, graph = true }
    assert.matches("\n%d+ of them are started at once, as 1 record\n$", out)
    out = run({ steps = 5, graph = true }, OFF)
    assert.matches("\nnil\n$", out)
  end)

  it("have a graph for each size", function()
    local o = { steps = 15, sizes = "6, 4, 9" }
    local want = run(o, OFF)
    local got, n = run(o)
    assert.equal(want, got)
    assert.is_true(n.captures >= 3, n.captures)
    assert.is_true(n.graphs >= 6, n.graphs)
  end)

  it("name the label that is out of range and the line, and go on", function()
    for _, bad in ipairs { 2, 7 } do
      local o = { steps = 9, bad = bad }
      local want = run(o, OFF)
      assert.matches("label 9 at position 2 is outside 0..4", want, 1, true)
      assert.equal(want, (run(o)))
    end
  end)

  it("leave variables as they were when a label is out of range", function()
    for _, bad in ipairs { 2, 7 } do
      local want = run { steps = 9, skip = bad }
      for _, environment in ipairs { "", OFF } do
        local got = run({ steps = 9, bad = bad }, environment)
        assert.equal(want, (got:gsub("^%d[^\n]*\n", "")))
      end
    end
  end)

  it("run one by one where a capture fails, with the same bits", function()
    local o = { steps = 6 }
    local want = run(o, OFF)
    -- At the beginning, a launch, memory, the end; the capture lives or not.
    for _, failure in ipairs { "1@1", "900@4", "2@7", "901@30" } do
      local got, n = run(o, "TFD_STANDIN_FAIL_CAPTURE=" .. failure)
      assert.equal(want, got, failure)
      assert.is_true(n.captures >= 2, failure .. ": " .. n.captures)
      assert.is_true(n.graphs >= 1, failure)
    end
  end)
end)
