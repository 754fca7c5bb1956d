-- Event files: what an independent reader finds in them, and the commands.
local events = require "tfdist.io.events"
local leaks = require "spec.support.leaks"
local process = require "spec.support.process"
local raw = require "tfdist.core.raw"
local replicas = require "spec.support.replicas"
local tf = require "tfdist"
local files = require "spec.support.files"

local fails = replicas.fails

-- Wire format by its description, printed as one line for each value.
local PYTHON = [==[
import struct, sys
def varint(b, i):
  x = s = 0
  while True:
    c = b[i]; i += 1
    x |= (c & 127) << s; s += 7
    if c < 128: return x, i
def fields(b):
  i = 0
  while i < len(b):
    k, i = varint(b, i)
    if k & 7 == 0: v, i = varint(b, i)
    elif k & 7 == 1: v = struct.unpack('<d', b[i:i+8])[0]; i += 8
    elif k & 7 == 5: v = struct.unpack('<f', b[i:i+4])[0]; i += 4
    else:
      n, i = varint(b, i)
      assert i + n <= len(b)
      v = b[i:i+n]; i += n
    yield k >> 3, v
def tensor(b):
  dtype = None; dims = []; texts = []; content = b''
  for f, v in fields(b):
    if f == 1: dtype = v
    if f == 2: dims = [dict(fields(d))[1] for _, d in fields(v)]
    if f == 4: content = v
    if f == 8: texts.append(v)
  if dtype == 7: return dims, [repr(t) if len(t) < 40 else len(t)
                               for t in texts]
  code = {1: 'f', 2: 'd'}[dtype]
  n = len(content) // struct.calcsize(code)
  return dims, list(struct.unpack('<%d%s' % (n, code), content))
data = open(sys.argv[1], 'rb').read()
i = 0
while i < len(data):
  n = struct.unpack('<Q', data[i:i+8])[0]
  event = dict(fields(data[i+12:i+12+n])); i += n + 16
  assert abs(event[1] - float(sys.argv[2])) < 100, event[1]
  if 3 in event: print('version', event[3].decode())
  if 5 in event:
    value = dict(fields(dict(fields(event[5]))[1]))
    plugin = dict(fields(dict(fields(value[9]))[1]))[1].decode()
    print(event.get(2, 0), value[1].decode(), plugin, *tensor(value[8]))
]==]

