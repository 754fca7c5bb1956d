local files = require "spec.support.files"
local process = require "spec.support.process"

local call, run, quote = process.call, process.run, process.quote

-- Lua code that prints every way to reach its arguments.
local SHOW = [[
print(select("#", ...), ...)
for i = -6, 4 do io.write(tostring(arg[i]), ";") end
print()
]]

for _, host in ipairs(process.hosts) do
  local H = host.path

  local function eval(code, ...)
    return call(H, { "-e", code, ... })
  end

  describe(host.name .. " #once", function()
    local script

    setup(function()
      script = process.file(SHOW, ".lua")
    end)

    teardown(function()
      os.remove(script)
    end)

    -- What runs is bytecode made with the host; what help and errors show is
    -- the text: module by module they are the same program.
    it("runs what the library's text says", function()
      local r = eval [[
local embedded = (package.searchers or package.loaders)[2]
local list = {}
for file in io.popen("cd lua && find . -name '*.lua' | sort"):lines() do
  file = file:sub(3)
  local name = file:gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", ".")
  local code = embedded(name)
  local f = io.open("lua/" .. file)
  local text = assert((loadstring or load)(f:read "*a", "@lua/" .. file))
  f:close()
  local a, b = debug.getinfo(code, "SL"), debug.getinfo(text, "SL")
  assert(a.source == b.source and a.lastlinedefined == b.lastlinedefined, file)
  for line in pairs(b.activelines) do assert(a.activelines[line], file) end
  assert(jit or string.dump(code) == string.dump(text), file)
  list[#list + 1] = name
end
print(#list > 200, #list)]]
      assert.equal("", r.err)
      assert.equal("true", r.out:match "^%a+")
    end)

    -- The stock interpreter and the host see the same command line; `arg`
    -- differs in the program's own name only.
    local function same_as_stock(arguments, input)
      local ours = call(H, arguments, input)
      local theirs = call(host.lua, arguments, input)
      local text = ours.out:gsub(H:gsub("%p", "%%%0"), host.lua)
      assert.equal(theirs.out, text)
      assert.equal(theirs.code, ours.code)
    end

    describe("as an interpreter", function()
      it("passes arguments to the script as lua does", function()
        same_as_stock { script }
        same_as_stock { script, "a", "b c", "" }
        same_as_stock { "-e", "x = 1", script, "a" }
        same_as_stock { "-E", script, "-v", "--help" }
        same_as_stock { "--", script, "a" }
        same_as_stock { "-e", "local y", "--", script }
      end)

      it("runs -e chunks in order, joined or not", function()
        same_as_stock { "-e", "print(1)", "-eprint(2)" }
        same_as_stock { "-e", "x = 5", "-e", "print(x)" }
        same_as_stock { "-e", "print(...)" }
      end)

      it("reads a script from stdin", function()
        same_as_stock({ "-", "a", "b" }, SHOW)
        same_as_stock({}, "print(_VERSION)")
        same_as_stock({ "-", "x" }, "#!/usr/bin/env lua\nprint(1)")
      end)

      it("skips a first line that begins with #", function()
        local path = process.file("#!/usr/bin/env tfdist\nprint('ran', ...)")
        same_as_stock { path, "7" }
        os.remove(path)
      end)

      it("leaves with 1 after an error and with os.exit's code", function()
        same_as_stock { "-e", "error('x')" }
        same_as_stock { "-e", "error({})" }
        same_as_stock { "-e", "os.exit(7)" }
        same_as_stock { "-e", "os.exit(true)" }
        same_as_stock { "-e", "os.exit(false)" }
        same_as_stock { "-e", "x = = 1" }
        same_as_stock { "no-such-file.lua" }
        same_as_stock { "-l", "no_such_module" }
        same_as_stock { "-e", "io.stdout:write('partial') os.exit(3)" }
      end)

      it("leaves with 2 after bad usage, and says what was bad", function()
        for _, arguments in ipairs {
          { "-x" }, { "-e" }, { "--no-such" }, { "-vv" }, { "-l" },
          { "--cpu-devices=x" }, { "--cpu-devices=0" }, { "--queue=fast" },
          { "--threads" }, { "--help=1" }, { "--log=loud" }, { "--progress=loud" },
          { "--memory-limit=12parsecs" }, { "--cpu-device=2" },
        } do
          local r = call(H, arguments)
          assert.equal(2, r.code)
          assert.equal("", r.out)
          assert.truthy(#r.err > 0)
        end
        assert.matches("%-x", call(H, { "-x" }).err)
        assert.matches(": %-%-cpu%-devices: 0 devices; expected 1 to ",
          call(H, { "--cpu-devices=0" }).err)
        assert.matches(": %-%-cpu%-devices: 999999999999 devices; expected 1 to "
          .. "%d+\n$", call(H, { "--cpu-devices=999999999999" }).err)
        for _, command in ipairs { "devices", "doctor", "version" } do
          local r = call(H, { command, "x" })
          assert.equal(2, r.code)
          assert.equal("", r.out)
          assert.equal(("tfdist %s: it takes no arguments, got \"x\"\nusage: "
            .. "tfdist %s"):format(command, command), r.err:match
            "^[^\n]*\n[^\n]*tfdist %a+")
        end
        assert.matches("did you mean %-%-cpu%-devices%?",
          call(H, { "--cpu-device=2" }).err)
        assert.matches("512M", call(H, { "--memory-limit=x" }).err)
      end)

      it("waits for queued work at the end and reports what failed", function()
        local late = [[
local tf = require "tfdist"
local lost = tf.gather(tf.constant { 1, 2, 3 }, { 7 })
print "end"]]
        for _, queue in ipairs { "queued", "inline" } do
          local r = call(H, { "--queue=" .. queue, "-e", late })
          assert.equal(1, r.code, queue)
          assert.matches("InvalidArgument: gather: indices%[0%] = 7", r.err)
        end
        local r = call(H, { "--queue=queued", "-e", late .. [[

print(pcall(tf.sync_devices))]] })
        assert.equal(0, r.code) -- it has been told
        assert.equal("", r.err)
      end)

      it("runs LUA_INIT unless -E is given", function()
        assert.equal("init\nchunk\n", run(("LUA_INIT='print(%q)' %s -e 'print(%q)'")
          :format("init", H, "chunk")).out)
        assert.equal("chunk\n", run(("LUA_INIT='print(%q)' %s -E -e 'print(%q)'")
          :format("init", H, "chunk")).out)
        local path = process.file("print('from a file')")
        assert.equal("from a file\n", run(("LUA_INIT=@%s %s -e ''"):format(path,
          H)).out)
        os.remove(path)
        assert.equal(1, run(("LUA_INIT='error(1)' %s -e ''"):format(H)).code)
      end)

      if host.lua == "lua5.4" then
        it("prefers LUA_INIT_5_4 and knows warnings", function()
          assert.equal("new\n", run(("LUA_INIT_5_4='print(%q)' "
            .. "LUA_INIT='print(%q)' %s -e ''"):format("new", "old", H)).out)
          local r = call(H, { "-W", "-e", "warn('careful')" })
          assert.matches("careful", r.err)
          assert.equal("", call(H, { "-e", "warn('careful')" }).err)
        end)
      else
        it("takes LuaJIT's -j and -O", function()
          assert.equal("false\n", call(H, { "-joff", "-e",
            "print((jit.status()))" }).out)
          assert.equal("true\n", call(H, { "-j", "on", "-O3", "-e",
            "print((jit.status()))" }).out)
        end)
      end

      it("requires with -l into a global of either name", function()
        assert.equal("true\n", call(H, { "-lstring", "-e",
          "print(string.rep ~= nil)" }).out)
        assert.equal("true\n", call(H, { "-l", "s=string", "-e",
          "print(s == string)" }).out)
        assert.equal("0.1.0\ttrue\n", call(H, { "-l", "tfdist.core.raw", "-e",
          "print(_G['tfdist.core.raw'].version(), tf == nil)" }).out)
        assert.equal("true\n", call(H, { "-ltfdist", "-e",
          "print(tf == require 'tfdist')" }).out)
      end)

      it("shows its version and goes on with the script", function()
        local r = call(H, { "-v", script, "a" })
        assert.equal(0, r.code)
        assert.matches(host.lua == "luajit" and "LuaJIT" or "Lua 5%.4", r.out)
        assert.matches("1\ta", r.out)
        assert.equal(0, call(H, { "-v" }, "error('not read')").code)
      end)

      it("loads C modules of the system", function()
        assert.equal("table\n", eval("print(type(require 'lfs'))").out)
      end)

      it("is an interpreter for busted", function()
        local spec = process.file("it('works', function() "
          .. "assert.equal('tfdist', require('tfdist.host') and 'tfdist') end)",
          "_spec.lua")
        local r = run(("busted --lua=%s -o plainTerminal %s"):format(H, spec))
        os.remove(spec)
        assert.matches("1 success", r.out)
        assert.equal(0, r.code)
      end)

      it("leaves SIGPIPE as it is", function()
        assert.equal("1\n", run(H .. " -e 'for i = 1, 1e6 do print(i) end' "
          .. "| head -1").out)
      end)
    end)

    describe("on errors", function()
      it("prints the position first, then the user's frames", function()
        local path = process.file([[
local function inner() error("broken") end
local function outer() inner() end
outer()
]], ".lua")
        local r = call(H, { path })
        local short = path:gsub("%p", "%%%0")
        assert.matches("^" .. short .. ":1: broken\nstack traceback:\n    "
          .. short .. ":1: in ", r.err)
        assert.matches(":3: in main chunk\n$", r.err)
        assert.equal("", r.out)
        os.remove(path)
      end)

      it("prints an error object with kind, hint and no frames of ours",
        function()
          local r = eval([[require("tfdist.base.errors").raise("ValueError",
            "axis 2 is outside", "axes count from 0")]])
          assert.equal("(command line):1: ValueError: axis 2 is outside\n"
            .. "hint: axes count from 0\nstack traceback:\n"
            .. "    (command line):1: in main chunk\n",
            (r.err:gsub("%(command line%):2: in", "(command line):1: in")))
          r = call(H, { "--full-traceback", "-e",
            "require('tfdist.base.errors').raise('ValueError', 'x')" })
          assert.matches("errors%.lua", r.err)
        end)

      it("says what kind of value an error object without text is", function()
        assert.matches("%(error object is a table value%)",
          eval("error({})").err)
        assert.matches("^[^\n]*: shown\n$", eval(
          "error(setmetatable({}, { __tostring = function() return 'shown' "
            .. "end }))").err)
      end)

      it("refuses a script that hides the library", function()
        local folder = os.tmpname()
        os.remove(folder)
        os.execute("mkdir " .. folder)
        os.execute("echo 'require \"tfdist\"' >" .. folder .. "/tfdist.lua")
        local r = call(H, { folder .. "/tfdist.lua" })
        os.execute("rm -r " .. folder)
        assert.equal(1, r.code)
        assert.matches("RuntimeError: your script tfdist%.lua hides the "
          .. "module of the same name; rename it", r.err)
      end)
    end)

    describe("with --strict", function()
      local CODE = [[
declared = 1
local function f()
  made = declared
  return mistyped
end
f() f()
print(declared, made)]]

      it("warns about undeclared globals, once for each place", function()
        local r = call(H, { "--strict", "-e", CODE })
        assert.equal("1\t1\n", r.out)
        assert.equal("(command line):3: warning: assignment to undeclared "
          .. "global \"made\"\n(command line):4: warning: reading undeclared "
          .. "global \"mistyped\"\n", r.err)
        assert.equal(0, r.code)
      end)

      it("refuses them with =error", function()
        local r = call(H, { "--strict=error", "-e", CODE })
        assert.equal(1, r.code)
        assert.matches("^%(command line%):3: RuntimeError: assignment to "
          .. "undeclared global \"made\"", r.err)
        assert.equal("ok\n", call(H, { "--strict=error", "-e",
          "local tf = require 'tfdist' print(tf.constant(1) and 'ok')" }).out)
        assert.equal(2, call(H, { "--strict=maybe" }).code)
      end)
    end)

    describe("with bytecode", function()
      local dumped

      setup(function()
        dumped = os.tmpname()
        call(H, { "-e", ([[local f = io.open(%q, "wb")
          f:write(string.dump(function() print("ran") end)) f:close()]])
          :format(dumped) })
      end)

      teardown(function()
        os.remove(dumped)
      end)

      local ways = {
        "print(load(string.dump(function() end)))",
        "print(load(string.dump(function() end), 'x', 'b'))",
        "print(load(string.dump(function() end), 'x', 'bt'))",
        "local s = string.dump(function() end) "
          .. "print(load(function() local x = s s = nil return x end))",
        "print(loadfile(FILE))", "print(loadfile(FILE, 'bt'))",
        "print(pcall(dofile, FILE))",
        "package.path = FILE print(pcall(require, 'whatever'))",
        "print((loadstring or load)(string.dump(function() end)))",
      }

      it("refuses it by every way to load a chunk", function()
        for _, way in ipairs(ways) do
          local r = eval((way:gsub("FILE", ("%q"):format(dumped))))
          assert.matches("is bytecode, which is refused", r.out .. r.err)
        end
        for _, r in ipairs { call(H, { dumped }), run(H .. " - <" .. dumped),
          run(H .. " <" .. dumped), run(("LUA_INIT=@%s %s -e ''"):format(dumped,
            H)) } do
          assert.equal(1, r.code)
          assert.matches("is bytecode, which is refused", r.err)
        end
      end)

      it("takes it with --allow-bytecode", function()
        local r = call(H, { "--allow-bytecode", dumped })
        assert.equal("ran\n", r.out)
        assert.equal(0, r.code)
        assert.equal("function\n", call(H, { "--allow-bytecode", "-e",
          "print(type(load(string.dump(function() end))))" }).out)
      end)

      it("leaves loading of text as it is", function()
        assert.equal("3\t4\n", eval("print(load('return 1 + 2')(), "
          .. "load('return x', 'n', 't', { x = 4 })())").out)
        assert.matches("nil\t%[string \"x = =\"%]:1:", eval(
          "print(load('x = ='))").out)
        assert.equal("nil\n", eval("print(load('return print', 'n', 'bt', {})"
          .. "())").out)
      end)
    end)

    describe("finding modules", function()
      it("takes the library from inside and no C code from here", function()
        local r = run(("cd / && %s -e 'print(package.cpath) "
          .. "print(require(%q).version())'"):format(
            "$OLDPWD/" .. H, "tfdist.core.raw"))
        if H:sub(1, 1) == "/" then
          r = run(("cd / && %s -e 'print(package.cpath) "
            .. "print(require(%q).version())'"):format(H, "tfdist.core.raw"))
        end
        local paths = ";" .. r.out:match("^[^\n]*") .. ";"
        assert.is_nil(paths:find(";./?.so;", 1, true))
        assert.matches("\n0%.1%.0\n$", r.out)
      end)

      it("keeps ./?.so when the environment names it", function()
        assert.equal("./?.so\n", run("LUA_CPATH='./?.so' LUA_CPATH_5_4='./?.so' "
          .. H .. " -e 'print(package.cpath)'").out)
      end)

      it("takes the library from TFDIST_DEV", function()
        local r = run(("TFDIST_DEV=$PWD/lua %s -e %s"):format(H, quote(
          "print(debug.getinfo(require('tfdist.base.errors').raise, 'S').source)")))
        assert.matches("^@/.*lua/tfdist/base/errors%.lua\n$", r.out)
      end)

      it("lists every place tried", function()
        local r = eval("require 'no.such.module'")
        assert.matches("no module 'no%.such%.module' inside tfdist", r.err)
        assert.matches("no file '[^\n]*no/such/module%.lua'", r.err)
      end)
    end)

    describe("on Ctrl-C", function()
      -- Interrupts the code once it has called ready(). A second signal comes
      -- when the first is no longer pending: two that wait are one.
      local PENDING = "grep -qs '^ShdPnd:.*[2367abef]$' /proc/$pid/status"
      local function interrupted(code, signals)
        local at = files.place()
        local path = process.file(([[
local function ready() assert(io.open(%q, "w")):close() end
]]):format(at) .. code, ".lua")
        local r = run(("%s %s & pid=$!; until [ -e %s ]; do sleep 0.02; done; "
          .. "%s wait $pid"):format("env --default-signal=INT " .. H, path, at,
          ("kill -INT $pid; while %s; do sleep 0.02; done; "):format(PENDING)
            :rep(signals or 1)))
        os.remove(path)
        os.remove(at)
        return r
      end

      it("stops a tensor loop and leaves with 130", function()
        local r = interrupted [[
local raw = require "tfdist.core.raw"
local t = raw.tensor_from_table { 1, 2, 3 }
ready()
while true do raw.tensor_wait(t) end]]
        assert.equal(130, r.code)
        assert.matches("Cancelled: interrupted", r.err)
      end)

      it("stops a tensor loop inside a coroutine", function()
        local r = interrupted [[
local raw = require "tfdist.core.raw"
local t = raw.tensor_from_table { 1, 2, 3 }
coroutine.wrap(function()
  ready()
  while true do raw.tensor_wait(t) end
end)()]]
        assert.equal(130, r.code)
      end)

      it("is an ordinary error for pcall, once", function()
        local r = interrupted [[
local raw = require "tfdist.core.raw"
local t = raw.tensor_from_table { 1, 2, 3 }
local ok, e = pcall(function()
  ready()
  while true do raw.tensor_wait(t) end
end)
print(ok, e.kind, e.message)
raw.tensor_wait(t)
print("went on")]]
        assert.equal("false\tCancelled\tinterrupted\nwent on\n", r.out)
        assert.equal(0, r.code)
      end)

      if host.lua == "lua5.4" then
        it("stops loops of Lua alone, in coroutines too", function()
          assert.equal(130, interrupted("ready() while true do end").code)
          assert.equal(130, interrupted("coroutine.wrap(function() ready() "
            .. "while true do end end)()").code)
          assert.equal(130, interrupted([[
local inner = coroutine.wrap(function() ready() while true do end end)
coroutine.wrap(function() inner() end)()]]).code)
        end)
      end

      it("ends the process at the second", function()
        local r = interrupted([[
while true do pcall(function() ready() while true do end end) end]], 2)
        assert.equal(130, r.code)
        assert.equal("", r.err)
      end)
    end)

    describe("coroutines", function()
      it("behave as in the plain interpreter", function()
        local code = [[
local co = coroutine.create(function(a, ...)
  print(a, select("#", ...), coroutine.yield(1, nil, 3))
  error("x")
end)
print(coroutine.resume(co, "a", nil, nil))
print(coroutine.status(co))
print(coroutine.resume(co, "b"))
print(coroutine.status(co), coroutine.resume(co))
local w = coroutine.wrap(function() coroutine.yield(5) error({ 1 }) end)
print(w())
local ok, e = pcall(w)
print(ok, type(e), e[1])
print(pcall(w))
local g = coroutine.wrap(function() error("text") end)
print(pcall(g))
print(pcall(coroutine.wrap, 1))
print(pcall(coroutine.resume, 1))
local me
me = coroutine.wrap(function() print(pcall(me)) end)
me()
local r = coroutine.create(function() print(coroutine.resume(coroutine.running())) end)
coroutine.resume(r)
for x in coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end) do
  io.write(x, " ")
end
print(coroutine.resume(coroutine.create(function(...)
  return ...
end), 1, 2))
]]
        local path = process.file(code, ".lua")
        local ours, theirs = call(H, { path }), call(host.lua, { path })
        os.remove(path)
        assert.equal(theirs.out, ours.out)
        assert.equal(0, ours.code)
      end)

      it("end in an error, not a crash, when nested without end", function()
        local r = eval([[
local function nest() return coroutine.wrap(nest)() end
local ok, why = pcall(nest)
print(ok, tostring(why):match("C stack overflow"))]])
        assert.equal("false\tC stack overflow\n", r.out)
        assert.equal(0, r.code)
      end)
    end)

    describe("commands", function()
      it("show the version and the help", function()
        assert.matches("^tfdist 0%.1%.0, Lua", call(H, { "version" }).out)
        assert.equal(call(H, { "version" }).out, call(H, { "--version" }).out)
        assert.matches("^usage: tfdist", call(H, { "help" }).out)
        assert.matches("^usage: tfdist", call(H, { "--help" }).out)
        assert.equal(2, call(H, { "help", "nothing" }).code)
        for _, command in ipairs { "run", "devices", "doctor", "version",
            "help", "config", "events", "ckpt" } do
          local r = call(H, { command, "--help" })
          assert.equal(0, r.code, r.err)
          assert.matches("^usage: tfdist .*" .. command, r.out .. r.err)
        end
      end)

      it("name all variables that are asked for", function()
        local named = call(H, { "help", "env" }).out
        local found = io.popen("grep -rhoE '\"TFDIST_[A-Z0-9_]+\"' src lua")
          :read "*a"
        assert.truthy(found:find "TFDIST_")
        for name in found:gmatch "TFDIST_[A-Z0-9_]+" do
          assert.truthy(named:find("%f[%u]" .. name .. "[=, ]"), name)
        end
      end)

      it("are those of the manual, as the options are", function()
        local f = assert(io.open "scripts/install/tfdist.1")
        local manual = f:read("*a"):gsub("\\%-", "-"):gsub("\\f%a", "")
        f:close()
        local help = call(H, { "--help" }).out
        local function all(text, pattern)
          local found, list = {}, {}
          for name in text:gmatch(pattern) do
            if not found[name] then
              found[name] = true
              list[#list + 1] = name
            end
          end
          table.sort(list)
          return list
        end
        local long = "%-%-%l[%l-]*"
        local section = manual:match "%.SH OPTIONS.-%.SH"
        assert.same(all(help, long), all(section, long))
        assert.same(all(call(H, { "--help=1" }).err:gsub("^[^\n]*", ""), long),
          all(section, long))
        assert.same(all(help:match "as in lua[^\n]*" .. "\n",
          "  (%-[%a-]?)%f[%s]"), all(section:gsub('" ?', " "):gsub(",", " ,"),
          "[%s](%-[%a-]?)%f[%s]"))
        local commands = all(help:gsub("\n\n.*", ""):gsub("|", "tfdist"),
          "tfdist (%l+)")
        assert.is_true(#commands >= 6)
        assert.same(commands, all(manual:match "%.SH COMMANDS.-%.SH",
          "%.TP\n%.B (%l+)"))
      end)

      it("list the devices that options ask for", function()
        local r = call(H, { "--cpu-devices", "3", "devices" })
        assert.matches("/cpu:0.*/cpu:1.*/cpu:2", r.out)
        assert.equal(0, r.code)
        assert.equal("2\n", call(H, { "--cpu-devices=2", "-e",
          "print(require('tfdist.core.raw').device_count('CPU'))" }).out)
        assert.equal("true\n", call(H, { "--queue=queued", "-e", [[
local raw = require "tfdist.core.raw"
print(raw.device_is_queued(raw.device_current()))]] }).out)
        local r2 = call(H, { "--memory-limit=1M", "-e",
          "require('tfdist').zeros({ 1024, 1024 }):wait()" })
        assert.matches("ResourceExhausted", r2.err)
        assert.equal("1\n", call(H, { "--threads", "1", "-e", [[
local raw = require "tfdist.core.raw"
print(raw.device_threads(raw.device_current()))]] }).out)
      end)

      it("check the installation", function()
        local r = call(H, { "doctor" })
        assert.equal(0, r.code)
        assert.matches("\nok +matrix product", r.out)
        assert.matches("nothing broken\n$", r.out)
        assert.is_nil(r.out:find("source tree", 1, true))
      end)

      it("are known to completion, with the options", function()
        local file = assert(io.open "scripts/install/tfdist.bash")
        local completion = file:read "*a"
        file:close()
        local usage = call(H, { "help" }).out
        for option in usage:gmatch "%-%-%l[%l%-]+" do
          assert.truthy(completion:find(option, 1, true), option)
        end
        for names in usage:gmatch "\n       tfdist (%l[%l |]+)" do
          for name in names:gsub("   .*", ""):gmatch "%l+" do
            assert.truthy(completion:find("[' ]" .. name .. "[' ]"), name)
          end
        end
      end)

      it("give way to a script called ./NAME", function()
        local folder = os.tmpname()
        os.remove(folder)
        os.execute("mkdir " .. folder .. " && echo 'print(\"mine\")' >" .. folder
          .. "/version")
        local host_path = H:sub(1, 1) == "/" and H or "$OLDPWD/" .. H
        assert.equal("mine\n", run(("cd %s && %s ./version"):format(folder,
          host_path)).out)
        os.execute("rm -r " .. folder)
      end)
    end)

    describe("the prompt", function()
      local function prompt(text)
        local r = call(H, { "-i" }, text)
        -- The first line is the version; prompts have no line ends of input.
        return (r.out:gsub("^[^\n]*\n", ""):gsub("^> ", ""):gsub("\n> ", "\n")
          :gsub("^> ", "")), r
      end

      it("prints the values of expressions", function()
        local out = prompt("1 + 1\n'x', nil, true\n= 7\n{ 1, a = { 'b' } }\n")
        assert.equal("2\nx    nil    true\n7\n{ 1, a = { \"b\" } }\n", out)
      end)

      it("goes on reading an unfinished statement", function()
        local out = prompt("for i = 1, 2 do\nio.write(i, ';')\nend\nprint()\n")
        assert.matches("1;2;", out)
        assert.matches("9", (prompt("function f(x)\nreturn x * x\nend\nf(3)\n")))
      end)

      it("keeps locals from line to line", function()
        assert.matches("15\n", (prompt("local a, b = 5, 3\na * b\n")))
        assert.matches("8\n", (prompt(
          "local function f(x) return 2 * x end\nf(4)\n")))
        assert.matches("nil    nil\n", (prompt("local x\nx, rawget(_G, 'x')\n")))
        assert.matches("nil\n", (prompt("local v = 4\n_G.v\n")))
      end)

      it("shows errors and lives on", function()
        local out, r = prompt("error('boom')\nnil + 1\nx = = 2\n1 + 1\n")
        assert.matches("2\n", out)
        assert.matches("^boom\nattempt to perform arithmetic", r.err)
        assert.equal(0, r.code)
      end)

      it("survives values that cannot be shown", function()
        local out, r = prompt([[
setmetatable({}, { __tostring = function() error "boom" end })
{ setmetatable({}, { __tostring = function() error {} end }) }
error(setmetatable({}, { __tostring = function() error "bang" end }))
setmetatable({}, { __index = function() error "dang" end, __tostring = 5 })
1 + 1
]])
        assert.matches("__tostring fails: .*boom", out)
        assert.matches("__tostring fails: .*bang", r.err)
        assert.matches("\n2\n", out)
        assert.equal(0, r.code)
      end)

      it("has tf and prints tensors", function()
        assert.matches("Tensor float32 {3}: 1 2 3\n", (prompt(
          "tf.constant { 1, 2, 3 }\n")))
      end)

      it("shows an error object without a position at the prompt", function()
        local _, r = prompt("tf.constant { { 1, 2 }, { 3 } }\n")
        assert.matches("^ValueError: constant: element %[2%]", r.err)
      end)

      it("explains names", function()
        assert.matches("Ctrl%-D", (prompt("?help\n")))
        assert.matches("Source: tf%.device", (prompt("?tf.device\n")))
        assert.matches("reduce_sum%(input_tensor, axis=nil, keepdims=false%)",
          (prompt("?tf.reduce_sum\n")))
        assert.matches("zeros%(shape, dtype='float32'%).*Source: tf.zeros",
          (prompt("?tf.zeros\n")))
        assert.matches("reshape%(tensor, shape%)",
          (prompt("?tf.ones { 2 }.reshape\n")))
        assert.matches("tf.nn: .*%smoments,.*%ssoftmax", (prompt("?tf.nn\n")))
      end)

      it("has a text for every op", function()
        local r = eval [=[
          local tf, help = require "tfdist", require "tfdist.host.help"
          local ops = assert(tf.add) and require "tfdist.core.ops"
          local count = 0
          for _, space in ipairs { "", "math", "nn", "linalg", "image" } do
            for _, name in ipairs(ops.names(space)) do
              local path = (space == "" and "tf." or "tf." .. space .. ".")
                .. name
              local fn = ops.find(space, name)
              local usage = require "tfdist.base.options".usage(fn)
              if usage ~= nil then
                local text = help.about(path, function() return fn end)
                if not text:find "\n%S" then print(path) end
                count = count + 1
              end
            end
          end
          assert(count > 200, count)
        ]=]
        assert.equal("", r.err)
        assert.equal("", r.out)
      end)

      it("shows no page with a tag of the source in it", function()
        local r = eval [=[
          local help = require "tfdist.host.help"
          local fields = require "tfdist.base.fields"
          local tf = require "tfdist"
          local count, seen = 0, {}
          local function look(path, value, depth)
            if type(value) == "table" and (seen[value] or depth > 4) then
              return
            end
            seen[value] = true
            local text = help.about(path, function() return value end)
            count = count + (text and 1 or 0)
            if text and ("\n" .. text):find "\n%s*@%l" then
              print(path, text:match "@[^\n]*")
            end
            local names = {}
            if type(value) == "table" then fields.add(names, value) end
            for name in pairs(names) do
              local ok, field = pcall(function() return value[name] end)
              -- Pages of raw_ops are those of tf.
              if ok and not name:find "^_" and name ~= "raw_ops" and (type(field) == "function"
                or type(field) == "table" and help.is_library(field)) then
                look(path .. "." .. name, field, depth + 1)
              end
            end
          end
          look("tf", tf, 0)
          assert(count > 700, count)
        ]=]
        assert.equal("", r.err)
        assert.equal("", r.out)
        assert.matches("^Read the script.*\ndefaults: table  flag = default\n"
          .. "more %(optional%): table .*\nReturns: table  values by flag",
          (prompt "?tf.flags\n"))
      end)

      it("explains classes, methods and values", function()
        assert.matches("Dense%(units, .*Source: tf.keras.layers.Dense\n"
          .. "methods: .*call", (prompt("?tf.keras.layers.Dense\n")))
        assert.matches("function Scale:init%(start, options%)",
          (prompt("?tf.keras.layers.Layer\n")))
        assert.matches("%)\nThe sum, over axis", (prompt("?tf.reduce_sum\n")))
        assert.matches("%)\nSteps by running means",
          (prompt("?tf.keras.optimizers.Adam\n")))
        assert.matches("tf.data.Dataset: .*%sfrom_tensor_slices,.*%szip\n",
          (prompt("?tf.data.Dataset\n")))
        assert.matches("^tf.train: .* Checkpoint,", (prompt("?tf.train\n")))
        local out = prompt("ds = tf.data.Dataset.range(3)\n?ds\n?ds:map\n")
        assert.matches("Dataset, 3 elements.*fields: .*%sbatch,", out)
        assert.matches("Dataset.map%(map_func, .*Source: tf.data.Dataset.map",
          out)
        assert.matches("reduce_sum%(input_tensor", (prompt("?reduce_sum\n")))
        assert.matches("print: a function", (prompt("?print\n")))
        local _, r = prompt("?reduce_smu\n?tf.nn.nope\n")
        assert.matches("there is no reduce_smu\nhint: did you mean "
          .. "tf.reduce_sum%?", r.err)
        assert.matches("there is no tf.nn.nope", r.err)
      end)

      it("shows why a tensor was not computed", function()
        local out, r = prompt([[
tf.config.set_queue_mode("queued")
a = tf.gather({ 1, 2, 3 }, { 7 })
a
{ a }
1 + 1
]])
        assert.matches("^InvalidArgument: gather: indices", r.err)
        assert.is_nil(r.err:find("__tostring", 1, true))
        assert.matches("{ %(InvalidArgument: gather.*%) }", out)
        assert.matches("\n2\n", out)
      end)

      it("leaves at exit and quit, unless they are names of the user", function()
        for _, word in ipairs { "exit", "exit()", "quit", "quit ( ) " } do
          local out, r = prompt("1 + 1\n" .. word .. "\n3 + 4\n")
          assert.matches("^2\n", out)
          assert.is_nil(out:find("7", 1, true))
          assert.equal("", r.err)
          assert.equal(0, r.code)
        end
        assert.matches("Ctrl%-D", (prompt("help()\n")))
        assert.matches("5\n7\n", (prompt("exit = 5\nexit\n3 + 4\n")))
      end)
    end)
  end)
end
