--- `tfdist run`: real processes on this machine. Everything started here has a
--- deadline, and nothing of it is left.
local files = require "spec.support.files"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"

local lines = process.lines
local quote = process.quote
local DEADLINE = 60 -- seconds, met by a slow machine too

-- What scripts of tasks begin with.
local HEAD = [[
local r = require("tfdist").distribute.cluster_resolver
  .TFConfigClusterResolver()
local me = r.task_type .. "-" .. r.task_id
]] .. require "spec.support.workers".TALK

-- Processes that are no zombies: those wait for whoever started them.
local function is_alive(pid)
  local f = io.open("/proc/" .. pid .. "/stat")
  local text = f and f:read "*a" or ""
  if f then
    f:close()
  end
  local state = text:match "^%d+ %b() (%a)"
  return state ~= nil and state ~= "Z" and state ~= "X"
end

local function eventually(what, holds)
  local until_at = raw.monotonic() + DEADLINE
  while not holds() do
    if raw.monotonic() >= until_at then
      error("not in time: " .. what)
    end
    os.execute "sleep 0.02"
  end
end

for _, host in ipairs(process.hosts) do
  describe(host.name .. " run #once", function()
    local folder

    before_each(function()
      folder = files.place()
      raw.folder_make(folder)
    end)

    after_each(function()
      os.execute("rm -r " .. quote(folder))
    end)

    local function script(code)
      files.write(folder .. "/task.lua", ("local FOLDER = %q\n"):format(folder)
        .. HEAD .. code)
      return folder .. "/task.lua"
    end

    -- A command line: options, script and its arguments; logs in the folder.
    local function command(options, code, arguments)
      return ("XDG_STATE_HOME=%s exec env --default-signal=INT,TERM,HUP %s "
        .. "run %s %s %s"):format(quote(folder), host.path, options,
        script(code), arguments or "")
    end

    local function run(options, code, arguments)
      return process.run(command(options, code, arguments), nil, DEADLINE)
    end

    -- The same in the background: a file tells its pid, another its status.
    local function start(options, code)
      os.execute(("timeout -k 5 %d sh -c %s >%s/out 2>%s/err </dev/null &")
        :format(DEADLINE, quote(("sh -c %s & echo $! >%s/pid.new; mv "
          .. "%s/pid.new %s/pid; wait $!; echo $? >%s/code.new; mv "
          .. "%s/code.new %s/code"):format(quote(command(options, code)),
          folder, folder, folder, folder, folder, folder)), folder, folder))
      eventually("the launcher's pid", function()
        return (raw.file_stat(folder .. "/pid"))
      end)
      return files.read(folder .. "/pid"):match "%d+"
    end

    local function wait_for(name)
      eventually(name, function()
        return (raw.file_stat(folder .. "/" .. name))
      end)
      return files.read(folder .. "/" .. name)
    end

    -- Signals that come close together may be one.
    local function interrupt_until_the_end(pid)
      eventually("the end", function()
        os.execute("kill -INT " .. pid .. " 2>/dev/null")
        return (raw.file_stat(folder .. "/code"))
      end)
      assert.equal("130\n", wait_for "code")
    end

    it("puts the task's name before whole lines", function()
      local r = run("-n 3", [[
        io.write(me, " one\n", me, " two")
        io.stderr:write(me, " wrong")]])
      assert.equal(0, r.code)
      assert.same({ "[worker 0] worker-0 one", "[worker 0] worker-0 two",
        "[worker 1] worker-1 one", "[worker 1] worker-1 two",
        "[worker 2] worker-2 one", "[worker 2] worker-2 two" }, lines(r.out))
      assert.matches("[worker 1] worker-1 wrong\n", r.err, 1, true)
      -- the chief's comes as it is, progress must show
      assert.matches("worker-0 wrong", r.err, 1, true)
      assert.is_nil(r.err:find("[worker 0]", 1, true))
    end)

    it("shows lines at once, without an end of the task's", function()
      start("-n 1", [[
        print "ready"
        take "seen"]])
      eventually("the line", function()
        return files.read(folder .. "/out") == "[worker 0] ready\n"
      end)
      files.write(folder .. "/seen", "")
      assert.equal("0\n", wait_for "code")
    end)

    it("cuts lines that are too long, not what they say", function()
      local r = run("-n 1 --log-dir=" .. folder .. "/logs",
        [[io.write(("x"):rep(20000), "\n", "end\n")]])
      local shown = lines(r.out)
      assert.equal(4, #shown)
      local n = 0
      for _, line in ipairs(shown) do
        assert.is_true(#line < 9000)
        n = n + select(2, line:gsub("x", ""))
      end
      assert.equal(20000, n)
      assert.equal(("x"):rep(20000) .. "\nend\n",
        files.read(folder .. "/logs/worker-0.log"))
    end)

    it("passes what a task writes in order, however much", function()
      local r = run("-n 2", [[
        for i = 1, 30000 do print(me, i) end]])
      local last = { [0] = 0, 0 }
      for w, i in r.out:gmatch "%[worker (%d)%] worker%-%d\t(%d+)\n" do
        assert.equal(last[tonumber(w)] + 1, tonumber(i))
        last[tonumber(w)] = tonumber(i)
      end
      assert.same({ [0] = 30000, 30000 }, last)
    end)

    it("gives each task its own port, which it can listen on", function()
      local r = run("-n 3", [[
        local spec = r:cluster_spec()
        print(spec:task_address(r.task_type, r.task_id))
        put(me)
        for i = 0, 2 do take("worker-" .. i) end]])
      assert.equal(0, r.code)
      local seen, n = {}, 0
      for port in r.out:gmatch "127%.0%.0%.1:(%d+)" do
        assert.is_nil(seen[port])
        seen[port], n = true, n + 1
      end
      assert.equal(3, n)
    end)

    it("starts what the jobs say", function()
      local r = run("--chief --workers 2 --ps=1 --evaluator",
        [[print(r.task_type, r.task_id, #r:cluster_spec():jobs())]])
      assert.equal(0, r.code)
      assert.same({ "[chief] chief\t0\t4", "[evaluator] evaluator\t0\t4",
        "[ps 0] ps\t0\t4", "[worker 0] worker\t0\t4",
        "[worker 1] worker\t1\t4" }, lines(r.out))
    end)

    it("ends those that serve when the others are done", function()
      local r = run("--chief --workers 1 --ps 1", [[
        put(me)
        if r.task_type == "chief" then
          take "ps-0"
          take "worker-0"
        else
          os.execute "exec sleep 100"
          while true do end
        end]])
      assert.equal(0, r.code)
      assert.equal("", r.err)
    end)

    it("gives scripts their arguments, and tasks the host's options",
      function()
        local path = script [[print(table.concat(arg, ","), #arg)]]
        local r = process.run(("XDG_STATE_HOME=%s %s -e 'global = 7' "
          .. "--cpu-devices 2 run -n1 %s a -n 'b c' --ps"):format(folder,
          host.path, path), nil, DEADLINE)
        assert.equal("[worker 0] a,-n,b c,--ps\t4\n", r.out)
        r = process.run(("XDG_STATE_HOME=%s %s --cpu-devices 2 run -n1 %s")
          :format(folder, host.path, script
            "print(require('tfdist.core.raw').device_count('CPU'))"), nil,
          DEADLINE)
        assert.equal("[worker 0] 2\n", r.out)
      end)

    it("shares out the cores", function()
      local cores = tonumber(process.call(host.path, { "-e",
        "print(require('tfdist.host').launch.cores())" }).out)
      local r = run("-n 3", [[print(os.getenv "TFDIST_CORES")]])
      local expected = {}
      for i = 0, 2 do
        expected[i + 1] = ("[worker %d] %d"):format(i, math.max(1,
          math.floor((cores + 2 - i) / 3)))
      end
      assert.same(expected, lines(r.out))
      local function count(value)
        return process.run(("TFDIST_CORES=%s %s -e %s"):format(value, host.path,
          quote [[local raw = require "tfdist.core.raw"
            print(raw.device_threads(raw.device_current()))]]))
      end
      assert.equal("1\n", count("1").out)
      assert.equal(cores .. "\n", count("4096").out)
      assert.matches('TFDIST_CORES is "x"; expected a whole number from 1',
        count("x").err)
    end)

    it("gives all tasks one secret, which no command line shows", function()
      local r = run("-n 2", [[
        local path = os.getenv "TFDIST_SECRET_FILE"
        local f = assert(io.open(path))
        local secret = f:read "*a"
        f:close()
        local shown = io.open("/proc/self/cmdline"):read "*a"
        print(secret, #secret, shown:find(secret, 1, true))
        os.execute("stat -L -c %a " .. path)]])
      local secrets = {}
      for secret, n, shown in r.out:gmatch "(%x+)\t(%d+)\t(%a+)" do
        assert.equal("64", n)
        assert.equal("nil", shown)
        secrets[#secrets + 1] = secret
      end
      assert.equal(2, #secrets)
      assert.equal(secrets[1], secrets[2])
      assert.equal(2, select(2, r.out:gsub("%] 600\n", "")))
    end)

    it("reports who failed first last, with its error and status", function()
      local r = run("-n 3 --log-dir " .. folder .. "/logs", [[
        put(me)
        if r.task_id == 1 then
          take "worker-0"
          take "worker-2"
          local missing
          print(missing.labels)
        end
        while true do end]])
      assert.equal(1, r.code)
      local tail = r.err:match "tfdist run: .*"
      assert.matches("^tfdist run: worker 1 failed first %(exit 1, after "
        .. "%d+%.%d s%); worker 0 and worker 2 were stopped%.\n"
        .. "[^\n]* worker 1 [^\n]*\n[^\n]*task%.lua:%d+: attempt to index "
        .. "[^\n]*\nstack traceback:\n    [^\n]*in main chunk\n"
        .. "full logs: .*/logs/worker%-{0,1,2}%.log\n$", tail)
      assert.matches("attempt to index",
        files.read(folder .. "/logs/worker-1.log"))
    end)

    it("keeps the script's own status", function()
      local r = run("-n 2", [[
        if r.task_id == 0 then os.exit(7) end
        while true do end]])
      assert.equal(7, r.code)
      assert.matches("worker 0 failed first %(exit 7, ", r.err)
    end)

    it("names the signal that ended a task", function()
      local r = run("-n 2", [[
        if r.task_id == 1 then os.execute("kill -SEGV " .. pid()) end
        while true do end]])
      assert.equal(128 + 11, r.code)
      assert.matches("worker 1 failed first %(signal 11, SIGSEGV, after", r.err)
    end)

    it("does not take who lost a peer for the first", function()
      local r = run("-n 3", [[
        put(me, pid())
        if r.task_id ~= 1 then os.exit(75) end
        for _, other in ipairs { "worker-0", "worker-2" } do
          local stat = "/proc/" .. take(other) .. "/stat"
          repeat
            local f = io.open(stat)
            if f then f:close() end
          until f == nil
        end
        os.exit(9)]])
      assert.equal(9, r.code)
      assert.matches("worker 1 failed first %(exit 9, after [%d.]+ s%); "
        .. "worker 0 ended with 75, worker 2 ended with 75%.\n", r.err)
    end)

    if os.getenv "TFD_LONG" then
      it("counts no time in which it was stopped itself", function()
        local pid = start("-n 2", [[
          put(me, pid())
          if r.task_id == 0 then os.exit(75) end
          take "over"
          os.exit(9)]])
        local task = wait_for "worker-0"
        eventually("an end that was heard", function()
          return not raw.file_stat("/proc/" .. task)
            and files.read("/proc/" .. pid .. "/stat"):find "%) S "
        end)
        -- Longer than the others of who lost a peer are waited for.
        os.execute(("kill -STOP %s; sleep 6; kill -CONT %s; sleep 1"):format(pid,
          pid))
        files.write(folder .. "/over", "")
        assert.equal("9\n", wait_for "code")
      end)
    end

    it("ends with 75 when nobody has another cause", function()
      assert.equal(75, run("-n 2", [[os.exit(75)]]).code)
    end)

    it("takes an error that came before the stop as the task's own",
      function()
        -- Worker 1 has failed first; its end comes late.
        local r = run("-n 2", [[
          if r.task_id == 0 then
            take "dying"
            os.exit(75)
          end
          LAST = newproxy and newproxy(true) or setmetatable({}, { __gc = 1 })
          getmetatable(LAST).__gc = function()
            put "dying"
            take "never"
          end
          error "the cause"]])
        assert.equal(1, r.code)
        assert.matches("worker 1 failed first %(exit 1", r.err)
      end)

    it("does not take an error of what a task starts for the task's",
      function()
        local r = run("-n 2", [[
          if r.task_id == 0 then
            os.execute(]] .. ("%q"):format(host.path) .. [[
              .. " -e 'error(1)' 2>/dev/null")
            put "here"
            while true do end
          end
          take "here"
          os.exit(4)]])
        assert.equal(4, r.code)
      end)

    it("kills what does not stop", function()
      local r = run("-n 2", [[
        if r.task_id == 0 then
          put("pid", pid())
          os.execute "trap '' TERM; touch stubborn"
          -- Stopped: SIGTERM waits, SIGKILL does not.
          os.execute("kill -STOP " .. pid())
        end
        take "pid"
        os.exit(3)]])
      assert.equal(3, r.code)
      assert.is_false(is_alive(files.read(folder .. "/pid")))
      os.remove "stubborn"
    end)

    it("passes Ctrl-C on, and waits", function()
      local pid = start("-n 2", [[
        put(me)
        local ok, e = pcall(function() while true do end end)
        put(me .. "-caught", tostring(e))
        os.exit(5)]])
      wait_for "worker-0"
      wait_for "worker-1"
      os.execute("kill -INT " .. pid)
      if host.lua == "lua5.4" then -- LuaJIT's compiled loops go on
        assert.equal("5\n", wait_for "code")
        assert.matches("interrupted", wait_for "worker-0-caught")
        assert.matches("interrupted", wait_for "worker-1-caught")
      else
        interrupt_until_the_end(pid)
      end
    end)

    it("kills at the second Ctrl-C", function()
      local pid = start("-n 2", [[
        put(me, pid())
        while true do pcall(function() while true do end end) end]])
      local tasks = { wait_for "worker-0", wait_for "worker-1" }
      interrupt_until_the_end(pid)
      for _, task in ipairs(tasks) do
        assert.is_false(is_alive(task))
      end
    end)

    it("passes a terminal's Ctrl-C on once", function()
      local inner = command("-n 2", [[
        put(me)
        local _, e = pcall(function()
          while true do r:cluster_spec() require("tfdist").zeros { 1 } end
        end)
        put(me .. "-caught", tostring(e))
        os.exit(6)]])
      local r = process.run(("{ until [ -e %s/worker-0 ] && [ -e %s/worker-1 ]; "
        .. "do sleep 0.05; done; printf '\\003'; until [ -e %s/worker-1-caught ]"
        .. "; do sleep 0.05; done; } | script -qec %s /dev/null"):format(folder,
        folder, folder, quote(inner)), nil, DEADLINE)
      assert.equal(6, r.code)
      assert.matches("interrupted", wait_for "worker-0-caught")
    end)

    for code, program in pairs { ["143"] = "put(me) while true do end", ["42"] =
      [[local tf = require "tfdist"
        local handler = tf.distribute.experimental.PreemptionCheckpointHandler(
          r, tf.train.Checkpoint {}, FOLDER .. "/saves")
        while true do handler:run(put, { me }) end]] } do
      it("passes SIGTERM on and ends as the tasks do: " .. code, function()
        local pid = start("-n 2", program)
        for task = 0, 1 do wait_for("worker-" .. task) end
        os.execute("kill -TERM " .. pid)
        assert.equal(code .. "\n", wait_for "code")
      end)
    end

    it("leaves nobody behind when it is killed itself", function()
      local pid = start("-n 2", [[
        local file = FOLDER .. "/sleep-" .. me
        os.execute(("sleep 300 & echo $! >%s.new; mv %s.new %s"):format(file,
          file, file))
        put(me, pid())
        while true do end]])
      local tasks = {}
      for i, name in ipairs { "worker-0", "worker-1", "sleep-worker-0",
        "sleep-worker-1" } do
        tasks[i] = wait_for(name):match "%d+"
        assert.is_true(is_alive(tasks[i]), name)
      end
      os.execute("kill -KILL " .. pid)
      eventually("their ends", function()
        for _, task in ipairs(tasks) do
          if is_alive(task) then
            return false
          end
        end
        return true
      end)
    end)

    it("ends what tasks have left, even out of their groups", function()
      local r = run("-n 1", [[
        os.execute("sleep 300 & echo $! >" .. FOLDER .. "/one")
        os.execute("setsid sh -c 'echo $$ >" .. FOLDER .. "/two; exec sleep 300'"
          .. " >/dev/null 2>&1 &")
        take "two"]])
      assert.equal(0, r.code)
      assert.is_false(is_alive(files.read(folder .. "/one"):match "%d+"))
      assert.is_false(is_alive(files.read(folder .. "/two"):match "%d+"))
    end)

    it("stops all when the time is over", function()
      local r = run("-n 2 --timeout=0.5", "while true do end")
      assert.equal(124, r.code)
      assert.matches("tfdist run: not done after 0%.5 s; worker 0 and worker 1 "
        .. "were stopped\n$", r.err)
    end)

    it("shows the chief alone with --quiet-workers, and keeps all", function()
      local r = run("-n 2 --quiet-workers --log-dir=" .. folder .. "/logs",
        [[print(me) io.stderr:write(me, " err\n")]])
      assert.equal("worker-0\n", r.out)
      assert.equal("worker-0 err\n", r.err)
      assert.same({ "worker-1", "worker-1 err" },
        lines(files.read(folder .. "/logs/worker-1.log")))
    end)

    it("keeps what tasks write in the state folder", function()
      run("-n 1", [[print "kept"]])
      local found = process.run("cat " .. folder
        .. "/tfdist/logs/*/worker-0.log")
      assert.equal("kept\n", found.out)
    end)

    it("runs without a place for logs, and says so", function()
      local r = process.run("XDG_STATE_HOME=/proc/none " .. host.path
        .. " run -n 1 " .. script "print(1)", nil, DEADLINE)
      assert.equal(0, r.code)
      assert.equal("[worker 0] 1\n", r.out)
      assert.matches("tfdist run: what the tasks write is not kept: ", r.err)
    end)

    it("ends when nobody reads what it shows", function()
      local r = process.run("( " .. command("-n 1",
        "while true do print(('x'):rep(100)) end") .. " ) | head -1", nil,
        DEADLINE)
      assert.matches("^%[worker 0%] x+\n$", r.out)
    end)

    it("starts all again after a failure, so often", function()
      local r = run("-n 2 --max-restarts=2", [[
        print(os.getenv "TFDIST_RESTART")
        put(me .. os.getenv "TFDIST_RESTART")
        take("worker-0" .. os.getenv "TFDIST_RESTART")
        if r.task_id == 1 then os.exit(9) end
        while true do end]])
      assert.equal(9, r.code)
      assert.equal(2, select(2, r.err:gsub("tfdist run: worker 1 failed first "
        .. "%(exit 9, after [%d.]+ s%); worker 0 was stopped; starting again "
        .. "%([12] of 2%)\n", "")))
      assert.matches("\ntfdist run: worker 1 failed first [^\n]*stopped%.\n",
        r.err)
      local counts = {}
      for n in r.out:gmatch "%[worker 1%] (%d)" do
        counts[#counts + 1] = n
      end
      assert.same({ "0", "1", "2" }, counts)
      assert.equal("2\n", process.run("cat " .. folder
        .. "/tfdist/logs/*/worker-1.restart-2.log").out)
    end)

    it("ends well when a later start does", function()
      local r = run("-n 2 --max-restarts=5", [[
        if os.getenv "TFDIST_RESTART" ~= "2" then os.exit(75) end]])
      assert.equal(0, r.code)
      assert.matches("asks to be started again %(exit 42, .*1 of 1", run(
        "-n 1 --max-restarts 1", [[
        os.exit(os.getenv "TFDIST_RESTART" == "0" and 42 or 0)]]).err)
    end)

    it("does not start again what would end the same way", function()
      for _, code in ipairs { 2, 77 } do
        local r = run("-n 1 --max-restarts=5", "os.exit(" .. code .. ")")
        assert.equal(code, r.code)
        assert.is_nil(r.err:find "again")
      end
    end)

    it("goes on with the workers that are left", function()
      local r = run("-n 3 --max-restarts=3 --min-workers=2", [[
        local restart = os.getenv "TFDIST_RESTART"
        local n = r:cluster_spec():num_tasks "worker"
        print(restart, n)
        if restart == "0" and r.task_id == 1 then
          os.execute("kill -KILL " .. pid())
        elseif restart == "1" and r.task_id == 1 then
          os.exit(3)
        end
        if restart ~= "2" then take "never" end]])
      assert.equal(0, r.code)
      -- worker 1 of two may not be left out as well
      assert.matches("worker 1 failed first %(signal 9, SIGKILL, [^\n]* "
        .. "starting again without worker 1 %(1 of 3%)", r.err)
      assert.matches("worker 1 failed first %(exit 3, [^\n]* starting again "
        .. "%(2 of 3%)", r.err)
      assert.matches("%[worker 1%] 0\t3\n", r.out)
      assert.matches("%[worker 1%] 1\t2\n", r.out)
      assert.matches("%[worker 1%] 2\t2\n", r.out)
      assert.is_nil(r.out:find "[12]\t3")
    end)

    it("prints the lines to start the tasks with", function()
      local path = script [[print(r.task_id)]]
      local r = process.run(("%s --cpu-devices=2 run --dry-run --port=20000 "
        .. "-n 2 %s 'a b' \"it's\""):format(host.path, path))
      assert.equal(0, r.code)
      assert.equal("", r.err)
      local head, command_line = r.out:match "^([^\n]*)\n([^\n]*)\n"
      assert.equal("# worker 0", head)
      assert.equal("TF_CONFIG='{\"cluster\":{\"worker\":[\"127.0.0.1:20000\","
        .. "\"127.0.0.1:20001\"]},\"task\":{\"type\":\"worker\",\"index\":0}}' ",
        command_line:match "^TF_CONFIG=%S* ")
      assert.truthy(command_line:find(host.path .. " --cpu-devices=2 " .. path
        .. " 'a b' 'it'\\''s'", 1, true))
      for i, text in ipairs { "0\n", "1\n" } do
        local run_line = process.run(r.out:match(("[^\n]*\n"):rep(2 * i - 1)
          .. "([^\n]*)"))
        assert.equal(text, run_line.out)
      end
    end)

    it("prints the line for each host", function()
      local r = process.run(host.path .. " run --dry-run --hosts node1,node2 "
        .. "-n 2 --port=3000 /there/train.lua")
      assert.equal(0, r.code)
      assert.equal(4, select(2, r.out:gsub('"node1:3000","node1:3001",'
        .. '"node2:3000","node2:3001"', "")))
      assert.matches("\n# node2, worker 3\nTF_CONFIG='[^']*\"index\":3}}' "
        .. "TFDIST_SECRET_FILE=\"$HOME/.config/tfdist/secret\" " ..
        host.path:gsub("%p", "%%%0") .. " /there/train%.lua\n$", r.out)
      assert.matches("^# All machines need a file with the same secret", r.out)
    end)

    describe("by ssh", function()
      -- What ssh does with its words, on this machine; elsewhere is another
      -- session.
      before_each(function()
        files.write(folder .. "/ssh", [[#!/bin/sh
          while [ "${1#-}" != "$1" ]; do
            case $1 in -o) shift ;; esac
            shift
          done
          shift
          cd / && exec setsid -w sh -c "$*"]])
        os.execute("chmod +x " .. folder .. "/ssh")
      end)

      local function ssh(options)
        return "PATH=" .. folder .. ":$PATH " .. options
      end

      local function there(code)
        return ssh(command("--hosts=127.0.0.1,localhost --ssh", code)
          :gsub("exec env", "exec env PATH=" .. folder .. ":$PATH", 1))
      end

      it("starts tasks, with a secret that no command line shows", function()
        local r = process.run(there [[
          print(r.task_id, #os.getenv "TFDIST_SECRET")
          local _, n = io.open("/proc/self/cmdline"):read("*a"):gsub(
            os.getenv "TFDIST_SECRET", "")
          assert(n == 0 and not os.getenv "TFDIST_SECRET_FILE")
          io.stderr:write("error ", me, "\n")]], nil, DEADLINE)
        assert.equal("", r.err:gsub("error worker%-0\n", "")
          :gsub("%[worker 1%] error worker%-1\n", ""))
        assert.equal(0, r.code)
        assert.same({ "[worker 0] 0\t64", "[worker 1] 1\t64" }, lines(r.out))
      end)

      it("shows what ssh says, whatever its lines end with", function()
        files.write(folder .. "/ssh", [[#!/bin/sh
          printf 'ssh: no such host\r\n' >&2
          exit 255]])
        local r = process.run(there "", nil, DEADLINE)
        assert.equal(255, r.code)
        assert.matches("\n[^\n]* worker %d [^\n]*\nssh: no such host\n", r.err)
      end)

      it("reports who failed, and stops the others", function()
        local r = process.run(there [[
          put(me, pid())
          if r.task_id == 1 then
            take "worker-0"
            error "the cause"
          end
          while true do end]], nil, DEADLINE)
        assert.equal(1, r.code)
        assert.matches("worker 1 failed first %(exit 1, .* worker 0 was "
          .. "stopped%.\n.*\n[^\n]*task%.lua:%d+: the cause\n", r.err)
        eventually("its end", function()
          return not is_alive(files.read(folder .. "/worker-0"))
        end)
      end)

      it("leaves nobody behind when the launcher is killed", function()
        files.write(folder .. "/inner", there [[
          local file = FOLDER .. "/sleep-" .. me
          os.execute(("sleep 300 & echo $! >%s.new; mv %s.new %s"):format(file,
            file, file))
          while true do end]])
        os.execute(("timeout -k 5 %d sh -c 'sh %s/inner & echo $! "
          .. ">%s/pid.new; mv %s/pid.new %s/pid; wait' >/dev/null 2>&1 &")
          :format(DEADLINE, folder, folder, folder, folder))
        local tasks = { wait_for("sleep-worker-0"):match "%d+",
          wait_for("sleep-worker-1"):match "%d+" }
        os.execute("kill -KILL " .. wait_for "pid")
        eventually("their ends", function()
          return not is_alive(tasks[1]) and not is_alive(tasks[2])
        end)
      end)
    end)

    it("gives the chief the terminal and a prompt with --repl", function()
      -- What is typed before the prompt is there may be lost: again.
      local r = process.run(("{ until [ -e %s/typed ]; do "
        .. "printf 'typed(6 * seven)\\n'; sleep 0.2; done; "
        .. "while printf 'os.exit(3)\\n'; do sleep 0.2; done; } | "
        .. "script -qec %s /dev/null"):format(folder, quote(command(
        "-n 2 --repl", [[
          seven = 7
          function typed(x)
            put("typed", tostring(x))
          end]]))), nil, DEADLINE)
      assert.equal(3, r.code)
      assert.equal("42", files.read(folder .. "/typed"))
    end)

    it("can be stopped while nobody reads", function()
      os.execute(("mkfifo %s/pipe; sh -c 'echo $$ >%s/reader; exec sleep %d' "
        .. "<%s/pipe &"):format(folder, folder, DEADLINE, folder))
      os.execute(("timeout -k 5 %d sh -c %s >%s/pipe 2>/dev/null </dev/null &")
        :format(DEADLINE, quote(("sh -c %s & echo $! >%s/pid; wait $!; "
        .. "echo $? >%s/code.new; mv %s/code.new %s/code"):format(quote(command(
        "-n 2", [[
          if r.task_id == 0 then put("noisy", pid()) end
          while true do print(("x"):rep(1000)) end]])), folder, folder, folder,
        folder)), folder))
      wait_for "noisy"
      interrupt_until_the_end(files.read(folder .. "/pid"):match "%d+")
      assert.is_false(is_alive(files.read(folder .. "/noisy")))
      os.execute("kill " .. files.read(folder .. "/reader"))
    end)

    it("says what is wrong with the command line", function()
      local path = script ""
      for _, case in ipairs {
        { "", "how many workers%?" }, { "-n 2", "which script%?" },
        { "-n 0 S", "%-n: \"0\"; expected auto or a whole number from 1" },
        { "-n x S", "%-n: \"x\"; expected auto" }, { "-n", "needs a value" },
        { "-n 2 --ps 1 S", "exclude each other" },
        { "--ps=1 S", "nobody works" },
        { "--ps=-1 --chief S", "%-%-ps: \"%-1\"; expected a whole number" },
        { "--chief=1 S", "%-%-chief takes no value, got \"1\"" },
        { "--workerss=1 S", "unknown option \"%-%-workerss\"\nhint: did you "
          .. "mean %-%-workers%?" },
        { "--cpu-devices=1 S", "unknown option.*stand before `run`" },
        { "-n 1 --timeout=soon S", "%-%-timeout: \"soon\"; expected seconds" },
        { "-n 1 --port=70000 S", "%-%-port: \"70000\"; expected" },
        { "-n 3 --port=65534 S", "worker 2 would have port 65536" },
        { "-n 1 --min-workers=1 S", "%-%-min%-workers needs" },
        { "-n 2 --max-restarts=1 --min-workers=3 S", "%-%-min%-workers=3: "
          .. "there are 2 workers" },
        { "--hosts=a,b --ssh --max-restarts=1 --min-workers=3 S",
          "%-%-min%-workers=3: there are 2 workers" },
        { "-n 1 /tmp", "the script /tmp is a folder" },
        { "--hosts=a,,b --ssh S", "%-%-hosts: \"\" is no name" },
        { "--hosts=a,a --ssh S", "\"a\" is there twice" },
        { "--hosts='a b' --ssh S", "\"a b\" is no name of a host" },
        { "--hosts=a S", "%-%-dry%-run" },
        { "--ssh -n 1 S", "%-%-ssh needs %-%-hosts" },
        { "--chief --workers=512 S", "513 tasks; expected at most 512" },
        { "-n 1 /no/such.lua", "cannot open the script /no/such%.lua: No such" },
        { "-n 1 -", "a script from stdin" },
        { "-n 1 /dev/stdin <README.md", "the script /dev/stdin is no plain" },
        { "-n 2 /dev/null", "the script /dev/null is no plain file" },
        { "-n 1 --log-dir=/proc/none S", "%-%-log%-dir: " },
      } do
        local r = process.run(host.path .. " run "
          .. case[1]:gsub(" S$", " " .. path), nil, DEADLINE)
        assert.equal(2, r.code, case[1])
        assert.equal("", r.out)
        assert.matches("^tfdist run: ", r.err)
        assert.matches(case[2], r.err)
      end
    end)

    it("names a port that somebody else has", function()
      local port = process.run(host.path .. " run --dry-run -n 1 "
        .. script "").out:match "127%.0%.0%.1:(%d+)"
      -- A worker that waits for another one listens.
      os.execute(("TF_CONFIG='%s' timeout 60 %s -e %s >/dev/null 2>&1 & "
        .. "echo $! >%s/waits"):format('{"cluster":{"worker":["127.0.0.1:'
          .. port .. '","127.0.0.1:1"]},"task":{"type":"worker","index":0}}',
        host.path, quote
          "require('tfdist').distribute.MultiWorkerMirroredStrategy()", folder))
      local listens = ("0100007F:%04X 00000000:0000 0A"):format(port)
      eventually("a listener", function()
        return files.read "/proc/net/tcp":find(listens, 1, true)
      end)
      local line = ("%s run -n 1 --port=%s %s"):format(host.path, port,
        script "")
      local r = process.run(line, nil, DEADLINE)
      local dry = process.run((line:gsub(" run", " run --dry-run", 1)))
      os.execute("kill " .. files.read(folder .. "/waits"))
      assert.equal(2, r.code)
      assert.matches("^tfdist run: %-%-port: 127%.0%.0%.1:" .. port
        .. ": Address already in use\nhint: `ss %-ltnp` names who has it", r.err)
      assert.equal(0, dry.code, dry.err)
      assert.truthy(dry.out:find("127.0.0.1:" .. port, 1, true), dry.out)
    end)

    it("starts a worker for each core with -n auto, without GPUs", function()
      if process.run "ls /proc/driver/nvidia/gpus".code == 0 then
        pending "this machine has GPUs"
      end
      local path = script [[print(r:cluster_spec():num_tasks "worker")]]
      local r = process.run(("TFDIST_CORES=1 XDG_STATE_HOME=%s %s run -n auto "
        .. "%s"):format(folder, host.path, path), nil, DEADLINE)
      assert.equal("[worker 0] 1\n", r.out)
    end)

    it("shares out the GPUs when there are enough", function()
      local path = script [[print(os.getenv "CUDA_VISIBLE_DEVICES")]]
      local function shares(n)
        return lines(process.run(("CUDA_VISIBLE_DEVICES=4,5,7 "
          .. "XDG_STATE_HOME=%s %s run -n %d %s"):format(folder, host.path, n,
          path), nil, DEADLINE).out)
      end
      assert.same({ "[worker 0] 4,5", "[worker 1] 7" }, shares(2))
      assert.same({ "[worker 0] 4,5,7" }, shares(1))
      for _, line in ipairs(shares(4)) do
        assert.matches("4,5,7$", line)
      end
    end)

    it("starts many", function()
      local r = run("-n 60", [[if r.task_id == 59 then print "last" end]])
      assert.equal(0, r.code)
      assert.equal("[worker 59] last\n", r.out)
    end)
  end)
end
