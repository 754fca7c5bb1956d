--- Files with random damage: whatever reads them gives a value or one error of
--- the right kind that names the file; nothing crashes, hangs, leaks or takes
--- memory for what is not there.
---
--- usage: tfdist spec/fuzz/files.lua [CALLS [SEED [CALL]]]
--- A call depends on SEED and its number only; with CALL just that one is made.
--- Prints "N calls, N errors, N violations"; exit status 1 after a violation,
--- which can be made again by its number.
--- TFDIST_FUZZ_STATE names a file that always holds seed and running call.

local counts_of = require "spec.support.live"
local notice = require "tfdist.base.notice"
local raw = require "tfdist.core.raw"
local rng_module = require "spec.fuzz.rng"
local samples = require "spec.fuzz.samples"

local total = tonumber(arg[1] or 2000)
local seed = tonumber(arg[2]) or require "spec.support.seed"
local only = tonumber(arg[3] or nil)

local DEADLINE = 5 -- CPU seconds that one call may take
local MEMORY = 64 * 1024 -- KiB of Lua's that one call may leave
local CALLS_PER_BLOCK = 200
local KINDS = { "tensor", "variable", "archive", "reader", "writer", "example",
  "input" }

local counts = { calls = 0, errors = 0, violations = 0 }

notice.warn = function() end

-- Damage ---------------------------------------------------------------------

local BYTES = { 0, 1, 2, 7, 8, 10, 34, 44, 45, 48, 57, 91, 93, 123, 125, 127,
  128, 254, 255 }
local NUMBERS = { "0", "-1", "1e400", "-0", "255", "65536", "4294967295",
  "9007199254740993", "18446744073709551616", "1.5", "1e308", "nan", "0x10",
  "999999999999", "2e9" }
local WORDS = { "null", "true", "{}", "[]", '""', '"v"', "\n", "\r\n", ",", '"',
  "(", ")", "'", "'<f8'", "\\u0000", "\\ud800", "e\n", "t float32 9 9\n" }

local function byte(rng)
  return string.char(rng:one_in(2) and rng:pick(BYTES) or rng:int(0, 255))
end

-- Puts `with` in place of n bytes after the first `at`.
local function splice(s, at, n, with)
  return s:sub(1, at) .. with .. s:sub(at + n + 1)
end

local function replace_number(rng, s)
  local places = {}
  for from, to in s:gmatch "()%d+()" do
    places[#places + 1] = { from, to }
  end
  if #places == 0 then return s end
  local place = rng:pick(places)
  return splice(s, place[1] - 1, place[2] - place[1], rng:pick(NUMBERS))
end

local CHANGES = {
  function(rng, s) return splice(s, rng:int(0, #s - 1), 1, byte(rng)) end,
  function(rng, s)
    local at = rng:int(1, #s)
    local b, bit = s:byte(at), 2 ^ rng:int(0, 7)
    b = math.floor(b / bit) % 2 == 1 and b - bit or b + bit
    return splice(s, at - 1, 1, string.char(b))
  end,
  function(rng, s) return s:sub(1, rng:int(0, #s)) end,
  function(rng, s) return s:sub(rng:int(1, #s)) end,
  function(rng, s) return splice(s, rng:int(0, #s), rng:int(0, 9), "") end,
  function(rng, s)
    local at = rng:int(0, #s)
    return splice(s, at, 0, s:sub(rng:int(1, #s), rng:int(1, #s)))
  end,
  function(rng, s) return splice(s, rng:int(0, #s), 0, byte(rng):rep(
    rng:one_in(9) and 5000 or rng:int(1, 9))) end,
  function(rng, s)
    return splice(s, rng:int(0, #s), 4, rng:pick { "\255\255\255\255",
      "\255\255\255\127", "\0\0\0\128", "\0\0\0\0", "\127\255\255\255" })
  end,
  function(rng, s) return splice(s, rng:int(0, #s), rng:int(0, 3),
    rng:pick(WORDS)) end,
  replace_number, replace_number,
}

local function damaged(rng, s)
  for _ = 1, rng:one_in(3) and rng:int(2, 6) or 1 do
    if #s > 0 then s = rng:pick(CHANGES)(rng, s) end
  end
  return s
end

-- Calls ----------------------------------------------------------------------

local folder = os.tmpname()
os.remove(folder)
raw.folder_make(folder)

local function violation(call, sample, format, ...)
  counts.violations = counts.violations + 1
  io.stderr:write(("VIOLATION seed %d call %d, %s\n  %s\n"):format(seed, call,
    sample.name, format:format(...)))
  io.stderr:flush()
end

local function write(path, content)
  local file = assert(io.open(path, "wb"))
  file:write(content)
  file:close()
end

local state_file = os.getenv "TFDIST_FUZZ_STATE"

local function play(call)
  if state_file ~= nil then
    write(state_file, ("%d %d\n"):format(seed, call))
  end
  local rng = rng_module.new(seed, call)
  local sample = rng:pick(samples.list)
  local content = rng:one_in(50) and sample.content
    or damaged(rng, sample.content)
  counts.calls = counts.calls + 1
  local memory, started = collectgarbage "count", os.clock()
  local fine, problem = samples.try(sample, folder, content)
  local took = os.clock() - started
  if not fine then counts.errors = counts.errors + 1 end
  if problem ~= nil then
    violation(call, sample, "%s", problem)
  elseif took > DEADLINE then
    violation(call, sample, "took %.1f s", took)
  elseif collectgarbage "count" - memory > MEMORY then
    violation(call, sample, "took %.0f MiB", (collectgarbage "count" - memory)
      / 1024)
  end
end

local function live()
  raw.collect() -- finalisers may drop the last reference to other handles
  return counts_of(KINDS)
end

local function play_block(first, last)
  for call = first, last do play(call) end
end

-- The library may keep something when a thing is used for the first time.
local function check_leaks(first, last)
  local before, calls, found = live(), counts.calls, counts.errors
  play_block(first, last)
  counts.calls, counts.errors = calls, found
  local after = live()
  for key, n in pairs(before) do
    if after[key] > n then
      violation(last, { name = "leak" }, "%s was %d, is %d after calls %d..%d",
        key, n, after[key], first, last)
    end
  end
end

if only then
  play_block(only, only)
else
  for first = 1, total, CALLS_PER_BLOCK do
    local last = math.min(first + CALLS_PER_BLOCK - 1, total)
    play_block(first, last)
    if first == 1 or math.floor(first / CALLS_PER_BLOCK) % 10 == 0 then
      check_leaks(first, last)
    end
  end
end
os.execute("rm -rf '" .. folder .. "'")
io.stdout:write(("%d calls, %d errors, %d violations (seed %d)\n"):format(
  counts.calls, counts.errors, counts.violations, seed))
io.stdout:flush()
os.exit(counts.violations == 0 and 0 or 1, true)
