--- cache: elements are made once and kept, in memory or in a file.
---
--- The file: a line "tfdist cache 1", then for each element a line "e", its
--- values as below, and at the end a line "end COUNT". It is written beside its
--- place and renamed when the data set has been read to its end, so a file that
--- is there is whole.
---   t DTYPE SIZES...     and the bytes of a tensor, little-endian
---   s BYTES              and a string
---   S SIZES...           a tensor of strings, as that many `s`
---   l COUNT KEYS [1]     a table: COUNT values, then KEYS keys with values; 1
---                        for a table that has COUNT as its field n
---   s BYTES              and a key that is a string, or the digits of a whole
---                        number
---   k BYTES              and a key that is a string of digits
---   n NUMBER, b BOOLEAN  a key that is one
local dataset = require "tfdist.data.dataset"
local element = require "tfdist.data.element"
local errors = require "tfdist.base.errors"
local files = require "tfdist.core.files"
local nest = require "tfdist.base.nest"
local raw = require "tfdist.core.raw"
local spec = require "tfdist.data.spec"
local strings = require "tfdist.core.strings"
local text = require "tfdist.base.text"

local type = type
local MAGIC = "tfdist cache 1\n"
local MAX_RANK, MAX_DEPTH = 8, 100
local CHUNK = 65536

-- Writing --------------------------------------------------------------------

local function cannot_write(path, why, code)
  errors.raise(files.is_full(code) and "ResourceExhausted" or "Unavailable",
    ("cache: %s: cannot write: %s"):format(path, tostring(why)))
end

-- A file whose writes raise what goes wrong.
local Output = {}
Output.__index = Output

function Output.write(self, ...)
  local ok, why, code = self.file:write(...)
  if not ok then
    cannot_write(self.path, why, code)
  end
end

local function numbers(list)
  local parts = {}
  for i = 1, #list do
    parts[i] = text.number(list[i])
  end
  return table.concat(parts, " ")
end

