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
local errors = require "tfdist.errors"
local options = require "tfdist.options"
local text = require "tfdist.text"

local M = {}

local floor = math.floor
local WORD, SEED = 2 ^ 32, 2 ^ 53
local KEY = 2 ^ 21 -- upper part of a seed; what is above is the kind
local DEFAULT_SEED = 87654321 -- global seed of calls that have an op seed only

--- Kinds of streams.
M.STATELESS, M.SEQUENCE, M.OP, M.FRESH, M.GENERATOR = 0, 1, 2, 3, 4

local global_seed -- nil until set_seed
local fresh_seed  -- drawn when first needed
local calls = 0   -- without op seed since set_seed
local op_calls = {} -- [function .. op seed] = calls since set_seed

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

--- A seed as users give it.
--- Errors: TypeError, ValueError unless it is a whole number.
---@param what string   function, for messages
---@param seed any
---@return integer
function M.check(what, seed)
  return options.integer(what, "seed", seed)
end

--- The stream of the next call of a function: seed_lo, seed_hi, counter_lo,
--- counter_hi.
---@param what string        the function; calls of another do not count
---@param op_seed? integer
function M.next(what, op_seed)
  if op_seed == nil then
    calls = calls + 1
    if global_seed ~= nil then
      return M.stream(M.SEQUENCE, global_seed, calls)
    end
    fresh_seed = fresh_seed or M.entropy()
    return M.stream(M.FRESH, fresh_seed, calls)
  end
  local key = what .. text.number(M.check(what, op_seed))
  local count = op_calls[key] or 0
  op_calls[key] = count + 1
  local op_lo, op_hi = halves(op_seed)
  -- The whole counter is needed here: op seed below, number of calls above.
  local lo, hi = halves(global_seed or DEFAULT_SEED)
  return lo, hi + M.OP * KEY, op_lo, (count + op_hi * 2048) % WORD
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

--- The global seed, nil if none was set.
function M.global_seed()
  return global_seed
end

return M
