--- How and when `tfdist run` ends what its tasks leave to it. Everything started
--- here has a deadline, and nothing of it is left.
local files = require "spec.support.files"
local process = require "spec.support.process"

local quote = process.quote
local DEADLINE = 60 -- seconds, met by a slow machine too

-- What scripts of tasks begin with: who they are, how they tell each other.
local HEAD = [[
local r = require("tfdist").distribute.cluster_resolver
  .TFConfigClusterResolver()
]] .. require "spec.support.workers".TALK

for _, host in ipairs(process.hosts) do
  describe("the ends of " .. host.name .. " run #once", function()
    local folder

    before_each(function()
      folder = files.folder()
    end)

    after_each(function()
      os.execute("rm -r " .. quote(folder))
    end)

    -- What follows the launcher's line, as shell, stands in `more`.
    local function run(options, code, more)
      files.write(folder .. "/task.lua", ("local FOLDER = %q\n"):format(folder)
        .. HEAD .. code)
      return process.run(("XDG_STATE_HOME=%s %s run %s %s/task.lua %s"):format(
        folder, host.path, options, folder, more or ""), nil, DEADLINE)
    end

    it("kills who is stopped 5 s after another one lost it", function()
      local r = run("-n 3", [[
        if r.task_id == 1 then
          put("stopped", pid())
          os.execute("kill -STOP " .. pid())
        elseif r.task_id == 2 then
          -- Out of the group, so that it sees this one end.
          os.execute(("setsid sh -c 'while [ -e /proc/%s ]; do sleep 0.05; "
            .. "done; cut -d \" \" -f 1 /proc/uptime >%s/asked' >/dev/null "
            .. "2>&1 &"):format(pid(), FOLDER))
          put "runs"
          while true do end
        else
          take "runs"
          local stat = "/proc/" .. take "stopped" .. "/stat"
          local f
          repeat
            if f then f:close() end
            f = assert(io.open(stat))
          until f:read "*a":find "%) T "
          f:close()
          os.execute("cut -d ' ' -f 1 /proc/uptime >" .. FOLDER .. "/lost")
          os.exit(75)
        end]], "; code=$?; cut -d ' ' -f 1 /proc/uptime >" .. folder
          .. "/over; exit $code")
      assert.equal(75, r.code, r.err)
      assert.matches("worker 0 failed first %(exit 75, [^\n]*; worker 1 and "
        .. "worker 2 were stopped%.\n", r.err)
      local lost = tonumber(files.read(folder .. "/lost"))
      local asked = tonumber(files.read(folder .. "/asked")) - lost
      local took = tonumber(files.read(folder .. "/over")) - lost
      -- Asked before, and not at once: it could have ended by itself.
      assert.is_true(asked > 2.5 and asked < 4.9, asked .. " s")
      assert.is_true(took > 4.9 and took < 8, took .. " s")
    end)
  end)
end
