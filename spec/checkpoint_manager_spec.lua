-- Managers beside others: files that are not theirs, processes that save in the
-- same folder.
local checkpoint = require "tfdist.train.checkpoint"
local files = require "spec.support.files"
local json = require "tfdist.core.json"
local leaks = require "spec.support.leaks"
local notice = require "tfdist.base.notice"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

describe("a CheckpointManager", function()
  local top, dir
  leaks(before_each, after_each)
  before_each(function()
    top = files.place()
    dir = top .. "/run"
    raw.folder_make(top .. "/v")
    raw.folder_make(dir)
  end)
  after_each(function()
    os.execute("rm -rf " .. top)
  end)

  local function new(options)
    local ckpt = tf.train.Checkpoint { v = tf.Variable(1) }
    return tf.train.CheckpointManager(ckpt, dir, options
      or { max_to_keep = 1 }), ckpt
  end

  local function state(latest, all, removing)
    files.write(dir .. "/checkpoint", json.encode {
      model_checkpoint_path = latest, all_model_checkpoint_paths = all,
      removing = removing })
  end

  it("says when nothing of what is listed is there", function()
    local said, warn = {}, notice.warn
    notice.warn = function(text) said[#said + 1] = text end
    local ok, e = pcall(function()
      new():save()
      new()
      assert.same({}, said)
      os.remove(dir .. "/ckpt-1.safetensors")
      local manager = new()
      assert.is_nil(manager.latest_checkpoint)
      assert.is_nil(manager:restore_or_initialize())
    end)
    notice.warn = warn
    assert(ok, e)
    assert.equal(1, #said)
    assert.truthy(said[1]:find("names " .. dir .. "/ckpt-1, and no checkpoint",
      1, true), said[1])
  end)

  it("removes only what it wrote, whatever the state file names", function()
    local others = { top .. "/v/precious", top .. "/v/ckpt-1", dir .. "/best",
      dir .. "/other-1", dir .. "/ckpt-x", dir .. "/ckpt-", dir .. "/ckpt-1-2" }
    for _, path in ipairs(others) do
      tf.train.Checkpoint { v = tf.Variable(7) }:write(path)
    end
    local names = { "../v/precious", top .. "/v/ckpt-1", "best", "other-1",
      "ckpt-x", "ckpt-", "ckpt-1-2", "../run/../v/ckpt-1", "./best" }
    for _, listed in ipairs { { names }, { { "best" }, names } } do
      state("best", listed[1], listed[2])
      local manager = new()
      for _ = 1, 3 do
        manager:save()
      end
      for _, path in ipairs(others) do
        assert.is_true((raw.file_stat(path .. ".safetensors")), path)
      end
      assert.is_false((raw.file_stat(dir .. "/ckpt-2.safetensors")))
    end
  end)

  it("restores what its state file lists elsewhere, and keeps it listed",
    function()
      tf.train.Checkpoint { v = tf.Variable(7) }:write(top .. "/v/first")
      state("../v/first", { "../v/first" })
      local manager, ckpt = new { max_to_keep = 2 }
      assert.is_truthy(manager:restore_or_initialize())
      assert.are.equal(7, ckpt.v:item())
      manager:save()
      assert.are.same({ dir .. "/../v/first", dir .. "/ckpt-1" },
        tf.train.get_checkpoint_state(dir).all_model_checkpoint_paths)
    end)

  it("takes names inside its folder only", function()
    replicas.fails("ValueError", "checkpoint_name", tf.train.CheckpointManager,
      tf.train.Checkpoint {}, dir, { checkpoint_name = "../c" })
  end)

  it("removes no file that BackupAndRestore did not write", function()
    local model = tf.keras.Sequential { tf.keras.layers.Dense(1) }
    model:compile { optimizer = "sgd", loss = "mse" }
    local place = dir .. "/chief"
    raw.folder_make(place)
    tf.train.Checkpoint { v = tf.Variable(7) }:write(top .. "/v/precious")
    files.write(place .. "/ckpt-1", "not a checkpoint's file")
    local position = { step = tf.Variable(1) }
    tf.train.Checkpoint(position):write(place .. "/ckpt-1")
    files.write(place .. "/checkpoint", json.encode {
      model_checkpoint_path = "ckpt-1",
      all_model_checkpoint_paths = { "../../v/precious", "ckpt-1" } })
    pcall(model.fit, model, tf.ones { 2, 1 }, tf.ones { 2, 1 }, { verbose = 0,
      callbacks = { tf.keras.callbacks.BackupAndRestore(dir) } })
    assert.is_true((raw.file_stat(top .. "/v/precious.safetensors")))
    assert.is_true((raw.file_stat(place .. "/ckpt-1")))
  end)

  it("goes on with what is there when the list of it is damaged", function()
    local warn = notice.warn
    finally(function() notice.warn = warn end)
    function notice.warn() end
    for i, damage in ipairs { "", '{"model_checkpoint_path": "ckpt-2",', "[]" } do
      os.execute("rm -f " .. dir .. "/*")
      local first, theirs = new { max_to_keep = 2 }
      tf.train.Checkpoint { v = tf.Variable(7) }:write(dir .. "/other-9")
      for k = 1, 3 do
        theirs.v:assign(10 * i + k)
        first:save()
      end
      files.write(dir .. "/checkpoint", damage)
      local manager, ckpt = new { max_to_keep = 2 }
      assert.are.equal(dir .. "/ckpt-3", manager.latest_checkpoint)
      assert.are.equal(dir .. "/ckpt-3", manager:restore_or_initialize())
      assert.are.equal(10 * i + 3, ckpt.v:item())
      for k = 4, 6 do
        assert.are.equal(dir .. "/ckpt-" .. k, manager:save())
      end
      assert.are.same({ dir .. "/ckpt-5", dir .. "/ckpt-6" },
        tf.train.get_checkpoint_state(dir).all_model_checkpoint_paths)
      -- Some of those that no list names may have been kept for ever.
      for k = 2, 6 do
        assert.are.equal(k ~= 4,
          (raw.file_stat(dir .. "/ckpt-" .. k .. ".safetensors")))
      end
    end
  end)

  it("says of damaged ones what comes of that", function()
    local warn, said = notice.warn, {}
    finally(function() notice.warn = warn end)
    function notice.warn(message) said[#said + 1] = message end
    local first = new { max_to_keep = 3 }
    for _ = 1, 3 do
      first:save()
    end
    local function told(restored, ...)
      said = {}
      local path = (new { max_to_keep = 3 }):restore_or_initialize()
      assert.are.equal(restored and dir .. "/ckpt-" .. restored or nil, path)
      for i, words in ipairs { ... } do
        assert.matches("/ckpt%-" .. words, said[i])
      end
      assert.are.equal(select("#", ...), #said)
    end
    local before = "%d cannot be restored, trying the one before: "
    local gone = "%d cannot be restored, and no other one: there is nothing to "
      .. "go on from: "
    told(3)
    for k = 3, 1, -1 do
      local path = ("%s/ckpt-%d.safetensors"):format(dir, k)
      local text = files.read(path)
      files.write(path, text:sub(1, -2)
        .. string.char((text:byte(-1) + 1) % 256))
      if k > 1 then
        local list = {}
        for i = 3, k, -1 do
          list[#list + 1] = before:format(i)
        end
        told(k - 1, unpack(list))
      end
    end
    told(nil, before:format(3), before:format(2), gone:format(1))
    os.remove(dir .. "/ckpt-1.safetensors")
    told(nil, before:format(3), gone:format(2))
    os.remove(dir .. "/ckpt-2.safetensors")
    told(nil, gone:format(3))
  end)

  it("takes what was written last for the newest where no list says it",
    function()
      local warn, said = notice.warn, {}
      finally(function() notice.warn = warn end)
      function notice.warn(message) said[#said + 1] = message end
      local at = os.time() - 1000
      local function written(k, value, seconds)
        tf.train.Checkpoint { v = tf.Variable(value) }:write(dir .. "/ckpt-"
          .. k)
        os.execute(("touch -d @%d %s/ckpt-%d.safetensors"):format(at + seconds,
          dir, k))
      end
      -- 10 and 9 are an earlier run's; 2 and 3 have one time.
      written(10, 10, 0)
      written(9, 9, 1)
      written(1, 1, 10)
      written(3, 3, 20)
      written(2, 2, 20)
      files.write(dir .. "/checkpoint", "[]")
      local manager, ckpt = new { max_to_keep = 2 }
      assert.are.equal(dir .. "/ckpt-3", manager.latest_checkpoint)
      assert.are.equal(dir .. "/ckpt-3", manager:restore_or_initialize())
      assert.are.equal(3, ckpt.v:item())
      assert.are.same({ dir .. "/checkpoint: no checkpoints are named in it; "
        .. "this list of checkpoints is ignored" }, said)
      -- Each one gone, the one written before it is found.
      for _, k in ipairs { 3, 2, 1, 9 } do
        os.remove(("%s/ckpt-%d.safetensors"):format(dir, k))
        local next_one = { [3] = 2, [2] = 1, [1] = 9, [9] = 10 }
        local again, restored = new { max_to_keep = 2 }
        again:restore_or_initialize()
        assert.are.equal(next_one[k], restored.v:item())
      end
      -- Another damage is another word.
      files.write(dir .. "/checkpoint", "{")
      new()
      assert.are.equal(2, #said)
    end)

  -- Another process, for one that waits would never come back.
  it("waits for nothing in its list's place, and begins nothing anew", function()
    local first = new { max_to_keep = 3 }
    first:save()
    first:save()
    files.write(top .. "/go.lua", [[
      local tf = require "tfdist"
      local ckpt = tf.train.Checkpoint { v = tf.Variable(9) }
      local manager = tf.train.CheckpointManager(ckpt, arg[1])
      local restored = manager:restore_or_initialize()
      print(restored:match "[^/]*$", ckpt.v:item() == 1)
      local ok, e = pcall(manager.save, manager)
      print(ok and e:match "[^/]*$" or e.message)
    ]])
    for _, case in ipairs {
      { "mkfifo %s", "not a plain file", "it is no plain file" },
      { "mkdir %s", "is a folder", "it is a folder" },
      { "ln -s /dev/zero %s", "not a plain file", "it is no plain file" },
      { "ln -s checkpoint %s", "levels of symbolic links", "ckpt%-3" },
      { "ln -s nowhere %s", "No such file", "ckpt%-3" },
    } do
      local list = dir .. "/checkpoint"
      os.execute("rm -rf " .. list)
      os.execute("rm -f " .. dir .. "/ckpt-3*")
      os.execute(case[1]:format(list))
      local r = process.run(("%s %s/go.lua %s"):format(process.hosts[1].path,
        top, dir), nil, 20)
      local out = r.err .. r.out
      assert.are.equal(0, r.code, out)
      assert.matches(list .. ":[^\n]*" .. case[2]
        .. "[^\n]*; this list of checkpoints is ignored", out)
      assert.matches("\nckpt%-2\ttrue\n[^\n]*" .. case[3] .. "\n", out)
    end
  end)

  it("finds what another one has saved since it read the list", function()
    local other, theirs = new { max_to_keep = 2 }
    other:save()
    other:save()
    local manager, ckpt = new { max_to_keep = 2 }
    for i = 3, 5 do
      theirs.v:assign(i)
      other:save()
    end
    assert.are.equal(dir .. "/ckpt-5", manager:restore_or_initialize())
    assert.are.equal(5, ckpt.v:item())
  end)

  it("finds what another one saves while it restores", function()
    local other, theirs = new { max_to_keep = 2 }
    other:save()
    local manager, ckpt = new { max_to_keep = 2 }
    local open, opened = checkpoint.open, 0
    -- What was listed is gone by the time it is opened, six times.
    function checkpoint.open(path)
      opened = opened + 1
      for _ = 1, opened <= 6 and 2 or 0 do
        theirs.v:assign_add(1)
        other:save()
      end
      return open(path)
    end
    local ok, path = pcall(manager.restore_or_initialize, manager)
    checkpoint.open = open
    assert.is_true(ok, tostring(path))
    assert.is_truthy(path)
    assert.are.equal(theirs.v:item(), ckpt.v:item())
  end)

  it("finds the newest where another one's list names what is gone", function()
    local manager, ckpt = new { max_to_keep = 2 }
    for i = 1, 3 do
      ckpt.v:assign(i)
      manager:save()
    end
    state("ckpt-1", { "ckpt-0", "ckpt-1" })
    local again, restored = new()
    assert.are.equal(dir .. "/ckpt-3", again:restore_or_initialize())
    assert.are.equal(3, restored.v:item())
  end)

  it("always finds one while two processes save #once", function()
    local script = process.file(([[
local tf = require "tfdist"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local ckpt = tf.train.Checkpoint { v = tf.Variable(1) }
local manager = tf.train.CheckpointManager(ckpt, %q, { max_to_keep = 2 })
repeat manager:save() until io.open(%q)
]]):format(dir, top .. "/stop"), ".lua")
    local children = {}
    for i = 1, 2 do
      children[i] = io.popen(("%s %s 2>&1"):format(process.hosts[1].path,
        script))
    end
    local deadline = os.time() + 60
    while not raw.file_stat(dir .. "/checkpoint") and os.time() < deadline do
      raw.check_interrupt()
    end
    local found = 0
    for _ = 1, 150 do
      found = found + (new { max_to_keep = 2 }:restore_or_initialize() and 1
        or 0)
    end
    files.write(top .. "/stop", "")
    for i = 1, 2 do
      assert.are.equal("", children[i]:read "*a")
      children[i]:close()
    end
    os.remove(script)
    assert.are.equal(150, found)
  end)
end)
