--- Workers that do not do the same: every one of them is told what both sides
--- called, with their script lines, and ends with status 77.
local process = require "spec.support.process"
local workers = require "spec.support.workers"

-- Line 1 of every program.
local HEAD = "local tf = require 'tfdist'; local s = tf.distribute."
  .. "MultiWorkerMirroredStrategy { communication_options = { implementation "
  .. "= '%s' } }; local w = s.extended.worker_index\n"

local READS = "local v = s:scope(function()\nreturn tf.Variable(1, { "
  .. "synchronization = 'on_read', aggregation = 'mean' })\nend)\n"
  .. "if w == 0 then\n%s\nelse\ns:reduce('SUM', tf.ones { 4 })\nend"
local READ = { "process 0 calls all_reduce mean of float32%[1%] at [^ ]+%.lua:6",
  "process 1 calls all_reduce sum of float32%[4%] at [^ ]+%.lua:8" }

-- Worker 1 takes the variables in another order, as `pairs` would give them.
-- They have one name and one shape, so that nothing else tells them apart.
local function order(given, does)
  return ("local function new()\nreturn tf.Variable({ 1, 2 }, { name = 'v', "
    .. "%s })\nend\nlocal a, b = s:scope(function() return new(), new() end)\n"
    .. "local list = w == 0 and { a, b } or { b, a }\n"):format(given) .. does
end
local ORDER = { "process 0 calls [^\n]* at [^ ]+%.lua:%d+, process 1 calls "
  .. "[^\n]* at [^ ]+%.lua:%d+; what differs is the operation, its variables" }
local ON_READ = "synchronization = 'on_read', aggregation = "
local EACH = "for _, v in ipairs(list) do\n%s\nend"
local RUN = "s:run(function()\n" .. EACH .. "\nend)"
local STEP = "local optimizer = s:scope(function() return %s end)\n"
  .. "local function step()\nlocal tape, y = tf.GradientTape(function()\n"
  .. "return tf.reduce_sum(a) + tf.reduce_sum(b * 2) end)\n"
  .. "optimizer:apply_gradients(tape:gradient(y, list), list)\nend\n%s"
local SPARSE = STEP:gsub("a%)", "tf.gather(a, 0))")
  :gsub("b %* 2%)", "tf.gather(b, 0))")
local SGD = "tf.keras.optimizers.SGD()"
local PARTS = "tf.distribute.experimental.ShardedOptimizer(" .. SGD .. ")"
local TRACED = "tf.function_(function() s:run(step) end)()"

local IN_REPLICA = "local c = tf.distribute.get_replica_context\n%s"
local SHAPES = { "process 0 calls all_reduce %a+ of float32%[%d+%][^\n]* at [^ ]+"
  .. "%.lua:%d+, process 1 calls [^\n]* at [^ ]+%.lua:%d+; what differs is [^\n]*"
  .. "its shapes" }

-- Worker 1 fails in the second of four equal calls, before it meets the other,
-- and catches that.
local function skips(call)
  return "local v = s:scope(function() return tf.Variable(tf.zeros { 4 }) end)\n"
    .. "local turn\nlocal function sum()\n"
    .. "if w == 1 and turn == 2 then error('bad batch', 0) end\n"
    .. "return tf.distribute.get_replica_context():all_reduce('SUM', v + turn)\n"
    .. "end\nfor i = 1, 4 do\nturn = i\nlocal ok, e = " .. call
    .. "\nif not ok and (w == 0 or i ~= 2) then error(e, 0) end\nend"
end
local AHEAD = { "process 1 is 1 call ahead of process 0: one ended early there, "
  .. "as by an error that was caught" }
local MODEL = "local m = s:scope(function()\nlocal m = tf.keras.Sequential {\n"
  .. "tf.keras.layers.Dense(4) }\nm:compile { loss = 'sparse_categorical_"
  .. "crossentropy' }\nreturn m\nend)\n"

local FACTOR = "local f = tf.function_(function(x)\nreturn s:run(function()\n"
  .. "local y = tf.linalg.cholesky(x)\n"
  .. "return tf.distribute.get_replica_context():all_reduce('SUM', y)\n"
  .. "end)\nend%s)\nlocal g = %s\n" .. skips("pcall(g, tf.eye(2) * (w == 1 and "
  .. "i == 2 and -1 or 1))")

