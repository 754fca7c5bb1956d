-- Groups of elementwise ops as one kernel each, on stand-ins: NVRTC's compiles
-- with the C++ compiler, and on demand with the real one.
local process = require "spec.support.process"
local standins = require "spec.support.standins"

-- How each script begins: compare(fn, ...) runs fn op by op and traced.
local HEAD = [[
local tf = require "tfdist"
local raw = require "tfdist.core.raw"
local function compare(name, fn, ...)
  local want, f = { fn(...) }, tf.function_(fn)
  local got = { f(...) }
  for i, t in ipairs(want) do
    if raw.tensor_bytes(t) ~= raw.tensor_bytes(got[i]) then
      print("apart", name, i, tostring(t), tostring(got[i]))
    end
  end
  local _, n = f:get_concrete_function(...):graph("lowered"):gsub("fused%(", "")
  print(name, n)
end
local function on_gpu(fn) tf.device("/gpu:0", fn) end
]]

local CELL = HEAD .. [[
on_gpu(function()
  local x = tf.constant { { 0.5, -2, 3 }, { 1, 0.25, -0.125 } }
  compare("cell", function(a, w) return tf.tanh(a * w + 1) - a end, x,
    tf.constant { 2, -1, 0.5 })
end)
]]

-- Every op that can be part of a group, of one dtype, in few of them.
local OPS = HEAD .. [[
local dtype = DTYPE
local float = dtype:match "float"
local UNARY = float and { "abs", "negative", "square", "sign", "reciprocal",
  "sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin",
  "acos", "atan", "sinh", "cosh", "tanh", "asinh", "atanh", "erf", "erfc",
  "sigmoid", "softplus", "log_sigmoid", "ceil", "floor", "rint" }
  or { "abs", "negative", "square", "sign" }
local NN = float and { "relu", "relu6", "leaky_relu", "elu", "selu", "gelu",
  "swish", "softsign" } or { "relu", "relu6" }
local BINARY = float and { "add", "subtract", "multiply", "divide",
  "divide_no_nan", "maximum", "minimum", "squared_difference", "floordiv",
  "floormod", "pow", "atan2", "multiply_no_nan", "xdivy", "xlogy", "xlog1py" }
  or { "add", "subtract", "multiply", "maximum", "minimum",
  "squared_difference" }
local COMPARE = { "equal", "not_equal", "less", "less_equal", "greater",
  "greater_equal" }
local function number(i) return float and (i % 9 + 0.5) / 10 or i % 7 end
local list, row = {}, {}
for i = 1, 21 do list[i] = number(i) end
for i = 1, 7 do row[i] = number(3 * i) end
on_gpu(function()
  local x = tf.reshape(tf.constant(list, { dtype = dtype }), { 3, 7 })
  local y = tf.constant(row, { dtype = dtype })
  local function sum(t, a) return t and t + a or a end
  compare("unary", function(a)
    local t
    for _, name in ipairs(UNARY) do
      t = sum(t, (tf.math[name] or tf[name])(a))
    end
    return t
  end, x)
  compare("rest", function(a, b)
    local t, u
    for _, name in ipairs(BINARY) do
      t = sum(t, (tf.math[name] or tf[name])(a, b))
    end
    for _, name in ipairs(NN) do u = sum(u, tf.nn[name](a)) end
    for _, name in ipairs(COMPARE) do
      u = sum(u, tf.cast(tf.math[name](a, b), dtype))
    end
    u = tf.where(tf.logical_not(tf.math.less(a, b)), u, t)
    return t, u, tf.clip_by_value(a, b, b + 1), tf.cast(a + b, "int8"),
      tf.cast(a + b, "float64") + 1, tf.cast(a + b, "float16") + 1,
      tf.cast(a + b, "bfloat16") + 1
  end, x, y)
end)
]]

local function ops(dtype)
  return (OPS:gsub("DTYPE", ("%q"):format(dtype), 1))
end

local function exists(name)
  return standins.exists(standins.FOLDER .. "/" .. name)
end

