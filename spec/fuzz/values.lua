--- Random arguments: tensors that fit often, values that fit never.
---
--- One object for each episode: its pool holds the tensors and variables that
--- calls use and, later on, what calls returned.
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local tf = require "tfdist"

local M = {}
M.__index = M

local DTYPES = {
  "float32", "float32", "float32", "float32", "float64", "float16", "bfloat16",
  "int32", "int32", "int64", "int8", "int16", "uint8", "bool",
}
local SHAPES = {
  {}, {}, { 1 }, { 3 }, { 4 }, { 5 }, { 17 }, { 0 }, { 2, 3 }, { 3, 3 },
  { 3, 4 }, { 4, 3 }, { 1, 4 }, { 3, 1 }, { 0, 3 }, { 3, 0 }, { 2, 3, 4 },
  { 2, 3, 3 }, { 2, 5, 3 }, { 1, 1, 1 }, { 4, 4, 1 }, { 2, 4, 4, 2 },
  { 1, 5, 5, 2 }, { 2, 2, 2, 3 }, { 3, 3, 2, 1 }, { 2, 2, 4, 4 },
  { 1, 3, 3, 3, 2 }, { 2, 2, 2, 2, 1 }, { 1, 2, 1, 2, 1, 2, 1, 2 },
  { 33, 9 }, { 70, 130 }, { 2, 12 }, { 3, 12 }, { 9 }, { 12 },
}
local SMALL = { 0, 1, 2, 3, 4, -1, -2, 1, 2, 5, 7, 8 }
local STRANGE = {
  0, -1, 1.5, -0.5, 0 / 0, 1 / 0, -1 / 0, 2 ^ 31, 2 ^ 31 - 1, -2 ^ 31, 2 ^ 40,
  2 ^ 53, 2 ^ 53 - 1, -2 ^ 53, 2 ^ 62, 2 ^ 63, -2 ^ 63, 1e300, -1e300, 1e-300,
  65536, 1e9, 255, 256, -129, 2 ^ 32,
}
local REALS = {
  0, 1, -1, 0.5, 0.1, 2, 10, 1e-3, -0.3, 0.999, 100, 1e-7, 1e30, 0 / 0,
  1 / 0, -1 / 0,
}
local WORDS = {
  "", "float32", "SUM", "NHWC", "NCHW", "SAME", "VALID", "same", "axis", "x",
  "ij,jk->ik", "i,i->", "...ij->...ji", "ii->i", "i->ii", "->", ",,,", "ij",
  "/cpu:0", "CPU:0", "cpu:7", "none", "zero", "REFLECT", "euclidean", "fro",
  "a\0b", "a\nb", ("x"):rep(5000), "int32", "string", "left", "xy", "ij",
}

-- Things that are no tensor --------------------------------------------------

local function deep_table()
  local deep = 1
  for _ = 1, 100000 do deep = { deep } end
  return deep
end

local function loop_table()
  local loop = { 1 }
  loop[2] = loop
  return loop
end

local DEEP, LOOP = deep_table(), loop_table()
local KEYED_LOOP = {}
KEYED_LOOP.axis = KEYED_LOOP
local HOSTILE = setmetatable({}, {
  __index = function() error("fuzz: hostile __index", 0) end,
  __len = function() error("fuzz: hostile __len", 0) end,
  __tostring = function() error("fuzz: hostile __tostring", 0) end,
  __name = 5,
})
local LOCKED = setmetatable({}, { __metatable = "locked" })
local CALLABLE = setmetatable({}, { __call = function(_, x) return x end })
local WIDE = {}
for i = 1, 70000 do WIDE[i] = i end

local released_tensor = tf.constant { 1, 2 }
released_tensor:release()
local released_variable = tf.Variable { 1, 2 }
released_variable:release()

