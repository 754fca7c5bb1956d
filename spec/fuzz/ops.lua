--- Random calls with random arguments: nothing may crash, hang, leak, leave
--- stacks of devices or tapes changed, or raise anything but an error object.
---
--- usage: tfdist spec/fuzz/ops.lua [CALLS [SEED [EPISODE]]]
--- Calls come in episodes of 50 that depend on SEED and their number only;
--- with EPISODE just that one runs and each call is printed before it is made.
--- Prints "N calls, N errors" at the end; exit status 1 after a violation.
--- TFDIST_FUZZ_STATE names a file that always holds the running episode.

local catalogue = require "spec.fuzz.catalogue"
local counts_of = require "spec.support.live"
local errors = require "tfdist.base.errors"
local moves = require "spec.fuzz.moves"
local raw = require "tfdist.core.raw"
local rng_module = require "spec.fuzz.rng"
local state = require "tfdist.core.state"
local tf = require "tfdist"
local values = require "spec.fuzz.values"

local CALLS_PER_EPISODE = 50
local EPISODES_PER_BLOCK = 20
local DEADLINE = 10 -- CPU seconds that one call may take
local ROUNDS = 8
local KINDS = { "tensor", "variable", "slices", "tape", "walk", "context" }

local total = tonumber(arg[1] or 10000)
local seed = tonumber(arg[2]) or require "spec.support.seed"
local only = tonumber(arg[3] or nil)

-- What is printed goes nowhere.
rawset(_G, "print", function() end)
local stdout, stderr = io.stdout, io.stderr
local sink = { write = function() return true end }
rawset(io, "stdout", sink)
rawset(io, "stderr", sink)

local HERE = "^%.?/?spec/"
local known_kinds = {}
for name, kind in pairs(tf.errors) do
  if type(kind) == "string" and name == kind then known_kinds[kind] = true end
end

local counts = { calls = 0, errors = 0, violations = 0 }
local by_kind, succeeded = {}, {}
local where_now = ""

local function violation(call, format, ...)
  counts.violations = counts.violations + 1
  stderr:write(("VIOLATION seed %d %s\n  %s\n  %s\n"):format(seed, where_now,
    call, format:format(...)))
  stderr:flush()
end

-- Checks ---------------------------------------------------------------------

-- Wording that no message to users may have.
local BAD_WORDS = {
  "attempt to index", "attempt to call", "attempt to perform",
  "attempt to compare", "attempt to concatenate", "attempt to get length",
  "lua/tfdist", "userdata:", "table: 0x", "function: 0x",
  "bad argument", 'field or method "n"', "fault: gradient", "stack overflow",
  "not enough memory", "userdata: 0x",
}

