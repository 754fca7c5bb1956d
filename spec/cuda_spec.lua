-- Programs on GPU devices, without a GPU: the stand-ins of spec/support/cuda
-- run the plug-in's kernels on a model of one.
local process = require "spec.support.process"
local ptxas = require "spec.support.ptxas"
local standins = require "spec.support.standins"

local STANDIN, PLUGIN = standins.FOLDER, standins.CUDA
local HOST, exists = standins.HOST, standins.exists
local script, on_standin = standins.script, standins.run
local TRAINING = standins.TRAINING

-- What the model and its checker say of each planted bug (planted.cu).
local PLANTED = {
  no_barrier = "nobody wrote it: .* of shared memory",
  write_after_read = "race: read by another thread meanwhile: .* shared",
  -- By the order of the threads.
  no_warp_barrier = { "race: written by another thread", "nobody wrote it" },
  some_leave = "a barrier is waited for by 100 threads, 156 have left",
  two_barriers = "barriers of lines %d+ and %d+ are waited for at once",
  few_lanes = "stuck: 192 of 256 threads are done, 0 wait at barriers, 64 at",
  past_shared = "outside its array: .* writes 4 bytes of shared memory",
  past_device = "outside what was allocated: thread 255 of block 1 writes 4",
  never_written = "nobody wrote it: thread 0 of block %d reads 4 bytes",
  two_blocks = "race: written by another thread meanwhile: .* device memory",
  misaligned = "misaligned: .* writes 16 bytes of device memory",
}

describe("the CUDA plug-in without a GPU #once", function()
  if not exists(PLUGIN) then
    pending("the plug-in was not built: no CUDA toolkit here")
    return
  end

  it("says why there is no GPU", function()
    local r = process.run(("env TFDIST_PLUGINS=%s TFDIST_CUDA_STANDIN=/none "
      .. "%s devices"):format(PLUGIN, HOST))
    assert.equal(0, r.code)
    assert.matches("no NVIDIA driver: libcuda.so.1 cannot be opened",
      r.out .. r.err, 1, true)
  end)
end)

describe("kernels compiled for GPUs #once", function()
  if not exists(STANDIN .. "/list") or not exists(PLUGIN) then
    pending("the plug-in was not built: no CUDA toolkit here")
    return
  end

  it("spill nothing, fit their launch bounds, need what is recorded", function()
    local arguments, n = ptxas.arguments(), 0
    local version, recorded = ptxas.recorded()
    for name, kernel in pairs(ptxas.kernels()) do
      n = n + 1
      for _, arch in ipairs(ptxas.ARCHS) do
        local k = assert(kernel[arch], name .. " is not there for " .. arch)
        assert.equal(0, k.spills, name)
        assert.is_true(k.registers * arguments[name].threads <= 65536, name)
      end
      -- Other compilers allocate in other ways.
      if version == ptxas.version() then
        assert.equal(recorded[name], ptxas.row(kernel), name)
      end
      recorded[name] = nil
    end
    assert.is_true(n > 100, n .. " kernels")
    assert.is_nil(next(recorded))
  end)

  it("take what the host packs", function()
    local arguments = ptxas.arguments()
    local r = process.run(STANDIN .. "/list")
    assert.equal(0, r.code, r.err)
    for name, threads, bytes in r.out:gmatch "(%S+) (%d+) (%d+)" do
      assert.same({ threads = tonumber(threads), bytes = tonumber(bytes) },
        arguments[name], name)
      arguments[name] = nil
    end
    assert.is_nil(next(arguments))
  end)
end)

