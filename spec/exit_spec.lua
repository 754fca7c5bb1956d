--- A process ends as it was told to, whatever its devices are doing: workers
--- are joined before the libraries they run are torn down.

local files = require "spec.support.files"
local process = require "spec.support.process"

describe("a process whose devices still work", function()
  local work = process.file([[
    local tf = require "tfdist"
    for d = 0, 3 do
      tf.device("/cpu:" .. d, function()
        local a = tf.random.normal { 600, 600 }
        for _ = 1, 10 do a = tf.matmul(a, a) * 1e-3 end
        local x = tf.ones { 4, 32, 32, 16 }
        for _ = 1, 10 do x = tf.nn.conv2d(x, tf.ones { 3, 3, 16, 16 }, 1,
          "SAME") end
      end)
    end
    local how = ...
    if how == "error" then error "the end" end
    if how == "exit" then os.exit(3) end
    if how == "close" then os.exit(4, true) end
  ]])
  local programs = {
    process.build .. "/tfdist", process.build .. "/tfdist-luajit",
    "LUA_PATH='lua/?.lua;lua/?/init.lua' LUA_CPATH='" .. process.build
      .. "/lua54/?.so' lua5.4",
    "LUA_PATH='lua/?.lua;lua/?/init.lua' LUA_CPATH='" .. process.build
      .. "/luajit/?.so' luajit",
  }
  local forever = process.file([[
    local tf = require "tfdist"
    local strategy = tf.distribute.MirroredStrategy()
    local n = 300
    while true do
      n = n + 1
      if n == 302 then assert(io.open((...), "w")):close() end
      strategy:run(function()
        local a = tf.ones { n, n }
        for _ = 1, 3 do a = tf.matmul(a, a) * 1e-3 end
        return a
      end)
    end
  ]])
  teardown(function()
    os.remove(work)
    os.remove(forever)
  end)

  for how, code in pairs { error = 1, exit = 3, close = 4, returns = 0 } do
    it("ends with " .. code .. ": " .. how .. " #once", function()
      for _, program in ipairs(programs) do
        for _ = 1, 3 do
          assert.equal(code, process.run(
            "TFDIST_CPU_DEVICES=4 TFDIST_QUEUE=queued " .. program .. " "
            .. work .. " " .. how).code)
        end
      end
    end)
  end

  it("ends with 70 where the library is wrong, in C and in Lua #once",
    function()
      local folder = files.folder()
      local name = process.run("ls " .. process.build .. "/plugins")
        .out:match "tfdist_nccl_%w*%.so" or "tfdist_mpi_openmpi.so"
      local CASES = { ["has no row"] = 'require "tfdist.base.errors".raise('
        .. '"Internal", "has no row")' }
      -- A plug-in under the name of another one.
      if process.run(("cp %s/plugins/%s %s/tfdist_none_1.so"):format(
        process.build, name, folder)).code == 0 then
        CASES["has another name"] = 'require "tfdist.core.raw".world("none", 0)'
      end
      for why, code in pairs(CASES) do
        for _, host in ipairs(process.hosts) do
          local r = process.run(("TFDIST_PLUGINS=%s %s -e %s"):format(folder,
            host.path, process.quote(code)))
          assert.equal(70, r.code, r.err)
          assert.matches("Internal: .*" .. why, r.err)
        end
      end
      process.run("rm -r " .. folder)
    end)

  it("ends with 130 on Ctrl-C in the middle of a kernel #once", function()
    local ready = files.place()
    for _, host in ipairs(process.hosts) do
      for i = 1, 4 do
        assert.equal(130, process.run(("TFDIST_CPU_DEVICES=4 "
          .. "TFDIST_QUEUE=queued env --default-signal=INT %s %s %s & pid=$!; "
          .. "until [ -e %s ]; do sleep 0.02; done; sleep 0.%d; "
          .. "kill -INT $pid; wait $pid"):format(host.path, forever, ready,
          ready, 2 * i - 1)).code)
        os.remove(ready)
      end
    end
  end)
end)

describe("a host that is started with a setting that it cannot use", function()
  local script = process.file 'print(require("tfdist").ones({ 2 })[0]:item())'

  teardown(function()
    os.remove(script)
  end)

  for _, host in ipairs(process.hosts) do
    it("ends with 2, which no start would change (" .. host.name .. ") #once",
      function()
        for _, setting in ipairs { "CORES=x", "THREADS=-1", "MEMORY_LIMIT=much",
          "QUEUE=none", "INSECURE=yes", "AUTO_CLUSTER=2", "CPU_DEVICES=0",
          "STRICT_FP32=on", "RESTART=soon" } do
          local r = process.run(("TFDIST_%s %s %s"):format(setting, host.path,
            script))
          assert.equal(2, r.code, setting)
          local name, value = setting:match "(.*)=(.*)"
          assert.matches(("ValueError: TFDIST_%s is %q; expected "):format(name,
            value), r.err, 1, true)
        end
      end)
  end
end)
