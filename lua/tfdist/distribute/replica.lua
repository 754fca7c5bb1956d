--- Running a function on every replica, and what replicas do together.
---
--- Replicas are coroutines, resumed in replica order, in lock-step at sync
--- points: a replica that reaches one yields a request; when all wait at the
--- same one, the request of replica 0 is answered in cross-replica context and
--- all go on. The C side keeps the turns and each replica's context.
local contexts = require "tfdist.distribute.contexts"
local errors = require "tfdist.base.errors"
local guard = require "tfdist.base.guard"
local options = require "tfdist.base.options"
local raw = require "tfdist.core.raw"
local state = require "tfdist.core.state"
local text = require "tfdist.base.text"
local values = require "tfdist.distribute.values"

local M = {}

-- Far fewer than what either engine's stack takes.
local MOST_ARGUMENTS = 250

local select, setmetatable, type = select, setmetatable, type
local run_next, run_pass = raw.run_next, raw.run_pass
local running, resume, yield = coroutine.running, coroutine.resume,
  coroutine.yield
local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local Context = { __name = "ReplicaContext" }

-- What passes between a run and its replicas: a run resumes with GO or STOP, a
-- replica yields SYNC at a sync point and DONE with what fn returned.
local GO, STOP, SYNC, DONE = {}, {}, {}, {}
local NOTHING = { n = 0 }
-- What errors of arguments and results begin with.
local RUN = "strategy:run"

local function pack(...)
  local n = select("#", ...)
  if n == 0 then
    return NOTHING
  end
  return { n = n, ... }
end

local function is_context(x)
  return getmetatable(x) == Context
end

-- Crews ----------------------------------------------------------------------

-- A crew is a strategy's replicas at work: coroutines that call one function
-- after the other. A run that ends well gives it back to the strategy; after
-- an error it is left to the collector.

-- A frame of its own: at rest a coroutine holds nothing of the last run.
local function work(replica, fn, ...)
  replica.results = pack(fn(...))
end

local function serve(replica)
  while true do
    work(replica, yield(DONE))
  end
end

local function new_crew(strategy)
  local crew = { n = raw.strategy_local_count(strategy.handle) }
  for i = 1, crew.n do
    local thread = coroutine.create(serve)
    crew[i] = {
      id = i - 1, thread = thread, crew = crew, mode = { strategy = strategy },
      state = { name_scope = "", thread = thread }, waits = false,
      plain = { n = 0 },
    }
    crew[i].state.replica = crew[i]
    resume(thread, crew[i])
  end
  return crew
end

-- Make the replicas ready for a run that begins in state `outer`.
local function muster(strategy, outer)
  local crew = rawget(strategy, "crew") or new_crew(strategy)
  strategy.crew = false -- not nil: a new key costs __newindex
  local creators, name_scope = outer.creators, outer.name_scope
  local made = crew.variables ~= nil
  crew.variables = nil
  local trace = outer.trace
  if trace ~= nil then
    crew.trace = trace
  end
  for i = 1, crew.n do
    local replica = crew[i]
    local mode, own = replica.mode, replica.state
    if made then
      replica.counts = nil
    end
    local context = setmetatable({
      replica_id_in_sync_group = strategy.first_replica + i - 1,
      strategy = strategy,
      thread = replica.thread, replica = replica,
    }, Context)
    replica.context, mode.replica = context, context
    own.mode, own.creators = mode, creators
    if own.run_scope ~= name_scope then
      own.run_scope, own.run_seen = name_scope, i > 1 and name_scope
        .. ("replica_%d/"):format(replica.id) or nil
    end
    own.name_scope = own.run_seen or name_scope
    if trace ~= nil then
      own.trace = trace
    end
  end
  return crew
end

