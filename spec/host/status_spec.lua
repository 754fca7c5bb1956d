--- `tfdist status`: what the workers of a run do, while they do it. #once
local files = require "spec.support.files"
local process = require "spec.support.process"

local HEAD = [[
local tf = require "tfdist"
local s = tf.distribute.MultiWorkerMirroredStrategy()
local w = s.extended.worker_index
local function sum(n) s:reduce("SUM", tf.ones { n }) end
]]

for _, host in ipairs(process.hosts) do
  describe(host.name .. " status #once", function()
    local folder

    before_each(function()
      folder = files.folder()
    end)

    after_each(function()
      os.execute("rm -rf " .. process.quote(folder))
    end)

    -- Shell, in which FOLDER, HOST and SCRIPT stand for themselves.
    local function shell(program, text)
      files.write(folder .. "/train.lua", HEAD .. program)
      return process.run((text:gsub("%u+", { FOLDER = folder, HOST = host.path,
        SCRIPT = folder .. "/train.lua" })), nil, 240)
    end

    local function has(text, pattern)
      assert.is_truthy(text:find(pattern), text)
    end

    it("says who waits, for whom, and where", function()
      local r = shell(([[
        for _ = 1, 5 do sum(3) end
        if w == 1 then repeat until io.open "%s/go" end
        sum(4)]]):format(folder), [[
        HOST run -n 2 --log-dir=FOLDER SCRIPT & pid=$!
        until HOST status FOLDER 2>/dev/null | grep -q "is in .*32.4. at"; do
          kill -0 $pid || break
          sleep 0.1
        done
        HOST status FOLDER; echo "status $?"
        touch FOLDER/go
        wait $pid; echo "run $?"
        HOST status FOLDER; echo "status $?"]])
      has(r.out, ": 2 workers\nprocess 0 of 2 %(pid %d+ on [^)]+%) runs\n"
        .. "  is in collective %d+, all_reduce sum of float32%[4%] at "
        .. "[^\n]*train%.lua:%d+, for [%d.]+ %a+\n")
      has(r.out, "process 1 of 2 %(pid %d+ on [^)]+%) runs\n  keeps others "
        .. "waiting; ended collective %d+, all_reduce sum of float32%[3%] at "
        .. "[^\n]*train%.lua:%d+, [%d.]+ %a+ ago\n  comes there every [%d.]+ ")
      has(r.out, "\nstatus 0\nrun 0\n")
      has(r.out, "process 1 of 2 %(pid %d+ on [^)]+%) has ended\n  ended "
        .. "collective %d+, all_reduce sum of float32%[4%]")
      has(r.out, "\nstatus 1\n$")
    end)

    it("says how often all were started again, and why they failed", function()
      local r = shell([[
        sum(2)
        if w == 1 and os.getenv "TFDIST_RESTART" == "1" then error "lost" end
        if os.getenv "TFDIST_RESTART" == "0" then os.exit(9) end
        sum(3)]], [[
        HOST run -n 2 --max-restarts=1 --log-dir=FOLDER SCRIPT 2>/dev/null
        HOST status FOLDER; echo "status $?"]])
      has(r.out, ": 2 workers, all started again 1 time\n")
      has(r.out, "\n  failed: [^\n]*lost\n")
      has(r.out, "\nstatus 1\n$")
    end)

    it("looks at the newest run, and refuses what is none", function()
      local r = shell("sum(2)", [[
        export XDG_STATE_HOME=FOLDER/state
        HOST status; echo "status $?"
        HOST run -n 2 SCRIPT
        HOST status | sed 's/[0-9]*-[0-9]*-[0-9]*:/ID:/'
        HOST status FOLDER; echo "status $?"
        HOST status FOLDER/nowhere; echo "status $?"
        HOST status -x; echo "status $?"; HOST status --help; echo "help $?"]])
      has(r.err, "tfdist status: no logs of runs in " .. folder:gsub("%p", "%%%0")
        .. "/state/tfdist/logs\n")
      has(r.out, "^status 2\n")
      has(r.out, "/state/tfdist/logs/ID: 2 workers\n")
      has(r.err, "no records of workers in " .. folder:gsub("%p", "%%%0") .. "\n")
      has(r.out, "\nstatus 2\nstatus 2\nstatus 2\nhelp 0\n$")
    end)
  end)
end
