--- The calling rule: positional arguments in TensorFlow's order, or a trailing
--- table of options by TensorFlow's name.
---
--- A signature is text: "input_tensor axis=nil keepdims=false name=nil". A
--- parameter without default is required. A default is nil, true, false, a
--- number, a 'quoted text' or a bare word; with true or false and no kind, nothing
--- else is taken (0 and "no" are true in Lua). A parameter may carry a kind after
--- a colon, as in op schemas; the kind `table` lets an optional parameter take
--- tables with string keys as values (`y:table=nil`), the kind `nest` is a
--- structure of the user's, whose keys may be any; `fn:body=nil` and
--- `func:later=nil` are functions that may be left out, but are never nil as the
--- last argument; module kinds has those that say what an argument must be.
---
--- How a table argument is read stands in src/lua/bind_rule.c, which binds the
--- arguments; here are signatures, words for what is wrong with a call, and
--- the calls without tables, which stay in Lua.
local core = require "tfdist.core"
local errors = require "tfdist.base.errors"
local kinds = require "tfdist.base.kinds"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"

local M = {}

local next, select, type = next, select, type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local load_text = rawget(_G, "loadstring") or load

local is_whole = text.is_whole
-- Generated functions carry this file's name: they are the library's, not the
-- user's, when a position in the script is looked for.
local SOURCE = debug.getinfo(1, "S").source

local WORDS = {
  ["true"] = true,
  ["false"] = false,
  inf = math.huge,
  ["-inf"] = -math.huge,
  nan = 0 / 0,
}

local function default_value(word)
  if word == "nil" then
    return nil
  end
  local quoted = word:match("^'(.*)'$") or word:match('^"(.*)"$')
  if quoted ~= nil then
    return quoted
  end
  local value = WORDS[word]
  if value ~= nil then
    return value
  end
  local number = tonumber(word)
  if number ~= nil then
    return number
  end
  return word
end

local function split_parameter(source, at)
  local _, stop, name = source:find("^%s*([%a_][%w_]*)", at)
  if stop == nil then
    error("bad signature at column " .. at .. ": " .. source, 0)
  end
  local kind, word
  local _, kind_stop = source:find("^:%a+%b()[?*]?", stop + 1)
  if kind_stop == nil then
    _, kind_stop = source:find("^:%a+[?*]?", stop + 1)
  end
  if kind_stop ~= nil then
    kind = source:sub(stop + 2, kind_stop)
    stop = kind_stop
  end
  if source:sub(stop + 1, stop + 1) == "=" then
    local _, word_stop = source:find("^%b''", stop + 2)
    if word_stop == nil then
      _, word_stop = source:find('^%b""', stop + 2)
    end
    if word_stop == nil then
      _, word_stop = source:find("^%S+", stop + 2)
    end
    word = source:sub(stop + 2, word_stop)
    stop = word_stop
  end
  return name, kind, word, stop + 1
end

--- Read a signature once.
---@param what string    function name for messages
---@param source string  the signature
---@return table         { what, n, names, index, required, defaults, kinds };
---   `called`, when set: its name in errors of kinds that are left out
function M.signature(what, source)
  local sig = {
    what = what, n = 0, names = {}, index = {}, required = {}, defaults = {},
    kinds = {}, words = {},
  }
  local at = 1
  while source:find("%S", at) do
    local name, kind, word
    name, kind, word, at = split_parameter(source, at)
    local n = sig.n + 1
    sig.n = n
    sig.names[n] = name
    sig.index[name] = n
    sig.kinds[n] = kind
    sig.words[n] = word
    sig.required[n] = word == nil and not (kind and kind:find("?", 1, true))
    if word ~= nil then
      sig.defaults[n] = default_value(word)
    end
  end
  return sig
end

local function unknown_option(sig, key)
  local hint
  if type(key) == "string" then
    hint = text.suggestion(key, sig.names, "option")
  end
  errors.raise("ValueError", sig.what .. ": unknown option "
    .. text.name(key), hint)
end

-- Kinds whose values may have keys that are strings.
local TAKES_KEYS = { table = true, nest = true, dict = true }

-- True for a parameter whose value may be a table that looks like a call by
-- name: nothing tells them apart, so it is the value.
local function is_structure(sig, i, others)
  return sig.kinds[i] == "nest" and i == 1 and not others
end