local TABLES = {
  {}, { 1, nil, 3 }, { nil, 2 }, { n = 3 }, { n = -1 }, { n = "x" },
  { n = 0 / 0 }, { n = 1.5, 1, 2 }, { n = 70000 }, { [1] = 1, [3] = 3 },
  { 1, { 2 } }, { { 1, 2 }, { 3 } }, { "a", "b" }, { true, 1 }, { {}, {} },
  { x = 1 }, { axis = 1 }, { axis = 1, 2 }, { axs = 1 }, { dtype = "int32" },
  { [0] = 1 }, { [-1] = 1 }, { [1.5] = 1 }, { [true] = 1 }, { name = 5 },
  { { 1, 2 }, { 3, 4 } }, { 1, 2, 3 }, { 0 }, { 2, 3 }, { -1 }, { { } },
  { false, true }, { print }, { { { { { { { { { 1 } } } } } } } } },
  DEEP, LOOP, KEYED_LOOP, HOSTILE, LOCKED, CALLABLE, WIDE,
  { n = 2, DEEP, LOOP }, { a = { LOOP } }, { HOSTILE }, { LOCKED, 1 },
}

--- How often callbacks may run within one call.
M.budget = 0

--- What callbacks raise.
M.STOP = setmetatable({}, { __tostring = function() return "fuzz: stop" end })

local function counted(fn)
  return function(...)
    M.budget = M.budget - 1
    if M.budget < 0 then error(M.STOP, 0) end
    return fn(...)
  end
end

local CALLBACKS = {
  counted(function(...) return ... end),
  counted(function(x) return x end),
  counted(function() end),
  counted(function() return 1 end),
  counted(function() return false end),
  counted(function(x) return tf.square(x) end),
  counted(function(x, y) return tf.add(x, y) end),
  counted(function() error("fuzz: a text", 0) end),
  counted(function() error(nil) end),
  counted(function() error(M.STOP, 0) end),
  counted(function() error({ 1 }, 0) end),
  counted(function(x) return x, function(dy) return dy end end),
  counted(function(x) return tf.identity(x), function() return LOOP end end),
  counted(function(x) return { x, { x } } end),
  counted(function() return HOSTILE end),
  counted(function() return tf.constant { 1, 2, 3 } end),
  counted(function() return tf.less(tf.constant(M.budget), 45) end),
  counted(function() return released_tensor end),
}

--- True when an error comes from a callback, a hostile value or a case.
function M.is_own_error(e)
  return e == M.STOP or e == nil
    or (type(e) == "string" and (e:find "fuzz: " or e:find "^%.?/?spec/"))
    or (type(e) == "table" and e[1] == 1)
    or (errors.is_error(e) and e.message:find "^fuzz: " ~= nil)
end

-- Objects --------------------------------------------------------------------

local function numel(dims)
  local n = 1
  for i = 1, #dims do n = n * dims[i] end
  return n
end

local function element(rng, style)
  if style == "index" then return rng:int(0, 4) end
  if style == "wild" then return rng:pick(STRANGE) end
  if style == "positive" then return 0.1 + 3 * rng:unit() end
  return 4 * rng:unit() - 2
end

local LIMITS = {
  int8 = { -128, 127 }, uint8 = { 0, 255 }, int16 = { -32768, 32767 },
  int32 = { -2 ^ 31, 2 ^ 31 - 1 }, int64 = { -2 ^ 53, 2 ^ 53 },
}

local function fitting(x, dtype)
  local limits = LIMITS[dtype]
  if limits == nil then return x end
  if x ~= x then return 0 end
  x = math.floor(x)
  return math.max(limits[1], math.min(limits[2], x))
end

--- The nearest number that a dtype holds.
M.fitting = fitting

local function plain_tensor(rng, dtype, dims)
  local n = numel(dims)
  if n > 64 then
    return tf.cast(tf.reshape(tf.range(n), dims), dtype)
  end
  local style = rng:pick { "normal", "normal", "positive", "index", "wild" }
  local list = {}
  for i = 1, n do
    if dtype == "bool" then
      list[i] = rng:one_in(2)
    else
      list[i] = fitting(element(rng, style), dtype)
    end
  end
  if n == 0 then return tf.zeros(dims, { dtype = dtype }) end
  return tf.constant(list, { dtype = dtype, shape = dims })
end

