-- Programs on several GPUs with sums by NCCL, without either: the stand-ins of
-- spec/support/cuda.
local process = require "spec.support.process"
local standins = require "spec.support.standins"

local on_standins = standins.run

-- Steps of one sum each; says what went wrong, and goes on.
local STEPS = [[
local tf = require "tfdist"
local s = tf.distribute.MirroredStrategy()
for step = 1, 4 do
  local ok, e = pcall(function()
    local sum = s:run(function()
      local id = tf.distribute.get_replica_context().replica_id_in_sync_group
      return tf.distribute.get_replica_context():all_reduce("SUM",
        tf.fill({ 3 }, id + step))
    end)
    return s:experimental_local_results(sum)[2]:item(1)
  end)
  print(step, ok and e or e.kind .. ": " .. e.message)
end
]]

describe("sums between GPUs by NCCL #once", function()
  if not standins.exists(standins.FOLDER .. "/libnccl.so.2")
     or not standins.exists(standins.NCCL) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  it("train a network to the CPU's losses, two and four of them", function()
    local want = standins.script(standins.TRAINING:format '"/cpu:0"', "")
    assert.equal(0, want.code, want.err)
    for n, devices in pairs { [2] = '"/gpu:0", "/gpu:1"',
      [4] = '"/gpu:0", "/gpu:1", "/gpu:2", "/gpu:3"' } do
      local got = on_standins(standins.TRAINING:format(devices),
        ("TFD_STANDIN_DEVICES=%d TFD_STANDIN_SEED=%d"):format(n, n))
      assert.equal(0, got.code, got.err)
      assert.equal("", standins.apart(want.out, got.out))
    end
  end)

  it("are the same whenever their work is done: at once, meanwhile", function()
    local want = standins.script(standins.TRAINING:format '"/cpu:0"', "")
    for _, mode in ipairs { "serial", "alone" } do
      local got = on_standins(standins.TRAINING:format '"/gpu:0", "/gpu:1"',
        "TFD_STANDIN_MODE=" .. mode)
      assert.equal(0, got.code, mode .. got.err)
      assert.equal("", standins.apart(want.out, got.out), mode)
    end
  end)

  it("are those of an optimizer's gradients, each once in a step", function()
    local text = [[
      local tf = require "tfdist"
      local s = tf.distribute.MirroredStrategy()
      local v, w, sgd = s:scope(function()
        return tf.Variable { 1.0, 2.0 }, tf.Variable(3.0),
          tf.keras.optimizers.SGD(1.0)
      end)
      local function update()
        s:run(function()
          sgd:apply_gradients({ tf.ones { 2 }, tf.ones {} }, { v, w })
        end)
      end
      if TRACED then update = tf.function_(update) end
      for step = 1, 4 do
        local ok, e = pcall(update)
        if not ok then
          print(step, e.kind)
          break
        end
      end
    ]]
    -- The first one is made before; a step has two.
    for number, step in pairs { [2] = 1, [3] = 1, [4] = 2, [9] = 4 } do
      local r = on_standins(text:gsub("TRACED", tostring(number % 2 == 0)),
        "TFD_STANDIN_NCCL=issue=" .. number)
      assert.equal(step .. "\tInternal\n", r.out, r.err)
    end
  end)

  it("are those of traced functions, and of gradients that are clipped", function()
    local text = [[
      local tf = require "tfdist"
      local s = tf.distribute.MirroredStrategy()
      local c = tf.distribute.get_replica_context
      local v, sgd = s:scope(function()
        return tf.Variable { 3.0, 4.0 }, tf.keras.optimizers.SGD {
          learning_rate = 1.0, %s }
      end)
      local step = tf.function_(function()
        return s:run(function() %s end)
      end)
      for number = 1, 3 do
        local ok, e = pcall(function()
          local values = s:experimental_local_results(step())
          assert(values[1]:item(1) == values[2]:item(1))
          return ("%%g %%g"):format(values[2]:item(0), values[2]:item(1))
        end)
        print(number, ok and e or e.kind)
      end
    ]]
    local clipped = "sgd:apply_gradients({ v * 1 }, { v }) return v + 0"
    local means = [[
      local id = c().replica_id_in_sync_group
      local t = c():all_reduce("MEAN", { v * (id + 1), tf.ones_like(v) * id,
        tf.cast(v, "int32") }) -- of whole numbers NCCL has none
      return t[1] + t[2] + tf.cast(t[3], "float32")
    ]]
    -- The first one is made before any of the script's: here that of the second
    -- step fails. What has its value while it is traced needs none.
    for _, case in ipairs {
      { "", "return c():all_reduce('SUM', v * 2)", 3, "12 16", "Internal",
        "12 16" },
      { "", means, 4, "8 10.5", "Internal", "8 10.5" },
      { "", "return c():all_reduce('SUM', tf.fill({ 2 }, 3.0)) + v", 2, "9 10",
        "9 10", "9 10" },
      { "clipvalue = 1", clipped, 3, "2 3", "Internal", "1 2" },
      { "global_clipnorm = 5", clipped, 3, "0 0", "Internal", "0 0" },
    } do
      local r = on_standins(text:format(case[1], case[2]),
        ("TFD_STANDIN_NCCL=once=1,issue=%d"):format(case[3]))
      assert.equal(("1\t%s\n2\t%s\n3\t%s\n"):format(case[4], case[5],
        case[6]), r.out, case[1] .. case[2] .. r.err)
    end
  end)

  it("are told when a GPU fails, and go on with new connections", function()
    -- The first one is made before any of the script's.
    local r = on_standins(STEPS, "TFD_STANDIN_NCCL=error=3,once=1")
    assert.equal(0, r.code, r.err)
    assert.equal("1\t3.0\n2\tInternal: all_reduce: NCCL: remote process exited or "
      .. "there was a network error: a GPU has failed (ordered)\n3\t7.0\n"
      .. "4\t9.0\n", r.out)
  end)

  it("are told when one never ends, and go on with new connections", function()
    local r = on_standins(STEPS, "TFDIST_OP_TIMEOUT=5 "
      .. "TFD_STANDIN_NCCL=hang=4,once=1")
    assert.equal(0, r.code, r.err)
    assert.equal("1\t3.0\n2\t5.0\n3\tDeadlineExceeded: all_reduce: not done by "
      .. "NCCL on /gpu:0 to /gpu:1 within 5 s\n4\t9.0\n", r.out)
  end)

  it("are not given a limit that is no number of seconds", function()
    local text = [[
      local ok, e = pcall(require "tfdist".distribute.MirroredStrategy)
      print(ok or e.kind .. ": " .. e.message)
    ]]
    for _, limit in ipairs { "5m", "x", "-1", "0", "nan", "inf" } do
      assert.equal("ValueError: TFDIST_OP_TIMEOUT: expected a number of seconds "
        .. ("above 0, got %q\n"):format(limit),
        on_standins(text, "TFDIST_OP_TIMEOUT=" .. limit).out)
    end
    for _, limit in ipairs { "", "7", "0.5", "1e9" } do
      assert.equal("true\n",
        on_standins(text, "TFDIST_OP_TIMEOUT=" .. limit).out)
    end
  end)

  it("are told when one never ends, however much is begun behind it", function()
    local r = on_standins([[
      local tf = require "tfdist"
      local s = tf.distribute.MirroredStrategy()
      local at = s:run(function() return tf.constant({ 1 }, { dtype = "int32" }) end)
      local x = s:run(function() return tf.constant { 1.0, 2.0 } end)
      local c = tf.distribute.get_replica_context
      local function gather(x, at)
        if c().replica_id_in_sync_group == 0 then return x end
        return tf.gather(x, at)
      end
      local ok, e = pcall(function()
        -- GPU 1 has room for 512 launches that may refuse a value. The first
        -- step takes one, each of the others one for its own and one for what
        -- GPU 0 may have refused: that is the one for which there is no room.
        for _ = 1, 300 do
          s:run(function(x, at)
            gather(x, at)
            c():all_reduce("SUM", x)
          end, { x, at })
        end
      end)
      print(ok)
      ok, e = pcall(tf.device, "/gpu:1", function()
        return (tf.ones { 1 } * 1):item(0)
      end)
      print(ok, not ok and e.message)
    ]], "TFDIST_OP_TIMEOUT=2 TFD_STANDIN_NCCL=hang=2,once=1")
    assert.equal("false\nfalse\tall_reduce: not done by NCCL on /gpu:0 to /gpu:1 "
      .. "within 2 s\n", r.out)
  end)

  it("are told when one never ends, and nothing more can be begun", function()
    local text = [[
      local tf = require "tfdist"
      local s = tf.distribute.MirroredStrategy()
      local c = tf.distribute.get_replica_context
      local x = s:run(function() return tf.ones { 2 } end)
      local sum
      for _ = 1, 60 do
        sum = s:run(function(x)
          for _ = 1, %d do x = x * 1 end
          return c():all_reduce("SUM", x)
        end, { x })
      end
      local ok, e = pcall(function()
        return s:experimental_local_results(sum)[2]:item(0)
      end)
      print(ok, ok or e.message)
    ]]
    -- Work between sums says what finds no room first.
    for _, ops in ipairs(os.getenv "TFD_LONG" and { 0, 1, 2, 3, 4 } or { 0 }) do
      local r = on_standins(text:format(ops), "TFDIST_OP_TIMEOUT=2 "
        .. "TFD_STANDIN_TAKES=64 TFD_STANDIN_NCCL=once=1,hang=2")
      assert.equal("false\tall_reduce: not done by NCCL on /gpu:0 to /gpu:1 "
        .. "within 2 s\n", r.out, ops .. r.err)
    end
  end)

  it("are told when the last of many never ends", function()
    local r = on_standins([[
      local tf = require "tfdist"
      local s = tf.distribute.MirroredStrategy()
      local sum
      for _ = 1, 60 do
        sum = s:run(function()
          return tf.distribute.get_replica_context():all_reduce("SUM",
            tf.ones { 2 })
        end)
      end
      local ok, e = pcall(function()
        return s:experimental_local_results(sum)[2]:item(0)
      end)
      print(ok, ok or e.message)
    ]], "TFDIST_OP_TIMEOUT=2 TFD_STANDIN_NCCL=once=1,hang=61")
    assert.equal("false\tall_reduce: not done by NCCL on /gpu:0 to /gpu:1 "
      .. "within 2 s\n", r.out, r.err)
  end)

  it("are told when one never ends, with groups to be ended behind it", function()
    local r = on_standins([[
      local tf = require "tfdist"
      local function sum_in(s)
        return s:run(function()
          return tf.distribute.get_replica_context():all_reduce("SUM",
            tf.ones { 2 })
        end)
      end
      local function value(s, x)
        return s:experimental_local_results(x)[2]:item(0)
      end
      local s, other = tf.distribute.MirroredStrategy(),
        tf.distribute.MirroredStrategy()
      print(value(s, sum_in(s)), value(other, sum_in(other)))
      local never = sum_in(s)
      other = nil
      collectgarbage()
      collectgarbage()
      local ok, e = pcall(value, s, never)
      print(ok, e.message)
    ]], "TFDIST_OP_TIMEOUT=2 TFD_STANDIN_MODE=threads "
      .. "TFD_STANDIN_NCCL=hang=3") -- the other one has two
    assert.equal("2.0\t2.0\nfalse\tall_reduce: not done by NCCL on /gpu:0 to "
      .. "/gpu:1 within 2 s\n", r.out, r.err)
  end)

  it("end with 78 when a GPU is lost, and nothing waits for it then", function()
    for call = 345, 363, 6 do -- other threads work there meanwhile
      local r = on_standins(STEPS:gsub("print%(step, .*", "if not ok then "
        .. "error(e, 0) end\nend"), "TFD_STANDIN_MODE=threads "
        .. "TFD_STANDIN_FAIL=700@" .. call)
      assert.is_true(r.code == 78 or r.code == 0, call .. ": " .. r.err)
    end
  end)

  it("end with 78 when a GPU is lost that another one waits for", function()
    local r = on_standins(STEPS:gsub("print%(step, .*", "if not ok then "
      .. "error(e, 0) end\nend"), "TFD_STANDIN_NCCL=spoil=2")
    assert.equal(78, r.code, r.err)
    assert.matches("^[^\n]*: /gpu:1: error 719 ", r.err)
  end)

  it("end with 78 when a GPU is lost while they are made", function()
    local lost = 0
    for call = 213, 258, 9 do -- connecting, and the first one
      local r = on_standins(STEPS:gsub("print%(step, .*", "if not ok then "
        .. "error(e, 0) end\nend"), "TFD_STANDIN_FAIL=719@" .. call)
      assert.is_true(r.code == 78 or r.code == 0, call .. ": " .. r.err)
      lost = lost + (r.code == 78 and 1 or 0)
    end
    assert.is_true(lost >= 4, lost .. " losses")
  end)

  it("leave variables as they were when one fails", function()
    local text = [[
      local tf = require "tfdist"
      local s = tf.distribute.MirroredStrategy { devices = { "/gpu:0", "/gpu:1" } }
      local v, sgd = s:scope(function()
        return tf.Variable { 1.0, 2.0 }, tf.keras.optimizers.SGD(1.0)
      end)
      local w = tf.device("/gpu:2", function() return tf.Variable { 1.0, 2.0 } end)
      local function value()
        local parts = s:experimental_local_results(v)
        return ("%g %g %g"):format(parts[1]:item(0), parts[2]:item(0), w:item(0))
      end
      for step = 1, 4 do
        local ok, e = pcall(function()
          local sum = s:run(function()
            local sum = tf.distribute.get_replica_context():all_reduce("SUM",
              tf.ones_like(v))
            sgd:apply_gradients({ sum }, { v })
            return sum
          end)
          tf.device("/gpu:2", function() -- another GPU has it from one of them
            w:assign_add(s:experimental_local_results(sum)[1])
          end)
          return step > 1 and value() or ""
        end)
        print(step, ok and e or e.kind .. " " .. value())
      end
    ]]
    -- The second step's: the sum itself, that of the gradients.
    for number, want in pairs {
      [4] = "1\t\n2\tInternal -3 -3 3\n3\t-7 -7 5\n4\t-11 -11 7\n",
      [5] = "1\t\n2\tInternal -3 -3 5\n3\t-7 -7 7\n4\t-11 -11 9\n" } do
      local r = on_standins(text, "TFD_STANDIN_DEVICES=3 TFD_STANDIN_NCCL="
        .. ("error=%d,once=1"):format(number))
      assert.equal(0, r.code, r.err)
      assert.equal(want, r.out)
    end
  end)

  it("leave what was written before one that fails", function()
    local r = on_standins([[
      local tf = require "tfdist"
      local s = tf.distribute.MirroredStrategy()
      local v = s:scope(function() return tf.Variable { 1.0, 2.0 } end)
      local function sum(x)
        return tf.distribute.get_replica_context():all_reduce("SUM", x)
      end
      local first = s:run(function() return sum(tf.ones { 2 }) end)
      for _, part in ipairs(s:experimental_local_results(first)) do
        part:item(0)
      end
      local ok, e = pcall(s.run, s, function()
        local x = tf.ones { 2 }
        for _ = 1, 50 do x = x * 1 end -- the GPUs come to what follows later
        v:assign_add(x)
        return sum(sum(x)) -- the second one's call fails
      end)
      print(ok, not ok and e.kind)
      for _, part in ipairs(s:experimental_local_results(v)) do
        print(part:item(0))
      end
      print(pcall(tf.device, "/gpu:0", function() -- the first one's was lost
        return (tf.ones { 2 } * 1):item(0)
      end))
    ]], "TFD_STANDIN_NCCL=issue=4,once=1")
    assert.equal(0, r.code, r.err)
    assert.matches("^false\tInternal\n2.0\n2.0\nfalse\t.*%(ordered%)\n$", r.out)
  end)

  it("pass through the host where NCCL is not there, which is said", function()
    local folder = os.tmpname()
    os.remove(folder)
    assert.equal(0, process.run(('mkdir %s && ln -s "$PWD"/%s/libcu* %s')
      :format(folder, standins.FOLDER, folder)).code)
    local others = ("TFDIST_CUDA_STANDIN=%s LD_LIBRARY_PATH="):format(folder)
    local r = on_standins(STEPS, others)
    local list = process.run(("env TFDIST_PLUGINS=%s:%s TFD_STANDIN_DEVICES=2 "
      .. "%s %s devices"):format(standins.CUDA, standins.NCCL, others,
      standins.HOST))
    process.run("rm -r " .. folder)
    assert.equal("", r.err)
    assert.equal("1\t3.0\n2\t5.0\n3\t7.0\n4\t9.0\n", r.out)
    assert.matches("sums between GPUs: no NCCL: libnccl.so.2 cannot be opened",
      list.out, 1, true)
  end)

  it("are known for what they are", function()
    local r = on_standins [[
      local tf = require "tfdist"
      local D = tf.distribute
      print(D.MirroredStrategy())
      print(D.MirroredStrategy { cross_device_ops = D.NcclAllReduce(2) })
    ]]
    assert.equal("", r.err)
    assert.equal("MirroredStrategy{ /gpu:0, /gpu:1 }  2 replicas in sync, "
      .. "reduction: NCCL\nMirroredStrategy{ /gpu:0, /gpu:1 }  2 replicas in "
      .. "sync, reduction: NcclAllReduce (num_packs = 2)\n", r.out)
    local doctor = process.run(("env TFDIST_PLUGINS=%s:%s "
      .. "TFDIST_CUDA_STANDIN=%s %s doctor"):format(standins.CUDA,
      standins.NCCL, standins.FOLDER, standins.HOST))
    assert.matches("1 stand%-in%(s%) for GPUs, which are none", doctor.out)
    assert.is_nil(doctor.out:match "1 GPU%(s%)")
  end)
end)
