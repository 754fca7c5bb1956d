--- Calls that must raise one error object: its kind, its words, its place.
local errors = require "tfdist.base.errors"

local M = {}

-- Words that are for the library's authors, not for its users.
local INTERNAL = {
  "attempt to", "lua/tfdist", "bad argument", "op_run", "stack overflow",
}

-- An address; shorter runs of digits also stand in names of temporary files.
local ADDRESS = "0x" .. ("%x"):rep(8)

-- Functions that make the call for a test.
local helpers = {}

--- Lines of fn are good places too: it makes the call for the test.
function M.help(fn)
  helpers[#helpers + 1] = fn
end

local function is_line_of(fn, file, line)
  local info = debug.getinfo(fn, "S")
  return file == info.short_src and line >= info.linedefined
    and line <= info.lastlinedefined
end

local function is_place(where, fn)
  local file, line = tostring(where):match "^(.*):(%d+)$"
  line = tonumber(line)
  if line == nil then return false end
  for _, helper in ipairs(helpers) do
    if is_line_of(helper, file, line) then return true end
  end
  return is_line_of(fn, file, line)
end

--- Call fn, which must raise an error object of this kind whose text has all
--- the words, at a line of fn. Returns the error.
function M.check(label, kind, words, fn)
  local ok, e = pcall(fn)
  local function fail(format, ...)
    error(label .. ": " .. format:format(...), 0)
  end
  if ok then fail("raised nothing") end
  if not errors.is_error(e) then
    fail("raised a %s, %s", type(e), tostring(e))
  end
  local text = tostring(e)
  if e.kind ~= kind then fail("is no %s: %s", kind, text) end
  for _, word in ipairs(words) do
    if not text:find(word, 1, true) then fail("no %q in: %s", word, text) end
  end
  for _, word in ipairs(INTERNAL) do
    if text:find(word, 1, true) then fail("%q in: %s", word, text) end
  end
  if text:find(ADDRESS) then fail("an address in: %s", text) end
  if not is_place(e.where, fn) then
    fail("where is %s, the call is at line %d", tostring(e.where),
      debug.getinfo(fn, "S").linedefined)
  end
  return e
end

return M
