--- Steps of one execution (steps_per_execution) without Lua between them: what
--- their graph takes is gathered batch by batch, then it runs on one after the
--- other from C.
---
--- Random numbers are drawn and optimizers asked for theirs when a batch is
--- added, between its fetch and the next one's, as where steps run one by one.
local concrete = require "tfdist.traced.concrete"
local errors = require "tfdist.base.errors"
local lists = require "tfdist.base.lists"
local notice = require "tfdist.base.notice"
local raw = require "tfdist.core.raw"
local text = require "tfdist.base.text"
local traced = require "tfdist.keras.training.traced"

local M = {}

local function clear(group)
  group.entry, group.n, group.examples = nil, 0, 0
  group.words, group.numbers, group.inputs = {}, {}, { n = 0 }
end

--- A group of steps of a mode ("train", "test", "predict") that has none yet.
function M.new(model, own, mode)
  local group = { model = model, own = own, mode = mode }
  clear(group)
  return group
end

-- One notice for each model that is compiled and each of its modes.
local function tell(group, why)
  local own = group.own
  own.steps_apart = own.steps_apart or {}
  if own.steps_apart[group.mode] then
    return
  end
  own.steps_apart[group.mode] = true
  notice.warn(("model %s: steps_per_execution = %d does not join steps, for "
    .. "%s_step %s"):format(text.quote(group.model.name),
    own.steps_per_execution, group.mode, why))
end

-- The calls' numbers: each is the next one's, though none has run yet.
local function append_numbers(group, entry)
  local words, numbers = concrete.next_call(entry, group)
  if #words > 0 then
    lists.append(group.words, words)
  end
  if #numbers > 0 then
    lists.append(group.numbers, numbers)
  end
end

--- Add the step of a batch of so many examples. False where it is to be run by
--- itself, or after those that are in the group.
function M.add(group, pack, examples)
  local own = group.own
  group.kept = group.kept or traced.graphs(group.model, own, group.mode)
  if group.kept == nil then
    return false
  end
  local entry, tensors = traced.known(group.kept, examples, pack)
  local why = entry ~= nil and concrete.why_alone(entry) or nil
  if why ~= nil then
    tell(group, why)
  end
  if entry == nil or why ~= nil
    or group.n > 0 and entry ~= group.entry then
    return false
  end
  group.entry = entry
  append_numbers(group, entry)
  local inputs = group.inputs
  for i = 1, tensors.n do
    inputs[inputs.n + i] = tensors[i]
  end
  inputs.n = inputs.n + tensors.n
  group.n, group.examples = group.n + 1, group.examples + examples
  return true
end

--- A step ran by itself: what the graphs were made with may be another now.
function M.interrupted(group)
  group.kept = nil
end

--- Run what was added; the group is empty then. Returns the calls: `n` of them,
--- `done` are through, and `failed` says why the next one is not.
function M.run(group)
  local own, entry = group.own, group.entry
  local calls = { entry = entry, n = group.n, inputs = group.inputs,
    results = { done = 0 }, examples = group.examples }
  local place = own.place
  own.builds_apart = false -- what has a graph is built
  if place ~= nil then
    raw.set_position(place.file, place.line)
  end
  local ok, e = pcall(raw.graph_calls, entry.handle, group.n, group.words,
    group.numbers, group.inputs, calls.results)
  calls.done = calls.results.done
  own.ran = traced.holds(group.kept, entry)
  clear(group)
  if not ok then
    if errors.is_error(e) and own.strategy.num_replicas_in_sync == 1 then
      e.replica = e.replica or 0
    end
    calls.failed = e
    M.interrupted(group)
  end
  return calls
end

--- What the step of call i (from 1) returned.
function M.ticket(calls, i)
  return concrete.result_of(calls.entry, i, calls.inputs, calls.results)
end

--- Wait for the calls in order. Returns nil, or the number of the first that
--- failed on its device and why.
function M.wait(calls)
  local each = calls.entry.outputs_n
  for i = 1, calls.done * each do
    local ok, e = pcall(raw.tensor_wait, calls.results[i])
    if not ok then
      return math.ceil(i / each), e
    end
  end
end

return M
