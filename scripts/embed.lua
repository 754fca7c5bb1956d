--- Write Lua files into one C source as text, for a single-file host.
---
--- usage: lua scripts/embed.lua SYMBOL OUT.c [NAME=FILE...] [-C ROOT FILE...]
---
--- The array SYMBOL lists module name, text and size, ends with a NULL name
--- and is sorted, so that equal inputs give equal bytes. With ROOT, module
--- names follow from the paths below it: ROOT/a/b.lua and ROOT/a/b/init.lua
--- are "a.b".

local function fail(...)
  io.stderr:write("embed: ", string.format(...), "\n")
  os.exit(1)
end

local function read_file(path)
  local f, why = io.open(path, "rb")
  if not f then fail("%s", why) end
  local text = f:read("*a")
  f:close()
  return text
end

local ESCAPES = { ["\n"] = "\\n\"\n\"", ["\""] = "\\\"", ["\\"] = "\\\\",
  ["\t"] = "\\t", ["?"] = "\\?" }

--- C string literal of any bytes, one source line for each text line.
local function literal(text)
  return '"' .. text:gsub('[%c"\\?\128-\255]', function(c)
    return ESCAPES[c] or ("\\%03o"):format(c:byte())
  end) .. '"'
end

local symbol, output = arg[1], arg[2]
if not output then fail("usage: embed.lua SYMBOL OUT.c FILES") end

local modules, root = {}, nil
local i = 3
while arg[i] do
  local name, path = arg[i]:match("^([%w_%.]+)=(.+)$")
  if arg[i] == "-C" then
    root = arg[i + 1]:gsub("/*$", "") .. "/"
    i = i + 1
  elseif name then
    modules[#modules + 1] = { name = name, path = path,
      file = path:match "[^/]*$" }
  else
    path = arg[i]
    if not root or path:sub(1, #root) ~= root then
      fail("%s is not below the -C folder", path)
    end
    name = path:sub(#root + 1):gsub("%.lua$", ""):gsub("/init$", "")
      :gsub("/", ".")
    modules[#modules + 1] = { name = name, path = path,
      file = path:sub(#root + 1) }
  end
  i = i + 1
end
table.sort(modules, function(a, b) return a.name < b.name end)

local out = {
  '/* Written by scripts/embed.lua. */\n#include "lua/embedded.h"\n',
}
for n, m in ipairs(modules) do
  m.text = read_file(m.path)
  if m.text:sub(1, 1) == "\27" then fail("%s is bytecode", m.path) end
  out[#out + 1] = ("static const char text_%d[] =\n%s;\n"):format(n,
    literal(m.text))
end
out[#out + 1] = ("const tfd__embedded %s[] = {"):format(symbol)
for n, m in ipairs(modules) do
  out[#out + 1] = ('    {"%s", "%s", text_%d, sizeof text_%d - 1},'):format(
    m.name, m.file, n, n)
end
out[#out + 1] = "    {NULL, NULL, NULL, 0},\n};\n"

local f, why = io.open(output, "wb")
if not f then fail("%s", why) end
f:write(table.concat(out, "\n"))
f:close()
