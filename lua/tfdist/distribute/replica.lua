--- Running a function on every replica, and what replicas do together.
---
--- Replicas are coroutines, resumed in replica order, in lock-step at sync
--- points: a replica that reaches one yields a request; when all wait at the
--- same one, the request of replica 0 is answered in cross-replica context and
--- all go on. The C side keeps the turns and each replica's context.
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.errors"
local options = require "tfdist.options"
local raw = require "tfdist.raw"
local state = require "tfdist.state"
local text = require "tfdist.text"
local values = require "tfdist.distribute.values"

local M = {}

local coroutine, select, type = coroutine, select, type
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local Context = { __name = "ReplicaContext" }

local STOP = {} -- what a replica gets to hear when another one has failed

local function pack(...)
  return { n = select("#", ...), ... }
end

local function is_context(x)
  return getmetatable(x) == Context
end

-- One run --------------------------------------------------------------------

local function new_replica(strategy, shared, id, fn, args, kwargs)
  local context = setmetatable({
    replica_id_in_sync_group = id, strategy = strategy, shared = shared,
  }, Context)
  local own = state.new(state.current)
  own.mode = { strategy = strategy, replica = context }
  local inbox = values.select_replica(args, id)
  inbox.n = args.n or #args
  if kwargs ~= nil then
    inbox.n = inbox.n + 1
    inbox[inbox.n] = values.select_replica(kwargs, id)
  end
  local replica = { id = id, state = own, inbox = inbox }
  replica.thread = coroutine.create(fn)
  context.thread = replica.thread
  return replica
end

-- The replica's error on its way out: who it was, and the frames of both
-- coroutines.
local function describe_error(replica, e)
  local e_text = type(e) == "string"
  local outer = errors.traceback(2):gsub("^stack traceback:\n?", "")
  e = errors.wrap(e)
  if not errors.is_error(e) or e.from_run then
    return e
  end
  if e_text then
    e.traceback = errors.traceback(0, replica.thread)
  end
  e.replica = e.replica or replica.id
  e.traceback = e.traceback .. "    (run on replica " .. replica.id .. ")"
    .. (outer ~= "" and "\n" .. outer or "")
  e.from_run = true
  return e
end

-- Note what the coroutine did; returns true, or false and its error.
local function note(replica, ok, ...)
  replica.inbox, replica.request = nil, nil
  local first, request = ...
  if not ok then
    return false, first
  elseif coroutine.status(replica.thread) == "dead" then
    replica.results = pack(...)
    return true
  elseif first ~= STOP then
    return false, errors.new("RuntimeError", "strategy:run: the replica "
      .. "function yielded outside of a sync point",
      "wrap its own coroutines in coroutine.wrap inside the function")
  end
  replica.request = request
  return true
end

local function resume(replica)
  local inbox = replica.inbox
  local before = state.swap(replica.state)
  local ok, e = note(replica,
    coroutine.resume(replica.thread, unpack(inbox, 1, inbox.n)))
  state.swap(before)
  return ok, e
end

-- Wake those that wait so that their own clean-up runs; what they raise is
-- not news.
local function stop_others(run, replicas)
  raw.run_cancel(run)
  while true do
    local event, id = raw.run_next(run)
    if event ~= "resume" then
      return
    end
    local replica = replicas[id + 1]
    replica.state.mode.replica.stopped = true
    replica.inbox = { STOP, n = 1 }
    resume(replica)
    raw.run_stopped(run, "")
  end
end

local function fail(run, replicas, e)
  stop_others(run, replicas)
  raw.release(run)
  error(e, 0)
end

local function where_of(replica)
  if replica.request == nil then
    return ""
  end
  return contexts.where(replica.thread) or ""
end

local function diverged(run, replicas, id)
  local ok, e = pcall(raw.run_diverge, run, id, where_of(replicas[1]),
    where_of(replicas[id + 1]))
  if ok then
    e = errors.new("Internal", "strategy:run: replicas differ")
  end
  fail(run, replicas, e)
end

