local process = require "spec.support.process"

-- A script whose output must be the same everywhere: on both plain engines,
-- in both hosts, with FFI on and off.
local SCRIPT = [[
local raw = require "tfdist.core.raw"
local function show(...)
  local n, parts = select("#", ...), {}
  for i = 1, n do
    parts[i] = tostring((select(i, ...)))
  end
  print(table.concat(parts, " "))
end
local function list(t)
  if type(t) ~= "table" then return tostring(t) end
  local parts = {}
  for i = 1, #t do parts[i] = list(t[i]) end
  return "{" .. table.concat(parts, ",") .. "}"
end
local function check(fn, ...)
  local ok, e = pcall(fn, ...)
  show(ok, ok and e or tostring(e))
end
for _, dtype in ipairs { "int8", "uint8", "int16", "int32", "int64" } do
  local t = raw.tensor_from_table({ { 1, 2, 3 }, { 4, 5, 6 } }, dtype)
  show(dtype, list(raw.tensor_to_table(t)), raw.item(t, 4), raw.tensor_size(t),
    raw.tensor_rank(t), raw.tensor_dim(t, 1), raw.tensor_dim(t, 2))
end
for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
  local t = raw.tensor_from_table({ 0.5, -2, 1 / 0 }, dtype)
  show(raw.tensor_dtype(t), raw.item(t, 0), list(raw.tensor_to_flat(t)),
    #raw.tensor_bytes(t))
end
local b = raw.tensor_from_table { true, false }
show(list(raw.tensor_to_table(b)), raw.item(b, 0), raw.item(b, 1))
local d = raw.device_current()
show(raw.device_name(d), raw.device_count("CPU"), raw.device_at("CPU", 0) == d)
show(raw.op_count(), raw.op_find("identity"), raw.op_schema(0))
show(raw.enums.dtype.int32, raw.dtype_size(raw.enums.dtype.int32))
check(raw.tensor_dim, b, "x")
check(raw.tensor_size, 7)
check(raw.tensor_rank, {})
check(raw.tensor_dtype, nil)
check(raw.item, b, 2)
check(raw.item, b, 0.5)
check(raw.item, b)
check(raw.item, nil, 0)
check(raw.tensor_dim, b, 0.5)
check(raw.tensor_from_table, { { 1 }, { 1, 2 } })
check(raw.tensor_from_table, { 300 }, "uint8")
check(raw.device_find, "GPU:9")
b:release()
check(raw.tensor_size, b)
check(raw.tensor_dtype, b)
check(raw.item, b, 0)
show(raw.kind(b), raw.is_released(b))
local v = raw.variable_new(raw.tensor_from_table { 1, 2 }, "v", true)
raw.variable_assign_add(v, raw.tensor_from_table { 1, 1 })
show(raw.variable_version(v), raw.variable_name(v),
  list(raw.tensor_to_table(raw.variable_read(v))))
show(raw.variable_synchronization_of(v), raw.variable_aggregation_of(v))
]]

local PATH = "LUA_PATH='lua/?.lua;lua/?/init.lua;;' LUA_CPATH='"
  .. process.build .. "/%s/?.so;;' "

describe("both engines #once", function()
  it("give the same text for everything, with FFI on and off", function()
    local path = process.file(SCRIPT, ".lua")
    local expected
    for _, command in ipairs {
      PATH:format("lua54") .. "lua5.4", PATH:format("luajit") .. "luajit",
      "TFDIST_FFI=0 " .. PATH:format("luajit") .. "luajit",
      PATH:format("luajit") .. "luajit -joff",
      process.build .. "/tfdist", process.build .. "/tfdist-luajit",
      "TFDIST_FFI=0 " .. process.build .. "/tfdist-luajit",
    } do
      local r = process.run(command .. " " .. path)
      assert.equal(0, r.code, command .. ": " .. r.err)
      -- Lua 5.4 writes floats with a point, LuaJIT does not.
      local text = r.out:gsub("(%d)%.0%f[%D]", "%1")
      expected = expected or text
      assert.equal(expected, text, command)
    end
    os.remove(path)
    assert.matches("int32 {{1,2,3},{4,5,6}} 5 6 2 3 %-1\n", expected)
  end)

  it("leave no thread behind that crashes at exit", function()
    local path = process.file([[
local raw = require "tfdist.core.raw"
local t = raw.tensor_from_table { 1, 2, 3 }
for i = 0, 1 do
  local u = raw.tensor_to_device(t, raw.device_at("CPU", i))
  for _ = 1, 100 do
    u = raw.op_run(raw.op_find("copy"), { u })
  end
end
]], ".lua")
    for _ = 1, 5 do
      for _, command in ipairs { PATH:format("lua54") .. "lua5.4",
        PATH:format("luajit") .. "luajit", process.build .. "/tfdist",
        process.build .. "/tfdist-luajit" } do
        local r = process.run("TFDIST_CPU_DEVICES=2 TFDIST_QUEUE=queued "
          .. command .. " " .. path)
        assert.equal(0, r.code, command .. ": " .. r.err)
        assert.equal("", r.err)
      end
    end
    os.remove(path)
  end)

  it("say where queued work came from", function()
    local path = process.file([[
local tf = require "tfdist"
local t = tf.constant { 1, 2, 3 }
local i = tf.constant({ 0, 9 }, { dtype = "int32" })
local u = tf.gather(t, i)
local fine, e = pcall(u.wait or require("tfdist.core.raw").tensor_wait, u)
print(fine, e and e.where)
]], ".lua")
    for _, host in ipairs(process.hosts) do
      local r = process.run(host.path .. " --queue=queued " .. path)
      assert.equal(0, r.code, r.err)
      assert.equal("false\t" .. path .. ":4\n", r.out)
    end
    os.remove(path)
  end)

  it("say where updates of variables came from", function()
    local path = process.file([[
local tf = require "tfdist"
local s = tf.distribute.MirroredStrategy()
local function rows()
  return tf.IndexedSlices(tf.ones { 1 }, tf.constant({ 9 }, "int32"))
end
local function sgd() return tf.keras.optimizers.SGD(0.1) end
local function new() return tf.Variable(tf.zeros { 4 }, { aggregation = "sum" }) end
local v, w, optimizer = new(), s:scope(new), s:scope(sgd)
local slices
local function value(x)
  return x:read_value()[0]:item()
end
local function where(update)
  slices = rows()
  update()
  local ok, e = pcall(value, v)
  if ok then ok, e = pcall(value, w) end
  print(e.where:match ":(%d+)$")
  v, w, optimizer = new(), s:scope(new), s:scope(sgd)
end
where(function()
  v:scatter_add(slices) -- 22
end)
where(function()
  sgd():apply_gradients({ slices }, { v }) -- 25
end)
where(function()
  s:run(function() -- 28
    w:scatter_add(rows())
  end)
end)
where(function()
  s:run(function() -- 33
    optimizer:apply_gradients({ slices }, { w })
  end)
end)
where(tf.function_(function()
  s:run(function() -- 38
    w:scatter_add(rows())
  end)
end))
]], ".lua")
    for _, host in ipairs(process.hosts) do
      local r = process.run("TFDIST_CPU_DEVICES=2 " .. host.path
        .. " --queue=queued " .. path)
      assert.equal(0, r.code, r.err)
      assert.equal("22\n25\n28\n33\n38\n", r.out)
    end
    os.remove(path)
  end)

  -- A list of four values and more made by { ... } or { f() } begins a trace
  -- for each of a hundred calls, and none of them is of use.
  it("compile calls that draw random numbers or have options", function()
    local path = process.file([[
local tf = require "tfdist"
local random = tf.random
local generator = random.Generator.from_seed(1)
local x, kernel = tf.ones { 1, 4, 4, 1 }, tf.ones { 2, 2, 1, 1 }
local logits = tf.zeros { 4, 3 }
local calls = {
  normal = function() random.normal { 4 } end,
  truncated_normal = function() random.truncated_normal { 4 } end,
  uniform = function() random.uniform { 4 } end,
  integers = function() random.uniform({ 4 }, 0, 9, { dtype = "int32" }) end,
  categorical = function() random.categorical(logits, 2) end,
  shuffle = function() random.shuffle(logits) end,
  gamma = function() random.gamma({ 4 }, 2) end,
  poisson = function() random.poisson({ 4 }, 2) end,
  stateless = function() random.stateless_normal({ 4 }, { 1, 2 }) end,
  generator = function() generator:normal { 4 } end,
  split = function() tf.split(logits, { 1, 1, 1, 1 }) end,
  options = function()
    tf.nn.conv2d(x, kernel, { strides = 1, padding = "SAME" })
  end,
}
local begun = 0
jit.attach(function(what)
  if what == "start" then begun = begun + 1 end
end, "trace")
for name, call in pairs(calls) do
  jit.flush()
  begun = 0
  for _ = 1, 3000 do call() end
  print(name, begun)
end]], ".lua")
    local r = process.run(process.hosts[2].path .. " " .. path)
    os.remove(path)
    assert.equal(0, r.code, r.err)
    local seen = 0
    for name, begun in r.out:gmatch "(%S+)%s+(%d+)" do
      seen = seen + 1
      assert.is_true(tonumber(begun) < 90, name .. " began " .. begun)
    end
    assert.equal(12, seen)
  end)
end)
