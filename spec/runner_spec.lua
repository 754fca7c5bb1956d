--- What runs the suites, on a folder with suites of its own.
local process = require "spec.support.process"

local quote = process.quote
local runner = process.run("pwd").out:gsub("%s+$", "") .. "/scripts/test.lua"

-- A suite and a build of many processes, also in groups and sessions of their
-- own; one does not listen. Each says which it is before it waits.
local MAKEFILE = [[
lint tests-c:
	@sh -c 'echo $$$$ >>pids; exec sleep 600' & \
	timeout 600 sh -c 'trap "" INT TERM; echo $$$$ >>pids; sleep 600; :' & \
	setsid sh -c 'echo $$$$ >>pids; exec sleep 600' & \
	echo $$$$ >>pids; wait
test-c:
	@echo '[  PASSED  ] 3 tests.'
]]
local EACH = 4

-- Waits for a line of the shell to hold.
local function wait_for(condition)
  return ("n=0; until %s; do n=$((n + 1)); [ $n -lt 1000 ] || exit 99; "
    .. "sleep 0.05; done\n"):format(condition)
end

describe("scripts/test.lua #once", function()
  local folder

  before_each(function()
    folder = process.run("mktemp -d").out:gsub("%s+$", "")
  end)

  after_each(function()
    process.run("rm -r " .. quote(folder))
  end)

  local function sh(makefile, text)
    local file = assert(io.open(folder .. "/Makefile", "w"))
    file:write(makefile)
    file:close()
    return process.run(("cd %s\n%s"):format(quote(folder), text), nil, 180)
  end

  -- The lines that start it in a process group of its own, which hears Ctrl-C,
  -- and go on when all is running. Without `ps` nothing would seem left.
  local START = ("command -v ps >/dev/null || exit 98\n"
    .. "env --default-signal=INT,QUIT setsid lua5.4 %s --seed=1 "
    .. "lint c & runner=$!\n"):format(quote(runner))
    .. wait_for(("[ -e pids ] && [ $(wc -l <pids) = %d ]"):format(2 * EACH))
  local LEFT = "left() { ps -o stat=,args= -p $(paste -sd, pids) | "
    .. "grep -v ^Z; }\n"

  for _, case in ipairs {
    { "INT", "-$runner", 130 }, { "TERM", "$runner", 143 },
    { "KILL", "$runner", 137 }, { "KILL", "-$runner", 137 },
    { "QUIT", "-$runner", 131 },
  } do
    local signal, target, status = case[1], case[2], case[3]
    it(("leaves no process after %s to %s"):format(signal, target), function()
      local r = sh(MAKEFILE, START .. LEFT
        .. ("kill -%s %s; wait $runner; echo status $?\n"):format(signal, target)
        .. wait_for "[ -z \"$(left)\" ]" .. "echo none left\n")
      assert.equal(0, r.code, r.out .. r.err)
      assert.equal(("seed 1\nstatus %d\nnone left\n"):format(status), r.out)
    end)
  end

  it("has ended all when Ctrl-C ends it", function()
    local r = sh(MAKEFILE, START .. LEFT
      .. "kill -INT -$runner; wait $runner; left; :\n")
    assert.equal("seed 1\n", r.out)
  end)

  it("ends what a job leaves behind, and goes on", function()
    local r = sh("lint:\n\t@setsid sleep 600 >/dev/null & echo $$! >pid\n",
      ("lua5.4 %s --seed=1 lint; ps -o stat=,args= -p $(cat pid) | "
        .. "grep -v ^Z; :"):format(quote(runner)))
    assert.matches("^seed 1\nlint +1 passed .*1 passed, 0 failed, 0 skipped\n$",
      r.out)
  end)

  it("hears nothing from an ended run, which leaves but logs", function()
    local r = sh(MAKEFILE, START .. LEFT
      .. "printf 'lint:\\n\\ttouch began; "
      .. "until [ -e go ]; do sleep 0.05; done\\n' >Makefile\n"
      .. ("lua5.4 %s --seed=1 lint >out & next=$!\n"):format(quote(runner))
      .. wait_for "[ -e began ]"
      -- With the shells that tell the runner how a job ended.
      .. "ps -o pid= --ppid $runner | tr -d ' ' >>pids; kill -TERM $runner\n"
      .. wait_for "[ -z \"$(left)\" ]"
      .. "touch go; wait $next; cat out\n"
      .. "find build -type f -o -type p | sort\n")
    assert.matches("\nlint +1 passed .*1 passed, 0 failed, 0 skipped\n"
      .. "build/test/build%-plain.log\nbuild/test/lint.log\n$", r.out)
  end)

  -- In another namespace another run's runner may have the same number.
  it("leaves alone what a runner of its number started elsewhere", function()
    local r = sh("lint:\n", ([[
      sh -c 'env TFD_TEST_RUN_$$=lint sleep 600 >/dev/null & echo $! >pid
        exec lua5.4 "$0" --seed=1 lint' %s
      ps -o stat=,args= -p $(cat pid); kill $(cat pid)]])
      :format(quote(runner)))
    assert.matches("1 passed, 0 failed, 0 skipped\nS%S* +sleep 600\n$", r.out)
  end)

  it("gives a build a shorter deadline than a suite", function()
    local r = sh("tests-c:\n" .. MAKEFILE:match "test%-c:.*", ([[
      mkdir bin; cat >bin/timeout <<'END'
#!/bin/sh
echo "$2: $5" >>deadlines
exec /usr/bin/timeout "$@"
END
      chmod +x bin/timeout
      PATH="$PWD/bin:$PATH" lua5.4 %s --seed=1 c >out; cat deadlines]])
      :format(quote(runner)))
    assert.equal("1800: make -s -j2 tests-c\n2400: make -s test-c\n", r.out)
  end)

  it("gives long fuzzing its seed, unless SEED names another", function()
    local make = ("TFD_TEST_SEED=77 make -s -o fuzz-hosts -o fuzz-programs "
      .. "FUZZ_OUT=%s FUZZ_NAMES= N=0 "):format(quote(folder))
    for target, seed in pairs { ["fuzz-short"] = 1, ["fuzz-long"] = 77 } do
      local r = process.run(make .. target)
      assert.equal(("seed %d\n0 calls, 0 errors, 0 crashes\n"):format(seed),
        r.out)
    end
    assert.matches("^seed 5\n", process.run(make .. "SEED=5 fuzz-short").out)
  end)
end)