describe("GPU devices on stand-ins #once", function()
  if not exists(STANDIN .. "/libcudnn.so.9") or not exists(PLUGIN) then
    pending("the stand-ins were not built: no CUDA toolkit here")
    return
  end

  it("are devices like others, named as what they are", function()
    local r = on_standin [[
      local tf = require "tfdist"
      local x = tf.device("/gpu:1", function()
        return tf.constant { { 1, 2 }, { 3, 4 } }
      end)
      local y = tf.matmul(x, x) + tf.reduce_sum(x, { axis = 0 })
      print(y.device, table.concat(y:totable()[1], " "),
        table.concat(y:totable()[2], " "))
    ]]
    assert.equal("", r.err)
    assert.equal("/job:localhost/replica:0/task:0/device:GPU:1\t11.0 16.0\t"
      .. "19.0 28.0\n", r.out)
    assert.equal("MirroredStrategy{ /gpu:0, /gpu:1 }  2 replicas in sync, "
      .. "reduction: NCCL\n", on_standin [[
        print(require("tfdist").distribute.MirroredStrategy())
      ]].out)
    local list = process.run(("env TFDIST_PLUGINS=%s TFDIST_CUDA_STANDIN=%s "
      .. "%s devices"):format(PLUGIN, STANDIN, HOST))
    assert.matches("/gpu:0%s+stand%-in %(no GPU%)", list.out)
  end)

  it("train a network to the CPU's losses, one and two of them", function()
    local want = script(TRAINING:format '"/cpu:0"', "")
    assert.equal(0, want.code, want.err)
    for _, devices in ipairs { '"/gpu:0"', '"/gpu:0", "/gpu:1"' } do
      -- The seed chooses in which order streams and threads go on.
      for seed = 0, 2 do
        local got = on_standin(TRAINING:format(devices),
          "TFD_STANDIN_SEED=" .. seed)
        assert.equal(0, got.code, got.err)
        assert.equal("", standins.apart(want.out, got.out))
      end
    end
  end)

  it("wait for each other however much is under way", function()
    local r = on_standin [[
      local tf = require "tfdist"
      local a = tf.device("/gpu:0", function() return tf.zeros { 4 } end)
      local copies, wrong = {}, 0
      for i = 1, 100 do
        tf.device("/gpu:0", function() for _ = 1, 20 do a = a + 1 end end)
        copies[i] = tf.device("/gpu:1", function() return a * 1 end)
      end
      for i = 100, 1, -1 do
        if copies[i]:totable()[1] ~= 20 * i then wrong = wrong + 1 end
      end
      print(wrong)
    ]]
    assert.equal("", r.err)
    assert.equal("0\n", r.out)
  end)

  it("round what products take to TF32 where they may", function()
    local r = on_standin [[
      local tf = require "tfdist"
      local config = tf.config.experimental
      tf.device("/gpu:0", function()
        local x, one = tf.constant { { 1 + 2 ^ -12 } }, tf.ones { 1, 1 }
        print(config.tensor_float_32_execution_enabled())
        for _, on in ipairs { true, false } do
          config.enable_tensor_float_32_execution(on)
          print((tf.matmul(x, one) - 1):totable()[1][1] * 2 ^ 12)
        end
      end)
    ]]
    assert.equal("", r.err)
    assert.equal("false\n0.0\n1.0\n", r.out)
  end)

  it("round what convolutions take to TF32 where they may", function()
    local r = on_standin [[
      local tf = require "tfdist"
      local config = tf.config.experimental
      tf.device("/gpu:0", function()
        local x = tf.fill({ 1, 1, 1, 1 }, 1 + 2 ^ -12)
        local w = x * 1
        for _, on in ipairs { true, false } do
          config.enable_tensor_float_32_execution(on)
          local tape, y = tf.GradientTape(function(tape)
            tape:watch(x)
            tape:watch(w)
            return tf.nn.conv2d(x, w, 1, "VALID")
          end)
          local g = tape:gradient(y, { x, w })
          print((y - 1):toflat()[1] * 2 ^ 11, (g[1] - 1):toflat()[1] * 2 ^ 12,
            (g[2] - 1):toflat()[1] * 2 ^ 12)
        end
      end)
    ]]
    assert.equal("", r.err)
    assert.equal("0.0\t0.0\t0.0\n1.0\t1.0\t1.0\n", r.out)
  end)

  it("have kernels without races, which are found where they are", function()
    for seed = 0, 4 do
      local found = {}
      local r = process.run(STANDIN .. "/planted " .. seed)
      assert.equal(0, r.code, r.err)
      for name, right, wrong in r.out:gmatch "([^\t\n]+)\t([^\t]+)\t([^\n]+)" do
        found[name] = wrong
        assert.equal("nothing", right, name)
      end
      for name, want in pairs(PLANTED) do
        local said = found[name] or ""
        local texts = type(want) == "table" and want or { want }
        assert.is_truthy(said:match(texts[1]) or texts[2]
          and said:match(texts[2]), ("seed %d, %s: %s"):format(seed, name, said))
      end
    end
    local seed = require "spec.support.seed" % 1000
    local path, ran = os.tmpname(), {}
    for _, program in ipairs { "backend_cuda", "backend_cuda_nn",
      "backend_cuda_array", "backend_cuda_norm", "backend_cuda_rows",
      "backend_cuda_index", "backend_cuda_window" } do
      local r = process.run(("TFDIST_CUDA_STANDIN=%s/checked "
        .. "TFD_STANDIN_COUNTS=%s TFD_STANDIN_SEED=%d %s/spec/%s"):format(STANDIN,
        path, seed, process.build, program))
      assert.equal(0, r.code, ("seed %d: %s%s"):format(seed, r.out, r.err))
      assert.is_nil((r.out .. r.err):match "skipped", program)
      for name in io.lines(path) do ran[name] = true end
    end
    os.remove(path)
    local left = {}
    for name in process.run(STANDIN .. "/list").out:gmatch "(%S+) %d+ %d+" do
      if not ran[name] then left[#left + 1] = name end
    end
    assert.same({}, left)
  end)

  it("give gradients through what runs on the CPU", function()
    local r = on_standin [[
      local tf = require "tfdist"
      tf.device("/gpu:0", function()
        local x = tf.Variable { { 4, 1 }, { 1, 3 } }
        local tape, y = tf.GradientTape(function()
          return tf.reduce_sum(tf.linalg.inv(x) * 2)
        end)
        local g = tape:gradient(y, x)
        print(g.device:match "GPU", ("%.4f %.4f"):format(g[0][0]:item(),
          g[1][1]:item()))
      end)
    ]]
    -- d/dA sum(inv A) = -(inv A)' 1 1' (inv A)', inv A = {3,-1;-1,4} / 11.
    assert.equal("GPU\t-0.0661 -0.1488\n", r.out)
    assert.matches("matrix_inverse has no kernel for /gpu:0", r.err, 1, true)
  end)

  it("run elsewhere what the libraries refuse", function()
    local r = on_standin([[
      local tf = require "tfdist"
      local x = tf.reshape(tf.range(32, { dtype = "float32" }), { 1, 4, 4, 2 })
      local w = tf.reshape(tf.range(24, { dtype = "float32" }), { 2, 2, 2, 3 })
      local m = tf.reshape(x, { 4, 8 })
      local function all()
        local tape, y = tf.GradientTape(function(tape)
          tape:watch(x)
          tape:watch(w)
          return tf.nn.conv2d(x, w, 1, "SAME")
        end)
        local g = tape:gradient(y, { x, w })
        return { y, g[1], g[2], tf.matmul(m, m, { transpose_b = true }),
          tf.function_(function() return tf.matmul(m, m, {
            transpose_a = true }) end)(), tf.nn.max_pool2d(x, 2, 2, "VALID") }
      end
      local cpu, gpu = tf.device("/cpu:0", all), tf.device("/gpu:0", all)
      for i = 1, #cpu do
        local want, got = cpu[i]:toflat(), gpu[i]:toflat()
        assert(gpu[i].device:match "GPU:0")
        for k = 1, #want do assert(want[k] == got[k]) end
      end
      print(#cpu)
    ]], "TFD_STANDIN_REFUSES=products,convolutions,pooling")
    assert.equal(0, r.code, r.err)
    assert.equal("6\n", r.out)
    for _, op in ipairs { "conv2d", "matmul" } do
      assert.matches(op .. " has no kernel for /gpu:0", r.err, 1, true)
    end
  end)

  it("run elsewhere products of slices that lie where no algorithm can", function()
    local r = on_standin([[
      local tf = require "tfdist"
      local function product()
        local x = tf.reshape(tf.range(12, { dtype = "float32" }), { 3, 4 })
        local part = tf.slice(x, { 1, 1 }, { 2, 3 })
        return tf.matmul(part, part, { transpose_b = true }),
          tf.matmul(x, x, { transpose_b = true })
      end
      local a, b = tf.device("/cpu:0", product)
      local c, d = tf.device("/gpu:0", product)
      for i, pair in ipairs { { a, c }, { b, d } } do
        local want, got = pair[1]:toflat(), pair[2]:toflat()
        for k = 1, #want do assert(want[k] == got[k]) end
        print(#want, pair[2].device:match "GPU")
      end
    ]], "TFD_STANDIN_REFUSES=unaligned")
    assert.equal(0, r.code, r.err)
    assert.equal("4\tGPU\n9\tGPU\n", r.out)
    assert.matches("matmul has no kernel for /gpu:0", r.err, 1, true)
  end)

  it("name the label that is out of range, and go on", function()
    local r = on_standin [[
      local tf = require "tfdist"
      tf.device("/gpu:0", function()
        local logits = tf.zeros { 4, 5 }
        local loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
          tf.constant({ 0, 1, 9, 2 }, { dtype = "int32" }), logits)
        local ok, e = pcall(loss.totable, loss)
        print(ok, e.kind, e.message)
        print(tf.reduce_sum(tf.ones { 3 }):item())
      end)
    ]]
    assert.equal(0, r.code, r.err)
    assert.equal("false\tInvalidArgument\tsparse_softmax_cross_entropy: label "
      .. "9 at position 2 is outside 0..4 (logits have 5 classes; labels count "
      .. "from 0)\n3.0\n", r.out)
  end)

  it("refuse indices as the CPU does, and leave what they name alone", function()
    local r = on_standin [[
      local tf = require "tfdist"
      local function ints(t) return tf.constant(t, { dtype = "int32" }) end
      local function say(f)
        local ok, e = pcall(function() return f():totable() end)
        print(ok, ok or e.kind .. ": " .. e.message)
      end
      for _, device in ipairs { "/cpu:0", "/gpu:0" } do
        tf.device(device, function()
          local v, two = tf.Variable { 1, 2, 3 }, tf.ones { 2 }
          local params, three = tf.ones { 3, 4 }, tf.ones { 3 }
          say(function()
            return tf.gather_nd(params, ints { { 0, 1 }, { 2, 4 } })
          end)
          say(function()
            return tf.tensor_scatter_nd_update(three, ints { { 0 }, { -3 } }, two)
          end)
          for _, ids in ipairs { { 0, 2, 1 }, { 1, 0, 1 }, { -1, 0, 1 } } do
            say(function() return tf.math.segment_max(three, ints(ids)) end)
          end
          say(function()
            return tf.math.unsorted_segment_sum(three, ints { -1, 0, 7 }, 3)
          end)
          say(function()
            return v:scatter_add(tf.IndexedSlices(two, ints { 0, 3 }))
          end)
          print(table.concat(v:value():totable(), " "), "--")
        end)
      end
    ]]
    assert.equal(0, r.code, r.err)
    local cpu, gpu = r.out:match "^(.-)%-%-\n(.*)%-%-\n$"
    assert.matches("gather_nd: indices[1] = {2, 4} is outside shape {3, 4}", cpu,
      1, true)
    assert.matches("comes after 1\n", cpu, 1, true)
    assert.matches("\n1.0 2.0 3.0", cpu, 1, true)
    assert.equal(cpu, gpu)
  end)

  it("end with an error where there is no memory, whichever call it is", function()
    local failed = 0
    for _, failure in ipairs { "2@60", "2@200" } do
      local r = on_standin(TRAINING:format '"/gpu:0"',
        "TFD_STANDIN_FAIL=" .. failure)
      assert.is_true(r.code == 0 or r.code == 1,
        ("%s: %d: %s"):format(failure, r.code, r.err))
      if r.code ~= 0 then
        failed = failed + 1
        assert.matches("CUDA_ERROR_OUT_OF_MEMORY", r.err, 1, true, failure)
      end
    end
    assert.is_true(failed >= 1, "no failure was seen")
  end)

  it("are those that can be used, in the order of the driver", function()
    local COUNT = [[print(#require("tfdist").config.list_logical_devices "GPU")
      print(require("tfdist").fill({ 4 }, 2):sum():item())]]
    -- Error 46 while the second one is looked at, then of both.
    local r = on_standin(COUNT, "TFD_STANDIN_FAIL=46@13")
    assert.equal("1\n8.0\n", (r.out:gsub("8\n$", "8.0\n")))
    assert.matches("GPU 1 of the driver is left out: .*CUDA_ERROR", r.err)
    r = on_standin(COUNT, "TFD_STANDIN_DEVICES=1 TFD_STANDIN_FAIL=46@5")
    assert.matches("^0\n8", r.out)
    r = on_standin(COUNT, "TFD_STANDIN_FAIL=803@1")
    assert.matches("^0\n8", r.out)
    r = on_standin(COUNT, "TFD_STANDIN_FAIL=46@3")
    assert.matches("^1\n8", r.out)
    assert.matches("GPU 0 of the driver is left out", r.err, 1, true)
  end)

  it("are missed aloud, once, where none of those seen can be used", function()
    local MIRRORED = [[local tf = require "tfdist"
      for _ = 1, 2 do print(tf.distribute.MirroredStrategy().extended
        .worker_devices[1]) end]]
    local CPU = ("/job:localhost/replica:0/task:0/device:CPU:0\n"):rep(2)
    local TOLD = "warning: replicas are on the CPU, for no GPU can be used: %s"
    local one = "TFD_STANDIN_DEVICES=1 TFD_STANDIN_FAIL="
    local function told(more)
      local r = on_standin(MIRRORED, more)
      assert.equal(CPU, r.out, r.err)
      local _, n = r.err:gsub("for no GPU can be used", "")
      return n, r.err
    end
    for failure, why in pairs {
      ["46@5"] = "reading the GPU's memory: error 46",
      ["719@1"] = "starting the NVIDIA driver: error 719", -- lost
    } do
      local n, err = told(one .. failure)
      assert.equal(1, n, err)
      assert.matches(TOLD:format(why), err, 1, true)
    end
    assert.same(0, (told(one .. "803@1"))) -- none was seen
    assert.same(0, (told "TFD_STANDIN_DEVICES=0"))
    assert.same(0, (told "TFDIST_CUDA_STANDIN=/none"))
  end)

  it("end with 78 where the GPU works for them no more", function()
    -- Allocating, launching, and waiting for what is read; all with TFD_LONG.
    local two = TRAINING:format '"/gpu:0", "/gpu:1"'
    local at = { 100, 333, 900 }
    if os.getenv "TFD_LONG" then
      at = {}
      for call = 100, 1000 do at[#at + 1] = call end
    end
    for _, call in ipairs(at) do
      for code, name in pairs { [719] = "LAUNCH_FAILED",
        [700] = "ILLEGAL_ADDRESS" } do
        local r = on_standin(two, ("TFD_STANDIN_FAIL=%d@%d"):format(code, call))
        assert.equal(78, r.code, ("%d@%d: %s"):format(code, call, r.err))
        assert.matches("CUDA_ERROR_" .. name, r.err, 1, true)
      end
    end
  end)

  it("end with 78 where it is lost while it is looked for", function()
    for _, call in ipairs { 1, 2, 3, 7, 9 } do -- then the first one is there
      local r = on_standin(TRAINING:format '"/gpu:0", "/gpu:1"',
        "TFD_STANDIN_FAIL=719@" .. call)
      assert.equal(78, r.code, call .. ": " .. r.err)
      assert.matches('no device "/gpu:0" any more: .*CUDA_ERROR_LAUNCH_FAILED',
        r.err)
    end
  end)

  -- Sums on each of two GPUs in turn, 700 at some call of theirs: each is 8 or
  -- "lost". Numbers 1 to 6, of the first GPU those that are odd.
  local function sums_until(call)
    local r = on_standin([[
      local tf = require "tfdist"
      for i = 0, 5 do
        local ok, e = pcall(tf.device, "/gpu:" .. i % 2, function()
          return (tf.ones { 4 } + 1):sum():item()
        end)
        print(ok and e or e.message:gsub(".*CUDA_ERROR_ILLEGAL_ADDRESS.*", "lost"))
      end
      os.exit(true)
    ]], "TFD_STANDIN_FAIL=700@" .. call)
    local list = {}
    for sum in r.out:gmatch "(%S+)[^\n]*\n" do
      assert.is_true(sum == "lost" or tonumber(sum) == 8, call .. ": " .. r.out)
      list[#list + 1] = sum == "lost"
    end
    assert.equal(6, #list, r.err)
    return list
  end

  it("give no other value where the GPU is lost while one is read", function()
    local lost = 0
    for call = 170, 230 do
      for _, is_lost in ipairs(sums_until(call)) do
        lost = lost + (is_lost and 1 or 0)
      end
    end
    assert.is_true(lost > 60, lost .. " losses")
  end)

  it("go on without the one that is lost", function()
    local first, second = 0, 0
    for call = 170, 230, 3 do
      local l = sums_until(call)
      assert.is_true(l[5] or l[6], call .. ": none is lost")
      assert.is_false(l[5] and l[6], call .. ": both are")
      first, second = first + (l[5] and 1 or 0), second + (l[6] and 1 or 0)
    end
    assert.is_true(first > 0 and second > 0, first .. " and " .. second)
  end)

  it("do not call a lost GPU out of memory", function()
    local last = ""
    for call = 140, 175, 5 do
      local r = on_standin([[
        local tf = require "tfdist"
        local a = tf.device("/gpu:0", function() return tf.ones { 4 } + 1 end)
        local b = tf.device("/gpu:1", function() return tf.ones { 4 } + 1 end)
        print((a:totable()[1] + b:totable()[1]))
      ]], "TFD_STANDIN_FAIL=719@" .. call)
      assert.is_true(r.code == 0 or r.code == 78, call .. ": " .. r.err)
      last = last .. r.code .. " "
    end
    assert.matches("78", last, 1, true)
  end)
end)