-- Give the crew back; returns what each replica's function returned, and how
-- many values that is in all.
local function dismiss(strategy, crew)
  local packs, count = {}, 0
  for i = 1, crew.n do
    local replica = crew[i]
    local results = replica.results
    packs[i] = results
    count = count + results.n
    replica.results, replica.state.creators = nil, nil
  end
  if crew.trace ~= nil then
    crew.trace = nil
    for i = 1, crew.n do
      crew[i].state.trace = nil
    end
  end
  strategy.crew = crew
  return packs, count
end

-- One run --------------------------------------------------------------------

-- The replica's error on its way out: who it was, and the frames of both
-- coroutines.
local function describe_error(replica, e)
  if type(e) == "string" and guard.is_boundary(e) then
    e = errors.new("RuntimeError", "strategy:run: a sync point inside a "
      .. "function that C calls, as table.sort and string.gsub do",
      "call it from the replica function itself")
    e.where = contexts.where(replica.thread)
  end
  local e_text = type(e) == "string"
  local outer = errors.traceback(2):gsub("^stack traceback:\n?", "")
  e = errors.wrap(e)
  if not errors.is_error(e) or e.from_run then
    return e
  end
  if e_text then
    e.traceback = errors.traceback(0, replica.thread)
  end
  -- A tail call leaves no frame of the replica function: then the run's place.
  e.where = e.where or errors.position()
  local id = replica.context.replica_id_in_sync_group
  e.replica = e.replica or id
  e.traceback = e.traceback .. "    (run on replica " .. id .. ")"
    .. (outer ~= "" and "\n" .. outer or "")
  e.from_run = true
  return e
end

local function astray()
  return errors.new("RuntimeError", "strategy:run: the replica function "
    .. "yielded outside of a sync point",
    "wrap its own coroutines in coroutine.wrap inside the function")
end

-- Give a replica its turn: resume its coroutine in its state. Returns the
-- point where it waits, "" when it has come back, or nil and its error.
local function turn(replica, ...)
  local ok, signal = state.resume(replica.state, replica.thread, ...)
  if signal == SYNC then
    replica.waits = true
    return replica.point
  end
  replica.waits = false
  if signal == DONE then
    return ""
  end
  return nil, ok and astray() or signal
end

-- Wake those that wait so that their own clean-up runs; what they raise is
-- not news.
local function stop_others(run, crew)
  raw.run_cancel(run)
  local event, id = run_next(run)
  while event == "resume" do
    local replica = crew[id + 1]
    replica.stopped = true
    turn(replica, STOP)
    event, id = run_pass(run, "")
  end
end

local function fail(run, crew, e)
  stop_others(run, crew)
  error(e, 0)
end

