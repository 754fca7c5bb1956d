--- Read the public header, with the parts that it includes, and write both
--- bindings.
---
--- usage: lua scripts/genbind.lua src/tfdist.h OUT_DIR
---
--- Writes OUT_DIR/bind_gen.c, the C-API wrappers for either engine, and
--- OUT_DIR/ffi.lua, LuaJIT's cdef text with wrappers over the whole API.
--- What a declaration means follows from its form:
---
---   tfd_tensor *t               open handle, checked, borrowed
---   tfd_tensor **t_p            result: a new reference (devices: borrowed)
---   int64_t *n_p, double *x_p   result: a number
---   const int64_t *xs, int xs_n list; likewise double and handles
---   const void *p, size_t p_bytes  Lua string
---   const void **x_p, size_t *x_bytes_p  result: a Lua string; NULL is nil
---   any enum                    lower-case string without the common prefix
---   returns int                 status, unless the name is a quantity:
---                               see PLAIN_WORDS
---   "NULL =" in the comment     the handle in backquotes, or the only one,
---                               may be nil
---
--- Whatever fits none of these and is not in SKIP stops the build.

-- Last words of names whose int result is a quantity, not a status.
local PLAIN_WORDS = {
  rank = true, count = true, depth = true, size = true, threads = true,
  active = true, replica = true, ordinal = true, index = true,
}

-- Functions with a hand-written face, and why none can be generated.
local SKIP = {
  tfd_retain = "the binding's slots own the references",
  tfd_release = "the binding's slots own the references",
  tfd_error_message = "failures become error objects",
  tfd_error_hint = "failures become error objects",
  tfd_error_replica = "failures become error objects",
  tfd_error_where = "failures become error objects",
  tfd_error_note = "failures become error objects",
  tfd_error_op = "failures become error objects",
  tfd_error_argument = "failures become error objects",
  tfd_error_bound = "failures become error objects",
  tfd_error_exit_code = "failures become error objects",
  tfd_context_set_position = "the file name must outlive the call",
  tfd_tensor_read = "the buffer's size follows from the tensor",
  tfd_tensor_values = "the buffer's size follows from the tensor",
  tfd_tensor_data = "a pointer; FFI only",
  tfd_op_run = "the array of outputs has no natural size",
  tfd_op_call = "the array of outputs has no natural size",
}

local function fail(...)
  io.stderr:write("genbind: ", string.format(...), "\n")
  os.exit(1)
end

local function trim(s) return (s:gsub("^%s+", ""):gsub("%s+$", "")) end

local function squeeze(s) return trim((s:gsub("%s+", " "))) end

-- --- reading ----------------------------------------------------------------

local function read_file(path)
  local f = io.open(path, "rb") or fail("cannot open %s", path)
  local text = f:read("*a")
  f:close()
  return text
end

--- A header's text with what it includes in quotes in place of the includes.
local function read_whole(path)
  local folder = path:match "^(.*/)" or ""
  return (read_file(path):gsub('(\n)#include "([^"]+)"', function(start, name)
    return start .. read_file(folder .. name)
  end))
end