local function write_string(file, s)
  file:write("s ", text.number(#s), "\n", s)
end

-- A string that is the digits of a whole number.
local function is_digits(s)
  return s:find "^%-?%d+$" ~= nil
end

local function write_key(file, key)
  if type(key) == "string" and is_digits(key) then
    file:write("k ", text.number(#key), "\n", key)
  elseif type(key) == "string" then
    write_string(file, key)
  elseif type(key) == "boolean" then
    file:write("b ", tostring(key), "\n")
  elseif type(key) ~= "number" or key == math.huge or key == -math.huge then
    errors.raise("TypeError", "cache: a file cannot hold a table with the key "
      .. text.describe(key))
  elseif is_digits(text.number(key)) then
    write_string(file, text.number(key))
  else
    file:write("n ", ("%.17g"):format(key), "\n")
  end
end

local function write_value(file, x)
  if type(x) == "userdata" then
    local own = spec.of(x)
    file:write("t ", own.dtype, " ", numbers(own.shape), "\n", x:bytes())
  elseif type(x) == "string" then
    write_string(file, x)
  elseif strings.is(x) then
    file:write("S ", numbers(strings.dims(x)), "\n")
    for _, s in ipairs(x:toflat()) do
      write_string(file, s)
    end
  elseif text.is_plain(x) then
    local n, keys = nest.layout(x)
    file:write("l ", text.number(n), " ", text.number(keys and #keys or 0),
      type(x.n) == "number" and " 1\n" or "\n")
    for i = 1, n do
      write_value(file, x[i])
    end
    for i = 1, keys and #keys or 0 do
      write_key(file, keys[i])
      write_value(file, x[keys[i]])
    end
  else
    errors.raise("TypeError", "cache: a file cannot hold " .. text.describe(x))
  end
end

-- Reading --------------------------------------------------------------------

local function damaged(self, why)
  errors.raise("DataLoss", ("cache: %s is damaged at byte %s: %s"):format(
    self.path, text.number(self.file:seek() or 0), why),
    "remove the file; it is made anew")
end

-- The length is compared with what is there before memory is taken for it.
local function read_bytes(self, n)
  local bytes = n == 0 and ""
    or n <= self.size - self.file:seek() and self.file:read(n)
  if not bytes or #bytes < n then
    damaged(self, "it ends early")
  end
  return bytes
end

local function read_line(self)
  return self.file:read "*l" or damaged(self, "it ends early")
end

-- Sizes and their product.
local function dims_of(self, words)
  local dims, count = {}, 1
  for word in words:gmatch "%S+" do
    local size = word:find "^%d+$" and tonumber(word)
    if not size or size >= 2 ^ 53 then
      damaged(self, "a size is " .. text.quote(word))
    end
    dims[#dims + 1] = size
    count = count * size
  end
  return dims, count
end

local read_value

local BOOLEAN = { ["true"] = true, ["false"] = false }

local function read_key(self)
  local line = read_line(self)
  local kind, words = line:match "^(%a) (.*)$"
  local key
  if kind == "s" or kind == "k" then
    key = read_bytes(self, dims_of(self, words)[1] or 0)
    return kind == "s" and is_digits(key) and tonumber(key) or key
  elseif kind == "n" and words:find "^%-?%d" then
    key = tonumber(words)
  elseif kind == "b" then
    key = BOOLEAN[words]
  end
  if key == nil then
    damaged(self, "unexpected key " .. text.quote(line:sub(1, 80)))
  end
  return key
end

local function read_table(self, words, depth)
  local list = dims_of(self, words)
  if #list ~= 2 and #list ~= 3 then
    damaged(self, "a table has no two sizes")
  end
  local out = {}
  for i = 1, list[1] do
    out[i] = read_value(self, depth + 1)
  end
  for _ = 1, list[2] do
    local key = read_key(self)
    out[key] = read_value(self, depth + 1)
  end
  if list[3] == 1 then
    out.n = list[1]
  end
  return out
end

local function read_tensor(self, words)
  local dtype, sizes = words:match "^(%w+) ?(.*)$"
  local code = raw.enums.dtype[dtype or ""]
  if code == nil then
    damaged(self, "a dtype is " .. text.quote(dtype or ""))
  end
  local dims, count = dims_of(self, sizes)
  if #dims > MAX_RANK then
    damaged(self, ("a tensor has %d sizes"):format(#dims))
  end
  local bytes = read_bytes(self, count * raw.dtype_size(code))
  if dtype == "bool" and bytes:find "[^%z\1]" then
    damaged(self, "a byte is no boolean")
  end
  local ok, t = pcall(raw.tensor_from_bytes, bytes, dtype, dims)
  if not ok and not errors.is_of_data(t) then
    error(t, 0)
  end
  return ok and t or damaged(self, t.message)
end

read_value = function(self, depth)
  local line = read_line(self)
  local kind, words = line:match "^(%a) ?(.*)$"
  if kind == "t" then
    return read_tensor(self, words)
  elseif kind == "s" then
    return read_bytes(self, dims_of(self, words)[1] or 0)
  elseif kind == "S" then
    local dims, count = dims_of(self, words)
    local list = {}
    for i = 1, count do
      list[i] = read_bytes(self, dims_of(self, read_line(self):match "^s (.*)$"
        or "-")[1] or 0)
    end
    return strings.new(list, dims)
  elseif kind == "l" and depth < MAX_DEPTH then
    return read_table(self, words, depth)
  end
  return damaged(self, "unexpected line " .. text.quote(line:sub(1, 80)))
end

local Reader = {}
Reader.__index = Reader

function Reader.next(self)
  if self.file == nil then
    return nil
  end
  local line = read_line(self)
  if line == "e" then
    local pack = read_value(self, 0)
    if not text.is_plain(pack) or next(pack) ~= nil and #pack == 0 then
      damaged(self, "an element is no list of components")
    end
    pack.n = #pack
    self.count = self.count + 1
    return pack
  elseif line ~= "end " .. text.number(self.count) then
    damaged(self, "unexpected line " .. text.quote(line:sub(1, 80)))
  end
  self:close()
  return nil
end

function Reader.close(self)
  if self.file ~= nil then
    self.file:close()
    self.file = nil
  end
end

-- A reader of a whole cache file, nil when there is none.
local function open_file(path)
  local file = files.open(path)
  if file == nil then
    return nil
  end
  local self = setmetatable({ file = file, path = path, count = 0,
    size = file:seek "end" or 0 }, Reader)
  file:seek "set"
  if file:read(#MAGIC) ~= MAGIC then
    damaged(self, "it is no cache file")
  end
  return self
end

-- The stage ------------------------------------------------------------------

local Cache = dataset.stage {}

function Cache.describe(node)
  return node.path and text.quote(node.path) or "in memory"
end

-- Rows in memory need no second copy, unless their order is to be kept.
function Cache.rows(node)
  if node.path ~= nil then
    return nil
  elseif node.is_random == nil then
    node.is_random = false
    dataset.walk(node.inputs[1], function(each)
      node.is_random = node.is_random or each.stream ~= nil
    end)
  end
  return not node.is_random and dataset.rows_of(node.inputs[1]) or nil
end

function Cache.items(node, run)
  return dataset.items(node.inputs[1], run)
end

-- Of workers that take other elements each has its own, from one data set made
-- of this to the next.
function Cache.for_worker(node, W, w)
  local name = ("%05d-of-%05d"):format(w, W)
  local shares = node.held.shares or {}
  node.held.shares = shares
  shares[name] = shares[name] or {}
  node.held, node.path = shares[name], node.path and node.path .. "-" .. name
  node.is_part = true
  return node
end

function Cache.cardinality(node)
  return node.held.packs and #node.held.packs
    or dataset.cardinality_of(node.inputs[1])
end

local function from_memory(packs)
  local at = 0
  return {
    next = function()
      at = at + 1
      return packs[at] and element.fresh(packs[at])
    end,
    skip = function(_, n)
      local own = math.min(n, #packs - at)
      at = at + own
      return own
    end,
  }
end

local function to_memory(node, run)
  local input = dataset.open(node.inputs[1], run)
  local packs = {}
  return {
    next = function()
      local pack = input:next()
      if pack == nil then
        node.held.packs = packs
      else
        packs[#packs + 1] = element.fresh(pack)
      end
      return pack
    end,
  }
end

-- There was no such file when this one was begun.
local function differs_from(self, path)
  local there = files.open(path)
  if there == nil then
    return false
  end
  local own = files.open(self.temporary)
  local x, y
  repeat
    x, y = there:read(CHUNK), own and own:read(CHUNK)
  until x ~= y or x == nil
  there:close()
  if own then
    own:close()
  end
  return x ~= y
end

local function finish(self, path)
  self.output:write("end ", text.number(self.count), "\n")
  local file = self.file
  self.file = nil
  local ok, why, code = file:close()
  if ok and differs_from(self, path) then
    os.remove(self.temporary)
    errors.raise("AlreadyExists", ("cache: %s was written meanwhile, with other "
      .. "elements"):format(text.quote(path)), "give each worker, and each of "
      .. "several iterations at a time, a file of its own")
  elseif ok then
    ok, why, code = os.rename(self.temporary, path)
  end
  if not ok then
    os.remove(self.temporary)
    cannot_write(path, why, code)
  end
end

local new_proxy = rawget(_G, "newproxy")

-- An object that calls fn when the collector takes it, on every engine.
local function when_collected(fn)
  if new_proxy ~= nil then
    local proxy = new_proxy(true)
    getmetatable(proxy).__gc = fn
    return proxy
  end
  return setmetatable({}, { __gc = fn })
end

-- Given up before the end, or an element is missing: no cache.
local function give_up(self)
  if self.file ~= nil then
    self.file:close()
    self.file = nil
    os.remove(self.temporary)
  end
end

local function keep(self, pack, path)
  if pack == nil then
    return finish(self, path)
  end
  self.count = self.count + 1
  self.output:write "e\n"
  write_value(self.output, pack)
end

local function open_temporary(path)
  local temporary = ("%s.%s.part"):format(path,
    tostring({}):match "0x(%x+)" or "0")
  local file, why, code = io.open(temporary, "wb")
  if file == nil then
    cannot_write(path, why, code)
  end
  local self = { file = file, temporary = temporary, count = 0,
    output = setmetatable({ file = file, path = path }, Output),
    close = give_up }
  -- For loops that break, which close nothing.
  self.guard = when_collected(function()
    give_up(self)
  end)
  return self
end

local function to_file(node, run)
  local input = dataset.open(node.inputs[1], run)
  local self = open_temporary(node.path)
  local function checked(ok, ...)
    if not ok then
      give_up(self)
      error((...), 0)
    end
    return ...
  end
  function self.next()
    local pack = checked(pcall(input.next, input))
    if self.file ~= nil then
      checked(pcall(keep, self, pack, node.path))
    end
    return pack
  end
  checked(pcall(self.output.write, self.output, MAGIC))
  return self
end

function Cache.open(node, run)
  if node.path ~= nil then
    local reader = not run.probing and open_file(node.path)
    if reader then
      run.closers[reader] = true
      return reader
    elseif run.probing then
      return dataset.open(node.inputs[1], run)
    end
    return to_file(node, run)
  elseif node.held.packs ~= nil then
    return from_memory(node.held.packs)
  elseif dataset.cardinality_of(node.inputs[1]) == dataset.INFINITE then
    errors.raise("ResourceExhausted", "cache: a data set without end would "
      .. "fill the memory", "cache before repeat_()")
  end
  return to_memory(node, run)
end

--- Elements are made in the first iteration that reaches the end, and kept: in
--- memory, or in the file `filename`, which later programs use too. Iterations
--- given up before the end leave nothing. Random stages before it are frozen.
--- Workers that read files of their own, or what shard hints leave to each, keep
--- a part each: "name-00000-of-00002".
--- Errors: DataLoss for a damaged file; AlreadyExists when another worker or
---   iteration wrote other elements to it meanwhile.
--- Source: tf.data.Dataset.cache
dataset.method("cache", "filename='' name=nil", function(self, filename)
  files.piece("Dataset.cache", "filename", filename)
  return dataset.new(Cache, "cache", { self.node }, {
    path = filename ~= "" and filename or nil, held = {},
  })
end)
