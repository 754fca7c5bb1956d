--- Memory that runs out at any allocation: the call succeeds after a
--- collection or raises ResourceExhausted, nothing is lost and the state stays
--- as it was.

local errors = require "tfdist.base.errors"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local scripts = require "spec.support.scripts"
local tf = require "tfdist"

local MOST = 3000 -- more allocations than any script makes

local function check_stacks(label)
  assert.equal(0, raw.device_depth(), label .. ": device stack")
  assert.equal(0, raw.tape_active(), label .. ": tapes")
  assert.is_false(tf.distribute.has_strategy(), label .. ": strategy")
  assert.is_true(tf.distribute.in_cross_replica_context() == false,
    label .. ": context")
end

--- Make the n-th allocation of the script fail, with -n all from that on too.
--- Returns whether the script succeeded.
local function fail_at(n, name, script, want)
  local label = ("%s, allocation %d"):format(name, n)
  raw.test_fail_allocation(n)
  local ok, got = pcall(script)
  raw.test_fail_allocation(0)
  check_stacks(label)
  if ok then
    assert.equal(want, got, label)
  else
    assert.is_true(errors.is_error(got), label .. ": " .. tostring(got))
    assert.equal("ResourceExhausted", got.kind, label .. ": " .. tostring(got))
  end
  -- The library is as good as before.
  assert.equal(want, script(), label .. ", once more")
  return ok
end

describe("an allocation that fails", function()
  replicas.leaks(before_each, after_each)

  after_each(function()
    raw.test_fail_allocation(0)
  end)

  for name, script in pairs(scripts) do
    it(("anywhere in %s is survived"):format(name), function()
      local want = script()
      -- Without any memory from the n-th allocation on: until it makes fewer.
      local made
      for n = 1, MOST do
        if fail_at(-n, name, script, want) then
          made = n - 1
          break
        end
        if n % 100 == 0 then raw.collect() end
      end
      assert.is_true(made ~= nil, "it makes more allocations than " .. MOST)
      -- One failure alone: most are cured by a collection.
      for n = 1, made do fail_at(n, name, script, want) end
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

describe("a process whose allocations fail from one on #once", function()
  -- Caches are cold in a process of its own: here every kind of allocation
  -- has its turn, those of the start too.
  local SCRIPT = [[
    local scripts = require "spec.support.scripts"
    for _, name in ipairs { "tensors", "ops", "gradients", "rows", "scopes",
      "replicas" } do scripts[name]() end
    print "done"
  ]]

  for _, host in ipairs(process.hosts) do
    it("ends with ResourceExhausted in " .. host.name, function()
      local path = process.file(SCRIPT, ".lua")
      local n, failed, done = 1, 0, false
      while not done and n < 100000 do
        local r = process.run(("env LUA_PATH='./?.lua;;' TFDIST_CPU_DEVICES=2 "
          .. "TFDIST_FAIL_ALLOC=-%d %s %s"):format(n, host.path, path))
        local label = ("%s, allocation %d: %s"):format(host.name, n, r.err)
        done = r.code == 0 and r.out == "done\n"
        if not done then
          failed = failed + 1
          assert.equal(1, r.code, label)
          assert.is_true(r.err:find "ResourceExhausted" ~= nil
            or r.err:find "out of memory" ~= nil
            or r.err:find "not enough memory" ~= nil, label)
        end
        n = math.ceil(n * 1.2)
      end
      os.remove(path)
      assert.is_true(done and failed > 10, failed .. " failures")
    end)
  end
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