--- Enumerators of one enum body: list of { name, value }.
local function read_enumerators(body)
  local list, value = {}, -1
  for item in body:gmatch("[^,]+") do
    local name, explicit = item:match("^%s*([%w_]+)%s*=%s*(-?%d+)%s*$")
    name = name or item:match("^%s*([%w_]+)%s*$")
    if name then
      value = explicit and tonumber(explicit) or value + 1
      list[#list + 1] = { name = name, value = value }
    elseif trim(item) ~= "" then
      return nil -- made by a macro; no function takes such an enum
    end
  end
  return list
end

--- The longest common prefix that ends in an underscore.
local function common_prefix(list)
  local prefix = list[1].name
  for _, e in ipairs(list) do
    while e.name:sub(1, #prefix) ~= prefix do
      prefix = prefix:sub(1, -2)
    end
  end
  return prefix:match("^(.*_)") or ""
end

local function read_enums(text)
  local enums, order = {}, {}
  for body, name in text:gmatch("typedef%s+enum%s+[%w_]+%s*(%b{})%s*([%w_]+);")
  do
    local list = read_enumerators((body:sub(2, -2):gsub("#[^\n]*", "")))
    if list then
      local prefix = common_prefix(list)
      local kept = {}
      for _, e in ipairs(list) do
        if not e.name:match("_END$") and not e.name:match("_KINDS$") then
          e.text = e.name:sub(#prefix + 1):lower()
          kept[#kept + 1] = e
        end
      end
      enums[name] = kept
      order[#order + 1] = name
    end
  end
  return enums, order
end

local function read_parameters(text)
  local list = {}
  if squeeze(text) == "void" then return list end
  for item in text:gmatch("[^,]+") do
    local ctype, name = squeeze(item):match("^(.-)([%w_]+)$")
    list[#list + 1] = { ctype = trim(ctype), name = name }
  end
  return list
end

--- { functions, handles, enums } of a header's text.
local function read_header(text)
  local header = { functions = {}, handles = {}, docs = {} }
  header.enums, header.enum_order =
    read_enums((text:gsub("/%*.-%*/", "")))
  for name in text:gmatch("\ntypedef%s+struct%s+([%w_]+)%s+[%w_]+;") do
    header.handles[name] = true
  end
  -- A doc comment belongs to the declaration that follows it directly.
  text = text:gsub("/%*%*(.-)%*/", function(doc)
    header.docs[#header.docs + 1] = squeeze(doc:gsub("\n%s*%*", " "))
    return "\1" .. #header.docs .. "\2"
  end)
  text = text:gsub("/%*.-%*/", ""):gsub("#define[^\n]*", "")
  for doc, ret, name, params in
    text:gmatch("(\1?%d*\2?)%s*TFD_API%s+([%w_%s%*]-)([%w_]+)(%b())%s*;") do
    local number = doc:match("\1(%d+)\2")
    header.functions[#header.functions + 1] = {
      name = name, ret = squeeze(ret), params = read_parameters(
        params:sub(2, -2)),
      doc = number and header.docs[tonumber(number)] or "",
    }
  end
  return header
end

-- --- understanding ----------------------------------------------------------

local NUMBERS = { int = true, int64_t = true, double = true, float = true,
  uint32_t = true, int32_t = true, size_t = true }

local function handle_of(header, ctype)
  local name = ctype:match("^const ([%w_]+) %*$")
    or ctype:match("^([%w_]+) %*$")
  if name and header.handles[name] then return name end
  return nil
end

local function result_kind(header, p)
  if not p.name:match("_p$") then return nil end
  local name = p.ctype:match("^([%w_]+) %*%*$")
  if name and header.handles[name] then return "handle", name end
  name = p.ctype:match("^([%w_]+) %*$")
  if name and NUMBERS[name] then return "number", name end
  if name == "bool" then return "bool", name end
  if name and header.enums[name] then return "enum", name end
  if p.ctype == "const char **" then return "string", name end
  return nil
end

local LISTS = { ["const int64_t *"] = "ints", ["const double *"] = "reals" }

--- Meaning of parameter i of f: a table with `as`, or nil.
local function meaning(header, f, i)
  local p, after = f.params[i], f.params[i + 1]
  if after and p.ctype == "const void **" and after.ctype == "size_t *"
    and after.name == p.name:gsub("_p$", "_bytes_p") then
    return { as = "out", out = "bytes", name = p.name, takes = 2 }
  end
  local as, of = result_kind(header, p)
  if as then return { as = "out", out = as, of = of, name = p.name } end
  if after and after.name == p.name .. "_n" then
    local list = LISTS[p.ctype]
    local handle = p.ctype:match("^([%w_]+) %*const %*$")
    if handle and header.handles[handle] then
      return { as = "handles", of = handle, name = p.name, takes = 2,
        count = after.ctype }
    elseif list then
      return { as = list, name = p.name, takes = 2, count = after.ctype }
    end
    return nil
  end
  if after and after.name == p.name .. "_bytes"
    and p.ctype == "const void *" then
    return { as = "bytes", name = p.name, takes = 2 }
  end
  local handle = handle_of(header, p.ctype)
  if handle then return { as = "handle", of = handle, name = p.name } end
  if header.enums[p.ctype] then
    return { as = "enum", of = p.ctype, name = p.name }
  end
  if p.ctype == "bool" then return { as = "bool", name = p.name } end
  if p.ctype == "const char *" then return { as = "string", name = p.name } end
  if p.ctype == "double" then return { as = "real", name = p.name } end
  if NUMBERS[p.ctype] then
    return { as = "int", of = p.ctype, name = p.name }
  end
  return nil
end

local function return_meaning(header, f, outs)
  if f.ret == "void" or f.ret == "bool" or f.ret == "double" then
    return f.ret
  elseif f.ret == "int64_t" then
    return "integer"
  elseif f.ret == "const char *" then
    return "string"
  elseif header.enums[f.ret] then
    return "enum"
  elseif f.ret == "int" then
    local word = f.name:match("([%w]+)$")
    local setter = f.name:find("_set_", 1, true)
    if PLAIN_WORDS[word] and outs == 0 and not setter then
      return "integer"
    end
    return "status"
  end
  return nil
end

--- Handles that the comment allows to be NULL.
local function mark_optional(f)
  local note = f.doc:find("NULL =", 1, true)
  if not note then return end
  local handles = {}
  for _, a in ipairs(f.args) do
    if a.as == "handle" then handles[#handles + 1] = a end
  end
  for _, a in ipairs(handles) do
    local quoted = f.doc:find("`" .. a.name .. "`", 1, true)
    if #handles == 1 or (quoted and quoted < note) then a.optional = true end
  end
end

local function understand(header)
  local list, declared = {}, {}
  for _, f in ipairs(header.functions) do declared[f.name] = true end
  for name in pairs(SKIP) do
    if not declared[name] then fail("SKIP names %s, which is gone", name) end
  end
  for _, f in ipairs(header.functions) do
    if not SKIP[f.name] then
      local i, outs = 1, 0
      f.args = {}
      while i <= #f.params do
        local a = meaning(header, f, i)
        if not a then
          fail("%s: cannot translate parameter '%s %s'", f.name,
            f.params[i].ctype, f.params[i].name)
        end
        if a.as == "out" then outs = outs + 1 end
        f.args[#f.args + 1] = a
        i = i + (a.takes or 1)
      end
      f.outs = outs
      for _, a in ipairs(f.args) do
        if outs > 1 and a.out == "handle" then
          fail("%s: a handle among several results", f.name)
        end
      end
      f.returns = return_meaning(header, f, outs)
      if not f.returns then fail("%s: cannot translate '%s'", f.name, f.ret) end
      f.short = f.name:gsub("^tfd_", "")
      mark_optional(f)
      list[#list + 1] = f
    end
  end
  return list
end

-- --- names in messages ------------------------------------------------------

local function class_name(kind)
  return (kind:sub(1, 1):upper() .. kind:sub(2))
end

--- "Tensor:item" for methods, else the plain name.
local function display_name(f)
  local first = f.args[1]
  local kind = first and first.as == "handle" and first.of:gsub("^tfd_", "")
  if kind and f.short:sub(1, #kind + 1) == kind .. "_" then
    return class_name(kind) .. ":" .. f.short:sub(#kind + 2), true
  end
  return f.short, false
end

-- --- C ----------------------------------------------------------------------

local C = {}

local function kind_constant(header, handle)
  local kind = handle:gsub("^tfd_", "")
  for _, e in ipairs(header.enums.tfd_handle_kind) do
    if e.text == kind then return e.name end
  end
  return "TFD_HANDLE_KINDS"
end

--- Declarations, reading code and call text of one argument.
function C.argument(header, f, a, index, label)
  local arg = ("&(tfd__lua_arg){%s, \"%s\", %d, %s}"):format(label, a.name,
    index, tostring(a.self == true))
  if a.as == "handle" then
    local get = a.optional and "tfd__lua_handle_or_nil" or "tfd__lua_handle"
    return ("%s *%s = %s(L, %s,\n      %s);"):format(a.of, a.name, get,
      kind_constant(header, a.of), arg), a.name
  elseif a.as == "ints" or a.as == "reals" or a.as == "handles" then
    local reader = { ints = "int", reals = "real", handles = "handle" }
    local kind = a.as == "handles" and kind_constant(header, a.of) .. ", " or ""
    f.lists = (f.lists or "") .. ("  tfd__lua_%s_list(L, %s%s, &%s);\n")
      :format(reader[a.as], kind, arg, a.name)
    local cast = a.as == "handles" and ("(%s *const *)"):format(a.of) or ""
    return ("tfd__lua_%s %s;"):format(a.as, a.name),
      ("%s%s.p, (%s)%s.n"):format(cast, a.name, a.count, a.name)
  elseif a.as == "bytes" then
    return ("size_t %s_bytes = 0;\n  const void *%s = tfd__lua_bytes(L, %s,"
      .. "\n      &%s_bytes);"):format(a.name, a.name, arg, a.name),
      a.name .. ", " .. a.name .. "_bytes"
  elseif a.as == "enum" then
    return ("%s %s = (%s)tfd__lua_enum_arg(L, names_%s,\n      %s);")
      :format(a.of, a.name, a.of, a.of, arg), a.name
  elseif a.as == "int" then
    return ("int64_t %s = tfd__lua_int(L, %s);"):format(a.name, arg),
      a.of == "int64_t" and a.name or ("(%s)%s"):format(a.of, a.name)
  end
  local ctype = { bool = "bool ", real = "double ", string = "const char *" }
  return ("%s%s = tfd__lua_%s(L, %s);"):format(ctype[a.as], a.name, a.as, arg),
    a.name
end

--- Range check for C ints, which Lua numbers may exceed.
function C.range(f, a, label)
  if a.as ~= "int" or a.of == "int64_t" then return "" end
  local low = a.of == "size_t" and "0" or "INT32_MIN"
  f.uses_range = true
  return ("  check_range(L, %s, %s, \"%s\", %s);\n"):format(a.name, label,
    a.name, low)
end

--- Declaration, call text and pushing code of one result.
function C.result(a)
  local name = a.name
  if a.out == "handle" then
    local device = a.of == "tfd_device"
    local push = device
      and ("  tfd__lua_push_device(L, %s);\n"):format(name)
      or ("  %s_slot->object = (tfd_object *)%s;\n  SEAL_%s(L, %s_slot);\n")
        :format(name, name, a.of == "tfd_tensor" and "TENSOR" or "ANY", name)
    return ("  %s *%s = NULL;\n"):format(a.of, name), push,
      not device and ("  tfd__slot *%s_slot = NULL;\n"):format(name),
      ("  %s_slot = %s(L);\n"):format(name, a.of == "tfd_tensor"
        and "tfd__lua_tensor_slot" or "tfd__lua_slot")
  elseif a.out == "enum" then
    return ("  %s %s = (%s)0;\n"):format(a.of, name, a.of),
      ("  tfd__lua_push_enum(L, names_%s, (int)%s);\n"):format(a.of, name)
  elseif a.out == "bool" then
    return ("  bool %s = false;\n"):format(name),
      ("  lua_pushboolean(L, %s);\n"):format(name)
  elseif a.out == "bytes" then
    return ("  const void *%s = NULL;\n  size_t %s_bytes = 0;\n"):format(name,
      name), ("  tfd__lua_push_bytes(L, %s, %s_bytes);\n"):format(name, name)
  elseif a.out == "string" then
    return ("  const char *%s = NULL;\n"):format(name),
      ("  tfd__lua_push_string(L, %s);\n"):format(name)
  end
  local real = a.of == "double" or a.of == "float"
  return ("  %s %s = 0;\n"):format(a.of, name),
    real and ("  lua_pushnumber(L, %s);\n"):format(name)
    or ("  lua_pushinteger(L, (lua_Integer)%s);\n"):format(name)
end

local PUSH = {
  bool = "lua_pushboolean(L, %s)",
  double = "lua_pushnumber(L, %s)",
  integer = "lua_pushinteger(L, (lua_Integer)%s)",
  string = "tfd__lua_push_string(L, %s)",
}

--- Code that calls f and leaves its results on the stack.
function C.call(f, call, pushes, early)
  if f.returns == "status" then
    local makes = f.makes and not f.doc:find("Blocks:", 1, true)
      or f.doc:find("call it again after ResourceExhausted", 1, true)
    return ("%s  %s(L, %s);\n%s  return %d;\n"):format(early,
      makes and "TFD_LUA_TRY_TWICE" or "TFD_LUA_TRY", call,
      table.concat(pushes), f.outs)
  elseif f.returns == "void" then
    return ("  %s;\n%s  return %d;\n"):format(call, table.concat(pushes),
      f.outs)
  elseif f.returns == "enum" then
    return ("  tfd__lua_push_enum(L, names_%s, (int)%s);\n  return 1;\n")
      :format(f.ret, call)
  end
  return ("  %s;\n  return 1;\n"):format(PUSH[f.returns]:format(call))
end

-- Where the script is, before work is queued that may fail later, or other
-- processes may be met: those of a strategy, or of what one argument has copies
-- in.
local function place(f)
  local argument = f.doc:match "Meets: the other processes of `([%w_]+)`"
  if argument ~= nil then
    return ("  tfd__lua_note_reads(L, &%s, 1);\n"):format(argument)
  end
  return f.doc:find("Meets:", 1, true) and "  tfd__lua_note_meeting(L);\n"
    or f.doc:find("Queues:", 1, true) and "  tfd__lua_note_position(L);\n" or ""
end

function C.wrapper(header, f)
  local shown, method = display_name(f)
  local label = '"' .. shown .. '"'
  local declare, checks, calls, pushes, early = {}, {}, {}, {}, {}
  local index = 0
  for i, a in ipairs(f.args) do
    if a.as == "out" then
      local decl, push, slot, make = C.result(a)
      declare[#declare + 1] = decl
      if slot then
        declare[#declare + 1] = slot
        early[#early + 1] = make
        f.makes = true
      end
      pushes[#pushes + 1] = push
      calls[#calls + 1] = "&" .. a.name
      if a.out == "bytes" then
        calls[#calls + 1] = "&" .. a.name .. "_bytes"
      end
    else
      index = index + 1
      a.self = method and i == 1
      local decl, text = C.argument(header, f, a, index, label)
      declare[#declare + 1] = "  " .. decl .. "\n"
      checks[#checks + 1] = C.range(f, a, label)
      calls[#calls + 1] = text
    end
  end
  local call = f.name .. "(" .. table.concat(calls, ", ") .. ")"
  local slow = f.returns == "status" or index > 1
  return table.concat {
    "static int bind_", f.short, "(lua_State *L) {\n",
    table.concat(declare), "\n",
    f.returns == "void" and index == 0 and f.outs == 0 and "  (void)L;\n"
      or "",
    slow and index > 0 and ("  lua_settop(L, %d);\n"):format(index) or "",
    f.returns == "status" and "  TFD_LUA_ENTER(L);\n" or "",
    place(f),
    f.lists or "", table.concat(checks),
    C.call(f, call, pushes, table.concat(early)), "}\n",
  }
end

local function c_enums(header, out)
  for _, name in ipairs(header.enum_order) do
    out[#out + 1] = ("static const tfd__lua_enum names_%s[] = {"):format(name)
    for _, e in ipairs(header.enums[name]) do
      out[#out + 1] = ("    {\"%s\", %s},"):format(e.text, e.name)
    end
    out[#out + 1] = "    {NULL, 0},\n};\n"
  end
  out[#out + 1] = "const char *const tfd__lua_kinds[TFD_HANDLE_KINDS] = {"
  for _, e in ipairs(header.enums.tfd_handle_kind) do
    out[#out + 1] = ("    [%s] = \"%s\","):format(e.name, e.text)
  end
  out[#out + 1] = "};\n"
  out[#out + 1] = "void tfd__lua_enums(lua_State *L) {"
  out[#out + 1] = "  const tfd__lua_enum *e = NULL;\n\n  lua_newtable(L);"
  for _, name in ipairs(header.enum_order) do
    out[#out + 1] = ("  lua_newtable(L);\n  for (e = names_%s; "
      .. "e->name != NULL; e++) {\n    lua_pushinteger(L, e->value);\n"
      .. "    lua_setfield(L, -2, e->name);\n  }\n"
      .. "  lua_setfield(L, -2, \"%s\");"):format(name,
        (name:gsub("^tfd_", "")))
  end
  out[#out + 1] = "  lua_setfield(L, -2, \"enums\");\n}\n"
end

local C_HEAD = [[
/* Written by scripts/genbind.lua from src/tfdist.h. */
#include "lua/bind.h"

#define SEAL_TENSOR(L, s)                                                      \
  do {                                                                         \
    if ((s)->object == NULL) {                                                 \
      lua_pop(L, 1);                                                           \
      lua_pushnil(L);                                                          \
    }                                                                          \
    tfd__lua_pressure(L);                                                      \
  } while (0)
#define SEAL_ANY(L, s) tfd__lua_seal(L, s)

TFD_UNUSED
static void check_range(lua_State *L, int64_t x, const char *function,
                        const char *name, int64_t low) {
  if (x < low || x > INT32_MAX)
    tfd__lua_error(L, "ValueError", NULL,
                   "%s: argument \"%s\" is out of range: %lld", function, name,
                   (long long)x);
}
]]

local function write_c(header, functions)
  local out = { C_HEAD }
  c_enums(header, out)
  for _, f in ipairs(functions) do out[#out + 1] = C.wrapper(header, f) end
  out[#out + 1] = "const luaL_Reg tfd__lua_generated[] = {"
  for _, f in ipairs(functions) do
    out[#out + 1] = ("    {\"%s\", bind_%s},"):format(f.short, f.short)
  end
  out[#out + 1] = "    {NULL, NULL},\n};"
  return table.concat(out, "\n") .. "\n"
end

-- --- LuaJIT FFI -------------------------------------------------------------

local F = {}

function F.cdef(header, text)
  local out = {
    "typedef struct tfd__slot { struct tfd_object *object; uint32_t life; }"
      .. " tfd__slot;",
    "typedef struct tfd__handle { const void *tag; tfd__slot *slot;"
      .. " uint32_t life; } tfd__handle;",
  }
  for name in text:gmatch("\ntypedef%s+struct%s+([%w_]+)%s+[%w_]+;") do
    out[#out + 1] = ("typedef struct %s %s;"):format(name, name)
  end
  for _, name in ipairs(header.enum_order) do
    out[#out + 1] = ("typedef int %s;"):format(name)
  end
  for _, f in ipairs(header.functions) do
    local params = {}
    for _, p in ipairs(f.params) do
      params[#params + 1] = p.ctype:gsub("([%w])$", "%1 ") .. p.name
    end
    out[#out + 1] = ("%s %s(%s);"):format(f.ret, f.name,
      #params == 0 and "void" or table.concat(params, ", "))
  end
  return table.concat(out, "\n")
end

local FFI_CTYPE = {
  ["int"] = "int[1]", int64_t = "int64_t[1]", double = "double[1]",
  float = "float[1]", bool = "bool[1]", size_t = "size_t[1]",
  uint32_t = "uint32_t[1]", int32_t = "int32_t[1]",
}

--- Lua expression that gives argument a's C value.
function F.argument(a, label)
  if a.as == "handle" then
    return ("%s(%s, %q, %s, %q)"):format(a.optional and "handle_or_nil"
      or "handle", a.name, (a.of:gsub("^tfd_", "")), label, a.name)
  elseif a.as == "ints" then
    return ("ints(%s)"):format(a.name)
  elseif a.as == "reals" then
    return ("reals(%s)"):format(a.name)
  elseif a.as == "handles" then
    return ("handles(%s, %q)"):format(a.name, a.of .. " *[?]")
  elseif a.as == "bytes" then
    return ("%s, #%s"):format(a.name, a.name)
  elseif a.as == "enum" then
    return ("enum(%q, %s, %s, %q)"):format((a.of:gsub("^tfd_", "")), a.name,
      label, a.name)
  elseif a.as == "bool" then
    return a.name .. " and true or false"
  end
  return a.name
end

function F.result(a)
  local cell = "cell_" .. a.name
  if a.out == "handle" then
    return ("new(%q)"):format(a.of .. " *[1]"), ("adopt(%s)"):format(cell)
  elseif a.out == "enum" then
    return 'new("int[1]")', ("enum_name(%q, %s[0])"):format(
      (a.of:gsub("^tfd_", "")), cell)
  elseif a.out == "string" then
    return 'new("const char *[1]")', ("text(%s[0])"):format(cell)
  elseif a.out == "bytes" then
    return 'new("const void *[1]"), new("size_t[1]")',
      ("bytes(%s[0], size_%s[0])"):format(cell, a.name)
  elseif a.out == "bool" then
    return 'new("bool[1]")', cell .. "[0]"
  end
  return ("new(%q)"):format(FFI_CTYPE[a.of]), ("tonumber(%s[0])"):format(cell)
end

local LUA_KEYWORDS = { ["repeat"] = true, ["end"] = true, ["function"] = true,
  ["in"] = true, ["not"] = true, ["or"] = true, ["and"] = true, ["nil"] = true,
  ["local"] = true, ["then"] = true, ["until"] = true }

function F.wrapper(f)
  local names, cells, args, lists, results = {}, {}, {}, {}, {}
  local shown = display_name(f)
  local label = ("%q"):format(shown)
  for _, a in ipairs(f.args) do
    if LUA_KEYWORDS[a.name] then a.name = a.name .. "_" end
    if a.as == "out" then
      local cell, value = F.result(a)
      local size = a.out == "bytes" and ", size_" .. a.name or ""
      cells[#cells + 1] = ("  local cell_%s%s = %s\n"):format(a.name, size,
        cell)
      results[#results + 1] = value
      args[#args + 1] = "cell_" .. a.name .. size
    else
      names[#names + 1] = a.name
      local text = F.argument(a, label)
      if a.takes == 2 and a.as ~= "bytes" then
        -- Two values only survive in the last place of a call.
        lists[#lists + 1] = ("  local list_%s, count_%s = %s\n"):format(a.name,
          a.name, text)
        text = ("list_%s, count_%s"):format(a.name, a.name)
      end
      args[#args + 1] = text
    end
  end
  local call = ("C.%s(%s)"):format(f.name, table.concat(args, ", "))
  local body
  if f.returns == "status" then
    body = ("  local code = %s\n  if code ~= 0 then fail(code) end\n"
      .. "  return %s\n"):format(call, table.concat(results, ", "))
  elseif f.returns == "void" then
    body = ("  %s\n  return %s\n"):format(call, table.concat(results, ", "))
  elseif f.returns == "integer" then
    body = ("  return tonumber(%s)\n"):format(call)
  elseif f.returns == "string" then
    body = ("  return text(%s)\n"):format(call)
  elseif f.returns == "enum" then
    body = ("  return enum_name(%q, %s)\n"):format((f.ret:gsub("^tfd_", "")),
      call)
  else
    body = ("  return %s\n"):format(call)
  end
  return ("function M.%s(%s)\n%s%s%send\n"):format(f.short,
    table.concat(names, ", "), table.concat(cells), table.concat(lists), body)
end

local FFI_HEAD = [=[
-- Written by scripts/genbind.lua from src/tfdist.h.
local ffi = require "ffi"

--- Wrappers of the whole C API that take and give the same objects as
--- everything else. `support` comes from tfdist.ffi.
local function build(C, support)
  local M = {}
  local new, handle, adopt, fail = ffi.new, support.handle, support.adopt,
    support.fail
  local handle_or_nil, handles = support.handle_or_nil, support.handles
  local ints, reals, text = support.ints, support.reals, support.text
  local bytes = support.bytes
  local enum, enum_name = support.enum, support.enum_name

%s
  return M
end

return build
]=]

local function write_ffi(functions)
  local out = {}
  for _, f in ipairs(functions) do
    out[#out + 1] = (F.wrapper(f):gsub("[^\n]+", "  %0"))
  end
  return FFI_HEAD:format(table.concat(out, "\n"))
end

-- --- main -------------------------------------------------------------------

local function write_file(path, text)
  local f = io.open(path, "wb") or fail("cannot write %s", path)
  f:write(text)
  f:close()
end

local input, directory = arg[1], arg[2]
if not directory then fail("usage: genbind.lua HEADER OUT_DIR") end
local text = read_whole(input)
local header = read_header(text)
local declared = select(2, text:gsub("\nTFD_API", ""))
if declared ~= #header.functions then
  fail("%d functions declared, %d understood", declared, #header.functions)
end
local functions = understand(header)
write_file(directory .. "/bind_gen.c", write_c(header, functions))
write_file(directory .. "/ffi_declarations.h", F.cdef(header, text))
write_file(directory .. "/ffi_wrappers.lua", write_ffi(functions))
