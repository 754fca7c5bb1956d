-- Saving and restoring graphs of objects.
local leaks = require "spec.support.leaks"
local notice = require "tfdist.base.notice"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"
local checkpoint = require "tfdist.train.checkpoint"
local files = require "spec.support.files"

local fails = replicas.fails

local folder = files.place

local read = files.read

local write = files.write

local function names(path)
  local list = {}
  for i, entry in ipairs(assert(checkpoint.list(path))) do
    list[i] = entry.name
  end
  return list
end

local Pair = tf.Module:subclass "Pair"
function Pair:init(w, b)
  self.w = tf.Variable(w, { name = "w" })
  self.b = tf.Variable(b, { name = "b" })
end

describe("tf.train.Checkpoint", function()
  local dir
  leaks(before_each, after_each)
  before_each(function()
    dir = folder()
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  it("names values by the path of fields, lists from 0", function()
    local ckpt = tf.train.Checkpoint {
      nets = { Pair({ 1, 2 }, 3), Pair({ 4 }, 5) },
      step = tf.Variable(0, { dtype = "int64" }),
      odd = { ["a/b.c"] = tf.Variable(1) },
    }
    local path = ckpt:save(dir .. "/sub/ckpt")
    assert.are.equal(dir .. "/sub/ckpt-1", path)
    assert.are.same({ "nets/0/b", "nets/0/w", "nets/1/b", "nets/1/w",
      "odd/a.Sb..c", "save_counter", "step" }, names(path))
    assert.are.equal(dir .. "/sub/ckpt-2", ckpt:save(dir .. "/sub/ckpt"))
    assert.are.equal(dir .. "/sub/ckpt-2",
      tf.train.latest_checkpoint(dir .. "/sub"))
  end)

  it("restores values, counters and the number of saves", function()
    local pair = Pair({ 1, 2 }, 3)
    local ckpt = tf.train.Checkpoint { pair = pair }
    local path = ckpt:save(dir .. "/c")
    pair.w:assign { 7, 8 }
    pair.b:assign(9)
    ckpt:save(dir .. "/c")
    local status = ckpt:restore(path)
    assert.are.equal(status, status:assert_consumed())
    assert.are.same({ 1, 2 }, pair.w:totable())
    assert.are.equal(3, pair.b:item())
    assert.are.equal(1, ckpt.save_counter:read_value():item())
    local other = tf.train.Checkpoint { pair = Pair({ 0, 0 }, 0) }
    other:restore(path):assert_consumed()
    assert.are.same({ 1, 2 }, other.pair.w:totable())
  end)

  it("writes and reads without counting", function()
    local ckpt = tf.train.Checkpoint { v = tf.Variable { 1, 2 } }
    assert.are.equal(dir .. "/w", ckpt:write(dir .. "/w"))
    ckpt.v:assign { 3, 4 }
    ckpt:read(dir .. "/w"):assert_consumed()
    assert.are.same({ 1, 2 }, ckpt.v:totable())
    assert.are.same({ "v" }, names(dir .. "/w"))
    assert.is_nil(tf.train.latest_checkpoint(dir))
    assert.are.same({ 1, 2 }, tf.train.load_variable(dir .. "/w",
      "v"):totable())
  end)

  it("takes a root whose children are its own", function()
    local pair = Pair({ 1 }, 2)
    local path = tf.train.Checkpoint(pair, { extra = tf.Variable(3) }):write(
      dir .. "/r")
    assert.are.same({ "b", "extra", "w" }, names(path))
    local again = Pair({ 0 }, 0)
    tf.train.Checkpoint(again):read(path):expect_partial()
      :assert_existing_objects_matched()
    assert.are.same({ 1 }, again.w:totable())
  end)

  it("says nil, message, NotFound when there is nothing to restore", function()
    local ckpt = tf.train.Checkpoint { v = tf.Variable(1) }
    local status, message, kind = ckpt:restore(tf.train.latest_checkpoint(dir))
    assert.is_nil(status)
    assert.is_string(message)
    assert.are.equal("NotFound", kind)
  end)

  it("and managers refuse slips of their names, other names are nil",
    function()
      local ckpt = tf.train.Checkpoint { v = tf.Variable(1) }
      local manager = tf.train.CheckpointManager(ckpt, dir)
      local e = fails("KeyError", "restor", function() return ckpt.restor end)
      assert.are.equal("did you mean restore?", e.hint)
      e = fails("KeyError", "latest_checkpont",
        function() return manager.latest_checkpont end)
      assert.are.equal("did you mean latest_checkpoint?", e.hint)
      assert.is_nil(ckpt.optimizer)
      assert.is_nil(manager.optimizer)
    end)

  it("names the file that is not there, and what may be meant", function()
    local ckpt = tf.train.Checkpoint { v = tf.Variable(1) }
    local path = ckpt:write(dir .. "/weights-10")
    for _, name in ipairs { "restore", "read" } do
      local e = fails("NotFound", dir .. "/wieghts-10", ckpt[name], ckpt,
        dir .. "/wieghts-10")
      assert.are.equal("did you mean " .. dir .. "/weights-10?", e.hint)
      e = fails("NotFound", "Checkpoint." .. name, ckpt[name], ckpt, dir)
      assert.is_truthy(e.hint:find("latest_checkpoint", 1, true))
      e = fails("NotFound", "none/w", ckpt[name], ckpt, dir .. "/none/w")
      assert.are.equal("there is no folder " .. dir .. "/none/", e.hint)
    end
    os.remove(path .. ".safetensors")
  end)

  it("saves an object with two names once, and restores either", function()
    local shared = tf.Variable { 5 }
    local path = tf.train.Checkpoint { a = { x = shared }, b = { y = shared } }
      :write(dir .. "/s")
    assert.are.same({ "a/x" }, names(path))
    local ckpt = tf.train.Checkpoint { b = { y = tf.Variable { 0 } } }
    ckpt:read(path):assert_consumed()
    assert.are.same({ 5 }, ckpt.b.y:totable())
  end)

  it("restores by any name that an object was saved with", function()
    -- b comes after x, up leads to what came before it.
    local shared, low = tf.Variable { 5 }, { w = tf.Variable { 7 } }
    local top = { low = low, x = shared }
    low.up = top
    local path = tf.train.Checkpoint { a = shared, b = { deep = { y = shared } },
      top = top }:write(dir .. "/s")
    assert.are.same({ "a", "top/low/w" }, names(path))
    local function restored(make)
      local v = tf.Variable { 0 }
      tf.train.Checkpoint(make(v)):read(path):assert_existing_objects_matched()
      return v:totable()[1]
    end
    assert.are.equal(5, restored(function(v) return { a = v } end))
    assert.are.equal(5, restored(function(v)
      return { b = { deep = { y = v } } }
    end))
    assert.are.equal(5, restored(function(v)
      return { top = { low = { up = { x = v } } } }
    end))
    assert.are.equal(7, restored(function(v)
      return { top = { low = { up = { low = { w = v } } } } }
    end))
  end)

  it("restores variables that are made later", function()
    local path = tf.train.Checkpoint { net = Pair({ 1, 2 }, 3) }:write(
      dir .. "/d")
    local net = tf.Module()
    local ckpt = tf.train.Checkpoint { net = net }
    local status = ckpt:read(path)
    fails("AssertionError", "net/b", status.assert_consumed, status)
    net.w = tf.Variable { 0, 0 }
    assert.are.same({ 1, 2 }, net.w:totable())
    net.b = tf.Variable(0)
    assert.are.equal(3, net.b:item())
    status:assert_consumed()
    local empty = tf.train.Checkpoint()
    status = empty:read(path)
    empty.net = Pair({ 0, 0 }, 0)
    assert.are.same({ 1, 2 }, empty.net.w:totable())
    status:assert_consumed()
  end)

  it("tells what the file lacks and what is left over", function()
    local path = tf.train.Checkpoint { a = tf.Variable(1), b = tf.Variable(2) }
      :write(dir .. "/p")
    local more = tf.train.Checkpoint { a = tf.Variable(0), c = tf.Variable(0) }
    local status = more:read(path)
    assert.are.equal(1, more.a:item())
    fails("AssertionError", "no value for 1 object here: c",
      status.assert_existing_objects_matched, status)
    local less = tf.train.Checkpoint { a = tf.Variable(0) }
    status = less:read(path):assert_existing_objects_matched()
    fails("AssertionError", "1 value without an object here: b",
      status.assert_consumed, status)
    status:assert_nontrivial_match()
    local none = tf.train.Checkpoint { z = tf.Variable(0) }:read(path)
    fails("AssertionError", "nothing in it", none.assert_nontrivial_match, none)
  end)

  it("changes nothing when a shape or dtype differs", function()
    local path = tf.train.Checkpoint { a = tf.Variable(1),
      b = tf.Variable { 1, 2 } }:write(dir .. "/m")
    local ckpt = tf.train.Checkpoint { a = tf.Variable(7),
      b = tf.Variable { 1, 2, 3 } }
    local e = fails("ValueError", '"b" at offset', ckpt.read, ckpt, path)
    assert.is_truthy(e.message:find("float32 {2}", 1, true), e.message)
    assert.is_truthy(e.message:find(path, 1, true))
    assert.are.equal(7, ckpt.a:item())
    ckpt = tf.train.Checkpoint { a = tf.Variable(7, { dtype = "float64" }) }
    fails("InvalidArgument", "float64", ckpt.read, ckpt, path)
  end)

  it("changes nothing when the file is damaged", function()
    local path = tf.train.Checkpoint { a = tf.Variable(1),
      b = tf.Variable { 1, 2 } }:write(dir .. "/m")
    local content = read(path .. ".safetensors")
    write(path .. ".safetensors", content:sub(1, -2) .. "\7")
    local ckpt = tf.train.Checkpoint { a = tf.Variable(7),
      b = tf.Variable { 3, 4 } }
    fails("DataLoss", "damaged", ckpt.read, ckpt, path)
    assert.are.equal(7, ckpt.a:item())
    assert.are.same({ 3, 4 }, ckpt.b:totable())
  end)

  it("refuses what has no variables", function()
    local e = fails("ValueError", "step must be", tf.train.Checkpoint,
      { step = 3 })
    assert.is_truthy(e.hint:find("tf.Variable", 1, true))
    fails("TypeError", "file_prefix", tf.train.Checkpoint {}.save,
      tf.train.Checkpoint {}, 3)
  end)

  it("restores optimizer slots, made already or made by it", function()
    local function build()
      local v = tf.Variable { 1, 2 }
      return tf.train.Checkpoint { v = v, opt = tf.keras.optimizers.Adam {
        learning_rate = 0.1 } }
    end
    local function step(ckpt)
      ckpt.opt:apply_gradients({ tf.constant { 1, -1 } }, { ckpt.v })
    end
    local a = build()
    step(a)
    local path = a:write(dir .. "/o")
    assert.are.same({ "opt/iterations", "v", "v/.OPTIMIZER_SLOT/opt/m",
      "v/.OPTIMIZER_SLOT/opt/v" }, names(path))
    step(a)
    local want = a.v:totable()
    local b = build()
    b:read(path):assert_consumed()
    step(b)
    assert.are.same(want, b.v:totable())
    a:read(path):assert_consumed()
    step(a)
    assert.are.same(want, a.v:totable())
    assert.are.equal(2, a.opt.iterations:read_value():item())
    -- The variable comes after the restore, and so do its slots.
    local late = tf.train.Checkpoint { opt = tf.keras.optimizers.Adam {
      learning_rate = 0.1 } }
    local status = late:read(path)
    late.v = tf.Variable { 0, 0 }
    step(late)
    status:assert_consumed()
    assert.are.same(want, late.v:totable())
  end)

  it("saves and restores where random generators are", function()
    local function holder(seed)
      return tf.train.Checkpoint { net = {
        generator = tf.random.Generator.from_seed(seed) } }
    end
    local a, b = holder(1), holder(2)
    a.net.generator:normal { 3 }
    local path = a:write(dir .. "/g")
    b:read(path):expect_partial()
    local want = a.net.generator:normal({ 4 }):totable()
    assert.are.same(want, b.net.generator:normal({ 4 }):totable())
    assert.are.same(a.net.generator.state:totable(),
      b.net.generator.state:totable())
  end)

  it("saves and restores where a data set's iterator is", function()
    local data = tf.data.Dataset.range(10)
    local it1 = data:iter()
    for _ = 1, 4 do it1:get_next() end
    local path = tf.train.Checkpoint { input = it1 }:write(dir .. "/i")
    local it2 = tf.data.Dataset.range(10):iter()
    tf.train.Checkpoint { input = it2 }:read(path):assert_consumed()
    assert.are.equal(4, it2:get_next():item())
    assert.are.equal(4, it1:get_next():item())
  end)

  it("saves the weights of a model and gives them to an unbuilt one",
    function()
      local L = tf.keras.layers
      local function make()
        return tf.keras.Sequential { L.Dense(4), L.Dense(1) }
      end
      local x = tf.constant { { 1, 2, 3 } }
      local a, b = make(), make()
      local want = a(x):totable()
      checkpoint.save_weights(a, dir .. "/w")
      assert.are.same({ "layers/0/bias", "layers/0/kernel", "layers/1/bias",
        "layers/1/kernel" }, names(dir .. "/w"))
      local status = checkpoint.load_weights(b, dir .. "/w")
      assert.are.same(want, b(x):totable())
      status:assert_consumed()
    end)

  it("closes files that it refuses at once", function()
    local path = tf.train.Checkpoint { v = tf.Variable { 1, 2 } }:write(dir
      .. "/w")
    local other = tf.train.Checkpoint { v = tf.Variable(1) }
    fails("ValueError", path, other.read, other, path)
    fails("KeyError", path, tf.train.load_variable, path, "none")
    write(path .. ".safetensors", read(path .. ".safetensors"):sub(1, -2)
      .. "\255")
    fails("DataLoss", path, tf.train.load_variable, path, "v")
    fails("DataLoss", path, checkpoint.verify, path)
    assert.are.equal(0, raw.live_handles "archive")
  end)

  it("can be called on an endless loop without growing", function()
    local ckpt = tf.train.Checkpoint { v = tf.Variable { 1, 2 } }
    local kept = {}
    for i = 1, 20 do
      kept[i] = ckpt:read(ckpt:write(dir .. "/w"))
    end
    assert.are.equal(20, #kept)
    assert.are.equal(0, raw.live_handles "archive")
    local _, count = raw.folder_list(dir):gsub("%z", "")
    assert.are.equal(1, count)
  end)
end)

describe("a checkpoint file #once", function()
  local dir
  before_each(function()
    dir = folder()
    raw.folder_make(dir)
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  local function entries()
    return files.names(dir)
  end

  it("that cannot be put in place leaves no trace", function()
    raw.folder_make(dir .. "/c.safetensors/inside")
    local ckpt = tf.train.Checkpoint { v = tf.Variable(1) }
    fails("FailedPrecondition", "c.safetensors", ckpt.write, ckpt, dir .. "/c")
    assert.are.same({ "c.safetensors" }, entries())
    fails("FailedPrecondition", "no folder", ckpt.write, ckpt,
      "/dev/null/x")
  end)

  -- A child that saves over an old checkpoint and dies in the middle.
  local SCRIPT = [[
local tf = require "tfdist"
local ckpt = tf.train.Checkpoint { v = tf.Variable(tf.fill({ 100000 }, 2)) }
ckpt:write(%q)
]]

  local function child(prefix)
    local script = process.file(SCRIPT:format(dir .. "/c"), ".lua")
    local r = process.run(prefix .. " exec " .. process.hosts[1].path .. " "
      .. script)
    os.remove(script)
    return r
  end

  local function old_one()
    local ckpt = tf.train.Checkpoint { v = tf.Variable(tf.fill({ 100000 }, 1)) }
    ckpt:write(dir .. "/c")
    return function()
      ckpt.v:assign(tf.zeros { 100000 })
      ckpt:read(dir .. "/c"):assert_consumed()
      return ckpt.v:item(99999)
    end
  end

  it("stays when the disk says no, and nothing is left behind", function()
    local value = old_one()
    local r = child("ulimit -f 100;")
    assert.are.equal(1, r.code)
    assert.is_truthy(r.err:find("ResourceExhausted", 1, true), r.err)
    assert.is_truthy(r.err:find(dir .. "/c.safetensors", 1, true), r.err)
    assert.are.same({ "c.safetensors" }, entries())
    assert.are.equal(1, value())
  end)

  it("stays when the process dies between writing and renaming", function()
    local value = old_one()
    local source = process.file([[
#include <unistd.h>
int rename(const char *a, const char *b) { (void)a; (void)b; _exit(9); }
]], ".c")
    local library = source .. ".so"
    local built = process.run(("gcc -shared -fPIC -o %s %s"):format(library,
      source))
    assert.are.equal(0, built.code, built.err)
    local r = child(("LD_PRELOAD=%s"):format(library))
    os.remove(source)
    os.remove(library)
    if r.err:find("ASan runtime", 1, true) then
      return -- an instrumented host takes no library before its own
    end
    assert.are.equal(9, r.code, r.err)
    assert.are.equal(2, #entries())
    assert.are.equal(1, value())
  end)
end)

describe("tf.train.CheckpointManager", function()
  local dir
  leaks(before_each, after_each)
  before_each(function()
    dir = folder()
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  local function paths(...)
    local list = {}
    for i, n in ipairs { ... } do
      list[i] = dir .. "/ckpt-" .. n
    end
    return list
  end

  it("keeps the last ones and knows them again", function()
    local ckpt = tf.train.Checkpoint { v = tf.Variable(0) }
    local manager = tf.train.CheckpointManager(ckpt, dir, { max_to_keep = 2 })
    assert.is_nil(manager.latest_checkpoint)
    for i = 1, 4 do
      ckpt.v:assign(i)
      assert.are.equal(dir .. "/ckpt-" .. i, manager:save())
    end
    assert.are.same(paths(3, 4), manager.checkpoints)
    assert.is_false((raw.file_stat(dir .. "/ckpt-2.safetensors")))
    ckpt.v:assign(9)
    local again = tf.train.CheckpointManager(ckpt, dir .. "/",
      { max_to_keep = 2 })
    assert.are.same(paths(3, 4), again.checkpoints)
    assert.are.equal(dir .. "/ckpt-4", again:restore_or_initialize())
    assert.are.equal(4, ckpt.v:item())
    assert.are.equal(dir .. "/ckpt-5", again:save())
    assert.are.same(paths(4, 5), again.checkpoints)
    assert.are.equal(dir .. "/ckpt-77", again:save(77))
    assert.are.equal(dir .. "/ckpt-77", tf.train.latest_checkpoint(dir))
  end)

  it("passes over a damaged one, with a warning", function()
    local ckpt = tf.train.Checkpoint { v = tf.Variable(1) }
    local manager = tf.train.CheckpointManager(ckpt, dir)
    manager:save()
    ckpt.v:assign(2)
    manager:save()
    local file = dir .. "/ckpt-2.safetensors"
    local content = read(file)
    write(file, content:sub(1, -2) .. "\1")
    ckpt.v:assign(3)
    local warn, lines = notice.warn, {}
    notice.warn = function(line)
      lines[#lines + 1] = line
    end
    local path = manager:restore_or_initialize()
    -- Cut off, the header itself tells.
    write(file, content:sub(1, 100))
    local latest = tf.train.latest_checkpoint(dir)
    notice.warn = warn
    assert.are.equal(dir .. "/ckpt-1", path)
    assert.are.equal(1, ckpt.v:item())
    assert.are.equal(dir .. "/ckpt-1", latest)
    assert.are.equal(2, #lines)
    assert.is_truthy(lines[1]:find("ckpt-2", 1, true))
  end)

  it("initializes when there is nothing to restore", function()
    local called = 0
    local manager = tf.train.CheckpointManager(tf.train.Checkpoint {}, dir,
      { max_to_keep = 1, init_fn = function() called = called + 1 end })
    assert.is_nil(manager:restore_or_initialize())
    assert.are.equal(1, called)
  end)

  it("saves when the step counter has grown by the interval", function()
    local step = tf.Variable(0, { dtype = "int64" })
    local manager = tf.train.CheckpointManager(
      tf.train.Checkpoint { step = step }, dir,
      { max_to_keep = 5, step_counter = step, checkpoint_interval = 3 })
    local saved = {}
    for i = 1, 7 do
      step:assign_add(tf.constant(1, "int64"))
      saved[i] = manager:save() ~= nil
    end
    assert.are.same({ true, false, false, true, false, false, true }, saved)
    assert.is_string(manager:save { check_interval = false })
  end)

  it("keeps one every n hours of those it drops", function()
    local manager = tf.train.CheckpointManager(
      tf.train.Checkpoint { v = tf.Variable(1) }, dir,
      { max_to_keep = 1, keep_checkpoint_every_n_hours = 0 })
    manager:save()
    manager:save()
    assert.are.same(paths(2), manager.checkpoints)
    assert.is_true((raw.file_stat(dir .. "/ckpt-1.safetensors")))
  end)

  it("checks its arguments", function()
    local ckpt = tf.train.Checkpoint {}
    local new = tf.train.CheckpointManager
    fails("ValueError", "max_to_keep", new, ckpt, dir, { max_to_keep = 0 })
    fails("ValueError", "step_counter", new, ckpt, dir,
      { checkpoint_interval = 2 })
    fails("TypeError", "tf.train.Checkpoint", new, {}, dir)
    fails("ValueError", "max_to_kep", new, ckpt, dir, { max_to_kep = 1 })
  end)

  it("reads a state file that is damaged as none", function()
    raw.folder_make(dir)
    local warn = notice.warn
    notice.warn = function() end
    for _, content in ipairs { "", "{", "[]", '{"all_model_checkpoint_paths":1}',
      '{"all_model_checkpoint_paths":["x"]}' } do
      write(dir .. "/checkpoint", content)
      assert.is_nil(tf.train.latest_checkpoint(dir))
    end
    notice.warn = warn
  end)
end)

describe("checkpoints of distributed variables", function()
  local dir
  replicas.leaks(before_each, after_each)
  before_each(function()
    dir = folder()
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  local function made(strategy, value, options)
    return strategy:scope(function()
      return tf.Variable(value, options)
    end)
  end

  local function components(v)
    local list = {}
    for i = 1, #v.values do
      list[i] = v.values[i]:item()
    end
    return list
  end

  local function save(v)
    return tf.train.Checkpoint { v = v }:write(dir .. "/v")
  end

  local function restore(v)
    tf.train.Checkpoint { v = v }:read(dir .. "/v"):assert_consumed()
  end

  for _, aggregation in ipairs { "NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA" } do
    -- B12
    replicas.pair(it, pending, "B12 ON_WRITE " .. aggregation, function(s)
      local v = made(s, 1, { aggregation = aggregation })
      v:assign(2)
      save(v)
      v:assign(9)
      restore(v)
      assert.are.same({ 2, 2 }, components(v))
      local plain = tf.Variable(0)
      restore(plain)
      assert.are.equal(2, plain:item())
      plain:assign(3)
      save(plain)
      restore(v)
      assert.are.same({ 3, 3 }, components(v))
      assert.are.equal(3, v:read_value():item())
    end)
  end

  local C11 = { SUM = { plain = 7, back = 1 }, MEAN = { plain = 3.5, back = 2 } }
  for aggregation, want in pairs(C11) do
    -- C11: components 4 and 3
    replicas.pair(it, pending, "C11 ON_READ " .. aggregation, function(s)
      local v = made(s, 1, { synchronization = "ON_READ",
        aggregation = aggregation })
      s:run(function()
        v:assign(tf.constant(4 - replicas.id()))
      end)
      assert.are.same({ 4, 3 }, components(v))
      save(v)
      v:assign(0)
      restore(v)
      assert.are.same({ 3.5, 3.5 }, components(v))
      local plain = tf.Variable(0)
      restore(plain)
      assert.are.equal(want.plain, plain:item())
      plain:assign(2)
      save(plain)
      restore(v)
      assert.are.same({ want.back, want.back }, components(v))
    end)
  end

  replicas.pair(it, pending, "ON_READ ONLY_FIRST_REPLICA keeps component 0",
    function(s)
      local v = made(s, 1, { synchronization = "ON_READ",
        aggregation = "ONLY_FIRST_REPLICA" })
      s:run(function()
        v:assign(tf.constant(4 - replicas.id()))
      end)
      save(v)
      restore(v)
      assert.are.same({ 4, 4 }, components(v))
    end)

  replicas.pair(it, pending, "ON_READ NONE cannot be saved", function(s)
    local v = made(s, 1, { synchronization = "ON_READ" })
    fails("ValueError", nil, save, v)
  end)

  replicas.pair(it, pending, "a SUM of integers is cut to whole shares",
    function(s)
      local v = made(s, 0, { synchronization = "ON_READ", aggregation = "SUM",
        dtype = "int64" })
      local plain = tf.Variable(7, { dtype = "int64" })
      save(plain)
      restore(v)
      assert.are.same({ 3, 3 }, components(v))
    end)

  replicas.each(it, pending, "a SUM survives another number of replicas",
    function(s, n)
      local v = made(s, 0, { synchronization = "ON_READ", aggregation = "SUM" })
      v:assign(12)
      save(v)
      for m = 2, replicas.available do
        if m <= 4 then
          local w = made(replicas.mirrored(m), 0, { synchronization = "ON_READ",
            aggregation = "SUM" })
          restore(w)
          assert.are.equal(12, w:read_value():item())
          assert.are.equal(12 / m, w.values[1]:item())
        end
      end
      assert.are.equal(n, #v.values)
    end)

  replicas.pair(it, pending, "variables made later take the saved value",
    function(s)
      save(tf.Variable(5))
      local ckpt = tf.train.Checkpoint()
      local status = ckpt:read(dir .. "/v")
      s:scope(function()
        ckpt.v = tf.Variable(0)
      end)
      assert.are.same({ 5, 5 }, components(ckpt.v))
      status:assert_consumed()
    end)

  replicas.pair(it, pending, "slots that a restore makes go where their "
    .. "variable is", function(s)
      local function build()
        return tf.train.Checkpoint { v = made(s, { 1, 2 }),
          opt = tf.keras.optimizers.SGD { learning_rate = 1, momentum = 0.5 } }
      end
      local a = build()
      s:run(function()
        a.opt:apply_gradients({ tf.constant { 1, 1 } }, { a.v })
      end)
      a:write(dir .. "/v")
      local outside, inside, elsewhere = build(), build(), build()
      outside:read(dir .. "/v"):assert_consumed()
      s:scope(function()
        inside:read(dir .. "/v"):assert_consumed()
      end)
      for _, b in ipairs { outside, inside } do
        assert.are.same(a.v:totable(), b.v:totable())
        local slot, slot_values = b.opt:get_slot(b.v, "momentum"), {}
        for i, copy in ipairs(slot.values) do
          slot_values[i] = copy:totable()
        end
        assert.are.same({ { -2, -2 }, { -2, -2 } }, slot_values)
        assert.are.equal(b.v.values[2].device, slot.values[2].device)
      end
      replicas.mirrored(2):scope(function()
        fails("ValueError", "slot", elsewhere.read, elsewhere, dir .. "/v")
      end)
      fails("RuntimeError", "replica function", s.run, s, function()
        a:write(dir .. "/x")
      end)
    end)

  -- L04
  it("L04 three rounds of ten steps count on", function()
    for round = 1, 3 do
      local s = replicas.available >= 2 and replicas.mirrored(2)
        or tf.distribute.get_strategy()
      local v, opt
      local function build()
        v = tf.Variable { 1, 1 }
        opt = tf.keras.optimizers.Adam { learning_rate = 0.1 }
        local ckpt = tf.train.Checkpoint { v = v, opt = opt }
        local latest = tf.train.latest_checkpoint(dir)
        local status = ckpt:restore(latest)
        assert.are.equal(round > 1, status ~= nil)
        return ckpt
      end
      local ckpt = s.scope and replicas.available >= 2 and s:scope(build)
        or build()
      for _ = 1, 10 do
        s:run(function()
          opt:apply_gradients({ tf.constant { 1, 2 } }, { v })
        end)
      end
      assert.are.equal(10 * round, opt.iterations:read_value():item())
      ckpt:save(dir .. "/ckpt")
    end
  end)
end)
