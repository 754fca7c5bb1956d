-- Files that are cut, changed, or say what cannot be: one error that names the
-- file, and no memory for what is not there.
local elements = require "spec.support.elements"
local files = require "spec.support.files"
local json = require "tfdist.core.json"
local leaks = require "spec.support.leaks"
local notice = require "tfdist.base.notice"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local samples = require "spec.fuzz.samples"
local tf = require "tfdist"

local fails = replicas.fails

local write = files.write

local collect = elements.first

local little = files.little

describe("damaged files", function()
  local dir, warn
  leaks(before_each, after_each)
  before_each(function()
    dir = os.tmpname()
    os.remove(dir)
    raw.folder_make(dir)
    warn, notice.warn = notice.warn, function() end
  end)
  after_each(function()
    notice.warn = warn
    os.execute("rm -rf " .. dir)
  end)

  local numbers = {}
  for _, sample in ipairs(samples.list) do
    numbers[sample.name] = (numbers[sample.name] or 0) + 1
    local name = ("%s %d"):format(sample.name, numbers[sample.name])
    local whole = sample.content

    local function try(content, what)
      local fine, problem = samples.try(sample, dir, content)
      assert.is_nil(problem, what)
      return fine
    end

    it("cut at each place give values or one error #once: " .. name, function()
      try(whole, "whole")
      for n = 0, #whole - 1 do
        try(whole:sub(1, n), "cut to " .. n)
      end
    end)

    it("changed at each byte give values or one error #once: " .. name,
      function()
        for at = 1, #whole do
          local byte = string.char((whole:byte(at) + 128 + at % 2) % 256)
          local fine = try(whole:sub(1, at - 1) .. byte .. whole:sub(at + 1),
            "byte " .. at)
          assert.is_false(fine and sample.checked or false,
            ("byte %d was changed unnoticed"):format(at))
        end
      end)
  end

  it("of CSV rows are told with row and file, from 0", function()
    local a, b = dir .. "/a.csv", dir .. "/b.csv"
    write(a, "n\n1\n2\n3\n")
    write(b, "n\n4\n5\nx\n")
    local function csv(paths, header)
      return tf.data.experimental.CsvDataset(paths, { "int32" },
        { header = header })
    end
    fails("InvalidArgument", "(row 3 of " .. b .. ")", collect, csv({ a, b },
      true))
    fails("InvalidArgument", "(row 3 of " .. b .. ")", collect,
      csv({ a, b }, true):skip(4))
    fails("InvalidArgument", "(row 0 of " .. b .. ")", collect, csv(b, false))
  end)

  it("with a CSV header that does not fit are told by name", function()
    local path = dir .. "/a.csv"
    local function make(content, label)
      write(path, content)
      return tf.data.experimental.make_csv_dataset(path, 1, {
        column_defaults = { "int32", "int32" }, label_name = label,
        shuffle = false, num_epochs = 1 })
    end
    fails("ValueError", "no column the string \"y\" in " .. path, make,
      "a,b\n1,2\n", "y")
    fails("ValueError", "for the 3 columns of " .. path, make, "a,b,c\n1,2\n")
    fails("ValueError", path .. " has two columns \"a\"", make, "a,a\n1,2\n")
    fails("InvalidArgument", "(row 0 of " .. path .. ")", make, 'a,"b"c\n1,2\n')
    fails("InvalidArgument", path .. " has no header row", make, "")
  end)

  it("of CSV numbers are not read as the engine's own", function()
    local path = dir .. "/a.csv"
    for _, field in ipairs { "0x10", "0b11", "1_0", "1e", "1 2", "1i", "2LL",
      "--1", "1e5.5" } do
      write(path, field .. "\n")
      fails("InvalidArgument", "is no float32", collect,
        tf.data.experimental.CsvDataset(path, { "float32" }))
    end
    write(path, " 1\n+2\n.5\n1e2\n-inf\nNaN\n")
    local got = collect(tf.data.experimental.CsvDataset(path, { "float32" }))
    for i, want in ipairs { 1, 2, 0.5, 100, -math.huge } do
      assert.are.equal(want, got[i]:item())
    end
    assert.is_true(got[6]:item() ~= got[6]:item())
  end)

  it("that claim more than there is cost no memory", function()
    local path = dir .. "/x"
    local function refused(content, read)
      write(path, content)
      raw.collect()
      local before = raw.live_bytes()
      fails("DataLoss", path, read)
      -- Less when the collector ran and found what it did not find before.
      assert.is_true(raw.live_bytes() <= before)
    end
    local function cache()
      collect(tf.data.Dataset.range(2):cache(path))
    end
    for _, line in ipairs { "t float32 999999999999", "t bool 2 99999999999999",
      "t float64 " .. ("9"):rep(400), "s 999999999999999", "l 1e9 0",
      "t float32 1 1 1 1 1 1 1 1 1", "t float32 0 9007199254740991 9999999999",
      "l 1 1\ns 1\nal 0 0\n", "S 99999999999" } do
      refused("tfdist cache 1\ne\nl 1 0\n" .. line .. "\n", cache)
    end
    refused("\0\0\8\1\255\255\255\255abc", function() raw.read_idx(path) end)
    refused("\0\0\8\8" .. ("\255"):rep(32) .. "abc", function()
      raw.read_idx(path)
    end)
    refused("\0\0\8\1\0\0\0\2abc", function() raw.read_idx(path) end)
    local head = "{'descr': '<f8', 'fortran_order': False, 'shape': (%s,), }"
    for _, shape in ipairs { "99999999999", ("9"):rep(400), "1,1,1,1,1,1,1,1,1",
      "0,99999999999999999999" } do
      head = head:format(shape)
      refused("\147NUMPY\1\0" .. little(#head, 2) .. head, function()
        tf.io.read_npy(path)
      end)
    end
  end)

  it("of arrays that unpack to more than they can hold are refused", function()
    local path = dir .. "/x.npz"
    -- Entries that say (packed, size) of the same deflated bytes at 0.
    local function zip(n, packed, size)
      local common = little(20, 2) .. little(0, 2) .. little(8, 2)
        .. little(0, 8) .. little(packed, 4) .. little(size, 4) .. little(1, 2)
        .. little(0, 2)
      local data = "PK\3\4" .. common .. "a" .. ("\0"):rep(packed)
      local list = ("PK\1\2" .. little(20, 2) .. common .. little(0, 14) .. "a")
        :rep(n)
      write(path, data .. list .. "PK\5\6" .. little(0, 4) .. little(n, 2)
        .. little(n, 2) .. little(#list, 4) .. little(#data, 4) .. little(0, 2))
    end
    zip(1, 100, 2 ^ 30)
    fails("DataLoss", path, tf.io.read_npz, path)
    zip(3, 100000, 0)
    fails("DataLoss", path, tf.io.read_npz, path)
  end)

  it("that are pipes or folders are refused at once", function()
    local pipe = dir .. "/pipe.safetensors"
    assert.are.equal(0, process.run("mkfifo " .. pipe).code)
    fails("FailedPrecondition", pipe, raw.archive_open, pipe)
    local ckpt = tf.train.Checkpoint { v = tf.Variable(1) }
    fails("FailedPrecondition", pipe, ckpt.read, ckpt, dir .. "/pipe")
    for _, read in ipairs { raw.read_idx, raw.archive_open, tf.io.read_npy,
      tf.io.read_npz } do
      fails("FailedPrecondition", dir, read, dir)
    end
  end)

  it("are not made of what is no plain file", function()
    local pipe = dir .. "/pipe"
    assert.are.equal(0, process.run("mkfifo " .. pipe).code)
    fails("FailedPrecondition", pipe .. ": cannot write: it is no plain file",
      tf.io.write_file, pipe, "x")
    fails("FailedPrecondition", dir .. ": cannot write: it is a folder",
      tf.io.write_file, dir, "x")
    assert.are.equal(0, process.run("test -p " .. pipe).code)
  end)

  it("are told when a writer of records finds no room", function()
    for _, kind in ipairs { "", "GZIP" } do
      local writer = tf.io.TFRecordWriter("/dev/full", kind)
      writer:write "x"
      fails("ResourceExhausted", "/dev/full: cannot write after byte 0",
        writer.flush, writer)
      fails("ResourceExhausted", "/dev/full", writer.close, writer)
      writer:close()
    end
  end)

  it("of JSON have numbers that a double can hold", function()
    for _, number in ipairs { "1e400", "-1e400", "2e99999999999999999999" } do
      fails("ValueError", "line 1, column", json.decode,
        "[" .. number .. "]")
    end
  end)

  it("of checkpoints change neither variables nor iterators", function()
    local function make()
      return tf.train.Checkpoint { v = tf.Variable(1),
        input = tf.data.Dataset.range(5):iter() }
    end
    local path = make():write(dir .. "/c")
    local ckpt = make()
    ckpt.v = tf.Variable { 1, 2 }
    assert.are.equal(0, ckpt.input:get_next():item())
    fails("ValueError", path, ckpt.read, ckpt, path)
    assert.are.equal(1, ckpt.input:get_next():item())
    ckpt = make()
    ckpt.v:assign(7)
    ckpt.input = tf.data.Dataset.range(5):shuffle(2):iter()
    fails("InvalidArgument", path, ckpt.read, ckpt, path)
    assert.are.equal(7, ckpt.v:item())
  end)

  it("are no caches: a full disk leaves none #once", function()
    local script = process.file(([[
local tf = require "tfdist"
local data = tf.data.Dataset.range(50):map(function()
  return tf.zeros { 1000 }
end):cache(%q)
local ok, e = pcall(function()
  for _ in data:iter() do end
end)
print(ok, e.kind, e.message)
]]):format(dir .. "/cache"), ".lua")
    local r = process.run("ulimit -f 16; exec "
      .. process.hosts[1].path .. " " .. script)
    os.remove(script)
    assert.is_truthy(r.out:find("^false\tResourceExhausted\t.*" .. "cache"),
      r.out .. r.err)
    assert.are.equal("", raw.folder_list(dir))
  end)
end)
