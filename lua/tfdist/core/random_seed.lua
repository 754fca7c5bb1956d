--- Which random stream a call draws from.
---
--- A stream is four 32-bit numbers, a Philox key and the upper half of its
--- counter; different ones are independent, so they need no mixing, only to be
--- different. The key holds a 53-bit seed and, in its 11 upper bits, what kind
--- of seed it is, so that streams of different kinds never meet.
---
--- The rule is TensorFlow's:
---   op seed   global seed
---   no        no            fresh numbers in every run of the program
---   no        yes           the k-th call after set_seed draws the same
---                           numbers in every run
---   yes       no / yes      the k-th call of that function with that op seed
---                           (since set_seed) draws the same numbers
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local options = require "tfdist.base.options"
local pairs = require "tfdist.base.pairs"
local text = require "tfdist.base.text"
local tracing = require "tfdist.core.tracing"

local M = {}

local floor = math.floor
local WORD, SEED = 2 ^ 32, 2 ^ 53
local KEY = 2 ^ 21 -- upper part of a seed; what is above is the kind
local DEFAULT_SEED = 87654321 -- global seed of calls that have an op seed only

--- Kinds of streams; 5 and 6 are those of data sets, 8 that of traces.
M.STATELESS, M.SEQUENCE, M.OP, M.FRESH, M.GENERATOR = 0, 1, 2, 3, 4
local OWN = 7 -- of sequences of their own
local TRACE = 8 -- no op ever draws from it

local global_seed -- nil until set_seed
local fresh_seed  -- drawn when first needed
local calls = 0   -- without op seed since set_seed
local op_calls = {} -- [function .. op seed] = calls since set_seed
local sequence -- that counts calls without op seed in the program's place
local apart = false -- do draws of layers being built not count?
local worker = 0 -- whose replicas draw now

-- Replicas of different workers make the same calls: each worker has as many
-- numbers of its own. Calls with an op seed have 32 bits for theirs.
local CALLS_OF_A_WORKER, OP_CALLS_OF_A_WORKER = 2 ^ 44, 2 ^ 24

local function copied(counts)
  local out = {}
  for key, count in pairs(counts) do
    out[key] = count
  end
  return out
end

local function halves(seed)
  seed = seed % SEED
  local high = floor(seed / WORD)
  return seed - high * WORD, high
end

--- The stream of a kind, a seed and a number within it: seed_lo, seed_hi,
--- counter_lo, counter_hi as the random ops take them.
---@param kind integer
---@param seed integer     the lower 53 bits count
---@param number integer   the lower 53 bits count
function M.stream(kind, seed, number)
  local seed_lo, seed_hi = halves(seed)
  local number_lo, number_hi = halves(number)
  return seed_lo, seed_hi + kind * KEY, number_lo, number_hi
end

--- 53 bits that nobody can foresee.
---@return integer
function M.entropy()
  local file = io.open("/dev/urandom", "rb")
  local bytes = file and file:read(7)
  if file then
    file:close()
  end
  if bytes == nil or #bytes < 7 then
    -- Not secret, but different from run to run: time and an address.
    local address = tonumber(tostring({}):match("0x(%x+)") or "0", 16) or 0
    return (os.time() * 1048576 + floor(os.clock() * 1e6) + address) % SEED
  end
  local value = 0
  for i = 1, 7 do
    value = value * 256 % SEED + bytes:byte(i)
  end
  return value % SEED
end

--- A seed as users give it, of any size: of one beyond 64 bits, the bits that
--- count.
--- Errors: TypeError, ValueError unless it is a whole number.
---@param what string   function, for messages
---@param seed any
---@param name? string  argument, "seed" unless given
---@return integer
function M.check(what, seed, name)
  options.whole(what, name or "seed", seed)
  return text.is_int64(seed) and seed or seed % SEED
end

--- Number of a draw among those of all workers: those that replicas of one make
--- are not those of another.
---@param number integer
---@return integer
function M.of_worker(number)
  return number + worker * CALLS_OF_A_WORKER
end

