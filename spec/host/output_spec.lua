--- Output that cannot be shown, and standard descriptors that are closed.
local files = require "spec.support.files"
local process = require "spec.support.process"

local quote = process.quote
local DEADLINE = 120

for _, host in ipairs(process.hosts) do
  describe(host.name .. " #once", function()
    local function launched(code, to)
      return files.in_folder(function(folder)
        local script = folder .. "/x.lua"
        files.write(script, code)
        return process.run(("XDG_STATE_HOME=%s %s run -n 2 %s >%s"):format(
          folder, host.path, script, to), nil, DEADLINE)
      end)
    end

    it("prints each line before what is said on stderr after it", function()
      local r = process.run(("%s -e %s 2>&1"):format(host.path, quote [[
        print("one", 1) io.stderr:write "two\n"
        print() io.stderr:write "three\n" ]]))
      assert.equal("one\t1\ntwo\n\nthree\n", r.out)
    end)

    it("says why what tasks write is lost", function()
      local r = launched("while true do print(('x'):rep(100)) end", "/dev/full")
      assert.equal(1, r.code)
      assert.matches("tfdist run: what the tasks write cannot be shown: "
        .. "No space left on device\n", r.err)
    end)

    it("runs tasks where standard output is closed", function()
      local r = launched("print(1)", "&-")
      assert.equal(0, r.code, r.err)
    end)

    it("prints into no file where standard output is closed", function()
      local path = files.place()
      local r = process.run(("%s -e %s >&-"):format(host.path, quote(([[
        local f = io.open(%q, "w") print "said" io.stdout:flush()
        f:write "kept" f:close()]]):format(path))))
      assert.equal(0, r.code, r.err)
      assert.equal("kept", files.read(path))
      os.remove(path)
    end)
  end)
end
