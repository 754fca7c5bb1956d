-- The files that checkpoints are: what others read in them, what is refused.
local leaks = require "spec.support.leaks"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"
local files = require "spec.support.files"

local function temporary()
  return files.place ".safetensors"
end

local read = files.read

local write = files.write

-- Tensors of every dtype and some shapes, by name.
local function samples()
  local t = { scalar = tf.constant(2.5), none = tf.zeros { 0, 3 },
    ["a/b.c \"é\""] = tf.constant { { 1, 2, 3 }, { 4, 5, 6 } } }
  for _, dtype in ipairs { "float64", "float16", "bfloat16", "int8", "int16",
    "int32", "int64", "uint8" } do
    t[dtype] = tf.cast(tf.constant { 1, 2, 3 }, dtype)
  end
  t.bool = tf.constant { true, false }
  return t
end

local function save(tensors, path)
  local saver = raw.saver_new()
  for name, t in pairs(tensors) do
    raw.saver_add(saver, name, t)
  end
  raw.saver_metadata(saver, "note", "line\n\"two\"")
  raw.saver_write(saver, path)
  raw.release(saver)
end

-- 8 bytes little-endian.
local function length(n)
  local bytes = {}
  for i = 1, 8 do
    bytes[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(bytes)
end

-- A foreign file: header text and elements as given.
local function file_of(header, data, claimed)
  return length(claimed or #header) .. header .. data
end

local PYTHON = [==[
import json, struct, sys
raw = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', raw[:8])[0]
head = json.loads(raw[8:8 + n])
meta = head.pop('__metadata__')
assert all(isinstance(v, str) for v in meta.values())
size = dict(F64=8, F32=4, F16=2, BF16=2, I8=1, I16=2, I32=4, I64=8, U8=1,
            BOOL=1)
code = dict(F64='d', F32='f', F16='e', I8='b', I16='h', I32='i', I64='q',
            U8='B', BOOL='?')
at = 0
for name, e in sorted(head.items(), key=lambda x: x[1]['data_offsets']):
  begin, end = e['data_offsets']
  count = 1
  for d in e['shape']: count *= d
  assert begin == at and end - begin == count * size[e['dtype']]
  assert (8 + n + begin) % size[e['dtype']] == 0, 'alignment'
  at = end
  data = raw[8 + n + begin:8 + n + end]
  if e['dtype'] == 'BF16':
    values = [struct.unpack('<f', b'\0\0' + data[i:i + 2])[0]
              for i in range(0, len(data), 2)]
  else:
    values = struct.unpack('<%d%s' % (count, code[e['dtype']]), data)
  print(name, e['dtype'], e['shape'], [float(v) for v in values])
assert 8 + n + at == len(raw)
]==]

describe("safetensors files", function()
  local path
  leaks(before_each, after_each)
  before_each(function()
    path = temporary()
  end)
  after_each(function()
    os.remove(path)
  end)

  it("read back as they were written, every dtype", function()
    local all = samples()
    save(all, path)
    local archive = raw.archive_open(path)
    local n = 0
    for name, t in pairs(all) do
      n = n + 1
      local got = raw.archive_read(archive, raw.archive_find(archive, name))
      assert.are.equal(t.dtype, got.dtype)
      assert.are.same(t.shape, got.shape)
      assert.are.equal(raw.tensor_bytes(t), raw.tensor_bytes(got))
    end
    assert.are.equal(n, raw.archive_count(archive))
    assert.are.equal(-1, raw.archive_find(archive, "nothing"))
    assert.are.equal("line\n\"two\"", raw.archive_metadata(archive, "note"))
    assert.is_nil(raw.archive_metadata(archive, "none"))
    raw.release(archive)
  end)

  it("are what Python reads by the format's rules #once", function()
    save(samples(), path)
    local script = process.file(PYTHON, ".py")
    local r = process.run("python3 " .. script .. " " .. process.quote(path))
    os.remove(script)
    assert.are.equal("", r.err)
    for _, line in ipairs { "float16 F16 [3] [1.0, 2.0, 3.0]",
      "bfloat16 BF16 [3] [1.0, 2.0, 3.0]", "int64 I64 [3] [1.0, 2.0, 3.0]",
      "scalar F32 [] [2.5]", "none F32 [0, 3] []", "bool BOOL [2] [1.0, 0.0]",
      "a/b.c \"é\" F32 [2, 3] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]" } do
      assert.is_truthy(r.out:find(line, 1, true), line .. "\n" .. r.out)
    end
  end)

  it("load with the safetensors package, and its files load here #once", function()
    if process.run("python3 -c 'import safetensors.numpy'").code ~= 0 then
      return pending "needs the Python package safetensors"
    end
    save({ x = tf.constant { 1, 2 } }, path)
    local script = process.file([[
import sys
from safetensors.numpy import load_file, save_file
x = load_file(sys.argv[1])['x']
save_file({'y': x * 2}, sys.argv[1], metadata={'a': 'b'})
]], ".py")
    local r = process.run("python3 " .. script .. " " .. path)
    os.remove(script)
    assert.are.equal("", r.err)
    local archive = raw.archive_open(path)
    assert.are.same({ 2, 4 }, raw.archive_read(archive, 0):totable())
    raw.release(archive)
  end)

  it("of others need no checksums", function()
    write(path, file_of('{"x":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}'
      .. ',"u":{"dtype":"U32","shape":[1],"data_offsets":[4,8]}}   ',
      "\1\0\2\0\9\0\0\0"))
    local archive = raw.archive_open(path)
    assert.are.same({ 1, 2 }, raw.archive_read(archive,
      raw.archive_find(archive, "x")):totable())
    local ok, e = pcall(raw.archive_read, archive, 0)
    assert.is_false(ok)
    assert.are.equal("NotImplementedError", e.kind)
    raw.release(archive)
  end)

  it("are told from what Python's libraries write by default", function()
    for start, kind in pairs { ["\137HDF\r\n\26\n"] = "it is HDF5 (.h5);",
      ["PK\3\4\20\0\0\0"] = "it is a zip archive (.keras, .npz, .pt);" } do
      write(path, start .. ("x"):rep(99))
      local ok, e = pcall(function()
        return tf.train.Checkpoint { v = tf.Variable(1) }:restore(path)
      end)
      assert.is_false(ok)
      assert.are.equal("DataLoss", e.kind)
      assert.is_truthy(e.message:find("no safetensors file", 1, true))
      assert.are.equal(1, e.hint:find(kind, 1, true))
    end
  end)

  it("refuse two tensors of one name and names that are no UTF-8", function()
    local saver, t = raw.saver_new(), tf.constant(1)
    raw.saver_add(saver, "x", t)
    for _, case in ipairs { { "x", "AlreadyExists" },
      { "__metadata__", "InvalidArgument" }, { "\255", "InvalidArgument" },
      { "", "InvalidArgument" } } do
      local ok, e = pcall(raw.saver_add, saver, case[1], t)
      assert.is_false(ok)
      assert.are.equal(case[2], e.kind)
    end
    raw.release(saver)
  end)

  local function x(begin, stop, shape, dtype)
    return ('{"dtype":"%s","shape":%s,"data_offsets":[%s,%s]}'):format(
      dtype or "U8", shape or "[4]", begin, stop)
  end

  local BAD = {
    ["an empty file"] = "",
    ["seven bytes"] = "1234567",
    ["a header beyond the file"] = file_of("{}", "", 100),
    ["a huge header"] = file_of("{}", "", 2 ^ 62),
    ["no JSON"] = file_of("{x}", ""),
    ["no object"] = file_of("[1]", ""),
    ["leading space"] = file_of(" {}", ""),
    ["text after the object"] = file_of("{} {}", ""),
    ["a name twice"] = file_of('{"a":' .. x(0, 4) .. ',"a":' .. x(0, 4) .. "}",
      "1234"),
    ["a gap"] = file_of('{"a":' .. x(1, 5) .. "}", "12345"),
    ["an overlap"] = file_of('{"a":' .. x(0, 4) .. ',"b":' .. x(2, 6) .. "}",
      "123456"),
    ["bytes left over"] = file_of('{"a":' .. x(0, 4) .. "}", "12345"),
    ["bytes missing"] = file_of('{"a":' .. x(0, 4) .. "}", "123"),
    ["a size that does not fit"] = file_of('{"a":' .. x(0, 4, "[5]") .. "}",
      "1234"),
    ["a product over 64 bits"] = file_of('{"a":' .. x(0, 4,
      "[4294967296,4294967297]") .. "}", "1234"),
    ["a negative size"] = file_of('{"a":' .. x(0, 4, "[-1,-4]") .. "}", "1234"),
    ["a fraction"] = file_of('{"a":' .. x(0, 4, "[4.0]") .. "}", "1234"),
    ["offsets backwards"] = file_of('{"a":' .. x(4, 0) .. "}", "1234"),
    ["offsets over 64 bits"] = file_of('{"a":' .. x(0, "1e30") .. "}", "1234"),
    ["an unknown dtype"] = file_of('{"a":' .. x(0, 4, "[4]", "Q7") .. "}",
      "1234"),
    ["no dtype"] = file_of('{"a":{"shape":[4],"data_offsets":[0,4]}}', "1234"),
    ["metadata of numbers"] = file_of('{"__metadata__":{"a":1}}', ""),
    ["metadata that is a list"] = file_of('{"__metadata__":[]}', ""),
    ["deep nesting"] = file_of('{"a":' .. ("["):rep(5000), ""),
    ["our mark without checksum"] = file_of(
      '{"__metadata__":{"format":"tfdist"}}', ""),
  }

  for what, content in pairs(BAD) do
    it("with " .. what .. " are a DataLoss that names the file", function()
      write(path, content)
      local ok, e = pcall(raw.archive_open, path)
      assert.is_false(ok)
      assert.are.equal("DataLoss", e.kind)
      assert.is_truthy(e.message:find(path, 1, true), e.message)
    end)
  end

  it("name tensor, offset and checksums when elements are damaged", function()
    save({ kernel = tf.constant { 1, 2, 3 } }, path)
    local content = read(path)
    write(path, content:sub(1, -2) .. "\255")
    local archive = raw.archive_open(path)
    local ok, e = pcall(raw.archive_read, archive, 0)
    assert.is_false(ok)
    assert.are.equal("DataLoss", e.kind)
    assert.is_truthy(e.message:find('tensor "kernel" at offset '
      .. #content - 12, 1, true), e.message)
    raw.release(archive)
  end)

  it("have the CRC-32C of each tensor's bytes in their metadata", function()
    -- RFC 3720, B.4: 32 bytes of zeros, 32 of 0xff.
    save({ zeros = tf.zeros({ 32 }, "uint8"),
      ones = tf.fill({ 32 }, tf.constant(255, "uint8")) }, path)
    local archive = raw.archive_open(path)
    assert.are.equal("8a9136aa", raw.archive_metadata(archive, "crc32c:zeros"))
    assert.are.equal("62a8ab43", raw.archive_metadata(archive, "crc32c:ones"))
    raw.release(archive)
  end)

  it("with a byte that is no boolean are damaged", function()
    write(path, file_of('{"x":' .. x(0, 2, "[2]", "BOOL") .. "}", "\1\2"))
    local archive = raw.archive_open(path)
    local ok, e = pcall(raw.archive_read, archive, 0)
    assert.is_false(ok)
    assert.are.equal("DataLoss", e.kind)
    raw.release(archive)
  end)

  it("cannot be changed in any bit, or cut, without being noticed", function()
    local t = tf.constant { 1, 2 }
    save({ x = t, y = tf.constant(true) }, path)
    local content = read(path)
    local function survives()
      local archive = raw.archive_open(path)
      local sum = raw.archive_count(archive)
      for i = 0, sum - 1 do
        raw.archive_read(archive, i)
      end
      return sum
    end
    assert.are.equal(2, survives())
    for at = 1, #content do
      local byte = content:byte(at)
      local bit = 2 ^ (at % 8)
      local other = math.floor(byte / bit) % 2 == 1 and byte - bit or byte + bit
      write(path, content:sub(1, at - 1) .. string.char(other)
        .. content:sub(at + 1))
      local ok, e = pcall(survives)
      assert.is_false(ok, "changed byte " .. at .. " was not noticed")
      assert.are.equal("DataLoss", e.kind)
    end
    for n = 0, #content - 1 do
      write(path, content:sub(1, n))
      local ok, e = pcall(survives)
      assert.is_false(ok, "cut to " .. n)
      assert.are.equal("DataLoss", e.kind)
    end
  end)

  it("keep the permissions of what they replace, new ones have the usual",
    function()
      local function mode()
        return process.run("stat -c %a " .. path).out:match "%d+"
      end
      write(path, "")
      local usual = mode()
      for _, wanted in ipairs { "640", "600", "444", "755" } do
        process.run(("chmod %s %s"):format(wanted, path))
        save({ x = tf.constant(1) }, path)
        assert.are.equal(wanted, mode())
        tf.io.write_file(path, "text")
        assert.are.equal(wanted, mode())
      end
      os.remove(path)
      save({ x = tf.constant(1) }, path)
      assert.are.equal(usual, mode())
    end)

  it("cannot be folders, pipes or nothing", function()
    local ok, e = pcall(raw.archive_open, "/tmp")
    assert.is_false(ok)
    assert.are.equal("FailedPrecondition", e.kind)
    ok, e = pcall(raw.archive_open, path)
    assert.is_false(ok)
    assert.are.equal("NotFound", e.kind)
  end)
end)
