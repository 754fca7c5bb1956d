--- Run programs from specs, with their output, errors and exit code.
local M = {}

--- Folder of the build under test, TFDIST_BUILD or "build".
M.build = os.getenv("TFDIST_BUILD") or "build"

--- The two hosts by their engine's name.
M.hosts = {
  { name = "tfdist", path = M.build .. "/tfdist", lua = "lua5.4" },
  { name = "tfdist-luajit", path = M.build .. "/tfdist-luajit",
    lua = "luajit" },
}

--- One shell word.
function M.quote(s)
  return "'" .. s:gsub("'", "'\\''") .. "'"
end

local function take(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read("*a")
  f:close()
  os.remove(path)
  return text
end

--- Every line of a text, sorted: processes that print at once.
function M.lines(text)
  local list = {}
  for line in text:gmatch "[^\n]+" do
    list[#list + 1] = line
  end
  table.sort(list)
  return list
end

--- Write a temporary file; the caller removes it.
function M.file(text, suffix)
  local path = os.tmpname()
  if suffix then
    os.remove(path)
    path = path .. suffix
  end
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
  return path
end

--- Run a shell command line. Programs do not get the plug-ins that the specs
--- run with: those of an instrumented build fit no other.
---@param command string
---@param input? string what it reads from stdin
---@param seconds? integer  it is ended after (default 600: only a hung program
--- takes as long, however slow the machine is)
---@return table { out, err, code }
function M.run(command, input, seconds)
  local base = os.tmpname()
  local stdin = input and M.file(input) or "/dev/null"
  os.execute(("env -u TFDIST_PLUGINS -u TFDIST_SPEC_TYPE "
    .. "-u TFDIST_CUDA_STANDIN timeout -k 5 %d sh -c %s <%s >%s.out 2>%s.err; "
    .. "echo $? >%s.code"):format(
    seconds or 600, M.quote(command), stdin, base, base, base))
  if input then
    os.remove(stdin)
  end
  os.remove(base)
  return {
    out = take(base .. ".out"), err = take(base .. ".err"),
    code = tonumber(take(base .. ".code")),
  }
end

--- Run a program with arguments, each one shell word.
---@param program string
---@param arguments string[]
---@param input? string
function M.call(program, arguments, input)
  local words = { program }
  for _, word in ipairs(arguments) do
    words[#words + 1] = M.quote(word)
  end
  return M.run(table.concat(words, " "), input)
end

return M
