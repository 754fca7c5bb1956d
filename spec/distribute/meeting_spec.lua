--- Workers that were given different things: all end when they meet, long before
--- any of them would give the others up, with status 2 and one message that names
--- both. Who has another secret cannot be believed, and who has another cluster is
--- perhaps nobody's: they are waited for.
local process = require "spec.support.process"
local workers = require "spec.support.workers"

local PROGRAM = workers.HEAD .. 'print(show(s:reduce("SUM", 1.0)))'
local SOON = 10 -- seconds; they would wait for 60

local function now()
  local f = assert(io.open "/proc/uptime")
  local t = f:read "*n"
  f:close()
  return t
end

local function run(host, given)
  given.host = host.path
  given.program = given.program or PROGRAM
  given.environment = "TFDIST_RENDEZVOUS_TIMEOUT=60 "
    .. (given.environment or "")
  local begun = now()
  local rs = workers.run(given)
  for _, r in ipairs(rs) do
    r.seconds = r.ended - begun
  end
  return rs
end

-- With other addresses than those of worker 0, who has the first two.
local function clusters(ports)
  return function(i)
    local list = { ports[1], ports[2], i == 1 and ports[3] or nil }
    for k, port in ipairs(list) do
      list[k] = ('"127.0.0.1:%s"'):format(port)
    end
    return "TF_CONFIG=" .. process.quote(('{"cluster": {"worker": [%s]}, '
      .. '"task": {"type": "worker", "index": %d}}'):format(
      table.concat(list, ", "), i))
  end
end

local function set(name, values)
  return function(i)
    return values[i] and name .. "=" .. values[i] or ""
  end
end

local APART = {
  ["numbers of devices"] = {
    each = set("TFDIST_CPU_DEVICES", { [0] = 1, 2 }),
    has = "process 0 has 1 device; process 1 has 2 devices\n",
    hint = "TFDIST_CPU_DEVICES" },
  ["transports"] = {
    each = set("TFDIST_TRANSPORT", { [0] = "shm", "tcp" }),
    has = "process 0 goes over shm; process 1 goes over tcp\n",
    hint = "TFDIST_TRANSPORT" },
  ["transports, of which one is what they would take"] = {
    each = set("TFDIST_TRANSPORT", { [0] = "tcp" }),
    has = "process 0 goes over tcp; process 1 goes over shm\n",
    hint = "TFDIST_TRANSPORT" },
  ["transports, by options of the program"] = {
    each = set("IMPLEMENTATION", { [0] = "AUTO", "RING" }),
    program = [[local tf = require "tfdist"
      tf.distribute.MultiWorkerMirroredStrategy { communication_options =
        tf.distribute.experimental.CommunicationOptions {
          implementation = os.getenv "IMPLEMENTATION" } }]],
    has = "process 0 goes over shm; process 1 goes over ring\n",
    hint = "communication options" },
}

describe("workers that were given different #once", function()
  for _, host in ipairs(process.hosts) do
    local function both_say(given, who, has, hint)
      local rs = run(host, given)
      for _, r in ipairs(rs) do
        assert.equal(2, r.code, r.err)
        assert.is_true(r.seconds < SOON, r.err)
        local _, count = r.err:gsub(": FailedPrecondition: ", "")
        assert.equal(1, count, r.err)
        assert.matches(": FailedPrecondition: group: process 0 %(" .. who[1]
          .. ", pid %d+%) and process 1 %(" .. who[2]
          .. ", pid %d+%) do not agree: ", r.err)
        assert.matches(has, r.err, 1, true)
        assert.matches("hint: [^\n]*" .. hint, r.err)
        assert.is_nil(r.err:find("warning", 1, true), r.err)
      end
    end

    for name, case in pairs(APART) do
      for _, secret in ipairs { "", "TFDIST_SECRET=between-us" } do
        it(("%s end (%s%s)"):format(name, host.name, secret == "" and ""
          or ", with a secret"), function()
          both_say({ each = case.each, program = case.program,
            environment = secret }, { "127%.0%.0%.1:%d+", "127%.0%.0%.1:%d+" },
            case.has, case.hint)
        end)
      end
    end

    it("secrets or clusters are waited for, by who has not gone to the other ("
      .. host.name .. ")", function()
      local ports = workers.ports(3)
      local a, b, c = "127.0.0.1:" .. ports[1], "127.0.0.1:" .. ports[2],
        "127.0.0.1:" .. ports[3]
      for _, case in ipairs {
        { clusters(ports), "has another list of addresses",
          ("process 0 has the 2 addresses %s, %s; process 1 has the 3 addresses "
          .. "%s, %s, %s\n"):format(a, b, a, b, c) },
        { set("TFDIST_SECRET", { [0] = "one", "two" }), "has another secret" },
        { set("TFDIST_SECRET", { [0] = "one" }),
          "has no secret, and this one has one" },
        { set("TFDIST_SECRET", { [1] = "one" }),
          "has a secret, and this one has none" },
      } do
        local rs
        -- On a busy machine the other may not have come in time.
        for _ = 1, 5 do
          rs = run(host, { each = function(i)
            return case[1](i)
              .. (i == 0 and " TFDIST_RENDEZVOUS_TIMEOUT=2" or "")
          end })
          if not rs[1].err:find("not heard of", 1, true) then break end
        end
        assert.same({ 2, 2 }, { rs[1].code, rs[2].code })
        assert.is_true(rs[2].seconds < SOON, rs[2].err)
        assert.matches(case[3] or "", rs[2].err, 1, true)
        assert.matches("DeadlineExceeded: group: not all of 2 processes are "
          .. "there after 2 s: process 1 %(127%.0%.0%.1:%d+%): one that says "
          .. "it is this, at 127%.0%.0%.1, " .. case[2] .. "\n", rs[1].err)
        if case[2]:find "secret" then
          assert.matches("hint: [^\n]*TFDIST_SECRET", rs[1].err)
        end
      end
    end)

    it("names of one transport work (" .. host.name .. ")", function()
      for i = 0, 1 do
        for _, r in ipairs(run(host, {
          each = set("TFDIST_TRANSPORT", { [i] = "shm" }) })) do
          assert.same({ 0, "2\n" }, { r.code, r.out }, r.err)
        end
      end
    end)

    it("things end all of `tfdist run` (" .. host.name .. ")", function()
      local script = process.file([[
        local tf = require "tfdist"
        local index = os.getenv "TF_CONFIG":match '"index": ?(%d)'
        tf.distribute.MultiWorkerMirroredStrategy { communication_options =
          tf.distribute.experimental.CommunicationOptions {
            implementation = index == "1" and "RING" or "AUTO" } }]], ".lua")
      local begun = now()
      local r = process.run(("TFDIST_RENDEZVOUS_TIMEOUT=60 %s run -n 2 %s")
        :format(host.path, script), nil, 50)
      os.remove(script)
      assert.equal(2, r.code, r.err)
      assert.is_true(now() - begun < SOON, r.err)
      assert.matches("process 0 goes over shm; process 1 goes over ring", r.err,
        1, true)
    end)
  end
end)
