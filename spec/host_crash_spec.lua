local process = require "spec.support.process"

local run = process.run

for _, host in ipairs(process.hosts) do
  describe("a crash of " .. host.name .. " #once", function()
    -- Run a script file with `stack` KiB; its name is FILE in `report`.
    local function crash(code, stack, options)
      local path = process.file(code, ".lua")
      local r = run(("ulimit -c 0; ulimit -s %s; %s %s %s"):format(
        stack or "8192", host.path, options or "", path))
      os.remove(path)
      r.report = r.err:gsub(path:gsub("%p", "%%%0"), "FILE")
      return r
    end

    for number, signal in pairs { [11] = "SEGV", [7] = "BUS", [6] = "ABRT",
      [8] = "FPE", [4] = "ILL" } do
      it("says where it was: SIG" .. signal, function()
        local r = crash([[
io.stdout:write("kept")
local function die()
  io.stdout:flush()
  os.execute("kill -]] .. signal .. [[ $PPID")
end
pcall(function() die() end)]])
        assert.equal(128 + number, r.code)
        assert.equal("kept", r.out)
        assert.matches("tfdist: SIG" .. signal .. ", %l[%l ]+, sent by process "
          .. "%d+ %(process %d+, thread " .. host.name:sub(1, 15):gsub("%-",
          "%%-") .. "%)\n  lua FILE:4\n", r.report)
        assert.matches("\n  lua FILE:6\n", r.report)
        assert.matches("/" .. host.name:gsub("%-", "%%-") .. "%(", r.report)
      end)
    end

    if host.lua == "luajit" then
      it("names the address", function()
        local r = crash 'local x = require("ffi").cast("int *", 24)[0]'
        assert.equal(139, r.code)
        assert.matches("invalid memory access at address 0x18 ", r.report)
        assert.matches("\n  lua FILE:1\n", r.report)
      end)

      -- Add up what cannot be read, on one core of a device.
      local function bad_memory(device, queue)
        local r = crash([[
local tf = require "tfdist"
local ffi = require "ffi"
ffi.cdef "int mprotect(void *p, size_t n, int access);"
tf.device("]] .. device .. [[")
local t = tf.ones { 1024, 1024 }
local at = ffi.cast("uintptr_t", require("tfdist.ffi").view(t).pointer)
local page = (at + 4095) / 4096 * 4096
assert(ffi.C.mprotect(ffi.cast("void *", page), 8192, 0) == 0)
tf.reduce_sum(t):item()]], nil, "--cpu-devices=2 --threads=1 --queue=" .. queue)
        assert.equal(139, r.code)
        return r.report
      end

      it("names the op", function()
        assert.matches("thread tfdist%-luajit%)\n  op reduce_sum\n"
          .. ".-  lua FILE:9\n", bad_memory("/cpu:0", "inline"))
      end)

      it("names the op that was queued and is run by who waits", function()
        assert.matches("thread tfdist%-luajit%)\n  op reduce_sum\n"
          .. ".-  lua FILE:9\n", bad_memory("/cpu:0", "queued"))
      end)

      it("names the op that a device's thread runs", function()
        assert.matches("thread tfd/cpu:1%)\n  op reduce_sum\n",
          bad_memory("/cpu:1", "queued"))
      end)

      -- Finalisers run on the stack of whatever allocates.
      it("tells an overrun stack from other faults", function()
        local r = crash([[
local function nest()
  local p = newproxy(true)
  getmetatable(p).__gc = nest
  p = nil
  collectgarbage()
end
nest()]], "256")
        assert.equal(139, r.code)
        assert.matches("C stack overflow: something nests without end\n.*  lua "
          .. "FILE:5\n", r.report)
      end)
    end
  end)
end
