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

    -- The launcher's line stands where %s is in `shell`.
    local function run(options, code, shell)
      files.write(folder .. "/task.lua", ("local FOLDER = %q\n"):format(folder)
        .. HEAD .. code)
      return process.run((shell or "%s"):format(("XDG_STATE_HOME=%s %s run %s "
        .. "%s/task.lua"):format(folder, host.path, options, folder)), nil,
        DEADLINE)
    end

    it("takes what a task wrote, and waits for none who has its pipe", function()
      local r = run("-n 1", [[
        os.execute(("setsid sh -c 'echo early; >%s/there; while [ -e /proc/%s ]"
          .. "; do :; done; sleep 0.3; echo late; exec sleep 300' &"):format(
          FOLDER, pid()))
        take "there"
        io.write "last"]])
      assert.equal(0, r.code, r.err)
      assert.equal("[worker 0] early\n[worker 0] last\n", r.out)
    end)

    it("keeps all that tasks wrote while nobody reads it", function()
      -- Worker 1 fills the launcher, which reads no further then: 256 lines
      -- are 1 MiB, with their names a little more, and the pipe is full.
      run("-n 2 --log-dir=" .. folder .. "/logs", [[
        if r.task_id == 1 then
          put("pid", pid())
          while true do io.write(("x"):rep(4095), "\n") end
        end
        local size
        repeat
          local f = io.open(FOLDER .. "/logs/worker-1.log")
          size = f and f:seek "end" or 0
          if f then f:close() end
        until size >= 2 ^ 20
        io.write(("y"):rep(10000))
        io.flush()
        os.execute("kill -KILL " .. take "pid")]],
        "{ dd if=/dev/zero of=/dev/stdout oflag=nonblock bs=1 2>/dev/null; %s; "
          .. ">" .. folder .. "/over; } | until [ -e " .. folder
          .. "/over ]; do sleep 0.1; done")
      assert.equal(("y"):rep(10000), files.read(folder .. "/logs/worker-0.log"))
    end)

    it("says which logs are incomplete, and why", function()
      local logs = folder .. "/logs"
      assert(os.execute("mkdir " .. logs .. " && ln -s /dev/full " .. logs
        .. "/worker-1.log && mkdir " .. logs .. "/worker-2.log"))
      local r = run("-n 3 --log-dir=" .. logs, [[
        print("here is " .. r.task_id)
        if r.task_id == 1 then
          take "w0"
          take "w2"
          error "mine"
        end
        put("w" .. r.task_id)
        while true do end]])
      assert.equal(1, r.code)
      assert.truthy(r.err:find("tfdist run: the log of worker 1 is incomplete: "
        .. logs .. "/worker-1.log: No space left on device\n", 1, true), r.err)
      assert.truthy(r.err:find("tfdist run: what worker 2 writes is not kept: "
        .. logs .. "/worker-2.log: Is a directory\n", 1, true), r.err)
      assert.equal("logs: " .. logs .. "/worker-{0,1,2}.log; incomplete: worker "
        .. "1 and worker 2\n", r.err:match "[^\n]*\n$")
      assert.equal("here is 0\n", files.read(logs .. "/worker-0.log"))
    end)

    it("leaves a task's daemons to no later start", function()
      local r = run("-n 1 --max-restarts=1", [[
        if os.getenv "TFDIST_RESTART" == "0" then
          os.execute("setsid sh -c 'echo $$ >" .. FOLDER .. "/new; mv " .. FOLDER
            .. "/new " .. FOLDER .. "/daemon; exec sleep 300' >/dev/null 2>&1 &")
          take "daemon"
          os.exit(9)
        end
        local f = io.open("/proc/" .. take("daemon"):match "%d+" .. "/stat")
        print(f and f:read "*a" or "gone")]])
      assert.equal(0, r.code, r.err)
      assert.equal("[worker 0] gone\n", r.out)
    end)

    it("kills who is stopped when the others have ended of its signal", function()
      local r = run("-n 2", [[
        if r.task_id == 1 then
          put("stopped", pid())
          os.execute("kill -STOP " .. pid())
        else
          stopped(take "stopped")
          os.execute "kill -TERM $(cut -d ' ' -f 4 /proc/$PPID/stat)"
          while true do end
        end]])
      assert.equal(143, r.code, r.err)
    end)

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
          stopped(take "stopped")
          os.execute("cut -d ' ' -f 1 /proc/uptime >" .. FOLDER .. "/lost")
          os.exit(75)
        end]], "%s; code=$?; cut -d ' ' -f 1 /proc/uptime >" .. folder
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
