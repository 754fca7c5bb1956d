-- Saves whose machine loses its power, after any of the calls that they make:
-- what is there then is the old or the new one, whatever the disk holds of what
-- was not synced. The seed is printed.
local disk = require "spec.support.disk"
local files = require "spec.support.files"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local SEED = require "spec.support.seed" % 100000 + 1
local DRAWS = os.getenv "TFD_LONG" and 100 or 8

-- What the disk holds of what was not synced: nothing, all, names of files that
-- are empty, files without names; then what is drawn.
local HOLDS = {
  { writes = false, names = false }, { writes = true, names = true },
  { writes = false, names = true }, { writes = true, names = false },
}
for _ = 1, DRAWS do
  HOLDS[#HOLDS + 1] = { writes = "drawn", names = "drawn" }
end

-- Several variables of one value: those of a checkpoint, which a value is given
-- to, and what they hold, an error where that is not one value.
local VARIABLES = [[
local function variables()
  return { a = tf.Variable(tf.zeros { 300 }),
    b = { tf.Variable(0), tf.Variable(tf.zeros { 20, 20 }) } }
end
local function set(t, value)
  t.a:assign(tf.fill({ 300 }, value))
  t.b[1]:assign(value)
  t.b[2]:assign(tf.fill({ 20, 20 }, value))
end
local function value_of(t)
  local least, most = math.huge, -math.huge
  for _, v in ipairs { t.a, t.b[1], t.b[2] } do
    least = math.min(least, tf.reduce_min(v:read_value()):item())
    most = math.max(most, tf.reduce_max(v:read_value()):item())
  end
  assert(least == most, "a mixture")
  return least
end
]]

-- Bodies of functions of (tf, dir, value): `load` returns the value that is
-- there, nil for none.
local SAVERS = {
  { name = "CheckpointManager.save",
    save = [[
      local t = variables()
      local manager = tf.train.CheckpointManager(tf.train.Checkpoint(t),
        dir .. "/new", { max_to_keep = 1 })
      manager:restore_or_initialize()
      set(t, value)
      manager:save()]],
    load = [[
      local t = variables()
      local manager = tf.train.CheckpointManager(tf.train.Checkpoint(t),
        dir .. "/new", { max_to_keep = 1 })
      local path = manager:restore_or_initialize()
      -- Its list names what is there.
      assert(path == tf.train.latest_checkpoint(dir .. "/new"))
      return path and value_of(t)]] },
  { name = "Checkpoint.save",
    save = [[
      local t = variables()
      local checkpoint = tf.train.Checkpoint(t)
      checkpoint:restore(tf.train.latest_checkpoint(dir))
      set(t, value)
      checkpoint:save(dir .. "/c")]],
    load = [[
      local path, t = tf.train.latest_checkpoint(dir), variables()
      if path then tf.train.Checkpoint(t):restore(path):assert_consumed() end
      return path and value_of(t)]] },
  { name = "Checkpoint.write",
    save = [[
      local t = variables()
      set(t, value)
      tf.train.Checkpoint(t):write(dir .. "/c")]],
    load = [[
      local t = variables()
      if not tf.io.gfile.exists(dir .. "/c.safetensors") then return nil end
      tf.train.Checkpoint(t):read(dir .. "/c"):assert_consumed()
      return value_of(t)]] },
}

local compile = rawget(_G, "loadstring") or load

local function body(source)
  return assert(compile("local tf, dir, value = ...\n" .. VARIABLES .. source))
end

describe("a save that the power fails in #once", function()
  local dir, library
  setup(function()
    library = os.tmpname()
    local built = process.run(("gcc -shared -fPIC -O1 -o %s "
      .. "spec/support/faults.c -ldl"):format(library))
    assert.are.equal(0, built.code, built.err)
  end)
  teardown(function()
    os.remove(library)
  end)
  before_each(function()
    dir = files.folder()
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  local function put(list)
    os.execute("rm -rf " .. dir)
    for _, each in ipairs(list) do
      if each[2] then
        files.write(each[1], each[2])
      else
        raw.folder_make(each[1])
      end
    end
  end

  -- All that lies in the folder, as Disk:held has it.
  local function there(path, list)
    list[#list + 1] = { path }
    for _, name in ipairs(files.names(path)) do
      local where = path .. "/" .. name
      local _, is_folder = raw.file_stat(where)
      if is_folder then
        there(where, list)
      else
        list[#list + 1] = { where, files.read(where) }
      end
    end
    return list
  end

  -- The calls of a save of `value`; nil where the host takes no library before
  -- its own.
  local function calls(saver, value)
    local log = files.place()
    local script = process.file(("local tf, dir, value = require 'tfdist', %q, "
      .. "%d\n"):format(dir, value) .. VARIABLES .. saver.save, ".lua")
    local r = process.run(("FAULT_FOLDER=%s FAULT_LOG=%s LD_PRELOAD=%s exec %s "
      .. "%s"):format(dir, log, library, process.hosts[1].path, script))
    os.remove(script)
    assert.are.equal(0, r.code, r.err)
    if not r.err:find "steps %d" then return nil end
    local list = disk.calls(files.read(log))
    os.remove(log)
    return list
  end

  local state
  local function draw(n)
    state = state * 16807 % 2147483647
    return math.floor(state / 65536) % n
  end

  -- What is there when power goes after each call and the disk holds this or
  -- that; and whether a save into that goes well.
  local function check(saver, list, old, new)
    local save, load = body(saver.save), body(saver.load)
    local seen = {}
    for n = 0, #list do
      if n > 0 then saver.disk:call(list[n]) end
      for k, holds in ipairs(HOLDS) do
        put(saver.disk:held(holds, draw))
        local what = ("after call %d of %d (%s), held %d"):format(n, #list,
          n > 0 and list[n].what .. " " .. list[n].from or "", k)
        local ok, value = pcall(load, tf, dir)
        assert.is_true(ok, what .. ": " .. tostring(value))
        assert.is_true(value == new or value == old and n < #list, what .. ": "
          .. tostring(value))
        seen[value or "none"] = true
        if k == #HOLDS then
          save(tf, dir, 9)
          assert.are.equal(9, load(tf, dir), what)
        end
      end
    end
    assert.same({ [old or "none"] = true, [new] = true }, seen)
  end

  for _, saver in ipairs(SAVERS) do
    it(("leaves the old or the new one: %s (seed %d)"):format(saver.name, SEED),
      function()
        state = SEED
        -- The first one, into folders that it makes, and one over that.
        for value = 1, 2 do
          saver.disk = disk.new(dir)
          local list = calls(saver, value)
          if list == nil then
            return pending "the host takes no library before its own"
          end
          local whole = there(dir, {})
          check(saver, list, value > 1 and value - 1 or nil, value)
          -- Nothing that it did was missed.
          assert.same(whole, saver.disk:held(HOLDS[2]))
          put(whole)
        end
      end)
  end
end)
