--- tfdist --profile and tf.profiler.experimental: files that Chrome and Perfetto
--- read, whose times add up.
local tf = require "tfdist"
local expect = require "spec.support.expect"
local json = require "tfdist.core.json"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local workers = require "spec.support.workers"

local E = tf.profiler.experimental

local function read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "*a"
  f:close()
  return text
end

local function folder()
  local path = os.tmpname()
  os.remove(path)
  return path
end

-- The only file below a folder of `start`, and its events.
local function events_below(path)
  local pipe = io.popen("find " .. process.quote(path) .. " -type f")
  local name = pipe:read "*l"
  assert.is_nil(pipe:read "*l")
  pipe:close()
  assert.is_not_nil(name:find "/plugins/profile/[%d_]+/[^/]+%.trace%.json$")
  local events = json.decode(read(name)).traceEvents
  os.execute("rm -rf " .. process.quote(path))
  return events
end

-- "X" events of each track by its name, in the order of the file.
local function tracks_of(events)
  local names, tracks = {}, {}
  for _, e in ipairs(events) do
    if e.ph == "M" then
      assert.are.equal("thread_name", e.name)
      names[e.tid] = e.args.name
      tracks[e.args.name] = {}
    end
  end
  for _, e in ipairs(events) do
    if e.ph == "X" then
      assert.is_true(e.ts >= 0 and e.dur >= 0)
      assert.is_string(e.name)
      table.insert(tracks[names[e.tid]], e)
    else
      assert.are.equal("M", e.ph)
    end
  end
  return tracks
end

local SLACK = 0.002 -- us: times are written to the nanosecond

