--- First inputs for the libFuzzer targets: lua5.4 spec/fuzz/seeds.lua FOLDER
--- makes FOLDER/<target>/<number> for each.

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

local seeds = {
  idx = {
    idx(0x08, { 3 }, "abc"), idx(0x08, { 2, 2, 2 }, "abcdefgh"),
    idx(0x0D, { 2 }, ("\0"):rep(8)), idx(0x0E, { 1 }, ("\0"):rep(8)),
    idx(0x0B, { 0, 5 }, ""), idx(0x0C, {}, ("\1"):rep(4)),
    idx(0x08, { 2 ^ 32 - 1, 2 ^ 32 - 1 }, "x"), "\31\139\8\0\0\0\0\0\0\3",
  },
  device_name = {
    "/cpu:0", "CPU:1", "/job:localhost/replica:0/task:0/device:CPU:2",
    "/device:GPU:0", "gpu", "/job:worker/task:3/cpu:0", "//", "float32",
  },
  shape = {}, program = {},
}
for i = 1, 64 do
  seeds.shape[i] = bytes(i, 20 + i)
  seeds.program[i] = bytes(1000 + i, 60 + 4 * i)
end

for target, list in pairs(seeds) do
  local path = folder .. "/" .. target
  assert(os.execute("mkdir -p '" .. path .. "'"))
  for i, text in ipairs(list) do
    local file = assert(io.open(("%s/%d"):format(path, i), "wb"))
    file:write(text)
    file:close()
  end
end