local CASES = {
  { "a run that one has left", skips "pcall(s.run, s, sum)", AHEAD },
  { "a reduction that one has left", skips("pcall(s.reduce, s, 'SUM', "
    .. "(w == 0 or i ~= 2) and tf.ones { 4 } or { {}, 'x' })"), AHEAD },
  { "a step that one has left", MODEL .. skips("pcall(m.train_on_batch, m, "
    .. "tf.ones { 4, 2 }, tf.constant({ 1, 1, 1, w == 1 and i == 2 and 9 or 1 "
    .. "}, 'int32'))"), AHEAD },
  { "a traced call that one has left", FACTOR:format("", "f"), AHEAD },
  { "a traced call with a signature that one has left", FACTOR:format(
    ", { input_signature = { tf.TensorSpec({ 2, 2 }, 'float32') } }", "f"),
    AHEAD },
  { "a call of a concrete function that one has left", FACTOR:format("",
    "f:get_concrete_function(tf.eye(2))"), AHEAD },
  { "the first traced call that one has left", (FACTOR:format("", "f")
    :gsub("i == 2", "i == 1"):gsub("i ~= 2", "i ~= 1")), AHEAD },
  { "other variables to read", order(ON_READ .. "'sum'",
    EACH:format "print(v:read_value())"), ORDER },
  { "others to read the first of", order(ON_READ .. "'only_first_replica'",
    EACH:format "print(v:read_value())"), ORDER },
  { "others to read in a traced function", order(ON_READ .. "'mean'",
    "print(tf.function_(function()\nlocal x, y = list[1]:read_value(), "
    .. "list[2]:read_value()\nreturn x, y\nend)())"), ORDER },
  { "others to assign a mean to", order("aggregation = 'mean'",
    RUN:format "v:assign(tf.ones { 2 })"), ORDER },
  { "others to assign the first to", order("aggregation = "
    .. "'only_first_replica'", RUN:format "v:assign_add(tf.ones { 2 })"),
    ORDER },
  { "others to assign a table to", order("aggregation = 'sum'",
    RUN:format "v:assign({ 1, 2 })"), ORDER },
  { "others to add a number to", order("aggregation = 'mean'",
    RUN:format "v:assign_add(1)"), ORDER },
  { "others to read on other lines", order(ON_READ .. "'sum'",
    "if w == 0 then\nprint(a:read_value())\nelse\nprint(b:read_value())\nend"),
    ORDER },
  { "others to scatter to", order("aggregation = 'sum'",
    RUN:format("v:scatter_add(tf.IndexedSlices(tf.ones { 1 }, "
      .. "tf.constant({ 0 }, 'int32')))")), ORDER },
  { "another order of gradients", order("trainable = true",
    STEP:format(SGD, "s:run(step)")), ORDER },
  { "another order of gradients that are clipped", order("trainable = true",
    STEP:format("tf.keras.optimizers.SGD { clipnorm = 1000 }", "s:run(step)")),
    ORDER },
  { "another order of clipped gradients in a traced function",
    order("trainable = true", STEP:format(
      "tf.keras.optimizers.SGD { global_clipnorm = 9 }", TRACED)), ORDER },
  { "another order of slices for parts", order("trainable = true",
    SPARSE:format(PARTS, "s:run(step)")),
    ORDER },
  { "another order of gradients in a traced function",
    order("trainable = true", STEP:format(SGD, TRACED)), ORDER },
  { "another order of gradients for parts", order("trainable = true",
    STEP:format(PARTS, "s:run(step)")), ORDER },
  { "another shape", "s:reduce('SUM', tf.ones { 4 + w })",
    { "process 0 calls all_reduce sum of float32%[4%] at [^ ]+%.lua:2",
      "process 1 calls all_reduce sum of float32%[5%] at [^ ]+%.lua:2" } },
  { "another shape of as many elements",
    "s:reduce('SUM', tf.ones { 2 + w, 3 - w })", SHAPES },
  { "another rank of as many elements", IN_REPLICA:format(
    "s:run(function()\nreturn c():all_reduce('MEAN', tf.ones(w == 0 and { 4 } "
    .. "or { 1, 4 }))\nend)"), SHAPES },
  { "another shape of the second of two", IN_REPLICA:format(
    "s:run(function()\nreturn c():all_reduce('SUM', { tf.ones { 4 }, tf.ones { "
    .. "2 + w, 3 - w } })\nend)"), SHAPES },
  { "another shape in a traced function", IN_REPLICA:format(
    "tf.function_(function()\nreturn s:run(function()\nreturn c():all_reduce("
    .. "'SUM', tf.ones { 2 + w, 3 - w })\nend)\nend)()"), SHAPES },
  { "another dtype",
    "s:reduce('SUM', tf.ones({ 4 }, w == 0 and 'float32' or 'float64'))",
    { "process 0 calls all_reduce sum of float32%[4%] at [^ ]+%.lua:2",
      "process 1 calls all_reduce sum of float64%[4%] at [^ ]+%.lua:2" } },
  { "another reduction",
    "s:reduce(w == 0 and 'MAX' or 'MIN', tf.ones { 4 })",
    { "process 0 calls all_reduce max", "process 1 calls all_reduce min" } },
  { "another axis to add up along",
    "s:reduce('SUM', tf.ones { 3, 3 }, w)",
    { "process 0 calls all_reduce sum of float32%[3%] at [^ ]+%.lua:2, process "
      .. "1 calls all_reduce sum of float32%[3%] at [^ ]+%.lua:2; what differs "
      .. "is the operation, its variables, its axes" } },
  { "another order",
    "if w == 1 then\ns:gather(tf.ones { 3 }, 0)\nend\n"
    .. "s:reduce('SUM', tf.ones { 4 })",
    { "process 0 calls all_reduce sum of float32%[4%] at [^ ]+%.lua:5",
      "process 1 calls all_gather of int64%[%d+%] at [^ ]+%.lua:3" } },
  { "another call of the same size",
    "local function sum()\nreturn tf.distribute.get_replica_context():"
    .. "all_reduce('SUM', tf.ones { 4 })\nend\n"
    .. "if w == 1 then s:run(sum) else\ns:reduce('SUM', tf.ones { 4 }) end",
    { "process 0 calls all_reduce sum of float32%[4%] at [^ ]+%.lua:6",
      "process 1 calls all_reduce sum of float32%[4%] at [^ ]+%.lua:%d" } },
  { "an error that one has caught",
    "local function step()\nlocal c = tf.distribute.get_replica_context()\n"
    .. "c:all_reduce('SUM', tf.ones { 3 })\nif w == 1 then error 'once' end\n"
    .. "c:all_reduce('SUM', tf.ones { 5 })\nend\npcall(s.run, s, step)\n"
    .. "s:reduce('SUM', tf.ones { 7 })",
    { "process 0 calls all_reduce sum of float32%[5%] at [^ ]+%.lua:%d",
      "process 1 calls all_reduce sum of float32%[7%] at [^ ]+%.lua:9" } },
  { "a sum in a traced function",
    "local f = tf.function_(function()\nlocal c = tf.distribute."
    .. "get_replica_context()\n"
    .. "local x = c:all_reduce(w == 0 and 'SUM' or 'MEAN', tf.ones { 4 })\n"
    .. "return x\nend)\nlocal x = s:run(f)\nprint(x)",
    { "process 0 calls all_reduce sum of float32%[4%] at [^ ]+%.lua:7",
      "process 1 calls all_reduce mean of float32%[4%] at [^ ]+%.lua:7" } },
  { "a variable of one's own",
    "if w == 0 then\ns:scope(function()\nlocal v = tf.Variable(1)\n"
    .. "return v\nend)\nelse\ns:reduce('SUM', tf.ones { 4 })\nend",
    { "process 0 calls all_gather of int64%[%d+%] at [^ ]+%.lua:4",
      "process 1 calls all_reduce sum of float32%[4%] at [^ ]+%.lua:8" } },
  -- What of one's own reads copies that add up.
  { "a value", READS:format "local x = v:read_value()", READ },
  { "an operand", READS:format "local x = v + 1", READ },
  { "an argument", READS:format "local x = tf.reduce_sum(v)", READ },
  { "a number", READS:format "local x = v:item()", READ },
  { "a call less", "if w == 0 then s:reduce('SUM', tf.ones { 4 }) end",
    { "process 1 has ended while process 0 waits" }, ends = 0 },
}

