-- Memory that runs out while files are read is no damage; and names and shapes
-- that nothing here can have are, with the file's name.
local checkpoint = require "tfdist.train.checkpoint"
local files = require "spec.support.files"
local json = require "tfdist.core.json"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

local MOST = 2000 -- more allocations than any reading makes

describe("reading without memory", function()
  local dir
  replicas.leaks(before_each, after_each)
  before_each(function()
    dir = files.place()
    raw.folder_make(dir)
  end)
  after_each(function()
    raw.test_fail_allocation(0)
    os.execute("rm -r " .. dir)
  end)

  -- Allocation n fails, and all after it: until there are fewer.
  local function each_allocation(read, check)
    for n = 1, MOST do
      raw.test_fail_allocation(-n)
      local ok, got = pcall(read)
      raw.test_fail_allocation(0)
      check(ok, got)
      if ok then
        return assert.is_true(n > 3)
      end
      assert.are.equal("ResourceExhausted", got.kind, tostring(got))
    end
    error "more allocations than expected"
  end

  local function accept() end

  it("is ResourceExhausted in the header of a safetensors file", function()
    local names = {}
    for i = 1, 20 do names["v" .. i] = tf.Variable(tf.ones { i }) end
    tf.train.Checkpoint(names):write(dir .. "/c")
    each_allocation(function()
      raw.release(raw.archive_open(dir .. "/c.safetensors"))
    end, accept)
  end)

  it("is ResourceExhausted in compressed and plain arrays", function()
    local gzip = process.run(
      "printf '\\0\\0\\10\\1\\0\\0\\0\\3abc' | gzip > " .. dir .. "/x.gz")
    assert.are.equal(0, gzip.code)
    tf.io.write_npy(dir .. "/x.npy", tf.ones { 3 })
    local content = files.read(dir .. "/x.npy")
    assert.are.equal(140, #content)
    for _, read in ipairs {
      function() return raw.read_idx(dir .. "/x.gz"):toflat()[3] end,
      function() return tf.io.read_npy(dir .. "/x.npy"):toflat()[3] end,
    } do
      local want = read()
      each_allocation(read, function(ok, got)
        assert.is_true(not ok or got == want)
      end)
    end
  end)

  it("does not make an older checkpoint the newest", function()
    local ckpt = tf.train.Checkpoint { v = tf.Variable(0) }
    local manager = tf.train.CheckpointManager(ckpt, dir, { max_to_keep = 3 })
    for i = 1, 3 do
      ckpt.v:assign(i)
      manager:save()
    end
    local function restore()
      return manager:restore_or_initialize()
    end
    each_allocation(restore, function(ok, path)
      assert.is_true(not ok or path == dir .. "/ckpt-3", tostring(path))
    end)
    each_allocation(function()
      return tf.train.latest_checkpoint(dir)
    end, function(ok, path)
      assert.is_true(not ok or path == dir .. "/ckpt-3", tostring(path))
    end)
    -- Lua's own memory, while it reads the graph.
    local decode, full = json.decode, true
    function json.decode(...)
      if full then error("not enough memory", 0) end
      return decode(...)
    end
    local ok, e = pcall(checkpoint.open, dir .. "/ckpt-3")
    assert.is_false((pcall(tf.train.latest_checkpoint, dir)))
    full, json.decode = false, decode
    assert.is_false(ok)
    assert.are.equal("ResourceExhausted", e.kind)
    assert.are.equal(dir .. "/ckpt-3", restore())
  end)
end)

describe("what cannot be is told with the file's name", function()
  local path
  before_each(function() path = files.place ".safetensors" end)
  after_each(function() os.remove(path) end)

  local GRAPHS = {
    '{"nodes": [{"children": {"v": 1}}, {"children": {}, "key": "v\\u0000w"}]}',
    '{"nodes": [{"children": {"v": 1}}, {"children": {}, "key": "v", '
      .. '"copies": ["\\u0000"]}]}',
    '{"nodes": [{"children": {"v": 1}, "slots": [{"variable": 1, "node": 1, '
      .. '"name": "a\\u0000"}]}, {"children": {}, "key": "v"}]}',
  }
  for i, graph in ipairs(GRAPHS) do
    it("a zero byte in a graph's name, place " .. i, function()
      local saver = raw.saver_new()
      raw.saver_add(saver, "v", tf.ones { 2 })
      raw.saver_metadata(saver, "tfdist.graph", graph)
      raw.saver_write(saver, path)
      raw.release(saver)
      replicas.fails("DataLoss", path, function()
        tf.train.Checkpoint { v = tf.Variable { 0, 0 } }:read(path)
      end)
    end)
  end

  it("a shape of an npy file that no tensor has", function()
    tf.io.write_npy(path, tf.zeros { 0, 3 })
    local content = files.read(path)
    for _, shape in ipairs { "0, 1152921504606846976, 1152921504606846976",
      "0, 4503599627370496, 4503599627370496", "99999999999999999999999",
      "1, 1, 1, 1, 1, 1, 1, 1, 1", "4294967296, 4294967296",
      "9007199254740992" } do
      local head = content:sub(11):gsub("%(0, 3%)", "(" .. shape .. ")")
      head = head:gsub(" *\n$", "") .. "\n"
      files.write(path, content:sub(1, 8) .. files.little(#head, 2) .. head)
      replicas.fails("DataLoss", path, tf.io.read_npy, path)
    end
  end)
end)