-- A view of the same rank, with gaps, reversed, or of one repeated element.
local function view_of(rng, t)
  local rank = #t.shape
  local how = rng:int(1, 6)
  if rank == 0 then return t end
  if how == 1 then
    return tf.transpose(t)
  elseif how == 2 then
    return tf.reverse(t, { rng:int(0, rank - 1) })
  elseif how == 3 then
    local list = {}
    for i = 1, rank do list[i] = { nil, nil, rng:pick { 1, 2, -1, 3 } } end
    return t[list]
  elseif how >= 5 then
    -- The same values, in memory with gaps.
    return tf.repeat_(t, 2, rank - 1)[{ "...", { nil, nil, 2 } }]
  end
  local dims = t.shape
  dims[rank + 1] = 2
  local wide = rank < 8 and tf.broadcast_to(tf.expand_dims(t, -1), dims) or t
  return rng:one_in(2) and wide or tf.transpose(wide)
end

--- A fresh tensor, half of the time a view.
function M:tensor(dtype, dims)
  local rng = self.rng
  dtype = dtype or rng:one_in(3) and rng:pick(DTYPES) or self.main_dtype
  local t = plain_tensor(rng, dtype, dims or rng:pick(self.theme))
  if rng:one_in(3) then t = view_of(rng, t) end
  return t
end

function M:variable()
  local rng = self.rng
  return tf.Variable(self:tensor(), {
    trainable = not rng:one_in(4), name = "v" .. rng:int(0, 9),
  })
end

function M:slices()
  local rng = self.rng
  local n = rng:int(0, 3)
  local indices = {}
  for i = 1, n do indices[i] = rng:int(0, 4) end
  return tf.IndexedSlices(plain_tensor(rng, rng:pick { "float32", "float64" },
    { n, 3 }), tf.constant(indices, { dtype = "int32", shape = { n } }),
    { 5, 3 })
end

--- The arguments of one episode.
function M.new(rng)
  local self = setmetatable({ rng = rng, pool = {}, theme = {} }, M)
  -- A few shapes and mostly one dtype for each episode, so that arguments
  -- often fit together.
  for i = 1, 3 do self.theme[i] = rng:pick(SHAPES) end
  self.main_dtype = rng:pick(DTYPES)
  for i = 1, 8 do self.pool[i] = self:tensor() end
  self.pool[9], self.pool[10] = self:variable(), self:variable()
  self.objects = { self:slices(), tf.random.Generator.from_seed(3) }
  return self
end

local MOST_KEPT = 20000 -- elements

--- Remember a result for later calls.
function M:keep(x)
  local kind = type(x) == "userdata" and raw.kind(x)
  if not kind or raw.is_released(x) then return end
  if kind == "slices" then -- no operand
    if raw.tensor_size(x.values) <= MOST_KEPT then self.objects[1] = x end
  elseif (kind == "tensor" or kind == "variable")
    and raw.tensor_size(raw.operand_tensor(x)) <= MOST_KEPT then
    self.pool[self.rng:int(1, 14)] = x
  end
end

--- A tensor or variable of the pool, sometimes a new one.
function M:operand()
  local rng = self.rng
  local x = self.pool[rng:int(1, 14)]
  if x == nil or raw.is_released(x) or rng:one_in(6) then
    x = self:tensor()
    self.pool[rng:int(1, 14)] = x
  end
  return x
end

--- Several operands of one shape and dtype.
function M:alike(n)
  local x = self:operand()
  local t = raw.operand_tensor(x)
  local dims = x.shape
  local list = { x }
  for i = 2, n do
    list[i] = raw.tensor_size(t) > 4000 and x
      or plain_tensor(self.rng, x.dtype, dims)
  end
  return list
end

--- Anything that is most probably wrong.
function M:garbage()
  local rng = self.rng
  local how = rng:int(1, 12)
  if how <= 3 then return rng:pick(STRANGE) end
  if how <= 6 then return rng:pick(TABLES) end
  if how == 7 then return rng:pick(WORDS) end
  if how == 8 then return rng:pick(CALLBACKS) end
  if how == 9 then return nil end
  if how == 10 then return rng:one_in(2) end
  return rng:pick {
    released_tensor, released_variable, raw.device_at("CPU", 0),
    raw.context_new(), coroutine.create(print), io.stderr, tf, tf.math,
    self.objects[1], self.objects[2], tf.GradientTape, tf.newaxis,
    self:operand(), { self:operand(), 1 }, { self:operand() },
    { self:operand(), self:operand() }, { released_tensor },
    { n = 3, self:operand() },
  }
end

function M:callback()
  return self.rng:pick(CALLBACKS)
end

-- Attributes -----------------------------------------------------------------