-- Begins only grow, and an event lies in the last one that has not ended, or
-- after it. Returns the sum of those that lie in none.
local function check_nesting(list)
  local open, at, sum = {}, 0, 0
  for _, e in ipairs(list) do
    assert.is_true(e.ts >= at - SLACK, "times go back")
    at = e.ts
    while #open > 0 and open[#open] <= e.ts + SLACK do open[#open] = nil end
    if #open == 0 then
      sum = sum + e.dur
    else
      assert.is_true(e.ts + e.dur <= open[#open] + SLACK, "events overlap")
    end
    open[#open + 1] = e.ts + e.dur
  end
  return sum
end

local function count(list, fits)
  local n = 0
  for _, e in ipairs(list) do
    n = n + (fits(e) and 1 or 0)
  end
  return n
end

local function profiled(fn)
  local path = folder()
  E.start(path)
  local begin = raw.profiler_now()
  fn()
  local took = (raw.profiler_now() - begin) / 1000
  local table_ = E.stop()
  return tracks_of(events_below(path)), table_, took
end

local function step_function()
  local w = tf.Variable(tf.ones { 32, 32 })
  return tf.function_(function(x)
    local loss
    local tape = tf.GradientTape(function()
      loss = tf.reduce_mean(tf.tanh(tf.matmul(x, w)) * 2 + 1)
    end)
    w:assign_sub(tape:gradient(loss, w) * 0.1)
    return loss
  end)
end

describe("tf.profiler.experimental", function()
  it("has the ops, in each other, and all of the host's time", function()
    local x = tf.ones { 32, 32 }
    local tracks, table_, took = profiled(function()
      for _ = 1, 10 do tf.reduce_sum(tf.exp(x)):item() end
    end)
    for _, list in pairs(tracks) do check_nesting(list) end
    local ops = 0
    for _, list in pairs(tracks) do
      ops = ops + count(list, function(e) return e.name == "exp" end)
    end
    assert.are.equal(10, ops)
    -- Lua's time and that of everything else make up the whole.
    local sum = check_nesting(tracks.host)
    local last = tracks.host[#tracks.host]
    assert.is_true(math.abs(sum - (last.ts + last.dur)) < 1)
    assert.is_true(sum >= took)
    assert.is_true(count(tracks.host, function(e)
      return e.cat == "lua" end) >= 10)
    assert.is_not_nil(table_:find "profile of %d+%.%d+ s, host: ")
    assert.is_not_nil(table_:find("%s10%s+%d+%.%d+  exp\n"))
  end)

  it("has programs of traced functions, with their groups", function()
    local f, x = step_function(), tf.ones { 8, 32 }
    f(x):item()
    local tracks = profiled(function()
      for _ = 1, 3 do f(x):item() end
    end)
    local programs, groups = {}, 0
    for _, list in pairs(tracks) do
      for _, e in ipairs(list) do
        if e.cat == "graph" then programs[#programs + 1] = e end
        if e.name:find "^fused%(" then groups = groups + 1 end
      end
    end
    assert.are.equal(3, #programs)
    assert.is_not_nil(programs[1].name:find("profiler_spec.lua:%d+"))
    if os.getenv "TFDIST_FUSION" ~= "0" then
      assert.is_true(groups >= 3 and groups % 3 == 0)
    end
  end)

  it("has the script's ranges, and counts steps", function()
    local tracks, table_ = profiled(function()
      for i = 0, 4 do
        local got = E.Trace("train", function()
          return E.Trace("in\"ner\n", function() return i end)
        end, { step_num = i })
        assert.are.equal(i, got)
      end
      local range = E.Trace "open"
      range.close()
      range.close()
      assert.has_error(function()
        E.Trace("fails", function() error "here" end)
      end)
    end)
    local list = tracks.ranges
    assert.are.equal(12, #list)
    local steps = {}
    for _, e in ipairs(list) do
      if e.name == "train" then steps[#steps + 1] = e.args.step end
    end
    assert.are.same({ 0, 1, 2, 3, 4 }, steps)
    assert.are.equal(5, count(list, function(e)
      return e.name == "in\"ner\n" end))
    assert.are.equal(1, count(list, function(e) return e.name == "fails" end))
    assert.is_not_nil(table_:find "\n5 steps of %d+%.%d+ ms\n")
  end)

  it("keeps the latest spans of a thread", function()
    local x = tf.ones { 2 }
    local n = 0
    local tracks, table_ = profiled(function()
      for _ = 1, 70000 do tf.identity(x + 1) end
      x:item(0)
      for _ = 1, 5 do tf.exp(x):item(0) end
    end)
    for _, list in pairs(tracks) do
      check_nesting(list)
      n = n + count(list, function(e) return e.name == "exp" end)
    end
    assert.are.equal(5, n)
    assert.is_not_nil(table_:find "the latest 65536 spans")
    -- Shares are of the time that these took: all of it is accounted for.
    local whole, kept, shares = table_:match
      "profile of (%S+) s, host in the last (%S+) s:([^\n]*)"
    assert.is_true(tonumber(kept) < tonumber(whole), table_)
    local sum = 0
    for share in shares:gmatch "%((%d+)%%%)" do sum = sum + share end
    assert.is_true(sum >= 97 and sum <= 103, shares)
  end)

  it("writes nothing where it is told so", function()
    local path = folder()
    E.start(path)
    tf.exp(tf.ones { 3 }):item(0)
    assert.is_not_nil(E.stop(false):find "exp")
    local pipe = io.popen("find " .. process.quote(path) .. " -type f")
    assert.are.equal("", pipe:read "*a")
    pipe:close()
    os.execute("rm -rf " .. process.quote(path))
  end)

  it("refuses what is no use of it", function()
    local function refused(kind, words, fn)
      local e = expect.failure(fn)
      assert.are.equal(kind, tf.errors.kind(e), tostring(e))
      assert.is_not_nil(tostring(e):find(words, 1, true), tostring(e))
    end
    refused("Unavailable", "it does not run", function() E.stop() end)
    local path = folder()
    E.start(path)
    refused("AlreadyExists", "runs already", function() E.start(path) end)
    E.stop()
    os.execute("rm -rf " .. process.quote(path))
    refused("Unavailable", "it does not run", function() E.stop() end)
    refused("TypeError", "logdir", function() E.start(3) end)
    refused("TypeError", "name must be a string", function()
      E.Trace(function() end)
    end)
    refused("TypeError", "fn", function() E.Trace("x", 3) end)
    assert.has_error(function() E.start "/dev/null/no" end)
    assert.is_false(raw.profiler_is_running())
    assert.are.equal(7, E.Trace("free", function() return 7 end))
  end)
end)

-- The host's option ------------------------------------------------------------

local function host_run(host, options, script, before)
  local path, code = os.tmpname(), process.file(script, ".lua")
  os.remove(path)
  local r = process.run(("%s%s --profile=%s %s %s"):format(before or "",
    host.path, path, options, code), nil, 120)
  os.remove(code)
  local f = io.open(path, "rb")
  r.events = f and json.decode(f:read "*a").traceEvents
  if f then f:close() end
  os.remove(path)
  return r
end

local REPLICAS = [[
local tf = require "tfdist"
local s = tf.distribute.MirroredStrategy()
local x = tf.ones { 64 }
for _ = 1, 3 do
  s:run(function()
    local c = tf.distribute.get_replica_context()
    tf.profiler.experimental.Trace("inside", function()
      return c:all_reduce("SUM", tf.exp(x))
    end)
  end)
end
]]

-- A copy between devices, a wait for the result of one, and time of Lua alone.
local MOVES = [[
local tf = require "tfdist"
local x = tf.device("/cpu:0", function() return tf.ones { 512, 512 } end)
tf.device("/cpu:1", function()
  assert(tf.reduce_sum(tf.matmul(x, x), 0):totable()[512] == 512 ^ 2)
end)
local n = 0
for i = 1, 1e6 do n = n + i % 3 end
]]

-- What each worker does tells whose timeline it is: exp or sin.
local WORKERS = [[
local tf = require "tfdist"
local s = tf.distribute.MultiWorkerMirroredStrategy()
local work = s.extended.worker_index == 0 and tf.exp or tf.sin
if arg[1] then tf.profiler.experimental.start(arg[1]) end
for _ = 1, 5 do work(tf.ones { 4 }) end
if arg[1] then tf.profiler.experimental.stop() end
]]

local function check_worker(path, worker)
  local list = json.decode(read(path)).traceEvents
  for i, op in ipairs { "exp", "sin" } do
    assert.are.equal(i - 1 == worker and 5 or 0, count(list, function(e)
      return e.name == op end), path)
  end
end

describe("tfdist --profile #once", function()
  for _, host in ipairs(process.hosts) do
    it(host.name .. " shows devices, replicas and collectives", function()
      local r = host_run(host, "--cpu-devices=2", REPLICAS)
      assert.are.equal(0, r.code, r.err)
      local tracks = tracks_of(r.events)
      for _, list in pairs(tracks) do
        table.sort(list, function(a, b)
          if a.ts ~= b.ts then return a.ts < b.ts end
          return a.dur > b.dur
        end)
        check_nesting(list)
      end
      for i = 0, 1 do
        assert.is_true(#tracks["replica " .. i] >= 6)
        assert.are.equal(3, #tracks["ranges of replica " .. i])
        for _, e in ipairs(tracks["replica " .. i]) do
          assert.are.equal(i, e.args.replica)
        end
      end
      assert.are.equal(3, count(tracks.host, function(e)
        return e.cat == "collective" end))
      assert.is_not_nil(r.err:find "profile of ")
      assert.is_not_nil(r.err:find "timeline: ")
    end)

    it(host.name .. " shows transfers, waiting and Lua", function()
      local r = host_run(host, "--cpu-devices=2", MOVES,
        "TFDIST_QUEUE=queued ")
      assert.are.equal(0, r.code, r.err)
      local by, kinds = {}, {}
      for _, e in ipairs(r.events) do
        by[e.name], kinds[e.cat or e.ph] = e, (kinds[e.cat or e.ph] or 0) + 1
      end
      assert.are.equal("transfer", by.copy.cat)
      assert.are.equal("transfer", by["host read"].cat)
      assert.are.equal("wait", by["wait for /cpu:1"].cat)
      assert.is_true(kinds.lua > 0)
      local waiting, share = r.err:match
        "waiting [%d.]+ ms %((%d+)%%%) Lua [%d.]+ ms %((%d+)%%%)"
      assert.is_not_nil(waiting, r.err)
      assert.is_true(tonumber(share) > 0, r.err)
    end)

    it(host.name .. " writes it when the script fails or exits", function()
      local r = host_run(host, "", "require 'tfdist'.exp(1.0)\nerror 'x'")
      assert.are.equal(1, r.code)
      assert.is_true(#r.events > 0)
      r = host_run(host, "", "require 'tfdist'.exp(1.0)\nos.exit(3)")
      assert.are.equal(3, r.code)
      assert.is_true(#r.events > 0)
      r = host_run(host, "-e 'x = 1'", "")
      assert.are.equal(0, r.code)
      assert.is_true(#r.events > 0)
    end)

    it(host.name .. " writes it when it is asked to end", function()
      local ready = os.tmpname()
      local script = ([[
        local tf = require "tfdist"
        local x = tf.ones { 64 }
        local f = assert(io.open(%q, "w"))
        f:write "ready" f:close()
        while true do tf.exp(x):item(0) end
      ]]):format(ready)
      local path, code = os.tmpname(), process.file(script, ".lua")
      local r = process.run(([[
        %s --profile=%s %s & pid=$!
        while ! [ -s %s ]; do kill -0 $pid || exit 9; done
        kill -TERM $pid; wait $pid; echo "ended $?"]]):format(host.path, path,
        code, ready), nil, 120)
      assert.is_not_nil(r.out:find("ended 143", 1, true), r.out .. r.err)
      assert.is_true(#json.decode(read(path)).traceEvents > 0)
      for _, name in ipairs { ready, path, code } do os.remove(name) end
    end)

    it(host.name .. " writes a file for each of several workers", function()
      local place = folder()
      assert(os.execute("mkdir " .. place))
      local script = process.file(WORKERS, ".lua")
      local r = process.run(("%s --profile=%s/p.json run -n 2 --log-dir=%s %s")
        :format(host.path, place, place, script), nil, 120)
      assert.are.equal(0, r.code, r.err)
      r = process.run(("%s run -n 2 --log-dir=%s %s %s"):format(host.path,
        place, script, place), nil, 120)
      assert.are.equal(0, r.code, r.err)
      for _, each in ipairs(workers.run { program = WORKERS, host = host.path
        .. " --profile=" .. place .. "/q" }) do
        assert.are.equal(0, each.code, each.err)
      end
      for _, name in ipairs { "p.worker-%d.json", "q.process-%d" } do
        for i = 0, 1 do
          check_worker(place .. "/" .. name:format(i), i)
        end
        assert.is_nil(io.open(place .. "/" .. name:gsub("%.%a+%-%%d", "")))
      end
      local names = process.run("ls " .. place .. "/plugins/profile/*/*").out
      for i = 0, 1 do
        check_worker(names:match("%S+%.worker%-" .. i .. "%.trace%.json"), i)
      end
      os.remove(script)
      os.execute("rm -r " .. place)
    end)

    it(host.name .. " refuses files that cannot be written", function()
      local r = process.run(host.path
        .. " --profile=/no/such/folder/x.json -e 'print(1)'", nil, 60)
      assert.are.equal(2, r.code)
      assert.are.equal("", r.out)
      assert.is_not_nil(r.err:find("cannot write /no/such/folder/x.json", 1,
        true))
      r = process.run(host.path .. " --profile= -e 'print(1)'", nil, 60)
      assert.are.equal(2, r.code)
    end)
  end
end)
