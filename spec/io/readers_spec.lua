-- Records, lines, CSV, Examples, npy: what others read and write, and damage.
local leaks = require "spec.support.leaks"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"
local elements = require "spec.support.elements"
local files = require "spec.support.files"

local fails = replicas.fails

local collect = elements.first

local write = files.write

local read = files.read

local function python(source, ...)
  local script = process.file(source, ".py")
  local r = process.call("/usr/bin/python3", { script, ... })
  os.remove(script)
  assert.are.equal("", r.err)
  return r.out
end

-- Records by the format's rules, with a CRC-32C of its own.
local RECORDS = [==[
import struct, sys, gzip, zlib
def crc(data):
  c = 0xffffffff
  for b in data:
    c ^= b
    for _ in range(8): c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
  c ^= 0xffffffff
  return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff
def frame(data):
  n = struct.pack('<Q', len(data))
  return (n + struct.pack('<I', crc(n)) + data + struct.pack('<I', crc(data)))
]==]

describe("files of records", function()
  local path
  leaks(before_each, after_each)
  before_each(function()
    path = os.tmpname()
  end)
  after_each(function()
    os.remove(path)
  end)

  local DATA = { "", "one", ("x"):rep(300), "\0\255\n" }

  for _, kind in ipairs { "", "GZIP", "ZLIB" } do
    it("are written and read back " .. kind, function()
      local writer = tf.io.TFRecordWriter(path, kind)
      for _, record in ipairs(DATA) do
        writer:write(record)
      end
      writer:close()
      writer:close()
      fails("FailedPrecondition", "closed", writer.write, writer, "x")
      assert.are.same(DATA, collect(tf.data.TFRecordDataset(path,
        { compression_type = kind })))
    end)
  end

  it("have one of the compressions that there are", function()
    local e = fails("ValueError", 'must be one of "", NONE, GZIP, ZLIB, got "X"',
      tf.data.TFRecordDataset, path, "X")
    assert.is_nil(e.hint)
    e = fails("ValueError", "compression_type", tf.data.TFRecordDataset, path,
      "GZIPP")
    assert.equal("did you mean GZIP?", e.hint)
  end)

  it("are what Python writes and reads by the format's rules #once", function()
    local writer = tf.io.TFRecordWriter(path)
    for _, record in ipairs(DATA) do
      writer:write(record)
    end
    writer:close()
    python(RECORDS .. [==[
want = [b'', b'one', b'x' * 300, b'\0\xff\n']
assert open(sys.argv[1], 'rb').read() == b''.join(map(frame, want))
open(sys.argv[1], 'wb').write(gzip.compress(frame(b'a')) +
                              gzip.compress(frame(b'b' * 200000)))
]==], path)
    local got = collect(tf.data.TFRecordDataset({ path },
      { compression_type = "GZIP" }))
    assert.are.same({ "a", ("b"):rep(200000) }, got)
  end)

  it("damaged in any byte, or cut, name file, record and offset", function()
    local writer = tf.io.TFRecordWriter(path)
    writer:write "first"
    writer:write "second"
    writer:close()
    local content = read(path)
    local data = tf.data.TFRecordDataset(path)
    for at = 1, #content do
      write(path, content:sub(1, at - 1)
        .. string.char((content:byte(at) + 1) % 256) .. content:sub(at + 1))
      local e = fails("DataLoss", path, collect, data)
      assert.is_truthy(e.message:find(at <= 21 and "record 0 at offset 0"
        or "record 1 at offset 21", 1, true), e.message)
    end
    for n = 1, #content - 1 do
      write(path, content:sub(1, n))
      if n == 21 then
        assert.are.same({ "first" }, collect(data))
      else
        fails("DataLoss", path, collect, data)
      end
    end
    write(path, "")
    assert.are.same({}, collect(data))
  end)

  it("compressed and damaged are DataLoss or give no other records", function()
    for _, kind in ipairs { "GZIP", "ZLIB" } do
      local writer = tf.io.TFRecordWriter(path, kind)
      writer:write "some record"
      writer:close()
      local content = read(path)
      local data = tf.data.TFRecordDataset(path, { compression_type = kind })
      for at = 1, #content do
        write(path, content:sub(1, at - 1)
          .. string.char((content:byte(at) + 1) % 256) .. content:sub(at + 1))
        local ok, e = pcall(collect, data)
        if ok then -- gzip's time and system bytes mean nothing
          assert.are.same({ "some record" }, e)
        else
          assert.are.equal("DataLoss", e.kind)
        end
        write(path, content:sub(1, at - 1))
        if at > 1 then fails("DataLoss", path, collect, data) end
      end
    end
  end)

  it("that are not there are NotFound when read", function()
    local data = tf.data.TFRecordDataset "/nowhere/x"
    fails("NotFound", "/nowhere/x", collect, data)
    fails("FailedPrecondition", "folder", collect, tf.data.TFRecordDataset
      "/tmp")
    fails("ValueError", "compression_type", tf.data.TFRecordDataset, path,
      { compression_type = "LZ4" })
  end)

  it("hold lines with either end, the last one without", function()
    write(path, "a\r\nb\n\nlast")
    assert.are.same({ "a", "b", "", "last" }, collect(
      tf.data.TextLineDataset(path)))
    local long = ("y"):rep(200000)
    write(path, long .. "\n" .. long)
    assert.are.same({ long, long }, collect(tf.data.TextLineDataset(path)))
  end)

  it("are read one after the other, or in turn", function()
    local other = os.tmpname()
    write(path, "a\nb\nc\n")
    write(other, "1\n")
    assert.are.same({ "a", "b", "c", "1", "a", "b", "c" }, collect(
      tf.data.TextLineDataset { path, other, path }))
    assert.are.same({ "a", "1", "b", "a", "c", "b", "c" }, collect(
      tf.data.TextLineDataset({ path, other, path },
      { num_parallel_reads = 2 })))
    assert.are.same({ "1", "a", "b", "c" }, collect(
      tf.data.TextLineDataset { path, other, path }:skip(3)))
    os.remove(other)
  end)

  it("can be given up in the middle", function()
    write(path, ("line\n"):rep(500000))
    for _ = 1, 5 do
      local iterator = tf.data.TextLineDataset(path):iter()
      assert.are.equal("line", iterator:get_next())
      iterator:close()
    end
  end)

  it("hold records of one size between header and footer", function()
    write(path, "HHaabbccF")
    local function of(...)
      return tf.data.FixedLengthRecordDataset(path, ...)
    end
    assert.are.same({ "aa", "bb", "cc" }, collect(of(2, 2, 1)))
    assert.are.same({ "HHa", "abb", "ccF" }, collect(of(3)))
    fails("DataLoss", "record 2 at offset 8", collect, of(4))
    fails("DataLoss", "header", collect, of(2, 50))
    fails("ValueError", "record_bytes", of, 0)
  end)

  it("give batches of strings", function()
    write(path, "a\nb\nc\n")
    local batches = collect(tf.data.TextLineDataset(path):batch(2))
    assert.are.same({ "a", "b" }, batches[1]:totable())
    assert.are.same({ "c" }, batches[2]:totable())
  end)
end)

