--- Saving and restoring where the variables are several workers'.
---
--- All workers save, for some variables are read together; the chief's file is
--- kept, and nobody goes on before it is there. What is restored the chief
--- decides, and all restore it.
local contexts = require "tfdist.distribute.contexts"
local distributed = require "tfdist.distribute.variables"
local errors = require "tfdist.base.errors"
local graphs = require "tfdist.train.object_graph"
local raw = require "tfdist.core.raw"
local reduce = require "tfdist.distribute.reduce"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"
local values = require "tfdist.distribute.values"

local M = {}

--- Below the folder of a BackupAndRestore: where the chief keeps its backup.
M.BACKUPS = "chief"

-- What was saved last: the name here, the one that the chief wrote, and how far
-- training was, nil where that is not known.
local last, told, place

function errors.hooks.last_saved()
  return told and place and told .. ", " .. place or told
end

--- The checkpoint of this name is no longer there.
function M.forget(path)
  if path == last then
    last, told, place = nil, nil, nil
  end
end

--- How far training was when the last checkpoint was saved, by who knows it
--- better than its graph does: "after epoch 2".
function M.saved_at(words)
  place = words
end

-- As the optimizer counts, where the graph has one.
local function place_of(graph)
  local found
  for _, node in ipairs(graph) do
    if node.used and graphs.is_variable(node.object)
      and ("/" .. node.path):find "/iterations$" then
      if found ~= nil then
        return nil
      end
      found = node.object
    end
  end
  return found and "after step " .. text.number(found:read_value():item())
end

-- The checkpoint is there, whether its place can be told or not.
local function remember(graph, path, name)
  local ok, words = errors.attempt(place_of, graph)
  last, told, place = path, name, ok and words or nil
end

--- The strategy in force, else that of the variables of a graph; nil for none.
function M.strategy_of(graph)
  if contexts.has_strategy() then
    return contexts.get_strategy()
  end
  for _, node in ipairs(graph) do
    local found = graphs.is_variable(node.object)
      and values.strategy_of(node.object)
    if found then
      return found
    end
  end
  return nil
end

--- Does this process write what a graph's variables hold?
function M.is_writer(graph)
  local strategy = M.strategy_of(graph)
  local extended = strategy and strategy.extended
  return extended == nil or extended.should_checkpoint ~= false
end

local function of_workers(graph)
  local strategy = M.strategy_of(graph)
  return strategy ~= nil and strategy.over_workers and strategy or nil
end

--- Are the variables of a graph several workers'?
function M.is_shared(graph)
  return of_workers(graph) ~= nil
end

--- Is the flag true on any worker? Every worker calls it.
---@param strategy table|nil
---@param flag boolean
function M.any(strategy, flag)
  if not (strategy and strategy.over_workers) then
    return flag
  end
  return reduce.over_hosts(strategy, "max", "agreement", { flag and 1 or 0 })[1]
    > 0
end

--- The value of each replica's copy of a variable that replicas keep apart, of
--- all workers; nil for others.
function M.copies(v)
  local parts = distributed.parts(v)
  local strategy = parts and values.strategy_of(v)
  local list = {}
  for i, copy in ipairs(parts or {}) do
    list[i] = copy:read_value()
  end
  if strategy == nil or not strategy.over_workers then
    return parts and list
  end
  for i, t in ipairs(list) do
    list[i] = tf.expand_dims(t, 0)
  end
  list.n = #list
  return tf.unstack(raw.value_component(raw.strategy_gather(strategy.handle, 0,
    "checkpoint", list, { strategy.replica_devices[1] }, 0), 0))
end

--- Which of the saved copies of a variable are those of the replicas here: the
--- first one's place and how many; nil when they are of another number.
function M.own_copies(v, count)
  local parts, strategy = distributed.parts(v), values.strategy_of(v)
  if parts == nil or count ~= (strategy.over_workers
    and strategy.num_replicas_in_sync or #parts) then
    return nil
  end
  return strategy.over_workers and strategy.first_replica or 0, #parts
end

-- "DataLoss" and a message in one text.
local function as_text(e)
  e = errors.wrap(e)
  return errors.is_error(e) and e.kind .. "\n" .. e.message
    or "RuntimeError\n" .. errors.text_of(e)
end

-- What the chief died of, on the others.
local function fail_with_chief(what, said)
  local e = errors.new("Aborted", ("%s: the chief could not: %s"):format(what,
    (said:gsub("\n", ": ", 1))))
  e.exit_code = errors.EXIT_PEER_FAILED
  error(e, 0)
end

-- What the chief says, on all workers. Its own error, if it has one, is what it
-- dies of: those that heard of it may have ended before it knows that they did.
local function hear(strategy, what, said, ok, why)
  local heard, theirs = pcall(reduce.chiefs_text, strategy, what, said)
  if not ok then
    error(why, 0)
  elseif not heard then
    error(theirs, 0)
  end
  return theirs
end

--- Call write(), on the chief alone, which puts the checkpoint in its place
--- `path`; no worker goes on before it is done.
--- Errors: those of write on the chief; Aborted with them on the others.
function M.write(graph, what, path, write)
  local strategy = of_workers(graph)
  local ok, why = true, nil
  if M.is_writer(graph) then
    ok, why = pcall(write)
  end
  if strategy == nil then
    if not ok then error(why, 0) end
    remember(graph, path, path)
    return
  end
  local said = hear(strategy, what, ok and "+" .. path or "-" .. as_text(why),
    ok, why)
  if said:sub(1, 1) == "-" then
    fail_with_chief(what, said:sub(2))
  end
  remember(graph, path, said:sub(2))
end

--- The name that choose() gives on the chief, nil for none; all workers get it
--- and then restore it, which may make variables, all at once. choose() does
--- nothing together with other workers.
--- Errors: those of choose on the chief; Aborted with them on the others.
function M.choose(graph, what, choose)
  local strategy = of_workers(graph)
  local ok, name, said = true, nil, ""
  if strategy.role.worker_index == 0 then
    ok, name = pcall(choose)
    said = ok and (name and "+" .. name or "") or "-" .. as_text(name)
  end
  said = hear(strategy, what, said, ok, name)
  if said:sub(1, 1) == "-" then
    fail_with_chief(what, said:sub(2))
  end
  return said ~= "" and said:sub(2) or nil
end

return M
