--- Whether all workers hold the same weights, told by a checksum of each: only
--- where one differs are the values themselves compared.
---
--- Cost: each worker's weights are read once by its host, at the speed of its
--- memory; a few bytes go over the network.
local distributed = require "tfdist.distribute.variables"
local errors = require "tfdist.base.errors"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"

local M = {}

-- Those that updates keep equal, each by its copy on this worker's first device.
local function shared(model)
  local list, copies = {}, {}
  for _, v in ipairs(model.variables) do
    if distributed.is_equal_everywhere(v) then
      list[#list + 1] = v
      copies[#copies + 1] = values.is_mirrored(v) and values.component(v, 0) or v
    end
  end
  return list, copies
end

local function checksums(model)
  local variables, copies = shared(model)
  local list = { variables = variables, copies = copies }
  for i, copy in ipairs(copies) do
    list[i] = raw.tensor_crc(raw.operand_tensor(copy))
  end
  return list
end

local FACTOR, PRIME = 65599, 4294967291 -- products have less than 53 bits

--- A few words that are the same where all weights are.
function M.digest(model)
  local list, hash = checksums(model), 7
  for i = 1, #list do
    hash = (hash * FACTOR + list[i]) % PRIME
  end
  return ("%d %.0f"):format(#list, hash)
end

local function all_equal(list)
  for i = 2, #list do
    if list[i] ~= list[1] then
      return false
    end
  end
  return true
end

-- 2^-23 and so on: what one rounding is of a number.
local ROUNDING = { float64 = 2 ^ -52, float32 = 2 ^ -23, float16 = 2 ^ -10,
  bfloat16 = 2 ^ -7 }
local ROUNDINGS = 8 -- the most that one step may differ by

-- Machines with other instructions may round a step's update apart, each step by
-- itself: so far do copies drift at most.
local function drift(run, dtype)
  local known, steps = errors.attempt(function()
    return run.own.optimizer.iterations:read_value():item()
  end)
  return (ROUNDING[dtype] or 0) * ROUNDINGS * math.sqrt(64 + (known and steps
    or 0))
end

-- Does mine differ from the chief's by more than that?
local function differs(run, mine, chiefs)
  local dtype = raw.tensor_dtype(mine)
  if not ROUNDING[dtype] then
    return tf.reduce_any(tf.not_equal(mine, chiefs)):item()
  end
  mine, chiefs = tf.cast(mine, "float64"), tf.cast(chiefs, "float64")
  local nan = tf.not_equal(mine, mine)
  local same = tf.logical_or(tf.equal(mine, chiefs), tf.logical_and(nan,
    tf.not_equal(chiefs, chiefs)))
  local zero = tf.zeros_like(mine)
  local size = tf.abs(chiefs)
  size = tf.reduce_max(tf.where(tf.less(size, math.huge), size, zero))
  local far = tf.greater(tf.abs(tf.subtract(mine, chiefs)),
    tf.multiply(size, drift(run, dtype)))
  far = tf.logical_or(far, nan)
  far = tf.logical_or(far, tf.not_equal(chiefs, chiefs))
  return tf.reduce_any(tf.logical_and(far, tf.logical_not(same))):item()
end

-- "3 5": the variables, by number, of which this worker has other values than
-- the chief. Every worker calls it.
local function compare(run, own, others)
  local strategy, found = run.own.strategy, {}
  for i = 1, #own do
    local crcs = {}
    for k, list in ipairs(others) do
      crcs[k] = list[i]
    end
    if not all_equal(crcs) then
      local mine = tf.reshape(raw.operand_tensor(own.copies[i]), { -1 })
      local chiefs = reduce.chiefs_tensor(strategy, "fit", mine)
      if crcs[strategy.role.worker_index + 1] ~= crcs[1]
        and differs(run, mine, chiefs) then
        found[#found + 1] = i
      end
    end
  end
  return table.concat(found, " ")
end

local function numbers(words)
  local list = {}
  for word in words:gmatch "%S+" do
    list[#list + 1] = tonumber(word)
  end
  return list
end

local function split_all(list)
  local all = {}
  for i, words in ipairs(list) do
    all[i] = numbers(words)
  end
  return all
end

-- The first variable that differs anywhere, and where; nil for none.
local function first_of(verdicts)
  local first, workers = math.huge, {}
  for i, list in ipairs(verdicts) do
    for _, at in ipairs(list) do
      if at < first then
        first, workers = at, {}
      end
      if at == first then
        workers[#workers + 1] = i - 1
      end
    end
  end
  return first < math.huge and first or nil, workers
end

local function complain(when, name, workers, more)
  errors.raise("FailedPrecondition", ("%s variable %s of %s %s has other values "
    .. "than the chief's%s; the workers would train apart"):format(when,
    text.quote(name), #workers > 1 and "workers" or "worker",
    table.concat(workers, ", "), more),
    "what callbacks and scripts assign must be the same on all workers: of "
    .. "values that all have, as the logs of fit are, or in calls that all make")
end

--- Compare weights where the digests of the workers are not all the same. Every
--- worker calls it.
--- Errors: FailedPrecondition naming the variable and the workers.
---@param run table
---@param when string       "fit: at its end"
---@param digests string[]  each worker's
function M.check(run, when, digests)
  if all_equal(digests) then
    return
  end
  for i, each in ipairs(digests) do
    local mine, chiefs = each:match "^%d+", digests[1]:match "^%d+"
    if mine ~= chiefs then
      errors.raise("FailedPrecondition", ("%s worker %d has %s variables; the "
        .. "chief has %s"):format(when, i - 1, mine, chiefs), "all workers have "
        .. "to train the same model")
    end
  end
  local strategy, own = run.own.strategy, checksums(run.model)
  local others = split_all(reduce.each_text(strategy, "fit", table.concat(own,
    " ")))
  local verdicts = split_all(reduce.each_text(strategy, "fit", compare(run, own,
    others)))
  local first, workers = first_of(verdicts)
  if first ~= nil then
    local count = 0
    for _, list in ipairs(verdicts) do
      count = math.max(count, #list)
    end
    complain(when, own.variables[first].name, workers, count > 1
      and (", and so for %d more"):format(count - 1) or "")
  end
end

return M
