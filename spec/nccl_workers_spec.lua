-- Sums between the GPUs of several workers by NCCL, without either: the
-- stand-ins of spec/support/cuda, each worker a process with GPUs of its own.
local files = require "spec.support.files"
local process = require "spec.support.process"
local standins = require "spec.support.standins"
local workers = require "spec.support.workers"

-- given.gpus of each worker (1); given.shared: all workers have the same ones;
-- given.also: the environment of worker i, a function; the rest is
-- workers.run's.
local function on_standins(given)
  local gpus = given.gpus or 1
  given.environment = ("TFDIST_PLUGINS=%s:%s TFDIST_CUDA_STANDIN=%s "
    .. "TFDIST_STRICT_FP32=1 TFD_STANDIN_DEVICES=%d %s"):format(standins.CUDA,
    standins.NCCL, standins.FOLDER, gpus, given.environment or "")
  given.each = function(i)
    return ("TFD_STANDIN_FIRST=%d %s"):format(given.shared and 0 or i * gpus,
      given.also and given.also(i) or "")
  end
  given.seconds = 600
  return files.in_folder(function(folder)
    given.environment = given.environment .. " FOLDER=" .. folder
    return workers.run(given)
  end)
end

local function outputs(given)
  local outs = {}
  for i, r in ipairs(on_standins(given)) do
    assert.equal(0, r.code, r.err)
    outs[i] = r.out
  end
  return outs
end

local function says(expected, text)
  assert.matches(expected, text, 1, true)
end

-- A sum, a mean, a gather of unequal parts, a variable of the chief's, minimum
-- of whole numbers.
local COLLECTIVES = [[
  local c = tf.distribute.get_replica_context
  print(locals(s:run(function()
    return c():all_reduce("SUM", tf.fill({ 3 }, id() + 1.0))
  end)))
  print(locals(s:run(function()
    return c():all_reduce("MEAN", tf.cast(tf.fill({ 2 }, id()), "float16"))
  end)))
  print(locals(s:run(function()
    return c():all_gather(tf.fill({ id() % 2 + 1, 2 }, id()), 0)
  end)))
  print(show(s:scope(function() return tf.Variable { w + 5.0, w + 6.0 } end)))
  local per_replica = s:run(function() return tf.constant(id() + 3) end)
  print(show(s:reduce("SUM", per_replica)))
]]

-- Steps of one sum each; the first failure is said, and ends the program. All
-- have ended the first before one begins the second.
local STEPS = [[
  local function step(k)
    return s:run(function()
      return tf.distribute.get_replica_context():all_reduce("SUM",
        tf.fill({ 3 }, id() + k))
    end)
  end
  for k = 1, 3 do
    local ok, e = pcall(function()
      local sum = step(k)
      if k == 2 then in_between() end
      return locals(sum)
    end)
    print(k, ok and e or e.kind .. ": " .. e.message)
    if not ok then error(e, 0) end
    if k == 1 then
      put("first-" .. w)
      take "first-0"
      take "first-1"
    end
  end
]]
local function steps(in_between)
  return 'local FOLDER = os.getenv "FOLDER"\n' .. workers.TALK .. workers.HEAD
    .. ("local function in_between() %s end\n"):format(in_between or "")
    .. STEPS
end
-- Collectives before those of the steps: the first one, and what the chief says
-- (its shape, its text).
local BEFORE = 3