describe("CSV files", function()
  local path
  leaks(before_each, after_each)
  before_each(function()
    path = os.tmpname()
  end)
  after_each(function()
    os.remove(path)
  end)

  local function rows(content, defaults, settings)
    write(path, content)
    local out = {}
    for a, b, c in tf.data.experimental.CsvDataset(path, defaults,
      settings or {}):iter() do
      local row = { a, b, c }
      for i = 1, #row do
        row[i] = type(row[i]) == "userdata" and row[i]:item() or row[i]
      end
      out[#out + 1] = row
    end
    return out
  end

  it("have typed columns, defaults, quotes and a header", function()
    assert.are.same({ { 1, 2.5, "a,b" }, { -3, 9, "say \"hi\"\nyou" },
      { 4, 1e3, "none" } }, rows('x,y,z\n1,2.5,"a,b"\r\n-3,,"say ""hi""\nyou"\n'
      .. "4,1e3,\n", { "int32", 9, "none" }, { header = true }))
    local x, y
    write(path, "7,8\n")
    for a, b in tf.data.experimental.CsvDataset(path, { "int64", "float64" })
      :iter() do
      x, y = a, b
    end
    assert.are.equal("int64", x.dtype)
    assert.are.equal("float64", y.dtype)
  end)

  it("can be read in part, with other marks", function()
    assert.are.same({ { 1, 3 } }, rows("1;2;3\n", { "int32", "int32" },
      { field_delim = ";", select_cols = { 0, 2 } }))
    assert.are.same({ { 1, 3 } }, rows("1;2;3\n", { "int32", "int32" },
      { field_delim = ";", exclude_cols = { 1 } }))
    assert.are.same({ { 1, 5 } }, rows("1,NA\n", { "int32", 5 },
      { na_value = "NA" }))
    assert.are.same({ { '"a"', 1 } }, rows('"a",1\n', { "string", "int32" },
      { use_quote_delim = false }))
  end)

  local BAD = {
    ["2 fields, got 3"] = "1,2,3\n", ["2 fields, got 1"] = "1\n",
    ["is no int32"] = "x,2\n", ["column 0 is required"] = ",2\n",
    ["a quote inside"] = 'a""b,2\n', ["text after a closing"] = '"1"2,2\n',
    ["is no int32 in row \"99"] = "99999999999,2\n",
    ["is no int32 in row \"1.5"] = "1.5,2\n",
    ["is no int32 in row \"0x"] = "0x10,2\n",
  }
  for why, content in pairs(BAD) do
    it("say what is wrong: " .. why, function()
      fails("InvalidArgument", why, rows, content, { "int32", "int32" })
    end)
  end

  it("that end inside quotes are damaged", function()
    fails("DataLoss", "inside quotes", rows, '1,"2\n3,4\n', { "int32",
      "string" })
  end)

  it("make batches by column name", function()
    write(path, "a,b,y\n1,u,0\n2,v,1\n")
    local data = tf.data.experimental.make_csv_dataset(path, 2, {
      column_defaults = { "float32", "string", "int32" }, label_name = "y",
      num_epochs = 1, shuffle = false })
    local n = 0
    for row, label in data:iter() do
      n = n + 1
      assert.are.same({ 1, 2 }, row.a:totable())
      assert.are.same({ "u", "v" }, row.b:totable())
      assert.are.same({ 0, 1 }, label:totable())
    end
    assert.are.equal(1, n)
  end)
end)

describe("tf.train.Example", function()
  leaks(before_each, after_each)
  local T = tf.train

  local function sample()
    return T.Example { features = T.Features { feature = {
      x = T.Feature { float_list = T.FloatList { value = { 1.5, -2 } } },
      n = T.Feature { int64_list = T.Int64List { value = { 3, -1, 300 } } },
      s = T.Feature { bytes_list = T.BytesList { value = { "a\0b", "" } } },
      e = T.Feature(),
    } } }
  end

  -- By hand from the wire format.
  local function field(key, s)
    return string.char(key, #s) .. s
  end
  local function entry(name, feature)
    return field(10, field(10, name) .. field(18, feature))
  end
  local MINUS_ONE = ("\255"):rep(9) .. "\1"
  local WIRE = field(10, entry("e", "")
    .. entry("n", field(26, field(10, "\3" .. MINUS_ONE .. "\172\2")))
    .. entry("s", field(10, field(10, "a\0b") .. field(10, "")))
    .. entry("x", field(18, field(10, "\0\0\192\63\0\0\0\192"))))

  it("is the bytes of the wire format, and back", function()
    assert.are.equal(WIRE, sample():SerializeToString())
    local back = T.Example.FromString(WIRE)
    local feature = back.features.feature
    assert.are.same({ 1.5, -2 }, feature.x.float_list.value)
    assert.are.same({ 3, -1, 300 }, feature.n.int64_list.value)
    assert.are.same({ "a\0b", "" }, feature.s.bytes_list.value)
    assert.are.equal(WIRE, back:SerializeToString())
  end)

  it("is parsed by specifications", function()
    local io = tf.io
    local p = io.parse_single_example(WIRE, {
      x = io.FixedLenFeature({ 2 }, "float32"),
      n = io.VarLenFeature "int64",
      s = io.FixedLenFeature({ 2 }, "string"),
      missing = io.FixedLenFeature({}, "int64", 7),
      none = io.VarLenFeature "float32",
    })
    assert.are.same({ 1.5, -2 }, p.x:totable())
    assert.are.same({ 3, -1, 300 }, p.n:totable())
    assert.are.equal("int64", p.n.dtype)
    assert.are.same({ "a\0b", "" }, p.s:totable())
    assert.are.equal(7, p.missing:item())
    assert.are.same({ 0 }, p.none.shape)
    local parse = io.parse_single_example
    fails("InvalidArgument", "required", parse, WIRE,
      { z = io.FixedLenFeature({}, "int64") })
    fails("InvalidArgument", "holds float", parse, WIRE,
      { x = io.FixedLenFeature({ 2 }, "int64") })
    fails("InvalidArgument", "2 values", parse, WIRE,
      { x = io.FixedLenFeature({ 3 }, "float32") })
    fails("DataLoss", "Example", parse, "\10\200", {})
    fails("ValueError", "dtype", io.VarLenFeature, "int32")
  end)

  it("makes batches, short lists padded", function()
    local io = tf.io
    local one = io.serialize_example { v = { 1, 2 }, name = "a" }
    local two = io.serialize_example { v = { 3 }, name = "b" }
    local p = io.parse_example({ one, two }, {
      v = io.VarLenFeature "float32", name = io.FixedLenFeature({}, "string") })
    assert.are.same({ { 1, 2 }, { 3, 0 } }, p.v:totable())
    assert.are.same({ "a", "b" }, p.name:totable())
  end)

  it("takes values that are not packed, and passes over unknown fields",
    function()
      local example = field(10, entry("n", field(26, "\8\1\8\2"))
        .. entry("x", field(18, "\13\0\0\128\63"))) .. "\24\5"
      local p = tf.io.parse_single_example(example, {
        n = tf.io.VarLenFeature "int64", x = tf.io.VarLenFeature "float32" })
      assert.are.same({ 1, 2 }, p.n:totable())
      assert.are.same({ 1 }, p.x:totable())
    end)

  it("never trusts a byte", function()
    for at = 1, #WIRE do
      for _, byte in ipairs { 0, 127, 128, 255, (WIRE:byte(at) + 1) % 256 } do
        local ok, e = pcall(T.Example.FromString, WIRE:sub(1, at - 1)
          .. string.char(byte) .. WIRE:sub(at + 1))
        assert.is_true(ok or e.kind == "DataLoss", tostring(e))
      end
      local ok, e = pcall(T.Example.FromString, WIRE:sub(1, at - 1))
      assert.is_true(ok or e.kind == "DataLoss", tostring(e))
    end
  end)

  it("goes through a file into a training pipeline", function()
    local path = os.tmpname()
    local writer = tf.io.TFRecordWriter(path)
    for i = 1, 5 do
      writer:write(tf.io.serialize_example { x = { i, 2 * i },
        y = tf.constant({ i }, "int64") })
    end
    writer:close()
    local spec = { x = tf.io.FixedLenFeature({ 2 }, "float32"),
      y = tf.io.FixedLenFeature({}, "int64") }
    local rows = collect(tf.data.TFRecordDataset(path):map(function(record)
      return tf.io.parse_single_example(record, spec)
    end):batch(5))
    assert.are.same({ 1, 2, 3, 4, 5 }, rows[1].y:totable())
    assert.are.same({ 5, 10 }, rows[1].x[4]:totable())
    os.remove(path)
  end)
end)

describe("tf.io", function()
  leaks(before_each, after_each)

  it("decodes raw bytes", function()
    assert.are.same({ 1, 256 }, tf.io.decode_raw("\1\0\0\1", "int16"):totable())
    assert.are.same({ 256, 1 }, tf.io.decode_raw("\1\0\0\1", "int16",
      { little_endian = false }):totable())
    fails("InvalidArgument", "3 bytes", tf.io.decode_raw, "abc", "int16")
  end)

  it("reads, writes, lists and matches files", function()
    local dir = os.tmpname()
    os.remove(dir)
    tf.io.write_file(dir .. "/a/x1.txt", "one")
    tf.io.write_file(dir .. "/a/x2.txt", "two")
    tf.io.write_file(dir .. "/b/x1.txt", "")
    assert.are.equal("one", tf.io.read_file(dir .. "/a/x1.txt"))
    local none, _, kind = tf.io.read_file(dir .. "/no")
    assert.is_nil(none)
    assert.are.equal("NotFound", kind)
    assert.are.same({ dir .. "/a/x1.txt", dir .. "/b/x1.txt" },
      tf.io.gfile.glob(dir .. "/*/x1.*"))
    assert.are.same({ dir .. "/a/x2.txt" }, tf.io.matching_files(dir
      .. "/a/x[2-9].txt"))
    assert.are.same({ "a", "b" }, tf.io.gfile.listdir(dir))
    assert.is_true(tf.io.gfile.isdir(dir))
    assert.is_false(tf.io.gfile.exists(dir .. "/c"))
    tf.io.gfile.rename(dir .. "/a/x1.txt", dir .. "/a/x3.txt")
    fails("AlreadyExists", "exists", tf.io.gfile.rename, dir .. "/a/x3.txt",
      dir .. "/a/x2.txt")
    tf.io.gfile.remove(dir .. "/a/x3.txt")
    fails("NotFound", nil, tf.io.gfile.remove, dir .. "/a/x3.txt")
    fails("NotFound", nil, tf.io.gfile.listdir, dir .. "/none")
    os.execute("rm -r " .. dir)
  end)

  it("reads idx, npy and npz files of any damage without a crash", function()
    local path = os.tmpname()
    tf.io.write_npy(path, tf.constant { 1, 2 })
    local array = read(path)
    assert.are.equal(0xCBF43926, files.crc32 "123456789") -- the published one
    local zip = files.stored_zip("a.npy", array)
    write(path, zip)
    assert.are.same({ 1, 2 }, tf.io.read_npz(path).a:totable())
    for content, load in pairs {
      ["\0\0\12\2\0\0\0\1\0\0\0\2abcdefgh"] = raw.read_idx,
      [array] = tf.io.read_npy, [zip] = tf.io.read_npz } do
      local kinds = { DataLoss = true, InvalidArgument = true,
        NotImplementedError = true }
      for at = 1, #content do
        for _, byte in ipairs { 0, 255, (content:byte(at) + 1) % 256 } do
          write(path, content:sub(1, at - 1) .. string.char(byte)
            .. content:sub(at + 1))
          local ok, e = pcall(load, path)
          assert.is_true(ok or kinds[e.kind], tostring(e))
          local place = content == zip and at - 35 or 0
          if place > 0 and place <= #array
            and byte ~= content:byte(at) then
            assert.is_false(ok, "byte " .. at .. " of the array")
            assert.is_truthy(tostring(e):find(path .. "(a.npy)", 1, true))
          end
        end
        write(path, content:sub(1, at - 1))
        local ok, e = pcall(load, path)
        assert.is_true(not ok and kinds[e.kind], tostring(e))
      end
    end
    os.remove(path)
  end)

  it("shares npy and npz files with NumPy #once", function()
    local base = os.tmpname()
    if process.run("/usr/bin/python3 -c 'import numpy'").code == 0 then
      python([==[
import numpy as np, sys
b = sys.argv[1]
a = np.arange(6, dtype='<f4').reshape(2, 3)
np.save(b + '.npy', np.asfortranarray(a))
np.savez(b + '.npz', a=a.astype('>i4'), f=np.array([True, False]))
np.savez_compressed(b + 'c.npz', a=np.tile(a, (9, 9)), e=np.zeros((0, 3)))
]==], base)
      assert.are.same({ { 0, 1, 2 }, { 3, 4, 5 } }, tf.io.read_npy(base
        .. ".npy"):totable())
      local z = tf.io.read_npz(base .. ".npz")
      assert.are.same({ { 0, 1, 2 }, { 3, 4, 5 } }, z.a:totable())
      assert.are.same({ true, false }, z.f:totable())
      z = tf.io.read_npz(base .. "c.npz")
      assert.are.same({ 18, 27 }, z.a.shape)
      assert.are.equal(5, z.a:item(17 * 27 + 26))
      assert.are.same({ 0, 3 }, z.e.shape)
    end
    tf.io.write_npy(base .. ".npy", tf.constant { { 1, 2 }, { 3, 4 } })
    assert.are.same({ { 1, 2 }, { 3, 4 } }, tf.io.read_npy(base
      .. ".npy"):totable())
    local content = read(base .. ".npy")
    for at = 0, #content - 1 do
      write(base .. ".npy", content:sub(1, at))
      fails("DataLoss", base, tf.io.read_npy, base .. ".npy")
    end
    local none, _, kind = tf.io.read_npz(base .. "none")
    assert.is_nil(none)
    assert.are.equal("NotFound", kind)
    for _, suffix in ipairs { "", ".npy", ".npz", "c.npz" } do
      os.remove(base .. suffix)
    end
    assert.are.equal(0, raw.live_handles "input")
  end)
end)

describe("the loaders of digits and clothing", function()
  it("take a folder in both ways, and say what it lacks", function()
    for _, name in ipairs { "mnist", "fashion_mnist" } do
      local load = tf.keras.datasets[name].load_data
      for _, given in ipairs { "/no-such-folder",
        { path = "/no-such-folder" } } do
        local x, why, kind = load(given)
        assert.is_nil(x)
        assert.matches("^/no%-such%-folder/train%-images.* is missing", why)
        assert.are.equal("NotFound", kind)
      end
      fails("ValueError", "unknown option", load, { folder = "x" })
    end
    local x, why = tf.keras.datasets.mnist.load_data()
    assert.is_true(x ~= nil or why:find("{ path = ... }", 1, true) ~= nil)
  end)
end)