-- Worker 1 is told of an error in its third batch, and evaluates.
local FIT = [[
local model = s:scope(function()
  local m = tf.keras.Sequential { tf.keras.layers.Dense(3) }
  m:compile { optimizer = "sgd", loss = "mse" }
  return m
end)
local x, y, left = tf.ones { 32, 2 }, tf.ones { 32, 3 }, 3
pcall(model.fit, model, x, y, { batch_size = 4, verbose = 0, callbacks = { {
  on_train_batch_end = function()
    left = left - 1
    if left == 0 and w == 1 then error "once" end
  end } } })
model:evaluate(x, y, { batch_size = 4, verbose = 0 })]]

-- Errors that leave nobody behind.
local HARMLESS = [[
local c = tf.distribute.get_replica_context
local function sum(early, late)
  return s:run(function()
    if early then error "early" end
    local x = c():all_reduce("SUM", tf.ones { 4 })
    if late then error "late" end
    return x
  end)
end
if w == 0 then -- no other one has a part in it
  s:run(function() return tf.ones { 2 } + 1 end)
  pcall(s.run, s, function() error "chief's own" end)
  print "own"
end
for turn = 1, 3 do -- nor do they meet in it
  local ok, x = pcall(s.run, s, function()
    if w == 1 and turn < 3 then error "bad record" end
    return tf.ones { 2 }
  end)
  s:reduce("SUM", ok and x or tf.zeros { 2 })
end
local f = tf.function_(function(x)
  return s:run(function() return c():all_reduce("SUM", x) end)
end)
if w == 0 then f:get_concrete_function(tf.ones { 2 }) end
f(tf.ones { 2 })
f(tf.ones { 2 })
for turn = 1, 300 do
  local ok = pcall(sum, turn % 5 == 1, turn % 7 == 2 and w == 1)
  assert(ok == (turn % 5 ~= 1 and (turn % 7 ~= 2 or w == 0)))
end
print(s:reduce("SUM", tf.ones { 1 }):item())]]