local function check_error(call, e)
  if values.is_own_error(e) then return end
  if not errors.is_error(e) then
    violation(call, "raised a %s: %s", type(e),
      type(e) == "string" and e or tostring(e))
    return
  end
  counts.errors = counts.errors + 1
  by_kind[e.kind] = (by_kind[e.kind] or 0) + 1
  local text = tostring(e)
  if not known_kinds[e.kind] or e.kind == "Internal" then
    violation(call, "raised kind %s: %s", tostring(e.kind), text)
  elseif type(e.message) ~= "string" or e.message == "" then
    violation(call, "an error without message: %s", text)
  elseif e.where == nil or not e.where:find(HERE) then
    violation(call, "where is %s: %s", tostring(e.where), text)
  elseif #text > 12000 then
    violation(call, "a message of %d bytes: %s", #text, text:sub(1, 300))
  end
  for _, words in ipairs(BAD_WORDS) do
    if text:find(words, 1, true) then
      violation(call, "wording: %s", text)
      return
    end
  end
end

local function check_stacks(call)
  if raw.device_depth() ~= 0 then
    violation(call, "device stack has %d entries", raw.device_depth())
    while raw.device_depth() > 0 do raw.device_pop() end
  end
  if raw.tape_active() ~= 0 then
    violation(call, "%d tapes still record", raw.tape_active())
    collectgarbage()
    raw.context_enter(raw.context_new())
  end
  if state.current.name_scope ~= "" or state.current.creators ~= nil then
    violation(call, "name scope %q or creators are left",
      state.current.name_scope)
    state.current.name_scope, state.current.creators = "", nil
  end
end

-- What came back must be usable; queued failures come out here.
local function check_results(call, list)
  for i = 1, list.n do
    local x = list[i]
    values.close(x)
    if type(x) == "userdata" and raw.kind(x) == "tensor"
      and not raw.is_released(x) then
      local ok, e = pcall(raw.tensor_wait, x)
      if not ok then
        check_error(call, e)
      elseif raw.tensor_size(x) < 50 then
        ok, e = pcall(tostring, x)
        if not ok then violation(call, "tostring: %s", tostring(e)) end
      end
    end
  end
end

local function pack(...) return { n = select("#", ...), ... } end

-- One call -------------------------------------------------------------------

local function run(v, rng)
  local made, call, fn = pcall(moves.next, v, rng, catalogue)
  counts.calls = counts.calls + 1
  if not made then
    -- A queued failure of an earlier call reached what arguments come from.
    -- What the fuzz itself does wrong must not pass for that.
    if type(call) == "string" and call:find "attempt to" then
      violation("arguments", "cannot be made: %s", call)
    else
      check_error("arguments", call)
    end
    for i in pairs(v.pool) do v.pool[i] = nil end
    return false
  end
  if only then
    stdout:write(where_now, "  ", call, "\n")
    stdout:flush()
  end
  values.budget = 50
  local started = os.clock()
  local results = pack(pcall(fn))
  local took = os.clock() - started
  if took > DEADLINE then violation(call, "took %.1f s", took) end
  if results[1] then
    local name = call:match "^[^(]*"
    succeeded[name] = (succeeded[name] or 0) + 1
    check_results(call, results)
    for i = 2, math.min(results.n, 4) do v:keep(results[i]) end
  else
    check_error(call, results[2])
  end
  check_stacks(call)
  return results[1]
end

-- Episodes -------------------------------------------------------------------

local function differing(before, after)
  for key, n in pairs(before) do
    if after[key] ~= n then return key, n, after[key] end
  end
end

-- A finaliser may drop what only the next collection finds.
local function live()
  local now = counts_of(KINDS)
  for _ = 1, ROUNDS do
    local last = now
    now = counts_of(KINDS)
    if not differing(last, now) then break end
  end
  return now
end

local function play(episode)
  local rng = rng_module.new(seed, episode)
  local v = values.new(rng)
  tf.random.set_seed(episode)
  for i = 1, CALLS_PER_EPISODE do
    where_now = ("episode %d call %d"):format(episode, i)
    run(v, rng)
  end
  tf.random.set_global_generator(tf.random.Generator.from_seed(1))
  tf.keras.backend.set_floatx "float32"
  tf.keras.backend.set_epsilon(1e-7)
  tf.keras.backend.clear_session()
  -- A failure of one device is told before the others are waited for.
  for _ = 0, raw.device_count "" do
    if pcall(tf.sync_devices) then break end
  end
end

-- The library may keep something when a thing is used for the first time, not
-- the second time.
local function play_checked(episode)
  local saved = { counts.calls, counts.errors }
  play(episode)
  local before = live()
  play(episode)
  local key, was, is = differing(before, live())
  if key then
    violation("leak", "%s was %d, is %d after the episode", key, was, is)
  end
  counts.calls, counts.errors = saved[1], saved[2]
end

-- Collections are slow: one for many episodes; when something is left, which
-- one left it.
local function play_block(first, last, note)
  local before = live()
  for episode = first, last do
    note(episode)
    play(episode)
  end
  if differing(before, live()) then
    for episode = first, last do play_checked(episode) end
  end
end

local state_file = os.getenv "TFDIST_FUZZ_STATE"

local function note_episode(episode)
  if state_file == nil then return end
  local file = assert(io.open(state_file, "w"))
  file:write(("%d %d %d %d\n"):format(seed, episode, counts.calls,
    counts.errors))
  file:close()
end

-- What kinds of errors there were, and what never succeeded.
local function statistics()
  for kind, n in pairs(by_kind) do stdout:write(kind, " ", n, "\n") end
  for _, list in ipairs { catalogue.ops, catalogue.functions } do
    for _, entry in ipairs(list) do
      if not succeeded[entry.name] then
        stdout:write("never succeeded: ", entry.name, "\n")
      end
    end
  end
end

local function main()
  if only then
    play(only)
  else
    local episodes = math.ceil(total / CALLS_PER_EPISODE)
    for first = 1, episodes, EPISODES_PER_BLOCK do
      play_block(first, math.min(first + EPISODES_PER_BLOCK - 1, episodes),
        note_episode)
    end
  end
  if os.getenv "TFDIST_FUZZ_STATISTICS" then
    statistics()
  end
  stdout:write(("%d calls, %d errors, %d violations (seed %d)\n"):format(
    counts.calls, counts.errors, counts.violations, seed))
  stdout:flush()
  os.exit(counts.violations == 0 and 0 or 1, true)
end

main()