describe("fused kernels on a GPU that is none #once", function()
  if not exists "libnvrtc.so.13" or not standins.exists(standins.CUDA) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  local cache

  before_each(function()
    cache = os.tmpname()
    os.remove(cache)
  end)

  after_each(function()
    process.run("rm -rf " .. cache)
  end)

  local function run(text, more)
    local r = standins.run(text, ("TFDIST_CUBIN_CACHE=%s %s"):format(cache,
      more or ""))
    assert.equal(0, r.code, r.err)
    return r
  end

  -- Bytes of each file that was kept, by its path.
  local function kept()
    local list, n = {}, 0
    for path in process.run("ls " .. cache .. "/* 2>/dev/null").out
      :gmatch "%S+" do
      local file = assert(io.open(path, "rb"))
      list[path] = file:read "a"
      file:close()
      n = n + 1
    end
    return list, n
  end

  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16",
    "int32", "int64", "uint8" } do
    it("have the bits of the ops' own, and compile for real: " .. dtype,
      function()
        local out = run(ops(dtype), "TFD_STANDIN_NVRTC="
          .. (dtype == "float32" and "80,90,100" or "90")).out
        local unary, rest = out:match "^unary\t(%d+)\nrest\t(%d+)\n$"
        assert.is_truthy(unary, out)
        assert.is_true(tonumber(unary) >= 1 and tonumber(rest) >= 1, out)
      end)
  end

  it("read what is broadcast, slanted, shifted, and write in place", function()
    assert.equal("views\t1\nscalars\t1\nhere\t1\n5.75 5.25\n", run(HEAD .. [[
      on_gpu(function()
        local x = tf.reshape(tf.range(24, { dtype = "float32" }), { 2, 3, 4 })
        local y = tf.transpose(tf.reshape(tf.range(12, { dtype = "float32" }),
          { 4, 3 }))
        local flat = tf.reshape(x, { 24 })
        compare("views", function(a, b, c)
          return (a * b + c) * 0.5 - b
        end, x, y, tf.constant { { { 2 } }, { { 3 } } })
        -- Begins at 4 bytes, and has no whole pack at its end.
        compare("scalars", function(a, b)
          local rest = tf.slice(a, { 1 }, { 23 })
          return tf.exp(rest * b - 1) + rest
        end, flat, tf.constant(0.125))
        local v = tf.Variable { 1, 3 }
        local step = tf.function_(function(g) v:assign(v * 0.5 + g) end)
        compare("here", function(a) return tf.nn.relu(a * 2 - 3) end, x)
        step(tf.constant { 5, 1.5 })
        step(tf.constant { 3, 3.75 })
        print(table.concat(v:read_value():totable(), " "))
      end)
    ]]).out)
  end)

  it("are kept on disk, and made again where that is damaged", function()
    assert.equal("cell\t1\n", run(CELL).out)
    local list, n = kept()
    assert.equal(1, n)
    -- The compiler is not asked.
    local refuses = "TFD_STANDIN_NVRTC_REFUSES=1"
    assert.equal("cell\t1\n", run(CELL, refuses).out)
    local path, bytes = next(list)
    local damaged = {
      bytes:sub(1, -2), bytes .. "x", bytes:sub(1, 100), "",
      bytes:sub(1, -1000) .. string.char((bytes:byte(-999) + 1) % 256)
        .. bytes:sub(-998),
      -- Of another text under the same name.
      (bytes:gsub("tanh", "sinh", 1)),
    }
    for i, text in ipairs(damaged) do
      local file = assert(io.open(path, "wb"))
      file:write(text)
      file:close()
      assert.equal("cell\t0\n", run(CELL, refuses).out, i)
      assert.equal("cell\t1\n", run(CELL).out, i)
      assert.equal("cell\t1\n", run(CELL, refuses).out, i)
    end
    process.run("chmod g+w " .. path)
    assert.equal("cell\t0\n", run(CELL, refuses).out)
  end)

  it("are kept in so many bytes, or not at all", function()
    run(ops "int32", "TFDIST_CUBIN_CACHE_BYTES=30000")
    local bytes = 0
    for _, text in pairs((kept())) do bytes = bytes + #text end
    assert.is_true(bytes > 0 and bytes <= 30000, bytes .. " bytes")
    process.run("rm -rf " .. cache)
    local r = standins.run(CELL, ("TFDIST_CUBIN_CACHE=0 XDG_CACHE_HOME=%s")
      :format(cache))
    assert.equal("cell\t1\n", r.out, r.err)
    assert.equal(0, select(2, kept()))
  end)

  it("are not needed: ops run one by one without a compiler", function()
    local folder = cache .. "/libraries"
    process.run(("mkdir -p %s && cp -P %s/libcu*.so.* %s"):format(folder,
      standins.FOLDER, folder))
    local r = standins.run(CELL, "TFDIST_CUDA_STANDIN=" .. folder)
    assert.equal("cell\t0\n", r.out, r.err)
    assert.equal("", r.err)
  end)
end)
