--- Memory that runs out inside oneDNN or OpenBLAS: the op raises
--- ResourceExhausted, the process goes on, and the same op works once there is
--- memory.

local process = require "spec.support.process"

-- Products, convolutions and recurrent cells with their gradients, again and
-- again until all went well; says what did not.
local SCRIPT = [[
local tf = require "tfdist"

local function compute()
  for _, n in ipairs { 64, 300 } do
    local a = tf.ones { n, n }
    assert(tf.reduce_sum(tf.matmul(a, a)):item() == n ^ 3)
  end
  local x = tf.Variable(tf.ones { 2, 8, 8, 3 })
  local w = tf.Variable(tf.ones { 3, 3, 3, 16 })
  local tape, y = tf.GradientTape(function()
    return tf.nn.conv2d(x, w, 1, "VALID")
  end, { persistent = true })
  assert(tf.reduce_sum(y):item() == 2 * 6 * 6 * 16 * 27)
  assert(tape:gradient(y, x):item(0) == 16)
  assert(tape:gradient(y, w):item(0) == 72)
  local lstm = tf.keras.layers.LSTM(8, { return_sequences = true })
  local gru = tf.keras.layers.GRU(8)
  local z = tf.Variable(tf.ones { 2, 5, 4 })
  local t, q = tf.GradientTape(function()
    return tf.reduce_sum(gru(lstm(z)))
  end)
  local g = t:gradient(q, z):totable()
  assert(g[1][1][1] == g[2][5][4] or g[1][1][1] ~= 0)
end

local failures = 0
]]

-- Until it went well, or eight times.
local AGAIN = [[
for _ = 1, 8 do
  local ok, e = pcall(function()
    compute()
    tf.sync_devices()
  end)
  if ok then break end
  failures = failures + 1
  print(type(e) == "table" and e.kind or e)
end
print("end", failures)
]]

-- The same of LAPACK and of products that OpenBLAS makes.
local LINALG = [[
local tf = require "tfdist"

local function compute()
  local a = tf.eye(150, { dtype = "float64" }) * 2
  assert(tf.reduce_sum(tf.matmul(a, a)):item() == 600)
  assert(tf.reduce_sum((tf.linalg.svd(a))):item() == 300)
  local many = tf.broadcast_to(tf.eye(50), { 12, 50, 50 })
  assert(tf.reduce_sum(tf.linalg.inv(many)):item() == 600)
end

local failures = 0
]]

local SETTINGS = {
  { name = "a host", host = 1, environment = "" },
  { name = "a host with work queued on LuaJIT", host = 2,
    environment = "TFDIST_CPU_DEVICES=2 TFDIST_QUEUE=queued " },
}

local function failures(r, label)
  local n = tonumber(r.out:match "\nend%s(%d+)\n$" or r.out:match
    "^end%s(%d+)\n$")
  -- With so little left, closing the Lua state may lack memory too.
  local ended = r.code == 0
    or r.code == 1 and r.err:find("not enough memory", 1, true) ~= nil
  assert.is_true(ended and n ~= nil, ("%s: exit status %d, %s%s"):format(
    label, r.code, r.out, r.err))
  for line in r.out:gmatch "[^\n]+" do
    assert.is_true(line == "ResourceExhausted" or line:find "^end" ~= nil
      or line:find "not enough memory" ~= nil, label .. ": " .. line)
  end
  return n
end

-- How far what is left grows from one process to the next.
local LONG = os.getenv "TFD_LONG"
local FACTOR, STEP = LONG and 1.4 or 1.9, LONG and 2000 or 5000 -- STEP in KiB

describe("an exception of the library #once", function()
  local library, script
  setup(function()
    library = os.tmpname()
    script = process.file(SCRIPT .. AGAIN, ".lua")
    local built = process.run(("gcc -shared -fPIC -O1 -fexceptions -o %s "
      .. "spec/support/throw.c -ldl"):format(library))
    assert.are.equal(0, built.code, built.err)
  end)
  teardown(function()
    os.remove(library)
    os.remove(script)
  end)

  for _, setting in ipairs(SETTINGS) do
    it("is ResourceExhausted, in " .. setting.name, function()
      local host, n, thrown = process.hosts[setting.host], 1, 0
      repeat
        local r = process.run(("%sTHROW_AT=%d LD_PRELOAD=%s exec %s %s")
          :format(setting.environment, n, library, host.path, script), nil, 120)
        if r.err:find("ASan runtime", 1, true) then return end
        local done = failures(r, "allocation " .. n)
        local fired = r.err:find("thrown 1 of", 1, true) ~= nil
        thrown = thrown + (fired and 1 or 0)
        assert.is_true(done < 8 and (fired or done == 0), r.out)
        n = math.ceil(n * FACTOR)
      until not fired
      assert.is_true(thrown > (LONG and 15 or 8), thrown .. " thrown")
    end)
  end
end)

describe("address space that ends #once", function()
  local script, linalg, small
  setup(function()
    linalg = process.file(LINALG .. AGAIN, ".lua")
    script = process.file(SCRIPT .. AGAIN, ".lua")
    small = process.file("assert(require 'tfdist'.ones { 2 }:item(1) == 1)",
      ".lua")
  end)
  teardown(function()
    os.remove(script)
    os.remove(linalg)
    os.remove(small)
  end)


  local function run(setting, path, limit)
    return process.run(("ulimit -v %d; %sexec %s %s"):format(limit,
      setting.environment:gsub("^(.+)$", "export %1; "),
      process.hosts[setting.host].path, path), nil, 120)
  end

  for _, setting in ipairs(SETTINGS) do
    it("is ResourceExhausted, in " .. setting.name, function()
      if run(setting, small, 4e6).code ~= 0 then
        return -- built with a sanitizer, which needs all there is
      end
      local limit, failed = STEP, 0
      while run(setting, small, limit).code ~= 0 do limit = limit + STEP end
      while true do
        local n = failures(run(setting, script, limit), limit .. " KiB")
        if n == 0 then break end
        failed = failed + 1
        limit = limit + STEP
      end
      assert.is_true(failed > 2, failed .. " limits")
    end)

    it("is ResourceExhausted in LAPACK, too, in " .. setting.name, function()
      if run(setting, small, 4e6).code ~= 0 then return end
      local limit, failed = 16 * STEP, 0
      while run(setting, small, limit).code ~= 0 do limit = limit + STEP end
      while failures(run(setting, linalg, limit), limit .. " KiB") > 0 do
        failed = failed + 1
        limit = limit + 16 * STEP
      end
      assert.is_true(failed > 2, failed .. " limits")
    end)
  end
end)