local function next_call()
  calls = calls + 1
  local number = M.of_worker(calls)
  if global_seed ~= nil then
    return M.stream(M.SEQUENCE, global_seed, number)
  end
  return M.stream(M.FRESH, M.fresh(), number)
end

--- The seed of numbers that nobody can foresee; `given`: use this one.
function M.fresh(given)
  fresh_seed = given or fresh_seed or M.entropy()
  return fresh_seed
end

--- From now on replicas of this worker draw (0 = the first, or none); returns
--- the one before.
function M.draw_for(index)
  local before = worker
  worker = index
  return before
end

-- Its seed is the program's next number when it draws for the first time, or
-- what was the next one where it begins.
local function next_of(own)
  if own.seed == nil then
    local outer = M.enter(nil)
    local seed = own.make_seed({ next_call() })
    own.seed = own.from and own.from.seed or seed
    M.enter(outer)
  end
  own.calls = own.calls + 1
  return M.stream(OWN, own.seed,
    own.calls + own.worker * CALLS_OF_A_WORKER)
end

-- It counts from where the program was when it began with the key, or where it
-- begins.
local function next_op_call(own, key)
  local from = own.from and own.from.op_calls or op_calls
  own.op_calls[key] = own.op_calls[key] or from[key] or 0
  local n = own.op_counts[key] or 0
  own.op_counts[key] = n + 1
  return own.op_calls[key] + n
end

local function next_words(what, op_seed)
  if op_seed == nil and sequence ~= nil then
    return next_of(sequence)
  elseif op_seed == nil then
    return next_call()
  end
  local key = what .. text.number(M.check(what, op_seed))
  local count = op_calls[key] or 0
  if sequence ~= nil then
    count = next_op_call(sequence, key)
  end
  op_calls[key] = math.max(op_calls[key] or 0, count + 1)
  local op_lo, op_hi = halves(op_seed)
  -- The whole counter is needed here: op seed below, number of calls above.
  local lo, hi = halves(global_seed or DEFAULT_SEED)
  return lo, hi + M.OP * KEY, op_lo,
    (count + worker * OP_CALLS_OF_A_WORKER + op_hi * 2048) % WORD
end

--- The words that fn() gives; inside a trace such as stand for those that it
--- gives at each call, in the sequence that numbers come from at the trace.
---@param fn function
function M.at_each_call(fn)
  if tracing.current() == nil then
    return fn()
  end
  local own, index = sequence, worker
  return tracing.draw(function()
    local before, other = M.enter(own), M.draw_for(index)
    local words = lists.of(fn())
    M.draw_for(other)
    M.enter(before)
    return words[1], words[2], words[3], words[4]
  end, M.stream(TRACE, 0, tracing.draw_number()))
end

--- The stream of the next call of a function: seed_lo, seed_hi, counter_lo,
--- counter_hi.
---@param what string        the function; calls of another do not count
---@param op_seed? integer
function M.next(what, op_seed)
  if tracing.current() == nil then
    return next_words(what, op_seed)
  end
  if op_seed ~= nil then
    M.check(what, op_seed)
  end
  return M.at_each_call(function()
    return next_words(what, op_seed)
  end)
end

