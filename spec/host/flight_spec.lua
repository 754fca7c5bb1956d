--- The flight recorder: what workers did together outlives them, and
--- `tfdist flight` says where they part. #once
local files = require "spec.support.files"
local process = require "spec.support.process"
local workers = require "spec.support.workers"

local unpack = table.unpack or unpack -- luacheck: ignore 113 143

-- Line 1 of every program; w is the worker's number. In programs SUM(n) stands
-- for a sum of n ones.
local HEAD = "local tf = require 'tfdist'; local s = tf.distribute."
  .. "MultiWorkerMirroredStrategy(); local w = s.extended.worker_index\n"

local function program_of(text)
  return HEAD .. text:gsub("SUM(%b())", function(n)
    return ("s:reduce('SUM', tf.ones { %s })"):format(n)
  end)
end

local function flight(host, arguments)
  return process.run(host.path .. " flight " .. arguments)
end

local function has(text, pattern)
  assert.is_truthy(text:find(pattern), text)
end

describe("flight records #once", function()
  for _, host in ipairs(process.hosts) do
    local function run(program, environment, n)
      return workers.run { program = program_of(program), host = host.path, n = n,
        environment = environment }
    end

    it("of workers that do the same say so (" .. host.name .. ")", function()
      files.in_folder(function(folder)
        run("for i = 1, 5000 do SUM(4) end", "TFDIST_FLIGHT=" .. folder)
        local r = flight(host, folder)
        assert.equal(0, r.code, r.out .. r.err)
        has(r.out, "process 0 of 2 %(pid %d+ on [^)]+%)")
        -- The ring has the last 4096.
        local from, to = r.out:match "they did the same, collectives (%d+) to (%d+)"
        assert.equal(4095, to - from)
        assert.is_true(tonumber(to) >= 5000)
        has(r.out, "all_reduce sum of float32%[4%] at [^\n]*%.lua:2: begun "
          .. "%d%d:%d%d:%d%d%.%d+, done ")
      end)
    end)

    it("of workers that part name the first difference (" .. host.name .. ")",
      function()
        files.in_folder(function(folder)
          local rs = run("SUM(3)\nif w == 1 then SUM(5) else SUM(6) end",
            "TFDIST_FLIGHT=" .. folder)
          assert.same({ 77, 77 }, { rs[1].code, rs[2].code })
          local r = flight(host, folder .. "/process-0.flight " .. folder
            .. "/process-1.flight")
          assert.equal(1, r.code, r.err)
          has(r.out, "they part at collective %d+:\n  process 0 calls all_reduce "
            .. "sum of float32%[6%] at [^\n]*%.lua:3 [^\n]*\n  process 1 calls "
            .. "all_reduce sum of float32%[5%] at [^\n]*%.lua:3 ")
          has(r.out, "failed: [^\n]*run apart at collective")
        end)
      end)

    it("outlive a worker that is killed (" .. host.name .. ")", function()
      files.in_folder(function(folder)
        local rs = run([[
          for i = 1, 10 do SUM(7) end
          if w == 2 then
            repeat -- the others are at the next one
              local f = io.popen "$FLIGHT_OF $TFDIST_FLIGHT"
              local text = f:read "*a"
              f:close()
            until text:find("process 0 calls [^\n]*%[8%].*process 1 calls "
              .. "[^\n]*%[8%]")
            local f = io.open "/proc/self/stat"
            os.execute("kill -9 " .. f:read "*n")
          end
          SUM(8)]], ("TFDIST_FLIGHT=%s FLIGHT_OF='%s flight'"):format(folder,
          host.path), 3)
        assert.same({ 75, 75, 137 }, { rs[1].code, rs[2].code, rs[3].code })
        local r = flight(host, folder)
        assert.equal(1, r.code, r.err)
        has(r.out, "they part at collective %d+:\n  process 0 calls all_reduce "
          .. "sum of float32%[8%]")
        has(r.out, "process 2 has not come to it")
      end)
    end)

    it("outlive a crash, and the run names who crashed (" .. host.name .. ")",
      function()
        files.in_folder(function(folder)
          local script = process.file(program_of
            "for i = 1, 50 do SUM(4000) end", ".lua")
          local r = process.run(("TFDIST_FAILPOINTS=allreduce.chunk=crash@9@rank1 "
            .. "%s run -n 2 --log-dir=%s %s"):format(host.path, folder, script))
          os.remove(script)
          assert.equal(139, r.code, r.err)
          has(r.err, "\ntfdist run: worker 1 failed first %(signal 11, SIGSEGV, "
            .. "[^\n]*\n[^\n]* worker 1 [^\n]*\ntfdist: SIGSEGV, [^\n]*\n  lua ")
          r = flight(host, folder)
          has(r.out, "process 1 of 2 %(pid %d+ on [^)]+%)\n  collective %d+, "
            .. "all_reduce sum of float32%[4000%] at [^\n]*, not ended\n")
          has(r.out, "at collective %d+:\n  process 0 calls all_reduce")
        end)
      end)

    it("lie beside the logs of a run (" .. host.name .. ")", function()
      files.in_folder(function(folder)
        local script = process.file(program_of "SUM(2 + w)", ".lua")
        local r = process.run(("%s run -n 2 --log-dir=%s %s"):format(host.path,
          folder, script))
        os.remove(script)
        assert.equal(77, r.code)
        has(r.err, "what they did together: tfdist flight ")
        has(flight(host, folder).out, "they part at collective")
        -- A later run there begins with an empty record.
        r = process.run(("%s run -n 1 --log-dir=%s %s"):format(host.path, folder,
          process.file("", ".lua")))
        assert.equal(0, r.code, r.err)
        assert.equal(2, flight(host, folder).code)
      end)
    end)

    it("of each start of a run are held against each other (" .. host.name
      .. ")", function()
      files.in_folder(function(folder)
        local script = process.file(program_of [[
          SUM(3)
          if w == 1 and os.getenv "TFDIST_RESTART" == "0" then error "once" end
          for _ = 1, 3 do SUM(4) end]], ".lua")
        local r = process.run(("%s run -n 2 --max-restarts=1 --log-dir=%s %s")
          :format(host.path, folder, script))
        os.remove(script)
        assert.equal(0, r.code, r.err)
        r = flight(host, folder)
        has(r.out, "^the first start:\nprocess 0 .*\nprocess 1 .*\nrestart 1:\n"
          .. "process 0 .*\nprocess 1 .*\nthey did the same, ")
        local _, n = r.out:gsub("process %d of 2 ", "")
        assert.equal(4, n)
      end)
    end)

    it("leave nothing where there is no room (" .. host.name .. ")", function()
      files.in_folder(function(folder)
        local r = process.run(("ulimit -f 1; TFDIST_RENDEZVOUS_TIMEOUT=1 "
          .. "TFDIST_FLIGHT=%s TF_CONFIG=%s %s -e %s"):format(folder,
          process.quote(('{"cluster": {"worker": ["127.0.0.1:%s", '
          .. '"127.0.0.1:%s"]}, "task": {"type": "worker", "index": 0}}'):format(
          unpack(workers.ports(2)))), host.path, process.quote(HEAD)), nil, 20)
        assert.equal(2, r.code, r.err)
        has(r.err, "TFDIST_FLIGHT: [^\n]*/process%-0.flight: File too large")
        assert.equal("", process.run("ls -A " .. folder).out)
      end)
    end)

    it("that are none are refused (" .. host.name .. ")", function()
      local path = process.file("nothing of the kind\n")
      local r = flight(host, path)
      assert.equal(2, r.code)
      has(r.err, "is no flight record: it is too short")
      local f = assert(io.open(path, "wb"))
      f:write(("x"):rep(1e6))
      f:close()
      r = flight(host, path)
      assert.equal(2, r.code)
      has(r.err, "it begins with other bytes")
      os.remove(path)
      assert.equal(2, flight(host, path).code)
      os.execute("mkfifo " .. path) -- nobody writes there
      r = process.run(host.path .. " flight " .. path, nil, 20)
      os.remove(path)
      assert.equal(2, r.code)
      has(r.err, "is no flight record: it is no plain file")
      assert.equal(2, flight(host, "").code)
      assert.equal(0, flight(host, "--help").code)
    end)

    it("that are damaged are read all the same (" .. host.name .. ")", function()
      files.in_folder(function(top)
        local folder = top .. "/made" -- it is when it is not there
        run("SUM(3)", "TFDIST_FLIGHT=" .. folder)
        local path = folder .. "/process-1.flight"
        local f = assert(io.open(path, "rb"))
        local bytes = f:read "*a"
        f:close()
        local seed = require "spec.support.seed"
        math.randomseed(seed)
        for _ = 1, 10 do
          local text = { bytes:sub(1, 8) }
          for i = 9, 3000 do
            text[#text + 1] = math.random(4) == 1
              and string.char(math.random(0, 255)) or bytes:sub(i, i)
          end
          text[#text + 1] = bytes:sub(3001)
          f = assert(io.open(path, "wb"))
          f:write(table.concat(text))
          f:close()
          local r = flight(host, folder)
          assert.is_truthy(r.code == 0 or r.code == 1, ("seed %d: %d %s"):format(
            seed, r.code, r.err))
        end
      end)
    end)
  end

  -- Bytes of the file: a head of 2152, records of 96.
  for what, patch in pairs {
    ["a number of processes"] = { at = 12, value = 2 ^ 32 - 1, size = 4,
      says = "no record of process 2 to 4294967294\nthey did the same" },
    ["what was recorded last"] = { at = 24, value = 200, size = 8,
      says = "they did the same, collectives 1 to %d\n$" },
    ["the last collective's number"] = { at = 2152 + 16, last = true,
      value = 2 ^ 52, size = 8, says = "they part at collective %d:\n  process 0 "
      .. "has not" },
    ["a collective's time"] = { at = 2152 + 2 * 96, value = 2 ^ 53, size = 8,
      says = "they part at collective 3:\n  process 0 has not" },
  } do
    it("whose damage is " .. what .. " are read in no time", function()
      files.in_folder(function(folder)
        workers.run { program = program_of "SUM(3) SUM(3)", n = 2,
          environment = "TFDIST_FLIGHT=" .. folder }
        local path = folder .. "/process-0.flight"
        local bytes = files.read(path)
        local at = patch.at + (patch.last and (bytes:byte(25) - 1) * 96 or 0)
        files.write(path, bytes:sub(1, at) .. files.little(patch.value,
          patch.size) .. bytes:sub(at + patch.size + 1))
        for _, host in ipairs(process.hosts) do
          local r = flight(host, folder)
          has(r.out, patch.says)
          assert.is_true(#r.out < 4000)
          has(process.run(host.path .. " status " .. folder).out,
            "process 1 of 2 [^\n]*\n  [%a; ]*ended collective %d, all_reduce ")
        end
      end)
    end)
  end

  -- The lowest bits of what a collective is are its kind.
  local function as_kind(bytes, kind)
    local list = { bytes:sub(1, 2152) }
    for at = 2152, #bytes - 1, 96 do
      local what = bytes:byte(at + 25)
      list[#list + 1] = bytes:sub(at + 1, at + 24)
        .. string.char(what % 16 == 3 and what - 3 + kind or what)
        .. bytes:sub(at + 26, at + 96)
    end
    return table.concat(list)
  end

  it("of pieces that have other lengths everywhere are of the same", function()
    files.in_folder(function(folder)
      workers.run { n = 2, environment = "TFDIST_FLIGHT=" .. folder,
        program = program_of [[
          s:run(function()
            tf.distribute.get_replica_context():all_gather(
              tf.fill({ w + 1, 3 }, 1.5), 0)
          end)]] }
      for kind, words in pairs { [3] = "all_gather of float32%[%d%]",
        [6] = "gather of float32%[%d%] to rank 0",
        [7] = "scatter of float32%[%d%] from rank 0" } do
        for w = 0, 1 do
          local path = ("%s/process-%d.flight"):format(folder, w)
          files.write(path .. ".new", as_kind(files.read(path), kind))
        end
        local r = flight(process.hosts[1], ("%s/process-0.flight.new "
          .. "%s/process-1.flight.new"):format(folder, folder))
        has(r.out, "collective %d+, " .. words)
        has(r.out, "they did the same")
        assert.equal(0, r.code)
      end
    end)
  end)

  it("that cannot be kept are done without", function()
    local rs = workers.run { program = program_of "SUM(1)",
      environment = "TFDIST_FLIGHT=/nowhere/there" }
    for _, r in ipairs(rs) do
      assert.equal(0, r.code, r.err)
      has(r.err, "TFDIST_FLIGHT: /nowhere/there/process%-%d.flight: No such file")
    end
  end)

  -- Where workers meet by files, each in an environment of its own; lines of the
  -- program have their numbers up to the folder's.
  local function run_in_folder(program, each)
    return files.in_folder(function(folder)
      return workers.run { program = program_of(program:gsub('"FOLDER"\n',
        function(line) return line .. workers.TALK end)), each = each,
        environment = "FOLDER=" .. folder }
    end)
  end

  it("say who is late meanwhile", function()
    local rs = run_in_folder([[
      SUM(3)
      local function second() SUM(4) end
      local FOLDER = os.getenv "FOLDER"
      if w == 0 then
        put("pid", pid())
      else
        heard(take "pid", "heard of in collective %d+, all_reduce sum of "
          .. "float32%[3%]")
      end
      second()]], function(i)
        return i == 0 and "TFDIST_STALL_WARN=0.5" or ""
      end)
    assert.same({ 0, 0 }, { rs[1].code, rs[2].code }, rs[1].err .. rs[2].err)
    has(rs[1].err, "warning: process 0 has waited for %d+ s in collective %d+, "
      .. "all_reduce sum of float32%[4%] at [^\n]*%.lua:3: process 1 was last "
      .. "heard of in collective %d+, all_reduce sum of float32%[3%] at "
      .. "[^\n]*%.lua:2\n")
    assert.is_nil(rs[2].err:find("has waited", 1, true))
  end)

  it("so does a wait that ends at its deadline", function()
    -- Worker 0 comes to the first sum when it has heard that worker 1 is there,
    -- who never comes to the second.
    local rs = run_in_folder([[
      local FOLDER = os.getenv "FOLDER"
      if w == 0 then
        heard("self", "has kept process 1 waiting for %d+ s, in collective "
          .. "%d+, all_reduce sum of float32%[3%]")
      end
      s:run(function()
        return tf.distribute.get_replica_context():all_reduce("SUM",
          tf.ones { 3 }, { timeout_seconds = 100 })
      end)
      if w == 0 then
        local ok, e = pcall(function() SUM(4) end)
        put "over"
        error(e, 0)
      end
      take "over"]], function(i)
        return i == 0 and "TFDIST_STALL_WARN=0.2 TFDIST_OP_TIMEOUT=0.5" or ""
      end)
    assert.equal(75, rs[1].code, rs[1].err)
    has(rs[1].err, "not done at its deadline on ranks 0 to 0 of 2: process 1 was "
      .. "last heard of in collective %d+, all_reduce sum of float32%[3%]")
  end)
end)
