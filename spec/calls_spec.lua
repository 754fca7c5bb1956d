--- The calling rule holds for every public function: positional arguments,
--- arguments by name and any mixture of them arrive alike.

-- Functions are looked into by exchanging what they call, which compiled code
-- takes for constant.
if rawget(_G, "jit") then require("jit").off() end

-- What functions are made, before the library makes any.
local options = require "tfdist.base.options"
local made, seen = {}, {}
local describe_function = options.describe
function options.describe(fn, sig, inner)
  -- What looks at self comes second.
  if not seen[sig] then
    seen[sig] = true
    made[#made + 1] = { fn = fn, sig = sig, inner = inner }
  end
  return describe_function(fn, sig, inner)
end

local public = require "spec.support.public"
local tf = require "tfdist"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local functions = public.functions() -- made when their names are first used

-- The closure that holds `inner`, and where.
local function holder(fn, inner, depth)
  for i = 1, 250 do
    local name, value = debug.getupvalue(fn, i)
    if name == nil then
      break
    elseif value == inner then
      return fn, i
    elseif type(value) == "function" and depth > 0 then
      local found, at = holder(value, inner, depth - 1)
      if found ~= nil then return found, at end
    end
  end
  return nil
end

-- What arrives of a call: a list with n.
local function arrives(entry, ...)
  local fn, within, at = entry.fn, holder(entry.fn, entry.inner, 2)
  assert(within ~= nil, entry.sig.what .. " binds no arguments")
  local got
  debug.setupvalue(within, at, function(...)
    got = { n = select("#", ...), ... }
  end)
  local ok, e
  if entry.sig.leading then
    ok, e = pcall(fn, "self", ...)
    if got ~= nil then
      table.remove(got, 1)
      got.n = got.n - 1
    end
  else
    ok, e = pcall(fn, ...)
  end
  debug.setupvalue(within, at, entry.inner)
  assert(ok, ("%s: %s"):format(entry.sig.what, tostring(e)))
  return got
end

-- What suits a parameter of a kind and is equal to nothing else.
local OF_KIND = {
  string = function(i) return "text " .. i end,
  integer = function(i) return i end,
  number = function(i) return i + 0.5 end,
  boolean = function() return true end,
  callable = function() return function() end end,
  list = function(i) return { i } end,
  dict = function(i) return { i } end,
  layer = function() return tf.keras.layers.Flatten() end,
  variable = function(i) return tf.Variable(i) end,
  tape = function() return (tf.GradientTape(function() end)) end,
}

-- One value for each parameter that is nothing else.
local function arguments(sig)
  local list = {}
  for i = 1, sig.n do
    local is_switch = sig.kinds[i] == nil
      and type(sig.defaults[i]) == "boolean"
    local make = OF_KIND[is_switch and "boolean" or sig.kinds[i]]
    list[i] = make ~= nil and make(i)
      or sig.names[i] == "name" and "a name"
      or setmetatable({}, { __name = sig.names[i] })
  end
  return list
end

local function by_name(sig, values, from)
  local named = {}
  for i = from, sig.n do
    named[sig.names[i]] = values[i]
  end
  return named
end

local function same(what, sig, wanted, got)
  assert.equal(sig.n, got.n, what)
  for i = 1, sig.n do
    assert.is_true(rawequal(wanted[i], got[i]),
      ("%s: %s is another one"):format(what, sig.names[i]))
  end
end

-- True where a table is the structure itself, not arguments by name.
local function takes_structure(sig)
  if sig.kinds[1] ~= "nest" then return false end
  for i = 2, sig.n do
    if sig.required[i] then return false end
  end
  return true
end

local function readme()
  local file = assert(io.open "README.md")
  local text = file:read "*a"
  file:close()
  return text
end

-- Functions that bind no arguments: patterns of their names.
local FREE = {
  -- any number of values, or a structure
  "^tf%.nest%.", "^tf%.print$", "^tf%.group$", "^tf%.train%.Checkpoint$",
  "Options$", "^tf%.data%.experimental%.%l", "Optional%.",
  -- a kind, a message; what asks and never fails
  "^tf%.errors%.", "%.is_%l+$", "^tf%.executing_eagerly$",
  "^tf%.inside_function$", "^tf%.flags$",
  -- what raises NotImplementedError
  "^tf%.summary%.%l", "^tf%.data%.Dataset%.%l", "plot_model$", "model_to_dot$",
  -- for other modules of the library: names of losses, weights of examples
  "^tf%.keras%.losses%.%l", "backend%.returned$", "%.Tensor%.release$",
}

local function is_free(name)
  for _, pattern in ipairs(FREE) do
    if name:find(pattern) then return true end
  end
  return false
end

describe("every function #once", function()
  local structures = {}

  it("binds its arguments", function()
    local bare = {}
    for _, entry in ipairs(functions) do
      if entry.sig == nil and entry.class == nil and not is_free(entry.name) then
        bare[#bare + 1] = entry.name
      end
    end
    assert.same({}, bare)
  end)

  it("takes arguments by position, by name and mixed", function()
    local count = 0
    for _, entry in ipairs(made) do
      local sig, what = entry.sig, entry.sig.what
      if entry.inner ~= nil and sig.n > 0 then
        count = count + 1
        local values = arguments(sig)
        same(what, sig, values, arrives(entry, unpack(values, 1, sig.n)))
        local first = takes_structure(sig) and 2 or 1
        if first == 2 then
          structures[what:match "[^.:]*$"] = true
          local named = by_name(sig, values, 1)
          assert.equal(named, arrives(entry, named)[1], what)
        end
        for from = first, sig.n do
          local args = { unpack(values, 1, from - 1) }
          args[from] = by_name(sig, values, from)
          same(what, sig, values, arrives(entry, unpack(args, 1, from)))
        end
      end
    end
    assert.is_true(count > 600, count .. " functions")
  end)

  it("that asks what a value is takes tables with any keys", function()
    local asked = 0
    for _, entry in ipairs(functions) do
      local name, sig = entry.name:match "[^.:]*$", entry.sig
      if entry.class == nil and name:find "^is_%l" and sig and sig.n == 1
        and sig.kinds[1] == "table" then
        asked = asked + 1
        for _, value in ipairs { { a = 1 }, { 1, a = 2 }, { learning_rate = 1 },
          { n = 2 }, { [1.5] = 1 } } do
          assert.is_false(entry.fn(value), entry.name)
        end
        assert.is_false(entry.fn { [sig.names[1]] = 1 }, entry.name)
      else
        -- One that does not say so would take them as options.
        assert.is_false(entry.class == nil and name:find "^is_%l" ~= nil
          and sig ~= nil and sig.n == 1 and not sig.required[1], entry.name)
      end
    end
    assert.is_true(asked >= 7, asked .. " functions")
    for _, family in ipairs { "constraints", "initializers", "regularizers" } do
      local value = { a = 1 }
      assert.equal(value, tf.keras[family].serialize(value), family)
    end
  end)

  it("that takes a structure is listed in README", function()
    local text = readme()
    assert.truthy(next(structures))
    for name in pairs(structures) do
      assert.truthy(text:find("`" .. name .. "`", 1, true), name)
    end
  end)
end)

-- Ops go to C at once, so that their results are compared.
local cases = require "spec.support.cases"
local raw = require "tfdist.core.raw"

local function pack(...) return { n = select("#", ...), ... } end

local function text_of(results)
  local parts = {}
  local function add(x)
    if type(x) == "userdata" and raw.is_operand(x) then
      parts[#parts + 1] = ("%s %s"):format(x.dtype, table.concat(x.shape, ","))
      for _, value in ipairs(raw.operand_tensor(x):toflat()) do
        parts[#parts + 1] = tostring(value)
      end
    elseif type(x) == "table" and getmetatable(x) == nil then
      for i = 1, x.n or #x do add(x[i]) end
    else
      parts[#parts + 1] = type(x)
    end
  end
  add(results)
  return table.concat(parts, " ")
end

local differ, compared = {}, 0

-- The call as it was made, again by name, and again with a first position.
local function compare(fn, sig, ...)
  local wanted = pack(fn(...))
  local values = options.wrap_signature(sig, pack)(...)
  for from = takes_structure(sig) and 2 or 1, math.min(2, sig.n) do
    local args = { unpack(values, 1, from - 1) }
    args[from] = by_name(sig, values, from)
    compared = compared + 1
    if text_of(wanted) ~= text_of(pack(fn(unpack(args, 1, from)))) then
      differ[#differ + 1] = sig.what
    end
  end
  return unpack(wanted, 1, wanted.n)
end

-- tf, whose functions are called in several ways.
local function watched(t, path)
  return setmetatable({}, { __index = function(_, name)
    local value = t[name]
    if type(value) == "table" and value ~= tf.newaxis
      and not public.is_class(value) then
      return watched(value, path .. name .. ".")
    end
    local sig = type(value) == "function" and options.signature_of(value)
    if not sig or sig.n == 0 or path == "random." then return value end
    return function(...) return compare(value, sig, ...) end
  end })
end

local function inputs_of(case)
  local dtype, out = case.dtypes[1], {}
  for k, spec in ipairs(case.inputs) do
    local data = cases.values(spec, k - 1, dtype)
    out[k] = #data == 0 and tf.zeros(spec.dims, spec.dtype or dtype)
      or tf.constant(data, { dtype = spec.dtype or dtype, shape = spec.dims })
  end
  return out
end

describe("every op #once", function()
  local watching = watched(tf, "")
  for _, family in ipairs(cases.families) do
    it("of family " .. family .. " gives one result however it is called",
      function()
        differ = {}
        for _, case in ipairs(cases.load(family)) do
          local ok, e = pcall(case.fn, watching, unpack(inputs_of(case), 1,
            #case.inputs))
          assert(ok, case.name .. ": " .. tostring(e))
        end
        assert.same({}, differ)
      end)
  end

  it("was compared", function()
    assert.is_true(compared > 1000, compared .. " calls")
  end)
end)