function M:small()
  local rng = self.rng
  if rng:one_in(25) then return rng:pick(STRANGE) end
  return rng:pick(SMALL)
end

function M:real()
  local rng = self.rng
  if rng:one_in(25) then return rng:pick(STRANGE) end
  return rng:pick(REALS)
end

function M:real_or_strange()
  return self.rng:one_in(2) and self.rng:pick(REALS) or self.rng:pick(STRANGE)
end

--- A number that dtype holds, and that kernels may trip over.
function M:special(dtype)
  return fitting(self.rng:pick(STRANGE), dtype)
end

--- The same values with gaps, or reversed ... as far as the rank allows.
function M:view(t)
  return view_of(self.rng, t)
end

function M:axis()
  return self.rng:int(-3, 3)
end

function M:dims()
  local rng = self.rng
  local how = rng:int(1, 10)
  if how <= 4 then return self:operand().shape end
  if how <= 6 then
    local list = {}
    for i = 1, rng:int(0, 4) do list[i] = rng:int(0, 4) end
    return list
  end
  if how <= 8 then return rng:pick(SHAPES) end
  if how == 9 then return { -1 } end
  return self:list()
end

function M:list()
  local rng = self.rng
  local list = {}
  local n = rng:one_in(30) and rng:int(8, 10) or rng:int(0, 4)
  local same = rng:one_in(2) and rng:int(1, 2) or nil
  for i = 1, n do list[i] = same or self:small() end
  if rng:one_in(12) then return self:small() end
  return list
end

function M:permutation()
  local rng = self.rng
  local list = {}
  for i = 1, rng:int(1, 4) do list[i] = i - 1 end
  for i = #list, 2, -1 do
    local j = rng:int(1, i)
    list[i], list[j] = list[j], list[i]
  end
  return list
end

function M:dtype()
  return self.rng:pick(DTYPES)
end

function M:word()
  return self.rng:pick(WORDS)
end

--- Lua numbers or nested lists where a tensor is expected.
function M:plain()
  local rng = self.rng
  return rng:pick { 0, 1, 2.5, -1, true, { 1, 2, 3 }, { { 1, 2 }, { 3, 4 } },
    { 0, 1 }, {}, { true, false }, { 0.5 }, 3, { { 0, 1 } } }
end

--- Close a scope or tape that a call left open on purpose.
function M.close(x)
  local meta = getmetatable(x)
  if type(x) == "table" and type(meta) == "table"
    and rawget(meta, "__close") ~= nil then
    pcall(x.close, x)
  end
end

-- Text -----------------------------------------------------------------------

--- The keys of a table in an order that does not change from run to run, as
--- that of pairs does.
function M.keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

local function show(x, depth)
  local kind = type(x)
  if kind == "userdata" and raw.kind(x) ~= nil then
    if raw.is_released(x) then return "<released " .. raw.kind(x) .. ">" end
    if not raw.is_operand(x) then return "<" .. raw.kind(x) .. ">" end
    local t = raw.operand_tensor(x)
    return ("<%s %s {%s}%s>"):format(raw.kind(x), raw.tensor_dtype(t),
      table.concat(x.shape, ","), raw.tensor_is_dense(t) and "" or " view")
  elseif kind == "table" then
    if x == DEEP then return "DEEP" elseif x == LOOP then return "LOOP" end
    if x == HOSTILE then return "HOSTILE" elseif x == WIDE then
      return "WIDE"
    end
    if getmetatable(x) ~= nil then return "<object>" end
    if depth > 3 then return "{...}" end
    local parts = {}
    for _, k in ipairs(M.keys(x)) do
      if #parts > 12 then break end
      parts[#parts + 1] = (type(k) == "number" and "[" .. k .. "]="
        or tostring(k) .. "=") .. show(x[k], depth + 1)
    end
    return "{" .. table.concat(parts, ", ") .. "}"
  elseif kind == "string" then
    return ("%q"):format(x:sub(1, 40))
  elseif kind == "number" or kind == "boolean" or kind == "nil" then
    return tostring(x)
  end
  return "<" .. kind .. ">"
end

--- Arguments as text, for reports.
function M.text(args)
  local parts = {}
  for i = 1, args.n do parts[i] = show(args[i], 0) end
  return table.concat(parts, ", ")
end

return M
