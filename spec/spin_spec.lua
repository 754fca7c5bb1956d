local process = require "spec.support.process"

local run = process.run

-- OMP_DISPLAY_ENV makes libgomp print what it understood when it started.
local SHOW = " OMP_DISPLAY_ENV=verbose "
local CODE = [[ -e 'require "tfdist.core" print(os.getenv "GOMP_SPINCOUNT")']]
local PLAIN = "LUA_PATH='lua/?.lua;;' LUA_CPATH='" .. process.build
  .. "/%s/?.so;;' %s"

describe("idle OpenMP threads #once", function()
  for _, interpreter in ipairs { process.hosts[1].path, process.hosts[2].path,
    PLAIN:format("lua54", "lua5.4"), PLAIN:format("luajit", "luajit") } do
    -- What libgomp was told, and what the script sees.
    local function spin(environment)
      local r = run("env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY " .. environment
        .. SHOW .. "sh -c " .. process.quote(interpreter .. CODE))
      assert.equal(0, r.code, r.err)
      return r.err:match "GOMP_SPINCOUNT = '(%d+)'", r.out
    end

    it("spin a bounded time under " .. interpreter, function()
      local count, seen = spin ""
      assert.is_true(tonumber(count) >= 100 and tonumber(count) <= 20000, count)
      assert.equal("nil\n", seen)
    end)

    it("obey the user under " .. interpreter, function()
      local count, seen = spin "GOMP_SPINCOUNT=77"
      assert.equal("77", count)
      assert.equal("77\n", seen)
      assert.equal("0", (spin "OMP_WAIT_POLICY=passive"))
      assert.is_true(tonumber((spin "OMP_WAIT_POLICY=active")) > 1000)
    end)
  end

  for _, host in ipairs(process.hosts) do
    it("leave the environment of scripts alone in " .. host.name, function()
      for _, given in ipairs { "", "OLDPWD=x", "A=1 PATH=/bin:/usr/bin B=2",
        "A=1 HOME=/h USER=u", "_=a PWD=b GOMP_SPINCOUNT=5" } do
        local r = run(("env -i %s %s -e %s"):format(given, host.path,
          process.quote [[
local file = io.open "/proc/self/environ"
local names = file:read "*a":gsub("=[^%z]*%z", "=")
for name in names:gmatch "([^=]+)=" do
  print(name .. "=" .. tostring(os.getenv(name)))
end]]))
        -- The kernel's copy shows what the process began with.
        local want = {}
        for word in given:gmatch "%S+" do want[#want + 1] = word .. "\n" end
        assert.equal(table.concat(want), r.out)
      end
    end)
  end
end)