-- Where a replica waits, or where the function it came back from ends.
local function where_of(replica, fn)
  if replica.waits then
    return contexts.where(replica.thread) or ""
  end
  fn = text.written(fn)
  local info = fn and debug.getinfo(fn, "S")
  if fn == nil or info.what == "C"
    or info.source:sub(1, #errors.library) == errors.library then
    return ""
  end
  return ("%s:%d (or an earlier return)"):format(info.short_src,
    info.lastlinedefined)
end

local function diverged(run, crew, id, fn)
  local ok, e = pcall(raw.run_diverge, run, id, where_of(crew[1], fn),
    where_of(crew[id + 1], fn))
  if ok then
    e = errors.new("Internal", "strategy:run: replicas differ")
  end
  fail(run, crew, e)
end

-- Put the state back to what it was before a merge function.
local function restore(own, mode, creators, name_scope, depth)
  own.mode, own.creators, own.name_scope = mode, creators, name_scope
  while raw.device_depth() > depth do
    raw.device_pop()
  end
end

-- What the library finds wrong while it answers has no frame of the script but
-- the run's: it is told where replica 0 asked, and where others did elsewhere. A
-- merge function on run's line has that position, too, and a frame of its own;
-- a traceback with the library's frames does not tell the two apart.
local function told_where_asked(crew, e)
  local where = contexts.where(crew[1].thread)
  if not errors.is_error(e) or e.deferred or where == nil
    or e.where ~= errors.position() or not (errors.full_traceback
    or e.traceback == errors.traceback()) then
    return e
  end
  e.where = where
  e.traceback = errors.traceback(0, crew[1].thread) .. "    (replica 0)"
    .. e.traceback:gsub("^stack traceback:", "")
  for i = 2, crew.n do
    local other = contexts.where(crew[i].thread)
    if other ~= nil and other ~= where then
      errors.note(e, ("replica %d: %s"):format(
        crew[i].context.replica_id_in_sync_group, other))
    end
  end
  return e
end

-- Answer the request that all replicas made, in cross-replica context: a list
-- with one reply for each, or nil.
local function answer(run, strategy, crew)
  local first = crew[1]
  local payloads = { n = crew.n }
  for i = 1, crew.n do
    payloads[i] = crew[i].payload
    crew[i].payload = nil
  end
  local own, depth = state.current, raw.device_depth()
  local mode, creators, name_scope = own.mode, own.creators, own.name_scope
  own.name_scope = first.state.name_scope
  local ok, replies = pcall(first.answer, strategy, payloads)
  first.answer = nil
  restore(own, mode, creators, name_scope, depth)
  if not ok then
    -- A text has the line of who raised it, which the library's have not.
    fail(run, crew, errors.wrap(told_where_asked(crew,
      guard.explain(replies, "a merge function"))))
  end
  return replies
end

--- Arguments must be a list of a length that a call can have, and a table.
--- Errors: ValueError.
---@param example? string  a call as it should be
function M.check_arguments(what, args, kwargs, example)
  if args ~= nil and not text.is_plain(args) then
    errors.raise("ValueError", ("%s: args must be a table of arguments, got %s")
      :format(what, text.describe(args)), example)
  elseif kwargs ~= nil and not text.is_plain(kwargs) then
    errors.raise("ValueError", ("%s: kwargs must be a table, got %s"):format(
      what, text.describe(kwargs)))
  end
  local n = args and (args.n or #args) or 0
  if type(n) ~= "number" or n < 0 or n > MOST_ARGUMENTS or n % 1 ~= 0 then
    errors.raise("ValueError", ("%s: n, the length of args, must be a whole "
      .. "number in 0..%d, got %s"):format(what, MOST_ARGUMENTS, type(n)
      == "number" and text.number(n) or text.describe(n)))
  end
end

-- No structures among the arguments?
local function is_flat(args, n)
  for k = 1, n do
    if type(args[k]) == "table" then
      return false
    end
  end
  return n > 0
end

-- Arguments as each replica gets them: lists with n, nil for none.
local function specialise(crew_n, args, kwargs)
  if args == nil and kwargs == nil then
    return nil
  end
  local lists, n = {}, args and (args.n or #args) or 0
  local flat = is_flat(args, n)
  for i = 1, crew_n do
    local own = flat and values.select_flat(args, n, i - 1, crew_n)
      or values.select_replica(args or NOTHING, i - 1, RUN, crew_n)
    own.n = n
    if kwargs ~= nil then
      own.n = own.n + 1
      own[own.n] = values.select_replica(kwargs, i - 1, RUN, crew_n)
    end
    lists[i] = own
  end
  return lists
end

--- Call fn on each replica of the strategy, whose scope must be entered, by a
--- run that has begun; whoever began it releases it after an error.
--- Returns the results of all, regrouped, as a list with n.
function M.run(strategy, run, fn, args, kwargs)
  local crew = muster(strategy, state.current)
  local lists = specialise(crew.n, args, kwargs)
  local replies, begun = nil, 0
  local event, id = run_next(run)
  while event ~= "done" do
    if event == "resume" then
      local replica = crew[id + 1]
      local point, e
      if begun ~= id then
        point, e = turn(replica, GO, replies and replies[id + 1])
      elseif lists == nil then
        begun = id + 1
        point, e = turn(replica, fn)
      else
        begun = id + 1
        point, e = turn(replica, fn, unpack(lists[begun], 1, lists[begun].n))
        lists[begun] = nil
      end
      if point == nil then
        fail(run, crew, describe_error(replica, e))
      end
      event, id = run_pass(run, point)
    elseif event == "merge" then
      replies = answer(run, strategy, crew)
      event, id = run_next(run)
    else
      diverged(run, crew, id, fn)
    end
  end
  raw.release(run)
  local packs, count = dismiss(strategy, crew)
  if count == 0 then
    return NOTHING
  end
  return values.regroup_results(strategy, packs, crew.n, "per_replica", RUN)
end

-- Sync points ----------------------------------------------------------------

local function stopped(context)
  errors.raise("Cancelled", ("replica %d stops because another replica failed")
    :format(context.replica_id_in_sync_group))
end

local function received(context, point, signal, reply)
  if signal == GO then
    return reply
  elseif signal == STOP then
    stopped(context)
  end
  errors.raise("RuntimeError", point .. ": the replica's coroutine was resumed "
    .. "by something else than its run",
    "leave the coroutines of replicas to strategy:run")
end

-- What replicas do together is no part of one replica's graph; a graph of the
-- whole run has it.
local function refuse_traced(point, replica, trace)
  if trace == replica.crew.trace then
    return
  elseif point == "merge_call" then
    errors.raise("RuntimeError", "`merge_call` called while defining a new graph "
      .. "or a tf.function_: the traced function \"" .. trace.name .. "\"",
      "trace the function that strategy:run is given, or the run itself")
  end
  local name, own = point:match "^[%w_]+" or point, replica.crew.trace
  if own ~= nil and trace.root == (own.root or own) then
    local loop = trace.loops
    errors.raise("NotImplementedError", ("%s: not inside %s, which the call of "
      .. "the traced function \"%s\" decides on"):format(name, loop
      and "tf.while_loop" or "tf.cond", trace.name), loop
      and "call it before or after the loop; a Lua `for` unrolls"
      or "call it before or after, on what tf.cond or tf.where gives")
  end
  errors.raise("NotImplementedError", ("%s: not inside the traced function "
    .. "\"%s\""):format(name, trace.name),
    "trace the function that strategy:run is given, or the run itself")
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
  end
  local replica = context.replica
  local trace = state.current.trace
  if trace ~= nil then
    refuse_traced(point, replica, trace)
  end
  if replica.stopped then
    stopped(context)
  elseif running() ~= context.thread then
    errors.raise("RuntimeError", point .. ": a sync point inside a coroutine "
      .. "of the replica function's own", "call it from the function itself")
  end
  replica.point, replica.payload, replica.answer = point, payload, answer_fn
  return received(context, point, yield(SYNC))
end

--- Call fn here as the only replica (id 0); returns what it returns.
function M.run_inline(strategy, fn, args, kwargs)
  local context = setmetatable({
    replica_id_in_sync_group = 0, strategy = strategy,
  }, Context)
  local inbox = values.select_replica(args, 0, RUN, 1)
  inbox.n = args.n or #args
  if kwargs ~= nil then
    inbox.n = inbox.n + 1
    inbox[inbox.n] = values.select_replica(kwargs, 0, RUN, 1)
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

-- Whether every replica sees x as it is.
local function is_common(x)
  return type(x) ~= "table" and not values.is_value(x)
end

-- A reply for each replica from what a merge function returned; one for all
-- where they are the same.
local function split_results(results, n, what)
  local replies, common = {}, true
  for k = 1, results.n do
    common = common and is_common(results[k])
  end
  if common then
    for i = 1, n do
      replies[i] = results
    end
    return replies
  end
  for i = 1, n do
    local own = { n = results.n }
    for k = 1, results.n do
      own[k] = values.select_replica(results[k], i - 1, what)
    end
    replies[i] = own
  end
  return replies
end

-- Regroup what all replicas gave to merge_call and call replica 0's function.
local function merge(strategy, list)
  local first = list[1]
  local what = first.what or "merge_call"
  local given = NOTHING
  if first.n > 0 or first.kwargs ~= nil then
    given = values.regroup_results(strategy, list, list.n, "per_replica",
      what)
    given.n = first.n
  end
  if first.kwargs ~= nil then
    local tables = {}
    for i = 1, list.n do
      tables[i] = list[i].kwargs
    end
    given.n = given.n + 1
    given[given.n] = values.regroup(strategy, tables, list.n, "per_replica",
      what)
  end
  local fn = first.fn
  for i = 1, list.n do
    list[i].fn = nil
  end
  local results = pack(fn(strategy, unpack(given, 1, given.n)))
  if results.n == 0 then
    return nil
  end
  return split_results(results, list.n, what)
end

--- Call merge_fn(strategy, ...) once for all replicas, in cross-replica
--- context; each argument is what regrouping makes of the replicas' arguments.
--- Returns what it returns, per-replica values as this replica's component.
--- Errors: RuntimeError unless all replicas call it; those of merge_fn come
---   out of strategy:run.
--- Source: tf.distribute.ReplicaContext.merge_call
---@param what? string  the caller's name, else its own
local function merge_call(self, merge_fn, args, kwargs, what)
  text.check_callable("merge_call", "merge_fn", merge_fn)
  local payload
  if args == nil and kwargs == nil and self.thread ~= nil then
    -- One merge waits at a time: the table can be used again.
    payload = self.replica.plain
    payload.fn = merge_fn
  else
    M.check_arguments("merge_call", args, kwargs)
    local n = args and (args.n or #args) or 0
    payload = { fn = merge_fn, kwargs = kwargs, n = n, what = what,
      unpack(args or NOTHING, 1, n) }
  end
  local reply = M.sync(self, "merge_call", payload, merge)
  if reply == nil then
    return
  end
  return unpack(reply, 1, reply.n)
end

M.merge_call = merge_call

method("merge_call", "merge_fn args:table=nil kwargs:table=nil", merge_call)

local checked_merge_call = methods.merge_call

-- The usual call: a function only, by the replica whose turn it is.
function methods.merge_call(self, merge_fn, args, kwargs, surplus)
  if args == nil and kwargs == nil and surplus == nil
    and type(merge_fn) == "function" then
    local replica = state.current.replica
    if replica ~= nil and replica.context == self
      and running() == replica.thread and not replica.stopped
      and state.current.trace == nil then
      local payload = replica.plain
      payload.fn = merge_fn
      replica.point, replica.payload = "merge_call", payload
      replica.answer = merge
      local signal, reply = yield(SYNC)
      if signal ~= GO then
        received(self, "merge_call", signal)
      elseif reply == nil then
        return
      end
      return unpack(reply, 1, reply.n)
    end
  end
  return checked_merge_call(self, merge_fn, args, kwargs, surplus)
end

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

function Context.__names()
  return text.names(methods, getters, { strategy = true,
    replica_id_in_sync_group = true, num_replicas_in_sync = true })
end

local unknown_field = text.unknown_fields("ReplicaContext",
  { thread = true, replica = true }, Context.__names)

function Context.__index(self, key)
  local found = getters[key]
  if found ~= nil then
    return found(self)
  end
  found = methods[key]
  if found == nil then
    return unknown_field(key)
  end
  return found
end

-- The context outside of strategies is one for the whole program.
function Context.__newindex(self, key, value)
  if getters[key] ~= nil or methods[key] ~= nil then
    errors.raise("TypeError", ("ReplicaContext: %s cannot be set"):format(key))
  end
  rawset(self, key, value)
end

function Context.__tostring(self)
  return ("ReplicaContext (replica %d of %d, %s)"):format(
    self.replica_id_in_sync_group, self.num_replicas_in_sync,
    self.strategy.name)
end

return M