-- Answer the request that all replicas made, in cross-replica context.
local function answer(run, strategy, replicas)
  local payloads = { n = #replicas }
  for i = 1, #replicas do
    payloads[i] = replicas[i].request.payload
  end
  local own = state.current
  local name_scope = own.name_scope
  own.name_scope = replicas[1].state.name_scope
  local ok, replies = pcall(replicas[1].request.answer, strategy, payloads)
  own.name_scope = name_scope
  if not ok then
    fail(run, replicas, errors.wrap(replies))
  end
  for i = 1, #replicas do
    local reply = replies and replies[i]
    replicas[i].inbox = { nil, reply, n = 2 }
  end
end

--- Call fn on each replica of the strategy; its scope must be entered.
--- Returns a list with n of what each replica returned (lists with n).
function M.run(strategy, fn, args, kwargs)
  local shared = { variables = {} }
  local replicas = {}
  local run = raw.run_begin(strategy.handle)
  for i = 1, strategy.num_replicas_in_sync do
    replicas[i] = new_replica(strategy, shared, i - 1, fn, args, kwargs)
  end
  while true do
    local event, id = raw.run_next(run)
    if event == "resume" then
      local replica = replicas[id + 1]
      local ok, e = resume(replica)
      if not ok then
        fail(run, replicas, describe_error(replica, e))
      end
      raw.run_stopped(run, replica.request and replica.request.point or "")
    elseif event == "merge" then
      answer(run, strategy, replicas)
    elseif event == "diverged" then
      diverged(run, replicas, id)
    else
      break
    end
  end
  raw.release(run)
  local packs = {}
  for i = 1, #replicas do
    packs[i] = replicas[i].results
  end
  return packs
end

-- Sync points ----------------------------------------------------------------

local function stopped(context)
  errors.raise("Cancelled", ("replica %d stops because another replica failed")
    :format(context.replica_id_in_sync_group))
end

local function received(context, signal, reply)
  if signal == STOP then
    stopped(context)
  end
  return reply
end

--- Wait until every replica has come here. `point` names the operation with
--- all that must agree; replica 0's answer(strategy, payloads) is called in
--- cross-replica context and returns a list of one reply per replica, or nil.
--- Errors: RuntimeError when replicas meet at different points.
function M.sync(context, point, payload, answer_fn)
  local strategy = context.strategy
  if context.thread == nil then
    local replies = contexts.with_mode({ strategy = strategy }, answer_fn,
      strategy, { payload, n = 1 })
    return replies and replies[1]
  elseif context.stopped then
    stopped(context)
  elseif coroutine.running() ~= context.thread then
    errors.raise("RuntimeError", point .. ": a sync point inside a coroutine "
      .. "of the replica function's own", "call it from the function itself")
  end
  local request = { point = point, payload = payload, answer = answer_fn }
  return received(context, coroutine.yield(STOP, request))
end

--- Call fn here as the only replica (id 0); returns what it returns.
function M.run_inline(strategy, fn, args, kwargs)
  local context = setmetatable({
    replica_id_in_sync_group = 0, strategy = strategy,
    shared = { variables = {} },
  }, Context)
  local inbox = values.select_replica(args, 0)
  inbox.n = args.n or #args
  if kwargs ~= nil then
    inbox.n = inbox.n + 1
    inbox[inbox.n] = values.select_replica(kwargs, 0)
  end
  return contexts.with_mode({ strategy = strategy, replica = context }, fn,
    unpack(inbox, 1, inbox.n))
end

--- The replica context that the default strategy has outside of runs.
function M.default_context(strategy)
  return setmetatable({
    replica_id_in_sync_group = 0, strategy = strategy,
  }, Context)
end

-- ReplicaContext -------------------------------------------------------------

--- Raise unless this context is the running one.
--- Errors: RuntimeError.
function M.require_current(context, what)
  local current = contexts.get_replica_context()
  if current == context then
    return
  elseif current == nil or current == contexts.default_context then
    errors.raise("RuntimeError", what .. ": need to be inside the replica "
      .. "function (call_for_each_replica); this ReplicaContext belongs to one "
      .. "that is not running")
  end
  errors.raise("RuntimeError", what .. ": mismatching ReplicaContext: it "
    .. "belongs to another replica than the running one")
end

local methods = {}

local function method(name, signature, fn)
  methods[name] = options.method("ReplicaContext." .. name, signature,
    function(self, ...)
      M.require_current(self, name)
      return fn(self, ...)
    end, is_context, "replica context")
end

M.define = method

local function same_everywhere(x)
  return values.is_value(x)
end

-- A reply for each replica from what a merge function returned.
local function split_results(results, n)
  local replies = {}
  for i = 1, n do
    local own = { n = results.n }
    for k = 1, results.n do
      own[k] = same_everywhere(results[k]) and values.component(results[k],
        i - 1) or values.select_replica(results[k], i - 1)
    end
    replies[i] = own
  end
  return replies
end

--- Call merge_fn(strategy, ...) once for all replicas, in cross-replica
--- context; each argument is what regrouping makes of the replicas' arguments.
--- Returns what it returns, per-replica values as this replica's component.
--- Errors: RuntimeError unless all replicas call it; those of merge_fn come
---   out of strategy:run.
--- Source: tf.distribute.ReplicaContext.merge_call
method("merge_call", "merge_fn args:table=nil kwargs:table=nil",
  function(self, merge_fn, args, kwargs)
    if type(merge_fn) ~= "function" then
      errors.raise("TypeError", "merge_call: merge_fn must be a function, got "
        .. text.describe(merge_fn))
    end
    args = args or {}
    local payload = {
      fn = merge_fn, kwargs = kwargs, n = args.n or #args,
      unpack(args, 1, args.n or #args),
    }
    local reply = M.sync(self, "merge_call", payload, function(strategy, list)
      local first = list[1]
      local given = values.regroup_results(strategy, list, list.n,
        "per_replica")
      given.n = first.n
      if first.kwargs ~= nil then
        local tables = {}
        for i = 1, list.n do
          tables[i] = list[i].kwargs
        end
        given.n = given.n + 1
        given[given.n] = values.regroup(strategy, tables, list.n,
          "per_replica")
      end
      local results = pack(first.fn(strategy, unpack(given, 1, given.n)))
      return split_results(results, list.n)
    end)
    return unpack(reply, 1, reply.n)
  end)

local getters = {}

function getters.num_replicas_in_sync(self)
  return self.strategy.num_replicas_in_sync
end

--- Devices of this replica, canonical names.
function getters.devices(self)
  local own = self.strategy:replica_device(rawget(self,
    "replica_id_in_sync_group"))
  return { own or raw.device_name(raw.device_current()) }
end

function Context.__index(self, key)
  local found = getters[key]
  if found ~= nil then
    return found(self)
  end
  return methods[key]
end

function Context.__tostring(self)
  return ("ReplicaContext (replica %d of %d, %s)"):format(
    self.replica_id_in_sync_group, self.num_replicas_in_sync,
    self.strategy.name)
end

return M
