-- What reading a file may take: memory by what the file holds, no other file.
local files = require "spec.support.files"
local process = require "spec.support.process"

local MIB = 1024 -- KiB

-- Small files that claim much, made by Python's own zlib and zipfile.
local MAKE = [==[
import gzip, io, struct, sys, zipfile
folder = sys.argv[1]
MIB = 1 << 20

def put(name, data):
    with open(folder + '/' + name, 'wb') as f:
        f.write(data)

def npy(n):
    head = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % n
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    return (b'\x93NUMPY\1\0' + struct.pack('<H', len(head)) + head.encode()
            + bytes(n))

def npz(name, sizes):
    with zipfile.ZipFile(folder + '/' + name, 'w', zipfile.ZIP_DEFLATED) as z:
        for i, n in enumerate(sizes):
            z.writestr('a%d.npy' % i, npy(n))

npz('large.npz', [200 * MIB])
npz('several.npz', [40 * MIB] * 5)
npz('fits.npz', [40 * MIB])
def idx(n, held=None):
    return gzip.compress(b'\0\0\x08\1' + struct.pack('>I', n)
                         + bytes(n if held is None else held), 6)
put('large.idx.gz', idx(200 * MIB))
put('fits.idx.gz', idx(40 * MIB))
put('claims.idx.gz', idx(400 * MIB, 30))
put('claims-less.idx.gz', idx(40 * MIB, 30))
put('line.gz', gzip.compress(b'x' * (200 * MIB) + b'\n'))

def crc(data):
    c = 0xffffffff
    for b in data:
        c ^= b
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff
def head(n):
    length = struct.pack('<Q', n)
    return length + struct.pack('<I', crc(length))
put('record.gz', gzip.compress(head(200 * MIB) + bytes(200 * MIB)))
put('claims.record.gz', gzip.compress(head(200 * MIB) + bytes(30)))
put('claims-less.record.gz', gzip.compress(head(40 * MIB) + bytes(30)))
def safetensors(name, header):
    put(name, struct.pack('<Q', len(header)) + header.encode())
safetensors('lists', '{"a":{"shape":[' + ','.join(['[]'] * 3666666) + ']}}')
safetensors('notes', '{"__metadata__":{' + ','.join(
    '"%x":""' % i for i in range(1100000)) + '}}')
safetensors('entries', '{' + ','.join(
    '"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i
    for i in range(200000)) + '}')
safetensors('deep', '{"a":' + '{"a":' * 2000000 + '}')
]==]

local CHILD = [==[
local tf, raw = require "tfdist", require "tfdist.core.raw"
local path = ...
local function peak()
  for line in io.lines "/proc/self/status" do
    local n = line:match "VmHWM:%%s*(%%d+)"
    if n then return tonumber(n) end
  end
end
tf.ones { 2 }:item(0)
local read = function() %s end
local before = peak()
local ok, e = pcall(read)
print(ok and "read" or e.kind, peak() - before)
if not ok then print(e) end
assert(ok or e.message:find(path, 1, true))
]==]

local NPZ, IDX = "return tf.io.read_npz(path)", "return raw.read_idx(path)"
local ARCHIVE = "return raw.archive_open(path)"
local RECORDS = [[for _ in tf.data.TFRecordDataset(path,
  { compression_type = "GZIP" }):iter() do end]]
local LINES = RECORDS:gsub("TFRecord", "TextLine")
local LITTLE = "TFDIST_MEMORY_LIMIT=16777216"

-- What comes of it, and the most memory in KiB: what is refused is refused
-- before any is taken for it, what fits is in memory once. Then what is set.
local CASES = {
  { "large.npz", NPZ, "ResourceExhausted", 16 * MIB },
  { "several.npz", NPZ, "ResourceExhausted", (40 + 16) * MIB },
  { "fits.npz", NPZ, "read", (40 + 16) * MIB },
  { "large.idx.gz", IDX, "ResourceExhausted", 16 * MIB },
  { "fits.idx.gz", IDX, "read", (40 + 16) * MIB },
  -- More than deflate can hold in the file's bytes.
  { "claims.idx.gz", IDX, "DataLoss", 16 * MIB },
  { "claims-less.idx.gz", IDX, "DataLoss", 16 * MIB, LITTLE },
  { "record.gz", RECORDS, "ResourceExhausted", 16 * MIB },
  { "claims.record.gz", RECORDS, "DataLoss", 16 * MIB },
  { "claims-less.record.gz", RECORDS, "DataLoss", 16 * MIB, LITTLE },
  -- A line has no length before it ends: it grows to the limit, moved once.
  { "line.gz", LINES, "ResourceExhausted", (64 + 128 + 16) * MIB },
  { "lists", ARCHIVE, "DataLoss", (11 + 16) * MIB },
  { "deep", ARCHIVE, "DataLoss", (11 + 16) * MIB },
  -- The text, its names again, and a fixed number of bytes for each entry,
  -- which is at least 10 (notes) or 50 (tensors) bytes of text.
  { "notes", ARCHIVE, "read", 5 * 11 * MIB },
  { "entries", ARCHIVE, "read", 6 * 11 * MIB },
}

describe("a file #once", function()
  local folder
  setup(function()
    folder = files.place()
    os.execute("mkdir " .. folder)
    local script = process.file(MAKE, ".py")
    local r = process.call("/usr/bin/python3", { script, folder })
    os.remove(script)
    assert.are.equal("", r.err)
  end)
  teardown(function()
    os.execute("rm -r " .. folder)
  end)

  for _, case in ipairs(CASES) do
    it("takes memory by what it holds: " .. case[1], function()
      local script = process.file(CHILD:format(case[2]), ".lua")
      local r = process.run(("%s %s %s %s/%s"):format(case[5] or "",
        process.hosts[1].path, script, folder, case[1]))
      os.remove(script)
      local kind, grown = r.out:match "^(%S+)%s+(%d+)"
      assert.are.equal(case[3], kind, r.out .. r.err)
      assert.are.equal(0, r.code, r.err)
      assert.is_true(tonumber(grown) < case[4], grown .. " KiB")
    end)
  end

  it("is unpacked into no other file", function()
    local library = os.tmpname()
    assert.are.equal(0, process.run(("gcc -shared -fPIC -O1 -o %s "
      .. "spec/support/faults.c -ldl"):format(library)).code)
    local script = process.file("require 'tfdist'.io.read_npz(...)", ".lua")
    local r = process.run(("FAULT_FOLDER=/ FAULT_STEP=0 LD_PRELOAD=%s exec %s "
      .. "%s %s/fits.npz"):format(library, process.hosts[1].path, script,
      folder))
    os.remove(library)
    os.remove(script)
    -- Steps: files made, written, renamed or removed, wherever they lie.
    assert.are.equal("steps 0\n", r.err:match "steps %d+\n", r.err)
    assert.are.equal(0, r.code)
  end)
end)
