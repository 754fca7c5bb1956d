--- Words for messages: what a value is, shapes, the nearest known name.
local errors = require "tfdist.base.errors"
local loading = require "tfdist.base.loading"
local pairs = require "tfdist.base.pairs"

local M = {}

local following = next -- by this name LuaJIT compiles a loop as base.pairs says
local floor, abs, huge = math.floor, math.abs, math.huge
local SHOWN = errors.SHOWN

-- Describers for userdata and classes, by kind name; the tensor and variable
-- modules add theirs, so that this file needs no other.
local describers = {}

--- Register `fn(value) -> string or nil` for values that are not plain Lua.
function M.add_describer(fn)
  describers[#describers + 1] = fn
end

local function never()
  return false
end

local is_released = never

--- Tell this module how to know handles that were released.
function M.set_released(fn)
  is_released = fn
end

--- Refuse a handle that was released: the one wording for every use of it.
--- Errors: FailedPrecondition.
---@param x any
---@param what string   operation, for messages
---@param name? string  argument
function M.check_open(x, what, name)
  if is_released(x) then
    errors.raise("FailedPrecondition", name ~= nil and ("%s: %s: handle is "
      .. "released"):format(what, name) or what .. ": handle is released")
  end
end

-- What t.shape gives: a plain list in all but how it prints and compares.
local Shape = { __name = "shape" }

function Shape.__tostring(dims)
  return M.shape(dims)
end

function Shape.__concat(a, b)
  return tostring(a) .. tostring(b)
end

function Shape.__eq(a, b)
  if #a ~= #b then
    return false
  end
  for i = 1, #a do
    if a[i] ~= b[i] then
      return false
    end
  end
  return true
end

--- Let a list of sizes print as "{2, 3}" and compare by its elements.
---@param dims integer[]
---@return integer[]  dims
function M.as_shape(dims)
  return setmetatable(dims, Shape)
end

--- True for a metatable (or nil) whose tables are plain lists to everybody.
function M.is_plain_meta(meta)
  return meta == nil or meta == Shape
end

--- True for a table without metatable, and for shapes: the only tables that
--- are structure.
function M.is_plain(x)
  if type(x) ~= "table" then
    return false
  end
  local meta = getmetatable(x)
  return meta == nil or meta == Shape
end

--- True for functions and for objects that can be called like one.
function M.is_callable(x)
  if type(x) == "function" then
    return true
  end
  -- The __call of tensors only says that they are none.
  local meta = type(x) == "table" and getmetatable(x) or nil
  return type(meta) == "table" and meta.__call ~= nil
end

--- Errors: TypeError unless fn can be called.
---@param what string   operation, for the message
---@param name string   argument
---@param fn any
---@param hint? string
function M.check_callable(what, name, fn, hint)
  if not M.is_callable(fn) then
    errors.raise("TypeError", ("%s: %s must be a function, got %s"):format(
      what, name, M.describe(fn)), hint)
  end
end

-- methods that look at self first -> the functions behind them
local behind = setmetatable({}, { __mode = "k" })

--- Note that `method` looks at self and is `fn` then; returns method.
function M.note_behind(method, fn)
  behind[method] = fn
  return method
end

--- Does a function look at self first?
function M.looks_at_self(fn)
  return behind[fn] ~= nil
end

--- The function that somebody wrote of one that can be called, which may be a
--- traced function or a method that looks at self first; nil for other objects.
---@param fn any
---@return function?
function M.written(fn)
  if type(fn) == "table" then
    fn = rawget(fn, "python_function")
    return fn and M.written(fn)
  end
  return type(fn) == "function" and (behind[fn] or fn) or nil
end

--- The name of a class, nil for anything else: what makes an object, in the
--- place of one.
---@param x any
---@return string?
function M.class_name(x)
  local meta = type(x) == "table" and getmetatable(x) or nil
  local name = type(meta) == "table" and meta.__call ~= nil
    and rawget(x, "__name") or nil
  return type(name) == "string" and name or nil
end

--- Refuse a class in the place of one of its objects.
--- Errors: TypeError.
---@param what string  function, for messages
---@param name string  argument
---@param x any
function M.refuse_class(what, name, x)
  local class = M.class_name(x)
  if class ~= nil then
    errors.raise("TypeError", ("%s: %s is the class %s itself"):format(what,
      name, class), ("%s(...) makes an object"):format(class))
  end
end

--- True for a finite number without fraction.
function M.is_whole(x)
  return type(x) == "number" and x == floor(x) and abs(x) < huge
end

--- True for a whole number that 64 bits hold.
function M.is_int64(x)
  return M.is_whole(x) and x >= -2 ^ 63 and x < 2 ^ 63
end

local number_type = rawget(math, "type") -- LuaJIT has one type of numbers

--- A whole number with all its digits.
---@param x number
---@return string
function M.whole(x)
  if number_type ~= nil and number_type(x) == "integer" then
    return ("%d"):format(x)
  end
  return ("%.0f"):format(x)
end

--- A number as people write it: no ".0" on whole numbers, on both engines.
---@param x number
---@return string
function M.number(x)
  if number_type ~= nil and number_type(x) == "integer" then
    return ("%d"):format(x)
  elseif x ~= x then
    return "nan" -- some print its sign
  elseif M.is_whole(x) and abs(x) < 2 ^ 63 then
    return ("%.0f"):format(x)
  end
  return ("%.14g"):format(x)
end

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

--- string.format whose %d takes any number: Lua 5.4 refuses those beyond 63
--- bits, LuaJIT cuts them off.
---@param format string
---@return string
function M.format(format, ...)
  local args = { ... }
  local i = 0
  format = format:gsub("%%(.)", function(c)
    if c == "%" then
      return nil
    end
    i = i + 1
    if c == "d" and type(args[i]) == "number" then
      args[i] = M.number(args[i])
      return "%s"
    end
    return nil
  end)
  return format:format(unpack(args, 1, select("#", ...)))
end

--- A Lua list of sizes as "{2, 3}"; of a list longer than a message can hold,
--- the beginning and "…".
---@param dims number[]
---@return string
function M.shape(dims)
  local parts, length = {}, 0
  for i = 1, dims.n or #dims do
    local d = dims[i]
    local kind = type(d)
    if kind == "number" then
      parts[i] = M.number(d)
    elseif kind == "string" or kind == "boolean" or kind == "nil" then
      parts[i] = tostring(d)
    else -- tostring of what the user gave may be the user's, and fail
      parts[i] = M.describe(d)
    end
    length = length + #parts[i] + 2
    if length > SHOWN then
      parts[i] = "…"
      break
    end
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- A string in quotes, shortened to what a message can hold.
---@param s string
---@return string
function M.quote(s)
  if #s > 60 then
    s = s:sub(1, 57) .. "..."
  end
  return '"' .. s:gsub("[%c\\\"]", function(c)
    if c == '"' or c == "\\" then
      return "\\" .. c
    end
    return ("\\%d"):format(c:byte())
  end) .. '"'
end

local CONTINUED = { [2] = 1, [3] = 2, [4] = 3 } -- bytes behind a first one

-- Bytes 128 .. 191 behind `lead`: those that continue it stay, bare ones and
-- the controls U+0080 .. U+009F do not.
local function continued(lead, rest)
  local n = lead == "" and 0 or CONTINUED[lead < "\224" and 2
    or lead < "\240" and 3 or 4]
  if lead == "\194" and rest:byte() < 160 then
    return "?" .. ("?"):rep(#rest - 1)
  end
  return lead .. rest:sub(1, n) .. ("?"):rep(#rest - n)
end

--- What files or others say, for a terminal: nothing in it is obeyed.
---@param s string
---@return string
function M.printable(s)
  return (s:gsub("[%c\127]", "?"):gsub("([\194-\244]?)([\128-\191]+)",
    continued))
end

--- The name of one of this library's modules, "tf.train"; nil for anything
--- else.
---@param x table
---@return string?
function M.module_name(x)
  for name, module in pairs(package.loaded) do
    if rawequal(module, x) and type(name) == "string" and name:find("^tfdist") then
      return (name:gsub("^tfdist", "tf"))
    end
  end
  local meta = getmetatable(x)
  return type(meta) == "table" and rawget(meta, "__path") or nil
end

--- What a value is, with an article: "a function", "the number 3",
--- 'the string "x"', "a Tensor".
---@param x any
---@return string
function M.describe(x)
  local kind = type(x)
  if kind == "nil" or kind == "boolean" then
    return tostring(x)
  elseif kind == "number" then
    return "the number " .. M.number(x)
  elseif kind == "string" then
    return "the string " .. M.quote(x)
  end
  local module = kind == "table" and M.module_name(x)
  if module then
    return ("the module %s (its functions are called with a dot)"):format(
      module)
  end
  for i = 1, #describers do
    local text = describers[i](x)
    if text ~= nil then
      return text
    end
  end
  local class = M.class_name(x)
  return class ~= nil and "the class " .. class or "a " .. kind
end

--- A name as the user gave it: strings in quotes, anything else by what it is.
---@param x any
---@return string
function M.name(x)
  return type(x) == "string" and M.quote(x) or M.describe(x)
end

-- Levenshtein distance with adjacent swaps, given up beyond `limit`.
local function distance(a, b, limit)
  local m, n = #a, #b
  if abs(m - n) > limit then
    return limit + 1
  end
  local before, last, row = {}, {}, {}
  for j = 0, n do
    last[j] = j
  end
  for i = 1, m do
    row[0] = i
    local best = i
    local ca = a:byte(i)
    for j = 1, n do
      local cb = b:byte(j)
      local d = last[j - 1] + (ca == cb and 0 or 1)
      d = math.min(d, last[j] + 1, row[j - 1] + 1)
      if i > 1 and j > 1 and ca == b:byte(j - 1) and a:byte(i - 1) == cb then
        d = math.min(d, before[j - 2] + 1)
      end
      row[j] = d
      best = math.min(best, d)
    end
    if best > limit then
      return limit + 1
    end
    before, last, row = last, row, before
  end
  return last[n]
end

-- The words of a name in the order of letters; `experimental` is none.
local function sorted_words(name)
  local words = {}
  for word in name:lower():gmatch "%w+" do
    if word ~= "experimental" then
      words[#words + 1] = word
    end
  end
  table.sort(words)
  return table.concat(words, "_")
end

--- The name in `names` of the same words as `name` in another order, or nil.
---@param name string
---@param names string[]
---@return string|nil
function M.same_words(name, names)
  local wanted = name:find "_" and sorted_words(name)
  for i = 1, wanted and #names or 0 do
    if sorted_words(names[i]) == wanted then
      return names[i]
    end
  end
  return nil
end

--- The name in `names` nearest to `name`, or nil when none is near. Case and
--- underscores count among names that are equally near.
---@param name string
---@param names string[]
---@param most? integer  edits that are still near, usually 4
---@return string|nil
function M.nearest(name, names, most)
  local plain = name:lower():gsub("_", "")
  local limit = math.max(1, math.min(most or 4, floor(#plain / 3)))
  local best, best_distance, best_exact = nil, limit + 1, nil
  for i = 1, #names do
    local candidate = names[i]:lower():gsub("_", "")
    local d = candidate == "" and limit + 1
      or distance(plain, candidate, limit)
    -- Slips are rare in first letters.
    local exact = d <= limit and distance(name, names[i], 99)
      + (name:byte() == names[i]:byte() and 0 or 0.5)
    if d < best_distance or (d == best_distance and best ~= nil
      and exact < best_exact) then
      best, best_distance, best_exact = names[i], d, exact
    end
  end
  return best or M.same_words(name, names)
end

--- The keys of tables as texts, sorted: names for messages and hints.
---@param ... table
---@return string[]
function M.names(...)
  local names = {}
  for i = 1, select("#", ...) do
    for key in pairs((select(i, ...))) do
      names[#names + 1] = tostring(key)
    end
  end
  table.sort(names)
  return names
end

--- A function of a key that raises if it is a slip of one of the names, and
--- else returns nil, at once when asked again: programs may ask for any name.
--- Errors: KeyError naming the nearest.
---@param names fun():string[]
---@param slip fun(key:string, near:string)  raises
---@return fun(key:any):nil
function M.slips(names, slip)
  local absent = {}
  return function(key)
    if absent[key] or type(key) ~= "string" then
      return nil
    end
    local near = M.nearest(key, names(), 2)
    if near ~= nil then
      slip(key, near)
    end
    absent[key] = true
    return nil
  end
end

--- The same for the fields and methods of an object: a Checkpoint, a tape.
---@param what string
---@param names fun():string[]
---@return fun(key:any):nil
function M.field_slips(what, names)
  return M.slips(names, function(key, near)
    if key == "closed" then
      return -- what close() sets
    end
    errors.raise("KeyError", ("a %s has no field or method %s"):format(what,
      M.quote(key)), "did you mean " .. near .. "?")
  end)
end

--- The same for objects that have no fields of the user's, as a strategy: names
--- that are near none raise, too.
--- Errors: KeyError.
---@param what string
---@param unset table       fields of the library's that may be nil: name -> true
---@param names fun():string[]
---@return fun(key:any):nil
function M.unknown_fields(what, unset, names)
  return function(key)
    if unset[key] or type(key) ~= "string" or key:find "^_" then
      return nil
    end
    local all = names()
    local near = M.nearest(key, all) or M.nearest("experimental_" .. key, all, 1)
    errors.raise("KeyError", ("a %s has no field or method %s"):format(what,
      M.quote(key)), near and "did you mean " .. near .. "?" or nil)
  end
end

--- The names of tables and of all that they inherit from, without private ones.
---@param ... table
---@return string[]
function M.inherited_names(...)
  local found = {}
  for i = 1, select("#", ...) do
    local at = select(i, ...)
    while type(at) == "table" do
      for key in following, at do
        if type(key) == "string" and not key:find "^_" then
          found[key] = true
        end
      end
      local meta = getmetatable(at)
      at = type(meta) == "table" and rawget(meta, "__index") or nil
    end
  end
  return M.names(found)
end

-- Fields that objects were asked for and have not: name -> names that are there.
local absent, absent_count = {}, 0
local MOST_ABSENT = 64

--- A function of a key that returns nil, for objects with fields of the user's:
--- a slip is an error of the engine's when it is called or indexed, and this
--- tells its explanation which names the object has.
---@param names fun():string[]
---@return fun(key:any):nil
function M.absent_fields(names)
  return function(key)
    if absent[key] ~= names and type(key) == "string" then
      if absent_count == MOST_ABSENT then
        absent, absent_count = {}, 0
      end
      absent[key], absent_count = names, absent_count + 1
    end
    return nil
  end
end

errors.add_explanation(function(message)
  local key = message:find("nil value", 1, true)
    and (message:find "^attempt to call" or message:find "^attempt to index")
    and (message:match "method '([%a_][%w_]*)'"
      or message:match "field '([%a_][%w_]*)'")
  local names = key and absent[key]
  local near = names and M.nearest(key, names(), 2)
  if near then
    return "RuntimeError", "did you mean " .. near .. "?"
  end
end)

--- Let slips in the names of a class be errors, whose objects find their methods
--- in the table `methods`.
---@param what string
---@param methods table
---@return table  methods
function M.watch_methods(what, methods)
  local check = M.field_slips(what, function()
    return M.names(methods)
  end)
  return setmetatable(methods, { __index = function(_, key)
    return check(key)
  end })
end

--- The same for the names of a module, where what only TensorFlow has raises too.
--- Errors: KeyError naming the nearest, NotImplementedError.
---@param path string     "tf.keras"
---@param names fun():string[]
---@return fun(key:any):nil
function M.name_slips(path, names)
  local check = M.slips(names, function(name, near)
    errors.raise("KeyError", ("there is no %s.%s"):format(path, name),
      ("did you mean %s.%s?"):format(path, near))
  end)
  return function(name)
    loading.load("tfdist.base.missing").check(path:sub(4), name)
    return check(name)
  end
end

--- Let slips in a module's names be errors; other names stay nil, so that
--- programs can ask. Modules that have a metatable do this themselves.
---@param path string   "tf.train"
---@param module table
---@return table  module
function M.watch(path, module)
  if type(module) == "table" and getmetatable(module) == nil then
    local check = M.name_slips(path, function()
      return M.names(module)
    end)
    setmetatable(module, { __index = function(_, name)
      return check(name)
    end })
  end
  return module
end

-- The only name in `names` whose words begin with the letters of `name`.
local function by_initials(name, names)
  local found
  for i = 1, #name > 1 and #names or 0 do
    if names[i]:gsub("(%w)%w*_?", "%1") == name then
      if found ~= nil then
        return nil
      end
      found = names[i]
    end
  end
  return found
end

--- Hint for an unknown name: the nearest known one, else all of them.
---@param name string
---@param names string[]
---@param what string  "option", "flag"
---@return string|nil
function M.suggestion(name, names, what)
  local near = M.nearest(name, names) or by_initials(name, names)
  if near ~= nil then
    return "did you mean " .. near .. "?"
  elseif #names == 0 then
    return "there are no " .. what .. "s"
  elseif #names <= 24 then
    return what .. "s are " .. table.concat(names, ", ")
  end
  return nil
end

return M
