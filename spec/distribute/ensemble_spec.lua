--- "A strategy is one C file and one Lua class": spec/support/ensemble.c and
--- spec/support/ensemble.lua, in a core module of their own.
local process = require "spec.support.process"

local PROGRAM = [[
local tf = require "tfdist"
local Ensemble = require "spec.support.ensemble"
local s = Ensemble { "CPU:0", "CPU:1" }
local function list(x)
  local out = {}
  for i, part in ipairs(s:experimental_local_results(x)) do
    local t = tf.reshape(part, { -1 })
    out[i] = {}
    for k = 0, t.shape[1] - 1 do
      out[i][k + 1] = ("%g"):format(t[k]:item())
    end
    out[i] = table.concat(out[i], " ")
  end
  return table.concat(out, " | ")
end

print(s)
-- place and create: a copy for each member, read together as their mean
local v = s:scope(function()
  return tf.Variable(1.0, { name = "v" })
end)
print(v.aggregation, v.values[1].name, v.values[2].name, v.trainable)
s:run(function()
  local id = tf.distribute.get_replica_context().replica_id_in_sync_group
  v:assign_add(2.0 * id)
end)
print(list(v), v:read_value():item())
v:assign(5.0)
print(list(v))

-- reduce: what others add up is averaged, by every way to a sum
local per = s:run(function()
  return tf.constant(
    4.0 * tf.distribute.get_replica_context().replica_id_in_sync_group)
end)
print(s:reduce("sum", per, nil):item(), s:reduce("max", per, nil):item())
print(list(s:run(function()
  local ctx = tf.distribute.get_replica_context()
  return ctx:all_reduce("sum", tf.constant(1.0 + ctx.replica_id_in_sync_group))
end)))

-- input shares: everything for everyone
local ds = s:experimental_distribute_dataset(
  tf.data.Dataset.range(3):batch(2))
for x in ds:iter() do
  print(list(x))
end

-- training: each member goes its own way
s:run(function()
  local id = tf.distribute.get_replica_context().replica_id_in_sync_group
  local tape, loss = tf.GradientTape(function()
    return v * v * (id + 1)
  end)
  v:assign_sub(0.1 * tape:gradient(loss, v))
end)
print(list(v))
print(pcall(Ensemble, {}))
]]

-- Members: 5 - 0.1 * 2 * 5 * (id + 1) = 4 and 3.
local WANTED = [[
EnsembleStrategy{ /cpu:0, /cpu:1 }  2 replicas in sync, reduction: all devices share memory
MEAN	v	v/replica_1	true
1 | 3	2.0
5 | 5
2.0	4.0
1.5 | 1.5
0 1 | 0 1
2 | 2
4 | 3
]]

describe("a strategy of one C file and one Lua class #once", function()
  for _, engine in ipairs { { "lua54", "lua5.4" }, { "luajit", "luajit" } } do
    it("does what its table says, " .. engine[2], function()
      local core = ("%s/spec/%s/tfdist/core.so"):format(process.build,
        engine[1])
      local made = process.run(("make -s BUILD=%s %s"):format(process.build,
        core))
      assert.equal(0, made.code, made.err)
      local path = process.file(PROGRAM, ".lua")
      local r = process.run(("TFDIST_CPU_DEVICES=2 LUA_PATH="
        .. "'lua/?.lua;lua/?/init.lua;./?.lua;;' LUA_CPATH='%s/spec/%s/?.so' "
        .. "%s %s"):format(process.build, engine[1], engine[2], path))
      os.remove(path)
      assert.equal(0, r.code, r.err)
      -- LuaJIT prints whole floats without a fraction.
      local out = r.out:gsub("(%d)%.0\n", "%1\n"):gsub("(%d)%.0\t", "%1\t")
      local last = out:match "\n(false[^\n]*)\n$"
      local wanted = WANTED:gsub("(%d)%.0\n", "%1\n"):gsub("(%d)%.0\t", "%1\t")
      assert.equal(wanted, (out:gsub("false[^\n]*\n$", "")))
      assert.truthy(last:find("EnsembleStrategy: the list of devices is empty",
        1, true), last)
    end)
  end
end)