--- Two seeds of a stateless function: a list of two whole numbers or an
--- integer tensor of shape {2}.
--- Errors: TypeError, ValueError, InvalidArgument for anything else.
---@param what string
---@param seed any
---@param integers fun(x, what, name):integer[]
function M.pair(what, seed, integers)
  if seed == nil then
    errors.raise("TypeError", what .. ": missing argument seed",
      what .. "(..., { seed = { 1, 2 } })")
  end
  tracing.need_seed(what, "seed", seed)
  local list = integers(seed, what, "seed")
  if #list ~= 2 then
    errors.raise("InvalidArgument", ("%s: seed must be two whole numbers, "
      .. "got %d"):format(what, #list), what .. "(..., { seed = { 1, 2 } })")
  end
  return M.stream(M.STATELESS, list[1], list[2])
end

--- Set the global seed and start all sequences again.
--- Errors: TypeError, ValueError unless it is a whole number.
--- Source: tf.random.set_seed
---@param seed integer
function M.set_seed(seed)
  global_seed = M.check("random.set_seed", seed)
  calls, op_calls = 0, {}
end

local function is_counts(x)
  local good = text.is_plain(x)
  for _, count in pairs(good and x or {}) do
    good = good and text.is_whole(count)
  end
  return good
end

local function no_state(saved)
  errors.raise("ValueError", "this is no state of random numbers: "
    .. text.describe(saved))
end

-- Sequences of their own -------------------------------------------------------

--- A sequence of numbers that depends on nothing that others draw meanwhile;
--- make_seed(stream) gives a whole number below 2^53. `drawn` is what M.drawn
--- said of another one that this one repeats. Sequences of other workers with
--- the same seed have other numbers, unless the global seed is set: then they
--- have the same.
--- Errors: ValueError for what M.drawn cannot have said.
function M.sequence(make_seed, drawn, worker_index)
  local own = { calls = 0, op_calls = {}, op_counts = {},
    make_seed = make_seed,
    worker = global_seed == nil and worker_index or 0 }
  if drawn ~= nil then
    if not (text.is_plain(drawn) and is_counts(drawn.op_calls)
      and (drawn.seed == nil or text.is_int64(drawn.seed))) then
      no_state(drawn)
    end
    own.seed, own.op_calls = drawn.seed, copied(drawn.op_calls)
  end
  return own
end

--- Where the program is now, plain values: a sequence that begins there draws
--- what one would that draws next.
function M.position(make_seed)
  return { op_calls = copied(op_calls), seed = M.aside(function()
    return make_seed({ next_call() })
  end) }
end

--- The sequence, which has drawn nothing, begins at such a position, wherever
--- the program is by then; nil = where that is.
--- Errors: ValueError for what M.position cannot have said.
function M.begin_at(own, position)
  if position ~= nil and not (text.is_plain(position)
    and is_counts(position.op_calls) and text.is_int64(position.seed)) then
    no_state(position)
  end
  own.from = position
end

--- From now on draws come from this sequence, nil = the program's; returns the
--- one before.
function M.enter(own)
  local before = sequence
  sequence = own
  return before
end

--- What a sequence began with, plain values; nil when nothing was drawn.
function M.drawn(own)
  if own.seed == nil and next(own.op_calls) == nil then
    return nil
  end
  return { seed = own.seed, op_calls = copied(own.op_calls) }
end

local function put_back(old_calls, old_op_calls, old_sequence, ok, ...)
  calls, op_calls, sequence = old_calls, old_op_calls, old_sequence
  if not ok then
    error((...), 0)
  end
  return ...
end

--- Call fn so that what it draws counts for nobody else.
function M.aside(fn, ...)
  local old_calls, old_op_calls, old_sequence = calls, op_calls, sequence
  op_calls, sequence = copied(op_calls), nil
  return put_back(old_calls, old_op_calls, old_sequence, pcall(fn, ...))
end

local function joined(...)
  apart = false
  return ...
end

--- As pcall(fn, ...), but layers that are built meanwhile draw aside: their
--- values come from a checkpoint, which knows what they drew.
function M.builds_apart(fn, ...)
  apart = true
  return joined(pcall(fn, ...))
end

--- Call what builds a layer.
function M.build(fn, ...)
  if apart then
    return M.aside(fn, ...)
  end
  return fn(...)
end

-- State ------------------------------------------------------------------------

--- Where all sequences of the program are, as plain values.
function M.state()
  return { global = global_seed, fresh = M.fresh(), calls = calls,
    op_calls = copied(op_calls) }
end

--- Go on as the program that state() was called in.
--- Errors: ValueError.
function M.restore(saved)
  if not (text.is_plain(saved) and text.is_int64(saved.fresh)
    and text.is_int64(saved.calls) and is_counts(saved.op_calls)
    and (saved.global == nil or text.is_int64(saved.global))) then
    no_state(saved)
  end
  global_seed, fresh_seed, calls = saved.global, saved.fresh, saved.calls
  op_calls = copied(saved.op_calls)
end

--- The global seed, nil if none was set.
function M.global_seed()
  return global_seed
end

return M