describe("workers that run apart #once", function()
  it("are not those of which all left a call, or one left it at its end",
    function()
      for _, r in ipairs(workers.run { program = HEAD:format "AUTO" .. HARMLESS
      }) do
        assert.equal(0, r.code, r.err)
        assert.equal("2", (r.out:gsub("%.0", ""):gsub("%s", "")
          :gsub("^own", "")))
      end
    end)

  it("hear of an error in a fit that one has caught", function()
    local rs = workers.run { program = HEAD:format "AUTO" .. FIT }
    assert.matches(":13: Aborted: evaluate: ", rs[2].err)
    for _, r in ipairs(rs) do
      assert.equal(77, r.code, r.err)
      assert.matches("process 0 calls all_reduce sum of float32%[9%] at "
        .. "[^ ]+%.lua:8, process 1 calls all_gather of int64%[%d+%] at "
        .. "[^ ]+%.lua:13", r.err)
    end
  end)

  for _, call in ipairs { "s:gather(x, %s)", "s:run(function()\n"
    .. "return tf.distribute.get_replica_context():all_gather(x, %s)\nend)" } do
    it("hear of another axis of " .. call:match "(%a*_?gather)%(", function()
      local program = HEAD:format "AUTO" .. "local x = tf.ones { 2, 2 }\n"
        .. call
      for _, r in ipairs(workers.run { program = program:format "w" }) do
        assert.equal(1, r.code, r.err)
        assert.matches("[^ ]+%.lua:%d: InvalidArgument: [al_]*gather: replica 1 "
          .. "gathers along axis 1, replica 0 along axis 0", r.err)
      end
      for _, r in ipairs(workers.run {
        program = program:format "w == 0 and -1 or 1" }) do
        assert.equal(0, r.code, r.err)
      end
    end)
  end

  it("hear of an axis that is none as it was given", function()
    for _, r in ipairs(workers.run { program = HEAD:format "AUTO"
      .. "s:gather(tf.ones { 2, 2 }, w == 0 and 0 or -5)" }) do
      assert.matches("replica 1 gathers along axis %-5, replica 0 along axis 0",
        r.err)
    end
  end)

  it("hear of one that has replicas of other shapes", function()
    local rs = workers.run { each = function() return "TFDIST_CPU_DEVICES=2" end,
      program = HEAD:format "AUTO" .. [[
local function value()
  local id = tf.distribute.get_replica_context().replica_id_in_sync_group
  return tf.ones(id == 3 and { 3, 2 } or { 2, 3 })
end
s:reduce("SUM", s:run(value))]] }
    assert.equal(1, rs[2].code, rs[2].err)
    assert.matches("%.lua:6: InvalidArgument: strategy:reduce: replica 3 has "
      .. "float32 {3, 2}, replica 2 has float32 {2, 3}; shapes and dtypes must "
      .. "match", rs[2].err)
    assert.equal(75, rs[1].code, rs[1].err)
    assert.matches("replica 3 has float32 {3, 2}", rs[1].err, 1, true)
  end)

  -- Whatever the hash of what they do: so for the first variable and others.
  -- Else they would hear of it when they meet.
  for _, count in ipairs { 1, 2, 4, 6, 7 } do
    it("hear of another way of adding up variable " .. count, function()
      for _, r in ipairs(workers.run { each = function(i)
        return "TFDIST_FAILPOINTS=net.transport=eio TFDIST_TRANSPORT="
          .. (i == 0 and "ring" or "halving")
      end, program = HEAD:format "AUTO" .. ("local v\ns:scope(function()\n"
        .. "for _ = 1, %d do v = tf.Variable(tf.ones { 4096 }, { "
        .. "synchronization = 'on_read', aggregation = 'sum' }) end\nend)\n"
        .. "print(v:read_value())"):format(count) }) do
        assert.equal(77, r.code, r.err)
        assert.matches("the way of adding up", r.err)
      end
    end)
  end

  it("are not those of which one has made another model before", function()
    local results = workers.run { program = HEAD:format "AUTO" .. [[
local function new(seed)
  return tf.keras.Sequential { tf.keras.layers.Dense(2, { input_shape = { 3 },
    kernel_initializer = tf.keras.initializers.GlorotUniform { seed = seed } }),
    tf.keras.layers.BatchNormalization() }
end
if w == 0 then new(1):predict(tf.ones { 1, 3 }, { verbose = 0 }) end
local m = s:scope(function()
  local m = new(2 + w)
  m:compile { optimizer = "adam", loss = "mse", metrics = { "mae" } }
  return m
end)
m:fit(tf.ones { 4, 3 }, tf.ones { 4, 2 }, { verbose = 0, epochs = 2 })
print(m.layers[1].name, tf.reduce_sum(m.layers[1].kernel):item())]] }
    assert.matches("^dense_1\t", results[1].out, nil, results[1].err)
    assert.matches("^dense\t", results[2].out, nil, results[2].err)
    assert.equal(results[1].out:match "\t(.*)", results[2].out:match "\t(.*)")
  end)

  it("are not those of which one counts names otherwise", function()
    for _, r in ipairs(workers.run { program = HEAD:format "AUTO" .. [[
local L = tf.keras.layers
for _ = 1, 2 * w do L.Dense(1, { input_shape = { 1 } }):build { 1, 1 } end
s:scope(function()
  for _, name in ipairs { "dense_1", "dense_9", "dense_5" } do
    L.Dense(2, { name = name }):build { 1, 3 }
  end
  tf.Variable(1, { name = "dense_1" })
  tf.Variable(1, { name = "dense_2/kernel" })
end)]] }) do
      assert.equal(0, r.code, r.err)
    end
  end)

  -- The names of worker 0, of worker 1.
  for _, names in ipairs { { "w_1 w_2", "w_2 w_1" }, { "b_1 b_3 b_2",
    "b_2 b_3 b_1" }, { "k v", "v k" }, { "m_1/k m_2/k", "m_2/k m_1/k" } } do
    it("hear of names in another order: " .. names[1], function()
      for _, r in ipairs(workers.run { program = HEAD:format "AUTO" .. ([[
s:scope(function()
  for name in (w == 0 and %q or %q):gmatch "%%S+" do
    tf.Variable({ 1, 2 }, { name = name })
  end
end)]]):format(names[1], names[2]) }) do
        assert.equal(77, r.code, r.err)
        assert.matches('variable "[%w_/]+": [^\n]*what differs is the '
          .. "operation, its variables", r.err)
      end
    end)
  end

  it("hear of layers that are built in another order", function()
    for _, r in ipairs(workers.run { program = HEAD:format "AUTO" .. [[
s:scope(function()
  local a, b = tf.keras.layers.Dense(2), tf.keras.layers.Dense(2)
  a:get_config() b:get_config() -- have names
  for _, layer in ipairs(w == 0 and { a, b } or { b, a }) do
    layer:build { 1, 3 }
  end
end)]] }) do
      assert.equal(77, r.code, r.err)
    end
  end)

  it("are not those of which one gives a number and one a tensor", function()
    for _, r in ipairs(workers.run { program = HEAD:format "AUTO" .. [[
local v = s:scope(function()
  return tf.Variable(0, { aggregation = "mean", dtype = "float32" })
end)
s:run(function() v:assign(w == 0 and tf.constant(1.5) or 2.5) end)
print(v:item())]] }) do
      assert.equal(0, r.code, r.err)
      assert.equal("2", (r.out:gsub("%.0", ""):gsub("%s", "")))
    end
  end)

  for _, implementation in ipairs { "AUTO", "RING" } do
    for _, host in ipairs(process.hosts) do
      for _, case in ipairs(CASES) do
        it(("hear of %s (%s, %s)"):format(case[1], implementation, host.name),
          function()
            local results = workers.run { host = host.path,
              program = HEAD:format(implementation) .. case[2] }
            for i, r in ipairs(results) do
              local code = i == 2 and case.ends or 77
              assert.equal(code, r.code, r.err)
              for _, text in ipairs(code == 77 and case[3] or {}) do
                assert.matches(text, r.err)
              end
            end
          end)
      end
    end
  end
end)
