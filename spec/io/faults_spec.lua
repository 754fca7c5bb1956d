-- Processes that are killed, or told no by the system, at each step of a save:
-- what was saved before stays, the next save works and clears up.
local disk = require "spec.support.disk"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local files = require "spec.support.files"

local SIZE = 50000
local KILLED = 137
local MANAGER = 2 -- among the savers

-- What a child does, and what its files say afterwards. `save` and `load` are
-- the bodies of functions of (tf, dir, value): load returns the value there.
local SAVERS = {
  { name = "Checkpoint.save",
    save = [[
      local ckpt = tf.train.Checkpoint { v = tf.Variable(tf.zeros { SIZE }) }
      ckpt:restore(tf.train.latest_checkpoint(dir))
      ckpt.v:assign(tf.fill({ SIZE }, value))
      ckpt:save(dir .. "/c")]],
    load = [[
      local path = assert(tf.train.latest_checkpoint(dir))
      assert(require("tfdist.train.checkpoint").verify(path))
      return tf.train.load_variable(path, "v"):item(SIZE - 1)]] },
  { name = "CheckpointManager.save", files = 2,
    save = [[
      local ckpt = tf.train.Checkpoint { v = tf.Variable(tf.zeros { SIZE }) }
      local manager = tf.train.CheckpointManager(ckpt, dir, { max_to_keep = 1 })
      manager:restore_or_initialize()
      ckpt.v:assign(tf.fill({ SIZE }, value))
      manager:save()]],
    load = [[
      local ckpt = tf.train.Checkpoint { v = tf.Variable(tf.zeros { SIZE }) }
      local manager = tf.train.CheckpointManager(ckpt, dir, { max_to_keep = 1 })
      assert(manager:restore_or_initialize())
      return ckpt.v:item(SIZE - 1)]] },
  { name = "model:save_weights", files = 2,
    save = [[
      local model = tf.keras.Sequential { tf.keras.layers.Dense(SIZE, {
        kernel_initializer = tf.keras.initializers.Constant(value) }) }
      model(tf.ones { 1, 1 })
      model:save_weights(dir .. "/w")]],
    load = [[
      local model = tf.keras.Sequential { tf.keras.layers.Dense(SIZE) }
      model(tf.ones { 1, 1 })
      assert(model:load_weights(dir .. "/w")):assert_consumed()
      return model(tf.ones { 1, 1 }):item(SIZE - 1)]] },
  { name = "write_file",
    save = [[tf.io.write_file(dir .. "/f", tostring(value):rep(SIZE))]],
    load = [[
      local content = assert(tf.io.read_file(dir .. "/f"))
      assert(#content == SIZE and content == content:sub(1, 1):rep(SIZE))
      return tonumber(content:sub(1, 1))]] },
}

local compile = rawget(_G, "loadstring") or load

local function body(source)
  return assert(compile(("local tf, dir, value, SIZE = ...\n" .. source)))
end

-- Says how the first save ended, then saves again.
local CHILD = [[
local tf = require "tfdist"
local function save(tf, dir, value, SIZE)
%s
end
local ok, e = pcall(save, tf, %q, 2, %d)
print(ok and "saved" or e.kind .. ": " .. e.message)
if not ok then save(tf, %q, 2, %d) end
]]

describe("a save #once", function()
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
    dir = files.place()
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  local function names()
    return files.names(dir)
  end

  local function temporary_files()
    local list = {}
    for _, name in ipairs(names()) do
      if name:find("tfdist-tmp", 1, true) then list[#list + 1] = name end
    end
    return list
  end

  -- Run the saver in a child that has the fault at this step.
  local function child(saver, step, code, host)
    local script = process.file(CHILD:format(saver.save, dir, SIZE, dir, SIZE),
      ".lua")
    local r = process.run(("FAULT_FOLDER=%s FAULT_STEP=%d FAULT_ERRNO=%d "
      .. "LD_PRELOAD=%s exec %s %s"):format(dir, step, code, library,
      process.hosts[host].path, script))
    os.remove(script)
    return r
  end

  local function begin(saver)
    os.execute("rm -rf " .. dir)
    raw.folder_make(dir)
    body(saver.save)(tf, dir, 1, SIZE)
    assert.are.equal(1, body(saver.load)(tf, dir, nil, SIZE))
  end

  -- The value that is there, then one save more, and nothing left over.
  local function check(saver, what)
    local ok, value = pcall(body(saver.load), tf, dir, nil, SIZE)
    assert.is_true(ok, what .. ": " .. tostring(value))
    assert.is_true(value == 1 or value == 2, what)
    ok, value = pcall(body(saver.save), tf, dir, 3, SIZE)
    assert.is_true(ok, what .. ": " .. tostring(value))
    assert.are.equal(3, body(saver.load)(tf, dir, nil, SIZE), what)
    if saver.name ~= "write_file" then
      assert.are.same({}, temporary_files(), what)
    end
    if saver.files then assert.are.equal(saver.files, #names(), what) end
  end

  -- Steps of one save; nil when this host takes no library before its own.
  local function count_steps(saver, host)
    begin(saver)
    local r = child(saver, 0, 0, host)
    if r.err:find("ASan runtime", 1, true) then
      return nil
    end
    local n = tonumber(r.err:match "steps (%d+)")
    assert.is_true(r.code == 0 and n > 6 and n < 60, r.out .. r.err)
    return n
  end

  local function killed(saver, host, stride)
    for step = 1, count_steps(saver, host) or 0, stride or 1 do
      begin(saver)
      local r = child(saver, step, 0, host)
      local what = ("step %d, exit status %d, %s"):format(step, r.code, r.err)
      assert.are.equal(KILLED, r.code, what)
      check(saver, what)
    end
  end

  local function refused(saver, code, kind, stride)
    local n, failures = count_steps(saver, 1), 0
    for step = 1, n or 0, stride or 1 do
      begin(saver)
      local r = child(saver, step, code, 1)
      local what = ("step %d: %s%s"):format(step, r.out, r.err)
      assert.are.equal(0, r.code, what)
      local first = r.out:match "^[^\n]*"
      if first ~= "saved" then
        failures = failures + 1
        assert.is_truthy(first:find(dir, 1, true), what)
        assert.are.equal(kind, first:match "^%a+", what)
      end
      assert.are.same({}, temporary_files(), what)
      check(saver, what)
    end
    assert.is_true(n == nil or failures >= 4, failures .. " failures")
  end

  for number, saver in ipairs(SAVERS) do
    it("killed at any step: " .. saver.name, function()
      killed(saver, 1)
    end)
    if saver.files then
      it("told that the disk is full at any step: " .. saver.name, function()
        refused(saver, 28, "ResourceExhausted")
      end)
    end
    if number == MANAGER then
      it("killed at any step on the other engine", function()
        killed(saver, 2, 3)
      end)
      it("told that it may not at any step", function()
        refused(saver, 13, "FailedPrecondition", 2)
      end)
    end
  end

  -- The calls of one save of a manager into folders that are not there yet;
  -- nil where a host takes no library before its own.
  local function calls()
    local log = files.place()
    local place = dir .. "/new/deep"
    raw.folder_make(dir)
    local script = process.file(([[
local tf = require "tfdist"
local ckpt = tf.train.Checkpoint { v = tf.Variable(tf.zeros { 100 }) }
tf.train.CheckpointManager(ckpt, %q, { max_to_keep = 1 }):save()
]]):format(place), ".lua")
    local r = process.run(("FAULT_FOLDER=%s FAULT_LOG=%s LD_PRELOAD=%s exec %s "
      .. "%s"):format(dir, log, library, process.hosts[1].path, script))
    os.remove(script)
    assert.are.equal(0, r.code, r.err)
    if tonumber(r.err:match "steps (%d+)") == nil then
      return nil
    end
    local list = disk.calls(files.read(log))
    os.remove(log)
    return list
  end

  -- Position of the next call of this kind, behind `at`.
  local function next_call(list, at, what, path)
    for i = at + 1, #list do
      if list[i].what == what and list[i].from == path then
        return i
      end
    end
  end

  it("syncs what it wrote before it has its name, and each name it made",
    function()
      local list = calls()
      if list == nil then
        return pending "the host takes no library before its own"
      end
      local made = { mkdir = 0, rename = 0 }
      for at, call in ipairs(list) do
        if call.what == "rename" then
          local synced, written = next_call(list, 0, "fsync", call.from), 0
          while next_call(list, written, "write", call.from) do
            written = next_call(list, written, "write", call.from)
          end
          assert.is_truthy(synced, call.from .. " was not synced")
          assert.is_true(0 < written and written < synced and synced < at)
        end
        if made[call.what] then
          made[call.what] = made[call.what] + 1
          local path = call.what == "mkdir" and call.from or call.to
          local folder = path:match "^(.*)/"
          assert.is_truthy(next_call(list, at, "fsync", folder),
            folder .. " was not synced after " .. call.what)
        end
      end
      assert.are.same({ mkdir = 2, rename = 2 }, made)
    end)

  it("killed at any time", function()
    local saver = SAVERS[MANAGER]
    local script = process.file(CHILD:format("while true do\n"
      .. saver.save .. "\nend", dir, SIZE, dir, SIZE), ".lua")
    for i = 1, 8 do
      begin(saver)
      -- In the foreground it does not kill itself too but waits for what it
      -- killed, whose files stay locked until the kernel is done with it.
      local r = process.run(("exec timeout --foreground -s KILL %.2f %s %s")
        :format(0.2 + 0.03 * i, process.hosts[1].path, script))
      assert.are.equal(KILLED, r.code, r.err)
      check(saver, "round " .. i)
    end
    os.remove(script)
  end)

  -- Trains, and prints what it learnt; takes over what an earlier one backed up.
  local FIT = [[
local tf = require "tfdist"
local model = tf.keras.Sequential { tf.keras.layers.Dense(1, {
  kernel_initializer = "ones" }) }
model:compile { optimizer = tf.keras.optimizers.SGD { learning_rate = 0.1,
  momentum = 0.5 }, loss = "mse" }
model:fit(tf.constant { { 1, 2 }, { 3, -1 } }, tf.constant { { 2 }, { 1 } }, {
  epochs = 4, verbose = 0, shuffle = false, batch_size = 1,
  callbacks = { tf.keras.callbacks.BackupAndRestore(%q) } })
print(table.concat(model(tf.constant { { 1, 0 }, { 0, 1 }, { 0, 0 } }):toflat(),
  " "))
]]

  it("of a fit that is killed at any step: it ends as if it had not been",
    function()
      local script = process.file(FIT:format(dir), ".lua")
      local function fit(step)
        local r = process.run(("FAULT_FOLDER=%s FAULT_STEP=%d LD_PRELOAD=%s "
          .. "exec %s %s"):format(dir, step, library, process.hosts[1].path,
          script))
        return r, tonumber(r.err:match "steps (%d+)")
      end
      local whole, n = fit(0)
      assert.are.equal(0, whole.code, whole.err)
      assert.is_true(n > 40)
      assert.is_false(tf.io.gfile.exists(dir))
      for step = 1, n, 9 do
        assert.are.equal(KILLED, fit(step).code)
        assert.are.equal(whole.out, fit(0).out, "step " .. step)
        os.execute("rm -rf " .. dir)
      end
      os.remove(script)
    end)

  it("that fails when the file has its name is forgotten by the next one",
    function()
      local script = process.file(([[
local tf = require "tfdist"
local ckpt = tf.train.Checkpoint { v = tf.Variable(1) }
local manager = tf.train.CheckpointManager(ckpt, %q, { max_to_keep = 1 })
print(pcall(manager.save, manager))
manager:save()
]]):format(dir), ".lua")
      local lost = 0
      for step = 1, 12 do
        os.execute("rm -rf " .. dir)
        local r = process.run(("FAULT_FOLDER=%s FAULT_STEP=%d FAULT_ERRNO=5 "
          .. "LD_PRELOAD=%s exec %s %s"):format(dir, step, library,
          process.hosts[1].path, script))
        if r.err:find("ASan runtime", 1, true) then break end
        if r.out:find("sync its folder", 1, true) then lost = lost + 1 end
        assert.are.equal(2, #names(), r.out)
      end
      os.remove(script)
      assert.is_true(lost >= 1)
    end)

  it("leaves alone what running processes write and what is no leftover",
    function()
      raw.folder_make(dir .. "/x.tfdist-tmp-1-2")
      for _, name in ipairs { "a.tfdist-tmp-1-", "tfdist-tmp-1-2", "a.tmp-1-2",
        "a.tfdist-tmp-1-2x", ".tfdist-tmp-1-2" } do
        tf.io.write_file(dir .. "/" .. name, "")
      end
      tf.io.write_file(dir .. "/old.tfdist-tmp-1-2", "")
      local busy = process.file("", ".busy")
      local lock = ("exec 9>>%s/busy.tfdist-tmp-1-2; flock 9; echo > %s; "
        .. "exec sleep 600"):format(dir, busy)
      local pid = io.popen("sh -c '" .. lock .. "' >/dev/null & echo $!")
      local number = pid:read "*n"
      pid:close()
      for _ = 1, 6000 do
        if tf.io.read_file(busy) ~= "" then break end
        os.execute "sleep 0.01"
      end
      local saver = raw.saver_new()
      raw.saver_write(saver, dir .. "/s.safetensors")
      raw.release(saver)
      os.execute(("kill %d"):format(number))
      os.remove(busy)
      assert.are.same({ ".tfdist-tmp-1-2", "a.tfdist-tmp-1-",
        "a.tfdist-tmp-1-2x", "a.tmp-1-2", "busy.tfdist-tmp-1-2",
        "s.safetensors", "tfdist-tmp-1-2", "x.tfdist-tmp-1-2" }, names())
    end)

  it("into what is a folder says so and leaves it", function()
    raw.folder_make(dir .. "/w.safetensors")
    raw.folder_make(dir .. "/f")
    for _, save in ipairs {
      function()
        tf.train.Checkpoint { v = tf.Variable(1) }:write(dir .. "/w")
      end,
      function() tf.io.write_file(dir .. "/f", "x") end,
      function() tf.io.write_npy(dir .. "/f", { 1 }) end,
      function() tf.io.TFRecordWriter(dir .. "/f") end,
    } do
      local ok, e = pcall(save)
      assert.is_false(ok)
      assert.are.equal("FailedPrecondition", e.kind)
      assert.is_truthy(e.message:find(dir, 1, true), e.message)
    end
    assert.are.same({ "f", "w.safetensors" }, names())
  end)
end)
