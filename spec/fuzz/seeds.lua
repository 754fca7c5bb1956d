--- First inputs for the libFuzzer targets: lua5.4 spec/fuzz/seeds.lua FOLDER
--- makes FOLDER/<target>/<number> for each, and FOLDER/<target>.list of them.

local folder = assert(arg[1], "usage: lua5.4 spec/fuzz/seeds.lua FOLDER")

local function idx(type_byte, dims, body)
  local parts = { string.char(0, 0, type_byte, #dims) }
  for _, d in ipairs(dims) do parts[#parts + 1] = (">I4"):pack(d) end
  parts[#parts + 1] = body
  return table.concat(parts)
end

-- Bytes that choose an op, its inputs and its attributes: any do.
local function bytes(seed, n)
  local x, parts = seed, {}
  for i = 1, n do
    x = x * 16807 % 2147483647
    parts[i] = string.char(x // 65536 % 256)
  end
  return table.concat(parts)
end

-- First byte 1: the two bytes after it are the length of the header.
local function archive(header, data)
  return "\1" .. ("<I2"):pack(#header) .. header .. data
end

local function entry(name, dtype, shape, from, to)
  return ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(
    name, dtype, shape, from, to)
end

local META = '"__metadata__":{"format":"pt",'
  .. '"tfdist.graph":"{\\"nodes\\":[]}"}'

-- Protobuf fields with a length.
local function field(key, data)
  return string.char(key, #data) .. data
end

local function example(...)
  local out = {}
  for i, feature in ipairs { ... } do
    out[i] = field(10, field(10, "f" .. i) .. field(18, feature))
  end
  return field(10, table.concat(out))
end

local seeds = {
  idx = {
    idx(0x08, { 3 }, "abc"), idx(0x08, { 2, 2, 2 }, "abcdefgh"),
    idx(0x0D, { 2 }, ("\0"):rep(8)), idx(0x0E, { 1 }, ("\0"):rep(8)),
    idx(0x0B, { 0, 5 }, ""), idx(0x0C, {}, ("\1"):rep(4)),
    idx(0x08, { 2 ^ 32 - 1, 2 ^ 32 - 1 }, "x"), "\31\139\8\0\0\0\0\0\0\3",
  },
  archive = {
    archive("{}", ""), archive("{" .. META .. "}", ""),
    archive("{" .. entry("a", "F32", "2,1", 0, 8) .. "}  ", ("\1"):rep(8)),
    archive("{" .. META .. "," .. entry("b", "BOOL", "2", 0, 2) .. ","
      .. entry("c", "I16", "", 2, 4) .. "," .. entry("d", "U64", "0", 4, 4)
      .. "}", "\0\1\2\3"),
    archive('{"__metadata__":{"crc32c":"00000000","format":"tfdist"},'
      .. entry("x", "BF16", "1", 0, 2) .. "}", "ab"),
    "\0\2\0\0\0\0\0\0\0{}", "\0\255\255\255\255\255\255\255\127{}",
  },
  -- Kinds, compressions and sizes, then the file: records, lines, rows, fixed.
  records = {
    "\0\1\1\1\0\0" .. ("\0"):rep(12), "\0\1\1\1\0\1a\r\nb\n\nc",
    "\0\1\1\1\0\2" .. 'a,"b""\nc",d\n1,2\n', "\0\1\1\1\0\3headabcfoot",
    "\0\3\2\2\0\3hhaaaabbbbff", "\0\1\1\1\1\1\31\139\8\0\0\0\0\0\0\3",
    "\1\0\5\3abc\0\200" .. ("x"):rep(200), "\1\1\77\10" .. ("y"):rep(30),
    "\1\2\9\1a\2bc",
  },
  example = {
    example(), example(""), example(field(10, field(10, "text"))),
    example(field(18, field(10, "\0\0\128\63")),
      field(26, field(10, "\1\172\2"))),
    example(field(18, "\13\0\0\128\63"), field(26, "\8\1\8\2")),
    field(10, field(10, field(10, "twice") .. field(18, ""))
      .. field(10, field(10, "twice") .. field(18, field(26, "")))),
  },
  device_name = {
    "/cpu:0", "CPU:1", "/job:localhost/replica:0/task:0/device:CPU:2",
    "/device:GPU:0", "gpu", "/job:worker/task:3/cpu:0", "//", "float32",
  },
  -- First byte: bit 0 mends magic and checksum; 0 frame, 2 hello, 4 all of a
  -- talk, 8 all that one says who knows the secret, 10 frames of one.
  frame = {
    "\1TFDF\1\0\0\0" .. ("\0"):rep(88), "\1TFDF\4\0\0\0\77" .. ("\1"):rep(87),
    "\3TFDC\5\0\0\0\0\0\0\0\4\0\0\0\1" .. ("\0"):rep(47),
    "\5TFDC\5\0\0\0\0\0\0\0\4\0\0\0\1" .. ("\0"):rep(83), "\4GET / HTTP/1.1\r\n",
    "\9TFDC\5\0\0\0\0\0\0\0\4\0\0\0\1" .. ("\0"):rep(79) .. "\2\0\0\0shm",
    "\9TFDC\5\0\0\0\0\0\0\0\4\0\0\0\2" .. ("\0"):rep(79) .. "\3",
    "\11TFDF\5\0\0\0" .. ("\0"):rep(88),
    "\11TFDF\2\0\0\0" .. ("\0"):rep(88) .. "TFDF\5\0\0\0" .. ("\0"):rep(88),
  },
  shape = {}, program = {},
}
for i = 1, 64 do
  seeds.shape[i] = bytes(i, 20 + i)
  seeds.program[i] = bytes(1000 + i, 60 + 4 * i)
end

-- The list gives them an order that folders do not have.
for target, list in pairs(seeds) do
  local path, names = folder .. "/" .. target, {}
  assert(os.execute("mkdir -p '" .. path .. "'"))
  for i, text in ipairs(list) do
    names[i] = ("%s/%d"):format(path, i)
    local file = assert(io.open(names[i], "wb"))
    file:write(text)
    file:close()
  end
  local file = assert(io.open(path .. ".list", "wb"))
  file:write(table.concat(names, ","))
  file:close()
end