describe("tf.summary", function()
  local dir
  leaks(before_each, after_each)
  before_each(function()
    dir = files.place()
  end)
  after_each(function()
    os.execute("rm -rf " .. dir)
  end)

  local function lines()
    local script = process.file(PYTHON, ".py")
    local out = {}
    for _, file in ipairs(events.files(dir)) do
      local r = process.call("python3", { script, file, tostring(os.time()) })
      assert.are.equal("", r.err)
      for line in r.out:gmatch "[^\n]+" do
        out[#out + 1] = line
      end
    end
    os.remove(script)
    return out
  end

  it("writes files that others read by the format's rules", function()
    local writer = tf.summary.create_file_writer(dir)
    writer:as_default(function()
      tf.summary.scalar("loss", 0.5, 3)
      tf.summary.scalar("loss", tf.constant(0.25), { step = 200 })
      tf.summary.scalar("flag", true, { step = tf.Variable(7,
        { dtype = "int64" }) })
      tf.summary.histogram("h", { 0, 1, 2, 4 }, { step = 1, buckets = 2 })
      tf.summary.histogram("same", tf.fill({ 2, 3 }, 5), 1)
      tf.summary.text("note", "hi", 1)
      tf.name_scope("outer", function()
        tf.summary.text("notes", { "a", "b" }, 1)
      end)
    end)
    writer:close()
    assert.are.same({ "version brain.Event:2", "3 loss scalars [] [0.5]",
      "200 loss scalars [] [0.25]", "7 flag scalars [] [1.0]",
      "1 h histograms [2, 3] [0.0, 2.0, 2.0, 2.0, 4.0, 2.0]",
      "1 same histograms [1, 3] [4.5, 5.5, 6.0]", "1 note text [] [\"b'hi'\"]",
      "1 outer/notes text [2] [\"b'a'\", \"b'b'\"]" }, lines())
    fails("FailedPrecondition", "closed", writer.as_default, writer, function()
      tf.summary.scalar("x", 1, 1)
    end)
  end)

  it("is read by TensorBoard where it is installed #once", function()
    if process.run("python3 -c 'import tensorboard'").code ~= 0 then
      return pending "needs the Python package tensorboard"
    end
    local writer = tf.summary.create_file_writer(dir)
    writer:as_default(function()
      tf.summary.scalar("loss", 0.5, 3)
    end)
    writer:close()
    local r = process.call("python3", { "-c", [[
import sys
from tensorboard.backend.event_processing import event_accumulator as ea
a = ea.EventAccumulator(sys.argv[1]); a.Reload()
print(a.Tags()['tensors'], a.Tensors('loss')[0].step)
]], dir })
    assert.are.equal("['loss'] 3\n", r.out, r.err)
  end)

  it("writes images as PNG #once", function()
    local writer = tf.summary.create_file_writer(dir)
    local pixels = tf.reshape(tf.range(0, 24, 1), { 2, 2, 3, 2 })
    writer:as_default(function()
      tf.summary.image("i", pixels / 24, { step = 1, max_outputs = 1 })
      tf.summary.image("big", tf.zeros({ 1, 300, 300, 1 }, "uint8"), 1)
      fails("InvalidArgument", "channels", tf.summary.image, "i", pixels[0], 1)
    end)
    writer:close()
    local found
    raw.folder_list(dir):gsub("[^%z]+", function(name)
      found = dir .. "/" .. name
    end)
    local r = process.run(("/usr/bin/python3 - %s <<'E'\n"):format(found) .. [[
import struct, sys, zlib
data = open(sys.argv[1], 'rb').read()
at = 0
for want in ((3, 2, 4), (300, 300, 0)):
  at = data.index(b'\x89PNG\r\n\x1a\n', at) + 8
  kinds = []
  while not kinds or kinds[-1] != b'IEND':
    n, kind = struct.unpack('>I4s', data[at:at + 8])
    body = data[at + 8:at + 8 + n]
    assert struct.unpack('>I', data[at + 8 + n:at + 12 + n])[0] == \
      zlib.crc32(kind + body)
    if kind == b'IHDR': assert struct.unpack('>IIBBBBB', body) == (
      want[0], want[1], 8, want[2], 0, 0, 0), body
    if kind == b'IDAT': pixels = zlib.decompress(body)
    kinds.append(kind); at += 12 + n
  if want[2] == 4:
    assert pixels == bytes([0] + [int(i / 24 * 255.999) for i in range(6)] +
      [0] + [int(i / 24 * 255.999) for i in range(6, 12)]), list(pixels)
  else: assert pixels == bytes(301 * 300)
print('fine')
E]])
    assert.are.equal("fine\n", r.out, r.err)
  end)

  it("needs a writer and a step", function()
    assert.is_false(tf.summary.scalar("x", 1, 1))
    assert.is_false(tf.summary.should_record_summaries())
    local writer = tf.summary.create_file_writer(dir)
    local scope = writer:as_default()
    assert.is_true(tf.summary.should_record_summaries())
    fails("ValueError", "No step set", tf.summary.scalar, "x", 1)
    tf.summary.experimental.set_step(4)
    assert.are.equal(4, tf.summary.experimental.get_step())
    assert.is_true(tf.summary.scalar("x", 1))
    fails("ValueError", "scalar", tf.summary.scalar, "x", { 1, 2 })
    tf.summary.experimental.set_step(nil)
    scope.close()
    writer:as_default(function()
      assert.is_true(tf.summary.scalar("y", 2))
    end, { step = 9 })
    assert.is_nil(tf.summary.experimental.get_step())
    writer:close()
    assert.are.same({ "version brain.Event:2", "4 x scalars [] [1.0]",
      "9 y scalars [] [2.0]" }, lines())
    assert.is_false(tf.summary.scalar("x", 1, 1))
    fails("NotImplementedError", "audio", tf.summary.audio)
  end)

  it("writes only when record_if says so", function()
    local writer = tf.summary.create_file_writer(dir)
    writer:as_default(function()
      for i = 1, 4 do
        tf.summary.record_if(function() return i % 2 == 0 end, function()
          assert.are.equal(i % 2 == 0, tf.summary.should_record_summaries())
          assert.are.equal(i % 2 == 0, tf.summary.scalar("x", i, i))
        end)
      end
      local off = tf.summary.record_if(tf.constant(false))
      assert.is_false(tf.summary.scalar("x", 1, 1))
      off.close()
      assert.is_true(tf.summary.scalar("x", 1, 1))
    end)
    tf.summary.flush(writer)
    assert.are.equal(4, #lines())
    writer:close()
  end)

  it("shows what was written after max_queue values, or flush", function()
    local writer = tf.summary.create_file_writer(dir, { max_queue = 2 })
    writer:as_default(function()
      tf.summary.scalar("x", 1, 1)
      tf.summary.scalar("x", 1, 2)
      assert.are.equal(1, #lines())
      tf.summary.scalar("x", 1, 3)
      assert.are.equal(4, #lines())
      tf.summary.scalar("x", 1, 4)
      tf.summary.flush()
      assert.are.equal(5, #lines())
    end)
    writer:close()
  end)

  it("takes writers only", function()
    for _, call in ipairs {
      function() tf.summary.flush(5) end,
      function() tf.summary.record_if(true, 5) end,
      function() tf.summary.create_file_writer("x", { flush_millis = "a" }) end,
      function()
        tf.summary.create_file_writer("x", { filename_suffix = {} })
      end,
    } do
      local ok, e = pcall(call)
      assert.is_false(ok)
      assert.are.equal("TypeError", e.kind)
    end
  end)

  it("writes what a noop writer gets nowhere", function()
    tf.summary.create_noop_writer():as_default(function()
      assert.is_false(tf.summary.scalar("x", 1, 1))
    end)
  end)

  it("has texts for names even where a file has numbers", function()
    local wire = require "tfdist.io.wire"
    local metadata = wire.bytes(1, wire.integer(1, 7))
    local event = events.parse(wire.bytes(5, wire.bytes(1,
      wire.integer(1, 3) .. wire.bytes(9, metadata))), "x")
    assert.are.equal("string", type(event.values[1].tag))
    assert.are.equal("string", type(event.values[1].kind))
  end)

  it("survives any damaged byte when read", function()
    local writer = tf.summary.create_file_writer(dir)
    writer:as_default(function()
      tf.summary.scalar("loss", 0.5, 3)
    end)
    writer:close()
    local file = events.files(dir)[1]
    local record
    local reader = raw.reader_open("records", file, "none", {})
    raw.reader_next(reader)
    record = raw.reader_next(reader)
    raw.release(reader)
    assert.are.equal(0.5, events.parse(record, "x").values[1].value)
    for at = 1, #record do
      for _, byte in ipairs { 0, 127, 128, 255 } do
        local ok, e = pcall(events.parse, record:sub(1, at - 1)
          .. string.char(byte) .. record:sub(at + 1), "x")
        assert.is_true(ok or e.kind == "DataLoss", tostring(e))
      end
      local ok, e = pcall(events.parse, record:sub(1, at - 1), "x")
      assert.is_true(ok or e.kind == "DataLoss", tostring(e))
    end
  end)

  it("is listed and drawn by the command line #once", function()
    local writer = tf.summary.create_file_writer(dir .. "/train")
    writer:as_default(function()
      for i = 0, 10 do
        tf.summary.scalar("loss", (10 - i) / 10, i)
      end
      tf.summary.text("note", "hi", 1)
    end)
    writer:close()
    for _, host in ipairs(process.hosts) do
      local r = process.call("TFDIST_DEV=$PWD/lua " .. host.path, { "events",
        "ls", dir })
      assert.are.equal(0, r.code, r.err)
      assert.is_truthy(r.out:find("loss +scalars +11 values, steps 0..10, "
        .. "last 0"), r.out)
      assert.is_truthy(r.out:find("note +text"), r.out)
      r = process.call("TFDIST_DEV=$PWD/lua " .. host.path, { "events", "plot",
        dir, "loss" })
      assert.are.equal(0, r.code, r.err)
      assert.is_truthy(r.out:find("\n          1 |*", 1, true), r.out)
      assert.is_truthy(r.out:find("\n          0 |" .. (" "):rep(63) .. "*", 1,
        true), r.out)
      r = process.call("TFDIST_DEV=$PWD/lua " .. host.path, { "events", "ls",
        dir .. "/none" })
      assert.are.equal(1, r.code)
      assert.is_truthy(r.err:find("NotFound", 1, true), r.err)
      r = process.call("TFDIST_DEV=$PWD/lua " .. host.path, { "events" })
      assert.are.equal(2, r.code)
    end
  end)

  it("keeps the runs of a folder apart on the command line #once", function()
    local function write(run, values)
      local writer = tf.summary.create_file_writer(dir .. "/runs" .. run)
      writer:as_default(function()
        for i, value in ipairs(values) do
          tf.summary.scalar("loss", value, i - 1)
        end
      end)
      writer:close()
    end
    write("/train", { 4, 3, 2 })
    write("/validation", { 8, 7 })
    for _, host in ipairs(process.hosts) do
      local function call(...)
        local r = process.call("TFDIST_DEV=$PWD/lua " .. host.path,
          { "events", ... })
        assert.are.equal(0, r.code, r.err)
        return r.out
      end
      local out = call("ls", dir .. "/runs")
      assert.matches("runs: 2 runs, 1 tag\n  train +loss +scalars +3 values, "
        .. "steps 0%.%.2, last 2\n  validation +loss +scalars +2 values, "
        .. "steps 0%.%.1, last 7\n$", out)
      out = call("plot", dir .. "/runs", "loss")
      assert.matches("^train  loss  %(3 values, last 2%)\n +4 |.*\n"
        .. "validation  loss  %(2 values, last 7%)\n +8 |", out)
      assert.matches("runs/train: 1 tag\n  loss", call("ls",
        dir .. "/runs/train"))
    end
    write("", { 1 })
    local host = "TFDIST_DEV=$PWD/lua " .. process.hosts[1].path
    local out = process.call(host, { "events", "ls", dir .. "/runs/" }).out
    assert.matches("3 runs, 1 tag\n  %. +loss .* last 1\n  train +loss .*\n"
      .. "  validation +loss", out)
  end)

  it("of checkpoints: ls and verify #once", function()
    local path = tf.train.Checkpoint { v = tf.Variable { 1, 2 } }:write(dir
      .. "/c")
    for _, host in ipairs(process.hosts) do
      local function ckpt(...)
        return process.call("TFDIST_DEV=$PWD/lua " .. host.path, { "ckpt", ... })
      end
      local r = ckpt("ls", path)
      assert.are.equal(0, r.code, r.err)
      assert.is_truthy(r.out:find("v +float32 +{2} +8 bytes"), r.out)
      r = ckpt("verify", path .. ".safetensors")
      assert.are.equal(0, r.code, r.err)
      assert.is_truthy(r.out:find("1 tensor\n", 1, true), r.out)
      assert.are.equal(1, ckpt("verify", dir .. "/none").code)
      assert.are.equal(2, ckpt("verify").code)
    end
    local f = assert(io.open(path .. ".safetensors", "r+b"))
    f:seek("end", -1)
    f:write "x"
    f:close()
    local r = process.call("TFDIST_DEV=$PWD/lua " .. process.hosts[1].path,
      { "ckpt", "verify", path })
    assert.are.equal(1, r.code)
    assert.is_truthy(r.err:find('DataLoss.*tensor "v" at offset'), r.err)
  end)

  it("of checkpoints obey nothing that files and their names say #once",
    function()
      local evil = "w\27[2J\7\155c\194\155m\127é"
      local folder = dir .. "/e\27]0;t\7"
      raw.folder_make(folder)
      local saver = raw.saver_new()
      raw.saver_add(saver, "w\27[2J\7\194\155m\127é", tf.constant { 1, 2 })
      raw.saver_write(saver, folder .. "/" .. evil .. ".safetensors")
      raw.release(saver)
      local path = folder .. "/" .. evil
      local content = files.read(path .. ".safetensors")
      local function clean(action, what)
        for _, host in ipairs(process.hosts) do
          local r = process.call("TFDIST_DEV=$PWD/lua " .. host.path,
            { "ckpt", action, what })
          local said = r.out .. r.err
          assert.is_true(#said > 10)
          assert.is_nil(said:gsub("\n", ""):find "[%c\127\155]", said)
          assert.is_truthy(said:find("é", 1, true), said)
        end
      end
      local function all()
        for _, action in ipairs { "ls", "verify" } do
          clean(action, path)
          clean(action, folder)
          clean(action, path .. "é-gone")
        end
      end
      all()
      -- The tensor's last byte, then the header's end.
      files.write(path .. ".safetensors", content:sub(1, -2) .. "\1")
      all()
      files.write(path .. ".safetensors", content:sub(1, 60))
      all()
    end)

  it("of checkpoints: ls and verify of a folder #once", function()
    local checkpoint = tf.train.Checkpoint { v = tf.Variable { 1, 2 } }
    for _ = 1, 10 do
      checkpoint:save(dir .. "/many/ckpt")
    end
    for _, host in ipairs(process.hosts) do
      local function ckpt(...)
        return process.call("TFDIST_DEV=$PWD/lua " .. host.path, { "ckpt", ... })
      end
      local r = ckpt("ls", dir .. "/many/")
      assert.are.equal(0, r.code, r.err)
      local names = {}
      for name in r.out:gmatch "([%w-]+)  2 tensors, 16 bytes" do
        names[#names + 1] = name
      end
      assert.are.equal(10, #names)
      assert.are.same({ "ckpt-1", "ckpt-2", "ckpt-10" }, { names[1], names[2],
        names[10] })
      assert.is_truthy(r.out:find("ckpt%-10  [^\n]+%(latest%)\n$"), r.out)
      r = ckpt("verify", dir .. "/many")
      assert.are.equal(0, r.code, r.err)
      assert.is_truthy(r.out:find("ckpt-10: 2 tensors", 1, true), r.out)
    end
    local f = assert(io.open(dir .. "/many/ckpt-3.safetensors", "wb"))
    f:write "x"
    f:close()
    local host = "TFDIST_DEV=$PWD/lua " .. process.hosts[1].path
    local r = process.call(host, { "ckpt", "ls", dir .. "/many" })
    assert.are.equal(1, r.code)
    assert.is_truthy(r.out:find("ckpt%-3  DataLoss: .*ckpt%-4  2 tens"), r.out)
    r = process.call(host, { "ckpt", "verify", dir .. "/many" })
    assert.are.equal(1, r.code)
    assert.is_truthy(r.out:find("ckpt-10: 2 tensors", 1, true), r.out)
    os.execute("rm -r " .. dir .. "/many")
    assert.are.equal(1, process.call(host, { "ckpt", "ls", dir .. "/no" }).code)
  end)

  it("of checkpoints: ls and verify of a backup's folder #once", function()
    local folder = dir .. "/backup"
    local model = tf.keras.Sequential { tf.keras.layers.Dense(1) }
    model:compile { loss = "mse" }
    local function ckpt(action, place)
      return process.call("TFDIST_DEV=$PWD/lua " .. process.hosts[1].path,
        { "ckpt", action, place })
    end
    model:fit(tf.ones { 4, 3 }, tf.ones { 4, 1 }, { epochs = 2, verbose = 0,
      callbacks = { tf.keras.callbacks.BackupAndRestore { backup_dir = folder,
        delete_checkpoint = false } } })
    local path = folder .. "/chief/ckpt-2"
    for _, place in ipairs { folder, folder .. "/" } do
      local r = ckpt("ls", place)
      assert.are.equal(0, r.code, r.err)
      assert.are.equal(path, r.out:match "^(%S+)  %d+ tensors, [^\n]*%(latest%)\n$")
      r = ckpt("verify", place)
      assert.are.equal(0, r.code, r.err)
      assert.are.equal(path, r.out:match "^ok    (%S+): %d+ tensors\n$")
    end
    os.execute("rm " .. folder .. "/chief/*")
    for _, action in ipairs { "ls", "verify" } do
      local r = ckpt(action, folder)
      assert.are.equal(1, r.code)
      assert.are.equal("tfdist ckpt: " .. folder .. ": there are no checkpoints in "
        .. "this folder\n", r.err)
    end
    os.execute("rm -r " .. folder)
  end)
end)

describe("summaries under a strategy", function()
  replicas.pair(it, pending, "are those of replica 0", function(s)
    local dir = os.tmpname()
    os.remove(dir)
    local writer = tf.summary.create_file_writer(dir)
    local written = {}
    writer:as_default(function()
      s:run(function()
        local id = replicas.id()
        written[id + 1] = tf.summary.scalar("id", id, 1)
      end)
    end)
    writer:close()
    assert.are.same({ true, false }, written)
    local values = {}
    events.read(events.files(dir)[1], function(event)
      for _, value in ipairs(event.values) do
        values[#values + 1] = value.value
      end
    end)
    assert.are.same({ 0 }, values)
    os.execute("rm -rf " .. dir)
  end)
end)

describe("summaries in a traced function", function()
  it("say what to write where only a call knows their values", function()
    local dir = os.tmpname()
    os.remove(dir)
    local writer = tf.summary.create_file_writer(dir)
    local step = tf.Variable(1, { dtype = "int64" })
    local function traced(fn)
      return tf.function_(function(x)
        writer:as_default(function() fn(x) end)
        return x
      end)
    end
    local x = tf.ones { 1, 2, 2, 1 }
    for named, fn in pairs {
      ["summary.scalar: data has values (float32 {})"] = function(t)
        tf.summary.scalar("a", tf.reduce_sum(t), 1) end,
      ["summary.scalar: step has values (int64 {})"] = function()
        tf.summary.scalar("a", 1, step) end,
      ["summary.histogram: data has values (float32 {1, 2, 2, 1})"] =
        function(t) tf.summary.histogram("a", t, 1) end,
      ["summary.image: data has values"] = function(t)
        tf.summary.image("a", t, 1) end,
    } do
      local e = fails("NotImplementedError", named, traced(fn), x)
      assert.matches("tf.py_function", e.hint, 1, true)
    end
    local f = tf.function_(function(t)
      tf.py_function(function(v)
        writer:as_default(function()
          tf.summary.scalar("sum", tf.reduce_sum(v), 1)
        end)
      end, { t }, {})
      return t
    end)
    f(x)
    f(x * 2)
    writer:close()
    local values = {}
    events.read(events.files(dir)[1], function(event)
      for _, value in ipairs(event.values) do
        values[#values + 1] = value.value
      end
    end)
    assert.are.same({ 4, 8 }, values)
    os.execute("rm -rf " .. dir)
  end)
end)
