-- Folders as they are: names of any bytes, and no list where one cannot be
-- made.
local files = require "spec.support.files"
local process = require "spec.support.process"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"

local fails = replicas.fails

local function listed(pattern)
  local names = {}
  for name in tf.data.Dataset.list_files(pattern, false):iter() do
    names[#names + 1] = name
  end
  return names
end

describe("files that match a pattern", function()
  local dir
  before_each(function()
    dir = files.place()
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  local NAMES = { "a\nb.txt", "a.txt", "c;d.txt", "e f.txt", "\255.txt",
    "$HOME.txt", "x/1.txt", "x/2.rec", "y/1.txt", "[z].txt", "s*r.txt",
    "q%d.txt", "back\\slash.txt", ".hidden.txt", "-n" }

  -- Pattern and what it stands for, by the rules of POSIX (fnmatch, and names
  -- that begin with a dot match only a dot).
  local CASES = {
    ["*"] = { "$HOME.txt", "-n", "[z].txt", "a\nb.txt", "a.txt",
      "back\\slash.txt", "c;d.txt", "e f.txt", "q%d.txt", "s*r.txt", "x", "y",
      "\255.txt" },
    ["a*"] = { "a\nb.txt", "a.txt" }, ["a?b.txt"] = { "a\nb.txt" },
    ["c;d.txt"] = { "c;d.txt" }, ["?;?.txt"] = { "c;d.txt" },
    ["e f.*"] = { "e f.txt" }, ["$HOME*"] = { "$HOME.txt" },
    ["*/*.txt"] = { "x/1.txt", "y/1.txt" }, ["x/*"] = { "x/1.txt", "x/2.rec" },
    ["[xy]/1.txt"] = { "x/1.txt", "y/1.txt" },
    ["[!a-w]/*"] = { "x/1.txt", "x/2.rec", "y/1.txt" },
    ["[^x]/*"] = { "y/1.txt" }, ["*/"] = { "x/", "y/" },
    ["\\[z].txt"] = { "[z].txt" }, ["[[]z*"] = { "[z].txt" },
    ["s\\*r.txt"] = { "s*r.txt" }, ["q%d.*"] = { "q%d.txt" },
    ["back\\\\*"] = { "back\\slash.txt" }, [".h*"] = { ".hidden.txt" },
    [".hidden.txt"] = { ".hidden.txt" }, ["[-]n"] = { "-n" },
    ["a.txt/*"] = {}, ["none/*"] = {}, ["*/none"] = {}, ["{a,b}*"] = {},
    ["`id`*"] = {}, ["a.txt/"] = {},
  }

  it("are found by their whole names", function()
    for _, name in ipairs(NAMES) do
      tf.io.write_file(dir .. "/" .. name, "")
    end
    for pattern, want in pairs(CASES) do
      local paths = {}
      for i, name in ipairs(want) do
        paths[i] = dir .. "/" .. name
      end
      table.sort(paths)
      assert.are.same(paths, tf.io.gfile.glob(dir .. "/" .. pattern), pattern)
      assert.are.same(paths, tf.io.matching_files { dir .. "/" .. pattern })
      if #paths > 0 then
        assert.are.same(paths, listed(dir .. "/" .. pattern), pattern)
      else
        fails("NotFound", "no files match", listed, dir .. "/" .. pattern)
      end
    end
    assert.is_true(#tf.io.gfile.listdir(dir) == 14)
    assert.are.same({}, tf.io.gfile.glob "")
    assert.are.same({ "/" }, tf.io.gfile.glob "/")
    assert.are.same({ "LICENSE" }, tf.io.gfile.glob "LICENS[E]")
  end)

  it("are many, and below many folders", function()
    local deep = dir .. ("/d"):rep(60)
    tf.io.write_file(deep .. "/f", "")
    assert.are.same({ deep .. "/f" }, tf.io.gfile.glob(dir .. ("/*"):rep(61)))
    assert.are.same({}, tf.io.gfile.glob(dir .. ("/*"):rep(20000)))
    assert.are.same({}, tf.io.gfile.glob(("*/"):rep(2000) .. ("a"):rep(5000)))
  end)
end)

-- No descriptor is left when the calls are made.
local WITHOUT = [[
local tf = require "tfdist"
local dir = %q
local D, gfile, kept = tf.data.Dataset, tf.io.gfile, {}
local csv = tf.keras.callbacks.CSVLogger(dir .. "/x.rec", { append = true })
local cached = D.range(3):cache(dir .. "/x.rec")
while true do
  local f = io.open "/dev/null"
  if f == nil then break end
  kept[#kept + 1] = f
end
for name, call in pairs {
  list_files = function() return D.list_files(dir .. "/*") end,
  glob = function() return gfile.glob(dir .. "/*.rec") end,
  listdir = function() return gfile.listdir(dir) end,
  read_file = function() return tf.io.read_file(dir .. "/x.rec") end,
  read_npy = function() return tf.io.read_npy(dir .. "/x.rec") end,
  read_npz = function() return tf.io.read_npz(dir .. "/x.rec") end,
  csv = function() csv:on_train_begin() end,
  cache = function() return cached:iter():get_next() end,
  latest = function() return tf.train.latest_checkpoint(dir) end,
} do
  local ok, e = pcall(call)
  if ok or e.kind ~= "ResourceExhausted"
    or not e.message:find(dir, 1, true) then
    print(name, ok, e)
  end
end
-- What needs none still works.
assert(gfile.exists(dir .. "/x.rec") and gfile.glob(dir .. "/x.rec")[1])
]]

describe("a process without a free descriptor #once", function()
  it("says so instead of finding nothing", function()
    local dir = files.place()
    tf.io.write_file(dir .. "/x.rec", "text")
    tf.io.write_file(dir .. "/checkpoint", "{}")
    local script = process.file(WITHOUT:format(dir), ".lua")
    for _, host in ipairs(process.hosts) do
      local r = process.run(("ulimit -n 64; exec %s %s"):format(host.path,
        script))
      assert.are.equal("", r.err .. r.out, host.name)
      assert.are.equal(0, r.code)
    end
    os.remove(script)
    os.execute("rm -r " .. dir)
  end)
end)
