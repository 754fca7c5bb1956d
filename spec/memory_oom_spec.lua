--- Memory that runs out at any allocation: the call succeeds after a
--- collection or raises ResourceExhausted, nothing is lost and the state stays
--- as it was.

local errors = require "tfdist.errors"
local leaks = require "spec.support.leaks"
local process = require "spec.support.process"
local raw = require "tfdist.raw"
local tf = require "tfdist"

local MOST = 1000 -- more allocations than any script makes

--- Scripts that use a part of the library each and return numbers.
local SCRIPTS = {}

function SCRIPTS.tensors()
  local x = tf.constant { { 1, 2, 3 }, { 4, 5, 6 } }
  local y = tf.concat({ x, tf.ones { 1, 3 } }, 0)
  local z = tf.stack({ y[0], y[{ 1 }], y[-1] }, 0)
  return tf.reduce_sum(tf.transpose(z)):item() + #y + y:totable()[3][1]
end

function SCRIPTS.ops()
  local x = tf.reshape(tf.range(12, { dtype = "float32" }), { 3, 4 })
  local parts = tf.unstack(x, { axis = 1 })
  local sums = tf.add_n(parts)
  local top = tf.math.top_k(sums, 2)
  local image = tf.reshape(x, { 1, 3, 4, 1 })
  local conv = tf.nn.conv2d(image, tf.ones { 2, 2, 1, 1 }, 1, "SAME")
  local where = tf.where(tf.greater(x, 5), x, tf.zeros_like(x))
  return tf.reduce_sum(tf.matmul(x, x, { transpose_b = true })):item()
    + tf.reduce_max(conv):item() + top:item(0) + tf.reduce_sum(where):item()
end

function SCRIPTS.gradients()
  local w = tf.Variable { { 1, 2 }, { 3, 4 } }
  local x = tf.constant { { 1, 0 }, { 0, 2 } }
  local tape, loss = tf.GradientTape(function()
    return tf.reduce_sum(tf.square(tf.tanh(tf.matmul(x, w))))
  end)
  local gradient = tape:gradient(loss, w)
  w:assign_sub(gradient * 0.5)
  return tf.reduce_sum(w):item()
end

function SCRIPTS.rows()
  local table_ = tf.Variable(tf.ones { 5, 2 })
  local tape, loss = tf.GradientTape(function()
    return tf.reduce_sum(tf.gather(table_, { 1, 3, 1 }))
  end)
  local slices = tape:gradient(loss, table_)
  table_:scatter_sub(slices)
  return tf.reduce_sum(tf.convert_to_tensor(slices)):item()
    + tf.reduce_sum(table_):item()
end

function SCRIPTS.scopes()
  return tf.device("/cpu:0", function()
    return tf.tidy(function()
      local x = tf.fill({ 4 }, 2)
      return tf.reduce_sum(x * x)
    end):item()
  end)
end

local function check_stacks(label)
  assert.equal(0, raw.device_depth(), label .. ": device stack")
  assert.equal(0, raw.tape_active(), label .. ": tapes")
end

describe("an allocation that fails", function()
  leaks(before_each, after_each)

  after_each(function()
    raw.test_fail_allocation(0)
  end)

  for name, script in pairs(SCRIPTS) do
    it(("anywhere in %s is survived"):format(name), function()
      local want = script()
      local failed = 0
      for n = 1, MOST do
        raw.test_fail_allocation(n)
        local ok, got = pcall(script)
        raw.test_fail_allocation(0)
        local label = ("%s, allocation %d"):format(name, n)
        check_stacks(label)
        if ok then
          assert.equal(want, got, label)
        else
          failed = failed + 1
          assert.is_true(errors.is_error(got), label .. ": " .. tostring(got))
          assert.equal("ResourceExhausted", got.kind,
            label .. ": " .. tostring(got))
        end
        -- The library is as good as before.
        assert.equal(want, script(), label .. ", once more")
        if n % 100 == 0 then raw.collect() end
      end
      assert.is_true(failed < MOST)
    end)
  end

  it("leaves a variable as it was", function()
    local v = tf.Variable { 1, 2, 3 }
    for n = 1, 40 do
      raw.test_fail_allocation(n)
      local ok = pcall(v.assign, v, { 4, 5, 6 })
      raw.test_fail_allocation(0)
      assert.same(ok and { 4, 5, 6 } or { 1, 2, 3 }, v:totable())
      v:assign { 1, 2, 3 }
    end
  end)
end)

describe("a memory limit", function()
  local LIMITED = [[
    local tf = require "tfdist"
    local keep = {}
    local ok, e = pcall(function()
      for i = 1, 100 do keep[i] = tf.zeros { 256, 1024 } end
    end)
    assert(not ok and e.kind == "ResourceExhausted", tostring(e))
    print(e.message)
    -- What was there is good, and dropping it makes room.
    assert(keep[1]:item(262143) == 0)
    keep = nil
    collectgarbage() collectgarbage()
    assert(tf.reduce_sum(tf.ones { 256, 1024 }):item() == 262144)
  ]]

  it("is ResourceExhausted that names the largest tensors", function()
    local path = process.file(LIMITED, ".lua")
    for _, host in ipairs(process.hosts) do
      local r = process.run("TFDIST_MEMORY_LIMIT=16777216 " .. host.path .. " "
        .. path)
      assert.equal("", r.err, host.name)
      assert.equal(0, r.code, host.name)
      assert.matches("out of memory on /cpu:0: 1048576 bytes", r.out)
      assert.matches("float32 {256, 1024}", r.out)
    end
    os.remove(path)
  end)
end)