-- In a table that is no structure: a slip in the name of an option raises, which
-- the call has neither by position, before i, nor by name. Any letter is near
-- any other: single ones are no slips.
local function check_slip(sig, t, i)
  local open = {}
  for k = i, sig.n do
    if t[sig.names[k]] == nil then
      open[#open + 1] = sig.names[k]
    end
  end
  for key in pairs(t) do
    if type(key) == "string" and #key > 1 and sig.index[key] == nil
      and text.nearest(key, open, 2) ~= nil then
      unknown_option(sig, key)
    end
  end
end

local function count_text(n)
  return n == 1 and "1 argument" or n .. " arguments"
end

local function too_many(sig, extra)
  local names = #sig.names > 0 and " (" .. table.concat(sig.names, ", ") .. ")"
    or ""
  errors.raise("TypeError", ("%s: takes at most %s%s, got one more: %s")
    :format(sig.what, count_text(sig.n), names,
    text.describe(extra)))
end

-- The first n names, "a, b, ...", of a list.
local function first_names(names, n)
  return table.concat(names, ", ", 1, math.min(n, #names))
    .. (n < #names and ", ..." or "")
end

local function required_count(sig)
  for i = sig.n, 1, -1 do
    if sig.required[i] then
      return i
    end
  end
  return 0
end

-- function -> parameter -> what to do when it is missing
local missing_hints = {}

--- Say what to do when an argument is missing.
---@param what string   function, as in messages, or its last word
---@param name string   parameter
---@param hint string|fun(values:table, n:integer):string  of what was given
function M.hint_missing(what, name, hint)
  missing_hints[what] = missing_hints[what] or {}
  missing_hints[what][name] = hint
end

-- Whether some of its arguments are given by name in a table.
local function names_some(sig, t)
  for key in pairs(t) do
    if sig.index[key] ~= nil then
      return true
    end
  end
  return false
end

local function missing_argument(sig, i, values, given)
  local hints = missing_hints[sig.what]
    or missing_hints[sig.what:match("[^.:]*$")]
  local hint = hints and hints[sig.names[i]]
  if type(hint) == "function" then
    hint = hint(values, given)
  end
  if hint == nil and given >= 1 and given < i
    and text.is_plain(values[given]) and not names_some(sig, values[given])
  then
    hint = "the table in place of " .. sig.names[given]
      .. " is taken as its value"
  end
  hint = hint or ("%s(%s)"):format(sig.what:match("[^.:]*$"), first_names(
    sig.names, math.max(required_count(sig), 1)))
  errors.raise("TypeError", sig.what .. ": missing argument "
    .. sig.names[i], hint)
end

-- True for a parameter that only labels what is made: a string or nothing.
local function is_label(sig, i)
  return sig.names[i] == "name" and sig.kinds[i] == nil and not sig.required[i]
end

local function wrong_label(sig, i, values)
  local value, before_it = values[i], values[i - 1]
  local short = sig.what:match("[^.:]*$")
  local before = table.concat(sig.names, ", ", 1, i - 1)
  local hint
  local module = type(values[1]) == "table" and text.module_name(values[1])
  if module then
    hint = ("%s.%s(...) is called with a dot"):format(module, short)
  elseif type(value) == "number" and type(before_it) == "number"
    and (sig.kinds[i - 1] == "l" or sig.names[i - 1] == "shape") then
    hint = ("%s goes in as one table: { %s, %s }"):format(sig.names[i - 1],
      text.number(before_it), text.number(value))
  elseif i == 2 and (sig.kinds[1] == "nest" or sig.kinds[1] == "t*"
    or sig.names[1] == "layers") then
    -- Of a list of plain lists one tensor is made.
    local plain = sig.kinds[1] == "nest" and text.is_plain(value)
      and text.is_plain(values[1])
    hint = ("%s go in as one table: %s"):format(
      short:find("^from_tensor") and "features and labels"
      or "several " .. sig.names[1], short .. (plain
      and "({ tf.constant(X), tf.constant(Y) })" or "({ X, Y })"))
  elseif i > 1 then
    hint = ("%s takes (%s); what comes after is a name"):format(short, before)
  end
  errors.raise("TypeError", ("%s: name must be a string, got %s"):format(
    sig.what, text.describe(value)), hint)
end

-- What the calling rule finds wrong with a call, by the name that it has there.
local problems = {
  unknown = unknown_option,
  slip = check_slip,
  many = too_many,
  missing = missing_argument,
  label = wrong_label,
}

function problems.mixed(sig, i)
  errors.raise("ValueError", sig.what .. ": a table with both list elements "
    .. "and named options; give " .. (sig.names[i] or "the list")
    .. " as a table of its own")
end

function problems.twice(sig, i)
  errors.raise("TypeError", sig.what .. ": argument " .. sig.names[i]
    .. " is given twice, by position and by name")
end

core.set_hook("complain", function(sig, problem, ...)
  return problems[problem](sig, ...)
end)

-- What the calling rule knows of each parameter, see src/lua/bind_rule.c.
local function marks_of(sig)
  local marks = {}
  for i = 1, sig.n do
    local kind = sig.kinds[i]
    marks[i] = (sig.required[i] and "r" or "")
      .. (kind == "nest" and "s" or TAKES_KEYS[kind] and "k" or "")
      .. (kind == nil and "a" or "") .. (is_label(sig, i) and "l" or "")
      .. (sig.defaults[i] ~= nil and "d" or "") .. ","
  end
  return table.concat(marks)
end

-- True for a parameter that is true or false.
local function is_switch(sig, i)
  return type(sig.defaults[i]) == "boolean" and sig.kinds[i] == nil
end

-- Makers of fast paths, one for each pattern of parameters: "rRotdbnN" =
-- required, required where a table may complete the call, optional, optional
-- that takes tables, optional with default, the same for true and false, names
-- without and with default; "f" = a function that is left out, never nil.
local makers = {}

-- The parameters `list` of a fast path. Only the count of arguments tells nil
-- from nothing; it costs what takes no such function nothing. Before another
-- argument nil says that the function is skipped.
local function head_text(pattern, leading, list)
  if not pattern:find("f", 1, true) then
    return ("return function(%s)"):format(list)
  end
  local lines = { "return function(...)", ("  local %s = ..."):format(list) }
  for at in pattern:gmatch "()f" do
    lines[#lines + 1] = ("  if a%d == nil and select('#', ...) == %d then "
      .. "refuse(%d) end"):format(at, leading and at + 1 or at, at)
  end
  return table.concat(lines, "\n")
end

local function maker_text(pattern, leading)
  local params, tests, fills, defaults, checks = {}, {}, {}, {}, {}
  for i = 1, #pattern do
    local a = "a" .. i
    params[i] = a
    local mark = pattern:sub(i, i)
    if mark == "r" or mark == "R" then
      tests[#tests + 1] = a .. " == nil"
    end
    if mark == "R" or mark == "t" then
      -- What has an element 1 is a list of values, never options.
      tests[#tests + 1] = ("type(%s) == 'table' and rawget(%s, 1) == nil")
        :format(a, a)
    elseif mark == "b" then
      local test = ("%s ~= nil and %s ~= true and %s ~= false"):format(a, a, a)
      tests[#tests + 1] = test
      checks[#checks + 1] = ("if %s then wrong(%d, %s) end"):format(test, i, a)
    elseif mark == "n" or mark == "N" then
      tests[#tests + 1] = ("%s ~= nil and type(%s) ~= 'string'"):format(a, a)
    elseif mark ~= "r" then
      tests[#tests + 1] = "type(" .. a .. ") == 'table'"
    end
    if mark == "d" or mark == "b" or mark == "N" then
      defaults[#defaults + 1] = "d" .. i
      fills[#fills + 1] = ("if %s == nil then %s = d%d end"):format(a, a, i)
    end
  end
  -- One argument more than there are parameters shows a call with too many.
  tests[#tests + 1] = "x ~= nil"
  local list = table.concat(params, ", ")
  local comma = #params > 0 and ", " or ""
  local d_comma = #defaults > 0 and ", " or ""
  local all = (leading and (#params > 0 and "self, " or "self") or "") .. list
  return ([[
local type, rawget, select, slow, fn, wrong, refuse%s%s = ...
local function bound(%s)
  %s
  return fn(%s)
end
%s
  if %s then
    return %s(%sslow(%s%sx))
  end
  %s
  return fn(%s)
end]]):format(d_comma, table.concat(defaults, ", "),
    all, table.concat(checks, "\n  "), all,
    head_text(pattern, leading, (leading and "self, " or "") .. list .. comma
    .. "x"), table.concat(tests, " or "), #checks > 0 and "bound" or "fn",
    leading and "self, " or "", list, comma,
    table.concat(fills, "\n  "), all)
end

local function build(sig, fn, leading)
  sig.leading = leading
  local marks, defaults, n = {}, {}, 0
  local last_required
  for i = 1, sig.n do
    if sig.required[i] then
      marks[i] = "r"
      last_required = i
    elseif sig.defaults[i] ~= nil then
      marks[i] = is_label(sig, i) and "N" or is_switch(sig, i) and "b" or "d"
      n = n + 1
      defaults[n] = sig.defaults[i]
    else
      marks[i] = is_label(sig, i) and "n"
        or TAKES_KEYS[sig.kinds[i]] and "t"
        or kinds.is_left_out(sig.kinds[i]) and "f" or "o"
    end
  end
  -- Before the last one, completing tables leave a required argument nil.
  if last_required ~= nil and not is_structure(sig, last_required, false) then
    marks[last_required] = "R"
  end
  local pattern = table.concat(marks)
  local key = leading and "." .. pattern or pattern
  local maker = makers[key]
  if maker == nil then
    maker = assert(load_text(maker_text(pattern, leading), SOURCE))
    makers[key] = maker
  end
  local slow = core.binder(marks_of(sig), sig.index, sig, sig.defaults)
  local function wrong(i, x)
    kinds.check(sig.what, sig.names[i], "boolean", x)
  end
  local function refuse(i)
    kinds.refuse_nil(sig, i)
  end
  return M.describe(maker(type, rawget, select, slow,
    kinds.guard(sig, fn, leading), wrong, refuse, unpack(defaults, 1, n)), sig,
    fn)
end

-- What is known of functions made here; goes when they go.
local described = setmetatable({}, { __mode = "k" })

--- Note what `fn` takes, and the function `inner` behind it, for the prompt.
---@param fn function
---@param sig table
---@param inner? function
---@return function  fn
function M.describe(fn, sig, inner)
  described[fn] = { sig = sig, inner = inner }
  return fn
end

--- Note that `fn` takes what `like` takes.
---@param fn function
---@param like function
---@return function  fn
function M.describe_as(fn, like)
  described[fn] = described[like]
  return fn
end

--- The signature of a function that was made here, and the function that gets
--- its values; nil for any other.
---@param fn function
---@return table|nil, function|nil
function M.signature_of(fn)
  local known = described[fn]
  if known == nil then
    return nil
  end
  return known.sig, known.inner
end

--- A table was taken for a value that the call cannot have.
--- Errors: ValueError for a key that is no option, where that is a slip in the
---   name of one behind the value, or one of those stands beside it.
---@param class string  of the method, as in messages
---@param method string
---@param name string   the value's
---@param t table
function M.check_options(class, method, name, t)
  local sig = M.signature_of(M.methods_of(class)[method])
  if sig == nil then -- a part of a value
    return
  end
  local behind = sig.index[name] + 1
  check_slip(sig, t, behind)
  local unknown, option
  for _, key in ipairs(text.names(t)) do
    local i = sig.index[key]
    if i == nil and t[key] ~= nil then
      unknown = unknown or key
    end
    option = option or (i ~= nil and i >= behind)
  end
  if option and unknown ~= nil then
    unknown_option(sig, unknown)
  end
end

--- How a function is called, "zeros(shape, dtype='float32')", and the function
--- whose source documents it; nil for functions that were not made here.
---@param fn function
---@return string|nil, function|nil
function M.usage(fn)
  local known = described[fn]
  if known == nil then
    return nil
  end
  local sig, parts = known.sig, {}
  for i = 1, sig.n do
    if sig.names[i] ~= "name" then
      parts[#parts + 1] = sig.names[i]
        .. (sig.words[i] ~= nil and "=" .. sig.words[i] or "")
    end
  end
  return ("%s(%s)"):format(sig.what, table.concat(parts, ", ")), known.inner
end

-- The file of a function and its line as a key that sorts, short paths first.
local function place_key(fn)
  local info = debug.getinfo(fn, "S")
  return ("%04d%s%06d"):format(#info.source, info.source, info.linedefined)
end

--- The methods of a class by the name that messages give it, "Variable".
---@param class string
---@return table  name -> function
function M.methods_of(class)
  local found, keys = {}, {}
  for fn, known in pairs(described) do
    local of, name = known.sig.what:match("^([%w_]+)[.:]([%w_]+)$")
    if of == class then
      local key = place_key(known.inner)
      if found[name] == nil or key < keys[name] then
        found[name], keys[name] = fn, key
      end
    end
  end
  return found
end

--- Wrap fn with the calling rule: the result takes arguments as users write
--- them and calls fn(value of parameter 1, ...), defaults filled in.
---@param what string       name for messages, "norm"
---@param source string     signature
---@param fn function
---@return function
function M.wrap(what, source, fn)
  return build(M.signature(what, source), fn, false)
end

--- The same from a signature that was read before.
---@param sig table
---@param fn function
---@return function
function M.wrap_signature(sig, fn)
  return build(sig, fn, false)
end

--- Like wrap for methods: fn(self, values...). A call with a dot instead of a
--- colon is a TypeError when `is_self` is given.
---@param what string       "MirroredStrategy.run"
---@param source string     signature without self
---@param fn function
---@param is_self? fun(x:any):boolean
---@param noun? string      what self is, "strategy"
---@return function
function M.method(what, source, fn, is_self, noun)
  local sig = M.signature(what, source)
  local call = build(sig, fn, true)
  if is_self == nil then
    return call
  end
  return text.note_behind(M.describe(function(self, ...)
    if not is_self(self) then
      M.wrong_self(what, noun or "object", self, sig.names)
    end
    return call(self, ...)
  end, sig, fn), fn)
end

--- fn(self, ...) as a method whose call with a dot instead of a colon is a
--- TypeError; arguments are fn's affair.
---@param what string     "Mean.result"
---@param fn function
---@param is_self fun(x:any):boolean
---@param noun string     what self is, "metric"
---@return function
function M.guarded(what, fn, is_self, noun)
  if text.looks_at_self(fn) then
    return fn
  end
  local function method(self, ...)
    if not is_self(self) then
      M.wrong_self(what, noun, self)
    end
    return fn(self, ...)
  end
  text.note_behind(method, fn)
  return described[fn] ~= nil and M.describe_as(method, fn) or method
end

--- Bind the arguments of a module's functions: wrap for each of them.
---@param module table
---@param prefix string      "utils.", for messages
---@param signatures table   name of the function -> signature
function M.functions(module, prefix, signatures)
  for name, source in pairs(signatures) do
    module[name] = M.wrap(prefix .. name, source, module[name])
  end
end

--- The same for the methods of a class.
---@param class table
---@param prefix string      "Layer."
---@param signatures table   name of the method -> signature without self
---@param is_self? fun(x:any):boolean
---@param noun? string       what self is
function M.methods(class, prefix, signatures, is_self, noun)
  for name, source in pairs(signatures) do
    class[name] = M.method(prefix .. name, source, class[name], is_self, noun)
  end
end

--- The arguments as positional values: parse(...) -> values.
---@param what string
---@param source string
---@return fun(...):...
function M.parser(what, source)
  local function values(...)
    return ...
  end
  return M.wrap(what, source, values)
end

--- Raise the error of a method called with a dot.
---@param what string      "MirroredStrategy.run"
---@param noun string      "strategy"
---@param got any          what came as self
---@param names? string[]  parameters, for the hint
function M.wrong_self(what, noun, got, names)
  local method = what:match("[^.:]*$")
  text.check_open(got, what)
  errors.raise("TypeError", ("%s: the first argument must be the %s itself, "
    .. "got %s"):format(what, noun, text.describe(got)),
    ("call %s:%s(%s) with a colon"):format(noun, method,
      first_names(names or {}, 4)))
end

--- Where numbers begin and end: one bound alone, by position or by name, is the
--- end, and they begin at 0.
--- Errors: TypeError when there is none.
---@param what string   function, for messages
---@param start any
---@param stop any
---@param name string   of the end
---@return any, any
function M.bounds(what, start, stop, name)
  if stop ~= nil then
    return start == nil and 0 or start, stop
  elseif start == nil then
    errors.raise("TypeError", ("%s: missing argument %s"):format(what, name),
      ("%s(%s)"):format(what:match("[^.]*$"), name))
  end
  return 0, start
end

--- Check a table of options outside a call: every key must be one of names.
---@param what string
---@param t table
---@param names string[]
function M.check_keys(what, t, names)
  local index = {}
  for i = 1, #names do
    index[names[i]] = i
  end
  local sig = { what = what, names = names, index = index }
  for key in pairs(t) do
    if index[key] == nil then
      unknown_option(sig, key)
    end
  end
end

-- Keys of the list x that are no positions raise, and those above n where no
-- field n tells its length.
local function check_positions(what, name, x, n)
  for key in pairs(x) do
    if type(key) == "string" and key ~= "n" then
      errors.raise("TypeError", ("%s: the list %s has the key %s"):format(what,
        name, text.quote(key)), "a list has positions only; options go into a "
        .. "table of their own, after the values")
    elseif key ~= "n" and not (is_whole(key) and key >= 1) then
      errors.raise("TypeError", ("%s: the list %s has a key that is no "
        .. "position: %s"):format(what, name, text.describe(key)))
    elseif x.n == nil and key > n then
      errors.raise("TypeError", ("%s: the list %s has holes"):format(what,
        name), "the field n tells how many elements a list with holes has")
    end
  end
end

-- Are 1 .. n, in this order, all keys of x? Where they are not, or lie in
-- another order, it has to be looked at more closely.
local function is_sequence(x, n)
  local key = next(x)
  for i = 1, n do
    if key ~= i then
      return false
    end
    key = next(x, key)
  end
  return key == nil
end

local function length_of(what, name, x)
  local n = x.n
  if n == nil then
    return #x
  elseif not is_whole(n) or n < 0 then
    errors.raise("TypeError", ("%s: n of the list %s must be its length, got "
      .. "%s"):format(what, name, text.describe(n)))
  end
  return n
end

--- A plain list, and its length by `n` where that is set.
--- Errors: TypeError for anything else, for keys that are no positions, and
---   for holes without `n`: where such a list ends is the engine's choice.
---@param what string   function, for messages
---@param name string   argument
---@param x any
---@param of? string    what the list should hold, "tensors"
---@return table, integer
function M.list(what, name, x, of)
  if not text.is_plain(x) then
    errors.raise("TypeError", ("%s: %s must be a list%s, got %s"):format(what,
      name, of and " of " .. of or "", text.describe(x)), of and type(x)
      ~= "string" and ("%s go in as one table: %s({ a, b }, ...)"):format(of,
      what:match("[^.:]*$")) or nil)
  end
  local n = length_of(what, name, x)
  if not is_sequence(x, n) then
    check_positions(what, name, x, n)
  end
  return x, n
end

--- The length of a list that may have holes: its field n, else #x.
--- Errors: TypeError for an n that is no length, and for keys that are no
---   positions, whose values nobody would look at.
function M.length(what, name, x)
  check_positions(what, name, x, math.huge)
  return length_of(what, name, x)
end

--- A whole number of any size, else TypeError/ValueError.
---@param what string   function, for messages
---@param name string   argument
---@param x any
---@return number
function M.whole(what, name, x)
  if type(x) ~= "number" then
    errors.raise("TypeError", ("%s: %s must be a whole number, got %s"):format(
      what, name, text.describe(x)))
  elseif not is_whole(x) then
    errors.raise("ValueError", ("%s: %s must be a whole number, got %s"):format(
      what, name, text.number(x)))
  end
  return x
end

--- A whole number of 64 bits in lo..hi (either may be nil), else
--- TypeError/ValueError.
---@param what string   function, for messages
---@param name string   argument
---@param x any
---@param lo? number
---@param hi? number
---@return integer
function M.integer(what, name, x, lo, hi)
  M.whole(what, name, x)
  if (lo and x < lo) or (hi and x > hi) then
    local range = lo and hi and ("in %d..%d"):format(lo, hi)
      or lo and ("at least %d"):format(lo) or ("at most %d"):format(hi)
    errors.raise("ValueError", ("%s: %s must be %s, got %s"):format(
      what, name, range, text.number(x)))
  elseif not text.is_int64(x) then
    errors.raise("ValueError", ("%s: %s must be a whole number of 64 bits, got "
      .. "%s"):format(what, name, text.number(x)))
  end
  return x
end

--- One of the strings in `choices`, in any case; returns it as listed.
---@param what string
---@param name string
---@param x any
---@param choices string[]
---@return string choice, integer position  position from 0
function M.choice(what, name, x, choices)
  local wanted = table.concat(choices, ", "):gsub("^,", '"",')
  if type(x) ~= "string" then
    errors.raise("TypeError", ("%s: %s must be one of %s, got %s"):format(
      what, name, wanted, text.describe(x)))
  end
  local lower = x:lower()
  for i = 1, #choices do
    if choices[i]:lower() == lower then
      return choices[i], i - 1
    end
  end
  local near = text.nearest(x, choices)
  errors.raise("ValueError", ("%s: %s must be one of %s, got %s"):format(
    what, name, wanted, text.quote(x)),
    near and "did you mean " .. near .. "?" or nil)
end

return M