describe("sums between GPUs of several workers by NCCL #once", function()
  if not standins.exists(standins.FOLDER .. "/libnccl.so.2")
     or not standins.exists(standins.NCCL) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  it("train a network to the CPU's losses on 1x2, 2x1 and 2x2", function()
    local want = standins.script(standins.TRAINING:format '"/cpu:0"', "")
    local program = standins.training
      "tf.distribute.MultiWorkerMirroredStrategy()"
    assert.equal(0, want.code, want.err)
    for _, shape in ipairs { { 1, 2 }, { 2, 1 }, { 2, 2 } } do
      local outs = outputs { program = program, n = shape[1], gpus = shape[2],
        environment = "TFD_STANDIN_SEED=5" }
      for i = 1, shape[1] do
        assert.equal("", standins.apart(want.out, outs[i]))
        assert.equal(outs[1], outs[i])
      end
    end
  end)

  it("are those of all replicas, where workers share GPUs too", function()
    local program = workers.HEAD .. COLLECTIVES
    for _, shared in ipairs { false, true } do
      local results = on_standins { program = program, gpus = 2,
        shared = shared, environment = "TFDIST_LOG=info" }
      for _, r in ipairs(results) do
        assert.equal(0, r.code, r.err)
        assert.equal(table.concat({ "10 10 10 | 10 10 10", "1.5 1.5 | 1.5 1.5",
          ("0 0 1 1 1 1 2 2 3 3 3 3 | "):rep(2):sub(1, -4), "5 6", "18", "" },
          "\n"), r.out)
      end
      says(shared and "collectives: through memory of the hosts"
        or "collectives: NCCL", results[1].err)
      if shared then
        says("needs a GPU for each rank; ranks 0 and 2, of processes 0 and 1, "
          .. "share one", results[2].err)
      end
    end
  end)

  it("go through the hosts where one worker has no NCCL", function()
    local folder = os.tmpname()
    os.remove(folder)
    assert.equal(0, process.run(('mkdir %s && ln -s "$PWD"/%s/libcu* %s')
      :format(folder, standins.FOLDER, folder)).code)
    local results = on_standins { program = workers.HEAD .. COLLECTIVES,
      gpus = 2, environment = "LD_LIBRARY_PATH=", also = function(i)
        return i == 1 and "TFDIST_CUDA_STANDIN=" .. folder or ""
      end }
    process.run("rm -r " .. folder)
    for _, r in ipairs(results) do
      assert.equal(0, r.code, r.err)
      says("10 10 10 | 10 10 10\n", r.out)
    end
    says("collectives: through memory of the hosts", results[1].err)
  end)

  it("are refused where the workers call different ones", function()
    local program = workers.HEAD .. [[
      s:run(function()
        local c = tf.distribute.get_replica_context()
        if w == 0 then return c:all_reduce("SUM", tf.fill({ 3 }, 1.0)) end
        return c:all_reduce("MEAN", tf.fill({ 3 }, 1.0))
      end)
    ]]
    for _, r in ipairs(on_standins { program = program }) do
      assert.equal(77, r.code)
      says("RuntimeError: the processes run apart: process 0 calls all_reduce "
        .. "sum of float32[3] at ", r.err)
      says(", process 1 calls all_reduce mean of float32[3] at ", r.err)
    end
  end)

  it("end when a worker is killed, before one or in one", function()
    local KILL = [[if w == 1 then
      local f = io.open "/proc/self/stat"
      os.execute("kill -9 " .. f:read "*a":match "^%d+")
    end]]
    for _, hang in ipairs { "", ("TFD_STANDIN_NCCL=hang=%d"):format(BEFORE + 2) } do
      local results = on_standins { program = steps(KILL), environment = hang }
      assert.equal(75, results[1].code, results[1].err)
      assert.equal(137, results[2].code)
      says("Aborted: all_reduce: the workers cannot go on together: "
        .. "process 1 of 2 is gone: its connection ended without a farewell",
        results[1].out)
    end
  end)

  it("end everywhere when one never ends, fails, or cannot begin", function()
    local cases = {
      -- In both, and the second worker's alone: the first one hears of it.
      { "TFDIST_OP_TIMEOUT=10 TFD_STANDIN_NCCL=hang=%d", "",
        "not done by NCCL on /gpu:0 to /gpu:1 within 10 s" },
      { "", "TFD_STANDIN_NCCL=error=%d", "a GPU has failed (ordered)" },
      { "", "TFD_STANDIN_NCCL=issue=%d", "the call has failed (ordered)" },
    }
    for _, case in ipairs(cases) do
      local results = on_standins { program = steps(), gpus = 2,
        environment = case[1]:format(BEFORE + 2), also = function(i)
          return i == 1 and case[2]:format(BEFORE + 2) or ""
        end }
      for _, r in ipairs(results) do
        assert.equal(75, r.code, r.err)
        says("1\t10 10 10 | 10 10 10\n", r.out)
        says(case[3], r.out)
      end
    end
  end)

  it("are none, anywhere, of what a kernel refused in one", function()
    local program = workers.HEAD .. [[
      local v = s:scope(function() return tf.Variable { 1.0, 2.0 } end)
      for k = 1, 2 do
        local ok, e = pcall(function()
          local sum = s:run(function()
            local at = id() == 1 and k == 2 and 7 or 1
            local sum = tf.distribute.get_replica_context():all_reduce("SUM",
              tf.gather(tf.constant { 1.0, 2.0, 3.0 }, tf.constant({ at, 0 },
                { dtype = "int32" })))
            v:assign_add(sum)
            return sum
          end)
          return locals(sum)
        end)
        print(k, ok and e or e.message)
        print(show(v))
      end
    ]]
    for gpus = 1, 2 do
      local results = on_standins { program = program, gpus = gpus,
        environment = "TFD_STANDIN_SEED=3" }
      for _, r in ipairs(results) do
        assert.equal(0, r.code, r.err)
        assert.matches("^1\t[^\n]*\n(%d+ %d+)\n2\t[^\n]*gather: indices%[0%] = 7 "
          .. "is outside %[0, 3%)[^\n]*\n%1\n$", r.out)
      end
    end
  end)

  it("are told when the GPUs cannot be connected", function()
    local results = on_standins { program = steps(), environment =
      "TFDIST_OP_TIMEOUT=10 TFD_STANDIN_NCCL=connect=-1" }
    for _, r in ipairs(results) do
      assert.equal(75, r.code) -- a start anew may connect them
      says("connecting GPUs", r.err)
    end
  end)
end)
